# Compares requests with the same conversation kept as maps in the provider's own form and encoded by a JSON library:
#
#     MIX_ENV=prod mix run bench/requests.exs
#
# The maps are encoded with jiffy (Debian: erlang-jiffy), or with the next of the libraries in
# support/json_libraries.exs that is there. They are kept as OpenAI chat messages, so that nothing has to be converted: only encoding, copying and appending are compared.

Code.require_file("support/harness.exs", __DIR__)
Code.require_file("support/json_libraries.exs", __DIR__)

defmodule AshAgent.Bench.WireMaps do
  @moduledoc "A conversation as a list of OpenAI chat messages, newest first."

  def new(text), do: [%{"role" => "user", "content" => text}]

  def assistant(messages, text, id, arguments) do
    call = %{
      "id" => id,
      "type" => "function",
      "function" => %{"name" => "search", "arguments" => arguments}
    }

    [%{"role" => "assistant", "content" => text, "tool_calls" => [call]} | messages]
  end

  def result(messages, id, text),
    do: [%{"role" => "tool", "tool_call_id" => id, "content" => text} | messages]

  def body(messages, encode), do: encode.(%{"messages" => Enum.reverse(messages)})
end

defmodule AshAgent.Bench.TurnLoop do
  @moduledoc "The agent loop: append, hand over to a model process, make the body there."

  alias AshAgent.Bench.WireMaps
  alias AshAgent.Context

  @filler "All work and no play makes a dull agent. "

  def text(n, size), do: String.pad_trailing("message #{n} ", size, @filler)

  def arguments(n), do: ~s({"query":"#{text(n, 1000)}"})

  def model(make_body) do
    spawn_link(fn -> answer(make_body) end)
  end

  defp answer(make_body) do
    receive do
      {from, context} -> send(from, {self(), IO.iodata_length(make_body.(context))})
    end

    answer(make_body)
  end

  defp ask(model, context) do
    send(model, {self(), context})

    receive do
      {^model, bytes} -> bytes
    end
  end

  def native(turns, inputs) do
    model = model(&Context.encode_request!(&1, :openai_chat))

    {context, bytes} =
      for {text, id, arguments, result} <- Enum.take(inputs, turns),
          reduce: {Context.new("start"), 0} do
        {context, _} ->
          bytes = ask(model, context)

          context =
            context
            |> Context.add_assistant_message(text, [
              %{id: id, name: "search", arguments: arguments}
            ])
            |> Context.add_tool_results([{id, {:ok, result}}])

          {context, bytes}
      end

    stop(model)
    {Context.count_messages(context), bytes}
  end

  def maps(turns, inputs, encode) do
    model = model(&WireMaps.body(&1, encode))

    {messages, bytes} =
      for {text, id, arguments, result} <- Enum.take(inputs, turns),
          reduce: {WireMaps.new("start"), 0} do
        {messages, _} ->
          bytes = ask(model, messages)

          {messages |> WireMaps.assistant(text, id, arguments) |> WireMaps.result(id, result),
           bytes}
      end

    stop(model)
    {length(messages), bytes}
  end

  defp stop(model) do
    Process.unlink(model)
    Process.exit(model, :kill)
  end
end

alias AshAgent.Bench.{Harness, JSONLibraries, TurnLoop, WireMaps}
alias AshAgent.Context

# The first one is what the aims are about.
[%{name: library, encode: encode} | others] = JSONLibraries.all()

IO.puts("#{Harness.environment()}; maps with #{library}\n")
IO.puts("| work | maps | ours | | aim |\n|---|---|---|---|---|")

row = fn name, times, aim ->
  us = fn value -> :erlang.float_to_binary(value, decimals: if(value < 10, do: 2, else: 1)) end

  ratio =
    if times.ratio >= 1,
      do: "#{us.(times.ratio)} times slower",
      else: "#{us.(1 / times.ratio)} times faster"

  verdict = if aim, do: "#{aim} times: #{if 1 / times.ratio >= aim, do: "yes", else: "NO"}"

  IO.puts(
    "| #{name} | #{us.(times.plain)} us | #{us.(times.native)} us | #{ratio} | #{verdict} |"
  )
