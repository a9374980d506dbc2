defmodule AshAgent.LLM.OpenAICompatibleTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [drain: 1]

  import ExUnit.CaptureLog

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.LLM.{Error, OpenAICompatible}
  alias AshAgent.TestSupport.ChatServer

  doctest AshAgent.LLM
  doctest AshAgent.LLM.Scripted
  doctest AshAgent.LLM.OpenAICompatible

  defp model(server, opts \\ []) do
    own = [base_url: server.url, model: "m1", timeout: 30_000]
    OpenAICompatible.new(Keyword.merge(own, opts))
  end

  defp ask(server, opts \\ []),
    do: ChatServer.chat(model(server, opts), Context.new("Hi", system_prompt: "Be brief."))

  defp answer(message, more \\ %{}),
    do: Map.merge(%{"choices" => [%{"message" => message, "finish_reason" => "stop"}]}, more)

  defp hello, do: {:json, 200, answer(%{"role" => "assistant", "content" => "Hello!"})}

  defp failing(behaviours, opts \\ []) do
    server = ChatServer.start(behaviours)
    assert {:error, %Error{} = error} = ask(server, [max_retries: 0] ++ opts)
    assert is_binary(Exception.message(error))
    error
  end

  defp requests, do: length(drain(do: ({:request, _} -> 1)))

  describe "reasoning" do
    defp reasoned(more) do
      function = %{"name" => "get", "arguments" => "{}"}
      call = %{"id" => "call_1", "type" => "function", "function" => function}
      message = %{"role" => "assistant", "content" => nil, "tool_calls" => [call]}
      {:json, 200, answer(Map.merge(message, more))}
    end

    test "is kept, and goes back in the tool loop of a server that wants it" do
      tool = %{name: "get", description: nil, parameters: %{"type" => "object"}}

      for {dialect, more, key} <- [
            {:deepseek, %{"reasoning_content" => "hm"}, "reasoning_content"},
            {:vllm, %{"reasoning" => "hm"}, "reasoning"},
            {:openrouter,
             %{"reasoning_details" => [%{"type" => "reasoning.text", "text" => "hm"}]},
             "reasoning_details"},
            {:openai, %{"reasoning_content" => "hm"}, nil},
            {:auto, %{"reasoning_content" => "hm"}, nil}
          ] do
        server = ChatServer.start([reasoned(more), hello()])
        llm = model(server, dialect: dialect)

        assert {:ok, %{parts: [%{type: :thinking, text: "hm"}], tool_calls: [call]}} =
                 ChatServer.chat(llm, Context.new("Hi"), tools: [tool])

        context =
          Context.new("Hi")
          |> Context.add_assistant_message(parts(more), [call])
          |> Context.add_tool_results([{"call_1", {:ok, 72}}])

        assert {:ok, %{content: "Hello!"}} = ChatServer.chat(llm, context, [])
        assert_received {:request, _first}
        assert_received {:request, %{body: %{"messages" => [_, called, _]}}}
        keys = Map.keys(called) -- ["role", "content", "tool_calls"]
        assert keys == List.wrap(key)
        if key, do: assert(called[key] == more[key])
      end
    end

    defp parts(%{"reasoning_details" => details}) do
      metadata = %{provider: :openai_chat, reasoning_details: details}
      [%{type: :thinking, text: "hm", provider_metadata: metadata}]
    end

    defp parts(_more),
      do: [%{type: :thinking, text: "hm", provider_metadata: %{provider: :openai_chat}}]

    test "a dialect that is none is refused" do
      assert_raise ArgumentError, ~r/:dialect/, fn ->
        OpenAICompatible.new(model: "m", dialect: "deepseek")
      end
    end
  end

  describe "a call" do
    test "works over IPv6" do
      server = ChatServer.start([hello()], family: :inet6)
      assert {:ok, %{content: "Hello!"}} = ask(server)
      assert_received {:request, %{headers: headers}}
      assert headers["host"] == "[::1]:#{server.port}"
    end

    test "does not send a context that is waiting for results" do
      server = ChatServer.start([hello()])
      context = Context.new("Hi") |> Context.add_assistant_message(nil, [%{id: "a", name: "t"}])

      assert {:error,
              %Error{reason: {:request, %Context.Error{reason: {:pending_tool_calls, ["a"]}}}}} =
               ChatServer.chat(model(server), context)

      assert requests() == 0
      assert {:ok, _} = ChatServer.chat(model(server, request: [pending: :interrupt]), context)
    end
  end

  describe "an error" do
    test "comes from what is no answer" do
      said = &failing([{:raw, ["HTTP/1.1 200 OK\r\n\r\n", &1]}])
      calls = [~s("content": [5]), ~s("tool_calls": 5), ~s("tool_calls": [5])]
      calls = [~s("tool_calls": [{"function": {"name": null}}]), ~s("content": 5) | calls]
      messages = for message <- calls, do: ~s({"choices": [{"message": {#{message}}}]})

      for body <- ["nonsense", "[1]", "{}", <<255, 254>> | messages],
          do: assert(%Error{reason: {:invalid_response, _}, retryable?: false} = said.(body))

      cut = ["", ~s({"choices":), ~s({"choices": []}), ~s({"choices": [5]})]

      for body <- [String.duplicate("[", 100_000) | cut],
          do: assert(%Error{reason: :incomplete, retryable?: true} = said.(body))

      assert %Error{reason: {:provider, _}, status: 200, provider_message: "overloaded"} =
               said.(~s({"error": {"message": "overloaded"}}))
    end

    test "comes from answers that are too long" do
      long = String.duplicate("x", 10_000)

      assert %Error{reason: {:response_too_large, 5_000}} =
               failing([{:json, 200, answer(%{"content" => long})}], max_response_bytes: 5_000)

      # Why the provider refused cannot be read then, but that it did.
      assert %Error{reason: {:status, 400}, provider_message: nil} =
               failing([{:json, 400, %{"error" => long}}], max_response_bytes: 5_000)
    end
  end

  describe "repetition" do
    test "does not happen after other refusals, garbage and timeouts" do
      refusals = for status <- [400, 401, 404, 200], do: {:json, status, %{}}

      for behaviour <- [{:raw, "nonsense"}, :stall | refusals] do
        server = ChatServer.start([behaviour, hello()])
        timeout = if behaviour == :stall, do: 300, else: 30_000
        assert {:error, %Error{}} = ask(server, timeout: timeout)
        assert requests() == 1
      end
    end

    test "ends after its number, with the last refusal" do
      server = ChatServer.start([{:json, 503, %{"error" => "busy"}, [{"retry-after", "0"}]}])

      assert {:error, %Error{reason: {:status, 503}, provider_message: "busy", retry_after: 0}} =
               ask(server, max_retries: 3)

      assert requests() == 4
    end

    # More than linear work, or waiting, takes longer than this.
    @tag timeout: 20_000
    test "does not happen when the time does not suffice, which is told at once" do
      busy = {:json, 429, %{"error" => "slow down"}, [{"retry-after", "60"}]}
      server = ChatServer.start([busy, hello()])
      assert {:error, %Error{reason: {:status, 429}} = error} = ask(server, timeout: 30_000)
      assert {error.retry_after, error.provider_message} == {60_000, "slow down"}
      assert requests() == 1
    end

    test "reads the dates and numbers of retry-after" do
      now = ~U[2026-01-01 10:00:00Z]
      read = fn value -> AshAgent.LLM.Refusal.retry_after([{"retry-after", value}], now) end
      assert read.("7") == 7_000
      assert read.("0.5") == 500
      assert read.("Thu, 01 Jan 2026 10:00:30 GMT") == 30_000
      assert read.("Thu, 01 Jan 2026 09:00:00 GMT") == 0

      dates = for date <- ["41 Xxx", "41 Jan"], do: "Thu, #{date} 2026 10:00:30 GMT"
      for odd <- ["", "-1", "soon", <<255>> | dates], do: assert(read.(odd) == nil)
      both = [{"retry-after", "9"}, {"retry-after-ms", "20"}]
      assert AshAgent.LLM.Refusal.retry_after(both) == 20
      assert AshAgent.LLM.Refusal.retry_after([]) == nil
    end
  end

  describe "a request nobody waits for" do
    test "is cut off by the run's timeout" do
      server = ChatServer.start([:stall])

      opts = [llm: model(server), llm_timeout: 50]
      assert {:error, %Runtime.Error{}} = Runtime.run(Context.new("Hi"), opts)
      assert_receive {:closed, 1}, 20_000
    end
  end

  describe "TLS" do
    setup do: AshAgent.TestSupport.Certificates.make()

    test "works with a server that is trusted and has the right name", %{
      tls: tls,
      trusted: trusted
    } do
      server = ChatServer.start([hello()], tls: tls, host: "localhost")
      assert {:ok, %{content: "Hello!"}} = ask(server, ssl: trusted, api_key: "k")
      assert_received {:request, %{headers: %{"authorization" => "Bearer k"}}}
    end
  end

  describe "the key" do
    @key "sk-VERY-SECRET"

    test "is in no option, error or log, whatever goes wrong" do
      log =
        capture_log(fn ->
          for behaviour <- [
                hello(),
                :cut,
                {:raw, "garbage\r\n\r\n"},
                {:raw, "HTTP/1.1 200 OK\r\ncontent-length: abc\r\n\r\n"},
                {:json, 401,
                 %{"error" => %{"message" => "Incorrect API key provided: #{@key}."}}},
                {:json, 200, %{}}
              ],
              key <- [@key, fn -> @key end] do
            server = ChatServer.start([behaviour])
            llm = model(server, api_key: key, max_retries: 0, headers: [{"x-other", @key}])
            refute inspect(llm, structs: false, limit: :infinity) =~ "SECRET"
            reply = ChatServer.chat(llm, Context.new("Hi"))
            refute inspect(reply, structs: false, limit: :infinity) =~ "SECRET"
            assert_received {:request, %{headers: %{"authorization" => "Bearer " <> @key}}}

            {_, %{context: _} = outcome} = Runtime.run(Context.new("Hi"), llm: llm)
            refute inspect(outcome, structs: false, limit: :infinity) =~ "SECRET"
          end
        end)

      refute log =~ "SECRET"

      error = failing([{:json, 401, %{"error" => "bad key #{@key}"}}], api_key: @key)
      assert Exception.message(error) =~ "bad key [key]"
    end

    test "is not in the message of a refusal of options" do
      for opts <- [
            [api_key: @key],
            [model: "m", api_key: @key <> "\nx: y"],
            [model: "m", api_key: [@key]],
            [model: "m", api_key: @key, timeout: 0],
            [model: "m", api_key: @key, colour: @key],
            [model: "m", headers: [{"x", @key <> "\r\n"}]],
            [model: "m", headers: [{@key <> ":", "x"}]],
            [model: "m", headers: %{"x" => @key}],
            [model: "m", base_url: "http://user:#{@key}@host"],
            [model: "m", base_url: "ftp://host"],
            [model: "m", base_url: "host"],
            [model: "m", base_url: "http://host:70000"],
            [model: "m", body: [x: @key]],
            [model: "m", max_retries: -1],
            [model: "m", ssl: @key],
            [model: "m", api_key: @key, api_key: @key]
          ] do
        error = assert_raise ArgumentError, fn -> LLM.new({OpenAICompatible, opts}) end
        refute Exception.message(error) =~ "SECRET"
      end

      llm = {OpenAICompatible, model: "m", api_key: @key}

      for start <- [&Runtime.run(Context.new("Hi"), &1), &AshAgent.Session.start_link/1],
          wrong <- [[colour: 1], [llm: 1], [max_iterations: 0]] do
        error = assert_raise ArgumentError, fn -> start.([llm: llm] ++ wrong) end
        refute Exception.message(error) =~ "SECRET"
      end
    end
  end
end
