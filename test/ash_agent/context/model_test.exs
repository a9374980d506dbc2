defmodule AshAgent.Context.ModelTest do
  use ExUnit.Case, async: true

  @moduletag :slow

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators

  alias AshAgent.Context
  alias AshAgent.Context.Error
  alias AshAgent.TestSupport.Model

  # One command is `{back, function, arguments}`: apply it to the context `back` steps before the newest one. With
  # `back` above 0 it forks the conversation.
  defp commands(size) do
    new = new_arguments(size)
    pool = [apply(Model, :new, new)]

    {commands, _} =
      Enum.map_reduce(1..(2 + size), pool, fn _, pool ->
        back = if chance(75), do: 0, else: between(0, length(pool) - 1)
        model = Enum.at(pool, back)
        {function, arguments} = operation(model, min(size, 12))

        case apply(Model, function, [model | arguments]) do
          {:ok, next} -> {{back, function, arguments}, [next | pool]}
          {:error, _} -> {{back, function, arguments}, pool}
        end
      end)

    {new, commands}
  end

  # Runs the commands on both, comparing after each step, and all contexts once more at the end.
  defp run({new, commands}) do
    native = apply(Context, :new, new)
    model = apply(Model, :new, new)
    compare(native, model)

    pool =
      Enum.reduce(commands, [{native, model}], fn {back, function, arguments}, pool ->
        step(Enum.at(pool, rem(back, length(pool))), function, arguments, pool)
      end)

    Enum.each(pool, fn {native, model} -> compare(native, model) end)
  end

  defp step({native, model}, function, arguments, pool) do
    case {apply_native(native, function, arguments), apply(Model, function, [model | arguments])} do
      {{:ok, next}, {:ok, next_model}} ->
        compare(next, next_model)
        [{next, next_model} | pool]

      {{:error, reason}, {:error, reasons}} ->
        unless reason in reasons do
          flunk("the reason is #{inspect(reason)}, allowed are #{inspect(reasons)}")
        end

        compare(native, model)
        pool

      {{:ok, _}, {:error, reasons}} ->
        flunk("was accepted, the specification says #{inspect(reasons)}")

      {{:error, reason}, {:ok, _}} ->
        flunk("was refused with #{inspect(reason)}, the specification accepts it")
    end
  end

  defp apply_native(native, :recreate, []), do: Context.create(Context.to_map(native))
  defp apply_native(native, :update, [attributes]), do: Context.update(native, attributes)

  defp apply_native(native, function, arguments) do
    {:ok, apply(Context, function, [native | arguments])}
  rescue
    error in Error -> {:error, error.reason}
  end

  defp compare(native, model) do
    expected = Model.to_map(model)
    messages = Model.to_messages(model)
    numbers = Enum.map(expected.iterations, & &1.number)

    assert_same(expected, Context.to_map(native))
    assert_same(messages, Context.to_messages(native))
    assert_same(messages, Context.get_all_messages(native))
    assert_same(expected.iterations, Context.iterations(native))
    assert_same(expected.metadata, Context.metadata(native))
    assert_same(Model.extract_tool_calls(model), Context.extract_tool_calls(native))
    assert_same(Model.pending_tool_calls(model), Context.pending_tool_calls(native))
    assert native.current_iteration == expected.current_iteration
    assert Context.count_messages(native) == length(messages)
    assert Context.count_iterations(native) == length(numbers)
    assert Enum.count(native) == length(numbers)
    assert Context.exceeded_max_iterations?(native, List.last(numbers))
    refute Context.exceeded_max_iterations?(native, List.last(numbers) + 1)

    for {iteration, number} <- Enum.zip(expected.iterations, numbers) do
      assert_same(iteration, Context.get_iteration(native, number))
      assert_same(iteration.messages, Context.get_iteration_messages(native, number))

      for {message, position} <- Enum.with_index(iteration.messages) do
        assert {:ok, actual} = Context.fetch_message(native, {number, position})
        assert_same(message, actual)
      end

      assert :error == Context.fetch_message(native, {number, length(iteration.messages)})
    end

    assert nil == Context.get_iteration(native, List.last(numbers) + 1)
    assert Context.equal?(native, native)

    assert inspect(native) =~
             ~r/^#AshAgent.Context<iteration #{List.last(numbers)}, #{length(messages)} messages?/
  end

  defp outcome(program) do
    run(program)
    :ok
  rescue
    exception -> {:failed, exception, __STACKTRACE__}
  end

  # Leaves out commands, from the last to the first, as long as it still fails.
  defp shrink({new, commands}) do
    shorter =
      Enum.find_value((length(commands) - 1)..0//-1, fn index ->
        candidate = {new, List.delete_at(commands, index)}
        if outcome(candidate) != :ok, do: candidate
      end)

    if shorter, do: shrink(shorter), else: {new, commands}
  end

  defp check(program) do
    with {:failed, _, _} <- outcome(program) do
      {new, commands} = shrunk = shrink(program)
      {:failed, exception, stacktrace} = outcome(shrunk)

      message = """
      #{Exception.message(exception)}

      The operations that lead there ({contexts back, function, arguments}):
      new #{show(new)}
      #{Enum.map_join(commands, "\n", &show/1)}
      """

      reraise ExUnit.AssertionError, [message: message], stacktrace
    end
  end

  defp show(term), do: inspect(term, limit: :infinity, printable_limit: 200, width: 160)

  test "random operations do the same as on lists and maps, and never change an older context" do
    check_all("model", [runs: 150, max_size: 40], &check(commands(&1)))
  end

  test "long conversations do the same as on lists and maps" do
    seed_case(ExUnit.configuration()[:seed], "long", 1)
    {new, commands} = commands(300)
    native = apply(Context, :new, new)
    model = apply(Model, :new, new)

    # Compared only at the end, since each comparison grows with the conversation.
    pool =
      Enum.reduce(commands, [{native, model}], fn {back, function, arguments}, pool ->
        {native, model} = Enum.at(pool, back)

        case {apply_native(native, function, arguments),
              apply(Model, function, [model | arguments])} do
          {{:ok, next}, {:ok, next_model}} -> [{next, next_model} | pool]
          {{:error, _}, {:error, _}} -> pool
        end
      end)

    pool |> Enum.take_every(15) |> Enum.each(fn {native, model} -> compare(native, model) end)
  end

  test "the same operations lead to equal contexts" do
    check_all("equal", [runs: 40, max_size: 25], fn size ->
      {arguments, operations, _} = conversation(size)

      build = fn ->
        Enum.reduce(operations, apply(Context, :new, arguments), fn {function, arguments},
                                                                    context ->
          case apply_native(context, function, arguments) do
            {:ok, next} -> next
            {:error, _} -> context
          end
        end)
      end

      one = build.()
      two = Task.await(Task.async(build))
      assert Context.equal?(one, two)
      assert_same(Context.to_map(one), Context.to_map(two))
      refute Context.equal?(one, Context.put_metadata(one, :one_more, 1))
    end)
  end

  test "a fork never changes its origin, whoever forks" do
    check_all("forks", [runs: 20, max_size: 20], fn size ->
      {arguments, operations, _} = conversation(size)
      origin = apply(Context, :new, arguments)
      before = Context.to_map(origin)

      1..8
      |> Enum.map(fn _ ->
        Task.async(fn ->
          Enum.reduce(operations, origin, fn {function, arguments}, context ->
            case apply_native(context, function, arguments) do
              {:ok, next} -> next
              {:error, _} -> context
            end
          end)
        end)
      end)
      |> Task.await_many()
      |> Enum.reduce(fn one, other ->
        assert Context.equal?(one, other)
        one
      end)

      assert_same(before, Context.to_map(origin))
    end)
  end
end
