defmodule AshAgent.Integration.FinchTransportTest do
  use ExUnit.Case, async: true

  # Before the tests that the next line brings.
  @moduletag :finch
  @moduletag integrations: ["Finch"]

  use AshAgent.TestSupport.TransportCases

  alias AshAgent.LLM.Transport

  setup do
    {:ok, _} = Application.ensure_all_started(:finch)
    start_supervised!({Finch, name: __MODULE__})
    :ok
  end

  def transport, do: Transport.new({Transport.Finch, name: __MODULE__})

  test "wants the name of a pool, and TLS from that" do
    assert_raise ArgumentError, fn -> Transport.new(Transport.Finch) end
    server = %{url: "https://127.0.0.1:1"}

    assert_raise ArgumentError, ~r/transport_opts/, fn ->
      collect(transport(), request(server, ssl: [verify: :verify_none]))
    end
  end

  test "raises what is wrong with the pool, and tells when it is busy" do
    assert_raise ArgumentError, fn ->
      collect(
        Transport.new({Transport.Finch, name: :no_such_pool}),
        request(%{url: "http://127.0.0.1:1"})
      )
    end

    start_supervised!({Finch, name: __MODULE__.Small, pools: %{default: [size: 1]}}, id: :small)
    {module, opts} = Transport.new({Transport.Finch, name: __MODULE__.Small, pool_timeout: 50})

    server =
      WireServer.start(fn connection ->
        {:ok, _} = WireServer.read_request(connection)
        WireServer.tell(connection, :asked)
        WireServer.await_close(connection)
      end)

    holder = spawn(fn -> module.stream(request(server), nil, &ignore/2, opts) end)

    assert_receive :asked

    assert {:error, {:connection, :pool_timeout}, nil} =
             module.stream(request(server), nil, &ignore/2, opts)

    Process.exit(holder, :kill)
  end

  test "says why there is no connection" do
    assert {:error, {:connection, :econnrefused}, %{}} =
             collect(transport(), request(%{url: "http://127.0.0.1:1"}))

    assert {:error, {:connection, :nxdomain}, %{}} =
             collect(transport(), request(%{url: "http://no-host.invalid"}))
  end

  test "says that it is no HTTP" do
    server = WireServer.answering("garbage\r\n\r\n")

    assert {:error, {:invalid_response, _}, %{}} = collect(transport(), request(server))
  end
end

defmodule AshAgent.Integration.ReqTransportTest do
  use ExUnit.Case, async: true

  # Before the tests that the next line brings.
  @moduletag :req
  @moduletag integrations: ["Req"]

  use AshAgent.TestSupport.TransportCases

  alias AshAgent.LLM.Transport

  setup do
    {:ok, _} = Application.ensure_all_started(:req)
    :ok
  end

  def transport, do: Transport.new(Transport.Req)

  test "starts from the application's own request" do
    server =
      WireServer.start(fn connection ->
        {:ok, request} = WireServer.read_request(connection)
        WireServer.tell(connection, {:request, request})
        WireServer.write(connection, WireServer.response(200, "x"))
      end)

    own = apply(Req, :new, [[headers: [{"x-own", "1"}], params: [a: 1], retry: :transient]])
    own = Transport.new({Transport.Req, request: own})

    assert {:ok, %{body: "x"}} =
             collect(own, request(server, headers: fn -> [{"x-key", "k"}] end))

    # Req 0.7 writes a space in a query in the other way.
    assert_received {:request, %{path: path, headers: %{"x-own" => "1", "x-key" => "k"}}}
    assert path in ["/v1/x?y=%20&a=1", "/v1/x?y=+&a=1"]

    assert_raise ArgumentError, fn -> Transport.new({Transport.Req, request: %{}}) end
  end

  test "says why there is no connection" do
    assert {:error, {:connection, :econnrefused}, %{}} =
             collect(transport(), request(%{url: "http://127.0.0.1:1"}))

    assert {:error, {:connection, :nxdomain}, %{}} =
             collect(transport(), request(%{url: "http://no-host.invalid"}))
  end

  test "passes options of TLS on" do
    {:ok, _} = Application.ensure_all_started(:ssl)
    name = {:Extension, {2, 5, 29, 17}, false, [dNSName: ~c"localhost"]}
    key = [key: {:namedCurve, :secp256r1}, digest: :sha256]

    %{server_config: tls, client_config: client} =
      :public_key.pkix_test_data(%{
        server_chain: %{root: key, intermediates: [], peer: key ++ [extensions: [name]]},
        client_chain: %{root: key, intermediates: [], peer: key}
      })

    server =
      WireServer.answering(
        WireServer.response(200, "x"),
        tls: tls ++ [log_level: :none],
        host: "localhost"
      )

    ssl = [cacerts: client[:cacerts], log_level: :none]
    assert {:ok, %{body: "x"}} = collect(transport(), request(server, ssl: ssl))

    assert {:error, {:connection, {:tls_alert, _}}, _} =
             collect(transport(), request(server, ssl: [log_level: :none]))
  end
end
