defmodule AshAgent.Demo.Agent do
  @moduledoc false

  # The agent loop, told as it happens.

  import AshAgent.Demo.Terminal

  alias AshAgent.{Context, Runtime}
  alias AshAgent.Demo.{Playback, Tools}
  alias AshAgent.LLM.Scripted

  @question "Look back: which tools were called, how many bytes is it all as a request, and did anything go wrong?"

  # A scripted model goes on with the conversation that was played.
  def go_on(played) do
    headline("The agent loop goes on with it: a scripted model, three real tools")
    context = played |> Playback.idle() |> Context.add_user_message(@question)
    # As fast as somebody reads.
    run(context, Scripted.new(script(), delay: 25), played)
  end

  defp run(context, llm, played) do
    before = context.current_iteration
    show_message(%{role: :user, content: @question})

    opts = [
      llm: llm,
      tools: Tools.all(),
      runtime_context: %{conversation: played},
      on_event: &tell/3
    ]

    case context |> Runtime.run(opts) |> once_more(opts) do
      {:ok, result} ->
        show_answer(result)
        show_turn(result.context, before)
        result.context

      {:error, error} ->
        stop(words(error))
    end
  end

  # What broke off is in the conversation, and the model goes on from there.
  defp once_more({:error, %{context: context} = error} = reply, opts) do
    case context |> Context.to_messages() |> List.last() do
      %{state: :interrupted, content: text} ->
        line("", red(words(error)))
        line("", "#{bytes(byte_size(text(text)))} of the answer are kept, and the loop goes on:")
        Runtime.run(context, opts)

      _nothing_came ->
        reply
    end
  end

  defp once_more(reply, _opts), do: reply

  # ---- the script

  defp script do
    [
      %{
        content: [
          %{
            type: :thinking,
            text: "Two of these do not depend on each other.",
            provider_metadata: %{provider: :anthropic, signature: "c2lnbmVk"}
          },
          %{type: :text, text: "I'll count and measure at once."}
        ],
        tool_calls: [
          call("look_1", "count_calls", %{}),
          call("look_2", "measure_request", %{"provider" => "openai_chat"})
        ]
      },
      %{
        content: "Now what went wrong.",
        tool_calls: [call("look_3", "find_text", %{"text" => "error"})]
      },
      %{
        content: "It asks me to try again.",
        tool_calls: [call("look_4", "find_text", %{"text" => "error"})]
      },
      # The connection is cut in the middle of the answer.
      fn context -> {:cut, summary(context)} end,
      &summary/1
    ]
  end

  defp call(id, name, arguments), do: %{id: id, name: name, arguments: arguments}

  # The answer is made of what the tools said.
  defp summary(context) do
    results =
      for iteration <- Enum.take(Context.iterations(context), -4),
          %{id: "look_" <> _ = id, result: {:ok, result}} <- iteration.tool_calls,
          into: %{},
          do: {id, result}

    %{"look_1" => tools, "look_2" => %{"bytes" => bytes}, "look_4" => %{"found" => found}} =
      results

    calls = for {_name, %{"calls" => calls}} <- tools, do: calls
    failed = for {name, %{"failed" => failed}} <- tools, failed > 0, do: name

    "I called #{map_size(tools)} tools #{Enum.sum(calls)} times; " <>
      if(failed == [], do: "none failed", else: "failed: #{Enum.join(failed, ", ")}") <>
      ". The text \"error\" stands in #{counted(found, "message")}, and all of it makes a request of #{bytes(bytes)}."
  end

  # ---- its rounds, as they happen

  defp tell([:ash_agent, :runtime | name], measurements, metadata),
    do: told(name, measurements, metadata)

  defp told([:iteration, :start], _, %{iteration: number}) do
    Process.put(:tools, [])
    Process.put(:saying, nil)
    IO.puts(bright("  iteration #{number}"))
  end

  # As it comes.
  defp told([:llm, :delta], _, %{events: events}) do
    for {kind, part, text} when kind in [:text, :thinking] <- events do
      if Process.put(:saying, {kind, part}) != {kind, part}, do: begin_line(kind)
      text |> String.split(~r/(?<=\s)/) |> Enum.each(&say/1)
    end
  end

  defp told([:llm, :stop], %{tool_calls: calls} = measured, metadata) do
    end_line()
    does = if calls == 0, do: "answers", else: "calls #{counted(calls, "tool")}"
    said = "says #{bytes(measured.content_bytes)}"

    first =
      for time <- [measured[:time_to_first_token]], time, do: "the first after #{span(time)}"

    told = [does, said, took(measured)] ++ first ++ usage(metadata[:usage])
    line("model", Enum.join(told, ", "))
  end

  defp told([:tool, :start], measured, %{tool: tool, tool_call_id: id}),
    do: line("→ #{id}", "#{tool}, #{bytes(measured.arguments_bytes)} of arguments")

  defp told([:tool, :stop], measured, %{tool: tool, tool_call_id: id, status: status}) do
    Process.put(:tools, [measured.duration | Process.get(:tools)])
    line = "#{tool} #{if status == :error, do: "✗", else: "✓"}, "
    line = line <> "#{bytes(measured.result_bytes)}, #{took(measured)}"
    line("← #{id}", if(status == :error, do: red(line), else: line))
  end

  defp told([:tool, :exception], measured, %{tool: tool, tool_call_id: id} = metadata),
    do: line("← #{id}", red("#{tool} ✗ #{inspect(metadata.reason)}, #{took(measured)}"))

  defp told([:iteration, :stop], %{tool_calls: calls}, _) when calls > 1 do
    durations = Process.get(:tools)

    line(
      "",
      "at once: #{span(Enum.max(durations, fn -> 0 end))}, one by one: #{span(Enum.sum(durations))}"
    )
  end

  defp told([:llm, :exception], measured, _) do
    end_line()
    line("model", red("no whole answer, #{took(measured)}"))
  end

  defp told(_name, _measurements, _metadata), do: :ok

  @indent 17
  @wide 100

  defp begin_line(kind) do
    end_line()
    IO.write(String.pad_trailing("    " <> %{text: "says", thinking: "thinks"}[kind], @indent))
    Process.put(:column, @indent)
  end

  defp say(word) do
    column = Process.get(:column) + String.length(word)

    if column > @wide do
      IO.write("\n" <> String.duplicate(" ", @indent) <> word)
      Process.put(:column, @indent + String.length(word))
    else
      IO.write(word)
      Process.put(:column, column)
    end
  end

  defp end_line, do: if(Process.put(:column, nil), do: IO.write("\n"))

  defp line(who, what), do: IO.puts("    " <> String.pad_trailing(who, 13) <> what)
  defp took(%{duration: duration}), do: span(duration)
  defp span(native), do: native |> microseconds() |> time()

  defp usage(%{input_tokens: read, output_tokens: written}),
    do: ["#{grouped(read)} tokens in, #{written} out"]

  defp usage(_usage), do: []

  # ---- what came of it

  defp show_answer(result) do
    IO.puts("\n#{inspect(result)} says:")
    for line <- wrapped(result.output || "(nothing)"), do: IO.puts("  " <> line)
  end

  defp wrapped(text) do
    text
    |> String.split()
    |> Enum.chunk_while(
      "",
      fn
        word, "" -> {:cont, word}
        word, line when byte_size(line) + byte_size(word) > 96 -> {:cont, line, word}
        word, line -> {:cont, line <> " " <> word}
      end,
      &{:cont, &1, nil}
    )
    |> Enum.take(12)
  end

  defp show_turn(context, first) do
    IO.puts("In the conversation these rounds are:")

    first..context.current_iteration
    |> Enum.flat_map(&Context.get_iteration_messages(context, &1))
    |> Enum.drop_while(&(&1.role != :assistant))
    |> Enum.drop(-1)
    |> Enum.take(24)
    |> Enum.each(&show_message/1)
  end

  defp words(error), do: Exception.message(error)
end
