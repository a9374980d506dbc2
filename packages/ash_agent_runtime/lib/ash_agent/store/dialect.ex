defmodule AshAgent.Store.Dialect do
  @moduledoc false

  # The parts of `AshAgent.Store.SQL`'s statements in which the two databases differ, and the way both read the parameters.

  alias AshAgent.Store.Words

  ## Differences

  def now(:postgres), do: "statement_timestamp()"
  def now(:sqlite), do: "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"

  # The time after so many milliseconds.
  def later(:postgres, ms), do: "statement_timestamp() + #{int(ms)} * interval '1 millisecond'"

  def later(:sqlite, ms),
    do: "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', format('%.3f seconds', #{int(ms)} / 1000.0))"

  def iso(:postgres, column),
    do: ~s|to_char(#{column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')|

  def iso(:sqlite, column), do: column

  def time(:postgres, text), do: "cast(#{text} as timestamptz)"
  # The times of the table have milliseconds.
  def time(:sqlite, text), do: "strftime('%Y-%m-%dT%H:%M:%fZ', #{text})"

  def each(:postgres, key), do: "jsonb_array_elements(input.it -> '#{key}') as r(value)"
  def each(:sqlite, key), do: "json_each(input.it, '$.#{key}') as r"

  # The conversation's id, by which tables may be partitioned: a parameter of its own, so that PostgreSQL knows the partition
  # before it runs a statement.
  @key "cast($2 as text)"
  def key, do: @key

  # The former id of the conversation.
  def old_key, do: "cast($3 as text)"

  # The columns of lists that hold long texts.
  @long [iterations: :document, blobs: :data]

  # Each look of SQLite into the parameters reads all of them, so the long texts are one of their own, one behind the other.
  def put_texts(:postgres, fields), do: fields

  def put_texts(:sqlite, fields) do
    {fields, {texts, _at}} = Enum.map_reduce(fields, {[], 1}, &take_texts/2)
    if texts == [], do: fields, else: fields ++ [texts: IO.iodata_to_binary(texts)]
  end

  defp take_texts({name, rows}, texts) do
    case @long[name] do
      nil ->
        {{name, rows}, texts}

      column ->
        {rows, texts} = Enum.map_reduce(rows, texts, &take_text(&1, column, &2))
        {{name, rows}, texts}
    end
  end

  defp take_text(row, column, {texts, at}) do
    case Map.pop(row, column) do
      {nil, row} ->
        {row, {texts, at}}

      {text, row} ->
        text = if is_binary(text), do: text, else: text.text
        size = byte_size(text)
        {Map.merge(row, %{at: at, size: size}), {[texts | text], at + size}}
    end
  end

  def long_document(:postgres), do: "r.value -> 'document'"
  def long_document(:sqlite), do: long_text(:sqlite, "document")

  def long_text(:postgres, key), do: of(key)

  # Of bytes, since characters have to be counted from the beginning.
  def long_text(:sqlite, _key), do: "text_at(#{number_of("at")}, #{number_of("size")})"

  def input(:postgres),
    do: "input as materialized (select cast(cast($1 as text) as jsonb) as it)"

  def input(:sqlite), do: "input as (select cast($1 as text) as it)"

  # Databases follow an index from the beginning of a page only for values that are of no table of the query.
  def fix_input(query) do
    query
    |> String.replace("from input, {", "from {")
    |> String.replace("input.it", "(select it from input)")
  end

  # Rows of one table of a query, for the statement alone. SQLite has one writer.
  def lock_rows(:postgres, row, how), do: "for update of #{row} #{how}"
  def lock_rows(:sqlite, _row, _how), do: ""

  def contains(:postgres), do: "c.metadata @> (input.it -> 'metadata')"

  def contains(:sqlite) do
    """
    not exists (select 1 from json_each(input.it, '$.metadata') as w where not exists (
      select 1 from json_each(c.metadata) as m where m.key = w.key and m.type = w.type and m.value is w.value))
    """
  end

  # Strings of messages, with some that are not shown: a search checks its results. PostgreSQL has a limit for words of a row, and the
  # library the same, so that both find the same.
  @longest_text 100_000

  # PostgreSQL refuses words of more than 2,046 bytes. The beginning of a longer one finds it.
  @longest_word 500

  # Kept here, so that other separators are another version of the statements.
  @separators Words.separators()

  # Returns the words by which an iteration is found.
  def words(:postgres, document) do
    paths = ~w"content.** tool_calls[*].name tool_calls[*].arguments.** tool_calls[*].result.**"

    found =
      for path <- paths,
          do: "select jsonb_path_query(#{document}, '$.messages[*].#{path}') as word"

    text = """
    left((select string_agg(w.word #>> '{}', ' ')
      from (#{Enum.join(found, " union all ")}) as w where jsonb_typeof(w.word) = 'string'), #{@longest_text})
    """

    """
    (select coalesce(array_to_tsvector(array_agg(lower(left(cut.word, #{@longest_word})))), '')
      from unnest(regexp_split_to_array(#{text}, $$#{@separators}$$)) as cut(word) where cut.word <> '')
    """
  end

  # SQLite's index has them of the documents themselves, by a function of the library.
  def words(:sqlite, _document), do: "''"

  # SQLite's triggers note which rows wait for the index.
  def index_texts(:sqlite, _key, _rows), do: []

  def index_texts(:postgres, key, rows) do
    [
      """
      insert into {texts} (conversation_id, branch, number, at, words)
      select #{key}, #{now(:postgres)}, #{words(:postgres, "(r.value -> 'document')")} #{rows}
      on conflict (conversation_id, branch, number) do update set at = excluded.at, words = excluded.words
      """
    ]
  end

  # The rows `t` of the index, the condition on them, and the one on the iterations `i` that each has.
  def match_words(:postgres) do
    match = "t.words @@ cast(lower(#{field("query")}) as tsquery)"
    {"{texts} as t", match, "i.number = t.number"}
  end

  def match_words(:sqlite) do
    places = "select t.first + value from json_each(places_of(t.filters, #{field("query")}))"
    own = "i.number in (#{places}) and may_have(i.document, #{field("query")})"
    from = "{words} as w join {texts} as t on t.id = w.rowid"
    {from, "w.{words} match #{field("query")}", own}
  end

  # The right side of these conditions: a query that has all words.
  def write_query(:postgres, words) do
    Enum.map_join(words, " & ", fn word ->
      "(" <> (word |> forms() |> Enum.map_join(" | ", &"'#{&1}'")) <> ")"
    end)
  end

  # FTS5's operators are words as others in quotes.
  def write_query(:sqlite, words), do: Enum.map_join(words, " ", &~s("#{&1}"))

  # PostgreSQL knows the case of letters beyond ASCII only where the database's locale has them.
  defp forms(word) do
    for form <- [word, String.downcase(word), String.capitalize(word), String.upcase(word)],
        uniq: true,
        do: form |> String.codepoints() |> Enum.take(@longest_word) |> Enum.join()
  end

  def array(:postgres, value), do: "cast(json_agg(#{value}) as text)"
  def array(:sqlite, value), do: "json_group_array(json(#{value}))"

  def place_of(:postgres), do: "b.place"
  def place_of(:sqlite), do: "json_quote(b.place)"

  def part(:postgres, column, path),
    do: "#{column} -> '#{Enum.join(path, "' -> '")}'"

  def part(:sqlite, column, path), do: "#{column} -> '$.#{Enum.join(path, ".")}'"

  ## Common parts

  def int(text), do: "cast(#{text} as bigint)"
  def field(key), do: "(input.it ->> '#{key}')"
  def number(key), do: int("input.it ->> '#{key}'")
  def of(key), do: "(r.value ->> '#{key}')"
  def number_of(key), do: int("r.value ->> '#{key}'")

  # A list of texts that names no row of the statement around it, so that databases make it once.
  def among(:postgres, column, list) do
    texts =
      "select r.value from input, jsonb_array_elements_text(input.it -> '#{list}') as r(value)"

    "#{column} = any (array(#{texts}))"
  end

  def among(:sqlite, column, list),
    do: "#{column} in (select r.value from input, json_each(input.it, '$.#{list}') as r)"

  # Returns true if a row is in a list that may be long. PostgreSQL compares with an array one by one, and makes a join of
  # everything that is not in `is true`, in an order that takes quadratic time where it knows nothing of the tables; this one
  # is a table of hashes.
  def among_many(:postgres, column, list) do
    "(#{column} in (select r.value from input, jsonb_array_elements_text(input.it -> '#{list}') as r(value))) is true"
  end

  def among_many(:sqlite, column, list), do: among(:sqlite, column, list)

  # The rows of a table that have one of many keys: each is looked up, since there may be many more rows than keys.
  def with_keys(:postgres, table, column, list) do
    keys =
      "select distinct r.value from input, jsonb_array_elements_text(input.it -> '#{list}') as r(value)"

    rows =
      "select * from {#{table}} where conversation_id = #{@key} and #{column} = w.value offset 0"

    {"(#{keys}) as w cross join lateral (#{rows})", "true"}
  end

  def with_keys(:sqlite, table, column, list),
    do: {"{#{table}}", among(:sqlite, "j.#{column}", list)}

  # The rows that another query chooses: the tables to read from, and the condition on them. SQLite would look at all rows for
  # those of a join, and PostgreSQL locks the rows of one once.
  def choose(:postgres, column, query), do: {", (#{query}) as d", "#{column} = d.chosen"}
  def choose(:sqlite, column, query), do: {"", "#{column} in (#{query})"}

  # Times of FTS5's `secure-delete` grow with the rows that have a word: beyond so many at once, the index is written anew instead.
  @many_texts 200

  def cut_texts(:postgres, deletion, _texts), do: [deletion]

  def cut_texts(:sqlite, deletion, texts) do
    off = "(select v from {words_config} where k = 'secure-delete') = 0"

    [
      """
      insert into {words} ({words}, rank) select 'secure-delete', 0
      where (select sum(number - first + 1) from {texts} where #{texts}) > #{@many_texts}
      """,
      deletion,
      "insert into {words} ({words}) select 'optimize' where #{off}",
      "insert into {words} ({words}, rank) select 'secure-delete', 1 where #{off}"
    ]
  end
end
