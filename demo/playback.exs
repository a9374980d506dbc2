defmodule AshAgent.Demo.Playback do
  @moduledoc false

  # A recorded conversation, played through the public API of AshAgent.Context call by call, as an agent loop would.

  import AshAgent.Demo.Terminal

  alias AshAgent.Context

  # The context that comes of it, with nothing shown.
  def context(file) do
    {context, _trail} = file |> read() |> steps() |> elem(0) |> run(file)
    context
  end

  def play(file) do
    {steps, left_out} = file |> read() |> steps()
    {context, trail} = run(steps, file)

    headline("#{name(file)}, played call by call")
    IO.puts("#{inspect(context)}")

    if left_out > 0,
      do: IO.puts("Left out: #{counted(left_out, "system message")} in the middle.")

    show_iterations(context)
    show_messages(context)
    show_wrong_result(trail)
    show_fork(context, trail)
    show_timings(context, trail)
    context
  end

  # ---- the script

  defp read(file) do
    with {:ok, text} <- File.read(file),
         {:ok, json} <- Context.JSON.decode(text),
         messages when is_list(messages) <- messages(json) do
      Context.Import.from_messages!(messages)
    else
      {:error, :eisdir} ->
        stop("#{name(file)}: a directory, not a file")

      {:error, reason} when is_atom(reason) ->
        stop("#{name(file)}: #{:file.format_error(reason)}")

      {:error, error} ->
        stop("#{name(file)}: #{Exception.message(error)}")

      nil ->
        stop("#{name(file)}: no list of messages, neither at the top nor under \"messages\"")
    end
  rescue
    error in Context.Error -> stop("#{name(file)}: #{Exception.message(error)}")
  end

  defp name(file), do: Path.relative_to_cwd(file)

  defp messages(list) when is_list(list), do: list
  defp messages(%{"messages" => list}) when is_list(list), do: list
  defp messages(%{"body" => body}), do: messages(body)
  defp messages(_json), do: nil

  # What an agent loop would be given, one after the other: the user's words, the model's answers, the tools' results.
  # Behind the prompt no loop adds a system message; the number of those is returned beside the rest.
  defp steps(imported) do
    {prompts, steps} = imported |> all_steps() |> Enum.split_while(&match?({:system, _}, &1))
    {left_out, steps} = Enum.split_with(steps, &match?({:system, _}, &1))
    {prompts ++ steps, length(left_out)}
  end

  defp all_steps(imported) do
    Enum.flat_map(Context.iterations(imported), fn iteration ->
      Enum.flat_map(iteration.messages, fn
        %{role: :system, content: prompt} ->
          [{:system, prompt}]

        %{role: :assistant} = message ->
          [{:assistant, message.content, Map.get(message, :tool_calls, [])}]

        %{content: [%{type: :tool_result} | _] = parts} ->
          [{:results, results(iteration, for(part <- parts, do: part.tool_use_id))}]

        %{role: :user, content: content} ->
          [{:user, content}]
      end)
    end)
  end

  defp results(iteration, ids) do
    for %{id: id, result: {outcome, value}} <- iteration.tool_calls, id in ids do
      # The chat format has no mark for a failed call: it is told in words.
      if outcome == :ok and is_binary(value) and value =~ ~r/^error\b/i,
        do: %{id: id, result: {:error, value}},
        else: %{id: id, result: {outcome, value}}
    end
  end

  # ---- the agent loop

  # The trail is every context there was, newest first, with the time its call took: all of them stay valid.
  defp run(script, file) do
    {prompts, script} = Enum.split_while(script, &match?({:system, _}, &1))
    opts = for {:system, prompt} <- prompts, do: {:system_prompt, prompt}

    case script do
      [{:user, input} | rest] ->
        {us, context} = timed(fn -> Context.new(input, opts) end)
        follow(rest, context, [{:new, us, context}])

      _ ->
        stop("#{name(file)}: the conversation does not begin with a user message")
    end
  rescue
    error in Context.Error -> stop("#{name(file)}: #{Exception.message(error)}")
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

  # Calls that nobody will answer any more stand in the way of the next message.
  def idle(context) do
    if Context.pending_tool_calls(context) == [],
      do: context,
      else: Context.interrupt(context, "the recording ends here")
  end

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

    origin = Enum.at(answers, div(length(answers), 2)) || idle(context)

    {us, fork} =
      timed(fn ->
        Context.add_user_message(origin, "Forget all that. What can you do for me?")
      end)

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
      ["the whole conversation, #{counted(length(steps), "call")}", time(Enum.sum(steps))],
      ["one call (median of these)", time(median(steps))],
      ["hand it to another process and back", often(fn -> there_and_back(context) end)],
      [
        "the same with its messages as Elixir terms",
        often(fn -> there_and_back(messages) end)
      ],
      [
        "list all #{counted(length(messages), "message")}",
        often(fn -> Context.to_messages(context) end)
      ],
      ["get one iteration", often(fn -> Context.get_iteration(context, 1) end)]
    ]

    table(["", "time"], rows)
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
end
