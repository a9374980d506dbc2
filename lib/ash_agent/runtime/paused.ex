defmodule AshAgent.Runtime.Paused do
  @moduledoc """
  A run that waits for decisions about tool calls.

  Make them with `AshAgent.Context.approve_tool_call/3` and `AshAgent.Context.deny_tool_call/4` on `context`, which may be
  stored and loaded before, and go on with `AshAgent.Runtime.resume/2`.

    * `context` - the conversation up to here; calls that needed no decision have their results
    * `calls` - those that wait for one, with the arguments that they would run with, as
      `AshAgent.Context.undecided_tool_calls/1` gives them
    * `iterations` - how many times the model was asked in this run
    * `usage` - what the models of this run reported, summed up
  """

  alias AshAgent.Context

  @type t :: %__MODULE__{
          context: Context.t(),
          calls: [map()],
          iterations: non_neg_integer(),
          usage: %{optional(atom() | binary()) => number()}
        }

  @enforce_keys [:context, :calls]
  defstruct [:context, :calls, iterations: 0, usage: %{}]

  defimpl Inspect do
    # Counts only, as with the context: this ends up in logs.
    def inspect(paused, _opts) do
      "#AshAgent.Runtime.Paused<#{length(paused.calls)} waiting, #{inspect(paused.context)}>"
    end
  end
end
