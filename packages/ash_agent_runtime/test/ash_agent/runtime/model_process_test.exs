defmodule AshAgent.Runtime.ModelProcessTest do
  # A client of the package has one process for all requests of a run, and other models have one for each.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.LLM.{OpenAICompatible, Scripted}
  alias AshAgent.LLM.Transport.HTTP1.Pool
  alias AshAgent.TestSupport.{Wait, WireServer}

  defmodule Transport do
    # Answers with what a function of the number of the request returns: the body of an answer, a list of pieces of a stream, or
    # a function that does what a transport does.
    @behaviour LLM.Transport

    @impl true
    def prepare(opts) do
      send(opts[:test], :prepared)
      opts
    end

    @impl true
    def stream(request, acc, fun, opts) do
      number = :counters.get(opts[:count], 1) + 1
      :counters.put(opts[:count], 1, number)
      send(opts[:test], {:asked, self(), IO.iodata_to_binary(request.body)})
      answer(opts[:answer].(number), acc, fun, opts[:test])
    end

    defp answer(function, acc, fun, _test) when is_function(function), do: function.(acc, fun)

    defp answer(body, acc, fun, test) when is_binary(body),
      do: answer({200, body}, acc, fun, test)

    defp answer({status, body}, acc, fun, _test) do
      {:cont, acc} = fun.({:head, status, [{"content-type", "application/json"}]}, acc)
      {_, acc} = fun.({:data, body}, acc)
      {:ok, acc}
    end

    defp answer(pieces, acc, fun, test) do
      {:cont, acc} = fun.({:head, 200, [{"content-type", "text/event-stream"}]}, acc)

      acc =
        for {piece, number} <- Enum.with_index(pieces, 1), reduce: acc do
          acc ->
            send(test, {:fed, number})
            {:cont, acc} = fun.({:data, piece}, acc)
            acc
        end

      {:ok, acc}
    end
  end

  defp client(answer, opts \\ []) do
    own = [test: self(), count: :counters.new(1, []), answer: answer]
    defaults = [model: "m", base_url: "http://127.0.0.1:1", transport: {Transport, own}]
    OpenAICompatible.new(Keyword.merge(defaults, opts))
  end

  defp says(message, finish \\ "stop") do
    choice = %{index: 0, message: Map.put(message, :role, "assistant"), finish_reason: finish}
    Context.JSON.encode(%{choices: [choice], usage: %{prompt_tokens: 9, completion_tokens: 2}})
  end

  defp calls(number, name \\ "look") do
    function = %{name: name, arguments: "{}"}
    call = %{id: "call_#{number}", type: "function", function: function}
    says(%{content: nil, tool_calls: [call]}, "tool_calls")
  end

  # Calls until the last request.
  defp calling(last), do: &if(&1 < last, do: calls(&1), else: says(%{content: "Done."}))

  defp run(llm, opts \\ []) do
    defaults = [llm: llm, tools: %{look: fn _ -> {:ok, "seen"} end}]
    Runtime.run(Context.new("Look"), Keyword.merge(defaults, opts))
  end

  defp asked do
    receive do
      {:asked, pid, _body} -> [pid | asked()]
    after
      0 -> []
    end
  end

  test "all requests of a run with a client are made in one process, which ends with the run" do
    assert {:ok, %{output: "Done."}} = run(client(calling(4)))
    assert [pid, pid, pid, pid] = asked()
    refute Process.alive?(pid)
    assert Process.info(self(), :messages) |> elem(1) |> Enum.all?(&(&1 == :prepared))
  end

  test "each request with another model is made in a process of its own" do
    test = self()

    answer = fn _context, _opts ->
      send(test, {:asked, self(), ""})
      {:ok, %{content: nil, tool_calls: [%{id: "a", name: "look", arguments: %{}}]}}
    end

    assert {:error, _too_many} = run(answer, max_iterations: 3)
    assert [one, two, three] = asked()
    assert length(Enum.uniq([one, two, three])) == 3
  end

  test "what a client's options are is checked when it is made and when a run begins, and not in each request" do
    llm = client(calling(6))
    assert {:ok, %{output: "Done."}} = run(llm)
    assert {:messages, messages} = Process.info(self(), :messages)
    assert Enum.count(messages, &(&1 == :prepared)) == 2
  end

  test "an answer that is not streamed has no pieces" do
    test = self()
    hear = fn %{event: event, measurements: measured} -> send(test, {:heard, event, measured}) end
    assert {:ok, %{output: "Done."}} = run(client(calling(3)), stream: false, on_event: hear)
    assert_receive {:heard, [_, _, :llm, :stop], measured}
    refute is_map_key(measured, :time_to_first_token)
    assert_receive {:heard, [_, _, :run, :stop], _measured}
    refute_received {:heard, [_, _, :llm, :delta], _measured}
  end

  test "a request gets no more than its context" do
    words = String.duplicate("words ", 20)
    property = fn n -> {"p#{n}", %{"type" => "string", "description" => words}} end
    parameters = %{"type" => "object", "properties" => Map.new(1..20, property)}
    tool = fn n -> {"tool_#{n}", %{function: fn _ -> {:ok, n} end, parameters: parameters}} end
    test = self()

    look = fn _arguments ->
      assert_receive {:asked, pid, body}
      :erlang.trace(pid, true, [:receive, {:tracer, test}])
      send(test, {:body, body})
      {:ok, "seen"}
    end

    # Its messages come to the tool, since that is where the process is known.
    llm = client(calling(2))
    send_to_tool = fn -> receive do: ({:asked, _, _} = asked -> asked) end

    tools =
      Map.new([
        {"look", fn _ -> send(test, {:tool, self()}) && look.(send_to_tool) end}
        | Enum.map(1..100, tool)
      ])

    run = Task.async(fn -> run(llm, tools: tools) end)
    assert_receive {:asked, _pid, _body} = asked
    assert_receive {:tool, tool}
    send(tool, asked)
    assert {:ok, %{output: "Done."}} = Task.await(run)
    assert_receive {:trace, _pid, :receive, {:ask, _request, _trace} = request}
    assert :erts_debug.flat_size(request) < 200
    assert_receive {:body, body}
    assert byte_size(body) > 100_000
  end

  test "a request that went wrong is the last of its process" do
    words = "Invalid schema for response_format 'answer': 'type' is missing"
    refused = Context.JSON.encode(%{error: %{message: words}})
    output = %{type: :object, properties: %{n: %{type: :integer}}, required: [:n]}
    llm = client(fn _number -> {400, refused} end, model: "gpt-4o")
    assert {:error, _refused} = Runtime.run(Context.new("Look"), llm: llm, output: output)
    assert [one, two] = asked()
    assert one != two
    refute Process.alive?(one) or Process.alive?(two)
  end

  test "a process that somebody kills between two requests is replaced" do
    llm = client(calling(3))
    test = self()

    look = fn _ ->
      send(test, {:looks, self()})
      receive(do: (:go -> {:ok, "seen"}))
    end

    run = Task.async(fn -> run(llm, tools: %{look: look}) end)

    pids =
      for _ <- 1..2 do
        assert_receive {:asked, pid, _body}
        assert_receive {:looks, tool}
        Process.exit(pid, :kill)
        assert Wait.until(fn -> not Process.alive?(pid) end)
        send(tool, :go)
        pid
      end

    assert {:ok, %{output: "Done."}} = Task.await(run)
    assert_receive {:asked, last, _body}
    assert length(Enum.uniq([last | pids])) == 3
  end

  test "it ends with a run that is killed, although its supervisor lives on" do
    supervisor = start_supervised!(Task.Supervisor)
    test = self()
    llm = client(calling(2))
    look = fn _ -> send(test, :looks) && Process.sleep(:infinity) end
    run = spawn(fn -> run(llm, tools: %{look: look}, supervisor: supervisor) end)
    assert_receive {:asked, pid, _body}
    assert_receive :looks
    assert Process.alive?(pid)
    Process.exit(run, :kill)
    assert Wait.until(fn -> not Process.alive?(pid) end)
  end

  describe "a stream" do
    defp pieces(count) do
      delta = fn delta, finish ->
        choice = %{index: 0, delta: delta, finish_reason: finish}
        "data: #{Context.JSON.encode(%{choices: [choice]})}\n\n"
      end

      texts = for n <- 1..count, do: delta.(%{content: "#{n} "}, nil)
      texts ++ [delta.(%{}, "stop"), "data: [DONE]\n\n"]
    end

    test "is read no further than its window while nobody hears, and every piece comes in order" do
      test = self()

      hear = fn
        %{event: [_, _, :llm, :delta], metadata: %{events: [{:text, _, text} | _]}} ->
          send(test, {:heard, text})
          receive(do: (:go -> :ok))

        _other ->
          :ok
      end

      llm = client(fn _number -> pieces(100) end)
      run = Task.async(fn -> run(llm, stream: true, on_event: hear) end)

      for n <- 1..100 do
        text = "#{n} "
        assert_receive {:heard, ^text}, 5_000
        # As many as are on their way at most, and the one that waits to be.
        if n == 1, do: assert_receive({:fed, 16}, 5_000)
        {:messages, messages} = Process.info(self(), :messages)
        refute Enum.any?(messages, &match?({:fed, far} when far > n + 16, &1))
        assert {:message_queue_len, waiting} = Process.info(run.pid, :message_queue_len)
        assert waiting <= 16
        send(run.pid, :go)
      end

      assert {:ok, %{output: output}} = Task.await(run)
      assert output == Enum.map_join(1..100, &"#{&1} ")
    end

    test "is heard piece by piece, however fast it comes and is heard" do
      for count <- [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 120],
          slow <- [nil, 1, :rand.uniform(20)] do
        test = self()

        hear = fn
          %{event: [_, _, :llm, :delta], metadata: %{events: events}} ->
            for {:text, _, text} <- events, do: send(test, {:heard, text})
            if slow && rem(:rand.uniform(1_000), slow) == 0, do: Process.sleep(1)

          _other ->
            :ok
        end

        texts = for n <- 1..count, do: "#{n} "
        llm = client(fn _number -> pieces(count) end)
        assert {:ok, %{output: output}} = run(llm, stream: true, on_event: hear)
        assert output == Enum.join(texts)
        for text <- texts, do: assert_received({:heard, ^text})
        refute_received {:heard, _more}
        {:messages, heard} = Process.info(self(), :messages)
        assert Enum.all?(heard, &(match?({kind, _} when kind in [:fed], &1) or asked?(&1)))
        flush()
      end
    end

    defp asked?(message), do: message == :prepared or match?({:asked, _, _}, message)

    defp flush do
      receive do
        _any -> flush()
      after
        0 -> :ok
      end
    end

    test "ends with a run that is killed while it waits for that" do
      test = self()
      supervisor = start_supervised!(Task.Supervisor)

      hear = fn
        %{event: [_, _, :llm, :delta]} -> send(test, :hears) && Process.sleep(:infinity)
        _other -> :ok
      end

      llm = client(fn _number -> pieces(100) end)
      run = spawn(fn -> run(llm, stream: true, on_event: hear, supervisor: supervisor) end)
      assert_receive {:asked, pid, _body}, 5_000
      assert_receive :hears, 5_000
      assert_receive {:fed, 16}, 5_000
      assert Process.alive?(pid)
      Process.exit(run, :kill)
      assert Wait.until(fn -> not Process.alive?(pid) end)
    end

    test "of a turn that is cancelled ends, and the next turn has another process" do
      test = self()
      [piece | _rest] = pieces(1)

      hang = fn acc, fun ->
        {:cont, acc} = fun.({:head, 200, [{"content-type", "text/event-stream"}]}, acc)
        {:cont, _acc} = fun.({:data, piece}, acc)
        send(test, :hangs)
        Process.sleep(:infinity)
      end

      llm = client(fn number -> if number == 1, do: hang, else: pieces(2) end)
      session = start_supervised!({AshAgent.Session, llm: llm})
      turn = Task.async(fn -> AshAgent.Session.prompt(session, "Look") end)
      assert_receive {:asked, one, _body}, 5_000
      assert_receive :hangs, 5_000
      AshAgent.Session.cancel(session)
      assert {:error, _cancelled} = Task.await(turn)
      assert Wait.until(fn -> not Process.alive?(one) end)
      assert {:ok, %{output: "1 2 "}} = AshAgent.Session.prompt(session, "Again")
      assert_receive {:asked, two, body}, 5_000
      assert one != two
      assert body =~ "Again"
    end

    test "has nothing of a request before it" do
      test = self()
      kept = start_supervised!({Agent, fn -> nil end})
      [stale | _rest] = pieces(1)

      call =
        "data: " <>
          Context.JSON.encode(%{
            choices: [
              %{
                index: 0,
                finish_reason: "tool_calls",
                delta: %{
                  tool_calls: [
                    %{index: 0, id: "a", function: %{name: "look", arguments: "{}"}}
                  ]
                }
              }
            ]
          }) <> "\n\n"

      # The first request's function is called once more while the second is answered.
      answer = fn pieces, before ->
        fn acc, fun ->
          before.()
          Agent.update(kept, fn _ -> fn -> fun.({:data, stale}, acc) end end)
          {:cont, acc} = fun.({:head, 200, [{"content-type", "text/event-stream"}]}, acc)
          Agent.update(kept, fn _ -> fn -> fun.({:data, stale}, acc) end end)
          {:cont, acc} = fun.({:data, Enum.join(pieces)}, acc)
          {:ok, acc}
        end
      end

      late = fn -> Agent.get(kept, & &1).() end

      llm =
        client(fn
          1 -> answer.([call, "data: [DONE]\n\n"], fn -> :ok end)
          2 -> answer.(tl(pieces(2)), late)
        end)

      hear = fn
        %{event: [_, _, :llm, :delta], metadata: %{events: events}} ->
          for {:text, _, text} <- events, do: send(test, {:heard, text})

        _other ->
          :ok
      end

      assert {:ok, %{output: "2 "}} = run(llm, stream: true, on_event: hear)
      assert [one, one] = asked()
      assert_received {:heard, "2 "}
      refute_received {:heard, _stale}
    end

    test "keeps the pieces that are on their way when its time is over" do
      hear = fn
        %{event: [_, _, :llm, :delta]} -> Process.sleep(30)
        _other -> :ok
      end

      llm = client(fn _number -> pieces(40) end)
      assert {:error, error} = run(llm, stream: true, on_event: hear, llm_timeout: 60)
      assert {:llm_timeout, 60} = error.reason
      assert %{content: "1 2 " <> _} = error.context |> Context.to_messages() |> List.last()
    end
  end

  describe "its connection" do
    # Each list is what a connection is answered.
    defp server(connections) do
      test = self()
      left = start_supervised!({Agent, fn -> connections end})

      WireServer.start(fn connection ->
        send(test, :connected)
        serve(connection, Agent.get_and_update(left, &{hd(&1), tl(&1)}))
      end)
    end

    defp serve(connection, answers) do
      Enum.reduce_while(answers, connection, fn answer, connection ->
        case WireServer.read_request(connection) do
          {:ok, _request} ->
            for bytes <- List.wrap(answer), do: WireServer.write(connection, bytes)
            {:cont, connection}

          _closed ->
            {:halt, connection}
        end
      end)

      WireServer.await_close(connection)
    end

    defp ok(body), do: WireServer.response(200, body, [{"content-type", "application/json"}])

    defp at(server), do: OpenAICompatible.new(model: "m", base_url: server.url)

    test "is one for all requests, and goes to the pool with the end of the run" do
      server = server([[ok(calls(1)), ok(calls(2)), ok(says(%{content: "Done."}))]])
      assert {:ok, %{output: "Done."}} = run(at(server))
      assert_received :connected
      refute_received :connected
      uri = URI.parse(server.url)
      assert Wait.until(fn -> Pool.count(Pool.key(%{uri: uri, ssl: []})) == 1 end)
    end

    test "is another one when the server said something that nobody asked for" do
      # As a server that gives up an idle connection does.
      late = WireServer.response(408, "too late", [{"connection", "close"}])
      server = server([[[ok(calls(1)), late]], [ok(says(%{content: "Done."}))]])

      look = fn _ ->
        # The bytes are there before the next request.
        Process.sleep(50)
        {:ok, "seen"}
      end

      assert {:ok, %{output: "Done."}} = run(at(server), tools: %{look: look})
      assert_received :connected
      assert_received :connected
    end
  end

  test "other models are as before" do
    assert {:ok, %{output: "Hi"}} = run(Scripted.new(["Hi"]))
  end
end
