defmodule AshAgent.Runtime.Rewind do
  @moduledoc false

  # Back to the end of an iteration, or to before the first one: then the system prompt is all that is left.

  alias AshAgent.Context

  @kept ~w(version id system metadata created_at updated_at)

  @doc "Returns the context. Raises `AshAgent.Context.Error` for an iteration that is not there."
  def rewind(context, to) do
    Context.rewind(context, to: to)
  rescue
    error in Context.Error ->
      case error.reason do
        {:unknown_iteration, ^to, %Range{first: first}} when to == first - 1 ->
          empty(context, first)

        _other ->
          reraise error, __STACKTRACE__
      end
  end

  defp empty(context, first) do
    document = Context.dump(context)
    # What is said now begins another turn than the one that was taken back.
    now = DateTime.to_iso8601(DateTime.utc_now())
    iteration = %{"number" => first, "messages" => [], "metadata" => %{}, "started_at" => now}
    document |> Map.take(@kept) |> Map.put("iterations", [iteration]) |> Context.load!()
  end
end
