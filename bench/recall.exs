# Measures the cost of forgetting, and how much `recall` brings back:
#
#     MIX_ENV=prod mix run bench/recall.exs [folder with recorded runs of agents]
#
# Without a folder it only times a search. With one, which has conversations as pi writes them (`*.jsonl`), it plays them
# call by call under some policies. Of each call it takes the words of its arguments that stood in earlier results and
# nowhere else: the model needs them now. It then counts for how many of them a result that has them is shown, is one
# `recall` away, or is gone, and how many bytes of results each request carries.

Code.require_file("support/harness.exs", __DIR__)

alias AshAgent.Bench.Harness
alias AshAgent.Context

defmodule Recording do
  @moduledoc false

  # The turns of a conversation in pi's form: `{:user, text}`, or `{:calls, [{id, name, arguments, result}]}`.
  def read(path) do
    lines = path |> File.stream!() |> Enum.map(&decode/1)
    messages = for %{"type" => "message", "message" => message} <- lines, do: message

    results =
      for %{"role" => "toolResult"} = message <- messages,
          into: %{},
          do: {message["toolCallId"], text(message)}

    Enum.flat_map(messages, fn
      %{"role" => "user"} = message -> [{:user, text(message)}]
      %{"role" => "assistant"} = message -> calls(message, results)
      _other -> []
    end)
  end

  defp decode(line) do
    {:ok, term} = Context.JSON.decode(line)
    term
  end

  defp text(%{"content" => text}) when is_binary(text), do: text
  defp text(%{"content" => parts}), do: for(%{"text" => text} <- parts, into: "", do: text)

  defp calls(%{"content" => parts} = message, results) do
    calls =
      for %{"type" => "toolCall"} = call <- parts,
          result = results[call["id"]],
          do: {call["id"], call["name"], call["arguments"], result}

    if calls == [], do: [{:said, text(message)}], else: [{:calls, text(message), calls}]
  end

  # Names, paths, numbers and ids: what a model cannot make up.
  def words(text),
    do:
      for([word] <- Regex.scan(~r/[\w.\/:@-]{4,}/u, text), uniq: true, do: String.trim(word, "."))

  def arguments(calls) do
    for {_id, _name, arguments, _result} <- calls,
        text <- texts(arguments),
        word <- words(text),
        uniq: true,
        do: word
  end

  defp texts(text) when is_binary(text), do: [text]
  defp texts(map) when is_map(map), do: map |> Map.values() |> Enum.flat_map(&texts/1)
  defp texts(list) when is_list(list), do: Enum.flat_map(list, &texts/1)
  defp texts(_other), do: []
end

defmodule Forgetting do
  @moduledoc false

  def play(turns, policy) do
    start = {Context.put_recall(Context.new("Go"), true), MapSet.new(), counts()}
    {_context, _said, counts} = Enum.reduce(turns, start, &step(&1, &2, policy))
    counts
  end

  defp counts, do: %{shown: 0, recalled: 0, gone: 0, bytes: 0, requests: 0}

  defp step({:user, ""}, state, _policy), do: state

  defp step({:user, text}, {context, said, counts}, _policy) do
    {Context.add_user_message(context, text), say(said, text), counts}
  end

  defp step({:said, text}, {context, said, counts}, _policy) do
    text = if text == "", do: "-", else: text
    {Context.add_assistant_message(context, text), say(said, text), counts}
  end

  defp step({:calls, text, calls}, {context, said, counts}, policy) do
    context = policy.(context)
    shown = context |> results() |> Enum.join("\n")

    needed = calls |> Recording.arguments() |> Enum.reject(&MapSet.member?(said, &1))

    log =
      context
      |> Context.expand(:all)
      |> Context.clear_tool_results(keep: 1_000_000)
      |> Context.put_max_result_bytes(nil)
      |> results()
      |> Enum.join("\n")

    needed = Enum.filter(needed, &String.contains?(log, &1))
    counts = Enum.reduce(needed, counts, &count(&1, &2, context, shown))
    counts = %{counts | bytes: counts.bytes + byte_size(shown), requests: counts.requests + 1}

    made = for {id, name, arguments, _} <- calls, do: %{id: id, name: name, arguments: arguments}
    given = for {id, _, _, result} <- calls, do: {id, {:ok, result}}

    context =
      context |> Context.add_assistant_message(text, made) |> Context.add_tool_results(given)

    said = Enum.reduce(Recording.arguments(calls), say(said, text), &MapSet.put(&2, &1))
    {context, said, counts}
  end

  defp say(said, text), do: text |> Recording.words() |> Enum.reduce(said, &MapSet.put(&2, &1))

  defp count(word, counts, context, shown) do
    cond do
      String.contains?(shown, word) -> Map.update!(counts, :shown, &(&1 + 1))
      recalled?(context, word) -> Map.update!(counts, :recalled, &(&1 + 1))
      true -> Map.update!(counts, :gone, &(&1 + 1))
    end
  end

  # By search, or by a handle in the view.
  defp recalled?(context, word) do
    found = Enum.map(Context.search(context, word), & &1.handle)
    Enum.any?(Stream.concat(found, handles(context)), &leads_to?(context, &1, word))
  end

  defp leads_to?(context, handle, word) do
    {:ok, text} = Context.recall(context, handle, max_bytes: 10_000_000)
    String.contains?(text, word)
  end

  defp handles(context) do
    for %{content: content} <- Context.to_messages(context),
        text <- if(is_binary(content), do: [content], else: Enum.map(content, & &1[:content])),
        is_binary(text),
        [_, handle] <- Regex.scan(~r/\brecall ([0-9.]+-[0-9]{3})[\] ]/, text),
        match?({:ok, _}, Context.recall(context, handle, lines: 1)),
        do: handle
  end

  defp results(context) do
    for %{content: [%{type: :tool_result} | _] = results} <- Context.to_messages(context),
        %{content: text} when is_binary(text) <- results,
        do: text
  end
