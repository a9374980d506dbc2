defmodule AshAgent.Caller do
  @moduledoc false

  # Raises in the name of the public function that was called: the stack trace begins with it and not with the check of its
  # arguments. Public functions are those of modules with `use AshAgent.Arguments`.

  @doc "Raises an `ArgumentError`."
  def refuse!(words), do: raise!(%ArgumentError{message: words})

  @doc "Raises an exception."
  def raise!(exception) do
    {:current_stacktrace, trace} = Process.info(self(), :current_stacktrace)
    :erlang.raise(:error, exception, cut(trace))
  end

  # The outermost one, since public functions call others. A call in the last place leaves no frame of its own: then the trace
  # begins with the caller.
  defp cut(trace) do
    trace = Enum.drop_while(trace, fn {module, _, _, _} -> module in [Process, __MODULE__] end)
    ours = Enum.take_while(trace, fn {module, _, _, _} -> ours?(module) end)

    case Enum.find_index(Enum.reverse(ours), &public?/1) do
      nil -> Enum.drop(trace, length(ours))
      index -> Enum.drop(trace, length(ours) - 1 - index)
    end
  end

  @between [Enum, Keyword, Map, :lists, :maps]

  defp ours?(module),
    do: module in @between or String.starts_with?(Atom.to_string(module), "Elixir.AshAgent.")

  defp public?({module, name, arity, _location}) when is_integer(arity),
    do: function_exported?(module, name, arity) and marked?(module)

  defp public?({_module, _name, _arguments, _location}), do: false

  @doc "Returns true if a module has public functions."
  def marked?(module) do
    function_exported?(module, :__info__, 1) and
      Keyword.has_key?(module.__info__(:attributes), :public_functions)
  end
end
