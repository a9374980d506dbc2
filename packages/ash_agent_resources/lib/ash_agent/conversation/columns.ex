defmodule AshAgent.Conversation.Columns do
  @moduledoc false

  # Reads what `store :column` of earlier releases kept in a record and puts it into a store: the context of `kept`, and of
  # `kept_state` the status, the writes, the journal and the messages. All steps can be taken twice, so that a move that broke
  # off is taken up again.

  alias AshAgent.{Context, Store}
  alias AshAgent.Context.JSON
  alias AshAgent.Store.Conversation

  @doc "Moves the conversations of `{id, key, context, kept_state}`, and returns how many."
  def move!(store, rows) do
    rows = for {id, key, context, text} <- rows, do: {id, key, context, JSON.decode!(text)}

    # The store sets its own times, and its lists stay in order.
    moved =
      for {id, key, context, state} <- Enum.sort_by(rows, fn {_, _, _, s} -> s["updated_at"] end),
          Store.fetch(store, key) == {:error, :not_found} do
        put!(store, id, context, state)
        {id, key, state}
      end

    # Forks find their origin under its key, whichever of them is older.
    for {id, key, state} <- moved, do: give_key!(store, id, key, state)
    length(moved)
  end

  defp put!(store, id, context, state) do
    if owned?(state),
      do:
        raise(
          "a turn of the conversation #{inspect(id)} is running: stop what runs it, and try again"
        )

    [first | _] = notes = for write <- state["history"], do: decode_terms(write["note"])
    kept = create!(store, context, note: first)
    for prompt <- state["prompts"], do: enqueue!(store, id, prompt)
    calls = for call <- state["calls"], do: decode_call(call)
    {:ok, kept, _started} = Store.start(store, kept, calls)

    opts = [
      status: Conversation.word(state["status"], Conversation.statuses()),
      finished: for(%{state: ended} = call <- calls, ended != :started, do: call),
      taken: for(%{"document" => nil, "id" => prompt} <- state["prompts"], do: prompt)
    ]

    notes
    |> Enum.drop(kept.revision)
    |> Enum.reduce(kept, fn note, kept ->
      {:ok, kept} = Store.append(store, kept, kept.value, [note: note] ++ opts)
      kept
    end)
  end

  defp create!(store, context, opts) do
    with {:error, :exists} <- Store.create(store, context, opts),
         {:ok, kept} <- Store.fetch(store, context[:id]) do
      if Context.equal?(kept.value, context),
        do: kept,
        else: raise("the store has another conversation with the id #{inspect(context[:id])}")
    else
      {:ok, kept} -> kept
      {:error, error} -> raise error
    end
  end

  # One that was taken is remembered, so that it is not taken again.
  defp enqueue!(store, id, %{"document" => nil} = prompt),
    do: {:ok, _id} = Store.enqueue(store, id, "-", id: prompt["id"])

  defp enqueue!(store, id, prompt) do
    message = Context.from_snapshot!(prompt["document"])
    [%{content: content}] = Context.get_iteration_messages(message, 1)
    kind = Conversation.word(prompt["kind"], [:prompt, :steer])
    opts = [id: prompt["id"], kind: kind, metadata: Context.metadata(message)]
    {:ok, _id} = Store.enqueue(store, id, content, opts)
  end

  defp decode_call(call) do
    state = Conversation.word(call["state"], Store.Options.call_states())
    %{key: call["key"], attempt: call["attempt"], state: state, call: decode_terms(call["call"])}
  end

  # A turn that was cut short is one whose lease is over.
  defp give_key!(store, id, key, state) do
    :ok = Store.rename(store, id, key)

    if state["owner"],
      do: {:ok, _claim} = Store.claim(store, key, owner: state["owner"], lease: 1)
  end

  defp owned?(%{"owner" => nil}), do: false

  defp owned?(%{"lease_until" => until}),
    do: DateTime.compare(Conversation.time(until), DateTime.utc_now()) == :gt

  # An empty conversation carried them.
  defp decode_terms(nil), do: %{}
  defp decode_terms(text), do: text |> Context.from_snapshot!() |> Context.metadata()
end
