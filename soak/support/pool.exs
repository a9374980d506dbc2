defmodule AshAgent.Soak.Pool do
  @moduledoc """
  The live conversations: `{number, context, bytes, limit}` in a table. Worker w of n has the numbers that are w modulo n.

  Most grow to 4 to 60 KB, then a new one takes their place; one in a thousand is of 1 to 10 MB and is rewound when it
  has grown. Filled with the same seed, the pool is the same.
  """

  import AshAgent.Soak.Call, only: [call: 2]
  import AshAgent.TestSupport.Generators, only: [between: 2, chance: 1]

  alias AshAgent.Context
  alias AshAgent.Soak.{Growing, Texts}

  # No small one has a limit above this.
  @small 100_000

  def start do
    :ets.new(__MODULE__, [:public, :named_table, write_concurrency: true, read_concurrency: true])
  end

  @doc "Makes all conversations of a worker."
  def fill(options, worker) do
    for number <- worker..(options.sessions - 1)//options.workers do
      :rand.seed(:exsss, {options.seed, number, 0})
      number |> fresh(limit(options, number)) |> grow_to(0.4 + 0.6 * :rand.uniform()) |> put()
    end
  end

  @doc "About how many bytes there are in all conversations, in the middle one and in the largest."
  def sizes do
    sizes = __MODULE__ |> :ets.select([{{:_, :_, :"$1", :_}, [], [:"$1"]}]) |> Enum.sort()
    middle = Enum.at(sizes, div(length(sizes), 2))
    %{all: Enum.sum(sizes), middle: middle, largest: List.last(sizes)}
  end

  @doc "One of the worker's own, a large one now and then."
  def pick(options, worker) do
    large = large(options)

    number =
      if worker < large and chance(1),
        do: own(worker, large, options.workers),
        else: own(worker, options.sessions, options.workers)

    [session] = :ets.lookup(__MODULE__, number)
    session
  end

  def put(session), do: :ets.insert(__MODULE__, session)

  @doc "The session goes on with another context that has so many bytes more; ends when it is large enough."
  def continue({number, _old, bytes, limit}, %Context{} = context, more) do
    session = {number, context, bytes + more, limit}

    cond do
      bytes + more < limit -> session
      limit > @small -> shorter(session)
      true -> fresh(number, limit)
    end
  end

  def continue(session, :refused, _more), do: session

  @doc "Whether a conversation never becomes large."
  def small?({_, _, _, limit}), do: limit <= @small

  def release, do: :ets.delete_all_objects(__MODULE__)

  @doc "How many large ones there are."
  def large(options), do: max(div(options.sessions, 1_000), 1)

  defp limit(options, number) do
    if number < large(options),
      do: Texts.skewed(1_000_000, 10_000_000),
      else: Texts.skewed(4_000, 60_000)
  end

  defp own(worker, all, workers) do
    mine = div(all - worker - 1, workers) + 1
    worker + workers * between(0, mine - 1)
  end

  defp fresh(number, limit) do
    text = Texts.question()
    opts = if chance(70), do: [system_prompt: Texts.text(100, 2_000)], else: []

    case call(:new, fn -> Context.new(text, opts) end) do
      %Context{} = context -> {number, context, Texts.size(text) + 500, limit}
      :refused -> fresh(number, limit)
    end
  end

  defp shorter({number, context, bytes, limit}) do
    to = max(div(context.current_iteration, 2), 1)

    case call(:rewind, fn -> Context.rewind(context, to: to) end) do
      %Context{} = context -> {number, context, div(bytes, 2), limit}
      :refused -> {number, context, bytes, limit}
    end
  end

  # Ends also where the conversation began anew.
  defp grow_to({_number, _context, bytes, limit} = session, part) do
    next = Growing.step(session)
    grown = elem(next, 2)

    if grown >= bytes and grown < limit * part,
      do: grow_to(next, part),
      else: next
  end
end
