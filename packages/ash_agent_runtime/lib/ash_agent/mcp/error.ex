defmodule AshAgent.MCP.Error do
  @moduledoc """
  Why the tools of MCP servers are not there.

  Match on `reason`, see `t:reason/0`; `message/1` says what to do.
  """

  @typedoc """
    * `{:no_client, words}` - there are servers, but no client that reaches them
    * `:no_question` - no task of a server asks anything under this key, or not any more
    * `{:unavailable, servers}` - servers that did not list their tools yet, by name, with the reason in words
  """
  @type reason ::
          :no_question | {:no_client, String.t()} | {:unavailable, %{String.t() => String.t()}}

  @type t :: %__MODULE__{reason: reason()}

  @enforce_keys [:reason]
  defexception [:reason]

  @impl true
  def message(%{reason: :no_question}),
    do:
      "no task of an MCP server asks anything under this key; AshAgent.MCP.questions/1 lists what is open"

  def message(%{reason: {:no_client, words}}), do: words

  def message(%{reason: {:unavailable, servers}}) do
    words = Enum.map_join(servers, "; ", fn {name, words} -> "#{inspect(name)} #{words}" end)

    "MCP servers are not available: #{words}. They are started again and again: repair them, or pass missing: :skip to go on " <>
      "without their tools"
  end
end
