defmodule AshAgent.Context do
  @moduledoc """
  An LLM agent's conversation: an immutable value, structured in iterations, held in Rust behind a handle.

      iex> alias AshAgent.Context
      iex> context = Context.new("What's the weather in NYC?", system_prompt: "You are a helpful assistant")
      iex> context = Context.add_assistant_message(context, "I'll check", [
      ...>   %{id: "call_1", name: :get_weather, arguments: %{city: "NYC"}}
      ...> ])
      iex> context = Context.add_tool_results(context, [%{id: "call_1", result: {:ok, %{temp: 72}}}])
      iex> context.current_iteration
      2
      iex> Context.get_iteration(context, 1).tool_calls
      [%{id: "call_1", name: :get_weather, arguments: %{city: "NYC"}, result: {:ok, %{temp: 72}}}]
      iex> Context.to_messages(context) |> List.last()
      %{role: :user, content: [%{type: :tool_result, tool_use_id: "call_1", content: "{\\"temp\\":72}", is_error: false}]}

  An **iteration** is one cycle of the agent loop: input, the model's answer, tool execution, results. Iterations are
  numbered from 1; a number is never used again. A tool result lives in the slot of its call: a result without a call,
  a second result for one call, or results in the wrong order cannot exist. The message with the results that models
  see is made from the slots, in the order of the calls.

  ## Values

  Every function that changes a conversation returns a new context that shares structure with the old; the old one is
  as it was, in every process, for ever. Terms come back equal to what was put in: atoms, tuples, structs, integers of
  any size, floats, binaries that are no UTF-8. Terms that live only in this VM (pids, ports, references, functions) are
  kept as their printed text. Improper lists and bitstrings that are not whole bytes are refused, and so are values
  nested deeper than 256 levels.

  ## Errors

  A caller's mistakes (a wrong type, an unknown option) raise `FunctionClauseError` or `ArgumentError`. What data can
  cause raises `AshAgent.Context.Error` with a reason to match on, or is returned as `{:error, error}` by the functions
  that have a `!` twin.

  ## Sharing and lifetime

  A context is a small struct around a reference: handing it to another process costs about a microsecond, whatever
  its size, and a fork costs nothing. The conversation is freed when the last context or binary that points into it is
  garbage collected. Long texts that you get from a context are binaries that point into it and keep that version of it
  alive; `:binary.copy/1` detaches one.

  Two contexts with equal contents are not `==`, since handles compare by identity: use `equal?/2`. A context works on
  the node that made it only; to store it or to send it to another node, take `dump/2` or `to_snapshot/1`.

  ## Limits

  Values are at most 256 levels deep. Times are kept in UTC with microseconds, of the years 0 to 9999. Integers of more
  than 4,300 digits are written to JSON as hexadecimal text.
  """

  alias AshAgent.Context.{Error, Native}

  @enforce_keys [:ref, :current_iteration]
  defstruct [:ref, :current_iteration]

  @typedoc """
  A conversation.

  `current_iteration` may be read and matched on. `ref` is private.
  """
  @type t :: %__MODULE__{ref: reference(), current_iteration: pos_integer()}

  @typedoc "Text, `nil` for no text, or parts in their order."
  @type content :: binary() | nil | [part()]

  @typedoc """
  A piece of content. Keys and type may also be strings.

    * `%{type: :text, text: text}`
    * `%{type: :image, media_type: "image/png", data: base64}` or `%{type: :image, url: url}`
    * `%{type: :file, media_type: "application/pdf", data: base64, filename: name}` or with `:url`; the name is optional
    * `%{type: :thinking, text: text}` and `%{type: :redacted_thinking, data: text}`: in assistant messages
    * `%{type: :provider_block, provider: :anthropic, data: map}`: not in tool results; goes to its own provider only

  Any part may carry `:provider_metadata`, a map with what its provider wants to see again, such as
  `%{provider: :anthropic, model: "...", signature: "..."}`.
  """
  @type part :: %{required(:type) => atom(), optional(atom()) => term()}

  @typedoc """
  A tool call: `%{id: id, name: name, arguments: arguments}`, keys as atoms or strings.

  `name` is an atom or text, `arguments` a map or a provider's JSON text. A call without `id` gets one made of
  iteration, message and position. `:provider_metadata` and further keys are kept.
  """
  @type tool_call :: %{required(:name) => atom() | binary(), optional(atom()) => term()}

  @typedoc """
  The result of a tool call.

  `{:ok, term}` with any term; a list of text, image and file parts gives the model those parts. Otherwise the model
  reads a binary as it is, anything else as JSON, the reason of an error in words, and "(no output)" for nothing.
  """
  @type tool_result ::
          %{required(:id) => binary(), required(:result) => result()} | {binary(), result()}
  @type result :: {:ok, term()} | {:error, term()}

  @typedoc "A message as it is shown. `:tool_calls` and `:metadata` are there only when given."
  @type message :: %{
          required(:role) => :system | :user | :assistant,
          required(:content) => content() | [map()],
          optional(:tool_calls) => [map()],
          optional(:metadata) => map()
        }

  @typedoc "An iteration as it is shown. The `:result` of a pending call is `nil`."
  @type iteration :: %{
          number: pos_integer(),
          messages: [message()],
          tool_calls: [map()],
          started_at: DateTime.t(),
          completed_at: DateTime.t() | nil,
          metadata: map()
        }

  @doc """
  Starts a conversation with a user message.

  `input` is text, a list of `t:part/0`, `%{message: text}`, or any other map, which becomes its JSON.

  ## Options

    * `:system_prompt` - text or a list of text parts. Defaults to none.
    * `:metadata` - a map kept with the conversation, see `metadata/1`. Defaults to `%{}`.
    * `:id` - the conversation's id, non-empty text; forks keep it. Defaults to a new UUID v4.
    * `:at` - the time it starts, a `DateTime`. Defaults to now.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", system_prompt: "Be brief.")
      iex> AshAgent.Context.to_messages(context)
      [%{role: :system, content: "Be brief."}, %{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0"
  @spec new(binary() | [part()] | map(), keyword()) :: t()
  def new(input, opts \\ []) when is_binary(input) or is_list(input) or is_map(input) do
    opts = Keyword.validate!(opts, [:system_prompt, :metadata, :id, :at])

    input
    |> Native.context_new(system_prompt(opts), id(opts), metadata_option(opts), at(opts))
    |> wrap!()
  end

  @doc """
  Adds a user message and returns the new context.

  It completes the current iteration and opens the next; when the model has not spoken in the current one, the message
  joins it. `input` is what `new/2` takes.

  Raises `AshAgent.Context.Error` with `{:pending_tool_calls, ids}` while tool calls wait for their results.

  ## Options

    * `:at` - the time of the message, a `DateTime`. Defaults to now.
    * `:metadata` - a map kept with the message and shown under `:metadata`. Defaults to none.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_assistant_message("Hi!")
      iex> AshAgent.Context.add_user_message(context, "How are you?").current_iteration
      2
  """
  @doc since: "0.1.0"
  @spec add_user_message(t(), binary() | [part()] | map(), keyword()) :: t()
  def add_user_message(%__MODULE__{ref: ref}, input, opts \\ [])
      when is_binary(input) or is_list(input) or is_map(input) do
    {metadata, at} = stamp(opts)
    ref |> Native.context_add_user_message(input, metadata, at) |> wrap!()
  end

  @doc """
  Adds a message of the model, with its tool calls, to the current iteration and returns the new context.

  Raises `AshAgent.Context.Error` with `{:pending_tool_calls, ids}` while earlier calls wait for their results, with
  `{:duplicate_tool_call, id}` when two calls have one id, with `{:invalid_tool_call, position, key}` or
  `{:invalid_part, position, key}`.

  Takes the options of `add_user_message/3`.

  ## Examples

      iex> context = AshAgent.Context.new("6 * 7?")
      iex> calls = [%{id: "call_1", name: "multiply", arguments: ~s({"a": 6, "b": 7})}]
      iex> context = AshAgent.Context.add_assistant_message(context, nil, calls)
      iex> AshAgent.Context.pending_tool_calls(context)
      [%{id: "call_1", name: "multiply", arguments: %{"a" => 6, "b" => 7}}]
  """
  @doc since: "0.1.0"
  @spec add_assistant_message(t(), content(), [tool_call()], keyword()) :: t()
  def add_assistant_message(%__MODULE__{ref: ref}, content, tool_calls \\ [], opts \\ [])
      when (is_binary(content) or is_list(content) or is_nil(content)) and is_list(tool_calls) do
    {metadata, at} = stamp(opts)
    ref |> Native.context_add_assistant_message(content, tool_calls, metadata, at) |> wrap!()
  end

  @doc """
  Answers pending tool calls, any number of them in any order, and returns the new context.

  When no call is pending any more, the iteration is completed and the next one opened.

  Raises `AshAgent.Context.Error` with `{:unknown_tool_call, id, pending}`,
  `{:tool_call_already_answered, id, pending}`, `{:duplicate_tool_result, id}`, `{:no_tool_results, pending}`,
  `{:no_pending_tool_calls, given}` or `{:invalid_tool_result, position, key}`.

  Takes the options of `add_user_message/3`; the metadata of several answers to one message is merged.

  ## Examples

      iex> context = AshAgent.Context.new("6 * 7?")
      iex> context = AshAgent.Context.add_assistant_message(context, nil, [%{id: "a", name: :multiply}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a", {:ok, 42}}])
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: :multiply, arguments: %{}, result: {:ok, 42}}]
  """
  @doc since: "0.1.0"
  @spec add_tool_results(t(), [tool_result()], keyword()) :: t()
  def add_tool_results(%__MODULE__{ref: ref}, results, opts \\ []) when is_list(results) do
    {metadata, at} = stamp(opts)
    ref |> Native.context_add_tool_results(results, metadata, at) |> wrap!()
  end

  @doc """
  Answers every pending tool call with an error of this reason and returns the new context.

  The conversation can go on then, for instance with the next user message. When nothing is pending, the context
  comes back as it is. Takes the options of `add_user_message/3`.

  ## Examples

      iex> context = AshAgent.Context.new("Wait") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :sleep}])
      iex> context = AshAgent.Context.interrupt(context, "cancelled by the user")
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: :sleep, arguments: %{}, result: {:error, "cancelled by the user"}}]
  """
  @doc since: "0.1.0"
  @spec interrupt(t(), term(), keyword()) :: t()
  def interrupt(%__MODULE__{ref: ref}, reason \\ "interrupted", opts \\ []) do
    {metadata, at} = stamp(opts)
    ref |> Native.context_interrupt(reason, metadata, at) |> wrap!()
  end

  @doc """
  Returns the tool calls of the last message that was added to the current iteration, `[]` if it has none.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.extract_tool_calls()
      []
  """
  @doc since: "0.1.0"
  @spec extract_tool_calls(t()) :: [map()]
  def extract_tool_calls(%__MODULE__{ref: ref}), do: ref |> Native.context_tool_calls() |> ok!()

  @doc """
  Returns the tool calls that wait for a result, in the order of the calls.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> calls = [%{id: "a", name: :one}, %{id: "b", name: :two}]
      iex> context = AshAgent.Context.add_assistant_message(context, nil, calls)
      iex> context |> AshAgent.Context.add_tool_results([{"a", {:ok, 1}}]) |> AshAgent.Context.pending_tool_calls()
      [%{id: "b", name: :two, arguments: %{}}]
  """
  @doc since: "0.1.0"
  @spec pending_tool_calls(t()) :: [map()]
  def pending_tool_calls(%__MODULE__{ref: ref}),
    do: ref |> Native.context_pending_tool_calls() |> ok!()

  @doc """
  Returns all messages, oldest first, the system prompt in front.

  Costs O(n). Long texts are not copied.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.to_messages()
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0"
  @spec to_messages(t()) :: [message()]
  def to_messages(%__MODULE__{ref: ref}), do: ref |> Native.context_to_messages() |> ok!()

  @doc """
  Returns all messages; the same as `to_messages/1`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.get_all_messages()
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0"
  @spec get_all_messages(t()) :: [message()]
  def get_all_messages(%__MODULE__{} = context), do: to_messages(context)

  @doc """
  Returns the iteration with this number, or `nil`.

  Costs O(log n) and what the iteration holds.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", at: ~U[2026-01-01 10:00:00Z])
      iex> AshAgent.Context.get_iteration(context, 1)
      %{
        number: 1,
        messages: [%{role: :user, content: "Hello!"}],
        tool_calls: [],
        started_at: ~U[2026-01-01 10:00:00.000000Z],
        completed_at: nil,
        metadata: %{}
      }
      iex> AshAgent.Context.get_iteration(context, 2)
      nil
  """
  @doc since: "0.1.0"
  @spec get_iteration(t(), integer()) :: iteration() | nil
  def get_iteration(%__MODULE__{ref: ref}, number) when is_integer(number),
    do: ref |> Native.context_iteration(number) |> ok!()

  @doc """
  Returns the messages of the iteration with this number, `[]` when there is none.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.get_iteration_messages(1)
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0"
  @spec get_iteration_messages(t(), integer()) :: [message()]
  def get_iteration_messages(%__MODULE__{ref: ref}, number) when is_integer(number),
    do: ref |> Native.context_iteration_messages(number) |> ok!()

  @doc """
  Returns all iterations, oldest first.

  Costs O(n). A context is also an `Enumerable` of its iterations, which makes them one by one.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.iterations() |> Enum.map(& &1.number)
      [1]
  """
  @doc since: "0.1.0"
  @spec iterations(t()) :: [iteration()]
  def iterations(%__MODULE__{ref: ref}), do: ref |> Native.context_iterations() |> ok!()

  @doc """
  Returns the number of iterations, in constant time.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.count_iterations()
      1
  """
  @doc since: "0.1.0"
  @spec count_iterations(t()) :: pos_integer()
  def count_iterations(%__MODULE__{ref: ref}), do: Native.context_count_iterations(ref)

  @doc """
  Returns the number of messages that `to_messages/1` gives, in constant time.

  ## Examples

      iex> AshAgent.Context.new("Hello!", system_prompt: "Be brief.") |> AshAgent.Context.count_messages()
      2
  """
  @doc since: "0.1.0"
  @spec count_messages(t()) :: non_neg_integer()
  def count_messages(%__MODULE__{ref: ref}), do: Native.context_count_messages(ref)

  @doc """
  Returns `{:ok, message}` for the message at a 0-based position of an iteration, or `:error`.

  It is the message that `Enum.at(get_iteration_messages(context, iteration), position)` gives, in O(log n).

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.fetch_message(context, {1, 0})
      {:ok, %{role: :user, content: "Hello!"}}
      iex> AshAgent.Context.fetch_message(context, {1, 1})
      :error
  """
  @doc since: "0.1.0"
  @spec fetch_message(t(), {iteration :: integer(), position :: integer()}) ::
          {:ok, message()} | :error
  def fetch_message(%__MODULE__{ref: ref}, {iteration, position})
      when is_integer(iteration) and is_integer(position) do
    case ref |> Native.context_message(iteration, position) |> ok!() do
      nil -> :error
      message -> {:ok, message}
    end
  end

  @doc """
  Tells whether the current iteration's number has reached `max`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.exceeded_max_iterations?(context, 1)
      true
      iex> AshAgent.Context.exceeded_max_iterations?(context, 2)
      false
  """
  @doc since: "0.1.0"
  @spec exceeded_max_iterations?(t(), integer()) :: boolean()
  def exceeded_max_iterations?(%__MODULE__{ref: ref}, max) when is_integer(max),
    do: Native.context_exceeded_max_iterations(ref, max)

  @doc """
  Makes a context from attributes, as `to_map/1` gives them, and returns `{:ok, context}` or `{:error, error}`.

  Attributes are a map or a keyword list with `:iterations`, `:current_iteration`, `:id`, `:metadata`, `:created_at` and
  `:updated_at`, all optional; in them, keys may be atoms or strings, times `DateTime`s or ISO 8601 text, results
  `{:ok, term}`, `["ok", term]` or `%{"ok" => term}`. `current_iteration` is the number of the last iteration, or the
  one behind it, which then opens empty. Without iterations there is an empty first one.

  Results are taken from an iteration's `:tool_calls`; the messages that show them serve where those give none.

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
  @spec create(map() | keyword()) :: {:ok, t()} | {:error, Error.t()}
  def create(attributes) when is_map(attributes) or is_list(attributes),
    do: attributes |> attributes() |> Native.context_create(nil) |> wrap()

  @doc """
  Like `create/1`, but returns the context or raises `AshAgent.Context.Error`.

  ## Examples

      iex> AshAgent.Context.create!(%{}).current_iteration
      1
  """
  @doc since: "0.1.0"
  @spec create!(map() | keyword()) :: t()
  def create!(attributes), do: attributes |> create() |> bang!()

  @doc """
  Puts other attributes in the place of a context's own and returns `{:ok, context}` or `{:error, error}`.

  Attributes are those of `create/1`; what is not given stays. `:updated_at` defaults to now.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, context} = AshAgent.Context.update(context, %{current_iteration: 2})
      iex> context.current_iteration
      2
  """
  @doc since: "0.1.0"
  @spec update(t(), map() | keyword()) :: {:ok, t()} | {:error, Error.t()}
  def update(%__MODULE__{ref: ref}, attributes) when is_map(attributes) or is_list(attributes),
    do: ref |> Native.context_update(attributes(attributes), nil) |> wrap()

  @doc """
  Like `update/2`, but returns the context or raises `AshAgent.Context.Error`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.update!(current_iteration: 2)
      iex> context.current_iteration
      2
  """
  @doc since: "0.1.0"
  @spec update!(t(), map() | keyword()) :: t()
  def update!(%__MODULE__{} = context, attributes), do: context |> update(attributes) |> bang!()

  @doc """
  Returns the conversation as plain terms: `:id`, `:iterations`, `:current_iteration`, `:metadata`, `:created_at` and
  `:updated_at`.

  Costs O(n). `create!/1` makes a context of it that gives the same map again. Two things have no place in the map: the
  JSON text that arguments were given as, and whether an error came from `interrupt/2`.

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
  @spec to_map(t()) :: map()
  def to_map(%__MODULE__{ref: ref}), do: ref |> Native.context_to_map() |> ok!()

  @doc """
  Returns the conversation as a map with string keys that holds nothing but JSON data, to be stored.

  `load/1` makes an equal context of it, also after the map went through JSON text or JSONB. The format is versioned
  and described in the guide [Storage](storage.html). Costs O(n).

  ## Options

    * `:since` - the number of an iteration; the map then holds this iteration and those behind it, and costs O(their
      size). `load/2` puts it onto a context that has the others. Defaults to all iterations.

  Raises `AshAgent.Context.Error` with `{:unknown_iteration, number, first..last}`.

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
  @spec dump(t(), keyword()) :: map()
  def dump(%__MODULE__{ref: ref}, opts \\ []),
    do: ref |> Native.snapshot_dump(since(opts)) |> ok!()

  @doc """
  Makes a context of what `dump/2` gave and returns `{:ok, context}` or `{:error, error}`.

  The data may come from anywhere: whatever is wrong with it is an error with the path to it, and it never makes atoms.
  An atom that this VM does not have comes back as `AshAgent.Context.UnknownAtom`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, copy} = AshAgent.Context.load(AshAgent.Context.dump(context))
      iex> AshAgent.Context.equal?(context, copy)
      true

      iex> {:error, error} = AshAgent.Context.load(%{"version" => 1, "id" => 7})
      iex> error.reason
      {:invalid, ["id"], "text"}
  """
  @doc since: "0.1.0"
  @spec load(term()) :: {:ok, t()} | {:error, Error.t()}
  def load(document), do: document |> Native.snapshot_load() |> wrap()

  @doc """
  Puts what `dump(context, since: number)` gave onto a context and returns `{:ok, context}` or `{:error, error}`.

  The delta's iterations take the place of the context's own from the first of them on; everything else of the
  conversation, such as its metadata, is as the delta has it. Loading a delta twice is the same as loading it once. A
  delta of a conversation with another id, or one that leaves a gap, is an error. Costs O(size of the delta).

  ## Examples

      iex> stored = AshAgent.Context.new("Hello!")
      iex> context = stored |> AshAgent.Context.add_assistant_message("Hi!") |> AshAgent.Context.add_user_message("Bye.")
      iex> delta = AshAgent.Context.dump(context, since: stored.current_iteration)
      iex> {:ok, loaded} = AshAgent.Context.load(stored, delta)
      iex> AshAgent.Context.equal?(loaded, context)
      true
  """
  @doc since: "0.1.0"
  @spec load(t(), term()) :: {:ok, t()} | {:error, Error.t()}
  def load(%__MODULE__{ref: ref}, delta), do: ref |> Native.snapshot_load_delta(delta) |> wrap()

  @doc """
  Like `load/1`, but returns the context or raises `AshAgent.Context.Error`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.load!(AshAgent.Context.dump(context)).current_iteration
      1
  """
  @doc since: "0.1.0"
  @spec load!(term()) :: t()
  def load!(document), do: document |> load() |> bang!()

  @doc """
  Like `load/2`, but returns the context or raises `AshAgent.Context.Error`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.load!(context, AshAgent.Context.dump(context, since: 1)).current_iteration
      1
  """
  @doc since: "0.1.0"
  @spec load!(t(), term()) :: t()
  def load!(%__MODULE__{} = context, delta), do: context |> load(delta) |> bang!()

  @doc """
  Returns the conversation as JSON text: the text of `dump/2`, made without the map. Costs O(n).

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> text = AshAgent.Context.to_snapshot(context)
      iex> AshAgent.Context.JSON.decode!(text) == AshAgent.Context.dump(context)
      true
  """
  @doc since: "0.1.0"
  @spec to_snapshot(t()) :: binary()
  def to_snapshot(%__MODULE__{ref: ref}), do: ref |> Native.snapshot_encode() |> ok!()

  @doc """
  Makes a context of JSON text and returns `{:ok, context}` or `{:error, error}`, as `load/1` does of a map.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, copy} = AshAgent.Context.from_snapshot(AshAgent.Context.to_snapshot(context))
      iex> AshAgent.Context.equal?(context, copy)
      true
  """
  @doc since: "0.1.0"
  @spec from_snapshot(binary()) :: {:ok, t()} | {:error, Error.t()}
  def from_snapshot(text) when is_binary(text), do: text |> Native.snapshot_decode() |> wrap()

  @doc """
  Like `from_snapshot/1`, but returns the context or raises `AshAgent.Context.Error`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.from_snapshot!(AshAgent.Context.to_snapshot(context)).current_iteration
      1
  """
  @doc since: "0.1.0"
  @spec from_snapshot!(binary()) :: t()
  def from_snapshot!(text), do: text |> from_snapshot() |> bang!()

  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]

  @typedoc "Whose API a request is for."
  @type provider ::
          :anthropic
          | :openai_chat
          | :openai_responses
          | :gemini
          | :bedrock
          | :ollama
          | :mistral

  @doc """
  Returns `{:ok, request}` with the message part of a provider's request as a map with string keys, or `{:error, error}`.

  That is `"system"` and `"messages"` for Anthropic and Bedrock, `"messages"` for OpenAI chat, Ollama and Mistral,
  `"instructions"` and `"input"` for OpenAI Responses, `"systemInstruction"` and `"contents"` for Gemini. It obeys the
  provider's rules; what had to be changed for that is told by `request_report/3`, the conversation is as it was. To send
  a request, `encode_request/3` is the fast way.

  The error's reason is `{:pending_tool_calls, ids}` while tool calls wait for their results, or
  `{:unknown_iteration, number, first..last}`.

  ## Options

    * `:pending` - `:error`, or `:interrupt` to send pending calls as interrupted. Defaults to `:error`.
    * `:model` - the model's name. Thinking that another model signed is not sent to it, and Gemini and Bedrock requests
      follow what that model takes. Defaults to none.
    * `:thinking` - what becomes of thinking that another provider or model gave: `:drop` or `:text`. Defaults to `:drop`.
    * `:cache` - for Anthropic and Bedrock: `:auto` places up to four cache breakpoints, `false` places none. Defaults to
      `false`.
    * `:system_role` - for OpenAI: `"system"` or `"developer"`. Defaults to `"system"`.
    * `:from` - the number of the first iteration to send; the system prompt is always sent. Defaults to all.

  Costs O(n).

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", system_prompt: "Be brief.")
      iex> AshAgent.Context.request(context, :anthropic)
      {:ok, %{"system" => "Be brief.", "messages" => [%{"role" => "user", "content" => "Hello!"}]}}
  """
  @doc since: "0.1.0"
  @spec request(t(), provider(), keyword()) :: {:ok, map()} | {:error, Error.t()}
  def request(%__MODULE__{ref: ref}, provider, opts \\ []) when provider in @providers do
    ref |> Native.context_request(request_options(provider, opts)) |> error_struct()
  end

  @doc """
  Like `request/3`, but returns the request or raises `AshAgent.Context.Error`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.request!(:gemini)
      %{"contents" => [%{"role" => "user", "parts" => [%{"text" => "Hello!"}]}]}
  """
  @doc since: "0.1.0"
  @spec request!(t(), provider(), keyword()) :: map()
  def request!(%__MODULE__{} = context, provider, opts \\ []),
    do: context |> request(provider, opts) |> bang!()

  @doc """
  Returns `{:ok, iodata}` with a complete JSON request body, or `{:error, error}`.

  Takes the options of `request/3` and `:body`, a map with the provider's other fields (model, tools, max_tokens, ...),
  which stand in front of the message part. A field that the message part has is an `ArgumentError`.

  Each message is encoded once in its life, for each provider and set of options. The iodata is a list of binaries that
  point into what is kept, so that a body costs the messages that are new and a list of the others. Appending never
  changes bytes in front of what was appended (cache breakpoints aside), so that providers' prompt caches hit.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, body} = AshAgent.Context.encode_request(context, :openai_chat, body: %{model: "gpt-4o"})
      iex> IO.iodata_to_binary(body)
      ~s({"model":"gpt-4o","messages":[{"role":"user","content":"Hello!"}]})
  """
  @doc since: "0.1.0"
  @spec encode_request(t(), provider(), keyword()) :: {:ok, iodata()} | {:error, Error.t()}
  def encode_request(%__MODULE__{ref: ref}, provider, opts \\ []) when provider in @providers do
    {body, opts} = Keyword.pop(opts, :body, %{})

    if not is_map(body) do
      raise ArgumentError, "expected :body to be a map, got: #{inspect(body)}"
    end

    case Native.context_encode_request(ref, request_options(provider, opts), body) do
      {:error, {:reserved_field, key}} ->
        raise ArgumentError,
              "the field #{inspect(key)} of :body is made from the conversation; leave it out"

      reply ->
        error_struct(reply)
    end
  end

  @doc """
  Like `encode_request/3`, but returns the iodata or raises `AshAgent.Context.Error`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.encode_request!(:ollama) |> IO.iodata_to_binary()
      ~s({"messages":[{"role":"user","content":"Hello!"}]})
  """
  @doc since: "0.1.0"
  @spec encode_request!(t(), provider(), keyword()) :: iodata()
  def encode_request!(%__MODULE__{} = context, provider, opts \\ []),
    do: context |> encode_request(provider, opts) |> bang!()

  @doc """
  Returns what `request/3` with the same options changes of the conversation so that the provider takes it.

  Each change is a map with `:change`, `:from` (what the conversation has), `:to` (what is sent, `nil` for nothing),
  `:iteration` and `:position`. Changes are `:renamed_id`, `:renamed_tool`, `:wrapped_arguments` (arguments that are no
  JSON object), `:dropped_blank_text`, `:replaced_bytes` (no UTF-8), `:dropped_thinking`, `:thinking_to_text`,
  `:dropped_part`, `:part_to_text` and `:moved_part` (an image in a tool result that goes behind the results).

  Raises `AshAgent.Context.Error` as `request!/3` does. Costs O(n).

  ## Examples

      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a.b", name: :now}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a.b", {:ok, "10:00"}}])
      iex> AshAgent.Context.request_report(context, :anthropic) |> hd()
      %{change: :renamed_id, from: "a.b", to: "a_b", iteration: 1, position: 1}
  """
  @doc since: "0.1.0"
  @spec request_report(t(), provider(), keyword()) :: [map()]
  def request_report(%__MODULE__{ref: ref}, provider, opts \\ []) when provider in @providers,
    do: ref |> Native.context_request_report(request_options(provider, opts)) |> ok!()

  @doc """
  Returns the whole conversation as one plain text, for models that take a single text.

  Blocks `[System]`, `[User]`, `[Assistant]` and `[Tool NAME]` are separated by blank lines. Costs O(n).

  ## Examples

      iex> AshAgent.Context.new("Hello!", system_prompt: "Be brief.") |> AshAgent.Context.to_prompt()
      "[System]\\nBe brief.\\n\\n[User]\\nHello!"
  """
  @doc since: "0.1.0"
  @spec to_prompt(t()) :: String.t()
  def to_prompt(%__MODULE__{ref: ref}), do: ref |> Native.context_to_prompt() |> ok!()

  @typedoc """
  What an import had to change, and what of the request is no part of the conversation.

  A repair names the 0-based position of the `message` (content, item) in the list that was given:

    * `:dropped_empty_message` - it says nothing
    * `:dropped_orphan_result` - a result without a call, of this `id`
    * `:dropped_duplicate_result` - a second result for the call of this `id`
    * `:moved_result` - a result that did not stand directly behind its call
    * `:moved_call` - a call with text or thinking behind it in its message, where its provider wants calls last
    * `:renamed_call` - a call with the `id` of another call of its message, which is now called `to`
    * `:synthesised_result` - a call without a result, with something behind it, was given the error "interrupted"

  `rest` has the fields of a request that are no part of the conversation, as they were given.
  """
  @type import_report :: %{
          repairs: [
            %{
              required(:repair) => atom(),
              required(:message) => non_neg_integer(),
              optional(:id) => String.t(),
              optional(:to) => String.t()
            }
          ],
          rest: map()
        }

  @doc """
  Makes a context from a request that was made for a provider, and returns `{:ok, context, report}` or `{:error, error}`.

  `body` is a map with string or atom keys, or JSON text. It may have more fields than the messages (model, tools, limits):
  `report.rest` gives them back, for `encode_request/3` to take. Histories that providers refuse are repaired, and
  `report.repairs` tells how, see `t:import_report/0`; a valid history needs no repair. Calls at the end that have no
  results are pending.

  `request/3` for the same provider gives the messages as they were, with everything in them that a context has no
  place for, such as cache breakpoints. It follows the provider's rules where a message was repaired, where it has what
  the provider is known to refuse (blank texts, ids or names it cannot take), and where calls are pending. One shape
  comes back in another form: OpenAI Responses' `input` as a text is a list with one user message.

  Blocks that no other provider knows become parts of the type `:provider_block`. The context keeps the messages in both
  forms and is about twice as large as one that was built by the `add_*` functions.

  The error's reason is `{:invalid, path, expected}` with the path into the body, or `{:too_deep, limit}`. Costs O(n).

  ## Options

    * `:id` - the conversation's id, non-empty text. Defaults to a new UUID v4.
    * `:at` - the time of all that happened, a `DateTime`. Defaults to now.

  ## Examples

      iex> body = %{"model" => "m1", "messages" => [%{"role" => "user", "content" => "Hello!"}]}
      iex> {:ok, context, report} = AshAgent.Context.from_request(body, :anthropic)
      iex> AshAgent.Context.to_messages(context)
      [%{role: :user, content: "Hello!"}]
      iex> report
      %{repairs: [], rest: %{"model" => "m1"}}

      iex> {:error, error} = AshAgent.Context.from_request(%{messages: [%{role: "robot"}]}, :openai_chat)
      iex> error.reason
      {:invalid, [:messages, 0, :role], ~s("system", "developer", "user", "assistant" or "tool")}
  """
  @doc since: "0.1.0"
  @spec from_request(map() | binary(), provider(), keyword()) ::
          {:ok, t(), import_report()} | {:error, Error.t()}
  def from_request(body, provider, opts \\ [])
      when (is_map(body) or is_binary(body)) and provider in @providers do
    opts = Keyword.validate!(opts, [:id, :at])
    body |> Native.import_request(provider, id(opts), at(opts)) |> wrap_import()
  end

  @doc """
  Like `from_request/3`, but returns the context alone or raises `AshAgent.Context.Error`.

  ## Examples

      iex> body = ~s({"contents": [{"role": "user", "parts": [{"text": "Hello!"}]}]})
      iex> AshAgent.Context.from_request!(body, :gemini) |> AshAgent.Context.to_messages()
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0"
  @spec from_request!(map() | binary(), provider(), keyword()) :: t()
  def from_request!(body, provider, opts \\ []),
    do: body |> from_request(provider, opts) |> bang_import!()

  @doc """
  Makes a context from a list of messages, and returns `{:ok, context, report}` or `{:error, error}`.

  Messages are in OpenAI's chat format or in the form of `to_messages/1`, in any mixture, with string or atom keys. Keys
  that neither of them has are left out. Repairs, errors and options are those of `from_request/3`.

  ## Examples

      iex> {:ok, context, report} =
      ...>   AshAgent.Context.from_messages([
      ...>     %{role: "user", content: "What's the weather?"},
      ...>     %{role: "assistant", content: nil, tool_calls: [
      ...>       %{id: "a", type: "function", function: %{name: "get_weather", arguments: "{}"}}
      ...>     ]},
      ...>     %{role: "user", content: "Hello?"}
      ...>   ])
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: "get_weather", arguments: %{}, result: {:error, "interrupted"}}]
      iex> report.repairs
      [%{repair: :synthesised_result, id: "a", message: 1}]
  """
  @doc since: "0.1.0"
  @spec from_messages([map()], keyword()) :: {:ok, t(), import_report()} | {:error, Error.t()}
  def from_messages(messages, opts \\ []) when is_list(messages) do
    opts = Keyword.validate!(opts, [:id, :at])
    messages |> Native.import_messages(id(opts), at(opts)) |> wrap_import()
  end

  @doc """
  Like `from_messages/2`, but returns the context alone or raises `AshAgent.Context.Error`.

  ## Examples

      iex> context = AshAgent.Context.from_messages!([%{"role" => "user", "content" => "Hello!"}])
      iex> context.current_iteration
      1
  """
  @doc since: "0.1.0"
  @spec from_messages!([map()], keyword()) :: t()
  def from_messages!(messages, opts \\ []), do: messages |> from_messages(opts) |> bang_import!()

  @doc """
  Tells whether two contexts have equal contents, ids and times included. `==` compares handles and does not tell.

  Costs O(n) at most; parts that the two share are not compared.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.equal?(context, AshAgent.Context.put_metadata(context, :seen, true))
      false
  """
  @doc since: "0.1.0"
  @spec equal?(t(), t()) :: boolean()
  def equal?(%__MODULE__{ref: a}, %__MODULE__{ref: b}), do: a |> Native.context_equal(b) |> ok!()

  @doc """
  Puts a value into the conversation's metadata and returns the new context.

  Takes the option `:at`, the time of the change, a `DateTime`; defaults to now.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.put_metadata(:user_id, 7)
      iex> AshAgent.Context.metadata(context)
      %{user_id: 7}
  """
  @doc since: "0.1.0"
  @spec put_metadata(t(), atom() | binary(), term(), keyword()) :: t()
  def put_metadata(%__MODULE__{ref: ref}, key, value, opts \\ [])
      when is_atom(key) or is_binary(key) do
    at = opts |> Keyword.validate!([:at]) |> at()
    ref |> Native.context_put_metadata(key, value, at) |> wrap!()
  end

  @doc """
  Puts a value into the metadata of an iteration, completed or not, and returns the new context.

  Raises `AshAgent.Context.Error` with `{:unknown_iteration, number, first..last}`. Takes the option `:at` as
  `put_metadata/4` does.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.put_iteration_metadata(1, :model, "m1")
      iex> AshAgent.Context.get_iteration(context, 1).metadata
      %{model: "m1"}
  """
  @doc since: "0.1.0"
  @spec put_iteration_metadata(t(), integer(), atom() | binary(), term(), keyword()) :: t()
  def put_iteration_metadata(%__MODULE__{ref: ref}, number, key, value, opts \\ [])
      when is_integer(number) and (is_atom(key) or is_binary(key)) do
    at = opts |> Keyword.validate!([:at]) |> at()

    case Native.context_put_iteration_metadata(ref, number, key, value, at) do
      # Integers beyond 64 bits do not reach the core as they are.
      {:error, {:unknown_iteration, _, known}} ->
        raise Error, reason: {:unknown_iteration, number, known}

      reply ->
        wrap!(reply)
    end
  end

  @doc """
  Returns the conversation's metadata.

  ## Examples

      iex> AshAgent.Context.new("Hello!", metadata: %{user_id: 7}) |> AshAgent.Context.metadata()
      %{user_id: 7}
  """
  @doc since: "0.1.0"
  @spec metadata(t()) :: map()
  def metadata(%__MODULE__{ref: ref}), do: ref |> Native.context_metadata() |> ok!()

  @behaviour Access

  @doc """
  Fetches `:iterations`, `:current_iteration`, `:id`, `:metadata`, `:created_at` or `:updated_at`, so that
  `context[:iterations]` works.

  ## Examples

      iex> AshAgent.Context.new("Hello!")[:current_iteration]
      1
      iex> AshAgent.Context.new("Hello!")[:nothing]
      nil
  """
  @doc since: "0.1.0"
  @impl Access
  def fetch(%__MODULE__{} = context, :iterations), do: {:ok, iterations(context)}
  def fetch(%__MODULE__{} = context, :current_iteration), do: {:ok, context.current_iteration}
  def fetch(%__MODULE__{} = context, :metadata), do: {:ok, metadata(context)}

  def fetch(%__MODULE__{ref: ref}, key) when key in [:id, :created_at, :updated_at],
    do: Map.fetch(Native.context_summary(ref), key)

  def fetch(%__MODULE__{}, _key), do: :error

  @doc false
  @impl Access
  def get_and_update(%__MODULE__{}, key, _fun) do
    raise ArgumentError,
          "cannot put #{inspect(key)} into a context: use its functions, such as update/2 or put_metadata/3"
  end

  @doc false
  @impl Access
  def pop(%__MODULE__{}, key) do
    raise ArgumentError, "cannot remove #{inspect(key)} from a context"
  end

  # 0 for everything.
  defp since([]), do: 0

  defp since(opts) do
    case Keyword.validate!(opts, [:since])[:since] do
      nil ->
        0

      number when is_integer(number) and number > 0 ->
        number

      other ->
        raise ArgumentError, "expected :since to be an iteration's number, got: #{inspect(other)}"
    end
  end

  defp wrap({:ok, {ref, current_iteration}}),
    do: {:ok, %__MODULE__{ref: ref, current_iteration: current_iteration}}

  defp wrap({:error, reason}), do: {:error, %Error{reason: reason}}

  defp wrap!({:ok, {ref, current_iteration}}),
    do: %__MODULE__{ref: ref, current_iteration: current_iteration}

  defp wrap!({:error, :bad_time}) do
    raise ArgumentError,
          "expected :at to be a valid DateTime of the ISO calendar and the years 0 to 9999"
  end

  defp wrap!({:error, reason}), do: raise(Error, reason: reason)

  defp ok!({:ok, term}), do: term
  defp ok!({:error, reason}), do: raise(Error, reason: reason)

  defp bang!({:ok, context}), do: context
  defp bang!({:error, error}), do: raise(error)

  defp wrap_import({:ok, {handle, repairs, rest}}),
    do: {:ok, wrap!({:ok, handle}), %{repairs: repairs, rest: rest}}

  defp wrap_import({:error, :bad_time} = error), do: wrap!(error)
  defp wrap_import({:error, reason}), do: {:error, %Error{reason: reason}}

  defp bang_import!({:ok, context, _report}), do: context
  defp bang_import!({:error, error}), do: raise(error)

  defp error_struct({:ok, term}), do: {:ok, term}
  defp error_struct({:error, reason}), do: {:error, %Error{reason: reason}}

  @request_options [
    pending: :error,
    model: nil,
    thinking: :drop,
    cache: false,
    system_role: "system",
    from: nil
  ]

  defp request_options(provider, opts) do
    opts = Keyword.validate!(opts, @request_options)

    {provider, check!(opts, :model, &(is_nil(&1) or is_binary(&1))),
     check!(opts, :thinking, &(&1 in [:drop, :text])),
     check!(opts, :system_role, &(&1 in ["system", "developer"])),
     check!(opts, :cache, &(&1 in [:auto, false])) == :auto,
     check!(opts, :from, &(is_nil(&1) or is_integer(&1))),
     check!(opts, :pending, &(&1 in [:error, :interrupt])) == :interrupt}
  end

  defp check!(opts, key, valid?) do
    value = opts[key]

    if valid?.(value) do
      value
    else
      raise ArgumentError, "invalid value for option #{inspect(key)}: #{inspect(value)}"
    end
  end

  defp attributes(attributes) when is_list(attributes) do
    if Keyword.keyword?(attributes) do
      Map.new(attributes)
    else
      raise ArgumentError,
            "expected attributes as a map or a keyword list, got: #{inspect(attributes)}"
    end
  end

  defp attributes(attributes), do: attributes

  defp stamp([]), do: {nil, nil}

  defp stamp(opts) do
    opts = Keyword.validate!(opts, [:metadata, :at])
    {metadata_option(opts), at(opts)}
  end

  defp at(opts) do
    case opts[:at] do
      %DateTime{} = at -> at
      nil -> nil
      other -> raise ArgumentError, "expected :at to be a DateTime, got: #{inspect(other)}"
    end
  end

  defp metadata_option(opts) do
    case opts[:metadata] do
      metadata when is_nil(metadata) or is_map(metadata) -> metadata
      other -> raise ArgumentError, "expected :metadata to be a map, got: #{inspect(other)}"
    end
  end

  defp id(opts) do
    case opts[:id] do
      nil ->
        nil

      id when is_binary(id) and id != "" ->
        if String.valid?(id), do: id, else: raise(ArgumentError, "expected :id to be UTF-8 text")

      other ->
        raise ArgumentError, "expected :id to be non-empty text, got: #{inspect(other)}"
    end
  end

  defp system_prompt(opts) do
    case opts[:system_prompt] do
      prompt when is_nil(prompt) or is_binary(prompt) or is_list(prompt) ->
        prompt

      other ->
        raise ArgumentError,
              "expected :system_prompt to be text or text parts, got: #{inspect(other)}"
    end
  end

  defimpl Inspect do
    # Counts only: this ends up in logs. A handle from another node is still a context.
    def inspect(context, _opts) do
      %{messages: messages, pending: pending} = Native.context_summary(context.ref)

      "#AshAgent.Context<iteration #{context.current_iteration}, #{messages} messages, #{pending} pending>"
    rescue
      ArgumentError ->
        "#AshAgent.Context<iteration #{context.current_iteration}, on another node>"
    end
  end

  defimpl Enumerable do
    alias AshAgent.Context
    alias AshAgent.Context.Native

    def count(context), do: {:ok, Context.count_iterations(context)}

    def member?(_context, _iteration), do: {:error, __MODULE__}

    def slice(context) do
      first = Native.context_first_iteration(context.ref)

      slicer = fn start, length ->
        for offset <- start..(start + length - 1)//1,
            do: Context.get_iteration(context, first + offset)
      end

      {:ok, Context.count_iterations(context), slicer}
    end

    def reduce(context, acc, fun) do
      first = Native.context_first_iteration(context.ref)
      reduce(context, first, first + Context.count_iterations(context) - 1, acc, fun)
    end

    defp reduce(_context, _number, _last, {:halt, acc}, _fun), do: {:halted, acc}

    defp reduce(context, number, last, {:suspend, acc}, fun),
      do: {:suspended, acc, &reduce(context, number, last, &1, fun)}

    defp reduce(_context, number, last, {:cont, acc}, _fun) when number > last, do: {:done, acc}

    defp reduce(context, number, last, {:cont, acc}, fun),
      do:
        reduce(
          context,
          number + 1,
          last,
          fun.(Context.get_iteration(context, number), acc),
          fun
        )
  end
end
