defmodule AshAgent.Store.Words do
  @moduledoc false

  # Cuts texts and queries into words, for both databases: as FTS5's `unicode61` does in SQLite. PostgreSQL's own parser keeps
  # addresses, paths and dates whole, leaves out tags, and takes letters from the database's locale.

  # The code points between words: all that are neither letters nor digits in Unicode 6.1, FTS5's version. Those that are not in it
  # count as letters. PostgreSQL's rows were cut by this list, so another list needs another version of the tables.
  @external_resource Path.join(__DIR__, "separators.txt")
  @separators __DIR__ |> Path.join("separators.txt") |> File.read!() |> String.split()

  @most 32

  write = fn escape ->
    Enum.map_join(@separators, &(&1 |> String.split("-") |> Enum.map_join("-", escape)))
  end

  @for_postgres write.(fn
                  <<code::binary-size(5)>> -> "\\U000" <> code
                  code -> "\\u" <> String.pad_leading(code, 4, "0")
                end)

  @between write.(&"\\x{#{&1}}")
  @read Regex.compile!("[^#{@between}](?:[^#{@between}]|\\p{M})*", "u")
  @indexed Regex.compile!("[^#{@between}]+", "u")

  @doc "Returns the separators of words as a regular expression of PostgreSQL."
  def separators, do: "[#{@for_postgres}]+"

  @doc "Returns the first words of a query as a reader sees them: with their marks, which are separators in an index."
  def of_query(query),
    do: if(String.valid?(query), do: query |> scan(@read) |> take_first(), else: [])

  @doc "Returns what an index has of these."
  def in_index(words), do: words |> Enum.flat_map(&cut/1) |> take_first()

  @doc "Returns all words of a text, as an index has them."
  def cut(text), do: scan(text, @indexed)

  defp scan(text, regex), do: regex |> Regex.scan(text) |> Enum.map(&hd/1)

  defp take_first(words), do: words |> Enum.uniq() |> Enum.take(@most)
end
