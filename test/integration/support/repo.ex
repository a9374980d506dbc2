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

    @doc "Starts the repositories, and notes which server it is."
    def start do
      for repo <- [__MODULE__, AshAgent.Integration.Repo],
          Code.ensure_loaded?(repo),
          do: {:ok, _} = repo.start_link(log: false)

      %{rows: [[version]]} = query!("SHOW server_version")
      version |> String.split() |> hd() |> AshAgent.Test.Integrations.put_postgresql()
    end
  end
end

if Code.ensure_loaded?(AshPostgres.Repo) do
  defmodule AshAgent.Integration.Repo do
    @moduledoc false
    use AshPostgres.Repo, otp_app: :ash_agent_context, warn_on_missing_ash_functions?: false

    @impl true
    def installed_extensions, do: []

    @impl true
    def min_pg_version, do: %Version{major: 13, minor: 0, patch: 0}

    @impl true
    def init(kind, config), do: MyApp.Repo.init(kind, config)
  end
end
