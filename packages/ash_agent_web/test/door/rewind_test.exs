defmodule AshAgent.Door.RewindTest do
  # `regenerate()` of useChat, and messages that were edited.
  use ExUnit.Case, async: true

  import AshAgent.Door.Asks

  alias AshAgent.{Context, Door, Sessions}
  alias AshAgent.Context.JSON
  alias AshAgent.Door.Play

  @moduletag :capture_log

  setup context do
    name = Play.name(context)
    {:ok, _} = Play.sessions(name)
    %{name: name, door: Play.door(name, port(), rewind: true)}
  end

  defp again(id, text, message),
    do:
      request("POST", [], %{
        id: id,
        trigger: "regenerate-message",
        messageId: "turn-1",
        messages: [message(message, text)]
      })

  defp edit(id, text, message),
    do:
      request("POST", [], %{
        id: id,
        trigger: "submit-message",
        messageId: message,
        messages: [message(message, text)]
      })

  defp page(door, id) do
    {200, _, json} = Door.call(door, request("GET", [id, "messages"]))

    for %{"id" => id, "parts" => parts} <- json |> IO.iodata_to_binary() |> JSON.decode!(),
        do: {id, for(%{"type" => "text", "text" => t} <- parts, into: "", do: t)}
  end

  test "a turn is asked for again, as the server has it, as often as one likes", %{door: door} do
    chunks(door, say("ada-1", "hello"))

    for _ <- 1..3 do
      # What the page says of it does not count.
      assert text(chunks(door, again("ada-1", "think", "m1"))) == "Hello, Ada!"
      assert page(door, "ada-1") == [{"m1", "hello"}, {"turn-1", "Hello, Ada!"}]
    end
  end

  test "a page that has not heard of it, and sends the message again, says nothing", %{door: door} do
    chunks(door, say("ada-1", "hello"))
    chunks(door, edit("ada-1", "think", "m1"))
    assert text(chunks(door, say("ada-1", "hello"))) == "I have seen it."
    assert [{"m1", "think"}, _] = page(door, "ada-1")
  end

  test "an edited message takes the place of its turn and of what came after", %{
    door: door,
    name: name
  } do
    for {text, id} <- [{"hello", "m1"}, {"two calls", "m2"}, {"hello", "m3"}],
        do: chunks(door, say("ada-1", text, id))

    assert text(chunks(door, edit("ada-1", "think", "m2"))) == "I have seen it."

    assert page(door, "ada-1") == [
             {"m1", "hello"},
             {"turn-1", "Hello, Ada!"},
             {"m2", "think"},
             {"turn-2", "I have seen it."}
           ]

    assert text(chunks(door, say("ada-1", "hello", "m4"))) == "Hello, Ada!"
    assert text(chunks(door, edit("ada-1", "think", "m1"))) == "I have seen it."
    assert [{"m1", "think"}, _] = page(door, "ada-1")
    {:ok, context} = Sessions.context(name, "ada-1")
    assert Context.count_messages(context) == 2
  end

  test "what is not there, runs or waits is refused, and stays", %{door: door} do
    chunks(door, say("ada-1", "ask"))
    assert refused(door, again("ada-1", "ask", "m1")) == {409, "paused"}

    for asked <- [again("ada-1", "ask", "m7"), edit("ada-1", "hello", "m7")],
        do: assert(refused(door, asked) == {422, "unknown_message"})

    assert refused(door, again("ada-2", "ask", "m1")) == {404, "not_found"}

    for {change, kind} <- [
          {%{messages: []}, "invalid_messages"},
          {%{messages: [%{id: "m1", role: "assistant", parts: []}]}, "invalid_messages"},
          {%{messages: [message("m\n2", "hello")]}, "invalid_message_id"}
        ] do
      body = Map.merge(%{id: "ada-1", trigger: "regenerate-message"}, change)
      assert refused(door, request("POST", [], body)) == {422, kind}
    end

    assert [{"m1", "ask"}, _] = page(door, "ada-1")
  end

  test "only where the application says so", %{name: name} do
    door = Play.door(name, port())
    chunks(door, say("ada-1", "hello"))
    assert refused(door, again("ada-1", "hello", "m1")) == {422, "regenerate_not_served"}
    assert refused(door, edit("ada-1", "think", "m1")) == {422, "edit_not_served"}
  end
end
