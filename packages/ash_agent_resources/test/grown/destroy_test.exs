if Code.ensure_loaded?(MyApp.DataCase) do
  defmodule MyApp.DestroyTest do
    # Nothing is destroyed that was only archived, and nothing stays that was erased.
    # TRUNCATE waits for all others that use the table.
    use MyApp.DataCase, async: false

    alias AshAgent.Conversation.{Info, Upkeep}
    alias AshAgent.Store
    alias MyApp.Chat.{Case, Conversation, Memory, Project, Repo}

    setup do
      start_supervised!({Store.SQLite, name: MyApp.Chat.MemoryStore, path: ":memory:"})
      :ok
    end

    defp stored?(record) do
      store = Info.store(record.__struct__, Map.get(record, :org))
      match?({:ok, _kept}, Store.fetch(store, Info.key(record)))
    end

    # The rows of all tables of the store.
    defp rows do
      for table <- ~w(conversations branches iterations calls prompts history) do
        %{rows: [[count]]} = Repo.query!("SELECT count(*) FROM ash_agent_#{table}")
        count
      end
    end

    test "a soft destroy keeps the conversation, and a hard one takes all of it" do
      opts = [actor: user("ann"), tenant: "acme"]
      chat = Conversation.start!(%{input: "Hi"}, opts)
      fork = Conversation.fork!(chat.id, %{}, opts)
      Conversation.rewind!(fork, 1, opts)
      :ok = Ash.destroy!(chat, opts)
      assert Ash.read!(Conversation, opts) |> Enum.map(& &1.id) == [fork.id]
      assert stored?(chat)

      for record <- [chat, fork], do: :ok = Ash.destroy!(record, [action: :purge] ++ opts)
      refute stored?(chat)
      assert Enum.uniq(rows()) == [0]
    end

    test "a bulk destroy is soft or hard as well" do
      opts = [actor: user("ann"), tenant: "acme"]
      chats = for n <- 1..3, do: Conversation.start!(%{input: "#{n}"}, opts)
      %{status: :success} = Ash.bulk_destroy!(chats, :destroy, %{}, opts)
      assert Enum.all?(chats, &stored?/1)

      # Archived ones are hidden from it.
      chats = for n <- 1..3, do: Conversation.start!(%{input: "#{n}"}, opts)
      %{status: :success} = Ash.bulk_destroy!(chats, :purge, %{}, opts)
      refute Enum.any?(chats, &stored?/1)
    end

    test "what the database deletes by itself takes its conversations along" do
      project = Ash.create!(Project, %{name: "p"})
      [one, two] = for _ <- 1..2, do: Case.start!(%{input: "Hi", project_id: project.id})
      three = Case.start!(%{input: "Hi"})
      Repo.query!("DELETE FROM cases WHERE id = $1", [one.id])
      assert {stored?(one), stored?(two), stored?(three)} == {false, true, true}
      Ash.destroy!(project)
      assert {stored?(two), stored?(three)} == {false, true}
    end

    test "and so does TRUNCATE, without touching those of others" do
      opts = [actor: user("ann"), tenant: "acme"]
      chat = Conversation.start!(%{input: "Hi"}, opts)
      one = Case.start!(%{input: "Hi"})
      Repo.query!("TRUNCATE cases")
      assert {stored?(one), stored?(chat)} == {false, true}
    end

    test "erasing takes all of a filter for good, archived ones and forks included, and says what went" do
      ann = [actor: user("ann"), tenant: "acme"]
      bob = [actor: user("bob"), tenant: "acme"]
      mia = [actor: user("mia", :manager), tenant: "acme"]
      start = &Conversation.start!(%{title: &1, input: "Hi"}, &2)
      [one, two] = for title <- ["one", "two"], do: start.(title, ann)
      fork = Conversation.fork!(one.id, %{title: "fork"}, mia)

      [others, elsewhere] = [
        start.("one", bob),
        start.("one", tenant: "other", actor: ann[:actor])
      ]

      :ok = Ash.destroy!(two, ann)

      filter = %{user_id: ann[:actor].id}
      assert {:error, %Ash.Error.Forbidden{}} = Conversation.erase(filter, ann)
      assert {:error, %Ash.Error.Invalid{}} = Conversation.erase(%{}, mia)
      assert {:error, %Ash.Error.Invalid{}} = Conversation.erase(%{no_field: 1}, mia)

      assert {:ok, receipt} = Conversation.erase(filter, mia)
      assert %{records: 3, conversations: 3, iterations: 3} = receipt
      assert Enum.sort(receipt.ids) == Enum.sort(Enum.map([one, two, fork], &Info.key/1))
      for record <- [one, two, fork], do: refute(stored?(record))

      ids = for record <- [one, two, fork], do: Ecto.UUID.dump!(record.id)
      sql = "SELECT count(*) FROM conversations WHERE id = ANY($1)"
      assert Repo.query!(sql, [ids]).rows == [[0]]
      for record <- [others, elsewhere], do: assert(stored?(record))
      assert {:ok, %{records: 0, ids: []}} = Conversation.erase(filter, mia)
    end

    test "erasing works in any store" do
      {:ok, one} = Memory.start(%{id: 1, input: "Hi"})
      {:ok, two} = Memory.start(%{id: 2, input: "Hi"})
      :ok = Ash.destroy!(one, action: :archive)
      assert {:ok, %{records: 1, ids: ["memory:1"]}} = Memory.erase(%{id: 1})
      assert {stored?(one), stored?(two)} == {false, true}
    end

    test "in another store, a sweep takes those whose records are gone, and none that was archived" do
      {:ok, archived} = Memory.start(%{id: 1, input: "Hi"})
      {:ok, gone} = Memory.start(%{id: 2, input: "Hi"})

      {:ok, other} =
        Store.create(MyApp.Chat.MemoryStore, AshAgent.Context.new("x", id: "other:1"))

      :ok = Ash.destroy!(archived, action: :archive)
      refute 1 in Enum.map(Ash.read!(Memory), & &1.id)
      :ok = Ash.DataLayer.destroy(Memory, Ash.Changeset.new(gone))

      assert Upkeep.sweep(Memory) == {:ok, 0}
      assert Upkeep.sweep(Memory, older_than: 0) == {:ok, 1}
      assert {stored?(archived), stored?(gone)} == {true, false}
      assert {:ok, _} = Store.fetch(MyApp.Chat.MemoryStore, other.id)
    end
  end
end
