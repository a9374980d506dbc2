defmodule Mix.Tasks.AshAgent.SessionsTest do
  # The shell of Mix is the VM's.
  use ExUnit.Case, async: false

  alias AshAgent.{Context, LLM, Sessions, Store}
  alias AshAgent.TestSupport.MixTask
  alias Mix.Tasks.AshAgent.Sessions, as: Task

  @moduletag :tmp_dir

  setup do: MixTask.hear()

  setup %{tmp_dir: folder} do
    path = Path.join(folder, "agents.db")
    {:ok, store} = Store.SQLite.open(path)
    usage = %{input_tokens: 3, output_tokens: 2}
    again = %{tool_calls: [%{name: "look", arguments: %{}}], usage: usage}
    tools = %{look: fn _ -> {:ok, 1} end}
    llm = LLM.Scripted.new([again, again, %{content: "Done.", usage: usage}])
    opts = [store: store, llm: llm, tools: tools, max_iterations: 1]
    start_supervised!({Sessions, [name: __MODULE__.Mine] ++ opts})
    %{path: path, store: store, mine: "Mix.Tasks.AshAgent.SessionsTest.Mine"}
  end

  defp run(args) do
    {0, said, ""} = MixTask.run(Task, args)
    said
  end

  test "lists, goes on with a greater limit, and cancels", %{path: path, mine: mine, store: store} do
    assert run(["--sessions", mine]) =~ "nothing runs"
    {:error, _too_many} = Sessions.prompt(__MODULE__.Mine, "c", "the question")
    assert run(["--store", path]) =~ "nothing runs"
    assert run(["--store", path, "--all"]) =~ ~r/^idle     c  for \ds, iterations: 2, on /
    refute run(["--store", path, "--all"]) =~ "question"
    assert run(["--sessions", mine, "--all", "--texts"]) =~ "the question"

    prices = path <> ".json"
    File.write!(prices, ~s([{"model": "any", "input": 1000000, "output": 1000000}]))
    File.write!(prices, Context.JSON.encode([%{model: "*", input: 1_000_000, output: 1_000_000}]))

    assert_raise Mix.Error, ~r/c: .*after 1 iterations/, fn ->
      Task.run(["--sessions", mine, "--resume", "c"])
    end

    assert run(["--sessions", mine, "--resume", "c", "--max-iterations", "9"]) == "c: answered\n"
    {:ok, _} = Store.create(store, Context.new("Hi", id: "parked"), status: :parked)
    assert run(["--sessions", mine]) =~ ~r/^parked   parked  /
    assert run(["--sessions", mine, "--pause", "c"]) == "c: done\n"
    assert run(["--sessions", mine, "--cancel", "c"]) == "c: done\n"

    assert_raise Mix.Error, ~r/none: /, fn ->
      Task.run(["--sessions", mine, "--cancel", "none"])
    end
  end

  test "refuses wrong arguments", %{path: path, mine: mine} do
    for {args, words} <- [
          {[], "expected --store or --sessions"},
          {["--store", path, "--sessions", mine], "expected --store or --sessions"},
          {["c"], "expected --store or --sessions"},
          {["--store", path, "--pause", "c"], "a store alone runs nothing"},
          {["--sessions", mine, "--pause", "c", "--cancel", "c"], "at a time"},
          {["--sessions", mine, "--what"], "wrong option --what"},
          {["--store", path <> "x"], "there is no such file"}
        ],
        do: assert_raise(Mix.Error, ~r/#{words}/, fn -> Task.run(args) end)
  end
end
