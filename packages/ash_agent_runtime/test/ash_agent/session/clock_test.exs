defmodule AshAgent.Session.ClockTest do
  use ExUnit.Case, async: true

  # Claims of programs that have ended, and leases of wrong clocks.

  import AshAgent.TestSupport.Wait, only: [until: 1]

  alias AshAgent.{Context, Session, Sessions, Store}
  alias AshAgent.Session.{Owner, Program}
  alias AshAgent.Store.SQLite
  alias AshAgent.TestSupport.WatchedStore

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

  @tag :tmp_dir
  test "of a program that cannot be seen nobody knows whether it has ended", %{tmp_dir: proc} do
    [_boot, _space, _process, start] = String.split(Program.own(), ".")

    # What one container sees, or one user whom the system shows the own processes alone.
    see = fn space, processes ->
      File.rm_rf!(proc)
      for folder <- ["sys/kernel/random", "self/ns"], do: File.mkdir_p!(Path.join(proc, folder))
      File.write!(Path.join(proc, "sys/kernel/random/boot_id"), "7d1f\n")
      File.ln_s!(space, Path.join(proc, "self/ns/pid"))

      for {process, state} <- processes do
        File.mkdir_p!(Path.join(proc, process))
        fields = ["0" | List.duplicate("0", 17)] ++ [start, "0"]
        text = "#{process} (a) b) #{state} #{Enum.join(fields, " ")}\n"
        File.write!(Path.join([proc, process, "stat"]), text)
      end
    end

    digest = fn text ->
      :sha256 |> :crypto.hash(text) |> binary_part(0, 9) |> Base.url_encode64()
    end

    program = Enum.join([digest.("7d1f"), digest.("pid:[1]"), "77", start], ".")
    see.("pid:[1]", [{"1", "S"}, {"77", "S"}])
    assert Program.state(program, proc) == :running
    see.("pid:[1]", [{"1", "S"}, {"77", "Z"}])
    assert Program.state(program, proc) == :ended
    see.("pid:[1]", [{"1", "S"}])
    assert Program.state(program, proc) == :ended
    see.("pid:[1]", [{"88", "S"}])
    assert Program.state(program, proc) == :unknown
    # Two containers of one machine have one boot.
    see.("pid:[2]", [{"1", "S"}])
    assert Program.state(program, proc) == :unknown
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

  test "a lease by the clock of a server is trusted, whatever this machine's clock says" do
    far = stored(owner("x.y.1.1", 30_000), @hour)
    server = WatchedStore.new(far, fn _moment, _name -> :ok end)
    assert {:error, {{:store_error, {:owned, _}}, _child}} = open(server)
    assert {:ok, _session} = open(far)
  end

  @tag :tmp_dir
  test "a store under a name is a file as well, and a program that dies later is seen", %{
    tmp_dir: folder
  } do
    name = Module.concat(__MODULE__, Named)
    path = Path.join(folder, "store.db")
    start_supervised!({SQLite, name: name, path: path})
    process = sleeper()
    {:ok, _} = Store.create(name, Context.new("Hi", id: "c"), status: :running)
    {:ok, _} = Store.claim(name, "c", owner: owner(program(process), @hour), lease: @hour)

    {:ok, _} = Store.create(name, Context.new("Hi", id: "far"), status: :running)
    {:ok, _} = Store.claim(name, "far", owner: owner("x.y.1.1", 30_000), lease: @hour)
    test = self()

    llm = fn context ->
      send(test, {:asked, context[:id]})
      {:ok, %{content: "Hello!"}}
    end

    sessions = Module.concat(__MODULE__, NamedNode)
    start_supervised!({Sessions, name: sessions, store: name, llm: llm, recover: 20})
    assert_receive {:asked, "far"}, 5_000
    refute_received {:asked, "c"}
    kill(process)
    assert_receive {:asked, "c"}, 5_000
    until(fn -> match?({:ok, %{status: :idle}}, Store.fetch(name, "c")) end)
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
