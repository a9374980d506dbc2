defmodule AshAgent.Runtime.Underway do
  @moduledoc false

  # What a run and its sub-agents have come to, for whoever ends them from outside: a process that is killed tells nothing.
  #
  # It is a table that the outermost run or its session owns, and all runs within write to. Each conversation has a row with the
  # facts of its run so far, and each call that began has one. Of a call that began and has no result, nobody knows the
  # outcome; the others of its answer did not start.

  alias AshAgent.Context
  alias AshAgent.Runtime.{Outcome, Repeat}

  @facts [:context, :iterations, :usage, :cost, :sub_agents]

  @doc "Returns a new table, which ends with the calling process unless that has an heir for it."
  def new(heir \\ {:heir, :none}), do: :ets.new(__MODULE__, [:public, heir])

  @doc "Calls a function with the table of the runs around it, or with one of its own if that is `nil`."
  def with_table(nil, fun) do
    table = new()

    try do
      fun.(table)
    after
      :ets.delete(table)
    end
  end

  def with_table(table, fun), do: fun.(table)

  @doc "Deletes a table whose runs are over."
  def delete(table), do: :ets.delete(table)

  @doc "Notes the facts of a run so far. Of an outermost one that is in no session and has no sub-agents, nobody asks for them."
  def put_facts(%{outermost?: true, watch: nil, sub_agents: []}), do: :ok
  def put_facts(run), do: put(run.underway, {run.scope.context_id, Map.take(run, @facts)})

  @doc "Notes that a call begins. Outside of a run, nobody is told."
  def put_call(%{underway: table, context_id: of, conversation: context}, id),
    do: put(table, {{:call, of, context.current_iteration, id}})

  def put_call(_scope, _id), do: :ok

  # The owner may have ended just now, and the writer ends with it.
  defp put(table, row) do
    :ets.insert(table, row)
  rescue
    _ in ArgumentError -> false
  end

  @doc "Returns the facts of an outermost run so far, with those of its sub-agents that have not ended."
  def facts(table, id) do
    own = with [{_id, facts}] <- :ets.lookup(table, id), do: facts, else: ([] -> %{})
    cut = list_cut(table, id)
    facts = Map.merge(%{iterations: 0, usage: %{}, cost: nil, sub_agents: []}, own)
    cost = facts.cost && facts.cost + (sum(cut) || 0)
    %{facts | cost: cost, sub_agents: facts.sub_agents ++ Enum.flat_map(cut, & &1.contexts)}
  end

  defp sum(cut) do
    costs = for %{facts: %{cost: cost}} when cost != nil <- cut, do: cost
    if costs != [], do: Enum.sum(costs)
  end

  @doc """
  Lists the sub-agents of a conversation that have not ended, as maps with the `call`, the `facts` and the `contexts`, what their own
  sub-agents have come to included.
  """
  def list_cut(table, id) do
    rows = for {id, %{} = facts} <- :ets.tab2list(table), is_binary(id), do: {id, facts}

    ended =
      for {_id, facts} <- rows, context <- facts.sub_agents, into: %{}, do: {context[:id], 1}

    rows |> Enum.reject(fn {id, _facts} -> is_map_key(ended, id) end) |> list_children(table, id)
  end

  # As deep as sub-agents may be nested.
  defp list_children(rows, table, parent) do
    for {id, %{context: context} = facts} <- rows,
        %{parent_id: ^parent, tool_call_id: call} <- [context[:metadata]] do
      own = list_children(rows, table, id)
      {context, _unknown} = interrupt(table, context, "the run around it ended")
      contexts = [context | facts.sub_agents] ++ Enum.flat_map(own, & &1.contexts)
      %{call: call, facts: %{facts | cost: sum([%{facts: facts} | own])}, contexts: contexts}
    end
  end

  @doc "Adds what a sub-agent has come to that was killed to the outcome of its call."
  def add_cut(%Outcome{contexts: [], status: :error} = outcome, table, id, call) do
    case Enum.find(list_cut(table, id), &(&1.call == call)) do
      nil ->
        outcome

      %{facts: facts, contexts: contexts} ->
        metadata = {:sub_agents, note(facts, :interrupted)}
        %{outcome | metadata: metadata, contexts: contexts, cost: facts.cost || 0}
    end
  end

  def add_cut(outcome, _table, _id, _call), do: outcome

  @doc "The note of a sub-agent in the metadata of the results of its parent."
  def note(%{context: context, cost: cost} = facts, status) do
    note =
      %{id: context[:id], status: status} |> Map.merge(Map.take(facts, [:iterations, :usage]))

    if cost, do: Map.put(note, :cost, cost), else: note
  end

  @doc "Notes what killed sub-agents cost with the iteration of their calls, which have no results yet."
  def note_cut(context, cut) do
    number = context.current_iteration

    noted =
      case Context.get_iteration(context, number) do
        %{metadata: %{"sub_agents" => %{} = noted}} -> noted
        _none -> %{}
      end

    all = Map.merge(noted, notes(cut), fn _call, before, own -> add_spent(before, own) end)
    Context.put_iteration_metadata(context, number, "sub_agents", all)
  end

  # The same call may be cut in each of several lives.
  defp add_spent(before, own) do
    Map.merge(before, own, fn
      :cost, a, b -> a + b
      :usage, a, b -> Map.merge(a, b, fn _key, a, b -> a + b end)
      _key, _before, own -> own
    end)
  end

  defp notes(cut), do: Map.new(cut, &{&1.call, note(&1.facts, :interrupted)})

  @doc "Results of one answer share a message: its metadata has notes by key, and under each key a note of each by its call's id."
  def add_notes(_context, notes) when notes == %{}, do: []

  def add_notes(context, notes) do
    noted =
      case context |> Context.get_iteration_messages(context.current_iteration) |> List.last() do
        %{content: [%{type: :tool_result} | _], metadata: %{} = before} ->
          Map.take(before, Map.keys(notes))

        _ ->
          %{}
      end

    [metadata: Map.merge(noted, notes, fn _key, before, own -> Map.merge(before, own) end)]
  end

  @doc """
  Answers the pending calls of a run that is over, for a reason in words, and returns the context and the ids of the calls of which nobody
  knows the outcome: those that began, and those of `:unknown`. The others have not started, which their words say
  unless there are others, `:told`.
  """
  def interrupt(table, context, words, opts \\ []) do
    {unknown, opts} = Keyword.pop(opts, :unknown, [])
    {told, opts} = Keyword.pop(opts, :told, words <> "; the call was not started")
    id = context[:id]
    began? = &:ets.member(table, {:call, id, context.current_iteration, &1})
    pending = for %{id: call} <- Context.pending_tool_calls(context), do: call
    ids = Enum.filter(pending, &(&1 in unknown or began?.(&1)))
    {context |> add_stopped(table, id, ids, words) |> Context.interrupt(told, opts), ids}
  end

  defp add_stopped(context, _table, _id, [], _words), do: context

  defp add_stopped(context, table, id, ids, words) do
    cut = for %{call: call} = cut <- list_cut(table, id), call in ids, do: cut

    opts = if cut == [], do: [], else: add_notes(context, %{sub_agents: notes(cut)})
    results = for call <- ids, do: %{id: call, result: Repeat.make_stopped(words)}
    Context.add_tool_results(context, results, opts)
  end
end
