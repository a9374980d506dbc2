defmodule AshAgent.Conversation.Iteration.Content do
  @moduledoc false

  # An iteration from its document.

  use Ash.Resource.Calculation

  alias AshAgent.{Context, Store}

  @impl true
  def load(_query, _opts, _context), do: [:document, :number]

  @impl true
  def calculate(records, _opts, _context) do
    head = "" |> Context.new(id: "-") |> Context.dump()

    Enum.reduce_while(records, {:ok, []}, fn record, {:ok, read} ->
      case Context.load(%{head | "iterations" => [record.document]}) do
        {:ok, context} ->
          {:cont, {:ok, [Context.get_iteration(context, record.number) | read]}}

        {:error, _error} ->
          reason = {:corrupt, "what the table holds is not an iteration"}

          {:halt,
           {:error, AshAgent.Conversation.Error.exception(reason: %Store.Error{reason: reason})}}
      end
    end)
    |> case do
      {:ok, read} -> {:ok, Enum.reverse(read)}
      error -> error
    end
  end
end
