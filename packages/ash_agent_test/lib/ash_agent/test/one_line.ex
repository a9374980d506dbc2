# Inspects the structs of this package.

alias AshAgent.{LLM, OneLine}

# Its words show the difference, and so prompts.
defimpl Inspect, for: LLM.Recorded.MissingError do
  def inspect(error, _opts),
    do:
      OneLine.describe(
        error,
        "nothing like the request to #{error.path}, #{length(error.differences)} differences"
      )
end

defimpl Inspect, for: LLM.Difference do
  def inspect(difference, _opts),
    do: OneLine.describe(difference, "#{difference.cause}: #{difference.where}")
end

defimpl Inspect, for: AshAgent.Test.Branch do
  def inspect(branch, _opts),
    do:
      OneLine.describe(
        branch,
        "from iteration #{branch.iteration}, #{branch.change} changed, #{Kernel.inspect(branch.context)}"
      )
end
