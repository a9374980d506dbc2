defmodule AshAgent.Context.TermsTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators

  alias AshAgent.Context
  alias AshAgent.Context.Error
  alias AshAgent.TestSupport.{Depth, OtherVM}

  @limit 256

  # Every place a term can be stored in, as {name, put, get}.
  defp places do
    [
      {"metadata of new/2", fn term -> Context.new("Hello", metadata: %{term: term}) end,
       fn context -> Context.metadata(context).term end},
      {"put_metadata/4", fn term -> Context.put_metadata(Context.new("Hello"), :term, term) end,
       fn context -> Context.metadata(context).term end},
      {"put_iteration_metadata/5",
       fn term -> Context.put_iteration_metadata(Context.new("Hello"), 1, :term, term) end,
       fn context -> Context.get_iteration(context, 1).metadata.term end},
      {"metadata of a message",
       fn term ->
         Context.add_user_message(Context.new("Hello"), "Hi", metadata: %{term: term})
       end, fn context -> List.last(Context.to_messages(context)).metadata.term end},
      {"arguments of a call", fn term -> asked(%{term: term}) end,
       fn context -> hd(Context.extract_tool_calls(context)).arguments.term end},
      {"extra key of a call",
       fn term ->
         Context.add_assistant_message(Context.new("Hello"), nil, [
           %{id: "a", name: :a, extra: term}
         ])
       end, fn context -> hd(Context.extract_tool_calls(context)).extra end},
      {"result", fn term -> Context.add_tool_results(asked(%{}), [{"a", {:ok, term}}]) end,
       fn context -> elem(hd(Context.get_iteration(context, 1).tool_calls).result, 1) end},
      {"error result",
       fn term -> Context.add_tool_results(asked(%{}), [{"a", {:error, term}}]) end,
       fn context -> elem(hd(Context.get_iteration(context, 1).tool_calls).result, 1) end},
      {"provider block",
       fn term ->
         Context.new([%{type: :provider_block, provider: :anthropic, data: %{term: term}}])
       end, fn context -> hd(hd(Context.to_messages(context)).content).data.term end},
      {"provider metadata of a part",
       fn term ->
         Context.new([
           %{type: :text, text: "a", provider_metadata: %{provider: :gemini, x: term}}
         ])
       end, fn context -> hd(hd(Context.to_messages(context)).content).provider_metadata.x end}
    ]
  end

  defp asked(arguments) do
    Context.add_assistant_message(Context.new("Hello"), nil, [
      %{id: "a", name: :a, arguments: arguments}
    ])
  end

  defp assert_comes_back(term) do
    for {name, put, get} <- places() do
      context = put.(term)
      assert {name, nil} == {name, difference(term, get.(context), [])}
      again = Context.create!(Context.to_map(context))
      assert {name, nil} == {name, difference(term, get.(again), [])}
    end
  end

  describe "terms come back equal:" do
    test "integers of any size" do
      for bits <- Enum.concat([[0, 7, 8, 15, 31, 32, 53], 58..65, [127, 128, 256, 2048, 4096]]),
          sign <- [1, -1],
          offset <- [-1, 0, 1] do
        integer = sign * Bitwise.bsl(1, bits) + offset
        context = Context.new("Hello", metadata: %{term: integer, list: [integer, {integer}]})
        assert_same(%{term: integer, list: [integer, {integer}]}, Context.metadata(context))
      end

      for integer <- [
            0xFFFFFFFFFFFFFFFF,
            -0x8000000000000000,
            Bitwise.bsl(1, 64),
            -Bitwise.bsl(7, 1000)
          ] do
        assert_comes_back(integer)
      end
    end

    test "floats, down to the sign of zero" do
      for float <- [
            0.0,
            -0.0,
            1.0,
            0.1,
            -1.7976931348623157e308,
            5.0e-324,
            2.2250738585072014e-308
          ] do
        assert_comes_back(float)
      end

      assert_comes_back(%{a: 1, b: 1.0})
      assert_comes_back(%{1 => :integer, 1.0 => :float})
    end

    test "binaries, UTF-8 or not, of any length" do
      for binary <- [
            "",
            "a",
            "Grüße 日本 👩‍👩‍👧",
            <<0>>,
            <<255>>,
            <<0xC3>>,
            <<0xED, 0xA0, 0x80>>,
            "\uFFFE"
          ] do
        assert_comes_back(binary)
      end

      for size <- [62, 63, 64, 65, 66, 1000, 70_000] do
        assert_comes_back(:binary.copy("x", size))
        assert_comes_back(:binary.copy(<<255>>, size))
      end
    end

    test "structs, nested" do
      for struct <- [
            ~D[2026-02-28],
            ~T[10:00:00.123],
            ~N[2026-01-01 00:00:00.1],
            ~U[2026-01-01 00:00:00Z],
            1..3,
            MapSet.new([1, :a, "b"]),
            URI.parse("https://example.com/?a=b"),
            %RuntimeError{message: "x"},
            Version.parse!("1.2.3-rc.1"),
            %{__struct__: No.Such.Module, a: 1},
            %{__struct__: "no module"}
          ] do
        assert_comes_back(struct)
        assert_comes_back([%{a: {struct, struct}}])
      end
    end

    test "ids and names of any bytes" do
      call = %{id: "ä " <> <<255>>, name: "n" <> <<254>>, arguments: %{}}

      case assert_survives(fn ->
             Context.add_assistant_message(Context.new("Hello"), nil, [call])
           end) do
        {:ok, context} -> assert_same([call], Context.extract_tool_calls(context))
        {:refused, error} -> assert %Error{reason: {:invalid_tool_call, 0, _}} = error
      end
    end

    test "random terms, everywhere" do
      check_all("terms", [runs: 150, max_size: 40], fn size ->
        term = term(size)
        {name, put, get} = one_of(places())
        context = put.(term)

        unless difference(term, get.(context), []) == nil do
          ExUnit.Assertions.flunk("#{name}: #{inspect(term, limit: :infinity)}")
        end

        assert_same(
          Context.to_map(context),
          Context.to_map(Context.create!(Context.to_map(context)))
        )
      end)
    end
  end

  describe "terms of this VM are kept as their printed text:" do
    test "a handle of this package" do
      context = Context.new("Hello")

      for {name, put, get} <- places() do
        case assert_survives(fn -> put.(context) end) do
          {:ok, kept} ->
            assert {^name, %{__struct__: Context, current_iteration: 1, ref: text}} =
                     {name, get.(kept)}

            assert is_binary(text)

          {:refused, _} ->
            :ok
        end
      end
    end

    test "pids, references, ports and functions, as keys too" do
      context = Context.new("Hello", metadata: %{map: %{self() => 1}})
      assert [{key, 1}] = Map.to_list(Context.metadata(context).map)

      for {term, words} <- [
            {self(), digits(self())},
            {make_ref(), ""},
            {hd(Port.list()), digits(hd(Port.list()))},
            {&String.upcase/1, "upcase/1"},
            {fn -> key end, ""}
          ],
          {name, put, get} <- places() do
        text = get.(put.(term))
        assert is_binary(text) and text != "" and text =~ words, "#{inspect(term)} in #{name}"
      end

      assert key =~ digits(self())
    end

    defp digits(term), do: hd(Regex.run(~r/\d[\d.]*\d/, inspect(term)))
  end

  describe "refused with the path:" do
    defp refused_at(put, term) do
      assert {:unsupported_term, kind, path} = reason_of(fn -> put.(term) end)
      {kind, path}
    end

    test "improper lists" do
      for {name, put, _} <- places() do
        {kind, path} = refused_at(put, %{"a" => [0, {1, [1 | 2]}]})
        assert {name, :improper_list} == {name, kind}
        assert {name, ["a", 1, 1]} == {name, Enum.take(path, -3)}
      end
    end

    test "bitstrings, of more than a byte and as keys" do
      for wrong <- [<<"abc", 1::1>>, %{<<1::7>> => 1}],
          {_, put, _} <- places(),
          do: assert({:bitstring, _} = refused_at(put, wrong))

      for {name, put, _} <- places() do
        {kind, path} = refused_at(put, [0, %{b: {0, 0, <<1::3>>}}])
        assert {name, :bitstring} == {name, kind}
        assert {name, [1, :b, 2]} == {name, Enum.take(path, -3)}
      end
    end

    test "in content" do
      for input <- [[%{type: :text, text: "a"} | :b], [1 | 2]] do
        assert_refused(fn -> Context.new(input) end)
        assert_refused(fn -> Context.add_assistant_message(Context.new("Hello"), input) end)
        assert_refused(fn -> Context.add_assistant_message(Context.new("Hello"), nil, input) end)
        assert_refused(fn -> Context.add_tool_results(asked(%{}), input) end)
      end
    end
  end

  describe "depth" do
    defp list_nest(levels), do: Depth.nest(:list, levels)
    defp tuple_nest(levels), do: Depth.nest(:tuple, levels)
    defp map_nest(levels), do: Depth.nest(:map, levels)

    # Places where the term itself is the value, so that the limit is exact.
    defp exact_places do
      Enum.filter(places(), fn {name, _, _} ->
        name in ["put_metadata/4", "put_iteration_metadata/5", "result", "error result"]
      end)
    end

    test "of #{@limit} levels is accepted and comes back" do
      for nest <- [&list_nest/1, &tuple_nest/1, &map_nest/1],
          {name, put, get} <- exact_places() do
        term = nest.(@limit)
        context = put.(term)
        assert {name, nil} == {name, difference(term, get.(context), [])}
      end
    end

    test "of #{@limit} levels is accepted in arguments, the map being the first" do
      for nest <- [&list_nest/1, &tuple_nest/1, &map_nest/1] do
        arguments = %{a: nest.(@limit - 1)}
        assert [%{arguments: ^arguments}] = Context.extract_tool_calls(asked(arguments))
      end
    end

    test "of #{@limit} levels survives everything a context can do" do
      context =
        map_nest(@limit)
        |> asked()
        |> Context.add_tool_results([{"a", {:ok, list_nest(@limit)}}],
          metadata: %{a: list_nest(@limit - 1)}
        )
        |> Context.put_metadata(:a, tuple_nest(@limit))
        |> Context.put_iteration_metadata(1, :a, map_nest(@limit))

      map = Context.to_map(context)
      again = Context.create!(map)
      assert_same(map, Context.to_map(again))
      assert Context.equal?(context, again)
      assert [_, _, %{content: [%{content: text}]}] = Context.to_messages(context)
      assert text == String.duplicate("[", @limit) <> "1" <> String.duplicate("]", @limit)
      assert inspect(context) =~ "iteration 2"

      assert Context.equal?(
               context,
               Context.put_metadata(again, :a, tuple_nest(@limit), at: map.updated_at)
             )
    end

    # In a VM of their own: a stack that is too small for 256 levels ends the VM.
    for kind <- [:list, :tuple, :map, :key] do
      test "of #{@limit} levels of #{kind}s beside 10,000 numbers survives everything, too" do
        assert {:ok, :done} == OtherVM.run(Depth, :everything, [unquote(kind)])
      end

      test "of more levels of #{kind}s beside 10,000 numbers is refused" do
        assert {:ok, :refused} == OtherVM.run(Depth, :too_deep, [unquote(kind), @limit + 1])
        assert {:ok, :refused} == OtherVM.run(Depth, :too_deep, [unquote(kind), 1_000_000])
      end
    end

    test "of maps as keys of maps does not blow up their text" do
      # 18 levels: a text that doubles with each level has 1 MB by then.
      context = Context.add_tool_results(asked(%{}), [{"a", {:ok, Depth.nest(:key, 18)}}])
      assert [_, _, %{content: [%{content: text}]}] = Context.to_messages(context)
      assert byte_size(text) < 20_000
    end

    test "is counted from each value, also in create/1 and update/2" do
      call = %{id: "a", name: :a, arguments: %{}}

      for {levels, accepted} <- [{@limit, true}, {@limit + 1, false}, {@limit + 4, false}],
          kind <- [:list, :map],
          value = Depth.nest(kind, levels),
          attributes <- [
            %{metadata: %{a: value}},
            %{iterations: [%{number: 1, messages: [], metadata: %{a: value}}]},
            %{
              iterations: [
                %{
                  number: 1,
                  messages: [%{role: :assistant, content: nil, tool_calls: [call]}],
                  tool_calls: [Map.put(call, :result, {:ok, value})]
                }
              ]
            }
          ] do
        for answer <- [Context.create(attributes), Context.update(Context.new("x"), attributes)] do
          if accepted,
            do: assert({:ok, %Context{}} = answer),
            else: assert({:error, %Error{reason: {:too_deep, @limit}}} = answer)
        end
      end
    end

    test "of more is refused" do
      for nest <- [&list_nest/1, &tuple_nest/1, &map_nest/1],
          levels <- [@limit + 1, 300, 5_000, 100_000],
          {name, put, _} <- places() do
        assert {name, {:too_deep, @limit}} == {name, reason_of(fn -> put.(nest.(levels)) end)}
      end

      assert {:too_deep, @limit} == reason_of(fn -> asked(map_nest(@limit + 1)) end)
    end

    test "of map keys counts too" do
      for levels <- [@limit + 1, 100_000], {_, put, _} <- places() do
        assert {:too_deep, @limit} == reason_of(fn -> put.(%{list_nest(levels) => 1}) end)
      end
    end

    test "of 1,000,000 levels harms nothing, wherever it is put" do
      context = asked(%{})

      for nest <- [&list_nest/1, &tuple_nest/1, &map_nest/1] do
        term = nest.(1_000_000)

        for {name, put, _} <- places() do
          assert {name, {:too_deep, @limit}} == {name, reason_of(fn -> put.(term) end)}
        end

        for call <- [
              fn -> Context.new(term) end,
              fn -> Context.new([term]) end,
              fn -> Context.new("a", system_prompt: term) end,
              fn -> Context.new("a", id: term) end,
              fn -> Context.new("a", at: term) end,
              fn -> Context.new([%{type: term}]) end,
              fn -> Context.new([%{type: :text, text: term}]) end,
              fn -> Context.new([%{term => 1}]) end,
              fn -> Context.add_user_message(context, term) end,
              fn -> Context.add_assistant_message(Context.new("a"), term) end,
              fn -> Context.add_assistant_message(Context.new("a"), nil, [term]) end,
              fn ->
                Context.add_assistant_message(Context.new("a"), nil, [%{id: term, name: :a}])
              end,
              fn ->
                Context.add_assistant_message(Context.new("a"), nil, [%{id: "a", name: term}])
              end,
              fn -> Context.add_tool_results(context, [term]) end,
              fn -> Context.add_tool_results(context, [{term, {:ok, 1}}]) end,
              fn -> Context.add_tool_results(context, [{"a", term}]) end,
              fn -> Context.get_iteration(context, term) end,
              fn -> Context.fetch_message(context, {term, 0}) end,
              fn -> Context.create!(%{iterations: term}) end,
              fn -> Context.create!(%{metadata: term}) end,
              fn -> Context.create!(%{iterations: [term]}) end,
              fn -> Context.create!(%{iterations: [%{number: 1, messages: term}]}) end,
              fn -> Context.create!(%{iterations: [%{number: 1, messages: [term]}]}) end,
              fn -> Context.create!(%{current_iteration: term}) end,
              fn -> Context.update!(context, %{metadata: term}) end
            ] do
          assert_refused_quickly(call)
        end
      end
    end

    # A FunctionClauseError prints its arguments, which takes its time with a million levels: the kind is enough.
    defp assert_refused_quickly(fun) do
      fun.()
      flunk("a million levels were accepted")
    rescue
      exception -> assert exception.__struct__ in [Error, ArgumentError, FunctionClauseError]
    end

    test "in arguments given as JSON text never harms" do
      for levels <- [@limit - 1, @limit, @limit + 1, 5_000, 1_000_000],
          {open, close} <- [{"[", "]"}, {"{\"a\":", "}"}],
          text <- [
            String.duplicate(open, levels) <> "1" <> String.duplicate(close, levels),
            "{\"a\":" <>
              String.duplicate(open, levels) <> "1" <> String.duplicate(close, levels) <> "}",
            "{\"a\":" <> String.duplicate(open, levels)
          ] do
        case assert_survives(fn -> asked(text) end) do
          {:ok, context} ->
            [%{arguments: arguments}] = Context.extract_tool_calls(context)
            assert is_map(arguments) or arguments == text

            assert_same(
              Context.to_map(context),
              Context.to_map(Context.create!(Context.to_map(context)))
            )

          {:refused, error} ->
            assert %Error{reason: {:too_deep, @limit}} = error
        end
      end
    end

    test "of JSON text at the limit is read, as deep as any other arguments" do
      text = String.duplicate("{\"a\":", @limit) <> "1" <> String.duplicate("}", @limit)
      assert [%{arguments: arguments}] = Context.extract_tool_calls(asked(text))
      assert arguments == Enum.reduce(1..@limit, 1, fn _, inner -> %{"a" => inner} end)
    end
  end
end
