defmodule AshAgent.Trace.PlugTest do
  # Without Plug, a stand-in for the two functions of it that are called is loaded for the whole VM.
  use ExUnit.Case, async: false

  alias AshAgent.{Context, LLM, Session, Store}
  alias AshAgent.TestSupport.StreamModel

  defmodule Refusing do
    use AshAgent.Store.Relational
    defstruct []
    @impl true
    def dialect, do: :sqlite
    @impl true
    def run(_store, _key, _operation, _params), do: {:error, %Store.Error{reason: :closed}}
    @impl true
    def read(_store, _key, _query, _params), do: {:error, %Store.Error{reason: :closed}}
  end

  @at ~U[2026-01-01 10:00:00.000000Z]
  @prices [%{model: :any, input: 1_000_000, output: 1_000_000}]

  doctest AshAgent.Trace.Plug, except: [call: 2]

  unless Code.ensure_loaded?(Plug.Conn) do
    setup_all do
      quoted =
        quote do
          def put_resp_header(conn, name, value),
            do: Map.update!(conn, :resp_headers, &[{name, value} | &1])

          def send_resp(conn, status, body),
            do: Map.merge(conn, %{status: status, resp_body: IO.iodata_to_binary(body)})
        end

      Module.create(Plug.Conn, quoted, Macro.Env.location(__ENV__))

      on_exit(fn ->
        :code.purge(Plug.Conn)
        :code.delete(Plug.Conn)
      end)
    end
  end

  defp get(query, opts, method \\ "GET") do
    conn =
      if Code.ensure_loaded?(Plug.Test),
        do: apply(Plug.Test, :conn, [method, "/?" <> query]),
        else: %{method: method, query_string: query, resp_headers: []}

    opts = AshAgent.Trace.Plug.init(Keyword.put_new(opts, :allow?, fn _conn -> true end))
    AshAgent.Trace.Plug.call(conn, opts)
  end

  defp store(contexts) do
    {:ok, store} = Store.SQLite.open(":memory:")
    for context <- contexts, do: {:ok, _} = Store.create(store, context)
    store
  end

  defp rows(conn) do
    for [_, row] <- Regex.scan(~r{<tr>(<td>.*?)</tr>}s, conn.resp_body) do
      for [_, cell] <- Regex.scan(~r{<td>(.*?)</td>}s, row),
          do: String.replace(cell, ~r/<[^>]*>/, "")
    end
  end

  test "lists what is stored, with status, failures and money, and opens it" do
    failed = Context.new("Pay", id: "user-17")
    failed = Context.Audit.add_failure(failed, %{kind: :overloaded}, at: @at)

    answered =
      Context.new("Hi", id: "user-18")
      |> Context.add_assistant_message("Hello!")
      |> Context.Tokens.add_token_usage(%{input_tokens: 900, output_tokens: 100})

    opts = [store: store([failed, answered]), prices: @prices]
    list = get("", opts)
    assert list.status == 200

    assert [second, first] = list |> rows() |> Enum.sort(:desc)
    assert ["user-18", "idle", _, "1", "0", "$0.0010"] = second
    assert ["user-17", "idle", _, "1", "1", "$0.0000"] = first
    assert list.resp_body =~ ~s(<a href="?id=user-17">)
    page = get("id=user-17", opts)
    assert page.status == 200 and page.resp_body =~ "overloaded"
    assert get("id=nobody", opts).status == 404
    assert {"cache-control", "no-store"} in page.resp_headers
  end

  test "shows what a session runs as it is at this moment, also where nothing is stored" do
    test = self()

    llm =
      StreamModel.new(fn _context, feed ->
        send(test, {:asked, self()})
        receive do: (:go -> StreamModel.say(feed, ["There."]))
      end)

    {:ok, session} = Session.start_link(llm: llm)
    id = Session.context(session)[:id]
    {:ok, _ref} = Session.prompt_async(session, "Where is the treasure?")
    assert_receive {:asked, model}
    gone = spawn(fn -> :ok end)
    opts = [sessions: fn -> [session, gone] end]
    assert [[^id, "running, in a session", _, "1", "0"]] = rows(get("", opts))
    assert get("id=#{id}", opts).resp_body =~ "Where is the treasure?"
    # The session's own state counts where it is stored as well.
    both = Keyword.put(opts, :store, store([Context.new("Old", id: id)]))
    assert [[^id, "running, in a session", _, "1", "0"]] = rows(get("", both))
    assert get("id=#{id}", both).resp_body =~ "treasure"
    send(model, :go)
  end

  test "finds the sessions of a node by their name" do
    opts = [name: __MODULE__.Sessions, store: store([]), llm: LLM.Scripted.new(["Hello!"])]
    start_supervised!({AshAgent.Sessions, opts})
    {:ok, _} = AshAgent.Sessions.prompt(__MODULE__.Sessions, "c1", "Hi")

    rows = rows(get("", sessions: __MODULE__.Sessions))
    assert [["c1", "idle, in a session", _, "1", "0"]] = rows
  end

  describe "the money of conversations" do
    # Each conversation with its model, what it costs in 10^-12 dollars, and how its turn ended.
    @turns [
      {"cheap", "m", 1_000_000_000, :answered},
      {"dear", "m", 700_000_000_000, :length},
      {"other", "<b>\u202e&\"", 20_000_000_000, :answered},
      {"unknown", "free", nil, :answered}
    ]

    defp paid do
      store = store([])

      for {id, model, cost, outcome} <- @turns do
        prices = [
          %{model: "m", input: 1, output: 1},
          %{model: "<b>\u202e&\"", input: 1, output: 1}
        ]

        answer = %{
          content: "x",
          model: model,
          usage: %{input_tokens: cost || 5, output_tokens: 0}
        }

        answer = if outcome == :length, do: Map.put(answer, :finish_reason, :length), else: answer
        {:ok, kept} = Store.create(store, Context.new("Hi", id: id))
        {:ok, kept} = Store.claim(store, kept.id, owner: "r", lease: 60_000)
        opts = [llm: fn _ -> {:ok, answer} end, prices: prices, store: store, kept: kept]
        {:ok, %{kept: kept}} = AshAgent.Runtime.run(kept.value, opts)
        {:ok, _} = Store.release(store, kept)
      end

      store
    end

    defp found(query, opts) do
      conn = get(query, opts)
      assert conn.status == 200
      ids = for [_, id] <- Regex.scan(~r/<td><a href="\?id=([^"&]*)">/, conn.resp_body), do: id
      [_, sums] = Regex.run(~r{<p>(.*?)</p>}s, conn.resp_body)
      {Enum.sort(ids), sums}
    end

    test "is found by model, outcome, day and cost, with the sums of what was found" do
      store = paid()
      {:ok, kept} = Store.fetch(store, "cheap")
      day = Date.to_iso8601(DateTime.to_date(kept.updated_at))
      model = URI.encode_query(model: "<b>\u202e&\"")

      for {query, ids, cost, apart?} <- [
            {"", ~w(cheap dear other unknown), "$0.7210", true},
            {"model=m", ~w(cheap dear), "$0.7010", false},
            {"model=m&outcome=length", ~w(dear), "$0.7000", false},
            {"outcome=answered", ~w(cheap other unknown), "$0.0210", true},
            {"above=0.01", ~w(dear other), "$0.7200", false},
            {"above=0.02", ~w(dear), "$0.7000", false},
            {"day=#{day}&above=0", ~w(cheap dear other), "$0.7210", false},
            {"day=2001-01-01", [], "$0.0000", false},
            {"model=none&day=", [], "$0.0000", false},
            {model, ~w(other), "$0.0200", false}
          ] do
        assert {^ids, sums} = found(query, store: store)
        assert sums =~ cost
        assert sums =~ "is not known" == apart?
      end

      {_ids, sums} = found("outcome=answered", store: store)
      assert sums =~ "3 found"
      assert sums =~ "21000000005 tokens in"
      # What was paid counts, and not what it would cost now; where nothing was paid, that does.
      {_ids, sums} = found("", store: store, prices: [%{model: :any, input: 2, output: 2}])
      assert sums =~ "$0.7210"
      refute sums =~ "is not known"
    end

    test "a fork counts once" do
      store = paid()
      {:ok, kept} = Store.fetch(store, "dear")
      context = Context.add_user_message(kept.value, "And?")
      {:ok, _} = Store.create(store, Context.fork(context, id: "fork"))
      {_ids, sums} = found("", store: store, prices: [%{model: :any, input: 0, output: 0}])
      assert sums =~ "5 found"
      assert sums =~ "$0.7210"
    end

    test "is looked for among so many" do
      store = paid()
      assert {_ids, "2 found, among 2 stored" <> _} = found("", store: store, limit: 2)
      assert {[_], sums} = found("above=0", store: store, limit: 1)
      assert sums =~ "3 found, among 4 stored"
      assert {_, sums} = found("above=0", store: store, most: 2)
      assert sums =~ "among 2 stored"
    end

    test "links to what it shows, and escapes all of it" do
      store = paid()
      page = get("model=" <> URI.encode_www_form(~s(<script>"&\u202e)), store: store).resp_body
      refute page =~ "<script" or page =~ "\u202e"
      page = get("", store: store).resp_body
      refute page =~ "<b>" or page =~ "\u202e"

      for [_, query] <- Regex.scan(~r/href="\?([^"]*)"/, page),
          do: assert(get(String.replace(query, "&amp;", "&"), store: store).status == 200)
    end

    test "takes no filter that is not one" do
      for query <- [
            "day=yesterday",
            "day=2026-13-01",
            "day=9999-12-31",
            "day=-0001-01-01",
            "above=-1",
            "above=1e9",
            "above=1.1234567890123",
            "above=x",
            "outcome=SECRET",
            "model=%ff",
            "model=" <> String.duplicate("m", 801)
          ] do
        page = get(query, store: paid())
        assert page.status == 400
        refute page.resp_body =~ "SECRET"
        assert page.resp_body =~ "2026-11-26"
      end
    end

    test "the account of one is CSV" do
      store = store([Context.new("x", id: "=1")])
      price = [%{model: :any, input: 1, output: 1}]
      assert get("id=nobody&format=csv", store: store).status == 404
      csv = get("id=dear&format=csv", store: paid(), prices: price)
      assert {"content-type", "text/csv; charset=utf-8"} in csv.resp_headers
      assert [header, line, ""] = String.split(csv.resp_body, "\r\n")
      assert header =~ "verdict,cause,cost_usd"
      assert line =~ ~s("dear",1,) and line =~ "0.700000000000"

      {:ok, session} =
        Session.start_link(llm: LLM.Scripted.new([%{content: "x", usage: %{input_tokens: 9}}]))

      {:ok, _} = Session.prompt(session, "Hi")
      id = Session.context(session)[:id]
      csv = get("id=#{id}&format=csv", sessions: fn -> [session] end)
      assert [_header, _line, ""] = String.split(csv.resp_body, "\r\n")
      assert get("id=dear&format=csv", store: paid(), allow?: fn _ -> false end).status == 403
    end
  end

  test "is closed unless the application opens it, and only reads" do
    opts = [store: store([Context.new("SECRET", id: "SECRET")])]
    assert_raise ArgumentError, ~r/:allow\?/, fn -> AshAgent.Trace.Plug.init(opts) end

    for allow? <- [fn _ -> false end, fn _ -> nil end, fn _ -> :yes end],
        query <- ["", "id=SECRET"] do
      conn = get(query, [allow?: allow?] ++ opts)
      assert conn.status == 403
      refute conn.resp_body =~ "SECRET"
    end

    assert get("", opts, "POST").status == 405
  end

  test "makes nothing of what an id says" do
    id = ~s["><script>alert(1)</script>\u202e\u200b&]
    opts = [store: store([Context.new("Hi", id: id)])]
    list = get("", opts)
    refute list.resp_body =~ "<script" or list.resp_body =~ "\u202e"
    [_, link] = Regex.run(~r/href="\?([^"]*)"/, list.resp_body)
    assert get(String.replace(link, "&amp;", "&"), opts).status == 200
    {_, policy} = List.keyfind(list.resp_headers, "content-security-policy", 0)
    assert policy =~ "default-src 'none'" and not (policy =~ "script-src")
    assert get("id=%ff%ZZ", opts).status in [200, 404]
    assert get("%", opts).status == 200
  end

  test "says when the store does not answer" do
    store = %Refusing{}
    for query <- ["", "id=c1"], do: assert(get(query, store: store).status == 503)
  end
end
