defmodule AshAgent.LLM.Transport do
  @moduledoc """
  What carries requests to providers and brings their responses back in pieces: a behaviour.

  `AshAgent.LLM.Transport.HTTP1` is the one that the clients of this package use unless told otherwise; it needs nothing
  but OTP. `AshAgent.LLM.Transport.Req` and `AshAgent.LLM.Transport.Finch` are there when the application has those
  libraries, for those who want their proxies, pools, plugins or HTTP/2:

      AshAgent.LLM.Anthropic.new(model: "...", transport: {AshAgent.LLM.Transport.Finch, name: MyApp.Finch})

  A transport knows nothing of providers. It does not repeat requests and does not follow redirects: whether that is
  right, only the client knows.

  ## Writing your own transport

  `c:stream/4` folds the response: it calls the function with each message in its order and with the accumulator that
  the call before returned. It must

    * call the function in the process that called `c:stream/4`, and read on only after the function has returned, so
      that a slow consumer slows the server down
    * close the connection when the function returns `{:halt, acc}`, raises, or its process dies
    * keep to the timeouts of `AshAgent.LLM.Transport.Request`
    * show neither headers nor body in errors and logs
  """

  alias AshAgent.LLM.Transport.Request

  @typedoc """
  What comes back: once the head, with header names in lower case, and then the body in any number of pieces.
  """
  @type message ::
          {:head, status :: pos_integer(), headers :: [{String.t(), String.t()}]}
          | {:data, binary()}

  @typedoc """
  Why the response did not come, or ended early.

    * `{:timeout, :connect | :first_byte | :idle | :whole}` - which limit of the request was reached
    * `{:connection, term}` - no connection, or it was cut
    * `{:invalid_response, text}` - what came is not HTTP
    * `{:response_too_large, bytes}` - it is longer than the request's `max_bytes`
  """
  @type reason ::
          {:timeout, :connect | :first_byte | :idle | :whole}
          | {:connection, term()}
          | {:invalid_response, String.t()}
          | {:response_too_large, pos_integer()}

  @type t :: module() | {module(), keyword()}

  @doc """
  Sends the request and folds the response.

  Returns `{:ok, acc}` when the response is complete or the function returned `{:halt, acc}`, else the reason and the
  last accumulator.
  """
  @callback stream(
              request :: Request.t(),
              acc,
              fun :: (message(), acc -> {:cont, acc} | {:halt, acc}),
              opts :: keyword()
            ) :: {:ok, acc} | {:error, reason(), acc}
            when acc: term()

  @doc "Checks a transport's options once and returns those that `c:stream/4` is to get. Raises `ArgumentError`."
  @callback prepare(opts :: keyword()) :: keyword()

  @optional_callbacks prepare: 1

  @doc """
  Checks a transport and returns it as `{module, options}`. Raises `ArgumentError` when it is not one.

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

    " since #{name} was not there when this package was compiled: add it to the dependencies and run " <>
      "mix deps.compile ash_agent_context --force"
  end

  defp hint(_module), do: ""

  defp refuse(got) do
    raise ArgumentError,
          "expected a transport: a module with stream/4, alone or with its options, got: " <> got
  end
end
