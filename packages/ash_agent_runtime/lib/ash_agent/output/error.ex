defmodule AshAgent.Output.Error do
  @moduledoc """
  Why an answer is not of its type.

    * `reason` - `:invalid`, or `:cut` for an answer that ends before it is complete
    * `lines` - what is wrong, with the place of each, in words that a model can act on
    * `value` - the answer as far as it could be read, or `nil`: JSON data if it is invalid, a partial value of the type if it was cut.
      Of a text that ends within a second answer, it is the first one
  """

  @type t :: %__MODULE__{reason: :invalid | :cut, lines: [String.t()], value: term()}

  @enforce_keys [:reason, :lines]
  defexception [:reason, :lines, value: nil]

  # It ends up in logs, without the value.
  defimpl Inspect do
    def inspect(error, _opts),
      do: "#AshAgent.Output.Error<#{error.reason}, #{length(error.lines)} issues>"
  end

  @impl true
  def message(%{reason: :cut}), do: "the answer ends before it is complete"

  def message(%{lines: lines}),
    do: "the answer is not of the type that was asked for: " <> Enum.join(lines, "; ")
end
