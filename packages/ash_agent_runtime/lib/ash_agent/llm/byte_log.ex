defmodule AshAgent.LLM.ByteLog do
  @moduledoc false

  # Writes the bytes of requests and answers to the log at debug level, if that is asked for, bounded and without keys.
  #
  # Conversations are in them, so nothing is written unless `AshAgent.Runtime.attach_default_logger(bytes: true)` asked for it
  # and the level is logged. A request has the masks of its view already.

  require Logger

  alias AshAgent.LLM.Transport.Request

  # Bytes shown of a request, and of an answer.
  @longest 65_536
  # Bytes collected beyond that, so that no key is cut in two before it is hidden.
  @margin 8_192

  defstruct pieces: [], size: 0

  @doc "Turns the log on or off, for all clients of this node."
  def switch(true), do: :persistent_term.put(__MODULE__, true)
  def switch(false), do: _ = :persistent_term.erase(__MODULE__)

  @doc "Logs a request, and returns what collects the answer's bytes, or `nil` where nobody asked."
  def begin(%Request{} = request, secrets) do
    if :persistent_term.get(__MODULE__, false) do
      address = URI.to_string(%{request.uri | query: nil})
      body = IO.iodata_to_binary(request.body)

      Logger.debug(fn ->
        ["ash_agent request ", address, " ", show(body, byte_size(body), secrets)]
      end)

      %__MODULE__{}
    end
  end

  @doc "Collects a transport's message."
  def add(%__MODULE__{size: size} = log, {:data, data}) when size < @longest + @margin,
    do: %{log | pieces: [log.pieces | data], size: size + byte_size(data)}

  def add(%__MODULE__{} = log, {:data, data}), do: %{log | size: log.size + byte_size(data)}
  def add(log, _message), do: log

  @doc "Logs what came of an answer, in one piece, so that a key across two pieces is found."
  def finish(nil, _status, _secrets), do: :ok

  def finish(%__MODULE__{} = log, status, secrets) do
    body = IO.iodata_to_binary(log.pieces)

    Logger.debug(fn ->
      ["ash_agent answer #{status || "none"} ", show(body, log.size, secrets)]
    end)
  end

  # Keys go before the end is cut off, or half of one could stand there.
  defp show(body, size, secrets) do
    hidden =
      for secret <- secrets, secret != "", reduce: body do
        body -> String.replace(body, secret, "(hidden)")
      end

    hidden = AshAgent.SecretForms.replace(hidden, fn _secret -> "(hidden)" end)

    shown = binary_part(hidden, 0, min(byte_size(hidden), @longest))
    rest = if size > @longest, do: " (of #{size} bytes)", else: ""
    # Binary frames and line breaks are escaped: a line of the log stays one.
    [inspect(shown, binaries: :as_strings, printable_limit: :infinity), rest]
  end
end
