# Many processes at once, and many conversations that wait:
#
#     MIX_ENV=prod mix run bench/many.exs
#
# 16 processes do the same work on contexts of their own, or all on one. The work on one scheduler and on all of them gives the
# scaling, beside that of a control that calls a NIF that does nothing: the machine's own limit.

Code.require_file("support/harness.exs", __DIR__)

defmodule AshAgent.Bench.Many do
  @moduledoc false

  alias AshAgent.Bench.Harness
  alias AshAgent.Context
  alias AshAgent.Context.Native

  @processes 16
  @rounds if Harness.quick?(), do: 3, else: 9
  @milliseconds if Harness.quick?(), do: 2, else: 20

  def text(n),
    do: String.pad_trailing("message #{n} ", 2048, "All work and no play makes a dull agent. ")

  def conversation(messages) do
    for n <- 2..messages, reduce: Context.new(text(1)) do
      context when rem(n, 2) == 0 -> Context.add_assistant_message(context, text(n))
      context -> Context.add_user_message(context, text(n))
    end
  end

  # The medians of the times on one scheduler and on all of them, in calls a second.
  def scaling(work) do
    calls = calls(work.(1), 16)

    rounds =
      for _ <- 1..@rounds do
        {on(1, work, calls), on(System.schedulers(), work, calls)}
      end

    {one, all} = Enum.unzip(rounds)
    {Harness.median(one), Harness.median(all)}
  end

  # As many calls as fill the time of a round.
  defp calls(work, calls) do
    {us, _} = :timer.tc(fn -> repeat(work, calls) end)
    if us < 1_000, do: calls(work, calls * 4), else: ceil(calls * @milliseconds * 1_000 / us)
  end

  defp on(schedulers, work, calls) do
    :erlang.system_flag(:schedulers_online, schedulers)
    parent = self()

    pids =
      for n <- 1..@processes do
        spawn_link(fn ->
          do_work = work.(n)
          repeat(do_work, div(calls, 4))
          send(parent, {:ready, self()})
          receive do: (:go -> repeat(do_work, calls))
          send(parent, {:done, self()})
        end)
      end

    for pid <- pids, do: receive(do: ({:ready, ^pid} -> :ok))
    started = System.monotonic_time(:nanosecond)
    for pid <- pids, do: send(pid, :go)
    for pid <- pids, do: receive(do: ({:done, ^pid} -> :ok))
    took = System.monotonic_time(:nanosecond) - started
    :erlang.system_flag(:schedulers_online, System.schedulers())
    @processes * calls * 1.0e9 / took
  end

  defp repeat(_work, 0), do: :ok

  defp repeat(work, n) do
    work.()
    repeat(work, n - 1)
  end

  # Each process gets the work that its calls do: a function of its number.
  def works do
    shared = conversation(200)
    _ = Context.encode_request!(shared, :openai_chat)
    answer = text(201)

    turn = fn context ->
      fn ->
        context
        |> Context.add_assistant_message(answer)
        |> Context.encode_request!(:openai_chat)
      end
    end

    handed_over = fn context ->
      echo = spawn_link(fn -> echo() end)

      fn ->
        send(echo, {self(), context})
        receive do: ({^echo, context} -> context)
      end
    end

    own = fn ->
      context = conversation(20)
      _ = Context.encode_request!(context, :openai_chat)
      context
    end

    [
      {"nothing (control)", fn _ -> fn -> Native.live_responses() end end},
      {"append, own contexts",
       fn _ -> with(c <- own.(), do: fn -> Context.add_assistant_message(c, answer) end) end},
      {"append, one context",
       fn _ -> fn -> Context.add_assistant_message(shared, answer) end end},
      {"append and encode, own contexts", fn _ -> turn.(own.()) end},
      {"append and encode, one context", fn _ -> turn.(shared) end},
      {"encode, one context",
       fn _ -> fn -> Context.encode_request!(shared, :openai_chat) end end},
      {"messages, one context", fn _ -> fn -> Context.to_messages(shared) end end},
      {"hand over, own contexts", fn _ -> handed_over.(own.()) end},
      {"hand over, one context", fn _ -> handed_over.(shared) end}
    ]
  end

  defp echo do
    receive do: ({from, context} -> send(from, {self(), context}))
    echo()
  end

  def resident do
    "/proc/self/statm" |> File.read!() |> String.split() |> Enum.at(1) |> String.to_integer()
  end

  # Bytes of memory that `count` conversations take, each made by `make` and kept by `keep`.
  def kept(count, make, keep) do
    parent = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        :erlang.garbage_collect()
        before = resident()
        table = keep.(Stream.map(1..count, make))
        :erlang.garbage_collect()
        send(parent, {:kept, (resident() - before) * 4096 / count})
        is_reference(table)
      end)

    receive do
      {:kept, bytes} ->
        receive do: ({:DOWN, ^monitor, :process, ^pid, _} -> bytes)
    end
  end

  def idle(count) do
    in_ets = fn items ->
      table = :ets.new(:idle, [:set, :private])
      items |> Stream.with_index() |> Enum.each(fn {item, n} -> :ets.insert(table, {n, item}) end)
      table
    end

    [
      maps: kept(count, fn n -> maps(n, 20) end, in_ets),
      contexts: kept(count, fn n -> short(n, 20) end, in_ets)
    ]
  end

  # Texts of 200 bytes, which differ between conversations.
  defp said(conversation, n),
    do: String.pad_trailing("#{conversation} #{n} ", 200, "All work and no play. ")

  defp short(conversation, messages) do
    for n <- 2..messages, reduce: Context.new(said(conversation, 1)) do
      context when rem(n, 2) == 0 -> Context.add_assistant_message(context, said(conversation, n))
      context -> Context.add_user_message(context, said(conversation, n))
    end
  end

  defp maps(conversation, messages) do
    for n <- 1..messages do
      %{role: if(rem(n, 2) == 0, do: :assistant, else: :user), content: said(conversation, n)}
    end
  end
end

alias AshAgent.Bench.{Harness, Many}

IO.puts("#{Harness.environment()}\n")
IO.puts("16 processes; thousands of calls a second\n")

IO.puts(
  "| work | one scheduler | all | times | of the control's | aim: 0.9 |\n|---|---|---|---|---|---|"
)

thousands = &:erlang.float_to_binary(&1 / 1000, decimals: 1)
times = &:erlang.float_to_binary(&1, decimals: 2)

for {name, work} <- Many.works(), reduce: nil do
  control ->
    {one, all} = Many.scaling(work)
    scaling = all / one
    control = control || scaling
    part = scaling / control
    verdict = if part >= 0.9, do: "yes", else: "NO"

    IO.puts(
      "| #{name} | #{thousands.(one)} | #{thousands.(all)} | #{times.(scaling)} | #{times.(part)} | #{verdict} |"
    )

    control
end

count = if Harness.quick?(), do: 10_000, else: 100_000
idle = Many.idle(count)

IO.puts("""

#{count} conversations of 20 messages of 200 bytes that wait, kept in ETS: #{round(idle[:maps])} bytes each as maps, \
#{round(idle[:contexts])} as contexts.
""")
