defmodule AshAgent.TestSupport.McpClient do
  @moduledoc false

  # A client for servers that are functions, and may misbehave as they like. A server has a `fake:`, a map that may have
  #
  #   * `list` - of the cursor, returns a page
  #   * `call` - of the name, the arguments, the progress function, and the options if it takes them, returns a result
  #   * `task` - of the method and the parameters, returns a result
  #   * `cancel` - of the caller
  #   * `concurrent?`
  #   * `test` - a process that is told of what is done: `{:started, client, owner, changed}`, `{:cancel, caller}`, `{:stopped, client}`

  @behaviour AshAgent.MCP.Client

  @doc "A server."
  def server(name, fake, keys \\ %{}),
    do: Map.merge(%{name: name, command: "fake", fake: Map.put_new(fake, :test, self())}, keys)

  @doc "A list of tools with these names, as a single page."
  def listing(names), do: fn _cursor -> {:ok, page(Enum.map(names, &tool/1))} end

  def page(tools, cursor \\ nil), do: %{"tools" => tools, "nextCursor" => cursor}

  def tool(name, keys \\ %{}),
    do: Map.merge(%{"name" => name, "inputSchema" => %{"type" => "object"}}, keys)

  @doc "A result with a text."
  def text(text), do: {:ok, %{"content" => [%{"type" => "text", "text" => text}]}}

  @impl true
  def available(%{fake: %{unavailable: words}}), do: {:error, words}
  def available(_server), do: :ok

  @impl true
  def start_link(%{fake: fake}, tell) do
    owner = self()
    pid = spawn_link(fn -> receive do: (:end -> :ok) end)
    send(fake.test, {:started, pid, owner, fn -> tell.(:changed) end})
    {:ok, pid, {pid, fake}}
  end

  @impl true
  def list_tools({_pid, fake}, cursor, _timeout), do: fake.list.(cursor)

  @impl true
  def call_tool({_pid, fake}, name, arguments, progress, opts) do
    if is_function(fake.call, 4),
      do: fake.call.(name, arguments, progress, opts),
      else: fake.call.(name, arguments, progress)
  end

  @impl true
  def task({_pid, fake}, method, params, _timeout), do: fake.task.(method, params)

  @impl true
  def cancel({_pid, fake}, caller) do
    send(fake.test, {:cancel, caller})
    Map.get(fake, :cancel, fn _caller -> :ok end).(caller)
  end

  @impl true
  def concurrent?({_pid, fake}), do: Map.get(fake, :concurrent?, true)

  @impl true
  def stop({pid, fake}) do
    send(fake.test, {:stopped, pid})
    Process.exit(pid, :shutdown)
  end
end
