defmodule AshAgent.Sessions.Overview do
  @moduledoc false

  # What the conversations of a store do, in rows and in lines for a terminal. Texts are shown only if they are asked for, and what
  # others have written never controls the terminal.

  alias AshAgent.{Context, Options, Prices, Store}
  alias AshAgent.Runtime.Tool
  alias AshAgent.Session.Parked
  alias AshAgent.Trace.Stored

  @statuses Store.Conversation.statuses()
  @shown @statuses -- [:idle]

  @schema Options.schema([
            {:status, {:or, [{:in, @statuses}, {:list, {:in, @statuses}}]},
             [type_doc: "a status or a list of them", default: @shown],
             "only those of this status."},
            {:limit, :pos_integer, [default: 100], "how many, those that changed last."},
            {:texts, :boolean, [default: false],
             "whether rows have the newest messages as `:text`, masked and with control characters made visible, and failures " <>
               "their `:message`."}
          ]) ++ Prices.schema()

  def schema, do: @schema

  @doc "Returns `{:ok, rows}`, or the store's error."
  def list(store, opts) do
    with {:ok, %{conversations: found}} <-
           Store.list(store, Keyword.take(opts, [:status, :limit])),
         do: {:ok, Enum.flat_map(found, &row(store, &1, opts))}
  end

  # One that was deleted in the meantime has no row.
  defp row(store, kept, opts) do
    case Store.fetch(store, kept.id) do
      {:ok, %{value: shown} = kept} ->
        [describe(store, kept, Stored.active(shown), opts)]

      {:error, :not_found} ->
        []

      {:error, error} ->
        own = %{error: Exception.message(error), parked: find_parked(store, kept)}
        [put_known(own, kept)]
    end
  end

  @unknown Map.new(~w(since age iterations cost failure parked error)a, &{&1, nil})
           |> Map.merge(%{failures: 0, calls: [], late: [], prompts: 0})

  defp put_known(row, kept),
    do: @unknown |> Map.merge(row) |> Map.merge(Map.take(kept, ~w(id status owner updated_at)a))

  defp describe(store, kept, context, opts) do
    since = Context.get_iteration(context, Context.turn_start(context))[:started_at]
    failure = List.last(Context.Audit.failures(context))
    {:ok, waiting} = with {:error, _reason} <- Store.waiting(store, kept.id), do: {:ok, []}

    shown =
      if opts[:texts],
        do: %{failure: failure, text: Stored.print_text(context, limit: 2, width: 120)},
        else: %{failure: failure && Map.delete(failure, :message)}

    context
    |> Stored.describe(kept.status, kept.updated_at, opts[:prices])
    |> Map.merge(%{
      since: since,
      age: since && max(DateTime.diff(DateTime.utc_now(), since, :millisecond), 0),
      calls: for(call <- Context.Calls.asked_tool_calls(context), do: Tool.name(call.name)),
      late: for(call <- Context.Calls.late_calls(context, :open), do: Tool.name(call.name)),
      prompts: length(waiting),
      parked: find_parked(store, kept)
    })
    |> Map.merge(shown)
    |> put_known(kept)
  end

  defp find_parked(store, kept) do
    with {:ok, %{reason: %{reason: reason}}} <- Parked.fetch(store, kept),
         do: Tool.name(reason),
         else: (_unknown -> nil)
  end

  @doc "Returns a row in a line, with its text in those after it."
  def line(row) do
    words = [
      row.age && "for " <> age(row.age),
      row.parked && "parked: #{row.parked}",
      row.calls != [] && "waits for a decision: " <> Enum.map_join(row.calls, ", ", &visible/1),
      row.late != [] && "waits for results: " <> Enum.map_join(row.late, ", ", &visible/1),
      row.prompts > 0 && "messages that wait: #{row.prompts}",
      row.iterations && "iterations: #{row.iterations}",
      row.cost && Stored.format_cost(row.cost),
      row.failure && "failed last: " <> failure(row.failure),
      row.owner && "on " <> visible(hd(String.split(row.owner, " "))),
      row.error && visible(row.error)
    ]

    line = "#{String.pad_trailing("#{row.status}", 8)} #{visible(row.id)}  "
    Enum.join([line <> Enum.join(Enum.filter(words, & &1), ", ") | List.wrap(row[:text])], "\n")
  end

  defp failure(failure) do
    facts =
      for key <- [:part, :status, :code, :message], failure[key], do: visible("#{failure[key]}")

    "#{failure.kind}" <> if(facts == [], do: "", else: " (" <> Enum.join(facts, ", ") <> ")")
  end

  @units [d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000]

  defp age(ms) do
    {unit, length} = Enum.find(@units, {:s, 1_000}, fn {_unit, length} -> ms >= length end)
    "#{div(ms, length)}#{unit}"
  end

  @hidden ~r/[^ -~\p{L}\p{N}]/u

  # Ids, names and words of servers.
  defp visible(text) do
    if String.valid?(text) and not (text =~ @hidden),
      do: text,
      else: text |> inspect(binaries: :as_strings) |> String.replace(@hidden, &escape/1)
  end

  defp escape(<<code::utf8>>), do: "\\u{#{Integer.to_string(code, 16)}}"
end
