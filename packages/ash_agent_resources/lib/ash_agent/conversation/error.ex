defmodule AshAgent.Conversation.Error do
  @moduledoc """
  Why an action of `AshAgent.Conversation` did not do its work. Its `reason` is one of

    * `:busy` - a turn is running
    * `:paused` - calls wait for decisions
    * `:no_message` - neither `input` nor `parts` was given, or both
    * `:no_answer` - neither `answer` nor `form` was given, or both
    * `:no_result` - none of `text`, `result` and `error` was given, or several
    * `:answered`, `:late`, `:rewound`, `:unknown` - the result was not taken, see `AshAgent.Store.arrive/5`; so is `:cancelled`
    * `:no_actor` - whoever asked cannot be found again, and somebody else resumes: see the option `actor_persister`
    * `:max_wakes` - late results have begun as many turns as they may in an hour, and nobody asks for another one
    * `:changed` - the conversation is not at the given `revision` any more
    * `:not_found` - the store has no such conversation; `:say` begins one
    * `:exists` - the record has a conversation already, such as one that an upsert found
    * `:interrupted` - the process that ran the turn died
    * an `AshAgent.Context.Error` or `AshAgent.Store.Error`
    * `{:run, reason}` - the run failed; `reason` is that of the `AshAgent.Runtime.Error`
  """

  use Splode.Error, fields: [:reason], class: :invalid

  @impl true
  def message(%{reason: reason}), do: words(reason)

  @words %{
    busy: "a turn of the conversation is running: wait for its end, or cancel it",
    paused:
      "tool calls wait for decisions: approve, deny or answer them and resume, or cancel them",
    no_message: "expected either input or parts",
    no_result: "expected one of text, result and error",
    answered: "the call has another result already",
    cancelled: "the call was called off, and takes no result any more",
    late: "the deadline of the call has passed",
    rewound: "the conversation was rewound to before the call",
    unknown:
      "no call waits under this key: take the key of waiting_calls, or the one that the tool got",
    no_answer: "expected either answer or form",
    no_actor:
      "the actor who asked cannot be found again: let them resume, or set actor_persister, or authority :resumer",
    max_wakes:
      "late results have begun as many turns as they may in an hour: wait, resume as a person, or raise the option max_wakes",
    changed: "the conversation has changed since it was read: read it again",
    not_found: "the record has no conversation in the store: say something to begin one",
    exists: "the record has a conversation already: say something to it instead of starting one",
    interrupted: "the process that ran the turn died; resume the conversation to continue"
  }

  defp words(reason) when is_map_key(@words, reason), do: @words[reason]

  defp words({:run, reason}),
    do: Exception.message(%AshAgent.Runtime.Error{reason: reason, context: nil})

  defp words(error) when is_exception(error), do: Exception.message(error)
  defp words(_other), do: "the conversation could not be changed"

  @doc false
  # The words for people, without the actions that newer versions of Ash name before them.
  def describe(error), do: Exception.message(%{error | bread_crumbs: []})

  @doc false
  # The place in a form: beside the text, or above all fields.
  def field(%{reason: :no_message}), do: :input
  def field(%{reason: :no_answer}), do: :answer
  def field(%{reason: :no_result}), do: :result
  def field(%{reason: %AshAgent.Context.Error{reason: {:invalid, [:answer], _}}}), do: :answer
  def field(%{reason: %AshAgent.Context.Error{reason: {:other_arguments, _, _}}}), do: :arguments
  def field(%{reason: %AshAgent.Context.Error{reason: {:other_attempt, _, _}}}), do: :attempt
  def field(%{reason: %AshAgent.Context.Error{reason: {:invalid, [:edited], _}}}), do: :edited
  def field(%{reason: %AshAgent.Context.Error{}}), do: :input
  def field(_error), do: :_form

  @doc false
  # A person sees these beside the text.
  def to_form_error(%{reason: :no_message} = error), do: {field(error), "write something", []}
  def to_form_error(error), do: {field(error), describe(error), []}
end

if Code.ensure_loaded?(AshPhoenix.FormData.Error) do
  defimpl AshPhoenix.FormData.Error, for: AshAgent.Conversation.Error do
    defdelegate to_form_error(error), to: AshAgent.Conversation.Error
  end
end
