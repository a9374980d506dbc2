defmodule AshAgent.Store.Rows do
  @moduledoc false

  # Makes a conversation of the rows of `AshAgent.Store.SQL.fetch/1`: the core joins them to a snapshot, which is then loaded.

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.Changes
  alias AshAgent.Store.Conversation

  # The column where those of a branch begin, in what `AshAgent.Store.SQL.fetch/1` returns.
  @branch 11

  @doc "The conversation of a row with its value: `{:ok, kept}` or an error."
  def load(%{kind: :context} = kept, rows) do
    {text, [branch]} = snapshot(:context, rows)

    with {:ok, context} <- Context.load(text) do
      line = %{
        number: 1,
        row: branch.row,
        origin: nil,
        base: nil,
        since: nil,
        context: context,
        name: nil
      }

      {:ok, %{kept | value: context, lines: [line]}}
    end
  end

  def load(%{kind: :chat} = kept, rows) do
    {text, branches} = snapshot(:chat, rows)

    with {:ok, chat} <- ChatContext.from_snapshot(text) do
      lines =
        for {stored, branch} <- Enum.zip(branches, ChatContext.branches(chat)) do
          facts = %{
            number: branch.number,
            origin: branch.origin,
            context: branch.context,
            name: {branch.name, branch.extra}
          }

          Map.merge(stored, facts)
        end

      {:ok, %{kept | value: chat, lines: lines}}
    end
  end

  @doc "The document of rows, and the rows of its branches."
  def snapshot(:context, [_row] = rows), do: join(nil, rows)
  def snapshot(:chat, [row | _] = rows), do: join(Enum.at(row, @branch), rows)

  defp join(chat, rows) do
    branches =
      for row <- rows do
        [_document, _active, row, base, since | texts] = Enum.drop(row, @branch)
        List.to_tuple(Enum.map([row, base, since], &Conversation.number/1) ++ texts)
      end

    stored =
      for branch <- branches,
          do: %{row: elem(branch, 0), base: elem(branch, 1), since: elem(branch, 2)}

    {Changes.join(chat, branches), stored}
  end
end
