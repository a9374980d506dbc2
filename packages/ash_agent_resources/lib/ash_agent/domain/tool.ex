defmodule AshAgent.Domain.Tool do
  @moduledoc false

  # A tool of a domain: its declaration, here or with ash_ai, and the tool made of it.

  alias AshAgent.{Caller, Info, Options}
  alias AshAgent.Tools.Query

  @options ~w(description load fields filter sort limit bulk repeat timeout)a

  defstruct [:name, :resource, :action, :__identifier__, :__spark_metadata__] ++ @options

  @doc "The tools that a domain declares, all or those of these names."
  def declared!(domain, names) do
    Spark.Dsl.is?(domain, Ash.Domain) ||
      Caller.refuse!("expected an Ash domain, got: #{Options.kind(domain)}")

    declared = Info.tools(domain)
    known = Enum.map(declared, & &1.name)

    case if(names == :all, do: [], else: names -- known) do
      [] ->
        for tool <- declared, names == :all or tool.name in names, do: tool

      [unknown | _] ->
        raise ArgumentError,
              "#{inspect(domain)} declares no tool #{inspect(unknown)}; there are: #{Enum.map_join(known, ", ", &inspect/1)}"
    end
  end

  @doc "The resource of a declared tool, with its action as `AshAgent.Tools.actions/3` takes it."
  def entry!(%{name: name, resource: resource, action: action} = tool),
    do: {resource, {action, [name: to_string(name)] ++ options(tool)}}

  defp options(%__MODULE__{} = tool), do: present(tool, @options)

  # A tool of ash_ai offers filters and sorts, unless it lists its own. Sensitive attributes are not among them.
  defp options(tool) do
    for {field, words} <- [get_by: "get_by", identity: "an identity", arguments: "arguments"],
        Map.get(tool, field) not in [nil, []],
        do: refuse!(tool, words)

    is_list(tool.load || []) || refuse!(tool, "a function as load")
    fields = if select = Map.get(tool, :select), do: [fields: select], else: []
    present(tool, [:description, :load]) ++ fields ++ list_offered(tool)
  end

  defp list_offered(%{resource: resource, action: action} = tool) do
    case Ash.Resource.Info.action(resource, action) do
      %{type: :read} ->
        offers = Map.get(tool, :action_parameters) || [:filter, :sort]
        chosen = Query.choosable(resource)
        for name <- [:filter, :sort], name in offers, do: {name, chosen}

      _other ->
        []
    end
  end

  defp present(tool, names) do
    for name <- names, value = Map.get(tool, name), value != [], do: {name, value}
  end

  defp refuse!(tool, words) do
    raise ArgumentError,
          "the tool #{inspect(tool.name)} of ash_ai has #{words}, which has no counterpart here; " <>
            "leave it out with {domain, names}, and make one with AshAgent.Tools.actions/3"
  end
end
