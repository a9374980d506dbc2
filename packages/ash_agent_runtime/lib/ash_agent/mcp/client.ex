defmodule AshAgent.MCP.Client do
  @moduledoc """
  An MCP client as `AshAgent.MCP` uses it. The one for `ex_mcp` is built in.

  A client holds one connection to one server. `AshAgent.MCP` starts it, calls it from other processes, several at once, ends it, and
  starts it again when its process ends. Results of servers are passed on as they are; they need no checks.

  An error is `{:error, words}`, `{:unknown, words}` if nobody knows whether the call did its work, or `{:lost, words}` if the connection
  cannot be used any more. A model may read the words, which go on
  after the server's name: `"did not respond in time"`.
  """

  @typedoc "A server as `t:AshAgent.ChatContext.Config.mcp_server/0`, with the limits `:timeout` and `:max_result_bytes` of `AshAgent.MCP`."
  @type server :: map()

  @typedoc "A connection."
  @type connection :: term()

  @type failure :: {:error, String.t()} | {:unknown, String.t()} | {:lost, String.t()}

  @typedoc "A task as the server has it, with `\"taskId\"`, `\"ttlMs\"` and perhaps `\"pollIntervalMs\"`."
  @type task :: map()

  @doc "Returns `:ok` if the client can be used, or words on how to make it so."
  @callback available(server()) :: :ok | {:error, String.t()}

  @doc """
  Starts a client that is linked to the calling process, and returns the process whose end is the end of the connection. It need not
  be connected yet. `tell` is called with `:changed` whenever the server says that its tools changed, and with `{:ended, words}` when
  the client knows why it ends.
  """
  @callback start_link(server(), tell :: (:changed | {:ended, String.t()} -> term())) ::
              {:ok, pid(), connection()} | {:error, String.t()}

  @doc "Waits for the connection, and returns a page of the result of `tools/list`, with `tasks?: true` if the server may answer calls with tasks."
  @callback list_tools(connection(), cursor :: String.t() | nil, timeout :: pos_integer()) ::
              {:ok, map()} | failure()

  @doc """
  Returns the result of `tools/call`, after however long, and calls `progress` with what the server tells of it. `opts` are `:offers`: the server may
  answer with a task if `:tasks` is among them, and with questions if `:questions` is; and `:answers`, a map with what is sent along when it has asked.
  """
  @callback call_tool(
              connection(),
              name :: String.t(),
              arguments :: map(),
              progress :: (number(), number() | nil -> term()),
              opts :: keyword()
            ) :: {:ok, map()} | {:task, task()} | {:asks, questions :: map()} | failure()

  @doc "Returns the result of a request about a task, `\"get\"`, `\"update\"` or `\"cancel\"`; `{:gone, words}` if the server does not know the task."
  @callback task(connection(), method :: String.t(), params :: map(), timeout :: pos_integer()) ::
              {:ok, map()} | {:gone, String.t()} | failure()

  @doc "Cancels the call that a process makes."
  @callback cancel(connection(), caller :: pid()) :: :ok | failure()

  @doc "Returns true if calls run side by side. If not, they wait for each other, and the client is ended after one was cancelled."
  @callback concurrent?(connection()) :: boolean()

  @doc "Ends a client."
  @callback stop(connection()) :: term()
end
