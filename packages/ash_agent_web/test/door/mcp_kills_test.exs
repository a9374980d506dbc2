defmodule AshAgent.MCP.KillsTest do
  # Our node is killed at each of its steps. The task is known on another node, ends there, and nothing is done twice.
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.{McpKilled, Nodes}

  @moduletag :ex_mcp
  @moduletag :tmp_dir
  @moduletag :capture_log
  @moduletag integrations: ["ex_mcp"]
  @moduletag timeout: 600_000

  # So many steps has a call that nobody kills, more or less: late ones come while nobody waits for them.
  @steps 46

  test("a task outlives the node that had it, whenever that dies", context, do: kill(context, 5))

  test "what one node asked is answered on another, and once over both", %{tmp_dir: folder} do
    ledger = Path.join(folder, "ledger")
    File.write!(ledger, "")

    Nodes.pair(fn call, _nodes ->
      at = &call.(&1, {McpKilled, &2, &3})

      for which <- [:here, :there],
          do: at.(which, :start, [Path.join(folder, "s.db"), ledger, nil])

      ask = &at.(&1, :ask, ["tools/call", &2, %{"elicitation" => %{}}])
      params = %{"name" => "pay", "arguments" => %{}}
      %{"inputRequests" => requests, "requestState" => state} = ask.(:here, params)["result"]
      yes = %{"action" => "accept", "content" => %{"approve" => true}}
      answers = Map.new(requests, fn {id, _request} -> {id, yes} end)
      answer = Map.merge(params, %{"inputResponses" => answers, "requestState" => state})
      both = for which <- [:here, :there], do: Task.async(fn -> ask.(which, answer) end)
      answers = Task.await_many(both, 60_000)
      assert [%{"content" => [%{"text" => "paid"}]}] = for(%{"result" => r} <- answers, do: r)
      assert [words] = for(%{"error" => %{"message" => words}} <- answers, do: words)
      assert words =~ "already been consumed"
      assert File.read!(ledger) == "ada\n"
    end)
  end

  test "a call that may have been carried out is asked about anew, which no earlier answer answers",
       %{tmp_dir: folder} do
    assert kill_at(folder, :effect)
    assert [_first, _anew] = Process.get(:asked)
  end

  # Whoever includes slow tests would get it without ex_mcp as well.
  if Code.ensure_loaded?(ExMCP.HttpPlug) do
    @tag :slow
    test("the same for each step", context, do: kill(context, 1))
  end

  defp kill(%{tmp_dir: folder}, every) do
    died =
      1..@steps
      |> Enum.take_every(every)
      |> Task.async_stream(&kill_at(folder, &1), max_concurrency: 3, timeout: :infinity)
      |> Enum.count(fn {:ok, died?} -> died? end)

    assert died >= div(35, every)
  end

  defp kill_at(folder, nth) do
    path = Path.join(folder, "#{nth}.db")
    ledger = Path.join(folder, "#{nth}.ledger")
    File.write!(ledger, "")

    Nodes.group([:here, :there], fn call, _nodes ->
      ask = fn which, function, arguments ->
        try do
          call.(which, {McpKilled, function, arguments})
        catch
          :exit, _reason -> :dead
        end
      end

      for {which, nth} <- [there: nil, here: nth], do: ask.(which, :start, [path, ledger, nth])
      first = ask.(:here, :ask, ["tools/call", %{"name" => "pay", "arguments" => %{}}])
      id = if first != :dead, do: first["result"]["taskId"]
      ended = if id, do: finish(ask, id)
      died? = ask.(:here, :steps, []) == :dead
      check({ended, File.read!(ledger), died?, ask.(:there, :restless, [])}, nth)
    end)
  end

  # The client polls where it can.
  defp finish(ask, id, times \\ 400) do
    {which, task} =
      case ask.(:here, :ask, ["tasks/get", %{"taskId" => id}]) do
        :dead -> {:there, ask.(:there, :ask, ["tasks/get", %{"taskId" => id}])}
        task -> {:here, task}
      end

    case task["result"] do
      %{"status" => "input_required", "inputRequests" => requests} ->
        # Who reads that it may have been carried out, does not want it again.
        answers =
          Map.new(requests, fn {question, %{"params" => %{"message" => words}}} ->
            yes? = not (words =~ "may have been carried out")
            {question, %{"action" => "accept", "content" => %{"approve" => yes?}}}
          end)

        Process.put(:asked, Enum.uniq([requests | Process.get(:asked, [])]))
        update = &["tasks/update", %{"taskId" => id, "inputResponses" => &1}]

        # An answer that is sent again is not one to the new question.
        before = Process.put(:answers, answers)

        if before != nil and Map.keys(before) != Map.keys(answers) do
          ask.(which, :ask, update.(before))
          task = ask.(which, :ask, ["tasks/get", %{"taskId" => id}])
          unavailable? = match?(%{"error" => %{"code" => -32_603}}, task)
          assert unavailable? or task["result"]["inputRequests"] == requests
        end

        if ask.(which, :ask, update.(answers)) == :dead, do: ask.(:there, :ask, update.(answers))
        finish(ask, id, times - 1)

      %{"status" => status} = ended when status in ~w(completed failed cancelled) ->
        ended

      other when times > 0 ->
        if other == nil, do: assert(task["error"]["code"] == -32_603, inspect(task))
        Process.sleep(50)
        finish(ask, id, times - 1)
    end
  end

  # Whoever has an id has a task that ends, and an effect whose outcome they know. Without one, nobody has approved.
  defp check({nil, ledger, true, _rest}, nth) do
    assert {nth, ledger} == {nth, ""}
    true
  end

  defp check({ended, ledger, died?, {0, 1, true}}, nth) do
    case ended do
      %{"status" => "completed", "result" => %{"content" => [%{"text" => "paid"}]}} ->
        assert {nth, ledger} == {nth, "ada\n"}

      # It was started, and nobody knows more.
      %{
        "status" => "completed",
        "result" => %{"isError" => true, "content" => [%{"text" => words}]}
      } ->
        assert {nth, words, words =~ "unknown"} == {nth, words, true}
        assert ledger in ["", "ada\n"]
    end

    died?
  end
end
