defmodule AshAgent.TestSupport.KilledMcp do
  @moduledoc false

  # A node whose agent calls a tool of an MCP server once. It is killed, and so is the server.

  alias AshAgent.{Context, MCP, Sessions, Store}
  alias AshAgent.Context.Calls
  alias AshAgent.TestSupport.Nodes

  @sessions :killed_mcp_sessions
  @mcp :killed_mcp

  def start(path, url) do
    {:ok, _} = Application.ensure_all_started(:ash_agent_runtime)
    Logger.configure(level: :none)
    Nodes.outlive(fn -> start_link(path, url) end)
  end

  defp start_link(path, url) do
    {:ok, store} = Store.SQLite.open(path)
    tools = fn -> MCP.tools(@mcp) end

    children = [
      {MCP, name: @mcp, servers: [%{name: "s", url: url}], tasks: @sessions, questions: :ask},
      {Sessions, name: @sessions, store: store, llm: &model/1, tools: tools, lease: 1_000}
    ]

    Supervisor.start_link(children, strategy: :one_for_one)
  end

  defp model(context) do
    case Calls.tool_call_status(context, "a") do
      nil ->
        {:ok, %{tool_calls: [%{id: "a", name: "s__pay", arguments: %{"id" => context[:id]}}]}}

      :waiting ->
        {:ok, %{content: "It comes."}}

      _ended ->
        {:ok, %{content: "Done."}}
    end
  end

  def os_pid, do: System.pid()

  def prompt(id) do
    spawn(fn -> Sessions.prompt(@sessions, id, "Pay") end)
    :ok
  end

  def paused?(id), do: match?({:paused, _}, Sessions.status(@sessions, id))

  @doc "What a person does, and how the call has ended, with its attempts, when it has."
  def look(id) do
    for %{key: key} <- MCP.questions(@mcp), do: MCP.answer(@mcp, key, %{"seats" => 2})

    with {:paused, [%{question: true, id: call}]} <- Sessions.status(@sessions, id),
         :ok <- Sessions.answer(@sessions, id, call, %{"seats" => 2}, by: "ann"),
         do: spawn(fn -> Sessions.resume(@sessions, id) end)

    with :idle <- Sessions.status(@sessions, id),
         {:ok, context} <- Sessions.context(@sessions, id),
         %{content: "Done."} <- List.last(Context.to_messages(context)),
         {:ok, %{calls: []}} <- Sessions.waiting(@sessions, id: id),
         {:ok, attempts} <- Store.calls(Sessions.Node.config!(@sessions).store, id) do
      texts = inspect(Context.to_messages(context), limit: :infinity)
      {:ended, Calls.tool_call_status(context, "a"), attempts, texts}
    else
      _goes_on -> nil
    end
  end
end
