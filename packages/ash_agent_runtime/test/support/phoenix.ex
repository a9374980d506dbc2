defmodule AshAgent.TestSupport.Phoenix do
  @moduledoc false

  # Arize Phoenix, a viewer of traces, on loopback. It is looked for at the path in ASH_AGENT_CONTEXT_PHOENIX and in
  # _build/python. It ends with the port, and so with whoever started it.

  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Transport.{HTTP1, Request}
  alias AshAgent.TestSupport.Wait

  # It makes its database first.
  @wait 180_000

  def executable do
    given = System.get_env("ASH_AGENT_CONTEXT_PHOENIX")
    candidates = [given, Path.expand("../../../../_build/python/bin/phoenix", __DIR__)]
    Enum.find_value(candidates, &(&1 && System.find_executable(&1)))
  end

  def version do
    python = executable() |> Path.dirname() |> Path.join("python3")
    script = "import importlib.metadata; print(importlib.metadata.version('arize-phoenix'))"
    {version, 0} = System.cmd(python, ["-c", script])
    String.trim(version)
  end

  @doc "Starts it with a database in this folder, waits until it answers, and returns its URL."
  def start(folder) do
    # An address of its own, since its ports have to be chosen before.
    host = "127.#{Enum.map_join(1..3, ".", fn _ -> :rand.uniform(250) end)}"
    [port, grpc] = free_ports(host)

    env = [
      {"PHOENIX_WORKING_DIR", folder},
      {"PHOENIX_HOST", host},
      {"PHOENIX_PORT", port},
      {"PHOENIX_GRPC_PORT", grpc},
      {"PHOENIX_TELEMETRY_ENABLED", "false"},
      {"PHOENIX_ALLOW_EXTERNAL_RESOURCES", "false"}
    ]

    # The shell reads until its input ends.
    command =
      ~s(exec 3<&0; "$@" </dev/null >"$0/log" 2>&1 & pid=$!; cat <&3 >/dev/null; kill $pid; wait)

    Port.open({:spawn_executable, "/bin/sh"}, [
      :binary,
      args: ["-c", command, folder, executable(), "serve"],
      env: for({name, value} <- env, do: {to_charlist(name), to_charlist(value)})
    ])

    url = "http://#{host}:#{port}"

    unless Wait.until(fn -> match?({:ok, _}, fetch(url <> "/healthz")) end, @wait),
      do: raise("Phoenix does not answer: " <> File.read!(Path.join(folder, "log")))

    url
  end

  @doc "What its API says."
  def get(url) do
    {:ok, body} = fetch(url)
    {:ok, answer} = JSON.decode(body)
    answer
  end

  defp fetch(url) do
    request = %Request{method: "GET", uri: URI.parse(url), timeout: 30_000}

    take = fn
      {:head, status, _headers}, body -> {:cont, {status, body}}
      {:data, data}, {status, body} -> {:cont, {status, [body | data]}}
    end

    case HTTP1.stream(request, [], take, keep_alive: false) do
      {:ok, {200, body}} -> {:ok, IO.iodata_to_binary(body)}
      other -> {:error, other}
    end
  end

  defp free_ports(host) do
    {:ok, ip} = host |> to_charlist() |> :inet.parse_address()

    sockets =
      for _ <- 1..2 do
        {:ok, socket} = :gen_tcp.listen(0, ip: ip)
        socket
      end

    for socket <- sockets do
      {:ok, port} = :inet.port(socket)
      :ok = :gen_tcp.close(socket)
      Integer.to_string(port)
    end
  end
end
