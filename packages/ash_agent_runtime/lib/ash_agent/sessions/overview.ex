defmodule AshAgent.Sessions.Overview do
  @moduledoc false

  # What the conversations of a store do, in rows and in lines for a terminal. Texts are shown only if they are asked for, and what
  # others have written never controls the terminal.

  alias AshAgent.{Context, Options, Prices, Store}
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
      {:ok, %{value: shown} = kept} -> [describe(store, kept, Stored.active(shown), opts)]
      {:error, :not_found} -> []
      {:error, error} -> [Map.merge(kept(kept), %{error: Exception.message(error)})]
    end
  end

  @unknown Map.new(~w(since age cost failure parked error)a, &{&1, nil})

  defp kept(kept) do
    known = Map.take(kept, [:id, :status, :owner, :updated_at])

    @unknown
    |> Map.merge(%{iterations: nil, failures: 0, calls: [], prompts: 0})
    |> Map.merge(known)
  end

  defp describe(store, kept, context, opts) do
    counts = Stored.describe(context, kept.status, kept.updated_at, opts[:prices])
    %{started_at: since} = Context.get_iteration(context, Context.turn_start(context))
    failure = List.last(Context.Audit.failures(context))

    known = %{
      since: since,
      age: max(DateTime.diff(DateTime.utc_now(), since, :millisecond), 0),
      failure: if(opts[:texts], do: failure, else: failure && Map.delete(failure, :message)),
      calls: for(call <- Context.Calls.asked_tool_calls(context), do: to_string(call.name)),
      prompts:
        with(
          {:ok, messages} <- Store.waiting(store, kept.id),
          do: length(messages),
          else: (_ -> 0)
        ),
      parked: if(kept.status == :parked, do: find_parked(store, kept))
    }

    row = kept |> kept() |> Map.merge(Map.delete(counts, :id)) |> Map.merge(known)

    if opts[:texts],
      do: Map.put(row, :text, newest(context)),
      else: row
  end

  defp newest(context) do
    {:ok, device} = StringIO.open("")
    Context.print(context, device: device, limit: 2, width: 120, color: false)
    {:ok, {_input, text}} = StringIO.close(device)
    text
  end

  # The write that parked it may not be the last one: messages wait.
  defp find_parked(store, kept) do
    with {:ok, writes} <- Store.history(store, kept.id),
         do: writes |> Enum.reverse() |> Enum.find_value(&get_in(&1, [:note, :parked, :reason])),
         else: (_error -> nil)
  end

  @doc "Returns a row in a line, with its text in those after it."
  def line(row) do
    words = [
      row.age && "for " <> age(row.age),
      row.parked && "parked: #{row.parked}",
      row.calls != [] && "waits for a decision: " <> Enum.map_join(row.calls, ", ", &visible/1),
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

  # Ids, names and words of servers.
  defp visible(text) do
    if String.printable?(text) and not (text =~ ~r/[^[:ascii:]\p{L}\p{N}]/u),
      do: text,
      else:
        inspect(text, binaries: :as_strings)
        |> String.replace(~r/[^[:ascii:]\p{L}\p{N}]/u, &escape/1)
  end

  defp escape(<<code::utf8>>), do: "\\u{#{Integer.to_string(code, 16)}}"
end
