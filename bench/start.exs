# How long it takes until the first call has returned in a VM that has just started, and how large the library is:
#
#     MIX_ENV=prod mix run bench/start.exs
#
# Measured is the library that an application gets which chooses no features. The VMs load modules when they are first
# called, as in development; a release loads all of them before it starts. The applications that the package depends on
# have started, and the files are in the page cache. Each figure is the median of fresh VMs.

Code.require_file("support/harness.exs", __DIR__)

defmodule AshAgent.Bench.Start do
  @moduledoc false

  alias AshAgent.Bench.Harness

  @vms if Harness.quick?(), do: 3, else: 41
  @library "libash_agent_context_nif.so"

  # Runs in each VM. `-e` interprets it, which takes some microseconds for each line.
  @timed """
  for app <- [:logger, :crypto, :ssl], do: {:ok, _} = Application.ensure_all_started(app)
  Process.sleep(20)
  :ok = Application.load(:ash_agent_context)
  # Written out, it would be loaded before.
  context = :"Elixir.AshAgent.Context"
  now = fn -> :erlang.monotonic_time(:microsecond) end
  t0 = now.()
  {:ok, _} = Application.ensure_all_started(:ash_agent_context)
  t1 = now.()
  {:module, _} = Code.ensure_loaded(AshAgent.Context.Native)
  t2 = now.()
  context.new("Hello!")
  t3 = now.()
  context.new("Hello!")
  t4 = now.()
  IO.puts(Enum.join([t1 - t0, t2 - t1, t3 - t2, t3 - t0, t4 - t3], " "))
  """

  def main do
    IO.puts("#{Harness.environment()}\n")
    folder = application()
    run(folder)
    times = for _ <- 1..@vms, do: run(folder)
    [start, library, first, all, second] = times |> Enum.zip_with(&Harness.median/1)

    IO.puts("""
    | | ms |
    |---|---:|
    | starting the application | #{ms(start)} |
    | loading the library | #{ms(library)} |
    | the first `new/2`, with its modules | #{ms(first)} |
    | all three | #{ms(all)} |
    | the second `new/2` | #{ms(second)} |

    The library is #{Float.round(File.stat!(library(folder)).size / 1.0e6, 2)} MB, the median of #{@vms} VMs.\
    """)

    File.rm_rf!(Path.dirname(folder))
  end

  # A copy of the application with the library of an application that chooses no features.
  defp application do
    folder = Path.join([System.tmp_dir!(), "start_#{System.pid()}", "ash_agent_context"])
    File.mkdir_p!(Path.dirname(folder))
    File.cp_r!(Application.app_dir(:ash_agent_context), folder)
    unless Harness.quick?(), do: File.cp!(default_library(), library(folder))
    folder
  end

  defp default_library do
    target = Path.join(Mix.Project.build_path(), "../cargo/ash_agent_context") |> Path.expand()

    args =
      ~w(build --release --locked --package ash_agent_context_nif --quiet --target-dir #{target})

    {_, 0} = System.cmd("cargo", args)
    Path.join([target, "release", @library])
  end

  defp library(folder), do: Path.join([folder, "priv/native", @library])

  defp run(folder) do
    {output, 0} = System.cmd("elixir", ["-pa", Path.join(folder, "ebin"), "-e", @timed])
    output |> String.split() |> Enum.map(&String.to_integer/1)
  end

  defp ms(microseconds), do: :erlang.float_to_binary(microseconds / 1000, decimals: 2)
end

AshAgent.Bench.Start.main()
