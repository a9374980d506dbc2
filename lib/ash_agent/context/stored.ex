defmodule AshAgent.Context.Stored do
  @moduledoc false

  # What the storage types share; it knows neither Ecto nor Ash.

  alias AshAgent.Context
  alias AshAgent.Context.Error

  @doc "A context, what `dump/2` gives, or what `to_map/1` gives."
  @spec cast(term()) :: {:ok, Context.t() | nil} | {:error, Error.t()}
  def cast(nil), do: {:ok, nil}
  def cast(term) when is_map(term), do: Context.restore(term)
  def cast(_other), do: {:error, %Error{reason: {:invalid, [], "a context, or a map of one"}}}

  @doc "What `dump/1` of this module gives."
  @spec load(term()) :: {:ok, Context.t() | nil} | {:error, Error.t()}
  def load(nil), do: {:ok, nil}
  def load(document), do: Context.load(document)

  @doc "What a database stores."
  @spec dump(term()) :: {:ok, map() | nil} | :error
  def dump(nil), do: {:ok, nil}
  def dump(%Context{} = context), do: {:ok, Context.dump(context)}
  def dump(_other), do: :error

  @doc "Equal contents; `nil` equals `nil`."
  @spec equal?(term(), term()) :: boolean()
  def equal?(%Context{} = a, %Context{} = b), do: Context.equal?(a, b)
  def equal?(a, b), do: a == b

  # Two attributes hold a whole conversation: what is beside the iterations stands in the first of them, under this
  # key.
  @conversation "conversation"

  @doc "The attributes of `AshAgent.Context.Embedded`."
  @spec to_attributes(Context.t()) :: %{iterations: [map()], current_iteration: pos_integer()}
  def to_attributes(%Context{} = context) do
    {[first | rest], conversation} = context |> Context.dump() |> Map.pop!("iterations")

    %{
      iterations: [Map.put(first, @conversation, conversation) | rest],
      current_iteration: context.current_iteration
    }
  end

  @doc "The context of the attributes of `AshAgent.Context.Embedded`, or of iterations as `to_map/1` gives them."
  @spec from_attributes(%{
          :iterations => [map()] | nil,
          :current_iteration => pos_integer() | nil,
          optional(atom()) => term()
        }) :: {:ok, Context.t()} | {:error, Error.t()}
  def from_attributes(%{iterations: iterations, current_iteration: number}) do
    case iterations do
      [%{@conversation => %{} = conversation} = first | rest] ->
        iterations = [Map.delete(first, @conversation) | rest]

        with {:ok, context} <- Context.load(Map.put(conversation, "iterations", iterations)),
             do: reach(context, number)

      _ ->
        Context.create(%{iterations: iterations, current_iteration: number})
    end
  end

  # The attribute may have been set to the next iteration.
  defp reach(%Context{current_iteration: number} = context, number), do: {:ok, context}
  defp reach(context, nil), do: {:ok, context}
  defp reach(context, number), do: Context.update(context, current_iteration: number)
end
