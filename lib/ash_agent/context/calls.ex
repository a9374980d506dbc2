defmodule AshAgent.Context.Calls do
  @moduledoc """
  Tool calls: what was decided about them, and how they ended. `AshAgent.Context.pending_tool_calls/1` has those without a result.
  """

  use AshAgent.Arguments

  alias AshAgent.Context
  alias AshAgent.Context.{Error, Native, Options, Reply}

  @typedoc """
  The status of a tool call: first `:pending`, then perhaps `:approved`, and once its slot is filled `:ok`, `:error`,
  `:denied`, `:interrupted`, `:cancelled` or `:unknown` (started, and how it ended is not known). A filled slot is final.
  A call that is answered later is `:waiting` until its result has a place among the messages, see `arrive/4`.
  """
  @type call_status ::
          :pending
          | :approved
          | :denied
          | :ok
          | :error
          | :interrupted
          | :cancelled
          | :unknown
          | :waiting

  @typedoc "A call that waits or waited for a late result, see `late_calls/2`."
  @type late_call :: %{
          required(:id) => String.t(),
          required(:name) => atom() | String.t(),
          required(:arguments) => map() | String.t(),
          required(:iteration) => pos_integer(),
          required(:for) => term(),
          required(:handle) => String.t() | nil,
          required(:deadline) => DateTime.t() | nil,
          optional(:question) => map(),
          required(:state) => :open | :elsewhere | :arrived | :placed,
          optional(:result) => {:ok, term()} | {:error, term()},
          optional(:at) => DateTime.t(),
          optional(:from) => term(),
          optional(:placed) => pos_integer()
        }

  @typedoc "A decision about a tool call, see `tool_call_decision/2`."
  @type decision :: %{
          required(:decision) => :approved | :denied | :answered,
          required(:by) => term(),
          required(:at) => DateTime.t(),
          required(:reason) => term(),
          optional(:arguments) => map(),
          optional(:edited) => map() | String.t()
        }

  @typedoc "The times at which the tool of a call started and ended."
  @type times :: %{started_at: DateTime.t(), ended_at: DateTime.t()}

  @doc """
  Records that somebody is asked to decide about a pending tool call before it runs, and returns the new context.

  `asked_tool_calls/1` lists the call until somebody approves or denies it, or its slot is filled. The record is stored with
  the conversation: a run without an approval function refuses to continue it, see `AshAgent.Runtime.resume/2`. The call stays
  `:pending`.

  An application may change the arguments that a model wrote before they reach a tool, as the `:before_tool` hooks of
  `AshAgent.Runtime` do. Pass the arguments that the call would run with: from then on, `undecided_tool_calls/1` shows
  them, and `approve_tool_call/3` approves them. The call itself stays as the model wrote it, for providers and for
  `AshAgent.Context.get_iteration/2`. Later arguments replace earlier ones; without arguments, these stay as they are.

  Raises `AshAgent.Context.Error` with `{:unknown_tool_call, id, pending}`, or with `{:illegal_status, id, from, :asked}`
  if the call is already approved or has its result.

  ## Options

  #{Options.docs(:ask)}

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete, arguments: %{"path" => "x"}}])
      iex> context = AshAgent.Context.Calls.ask_about_tool_call(context, "a", %{"path" => "/srv/x"})
      iex> AshAgent.Context.Calls.undecided_tool_calls(context)
      [%{id: "a", name: :delete, arguments: %{"path" => "/srv/x"}}]
      iex> AshAgent.Context.pending_tool_calls(context)
      [%{id: "a", name: :delete, arguments: %{"path" => "x"}}]
  """
  @doc since: "0.1.0"
  @spec ask_about_tool_call(Context.t(), String.t(), arguments :: map() | nil, keyword()) ::
          Context.t()
  def ask_about_tool_call(%Context{ref: ref} = context, id, arguments \\ nil, opts \\ [])
      when is_binary(id) and (is_map(arguments) or is_nil(arguments)) do
    opts = Options.validate!(opts, :ask)
    ref |> Native.context_ask(id, arguments, opts[:question], opts[:at]) |> Reply.put!(context)
  end

  @doc """
  Returns the undecided tool calls of the current iteration, each with the arguments that it would run with: those of
  `ask_about_tool_call/4`, or else its own. Show these to the person who decides.

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete}, %{id: "b", name: :list}])
      iex> context |> AshAgent.Context.Calls.approve_tool_call("b") |> AshAgent.Context.Calls.undecided_tool_calls()
      [%{id: "a", name: :delete, arguments: %{}}]

  A call has `edited: true` if a person wrote these arguments, see `approve_tool_call/3`, and has to decide about them once more, and
  `question: true` if it waits for `answer_tool_call/4`. A call that was started, and whose outcome nobody knows, has the number of the
  `attempt` that an approval would start, which is 2 or more.
  """
  @doc since: "0.1.0"
  @spec undecided_tool_calls(Context.t()) :: [map()]
  def undecided_tool_calls(%Context{ref: ref}),
    do: ref |> Native.context_undecided_calls(false) |> Reply.ok!()

  @doc """
  Returns those of the `undecided_tool_calls/1` that somebody was asked about, see `ask_about_tool_call/4`.

  If there are any, the conversation is paused. A call that is undecided and not among them has not come that far, such as
  when the machine stopped right after the model's answer; a run without an approval function executes it, unless such a
  function has decided about another call of the same answer.

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete}, %{id: "b", name: :list}])
      iex> context = AshAgent.Context.Calls.ask_about_tool_call(context, "a")
      iex> AshAgent.Context.Calls.asked_tool_calls(context)
      [%{id: "a", name: :delete, arguments: %{}}]
      iex> context |> AshAgent.Context.Calls.approve_tool_call("a") |> AshAgent.Context.Calls.asked_tool_calls()
      []
  """
  @doc since: "0.1.0"
  @spec asked_tool_calls(Context.t()) :: [map()]
  def asked_tool_calls(%Context{ref: ref}),
    do: ref |> Native.context_undecided_calls(true) |> Reply.ok!()

  @doc """
  Asks once more about all calls that were approved and have no result, and returns the new context.

  Whoever decides then is shown the arguments that were approved. `AshAgent.Context.fork/2` does the same in the fork.

  ## Options

  #{Options.docs(:change)}

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete}])
      iex> context = context |> AshAgent.Context.Calls.approve_tool_call("a") |> AshAgent.Context.Calls.ask_again()
      iex> AshAgent.Context.Calls.asked_tool_calls(context)
      [%{id: "a", name: :delete, arguments: %{}}]
  """
  @doc since: "0.1.0"
  @spec ask_again(Context.t(), keyword()) :: Context.t()
  def ask_again(%Context{ref: ref} = context, opts \\ []),
    do: ref |> Native.context_ask_again(Options.time!(opts)) |> Reply.put!(context)

  @doc """
  Records that a pending tool call may run, and returns the new context.

  The call stays pending until `AshAgent.Context.add_tool_results/2` answers it. `tool_call_decision/2` returns who approved it and when.

  An approval is for the call's name and the arguments that `undecided_tool_calls/1` shows: a digest of both is kept with it, and
  `tool_call_approved?/3` compares it with what is about to run.

  A person who wants the call to run with other arguments passes them as `:edited`, a map, or a text for a tool that takes text. The
  approval is for these; the call stays as the model wrote it, for providers too, and its result tells the model what a person
  changed the arguments to. `AshAgent.Runtime` takes them through the tool's schema, rules and hooks before it runs the call.

  Raises `AshAgent.Context.Error` with `{:unknown_tool_call, id, pending}`, with `{:illegal_status, id, from,
  :approved}` if the call is already approved or has its result, or with `{:other_arguments, id, paths}` if the person has seen
  others: `paths` are the first places that differ, each with its keys and 0-based indexes. The decision about an earlier attempt is
  `{:other_attempt, id, attempt}`, with the one that an approval would start. `:edited` arguments that such a call cannot
  have are `{:invalid, [:edited], expected}`. A question is not approved but answered: `{:is_a_question, id}`.

  ## Options

  #{Options.docs(:approve)}

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete}])
      iex> context |> AshAgent.Context.Calls.approve_tool_call("a", by: "ann") |> AshAgent.Context.Calls.tool_call_status("a")
      :approved
      iex> context = AshAgent.Context.Calls.approve_tool_call(context, "a", by: "ann", edited: %{"path" => "/tmp"})
      iex> context = AshAgent.Context.add_tool_results(context, [{"a", {:ok, "done"}}])
      iex> [_user, _call, %{content: [result]}] = AshAgent.Context.to_messages(context)
      iex> result.content
      ~s(A person changed the arguments of this call to: {"path":"/tmp"}\\n\\ndone)
  """
  @doc since: "0.1.0"
  @spec approve_tool_call(Context.t(), String.t(), keyword()) :: Context.t()
  def approve_tool_call(%Context{ref: ref} = context, id, opts \\ []) when is_binary(id) do
    opts = validate_decision!(ref, id, opts, :approve)

    ref
    |> Native.context_approve(id, opts[:arguments], opts[:edited], opts[:by], opts[:at])
    |> Reply.put!(context)
  end

  @doc """
  Returns whether a tool call is pending and was approved with these arguments.

  Check this before you run an approved call: it is `false` if the arguments, or the call in the stored document, have
  changed since the approval. Approvals stored by a release that kept no digest are for the call's own arguments as they
  are now. Costs O(n) for n calls in the last message.

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete, arguments: %{"path" => "x"}}])
      iex> context = AshAgent.Context.Calls.approve_tool_call(context, "a", by: "ann")
      iex> {AshAgent.Context.Calls.tool_call_approved?(context, "a", %{"path" => "x"}), AshAgent.Context.Calls.tool_call_approved?(context, "a", %{"path" => "/"})}
      {true, false}
  """
  @doc since: "0.1.0"
  @spec tool_call_approved?(Context.t(), String.t(), arguments :: map() | String.t()) ::
          boolean()
  def tool_call_approved?(%Context{ref: ref}, id, arguments)
      when is_binary(id) and (is_map(arguments) or is_binary(arguments)),
      do: ref |> Native.context_is_approved(id, arguments) |> Reply.ok!()

  @doc """
  Denies a pending tool call, and returns the new context.

  The call's result becomes an error that tells the model so, with the reason in words. If no other call is pending, the
  iteration is complete. Raises the errors of `approve_tool_call/3`, also if other arguments were shown.

  ## Options

  #{Options.docs(:decide)}

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete}])
      iex> context = AshAgent.Context.Calls.deny_tool_call(context, "a", "not on Fridays", by: "ann")
      iex> AshAgent.Context.Calls.tool_call_status(context, "a")
      :denied
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: :delete, arguments: %{}, result: {:error, "denied: not on Fridays"}}]
  """
  @doc since: "0.1.0"
  @spec deny_tool_call(Context.t(), String.t(), term(), keyword()) :: Context.t()
  def deny_tool_call(%Context{ref: ref} = context, id, reason \\ nil, opts \\ [])
      when is_binary(id) do
    opts = validate_decision!(ref, id, opts, :decide)

    ref
    |> Native.context_deny(id, opts[:arguments], reason, opts[:by], opts[:at])
    |> Reply.put!(context)
  end

  @doc """
  Answers a call that is a question to a person, and returns the new context.

  The answer is the call's result. It has to be one of the `choices` in the arguments that
  `undecided_tool_calls/1` shows, if they have any, or fit the JSON schema in `form`, by which texts of a page become numbers and
  booleans; otherwise it is a text. No other call takes an answer, so nobody can write what a tool would have returned.

  If these arguments have `"to_tool" => true` and the call's as `"arguments"`, the tool itself has asked in the middle of its call. Then the call is
  approved with these and runs once more, and the answer is the `:reason` of `tool_call_decision/2`.

  Raises `AshAgent.Context.Error` with `{:not_a_question, id}`, with `{:invalid, [:answer], expected}` for another answer, and with the
  errors of `deny_tool_call/4`, also if other arguments were shown. `AshAgent.Runtime.AskUser` makes a tool for such calls.

  ## Options

  #{Options.docs(:decide)}

  ## Examples

      iex> context = AshAgent.Context.new("Book") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :ask_user, arguments: %{"question" => "When?"}}])
      iex> context = AshAgent.Context.Calls.ask_about_tool_call(context, "a", nil, question: true)
      iex> context = AshAgent.Context.Calls.answer_tool_call(context, "a", "On Friday", by: "ann")
      iex> {AshAgent.Context.Calls.tool_call_decision(context, "a").decision, AshAgent.Context.Calls.tool_call_status(context, "a")}
      {:answered, :ok}
      iex> AshAgent.Context.get_iteration(context, 1).tool_calls
      [%{id: "a", name: :ask_user, arguments: %{"question" => "When?"}, result: {:ok, "On Friday"}}]
  """
  @doc since: "0.1.0"
  @spec answer_tool_call(Context.t(), String.t(), String.t() | map(), keyword()) :: Context.t()
  def answer_tool_call(%Context{ref: ref} = context, id, answer, opts \\ [])
      when is_binary(id) and (is_binary(answer) or is_map(answer)) do
    opts = validate_decision!(ref, id, opts, :decide)

    ref
    |> Native.context_answer(id, opts[:arguments], answer, opts[:by], opts[:at])
    |> Reply.put!(context)
  end

  defp validate_decision!(ref, id, opts, name) do
    opts = Options.validate!(opts, name)
    if opts[:attempt], do: ref |> Native.context_check_attempt(id, opts[:attempt]) |> Reply.ok!()
    opts
  end

  @doc """
  Returns the status of the newest tool call with this id, or `nil`. Costs O(n) for old calls.

  ## Examples

      iex> AshAgent.Context.new("Hi") |> AshAgent.Context.Calls.tool_call_status("a")
      nil
  """
  @doc since: "0.1.0"
  @spec tool_call_status(Context.t(), String.t()) :: call_status() | nil
  def tool_call_status(%Context{ref: ref}, id) when is_binary(id),
    do: ref |> Native.context_call_status(id) |> Reply.ok!()

  @doc """
  Returns the decision about the newest tool call with this id: who made it and when. Returns `nil` if there is none. It
  has `:arguments` if it was about other arguments than the call's own, see `ask_about_tool_call/4`, and `:edited` if the person who
  approved wrote others.

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete}])
      iex> context = AshAgent.Context.Calls.deny_tool_call(context, "a", :friday, by: "ann", at: ~U[2026-01-02 10:00:00Z])
      iex> AshAgent.Context.Calls.tool_call_decision(context, "a")
      %{decision: :denied, by: "ann", at: ~U[2026-01-02 10:00:00.000000Z], reason: :friday}
  """
  @doc since: "0.1.0"
  @spec tool_call_decision(Context.t(), String.t()) :: decision() | nil
  def tool_call_decision(%Context{ref: ref}, id) when is_binary(id),
    do: ref |> Native.context_call_decision(id) |> Reply.ok!()

  @doc """
  Takes a late result for a call that waits, and returns `{:ok, context}`.

  A call waits if its result in `AshAgent.Context.add_tool_results/3` was `{:waiting, %{for: term, handle: text, deadline: time}}`. With `:question`, a
  map of what may be answered beside the call's arguments, it is a question to a person. The
  iteration then completes as with any result, and the conversation goes on: requests show a fixed placeholder in the slot, for ever.
  A question to a person does not wait so: `{:is_a_question, id}`. Name the call by its id, or with `{:handle, handle}`. A model may use an id again, and after a rewind it does: the handle names
  this start of the call, so give each start its own.

  `result` is `{:ok, term}`, `{:error, reason}`, `{:unknown, reason}` or, to call it off, `{:cancelled, reason}`. While other calls of
  the same message are pending, it fills the slot as any result does. Later it is kept until `place_arrivals/2` gives it a place
  behind all messages. `AshAgent.Context.add_tool_results/3` and `AshAgent.Context.add_user_message/3` do that as well, the latter in
  front of the user's message. The same result again changes nothing.

  What the model reads is a message of its own that names the call. Texts that look like it are escaped in results and in users'
  messages, so no tool can make one. A call of OpenAI Responses with `async: true` gets an output there instead, and no placeholder.

  Returns `{:error, %AshAgent.Context.Error{}}` with `{:late_tool_result, call, why}` if the result is not taken:

    * `:answered` - the call has another result;
    * `:cancelled` - it was called off;
    * `:denied` - a person denied it;
    * `:pending` - it has no result and does not wait: `AshAgent.Context.add_tool_results/3` takes the result;
    * `:elsewhere` - it waits in the conversation that this one was forked from;
    * `:rewound` - the conversation was rewound to before it;
    * `:unknown` - no call of this name waited here;
    * `:ambiguous` - several calls with this id wait: use the handle.

  ## Options

  #{Options.docs(:arrive)}

  ## Examples

      iex> alias AshAgent.Context
      iex> context = Context.new("Build it") |> Context.add_assistant_message(nil, [%{id: "a", name: :build}])
      iex> context = Context.add_tool_results(context, [{"a", {:waiting, %{for: "ci", handle: "build 7"}}}])
      iex> context = Context.add_assistant_message(context, "I started the build.")
      iex> {:ok, context} = Context.Calls.arrive(context, {:handle, "build 7"}, {:ok, "green"}, from: "ci")
      iex> context = Context.Calls.place_arrivals(context)
      iex> [%{content: [%{tool_use_id: "a", content: "green"}], arrival: %{from: "ci", iteration: 1}}] = Context.get_iteration_messages(context, 3)
      iex> {:error, error} = Context.Calls.arrive(context, "a", {:ok, "red"})
      iex> error.reason
      {:late_tool_result, "a", :answered}
  """
  @doc since: "0.1.0"
  @spec arrive(Context.t(), String.t() | {:handle, String.t()}, term(), keyword()) ::
          {:ok, Context.t()} | {:error, Error.t()}
  def arrive(context, call, result, opts \\ [])

  def arrive(%Context{} = context, {:handle, handle}, result, opts) when is_binary(handle),
    do: arrive(context, true, handle, result, opts)

  def arrive(%Context{} = context, id, result, opts) when is_binary(id),
    do: arrive(context, false, id, result, opts)

  defp arrive(%Context{ref: ref} = context, handle?, name, result, opts) do
    opts = Options.validate!(opts, :arrive)

    ref
    |> Native.context_arrive(handle?, name, result, opts[:from], opts[:at], opts[:awaited_by])
    |> Reply.put_at(context)
  end

  @doc """
  Gives the late results that have arrived a place behind all messages, and returns the new context.

  Call it before a request. Do not call it while an answer is under way: that was made without them, so they belong behind it. They
  open an iteration where a user's message would, but begin no turn. The context stays as it is if there are none.

  Raises `AshAgent.Context.Error` with `{:pending_tool_calls, ids}` while calls are pending. `arrive/4` has an example.

  ## Options

  #{Options.docs(:change)}
  """
  @doc since: "0.1.0"
  @spec place_arrivals(Context.t(), keyword()) :: Context.t()
  def place_arrivals(%Context{ref: ref} = context, opts \\ []),
    do: ref |> Native.context_place_arrivals(Options.time!(opts)) |> Reply.put!(context)

  @doc """
  Returns the calls that wait or waited for a late result, oldest first.

  Each has what it waits for, its `:iteration` and its `:state`: `:open`, `:elsewhere` (it waits in the conversation that this one was
  forked from), `:arrived` (its result has no place yet, see `place_arrivals/2`) or `:placed`. If there is a result, `:at` and
  `:from` say when it arrived and from whom, and `:placed` is the iteration where it stands. With a state, only those are returned, and
  with a list of handles, only those of these handles. Calls that are `:open` or have these handles are found without looking at others.

  ## Examples

      iex> context = AshAgent.Context.new("Build it") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :build}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a", {:waiting, %{for: "ci"}}}])
      iex> AshAgent.Context.Calls.late_calls(context, :open)
      [%{id: "a", name: :build, arguments: %{}, iteration: 1, for: "ci", handle: nil, deadline: nil, state: :open}]
      iex> context |> AshAgent.Context.fork() |> AshAgent.Context.Calls.late_calls(:open)
      []
  """
  @doc since: "0.1.0"
  @spec late_calls(Context.t(), :open | :elsewhere | :arrived | :placed | [String.t()] | nil) ::
          [late_call()]
  def late_calls(context, which \\ nil)

  def late_calls(%Context{ref: ref}, handles) when is_list(handles),
    do: ref |> Native.context_find_late_calls(handles) |> Reply.ok!()

  def late_calls(%Context{ref: ref}, state)
      when state in [nil, :open, :elsewhere, :arrived, :placed],
      do: ref |> Native.context_late_calls(state) |> Reply.ok!()

  @doc """
  Returns whether a call waits here and has no result, or with `:ever` whether one waits or did. Costs the same however many do.

  ## Examples

      iex> context = AshAgent.Context.new("Build it") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :build}])
      iex> context = AshAgent.Context.add_tool_results(context, [{"a", {:waiting, %{for: "ci"}}}])
      iex> {AshAgent.Context.Calls.waits?(context), AshAgent.Context.Calls.waits?(AshAgent.Context.fork(context)), AshAgent.Context.Calls.waits?(AshAgent.Context.fork(context), :ever)}
      {true, false, true}
  """
  @doc since: "0.1.0"
  @spec waits?(Context.t(), :now | :ever) :: boolean()
  def waits?(%Context{ref: ref}, since \\ :now) when since in [:now, :ever] do
    {now?, ever?} = Native.context_has_late(ref)
    if since == :now, do: now?, else: ever?
  end

  @doc """
  Leaves the calls that wait to another context of the same conversation, and returns the new context.

  Their results are refused here, as `:elsewhere`. `AshAgent.Context.fork/2` and `AshAgent.ChatContext.branch/3` do this, so that one
  payment is answered once.

  ## Options

  #{Options.docs(:change)}
  """
  @doc since: "0.1.0"
  @spec leave_late_calls(Context.t(), keyword()) :: Context.t()
  def leave_late_calls(%Context{ref: ref} = context, opts \\ []),
    do: ref |> Native.context_leave_waiting(Options.time!(opts)) |> Reply.put!(context)

  @doc """
  Returns when the tool of a call started and ended, or `nil` if that is not known.

  If the id occurs in several turns, it is the newest call. Costs as much as `tool_call_status/2`.

  ## Examples

      iex> times = %{started_at: ~U[2026-01-01 10:00:00.000000Z], ended_at: ~U[2026-01-01 10:00:02.000000Z]}
      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :wait}])
      iex> context = AshAgent.Context.add_tool_results(context, [Map.merge(%{id: "a", result: {:ok, nil}}, times)])
      iex> AshAgent.Context.Calls.tool_call_times(context, "a") == times
      true
  """
  @doc since: "0.1.0"
  @spec tool_call_times(Context.t(), String.t()) :: times() | nil
  def tool_call_times(%Context{ref: ref}, id) when is_binary(id),
    do: ref |> Native.context_call_times(id) |> Reply.ok!()
end
