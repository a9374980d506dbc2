defmodule AshAgent.Soak.Report do
  @moduledoc "The tables and the verdict, for people and as Markdown."

  alias AshAgent.Soak.{Faults, Histogram, Memory, Schedules, Witnesses}

  # The package makes none of data. Modules that are loaded late bring some.
  @allowed_atoms 500

  @doc "Prints the report; whether everything is as it should be."
  def print(run, options) do
    tables = [operations(run), memory(run), schedules(run)]
    criteria = criteria(run)
    failed = for {false, text} <- criteria, do: text
    IO.puts("")
    for {title, rows} <- tables, do: IO.puts([title, "\n\n", plain(rows), "\n"])

    for {ok?, text} <- criteria,
        do: IO.puts([if(ok?, do: "  ok      ", else: "  FAILED  "), text])

    for text <- Faults.texts(), do: IO.puts(:stderr, "\n" <> text)

    if options.markdown,
      do: File.write!(options.markdown, markdown(run, options, tables, criteria))

    IO.puts(
      if failed == [],
        do: "\nPassed.",
        else: "\nFAILED: #{length(failed)} of #{length(criteria)}."
    )

    failed == []
  end

  # ---- tables: a title, and rows of texts with the heading first

  defp operations(run) do
    statistics = Histogram.statistics(run.histogram)
    calls = statistics |> Enum.map(& &1.count) |> Enum.sum()
    seconds = run.rounds |> Enum.map(&(&1.work.seconds + &1.calm.seconds)) |> Enum.sum()
    steps = run.rounds |> Enum.map(&(&1.work.steps + &1.calm.steps)) |> Enum.sum()

    rows =
      for row <- statistics do
        [
          "#{row.name}",
          number(row.count),
          number(row.refused),
          us(row.p50),
          us(row.p99),
          us(row.longest)
        ]
      end

    sizes = hd(run.rounds).sizes

    title =
      "Conversations of #{mb(sizes.all)} MB in all, the middle one of #{number(sizes.middle / 1024)} KB, " <>
        "the largest of #{mb(sizes.largest)} MB. #{number(calls)} calls in #{number(steps)} steps, in #{round(seconds)} s of work: " <>
        "#{number(calls / seconds)} calls a second. Times in microseconds, waiting for a scheduler included."

    {title, [["call", "calls", "refused", "p50", "p99", "longest"] | rows]}
  end

  defp memory(run) do
    first = hd(run.rounds)
    last = List.last(run.rounds)

    columns = [
      run.start,
      first.filled,
      first.worked,
      first.empty,
      last.filled,
      last.worked,
      last.empty
    ]

    rows =
      for {name, key} <- [
            {"resident", :resident},
            {"Erlang's in all", :beam},
            {"its binaries", :binaries},
            {"its processes", :processes}
          ],
          do: [name | Enum.map(columns, &mb(&1[key]))]

    counts =
      for {name, key} <- [{"contexts", :contexts}, {"atoms", :atoms}, {"processes", :running}],
          do: [name | Enum.map(columns, &number(&1[key]))]

    heading =
      ["", "start"] ++
        for round <- ["round 1", "round #{length(run.rounds)}"],
            when_ <- ["filled", "worked", "empty"],
            do: "#{round} #{when_}"

    {"Memory in MB.", [heading | rows ++ counts]}
  end

  defp schedules(run) do
    rows =
      for {name, key} <- [
            {"all workers", :work},
            {"control", :control},
            {"few workers", :calm},
            {"their control", :calm_control}
          ] do
        held = held(run, key)

        [
          name,
          number(held.events),
          decimal(60 * held.events / held.seconds),
          held.longest |> elem(0) |> number(),
          held.longest |> elem(1) |> place(),
          number(held.steps / held.seconds),
          percent(held.busy / held.seconds),
          percent(held.dirty / held.seconds)
        ]
      end

    heading = [
      "",
      "held for 1 ms",
      "a minute",
      "longest, ms",
      "up to",
      "steps a second",
      "normal busy",
      "dirty busy"
    ]

    {"Normal schedulers held for 1 ms or longer, without the first round.", [heading | rows]}
  end

  defp place({module, name, arity}), do: Exception.format_mfa(module, name, arity)
  defp place(_unknown), do: "?"

  defp held(run, key) do
    phases = run.rounds |> tl() |> Enum.map(& &1[key])

    %{
      events: phases |> Enum.map(& &1.held) |> Enum.sum(),
      longest: phases |> Enum.flat_map(& &1.longest) |> Enum.max(fn -> {0, :undefined} end),
      steps: phases |> Enum.map(& &1.steps) |> Enum.sum(),
      seconds: phases |> Enum.map(& &1.seconds) |> Enum.sum(),
      busy: phases |> Enum.map(& &1.busy.normal) |> Enum.sum(),
      dirty: phases |> Enum.map(& &1.busy.dirty) |> Enum.sum()
    }
  end

  # ---- the verdict

  defp criteria(run) do
    empty = Enum.map(run.rounds, & &1.empty)
    lost = empty |> Enum.map(& &1.lost) |> Enum.max()
    atoms = List.last(empty).atoms - hd(empty).atoms
    changed = Faults.count(:changed)

    [
      {changed == 0,
       "#{number(Witnesses.checks())} looks at kept contexts found #{changed} changed"},
      {Faults.count(:unexpected) == 0, "#{Faults.count(:unexpected)} unexpected answers"},
      {Faults.count(:logged) == 0, "#{Faults.count(:logged)} errors logged"},
      {lost <= 0, "#{max(lost, 0)} contexts alive that nobody has"},
      grown(
        run,
        "resident memory with the pool filled",
        Enum.map(run.rounds, & &1.filled),
        :resident
      ),
      grown(run, "Erlang's memory with all released", empty, :beam),
      {atoms <= @allowed_atoms, "#{atoms} atoms made (#{@allowed_atoms} allowed)"},
      held_more(run)
    ]
  end

  defp held_more(run) do
    [work, control] =
      for key <- [:calm, :calm_control],
          do: for(%{^key => phase} <- tl(run.rounds), do: {phase.held, phase.seconds})

    %{excess: excess, chance: chance} = Schedules.excess(work, control)

    {excess <= chance,
     "few workers held schedulers for 1 ms #{decimal(excess)} times a minute more than their control " <>
       "(up to #{decimal(chance)} may be chance)"}
  end

  defp grown(run, name, measured, key) do
    %{first: first, last: last, allowed: allowed, between: between} = Memory.growth(measured, key)
    calls = between * Histogram.count(run.histogram)

    {last - first <= allowed,
     "#{name} went from #{mb(first)} to #{mb(last)} MB (#{mb(allowed)} MB more allowed: " <>
       "#{number(100 * allowed / calls)} bytes for one call of a hundred)"}
  end

  # ---- how it looks

  defp plain(rows) do
    widths =
      for column <- Enum.zip(rows),
          do: column |> Tuple.to_list() |> Enum.map(&String.length/1) |> Enum.max()

    for row <- rows do
      [first | rest] = Enum.zip(row, widths)
      cells = for {text, width} <- rest, do: ["  ", String.pad_leading(text, width)]
      ["  ", pad(first), cells, "\n"]
    end
  end

  defp pad({text, width}), do: String.pad_trailing(text, width)

  defp markdown(run, options, tables, criteria) do
    [
      "`bin/soak --minutes #{minutes(options.minutes)} --seed #{options.seed} --workers #{options.workers} ",
      "--sessions #{options.sessions}`, #{length(run.rounds)} rounds, #{round(run.seconds)} s in all.\n\n",
      for(
        {ok?, text} <- criteria,
        do: ["- ", if(ok?, do: "ok: ", else: "**failed**: "), text, "\n"]
      ),
      for({title, rows} <- tables, do: ["\n", title, "\n\n", markdown(rows)])
    ]
  end

  defp markdown([heading | rows]) do
    line = ["|---|", List.duplicate("---:|", length(heading) - 1), "\n"]
    [markdown_row(heading), line | Enum.map(rows, &markdown_row/1)]
  end

  defp markdown_row(cells), do: ["| ", Enum.intersperse(cells, " | "), " |\n"]

  defp minutes(minutes) when trunc(minutes) == minutes, do: "#{trunc(minutes)}"
  defp minutes(minutes), do: "#{minutes}"

  defp number(number) do
    number
    |> round()
    |> Integer.to_string()
    |> String.reverse()
    |> String.replace(~r/(\d{3})(?=\d)/, "\\1,")
    |> String.reverse()
  end

  defp us(us) when us < 10, do: decimal(us)
  defp us(us), do: number(us)
  defp mb(bytes), do: decimal(bytes / 1024 / 1024)
  defp decimal(number), do: :erlang.float_to_binary(number / 1, decimals: 1)
  defp percent(part), do: "#{round(100 * part)} %"
end
