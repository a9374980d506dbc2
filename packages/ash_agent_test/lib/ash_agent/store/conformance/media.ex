defmodule AshAgent.Store.Conformance.Media do
  @moduledoc false
  # Images and files are kept beside the rows, each once, and come back with the conversation.

  use AshAgent.Store.Conformance.Group, "media"

  check "are not in the rows, and come back", %{store: store} do
    if can?(store, :dump, 3) do
      parts = for _ <- 1..16, do: image(100_000)
      context = Context.new([%{type: :text, text: "Look"} | parts], id: new_id())
      kept = create!(store, context)
      kept = append!(store, kept, Context.add_assistant_message(context, "I see"))
      assert_kept(store, kept.value)

      assert {:ok, document} = Store.dump(store, kept.id)

      assert %{"iterations" => [%{"messages" => [%{"content" => content} | _]} = iteration]} =
               document

      assert iteration |> inspect(limit: :infinity, printable_limit: :infinity) |> byte_size() <
               10_000

      digests = for %{data: data} <- parts, do: "sha256:" <> digest(data)
      assert digests == for(%{"type" => "image", "data" => %{"$blob" => id}} <- content, do: id)

      assert {:ok, whole} = Store.dump(store, kept.id, inline: true)
      assert whole == Context.dump(kept.value)
      assert {:error, :not_found} = Store.dump(store, new_id())
    end
  end

  check "are kept once, by whoever writes", %{store: store} do
    if can?(store, :dump, 3) do
      same = image(5_000)
      context = Context.new([same, same], id: new_id())
      kept = create!(store, context)
      # Another writer, who has loaded it, and one who goes on from its own value.
      {:ok, loaded} = Store.fetch(store, kept.id)
      loaded = append!(store, loaded, Context.add_assistant_message(loaded.value, "One"))
      context = Context.add_user_message(loaded.value, [same, image(5_000), image(100)])
      kept = append!(store, loaded, context)
      kept = append!(store, kept, Context.put_metadata(kept.value, :a, 1))

      {:ok, claim} = Store.claim(store, kept.id, owner: "a")
      {:ok, claim, ["k"]} = Store.start(store, claim, [%{key: "k"}])
      {:ok, claim} = Store.renew(store, claim)
      append!(store, claim, Context.add_assistant_message(claim.value, "Two"))

      if can?(store, :erase, 2),
        do: assert({:ok, %{blobs: 2}} = Store.erase(store, ids: [kept.id]))
    end
  end

  check "of forks and branches stay when others go", %{store: store} do
    picture = image(5_000)
    kept = create!(store, Context.new([picture], id: new_id()))
    fork = create!(store, Context.fork(kept.value, id: new_id()))
    :ok = Store.delete(store, kept.id)
    assert_kept(store, fork.value)

    kept = create!(store, Context.add_user_message(talk(), [picture]))
    value = Context.rewind(kept.value, to: 1)
    kept = append!(store, kept, value)
    append!(store, kept, Context.add_user_message(value, [picture]))
  end

  check "go when nothing of the conversation has them any more", %{store: store} do
    [stays, early, late] = for _ <- 1..3, do: image(3_000)
    kept = create!(store, Context.new([stays, early], id: new_id()))
    value = Context.add_assistant_message(kept.value, "Nice")
    kept = append!(store, kept, Context.add_user_message(value, [early, late]))
    # By the one who wrote them, and by one who has loaded them.
    kept = append!(store, kept, Context.rewind(kept.value, to: 1))
    kept = append!(store, kept, Context.add_user_message(kept.value, [late]))
    {:ok, kept} = Store.fetch(store, kept.id)
    value = Context.add_user_message(Context.rewind(kept.value, to: 1), "No picture")
    kept = append!(store, kept, value)
    if can?(store, :erase, 2), do: assert({:ok, %{blobs: 2}} = Store.erase(store, ids: [kept.id]))
  end

  check "of a branch that is gone go, and those of others stay", %{store: store} do
    [both, own] = for _ <- 1..2, do: image(3_000)

    chat =
      ChatContext.new(id: new_id(), input: [both])
      |> ChatContext.update_context(&Context.add_assistant_message(&1, "Yes"))
      |> ChatContext.branch("idea", iteration: 1)
      |> ChatContext.update_context(&Context.add_user_message(&1, [both, own]), branch: "idea")

    with {:ok, kept} <- Store.create(store, chat) do
      kept = append!(store, kept, ChatContext.delete_branch(chat, "idea"))

      if can?(store, :erase, 2),
        do: assert({:ok, %{blobs: 1}} = Store.erase(store, ids: [kept.id]))
    end
  end

  check "are told from what only looks like them", %{store: store} do
    text = Base.encode64(:crypto.strong_rand_bytes(3_000))
    id = "sha256:" <> digest(text)
    looks = %{"$blob" => id, "data" => text, data: text, nested: [%{"data" => text <> "="}]}
    context = Context.new(~s({"$blob":"#{id}"} "data":"#{text}"), id: new_id(), metadata: looks)
    call = %{id: "a", name: "f", arguments: looks}
    context = Context.add_assistant_message(context, nil, [call])
    kept = create!(store, context)
    append!(store, kept, Context.add_tool_results(context, [{"a", {:ok, looks}}]))
  end

  check "are told from references in fields that nobody knows", %{store: store} do
    picture = image(3_000)

    for id <- ["sha256:" <> digest(picture.data), "sha256:" <> String.duplicate("0", 64), "x"] do
      reference = %{"$blob" => id}
      looks = %{"data" => reference, "other" => reference}
      document = Context.dump(Context.new([picture], id: new_id()))
      [iteration] = document["iterations"]
      document = %{document | "iterations" => [Map.put(iteration, "newer", looks)]}
      kept = create!(store, Context.load!(document))
      {:ok, fetched} = Store.fetch(store, kept.id)
      assert [%{"newer" => ^looks}] = Context.dump(fetched.value)["iterations"]
      append!(store, fetched, Context.add_assistant_message(fetched.value, "Nice"))
    end
  end

  defp digest(data),
    do: Base.encode16(:crypto.hash(:sha256, Base.decode64!(data)), case: :lower)
end
