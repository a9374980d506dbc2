defmodule AshAgent.LLM.Error do
  @moduledoc """
  Why a provider's answer could not be had.

    * `reason` - for matching, see `t:reason/0`
    * `status` - the HTTP status, or `nil`
    * `provider_message` - the provider's own words, at most 2,000 characters, or `nil`
    * `retry_after` - milliseconds the provider asked to wait, or `nil`

  It never holds the API key.
  """

  @typedoc """
    * `{:status, status}` - the provider refused, and went on doing so through the repetitions
    * `:timeout` - no complete answer in time
    * `{:connection, term}` - no connection, or it was cut
    * `{:invalid_response, text}` - what came is not what the protocol says
    * `{:response_too_large, bytes}` - it is longer than `:max_response_bytes`
    * `{:request, exception}` - the context cannot be sent, for instance while calls are pending
  """
  @type reason ::
          {:status, pos_integer()}
          | :timeout
          | {:connection, term()}
          | {:invalid_response, String.t()}
          | {:response_too_large, pos_integer()}
          | {:request, Exception.t()}

  @type t :: %__MODULE__{
          reason: reason(),
          status: pos_integer() | nil,
          provider_message: String.t() | nil,
          retry_after: non_neg_integer() | nil
        }

  @enforce_keys [:reason]
  defexception [:reason, :status, :provider_message, :retry_after]

  @impl true
  def message(%{reason: reason, provider_message: words}),
    do: describe(reason) <> if(words, do: ": " <> words, else: "")

  defp describe({:status, status}), do: "the provider answered with status #{status}"
  defp describe(:timeout), do: "the provider gave no complete answer in time"
  defp describe({:connection, :closed}), do: "the connection to the provider was cut"

  defp describe({:connection, :no_cacerts}) do
    "no CA certificates were found on this machine: install its ca-certificates package, " <>
      "or give ssl: [cacertfile: path]"
  end

  defp describe({:connection, reason}),
    do: "no connection to the provider (#{inspect(reason, limit: 20, printable_limit: 200)})"

  defp describe({:invalid_response, words}),
    do: "the provider's answer cannot be read (#{words})"

  defp describe({:response_too_large, bytes}),
    do: "the provider's answer is longer than #{bytes} bytes"

  defp describe({:request, error}),
    do: "the context cannot be sent: " <> Exception.message(error)
end
