if Code.ensure_loaded?(Finch) do
  defmodule AshAgent.LLM.Transport.Finch do
    @schema AshAgent.Options.schema([
              {:name, :atom, [required: true],
               "the name of the `Finch` that the application has started."},
              {:pool_timeout, :pos_integer, [default: 5_000],
               "milliseconds to wait for a connection of the pool."}
            ])

    @moduledoc """
    A transport over `Finch`, with its pools, proxies, telemetry and HTTP/2, for applications that have it.

        children = [{Finch, name: MyApp.Finch}]

        AshAgent.LLM.Anthropic.new(model: "...", transport: {AshAgent.LLM.Transport.Finch, name: MyApp.Finch})

    TLS options belong to the pool (`conn_opts: [transport_opts: [...]]`), so a client's `:ssl` is refused. With HTTP/2 a slow
    consumer does not slow the server down, since Finch continues reading by itself.

    ## Options

    #{AshAgent.Options.docs(@schema)}
    """

    @behaviour AshAgent.LLM.Transport

    alias AshAgent.LLM.Transport.{Relay, Request}

    @impl true
    def prepare(opts), do: AshAgent.Options.validate!(opts, @schema)

    @impl true
    def stream(%Request{ssl: []} = request, acc, fun, opts) when is_function(fun, 2) do
      built = Finch.build(request.method, request.uri, Request.headers(request), request.body)
      options = [receive_timeout: :infinity, pool_timeout: opts[:pool_timeout]]
      Relay.stream(request, acc, fun, &produce(built, opts[:name], options, &1))
    end

    def stream(%Request{}, _acc, _fun, _opts) do
      AshAgent.Caller.refuse!(
        "a pool of Finch has its own TLS options: pass conn_opts: [transport_opts: [...]] to Finch instead of :ssl"
      )
    end

    defp produce(built, name, options, hand_over) do
      case Finch.stream_while(built, name, nil, &message(&1, &2, hand_over), options) do
        {:ok, _} -> :ok
        {:error, reason} -> {:error, Relay.reason(reason)}
        {:error, reason, _acc} -> {:error, Relay.reason(reason)}
      end
    end

    defp message({:status, status}, _acc, _hand_over), do: {:cont, status}

    defp message({:headers, headers}, status, hand_over),
      do: {hand_over.({:head, status, headers}), status}

    defp message({:data, ""}, status, _hand_over), do: {:cont, status}
    defp message({:data, data}, status, hand_over), do: {hand_over.({:data, data}), status}
    defp message({:trailers, _}, status, _hand_over), do: {:cont, status}
  end
end
