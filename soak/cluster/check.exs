defmodule AshAgent.Soak.Cluster.Check do
  @moduledoc "Compares what the clients and tools noted with what is stored."

  alias AshAgent.{Context, Store}
  alias AshAgent.Soak.Cluster.Database

  def run(state, settled) do
    notes = state.options.folder |> Path.join("notes-*") |> Path.wildcard() |> Enum.map(&notes/1)
    living = for {_key, node} <- state.nodes, do: node.vm
    said = said(state)
    asked = for %{lines: lines} <- notes, ["asked", text, id] <- lines, into: %{}, do: {text, id}

    outcomes =
      for %{lines: lines} <- notes,
          [word, text | reason] <- lines,
          word in ~w(answered refused wrong unanswered),
          do: {text, word, reason}

    confirmed = for %{lines: lines} <- notes, ["confirmed", text] <- lines, do: text
    effects = for %{lines: lines} <- notes, ["effect", key] <- lines, do: key
    answered = for {text, "answered", _} <- outcomes, do: text
    # A client that was killed waits no longer.
    heard = MapSet.new(outcomes, &elem(&1, 0))

    silent =
      for %{vm: vm, lines: lines} <- notes,
          vm in living,
          ["asked", text, _] <- lines,
          text not in heard,
          do: text

    calls = Database.calls(state.db)
    done = for {key, "ok"} <- calls, do: key
    counted = Enum.frequencies(effects)

    %{
      settled: settled,
      asked: map_size(asked),
      answered: length(answered),
      confirmed: length(confirmed),
      refused:
        outcomes
        |> Enum.filter(&(elem(&1, 1) == "refused"))
        |> Enum.frequencies_by(&Enum.join(elem(&1, 2), " ")),
      effects: length(effects),
      conversations: said.conversations,
      turns: Enum.sum(Map.values(said.prompts)),
      # Each of these is to be 0.
      failures: [
        {"prompts without an answer or a reason",
         length(silent) + Enum.count(outcomes, &(elem(&1, 1) == "unanswered"))},
        {"answers to another prompt", Enum.count(outcomes, &(elem(&1, 1) == "wrong"))},
        {"answered prompts that are lost",
         Enum.count(answered, &(said.prompts[&1] == nil or said.answers[&1] == nil))},
        {"confirmed prompts that are lost", Enum.count(confirmed, &(said.prompts[&1] == nil))},
        {"prompts that were stored twice",
         Enum.count(said.prompts, fn {_text, count} -> count > 1 end)},
        {"prompts in a conversation that nobody sent",
         Enum.count(said.places, fn {text, id} -> asked[text] != id end)},
        {"answers that were stored twice",
         Enum.count(said.answers, fn {_text, count} -> count > 1 end)},
        {"effects that happened twice", Enum.count(counted, fn {_key, count} -> count > 1 end)},
        {"effects that the journal does not know",
         Enum.count(Map.keys(counted) -- Enum.map(calls, &elem(&1, 0)))},
        {"results of calls that had no effect", Enum.count(done, &(counted[&1] == nil))},
        {"calls without an outcome", Database.unfinished_calls(state.db)},
        {"writes of an owner after a later one", Database.late_writes(state.db)},
        {"conversations that cannot be loaded", said.broken}
      ]
    }
  end

  defp notes(path) do
    "notes-" <> vm = Path.basename(path)
    # The last line of a killed VM may be cut off.
    lines = path |> File.read!() |> String.split("\n")
    %{vm: vm, lines: lines |> Enum.drop(-1) |> Enum.map(&String.split/1)}
  end

  # Every prompt and answer that is stored, how often, and where.
  defp said(state) do
    empty = %{prompts: %{}, answers: %{}, places: %{}, conversations: 0, broken: 0}

    state.db
    |> Database.touched()
    |> Enum.reduce(empty, fn id, said ->
      said = %{said | conversations: said.conversations + 1}

      case Store.fetch(state.db.store, id) do
        {:ok, kept} ->
          kept.value |> Context.to_messages() |> Enum.reduce(said, &message(&1, &2, id))

        {:error, _} ->
          %{said | broken: said.broken + 1}
      end
    end)
  end

  defp message(%{role: :user, content: <<mark, _::binary>> = text}, said, id)
       when mark in ~c"!." do
    said = %{said | places: Map.put(said.places, text, id)}
    update_in(said.prompts[text], &((&1 || 0) + 1))
  end

  defp message(%{role: :assistant, content: "re: " <> text}, said, _id),
    do: update_in(said.answers[text], &((&1 || 0) + 1))

  defp message(_other, said, _id), do: said
end
