defmodule AshAgent.Trace.Exporter.Delivery do
  @moduledoc false

  # Encodes a batch of turns and brings it to the receiver, in a process of its own.

  require Logger

  alias AshAgent.Context.Error
  alias AshAgent.LLM.Refusal
  alias AshAgent.LLM.Transport.Request
  alias AshAgent.Trace.Otlp

  # The statuses that OTLP calls retryable, and that of a server that did not want to wait.
  @retryable [408, 429, 502, 503, 504]

  # A receiver's answer is a few bytes.
  @max_answer 65_536

  @doc """
  Returns `{:sent | :failed, lost, reason, rest}`: whether the receiver took the batch, how many turns were lost and why, and the turns
  for which the batch had no room.
  """
  def deliver(turns, opts) do
    {bodies, wrong, rest} = encode(turns, opts)

    case bodies != [] and send_batch(bodies, opts, 0) do
      false -> {:failed, length(wrong), List.last(wrong), rest}
      :ok -> {:sent, length(wrong), List.last(wrong), rest}
      {:error, reason} -> {:failed, length(bodies) + length(wrong), reason, rest}
    end
  end

  @doc "Names a receiver. The query of its URL may hold a key."
  def about(url),
    do: "AshAgent.Trace.Exporter for #{url.scheme}://#{url.host}:#{url.port}#{url.path}"

  ## Encoding

  # Protobuf messages one after the other are one message with all their spans.
  defp encode(turns, opts, bodies \\ [], size \\ 0, wrong \\ [])

  defp encode([turn | rest] = turns, opts, bodies, size, wrong) do
    if size < opts[:max_batch_bytes] do
      case encode_turns(turn, opts) do
        {:ok, body} -> encode(rest, opts, [body | bodies], size + byte_size(body), wrong)
        {:error, reason} -> encode(rest, opts, bodies, size, [reason | wrong])
      end
    else
      {Enum.reverse(bodies), wrong, turns}
    end
  end

  defp encode([], _opts, bodies, _size, wrong), do: {Enum.reverse(bodies), wrong, []}

  defp encode_turns({shown, children, turns, how}, opts) do
    {:ok, Otlp.encode(shown, [children: children, turn: turns] ++ opts, how)}
  rescue
    error in Error -> {:error, "a turn cannot be written (#{label(error.reason)})"}
  end

  # The rest of a reason may be data.
  defp label(reason) when is_tuple(reason), do: reason |> elem(0) |> inspect()
  defp label(reason), do: inspect(reason)

  ## Sending

  defp send_batch(bodies, opts, done) do
    with {:error, reason, retry_after} <- request(bodies, opts) do
      if retry_after == :never or done >= opts[:max_retries] do
        {:error, reason}
      else
        # A person who has just set it up looks at the log now, and not in some minutes.
        if done == 0 and not opts[:warned?],
          do: Logger.warning("#{about(opts[:url])} cannot send turns, and tries again: #{reason}")

        Process.sleep(min(retry_after || backoff(opts, done), opts[:max_retry_delay]))
        send_batch(bodies, opts, done + 1)
      end
    end
  end

  # Doubles, with up to a quarter off, so that exporters that failed together do not come back together.
  defp backoff(opts, done) do
    delay = min(opts[:retry_delay] * Integer.pow(2, min(done, 20)), opts[:max_retry_delay])
    delay - :rand.uniform(div(delay, 4) + 1) + 1
  end

  defp request(bodies, opts) do
    {transport, transport_opts} = opts[:transport]

    request = %Request{
      method: "POST",
      uri: opts[:url],
      headers: fn ->
        given = for {name, value} <- opts[:headers], do: {name, value.()}
        [{"content-type", "application/x-protobuf"} | given]
      end,
      body: bodies,
      timeout: opts[:timeout],
      connect_timeout: opts[:timeout],
      max_bytes: @max_answer,
      ssl: opts[:ssl]
    }

    case transport.stream(request, nil, &take/2, transport_opts) do
      {:ok, nil} -> {:error, "the receiver did not answer", nil}
      {:error, reason, nil} -> {:error, words(reason), nil}
      {_ok, {status, _headers, body}} when status in 200..299 -> check_accepted(body)
      {_ok, {status, headers, _body}} -> refuse(status, headers)
    end
  end

  defp take({:head, status, headers}, _acc), do: {:cont, {status, headers, []}}
  defp take({:data, data}, {status, headers, body}), do: {:cont, {status, headers, [body | data]}}

  # Spans that a receiver rejected are not sent again: that would not help.
  defp check_accepted(body) do
    case body |> IO.iodata_to_binary() |> count_rejected() do
      0 -> :ok
      count -> {:error, "the receiver rejected #{count} spans", :never}
    end
  end

  # An ExportTraceServiceResponse has partial_success as its field 1, and that has rejected_spans as its own.
  defp count_rejected(<<0x0A, rest::binary>>) do
    with {_length, <<0x08, rest::binary>>} <- varint(rest),
         {count, _rest} <- varint(rest) do
      count
    else
      _none -> 0
    end
  end

  defp count_rejected(_other), do: 0

  defp varint(bytes, value \\ 0, shift \\ 0)

  defp varint(<<more::1, low::7, rest::binary>>, value, shift) when shift < 64 do
    value = value + Bitwise.bsl(low, shift)
    if more == 1, do: varint(rest, value, shift + 7), else: {value, rest}
  end

  defp varint(_bytes, _value, _shift), do: :error

  defp refuse(status, headers) do
    retry_after = if status in @retryable, do: Refusal.retry_after(headers), else: :never
    {:error, "the receiver answered with the status #{status}", retry_after}
  end

  defp words({:timeout, _which}), do: "the receiver did not answer in time"
  defp words({:connection, reason}), do: "there is no connection (#{label(reason)})"
  defp words({what, _rest}), do: "the answer is not valid (#{what})"
end
