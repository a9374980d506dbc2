defmodule Mix.Tasks.AshAgent.Eval do
  @shortdoc "Runs an evaluation of an agent"

  @moduledoc """
  Runs an evaluation: cases, each several times, scored, with their tokens, money and time.

      mix ash_agent.eval evals/refund.exs
      mix ash_agent.eval evals/refund.exs --repetitions 5 --concurrency 8
      mix ash_agent.eval evals/refund.exs --against main.json --fail-under 0.9

  The last expression of FILE is the evaluation, see `AshAgent.Test.Eval`. The application is started first.

  Results are written beside FILE, here to `evals/refund.results.json`, and compared with those that were there before: cases that
  turned are named. Each attempt is kept as it ends, in `evals/refund.partial.jsonl` or, with its conversation, in a store. If the run is
  interrupted, the next one goes on from there; attempts of cases that have changed since run again.

  Attempts that end with an outage are counted apart. While there are any, the results are not written, and the next run makes these again.

  The exit status is 1 if a case that passed before fails now, if there were outages, or if `--fail-under` is not reached, so that CI can use it.

  ## Options

    * `--repetitions NUMBER`, `--concurrency NUMBER` - instead of those of the evaluation.
    * `--only ID` - runs this case alone; may be given several times. The results are not written.
    * `--out FILE` - where the results go.
    * `--against FILE` - the results to compare with. Defaults to those that are replaced.
    * `--fail-under RATE` - the least pass^1 of all cases together.
    * `--conversations FOLDER` - writes the conversations of attempts that did not pass there, for `mix ash_agent.trace`.
    * `--store STORE` - keeps the attempts in this store instead of a file, until all have ended, so that the run may go on on another
      machine: the path of a SQLite file, which need not be there, or what `mix ash_agent.trace` takes. They are found by the name of FILE, and by
      `mix ash_agent.trace` by their ids, `ash_agent_eval/...`.
    * `--json` - prints the results as JSON.
    * `--fresh` - does not go on with an interrupted run.
  """

  use Mix.Task

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.{Options, Store}
  alias AshAgent.Test.{Eval, EvalAttempts, EvalReport}
  alias Mix.AshAgent.Sources

  @requirements ["app.config"]

  @options [repetitions: :integer, concurrency: :integer, only: :keep, fail_under: :float] ++
             for(name <- ~w(out against conversations store)a, do: {name, :string}) ++
             [json: :boolean, fresh: :boolean]

  @usage "usage: mix ash_agent.eval FILE.exs, with [--repetitions NUMBER] [--concurrency NUMBER] [--only ID] [--out FILE] " <>
           "[--against FILE] [--fail-under RATE] [--conversations FOLDER] [--store STORE] [--json] [--fresh]"

  @impl true
  def run(args) do
    case OptionParser.parse(args, strict: @options) do
      {opts, [file], []} -> evaluate(file, opts)
      {_opts, _files, [{option, _value} | _]} -> Mix.raise("wrong option #{option}; #{@usage}")
      {_opts, _files, []} -> Mix.raise("expected one file; #{@usage}")
    end
  end

  defp evaluate(file, opts) do
    unless File.regular?(file), do: Mix.raise("#{file} is not a file; #{@usage}")
    # The results to compare with must be there before the application starts.
    before = read_before(file, opts)
    Mix.Task.run("app.start")

    {evaluation, _binding} = Code.eval_file(file)
    given = Keyword.take(opts, [:repetitions, :concurrency])
    evaluation = evaluation |> check(file) |> Keyword.merge(given) |> load_cases(file)
    hashes = Map.new(Eval.number(evaluation[:cases]), fn {id, one} -> {id, hash(one)} end)
    evaluation = select(evaluation, Keyword.get_values(opts, :only))

    # Attempts at chosen cases are neither kept nor taken.
    place = if Keyword.get_values(opts, :only) == [], do: place(file, opts[:store])
    if opts[:fresh], do: place |> EvalAttempts.clear() |> Sources.ok!()
    earlier = place |> EvalAttempts.read(hashes) |> Sources.ok!()

    if earlier != [],
      do: Mix.shell().error("goes on after #{length(earlier)} attempts of an interrupted run")

    keep = fn attempt, context ->
      place |> EvalAttempts.keep(attempt, hashes[attempt.case], context) |> Sources.ok!()
      keep_conversation(attempt, context, opts[:conversations])
    end

    {state, attempts} = Eval.run(evaluation, earlier: earlier, on_attempt: keep)
    report = EvalReport.summarize(attempts)
    show(report, attempts, before, file, opts)

    outages = Enum.count(attempts, & &1.outage)

    again =
      "attempts ended with an outage, which says nothing about the agent; the next run makes them again"

    cond do
      state == :stopped ->
        Mix.shell().error("stopped at :max_cost; the next run goes on from here")

      outages > 0 ->
        Mix.shell().error("#{outages} #{again}")

      true ->
        finish(place, report, attempts, file, opts)
    end

    exit_status(report, outages, before, opts)
  end

  defp check(evaluation, file) do
    expected =
      "#{file} has to end with an evaluation, such as `[cases: [%{\"input\" => \"1 + 1?\", \"expected\" => \"2\"}], run: fn %{\"input\" => input} -> " <>
        "AshAgent.Runtime.run(AshAgent.Context.new(input), llm: llm) end]`; "

    map? = is_map(evaluation) and not is_struct(evaluation)
    options? = Keyword.keyword?(if map?, do: Map.to_list(evaluation), else: evaluation)

    cond do
      match?({state, attempts} when state in [:ok, :stopped] and is_list(attempts), evaluation) ->
        Mix.raise(
          expected <> "leave out the call of AshAgent.Test.Eval.run/2, which the task makes"
        )

      not options? ->
        Mix.raise(expected <> "it ends with #{Options.kind(evaluation)}")

      true ->
        evaluation = Eval.validate!(evaluation)
        if is_list(evaluation[:cases]), do: Eval.number(evaluation[:cases])
        evaluation
    end
  rescue
    error in ArgumentError -> Mix.raise("#{file}: #{Exception.message(error)}")
  end

  defp load_cases(evaluation, file) do
    with name when is_binary(name) <- evaluation[:cases],
         path = Path.expand(name, Path.dirname(file)),
         do: Keyword.put(evaluation, :cases, path |> read!() |> decode_cases(path)),
         else: (_cases -> evaluation)
  end

  defp decode_cases(text, path) do
    for {line, number} <- text |> String.split("\n") |> Enum.with_index(1),
        String.trim(line) != "" do
      case JSON.decode(line) do
        {:ok, %{} = one} -> one
        _other -> Mix.raise("#{path}:#{number}: expected a JSON object")
      end
    end
  end

  defp select(evaluation, []), do: evaluation

  defp select(evaluation, ids) do
    chosen =
      for {id, one} <- Eval.number(evaluation[:cases]), id in ids, do: Map.put(one, "id", id)

    if chosen == [], do: Mix.raise("there is no case #{Enum.join(ids, ", ")}")
    Keyword.put(evaluation, :cases, chosen)
  end

  # A case that was changed is another one.
  defp hash(one) do
    bytes = :erlang.term_to_binary(one, [:deterministic])
    :crypto.hash(:sha256, bytes) |> binary_part(0, 12) |> Base.url_encode64()
  end

  defp read_before(file, opts) do
    path = opts[:against] || out(file, opts)

    with {:ok, text} <- File.read(path),
         {:ok, rows} <- EvalReport.decode(text) do
      rows
    else
      {:error, :enoent} ->
        if opts[:against], do: Mix.raise("#{path} is not there")

      {:error, reason} when is_atom(reason) ->
        Mix.raise("#{path} cannot be read: #{:file.format_error(reason)}")

      {:error, words} ->
        Mix.raise("#{path}: #{words}")
    end
  end

  defp out(file, opts), do: opts[:out] || Path.rootname(file) <> ".results.json"

  defp read!(path) do
    case File.read(path) do
      {:ok, text} -> text
      {:error, reason} -> Mix.raise("#{path} cannot be read: #{:file.format_error(reason)}")
    end
  end

  defp keep_conversation(%{passed: passed?}, context, folder)
       when passed? or context == nil or folder == nil,
       do: :ok

  defp keep_conversation(attempt, context, folder) do
    File.mkdir_p!(folder)
    name = String.replace("#{attempt.case}-#{attempt.repetition}", ~r/[^\w.-]/, "_")
    File.write!(Path.join(folder, name <> ".json"), Context.to_snapshot(context))
  end

  defp show(report, attempts, before, file, opts) do
    if opts[:json],
      do: Mix.shell().info(EvalReport.encode(Path.basename(file), report, attempts)),
      else: Mix.shell().info(EvalReport.table(report, before))
  end

  defp finish(nil, _report, _attempts, _file, _opts), do: :ok

  defp finish(place, report, attempts, file, opts) do
    File.write!(out(file, opts), EvalReport.encode(Path.basename(file), report, attempts))
    place |> EvalAttempts.clear() |> Sources.ok!()
  end

  defp place(file, nil), do: {:file, Path.rootname(file) <> ".partial.jsonl"}

  defp place(file, text) do
    new_file? = not Sources.store?(text) and not File.exists?(text)
    open = fn -> Sources.open_store(text, "--store ") end
    store = if new_file?, do: Sources.ok!(Store.SQLite.open(text)), else: open.()
    {:store, store, Path.basename(file)}
  end

  defp exit_status({rows, total}, outages, before, opts) do
    worse = if before, do: EvalReport.compare(rows, before).worse, else: []
    for id <- worse, do: Mix.shell().error("#{id} passed before")
    rate = if total, do: List.first(total.pass, 0.0), else: 0.0

    low? = opts[:fail_under] != nil and rate < opts[:fail_under]
    words = "pass^1 is #{Float.round(rate, 3)}, less than #{opts[:fail_under]}"
    if low?, do: Mix.shell().error(words)
    if worse != [] or low? or outages > 0, do: exit({:shutdown, 1})
  end
end
