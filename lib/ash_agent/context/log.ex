defmodule AshAgent.Context.Log do
  @moduledoc """
  The log of a conversation: everything that was said, with its system prompt and metadata, and how it is forked and compared.

  Call these as functions of `AshAgent.Context`, which checks their arguments. Here they take anything with the context's `:ref`.
  Models see a view of the log, see `AshAgent.Context.View`.

  A text may have invalid UTF-8: users' input and tools' output should not be lost. It is kept byte by byte, in memory and in storage, and
  comes back as given. Models read `U+FFFD` instead of the invalid bytes, since providers refuse them, and
  `AshAgent.Context.request_report/3` lists them as `:replaced_bytes`. Times are in UTC with microseconds, for the years 0 to 9999.
  Integers of more than 4,300 digits are written to JSON as hexadecimal text.
  """

  alias AshAgent.Context.{Handle, Native, Options, Printed, Reply}
  alias AshAgent.Options, as: Check

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
  name may be left out. The guide on requests describes how to answer each kind.
  """
  @type tool_call :: %{required(:name) => atom() | binary(), optional(atom()) => term()}

  @typedoc """
  The result of a tool call. `:started_at` and `:ended_at` are the times of the tool, each a `DateTime` or microseconds since 1970, see
  `AshAgent.Context.tool_call_times/2`. `:error_type` names the kind of an error for those who look, such as an exception's module; models do not
  read it.

  `{:ok, term}` with any term. A list of text, image, file and provider parts is shown to the model as those parts. Otherwise
  the model reads a binary as it is, anything else as JSON, the reason of an error in words, and "(no output)" for an empty result.
  `{:unknown, reason}` is an error of a call that was started and whose outcome is not known: `AshAgent.Context.tool_call_status/2` returns
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

  @doc """
  Returns the messages of the view, oldest first, beginning with the system prompt.

  The view is the whole log unless something is hidden, summarised, cleared, shortened or masked, see `AshAgent.Context.view/1`. Costs O(n).

  ## Options

  #{Options.docs(:to_messages)}

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.to_messages()
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0"
  @spec to_messages(Reply.handle(), keyword()) :: [message()]
  def to_messages(%{ref: ref} = _context, opts \\ []) do
    opts = Options.validate!(opts, :to_messages)
    ref |> Native.context_to_messages(opts[:view] == :log) |> Reply.ok!()
  end

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
  @doc since: "0.1.0"
  @spec get_iteration(Reply.handle(), integer()) :: iteration() | nil
  def get_iteration(%{ref: ref} = _context, number),
    do: ref |> Native.context_iteration(number) |> Reply.ok!()

  @doc """
  Returns the messages of the iteration with this number, or `[]`.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.get_iteration_messages(1)
      [%{role: :user, content: "Hello!"}]
  """
  @doc since: "0.1.0"
  @spec get_iteration_messages(Reply.handle(), integer()) :: [message()]
  def get_iteration_messages(%{ref: ref} = _context, number),
    do: ref |> Native.context_iteration_messages(number) |> Reply.ok!()

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
  @doc since: "0.1.0"
  @spec exceeded_max_iterations?(Reply.handle(), integer()) :: boolean()
  def exceeded_max_iterations?(context, max), do: Handle.current_iteration!(context) >= max

  @doc """
  Returns all iterations, oldest first.

  Costs O(n). A context is also an `Enumerable` that yields its iterations one by one.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.iterations() |> Enum.map(& &1.number)
      [1]
  """
  @doc since: "0.1.0"
  @spec iterations(Reply.handle()) :: [iteration()]
  def iterations(%{ref: ref} = _context), do: ref |> Native.context_iterations() |> Reply.ok!()

  @doc """
  Returns the number of iterations, in constant time.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.count_iterations()
      1
  """
  @doc since: "0.1.0"
  @spec count_iterations(Reply.handle()) :: pos_integer()
  def count_iterations(%{ref: ref} = _context), do: Native.context_count_iterations(ref)

  @doc """
  Returns the number of the iteration that began the current turn, which is the one with the last user message. Takes
  constant time.

  ## Examples

      iex> context = AshAgent.Context.new("Weather?") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :weather}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a", {:ok, "sunny"}}])
      iex> {context.current_iteration, AshAgent.Context.turn_start(context)}
      {2, 1}
  """
  @doc since: "0.1.0"
  @spec turn_start(Reply.handle()) :: pos_integer()
  def turn_start(%{ref: ref} = _context), do: Native.context_turn(ref)

  @doc """
  Returns `{first, last}`, the numbers of the iterations of the turn with a user's message that has this text under this name in its
  metadata, or `nil`. Of several such messages, the newest counts. Takes O(messages).

  Call it here: `AshAgent.Context` has no function of this name.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.add_assistant_message("Hi.")
      iex> context = AshAgent.Context.add_user_message(context, "Weather?", metadata: %{request: "r1"})
      iex> context = AshAgent.Context.add_assistant_message(context, "Sunny.")
      iex> AshAgent.Context.Log.find_turn(context, :request, "r1")
      {2, 2}
      iex> AshAgent.Context.Log.find_turn(context, :request, "r2")
      nil
  """
  @doc since: "0.1.0"
  @spec find_turn(Reply.handle(), atom(), String.t()) :: {pos_integer(), pos_integer()} | nil
  def find_turn(%{ref: ref} = _context, name, text) when is_atom(name) and is_binary(text) do
    {:ok, found} = Native.context_find_turn(ref, Atom.to_string(name), text)
    found
  end

  @doc """
  Returns what a run has to know before it begins, in one call.

  `:turn_start` is the number of the iteration that began the turn, `:tokens` how many tokens were reported, `:pending` how many calls
  wait for a result, and `:recall?` what `AshAgent.Context.recall?/1` returns.

  ## Examples

      iex> "Hello!" |> AshAgent.Context.new(id: "c1") |> AshAgent.Context.Log.outline()
      %{id: "c1", turn_start: 1, tokens: 0, pending: 0, recall?: false}
  """
  @doc since: "0.1.0"
  @spec outline(Reply.handle()) :: %{
          id: String.t(),
          turn_start: pos_integer(),
          tokens: non_neg_integer(),
          pending: non_neg_integer(),
          recall?: boolean()
        }
  def outline(%{ref: ref} = _context) do
    {id, turn_start, tokens, pending, recall?} = Native.context_outline(ref)
    %{id: id, turn_start: turn_start, tokens: tokens, pending: pending, recall?: recall?}
  end

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
  @doc since: "0.1.0"
  @spec fetch_message(Reply.handle(), {iteration :: integer(), position :: integer()}) ::
          {:ok, message()} | :error
  def fetch_message(%{ref: ref} = _context, {iteration, position}) do
    case ref |> Native.context_message(iteration, position) |> Reply.ok!() do
      nil -> :error
      message -> {:ok, message}
    end
  end

  @doc """
  Fetches `:iterations`, `:current_iteration`, `:id`, `:metadata`, `:origin`, `:created_at` or `:updated_at`, so that
  `context[:iterations]` works.

  ## Examples

      iex> AshAgent.Context.new("Hello!")[:current_iteration]
      1
      iex> AshAgent.Context.new("Hello!")[:nothing]
      nil
  """
  @doc since: "0.1.0"
  @spec fetch(Reply.handle(), term()) :: {:ok, term()} | :error
  def fetch(context, :iterations), do: {:ok, iterations(context)}
  def fetch(context, :metadata), do: {:ok, metadata(context)}

  def fetch(%{ref: ref} = _context, :id), do: {:ok, Native.context_id(ref)}

  def fetch(%{ref: ref} = _context, key) when key in [:origin, :created_at, :updated_at],
    do: Map.fetch(Native.context_summary(ref), key)

  def fetch(context, key) do
    current = Handle.current_iteration!(context)
    if key == :current_iteration, do: {:ok, current}, else: :error
  end

  @doc false
  # Access can read a context but not change it.
  @spec refuse_change!(String.t(), String.t()) :: no_return()
  def refuse_change!(change, functions) do
    AshAgent.Caller.refuse!(
      "cannot #{change} a context: use the functions of AshAgent.Context, such as #{functions}"
    )
  end

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
  @doc since: "0.1.0"
  @spec print(context, keyword()) :: context when context: Reply.handle()
  def print(context, opts \\ []) do
    {device, opts} = Keyword.pop(opts, :device, :stdio)
    IO.write(device, Printed.text(context, opts))
    context
  end

  @doc """
  Replaces the system prompt with a string or text parts, and returns the new context. `nil` removes it.

  Takes the option `:at` as `put_metadata/4` does.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!", system_prompt: "Be brief.")
      iex> context |> AshAgent.Context.put_system_prompt("Be kind.") |> AshAgent.Context.system_prompt()
      "Be kind."
  """
  @doc since: "0.1.0"
  @spec put_system_prompt(context, content(), keyword()) :: context
        when context: Reply.handle()
  def put_system_prompt(%{ref: ref} = context, prompt, opts \\ []),
    do:
      ref |> Native.context_put_system_prompt(prompt, Options.time!(opts)) |> Reply.put!(context)

  @doc """
  Returns the system prompt, or `nil`, without the texts that `AshAgent.Context.put_prompt_block/4` adds.

  ## Examples

      iex> AshAgent.Context.new("Hello!") |> AshAgent.Context.system_prompt()
      nil
  """
  @doc since: "0.1.0"
  @spec system_prompt(Reply.handle()) :: content()
  def system_prompt(%{ref: ref} = _context),
    do: ref |> Native.context_system_prompt() |> Reply.ok!()

  @doc """
  Puts a value into the conversation's metadata and returns the new context.

  Takes the option `:at`, the time of the change, a `DateTime`; defaults to now.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!") |> AshAgent.Context.put_metadata(:user_id, 7)
      iex> AshAgent.Context.metadata(context)
      %{user_id: 7}
  """
  @doc since: "0.1.0"
  @spec put_metadata(context, atom() | binary(), term(), keyword()) :: context
        when context: Reply.handle()
  def put_metadata(%{ref: ref} = context, key, value, opts \\ []),
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
  @doc since: "0.1.0"
  @spec put_iteration_metadata(context, integer(), atom() | binary(), term(), keyword()) ::
          context
        when context: Reply.handle()
  def put_iteration_metadata(%{ref: ref} = context, number, key, value, opts \\ []) do
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
  Returns the conversation's metadata.

  ## Examples

      iex> AshAgent.Context.new("Hello!", metadata: %{user_id: 7}) |> AshAgent.Context.metadata()
      %{user_id: 7}
  """
  @doc since: "0.1.0"
  @spec metadata(Reply.handle()) :: map()
  def metadata(%{ref: ref} = _context), do: ref |> Native.context_metadata() |> Reply.ok!()

  @doc """
  Returns whether two contexts have equal contents, including ids and times. `==` compares handles instead.

  Costs O(n) at most; shared parts are not compared.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> AshAgent.Context.equal?(context, AshAgent.Context.put_metadata(context, :seen, true))
      false
  """
  @doc since: "0.1.0"
  @spec equal?(Reply.handle(), Reply.handle()) :: boolean()
  def equal?(%{ref: a} = _context, %{ref: b} = _other),
    do: a |> Native.context_equal(b) |> Reply.ok!()

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
  @doc since: "0.1.0"
  @spec diff(Reply.handle(), Reply.handle()) ::
          %{last_common: pos_integer() | nil, a: [iteration()], b: [iteration()]}
  def diff(a, b) do
    common = a.ref |> Native.context_last_common(b.ref) |> Reply.ok!()
    %{last_common: common, a: list_after(a, common), b: list_after(b, common)}
  end

  defp list_after(%{ref: ref} = context, common) do
    first = Native.context_first_iteration(ref)
    last = first + count_iterations(context) - 1

    # The field may have been changed by hand: listing so many iterations would fill the memory.
    if context.current_iteration !== last do
      AshAgent.Caller.refuse!(
        "expected a context whose current_iteration is #{last}, got: #{Check.kind(context.current_iteration)}; " <>
          "use the functions of AshAgent.Context to change contexts"
      )
    end

    for number <- if(common, do: common + 1, else: first)..last//1,
        do: ref |> Native.context_iteration(number) |> Reply.ok!()
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
  @doc since: "0.1.0"
  @spec rewind(context, to: integer()) :: context when context: Reply.handle()
  def rewind(%{ref: ref} = context, opts) do
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
  @doc since: "0.1.0"
  @spec fork(context, keyword()) :: context when context: Reply.handle()
  def fork(%{ref: ref} = context, opts \\ []) do
    opts = Options.validate!(opts, :fork)

    if opts[:id] != nil and fetch(context, :id) == {:ok, opts[:id]} do
      AshAgent.Caller.refuse!(
        "invalid value for option :id: it is the context's own; give the fork another one, or none for a new UUID"
      )
    end

    ref |> Native.context_fork(opts[:id], opts[:at]) |> Reply.put!(context)
  end
end
