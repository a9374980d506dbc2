defmodule AshAgent.Runtime.Result do
  @moduledoc """
  What a run came to.

    * `status` - `:answered`, or `:halted` by a tool that returned `{:halt, term}`
    * `output` - the text of the answer (`nil` for none), or the term of the tool
    * `context` - the conversation, which holds the answer and everything before it
    * `iterations` - how many times the model was asked in this run
    * `usage` - what the models of this run reported, summed up
    * `finish_reason` - why the model stopped, when it said so
  """

  alias AshAgent.Context

  @type t :: %__MODULE__{
          status: :answered | :halted,
          output: binary() | nil | term(),
          context: Context.t(),
          iterations: non_neg_integer(),
          usage: %{optional(atom() | binary()) => number()},
          finish_reason: binary() | nil
        }

  @enforce_keys [:status, :context]
  defstruct [:status, :context, output: nil, iterations: 0, usage: %{}, finish_reason: nil]

  defimpl Inspect do
    # Counts only, as with the context: this ends up in logs.
    def inspect(result, _opts) do
      "#AshAgent.Runtime.Result<#{result.status} after #{result.iterations} iterations, #{inspect(result.context)}>"
    end
  end
end
