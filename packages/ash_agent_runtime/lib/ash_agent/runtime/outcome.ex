defmodule AshAgent.Runtime.Outcome do
  @moduledoc false

  # The outcome of a tool call.
  #
  #   * `status` - `:ok`, `:error`, `:halt` when the tool ends the run, `:waiting` if the result comes later, or `:asks` if the tool has done
  #     nothing yet and asks a person, see `AshAgent.Runtime.AskUser.put_question/3`
  #   * `term` - the result, or the reason of an error
  #   * `error_type` - the kind of an error, such as an exception's module, for those who look
  #   * `raised` - `{kind, reason, stacktrace}` of a function that failed, which the model does not read
  #   * `metadata` - `{key, term}` to store with the result, from a sub-agent
  #   * `contexts` - the conversation of a sub-agent and of those that worked for it
  #   * `cost` - the cost of these conversations
  @enforce_keys [:status, :term]
  defstruct [:status, :term, :error_type, :raised, :metadata, contexts: [], cost: 0]

  @doc "The `error_type` of a call that failed, and of which nobody knows whether it was carried out."
  def unknown, do: "outcome_unknown"

  @doc "Returns the result as it is added to a context."
  def result(%__MODULE__{status: :halt, term: term}), do: {:ok, term}

  def result(%__MODULE__{status: :waiting}),
    do: {:error, "the tool answers later, for which there has to be a run with a store"}

  def result(%__MODULE__{status: :asks}),
    do: {:error, "the tool asks a person, and nobody is there who could be asked"}

  def result(%__MODULE__{status: status, term: term}), do: {status, term}
end
