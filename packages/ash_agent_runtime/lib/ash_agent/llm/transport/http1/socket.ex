defmodule AshAgent.LLM.Transport.HTTP1.Socket do
  @moduledoc false

  # A passive TCP or TLS socket, and its faults in the words of a transport.

  alias AshAgent.LLM.Transport.{Clock, Request}

  # One read takes so many bytes. OTP's default for recv is smaller than one packet of a fast server.
  @buffer_bytes 65_536

  @doc "Connects to the first address that answers, IPv4 before IPv6."
  def connect(%Request{uri: uri} = request, clock) do
    host = String.to_charlist(uri.host)

    targets =
      case :inet.parse_address(host) do
        {:ok, address} when tuple_size(address) == 4 -> [{address, :inet}]
        {:ok, address} -> [{address, :inet6}]
        {:error, _} -> [{host, :inet}, {host, :inet6}]
      end

    with {:ok, tls} <- tls(uri.scheme, host, request.ssl),
         do: connect_first(targets, uri.port, tls, clock, nil)
  end

  defp connect_first([], _port, _tls, clock, reason), do: {:error, to_error(reason, clock)}

  defp connect_first([{address, family} | targets], port, tls, clock, first_reason) do
    options = [family, :binary, active: false, nodelay: true, buffer: @buffer_bytes]
    options = options ++ [send_timeout: Clock.wait(clock), send_timeout_close: true]

    case open(tls, address, port, options, Clock.wait(clock)) do
      {:ok, socket} -> {:ok, socket}
      # People expect the error of the first family.
      {:error, reason} -> connect_first(targets, port, tls, clock, first_reason || reason)
    end
  end

  defp open(tls, address, port, options, timeout) do
    transport = if tls, do: :ssl, else: :gen_tcp

    with {:ok, socket} <- transport.connect(address, port, options ++ (tls || []), timeout),
         do: {:ok, {transport, socket}}
  end

  defp tls("http", _host, _own), do: {:ok, nil}

  defp tls("https", host, own) do
    {:ok, _} = Application.ensure_all_started(:ssl)

    base = [
      verify: :verify_peer,
      customize_hostname_check: [match_fun: :public_key.pkix_verify_hostname_match_fun(:https)],
      log_level: :none
    ]

    name =
      if match?({:ok, _}, :inet.parse_address(host)), do: [], else: [server_name_indication: host]

    with {:ok, trusted} <- trust(own),
         do: {:ok, trusted |> Keyword.merge(base ++ name) |> Keyword.merge(own)}
  end

  defp trust(own) do
    named? = Keyword.has_key?(own, :cacerts) or Keyword.has_key?(own, :cacertfile)
    trusted? = named? or own[:verify] == :verify_none
    {:ok, if(trusted?, do: [], else: [cacerts: :public_key.cacerts_get()])}
  rescue
    _ -> {:error, {:connection, :no_cacerts}}
  end

  @doc "Sends everything, for at most as long as the clock says."
  def send(socket, data, clock) do
    _ = setopts(socket, send_timeout: Clock.wait(clock))
    {transport, raw} = socket
    with {:error, reason} <- transport.send(raw, data), do: {:error, to_error(reason, clock)}
  end

  @doc "Takes what has come, or waits for it as long as the clock says."
  def recv({transport, socket}, clock) do
    with {:error, reason} <- transport.recv(socket, 0, Clock.wait(clock)),
         do: {:error, to_error(reason, clock)}
  end

  @doc "Returns whether a passive socket is open and nobody has sent anything."
  def quiet?({transport, socket}), do: transport.recv(socket, 0, 0) == {:error, :timeout}

  @doc "Sets options of the socket."
  def setopts({:gen_tcp, socket}, options), do: :inet.setopts(socket, options)
  def setopts({:ssl, socket}, options), do: :ssl.setopts(socket, options)

  @doc "Hands the socket from its owner, the caller, to another process."
  def give({transport, socket}, pid), do: transport.controlling_process(socket, pid)

  @doc "Closes the socket at once. OTP would wait minutes for a server that does not read what is left to send."
  def abort(socket) do
    _ = setopts(socket, linger: {true, 0})
    close(socket)
  end

  @doc "Closes the socket."
  def close({transport, socket}), do: transport.close(socket)

  defp to_error(:timeout, clock), do: Clock.name_timeout(clock)

  # {:tls_alert, {name, words}} has too many details of the peer's certificate; the name is enough.
  defp to_error({:tls_alert, {name, _words}}, _clock), do: {:connection, {:tls_alert, name}}
  defp to_error(reason, _clock) when is_atom(reason), do: {:connection, reason}
  defp to_error({reason, _details}, _clock) when is_atom(reason), do: {:connection, reason}
  defp to_error(_reason, _clock), do: {:connection, :failed}
end
