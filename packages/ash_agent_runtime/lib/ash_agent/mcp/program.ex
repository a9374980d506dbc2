defmodule AshAgent.MCP.Program do
  @moduledoc false

  # Carries messages to a program and back, over its standard input and output: a transport of ex_mcp, around its own one.

  @compile {:no_warn_undefined, [ExMCP.Transport.Stdio]}

  alias AshAgent.Context.JSON
  alias AshAgent.Deadline
  alias AshAgent.MCP.Connection
  alias AshAgent.ProgramEnv
  alias ExMCP.Transport.Stdio

  # `asked` is the id of the last request, and `noise?` is true if the program wrote anything but messages.
  defstruct [:link, :stdio, :asked, noise?: false]

  # A fixed text: nothing is ever inserted into it.
  #
  # A port inherits the whole environment of the VM. Every variable but those in $1 is removed when the program starts, without
  # showing a value to anybody who lists processes. A line that continues a value of several lines names nothing, or nothing
  # that matters, since variables that are kept are never removed.
  #
  # The BEAM only closes the input of a program that is not wanted any more, or when it ends itself. A server should end then. If
  # it does not, its process group, of which $$ is the leader, is told to end and then killed, as it is when the server has ended
  # and left children.
  @wrapper ~S"""
  keep=$1
  shift
  while IFS= read -r line; do
    name=${line%%=*}
    case $line in
      ?*=*) case " $keep " in *" $name "*) ;; *) set -- -u "$name" "$@" ;; esac ;;
    esac
  done <<END
  $(env)
  END
  trap '' TERM
  { cat; exec >&-; sleep 2; kill -s TERM -- "-$$"; sleep 2; kill -s KILL -- "-$$"; } 2>/dev/null |
    { ( trap - TERM; exec env "$@" ); kill -s KILL -- "-$$"; }
  """

  def connect(opts) do
    %{server: server} = link = Connection.enter(opts)
    keep = ProgramEnv.list_kept(server[:inherit_env] || [], server.env)
    args = ["-c", @wrapper, "mcp", Enum.join(keep, " "), server.command | server.args]

    options = [
      command: ["sh" | args],
      env: Enum.to_list(server.env),
      # The text above removes what is not inherited.
      environment_policy: :inherit,
      max_frame_bytes: link.max_bytes
    ]

    options = if server[:cwd], do: [cd: server.cwd] ++ options, else: options

    case Stdio.connect(options) do
      {:ok, stdio} ->
        {:ok, %__MODULE__{link: link, stdio: stdio}}

      error ->
        Connection.put_fault(link, "cannot be started")
        error
    end
  end

  def send_message(body, state) do
    message = with {:error, _deep} <- JSON.decode(body), do: %{}, else: ({:ok, map} -> map)
    body = Connection.announce(body, message, state.link)

    with {:ok, stdio} <- Stdio.send_message(body, state.stdio),
         do: {:ok, %{state | stdio: stdio, asked: message["id"]}}
  end

  def receive_message(state), do: receive_message(state, :infinity)

  # Only while the client connects: what is not the answer to its last request is noise, or an answer that comes too late.
  def receive_message(state, timeout), do: wait(state, Deadline.new(timeout))

  defp wait(%{asked: asked} = state, deadline) do
    case Stdio.receive_message(state.stdio, Deadline.left(deadline)) do
      {:ok, line, stdio} ->
        state = %{state | stdio: stdio}

        case JSON.decode(line) do
          {:ok, %{"jsonrpc" => "2.0", "id" => ^asked} = message}
          when not is_map_key(message, "method") ->
            {:ok, line, state}

          {:ok, %{"jsonrpc" => "2.0"}} ->
            wait(state, deadline)

          _other ->
            wait(%{state | noise?: true}, deadline)
        end

      {:error, :handshake_timeout} ->
        noise =
          if state.noise?, do: "; it writes something else than messages to its standard output"

        Connection.put_fault(state.link, "did not respond in time#{noise}")
        {:error, {:timeout_error, :timeout}}

      error ->
        Connection.put_fault(state.link, "has ended")
        error
    end
  end

  # The reader belongs to the client's process, and sends to the one that sees messages first.
  def subscribe(_client, state) do
    with {:ok, stdio} <- Stdio.subscribe(state.link.holder, state.stdio),
         do: {:ok, %{state | stdio: stdio}}
  end

  def connected?(state), do: Stdio.connected?(state.stdio)
  def capabilities(_state), do: [:push]

  # The guard ends the process that the port belongs to, and the text above what the program has started.
  def close(_state), do: :ok
end
