defmodule AshAgent.Runtime.Authority do
  @moduledoc false

  # The rights of a turn's tools: the runtime context that came with its message, or else that of the session that it came to,
  # whoever approves and resumes, and in whichever session.
  #
  # A runtime context is never stored. The metadata of an iteration has `"runtime_context"`, a list of notes on who gave one
  # for a run that began there, so that nobody goes on with the rights of somebody else when it is gone. A message that waits
  # in a store has a mark in its own metadata until the conversation has it. Where one is gone, the application may know
  # the person by the metadata of the message that asked, which the note names.
  #
  # Here it is an option of a run: `[]` for the session's own, `[runtime_context: map]`, or `gone/0`.

  alias AshAgent.Context
  alias AshAgent.Context.UnknownAtom
  alias AshAgent.Runtime.{Late, Loop, Run, Sealed, ToolExecutor}

  @key "runtime_context"
  @gone [runtime_context: :gone]

  # The application may look for a person for so many milliseconds.
  @patience 5_000

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

  @doc """
  Returns true if both are runtime contexts with the same rights: of the same actor and tenant, by their ids, and equal in everything
  else.
  """
  def same?([runtime_context: %{} = one], runtime_context: %{} = other),
    do: name_people(one) == name_people(other)

  def same?(_one, _other), do: false

  # One without a key has the same rights as one with nobody under it.
  defp name_people(known) do
    for {key, who} when who != nil <- known, into: %{} do
      {key, if(key in [:actor, :tenant], do: name(who), else: who)}
    end
  end

  @doc "The options of a job, with one that is given again in place of one that is gone."
  def restore(opts, again), do: if(take(opts) == @gone, do: take(again) ++ opts, else: opts)

  @doc """
  Returns the options of a run that is in no session, with the runtime context of whoever asked if none is given, or
  `:runtime_context` if that is gone.
  """
  def complete(opts, context, wake \\ nil) do
    with nil <- opts[:runtime_context],
         true <- (wake != nil or Loop.acts?(context, opts)) and read(context, %{}, wake) == @gone,
         look = &recover(@gone, context, &1, opts, wake),
         @gone <- ToolExecutor.with_supervisor(opts[:supervisor], look) do
      :runtime_context
    else
      [runtime_context: found] -> {:ok, Keyword.put(opts, :runtime_context, found)}
      _given_or_not_needed -> {:ok, opts}
    end
  end

  @doc """
  Asks the application's `:restore_context` for one that is gone, with the metadata of the message that asked for the turn of
  this context, or for that of an iteration. It stays gone if there is no such function, no such message, or no answer.
  """
  def recover(authority, context, supervisor, opts, number \\ nil)

  def recover(@gone, context, supervisor, opts, number) do
    with restore when is_function(restore, 1) <- opts[:restore_context],
         :ok <- load_words(restore),
         %{} = message <- find_asked(context, number),
         ask = fn -> restore.(message[:metadata] || %{}) end,
         {:ok, {:ok, %{} = found}} when not is_struct(found) <-
           Sealed.run_task(supervisor, ask, @patience) do
      [runtime_context: found]
    else
      _nothing -> @gone
    end
  end

  def recover(known, _context, _supervisor, _opts, _number), do: known

  # The atoms that it looks for in the metadata are those of its module, which this VM may not have loaded yet.
  defp load_words(restore) do
    {:module, module} = Function.info(restore, :module)
    _loaded_or_not = Code.ensure_loaded(module)
    :ok
  end

  ## In the log

  @doc """
  Reads it from the log of a conversation whose turn nobody here has asked for: the session's own, or gone. `own` is the session's
  runtime context.
  """
  def read(context, own \\ %{}, number \\ nil) do
    case notes_of_turn(context, number) do
      [] ->
        []

      [%{"given" => "session"} = note | later] ->
        same? = own != %{} and note["as"] == identify(own)
        if same? and Enum.all?(later, &(&1["given"] == "turn")), do: [], else: @gone

      _given ->
        @gone
    end
  end

  @doc """
  Returns who asked for the turn of an iteration, to be compared with others: `:own` if that was nobody but the session, and otherwise
  a digest, or the turn itself if nobody knows.
  """
  def asker(context, number) do
    case notes_of_turn(context, number) do
      [] ->
        :own

      # As with their messages, the last one counts.
      notes ->
        case Enum.find(Enum.reverse(notes), &(&1["given"] in ["prompt", "session"])) do
          %{"as" => as} -> as
          _nobody_knows -> {:turn, Late.turn_start(context, number)}
        end
    end
  end

  @doc "Notes that the current iteration goes on with the turn of an earlier one, and with its rights."
  def copy(context, from) do
    beside =
      if notes(context, context.current_iteration) != [], do: [%{"given" => "none"}], else: []

    limited = note_limits(context, limits(context, from))

    case beside ++ notes_of_turn(context, from) do
      [] -> limited
      notes -> note(limited, notes)
    end
  end

  @doc "Notes whether a prompt, whose message has just been added, came with one, or else which session's own it has."
  def note_prompt(context, authority, own \\ %{})

  def note_prompt(context, [runtime_context: %{} = given], _own) do
    note_last(context, asked(context, given))
  end

  def note_prompt(context, [_ | _], _own), do: note_last(context, %{"given" => "prompt"})

  # Notes on an earlier prompt, whose message has no answer and is beside this one, do not apply to it.
  def note_prompt(context, [], own) do
    beside? = notes(context, context.current_iteration) != []
    context = if beside?, do: note(context, [%{"given" => "none"}]), else: context

    if own == %{},
      do: context,
      else: note_last(context, %{"given" => "session", "as" => identify(own)})
  end

  @doc """
  Notes that a run was given one: to go on with a turn, or to begin that of a message which nobody has run yet, wherever it came from.
  """
  def note_run(%{current_iteration: number} = context, given, by \\ nil) do
    last = context |> Context.get_iteration_messages(number) |> List.last()
    new? = last != nil and List.last(Run.said(context, number)) == last

    if new? and notes_of_turn(context) == [] do
      note_last(context, Map.merge(asked(context, given), if(by, do: %{"by" => by}, else: %{})))
    else
      at = DateTime.to_iso8601(DateTime.utc_now())
      note(context, [%{"given" => "resume", "by" => by, "at" => at}])
    end
  end

  @doc "Adds a message to a turn, which goes on with the same rights. For the log it begins another turn."
  def add_message(context, input, opts) do
    notes = notes_of_turn(context)
    limits = limits(context)
    context = context |> Context.add_user_message(input, opts) |> note_limits(limits)

    cond do
      notes == [] -> context
      notes_of_turn(context) == [] -> note(context, notes)
      true -> note_last(context, %{"given" => "turn"})
    end
  end

  defp asked(context, given),
    do: %{"given" => "prompt", "as" => digest({context[:id], name_people(given)})}

  # Names the message by its iteration and its place among those of users.
  defp note_last(%{current_iteration: number} = context, new) do
    place = [number, length(Run.said(context, number)) - 1]
    note(context, [Map.put(new, "message", place)])
  end

  @doc """
  A digest by which a runtime context is known again: of its actor and tenant, or of all of it where it has neither. The next
  life of a session has other processes, and an actor that was loaded anew may differ in all but its id.
  """
  def identify(own) do
    people = own |> Map.take([:actor, :tenant]) |> Map.new(fn {key, who} -> {key, name(who)} end)

    handle? = &(is_pid(&1) or is_reference(&1) or is_port(&1) or is_function(&1))
    known = if people == %{}, do: Map.reject(own, fn {_key, value} -> handle?.(value) end)
    digest(known || people)
  end

  defp digest(term) do
    bytes = :erlang.term_to_binary(term, [:deterministic])
    "sha256:" <> Base.encode16(:crypto.hash(:sha256, bytes), case: :lower)
  end

  defp name(%kind{id: id}) when is_binary(id) or is_integer(id), do: {kind, id}
  defp name(%{id: id}) when is_binary(id) or is_integer(id), do: id
  defp name(who), do: who

  defp note(%{current_iteration: number} = context, new),
    do: Context.put_iteration_metadata(context, number, @key, notes(context, number) ++ new)

  @doc "Returns the message that asked for the turn of an iteration, the current one by default, or `nil`."
  # Whoever asked gave the last one. A message beside theirs that has no note may be of somebody else.
  def find_asked(context, number \\ nil) do
    notes = context |> notes_of_turn(number) |> Enum.reverse()
    noted = for %{"message" => place} <- notes, do: place

    with %{"message" => [number, index]} when is_integer(number) and index >= 0 <-
           Enum.find(notes, &(&1["given"] in ["prompt", "session"])),
         messages = Run.said(context, number),
         true <- Enum.all?(index..(length(messages) - 1)//1, &([number, &1] in noted)),
         do: Enum.at(messages, index)
  end

  # The valid notes, of the last iteration of the turn that has any.
  defp notes_of_turn(context, number \\ nil) do
    number = number || context.current_iteration

    Enum.find_value(number..first(context, number)//-1, [], fn number ->
      notes = context |> notes(number) |> Enum.reverse()
      held = Enum.take_while(notes, &(not match?(%{"given" => "none"}, &1)))
      if held != [], do: Enum.reverse(held)
    end)
  end

  # Only a conversation with late results has turns that nobody's message began.
  defp first(%{current_iteration: number} = context, number) do
    if Context.Calls.waits?(context, :ever),
      do: max(Late.turn_start(context, number), Context.turn_start(context)),
      else: Context.turn_start(context)
  end

  defp first(context, number), do: Late.turn_start(context, number)

  defp notes(context, number) do
    case Context.get_iteration(context, number) do
      %{metadata: %{@key => notes}} -> List.wrap(notes)
      _none -> []
    end
  end

  ## The limits of a turn

  # Somebody who resumes a turn may give it limits, and what goes on with it by itself keeps to them. The iteration has those.
  @limits "limits"

  @doc "Notes the limits that the turn of an iteration has from now on. Those that are not among them are the session's again."
  def note_limits(context, limits, number \\ nil) do
    number = number || context.current_iteration
    limits = for {name, most} when is_integer(most) <- limits, into: %{}, do: {"#{name}", most}

    if limits == %{} and limits(context, number) == %{},
      do: context,
      else: Context.put_iteration_metadata(context, number, @limits, limits)
  end

  @doc "Returns the limits that somebody gave the turn of an iteration, of the current one by default."
  def limits(context, number \\ nil) do
    number = number || context.current_iteration

    Enum.find_value(number..first(context, number)//-1, %{}, fn number ->
      with %{metadata: %{@limits => %{} = limits}} <- Context.get_iteration(context, number),
           do: limits,
           else: (_none -> nil)
    end)
  end

  ## With a message that waits in a store

  @doc "Marks the metadata of a message that is to be stored."
  def mark(metadata, []), do: metadata
  def mark(metadata, [_ | _]), do: Map.put(metadata, :runtime_context, :given)

  @doc "Takes the mark off a message that was stored: then its `:authority` is gone."
  def unmark(%{metadata: metadata} = message) do
    case Enum.split_with(metadata, &mark?/1) do
      {[], _own} -> Map.put(message, :authority, [])
      {_mark, own} -> Map.merge(message, %{metadata: Map.new(own), authority: @gone})
    end
  end

  # Its words are atoms, and the message may have been read before this VM had them: nothing that is stored makes one.
  defp mark?({key, value}), do: word?(key, :runtime_context) and word?(value, :given)

  defp word?(%UnknownAtom{name: name}, word), do: name == Atom.to_string(word)
  defp word?(term, word), do: term == word
end
