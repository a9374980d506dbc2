defmodule AshAgent.Context.Trust do
  @moduledoc false

  # The options that say how far a document is believed; what they mean is the core's.

  alias AshAgent.Options

  @schema [
    approvals: [type: {:in, [:keep, :drop]}, default: :keep],
    structs: [type: {:in, [:keep, :known, :drop]}, default: :keep]
  ]

  @type t :: {approvals :: :keep | :drop, structs :: :keep | :known | :drop}

  @doc "The options as the core takes them. Raises `ArgumentError` for unknown and wrong ones."
  @spec check!(keyword()) :: t()
  def check!([]), do: {:keep, :keep}

  def check!(opts) do
    opts = Options.validate!(opts, @schema)
    {opts[:approvals], opts[:structs]}
  end
end
