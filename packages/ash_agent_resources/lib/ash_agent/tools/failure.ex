defmodule AshAgent.Tools.Failure do
  @moduledoc false

  # Ash's errors in words for a model: how to change the call, and nothing of other data.

  alias Ash.Error.{Changes, Forbidden, Invalid, Query}
  alias AshAgent.Runtime.Events

  @denied "this is not allowed for the current user"
  @internal "the action failed because of an internal error"

  @doc "Returns the text that the model reads instead of a result."
  def words(error, tool) do
    case Ash.Error.to_error_class(error) do
      %Forbidden{} ->
        deny(tool)

      %Invalid{errors: errors} ->
        errors |> Enum.map(&invalid(&1, tool)) |> Enum.uniq() |> Enum.take(20) |> Enum.join("; ")

      %{errors: errors} ->
        log(errors, tool)
        @internal
    end
  end

  # A record that may not be changed looks as if it did not exist.
  defp deny(%{keyed?: true} = tool), do: tool.absent
  defp deny(_tool), do: @denied

  @doc "Returns the text that the model reads when the action raised."
  def describe_raised(kind, reason, stacktrace, tool) do
    label = inspect(Events.label(kind, reason))
    Events.log_failure("the tool of #{tool.label} failed: #{label}", stacktrace)
    @internal
  end

  # Their messages may show data.
  defp log(errors, tool) do
    kinds = errors |> Enum.map(&inspect(&1.__struct__)) |> Enum.uniq() |> Enum.join(", ")
    Events.log_failure("the tool of #{tool.label} failed: #{kinds}")
  end

  defp invalid(%Query.NotFound{}, tool), do: tool.absent
  defp invalid(%Changes.StaleRecord{}, tool), do: tool.absent
  defp invalid(%Changes.ActionRequiresActor{}, tool), do: deny(tool)
  defp invalid(%Query.ReadActionRequiresActor{}, tool), do: deny(tool)
  defp invalid(%Invalid.Timeout{}, _tool), do: "the action took too long"

  defp invalid(%{__struct__: module, field: field} = error, tool)
       when module in [Changes.Required, Query.Required] do
    if field in tool.inputs or nested?(error, tool),
      do: at(error, field) <> " is required",
      else: "the action needs a value that only the application can give"
  end

  defp invalid(%Changes.InvalidChanges{fields: fields} = error, tool) do
    case Enum.filter(List.wrap(fields), &(&1 in tool.inputs)) do
      [] -> message(error, false)
      fields -> Enum.map_join(fields, ", ", &at(error, &1)) <> ": " <> message(error, true)
    end
  end

  defp invalid(%{field: field} = error, tool) when is_atom(field) and field != nil do
    if field in tool.inputs or nested?(error, tool),
      do: at(error, field) <> ": " <> message(error, true),
      else: message(error, false)
  end

  defp invalid(%Invalid.NoSuchInput{path: path}, _tool) do
    case List.wrap(path) do
      [] -> "there is an unknown argument"
      path -> "there is an unknown field in " <> Enum.join(path, ".")
    end
  end

  defp invalid(error, _tool), do: message(error, false)

  # Errors of embedded resources have their place as a path.
  defp nested?(%{path: [first | _]}, tool), do: first in tool.inputs
  defp nested?(_error, _tool), do: false

  defp at(%{path: path}, field) when is_list(path), do: Enum.join(path ++ [field], ".")
  defp at(_error, field), do: to_string(field)

  # Only text that the model itself has written is put into a message.
  defp message(%{message: message} = error, own?) when is_binary(message) and message != "" do
    vars = if own?, do: Enum.filter(vars(error), fn {_, value} -> shown?(value) end), else: []

    text =
      Enum.reduce(vars, message, fn {key, value}, text ->
        String.replace(text, "%{#{key}}", to_string(value))
      end)

    if text =~ "%{", do: "is invalid", else: String.slice(text, 0, 500)
  end

  defp message(_error, true), do: "is invalid"
  defp message(_error, false), do: "the arguments are invalid"

  defp vars(%{vars: vars}) when is_list(vars), do: vars
  defp vars(%{vars: %{} = vars}), do: Map.to_list(vars)
  defp vars(_error), do: []

  defp shown?(value), do: is_number(value) or is_binary(value) or is_atom(value)
end
