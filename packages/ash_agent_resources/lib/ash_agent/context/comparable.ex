defmodule AshAgent.Context.Comparable do
  @moduledoc false

  # Ash compares values in memory through the protocol of the library `comparable`, which would compare handles.

  import Comp, only: [defcomparable: 3]

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.Stored

  defcomparable a :: Context, b :: Context do
    Stored.compare(Context, a, b)
  end

  defcomparable a :: ChatContext, b :: ChatContext do
    Stored.compare(ChatContext, a, b)
  end
end
