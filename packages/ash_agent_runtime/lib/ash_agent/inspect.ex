# Inspects the structs of this package that have nothing to show beyond their words.

alias AshAgent.{LLM, MCP, OneLine, Runtime, Sessions, Store, Toolbox}

defimpl Inspect,
  for: [LLM.Error, MCP.Error, Runtime.Error, Sessions.Error, Store.Error] do
  def inspect(error, _opts), do: OneLine.describe_error(error)
end

defimpl Inspect, for: [Store.Postgres, Store.SQLite] do
  def inspect(store, _opts), do: OneLine.describe(store, "")
end

defimpl Inspect, for: [Runtime.Tool, Toolbox] do
  def inspect(tool, _opts), do: OneLine.describe(tool, tool.name)
end

defimpl Inspect, for: Runtime.Permissions do
  def inspect(permissions, _opts) do
    rules =
      for {name, rules} when is_list(rules) <- Map.from_struct(permissions),
          do: "#{length(rules)} #{name}"

    OneLine.describe(permissions, Enum.join(rules, ", "))
  end
end

defimpl Inspect, for: Runtime.Events do
  def inspect(events, _opts), do: OneLine.describe(events, "of a run")
end
