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

  An **iteration** is one cycle of the agent loop: input, the model's answer, tool execution, results. Iterations are numbered
  from 1, and keep their numbers, whatever the view hides; only `rewind/2` frees those that it takes away. A tool result lives in
  the slot of its call, so a result without a call, two results for one call, or results in the wrong order cannot exist. Models
  see a message with the results that is made from the slots, in the order of the calls.

  In `iex`, `Context.print(context)` shows a conversation as text.

  ## Values

  Every function that changes a conversation returns a new context that shares structure with the old one. The old one never
  changes, in any process. Terms come back equal: atoms, tuples, structs, integers of any size, floats, and binaries that
  are not valid UTF-8. Terms that live only in this VM (pids, ports, references, functions) are kept as their printed text.
  Improper lists, bitstrings that are not binaries, and values nested deeper than 256 levels are refused.

  ## Errors

  A caller's mistake, such as a wrong type or an unknown option, raises `ArgumentError`. An error
  that data can cause raises `AshAgent.Context.Error` with a reason to match on; functions that have a `!` twin return it as
  `{:error, error}`.

  ## Sharing and lifetime

  A context is a small struct around a reference. Handing it to another process costs about a microsecond, whatever its size.
  The conversation is freed when the last context or binary that points into it is garbage collected. Long texts that you
  read from a context are binaries that point into it and keep that version in memory; `:binary.copy/1` detaches them.

  Two contexts with equal contents are not `==`, since handles compare by identity: use `equal?/2`. A context works only on
  the node that made it, and only while that node runs. Anywhere else, every function raises an `ArgumentError` that names
  the node. To store a context or send it to another node, use `dump/2` or `to_snapshot/1`.
  """

  use AshAgent.Arguments,
    provider: {:in, AshAgent.Context.Requests.providers()},
    cause: {:in, [:context_overflow, :window]}

  alias AshAgent.Context.{Account, Asked, Calls, Enhancer, Error, Failures, Handle, Import}
  alias AshAgent.Context.{Libraries, Log, Native, Options, Pins, Recall, Receipt, Rent, Reply}
  alias AshAgent.Context.{Requests, Responses, Shortening, Storage, Tokens}
  alias AshAgent.Context.View
  alias AshAgent.{Caller, Response}

  import AshAgent.Context.Requests, only: [is_provider: 1]

  defguardp is_positive(number) when is_integer(number) and number > 0
  defguardp is_key(key) when is_atom(key) or is_binary(key)

  @enforce_keys [:ref, :current_iteration]
  defstruct [:ref, :current_iteration]

  @typedoc "A conversation. `current_iteration` may be read and matched on; `ref` is private."
  @type t :: %__MODULE__{ref: reference(), current_iteration: pos_integer()}

  @typedoc "Text, `nil` for no text, or parts in their order."
  @type content :: Log.content()
  @typedoc "A piece of content, see `t:AshAgent.Context.Log.part/0`."
  @type part :: Log.part()
  @typedoc "A tool call, see `t:AshAgent.Context.Log.tool_call/0`."
  @type tool_call :: Log.tool_call()
  @typedoc "The result of a tool call, see `t:AshAgent.Context.Log.tool_result/0`."
  @type tool_result :: Log.tool_result()
  @typedoc "The outcome of a tool call, see `t:AshAgent.Context.Log.tool_result/0`."
  @type result :: Log.result()
  @typedoc "A message, see `t:AshAgent.Context.Log.message/0`."
  @type message :: Log.message()
  @typedoc "An iteration. The `:result` of a pending call is `nil`."
  @type iteration :: Log.iteration()
  @typedoc "A provider whose API a request is for."
  @type provider :: Requests.provider()
  @typedoc "The repairs that an import made, see `t:AshAgent.Context.Import.import_report/0`."
  @type import_report :: Import.import_report()
  @typedoc "The status of a tool call, see `t:AshAgent.Context.Calls.call_status/0`."
  @type call_status :: Calls.call_status()
  @typedoc "Tokens that providers reported, see `t:AshAgent.Context.Responses.usage/0`."
  @type usage :: Responses.usage()
  @typedoc "How to count tokens, see `t:AshAgent.Context.Tokens.token_method/0`."
  @type token_method :: Tokens.token_method()
  @typedoc "How to compact a range of iterations, see `t:AshAgent.Context.View.strategy/0`."
  @type strategy :: View.strategy()
  @typedoc "A context that was made of data, or the error."
  @type loaded :: {:ok, t()} | {:error, Error.t()}
  @typedoc "A context that was made of a foreign history with the report on it, or the error."
  @type imported :: {:ok, t(), import_report()} | {:error, Error.t()}

  @doc """
  Starts a conversation with a user message.

  `input` is a string, a list of `t:part/0`, `%{message: text}`, or any other map, which is sent as JSON.

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
      |> Reply.put!()
      |> make()

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
  def add_user_message(%__MODULE__{ref: ref} = context, input, opts \\ [])
      when is_binary(input) or is_list(input) or is_map(input) do
    {metadata, at} = Options.stamp!(opts)
    ref |> Native.context_add_user_message(input, metadata, at) |> Reply.put!(context)
  end

  @doc """
  Adds a message of the model and its tool calls to the current iteration, and returns the new context.

  Takes the options of `add_user_message/3`.

  Raises `AshAgent.Context.Error` with `{:pending_tool_calls, ids}` while earlier calls wait for their results, `{:duplicate_tool_call,
  id}` if two calls have the same id, `{:invalid_tool_call, position, key}` or `{:invalid_part, position, key}`.

  ## Examples

      iex> context = AshAgent.Context.new("6 * 7?")
      iex> calls = [%{id: "call_1", name: "multiply", arguments: ~s({"a": 6, "b": 7})}]
      iex> context = AshAgent.Context.add_assistant_message(context, nil, calls)
      iex> AshAgent.Context.pending_tool_calls(context)
      [%{id: "call_1", name: "multiply", arguments: %{"a" => 6, "b" => 7}}]
  """
  @doc since: "0.1.0", group: "Build"
  @spec add_assistant_message(t(), content(), [tool_call()], keyword()) :: t()
  def add_assistant_message(%__MODULE__{ref: ref} = context, content, calls \\ [], opts \\ [])
      when (is_binary(content) or is_list(content) or is_nil(content)) and is_list(calls) do
    {metadata, at} = Options.stamp!(opts)
    reply = Native.context_add_assistant_message(ref, content, calls, metadata, at)
    Reply.put!(reply, context)
  end

  @doc """
  Answers pending tool calls, any number of them in any order, and returns the new context.

  When no call is pending any more, the iteration is complete and the next one opens.

  Takes the options of `add_user_message/3`. If a message's calls are answered in several steps, the metadata is merged.

  Raises `AshAgent.Context.Error` with `{:unknown_tool_call, id, pending}`, `{:tool_call_already_answered, id, pending}`, `{:duplicate_tool_result,
  id}`, `{:no_tool_results, pending}`, `{:no_pending_tool_calls, given}` or `{:invalid_tool_result, position, key}`.

  ## Examples

      iex> context = AshAgent.Context.new("6 * 7?")
      iex> context = AshAgent.Context.add_assistant_message(context, nil, [%{id: "a", name: :multiply}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a", {:ok, 42}}])
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: :multiply, arguments: %{}, result: {:ok, 42}}]
  """
  @doc since: "0.1.0", group: "Build"
  @spec add_tool_results(t(), [tool_result()], keyword()) :: t()
  def add_tool_results(%__MODULE__{ref: ref} = context, results, opts \\ [])
      when is_list(results) do
    {metadata, at} = Options.stamp!(opts)
    ref |> Native.context_add_tool_results(results, metadata, at) |> Reply.put!(context)
  end

  @doc "Returns the tool calls of the message added last, see `AshAgent.Context.Calls.extract_tool_calls/1`."
  @doc since: "0.1.0", group: "Read"
  @spec extract_tool_calls(t()) :: [map()]
  def extract_tool_calls(%__MODULE__{} = context), do: Calls.extract_tool_calls(context)

  @doc "Returns the tool calls that wait for a result, see `AshAgent.Context.Calls.pending_tool_calls/1`."
  @doc since: "0.1.0", group: "Read"
  @spec pending_tool_calls(t()) :: [map()]
  def pending_tool_calls(%__MODULE__{} = context), do: Calls.pending_tool_calls(context)

  @doc "Returns the messages of the view, oldest first, see `AshAgent.Context.Log.to_messages/2`."
  @doc since: "0.1.0", group: "Read"
  @spec to_messages(t(), keyword()) :: [message()]
  def to_messages(%__MODULE__{} = context, opts \\ []), do: Log.to_messages(context, opts)

  @doc "Returns the messages of the view; the same as `to_messages/1`."
  @doc since: "0.1.0", group: "Read"
  @spec get_all_messages(t()) :: [message()]
  def get_all_messages(%__MODULE__{} = context), do: to_messages(context)

  @doc "Returns the iteration with this number, or `nil`, see `AshAgent.Context.Log.get_iteration/2`."
  @doc since: "0.1.0", group: "Read"
  @spec get_iteration(t(), integer()) :: iteration() | nil
  def get_iteration(%__MODULE__{} = context, number) when is_integer(number),
    do: Log.get_iteration(context, number)

  @doc "Returns the messages of the iteration with this number, or `[]`, see `AshAgent.Context.Log.get_iteration_messages/2`."
  @doc since: "0.1.0", group: "Read"
  @spec get_iteration_messages(t(), integer()) :: [message()]
  def get_iteration_messages(%__MODULE__{} = context, number) when is_integer(number),
    do: Log.get_iteration_messages(context, number)

  @doc "Returns whether the current iteration's number has reached `max`, see `AshAgent.Context.Log.exceeded_max_iterations?/2`."
  @doc since: "0.1.0", group: "Read"
  @spec exceeded_max_iterations?(t(), integer()) :: boolean()
  def exceeded_max_iterations?(%__MODULE__{} = context, max) when is_integer(max),
    do: Log.exceeded_max_iterations?(context, max)

  @doc "Makes a context from attributes, such as those of `to_map/1`, see `AshAgent.Context.Storage.create/1`."
  @doc since: "0.1.0", group: "Build"
  @spec create(map() | keyword()) :: loaded()
  def create(attributes) when is_map(attributes) or is_list(attributes),
    do: attributes |> Storage.create() |> make()

  @doc "Like `create/1`, but returns the context or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Build"
  @spec create!(map() | keyword()) :: t()
  def create!(attributes), do: attributes |> create() |> bang!()

  @doc "Replaces attributes of a context, see `AshAgent.Context.Storage.update/2`."
  @doc since: "0.1.0", group: "Build"
  @spec update(t(), map() | keyword()) :: loaded()
  def update(%__MODULE__{} = context, attributes)
      when is_map(attributes) or is_list(attributes),
      do: Storage.update(context, attributes)

  @doc "Like `update/2`, but returns the context or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Build"
  @spec update!(t(), map() | keyword()) :: t()
  def update!(%__MODULE__{} = context, attributes), do: context |> update(attributes) |> bang!()

  @doc "Returns the conversation as plain terms, see `AshAgent.Context.Storage.to_map/1`."
  @doc since: "0.1.0", group: "Read"
  @spec to_map(t()) :: map()
  def to_map(%__MODULE__{} = context), do: Storage.to_map(context)

  @doc "Returns all iterations, oldest first, see `AshAgent.Context.Log.iterations/1`."
  @doc since: "0.1.0", group: "Read"
  @spec iterations(t()) :: [iteration()]
  def iterations(%__MODULE__{} = context), do: Log.iterations(context)

  @doc "Returns the number of iterations, see `AshAgent.Context.Log.count_iterations/1`."
  @doc since: "0.1.0", group: "Read"
  @spec count_iterations(t()) :: pos_integer()
  def count_iterations(%__MODULE__{} = context), do: Log.count_iterations(context)

  @doc "Returns the number of the current turn's first iteration, see `AshAgent.Context.Log.turn_start/1`."
  @doc since: "0.1.0", group: "Read"
  @spec turn_start(t()) :: pos_integer()
  def turn_start(%__MODULE__{} = context), do: Log.turn_start(context)

  @doc "Returns `{:ok, message}` for a position of an iteration, or `:error`, see `AshAgent.Context.Log.fetch_message/2`."
  @doc since: "0.1.0", group: "Read"
  @spec fetch_message(t(), {integer(), integer()}) :: {:ok, message()} | :error
  def fetch_message(%__MODULE__{} = context, {iteration, position} = place)
      when is_integer(iteration) and is_integer(position),
      do: Log.fetch_message(context, place)

  @doc "Replaces the system prompt, or removes it with `nil`, see `AshAgent.Context.Log.put_system_prompt/3`."
  @doc since: "0.1.0", group: "Build"
  @spec put_system_prompt(t(), content(), keyword()) :: t()
  def put_system_prompt(%__MODULE__{} = context, prompt, opts \\ [])
      when is_binary(prompt) or is_list(prompt) or is_nil(prompt),
      do: Log.put_system_prompt(context, prompt, opts)

  @doc "Returns the system prompt, or `nil`, see `AshAgent.Context.Log.system_prompt/1`."
  @doc since: "0.1.0", group: "Read"
  @spec system_prompt(t()) :: content()
  def system_prompt(%__MODULE__{} = context), do: Log.system_prompt(context)

  @doc "Puts a value into the conversation's metadata, see `AshAgent.Context.Log.put_metadata/4`."
  @doc since: "0.1.0", group: "Build"
  @spec put_metadata(t(), atom() | binary(), term(), keyword()) :: t()
  def put_metadata(%__MODULE__{} = context, key, value, opts \\ []) when is_key(key),
    do: Log.put_metadata(context, key, value, opts)

  @doc "Puts a value into an iteration's metadata, see `AshAgent.Context.Log.put_iteration_metadata/5`."
  @doc since: "0.1.0", group: "Build"
  @spec put_iteration_metadata(t(), integer(), atom() | binary(), term(), keyword()) :: t()
  def put_iteration_metadata(%__MODULE__{} = context, number, key, value, opts \\ [])
      when is_integer(number) and is_key(key),
      do: Log.put_iteration_metadata(context, number, key, value, opts)

  @doc "Returns the conversation's metadata, see `AshAgent.Context.Log.metadata/1`."
  @doc since: "0.1.0", group: "Read"
  @spec metadata(t()) :: map()
  def metadata(%__MODULE__{} = context), do: Log.metadata(context)

  @doc "Returns whether two contexts have equal contents, see `AshAgent.Context.Log.equal?/2`."
  @doc since: "0.1.0", group: "Read"
  @spec equal?(t(), t()) :: boolean()
  def equal?(%__MODULE__{} = a, %__MODULE__{} = b), do: Log.equal?(a, b)

  @doc "Prints the conversation's log, and returns the context, see `AshAgent.Context.Log.print/2`."
  @doc since: "0.1.0", group: "Read"
  @spec print(t(), keyword()) :: t()
  def print(%__MODULE__{} = context, opts \\ []) when is_list(opts), do: Log.print(context, opts)

  @doc "Returns the conversation as it was at the end of an iteration, see `AshAgent.Context.Log.rewind/2`."
  @doc since: "0.1.0", group: "Fork"
  @spec rewind(t(), to: integer()) :: t()
  def rewind(%__MODULE__{} = context, opts), do: Log.rewind(context, opts)

  @doc "Makes a new conversation with another id that continues from here, see `AshAgent.Context.Log.fork/2`."
  @doc since: "0.1.0", group: "Fork"
  @spec fork(t(), keyword()) :: t()
  def fork(%__MODULE__{} = context, opts \\ []), do: Log.fork(context, opts)

  @doc "Compares two conversations that may have a common beginning, see `AshAgent.Context.Log.diff/2`."
  @doc since: "0.1.0", group: "Fork"
  @spec diff(t(), t()) :: %{last_common: pos_integer() | nil, a: [iteration()], b: [iteration()]}
  def diff(%__MODULE__{} = a, %__MODULE__{} = b), do: Log.diff(a, b)

  @behaviour Access

  @doc "Fetches a field, so that `context[:iterations]` works, see `AshAgent.Context.Log.fetch/2`."
  @doc since: "0.1.0", group: "Read"
  @impl Access
  @spec fetch(t(), term()) :: {:ok, term()} | :error
  def fetch(%__MODULE__{} = context, key), do: Log.fetch(context, key)

  @doc false
  @impl Access
  def get_and_update(%__MODULE__{}, key, _fun),
    do: Log.refuse_change!("put #{inspect(key)} into", "update/2 or put_metadata/3")

  @doc false
  @impl Access
  def pop(%__MODULE__{}, key), do: Log.refuse_change!("remove #{inspect(key)} from", "update/2")

  @doc "Answers every pending tool call with an error, see `AshAgent.Context.Calls.interrupt/3`."
  @doc since: "0.1.0", group: "Build"
  @spec interrupt(t(), term(), keyword()) :: t()
  def interrupt(%__MODULE__{} = context, reason \\ "interrupted", opts \\ []),
    do: Calls.interrupt(context, reason, opts)

  @doc "Records that somebody is asked about a call, see `AshAgent.Context.Calls.ask_about_tool_call/4`."
  @doc since: "0.1.0", group: "Approve"
  @spec ask_about_tool_call(t(), String.t(), arguments :: map() | nil, keyword()) :: t()
  def ask_about_tool_call(%__MODULE__{} = context, id, arguments \\ nil, opts \\ [])
      when is_binary(id) and (is_map(arguments) or is_nil(arguments)),
      do: Calls.ask_about_tool_call(context, id, arguments, opts)

  @doc "Returns the undecided tool calls of the current iteration, see `AshAgent.Context.Calls.undecided_tool_calls/1`."
  @doc since: "0.1.0", group: "Approve"
  @spec undecided_tool_calls(t()) :: [map()]
  def undecided_tool_calls(%__MODULE__{} = context), do: Calls.undecided_tool_calls(context)

  @doc "Returns the undecided calls that somebody was asked about, see `AshAgent.Context.Calls.asked_tool_calls/1`."
  @doc since: "0.1.0", group: "Approve"
  @spec asked_tool_calls(t()) :: [map()]
  def asked_tool_calls(%__MODULE__{} = context), do: Calls.asked_tool_calls(context)

  @doc "Records that a pending tool call may run, see `AshAgent.Context.Calls.approve_tool_call/3`."
  @doc since: "0.1.0", group: "Approve"
  @spec approve_tool_call(t(), String.t(), keyword()) :: t()
  def approve_tool_call(%__MODULE__{} = context, id, opts \\ []) when is_binary(id),
    do: Calls.approve_tool_call(context, id, opts)

  @doc "Returns whether a call was approved with these arguments, see `AshAgent.Context.Calls.tool_call_approved?/3`."
  @doc since: "0.1.0", group: "Approve"
  @spec tool_call_approved?(t(), String.t(), arguments :: map()) :: boolean()
  def tool_call_approved?(%__MODULE__{} = context, id, arguments)
      when is_binary(id) and is_map(arguments),
      do: Calls.tool_call_approved?(context, id, arguments)

  @doc "Denies a pending tool call, see `AshAgent.Context.Calls.deny_tool_call/4`."
  @doc since: "0.1.0", group: "Approve"
  @spec deny_tool_call(t(), String.t(), term(), keyword()) :: t()
  def deny_tool_call(%__MODULE__{} = context, id, reason \\ nil, opts \\ []) when is_binary(id),
    do: Calls.deny_tool_call(context, id, reason, opts)

  @doc "Returns the status of a tool call, or `nil`, see `AshAgent.Context.Calls.tool_call_status/2`."
  @doc since: "0.1.0", group: "Approve"
  @spec tool_call_status(t(), String.t()) :: call_status() | nil
  def tool_call_status(%__MODULE__{} = context, id) when is_binary(id),
    do: Calls.tool_call_status(context, id)

  @doc "Returns who decided about a tool call and when, or `nil`, see `AshAgent.Context.Calls.tool_call_decision/2`."
  @doc since: "0.1.0", group: "Approve"
  @spec tool_call_decision(t(), String.t()) :: Calls.decision() | nil
  def tool_call_decision(%__MODULE__{} = context, id) when is_binary(id),
    do: Calls.tool_call_decision(context, id)

  @doc "Returns when the tool of a call started and ended, or `nil`, see `AshAgent.Context.Calls.tool_call_times/2`."
  @doc since: "0.1.0", group: "Approve"
  @spec tool_call_times(t(), String.t()) :: Calls.times() | nil
  def tool_call_times(%__MODULE__{} = context, id) when is_binary(id),
    do: Calls.tool_call_times(context, id)

  @doc "Adds a provider's response to the current iteration, see `AshAgent.Context.Responses.add_response/3`."
  @doc since: "0.1.0", group: "Responses"
  @spec add_response(t(), Response.t(), keyword()) ::
          {:ok, t()} | {:error, Response.Error.t() | Error.t()}
  def add_response(%__MODULE__{} = context, %Response{} = response, opts \\ []),
    do: Responses.add_response(context, response, opts)

  @doc "Like `add_response/3`, but returns the context or raises the error."
  @doc since: "0.1.0", group: "Responses"
  @spec add_response!(t(), Response.t(), keyword()) :: t()
  def add_response!(context, response, opts \\ []),
    do: context |> add_response(response, opts) |> bang!()

  @doc "Returns the id of the newest answer, or `nil`, see `AshAgent.Context.Responses.get_response_id/1`."
  @doc since: "0.1.0", group: "Responses"
  @spec get_response_id(t()) :: String.t() | nil
  def get_response_id(%__MODULE__{} = context), do: Responses.get_response_id(context)

  @doc "Records a provider's report on tokens, see `AshAgent.Context.Responses.add_token_usage/3`."
  @doc since: "0.1.0", group: "Responses"
  @spec add_token_usage(t(), map(), keyword()) :: t()
  def add_token_usage(%__MODULE__{} = context, usage, opts \\ []) when is_map(usage),
    do: Responses.add_token_usage(context, usage, opts)

  @doc "Records a digest of the next request, see `AshAgent.Context.Asked.put_sent/3`."
  @doc since: "0.1.0", group: "Requests"
  @spec put_sent(t(), provider(), keyword()) :: {:ok, t()} | {:error, Error.t()}
  def put_sent(%__MODULE__{} = context, provider, opts \\ []) when is_provider(provider),
    do: Asked.put_sent(context, provider, opts)

  @doc "Rebuilds the requests that were sent, and compares them with what was recorded, see `AshAgent.Context.Asked.replay/1`."
  @doc since: "0.1.0", group: "Requests"
  @spec replay(t()) :: [Asked.replayed()]
  def replay(%__MODULE__{} = context), do: Asked.replay(context)

  @doc "Records what the current iteration's request asks for, see `AshAgent.Context.Asked.put_request/4`."
  @doc since: "0.1.0", group: "Requests"
  @spec put_request(t(), map() | nil, [map()] | nil, keyword()) :: t()
  def put_request(%__MODULE__{} = context, asked, tools, opts \\ [])
      when (is_map(asked) or is_nil(asked)) and (is_list(tools) or is_nil(tools)),
      do: Asked.put_request(context, asked, tools, opts)

  @doc "Returns what an iteration's request asked for, see `AshAgent.Context.Asked.get_request/2`."
  @doc since: "0.1.0", group: "Read"
  @spec get_request(t(), integer()) :: Asked.t()
  def get_request(%__MODULE__{} = context, number) when is_integer(number),
    do: Asked.get_request(context, number)

  @doc "Returns the conversation as it was when an iteration's request was made, see `AshAgent.Context.Asked.fetch_asked/2`."
  @doc since: "0.1.0", group: "Requests"
  @spec fetch_asked(t(), integer()) :: {:ok, t()} | :error
  def fetch_asked(%__MODULE__{} = context, number) when is_integer(number),
    do: Asked.fetch_asked(context, number)

  @doc "Records a failed request in the current iteration, see `AshAgent.Context.Failures.add_failure/3`."
  @doc since: "0.1.0", group: "Responses"
  @spec add_failure(t(), map(), keyword()) :: t()
  def add_failure(%__MODULE__{} = context, failure, opts \\ []) when is_map(failure),
    do: Failures.add_failure(context, failure, opts)

  @doc "Returns the requests that failed, see `AshAgent.Context.Failures.failures/1`."
  @doc since: "0.1.0", group: "Responses"
  @spec failures(t()) :: [Failures.failure()]
  def failures(%__MODULE__{} = context), do: Failures.failures(context)

  @doc "Returns the reported tokens of all iterations, see `AshAgent.Context.Responses.get_cumulative_tokens/1`."
  @doc since: "0.1.0", group: "Responses"
  @spec get_cumulative_tokens(t()) :: usage()
  def get_cumulative_tokens(%__MODULE__{} = context), do: Responses.get_cumulative_tokens(context)

  @doc "Returns the reported tokens of an iteration, or `nil`, see `AshAgent.Context.Responses.get_iteration_tokens/2`."
  @doc since: "0.1.0", group: "Responses"
  @spec get_iteration_tokens(t(), integer()) :: usage() | nil
  def get_iteration_tokens(%__MODULE__{} = context, number) when is_integer(number),
    do: Responses.get_iteration_tokens(context, number)

  @doc "Returns what the model's answers cost, see `AshAgent.Context.Responses.fetch_cost/2`."
  @doc since: "0.1.0", group: "Responses"
  @spec fetch_cost(t(), keyword()) :: {:ok, non_neg_integer()} | {:error, Error.t()}
  def fetch_cost(%__MODULE__{} = context, opts) when is_list(opts),
    do: Responses.fetch_cost(context, opts)

  @doc "Returns how each request fared at the provider's prompt cache, see `AshAgent.Context.Account.account/2`."
  @doc since: "0.1.0", group: "Responses"
  @spec account(t(), keyword()) :: Account.t()
  def account(%__MODULE__{} = context, opts \\ []), do: Account.account(context, opts)

  @doc "Returns what the next request will read from the provider's prompt cache, see `AshAgent.Context.Account.forecast/3`."
  @doc since: "0.1.0", group: "Requests"
  @spec forecast(t(), provider(), keyword()) :: {:ok, Account.forecast()} | {:error, Error.t()}
  def forecast(%__MODULE__{} = context, provider, opts \\ []) when is_provider(provider),
    do: Account.forecast(context, provider, opts)

  @doc "Returns the message part of a provider's request as a map, see `AshAgent.Context.Requests.request/3`."
  @doc since: "0.1.0", group: "Requests"
  @spec request(t(), provider(), keyword()) :: {:ok, map()} | {:error, Error.t()}
  def request(%__MODULE__{} = context, provider, opts \\ []) when is_provider(provider),
    do: Requests.request(context, provider, opts)

  @doc "Like `request/3`, but returns the request or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Requests"
  @spec request!(t(), provider(), keyword()) :: map()
  def request!(context, provider, opts \\ []), do: context |> request(provider, opts) |> bang!()

  @doc "Returns a complete JSON request body as iodata, see `AshAgent.Context.Requests.encode_request/3`."
  @doc since: "0.1.0", group: "Requests"
  @spec encode_request(t(), provider(), keyword()) :: {:ok, iodata()} | {:error, Error.t()}
  def encode_request(%__MODULE__{} = context, provider, opts \\ []) when is_provider(provider),
    do: Requests.encode_request(context, provider, opts)

  @doc "Like `encode_request/3`, but returns the iodata or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Requests"
  @spec encode_request!(t(), provider(), keyword()) :: iodata()
  def encode_request!(context, provider, opts \\ []),
    do: context |> encode_request(provider, opts) |> bang!()

  @doc "Returns the changes that a request needs to be accepted, see `AshAgent.Context.Requests.request_report/3`."
  @doc since: "0.1.0", group: "Requests"
  @spec request_report(t(), provider(), keyword()) :: [map()]
  def request_report(%__MODULE__{} = context, provider, opts \\ []) when is_provider(provider),
    do: Requests.request_report(context, provider, opts)

  @doc "Returns the conversation as plain text, see `AshAgent.Context.Requests.to_prompt/2`."
  @doc since: "0.1.0", group: "Requests"
  @spec to_prompt(t(), keyword()) :: String.t()
  def to_prompt(%__MODULE__{} = context, opts \\ []), do: Requests.to_prompt(context, opts)

  @doc "Returns whether a request can be made now, see `AshAgent.Context.Requests.validate_for_request/1`."
  @doc since: "0.1.0", group: "Requests"
  @spec validate_for_request(t()) :: :ok | {:error, [Requests.obstacle()]}
  def validate_for_request(%__MODULE__{} = context), do: Requests.validate_for_request(context)

  @doc "Makes a context from a request to a provider, see `AshAgent.Context.Import.from_request/3`."
  @doc since: "0.1.0", group: "Requests"
  @spec from_request(map() | binary(), provider(), keyword()) :: imported()
  def from_request(body, provider, opts \\ [])
      when (is_map(body) or is_binary(body)) and is_provider(provider),
      do: body |> Import.from_request(provider, opts) |> make()

  @doc "Like `from_request/3`, but returns the context alone or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Requests"
  @spec from_request!(map() | binary(), provider(), keyword()) :: t()
  def from_request!(body, provider, opts \\ []),
    do: body |> from_request(provider, opts) |> bang!()

  @doc "Makes a context from a list of messages, see `AshAgent.Context.Import.from_messages/2`."
  @doc since: "0.1.0", group: "Requests"
  @spec from_messages([map()], keyword()) :: imported()
  def from_messages(messages, opts \\ []) when is_list(messages),
    do: messages |> Import.from_messages(opts) |> make()

  @doc "Like `from_messages/2`, but returns the context alone or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Requests"
  @spec from_messages!([map()], keyword()) :: t()
  def from_messages!(messages, opts \\ []), do: messages |> from_messages(opts) |> bang!()

  @doc "Makes a context from a conversation of ReqLLM, see `AshAgent.Context.Libraries.from_req_llm/2`."
  @doc since: "0.1.0", group: "Other libraries"
  @spec from_req_llm(map() | [map()], keyword()) :: imported()
  def from_req_llm(messages, opts \\ []) when is_map(messages) or is_list(messages),
    do: messages |> Libraries.from_req_llm(opts) |> make()

  @doc "Returns the messages as a `ReqLLM.Context`, see `AshAgent.Context.Libraries.to_req_llm/1`."
  @doc since: "0.1.0", group: "Other libraries"
  @spec to_req_llm(t()) :: struct() | %{messages: [map()], tools: []}
  def to_req_llm(%__MODULE__{} = context), do: Libraries.to_req_llm(context)

  @doc "Makes a context from messages of LangChain, see `AshAgent.Context.Libraries.from_langchain/2`."
  @doc since: "0.1.0", group: "Other libraries"
  @spec from_langchain([map()], keyword()) :: imported()
  def from_langchain(messages, opts \\ []) when is_list(messages),
    do: messages |> Libraries.from_langchain(opts) |> make()

  @doc "Returns the messages as those of LangChain, see `AshAgent.Context.Libraries.to_langchain/1`."
  @doc since: "0.1.0", group: "Other libraries"
  @spec to_langchain(t()) :: [struct() | map()]
  def to_langchain(%__MODULE__{} = context), do: Libraries.to_langchain(context)

  @doc "Makes a context from a `Jido.AI.Context`, see `AshAgent.Context.Libraries.from_jido/2`."
  @doc since: "0.1.0", group: "Other libraries"
  @spec from_jido(map(), keyword()) :: imported()
  def from_jido(%{entries: entries} = jido, opts \\ []) when is_list(entries),
    do: jido |> Libraries.from_jido(opts) |> make()

  @doc "Returns the conversation as a `Jido.AI.Context`, see `AshAgent.Context.Libraries.to_jido/1`."
  @doc since: "0.1.0", group: "Other libraries"
  @spec to_jido(t()) :: struct() | map()
  def to_jido(%__MODULE__{} = context), do: Libraries.to_jido(context)

  @doc "Returns the conversation as a map of JSON data, to be stored, see `AshAgent.Context.Storage.dump/2`."
  @doc since: "0.1.0", group: "Store"
  @spec dump(t(), keyword()) :: map()
  def dump(%__MODULE__{} = context, opts \\ []), do: Storage.dump(context, opts)

  @doc "Makes a context from a map of `dump/2`, or puts a delta onto a context, see `AshAgent.Context.Storage.load/3`."
  @doc since: "0.1.0", group: "Store"
  @spec load(document :: term(), keyword()) :: loaded()
  @spec load(t(), delta :: term(), keyword()) :: loaded()
  def load(document_or_context, delta_or_opts \\ [], opts \\ []) when is_list(opts),
    do: document_or_context |> Storage.load(delta_or_opts, opts) |> make()

  @doc "Like `load/3`, but returns the context or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Store"
  @spec load!(document :: term(), keyword()) :: t()
  @spec load!(t(), delta :: term(), keyword()) :: t()
  def load!(document_or_context, delta_or_opts \\ [], opts \\ []),
    do: document_or_context |> load(delta_or_opts, opts) |> bang!()

  @doc "Makes a context from any stored form, and returns a context as it is, see `AshAgent.Context.Storage.restore/1`."
  @doc since: "0.1.0", group: "Store"
  @spec restore(t() | map() | binary()) :: loaded()
  def restore(%__MODULE__{} = context), do: with(:ok <- Handle.check(context), do: {:ok, context})

  def restore(stored) when is_map(stored) or is_binary(stored),
    do: stored |> Storage.restore() |> make()

  @doc "Returns the conversation as JSON text, to be stored, see `AshAgent.Context.Storage.to_snapshot/1`."
  @doc since: "0.1.0", group: "Store"
  @spec to_snapshot(t()) :: binary()
  def to_snapshot(%__MODULE__{} = context), do: Storage.to_snapshot(context)

  @doc "Makes a context from the text of `to_snapshot/1`, see `AshAgent.Context.Storage.from_snapshot/2`."
  @doc since: "0.1.0", group: "Store"
  @spec from_snapshot(binary(), keyword()) :: loaded()
  def from_snapshot(text, opts \\ []) when is_binary(text) and is_list(opts),
    do: text |> Storage.from_snapshot(opts) |> make()

  @doc "Like `from_snapshot/2`, but returns the context or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Store"
  @spec from_snapshot!(binary(), keyword()) :: t()
  def from_snapshot!(text, opts \\ []), do: text |> from_snapshot(opts) |> bang!()

  @doc "Returns the number of tokens in the view, see `AshAgent.Context.Tokens.count_tokens/2`."
  @doc since: "0.1.0", group: "View and budget"
  @spec count_tokens(t(), method: token_method()) :: non_neg_integer()
  def count_tokens(%__MODULE__{} = context, opts \\ []), do: Tokens.count_tokens(context, opts)

  @doc "Returns the tokens of the view by purpose, see `AshAgent.Context.Tokens.token_breakdown/2`."
  @doc since: "0.1.0", group: "View and budget"
  @spec token_breakdown(t(), method: token_method()) :: Tokens.breakdown()
  def token_breakdown(%__MODULE__{} = context, opts \\ []),
    do: Tokens.token_breakdown(context, opts)

  @doc "Returns an estimate of the view's tokens, see `AshAgent.Context.Tokens.estimate_token_count/1`."
  @doc since: "0.1.0", group: "View and budget"
  @spec estimate_token_count(t()) :: non_neg_integer()
  def estimate_token_count(%__MODULE__{} = context), do: Tokens.estimate_token_count(context)

  @doc "Returns whether the view exceeds a budget, see `AshAgent.Context.Tokens.exceeds_token_budget?/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec exceeds_token_budget?(t(), pos_integer(), method: token_method()) :: boolean()
  def exceeds_token_budget?(%__MODULE__{} = context, budget, opts \\ []) when is_positive(budget),
    do: Tokens.exceeds_token_budget?(context, budget, opts)

  @doc "Returns how many tokens of a budget are free, see `AshAgent.Context.Tokens.tokens_remaining/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec tokens_remaining(t(), pos_integer(), method: token_method()) :: non_neg_integer()
  def tokens_remaining(%__MODULE__{} = context, budget, opts \\ []) when is_positive(budget),
    do: Tokens.tokens_remaining(context, budget, opts)

  @doc "Returns the share of a budget that the view takes, see `AshAgent.Context.Tokens.budget_utilization/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec budget_utilization(t(), pos_integer(), method: token_method()) :: float()
  def budget_utilization(%__MODULE__{} = context, budget, opts \\ []) when is_positive(budget),
    do: Tokens.budget_utilization(context, budget, opts)

  @doc "Returns how the view differs from the log, see `AshAgent.Context.View.view/1`."
  @doc since: "0.1.0", group: "View and budget"
  @spec view(t()) :: View.t()
  def view(%__MODULE__{} = context), do: View.view(context)

  @doc "Returns the number of messages in the view, see `AshAgent.Context.View.count_messages/1`."
  @doc since: "0.1.0", group: "Read"
  @spec count_messages(t()) :: non_neg_integer()
  def count_messages(%__MODULE__{} = context), do: View.count_messages(context)

  @doc "Hides the oldest iterations until the view fits into a budget, see `AshAgent.Context.View.fit/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec fit(t(), non_neg_integer(), keyword()) ::
          {:ok, t(), Range.t() | nil} | {:error, Error.t()}
  def fit(%__MODULE__{} = context, budget, opts \\ []) when is_integer(budget) and budget >= 0,
    do: View.fit(context, budget, opts)

  @doc "Hides all but the last iterations, see `AshAgent.Context.View.keep_last_iterations/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec keep_last_iterations(t(), pos_integer(), keyword()) :: t()
  def keep_last_iterations(%__MODULE__{} = context, count, opts \\ []) when is_positive(count),
    do: View.keep_last_iterations(context, count, opts)

  @doc "Hides the iterations that began too long ago, see `AshAgent.Context.View.hide_old_iterations/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec hide_old_iterations(t(), non_neg_integer(), keyword()) :: t()
  def hide_old_iterations(%__MODULE__{} = context, seconds, opts \\ [])
      when is_integer(seconds) and seconds >= 0,
      do: View.hide_old_iterations(context, seconds, opts)

  @doc "Shows a range of iterations and the later ones only, see `AshAgent.Context.View.keep_iteration_range/4`."
  @doc since: "0.1.0", group: "View and budget"
  @spec keep_iteration_range(t(), pos_integer(), pos_integer(), keyword()) :: t()
  def keep_iteration_range(%__MODULE__{} = context, first, last, opts \\ [])
      when is_integer(first) and is_integer(last) and first > 0 and last >= first,
      do: View.keep_iteration_range(context, first, last, opts)

  @doc "Hides iterations, even those of the current turn, see `AshAgent.Context.View.hide_iterations/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec hide_iterations(t(), Range.t() | pos_integer(), keyword()) :: t()
  def hide_iterations(%__MODULE__{} = context, range, opts \\ [])
      when is_integer(range) or is_struct(range, Range),
      do: View.hide_iterations(context, range, opts)

  @doc "Hides a range of iterations, or shows a summary instead, see `AshAgent.Context.View.compact/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec compact(t(), strategy(), keyword()) :: {:ok, t(), View.compaction()} | {:error, Error.t()}
  def compact(%__MODULE__{} = context, strategy, opts \\ []),
    do: View.compact(context, strategy, opts)

  @doc "Shows a summary that you have instead of iterations, see `AshAgent.Context.View.mark_as_summarized/4`."
  @doc since: "0.1.0", group: "View and budget"
  @spec mark_as_summarized(t(), pos_integer() | Range.t(), String.t(), keyword()) :: t()
  def mark_as_summarized(%__MODULE__{} = context, range, summary, opts \\ [])
      when (is_integer(range) or is_struct(range, Range)) and is_binary(summary),
      do: View.mark_as_summarized(context, range, summary, opts)

  @doc "Returns the summary shown instead of an iteration, or `nil`, see `AshAgent.Context.View.summary/2`."
  @doc since: "0.1.0", group: "View and budget"
  @spec summary(t(), integer()) :: String.t() | nil
  def summary(%__MODULE__{} = context, number) when is_integer(number),
    do: View.summary(context, number)

  @doc "Returns what the check of the summary of an iteration said, or `nil`, see `AshAgent.Context.View.verdict/2`."
  @doc since: "0.1.0", group: "View and budget"
  @spec verdict(t(), integer()) :: View.verdict() | nil
  def verdict(%__MODULE__{} = context, number) when is_integer(number),
    do: View.verdict(context, number)

  @doc "Shows hidden or summarised iterations again, see `AshAgent.Context.View.expand/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec expand(t(), Range.t() | pos_integer() | :all | Shortening.step(), keyword()) :: t()
  def expand(%__MODULE__{} = context, part, opts \\ [])
      when part == :all or is_integer(part) or is_struct(part, Range) or is_map_key(part, :kind),
      do: View.expand(context, part, opts)

  @doc "Clears old tool results in the view, see `AshAgent.Context.View.clear_tool_results/2`."
  @doc since: "0.1.0", group: "View and budget"
  @spec clear_tool_results(t(), keyword()) :: t()
  def clear_tool_results(%__MODULE__{} = context, opts \\ []),
    do: View.clear_tool_results(context, opts)

  @doc "Clears old tool results in the view when that is due, see `AshAgent.Context.Rent.clear_when_due/2`."
  @doc since: "0.1.0", group: "View and budget"
  @spec clear_when_due(t(), keyword()) :: {t(), Rent.due() | nil}
  def clear_when_due(%__MODULE__{} = context, opts \\ []), do: Rent.clear_when_due(context, opts)

  @doc "Shortens the view for a request that is too long, see `AshAgent.Context.Shortening.shorten/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec shorten(t(), Shortening.cause(), keyword()) :: {t(), Shortening.step() | nil}
  def shorten(%__MODULE__{} = context, cause, opts \\ [])
      when cause in [:context_overflow, :window],
      do: Shortening.shorten(context, cause, opts)

  @doc "Returns the steps by which the view was made shorter, see `AshAgent.Context.Shortening.shortenings/1`."
  @doc since: "0.1.0", group: "View and budget"
  @spec shortenings(t()) :: [Shortening.step()]
  def shortenings(%__MODULE__{} = context), do: Shortening.shortenings(context)

  @doc "Limits the text of each tool result in the view, see `AshAgent.Context.View.put_max_result_bytes/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec put_max_result_bytes(t(), pos_integer() | nil, keyword()) :: t()
  def put_max_result_bytes(%__MODULE__{} = context, bytes, opts \\ []),
    do: View.put_max_result_bytes(context, bytes, opts)

  @doc "Adds a named text after the system prompt in the view, see `AshAgent.Context.View.put_prompt_block/4`."
  @doc since: "0.1.0", group: "View and budget"
  @spec put_prompt_block(t(), atom() | String.t(), String.t() | nil, keyword()) :: t()
  def put_prompt_block(%__MODULE__{} = context, name, text, opts \\ [])
      when is_key(name) and (is_binary(text) or is_nil(text)),
      do: View.put_prompt_block(context, name, text, opts)

  @doc "Masks the matches of patterns in all texts of the view, see `AshAgent.Context.View.put_masks/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec put_masks(t(), [{Regex.t() | String.t(), String.t()}], keyword()) :: t()
  def put_masks(%__MODULE__{} = context, masks, opts \\ []) when is_list(masks),
    do: View.put_masks(context, masks, opts)

  @doc "Sets whether what the view leaves out has handles, see `AshAgent.Context.Recall.put_recall/3`."
  @doc since: "0.1.0", group: "Recall"
  @spec put_recall(t(), boolean(), keyword()) :: t()
  def put_recall(%__MODULE__{} = context, recall, opts \\ []) when is_boolean(recall),
    do: Recall.put_recall(context, recall, opts)

  @doc "Returns whether what the view leaves out has handles, see `AshAgent.Context.Recall.recall?/1`."
  @doc since: "0.1.0", group: "Recall"
  @spec recall?(t()) :: boolean()
  def recall?(%__MODULE__{} = context), do: Recall.recall?(context)

  @doc "Reads what a handle stands for, see `AshAgent.Context.Recall.recall/3`."
  @doc since: "0.1.0", group: "Recall"
  @spec recall(t(), String.t(), keyword()) :: {:ok, String.t()} | {:error, Error.t()}
  def recall(%__MODULE__{} = context, handle, opts \\ []) when is_binary(handle),
    do: Recall.recall(context, handle, opts)

  @doc "Searches what the view does not show, see `AshAgent.Context.Recall.search/3`."
  @doc since: "0.1.0", group: "Recall"
  @spec search(t(), String.t(), keyword()) :: [Recall.hit()]
  def search(%__MODULE__{} = context, words, opts \\ []) when is_binary(words),
    do: Recall.search(context, words, opts)

  @doc "Keeps something in the view whatever policies hide, see `AshAgent.Context.Pins.pin/3`."
  @doc since: "0.1.0", group: "Recall"
  @spec pin(t(), Pins.pin(), keyword()) :: t()
  def pin(%__MODULE__{} = context, pin, opts \\ []), do: Pins.pin(context, pin!(pin), opts)

  @doc "Removes a pin, see `AshAgent.Context.Pins.unpin/3`."
  @doc since: "0.1.0", group: "Recall"
  @spec unpin(t(), Pins.pin(), keyword()) :: t()
  def unpin(%__MODULE__{} = context, pin, opts \\ []), do: Pins.unpin(context, pin!(pin), opts)

  defp pin!(pin) do
    if Pins.pin?(pin),
      do: pin,
      else:
        Caller.refuse!(
          "expected {:iteration, number}, {:message, number, position}, {:call, id} or {:fact, text}"
        )
  end

  @doc "Returns the pins, see `AshAgent.Context.Pins.pins/1`."
  @doc since: "0.1.0", group: "Recall"
  @spec pins(t()) :: [Pins.pin()]
  def pins(%__MODULE__{} = context), do: Pins.pins(context)

  @doc "Counts the facts that the view does not show, by where they are for the model, see `AshAgent.Context.Receipt.receipt/2`."
  @doc since: "0.1.0", group: "Recall"
  @spec receipt(t(), keyword()) :: Receipt.t() | nil
  def receipt(%__MODULE__{} = context, opts \\ []), do: Receipt.receipt(context, opts)

  @doc "Compares the view with another one, see `AshAgent.Context.Receipt.diff_views/2`."
  @doc since: "0.1.0", group: "Recall"
  @spec diff_views(t(), t() | pos_integer()) ::
          %{no_longer: [Receipt.unseen()], again: [Receipt.unseen()]} | nil
  def diff_views(%__MODULE__{} = context, other)
      when is_struct(other, __MODULE__) or (is_integer(other) and other > 0),
      do: Receipt.diff_views(context, other)

  @doc "Runs enhancers on the context, one after the other, see `AshAgent.Context.Enhancer.run/3`."
  @doc since: "0.1.0", group: "View and budget"
  @spec enhance(t(), [Enhancer.t()], keyword()) ::
          {:ok, t(), Enhancer.report()} | {:error, Error.t()}
  def enhance(%__MODULE__{} = context, enhancers, opts \\ [])
      when is_list(enhancers) and is_list(opts),
      do: Enhancer.run(context, enhancers, opts)

  @doc false
  defdelegate providers(), to: Requests
  @doc false
  defdelegate checked_options(provider, opts), to: Requests

  defp make({:ok, %{ref: _} = handle}), do: {:ok, make(handle)}
  defp make({:ok, handle, report}), do: {:ok, make(handle), report}
  defp make({:error, _error} = error), do: error

  defp make(%{ref: ref, current_iteration: number}),
    do: %__MODULE__{ref: ref, current_iteration: number}

  defp bang!({:ok, term}), do: term
  defp bang!({:ok, context, _report}), do: context
  defp bang!({:error, error}), do: raise(error)
end
