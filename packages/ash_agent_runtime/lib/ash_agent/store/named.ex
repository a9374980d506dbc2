defmodule AshAgent.Store.Named do
  @moduledoc false

  # Stores under a name: calls for a name go to the store that a supervisor has started under it.

  def put(name, store), do: :persistent_term.put({__MODULE__, name}, store)
  def erase(name), do: :persistent_term.erase({__MODULE__, name})

  @doc "The store that this is, or that has this name, or `nil`."
  def find(name) when is_atom(name), do: :persistent_term.get({__MODULE__, name}, nil)
  def find(store) when is_struct(store), do: store

  @doc "Raises `ArgumentError` for what is no store, and for a name that no store has."
  def check!(name) when is_atom(name), do: find(name) || refuse!(name)
  def check!(%module{} = store) when is_atom(module), do: store

  def check!(other) do
    AshAgent.Caller.refuse!(
      "expected :store to be a store or its name, got: #{AshAgent.Options.kind(other)}"
    )
  end

  @doc "Asks a store, or the one of a name. Raises `ArgumentError` without one."
  def call(%module{} = store, function, args), do: apply(module, function, [store | args])

  def call(name, function, args) when is_atom(name), do: name |> check!() |> call(function, args)

  defp refuse!(name) do
    AshAgent.Caller.refuse!(
      "no store has the name #{inspect(name)}; start one under a supervisor, see AshAgent.Store.SQLite"
    )
  end

  @doc "Returns true if the leases of a store are by the clock of this machine, as those of a file are."
  def local_clock?(store) do
    with %module{} <- find(store),
         do: function_exported?(module, :local_clock?, 0) and module.local_clock?(),
         else: (nil -> false)
  end

  @doc "Returns true if a store keeps late results."
  def late?(store) do
    with %module{} <- find(store),
         do: function_exported?(module, :arrive, 5),
         else: (nil -> false)
  end

  @doc """
  Returns true if another process may renew the claims of this one: not in the sandbox of Ecto's tests, where each has a
  transaction of its own.
  """
  def shared?(store) do
    with %module{} = store <- find(store),
         do: function_exported?(module, :renew_all, 2) and not sandbox?(store),
         else: (nil -> false)
  end

  defp sandbox?(%{database: repo}) when is_atom(repo),
    do: function_exported?(repo, :config, 0) and repo.config()[:pool] == Ecto.Adapters.SQL.Sandbox

  defp sandbox?(_store), do: false
end
