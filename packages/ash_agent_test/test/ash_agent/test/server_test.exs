defmodule AshAgent.Test.ServerTest do
  # The server's answers, read by the real clients: each format, whole and streamed, in any cuts.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Response, Runtime}
  alias AshAgent.LLM.Error
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.Clients

  @clients Clients.modules()

  @thinking %{type: :thinking, text: "Hm, let me see."}
  @arguments %{"to" => "Ann", "amount" => 12.5, "for" => ["a", %{"b" => nil}]}
  @answer %{
    content: [@thinking, %{type: :text, text: "Grüße, alle Welt!"}],
    tool_calls: [
      %{id: "call_1", name: "pay", arguments: @arguments},
      %{id: "call_2", name: "now", arguments: %{}}
    ],
    usage: %{input_tokens: 100, output_tokens: 20, cached_tokens: 40, reasoning_tokens: 5},
    model: "some-model",
    finish_reason: :tool_calls
  }

  defp client(server, provider, opts \\ []) do
    own = if provider == :bedrock, do: [region: "eu-central-1", api_key: "k"], else: []
    own = [model: "m", base_url: Server.base_url(server), max_retries: 0] ++ own
    @clients[provider].new(Keyword.merge(own, opts))
  end

  defp serve(opts, id \\ nil),
    do: start_supervised!({Server, opts}, id: id || make_ref())

  # What a form has no room for: ids of calls at Ollama, and figures of tokens.
  defp expected(provider) do
    calls = @answer.tool_calls
    calls = if provider == :ollama, do: Enum.map(calls, &Map.delete(&1, :id)), else: calls
    {"Hm, let me see.", "Grüße, alle Welt!", calls, 100, 20}
  end

  defp read(response, provider) do
    message = Response.message(response)
    usage = Response.usage(response)

    thinking =
      for %{type: :thinking, text: text} <- List.wrap(message.content), into: "", do: text

    keys = if provider == :ollama, do: [:name, :arguments], else: [:id, :name, :arguments]
    calls = Enum.map(message.tool_calls, &Map.take(&1, keys))
    {thinking, Response.text(message), calls, usage.input_tokens, usage.output_tokens}
  end

  for {provider, _client} <- @clients do
    test "#{provider}: an answer arrives as it was written, whole and streamed, in any cuts" do
      provider = unquote(provider)
      whole = fn bytes -> [bytes] end
      each = fn bytes -> for <<byte <- bytes>>, do: <<byte>> end
      random = fn bytes -> Clients.cut_randomly(bytes, {provider, 33}, 50) end

      for cuts <- [:events, whole, each, random] do
        opts = for(:mistral <- [provider], do: {:provider, :mistral})
        opts = opts ++ [script: [@answer, @answer], cuts: cuts]
        server = serve(opts)
        llm = client(server, provider)
        {:ok, response} = LLM.chat(llm, Context.new("Hi"))
        assert read(response, provider) == expected(provider)
        {:ok, response} = LLM.stream(llm, Context.new("Hi"), fn _event -> :ok end)
        assert read(response, provider) == expected(provider)
        assert Response.finish_reason(response) in [:tool_calls, :stop]

        assert [%{provider: ^provider, stream?: false}, %{stream?: true, number: 2}] =
                 Server.requests(server)
      end
    end
  end

  test "signatures of thinking and the token limit arrive" do
    signed = %{provider: :anthropic, signature: "sig"}
    thinking = %{type: :thinking, text: "Hm.", provider_metadata: signed}
    answer = %{content: [thinking, %{type: :text, text: "Oh"}], finish_reason: :length}

    for {provider, signed?} <- [anthropic: true, bedrock: true, gemini: true, openai_chat: false],
        stream? <- [true, false] do
      llm = client(serve(script: [answer]), provider)
      ask = if stream?, do: &LLM.stream(llm, &1, fn _ -> :ok end), else: &LLM.chat(llm, &1)
      assert {:ok, response} = ask.(Context.new("Hi"))
      assert Response.finish_reason(response) == :length
      [first | _] = Response.message(response).content
      assert match?(%{provider_metadata: %{signature: "sig"}}, first) == signed?
    end
  end

  test "steps are refusals, bytes and functions, and an empty script refuses without a second try" do
    script = [
      {:refuse, 503, "Later", [{"retry-after", "0"}]},
      {:raw, 200, [{"content-type", "application/json"}],
       [
         ~s({"type":"message","content":[{"type":"te),
         ~s(xt","text":"Hi!"}],"stop_reason":"end_turn"})
       ]},
      fn request -> "You said #{hd(request.body["messages"])["content"]}" end,
      fn _request -> raise "oh" end
    ]

    server = serve(script: script)
    llm = client(server, :anthropic, max_retries: 1)

    ask = fn words ->
      with {:ok, response} <- LLM.chat(llm, Context.new(words)),
           do: {:ok, Response.text(response)}
    end

    assert ask.("One") == {:ok, "Hi!"}
    assert ask.("Two") == {:ok, "You said Two"}

    for {words, told} <- [{"Three", "the script failed: oh"}, {"Four", "the script is exhausted"}],
        do: assert({:error, %Error{status: 400, provider_message: ^told}} = ask.(words))

    assert length(Server.requests(server)) == 5
  end

  test "a run goes through a real client: calls, a cut stream, and the answer" do
    script = [
      %{tool_calls: [%{id: "a", name: "add", arguments: %{"a" => 1, "b" => 2}}]},
      {:cut, "The sum is about to be told."},
      "It is 3."
    ]

    server = serve(script: script)

    tools = %{add: fn %{"a" => a, "b" => b} -> {:ok, a + b} end}
    opts = [llm: client(server, :openai_chat), tools: tools]
    assert {:error, error} = Runtime.run(Context.new("1 + 2?"), opts)
    assert {:llm_error, %Error{kind: :closed}} = error.reason
    assert {:ok, %{output: "It is 3."}} = Runtime.run(error.context, opts)
  end

  test "paths that no provider has, and bodies that are not JSON, are refused" do
    server = serve(script: ["Hi"])
    url = Server.base_url(server)
    {transport, opts} = LLM.Transport.new(LLM.Transport.HTTP1)
    head = fn {:head, status, _headers}, nil -> {:halt, status} end

    for {path, body} <- [{"/embeddings", "{}"}, {"/messages", "{"}] do
      request = %LLM.Transport.Request{method: "POST", uri: URI.parse(url <> path), body: body}
      assert transport.stream(request, nil, head, opts) == {:ok, 404}
    end

    assert Server.requests(server) == []
  end

  test "a wrong script is refused when the server starts" do
    for step <- [:nothing, 5, %{content: 5}, {:cut, 5}, {:raw, 200, "a", []}] do
      refused = if is_map(step), do: Context.Error, else: ArgumentError
      assert_raise refused, fn -> Server.start_link(script: [step]) end
    end
  end
end
