defmodule AshAgent.Sessions.Webhook do
  @schema AshAgent.Options.schema([
            {:to, {:or, [:atom, {:fun, 4}]}, [required: true],
             "the name of an `AshAgent.Sessions`, or a function that gets the id of the conversation, the arrival key, the outcome and options, and " <>
               "returns what `AshAgent.Sessions.arrive/5` returns. After the deadline it is not called: everything is late then."},
            {:secrets, {:list, :any}, [required: true, type_doc: "a list of `{key id, secret}`"],
             "secrets of 32 bytes or more, each with an id of letters, digits, `-` and `_`, which stands in the address. The first one signs, and all are " <>
               "accepted: to rotate, put a new one in front, and take the old one out when its addresses have passed."},
            {:address, :string, [default: ""],
             "what the addresses begin with, such as `\"https://app.example.com/arrivals\"`."},
            {:outcome, {:fun, 1},
             "gets the JSON of the body, and returns the outcome: `{:ok, term}`, `{:error, reason}`, or `:ignore` for what is no result yet. Defaults " <>
               "to `{:ok, json}`."},
            {:from, :any, [default: "webhook"],
             "from whom the results are, for `AshAgent.Store.arrive/5`."},
            {:max_bytes, :pos_integer, [default: 262_144], "how long a body may be."}
          ])

  @moduledoc """
  Signed addresses at which others deliver the late result of a call over HTTP.

      webhook =
        AshAgent.Sessions.Webhook.new(
          to: MyApp.Sessions,
          secrets: [{"2026-11", System.fetch_env!("WEBHOOK_SECRET")}],
          address: "https://app.example.com/arrivals"
        )

      address = AshAgent.Sessions.Webhook.address(webhook, id, key, deadline)

  Whoever has an address can give one result to one start of one call, until the deadline. It is made of the conversation's id, the arrival key and
  the deadline, encrypted and authenticated (HMAC-SHA256) with the secret: none of them can be read in it or changed. The same call has the same
  address again, so a job that starts twice asks for the same one.

  A webhook is a function from a request to a response; `AshAgent.Sessions.Webhook.Plug` has it in an endpoint of Phoenix or Plug.

  | status | |
  |---|---|
  | 200 | the result is stored, was stored before, also when the deadline has passed since, or is ignored |
  | 400 | the body is not JSON |
  | 404 | the address is not one of ours, or its conversation or call is gone |
  | 405, 413, 415 | not POST; more than `:max_bytes`; not `application/json` |
  | 409 | the call has another result, or was called off |
  | 410 | the deadline has passed, or the conversation was rewound |
  | 500, 503 | a function of yours failed, or the store; sending it again is safe |

  Neither an address nor a body is logged here.

  ## Options

  #{AshAgent.Options.docs(@schema)}
  """

  use AshAgent.Arguments

  require Logger

  alias AshAgent.Context.JSON
  alias AshAgent.{Options, Sessions, Store}
  alias AshAgent.Runtime.Events

  @derive {Inspect, only: []}
  @enforce_keys [:to, :secrets, :address, :outcome, :from, :max_bytes]
  defstruct @enforce_keys

  @typedoc "A webhook, see `new/1`."
  @opaque t :: %__MODULE__{}

  @typedoc "A request: `path` has the segments below the address, and the names of `headers` are in lower case."
  @type request :: %{
          required(:method) => String.t(),
          required(:path) => [String.t()],
          required(:headers) => [{String.t(), String.t()}],
          required(:body) => binary(),
          optional(atom()) => term()
        }

  @type response :: {status :: pos_integer(), [{String.t(), String.t()}], String.t()}

  # The tag of an address, and what of it begins the key stream.
  @tag 32
  @iv 16

  @statuses %{
    answered: 409,
    cancelled: 409,
    late: 410,
    rewound: 410,
    unknown: 404,
    not_found: 404,
    invalid: 400,
    method: 405,
    too_large: 413,
    content_type: 415,
    failed: 500,
    unavailable: 503
  }

  @doc """
  Returns a webhook. Raises `ArgumentError` for unknown, missing and wrong options.

  ## Examples

      iex> AshAgent.Sessions.Webhook.new(to: MyApp.Sessions, secrets: [{"2026-11", String.duplicate("s", 32)}])
      #AshAgent.Sessions.Webhook<...>
  """
  @doc since: "0.1.0"
  @spec new(keyword()) :: t()
  def new(opts) do
    opts = Options.validate!(opts, @schema)

    unless opts[:secrets] != [] and Enum.all?(opts[:secrets], &secret?/1) do
      AshAgent.Caller.refuse!(
        "expected :secrets to be a list of {key id, secret}: ids of 1 to 32 letters, digits, - and _, and secrets of at least 32 bytes"
      )
    end

    struct!(__MODULE__, [outcome: &{:ok, &1}] |> Keyword.merge(opts))
  end

  defp secret?({id, secret}) when is_binary(id) and is_binary(secret),
    do: byte_size(secret) >= 32 and id =~ ~r/\A[A-Za-z0-9_-]{1,32}\z/

  defp secret?(_other), do: false

  ## Addresses

  @doc """
  Returns the address for the result of a call: `key` is its arrival key, see `AshAgent.Store.arrive/5`. After the deadline it is refused.

  ## Examples

      iex> webhook = AshAgent.Sessions.Webhook.new(to: MyApp.Sessions, secrets: [{"k1", String.duplicate("s", 32)}], address: "https://app.example.com/arrivals")
      iex> "https://app.example.com/arrivals/k1." <> sealed = AshAgent.Sessions.Webhook.address(webhook, "c1", "key.1", ~U[2026-01-01 12:00:00Z])
      iex> sealed =~ "c1"
      false
  """
  @doc since: "0.1.0"
  @spec address(t(), Store.id(), String.t(), DateTime.t()) :: String.t()
  def address(
        %__MODULE__{secrets: [{key_id, secret} | _]} = webhook,
        id,
        key,
        %DateTime{} = deadline
      )
      when is_binary(id) and is_binary(key) do
    text =
      <<max(DateTime.to_unix(deadline, :microsecond), 0)::64, byte_size(id)::16, id::binary,
        key::binary>>

    webhook.address <> "/" <> key_id <> "." <> seal(text, key_id, secret)
  end

  # The tag authenticates the text and begins its key stream, so there is no number that must not be used twice.
  defp seal(text, key_id, secret) do
    tag = tag(text, key_id, secret)
    Base.url_encode64(tag <> stream(text, tag, secret), padding: false)
  end

  defp open(token, webhook) do
    with [key_id, sealed] <- String.split(token, "."),
         {_id, secret} <- List.keyfind(webhook.secrets, key_id, 0),
         {:ok, <<tag::binary-size(@tag), sealed::binary>>} <-
           Base.url_decode64(sealed, padding: false),
         text = stream(sealed, tag, secret),
         true <- :crypto.hash_equals(tag, tag(text, key_id, secret)),
         <<deadline::64, size::16, id::binary-size(size), key::binary>> <- text do
      {:ok, id, key, deadline}
    else
      _other -> {:error, :not_found}
    end
  end

  defp tag(text, key_id, secret),
    do: :crypto.mac(:hmac, :sha256, derive(secret, "sign"), [<<byte_size(key_id)>>, key_id, text])

  defp stream(text, <<iv::binary-size(@iv), _rest::binary>>, secret),
    do: :crypto.crypto_one_time(:aes_256_ctr, derive(secret, "seal"), iv, text, true)

  defp derive(secret, use),
    do: :crypto.mac(:hmac, :sha256, secret, "AshAgent.Sessions.Webhook " <> use)

  ## Requests

  @doc """
  Answers a request: stores the result that it brings.

  ## Examples

      iex> webhook = AshAgent.Sessions.Webhook.new(to: MyApp.Sessions, secrets: [{"k1", String.duplicate("s", 32)}])
      iex> {status, _headers, body} = AshAgent.Sessions.Webhook.call(webhook, %{method: "POST", path: ["x"], headers: [], body: "{}"})
      iex> {status, body}
      {404, ~s({"error":"not_found"})}
  """
  @doc since: "0.1.0"
  @spec call(t(), request()) :: response()
  def call(%__MODULE__{} = webhook, %{method: method, path: path, headers: headers, body: body})
      when is_list(path) and is_list(headers) and is_binary(body) do
    with :ok <- check(method == "POST", :method),
         {:ok, id, key, deadline} <- open(List.first(path) || "", webhook),
         :ok <- check(length(path) == 1, :not_found),
         :ok <- check(is_atom(webhook.to) or not passed?(deadline), :late),
         :ok <- check(json?(headers), :content_type),
         :ok <- check(byte_size(body) <= webhook.max_bytes, :too_large),
         {:ok, json} <- decode(body),
         {:ok, stored} <- guard(fn -> deliver(webhook, id, key, json, deadline) end) do
      respond(200, %{status: stored})
    else
      {:error, reason} when is_map_key(@statuses, reason) ->
        respond(@statuses[reason], %{error: reason})

      {:error, _store_error} ->
        respond(503, %{error: :unavailable})
    end
  end

  @doc false
  def max_bytes(%__MODULE__{max_bytes: max}), do: max

  defp check(true, _reason), do: :ok
  defp check(false, reason), do: {:error, reason}

  defp passed?(deadline), do: System.system_time(:microsecond) > deadline

  defp json?(headers) do
    type =
      for {"content-type", type} <- headers,
          do: type |> String.split(";") |> hd() |> String.trim()

    Enum.map(type, &String.downcase/1) == ["application/json"]
  end

  defp decode(body) do
    with {:error, _error} <- JSON.decode(body), do: {:error, :invalid}
  end

  defp deliver(webhook, id, key, json, deadline) do
    case webhook.outcome.(json) do
      :ignore -> {:ok, :ignored}
      outcome -> arrive(webhook.to, id, key, outcome, webhook.from, deadline)
    end
  end

  defp arrive(to, id, key, outcome, from, _deadline) when is_function(to),
    do: to.(id, key, outcome, from: from)

  defp arrive(sessions, id, key, outcome, from, deadline) do
    opts = [from: from, until: DateTime.from_unix!(deadline, :microsecond)]
    Sessions.arrive(sessions, id, key, outcome, opts)
  end

  # What an application raises may have the body in it.
  defp guard(fun) do
    case fun.() do
      {:ok, stored} when stored in [:kept, :again, :ignored] -> {:ok, stored}
      {:error, reason} -> {:error, reason}
      _other -> fail("returned neither {:ok, :kept}, {:ok, :again} nor an error")
    end
  catch
    kind, reason -> fail("failed: " <> inspect(Events.label(kind, reason)))
  end

  defp fail(words) do
    Logger.error("a function of AshAgent.Sessions.Webhook " <> words)
    {:error, :failed}
  end

  @headers [
    {"content-type", "application/json"},
    {"cache-control", "no-store"},
    {"referrer-policy", "no-referrer"},
    {"x-content-type-options", "nosniff"}
  ]

  defp respond(405, body), do: {405, [{"allow", "POST"} | @headers], JSON.encode(body)}
  defp respond(503, body), do: {503, [{"retry-after", "10"} | @headers], JSON.encode(body)}
  defp respond(status, body), do: {status, @headers, JSON.encode(body)}
end
