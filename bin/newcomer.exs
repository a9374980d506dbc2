# The steps of bin/newcomer, in the folder where it is called: elixir newcomer.exs ROOT DEPENDENCY.

defmodule Newcomer do
  @moduledoc false

  # The blocks of a page, as {language, the words before it, code}.
  def blocks(page) do
    parts = Regex.split(~r/^```(?:sh|elixir)\n.*?^```\n/ms, page, include_captures: true)

    for [before, block] <- Enum.chunk_every(parts, 2, 2, :discard) do
      [_, language, code] = Regex.run(~r/\A```(sh|elixir)\n(.*)^```\n\z/ms, block)
      {language, before, code}
    end
  end

  def main([root, dependency]) do
    guide = File.read!(Path.join(root, "guides/getting-started.md"))
    {steps, code} = guide |> blocks() |> Enum.reduce({[], []}, &step(&1, &2, dependency))

    # Blocks of Elixir belong together, as in one iex. Those of the README begin anew.
    pages = [{"guide", Enum.reverse(code)}] ++ readme(root)

    for {name, code} <- pages do
      File.write!("#{name}.exs", checker(code))
    end

    runs = for {name, _code} <- pages, do: time("the blocks of the #{name}", fn -> shell("mix run #{name}.exs") end)
    IO.puts("\n" <> Enum.map_join(Enum.reverse(steps) ++ runs, "\n", fn {name, ms} -> pad(ms) <> "  " <> name end))
    total = Enum.sum(for {_name, ms} <- steps ++ runs, do: ms)
    IO.puts(pad(total) <> "  in all")
  end

  defp pad(ms), do: String.pad_leading("#{Float.round(ms / 1000, 1)} s", 9)

  defp step({"sh", _before, code}, {steps, elixir}, _dependency) do
    {Enum.reduce(String.split(code, "\n", trim: true), steps, &[command(&1) | &2]), elixir}
  end

  defp step({"elixir", before, code}, {steps, elixir}, dependency) do
    cond do
      code =~ ~r/\Adefp deps/ ->
        [_, given] = Regex.run(~r/^\s*(\{:ash_agent_runtime.*\})$/m, code)
        File.write!("mix.exs", replace_deps(File.read!("mix.exs"), String.replace(code, given, dependency)))
        {steps, elixir}

      file = written_to(before) ->
        File.mkdir_p!(Path.dirname(file))
        File.write!(file, code)
        {steps, elixir}

      true ->
        {steps, [code | elixir]}
    end
  end

  defp written_to(before) do
    case Regex.run(~r/Write this to `([^`]+)`:\s*\z/, before) do
      [_, file] -> file
      nil -> nil
    end
  end

  defp replace_deps(mix, deps) do
    replaced = Regex.replace(~r/  defp deps do\n.*?\n  end\n/s, mix, fn _ -> deps end)
    if replaced == mix, do: fail("mix.exs has no deps to replace")
    replaced
  end

  defp command("cd " <> folder) do
    File.cd!(folder)
    {"cd " <> folder, 0}
  end

  defp command(line), do: time(line, fn -> shell(line) end)

  defp shell(line) do
    case System.shell(line, into: IO.stream(:stdio, :line), stderr_to_stdout: true) do
      {_, 0} -> :ok
      {_, status} -> fail("#{line} ended with #{status}")
    end
  end

  defp time(name, fun) do
    IO.puts("--- #{name}")
    started = System.monotonic_time(:millisecond)
    fun.()
    {name, System.monotonic_time(:millisecond) - started}
  end

  # A LiveView needs Phoenix, and the dependency is there already.
  defp readme(root) do
    codes = for {"elixir", _, code} <- blocks(File.read!(Path.join(root, "README.md"))), not (code =~ ~r/\Adef/), do: code
    for {code, number} <- Enum.with_index(codes, 1), do: {"readme_#{number}", [code]}
  end

  # Runs the blocks as iex does, and compares each value with the `#=>` after it.
  defp checker(blocks) do
    """
    blocks = #{inspect(blocks, limit: :infinity, printable_limit: :infinity)}

    Enum.reduce(blocks, {[], Code.env_for_eval([])}, fn block, state ->
      ~r/^#=> .*\\n(?:#   .*\\n)*/m
      |> Regex.split(block, include_captures: true, trim: true)
      |> Enum.chunk_every(2)
      |> Enum.reduce(state, fn [code | said], {bindings, env} ->
        {given, bindings, env} = code |> Code.string_to_quoted!() |> Code.eval_quoted_with_env(bindings, env)

        for text <- said do
          {wanted, _} = text |> String.replace(~r/^#(=>)? /m, "") |> Code.eval_string(bindings)
          if wanted != given, do: raise("\#{code}gives \#{inspect(given)}, and the page says \#{inspect(wanted)}")
        end

        {bindings, env}
      end)
    end)
    """
  end

  defp fail(words) do
    IO.puts(:stderr, words)
    System.halt(1)
  end
end

Newcomer.main(System.argv())
