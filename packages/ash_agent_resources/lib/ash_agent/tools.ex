defmodule AshAgent.Tools do
  @own AshAgent.Options.schema([
         {:name, :string,
          "the tool's name. Defaults to the resource's short name and the action's name: `\"ticket_open\"`."},
         {:description, :string,
          "tells the model when to use the tool. Defaults to the action's description."}
       ])

  @common AshAgent.Options.schema([
            {:load, :list, [type_doc: "a list of names, nested for relationships", default: []],
             "public relationships, calculations and aggregates to return with each record: `[:age, comments: [:author]]`."},
            {:fields, {:or, [{:list, :atom}, nil]}, [type_doc: "a list of atoms"],
             "the public attributes to return. Defaults to all that are not `sensitive?`."},
            {:filter, {:list, :atom}, [default: []],
             "the public fields that the model may filter a read by."},
            {:sort, {:list, :atom}, [default: []],
             "the public fields that the model may sort a read by."},
            {:limit, :pos_integer, [default: 25],
             "how many records a read, and each loaded relationship, returns at most."},
            {:bulk, :pos_integer, [default: 1],
             "how many records one call may create, update or destroy. With more than 1, the tool takes a list of records, and " <>
               "each has a result of its own."},
            {:repeat, :any, [type_doc: "`:safe`, `:never` or `{:ask, function}`"],
             "whether a call whose outcome is unknown may run again, see `AshAgent.Runtime.Tool`. Defaults to `:safe` for reads and to " <>
               "`:never` for everything else."},
            {:timeout, :any, [type_doc: "milliseconds or `:infinity`"],
             "how long a call may take, instead of the run's `:tool_timeout`."}
          ])

  @action @own ++ @common

  @moduledoc """
  Ash actions as tools.

      tools =
        AshAgent.Tools.actions(MyApp.Support.Ticket, [
          read: [filter: [:status], sort: [:inserted_at], load: [:comment_count]],
          open: [description: "Opens a ticket for the current user"]
        ])

      AshAgent.Runtime.run(context, llm: llm, tools: tools, runtime_context: %{actor: user, tenant: "acme"})

  Actions always run with `authorize?: true`, and with the actor and the tenant of the runtime context. A model cannot choose either.

  ## Arguments

  The JSON schema of a tool has the action's public arguments and the public attributes that it accepts, with types, constraints,
  enums, descriptions and defaults. Embedded resources, unions, arrays and maps with fields are described in full. The attribute of
  the tenant is never among them. Updates and destroys also take the primary key of the record, which is read with the primary read
  action first. Inputs that no model can write, such as those of the type `:term`, are left out; if the action requires one, or if a
  type makes atoms, `actions/3` raises.

  Unknown arguments are errors, which the model reads. Names and values that a model writes never become atoms.

  ## Reads

  A model may filter and sort only by the fields that you name, and the limit holds. It gets `%{"records" => records, "more" =>
  true}` if there are more, and it can continue with `offset`. Filters are a value, or a map of operators, such as
  `{"status": "open", "age": {"greater_than": 3}}`. Field policies of the resource also apply to filters.

  ## Results

  A model gets public attributes, those of relationships and embedded resources too, and fields that policies allow. Sensitive
  attributes are only returned if `fields` names them.

  ## Errors

  Errors explain which arguments are invalid. Updating or destroying a record that does not exist, that the actor may not see, or
  that the actor may not change gives the same error, so nobody learns what exists. Internal errors reveal no data.

  If the resource is multitenant, and the runtime context has no tenant, no action runs. An action that sets `multitenancy :bypass`
  or runs code of its own decides for itself what it reads.

  ## Calls that run again

  An action finds the call's `:idempotency_key`, if the run has a store, in its context under `:ash_agent`:
  `changeset.context.ash_agent.idempotency_key`. With it, an action can be made `repeat: :safe`.
  """

  use AshAgent.Arguments

  @doc "Makes a tool by which a model asks the person, see `AshAgent.Runtime.AskUser.tool/1`."
  @doc since: "0.1.0"
  @spec ask_user(keyword()) :: AshAgent.Runtime.Tool.t()
  defdelegate ask_user(opts \\ []), to: AshAgent.Runtime.AskUser, as: :tool

  alias AshAgent.{Caller, Options}
  alias AshAgent.Domain.Tool, as: Declared
  alias AshAgent.Runtime.Tool
  alias AshAgent.Tools.Action

  @doc """
  Makes the tool that lets a model read what its view leaves out, see `AshAgent.Runtime.Recall.tool/1`.

  ## Examples

      iex> AshAgent.Tools.recall(max_bytes: 4_000).name
      "recall"
  """
  @doc since: "0.1.0"
  @spec recall(keyword()) :: Tool.t()
  defdelegate recall(opts \\ []), to: AshAgent.Runtime.Recall, as: :tool

  @doc """
  Lists the tools that domains declare, see `AshAgent.Domain`: all tools of a domain, or those that `{domain, names}` names.

      AshAgent.Tools.list([MyApp.Billing, {MyApp.Support, [:read_tickets]}])

  A domain with the section `tools` of ash_ai is read in the same way. Its reads offer the public attributes that are not sensitive as
  filters and sorts, unless `action_parameters` leaves these out. A tool with `identity`, `get_by`, `arguments` or a function as `load` has
  no counterpart here.

  Raises `ArgumentError` for names that no tool has, and for tools that cannot be made.
  """
  @doc since: "0.1.0"
  @spec list(module() | {module(), [atom()]} | [module() | {module(), [atom()]}]) :: [Tool.t()]
  def list(domains) do
    domains
    |> List.wrap()
    |> Enum.flat_map(fn
      {domain, names} when is_atom(domain) and is_list(names) ->
        Declared.declared!(domain, names)

      domain when is_atom(domain) ->
        Declared.declared!(domain, :all)

      other ->
        Caller.refuse!("expected a domain or {domain, names}, got: #{Options.kind(other)}")
    end)
    |> Enum.flat_map(&list_declared/1)
    |> Tool.new()
  end

  @doc false
  # A declared tool as a list of one.
  def list_declared(tool) do
    {resource, entry} = Declared.entry!(tool)
    actions(resource, [entry])
  end

  @doc false
  # The options of an action, as Spark checks them in a section.
  def section_options do
    for {name, spec} <- @common do
      type = with {:or, [some, nil]} <- spec[:type], do: {:or, [some, {:literal, nil}]}
      {name, [type: if(type == :list, do: {:list, :any}, else: type), doc: spec[:doc]]}
    end
  end

  @doc """
  Turns the actions of a resource or a domain into tools, and returns a list of `t:AshAgent.Runtime.Tool.t/0`.

  For a resource, `actions` is a list of names, or of names with options. For a domain, it is a list of resources with such lists:
  `[{MyApp.Support.Ticket, [:read, :open]}]`. `:all` stands for all actions, including those that destroy.

  ## Options

  These hold for all actions:

  #{Options.docs(@common)}

  Each action takes the same options, and two more:

  #{Options.docs(@own)}

  Raises `ArgumentError` for unknown actions, fields that are not public, and options that the action cannot use.
  """
  @doc since: "0.1.0"
  @spec actions(module(), [atom() | {atom(), keyword()} | {module(), list()}] | :all, keyword()) ::
          [Tool.t()]
  def actions(resource_or_domain, actions, opts \\ [])
      when is_atom(resource_or_domain) and (is_list(actions) or actions == :all) do
    Options.validate!(opts, @common)

    cond do
      Ash.Resource.Info.resource?(resource_or_domain) ->
        tools(resource_or_domain, nil, actions, opts)

      Spark.Dsl.is?(resource_or_domain, Ash.Domain) ->
        resource_or_domain
        |> resources(actions)
        |> Enum.flat_map(fn {resource, actions} ->
          tools(resource, resource_or_domain, actions, opts)
        end)

      true ->
        Caller.refuse!(
          "expected an Ash resource or an Ash domain, got: #{inspect(resource_or_domain)}"
        )
    end
    |> Tool.new()
  end

  defp resources(domain, :all),
    do: for(resource <- Ash.Domain.Info.resources(domain), do: {resource, :all})

  defp resources(domain, actions) do
    known = Ash.Domain.Info.resources(domain)

    Enum.each(actions, fn
      {resource, actions} when is_list(actions) or actions == :all ->
        resource in known || Caller.refuse!(absent(resource, "resource", domain, known))

      other ->
        Caller.refuse!(
          "expected a list of resources with their actions for a domain, got: #{Options.kind(other)}"
        )
    end)

    actions
  end

  defp tools(resource, domain, :all, opts) do
    names = for action <- Ash.Resource.Info.actions(resource), do: action.name
    tools(resource, domain, names, opts)
  end

  defp tools(resource, domain, actions, opts) do
    for entry <- actions do
      {name, own} = entry!(entry)
      action = Ash.Resource.Info.action(resource, name) || unknown!(resource, name)
      given = Options.validate!(own, @action)
      usable!(action, own)

      domain = domain || Ash.Resource.Info.domain(resource)

      # The options of an action count before those of all.
      given
      |> Keyword.merge(opts)
      |> Keyword.merge(own)
      |> then(&Action.tool(resource, domain, action, Map.new(&1)))
    end
  end

  defp entry!(name) when is_atom(name), do: {name, []}
  defp entry!({name, opts}) when is_atom(name) and is_list(opts), do: {name, opts}

  defp entry!(other) do
    Caller.refuse!(
      "expected each action to be a name or {name, options}, got: #{Options.kind(other)}"
    )
  end

  defp unknown!(resource, name) do
    known = for action <- Ash.Resource.Info.actions(resource), do: action.name
    Caller.refuse!(absent(name, "action", resource, known))
  end

  defp absent(name, noun, owner, known) do
    "#{inspect(owner)} has no #{noun} #{inspect(name)}; there are: #{Enum.map_join(known, ", ", &inspect/1)}"
  end

  @reads [:filter, :sort, :limit]

  defp usable!(%{type: type, name: name}, opts) do
    wrong =
      case type do
        :read -> [:bulk]
        :action -> [:bulk | @reads]
        _changes -> [:filter, :sort]
      end

    case Enum.filter(Keyword.keys(opts), &(&1 in wrong)) do
      [] ->
        :ok

      [option | _] ->
        Caller.refuse!(
          "the #{kind(type)} #{inspect(name)} has no use for the option #{inspect(option)}"
        )
    end
  end

  defp kind(:action), do: "generic action"
  defp kind(type), do: "#{type} action"
end
