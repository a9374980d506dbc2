defmodule AshAgent.ChatContext.Terms do
  @moduledoc false

  # Terms as JSON data, in the form that a context's own dump gives its metadata: a context carries them there.

  alias AshAgent.Context
  alias AshAgent.Context.Error

  @time "1970-01-01T00:00:00.000000Z"
  @carrier %{
    "version" => 1,
    "id" => "terms",
    "created_at" => @time,
    "updated_at" => @time,
    "iterations" => [%{"number" => 1, "started_at" => @time, "messages" => []}]
  }

  @doc "JSON data of a map. Raises `AshAgent.Context.Error` for what no context takes."
  @spec encode(map()) :: map()
  def encode(map) do
    case Context.create(%{metadata: map}) do
      {:ok, carrier} -> carrier |> Context.dump() |> Map.fetch!("metadata")
      {:error, error} -> raise below(error)
    end
  end

  @doc """
  The map that `encode/1` was given, when `raw` is JSON data as well. An error has its path into either.

  `opts` are those of `AshAgent.Context.load/1`.
  """
  @spec decode(map(), raw :: map(), keyword()) :: {:ok, map()} | {:error, Error.t()}
  def decode(data, raw, opts) do
    case Context.load(Map.merge(@carrier, %{"metadata" => data, "raw" => raw}), opts) do
      {:ok, carrier} -> {:ok, Context.metadata(carrier)}
      {:error, error} -> {:error, below(error)}
    end
  end

  # The error without the first step of its path, which leads into the carrier.
  defp below(%Error{reason: {:invalid, [_ | path], expected}}),
    do: %Error{reason: {:invalid, path, expected}}

  defp below(%Error{reason: {:unsupported_term, kind, [_ | path]}}),
    do: %Error{reason: {:unsupported_term, kind, path}}

  defp below(error), do: error
end
