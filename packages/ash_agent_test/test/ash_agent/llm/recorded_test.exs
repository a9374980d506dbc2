defmodule AshAgent.LLM.RecordedTest do
  # Recorded through the real clients against the server of the test support, and played with nobody listening.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [drain: 1, prompt: 2, say: 1]

  alias AshAgent.{Context, LLM, Response}
  alias AshAgent.LLM.{Error, Recorded}
  alias AshAgent.LLM.Recorded.MissingError
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.Clients

  @moduletag :tmp_dir

  @clients Clients.modules()
  @key "secret-key-of-this-test"

  setup %{tmp_dir: folder}, do: {:ok, cassette: Path.join(folder, "cassette.json")}

  defp client(provider, url, opts \\ []) do
    own = if provider == :bedrock, do: [region: "eu-central-1"], else: []
    own = [model: "m", base_url: url, api_key: @key, max_retries: 1] ++ own
    @clients[provider].new(Keyword.merge(own, opts))
  end

  # The path of a request has nothing of the port.
  defp nobody, do: Server.refused_url()

  defp serve(opts), do: start_supervised!({Server, opts}, id: make_ref())

  defp record(provider, server, cassette, opts \\ []) do
    {own, opts} = Keyword.split(opts, [:max_retries, :body])
    opts = Keyword.merge([cassette: cassette, mode: :record_missing], opts)
    provider |> client(Server.base_url(server), own) |> Recorded.new(opts)
  end

  defp replay(provider, cassette, opts \\ []) do
    {own, opts} = Keyword.split(opts, [:max_retries, :body])
    provider |> client(nobody(), own) |> Recorded.new([cassette: cassette, mode: :replay] ++ opts)
  end

  defp said(llm, context, stream?) do
    test = self()

    result =
      if stream?,
        do: LLM.stream(llm, context, fn events, _response -> send(test, {:events, events}) end),
        else: LLM.chat(llm, context)

    with {:ok, response} <- result,
         do: {Response.message(response), Response.usage(response), received()}
  end

  defp received, do: drain(do: ({:events, events} -> events))

  defp cut_again(recording, seed) do
    bytes = for {_at, piece} <- recording.pieces, into: "", do: piece
    %{recording | pieces: for(piece <- Clients.cut_randomly(bytes, seed, 40), do: {0, piece})}
  end

  for {provider, _client} <- @clients, stream? <- [true, false] do
    test "#{provider}, streamed #{stream?}: a run that was recorded is played, in the same pieces",
         %{cassette: cassette} do
      {provider, stream?} = {unquote(provider), unquote(stream?)}

      calls = [%{id: "call_1", name: "add", arguments: %{"a" => 1}}]
      call = %{tool_calls: calls, usage: %{input_tokens: 5, output_tokens: 2}}

      for seed <- 1..5 do
        cassette = cassette <> "#{seed}"

        cuts = &Clients.cut_randomly(&1, {provider, seed}, 40)
        opts = for(:mistral <- [provider], do: {:provider, :mistral})
        opts = opts ++ [script: [call, "Grüße, alle Welt!"], cuts: cuts]
        context = Context.new("1 + 1?", system_prompt: "Be kind.")

        runs =
          for start <- [
                fn -> record(provider, serve(opts), cassette) end,
                fn -> replay(provider, cassette) end
              ] do
            llm = start.()
            first = said(llm, context, stream?)
            {message, _usage, _events} = first
            context = Context.add_assistant_message(context, nil, message.tool_calls)
            [%{id: id}] = Context.pending_tool_calls(context)
            {first, said(llm, Context.add_tool_results(context, [{id, {:ok, 2}}]), stream?)}
          end

        # Ollama's ids of calls are made when a context takes them.
        assert [same, same] = runs

        {_first, {%{content: content}, _usage, _events}} = same
        assert Response.text(%{content: content}) == "Grüße, alle Welt!"
        text = File.read!(cassette)
        refute text =~ @key
        {:ok, recordings} = Recorded.Form.read(text)
        assert Recorded.Form.write(recordings) == text
        assert length(:binary.matches(text, "1 + 1?")) == 1

        # The network joined pieces as it liked, so they are cut again.
        again = recordings |> Enum.map(&cut_again(&1, seed)) |> Recorded.Form.write()
        File.write!(cassette, again)
        llm = replay(provider, cassette)
        {message, usage, events} = said(llm, context, stream?)
        assert {{^message, ^usage, _events}, _second} = same
        if stream?, do: assert(length(events) > 1)
      end
    end
  end

  test "a run is played by the loop, with tools, and the server plays a cassette to the real client",
       %{cassette: cassette} do
    script = [%{tool_calls: [%{id: "call_1", name: "add", arguments: %{"a" => 1}}]}, "It is 2."]
    opts = [tools: %{add: fn %{"a" => a} -> {:ok, a + 1} end}]
    run = fn llm -> prompt("1 + 1?", [llm: llm] ++ opts) end

    assert {:ok, %{output: "It is 2."}} =
             run.(record(:anthropic, serve(script: script), cassette))

    assert {:ok, %{output: "It is 2."} = result} = run.(replay(:anthropic, cassette))
    assert result.iterations == 2
    # The conversation keeps what the client asks for, as without a cassette.
    assert %{fields: %{"model" => "m", "body" => %{"max_tokens" => 4_096}}} =
             Context.Audit.get_request(result.context, 1)

    server = serve(cassette: cassette)
    assert {:ok, %{output: "It is 2."}} = run.(client(:anthropic, Server.base_url(server)))

    assert {:error, error} = prompt("2 + 2?", llm: client(:anthropic, Server.base_url(server)))

    assert {:llm_error, %Error{status: 400, provider_message: words}} = error.reason
    assert words =~ "message 1 (user)"
  end

  describe "a request without a recording" do
    setup %{cassette: cassette} do
      script = [%{tool_calls: [%{id: "call_3", name: "look", arguments: %{}}]}, "Rain."]
      llm = record(:anthropic, serve(script: script), cassette)
      {:ok, _} = prompt("Weather?", llm: llm, tools: tools(%{}, "12 degrees"))
      :ok
    end

    defp tools(parameters, result) do
      schema = %{"type" => "object", "properties" => parameters}

      tool = %{name: "look", description: "Looks.", parameters: schema}
      [Map.put(tool, :function, fn _ -> {:ok, result} end)]
    end

    test "fails with the nearest recording and the first difference, and asks nobody", %{
      cassette: cassette
    } do
      before = File.read!(cassette)

      for {question, opts, tools, nearest, words} <- [
            {"Weather?", [], tools(%{}, "13 degrees"), 2,
             ~s|message 3 (user), tool result of call_3: was "12 degrees", is "13 degrees"|},
            {"Weather?", [], tools(%{"city" => %{"type" => "string"}}, "12 degrees"), 1,
             "the tool `look` has a new parameter `city`"},
            {"Whether?", [], tools(%{}, "12 degrees"), 1,
             ~s|message 1 (user), text: was "Weather?", is "Whether?"|},
            {"Weather?", [body: %{temperature: 0}], tools(%{}, "12 degrees"), 1,
             "the field temperature: is \"0\", was not there"}
          ] do
        llm = replay(:anthropic, cassette, opts)
        assert {:error, error} = prompt(question, llm: llm, tools: tools)
        assert {:llm_exception, :error, %MissingError{nearest: ^nearest} = missing} = error.reason
        assert Exception.message(missing) =~ "the nearest is request #{nearest}, but #{words}"
        assert Exception.message(missing) =~ cassette
      end

      assert_raise MissingError, ~r{the path: was "/v1/messages", is "/v1/responses"}, fn ->
        LLM.chat(replay(:openai_responses, cassette), Context.new("Weather?"))
      end

      assert File.read!(cassette) == before
    end

    test "of a file that is not there, says so", %{cassette: cassette} do
      llm = replay(:anthropic, cassette <> ".none")

      assert_raise MissingError,
                   ~r/there are no recordings.*ASH_AGENT_CASSETTES=record_missing/,
                   fn -> LLM.chat(llm, Context.new("Hi")) end

      refute File.exists?(cassette <> ".none")
    end
  end

  test "failures, tries and cut streams are played as they were", %{cassette: cassette} do
    context = Context.new("Hi")
    ask = fn llm -> LLM.stream(llm, context, fn _event -> :ok end) end

    llm =
      record(:openai_chat, serve(script: [:busy, {:cut, "One two three"}, "Hello!"]), cassette)

    assert {:error, %Error{kind: :closed, attempt: 2} = cut} = ask.(llm)
    assert {:ok, answer} = ask.(llm)

    llm = replay(:openai_chat, cassette)
    assert {:error, %Error{kind: :closed, attempt: 2} = played} = ask.(llm)
    assert Response.text(played.response) == Response.text(cut.response)

    for _again <- 1..2 do
      assert {:ok, played} = ask.(llm)
      assert Response.text(played) == Response.text(answer)
    end

    # Nobody listened when it was recorded.
    cassette = cassette <> "2"

    ollama = client(:ollama, nobody(), max_retries: 0)
    recorded = Recorded.new(ollama, cassette: cassette, mode: :record_all)

    for start <- [fn -> recorded end, fn -> replay(:ollama, cassette, max_retries: 0) end],
        do: assert({:error, %Error{kind: :unreachable}} = LLM.chat(start.(), context))
  end

  test "modes: what is there is not asked for again, unless all is recorded anew", %{
    cassette: cassette
  } do
    server = serve(script: ["One", "Two", "Three"])

    ask = fn llm, words ->
      {:ok, response} = LLM.chat(llm, Context.new(words))
      Response.text(response)
    end

    llm = record(:gemini, server, cassette)
    assert ask.(llm, "a") == "One"
    assert ask.(record(:gemini, server, cassette), "a") == "One"
    assert ask.(record(:gemini, server, cassette), "b") == "Two"
    assert ask.(record(:gemini, server, cassette, mode: :record_all), "b") == "Three"
    assert_raise MissingError, fn -> LLM.chat(replay(:gemini, cassette), Context.new("a")) end
    assert ask.(replay(:gemini, cassette), "b") == "Three"
    assert length(Server.requests(server)) == 3
  end

  test "differences that do not count are ignored by name", %{cassette: cassette} do
    context = fn id, day, seed ->
      context =
        Context.new("It is #{day}.")
        |> Context.add_assistant_message(nil, [%{id: id, name: "look", arguments: %{}}])
        |> Context.add_tool_results([{id, {:ok, "seen"}}])

      {context, [body: %{seed: seed}]}
    end

    {recorded, own} = context.("call_a", "2026-01-01 10:00", 1)
    {:ok, _} = :openai_chat |> record(serve(script: ["Ok"]), cassette, own) |> LLM.chat(recorded)
    {asked, own} = context.("call_b", "2026-02-03", 2)

    play = &LLM.chat(replay(:openai_chat, cassette, own ++ [ignore: &1]), &2)

    for ignored <- [[], [:ids], [:dates, "seed"], [:ids, "seed"]],
        do: assert_raise(MissingError, fn -> play.(ignored, asked) end)

    assert {:ok, _} = play.([:ids, :dates, "seed"], asked)
    {other, _} = context.("call_b", "Monday", 2)
    assert_raise MissingError, fn -> play.([:ids, :dates, "seed"], other) end
  end

  test "keys, organisations and users do not get into the file, also cut in two, and plays go on",
       %{cassette: cassette} do
    secrets = [
      @key,
      "sk-" <> String.duplicate("a1", 12),
      "org-abcdefghijklmnop",
      "AKIAABCDEFGHIJKLMNOP",
      "github_pat_11ABCDEFG0abcdefghijkl_mnop",
      "glpat-abcdefghijklmnopqrst",
      "xoxb-123456789012-abcdefghijkl",
      "ya29.a0AfH6SMBabcdefgh_ij",
      "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
      "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N",
      "agent-007",
      # The events of a stream have one word each.
      "blue horse"
    ]

    words = "Say " <> Enum.join(secrets, " and ")
    # The key of the client is known only where it is used, so it is kept out of answers.
    question = "Say " <> Enum.join(tl(secrets), " and ")

    for {provider, _client} <- @clients do
      file = cassette <> "#{provider}"

      body = if provider == :openai_chat, do: %{user: "ann@example.com"}, else: %{}
      opts = [scrub: [~r/agent-\d+/, ~r/\bblue\s+horse/u], body: body]
      rest = &binary_part(&1, byte_size(&1), -rem(byte_size(&1), 7))
      cuts = fn bytes -> for(<<piece::binary-size(7) <- bytes>>, do: piece) ++ [rest.(bytes)] end
      server = serve(script: [words], cuts: cuts)

      ask = &LLM.stream(&1, Context.new(question), fn _ -> :ok end)
      assert {:ok, heard} = ask.(record(provider, server, file, opts))
      assert Response.text(heard) == words
      text = File.read!(file)
      for secret <- ["ann@example.com" | secrets], do: refute(text =~ secret, secret)

      assert {:ok, played} = ask.(replay(provider, file, opts))
      assert String.length(Response.text(played)) == String.length(words)
      assert Response.text(played) =~ ~r/^Say (\*+ and )+\*+$/
    end
  end

  test "fields of addresses that hold keys, and fields that name a user or a conversation, are replaced in requests and their echoes",
       %{cassette: cassette} do
    fields = %{
      prompt_cache_key: "conversation-17",
      safety_identifier: "person-4711",
      user: "ann",
      metadata: %{order: "o-1"}
    }

    body = Map.new(fields, fn {name, value} -> {Atom.to_string(name), value} end)
    body = %{body | "metadata" => %{"order" => "o-1"}}
    echo = ~s({"user" : "ann","prompt_cache_key":"conversation-17","metadata": {"order":"o-1"}})
    pieces = for <<piece::binary-size(4) <- echo <> "   ">>, do: {0, piece}
    recording = %{path: "/v1?key=0123456789abcdef", body: body, headers: [], pieces: pieces}
    scrubbed = Recorded.Scrub.scrub(recording, [], [])
    assert scrubbed.path == "/v1?key=****************"
    echoed = Enum.map_join(scrubbed.pieces, fn {0, piece} -> piece end)
    assert String.length(echoed) == div(byte_size(echo <> "   "), 4) * 4
    for secret <- ~w(ann conversation-17 o-1), do: refute(echoed =~ secret)
    assert echoed =~ ~s("prompt_cache_key":"***************")

    url = "https://api.example.com/v1?a=1&api_key=0123456789abcdef&b=2"

    for {provider, field} <- [
          openai_chat: fields,
          openai_responses: fields,
          anthropic: %{metadata: %{user_id: "person-4711"}}
        ] do
      file = cassette <> "#{provider}"
      server = serve(script: ["See #{url}"])
      llm = record(provider, server, file, body: field)
      assert {:ok, _} = LLM.chat(llm, Context.new("What is at #{url}?"))
      text = File.read!(file)

      for secret <- ~w(0123456789abcdef conversation-17 person-4711),
          provider != :anthropic or secret != "conversation-17",
          do: refute(text =~ secret, secret)

      if provider != :anthropic, do: refute(text =~ ~r/"(ann|o-1)"/)
      assert text =~ "&api_key=****************&b=2"
      llm = replay(provider, file, body: field)
      assert {:ok, played} = LLM.chat(llm, Context.new("What is at #{url}?"))
      assert Response.text(played) =~ "&api_key=****"
    end
  end

  test "a cassette that has fields which are replaced today is still played", %{
    cassette: cassette
  } do
    own = [body: %{prompt_cache_key: "conversation-17"}]
    llm = record(:openai_chat, serve(script: ["Yes."]), cassette, own)
    assert {:ok, _} = LLM.chat(llm, Context.new("Hi"))
    text = File.read!(cassette)
    assert text =~ "***************"
    File.write!(cassette, String.replace(text, "***************", "conversation-17"))
    assert {:ok, _} = LLM.chat(replay(:openai_chat, cassette, own), Context.new("Hi"))
  end

  describe "several that record into one cassette lose nothing" do
    defp ask_all(llms, words) do
      llms
      |> Enum.zip(words)
      |> Enum.map(fn {llm, words} -> Task.async(fn -> LLM.chat(llm, Context.new(words)) end) end)
      |> Enum.each(&({:ok, _} = Task.await(&1)))
    end

    for mode <- [:record_missing, :record_all] do
      test "with #{mode}", %{cassette: cassette} do
        LLM.chat(record(:ollama, serve(script: ["old"]), cassette), Context.new("Old?"))
        questions = for n <- 1..20, do: "Question #{n}?"
        server = serve(script: List.duplicate("Yes.", 40))

        llms =
          for n <- 1..20,
              do:
                record(Enum.at([:ollama, :openai_chat], rem(n, 2)), server, cassette,
                  mode: unquote(mode)
                )

        ask_all(llms, questions)
        ask_all(llms, Enum.map(questions, &("Again: " <> &1)))
        refute File.exists?(cassette <> ".lock")

        ollama = replay(:ollama, cassette)
        chat = replay(:openai_chat, cassette)

        for {question, n} <- Enum.with_index(questions, 1),
            words <- [question, "Again: " <> question],
            do:
              assert({:ok, _} = LLM.chat(Enum.at([ollama, chat], rem(n, 2)), Context.new(words)))

        {:ok, recordings} = Recorded.Form.read(File.read!(cassette))
        assert length(recordings) == if(unquote(mode) == :record_all, do: 40, else: 41)
      end
    end

    test "nor do tests of one run with record_all in the environment", %{cassette: cassette} do
      opts = fn question ->
        [cassette: cassette, mode: :record_all, once: true, question: question]
      end

      recording = %{
        path: "/a",
        body: %{"q" => 1},
        status: 200,
        headers: [],
        pieces: [],
        ending: "complete"
      }

      for number <- 1..2 do
        {:ok, pid} = Recorded.Cassette.start_link(opts.(number))
        :ok = Recorded.Cassette.record(pid, %{recording | body: %{"q" => number}}, [])
        GenServer.stop(pid)
      end

      assert {:ok, [%{body: %{"q" => 1}}, %{body: %{"q" => 2}}]} =
               Recorded.Form.read(File.read!(cassette))
    end

    @tag :slow
    test "and one that another process of the machine writes for too long is named", %{
      cassette: cassette
    } do
      File.write!(cassette <> ".lock", "somebody else")
      llm = record(:ollama, serve(script: ["Yes."]), cassette)

      assert_raise ArgumentError, ~r/is being written by somebody else: record again/, fn ->
        LLM.chat(llm, Context.new("Hi"))
      end
    end
  end

  test "only clients can be recorded, and a file that is not a cassette is refused", %{
    cassette: cassette
  } do
    for llm <- [say("Hi"), LLM.Scripted.new([])],
        do:
          assert_raise(ArgumentError, ~r/only the clients/, fn ->
            Recorded.new(llm, cassette: cassette)
          end)

    for text <- ["", "{}", ~s({"cassette_version":1,"requests":[5]}), ~s({"cassette_version":2})] do
      File.write!(cassette, text)
      assert_raise ArgumentError, ~r/cannot be played/, fn -> replay(:ollama, cassette) end
    end
  end

  test "a key that only the machine of the developer has is not asked for", %{cassette: cassette} do
    {:ok, _} =
      :anthropic |> record(serve(script: ["Ok"]), cassette) |> LLM.chat(Context.new("Hi"))

    missing = fn -> raise "there is no key" end

    own = [model: "m", api_key: missing, headers: [{"x-team", missing}], base_url: nobody()]
    llm = Recorded.new(LLM.Anthropic.new(own), cassette: cassette)
    assert {:ok, _} = LLM.chat(llm, Context.new("Hi"))
  end
end
