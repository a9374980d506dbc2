if Code.ensure_loaded?(Ash.Resource) do
  alias AshAgent.Integration.{Kept, MemoryKept, TableKept}

  # A conversation in attributes of its record is kept as in any other store.
  defmodule AshAgent.Integration.ColumnTest.MemoryKept do
    use ExUnit.Case, async: false

    @moduletag :ash
    @moduletag :capture_log
    @moduletag integrations: ["Ash"]

    use AshAgent.Store.Conformance, store: Kept.new(MemoryKept), chats: false
  end

  if Code.ensure_loaded?(TableKept) do
    defmodule AshAgent.Integration.ColumnTest.TableKept do
      use ExUnit.Case, async: false

      alias AshAgent.Integration.Repo

      @moduletag :ash
      @moduletag :postgres
      @moduletag integrations: ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]

      setup_all do
        Repo.query!("DROP TABLE IF EXISTS kept_chats")
        Repo.query!(TableKept.table())
        :ok
      end

      use AshAgent.Store.Conformance, store: Kept.new(TableKept), chats: false
    end
  end
end
