defmodule AshAgent.ChatContext.Stored do
  @moduledoc false

  # Hands chats to the core, which stores them, and takes their fields from it. `Config` checks their settings.

  alias AshAgent.Context
  alias AshAgent.ChatContext.{Branch, Config}
  alias AshAgent.Context.{Error, Native, Reply, Trust}

  @doc "The document of a chat, whose branches come in their order."
  def dump(chat, branches), do: write(chat, branches, &Native.chat_dump/1)

  @doc "The text of the document."
  def to_snapshot(chat, branches), do: write(chat, branches, &Native.chat_encode/1)

  @doc "The document without its branches."
  def head(chat), do: chat |> dump([]) |> Map.delete("branches")

  @doc "The document of a branch without its context, which was made at this time."
  def branch_head(name, extra, at) do
    empty = Context.new("", id: "-", at: at)
    terms = {name, 1, nil, extra, empty.ref}
    %{"branches" => [head]} = Reply.ok!(Native.chat_dump({%{}, %{}, %{}, [terms]}))
    Map.delete(head, "context")
  end

  defp write(chat, branches, native) do
    fields = %{
      "id" => chat.id,
      "parent_id" => chat.parent_id,
      "config" => Config.to_terms(chat.config),
      "active_branch" => chat.active_branch_name
    }

    terms = for of <- branches, do: {of.name, of.number, of.origin, of.extra, of.context.ref}
    {fields, chat.extra, chat.config.extra, terms} |> native.() |> Reply.ok!()
  end

  @doc "The fields of a chat. `opts` are those of `AshAgent.Context.load/2`."
  def load(document, opts) do
    with {:ok, {head, extra, config_extra, found}} <-
           Native.chat_load(document, Config.keys(), Trust.check!(opts)),
         {:ok, config} <- Config.from_terms(head["config"] || %{}, config_extra) do
      {:ok,
       %{
         id: head["id"],
         parent_id: head["parent_id"],
         config: config,
         branches: branches(found),
         active_branch_name: head["active_branch"],
         made: length(found),
         extra: extra
       }}
    else
      {:error, path, expected} ->
        {:error, %Error{reason: {:invalid, ["config" | path], expected}}}

      # Reported like any other wrong value of this field.
      {:error, {:unsupported_term, :improper_list, ["branches"]}} ->
        {:error, %Error{reason: {:invalid, ["branches"], "a list of at least one branch"}}}

      {:error, reason} ->
        {:error, %Error{reason: reason}}
    end
  end

  defp branches(found) do
    for {{name, base, handle, extra}, number} <- Enum.with_index(found, 1), into: %{} do
      fields = [number: number, origin: base && base + 1, extra: extra]
      {name, Branch.new(name, context(handle), fields)}
    end
  end

  @doc "A context of these iterations of another one, numbered from 1; `nil` for a new id, and for now."
  def seed(%Context{ref: ref}, first..last//1 = _range, id, at),
    do: ref |> Native.chat_seed(first, last, id, at) |> Reply.ok!() |> context()

  defp context(handle), do: Reply.put!({:ok, handle})
end
