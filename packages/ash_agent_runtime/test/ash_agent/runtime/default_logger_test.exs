defmodule AshAgent.Runtime.DefaultLoggerTest do
  # A stand-in for the application :telemetry is loaded for the whole VM.
  use ExUnit.Case, async: false

  import ExUnit.CaptureLog

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.LLM.ByteLog
  alias AshAgent.Runtime.DefaultLogger
  alias AshAgent.TestSupport.Misbehaviour

  @config %{level: :info}

  # What a handler gets is what `:on_event` gets, less texts and contexts.
  defp logged(opts) do
    capture_log(fn ->
      on_event = fn name, measured, metadata ->
        metadata = Map.drop(metadata, [:events, :context, :sub_agents])
        if name in names(), do: DefaultLogger.handle_event(name, measured, metadata, @config)
      end

      context = Context.new("SECRET question", id: "user-17")
      send(self(), Runtime.run(context, [on_event: on_event] ++ opts))
    end)
  end

  defp names do
    kinds = [run: [:stop], llm: [:stop, :exception, :retry], tool: [:stop, :exception]]

    for {kind, names} <- kinds,
        name <- names,
        do: [:ash_agent, :runtime, kind, name]
  end

  test "a run has a line for each request and tool and for its end, and no texts" do
    usage = %{input_tokens: 911, output_tokens: 42}
    call = %{id: "call_1", name: "pay", arguments: %{"to" => "SECRET"}}
    llm = LLM.Scripted.new([%{tool_calls: [call], usage: usage}, "SECRET answer"])
    prices = [%{model: :any, input: 1_000_000, output: 1_000_000}]
    tools = %{pay: fn _ -> {:ok, "SECRET result"} end}
    log = logged(llm: llm, tools: tools, prices: prices)

    assert log =~
             ~r/llm\.stop conversation=user-17 iteration=1 ms=\d+ .*input_tokens=911 cached_tokens=0 output_tokens=42 usd=0\.000953/

    assert log =~ ~r/tool\.stop .*tool=pay call=call_1 status=:ok ms=\d+ bytes=13/
    assert log =~ ~r/\[info\] +ash_agent run\.stop .*status=:answered ms=\d+/
    refute log =~ "SECRET"
  end

  test "a tool that raised is logged with file and line, and not with its words" do
    llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "pay"}]}, "Sorry."])
    line = __ENV__.line + 1
    tools = %{pay: fn _ -> raise "SECRET" end}
    log = logged(llm: llm, tools: tools)

    assert log =~
             ~r/\[error\] +ash_agent tool\.exception .*tool=pay call=call_1 ms=\d+ kind=:error reason=RuntimeError at=\S*default_logger_test.exs:#{line}/

    refute log =~ "SECRET"
  end

  test "a request that failed is logged by its kind, and its tries are" do
    key = Misbehaviour.key()

    for {kind, words} <- [
          busy_forever: ["llm.retry", "attempt=1 wait_ms=0", "failure=:rate_limited status=429"],
          no_money: ["failure=:quota status=429"],
          silent: ["failure=:timeout"],
          refused_connection: ["failure=:unreachable"]
        ] do
      options = kind |> Misbehaviour.start(:openai_chat) |> Keyword.delete(:region)
      log = logged(llm: LLM.OpenAICompatible.new(options))
      for word <- ["run.stop", "status=:error" | words], do: assert(log =~ word)
      refute log =~ key
    end
  end

  test "what a model puts into a name begins neither a line nor a field" do
    name = "pay\nERROR all=lost"
    llm = LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: name}]}, "Sorry."])
    log = logged(llm: llm, tools: %{pay: fn _ -> {:ok, 1} end})
    assert log =~ ~S(tool="pay\nERROR all=lost" call=call_1)
  end

  test "bytes of requests and answers are logged at the level debug for those who ask, without keys" do
    key = Misbehaviour.key()

    ask = fn kind ->
      llm = kind |> Misbehaviour.start(:openai_chat) |> Keyword.delete(:region)
      context = Context.new("My card is 4111 1111. My key is #{key}.", id: "user-17")
      context = Context.View.put_masks(context, [{"4111 1111", "[card]"}])
      capture_log(fn -> Runtime.run(context, llm: LLM.OpenAICompatible.new(llm)) end)
    end

    refute ask.(:wrong_key) =~ "ash_agent request"
    ByteLog.switch(true)
    on_exit(fn -> ByteLog.switch(false) end)
    log = ask.(:wrong_key)
    assert log =~ ~r/\[debug\] +ash_agent request http:\/\/127\.0\.0\.1:\d+\S* "\{.*My card is /
    assert log =~ ~r/\[debug\] +ash_agent answer 401 "/
    refute log =~ "4111 1111"
    refute log =~ key
    assert log =~ "(hidden)"
  end

  unless Code.ensure_loaded?(:telemetry) do
    test "is attached to telemetry with the events that were asked for" do
      assert Runtime.attach_default_logger() == {:error, :no_telemetry}
      test = self()

      quoted =
        quote do
          def attach_many(id, names, fun, config), do: tell({:attach, id, names, fun, config})
          def detach(id), do: tell({:detach, id})

          defp tell(message) do
            send(:erlang.list_to_pid(unquote(:erlang.pid_to_list(test))), message)
            :ok
          end
        end

      Module.create(:telemetry, quoted, Macro.Env.location(__ENV__))

      on_exit(fn ->
        :code.purge(:telemetry)
        :code.delete(:telemetry)
      end)

      assert Runtime.attach_default_logger(level: :debug, events: [:run, :tool]) == :ok
      assert_received {:attach, id, names, handler, %{level: :debug} = config}
      assert [:ash_agent, :runtime, :run, :stop] in names
      refute [:ash_agent, :runtime, :llm, :stop] in names
      metadata = %{context_id: "c", iteration: 1, status: :answered}
      measured = %{duration: 0}
      run_stop = [:ash_agent, :runtime, :run, :stop]
      log = capture_log(fn -> handler.(run_stop, measured, metadata, config) end)
      assert log =~ ~r/\[debug\] +ash_agent run.stop conversation=c/
      assert Runtime.detach_default_logger() == :ok
      assert_received {:detach, ^id}
    end
  end

  test "an unknown option raises" do
    assert_raise ArgumentError, fn -> Runtime.attach_default_logger(levle: :debug) end
  end
end
