defmodule AshAgent.Context.Error do
  @moduledoc """
  An error that data can cause: an unknown tool call id, a bad snapshot, a message while tool calls are pending.

  Match on `reason`; `message/1` is for people and says what to do. After an error the context is as it was. A caller's mistake,
  such as a wrong type or an unknown option, raises `ArgumentError` instead.

  A `path` is a list of keys and 0-based indexes, outermost first.
  """

  @typedoc "The reason why an operation was refused."
  @type reason ::
          {:unknown_tool_call, id :: String.t(), pending :: [String.t()]}
          | {:tool_call_already_answered, id :: String.t(), pending :: [String.t()]}
          | {:late_tool_result, call :: String.t(),
             why ::
               :answered
               | :cancelled
               | :denied
               | :pending
               | :elsewhere
               | :rewound
               | :unknown
               | :ambiguous}
          | {:duplicate_tool_result, id :: String.t()}
          | {:no_tool_results, pending :: [String.t()]}
          | {:no_pending_tool_calls, given :: [String.t()]}
          | {:pending_tool_calls, ids :: [String.t()]}
          | {:duplicate_tool_call, id :: String.t()}
          | {:invalid_part, position :: non_neg_integer(), key :: term()}
          | {:invalid_tool_call, position :: non_neg_integer(), key :: term()}
          | {:invalid_tool_result, position :: non_neg_integer(), key :: term()}
          | {:unsupported_term, :improper_list | :bitstring, path :: list()}
          | {:too_deep, limit :: pos_integer()}
          | {:invalid, path :: list(), expected :: String.t()}
          | {:unknown_iteration, number :: integer(), Range.t()}
          | {:illegal_status, id :: String.t(), from :: atom(),
             to :: :asked | :approved | :denied | :answered | :waiting}
          | {:not_a_question, id :: String.t()}
          | {:is_a_question, id :: String.t()}
          | {:other_arguments, id :: String.t(), paths :: [list()]}
          | {:other_attempt, id :: String.t(), attempt :: pos_integer()}
          | {:invalid_usage, key :: term()}
          | {:no_price, model :: String.t() | nil}
          | :no_assistant_message
          | {:cannot_fit, least :: non_neg_integer()}
          | {:pins_too_long, pins :: [String.t()], least :: non_neg_integer()}
          | {:unknown_pin, pin :: String.t()}
          | {:too_many_pins, most :: pos_integer()}
          | {:not_compactable, Range.t(), allowed :: Range.t() | nil}
          | {:summary_too_long, tokens :: pos_integer(), replaced :: non_neg_integer()}
          | {:trace_too_large, most :: pos_integer()}
          | {:feature_missing, feature :: String.t()}
          | {:invalid_pattern, pattern :: String.t(), problem :: String.t()}
          | {:unknown_handle, text :: String.t()}
          | {:handle_gone, handle :: String.t()}
          | {:enhancer_failed, module() | function(), reason :: term()}
          | {:unknown_branch, name :: String.t(), names :: [String.t()]}
          | {:branch_exists, name :: String.t()}
          | {:foreign_handle, node()}
          | {:active_branch, name :: String.t()}
          | {:not_a_child, child :: String.t(), parent :: String.t()}

  @type t :: %__MODULE__{reason: reason()}

  @enforce_keys [:reason]
  defexception [:reason]

  @impl true
  def message(%{reason: reason}), do: describe(reason)

  defp describe(reason) do
    case reason do
      {:unknown_tool_call, id, pending} ->
        "unknown tool call #{inspect(id)} in the current iteration; #{describe_pending(pending)}. " <>
          "Use the ids that pending_tool_calls/1 returns"

      {:tool_call_already_answered, id, pending} ->
        "the tool call #{inspect(id)} already has a result, and results are final; #{describe_pending(pending)}. " <>
          "Leave this result out"

      {:late_tool_result, call, why} ->
        "the late result for the call #{inspect(call)} was not taken: " <> late(why)

      {:duplicate_tool_result, id} ->
        "the tool call #{inspect(id)} was given two results; give it one"

      {:no_tool_results, pending} ->
        "the list of tool results is empty; #{describe_pending(pending)}. Give at least one result"

      {:no_pending_tool_calls, given} ->
        "results were given for #{inspect(given)}, but no tool call is pending. " <>
          "Add the assistant message with its tool calls first"

      {:pending_tool_calls, ids} ->
        "the tool calls #{inspect(ids)} have no result yet. " <>
          "Answer them with add_tool_results/2 or end them with interrupt/2"

      {:duplicate_tool_call, id} ->
        "two tool calls of one message have the id #{inspect(id)}; give each call of a message its own id"

      {:invalid_part, position, key} ->
        "content part #{position} (counted from 0): #{inspect(key)} is missing, unknown or not allowed here. " <>
          "See the type part() in AshAgent.Context"

      {:invalid_tool_call, position, key} ->
        "tool call #{position} (counted from 0): #{inspect(key)} is missing or has the wrong type. " <>
          "A tool call is %{id: string, name: atom or string, arguments: map or JSON text}"

      {:invalid_tool_result, position, key} ->
        "tool result #{position} (counted from 0): #{inspect(key)} is missing or has the wrong type. " <>
          "A tool result is %{id: string, result: {:ok, term} | {:error, term}} or {id, result}"

      {:unsupported_term, :improper_list, path} ->
        "cannot store the improper list#{at(path)}; make it a proper list"

      {:unsupported_term, :bitstring, path} ->
        "cannot store the bitstring#{at(path)}, whose size is not a multiple of 8 bits; make it a binary"

      {:too_deep, limit} ->
        "the data is nested deeper than #{limit} levels; flatten it, or store it as JSON text"

      {:invalid, path, expected} ->
        "expected #{expected}#{at(path)}"

      {:unknown_iteration, number, first..last//_} ->
        "unknown iteration #{number}; the context has the iterations #{first} to #{last}"

      {:illegal_status, id, from, to} ->
        "the tool call #{inspect(id)} is #{inspect(from)} and cannot become #{inspect(to)}: " <>
          "only a pending call can be asked about, approved, denied or answered, and only once. Check AshAgent.Context.Calls.tool_call_status/2 first"

      {:not_a_question, id} ->
        "the tool call #{inspect(id)} is no question to a person, so it takes no answer: approve or deny it"

      {:is_a_question, id} ->
        "the tool call #{inspect(id)} is a question to a person, and approving it does nothing: answer or deny it"

      {:other_arguments, id, paths} ->
        "the arguments that were given for the tool call #{inspect(id)} are not those that it would run with, so nothing was decided: " <>
          "they differ#{at_all(paths)}. Show those of AshAgent.Context.Calls.undecided_tool_calls/1, and give these with the decision"

      {:other_attempt, id, attempt} ->
        "the decision about the tool call #{inspect(id)} is not about its attempt #{attempt}, so nothing was decided. " <>
          "Show the calls of AshAgent.Context.Calls.undecided_tool_calls/1, and decide about these"

      {:invalid_usage, nil} ->
        "not a provider's report on tokens: expected a map such as %{input_tokens: 12, output_tokens: 34}, " <>
          "or with the names that OpenAI, Anthropic, Gemini, Bedrock or Ollama use"

      {:invalid_usage, key} ->
        "#{inspect(key)} in the report on tokens is not a non-negative integer; correct it or leave it out"

      {:no_price, nil} ->
        "no price for a model that does not tell its name; add one with model: :any"

      {:no_price, model} ->
        "no price for the model #{inspect(model)}; add one to :prices, or one with model: :any"

      :no_assistant_message ->
        "there is no message of the model that the report on tokens could belong to. " <>
          "Call add_assistant_message/3 first"

      {:cannot_fit, least} ->
        "the system prompt, the current turn and the other iterations that have to stay take #{least} tokens. " <>
          "Raise the budget, keep fewer iterations, or shorten tool results with AshAgent.Context.View.clear_tool_results/2 or AshAgent.Context.View.put_max_result_bytes/2"

      {:pins_too_long, pins, least} ->
        "the budget has no room for what is pinned, with which the view has at least #{least} tokens: " <>
          "#{Enum.join(pins, ", ")}. Unpin some of it, or allow more tokens"

      {:unknown_pin, pin} ->
        "there is no #{pin} to pin: pin what the conversation has"

      {:too_many_pins, most} ->
        "there are #{most} pins already: unpin something first"

      {:not_compactable, range, nil} ->
        "iterations #{inspect(range)} cannot be compacted: there is nothing before the current turn. " <>
          "Leave :range out to compact what can be compacted"

      {:not_compactable, range, allowed} ->
        "iterations #{inspect(range)} cannot be compacted, since the current turn stays as it is. " <>
          "Choose a range within #{inspect(allowed)}"

      {:summary_too_long, tokens, replaced} ->
        "the summary has #{tokens} tokens, too many for the #{replaced} of the iterations it would replace: at most half of them, " <>
          "or fewer than them where summaries are not checked. Give a shorter summary, or hide the iterations with AshAgent.Context.View.fit/3"

      {:trace_too_large, most} ->
        "the trace would have more than #{most} bytes. Write fewer turns with :turn, or leave out :messages"

      {:feature_missing, feature} ->
        "the Rust library was built without the feature #{feature}: add :#{feature} to the list in " <>
          "config :ash_agent_context, features: [...] and run mix deps.compile ash_agent_context --force"

      {:invalid_pattern, pattern, problem} ->
        "#{inspect(pattern)} is not a pattern of Rust's regex crate, which has no look-around and no backreferences: " <>
          "#{problem}. Correct the pattern, or pass literal text through Regex.escape/1"

      {:unknown_handle, handle} ->
        "#{inspect(handle)} is not a handle; handles are like 17.2-431, as they stand where something was left out"

      {:handle_gone, handle} ->
        "gone: what #{inspect(handle)} stood for is no longer part of the conversation, which was rewound since"

      {:unknown_branch, name, names} ->
        "unknown branch #{inspect(name)}; the chat has the branches #{inspect(names)}"

      {:branch_exists, name} ->
        "the branch #{inspect(name)} already exists; choose another name, or delete that branch first"

      {:active_branch, name} ->
        "#{inspect(name)} is the active branch, which cannot be deleted; switch to another branch with switch/2 first"

      {:not_a_child, child, parent} ->
        "the chat #{inspect(child)} was not spawned from the chat #{inspect(parent)}: " <>
          "its parent_id is a different one. Complete it in the chat that it was spawned from"

      {:foreign_handle, node} when node == node() ->
        "the context's handle belongs to an earlier run of the node #{inspect(node)}: handles do not outlive their VM. " <>
          "Store contexts with dump/1 or to_snapshot/1 and load them again"

      {:foreign_handle, node} ->
        "the context was made on the node #{inspect(node)} and works there only; this is #{inspect(node())}. " <>
          "Call dump/1 or to_snapshot/1 there, send the result, and load it here"

      {:enhancer_failed, enhancer, reason} ->
        "the enhancer #{inspect(enhancer)} failed: #{failure(reason)}. " <>
          "Pass the option :on_error to AshAgent.Context.Enhancer.run/3 to go on without it"

      reason ->
        inspect(reason)
    end
  end

  defp late(:answered),
    do: "it has another result, and results are final. Tell whoever brought it"

  defp late(:cancelled), do: "it was called off. Tell whoever brought it"

  defp late(:denied), do: "a person denied it. Tell whoever brought it"

  defp late(:pending),
    do:
      "it has no result and does not wait. Give its result with AshAgent.Context.add_tool_results/3"

  defp late(:elsewhere),
    do: "it waits in the conversation that this one was forked from. Give it to that one"

  defp late(:rewound), do: "the conversation was rewound to before it"

  defp late(:unknown),
    do: "no call of this name waited here. AshAgent.Context.Calls.late_calls/2 has those that did"

  defp late(:ambiguous),
    do: "several calls with this id wait. Name its handle: {:handle, handle}"

  defp describe_pending([]), do: "no call is pending"
  defp describe_pending(ids), do: "pending calls are #{inspect(ids)}"

  defp failure(:log_changed),
    do: "it returned a context with another log, but may only change the view"

  defp failure({:bad_return, _other}),
    do: "it returned neither {:ok, context} nor {:error, reason}"

  defp failure({what, reason}) when is_exception(reason),
    do: "#{inspect(what)}: #{failure(reason)}"

  defp failure(reason) when is_exception(reason), do: Exception.message(reason)
  defp failure(reason), do: inspect(reason)

  defp at([]), do: ""
  defp at(path), do: " at #{inspect(path)}"

  defp at_all([[]]), do: ""

  # A model chose the keys, however long they are.
  defp at_all(paths),
    do: " at " <> Enum.map_join(paths, ", ", &inspect(&1, limit: 20, printable_limit: 100))
end
