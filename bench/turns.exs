# What one turn costs at different lengths of a conversation, and a chart of it in assets/turns.svg:
#
#     MIX_ENV=prod mix run bench/turns.exs
#
# A turn is what an agent does anew each time: add an answer of 2 KB with a call and its result, hand the conversation to
# the process of the model, and make the body of the request there. The maps are kept as OpenAI chat messages.

Code.require_file("support/harness.exs", __DIR__)
Code.require_file("support/json_libraries.exs", __DIR__)
Code.require_file("support/chart.exs", __DIR__)

alias AshAgent.Bench.{Chart, Harness, JSONLibraries}
alias AshAgent.Context

defmodule AshAgent.Bench.Turn do
  @moduledoc false

  def text(n),
    do: String.pad_trailing("message #{n} ", 2048, "All work and no play makes a dull agent. ")

  def arguments(n), do: ~s({"query":"number #{n}"})

  def add_context(context, n) do
    context
    |> Context.add_assistant_message(text(n), [
      %{id: "call_#{n}", name: "search", arguments: arguments(n)}
    ])
    |> Context.add_tool_results([{"call_#{n}", {:ok, "found #{n}"}}])
  end

  def add_maps(messages, n) do
    call = %{
      "id" => "call_#{n}",
      "type" => "function",
      "function" => %{"name" => "search", "arguments" => arguments(n)}
    }

    answer = %{"role" => "assistant", "content" => text(n), "tool_calls" => [call]}

    [
      %{"role" => "tool", "tool_call_id" => "call_#{n}", "content" => "found #{n}"},
      answer | messages
    ]
  end

  def model(make_body), do: spawn_link(fn -> answer(make_body) end)

  def ask(model, conversation) do
    send(model, {self(), conversation})

    receive do
      {^model, bytes} -> bytes
    end
  end

  defp answer(make_body) do
    receive do
      {from, conversation} -> send(from, {self(), IO.iodata_length(make_body.(conversation))})
    end

    answer(make_body)
  end
end

alias AshAgent.Bench.Turn

# jiffy, and Elixir's own from 1.18 on.
libraries = Enum.filter(JSONLibraries.all(), &(&1.module in [:jiffy, JSON]))
libraries = if libraries == [], do: Enum.take(JSONLibraries.all(), 1), else: libraries
ours = Turn.model(&Context.encode_request!(&1, :openai_chat))

models =
  for library <- libraries,
      do: {library.name, Turn.model(&library.encode.(%{"messages" => Enum.reverse(&1)}))}

lengths =
  if Harness.quick?(), do: [10, 100, 1_000], else: [10, 30, 100, 300, 1_000, 3_000, 10_000]

us = fn value -> :erlang.float_to_binary(value / 1, decimals: if(value < 10, do: 2, else: 1)) end

names = Enum.map(models, &elem(&1, 0))
columns = Enum.map_join(names, &" maps, #{&1} | ours is |")

IO.puts("#{Harness.environment()}\n")
IO.puts("| iterations behind a turn | ours |#{columns}")
IO.puts("|---|---|#{String.duplicate("---|", 2 * length(names))}")

rows =
  for n <- lengths do
    context = Enum.reduce(1..n, Context.new("start"), &Turn.add_context(&2, &1))

    messages =
      Enum.reduce(1..n, [%{"role" => "user", "content" => "start"}], &Turn.add_maps(&2, &1))

    # What came before the turn has been sent in the turn before.
    Turn.ask(ours, context)

    times =
      for {name, theirs} <- models do
        times =
          Harness.compare(
            fn -> Turn.ask(ours, Turn.add_context(context, n + 1)) end,
            fn -> Turn.ask(theirs, Turn.add_maps(messages, n + 1)) end,
            &==/2
          )

        {name, times}
      end

    native = Harness.median(for {_, times} <- times, do: times.native)

    compared =
      for {_, times} <- times,
          do: " #{us.(times.plain)} us | #{us.(1 / times.ratio)} times faster |"

    IO.puts("| #{n} | #{us.(native)} us |#{compared}")
    {n, native, Map.new(times)}
  end

unless Harness.quick?() do
  colours = ["#b03030", "#c08020"]

  maps =
    for {name, colour} <- Enum.zip(names, colours),
        do: {"maps, #{name}", colour, for({n, _, times} <- rows, do: {n, times[name].plain})}

  lines = maps ++ [{"AshAgent.Context", "#2060b0", for({n, native, _} <- rows, do: {n, native})}]

  title = "One turn: add an answer and a result, hand over, make the body"
  chart = Chart.svg(title, "iterations of 2 KB behind the turn", "microseconds", lines)
  File.write!(Path.join(__DIR__, "../assets/turns.svg"), chart)
end
