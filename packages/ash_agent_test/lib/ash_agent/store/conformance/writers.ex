defmodule AshAgent.Store.Conformance.Writers do
  @moduledoc false
  # Of two writers, one writes.

  use AshAgent.Store.Conformance.Group, "two writers"

  check "do not mix: the second is stale, and nothing of it is kept", %{store: store} do
    kept = create!(store, talk())
    one = Context.add_user_message(kept.value, "one")

    two = kept.value |> Context.add_user_message("two") |> Context.add_assistant_message("2")

    append!(store, kept, one)

    more = [status: :running, taken: ["x"], finished: [%{key: "k", state: :ok}]]
    assert {:error, :stale} = Store.append(store, kept, two, more)

    fetched = assert_kept(store, one)
    assert fetched.status == :idle
    assert {:ok, []} = Store.calls(store, kept.id)
    assert {:ok, [_, _]} = Store.history(store, kept.id)
  end

  check "at once: exactly one writes", %{store: store} do
    kept = create!(store, talk())

    answers =
      at_once(12, fn number ->
        value =
          Enum.reduce(1..number, kept.value, fn turn, context ->
            context
            |> Context.add_user_message("#{number}")
            |> Context.add_assistant_message("#{turn}")
          end)

        {Store.append(store, kept, value), value}
      end)

    assert [{{:ok, _}, winner}] = for({{:ok, _}, _} = answer <- answers, do: answer)
    assert Enum.count(answers, &match?({{:error, :stale}, _}, &1)) == 11
    assert_kept(store, winner)
  end

  check "that each try again lose nothing", %{store: store} do
    kept = create!(store, Context.new("0", id: new_id()))

    at_once(4, fn writer ->
      for number <- 1..8, do: say_until_kept(store, kept.id, "#{writer}.#{number}")
    end)

    assert {:ok, %{value: context}} = Store.fetch(store, kept.id)
    said = for %{role: :user, content: text} <- Context.to_messages(context), do: text
    assert length(Enum.flat_map(said, &String.split(&1, "\n", trim: true))) == 33

    for writer <- 1..4,
        number <- 1..8,
        do: assert(Enum.any?(said, &(&1 =~ "#{writer}.#{number}")))
  end

  defp say_until_kept(store, id, text) do
    {:ok, kept} = Store.fetch(store, id)

    context = kept.value |> Context.add_user_message(text) |> Context.add_assistant_message("ok")

    case Store.append(store, kept, context) do
      {:ok, _} -> :ok
      {:error, :stale} -> say_until_kept(store, id, text)
    end
  end

  check "a claim keeps those out who have none", %{store: store} do
    kept = create!(store, talk())
    assert {:ok, claim} = Store.claim(store, kept.id, owner: "a")
    value = Context.add_user_message(kept.value, "x")
    assert {:error, {:owned, "a"}} = Store.append(store, kept, value)
    {:ok, fetched} = Store.fetch(store, kept.id)
    refute fetched.claimed?
    assert {:error, {:owned, "a"}} = Store.append(store, fetched, value)
    assert {:error, {:owned, "a"}} = Store.start(store, fetched, [%{key: "k"}])
    append!(store, claim, value)
  end
end
