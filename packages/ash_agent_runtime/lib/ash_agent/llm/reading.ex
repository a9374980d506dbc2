defmodule AshAgent.LLM.Reading do
  @moduledoc false

  # Turns the bytes of a transport into a response whose events are delivered as they come, or into an error.

  alias AshAgent.LLM.{ByteLog, Error, Refusal}
  alias AshAgent.Response

  # status, headers: of the HTTP response. body, size: of a refusal. held: events that are not worth a delivery yet. stopped:
  # the reason to read no further. log: the bytes, where they are logged.
  @enforce_keys [:opts, :mode, :secrets, :fun]
  defstruct @enforce_keys ++
              [:status, :response, :stopped, :log] ++
              [headers: [], body: [], size: 0, held: [], delivered?: false]

  @doc "Begins to read the answer to a request, whose bytes `log` collects, see `ByteLog.begin/2`."
  def new(opts, mode, secrets, fun, log \\ nil),
    do: %__MODULE__{opts: opts, mode: mode, secrets: secrets, fun: fun, log: log}

  @doc "Takes a transport's message."
  def take(message, %{log: nil} = reading), do: read(message, reading)

  def take(message, reading),
    do: read(message, %{reading | log: ByteLog.add(reading.log, message)})

  defp read({:head, status, headers}, reading) when status in 200..299 do
    encoding = Refusal.header(headers, "content-encoding") || "identity"
    reading = %{reading | status: status, headers: headers}

    cond do
      String.downcase(encoding, :ascii) != "identity" ->
        words = "it is compressed, though the request did not ask for that"
        {:halt, %{reading | stopped: {:invalid_response, words}}}

      # The page is a gateway's, or the URL is wrong.
      Refusal.page?(headers, "") ->
        {:cont, reading}

      true ->
        {:cont, %{reading | response: response(reading)}}
    end
  end

  defp read({:head, status, headers}, reading),
    do: {:cont, %{reading | status: status, headers: headers}}

  defp read({:data, data}, %{response: nil} = reading) do
    size = reading.size + byte_size(data)
    max = reading.opts[:max_response_bytes]

    if size > max,
      do: {:halt, %{reading | stopped: {:response_too_large, max}}},
      else: {:cont, %{reading | body: [reading.body | data], size: size}}
  end

  defp read({:data, data}, reading) do
    case Response.feed(reading.response, data) do
      {:ok, response, events} -> deliver(reading, response, events)
      {:error, error} -> {:halt, %{reading | stopped: error, body: first(reading, data)}}
    end
  end

  # Deltas of a transport that reads the stream itself.
  defp read({:deltas, deltas}, %{response: nil} = reading) do
    opts = [model: reading.opts[:model], max_bytes: reading.opts[:max_response_bytes]]
    read({:deltas, deltas}, put_response(reading, Response.new(nil, opts)))
  end

  defp read({:deltas, deltas}, reading) do
    case Response.push(reading.response, deltas) do
      {:ok, response, events} -> deliver(reading, response, events)
      {:error, error} -> {:halt, %{reading | stopped: error}}
    end
  end

  # Servers that send a whole answer without a content type do not send server-sent events.
  defp response(reading) do
    type = Refusal.header(reading.headers, "content-type")
    stream? = reading.mode == :stream or streamed?(type)

    Response.open(reading.opts[:provider], %{
      model: reading.opts[:model],
      max_bytes: reading.opts[:max_response_bytes],
      content_type: if(stream?, do: type),
      framing: if(stream?, do: nil, else: :json)
    })
  end

  # What nearly all of them send needs no regular expression.
  @whole [nil, "application/json", "application/json; charset=utf-8"]

  defp streamed?(type) when type in @whole, do: false
  defp streamed?(type), do: type =~ ~r/event-stream|ndjson|jsonl/i

  # Bytes that cannot be read may be a page of a gateway.
  defp first(%{response: response}, data),
    do: if(Response.count_bytes(response) == 0, do: data, else: [])

  # Nearly all pieces of a stream are one of these.
  defp deliver(%{held: []} = reading, response, [{kind, _position, _more}] = events)
       when kind in [:text, :thinking, :tool_call_arguments],
       do: pass(%{reading | response: response}, events, false)

  # Providers count the request's tokens before they begin to answer, and may still refuse to.
  defp deliver(reading, response, events) do
    {errors, events} = Enum.split_with(events, &match?({:error, _}, &1))
    events = reading.held ++ events
    reading = %{reading | response: response}

    case errors do
      [{:error, error}] -> fail(reading, error, events)
      [] -> pass(reading, events, Enum.all?(events, &match?({:usage, _}, &1)))
    end
  end

  defp pass(reading, events, true), do: {:cont, %{reading | held: events}}

  defp pass(reading, events, false) do
    case reading.fun.(events, reading.response) do
      :halt -> {:halt, %{reading | held: [], delivered?: true, stopped: :halt}}
      _ -> {:cont, %{reading | held: [], delivered?: true}}
    end
  end

  defp fail(reading, error, events) do
    error = %{error | provider_message: Refusal.clean(error.provider_message, reading.secrets)}
    shown? = reading.delivered? or not Enum.all?(events, &match?({:usage, _}, &1))
    if shown?, do: reading.fun.(events ++ [{:error, error}], reading.response)
    {:halt, %{reading | held: [], delivered?: shown?, stopped: error}}
  end

  @doc "Replaces the response, for transports that know more than their stream says."
  def put_response(reading, response), do: %{reading | status: 200, response: response}

  @doc "Turns the result of a transport into that of a client: `{:ok, response}` or `{:error, error, delivered?}`."
  def result(ended) do
    reading = elem(ended, tuple_size(ended) - 1)
    ByteLog.finish(reading.log, reading.status, reading.secrets)
    handle_result(ended)
  end

  defp handle_result({:ok, %{stopped: nil} = reading}), do: handle_end(reading)

  defp handle_result({:ok, %{stopped: :halt} = reading}),
    do: {:ok, Response.interrupt(reading.response, :halted)}

  defp handle_result({:ok, %{stopped: reason} = reading}), do: handle_broken(reading, reason)
  defp handle_result({:error, reason, reading}), do: handle_broken(reading, reason)

  # A transport without a head has reported nothing.
  defp handle_end(%{status: nil} = reading), do: handle_broken(reading, {:connection, :closed})

  defp handle_end(%{response: nil} = reading),
    do: refuse(reading, IO.iodata_to_binary(reading.body))

  defp handle_end(%{response: %{state: :complete}} = reading), do: complete(reading)

  defp handle_end(reading) do
    with {:ok, response, events} <- Response.finish(reading.response),
         {:cont, reading} <- deliver(reading, response, events) do
      complete(reading)
    else
      {:halt, %{stopped: :halt} = reading} -> {:ok, reading.response}
      {:halt, reading} -> handle_broken(reading, reading.stopped)
      {:error, error} -> handle_broken(reading, error)
    end
  end

  # It can be asked for by its id; to repeat the request would start another one.
  defp complete(%{response: %{state: :queued}} = reading), do: {:ok, reading.response}

  defp complete(reading) do
    if not reading.delivered? and says_nothing?(reading.response) do
      error(reading, Error.from_transport({:invalid_response, "it says nothing, and not why"}))
    else
      if reading.held != [], do: reading.fun.(reading.held, reading.response)
      {:ok, reading.response}
    end
  end

  # An answer may be empty, but then it has a reason: {"choices": [{"message": {"content": 5}}]} has none.
  defp says_nothing?(response) do
    {message, facts} = Response.read(response)
    facts.finish_reason == nil and message == %{role: :assistant, content: nil}
  end

  # A complete answer does not need the end of the body.
  defp handle_broken(%{response: %{state: :complete}} = reading, _reason), do: complete(reading)

  # A refusal counts as one even if its reasons cannot be read.
  defp handle_broken(%{status: status, response: nil, stopped: stopped} = reading, reason)
       when is_integer(status) and status not in 200..299 and
              (stopped != nil or reason != {:timeout, :whole}),
       do: refuse(reading, "")

  defp handle_broken(reading, %Response.Error{} = error) do
    body = IO.iodata_to_binary(reading.body)

    if body != "" and Refusal.page?(reading.headers, body),
      do: error(reading, page(reading, body)),
      else: error(reading, Error.from_response(error))
  end

  defp handle_broken(reading, reason), do: error(reading, Error.from_transport(reason))

  defp refuse(%{status: status} = reading, page) when status in 200..299,
    do: error(reading, page(reading, page))

  defp refuse(reading, body),
    do: error(reading, Refusal.new(reading.status, reading.headers, body, reading.secrets))

  defp page(reading, page) do
    error = Error.from_transport({:invalid_response, "a page of HTML; check :base_url"})
    %{error | provider_message: page |> Refusal.title() |> Refusal.clean(reading.secrets)}
  end

  defp error(reading, error) do
    stream? = reading.mode == :stream
    delivered? = reading.delivered? and stream?
    # What it cost is known before anything of it is delivered.
    kept? =
      delivered? or (stream? and reading.response && Response.usage(reading.response) != nil)

    kept = if kept?, do: Response.interrupt(reading.response, kind(error.reason))

    words = Refusal.clean(error.provider_message, reading.secrets)
    known = %{status: reading.status, request_id: request_id(reading)}
    {:error, Map.merge(%{error | response: kept, provider_message: words}, known), delivered?}
  end

  # The request's id in the header of the providers' servers. Another server may send anything there.
  defp request_id(%{headers: headers, secrets: secrets}) do
    names = ["request-id", "x-request-id", "x-amzn-requestid", "x-goog-request-id"]
    id = Enum.find_value(names, &Refusal.header(headers, &1))
    with words when words != nil <- Refusal.clean(id, secrets), do: String.slice(words, 0, 200)
  end

  defp kind({kind, _}), do: kind
  defp kind(kind), do: kind
end
