defmodule AshAgent.Store.Conformance.Chats do
  @moduledoc false
  # A chat comes back with all its branches. A store that takes only contexts leaves these out.

  use AshAgent.Store.Conformance.Group, "a chat that is kept"

  check "comes back equal with all branches", %{store: store} do
    each_case("chats", 12, fn ->
      chat = ChatContext.new(id: new_id(), input: "0", system_prompt: "S", config: [mode: :plan])
      chat = ChatContext.update_context(chat, &add_turns(&1, 5))
      kept = create!(store, chat)
      assert kept.kind == :chat

      Enum.reduce(1..30, {kept, chat}, fn _step, {kept, chat} ->
        chat = change_chat(chat)
        kept = append!(store, kept, chat)

        if chance?(25) do
          {:ok, kept} = Store.fetch(store, kept.id)
          {kept, kept.value}
        else
          {kept, chat}
        end
      end)
    end)
  end

  check "of a branch stays when the one that it left changes", %{store: store} do
    rewind = fn chat, branch, to ->
      ChatContext.update_context(chat, &Context.rewind(&1, to: to), branch: branch)
    end

    note = &Context.put_iteration_metadata(&1, 2, :a, 1)

    for change <- [
          &ChatContext.update_context(&1, note, branch: "main"),
          &rewind.(&1, "main", 2),
          &ChatContext.delete_branch(&1, "main"),
          &ChatContext.rename_branch(&1, "main", "trunk"),
          &rewind.(&1, "idea", 3)
        ] do
      chat = ChatContext.new(id: new_id(), input: "x")
      chat = ChatContext.update_context(chat, &add_turns(&1, 6))
      kept = create!(store, chat)

      chat =
        chat
        |> ChatContext.branch("idea", iteration: 5)
        |> ChatContext.update_context(&add_turns(&1, 1), branch: "idea")
        |> ChatContext.branch("later", from: "idea", iteration: 6)
        |> ChatContext.switch("idea")

      kept = append!(store, kept, chat)
      changed = change.(chat)
      kept = append!(store, kept, changed)

      append!(
        store,
        kept,
        ChatContext.update_context(changed, &add_turns(&1, 1), branch: "later")
      )
    end
  end

  defp add_turns(context, count) do
    Enum.reduce(1..count, context, fn _, context ->
      context |> Context.add_assistant_message("a") |> Context.add_user_message("u")
    end)
  end

  check "is the child's, with its parent", %{store: store} do
    chat = ChatContext.new(id: new_id(), input: "One")
    create!(store, chat)
    child = ChatContext.spawn_child(chat, id: new_id(), input: "Part")
    assert create!(store, child).parent_id == chat.id
    assert {:ok, %{conversations: [%{id: id}]}} = Store.list(store, parent_id: chat.id)
    assert id == child.id
  end
end
