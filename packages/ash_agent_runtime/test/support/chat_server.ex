defmodule AshAgent.TestSupport.ChatServer do
  @moduledoc false

  alias AshAgent.{LLM, Response}

  # A small HTTP server on loopback that can be told to fail. It belongs to the process that starts it, and sends that
  # process `{:request, request}` for each request and `{:closed, n}` when the n-th connection was closed by the client.

  alias AshAgent.Context.JSON
  alias AshAgent.TestSupport.WireServer

  @doc """
  Starts a server that meets the n-th connection with the n-th behaviour, and all further ones with the last.

    * `{:json, status, term}`, `{:json, status, term, headers}` - a JSON answer
    * `{:raw, iodata}` - these bytes, then the connection is closed
    * `{:chunked, [iodata]}` - a 200 in these chunks
    * `:stall` - reads the request and never answers
    * `{:half, iodata}` - these bytes, then never anything more
    * `:cut` - closes the connection after the request
    * a function of the request that returns one of these
  """
  def start(behaviours, opts \\ []) do
    last = List.last(behaviours)

    WireServer.start(
      fn connection ->
        exchange(connection, Enum.at(behaviours, connection.number - 1, last))
      end,
      opts
    )
  end

  defp exchange(connection, behaviour) do
    case WireServer.read_request(connection) do
      {:ok, request} ->
        {:ok, body} = JSON.decode(request.body)

        request =
          %{request | body: body} |> Map.delete(:rest) |> Map.put(:number, connection.number)

        WireServer.tell(connection, {:request, request})
        answer(connection, if(is_function(behaviour), do: behaviour.(request), else: behaviour))

      :closed ->
        WireServer.tell(connection, {:closed, connection.number})
    end
  end

  defp answer(connection, {:json, status, term}),
    do: answer(connection, {:json, status, term, []})

  defp answer(connection, {:json, status, term, headers}) do
    headers = [{"content-type", "application/json"} | headers]
    WireServer.write(connection, WireServer.response(status, JSON.encode(term), headers))
  end

  defp answer(connection, {:chunked, chunks}) do
    chunks =
      for chunk <- chunks do
        [Integer.to_string(IO.iodata_length(chunk), 16), ";x=y\r\n", chunk, "\r\n"]
      end

    head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    WireServer.write(connection, [head, chunks, "0\r\n\r\n"])
  end

  defp answer(connection, {:raw, bytes}), do: WireServer.write(connection, bytes)
  defp answer(_connection, :cut), do: :ok
  defp answer(connection, :stall), do: WireServer.await_close(connection)

  defp answer(connection, {:half, bytes}) do
    WireServer.write(connection, bytes)
    WireServer.await_close(connection)
  end

  @doc "Asks a model for a whole answer, and returns what the response says in one map."
  def chat(llm, context, opts \\ []) do
    with {:ok, response} <- LLM.chat(llm, context, opts) do
      message = Response.message(response)

      {:ok,
       %{
         content: Response.text(message),
         parts: if(is_list(message.content), do: message.content),
         tool_calls: message[:tool_calls] || [],
         usage: Response.usage(response),
         finish_reason: Response.finish_word(response),
         model: Response.model(response)
       }}
    end
  end
end
