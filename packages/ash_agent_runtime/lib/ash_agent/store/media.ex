defmodule AshAgent.Store.Media do
  @moduledoc false

  # Images and files of stored conversations on their way into the table of blobs or elsewhere, and back.

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.Store.{Blobs, Changes}

  @doc "Keeps what is new, and returns `{:ok, fields}` for the write that refers to it, or an error."
  def put(store, blobs) do
    with {:ok, stored} <- store |> Map.get(:blobs) |> Blobs.store(blobs) do
      items =
        for {id, place, data} <- stored,
            do: Changes.object(id: id, place: place, data: data)

      {:ok, if(items == [], do: [], else: [blobs: items])}
    end
  end

  @doc """
  Puts media back into rows that refer to some, which `fetch` then returns: `{:ok, rows, known}` or an error.

  That is a second round trip only where there are media.
  """
  def inline(store, rows, fetch) do
    if rows |> Enum.concat() |> Enum.any?(&Blobs.referred?/1) do
      with {:ok, blobs} <- fetch.(),
           {:ok, data} <- read(Map.get(store, :blobs), blobs),
           do: {:ok, Enum.map(rows, &put_back(&1, data)), Blobs.index(data)}
    else
      {:ok, rows, %{}}
    end
  end

  defp put_back(row, data) do
    Enum.map(row, fn column ->
      if Blobs.referred?(column),
        do: Context.Changes.put_media_back(column, data),
        else: column
    end)
  end

  defp read(where, blobs) do
    Enum.reduce_while(blobs, {:ok, %{}}, fn [id, place, data], {:ok, found} ->
      case Blobs.read(where, place, data) do
        {:ok, data} -> {:cont, {:ok, Map.put(found, id, data)}}
        error -> {:halt, error}
      end
    end)
  end

  @doc "Deletes what deleted rows had elsewhere, of which their last column says where, and returns the rows without it."
  def delete(store, {:ok, rows}) do
    places = for row <- rows, places = List.last(row), place <- JSON.decode!(places), do: place

    with :ok <- store |> Map.get(:blobs) |> Blobs.delete(places),
         do: {:ok, Enum.map(rows, &List.delete_at(&1, -1))}
  end

  def delete(_store, error), do: error
end
