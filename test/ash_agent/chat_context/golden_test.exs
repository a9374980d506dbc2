defmodule AshAgent.ChatContext.GoldenTest do
  use ExUnit.Case, async: true

  # The bytes of stored chats: a release that stores the same chat differently would make every stored row look changed.

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.JSON

  @at ~U[2026-01-01 10:00:00.000000Z]
  @fixture Path.expand("../../fixtures/chat_v1.json", __DIR__)
  @seeded Path.expand("../../fixtures/chat_child_v1.json", __DIR__)

  defp say(chat, text, name),
    do:
      ChatContext.update_context(chat, &Context.add_user_message(&1, text, at: @at), branch: name)

  defp answer(chat, text, name, calls \\ []) do
    fun = &Context.add_assistant_message(&1, text, calls, at: @at)
    ChatContext.update_context(chat, fun, branch: name)
  end

  defp results(chat, results, name),
    do:
      ChatContext.update_context(chat, &Context.add_tool_results(&1, results, at: @at),
        branch: name
      )

  defp chat do
    config = [
      model_id: "m1",
      mode: :plan,
      allowed_tools: [:read, "write", ":read", "$x"],
      permission_rules: [{:deny, "rm", %{path: "/"}}, %{tool: :all, by: ~D[2026-01-01]}],
      parameters: %{"top_p" => 1000.0, temperature: 0.2, stop: [], big: 0x10000000000000000},
      mcp_servers: [%{name: "files", command: "mcp", args: ["-v"], env: %{"$HOME" => ":a"}}]
    ]

    ChatContext.new(input: "one", id: "ch\0at", system_prompt: "S", config: config, at: @at)
    |> answer("two", "main", [%{id: "a", name: :search, arguments: %{q: {:tuple, "x"}}}])
    |> results([{"a", {:ok, %{found: [1, 2.5, nil]}}}], "main")
    |> answer("three", "main")
    |> say("four", "main")
    |> ChatContext.branch("b", iteration: 1)
    |> say("five <b>", "b")
    |> ChatContext.branch("c", from: "main", user_prompt: "U")
    |> answer("six", "c", [%{id: "b", name: "write", arguments: %{}}, %{id: "c", name: "rm"}])
    |> results([{"b", {:error, :enoent}}], "c")
    |> ChatContext.branch("d \0 ä", from: "c")
    |> results([{"c", {:ok, "done"}}], "d \0 ä")
    |> say("seven", "d \0 ä")
    |> ChatContext.branch("e", from: "d \0 ä")
    |> ChatContext.update_context(&Context.View.put_masks(&1, [{"se..n", "#"}], at: @at),
      branch: "e"
    )
    |> ChatContext.update_context(&Context.View.hide(&1, {:all_but_last, 1}, at: @at), branch: "e")
    |> ChatContext.update_context(&Context.put_metadata(&1, :note, {:a, 1}, at: @at), branch: "e")
    |> ChatContext.update_context(fn _ -> Context.new("else", id: "other", at: @at) end,
      branch: "b"
    )
    |> ChatContext.delete_branch("c")
    |> ChatContext.switch("e")
  end

  defp with_unknown_fields(chat) do
    unknown = %{"$new" => [1, %{":a" => "$b"}], "n" => nil}

    chat
    |> ChatContext.dump()
    |> Map.put("unknown", unknown)
    |> Map.update!("config", &Map.put(&1, "unknown", unknown))
    |> Map.update!("branches", fn branches -> Enum.map(branches, &Map.put(&1, "z", unknown)) end)
    |> ChatContext.load!()
  end

  test "a chat is stored in the bytes that version 1 has" do
    text = chat() |> with_unknown_fields() |> ChatContext.to_snapshot()
    assert text == File.read!(@fixture)
  end

  test "the stored bytes make the chat they were made of" do
    stored = ChatContext.from_snapshot!(File.read!(@fixture))
    assert ChatContext.to_snapshot(stored) == File.read!(@fixture)
    assert ChatContext.dump(stored) == JSON.decode!(File.read!(@fixture))
    assert Enum.map(ChatContext.branches(stored), & &1.name) == ["main", "b", "d \0 ä", "e"]
    assert ChatContext.equal?(stored, with_unknown_fields(chat()))
  end

  test "a child that is seeded with a range is stored in the same bytes" do
    parent =
      ChatContext.update_context(chat(), &Context.View.put_max_result_bytes(&1, 2_000, at: @at))

    opts = [seed: 2..3, id: "child", input: "go", at: @at]
    text = parent |> ChatContext.spawn_child(opts) |> ChatContext.to_snapshot()
    assert text == File.read!(@seeded)
  end
end
