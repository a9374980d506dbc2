# Measures the cost of forgetting, and how much `recall` brings back:
#
#     MIX_ENV=prod mix run bench/recall.exs [folder with recorded runs of agents]
#
# Without a folder it only times a search and a receipt. With one, which has conversations as pi writes them (`*.jsonl`) or
# lists of chat messages as tau-bench does (`tau*.json`), it plays them call by call under some policies. Of each call it takes
# the words of its arguments that stood in earlier results and nowhere else: the model needs them now. It then counts for how
# many of them the view shows the word, is one `recall` away from it, masks it, or has lost it, how many bytes of results and blocks
# each request carries, and what all requests cost beside those with all results. Then it changes digits in lines of the
# recordings, and counts in how many summaries that is found, and how many true ones are doubted. At last it follows what the
# answers of `recall` say, from the handles in the view on and without a word to search for, and counts the words that it never reads.

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

  # The same of dialogues in the form of OpenAI's chat: each is a recording of its own.
  def read_chats(path) do
    for %{"messages" => messages} <- path |> File.read!() |> decode() do
      results =
        for %{"role" => "tool"} = message <- messages,
            into: %{},
            do: {message["tool_call_id"], message["content"] || ""}

      Enum.flat_map(messages, fn
        %{"role" => "user"} = message -> [{:user, message["content"] || ""}]
        %{"role" => "assistant"} = message -> chat_calls(message, results)
        _other -> []
      end)
    end
  end

  defp chat_calls(message, results) do
    calls =
      for %{"id" => id, "function" => function} <- message["tool_calls"] || [],
          result = results[id],
          {:ok, arguments} = Context.JSON.decode(function["arguments"]),
          do: {id, function["name"], arguments, result}

    text = message["content"] || ""
    if calls == [], do: [{:said, text}], else: [{:calls, text, calls}]
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
    start = {Context.Recall.put_recall(Context.new("Go"), true), MapSet.new(), counts()}
    {_context, _said, counts} = Enum.reduce(turns, start, &step(&1, &2, policy))
    counts
  end

  # The conversation, everything shown.
  def start_and_add(turns),
    do: Enum.reduce(turns, {Context.new("Go"), MapSet.new(), counts()}, &add(&1, &2))

  defp counts,
    do: %{
      shown: 0,
      recalled: 0,
      masked: 0,
      gone: 0,
      bytes: 0,
      requests: 0,
      cost: 0,
      whole: 0,
      sent: []
    }

  # Reading a byte from the provider's cache costs 0.1, writing one 1.25 times as much as one that is neither: what begins as the
  # last request is read, the rest is written.
  @read 10
  @written 125

  defp charge(counts, context) do
    sent =
      for message <- Context.to_messages(context), do: {:erlang.phash2(message), size(message)}

    {same, rest} = Enum.split(sent, count_same(sent, counts.sent))
    cost = @read * sum(same) + @written * sum(rest)
    %{counts | cost: counts.cost + cost, whole: counts.whole + sum(sent), sent: sent}
  end

  defp count_same([same | rest], [same | others]), do: 1 + count_same(rest, others)
  defp count_same(_rest, _others), do: 0

  defp sum(sent), do: sent |> Enum.map(&elem(&1, 1)) |> Enum.sum()

  defp size(text) when is_binary(text), do: byte_size(text)
  defp size(list) when is_list(list), do: list |> Enum.map(&size/1) |> Enum.sum()
  defp size(map) when is_map(map), do: map |> Map.values() |> size()
  defp size(_other), do: 0

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
    shown = context |> texts() |> Enum.join("\n")

    needed = calls |> Recording.arguments() |> Enum.reject(&MapSet.member?(said, &1))

    log =
      context
      |> Context.View.expand(:all)
      |> Context.View.clear_tool_results(keep: 1_000_000)
      |> Context.View.put_max_result_bytes(nil)
      |> Context.View.put_masks([])
      |> results()
      |> Enum.join("\n")

    needed = Enum.filter(needed, &String.contains?(log, &1))
    counts = Enum.reduce(needed, counts, &count(&1, &2, context, shown))
    counts = %{counts | bytes: counts.bytes + byte_size(shown), requests: counts.requests + 1}
    counts = charge(counts, context)

    add({:calls, text, calls}, {context, said, counts})
  end

  def add({:calls, text, calls}, {context, said, counts}) do
    made = for {id, name, arguments, _} <- calls, do: %{id: id, name: name, arguments: arguments}
    given = for {id, _, _, result} <- calls, do: {id, {:ok, result}}

    context =
      context |> Context.add_assistant_message(text, made) |> Context.add_tool_results(given)

    said = Enum.reduce(Recording.arguments(calls), say(said, text), &MapSet.put(&2, &1))
    {context, said, counts}
  end

  def add(other, state), do: step(other, state, & &1)

  defp say(said, text), do: text |> Recording.words() |> Enum.reduce(said, &MapSet.put(&2, &1))

  defp count(word, counts, context, shown) do
    cond do
      String.contains?(shown, word) -> Map.update!(counts, :shown, &(&1 + 1))
      recalled?(context, word) -> Map.update!(counts, :recalled, &(&1 + 1))
      masked?(context, word) -> Map.update!(counts, :masked, &(&1 + 1))
      true -> Map.update!(counts, :gone, &(&1 + 1))
    end
  end

  defp masked?(context, word) do
    Enum.any?(Context.View.view(context).masks, fn {pattern, _text} ->
      Regex.match?(Regex.compile!(pattern), word)
    end)
  end

  # By search, or by a handle in the view.
  defp recalled?(context, word) do
    found = Enum.map(Context.Recall.search(context, word), & &1.handle)
    Enum.any?(Stream.concat(found, handles(context)), &leads_to?(context, &1, word))
  end

  defp leads_to?(context, handle, word) do
    {:ok, text} = Context.Recall.recall(context, handle, max_bytes: 10_000_000)
    String.contains?(text, word)
  end

  defp handles(context) do
    for %{content: content} <- Context.to_messages(context),
        text <- if(is_binary(content), do: [content], else: Enum.map(content, & &1[:content])),
        is_binary(text),
        [_, handle] <- Regex.scan(~r/\brecall ([0-9.]+-[0-9]{3})[\] ]/, text),
        match?({:ok, _}, Context.Recall.recall(context, handle, lines: 1)),
        do: handle
  end

  # Results, and what stands in the place of hidden iterations.
  defp texts(context) do
    notes = for %{metadata: %{hidden: _}, content: text} <- Context.to_messages(context), do: text
    notes ++ results(context)
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

