if Code.ensure_loaded?(MyApp.DataCase) do
  defmodule MyApp.KeysTest do
    # Two resources never meet.
    use MyApp.DataCase, async: false

    alias AshAgent.{Context, Conversation, Store}
    alias MyApp.Chat.{Case, Memory, Note}

    defp texts(record) do
      for %{content: text} <- Ash.load!(record, :transcript).transcript || [], do: text
    end

    test "records with one id have conversations of their own" do
      store = Conversation.Info.store(Case, nil)
      chat = Case.start!(%{input: "One"})
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
  end
end
