defmodule AshAgent.TestSupport.Misbehaviour do
  @moduledoc false

  # The ways in which providers and what is between us and them misbehave, for any of the clients.

  alias AshAgent.Context.JSON
  alias AshAgent.TestSupport.{Recorded, WireServer}

  @key "sk-key-that-nobody-may-see"

  # What each kind comes to: the kind and the reason of an `AshAgent.LLM.Error`, or `:ok` where the client gets an answer.
  @kinds [
    busy_once: :ok,
    busy_forever: {:rate_limited, {:status, 429}},
    busy_for_20_minutes: {:rate_limited, {:status, 429}},
    no_money: {:quota, {:status, 429}},
    broken: {:server_error, {:status, 500}},
    broken_once: :ok,
    wrong_key: {:unauthorized, {:status, 401}},
    too_long: {:context_overflow, {:status, 400}},
    not_found: {:invalid_request, {:status, 404}},
    gateway_page: {:server_error, {:status, 502}},
    page_with_200: {:invalid_response, :invalid_response},
    empty_body: {:closed, :incomplete},
    garbage: {:invalid_response, :invalid_response},
    redirect: {:invalid_response, {:status, 307}},
    cut_within_an_event: {:closed, :connection},
    cut_between_events: {:closed, :incomplete},
    error_in_the_stream: {:overloaded, :provider},
    idle: {:timeout, {:timeout, :idle}},
    never_ending: {:timeout, :timeout},
    silent: {:timeout, {:timeout, :first_byte}},
    too_large: {:invalid_response, :response_too_large},
    refused_connection: {:unreachable, :connection},
    unknown_host: {:unreachable, :connection},
    arguments_without_json: :ok,
    same_call_forever: :ok
  ]

  @doc "The kinds, each with what it comes to."
  def kinds, do: @kinds

  @doc "The key that no message may have. The server repeats it wherever it uses words."
  def key, do: @key

  @doc "Starts a server, and returns the options of a client that meets it."
  def start(:refused_connection, _provider) do
    {:ok, listener} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
    {:ok, port} = :inet.port(listener)
    :gen_tcp.close(listener)
    options(%{url: "http://127.0.0.1:#{port}/v1"}, [])
  end

  def start(:unknown_host, _provider), do: options(%{url: "http://nowhere.invalid/v1"}, [])

  def start(kind, provider) do
    asked = :counters.new(1, [])
    sample = Recorded.sample(provider)

    server =
      WireServer.start(fn connection ->
        with {:ok, _request} <- WireServer.read_request(connection) do
          :counters.add(asked, 1, 1)
          behave(kind, connection, sample, :counters.get(asked, 1))
        end
      end)

    options(server, limits(kind))
  end

  defp options(server, limits) do
    own = [model: "m", base_url: server.url, api_key: @key, region: "eu-central-1"]
    Keyword.merge([max_retries: 1] ++ own, limits)
  end

  defp limits(:idle), do: [idle_timeout: 100]
  defp limits(:never_ending), do: [timeout: 300]
  defp limits(:silent), do: [first_byte_timeout: 100, max_retries: 0]
  defp limits(_kind), do: []

  defp behave(kind, connection, _sample, 1) when kind in [:busy_once, :broken_once] do
    status = if kind == :busy_once, do: 429, else: 500
    refuse(connection, status, "Try again", [{"retry-after", "0"}])
  end

  defp behave(kind, connection, sample, _asked) when kind in [:busy_once, :broken_once],
    do: stream(connection, sample, sample.body, "0\r\n\r\n")

  defp behave(:busy_forever, connection, _sample, _asked),
    do: refuse(connection, 429, "Slow down", [{"retry-after", "0"}])

  defp behave(:busy_for_20_minutes, connection, _sample, _asked),
    do: refuse(connection, 429, "Slow down", [{"retry-after", "1200"}])

  defp behave(:no_money, connection, _sample, _asked),
    do: refuse(connection, 429, "You exceeded your current quota", [], "insufficient_quota")

  defp behave(:broken, connection, _sample, _asked),
    do: refuse(connection, 500, "Internal error", [{"retry-after", "0"}])

  defp behave(:wrong_key, connection, _sample, _asked),
    do: refuse(connection, 401, "Incorrect API key provided")

  defp behave(:too_long, connection, _sample, _asked) do
    words = "This model's maximum context length is 8192 tokens"
    refuse(connection, 400, words, [], "context_length_exceeded")
  end

  defp behave(:not_found, connection, _sample, _asked),
    do: refuse(connection, 404, "No such model")

  defp behave(:gateway_page, connection, _sample, _asked) do
    headers = [{"content-type", "text/html"}, {"retry-after", "0"}]
    WireServer.write(connection, WireServer.response(502, page("502 Bad Gateway"), headers))
  end

  defp behave(:page_with_200, connection, _sample, _asked) do
    headers = [{"content-type", "text/html"}]
    WireServer.write(connection, WireServer.response(200, page("Log in"), headers))
  end

  defp behave(:empty_body, connection, sample, _asked), do: whole(connection, sample, "")

  # In the frame that the stream has: bytes that are no line of it are skipped, and then the end is missing.
  defp behave(:garbage, connection, sample, _asked) do
    garbage = :binary.copy(<<255, 0, "}{">>, 50)
    frame = if sample.type =~ "text/event-stream", do: "data: ", else: ""
    whole(connection, sample, frame <> garbage <> "\n\n")
  end

  defp behave(:redirect, connection, _sample, _asked) do
    headers = [{"location", "https://elsewhere.invalid/?key=#{@key}"}]
    WireServer.write(connection, WireServer.response(307, "", headers))
  end

  # The length was told, or the chunks do not end: the client can see that something is missing.
  defp behave(:cut_within_an_event, connection, sample, _asked),
    do: stream(connection, sample, binary_part(sample.body, 0, half(sample)), "")

  defp behave(:cut_between_events, connection, sample, _asked),
    do: stream(connection, sample, first_events(sample), "0\r\n\r\n")

  defp behave(:error_in_the_stream, connection, sample, _asked),
    do: stream(connection, sample, first_events(sample) <> error_event(sample), "0\r\n\r\n")

  defp behave(:idle, connection, sample, _asked) do
    stream(connection, sample, first_events(sample), "")
    WireServer.await_close(connection)
  end

  defp behave(:never_ending, connection, sample, _asked) do
    stream(connection, sample, first_events(sample) <> endless_event(sample), "")
    drip(connection)
  end

  defp behave(:silent, connection, _sample, _asked), do: WireServer.await_close(connection)

  defp behave(:too_large, connection, sample, _asked),
    do: whole(connection, sample, :binary.copy(" ", 33 * 1_048_576))

  defp behave(:arguments_without_json, connection, sample, 1),
    do: call(connection, sample, "{\"to\": Ann")

  defp behave(:arguments_without_json, connection, sample, _asked),
    do: stream(connection, sample, sample.body, "0\r\n\r\n")

  defp behave(:same_call_forever, connection, sample, _asked),
    do: call(connection, sample, "{}")

  ## Bytes

  defp refuse(connection, status, words, headers \\ [], code \\ nil) do
    error = %{"message" => "#{words} (#{@key})", "code" => code, "type" => code}
    body = JSON.encode(%{"error" => error})
    headers = [{"content-type", "application/json"} | headers]
    WireServer.write(connection, WireServer.response(status, body, headers))
  end

  defp page(title),
    do: "<!DOCTYPE html><html><head><title>#{title}</title></head><body>#{@key}</body></html>"

  defp whole(connection, sample, body),
    do:
      WireServer.write(
        connection,
        WireServer.response(200, body, [{"content-type", sample.type}])
      )

  defp stream(connection, sample, bytes, ending) do
    head = WireServer.stream_head(sample.type)
    WireServer.write(connection, [head, WireServer.chunk(bytes), ending])
  end

  defp drip(connection) do
    with :ok <- WireServer.write_chunk(connection, "x") do
      Process.sleep(20)
      drip(connection)
    end
  end

  defp half(sample), do: byte_size(first_events(sample)) + 9

  # The events up to the first words.
  defp first_events(%{type: "application/vnd.amazon.eventstream", body: body}) do
    <<first::32, _::binary>> = body
    <<_::binary-size(first), second::32, _::binary>> = body
    binary_part(body, 0, first + second)
  end

  defp first_events(%{body: body}) do
    {at, _length} = :binary.match(body, "Gr")
    {from, length} = :binary.match(body, "\n", scope: {at, byte_size(body) - at})
    # An empty line ends an event of a stream of events.
    more = if binary_part(body, from + 1, 1) == "\n", do: 1, else: 0
    binary_part(body, 0, from + length + more)
  end

  # An error is an event of its own, in each stream's form. Ollama has words for it, and no names.
  defp error_event(%{type: "application/vnd.amazon.eventstream"}) do
    headers =
      for {name, value} <- [
            {":message-type", "exception"},
            {":exception-type", "serviceUnavailableException"},
            {":content-type", "application/json"}
          ],
          into: "",
          do: <<byte_size(name), name::binary, 7, byte_size(value)::16, value::binary>>

    payload = JSON.encode(%{"message" => "overloaded (#{@key})"})
    prelude = <<byte_size(headers) + byte_size(payload) + 16::32, byte_size(headers)::32>>
    message = <<prelude::binary, :erlang.crc32(prelude)::32, headers::binary, payload::binary>>
    <<message::binary, :erlang.crc32(message)::32>>
  end

  defp error_event(%{type: "application/x-ndjson"}),
    do: JSON.encode(%{"error" => "overloaded (#{@key})"}) <> "\n"

  defp error_event(_sample) do
    error = %{
      "type" => "overloaded_error",
      "code" => "server_is_overloaded",
      "status" => "UNAVAILABLE",
      "message" => "Overloaded (#{@key})"
    }

    event = JSON.encode(%{"type" => "error", "error" => error})
    "event: error\ndata: #{event}\n\n"
  end

  # An event that tells no end, or one that is far away.
  defp endless_event(%{type: "application/vnd.amazon.eventstream"}) do
    prelude = <<1_000_000::32, 100::32>>
    <<prelude::binary, :erlang.crc32(prelude)::32>>
  end

  defp endless_event(%{type: "application/x-ndjson"}), do: "{\"message\": \""
  defp endless_event(_sample), do: "data: {\"text\": \""

  # Of the streams, that of `/v1/chat/completions` has arguments as the model's own text.
  defp call(connection, sample, arguments) do
    function = %{"name" => "pay", "arguments" => arguments}
    calls = [%{"index" => 0, "id" => "call_1", "type" => "function", "function" => function}]
    delta = %{"role" => "assistant", "tool_calls" => calls}

    events =
      for choice <- [
            %{"index" => 0, "delta" => delta},
            %{"index" => 0, "delta" => %{}, "finish_reason" => "tool_calls"}
          ],
          into: "",
          do: "data: " <> JSON.encode(%{"id" => "m", "choices" => [choice]}) <> "\n\n"

    stream(connection, sample, events <> "data: [DONE]\n\n", "0\r\n\r\n")
  end
end
