defmodule AshAgent.Store.Conformance.Hostile do
  @moduledoc false
  # Anything that an application may store is text to the database.

  use AshAgent.Store.Conformance.Group, "hostile data"

  check "in ids is refused or found nowhere", %{store: store} do
    for id <- [
          "\u{0}",
          "a\u{0}b",
          <<255>>,
          <<0xED, 0xA0, 0x80>>,
          String.duplicate("x", 1_000_000)
        ] do
      assert {:error, :not_found} = Store.fetch(store, id)
      assert {:error, :not_found} = Store.claim(store, id, owner: "a")
      assert {:error, :not_found} = Store.delete(store, id)
      assert {:error, :not_found} = Store.enqueue(store, id, "x")
      assert {:ok, []} = Store.waiting(store, id)

      if String.valid?(id),
        do: assert_raise(ArgumentError, fn -> Store.create(store, talk(id)) end)

      assert_raise ArgumentError, fn -> Store.claim(store, new_id(), owner: id) end
    end

    for id <- [
          "'; drop table ash_agent_conversations; --",
          "$1",
          "{conversations}",
          "\\u0000 \\",
          "%_",
          ~s("),
          "ü\u{10FFFF}\u{FFFE}\n\t\u{7f}"
        ] do
      id = new_id() <> id
      kept = create!(store, talk(id))
      append!(store, kept, Context.add_user_message(kept.value, id), note: %{id => id})
    end
  end

  check "in calls, metadata and texts is kept", %{store: store} do
    big = String.duplicate("\u{0}'\"\\", 20_000)

    calls = [
      %{id: big, name: "n\u{0}", arguments: %{big => [big, <<255>>]}},
      %{id: "\u{0}", name: "x", arguments: %{}}
    ]

    context =
      Context.new("x", id: new_id(), metadata: %{big => big})
      |> Context.add_assistant_message(nil, calls)

    kept = create!(store, context, owner: "a")
    keys = Enum.map(calls, &Store.call_key(context, &1.id))

    attempts = for {key, call} <- Enum.zip(keys, calls), do: %{key: key, call: call}
    assert {:ok, kept, ^keys} = Store.start(store, kept, attempts)
    results = for call <- calls, do: {call.id, {:ok, big}}
    kept = append!(store, kept, Context.add_tool_results(context, results))

    assert {:ok, stored} = Store.calls(store, kept.id)
    assert Enum.sort(Enum.map(stored, & &1.call)) == Enum.sort(calls)
  end

  check "as deep as a conversation may be is kept", %{store: store} do
    deep = Enum.reduce(1..80, 1, fn _, deep -> %{{deep} => 1} end)
    kept = create!(store, Context.new("x", id: new_id(), metadata: %{deep: deep}))
    append!(store, kept, Context.put_iteration_metadata(kept.value, 1, :deep, deep))
  end
end
