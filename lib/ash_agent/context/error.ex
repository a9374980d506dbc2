defmodule AshAgent.Context.Error do
  @moduledoc """
  What data can cause: an unknown tool call id, a bad snapshot, a message while tool calls are pending.

  `reason` is for matching, `message/1` is for people and says what to do. After an error the context is as it was.
  A caller's mistakes (a wrong type, an unknown option) are `FunctionClauseError` and `ArgumentError` instead.

  A `path` is a list of keys and 0-based indexes, outermost first.
  """

  @typedoc "Why an operation was refused."
  @type reason ::
          {:unknown_tool_call, id :: String.t(), pending :: [String.t()]}
          | {:tool_call_already_answered, id :: String.t(), pending :: [String.t()]}
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
             to :: :asked | :approved | :denied}
          | {:invalid_usage, key :: term()}
          | :no_assistant_message
          | {:cannot_fit, least :: non_neg_integer()}
          | {:not_compactable, Range.t(), allowed :: Range.t() | nil}
          | {:summary_too_long, tokens :: pos_integer(), replaced :: non_neg_integer()}
          | {:feature_missing, feature :: String.t()}
          | {:invalid_pattern, pattern :: String.t(), problem :: String.t()}
          | {:enhancer_failed, AshAgent.Context.Enhancer.name(), reason :: term()}
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

  defp describe({:unknown_tool_call, id, pending}) do
    "no tool call of the current iteration has the id #{inspect(id)}; #{pending(pending)}. " <>
      "Give results under the ids that pending_tool_calls/1 lists"
  end

  defp describe({:tool_call_already_answered, id, pending}) do
    "the tool call #{inspect(id)} has its result already, and a result is final; #{pending(pending)}"
  end

  defp describe({:duplicate_tool_result, id}) do
    "two results are given for the tool call #{inspect(id)}; give one"
  end

  defp describe({:no_tool_results, pending}) do
    "the list of tool results is empty; #{pending(pending)}"
  end

  defp describe({:no_pending_tool_calls, given}) do
    "no tool call waits for a result, but results are given for #{inspect(given)}. " <>
      "Add the assistant message with its tool calls first"
  end

  defp describe({:pending_tool_calls, ids}) do
    "the tool calls #{inspect(ids)} have no result yet. " <>
      "Answer them with add_tool_results/2 or end them with interrupt/2"
  end

  defp describe({:duplicate_tool_call, id}) do
    "two tool calls of one message have the id #{inspect(id)}; ids must differ within a message"
  end

  defp describe({:invalid_part, position, key}) do
    "content part #{position} (counted from 0): #{inspect(key)} is missing, unknown or not allowed here. " <>
      "See the type part() in AshAgent.Context"
  end

  defp describe({:invalid_tool_call, position, key}) do
    "tool call #{position} (counted from 0): #{inspect(key)} is missing or of another type. " <>
      "A tool call is %{id: text, name: atom or text, arguments: map or JSON text}"
  end

  defp describe({:invalid_tool_result, position, key}) do
    "tool result #{position} (counted from 0): #{inspect(key)} is missing or of another type. " <>
      "A tool result is %{id: text, result: {:ok, term} | {:error, term}} or {id, result}"
  end

  defp describe({:unsupported_term, :improper_list, path}) do
    "an improper list#{at(path)}; a context holds proper lists only"
  end

  defp describe({:unsupported_term, :bitstring, path}) do
    "a bitstring that is not whole bytes#{at(path)}; a context holds binaries only"
  end

  defp describe({:too_deep, limit}) do
    "the data is nested deeper than #{limit} levels"
  end

  defp describe({:invalid, path, expected}) do
    "expected #{expected}#{at(path)}"
  end

  defp describe({:unknown_iteration, number, first..last//_}) do
    "there is no iteration #{number}; the context has #{first} to #{last}"
  end

  defp describe({:illegal_status, id, from, to}) do
    "the tool call #{inspect(id)} is #{inspect(from)} and cannot become #{inspect(to)}: " <>
      "only a pending call can be asked about, approved or denied, and it is decided once"
  end

  defp describe({:invalid_usage, nil}) do
    "no provider's report on tokens: expected a map such as %{input_tokens: 12, output_tokens: 34}, " <>
      "or with the names that OpenAI, Anthropic, Gemini, Bedrock or Ollama give"
  end

  defp describe({:invalid_usage, key}) do
    "in the report on tokens, #{inspect(key)} is no integer of zero or more"
  end

  defp describe(:no_assistant_message) do
    "the model has said nothing that the report on tokens could belong to. " <>
      "Call add_assistant_message/3 first"
  end

  defp describe({:cannot_fit, least}) do
    "the system prompt, the current turn and what else has to stay take #{least} tokens. " <>
      "Raise the budget, keep fewer iterations, or shorten tool results with clear_tool_results/2 or put_max_result_bytes/2"
  end

  defp describe({:not_compactable, range, nil}) do
    "iterations #{inspect(range)} cannot be compacted: there is nothing in front of the current turn"
  end

  defp describe({:not_compactable, range, allowed}) do
    "iterations #{inspect(range)} cannot be compacted, only #{inspect(allowed)}: " <>
      "the current turn stays as it is"
  end

  defp describe({:summary_too_long, tokens, replaced}) do
    "the summary has #{tokens} tokens and what it would stand for #{replaced}; it must be shorter"
  end

  defp describe({:feature_missing, feature}) do
    "the Rust library was built without the feature #{feature}: add :#{feature} to the list in " <>
      "config :ash_agent_context, features: [...] and run mix deps.compile ash_agent_context --force"
  end

  defp describe({:invalid_pattern, pattern, problem}) do
    "#{inspect(pattern)} is no pattern of Rust's regex crate (no look-around, no back-references): #{problem}"
  end

  defp describe({:unknown_branch, name, names}) do
    "there is no branch #{inspect(name)}; the chat has #{inspect(names)}"
  end

  defp describe({:branch_exists, name}) do
    "there is a branch #{inspect(name)} already; choose another name, or delete that one first"
  end

  defp describe({:active_branch, name}) do
    "#{inspect(name)} is the active branch, which cannot be deleted; switch/2 to another one first"
  end

  defp describe({:not_a_child, child, parent}) do
    "the chat #{inspect(child)} was not spawned from the chat #{inspect(parent)}: " <>
      "its parent_id is another. Complete it in the chat that it was spawned from"
  end

  defp describe({:foreign_handle, node}) when node == node() do
    "the context's handle belongs to an earlier run of the node #{inspect(node)}: handles do not outlive their VM. " <>
      "Store what dump/1 or to_snapshot/1 gives, and load it"
  end

  defp describe({:foreign_handle, node}) do
    "the context was made on the node #{inspect(node)} and works there only; this is #{inspect(node())}. " <>
      "Send what dump/1 or to_snapshot/1 gives there, and load it here"
  end

  defp describe({:enhancer_failed, enhancer, reason}) do
    "the enhancer #{inspect(enhancer)} failed: #{failure(reason)}. " <>
      "Give enhance/3 the option :on_error to go on without it"
  end

  defp describe(reason), do: inspect(reason)

  defp pending([]), do: "none is pending"
  defp pending(ids), do: "pending are #{inspect(ids)}"

  defp failure(:log_changed),
    do: "it returned a context with another log, but may change the view only"

  defp failure({:bad_return, _other}),
    do: "it returned neither {:ok, context} nor {:error, reason}"

  defp failure({what, reason}) when is_exception(reason),
    do: "#{inspect(what)}: #{failure(reason)}"

  defp failure(reason) when is_exception(reason), do: Exception.message(reason)
  defp failure(reason), do: inspect(reason)

  defp at([]), do: ""
  defp at(path), do: " at #{inspect(path)}"
end
