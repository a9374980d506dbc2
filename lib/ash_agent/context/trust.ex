defmodule AshAgent.Context.Trust do
  @moduledoc false

  # The options that say how far to trust a document; the core applies them.

  alias AshAgent.Options

  @schema Options.schema([
            {:approvals, {:in, [:keep, :drop]}, [default: :keep],
             "`:drop` leaves out all decisions about tool calls. A call that was approved and has no result is pending again and " <>
               "waits for a decision, see `AshAgent.Context.Calls.asked_tool_calls/1`. A denied call keeps its result, since a filled " <>
               "slot is final, and has the status `:error`; calls that ran keep their result and status."},
            {:structs, {:in, [:keep, :known, :drop]}, [default: :keep],
             "`:known` keeps structs of `Date`, `Time`, `NaiveDateTime`, `DateTime` and `Decimal` only, and only with exactly " <>
               "their fields and with values that these modules could have made (the ISO calendar, a day that exists, an " <>
               "exponent within 6,176 of zero); `:drop` keeps none. Any other struct becomes a plain map: the same data " <>
               "without `:__struct__`."}
          ])

  @doc "The options, in the form of `AshAgent.Options`."
  def schema, do: @schema

  @doc "The options as the core takes them. Raises `ArgumentError` for unknown and wrong ones."
  def check!([]), do: {:keep, :keep}

  def check!(opts) do
    opts = Options.validate!(opts, @schema)
    {opts[:approvals], opts[:structs]}
  end
end
