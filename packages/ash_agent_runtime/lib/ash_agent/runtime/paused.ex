defmodule AshAgent.Runtime.Paused do
  @moduledoc """
  A run that waits for decisions about tool calls.

  Make them with `AshAgent.Context.Calls.approve_tool_call/3` and `AshAgent.Context.Calls.deny_tool_call/4` on `context`, which you may store and
  load first, and continue with `AshAgent.Runtime.resume/2`.

    * `context` - the conversation so far; calls that needed no decision have their results
    * `calls` - the calls to decide about, with the arguments that they would run with, as
      `AshAgent.Context.Calls.undecided_tool_calls/1` returns them
    * `iterations` - how often the model was asked in this run
    * `usage` - the sum of the usage that the models of this run reported
    * `cost` - what those answers and the ones of sub-agents cost, in 10^-12 US dollars; `nil` without `:prices`
    * `unknown` - the ids of those calls that were started before, and whose outcome is unknown after a crash. Approve one to
      run it again; deny it to tell the model
    * `sub_agents` - the conversations of the sub-agents of this run, at all depths, such as for the option `:children` of
      `AshAgent.Trace.to_html/2`; a session's callers on other nodes get none
    * `kept` - in a run with a store, the conversation as it was written last, for the next run; otherwise `nil`
  """

  alias AshAgent.Context

  @type t :: %__MODULE__{
          context: Context.t(),
          calls: [map()],
          iterations: non_neg_integer(),
          usage: %{optional(atom() | binary()) => number()},
          cost: non_neg_integer() | nil,
          unknown: [String.t()],
          sub_agents: [Context.t()],
          kept: AshAgent.Store.kept() | nil
        }

  @enforce_keys [:context, :calls]
  defstruct @enforce_keys ++
              [:cost, :kept, iterations: 0, usage: %{}, unknown: [], sub_agents: []]

  defimpl Inspect do
    # Counts only, as with the context: this ends up in logs.
    def inspect(paused, _opts) do
      "#AshAgent.Runtime.Paused<#{length(paused.calls)} waiting, #{inspect(paused.context)}>"
    end
  end
end
