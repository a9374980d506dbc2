defmodule AshAgent.Store.Media do
  @moduledoc false

  # Images and files of stored conversations on their way into the table of blobs or elsewhere, and back.

  require Logger

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.Store.{Blobs, Changes, Error}

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
  Puts media back into the last column of rows, their iterations, that refer to some, which `fetch` then returns: `{:ok, rows, known}`
  or an error.

  That is a second round trip only where there are media.
  """
  def inline(store, rows, fetch) do
    if Enum.any?(rows, &(&1 |> List.last() |> Blobs.referred?())) do
      with {:ok, blobs} <- fetch.(),
           {:ok, data} <- read(Map.get(store, :blobs), blobs),
           {:ok, rows} <- put_back(rows, data),
           do: {:ok, rows, Blobs.index(data)}
    else
      {:ok, rows, %{}}
    end
  end

  defp put_back(rows, data) do
    put_back = &if(Blobs.referred?(&1), do: Context.Changes.put_media_back(&1, data), else: &1)
    {:ok, Enum.map(rows, &List.update_at(&1, -1, put_back))}
  rescue
    _error in [Context.Error] -> {:error, %Error{reason: {:corrupt, "a medium is missing"}}}
  end

  defp read(where, blobs) do
    Enum.reduce_while(blobs, {:ok, %{}}, fn [id, place, data], {:ok, found} ->
      with {:ok, data} <- Blobs.read(where, place, data),
           :ok <- check_digest(id, data) do
        {:cont, {:ok, Map.put(found, id, data)}}
      else
        error -> {:halt, error}
      end
    end)
  end

  defp check_digest(id, data) do
    with {:ok, bytes} <- Base.decode64(data),
         true <- id == "sha256:" <> Base.encode16(:crypto.hash(:sha256, bytes), case: :lower),
         do: :ok,
         else: (_other -> {:error, %Error{reason: {:corrupt, "a medium has changed"}}})
  end

  @doc "Deletes what deleted rows had elsewhere, of which their last column says where, and returns the rows without it."
  def delete(store, {:ok, rows}) do
    places = for row <- rows, places = List.last(row), place <- JSON.decode!(places), do: place

    with :ok <- store |> Map.get(:blobs) |> Blobs.delete(places),
         do: {:ok, Enum.map(rows, &List.delete_at(&1, -1))}
  end

  def delete(_store, error), do: error

  @doc "Deletes what a written conversation no longer has. What cannot be deleted is left where it is."
  def delete_lost(store, id, places) do
    with {:error, error} <- store |> Map.get(:blobs) |> Blobs.delete(places) do
      Logger.error(
        "media that the conversation #{inspect(id)} no longer has were not deleted: " <>
          Exception.message(error)
      )
    end
  end
end
