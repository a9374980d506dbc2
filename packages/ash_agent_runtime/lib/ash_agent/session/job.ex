defmodule AshAgent.Session.Job do
  @moduledoc false

  # The reason to start a run: a prompt, a message that came too late for its turn (`:steer`), to continue the turn (`:resume`), or
  # late results, first that of `opts[:call]` (`:wake`).

  alias AshAgent.Context
  alias AshAgent.Runtime.{Authority, Late, Loop}

  #   * `input`, `opts` - the message, and the options of the function that was called
  #   * `client` - an `AshAgent.Session.Client`, or `nil`
  #   * `id` - the prompt's in the store, if it waits there
  @enforce_keys [:kind]
  defstruct [:kind, :input, :client, :id, opts: []]

  @doc "Returns the job of a message that waits in the store, or that came too late for its turn."
  def from_message(%{id: id, input: input} = message, opts \\ [], client \\ nil) do
    authority = Authority.restore(Map.get(message, :authority, []), opts)
    opts = [metadata: message.metadata] ++ authority ++ opts
    %__MODULE__{kind: :prompt, input: input, opts: opts, id: id, client: client}
  end

  @doc """
  Adds a prompt's message to the context, and notes who gave the run a runtime context of its own.

  Returns `{:ok, context}` or `{:error, exception}`: options that come by a message may be anything.
  """
  def prepare(%__MODULE__{} = job, context, runtime) do
    {:ok, add_input(context, job, runtime)}
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] -> {:error, error}
  end

  defp add_input(context, %{kind: :resume, opts: opts}, runtime) do
    with [runtime_context: %{} = given] <- Authority.take(opts),
         true <- Loop.acts?(context, runtime),
         do: Authority.note_run(context, given, opts[:by]),
         else: (_own_or_answered -> context)
  end

  defp add_input(context, %{kind: :wake}, _runtime), do: context

  defp add_input(context, %{kind: :steer, input: input, opts: opts}, _runtime),
    do: context |> interrupt() |> Authority.add_message(input, metadata(opts))

  defp add_input(context, %{input: input, opts: opts}, runtime) do
    message = metadata(opts)

    context
    |> interrupt()
    |> Context.add_user_message(input, message)
    |> Authority.note_prompt(Authority.take(opts), runtime[:runtime_context])
  end

  # Whoever writes is not kept waiting.
  defp interrupt(context),
    do: context |> Late.end_waits("a message came") |> Context.interrupt()

  defp metadata(opts), do: if(opts[:metadata], do: [metadata: opts[:metadata]], else: [])
end
