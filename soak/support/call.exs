defmodule AshAgent.Soak.Call do
  @moduledoc """
  Every call of the package goes through here: it is timed, and its answer is judged.

  In the control run nothing of the package is called. An answer that was recorded for a call of this name in the first
  round comes instead, made anew from its external format; a call that was long, and so ran on a dirty scheduler, keeps
  one busy, which are so in all for as large a part of the time. So the control makes terms of the same kinds and sizes and has as much garbage, and the processes
  do all else in the same way.
  """

  alias AshAgent.Context
  alias AshAgent.Soak.{Faults, Histogram}

  # Recorded answers a name, and every how many calls one is replaced.
  @recordings 64
  @rarely 97
  # What takes longer runs on a dirty scheduler, mostly.
  @dirty_us 150
  @longest_ms 20

  @callers_mistakes [ArgumentError, FunctionClauseError]

  @doc "How the calls of this process go: a map with `:mode`, `:histogram` and what else is read below."
  def enter(env), do: Process.put(__MODULE__, env)
  def env, do: Process.get(__MODULE__)
  def native?, do: env().mode == :native

  @doc "What `fun` answers; `:refused` when that is an `AshAgent.Context.Error`, raised or not."
  def call(name, fun), do: call(name, [Context.Error], fun)

  @doc "The same for wrong arguments, which may raise what callers' mistakes raise."
  def hostile(name, fun), do: call(name, [Context.Error | @callers_mistakes], fun)

  @doc "Notes a fault when a condition does not hold. In the control, answers have nothing to do with each other."
  def expect(condition, what) do
    if native?() and not condition, do: unexpected(what)
    :ok
  end

  defp call(name, allowed, fun) do
    case env() do
      %{mode: :native} = env -> native(env, name, allowed, fun)
      env -> control(env, name)
    end
  end

  # ---- with the package

  defp native(env, name, allowed, fun) do
    started = System.monotonic_time()
    answer = answer(fun, allowed)
    took = System.convert_time_unit(System.monotonic_time() - started, :native, :nanosecond)
    Histogram.add(env.histogram, name, took, answer == :refused)
    if env.record?, do: record(env, name, answer, div(took, 1000))
    if env.inject, do: inject(env.inject, answer)
    answer
  end

  defp answer(fun, allowed) do
    case fun.() do
      {:error, %Context.Error{} = error} -> refused(error)
      answer -> answer
    end
  rescue
    exception ->
      if exception.__struct__ in allowed,
        do: refused(exception),
        else: unexpected(Exception.format(:error, exception, __STACKTRACE__))

      :refused
  end

  # A refusal has to have words.
  defp refused(error) do
    if not String.valid?(Exception.message(error)),
      do: unexpected("no words in #{inspect(error)}")

    :refused
  end

  defp unexpected(what) do
    place = env().place
    step = Process.get(:step)
    Faults.add(:unexpected, fn -> "#{place}, step #{step}: #{what}" end)
  end

  defp record(env, name, answer, us) do
    number = Process.get({:calls, name}, 0)
    Process.put({:calls, name}, number + 1)

    if number < div(@recordings, env.workers) + 1 or rem(number, @rarely) == 0 do
      slot = :erlang.phash2({self(), number}, @recordings)
      term = answer |> hollow() |> :erlang.term_to_binary()
      us = if us > @dirty_us, do: us, else: 0
      :ets.insert(env.recordings, {{name, slot}, term, us})
    end
  end

  defp hollow(%Context{}), do: :"$context"

  defp hollow(tuple) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> Enum.map(&hollow/1) |> List.to_tuple()

  defp hollow(term), do: term

  # ---- without

  defp control(env, name) do
    slot = :rand.uniform(@recordings) - 1
    Histogram.add(env.histogram, name, 1, false)

    case recorded(env.recordings, name, slot, @recordings) do
      nil ->
        :refused

      {term, us} ->
        if us > 0, do: busy(env, us)
        term |> :erlang.binary_to_term() |> fill(env.context)
    end
  end

  defp recorded(_recordings, _name, _slot, 0), do: nil

  defp recorded(recordings, name, slot, left) do
    case :ets.lookup(recordings, {name, slot}) do
      [{_, term, us}] -> {term, us}
      [] -> recorded(recordings, name, rem(slot + 1, @recordings), left - 1)
    end
  end

  # Keeps a dirty scheduler busy, for whole milliseconds, unless they have been for long enough already.
  defp busy(%{idle: idle}, us) do
    if :atomics.get(idle, 1) == 1,
      do: :erts_debug.dirty_cpu(:wait, us |> div(1000) |> max(1) |> min(@longest_ms))
  end

  defp fill(:"$context", context), do: context

  defp fill(tuple, context) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> Enum.map(&fill(&1, context)) |> List.to_tuple()

  defp fill(term, _context), do: term

  # ---- faults on purpose

  # One call of a hundred leaves its context, or 1 KB, behind.
  defp inject(:leak, %Context{} = context),
    do: sometimes(100, fn -> :ets.insert(:soak_leak, {make_ref(), context}) end)

  defp inject(:bytes, _answer),
    do: sometimes(100, fn -> :ets.insert(:soak_leak, {make_ref(), :rand.bytes(1024)}) end)

  # On OTP 25, this keeps a normal scheduler for some milliseconds.
  defp inject(:hold, _answer),
    do: sometimes(100, fn -> :crypto.pbkdf2_hmac(:sha256, "a", "b", 20_000, 32) end)

  defp inject(:log, _answer),
    do: sometimes(2_000, fn -> spawn(fn -> raise "on purpose" end) end)

  defp inject(_fault, _answer), do: :ok

  defp sometimes(one_in, fun) do
    number = Process.get(:inject, 0) + 1
    Process.put(:inject, number)
    if rem(number, one_in) == 0, do: fun.()
  end
end
