defmodule AshAgent.Session.Parked do
  @moduledoc false

  # Conversations that nothing goes on with until somebody resumes them. Why is in the note of the write that parked it: `%{parked: reason}`,
  # where the reason is a map with a `:reason` and what belongs to it.

  alias AshAgent.Runtime.{Error, Journal}
  alias AshAgent.Store

  require Logger

  @doc """
  Returns `{:ok, %{id:, reason:, at:}}` for a parked conversation, as it was fetched or listed, `{:ok, nil}` for every other one, or an
  error. A reason is read by people with `describe/1`.
  """
  # Messages may have come after the write that parked it.
  def fetch(store, %{status: :parked, id: id}) do
    with {:ok, writes} <- Journal.ask(fn -> Store.history(store, id) end) do
      parked =
        for %{note: %{parked: reason}, at: at} <- writes, do: %{id: id, reason: reason, at: at}

      {:ok, List.last(parked)}
    end
  end

  def fetch(_store, _kept), do: {:ok, nil}

  @doc "Says in the log that a conversation is parked."
  def log(id, reason) do
    Logger.error(
      "the conversation #{inspect(id)} is parked: #{describe(reason)}. AshAgent.Session.resume/2 goes on with it"
    )
  end

  @doc "Says why a conversation is parked."
  def describe(%{reason: :paused}), do: "somebody paused it"

  def describe(%{reason: :died_without_progress, resumes: count}) do
    "#{count} sessions in a row have gone on with its turn and ended before they could store anything"
  end

  def describe(%{reason: :missing_option, option: option}) do
    "its turn was begun with #{inspect(option)}, which the session does not have"
  end

  def describe(%{reason: :over_budget, limit: reason}) do
    "results came for which a turn would begin, and its limits do not allow that: " <>
      Exception.message(%Error{reason: reason, context: nil})
  end

  def describe(%{reason: :missing_runtime_context}) do
    "its turn was asked with a :runtime_context of its own, which is not stored and has to be given again"
  end

  def describe(%{reason: :cannot_be_loaded, resumes: count, error: words}),
    do: "it could not be loaded #{count} times in a row: #{words}. Once it can be,"
end
