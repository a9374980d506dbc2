defmodule AshAgent.Trace.Plug do
  @moduledoc """
  A plug that lists conversations, including those that sessions are running now, and opens the page of each.

  In a router of Phoenix, after the plugs that log people in:

      scope "/admin" do
        pipe_through [:browser, :require_admin]
        forward "/conversations", AshAgent.Trace.Plug, store: &MyApp.store/0, sessions: MyApp.Sessions, allow?: &MyAppWeb.admin?/1
      end

  With Plug alone it is `forward "/conversations", to: AshAgent.Trace.Plug, init_opts: [...]`. It needs `:plug`, which every application with
  Phoenix has.

  The list shows the status of each conversation, when it changed, its iterations, its failed requests, its cost, the models that answered, how its
  last turn ended, and its tokens, as `AshAgent.Trace.Stored.list/2` has them, with the sums. Sessions
  of this node are shown live, even if nothing is stored, and other conversations as they were last written. Nothing is
  claimed, started or changed. The pages have neither forms nor scripts, except for a conversation's own page, see `AshAgent.Trace.to_html/2`.

  A model, an outcome and a day in the list are links to the conversations that have it. In the address, `model`, `outcome`, `day=2026-11-26` (UTC) and
  `above=0.5`, dollars, can be combined; anything else there is the status 400. The sums are of all that were found among the `:most` that changed last, or
  that could be looked at in five seconds; the page says how many it looked at. What has no known cost is counted apart.

  `?id=ID&format=csv` is the account of a conversation, see `AshAgent.Trace.to_csv/2`.

  Conversations are private, so `:allow?` is required and called for each request; without permission, the status is 403.

  ## Options
  """

  use AshAgent.Arguments

  alias AshAgent.{Options, Prices, Session, Sessions, Store, Trace}
  alias AshAgent.Runtime.Ended
  alias AshAgent.Trace.Stored

  @compile {:no_warn_undefined, Plug.Conn}

  @schema Options.schema([
            {:allow?, {:fun, 1}, [required: true],
             "gets the `Plug.Conn` and returns whether who asks may read all conversations."},
            {:store, :any, [type_doc: "a store or a function of arity 0"],
             "the `AshAgent.Store` whose conversations are shown. Defaults to none."},
            {:sessions, {:or, [:atom, {:fun, 0}]},
             [type_doc: "a name or a function of arity 0", default: nil],
             "the name of an `AshAgent.Sessions`, or a function that returns a list of sessions. Defaults to none."},
            {:limit, :pos_integer, [default: 50],
             "how many stored conversations are listed, those that changed last."},
            {:most, :pos_integer, [default: 500],
             "how many stored conversations are looked at for a list with filters."}
          ]) ++ Prices.schema()

  @moduledoc @moduledoc <> Options.docs(@schema)

  @filters ~w(model outcome day above)
  @valid "<p>Expected model to be a name, outcome one of #{Enum.join(Ended.outcomes(), ", ")}, day a date such as 2026-11-26, and " <>
           "above an amount of dollars such as 0.5.</p>"

  # A session that is just storing replies after that.
  @patience 2_000

  @style "body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem;color:#1c1c1a;background:#fbfbfa}" <>
           "table{border-collapse:collapse}td,th{text-align:left;padding:.25rem 1rem .25rem 0;border-bottom:1px solid #dcdcd6}" <>
           "td:nth-child(n+4),th:nth-child(n+4){text-align:right}.failed{color:#b3261e}a{color:#1d5fa8}"

  @policy "default-src 'none'; style-src 'sha256-#{Base.encode64(:crypto.hash(:sha256, @style))}'; base-uri 'none'; " <>
            "form-action 'none'; frame-ancestors 'self'"

  @doc """
  Checks the options.

  ## Examples

      iex> AshAgent.Trace.Plug.init(store: :nowhere)
      ** (ArgumentError) required option :allow? not given: expected a function of arity 1
  """
  @doc since: "0.1.0"
  @spec init(keyword()) :: keyword()
  def init(opts), do: Options.validate!(opts, @schema)

  @doc """
  Answers a request: the list, or with `?id=ID` the page of a conversation.

  ## Examples

      conn |> AshAgent.Trace.Plug.call(AshAgent.Trace.Plug.init(store: store, allow?: &admin?/1))
  """
  @doc since: "0.1.0"
  @spec call(struct(), keyword()) :: struct()
  def call(conn, checked) when is_map(conn) and is_list(checked) do
    {status, body, policy} = answer(conn, checked)
    {type, body} = with {:csv, rows} <- body, do: {"csv", rows}, else: (html -> {"html", html})

    headers = [
      {"content-type", "text/#{type}; charset=utf-8"},
      {"content-security-policy", policy},
      {"cache-control", "no-store"},
      {"referrer-policy", "no-referrer"},
      {"x-content-type-options", "nosniff"}
    ]

    put = fn {name, value}, conn -> Plug.Conn.put_resp_header(conn, name, value) end
    headers |> Enum.reduce(conn, put) |> Plug.Conn.send_resp(status, body)
  end

  defp answer(%{method: method}, _opts) when method not in ["GET", "HEAD"],
    do: page(405, "Only GET is allowed", [])

  defp answer(conn, opts) do
    if opts[:allow?].(conn) == true,
      do: show(query(conn.query_string), opts),
      else: page(403, "Nobody has allowed this", [])
  end

  defp query(string) do
    URI.decode_query(string)
  rescue
    ArgumentError -> %{}
  end

  ## A conversation

  defp show(%{"id" => id, "format" => "csv"}, opts) do
    running = Enum.find(list_running(opts), &(&1.id == id))
    fetch = fn -> show_stored(id, opts, &Store.fetch/2, &csv(&1.value, id, opts)) end
    if running, do: csv(running.shown, id, opts), else: fetch.()
  end

  defp show(%{"id" => id}, opts) do
    case Enum.find(list_running(opts), &(&1.id == id)) do
      nil -> show_stored(id, opts, &Stored.to_html(&1, &2, prices: opts[:prices]), &html/1)
      %{shown: context} -> html(Trace.to_html(context, title: id, prices: opts[:prices]))
    end
  end

  defp show(query, opts) do
    query = for name <- @filters, query[name] not in [nil, ""], into: %{}, do: {name, query[name]}
    # The module that reads the filters, and has their names, may not be loaded yet.
    filters = for {name, text} <- query, do: {String.to_atom(name), read(name, text)}

    with false <- Enum.any?(filters, &match?({_name, nil}, &1)),
         running = Enum.filter(list_running(opts), &Stored.meets?(&1, filters)),
         {:ok, stored, looked} <- find_stored(filters ++ opts) do
      ids = for row <- running, do: row.id
      rows = running ++ Enum.reject(stored, &(&1.id in ids))
      rows = Enum.sort_by(rows, & &1.updated_at, {:desc, DateTime})
      shown = Enum.take(rows, opts[:limit] + length(running))
      page(200, "Conversations", [sums(rows, looked, query), table(shown, query, opts)])
    else
      true -> page(400, "The address has a filter that is not valid", @valid)
      {:error, error} -> show_failure(error)
    end
  end

  defp read("model", text), do: if(String.valid?(text) and byte_size(text) <= 800, do: text)
  defp read("outcome", text), do: Enum.find(Ended.outcomes(), &(Atom.to_string(&1) == text))

  # The next day is one, too.
  defp read("day", text) do
    with {:ok, day} <- Date.from_iso8601(text),
         do: if(day.year in 1..9998, do: day),
         else: (_ -> nil)
  end

  defp read("above", text) do
    with [_, whole | rest] <- Regex.run(~r/\A(\d{1,6})(?:\.(\d{1,12}))?\z/, text),
         do: String.to_integer(whole <> String.pad_trailing(Enum.join(rest), 12, "0"))
  end

  defp show_failure(error),
    do: page(503, "The store did not answer", ["<p>", escape(Exception.message(error)), "</p>"])

  defp show_stored(id, opts, fetch, show) do
    with true <- String.valid?(id) and opts[:store] != nil,
         {:ok, found} <- fetch.(store(opts), id) do
      show.(found)
    else
      {:error, %Store.Error{} = error} -> show_failure(error)
      _nothing -> page(404, "There is no such conversation", [])
    end
  end

  # The page has its own policy, which cannot name the sites that may frame it.
  defp html(page), do: {200, page, "frame-ancestors 'self'"}

  defp csv(shown, id, opts),
    do: {200, {:csv, Trace.to_csv(shown, id: id, prices: opts[:prices])}, @policy}

  ## What there is

  defp store(opts), do: if(is_function(opts[:store], 0), do: opts[:store].(), else: opts[:store])

  defp find_stored(opts),
    do: if(opts[:store], do: Stored.find(store(opts), opts), else: {:ok, [], 0})

  defp list_running(opts) do
    sessions =
      case opts[:sessions] do
        nil -> []
        fun when is_function(fun) -> fun.()
        name -> Sessions.list_sessions(name)
      end

    limits = [ordered: false, timeout: @patience, on_timeout: :kill_task]

    for {:ok, rows} <- Task.async_stream(sessions, &look(&1, opts[:prices]), limits),
        row <- rows,
        do: row
  end

  # One that ends meanwhile is not shown.
  defp look(session, prices) do
    status = Session.status(session)
    context = Session.context(session)
    status = if is_tuple(status), do: elem(status, 0), else: status
    row = Stored.describe(context, status, context[:updated_at], prices)
    [row |> Stored.add_requests(context, prices) |> Map.put(:shown, context)]
  catch
    :exit, _reason -> []
  end

  ## HTML

  defp page(status, title, body) do
    head =
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>#{title}</title><style>#{@style}</style></head>"

    {status, [head, "<body><h1>#{title}</h1>", body, "</body></html>"], @policy}
  end

  # All that were found, with what is not known apart.
  defp sums(rows, looked, query) do
    sum = fn numbers -> numbers |> Enum.filter(& &1) |> Enum.sum() end

    [input, output] =
      for name <- [:input_tokens, :output_tokens], do: sum.(Enum.map(rows, & &1.usage[name]))

    unknown = Enum.count(rows, &(&1.cost == nil or &1.usage[:unpriced] != nil))
    cost = rows |> Enum.map(& &1.cost) |> sum.() |> Stored.format_cost()
    apart = if unknown > 0, do: ", and what #{unknown} of them cost is not known", else: ""
    found = "#{length(rows)} found, among #{looked} stored ones and those in sessions: "
    words = "#{found}#{cost}#{apart}; #{input} tokens in, #{output} out"

    chosen =
      for {name, text} <- query,
          do: [" · ", link(Map.delete(query, name), "not only #{name} #{text}")]

    ["<p>", words, chosen, "</p>"]
  end

  @heads String.split(
           "Conversation,Status,Changed (UTC),Iterations,Failed requests,Cost,Models,Last turn,Day",
           ","
         ) ++
           ["Tokens in", "Tokens out", "Account"]

  defp table(rows, query, opts) do
    heads = for head <- @heads, do: ["<th scope=\"col\">", head, "</th>"]
    plain = if opts[:prices] == [], do: 5, else: 6
    # What was always there, and what has been added since.
    tags = List.duplicate("<td>", plain) ++ List.duplicate("<td class=\"more\">", 12 - plain)

    cells = fn row ->
      for {tag, cell} <- Enum.zip(tags, cells(row, query)), do: [tag, cell, "</td>"]
    end

    rows = for row <- rows, do: ["<tr>", cells.(row), "</tr>"]
    ["<table><thead><tr>", heads, "</tr></thead><tbody>", rows, "</tbody></table>"]
  end

  defp cells(row, query) do
    session = if Map.has_key?(row, :shown), do: ", in a session", else: ""
    at = row.updated_at |> DateTime.truncate(:second) |> DateTime.to_naive()
    failed = if row.failures > 0, do: " class=\"failed\"", else: ""
    choose = fn name, value -> link(Map.put(query, name, value), to_string(value)) end

    [
      link(%{id: row.id}, row.id),
      "#{row.status}#{session}",
      to_string(at),
      to_string(row.iterations),
      ["<span", failed, ">", to_string(row.failures), "</span>"],
      Stored.format_cost(row.cost),
      row.models |> Enum.map(&choose.("model", &1)) |> Enum.intersperse(", "),
      if(row.outcome, do: choose.("outcome", row.outcome), else: ""),
      choose.("day", DateTime.to_date(row.updated_at)),
      to_string(row.usage[:input_tokens]),
      to_string(row.usage[:output_tokens]),
      link(%{id: row.id, format: "csv"}, "CSV")
    ]
  end

  defp link(query, words),
    do: ["<a href=\"?", escape(URI.encode_query(query)), "\">", escape(words), "</a>"]

  # Characters that are not seen, or turn a text round, would make another id of an id.
  defp escape(text) do
    text
    |> String.replace(~r/[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/u, "\uFFFD")
    |> String.replace("&", "&amp;")
    |> String.replace("<", "&lt;")
    |> String.replace(">", "&gt;")
    |> String.replace("\"", "&quot;")
  end
end
