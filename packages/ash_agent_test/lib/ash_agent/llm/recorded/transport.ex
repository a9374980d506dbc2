defmodule AshAgent.LLM.Recorded.Transport do
  @moduledoc false

  # Plays the recording of a request, or sends it by the client's own transport and records the answer.

  @behaviour AshAgent.LLM.Transport

  alias AshAgent.Context.JSON
  alias AshAgent.Deadline
  alias AshAgent.LLM.Recorded.Cassette
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

    with {:error, error} <- Cassette.record(opts[:cassette], recording, secrets),
         do: raise(error)

    put_elem(result, tuple_size(result) - 1, acc)
  end

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
