defmodule AshAgent.Session.Job do
  @moduledoc false

  # The reason to start a run: a prompt, a message that came too late for its turn (`:steer`), to continue the turn (`:resume`), or
  # late results, first that of `opts[:call]` (`:wake`).

  alias AshAgent.Context
  alias AshAgent.Runtime.{Authority, Late, Loop}
  alias AshAgent.Session.Options

  #   * `input`, `opts` - the message, and the options of the function that was called
  #   * `client` - an `AshAgent.Session.Client`, or `nil`
  #   * `id` - the prompt's in the store, if it waits there
  #   * `asked?` - somebody asked to go on with the turn, with the limits that they want or the session's
  @enforce_keys [:kind]
  defstruct [:kind, :input, :client, :id, asked?: false, opts: []]

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

  defp add_input(context, %{kind: :resume, opts: opts} = job, runtime) do
    limits = Options.take_limits(job)

    with true <- Loop.acts?(context, runtime),
         context = if(job.asked?, do: Authority.note_limits(context, limits), else: context),
         {context, [runtime_context: %{} = given]} <- {context, Authority.take(opts)} do
      Authority.note_run(context, given, opts[:by])
    else
      {context, _own} -> context
      false -> context
    end
  end

  defp add_input(context, %{kind: :wake, opts: opts} = job, _runtime) do
    case Options.take_limits(job) do
      [] -> context
      limits -> Authority.note_limits(context, limits, opts[:call].iteration)
    end
  end

  defp add_input(context, %{kind: :steer, input: input, opts: opts}, _runtime),
    do: context |> interrupt() |> Authority.add_message(input, metadata(opts))

  defp add_input(context, %{input: input, opts: opts}, runtime) do
    message = metadata(opts)

    context
    |> interrupt()
    |> Late.end_woken()
    |> Context.add_user_message(input, message)
    |> Authority.note_prompt(Authority.take(opts), runtime[:runtime_context])
    |> Authority.note_limits([])
  end

  # Whoever writes is not kept waiting.
  defp interrupt(context),
    do: context |> Late.end_waits("a message came") |> Context.interrupt()

  defp metadata(opts), do: if(opts[:metadata], do: [metadata: opts[:metadata]], else: [])
end
