defmodule AshAgent.Integration.WebhookPlugTest do
  # The plug with Plug itself.
  use ExUnit.Case, async: true

  alias AshAgent.Sessions.Webhook

  @moduletag :plug
  @moduletag integrations: ["Plug"]

  def webhook do
    test = self()
    to = fn _id, _key, outcome, _opts -> send(test, outcome) && {:ok, :kept} end

    Webhook.new(
      to: to,
      secrets: [{"k1", String.duplicate("s", 32)}],
      address: "/in/arrivals",
      max_bytes: 100
    )
  end

  defp ask(method, path, body) do
    conn = apply(Plug.Test, :conn, [method, path, body])
    conn = %{conn | req_headers: [{"content-type", "application/json"}]}
    Webhook.Plug.call(conn, Webhook.Plug.init(at: "/in/arrivals", webhook: &__MODULE__.webhook/0))
  end

  test "answers below its path, and lets other requests go on" do
    deadline = DateTime.add(DateTime.utc_now(), 60, :second)
    address = Webhook.address(webhook(), "c1", "key.1", deadline)
    conn = ask(:post, address, ~s({"a": 1}))
    assert {conn.status, conn.halted, conn.resp_body} == {200, true, ~s({"status":"kept"})}
    assert_receive {:ok, %{"a" => 1}}
    assert ask(:post, address, ~s("#{String.duplicate("a", 200)}")).status == 413
    assert ask(:get, address, nil).status == 405
    assert ask(:post, "/in/arrivals/x", "{}").status == 404
    other = ask(:post, "/in", "{}")
    assert {other.status, other.halted, other.state} == {nil, false, :unset}
  end
end
