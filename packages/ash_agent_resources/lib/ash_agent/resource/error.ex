defmodule AshAgent.Resource.Error do
  @moduledoc """
  Why an action of `AshAgent.Resource` has no result. Its `reason` is one of

    * `:no_message` - the call has no arguments, and the agent no prompt that could be the message
    * `:paused` - calls wait for decisions, which `:call` cannot return: resume with the context
    * `{:invalid_output, words}` - the last answer is not of the agent's `output` type
    * `{:tool_error, name}` - a tool failed, and `on_error` is `:halt`
    * `{:hook, reason}` - a hook returned `{:error, reason}`
    * an `AshAgent.Context.Error`, such as for a new message while calls of the given context are pending
    * a `t:AshAgent.Runtime.Error.reason/0`, why the run ended

  `context` is the conversation to go on from: as far as the run came, or as it was given; or `nil`.
  """

  use Splode.Error, fields: [:reason, :context], class: :invalid

  @impl true
  def message(%{reason: reason}), do: words(reason)

  defp words(:no_message),
    do: "the agent has nothing to say to the model: give it an argument, or a prompt"

  defp words(:paused),
    do:
      "tool calls wait for decisions: decide about them, and resume with the context of this error"

  defp words({:invalid_output, words}),
    do:
      "the answer is not of the agent's output type: #{words}. Call it again with the context of this error"

  defp words({:tool_error, name}),
    do: "the tool #{name} failed, and the agent halts on errors; the context has the tool's words"

  defp words({:hook, reason}) when is_binary(reason), do: "a hook ended the call: " <> reason

  defp words({:hook, reason}) when is_atom(reason),
    do: "a hook ended the call: #{inspect(reason)}"

  defp words({:hook, _reason}), do: "a hook ended the call"
  defp words(error) when is_exception(error), do: Exception.message(error)

  defp words(reason),
    do: Exception.message(%AshAgent.Runtime.Error{reason: reason, context: nil})
end
