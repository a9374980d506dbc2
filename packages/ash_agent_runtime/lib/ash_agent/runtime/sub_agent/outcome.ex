defmodule AshAgent.Runtime.SubAgent.Outcome do
  @moduledoc false
  # A result and its metadata, and the conversations of the sub-agent and of those that worked for it.
  @enforce_keys [:result, :metadata, :contexts]
  defstruct [:result, :metadata, :contexts]
end
