# The digests of everything that is kept, see bin/freeze.

for file <- ~w(form helpers table inputs), do: Code.require_file("#{file}.exs", __DIR__)

defmodule AshAgent.Freeze do
  @moduledoc false

  alias AshAgent.Freeze.{Form, Helpers, Inputs, Table}

  @folder Path.join(Inputs.fixtures(), "freeze")
  @switches [write: :boolean, print: :boolean, show: :string, only: :string] ++
              [seed: :integer, cases: :integer]

  def main(args) do
    {opts, []} = OptionParser.parse!(args, strict: @switches)
    Logger.configure(level: :none)
    make_atoms()
    prefix = opts[:show] || opts[:only] || ""
    cases = opts[:cases] || 100
    Application.put_env(:ash_agent_context, :freeze_damages, div(cases, 4))
    all = Inputs.all(cases)
    inputs = for {name, _, _} = input <- all, String.starts_with?(name, prefix), do: input
    inputs = if exact = opts[:show] && List.keyfind(inputs, prefix, 0), do: [exact], else: inputs
    seed = opts[:seed] || 0

    cond do
      opts[:show] -> for input <- inputs, do: show(input, seed)
      opts[:print] -> inputs |> digests(seed) |> Enum.sort() |> Enum.each(&IO.puts(line(&1)))
      opts[:write] -> inputs |> digests(seed) |> write()
      true -> inputs |> digests(seed) |> compare(prefix)
    end
  end

  # Data from outside makes no atoms, so what becomes of it depends on those that there are.
  defp make_atoms do
    for {app, _, _} <- Application.loaded_applications(), "#{app}" =~ ~r/^ash_agent/ do
      {:ok, modules} = :application.get_key(app, :modules)
      Enum.each(modules, &Code.ensure_loaded/1)
    end

    for path <- Path.wildcard(Path.join(Inputs.fixtures(), "../{corpus/*,fixtures/*_v1}.json")),
        [word] <- Regex.scan(~r/[A-Za-z0-9_]{1,60}/, File.read!(path)),
        do: String.to_atom(word)
  end

  ## Digests: {name of the input, operation, digest}

  defp digests(inputs, seed) do
    inputs
    |> Task.async_stream(&digest(&1, seed), ordered: false, timeout: :infinity)
    |> Enum.flat_map(fn {:ok, lines} -> lines end)
  end

  defp digest({name, _, _} = input, seed) do
    started = System.monotonic_time(:millisecond)
    lines = for {operation, form} <- forms(input, seed), do: {name, operation, Form.digest(form)}
    ms = System.monotonic_time(:millisecond) - started
    if System.get_env("FREEZE_TIMES"), do: IO.puts(:stderr, "#{ms} ms #{name}")
    lines
  end

  # Each operation draws from a state of its own, so that none depends on another.
  defp forms({name, group, make}, seed) do
    draw(seed, name)
    given = Map.merge(%{c: nil, chat: nil, o: nil, p: Helpers.providers(), xs: []}, make.())

    for operation <- Table.operations(group), {called, given} <- variants(operation, given) do
      draw(seed, {name, called})
      outcomes = Table.perform(operation, given)

      if fault = Form.take_fault(),
        do: IO.puts(:stderr, "#{name}: #{called} raises #{inspect(fault)}")

      {called, outcomes}
    end
  end

  defp draw(seed, what), do: :rand.seed(:exsss, {seed, :erlang.phash2(what), 0})

  defp variants({_, "views"}, given),
    do: [{"views", given}, {"views forgotten", %{given | c: Helpers.forget(given.c)}}]

  defp variants({_group, operation}, given) do
    if String.ends_with?(operation, " p"),
      do: for(p <- given.p, do: {String.replace_suffix(operation, "p", "#{p}"), %{given | p: p}}),
      else: [{operation, given}]
  end

  defp show({name, _, _} = input, seed) do
    for {operation, form} <- forms(input, seed) do
      IO.puts("#### #{name} #{operation} #{Form.digest(form)}")
      IO.puts(inspect(form, pretty: true, limit: :infinity, printable_limit: :infinity))
    end
  end

  defp line({name, operation, digest}), do: Enum.join([name, operation, digest], "\t")

  ## The kept ones: a file for all names with the same beginning

  defp write(lines) do
    Enum.each(files(), &File.rm!/1)

    for {family, lines} <- Enum.group_by(lines, &family/1) do
      text = lines |> Enum.sort() |> Enum.map(&[line(&1), ?\n])
      File.write!(Path.join(@folder, family <> ".tsv"), text)
    end

    IO.puts("#{length(lines)} digests are written." <> without())
  end

  # Those of what is here.
  defp files do
    for path <- Path.wildcard(Path.join(@folder, "*.tsv")),
        Inputs.shared?() or Path.basename(path) != "shared.tsv",
        do: path
  end

  defp family(key), do: key |> elem(0) |> String.split("/") |> hd()

  defp without,
    do: if(Inputs.shared?(), do: "", else: " Those of ../shared are left out, which is not here.")

  defp compare(lines, prefix) do
    kept =
      for path <- files(),
          line <- File.stream!(path),
          [name, operation, digest] = line |> String.trim_trailing() |> String.split("\t"),
          String.starts_with?(name, prefix),
          into: %{},
          do: {{name, operation}, digest}

    now = for {name, operation, digest} <- lines, into: %{}, do: {{name, operation}, digest}
    all = Map.merge(kept, now)
    differing = for {key, _} <- Enum.sort(all), kept[key] != now[key], do: key

    # The first inputs of each operation.
    for {{family, operation}, keys} <- Enum.group_by(differing, &{family(&1), elem(&1, 1)}) do
      some = for {name, _} = key <- Enum.take(keys, 3), do: name <> what(kept[key], now[key])
      IO.puts("#{family}, #{operation}: #{length(keys)} of #{Enum.join(some, ", ")}")
    end

    IO.puts("#{map_size(all)} digests, #{length(differing)} of them differ." <> without())
    if differing != [], do: System.halt(1)
  end

  defp what(nil, _now), do: " (new)"
  defp what(_kept, nil), do: " (gone)"
  defp what(_kept, _now), do: ""
end

AshAgent.Freeze.main(System.argv())
