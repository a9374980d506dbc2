defmodule Mix.Tasks.AshAgent.EvalTest do
  # The shell of Mix is the VM's.
  use ExUnit.Case, async: false

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.Store
  alias AshAgent.Test.EvalAttempts
  alias AshAgent.TestSupport.MixTask
  alias Mix.Tasks.AshAgent.Eval

  @moduletag :tmp_dir

  setup do: MixTask.hear()

  setup %{tmp_dir: folder} do
    # The agent does what a file says, so that it can change between two runs.
    File.write!(Path.join(folder, "cases.jsonl"), """
    {"id": "sum", "input": "2 + 2", "expected": "4"}
    {"id": "name", "input": "Who?", "expected": "Ann", "calls": ["look"]}
    """)

    file = Path.join(folder, "demo.exs")

    File.write!(file, """
    answers = fn -> #{inspect(Path.join(folder, "answers.json"))} |> File.read!() |> AshAgent.Context.JSON.decode!() end

    [
      cases: "cases.jsonl",
      repetitions: 2,
      prices: [%{model: :any, input: 1_000_000, output: 1_000_000}],
      run: fn one ->
        File.write!(#{inspect(Path.join(folder, "asked"))}, one["id"] <> "\\n", [:append])

        case answers.()[one["id"]] do
          "raise" -> raise "oh"
          "down" -> AshAgent.Runtime.run(AshAgent.Context.new("Hi"), llm: fn _ -> {:error, :overloaded} end)
          "crash" -> System.halt(0)
          answer ->
            call = %{tool_calls: [%{name: "look"}]}
            script = if one["calls"], do: [call], else: []
            answer = %{content: answer, usage: %{input_tokens: 3, output_tokens: 2}}
            llm = AshAgent.LLM.Scripted.new(script ++ [answer])
            AshAgent.Runtime.run(AshAgent.Context.new(one["input"]), llm: llm, tools: %{look: fn _ -> {:ok, 1} end})
        end
      end
    ]
    """)

    %{script: file, results: Path.join(folder, "demo.results.json")}
  end

  defp answer(folder, answers),
    do: File.write!(Path.join(folder, "answers.json"), JSON.encode(answers))

  defp run(args), do: MixTask.run(Eval, args)

  defp asked(folder), do: folder |> Path.join("asked") |> File.read!() |> String.split()

  test "shows a table, writes results, and names the cases that turned", %{
    script: file,
    results: results,
    tmp_dir: folder
  } do
    answer(folder, %{"sum" => "4", "name" => "Bob"})
    assert {0, table, ""} = run([file])
    assert table =~ ~r/case +passed +pass\^1 +pass\^2 +tokens +cost +time\n/
    assert table =~ ~r/sum +2\/2 +1.00 +1.00 +10 +\$0.0000 +\d+\.\d s\n/
    assert table =~ ~r/name +0\/2 +0.00 +0.00/
    assert table =~ ~r/all +2\/4 +0.50 +0.50 +20/
    assert table =~ ~s(name: answered "Bob")

    assert %{"cases" => [%{"case" => "sum", "passed" => 2}, _], "all" => %{"tokens" => 20}} =
             JSON.decode!(File.read!(results))

    refute File.exists?(Path.join(folder, "demo.partial.jsonl"))

    answer(folder, %{"sum" => "5", "name" => "Ann"})
    assert {1, table, errors} = run([file])
    assert table =~ ~r/sum .*passed before\n/ and table =~ ~r/name .*failed before\n/
    assert errors =~ "sum passed before"

    # What failed before fails again, which is not news.
    assert {0, _table, ""} = run([file])
    assert {1, _table, errors} = run([file, "--fail-under", "0.6"])
    assert errors =~ "pass^1 is 0.5, less than 0.6"
  end

  for kind <- [:file, :store] do
    test "goes on where it was interrupted, but not with cases that changed: #{kind}", %{
      script: file,
      tmp_dir: folder
    } do
      answer(folder, %{"sum" => "4", "name" => "Ann"})
      assert {0, _table, _errors} = run([file, "--out", Path.join(folder, "other.json")])
      [sum, name] = for id <- ["sum", "name"], do: Enum.count(asked(folder), &(&1 == id))
      assert {sum, name} == {2, 2}
      File.rm!(Path.join(folder, "asked"))
      {place, args} = place(unquote(kind), folder)

      # As an interrupted run left it.
      for {id, repetition} <- [{"sum", 1}, {"sum", 2}, {"name", 1}] do
        attempt = %{case: id, repetition: repetition, score: 1, passed: true, words: nil}
        attempt = Map.merge(attempt, %{tokens: 7, cost: 1, ms: 1})
        hash = if id == "name", do: "another", else: hash(folder, id)
        context = Context.new("Hi") |> Context.add_assistant_message("Hello!")
        :ok = EvalAttempts.keep(place, attempt, hash, context)
      end

      if unquote(kind) == :file,
        do: File.write!(elem(place, 1), ~s({"case":"name","repe), [:append])

      assert {0, table, errors} = run([file | args])
      assert errors =~ "goes on after 2 attempts"
      assert table =~ ~r/sum +2\/2 +1.00 +1.00 +14/
      assert Enum.sort(asked(folder)) == ["name", "name"]
      # What has ended is not gone on with.
      assert EvalAttempts.read(place, %{"sum" => hash(folder, "sum")}) == {:ok, []}
    end
  end

  for kind <- [:file, :store] do
    test "makes attempts again that ended with an outage, and writes no results before: #{kind}",
         %{
           script: file,
           results: results,
           tmp_dir: folder
         } do
      {_place, args} = place(unquote(kind), folder)

      for _ <- 1..2 do
        answer(folder, %{"sum" => "4", "name" => "down"})
        assert {1, table, errors} = run([file | args])
        assert table =~ ~r/sum +2\/2 +1.00/
        assert table =~ ~r/name +0\/0 +- +.*outages: 2/
        assert table =~ ~r/all +2\/2 +1.00/
        assert errors =~ "2 attempts ended with an outage"
        refute File.exists?(results)
      end

      File.rm!(Path.join(folder, "asked"))
      answer(folder, %{"sum" => "4", "name" => "Ann"})
      assert {0, table, _errors} = run([file | args])
      assert table =~ ~r/name +2\/2 +1.00/
      assert Enum.sort(asked(folder)) == ["name", "name"]
      assert File.exists?(results)
    end
  end

  defp place(:file, folder), do: {{:file, Path.join(folder, "demo.partial.jsonl")}, []}

  defp place(:store, folder) do
    path = Path.join(folder, "attempts.db")
    {:ok, store} = Store.SQLite.open(path)
    {{:store, store, "demo.exs"}, ["--store", path]}
  end

  defp hash(folder, id) do
    lines = folder |> Path.join("cases.jsonl") |> File.read!() |> String.split("\n")
    one = lines |> Enum.find(&(&1 =~ id)) |> JSON.decode!()

    hash = :crypto.hash(:sha256, :erlang.term_to_binary(one, [:deterministic]))
    hash |> binary_part(0, 12) |> Base.url_encode64()
  end

  test "an attempt is kept in the store with its conversation until all have ended, those of other evaluations stay",
       %{script: file, tmp_dir: folder} do
    {{:store, store, _name}, args} = place(:store, folder)
    attempt = %{case: "a", repetition: 1, score: 1, passed: true, tokens: 1, cost: 1, ms: 1}
    context = Context.new("Hi", id: "mine")
    :ok = EvalAttempts.keep({:store, store, "other.exs"}, attempt, "h", context)
    # Neither an attempt that comes twice nor one without a conversation is a failure.
    :ok = EvalAttempts.keep({:store, store, "other.exs"}, attempt, "h", context)
    :ok = EvalAttempts.keep({:store, store, "other.exs"}, %{attempt | repetition: 2}, "h", nil)

    # What `:max_cost` stops goes on at the next run.
    limited = "repetitions: 2, max_cost: 1, concurrency: 1"
    File.write!(file, String.replace(File.read!(file), "repetitions: 2", limited))
    answer(folder, %{"sum" => "4", "name" => "Ann"})
    assert {0, _table, errors} = run([file | args])
    assert errors =~ "stopped at :max_cost"

    {:ok, %{conversations: kept}} = Store.list(store, metadata: %{"ash_agent_eval" => "demo.exs"})
    assert [%{id: id} | _] = kept
    assert {:ok, %{value: context}} = Store.fetch(store, id)
    assert Context.to_prompt(context) =~ "2 + 2"

    assert {:ok, [_, _]} = EvalAttempts.read({:store, store, "other.exs"}, %{"a" => "h"})
  end

  test "takes chosen cases, and writes the conversations that did not pass", %{
    script: file,
    results: results,
    tmp_dir: folder
  } do
    answer(folder, %{"sum" => "4", "name" => "Bob"})
    talks = Path.join(folder, "talks")

    opts = ~w(--only name --repetitions 1 --json --conversations)
    assert {0, json, ""} = run([file] ++ opts ++ [talks])
    assert %{"cases" => [%{"case" => "name", "attempts" => 1}]} = JSON.decode!(json)
    refute File.exists?(results)
    assert [talk] = File.ls!(talks)

    context = talks |> Path.join(talk) |> File.read!() |> Context.load!()
    assert Context.count_iterations(context) == 2
  end

  test "an attempt that raises has failed, and the others go on", %{script: file, tmp_dir: folder} do
    answer(folder, %{"sum" => "raise", "name" => "Ann"})
    assert {0, table, ""} = run([file])
    assert table =~ "sum: RuntimeError: oh"
    assert table =~ ~r/name +2\/2/
  end

  test "a file that returns something else is told what to return", %{script: file} do
    run = "fn _ -> AshAgent.Context.new(\"Hi\") end"

    for {text, words} <- [
          {":ok", "it ends with :ok"},
          {"", "it ends with nil"},
          {"defmodule AshAgent.EvalTest.Empty do end", "it ends with a tuple of 4 elements"},
          {"fn -> [] end", "it ends with a function of arity 0"},
          {"[%{\"input\" => \"Hi\"}]", "it ends with a list"},
          {"AshAgent.Context.new(\"Hi\")", "it ends with a %AshAgent.Context{}"},
          {"AshAgent.Test.Eval.run(cases: [], run: #{run})",
           "leave out the call of AshAgent.Test.Eval.run/2"},
          {"[run: #{run}]", "required option :cases not given"},
          {"[cases: [%{}]]", "required option :run not given"},
          {"%{\"cases\" => [], \"run\" => #{run}}", "it ends with a map"},
          {"[cases: [%{}], run: #{run}, scorer: nil]", "scorer"},
          {"[cases: [5], run: #{run}]", "case 1 is not a map"},
          {"[cases: %{}, run: #{run}]", "cases"}
        ] do
      File.write!(file, text)
      error = assert_raise Mix.Error, fn -> Eval.run([file]) end
      assert error.message =~ file
      assert error.message =~ words
    end
  end

  test "refuses wrong files and options", %{script: file, tmp_dir: folder} do
    for {args, words} <- [
          {[], "usage:"},
          {["none.exs"], "is not a file"},
          {[file, "--color"], "wrong option --color"},
          {[file, "--against", Path.join(folder, "none.json")], "is not there"},
          {[file, "--against", file], "results of an evaluation"},
          {[file, "--only", "other"], "there is no case other"}
        ] do
      assert_raise Mix.Error, ~r/#{Regex.escape(words)}/, fn -> Eval.run(args) end
    end

    File.write!(Path.join(folder, "cases.jsonl"), "[]\n")
    assert_raise Mix.Error, ~r/cases.jsonl:1: expected a JSON object/, fn -> Eval.run([file]) end
  end
end
