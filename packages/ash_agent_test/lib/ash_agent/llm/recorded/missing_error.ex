defmodule AshAgent.LLM.Recorded.MissingError do
  @moduledoc """
  A request that a cassette has no recording of.

    * `cassette` - the path of the file
    * `path` - the path of the request
    * `nearest` - the number of the nearest recording, or `nil` if there is none
    * `differences` - how the request differs from it, a list of `AshAgent.LLM.Difference`
  """

  @enforce_keys [:cassette, :path]
  defexception [:cassette, :path, :nearest, differences: []]

  @type t :: %__MODULE__{
          cassette: String.t(),
          path: String.t(),
          nearest: pos_integer() | nil,
          differences: [AshAgent.LLM.Difference.t()]
        }

  @impl true
  def message(error) do
    "#{error.cassette} has no recording of this request to #{error.path}: #{describe(error)}. " <>
      "If the change is meant, record it with ASH_AGENT_CASSETTES=record_missing"
  end

  defp describe(%{nearest: nil}), do: "there are no recordings"

  defp describe(%{nearest: nearest, differences: [first | more]}) do
    more =
      if more == [],
        do: "",
        else: " (and #{length(more)} more: #{Enum.map_join(more, "; ", & &1.where)})"

    "the nearest is request #{nearest}, but #{first}#{more}"
  end
end
