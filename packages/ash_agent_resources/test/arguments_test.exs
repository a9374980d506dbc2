defmodule ResourcesArgumentsTest do
  alias AshAgent.{Context, Conversation, Info, Tools}
  alias AshAgent.Context.Embedded
  alias AshAgent.Integration.{Helper, MemoryChat, MemoryTicket}
  alias Conversation.{Migrations, Sweeper, Upkeep}

  use AshAgent.TestSupport.ArgumentCases,
    app: :ash_agent_resources,
    least: 15,
    takes_anything: [{AshAgent.Conversation.Sweeper, :child_spec}]

  @moduletag :ash
  @moduletag integrations: ["Ash"]

  # No store is asked before the arguments are checked.
  defp calls do
    %{
      {Info, :option} => [Helper, :client],
      {Conversation.Info, :option} => [MemoryChat, :llm],
      {Conversation.Info, :key} => [%MemoryChat{id: "a"}],
      {Conversation.Info, :store} => [MemoryChat, nil],
      {Tools, :actions} => [MemoryTicket, [:read], []],
      {AshAgent.Resource, :output} => [:integer, [min: 1]]
    }
  end

  test "a module that is no resource, or has not the extension, is refused by what it should have" do
    for wrong <- [nil, Enum, "text", 7, %{}, ~D[2026-01-01], MemoryTicket],
        call <- [
          &Conversation.Info.option(&1, :llm),
          &Conversation.Info.store(&1, nil),
          &Conversation.Info.name/1,
          &Upkeep.resume_due/1,
          &Upkeep.sweep/1
        ] do
      assert_raise ArgumentError,
                   ~r/expected an Ash resource with AshAgent.Conversation, got: /,
                   fn -> call.(wrong) end
    end

    for wrong <- [nil, Enum, "text", 7],
        call <- [&Info.option(&1, :client), &Info.domains/1, &Info.tool_config/1] do
      assert_raise ArgumentError,
                   ~r/expected an Ash resource with AshAgent.Resource, got: /,
                   fn -> call.(wrong) end
    end
  end

  test "an embedded resource takes contexts, and gives them" do
    embedded = Embedded.from_context(Context.new("Hi"))

    assert_raise ArgumentError,
                 "expected an AshAgent.Context, got: a %AshAgent.Context.Embedded{}",
                 fn -> Embedded.from_context(embedded) end

    assert_raise ArgumentError, "expected an AshAgent.Context.Embedded, got: nil", fn ->
      Embedded.to_context(nil)
    end
  end

  test "a sweeper of something else does not start" do
    assert_raise ArgumentError, ~r/got: Enum/, fn -> Sweeper.start_link(resources: [Enum]) end
  end

  test "a sweeper that cannot know the tenants does not start, unless they are given" do
    words = ~r/expected the tenants of .*ParsedChat.* name them with the option tenants/

    assert_raise ArgumentError, words, fn ->
      Sweeper.start_link(resources: [AshAgent.Integration.ParsedChat])
    end

    assert_raise ArgumentError, words, fn ->
      Upkeep.due_tenants(AshAgent.Integration.ParsedChat)
    end

    start_supervised!(
      {Sweeper, resources: [AshAgent.Integration.ParsedChat], tenants: ["org_acme"]}
    )
  end

  test "a version that is none is refused" do
    assert_raise ArgumentError, "expected a version from 1 to 1", fn ->
      Migrations.up(version: 2, table: "a", name: "a")
    end
  end
end
