defmodule AshAgent.Bench.Harness do
  @moduledoc """
  Times two ways to the same result in one run.

  Each way is called in batches, by turns, every batch in a process of its own, whose heap has grown to what the calls
  need and has just been collected; the figure is the median over the batches of the time per call. Collecting the
  garbage of the calls themselves is part of it. What the functions close over is made, and the results are compared,
  outside the timing.
  """

  # BENCH_QUICK=1 tells in a minute or two whether everything runs, and roughly where it stands.
  @quick System.get_env("BENCH_QUICK") == "1"
  @batches if @quick, do: 3, else: 15
  @batch_us if @quick, do: 5_000, else: 20_000

  @doc "Whether rows that take long are to be left out."
  def quick?, do: @quick

  @doc """
  Median microseconds per call, as `%{native: us, plain: us, ratio: native / plain}`.

  `check` gets the results of one call each and must return true.
  """
  def compare(native, plain, check, batches \\ @batches) do
    batches = min(batches, @batches)

    unless check.(native.(), plain.()), do: raise("the results differ")

    ways = %{native: {native, calls_per_batch(native)}, plain: {plain, calls_per_batch(plain)}}

    times =
      for _batch <- 1..batches, name <- [:native, :plain], reduce: %{native: [], plain: []} do
        times ->
          {fun, calls} = ways[name]
          Map.update!(times, name, &[batch(fun, calls) | &1])
      end

    native = median(times.native)
    plain = median(times.plain)
    %{native: native, plain: plain, ratio: native / plain}
  end

  def median(times), do: times |> Enum.sort() |> Enum.at(div(length(times), 2))

  @doc "Machine and versions, which stand next to every published figure."
  def environment do
    cpu =
      with {:ok, info} <- File.read("/proc/cpuinfo"),
           [_, model] <- Regex.run(~r/model name\s*:\s*(.+)/, info) do
        model
      else
        _ -> to_string(:erlang.system_info(:system_architecture))
      end

    {rustc, 0} = System.cmd("rustc", ["--version"])

    "#{cpu}, #{System.schedulers_online()} schedulers; Elixir #{System.version()}, " <>
      "OTP #{System.otp_release()}, #{rustc |> String.split() |> Enum.take(2) |> Enum.join(" ")}"
  end

  # As many calls as fill a batch.
  defp calls_per_batch(fun), do: calls_per_batch(fun, 1)

  defp calls_per_batch(fun, calls) do
    took = batch(fun, calls) * calls

    cond do
      took >= @batch_us -> calls
      took < @batch_us / 16 -> calls_per_batch(fun, calls * 8)
      true -> ceil(calls * @batch_us / took)
    end
  end

  defp batch(fun, calls) do
    parent = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        repeat(fun, div(calls, 4) + 1)
        :erlang.garbage_collect()
        started = System.monotonic_time()
        repeat(fun, calls)
        took = System.monotonic_time() - started
        send(parent, {self(), System.convert_time_unit(took, :native, :nanosecond)})
      end)

    receive do
      {^pid, nanoseconds} ->
        Process.demonitor(monitor, [:flush])
        nanoseconds / 1000 / calls

      {:DOWN, ^monitor, :process, ^pid, reason} ->
        exit(reason)
    end
  end

  defp repeat(_fun, 0), do: :ok

  defp repeat(fun, calls) do
    fun.()
    repeat(fun, calls - 1)
  end

  @doc "A process that sends back what it is sent."
  def echo, do: spawn_link(fn -> echo_loop() end)

  @doc "Hands a term to such a process, and back."
  def there_and_back(pid, term) do
    send(pid, {self(), term})

    receive do
      {^pid, term} -> term
    end
  end

  defp echo_loop do
    receive do
      {from, term} -> send(from, {self(), term})
    end

    echo_loop()
  end
end
