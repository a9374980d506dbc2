defmodule AshAgent.ChatContext.Bases do
  @moduledoc false

  # Finds for each branch the one before it with which it shares most, so that dumped beside that one, no message is
  # dumped twice.
  #
  # Branches form a tree: a branch hangs on its base at the place where it leaves it, which is the number of an
  # iteration and a position in it, and by the message with which it goes on there. No two branches hang on one base
  # at one place by one message, so the way down is looked up and not searched. Comparing two contexts costs O(n); a
  # branch is compared with the one that it was made from, and only when it shares nothing with what is that one's own,
  # with those on the way down from the first.

  alias AshAgent.ChatContext.Branch
  alias AshAgent.Context
  alias AshAgent.Context.{Error, Native}

  defstruct roots: %{}, known: %{}, hanging: %{}

  @doc "The branches in their order, each with its base, or with `nil` when it shares nothing with any before it."
  @spec find([Branch.t()]) :: [{Branch.t(), Branch.t() | nil}]
  def find(branches) do
    {found, _tree} = Enum.map_reduce(branches, %__MODULE__{}, &place/2)
    found
  end

  defp place(branch, tree) do
    kind = kind(branch.context)

    case tree.roots do
      %{^kind => root} ->
        {base, place, next} = from_origin(branch, tree) || descend(branch, root, tree)
        {{branch, base}, tree |> hang(branch, base, place, next) |> know(branch, place)}

      _ ->
        tree = %{tree | roots: Map.put(tree.roots, kind, branch)}
        {{branch, nil}, know(tree, branch, {0, 0})}
    end
  end

  # Contexts of two kinds share nothing.
  defp kind(context), do: {context[:id], Native.context_first_iteration(context.ref)}

  defp from_origin(branch, tree) do
    with {origin, hangs_at} <- Map.get(tree.known, branch.origin),
         {place, next} when place > hangs_at <- leave(branch.context, origin.context) do
      descend(branch, origin, place, next, tree)
    else
      _ -> nil
    end
  end

  defp descend(branch, base, tree) do
    {place, next} = leave(branch.context, base.context)
    descend(branch, base, place, next, tree)
  end

  defp descend(branch, base, place, next, tree) do
    case Map.get(tree.hanging, {base.number, place, next}) do
      nil -> {base, place, next}
      closer -> descend(branch, closer, tree)
    end
  end

  # What has nothing of its own is no better a base than its base.
  defp hang(tree, _branch, _base, _place, nil), do: tree

  defp hang(tree, branch, base, place, next),
    do: %{tree | hanging: Map.put(tree.hanging, {base.number, place, next}, branch)}

  defp know(tree, branch, place),
    do: %{tree | known: Map.put(tree.known, branch.number, {branch, place})}

  # Where a context leaves another one, and by what: `nil` when it ends there.
  defp leave(context, other) do
    number = last_common(context, other) + 1

    case Context.get_iteration(context, number) do
      nil ->
        {{number, 0}, nil}

      iteration ->
        own = messages(iteration.messages)
        position = common(own, messages(Context.get_iteration_messages(other, number)), 0)
        last? = number == context.current_iteration
        {{number, position}, next(Enum.at(own, position), iteration, last?)}
    end
  end

  defp last_common(context, other) do
    case Native.context_last_common(context.ref, other.ref) do
      {:ok, nil} -> Native.context_first_iteration(context.ref) - 1
      {:ok, number} -> number
      {:error, reason} -> raise Error, reason: reason
    end
  end

  # The system prompt shows as the first message of the first iteration, and is none.
  defp messages(messages), do: Enum.reject(messages, &(&1.role == :system))

  defp common([message | own], [message | other], count), do: common(own, other, count + 1)
  defp common(_own, _other, count), do: count

  # Two branches with one hash are compared, so that a collision does no harm.
  defp next(nil, _iteration, true), do: nil
  defp next(nil, iteration, false), do: :erlang.phash2(Map.delete(iteration, :messages))
  defp next(message, _iteration, _last?), do: :erlang.phash2(message)
end
