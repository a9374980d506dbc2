defmodule AshAgent.Store.Conformance.Chats do
  @moduledoc false
  # A chat comes back with all its branches. A store that takes only contexts leaves these out.

  use AshAgent.Store.Conformance.Group, "a chat that is kept"

  check "comes back equal with all branches", %{store: store} do
    each_case("chats", 12, fn ->
      chat = ChatContext.new(id: new_id(), input: "0", system_prompt: "S", config: [mode: :plan])

      turn = &(&1 |> Context.add_assistant_message("a") |> Context.add_user_message("u"))

      chat =
        ChatContext.update_context(chat, fn context ->
          Enum.reduce(1..5, context, fn _, c -> turn.(c) end)
        end)

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
    turn = &(&1 |> Context.add_assistant_message("a") |> Context.add_user_message("u"))

    turns = fn context ->
      Enum.reduce(1..6, context, fn _, context -> turn.(context) end)
    end

    for change <- [
          &ChatContext.update_context(
            &1,
            fn c -> Context.put_iteration_metadata(c, 2, :a, 1) end,
            branch: "main"
          ),
          &ChatContext.update_context(&1, fn c -> Context.rewind(c, to: 2) end, branch: "main"),
          &ChatContext.delete_branch(&1, "main"),
          &ChatContext.rename_branch(&1, "main", "trunk"),
          &ChatContext.update_context(&1, fn c -> Context.rewind(c, to: 3) end, branch: "idea")
        ] do
      chat = ChatContext.new(id: new_id(), input: "x") |> ChatContext.update_context(turns)
      kept = create!(store, chat)

      chat =
        chat
        |> ChatContext.branch("idea", iteration: 5)
        |> ChatContext.update_context(turn, branch: "idea")

      chat =
        chat
        |> ChatContext.branch("later", from: "idea", iteration: 6)
        |> ChatContext.switch("idea")

      kept = append!(store, kept, chat)
      changed = change.(chat)
      kept = append!(store, kept, changed)
      append!(store, kept, ChatContext.update_context(changed, turn, branch: "later"))
    end
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
