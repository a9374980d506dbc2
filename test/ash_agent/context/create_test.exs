defmodule AshAgent.Context.CreateTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators

  alias AshAgent.Context
  alias AshAgent.Context.Error

  @t0 ~U[2026-01-01 10:00:00.000000Z]
  @t1 ~U[2026-01-01 10:00:01.250000Z]

  # A conversation whose values all exist in JSON.
  defp plain do
    Context.new("Hello",
      system_prompt: "S",
      at: @t0,
      id: "conversation-1",
      metadata: %{"user" => 7}
    )
    |> Context.add_assistant_message(
      [%{type: :text, text: "Hm"}, %{type: :image, media_type: "image/png", data: "aGVsbG8="}],
      [
        %{id: "a", name: "search", arguments: %{"q" => "x", "n" => [1, 1.5, nil, true]}},
        %{id: "b", name: "read", arguments: %{}},
        %{id: "c", name: "look", arguments: %{}}
      ],
      at: @t0,
      metadata: %{"model" => "m"}
    )
    |> Context.add_tool_results([{"b", {:error, "no such file"}}],
      at: @t0,
      metadata: %{"ms" => 12}
    )
    |> Context.add_tool_results(
      [{"a", {:ok, %{"found" => [1, 2]}}}, {"c", {:ok, [%{type: :text, text: "seen"}]}}],
      at: @t1
    )
    |> Context.put_iteration_metadata(1, "cost", 0.5, at: @t1)
    |> Context.add_assistant_message(nil, [%{id: "a", name: "search"}, %{id: "d", name: "x"}],
      at: @t1
    )
    |> Context.add_tool_results([{"d", {:ok, nil}}], at: @t1)
  end

  # What a JSON column gives back: text keys, roles and times as text, results as lists.
  defp stored(%DateTime{} = time), do: DateTime.to_iso8601(time)
  defp stored({kind, term}) when kind in [:ok, :error], do: [Atom.to_string(kind), stored(term)]
  defp stored(list) when is_list(list), do: Enum.map(list, &stored/1)
  defp stored(map) when is_map(map), do: Map.new(map, fn {k, v} -> {to_string(k), stored(v)} end)
  defp stored(atom) when atom in [nil, true, false], do: atom
  defp stored(atom) when is_atom(atom), do: Atom.to_string(atom)
  defp stored(other), do: other

  describe "create/1 and to_map/1" do
    test "give exactly the keys of a context" do
      assert [:created_at, :current_iteration, :id, :iterations, :metadata, :updated_at] ==
               plain() |> Context.to_map() |> Map.keys() |> Enum.sort()
    end

    test "are inverse for any conversation" do
      check_all("create", [runs: 120, max_size: 30], fn size ->
        context = native_conversation(size)
        map = Context.to_map(context)
        again = Context.create!(map)
        assert_same(map, Context.to_map(again))
        assert_same(Context.to_messages(context), Context.to_messages(again))
        assert_same(Context.pending_tool_calls(context), Context.pending_tool_calls(again))
        assert again.current_iteration == context.current_iteration
        assert Context.count_messages(again) == Context.count_messages(context)
      end)
    end

    test "take what JSON made of it" do
      map = Context.to_map(plain())
      expected = %{map | iterations: Enum.map(map.iterations, &with_stored_parts/1)}
      assert_same(expected, Context.to_map(Context.create!(stored(map))))
    end

    # The parts inside the slot of call "c" are data of the caller; nothing says that its keys become atoms again.
    defp with_stored_parts(iteration) do
      calls = Context.to_map(Context.create!(stored(Context.to_map(plain())))).iterations
      kept = Enum.find(calls, &(&1.number == iteration.number)).tool_calls

      tool_calls =
        for {call, kept} <- Enum.zip(iteration.tool_calls, kept) do
          if call.id == "c" do
            assert {:ok, [part]} = kept.result
            assert part in [%{type: :text, text: "seen"}, %{"type" => "text", "text" => "seen"}]
            %{call | result: kept.result}
          else
            call
          end
        end

      %{iteration | tool_calls: tool_calls}
    end

    test "take JSON text there and back" do
      json =
        plain() |> Context.to_map() |> stored() |> Context.JSON.encode() |> IO.iodata_to_binary()

      assert {:ok, decoded} = Context.JSON.decode(json)
      context = Context.create!(decoded)
      assert_same(Context.to_messages(plain()), Context.to_messages(context))
      assert Context.metadata(context) == %{"user" => 7}
    end
  end

  describe "create/1" do
    test "takes the number that ash_agent stores before the first iteration" do
      for attributes <- [%{current_iteration: 0}, %{"iterations" => [], "current_iteration" => 0}] do
        assert {:ok, %{current_iteration: 1} = context} = Context.create(attributes)
        assert Context.count_messages(context) == 0
      end
    end

    test "makes one empty iteration of nothing" do
      for attributes <- [
            %{},
            [],
            %{iterations: []},
            %{"iterations" => []},
            [current_iteration: 1]
          ] do
        context = Context.create!(attributes)
        assert context.current_iteration == 1
        assert [%{number: 1, messages: [], tool_calls: []}] = Context.iterations(context)
        assert Context.to_messages(context) == []
        assert Context.metadata(context) == %{}
      end
    end

    test "keeps the numbers of iterations whose predecessors are gone" do
      context =
        Context.create!(%{
          iterations: [
            %{number: 5, messages: [%{role: :user, content: "five"}]},
            %{number: 6, messages: [%{role: :user, content: "six"}]}
          ]
        })

      assert context.current_iteration == 6
      assert Context.count_iterations(context) == 2
      assert Context.get_iteration(context, 1) == nil
      assert [%{content: "five"}] = Context.get_iteration_messages(context, 5)
      assert [%{content: "six"}] = Context.get_iteration_messages(context, 6)
      assert Context.get_iteration(context, 7) == nil
      assert {:ok, %{content: "six"}} = Context.fetch_message(context, {6, 0})
      assert :error == Context.fetch_message(context, {1, 0})
      assert Context.exceeded_max_iterations?(context, 6)
      refute Context.exceeded_max_iterations?(context, 7)

      assert {:unknown_iteration, 1, 5..6} ==
               reason_of(fn -> Context.put_iteration_metadata(context, 1, :a, 1) end)

      assert %{number: 6} =
               Context.get_iteration(Context.put_iteration_metadata(context, 6, :a, 1), 6)

      context = Context.add_assistant_message(context, "ok") |> Context.add_user_message("seven")
      assert context.current_iteration == 7
    end

    test "reads times from ISO 8601 text" do
      context =
        Context.create!(%{
          "created_at" => "2026-01-01T10:00:00.000000Z",
          "updated_at" => "2026-01-01T11:00:01.250000+01:00",
          "iterations" => [
            %{"number" => 1, "messages" => [], "started_at" => "2026-01-01T10:00:00.000000Z"}
          ]
        })

      map = Context.to_map(context)
      assert DateTime.compare(map.created_at, @t0) == :eq
      assert DateTime.compare(map.updated_at, @t1) == :eq
      assert DateTime.compare(hd(map.iterations).started_at, @t0) == :eq
      assert hd(map.iterations).completed_at == nil
    end

    test "names the path of what is wrong" do
      iteration = %{number: 1, messages: [%{role: :user, content: "Hi"}]}
      message = fn message -> %{iterations: [%{iteration | messages: [message]}]} end
      call = fn call -> message.(%{role: :assistant, content: nil, tool_calls: [call]}) end
      first = [:iterations, 0]
      in_message = [:iterations, 0, :messages, 0]

      for {attributes, path} <- [
            {%{iterations: 7}, [:iterations]},
            {%{iterations: "text"}, [:iterations]},
            {%{iterations: %{}}, [:iterations]},
            {%{iterations: [7]}, first},
            {%{iterations: [nil]}, first},
            {%{iterations: [iteration, 7]}, [:iterations, 1]},
            {%{iterations: [%{iteration | number: 0}]}, first ++ [:number]},
            {%{iterations: [%{iteration | number: -1}]}, first ++ [:number]},
            {%{iterations: [%{iteration | number: "1"}]}, first ++ [:number]},
            {%{iterations: [%{iteration | number: 1.0}]}, first ++ [:number]},
            {%{iterations: [%{iteration | number: 0x10000000000000000}]}, first ++ [:number]},
            {%{iterations: [iteration, %{iteration | number: 3}]}, [:iterations, 1, :number]},
            {%{iterations: [iteration, iteration]}, [:iterations, 1, :number]},
            {%{iterations: [%{iteration | number: 2}, iteration]}, [:iterations, 1, :number]},
            {%{iterations: [Map.put(iteration, :started_at, "yesterday")]},
             first ++ [:started_at]},
            {%{iterations: [Map.put(iteration, :started_at, 7)]}, first ++ [:started_at]},
            {%{iterations: [Map.put(iteration, :completed_at, ~D[2026-01-01])]},
             first ++ [:completed_at]},
            {%{iterations: [Map.put(iteration, :metadata, 7)]}, first ++ [:metadata]},
            {%{iterations: [Map.put(iteration, :tool_calls, 7)]}, first ++ [:tool_calls]},
            {%{iterations: [Map.put(iteration, :messages, 7)]}, first ++ [:messages]},
            {message.(7), in_message},
            {message.(%{role: :bogus, content: "x"}), in_message ++ [:role]},
            {message.(%{role: 7, content: "x"}), in_message ++ [:role]},
            {message.(%{role: :user, content: 7}), in_message ++ [:content]},
            {message.(%{role: :user, content: %{}}), in_message ++ [:content]},
            {message.(%{role: :user, content: "x", metadata: 7}), in_message ++ [:metadata]},
            {message.(%{role: :user, content: [%{type: :text, text: 7}]}),
             in_message ++ [:content, 0, :text]},
            {message.(%{role: :user, content: [%{type: :text, text: ""}, %{type: :no}]}),
             in_message ++ [:content, 1, :type]},
            {message.(%{role: :assistant, content: nil, tool_calls: 7}),
             in_message ++ [:tool_calls]},
            {call.(%{id: "a", name: 7}), in_message ++ [:tool_calls, 0, :name]},
            {call.(%{id: 7, name: :a}), in_message ++ [:tool_calls, 0, :id]},
            {call.(%{id: "a", name: :a, arguments: 7}),
             in_message ++ [:tool_calls, 0, :arguments]},
            {%{iterations: [iteration], current_iteration: 3}, [:current_iteration]},
            {%{iterations: [iteration], current_iteration: 0}, [:current_iteration]},
            {%{iterations: [iteration], current_iteration: "1"}, [:current_iteration]},
            {%{iterations: [iteration, %{iteration | number: 2}], current_iteration: 1},
             [:current_iteration]},
            {%{current_iteration: 0x10000000000000000}, [:current_iteration]},
            {%{id: 7}, [:id]},
            {%{metadata: 7}, [:metadata]},
            {%{metadata: [1]}, [:metadata]},
            {%{created_at: "yesterday"}, [:created_at]},
            {%{created_at: 7}, [:created_at]},
            {%{updated_at: "2026-13-45T99:00:00Z"}, [:updated_at]},
            {%{bogus: 1}, [:bogus]},
            {%{"bogus" => 1}, ["bogus"]},
            {%{7 => 1}, [7]},
            {[bogus: 1], [:bogus]}
          ] do
        assert {^attributes, {:error, %Error{reason: {:invalid, ^path, expected}} = error}} =
                 {attributes, Context.create(attributes)}

        assert is_binary(expected) and expected != ""

        for key <- path, is_atom(key) do
          assert Exception.message(error) =~ Atom.to_string(key)
        end
      end
    end

    test "names the place of a call that is no map, and says what it expects" do
      for call <- [7, nil, "call", [], {}] do
        message = %{role: :assistant, content: nil, tool_calls: [call]}

        assert {:error, %Error{reason: {:invalid, path, expected}}} =
                 Context.create(%{iterations: [%{number: 1, messages: [message]}]})

        assert [:iterations, 0, :messages, 0, :tool_calls, 0] == path
        assert expected =~ "map"
      end
    end

    test "names a missing key" do
      for {attributes, path} <- [
            {%{iterations: [%{number: 1, messages: [%{content: "x"}]}]},
             [:iterations, 0, :messages, 0]},
            {%{
               iterations: [
                 %{
                   number: 1,
                   messages: [%{role: :assistant, tool_calls: [%{id: "a"}], content: nil}]
                 }
               ]
             }, [:iterations, 0, :messages, 0, :tool_calls, 0]},
            {%{iterations: [%{number: 1, messages: [%{role: :user, content: [%{type: :text}]}]}]},
             [:iterations, 0, :messages, 0, :content, 0]}
          ] do
        assert {:error, %Error{reason: {:invalid, actual, _}}} = Context.create(attributes)
        assert List.starts_with?(actual, path)
        assert (length(actual) - length(path)) in 0..1
      end
    end

    test "names the path of a term it cannot keep" do
      for {attributes, path} <- [
            {%{metadata: %{a: [1 | 2]}}, [:metadata, :a]},
            {%{iterations: [%{number: 1, messages: [], metadata: %{"b" => {[1 | 2]}}}]},
             [:iterations, 0, :metadata, "b", 0]}
          ] do
        assert {:error, %Error{reason: {:unsupported_term, :improper_list, ^path}}} =
                 Context.create(attributes)
      end
    end

    test "refuses a result that is none" do
      for result <- ["x", 7, {:maybe, 1}, ["maybe", 1], %{"maybe" => 1}, {:ok}, [], {:ok, 1, 2}] do
        call = %{id: "a", name: :x, arguments: %{}}

        attributes = %{
          iterations: [
            %{
              number: 1,
              messages: [%{role: :assistant, content: nil, tool_calls: [call]}],
              tool_calls: [Map.put(call, :result, result)]
            }
          ]
        }

        assert {:error, %Error{reason: {:invalid, path, _}}} = Context.create(attributes)
        assert [:iterations, 0, :tool_calls, 0, :result] == path
      end
    end

    test "refuses what is no map and no keyword list" do
      for attributes <- [nil, 7, "text", {}, :atom] do
        assert_caller_bug(fn -> Context.create(attributes) end)
      end

      for attributes <- [[1], ["a"], [{"a", 1}, 2]] do
        case assert_survives(fn -> Context.create(attributes) end) do
          {:ok, result} -> assert {:error, %Error{}} = result
          {:refused, _} -> :ok
        end
      end
    end

    test "answers any messages with an error, or with a context that obeys the laws and goes on" do
      check_all("messages", [runs: 2_000, max_size: 4], fn size ->
        first = between(1, 3)
        iterations = for number <- first..(first + between(0, 2)), do: any_iteration(number, size)

        with {:ok, context} <- Context.create(%{iterations: iterations}) do
          map = Context.to_map(context)
          again = Context.create!(map)
          assert_same(map, Context.to_map(again))
          assert Context.equal?(context, again)
          assert length(Context.to_messages(context)) == Context.count_messages(context)

          # Nothing of what was given is lost.
          for {given, kept} <- Enum.zip(iterations, map.iterations) do
            assert without_results(given.messages) == without_results(kept.messages)
          end

          next =
            context |> Context.interrupt() |> Context.add_user_message("next") |> Context.to_map()

          assert_same(next, Context.to_map(Context.create!(next)))
        else
          {:error, %Error{reason: {:invalid, [_ | _], expected}}} -> assert is_binary(expected)
        end
      end)
    end

    defp any_iteration(number, size) do
      messages = list_of(size, &any_message/0)

      calls =
        for message <- messages,
            call <- Map.get(message, :tool_calls, []),
            do: Map.put(call, :result, one_of([nil, {:ok, "r"}, {:error, "r"}, {:ok, 1}]))

      iteration = %{number: number, messages: messages}

      weighted([
        {4, Map.put(iteration, :tool_calls, calls)},
        {1, iteration},
        {1, Map.put(iteration, :tool_calls, Enum.reverse(calls))}
      ])
    end

    defp any_message do
      weighted([
        {1, fn -> %{role: :system, content: "S"} end},
        {4, fn -> %{role: :user, content: one_of(["hi", "", [%{type: :text, text: "p"}]])} end},
        {3, fn -> %{role: :assistant, content: one_of(["ok", nil])} end},
        {4,
         fn ->
           calls =
             many(between(1, 2), fn -> %{id: one_of(["a", "b"]), name: :x, arguments: %{}} end)

           %{role: :assistant, content: nil, tool_calls: Enum.uniq_by(calls, & &1.id)}
         end},
        {4, fn -> %{role: :user, content: many(between(1, 2), &any_result/0)} end}
      ]).()
    end

    defp any_result do
      %{
        type: :tool_result,
        tool_use_id: one_of(["a", "b"]),
        content: one_of(["r", "1"]),
        is_error: chance(20)
      }
    end

    defp without_results(messages) do
      Enum.reject(messages, &match?(%{content: [%{type: :tool_result} | _]}, &1))
    end

    test "answers any damaged map with an error, or with a context that obeys the laws" do
      junk = junk()

      check_all("damage", [runs: 1500, max_size: 8], fn size ->
        map = Context.to_map(native_conversation(size))
        map = if chance(30), do: stored_if_possible(map), else: map
        damaged = Enum.reduce(1..between(1, 2), map, fn _, map -> damage(map, junk) end)

        case attempt(fn -> Context.create(damaged) end) do
          {:ok, context} ->
            result = Context.to_map(context)
            assert_same(result, Context.to_map(Context.create!(result)))
            assert length(Context.to_messages(context)) == Context.count_messages(context)
            Context.pending_tool_calls(context)
            Context.extract_tool_calls(context)
            inspect(context)

          {:error, %Error{reason: reason} = error} ->
            assert tuple_size(reason) >= 2
            assert String.valid?(Exception.message(error))

          other ->
            flunk("#{inspect(other)} for\n#{inspect(damaged, limit: :infinity, structs: false)}")
        end
      end)
    end

    defp attempt(fun) do
      fun.()
    rescue
      exception -> {:raised, exception}
    end

    defp stored_if_possible(map) do
      stored(map)
    rescue
      _ -> map
    end

    # Replaces, deletes or adds something at a random place.
    defp damage(%{__struct__: _}, junk), do: one_of(junk)

    defp damage(map, junk) when is_map(map) and map_size(map) > 0 do
      key = one_of(Map.keys(map))

      weighted([
        {6, fn -> Map.update!(map, key, &damage(&1, junk)) end},
        {1, fn -> Map.put(map, key, one_of(junk)) end},
        {1, fn -> Map.delete(map, key) end},
        {1, fn -> Map.put(map, one_of(junk), one_of(junk)) end}
      ]).()
    end

    defp damage([1 | 2], junk), do: one_of(junk)

    defp damage([_ | _] = list, junk) do
      index = between(0, length(list) - 1)

      weighted([
        {6, fn -> List.update_at(list, index, &damage(&1, junk)) end},
        {1, fn -> List.delete_at(list, index) end},
        {1, fn -> List.insert_at(list, index, Enum.at(list, index)) end},
        {1, fn -> List.replace_at(list, index, one_of(junk)) end},
        {1, fn -> Enum.reverse(list) end}
      ]).()
    end

    defp damage(_, junk), do: one_of(junk)
  end

  describe "update/2" do
    test "changes what is given and keeps the rest" do
      context = plain()
      map = Context.to_map(context)
      assert {:ok, updated} = Context.update(context, %{metadata: %{a: 1}, updated_at: @t1})
      assert_same(%{map | metadata: %{a: 1}, updated_at: @t1}, Context.to_map(updated))
      assert_same(map, Context.to_map(context))
    end
  end

  # A context made by random operations.
  defp native_conversation(size) do
    {arguments, operations, _} = conversation(size)

    Enum.reduce(operations, apply(Context, :new, arguments), fn
      {:recreate, []}, context -> context
      {:update, [attributes]}, context -> Context.update!(context, attributes)
      {function, arguments}, context -> step(context, function, arguments)
    end)
  end

  defp step(context, function, arguments) do
    apply(Context, function, [context | arguments])
  rescue
    Error -> context
  end
end
