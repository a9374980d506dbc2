# Inspects the structs of this package.

alias AshAgent.{LLM, OneLine}

# Its words show the difference, and so prompts.
defimpl Inspect, for: LLM.Recorded.MissingError do
  def inspect(%{path: path, differences: differences} = error, _opts) do
    words = "nothing like the request to #{path}, #{length(differences)} differences"
    OneLine.describe(error, words)
  end
end

defimpl Inspect, for: LLM.Difference do
  def inspect(difference, _opts),
    do: OneLine.describe(difference, "#{difference.cause}: #{difference.where}")
end

defimpl Inspect, for: AshAgent.Test.Branch do
  def inspect(%{iteration: number, change: change} = branch, _opts) do
    words = "from iteration #{number}, #{change} changed, #{Kernel.inspect(branch.context)}"
    OneLine.describe(branch, words)
  end
end
