defmodule AshAgent.Store.PostgresConformanceTest do
  use ExUnit.Case, async: true

  @moduletag :p1_pgsql
  @moduletag integrations: ["PostgreSQL", "p1_pgsql"]

  use AshAgent.Store.Conformance, store: connect!()

  defp connect! do
    store = AshAgent.Store.Postgres.new(AshAgent.TestSupport.PgSQL.pool!())
    {:ok, 5} = AshAgent.Store.Postgres.Migrations.migrate(store)
    store
  end
end
