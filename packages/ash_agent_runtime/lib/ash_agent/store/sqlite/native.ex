defmodule AshAgent.Store.SQLite.Native do
  @moduledoc false

  # Stubs of the NIFs of native/ash_agent_sqlite, which is there with the feature `sqlite` only.

  @on_load :load

  # Read here so that Mix says when an application's list has changed since the library was built.
  _ = Application.compile_env(:ash_agent_runtime, :features, [])

  @doc false
  def load do
    path = :filename.join(:code.priv_dir(:ash_agent_runtime), ~c"native/libash_agent_sqlite")

    case :erlang.load_nif(path, 0) do
      :ok -> :ok
      {:error, {:reload, _}} -> :ok
      # Without the library the module loads, and its functions raise `:nif_not_loaded`.
      {:error, {:load_failed, _}} = error -> if File.exists?("#{path}.so"), do: error, else: :ok
      {:error, _} = error -> error
    end
  end

  @doc "Hands statements to a thread, which answers with a message."
  def run(ref, job, statements, params) do
    true = run_normal(ref, job, statements, params) || run_dirty(ref, job, statements, params)
    :ok
  end

  def open(_path, _settings), do: :erlang.nif_error(:nif_not_loaded)
  def run_normal(_ref, _job, _statements, _params), do: :erlang.nif_error(:nif_not_loaded)
  def run_dirty(_ref, _job, _statements, _params), do: :erlang.nif_error(:nif_not_loaded)
end
