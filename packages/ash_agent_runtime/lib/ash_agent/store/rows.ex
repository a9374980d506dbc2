defmodule AshAgent.Store.Rows do
  @moduledoc false

  # Makes a conversation of the rows of `AshAgent.Store.SQL.fetch/1`: texts are joined to a snapshot, which is then loaded.

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.JSON
  alias AshAgent.Store.Conversation

  # The column where those of a branch begin, in what `AshAgent.Store.SQL.fetch/1` returns.
  @branch 11

  @doc "The conversation of a row with its value: `{:ok, kept}` or an error."
  def load(%{kind: :context} = kept, rows) do
    {text, [branch]} = snapshot(:context, rows)

    with {:ok, context} <- Context.from_snapshot(text) do
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

          stored |> Map.take([:row, :base, :since]) |> Map.merge(facts)
        end

      {:ok, %{kept | value: chat, lines: lines}}
    end
  end

  @doc "The document of rows, and its branches."
  def snapshot(:context, [_row] = rows) do
    [branch] = Enum.map(rows, &read_branch/1)
    {branch.context, [branch]}
  end

  def snapshot(:chat, rows) do
    branches = Enum.map(rows, &read_branch/1)
    names = Map.new(branches, &{&1.row, &1.name})
    head = rows |> hd() |> Enum.at(@branch)
    list = branches |> Enum.map(&branch(&1, names)) |> Enum.intersperse(?,)
    {join_fields(head, [~s("branches":[), list, ?]]), branches}
  end

  defp read_branch(row) do
    [_document, _active, row, base, since, updated_at, label, head, iterations] =
      Enum.drop(row, @branch)

    [row, base, since] = Enum.map([row, base, since], &Conversation.number/1)

    %{
      row: row,
      base: base,
      since: since,
      label: label,
      name: label && JSON.encode(JSON.decode!(label)["name"]),
      context: document(head, updated_at, since, iterations)
    }
  end

  defp branch(branch, names) do
    base = if branch.base, do: [~s("base":), names[branch.base], ?,], else: []
    join_fields(branch.label, [base, ~s("context":), branch.context])
  end

  defp document(head, updated_at, since, iterations) do
    since = if since, do: [~s("since":), Integer.to_string(since), ?,], else: []

    join_fields(head, [
      since,
      ~s("updated_at":"),
      updated_at,
      ~s(","iterations":[),
      iterations || "",
      ?]
    ])
  end

  # An object's text with more fields; it is never empty.
  defp join_fields(object, fields),
    do: IO.iodata_to_binary([binary_part(object, 0, byte_size(object) - 1), ?,, fields, ?}])
end
