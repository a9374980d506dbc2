# Measures the cost of a run's requests under policies for old tool results, beside the cheapest that knows the future:
#
#     MIX_ENV=prod mix run bench/policies.exs FOLDER
#
# The folder has conversations as pi writes them (`*.jsonl`) or lists of chat messages as tau-bench does (`tau*.json`). They are
# played request by request through views of the package. Messages and times are the recorded ones, whatever the view shows, so
# this measures tokens and money, and never whether the model would still have solved its task. A compaction in a recording begins
# a run of its own, whose first message is the summary.
#
# A message that is the same as in the request before, with all before it, is read from the cache, unless the cache is cold by the
# recorded times; all others are written. Tokens are the package's estimates. The limit clears the same results as the policies, all but
# the newest k, at the requests that make the run cheapest, by dynamic programming over all of them.

Code.require_file("support/harness.exs", __DIR__)
Code.require_file("support/chart.exs", __DIR__)

alias AshAgent.Bench.{Chart, Harness}
alias AshAgent.{Context, Response}

defmodule Recorded do
  @moduledoc false

  # Runs are lists of `{:system, text}`, `{:user, text, at}` and `{:answer, text, calls, asked_at, at}` with calls
  # `{name, arguments, result}`; times in milliseconds, or `nil`. The first is preceded by `{:base, tokens}`: what is sent before all messages.
  def read(path) do
    if Path.extname(path) == ".jsonl",
      do: path |> File.stream!() |> Enum.map(&decode/1) |> read_session(),
      else: for(%{"messages" => messages} <- decode(File.read!(path)), do: read_chat(messages))
  end

  defp read_session(lines) do
    messages = for %{"type" => "message", "message" => message} <- lines, do: message

    results =
      for %{"role" => "toolResult"} = message <- messages,
          into: %{},
          do: {message["toolCallId"], {text(message), message["timestamp"]}}

    lines
    |> Enum.chunk_while(
      [],
      fn
        %{"type" => "compaction", "summary" => text} = line, run ->
          {:cont, Enum.reverse(run), [{:user, text, micros(line)}]}

        %{"type" => "message", "message" => message} = line, run ->
          {:cont, Enum.reverse(step(message, micros(line), results)) ++ run}

        _other, run ->
          {:cont, run}
      end,
      fn run -> {:cont, Enum.reverse(run), []} end
    )
    |> Enum.map(&[{:base, base(messages)} | &1])
  end

  # The system prompt and the tools are not recorded, but the first request was them and a short message.
  defp base(messages) do
    Enum.find_value(messages, 0, fn message ->
      usage = message["usage"] || %{}
      sum = (usage["input"] || 0) + (usage["cacheRead"] || 0) + (usage["cacheWrite"] || 0)
      if sum > 0, do: sum
    end)
  end

  defp step(%{"role" => "user"} = message, at, _results) do
    text = text(message)
    if text == "", do: [], else: [{:user, text, at}]
  end

  defp step(%{"role" => "assistant"} = message, at, results) do
    usage = message["usage"]

    calls =
      for %{"type" => "toolCall"} = call <- message["content"],
          {text, _at} <- [results[call["id"]]],
          do: {call["name"], call["arguments"], text}

    if usage["input"] + usage["cacheRead"] + usage["cacheWrite"] == 0,
      do: [],
      else: [{:answer, text(message), calls, message["timestamp"], at}]
  end

  defp step(_result, _at, _results), do: []

  defp read_chat(messages) do
    results =
      for %{"role" => "tool"} = message <- messages,
          into: %{},
          do: {message["tool_call_id"], message["content"] || ""}

    Enum.flat_map(messages, fn
      %{"role" => "system", "content" => text} ->
        [{:base, 0}, {:system, text}]

      %{"role" => "user"} = message ->
        [{:user, message["content"] || "", nil}]

      %{"role" => "assistant"} = message ->
        [{:answer, message["content"] || "", chat_calls(message, results), nil, nil}]

      _other ->
        []
    end)
  end

  defp chat_calls(message, results) do
    for %{"id" => id, "function" => function} <- message["tool_calls"] || [],
        result = results[id],
        do: {function["name"], decode(function["arguments"]), result}
  end

  defp micros(%{"timestamp" => text}) do
    {:ok, time, 0} = DateTime.from_iso8601(text)
    DateTime.to_unix(time, :millisecond)
  end

  defp text(%{"content" => text}) when is_binary(text), do: text

  defp text(%{"content" => parts}),
    do: for(%{"type" => "text", "text" => text} <- parts, into: "", do: text)

  defp decode(text) do
    {:ok, term} = Context.JSON.decode(text)
    term
  end
end

