defmodule AshAgent.Trace.Caller do
  @moduledoc false

  # The OpenTelemetry context of a process, for the processes that work for it: their measurements belong to its trace.
  # Without :opentelemetry_api, there is none. And the id of the conversation that it works for, for what is logged.

  require Logger

  alias AshAgent.Runtime.Keeper

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

  @doc """
  Runs a function for a conversation: what is logged meanwhile has its id as the metadata `:context_id`, in this process and in its tasks.
  """
  def within(id, fun) do
    before = conversation()
    note(id)

    try do
      fun.()
    after
      note(before)
    end
  end

  @doc "Says that this process works for the conversation of this id."
  def note(nil), do: Logger.metadata(context_id: nil)
  def note(id), do: :logger.update_process_metadata(%{context_id: id})

  @doc "Returns the id of the conversation that this process works for, or `nil`."
  def conversation do
    with %{context_id: id} <- :logger.get_process_metadata(), do: id, else: (_none -> nil)
  end

  @doc "A task that belongs to this process's trace and conversation, ends with its supervisor, and whose crash is told by a message."
  def task(supervisor, context \\ current(), fun) do
    id = conversation()

    work = fn ->
      continue(context)
      note(id)
      fun.()
    end

    case supervisor do
      %Keeper{} = keeper -> Keeper.start_task(keeper, work)
      supervisor -> Task.Supervisor.async_nolink(supervisor, work, shutdown: :brutal_kill)
    end
  end
end
