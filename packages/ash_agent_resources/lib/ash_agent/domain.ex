defmodule AshAgent.Domain do
  # Tools that a domain declares, for all agents and conversations of the application.

  alias AshAgent.Tools

  @tool %Spark.Dsl.Entity{
    name: :tool,
    describe: "An action that models may call.",
    examples: [
      "tool :close_ticket, MyApp.Support.Ticket, :close",
      """
      tool :read_tickets, MyApp.Support.Ticket, :read do
        description "Finds tickets"
        filter [:status]
        limit 20
      end
      """
    ],
    target: AshAgent.Domain.Tool,
    args: [:name, :resource, :action],
    identifier: :name,
    # No need to compile it first.
    no_depend_modules: [:resource],
    schema:
      AshAgent.Options.schema([
        {:name, :atom, [required: true], "The tool's name, for models and for lists of tools."},
        {:resource, :atom, [required: true], "The Ash resource."},
        {:action, :atom, [required: true], "The name of its action."},
        {:description, :string,
         "Tells the model when to use the tool. Defaults to the action's description."}
      ]) ++ Tools.section_options()
  }

  @tools %Spark.Dsl.Section{
    name: :tools,
    describe: "Actions of the domain's resources as tools.",
    examples: [
      """
      tools do
        tool :read_tickets, MyApp.Support.Ticket, :read, filter: [:status]
        tool :close_ticket, MyApp.Support.Ticket, :close
      end
      """
    ],
    entities: [@tool]
  }

  @moduledoc """
  Tools that a domain declares once, for all agents and conversations.

      defmodule MyApp.Support do
        use Ash.Domain, extensions: [AshAgent.Domain]

        resources do
          resource MyApp.Support.Ticket
        end

        tools do
          tool :read_tickets, MyApp.Support.Ticket, :read do
            description "Finds tickets"
            filter [:status]
          end

          tool :close_ticket, MyApp.Support.Ticket, :close
        end
      end

  `AshAgent.Info.tools/1` returns what is declared, and `AshAgent.Tools.list/1` the tools. A conversation and an agent name the domain:

      conversation do
        tools [{MyApp.Support, [:read_tickets]}, MyApp.Billing]
      end

      # an agent, with AshAgent.Resource
      tools do
        domains [MyApp.Support]
      end

  Declaring a tool grants no rights: its action runs as the user who asked, under the policies of its resource, see
  `AshAgent.Tools`.

  Domains with the section `tools` of [ash_ai](https://hexdocs.pm/ash_ai) are read as well, see `AshAgent.Tools.list/1`.

  The options of a tool are listed in the [cheat sheet](dsl-ashagent-domain.html).
  """

  use Spark.Dsl.Extension, sections: [@tools], verifiers: [AshAgent.Domain.Verifier]
end
