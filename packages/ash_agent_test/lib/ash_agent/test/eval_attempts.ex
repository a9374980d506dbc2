defmodule AshAgent.Test.EvalAttempts do
  @moduledoc false

  # The place of an evaluation's attempts while it runs, so that it goes on after an interruption: a file of lines, or a
  # store, each with its conversation: `{:file, path}`, `{:store, store, name}` with the name of the evaluation, or `nil`.

  alias AshAgent.{Context, Store}
  alias AshAgent.Context.JSON

  # The entries of a stored conversation's metadata.
  @name "ash_agent_eval"
  @line "ash_agent_eval_attempt"

  @doc "Returns the attempts that are kept, of cases that are still the same."
  def read(nil, _hashes), do: {:ok, []}

  def read({:file, path}, hashes) do
    case File.read(path) do
      {:ok, text} -> {:ok, text |> String.split("\n") |> decode(hashes)}
      {:error, :enoent} -> {:ok, []}
      {:error, reason} -> {:error, %File.Error{reason: reason, action: "read file", path: path}}
    end
  end

  def read({:store, store, name}, hashes) do
    with {:ok, all} <- list(store, name),
         do: {:ok, decode(for(%{metadata: %{@line => line}} <- all, do: line), hashes)}
  end

  @doc "Keeps an attempt with the hash of its case, and in a store its conversation."
  def keep(nil, _attempt, _hash, _context), do: :ok

  def keep({:file, path}, attempt, hash, _context) do
    with {:error, reason} <- File.write(path, [encode(attempt, hash), "\n"], [:append]),
         do: {:error, %File.Error{reason: reason, action: "write to file", path: path}}
  end

  def keep({:store, store, name}, attempt, hash, context) do
    id = Enum.join([@name, name, attempt.case, hash, attempt.repetition], "/")
    # The attempt is made again, and has its place then.
    id = if attempt[:outage], do: id <> "/#{System.os_time()}", else: id
    # Ids of stores have a longest length, and cases may be called anything.
    id = "#{@name}/" <> (:crypto.hash(:sha256, id) |> Base.url_encode64(padding: false))
    kept = (context && Context.fork(context, id: id)) || Context.new(attempt.case, id: id)

    kept =
      kept
      |> Context.put_metadata(@name, name)
      |> Context.put_metadata(@line, encode(attempt, hash))

    case Store.create(store, kept) do
      {:ok, _kept} -> :ok
      # Somebody else runs the same evaluation, or this one ran twice.
      {:error, :exists} -> :ok
      {:error, error} -> {:error, error}
    end
  end

  @doc "Forgets the attempts."
  def clear(nil), do: :ok

  def clear({:file, path}) do
    File.rm(path)
    :ok
  end

  def clear({:store, store, name}) do
    with {:ok, all} <- list(store, name) do
      Enum.reduce_while(all, :ok, fn %{id: id}, :ok ->
        case Store.delete(store, id) do
          {:error, error} when error != :not_found -> {:halt, {:error, error}}
          _gone -> {:cont, :ok}
        end
      end)
    end
  end

  defp list(store, name), do: list(store, name, [], [])

  defp list(store, name, page, found) do
    with {:ok, %{conversations: conversations, next: next}} <-
           Store.list(store, [metadata: %{@name => name}] ++ page) do
      found = found ++ conversations
      if next, do: list(store, name, [after: next], found), else: {:ok, found}
    end
  end

  defp encode(attempt, hash), do: JSON.encode(Map.put(attempt, :hash, hash))

  # The last line may have been cut.
  defp decode(lines, hashes) do
    for line <- lines,
        {:ok, %{"case" => id, "hash" => hash, "repetition" => repetition} = read} <- [
          JSON.decode(line)
        ],
        hashes[id] == hash do
      for name <- [:score, :passed, :words, :tokens, :cost, :ms],
          into: %{case: id, repetition: repetition, outage: read["outage"] == true},
          do: {name, read[to_string(name)]}
    end
  end
end