defmodule Play do
  @moduledoc false

  # A sheet: what a token costs that is read and that is written, in hundredths of one that is neither, who keeps the cache, and for
  # how many milliseconds.
  @start ~U[2026-01-01 00:00:00.000000Z]

  # Plays a run under a policy: a function of the context and the time. Returns the cost and the longest request.
  def play(run, sheet, policy) do
    [{:base, base} | steps] = run

    first = %{
      context: nil,
      base: base,
      sent: [],
      tokens: [],
      at: nil,
      cost: 0,
      peak: 0,
      system: nil,
      number: 0
    }

    Enum.reduce(steps, first, &step(&1, &2, sheet, policy))
  end

  defp step({:system, text}, state, _sheet, _policy), do: %{state | system: text}

  defp step({:user, text, at}, %{context: nil} = state, _sheet, _policy),
    do: %{state | context: Context.new(text, system_prompt: state.system, at: time(at))}

  defp step({:user, text, at}, state, _sheet, _policy),
    do: %{state | context: Context.add_user_message(state.context, text, at: time(at))}

  defp step({:answer, _text, _calls, _asked, _at}, %{context: nil} = state, _sheet, _policy),
    do: state

  defp step({:answer, text, calls, asked, at}, state, sheet, policy) do
    context = policy.(state.context, time(asked))
    {usage, state} = bill(%{state | context: context}, sheet, asked)

    calls =
      for {{name, arguments, result}, index} <- Enum.with_index(calls),
          do: {"call_#{state.number}_#{index}", name, arguments, result}

    {:ok, response} = answer(sheet, text, calls, usage)
    opts = [requested_at: time(asked), at: time(at)]
    {:ok, context} = Context.add_response(context, response, opts)

    context =
      if calls == [],
        do: context,
        else:
          Context.add_tool_results(
            context,
            for({id, _, _, result} <- calls, do: {id, {:ok, result}}),
            at: time(at)
          )

    %{state | context: context, at: at, number: state.number + 1}
  end

  # Tokens that are read and written, in hundredths of a price.
  defp bill(state, sheet, asked) do
    %{"messages" => messages} = Context.request!(state.context, :openai_chat, pending: :interrupt)
    {same, tokens} = count(messages, state.sent, state.tokens, [])
    all = state.base + Enum.sum(tokens)
    same = if state.sent == [], do: 0, else: state.base + same
    read = if cold?(sheet, state.at, asked), do: 0, else: same
    cost = state.cost + read * sheet.read + (all - read) * sheet.write

    {%{read: read, written: all - read},
     %{state | sent: messages, tokens: tokens, cost: cost, peak: max(state.peak, all)}}
  end

  def cold?(%{lifetime: lifetime}, before, now),
    do: before != nil and now != nil and lifetime != nil and now - before > lifetime

  # The tokens of each message, and of those that are as they were, up to the first that is not.
  defp count([message | messages], [message | sent], [tokens | known], counted),
    do: count(messages, sent, known, [tokens | counted])

  defp count(messages, _sent, _known, counted),
    do: {Enum.sum(counted), Enum.reverse(counted, Enum.map(messages, &tokens/1))}

  def tokens(message) do
    calls =
      for %{"function" => function} <- message["tool_calls"] || [],
          do: [function["name"], " ", function["arguments"]]

    text = IO.iodata_to_binary([message["content"] || "" | calls])

    if text == "",
      do: 4,
      else: text |> Context.new() |> Context.Tokens.count_tokens(method: :estimate)
  end

  defp answer(%{provider: :anthropic} = sheet, text, calls, usage) do
    uses =
      for {id, name, arguments, _} <- calls,
          do: %{type: "tool_use", id: id, name: name, input: arguments}

    said = if text == "", do: [], else: [%{type: "text", text: text}]
    hour = if sheet.lifetime > 300_000, do: usage.written, else: 0

    Response.decode(:anthropic, %{
      type: "message",
      role: "assistant",
      model: "m",
      stop_reason: "end_turn",
      content: said ++ uses,
      usage: %{
        input_tokens: 0,
        output_tokens: 0,
        cache_read_input_tokens: usage.read,
        cache_creation_input_tokens: usage.written,
        cache_creation: %{
          ephemeral_5m_input_tokens: usage.written - hour,
          ephemeral_1h_input_tokens: hour
        }
      }
    })
  end

  defp answer(_sheet, text, calls, usage) do
    uses =
      for {id, name, arguments, _} <- calls,
          do: %{
            id: id,
            type: "function",
            function: %{name: name, arguments: encode(arguments)}
          }

    message = %{role: "assistant", content: text}
    message = if uses == [], do: message, else: Map.put(message, :tool_calls, uses)

    Response.decode(:openai_chat, %{
      model: "m",
      choices: [%{message: message, finish_reason: "stop"}],
      usage: %{
        prompt_tokens: usage.read + usage.written,
        completion_tokens: 0,
        prompt_tokens_details: %{cached_tokens: usage.read}
      }
    })
  end

  defp encode(arguments), do: arguments |> Context.JSON.encode() |> IO.iodata_to_binary()

  def time(nil), do: @start
  def time(millis), do: DateTime.from_unix!(millis * 1_000, :microsecond)
