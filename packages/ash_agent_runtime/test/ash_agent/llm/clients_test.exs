defmodule AshAgent.LLM.ClientsTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [drain: 1]

  alias AshAgent.{Context, LLM, Response}
  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Bedrock.SigV4
  alias AshAgent.LLM.Error
  alias AshAgent.TestSupport.{ChatServer, Clients, Recorded, WireServer}

  doctest AshAgent.LLM.OpenAIResponses
  doctest AshAgent.LLM.Gemini
  doctest AshAgent.LLM.Bedrock
  doctest AshAgent.LLM.Ollama
  doctest AshAgent.LLM.Mistral

  defp client(provider, server, opts \\ []) do
    own = [model: "m:1", api_key: "key-12345", timeout: 30_000]
    Clients.new(provider, server.url, Keyword.merge(own, opts))
  end

  # One that answers with the provider's sample.
  defp sampled(provider, opts),
    do: client(provider, serve([streaming(Recorded.sample(provider))]), opts)

  # Streams these bytes and nothing more, and waits.
  defp stall(bytes) do
    fn connection ->
      WireServer.write(connection, [WireServer.stream_head(), WireServer.chunk(bytes)])
      WireServer.await_close(connection)
    end
  end

  # Answers each request with the next of the answers, and all further ones with the last. An answer is bytes, or a
  # function of the connection.
  defp serve(answers) do
    {:ok, left} = Agent.start_link(fn -> answers end)
    WireServer.start(fn connection -> answer_all(connection, left) end)
  end

  defp answer_all(connection, left) do
    with {:ok, request} <- WireServer.read_request(connection) do
      read = Map.update!(request, :body, &JSON.decode!/1)
      WireServer.tell(connection, {:request, read, request.body})

      answer =
        Agent.get_and_update(left, fn
          [last] -> {last, [last]}
          [next | rest] -> {next, rest}
        end)

      if is_function(answer) do
        answer.(connection)
      else
        WireServer.write(connection, answer)
        answer_all(connection, left)
      end
    end
  end

  defp streaming(%{type: type, body: body}), do: streaming(type, [body])

  defp streaming(type, pieces) do
    pieces = pieces |> Enum.reject(&(&1 == "")) |> Enum.map(&WireServer.chunk/1)
    [WireServer.stream_head(type), pieces, "0\r\n\r\n"]
  end

  defp sse(events, type \\ "text/event-stream"),
    do: streaming(type, for(event <- events, do: ["data: ", JSON.encode(event), "\n\n"]))

  defp collect(llm, context \\ Context.new("Hi", system_prompt: "Be brief."), opts \\ []) do
    test = self()
    result = LLM.stream(llm, context, opts, fn event -> send(test, {:event, event}) end)
    {result, events()}
  end

  defp events, do: drain(do: ({:event, event} -> event))

  defp requests, do: length(drain(do: ({:request, _, _} -> 1)))

  defp text(events), do: for({:text, _, text} <- events, into: "", do: text)

  # What the response says when it is fed by hand.
  defp by_hand(stream) do
    response = Response.new(stream.provider, model: "m:1", content_type: stream.type)

    with {:ok, response, events} <- Response.feed(response, stream.body),
         {:ok, response, more} <- finish(response),
         do: {:ok, response, events ++ more}
  end

  defp finish(%{state: :open} = response), do: Response.finish(response)
  defp finish(response), do: {:ok, response, []}

  describe "a request" do
    @tools [
      %{name: "weather", description: "The weather", parameters: %{"type" => "object"}},
      %{name: "now", description: nil, parameters: %{"type" => "object", "properties" => %{}}}
    ]
    @empty %{"type" => "object", "properties" => %{}}

    for {provider, path, stream_path, header} <- [
          {:anthropic, "/messages", "/messages", {"x-api-key", "key-12345"}},
          {:openai_chat, "/chat/completions", "/chat/completions",
           {"authorization", "Bearer key-12345"}},
          {:openai_responses, "/responses", "/responses", {"authorization", "Bearer key-12345"}},
          {:gemini, "/models/m%3A1:generateContent",
           "/models/m%3A1:streamGenerateContent?alt=sse", {"x-goog-api-key", "key-12345"}},
          {:bedrock, "/model/m%3A1/converse", "/model/m%3A1/converse-stream",
           {"authorization", "Bearer key-12345"}},
          {:ollama, "/api/chat", "/api/chat", {"authorization", "Bearer key-12345"}},
          {:mistral, "/chat/completions", "/chat/completions",
           {"authorization", "Bearer key-12345"}}
        ] do
      @provider provider
      @path "/v1" <> path
      @stream_path "/v1" <> stream_path
      @header header

      test "of #{provider} goes where it belongs, with key and tools" do
        llm = sampled(@provider, headers: [{"x-own", "1"}])
        assert {{:ok, _}, _} = collect(llm, Context.new("Hi"), tools: @tools)

        assert_received {:request,
                         %{method: "POST", path: @stream_path, headers: headers, body: body}, _}

        {name, value} = @header
        assert %{^name => ^value, "x-own" => "1", "content-type" => "application/json"} = headers

        assert names(@provider, body) == [
                 {"weather", "The weather", @empty},
                 {"now", nil, @empty}
               ]

        assert Map.get(body, "stream") == Map.get(%{gemini: nil, bedrock: nil}, @provider, true)

        # A whole answer is asked for elsewhere, or without saying that it is to stream.
        own = if @provider == :bedrock, do: [], else: [max_retries: 0, api_key: nil]
        llm = client(@provider, serve([WireServer.response(200, "{}")]), own)
        assert {:error, %Error{}} = LLM.chat(llm, Context.new("Hi"))

        assert_received {:request, %{path: @path, headers: headers, body: body}, _}
        assert Map.get(body, "stream") in [nil, false]
        refute Map.has_key?(body, "tools") or Map.has_key?(body, "toolConfig")
        if @provider != :bedrock, do: refute(Map.has_key?(headers, name))
      end
    end

    defp names(:anthropic, body),
      do:
        for(tool <- body["tools"], do: {tool["name"], tool["description"], tool["input_schema"]})

    defp names(:openai_responses, body) do
      for %{"type" => "function", "strict" => false} = tool <- body["tools"],
          do: {tool["name"], tool["description"], tool["parameters"]}
    end

    defp names(:gemini, %{"tools" => [%{"functionDeclarations" => tools}]}),
      do:
        for(tool <- tools, do: {tool["name"], tool["description"], tool["parametersJsonSchema"]})

    defp names(:bedrock, %{"toolConfig" => %{"tools" => tools}}) do
      for %{"toolSpec" => tool} <- tools,
          do: {tool["name"], tool["description"], tool["inputSchema"]["json"]}
    end

    defp names(_provider, body) do
      for %{"type" => "function", "function" => tool} <- body["tools"],
          do: {tool["name"], tool["description"], tool["parameters"]}
    end

    test "has the fields of the caller in place of the client's" do
      llm = sampled(:openai_chat, body: %{stream_options: nil, user: "u"})
      assert {{:ok, _}, _} = collect(llm)
      assert_received {:request, %{body: body}, _}
      assert %{"stream_options" => nil, "user" => "u", "stream" => true} = body
    end

    test "names tuned models of Gemini with their folder" do
      assert {{:ok, _}, _} = collect(sampled(:gemini, model: "tunedModels/my model"))
      assert_received {:request, %{path: path}, _}
      assert path == "/v1/tunedModels/my%20model:streamGenerateContent?alt=sse"
    end
  end

  describe "Bedrock" do
    test "signs with the account's keys what it sends" do
      keys = %{access_key_id: "AKID", secret_access_key: "SECRET-SECRET"}
      keys = Map.put(keys, :session_token, "TOKEN-TOKEN")

      for credentials <- [keys, fn -> keys end] do
        server = serve([streaming(Recorded.sample(:bedrock))])
        llm = client(:bedrock, server, api_key: nil, credentials: credentials, model: "a.b:0/c")
        refute inspect(llm, structs: false) =~ "SECRET"
        assert {{:ok, response}, _} = collect(llm)
        assert Response.message(response).content == "Grüße, Welt!"
        assert_received {:request, %{path: path, headers: headers}, body}
        assert path == "/v1/model/a.b%3A0%2Fc/converse-stream"
        assert headers["x-amz-security-token"] == "TOKEN-TOKEN"
        assert headers["accept"] == "application/vnd.amazon.eventstream"

        # The server signs what it got, and compares.
        basic = ~r/(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z/
        extended = String.replace(headers["x-amz-date"], basic, "\\1-\\2-\\3T\\4:\\5:\\6Z")
        {:ok, at, 0} = DateTime.from_iso8601(extended)
        [_, names] = Regex.run(~r/SignedHeaders=([^,]+)/, headers["authorization"])
        assert names == "accept;content-type;host;x-amz-date;x-amz-security-token"
        given = for name <- String.split(names, ";"), do: {name, headers[name]}
        uri = URI.parse("http://127.0.0.1:#{server.port}#{path}")
        opts = [region: "eu-central-1", service: "bedrock", at: at]
        signed = SigV4.sign("POST", uri, given, body, keys, opts)

        assert List.keyfind(signed, "authorization", 0) ==
                 {"authorization", headers["authorization"]}

        assert DateTime.diff(DateTime.utc_now(), at) in -1..60
      end
    end

    test "says what is missing" do
      for credentials <- [%{}, %{access_key_id: "x"}, fn -> nil end] do
        own = [api_key: nil, credentials: credentials]
        llm = client(:bedrock, %{url: "http://127.0.0.1:1"}, own)
        assert {:error, %Error{reason: {:request, error}}} = LLM.chat(llm, Context.new("Hi"))
        assert Exception.message(error) =~ "AWS_ACCESS_KEY_ID"
      end

      assert_raise ArgumentError, ~r/region/, fn ->
        LLM.Bedrock.new(model: "m", region: "no.region/")
      end
    end

    test "has the URL of its region" do
      {_, opts} = LLM.Bedrock.new(model: "m", region: "us-east-1")
      assert opts[:base_url] == "https://bedrock-runtime.us-east-1.amazonaws.com"
    end
  end

  describe "a stream" do
    test "of every provider is delivered as it is, in any cut" do
      :rand.seed(:exsss, {1, 2, 3})

      for stream <- Recorded.samples() ++ Recorded.streams(), cut <- [:whole, :bytes, :random] do
        pieces =
          cond do
            cut == :whole -> [stream.body]
            cut == :random or byte_size(stream.body) >= 3_000 -> random_pieces(stream.body)
            true -> for <<byte <- stream.body>>, do: <<byte>>
          end

        llm = client(stream.provider, serve([streaming(stream.type, pieces)]), max_retries: 0)
        {result, events} = collect(llm)

        case by_hand(stream) do
          {:ok, %{state: :complete} = expected, expected_events} ->
            assert {_name, {:ok, response}} = {stream.name, result}
            assert Response.message(response) == Response.message(expected)
            assert Response.usage(response) == Response.usage(expected)
            assert text(events) == text(expected_events)

            assert for({:tool_call, call} <- events, do: call) ==
                     for({:tool_call, call} <- expected_events, do: call)

          _failed ->
            assert {_name, {:error, %Error{}}} = {stream.name, result}
        end
      end
    end

    defp random_pieces(""), do: []

    defp random_pieces(bytes) do
      size = min(:rand.uniform(400), byte_size(bytes))
      <<piece::binary-size(size), rest::binary>> = bytes
      [piece | random_pieces(rest)]
    end

    test "is delivered in lists with the response so far, or event by event" do
      stream = Recorded.sample(:anthropic)
      llm = client(:anthropic, serve([streaming(stream)]))
      test = self()

      assert {:ok, _} =
               LLM.stream(llm, Context.new("Hi"), fn events, response ->
                 send(test, {:fed, events, Response.message(response)})
               end)

      assert_received {:fed, [_ | _], %{content: content}}
      assert content
    end

    test "ends when the function says so" do
      [first, _] = String.split(Recorded.sample(:openai_chat).body, "\n\n", parts: 2)

      server = serve([stall(first <> "\n\n")])

      for {halt, n} <- [
            {fn event -> if match?({:text, _, _}, event), do: :halt end, 1},
            {fn _events, _response -> :halt end, 2}
          ] do
        llm = client(:openai_chat, server)
        assert {:ok, %{state: :interrupted} = response} = LLM.stream(llm, Context.new("Hi"), halt)
        assert_receive {:closed, ^n}
        assert %{content: "Grüße, ", state: :interrupted} = Response.message(response)
        assert {:ok, _} = Context.add_response(Context.new("Hi"), response)
      end
    end

    test "passes on what the function raises, and closes" do
      answer = fn connection ->
        WireServer.write(connection, streaming(Recorded.sample(:openai_chat)))
        WireServer.await_close(connection)
      end

      server = serve([answer])

      assert_raise RuntimeError, "mine", fn ->
        LLM.stream(client(:openai_chat, server), Context.new("Hi"), fn _ -> raise "mine" end)
      end

      assert_receive {:closed, 1}
    end

    test "may be a whole answer, where a server cannot stream" do
      body =
        ~s({"choices":[{"message":{"role":"assistant","content":"Grüße, Welt!"},"finish_reason":"stop"}]})

      for headers <- [[{"content-type", "application/json"}], []] do
        llm = client(:openai_chat, serve([WireServer.response(200, body, headers)]))
        assert {{:ok, response}, events} = collect(llm)
        assert Response.message(response).content == "Grüße, Welt!"
        assert text(events) == "Grüße, Welt!"
      end
    end

    test "may be one that the provider works on in the background, which is not asked for twice" do
      body = ~s({"object":"response","id":"resp_1","model":"m","status":"queued","output":[]})
      server = serve([WireServer.response(200, body, [{"content-type", "application/json"}])])
      llm = client(:openai_responses, server, body: %{background: true})
      assert {:ok, %{state: :queued} = response} = LLM.chat(llm, Context.new("Hi"))
      assert Response.id(response) == "resp_1"
      assert_received {:request, %{body: %{"background" => true}}, _}
      refute_received {:request, _, _}
    end

    test "is asked what became of the prompt cache, and says it" do
      answer = ~S"""
      "status": "completed", "usage": {"input_tokens": 2000, "output_tokens": 1,
      "input_tokens_details": {"cached_tokens": 0}}, "output": [{"type": "message", "role": "assistant",
      "content": [{"type": "output_text", "text": "Hi"}]}]
      """

      missed = ~s({"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 1920})

      answers =
        for {id, found} <- [{1, "null"}, {2, missed}, {3, ~s({"type": "cache_hit"})}] do
          own = ~s("id": "resp_#{id}", "prompt_cache_diagnostics": #{found})
          {:json, 200, JSON.decode!("{#{own}, #{answer}}")}
        end

      server = ChatServer.start(answers)
      own = %{prompt_cache_options: %{ttl: "30m"}}
      llm = client(:openai_responses, server, cache_diagnostics: true, body: own)

      context =
        Enum.reduce(1..3, Context.new("Hi"), fn _n, context ->
          {:ok, result} = AshAgent.Runtime.run(context, llm: llm, stream: false)
          Context.add_user_message(result.context, "And?")
        end)

      sent =
        for _n <- 1..3 do
          assert_received {:request, %{body: body}}
          body["prompt_cache_options"]
        end

      assert sent == [
               %{"ttl" => "30m"},
               %{"ttl" => "30m", "comparison_response_id" => "resp_1"},
               %{"ttl" => "30m", "comparison_response_id" => "resp_2"}
             ]

      assert Enum.map(Context.Audit.account(context).requests, & &1.diagnosis) == [
               nil,
               %{reason: "tools_changed", tokens: 1_920},
               %{reason: "cache_hit", tokens: nil}
             ]
    end

    test "may offer tools that answer later as async: their calls stay open" do
      message = %{
        role: "assistant",
        type: "message",
        content: [%{type: "output_text", text: "Hi"}]
      }

      call = %{type: "function_call", call_id: "a", name: "build", arguments: "{}", async: true}

      answers =
        for output <- [[call], [message], [message]],
            do: {:json, 200, %{id: "resp_1", status: "completed", output: output}}

      server = ChatServer.start(answers)
      llm = client(:openai_responses, server, async_tools: true)
      {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      {:ok, kept} = AshAgent.Store.create(store, Context.new("Build", id: "c1"))
      test = self()

      build = fn _arguments, %{arrival_key: key} ->
        send(test, {:key, key})
        {:later, []}
      end

      opts = [llm: llm, store: store, stream: false]
      opts = [tools: %{build: %{function: build, late: true}, now: fn _ -> {:ok, 1} end}] ++ opts
      {:ok, _result} = AshAgent.Runtime.run(kept.value, [kept: kept] ++ opts)
      assert_received {:key, key}
      assert {:ok, :kept} = AshAgent.Store.arrive(store, "c1", key, {:ok, "green"})
      {:ok, kept} = AshAgent.Store.fetch(store, "c1")
      {:ok, _result} = AshAgent.Runtime.run(kept.value, [kept: kept] ++ opts)

      [first, second, third] =
        for _n <- 1..3 do
          assert_received {:request, %{body: body}}
          body
        end

      assert for(%{"async" => true, "name" => name} <- first["tools"], do: name) == ["build"]
      kinds = fn body -> Enum.map(body["input"], &(&1["type"] || &1["role"])) end
      assert kinds.(second) == ["user", "function_call"]
      assert List.last(second["input"])["async"]

      assert [_call, _answer, %{"type" => "function_call_output", "call_id" => "a"} = output] =
               Enum.drop(third["input"], 1)

      assert output["output"] =~ "green"
    end

    test "is complete when it has said so, although its body does not end" do
      server = serve([stall(Recorded.sample(:anthropic).body)])
      llm = client(:anthropic, server, idle_timeout: 50)
      assert {{:ok, %{state: :complete}}, _} = collect(llm)
    end

    test "has the fields of its request in one option" do
      assert_raise ArgumentError, ~r/the body in :body, not in :request/, fn ->
        LLM.OpenAICompatible.new(model: "m", request: [body: %{seed: 1}])
      end
    end

    test "cannot be had from a function" do
      assert_raise ArgumentError, ~r/cannot stream/, fn ->
        LLM.stream(fn _ -> {:ok, %{}} end, Context.new("Hi"), fn _ -> :ok end)
      end
    end

    test "uses one connection for one request after the other" do
      server = serve([streaming(Recorded.sample(:openai_chat))])
      llm = client(:openai_chat, server)
      for _ <- 1..5, do: assert({{:ok, _}, _} = collect(llm))
      key = AshAgent.LLM.Transport.HTTP1.Pool.key(%{uri: URI.parse(server.url), ssl: []})

      count = fn -> AshAgent.LLM.Transport.HTTP1.Pool.count(key) end
      assert AshAgent.TestSupport.Wait.until(fn -> count.() == 1 end)
    end
  end

  describe "what breaks off" do
    @overloaded %{type: "error", error: %{type: "overloaded_error", message: "Overloaded"}}
    @start %{type: "message_start", message: %{content: [], usage: %{input_tokens: 5}}}

    test "before anything was delivered is tried again" do
      good = streaming(Recorded.sample(:anthropic))

      for bad <- [
            sse([@overloaded]),
            # What the request cost is told first, and is no answer yet.
            sse([@start, @overloaded]),
            sse([@start]),
            [WireServer.stream_head(), "ff\r\nevent"],
            "",
            WireServer.response(503, "", [{"retry-after", "0"}])
          ] do
        close = fn connection -> WireServer.write(connection, bad) end
        llm = client(:anthropic, serve([close, close, good]))
        assert {{:ok, response}, events} = collect(llm)
        assert Response.message(response).content == "Grüße, Welt!"
        assert text(events) == "Grüße, Welt!"
        refute Enum.any?(events, &match?({:error, _}, &1))
        assert requests() == 3
      end
    end

    test "before anything was delivered says what it cost" do
      for {bad, input} <- [{sse([@start, @overloaded]), 5}, {sse([@start]), 5}, {sse([]), nil}] do
        close = fn connection -> WireServer.write(connection, bad) end
        llm = client(:anthropic, serve([close]), max_retries: 0)
        assert {{:error, error}, []} = collect(llm)
        used = error.response && Response.usage(error.response)
        assert used[:input_tokens] == input
      end
    end

    test "after something was delivered is kept, and not tried again" do
      %{body: body} = Recorded.sample(:anthropic)
      [begun, _] = String.split(body, "event: content_block_stop", parts: 2)

      stream = &streaming("text/event-stream", [begun | &1])
      write = fn bytes -> fn connection -> WireServer.write(connection, bytes) end end
      overloaded = ["data: ", JSON.encode(@overloaded), "\n\n"]

      for {answer, opts, reason} <- [
            {write.([WireServer.stream_head(), WireServer.chunk(begun)]), [],
             {:connection, :closed}},
            {write.(stream.([])), [], :incomplete},
            {write.(stream.(overloaded)), [], {:provider, "overloaded_error"}},
            {write.(stream.(["data: {oops\n\n"])), [], :invalid_response},
            {stall(begun), [idle_timeout: 300], {:timeout, :idle}},
            {stall(begun), [timeout: 1_000], :timeout}
          ] do
        llm = client(:anthropic, serve([answer]), opts)

        assert {{:error, %Error{status: 200} = error}, events} = collect(llm)
        assert error.reason == reason or match?({^reason, _}, error.reason)
        assert text(events) == "Grüße, Welt!"
        assert requests() == 1
        assert %Response{state: :interrupted} = error.response
        assert %{content: "Grüße, Welt!", state: :interrupted} = Response.message(error.response)
        assert {:ok, context} = Context.add_response(Context.new("Hi"), error.response)
        assert Context.pending_tool_calls(context) == []
        assert is_binary(Exception.message(error))
      end
    end

    test "because nothing comes at all is tried again, as long as there is time" do
      answers = [&WireServer.await_close/1, streaming(Recorded.sample(:openai_chat))]
      # On a busy machine the second answer takes its time.
      llm = client(:openai_chat, serve(answers), first_byte_timeout: 1_500)
      assert {{:ok, _}, _} = collect(llm)
      assert requests() == 2

      once = [first_byte_timeout: 60, max_retries: 1]
      llm = client(:openai_chat, serve([&WireServer.await_close/1]), once)
      assert {{:error, %Error{response: nil} = error}, []} = collect(llm)
      assert %{reason: {:timeout, :first_byte}, retryable?: true} = error
      assert requests() == 2
    end
  end

  describe "a refusal" do
    defp refusal(status, body, headers \\ [], opts \\ []) do
      server = serve([WireServer.response(status, body, headers)])
      llm = client(:gemini, server, [max_retries: 0] ++ opts)
      assert {{:error, %Error{response: nil} = error}, []} = collect(llm)
      error
    end

    test "of a gateway is told in words" do
      page = """
      <!DOCTYPE html>
      <html><head><title>api.example.com | 502: Bad&nbsp;gateway</title><style>x { y: z }</style></head>
      <body><h1>Bad gateway</h1><script>alert("x")</script></body></html>
      """

      error = refusal(502, page, [{"content-type", "text/html; charset=UTF-8"}])
      assert %{provider_message: "api.example.com | 502: Bad gateway", retryable?: true} = error

      assert Exception.message(error) ==
               "a gateway answered with status 502 because the provider did not respond; try again later: api.example.com | 502: Bad gateway"

      assert %{provider_message: "Service Unavailable"} =
               refusal(503, "<html><body><h1>Service <b>Unavailable</b></h1></body></html>")

      assert %{provider_message: "It is down."} =
               refusal(504, "<html><body><script>x()</script>It is\n<p>down.</p></body></html>")

      assert %{reason: {:status, 529}, retryable?: true} = refusal(529, "")
    end

    test "with status 200 is one" do
      page = "<html><head><title>Sign in</title></head></html>"
      error = refusal(200, page, [{"content-type", "text/html"}])

      assert %{reason: {:invalid_response, "a page of HTML" <> _}, provider_message: "Sign in"} =
               error

      assert refusal(200, "x", [{"content-encoding", "gzip"}]).reason |> elem(0) ==
               :invalid_response

      # A whole answer without a content type.
      llm = client(:openai_chat, serve([WireServer.response(200, page)]))

      assert {:error, %Error{reason: {:invalid_response, _}, provider_message: "Sign in"}} =
               LLM.chat(llm, Context.new("Hi"))
    end

    test "that a gateway compressed has its words" do
      body = ~s({"error":{"message":"prompt is too long: #{String.duplicate("a", 9_000)}"}})
      encoding = [{"content-encoding", "gzip"}]

      for headers <- [encoding, []] do
        error = refusal(400, :zlib.gzip(body), headers)
        assert %{kind: :context_overflow, provider_message: "prompt is too long" <> _} = error
      end

      deflated = [{"content-encoding", "deflate"}]
      assert refusal(400, :zlib.compress(body), deflated).kind == :context_overflow
      brotli = [{"content-encoding", "br"}]
      assert refusal(400, <<0x8B, 5, 0x80, 1, 2, 3>>, brotli).provider_message =~ "compressed"
      assert refusal(400, body, brotli).kind == :context_overflow
      cut = binary_part(:zlib.gzip(body), 0, 20)
      assert refusal(400, cut, encoding).provider_message =~ "compressed"
      bomb = :zlib.gzip(String.duplicate("a", 20_000_000))
      assert %{kind: :invalid_request} = refusal(400, bomb, encoding)
      assert {:invalid_response, "it is compressed" <> _} = refusal(200, :zlib.gzip(body)).reason
    end

    test "takes no longer to read than its size allows" do
      for body <- [
            String.duplicate("<script", 100_000),
            String.duplicate("<title>", 100_000),
            String.duplicate("<", 500_000)
          ] do
        assert refusal(502, body, [{"content-type", "text/html"}]).status == 502
      end
    end

    test "says whether it helps to try again" do
      for {status, headers, body, retryable?} <- [
            {400, [], "{}", false},
            {401, [], "{}", false},
            {408, [], "{}", true},
            {409, [], "{}", true},
            {429, [], "{}", true},
            {429, [], ~s({"error":{"code":"insufficient_quota","message":"no money"}}), false},
            {500, [], "{}", true},
            {501, [], "{}", false},
            {500, [{"x-should-retry", "false"}], "{}", false},
            {400, [{"x-should-retry", "true"}], "{}", true}
          ] do
        assert %{retryable?: ^retryable?, status: ^status} = refusal(status, body, headers)
      end
    end

    test "has a kind, and words that say what to do" do
      too_long = ~s({"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}})
      filtered = ~s({"error":{"code":"content_filter","message":"filtered"}})

      for {status, headers, body, kind, words} <- [
            {429, [{"retry-after", "1200"}], "{}", :rate_limited, "wait 20 minutes"},
            {429, [], ~s({"error":{"code":"insufficient_quota"}}), :quota, "check its plan"},
            {400, [], too_long, :context_overflow, "hide, clear or summarize"},
            {400, [], filtered, :refused, "content filter"},
            {400, [{"x-amzn-errortype", "ThrottlingException:x"}], "{}", :rate_limited, "400"},
            {502, [{"content-type", "text/html"}], "<title>Bad</title>", :server_error, "Bad"}
          ] do
        error = refusal(status, body, headers)
        assert error.kind == kind
        assert Exception.message(error) =~ words
      end
    end

    test "has the provider's words, wherever they stand" do
      for body <- [
            ~s({"error":{"code":400,"message":"wrong","status":"INVALID_ARGUMENT"}}),
            ~s([{"error":{"code":400,"message":"wrong"}}]),
            ~s({"message":"wrong"}),
            ~s({"Message":"wrong"}),
            ~s({"detail":[{"loc":["body"],"msg":"wrong"}]}),
            ~s({"detail":"wrong"}),
            "wrong"
          ] do
        assert %{provider_message: "wrong"} = refusal(400, body)
      end

      assert %{provider_message: nil} = refusal(500, <<255, 254>>)
      long = refusal(400, ~s({"error":"#{String.duplicate("ü", 10_000)}"})).provider_message
      assert String.length(long) == 2_000
    end

    test "says when to try again, in a header or in its body" do
      body =
        ~s({"error":{"code":429,"message":"x","details":[{"@type":"a"},{"@type":"b","retryDelay":"0.05s"}]}})

      assert %{retry_after: 50} = refusal(429, body)
      good = streaming(Recorded.sample(:gemini))

      llm = client(:gemini, serve([WireServer.response(429, body), good]))
      Process.send_after(self(), :early, 5)
      assert {{:ok, _}, _} = collect(llm)
      assert_received :early

      # Longer than anybody wants to wait.
      long = WireServer.response(429, "{}", [{"retry-after", "20"}])
      llm = client(:gemini, serve([long, good]), max_retry_delay: 1_000)
      assert {{:error, %Error{retry_after: 20_000}}, []} = collect(llm)
    end

    test "repeats no secret" do
      secret = "key-12345"

      for body <- [
            ~s({"error":{"message":"bad key #{secret} and own-secret"}}),
            "bad key #{secret} and own-secret",
            "<html><title>bad key #{secret} and own-secret</title></html>"
          ] do
        error = refusal(401, body, [], headers: [{"api-key", "own-secret"}])
        assert error.provider_message == "bad key [key] and [key]"
        refute inspect(error, structs: false) =~ secret
      end

      # Nor one that only its form tells.
      for found <- ["glpat-abcdefghijklmnopqrst", "Bearer abcdefghijklmnopqrst"] do
        body =
          ~s({"error":{"message":"bad key #{found} at https://x.de/?api_key=0123456789abcdef"}})

        error = refusal(401, body)
        assert error.provider_message == "bad key [key] at https://x.de/?api_key=[key]"
      end

      # Also in the middle of a stream.
      events = [
        %{type: "message_start", message: %{content: []}},
        %{type: "content_block_start", index: 0, content_block: %{type: "text", text: "a"}},
        %{type: "error", error: %{type: "invalid_request_error", message: "bad key #{secret}"}}
      ]

      llm = client(:anthropic, serve([sse(events)]))
      assert {{:error, error}, [{:text, 0, "a"}, {:error, event}]} = collect(llm)
      assert error.provider_message == "bad key [key]"
      assert event.provider_message == "bad key [key]"
    end
  end

  describe "an account's keys" do
    test "are in no error or log, whatever goes wrong" do
      keys = %{access_key_id: "AKID", secret_access_key: "SECRET-SECRET"}
      keys = Map.put(keys, :session_token, "SECRET-TOKEN")
      expired = ~s({"message":"The security token SECRET-TOKEN is expired"})

      log =
        ExUnit.CaptureLog.capture_log(fn ->
          for answer <- [
                "garbage",
                WireServer.response(403, expired),
                WireServer.response(200, "garbage"),
                ""
              ] do
            server = serve([fn connection -> WireServer.write(connection, answer) end])
            llm = client(:bedrock, server, api_key: nil, credentials: keys, max_retries: 0)

            chat = fn -> exit({:result, LLM.chat(llm, Context.new("Hi"))}) end
            {pid, monitor} = spawn_monitor(chat)
            assert_receive {:DOWN, ^monitor, :process, ^pid, {:result, {:error, error}}}
            refute inspect(error, structs: false, limit: :infinity) =~ "SECRET"
          end
        end)

      refute log =~ "SECRET"
    end
  end
end
