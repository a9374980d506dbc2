defmodule AshAgent.Store.SQLiteFileTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Generators, only: [one_of: 1, between: 2, chance: 1, many: 2]
  import AshAgent.TestSupport.Runs, only: [drain: 1]

  alias AshAgent.{Context, Store}
  alias AshAgent.Context.JSON
  alias AshAgent.Store.{Error, SQL, SQLite}
  alias AshAgent.Store.SQLite.Native
  alias AshAgent.TestSupport.{Generators, OtherVM, ReadOnly, StoreWork, StoreWriter, Wait}

  @moduletag :tmp_dir

  setup %{tmp_dir: folder} do
    {:ok, path: Path.join(folder, "store.db")}
  end

  defp open!(path, opts \\ []) do
    assert {:ok, store} = SQLite.open(path, opts)
    store
  end

  defp say(context, text),
    do: context |> Context.add_user_message(text) |> Context.add_assistant_message("ok")

  # A statement that keeps the writer for a while.
  defp occupy(store) do
    count =
      "with recursive n(x) as (select 1 union all select x + 1 from n limit 4000000) select count(*) from n"

    reference = make_ref()
    assert :ok = Native.run(store.ref, {:write, reference}, [count], [])
    reference
  end

  defp await(reference) do
    assert_receive {:ash_agent_sqlite, ^reference, answer}
    answer
  end

  test "values that are long together are copied on a dirty scheduler", %{path: path} do
    %{ref: ref} = open!(path)
    text = String.duplicate("x", 100_000)

    run = fn params ->
      Native.run_normal(ref, {:read, make_ref()}, ["select 1"], params)
    end

    assert run.([text])
    refute run.([text, text])
    refute run.(Enum.to_list(1..10_000))
  end

  test "what is not the path of a file is refused", %{tmp_dir: folder} do
    for path <- [
          "file:#{folder}/x.db?mode=memory",
          "file::memory:",
          Path.join(folder, <<255>>),
          folder <> <<255>>,
          "a\0b"
        ] do
      assert {:error, %Error{reason: {:cannot_open, detail}}} = SQLite.open(path)
      assert is_binary(detail)
    end

    assert File.ls!(folder) == []
  end

  defmodule NotedStore do
    @moduledoc false
    # Tells a process each statement that it runs.

    use AshAgent.Store.Relational

    defstruct [:store, :to]

    @impl AshAgent.Store.Relational
    def dialect, do: :sqlite

    @impl AshAgent.Store.Relational
    def run(noted, key, operation, params) do
      send(noted.to, {:statements, key, SQL.many(operation.())})
      SQLite.run(noted.store, key, operation, params)
    end

    @impl AshAgent.Store.Relational
    def read(noted, key, query, params) do
      send(noted.to, {:statements, key, [query.()]})
      SQLite.read(noted.store, key, query, params)
    end
  end

  defp statements, do: drain(do: ({:statements, key, statements} -> {key, statements}))

  defp plan(store, statement) do
    reference = make_ref()
    explained = ["explain query plan " <> SQL.name_tables(statement, "")]
    :ok = Native.run(store.ref, {:read, reference}, explained, ["{}", "c", "d"])
    assert {:ok, [rows]} = await(reference)
    Enum.map(rows, &List.last/1)
  end

  # Steps that look at all rows of a table. Those of the parameters, of a list in them and of the guard are few.
  defp scans(steps) do
    Enum.filter(steps, &(&1 =~ ~r/^SCAN (?!input|guard|CONSTANT|\w+ VIRTUAL TABLE)/))
  end

  # The first page of a list, and what only a filter finds, are looked for along an index.
  defp may_scan?({:list, filters, _by, _order}, step),
    do: :after not in filters and step =~ "SCAN c USING INDEX"

  defp may_scan?({:prune, _filters}, step),
    do: step in ["SCAN c", "SCAN c USING INDEX ash_agent_conversations_updated"]

  defp may_scan?({:waits, filters}, step),
    do: :after not in filters and step == "SCAN w USING INDEX ash_agent_waits_since"

  defp may_scan?({:arrived, []}, step), do: step == "SCAN a USING INDEX ash_agent_arrivals_new"

  defp may_scan?(_key, _step), do: false

  test "rows are found by their keys, and a list of keys is read once", %{path: path} do
    store = open!(path)
    noted = %NotedStore{store: store, to: self()}
    StoreWork.do_turns(noted)
    StoreWork.do_others(noted)
    known = Enum.uniq(statements())
    assert length(known) > 25

    for {key, statements} <- known, statement <- statements, steps = plan(store, statement) do
      shown = "#{inspect(key)}: #{statement}\n#{Enum.join(steps, "\n")}"

      assert Enum.reject(scans(steps), &may_scan?(key, &1)) == [], shown
      if match?({:list, [:after | _], _, _}, key), do: refute(shown =~ "TEMP B-TREE", shown)

      for list <- ~w(keys taken), statement =~ "'$.#{list}'" do
        text = Enum.join(steps, "\n")
        assert text =~ "LIST SUBQUERY", shown
        refute text =~ "CORRELATED", shown
      end
    end
  end

  test "a file keeps what was written, and several stores may have it open", %{path: path} do
    one = open!(path)
    {:ok, kept} = Store.create(one, Context.new("x", id: "c"))
    two = open!(path, synchronous: :normal)
    {:ok, other} = Store.fetch(two, "c")
    {:ok, written} = Store.append(two, other, say(other.value, "two"))
    assert {:error, :stale} = Store.append(one, kept, say(kept.value, "one"))
    assert {:ok, fetched} = Store.fetch(one, "c")
    assert Context.equal?(fetched.value, written.value)

    answers =
      [one, two]
      |> List.duplicate(5)
      |> List.flatten()
      |> Enum.map(fn store ->
        Task.async(fn -> Store.append(store, fetched, say(fetched.value, "x")) end)
      end)
      |> Enum.map(&Task.await/1)

    assert Enum.count(answers, &match?({:ok, _}, &1)) == 1
    assert Enum.count(answers, &(&1 == {:error, :stale})) == 9
  end

  test "a supervisor opens a store under a name", %{path: path} do
    name = :"#{__MODULE__}.named"
    start_supervised!({SQLite, name: name, path: path})
    assert {:ok, _} = Store.create(name, Context.new("x", id: "c"))
    assert {:ok, _} = Store.fetch(name, "c")
    stop_supervised!(name)
    assert_raise ArgumentError, ~r/start one under a supervisor/, fn -> Store.fetch(name, "c") end

    assert {:error, {%Error{reason: {:cannot_open, _}}, _}} =
             start_supervised({SQLite, name: name, path: "/nonexistent/x.db"})
  end

  test "while the writer works, readers and schedulers go on", %{path: path} do
    store = open!(path)
    {:ok, kept} = Store.create(store, Context.new("x", id: "c"))
    busy = occupy(store)

    waiting =
      for _ <- 1..(System.schedulers_online() * 4),
          do: Task.async(fn -> Store.append(store, kept, say(kept.value, "x")) end)

    # Had they waited for the writer, its answer would be here.
    for _ <- 1..10, do: assert({:ok, _} = Store.fetch(store, "c"))
    refute_received {:ash_agent_sqlite, ^busy, _}
    assert {:ok, _} = await(busy)
    assert Enum.count(Task.await_many(waiting), &match?({:ok, _}, &1)) == 1
  end

  test "a locked file is an error, and then goes on", %{path: path} do
    one = open!(path, search: false)
    two = open!(path, busy_timeout: 20)
    {:ok, kept} = Store.create(one, Context.new("x", id: "c"))
    busy = occupy(one)
    # Until it has begun.
    Process.sleep(100)

    assert {:error, %Error{reason: {:locked, _}} = error} =
             Store.append(two, kept, say(kept.value, "x"))

    assert Exception.message(error) =~ "busy_timeout"
    assert {:ok, _} = await(busy)
    assert {:ok, _} = Store.append(two, kept, say(kept.value, "x"))
  end

  test "a file that may only be read is an error that says so", %{path: path} do
    store = open!(path)
    {:ok, _} = Store.create(store, Context.new("x", id: "c"))
    for file <- Path.wildcard(path <> "*"), do: File.chmod!(file, 0o444)

    assert {:ok, {:error, %Error{reason: {:read_only, _}} = error}} =
             OtherVM.run_unprivileged(ReadOnly, :write, [path])

    assert Exception.message(error) =~ "Check the permissions"
    assert {:ok, %{revision: 1}} = Store.fetch(store, "c")
  end

  test "a full disk is an error, and what was written stays", %{path: path} do
    store = open!(path, max_bytes: 300_000)
    {:ok, kept} = Store.create(store, Context.new("x", id: "c"))
    huge = String.duplicate("secret", 100_000)

    assert {:error, %Error{reason: {:disk_full, _}} = error} =
             Store.append(store, kept, say(kept.value, huge))

    refute inspect(error) =~ "secret"
    refute Exception.message(error) =~ "secret"
    {:ok, fetched} = Store.fetch(store, "c")
    assert Context.equal?(fetched.value, kept.value)
    assert {:ok, _} = Store.append(store, kept, say(kept.value, "small"))
  end

  test "no file, no folder, and a folder are errors", %{tmp_dir: folder} do
    for path <- ["/nonexistent/folder/x.db", folder, "", "a\0b"] do
      assert {:error, %Error{reason: {:cannot_open, _}} = error} = SQLite.open(path)
      assert Exception.message(error) =~ "folder exists"
    end
  end

  test "a damaged file is an error or loads, and never more", %{path: path} do
    store = open!(path)
    {:ok, kept} = Store.create(store, Context.new("x", id: "c"))
    {:ok, _} = Store.append(store, kept, Enum.reduce(1..300, kept.value, &say(&2, "text #{&1}")))

    checkpoint(store)
    whole = File.read!(path)

    :rand.seed(:exsss, {1, 2, 3})

    for number <- 1..40 do
      damaged = Path.join(Path.dirname(path), "damaged #{number}.db")
      at = :rand.uniform(byte_size(whole) - 200)
      <<head::binary-size(at), _::binary-size(100), rest::binary>> = whole

      bytes =
        if rem(number, 4) == 0, do: head, else: head <> :crypto.strong_rand_bytes(100) <> rest

      File.write!(damaged, bytes)

      with {:ok, store} <- SQLite.open(damaged) do
        for answer <- [
              Store.fetch(store, "c"),
              Store.list(store),
              Store.create(store, Context.new("y", id: "d"))
            ] do
          assert match?({:ok, _}, answer) or
                   match?({:error, %module{}} when module in [Error, Context.Error], answer) or
                   answer == {:error, :not_found}
        end
      else
        {:error, error} -> assert %Error{} = error
      end
    end

    File.write!(path <> "text", String.duplicate("no database", 1000))
    assert {:error, %Error{reason: {:corrupt, _}} = error} = SQLite.open(path <> "text")
    assert Exception.message(error) =~ "backup"
  end

  # All is in the file then, and nothing in its log.
  defp checkpoint(store), do: script(store, "pragma wal_checkpoint(truncate)")

  defp script(store, statement) do
    reference = make_ref()
    assert :ok = Native.run(store.ref, {:script, reference}, [statement], [])
    assert {:ok, _} = await(reference)
  end

  test "tables of a newer release are refused", %{path: path} do
    store = open!(path)
    latest = AshAgent.Store.Schema.latest(:sqlite)
    script(store, "pragma user_version = 99")
    assert {:error, %Error{reason: {:schema, 99, ^latest}} = error} = SQLite.open(path)
    assert Exception.message(error) =~ "newer release"
  end

  test "what is deleted is not in the file any more", %{path: path} do
    store = open!(path)
    {:ok, kept} = Store.create(store, Context.new("the secret word xylograph", id: "c"))
    {:ok, _} = Store.enqueue(store, "c", "the secret word")
    :ok = Store.delete(store, kept.id)
    checkpoint(store)
    refute File.read!(path) =~ "secret word"
    # Nor in the index of the search.
    refute File.read!(path) =~ "xylograph"
    refute File.exists?(path <> "-wal") and File.read!(path <> "-wal") =~ "secret word"
  end

  describe "the index of the search" do
    # The texts of an iteration, as SQLite finds them.
    @words """
    substr(coalesce((select group_concat(w.value, ' ') from json_tree(i.document, '$.messages') as w
      where w.type = 'text' and w.key <> '$blob' and (w.key <> 'type' or w.fullkey like '%tool_calls%')
        and (w.fullkey like '$.messages[%].content%' or w.fullkey like '$.messages[%tool_calls%.name'
          or w.fullkey like '$.messages[%tool_calls%.arguments%' or w.fullkey like '$.messages[%tool_calls%.result%')), ''), 1, 100000)
    """

    # Each word of the index with its row and its place, and the same of an index that is made anew of the rows.
    defp index(store) do
      for name <- ~w(kept again) do
        table = if name == "kept", do: "main', 'ash_agent_words", else: "temp', 'again"

        script(
          store,
          "create virtual table temp.#{name}_words using fts5vocab('#{table}', 'instance')"
        )
      end
    end

    defp unindexed(store) do
      {:ok, count} = AshAgent.Store.Relational.count_unindexed(store)
      count
    end

    defp differences(store) do
      # A search waits for the index.
      {:ok, %{behind: 0}} = Store.search(store, "nothing")

      place =
        "i.conversation_id = t.conversation_id and i.branch = t.branch and i.number between t.first and t.number"

      script(store, """
      create virtual table temp.again using fts5 (words, content='', detail=none,
        tokenize='unicode61 remove_diacritics 0');
      insert into temp.again (rowid, words) select t.id, group_concat(#{@words}, ' ')
      from ash_agent_texts as t join ash_agent_iterations as i on #{place} group by t.id
      """)

      index(store)

      for {one, other} <- [{"kept", "again"}, {"again", "kept"}] do
        reference = make_ref()
        found = "select term, doc from #{one}_words except select term, doc from #{other}_words"
        :ok = Native.run(store.ref, {:write, reference}, [found], [])
        {:ok, [rows]} = await(reference)
        rows
      end
    end

    test "has the words of all rows and no others, whatever is done", %{path: path} do
      store = open!(path)
      StoreWork.do_turns(store)
      StoreWork.do_others(store)
      # More than are overwritten one by one.
      long = Enum.reduce(1..260, Context.new("long", id: "long"), &say(&2, "turn #{&1}"))
      {:ok, kept} = Store.create(store, long)
      {:ok, kept} = Store.append(store, kept, Context.rewind(long, to: 5))
      {:ok, _} = Store.append(store, kept, say(kept.value, "again"))
      :ok = Store.rename(store, "long", "longer")

      {:ok, gone} =
        Store.create(store, Enum.reduce(1..3, Context.new("x"), &say(&2, "gone #{&1}")))

      :ok = Store.delete(store, gone.id)
      assert differences(store) == [[], []]
    end

    @strings [
               "Ab",
               "abcdefgh",
               "ABCDEFGHI",
               "abcdefghijklmnopqr",
               "7",
               "é",
               "É",
               "été",
               "日本",
               "ж Ж",
               "😀",
               "\u2014",
               "\e[1m",
               "\n",
               "\"",
               "\\"
             ] ++
               ["a\\", "\\\"", "x\ty", "und", "", "{", "[}", ",:", ~S(\u0041)]

    defp text, do: Enum.join(many(between(0, 6), fn -> one_of(@strings ++ [" ", "-", "."]) end))

    defp value(0), do: one_of([text(), 7, nil, true, [], %{}])
    defp value(depth), do: one_of([&value_0/1, &list/1, &map/1]).(depth - 1)
    defp value_0(_depth), do: value(0)
    defp list(depth), do: many(between(0, 3), fn -> value(depth) end)

    defp map(depth) do
      named = for name <- ["type", "$blob"], chance(30), do: {name, text()}
      Map.new(named ++ many(between(0, 3), fn -> {"k" <> text(), value(depth)} end))
    end

    defp message do
      call = fn ->
        %{id: text(), name: text(), arguments: map(3), result: map(3), status: text()}
      end

      calls = if chance(50), do: %{tool_calls: many(between(0, 2), call)}, else: %{}
      Map.merge(calls, %{role: text(), content: one_of([text(), list(3)]), metadata: map(2)})
    end

    # Letters as numbers, as others may write them.
    defp as_numbers(json) do
      if chance(30) do
        for <<char::utf8 <- json>>, into: "" do
          if char < 128,
            do: <<char>>,
            else:
              for(<<unit::16 <- :unicode.characters_to_binary([char], :utf8, :utf16)>>,
                into: "",
                do: "\\u" <> Base.encode16(<<unit::16>>)
              )
        end
      else
        json
      end
    end

    test "has the words that SQLite finds in documents of any form", %{path: path} do
      store = open!(path, search: false)
      {:ok, _} = Store.create(store, Context.new("x", id: "c"))

      Generators.check_all("words of documents", [runs: 20], fn _size ->
        long = if chance(20), do: String.duplicate("é,", 49_990), else: ""
        messages = many(between(0, 4), fn -> message() end) ++ [%{content: long}, message()]

        document =
          %{number: 2, content: "no", messages: messages} |> JSON.encode() |> as_numbers()

        document = String.replace(document, "'", "''")

        script(store, """
        insert into ash_agent_iterations (conversation_id, branch, number, document)
        select 'c', branch, max(number) + 1, '#{document}' from ash_agent_iterations group by branch
        """)
      end)

      assert differences(open!(path)) == [[], []]
    end

    test "is written where others have broken a document", %{path: path} do
      store = open!(path, search: false)
      {:ok, _} = Store.create(store, Context.new("x", id: "c"))

      broken =
        ~S({"messages": [{"content" : "celesta \u00zz \) <> ~S(u", "a": ]]}}, {"content": ["marimba)

      script(
        store,
        "insert into ash_agent_iterations select conversation_id, branch, number + 1, '#{broken}' from ash_agent_iterations"
      )

      store = open!(path)
      assert {:ok, %{behind: 0}} = Store.search(store, "x")

      assert one(
               store,
               "select count(*) from ash_agent_words where ash_agent_words match 'celesta'"
             ) == 1
    end

    test "of an older file is made anew", %{path: path} do
      File.cp!("test/corpus/version_2.db", path)
      assert differences(open!(path)) == [[], []]
    end

    defp one(store, query) do
      reference = make_ref()
      :ok = Native.run(store.ref, {:read, reference}, [query], [])
      assert {:ok, [[[value]]]} = await(reference)
      value
    end

    test "of a file of version 4 is made anew behind the saves, also where that breaks off", %{
      path: path
    } do
      File.cp!("test/corpus/version_4.db", path)
      settings = %{in_memory: false, full: true, busy_timeout: 100, max_pages: 100_000}
      {:ok, ref} = Native.open(path, settings)
      old = %{ref: ref}

      rows =
        "select conversation_id, branch, number + x * 100, document from ash_agent_iterations"

      script(old, """
      with recursive n(x) as (select 1 union all select x + 1 from n limit 500)
        insert into ash_agent_iterations (conversation_id, branch, number, document) #{rows}, n;
      insert into ash_agent_texts (conversation_id, branch, number, at) select * from ash_agent_unindexed;
      delete from ash_agent_unindexed; vacuum; pragma wal_checkpoint(truncate)
      """)

      count = one(old, "select count(*) from ash_agent_iterations")
      assert count > 1_000

      busy = occupy(old)
      assert {:error, %Error{reason: {:locked, _}}} = SQLite.open(path, busy_timeout: 20)
      assert {:ok, _} = await(busy)

      full = [max_bytes: File.stat!(path).size]
      assert {:error, %Error{reason: {:disk_full, _}}} = SQLite.open(path, full)
      assert one(old, "pragma user_version") == 4
      assert one(old, "select count(*) from ash_agent_texts") == count

      # The VM is killed before the index is written.
      without = open!(path, search: false)
      assert unindexed(without) == count
      assert {:ok, %{results: [], behind: ^count}} = Store.search(without, "harbour")

      store = open!(path)
      assert differences(store) == [[], []]
      assert {:ok, %{results: [_ | _], behind: 0}} = Store.search(store, "harbour")
    end

    test "has no argument twice, and those of all names", %{path: path} do
      store = open!(path)
      arguments = ~s({"arguments_json": "Marimba", "list": [{"arguments_json": "Celesta"}]})

      for {id, arguments} <- [{"map", arguments}, {"text", "Glockenspiel"}] do
        call = %{id: "a", name: "play", arguments: arguments}
        context = Context.add_assistant_message(Context.new("x", id: id), nil, [call])
        {:ok, _} = Store.create(store, context)
      end

      for {word, id} <- [{"marimba", "map"}, {"celesta", "map"}, {"glockenspiel", "text"}],
          do: assert({:ok, %{results: [%{id: ^id}]}} = Store.search(store, word))

      # The name of an argument is in the text alone.
      assert one(store, "select count(*) from ash_agent_words where ash_agent_words match 'list'") ==
               0
    end

    test "is written behind the saves, also after a crash, and a search says how far it is", %{
      path: path
    } do
      # Nobody writes the index here, as where the VM was killed before.
      without = open!(path, search: false)
      {:ok, kept} = Store.create(without, say(Context.new("Xylograph", id: "c"), "two"))
      assert {:ok, %{results: [], behind: 1}} = Store.search(without, "xylograph")
      {:ok, _} = Store.append(without, kept, say(kept.value, "three"))
      assert unindexed(without) == 2

      store = open!(path)
      assert Wait.until(fn -> unindexed(without) == 0 end)
      assert {:ok, %{results: [%{id: "c"}], behind: 0}} = Store.search(without, "xylograph")

      {:ok, _} = Store.create(store, Context.new("Marimba", id: "d"))
      assert unindexed(store) == 1
      assert Wait.until(fn -> unindexed(store) == 0 end)
      {:ok, _} = Store.create(store, Context.new("Celesta", id: "e"))
      assert {:ok, %{results: [%{id: "e"}], behind: 0}} = Store.search(store, "celesta")
      assert differences(store) == [[], []]
    end

    test "has few rows, and finds the iterations that have the words themselves", %{path: path} do
      store = open!(path)
      said = Enum.map(1..200, &"turn #{&1}")
      words = said |> List.replace_at(70, "Xylograph") |> List.replace_at(80, "Marimba Xylograph")
      {:ok, kept} = Store.create(store, Enum.reduce(words, Context.new("x"), &say(&2, &1)))
      find = fn query -> Store.search(store, query, limit: 2) |> elem(1) |> Map.get(:results) end

      assert [%{iteration: marimba}, %{iteration: xylograph}] = find.("xylograph")
      assert [%{iteration: ^marimba}] = find.("xylograph marimba")
      assert [] = find.("marimba 99")
      assert one(store, "select count(*) from ash_agent_texts") < 8

      # Most of a group are not read for a word that they have not.
      of = fn word ->
        read = "sum(json_array_length(places_of(filters, '\"#{word}\"')))"
        one(store, "select #{read} from ash_agent_texts")
      end

      assert of.("xylograph") in 2..60
      assert of.("turn") >= 198

      # One of a group is written again, and then others of it go.
      script(store, """
      update ash_agent_iterations set document = replace(document, 'Marimba', 'Celesta') where number = #{marimba}
      """)

      assert unindexed(store) > 5
      assert [] = find.("marimba")
      assert [%{iteration: ^marimba}] = find.("xylograph celesta")
      {:ok, _} = Store.append(store, kept, Context.rewind(kept.value, to: xylograph))
      assert [%{iteration: ^xylograph}] = find.("xylograph")
      assert differences(store) == [[], []]
    end

    test "is not written while one save follows another", %{path: path} do
      # Longer than the index waits for more. The machine may make a pause of its own.
      unwritten? = fn ->
        store = open!(path <> "#{System.unique_integer([:positive])}")

        for n <- 1..12 do
          {:ok, _} = Store.create(store, Context.new("#{n}"))
          Process.sleep(30)
        end

        unindexed(store) == 12
      end

      assert Wait.until(unwritten?, 50_000)
    end

    test "has no copy of the texts", %{path: path} do
      store = open!(path)
      {:ok, _} = Store.create(store, say(Context.new("x"), "Xylograph and xylophone"))
      checkpoint(store)
      assert length(String.split(File.read!(path), "Xylograph and")) == 2
    end
  end

  @tag timeout: 120_000
  test "a VM that is killed leaves a conversation that is what it had written", %{path: path} do
    {:ok, kept} = Store.create(open!(path), Context.new("0", id: "c"))
    assert kept.revision == 1

    for _round <- 1..4 do
      acknowledged = StoreWriter.kill_in_the_middle({SQLite, path}, path <> ".log")
      store = open!(path)
      assert {:ok, kept} = Store.fetch(store, "c")
      assert :ok = StoreWriter.check(kept.value, acknowledged)
      assert {:ok, _} = Store.append(store, kept, kept.value)
    end
  end

  test "a store without the feature says what to add" do
    message = Exception.message(%Error{reason: {:feature_missing, "sqlite"}})
    assert message =~ "config :ash_agent_runtime, features: [:sqlite]"
  end

  test "a store can be used by all processes, and shows nothing" do
    store = open!(":memory:")
    assert inspect(store) == "#AshAgent.Store.SQLite<>"
    {:ok, kept} = Store.create(store, Context.new("secret", id: "c", metadata: %{a: "secret"}))
    refute inspect(kept) =~ "secret"

    assert {:ok, _} = Task.await(Task.async(fn -> Store.fetch(store, "c") end))
    assert {:crashed, _} = OtherVM.run(Store, :fetch, [store, "c"])
  end
end