end

IO.puts("#{Harness.environment()}\n")

filler = "All work and no play makes a dull agent, in lib/agent.ex at line 17. "

context =
  Enum.reduce(1..1_000, Context.new("Go"), fn number, context ->
    text = String.pad_trailing("result #{number} of order A#{number * 7919}B ", 2_400, filler)

    context
    |> Context.add_assistant_message(nil, [
      %{id: "c#{number}", name: "read", arguments: %{"n" => number}}
    ])
    |> Context.add_tool_results([{"c#{number}", {:ok, text}}])
  end)

hidden = context |> Context.put_recall(true) |> Context.clear_tool_results(keep: 0)
masked = Context.put_masks(hidden, [{"[0-9]{16}", "[card]"}])

time = fn fun ->
  times = for _ <- 1..15, do: fun |> :timer.tc() |> elem(0)
  Float.round(Enum.min(times) / 1_000, 1)
end

IO.puts("| a search in 1,000 iterations, 2.4 MB of results | ms |\n|---|---|")

for {name, context, words} <- [
      {"an id", hidden, "A3959500B"},
      {"six words", hidden, "which order is at line 17 of agent"},
      {"an id, with a mask", masked, "A3959500B"}
    ] do
  IO.puts("| #{name} | #{time.(fn -> [_ | _] = Context.search(context, words) end)} |")
end

policies = [
  {"all results", & &1},
  {"the last 10", &Context.clear_tool_results(&1, keep: 10)},
  {"the last 3", &Context.clear_tool_results(&1, keep: 3)},
  {"the last 1", &Context.clear_tool_results(&1, keep: 1)},
  {"2 KB of each", &Context.put_max_result_bytes(&1, 2_000)},
  {"the last 5 iterations", &Context.keep_last_iterations(&1, 5)}
]

for folder <- System.argv(), path <- Enum.sort(Path.wildcard(Path.join(folder, "*.jsonl"))) do
  turns = Recording.read(path)
  IO.puts("\n#{Path.basename(path)}\n")

  IO.puts(
    "| shown | words needed | shown | one recall away | gone | KB of results a request |\n|---|---|---|---|---|---|"
  )

  for {name, policy} <- policies do
    counts = Forgetting.play(turns, policy)
    needed = max(counts.shown + counts.recalled + counts.gone, 1)
    percent = &"#{Float.round(100 * &1 / needed, 1)} %"
    bytes = Float.round(counts.bytes / max(counts.requests, 1) / 1_000, 1)

    IO.puts(
      "| #{name} | #{needed} | #{percent.(counts.shown)} | #{percent.(counts.recalled)} | #{percent.(counts.gone)} | #{bytes} |"
    )
  end
end
