defmodule AshAgent.Runtime.Authority do
  @moduledoc false

  # The rights of a turn's tools: the runtime context that came with its message, or else that of the session, whoever
  # approves and resumes.
  #
  # A runtime context is never stored. The metadata of an iteration has `"runtime_context"`, a list of notes on who gave one
  # for a run that began there, so that nobody goes on with the rights of somebody else when it is gone. A message that waits
  # in a store has a mark in its own metadata until the conversation has it.
  #
  # Here it is an option of a run: `[]` for the session's own, `[runtime_context: map]`, or `gone/0`.

  alias AshAgent.Context

  @key "runtime_context"
  @gone [runtime_context: :gone]

  @doc "One that is not the session's own, and that nobody has any more."
  def gone, do: @gone

  @doc "Takes it from the options of a job, which may be anything."
  def take(opts) do
    case opts[:runtime_context] do
      %{} = given -> [runtime_context: given]
      :gone -> @gone
      _none -> []
    end
  end

  @doc "The options of a job, with one that is given again in place of one that is gone."
  def restore(opts, again), do: if(take(opts) == @gone, do: take(again) ++ opts, else: opts)

  ## In the log

  @doc "Reads it from the log of a conversation whose turn nobody here has asked for: the session's own, or gone."
  def read(context), do: if(notes_of_turn(context) == [], do: [], else: @gone)

  @doc "Notes whether a prompt, whose message has just been added, came with one."
  def note_prompt(context, [_ | _]), do: note(context, [%{"given" => "prompt"}])

  # Notes on an earlier prompt, whose message has no answer and is beside this one, do not apply to it.
  def note_prompt(context, []) do
    if notes(context, context.current_iteration) == [],
      do: context,
      else: note(context, [%{"given" => "none"}])
  end

  @doc "Notes that whoever resumed gave one."
  def note_resume(context, by) do
    at = DateTime.to_iso8601(DateTime.utc_now())
    note(context, [%{"given" => "resume", "by" => by, "at" => at}])
  end

  @doc "Adds a message to a turn, which goes on with the same rights. For the log it begins another turn."
  def add_message(context, input, opts) do
    notes = notes_of_turn(context)
    context = Context.add_user_message(context, input, opts)
    if notes_of_turn(context) == [] and notes != [], do: note(context, notes), else: context
  end

  defp note(%{current_iteration: number} = context, new),
    do: Context.put_iteration_metadata(context, number, @key, notes(context, number) ++ new)

  # The valid notes, of the last iteration of the turn that has any.
  defp notes_of_turn(context) do
    Enum.find_value(context.current_iteration..Context.turn_start(context)//-1, [], fn number ->
      notes = context |> notes(number) |> Enum.reverse()
      held = Enum.take_while(notes, &(not match?(%{"given" => "none"}, &1)))
      if held != [], do: Enum.reverse(held)
    end)
  end

  defp notes(context, number) do
    case Context.get_iteration(context, number) do
      %{metadata: %{@key => notes}} -> List.wrap(notes)
      _none -> []
    end
  end

  ## With a message that waits in a store

  @doc "Marks the metadata of a message that is to be stored."
  def mark(metadata, []), do: metadata
  def mark(metadata, [_ | _]), do: Map.put(metadata, :runtime_context, :given)

  @doc "Takes the mark off a message that was stored: then its `:authority` is gone."
  def unmark(%{metadata: %{runtime_context: :given} = metadata} = message),
    do: Map.merge(message, %{metadata: Map.delete(metadata, :runtime_context), authority: @gone})

  def unmark(message), do: Map.put(message, :authority, [])
end
