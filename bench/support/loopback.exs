defmodule AshAgent.Bench.Loopback do
  @moduledoc "The server of `bench/peers`, in a process of the system of its own, so that its CPU time is nobody else's."

  @source Path.expand("../peers/server.rs", __DIR__)

  @doc "Builds and starts it; it ends with this VM. Returns the URL for clients."
  def start do
    binary = Path.join(System.tmp_dir!(), "ash_agent_bench_server")
    {_, 0} = System.cmd("rustc", ~w(--edition 2021 -O -o) ++ [binary, @source])
    # It ends when its input does.
    port = Port.open({:spawn_executable, binary}, [:binary, line: 16, args: ["--attached"]])

    receive do
      {^port, {:data, {:eol, number}}} -> "http://127.0.0.1:#{number}/v1"
    after
      10_000 -> raise "the server of bench/peers does not start"
    end
  end
end
