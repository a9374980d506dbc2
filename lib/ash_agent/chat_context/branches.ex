defmodule AshAgent.ChatContext.Branches do
  @moduledoc false
  # Finds a chat's branches by their names and keeps the names apart. Every function raises for a handle of another node.

  alias AshAgent.ChatContext.Branch
  alias AshAgent.Context.{Error, Handle}
  alias AshAgent.Context.Options.Kinds
  alias AshAgent.Options, as: Check

  def active(%{branches: branches, active_branch_name: name}) do
    branch = Map.fetch!(branches, name)
    Handle.check!(branch.context)
    branch
  end

  # A handle of another node reaches no function of AshAgent.Context here, so it is looked for.
  def all(chat) do
    active(chat)
    chat.branches
  end

  def list(chat), do: chat |> all() |> Map.values() |> Enum.sort_by(& &1.number)

  # Without a name, the active branch.
  def find!(chat, nil), do: active(chat)

  def find!(chat, name) do
    with :error <- Map.fetch(all(chat), name) do
      raise Error, reason: {:unknown_branch, name, Enum.map(list(chat), & &1.name)}
    else
      {:ok, branch} -> branch
    end
  end

  def put(chat, %Branch{name: name} = branch),
    do: %{chat | branches: Map.put(chat.branches, name, branch)}

  def refuse_known!(chat, name) do
    if is_map_key(all(chat), name), do: raise(Error, reason: {:branch_exists, name})
  end

  def check_name!(name) do
    if Kinds.name?(name) do
      name
    else
      AshAgent.Caller.refuse!(
        "expected a branch's name to be a non-empty UTF-8 string, got: #{Check.kind(name)}"
      )
    end
  end
end
