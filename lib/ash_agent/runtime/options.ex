defmodule AshAgent.Runtime.Options do
  @moduledoc false

  # Keyword.validate!/2 shows the whole list in its message, and options of a model may hold keys.

  @doc "Fills in defaults. Raises `ArgumentError` with the names of unknown and repeated options, never with values."
  @spec validate!(keyword(), [atom() | {atom(), term()}]) :: keyword()
  def validate!(opts, known) do
    unless Keyword.keyword?(opts),
      do: raise(ArgumentError, "expected options to be a keyword list")

    names =
      Enum.map(known, fn
        {name, _default} -> name
        name -> name
      end)

    given = Keyword.keys(opts)

    case Enum.uniq(given) -- names do
      [] ->
        :ok

      unknown ->
        raise ArgumentError, "unknown options #{inspect(unknown)}, there are: #{inspect(names)}"
    end

    case Enum.uniq(given -- Enum.uniq(given)) do
      [] -> :ok
      repeated -> raise ArgumentError, "the options #{inspect(repeated)} are given more than once"
    end

    known |> Enum.filter(&is_tuple/1) |> Keyword.merge(opts)
  end
end
