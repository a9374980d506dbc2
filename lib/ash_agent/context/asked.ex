defmodule AshAgent.Context.Asked do
  @moduledoc """
  The fields and tools of requests to models, kept with the conversation.

  `AshAgent.Runtime` records them for each request: provider and model, the fields of the body, and the tools. Parts that are the
  same as in the request before take no room. Pages show how a request differs from the one before it, and traces have the
  parameters. The record is stored with the conversation and forked with it, and models never see it.

  Call these as functions of `AshAgent.Context`, which checks their arguments. Here they take anything with the context's `:ref`.
  """

  alias AshAgent.Context.{Error, Native, Options, Reply, Requests}

  @typedoc "What is noted of an iteration's request, see `get_request/2`."
  @type t :: %{fields: map() | nil, tools: [map()] | nil, sent: String.t() | nil}

  @doc """
  Records what the request of the current iteration asks for, and returns the new context.

  `asked` is a map with `"model"`, `"provider"`, `"server"`, `"port"` and the `"body"` without messages and tools, as far as they
  are known, and `tools` a list of maps; `nil` keeps the earlier record. Put neither keys nor tokens in it.

  ## Options

  #{Options.docs(:put_request)}

  ## Examples

      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.put_request(%{"model" => "m"}, [%{"name" => "look"}])
      iex> {:ok, response} = AshAgent.Response.decode(:ollama, %{message: %{content: "Hello!"}, done: true})
      iex> {:ok, context} = AshAgent.Context.add_response(context, response, requested_at: ~U[2026-01-01 10:00:00Z])
      iex> AshAgent.Context.get_request(context, 1)
      %{fields: %{"model" => "m"}, tools: [%{"name" => "look"}], sent: nil}
  """
  @doc since: "0.1.0"
  @spec put_request(context, map() | nil, [map()] | nil, keyword()) :: context
        when context: Reply.handle()
  def put_request(%{ref: ref} = context, asked, tools, opts \\ []) do
    hashed? = Options.validate!(opts, :put_request)[:keep] == :hashes
    ref |> Native.context_note_request(asked, tools, hashed?) |> Reply.put!(context)
  end

  @doc """
  Records the length and digests of 61 bits of the next request, and returns `{:ok, context}`, or `{:error, error}` as
  `AshAgent.Context.request/3` does.

  One is of the system prompt and the messages as they are encoded under the options, without marks for the cache; then there is one for each message and
  result that the request before had not, one of the view, and the version of the package. So it is known later whether
  a request that is made again from the log is the one that was sent, see `replay/1`, and `AshAgent.Context.account/2` blames the provider for an unread
  cache only then.
  `AshAgent.Runtime` does this for the package's clients. Takes the options of `AshAgent.Context.request/3`. If everything is encoded, it costs O(1)
  for each piece.

  ## Examples

      iex> {:ok, context} = AshAgent.Context.new("Hi") |> AshAgent.Context.put_sent(:anthropic)
      iex> [%{"sent" => sent}] = AshAgent.Context.dump(context)["iterations"]
      iex> sent =~ ~r/^[0-9]+-[0-9a-f]{16} [0-9.]+ -( [0-9a-f]{16})+$/
      true
  """
  @doc since: "0.1.0"
  @spec put_sent(context, Requests.provider(), keyword()) :: {:ok, context} | {:error, Error.t()}
        when context: Reply.handle()
  def put_sent(%{ref: ref} = context, provider, opts \\ []) do
    options = Requests.checked_options(provider, opts)
    ref |> Native.context_note_sent(options) |> Reply.put(context)
  end

  @typedoc """
  A request that was made again, see `replay/1`.

    * `iteration` - the number of its iteration
    * `outcome` - `:same`; `:different`; `:follows`, if it differs as an earlier one does and in nothing else that is known; `:other_prompt`
      or `:other_masks`, if its system prompt or its masks are not the conversation's any more, and so not known; or `:unnoted`, if it is not known what was sent
    * `cause` - of a difference: `:log` if a message or result is not the one that was sent, `:view` if the view is not, and
      `{:version, version}` if that version of the package made it
    * `place` - the first message or result that differs: the number of its iteration, its position there, and the id of a result's call, or `nil`;
      `nil` if it is nothing that the request had for the first time
  """
  @type replayed :: %{
          required(:iteration) => pos_integer(),
          required(:outcome) =>
            :same | :different | :follows | :other_prompt | :other_masks | :unnoted,
          optional(:cause) => :log | :view | {:version, String.t()},
          optional(:place) => {pos_integer(), non_neg_integer(), String.t() | nil} | nil
        }

  @doc """
  Rebuilds each request that was answered, and compares it with what was sent, by the digests of `put_sent/3`.

  Each is rebuilt from the log as it was then, with the view and the options that it had, by this version of the package. Nothing is sent. The options are
  those that `put_request/3` noted under `"model"`, `"provider"` and `"request"`, which `AshAgent.Runtime` does for the package's clients. Costs O(n) for
  encoding, and O(n) for each request in pieces that are encoded.

  ## Examples

      iex> alias AshAgent.{Context, Response}
      iex> {:ok, context} = Context.new("Hi") |> Context.put_sent(:ollama)
      iex> {:ok, response} = Response.decode(:ollama, %{message: %{content: "Hello!"}, done: true})
      iex> {:ok, context} = Context.add_response(context, response, requested_at: ~U[2026-01-01 10:00:00Z])
      iex> Context.replay(context)
      [%{iteration: 1, outcome: :same}]
      iex> edited = context |> Context.to_snapshot() |> String.replace("Hi", "Ho") |> Context.from_snapshot!()
      iex> Context.replay(edited)
      [%{iteration: 1, outcome: :different, cause: :log, place: {1, 0, nil}}]
  """
  @doc since: "0.1.0"
  @spec replay(Reply.handle()) :: [replayed()]
  def replay(%{ref: ref} = _context), do: ref |> Native.context_replay() |> Reply.ok!()

  @doc false
  # Like `fetch_asked/2`, but with the view of the request before.
  def fetch_asked_before(%{ref: ref} = context, number),
    do: ref |> Native.context_as_asked_before(number) |> put_asked(context)

  @doc false
  # The causes why two views of a conversation show something else, as in `AshAgent.Context.Account`, each with the first iteration.
  def view_changes(%{ref: ref}, %{ref: other}),
    do: ref |> Native.context_view_changes(other) |> Reply.ok!()

  @doc """
  Returns what the request of an iteration asked for. Fields are `nil` if they were not recorded, or if no request is known.

  `sent` is the digest of `put_sent/3`: the length in bytes and 16 hexadecimal digits.

  ## Examples

      iex> AshAgent.Context.new("Hi") |> AshAgent.Context.get_request(1)
      %{fields: nil, tools: nil, sent: nil}
  """
  @doc since: "0.1.0"
  @spec get_request(Reply.handle(), integer()) :: t()
  def get_request(%{ref: ref} = _context, number) do
    {fields, tools, sent} = ref |> Native.context_request_note(number) |> Reply.ok!()
    %{fields: fields, tools: tools, sent: sent}
  end

  @doc """
  Returns `{:ok, context}`, the conversation as it was when the last request of an iteration was made, or `:error` if no request is known.

  It has the view of that time, under the current system prompt, and under the current masks if the old ones are no longer known. Encoded the same way,
  it is the request that the provider got; the digest of `put_sent/3` says whether it really is. Costs O(log n), or O(n) if current masks
  apply to notes and summaries that were made under others.

  ## Examples

      iex> alias AshAgent.{Context, Response}
      iex> {:ok, response} = Response.decode(:anthropic, %{type: "message", content: [%{type: "text", text: "Hello!"}]})
      iex> {:ok, context} = Context.new("Hi") |> Context.add_response(response, requested_at: DateTime.utc_now())
      iex> {:ok, asked} = Context.fetch_asked(context, 1)
      iex> Context.to_messages(asked)
      [%{role: :user, content: "Hi"}]
      iex> Context.fetch_asked(asked, 1)
      :error
  """
  @doc since: "0.1.0"
  @spec fetch_asked(context, integer()) :: {:ok, context} | :error when context: Reply.handle()
  def fetch_asked(%{ref: ref} = context, number),
    do: ref |> Native.context_as_asked(number) |> put_asked(context)

  defp put_asked({:ok, nil}, _context), do: :error

  defp put_asked(reply, context),
    do: {:ok, reply |> Reply.ok!() |> then(&Reply.put!({:ok, &1}, context))}
end
