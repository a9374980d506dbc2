defmodule AshAgent.Runtime.Result do
  @moduledoc """
  The result of a run.

    * `status` - `:answered`, `:halted` by a tool that returned `{:halt, term}`, or `:waiting` for results that come later: the turn goes on,
      or another one begins, when they have come
    * `output` - the text of the answer, `nil` if it has none, or the term of the tool. In a run with the option `:output`, the value of
      that type; the text stays in the conversation
    * `repairs` - in a run with `:output`, what was repaired in the answer, see `t:AshAgent.Output.repair/0`
    * `output_mode` - in a run with `:output`, how it was asked for: `:native`, `:tool` or `:text`; otherwise `nil`
    * `output_note` - why it was not asked for by the provider's own field, in words, or `nil`
    * `context` - the conversation, up to and including the answer
    * `iterations` - how often the model was asked in this run
    * `usage` - the sum of the usage that the models of this run reported, see `AshAgent.Response.usage/1`
    * `cost` - what those answers and the ones of sub-agents cost, in 10^-12 US dollars; `nil` without `:prices`
    * `finish_reason` - why the model stopped, if it said so, see `t:AshAgent.Response.finish_reason/0`; after `:length`, the output is
      incomplete
    * `sub_agents` - the conversations of the sub-agents of this run, at all depths, such as for the option `:children` of
      `AshAgent.Trace.to_html/2`; a session's callers on other nodes get none
    * `kept` - in a run with a store, the conversation as it was written last, for the next run; otherwise `nil`
  """

  alias AshAgent.Context

  @type t :: %__MODULE__{
          status: :answered | :halted | :waiting,
          output: binary() | nil | term(),
          context: Context.t(),
          iterations: non_neg_integer(),
          usage: %{optional(atom() | binary()) => number()},
          cost: non_neg_integer() | nil,
          finish_reason: AshAgent.Response.finish_reason() | nil,
          sub_agents: [Context.t()],
          kept: AshAgent.Store.kept() | nil,
          repairs: [AshAgent.Output.repair()],
          output_mode: :native | :tool | :text | nil,
          output_note: String.t() | nil
        }

  @enforce_keys [:status, :context]
  defstruct @enforce_keys ++
              [:output, :cost, :finish_reason, :kept, :output_mode, :output_note] ++
              [iterations: 0, usage: %{}, sub_agents: [], repairs: []]

  defimpl Inspect do
    # Counts only, as with the context: this ends up in logs.
    def inspect(result, _opts) do
      "#AshAgent.Runtime.Result<#{result.status} after #{result.iterations} iterations, #{inspect(result.context)}>"
    end
  end
end