end

defmodule Limit do
  @moduledoc false

  # The least that a run costs when all results but the last `keep` are cleared at some of its requests.
  def find({base, elements, requests}, sheet, keep) do
    requests =
      for {count, answered, {before, now}} <- requests,
          do: {count, answered, Play.cold?(sheet, before, now)}

    # Tokens of the first n elements, whole; tokens that clearing the first m results saves; where the m-th result stands.
    whole = sums(for {tokens, _cleared} <- elements, do: tokens)

    results =
      for {{tokens, cleared}, index} <- Enum.with_index(elements),
          cleared != nil,
          do: {index, tokens - cleared}

    saved = sums(for {_index, saved} <- results, do: saved)
    places = List.to_tuple(for {index, _saved} <- results, do: index)
    all = fn count, cleared -> base + elem(whole, count) - elem(saved, cleared) end
    cost = fn read, total -> read * sheet.read + (total - read) * sheet.write end

    # By how many results are cleared: the least that the requests so far cost.
    start = %{0 => 0}

    {least, _before} =
      Enum.reduce(requests, {start, nil}, fn {count, answered, cold?}, {least, before} ->
        may = max(answered - keep, 0)

        sent = fn cleared -> if before == nil or cold?, do: 0, else: all.(before, cleared) end

        stay =
          Map.new(least, fn {cleared, sum} ->
            {cleared, sum + cost.(sent.(cleared), all.(count, cleared))}
          end)

        next =
          for {cleared, sum} <- least, cleared < may, reduce: stay do
            stay ->
              read =
                min(
                  sent.(cleared),
                  base + elem(whole, elem(places, cleared)) - elem(saved, cleared)
                )

              Map.update(
                stay,
                may,
                sum + cost.(read, all.(count, may)),
                &min(&1, sum + cost.(read, all.(count, may)))
              )
          end

        {next, count}
      end)

    least |> Map.values() |> Enum.min()
  end

  # The elements of the last request with nothing cleared, each with its tokens and those of a cleared result, and for each request
  # how many elements and results it has, and whether the cache is cold.
  def layout([{:base, base} | steps] = run) do
    counter = fn context, _at ->
      send(self(), {:request, length(Context.request!(context, :openai_chat)["messages"])})
      context
    end

    state = Play.play(run, %{read: 0, write: 0, provider: :openai_chat, lifetime: nil}, counter)
    counts = receive_counts([])
    # What came after the last request is never sent.
    messages = Enum.take(state.sent, List.last(counts) || 0)

    elements =
      for message <- messages do
        cleared =
          if message["role"] == "tool",
            do: Play.tokens(%{message | "content" => "[Old tool result cleared]"})

        {Play.tokens(message), cleared}
      end

    answered = fn count -> messages |> Enum.take(count) |> Enum.count(&(&1["role"] == "tool")) end
    times = for {:answer, _, _, asked, at} <- steps, do: {asked, at}

    requests =
      Enum.zip_with(counts, gaps(times), fn count, gap -> {count, answered.(count), gap} end)

    {base, elements, requests}
  end

  defp gaps(times),
    do: Enum.zip([nil | Enum.map(times, &elem(&1, 1))], Enum.map(times, &elem(&1, 0)))

  defp receive_counts(counts) do
    receive do
      {:request, count} -> receive_counts([count | counts])
    after
      0 -> Enum.reverse(counts)
    end
  end

  defp sums(numbers), do: [0 | Enum.scan(numbers, &+/2)] |> List.to_tuple()
end

sheets = [
  %{name: "0.1 / 1.25", read: 10, write: 125, provider: :anthropic, lifetime: 300_000},
  %{name: "0.1 / 2", read: 10, write: 200, provider: :anthropic, lifetime: 3_600_000},
  %{name: "0.5 / 1", read: 50, write: 100, provider: :openai_chat, lifetime: nil},
  %{name: "1 / 1", read: 100, write: 100, provider: :openai_chat, lifetime: nil}
]

prices = fn sheet ->
  hour = if sheet.lifetime == 3_600_000, do: %{cache_write_1h: sheet.write}, else: %{}

  [
    Map.merge(
      %{model: :any, input: 100, output: 100, cache_read: sheet.read, cache_write: sheet.write},
      hour
    )
  ]
end

