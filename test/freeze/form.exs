defmodule AshAgent.Freeze.Names do
  @moduledoc false

  # Calls functions by their old names, see names.exs.

  @moved "names.exs" |> Path.expand(__DIR__) |> Code.eval_file() |> elem(0)

  defmodule Missing do
    @moduledoc false
    defexception [:message]
  end

  def call(module, name, args) do
    key = {__MODULE__, module, name, length(args)}
    found = :persistent_term.get(key, nil) || find(module, name, length(args))
    :persistent_term.put(key, found)
    found.(args)
  end

  defp find(module, name, arity) do
    renamed = @moved["#{module}.#{name}"]

    exported(renamed, arity) || exported("#{module}.#{name}", arity) ||
      raise Missing, "say in test/freeze/names.exs what #{module}.#{name}/#{arity} is called"
  end

  defp exported(nil, _arity), do: nil

  defp exported({task, old}, arity) do
    names = for n <- 1..arity, do: "a#{n}"

    {made, _} =
      Code.eval_string(
        "fn [#{Enum.join(names, ", ")}] -> AshAgent.Context.#{task.call(old, names)} end"
      )

    made
  end

  defp exported(path, arity) do
    {name, module} = path |> String.split(".") |> List.pop_at(-1)
    {module, name} = {module(Enum.join(module, ".")), String.to_atom(name)}

    if Code.ensure_loaded?(module) and function_exported?(module, name, arity),
      do: &apply(module, name, &1)
  end

  @doc "The module with this old name."
  def module(name) do
    moved = Module.concat(AshAgent, @moved[name] || name)
    if Code.ensure_loaded?(moved), do: moved, else: Module.concat(AshAgent, name)
  end

  @doc "The words of an error without the modules of functions, and with the old names."
  def clean(words) do
    words =
      for {old, new} <- @moved, is_binary(new), reduce: words do
        words -> String.replace(words, ~r/\b(AshAgent\.)?#{Regex.escape(new)}\//, "#{old}/")
      end

    Regex.replace(~r/\b(?:[A-Z]\w*\.)+([a-z]\w*[?!]?\/\d)/, words, "\\1")
  end
end

defmodule AshAgent.Freeze.Old do
  @moduledoc false

  @names ~w(Context Context.JSON Context.EctoType ChatContext ChatContext.EctoType Response Trace Prices) ++
           ~w(Output Runtime Runtime.ToolExecutor LLM Store Store.SQLite Store.SQLite.Native)

  @doc "The modules whose functions are called. A new function of `AshAgent.Context.View` needs `Context.View` here."
  def names, do: @names
  def modules, do: Enum.map(@names, &Module.concat(__MODULE__, &1))
end

# Each stands for the module of its name, whatever that is called now: a function that it is asked for is looked up.
for name <- AshAgent.Freeze.Old.names() do
  defmodule Module.concat(AshAgent.Freeze.Old, name) do
    @moduledoc false
    def unquote(:"$handle_undefined_function")(function, args),
      do: AshAgent.Freeze.Names.call(unquote(name), function, args)
  end
end

defmodule AshAgent.Freeze.Form do
  @moduledoc false

  # The form in which terms are compared. It has neither private fields nor the names of the package's structs, and of times that
  # the clock gave only that they are there.

  alias AshAgent.Freeze.{Names, Old}

  @compile {:no_warn_undefined, [Old.Context, Old.ChatContext, Old.Response]}
  @facts ~w(id model finish_reason finish_word usage details message text error count_bytes)a
  @started DateTime.utc_now()
  # Days that a time of the clock may begin with.
  @days for hours <- [0, 24],
            do: @started |> DateTime.add(hours * 3_600) |> DateTime.to_date() |> Date.to_iso8601()

  @doc "The form of what a function returns or raises."
  def attempt(fun) do
    form(fun.())
  rescue
    error in Names.Missing -> reraise error, __STACKTRACE__
    error -> {:raised, error |> form() |> note_fault()}
  end

  # Nothing raises anything else: not the package, and not what calls it.
  defp note_fault({module, _words} = form)
       when module not in [ArgumentError, FunctionClauseError],
       do: tap(form, &Process.put(__MODULE__, &1))

  defp note_fault(form), do: form

  @doc "The last fault since the last time."
  def take_fault, do: Process.delete(__MODULE__)

  @doc "The first digits of a form's digest."
  def digest(form) do
    hash = :crypto.hash(:sha256, bytes(form))
    hash |> Base.encode16(case: :lower) |> binary_part(0, 16)
  end

  def form(%{__struct__: _, ref: _, current_iteration: _} = context),
    do: {:context, context |> Old.Context.to_snapshot() |> form()}

  def form(%{__struct__: _, active_branch_name: _, branches: _} = chat),
    do: {:chat, chat |> Old.ChatContext.to_snapshot() |> form()}

  def form(%{__struct__: _, ref: _, provider: _, state: state} = response) do
    facts = for fact <- @facts, do: {fact, form(apply(Old.Response, fact, [response]))}
    {:response, state, facts}
  end

  def form(%{__exception__: true, __struct__: module} = error) do
    words = error |> Exception.message() |> Names.clean()
    fields = error |> Map.from_struct() |> Map.delete(:__exception__)
    if ours?(module), do: {:error, words, form(fields)}, else: {module, words}
  end

  def form(%module{} = struct) do
    fields = struct |> Map.from_struct() |> form()

    cond do
      ours?(module) -> Map.drop(fields, [:ref, :lines, :blobs])
      now?(struct) -> :now
      true -> {module, fields}
    end
  end

  # A page's script and style are code: what they are given is compared, and tests open the page.
  def form("<" <> _ = text) do
    if String.starts_with?(text, ["<!doctype html>", "<iframe "]),
      do:
        ~r/<(script|style)>.*?<\/\1>|sha256-[\w+\/=]+/s |> Regex.replace(text, "") |> form_text(),
      else: form_text(text)
  end

  def form(text) when is_binary(text), do: form_text(text)

  def form(map) when is_map(map),
    do: Map.new(map, fn {key, value} -> {form(key), form(value)} end)

  def form([head | tail]), do: [form(head) | form(tail)]
  def form(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> form() |> List.to_tuple()
  def form(function) when is_function(function), do: :function
  def form(other) when is_pid(other) or is_reference(other) or is_port(other), do: :handle
  def form(other), do: other

  defp form_text(text) do
    # The place of a tool of these scripts.
    text =
      if String.contains?(text, "/test/freeze/"),
        do: Regex.replace(~r{[^\s"]*/test/freeze/\w+\.exs:\d+}, text, "here"),
        else: text

    if String.contains?(text, @days),
      do: Regex.replace(~r/\d{4}-\d\d-\d\dT[\d:.]+Z/, text, &hide_now/1),
      else: text
  end

  # Damage and masks make something else of times.
  defp hide_now(text) do
    case DateTime.from_iso8601(text) do
      {:ok, at, 0} -> if now?(at), do: "now", else: text
      _ -> text
    end
  end

  defp now?(%DateTime{year: year} = at) when year in [@started.year, @started.year + 1],
    do: DateTime.diff(at, @started) in -1..86_400

  defp now?(_other), do: false
  defp ours?(module), do: String.starts_with?(inspect(module), "AshAgent.")

  # The same with every version of OTP, which external terms are not.
  defp bytes(term) when is_binary(term), do: [?b, Integer.to_string(byte_size(term)), ?:, term]
  defp bytes(term) when is_atom(term), do: [?a | bytes(Atom.to_string(term))]
  defp bytes(term) when is_float(term), do: [?f, <<term::float>>]
  defp bytes([head | tail]), do: [?l, bytes(head) | bytes(tail)]
  defp bytes(term) when is_tuple(term), do: [?t | term |> Tuple.to_list() |> bytes()]

  defp bytes(term) when is_map(term) do
    pairs = for {key, value} <- term, do: IO.iodata_to_binary([bytes(key), bytes(value)])
    [?m, Enum.sort(pairs), ?.]
  end

  defp bytes(term), do: [?o, inspect(term), ?.]
end
