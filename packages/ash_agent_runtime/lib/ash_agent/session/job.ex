defmodule AshAgent.Session.Job do
  @moduledoc false

  # The reason to start a run: a prompt, or to continue the turn (`:resume`).

  alias AshAgent.Context

  #   * `input`, `opts` - the message, and the options of the function that was called
  #   * `client` - an `AshAgent.Session.Client`, or `nil`
  #   * `id` - the prompt's in the store, if it waits there
  @enforce_keys [:kind]
  defstruct [:kind, :input, :client, :id, opts: []]

  @doc "Returns the job of a message that waits in the store, or that came too late for its turn."
  def from_message(%{id: id, input: input, metadata: metadata}, opts \\ [], client \\ nil) do
    opts = [metadata: metadata] ++ opts
    %__MODULE__{kind: :prompt, input: input, opts: opts, id: id, client: client}
  end

  @doc """
  Adds a prompt's message to the context.

  Returns `{:ok, context, opts}` with the job's own options for the run, or `{:error, exception}`: options that come by a
  message may be anything.
  """
  def prepare(%__MODULE__{opts: opts} = job, context) do
    context = add_input(context, job)
    {:ok, context, for({:runtime_context, %{} = map} <- opts, do: {:runtime_context, map})}
  rescue
    error in [Context.Error, ArgumentError, FunctionClauseError] -> {:error, error}
  end

  defp add_input(context, %{kind: :resume}), do: context

  defp add_input(context, %{input: input, opts: opts}) do
    message = if opts[:metadata], do: [metadata: opts[:metadata]], else: []
    context |> Context.interrupt() |> Context.add_user_message(input, message)
  end
end
