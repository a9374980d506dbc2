defmodule AshAgent.Runtime.Error do
  @moduledoc """
  Why a run ended without an answer, and the context as far as it came.

  `context` is valid and can be continued: with `AshAgent.Context.add_user_message/2`, or with `AshAgent.Runtime.run/2` again. If an
  answer broke off, it is the last message, with `state: :interrupted`, and none of its calls is pending.

    * `reason` - to match on, see `t:reason/0`
    * `context` - the conversation so far
    * `usage` - the sum of the usage that the models of this run reported
    * `cost` - what the run's answers cost with those of its sub-agents, in 10^-12 US dollars; `nil` without `:prices`
    * `iterations` - how often the model answered in this run
    * `sub_agents` - the conversations of the sub-agents of this run, at all depths, such as for the option `:children` of
      `AshAgent.Trace.to_html/2`; a session's callers on other nodes get none
    * `kept` - in a run with a store, the conversation as it was written last; otherwise `nil`. `context` may have more
    * `stored` - of a session with a store: whether the message that was sent is in the store, `true`, `false` or `:unknown`, when it
      may be. Send it again with the same `:key` of `AshAgent.Session.prompt/3`. Otherwise `nil`
  """

  alias AshAgent.Context

  @typedoc """
    * `{:max_iterations_exceeded, max}` - the turn has used all its iterations
    * `{:max_calls_exceeded, max}` - the run and its sub-agents have made that many model calls
    * `{:max_total_tokens_exceeded, max}` - the models of the run, sub-agents included, have reported that many tokens
    * `{:max_cost_exceeded, max}` - the turn, sub-agents included, has cost that many 10^-12 US dollars, or would with its next request
    * `{:no_price, model}` - with `:max_cost`, a model without a price; `nil` is one that does not tell its name
    * `:unknown_cost` - with `:max_cost`, a model did not report tokens or has no price, so the run cannot go on
    * `{:timeout, milliseconds}` - the run took longer than `:timeout`; of calls that ran nobody knows the outcome, and those that had not begun
      are interrupted
    * `{:llm_timeout, milliseconds}` - one answer of the model took longer than `:llm_timeout`
    * `{:llm_error, term}` - the model returned `{:error, term}`, or a response that was interrupted (`:interrupted`)
    * `{:llm_exception, kind, term}` - the model function raised (`:error` with the exception), threw or exited
    * `{:tools_exception, kind, term}` - the function of `:tools` raised, threw or exited; the model was not asked
    * `{:invalid_answer, term}` - the model did not return an answer; the term is an exception or a string
    * `{:view_error, error}` - an enhancer of the option `:view` failed, an `AshAgent.Context.Error`; the model was not asked
    * `{:on_change_error, term}` - `:on_change` returned `{:error, term}`; it has not got this context
    * `{:store_error, reason}` - the run's store did not take a write: `:stale`, `{:owned, owner}` or `:not_found`, see
      `t:AshAgent.Store.refusal/0`; an `AshAgent.Store.Error`; or `{:started, ids}`, when another run has started these calls.
      Nothing was started after that. Calls that have no result are pending
    * `{:invalid_output, error}` - the answer is not of the type of `:output`, an `AshAgent.Output.Error` with the answer as far as it could
      be read, also after `:max_retries` further attempts of the turn
    * `{:output_cut, error}` - the model reached its token limit before the typed answer was complete; the error has its `value` so far
    * `{:refused, words}` - the model refused to give the typed answer, in its own words
    * `{:missing_option, :output}` - the turn was asked for a typed answer, and there is no `:output`; nothing was run
    * `{:missing_option, :approval}` - the conversation is paused for decisions, and there is no `:approval`; nothing was run
    * `{:missing_option, :runtime_context}` - the turn was asked with a `:runtime_context`, which is not stored, was not given again, and was
      not found by `:restore_context`; nothing was run
    * `{:max_resumes_exceeded, count}` - of the end of a turn that is `:parked`: so many sessions in a row have gone on with it and
      ended before they could store anything
    * `:cancelled` - `AshAgent.Session.cancel/1` was called
    * `:dropped` - the message waited when `AshAgent.Session.cancel/1` was called, and is not in the conversation
    * `:parked` - `AshAgent.Session.pause/1` was called: the turn goes on when somebody resumes it
    * `:drained` - the session's node is being drained. Its last step is stored, and another session goes on with the turn
    * `{:exit, term}` - the process of the run was killed
  """
  @type reason ::
          {:max_iterations_exceeded, pos_integer()}
          | {:max_calls_exceeded, pos_integer()}
          | {:max_total_tokens_exceeded, pos_integer()}
          | {:max_cost_exceeded, pos_integer()}
          | {:no_price, String.t() | nil}
          | :unknown_cost
          | {:timeout, pos_integer()}
          | {:llm_timeout, pos_integer()}
          | {:llm_error, term()}
          | {:llm_exception, :error | :exit | :throw, term()}
          | {:tools_exception, :error | :exit | :throw, term()}
          | {:invalid_answer, Exception.t() | String.t()}
          | {:view_error, Context.Error.t()}
          | {:on_change_error, term()}
          | {:store_error,
             AshAgent.Store.refusal() | AshAgent.Store.Error.t() | {:started, [String.t()]}}
          | {:missing_option, :approval | :output | :runtime_context}
          | {:invalid_output, AshAgent.Output.Error.t()}
          | {:output_cut, AshAgent.Output.Error.t()}
          | {:refused, String.t()}
          | {:max_resumes_exceeded, pos_integer()}
          | :cancelled
          | :dropped
          | :parked
          | :drained
          | {:exit, term()}

  @type t :: %__MODULE__{
          reason: reason(),
          context: Context.t(),
          usage: map(),
          cost: non_neg_integer() | nil,
          iterations: non_neg_integer(),
          sub_agents: [Context.t()],
          kept: AshAgent.Store.kept() | nil,
          stored: boolean() | :unknown | nil
        }

  @enforce_keys [:reason, :context]
  defexception @enforce_keys ++
                 [:cost, :kept, :stored, usage: %{}, iterations: 0, sub_agents: []]

  @stored %{
    true => ". The message is stored: resume instead of sending it again",
    false => ". The message is not stored: send it again",
    unknown: ". The message may be stored: with a :key, sending it again is safe",
    nil: ""
  }

  @impl true
  def message(%{reason: reason})
      when reason in [:cancelled, :dropped, {:store_error, :not_found}],
      do: describe(reason)

  def message(%{reason: reason, stored: stored}),
    do: describe(reason) <> Map.fetch!(@stored, stored)

  defp describe({:max_iterations_exceeded, max}) do
    "the model was not done after #{max} iterations of this turn. " <>
      "Add a user message, or run again with a greater :max_iterations"
  end

  defp describe({:max_calls_exceeded, max}) do
    "the run and its sub-agents have made #{max} model calls. " <>
      "Run again to continue, or pass a greater :max_calls"
  end

  defp describe({:max_total_tokens_exceeded, max}) do
    "the models of the run and its sub-agents have reported #{max} tokens or more. " <>
      "Run again to continue, or pass a greater :max_total_tokens"
  end

  defp describe({:max_cost_exceeded, max}) do
    "the turn has cost #{max} * 10^-12 US dollars or more, sub-agents included, or would with its next request: its limit is " <>
      "$#{dollars(max)}. Add a user message, or run again with a greater :max_cost"
  end

  defp describe({:no_price, _model} = reason),
    do: "the run has a :max_cost, but " <> Context.Error.message(%Context.Error{reason: reason})

  defp describe(:unknown_cost) do
    "the run has a :max_cost, but a model did not report its tokens, or named itself as a model without a price. " <>
      "Add the price, or run again without :max_cost"
  end

  defp describe({:timeout, timeout}),
    do: "the run took longer than #{timeout} ms; run again to continue, or pass a longer :timeout"

  defp describe({:llm_timeout, timeout}),
    do:
      "the model did not answer within #{timeout} ms; run again to continue, or pass a longer :llm_timeout"

  defp describe({:llm_error, error}) when is_exception(error),
    do: "the model failed: " <> Exception.message(error)

  defp describe({:llm_error, reason}), do: "the model failed: " <> short(reason)

  defp describe({:llm_exception, :error, error}) when is_exception(error),
    do: "the model function raised #{inspect(error.__struct__)}: " <> Exception.message(error)

  defp describe({:llm_exception, :throw, value}), do: "the model function threw " <> short(value)

  defp describe({:llm_exception, _kind, reason}),
    do: "the model function exited with " <> short(reason)

  defp describe({:tools_exception, :error, error}) when is_exception(error),
    do: "the function of :tools raised #{inspect(error.__struct__)}: " <> Exception.message(error)

  defp describe({:tools_exception, kind, _reason}),
    do: "the function of :tools failed (#{kind}), so the model was not asked"

  defp describe({:invalid_answer, error}) when is_exception(error),
    do: "the model's answer cannot be stored: " <> Exception.message(error)

  defp describe({:invalid_answer, words}), do: "the model's answer cannot be stored: " <> words

  defp describe({:view_error, error}),
    do: "the view could not be made, so the model was not asked: " <> Exception.message(error)

  defp describe({:on_change_error, reason}) do
    "the conversation could not be stored: :on_change returned the error " <>
      short(reason) <>
      ". Store the error's context, or continue from the stored conversation"
  end

  defp describe({:store_error, {:owned, owner}}) do
    "#{inspect(owner)} has claimed the conversation, so this run ended. Go on where the owner is, or claim it " <>
      "when the owner has released it"
  end

  defp describe({:store_error, :stale}) do
    "the stored conversation was changed by somebody else, so this run ended. Fetch it again, and run from there"
  end

  defp describe({:store_error, :not_found}) do
    "the conversation was deleted from the store, with all of its messages, so this run ended. Create it again to go on"
  end

  defp describe({:store_error, {:started, ids}}) do
    "another run has started the calls #{Enum.map_join(ids, ", ", &inspect/1)}, so this one ended. " <>
      "Fetch the conversation when the other has ended, and run from there"
  end

  defp describe({:store_error, error}) when is_exception(error) do
    "the run ended because its store failed: " <>
      Exception.message(error) <>
      ". Calls without a result are pending: fetch the conversation, and run again"
  end

  defp describe({:missing_option, :output}) do
    "the turn was asked for a typed answer, so nothing was run. Pass the same :output again, or add a user message"
  end

  defp describe({:invalid_output, error}),
    do:
      Exception.message(error) <>
        ". Add a user message, or run again with a greater :max_retries"

  defp describe({:output_cut, _error}),
    do: "the model reached its token limit before its answer was complete; allow it more tokens"

  defp describe({:refused, _words}),
    do: "the model refused to give the answer; the error's reason has its words"

  defp describe({:missing_option, :approval}) do
    "the conversation is paused until its calls are decided, so none was run. Pass :approval, or decide about each call first: " <>
      "AshAgent.Context.Calls.undecided_tool_calls/1 lists them"
  end

  defp describe({:missing_option, :runtime_context}) do
    "the turn was asked with a :runtime_context of its own, which is not stored and is gone, so nothing was run with the rights of " <>
      "somebody else. Resume with the :runtime_context of whoever asked, or pass :restore_context to find it by the message"
  end

  defp describe({:max_resumes_exceeded, count}) do
    "#{count} sessions in a row have gone on with the turn and ended before they could store anything, so it is parked: resume it"
  end

  defp describe(:cancelled), do: "the run was cancelled; run the context again to continue"

  defp describe(:dropped) do
    "the turn before was cancelled, so the message, which waited, was dropped and is not in the conversation. Send it again, or start " <>
      "the session with when_cancelled: :go_on"
  end

  defp describe(:parked),
    do: "the turn was paused after its last step; AshAgent.Session.resume/2 goes on with it"

  defp describe(:drained),
    do:
      "the session's node is being drained. The next session of the conversation goes on with the turn: " <>
        "AshAgent.Sessions.resume/3 waits for its answer"

  defp describe({:exit, reason}), do: "the process of the run exited with " <> short(reason)

  defp dollars(amount) do
    cents = amount |> rem(1_000_000_000_000) |> Integer.to_string() |> String.pad_leading(12, "0")
    shown = String.trim_trailing(cents, "0")
    "#{div(amount, 1_000_000_000_000)}.#{String.pad_trailing(shown, 2, "0")}"
  end

  defp short(term), do: inspect(term, limit: 20, printable_limit: 500)
end
