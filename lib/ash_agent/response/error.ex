defmodule AshAgent.Response.Error do
  @moduledoc """
  Why a response cannot be read or used.

    * `reason` - to match on, see `t:reason/0`
    * `kind` - what kind of failure it is, in one vocabulary for all providers, see `t:kind/0`
    * `retryable?` - whether asking the provider again may help
    * `provider_message` - the provider's own words, at most 2,000 characters, or `nil`
    * `retry_after` - the milliseconds that the provider asks to wait, or `nil`
  """

  alias AshAgent.Context.Native

  @typedoc """
    * `{:provider, code}` - the provider reported an error; `code` is its name for the error, or `nil`
    * `{:invalid_response, text}` - the bytes do not follow the protocol
    * `:incomplete` - the body ended before the response was complete
    * `{:response_too_large, max_bytes}` - the response has more bytes than allowed
    * `{:too_deep, limit}` - the response is nested deeper than allowed
    * `:open` - the response is not complete yet
    * `:queued` - the provider is still working on the response
    * `:interrupted` - the response was interrupted and takes no more bytes
  """
  @type reason ::
          {:provider, String.t() | nil}
          | {:invalid_response, String.t()}
          | :incomplete
          | {:response_too_large, pos_integer()}
          | {:too_deep, pos_integer()}
          | :open
          | :queued
          | :interrupted

  @typedoc """
    * `:rate_limited` - too many requests or tokens for now
    * `:quota` - the account's money or allowance is used up: waiting does not help soon
    * `:overloaded` - the provider has no capacity for now
    * `:server_error` - the provider failed
    * `:context_overflow` - the request is longer than the model or the server takes
    * `:unauthorized` - the key is missing, wrong or not allowed to do this
    * `:invalid_request` - the request is wrong, or names a model that is not there
    * `:refused` - the provider's content filter; a model that refuses gives an answer
    * `:timeout` - a time limit was reached
    * `:closed` - the connection ended before the answer did
    * `:unreachable` - no connection could be made
    * `:invalid_response` - what came cannot be read as an answer
  """
  @type kind ::
          :rate_limited
          | :quota
          | :overloaded
          | :server_error
          | :context_overflow
          | :unauthorized
          | :invalid_request
          | :refused
          | :timeout
          | :closed
          | :unreachable
          | :invalid_response

  @type t :: %__MODULE__{
          reason: reason(),
          kind: kind(),
          retryable?: boolean(),
          provider_message: String.t() | nil,
          retry_after: non_neg_integer() | nil
        }

  @enforce_keys [:reason, :retryable?]
  defexception [:reason, :kind, :retryable?, :provider_message, :retry_after]

  @doc false
  def new({reason, kind, message, retryable?, retry_after}) do
    error = %__MODULE__{reason: reason, kind: kind, retryable?: retryable?}
    %{error | provider_message: message, retry_after: retry_after}
  end

  @doc false
  # Reads the body of an HTTP response that refuses. `name` is the error's name in its headers.
  def read_refusal(status, name, body),
    do: status |> Native.response_read_refusal(name, body) |> elem(1) |> new()

  @words %{
    incomplete:
      "the body ended before the response was complete. Ask again, or keep the part that came with AshAgent.Response.interrupt/2",
    open:
      "the response is not complete yet. Feed the rest and call AshAgent.Response.finish/1, or end it with " <>
        "AshAgent.Response.interrupt/2",
    queued:
      "the provider is still working on the response. Ask the provider for it later, by its AshAgent.Response.id/1",
    interrupted:
      "the response was interrupted and takes no more bytes. Start another one with AshAgent.Response.new/2"
  }

  @impl true
  def message(%{reason: reason} = error) when is_tuple(reason) do
    case reason do
      {:provider, code} ->
        told = Enum.filter([code, error.provider_message], & &1)
        words = if told == [], do: "it does not say why", else: Enum.join(told, ": ")
        "the provider refused or failed: #{words}. #{again(error)}"

      {:invalid_response, text} ->
        "the response cannot be read (#{text}). Check that the provider and the URL belong together, or ask again"

      {:response_too_large, limit} ->
        "the response has more than #{limit} bytes. Raise :max_bytes, or ask for less"

      {:too_deep, limit} ->
        "the response is nested deeper than #{limit} levels. Ask again, or ask for a simpler answer"
    end
  end

  def message(%{reason: reason}), do: Map.fetch!(@words, reason)

  defp again(%{retryable?: false}), do: "Asking again will not help"
  defp again(%{retry_after: nil}), do: "Asking again may help"
  defp again(%{retry_after: wait}), do: "Asking again may help after #{wait} ms"
end
