defmodule AshAgent.Store.Error do
  @moduledoc """
  Why a store failed: it cannot be reached, its disk is full, its tables are missing.

  Match on `reason`; `message/1` says what to do. Neither contains anything of a conversation, a statement or its parameters, all of
  which a database's own error message may show.

  If somebody else owns or has changed a conversation, the functions return a `t:AshAgent.Store.refusal/0` instead.
  """

  @typedoc """
  Why a store failed.

    * `{:unavailable, detail}` - the database cannot be reached, or the connection broke. Whether a write happened is unknown: use
      `fetch/2` to find out
    * `{:locked, detail}` - another process of the operating system holds the file
    * `{:disk_full, detail}`, `{:read_only, detail}`, `{:cannot_open, detail}`, `{:io, detail}`, `{:too_large, detail}`
    * `{:corrupt, detail}` - the file is not a store's database, or is damaged
    * `{:schema, found, wanted}` - the tables are missing (`found` is 0) or of another version
    * `{:refused, detail}` - the database refused the statement for another reason
    * `{:feature_missing, feature}` - the library was built without this feature

  `detail` is a code of the database or the name of an exception.
  """
  @type reason ::
          {:unavailable
           | :locked
           | :disk_full
           | :read_only
           | :cannot_open
           | :io
           | :too_large
           | :corrupt
           | :refused, detail :: atom() | integer() | String.t()}
          | {:schema, found :: non_neg_integer(), wanted :: pos_integer()}
          | {:feature_missing, feature :: String.t()}

  @type t :: %__MODULE__{reason: reason()}

  @enforce_keys [:reason]
  defexception [:reason]

  @impl true
  def message(%{reason: reason}), do: describe(reason)

  # What is wrong, and what to do about it.
  @words %{
    unavailable:
      {"the store cannot be reached",
       "Whether the last write was stored is unknown: fetch the conversation when the database answers again, and continue from there"},
    locked:
      {"another program keeps the store's file locked",
       "Close it, or raise the option :busy_timeout"},
    disk_full:
      {"the store's disk is full", "Nothing was written: free some space, then try again"},
    read_only: {"the store cannot be written to", "Check the permissions of its file and folder"},
    cannot_open:
      {"the store's file cannot be opened", "Check that its folder exists and may be written to"},
    io: {"the disk of the store reports an error", "Check the disk"},
    too_large:
      {"the value is too large for the database",
       "Keep files outside of the conversation and use their URLs"},
    corrupt:
      {"the store is damaged, or is not a store", "Restore a backup, or name another file"},
    refused: {"the database refused the statement", "Check the database's log"}
  }

  defp describe({kind, detail}) when is_map_key(@words, kind) do
    {wrong, help} = @words[kind]
    "#{wrong} (#{if is_binary(detail), do: detail, else: inspect(detail)}). #{help}"
  end

  defp describe({:schema, 0, wanted}) do
    "the tables of AshAgent.Store are missing. Run the migrations up to version #{wanted}, see AshAgent.Store.Postgres.Migrations"
  end

  defp describe({:schema, found, wanted}) when found > wanted do
    "the tables of AshAgent.Store are of version #{found}, made by a newer release; this one supports #{wanted}. Update the package"
  end

  defp describe({:schema, found, wanted}) do
    "the tables of AshAgent.Store are of version #{found}, and #{wanted} is needed. Run the migrations, see AshAgent.Store.Postgres.Migrations"
  end

  defp describe({:feature_missing, "sqlite"}) do
    "SQLite is not built in. Put `config :ash_agent_runtime, features: [:sqlite]` into config/config.exs and run " <>
      "`mix deps.compile ash_agent_runtime --force`"
  end

  defp describe({:feature_missing, feature}),
    do:
      "the feature #{feature} is not built in; add it to config :ash_agent_runtime, features: [...]"
end
