defmodule AshAgent.Bench.Plain do
  @moduledoc """
  The operations of `AshAgent.Context` on maps and lists, as one would write them without this package: what the
  benchmarks compare with.

  Iterations and messages are lists, oldest first, in the form in which they are read. (Newest first, an append would cost
  the same at any length, and every read would have to turn the list round.) Times are passed in, and results are
  texts, so that neither a clock nor a JSON encoder is measured.
  """

  @epoch ~U[2026-01-01 00:00:00.000000Z]

  def new(input, opts \\ []) do
    at = Keyword.get(opts, :at, @epoch)

    system =
      case opts[:system_prompt] do
        nil -> []
        prompt -> [%{role: :system, content: prompt}]
      end

    %{
      id: Keyword.get(opts, :id, "plain"),
      iterations: [iteration(1, system ++ [%{role: :user, content: input}], at)],
      current_iteration: 1,
      metadata: %{},
      created_at: at,
      updated_at: at
    }
  end

  def add_user_message(context, input, at \\ @epoch) do
    message = %{role: :user, content: input}
    current = List.last(context.iterations)
    refuse_pending!(current)

    if Enum.any?(current.messages, &(&1.role == :assistant)) do
      context
      |> update_current(&%{&1 | completed_at: at})
      |> open_iteration([message], at)
    else
      %{update_current(context, &%{&1 | messages: &1.messages ++ [message]}) | updated_at: at}
    end
  end

  def add_assistant_message(context, content, tool_calls \\ [], at \\ @epoch) do
    refuse_duplicates!(tool_calls)

    message =
      if tool_calls == [],
        do: %{role: :assistant, content: content},
        else: %{role: :assistant, content: content, tool_calls: tool_calls}

    context =
      update_current(context, fn current ->
        refuse_pending!(current)

        %{
          current
          | messages: current.messages ++ [message],
            tool_calls: current.tool_calls ++ Enum.map(tool_calls, &Map.put(&1, :result, nil))
        }
      end)

    %{context | updated_at: at}
  end

  def add_tool_results(context, results, at \\ @epoch) do
    results = Map.new(results, &{&1.id, &1.result})
    current = List.last(context.iterations)

    for {id, _result} <- results,
        not Enum.any?(current.tool_calls, &(&1.id == id and &1.result == nil)) do
      raise ArgumentError, "no pending tool call has the id #{inspect(id)}"
    end

    tool_calls =
      Enum.map(current.tool_calls, fn
        %{id: id, result: nil} = call -> %{call | result: Map.get(results, id)}
        call -> call
      end)

    messages = Enum.reject(current.messages, &tool_results?/1) ++ [tool_results(tool_calls)]
    current = %{current | messages: messages, tool_calls: tool_calls}

    if Enum.any?(tool_calls, &(&1.result == nil)) do
      %{update_current(context, fn _ -> current end) | updated_at: at}
    else
      context
      |> update_current(fn _ -> %{current | completed_at: at} end)
      |> open_iteration([], at)
    end
  end

  def extract_tool_calls(context) do
    case List.last(List.last(context.iterations).messages) do
      %{tool_calls: tool_calls} -> tool_calls
      _ -> []
    end
  end

  def pending_tool_calls(context) do
    for %{result: nil} = call <- List.last(context.iterations).tool_calls,
        do: Map.delete(call, :result)
  end

  def to_messages(context), do: Enum.flat_map(context.iterations, & &1.messages)

  def get_iteration(context, number), do: Enum.find(context.iterations, &(&1.number == number))

  def count_messages(context),
    do: context.iterations |> Enum.map(&length(&1.messages)) |> Enum.sum()

  defp iteration(number, messages, at) do
    %{
      number: number,
      messages: messages,
      tool_calls: [],
      started_at: at,
      completed_at: nil,
      metadata: %{}
    }
  end

  defp open_iteration(context, messages, at) do
    number = context.current_iteration + 1

    %{
      context
      | iterations: context.iterations ++ [iteration(number, messages, at)],
        current_iteration: number,
        updated_at: at
    }
  end

  defp update_current(context, fun),
    do: %{context | iterations: List.update_at(context.iterations, -1, fun)}

  defp tool_results(tool_calls) do
    content =
      for %{id: id, result: {outcome, text}} <- tool_calls do
        %{type: :tool_result, tool_use_id: id, content: text, is_error: outcome == :error}
      end

    %{role: :user, content: content}
  end

  defp tool_results?(%{role: :user, content: [%{type: :tool_result} | _]}), do: true
  defp tool_results?(_message), do: false

  defp refuse_pending!(iteration) do
    if Enum.any?(iteration.tool_calls, &(&1.result == nil)),
      do: raise(ArgumentError, "tool calls are pending")
  end

  defp refuse_duplicates!([]), do: :ok
  defp refuse_duplicates!([_call]), do: :ok

  defp refuse_duplicates!(calls) do
    if Enum.uniq_by(calls, & &1.id) != calls, do: raise(ArgumentError, "duplicate tool call id")
  end
end
