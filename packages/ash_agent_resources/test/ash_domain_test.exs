defmodule AshAgent.Integration.DomainToolsTest do
  # Tools that domains declare.
  use ExUnit.Case, async: true

  alias AshAgent.Integration.{Compiled, MemoryTicket}
  alias AshAgent.{Info, Tools}

  @moduletag :ash
  @moduletag integrations: ["Ash"]

  defmodule Desk do
    @moduledoc false
    use Ash.Domain, validate_config_inclusion?: false, extensions: [AshAgent.Domain]

    resources do
      allow_unregistered?(true)
    end

    tools do
      tool :find_tickets, MemoryTicket, :read do
        description("Finds tickets")
        filter([:status])
        limit(2)
      end

      tool(:open_ticket, MemoryTicket, :open)
    end
  end

  # The section and the struct of ash_ai, as far as they concern others.
  defmodule Foreign do
    @moduledoc false
    defmodule Tool do
      @moduledoc false
      defstruct ~w(name resource action load select async domain identity get_by description
        action_parameters arguments __spark_metadata__)a
    end

    @tool %Spark.Dsl.Entity{
      name: :tool,
      target: Tool,
      args: [:name, :resource, :action],
      schema: [
        name: [type: :atom, required: true],
        resource: [type: {:spark, Ash.Resource}],
        action: [type: :atom, required: true],
        action_parameters: [type: {:list, :atom}],
        load: [type: :any, default: []],
        select: [type: {:list, :atom}],
        async: [type: :boolean, default: true],
        description: [type: :string],
        identity: [type: :atom],
        get_by: [type: {:or, [:atom, {:list, :atom}]}]
      ]
    }

    use Spark.Dsl.Extension, sections: [%Spark.Dsl.Section{name: :tools, entities: [@tool]}]
  end

  defmodule ForeignDesk do
    @moduledoc false
    use Ash.Domain, validate_config_inclusion?: false, extensions: [Foreign]

    resources do
      allow_unregistered?(true)
    end

    tools do
      tool(:all_tickets, MemoryTicket, :read)
      tool(:few, MemoryTicket, :read, action_parameters: [:sort], select: [:id])
      tool(:one_ticket, MemoryTicket, :read, get_by: :id)
      tool(:open_ticket, MemoryTicket, :open, description: "Opens one")
    end
  end

  defmodule Worker do
    @moduledoc false
    use Ash.Resource, domain: Desk, extensions: [AshAgent.Resource]

    resource do
      require_primary_key?(false)
    end

    agent do
      client(AshAgent.LLM.Ollama)

      input do
        argument(:message, :string, allow_nil?: false)
      end
    end

    tools do
      domains([{Desk, [:open_ticket]}])
    end
  end

  defp names(tools), do: Enum.map(tools, & &1.name)
  defp properties(tool), do: tool.parameters["properties"]

  test "are what is declared, in its order" do
    assert [find, open] = Tools.list(Desk)
    assert names([find, open]) == ["find_tickets", "open_ticket"]
    assert find.description == "Finds tickets"
    assert Map.keys(properties(find)["filter"]["properties"]) == ["status"]
    assert properties(open) == hd(Tools.actions(MemoryTicket, [:open])).parameters["properties"]

    assert names(Tools.list([{Desk, [:open_ticket]}, ForeignDesk |> then(&{&1, [:few]})])) == [
             "open_ticket",
             "few"
           ]

    assert [%{name: :find_tickets, resource: MemoryTicket, action: :read, limit: 2}, _] =
             Info.tools(Desk)
  end

  test "of unknown names and other modules are errors" do
    assert_raise ArgumentError,
                 ~r/declares no tool :close; there are: :find_tickets, :open_ticket/,
                 fn ->
                   Tools.list({Desk, [:close]})
                 end

    assert_raise ArgumentError, ~r/expected an Ash domain/, fn -> Tools.list(Enum) end
    assert_raise ArgumentError, ~r/expected a domain or/, fn -> Tools.list([1]) end
    # Two domains may declare the same name.
    assert_raise ArgumentError, ~r/open_ticket/, fn ->
      Tools.list([Desk, {ForeignDesk, [:open_ticket]}])
    end
  end

  test "that cannot be made are errors of the compiler" do
    said = fn tool ->
      ExUnit.CaptureIO.capture_io(:stderr, fn ->
        Code.eval_string("""
        defmodule #{inspect(__MODULE__)}.Wrong#{System.unique_integer([:positive])} do
          use Ash.Domain, validate_config_inclusion?: false, extensions: [AshAgent.Domain]
          resources do
            allow_unregistered? true
          end
          tools do
            tool :it, #{inspect(MemoryTicket)}, #{tool}
          end
        end
        """)
      end)
    end

    assert said.(":sing") =~ "has no action :sing"
    assert said.(":read, filter: [:nothing]") =~ "no public attribute"
    refute said.(":read") =~ "the tool :it"
  end

  test "of ash_ai are read, as far as they have a counterpart" do
    assert [all] = Tools.list({ForeignDesk, [:all_tickets]})
    assert "status" in Map.keys(properties(all)["filter"]["properties"])
    assert properties(all)["sort"]
    assert [few] = Tools.list({ForeignDesk, [:few]})
    refute properties(few)["filter"]
    assert properties(few)["sort"]
    assert [%{description: "Opens one"}] = Tools.list({ForeignDesk, [:open_ticket]})

    assert_raise ArgumentError, ~r/the tool :one_ticket of ash_ai has get_by/, fn ->
      Tools.list(ForeignDesk)
    end
  end

  test "are those of an agent that names the domain, and run as who asked" do
    call = %{id: "1", name: "open_ticket", arguments: %{"subject" => "Dark"}}
    llm = AshAgent.LLM.Scripted.new([%{tool_calls: [call]}, "Done."])
    user = %{id: "a1", name: "ann", role: :agent}

    input =
      Ash.ActionInput.for_action(Worker, :run, %{message: "Hi"},
        actor: user,
        context: %{ash_agent: %{options: [llm: llm]}}
      )

    assert %{output: "Done.", context: context} = Ash.run_action!(input)
    assert [%{result: result}] = AshAgent.Context.get_iteration(context, 1).tool_calls
    [open] = Tools.actions(MemoryTicket, [:open])
    # The same as the action's own tool gives.
    assert elem(result, 0) == elem(open.run.(call.arguments, %{actor: user}), 0)
    assert Info.domains(Worker) == [{Desk, [:open_ticket]}]
  end

  test "are those of a conversation that names the domain" do
    said = fn tools ->
      Compiled.said(AshAgent.Conversation, """
      conversation do
        llm AshAgent.LLM.Ollama
        store :s
        tools #{tools}
      end
      """)
    end

    assert said.("[{#{inspect(Desk)}, [:sing]}]") =~ "declares no tool :sing"
    refute said.("[{#{inspect(Desk)}, [:open_ticket]}]") =~ "declares"
    refute said.(inspect(Desk)) =~ "the tool"
  end
end
