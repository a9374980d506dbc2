defmodule AshAgent.Door.Reader do
  @moduledoc false

  # From a session's snapshot and changes to events that every protocol has words for. It is a value: it asks nobody, and the same
  # snapshots and changes always give the same events.
  #
  # A reader follows one turn and knows what it has told of it. A context, a snapshot and a piece of an answer are all told by what they
  # have more than that. So a client that falls behind, or whose session goes on elsewhere, is given a snapshot, and hears the rest.
  #
  # Blocks have ids made of their place, which are the same for everybody: "3.0.1" is part 1 of the first answer of iteration 3, and
  # "3.0.c1" its second call. `AshAgent.Door.Table` lists the events.

  alias AshAgent.Context
  alias AshAgent.Context.{Audit, Calls, JSON}
  alias AshAgent.Runtime.Repeat

  #   * `turn` - how the turn is found, or the number of the iteration that it begins with
  #   * `last` - the number of its last iteration, if another turn came after it
  #   * `from` - the first iteration that may have something new
  #   * `shown` - by block: `{:text, bytes, checksum}`, `{:thinking, bytes, checksum}`, `{:arguments, text}`, or an atom when no more comes
  #   * `open` - the block of text that is open, and `at`, where its pieces come from
  #   * `step` - the answer that is being told, as `{iteration, ordinal}`
  #   * `next` - where the next piece of an answer belongs
  #   * `calls` - the blocks of calls by the ids that the run knows them by
  #   * `names` - the names of calls by their blocks
  #   * `late` - the blocks of calls that wait for a late result, by their iterations and ids
  defstruct turn: :current,
            last: nil,
            from: nil,
            shown: %{},
            open: nil,
            at: nil,
            step: nil,
            next: nil,
            calls: %{},
            names: %{},
            late: %{}

  @doc """
  A reader of the turn that runs or came last (`:current`), of the next one behind an iteration (`{:after, number}`), of the turn with the message of a
  key (`{:key, key}`), or of iterations (`{first, last}`).
  """
  def new(turn), do: %__MODULE__{turn: turn}

  @doc "Takes what a snapshot has for told, by a stream that has ended."
  def skip(%__MODULE__{} = reader, snapshot) do
    {_told, reader} = read(reader, snapshot)
    %{reader | step: nil, open: nil}
  end

  @doc "Whether the turn is in the conversation."
  def found?(%__MODULE__{turn: turn}), do: is_integer(turn)

  @doc "The number of the iteration that the turn begins with, or `nil` where the conversation does not have it."
  def first(%__MODULE__{} = reader, context) do
    %{turn: first} = find(reader, context)
    if is_integer(first), do: first
  end

  @doc "What all readers of the turn call it: the number of that iteration, or how they look for it."
  def name(%__MODULE__{turn: turn} = reader, context), do: first(reader, context) || turn

  @doc "Returns `{first, last}` for the turn that begins with an iteration, or `nil`."
  def range(context, first) do
    case for({number, _, _} <- said(context), number >= first, uniq: true, do: number) do
      [^first, next | _] -> {first, next - 1}
      [^first] -> {first, context.current_iteration}
      _other -> nil
    end
  end

  @doc "Whether nothing more can come of the turn, since another one came after it."
  def over?(%__MODULE__{last: last}), do: last != nil

  @doc "Returns `{events, reader}` for a snapshot or a change of `AshAgent.Session`."
  def read(%__MODULE__{} = reader, %{context: context, message: message, activity: activity}) do
    reader = find(without_arguments(reader), context)
    {dropped, reader} = if same?(reader, message), do: {[], reader}, else: drop(reader, context)
    {events, reader} = if found?(reader), do: iterations(reader, context), else: {[], reader}
    {more, reader} = if followed?(reader), do: partial(reader, message), else: {[], reader}
    {active, reader} = many(activity, reader)
    {dropped ++ events ++ more ++ active, reader}
  end

  def read(reader, {:snapshot, binary}), do: read(reader, {:context, Context.load!(binary)})

  def read(reader, {:context, context}) do
    case find(reader, context) do
      %{turn: first} = reader when is_integer(first) ->
        {dropped, reader} = drop(reader, context)
        {events, reader} = iterations(reader, context)
        {dropped ++ events, reader}

      reader ->
        {[], reader}
    end
  end

  def read(reader, {:delta, events}),
    do: if(followed?(reader), do: many(events, reader), else: {[], reader})

  def read(%{calls: calls} = reader, {:event, [:tool, :start], _, %{sub_agent: true} = call})
      when is_map_key(calls, call.tool_call_id),
      do: start_agent(reader, calls[call.tool_call_id])

  def read(reader, {:event, name, measured, metadata}),
    do: {if(found?(reader), do: event(name, measured, metadata, reader), else: []), reader}

  # More of the block that is open, as nearly all changes are.
  def read(%{open: {kind, id}, at: {place, part}, next: place} = reader, {kind, part, text}) do
    {^kind, bytes, sum} = reader.shown[id]
    shown = {kind, bytes + byte_size(text), :erlang.crc32(sum, text)}
    {[{kind, id, text}], put(reader, id, shown)}
  end

  def read(%{next: {number, ordinal}} = reader, {kind, part, text})
      when kind in [:text, :thinking],
      do: more(reader, {number, ordinal}, part, kind, text)

  def read(%{next: place} = reader, {:tool_call_started, position, name}) do
    {step, reader} = begin_step(reader, place)
    {ended, reader} = close(reader)
    id = call_id(place, position)
    {step ++ ended ++ [{:call_started, id, to_string(name)}], put(reader, id, {:arguments, ""})}
  end

  # Of a call whose beginning nobody has seen, nothing is told before it is whole.
  def read(%{next: place, shown: shown} = reader, {:tool_call_arguments, position, json}) do
    id = call_id(place, position)

    case shown[id] do
      {:arguments, text} ->
        {[{:call_arguments, id, json}], put(reader, id, {:arguments, text <> json})}

      _whole_or_unknown ->
        {[], reader}
    end
  end

  # The context tells the rest.
  def read(reader, _other), do: {[], reader}

  @doc """
  Returns the events that close what is open, and the end: `:answered`, `{:paused, asked}` with an `:asked` or `:question` event for each call, `:parked`, `:cancelled`
  or `{:failed, kind, id}`.
  """
  def finish(%__MODULE__{step: step} = reader, outcome) do
    {ended, reader} = close(reader)
    stepped = if step, do: [{:step_finished, step}], else: []
    {ended ++ stepped ++ [{:end, outcome}], %{reader | step: nil}}
  end

  @doc "How the turn has ended, of which nobody has heard, by what the session says it does."
  def outcome(_context, {:paused, _calls}), do: :paused
  def outcome(_context, status) when status in [:parked, :waiting], do: :parked

  def outcome(context, _idle) do
    with [] <- Context.pending_tool_calls(context),
         messages = Enum.reject(Context.to_messages(context), &is_map_key(&1, :arrival)),
         %{role: :assistant} = message <- List.last(messages),
         false <- message[:state] == :interrupted do
      :answered
    else
      _not_whole -> {:failed, failure(context, List.last(Audit.failures(context)))}
    end
  end

  defp failure(%{current_iteration: number}, %{iteration: number, kind: kind}), do: kind
  defp failure(_context, _earlier), do: :interrupted

  @doc "The `:asked` and `:question` events of a conversation that waits for a person."
  def waiting(%{calls: calls}, context),
    do:
      for(
        call <- Calls.asked_tool_calls(context),
        do: asks(context, call, calls[call.id] || call.id)
      )

  defp asks(context, %{name: name, arguments: arguments} = call, block) do
    kind = if call[:question], do: :question, else: :asked
    {kind, block, approval_id(context, call), to_string(name), arguments}
  end

  @doc """
  Returns what was said and what came of it in the last turns, oldest first: `{:person, id, message}`, and `{:answer, first, events}` for each
  turn, without the answer of a turn that runs.
  """
  def history(context, running?, turns) do
    said = said(context)
    firsts = said |> Enum.map(&elem(&1, 0)) |> Enum.dedup()
    lasts = Enum.map(Enum.drop(firsts, 1), &(&1 - 1)) ++ [context.current_iteration]

    firsts
    |> Enum.zip(lasts)
    |> Enum.take(-turns)
    |> Enum.flat_map(fn {first, last} ->
      people = for {^first, index, message} <- said, do: person(first, index, message)
      {events, _reader} = read(new({first, last}), {:context, context})
      runs? = running? and last == context.current_iteration
      people ++ if(runs? or events == [], do: [], else: [{:answer, first, events}])
    end)
  end

  defp said(context) do
    for number <- 1..context.current_iteration//1,
        messages = Context.get_iteration_messages(context, number),
        {message, index} <- Enum.with_index(messages),
        said?(message),
        do: {number, index, message}
  end

  # The ids of a page's own messages are theirs.
  defp person(number, index, message) do
    case message[:metadata][:idempotency_key] do
      "ui:" <> key -> {:person, key |> String.split("\n") |> hd(), message}
      _other -> {:person, "#{number}.said.#{index}", message}
    end
  end

  @doc """
  Returns the message that a page has under an id, if a turn begins with nothing else: `{number, message, key}`, with the iteration, and the key with which
  it is said again. Otherwise nil.
  """
  def find_said(context, id) do
    said = said(context)

    found =
      for {number, index, message} <- said,
          {:person, ^id, _} <- [person(number, index, message)],
          do: {number, message}

    with [{number, message} | _] <- Enum.reverse(found),
         [_alone] <- Enum.filter(said, &(elem(&1, 0) == number)),
         "ui:" <> _ = key <- message[:metadata][:idempotency_key],
         {^number, _last} <- Context.find_turn(context, :idempotency_key, key) do
      {number, message, again(String.split(key, "\n"))}
    else
      _none -> nil
    end
  end

  defp again([key]), do: key <> "\n2"
  defp again([key, times]), do: "#{key}\n#{String.to_integer(times) + 1}"

  @doc "The id of the answer to the turn that begins with an iteration."
  def answer_id(first), do: "turn-#{first}"

  @doc """
  Returns the calls that a person was asked about and that are undecided, by the ids under which they are asked about. An id stands for the
  call and for exactly the arguments that were shown, so nothing else of an answer has to be believed.
  """
  def asked(context) do
    for call <- Calls.asked_tool_calls(context),
        into: %{},
        do: {approval_id(context, call), call}
  end

  @doc "Returns what was decided about calls of the iteration, in the words of `AshAgent.Door.Source`, by the same ids."
  def decided(%{current_iteration: number} = context) do
    for %{id: id} = call <-
          (Context.get_iteration(context, number) || %{tool_calls: []}).tool_calls,
        decision = %{decision: _} <- [Calls.tool_call_decision(context, id)],
        shown = %{call | arguments: decision[:arguments] || call.arguments},
        into: %{},
        do: {approval_id(context, shown), verdict(decision, call)}
  end

  defp verdict(%{decision: :approved, edited: edited}, _call), do: {:edit, edited}
  defp verdict(%{decision: :approved}, _call), do: :approve
  defp verdict(%{decision: :answered}, %{result: {:ok, answer}}), do: {:answer, answer}
  defp verdict(_denied, _call), do: :deny

  @doc "Returns the questions that wait, as `{approval, call}` by their blocks."
  def questions(%{calls: calls}, context) do
    for {_approval, %{question: true, id: id}} = asked <- asked(context),
        into: %{},
        do: {calls[id], asked}
  end

  # A call that was started before a crash is asked about anew, which is another question: an answer to the first one that is sent again is not
  # one to that. Nothing but its number is behind the dot.
  defp approval_id(context, %{id: id, name: name, arguments: arguments}) do
    shown = JSON.encode([context[:id], context.current_iteration, id, to_string(name), arguments])
    shown = :sha256 |> :crypto.hash(shown) |> Base.url_encode64(padding: false)

    case Repeat.asked_anew(context) do
      %{^id => attempt} -> "#{shown}.#{attempt}"
      _not_started -> shown
    end
  end

  @started "This call was started before, and its outcome is unknown: it may have been carried out. "

  @doc "What a person has to know before they answer, in words with a space behind them, or nothing."
  def warning(approval), do: if(String.contains?(approval, "."), do: @started, else: "")

  @doc "Whether a person said this message."
  def said?(%{role: :user, metadata: %{output_retry: _number}}), do: false
  def said?(%{role: :user, content: [%{type: :tool_result} | _]}), do: false
  def said?(%{role: role}), do: role == :user

  ## The turn

  defp find(%{turn: first, last: last} = reader, context) when is_integer(first),
    do: %{reader | next: if(last == nil, do: next(context))}

  defp find(%{turn: {:key, key}} = reader, context) do
    case Context.find_turn(context, :idempotency_key, key) do
      nil -> reader
      range -> begin(reader, range, context)
    end
  end

  defp find(%{turn: :current} = reader, context),
    do: begin(reader, {Context.turn_start(context), context.current_iteration}, context)

  defp find(%{turn: {:after, number}} = reader, %{current_iteration: current} = context) do
    if current > number, do: find(%{reader | turn: :current}, context), else: reader
  end

  defp find(%{turn: range} = reader, context), do: begin(reader, range, context)

  defp begin(reader, {first, last}, %{current_iteration: current} = context) do
    last = if last < current, do: last
    find(%{reader | turn: first, from: first, last: last}, context)
  end

  # An answer that comes now is the next one of the current iteration.
  defp next(%{current_iteration: number} = context),
    do: {number, context |> answers(number) |> length()}

  defp answers(context, number),
    do: for(%{role: :assistant} = m <- Context.get_iteration_messages(context, number), do: m)

  defp followed?(%{next: next}), do: next != nil

  # An answer of which something was told, and which the conversation does not have.
  defp drop(%{step: {number, ordinal} = step, turn: first} = reader, context)
       when is_integer(first) do
    there? = number < context.current_iteration or length(answers(context, number)) > ordinal

    if there? do
      {[], reader}
    else
      {ended, reader} = close(reader)
      prefix = block(step, "")
      {ids, _} = Enum.split_with(Map.keys(reader.shown), &String.starts_with?(&1, prefix))
      reader = %{reader | shown: Map.drop(reader.shown, ids), step: nil}
      {ended ++ [{:dropped, step, Enum.sort(ids)}, {:step_finished, step}], reader}
    end
  end

  defp drop(reader, _context), do: {[], reader}

  # Whether the answer that comes goes on with what was told of it. Another session may have asked for another one.
  defp same?(%{step: step, next: step, shown: shown}, %{content: content}) when step != nil do
    content
    |> List.wrap()
    |> Enum.with_index()
    |> Enum.all?(fn {part, index} ->
      case {shown[block(step, index)], part} do
        {nil, _part} -> true
        {{_kind, seen, sum}, text} when is_binary(text) -> begins?(text, seen, sum)
        {{kind, seen, sum}, %{type: kind, text: text}} -> begins?(text, seen, sum)
        _another -> false
      end
    end)
  end

  defp same?(_reader, _message), do: false

  defp begins?(text, seen, sum) when byte_size(text) >= seen,
    do: text |> binary_part(0, seen) |> :erlang.crc32() == sum

  defp begins?(_text, _seen, _sum), do: false

  # The pieces of arguments that came since were not heard.
  defp without_arguments(%{shown: shown} = reader) do
    unheard = fn
      {id, {:arguments, _text}} -> {id, :part}
      other -> other
    end

    %{reader | shown: Map.new(shown, unheard)}
  end

  ## What the conversation has

  defp iterations(%{from: from, last: last} = reader, %{current_iteration: current} = context) do
    {events, reader} =
      Enum.reduce(from..(last || current)//1, {[], reader}, fn number, {events, reader} ->
        {more, reader} = iteration(reader, context, Context.get_iteration(context, number))
        {[events | more], reader}
      end)

    {late, reader} = late(reader, context)
    {List.flatten([events | late]), %{reader | from: last || current}}
  end

  # Late results are told where their calls are. Those of calls of an earlier turn are told where they have their place.
  defp late(%{turn: first, last: last} = reader, context) do
    context
    |> Calls.late_calls()
    |> Enum.filter(&is_map_key(&1, :result))
    |> many(reader, fn %{iteration: number, id: id, result: result} = call, reader ->
      place = call[:placed]

      cond do
        block = reader.late[{number, id}] ->
          slot(reader, context, {%{id: id, result: result}, block})

        number < first and place != nil and place >= first and (last == nil or place <= last) ->
          arrived(reader, context, call, place(context, number, id))

        true ->
          {[], reader}
      end
    end)
  end

  defp arrived(%{shown: shown} = reader, _context, _call, block) when is_map_key(shown, block),
    do: {[], reader}

  defp arrived(reader, context, %{id: id, name: name, result: result}, block) do
    {_kind, _block, value} = told = result(context, id, block, result)
    outcome = if elem(told, 0) == :result, do: {:ok, value}, else: {:error, value}
    {[{:arrived, block, to_string(name), outcome}], put(reader, block, :done)}
  end

  # The block of an earlier call.
  defp place(context, number, id) do
    answers = context |> answers(number) |> Enum.with_index()

    Enum.find_value(answers, block({number, 0}, id), fn {%{} = answer, ordinal} ->
      position = Enum.find_index(answer[:tool_calls] || [], &(&1.id == id))
      position && call_id({number, ordinal}, position)
    end)
  end

  defp iteration(reader, _context, nil), do: {[], reader}

  defp iteration(reader, context, %{number: number, messages: messages, tool_calls: calls}) do
    # Where a late result stands, its call is listed once more.
    calls = Enum.reject(calls, &match?(%{arrived: %{iteration: _}}, &1))

    {{told, reader}, places} =
      messages
      |> Enum.with_index()
      |> Enum.reduce({{[], reader}, []}, fn {message, index}, {{told, reader}, places} ->
        ordinal = Enum.count(Enum.take(messages, index), &(&1.role == :assistant))
        {more, reader, own} = message(reader, message, {number, ordinal}, index)
        {{told ++ more, reader}, places ++ own}
      end)

    # The slots stand in the order of the calls.
    slots = Enum.zip(calls, places)
    late = for {%{id: id, result: {:waiting, _}}, block} <- slots, do: {{number, id}, block}
    reader = update_in(reader.late, &Enum.into(late, &1))
    agents = agents(messages)
    {results, reader} = slots |> many(reader, &slot(&2, context, &1, agents))
    {asked, reader} = ask(reader, context, number, slots)
    {told ++ results ++ asked, reader}
  end

  defp message(reader, %{role: :assistant} = message, place, _index) do
    calls = message[:tool_calls] || []
    places = for {_call, position} <- Enum.with_index(calls), do: call_id(place, position)

    if reader.shown[block(place, "")] == :done do
      {[], reader, places}
    else
      {parts, reader} = parts(reader, place, message.content)
      {ended, reader} = close(reader)
      {called, reader} = calls |> Enum.zip(places) |> many(reader, &call(&2, place, &1))
      broken = if message[:state] == :interrupted, do: [{:broken, place}], else: []
      {parts ++ ended ++ called ++ broken, put(reader, block(place, ""), :done), places}
    end
  end

  # What the turn begins with, its client has said.
  defp message(%{turn: first} = reader, message, {number, _}, index) do
    id = "#{number}.said.#{index}"

    if number > first and said?(message) and not is_map_key(reader.shown, id),
      do: {[{:said, id, text(message.content)}], put(reader, id, :done), []},
      else: {[], reader, []}
  end

  defp parts(reader, _place, nil), do: {[], reader}
  defp parts(reader, place, text) when is_binary(text), do: part(reader, place, 0, :text, text)

  defp parts(reader, place, parts) do
    parts
    |> Enum.with_index()
    |> many(reader, fn
      {%{type: type, text: text}, index}, reader
      when type in [:text, :thinking] and text != nil ->
        part(reader, place, index, type, text)

      {%{type: type, media_type: media, data: data}, index}, reader
      when type in [:image, :audio, :video, :file] and is_binary(data) ->
        {step, reader} = begin_step(reader, place)
        {ended, reader} = close(reader)
        {step ++ ended ++ [{:file, block(place, index), media, data}], reader}

      _for_providers, reader ->
        {[], reader}
    end)
  end

  # What of a whole text was not told yet. One that became another one stays as it was told.
  defp part(%{shown: shown} = reader, place, index, kind, text) do
    case shown[block(place, index)] do
      nil when text == "" -> {[], reader}
      nil -> more(reader, place, index, kind, text)
      {^kind, seen, sum} -> rest(reader, place, index, kind, text, seen, begins?(text, seen, sum))
      _another -> {[], reader}
    end
  end

  defp rest(reader, place, index, kind, text, seen, true) when byte_size(text) > seen,
    do: more(reader, place, index, kind, binary_part(text, seen, byte_size(text) - seen))

  defp rest(reader, _place, _index, _kind, _text, _seen, _begins?), do: {[], reader}

  defp call(reader, place, {%{id: call_id, name: name, arguments: arguments}, id}) do
    name = to_string(name)
    known = %{calls: Map.put(reader.calls, call_id, id), names: Map.put(reader.names, id, name)}
    {step, reader} = begin_step(Map.merge(reader, known), place)
    started = if reader.shown[id], do: [], else: [{:call_started, id, name}]
    call = {:call, id, name, arguments, told(reader.shown[id], arguments)}
    {step ++ started ++ [call], put(reader, id, :called)}
  end

  # How much of the arguments was told in pieces.
  defp told(nothing, _arguments) when nothing in [nil, {:arguments, ""}], do: :none

  defp told({:arguments, text}, arguments),
    do: if(JSON.decode(text) == {:ok, arguments}, do: :whole, else: :part)

  defp told(:part, _arguments), do: :part

  defp slot(reader, context, {%{id: call_id, result: result}, id}, agents \\ %{}) do
    waits = id <> ".waits"

    cond do
      result == nil or reader.shown[id] == :done ->
        {[], reader}

      match?({:waiting, _}, result) and is_map_key(reader.shown, waits) ->
        {[], reader}

      match?({:waiting, _}, result) ->
        {[{:waits, id}], put(reader, waits, :done)}

      true ->
        {agent, reader} = agent(reader, id, agents[call_id], result)
        {agent ++ [result(context, call_id, id, result)], put(reader, id, :done)}
    end
  end

  # What is noted of sub-agents, by their calls.
  defp agents(messages) do
    for %{metadata: %{sub_agents: %{} = noted}} <- messages, note <- noted, into: %{}, do: note
  end

  defp agent(%{shown: shown} = reader, id, note, result) do
    started? = is_map_key(shown, id <> ".agent")

    if note == nil and not started? do
      {[], reader}
    else
      {started, reader} = start_agent(reader, id)

      {started ++ [{:sub_agent_ended, id, if(match?({:ok, _}, result), do: :ok, else: :error)}],
       reader}
    end
  end

  defp start_agent(%{shown: shown} = reader, id) do
    agent = id <> ".agent"

    if is_map_key(shown, agent),
      do: {[], reader},
      else: {[{:sub_agent_started, id, reader.names[id] || "agent"}], put(reader, agent, :done)}
  end

  defp result(_context, _call_id, id, {:ok, value}), do: {:result, id, value}

  defp result(context, call_id, id, {:error, reason}) do
    kind = if Calls.tool_call_status(context, call_id) == :denied, do: :denied, else: :failed
    {kind, id, if(is_binary(reason), do: reason, else: JSON.encode(reason))}
  end

  defp ask(reader, %{current_iteration: number} = context, number, slots) do
    context
    |> Calls.asked_tool_calls()
    |> many(reader, fn %{id: call_id} = call, reader ->
      id = for {%{id: ^call_id, result: nil}, id} <- slots, do: id
      approval = approval_id(context, call)

      if id == [] or is_map_key(reader.shown, approval),
        do: {[], reader},
        else: {[asks(context, call, hd(id))], put(reader, approval, :done)}
    end)
  end

  defp ask(reader, _context, _number, _slots), do: {[], reader}

  ## The answer that comes

  # The calls of an answer that is not whole are told when it is: nobody knows how far their arguments had come.
  defp partial(reader, nil), do: {[], reader}

  defp partial(%{next: place} = reader, %{content: content}) do
    parts(reader, place, content)
  end

  defp more(reader, place, index, kind, text) do
    id = block(place, index)
    {step, reader} = begin_step(reader, place)
    {ended, reader} = if reader.open in [nil, {kind, id}], do: {[], reader}, else: close(reader)
    started = if reader.open, do: [], else: [{:"#{kind}_started", id}]
    {_kind, bytes, sum} = Map.get(reader.shown, id, {kind, 0, 0})
    shown = {kind, bytes + byte_size(text), :erlang.crc32(sum, text)}
    reader = put(%{reader | open: {kind, id}, at: {place, index}}, id, shown)
    {step ++ ended ++ started ++ [{kind, id, text}], reader}
  end

  defp close(%{open: nil} = reader), do: {[], reader}
  defp close(%{open: {kind, id}} = reader), do: {[{:"#{kind}_ended", id}], %{reader | open: nil}}

  defp begin_step(%{step: step} = reader, step), do: {[], reader}

  defp begin_step(reader, step) do
    {ended, reader} = close(reader)
    before = if reader.step, do: [{:step_finished, reader.step}], else: []
    {ended ++ before ++ [{:step_started, step}], %{reader | step: step}}
  end

  ## Steps of the run

  defp event([:tool, :progress], measured, %{tool_call_id: call_id}, %{calls: calls}) do
    id = calls[call_id]
    if id, do: [{:progress, id, measured.progress, measured[:total]}], else: []
  end

  defp event([:llm, :retry], %{attempt: attempt, wait: wait}, %{kind: kind}, _reader),
    do: [{:retry, attempt, wait, kind}]

  defp event([:llm, :waiting], %{duration: duration}, _metadata, _reader),
    do: [{:waiting, System.convert_time_unit(duration, :native, :millisecond)}]

  defp event([:llm, :value], _measured, %{attempt: attempt, value: value}, _reader),
    do: [{:value, attempt, value}]

  defp event(_name, _measured, _metadata, _reader), do: []

  ## Names

  defp block({number, ordinal}, part), do: "#{number}.#{ordinal}.#{part}"
  defp call_id(place, position), do: block(place, "c#{position}")

  defp put(reader, id, what), do: %{reader | shown: Map.put(reader.shown, id, what)}

  @doc "The text of a message's content."
  def text(content) when is_binary(content), do: content
  def text(nil), do: ""
  def text(parts), do: for(%{type: :text, text: text} <- parts, into: "", do: text)

  defp many(list, reader, fun \\ &read(&2, &1)) do
    {events, reader} = Enum.flat_map_reduce(list, reader, fn one, reader -> fun.(one, reader) end)

    {events, reader}
  end
end
