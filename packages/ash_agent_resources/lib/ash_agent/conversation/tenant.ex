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

  defp put(%Ref{attribute: %Calculation{context: %{tenant: nil}}} = ref, tenant),
    do: put_in(ref.attribute.context.tenant, tenant)

  defp put(other, _tenant), do: other
end
