defmodule AshAgent.TestSupport.NewCode do
  @moduledoc false

  # Loads every module of the packages anew, as two `recompile`s and two upgrades of a release do, while sessions wait, run and
  # stream. Is called on a node of its own, since whatever runs old code is killed.

  alias AshAgent.{Session, Store}

  # A library stays loaded as long as its VM runs.
  @libraries [AshAgent.Context.Native, AshAgent.Store.SQLite.Native]

  def run do
    {:ok, _} = Application.ensure_all_started(:ash_agent_runtime)
    {:ok, store} = Store.SQLite.open(":memory:")

    sessions =
      for kind <- [:idle, :running, :paused, :streaming], kept <- [store, nil] do
        {kind, start(kind, kept)}
      end

    relay = start_relay()

    for _ <- 1..2, module <- modules() do
      :code.purge(module)
      {:module, ^module} = :code.load_file(module)
    end

    [
      {:relay, relay_outcome(relay)}
      | for({kind, session} <- sessions, do: {kind, outcome(kind, session)})
    ]
  end

  # What stands between a caller and a session of another node.
  defp start_relay do
    ref = make_ref()
    here = self()
    session = spawn(fn -> Process.sleep(:infinity) end)
    call = fn -> send(here, {:relay, self()}) && {:ok, ref} end
    {:ok, ^ref} = Session.Border.relay(session, Session, call)
    receive do: ({:relay, relay} -> {relay, ref})
  end

  defp relay_outcome({relay, ref}) do
    send(relay, {Session, ref, "Done"})

    receive do
      {Session, ^ref, words} -> words
    after
      5_000 -> :silent
    end
  end

  defp modules do
    for application <- [:ash_agent_context, :ash_agent_runtime],
        module <- Application.spec(application, :modules),
        # Code of tests is not loaded while it runs.
        module not in @libraries and not String.contains?(inspect(module), "Test"),
        do: module
  end

  defp start(kind, store) do
    kept = if store, do: [store: store, id: "#{kind}", lease: 300], else: []
    approval = if kind == :paused, do: [approval: fn _, _ -> :ask end], else: []
    tools = %{"look" => fn _ -> {:ok, 1} end}
    opts = [llm: &answer/1, tools: tools, stream: kind == :streaming] ++ kept ++ approval
    {:ok, session} = Session.start_link(opts)
    Process.unlink(session)

    if kind == :paused, do: {:paused, _} = Session.prompt(session, "Look")

    if kind in [:running, :streaming] do
      {:ok, _} = Session.prompt_async(session, "Wait")
      :running = Session.status(session)
    end

    session
  end

  defp answer(context) do
    case context |> AshAgent.Context.to_messages() |> List.last() do
      %{content: "Wait"} -> Process.sleep(:infinity)
      %{content: "Look"} -> {:ok, %{tool_calls: [%{id: "a", name: "look"}]}}
      _ -> {:ok, %{content: "Done"}}
    end
  end

  # Longer than a lease, which nobody renews if the renewer is gone.
  defp outcome(kind, session) do
    Process.sleep(500)

    if kind == :paused do
      :ok = Session.approve(session, "a")
      {:ok, %{output: output}} = Session.resume(session)
      output
    else
      {:ok, %{output: output}} = Session.prompt(session, "Hi")
      output
    end
  catch
    kind, reason -> {kind, reason}
  end
end
