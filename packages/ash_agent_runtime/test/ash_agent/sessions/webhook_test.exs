defmodule AshAgent.Sessions.WebhookTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]
  import ExUnit.CaptureLog

  alias AshAgent.{Context, Sessions, Store}
  alias AshAgent.Sessions.Webhook

  doctest Webhook
  doctest Webhook.Plug

  @secret String.duplicate("s", 32)
  @other String.duplicate("t", 32)
  @json [{"content-type", "application/json; charset=utf-8"}]

  setup do
    name = :"webhook#{System.unique_integer([:positive])}"
    llm = fn _context -> {:ok, %{content: "Seen."}} end
    store = sqlite()
    start_supervised!({Sessions, name: name, store: store, llm: llm, recover: :infinity})

    context =
      Context.new("Hi", id: "conversation 1")
      |> Context.add_assistant_message("Hello!")
      |> Context.add_user_message("Build it")
      |> Context.add_assistant_message(nil, [%{id: "a", name: :build}, %{id: "b", name: :build}])
      |> Context.add_tool_results([
        {"a", {:waiting, %{handle: "handle-a.1"}}},
        {"b", {:waiting, %{handle: "handle-b.1"}}}
      ])

    {:ok, _} = Store.create(store, Context.add_assistant_message(context, "I started it."))
    %{sessions: name, store: store, webhook: webhook(name)}
  end

  defp webhook(to, opts \\ []),
    do: Webhook.new(Keyword.merge([to: to, secrets: [{"k1", @secret}]], opts))

  defp later(seconds \\ 3_600), do: DateTime.add(DateTime.utc_now(), seconds, :second)

  defp token(webhook, key \\ "handle-a.1", deadline \\ later()) do
    "/" <> token = Webhook.address(webhook, "conversation 1", key, deadline)
    token
  end

  defp post(webhook, token, body, change \\ %{}) do
    request = %{method: "POST", path: [token], headers: @json, body: body}
    {status, headers, body} = Webhook.call(webhook, Map.merge(request, change))
    assert {"cache-control", "no-store"} in headers
    {status, body |> Context.JSON.decode!() |> Map.values() |> hd()}
  end

  test "takes a result once", %{webhook: webhook, store: store, sessions: sessions} do
    token = token(webhook)
    assert {200, "kept"} = post(webhook, token, ~s({"ok": true, "at": 1}))
    assert {200, "again"} = post(webhook, token, ~s({"at":1,"ok":true}))
    assert {409, "answered"} = post(webhook, token, ~s({"ok": false}))
    assert {:ok, [arrival]} = Store.arrivals(store, "conversation 1")
    assert %{key: "handle-a.1", outcome: {:ok, %{"ok" => true}}, from: "webhook"} = arrival
    {:ok, :kept} = Sessions.cancel_call(sessions, "conversation 1", "handle-b.1")
    assert {409, "cancelled"} = post(webhook, token(webhook, "handle-b.1"), "{}")
    assert {404, "unknown"} = post(webhook, token(webhook, "handle-c.1"), "{}")
    :ok = Store.delete(store, "conversation 1")
    assert {404, "not_found"} = post(webhook, token, "{}")
  end

  test "knows what it took when the deadline has passed", %{webhook: webhook, store: store} do
    late = token(webhook, "handle-a.1", later(-1))
    assert {410, "late"} = post(webhook, late, ~s({"ok": true}))
    assert {200, "kept"} = post(webhook, token(webhook), ~s({"ok": true}))
    assert {200, "again"} = post(webhook, late, ~s({"ok": true}))
    assert {409, "answered"} = post(webhook, late, ~s({"ok": false}))
    assert {:ok, [_one]} = Store.arrivals(store, "conversation 1")

    # A function may store whatever it gets.
    function = webhook(fn _, _, _, _ -> flunk("called") end)
    assert {410, "late"} = post(function, late, ~s({"ok": true}))
  end

  test "refuses what is late, however it is late", %{webhook: webhook, store: store} do
    assert {410, "late"} = post(webhook, token(webhook, "handle-a.1", later(-1)), "{}")
    assert {:ok, []} = Store.arrivals(store, "conversation 1")
    {:ok, kept} = Store.fetch(store, "conversation 1")
    {:ok, _} = Store.append(store, kept, Context.rewind(kept.value, to: 1))
    assert {410, "rewound"} = post(webhook, token(webhook), "{}")
  end

  test "bounds method, type, size and form", %{webhook: webhook, store: store} do
    token = token(webhook)

    for method <- ~w(GET HEAD PUT DELETE OPTIONS post),
        do: assert({405, "method"} = post(webhook, token, "{}", %{method: method}))

    types = [
      [],
      [{"content-type", "text/plain"}],
      [{"content-type", "application/x-www-form-urlencoded"}],
      @json ++ [{"content-type", "text/html"}]
    ]

    for headers <- types,
        do: assert({415, "content_type"} = post(webhook, token, "{}", %{headers: headers}))

    small = %{webhook | max_bytes: 10}
    assert {413, "too_large"} = post(small, token, ~s("123456789"))
    assert {200, "kept"} = post(small, token, ~s("12345678"))
    token = token(webhook, "handle-b.1")

    for body <- ["", "{", "x=1", <<255>>, String.duplicate("[", 5_000)],
        do: assert({400, "invalid"} = post(webhook, token, body))

    for path <- [[], [token, "x"], ["x", token]],
        do: assert({404, "not_found"} = post(webhook, token, "{}", %{path: path}))

    # A session may have taken the one that was kept.
    {:ok, arrivals} = Store.arrivals(store, "conversation 1")
    assert length(arrivals) < 2
  end

  test "an address cannot be read, changed or made", %{webhook: webhook, sessions: sessions} do
    token = token(webhook)
    "k1." <> sealed = token
    bytes = Base.url_decode64!(sealed, padding: false)
    for word <- ["conversation", "handle"], do: refute(bytes =~ word or token =~ word)

    # The same one again, and another one for each other call.
    deadline = later()
    assert token(webhook, "x.1", deadline) == token(webhook, "x.1", deadline)
    assert token(webhook, "x.1", deadline) != token(webhook, "x.2", deadline)

    for at <- 0..(byte_size(bytes) - 1) do
      <<before::binary-size(at), byte, rest::binary>> = bytes
      bit = :rand.uniform(255)

      changed =
        Base.url_encode64(<<before::binary, Bitwise.bxor(byte, bit), rest::binary>>,
          padding: false
        )

      assert {404, "not_found"} = post(webhook, "k1." <> changed, "{}")
    end

    for size <- 0..(byte_size(bytes) - 1) do
      short = Base.url_encode64(binary_part(bytes, 0, size), padding: false)
      assert {404, "not_found"} = post(webhook, "k1." <> short, "{}")
    end

    # Another secret, and the same secret under another id.
    for secrets <- [[{"k1", @other}], [{"k2", @secret}]] do
      foreign = token(webhook(sessions, secrets: secrets))
      both = webhook(sessions, secrets: [{"k2", @secret}, {"k1", @secret}])
      assert {404, "not_found"} = post(webhook, foreign, "{}")
      assert {404, "not_found"} = post(both, String.replace(token, "k1.", "k2."), "{}")
    end

    for token <- ["", ".", "k1", "k1.", sealed, "k1.!" <> sealed, token <> ".x", <<255>>],
        do: assert({404, "not_found"} = post(webhook, token, "{}"))
  end

  test "secrets rotate", %{webhook: webhook, sessions: sessions} do
    both = webhook(sessions, secrets: [{"k2", @other}, {"k1", @secret}])
    new = webhook(sessions, secrets: [{"k2", @other}])
    old = token(webhook)
    assert "k2." <> _ = token(both, "handle-b.1")
    assert {404, _} = post(new, old, "1")
    assert {200, "kept"} = post(both, old, "1")
    assert {200, "kept"} = post(new, token(both, "handle-b.1"), "1")
  end

  test "the outcome is what the application reads in the body", %{
    sessions: sessions,
    store: store
  } do
    outcome = fn
      %{"state" => "done", "result" => result} -> {:ok, result}
      %{"state" => "failed"} -> {:error, "the build failed"}
      %{"state" => "running"} -> :ignore
    end

    webhook = webhook(sessions, outcome: outcome, from: {:ci, 7})
    token = token(webhook)
    assert {200, "ignored"} = post(webhook, token, ~s({"state": "running"}))
    assert {:ok, []} = Store.arrivals(store, "conversation 1")
    assert {200, "kept"} = post(webhook, token, ~s({"state": "failed"}))

    assert {:ok, [%{outcome: {:error, "the build failed"}, from: {:ci, 7}}]} =
             Store.arrivals(store, "conversation 1")

    log = capture_log(fn -> assert {500, "failed"} = post(webhook, token, ~s({"secret": 1})) end)
    assert log =~ "a function of AshAgent.Sessions.Webhook failed"
    refute log =~ "secret" or log =~ token
  end

  test "other stores are a function, and their failures are no loss" do
    test = self()

    webhook =
      webhook(fn id, key, outcome, opts ->
        send(test, {id, key, outcome, opts})
        {:error, %Store.Error{reason: {:unavailable, "x"}}}
      end)

    assert {503, "unavailable"} = post(webhook, token(webhook), "1")
    assert_receive {"conversation 1", "handle-a.1", {:ok, 1}, [from: "webhook"]}
  end

  test "nothing shows a secret, and weak ones are refused", %{webhook: webhook} do
    refute inspect(webhook, structs: true) =~ "sss"

    for secrets <- [
          [],
          [{"k1", "short"}],
          [{"", @secret}],
          [{"a.b", @secret}],
          [@secret],
          [{:k1, @secret}]
        ] do
      error = assert_raise ArgumentError, fn -> webhook(:none, secrets: secrets) end
      refute Exception.message(error) =~ "sss"
    end
  end
end
