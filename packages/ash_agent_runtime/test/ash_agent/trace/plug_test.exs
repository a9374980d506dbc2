defmodule AshAgent.Trace.PlugTest do
  # Without Plug, a stand-in for the two functions of it that are called is loaded for the whole VM. With it, see test/integration.
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
    conn = %{method: method, query_string: query, resp_headers: []}
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
