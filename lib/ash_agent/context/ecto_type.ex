defmodule AshAgent.Context.EctoType do
  @moduledoc """
  Stores contexts with Ecto, in a column of type `:map` (JSONB in PostgreSQL).

      schema "conversations" do
        field :context, AshAgent.Context.EctoType
      end

  The field takes a context, what `AshAgent.Context.dump/1` gives, or what `AshAgent.Context.to_map/1` gives, with atom
  or string keys. A long conversation is better stored a row an iteration, see the guide [Storage](storage.html).

  It is an `Ecto.Type` and works without Ecto being a dependency of this package.
  """

  alias AshAgent.Context.Stored

  @doc """
  Returns the type of the column.

  ## Examples

      iex> AshAgent.Context.EctoType.type()
      :map
  """
  @doc since: "0.1.0"
  @spec type() :: :map
  def type, do: :map

  @doc """
  Makes a context of input; the error's text stands in the changeset.

  ## Examples

      iex> AshAgent.Context.EctoType.cast(nil)
      {:ok, nil}
      iex> AshAgent.Context.EctoType.cast(7)
      {:error, message: "expected a context, or a map of one"}
  """
  @doc since: "0.1.0"
  @spec cast(term()) :: {:ok, AshAgent.Context.t() | nil} | {:error, keyword()}
  def cast(input) do
    with {:error, error} <- Stored.cast(input), do: {:error, message: Exception.message(error)}
  end

  @doc """
  Makes a context of what the column holds.

  ## Examples

      iex> AshAgent.Context.EctoType.load(%{"version" => 1})
      :error
  """
  @doc since: "0.1.0"
  @spec load(term()) :: {:ok, AshAgent.Context.t() | nil} | :error
  def load(stored) do
    with {:error, _error} <- Stored.load(stored), do: :error
  end

  @doc """
  Makes what the column holds of a context.

  ## Examples

      iex> {:ok, stored} = AshAgent.Context.EctoType.dump(AshAgent.Context.new("Hello!"))
      iex> stored["version"]
      1
  """
  @doc since: "0.1.0"
  @spec dump(term()) :: {:ok, map() | nil} | :error
  def dump(context), do: Stored.dump(context)

  @doc """
  Tells how an embedded schema holds a context: as its dump.

  ## Examples

      iex> AshAgent.Context.EctoType.embed_as(:json)
      :dump
  """
  @doc since: "0.1.0"
  @spec embed_as(atom()) :: :dump
  def embed_as(_format), do: :dump

  @doc """
  Tells whether two values have equal contents, so that a changeset holds real changes only.

  ## Examples

      iex> context = AshAgent.Context.new("Hello!")
      iex> copy = AshAgent.Context.load!(AshAgent.Context.dump(context))
      iex> AshAgent.Context.EctoType.equal?(context, copy)
      true
  """
  @doc since: "0.1.0"
  @spec equal?(term(), term()) :: boolean()
  def equal?(a, b), do: Stored.equal?(a, b)
end
