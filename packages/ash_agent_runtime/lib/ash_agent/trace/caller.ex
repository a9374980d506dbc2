defmodule AshAgent.Trace.Caller do
  @moduledoc false

  # The OpenTelemetry context of a process, for the processes that work for it: their measurements belong to its trace.
  # Without :opentelemetry_api, there is none.

  if Code.ensure_loaded?(:otel_ctx) do
    @doc "The context of this process, or `nil`."
    def current do
      context = :otel_ctx.get_current()
      if context != %{}, do: context
    end

    @doc "The ids of the trace and of the span that this process is in, 24 bytes, or `nil`."
    def ids do
      with span when span != :undefined <- :otel_tracer.current_span_ctx(),
           {trace, span} when trace > 0 and span > 0 <-
             {:otel_span.trace_id(span), :otel_span.span_id(span)} do
        <<trace::128, span::64>>
      else
        _none -> nil
      end
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

    @doc "The ids of the trace and of the span that this process is in, 24 bytes, or `nil`."
    def ids, do: nil

    @doc "Makes a context that of this process."
    def continue(_none), do: :ok
  end

  @doc "A task that belongs to this process's trace, ends with its supervisor, and whose crash is told by a message."
  def task(supervisor, context \\ current(), fun) do
    work = fn ->
      continue(context)
      fun.()
    end

    Task.Supervisor.async_nolink(supervisor, work, shutdown: :brutal_kill)
  end
end
