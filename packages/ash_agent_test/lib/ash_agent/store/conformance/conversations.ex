defmodule AshAgent.Store.Conformance.Conversations do
  @moduledoc false
  # A context comes back as it was written.

  use AshAgent.Store.Conformance.Group, "what is kept"

  check "comes back equal, with every kind of term", %{store: store} do
    numbers = %{big: 1_000_000_000_000_000_000_000_000, float: -0.0, huge: 1.0e300}
    others = %{day: ~D[2026-02-28], tuple: {:ok, nil, [true]}, nested: %{1 => %{"$atom" => ":x"}}}
    texts = %{"text" => "\u{0}ü\u{10FFFF}", bytes: <<255, 0>>}
    metadata = texts |> Map.merge(numbers) |> Map.merge(others)
    opts = [id: new_id(), metadata: metadata, system_prompt: "'; drop table x; --"]
    context = Context.new("\u{0}" <> <<255>>, opts)
    kept = create!(store, context)
    assert kept.kind == :context
    assert kept.metadata == metadata

    assert %{metadata: ^metadata, status: :idle, owner: nil, epoch: 0} =
             assert_kept(store, context)

    assert {:error, :exists} = Store.create(store, context)
  end

  check "comes back with the text of its calls, byte for byte", %{store: store} do
    text = String.duplicate("x", 100)

    for arguments <- [
          ~s({"zulu":"#{text}","b":{"d":1,"c":[{"f":2,"e":":x"}]},"aa":1.5}),
          ~s({"zulu": "#{text}", "b": {"d": 1, "c": ["é"]}, "aa": 1.50}),
          ~s({"zulu": "#{text}", "b": {"d": 1, "c": 12345678901234567890123}, "aa": null})
        ] do
      call = %{id: "a", name: "write", arguments: arguments}
      context = Context.add_assistant_message(Context.new("x", id: new_id()), nil, [call])
      create!(store, context)
      {:ok, kept} = Store.fetch(store, context[:id])
      assert Context.equal?(kept.value, context)
      assert Context.to_snapshot(kept.value) == Context.to_snapshot(context)
    end
  end

  check "comes back equal after any operations", %{store: store} do
    each_case("conversations", 12, fn ->
      context = Context.new("0", id: new_id())
      kept = create!(store, context)

      Enum.reduce(1..25, {kept, [context]}, fn _step, {kept, states} ->
        # Mostly from the newest state, sometimes from one that was left.
        from = if chance?(85), do: hd(states), else: one_of(states)
        context = change(from)
        # The writer may have loaded it again meanwhile.
        kept = if chance?(20), do: elem(Store.fetch(store, kept.id), 1), else: kept
        {append!(store, kept, context), [context | states]}
      end)
    end)
  end

  check "is a fork's own, with its origin", %{store: store} do
    context = talk()
    kept = create!(store, context)
    fork = Context.fork(context, id: new_id())
    forked = create!(store, fork)
    assert forked.parent_id == kept.id
    append!(store, forked, Context.add_user_message(fork, "Other"))
    assert_kept(store, context)
    assert {:ok, %{value: value}} = Store.fetch(store, fork[:id])
    assert value[:origin] == %{id: context[:id], iteration: context.current_iteration}
    assert_raise ArgumentError, fn -> Store.append(store, kept, fork) end
  end

  check "goes on under another id, where the store can rename", %{store: store} do
    if function_exported?(store.__struct__, :rename, 3) do
      context = talk()
      kept = create!(store, context)
      kept = append!(store, kept, Context.add_user_message(context, "More"))
      fork = create!(store, Context.fork(context, id: new_id()))
      {old, new} = {kept.id, new_id()}

      assert {:error, :exists} = Store.rename(store, old, fork.id)
      assert :ok = Store.rename(store, old, new)
      assert {:error, :not_found} = Store.rename(store, old, new)
      assert {:error, :not_found} = Store.fetch(store, old)
      assert {:ok, %{parent_id: ^new}} = Store.fetch(store, fork.id)
      assert {:error, :not_found} = Store.append(store, kept, kept.value)

      {:ok, claim} = Store.claim(store, new, owner: "a")
      {:ok, claim} = Store.fetch(store, claim)
      assert {:error, {:owned, "a"}} = Store.rename(store, new, old)
      {:ok, later} = Store.append(store, claim, Context.add_user_message(claim.value, "Again"))
      assert {:ok, %{value: value, metadata: metadata}} = Store.fetch(store, new)
      assert Context.equal?(value, later.value)
      assert metadata == kept.metadata
    end
  end
end
