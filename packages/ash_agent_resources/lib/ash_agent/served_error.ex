defmodule AshAgent.ServedError do
  @moduledoc false

  # The errors of conversations and agents as clients of AshGraphql and AshJsonApi read them: their words, a code to act on,
  # and the field. Without this, these libraries return only the number of a line in a log.

  alias AshAgent.Conversation

  @doc "The code of an error, from a closed set: atoms of the two modules, and one for all that a run can say."
  def code(%{reason: reason}) when is_atom(reason), do: Atom.to_string(reason)
  def code(%{reason: {:invalid_output, _words}}), do: "invalid_output"
  def code(%{reason: {:hook, _reason}}), do: "hook"
  def code(%{reason: reason}) when is_exception(reason), do: "invalid_input"
  def code(_error), do: "failed"

  @doc "The fields that an error belongs to."
  def fields(%Conversation.Error{} = error),
    do: List.delete([Conversation.Error.field(error)], :_form)

  def fields(_error), do: []
end

if Code.ensure_loaded?(AshGraphql.Error) do
  defimpl AshGraphql.Error, for: [AshAgent.Conversation.Error, AshAgent.Resource.Error] do
    alias AshAgent.{Conversation, ServedError}

    def to_error(error) do
      words = Conversation.Error.describe(error)

      %{
        message: words,
        short_message: words,
        vars: %{},
        code: ServedError.code(error),
        fields: ServedError.fields(error)
      }
    end
  end
end

if Code.ensure_loaded?(AshJsonApi.ToJsonApiError) do
  defimpl AshJsonApi.ToJsonApiError, for: [AshAgent.Conversation.Error, AshAgent.Resource.Error] do
    alias AshAgent.{Conversation, ServedError}

    def to_json_api_error(error) do
      code = ServedError.code(error)

      struct(AshJsonApi.Error,
        id: Ash.UUID.generate(),
        status_code: if(code in ["busy", "paused", "changed"], do: 409, else: 400),
        code: code,
        title: code,
        detail: Conversation.Error.describe(error),
        source_pointer:
          Enum.find_value(ServedError.fields(error), :undefined, &"/data/attributes/#{&1}"),
        meta: %{}
      )
    end
  end
end
