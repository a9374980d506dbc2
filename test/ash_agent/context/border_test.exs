defmodule AshAgent.Context.BorderTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators

  alias AshAgent.Context
  alias AshAgent.Context.Error
  alias AshAgent.Context.Native

  doctest AshAgent.Context.JSON

  @call %{id: "a", name: :search, arguments: %{q: 1}}

  defp context do
    Context.new("Hello", system_prompt: "S")
    |> Context.add_assistant_message("One", [@call])
    |> Context.add_tool_results([{"a", {:ok, 1}}])
    |> Context.add_assistant_message("Two", [@call, %{@call | id: "b"}])
  end

  # The functions of the public API, with arguments that are right.
  defp right_calls do
    context = context()
    idle = Context.interrupt(context)

    [
      new: ["Hello", []],
      add_user_message: [idle, "Hi", []],
      add_assistant_message: [idle, "Hi", [@call], []],
      add_tool_results: [context, [{"a", {:ok, 1}}], []],
      interrupt: [context, "stop", []],
      extract_tool_calls: [context],
      pending_tool_calls: [context],
      to_messages: [context],
      get_all_messages: [context],
      get_iteration: [context, 1],
      get_iteration_messages: [context, 1],
      iterations: [context],
      count_iterations: [context],
      count_messages: [context],
      fetch_message: [context, {1, 0}],
      exceeded_max_iterations?: [context, 3],
      create: [%{}],
      create!: [%{}],
      update: [context, %{}],
      update!: [context, %{}],
      to_map: [context],
      equal?: [context, context],
      put_metadata: [context, :a, 1, []],
      put_iteration_metadata: [context, 1, :a, 1, []],
      metadata: [context]
    ]
  end

  # Natives that answer a question about the VM and take nothing.
  defp natives do
    for {name, arity} <- Native.__info__(:functions),
        arity > 0,
        not String.starts_with?(Atom.to_string(name), ["_", "init", "load", "on_load"]),
        do: {name, arity}
  end

  describe "every public function" do
    test "has its optional arguments" do
      for {function, arities} <- [
            new: [1, 2],
            add_user_message: [2, 3],
            add_assistant_message: [2, 3, 4],
            add_tool_results: [2, 3],
            interrupt: [1, 2, 3],
            put_metadata: [3, 4],
            put_iteration_metadata: [4, 5]
          ],
          arity <- arities do
        assert function_exported?(Context, function, arity)
      end
    end

    test "refuses whatever is no context in its first place" do
      for {function, [%Context{} | rest]} <- right_calls(),
          junk <- [%{}, nil, [], {}, %URI{}, 7] do
        assert_caller_bug(fn -> apply(Context, function, [junk | rest]) end)
      end
    end

    test "refuses a context whose handle is forged" do
      # It reads the struct alone and asks nothing of the handle.
      calls = Keyword.delete(right_calls(), :exceeded_max_iterations?)

      for {function, [%Context{} = context | rest]} <- calls,
          ref <- [nil, make_ref(), self(), 7, "text", [], %{}, :atomics.new(1, [])] do
        forged = %{context | ref: ref}
        assert_refused(fn -> apply(Context, function, [forged | rest]) end)
      end

      assert_refused(fn -> Context.equal?(context(), %{context() | ref: make_ref()}) end)
    end

    test "refuses wrong arguments in all places at once without harm" do
      junk = junk()

      check_all("junk", [runs: 2_000], fn _ ->
        {function, arguments} = one_of(right_calls())
        arguments = Enum.map(arguments, &if(chance(50), do: one_of(junk), else: &1))
        assert_survives(fn -> apply(Context, function, arguments) end)
      end)
    end

    defp assert_sound(context) do
      map = Context.to_map(context)
      assert_same(map, Context.to_map(Context.create!(map)))
      assert length(Context.to_messages(context)) == Context.count_messages(context)
      assert length(map.iterations) == Context.count_iterations(context)
      assert %{number: number} = List.last(map.iterations)
      assert context.current_iteration == number
    end
  end

  describe "every native function" do
    test "survives wrong types in all places" do
      for {name, arity} <- natives(), junk <- junk() do
        assert_native_survives(name, List.duplicate(junk, arity))
      end
    end

    test "survives wrong types beside a handle" do
      %{ref: ref} = context()
      junk = junk()

      for {name, arity} <- natives(), junk <- junk do
        assert_native_survives(name, [ref | List.duplicate(junk, arity - 1)])
      end

      check_all("natives", [runs: 3_000], fn _ ->
        {name, arity} = one_of(natives())
        arguments = many(arity, fn -> if(chance(30), do: ref, else: one_of(junk)) end)
        assert_native_survives(name, arguments)
      end)
    end

    defp assert_native_survives(name, arguments) do
      apply(Native, name, arguments)
    rescue
      exception ->
        refute match?(%ErlangError{original: :nif_panicked}, exception),
               "#{name}/#{length(arguments)} panicked with #{inspect(arguments)}"

        assert exception.__struct__ in [ArgumentError, ErlangError, FunctionClauseError],
               "#{name}/#{length(arguments)} raised #{inspect(exception)}"
    end
  end

  describe "numbers" do
    @numbers [
      -1,
      0,
      2,
      3,
      0x7FFFFFFF,
      0x80000000,
      0xFFFFFFFF,
      0x100000000,
      0x100000001,
      0x7FFFFFFFFFFFFFFF,
      0x8000000000000000,
      0xFFFFFFFFFFFFFFFF,
      0x10000000000000000,
      0x10000000000000001,
      -0x8000000000000000,
      -0xFFFFFFFFFFFFFFFF
    ]

    test "that are negative or huge find nothing, and never wrap around" do
      context = Context.new("Hello")

      for number <- @numbers do
        assert absent(fn -> Context.get_iteration(context, number) end) == nil
        assert absent(fn -> Context.get_iteration_messages(context, number) end) in [nil, []]
        assert absent(fn -> Context.fetch_message(context, {number, 0}) end) in [nil, :error]

        unless number == 0 do
          assert absent(fn -> Context.fetch_message(context, {1, number}) end) in [nil, :error]
        end

        if number >= 0 do
          assert Context.exceeded_max_iterations?(context, number) == 1 >= number
        end
      end
    end

    defp absent(fun) do
      case assert_survives(fun) do
        {:ok, value} -> value
        {:refused, _} -> nil
      end
    end

    test "of years at the ends are kept or refused" do
      for year <- [-9999, -1, 0, 1, 9999] do
        at = %{~U[2026-01-01 00:00:00.000000Z] | year: year}

        case assert_survives(fn -> Context.new("Hello", at: at) end) do
          {:ok, context} -> assert context[:created_at] == at
          {:refused, _} -> :ok
        end
      end
    end

    test "of iterations may start high, and run out without harm" do
      for number <- [
            0xFFFFFFFF,
            0xFFFFFFFFFFFFFFFF,
            0x7FFFFFFFFFFFFFFF,
            0x7FFFFFFF,
            1_000_000_000_000
          ] do
        iterations = [%{number: number, messages: [%{role: :assistant, content: "x"}]}]

        case Context.create(%{iterations: iterations}) do
          {:ok, context} ->
            assert context.current_iteration == number
            assert %{number: ^number} = Context.get_iteration(context, number)

            case assert_survives(fn -> Context.add_user_message(context, "next") end) do
              {:ok, next} -> assert next.current_iteration == number + 1
              {:refused, error} -> assert %Error{} = error
            end

          {:error, error} ->
            assert %Error{reason: {:invalid, [:iterations, 0, :number], _}} = error
        end
      end
    end
  end

  describe "sizes" do
    test "of texts: 10 MB come back" do
      text = :binary.copy("0123456789", 1_000_000)
      context = Context.new(text) |> Context.add_assistant_message(text)
      assert [%{content: ^text}, %{content: ^text}] = Context.to_messages(context)
    end

    test "of conversations: 20,000 messages come back, through a map as well" do
      context =
        Enum.reduce(1..10_000, Context.new("0"), fn number, context ->
          context
          |> Context.add_assistant_message("a#{number}")
          |> Context.add_user_message("u#{number}")
        end)

      messages = Context.to_messages(context)
      assert length(messages) == 20_001
      assert %{content: "u10000"} = List.last(messages)
      again = Context.create!(Context.to_map(context))
      assert Context.equal?(context, again)
      assert Context.to_messages(again) == messages
    end

    test "of paths: what is wrong far down is still named" do
      deep = Enum.reduce(1..200, [1 | 2], fn _, inner -> %{a: inner} end)

      assert {:unsupported_term, :improper_list, path} =
               reason_of(fn -> Context.put_metadata(Context.new("Hello"), :a, deep) end)

      assert Enum.take(path, -200) == List.duplicate(:a, 200)
    end
  end

  describe "bytes that are no UTF-8" do
    @wrong [
      <<255>>,
      <<0xC3>>,
      <<0xED, 0xA0, 0x80>>,
      <<0xF8, 1, 2, 3>>,
      "a" <> <<128>>,
      <<0xC0, 0x80>>
    ]

    test "harm nothing in any place" do
      for bytes <- @wrong do
        context = context()

        for fun <- [
              fn -> Context.new(bytes, system_prompt: bytes, metadata: %{bytes => bytes}) end,
              fn -> Context.new("Hello", id: bytes) end,
              fn -> Context.new(%{message: bytes}) end,
              fn -> Context.new(%{bytes => bytes}) end,
              fn -> Context.new([%{type: :text, text: bytes}]) end,
              fn -> Context.new([%{bytes => bytes}]) end,
              fn -> Context.new([%{type: bytes}]) end,
              fn -> Context.new([%{type: :image, media_type: bytes, data: "aGVsbG8="}]) end,
              fn -> Context.new([%{type: :image, url: bytes}]) end,
              fn ->
                Context.add_assistant_message(Context.new("x"), bytes, [%{id: bytes, name: bytes}])
              end,
              fn ->
                Context.add_assistant_message(Context.new("x"), nil, [
                  %{id: "a", name: "a", arguments: bytes}
                ])
              end,
              fn -> Context.add_assistant_message(Context.new("x"), nil, [%{bytes => 1}]) end,
              fn -> Context.add_tool_results(context, [{"a", {:ok, bytes}}]) end,
              fn ->
                Context.add_tool_results(context, [{"a", {:error, {bytes, %{bytes => bytes}}}}])
              end,
              fn ->
                Context.add_tool_results(context, [{"a", {:ok, [%{type: :text, text: bytes}]}}])
              end,
              fn -> Context.add_tool_results(context, [{bytes, {:ok, 1}}]) end,
              fn -> Context.interrupt(context, bytes) end,
              fn -> Context.put_metadata(context, bytes, bytes) end,
              fn -> Context.put_iteration_metadata(context, 1, bytes, bytes) end
            ] do
          case assert_survives(fun) do
            {:ok, made} -> assert_sound(made)
            {:refused, _} -> :ok
          end
        end

        for attributes <- [
              %{bytes => 1},
              %{id: bytes},
              %{created_at: bytes},
              %{iterations: [%{bytes => 1}]}
            ] do
          case Context.create(attributes) do
            {:ok, made} -> assert_sound(made)
            {:error, error} -> assert is_binary(Exception.message(error))
          end
        end
      end
    end
  end

  describe "many processes" do
    test "read one handle at the same time" do
      context =
        Enum.reduce(1..100, context(), fn n, context ->
          Context.put_metadata(context, "k#{n}", n)
        end)

      map = Context.to_map(context)
      messages = Context.to_messages(context)

      1..100
      |> Enum.map(fn _ ->
        Task.async(fn ->
          for _ <- 1..10 do
            assert Context.to_map(context) == map
            assert Context.to_messages(context) == messages
            assert Context.get_iteration(context, 1) == hd(map.iterations)
            assert Context.count_messages(context) == length(messages)
            assert Enum.count(context) == 2
            assert Context.equal?(context, context)
          end

          :read
        end)
      end)
      |> Task.await_many(60_000)
      |> Enum.each(&assert &1 == :read)
    end

    test "may be killed in the middle of it" do
      context =
        Enum.reduce(1..500, Context.new("Hello"), fn n, context ->
          Context.add_user_message(context, String.duplicate("#{n}", 500))
        end)

      before = Context.to_map(context)

      for _ <- 1..50 do
        {pid, monitor} = spawn_monitor(fn -> read_for_ever(context) end)
        Process.exit(pid, :kill)
        assert_receive {:DOWN, ^monitor, :process, ^pid, :killed}
      end

      assert_same(before, Context.to_map(context))
    end

    defp read_for_ever(context) do
      Context.create!(Context.to_map(context))
      read_for_ever(context)
    end
  end

  describe "a handle" do
    test "goes through messages, ETS and term_to_binary on its node" do
      context = context()
      before = Context.to_map(context)
      send(self(), {:context, context})
      assert_receive {:context, received}
      assert_same(before, Context.to_map(received))

      table = :ets.new(:contexts, [])
      :ets.insert(table, {:context, context})
      [{:context, found}] = :ets.lookup(table, :context)
      assert_same(before, Context.to_map(found))

      binary = :erlang.term_to_binary(context)
      assert_same(before, Context.to_map(:erlang.binary_to_term(binary)))
    end

    test "that is gone is refused after term_to_binary" do
      binary = Task.await(Task.async(fn -> :erlang.term_to_binary(Context.new("short life")) end))

      dead = :erlang.binary_to_term(binary)

      case assert_survives(fn -> Context.to_map(dead) end) do
        {:ok, map} -> assert [%{messages: [%{content: "short life"}]}] = map.iterations
        {:refused, exception} -> assert %ArgumentError{} = exception
      end

      assert inspect(dead) =~ "AshAgent.Context"
    end
  end

  describe "atoms" do
    defp unheard_of(name), do: "unheard_of_#{name}_#{System.unique_integer([:positive])}"

    defp atom?(text) do
      String.to_existing_atom(text)
      true
    rescue
      ArgumentError -> false
    end

    test "are not made from keys, names and values of outside text" do
      for place <- [
            :attribute,
            :role,
            :type,
            :provider,
            :name,
            :key,
            :result,
            :iteration,
            :option
          ] do
        text = unheard_of(place)

        call = %{
          "id" => text,
          "name" => text,
          "arguments" => ~s({"#{text}":"#{text}"}),
          text => text
        }

        for fun <- [
              fn -> Context.new([%{"type" => text}]) end,
              fn -> Context.new([%{"type" => "text", text => text}]) end,
              fn ->
                Context.new([%{"type" => "provider_block", "provider" => text, "data" => %{}}])
              end,
              fn -> Context.new(%{text => text}, metadata: %{text => text}) end,
              fn -> Context.add_assistant_message(Context.new("x"), nil, [call]) end,
              fn -> Context.add_tool_results(context(), [{"a", {:ok, %{text => text}}}]) end,
              fn -> Context.put_metadata(context(), text, text) end,
              fn -> Context.create(%{text => text}) end,
              fn -> Context.create(%{"metadata" => %{text => text}}) end,
              fn -> Context.create(%{"iterations" => [%{text => text}]}) end,
              fn ->
                message = %{"role" => text, "content" => text, text => text}
                Context.create(%{"iterations" => [%{"number" => 1, "messages" => [message]}]})
              end,
              fn ->
                message = %{"role" => "assistant", "content" => nil, "tool_calls" => [call]}

                Context.create(%{
                  "iterations" => [
                    %{
                      "number" => 1,
                      "messages" => [message],
                      "tool_calls" => [Map.put(call, "result", %{text => text})]
                    }
                  ]
                })
              end,
              fn -> Context.JSON.decode(~s({"#{text}":["#{text}"]})) end
            ] do
          case assert_survives(fun) do
            {:ok, %Context{} = context} -> Context.to_map(context)
            {:ok, {:ok, %Context{} = context}} -> Context.to_map(context)
            _ -> :ok
          end
        end

        refute atom?(text)
      end
    end
  end

  describe "AshAgent.Context.JSON" do
    test "decodes what JSON can say" do
      for {text, term} <- [
            {"null", nil},
            {"true", true},
            {" [1, -2, 0.5, 1e3, \"a\\u00e9\\n\"] ", [1, -2, 0.5, 1000.0, "aé\n"]},
            {"{\"a\":{},\"b\":[]}", %{"a" => %{}, "b" => []}},
            {"123456789012345678901234567890", 123_456_789_012_345_678_901_234_567_890},
            {"-123456789012345678901234567890", -123_456_789_012_345_678_901_234_567_890},
            {"18446744073709551615", 18_446_744_073_709_551_615},
            {"\"\\ud83d\\ude00\"", "😀"}
          ] do
        assert {:ok, decoded} = Context.JSON.decode(text)
        assert_same(term, decoded)
      end
    end

    test "answers arbitrary bytes with a result" do
      check_all("json bytes", [runs: 1_000, max_size: 60], fn size ->
        bytes =
          weighted([
            {1, fn -> :rand.bytes(size) end},
            {3,
             fn ->
               for(
                 _ <- 1..size,
                 into: "",
                 do: one_of(~w([ ] { } , : " \\ 1 - . e null true a é \\u00))
               )
             end}
          ]).()

        case Context.JSON.decode(bytes) do
          {:ok, term} -> assert {:ok, ^term} = Context.JSON.decode(encode(term))
          {:error, %Error{}} -> :ok
        end
      end)
    end

    test "encodes any term to JSON that it decodes" do
      check_all("json terms", [runs: 300, max_size: 40], fn size ->
        text = encode(term(size))
        assert String.valid?(text)
        assert {:ok, _} = Context.JSON.decode(text)
      end)
    end

    test "gives plain terms back" do
      check_all("json plain", [runs: 300, max_size: 40], fn size ->
        term = plain(size)
        assert {:ok, decoded} = Context.JSON.decode(encode(term))
        assert_same(term, decoded)
      end)
    end

    defp encode(term), do: IO.iodata_to_binary(Context.JSON.encode(term))

    defp plain(size) when size <= 1 do
      one_of([
        nil,
        true,
        0,
        -1,
        0xFFFFFFFFFFFFFFFFFF,
        0.1,
        -0.0,
        1.0,
        1.0e300,
        text(),
        :rand.normal()
      ])
    end

    defp plain(size) do
      weighted([
        {1, fn -> list_of(4, fn -> plain(div(size, 2)) end) end},
        {1, fn -> Map.new(list_of(4, fn -> {text(), plain(div(size, 2))} end)) end}
      ]).()
    end
  end
end
