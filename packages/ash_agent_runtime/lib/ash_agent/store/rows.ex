defmodule AshAgent.Store.Rows do
  @moduledoc false

  # Makes a conversation of the rows of `AshAgent.Store.SQL.fetch/1`: the core joins them to a snapshot, which is then loaded.

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Store.{Changes, Conversation}

  # The column where those of a branch begin, in what `AshAgent.Store.SQL.fetch/1` returns.
  @branch 11

  @doc "The conversation of a row with its value: `{:ok, kept}` or an error."
  def load(%{kind: :context} = kept, rows) do
    {text, [branch]} = snapshot(:context, rows)

    with {:ok, context} <- Context.load(text) do
      [line] = Changes.lines(context)
      line = Map.merge(line, %{row: branch.row, base: nil, since: nil})
      {:ok, %{kept | value: context, lines: [line]}}
    end
  end

  def load(%{kind: :chat} = kept, rows) do
    {text, branches} = snapshot(:chat, rows)

    with {:ok, chat} <- ChatContext.from_snapshot(text) do
      {:ok,
       %{kept | value: chat, lines: Enum.zip_with(branches, Changes.lines(chat), &Map.merge/2)}}
    end
  end

  @doc "The document of rows, and the rows of its branches."
  def snapshot(:context, [_row] = rows), do: join(nil, rows)
  def snapshot(:chat, [row | _] = rows), do: join(Enum.at(row, @branch), rows)

  defp join(chat, rows) do
    {branches, stored} =
      Enum.unzip(
        for row <- rows do
          [_document, _active, row, base, since | texts] = Enum.drop(row, @branch)
          [row, base, since] = place = Enum.map([row, base, since], &Conversation.number/1)
          {List.to_tuple(place ++ texts), %{row: row, base: base, since: since}}
        end
      )

    {Context.Changes.join(chat, branches), stored}
  end
end
