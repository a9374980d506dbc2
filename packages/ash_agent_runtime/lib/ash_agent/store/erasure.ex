defmodule AshAgent.Store.Erasure do
  @moduledoc false

  # Deletes many conversations, a batch in each transaction, and returns a receipt.

  alias AshAgent.Store.{Conversation, Relational}

  # A row has the id, and these from the second on.
  @counts [:conversations, :iterations, :calls, :prompts, :writes, :blobs, :arrivals]
  @nothing Map.new([{:ids, []} | Enum.map(@counts, &{&1, 0})])

  ## Erasing

  def erase(store, opts) do
    {ids, filter} = Keyword.pop(opts, :ids)
    {own, filter} = Keyword.split(filter, [:batch, :on_batch])

    with {:ok, until} <- Relational.soon(store) do
      pages =
        if ids,
          do: ids |> Enum.chunk_every(own[:batch]) |> Stream.map(&{:ok, &1}),
          else:
            pages(store, [by: :created_at, order: :asc, limit: own[:batch]] ++ cut(filter, until))

      reduce(pages, @nothing, fn page, receipt ->
        with {:ok, ids} <- page,
             {:ok, family} <- family(store, ids, until),
             do: erase_family(store, family, own, receipt)
      end)
      |> finish()
    end
  end

  # What others create meanwhile is not looked for, so that there is an end.
  defp cut(filter, until),
    do: Keyword.update(filter, :until, until, &Enum.min([&1, until], DateTime))

  # In the order of creation, so that deleting what a page has does not move the next one.
  defp pages(store, opts) do
    Stream.unfold(nil, fn
      :done ->
        nil

      cursor ->
        opts = if cursor, do: [after: cursor] ++ opts, else: opts

        case Relational.list(store, opts) do
          {:ok, page} -> {{:ok, Enum.map(page.conversations, & &1.id)}, page.next || :done}
          {:error, error} -> {{:error, error}, :done}
        end
    end)
  end

  # Forks and children are deleted before the conversation, so that they are found again after an interruption. A parent may
  # have any name that an application gives it, so known ones are not looked up again.
  defp family(store, ids, until, found \\ [], known \\ MapSet.new()) do
    case Enum.reject(Enum.uniq(ids), &MapSet.member?(known, &1)) do
      [] ->
        {:ok, found}

      ids ->
        with {:ok, children} <- Relational.children(store, ids, until),
             do:
               family(store, children, until, ids ++ found, MapSet.union(known, MapSet.new(ids)))
    end
  end

  defp erase_family(store, family, own, receipt) do
    with {:ok, receipt} <- erase_batches(store, family, own, receipt),
         {:ok, until} <- Relational.soon(store),
         do: erase_late(store, family, until, own, receipt)
  end

  # This includes forks that were made while their origins were there.
  defp erase_late(store, ids, until, own, receipt) do
    ids
    |> Enum.chunk_every(own[:batch])
    |> reduce(receipt, fn ids, receipt ->
      with {:ok, late} <- Relational.children(store, ids, until),
           {:ok, late} <- family(store, late, until),
           {:ok, receipt} <- erase_batches(store, late, own, receipt),
           do: erase_late(store, late, until, own, receipt)
    end)
  end

  defp erase_batches(store, ids, own, receipt) do
    ids |> Enum.chunk_every(own[:batch]) |> reduce(receipt, &erase_batch(store, &1, own, &2))
  end

  defp erase_batch(store, ids, own, receipt) do
    with {:ok, rows} <- Relational.erase(store, ids), do: {:ok, note(receipt, rows, own)}
  end

  ## Pruning

  def prune(store, opts) do
    with {:ok, now} <- Relational.soon(store),
         do: prune(store, opts, DateTime.add(now, -opts[:older_than], :second), @nothing)
  end

  defp prune(store, opts, until, receipt) do
    case Relational.prune(store, opts, until, opts[:batch]) do
      {:ok, []} -> finish({:ok, receipt})
      {:ok, rows} -> prune(store, opts, until, note(receipt, rows, opts))
      {:error, error} -> {:error, error}
    end
  end

  ## The receipt

  # Its ids are those of the batches, the last one first.
  defp note(receipt, rows, own) do
    batch = Enum.reduce(rows, @nothing, &count/2)
    if own[:on_batch] && rows != [], do: own[:on_batch].(flat(%{batch | ids: [batch.ids]}))

    Map.merge(receipt, batch, fn
      :ids, ids, more -> [more | ids]
      _name, count, more -> count + more
    end)
  end

  defp count([id | counts], receipt) do
    counts = Enum.map([1 | counts], &Conversation.number/1)
    row = @counts |> Enum.zip(counts) |> Map.new()

    Map.merge(receipt, row, fn _name, sum, count -> sum + count end)
    |> Map.update!(:ids, &[id | &1])
  end

  defp finish({:ok, receipt}), do: {:ok, flat(receipt)}
  defp finish(error), do: error

  defp flat(receipt),
    do: %{receipt | ids: receipt.ids |> Enum.concat() |> Enum.reverse()}

  defp reduce(items, receipt, fun) do
    Enum.reduce_while(items, {:ok, receipt}, fn item, {:ok, receipt} ->
      case fun.(item, receipt) do
        {:ok, receipt} -> {:cont, {:ok, receipt}}
        {:error, error} -> {:halt, {:error, error}}
      end
    end)
  end
end
