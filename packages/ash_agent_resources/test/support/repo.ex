if Code.ensure_loaded?(AshPostgres.Repo) do
  defmodule AshAgent.Integration.Repo do
    @moduledoc false
    use AshPostgres.Repo, otp_app: :ash_agent_resources, warn_on_missing_ash_functions?: false

    @impl true
    def installed_extensions, do: []

    @impl true
    def all_tenants, do: ["acme", "other"]

    @impl true
    def min_pg_version, do: %Version{major: 13, minor: 0, patch: 0}

    @impl true
    def init(kind, config), do: MyApp.Repo.init(kind, config)
  end
end
