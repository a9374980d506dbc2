defmodule AshAgent.Session.LimitsTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Session}

  # Answers when it is told to.
  defp start(opts) do
    test = self()

    llm = fn _ ->
      send(test, {:asked, self()})
      receive(do: (:answer -> {:ok, %{content: "Done"}}))
    end

    session = start_supervised!({Session, [llm: llm] ++ opts}, id: make_ref())
    {:ok, ref} = Session.prompt_async(session, "Hi")
    assert_receive {:asked, pid}
    {session, pid, ref}
  end

  test "messages for a turn have the limits of the queue" do
    {session, pid, ref} = start(max_queue: 2, max_queue_bytes: 1_000)
    assert :ok = Session.steer(session, "one")
    assert {:error, :full} = Session.steer(session, String.duplicate("x", 1_000))
    assert :ok = Session.steer(session, "two")
    assert {:error, :full} = Session.steer(session, "three")

    send(pid, :answer)
    assert_receive {:asked, pid}
    # They were read, so that there is room again.
    assert :ok = Session.steer(session, "four")
    send(pid, :answer)
    assert_receive {:asked, pid}
    send(pid, :answer)
    assert_receive {Session, ^ref, {:ok, %{context: context}}}
    texts = for %{role: :user, content: text} <- Context.to_messages(context), do: text
    assert texts == ["Hi", "one", "two", "four"]
  end

  test "prompts that wait have a limit in bytes, together with messages for the turn" do
    {session, pid, _ref} = start(max_queue_bytes: 1_000)
    assert :ok = Session.steer(session, String.duplicate("s", 600))
    assert {:error, :busy} = Session.prompt_async(session, String.duplicate("p", 600))
    assert {:ok, _} = Session.prompt_async(session, "short")
    send(pid, :answer)
  end

  test "what is too large is refused, and the session goes on" do
    {session, pid, ref} = start(max_input_bytes: 1_000)
    long = String.duplicate("x", 1_000)
    assert {:error, :too_large} = Session.steer(session, long)
    assert {:error, :too_large} = Session.steer(session, "Hi", metadata: %{long: long})
    assert {:error, :too_large} = Session.prompt(session, long)
    assert {:error, :too_large} = Session.prompt_async(session, "Hi", metadata: %{long: long})
    send(pid, :answer)
    assert_receive {Session, ^ref, {:ok, _}}
    assert {:error, :too_large} = Session.deny(session, "a", long)
    assert {:error, :too_large} = Session.approve(session, "a", arguments: %{"a" => long})
  end

  test "subscriptions have a limit" do
    {session, pid, _ref} = start(max_subscribers: 1)
    assert {:ok, ref, _} = Session.subscribe(session)
    assert {:error, :full} = Session.subscribe(session)
    :ok = Session.unsubscribe(session, ref)
    assert {:ok, _ref, _} = Session.subscribe(session)
    send(pid, :answer)
  end

  test "options that are an improper list are not understood, and kill nothing" do
    {session, pid, ref} = start([])
    odd = [{:metadata, %{}} | :odd]

    for request <- [
          {:run, {:prompt, "Hi", odd}},
          {:run, {:resume, odd}},
          {:run_async, self(), {:prompt, "Hi", odd}},
          {:run_async, self(), {:stored, "id", odd}},
          {:decide, {:denied, "a", "no"}, odd},
          {:steer, [1 | 2], %{}},
          {:steer, "Hi", %{a: [1 | 2]}}
        ] do
      assert {:error, _} = GenServer.call(session, request)
    end

    send(pid, :answer)
    assert_receive {Session, ^ref, {:ok, _}}
  end
end
