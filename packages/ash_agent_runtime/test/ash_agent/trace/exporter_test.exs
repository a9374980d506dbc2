defmodule AshAgent.Trace.ExporterTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [prompt: 2, say: 1]
  import ExUnit.CaptureLog

  alias AshAgent.{Context, LLM, Runtime, Session, Trace}
  alias AshAgent.TestSupport.{OtlpReader, Wait, WireServer}
  alias AshAgent.Trace.Exporter

  doctest AshAgent.Trace.Exporter

  # An exporter that ends with its test may still wait for an answer, and says so.
  @moduletag capture_log: true

  @at ~U[2026-01-01 10:00:00.000000Z]

  # A receiver that tells of each request and answers as `answer` says: bytes, :close, or a function of the connection.
  defp receiver(answer) do
    requests = :counters.new(1, [])

    WireServer.start(fn connection -> serve(connection, answer, requests, "") end).url <>
      "/traces"
  end

  defp serve(connection, answer, requests, buffer) do
    with {:ok, request} <- WireServer.read_request(connection, buffer) do
      :counters.add(requests, 1, 1)
      WireServer.tell(connection, {:request, request})

      case answer.(:counters.get(requests, 1)) do
        :close ->
          :ok

        fun when is_function(fun) ->
          fun.(connection)

        bytes ->
          WireServer.write(connection, bytes)
          serve(connection, answer, requests, request.rest)
      end
    end
  end

  defp ok, do: WireServer.response(200, "", [{"content-type", "application/x-protobuf"}])

  defp exporter(url, opts \\ []) do
    opts = Keyword.merge([url: url, delay: 0, retry_delay: 1], opts)
    start_supervised!({Exporter, opts}, id: make_ref())
  end

  defp turn(id),
    do: Context.new("Hi", id: id, at: @at) |> Context.add_assistant_message("Hello!", [], at: @at)

  defp received do
    assert_receive {:request, request}
    OtlpReader.spans(request.body)
  end

  # Whether the first request of the batch that is being sent has failed.
  defp failed_once?(exporter) do
    %{sending: {%{pid: pid}, _count}} = :sys.get_state(exporter)
    {:current_function, function} = Process.info(pid, :current_function)
    function == {Process, :sleep, 1}
  end

  defp ids(spans),
    do: for(%{parent: nil} = span <- spans, do: span.attributes["gen_ai.conversation.id"])

  describe "a run" do
    test "is sent when it has ended, as to_otlp/2 writes it" do
      exporter = exporter(receiver(fn _ -> ok() end), agent: "sums", headers: [{"X-Key", "k"}])
      call = %{tool_calls: [%{id: "1", name: "add", arguments: %{"a" => 2}}]}
      seen = self()

      tell = fn event, measurements, metadata ->
        send(seen, {:event, event, metadata})
        Exporter.handle_event(exporter, event, measurements, metadata)
      end

      opts = [llm: LLM.Scripted.new([call, "4"]), tools: %{add: fn _ -> {:ok, 4} end}]
      {:ok, result} = prompt("What is 2 + 2?", [on_event: tell] ++ opts)
      assert_receive {:request, request}
      assert request.method == "POST" and request.path == "/v1/traces"
      assert request.headers["content-type"] == "application/x-protobuf"
      assert request.headers["x-key"] == "k"
      assert request.body == Trace.to_otlp(result.context, agent: "sums")
      assert_received {:event, [:ash_agent, :runtime, :run, :stop], %{status: :answered}}
    end

    test "brings the conversations of its sub-agents along, and theirs are not sent again" do
      exporter = exporter(receiver(fn _ -> ok() end))
      on_event = Exporter.on_event(exporter)
      call = %{tool_calls: [%{id: "1", name: "helper", arguments: %{"task" => "look"}}]}
      llm = LLM.Scripted.new(["found"])
      helper = Runtime.SubAgent.tool(name: "helper", llm: llm, on_event: on_event)
      llm = LLM.Scripted.new([call, "There."])

      {:ok, result} = prompt("Where?", llm: llm, tools: [helper], on_event: on_event)
      assert [child] = result.sub_agents
      spans = received()
      assert spans == OtlpReader.spans(Trace.to_otlp(result.context, children: [child]))
      assert Enum.any?(spans, &(&1.name == "invoke_agent helper"))
      assert Exporter.flush(exporter) == :ok
      refute_received {:request, _}
    end

    test "that fails says why, by a name" do
      exporter = exporter(receiver(fn _ -> ok() end))
      on_event = Exporter.on_event(exporter)

      fails = fn opts -> {:error, _} = prompt("Hi", [on_event: on_event] ++ opts) end
      fails.(llm: fn _ -> {:error, "exporters-secret"} end)

      assert [%{status: 2, attributes: %{"error.type" => "llm_error"}}, %{name: "chat"}] =
               spans = received()

      refute inspect(spans) =~ "exporters-secret"

      busy = %LLM.Error{reason: {:status, 529}, kind: :overloaded}

      fails.(llm: fn _ -> {:error, busy} end)
      assert [%{attributes: %{"error.type" => "overloaded"}} | _] = received()

      again = fn _ -> {:ok, %{tool_calls: [%{name: "roll"}]}} end
      tools = %{roll: fn _ -> {:ok, 1} end}

      fails.(llm: again, tools: tools, max_iterations: 1)
      assert [%{attributes: %{"error.type" => "max_iterations_exceeded"}} | _] = received()
    end

    test "that pauses is sent so far, and again when it was resumed, with the span of the turn" do
      exporter = exporter(receiver(fn _ -> ok() end))

      helper = Runtime.SubAgent.tool(name: "helper", llm: say("found"))

      calls = [
        %{id: "1", name: "helper", arguments: %{"task" => "look"}},
        %{id: "2", name: "buy", arguments: %{}}
      ]

      opts = [
        llm: LLM.Scripted.new([%{tool_calls: calls}, "Bought."]),
        tools: [helper, %{name: "buy", function: fn _ -> {:ok, 1} end}],
        approval: fn call, _ -> if call.name == "buy", do: :ask, else: :approve end,
        on_event: Exporter.on_event(exporter)
      ]

      {:paused, paused} = Runtime.run(Context.new("Buy"), opts)
      assert [_child] = paused.sub_agents
      assert Exporter.flush(exporter) == :ok
      so_far = received()
      names = for span <- so_far, do: span.name
      assert ["chat scripted", "execute_tool helper", "invoke_agent helper" | _] = names
      refute "execute_tool buy" in names

      {:ok, _} = paused.context |> Context.Calls.approve_tool_call("2") |> Runtime.resume(opts)
      [turn | _] = spans = received()
      names = for span <- spans, do: span.name
      assert turn.name == "invoke_agent ash_agent" and turn.parent == nil
      assert "invoke_agent helper" in names and "execute_tool buy" in names
      # What was sent before belongs to it, under the same ids.
      ids = fn spans -> for span <- spans, do: {span.trace, span.id, span.parent} end
      assert ids.(so_far) -- ids.(spans) == []
      assert hd(so_far).parent == turn.id
      assert Exporter.flush(exporter) == :ok
      refute_received {:request, _}
    end

    test "of a session is sent for each prompt, and when it is cancelled" do
      exporter = exporter(receiver(fn _ -> ok() end))
      me = self()

      llm = fn context ->
        case context |> Context.to_messages() |> List.last() do
          %{content: "wait"} ->
            send(me, :asked)
            Process.sleep(:infinity)

          _ ->
            {:ok, %{content: "Hello!"}}
        end
      end

      {:ok, session} = Session.start_link(llm: llm, on_event: Exporter.on_event(exporter))
      {:ok, one} = Session.prompt(session, "Hi")
      first = received()
      {:ok, two} = Session.prompt(session, "Hi again")
      second = received()
      assert first == OtlpReader.spans(Trace.to_otlp(one.context))
      # Only what is new: the second turn.
      assert [%{attributes: %{"ash_agent.turn" => 2}}, _chat] = second
      assert second == OtlpReader.spans(Trace.to_otlp(two.context, turn: 2))

      {:ok, _ref} = Session.prompt_async(session, "wait")
      assert_receive :asked
      :ok = Session.cancel(session)

      assert [%{attributes: %{"ash_agent.turn" => 3, "error.type" => "cancelled"}, status: 2}] =
               received()
    end

    test "is not held up, whatever becomes of the exporter" do
      silent = receiver(fn _ -> &WireServer.await_close/1 end)
      dead = exporter("http://127.0.0.1:1/v1/traces")
      :ok = GenServer.stop(dead)

      for exporter <- [exporter(silent), dead, :nobody] do
        on_event = Exporter.on_event(exporter)
        assert {:ok, _} = prompt("Hi", llm: say("Hello!"), on_event: on_event)
      end

      # The exporter answers while its request hangs.
      assert_receive {:request, _}
    end
  end

  describe "batches" do
    test "have the turns that come together, as one message with all spans" do
      exporter = exporter(receiver(fn _ -> ok() end), delay: 60_000, max_batch: 3)
      for n <- 1..5, do: Exporter.export(exporter, turn("c#{n}"))
      # A full batch does not wait.
      assert ids(received()) == ["c1", "c2", "c3"]
      assert Exporter.flush(exporter) == :ok
      assert ids(received()) == ["c4", "c5"]
    end

    test "are no longer than they may be, unless one turn is" do
      exporter = exporter(receiver(fn _ -> ok() end), delay: 60_000, max_batch_bytes: 1)
      for n <- 1..3, do: Exporter.export(exporter, turn("c#{n}"))
      assert Exporter.flush(exporter) == :ok
      for n <- 1..3, do: assert(ids(received()) == ["c#{n}"])
    end

    test "have what the exporter's options say, without what is masked" do
      url = receiver(fn _ -> ok() end)
      exporter = exporter(url, messages: true, attributes: %{"user.id" => "1"})
      masked = turn("c1") |> Context.View.put_masks([{"Hello", "[gone]"}])
      Exporter.export(exporter, masked)
      assert [%{attributes: %{"user.id" => "1"}} | _] = spans = received()
      assert inspect(spans) =~ "[gone]!"
      Exporter.export(exporter, turn("c2"), turn: 1)
      assert ids(received()) == ["c2"]
    end
  end

  describe "a receiver" do
    test "that asks to come back gets the batch again, once it takes it no more" do
      answers = %{
        1 => WireServer.response(429, "slow down", [{"retry-after", "0"}]),
        2 => WireServer.response(503, "", []),
        3 => :close,
        4 => "no HTTP at all\r\n\r\n",
        5 => ok()
      }

      url = receiver(&Map.get(answers, &1, ok()))
      exporter = exporter(url)
      Exporter.export(exporter, turn("c1"))
      first = received()
      for _ <- 2..5, do: assert(received() == first)
      Exporter.export(exporter, turn("c2"))
      assert ids(received()) == ["c2"]
      assert Exporter.flush(exporter) == :ok
      refute_received {:request, _}
    end

    test "decides how long to wait" do
      me = self()

      transport =
        transport(fn _request ->
          send(me, :asked)
          Process.send_after(me, :waited, 5)
          {:head, 503, [{"retry-after-ms", "50"}]}
        end)

      log =
        capture_log(fn ->
          exporter =
            exporter("http://x/", transport: transport, max_retries: 2, retry_delay: 3_600_000)

          Exporter.export(exporter, turn("c1"))
          # Its own delay would be an hour.
          assert Exporter.flush(exporter) == :ok
        end)

      told = for _ <- 1..5, do: receive(do: (word when word in [:asked, :waited] -> word))
      assert told == [:asked, :waited, :asked, :waited, :asked]
      assert log =~ "status 503"
    end

    test "that is slow is asked again" do
      # The first request that reaches it gets no answer; on a busy machine others may not reach it in time.
      url = receiver(fn n -> if n == 1, do: &WireServer.await_close/1, else: ok() end)
      exporter = exporter(url, timeout: 200, max_retries: 1_000, max_retry_delay: 1)
      Exporter.export(exporter, turn("c1"))
      assert ids(received()) == ["c1"]
      assert ids(received()) == ["c1"]
      assert Exporter.flush(exporter) == :ok
    end

    test "that does not answer in time is given up, and the next batch is sent" do
      requests = :counters.new(1, [])

      transport =
        transport(fn _request ->
          :counters.add(requests, 1, 1)

          if :counters.get(requests, 1) == 1,
            do: {:error, {:timeout, :whole}},
            else: {:head, 200, []}
        end)

      log =
        capture_log(fn ->
          exporter = exporter("http://x/", transport: transport, max_retries: 0)
          Exporter.export(exporter, turn("c1"))
          assert Exporter.flush(exporter) == :ok
          Exporter.export(exporter, turn("c2"))
          assert Exporter.flush(exporter) == :ok
        end)

      assert log =~ "loses turns: the receiver did not answer in time"
      assert log =~ "turns lost: 1"
      assert :counters.get(requests, 1) == 2
    end

    test "that refuses is not asked again, and port and path are told, but no key" do
      url = receiver(fn _ -> WireServer.response(401, "exporters-secret body", []) end)

      log =
        capture_log(fn ->
          headers = [{"authorization", "exporters-secret"}]
          exporter = exporter(url <> "?key=exporters-secret", headers: headers)
          Exporter.export(exporter, turn("c1"))
          assert Exporter.flush(exporter) == :ok
          Exporter.export(exporter, turn("c2"))
          assert Exporter.flush(exporter) == :ok
          assert_receive {:request, %{headers: %{"authorization" => "exporters-secret"}}}
          assert_receive {:request, _}
          refute_received {:request, _}
          stop_supervised!(id_of(exporter))
        end)

      assert log =~ "for #{url} loses turns: the receiver answered with the status 401"
      assert log =~ "turns lost: 2"
      # Once each, whatever comes.
      assert length(String.split(log, "loses turns")) == 2
      refute log =~ "exporters-secret"
    end

    test "that cannot be reached costs what does not fit into the queue, and that is told once" do
      log =
        capture_log(fn ->
          slow = [retry_delay: 3_600_000, max_retry_delay: 3_600_000]
          exporter = exporter("http://127.0.0.1:1/", [max_queue: 3, max_batch: 1] ++ slow)
          for n <- 1..50, do: Exporter.export(exporter, turn("c#{n}"))
          # One is being sent, three wait.
          assert shown(exporter) == %{waiting: 3, lost: 46}
          Wait.until(fn -> failed_once?(exporter) end)
          stop_supervised!(id_of(exporter))
        end)

      assert length(String.split(log, "loses turns: 3 turns wait already")) == 2
      # At once, and once: with the port and the path, one of which may be wrong.
      words = "for http://127.0.0.1:1/ cannot send turns, and tries again: there is no connection"
      assert length(String.split(log, words)) == 2
      assert log =~ "turns lost: 50"
    end

    test "that rejects spans of a batch is believed" do
      # partial_success: rejected_spans 300, error_message "no"; then one without rejected spans.
      rejected = <<0x0A, 7, 0x08, 0xAC, 0x02, 0x12, 2, "no">>
      warned = <<0x0A, 4, 0x12, 2, "no">>
      bodies = %{1 => rejected, 2 => warned, 3 => "<html>", 4 => <<0x0A, 0x08, 0xFF>>}

      log =
        capture_log(fn ->
          exporter = exporter(receiver(&WireServer.response(200, bodies[&1])))

          for n <- 1..4 do
            Exporter.export(exporter, turn("c#{n}"))
            assert Exporter.flush(exporter) == :ok
          end
        end)

      assert log =~ "loses turns: the receiver rejected 300 spans"
      assert log =~ "turns lost: 1"
      for n <- 1..4, do: assert(ids(received()) == ["c#{n}"])
      refute_received {:request, _}
    end

    test "gets the others when one turn cannot be written" do
      log =
        capture_log(fn ->
          exporter = exporter(receiver(fn _ -> ok() end), delay: 60_000)
          Exporter.export(exporter, turn("c1"))
          Exporter.export(exporter, turn("c2"), turn: 99)
          Exporter.export(exporter, turn("c3"))
          assert Exporter.flush(exporter) == :ok
          assert ids(received()) == ["c1", "c3"]
        end)

      assert log =~ "a turn cannot be written (:unknown_iteration)"
    end
  end

  describe "an exporter" do
    test "shows neither keys nor what was said, whatever happens to it" do
      log =
        capture_log(fn ->
          headers = [{"authorization", fn -> raise "exporters-secret key" end}]

          exporter =
            exporter(receiver(fn _ -> ok() end) <> "?k=exporters-secret", headers: headers)

          context = Context.new("exporters-secret words")
          Exporter.export(exporter, context)
          assert Exporter.flush(exporter) == :ok
          refute inspect(:sys.get_status(exporter), limit: :infinity) =~ "exporters-secret"
          send(exporter, {:unexpected, "exporters-secret"})
          GenServer.cast(exporter, {:unexpected, "exporters-secret"})

          assert GenServer.call(exporter, {:unexpected, "exporters-secret"}) ==
                   {:error, :unknown_call}

          monitor = Process.monitor(exporter)

          :sys.replace_state(exporter, fn state ->
            %{state | queue: "exporters-secret", size: 1}
          end)

          catch_exit(Exporter.flush(exporter))
          assert_receive {:DOWN, ^monitor, :process, _, _}
        end)

      assert log =~ "the process that sent them failed"
      refute log =~ "exporters-secret"

      opts = [url: "http://x/", headers: [{"a", "exporters-secret"}]]
      refute inspect(Exporter.child_spec(opts), limit: :infinity) =~ "exporters-secret"
    end

    test "is not started with options that are wrong" do
      for {name, value} <- [
            url: "ftp://x",
            url: "http://user:exporters-secret@x/",
            headers: [{"a b", "c"}],
            headers: [{"a", "b\r\nc: d"}],
            max_queue: 0,
            transport: String,
            tools: %{"x" => 1},
            format: :json
          ] do
        opts = Keyword.merge([url: "http://x/"], [{name, value}])
        error = catch_error(Exporter.start_link(opts))
        assert %ArgumentError{message: message} = error
        refute message =~ "exporters-secret"
      end

      assert_raise ArgumentError, ~r/:url/, fn -> Exporter.start_link([]) end
      assert_raise ArgumentError, fn -> Exporter.export(:nobody, turn("c"), turn: :first) end
    end

    test "ignores other events" do
      assert Exporter.handle_event(:nobody, [:ash_agent, :runtime, :llm, :stop], %{}, %{}) == :ok
      # As telemetry tells it, without contexts.
      event = [:ash_agent, :runtime, :run, :stop]
      assert Exporter.handle_event(:nobody, event, %{}, %{status: :answered}) == :ok
    end
  end

  defmodule FakeTransport do
    @behaviour AshAgent.LLM.Transport
    @impl true
    def stream(request, acc, fun, opts) do
      case opts[:answer].(request) do
        {:error, reason} -> {:error, reason, acc}
        head -> {:ok, head |> fun.(acc) |> elem(1)}
      end
    end
  end

  defp transport(answer), do: {FakeTransport, answer: answer}

  defp shown(exporter) do
    {:status, _, _, [_, _, _, _, parts]} = :sys.get_status(exporter)
    [state] = for {:data, data} <- parts, {_name, %{waiting: _} = state} <- data, do: state
    state
  end

  defp id_of(exporter) do
    {:ok, supervisor} = ExUnit.fetch_test_supervisor()

    Enum.find_value(Supervisor.which_children(supervisor), fn {id, pid, _, _} ->
      pid == exporter and id
    end)
  end
end
