defmodule AshAgent.Runtime.DefaultLogger do
  @moduledoc false

  # Writes a line for each run, request, tool and failure, from the events of `AshAgent.Runtime.Events`.

  require Logger

  alias AshAgent.LLM.ByteLog
  alias AshAgent.Options, as: Check

  @id "ash-agent-default-logger"

  @schema AshAgent.Options.schema([
            {:level, {:in, [:debug, :info, :notice]}, [default: :info],
             "the level of what went well. Tries and waits are warnings, failures are errors."},
            {:events, {:list, {:in, [:run, :llm, :tool]}}, [default: [:run, :llm, :tool]],
             "which of `:run`, `:llm` and `:tool` get lines."},
            {:bytes, :boolean, [default: false],
             "logs the bodies of all requests and answers of this node at the level `:debug`, up to 64 KB of each, without keys and with what " <>
               "views mask masked. They are conversations: not for production."}
          ])

  @names [
    run: [[:run, :stop]],
    llm: [[:llm, :stop], [:llm, :exception], [:llm, :retry], [:llm, :waiting]],
    tool: [[:tool, :stop], [:tool, :arrival], [:tool, :exception]]
  ]

  @doc false
  def schema, do: @schema

  @doc false
  def attach(opts) do
    opts = Check.validate!(opts, @schema)

    names = for kind <- opts[:events], name <- @names[kind], do: [:ash_agent, :runtime | name]

    config = %{level: opts[:level]}

    with :ok <- call_telemetry(:attach_many, [@id, names, &__MODULE__.handle_event/4, config]) do
      if opts[:bytes], do: ByteLog.switch(true)
      :ok
    end
  end

  @doc false
  def detach do
    ByteLog.switch(false)
    call_telemetry(:detach, [@id])
  end

  defp call_telemetry(function, arguments) do
    if Code.ensure_loaded?(:telemetry),
      do: apply(:telemetry, function, arguments),
      else: {:error, :no_telemetry}
  end

  @doc false
  def handle_event([:ash_agent, :runtime | name], measured, metadata, %{level: level}) do
    level = level(name, metadata, level)
    Logger.log(level, fn -> format_line(name, measured, metadata) end)
  end

  defp level([_, :exception], _metadata, _level), do: :error
  defp level([:llm, name], _metadata, _level) when name in [:retry, :waiting], do: :warning
  defp level([:run, :stop], %{status: :error}, _level), do: :error
  defp level(_name, _metadata, level), do: level

  @doc false
  def format_line(name, measured, metadata) do
    fields =
      [conversation: metadata[:context_id], iteration: metadata[:iteration]] ++
        fields(name, measured, metadata)

    words =
      for {key, value} <- fields, value != nil, do: [" ", to_string(key), "=", format(value)]

    ["ash_agent ", Enum.join(name, "."), words]
  end

  # The fields of each event, by the names that the event has for them where they differ.
  @failure [:kind, :reason, at: :stacktrace]
  @call [tool: :tool, call: :tool_call_id]
  @usage [:input_tokens, :cached_tokens, :output_tokens]

  defp fields(name, measured, metadata) do
    facts = metadata |> Map.merge(metadata[:usage] || %{}) |> Map.merge(measured)

    for field <- list(name),
        {label, key} = if(is_atom(field), do: {field, field}, else: field),
        do: {label, show(key, facts[key])}
  end

  defp list([:run, :stop]), do: [:status, {:ms, :duration}, :failure | @failure]

  defp list([:llm, :stop]),
    do:
      [ms: :duration, first_token_ms: :time_to_first_token] ++
        @usage ++ [{:usd, :cost}, :tool_calls, {:finish, :finish_reason}]

  defp list([:llm, :retry]), do: [:kind, :attempt, wait_ms: :wait]
  defp list([:llm, :waiting]), do: [ms: :duration]
  defp list([:llm, :exception]), do: [:failure, :status, {:ms, :duration} | @failure]

  defp list([:tool, :stop]),
    do: @call ++ [:status, ms: :duration, bytes: :result_bytes]

  defp list([:tool, :arrival]), do: @call ++ [:status]
  defp list([:tool, :exception]), do: @call ++ [{:ms, :duration} | @failure]

  defp show(key, duration) when key in [:duration, :time_to_first_token] and duration != nil,
    do: System.convert_time_unit(duration, :native, :millisecond)

  # Fractions of a millionth of a dollar are dropped.
  defp show(:cost, cost) when is_integer(cost),
    do: :erlang.float_to_binary(cost / 1.0e12, decimals: 6)

  defp show(:stacktrace, stacktrace), do: place(stacktrace || [])
  defp show(_key, value), do: value

  # The first line of code that has a file: those of the VM have none.
  defp place(stacktrace) do
    Enum.find_value(stacktrace, fn entry ->
      location = elem(entry, tuple_size(entry) - 1)
      if location[:line], do: "#{location[:file]}:#{location[:line]}"
    end)
  end

  @longest 200

  # Ids and names of tools are the model's words: text that could begin a line of its own, or another field, is quoted.
  defp format(value) when is_binary(value) do
    value = String.slice(value, 0, @longest)
    if value =~ ~r/\A[\w.:\/-]+\z/, do: value, else: inspect(value)
  end

  defp format(value) when is_integer(value), do: Integer.to_string(value)
  defp format(value), do: inspect(value, limit: 5, printable_limit: @longest)
end
