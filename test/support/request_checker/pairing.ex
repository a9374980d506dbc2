defmodule AshAgent.TestSupport.RequestChecker.Pairing do
  @moduledoc """
  One exchange: the tool calls of an assistant turn against the results that answer it.

  A call or result is `%{id: id, name: name | nil, path: path}`. Those whose id is no text are left to the checks of shape.
  """

  import AshAgent.TestSupport.RequestChecker.Shape, only: [finding: 3]

  alias AshAgent.TestSupport.RequestChecker.Shape

  @type entry :: %{id: term(), name: term(), path: Shape.path()}

  @doc "Every call answered once, nothing else answered, no id twice among the calls; names equal where both have one."
  @spec check([entry()], [entry()]) :: [Shape.finding()]
  def check(calls, results) do
    calls = Enum.filter(calls, &is_binary(&1.id))
    results = Enum.filter(results, &is_binary(&1.id))
    by_id = calls |> Enum.reverse() |> Map.new(&{&1.id, &1})
    answered = MapSet.new(results, & &1.id)

    repeated(calls, :duplicate_call_id, "a second call has the id") ++
      for(
        call <- calls,
        call.id not in answered,
        do: finding(:missing_result, call.path, "no result for #{inspect(call.id)}")
      ) ++
      Enum.flat_map(results, &result(&1, by_id)) ++
      repeated(
        Enum.filter(results, &is_map_key(by_id, &1.id)),
        :duplicate_result,
        "a second result for"
      )
  end

  defp result(%{id: id, name: name, path: path}, by_id) do
    case by_id do
      %{^id => call} when is_binary(call.name) and is_binary(name) and call.name != name ->
        [finding(:name_mismatch, path, "#{inspect(name)} answers #{inspect(call.name)}")]

      %{^id => _call} ->
        []

      _ ->
        [finding(:orphan_result, path, "no call #{inspect(id)} in front of it")]
    end
  end

  defp repeated(entries, rule, words) do
    for [_first | more] <- entries |> Enum.group_by(& &1.id) |> Map.values(), entry <- more do
      finding(rule, entry.path, "#{words} #{inspect(entry.id)}")
    end
  end

  @doc """
  The exchanges of a message list in which each result is a message of the role `tool` right behind the assistant message.

  `calls` and `result` read the entries of an assistant message and of a tool message with their paths.
  """
  @spec check_messages(
          [map()],
          (map(), Shape.path() -> [entry()]),
          (map(), Shape.path() -> entry())
        ) :: [Shape.finding()]
  def check_messages(messages, calls, result) do
    {findings, open_calls, results} =
      messages
      |> Enum.with_index()
      |> Enum.reduce({[], [], []}, fn {message, index}, {findings, open_calls, results} ->
        path = ["messages", index]

        case message do
          %{"role" => "tool"} ->
            {findings, open_calls, results ++ [result.(message, path)]}

          %{"role" => "assistant"} ->
            {findings ++ check(open_calls, results), calls.(message, path), []}

          _ ->
            {findings ++ check(open_calls, results), [], []}
        end
      end)

    findings ++ check(open_calls, results)
  end

  @doc "The entries of an OpenAI-like `tool_calls` list."
  @spec tool_calls(map(), Shape.path()) :: [entry()]
  def tool_calls(%{"tool_calls" => calls}, path) when is_list(calls) do
    for {%{} = call, index} <- Enum.with_index(calls) do
      %{id: call["id"], name: name(call), path: path ++ ["tool_calls", index]}
    end
  end

  def tool_calls(_message, _path), do: []

  defp name(%{"function" => %{"name" => name}}), do: name
  defp name(_call), do: nil
end
