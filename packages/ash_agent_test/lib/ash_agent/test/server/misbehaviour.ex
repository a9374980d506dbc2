defmodule AshAgent.Test.Server.Misbehaviour do
  @moduledoc false

  # The ways in which providers, and servers between us and them, misbehave: the bytes they send, and the end of the
  # connection.

  alias AshAgent.Context.JSON
  alias AshAgent.Test.Server.{Format, Wire}

  @kinds [
    busy: "429 with `retry-after: 0`",
    busy_for_20_minutes: "429 with `retry-after: 1200`",
    no_money: "429 with the code `insufficient_quota`",
    broken: "500",
    wrong_key: "401",
    too_long: "400 with the code `context_length_exceeded`",
    not_found: "404",
    gateway_page: "502 with a page of HTML",
    page_with_200: "a page of HTML with status 200",
    empty_body: "status 200 and an empty body",
    garbage: "bytes that are not an answer",
    redirect: "a redirect to another host",
    cut_within_an_event: "the connection closes within an event, after the first words",
    cut_between_events: "the body ends between two events, after the first words",
    error_in_the_stream: "the provider reports an overload after the first words",
    idle: "nothing comes after the first words",
    never_ending: "bytes keep coming after the first words, and no event ends",
    silent: "no byte comes",
    too_large: "33 MB of white space"
  ]

  @doc "Returns the kinds, each with its words."
  def kinds, do: @kinds

  # Words of a server may hold a key, as those of some providers do.
  defstruct [:connection, :type, events: [], words: ""]

  @doc "Does it. `events` is the answer that is cut or goes on."
  def perform(kind, %__MODULE__{} = to), do: behave(kind, to)

  # The refusals, with their status, words, headers and code.
  @refusals %{
    busy: [429, "Slow down", [{"retry-after", "0"}]],
    busy_for_20_minutes: [429, "Slow down", [{"retry-after", "1200"}]],
    no_money: [429, "You exceeded your current quota", [], "insufficient_quota"],
    broken: [500, "Internal error", [{"retry-after", "0"}]],
    wrong_key: [401, "Incorrect API key provided"],
    too_long: [
      400,
      "This model's maximum context length is 8192 tokens",
      [],
      "context_length_exceeded"
    ],
    not_found: [404, "No such model"]
  }

  defp behave(kind, to) when is_map_key(@refusals, kind),
    do: apply(__MODULE__, :refuse, [to | @refusals[kind]])

  defp behave(:gateway_page, to) do
    headers = [{"content-type", "text/html"}, {"retry-after", "0"}]
    respond(to, 502, page("502 Bad Gateway", to), headers)
  end

  defp behave(:page_with_200, to),
    do: respond(to, 200, page("Log in", to), [{"content-type", "text/html"}])

  defp behave(:empty_body, to), do: respond(to, 200, "", [{"content-type", to.type}])

  # In the frame that the stream has: bytes that are not a line of it are skipped, and then the end is missing.
  defp behave(:garbage, to) do
    frame = if to.type =~ "text/event-stream", do: "data: ", else: ""
    garbage = frame <> :binary.copy(<<255, 0, "}{">>, 50) <> "\n\n"
    respond(to, 200, garbage, [{"content-type", to.type}])
  end

  defp behave(:redirect, to) do
    location = "https://elsewhere.invalid/?words=#{URI.encode(to.words)}"
    respond(to, 307, "", [{"location", location}])
  end

  # The chunks do not end: the client can see that something is missing.
  defp behave(:cut_within_an_event, to) do
    {first, rest} = split(to.events)
    stream(to, first <> binary_part(rest, 0, min(9, byte_size(rest))), "")
  end

  defp behave(:cut_between_events, to), do: stream(to, first_events(to), "0\r\n\r\n")

  defp behave(:error_in_the_stream, to),
    do: stream(to, first_events(to) <> error_event(to), "0\r\n\r\n")

  defp behave(:idle, to) do
    stream(to, first_events(to), "")
    Wire.await_close(to.connection)
  end

  defp behave(:never_ending, to) do
    stream(to, first_events(to) <> endless_event(to), "")
    drip(to.connection)
  end

  defp behave(:silent, to), do: Wire.await_close(to.connection)

  defp behave(:too_large, to),
    do: respond(to, 200, :binary.copy(" ", 33 * 1_048_576), [{"content-type", to.type}])

  @doc "Sends a provider's refusal."
  def refuse(to, status, words, headers \\ [], code \\ nil) do
    error = %{"message" => words <> to.words, "code" => code, "type" => code}
    headers = [{"content-type", "application/json"} | headers]
    respond(to, status, JSON.encode(%{"error" => error}), headers)
  end

  @doc "Sends a whole answer, with which the connection ends."
  def respond(to, status, body, headers),
    do:
      Wire.write(to.connection, Wire.response(status, body, [{"connection", "close"} | headers]))

  defp stream(to, bytes, ending),
    do: Wire.write(to.connection, [Wire.stream_head(to.type), Wire.chunk(bytes), ending])

  defp page(title, to),
    do: "<!DOCTYPE html><html><head><title>#{title}</title></head><body>#{to.words}</body></html>"

  # The events up to the first words, and the others.
  defp split(events) do
    {open, rest} = Enum.split_while(events, fn {kind, _} -> kind == :open end)
    {first, rest} = Enum.split(rest, 1)
    {bytes(open ++ first), bytes(rest)}
  end

  defp first_events(to), do: to.events |> split() |> elem(0)
  defp bytes(events), do: for({_kind, bytes} <- events, into: "", do: bytes)

  defp drip(connection) do
    with :ok <- Wire.write_chunk(connection, "x") do
      Process.sleep(20)
      drip(connection)
    end
  end

  # An error is an event of its own, in each stream's form. Ollama has words for it, and no names.
  defp error_event(%{type: "application/vnd.amazon.eventstream"} = to) do
    type = [
      {":exception-type", "serviceUnavailableException"},
      {":content-type", "application/json"}
    ]

    payload = JSON.encode(%{"message" => "overloaded" <> to.words})
    Format.aws_frame([{":message-type", "exception"} | type], payload)
  end

  defp error_event(%{type: "application/x-ndjson"} = to),
    do: JSON.encode(%{"error" => "overloaded" <> to.words}) <> "\n"

  defp error_event(to) do
    error = %{
      "type" => "overloaded_error",
      "code" => "server_is_overloaded",
      "status" => "UNAVAILABLE",
      "message" => "Overloaded" <> to.words
    }

    "event: error\ndata: #{JSON.encode(%{"type" => "error", "error" => error})}\n\n"
  end

  # An event that announces more than comes, or does not say where it ends.
  defp endless_event(%{type: "application/vnd.amazon.eventstream"}) do
    prelude = <<1_000_000::32, 100::32>>
    <<prelude::binary, :erlang.crc32(prelude)::32>>
  end

  defp endless_event(%{type: "application/x-ndjson"}), do: "{\"message\": \""
  defp endless_event(_to), do: "data: {\"text\": \""
end
