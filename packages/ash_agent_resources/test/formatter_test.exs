defmodule AshAgent.FormatterTest do
  # `.formatter.exs` exports all that applications write in the sections.
  use ExUnit.Case, async: true

  @moduletag :ash
  @moduletag integrations: ["Ash"]

  test "exports the options of all sections" do
    {formatter, _} = Code.eval_file(".formatter.exs")
    exported = formatter[:export][:locals_without_parens]

    for extension <- [
          AshAgent.Conversation,
          AshAgent.Conversation.Iteration,
          AshAgent.Domain,
          AshAgent.Resource
        ],
        section <- extension.sections(),
        %{schema: schema} = entity <- [section | section.entities],
        {name, _option} <- schema,
        name not in Map.get(entity, :args, []),
        do: assert({name, 1} in exported, "#{inspect(extension)} has #{name}")
  end
end
