defmodule AshAgent.Runtime.FailuresTest do
  # What went wrong is kept with the conversation, and told while it happens.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [hanging: 1]

  alias AshAgent.{Context, Runtime, Session, Store}
  alias AshAgent.LLM.OpenAICompatible
  alias AshAgent.TestSupport.{StreamModel, WireServer}

  @key "sk-key-that-nobody-may-see"
  @answer ~s({"choices":[{"message":{"role":"assistant","content":"Fine."},"finish_reason":"stop"}]})
  @busy WireServer.response(503, ~s({"error":{"message":"busy, #{@key}"}}), [
          {"retry-after", "0"},
          {"x-request-id", "req_7"}
        ])

  defp answer, do: WireServer.response(200, @answer, [{"content-type", "application/json"}])

  # Gives the requests these answers, one after the other.
  defp model(answers, opts \\ []) do
    {:ok, left} = Agent.start_link(fn -> answers end)

    server =
      WireServer.start(fn connection ->
        # A client with little patience may have gone.
        with {:ok, _} <- WireServer.read_request(connection) do
          bytes = Agent.get_and_update(left, fn [next | rest] -> {next, rest} end)
          if is_function(bytes), do: bytes.(connection), else: WireServer.write(connection, bytes)
        end

        WireServer.close(connection)
      end)

    OpenAICompatible.new([model: "m", api_key: @key, base_url: server.url] ++ opts)
  end

  defp run(llm, opts \\ []),
    do: Runtime.run(Context.new("Hi"), Keyword.merge([llm: llm, stream: false], opts))

  test "a try that was repeated is kept with its wait, and told" do
    test = self()

    tell = fn event, measured, metadata ->
      send(test, {Enum.drop(event, 2), measured, metadata})
    end

    {:ok, %{output: "Fine.", context: context}} =
      run(model([@busy, @busy, answer()]), on_event: tell)

    assert [
             %{kind: :overloaded, status: 503, attempt: 1, wait: 0, iteration: 1, count: 1} =
               first,
             %{attempt: 2}
           ] = Context.Audit.failures(context)

    assert %{provider: :openai_chat, model: "m", request_id: "req_7", message: words} = first
    assert words =~ "busy"
    assert DateTime.compare(first.requested_at, first.at) in [:lt, :eq]
    refute inspect(Context.Audit.failures(context)) =~ @key
    refute Context.to_snapshot(context) =~ @key

    for attempt <- 1..2,
        do: assert_received({[:llm, :retry], %{attempt: ^attempt, wait: 0}, %{kind: :overloaded}})
  end

  test "the failure that ends a run is kept, and stored" do
    refused = WireServer.response(401, ~s({"error":{"message":"no","code":"invalid_api_key"}}))
    {:ok, store} = Store.SQLite.open(":memory:")

    for {answers, kind, known} <- [
          {[refused], :unauthorized, %{status: 401, attempt: 1, message: "no"}},
          {[@busy, @busy, @busy], :overloaded, %{status: 503, attempt: 3}},
          {["", "", ""], :closed, %{attempt: 3}}
        ] do
      context = Context.new("Hi")
      {:ok, kept} = Store.create(store, context, owner: "me", lease: 60_000)

      llm = model(answers, max_retries: 2)
      opts = [llm: llm, stream: false, store: store, kept: kept]
      assert {:error, error} = Runtime.run(context, opts)
      {:ok, stored} = Store.fetch(store, context[:id])
      failures = Context.Audit.failures(stored.value)
      assert failures == Context.Audit.failures(error.context)
      assert length(failures) == length(answers)
      assert %{kind: ^kind} = last = List.last(failures)
      assert Map.take(last, Map.keys(known)) == known
      refute Map.has_key?(last, :wait)
    end
  end

  test "a stream that broke off is kept with what came of it" do
    cut = fn connection ->
      WireServer.write(connection, WireServer.stream_head())
      WireServer.write_chunk(connection, StreamModel.text("Once "))
    end

    assert {:error, error} = run(model([cut]), stream: true)
    assert [%{kind: :closed, part: "stream"}] = Context.Audit.failures(error.context)
    assert List.last(Context.to_messages(error.context)).content == "Once "
  end

  test "limits of time say which" do
    hang = fn _connection -> Process.sleep(:infinity) end
    llm = model([hang], first_byte_timeout: 50, max_retries: 0)
    assert {:error, error} = run(llm)
    assert [%{kind: :timeout, timeout: "first_byte"}] = Context.Audit.failures(error.context)

    assert {:error, error} = run(model([hang]), llm_timeout: 50)
    assert [%{kind: :timeout, timeout: "whole"}] = Context.Audit.failures(error.context)
  end

  test "whatever a model of the application's own returns for an error" do
    for error <- [
          :sad,
          {:odd, <<255>>},
          %AshAgent.LLM.Error{reason: :sad, kind: :sad, status: "?", provider_message: <<255>>},
          %AshAgent.LLM.Error{reason: {:provider, <<255>>}, kind: nil, attempt: -1}
        ] do
      assert {:error, ended} = run(fn _ -> {:error, error} end)
      assert [%{kind: :invalid_response}] = Context.Audit.failures(ended.context)
    end
  end

  test "subscribers hear tries, tools and how a turn ended, and later ones what goes on" do
    test = self()

    wait = fn _arguments ->
      send(test, {:tool, self()})
      receive do: (:go -> {:ok, "done"})
    end

    calls =
      ~s({"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[
      {"id":"a","type":"function","function":{"name":"wait","arguments":"{}"}}]},"finish_reason":"tool_calls"}]})

    called = WireServer.response(200, calls, [{"content-type", "application/json"}])
    refused = WireServer.response(400, ~s({"error":{"message":"no"}}))

    llm = model([@busy, called, refused])
    {:ok, session} = Session.start_link(llm: llm, stream: false, tools: %{wait: wait})
    {:ok, ref, _snapshot} = Session.subscribe(session)
    {:ok, _prompt} = Session.prompt_async(session, "Hi")

    assert_receive {Session, ^ref, _,
                    {:event, [:llm, :retry], %{attempt: 1}, %{kind: :overloaded}}},
                   5_000

    assert_receive {:tool, tool}, 5_000
    assert_receive {Session, ^ref, _, {:event, [:tool, :start], _, %{tool_call_id: "a"}}}

    assert %{activity: [{:event, [:tool, :start], _, %{tool: "wait"}}]} =
             Session.snapshot(session)

    send(tool, :go)
    assert_receive {Session, ^ref, _, {:event, [:tool, :stop], _, %{tool_call_id: "a"}}}

    assert_receive {Session, ^ref, _,
                    {:event, [:run, :stop], _, %{status: :error, reason: :llm_error}}},
                   5_000

    assert %{activity: [], context: context} = Session.snapshot(session)

    assert [%{kind: :overloaded, iteration: 1}, %{kind: :invalid_request, iteration: 2}] =
             Context.Audit.failures(context)
  end

  test "a cancelled turn is told, too" do
    llm = AshAgent.LLM.Scripted.new([%{tool_calls: [%{id: "a", name: "wait"}]}])
    {:ok, session} = Session.start_link(llm: llm, tools: %{wait: hanging(:called)})
    {:ok, ref, _snapshot} = Session.subscribe(session)
    {:ok, _prompt} = Session.prompt_async(session, "Hi")
    assert_receive {:called, _tool}, 5_000
    :ok = Session.cancel(session)

    assert_receive {Session, ^ref, _,
                    {:event, [:run, :stop], _, %{status: :error, reason: :cancelled}}}

    assert %{activity: []} = Session.snapshot(session)
  end

  @tag :slow
  test "a model that says nothing for ten seconds is told" do
    {:ok, session} =
      Session.start_link(llm: fn _ -> Process.sleep(11_000) && {:ok, %{content: "Hm."}} end)

    {:ok, ref, _snapshot} = Session.subscribe(session)
    {:ok, _prompt} = Session.prompt_async(session, "Hi")
    assert_receive {Session, ^ref, _, {:event, [:llm, :waiting], %{duration: _}, _}}, 15_000
    assert %{activity: [{:event, [:llm, :waiting], _, _}]} = Session.snapshot(session)
    assert_receive {Session, ^ref, _, {:event, [:run, :stop], _, %{status: :answered}}}, 5_000
  end
end
