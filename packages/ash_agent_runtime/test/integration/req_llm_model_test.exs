defmodule AshAgent.Integration.ReqLLMModelTest do
  # Logs are captured.
  use ExUnit.Case, async: false

  alias AshAgent.{Context, LLM, Response, Runtime}
  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Error
  alias AshAgent.TestSupport.{Recorded, WireServer}

  import ExUnit.CaptureLog

  @moduletag :req_llm
  @moduletag :capture_log
  @moduletag integrations: ["ReqLLM"]

  @key "sk-secret-12345"

  setup do
    {:ok, _} = Application.ensure_all_started(:req_llm)
    :ok
  end

  # Each kind of request and answer, by a model that speaks it.
  @models %{
    anthropic: %{provider: :anthropic, id: "claude-sonnet-4-5"},
    openai_chat: %{provider: :groq, id: "some-model"},
    openai_responses: %{provider: :openai, id: "gpt-5"},
    gemini: %{provider: :google, id: "gemini-2.5-flash"}
  }

  defp model(provider, server, opts \\ []) do
    base = [base_url: "http://127.0.0.1:#{server.port}"]
    base = if provider == :anthropic, do: base, else: [base_url: base[:base_url] <> "/v1"]
    {options, opts} = Keyword.pop(opts, :options, [])
    own = [model: @models[provider], api_key: @key, options: base ++ options, timeout: 60_000]
    LLM.ReqLLM.new(Keyword.merge(own, opts))
  end

  defp serve(answers) do
    {:ok, left} = Agent.start_link(fn -> answers end)

    WireServer.start(fn connection ->
      {:ok, request} = WireServer.read_request(connection)
      body = JSON.decode!(request.body)
      WireServer.tell(connection, {:request, body, request})

      answer =
        Agent.get_and_update(left, fn [next | rest] ->
          {next, if(rest == [], do: [next], else: rest)}
        end)

      cond do
        is_function(answer, 2) -> WireServer.write(connection, answer.(connection, body))
        is_function(answer) -> answer.(connection)
        true -> WireServer.write(connection, answer)
      end
    end)
  end

  defp whole(status \\ 200, body, headers \\ []),
    do: WireServer.response(status, JSON.encode(body), headers)

  defp message(content, stop) do
    usage = %{input_tokens: 5, output_tokens: 3}
    own = %{id: "msg_1", type: "message", role: "assistant", model: "claude-sonnet-4-5"}
    whole(Map.merge(own, %{content: content, stop_reason: stop, usage: usage}))
  end

  defp sse(events) do
    chunks = for event <- events, do: WireServer.chunk(["data: ", JSON.encode(event), "\n\n"])
    [WireServer.stream_head(), chunks]
  end

  @anthropic ~S"""
             {"type":"message_start","message":{"usage":{"input_tokens":12,"output_tokens":1}}}
             {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
             {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Let me "}}
             {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"look."}}
             {"type":"content_block_stop","index":0}
             {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"look","input":{}}}
             {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"at\":"}}
             {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"it\"}"}}
             {"type":"content_block_stop","index":1}
             {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}
             {"type":"message_stop"}
             """
             |> String.split("\n", trim: true)
             |> Enum.map(&JSON.decode!/1)

  defp collect(llm, context \\ Context.new("Hi", system_prompt: "Be brief."), opts \\ []) do
    {:ok, seen} = Agent.start_link(fn -> [] end)
    result = LLM.stream(llm, context, opts, fn event -> Agent.update(seen, &[event | &1]) end)
    {result, seen |> Agent.get(& &1) |> Enum.reverse()}
  end

  test "streams text, calls and usage" do
    server = serve([[sse(@anthropic), "0\r\n\r\n"]])

    tool = %{
      name: "look",
      description: nil,
      parameters: %{"type" => "object", "properties" => %{"at" => %{"type" => "string"}}}
    }

    {{:ok, response}, events} =
      collect(model(:anthropic, server), Context.new("Hi"), tools: [tool])

    assert_receive {:request, body, request}
    assert {"x-api-key", @key} in request.headers

    assert [%{"name" => "look", "input_schema" => %{"properties" => %{"at" => _}}}] =
             body["tools"]

    assert %{"stream" => true, "messages" => [%{"content" => "Hi"}]} = body

    assert {:text, 0, "Let me "} in events
    assert {:tool_call_arguments, 0, "{\"at\":"} in events
    assert response.state == :complete

    assert Response.message(response) == %{
             role: :assistant,
             content: "Let me look.",
             tool_calls: [%{id: "toolu_1", name: "look", arguments: %{"at" => "it"}}]
           }

    assert %{input_tokens: 12, output_tokens: 9} = Response.usage(response)
    assert Response.finish_reason(response) == :tool_calls
  end

  # The words around the answer differ: what counts is what was said.
  defp said(response) do
    message = Response.message(response)

    %{
      text: Response.text(response),
      calls: for(call <- message[:tool_calls] || [], do: {call.name, call.arguments}),
      finish: Response.finish_reason(response),
      output: Response.usage(response).output_tokens
    }
  end

  test "reads recorded streams as our own clients do" do
    for {provider, folder, names} <- [
          {:anthropic, :anthropic,
           ["anthropic-text", "anthropic-json-tool.1", "anthropic-tool-no-args"]},
          {:gemini, :gemini, ["google-text", "google-tool-call"]},
          {:openai_chat, :openai_chat, ["openai-text", "groq-tool-call"]}
        ],
        %{provider: ^folder} = recording <- Recorded.streams(),
        Path.basename(recording.name, ".chunks.txt") in names do
      server = serve([streaming(recording)])
      {{:ok, response}, _events} = collect(model(provider, server))

      {:ok, ours, _events} =
        folder |> Response.new(content_type: recording.type) |> Response.feed(recording.body)

      ours = with {:ok, ours, _} <- Response.finish(ours), do: ours
      assert comparable(provider, said(response)) == comparable(provider, said(ours))
    end
  end

  # ReqLLM 1.9 does not count what Gemini thought.
  defp comparable(:gemini, said), do: Map.delete(said, :output)
  defp comparable(_provider, said), do: said

  defp streaming(%{type: type, body: body}),
    do: [WireServer.stream_head(type), WireServer.chunk(body), "0\r\n\r\n"]

  test "keeps reasoning for the next request" do
    thinking = %{"type" => "thinking", "thinking" => "Hm", "signature" => "c2lnbmVk"}

    call = %{type: "tool_use", id: "toolu_1", name: "look", input: %{}}
    said = %{type: "text", text: "A cat."}

    server = serve([message([thinking, call], "tool_use"), message([said], "end_turn")])

    tools = %{"look" => fn _arguments -> {:ok, "a cat"} end}

    assert {:ok, %{output: "A cat."} = result} =
             Runtime.run(Context.new("What is it?"),
               llm: model(:anthropic, server),
               tools: tools,
               stream: false
             )

    assert_receive {:request, %{"messages" => [_]}, _request}
    assert_receive {:request, %{"messages" => [_, said, results]}, _request}
    assert [^thinking, %{"type" => "tool_use", "id" => "toolu_1"}] = said["content"]
    assert [%{"type" => "tool_result", "tool_use_id" => "toolu_1"}] = results["content"]
    assert %{output_tokens: 6} = result.usage
  end

  test "keeps the signatures of a stream, as far as ReqLLM has them" do
    part = fn part, more ->
      %{
        "candidates" => [Map.merge(%{"content" => %{"role" => "model", "parts" => [part]}}, more)]
      }
    end

    events = [
      part.(%{"text" => "Hm", "thought" => true}, %{}),
      part.(
        %{
          "functionCall" => %{"name" => "look", "args" => %{"at" => "it"}},
          "thoughtSignature" => "c2ln"
        },
        %{"finishReason" => "STOP"}
      )
    ]

    server = serve([[sse(events), "0\r\n\r\n"]])
    assert {{:ok, response}, shown} = collect(model(:gemini, server))
    assert {:thinking, 0, "Hm"} in shown

    assert %{tool_calls: [%{name: "look", arguments: %{"at" => "it"}} = call]} =
             Response.message(response)

    unless old?() do
      assert %{provider: :gemini, signature: "c2ln"} = call.provider_metadata
    end
  end

  defp old?, do: :req_llm |> Application.spec(:vsn) |> to_string() |> Version.match?("< 1.16.0")

  test "refusals have the status and the words of the provider, and not the key" do
    refusal = %{
      "type" => "error",
      "error" => %{"type" => "authentication_error", "message" => "bad key " <> @key}
    }

    server = serve([whole(401, refusal)])

    log =
      capture_log(fn ->
        for ask <- [&LLM.chat(&1, Context.new("Hi")), &elem(collect(&1), 0)] do
          assert {:error, %Error{status: 401, retryable?: false} = error} =
                   ask.(model(:anthropic, server))

          assert error.reason == {:status, 401}
          assert error.provider_message =~ "bad key"
          refute inspect(error) =~ @key
        end
      end)

    refute log =~ "the prompt"
  end

  test "a refusal that may pass is retried, after the time that the provider asks for" do
    busy = whole(429, %{"error" => %{"message" => "slow down"}}, [{"retry-after", "0"}])
    said = %{type: "text", text: "Let me look."}

    # ReqLLM may have lost the refusal, and is then asked without a stream.
    answer = fn _connection, body ->
      if body["stream"],
        do: [sse(@anthropic), "0\r\n\r\n"],
        else: message([said], "end_turn")
    end

    server = serve([busy, answer])
    assert {{:ok, response}, _events} = collect(model(:anthropic, server))
    assert Response.text(response) == "Let me look."
    server = serve([busy])

    assert {{:error, %Error{status: 429, retryable?: true}}, []} =
             collect(model(:anthropic, server, max_retries: 0))
  end

  test "an answer that breaks off is kept, and its call is not pending" do
    {before, _rest} = Enum.split(@anthropic, 7)

    cut = fn connection ->
      WireServer.write(connection, sse(before))
      WireServer.close(connection)
    end

    for ending <- [cut, [sse(before), "0\r\n\r\n"]] do
      server = serve([ending])

      assert {{:error, %Error{response: half} = error}, events} =
               collect(model(:anthropic, server))

      assert error.retryable?
      assert {:text, 0, "look."} in events
      assert half.state == :interrupted
      {:ok, context} = Context.add_response(Context.new("Hi"), half)
      assert Context.pending_tool_calls(context) == []
      assert %{content: "Let me look."} = Response.message(half)
    end
  end

  test "a call whose arguments reached the limit is not one" do
    {before, _rest} = Enum.split(@anthropic, 7)

    limit = %{
      "type" => "message_delta",
      "delta" => %{"stop_reason" => "max_tokens"},
      "usage" => %{"output_tokens" => 9}
    }

    server = serve([[sse(before ++ [limit, %{"type" => "message_stop"}]), "0\r\n\r\n"]])
    assert {{:ok, response}, _events} = collect(model(:anthropic, server))
    assert Response.finish_reason(response) == :length
    assert Map.get(Response.message(response), :tool_calls, []) == []
  end

  test "halting closes the connection" do
    endless = fn connection ->
      WireServer.write(connection, sse(Enum.take(@anthropic, 3)))
      WireServer.await_close(connection)
      WireServer.tell(connection, :closed)
    end

    llm = model(:anthropic, serve([endless]))
    assert {:ok, response} = LLM.stream(llm, Context.new("the prompt"), fn _event -> :halt end)
    assert response.state == :interrupted
    assert_receive :closed

    # So does the end of the process.
    {test, llm} = {self(), model(:anthropic, serve([endless]))}

    log =
      capture_log(fn ->
        pid =
          spawn(fn ->
            LLM.stream(llm, Context.new("the prompt"), fn _event -> send(test, :begun) end)
          end)

        assert_receive :begun
        Process.exit(pid, :kill)
        assert_receive :closed
      end)

    refute log =~ "the prompt"
    refute log =~ @key
  end

  test "observes its time limits" do
    silent = fn connection -> WireServer.await_close(connection) end

    llm =
      model(:anthropic, serve([silent]),
        first_byte_timeout: 50,
        connect_timeout: 50,
        max_retries: 0
      )

    assert {{:error, %Error{reason: {:timeout, :first_byte}}}, []} = collect(llm)

    stuck = fn connection ->
      WireServer.write(connection, sse(Enum.take(@anthropic, 3)))
      WireServer.await_close(connection)
    end

    llm = model(:anthropic, serve([stuck]), idle_timeout: 50)

    assert {{:error, %Error{reason: {:timeout, :idle}, response: %Response{}}}, [_ | _]} =
             collect(llm)

    llm = model(:anthropic, serve([silent]), timeout: 50)
    assert {:error, %Error{reason: :timeout}} = LLM.chat(llm, Context.new("Hi"))
  end

  test "what ReqLLM refuses is said in its words, and no connection is an error" do
    assert {:error, %Error{reason: {:request, error}}} =
             LLM.chat(LLM.ReqLLM.new(model: "nobody:nothing", api_key: @key), Context.new("Hi"))

    assert is_exception(error)
    nobody = %{port: 1}

    for ask <- [&LLM.chat(&1, Context.new("Hi")), &elem(collect(&1), 0)] do
      assert {:error, %Error{reason: {:connection, :econnrefused}, retryable?: true}} =
               ask.(model(:anthropic, nobody, max_retries: 0))
    end

    pending =
      Context.add_assistant_message(Context.new("Hi"), nil, [
        %{id: "a", name: "look", arguments: %{}}
      ])

    assert {:error,
            %Error{reason: {:request, %Context.Error{reason: {:pending_tool_calls, ["a"]}}}}} =
             LLM.chat(model(:anthropic, nobody), pending)
  end
end
