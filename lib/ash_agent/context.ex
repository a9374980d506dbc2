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
  numbered from 1, and a number is never reused. A tool result lives in the slot of its call, so a result without a call,
  two results for one call, or results in the wrong order cannot exist. Models see a message with the results that is made
  from the slots, in the order of the calls.

  ## Values

  Every function that changes a conversation returns a new context that shares structure with the old one. The old one
  stays as it was, in every process. Terms come back equal: atoms, tuples, structs, integers of any size, floats, and
  binaries that are not valid UTF-8. Terms that live only in this VM (pids, ports, references, functions) are kept as
  their printed text. Improper lists, bitstrings that are not binaries, and values nested deeper than 256 levels are
  refused.

  ## Errors

  A caller's mistake, such as a wrong type or an unknown option, raises `FunctionClauseError` or `ArgumentError`. An error
  that data can cause raises `AshAgent.Context.Error` with a reason to match on; functions that have a `!` twin return it
  as `{:error, error}`.

  ## Sharing and lifetime

  A context is a small struct around a reference. Handing it to another process costs about a microsecond, whatever its
  size. The conversation is freed when the last context or binary that points into it is garbage collected. Long texts
  that you read from a context are binaries that point into it and keep that version in memory; `:binary.copy/1` detaches
  them.

  Two contexts with equal contents are not `==`, since handles compare by identity: use `equal?/2`. A context works only
  on the node that made it, and only while that node runs. Anywhere else, every function raises an `ArgumentError` that
  names the node. To store a context or send it to another node, use `dump/2` or `to_snapshot/1`.

  ## Limits

  Values are at most 256 levels deep. Times are kept in UTC with microseconds, for the years 0 to 9999. Integers of more
  than 4,300 digits are written to JSON as hexadecimal text.
  """

  alias AshAgent.Context.{Error, Handle, Native, Options, Peer, Trust}
  alias AshAgent.Options, as: Check
  alias AshAgent.Prices

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
    * `%{type: :audio, media_type: "audio/wav", data: base64}` and `%{type: :video, media_type: "video/mp4", data: base64}`,
      or with `:url`
    * `%{type: :file, media_type: "application/pdf", data: base64, filename: name}` or with `:url`; the name is optional
    * any of these four with `file_id: id, provider: :anthropic` instead of `:data`: a file in a provider's own store
    * `%{type: :thinking, text: text}` and `%{type: :redacted_thinking, data: text}`: in assistant messages
    * `%{type: :provider_block, provider: :anthropic, data: map}`: not in tool results; is sent to its own provider only, and
      other providers get its words

  A `:url` is an address that providers fetch (`https:`, `http:`, `data:`, `gs:` or `s3:`), without control characters.

  Any part may have `:provider_metadata`, a map with data that its provider wants back, such as
  `%{provider: :anthropic, model: "...", signature: "..."}`. A part may also carry requests to its provider:

    * `cache: true` or `cache: [ttl: "1h"]` - a cache breakpoint after it, for Anthropic (`"5m"`, `"1h"`), Bedrock (the
      same) and OpenAI from GPT-5.6 on (`"30m"`, `"12h"`), where the option `:model` names such a model
    * `detail: "low"` - how closely to look at an image: `"auto"`, `"low"`, `"high"`, `"original"`; for OpenAI and Mistral
    * `citations: true` - whether to cite a file; for Anthropic and Bedrock
  """
  @type part :: %{required(:type) => atom(), optional(atom()) => term()}

  @typedoc """
  A tool call: `%{id: id, name: name, arguments: arguments}`, with atoms or strings as keys.

  `name` is an atom or a string, `arguments` a map or a provider's JSON text. A call without `id` gets one made from its
  iteration, message and position. `:provider_metadata` and further keys are kept.

  A call that is not a function call has a `:kind`: `:custom` (its arguments are text), `:shell`, `:local_shell`,
  `:apply_patch`, `:computer`, `:mcp_approval` or `:tool_search`. All but `:custom` and `:mcp_approval` have a single tool, so their
  name may be left out. The guide on requests describes how to answer each kind.
  """
  @type tool_call :: %{required(:name) => atom() | binary(), optional(atom()) => term()}

  @typedoc """
  The result of a tool call.

  `{:ok, term}` with any term. A list of text, image and file parts is shown to the model as those parts. Otherwise the model
  reads a binary as it is, anything else as JSON, the reason of an error in words, and "(no output)" for an empty result.
  `{:unknown, reason}` is an error of a call that was started and whose outcome is not known: `tool_call_status/2` returns
  `:unknown`, and reading it gives `{:error, reason}`.
  """
  @type tool_result ::
          %{
            required(:id) => binary(),
            required(:result) => result(),
            optional(:started_at) => DateTime.t() | integer(),
            optional(:ended_at) => DateTime.t() | integer()
          }
          | {binary(), result()}
  @type result :: {:ok, term()} | {:error, term()} | {:unknown, term()}

  @typedoc """
  A message. It has `:tool_calls` and `:metadata` only if they were given, `:state` only if it broke off, and `:response` only
  in `fetch_message/2`.
  """
  @type message :: %{
          required(:role) => :system | :user | :assistant,
          required(:content) => content() | [map()],
          optional(:tool_calls) => [map()],
          optional(:metadata) => map(),
          optional(:state) => :interrupted,
          optional(:response) => map()
        }

  @typedoc "An iteration. The `:result` of a pending call is `nil`."
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

  `input` is a string, a list of `t:part/0`, `%{message: text}`, or any other map, which is sent as JSON.

  A string may contain invalid UTF-8, here and in every other text of a conversation: users' input and tools' output
  should not be lost. It is kept byte by byte, in memory and in storage, and every function that shows the conversation
  returns it as given. Models read `U+FFFD` instead of the invalid bytes, since providers refuse them; `request_report/3`
  lists them as `:replaced_bytes`.

  ## Options

  #{Options.docs(:new)}

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", system_prompt: "Be brief.")
      iex> AshAgent.Context.to_messages(context)
      [%{role: :system, content: "Be brief."}, %{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0", group: "Build"
  @spec new(binary() | [part()] | map(), keyword()) :: t()
  def new(input, opts \\ []) when is_binary(input) or is_list(input) or is_map(input) do
    opts = Options.validate!(opts, :new)

    context =
      input
      |> Native.context_new(opts[:system_prompt], opts[:id], opts[:metadata], opts[:at])
      |> wrap!()

    case opts[:max_result_bytes] do
      nil -> context
      most -> put_max_result_bytes(context, most, at: context[:updated_at])
    end
  end

  @doc """
  Adds a user message and returns the new context.

  It completes the current iteration and opens the next one. If the model has not answered in the current iteration, the
  message joins it. `input` is as in `new/2`.

  Raises `AshAgent.Context.Error` with `{:pending_tool_calls, ids}` while tool calls wait for their results.

  ## Options

  #{Options.docs(:message)}

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_assistant_message("Hi!")
      iex> AshAgent.Context.add_user_message(context, "How are you?").current_iteration
      2
  """
  @doc since: "0.1.0", group: "Build"
  @spec add_user_message(t(), binary() | [part()] | map(), keyword()) :: t()
  def add_user_message(%__MODULE__{ref: ref}, input, opts \\ [])
      when is_binary(input) or is_list(input) or is_map(input) do
    {metadata, at} = stamp(opts)
    ref |> Native.context_add_user_message(input, metadata, at) |> wrap!()
  end

  @doc """
  Adds a message of the model and its tool calls to the current iteration, and returns the new context.

  Takes the options of `add_user_message/3`.

  Raises `AshAgent.Context.Error` with `{:pending_tool_calls, ids}` while earlier calls wait for their results,
  `{:duplicate_tool_call, id}` if two calls have the same id, `{:invalid_tool_call, position, key}` or `{:invalid_part,
  position, key}`.

  ## Examples

      iex> context = AshAgent.Context.new("6 * 7?")
      iex> calls = [%{id: "call_1", name: "multiply", arguments: ~s({"a": 6, "b": 7})}]
      iex> context = AshAgent.Context.add_assistant_message(context, nil, calls)
      iex> AshAgent.Context.pending_tool_calls(context)
      [%{id: "call_1", name: "multiply", arguments: %{"a" => 6, "b" => 7}}]
  """
  @doc since: "0.1.0", group: "Build"
  @spec add_assistant_message(t(), content(), [tool_call()], keyword()) :: t()
  def add_assistant_message(%__MODULE__{ref: ref}, content, tool_calls \\ [], opts \\ [])
      when (is_binary(content) or is_list(content) or is_nil(content)) and is_list(tool_calls) do
    {metadata, at} = stamp(opts)
    ref |> Native.context_add_assistant_message(content, tool_calls, metadata, at) |> wrap!()
  end

  @doc """
  Adds a provider's response to the current iteration, and returns `{:ok, context}` or `{:error, error}`.

  The message contains everything in the response: text, thinking with its signatures, calls and the provider's own
  blocks. The context also records the reported tokens (`get_cumulative_tokens/1`) and the model, id and finish reason
  (`fetch_message/2`). The next request to the same provider contains exactly what its own SDK would send back.

  An interrupted response is kept with all its text and `state: :interrupted`. None of its calls is pending: each is
  answered with an error that says so. The same happens to a call that was cut off in an otherwise complete response, for
  instance by `max_tokens`. If no call is left to run, the iteration is complete.

  The error is an `AshAgent.Response.Error` if the response failed or is still open; it says whether asking again may
  help. It is an `AshAgent.Context.Error` with `{:pending_tool_calls, ids}` while earlier calls wait for their results.
  Costs O(size of the message).

  ## Options

  #{Options.docs(:add_response)}

  ## Examples

      iex> {:ok, response} =
      ...>   AshAgent.Response.decode(:ollama, %{
      ...>     model: "m1",
      ...>     message: %{content: "", tool_calls: [%{function: %{name: "add", arguments: %{a: 1}}}]},
      ...>     done: true,
      ...>     done_reason: "stop"
      ...>   })
      iex> {:ok, context} = "1 + 1?" |> AshAgent.Context.new() |> AshAgent.Context.add_response(response)
      iex> AshAgent.Context.pending_tool_calls(context)
      [%{id: "call_1_1_0", name: "add", arguments: %{"a" => 1}}]

      iex> response = AshAgent.Response.new(:anthropic)
      iex> {:error, error} = "Hi" |> AshAgent.Context.new() |> AshAgent.Context.add_response(response)
      iex> error.reason
      :open
  """
  @doc since: "0.1.0", group: "Responses"
  @spec add_response(t(), AshAgent.Response.t(), keyword()) ::
          {:ok, t()} | {:error, AshAgent.Response.Error.t() | Error.t()}
  def add_response(%__MODULE__{ref: ref}, %AshAgent.Response{ref: response}, opts \\ []) do
    opts = Options.validate!(opts, :add_response)

    case Native.context_add_response(
           ref,
           response,
           opts[:metadata],
           opts[:requested_at],
           opts[:at]
         ) do
      {:error, {:response, fault}} -> {:error, AshAgent.Response.Error.new(fault)}
      {:error, :bad_time} = error -> wrap!(error)
      reply -> wrap(reply)
    end
  end

  @doc """
  Like `add_response/3`, but returns the context or raises the error.

  ## Examples

      iex> {:ok, response} = AshAgent.Response.decode(:ollama, %{message: %{content: "Hello!"}, done: true})
      iex> context = "Hi" |> AshAgent.Context.new() |> AshAgent.Context.add_response!(response)
      iex> AshAgent.Context.count_messages(context)
      2
  """
  @doc since: "0.1.0", group: "Responses"
  @spec add_response!(t(), AshAgent.Response.t(), keyword()) :: t()
  def add_response!(context, response, opts \\ []),
    do: context |> add_response(response, opts) |> bang!()

  @doc """
  Answers pending tool calls, any number of them in any order, and returns the new context.

  When no call is pending any more, the iteration is complete and the next one opens.

  A result may be a map that also has the times of the tool, `:started_at` and `:ended_at`, each a `DateTime` or microseconds since
  1970, see `tool_call_times/2`.

  Takes the options of `add_user_message/3`. If a message's calls are answered in several steps, the metadata is merged.

  Raises `AshAgent.Context.Error` with `{:unknown_tool_call, id, pending}`, `{:tool_call_already_answered, id, pending}`,
  `{:duplicate_tool_result, id}`, `{:no_tool_results, pending}`, `{:no_pending_tool_calls, given}` or
  `{:invalid_tool_result, position, key}`.

  ## Examples

      iex> context = AshAgent.Context.new("6 * 7?")
      iex> context = AshAgent.Context.add_assistant_message(context, nil, [%{id: "a", name: :multiply}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a", {:ok, 42}}])
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: :multiply, arguments: %{}, result: {:ok, 42}}]
  """
  @doc since: "0.1.0", group: "Build"
  @spec add_tool_results(t(), [tool_result()], keyword()) :: t()
  def add_tool_results(%__MODULE__{ref: ref}, results, opts \\ []) when is_list(results) do
    {metadata, at} = stamp(opts)
    ref |> Native.context_add_tool_results(results, metadata, at) |> wrap!()
  end

  @doc """
  Answers every pending tool call with an error that has this reason, and returns the new context.

  The conversation can then continue, for instance with the next user message. If nothing is pending, the context is
  returned unchanged.

  ## Options

  #{Options.docs(:interrupt)}

  ## Examples

      iex> context = AshAgent.Context.new("Wait") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :sleep}])
      iex> context = AshAgent.Context.interrupt(context, "cancelled by the user")
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: :sleep, arguments: %{}, result: {:error, "cancelled by the user"}}]
  """
  @doc since: "0.1.0", group: "Build"
  @spec interrupt(t(), term(), keyword()) :: t()
  def interrupt(%__MODULE__{ref: ref}, reason \\ "interrupted", opts \\ []) do
    opts = Options.validate!(opts, :interrupt)

    ref
    |> Native.context_interrupt(reason, opts[:status] == :cancelled, opts[:metadata], opts[:at])
    |> wrap!()
  end

  @doc """
  Returns the tool calls of the message added last to the current iteration, or `[]`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.extract_tool_calls()
      []
  """
  @doc since: "0.1.0", group: "Read"
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
  @doc since: "0.1.0", group: "Read"
  @spec pending_tool_calls(t()) :: [map()]
  def pending_tool_calls(%__MODULE__{ref: ref}),
    do: ref |> Native.context_pending_tool_calls() |> ok!()

  @doc """
  Returns the messages of the view, oldest first, beginning with the system prompt.

  The view is the whole log unless something is hidden, summarised, cleared, shortened or masked, see `view/1`. Costs
  O(n). Long texts are not copied.

  ## Options

  #{Options.docs(:to_messages)}

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.to_messages()
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0", group: "Read"
  @spec to_messages(t(), keyword()) :: [message()]
  def to_messages(%__MODULE__{ref: ref}, opts \\ []) do
    opts = Options.validate!(opts, :to_messages)
    ref |> Native.context_to_messages(opts[:view] == :log) |> ok!()
  end

  @doc """
  Returns the messages of the view; the same as `to_messages/1`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.get_all_messages()
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0", group: "Read"
  @spec get_all_messages(t()) :: [message()]
  def get_all_messages(%__MODULE__{} = context), do: to_messages(context)

  @doc """
  Returns the iteration with this number, or `nil`.

  Costs O(log n) and the size of the iteration.

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
  @doc since: "0.1.0", group: "Read"
  @spec get_iteration(t(), integer()) :: iteration() | nil
  def get_iteration(%__MODULE__{ref: ref}, number) when is_integer(number),
    do: ref |> Native.context_iteration(number) |> ok!()

  @doc """
  Returns the messages of the iteration with this number, or `[]`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.get_iteration_messages(1)
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0", group: "Read"
  @spec get_iteration_messages(t(), integer()) :: [message()]
  def get_iteration_messages(%__MODULE__{ref: ref}, number) when is_integer(number),
    do: ref |> Native.context_iteration_messages(number) |> ok!()

  @doc """
  Returns all iterations, oldest first.

  Costs O(n). A context is also an `Enumerable` that yields its iterations one by one.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.iterations() |> Enum.map(& &1.number)
      [1]
  """
  @doc since: "0.1.0", group: "Read"
  @spec iterations(t()) :: [iteration()]
  def iterations(%__MODULE__{ref: ref}), do: ref |> Native.context_iterations() |> ok!()

  @doc """
  Returns the number of iterations, in constant time.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.count_iterations()
      1
  """
  @doc since: "0.1.0", group: "Read"
  @spec count_iterations(t()) :: pos_integer()
  def count_iterations(%__MODULE__{ref: ref}), do: Native.context_count_iterations(ref)

  @doc """
  Returns the number of messages in the view, which `to_messages/1` returns, in constant time.

  ## Examples

      iex> AshAgent.Context.new("Hello!", system_prompt: "Be brief.") |> AshAgent.Context.count_messages()
      2
  """
  @doc since: "0.1.0", group: "Read"
  @spec count_messages(t()) :: non_neg_integer()
  def count_messages(%__MODULE__{ref: ref}), do: Native.context_count_messages(ref)

  @doc """
  Returns `{:ok, message}` for the message at a 0-based position of an iteration, or `:error`.

  It is the message that `get_iteration_messages/2` returns at this position, in O(log n). A message added by
  `add_response/3` also has `:response`, a map with the `:provider`, the `:model` and the `:id`, the `:finish_reason` and
  `:finish_word`, the `:state` (`:complete` or `:interrupted`), and the `:reason` of an interruption. It has
  `:requested_at` and `:received_at` if they are known.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.fetch_message(context, {1, 0})
      {:ok, %{role: :user, content: "Hello!"}}
      iex> AshAgent.Context.fetch_message(context, {1, 1})
      :error
  """
  @doc since: "0.1.0", group: "Read"
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
  Returns whether the current iteration's number has reached `max`.

  Iterations are counted from 1, so every context has reached a `max` of 0 or less. That is not an error: a limit that has
  been used up should stop a loop, not crash it.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.exceeded_max_iterations?(context, 1)
      true
      iex> AshAgent.Context.exceeded_max_iterations?(context, 2)
      false
      iex> AshAgent.Context.exceeded_max_iterations?(context, 0)
      true
  """
  @doc since: "0.1.0", group: "Read"
  @spec exceeded_max_iterations?(t(), integer()) :: boolean()
  def exceeded_max_iterations?(%__MODULE__{ref: ref, current_iteration: current}, max)
      when is_integer(max) and node(ref) == node(),
      do: current >= max

  def exceeded_max_iterations?(%__MODULE__{} = context, max) when is_integer(max) do
    Handle.check!(context)
    context.current_iteration >= max
  end

  @doc """
  Returns the number of the iteration that began the current turn, which is the one with the last user message. Takes
  constant time.

  ## Examples

      iex> context = AshAgent.Context.new("Weather?") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :weather}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a", {:ok, "sunny"}}])
      iex> {context.current_iteration, AshAgent.Context.turn_start(context)}
      {2, 1}
  """
  @doc since: "0.1.0", group: "Read"
  @spec turn_start(t()) :: pos_integer()
  def turn_start(%__MODULE__{ref: ref}), do: Native.context_turn(ref)

  @doc """
  Makes a context from attributes, such as those that `to_map/1` returns, and returns `{:ok, context}` or `{:error,
  error}`.

  Attributes are a map or a keyword list with `:iterations`, `:current_iteration`, `:id`, `:metadata`, `:origin`,
  `:created_at` and `:updated_at`, all optional. Keys within them may be atoms or strings, times `DateTime`s or ISO 8601
  text, and results `{:ok, term}`, `["ok", term]` or `%{"ok" => term}`. `current_iteration` is the number of the last
  iteration, or the next number, in which case an empty iteration opens. Without iterations, the context has an empty
  first one.

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
  @doc since: "0.1.0", group: "Build"
  @spec create(map() | keyword()) :: {:ok, t()} | {:error, Error.t()}
  def create(attributes) when is_map(attributes) or is_list(attributes),
    do: attributes |> attributes() |> Native.context_create(nil) |> wrap()

  @doc """
  Like `create/1`, but returns the context or raises `AshAgent.Context.Error`.

  ## Examples

      iex> AshAgent.Context.create!(%{}).current_iteration
      1
  """
  @doc since: "0.1.0", group: "Build"
  @spec create!(map() | keyword()) :: t()
  def create!(attributes), do: attributes |> create() |> bang!()

  @doc """
  Replaces attributes of a context and returns `{:ok, context}` or `{:error, error}`.

  Attributes are those of `create/1`; the others stay. `:updated_at` defaults to now.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, context} = AshAgent.Context.update(context, %{current_iteration: 2})
      iex> context.current_iteration
      2
  """
  @doc since: "0.1.0", group: "Build"
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
  @doc since: "0.1.0", group: "Build"
  @spec update!(t(), map() | keyword()) :: t()
  def update!(%__MODULE__{} = context, attributes), do: context |> update(attributes) |> bang!()

  @doc """
  Returns the conversation as plain terms: `:id`, `:iterations`, `:current_iteration`, `:metadata`, `:created_at` and
  `:updated_at`, and for a fork its `:origin`, see `fork/2`.

  Costs O(n). `create!/1` makes a context from it that returns the same map again. The map leaves out two things: the JSON
  text of arguments that were given as text, and whether an error came from `interrupt/2`.

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
  @doc since: "0.1.0", group: "Read"
  @spec to_map(t()) :: map()
  def to_map(%__MODULE__{ref: ref}), do: ref |> Native.context_to_map() |> ok!()

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
  @doc since: "0.1.0", group: "Store"
  @spec dump(t(), keyword()) :: map()
  def dump(context, opts \\ [])

  def dump(%__MODULE__{ref: ref}, []), do: ref |> Native.snapshot_dump(0) |> ok!()

  def dump(%__MODULE__{ref: ref}, opts) do
    case Options.validate!(opts, :dump) do
      [since: number] -> ref |> Native.snapshot_dump(number || 0) |> ok!()
      [beside: %__MODULE__{ref: base}] -> ref |> Native.snapshot_dump_beside(base) |> ok!()
      _ -> raise ArgumentError, "options :since and :beside exclude each other: give one of them"
    end
  end

  @doc """
  Makes a context from a map that `dump/2` returned, and returns `{:ok, context}` or `{:error, error}`.

  The data may come from anywhere: an error has the path to the problem, and loading never creates atoms. An atom that
  this VM does not have is loaded as `AshAgent.Context.UnknownAtom`.

  A document can claim that a person approved a tool call, and it can name a struct of any module, such as a `File.Stream`
  of any path, which a tool then finds in its arguments. Trust both only in documents that the application itself stored.
  Load others with `load(document, approvals: :drop, structs: :known)`. Their messages and tool results are still their
  author's.

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
  """
  @doc since: "0.1.0", group: "Store"
  @spec load(term()) :: {:ok, t()} | {:error, Error.t()}
  def load(document), do: document |> Native.snapshot_load(Trust.check!([])) |> wrap()

  @doc """
  Puts a delta that `dump/2` made with `:since` or `:beside` onto a context, and returns `{:ok, context}` or `{:error,
  error}`. With options as the second argument, it loads a document as `load/1` describes.

  The delta's iterations replace those of the context from the first of them on. Everything else in the conversation, such
  as its metadata, is taken from the delta. Loading a delta twice is the same as loading it once. A delta of a
  conversation with another id, or one that leaves a gap, is an error. Costs O(size of the delta).

  ## Examples

      iex> stored = AshAgent.Context.new("Hello!")
      iex> context = stored |> AshAgent.Context.add_assistant_message("Hi!") |> AshAgent.Context.add_user_message("Bye.")
      iex> delta = AshAgent.Context.dump(context, since: stored.current_iteration)
      iex> {:ok, loaded} = AshAgent.Context.load(stored, delta)
      iex> AshAgent.Context.equal?(loaded, context)
      true
  """
  @doc since: "0.1.0", group: "Store"
  @spec load(t(), delta :: term()) :: {:ok, t()} | {:error, Error.t()}
  @spec load(document :: term(), keyword()) :: {:ok, t()} | {:error, Error.t()}
  def load(%__MODULE__{ref: ref} = context, delta) when is_reference(ref),
    do: load(context, delta, [])

  def load(document, opts) when is_list(opts),
    do: document |> Native.snapshot_load(Trust.check!(opts)) |> wrap()

  @doc """
  Puts a delta onto a context as `load/2` does, with the options of `load/1` for the delta. The context's own contents are
  not affected by them.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", metadata: %{pages: 1..3})
      iex> delta = AshAgent.Context.dump(context, since: 1)
      iex> {:ok, context} = AshAgent.Context.load(context, delta, structs: :drop)
      iex> AshAgent.Context.metadata(context)
      %{pages: %{first: 1, last: 3, step: 1}}
  """
  @doc since: "0.1.0", group: "Store"
  @spec load(t(), delta :: term(), keyword()) :: {:ok, t()} | {:error, Error.t()}
  def load(%__MODULE__{ref: ref}, delta, opts) when is_list(opts),
    do: ref |> Native.snapshot_load_delta(delta, Trust.check!(opts)) |> wrap()

  @doc """
  Like `load/1`, but returns the context or raises `AshAgent.Context.Error`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.load!(AshAgent.Context.dump(context)).current_iteration
      1
  """
  @doc since: "0.1.0", group: "Store"
  @spec load!(term()) :: t()
  def load!(document), do: document |> load() |> bang!()

  @doc """
  Like `load/2`, but returns the context or raises `AshAgent.Context.Error`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.load!(context, AshAgent.Context.dump(context, since: 1)).current_iteration
      1
      iex> AshAgent.Context.load!(AshAgent.Context.dump(context), structs: :known).current_iteration
      1
  """
  @doc since: "0.1.0", group: "Store"
  @spec load!(t(), delta :: term()) :: t()
  @spec load!(document :: term(), keyword()) :: t()
  def load!(context_or_document, delta_or_opts),
    do: context_or_document |> load(delta_or_opts) |> bang!()

  @doc """
  Like `load/3`, but returns the context or raises `AshAgent.Context.Error`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.load!(context, AshAgent.Context.dump(context, since: 1), approvals: :drop).current_iteration
      1
  """
  @doc since: "0.1.0", group: "Store"
  @spec load!(t(), delta :: term(), keyword()) :: t()
  def load!(%__MODULE__{} = context, delta, opts) when is_list(opts),
    do: context |> load(delta, opts) |> bang!()

  @doc """
  Makes a context from a map that `dump/1` or `to_map/1` returned, or from text that `to_snapshot/1` returned. Returns
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
  @doc since: "0.1.0", group: "Store"
  @spec restore(t() | map() | binary()) :: {:ok, t()} | {:error, Error.t()}
  def restore(%__MODULE__{} = context) do
    with :ok <- Handle.check(context), do: {:ok, context}
  end

  def restore(text) when is_binary(text), do: from_snapshot(text)
  # Documents of dump/1 have a version, maps of to_map/1 do not.
  def restore(%{"version" => _} = document), do: load(document)
  def restore(%{} = attributes) when not is_struct(attributes), do: create(attributes)

  def restore(%{}),
    do: {:error, %Error{reason: {:invalid, [], "a context, or a map of one"}}}

  @doc """
  Returns the conversation as JSON text, equal to the encoded `dump/2` but made without the map. Costs O(n).

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> text = AshAgent.Context.to_snapshot(context)
      iex> AshAgent.Context.JSON.decode!(text) == AshAgent.Context.dump(context)
      true
  """
  @doc since: "0.1.0", group: "Store"
  @spec to_snapshot(t()) :: binary()
  def to_snapshot(%__MODULE__{ref: ref}), do: ref |> Native.snapshot_encode() |> ok!()

  @doc """
  Makes a context from the JSON text that `to_snapshot/1` returned, and returns `{:ok, context}` or `{:error, error}`.
  Takes the options of `load/1`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, copy} = AshAgent.Context.from_snapshot(AshAgent.Context.to_snapshot(context))
      iex> AshAgent.Context.equal?(context, copy)
      true
  """
  @doc since: "0.1.0", group: "Store"
  @spec from_snapshot(binary(), keyword()) :: {:ok, t()} | {:error, Error.t()}
  def from_snapshot(text, opts \\ []) when is_binary(text) and is_list(opts),
    do: text |> Native.snapshot_decode(Trust.check!(opts)) |> wrap()

  @doc """
  Like `from_snapshot/2`, but returns the context or raises `AshAgent.Context.Error`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.from_snapshot!(AshAgent.Context.to_snapshot(context)).current_iteration
      1
  """
  @doc since: "0.1.0", group: "Store"
  @spec from_snapshot!(binary(), keyword()) :: t()
  def from_snapshot!(text, opts \\ []), do: text |> from_snapshot(opts) |> bang!()

  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]

  @typedoc "A provider whose API a request is for."
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

  The map has `"system"` and `"messages"` for Anthropic and Bedrock, `"messages"` for OpenAI chat, Ollama and Mistral,
  `"instructions"` and `"input"` for OpenAI Responses, and `"systemInstruction"` and `"contents"` for Gemini. It obeys the
  provider's rules; `request_report/3` lists what had to be changed for that. The conversation itself does not change. To
  send a request, use `encode_request/3`, which is faster.

  The error's reason is `{:pending_tool_calls, ids}` while tool calls wait for their results, `{:unknown_iteration,
  number, first..last}`, or `{:invalid, path, expected}` for a number that no float can hold, which JSON readers refuse. Costs O(n).

  ## Options

  #{Options.docs(:request)}

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", system_prompt: "Be brief.")
      iex> AshAgent.Context.request(context, :anthropic)
      {:ok, %{"system" => "Be brief.", "messages" => [%{"role" => "user", "content" => "Hello!"}]}}
  """
  @doc since: "0.1.0", group: "Requests"
  @spec request(t(), provider(), keyword()) :: {:ok, map()} | {:error, Error.t()}
  def request(%__MODULE__{ref: ref}, provider, opts \\ []) when provider in @providers do
    ref |> Native.context_request(checked_options(provider, opts)) |> error_struct()
  end

  @doc """
  Like `request/3`, but returns the request or raises `AshAgent.Context.Error`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.request!(:gemini)
      %{"contents" => [%{"role" => "user", "parts" => [%{"text" => "Hello!"}]}]}
  """
  @doc since: "0.1.0", group: "Requests"
  @spec request!(t(), provider(), keyword()) :: map()
  def request!(%__MODULE__{} = context, provider, opts \\ []),
    do: context |> request(provider, opts) |> bang!()

  @doc """
  Returns `{:ok, iodata}` with a complete JSON request body, or `{:error, error}`.

  Takes the options of `request/3`, and `:body`: a map with the provider's other fields (model, tools, max_tokens, ...),
  which come before the message part. A field of the message part in it raises `ArgumentError`.

  Each message is encoded once for each provider and set of options, and the encodings of old iterations join into larger
  ones. The iodata is a list of binaries that point to them: about as many as iterations since a multiple of 16, and one for
  each megabyte. Appending never changes the bytes before the appended message (cache breakpoints aside), so that
  providers' prompt caches hit.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, body} = AshAgent.Context.encode_request(context, :openai_chat, body: %{model: "gpt-4o"})
      iex> IO.iodata_to_binary(body)
      ~s({"model":"gpt-4o","messages":[{"role":"user","content":"Hello!"}]})
  """
  @doc since: "0.1.0", group: "Requests"
  @spec encode_request(t(), provider(), keyword()) :: {:ok, iodata()} | {:error, Error.t()}
  def encode_request(%__MODULE__{ref: ref}, provider, opts \\ []) when provider in @providers do
    {body, options} = encode_options(provider, opts)

    case Native.context_encode_request(ref, options, body) do
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
  @doc since: "0.1.0", group: "Requests"
  @spec encode_request!(t(), provider(), keyword()) :: iodata()
  def encode_request!(%__MODULE__{} = context, provider, opts \\ []),
    do: context |> encode_request(provider, opts) |> bang!()

  @doc """
  Returns the changes that `request/3` with the same options makes so that the provider accepts the request.

  Each change is a map with `:change`, `:from` (in the conversation), `:to` (in the request, `nil` if nothing is sent),
  `:iteration` and `:position`; those of the system prompt come first. Changes are `:renamed_id`, `:renamed_tool`,
  `:wrapped_arguments` (arguments that are not a JSON object), `:dropped_blank_text`, `:replaced_bytes` (invalid UTF-8),
  `:dropped_thinking`, `:thinking_to_text`, `:dropped_part`, `:dropped_message`, `:part_to_text`, `:moved_part` (an image in a
  tool result, sent after the results), `:call_to_function` (a call of a kind that the provider does not know) and
  `:added_message` (a user message that says "Continue." where the provider wants one and there is none).

  A provider refuses one half of a call that it answered itself without the other, such as the result of a web search without
  the search. So if one half is hidden, masked or before `:since`, the other is left out as well, as `:dropped_part`.

  The view's changes are listed as well: `:hidden_iterations` and `:summarized_iterations` (`:from` is the range as text),
  `:cleared_result` and `:shortened_result` (`:from` is the id of the call) and `:masked_text`.

  Raises `AshAgent.Context.Error` as `request!/3` does. Costs O(n).

  ## Examples

      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a.b", name: :now}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a.b", {:ok, "10:00"}}])
      iex> AshAgent.Context.request_report(context, :anthropic) |> hd()
      %{change: :renamed_id, from: "a.b", to: "a_b", iteration: 1, position: 1}
  """
  @doc since: "0.1.0", group: "Requests"
  @spec request_report(t(), provider(), keyword()) :: [map()]
  def request_report(%__MODULE__{ref: ref}, provider, opts \\ []) when provider in @providers,
    do: ref |> Native.context_request_report(checked_options(provider, opts)) |> ok!()

  @doc """
  Returns the conversation as plain text, for models that take a single text.

  Blocks `[System]`, `[User]`, `[Assistant]` and `[Tool NAME]` are separated by blank lines. Costs O(n).

  ## Options

  #{Options.docs(:to_prompt)}

  ## Examples

      iex> AshAgent.Context.new("Hello!", system_prompt: "Be brief.") |> AshAgent.Context.to_prompt()
      "[System]\\nBe brief.\\n\\n[User]\\nHello!"
  """
  @doc since: "0.1.0", group: "Requests"
  @spec to_prompt(t(), keyword()) :: String.t()
  def to_prompt(%__MODULE__{ref: ref}, opts \\ []) do
    opts = Options.validate!(opts, :to_prompt)
    ref |> Native.context_to_prompt(opts[:mode]) |> ok!()
  end

  @doc """
  Returns whether a request can be made from the context now: `:ok` or `{:error, reasons}`.

  The reasons are `:no_messages` (there is nothing but the system prompt), `:last_message_from_assistant` (the model has
  answered; some providers refuse to continue, others continue the answer) and `{:pending_tool_calls, ids}`. `request/3`
  refuses only the last of them.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.validate_for_request(context)
      :ok
      iex> context |> AshAgent.Context.add_assistant_message("Hi!") |> AshAgent.Context.validate_for_request()
      {:error, [:last_message_from_assistant]}
  """
  @doc since: "0.1.0", group: "Requests"
  @spec validate_for_request(t()) ::
          :ok
          | {:error,
             [
               :no_messages
               | :last_message_from_assistant
               | {:pending_tool_calls, ids :: [String.t()]}
             ]}
  def validate_for_request(%__MODULE__{ref: ref}) do
    case ref |> Native.context_unready() |> ok!() do
      [] -> :ok
      reasons -> {:error, reasons}
    end
  end

  @typedoc """
  The repairs that an import made, and the fields of the request that are not part of the conversation.

  A repair has the 0-based position of the `message` (or content, or item) in the given list:

    * `:dropped_empty_message` - the message is empty
    * `:dropped_orphan_result` - a result with this `id` has no call
    * `:dropped_duplicate_result` - a second result for the call with this `id`
    * `:moved_result` - a result did not directly follow its call
    * `:moved_call` - text or thinking followed a call in its message, and the provider wants calls last
    * `:renamed_call` - a call had the `id` of another call of its message; it is now called `to`
    * `:synthesised_result` - a call without a result was followed by something else; its result is now the error "interrupted"

  `rest` has the other fields of the request, as they were given.
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
  Makes a context from a request to a provider, and returns `{:ok, context, report}` or `{:error, error}`.

  `body` is a map with string or atom keys, or JSON text. Fields other than the messages (model, tools, limits) are
  returned in `report.rest`, for `encode_request/3`. A history that the provider would refuse is repaired, and
  `report.repairs` lists how, see `t:import_report/0`; a valid history needs no repair. Calls at the end that have no
  results are pending.

  For the same provider, `request/3` returns the messages as they were, including details that a context has no place for,
  such as cache breakpoints. It follows the provider's rules instead where a message was repaired, where calls are
  pending, and where the provider is known to refuse the message (blank texts, ids or names it cannot take). One shape
  changes its form: an `input` of OpenAI Responses that is a string becomes a list with one user message.

  Blocks that no other provider knows become parts of the type `:provider_block`. The context keeps the messages in both
  forms and is about twice as large as one built with the `add_*` functions.

  The error's reason is `{:invalid, path, expected}` with the path into the body, or `{:too_deep, limit}`. Costs O(n).

  ## Options

  #{Options.docs(:import)}

  ## Examples

      iex> body = %{"model" => "m1", "messages" => [%{"role" => "user", "content" => "Hello!"}]}
      iex> {:ok, context, report} = AshAgent.Context.from_request(body, :anthropic)
      iex> AshAgent.Context.to_messages(context)
      [%{role: :user, content: "Hello!"}]
      iex> report
      %{repairs: [], rest: %{"model" => "m1"}}

      iex> {:error, error} = AshAgent.Context.from_request(%{messages: [%{role: "user", content: 1}]}, :openai_chat)
      iex> error.reason
      {:invalid, [:messages, 0, :content], "content: text or a list of parts"}
  """
  @doc since: "0.1.0", group: "Requests"
  @spec from_request(map() | binary(), provider(), keyword()) ::
          {:ok, t(), import_report()} | {:error, Error.t()}
  def from_request(body, provider, opts \\ [])
      when (is_map(body) or is_binary(body)) and provider in @providers do
    opts = Options.validate!(opts, :import)
    body |> Native.import_request(provider, opts[:id], opts[:at]) |> wrap_import()
  end

  @doc """
  Like `from_request/3`, but returns the context alone or raises `AshAgent.Context.Error`.

  ## Examples

      iex> body = ~s({"contents": [{"role": "user", "parts": [{"text": "Hello!"}]}]})
      iex> AshAgent.Context.from_request!(body, :gemini) |> AshAgent.Context.to_messages()
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0", group: "Requests"
  @spec from_request!(map() | binary(), provider(), keyword()) :: t()
  def from_request!(body, provider, opts \\ []),
    do: body |> from_request(provider, opts) |> bang_import!()

  @doc """
  Makes a context from a list of messages, and returns `{:ok, context, report}` or `{:error, error}`.

  Messages are in OpenAI's chat format or in the form of `to_messages/1`, in any mixture, with string or atom keys. Keys
  that neither format has are ignored. Repairs, errors and options are those of `from_request/3`.

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
  @doc since: "0.1.0", group: "Requests"
  @spec from_messages([map()], keyword()) :: {:ok, t(), import_report()} | {:error, Error.t()}
  def from_messages(messages, opts \\ []) when is_list(messages) do
    opts = Options.validate!(opts, :import)
    messages |> Native.import_messages(opts[:id], opts[:at]) |> wrap_import()
  end

  @doc false
  # See AshAgent.Trace.from_atif/2.
  def from_atif(document, opts) do
    opts = Options.validate!(opts, :import)
    document |> Native.import_atif(opts[:id], opts[:at]) |> wrap_import()
  end

  @doc """
  Like `from_messages/2`, but returns the context alone or raises `AshAgent.Context.Error`.

  ## Examples

      iex> context = AshAgent.Context.from_messages!([%{"role" => "user", "content" => "Hello!"}])
      iex> context.current_iteration
      1
  """
  @doc since: "0.1.0", group: "Requests"
  @spec from_messages!([map()], keyword()) :: t()
  def from_messages!(messages, opts \\ []), do: messages |> from_messages(opts) |> bang_import!()

  @doc """
  Makes a context from a conversation of ReqLLM: a `ReqLLM.Context`, or a list of its messages, as structs or as maps with the same
  fields. Returns what `from_messages/2` returns, with the same repairs and options.

  Reasoning of Anthropic, OpenAI and Google becomes thinking, which is sent back to its provider. Calls that the provider has run
  itself (`builtin?`) are not calls to answer. Fields that a context has no place for, such as `reasoning_details` of other providers,
  are kept in the message's metadata, so that `to_req_llm/1` returns the same messages again. Tools are not part of the conversation.

  ## Examples

      iex> messages = [
      ...>   %{role: :user, content: [%{type: :text, text: "Weather?"}]},
      ...>   %{role: :assistant, content: [], tool_calls: [%{id: "a", type: "function", function: %{name: "get", arguments: "{}"}}]},
      ...>   %{role: :tool, tool_call_id: "a", name: "get", content: [%{type: :text, text: "sunny"}]}
      ...> ]
      iex> {:ok, context, %{repairs: []}} = AshAgent.Context.from_req_llm(messages)
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: "get", arguments: %{}, result: {:ok, "sunny"}}]
  """
  @doc since: "0.1.0", group: "Other libraries"
  @spec from_req_llm(map() | [map()], keyword()) ::
          {:ok, t(), import_report()} | {:error, Error.t()}
  def from_req_llm(context_or_messages, opts \\ [])

  def from_req_llm(%{messages: messages}, opts), do: from_req_llm(messages, opts)
  def from_req_llm(%{"messages" => messages}, opts), do: from_req_llm(messages, opts)

  def from_req_llm(messages, opts) when is_list(messages),
    do: Peer.import(Peer.ReqLLM, messages, opts)

  @doc """
  Returns the messages as a `ReqLLM.Context`, or as maps with the same fields if ReqLLM is not loaded.

  Like `to_messages/1`, it shows the view. Parts that ReqLLM has no form for are left out, such as audio.

  ## Examples

      iex> %{messages: [message]} = AshAgent.Context.new("Hello!") |> AshAgent.Context.to_req_llm()
      iex> {message.role, Enum.map(message.content, & &1.text)}
      {:user, ["Hello!"]}
  """
  @doc since: "0.1.0", group: "Other libraries"
  @spec to_req_llm(t()) :: struct() | %{messages: [map()], tools: []}
  def to_req_llm(%__MODULE__{} = context) do
    messages = Peer.export(Peer.ReqLLM, context, to_messages(context))
    Peer.build(ReqLLM.Context, %{messages: messages, tools: []})
  end

  @doc """
  Makes a context from messages of LangChain, as structs or as maps with the same fields. Returns what `from_messages/2` returns.

  Calls that did not come in whole (`status: :incomplete`) are not calls to answer. Fields that a context has no place for are kept in
  the message's metadata, so that `to_langchain/1` returns the same messages again.

  ## Examples

      iex> {:ok, context, _report} = AshAgent.Context.from_langchain([%{role: :user, content: "Hello!", name: "ann"}])
      iex> [%{role: :user, content: "Hello!"}] = AshAgent.Context.to_messages(context)
      iex> [%{content: "Hello!", name: "ann"}] = AshAgent.Context.to_langchain(context)
      iex> AshAgent.Context.count_messages(context)
      1
  """
  @doc since: "0.1.0", group: "Other libraries"
  @spec from_langchain([map()], keyword()) :: {:ok, t(), import_report()} | {:error, Error.t()}
  def from_langchain(messages, opts \\ []) when is_list(messages),
    do: Peer.import(Peer.LangChain, messages, opts)

  @doc """
  Returns the messages as those of LangChain, or as maps with the same fields if LangChain is not loaded. Like `to_messages/1`, it
  shows the view.

  ## Examples

      iex> [message] = AshAgent.Context.new("Hello!") |> AshAgent.Context.to_langchain()
      iex> {message.role, Enum.map(message.content, & &1.content)}
      {:user, ["Hello!"]}
  """
  @doc since: "0.1.0", group: "Other libraries"
  @spec to_langchain(t()) :: [struct() | map()]
  def to_langchain(%__MODULE__{} = context),
    do: Peer.export(Peer.LangChain, context, to_messages(context))

  @doc """
  Makes a context from a `Jido.AI.Context`, or from a map with the same fields. Returns what `from_messages/2` returns.

  The context has the id of Jido's, unless the option `:id` is given. Timestamps, `refs` and other fields that a context has no place
  for are kept in the message's metadata, so that `to_jido/1` returns the same entries again.

  ## Examples

      iex> jido = %{id: "j1", system_prompt: "Be brief.", entries: [%{role: :user, content: "Hello!"}]}
      iex> {:ok, context, _report} = AshAgent.Context.from_jido(jido)
      iex> {context[:id], AshAgent.Context.count_messages(context)}
      {"j1", 2}
  """
  @doc since: "0.1.0", group: "Other libraries"
  @spec from_jido(map(), keyword()) :: {:ok, t(), import_report()} | {:error, Error.t()}
  # Jido keeps the newest entry first.
  def from_jido(%{entries: entries} = jido, opts \\ []) when is_list(entries) do
    prompt =
      case jido do
        %{system_prompt: text} when is_binary(text) -> [%{role: :system, content: text}]
        _none -> []
      end

    opts =
      case jido do
        %{id: id} when is_binary(id) -> Keyword.put_new(opts, :id, id)
        _none -> opts
      end

    Peer.import(Peer.Jido, prompt ++ Enum.reverse(entries), opts)
  end

  @doc """
  Returns the conversation as a `Jido.AI.Context`, or as a map with the same fields if Jido AI is not loaded. Like `to_messages/1`, it
  shows the view.

  ## Examples

      iex> jido = AshAgent.Context.new("Hello!", id: "c1", system_prompt: "Be brief.") |> AshAgent.Context.to_jido()
      iex> {jido.id, jido.system_prompt, Enum.map(jido.entries, & &1.content)}
      {"c1", "Be brief.", ["Hello!"]}
  """
  @doc since: "0.1.0", group: "Other libraries"
  @spec to_jido(t()) :: struct() | map()
  def to_jido(%__MODULE__{} = context) do
    messages = to_messages(context)

    # One with a timestamp was an entry.
    {prompt, messages} =
      case {messages, metadata(context)} do
        {[%{role: :system, content: text} | rest], noted}
        when is_binary(text) and not is_map_key(noted, "jido") ->
          {text, rest}

        _none ->
          {nil, messages}
      end

    entries = Peer.Jido |> Peer.export(context, messages) |> Enum.reverse()
    Peer.build(Jido.AI.Context, %{id: context[:id], entries: entries, system_prompt: prompt})
  end

  @doc """
  Returns the conversation as it was at the end of an iteration, which becomes the current one.

  The next message opens the iteration after it. Rewinding to the current iteration changes nothing. Iterations that the
  view hides before the turn stay hidden. Costs O(log n).

  The option `:to` is the number of the iteration. Raises `AshAgent.Context.Error` with `{:unknown_iteration, number,
  first..last}`.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One") |> Context.add_assistant_message("1") |> Context.add_user_message("Two")
      iex> context |> Context.rewind(to: 1) |> Context.add_user_message("Three") |> Context.get_iteration_messages(2)
      [%{role: :user, content: "Three"}]
  """
  @doc since: "0.1.0", group: "Fork"
  @spec rewind(t(), to: integer()) :: t()
  def rewind(%__MODULE__{ref: ref}, opts) do
    number = Options.validate!(opts, :rewind)[:to]
    ref |> Native.context_rewind(number) |> known!(number) |> wrap!()
  end

  @doc """
  Makes a new conversation with another id that continues from here, and returns it. Costs O(calls of the last message).

  Both conversations share everything up to now and then develop independently. Without a fork, two contexts made from one
  have the same id, and storing both overwrites one with the other.

  `context[:origin]` of a fork is `%{id: id, iteration: number}`: the conversation that it was made from, and that one's
  current iteration at the time. `to_map/1` and `dump/2` include it. A fork of a fork has the id of the nearer one, and
  any other context has `nil`. To fork at an earlier iteration, call `rewind/2` first.

  The fork's `:created_at` and `:updated_at` are the time of the fork. It keeps the metadata, the view and the reports on
  tokens. Pending calls are pending in the fork as well and need a new approval, since an approval is for one run.

  A fork is not `equal?/2` to the original, and is dumped as a whole and by its own deltas: `dump/2` with `:beside` finds
  nothing that two ids share, and a delta of one does not load onto the other.

  ## Options

  #{Options.docs(:fork)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Name a city.", id: "c1") |> Context.add_assistant_message("Rome.")
      iex> fork = context |> Context.fork(id: "c2") |> Context.add_user_message("Another one.")
      iex> {fork[:id], fork[:origin]}
      {"c2", %{id: "c1", iteration: 1}}
      iex> context[:origin]
      nil
  """
  @doc since: "0.1.0", group: "Fork"
  @spec fork(t(), keyword()) :: t()
  def fork(%__MODULE__{ref: ref} = context, opts \\ []) do
    opts = Options.validate!(opts, :fork)

    if opts[:id] != nil and opts[:id] == context[:id] do
      raise ArgumentError,
            "invalid value for option :id: it is the context's own; give the fork another one, or none for a new UUID"
    end

    ref |> Native.context_fork(opts[:id], opts[:at]) |> wrap!()
  end

  @doc """
  Replaces the system prompt with a string or text parts, and returns the new context. `nil` removes it.

  Takes the option `:at` as `put_metadata/4` does.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", system_prompt: "Be brief.")
      iex> context |> AshAgent.Context.put_system_prompt("Be kind.") |> AshAgent.Context.system_prompt()
      "Be kind."
  """
  @doc since: "0.1.0", group: "Build"
  @spec put_system_prompt(t(), content(), keyword()) :: t()
  def put_system_prompt(%__MODULE__{ref: ref}, prompt, opts \\ [])
      when is_binary(prompt) or is_list(prompt) or is_nil(prompt),
      do: ref |> Native.context_put_system_prompt(prompt, change_at(opts)) |> wrap!()

  @doc """
  Returns the system prompt, or `nil`, without the texts that `put_prompt_block/4` adds.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.system_prompt()
      nil
  """
  @doc since: "0.1.0", group: "Read"
  @spec system_prompt(t()) :: content()
  def system_prompt(%__MODULE__{ref: ref}), do: ref |> Native.context_system_prompt() |> ok!()

  @doc """
  Compares two conversations that may have a common beginning.

  Returns the number of the last iteration up to which both are equal, and each one's iterations after it. `last_common`
  is `nil` if they differ from the first iteration on. System prompts and views are not compared.

  Costs O(n) at most; shared parts are not compared.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One") |> Context.add_assistant_message("1")
      iex> a = Context.add_user_message(context, "Two")
      iex> b = Context.rewind(a, to: 1)
      iex> %{last_common: 1, a: [%{number: 2}], b: []} = Context.diff(a, b)
      iex> Context.diff(a, Context.new("Else")).last_common
      nil
  """
  @doc since: "0.1.0", group: "Fork"
  @spec diff(t(), t()) :: %{last_common: pos_integer() | nil, a: [iteration()], b: [iteration()]}
  def diff(%__MODULE__{} = a, %__MODULE__{} = b) do
    common = a.ref |> Native.context_last_common(b.ref) |> ok!()
    %{last_common: common, a: beyond(a, common), b: beyond(b, common)}
  end

  defp beyond(context, common) do
    first = Native.context_first_iteration(context.ref)
    last = first + count_iterations(context) - 1

    # The field may have been changed by hand: listing so many iterations would fill the memory.
    if context.current_iteration !== last do
      raise ArgumentError,
            "expected a context whose current_iteration is #{last}, got: #{Check.kind(context.current_iteration)}; " <>
              "use the functions of AshAgent.Context to change contexts"
    end

    for number <- if(common, do: common + 1, else: first)..last//1,
        do: get_iteration(context, number)
  end

  @typedoc """
  The status of a tool call: first `:pending`, then perhaps `:approved`, and once its slot is filled `:ok`, `:error`,
  `:denied`, `:interrupted`, `:cancelled` or `:unknown` (started, and how it ended is not known). A filled slot is final.
  """
  @type call_status ::
          :pending | :approved | :denied | :ok | :error | :interrupted | :cancelled | :unknown

  @doc """
  Records the arguments that a pending tool call would run with, for whoever decides about it, and returns the new
  context.

  An application may change the arguments that a model wrote before they reach a tool, as the `:before_tool` hooks of
  `AshAgent.Runtime` do. From then on, `undecided_tool_calls/1` shows the recorded arguments, and `approve_tool_call/3`
  approves them. The call itself stays as the model wrote it, for providers and for `get_iteration/2`. Recording the
  call's own arguments removes an earlier record.

  Raises `AshAgent.Context.Error` with `{:unknown_tool_call, id, pending}`, or with `{:illegal_status, id, from, :asked}`
  if the call is already approved or has its result.

  ## Options

  #{Options.docs(:change)}

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete, arguments: %{"path" => "x"}}])
      iex> context = AshAgent.Context.ask_about_tool_call(context, "a", %{"path" => "/srv/x"})
      iex> AshAgent.Context.undecided_tool_calls(context)
      [%{id: "a", name: :delete, arguments: %{"path" => "/srv/x"}}]
      iex> AshAgent.Context.pending_tool_calls(context)
      [%{id: "a", name: :delete, arguments: %{"path" => "x"}}]
  """
  @doc since: "0.1.0", group: "Approve"
  @spec ask_about_tool_call(t(), String.t(), arguments :: map(), keyword()) :: t()
  def ask_about_tool_call(%__MODULE__{ref: ref}, id, arguments, opts \\ [])
      when is_binary(id) and is_map(arguments) do
    ref |> Native.context_ask(id, arguments, change_at(opts)) |> wrap!()
  end

  @doc """
  Returns the undecided tool calls of the current iteration, each with the arguments that it would run with: those of
  `ask_about_tool_call/4`, or else its own. Show these to whoever decides.

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete}, %{id: "b", name: :list}])
      iex> context |> AshAgent.Context.approve_tool_call("b") |> AshAgent.Context.undecided_tool_calls()
      [%{id: "a", name: :delete, arguments: %{}}]
  """
  @doc since: "0.1.0", group: "Approve"
  @spec undecided_tool_calls(t()) :: [map()]
  def undecided_tool_calls(%__MODULE__{ref: ref}),
    do: ref |> Native.context_undecided_calls() |> ok!()

  @doc """
  Records that a pending tool call may run, and returns the new context.

  The call stays pending until `add_tool_results/2` answers it. `tool_call_decision/2` returns who approved it and when.

  An approval is for the call's name and the given arguments: a digest of both is kept with it, and
  `tool_call_approved?/3` compares it with what is about to run.

  Raises `AshAgent.Context.Error` with `{:unknown_tool_call, id, pending}`, or with `{:illegal_status, id, from,
  :approved}` if the call is already approved or has its result.

  ## Options

  #{Options.docs(:approve)}

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete}])
      iex> context |> AshAgent.Context.approve_tool_call("a", by: "ann") |> AshAgent.Context.tool_call_status("a")
      :approved
  """
  @doc since: "0.1.0", group: "Approve"
  @spec approve_tool_call(t(), String.t(), keyword()) :: t()
  def approve_tool_call(%__MODULE__{ref: ref}, id, opts \\ []) when is_binary(id) do
    opts = Options.validate!(opts, :approve)
    ref |> Native.context_approve(id, opts[:arguments], opts[:by], opts[:at]) |> wrap!()
  end

  @doc """
  Returns whether a tool call is pending and was approved with these arguments.

  Check this before you run an approved call: it is `false` if the arguments, or the call in the stored document, have
  changed since the approval. Approvals stored by a release that kept no digest are for the call's own arguments as they
  are now. Costs O(n) for n calls in the last message.

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete, arguments: %{"path" => "x"}}])
      iex> context = AshAgent.Context.approve_tool_call(context, "a", by: "ann")
      iex> {AshAgent.Context.tool_call_approved?(context, "a", %{"path" => "x"}), AshAgent.Context.tool_call_approved?(context, "a", %{"path" => "/"})}
      {true, false}
  """
  @doc since: "0.1.0", group: "Approve"
  @spec tool_call_approved?(t(), String.t(), arguments :: map()) :: boolean()
  def tool_call_approved?(%__MODULE__{ref: ref}, id, arguments)
      when is_binary(id) and is_map(arguments),
      do: ref |> Native.context_is_approved(id, arguments) |> ok!()

  @doc """
  Denies a pending tool call, and returns the new context.

  The call's result becomes an error that tells the model so, with the reason in words. If no other call is pending, the
  iteration is complete. Raises the errors of `approve_tool_call/3`.

  ## Options

  #{Options.docs(:deny)}

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete}])
      iex> context = AshAgent.Context.deny_tool_call(context, "a", "not on Fridays", by: "ann")
      iex> AshAgent.Context.tool_call_status(context, "a")
      :denied
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: :delete, arguments: %{}, result: {:error, "denied: not on Fridays"}}]
  """
  @doc since: "0.1.0", group: "Approve"
  @spec deny_tool_call(t(), String.t(), term(), keyword()) :: t()
  def deny_tool_call(%__MODULE__{ref: ref}, id, reason \\ nil, opts \\ []) when is_binary(id) do
    opts = Options.validate!(opts, :deny)
    ref |> Native.context_deny(id, reason, opts[:by], opts[:at]) |> wrap!()
  end

  @doc """
  Returns the status of the newest tool call with this id, or `nil`. Costs O(n) for old calls.

  ## Examples

      iex> AshAgent.Context.new("Hi") |> AshAgent.Context.tool_call_status("a")
      nil
  """
  @doc since: "0.1.0", group: "Approve"
  @spec tool_call_status(t(), String.t()) :: call_status() | nil
  def tool_call_status(%__MODULE__{ref: ref}, id) when is_binary(id),
    do: ref |> Native.context_call_status(id) |> ok!()

  @doc """
  Returns the decision about the newest tool call with this id: who made it and when. Returns `nil` if there is none. It
  has `:arguments` if it was about other arguments than the call's own, see `ask_about_tool_call/4`.

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete}])
      iex> context = AshAgent.Context.deny_tool_call(context, "a", :friday, by: "ann", at: ~U[2026-01-02 10:00:00Z])
      iex> AshAgent.Context.tool_call_decision(context, "a")
      %{decision: :denied, by: "ann", at: ~U[2026-01-02 10:00:00.000000Z], reason: :friday}
  """
  @doc since: "0.1.0", group: "Approve"
  @spec tool_call_decision(t(), String.t()) ::
          %{
            required(:decision) => :approved | :denied,
            required(:by) => term(),
            required(:at) => DateTime.t(),
            required(:reason) => term(),
            optional(:arguments) => map()
          }
          | nil
  def tool_call_decision(%__MODULE__{ref: ref}, id) when is_binary(id),
    do: ref |> Native.context_call_decision(id) |> ok!()

  @doc """
  Returns when the tool of a call started and ended, or `nil` if that is not known.

  If the id occurs in several turns, it is the newest call. Costs as much as `tool_call_status/2`.

  ## Examples

      iex> times = %{started_at: ~U[2026-01-01 10:00:00.000000Z], ended_at: ~U[2026-01-01 10:00:02.000000Z]}
      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :wait}])
      iex> context = AshAgent.Context.add_tool_results(context, [Map.merge(%{id: "a", result: {:ok, nil}}, times)])
      iex> AshAgent.Context.tool_call_times(context, "a") == times
      true
  """
  @doc since: "0.1.0", group: "Approve"
  @spec tool_call_times(t(), String.t()) ::
          %{started_at: DateTime.t(), ended_at: DateTime.t()} | nil
  def tool_call_times(%__MODULE__{ref: ref}, id) when is_binary(id),
    do: ref |> Native.context_call_times(id) |> ok!()

  @typedoc "Tokens that providers reported. `total_tokens` is the provider's total, or else the sum of input and output."
  @type usage :: %{
          input_tokens: non_neg_integer(),
          output_tokens: non_neg_integer(),
          total_tokens: non_neg_integer(),
          cached_tokens: non_neg_integer(),
          cache_write_tokens: non_neg_integer(),
          reasoning_tokens: non_neg_integer()
        }

  @doc """
  Records the tokens that a provider reported with the model's last message, and returns the new context.

  `usage` is the report of OpenAI (Chat Completions, Responses), Anthropic, Gemini, Bedrock, Ollama or Mistral as it came,
  with atom or string keys, or a map such as `get_cumulative_tokens/1` returns. A figure reported twice is counted once.
  Input includes tokens from the provider's cache, even if the provider counts them separately (Anthropic, Bedrock);
  output includes reasoning. Several reports on one message add up. A report belongs to the iteration of its message, so a
  report recorded after the tool results is in a `dump/2` since that iteration, not since the current one.

  Raises `AshAgent.Context.Error` with `{:invalid_usage, key}` or `:no_assistant_message`. Takes the option `:at` as
  `put_metadata/4` does.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_assistant_message("Hi!")
      iex> context = AshAgent.Context.add_token_usage(context, %{"prompt_tokens" => 9, "completion_tokens" => 2})
      iex> AshAgent.Context.get_cumulative_tokens(context)
      %{input_tokens: 9, output_tokens: 2, total_tokens: 11, cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0}
  """
  @doc since: "0.1.0", group: "Responses"
  @spec add_token_usage(t(), map(), keyword()) :: t()
  def add_token_usage(%__MODULE__{ref: ref}, usage, opts \\ []) when is_map(usage),
    do: ref |> Native.context_add_usage(usage, change_at(opts)) |> wrap!()

  @doc """
  Returns the tokens that providers reported in all iterations together, in constant time.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.get_cumulative_tokens()
      %{input_tokens: 0, output_tokens: 0, total_tokens: 0, cached_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0}
  """
  @doc since: "0.1.0", group: "Responses"
  @spec get_cumulative_tokens(t()) :: usage()
  def get_cumulative_tokens(%__MODULE__{ref: ref}), do: Native.context_usage(ref)

  @doc """
  Returns the tokens that providers reported in the iteration with this number, or `nil` if there is no such iteration.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.get_iteration_tokens(2)
      nil
  """
  @doc since: "0.1.0", group: "Responses"
  @spec get_iteration_tokens(t(), integer()) :: usage() | nil
  def get_iteration_tokens(%__MODULE__{ref: ref}, number) when is_integer(number),
    do: Native.context_iteration_usage(ref, number)

  @doc """
  Returns what the model's answers cost, `{:ok, cost}` with an integer of 10^-12 US dollars, or `{:error, error}` with the reason
  `{:no_price, model}`, if tokens of a model without a price were reported.

  Answers without a report cost nothing. The costs of sub-agents are not included. Costs O(n) from the first iteration that counts.

  ## Options

  #{Options.docs(:fetch_cost)}

  Raises `ArgumentError` for wrong options.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_assistant_message("Hi!")
      iex> context = AshAgent.Context.add_token_usage(context, %{input_tokens: 9, output_tokens: 2})
      iex> AshAgent.Context.fetch_cost(context, prices: [%{model: :any, input: 3_000_000, output: 15_000_000}])
      {:ok, 57_000_000}
      iex> {:error, error} = AshAgent.Context.fetch_cost(context, prices: [%{model: "m", input: 3_000_000, output: 15_000_000}])
      iex> error.reason
      {:no_price, nil}
  """
  @doc since: "0.1.0", group: "Responses"
  @spec fetch_cost(t(), keyword()) :: {:ok, non_neg_integer()} | {:error, Error.t()}
  def fetch_cost(%__MODULE__{} = context, opts) when is_list(opts) do
    opts = Options.validate!(opts, :fetch_cost)
    Prices.spent(context, Prices.terms(opts[:prices]), nil, opts[:since])
  end

  @typedoc """
  How to count tokens:

    * `:auto` - the last report recorded by `add_token_usage/2`, plus an estimate of everything after it; without a report, an
      estimate of everything
    * `:estimate` - from the text alone
    * `:o200k_base`, `:cl100k_base` - exactly as OpenAI's models with these encodings count text. Without the library's feature
      `:exact_tokens`, an `AshAgent.Context.Error` with the reason `{:feature_missing, "exact_tokens"}` is raised.

  The default build leaves the encodings out. To include them, configure

      config :ash_agent_context, features: [:exact_tokens]
  """
  @type token_method :: :auto | :estimate | :o200k_base | :cl100k_base

  @doc """
  Returns the number of tokens in the view.

  Text, tool calls, results, the system prompt, thinking, images and files all count. Each message adds four tokens, and
  each call and each result eight. Images count by their pixels, not by their bytes. Every message is counted once, so
  counting takes constant time on an unchanged context, and after an append the time for the new messages.

  `:auto` assumes that the report was about a request with this context's view: if a smaller view was sent, use
  `:estimate`. It subtracts an estimate of everything hidden or shortened after the report. Reasoning that a report counts
  but the message does not contain is not sent again and not counted.

  An estimate is one pass over the text at about 500 MB/s. On real conversations, compared with `:o200k_base`, its error
  is at most 5 % for half of the texts and 15 % for nine of ten; for JSON of tools 8 % and 22 %, for European languages 10
  % and 22 %, for Chinese, Japanese, Korean, Hindi and Arabic 7 % and 21 %. `:cl100k_base` has up to four times as many
  tokens for scripts other than Latin. The exact encodings read 20 to 40 MB/s. Their tables are built on first use, once
  per VM, which takes a second and 85 MB for `:o200k_base` and half of that for `:cl100k_base`.

  An image counts its pixels divided by 750 after it is scaled to 1,568 pixels on its longer side, as Anthropic states,
  and at most 1,600, which is also the figure for images whose size is unknown, such as those given by URL. A PDF counts
  2,250 per page, a text file its text, any other file 2,250.

  ## Options

  #{Options.docs(:count_tokens)}

  ## Examples

      iex> context = AshAgent.Context.new("Hello, world!")
      iex> AshAgent.Context.count_tokens(context, method: :o200k_base)
      8
      iex> context = context |> AshAgent.Context.add_assistant_message("Hi!") |> AshAgent.Context.add_token_usage(%{input_tokens: 11, output_tokens: 3})
      iex> AshAgent.Context.count_tokens(context)
      14
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec count_tokens(t(), method: token_method()) :: non_neg_integer()
  def count_tokens(%__MODULE__{ref: ref}, opts \\ []),
    do: ref |> Native.context_count_tokens(token_method(opts)) |> ok!()

  @doc """
  Returns the tokens of the view by purpose.

  Takes the option of `count_tokens/2`; here `:auto` is `:estimate`, since reports do not have these parts.

  ## Examples

      iex> context = AshAgent.Context.new("Hello, world!", system_prompt: "Be brief.")
      iex> AshAgent.Context.token_breakdown(context, method: :o200k_base)
      %{system: 7, user: 8, assistant: 0, thinking: 0, tool_calls: 0, tool_results: 0, media: 0, summaries: 0}
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec token_breakdown(t(), method: token_method()) :: %{
          system: non_neg_integer(),
          user: non_neg_integer(),
          assistant: non_neg_integer(),
          thinking: non_neg_integer(),
          tool_calls: non_neg_integer(),
          tool_results: non_neg_integer(),
          media: non_neg_integer(),
          summaries: non_neg_integer()
        }
  def token_breakdown(%__MODULE__{ref: ref}, opts \\ []),
    do: ref |> Native.context_token_breakdown(token_method(opts)) |> ok!()

  @doc """
  Returns an estimate of the view's tokens from the text alone; the same as `count_tokens(context, method: :estimate)`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.estimate_token_count() |> is_integer()
      true
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec estimate_token_count(t()) :: non_neg_integer()
  def estimate_token_count(%__MODULE__{} = context), do: count_tokens(context, method: :estimate)

  @doc """
  Returns whether the view has more tokens than `budget`. Takes the option of `count_tokens/2`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.exceeds_token_budget?(100)
      false
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec exceeds_token_budget?(t(), pos_integer(), method: token_method()) :: boolean()
  def exceeds_token_budget?(%__MODULE__{} = context, budget, opts \\ [])
      when is_integer(budget) and budget > 0,
      do: count_tokens(context, opts) > budget

  @doc """
  Returns how many tokens of `budget` the view leaves free, or 0. Takes the option of `count_tokens/2`.

  ## Examples

      iex> AshAgent.Context.new("Hello, world!") |> AshAgent.Context.tokens_remaining(100, method: :o200k_base)
      92
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec tokens_remaining(t(), pos_integer(), method: token_method()) :: non_neg_integer()
  def tokens_remaining(%__MODULE__{} = context, budget, opts \\ [])
      when is_integer(budget) and budget > 0,
      do: max(budget - count_tokens(context, opts), 0)

  # As large as an integer can be that is sure to be a float.
  @countless Integer.pow(2, 1000)

  @doc """
  Returns the share of `budget` that the view takes: 1.0 for all of it, more if it exceeds it. Takes the option of
  `count_tokens/2`.

  ## Examples

      iex> AshAgent.Context.new("Hello, world!") |> AshAgent.Context.budget_utilization(80, method: :o200k_base)
      0.1
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec budget_utilization(t(), pos_integer(), method: token_method()) :: float()
  def budget_utilization(%__MODULE__{} = context, budget, opts \\ [])
      when is_integer(budget) and budget > 0,
      do: count_tokens(context, opts) / min(budget, @countless)

  @doc """
  Hides the oldest iterations until the view fits into `budget` tokens, and returns `{:ok, context, hidden}` or `{:error,
  error}`.

  `hidden` is the range of all iterations that are then hidden, or `nil`. Iterations are hidden as a whole, so that no
  exchange is cut. These always stay: the system prompt, the current turn (everything from the last user message on) with
  its pending calls, and the iterations that `:keep_first` and `:keep_last` name. Summaries stay if hiding the rest
  suffices. The log keeps everything, and `expand/2` brings it back.

  The error's reason is `{:cannot_fit, least}` with the number of tokens that have to stay. Costs O(iterations hidden).

  ## Options

  #{Options.docs(:fit)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Enum.reduce(1..4, Context.new("0"), &(&2 |> Context.add_assistant_message("ok") |> Context.add_user_message(to_string(&1))))
      iex> {:ok, context, hidden} = Context.fit(context, 16, step: 1, method: :o200k_base)
      iex> {hidden, Context.to_messages(context)}
      {1..3, [%{role: :user, content: "3"}, %{role: :assistant, content: "ok"}, %{role: :user, content: "4"}]}
      iex> {:error, error} = Context.fit(context, 4)
      iex> error.reason
      {:cannot_fit, 5}
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec fit(t(), non_neg_integer(), keyword()) ::
          {:ok, t(), hidden :: Range.t() | nil} | {:error, Error.t()}
  def fit(%__MODULE__{ref: ref}, budget, opts \\ []) when is_integer(budget) and budget >= 0 do
    opts = Options.validate!(opts, :fit)

    how =
      {budget, opts[:reserve], opts[:keep_first], opts[:keep_last], opts[:step], opts[:method]}

    case Native.context_fit(ref, how, opts[:at]) do
      {:ok, {handle, hidden}} -> {:ok, wrap!({:ok, handle}), hidden}
      {:error, :bad_time} = error -> wrap!(error)
      {:error, reason} -> {:error, %Error{reason: reason}}
    end
  end

  @doc """
  Hides all but the last `count` iterations that have messages, and returns the new context.

  The log keeps them, numbers stay, and the next message goes where it would have gone. Takes the option `:at` as
  `put_metadata/4` does.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One", system_prompt: "Hi") |> Context.add_assistant_message("1") |> Context.add_user_message("Two")
      iex> context |> Context.keep_last_iterations(1) |> Context.to_messages()
      [%{role: :system, content: "Hi"}, %{role: :user, content: "Two"}]
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec keep_last_iterations(t(), pos_integer(), keyword()) :: t()
  def keep_last_iterations(%__MODULE__{ref: ref}, count, opts \\ [])
      when is_integer(count) and count > 0,
      do: ref |> Native.context_keep_last(count, change_at(opts)) |> wrap!()

  @doc """
  Hides the iterations that began more than `seconds` ago, and returns the new context. The last iteration with messages
  stays.

  ## Options

  #{Options.docs(:hide_old)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One", at: ~U[2026-01-01 10:00:00Z]) |> Context.add_assistant_message("1")
      iex> context = Context.add_user_message(context, "Two", at: ~U[2026-01-01 12:00:00Z])
      iex> context |> Context.hide_old_iterations(3600, at: ~U[2026-01-01 12:30:00Z]) |> Context.to_messages()
      [%{role: :user, content: "Two"}]
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec hide_old_iterations(t(), non_neg_integer(), keyword()) :: t()
  def hide_old_iterations(%__MODULE__{ref: ref}, seconds, opts \\ [])
      when is_integer(seconds) and seconds >= 0 do
    at = Options.validate!(opts, :hide_old)[:at] || DateTime.utc_now()
    ref |> Native.context_remove_old(seconds_before(at, seconds), at) |> wrap!()
  end

  # The calendar begins with the year 0: nothing is older.
  defp seconds_before(at, seconds) do
    since_year_0 = DateTime.diff(at, ~U[0000-01-01 00:00:00Z])
    DateTime.add(at, -min(seconds, since_year_0), :second)
  end

  @doc """
  Shows only the iterations from `first` to `last`, and those added later, and returns the new context.

  Takes the option `:at` as `put_metadata/4` does. Raises `AshAgent.Context.Error` with `{:pending_tool_calls, ids}` if
  calls are pending in the current iteration and the range leaves it out.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One") |> Context.add_assistant_message("1") |> Context.add_user_message("Two")
      iex> context |> Context.keep_iteration_range(1, 1) |> Context.to_messages()
      [%{role: :user, content: "One"}, %{role: :assistant, content: "1"}]
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec keep_iteration_range(t(), pos_integer(), pos_integer(), keyword()) :: t()
  def keep_iteration_range(%__MODULE__{ref: ref}, first, last, opts \\ [])
      when is_integer(first) and is_integer(last) and first > 0 and last >= first,
      do: ref |> Native.context_range(first, last, change_at(opts)) |> wrap!()

  @typedoc """
  How to compact a range of iterations: `:drop` hides it, `{:summarize, fun}` shows a summary instead.

  The function gets the range's messages as in the view, and returns a string, `{:ok, string}` or `{:error, reason}`.
  """
  @type strategy ::
          :drop | {:summarize, ([message()] -> String.t() | {:ok, String.t()} | {:error, term()})}

  @doc """
  Compacts the view, and returns `{:ok, context, info}` or `{:error, error}`.

  The view shows the summary instead of the iterations, as a user message with `metadata: %{summary: %{first: first, last:
  last}}` and a first line that says so. The log keeps the iterations: `expand/2` brings them back, and `get_iteration/2`
  and dumps include them. The current turn with its pending calls is never compacted. Compacting again works on the view,
  so the summariser gets the earlier summary.

  `info` has the compacted `:range` (`nil` if there was nothing to compact), the `:strategy` that was used, and the
  `:reason` why a summariser failed: it returned `{:error, reason}`, raised, or did not return text. In that case the
  range is hidden.

  The error's reason is `{:not_compactable, range, allowed}`, or `{:summary_too_long, tokens, replaced}` (by `:estimate`):
  a summary has to be shorter than the iterations it replaces. Costs O(size of the range), and the summariser.

  ## Options

  #{Options.docs(:compact)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new(String.duplicate("Tell me of Elixir. ", 20)) |> Context.add_assistant_message("It is a language.")
      iex> context = Context.add_user_message(context, "Go on")
      iex> {:ok, context, info} = Context.compact(context, {:summarize, fn _messages -> "Elixir was explained." end})
      iex> info
      %{range: 1..1, strategy: :summarize, reason: nil}
      iex> Context.to_messages(context)
      [
        %{
          role: :user,
          content: "[Summary of iteration 1 of this conversation]\\nElixir was explained.",
          metadata: %{summary: %{first: 1, last: 1}}
        },
        %{role: :user, content: "Go on"}
      ]
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec compact(t(), strategy(), keyword()) ::
          {:ok, t(),
           %{range: Range.t() | nil, strategy: :drop | :summarize, reason: term() | nil}}
          | {:error, Error.t()}
  def compact(%__MODULE__{ref: ref} = context, strategy, opts \\ []) do
    opts = Options.validate!(opts, :compact)
    strategy = strategy!(strategy)
    asked = if range = opts[:range], do: {range.first, range.last}

    case Native.context_compactable(ref, asked, opts[:keep_first], opts[:keep_last]) do
      {:ok, nil} ->
        {:ok, context, %{range: nil, strategy: elem(strategy, 0), reason: nil}}

      {:ok, {first, last}} ->
        compact(context, strategy, first..last, opts[:at])

      {:error, {:not_compactable, _range, allowed}} ->
        {:error, %Error{reason: {:not_compactable, opts[:range], allowed}}}
    end
  end

  defp strategy!(:drop), do: {:drop, nil}
  defp strategy!({:summarize, fun}) when is_function(fun, 1), do: {:summarize, fun}

  defp strategy!(other) do
    raise ArgumentError,
          "expected :drop or {:summarize, fun} with a function of arity 1, got: #{Check.kind(other)}"
  end

  defp compact(%{ref: ref}, {:drop, failure}, %{first: first, last: last} = range, at) do
    context = ref |> Native.context_drop_range(first, last, at) |> wrap!()
    {:ok, context, %{range: range, strategy: :drop, reason: failure}}
  end

  defp compact(%{ref: ref} = context, {:summarize, fun}, %{first: first, last: last} = range, at) do
    messages = ref |> Native.context_messages_between(first, last) |> ok!()

    case summarize(fun, messages) do
      {:ok, text} ->
        case Native.context_summarize(ref, first, last, text, at) do
          {:ok, handle} ->
            {:ok, wrap!({:ok, handle}), %{range: range, strategy: :summarize, reason: nil}}

          {:error, :bad_time} = error ->
            wrap!(error)

          {:error, reason} ->
            {:error, %Error{reason: reason}}
        end

      {:error, reason} ->
        compact(context, {:drop, reason}, range, at)
    end
  end

  defp summarize(fun, messages) do
    case fun.(messages) do
      {:error, reason} -> {:error, reason}
      {:ok, text} when is_binary(text) -> summary_text(text)
      text when is_binary(text) -> summary_text(text)
      _other -> {:error, :no_text}
    end
  rescue
    exception -> {:error, exception}
  catch
    kind, reason -> {:error, {kind, reason}}
  end

  defp summary_text(text) do
    cond do
      not String.valid?(text) -> {:error, :no_text}
      String.trim(text) == "" -> {:error, :no_text}
      true -> {:ok, text}
    end
  end

  @doc """
  Shows a summary instead of iterations, given as a number or a range, in the view, and returns the new context.

  It does what `compact/3` does, with a summary that you already have. Takes the option `:at` as `put_metadata/4` does.
  Raises `AshAgent.Context.Error` with `{:not_compactable, range, allowed}` or `{:summary_too_long, tokens, replaced}`.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new(String.duplicate("Tell me of Elixir. ", 20)) |> Context.add_assistant_message("It is a language.")
      iex> context = context |> Context.add_user_message("Go on") |> Context.mark_as_summarized(1, "Elixir was explained.")
      iex> Context.summary(context, 1)
      "Elixir was explained."
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec mark_as_summarized(t(), pos_integer() | Range.t(), String.t(), keyword()) :: t()
  def mark_as_summarized(context, range, summary, opts \\ [])

  def mark_as_summarized(%__MODULE__{} = context, number, summary, opts)
      when is_integer(number) and number > 0,
      do: mark_as_summarized(context, number..number, summary, opts)

  def mark_as_summarized(%__MODULE__{ref: ref}, %Range{first: first, last: last}, summary, opts)
      when is_binary(summary) and first > 0 and last >= first do
    unless match?({:ok, _}, summary_text(summary)),
      do: raise(ArgumentError, "expected the summary to be UTF-8 text that is not blank")

    case Native.context_summarize(ref, first, last, summary, change_at(opts)) do
      {:error, {:not_compactable, _range, allowed}} ->
        raise Error, reason: {:not_compactable, first..last, allowed}

      reply ->
        wrap!(reply)
    end
  end

  @doc """
  Returns the summary that the view shows instead of the iteration with this number, or `nil`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.summary(1)
      nil
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec summary(t(), integer()) :: String.t() | nil
  def summary(%__MODULE__{ref: ref}, number) when is_integer(number),
    do: Native.context_summary_of(ref, number)

  @doc """
  Shows hidden or summarised iterations in the view again, and returns the new context.

  `range` is a range of numbers, one number, or `:all`. A summary that the range touches is removed as a whole. Takes the
  option `:at` as `put_metadata/4` does.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("One") |> Context.add_assistant_message("1") |> Context.add_user_message("Two")
      iex> context |> Context.keep_last_iterations(1) |> Context.expand(:all) |> Context.count_messages()
      3
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec expand(t(), Range.t() | pos_integer() | :all, keyword()) :: t()
  def expand(context, range, opts \\ [])

  def expand(%__MODULE__{ref: ref}, :all, opts) do
    last = Native.context_first_iteration(ref) + Native.context_count_iterations(ref)
    ref |> Native.context_expand(1, last, change_at(opts)) |> wrap!()
  end

  def expand(%__MODULE__{} = context, number, opts) when is_integer(number) and number > 0,
    do: expand(context, number..number, opts)

  def expand(%__MODULE__{ref: ref}, %Range{first: first, last: last}, opts)
      when first > 0 and last >= first,
      do: ref |> Native.context_expand(first, last, change_at(opts)) |> wrap!()

  @doc """
  Clears old tool results in the view, and returns the new context. The calls stay, and the log keeps the results.

  The last results in the view stay. Later results are shown until you call this again, so that requests keep their
  beginning. Calling it again replaces the earlier call: if it keeps more results than there are, all are shown. Costs
  O(results kept).

  ## Options

  #{Options.docs(:clear_tool_results)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Hi") |> Context.add_assistant_message(nil, [%{id: "a", name: :read}])
      iex> context = context |> Context.add_tool_results([{"a", {:ok, "a long text"}}]) |> Context.clear_tool_results(keep: 0)
      iex> context |> Context.to_messages() |> List.last()
      %{role: :user, content: [%{type: :tool_result, tool_use_id: "a", content: "[Old tool result cleared]", is_error: false}]}
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec clear_tool_results(t(), keyword()) :: t()
  def clear_tool_results(%__MODULE__{ref: ref}, opts \\ []) do
    opts = Options.validate!(opts, :clear_tool_results)
    ref |> Native.context_clear_results(opts[:keep], opts[:placeholder], opts[:at]) |> wrap!()
  end

  @least_result_bytes Options.least_result_bytes()

  @doc """
  Limits the text of each tool result in the view to a number of bytes, at least #{@least_result_bytes}, and returns the
  new context. `nil` shows results whole.

  A longer result is shown with its beginning and its end, cut at characters, and a note between them that says how much
  was left out. The log has it whole. `request/3` takes the same limit as the option `:max_result_bytes`, for a single
  request.

  Takes the option `:at` as `put_metadata/4` does.

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Hi") |> Context.add_assistant_message(nil, [%{id: "a", name: :read}])
      iex> context = Context.add_tool_results(context, [{"a", {:ok, String.duplicate("x", 5_000)}}])
      iex> [%{content: [%{content: text}]}] = context |> Context.put_max_result_bytes(100) |> Context.to_messages() |> Enum.take(-1)
      iex> {byte_size(text), String.replace(text, "x", "")}
      {100, "\\n[... 4931 bytes left out ...]\\n"}
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec put_max_result_bytes(t(), pos_integer() | nil, keyword()) :: t()
  def put_max_result_bytes(%__MODULE__{ref: ref}, bytes, opts \\ []) do
    unless Options.result_bytes?(bytes) do
      raise ArgumentError,
            "expected an integer of at least #{@least_result_bytes}, or nil, got: #{Check.kind(bytes)}"
    end

    ref |> Native.context_max_result_bytes(bytes, change_at(opts)) |> wrap!()
  end

  @doc """
  Adds a named text after the system prompt in the view, and returns the new context. The same name replaces it, and `nil`
  removes it.

  Texts are in the order in which their names were first put, separated by blank lines. The system prompt itself does not
  change. Takes the option `:at` as `put_metadata/4` does.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", system_prompt: "Be brief.")
      iex> context |> AshAgent.Context.put_prompt_block(:memory, "The user is Ann.") |> AshAgent.Context.to_messages() |> hd()
      %{role: :system, content: "Be brief.\\n\\nThe user is Ann."}
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec put_prompt_block(t(), atom() | String.t(), String.t() | nil, keyword()) :: t()
  def put_prompt_block(%__MODULE__{ref: ref}, name, text, opts \\ [])
      when (is_atom(name) or is_binary(name)) and (is_binary(text) or is_nil(text)) do
    for given <- [to_string(name), text], is_binary(given), not String.valid?(given) do
      raise ArgumentError,
            "expected a UTF-8 string, got: #{Check.kind(given)} that is not valid UTF-8"
    end

    ref |> Native.context_prompt_block(to_string(name), text, change_at(opts)) |> wrap!()
  end

  @doc """
  Masks the matches of patterns in all texts of the view, and returns the new context.

  `masks` is a list of at most 100 tuples `{pattern, replacement}` that replaces all earlier masks; `[]` removes them. A
  pattern is a regular expression, as a string or as a `Regex` without options, in the syntax of Rust's [regex
  crate](https://docs.rs/regex/latest/regex/#syntax), which runs in linear time and has no look-around and no
  backreferences. The classes of Unicode's ages and of its text segmentation, such as `\\p{Age=6.0}`, are not
  supported.

  Masks apply to messages, prompts and requests: to text, the arguments of tool calls with their keys and numbers,
  results, names and addresses of files, and files that are text. The log does not change. A provider's own block that
  matches is left out, thinking that matches loses its signature and so is not sent again, and an image or a file whose
  address matches becomes text. Masks do not apply to what the application chose (names of tools, ids and further keys of
  calls, metadata), nor to the contents of images and other files.

  Takes the option `:at` as `put_metadata/4` does. Raises `AshAgent.Context.Error` with `{:invalid_pattern, pattern,
  problem}`.

  ## Examples

      iex> context = AshAgent.Context.new("My card is 4111 1111 1111 1111.")
      iex> context |> AshAgent.Context.put_masks([{~r/\\b(\\d{4} ?){4}\\b/, "[card]"}]) |> AshAgent.Context.to_messages()
      [%{role: :user, content: "My card is [card]."}]
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec put_masks(t(), [{Regex.t() | String.t(), String.t()}], keyword()) :: t()
  def put_masks(%__MODULE__{ref: ref}, masks, opts \\ []) when is_list(masks) do
    masks = Enum.map(masks, &mask!/1)
    ref |> Native.context_masks(masks, change_at(opts)) |> wrap!()
  end

  defp mask!({%Regex{} = regex, replacement}) when is_binary(replacement) do
    if Regex.opts(regex) in ["", []] do
      mask!({Regex.source(regex), replacement})
    else
      raise ArgumentError,
            "expected a regex without options; write them into the pattern itself, as in (?i)"
    end
  end

  defp mask!({pattern, replacement} = mask) when is_binary(pattern) and is_binary(replacement) do
    if String.valid?(pattern) and String.valid?(replacement),
      do: mask,
      else: raise(ArgumentError, "expected a mask's pattern and replacement to be valid UTF-8")
  end

  defp mask!(other) do
    raise ArgumentError,
          "expected a mask to be {pattern, replacement} with a regex or string and a string, got: #{Check.kind(other)}"
  end

  @doc """
  Returns how the view differs from the log.

  `hidden` and `summaries` are ranges of iterations, oldest first. `cleared` is the position up to which results are
  cleared. `masks` and `blocks` are those of `put_masks/3` and `put_prompt_block/4`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.view()
      %{hidden: [], summaries: [], cleared: nil, max_result_bytes: nil, masks: [], blocks: []}
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec view(t()) :: %{
          hidden: [Range.t()],
          summaries: [Range.t()],
          cleared:
            %{iteration: pos_integer(), calls: non_neg_integer(), placeholder: String.t()} | nil,
          max_result_bytes: pos_integer() | nil,
          masks: [{String.t(), String.t()}],
          blocks: [{String.t(), String.t()}]
        }
  def view(%__MODULE__{ref: ref}), do: ref |> Native.context_view() |> ok!()

  @doc """
  Runs enhancers on the context, one after the other, and returns `{:ok, context, report}` or `{:error, error}`.

  Enhancers change the view, which models see, and never the log: they keep it within a budget, put memory into the system
  prompt, or mask patterns. Each gets the context that the one before returned. `AshAgent.Context.Enhancer` describes how
  to write them, and lists those that come with the package.

  The error's reason is `{:enhancer_failed, enhancer, reason}`. `report.skipped` lists the enhancers that were skipped,
  each with its error. Raises `ArgumentError` for anything that is not an enhancer and for wrong options of an enhancer.

  ## Options

  #{Options.docs(:enhance)}

  ## Examples

      iex> alias AshAgent.Context
      iex> memory = {Context.Enhancer.Memory, profile: fn _context -> "Ann, a pilot." end}
      iex> {:ok, context, %{skipped: []}} = Context.enhance(Context.new("Hello!"), [memory], needs: [:profile])
      iex> hd(Context.to_messages(context))
      %{role: :system, content: "## User profile\\n\\nAnn, a pilot."}
      iex> {:error, error} = Context.enhance(context, [fn _context, _needs -> {:error, :down} end])
      iex> {:enhancer_failed, _function, :down} = error.reason
  """
  @doc since: "0.1.0", group: "View and budget"
  @spec enhance(t(), [AshAgent.Context.Enhancer.t()], keyword()) ::
          {:ok, t(), AshAgent.Context.Enhancer.report()} | {:error, Error.t()}
  def enhance(%__MODULE__{} = context, enhancers, opts \\ [])
      when is_list(enhancers) and is_list(opts) do
    Handle.check!(context)
    AshAgent.Context.Enhancer.run(context, enhancers, opts)
  end

  defp token_method(opts), do: Options.validate!(opts, :count_tokens)[:method]

  defp change_at([]), do: nil
  defp change_at(opts), do: Options.validate!(opts, :change)[:at]

  @doc """
  Returns whether two contexts have equal contents, including ids and times. `==` compares handles instead.

  Costs O(n) at most; shared parts are not compared.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.equal?(context, AshAgent.Context.put_metadata(context, :seen, true))
      false
  """
  @doc since: "0.1.0", group: "Read"
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
  @doc since: "0.1.0", group: "Build"
  @spec put_metadata(t(), atom() | binary(), term(), keyword()) :: t()
  def put_metadata(%__MODULE__{ref: ref}, key, value, opts \\ [])
      when is_atom(key) or is_binary(key) do
    ref |> Native.context_put_metadata(key, value, change_at(opts)) |> wrap!()
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
  @doc since: "0.1.0", group: "Build"
  @spec put_iteration_metadata(t(), integer(), atom() | binary(), term(), keyword()) :: t()
  def put_iteration_metadata(%__MODULE__{ref: ref}, number, key, value, opts \\ [])
      when is_integer(number) and (is_atom(key) or is_binary(key)) do
    ref
    |> Native.context_put_iteration_metadata(number, key, value, change_at(opts))
    |> known!(number)
    |> wrap!()
  end

  # Integers beyond 64 bits do not reach the core as they are.
  defp known!({:error, {:unknown_iteration, _, known}}, number),
    do: {:error, {:unknown_iteration, number, known}}

  defp known!(reply, _number), do: reply

  @doc """
  Returns the conversation's metadata.

  ## Examples

      iex> AshAgent.Context.new("Hello!", metadata: %{user_id: 7}) |> AshAgent.Context.metadata()
      %{user_id: 7}
  """
  @doc since: "0.1.0", group: "Read"
  @spec metadata(t()) :: map()
  def metadata(%__MODULE__{ref: ref}), do: ref |> Native.context_metadata() |> ok!()

  @behaviour Access

  @doc """
  Fetches `:iterations`, `:current_iteration`, `:id`, `:metadata`, `:origin`, `:created_at` or `:updated_at`, so that
  `context[:iterations]` works.

  ## Examples

      iex> AshAgent.Context.new("Hello!")[:current_iteration]
      1
      iex> AshAgent.Context.new("Hello!")[:nothing]
      nil
  """
  @doc since: "0.1.0", group: "Read"
  @impl Access
  def fetch(%__MODULE__{} = context, :iterations), do: {:ok, iterations(context)}
  def fetch(%__MODULE__{} = context, :metadata), do: {:ok, metadata(context)}

  def fetch(%__MODULE__{ref: ref}, key) when key in [:id, :origin, :created_at, :updated_at],
    do: Map.fetch(Native.context_summary(ref), key)

  def fetch(%__MODULE__{} = context, key) do
    Handle.check!(context)
    if key == :current_iteration, do: {:ok, context.current_iteration}, else: :error
  end

  @doc """
  Prints the conversation's log, and returns the context.

  Each iteration has a line with its number, its time, and whether models see it. Texts that the view masks are masked, and characters
  that control a terminal or reverse text are replaced by visible ones.

  `inspect(context, custom_options: [messages: true])` returns the same text. Otherwise, inspecting a context never shows its messages.

  ## Options

  #{AshAgent.Options.docs(AshAgent.Trace.Printed.options())}
    * `:device` - where to print. Defaults to `:stdio`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", at: ~U[2026-01-01 10:00:00Z])
      iex> {:ok, device} = StringIO.open("")
      iex> AshAgent.Context.print(context, device: device, color: false)
      iex> device |> StringIO.contents() |> elem(1)
      "iteration 1, 2026-01-01 10:00:00 UTC, open\\n  user           Hello!\\n"
  """
  @doc since: "0.1.0", group: "Read"
  @spec print(t(), keyword()) :: t()
  def print(%__MODULE__{} = context, opts \\ []) when is_list(opts) do
    {device, opts} = Keyword.pop(opts, :device, :stdio)
    IO.write(device, AshAgent.Trace.Printed.text(context, opts))
    context
  end

  @doc false
  @impl Access
  def get_and_update(%__MODULE__{}, key, _fun) do
    raise ArgumentError,
          "cannot put #{inspect(key)} into a context: use the functions of AshAgent.Context, such as update/2 or put_metadata/3"
  end

  @doc false
  @impl Access
  def pop(%__MODULE__{}, key) do
    raise ArgumentError,
          "cannot remove #{inspect(key)} from a context: use the functions of AshAgent.Context, such as update/2"
  end

  defp wrap({:ok, {ref, current_iteration}}),
    do: {:ok, %__MODULE__{ref: ref, current_iteration: current_iteration}}

  defp wrap({:error, reason}), do: {:error, %Error{reason: reason}}

  defp wrap!({:ok, {ref, current_iteration}}),
    do: %__MODULE__{ref: ref, current_iteration: current_iteration}

  defp wrap!({:error, :bad_time}) do
    raise ArgumentError,
          "expected the option :at to be a valid DateTime of the ISO calendar and the years 0 to 9999"
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

  defp encode_options(provider, opts) do
    opts = Options.validate!(opts, :encode_request)
    {opts[:body], request_options(provider, opts)}
  end

  @doc false
  def providers, do: @providers

  @doc false
  def checked_options(provider, opts),
    do: request_options(provider, Options.validate!(opts, :request))

  defp request_options(provider, opts) do
    {provider, opts[:model], opts[:thinking], opts[:system_role], opts[:cache] == :auto,
     {opts[:since], opts[:max_result_bytes], dialect(provider, opts[:dialect]),
      known(provider, opts[:previous_response_id], opts[:conversation])},
     opts[:pending] == :interrupt}
  end

  defp dialect(_provider, nil), do: nil
  defp dialect(:openai_chat, dialect), do: Atom.to_string(dialect)
  defp dialect(provider, _dialect), do: not_for!(":dialect", :openai_chat, provider)

  # The part of the conversation that the provider keeps itself.
  defp known(_provider, nil, nil), do: nil
  defp known(:openai_responses, response, nil), do: {true, response}
  defp known(:openai_responses, nil, conversation), do: {false, conversation}

  defp known(:openai_responses, _response, _conversation) do
    raise ArgumentError,
          "options :previous_response_id and :conversation exclude each other: give one of them"
  end

  defp known(provider, response, _conversation) do
    name = if response, do: ":previous_response_id", else: ":conversation"
    not_for!(name, :openai_responses, provider)
  end

  @spec not_for!(String.t(), provider(), provider()) :: no_return()
  defp not_for!(option, owner, provider) do
    raise ArgumentError,
          "option #{option} is for #{inspect(owner)}; leave it out for #{inspect(provider)}"
  end

  defp attributes(attributes) when is_list(attributes) do
    if Keyword.keyword?(attributes) do
      Map.new(attributes)
    else
      raise ArgumentError,
            "expected attributes as a map or a keyword list, got: #{Check.kind(attributes)}"
    end
  end

  defp attributes(attributes), do: attributes

  defp stamp([]), do: {nil, nil}

  defp stamp(opts) do
    opts = Options.validate!(opts, :message)
    {opts[:metadata], opts[:at]}
  end

  defimpl Inspect do
    alias AshAgent.Context.{Error, Handle, Native}

    # Counts only: this ends up in logs. A handle from another node is still a context.
    def inspect(context, opts) do
      counts = counts(context)

      if opts.custom_options[:messages] == true,
        do: counts <> "\n" <> messages(context, opts),
        else: counts
    end

    defp messages(context, opts) do
      limit = if is_integer(opts.limit) and opts.limit < 1, do: 1, else: opts.limit
      width = if is_integer(opts.width) and opts.width > 0, do: opts.width, else: :infinity

      String.trim_trailing(
        AshAgent.Trace.Printed.text(context, limit: limit, width: width, color: false)
      )
    rescue
      ArgumentError -> ""
    end

    defp counts(context) do
      %{messages: messages, pending: pending, hidden: view?} = Native.context_summary(context.ref)
      shown = if view?, do: "messages in view", else: "messages"

      "#AshAgent.Context<iteration #{context.current_iteration}, #{messages} #{shown}, #{pending} pending>"
    rescue
      ArgumentError ->
        "#AshAgent.Context<iteration #{context.current_iteration}, #{where(Handle.check(context))}>"
    end

    defp where({:error, %Error{reason: {:foreign_handle, node}}}) when node != node(),
      do: "on the node #{node}"

    defp where(_error), do: "without a handle of this VM"
  end

  defimpl Enumerable do
    alias AshAgent.Context
    alias AshAgent.Context.Native

    def count(context), do: {:ok, Context.count_iterations(context)}

    def member?(_context, _iteration), do: {:error, __MODULE__}

    def slice(context) do
      first = Native.context_first_iteration(context.ref)

      slicer = fn start, length, step ->
        for offset <- start..(start + (length - 1) * step)//step,
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
