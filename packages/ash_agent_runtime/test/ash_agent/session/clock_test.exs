defmodule AshAgent.Session.ClockTest do
  use ExUnit.Case, async: true

  # Claims of programs that have ended, and leases of wrong clocks.

  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{Context, Session, Sessions, Store}
  alias AshAgent.Session.{Owner, Program}
  alias AshAgent.Store.SQLite

  @moduletag :capture_log
  @moduletag skip:
               not File.exists?("/proc/self/ns/pid") && "the system tells nothing of processes"

  @hour 3_600_000

  defp sleeper do
    port =
      Port.open({:spawn_executable, System.find_executable("sleep")}, [:binary, args: ["60"]])

    {:os_pid, process} = Port.info(port, :os_pid)
    process
  end

  defp program(process) do
    [boot, space, _process, _start] = String.split(Program.own(), ".")
    {:ok, stat} = File.read("/proc/#{process}/stat")
    start = stat |> String.split(") ") |> List.last() |> String.split(" ") |> Enum.at(19)
    Enum.join([boot, space, process, start], ".")
  end

  defp kill(process) do
    System.cmd("kill", ["-9", "#{process}"])
    until(fn -> not File.exists?("/proc/#{process}") end)
  end

  # The name of a session of another VM.
  defp owner(program, lease), do: "nonode@nohost another/#{program}/#{lease} <0.99.0>"

  defp stored(owner, lease, opts \\ []) do
    {:ok, store} = SQLite.open(":memory:")
    {:ok, _} = Store.create(store, Context.new("Hi", id: "c"), opts)
    {:ok, _} = Store.claim(store, "c", owner: owner, lease: lease)
    store
  end

  defp open(store) do
    llm = fn _ -> {:ok, %{content: "Hello!"}} end
    opts = [store: store, id: "c", llm: llm]
    start_supervised(Supervisor.child_spec({Session, opts}, restart: :temporary), id: make_ref())
  end

  test "a program is known by its boot, its namespace, its number and its start" do
    assert Program.state(Program.own()) == :running
    process = sleeper()
    program = program(process)
    assert Program.state(program) == :running
    [boot, space, _process, start] = String.split(program, ".")
    # The number is used again.
    assert Program.state(Enum.join([boot, space, process, "1"], ".")) == :ended
    # Another machine, or a boot before this one; another container.
    assert Program.state(Enum.join(["x", space, process, start], ".")) == :unknown
    assert Program.state(Enum.join([boot, "x", process, start], ".")) == :unknown
    kill(process)
    assert Program.state(program) == :ended

    for wrong <- ["", "a", "a.b.c.d", Enum.join([boot, space, "../1", start], ".")],
        do: assert(Program.state(wrong) == :unknown)
  end

  test "what a program of this machine has claimed that has ended is free at once" do
    process = sleeper()
    owner = owner(program(process), 30_000)
    store = stored(owner, 30_000)
    assert {:error, {{:store_error, {:owned, ^owner}}, _child}} = open(store)
    kill(process)
    assert {:ok, session} = open(store)
    assert {:ok, %{output: "Hello!"}} = Session.resume(session)
  end

  test "a lease that is longer than its owner's leases is of a wrong clock" do
    elsewhere = "x.y.1.1"
    assert {:ok, _session} = open(stored(owner(elsewhere, 30_000), @hour))
    # This one may be that long, and this owner lives.
    assert {:error, _owned} = open(stored(owner(elsewhere, @hour), @hour))
    assert {:error, _owned} = open(stored(owner(program(sleeper()), 30_000), @hour))
    # Nobody knows what an application means by its own names, or by those of earlier releases.
    assert {:error, _owned} = open(stored("batch job 7", @hour))
    assert {:error, _owned} = open(stored("nonode@nohost another <0.99.0>", @hour))
  end

  test "sessions of a file go on with what a dead program ran, without waiting for its lease" do
    process = sleeper()
    store = stored(owner(program(process), @hour), @hour, status: :running)
    kill(process)
    test = self()
    llm = fn _ -> send(test, :asked) && {:ok, %{content: "Hello!"}} end
    name = Module.concat(__MODULE__, Node)
    start_supervised!({Sessions, name: name, store: store, llm: llm})
    assert_receive :asked, 5_000
    until(fn -> match?({:ok, %{status: :idle}}, Store.fetch(store, "c")) end)
  end

  test "names of this VM's processes are found, under any node name" do
    assert Owner.locate(Owner.name(self(), 1_000)) == {:here, self()}
    gone = spawn(fn -> :ok end)
    until(fn -> not Process.alive?(gone) end)
    assert Owner.locate(Owner.name(gone, 1_000)) == :gone
    assert Owner.locate(Owner.reserve()) == :reserved
    assert Owner.locate("nonode@nohost another <0.1.0>") == :unknown
    assert Owner.locate("a") == :unknown
  end
end
