defmodule AshAgent.Conversation.Info do
  @moduledoc """
  Reads the section `conversation` of a resource, and what follows from it: the store, the keys, which turns are due.
  """

  use AshAgent.Arguments

  alias AshAgent.{SparkModule, Store, Tools}
  alias Spark.Dsl.{Extension, Transformer}

  @extended :ash_agent_conversation?

  @doc """
  Returns an option of the section, or its default.

      AshAgent.Conversation.Info.option(MyApp.Chat.Conversation, :max_iterations)
  """
  @doc since: "0.1.0"
  @spec option(module() | map(), atom()) :: term()
  def option(resource, name) when is_atom(name),
    do: resource |> check!() |> Extension.get_opt([:conversation], name)

  @doc """
  Returns the store that keeps the messages of a tenant's conversations. For resources without multitenancy, the tenant is `nil`.

  With schema multitenancy and AshPostgres' own store, it raises `Ash.Error.Invalid.TenantRequired` without a tenant.
  """
  @doc since: "0.1.0"
  @spec store(module(), term()) :: Store.t()
  def store(resource, tenant) do
    case option(resource, :store) do
      nil -> postgres(resource, tenant)
      store when is_function(store, 1) -> store.(tenant)
      store -> store
    end
  end

  defp postgres(resource, tenant) do
    prefix =
      if schemas?(resource),
        do: schema!(resource, tenant),
        else: postgres!(:schema, [resource])

    Store.Postgres.new(repo(resource), if(prefix, do: [prefix: prefix], else: []))
  end

  @doc false
  # The repository of a resource whose messages are in tables of AshPostgres.
  def repo(resource), do: postgres!(:repo, [resource, :mutate])

  # Called by name: AshPostgres may be missing when this is compiled.
  defp postgres!(name, arguments), do: apply(AshPostgres.DataLayer.Info, name, arguments)

  # Without a schema, PostgreSQL would take tables with these names from its `search_path`.
  defp schema!(resource, tenant) do
    Ash.ToTenant.to_tenant(tenant, resource) ||
      raise Ash.Error.Invalid.TenantRequired, resource: resource
  end

  @doc false
  # Returns true if each tenant has tables of its own.
  def schemas?(resource), do: Ash.Resource.Info.multitenancy_strategy(resource) == :context

  @doc """
  Returns the key under which the store keeps a record's conversation: the `name` of its resource, a colon, and the record's primary key.

  It is the id of the stored context, and the one that the functions of `AshAgent.Store` take.

      AshAgent.Conversation.Info.key(conversation)
      #=> "conversations:0190e9b2-6f3c-7f55-9f5d-1c2b0d1e4a57"
  """
  @doc since: "0.1.0"
  @spec key(Ash.Resource.record()) :: String.t()
  def key(%resource{} = record), do: resource |> check!() |> key(id(record))

  @doc false
  def key(resource, id), do: prefix(resource) <> id

  @doc false
  # Returns the resource, or raises with the part that it lacks.
  def check!(resource),
    do:
      SparkModule.check!(resource, "an Ash resource with AshAgent.Conversation", &conversation?/1)

  @doc false
  # Returns true if the session that ran a turn of it is gone.
  def due?(%{status: status, lease_until: until}),
    do:
      status == :running and (until == nil or DateTime.compare(until, DateTime.utc_now()) == :lt)

  @doc false
  # The keys of a resource begin with this. A name has no colon, so that no two records have one key.
  def prefix(resource), do: name(resource) <> ":"

  @doc """
  Returns the name of a resource in the keys of its conversations: the option `name`, or else its table in PostgreSQL, or else the
  name of its module.
  """
  @doc since: "0.1.0"
  @spec name(module() | map()) :: String.t()
  def name(resource), do: option(resource, :name) || table(resource) || module(resource)

  defp table(resource) do
    # Called by name: AshPostgres may be missing when this is compiled.
    if Ash.DataLayer.data_layer(resource) == AshPostgres.DataLayer,
      do: apply(AshPostgres.DataLayer.Info, :table, [resource])
  end

  defp module(resource), do: inspect(Extension.get_persisted(resource, :module))

  @doc false
  # The id of a record, as tools get it.
  def id(%resource{} = record), do: to_string(Map.fetch!(record, primary_key(resource)))

  @doc false
  def primary_key(resource) do
    [key] = Ash.Resource.Info.primary_key(resource)
    key
  end

  @doc false
  # Returns true if the messages are in tables of AshPostgres, which its queries can read as well.
  def tables?(resource) do
    option(resource, :store) == nil and
      Ash.DataLayer.data_layer(resource) == AshPostgres.DataLayer
  end

  @doc false
  # The schema of those tables, quoted for SQL with its dot, or "".
  def schema(resource, tenant), do: resource |> store(tenant) |> Map.fetch!(:prefix)

  @doc false
  # Returns true if a resource has the extension. Its iterations' resource, which it knows, cannot name it.
  def conversation?(resource), do: Extension.get_persisted(resource, @extended, false)

  @doc false
  # Marks a resource as one with the extension.
  def mark_extended(dsl), do: Transformer.persist(dsl, @extended, true)

  @doc false
  # Returns true if a field policy may hide the transcript, and with it all that has its words.
  def hides_transcript?(resource) do
    Ash.Policy.Authorizer in Ash.Resource.Info.authorizers(resource) and
      Ash.Policy.Info.field_policies_for_field(resource, :transcript) != []
  end

  @doc false
  # The conversations' resource of a resource of iterations.
  def conversation(iterations), do: Extension.get_opt(iterations, [:iteration], :conversation)

  @doc false
  # Returns the options of the section that runs of a record need.
  def run_options(resource, record) do
    given =
      for name <- ~w(permission_rules allowed_tools max_iterations max_total_tokens approval)a,
          value = option(resource, name),
          value != [],
          do: {name, value}

    # A function is called when a run begins, which keeps what goes wrong in it.
    tools = fn -> tools(resource, record) end
    tools = if is_function(option(resource, :tools)), do: tools, else: tools.()
    prices = make(option(resource, :prices))
    given = if prices, do: [prices: prices] ++ given, else: given
    own = [llm: make(option(resource, :llm)), tools: tools]
    option(resource, :options) |> Keyword.merge(given) |> Keyword.merge(own)
  end

  @doc false
  # The tools of the section, those that domains declare among them.
  def tools(resource, record) do
    case make(option(resource, :tools), record) do
      domain when is_atom(domain) -> Tools.list(domain)
      tools when is_list(tools) -> Enum.flat_map(tools, &list/1)
      tools -> tools
    end
  end

  defp list(domain) when is_atom(domain), do: Tools.list(domain)
  defp list({domain, names}) when is_list(names), do: Tools.list({domain, names})
  defp list(tool), do: [tool]

  @doc false
  def system_prompt(resource, record), do: make(option(resource, :system_prompt), record)

  @doc false
  # The model that writes titles.
  def title_llm(resource), do: make(option(resource, :title_llm) || option(resource, :llm))

  # Functions of arity 1 and 2 are models.
  defp make(llm), do: if(is_function(llm, 0), do: llm.(), else: llm)

  defp make(function, _record) when is_function(function, 0), do: function.()
  defp make(function, record) when is_function(function, 1), do: function.(record)
  defp make(value, _record), do: value
end
