defmodule AshAgent.Door.StreamTest do
  # The model of these scenes waits under a name.
  use ExUnit.Case, async: false

  import AshAgent.Door.Asks
  import AshAgent.Door.Clients, only: [await_model: 0]

  alias AshAgent.{Context, Door, Session, Sessions, Store}
  alias AshAgent.Door.Play
  alias AshAgent.TestSupport.{Wait, WatchedStore}

  @moduletag :capture_log
  @moduletag timeout: 30_000

  setup context do
    name = Play.name(context)
    {:ok, store} = Store.SQLite.open(":memory:")
    restore = fn %{name: name} -> {:ok, %{name: name}} end
    opts = if context[:forgets], do: [], else: [restore_context: restore]
    {:ok, _} = Play.sessions(name, [store: store] ++ opts)
    %{name: name, store: store, door: Play.door(name, port(), context[:door] || [])}
  end

  # A client that reads as it comes, and tells the test.
  defp client(door, request) do
    test = self()

    spawn_link(fn ->
      {status, _headers, body} = Door.call(door, request)
      send(test, {self(), :status, status})

      case body do
        {:stream, bytes} ->
          Enum.each(bytes, &send(test, {self(), :bytes, IO.iodata_to_binary(&1)}))

        _whole ->
          :ok
      end

      send(test, {self(), :over})
      Process.sleep(:infinity)
    end)
  end

  defp await(client, text, so_far \\ "") do
    if so_far =~ text do
      so_far
    else
      receive do
        {^client, :bytes, bytes} -> await(client, text, so_far <> bytes)
        {^client, :over} -> flunk("over: #{so_far}")
      after
        10_000 -> flunk("nothing more: #{so_far}")
      end
    end
  end

  defp rest(client, so_far) do
    receive do
      {^client, :bytes, bytes} -> rest(client, so_far <> bytes)
      {^client, :over} -> so_far |> String.replace(~r/(^|\n\n):[^\n]*(?=\n\n)/, "") |> read()
    after
      20_000 -> flunk("no end: #{so_far}")
    end
  end

  defp go, do: send(await_model(), :go)
  defp waits, do: await_model() && :ok

  defp session(name) do
    {:ok, session} = Sessions.fetch_session(name, "ada-1")
    session
  end

  test "a closed tab stops nothing, and whoever comes gets everything", %{door: door} do
    first = client(door, say("ada-1", "wait"))
    await(first, "two")
    Process.unlink(first)
    Process.exit(first, :kill)
    second = client(door, request("GET", ["ada-1", "stream"]))
    so_far = await(second, "two")
    go()
    assert text(rest(second, so_far)) == "one two three four"
  end

  describe "a turn that has not written its message yet" do
    # What is said after `begin` waits before its first write.
    defp held(%{name: name, store: store}, protocol) do
      {test, holds} = {self(), :counters.new(1, [])}

      hold = fn moment, name ->
        if {moment, name} == {:before, :append} and :counters.get(holds, 1) == 1 do
          :counters.put(holds, 1, 0)
          send(test, {:begins, self()})
          receive do: (:go -> :ok)
        else
          :ok
        end
      end

      name = Module.concat(name, Held)
      {:ok, _} = Play.sessions(name, store: WatchedStore.new(store, hold))
      {Play.door(name, port(), protocol: protocol), fn -> :counters.put(holds, 1, 1) end}
    end

    defp said(:ai_sdk, text, message), do: say("ada-1", text, message)

    defp said(:ag_ui, text, message) do
      messages = [%{id: message, role: "user", content: text}]
      body = %{threadId: "ada-1", runId: message, protocolVersion: "1.0", messages: messages}
      request("POST", [], body)
    end

    for protocol <- [:ai_sdk, :ag_ui] do
      @protocol protocol
      test "is told to who comes, and not the turn before (#{protocol})", context do
        {door, hold} = held(context, @protocol)
        chunks(door, said(@protocol, "hello", "m1"))
        hold.()
        asks = client(door, said(@protocol, "think", "m2"))
        assert_receive {:begins, run}, 10_000

        # The turn before is over: its answer is among the messages.
        {200, headers, json} = Door.call(door, request("GET", ["ada-1", "messages"]))
        assert IO.iodata_to_binary(json) =~ "Hello, Ada!"
        seen = List.keyfind(headers, "last-event-id", 0)
        watch = request("GET", ["ada-1", "stream"])
        watched = for more <- [[], [seen]], do: update_in(watch.headers, &(more ++ &1))
        clients = for request <- watched, do: client(door, request)
        for client <- clients, do: assert_receive({^client, :status, 200}, 10_000)
        send(run, :go)

        for client <- [asks | clients] do
          deltas = for %{"delta" => delta} <- rest(client, ""), into: "", do: delta
          assert deltas == "Let me see. I have seen it."
        end
      end
    end

    test "is not the response of the turn before, and is not stopped with it", context do
      {door, hold} = held(context, :responses)
      ask = &request("POST", [], Map.merge(%{model: "agent", input: &1}, &2))
      read = fn {200, _, body} -> body |> IO.iodata_to_binary() |> Context.JSON.decode!() end

      %{"id" => id, "conversation" => %{"id" => talk}} =
        read.(Door.call(door, ask.("hello", %{})))

      hold.()
      think = ask.("think", %{conversation: talk, background: true})
      %{"id" => next} = read.(Door.call(door, think))
      assert_receive {:begins, run}, 10_000

      for request <- [request("GET", [id], nil), request("POST", [id, "cancel"], nil)],
          do: assert(%{"status" => "completed"} = read.(Door.call(door, request)))

      send(run, :go)
      whole = fn -> read.(Door.call(door, request("GET", [next], nil))) end
      assert Wait.until(fn -> whole.()["status"] == "completed" end)
      assert inspect(whole.()["output"]) =~ "I have seen it."
    end
  end

  test "who comes when the last answer is there and the run has not ended is told the turn", %{
    name: name
  } do
    test = self()

    hold = fn
      [:ash_agent, :runtime, :iteration, :stop], _measured, _metadata ->
        send(test, {:stops, self()})
        receive do: (:go -> :ok)

      _name, _measured, _metadata ->
        :ok
    end

    name = Module.concat(name, Held)
    {:ok, _} = Play.sessions(name, on_event: hold)
    door = Play.door(name, port(), protocol: :ai_sdk)
    asks = client(door, say("ada-1", "hello", "m1"))
    assert_receive {:stops, run}, 10_000
    other = client(door, request("GET", ["ada-1", "stream"]))
    assert_receive {^other, :status, 200}, 10_000
    send(run, :go)
    for client <- [asks, other], do: assert(text(rest(client, "")) == "Hello, Ada!")
  end

  @tag door: [ai: 7]
  test "a session that is killed leaves the stream to the next one", %{door: door, name: name} do
    client = client(door, say("ada-1", "wait anew"))
    so_far = await(client, "nohost")
    before = await_model()
    Process.exit(session(name), :kill)
    so_far = so_far <> await(client, "data-dropped")
    refute await_model() == before
    go()
    chunks = rest(client, so_far)
    again = Enum.drop_while(chunks, &(&1["type"] != "reset-step"))
    types = for %{"type" => type} <- again, do: type
    assert ["reset-step", "data-dropped", "finish-step", "start-step" | _] = types
    assert text(again) =~ ~r/\A\S+ done\z/
    refute text(chunks) == text(again)
    assert %{"type" => "finish"} = last(chunks)
  end

  @tag :forgets
  test "a turn that nobody has the rights to go on with waits for them", %{door: door, name: name} do
    client = client(door, say("ada-1", "wait"))
    so_far = await(client, "two")
    Process.exit(session(name), :kill)
    chunks = rest(client, so_far)
    assert %{"type" => "finish", "finishReason" => "other"} = last(chunks)
    assert Enum.any?(chunks, &(&1["type"] == "data-dropped"))
  end

  @tag door: [patience: 300]
  test "a drained session, too, and where no node goes on, the stream ends with an error", %{
    door: door,
    name: name
  } do
    client = client(door, say("ada-1", "wait"))
    so_far = await(client, "two")
    Sessions.drain(name, timeout: 1)
    assert %{"type" => "error", "errorText" => "unavailable (" <> _} = last(rest(client, so_far))
  end

  @tag door: [patience: 300]
  test "a conversation that nobody can find any more ends the stream with an error", %{
    door: door,
    name: name
  } do
    client = client(door, say("ada-1", "wait"))
    so_far = await(client, "two")
    sessions = Process.whereis(name)
    Process.unlink(sessions)
    Process.exit(sessions, :kill)
    assert %{"type" => "error", "errorText" => "unavailable (" <> _} = last(rest(client, so_far))
  end

  test "a conversation that is deleted, too", %{door: door, name: name, store: store} do
    client = client(door, say("ada-1", "wait"))
    so_far = await(client, "two")
    :ok = Store.delete(store, "ada-1")
    Process.exit(session(name), :kill)
    assert %{"type" => "error", "errorText" => words} = last(rest(client, so_far))
    assert words =~ ~r/\A(deleted|unavailable|store_error) \(/
  end

  test "a stop ends all streams of the turn", %{door: door} do
    clients = for _ <- 1..2, do: client(door, say("ada-1", "wait"))
    so_far = for client <- clients, do: await(client, "two")
    assert {200, _, _} = Door.call(door, request("POST", ["ada-1", "stop"]))

    for {client, so_far} <- Enum.zip(clients, so_far),
        do: assert(%{"type" => "abort"} = last(rest(client, so_far)))
  end

  test "a second message is refused while a turn runs", %{door: door} do
    client = client(door, say("ada-1", "wait"))
    so_far = await(client, "two")
    assert refused(door, say("ada-1", "hello", "m2")) == {409, "busy"}
    assert refused(door, decide("ada-1", [{"x", true}])) == {409, "not_waiting"}
    go()
    assert text(rest(client, so_far)) == "one two three four"
  end

  @tag door: [when_running: :steer]
  test "or goes into it", %{door: door} do
    first = client(door, say("ada-1", "wait"))
    so_far = await(first, "two")
    second = client(door, say("ada-1", "hello", "m2"))
    assert_receive {^second, :status, 200}
    go()
    assert text(rest(second, "")) == "Hello, Ada!"
    chunks = rest(first, so_far)
    assert text(chunks) == "one two three fourHello, Ada!"
    assert %{"data" => %{"text" => "hello"}} = Enum.find(chunks, &(&1["type"] == "data-said"))
  end

  @tag door: [heartbeat: 20]
  test "a stream without news has comments", %{door: door} do
    client = client(door, say("ada-1", "wait"))
    so_far = await(client, "two")
    so_far = so_far <> await(client, ": still there\n\n")
    go()
    assert text(rest(client, so_far)) == "one two three four"
  end

  test "a client that does not read costs a bounded number of messages, and gets the rest", %{
    door: door,
    name: name
  } do
    {:ok, _} = Sessions.prompt(name, "ada-1", "hello")
    test = self()

    slow =
      spawn_link(fn ->
        {200, _, {:stream, bytes}} = Door.call(door, say("ada-1", "long"))

        chunks =
          Enum.map(bytes, fn bytes ->
            unless Process.put(:slept, true) do
              send(test, :sleeps)
              receive do: (:read -> :ok)
            end

            bytes
          end)

        send(test, {:read, chunks |> IO.iodata_to_binary() |> read()})
      end)

    assert_receive :sleeps
    wait_idle(session(name))
    {:message_queue_len, waiting} = Process.info(slow, :message_queue_len)
    assert waiting <= 2_002
    send(slow, :read)
    assert_receive {:read, chunks}
    assert text(chunks) == Enum.map_join(1..10_000, " ", &"w#{&1}")
    assert %{"type" => "finish"} = last(chunks)
  end

  defp wait_idle(session) do
    if Session.status(session) != :idle do
      Process.sleep(20)
      wait_idle(session)
    end
  end

  test "a message that waits behind a turn of somebody else, and is dropped, ends its stream", %{
    door: door,
    name: name
  } do
    assert text(chunks(door, say("ada-1", "hello", "m0"))) == "Hello, Ada!"
    {:ok, _} = Sessions.prompt_async(name, "ada-1", "wait")
    waits()
    {:ok, _} = Sessions.prompt_async(name, "ada-1", "hello", key: "ui:m1")
    reader = Door.Reader.new({:key, "ui:m1"})
    test = self()

    spawn_link(fn ->
      {:ok, stream} = Door.Stream.open(door, %{conversation: "ada-1"}, reader)
      send(test, {:opened, self()})

      send(
        test,
        {:read,
         stream |> Door.Stream.bytes() |> Enum.to_list() |> IO.iodata_to_binary() |> read()}
      )
    end)

    assert_receive {:opened, _}
    Sessions.cancel(name, "ada-1")
    assert_receive {:read, [%{"type" => "error", "errorText" => "not_taken (" <> _}]}
  end

  test "a stored turn that nobody goes on with is told as it is", %{door: door, store: store} do
    {:ok, context} = Context.create(%{id: "ada-1"})
    context = Context.add_user_message(context, "Hi", metadata: %{idempotency_key: "ui:m1"})
    {:ok, _} = Store.create(store, context)
    assert [%{"type" => "start"} | _] = chunks = chunks(door, say("ada-1", "Hi"))
    assert %{"type" => "error", "errorText" => "interrupted (" <> _} = last(chunks)
  end
end
