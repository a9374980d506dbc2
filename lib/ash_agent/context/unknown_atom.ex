defmodule AshAgent.Context.UnknownAtom do
  @moduledoc """
  A stand-in for an atom that this VM does not have.

  Loading data never creates atoms. A context stored by a node with other modules may contain atoms that do not exist here; they
  are loaded as this struct, and as the atom again on every node that has it. A context treats the struct as that atom.
  """

  @enforce_keys [:name]
  defstruct [:name]

  @type t :: %__MODULE__{name: String.t()}
end