hidden = context |> Context.Recall.put_recall(true) |> Context.View.clear_tool_results(keep: 0)
masked = Context.View.put_masks(hidden, [{"[0-9]{16}", "[card]"}])

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
  IO.puts("| #{name} | #{time.(fn -> [_ | _] = Context.Recall.search(context, words) end)} |")
end

receipt = hidden |> Context.View.hide({:all_but_last, 3}) |> Context.Recall.put_recall(true)

IO.puts(
  "| a receipt of it | #{time.(fn -> %{counts: %{gone: 0}} = Context.Recall.receipt(receipt) end)} |"
)

# Hides all but the last five iterations, when there are fifteen.
by_tens = fn context, opts ->
  context = if opts == [], do: context, else: Context.Recall.put_recall(context, true, opts)

  last =
    for first..last <- Context.View.view(context).hidden, reduce: 0, do: (_ -> max(first, last))

  if context.current_iteration - last > 15,
    do: Context.View.hide(context, {:all_but_last, 5}),
    else: context
end

policies = [
  {"all results", & &1},
  {"the last 10", &Context.View.clear_tool_results(&1, keep: 10)},
  {"the last 3", &Context.View.clear_tool_results(&1, keep: 3)},
  {"the last 1", &Context.View.clear_tool_results(&1, keep: 1)},
  {"the last 3, when that is due (rent)",
   &(&1 |> Context.Rent.clear_when_due(keep: 3) |> elem(0))},
  {"the last 3, numbers are masked",
   &(&1
     |> Context.View.clear_tool_results(keep: 3)
     |> Context.View.put_masks([{"[0-9]{4,}", "[number]"}]))},
  {"2 KB of each", &Context.View.put_max_result_bytes(&1, 2_000)},
  {"the last 5 to 15 iterations", &by_tens.(&1, [])},
  {"the same, an index of 1 %", &by_tens.(&1, index: 0.01)},
  {"the same, an index of 3 %", &by_tens.(&1, index: 0.03)},
  {"the same, an index of 5 %", &by_tens.(&1, index: 0.05)}
]

