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

  test "the guide has every limit with its default" do
    [_, table] = "guides/limits.md" |> File.read!() |> String.split("## What others may send")

    for {schema, names} <- [
          {Session.Options.schema(),
           ~w(max_input_bytes max_queue max_queue_bytes max_subscribers max_resumes)a},
          {AshAgent.Runtime.Options.schema(),
           ~w(max_iterations max_concurrency max_attempts tool_timeout)a}
        ],
        name <- names do
      default = schema[name][:default]

      units = ["#{div(default, 1_048_576)} MB", "#{div(default, 1_000)} seconds"]
      shown = ["#{default}", "1,000" | units]
      rows = for row <- String.split(table, "\n"), row =~ "`:#{name}`", do: row
      assert rows != [], "#{name} is not in the list"

      defaults = for row <- rows, do: row |> String.split("|") |> Enum.at(3) |> String.trim()
      assert Enum.any?(defaults, &(&1 in shown)), "#{name} has another default in the list"
    end
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

  test "those who wait for one message have a limit" do
    {session, pid, _ref} = start(max_subscribers: 2)
    ask = fn -> Session.prompt_async(session, "Again?", key: "k") end
    assert {:ok, _} = ask.()
    assert {:ok, one} = ask.()
    assert {:error, :busy} = ask.()
    send(pid, :answer)
    assert_receive {:asked, pid}, 5_000
    assert {:error, :busy} = ask.()
    send(pid, :answer)
    assert_receive {Session, ^one, {:ok, _}}, 5_000
  end

  test "anything at all is answered, in every state, and kills nothing" do
    odd =
      [nil, :odd, 7, -1, "x", <<255>>, [1 | 2], [{:a, 1} | 2], [[[1 | 2]]], %{a: [1 | 2]}] ++
        [%{1 => 2}, {1, 2}, self(), make_ref(), fn -> 1 end, [metadata: 5], [metadata: [1 | 2]]] ++
        [
          [by: [1 | 2]],
          [runtime_context: 1],
          [key: 1],
          %{__struct__: :none},
          %{role: 1},
          [%{type: 1}]
        ]

    requests =
      for a <- odd, b <- odd do
        [
          a,
          {:run, a},
          {:run, {:prompt, a, b}},
          {:run, {:resume, a}},
          {:run, {:stored, a, b}},
          {:run_async, a, {:prompt, "x", b}},
          {:run_async, self(), {:prompt, a, b}},
          {:steer, a, b},
          {:decide, a, b},
          {:decide, {:approved, "call_1", a}, b},
          {:decide, {:denied, "call_1", a}, b},
          {:subscribe, make_ref(), b},
          {:unsubscribe, a},
          {a, b}
        ]
      end

    requests = requests |> Enum.concat() |> Enum.uniq()
    call = %{id: "call_1", name: "look", arguments: %{}}
    llm = fn _ -> {:ok, %{content: "Hi", tool_calls: [call]}} end
    paused = [llm: llm, approval: fn _, _ -> :ask end, tools: %{"look" => fn _ -> {:ok, 1} end}]

    for kept? <- [false, true], opts <- [[llm: fn _ -> {:ok, %{content: "Hi"}} end], paused] do
      {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      opts = if kept?, do: [store: store, id: "c"] ++ opts, else: opts
      session = start_supervised!({Session, opts}, id: make_ref())
      if opts[:approval], do: {:paused, _} = Session.prompt(session, "Look")

      for request <- requests do
        GenServer.cast(session, request)
        send(session, request)
        # A job is answered when it has run.
        GenServer.call(session, request)
      end

      assert Process.alive?(session)
      assert Session.status(session) != nil
    end
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
