if Code.ensure_loaded?(Req) do
  defmodule AshAgent.LLM.Transport.Req do
    @schema AshAgent.Options.schema([
              {:request, {:struct, Req.Request},
               "the base of all requests, such as `Req.new(finch: MyApp.Finch)` or `Req.new(connect_options: [proxy: {:http, \"proxy.local\", 3128, []}])`."}
            ])

    @moduledoc """
    A transport over `Req`, with its steps, plugins, proxies and test adapters, for applications that have it.

        AshAgent.LLM.Anthropic.new(model: "...", transport: AshAgent.LLM.Transport.Req)

    Retries, redirects and decoding are switched off, since the client takes care of them.

    ## Options

    #{AshAgent.Options.docs(@schema)}
    """

    @behaviour AshAgent.LLM.Transport

    alias AshAgent.LLM.Transport.{Relay, Request}

    @impl true
    def prepare(opts), do: AshAgent.Options.validate!(opts, @schema)

    @impl true
    def stream(%Request{} = request, acc, fun, opts) when is_function(fun, 2) do
      base = opts[:request] || Req.new()
      Relay.stream(request, acc, fun, &produce(base, options(request), &1))
    end

    defp options(request) do
      own = [
        method: request.method |> String.downcase() |> String.to_existing_atom(),
        url: request.uri,
        headers: Request.headers(request),
        body: request.body,
        retry: false,
        redirect: false,
        decode_body: false,
        raw: true,
        compressed: false,
        receive_timeout: :infinity
      ]

      if request.ssl == [], do: own, else: [connect_options: [transport_opts: request.ssl]] ++ own
    end

    defp produce(base, options, hand_over) do
      # Req shows the head with the first piece of the body, or at the end when there is none.
      into = fn {:data, data}, {req, response} ->
        with :cont <- head(response, hand_over), :cont <- hand_over.({:data, data}) do
          {:cont, {req, Req.Response.put_private(response, :head_shown, true)}}
        else
          :halt -> {:halt, {req, Req.Response.put_private(response, :head_shown, true)}}
        end
      end

      case Req.request(base, [into: into] ++ options) do
        {:ok, response} ->
          _ = head(response, hand_over)
          :ok

        {:error, reason} ->
          {:error, Relay.reason(reason)}
      end
    end

    defp head(%{private: %{head_shown: true}}, _hand_over), do: :cont

    defp head(response, hand_over) do
      headers =
        for {name, values} <- response.headers, value <- List.wrap(values), do: {name, value}

      hand_over.({:head, response.status, headers})
    end
  end
end
