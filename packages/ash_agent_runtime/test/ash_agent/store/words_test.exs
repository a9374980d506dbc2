defmodule AshAgent.Store.WordsTest do
  use ExUnit.Case, async: true

  # Both databases find the same.

  alias AshAgent.{Context, Store}
  alias AshAgent.Store.{Postgres, SQLite, Words}
  alias AshAgent.Store.Postgres.Migrations
  alias AshAgent.TestSupport.{Generators, PgSQL, Wait}

  import Generators, only: [one_of: 1, between: 2, chance: 1, many: 2]

  # The others are not assigned, ideographs or for private use.
  @characters for codes <- [1..0xD7FF, 0xE000..0x1FFFF, 0xE0000..0xE0FFF], code <- codes, do: code

  setup context do
    {:ok, sqlite} = SQLite.open(":memory:")
    {:ok, sqlite: sqlite, postgres: context[:p1_pgsql] && postgres!()}
  end

  defp postgres! do
    store = Postgres.new(PgSQL.pool!())
    {:ok, 5} = Migrations.migrate(store)
    store
  end

  defp sqlite_rows!(store, mode, statement) do
    reference = make_ref()
    :ok = SQLite.Native.run(store.ref, {mode, reference}, [statement], [])
    assert_receive {:ash_agent_sqlite, ^reference, {:ok, rows}}, 60_000
    rows
  end

  # What is between the letters of "a?b", for each character.
  defp around(codes), do: Enum.map_join(codes, " ", &<<?a, &1::utf8, ?b>>)

  test "the characters between words are SQLite's", %{sqlite: store} do
    tokenizer = "unicode61 remove_diacritics 0"

    script = """
    create virtual table one using fts5 (w, tokenize='#{tokenizer}');
    create virtual table all_of using fts5vocab (one, 'instance');
    insert into one (rowid, w) with recursive n(x) as (select 1 union all select x + 1 from n where x <= #{0xE0FFF})
      select x, 'a' || char(x) || 'b' from n where x < #{0x20000} and x not between #{0xD800} and #{0xDFFF} or x >= #{0xE0000}
    """

    sqlite_rows!(store, :script, script)
    count = "select doc from all_of group by doc having count(*) > 1"
    [rows] = sqlite_rows!(store, :read, count)
    between = rows |> List.flatten() |> MapSet.new()
    assert MapSet.size(between) > 5_000

    words =
      for code <- @characters,
          word <- if(code in between, do: ["a", "b"], else: [<<?a, code::utf8, ?b>>]),
          do: word

    assert Words.cut(around(@characters)) == words

    # All that it takes for the same letter, a search finds in the rows of the index.
    sqlite_rows!(store, :script, """
    create temp table same as select term, 'a' || char(doc) || 'b' as word from all_of where term not in ('a', 'b');
    create index temp.same_term on same (term)
    """)

    pairs = "from same as one join same as other on other.term = one.term"
    assert [[[pairs_of_forms]]] = sqlite_rows!(store, :read, "select count(*) #{pairs}")
    assert pairs_of_forms > 100_000

    missed =
      "select one.word, other.word #{pairs} where not may_have(one.word, '\"' || other.word || '\"')"

    assert [[]] = sqlite_rows!(store, :read, missed)
  end

  @tag :p1_pgsql
  @tag integrations: ["PostgreSQL", "p1_pgsql"]
  test "PostgreSQL reads them as we do", %{postgres: store} do
    text = around(@characters)
    cut = "regexp_split_to_array($1, $$#{Words.separators()}$$)"
    assert {:ok, [[cut]]} = Postgres.query(store, "select array_to_string(#{cut}, ' ')", [text])
    assert cut == Enum.join(Words.cut(text), " ")
  end

  # The ids of what both stores find.
  defp found(stores, query, opts) do
    [one, other] =
      for store <- stores do
        {:ok, %{results: results, next: nil}} = Store.search(store, query, [limit: 500] ++ opts)
        results |> Enum.map(& &1.id) |> Enum.sort()
      end

    assert one == other, "for #{inspect(query)}: #{inspect(one)} and #{inspect(other)}"
    one
  end

  defp keep(stores, texts) do
    mark = "#{System.os_time()}-#{System.unique_integer([:positive])}"

    ids =
      for {text, at} <- Enum.with_index(texts) do
        context = Context.new(text, id: "#{mark}-#{at}", metadata: %{mark: mark})
        for store <- stores, do: {:ok, _} = Store.create(store, context)
        context[:id]
      end

    {[metadata: %{mark: mark}], ids}
  end

  defp uuid do
    <<a::32, b::16, c::16, d::16, e::48>> = :rand.bytes(16)

    [{a, 8}, {b, 4}, {c, 4}, {d, 4}, {e, 12}]
    |> Enum.map_join("-", fn {number, length} ->
      number |> Integer.to_string(16) |> String.downcase() |> String.pad_leading(length, "0")
    end)
  end

  @said [
    "ann@example.org",
    "Ann O'Neill <ann.oneill+bills@mail.example.co.uk>",
    "/var/log/app/error.log",
    "~/src/lib/my_app/user-agent_v2.ex",
    "C:\\Users\\ann\\notes.txt",
    "2024-05-17",
    "17.05.2024",
    "2024-05-17T10:20:30Z",
    "3.14159",
    "-1.5e-10",
    "1,234.50",
    "AshAgent.Store.Postgres",
    "MyApp.Mailer.deliver_now/2",
    "node_modules/@scope/pkg@1.2.3-rc.1+build5",
    "v1.20.3",
    "https://example.org:8080/a/b.html?user=7&tab=all#top",
    "www.example.org",
    "192.168.10.1",
    "2001:db8::ff00:42:8329",
    "<div class=\"card\">Total&nbsp;due</div>",
    "SELECT * FROM users WHERE id=7;",
    "+49 (30) 123-456",
    "#1234, $99.95 and 50%",
    "user_id:42",
    "„Straße“…Café—naïve",
    "Мир, «труд» и май",
    "日本語。テスト、東京",
    "नमस्ते दुनिया।",
    "1️⃣ ✅Done→next"
  ]

  @tag :p1_pgsql
  @tag integrations: ["PostgreSQL", "p1_pgsql"]
  test "what agents talk about is found whole and in parts", %{sqlite: one, postgres: other} do
    :rand.seed(:exsss, ExUnit.configuration()[:seed])
    stores = [one, other]
    uuids = for _ <- 1..200, do: uuid()
    said = @said ++ uuids
    {all, ids} = keep(stores, for(text <- said, do: "See #{text}, please"))

    for {text, id} <- Enum.zip(said, ids) do
      words = if text in uuids, do: [text |> Words.cut() |> one_of()], else: Words.cut(text)
      for word <- [text | words], do: assert(id in found(stores, word, all), "#{word} of #{text}")
    end

    for text <- @said,
        form <- [String.upcase(text), String.downcase(text)],
        do: found(stores, form, all)

    # The beginning of a word is another word.
    assert found(stores, "exampl", all) == []
  end

  @letters ~w"a b C d E 7 0 ä Ö é ж Щ 日 本 क त ة ² ª" ++ ["e\u0301"]
  @between [" ", " ", "-", "_", ".", "/", "@", "'", "\"", "\\", "&", "<", ">", "|", "!", ":*"] ++
             ["\u00A0", "…", "“", "—", "。", "़", "ा", "\u200D", "\uFE0F", "😀", "€", "\n", "()"]
  # Symbols that are younger than the tables of Unicode that FTS5 has.
  @young ["🤔", "🥲"]

  defp word(size) do
    letters = many(between(1, min(size, 4)), fn -> one_of(@letters) end) |> Enum.join()
    letters = if chance(5), do: letters <> one_of(@young), else: letters
    one_of([&String.downcase/1, &String.capitalize/1, &String.upcase/1]).(letters)
  end

  defp text(size) do
    many(between(1, size), fn -> [word(size), one_of(@between)] end) |> IO.iodata_to_binary()
  end

  # No accent leaves its letter.
  defp part(text) do
    from = between(0, String.length(text) - 1)
    String.slice(text, from, between(1, String.length(text) - from))
  end

  @tag :p1_pgsql
  @tag integrations: ["PostgreSQL", "p1_pgsql"]
  test "any text and any query", %{sqlite: one, postgres: other} do
    stores = [one, other]

    Generators.check_all("words of stores", [runs: 20, max_size: 12], fn size ->
      texts = many(between(1, 8), fn -> text(size) end)
      {all, ids} = keep(stores, texts)

      for {text, id} <- Enum.zip(texts, ids) do
        if Words.cut(text) != [], do: assert(id in found(stores, text, all))
        for query <- many(4, fn -> part(text) end), do: found(stores, query, all)
      end

      for query <- many(4, fn -> text(2) end), do: found(stores, query, all)

      # What a mask hides is found in neither.
      word = texts |> one_of() |> Words.cut() |> one_of()

      for store <- stores, id <- ids do
        {:ok, kept} = Store.fetch(store, id)
        masked = Context.View.put_masks(kept.value, [{"(?i)" <> Regex.escape(word), "*"}])
        {:ok, _} = Store.append(store, kept, masked)
      end

      assert found(stores, word, all) == []
      for text <- texts, do: text |> part() |> then(&found(stores, &1, all))
    end)
  end

  # Two letters that are the same as one in ASCII, and words of more than eight bytes.
  @same ["ſ", "\u212A", "abcdefgh", "Abcdefghi", "aBcdefghijklmnopq7"]

  test "no iteration of a group is missed, whatever its words are", %{sqlite: store} do
    Generators.check_all("filters of iterations", [runs: 20, max_size: 12], fn size ->
      texts =
        many(between(2, 70), fn -> [text(size), one_of(@same), text(size)] |> Enum.join() end)

      first = Context.new(hd(texts))

      context =
        Enum.reduce(tl(texts), first, fn text, context ->
          context |> Context.add_assistant_message("-") |> Context.add_user_message(text)
        end)

      {:ok, _} = Store.create(store, context)

      for {text, number} <- Enum.with_index(texts, 1),
          words = Words.cut(text),
          word = one_of(words),
          same = word |> String.replace("ſ", "s") |> String.replace("\u212A", "k"),
          query <- [text, word, same] do
        {:ok, page} = Store.search(store, query, id: context[:id], limit: 500)
        assert number in Enum.map(page.results, & &1.iteration), inspect({query, text})
      end
    end)
  end

  @tag :p1_pgsql
  @tag integrations: ["PostgreSQL", "p1_pgsql"]
  test "words of any length and number are kept and found", %{sqlite: one, postgres: other} do
    stores = [one, other]
    rare = Enum.map_join(0x20000..0x2A6D6, " ", &<<&1::utf8>>)
    many = Enum.map_join(1..40_000, " ", &Integer.to_string(&1, 36))

    long =
      for {letter, size} <- [{"a", 2_047}, {"ж", 40_000}, {"b", 90_000}], do: dup(letter, size)

    {all, ids} = keep(stores, [rare, many | long])

    for {text, id} <- Enum.zip([<<0x2A000::utf8>>, "2S RS" | long], ids),
        do: assert(found(stores, text, all) == [id])
  end

  defp dup(letter, times), do: String.duplicate(letter, times)

  # Tables of version 2, in a schema of their own.
  defp older! do
    {query, _} = database = PgSQL.connect!()
    schema = "words_#{System.os_time()}"
    {:ok, _} = query.("create schema #{schema}", [])
    on_exit(fn -> {:ok, _} = elem(PgSQL.connect!(), 0).("drop schema #{schema} cascade", []) end)
    store = Postgres.new(database, prefix: schema)
    {:ok, 2} = Migrations.migrate(store, version: 2)
    {store, schema}
  end

  defp find(store, query) do
    {:ok, %{results: results}} = Store.search(store, query)
    results
  end

  # What the release before wrote and asked.
  @older_words "to_tsvector('simple', 'Ask ann@example.org by May')"
  @older_query "to_tsquery('simple', '(''ann'' | ''Ann'') & (''example'')')"

  @tag :p1_pgsql
  @tag integrations: ["PostgreSQL", "p1_pgsql"]
  test "what an earlier release has stored is cut again, and it finds what this one stores" do
    {%{database: {query, _}} = store, schema} = older!()
    {:ok, _} = Store.create(store, Context.new("Ask ann@example.org by May", id: "c"))
    {:ok, _} = query.("update #{schema}.ash_agent_texts set words = #{@older_words}", [])
    # Both releases run on the tables of both versions.
    assert [_] = find(store, "may ask")
    assert [] = find(store, "example")
    {:ok, 5} = Migrations.migrate(store)
    for text <- ["example", "ann@example.org", "may ask"], do: assert([_] = find(store, text))

    found =
      "select id from #{schema}.ash_agent_conversations, #{schema}.ash_agent_texts where words @@ "

    assert {:ok, %{rows: [["c"]]}} = query.(found <> @older_query, [])
    for statement <- Migrations.sql(3, 2, prefix: schema), do: {:ok, _} = query.(statement, [])
    assert [_] = find(store, "example")
  end

  @tag :p1_pgsql
  @tag integrations: ["PostgreSQL", "p1_pgsql"]
  test "what is written while the words are cut again is found" do
    {%{database: {_, transaction}} = store, schema} = older!()
    {:ok, kept} = Store.create(store, Context.new("early", id: "c"))
    migrating = Postgres.new(PgSQL.connect!(), prefix: schema)
    {look, _} = PgSQL.pool!()
    waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like $1"

    {:ok, task} =
      transaction.(fn ->
        {:ok, _} = Store.append(store, kept, Context.add_assistant_message(kept.value, "late"))
        task = Task.async(fn -> Migrations.migrate(migrating) end)

        assert Wait.until(fn ->
                 match?(
                   {:ok, %{rows: [_]}},
                   look.(waiting, ["update \"#{schema}\".ash_agent_texts%"])
                 )
               end)

        task
      end)

    assert {:ok, 5} = Task.await(task)
    for word <- ["early", "late"], do: assert([_] = find(store, word))
  end
end
