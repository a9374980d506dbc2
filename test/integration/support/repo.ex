if Code.ensure_loaded?(Ecto.Adapters.Postgres) do
  defmodule MyApp.Repo do
    @moduledoc false
    # The repository of the guides. The server is the one that bin/integration has started, and never
    # another one: the tests drop tables.

    use Ecto.Repo, otp_app: :ash_agent_context, adapter: Ecto.Adapters.Postgres

    @impl true
    def init(_kind, config) do
      own = [
        hostname: "127.0.0.1",
        port: String.to_integer(System.fetch_env!("ASH_AGENT_CONTEXT_PGPORT")),
        username: "postgres",
        password: System.fetch_env!("ASH_AGENT_CONTEXT_PGPASSWORD"),
        database: "postgres",
        log: false
      ]

      {:ok, Keyword.merge(config, own)}
    end
  end
end
