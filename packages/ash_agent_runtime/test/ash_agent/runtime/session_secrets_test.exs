defmodule AshAgent.Runtime.SessionSecretsTest do
  # Hears everything that anybody logs, so nothing else may run.
  use ExUnit.Case, async: false

  alias AshAgent.{Context, Session}
  alias AshAgent.Runtime.Error

  # A handler without filters, that gets reports as they are and SASL's too.
  def log(event, %{config: %{test: test}}), do: send(test, {:logged, event})

  setup do
    Process.flag(:trap_exit, true)
    # Elixir's own filters would drop and change reports.
    %{filters: filters} = :logger.get_primary_config()
    for {id, _} <- filters, do: :ok = :logger.remove_primary_filter(id)

    all = %{level: :all, filters: [], filter_default: :log, config: %{test: self()}}
    :ok = :logger.add_handler(__MODULE__, __MODULE__, all)
    # What is printed is not what is looked at.
    {:ok, %{level: level}} = :logger.get_handler_config(default())
    :ok = :logger.set_handler_config(default(), :level, :none)

    on_exit(fn ->
      :logger.remove_handler(__MODULE__)
      :logger.set_handler_config(default(), :level, level)
      for {id, filter} <- filters, do: :logger.add_primary_filter(id, filter)
    end)
  end

  defp default, do: if(Logger in :logger.get_handler_ids(), do: Logger, else: :default)

  defp logged do
    receive do
      {:logged, event} -> [event | logged()]
    after
      50 -> []
    end
  end

  # Looks at terms as they are, not at what they show when inspected. Functions do not tell what they close over.
  defp tells?(term) do
    term = without_functions(term)

    inspect(term, limit: :infinity, printable_limit: :infinity, structs: false) =~ "SECRET" or
      term |> :erlang.term_to_binary() |> :binary.match("SECRET") != :nomatch
  end

  defp without_functions(fun) when is_function(fun), do: :function
  defp without_functions([head | tail]), do: [without_functions(head) | without_functions(tail)]

  defp without_functions(tuple) when is_tuple(tuple),
    do: tuple |> Tuple.to_list() |> without_functions() |> List.to_tuple()

  defp without_functions(map) when is_map(map),
    do: map |> :maps.to_list() |> without_functions() |> :maps.from_list()

  defp without_functions(term), do: term

  defmodule Keyed do
    @behaviour AshAgent.LLM
    @impl true
    def prepare(opts), do: Keyword.update!(opts, :api_key, fn key -> fn -> key end end)
    @impl true
    def chat(_context, opts) do
      _ = opts[:api_key].()
      Process.sleep(:infinity)
    end
  end

  defp options(more) do
    call = %{id: "a", name: "t", arguments: %{"k" => "SECRET"}}
    context = Context.add_assistant_message(Context.new("SECRET question"), "SECRET", [call])

    [
      llm: {Keyed, api_key: "SECRET key"},
      context: context,
      tools: %{"t" => fn _ -> Process.sleep(:infinity) end},
      runtime_context: %{actor: "SECRET actor", token: ~c"SECRET charlist"},
      approval: fn _, _ -> :ask end
    ]
    |> Keyword.merge(more)
  end

  defp start(more \\ []) do
    {:ok, session} = Session.start_link(options(more))
    session
  end

  # Two prompts in the queue, and three more in the mailbox.
  defp busy(session) do
    opts = [metadata: %{m: "SECRET"}, runtime_context: %{actor: "SECRET"}]
    for n <- 1..2, do: {:ok, _} = Session.prompt_async(session, "SECRET #{n}", opts)

    session
  end

  defp crowd(session) do
    :sys.suspend(session)

    callers =
      for n <- 1..3 do
        {pid, monitor} =
          spawn_monitor(fn ->
            Session.prompt(session, "SECRET prompt #{n}", runtime_context: %{actor: "SECRET"})
          end)

        wait_for_call(session, pid)
        monitor
      end

    :sys.resume(session)
    callers
  end

  defp wait_for_call(session, pid) do
    {:messages, messages} = Process.info(session, :messages)

    unless Enum.any?(messages, &match?({:"$gen_call", {^pid, _}, _}, &1)) do
      Process.sleep(1)
      wait_for_call(session, pid)
    end
  end

  defp ended(session) do
    assert_receive {:EXIT, ^session, reason}
    reason
  end

  describe "strange messages" do
    test "are ignored and counted, and nobody waits for an answer" do
      session = busy(start(approval: :auto))
      assert Session.status(session) == :running

      for message <- [
            :x,
            {:run, "SECRET"},
            {:run, {:prompt, 5, []}},
            {:run, {:prompt, "SECRET", :no_list}},
            {:run_async, :nobody, {:resume, []}},
            {:decide, :approved, []},
            {:decide, {:approved, 5}, []},
            {:prompt, "SECRET"}
          ] do
        assert {:error, _} = GenServer.call(session, message, 1_000)
        assert :ok = GenServer.cast(session, message)
        send(session, message)
        send(session, {message, message, message})
      end

      send(session, {make_ref(), "SECRET"})
      send(session, {:DOWN, make_ref(), :process, self(), "SECRET"})
      send(session, {:context, make_ref(), "SECRET"})

      assert Session.status(session) == :running
      assert %{ignored: ignored, queued: 1} = shown(session)
      assert ignored == 8 * 4 + 3
      refute tells?(logged())
    end

    test "whose form is that of a prompt get an error, also when their turn comes" do
      session = start(approval: :auto, context: nil, llm: fn _ -> {:ok, %{content: "Hi"}} end)

      prompts = [{:prompt, "SECRET", [1 | 2]}, {:prompt, [1 | 2], []}]

      for job <- prompts ++ [{:resume, [1 | 2]}, {:resume, [:x]}] do
        assert {status, _} = GenServer.call(session, {:run, job}, 5_000)
        assert status in [:ok, :error]
      end

      assert {:ok, %{output: "Hi"}} = Session.prompt(session, "Hi")
      refute tells?(logged())
    end
  end

  defp shown(session) do
    {:status, _pid, _module, items} = :sys.get_status(session)
    items |> List.flatten() |> Enum.find_value(&shown_state/1)
  end

  defp shown_state({:data, [{~c"State", %{} = state}]}), do: state
  defp shown_state(_other), do: nil

  test "the status of a session shows counts" do
    session = start()
    refute tells?(:sys.get_status(session))
    assert %{running: false, paused: true, queued: 0, ignored: 0} = shown(session)

    session = busy(start(approval: :auto))
    refute tells?(:sys.get_status(session))
    assert %{running: true, paused: false, queued: 1} = shown(session)
  end

  describe "a session that crashes" do
    test "tells nothing of its state, its queue, its mailbox, and the message it crashed with" do
      session = busy(start(approval: :auto))
      :sys.replace_state(session, &%{&1 | queue: :broken})
      callers = crowd(session)
      reason = ended(session)

      reasons =
        for monitor <- callers do
          assert_receive {:DOWN, ^monitor, :process, _, reason}
          reason
        end

      events = logged()

      labels = for %{msg: {:report, %{label: label}}} <- events, do: label
      for label <- [gen_server: :terminate, proc_lib: :crash], do: assert(label in labels)
      refute tells?(events)
      refute tells?([reason | reasons])
      # Where it happened is told all the same.
      assert inspect(events, limit: :infinity) =~ "session/server.ex"
    end

    test "tells nothing when it is not even a session any more" do
      for broken <- ["SECRET", [secret: "SECRET"], %{secret: "SECRET"}] do
        session = start()
        :sys.replace_state(session, fn _ -> broken end)
        refute tells?(:sys.get_status(session))
        reason = catch_exit(Session.prompt(session, "SECRET"))
        refute tells?([ended(session), reason])
      end

      refute tells?(logged())
    end
  end

  describe "a process of a session" do
    test "that crashes tells nothing of what it was given" do
      session = start(approval: :auto)
      :sys.replace_state(session, &put_in(&1.runtime[:timeout], "SECRET"))
      {:ok, ref} = Session.resume_async(session)
      assert_receive {Session, ^ref, {:error, %Error{reason: {:exit, reason}}}}
      events = logged()

      labels = for %{msg: {:report, %{label: label}}} <- events, do: label
      assert {Task.Supervisor, :terminating} in labels
      refute tells?(events)
      refute tells?(reason)
    end

    test "that runs the application's functions tells nothing of what these were given" do
      fail = fn _call, _tool_context -> raise "SECRET" end
      clause = fn _call, %{actor: :nobody} -> :ok end
      asks = fn _ -> {:ok, %{tool_calls: [%{name: "t", arguments: %{"k" => "SECRET"}}]}} end

      for opts <- [
            [llm: fn _ -> raise "SECRET" end],
            [llm: fn %{context: "SECRET"} -> :ok end],
            [llm: fn _ -> exit({"SECRET", "SECRET"}) end],
            [llm: fn _ -> throw("SECRET") end],
            [approval: fail],
            [approval: clause],
            [before_tool: fail],
            [before_tool: clause],
            [after_tool: fn _, _, _ -> raise "SECRET" end],
            [permission_rules: [{:deny, "t", fn %{"other" => _} -> true end}]],
            [tools: %{"t" => fn _ -> raise "SECRET" end}],
            [tools: %{"t" => fn _, %{actor: :nobody} -> :ok end}],
            [tools: %{"t" => fn _ -> exit({"SECRET", "SECRET"}) end}],
            [on_event: fn _, _, %{secret: _} -> :ok end],
            [on_change: fn :nothing -> :ok end]
          ] do
        quick = [llm: asks, tools: %{"t" => fn _ -> :ok end}, context: nil]
        opts = Keyword.merge(quick ++ [approval: :auto, max_iterations: 1], opts)
        {_, outcome} = Session.prompt(start(opts), "SECRET")
        assert %_{context: %Context{}} = outcome
      end

      events = logged()
      assert events != []
      refute tells?(events)
    end
  end

  describe "a supervisor" do
    test "that starts sessions tells nothing of their options" do
      {:ok, supervisor} = Supervisor.start_link([], strategy: :one_for_one, max_restarts: 100)
      opts = options(id: :a, system_prompt: "SECRET")
      refute tells?(Session.child_spec(opts))
      {:ok, session} = Supervisor.start_child(supervisor, {Session, opts})
      {:ok, spec} = :supervisor.get_childspec(supervisor, :a)
      refute tells?(spec)

      monitor = Process.monitor(session)
      :sys.replace_state(session, fn _ -> :broken end)
      catch_exit(Session.status(session))
      assert_receive {:DOWN, ^monitor, _, _, _}

      raises = fn -> raise "SECRET" end

      child = {Session, Keyword.merge(opts, id: :b, context: raises)}
      assert {:error, reason} = Supervisor.start_child(supervisor, child)
      refute tells?(reason)

      events = logged()
      assert Enum.any?(events, &match?(%{msg: {:report, %{label: {:supervisor, _}}}}, &1))
      refute tells?(events)
    end

    test "gets the same session from its specification" do
      opts = [llm: fn _ -> {:ok, %{content: "Hi"}} end, id: :x, name: __MODULE__.Named]
      assert %{id: :x, restart: :transient} = Session.child_spec(opts)
      assert {:ok, _} = Supervisor.start_link([{Session, opts}], strategy: :one_for_one)
      assert {:ok, %{output: "Hi"}} = Session.prompt(__MODULE__.Named, "Hi")
    end
  end

  test "a caller whose session is not there, or ends, or is late, exits without its prompt" do
    session = start(approval: :auto)

    exits = [
      catch_exit(Session.prompt(:nobody, "SECRET", metadata: %{m: "SECRET"})),
      catch_exit(Session.prompt_async(:nobody, "SECRET")),
      catch_exit(Session.prompt(session, "SECRET", await: 10)),
      catch_exit(Session.deny(:nobody, "a", "SECRET")),
      catch_exit(Session.approve(:nobody, "a", by: "SECRET")),
      catch_exit(Session.put_llm(:nobody, {Keyed, api_key: "SECRET"})),
      catch_exit(Session.resume(:nobody, runtime_context: %{actor: "SECRET"}))
    ]

    refute tells?(exits)
    assert [{:noproc, {Session, :prompt, [:nobody]}} | _] = exits
    assert {:timeout, {Session, :prompt, [^session]}} = Enum.at(exits, 2)
  end
end
