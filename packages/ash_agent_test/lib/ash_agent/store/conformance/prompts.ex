defmodule AshAgent.Store.Conformance.Prompts do
  @moduledoc false
  # Messages wait in their order, and are taken once.

  use AshAgent.Store.Conformance.Group, "prompts"

  check "are kept in their order, each once, and taken with the message", %{store: store} do
    kept = create!(store, talk(), owner: "a")
    assert {:ok, first} = Store.enqueue(store, kept.id, "one", metadata: %{by: {:user, 7}})
    parts = [%{type: :text, text: "\u{0}"}]
    assert {:ok, "p2"} = Store.enqueue(store, kept.id, parts, id: "p2", kind: :steer)
    assert {:ok, "p2"} = Store.enqueue(store, kept.id, "again", id: "p2")

    assert {:ok,
            [
              %{id: ^first, input: "one", kind: :prompt, metadata: metadata},
              %{id: "p2", input: ^parts, kind: :steer}
            ]} = Store.waiting(store, kept.id)

    assert metadata == %{by: {:user, 7}}

    kept = append!(store, kept, Context.add_user_message(kept.value, "one"), taken: [first])
    assert {:ok, [%{id: "p2"}]} = Store.waiting(store, kept.id)
    append!(store, kept, kept.value, taken: ["p2"])
    assert {:ok, "p2"} = Store.enqueue(store, kept.id, "too late", id: "p2")
    assert {:ok, []} = Store.waiting(store, kept.id)
    assert {:error, :not_found} = Store.enqueue(store, new_id(), "x")
    assert {:error, %Context.Error{}} = Store.enqueue(store, kept.id, [%{type: :nonsense}])
  end

  check "is taken from an owner only while it is the owner", %{store: store} do
    kept = create!(store, talk(), owner: "a")
    assert {:ok, "p1"} = Store.enqueue(store, kept, "one", id: "p1")
    {:ok, _} = Store.claim(store, kept.id, owner: "a", reclaim: true)
    assert {:error, :stale} = Store.enqueue(store, kept, "two")
    {:ok, next} = Store.claim(store, kept.id, owner: "b", from: "a")
    assert {:error, {:owned, "b"}} = Store.enqueue(store, kept, "two")
    assert {:ok, [%{id: "p1"}]} = Store.waiting(store, kept.id)
    :ok = Store.delete(store, kept.id)
    assert {:error, :not_found} = Store.enqueue(store, next, "two")
  end

  check "of many at once are all there, and none twice", %{store: store} do
    kept = create!(store, talk(), owner: "a")

    at_once(8, fn number ->
      for at <- 1..5,
          do: {:ok, _} = Store.enqueue(store, kept.id, "#{number}.#{at}", id: "#{number}.#{at}")
    end)

    assert {:ok, waiting} = Store.waiting(store, kept.id)
    texts = Enum.map(waiting, & &1.input)

    assert Enum.sort(texts) ==
             Enum.sort(for number <- 1..8, at <- 1..5, do: "#{number}.#{at}")

    # Each sender's are in its order.
    # Each sender's are in its order.
    for number <- 1..8 do
      own = Enum.filter(texts, &String.starts_with?(&1, "#{number}."))
      assert own == for(at <- 1..5, do: "#{number}.#{at}")
    end

    # The owner's claim and revision are as they were.
    append!(store, kept, kept.value, taken: Enum.map(waiting, & &1.id))
  end
end