defmodule Lies do
  @moduledoc false

  # Changes a digit in a line of what tools said, and tells of how many of these summaries the check says so. Lines that the
  # conversation has as well are no lies. Then it tells of how many true summaries the check says the same: of a line as it is,
  # of three lines in a list of their own, and of a fact with its words in another sentence.
  def count(turns, cases, tell \\ fn _what, _text, _verdict -> :ok end) do
    turns = Enum.take(turns, 120)
    {context, _said, _counts} = Forgetting.start_and_add(turns)
    context = Context.add_user_message(context, "Go on")

    lines =
      for {:calls, _, calls} <- turns,
          {_, _, _, result} <- calls,
          line <- String.split(result, "\n"),
          do: line

    known = lines |> Enum.map(&String.trim/1) |> MapSet.new()

    lines =
      Enum.filter(lines, &(byte_size(&1) in 20..300 and String.valid?(&1) and &1 =~ ~r/[0-9]/))

    check = fn what, text ->
      {:ok, _, %{verdict: %{wrong: wrong}}} =
        Context.View.compact(context, {:summarize, fn _ -> text end}, check: nil)

      tell.(what, text, wrong)
      {what, wrong != []}
    end

    line = fn number -> Enum.at(lines, rem(number * 7919, length(lines))) end

    for number <- 1..cases,
        {what, text} <- [
          {:lie, lie(line.(number), number, known)},
          {:line, line.(number)},
          {:list, list(Enum.map(0..2, &line.(number * 3 + &1)))},
          {:sentence, sentence(line.(number))}
        ],
        reduce: %{} do
      counts ->
        {what, doubted?} = check.(what, text)

        Map.update(
          counts,
          what,
          if(doubted?, do: 1, else: 0),
          &if(doubted?, do: &1 + 1, else: &1)
        )
    end
  end

  defp lie(line, number, known) do
    Enum.find(Stream.map(number..(number + 300), &change(line, &1)), fn lie ->
      String.trim(lie) not in known
    end)
  end

  defp change(line, number) do
    digits = Regex.scan(~r/[0-9]/, line, return: :index)
    [{at, 1}] = Enum.at(digits, rem(number * 31, length(digits)))
    <<before::binary-size(at), digit, rest::binary>> = line
    before <> <<?0 + rem(digit - ?0 + 1 + rem(number, 9), 10)>> <> rest
  end

  # The numbers of lists are the summary's own.
  defp list(lines) do
    lines
    |> Enum.map(&String.replace(String.trim(&1), ~r/^[0-9]+[.)] /, ""))
    |> Enum.with_index(1)
    |> Enum.map_join("\n", fn {line, number} -> "#{number}. #{line}" end)
  end

  defp sentence(line) do
    [words] = Regex.run(~r/(?:[^\s]+\s+)?[^\s]*[0-9][^\s]*/u, line)
    "It was found that #{words} is what they have."
  end
end

