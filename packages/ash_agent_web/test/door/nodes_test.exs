defmodule AshAgent.Door.NodesTest do
  use ExUnit.Case, async: true

  # The door is on one node, and the session on another.

  import AshAgent.Door.Asks

  alias AshAgent.Door.Play
  alias AshAgent.TestSupport.Nodes

  @moduletag :tmp_dir
  @moduletag timeout: 120_000

  defp pair(%{tmp_dir: folder}, fun) do
    Nodes.pair(fn call, _nodes ->
      at = &call.(&1, {Play, &2, &3})
      for node <- [:here, :there], do: at.(node, :start_node, [Path.join(folder, "store.db")])
      # The session is here from now on.
      assert text(at.(:here, :ask_here, [say("ada-1", "hello", "m0")])) == "Hello, Ada!"
      fun.(at)
    end)
  end

  test "everything comes, also where more comes than may wait", context do
    pair(context, fn at ->
      chunks = at.(:there, :ask_here, [say("ada-1", "two calls")])
      assert text(chunks) == "I look.Both are done."
      assert [%{"seen" => "here"}] = for(%{"output" => output} <- chunks, do: output)
      assert "Yours." == text(at.(:there, :ask_here, [say("ada-1", "whose", "m2")]))

      long = at.(:there, :ask_here, [say("ada-1", "long", "m3")])
      assert text(long) == Enum.map_join(1..10_000, " ", &"w#{&1}")

      asked = at.(:there, :ask_here, [say("ada-1", "ask", "m4")])
      answers = for id <- approvals(asked), do: {id, true}
      assert "So be it." == text(at.(:there, :ask_here, [decide("ada-1", answers)]))
    end)
  end

  test "the doors of two nodes have the same ids, and what one does not know comes as a whole",
       context do
    pair(context, fn at ->
      stream = request("GET", ["ada-1", "stream"])
      first = Task.async(fn -> at.(:here, :events_here, [say("ada-1", "wait")]) end)
      at.(:here, :await_model, [])
      second = Task.async(fn -> at.(:there, :events_here, [stream]) end)
      Process.sleep(500)
      at.(:here, :go, [])
      [here, there] = Task.await_many([first, second], 60_000)
      words = &text(Enum.map(&1, fn {_id, chunk} -> chunk end))
      assert words.(here) == words.(there)

      # What the second one began with is a snapshot, which is its own.
      {own, same} = Enum.split_with(there, fn {id, _} -> id == nil or id =~ "-" end)
      assert own != [] and length(same) > 2
      assert same -- here == []

      for {id, _} <- Enum.drop(same, -1), {behind, known} <- [{here, :here}, {there, :there}] do
        rest = behind |> Enum.drop_while(&(elem(&1, 0) != id)) |> Enum.drop(1)
        assert at.(known, :events_here, [back(id)]) == rest
      end

      {id, _} = Enum.find(own, fn {id, _} -> id end)
      assert words.(at.(:here, :events_here, [back(id)])) == words.(here)
      assert {nil, %{"type" => "start"}} = hd(at.(:here, :events_here, [back(id)]))
    end)
  end

  test "a node that dies in the middle of an answer leaves the stream to the next session",
       context do
    pair(context, fn at ->
      client = Task.async(fn -> at.(:there, :ask_here, [say("ada-1", "wait anew")]) end)
      pid = at.(:here, :await_model, [])
      Process.sleep(200)
      Nodes.kill(pid)
      at.(:there, :go, [])
      chunks = Task.await(client, 60_000)
      types = for %{"type" => type} <- chunks, do: type
      assert "reset-step" in types
      assert text(Enum.drop_while(chunks, &(&1["type"] != "reset-step"))) =~ ~r/\A\S+ done\z/
      assert %{"type" => "finish", "finishReason" => "stop"} = last(chunks)
    end)
  end
end
