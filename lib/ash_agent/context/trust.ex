defmodule AshAgent.Context.Trust do
  @moduledoc false

  # The options that say how far a document is believed; what they mean is the core's.

  @approvals [:keep, :drop]
  @structs [:keep, :known, :drop]

  @type t :: {approvals :: :keep | :drop, structs :: :keep | :known | :drop}

  @doc "The options as the core takes them. Raises `ArgumentError` for unknown ones."
  @spec check!(keyword()) :: t()
  def check!([]), do: {:keep, :keep}

  def check!(opts) do
    opts = Keyword.validate!(opts, approvals: :keep, structs: :keep)
    {one_of!(opts, :approvals, @approvals), one_of!(opts, :structs, @structs)}
  end

  defp one_of!(opts, key, values) do
    value = opts[key]

    if value in values do
      value
    else
      raise ArgumentError,
            "expected #{inspect(key)} to be one of #{inspect(values)}, got: #{inspect(value)}"
    end
  end
end
