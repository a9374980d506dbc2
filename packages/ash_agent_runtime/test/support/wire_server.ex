defmodule AshAgent.TestSupport.WireServer do
  @moduledoc false

  # The server of `AshAgent.Test.Server` below its formats, for tests of transports.

  alias AshAgent.Test.Server.Wire

  defdelegate start(handle, opts \\ []), to: Wire
  defdelegate read_request(connection, buffer \\ ""), to: Wire
  defdelegate write(connection, bytes), to: Wire
  defdelegate write_chunk(connection, data), to: Wire
  defdelegate chunk(data), to: Wire
  defdelegate stream_head(type \\ "text/event-stream"), to: Wire
  defdelegate response(status, body, headers \\ []), to: Wire
  defdelegate close(connection), to: Wire
  defdelegate await_close(connection), to: Wire
  defdelegate tell(connection, message), to: Wire

  @doc "Answers the request of each connection with these bytes, and closes it."
  def answering(bytes, opts \\ []), do: answer(bytes, opts, fn _connection -> :ok end)

  @doc "Answers with these bytes, and then waits until the client has closed the connection."
  def stalling(bytes, opts \\ []), do: answer(bytes, opts, &await_close/1)

  defp answer(bytes, opts, more) do
    start(
      fn connection ->
        {:ok, _} = read_request(connection)
        write(connection, bytes)
        more.(connection)
      end,
      opts
    )
  end
end
