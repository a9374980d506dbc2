defmodule AshAgent.Store.Conformance.Searching do
  @moduledoc false
  # Messages are found as a reader sees them now.

  use AshAgent.Store.Conformance.Group, {"searching", {:search, 3}}

  check "finds what was said, called and answered", %{store: store} do
    mark = new_id()
    arguments = %{"street" => "Übersee lane", "type" => "registered"}
    call = %{id: "a", name: :find_parcel, arguments: arguments}

    context =
      Context.new("Where is my PARCEL, please?", id: new_id(), metadata: %{mark: mark})
      |> Context.add_assistant_message("I look", [call])
      |> Context.add_tool_results([{"a", {:ok, %{place: ["the warehouse"]}}}])
      |> Context.add_assistant_message("It waits in the warehouse.")
      |> Context.add_user_message([%{type: :text, text: "See the picture"}, image(3_000)])

    kept = create!(store, context)
    find = &find(store, &1, metadata: %{mark: mark})

    assert [%{iteration: 1, branch: nil, snippet: "Where is my PARCEL, please?"} = found] =
             find.("my parcel")

    assert found.id == kept.id
    assert [%{iteration: 1}] = find.("übersee")
    assert [%{iteration: 1}] = find.("LANE where")
    assert [%{iteration: 1}] = find.("registered")
    assert [%{iteration: 1}, %{iteration: 2}] = Enum.sort_by(find.("warehouse"), & &1.iteration)
    assert [%{snippet: "See the picture"}] = find.("picture")
    assert [] = find.("parcel elephant")
    assert [] = find.(new_id())
    for nothing <- ["", " '\"*%-", <<255>>, "\u{0}"], do: assert([] = find.(nothing))

    for operator <- ["NOT", "parcel OR elephant", ~s(par* "ce), "words:x"],
        do: assert([] = find.(operator))

    assert [_] = find(store, "parcel", id: kept.id)
    assert [] = find(store, "parcel", id: new_id())
    assert [] = find(store, "parcel", metadata: %{mark: mark}, status: :paused)
    long = String.duplicate("word ", 100)
    kept = append!(store, kept, Context.add_user_message(kept.value, long <> "zebra " <> long))
    assert [%{iteration: 3, snippet: snippet}] = find.("zebra")
    assert snippet =~ ~r/^….*zebra.*…$/u and byte_size(snippet) < 250

    # Rewound and deleted messages are found no more.
    kept = append!(store, kept, Context.rewind(kept.value, to: 1))
    assert [] = find.("zebra")
    :ok = Store.delete(store, kept.id)
    assert [] = find.("parcel")
  end

  # With the words of each.
  @said [
    {"ann.o+bills@mail.example.co.uk", ~w"ann o bills mail example co uk"},
    {"/var/log/app/error.log", ~w"var log app error"},
    {"~/src/my_app/user-agent_v2.ex", ~w"src my app user agent v2 ex"},
    {"C:\\Users\\notes.txt", ~w"C Users notes txt"},
    {"2024-05-17T10:20:30Z", ~w"2024 05 17T10 20 30Z"},
    {"17.05.2024", ~w"17 05 2024"},
    {"-1.5e-10", ~w"1 5e 10"},
    {"1,234.50", ~w"1 234 50"},
    {"AshAgent.Store.Postgres", ~w"AshAgent Store Postgres"},
    {"MyApp.Mailer.deliver_now/2", ~w"MyApp Mailer deliver now 2"},
    {"pkg@1.20.3-rc.1+build5", ~w"pkg 1 20 3 rc build5"},
    {"https://example.org:8080/a/b.html?user=7&tab=all#top",
     ~w"https 8080 a b html user tab top"},
    {"2001:db8::ff00:42", ~w"2001 db8 ff00 42"},
    {"67e55044-10b1-426f-9247-bb680e5fe0c8", ~w"67e55044 10b1 426f 9247 bb680e5fe0c8"},
    {"<div class='card'>Total&nbsp;due</div>", ~w"div class card Total nbsp due"},
    {"user_id:42", ~w"user id 42"},
    {"„Straße“…Café—naïve", ~w"straße Café naïve"},
    {"Мир, «труд» и май", ~w"мир труд май"},
    {"日本語。テスト", ~w"日本語 テスト"}
  ]

  check "finds what is written with other characters, whole and by its words", %{store: store} do
    for {said, words} <- @said do
      id = new_id()
      create!(store, Context.new("(#{said})", id: id))
      for query <- [said | words], do: assert([_] = find(store, query, id: id), query)
      for word <- words, do: assert([] = find(store, word <> "x", id: id))
    end
  end

  check "holds to the masks of now", %{store: store} do
    id = new_id()
    kept = create!(store, Context.new("My card is 4111 and my code is tango", id: id))
    find = &find(store, &1, id: id)
    assert [_] = find.("4111")
    masks = [{"\\d{4}", "[card]"}, {"tango", "****"}]
    kept = append!(store, kept, Context.View.put_masks(kept.value, masks))
    assert [] = find.("4111")
    assert [] = find.("card tango")
    assert [%{snippet: "My card is [card] and my code is ****"}] = find.("code")
    kept = append!(store, kept, Context.View.put_masks(kept.value, []))
    assert [_] = find.("tango")

    # Also of a word that is longer than any index has.
    secret = String.duplicate("x", 40_000) <> "tail"
    kept = append!(store, kept, Context.add_assistant_message(kept.value, secret))
    assert [_] = find.(secret)
    append!(store, kept, Context.View.put_masks(kept.value, [{"tail", "****"}]))
    assert [] = find.(secret)
  end

  check "gives pages without gaps, whatever the masks hide", %{store: store} do
    mark = new_id()

    kept =
      for number <- 1..9 do
        context = Context.new("needle #{number}", id: new_id(), metadata: %{mark: mark})
        masks = if rem(number, 3) == 0, do: [{"needle", "-"}], else: []
        create!(store, Context.View.put_masks(context, masks))
      end

    seen = for {%{id: id}, number} <- Enum.with_index(kept, 1), rem(number, 3) != 0, do: id

    for limit <- [1, 2, 3, 100] do
      pages =
        Stream.unfold([limit: limit, metadata: %{mark: mark}], fn opts ->
          with [_ | _] <- opts, {:ok, page} = Store.search(store, "needle", opts) do
            assert length(page.results) <= limit
            {page.results, page.next && Keyword.put(opts, :after, page.next)}
          end
        end)

      results = Enum.concat(pages)
      assert Enum.sort(Enum.map(results, & &1.id)) == Enum.sort(seen)
      times = Enum.map(results, & &1.at)
      assert times == Enum.sort(times, {:desc, DateTime})
    end
  end

  check "finds the branches of a chat", %{store: store} do
    chat =
      ChatContext.new(id: new_id(), input: "trunk words")
      |> ChatContext.update_context(&Context.add_assistant_message(&1, "Yes"))
      |> ChatContext.update_context(&Context.add_user_message(&1, "leaf words"))

    with {:ok, kept} <- Store.create(store, chat) do
      chat =
        chat
        |> ChatContext.branch("idea", iteration: 2)
        |> ChatContext.update_context(&Context.add_user_message(&1, "twig words"),
          branch: "idea"
        )

      append!(store, kept, chat)
      assert [%{branch: "main"}] = find(store, "trunk", id: kept.id)
      assert [%{branch: "idea", snippet: "twig words"}] = find(store, "twig", id: kept.id)
    end
  end

  defp find(store, query, opts) do
    assert {:ok, %{results: results, next: nil}} = Store.search(store, query, opts)
    results
  end
end
