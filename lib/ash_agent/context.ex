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

  ## Where else to look

  This module has what every conversation needs. The rest is in modules by topic, whose functions take a context as well:

    * `AshAgent.Context.View` - what models see of the conversation: hiding, summaries, cleared results, masks
    * `AshAgent.Context.Shortening`, `AshAgent.Context.Rent` and `AshAgent.Context.Enhancer` - when the view should get shorter, and by what
    * `AshAgent.Context.Recall` and `AshAgent.Context.Pins` - reading what the view leaves out, and what it never leaves out
    * `AshAgent.Context.Tokens` - tokens, counted and reported
    * `AshAgent.Context.Calls` - approving and denying tool calls, and what became of them
    * `AshAgent.Context.Audit` - requests: what they asked for, whether they hit the cache, how they failed, and what they cost
    * `AshAgent.Context.Import` - histories of providers and lists of messages
    * `AshAgent.Context.ReqLLM`, `AshAgent.Context.LangChain` and `AshAgent.Context.Jido` - conversations of other libraries

  ## Values

  Every function that changes a conversation returns a new context that shares structure with the old one. The old one never
  changes, in any process. Terms come back equal: atoms, tuples, structs, integers of any size, floats, and binaries that
  are not valid UTF-8. Terms that live only in this VM (pids, ports, references, functions) are kept as their printed text.
  Improper lists, bitstrings that are not binaries, and values nested deeper than 256 levels are refused.

  A text may have invalid UTF-8: users' input and tools' output should not be lost. It is kept byte by byte, in memory and in storage, and
  comes back as given. Models read `U+FFFD` instead of the invalid bytes, since providers refuse them, and `request_report/3` lists
  them as `:replaced_bytes`. Times are in UTC with microseconds, for the years 0 to 9999. Integers of more than 4,300 digits are
  written to JSON as hexadecimal text.

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

  use AshAgent.Arguments, provider: {:in, AshAgent.Context.Requests.providers()}

  alias AshAgent.Context.{
    Error,
    Handle,
    Native,
    Options,
    PreparedRequest,
    Printed,
    Reply,
    Requests,
    Trust,
    View
  }

  alias AshAgent.{Caller, Response}
  alias AshAgent.Options, as: Check

  import AshAgent.Context.Requests, only: [is_provider: 1]

  defguardp is_key(key) when is_atom(key) or is_binary(key)

  @behaviour Access

  @enforce_keys [:ref, :current_iteration]
  defstruct [:ref, :current_iteration]

  @typedoc "A conversation. `current_iteration` may be read and matched on; `ref` is private."
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
    * `%{type: :provider_block, provider: :anthropic, data: map}`: is sent to its own provider only, and other providers get
      its words. A block that its provider would refuse in this place is refused when it is added. In tool results, only
      Anthropic's can stand, such as the `"tool_reference"` blocks of a tool search of your own

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
  name may be left out. [Answer a shell, computer or custom call](calls.html) describes how to answer each kind.
  """
  @type tool_call :: %{required(:name) => atom() | binary(), optional(atom()) => term()}

  @typedoc """
  The result of a tool call. `:started_at` and `:ended_at` are the times of the tool, each a `DateTime` or microseconds since 1970, see
  `AshAgent.Context.Calls.tool_call_times/2`. `:error_type` names the kind of an error for those who look, such as an exception's module; models do not
  read it.

  `{:ok, term}` with any term. A list of text, image, file and provider parts is shown to the model as those parts. Otherwise
  the model reads a binary as it is, anything else as JSON, the reason of an error in words, and "(no output)" for an empty result.
  `{:unknown, reason}` is an error of a call that was started and whose outcome is not known: `AshAgent.Context.Calls.tool_call_status/2` returns
  `:unknown`, and reading it gives `{:error, reason}`.
  """
  @type tool_result ::
          %{
            required(:id) => binary(),
            required(:result) => result(),
            optional(:started_at) => DateTime.t() | integer(),
            optional(:ended_at) => DateTime.t() | integer(),
            optional(:error_type) => String.t()
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

  @typedoc "A provider whose API a request is for."
  @type provider ::
          :anthropic
          | :openai_chat
          | :openai_responses
          | :gemini
          | :bedrock
          | :ollama
          | :mistral

  @typedoc "The reason why no request can be made now, see `validate_for_request/1`."
  @type obstacle ::
          :no_messages
          | :last_message_from_assistant
          | {:pending_tool_calls, ids :: [String.t()]}

  @typedoc "A context that was made of data, or the error."
  @type loaded :: {:ok, t()} | {:error, Error.t()}

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
      opts[:id]
      |> Native.context_new(input, opts[:system_prompt], {opts[:metadata], opts[:at]})
      |> Reply.put!()

    case opts[:max_result_bytes] do
      nil -> context
      most -> View.put_max_result_bytes(context, most, at: context[:updated_at])
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
    ref |> Native.context_add_user_message(input, Options.stamp!(opts)) |> Reply.put!(context)
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
    ref
    |> Native.context_add_assistant_message(content, calls, Options.stamp!(opts))
    |> Reply.put!(context)
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
    ref |> Native.context_add_tool_results(results, Options.stamp!(opts)) |> Reply.put!(context)
  end

  @doc """
  Adds a provider's response to the current iteration, and returns `{:ok, context}` or `{:error, error}`.

  The message contains everything in the response: text, thinking with its signatures, calls and the provider's own
  blocks. The context also records the reported tokens (`AshAgent.Context.Tokens.get_cumulative_tokens/1`) and the model, id and finish reason
  (`AshAgent.Context.fetch_message/2`). The next request to the same provider contains exactly what its own SDK would send back.

  An interrupted response is kept with all its text and `state: :interrupted`. None of its calls is pending: each is
  answered with an error that says so. The same happens to a call that was cut off in an otherwise complete response, for
  instance by `max_tokens`, and to all calls of one that was refused, filtered or malformed. If no call is left to run, the
  iteration is complete.

  The error is an `AshAgent.Response.Error` if the response failed, is queued or is still open; it says whether a retry may
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

      iex> {:ok, response} = AshAgent.Response.decode(:ollama, %{message: %{content: "Hello!"}, done: true})
      iex> context = "Hi" |> AshAgent.Context.new() |> AshAgent.Context.add_response!(response)
      iex> AshAgent.Context.count_messages(context)
      2
  """
  @doc since: "0.1.0", group: "Build"
  @spec add_response(t(), Response.t(), keyword()) ::
          {:ok, t()} | {:error, Response.Error.t() | Error.t()}
  def add_response(%__MODULE__{} = context, %Response{} = response, opts \\ []) do
    opts = Options.validate!(opts, :add_response)
    times = {opts[:requested_at], opts[:first_chunk_at]}
    put_response(context, response, times, opts[:metadata], opts[:at])
  end

  @doc """
  Adds a response as `add_response/3` does, without checking options: for loops, which add many.

  `times` are when the response was requested and when its first piece came, `nil` where that is not known.

  ## Examples

      iex> {:ok, response} = AshAgent.Response.from_message(%{content: "Hello!"})
      iex> {:ok, context} = "Hi" |> AshAgent.Context.new() |> AshAgent.Context.put_response(response, {nil, nil})
      iex> AshAgent.Context.count_messages(context)
      2
  """
  @doc since: "0.1.0", group: "Build"
  @spec put_response(
          t(),
          Response.t(),
          {DateTime.t() | integer() | nil, DateTime.t() | integer() | nil},
          map() | nil,
          DateTime.t() | nil
        ) :: {:ok, t()} | {:error, Response.Error.t() | Error.t()}
  def put_response(
        %__MODULE__{ref: ref} = context,
        %Response{ref: response},
        times,
        metadata \\ nil,
        at \\ nil
      ) do
    case Native.context_add_response(ref, response, times, {metadata, at}) do
      {:error, {:response, fault}} -> {:error, Response.Error.new(fault)}
      reply -> Reply.put_at(reply, context)
    end
  end

  @doc "Like `add_response/3`, but returns the context or raises the error."
  @doc since: "0.1.0", group: "Build"
  @spec add_response!(t(), Response.t(), keyword()) :: t()
  def add_response!(context, response, opts \\ []),
    do: context |> add_response(response, opts) |> Reply.bang!()

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
  def interrupt(%__MODULE__{ref: ref} = context, reason \\ "interrupted", opts \\ []) do
    opts = Options.validate!(opts, :interrupt)

    ref
    |> Native.context_interrupt(reason, opts[:status] == :cancelled, {opts[:metadata], opts[:at]})
    |> Reply.put!(context)
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
  def put_system_prompt(%__MODULE__{ref: ref} = context, prompt, opts \\ [])
      when is_binary(prompt) or is_list(prompt) or is_nil(prompt),
      do:
        ref
        |> Native.context_put_system_prompt(prompt, Options.time!(opts))
        |> Reply.put!(context)

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
  def put_metadata(%__MODULE__{ref: ref} = context, key, value, opts \\ []) when is_key(key),
    do: ref |> Native.context_put_metadata(key, value, Options.time!(opts)) |> Reply.put!(context)

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
  def put_iteration_metadata(%__MODULE__{ref: ref} = context, number, key, value, opts \\ [])
      when is_integer(number) and is_key(key) do
    ref
    |> Native.context_put_iteration_metadata(number, key, value, Options.time!(opts))
    |> name_iteration(number)
    |> Reply.put!(context)
  end

  # Integers beyond 64 bits do not reach the core as they are.
  defp name_iteration({:error, {:unknown_iteration, _, known}}, number),
    do: {:error, {:unknown_iteration, number, known}}

  defp name_iteration(reply, _number), do: reply

  @doc """
  Makes a context from attributes, such as those that `to_map/1` returns, and returns `{:ok, context}` or `{:error,
  error}`.

  Attributes are a map or a keyword list with `:iterations`, `:current_iteration`, `:id`, `:metadata`, `:origin`,
  `:asked`, `:late`, `:created_at` and `:updated_at`, all optional. Keys within them may be atoms or strings, times `DateTime`s or ISO 8601
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
  @doc since: "0.1.0", group: "Build"
  @spec create(map() | keyword()) :: loaded()
  def create(attributes) when is_map(attributes) or is_list(attributes),
    do: attributes |> Options.attributes!() |> Native.context_create(nil) |> Reply.put()

  @doc "Like `create/1`, but returns the context or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Build"
  @spec create!(map() | keyword()) :: t()
  def create!(attributes), do: attributes |> create() |> Reply.bang!()

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
  @spec update(t(), map() | keyword()) :: loaded()
  def update(%__MODULE__{ref: ref} = context, attributes)
      when is_map(attributes) or is_list(attributes),
      do: ref |> Native.context_update(Options.attributes!(attributes), nil) |> Reply.put(context)

  @doc "Like `update/2`, but returns the context or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Build"
  @spec update!(t(), map() | keyword()) :: t()
  def update!(%__MODULE__{} = context, attributes),
    do: context |> update(attributes) |> Reply.bang!()

  @doc """
  Returns the messages of the view, oldest first, beginning with the system prompt.

  The view is the whole log unless something is hidden, summarised, cleared, shortened or masked, see `AshAgent.Context.View.view/1`. Costs O(n).

  ## Options

  #{Options.docs(:to_messages)}

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.to_messages()
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0", group: "Read"
  @spec to_messages(t(), keyword()) :: [message()]
  def to_messages(%__MODULE__{ref: ref} = _context, opts \\ []) do
    opts = Options.validate!(opts, :to_messages)
    ref |> Native.context_to_messages(opts[:view] == :log) |> Reply.ok!()
  end

  @doc "Returns the messages of the view; the same as `to_messages/1`."
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
  """
  @doc since: "0.1.0", group: "Read"
  @spec get_iteration(t(), integer()) :: iteration() | nil
  def get_iteration(%__MODULE__{ref: ref}, number) when is_integer(number),
    do: ref |> Native.context_iteration(number) |> Reply.ok!()

  @doc """
  Returns the messages of the iteration with this number, or `[]`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.get_iteration_messages(1)
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0", group: "Read"
  @spec get_iteration_messages(t(), integer()) :: [message()]
  def get_iteration_messages(%__MODULE__{ref: ref}, number) when is_integer(number),
    do: ref |> Native.context_iteration_messages(number) |> Reply.ok!()

  @doc """
  Returns all iterations, oldest first.

  Costs O(n). A context is also an `Enumerable` that yields its iterations one by one.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.iterations() |> Enum.map(& &1.number)
      [1]
  """
  @doc since: "0.1.0", group: "Read"
  @spec iterations(t()) :: [iteration()]
  def iterations(%__MODULE__{ref: ref}), do: ref |> Native.context_iterations() |> Reply.ok!()

  @doc """
  Returns `{:ok, message}` for the message at a 0-based position of an iteration, or `:error`.

  It is the message that `AshAgent.Context.get_iteration_messages/2` returns at this position, in O(log n). A message added by
  `AshAgent.Context.add_response/3` also has `:response`, a map with the `:provider`, the `:model` and the `:id`, the `:finish_reason` and
  `:finish_word`, the `:state` (`:complete` or `:interrupted`), and the `:reason` of an interruption. It has
  `:requested_at`, `:first_chunk_at` and `:received_at` if they are known, and `:details` if the provider said more of its answer, see
  `AshAgent.Response.details/1`.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.fetch_message(context, {1, 0})
      {:ok, %{role: :user, content: "Hello!"}}
      iex> AshAgent.Context.fetch_message(context, {1, 1})
      :error
  """
  @doc since: "0.1.0", group: "Read"
  @spec fetch_message(t(), {integer(), integer()}) :: {:ok, message()} | :error
  def fetch_message(%__MODULE__{ref: ref}, {iteration, position} = _place)
      when is_integer(iteration) and is_integer(position) do
    case ref |> Native.context_message(iteration, position) |> Reply.ok!() do
      nil -> :error
      message -> {:ok, message}
    end
  end

  @doc """
  Returns what a run has to know before it begins, in one call.

  `:turn_start` is the number of the iteration that began the turn, `:tokens` how many tokens were reported, `:pending` how many calls
  wait for a result, and `:recall?` what `AshAgent.Context.Recall.recall?/1` returns. `:answered?` is whether the last message is the
  model's and ends the turn: it is not `true` for an answer that broke off, for one after which the model goes on (`:pause`), and for one
  without words that should have had a call, or that the provider could not read.

  ## Examples

      iex> "Hello!" |> AshAgent.Context.new(id: "c1") |> AshAgent.Context.outline()
      %{id: "c1", turn_start: 1, tokens: 0, pending: 0, recall?: false, answered?: false}
  """
  @doc since: "0.1.0", group: "Read"
  @spec outline(t()) :: %{
          id: String.t(),
          turn_start: pos_integer(),
          tokens: non_neg_integer(),
          pending: non_neg_integer(),
          recall?: boolean(),
          answered?: boolean()
        }
  def outline(%__MODULE__{ref: ref}) do
    {id, turn_start, tokens, pending, recall?, answered?} = Native.context_outline(ref)

    %{
      id: id,
      turn_start: turn_start,
      tokens: tokens,
      pending: pending,
      recall?: recall?,
      answered?: answered?
    }
  end

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
  Returns the number of messages in the view, which `AshAgent.Context.to_messages/1` returns, in constant time.

  ## Examples

      iex> AshAgent.Context.new("Hello!", system_prompt: "Be brief.") |> AshAgent.Context.count_messages()
      2
  """
  @doc since: "0.1.0", group: "Read"
  @spec count_messages(t()) :: non_neg_integer()
  def count_messages(%__MODULE__{ref: ref}), do: Native.context_count_messages(ref)

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
  Returns `{first, last}`, the numbers of the iterations of the turn with a user's message that has this text under this name in its
  metadata, or `nil`. Of several such messages, the newest counts. Takes O(messages).

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_assistant_message("Hi.")
      iex> context = AshAgent.Context.add_user_message(context, "Weather?", metadata: %{request: "r1"})
      iex> context = AshAgent.Context.add_assistant_message(context, "Sunny.")
      iex> AshAgent.Context.find_turn(context, :request, "r1")
      {2, 2}
      iex> AshAgent.Context.find_turn(context, :request, "r2")
      nil
  """
  @doc since: "0.1.0", group: "Read"
  @spec find_turn(t(), atom(), String.t()) :: {pos_integer(), pos_integer()} | nil
  def find_turn(%__MODULE__{ref: ref}, name, text) when is_atom(name) and is_binary(text) do
    {:ok, found} = Native.context_find_turn(ref, Atom.to_string(name), text)
    found
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
  def exceeded_max_iterations?(%__MODULE__{} = context, max) when is_integer(max),
    do: Handle.current_iteration!(context) >= max

  @doc """
  Returns the tool calls of the message added last to the current iteration, or `[]`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.extract_tool_calls()
      []
  """
  @doc since: "0.1.0", group: "Read"
  @spec extract_tool_calls(t()) :: [map()]
  def extract_tool_calls(%__MODULE__{ref: ref}),
    do: ref |> Native.context_tool_calls() |> Reply.ok!()

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
    do: ref |> Native.context_pending_tool_calls() |> Reply.ok!()

  @doc """
  Returns the system prompt, or `nil`, without the texts that `AshAgent.Context.View.put_prompt_block/4` adds.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.system_prompt()
      nil
  """
  @doc since: "0.1.0", group: "Read"
  @spec system_prompt(t()) :: content()
  def system_prompt(%__MODULE__{ref: ref}),
    do: ref |> Native.context_system_prompt() |> Reply.ok!()

  @doc """
  Returns the conversation's metadata.

  ## Examples

      iex> AshAgent.Context.new("Hello!", metadata: %{user_id: 7}) |> AshAgent.Context.metadata()
      %{user_id: 7}
  """
  @doc since: "0.1.0", group: "Read"
  @spec metadata(t()) :: map()
  def metadata(%__MODULE__{ref: ref}), do: ref |> Native.context_metadata() |> Reply.ok!()

  @doc """
  Returns the conversation as plain terms: `:id`, `:iterations`, `:current_iteration`, `:metadata`, `:created_at` and
  `:updated_at`, for a fork its `:origin`, see `AshAgent.Context.fork/2`, and for a paused conversation `:asked`, the calls without a result
  that somebody was asked about, as `AshAgent.Context.Calls.asked_tool_calls/1` returns them, and those that were approved. `:late` has late
  results without a place, and which calls are answered elsewhere or are gone, as `dump/2` has them.

  Costs O(n). `create/1` makes a context from it that returns the same map again. The map leaves out what stands
  beside the conversation (views, pins, failures, notes of requests, decisions about calls), the JSON text of arguments that were given as text, and
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
  @doc since: "0.1.0", group: "Read"
  @spec to_map(t()) :: map()
  def to_map(%__MODULE__{ref: ref}), do: ref |> Native.context_to_map() |> Reply.ok!()

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
  @spec fetch(t(), term()) :: {:ok, term()} | :error
  def fetch(%__MODULE__{} = context, :iterations), do: {:ok, iterations(context)}
  def fetch(%__MODULE__{} = context, :metadata), do: {:ok, metadata(context)}

  def fetch(%__MODULE__{ref: ref}, :id), do: {:ok, Native.context_id(ref)}

  def fetch(%__MODULE__{ref: ref}, key) when key in [:origin, :created_at, :updated_at],
    do: Map.fetch(Native.context_summary(ref), key)

  def fetch(%__MODULE__{} = context, key) do
    current = Handle.current_iteration!(context)
    if key == :current_iteration, do: {:ok, current}, else: :error
  end

  @doc false
  @impl Access
  def get_and_update(%__MODULE__{}, key, _fun),
    do: refuse_change!("put #{inspect(key)} into", "update/2 or put_metadata/3")

  @doc false
  @impl Access
  def pop(%__MODULE__{}, key), do: refuse_change!("remove #{inspect(key)} from", "update/2")

  defp refuse_change!(change, functions) do
    Caller.refuse!(
      "cannot #{change} a context: use the functions of AshAgent.Context, such as #{functions}"
    )
  end

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
  def equal?(%__MODULE__{ref: _} = a, %__MODULE__{ref: _} = b),
    do: a.ref |> Native.context_equal(b.ref) |> Reply.ok!()

  @doc """
  Prints the conversation's log, and returns the context.

  Each iteration has a line with its number, its time, and whether models see it. Texts that the view masks are masked, and characters
  that control a terminal or reverse text are replaced by visible ones.

  `inspect(context, custom_options: [messages: true])` returns the same text. Otherwise, inspecting a context never shows its messages.

  ## Options

  #{AshAgent.Options.docs(AshAgent.Context.Printed.options())}
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
    IO.write(device, Printed.text(context, opts))
    context
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
  def rewind(%__MODULE__{ref: ref} = context, opts) do
    number = Options.validate!(opts, :rewind)[:to]
    ref |> Native.context_rewind(number) |> name_iteration(number) |> Reply.put!(context)
  end

  @doc """
  Makes a new conversation with another id that continues from here, and returns it. Costs O(calls of the last message).

  Both conversations share everything up to now and then develop independently. Without a fork, two contexts made from one
  have the same id, and storing both overwrites one with the other.

  `context[:origin]` of a fork is `%{id: id, iteration: number}`: the conversation that it was made from, and that one's
  current iteration at the time. `AshAgent.Context.to_map/1` and `AshAgent.Context.dump/2` include it. A fork of a fork has
  the id of the nearer one, and any other context has `nil`. To fork at an earlier iteration, call `rewind/2` first.

  The fork's `:created_at` and `:updated_at` are the time of the fork. It keeps the metadata, the view and the reports on
  tokens. Pending calls are pending in the fork as well and need a new approval, since an approval is for one run.

  A fork is not `equal?/2` to the original, and is dumped as a whole and by its own deltas: `AshAgent.Context.dump/2` with `:beside` finds
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

    if opts[:id] != nil and fetch(context, :id) == {:ok, opts[:id]} do
      Caller.refuse!(
        "invalid value for option :id: it is the context's own; give the fork another one, or none for a new UUID"
      )
    end

    ref |> Native.context_fork(opts[:id], opts[:at]) |> Reply.put!(context)
  end

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
  def diff(%__MODULE__{ref: _} = a, %__MODULE__{ref: _} = b) do
    common = a.ref |> Native.context_last_common(b.ref) |> Reply.ok!()
    %{last_common: common, a: list_after(a, common), b: list_after(b, common)}
  end

  defp list_after(%__MODULE__{ref: ref} = context, common) do
    first = Native.context_first_iteration(ref)
    last = first + count_iterations(context) - 1

    # The field may have been changed by hand: listing so many iterations would fill the memory.
    if context.current_iteration !== last do
      Caller.refuse!(
        "expected a context whose current_iteration is #{last}, got: #{Check.kind(context.current_iteration)}; " <>
          "use the functions of AshAgent.Context to change contexts"
      )
    end

    for number <- if(common, do: common + 1, else: first)..last//1,
        do: ref |> Native.context_iteration(number) |> Reply.ok!()
  end

  @doc """
  Returns `{:ok, request}` with the message part of a provider's request as a map with string keys, or `{:error, error}`.

  The map has `"system"` and `"messages"` for Anthropic and Bedrock, `"messages"` for OpenAI chat, Ollama and Mistral,
  `"instructions"` and `"input"` for OpenAI Responses, and `"systemInstruction"` and `"contents"` for Gemini; for Anthropic
  also `"container"` once its tools ran in one. It obeys the provider's rules; `request_report/3` lists what had to be
  changed for that. The conversation itself does not change. To send a request, use `encode_request/3`, which is faster.

  The error's reason is `{:pending_tool_calls, ids}` while tool calls wait for their results, `{:unknown_iteration,
  number, first..last}`, or `{:invalid, path, expected}` for a field of yours with a number that no float can hold. Costs O(n).

  ## Options

  #{Options.docs(:request)}

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", system_prompt: "Be brief.")
      iex> AshAgent.Context.request(context, :anthropic)
      {:ok, %{"system" => "Be brief.", "messages" => [%{"role" => "user", "content" => "Hello!"}]}}

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.request!(:gemini)
      %{"contents" => [%{"role" => "user", "parts" => [%{"text" => "Hello!"}]}]}
  """
  @doc since: "0.1.0", group: "Requests"
  @spec request(t(), provider(), keyword()) :: {:ok, map()} | {:error, Error.t()}
  def request(%__MODULE__{ref: ref} = _context, provider, opts \\ []) when is_provider(provider),
    do:
      ref |> Native.context_request(Requests.checked_options(provider, opts)) |> Reply.to_result()

  @doc "Like `request/3`, but returns the request or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Requests"
  @spec request!(t(), provider(), keyword()) :: map()
  def request!(context, provider, opts \\ []),
    do: context |> request(provider, opts) |> Reply.bang!()

  @doc """
  Returns `{:ok, iodata}` with a complete JSON request body, or `{:error, error}`.

  Takes the options of `request/3`, and `:body`: a map with the provider's other fields (model, tools, max_tokens, ...),
  which come before the message part. A field of the message part in it raises `ArgumentError`. Anthropic's `container`, which a
  request names again after the provider's tools ran in it, may be yours: `container: nil` asks for a new one, and one with `skills`
  alone gets the id.

  Each message is encoded once for each provider and set of options, and the encodings of old iterations join into larger
  ones. The iodata is a list of binaries that point to them: about as many as iterations since a multiple of 16, and one for
  each megabyte. Appending never changes the bytes before the appended message (cache breakpoints aside), so that
  providers' prompt caches hit. Where many requests share their options and other fields, `AshAgent.Context.PreparedRequest` checks
  and encodes those once.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, body} = AshAgent.Context.encode_request(context, :openai_chat, body: %{model: "gpt-4o"})
      iex> IO.iodata_to_binary(body)
      ~s({"model":"gpt-4o","messages":[{"role":"user","content":"Hello!"}]})

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.encode_request!(:ollama) |> IO.iodata_to_binary()
      ~s({"messages":[{"role":"user","content":"Hello!"}]})
  """
  @doc since: "0.1.0", group: "Requests"
  @spec encode_request(t(), provider(), keyword()) :: {:ok, iodata()} | {:error, Error.t()}
  def encode_request(%__MODULE__{ref: ref} = _context, provider, opts \\ [])
      when is_provider(provider) do
    opts = Options.validate!(opts, :encode_request)
    PreparedRequest.encode_with(ref, Requests.request_options(provider, opts), opts[:body])
  end

  @doc "Like `encode_request/3`, but returns the iodata or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Requests"
  @spec encode_request!(t(), provider(), keyword()) :: iodata()
  def encode_request!(context, provider, opts \\ []),
    do: context |> encode_request(provider, opts) |> Reply.bang!()

  @doc """
  Returns the changes that `request/3` with the same options makes so that the provider accepts the request.

  Each change is a map with `:change`, `:from` (in the conversation), `:to` (in the request, `nil` if nothing is sent),
  `:iteration` and `:position`; those of the system prompt come first. Changes are `:renamed_id`, `:renamed_tool`,
  `:wrapped_arguments` (arguments that are not a JSON object), `:dropped_blank_text`, `:replaced_bytes` (invalid UTF-8),
  `:dropped_thinking`, `:thinking_to_text`, `:dropped_part`, `:dropped_message`, `:part_to_text`, `:corrected_type` (the bytes of a part are
  of another media type than it says), `:result_to_text` (an object with a key that the provider would misread),
  `:escaped_frame` (a text that looks like a late result), `:number_to_text` (a number that no float can hold), `:moved_part` (an image in a tool result, sent after the results),
  `:moved_call` (a call that is sent later than the model made it),
  `:call_to_function` (a call of a kind that the provider does not know) and `:added_message` (a user message that says
  "Continue." where the provider wants one and there is none).

  A provider refuses one half of a call that it answered itself without the other, such as the result of a web search without
  the search. So if one half is hidden, masked or before `:since`, the other is left out as well, as `:dropped_part`.

  The view's changes are listed as well: `:hidden_iterations` and `:summarized_iterations` (`:from` is the range as text),
  `:cleared_result` and `:shortened_result` (`:from` is the id of the call) and `:masked_text`.

  Raises `AshAgent.Context.Error` as `AshAgent.Context.request!/3` does. Costs O(n).

  ## Examples

      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a.b", name: :now}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a.b", {:ok, "10:00"}}])
      iex> AshAgent.Context.request_report(context, :anthropic) |> hd()
      %{change: :renamed_id, from: "a.b", to: "a_b", iteration: 1, position: 1}
  """
  @doc since: "0.1.0", group: "Requests"
  @spec request_report(t(), provider(), keyword()) :: [map()]
  def request_report(%__MODULE__{ref: ref} = _context, provider, opts \\ [])
      when is_provider(provider),
      do:
        ref
        |> Native.context_request_report(Requests.checked_options(provider, opts))
        |> Reply.ok!()

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
  def to_prompt(%__MODULE__{ref: ref} = _context, opts \\ []) do
    opts = Options.validate!(opts, :to_prompt)
    ref |> Native.context_to_prompt(opts[:mode]) |> Reply.ok!()
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
  @spec validate_for_request(t()) :: :ok | {:error, [obstacle()]}
  def validate_for_request(%__MODULE__{ref: ref}) do
    case ref |> Native.context_unready() |> Reply.ok!() do
      [] -> :ok
      reasons -> {:error, reasons}
    end
  end

  @doc """
  Returns the conversation as a map with string keys that contains only JSON data, to be stored.

  `load/1` makes an equal context from it, also after the map went through JSON text or JSONB. The format is versioned and
  described in [What is in a stored conversation](snapshot-format.html). Costs O(n).

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

  def dump(%__MODULE__{ref: ref}, []), do: ref |> Native.snapshot_dump(0) |> Reply.ok!()

  def dump(%__MODULE__{ref: ref}, opts) do
    case Options.validate!(opts, :dump) do
      [since: number] ->
        ref |> Native.snapshot_dump(number || 0) |> Reply.ok!()

      [beside: %{ref: base}] ->
        ref |> Native.snapshot_dump_beside(base) |> Reply.ok!()

      _ ->
        Caller.refuse!("options :since and :beside exclude each other: give one of them")
    end
  end

  @doc """
  Makes a context from a map that `dump/2` returned, or from text that `to_snapshot/1` returned, and returns `{:ok, context}` or
  `{:error, error}`.

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

      iex> context = AshAgent.Context.new("Hello!")
      iex> {:ok, copy} = AshAgent.Context.load(AshAgent.Context.to_snapshot(context))
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
  @doc since: "0.1.0", group: "Store"
  @spec load(document :: term(), keyword()) :: loaded()
  @spec load(t(), delta :: term(), keyword()) :: loaded()
  def load(document_or_context, delta_or_opts \\ [], opts \\ [])

  def load(%__MODULE__{ref: ref} = context, delta, opts)
      when is_reference(ref) and is_list(opts),
      do: ref |> Native.snapshot_load_delta(delta, Trust.check!(opts)) |> Reply.put(context)

  def load(text, opts, []) when is_binary(text) and is_list(opts),
    do: text |> Native.snapshot_decode(Trust.check!(opts)) |> Reply.put()

  def load(document, opts, []) when is_list(opts),
    do: document |> Native.snapshot_load(Trust.check!(opts)) |> Reply.put()

  @doc "Like `load/3`, but returns the context or raises `AshAgent.Context.Error`."
  @doc since: "0.1.0", group: "Store"
  @spec load!(document :: term(), keyword()) :: t()
  @spec load!(t(), delta :: term(), keyword()) :: t()
  def load!(document_or_context, delta_or_opts \\ [], opts \\ []),
    do: document_or_context |> load(delta_or_opts, opts) |> Reply.bang!()

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
  def to_snapshot(%__MODULE__{ref: ref}), do: ref |> Native.snapshot_encode() |> Reply.ok!()

  @doc """
  Makes a context from a map that `dump/1` or `AshAgent.Context.to_map/1` returned, or from text that `to_snapshot/1` returned. Returns
  `{:ok, context}` or `{:error, error}`; a context is returned as it is.

  Use `load/2` for documents from elsewhere: its options say how far to trust them.

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
  @spec restore(t() | map() | binary()) :: loaded()
  def restore(%__MODULE__{} = context), do: with(:ok <- Handle.check(context), do: {:ok, context})
  def restore(text) when is_binary(text), do: load(text)
  # Documents of dump/1 have a version, maps of to_map/1 do not.
  def restore(%{"version" => _} = document), do: load(document)

  def restore(%{} = attributes) when not is_struct(attributes),
    do: attributes |> Native.context_create(nil) |> Reply.put()

  def restore(%{}), do: {:error, %Error{reason: {:invalid, [], "a context, or a map of one"}}}
end
