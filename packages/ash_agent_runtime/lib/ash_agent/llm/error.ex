defmodule AshAgent.LLM.Error do
  @moduledoc """
  Why a request to a provider failed.

    * `kind` - what kind of failure it is, one vocabulary for all providers, see `t:AshAgent.Response.Error.kind/0`
    * `reason` - in detail, see `t:reason/0`
    * `status` - the HTTP status, or `nil`
    * `retryable?` - whether the same request may succeed later. The clients have already retried as often as their options allow,
      unless a part of the answer had been delivered
    * `retry_after` - the milliseconds that the provider asked to wait, or `nil`
    * `provider_message` - the provider's own words, at most 2,000 characters, or `nil`; for an HTML page its title
    * `attempt` - which try it was, from 1, or `nil` if the request was not sent
    * `request_id` - the provider's id of the request, or `nil`
    * `response` - the part of a stream that was delivered before it broke off, or what it reported on tokens: an interrupted
      `AshAgent.Response` for `AshAgent.Context.add_response/3`, or `nil`

  It never contains the API key, a header or a part of the request.
  """

  alias AshAgent.Response

  @typedoc """
    * `{:status, status}` - the provider refused the request, also when it was repeated
    * `{:provider, code}` - the provider reported an error within its answer; `code` is its name for the error, or `nil`
    * `:incomplete` - the answer ended before it was complete
    * `{:empty, word}` - the answer has neither words nor calls, although it should have had a call, or the provider could not read what its
      model said; `word` is the provider's for how it ended, such as `"MALFORMED_FUNCTION_CALL"`, or `nil`. A run has asked again
    * `:timeout` - there was no complete answer within `:timeout`
    * `{:timeout, :connect}`, `{:timeout, :first_byte}`, `{:timeout, :idle}` - nothing came within `:connect_timeout`,
      `:first_byte_timeout` or, in the middle of an answer, `:idle_timeout`
    * `{:connection, term}` - the connection could not be made, or was cut
    * `{:invalid_response, text}` - the answer does not follow the protocol
    * `{:response_too_large, bytes}` - the answer is longer than `:max_response_bytes`
    * `{:request, exception}` - the context cannot be sent, for instance while calls are pending
  """
  @type reason ::
          {:status, pos_integer()}
          | {:provider, String.t() | nil}
          | :incomplete
          | {:empty, String.t() | nil}
          | :timeout
          | {:timeout, :connect | :first_byte | :idle}
          | {:connection, term()}
          | {:invalid_response, String.t()}
          | {:response_too_large, pos_integer()}
          | {:request, Exception.t()}

  @type t :: %__MODULE__{
          reason: reason(),
          kind: Response.Error.kind(),
          status: pos_integer() | nil,
          retryable?: boolean(),
          retry_after: non_neg_integer() | nil,
          provider_message: String.t() | nil,
          attempt: pos_integer() | nil,
          request_id: String.t() | nil,
          response: Response.t() | nil
        }

  @enforce_keys [:reason]
  defexception @enforce_keys ++
                 ~w(kind status provider_message retry_after attempt request_id response)a ++
                 [retryable?: false]

  @transient ~w(closed econnrefused econnreset econnaborted epipe enetdown pool_timeout)a

  @doc false
  # The error of a transport's reason.
  def from_transport({:timeout, which} = reason) do
    reason = if which == :whole, do: :timeout, else: reason
    %__MODULE__{reason: reason, kind: :timeout, retryable?: true}
  end

  def from_transport({:connection, cause} = reason),
    do: %__MODULE__{reason: reason, kind: connection(cause), retryable?: cause in @transient}

  def from_transport(reason), do: %__MODULE__{reason: reason, kind: :invalid_response}

  defp connection(cause) when cause in [:closed, :econnreset, :econnaborted, :epipe], do: :closed
  # All connections of our own pool were busy for too long.
  defp connection(:pool_timeout), do: :timeout
  defp connection(_cause), do: :unreachable

  @doc false
  # Returns the part that is kept with a conversation, see `t:AshAgent.Context.Audit.failure/0`.
  def to_failure(%__MODULE__{} = error) do
    texts = %{
      code: code(error.reason),
      request_id: error.request_id,
      timeout: timeout(error.reason),
      part: if(error.response, do: "stream"),
      message: error.provider_message
    }

    # A model of the application's own may put anything into its error.
    texts =
      for {key, text} <- texts, is_binary(text), String.valid?(text), into: %{}, do: {key, text}

    for {key, number} <- Map.take(error, [:status, :attempt]),
        is_integer(number) and number >= 0,
        into: Map.put(texts, :kind, kind(error.kind)),
        do: {key, number}
  end

  @kinds [:rate_limited, :quota, :overloaded, :server_error, :context_overflow, :unauthorized] ++
           [:invalid_request, :refused, :timeout, :closed, :unreachable, :invalid_response]

  defp kind(kind) when kind in @kinds, do: kind
  defp kind(_other), do: :invalid_response

  defp code({kind, code}) when kind in [:provider, :empty] and is_binary(code), do: code
  defp code(_reason), do: nil

  defp timeout(:timeout), do: "whole"
  defp timeout({:timeout, limit}), do: to_string(limit)
  defp timeout(_reason), do: nil

  @doc false
  # The error of an answer that came to nothing, with the provider's word for how it ended.
  def empty(word),
    do: %__MODULE__{reason: {:empty, word}, kind: :invalid_response, retryable?: true}

  @doc false
  # The error of a request that was not sent.
  def from_request(exception),
    do: %__MODULE__{reason: {:request, exception}, kind: :invalid_request}

  @doc false
  # The error of a response that cannot be read, or that reports an error.
  def from_response(%{reason: {:too_deep, limit}}),
    do: from_transport({:invalid_response, "nested deeper than #{limit} levels"})

  # A server that speaks another protocol will go on doing so.
  def from_response(%{reason: {:invalid_response, _} = reason}), do: from_transport(reason)

  def from_response(error) do
    names = [:reason, :kind, :retryable?, :retry_after, :provider_message]
    struct!(__MODULE__, Map.take(error, names))
  end

  @impl true
  def message(%{provider_message: words} = error),
    do: explain(error) <> wait(error.retry_after) <> if(words, do: ": " <> words, else: "")

  defp explain(%{kind: :context_overflow, reason: reason}) do
    "the request is longer than the model takes#{source(reason)}; hide, clear or summarize a part of the conversation " <>
      "(see the guide on budgets), or choose a model with a larger window"
  end

  defp explain(%{kind: :quota, reason: reason}),
    do: "the account's allowance is used up#{source(reason)}; check its plan and its bill"

  defp explain(%{kind: :refused, reason: reason}),
    do: "the provider's content filter refused the request#{source(reason)}"

  defp explain(%{reason: reason}), do: describe(reason)

  defp source({:status, status}), do: " (status #{status})"
  defp source({:provider, code}) when code != nil, do: " (#{code})"
  defp source(_reason), do: ""

  defp wait(ms) when is_integer(ms) and ms >= 120_000,
    do: "; it asks to wait #{div(ms + 59_999, 60_000)} minutes"

  defp wait(ms) when is_integer(ms) and ms > 0, do: "; it asks to wait #{div(ms + 999, 1_000)} s"
  defp wait(_none), do: ""

  @words %{
    {:status, 529} => "the provider is overloaded (status 529); try again later",
    {:status, 429} => "the provider wants fewer requests (status 429); wait, then try again",
    {:status, 401} => "the provider does not accept the API key (status 401); check :api_key",
    {:status, 404} =>
      "the provider does not know this model or path (status 404); check :model and :base_url",
    {:provider, nil} => "the provider reported an error",
    :incomplete => "the provider's answer ended before it was complete; try again",
    :timeout => "the provider did not complete its answer in time; allow a longer :timeout",
    {:timeout, :connect} =>
      "could not connect to the provider in time; check :base_url, or allow a longer :connect_timeout",
    {:timeout, :first_byte} =>
      "the provider did not start to respond in time; allow a longer :first_byte_timeout",
    {:timeout, :idle} =>
      "the provider stopped in the middle of its answer; try again, or allow a longer :idle_timeout",
    {:connection, :closed} => "the connection to the provider was cut; try again",
    {:connection, :pool_timeout} =>
      "all connections of the pool are busy; make the pool larger, or allow a longer pool_timeout",
    {:connection, :no_cacerts} =>
      "no CA certificates were found on this machine: install its ca-certificates package, or pass ssl: [cacertfile: path]"
  }

  defp describe(reason) when is_map_key(@words, reason), do: Map.fetch!(@words, reason)

  defp describe({kind, what}) do
    case kind do
      :status when what in [502, 503, 504] ->
        "a gateway answered with status #{what} because the provider did not respond; try again later"

      :status when what in 300..399 ->
        "the provider redirects (status #{what}), which is not followed; check :base_url"

      :status ->
        "the provider refused the request (status #{what})"

      :provider ->
        "the provider reported an error (#{what})"

      :empty ->
        "the model ended with neither words nor calls (#{what || "no reason given"}); run again, or look at the schemas of the tools"

      :connection ->
        "could not connect to the provider (#{inspect(what, limit: 20, printable_limit: 200)}); check :base_url and the network"

      :invalid_response ->
        "the provider's answer cannot be read (#{what}); check that :base_url is that of its API"

      :response_too_large ->
        "the provider's answer is longer than #{what} bytes; allow more with :max_response_bytes"

      :request ->
        "the context cannot be sent: " <> Exception.message(what)
    end
  end
end
