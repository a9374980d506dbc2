# Changes an Elixir file in one place at a time, and tells which changes no test notices:
#
#     cd packages/ash_agent_runtime
#     MIX_ENV=test mix run ../../bin/mutate.exs lib/ash_agent/runtime/bounds.ex test/ash_agent/runtime_test.exs
#
# `--most N` takes that many changes, drawn with `--seed N` (0), and `--timeout MS` is what one test may take (10,000). A change
# flips a comparison, a boolean, `and` and `or` or `+` and `-`, adds 1 to a number, negates an `if`, or leaves out a guard or a
# clause. It is compiled into the running VM, where the tests then run until the first one fails. What the last line counts as
# survivors are rules without a test in these files, or changes that change nothing.

defmodule Mutate do
  @flips %{
    :== => [:!=],
    :!= => [:==],
    :=== => [:!==],
    :!== => [:===],
    :< => [:<=, :>=],
    :<= => [:<],
    :> => [:>=, :<=],
    :>= => [:>],
    :and => [:or],
    :or => [:and],
    :&& => [:||],
    :|| => [:&&],
    :+ => [:-],
    :- => [:+]
  }

  @untouched [:moduledoc, :doc, :typedoc, :spec, :type, :typep, :opaque, :callback, :impl]

  # All changes of a tree: `{line, words, changed tree}`.
  def changes(tree), do: tree |> walk(& &1, 1) |> Enum.uniq_by(&elem(&1, 2))

  # `put` makes the whole tree of a changed part of it.
  defp walk({:@, _, [{name, _, _}]}, _put, _line) when name in @untouched, do: []
  defp walk({name, _, _}, _put, _line) when name in [:alias, :import, :require, :use], do: []

  defp walk({name, meta, arguments} = node, put, line) when is_list(arguments) do
    line = meta[:line] || line

    own(node, line, put) ++
      if(is_atom(name), do: [], else: walk(name, &put.({&1, meta, arguments}), line)) ++
      walk(arguments, &put.({name, meta, &1}), line)
  end

  defp walk({left, right}, put, line),
    do: walk(left, &put.({&1, right}), line) ++ walk(right, &put.({left, &1}), line)

  defp walk(list, put, line) when is_list(list) do
    inner =
      for {item, index} <- Enum.with_index(list),
          change <- walk(item, &put.(List.replace_at(list, index, &1)), line),
          do: change

    inner ++ omissions(list, put)
  end

  defp walk(value, put, line) when is_boolean(value),
    do: [{line, "#{value} => #{not value}", put.(not value)}]

  defp walk(value, put, line) when is_integer(value),
    do: [{line, "#{value} => #{value + 1}", put.(value + 1)}]

  defp walk(_other, _put, _line), do: []

  defp own({name, meta, [_, _] = arguments} = node, line, put) when is_map_key(@flips, name) do
    for other <- Map.fetch!(@flips, name) do
      changed = {other, meta, arguments}
      {line, "#{show(node)} => #{show(changed)}", put.(changed)}
    end
  end

  defp own({:not, _, [inner]} = node, line, put),
    do: [{line, "#{show(node)} => #{show(inner)}", put.(inner)}]

  defp own({name, meta, [condition, blocks]}, line, put) when name in [:if, :unless] do
    changed = {name, meta, [{:not, [], [{:!, [], [{:!, [], [condition]}]}]}, blocks]}
    [{line, "#{name} #{show(condition)} => negated", put.(changed)}]
  end

  defp own({:when, _, arguments} = node, line, put) do
    kept = Enum.drop(arguments, -1)
    changed = if length(kept) == 1, do: hd(kept)

    if changed, do: [{line, "guard of #{show(node)} => none", put.(changed)}], else: []
  end

  defp own(_node, _line, _put), do: []

  # One clause less, of a function or of a `case`.
  defp omissions(list, put) do
    for {{_, meta, _} = node, index} <- Enum.with_index(list),
        kind = clause(node),
        Enum.count(list, &(clause(&1) == kind)) > 1,
        do: {meta[:line], "clause #{show(node)} => none", put.(List.delete_at(list, index))}
  end

  defp clause({:->, _, _}), do: :arrow

  defp clause({kind, _, [head, _body]}) when kind in [:def, :defp] do
    head = with {:when, _, [head, _guard]} <- head, do: head
    with {name, _, arguments} when is_list(arguments) <- head, do: {name, length(arguments)}
  end

  defp clause(_other), do: nil

  defp show(node) do
    text = node |> Macro.to_string() |> String.replace(~r/\s+/, " ")
    if String.length(text) > 90, do: String.slice(text, 0, 90) <> "...", else: text
  end

  def run([file | tests], opts) do
    Code.compiler_options(ignore_module_conflict: true)
    Code.require_file("test/test_helper.exs")

    ExUnit.configure(
      autorun: false,
      formatters: [],
      max_failures: 1,
      timeout: opts[:timeout] || 10_000,
      capture_log: true,
      seed: opts[:seed] || 0
    )

    modules = for test <- tests, {module, _} <- Code.require_file(test), test?(module), do: module
    tree = file |> File.read!() |> Code.string_to_quoted!(columns: true)
    # The tests that pass in this VM are those that tell.
    if failures([]) > 0, do: raise("the tests fail without a change")
    :rand.seed(:exsss, opts[:seed] || 0)
    changes = changes(tree)

    chosen =
      if opts[:most], do: changes |> Enum.take_random(opts[:most]) |> Enum.sort(), else: changes

    found =
      for {line, words, changed} <- chosen do
        outcome = try_change(changed, file, modules)
        if outcome == :survived, do: IO.puts("#{file}:#{line}: #{words}")
        outcome
      end

    compile(tree, file)
    counts = Enum.frequencies(found)

    IO.puts(
      "#{file}: #{length(changes)} changes, #{length(found)} tried, " <>
        Enum.map_join([:caught, :refused, :survived], ", ", &"#{Map.get(counts, &1, 0)} #{&1}")
    )
  end

  def run([], _opts), do: raise("name a file and its tests")

  defp test?(module), do: function_exported?(module, :__ex_unit__, 0)

  defp try_change(changed, file, modules) do
    case compile(changed, file) do
      :ok -> if failures(modules) > 0, do: :caught, else: :survived
      :error -> :refused
    end
  end

  defp failures(modules), do: ExUnit.run(modules).failures

  # Warnings of a changed file say nothing.
  defp compile(tree, file) do
    {:ok, device} = StringIO.open("")
    stderr = Process.whereis(:standard_error)
    Process.unregister(:standard_error)
    Process.register(device, :standard_error)

    try do
      Code.compile_quoted(tree, file)
      :ok
    rescue
      _exception -> :error
    after
      Process.unregister(:standard_error)
      Process.register(stderr, :standard_error)
      StringIO.close(device)
    end
  end
end

{opts, paths} =
  OptionParser.parse!(System.argv(), strict: [most: :integer, seed: :integer, timeout: :integer])

Mutate.run(paths, opts)
