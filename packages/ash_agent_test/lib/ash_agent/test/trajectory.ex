defmodule AshAgent.Test.Trajectory do
  @moduledoc false

  # The calls of a conversation in their order, compared with those that a test expects.

  alias AshAgent.Context
  alias AshAgent.Test.Pattern

  @modes [:exactly, :in_order, :any_order, :within]

  @doc "The ways in which calls can be compared."
  def modes, do: @modes

  @doc """
  Lists the calls since an iteration, oldest first, each with its name as text and its arguments normalized.

  Calls that the provider answers itself, such as a web search, are among them, with `by: :provider`. `place` of the others is
  the number of the iteration and the position among its calls. The result of one is the late result that has arrived for it, if there is one.
  """
  def calls(context, since) do
    late = Map.new(Context.Calls.late_calls(context), &{{&1.iteration, &1.id}, &1[:result]})

    for number <- numbers(context, since),
        iteration = Context.get_iteration(context, number),
        iteration != nil,
        call <- iteration_calls(iteration, late),
        do: call
  end

  @doc "Returns the numbers of the iterations that a conversation has since one."
  def numbers(context, since) do
    first = context.current_iteration - Context.count_iterations(context) + 1
    max(first, since || first)..context.current_iteration//1
  end

  defp iteration_calls(iteration, late) do
    served =
      for %{role: :assistant, content: parts} when is_list(parts) <- iteration.messages,
          part <- parts,
          call = read_served(part),
          do: call

    own =
      for {call, position} <- Enum.with_index(iteration.tool_calls),
          # Where a late result stands, its call is listed once more.
          not match?(%{arrived: %{iteration: _}}, call) do
        %{
          id: call.id,
          name: to_string(call.name),
          arguments: call |> Map.get(:arguments) |> Kernel.||(%{}) |> Pattern.normalize(),
          result: late[{iteration.number, call.id}] || Map.get(call, :result),
          by: :client,
          place: {iteration.number, position}
        }
      end

    served ++ own
  end

  # Each provider names these calls in its own way; a block with an output and no input is an answer.
  defp read_served(%{type: :provider_block, data: data}) when is_map(data) do
    case Pattern.normalize(data) do
      %{"type" => type, "name" => name} = data when type in ["server_tool_use", "mcp_tool_use"] ->
        read_served(data["id"], name, data["input"])

      %{"type" => type, "name" => name} = data when type in ["mcp_call", "tool.execution"] ->
        read_served(data["id"], name, data["arguments"])

      %{"executableCode" => code} ->
        read_served(nil, "code_execution", code)

      %{"type" => type} = data ->
        name = String.replace_suffix(type, "_call", "")
        if name != type, do: read_served(data["id"], name, data["action"] || data)

      _other ->
        nil
    end
  end

  defp read_served(_part), do: nil

  defp read_served(id, name, arguments) do
    %{
      id: id,
      name: to_string(name),
      arguments: arguments |> decode() |> Pattern.normalize(),
      result: nil,
      by: :provider,
      place: nil
    }
  end

  defp decode(nil), do: %{}

  defp decode(text) when is_binary(text) do
    case Context.JSON.decode(text) do
      {:ok, arguments} -> arguments
      {:error, _error} -> text
    end
  end

  defp decode(arguments), do: arguments

  @doc """
  Compares calls with patterns. Returns `:ok`, or `{:error, words, call}` with the call where they first differ, if there is one.

    * `:exactly` - these calls in this order and no others
    * `:in_order` - these calls in this order, and others between them
    * `:any_order` - these calls, each pattern by a call of its own, and others
    * `:within` - no other calls than these, each call by a pattern of its own
  """
  def compare(:exactly, calls, patterns), do: compare_each(calls, patterns, 1)
  def compare(:in_order, calls, patterns), do: find_in_order(calls, patterns, nil)

  def compare(:any_order, calls, patterns) do
    case assign(patterns, calls, &Pattern.match_call?/2) do
      :ok ->
        :ok

      {:error, pattern} ->
        {:error, "no call of its own for #{pattern.words}" <> nearest(pattern, calls),
         nearest_call(pattern, calls)}
    end
  end

  def compare(:within, calls, patterns) do
    case assign(calls, patterns, &Pattern.match_call?(&2, &1)) do
      :ok -> :ok
      {:error, call} -> {:error, "#{describe(call)} is none of the calls that may be made", call}
    end
  end

  defp compare_each([], [], _number), do: :ok

  defp compare_each([call | _], [], number),
    do: {:error, "call #{number} is one too many: #{describe(call)}", call}

  defp compare_each([], [pattern | _], number),
    do: {:error, "call #{number} is missing: expected #{pattern.words}", nil}

  defp compare_each([call | calls], [pattern | patterns], number) do
    if Pattern.match_call?(pattern, call),
      do: compare_each(calls, patterns, number + 1),
      else:
        {:error, "call #{number} differs: expected #{pattern.words}, got #{describe(call)}", call}
  end

  defp find_in_order(_calls, [], _last), do: :ok

  defp find_in_order(calls, [pattern | patterns], last) do
    case Enum.drop_while(calls, &(not Pattern.match_call?(pattern, &1))) do
      [call | calls] ->
        find_in_order(calls, patterns, call)

      [] ->
        after_words = if last, do: " after #{describe(last)}", else: ""

        {:error, "no call matches #{pattern.words}#{after_words}" <> nearest(pattern, calls),
         nearest_call(pattern, calls) || List.first(calls)}
    end
  end

  # A reader compares first with a call of the same tool that has other arguments.
  defp nearest(pattern, calls) do
    case nearest_call(pattern, calls) do
      nil -> ""
      call -> "; the nearest is #{describe(call)}"
    end
  end

  defp nearest_call(pattern, calls), do: Enum.find(calls, &(&1.name == pattern.name))

  # Gives each of `ones` an other of its own. An other may be given again when its owner finds another one. Returns the first
  # that remains without.
  defp assign(ones, others, fits?) do
    ones = Enum.with_index(ones)

    fitting =
      Map.new(ones, fn {one, index} ->
        {index, for({other, at} <- Enum.with_index(others), fits?.(one, other), do: at)}
      end)

    ones
    |> Enum.reduce_while({:ok, %{}}, fn {one, index}, {:ok, owners} ->
      case find_other(index, fitting, owners, MapSet.new()) do
        {:ok, owners, _seen} -> {:cont, {:ok, owners}}
        {:error, _seen} -> {:halt, {:error, one}}
      end
    end)
    |> then(&with {:ok, _owners} <- &1, do: :ok)
  end

  defp find_other(one, fitting, owners, seen) do
    Enum.reduce_while(fitting[one], {:error, seen}, fn other, {:error, seen} ->
      if other in seen do
        {:cont, {:error, seen}}
      else
        seen = MapSet.put(seen, other)

        case free(other, fitting, owners, seen) do
          {:ok, owners, seen} -> {:halt, {:ok, Map.put(owners, other, one), seen}}
          {:error, seen} -> {:cont, {:error, seen}}
        end
      end
    end)
  end

  defp free(other, fitting, owners, seen) do
    case owners do
      %{^other => owner} -> find_other(owner, fitting, owners, seen)
      _owners -> {:ok, owners, seen}
    end
  end

  @doc "Returns a call in words."
  def describe(call) do
    arguments = inspect(call.arguments, limit: 20, printable_limit: 200)
    where = if call.id, do: " (#{call.id})", else: ""
    "#{call.name} #{arguments}#{where}"
  end
end
