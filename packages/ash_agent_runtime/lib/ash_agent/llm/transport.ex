defmodule AshAgent.LLM.Transport do
  @moduledoc """
  A behaviour for HTTP clients that send requests to providers and return their responses in chunks.

  By default, the clients of this package use `AshAgent.LLM.Transport.HTTP1`, which needs nothing but OTP. If your application has
  Req or Finch, you can use `AshAgent.LLM.Transport.Req` or `AshAgent.LLM.Transport.Finch` for their proxies, pools, plugins or HTTP/2:

      AshAgent.LLM.Anthropic.new(model: "...", transport: {AshAgent.LLM.Transport.Finch, name: MyApp.Finch})

  A transport knows nothing about providers. It neither retries requests nor follows redirects: only the client knows whether that
  is right.

  ## Writing your own transport

  `c:stream/4` reduces the response: it calls the function with each message, in order, and with the accumulator that the
  previous call returned. It must

    * call the function in the process that called `c:stream/4`, and continue reading only when the function has returned, so
      that a slow consumer slows the server down
    * close the connection when the function returns `{:halt, acc}`, raises, or its process dies
    * observe the timeouts of `AshAgent.LLM.Transport.Request`
    * show neither headers nor body in errors and logs
  """

  alias AshAgent.LLM.Transport.Request

  @typedoc """
  A part of the response: first the head, once and with header names in lower case, then the body in any number of chunks.
  """
  @type message ::
          {:head, status :: pos_integer(), headers :: [{String.t(), String.t()}]}
          | {:data, binary()}

  @typedoc """
  Why there was no response, or why it ended early.

    * `{:timeout, :connect | :first_byte | :idle | :whole}` - this time limit of the request was reached
    * `{:connection, term}` - the connection could not be made, or was cut
    * `{:invalid_response, text}` - the response is not HTTP
    * `{:response_too_large, bytes}` - the response is longer than the request's `max_bytes`
  """
  @type reason ::
          {:timeout, :connect | :first_byte | :idle | :whole}
          | {:connection, term()}
          | {:invalid_response, String.t()}
          | {:response_too_large, pos_integer()}

  @type t :: module() | {module(), keyword()}

  @doc """
  Sends the request and reduces the response.

  Returns `{:ok, acc}` if the response is complete or the function returned `{:halt, acc}`, and otherwise `{:error, reason, acc}` with
  the last accumulator.
  """
  @callback stream(
              request :: Request.t(),
              acc,
              fun :: (message(), acc -> {:cont, acc} | {:halt, acc}),
              opts :: keyword()
            ) :: {:ok, acc} | {:error, reason(), acc}
            when acc: term()

  @doc "Checks a transport's options once and returns those that `c:stream/4` gets. Raises `ArgumentError`."
  @callback prepare(opts :: keyword()) :: keyword()

  @optional_callbacks prepare: 1

  @doc """
  Checks a transport and returns it as `{module, options}`. Raises `ArgumentError` for anything else.

  ## Examples

      iex> AshAgent.LLM.Transport.new(AshAgent.LLM.Transport.HTTP1)
      {AshAgent.LLM.Transport.HTTP1, [keep_alive: 30_000]}

      iex> AshAgent.LLM.Transport.new(String)
      ** (ArgumentError) expected a transport: a module with stream/4, alone or with its options, got: String, which has no stream/4
  """
  @doc since: "0.1.0"
  @spec new(t()) :: {module(), keyword()}
  def new(module) when is_atom(module), do: new({module, []})

  def new({module, opts}) when is_atom(module) and is_list(opts) do
    cond do
      not (Code.ensure_loaded?(module) and function_exported?(module, :stream, 4)) ->
        refuse("#{inspect(module)}, which has no stream/4" <> hint(module))

      function_exported?(module, :prepare, 1) ->
        {module, module.prepare(opts)}

      true ->
        {module, opts}
    end
  end

  def new(_other), do: refuse("something else")

  defp hint(module) when module in [__MODULE__.Req, __MODULE__.Finch] do
    name = module |> Module.split() |> List.last()

    " since #{name} was not available when this package was compiled: add it to the dependencies and run " <>
      "mix deps.compile ash_agent_context --force"
  end

  defp hint(_module), do: ""

  defp refuse(got) do
    AshAgent.Caller.refuse!(
      "expected a transport: a module with stream/4, alone or with its options, got: " <> got
    )
  end
end
