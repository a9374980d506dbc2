defmodule AshAgent.Sessions.Error do
  @moduledoc """
  Why `AshAgent.Sessions` did not get a conversation's session to do something.

  Match on `reason`, see `t:reason/0`; `message/1` says what to do. `stored` says whether a message that was sent may be in the store:
  `false`, or `:unknown` after `{:lost, reason}`. With the same `:key`, sending it again is safe.
  """

  @typedoc """
    * `{:unreachable, owner}` - the conversation's session is on a node that does not answer. Its claim ends with its lease, and
      then any node takes it over
    * `{:lost, reason}` - the session or the connection to its node ended while the caller waited. Whether it did what it was
      asked to is in the conversation: one that had begun is continued by another node
    * `:draining` - the node is being drained, and does not take what is new
    * `:not_found` - the conversation is not in the store
    * `{:store_error, reason}` - the store failed, or the conversation cannot be loaded
    * `{:start_error, reason}` - the session did not start
  """
  @type reason ::
          {:unreachable, owner :: String.t()}
          | {:lost, term()}
          | :draining
          | :not_found
          | {:store_error, AshAgent.Store.Error.t() | AshAgent.Context.Error.t() | atom()}
          | {:start_error, term()}

  @type t :: %__MODULE__{reason: reason(), stored: false | :unknown}

  @enforce_keys [:reason]
  defexception [:reason, stored: false]

  @impl true
  def message(%{reason: reason}), do: describe(reason)

  defp describe({:unreachable, owner}) do
    "the conversation belongs to #{inspect(owner)}, which cannot be reached from this node. Try again: when its lease is " <>
      "over, another node takes the conversation over"
  end

  defp describe({:lost, _reason}) do
    "the session ended while it was waited for. With a :key, sending the prompt again is safe. Without one, look at the " <>
      "conversation first: if the prompt is there, resume/3 waits for its answer"
  end

  defp describe(:draining),
    do: "this node is being drained and takes no new prompts. Send them to a node that is ready"

  defp describe(:not_found), do: "the conversation is not in the store. prompt/4 creates it"

  defp describe({:store_error, error}) when is_exception(error),
    do: "the conversation could not be claimed: " <> Exception.message(error)

  defp describe({:store_error, reason}),
    do: "the conversation could not be claimed (#{inspect(reason)}). Try again"

  defp describe({:start_error, :no_context}),
    do:
      "the conversation is a chat with branches, or :context did not return a context. Sessions take contexts"

  defp describe({:start_error, _reason}),
    do:
      "the session did not start. Check the options that AshAgent.Sessions has for this conversation"
end
