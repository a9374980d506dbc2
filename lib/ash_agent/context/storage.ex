defmodule AshAgent.Context.Storage do
  @moduledoc """
  The stored form of a conversation, a map of JSON data or its text, whole or as a delta; and its plain terms.

  Call these as functions of `AshAgent.Context`, which checks their arguments and makes contexts of the results. Here they take
  anything with the context's `:ref`, and those that make a context return its fields in a map. The guide [Storage](storage.html)
  describes the form.
  """

  alias AshAgent.Context.{Error, Native, Options, Reply, Trust}

  @type loaded :: {:ok, Reply.handle()} | {:error, Error.t()}

  @doc """
  Makes a context from attributes, such as those that `to_map/1` returns, and returns `{:ok, context}` or `{:error,
  error}`.

  Attributes are a map or a keyword list with `:iterations`, `:current_iteration`, `:id`, `:metadata`, `:origin`,
  `:created_at` and `:updated_at`, all optional. Keys within them may be atoms or strings, times `DateTime`s or ISO 8601
  text, and results `{:ok, term}`, `["ok", term]` or `%{"ok" => term}`. `current_iteration` is the number of the last
  iteration, or the next number, in which case an empty iteration opens. Without iterations, the context has an empty
  first one, and the number may be 0, as ash_agent stores it.

  Results are taken from an iteration's `:tool_calls`, or from the messages that show them if the calls have no results.

  The error's reason is `{:invalid, path, expected}`, or one of those that the `add_*` functions raise.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, copy} = AshAgent.Context.create(AshAgent.Context.to_map(context))
      iex> AshAgent.Context.equal?(context, copy)
      true

      iex> {:error, error} = AshAgent.Context.create(iterations: [%{messages: [%{role: :robot}]}])
      iex> error.reason
      {:invalid, [:iterations, 0, :messages, 0, :role], ":system, :user or :assistant"}
  """
  @doc since: "0.1.0"
  @spec create(map() | keyword()) :: loaded()
  def create(attributes),
    do: attributes |> Options.attributes!() |> Native.context_create(nil) |> Reply.put()

  @doc """
  Replaces attributes of a context and returns `{:ok, context}` or `{:error, error}`.

  Attributes are those of `create/1`; the others stay. `:updated_at` defaults to now.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, context} = AshAgent.Context.update(context, %{current_iteration: 2})
      iex> context.current_iteration
      2
  """
  @doc since: "0.1.0"
  @spec update(context, map() | keyword()) :: {:ok, context} | {:error, Error.t()}
        when context: Reply.handle()
  def update(%{ref: ref} = context, attributes),
    do: ref |> Native.context_update(Options.attributes!(attributes), nil) |> Reply.put(context)

  @doc """
  Returns the conversation as plain terms: `:id`, `:iterations`, `:current_iteration`, `:metadata`, `:created_at` and
  `:updated_at`, and for a fork its `:origin`, see `AshAgent.Context.fork/2`.

  Costs O(n). `create/1` makes a context from it that returns the same map again. The map leaves out what stands
  beside the conversation (views, pins, failures, notes of requests, decisions about calls and pauses), the JSON text of arguments that were given as text, and
  whether an error came from `AshAgent.Context.interrupt/2`. `dump/2` keeps everything.

  ## Examples

      iex> AshAgent.Context.new("Hello!", id: "c1", at: ~U[2026-01-01 10:00:00Z]) |> AshAgent.Context.to_map() |> Map.delete(:iterations)
      %{
        id: "c1",
        current_iteration: 1,
        metadata: %{},
        created_at: ~U[2026-01-01 10:00:00.000000Z],
        updated_at: ~U[2026-01-01 10:00:00.000000Z]
      }
  """
  @doc since: "0.1.0"
  @spec to_map(Reply.handle()) :: map()
  def to_map(%{ref: ref} = _context), do: ref |> Native.context_to_map() |> Reply.ok!()

  @doc """
  Returns the conversation as a map with string keys that contains only JSON data, to be stored.

  `load/1` makes an equal context from it, also after the map went through JSON text or JSONB. The format is versioned and
  described in the guide [Storage](storage.html). Costs O(n).

  ## Options

  #{Options.docs(:dump)}

  Give at most one of the two. Raises `AshAgent.Context.Error` with `{:unknown_iteration, number, first..last}`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", id: "c1", at: ~U[2026-01-01 10:00:00Z])
      iex> AshAgent.Context.dump(context)
      %{
        "version" => 1,
        "id" => "c1",
        "created_at" => "2026-01-01T10:00:00.000000Z",
        "updated_at" => "2026-01-01T10:00:00.000000Z",
        "metadata" => %{},
        "iterations" => [
          %{
            "number" => 1,
            "started_at" => "2026-01-01T10:00:00.000000Z",
            "completed_at" => nil,
            "metadata" => %{},
            "messages" => [%{"role" => "user", "content" => "Hello!"}]
          }
        ]
      }
  """
  @doc since: "0.1.0"
  @spec dump(Reply.handle(), keyword()) :: map()
  def dump(context, opts \\ [])

  def dump(%{ref: ref} = _context, []), do: ref |> Native.snapshot_dump(0) |> Reply.ok!()

  def dump(%{ref: ref} = _context, opts) do
    case Options.validate!(opts, :dump) do
      [since: number] ->
        ref |> Native.snapshot_dump(number || 0) |> Reply.ok!()

      [beside: %{ref: base}] ->
        ref |> Native.snapshot_dump_beside(base) |> Reply.ok!()

      _ ->
        AshAgent.Caller.refuse!("options :since and :beside exclude each other: give one of them")
    end
  end

  @doc """
  Makes a context from a map that `dump/2` returned, and returns `{:ok, context}` or `{:error, error}`.

  The data may come from anywhere: an error has the path to the problem, and loading never creates atoms. An atom that
  this VM does not have is loaded as `AshAgent.Context.UnknownAtom`.

  A document can claim that a person approved a tool call, and it can name a struct of any module, such as a `File.Stream`
  of any path, which a tool then finds in its arguments. Trust both only in documents that the application itself stored.
  Load others with `load(document, approvals: :drop, structs: :known)`. Their messages and tool results are still whatever
  their author wrote.

  With a context as the first argument, `load(context, delta)` puts a delta that `dump/2` made with `:since` or `:beside`
  onto it. The delta's iterations replace those of the context from the first of them on. Everything else in the
  conversation, such as its metadata, is taken from the delta. Loading a delta twice is the same as loading it once. A
  delta of a conversation with another id, or one that leaves a gap, is an error. Options come after the delta and are for
  it alone: the context's own contents are not affected by them. Costs O(size of the delta).

  ## Options

  #{Options.docs(:load)}

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, copy} = AshAgent.Context.load(AshAgent.Context.dump(context))
      iex> AshAgent.Context.equal?(context, copy)
      true

      iex> {:error, error} = AshAgent.Context.load(%{"version" => 1, "id" => 7})
      iex> error.reason
      {:invalid, ["id"], "text"}

      iex> document = AshAgent.Context.dump(AshAgent.Context.new("Hello!", metadata: %{day: ~D[2026-02-28], at: 1..3}))
      iex> {:ok, context} = AshAgent.Context.load(document, structs: :known)
      iex> AshAgent.Context.metadata(context)
      %{day: ~D[2026-02-28], at: %{first: 1, last: 3, step: 1}}

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.load!(AshAgent.Context.dump(context)).current_iteration
      1

      iex> stored = AshAgent.Context.new("Hello!")
      iex> context = stored |> AshAgent.Context.add_assistant_message("Hi!") |> AshAgent.Context.add_user_message("Bye.")
      iex> delta = AshAgent.Context.dump(context, since: stored.current_iteration)
      iex> {:ok, loaded} = AshAgent.Context.load(stored, delta)
      iex> AshAgent.Context.equal?(loaded, context)
      true

      iex> context = AshAgent.Context.new("Hello!", metadata: %{pages: 1..3})
      iex> delta = AshAgent.Context.dump(context, since: 1)
      iex> {:ok, context} = AshAgent.Context.load(context, delta, structs: :drop)
      iex> AshAgent.Context.metadata(context)
      %{pages: %{first: 1, last: 3, step: 1}}

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.load!(context, AshAgent.Context.dump(context, since: 1)).current_iteration
      1
      iex> AshAgent.Context.load!(AshAgent.Context.dump(context), structs: :known).current_iteration
      1

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.load!(context, AshAgent.Context.dump(context, since: 1), approvals: :drop).current_iteration
      1
  """
  @doc since: "0.1.0"
  @spec load(document :: term(), keyword()) :: loaded()
  @spec load(Reply.handle(), delta :: term(), keyword()) :: loaded()
  def load(document_or_context, delta_or_opts \\ [], opts \\ [])

  def load(%{ref: ref} = context, delta, opts) when is_reference(ref),
    do: ref |> Native.snapshot_load_delta(delta, Trust.check!(opts)) |> Reply.put(context)

  def load(document, opts, []) when is_list(opts),
    do: document |> Native.snapshot_load(Trust.check!(opts)) |> Reply.put()

  @doc """
  Makes a context from a map that `dump/1` or `AshAgent.Context.to_map/1` returned, or from text that `to_snapshot/1` returned. Returns
  `{:ok, context}` or `{:error, error}`; a context is returned as it is.

  Use `load/2` or `from_snapshot/2` for documents from elsewhere: their options say how far to trust them.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> for kept <- [context, AshAgent.Context.dump(context), AshAgent.Context.to_snapshot(context)] do
      ...>   {:ok, copy} = AshAgent.Context.restore(kept)
      ...>   AshAgent.Context.equal?(context, copy)
      ...> end
      [true, true, true]

      iex> {:ok, context} = AshAgent.Context.restore(%{iterations: [%{number: 1, messages: []}]})
      iex> context.current_iteration
      1
  """
  @doc since: "0.1.0"
  @spec restore(map() | binary()) :: loaded()
  def restore(text) when is_binary(text), do: from_snapshot(text)
  # Documents of dump/1 have a version, maps of to_map/1 do not.
  def restore(%{"version" => _} = document), do: load(document)

  def restore(%{} = attributes) when not is_struct(attributes),
    do: attributes |> Native.context_create(nil) |> Reply.put()

  def restore(%{}), do: {:error, %Error{reason: {:invalid, [], "a context, or a map of one"}}}

  @doc """
  Returns the conversation as JSON text, equal to the encoded `dump/2` but made without the map. Costs O(n).

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> text = AshAgent.Context.to_snapshot(context)
      iex> AshAgent.Context.JSON.decode!(text) == AshAgent.Context.dump(context)
      true
  """
  @doc since: "0.1.0"
  @spec to_snapshot(Reply.handle()) :: binary()
  def to_snapshot(%{ref: ref} = _context), do: ref |> Native.snapshot_encode() |> Reply.ok!()

  @doc """
  Makes a context from the JSON text that `to_snapshot/1` returned, and returns `{:ok, context}` or `{:error, error}`.
  Takes the options of `load/1`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, copy} = AshAgent.Context.from_snapshot(AshAgent.Context.to_snapshot(context))
      iex> AshAgent.Context.equal?(context, copy)
      true

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.from_snapshot!(AshAgent.Context.to_snapshot(context)).current_iteration
      1
  """
  @doc since: "0.1.0"
  @spec from_snapshot(binary(), keyword()) :: loaded()
  def from_snapshot(text, opts \\ []),
    do: text |> Native.snapshot_decode(Trust.check!(opts)) |> Reply.put()
end
