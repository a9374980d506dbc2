defmodule AshAgent.Trace.Caller do
  @moduledoc false

  # The OpenTelemetry context of a process, for the processes that work for it: what they measure belongs to its trace.
  # Without :opentelemetry_api, there is none.

  if Code.ensure_loaded?(:otel_ctx) do
    @doc "The context of this process, or `nil`."
    def current do
      context = :otel_ctx.get_current()
      if context != %{}, do: context
    end

    @doc "Makes a context that of this process."
    def continue(nil), do: :ok

    def continue(context) do
      _token = :otel_ctx.attach(context)
      :ok
    end
  else
    @doc "The context of this process, or `nil`."
    def current, do: nil

    @doc "Makes a context that of this process."
    def continue(_none), do: :ok
  end

  @doc "A task that belongs to this process's trace, ends with its supervisor, and whose crash is told by a message."
  def task(supervisor, fun) do
    context = current()

    work = fn ->
      continue(context)
      fun.()
    end

    Task.Supervisor.async_nolink(supervisor, work, shutdown: :brutal_kill)
  end
end
