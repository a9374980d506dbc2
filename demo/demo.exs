# Plays a tool-using conversation through the public API of AshAgent.Context, call by call as an agent loop would:
#
#     bin/demo [FILE]
#
# FILE is JSON in OpenAI chat format: a list of messages, or an object with that list under "messages".

defmodule AshAgent.Demo do
  @moduledoc false

  alias AshAgent.Context

  @default Path.expand("conversation.json", __DIR__)

  def main([]), do: play(@default)
  def main([file]), do: play(file)
  def main(_args), do: stop("usage: bin/demo [FILE]")

  defp play(file) do
    script = file |> read() |> steps()
    {context, trail} = run(script)

    headline("#{Path.relative_to_cwd(file)}, played call by call")
    IO.puts("#{inspect(context)}")
    show_iterations(context)
    show_messages(context)
    show_wrong_result(trail)
    show_fork(context, trail)
    show_timings(context, trail)
  end

  # ---- the script

  defp read(file) do
    with {:ok, text} <- File.read(file),
         {:ok, json} <- Context.JSON.decode(text),
         messages when is_list(messages) <- messages(json) do
      Context.from_messages!(messages)
    else
      {:error, reason} when is_atom(reason) -> stop("#{file}: #{:file.format_error(reason)}")
      {:error, error} -> stop("#{file}: #{Exception.message(error)}")
      nil -> stop("#{file}: no list of messages, neither at the top nor under \"messages\"")
    end
  rescue
    error in Context.Error -> stop("#{file}: #{Exception.message(error)}")
  end

  defp messages(list) when is_list(list), do: list
  defp messages(%{"messages" => list}) when is_list(list), do: list
  defp messages(%{"body" => body}), do: messages(body)
  defp messages(_json), do: nil

  # What an agent loop would be given, one after the other: the user's words, the model's answers, the tools' results.
  defp steps(imported) do
    Enum.flat_map(Context.iterations(imported), fn iteration ->
      Enum.flat_map(iteration.messages, fn
        %{role: :system, content: prompt} ->
          [{:system, prompt}]

        %{role: :assistant} = message ->
          [{:assistant, message.content, Map.get(message, :tool_calls, [])}]

        %{content: [%{type: :tool_result} | _]} ->
          [{:results, results(iteration)}]

        %{role: :user, content: content} ->
          [{:user, content}]
      end)
    end)
  end

  defp results(iteration) do
    for %{id: id, result: {outcome, value}} <- iteration.tool_calls do
      # The chat format has no mark for a failed call: it is told in words.
      if outcome == :ok and is_binary(value) and value =~ ~r/^error\b/i,
        do: %{id: id, result: {:error, value}},
        else: %{id: id, result: {outcome, value}}
    end
  end

  # ---- the agent loop

  # The trail is every context there was, newest first, with the time its call took: all of them stay valid.
  defp run(script) do
    {prompts, script} = Enum.split_while(script, &match?({:system, _}, &1))
    opts = for {:system, prompt} <- prompts, do: {:system_prompt, prompt}

    case script do
      [{:user, input} | rest] ->
        {us, context} = timed(fn -> Context.new(input, opts) end)
        follow(rest, context, [{:new, us, context}])

      _ ->
        stop("the conversation does not begin with a user message")
    end
  end

  defp follow([], context, trail), do: {context, trail}

  defp follow([step | rest], context, trail) do
    {us, context} = timed(fn -> step(step, context) end)
    follow(rest, context, [{elem(step, 0), us, context} | trail])
  end

  defp step({:user, input}, context), do: Context.add_user_message(context, input)

  defp step({:assistant, content, calls}, context),
    do: Context.add_assistant_message(context, content, calls)

  defp step({:results, results}, context), do: Context.add_tool_results(context, results)

  # ---- what a person wants to see

  defp show_iterations(context) do
    headline("Iterations")

    rows =
      for iteration <- Context.iterations(context) do
        [
          "#{iteration.number}",
          "#{length(iteration.messages)}",
          duration(iteration),
          Enum.map_join(iteration.tool_calls, ", ", &outcome/1)
        ]
      end

    table(["iteration", "messages", "duration", "tool calls"], rows)
  end

  defp outcome(%{name: name, result: nil}), do: "#{name} …"
  defp outcome(%{name: name, result: {:ok, _}}), do: "#{name} ✓"
  defp outcome(%{name: name, result: {:error, _}}), do: red("#{name} ✗")

  defp duration(%{completed_at: nil}), do: "open"

  defp duration(iteration),
    do: time(DateTime.diff(iteration.completed_at, iteration.started_at, :microsecond))

  # The iteration with the most to see: an error, else the most tool calls.
  defp show_messages(context) do
    iteration =
      Enum.max_by(
        Context.iterations(context),
        &{Enum.any?(&1.tool_calls, fn c -> error?(c) end), length(&1.tool_calls)}
      )

    headline("The messages of iteration #{iteration.number}")
    Enum.each(Context.get_iteration_messages(context, iteration.number), &show_message/1)
  end

  defp error?(call), do: match?(%{result: {:error, _}}, call)

  defp show_message(%{content: [%{type: :tool_result} | _] = results}) do
    for result <- results do
      line = clip("#{result.tool_use_id}: #{text(result.content)}", 17)
      IO.puts(label("tool result") <> if(result.is_error, do: red(line), else: line))
    end
  end

  defp show_message(message) do
    if message.content, do: IO.puts(label(message.role) <> clip(text(message.content), 17))

    for call <- Map.get(message, :tool_calls, []) do
      IO.puts(label("calls") <> clip("#{call.id}: #{call.name} #{json(call.arguments)}", 17))
    end
  end

  defp show_wrong_result(trail) do
    headline("A wrong tool result")

    case Enum.find(trail, fn {_step, _us, context} ->
           length(Context.pending_tool_calls(context)) > 0
         end) do
      nil ->
        IO.puts("This conversation calls no tool.")

      {_step, _us, waiting} ->
        [%{id: id} | _] = Context.pending_tool_calls(waiting)
        IO.puts("Waiting for results: #{inspect(waiting)}\n")

        refused("a result for a call nobody made", fn ->
          Context.add_tool_results(waiting, [{"call_nobody_made", {:ok, "?"}}])
        end)

        refused("two results for one call", fn ->
          Context.add_tool_results(waiting, [{id, {:ok, "1"}}, {id, {:ok, "2"}}])
        end)

        refused("the next message without the results", fn ->
          Context.add_user_message(waiting, "Are you there?")
        end)

        IO.puts("\nAnd the context is as it was: #{inspect(waiting)}")
    end
  end

  defp refused(what, fun) do
    fun.()
    IO.puts("  #{what}: accepted?")
  rescue
    error in Context.Error -> IO.puts("  #{what}:\n      #{red(Exception.message(error))}")
  end

  defp show_fork(context, trail) do
    headline("A fork")
    # Half way, where the model has just answered and no call is open.
    answers =
      for {:assistant, _us, answer} <- trail, Context.pending_tool_calls(answer) == [], do: answer

    origin = Enum.at(answers, div(length(answers), 2), context)

    {us, fork} =
      timed(fn -> Context.add_user_message(origin, "Forget all that. What can you do for me?") end)

    fork = Context.add_assistant_message(fork, "Whatever my tools allow. Where shall we begin?")

    IO.puts("Both ends go on from #{inspect(origin)}; the fork took #{time(us)}.\n")
    show_end("the conversation", context)
    show_end("the fork", fork)
    IO.puts("The point they share is untouched: #{inspect(origin)}")
  end

  defp show_end(name, context) do
    IO.puts("#{bright(name)}: #{inspect(context)}")
    context |> Context.to_messages() |> Enum.take(-2) |> Enum.each(&show_message/1)
    IO.puts("")
  end

  defp show_timings(context, trail) do
    headline("Timings")
    steps = for {_step, us, _context} <- trail, do: us
    messages = Context.to_messages(context)

    rows = [
      ["the whole conversation, #{length(steps)} calls", time(Enum.sum(steps))],
      ["one call (median of these)", time(median(steps))],
      ["hand it to another process and back", often(fn -> there_and_back(context) end)],
      [
        "the same with its messages as Elixir terms",
        often(fn -> there_and_back(messages) end)
      ],
      ["list all #{length(messages)} messages", often(fn -> Context.to_messages(context) end)],
      ["get one iteration", often(fn -> Context.get_iteration(context, 1) end)]
    ]

    table(["", "time"], rows)
  end

  # ---- measuring

  defp timed(fun) do
    started = System.monotonic_time()
    result = fun.()

    {System.convert_time_unit(System.monotonic_time() - started, :native, :nanosecond) / 1000,
     result}
  end

  defp often(fun) do
    time(median(for _ <- 1..1_000, do: elem(timed(fun), 0)))
  end

  defp there_and_back(term) do
    send(echo(), {self(), term})

    receive do
      {:echo, term} -> term
    end
  end

  defp echo do
    Process.get(:echo) || tap(spawn_link(&echo_loop/0), &Process.put(:echo, &1))
  end

  defp echo_loop do
    receive do
      {from, term} -> send(from, {:echo, term})
    end

    echo_loop()
  end

  defp median(times), do: times |> Enum.sort() |> Enum.at(div(length(times), 2))

  # ---- words and columns

  defp time(us) when us < 10, do: "#{:erlang.float_to_binary(us / 1, decimals: 1)} µs"
  defp time(us) when us < 1000, do: "#{round(us)} µs"
  defp time(us), do: "#{:erlang.float_to_binary(us / 1000, decimals: 1)} ms"

  defp text(nil), do: ""
  defp text(text) when is_binary(text), do: text
  defp text(parts), do: Enum.map_join(parts, " ", &Map.get(&1, :text, "[#{&1.type}]"))

  defp json(term), do: term |> Context.JSON.encode() |> IO.iodata_to_binary()

  # One line of the terminal, after `used` columns.
  defp clip(text, used) do
    text = String.replace(text, ~r/\s+/, " ")
    room = width() - used
    if String.length(text) > room, do: String.slice(text, 0, room - 1) <> "…", else: text
  end

  defp width do
    case :io.columns() do
      {:ok, columns} -> max(columns, 60)
      _ -> 120
    end
  end

  defp label(role), do: bright(String.pad_trailing("  #{role}", 17))

  defp headline(text),
    do: IO.puts("\n" <> bright(text) <> "\n" <> String.duplicate("─", String.length(text)))

  # Each column is as wide as its widest cell, the last one as long as it likes. Numbers stand to the right.
  defp table(header, rows) do
    widths =
      Enum.zip_with([header | rows], fn cells ->
        cells |> Enum.map(&String.length/1) |> Enum.max()
      end)

    IO.puts(bright(line(header, widths)))
    Enum.each(rows, &IO.puts(line(&1, widths)))
  end

  defp line(cells, widths) do
    {columns, [last]} = Enum.split(Enum.zip(cells, widths), -1)
    Enum.map_join(columns, &("  " <> pad(&1))) <> "  " <> elem(last, 0)
  end

  defp pad({cell, width}) do
    if cell =~ ~r/^\d/,
      do: String.pad_leading(cell, width),
      else: String.pad_trailing(cell, width)
  end

  defp bright(text), do: paint(text, [:bright])
  defp red(text), do: paint(text, [:red])
  defp paint(text, codes), do: IO.iodata_to_binary(IO.ANSI.format([codes, text]))

  defp stop(message) do
    IO.puts(:stderr, message)
    System.halt(1)
  end
end

AshAgent.Demo.main(System.argv())
