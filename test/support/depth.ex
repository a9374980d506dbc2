defmodule AshAgent.TestSupport.Depth do
  @moduledoc false
  # Deep values beside enough data that every function takes its way for large data.

  alias AshAgent.Context

  def nest(kind, levels)
  def nest(:list, levels), do: Enum.reduce(2..levels//1, [1], fn _, inner -> [inner] end)
  def nest(:tuple, levels), do: Enum.reduce(2..levels//1, {1}, fn _, inner -> {inner} end)
  def nest(:map, levels), do: Enum.reduce(2..levels//1, %{a: 1}, fn _, inner -> %{a: inner} end)

  def nest(:key, levels),
    do: Enum.reduce(2..levels//1, %{1 => 1}, fn _, inner -> %{inner => 1} end)

  @doc "Puts a value of 256 levels and 10,000 numbers through everything; `:done` when it came back each time."
  def everything(kind) do
    # Keys that are maps have no short form in JSON, so they are not given to what makes JSON of them.
    value = {Enum.to_list(1..10_000), nest(kind, 255)}
    result = if kind == :key, do: "text", else: value

    context =
      Context.new("Hello", metadata: %{a: value})
      |> Context.add_user_message("Hi", metadata: %{a: value})
      |> Context.add_assistant_message(nil, [
        %{id: "a", name: :a, arguments: %{a: elem(value, 1)}, x: value}
      ])
      |> Context.add_tool_results([{"a", {:ok, result}}], metadata: %{a: value})
      |> Context.put_metadata(:b, value)
      |> Context.put_iteration_metadata(1, :b, value)
      |> Context.add_user_message([
        %{type: :provider_block, provider: :anthropic, data: %{a: elem(value, 1)}}
      ])
      |> Context.add_assistant_message(nil, [%{id: "b", name: :a}])

    map = Context.to_map(context)
    again = Context.create!(map)
    check(Context.to_map(again) == map, "Context.to_map(again) == map")
    check(Context.equal?(context, again), "Context.equal?(context, again)")

    check(
      Context.to_map(Context.update!(context, map)) == map,
      "Context.to_map(Context.update!(context, map)) == map"
    )

    check(
      Context.metadata(context) == %{a: value, b: value},
      "Context.metadata(context) == %{a: value, b: value}"
    )

    [_ | _] = Context.to_messages(context)
    [_, _] = Context.iterations(context)
    {:ok, _} = Context.fetch_message(context, {1, 3})
    interrupted = Context.interrupt(context, result)
    map = Context.to_map(interrupted)
    check(Context.to_map(Context.create!(map)) == map, "to_map after interrupt")
    text = IO.iodata_to_binary(Context.JSON.encode(result))
    {:ok, _} = Context.JSON.decode(text)
    :done
  end

  defp check(true, _what), do: :ok
  defp check(false, what), do: raise("not so: #{what}")

  @doc "Puts values of `levels` levels, too many, everywhere; `:refused` when all are."
  def too_deep(kind, levels) do
    value = {Enum.to_list(1..10_000), nest(kind, levels)}
    # Where exactly the limit is for create/1 and update/2 has a test of its own.
    deeper = nest(kind, levels + 20)
    context = Context.add_assistant_message(Context.new("Hello"), nil, [%{id: "a", name: :a}])

    for {put, index} <-
          Enum.with_index([
            fn -> Context.new("Hello", metadata: %{a: value}) end,
            fn -> Context.put_metadata(context, :a, value) end,
            fn -> Context.put_iteration_metadata(context, 1, :a, value) end,
            fn -> Context.add_tool_results(context, [{"a", {:ok, value}}]) end,
            fn -> Context.interrupt(context, value) end,
            fn -> Context.create!(%{metadata: %{a: deeper}}) end,
            fn -> Context.update!(context, %{metadata: %{a: deeper}}) end
          ]) do
      try do
        put.()
        raise "#{levels} levels were accepted in place #{index}"
      rescue
        error in Context.Error -> {:too_deep, 256} = error.reason
      end
    end

    :refused
  end
end
