defmodule AshAgent.Door.PlugTest do
  # The plug with Plug itself, which is not there where the other tests of doors run.
  use ExUnit.Case, async: true

  import AshAgent.Door.Asks

  alias AshAgent.Context.JSON
  alias AshAgent.Door
  alias AshAgent.Door.Play

  @moduletag :plug
  @moduletag :capture_log
  @moduletag integrations: ["Plug"]

  setup_all do
    {:ok, _} = Play.sessions(__MODULE__)
    origin = "http://127.0.0.1:#{port()}"

    identify = fn %{assigns: %{user: name}, asks: id} ->
      if String.starts_with?(id, name), do: {:ok, %{conversation: id}}, else: {:error, :forbidden}
    end

    %{
      opts:
        Door.Plug.init(
          sessions: __MODULE__,
          identify: identify,
          origins: [origin],
          max_bytes: 1_000
        )
    }
  end

  defp call(opts, %{method: method, path: path, headers: headers, body: body}, change \\ & &1) do
    conn = apply(Plug.Test, :conn, [method, "/" <> Enum.join(path, "/"), body])
    conn = %{conn | req_headers: headers, assigns: %{user: "ada"}}
    Door.Plug.call(change.(conn), opts)
  end

  test "streams, and asks who it is by what the connection was assigned", %{opts: opts} do
    conn = call(opts, say("ada-1", "hello"))
    assert {conn.status, conn.state} == {200, :chunked}
    assert ["v1"] = apply(Plug.Conn, :get_resp_header, [conn, "x-vercel-ai-ui-message-stream"])
    assert text(read(conn.resp_body)) == "Hello, Ada!"
    assert call(opts, say("eve-1", "hello")).status == 404
    assert call(opts, request("GET", ["ada-1", "stream"])).status == 204
  end

  test "reads an id that a URL escapes", %{opts: opts} do
    conn = call(opts, say("ada 17", "hello"))
    assert text(read(conn.resp_body)) == "Hello, Ada!"
    conn = call(opts, request("GET", ["ada%2017", "messages"]))
    assert {conn.status, conn.resp_body =~ "Hello, Ada!"} == {200, true}
  end

  test "refuses an id with an escape that is none as any unknown one", %{opts: opts} do
    for id <- ["ada%ZZ", "ada%", "ada%f", "ada%ff"],
        do: assert(call(opts, request("GET", [id, "messages"])).status == 404)
  end

  test "takes a body that was read, and refuses one that is too long", %{opts: opts} do
    asked = say("ada-2", "hello")
    conn = call(opts, asked, &%{&1 | body_params: JSON.decode!(asked.body)})
    assert text(read(conn.resp_body)) == "Hello, Ada!"
    assert call(opts, say("ada-2", String.duplicate("a", 2_000))).status == 413
  end
end
