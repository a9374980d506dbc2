defmodule AshAgent.TestSupport.McpKilled do
  @moduledoc false

  # A node that serves a tool with an effect, which needs approval, and is killed at its n-th step: the moments before and after each thing that the
  # store is asked, each effect, and each answer to the client.

  alias AshAgent.{MCP, Sessions, Store}
  alias AshAgent.TestSupport.{McpAsks, Nodes, WatchedStore}

  @tasks %{"elicitation" => %{}, "extensions" => %{"io.modelcontextprotocol/tasks" => %{}}}

  @doc "Starts the sessions and the server on a node. Without `nth` it lives, and with `:effect` it dies right after that."
  def start(path, ledger, nth) do
    Logger.configure(level: :none)
    {:ok, _} = Application.ensure_all_started(:ash_agent_web)
    {:ok, _} = Application.ensure_all_started(:ex_mcp)
    steps = :counters.new(1, [])
    step = fn -> step(steps, nth) end
    effect = if nth == :effect, do: &die/0, else: step
    :persistent_term.put({__MODULE__, :step}, {steps, step})

    Nodes.outlive(fn ->
      {:ok, store} = Store.SQLite.open(path)
      watched = WatchedStore.new(store, fn _moment, _name -> step.() end)

      spec =
        MCP.Server.tool_sessions(
          name: __MODULE__,
          store: watched,
          tools: %{"pay" => &pay(&1, &2, ledger, effect)},
          approval: fn _, _ -> :ask end,
          restore_context: fn %{name: name} -> {:ok, %{name: name}} end,
          lease: 600,
          recover: 200
        )

      {module, function, arguments} = spec.start
      {:ok, pid} = apply(module, function, arguments)
      server = McpAsks.server(tools: __MODULE__, task_after: 100)
      :persistent_term.put(__MODULE__, server)
      {:ok, pid}
    end)

    System.pid()
  end

  defp pay(_arguments, %{name: name}, ledger, step) do
    File.write!(ledger, name <> "\n", [:append])
    step.()
    {:ok, "paid"}
  end

  @doc "Asks the server of this node, whose client has tasks."
  def ask(method, params, caps \\ @tasks) do
    {_steps, step} = :persistent_term.get({__MODULE__, :step})
    answer = McpAsks.ask(:persistent_term.get(__MODULE__), method, params, caps: caps)
    step.()
    answer
  end

  def steps do
    {steps, _step} = :persistent_term.get({__MODULE__, :step})
    :counters.get(steps, 1)
  end

  @doc "The conversations that are not at rest."
  def restless do
    store = :persistent_term.get(__MODULE__) |> MCP.Server.store(nil)
    {:ok, %{conversations: found}} = Store.list(store, status: [:running, :parked, :waiting])
    {:ok, %{conversations: all}} = Store.list(store)
    {length(found), length(all), Sessions.ready?(__MODULE__)}
  end

  # Two processes never get the same number.
  defp step(steps, nth) do
    number =
      :global.trans(
        {__MODULE__, self()},
        fn ->
          :counters.add(steps, 1, 1)
          :counters.get(steps, 1)
        end,
        [node()]
      )

    if number == nth, do: die(), else: :ok
  end

  defp die do
    System.cmd("kill", ["-9", System.pid()])
    Process.sleep(:infinity)
  end
end
