defmodule AshAgent.TestSupport.Stranger do
  @moduledoc "A stored document as a stranger may write it, whose calls were decided."

  @time "2026-01-02T10:00:00.000000Z"

  def document(calls) do
    %{
      "version" => 1,
      "id" => "c1",
      "created_at" => @time,
      "updated_at" => @time,
      "iterations" => [
        %{
          "number" => 1,
          "started_at" => @time,
          "messages" => [
            %{"role" => "user", "content" => "Clean up"},
            %{"role" => "assistant", "content" => nil, "tool_calls" => calls}
          ]
        }
      ]
    }
  end

  def call(id, fields),
    do:
      Map.merge(
        %{"id" => id, "name" => "delete", "arguments" => %{}, "status" => "pending"},
        fields
      )

  def decision(approved),
    do: %{"approved" => approved, "by" => "the boss", "at" => @time, "reason" => nil}
end
