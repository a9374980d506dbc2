defmodule AshAgent.LLM.HTTP do
  @moduledoc false

  # One POST over HTTP/1.1 and its repetitions, for the clients of this package.
  #
  # OTP's :httpc is not used: it answers a 503 with a short Retry-After by repeating the request itself, without end,
  # past the request's own timeout and after its cancellation (OTP 25), which for a model means paying for answers that
  # nobody reads. It also reads error bodies of any size, and goes on when the process that asked has been killed. Here
  # the socket belongs to the process that asks and closes with it, and each wait counts against one deadline.

  alias AshAgent.LLM.Error

  @max_head_bytes 65_536
  @retry_after_statuses [408, 429]
  @first_delay 500
  @longest_delay 8_000

  @type response :: %{status: pos_integer(), headers: [{binary(), binary()}], body: binary()}

  @doc """
  Posts JSON and returns the first response with a 2xx status.

  Options: `:timeout` for everything, `:connect_timeout`, `:max_retries`, `:max_response_bytes`, `:ssl`, and
  `:describe`, a function that takes the provider's words out of an error body.
  """
  @spec post(URI.t(), [{binary(), binary()}], iodata(), keyword()) ::
          {:ok, response()} | {:error, Error.t()}
  def post(%URI{} = uri, headers, body, opts) do
    deadline = deadline(opts[:timeout])
    request = [head(uri, headers, IO.iodata_length(body)), body]
    attempt(uri, request, deadline, opts, 0)
  end

  defp attempt(uri, request, deadline, opts, done) do
    case once(uri, request, deadline, opts) do
      {:ok, %{status: status} = response} when status in 200..299 ->
        {:ok, response}

      {:ok, response} ->
        error = refusal(response, opts[:describe])

        again(
          error,
          response.status in @retry_after_statuses or response.status >= 500,
          uri,
          request,
          deadline,
          opts,
          done
        )

      {:error, {:connection, reason}} ->
        again(
          %Error{reason: {:connection, reason}},
          transient?(reason),
          uri,
          request,
          deadline,
          opts,
          done
        )

      {:error, reason} ->
        {:error, %Error{reason: reason}}
    end
  end

  defp again(error, retry?, uri, request, deadline, opts, done) do
    delay = error.retry_after || backoff(done)

    if retry? and done < opts[:max_retries] and delay < left(deadline) do
      receive do
      after
        delay -> attempt(uri, request, deadline, opts, done + 1)
      end
    else
      {:error, error}
    end
  end

  defp transient?(reason),
    do: reason in [:closed, :econnrefused, :econnreset, :econnaborted, :epipe, :enetdown]

  # Doubles, with up to a quarter off, so that clients that failed together do not come back together.
  defp backoff(done) do
    delay = min(@first_delay * Integer.pow(2, done), @longest_delay)
    delay - :rand.uniform(div(delay, 4))
  end

  defp refusal(%{status: status, headers: headers, body: body}, describe) do
    %Error{
      reason: {:status, status},
      status: status,
      provider_message: words(describe.(body)),
      retry_after: retry_after(headers)
    }
  end

  defp words(text) when is_binary(text) do
    case if(String.valid?(text), do: String.trim(text), else: "") do
      "" -> nil
      text -> String.slice(text, 0, 2_000)
    end
  end

  defp words(_other), do: nil

  @doc false
  def retry_after(headers, now \\ DateTime.utc_now()) do
    with nil <- milliseconds(header(headers, "retry-after-ms"), 1),
         nil <- milliseconds(header(headers, "retry-after"), 1_000) do
      until(header(headers, "retry-after"), now)
    end
  end

  defp milliseconds(nil, _unit), do: nil

  defp milliseconds(text, unit) do
    case Float.parse(String.slice(text, 0, 20)) do
      {number, ""} when number >= 0 -> ceil(number * unit)
      _ -> nil
    end
  end

  @months ~w(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec)

  # "Sun, 06 Nov 1994 08:49:37 GMT"
  defp until(
         <<_::binary-size(5), day::binary-size(2), " ", month::binary-size(3), " ",
           year::binary-size(4), " ", time::binary-size(8), " GMT">>,
         now
       ) do
    with index when index != nil <- Enum.find_index(@months, &(&1 == month)),
         number = String.pad_leading(Integer.to_string(index + 1), 2, "0"),
         {:ok, at, 0} <- DateTime.from_iso8601("#{year}-#{number}-#{day}T#{time}Z") do
      max(DateTime.diff(at, now, :millisecond), 0)
    else
      _ -> nil
    end
  end

  defp until(_other, _now), do: nil

  defp header(headers, name) do
    Enum.find_value(headers, fn {key, value} -> if key == name, do: value end)
  end

  ## One request

  defp once(uri, request, deadline, opts) do
    with {:ok, socket} <- connect(uri, deadline, opts) do
      try do
        # A server may refuse before it has read everything, so a failed send does not tell that there is no answer.
        sent = send_all(socket, request)

        case {receive_head(socket, "", deadline), sent} do
          {{:ok, status, headers, rest}, _} ->
            receive_body(socket, status, headers, rest, deadline, opts)

          {{:error, {:connection, _}}, {:error, reason}} ->
            {:error, lost(reason)}

          {{:error, reason}, _} ->
            {:error, reason}
        end
      after
        close(socket)
      end
    end
  end

  defp head(uri, headers, length) do
    path = if uri.path in [nil, ""], do: "/", else: uri.path
    target = if uri.query, do: [path, ??, uri.query], else: path
    name = if String.contains?(uri.host, ":"), do: [?[, uri.host, ?]], else: uri.host

    port =
      if uri.port == URI.default_port(uri.scheme), do: [], else: [?:, Integer.to_string(uri.port)]

    [
      ["POST ", target, " HTTP/1.1\r\nhost: ", name, port],
      "\r\ncontent-type: application/json\r\naccept: application/json\r\nconnection: close\r\ncontent-length: ",
      Integer.to_string(length),
      Enum.map(headers, fn {key, value} -> ["\r\n", key, ": ", value] end),
      "\r\n\r\n"
    ]
  end

  defp connect(uri, deadline, opts) do
    host = String.to_charlist(uri.host)

    targets =
      case :inet.parse_address(host) do
        {:ok, address} when tuple_size(address) == 4 -> [{address, :inet}]
        {:ok, address} -> [{address, :inet6}]
        {:error, _} -> [{host, :inet}, {host, :inet6}]
      end

    with {:ok, tls} <- tls(uri.scheme, host, opts[:ssl]),
         do: connect_first(targets, uri.port, tls, deadline, opts, nil)
  end

  defp connect_first([], _port, _tls, _deadline, _opts, reason), do: {:error, lost(reason)}

  defp connect_first([{address, family} | targets], port, tls, deadline, opts, first_reason) do
    options = [
      family,
      :binary,
      active: false,
      nodelay: true,
      send_timeout: left(deadline),
      send_timeout_close: true
    ]

    timeout = min(left(deadline), opts[:connect_timeout])

    case open(tls, address, port, options, timeout) do
      {:ok, socket} ->
        {:ok, socket}

      # What the first family says is what people expect to read.
      {:error, reason} ->
        connect_first(targets, port, tls, deadline, opts, first_reason || reason)
    end
  end

  defp open(nil, address, port, options, timeout) do
    with {:ok, socket} <- :gen_tcp.connect(address, port, options, timeout),
         do: {:ok, {:gen_tcp, socket}}
  end

  defp open(tls, address, port, options, timeout) do
    with {:ok, socket} <- :ssl.connect(address, port, options ++ tls, timeout),
         do: {:ok, {:ssl, socket}}
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

    with {:ok, trusted} <- trusted(own),
         do: {:ok, trusted |> Keyword.merge(base ++ name) |> Keyword.merge(own)}
  end

  defp trusted(own) do
    if Keyword.has_key?(own, :cacerts) or Keyword.has_key?(own, :cacertfile) or
         own[:verify] == :verify_none do
      {:ok, []}
    else
      {:ok, [cacerts: :public_key.cacerts_get()]}
    end
  rescue
    _ -> {:error, {:connection, :no_cacerts}}
  end

  defp send_all({transport, socket}, data), do: transport.send(socket, data)

  defp close({transport, socket}), do: transport.close(socket)

  defp more({transport, socket}, deadline) do
    case transport.recv(socket, 0, left(deadline)) do
      {:ok, data} -> {:ok, data}
      {:error, reason} -> {:error, lost(reason)}
    end
  end

  defp lost(:timeout), do: :timeout

  # {:tls_alert, {name, words}} says more than it should about the peer's certificate; the name is enough.
  defp lost({:tls_alert, {name, _words}}), do: {:connection, {:tls_alert, name}}
  defp lost(reason) when is_atom(reason), do: {:connection, reason}
  defp lost({reason, _details}) when is_atom(reason), do: {:connection, reason}
  defp lost(_reason), do: {:connection, :failed}

  defp receive_head(socket, buffer, deadline) do
    case :erlang.decode_packet(:http_bin, buffer, []) do
      {:ok, {:http_response, _version, status, _phrase}, rest} when status in 100..999 ->
        receive_headers(socket, status, [], rest, 0, deadline)

      {:more, _} when byte_size(buffer) < @max_head_bytes ->
        # Garbage that ends before its first line does is garbage, not a cut connection.
        if String.starts_with?("HTTP/", binary_part(buffer, 0, min(byte_size(buffer), 5))) do
          with {:ok, data} <- more(socket, deadline),
               do: receive_head(socket, buffer <> data, deadline)
        else
          {:error, {:invalid_response, "no HTTP status line"}}
        end

      _ ->
        {:error, {:invalid_response, "no HTTP status line"}}
    end
  end

  defp receive_headers(_socket, _status, _headers, _buffer, size, _deadline)
       when size > @max_head_bytes,
       do: {:error, {:invalid_response, "headers of more than #{@max_head_bytes} bytes"}}

  defp receive_headers(socket, status, headers, buffer, size, deadline) do
    case :erlang.decode_packet(:httph_bin, buffer, []) do
      {:ok, {:http_header, _, name, _, value}, rest} ->
        header = {name |> to_string() |> String.downcase(), value}
        size = size + byte_size(buffer) - byte_size(rest)
        receive_headers(socket, status, [header | headers], rest, size, deadline)

      # 100 Continue and its like: the response proper follows.
      {:ok, :http_eoh, rest} when status in 100..199 ->
        receive_head(socket, rest, deadline)

      {:ok, :http_eoh, rest} ->
        {:ok, status, Enum.reverse(headers), rest}

      {:more, _} when byte_size(buffer) < @max_head_bytes ->
        with {:ok, data} <- more(socket, deadline),
             do: receive_headers(socket, status, headers, buffer <> data, size, deadline)

      _ ->
        {:error, {:invalid_response, "no HTTP headers"}}
    end
  end

  defp receive_body(socket, status, headers, rest, deadline, opts) do
    max = opts[:max_response_bytes]
    chunked = header(headers, "transfer-encoding")

    body =
      cond do
        status in [204, 304] ->
          {:ok, ""}

        chunked && String.downcase(String.trim(chunked)) == "chunked" ->
          chunks(socket, rest, [], 0, max, deadline)

        chunked ->
          {:error, {:invalid_response, "unknown transfer encoding"}}

        length = header(headers, "content-length") ->
          sized(socket, rest, length, max, deadline)

        true ->
          until_close(socket, [rest], byte_size(rest), max, deadline)
      end

    case body do
      {:ok, body} ->
        {:ok, %{status: status, headers: headers, body: body}}

      # A refusal is one also when its reasons cannot be read.
      {:error, reason} when status not in 200..299 and reason != :timeout ->
        {:ok, %{status: status, headers: headers, body: ""}}

      {:error, reason} ->
        {:error, reason}
    end
  end

  defp sized(socket, rest, length, max, deadline) do
    case Integer.parse(length) do
      {length, ""} when length > max -> {:error, {:response_too_large, max}}
      {length, ""} when length >= 0 -> take(socket, [rest], byte_size(rest), length, deadline)
      _ -> {:error, {:invalid_response, "content-length is no number"}}
    end
  end

  defp take(_socket, data, have, length, _deadline) when have >= length,
    do: {:ok, data |> IO.iodata_to_binary() |> binary_part(0, length)}

  defp take(socket, data, have, length, deadline) do
    with {:ok, more} <- more(socket, deadline),
         do: take(socket, [data, more], have + byte_size(more), length, deadline)
  end

  defp until_close(_socket, _data, have, max, _deadline) when have > max,
    do: {:error, {:response_too_large, max}}

  defp until_close(socket, data, have, max, deadline) do
    case more(socket, deadline) do
      {:ok, more} -> until_close(socket, [data, more], have + byte_size(more), max, deadline)
      {:error, {:connection, :closed}} -> {:ok, IO.iodata_to_binary(data)}
      {:error, reason} -> {:error, reason}
    end
  end

  defp chunks(socket, buffer, data, have, max, deadline) do
    with {:ok, line, rest} <- line(socket, buffer, deadline),
         {:ok, size} <- chunk_size(line) do
      cond do
        size == 0 ->
          {:ok, IO.iodata_to_binary(data)}

        have + size > max ->
          {:error, {:response_too_large, max}}

        true ->
          with {:ok, chunk, rest} <- chunk(socket, [rest], byte_size(rest), size, deadline),
               do: chunks(socket, rest, [data, chunk], have + size, max, deadline)
      end
    end
  end

  defp chunk(socket, data, have, size, deadline) when have < size + 2 do
    with {:ok, more} <- more(socket, deadline),
         do: chunk(socket, [data, more], have + byte_size(more), size, deadline)
  end

  defp chunk(_socket, data, _have, size, _deadline) do
    case IO.iodata_to_binary(data) do
      <<chunk::binary-size(size), "\r\n", rest::binary>> -> {:ok, chunk, rest}
      _ -> {:error, {:invalid_response, "broken chunk"}}
    end
  end

  defp line(socket, buffer, deadline) do
    case :binary.split(buffer, "\r\n") do
      [line, rest] ->
        {:ok, line, rest}

      [_] when byte_size(buffer) > 1_024 ->
        {:error, {:invalid_response, "broken chunk"}}

      [_] ->
        with {:ok, more} <- more(socket, deadline), do: line(socket, buffer <> more, deadline)
    end
  end

  defp chunk_size(line) do
    case line |> String.split(";", parts: 2) |> hd() |> String.trim() |> Integer.parse(16) do
      {size, ""} when size >= 0 -> {:ok, size}
      _ -> {:error, {:invalid_response, "broken chunk"}}
    end
  end

  ## Time

  defp deadline(:infinity), do: :infinity
  defp deadline(timeout), do: now() + timeout

  defp left(:infinity), do: :infinity
  defp left(deadline), do: max(deadline - now(), 0)

  defp now, do: System.monotonic_time(:millisecond)
end
