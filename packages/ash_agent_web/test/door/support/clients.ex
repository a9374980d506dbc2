defmodule AshAgent.Door.Clients do
  @moduledoc false

  # Clients of a door that read while the test looks on, and the model of the scenes, which waits under a name.

  import ExUnit.Assertions, only: [flunk: 1]

  alias AshAgent.Door

  @doc "A client that reads what a request streams, for the calling test."
  def reader(door, request) do
    test = self()

    spawn_link(fn ->
      {200, _headers, {:stream, bytes}} = Door.call(door, request)
      Enum.each(bytes, &send(test, {self(), :bytes, IO.iodata_to_binary(&1)}))
      send(test, {self(), :over})
    end)
  end

  @doc "Waits until a client has read a text."
  def until(client, text) do
    unless read_so_far(client) =~ text do
      receive do
        {^client, :bytes, bytes} ->
          Process.put(client, read_so_far(client) <> bytes)
          until(client, text)
      after
        10_000 -> flunk("nothing more: #{read_so_far(client)}")
      end
    end
  end

  def read_so_far(client), do: Process.get(client, "")

  @doc "Waits for the end of a client's stream: all that it has read."
  def rest(client) do
    receive do
      {^client, :bytes, bytes} ->
        Process.put(client, read_so_far(client) <> bytes)
        rest(client)

      {^client, :over} ->
        read_so_far(client)
    after
      20_000 -> flunk("no end: #{read_so_far(client)}")
    end
  end

  @doc "Waits until the model waits, or another one than this."
  def await_model(not_this \\ nil) do
    case Process.whereis(:the_model) do
      model when model in [nil, not_this] ->
        Process.sleep(10)
        await_model(not_this)

      model ->
        model
    end
  end
end
