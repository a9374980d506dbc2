defmodule AshAgent.LLM.Recorded.Transport do
  @moduledoc false

  # Plays the recording of a request, or sends it by the client's own transport and records the answer.

  @behaviour AshAgent.LLM.Transport

  alias AshAgent.{Context, Deadline, Response}
  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Reading
  alias AshAgent.LLM.Recorded.{Cassette, Masks}
  alias AshAgent.LLM.Transport.Request

  @impl true
  def stream(%Request{} = request, acc, fun, opts) do
    path = path(request.uri)
    body = request.body |> IO.iodata_to_binary() |> JSON.decode!()

    case {opts[:mode], opts[:mode] != :record_all && Cassette.find(opts[:cassette], path, body)} do
      {_mode, {:ok, recording}} -> play(recording, acc, fun, opts[:pace])
      {:replay, {:error, missing}} -> raise missing
      _record -> record(request, {path, body}, acc, fun, opts)
    end
  end

  defp path(%URI{path: path, query: nil}), do: path
  defp path(%URI{path: path, query: query}), do: path <> "?" <> query

  ## Playing

  defp play(%{status: nil, ending: ending}, acc, _fun, _pace), do: finish(ending, acc)

  defp play(recording, acc, fun, pace) do
    with {:cont, acc} <- fun.({:head, recording.status, recording.headers}, acc),
         {:cont, acc} <- play_pieces(recording.pieces, 0, acc, fun, pace) do
      finish(recording.ending, acc)
    else
      {:halt, acc} -> {:ok, acc}
    end
  end

  defp play_pieces([], _now, acc, _fun, _pace), do: {:cont, acc}

  defp play_pieces([{at, bytes} | pieces], now, acc, fun, pace) do
    if pace, do: Process.sleep(max(at - now, 0))
    with {:cont, acc} <- fun.({:data, bytes}, acc), do: play_pieces(pieces, at, acc, fun, pace)
  end

  # The causes of failed connections that decide what an error is called; all others are one.
  @causes ~w(closed econnreset econnaborted epipe econnrefused nxdomain etimedout pool_timeout no_cacerts)a

  # A recording that was stopped by its reader ends where it was stopped, as if the connection had been cut there.
  @endings for which <- ~w(connect first_byte idle whole)a,
               into: %{"invalid" => {:invalid_response, "it was not HTTP when it was recorded"}},
               do: {"timeout #{which}", {:timeout, which}}

  defp finish("complete", acc), do: {:ok, acc}

  defp finish("too large " <> bytes, acc),
    do: {:error, {:response_too_large, String.to_integer(bytes)}, acc}

  defp finish("connection " <> cause, acc) do
    cause = Enum.find(@causes, :unreachable, &(Atom.to_string(&1) == cause))
    {:error, {:connection, cause}, acc}
  end

  defp finish(ending, acc), do: {:error, Map.get(@endings, ending, {:connection, :closed}), acc}

  ## Recording

  defp record(request, {path, body}, acc, fun, opts) do
    {transport, own} = opts[:transport]
    recording = %{path: path, body: body, status: nil, headers: [], pieces: [], ending: nil}
    started = Deadline.now()

    take = fn message, {acc, recording} ->
      recording = keep(message, recording, Deadline.now() - started)

      case fun.(message, acc) do
        {:cont, acc} -> {:cont, {acc, recording}}
        {:halt, acc} -> {:halt, {acc, %{recording | ending: "stopped"}}}
      end
    end

    result = transport.stream(request, {acc, recording}, take, own)
    {acc, recording} = elem(result, tuple_size(result) - 1)
    ending = recording.ending || describe_ending(result)
    recording = %{recording | pieces: Enum.reverse(recording.pieces), ending: ending}
    secrets = Request.secrets(Request.headers(request))
    recording = hide(recording, opts[:masks], opts[:answer])

    with {:error, error} <- Cassette.record(opts[:cassette], recording, secrets),
         do: raise(error)

    put_elem(result, tuple_size(result) - 1, acc)
  end

  defp hide(recording, [], _answer), do: recording

  defp hide(recording, masks, answer) do
    plain = Context.new("-")
    context = Context.View.put_masks(plain, masks)
    hidden = Masks.hide(recording, context)
    [was, is] = for one <- [recording, hidden], do: read(one, answer)

    # The next request is the same when it is played, and nothing is left to mask.
    if next_request(was, context, answer) == next_request(is, context, answer) and
         shown(is, context) == shown(is, plain),
       do: hidden,
       else:
         AshAgent.Caller.refuse!(
           "the answer is not recorded, since it would not be played alike without what the conversation masks: a mask finds something in " <>
             "what a mask wrote, in a provider's own block or in a thought. Write masks that do not find their own words, or record without them"
         )
  end

  defp read(recording, {mode, opts}) do
    reading = Reading.new(opts, mode, [], fn _events, _response -> :ok end)
    result = recording |> play(reading, &Reading.take/2, false) |> Reading.result()
    said = elem(result, 1)
    response = if elem(result, 0) == :ok, do: said, else: said.response
    {elem(result, 0), response && Response.message(response)}
  end

  defp next_request({_how, nil} = read, _context, _answer), do: read

  defp next_request({how, message}, context, {_mode, opts}) do
    context = context |> add(message) |> Context.interrupt()
    {how, Context.request(context, opts[:provider])}
  end

  defp shown({_how, nil}, _context), do: nil

  defp shown({_how, message}, context),
    do: context |> add(message) |> Context.to_messages() |> List.last()

  defp add(context, message),
    do: Context.add_assistant_message(context, message.content, message[:tool_calls] || [])

  defp keep({:head, status, headers}, recording, _at),
    do: %{recording | status: status, headers: headers}

  defp keep({:data, bytes}, recording, at),
    do: %{recording | pieces: [{at, bytes} | recording.pieces]}

  defp describe_ending({:ok, _acc}), do: "complete"
  defp describe_ending({:error, {:timeout, which}, _acc}), do: "timeout #{which}"
  defp describe_ending({:error, {:response_too_large, bytes}, _acc}), do: "too large #{bytes}"
  defp describe_ending({:error, {:invalid_response, _words}, _acc}), do: "invalid"

  defp describe_ending({:error, {:connection, cause}, _acc}) when cause in @causes,
    do: "connection #{cause}"

  defp describe_ending({:error, _reason, _acc}), do: "connection unreachable"
end