end

inputs =
  for i <- 1..1_000 do
    {TurnLoop.text(i, 2048), "call_#{i}", TurnLoop.arguments(i), TurnLoop.text(i, 2000)}
  end

# The bodies have the same messages; only the order of keys differs, so that their sizes are equal.
same? = &(&1 == &2)

for {turns, aim, batches} <- [{3, 1, 15}, {20, nil, 15}, {200, 100, 5}, {1_000, 400, 3}],
    turns < 1_000 or not Harness.quick?() do
  times =
    Harness.compare(
      fn -> TurnLoop.native(turns, inputs) end,
      fn -> TurnLoop.maps(turns, inputs, encode) end,
      same?,
      batches
    )

  row.("turn loop, #{turns} iterations", times, aim)
end

conversation = fn n ->
  for i <- 2..n, reduce: Context.new(TurnLoop.text(1, 2048)) do
    context when rem(i, 2) == 0 ->
      Context.add_assistant_message(context, TurnLoop.text(i, 2048))

    context ->
      Context.add_user_message(context, TurnLoop.text(i, 2048))
  end
end

maps = fn n ->
  for i <- n..1//-1,
      do: %{
        "role" => if(rem(i, 2) == 0, do: "assistant", else: "user"),
        "content" => TurnLoop.text(i, 2048)
      }
end

same_size? = &(IO.iodata_length(&1) == IO.iodata_length(&2))

for {n, aim} <- [{1_000, 80}, {3, 1}] do
  {context, messages} = {conversation.(n), maps.(n)}

  times =
    Harness.compare(
      fn -> Context.encode_request!(context, :openai_chat) end,
      fn -> WireMaps.body(messages, encode) end,
      same_size?
    )

  row.("body of #{n} messages, encoded before", times, aim)
end

# The tools are the same in every turn.
tools =
  for i <- 1..20 do
    query = %{"type" => "string", "description" => "Words of the document to be found"}
    parameters = %{"type" => "object", "properties" => %{"query" => query}}
    description = TurnLoop.text(i, 500)
    function = %{"name" => "tool_#{i}", "description" => description, "parameters" => parameters}
    %{"type" => "function", "function" => function}
  end

{context, messages} = {conversation.(3), Enum.reverse(maps.(3))}

for {name, fields} <- [
      {"20 tools", %{"tools" => tools}},
      {"20 tools as a fragment", %{"tools" => Context.JSON.fragment(tools)}}
    ] do
  times =
    Harness.compare(
      fn -> Context.encode_request!(context, :openai_chat, body: fields) end,
      fn -> encode.(%{"messages" => messages, "tools" => tools}) end,
      same_size?
    )

  row.("body of 3 messages, encoded before, and #{name}", times, 1)
end

for other <- others, {context, messages} = {conversation.(1_000), maps.(1_000)} do
  times =
    Harness.compare(
      fn -> Context.encode_request!(context, :openai_chat) end,
      fn -> WireMaps.body(messages, other.encode) end,
      same_size?
    )

  row.("body of 1000 messages, encoded before; maps with #{other.name}", times, nil)
end

# Each call needs a context whose messages have never been encoded; making them is outside the timing.
fresh = fn n, count -> for _ <- 1..count, do: conversation.(n) end
messages = maps.(1_000)

first =
  for context <- fresh.(1_000, 25) do
    {us, _} = :timer.tc(fn -> Context.encode_request!(context, :openai_chat) end)
    us
  end

plain =
  for _ <- 1..25 do
    {us, _} = :timer.tc(fn -> WireMaps.body(messages, encode) end)
    us
  end

{native, plain} = {Harness.median(first) / 1, Harness.median(plain) / 1}
times = %{native: native, plain: plain, ratio: native / plain}
row.("body of 1000 messages, encoded for the first time", times, 1.5)
