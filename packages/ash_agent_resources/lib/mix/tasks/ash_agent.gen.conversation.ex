defmodule Mix.Tasks.AshAgent.Gen.Conversation do
  @shortdoc "Writes Ash resources for conversations and their iterations"

  @moduledoc """
  Writes an Ash resource with `AshAgent.Conversation` in PostgreSQL, and one for its iterations.

      mix ash_agent.gen.conversation MyApp.Chat.Conversation --domain MyApp.Chat --repo MyApp.Repo

  `mix igniter.install ash_agent_resources` does this and more, where Igniter is there.

  It writes `lib/my_app/chat/conversation.ex` and `lib/my_app/chat/iteration.ex`, and overwrites nothing. Afterwards, add both resources to
  their domain, choose the model, the tools and the policies, and run `mix ash.codegen add_conversations` and `mix ash.migrate`: the
  first makes all migrations, also those of the tables of `AshAgent.Store.Postgres`.

  ## Options

    * `--domain MODULE` - the Ash domain. Required.
    * `--repo MODULE` - the repository, an `AshPostgres.Repo`. Required.
    * `--iterations MODULE` - the resource of the iterations. Defaults to `Iteration` beside the conversation.
    * `--table NAME` - the resource's table. Defaults to `conversations`.
    * `--tenant NAME` - the attribute of the tenant, for multitenancy by attribute.
  """

  use Mix.Task

  @options for name <- ~w(domain repo iterations table tenant)a, do: {name, :string}
  # Written without parentheses, as in applications, which have Ash in their `.formatter.exs`.
  @words for name <-
               ~w(actor_persister attribute authorize_if belongs_to change conversation forbid_if forbid_unless iterations llm module policy prefix
                publish repo strategy system_prompt table title uuid_primary_key)a,
             do: {name, :*}
  @usage "usage: mix ash_agent.gen.conversation MODULE --domain MODULE --repo MODULE [--iterations MODULE] [--table NAME] [--tenant NAME]"

  @impl true
  def run(args) do
    case OptionParser.parse(args, strict: @options) do
      {opts, [module], []} -> write(facts(module, Map.new(opts)))
      {_opts, _modules, [{option, _value} | _]} -> Mix.raise("wrong option #{option}; #{@usage}")
      {_opts, _modules, []} -> Mix.raise("expected one module; #{@usage}")
    end
  end

  @doc false
  def options, do: @options

  @doc false
  # All options end up in code, so names that are anything else are refused.
  def facts(module, opts) do
    table = opts[:table] || "conversations"

    for name <- [table, opts[:tenant]],
        name != nil and not (name =~ ~r/\A[a-z_][a-z0-9_]{0,50}\z/),
        do:
          Mix.raise("expected a name of lower case letters, digits and underscores, got: #{name}")

    %{
      module: module!(module),
      iterations: module!(opts[:iterations] || beside(module)),
      domain: module!(opts[:domain] || Mix.raise("--domain is missing; #{@usage}")),
      repo: module!(opts[:repo] || Mix.raise("--repo is missing; #{@usage}")),
      table: table,
      tenant: opts[:tenant],
      # What `mix ash_agent.gen.chat` knows.
      llm: llm(),
      owner: nil,
      endpoint: nil,
      title?: false,
      functions: ""
    }
  end

  @doc false
  def llm, do: ~s({AshAgent.LLM.Ollama, model: "llama3.2"})

  defp beside(module),
    do: module |> String.split(".") |> List.replace_at(-1, "Iteration") |> Enum.join(".")

  @doc false
  def module!(name) do
    if name =~ ~r/\A[A-Z]\w*(\.[A-Z]\w*)*\z/,
      do: name,
      else: Mix.raise("expected the name of a module, such as MyApp.Chat, got: #{name}")
  end

  @doc false
  # The files that both resources are in, each with its text.
  def files(facts) do
    for {module, text} <- [{facts.module, resource(facts)}, {facts.iterations, iterations(facts)}],
        into: %{},
        do: {path(module), [Code.format_string!(text, locals_without_parens: @words), ?\n]}
  end

  defp write(facts) do
    resources = files(facts)

    for path <- Map.keys(resources),
        File.exists?(path),
        do: Mix.raise("#{path} exists already; remove it or choose other names")

    for {path, text} <- resources do
      File.mkdir_p!(Path.dirname(path))
      File.write!(path, text)
      Mix.shell().info("* creating #{path}")
    end
  end

  defp path(module), do: Path.join("lib", Macro.underscore(module) <> ".ex")

  defp resource(facts) do
    """
    #{head(facts.module, facts, "AshAgent.Conversation", facts.endpoint && "notifiers: [Ash.Notifier.PubSub],")}
      postgres do
        table "#{facts.table}"
        repo #{facts.repo}
      end

      attributes do
        uuid_primary_key :id
        attribute :title, :string, public?: true
        #{owner(facts.owner, :attribute)}
        #{if facts.tenant, do: "attribute :#{facts.tenant}, :string, allow_nil?: false"}
      end

      #{if facts.tenant, do: "multitenancy do\nstrategy :attribute\nattribute :#{facts.tenant}\nend"}

      #{owner(facts.owner, :owned)}

      conversation do
        iterations #{facts.iterations}
        llm #{facts.llm}
        system_prompt "You are a helpful assistant."
        #{if facts.title?, do: "tools &#{facts.module}.tools/0\napproval &#{facts.module}.approval/2\ntitle :title"}
        #{if facts.owner[:persister], do: "actor_persister #{facts.owner.persister}"}
      end

      policies do
        #{policies(facts.owner)}
      end

      #{if facts.endpoint, do: pub_sub(facts.endpoint)}
      #{facts.functions}
    end
    """
  end

  defp owner(nil, _part), do: ""
  defp owner(%{resource?: true}, :attribute), do: ""

  defp owner(%{type: type}, :attribute), do: "attribute :user_id, :#{type}, allow_nil?: false"

  defp owner(%{resource?: true} = owner, :owned) do
    """
    relationships do
      belongs_to :user, #{owner.module}, allow_nil?: false, attribute_type: :#{owner.type}
    end

    changes do
      change relate_actor(:user), on: [:create]
    end
    """
  end

  defp owner(_owner, :owned) do
    """
    changes do
      change set_attribute(:user_id, actor(:id)), on: [:create]
    end
    """
  end

  defp policies(nil) do
    """
    # Until it says who may do what, nobody may do anything.
    policy always() do
      forbid_if always()
    end
    """
  end

  defp policies(owner) do
    """
    # A conversation is its owner's. What no policy names, such as `:erase`, is forbidden.
    policy action_type(:create) do
      authorize_if actor_attribute_equals(:__struct__, #{owner.module})
    end

    policy action_type([:read, :update, :destroy]) do
      forbid_unless actor_attribute_equals(:__struct__, #{owner.module})
      authorize_if expr(user_id == ^actor(:id))
    end
    """
  end

  defp pub_sub(endpoint) do
    """
    pub_sub do
      module #{endpoint}
      prefix "conversation"
      publish :delta, [:id], event: "delta", transform: & &1.metadata
    end
    """
  end

  defp iterations(facts) do
    """
    #{head(facts.iterations, facts, "AshAgent.Conversation.Iteration")}
      iteration do
        conversation #{facts.module}
      end
    end
    """
  end

  defp head(module, facts, extension, notifiers \\ nil) do
    """
    defmodule #{module} do
      use Ash.Resource,
        domain: #{facts.domain},
        data_layer: AshPostgres.DataLayer,
        authorizers: [Ash.Policy.Authorizer],#{notifiers}
        extensions: [#{extension}]
    """
  end
end
