defmodule AshAgent.Context.UnknownAtom do
  @moduledoc """
  Stands for an atom that this VM does not have.

  Data from outside never makes atoms. A context that was stored by a node with other modules can hold atoms that do
  not exist here; they come back as this struct, and are the atom again for every node that knows it. Given to a
  context, the struct is that atom.
  """

  @enforce_keys [:name]
  defstruct [:name]

  @type t :: %__MODULE__{name: String.t()}
end
