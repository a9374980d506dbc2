defmodule AshAgent.ChatContext.Seed do
  @moduledoc false

  # The beginning of a child's conversation: a range of its parent's iterations as a conversation of its own.

  alias AshAgent.Context
  alias AshAgent.Context.Error

  # What the parent's view hides of the text itself; what it covers, the range is to show.
  @kept_of_view ["masks", "max_result_bytes"]

  @doc "A context of these iterations of another one, numbered from 1, without its prompts, metadata and reports on tokens."
  @spec context(Context.t(), Range.t(), String.t() | nil, DateTime.t() | nil) :: Context.t()
  def context(parent, first..last//1 = _range, id, at) do
    parent = Context.rewind(parent, to: last)
    refuse_pending(parent)
    whole = Context.dump(parent, since: first)
    [%{"number" => number} | _] = iterations = whole["iterations"]

    # Iterations can be missing at the beginning.
    if number != first,
      do: raise(Error, reason: {:unknown_iteration, first, number..parent.current_iteration})

    %{"id" => id, "created_at" => created_at, "updated_at" => updated_at} =
      Context.dump(empty(id, at))

    whole
    |> Map.take(["version"])
    |> Map.merge(%{"id" => id, "created_at" => created_at, "updated_at" => updated_at})
    |> Map.put("iterations", iterations |> Enum.with_index(1) |> Enum.map(&iteration/1))
    |> Map.put("view", Map.take(whole["view"] || %{}, @kept_of_view))
    |> Context.load!()
  end

  @doc "A context that nobody has said anything in."
  @spec empty(String.t() | nil, DateTime.t() | nil) :: Context.t()
  def empty(id, at) do
    times = if at, do: [created_at: at, updated_at: at], else: []
    iteration = if at, do: [iterations: [%{number: 1, messages: [], started_at: at}]], else: []
    Context.create!(if(id, do: [id: id], else: []) ++ times ++ iteration)
  end

  defp refuse_pending(context) do
    case Context.pending_tool_calls(context) do
      [] -> :ok
      calls -> raise Error, reason: {:pending_tool_calls, Enum.map(calls, & &1.id)}
    end
  end

  defp iteration({iteration, number}) do
    %{
      iteration
      | "number" => number,
        "messages" => Enum.map(iteration["messages"], &Map.delete(&1, "usage"))
    }
  end
end