shown = fn context ->
  Enum.count(Context.request!(context, :openai_chat)["messages"], fn message ->
    message["role"] == "tool" and message["content"] != "[Old tool result cleared]"
  end)
end

in_steps = fn context ->
  if shown.(context) > 20, do: Context.View.clear_tool_results(context, keep: 10), else: context
end

summary = String.duplicate("Then the agent read and changed some files, as it was told to. ", 30)

summarize = fn context ->
  hidden =
    for first..last <- Context.View.view(context).summaries,
        reduce: 0,
        do: (most -> Enum.max([most, first, last]))

  if context.current_iteration - hidden > 31 do
    {:ok, context, _} =
      Context.View.compact(context, {:summarize, fn _ -> summary end}, keep_last: 10, check: nil)

    context
  else
    context
  end
end

rent = fn keep ->
  fn sheet ->
    prices = prices.(sheet)

    fn context, at ->
      context |> Context.Rent.clear_when_due(keep: keep, prices: prices, at: at) |> elem(0)
    end
  end
end

always = fn policy -> fn _sheet -> fn context, _at -> policy.(context) end end end

policies = [
  {"everything is sent", always.(& &1)},
  {"all but the last 10 results are cleared each time",
   always.(&Context.View.clear_tool_results(&1, keep: 10))},
  {"all but 10, when there are 20", always.(in_steps)},
  {"a summary after each 21 iterations, the last 10 stay", always.(summarize)},
  {"rent, the last 10 stay", rent.(10)},
  {"the limit for 10", 10},
  {"rent, the last 3 stay", rent.(3)},
  {"the limit for 3", 3}
]

IO.puts("#{Harness.environment()}\n")

files =
  for folder <- System.argv(),
      path <- Enum.sort(Path.wildcard(Path.join(folder, "{*.jsonl,tau*.json}"))),
      do: {Path.basename(path), Recorded.read(path)}

percent = fn cost, all ->
  sign = if cost > all, do: "+", else: ""
  "#{sign}#{:erlang.float_to_binary(100 * (cost - all) / max(all, 1), decimals: 1)} %"
end

# What the chart shows of each file, under the first sheet.
charted = [
  {"all but the last 10 results are cleared each time", "#b03030"},
  {"rent, the last 10 stay", "#2060a0"},
  {"the limit for 10", "#a0b8d0"},
  {"rent, the last 3 stay", "#2060a0"},
  {"the limit for 3", "#a0b8d0"}
]

groups =
  for {name, runs} <- files do
    layouts = Enum.map(runs, &Limit.layout/1)
    requests = layouts |> Enum.map(fn {_, _, requests} -> length(requests) end) |> Enum.sum()
    IO.puts("\n#{name}: #{length(runs)} run(s), #{requests} requests\n")
    names = Enum.map_join(sheets, " | ", & &1.name)

    IO.puts(
      "| reading / writing a token | #{names} | longest request | dearest run |\n|---|#{String.duplicate("---:|", length(sheets) + 2)}"
    )

    played =
      for {title, policy} <- policies do
        columns =
          for sheet <- sheets do
            costs =
              if is_integer(policy),
                do: Enum.map(layouts, &%{cost: Limit.find(&1, sheet, policy), peak: nil}),
                else: Enum.map(runs, &Play.play(&1, sheet, policy.(sheet)))

            {Enum.map(costs, & &1.cost), costs |> Enum.map(& &1.peak) |> Enum.max()}
          end

        {title, columns}
      end

    [{_everything, all} | _others] = played

    for {title, columns} <- played do
      sums =
        Enum.zip_with(columns, all, fn {costs, _}, {all, _} ->
          percent.(Enum.sum(costs), Enum.sum(all))
        end)

      {_costs, peak} = hd(columns)

      dearest =
        for {{costs, _}, {all, _}} <- Enum.zip(columns, all),
            {cost, all} <- Enum.zip(costs, all),
            do: {(cost - all) / max(all, 1), cost, all}

      {_share, cost, before} = Enum.max(dearest)

      IO.puts(
        "| #{title} | #{Enum.join(sums, " | ")} | #{peak || ""} | #{percent.(cost, before)} |"
      )
    end

    sum = fn [{costs, _peak} | _sheets] -> Enum.sum(costs) end
    everything = sum.(all)

    bars =
      for {title, colour} <- charted,
          {^title, columns} <- played,
          do: {title, colour, (sum.(columns) - everything) / max(everything, 1)}

    {name, bars}
  end

if groups != [] do
  note =
    "Input tokens at 0.1 (read) and 1.25 (written) of their price, beside sending everything. Whether the task is solved is not measured."

  File.write!(
    Path.join(__DIR__, "../assets/policies.svg"),
    Chart.bars("What a run costs, by when old tool results are cleared", note, groups)
  )
end
