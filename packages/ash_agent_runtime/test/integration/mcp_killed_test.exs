if Code.ensure_loaded?(ExMCP.Client) do
  defmodule AshAgent.Integration.MCPKilledTest do
    # Our node, or the server, is killed in every state of a call: under way, its task asked about, its question open, its answer given. The
    # server counts what it carries out, and keeps its tasks.
    use ExUnit.Case, async: false

    alias AshAgent.TestSupport.{KilledMcp, McpHttp, Nodes}

    @moduletag :mcp
    @moduletag :tmp_dir
    @moduletag integrations: ["ex_mcp"]
    @moduletag timeout: 1_200_000

    @states [:called, :task, :polled, :asked, :answered, :task_asked, :updated]
    # Where nothing else may be: whatever was killed, the result is there.
    @certain [:polled, :asked, :task_asked, :updated]

    @form %{
      "message" => "How many?",
      "requestedSchema" => %{
        "type" => "object",
        "properties" => %{"seats" => %{"type" => "integer"}},
        "required" => ["seats"]
      }
    }
    @questions %{"q" => %{"method" => "elicitation/create", "params" => @form}}
    @done %{"content" => [%{"type" => "text", "text" => "PAID"}]}

    defp answer(db, test) do
      modern =
        McpHttp.modern(fn
          %{"method" => "tools/list"}, _ ->
            schema = %{"type" => "object", "properties" => %{"id" => %{"type" => "string"}}}
            {:result, %{"tools" => [%{"name" => "pay", "inputSchema" => schema}]}}

          %{"method" => "tools/call", "params" => params}, _ ->
            id = params["arguments"]["id"]
            count(db, {:sent, id})
            [state | _] = String.split(id, " ")
            call(String.to_existing_atom(state), id, params, db, test)

          %{"method" => "tasks/get", "params" => %{"taskId" => id}}, _ ->
            get(Agent.get(db, & &1[{:task, id}]), id, test)

          %{"method" => "tasks/update", "params" => %{"taskId" => id} = params}, _ ->
            %{"q" => %{"action" => "accept", "content" => %{"seats" => 2}}} =
              params["inputResponses"]

            Agent.update(db, &Map.put(&1, {:task, id}, due()))
            tell(test, :updated, id)
            {:result, %{}}

          %{"method" => "initialize"}, _ ->
            {:error, %{"code" => -32_601, "message" => "Method not found"}}

          _other, _ ->
            {:result, %{}}
        end)

      tasks = %{"extensions" => %{"io.modelcontextprotocol/tasks" => %{}}}

      fn message, headers ->
        with {:result, %{"capabilities" => own} = result} <- modern.(message, headers),
             do: {:result, %{result | "capabilities" => Map.merge(own, tasks)}}
      end
    end

    defp count(db, key), do: Agent.update(db, &Map.update(&1, key, 1, fn n -> n + 1 end))
    defp due, do: System.monotonic_time(:millisecond) + 700

    # Every answer of the server may be late, so that it, or whoever waits for it, can be killed.
    defp tell(test, state, id) do
      send(test, {state, id})
      Process.sleep(200)
    end

    defp call(:called, id, _params, db, test) do
      count(db, {:done, id})
      tell(test, :called, id)
      {:result, @done}
    end

    defp call(state, id, params, db, test) when state in [:asked, :answered] do
      if params["inputResponses"] do
        %{"q" => %{"action" => "accept", "content" => %{"seats" => 2}}} = params["inputResponses"]
        ^id = params["requestState"]
        count(db, {:done, id})
        tell(test, :answered, id)
        {:result, @done}
      else
        tell(test, :asked, id)
        asked = %{"resultType" => "input_required", "inputRequests" => @questions}
        {:result, Map.put(asked, "requestState", id)}
      end
    end

    defp call(state, id, _params, db, test) do
      count(db, {:done, id})
      task = if state in [:task, :polled], do: due(), else: :asks
      Agent.update(db, &Map.put(&1, {:task, id}, task))
      tell(test, :task, id)
      {:result, Map.put(task(id, "working"), "resultType", "task")}
    end

    defp get(:asks, id, test) do
      tell(test, :task_asked, id)
      {:result, Map.put(task(id, "input_required"), "inputRequests", @questions)}
    end

    defp get(due, id, test) do
      tell(test, :polled, id)

      if System.monotonic_time(:millisecond) < due,
        do: {:result, task(id, "working")},
        else: {:result, Map.put(task(id, "completed"), "result", @done)}
    end

    defp task(id, status) do
      now = "2026-01-01T00:00:00Z"
      own = %{"taskId" => id, "status" => status, "createdAt" => now, "lastUpdatedAt" => now}
      Map.merge(own, %{"ttlMs" => 3_600_000, "pollIntervalMs" => 100})
    end

    defp start_node(path, url) do
      {peer, _node} = Nodes.start(:killed_mcp)
      :peer.call(peer, KilledMcp, :start, [path, url], 60_000)
      peer
    end

    defp ask(peer, function, args), do: :peer.call(peer, KilledMcp, function, args, 60_000)

    defp until(fun, left \\ 600)
    defp until(_fun, 0), do: flunk("it does not end")
    defp until(fun, left), do: fun.() || (Process.sleep(50) && until(fun, left - 1))

    defp kill(:node, %{peer: peer} = world) do
      Nodes.kill(ask(peer, :os_pid, []))
      %{world | peer: start_node(world.path, world.url)}
    end

    defp kill(:server, %{server: server} = world) do
      Process.exit(server, :kill)
      Process.sleep(300)
      %{world | server: McpHttp.start_at(world.port, world.answer)}
    end

    test "nothing is lost, and nothing is twice", %{tmp_dir: folder} do
      rounds =
        for {state, n} <- Enum.with_index([:called, :polled, :asked, :answered, :updated]),
            do: {state, Enum.at([:node, :server], rem(n, 2)), 1}

      kill_all(rounds, folder)
    end

    @tag :slow
    test "28 kills", %{tmp_dir: folder} do
      kill_all(
        for(n <- 1..2, victim <- [:node, :server], state <- @states, do: {state, victim, n}),
        folder
      )
    end

    defp kill_all(rounds, folder) do
      {:ok, db} = Agent.start_link(fn -> %{} end)
      port = 20_000 + :rand.uniform(20_000)
      answer = answer(db, self())
      {path, url} = {Path.join(folder, "store.db"), "http://127.0.0.1:#{port}/mcp"}

      world = %{
        port: port,
        url: url,
        path: path,
        answer: answer,
        server: McpHttp.start_at(port, answer)
      }

      world = Map.put(world, :peer, start_node(path, url))

      world =
        for {state, victim, n} = round <- rounds, reduce: world do
          world ->
            id = "#{state} #{victim} #{n}"
            :ok = ask(world.peer, :prompt, [id])
            person = watch(world.peer, state, id)
            assert_receive {^state, ^id}, 60_000
            # A question is open when it is stored.
            if state == :asked, do: until(fn -> ask(world.peer, :paused?, [id]) end)
            Task.shutdown(person, :brutal_kill)
            if n > 1, do: Process.sleep(:rand.uniform(250))
            world = kill(victim, world)
            ended = until(fn -> ask(world.peer, :look, [id]) end)
            check(round, id, ended, Agent.get(db, & &1))
            world
        end

      :peer.stop(world.peer)
      Process.exit(world.server, :kill)
    end

    # The person answers meanwhile, where the state is behind a question.
    defp watch(peer, state, id) when state in [:answered, :updated] do
      Task.async(fn -> until(fn -> ask(peer, :look, [id]) end) end)
    end

    defp watch(_peer, _state, _id), do: Task.async(fn -> :ok end)

    defp check({state, _victim, _n} = round, id, {:ended, status, attempts, texts}, db) do
      done = Map.get(db, {:done, id}, 0)
      assert {round, done} == {round, 1}

      assert {round, status} in [
               {round, :ok},
               {round, if(state in @certain, do: :ok, else: :unknown)}
             ]

      paid = length(String.split(texts, "PAID")) - 1
      assert {round, paid} == {round, if(status == :ok, do: 1, else: 0)}
      # The journal has each call that the server got, and no other one.
      assert {round, length(attempts)} == {round, db[{:sent, id}]}
      refute Enum.any?(attempts, &(&1.state == :started))
    end
  end
end
