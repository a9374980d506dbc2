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

  The list shows the status of each conversation, when it changed, its iterations, its failed requests, and with `:prices` its cost. Sessions
  of this node are shown live, even if nothing is stored, and other conversations as they were last written. Nothing is
  claimed, started or changed. The pages have neither forms nor scripts, except for a conversation's own page, see `AshAgent.Trace.to_html/2`.

  Conversations are private, so `:allow?` is required and called for each request; without permission, the status is 403.

  ## Options
  """

  use AshAgent.Arguments

  alias AshAgent.{Options, Prices, Session, Sessions, Store, Trace}
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
             "how many stored conversations are listed, those that changed last."}
          ]) ++ Prices.schema()

  @moduledoc @moduledoc <> Options.docs(@schema)

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
    {status, html, policy} = answer(conn, checked)

    headers = [
      {"content-type", "text/html; charset=utf-8"},
      {"content-security-policy", policy},
      {"cache-control", "no-store"},
      {"referrer-policy", "no-referrer"},
      {"x-content-type-options", "nosniff"}
    ]

    put = fn {name, value}, conn -> Plug.Conn.put_resp_header(conn, name, value) end
    headers |> Enum.reduce(conn, put) |> Plug.Conn.send_resp(status, html)
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

  defp show(%{"id" => id}, opts) do
    case Enum.find(list_running(opts), &(&1.id == id)) do
      nil ->
        show_stored(id, opts)

      %{shown: context} ->
        {200, Trace.to_html(context, title: id, prices: opts[:prices]), frame_policy()}
    end
  end

  defp show(_query, opts) do
    running = list_running(opts)

    case list_stored(opts) do
      {:ok, stored} ->
        ids = for row <- running, do: row.id
        rows = running ++ Enum.reject(stored, &(&1.id in ids))
        rows = Enum.sort_by(rows, & &1.updated_at, {:desc, DateTime})
        page(200, "Conversations", table(rows, opts))

      {:error, error} ->
        show_failure(error)
    end
  end

  defp show_failure(error),
    do: page(503, "The store did not answer", ["<p>", escape(Exception.message(error)), "</p>"])

  defp show_stored(id, opts) do
    with true <- String.valid?(id) and opts[:store] != nil,
         {:ok, html} <- Stored.to_html(store(opts), id, prices: opts[:prices]) do
      {200, html, frame_policy()}
    else
      {:error, %Store.Error{} = error} -> show_failure(error)
      _nothing -> page(404, "There is no such conversation", [])
    end
  end

  # The page has its own policy, which cannot name the sites that may frame it.
  defp frame_policy, do: "frame-ancestors 'self'"

  ## What there is

  defp store(opts), do: if(is_function(opts[:store], 0), do: opts[:store].(), else: opts[:store])

  defp list_stored(opts) do
    if opts[:store],
      do: Stored.list(store(opts), Keyword.take(opts, [:limit, :prices])),
      else: {:ok, []}
  end

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
    [Map.put(Stored.describe(context, status, context[:updated_at], prices), :shown, context)]
  catch
    :exit, _reason -> []
  end

  ## HTML

  defp page(status, title, body) do
    head =
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>#{title}</title><style>#{@style}</style></head>"

    {status, [head, "<body><h1>#{title}</h1>", body, "</body></html>"], @policy}
  end

  defp table(rows, opts) do
    heads = ["Conversation", "Status", "Changed (UTC)", "Iterations", "Failed requests"]
    heads = if opts[:prices] != [], do: heads ++ ["Cost"], else: heads
    heads = for head <- heads, do: ["<th scope=\"col\">", head, "</th>"]

    rows = Enum.map(rows, &row(&1, opts))
    ["<table><thead><tr>", heads, "</tr></thead><tbody>", rows, "</tbody></table>"]
  end

  defp row(row, opts) do
    link = ["<a href=\"?", escape(URI.encode_query(id: row.id)), "\">", escape(row.id), "</a>"]

    status =
      if Map.has_key?(row, :shown), do: "#{row.status}, in a session", else: "#{row.status}"

    at = row.updated_at |> DateTime.truncate(:second) |> DateTime.to_naive() |> to_string()

    failures =
      if row.failures > 0, do: ["<span class=\"failed\">#{row.failures}</span>"], else: "0"

    cells = [link, status, at, to_string(row.iterations), failures]
    cells = if opts[:prices] != [], do: cells ++ [Stored.format_cost(row.cost)], else: cells
    ["<tr>", for(cell <- cells, do: ["<td>", cell, "</td>"]), "</tr>"]
  end

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
