if Code.ensure_loaded?(Ash.Type) do
  defmodule AshAgent.Integration.AshTest do
    use ExUnit.Case, async: true

    @moduletag :ash

    alias AshAgent.Context
    alias AshAgent.Context.{AshType, Embedded}

    defmodule Profile do
      use Ash.Resource, data_layer: :embedded

      attributes do
        attribute(:name, :string, public?: true)
        attribute(:context, AshAgent.Context.AshType, public?: true)
      end
    end

    defmodule Agent do
      use Ash.Resource,
        domain: AshAgent.Integration.AshTest.Domain,
        data_layer: Ash.DataLayer.Ets

      ets do
        private?(true)
      end

      attributes do
        uuid_primary_key(:id)
        attribute(:context, AshAgent.Context.AshType, public?: true)
        attribute(:embedded, AshAgent.Context.Embedded, public?: true)
        attribute(:profile, AshAgent.Integration.AshTest.Profile, public?: true)
      end

      actions do
        defaults([:read, :destroy, create: :*, update: :*])

        action :count, :integer do
          argument(:context, AshAgent.Context.AshType, allow_nil?: false)

          run(fn input, _ ->
            {:ok, AshAgent.Context.count_messages(input.arguments.context)}
          end)
        end
      end
    end

    defmodule Domain do
      use Ash.Domain, validate_config_inclusion?: false

      resources do
        resource(AshAgent.Integration.AshTest.Agent)
      end
    end

    setup do
      context =
        Context.new("Weather?", system_prompt: "Be brief.", metadata: %{user_id: 7})
        |> Context.add_assistant_message(nil, [
          %{id: "a", name: :get_weather, arguments: %{city: "NYC"}}
        ])
        |> Context.add_tool_results([{"a", {:ok, {:temp, 72}}}])

      %{context: context}
    end

    defp create(attributes),
      do: Agent |> Ash.Changeset.for_create(:create, attributes) |> Ash.create!()

    defp read(agent), do: Ash.get!(Agent, agent.id)

    test "an attribute is stored and read", %{context: context} do
      agent = create(%{context: context})
      assert Context.equal?(agent.context, context)
      assert Context.equal?(read(agent).context, context)
      assert create(%{}).context == nil
    end

    test "an attribute takes dumps and maps", %{context: context} do
      for input <- [Context.dump(context), Context.to_map(context)] do
        assert Context.equal?(read(create(%{context: input})).context, context)
      end

      changeset = Ash.Changeset.for_create(Agent, :create, %{context: %{"version" => 1}})
      refute changeset.valid?
    end

    test "an equal context is no change", %{context: context} do
      agent = create(%{context: context})
      copy = Context.load!(Context.dump(context))
      changeset = Ash.Changeset.for_update(agent, :update, %{context: copy})
      refute Ash.Changeset.changing_attribute?(changeset, :context)
      later = Context.add_user_message(context, "And now?")
      updated = agent |> Ash.Changeset.for_update(:update, %{context: later}) |> Ash.update!()
      assert Context.equal?(read(updated).context, later)
    end

    test "an action takes one as an argument", %{context: context} do
      count =
        Agent |> Ash.ActionInput.for_action(:count, %{context: context}) |> Ash.run_action!()

      assert count == Context.count_messages(context)
    end

    test "an embedded resource holds one", %{context: context} do
      agent = create(%{profile: %{name: "a", context: context}})
      assert Context.equal?(read(agent).profile.context, context)
    end

    test "the type is a map that matches contexts", %{context: context} do
      assert Ash.Type.storage_type(AshType, []) == :map
      assert AshType.matches_type?(context, [])
      refute AshType.matches_type?(%{}, [])
      refute AshType.cast_in_query?([])
      assert {:ok, %{"version" => 1}} = Ash.Type.dump_to_native(AshType, context, [])
      assert {:ok, %{"version" => 1}} = Ash.Type.dump_to_embedded(AshType, context, [])
    end

    test "the embedded resource loses nothing", %{context: context} do
      embedded = Embedded.from_context(context)
      assert embedded.current_iteration == 2
      assert length(embedded.iterations) == 2
      assert {:ok, copy} = Embedded.to_context(embedded)
      assert Context.equal?(copy, context)

      stored = read(create(%{embedded: embedded})).embedded
      assert {:ok, copy} = Embedded.to_context(stored)
      assert Context.equal?(copy, context)
    end

    test "the embedded resource has a code interface" do
      embedded = Embedded.create!(%{iterations: [], current_iteration: 1})
      assert {:ok, %Context{current_iteration: 1}} = Embedded.to_context(embedded)
      iterations = [%{"messages" => [%{"role" => "user", "content" => "hi"}]}]
      embedded = Embedded.update!(embedded, %{iterations: iterations})
      assert {:ok, context} = Embedded.to_context(embedded)
      assert Context.to_messages(context) == [%{role: :user, content: "hi"}]
    end
  end
end
