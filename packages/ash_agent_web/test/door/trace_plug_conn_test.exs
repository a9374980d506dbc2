defmodule AshAgent.Integration.TracePlugTest do
  # The plug with Plug itself.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Store}

  @moduletag :plug
  @moduletag integrations: ["Plug"]

  defp get(path, opts) do
    conn = apply(Plug.Test, :conn, [:get, path])
    AshAgent.Trace.Plug.call(conn, AshAgent.Trace.Plug.init(opts))
  end

  test "lists conversations and opens their pages" do
    {:ok, store} = Store.SQLite.open(":memory:")
    {:ok, _} = Store.create(store, Context.new("Where is it?", id: "user 17"))
    opts = [store: store, allow?: &match?(%{method: "GET"}, &1)]
    list = get("/admin/conversations", opts)
    assert {list.status, list.state} == {200, :sent}
    assert list.resp_body =~ ~s(href="?id=user+17")
    assert get("/admin/conversations?id=user+17", opts).resp_body =~ "Where is it?"
    assert get("/", allow?: fn _ -> false end).status == 403
    [policy] = apply(Plug.Conn, :get_resp_header, [list, "content-security-policy"])
    assert policy =~ "default-src 'none'"
  end
end
