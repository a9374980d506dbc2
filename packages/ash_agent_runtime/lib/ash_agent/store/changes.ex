defmodule AshAgent.Store.Changes do
  @moduledoc false

  # Finds the rows to write where an earlier state is kept. A conversation is kept as **lines**: one for a context, one for
  # each branch of a chat. A line has rows of its own for its iterations, or from some number on, when a branch goes on from
  # another one, its *base*, in whose rows the earlier iterations are.

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.ChatContext.Stored
  alias AshAgent.Context.Changes
  alias AshAgent.Context.JSON
  alias AshAgent.Store.Blobs

  # A line has a branch: `number` is its number in memory, `row` the one in the tables.

  @doc "The fields of a write, by their keys, the lines as they are then, and the media that are new and those that are known then."
  def of(value, before, kept, known \\ %{}) do
    lines = place(lines(value), kept)
    active = active(value, lines)
    changes = changes(lines, before != nil and active(before, kept) == active, active)
    {changes, {blobs, media}} = Enum.map_reduce(changes, {%{}, known}, &take_media/2)
    lost = lost_media(changes, kept, known)
    rows = MapSet.new(changes, & &1.row)
    gone = for line <- kept, line.row not in rows, do: line.row

    cuts = for %{cut: {a, b}} = line <- changes, do: %{branch: line.row, first: a, last: b}

    iterations =
      for line <- changes,
          {number, text} <- line.iterations,
          do: %{branch: line.row, number: number, document: JSON.raw(text)}

    fields = [
      active: active,
      branches: for(line <- changes, line.write?, do: branch(line)),
      iterations: iterations,
      cuts: cuts,
      gone: for(row <- gone, do: %{branch: row}),
      lost: lost
    ]

    fields = for {key, value} <- fields, value != [], do: {key, value}
    media = Map.reject(media, fn {_digest, id} -> id in lost end)
    {head(value, before) ++ fields, Enum.map(changes, &take_kept/1), {blobs, media}}
  end

  # The metadata of a head are read by themselves.
  defp take_media(line, blobs) do
    {iterations, blobs} =
      Enum.map_reduce(line.iterations, blobs, fn {number, text}, {blobs, known} ->
        {text, more, known} = Blobs.take(text, known)
        {{number, text}, {Map.merge(blobs, more), known}}
      end)

    {%{line | iterations: iterations}, blobs}
  end

  # The ids of media that rows had and that no row has any more. All rows are looked through only where one lost some.
  defp lost_media(_changes, _kept, known) when known == %{}, do: []

  defp lost_media(changes, kept, known) do
    now = Map.new(changes, &{&1.row, &1})

    before =
      for line <- kept,
          now[line.row] == nil or now[line.row].write?,
          do: ids_since(line.context, now[line.row] && now[line.row].context, known)

    written = for line <- changes, {_number, text} <- line.iterations, do: Blobs.ids(text)

    case Enum.uniq(Enum.concat(before)) -- Enum.concat(written) do
      [] -> []
      lost -> lost -- Enum.flat_map(changes, &ids_since(&1.context, nil, known))
    end
  end

  defp ids_since(context, other, known) do
    {_head, _updated_at, iterations} = Changes.since(context, other)

    for {_number, text} <- iterations,
        {text, _blobs, _known} = Blobs.take(text, known),
        id <- Blobs.ids(text),
        do: id
  end

  @doc "A map of the fields that are not `nil`: the statements tell `null` from what is not there."
  def object(fields), do: for({key, value} <- fields, value != nil, into: %{}, do: {key, value})

  ## Lines

  @doc "Returns the contexts of a conversation, each with its number, its origin and its name."
  def lines(%Context{} = context), do: [%{number: 1, origin: nil, context: context, name: nil}]

  def lines(%ChatContext{} = chat) do
    for branch <- ChatContext.branches(chat) do
      name = {branch.name, branch.extra}
      branch |> Map.take([:number, :origin, :context]) |> Map.put(:name, name)
    end
  end

  # New branches have the greatest numbers. A chat that was made in another way has rows of its own.
  defp place(lines, kept) do
    known = Map.new(kept, &{&1.number, &1})
    last = kept |> Enum.map(& &1.row) |> Enum.max(fn -> 0 end)
    {old, new} = Enum.split_with(lines, &is_map_key(known, &1.number))
    known = if old ++ new == lines, do: known, else: %{}

    {lines, _next} =
      Enum.map_reduce(lines, last + 1, fn line, next ->
        case known[line.number] do
          nil -> {Map.merge(line, %{row: next, was: nil}), next + 1}
          was -> {Map.merge(line, %{row: was.row, was: was}), next}
        end
      end)

    lines
  end

  defp active(%Context{}, _lines), do: 1

  defp active(%ChatContext{} = chat, lines) do
    number = ChatContext.active(chat).number
    Enum.find_value(lines, &(&1.number == number && &1.row))
  end

  defp take_kept(line),
    do: Map.take(line, [:number, :row, :origin, :base, :since, :context, :name])

  ## Changes

  defp changes(lines, same_active?, active) do
    by_number = Map.new(lines, &{&1.number, &1})
    changes = Enum.map(lines, &change(&1, by_number))
    by_row = Map.new(changes, &{&1.row, &1})

    for change <- changes do
      change = if stands?(change, by_row), do: change, else: whole(change)
      # The metadata of the conversation are those of its active branch.
      if change.row == active and not same_active? and change.head == nil,
        do: put_head(change),
        else: change
    end
  end

  defp change(%{was: nil} = line, lines) do
    case lines[line.origin] do
      %{row: row, context: origin} when row < line.row -> beside(line, origin, row)
      _none -> whole(line)
    end
  end

  defp change(%{was: was} = line, _lines) do
    if was.name == line.name and Changes.same?(was.context, line.context),
      do: keep_line(line),
      else: change_line(line)
  end

  defp keep_line(line) do
    nothing = %{head: nil, updated_at: nil, iterations: [], cut: nil, write?: false}
    line |> Map.merge(nothing) |> Map.merge(Map.take(line.was, [:base, :since]))
  end

  defp change_line(%{was: was} = line) do
    {head, updated_at, iterations} = Changes.since(line.context, was.context)
    {iterations, since} = from(iterations, was, line.context)
    changed = %{head: head, updated_at: updated_at, iterations: iterations, write?: true}
    place = %{base: was.base, since: since, cut: cut(line.context, was.context, since)}
    line |> Map.merge(changed) |> Map.merge(place)
  end

  # Its own rows begin with the first iteration that is not the base's.
  defp from([{first, _} | _], %{since: since} = was, context)
       when is_integer(since) and first < since do
    iterations = Changes.beyond(context, was.context)
    {iterations, iterations |> hd() |> elem(0)}
  end

  defp from(iterations, was, context) do
    # It was rewound into the base's iterations.
    if was.since && context.current_iteration < was.since do
      current = context |> Changes.since(nil) |> elem(2) |> List.last()
      {[current], context.current_iteration}
    else
      {iterations, was.since}
    end
  end

  defp beside(line, origin, row) do
    iterations = Changes.beyond(line.context, origin)
    {since, _text} = hd(iterations)

    if line.context[:id] == origin[:id] and since > first(line.context) and
         first(line.context) == first(origin),
       do: %{whole(line) | base: row, since: since, iterations: iterations},
       else: whole(line)
  end

  defp whole(line) do
    {head, updated_at, iterations} = Changes.since(line.context, nil)

    changed = %{head: head, updated_at: updated_at, iterations: iterations, write?: true}
    cut = line.was && cut(line.context, line.was.context, nil)
    line |> Map.merge(changed) |> Map.merge(%{base: nil, since: nil, cut: cut})
  end

  defp put_head(line) do
    {head, updated_at, _iterations} = Changes.since(line.context, nil)
    %{line | head: head, updated_at: updated_at, write?: true}
  end

  # Rows that the line no longer has.
  defp cut(%Context{} = context, %Context{} = was, since) do
    first = first(context)

    if was.current_iteration > context.current_iteration or first(was) < first,
      do: {since || first, context.current_iteration},
      else: nil
  end

  # Returns true if the base still has the rows that the line needs of it.
  defp stands?(%{base: nil}, _lines), do: true
  defp stands?(%{was: nil}, _lines), do: true

  defp stands?(%{base: base, since: since}, lines) do
    base = lines[base]

    base != nil and base.context.current_iteration >= since - 1 and
      not Enum.any?(base.iterations, fn {number, _text} -> number < since end)
  end

  defp first(context), do: Changes.first_iteration(context)

  ## Texts

  defp branch(line) do
    object(
      number: line.row,
      base: line.base,
      since: line.since,
      updated_at: line.updated_at,
      label: label(line),
      document: line.head && JSON.raw(line.head)
    )
  end

  defp label(%{name: nil}), do: nil
  defp label(%{name: name, was: %{name: name}}), do: nil

  # The core writes names and unknown fields.
  defp label(%{name: {name, extra}, context: context}),
    do: Stored.branch_head(name, extra, context[:created_at])

  # Returns the head of a chat, without its branches.
  defp head(%Context{}, _before), do: []

  defp head(%ChatContext{} = chat, before) do
    same? = before && facts(chat) == facts(before)
    if same?, do: [], else: [document: Stored.head(chat), parent_id: chat.parent_id]
  end

  defp facts(chat),
    do: {chat.id, chat.parent_id, chat.config, chat.active_branch_name, chat.extra}
end
