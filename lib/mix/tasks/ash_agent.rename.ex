defmodule Mix.Tasks.AshAgent.Rename do
  @shortdoc "Renames the calls of functions that moved to another module"

  @moduledoc """
  Renames the calls of functions that moved, as the guide [Upgrading](upgrading.html) lists them.

      mix ash_agent.rename [--check] [FILE OR FOLDER ...]

  Without names it reads lib, test, config, priv, guides and README.md. It changes `.ex` and `.exs` files, the examples in their documentation,
  and the Elixir in `.md`, `.livemd` and `.cheatmd` files, but no changelog. Comments and the form of the code stay; run `mix format` for lines
  that are too long now.

  It lists each call that it cannot rename, with its file and line: one by `apply/3`, one that was captured and takes other arguments now,
  or one of a function that `import AshAgent.Context` brought without `:only`.

  ## Options

    * `--check` - changes nothing, and fails if there is something to rename or to look at
    * `--aliased` - takes `Context` for `AshAgent.Context` also in files without the alias, such as those that have it by a `use` of yours.
      Otherwise such calls are listed
  """

  use Mix.Task

  @guide Path.expand("../../../guides/upgrading.md", __DIR__)
  @external_resource @guide
  @root [:AshAgent, :Context]

  @alias ~r/^\s*(iex> )?alias AshAgent\.(Context\s*$|\{[^}]*\bContext\b)/m
  @short %{[:Context] => @root}

  # The guide's tables, by old name: the names of the old arguments, and the new module, name and arguments.
  @moved (for [_row, old, new] <-
                Regex.scan(~r/^\| `Context\.(.+?)` \| `(Context\..+?)` \|$/m, File.read!(@guide)),
              into: %{} do
            bare =
              &Macro.prewalk(Code.string_to_quoted!(&1), fn node ->
                Macro.update_meta(node, fn _meta -> [] end)
              end)

            {name, _, args} = bare.(old)

            {call, field} =
              case bare.(new) do
                {{:., _, [{{:., _, _}, _, _} = call, field]}, _, []} -> {call, field}
                call -> {call, nil}
              end

            {{:., _, [{:__aliases__, _, [:Context | module]}, as]}, _, to} = call

            moved = %{
              args: for({arg, _, nil} <- args, do: arg),
              module: Enum.map_join(module, &"#{&1}."),
              as: as,
              to: to,
              field: field
            }

            {name, Map.put(moved, :same?, field == nil and to == args)}
          end)

  @impl true
  def run(args) do
    {opts, paths} = OptionParser.parse!(args, strict: [check: :boolean, aliased: :boolean])
    paths = if paths == [], do: ~w(lib test config priv guides README.md), else: paths

    results =
      for file <- Enum.flat_map(paths, &files/1),
          text = File.read!(file),
          {new, notes} = rename(text, Path.extname(file), opts[:aliased]),
          new != text or notes != [] do
        if new != text and !opts[:check], do: File.write!(file, new)
        if new != text, do: Mix.shell().info("renamed: #{file}")
        for {line, words} <- notes, do: Mix.shell().info("look at: #{file}:#{line}: #{words}")
        file
      end

    if opts[:check] && results != [],
      do: Mix.raise("mix ash_agent.rename would change or list #{length(results)} files")
  end

  defp files(path) do
    all =
      if File.dir?(path),
        do: Path.wildcard(path <> "/**/*.{ex,exs,md,livemd,cheatmd}"),
        else: List.wrap(if File.regular?(path), do: path)

    Enum.reject(
      all,
      &(Path.basename(&1) == "CHANGELOG.md" or &1 =~ ~r"(^|/)(deps|_build|node_modules)/")
    )
  end

  @doc false
  # The moved functions by their old names.
  def moved, do: @moved

  @doc false
  # The new form of a call, made of the texts of its arguments.
  def call(name, texts) do
    moved = Map.fetch!(@moved, name)

    "#{moved.module}#{moved.as}(#{moved |> write(texts) |> Enum.join(", ")})#{moved.field && ".#{moved.field}"}"
  end

  @doc false
  # A file's text with the calls renamed, and the lines to look at, each with a reason.
  def rename(text, extension, aliased \\ false)

  def rename(text, extension, aliased) when extension in [".ex", ".exs"] do
    {text, _env, notes} = code(text, if(aliased, do: @short, else: %{}))
    env = if aliased || text =~ @alias, do: @short, else: %{}
    {text, more} = pieces(text, env, &examples/1)
    {words(text, env), Enum.sort(notes ++ more)}
  end

  def rename(text, _markdown, aliased) do
    env = if aliased || text =~ "AshAgent", do: @short, else: %{}
    {text, notes} = pieces(text, env, &fences/1)
    {words(text, env), notes}
  end

  ## Pieces of a text that are code: the index of the first line, what each line begins with, and the rest of the lines

  defp pieces(text, env, find) do
    lines = String.split(text, "\n")

    {changed, _env, notes} =
      for {at, prefixes, piece} <- find.(lines), reduce: {%{}, env, []} do
        {changed, env, notes} ->
          {new, env, more} = piece |> Enum.join("\n") |> code(env)
          new = String.split(new, "\n")
          more = for {line, words} <- more, do: {at + line, words}

          if length(new) == length(piece) do
            new = prefixes |> Enum.zip_with(new, &(&1 <> &2)) |> Enum.with_index(&{&2 + at, &1})
            {Map.merge(changed, Map.new(new)), env, notes ++ more}
          else
            {changed, env,
             notes ++ [{at + 1, "an example in which lines would be joined or split"}]}
          end
      end

    lines = for {line, n} <- Enum.with_index(lines), do: Map.get(changed, n, line)
    {Enum.join(lines, "\n"), notes}
  end

  # Lines with a prompt that follow each other.
  defp examples(lines) do
    lines
    |> Enum.with_index()
    |> Enum.map(fn {line, n} ->
      {n, Regex.run(~r/^(\s*(?:iex|\.\.\.)(?:\(\d+\))?> ?)(.*)$/, line, capture: :all_but_first)}
    end)
    |> Enum.chunk_by(&(elem(&1, 1) != nil))
    |> Enum.filter(&match?([{_, [_ | _]} | _], &1))
    |> Enum.map(fn [{at, _} | _] = lines ->
      {at, for({_, [prefix, _]} <- lines, do: prefix), for({_, [_, code]} <- lines, do: code)}
    end)
  end

  # Fenced code, or the examples in it.
  defp fences(lines) do
    {fences, _open} =
      for {line, n} <- Enum.with_index(lines), reduce: {[], nil} do
        {found, nil} ->
          {found, if(line =~ ~r/^\s*```+\s*(elixir|iex)\b/, do: {n + 1, []})}

        {found, {at, code}} ->
          if line =~ ~r/^\s*```+\s*$/,
            do: {[{at, Enum.reverse(code)} | found], nil},
            else: {found, {at, [line | code]}}
      end

    for {at, code} <- Enum.reverse(fences),
        prompts = examples(code),
        {n, prefixes, code} <-
          if(prompts == [], do: [{0, Enum.map(code, fn _ -> "" end), code}], else: prompts),
        do: {at + n, prefixes, code}
  end

  # Names with their arities in comments and documentation.
  defp words(text, env) do
    replace(text, ~r/(?<![\w.&])(#{named(env)})([a-z_]+[?!]?)\/(\d)/, fn moved,
                                                                         [path, name, arity] ->
      arity = if moved.same?, do: arity, else: length(moved.to)
      "#{path}#{moved.module}#{moved.as || name}/#{arity}"
    end)
  end

  # A piece that cannot be read as code: names that only moved.
  defp loose(text, env) do
    call = ~r/(?<![\w.])(#{named(env)})([a-z_]+[?!]?)\(/

    text =
      replace(text, call, fn moved, [path, name] ->
        if moved.same?, do: "#{path}#{moved.module}#{moved.as || name}("
      end)

    notes =
      for {line, n} <- text |> String.split("\n") |> Enum.with_index(1),
          [_, _, name] <- Regex.scan(call, line),
          @moved[String.to_atom(name)],
          do: {n, "#{name} in code that cannot be read"}

    {text, env, notes}
  end

  defp replace(text, regex, fun) do
    Regex.replace(regex, text, fn whole, path, name, more ->
      moved = @moved[String.to_atom(name)]
      (moved && fun.(moved, [path, name | if(more == "", do: [], else: [more])])) || whole
    end)
  end

  defp named(env),
    do:
      if(env[[:Context]] == @root, do: "(?:AshAgent\\.)?Context\\.", else: "AshAgent\\.Context\\.")

  ## Code

  # Inner calls first: an edit with others inside waits for the next round, and the imports for the last one.
  defp code(text, env) do
    case Code.string_to_quoted(text,
           columns: true,
           token_metadata: true,
           literal_encoder: &{:ok, {:__block__, &2, [&1]}}
         ) do
      {:ok, ast} ->
        {found, next} = walk(ast, Map.put(env, :text, {text, starts(text)}))

        edits =
          for {kind, from, to, new} when kind in [:call, :import] <- found,
              new != slice(text, from, to),
              uniq: true,
              do: {kind, from, to, new}

        {imports, calls} = Enum.split_with(edits, &(elem(&1, 0) == :import))

        inner =
          Enum.reject(calls, fn {_, from, to, _} = edit ->
            Enum.any?(calls -- [edit], fn {_, a, b, _} -> a >= from and b <= to end)
          end)

        case if(inner == [], do: imports, else: inner) do
          [] ->
            {text, Map.delete(next, :text),
             for({:note, line, words} <- found, uniq: true, do: {line, words})}

          edits ->
            edits |> Enum.sort_by(&elem(&1, 1), :desc) |> Enum.reduce(text, &put/2) |> code(env)
        end

      {:error, _problem} ->
        loose(text, env)
    end
  end

  defp put({_kind, from, to, new}, text),
    do: slice(text, 0, from) <> new <> slice(text, to, byte_size(text))

  defp slice(text, from, to), do: binary_part(text, from, to - from)

  # Of each line, where it begins and its text.
  defp starts(text) do
    {lines, _end} =
      text
      |> String.split("\n")
      |> Enum.map_reduce(0, fn line, start -> {{start, line}, start + byte_size(line) + 1} end)

    List.to_tuple(lines)
  end

  defp offset(meta, %{text: {_text, starts}}) do
    {start, line} = elem(starts, meta[:line] - 1)
    before = line |> String.to_charlist() |> Enum.take(meta[:column] - 1)
    start + byte_size(List.to_string(before))
  end

  ## The edits of a piece of syntax, and the aliases and imports after it

  defp walk({:__block__, _, nodes}, env), do: Enum.flat_map_reduce(nodes, env, &walk/2)

  defp walk({:alias, _, [target | opts]}, env),
    do: {[], alias_to(env, target, keyword(opts)[:as])}

  defp walk({:import, meta, [target | opts]} = node, env) do
    only = keyword(opts)[:only]

    case {resolve(target, env), only} do
      {@root, {:__block__, list, [only]}} when is_list(only) ->
        names = for {{:__block__, _, [name]}, {:__block__, _, [arity]}} <- only, do: {name, arity}

        edit =
          {:import, offset(meta, env), offset(list[:closing], env) + 1,
           imports(names, target, meta)}

        {[edit], Map.put(env, :imports, names)}

      {@root, _all} ->
        {[], Map.put(env, :imports, :all)}

      _other ->
        inside(node, env)
    end
  end

  defp walk(
         {:&, _, [{:/, _, [{{:., _, [module, name]}, meta, []}, {:__block__, _, [arity]}]}]} =
           node,
         env
       ) do
    if ours?(module, name, env),
      do: {captured(name, arity, meta, env, @moved[name].module), env},
      else: inside(node, env)
  end

  defp walk({:&, _, [{:/, _, [{name, meta, nil}, {:__block__, _, [arity]}]}]}, env)
       when is_atom(name),
       do:
         {if(imported?(name, arity, env), do: captured(name, arity, meta, env, ""), else: []),
          env}

  defp walk({:|>, _, [left, {_, _, args} = right]}, env) when is_list(args) do
    {found, _} = walk(left, env)
    {more, _} = call(right, 1, env)
    {found ++ more, env}
  end

  defp walk({:defdelegate, meta, [{name, _, _}, [_ | _] = opts]} = node, env) do
    if ours?(keyword([opts])[:to], name, env),
      do: {[{:note, meta[:line], "defdelegate #{name}"}], env},
      else: inside(node, env)
  end

  defp walk({_, _, args} = node, env) when is_list(args), do: call(node, 0, env)
  defp walk(node, env), do: inside(node, env)

  # Inner code does not change the aliases and imports around it.
  defp inside(node, env) do
    children =
      case node do
        {form, _, args} -> [form | List.wrap(args)]
        {left, right} -> [left, right]
        list when is_list(list) -> list
        _leaf -> []
      end

    {Enum.flat_map(children, &(&1 |> walk(env) |> elem(0))), env}
  end

  defp call({form, meta, args} = node, piped, env) do
    {more, _} = inside(node, env)
    count = length(args) + piped

    found =
      case {form, args} do
        {{:., _, [module, name]}, _} when is_atom(name) ->
          if ours?(module, name, env) and fits?(name, count),
            do: edit(node, name, piped, env, @moved[name].module),
            else: unknown(module, name, meta, env) ++ applied(args, env)

        {name, _} when is_atom(name) ->
          if imported?(name, count, env),
            do: edit(node, name, piped, env, ""),
            else: applied(args, env)

        _other ->
          []
      end

    {found ++ more, env}
  end

  # An alias that is not in the file, such as one from a `use`.
  defp unknown(module, name, meta, env) do
    if is_map_key(@moved, name) and resolve(module, env) == [:Context],
      do: [
        {:note, meta[:line], "#{name}, if Context is AshAgent.Context here: then add --aliased"}
      ],
      else: []
  end

  defp fits?(name, count),
    do: count in if(@moved[name].args == [], do: [0], else: 1..length(@moved[name].args))

  # `{Context, :pin, args}`, `apply(Context, :pin, args)`.
  defp applied([module, {:__block__, meta, [name]} | _], env) when is_atom(name),
    do:
      if(ours?(module, name, env),
        do: [{:note, meta[:line], "#{name} is called by its name"}],
        else: []
      )

  defp applied(_args, _env), do: []

  defp captured(name, arity, meta, env, module) do
    cond do
      not fits?(name, arity) ->
        []

      @moved[name].same? ->
        [rename_at(meta, name, module, env)]

      true ->
        [{:note, meta[:line], "#{name}/#{arity} is captured, and takes other arguments now"}]
    end
  end

  defp rename_at(meta, name, module, env) do
    from = offset(meta, env)
    {:call, from, from + byte_size("#{name}"), "#{module}#{@moved[name].as}"}
  end

  defp edit({_form, meta, args}, name, piped, env, module) do
    moved = @moved[name]
    from = offset(meta, env)

    cond do
      env[:imports] == :all and module == "" ->
        [{:note, meta[:line], "#{name} may be meant, which is imported no more"}]

      moved.same? ->
        [rename_at(meta, name, module, env)]

      closing = meta[:closing] ->
        to = offset(closing, env)
        texts = texts(args, from + byte_size("#{name}") + 1, to, env)
        new = moved |> write(List.duplicate(nil, piped) ++ texts) |> Enum.join(", ")
        field = if piped == 1, do: " |> Map.fetch!(:#{moved.field})", else: ".#{moved.field}"
        [{:call, from, to + 1, "#{module}#{moved.as}(#{new})#{moved.field && field}"}]

      true ->
        [{:note, meta[:line], "#{name} takes other arguments now; write parentheses around them"}]
    end
  end

  # The texts of arguments, from the first one to the closing parenthesis. A comma is the last before the next one begins.
  defp texts(args, from, to, %{text: {text, _}} = env) do
    ends =
      for arg <- Enum.drop(args, 1) do
        start = slice(text, from, first(arg, env))
        from + (start |> :binary.matches(",") |> List.last() |> elem(0))
      end

    [from | Enum.map(ends, &(&1 + 1))]
    |> Enum.zip(ends ++ [to])
    |> Enum.map(fn {a, b} -> text |> slice(a, b) |> String.trim() end)
  end

  defp first(arg, env) do
    places =
      for {_, meta, _} when is_list(meta) <- Macro.prewalker(arg),
          meta[:column],
          do: offset(meta, env)

    Enum.min(places)
  end

  # The new arguments: those that need an absent one are left out, and so is the one that comes by a pipe.
  defp write(moved, texts) do
    given = moved.args |> Enum.zip(texts) |> Map.new()
    args = for arg <- moved.to, Enum.all?(variables(arg), &is_binary(given[&1])), do: arg

    Enum.map(args, fn
      {name, _, nil} ->
        given[name]

      arg ->
        words = arg |> Macro.to_string() |> String.replace(~r/^\[|\]$/, "")
        names = ~r/\b(#{Enum.join(moved.args, "|")})\b/
        String.replace(words, names, &inner(given[String.to_atom(&1)], arg))
    end)
  end

  defp variables(ast), do: for({name, _, nil} <- Macro.prewalker(ast), do: name)

  # An argument that a range may take apart.
  defp inner(text, {_tag, {:.., _, _}}),
    do: if(text =~ ~r/^[\w.]+(\(.*\))?$/s, do: text, else: "(#{text})")

  defp inner(text, _arg), do: text

  defp imports(names, target, meta) do
    names
    |> Enum.map(fn {name, arity} -> moved(name, arity) end)
    |> Enum.uniq()
    |> Enum.group_by(&elem(&1, 0), &elem(&1, 1))
    |> Enum.map_join("\n" <> String.duplicate(" ", meta[:column] - 1), fn {module, functions} ->
      only = Enum.map_join(functions, ", ", fn {name, arity} -> "#{name}: #{arity}" end)

      "import #{String.trim_trailing("#{Macro.to_string(target)}.#{module}", ".")}, only: [#{only}]"
    end)
  end

  defp moved(name, arity) do
    case @moved[name] do
      nil -> {"", {name, arity}}
      moved -> {moved.module, {moved.as, length(write(moved, List.duplicate("x", arity)))}}
    end
  end

  ## Aliases

  defp alias_to(env, {{:., _, [{:__aliases__, _, parent}, :{}]}, _, targets}, _as) do
    for {:__aliases__, meta, path} <- targets, reduce: env do
      env -> alias_to(env, {:__aliases__, meta, parent ++ path}, nil)
    end
  end

  defp alias_to(env, {:__aliases__, _, path} = target, as) do
    name = if as, do: elem(as, 2), else: [List.last(path)]
    Map.put(env, name, resolve(target, env))
  end

  defp alias_to(env, _target, _as), do: env

  defp resolve({:__aliases__, _, [first | rest]}, env),
    do: Map.get(env, [first], [first]) ++ rest

  defp resolve(_other, _env), do: nil

  defp ours?(module, name, env), do: is_map_key(@moved, name) and resolve(module, env) == @root

  defp imported?(name, arity, env) do
    is_map_key(@moved, name) and fits?(name, arity) and
      (env[:imports] == :all or {name, arity} in (env[:imports] || []))
  end

  defp keyword([opts]) when is_list(opts),
    do: for({{:__block__, _, [key]}, value} <- opts, do: {key, value})

  defp keyword(_opts), do: []
end
