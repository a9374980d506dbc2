defmodule AshAgent.Conversation.Tenant do
  @moduledoc false

  # Ash reads the conversations of an `exists` with its tenant, and does not tell it to the calculations in there, which need it for the
  # schema of their tables.

  use Ash.Resource.Preparation

  alias Ash.Query.{Calculation, Ref}

  @impl true
  def prepare(%{tenant: nil} = query, _opts, _context), do: query

  def prepare(query, _opts, _context),
    do: %{query | filter: Ash.Filter.map(query.filter, &put(&1, query.tenant))}

  # Newer versions of Ash have made its expression by then, so it is made again.
  defp put(%Ref{attribute: %Calculation{context: %{tenant: nil}} = calculation} = ref, tenant) do
    calculation = put_in(calculation.context.tenant, tenant)

    case Ash.Resource.Info.calculation(ref.resource, calculation.name) do
      %{calculation: {module, opts}} ->
        %{ref | attribute: %{calculation | module: module, opts: opts}}

      nil ->
        %{ref | attribute: calculation}
    end
  end

  defp put(other, _tenant), do: other
end
