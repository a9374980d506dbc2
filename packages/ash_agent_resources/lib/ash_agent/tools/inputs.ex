defmodule AshAgent.Tools.Inputs do
  @moduledoc false

  # The inputs of an action: its arguments and the attributes that it accepts.

  @doc "The public inputs of an action. The tenant is none of them: the application decides about it."
  def public(resource, action), do: Enum.filter(all(resource, action), & &1.public?)

  @doc "All inputs but that of the tenant."
  def all(resource, action) do
    tenant = Ash.Resource.Info.multitenancy_attribute(resource)
    arguments = action.arguments
    taken = Enum.map(arguments, & &1.name)

    attributes =
      for name <- Map.get(action, :accept) || [],
          name not in taken,
          attribute = Ash.Resource.Info.attribute(resource, name),
          do: attribute

    Enum.reject(arguments ++ attributes, &(&1.name == tenant))
  end

  @doc "Returns true if an action fails without an input."
  def required?(%{type: type} = action, %Ash.Resource.Attribute{name: name} = attribute) do
    name in Map.get(action, :require_attributes, []) or
      (type == :create and not attribute.allow_nil? and is_nil(attribute.default) and
         not attribute.generated? and
         name not in action.allow_nil_input)
  end

  def required?(_action, argument), do: not argument.allow_nil? and is_nil(argument.default)
end
