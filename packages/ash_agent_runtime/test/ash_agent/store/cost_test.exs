defmodule AshAgent.Store.CostTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [drain: 1]

  alias AshAgent.{ChatContext, Context, Store}
  alias AshAgent.Context.Calls
  alias AshAgent.Runtime.Late
  alias AshAgent.TestSupport.CountingStore

  setup do
    {:ok, store: CountingStore.new(self())}
  end

  defp turn(context, number) do
    context
    |> Context.add_assistant_message(nil, [%{id: "call_#{number}", name: "f", arguments: %{}}])
    |> Context.add_tool_results([{"call_#{number}", {:ok, "result"}}])
  end

  defp conversation(iterations),
    do:
      Enum.reduce(
        1..iterations,
        Context.new("x", id: "c", system_prompt: "S"),
        &turn(&2, rem(&1, 10) + 90_000)
      )

  defp asked, do: drain(do: ({:store, key, bytes} -> {key, bytes}))

  defp cost(store, kept, value) do
    asked()
    {:ok, kept} = Store.append(store, kept, value)
    [{{:append, sections}, bytes}] = asked()
    {kept, sections, bytes}
  end

  test "a turn writes the same at iteration 10 and 10,000", %{store: store} do
    [few, many] =
      for iterations <- [10, 10_000] do
        {:ok, kept} = Store.create(store, conversation(iterations))
        {_kept, sections, bytes} = cost(store, kept, turn(kept.value, 90_001))
        assert sections == [:branches, :iterations, :history]
        :ok = Store.delete(store, "c")
        bytes
      end

    # The numbers of the iterations are longer.
    assert_in_delta few, many, 30
  end

  test "a write looks at no call that waits and has not changed" do
    [few, many] =
      for count <- [10, 10_000] do
        calls = for n <- 1..count, do: %{id: "c#{n}", name: "build", arguments: %{}}
        waiting = for n <- 1..count, do: {"c#{n}", {:waiting, %{handle: "k#{n}.1"}}}
        before = Context.new("x", id: "c") |> Context.add_assistant_message(nil, calls)
        before = Context.add_tool_results(before, waiting)
        {_fields, lines, _media} = Store.Changes.of(before, nil, [])
        {:ok, next} = before |> turn(1) |> Calls.arrive({:handle, "k#{count}.1"}, {:ok, 1})
        next = next |> Context.add_assistant_message("Done.") |> Calls.place_arrivals()

        # The first write has all of them, and the next one has what it is about.
        assert [waits: all] = Store.Late.fields(before, [])
        assert length(all) == count

        reductions(fn ->
          assert [closed: [%{state: :arrived}]] = Store.Late.fields(next, lines)
          arrivals = [%{key: "k1.1"}, %{key: "unknown"}]
          assert ["k1.1"] = next |> Late.open(arrivals) |> Map.keys()
          assert Late.open?(next)
        end)
      end

    # Those of the core are by its time. To read all calls takes a hundred times as many.
    assert many < few + 20_000
  end

  defp reductions(work) do
    {:reductions, before} = Process.info(self(), :reductions)
    work.()
    {:reductions, later} = Process.info(self(), :reductions)
    later - before
  end

  test "a note on an early iteration writes that one", %{store: store} do
    {:ok, kept} = Store.create(store, conversation(2_000))

    {kept, _, bytes} =
      cost(store, kept, Context.put_iteration_metadata(kept.value, 3, :note, "x"))

    assert bytes < 2_000
    # What is not made of the kept one is compared.
    {:ok, loaded} = Store.fetch(store, "c")
    {_kept, sections, _} = cost(store, kept, loaded.value)
    assert sections == [:branches, :history]
  end

  test "a rewind writes what is new, and deletes", %{store: store} do
    {:ok, kept} = Store.create(store, conversation(2_000))
    value = kept.value |> Context.rewind(to: 1_000) |> Context.add_user_message("Again")
    {_kept, sections, bytes} = cost(store, kept, value)
    assert sections == [:branches, :iterations, :cuts, :history]
    assert bytes < 2_000
  end

  test "a branch is written from where it leaves, and the other branches not at all", %{
    store: store
  } do
    chat =
      ChatContext.new(id: "chat", input: "x")
      |> ChatContext.update_context(&Enum.reduce(1..2_000, &1, fn n, c -> turn(c, n) end))

    {:ok, kept} = Store.create(store, chat)
    {kept, _, bytes} = cost(store, kept, ChatContext.branch(chat, "idea", iteration: 1_990))
    assert bytes < 8_000

    {_kept, _, bytes} =
      cost(store, kept, ChatContext.update_context(kept.value, &turn(&1, 1), branch: "idea"))

    assert bytes < 2_000
  end

  test "media are written once", %{store: store} do
    data = Base.encode64(:crypto.strong_rand_bytes(300_000))
    image = %{type: :image, media_type: "image/png", data: data}
    {:ok, kept} = Store.create(store, Context.new([image], id: "m"))
    {kept, _, bytes} = cost(store, kept, Context.add_assistant_message(kept.value, "x"))
    assert bytes < 2_000
    {:ok, kept} = Store.fetch(store, kept.id)
    {_kept, sections, bytes} = cost(store, kept, Context.add_user_message(kept.value, [image]))
    assert sections == [:branches, :iterations, :history]
    assert bytes < 2_000
  end

  test "a system prompt is not written again", %{store: store} do
    prompt = String.duplicate("p", 100_000)
    {:ok, kept} = Store.create(store, Context.new("x", id: "p", system_prompt: prompt))
    {kept, _, bytes} = cost(store, kept, turn(kept.value, 1))
    assert bytes < 2_000
    {_kept, _, bytes} = cost(store, kept, Context.put_system_prompt(kept.value, prompt <> "!"))
    assert bytes > 100_000
  end

  test "an iteration of an agent is three round trips", %{store: store} do
    {:ok, kept} = Store.create(store, Context.new("x", id: "run"), owner: "a")
    asked()
    calls = for n <- 1..5, do: %{id: "call_#{n}", name: "f", arguments: %{}}
    context = Context.add_assistant_message(kept.value, nil, calls)
    {:ok, kept} = Store.append(store, kept, context)
    keys = Enum.map(calls, &Store.call_key(context, &1.id))
    {:ok, kept, ^keys} = Store.start(store, kept, Enum.map(keys, &%{key: &1}))
    context = Context.add_tool_results(context, for(call <- calls, do: {call.id, {:ok, 1}}))

    {:ok, _} =
      Store.append(store, kept, context, finished: Enum.map(keys, &%{key: &1, state: :ok}))

    assert [{:append, _}, :start, {:append, _}] = Enum.map(asked(), &elem(&1, 0))
  end

  test "a search for words that masks hide asks a few times, however many there are", %{
    store: store
  } do
    iterations = 600

    value =
      Enum.reduce(
        1..iterations,
        Context.new("x", id: "c"),
        &Context.add_user_message(&2, "needle #{&1}")
      )

    {:ok, _kept} = Store.create(store, Context.View.put_masks(value, [{"needle", "-"}]))

    for limit <- [1, 10] do
      asked()
      assert {:ok, %{results: [], next: nil}} = Store.search(store, "needle", limit: limit)
      assert length(asked()) <= 11
    end
  end
end
