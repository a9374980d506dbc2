defmodule AshAgent.Context.StorageTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators

  alias AshAgent.Context
  alias AshAgent.Context.{Error, JSON}

  @at ~U[2026-01-01 10:00:00.000000Z]

  defp assert_equal(context, copy) do
    assert Context.equal?(context, copy)
    assert_same(Context.to_map(context), Context.to_map(copy))
    assert Context.to_messages(context) == Context.to_messages(copy)
    assert Context.pending_tool_calls(context) == Context.pending_tool_calls(copy)
    assert Context.count_messages(context) == Context.count_messages(copy)
    copy
  end

  # A value as it is stored and as it comes back.
  defp stored(value) do
    context = Context.new("hi", metadata: %{"value" => value})
    dump = Context.dump(context)
    {dump["metadata"]["value"], Context.metadata(Context.load!(dump))["value"]}
  end

  # As PostgreSQL's JSONB gives a document back: keys in another order, numbers as exact decimals without exponents.
  defp jsonb(map) when is_map(map) do
    for {key, value} <- map, into: %{} do
      refuse_nul(key)
      {key, jsonb(value)}
    end
  end

  defp jsonb(list) when is_list(list), do: Enum.map(list, &jsonb/1)

  # Jason writes a round float from 1000.0 up with an exponent, and JSONB makes an integer of that; there is no -0.0.
  defp jsonb(float) when is_float(float) do
    cond do
      <<float::float>> == <<-0.0::float>> -> 0.0
      trunc(float) == float and abs(float) >= 1000.0 -> trunc(float)
      true -> float
    end
  end

  defp jsonb(text) when is_binary(text), do: refuse_nul(text)
  defp jsonb(other), do: other

  defp refuse_nul(text) do
    assert String.valid?(text)
    refute String.contains?(text, <<0>>)
    text
  end

  describe "dump/1 and load/1" do
    test "give an equal context, whatever is in it" do
      check_all("load after dump", [runs: 150, max_size: 14], fn size ->
        context = random_context(size)
        dump = Context.dump(context)
        assert_equal(context, Context.load!(dump))
        assert Context.dump(Context.load!(dump)) == dump
      end)
    end

    test "give an equal context after JSON text, JSONB and the text of another writer" do
      check_all("load after JSONB", [runs: 100, max_size: 12], fn size ->
        context = random_context(size)
        dump = Context.dump(context)
        text = Context.to_snapshot(context)
        assert JSON.decode!(text) == dump
        assert_equal(context, Context.load!(text))
        assert_equal(context, Context.load!(JSON.encode(dump)))
        assert_equal(context, Context.load!(jsonb(dump)))
      end)
    end

    test "keep what to_map/1 cannot: JSON text of arguments, interrupts, notes on results" do
      arguments = ~s({"city" : "NYC", "n": 1.50})

      context =
        Context.new("Weather?", id: "c", at: @at)
        |> Context.add_assistant_message("ok", [
          %{id: "a", name: :get_weather, arguments: arguments, index: 0},
          %{id: "b", name: "sleep"}
        ])
        |> Context.add_tool_results([{"a", {:ok, %{temp: 72}}}], metadata: %{took: 12})
        |> Context.interrupt("stop")

      assert %{"iterations" => [%{"messages" => [_, assistant]} | _]} = Context.dump(context)

      assert assistant["tool_calls"] == [
               %{
                 "id" => "a",
                 "name" => ":get_weather",
                 "arguments" => %{"city" => "NYC", "n" => 1.5},
                 "arguments_json" => arguments,
                 "extra" => %{":index" => 0},
                 "status" => "ok",
                 "result" => %{"value" => %{":temp" => 72}}
               },
               %{
                 "id" => "b",
                 "name" => "sleep",
                 "arguments" => %{},
                 "status" => "interrupted",
                 "result" => %{"value" => "stop"}
               }
             ]

      assert assistant["results_metadata"] == %{":took" => 12}
      assert_equal(context, Context.load!(Context.dump(context)))
    end

    test "read well where JSON has what is stored" do
    end

    test "tag what JSON lacks" do
      for {value, json} <- [
            {:ok, %{"$atom" => "ok"}},
            {{:ok, 1}, %{"$tuple" => [%{"$atom" => "ok"}, 1]}},
            {{}, %{"$tuple" => []}},
            {%{city: "NYC"}, %{":city" => "NYC"}},
            {%{nil: 1, true: 2}, %{":nil" => 1, ":true" => 2}},
            {%{1 => 2}, %{"$map" => [[1, 2]]}},
            {0x10000000000000000, %{"$int" => "18446744073709551616"}},
            {-0x10000000000000000, %{"$int" => "-18446744073709551616"}},
            {1.0e22, %{"$float" => "1e22"}},
            {1000.0, %{"$float" => "1000.0"}},
            {-0.0, %{"$float" => "-0.0"}},
            {<<255, 0>>, %{"$bytes" => "/wA="}},
            {"a\0", %{"$bytes" => "YQA="}},
            {~D[2026-02-28],
             %{
               ":__struct__" => %{"$atom" => "Elixir.Date"},
               ":calendar" => %{"$atom" => "Elixir.Calendar.ISO"},
               ":day" => 28,
               ":month" => 2,
               ":year" => 2026
             }}
          ] do
        assert {^json, back} = stored(value)
        assert_same(value, back)
      end
    end

    test "keep texts and keys that look like tags" do
      for key <- ["$atom", "$", "$$", ":a", ":", "$:a", "$$atom", "$map", "a:", "$atom$"],
          value <- [%{key => "x"}, %{key => ["x"], "b" => 1}, key, [key], %{:a => 1, key => 2}] do
        assert {_, ^value} = stored(value)
      end

      assert {%{"$$atom" => "x"}, _} = stored(%{"$atom" => "x"})
      assert {%{"$:a" => 1, ":a" => 2}, _} = stored(%{":a" => 1, a: 2})
    end
  end

  describe "a format" do
    test "of a newer version is refused with words that say so" do
      dump = Context.new("hi") |> Context.dump() |> Map.put("version", 3)
      assert {:error, %Error{reason: {:invalid, ["version"], _}} = error} = Context.load(dump)
      assert Exception.message(error) =~ "a newer release of ash_agent_context wrote this"
    end

    test "of version 1 is read for ever" do
      text = File.read!("test/fixtures/snapshot_v1.json")
      context = Context.load!(text)
      assert Context.dump(context) == JSON.decode!(text)
      assert_equal(context, Context.load!(Context.dump(context)))

      assert %{id: "golden", current_iteration: 4, metadata: %{:user_id => 7, "plan" => :pro}} =
               Context.to_map(context)

      assert [%{role: :system, content: "You are a helpful assistant."} | _] =
               Context.to_messages(context)

      assert %{name: :get_weather, arguments: %{city: "NYC"}, result: {:ok, %{temp: 72}}} =
               call(context, "call_1")

      assert %{name: "search", arguments: %{"q" => "a"}, result: {:error, {:http, 500}}} =
               call(context, "call_2")

      assert %{result: {:error, "interrupted"}} = call(context, "call_3")

      assert %{result: {:ok, [%{type: :image, media_type: "image/png"} | _]}} =
               call(context, "call_4")

      assert [%{id: "call_5"}] = Context.pending_tool_calls(context)

      assert Context.get_iteration(context, 2).metadata == %{
               big: 0x10000000000000000,
               bytes: <<255, 254>>,
               day: ~D[2026-02-28],
               float: 1.0e22,
               keys: %{1 => :one, {:a, "b"} => 2},
               zero: -0.0
             }

      assert [
               %{type: :thinking, provider_metadata: %{provider: :anthropic, signature: "c2ln"}}
               | _
             ] =
               Context.get_iteration_messages(context, 2)
               |> Enum.find_value(&(&1.role == :assistant and &1.content))
    end
  end

  defp call(context, id) do
    context |> Enum.flat_map(& &1.tool_calls) |> Enum.find(&(&1.id == id))
  end

  describe "unknown fields" do
    # Puts a field that nobody knows into every map of the document that is no value.
    defp with_unknown(document) do
      unknown = %{"$new" => [1, %{":a" => "$b"}], "n" => nil}
      put = &Map.put(&1, "unknown", unknown)

      part = put

      call = fn call ->
        call
        |> update("result", fn result ->
          result |> update("parts", &Enum.map(&1, part)) |> put.()
        end)
        |> put.()
      end

      message = fn message ->
        message
        |> update("content", fn content ->
          if is_list(content), do: Enum.map(content, part), else: content
        end)
        |> update("tool_calls", &Enum.map(&1, call))
        |> put.()
      end

      iteration = fn iteration ->
        iteration |> update("messages", &Enum.map(&1, message)) |> put.()
      end

      document
      |> update("system", message)
      |> update("iterations", &Enum.map(&1, iteration))
      |> put.()
    end

    defp update(map, key, fun), do: if(map[key], do: Map.update!(map, key, fun), else: map)

    test "survive at every level" do
      check_all("unknown fields", [runs: 60, max_size: 12], fn size ->
        dump = with_unknown(Context.dump(random_context(size)))
        assert Context.dump(Context.load!(dump)) == dump
        assert Context.dump(Context.load!(JSON.encode(dump))) == dump
      end)
    end

    test "survive what is done with the context" do
      context = Context.new("hi") |> Context.add_assistant_message("hello")
      dump = with_unknown(Context.dump(context))

      next =
        dump |> Context.load!() |> Context.add_user_message("more") |> Context.put_metadata(:a, 1)

      stored = Context.dump(next)
      assert stored["unknown"] == dump["unknown"]
      assert [first | _] = stored["iterations"]

      assert Map.delete(first, "completed_at") ==
               Map.delete(hd(dump["iterations"]), "completed_at")
    end
  end

  describe "atoms that this VM does not have" do
    test "come back as a struct with their name, and are stored as the atoms they were" do
      name = "no_such_atom_#{System.unique_integer([:positive])}_#{System.system_time()}"

      dump =
        Context.new("hi")
        |> Context.dump()
        |> Map.put("metadata", %{(":" <> name) => %{"$atom" => name}})

      context = Context.load!(dump)
      unknown = %Context.UnknownAtom{name: name}
      assert Context.metadata(context) == %{unknown => unknown}
      assert Context.dump(context) == dump
      assert_equal(context, Context.load!(Context.dump(context)))
      assert_raise ArgumentError, fn -> String.to_existing_atom(name) end
    end
  end

  describe "dump/2 with :since and load/2" do
    # The contexts after every operation that was accepted, oldest first. A fork is another conversation.
    defp history(size) do
      {new, operations, _model} = conversation(size)

      operations
      |> Enum.reject(fn {function, _} -> function in [:recreate, :update, :fork] end)
      |> Enum.scan(apply(Context, :new, new), fn {function, arguments}, context ->
        try_operation(context, function, arguments)
      end)
    end

    defp only_appended(history) do
      # A note on an older iteration does not travel with the newer ones.
      Enum.filter(history, fn context ->
        Enum.all?(Context.iterations(context), &(&1.metadata == %{}))
      end)
    end

    test "give the newer context again, once or twice, whole or row by row" do
      check_all("deltas", [runs: 80, max_size: 14], fn size ->
        history = only_appended(history(size))

        for {base, index} <- Enum.with_index(history), newer <- Enum.drop(history, index) do
          delta = Context.dump(newer, since: base.current_iteration)
          once = Context.load!(base, delta)
          assert Context.equal?(newer, once)
          assert Context.equal?(newer, Context.load!(once, delta))
          assert Context.equal?(newer, Context.load!(base, jsonb(delta)))
        end

        with [_ | _] <- history do
          last = List.last(history)

          assert_equal(
            last,
            Enum.reduce(tl(history), hd(history), fn newer, stored ->
              Context.load!(stored, Context.dump(newer, since: stored.current_iteration))
            end)
          )
        end
      end)
    end

    test "drop what the context has behind the delta, and give new calls the aliases they would have had" do
      calls = [%{id: "same", name: :a}, %{id: "b c", name: :b}]

      turn = fn context ->
        context
        |> Context.add_assistant_message(nil, calls, at: @at)
        |> Context.add_tool_results([{"same", {:ok, 1}}, {"b c", {:ok, 2}}], at: @at)
      end

      one = Context.new("hi", id: "c", at: @at) |> turn.()
      three = one |> turn.() |> turn.()
      delta = Context.dump(one, since: 2)
      back = Context.load!(three, delta)
      assert_equal(one, back)
      assert Context.equal?(turn.(one), turn.(back))

      assert Context.equal?(
               turn.(turn.(one)),
               turn.(Context.load!(three, Context.dump(turn.(one), since: 2)))
             )
    end

    test "can be refused" do
      base = Context.new("1", id: "c", at: @at)
      two = base |> Context.add_assistant_message("one") |> Context.add_user_message("2")
      three = two |> Context.add_assistant_message("two") |> Context.add_user_message("3")

      # Not whole.
      assert {:error, %Error{reason: {:invalid, ["since"], _}}} =
               Context.load(Context.dump(two, since: 2))

      # A gap.
      assert {:error, %Error{reason: {:invalid, ["since"], "2 at most" <> _}}} =
               Context.load(base, Context.dump(three, since: 3))

      # The last iteration went on after it had been stored.
      assert {:error, %Error{reason: {:invalid, ["since"], "1 at most" <> _}}} =
               Context.load(base, Context.dump(two, since: 2))

      # Another conversation.
      assert {:error, %Error{reason: {:invalid, ["id"], _}}} =
               Context.load(Context.new("1"), Context.dump(two, since: 1))

      # The iterations are not those it speaks of.
      delta = Context.dump(three, since: 2)

      assert {:error, %Error{reason: {:invalid, ["iterations", 0, "number"], _}}} =
               Context.load(two, %{delta | "iterations" => tl(delta["iterations"])})

      assert {:error, %Error{reason: {:invalid, ["iterations"], _}}} =
               Context.load(two, %{delta | "iterations" => []})

      assert reason_of(fn -> Context.dump(two, since: 3) end) == {:unknown_iteration, 3, 1..2}

      for wrong <- [0, -1, "1", 1.0, :all],
          do: assert_caller_bug(fn -> Context.dump(two, since: wrong) end)

      for wrong <- [nil, 7, %{}, [], :two],
          do: assert_caller_bug(fn -> Context.dump(two, beside: wrong) end)

      assert Context.dump(two, since: nil) == Context.dump(two)

      for both <- [[beside: two, since: 1], [since: 1, beside: two]] do
        error = assert_caller_bug(fn -> Context.dump(two, both) end)
        assert Exception.message(error) =~ ":since and :beside exclude each other"
      end

      error = assert_caller_bug(fn -> Context.dump(two, from: 1) end)
      assert Exception.message(error) =~ "valid options are: [:since, :beside]"

      assert_caller_bug(fn -> Context.dump(two, from: 1) end)
      for wrong <- [nil, %{}], do: assert_caller_bug(fn -> Context.load(wrong, %{}) end)
    end

    test "store a conversation a row an iteration" do
      # As the guide does with two tables.
      save = fn context, {_head, rows} ->
        since = rows |> Map.keys() |> Enum.max(fn -> 1 end)
        {iterations, head} = context |> Context.dump(since: since) |> Map.pop!("iterations")
        {Map.delete(head, "since"), Enum.into(iterations, rows, &{&1["number"], &1})}
      end

      restore = fn {head, rows} ->
        iterations = rows |> Enum.sort() |> Enum.map(&elem(&1, 1))
        Context.load!(Map.put(head, "iterations", iterations))
      end

      check_all("rows", [runs: 40, max_size: 14], fn size ->
        for context <- only_appended(history(size)), reduce: {nil, %{}} do
          stored ->
            stored = save.(context, stored)
            assert Context.equal?(context, restore.(stored))
            stored
        end
      end)
    end
  end

  describe "the !-functions" do
    test "raise what the others return" do
      assert reason_of(fn -> Context.load!(%{}) end) ==
               {:invalid, ["version"], "the version of the format, 1"}

      assert {:invalid, ["version"], _} =
               reason_of(fn -> Context.load!(Context.new("hi"), %{}) end)

      assert {:invalid, [], _} = reason_of(fn -> Context.load!("{") end)
    end
  end
end