defmodule Reach do
  @moduledoc false

  # Of the words that the view does not show, how many were not read after each call: of a handle in the view, then of what answers
  # name, page by page.
  def count(turns, policy) do
    context =
      Enum.reduce(turns, Context.Recall.put_recall(Context.new("Go"), true), fn turn, context ->
        {context, _said, _counts} = Forgetting.add(turn, {context, MapSet.new(), %{}})
        policy.(context)
      end)

    shown = texts(context)

    all =
      context
      |> Context.View.expand(:all)
      |> Context.View.clear_tool_results(keep: 1_000_000)
      |> Context.View.put_max_result_bytes(nil)
      |> texts()

    behind = MapSet.difference(words(all), words(shown))
    start = for text <- shown, handle <- handles(text), uniq: true, do: {handle, 1}
    {MapSet.size(behind), follow(context, start, MapSet.new(start), behind, 5)}
  end

  defp follow(_context, _places, _seen, _unread, 0), do: []

  defp follow(context, places, seen, unread, calls) do
    read =
      for {handle, from} <- places,
          {:ok, text} <- [Context.Recall.recall(context, handle, from: from)],
          do: {handle, text}

    next =
      for {handle, text} <- read,
          [_all, from] <- Regex.scan(~r/^\[from (\d+)/m, text),
          place = {handle, String.to_integer(from)},
          place not in seen,
          uniq: true,
          do: place

    unread = MapSet.difference(unread, read |> Enum.map(&elem(&1, 1)) |> words())
    seen = MapSet.union(seen, MapSet.new(next))
    [MapSet.size(unread) | follow(context, next, seen, unread, calls - 1)]
  end

  defp words(texts),
    do: for(text <- texts, word <- Recording.words(text), into: MapSet.new(), do: word)

  defp handles(text),
    do: for([_, handle] <- Regex.scan(~r/\brecall ([0-9.]+-[0-9]{3})\b/, text), do: handle)

  defp texts(context) do
    for %{content: content} <- Context.to_messages(context),
        text <- if(is_binary(content), do: [content], else: Enum.map(content, & &1[:content])),
        is_binary(text),
        do: text
  end
end

recordings =
  for folder <- System.argv(),
      path <- Enum.sort(Path.wildcard(Path.join(folder, "{*.jsonl,tau*.json}"))) do
    if Path.extname(path) == ".jsonl",
      do: {Path.basename(path), [Recording.read(path)]},
      else: {Path.basename(path), Recording.read_chats(path)}
  end

for {name, conversations} <- recordings do
  IO.puts("\n#{name}, #{length(conversations)} conversation(s)\n")

  IO.puts(
    "| results shown | words needed | shown | one recall away | masked | gone | KB of results and blocks a request | what requests cost | what a recall costs, in KB at full price |\n|---|---|---|---|---|---|---|---|---|"
  )

  played =
    for {policy, apply_policy} <- policies do
      counts = Enum.map(conversations, &Map.delete(Forgetting.play(&1, apply_policy), :sent))
      {policy, Enum.reduce(counts, &Map.merge(&1, &2, fn _key, a, b -> a + b end))}
    end

  [{_everything, %{cost: full}} | _rest] = played

  for {policy, counts} <- played do
    needed = max(counts.shown + counts.recalled + counts.masked + counts.gone, 1)
    percent = &"#{Float.round(100 * &1 / needed, 1)} %"
    bytes = Float.round(counts.bytes / max(counts.requests, 1) / 1_000, 1)
    cost = Float.round(100 * counts.cost / full - 100, 1)

    # One more request: it reads the conversation from the cache, and the next one writes the answer, 8 KB at most.
    recall = Float.round(0.1 * counts.whole / max(counts.requests, 1) / 1_000 + 1.25 * 8, 1)

    IO.puts(
      "| #{policy} | #{needed} | #{percent.(counts.shown)} | #{percent.(counts.recalled)} | " <>
        "#{percent.(counts.masked)} | #{percent.(counts.gone)} | #{bytes} | #{cost} % | #{recall} |"
    )
  end
end

IO.puts("\n| of 500 summaries | lies found | true lines doubted | true lists | true sentences |")
IO.puts("|---|---|---|---|---|")

for {name, [turns]} <- recordings do
  counts = Lies.count(turns, 500)
  IO.puts("| #{name} | #{counts.lie} | #{counts.line} | #{counts.list} | #{counts.sentence} |")
end

IO.puts(
  "\n| words that the view does not show | number | not read after 1 call | 2 | 3 | 4 | 5 |"
)

IO.puts("|---|---|---|---|---|---|---|")

for {name, conversations} <- recordings,
    {policy, apply_policy} <- policies,
    policy in ["the last 3", "2 KB of each", "the last 5 to 15 iterations"] do
  {sizes, unread} = conversations |> Enum.map(&Reach.count(&1, apply_policy)) |> Enum.unzip()
  size = Enum.sum(sizes)
  unread = Enum.zip_with(unread, &"#{Float.round(100 * Enum.sum(&1) / max(size, 1), 1)} %")
  IO.puts("| #{name}, #{policy} | #{size} | #{Enum.join(unread, " | ")} |")
end
