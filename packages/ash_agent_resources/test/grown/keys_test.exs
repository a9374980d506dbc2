if Code.ensure_loaded?(MyApp.DataCase) do
  defmodule MyApp.KeysTest do
    # Two resources never meet, and what was stored before is found.
    use MyApp.DataCase, async: false

    alias AshAgent.{Context, Conversation, Store}
    alias AshAgent.Conversation.{Migrations, Upkeep}
    alias MyApp.Chat.{Case, Memory, Note, Repo}

    setup do
      start_supervised!({Store.SQLite, name: MyApp.Chat.MemoryStore, path: ":memory:"})
      :ok
    end

    defp texts(record) do
      for %{content: text} <- Ash.load!(record, :transcript).transcript || [], do: text
    end

    test "records with one id have conversations of their own" do
      store = Conversation.Info.store(Case, nil)
      chat = Case.start!(%{input: "One"})
      # Another resource's, as it was stored before.
      {:ok, _} = Store.create(store, Context.new("Not yours", id: "#{chat.id}"))
      assert texts(chat) == ["One", "You said: One"]
      assert Conversation.Info.key(chat) == "cases:#{chat.id}"

      imported = Ash.create!(Case, %{}, action: :import)
      {:ok, _} = Store.create(store, Context.new("Not yours", id: "notes:#{imported.id}"))
      assert texts(imported) == []
      assert Conversation.Info.name(Memory) == "memory"
      assert Note not in Spark.extensions(Case)
    end

    test "a conversation is forked by an id of the resource's type, or by its text" do
      chat = Case.start!(%{input: "One"})

      assert Ash.Resource.Info.action(Case, :fork).arguments |> hd() |> Map.get(:type) ==
               Ash.Type.Integer

      for id <- [chat.id, to_string(chat.id)],
          do: assert(texts(Case.fork!(id)) == ["One", "You said: One"])

      assert {:error, %Ash.Error.Invalid{}} = Case.fork("one")
    end

    test "a conversation under a bare id is found after the migration, with all that was stored with it" do
      store = Conversation.Info.store(Case, nil)
      chat = Ash.create!(Case, %{}, action: :import)
      id = to_string(chat.id)
      {key, call} = stored(store, id)
      assert Migrations.rename(Repo, table: "cases", name: "cases") == 1
      assert Migrations.rename(Repo, table: "cases", name: "cases") == 0
      found(store, Conversation.Info.key(chat), id, call)
      assert texts(chat) |> hd() == "Before"
      assert key == call.key
    end

    test "in another store as well" do
      chat = Ash.create!(Memory, %{id: 7}, action: :import)
      store = MyApp.Chat.MemoryStore
      {_key, call} = stored(store, "7")
      assert Upkeep.rename_keys(Memory) == {:ok, 1}
      assert Upkeep.rename_keys(Memory) == {:ok, 0}
      found(store, "memory:7", "7", call)
      assert hd(texts(chat)) == "Before"
    end

    test "a conversation that somebody runs is not taken away" do
      chat = Ash.create!(Memory, %{id: 8}, action: :import)
      {:ok, _} = Store.create(MyApp.Chat.MemoryStore, Context.new("Run", id: "8"), owner: "a")

      assert_raise RuntimeError, ~r/a turn of the conversation "8" is running/, fn ->
        Upkeep.rename_keys(Memory)
      end

      assert texts(chat) == []
    end

    # One with a waiting call in its journal, a message that waits and three writes.
    defp stored(store, id) do
      context =
        "Before"
        |> Context.new(id: id)
        |> Context.add_assistant_message(nil, [%{id: "c", name: "pay"}])

      {:ok, kept} = Store.create(store, context)
      {:ok, kept} = Store.append(store, kept, context)
      key = Store.call_key(context, "c")
      {:ok, _kept, [^key]} = Store.start(store, kept, [%{key: key}])
      {:ok, _} = Store.enqueue(store, id, "Later")
      {:ok, [call]} = Store.calls(store, id)
      {key, call}
    end

    defp found(store, key, id, call) do
      assert Store.fetch(store, id) == {:error, :not_found}
      assert {:ok, kept} = Store.fetch(store, key)
      # The journal knows its calls again.
      assert Store.call_key(kept.value, "c") == call.key
      assert Store.calls(store, key) == {:ok, [call]}
      assert {:ok, [%{input: "Later"}]} = Store.waiting(store, key)
      assert {:ok, [_, _]} = Store.history(store, key)
    end
  end
end
