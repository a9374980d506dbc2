defmodule AshAgent.ContextTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.Context
  alias AshAgent.Context.Error

  doctest AshAgent.Context
  doctest AshAgent.Context.Calls
  doctest AshAgent.Context.Import
  doctest AshAgent.Context.Jido
  doctest AshAgent.Context.LangChain
  doctest AshAgent.Context.Rent
  doctest AshAgent.Context.ReqLLM
  doctest AshAgent.Context.Tokens
  doctest AshAgent.Context.View

  @t0 ~U[2026-01-01 10:00:00.000000Z]
  @t1 ~U[2026-01-01 10:00:01.000001Z]
  @t2 ~U[2026-01-01 10:00:02.250000Z]
  @t3 ~U[2026-01-01 10:00:03.000000Z]

  @weather %{id: "call_1", name: :get_weather, arguments: %{city: "NYC"}}
  @time %{id: "call_2", name: "get_time", arguments: %{"zone" => "EST"}}

  defp hello, do: Context.new("Hello", at: @t0)

  defp asked do
    Context.add_assistant_message(hello(), "I'll check", [@weather, @time], at: @t1)
  end

  defp results(context) do
    %{messages: messages} = Context.get_iteration(context, 1)
    %{role: :user, content: [%{type: :tool_result} | _] = content} = List.last(messages)
    content
  end

  defp result_text(result) do
    [%{content: content}] =
      hello()
      |> Context.add_assistant_message(nil, [@weather])
      |> Context.add_tool_results([{"call_1", result}])
      |> results()

    content
  end

  defp decoded(result) do
    {:ok, term} = Context.JSON.decode(result_text({:ok, result}))
    term
  end

  describe "new/2" do
    test "keeps text that is not valid UTF-8, which models read with what is invalid replaced" do
      text = <<"caf", 0xE9, ", ", 0xFF, 0xFE>>
      context = Context.new(text, system_prompt: text)

      assert [%{content: ^text}, %{content: ^text}] = Context.to_messages(context)
      assert Context.system_prompt(context) == text

      for copy <- [
            Context.load!(Context.dump(context)),
            Context.load!(Context.to_snapshot(context))
          ] do
        assert Context.equal?(copy, context)
        assert [%{content: ^text}, %{content: ^text}] = Context.to_messages(copy)
      end

      read = "caf\uFFFD, \uFFFD\uFFFD"
      assert %{"system" => ^read, "messages" => messages} = Context.request!(context, :anthropic)
      assert [%{"content" => ^read}] = messages
      assert Context.to_prompt(context, mode: :message) == read

      assert [
               %{change: :replaced_bytes, to: ^read, iteration: 1, position: 0},
               %{change: :replaced_bytes, to: ^read, iteration: 1, position: 1}
             ] = Context.request_report(context, :anthropic)

      assert Context.request_report(Context.new("caf\u00E9"), :anthropic) == []
    end

    test "opens iteration 1 with the user message" do
      assert %Context{current_iteration: 1} = context = hello()

      assert_same(
        %{
          number: 1,
          messages: [%{role: :user, content: "Hello"}],
          tool_calls: [],
          started_at: @t0,
          completed_at: nil,
          metadata: %{}
        },
        Context.get_iteration(context, 1)
      )
    end

    test "puts the system prompt in front" do
      context = Context.new("Hello", system_prompt: "You are a helpful assistant")

      assert Context.to_messages(context) == [
               %{role: :system, content: "You are a helpful assistant"},
               %{role: :user, content: "Hello"}
             ]

      assert Context.get_iteration_messages(context, 1) == Context.to_messages(context)
    end

    test "takes the text of a map with only a message" do
      for input <- [%{message: "Hi"}, %{"message" => "Hi"}] do
        assert [%{role: :user, content: "Hi"}] = Context.to_messages(Context.new(input))
      end
    end

    test "takes the JSON of any other map" do
      assert [%{content: ~s({"question":42})}] = Context.to_messages(Context.new(%{question: 42}))

      assert [%{content: ~s({"message":42})}] = Context.to_messages(Context.new(%{message: 42}))

      assert [%{content: json}] =
               Context.to_messages(Context.new(%{message: "Hi", lang: :de, n: [1, nil]}))

      assert Context.JSON.decode(json) ==
               {:ok, %{"message" => "Hi", "lang" => "de", "n" => [1, nil]}}
    end

    test "gives the JSON of a map in an order that does not depend on how it was made" do
      pairs = for n <- 1..50, do: {"key_#{n}", n}
      [%{content: one}] = Context.to_messages(Context.new(Map.new(pairs)))
      [%{content: two}] = Context.to_messages(Context.new(Map.new(Enum.reverse(pairs))))
      assert one == two

      [%{content: atoms}] =
        Context.to_messages(Context.new(Map.new(pairs, fn {k, v} -> {String.to_atom(k), v} end)))

      assert atoms == one
    end

    test "reads parts with string keys and gives them back with atom keys" do
      parts = [
        %{"type" => "text", "text" => "Hi"},
        %{"type" => "image", "media_type" => "image/png", "data" => "aGVsbG8="}
      ]

      assert [
               %{
                 role: :user,
                 content: [
                   %{type: :text, text: "Hi"},
                   %{type: :image, media_type: "image/png", data: "aGVsbG8="}
                 ]
               }
             ] == Context.to_messages(Context.new(parts))
    end

    test "makes a UUID v4, another one each time" do
      ids = for _ <- 1..50, do: Context.to_map(Context.new("Hello")).id

      for id <- ids do
        assert id =~ ~r/\A[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\z/
      end

      assert Enum.uniq(ids) == ids
    end

    test "stamps the current time when no :at is given" do
      before = DateTime.utc_now()
      %{created_at: created, updated_at: updated} = Context.to_map(Context.new("Hello"))
      later = DateTime.utc_now()

      assert DateTime.compare(before, created) in [:lt, :eq]
      assert DateTime.compare(created, later) in [:lt, :eq]
      assert updated == created
      assert %DateTime{time_zone: "Etc/UTC", microsecond: {_, 6}} = created
    end

    test "keeps the instant of an :at in another time zone" do
      berlin = %{@t0 | time_zone: "Europe/Berlin", zone_abbr: "CET", hour: 11, utc_offset: 3600}
      assert %{created_at: created} = Context.to_map(Context.new("Hello", at: berlin))
      assert DateTime.compare(created, @t0) == :eq
    end

    test "refuses an :at that is no time" do
      for wrong <- [
            %{month: 13},
            %{microsecond: nil},
            %{utc_offset: nil},
            %{year: nil},
            %{year: 99_999_999_999},
            %{calendar: No.Such.Calendar}
          ] do
        at = Map.merge(@t0, wrong)
        assert {_, %{}} = {wrong, assert_caller_bug(fn -> Context.new("Hello", at: at) end)}

        assert {_, %{}} =
                 {wrong,
                  assert_caller_bug(fn -> Context.put_metadata(hello(), :a, 1, at: at) end)}
      end
    end
  end

  describe "content parts" do
    @wrong_user_parts [
      {%{type: :text}, :text},
      {%{type: :text, text: 7}, :text},
      {%{type: :text, text: nil}, :text},
      {%{type: :text, text: :hello}, :text},
      {%{type: :text, text: "a", colour: 1}, :colour},
      {%{:type => :text, :text => "a", "colour" => 1}, "colour"},
      {%{:type => :text, :text => "a", 7 => 1}, 7},
      {%{text: "a"}, :type},
      {%{type: :bogus, text: "a"}, :type},
      {%{type: "bogus", text: "a"}, :type},
      {%{type: 7}, :type},
      {%{type: nil}, :type},
      {%{type: :tool_result, tool_use_id: "a", content: "x", is_error: false}, :type},
      {%{type: :thinking, text: "hm"}, :type},
      {%{type: :redacted_thinking, data: "aGVsbG8="}, :type},
      {%{type: :image, data: "aGVsbG8="}, :media_type},
      {%{type: :image, media_type: 7, data: "aGVsbG8="}, :media_type},
      {%{type: :image, media_type: "image/png", data: "***"}, :data},
      {%{type: :image, media_type: "image/png", data: "a"}, :data},
      {%{type: :image, media_type: "image/png", data: 7}, :data},
      {%{type: :image, url: 7}, :url},
      {%{type: :image, url: "javascript:alert(1)"}, :url},
      {%{type: :file, url: "file:///etc/passwd"}, :url},
      {%{type: :image, url: "https://example.com/\r\n"}, :url},
      {%{type: :file, media_type: "application/pdf", data: "aGVsbG8=", filename: 7}, :filename},
      {%{type: :provider_block, data: %{}}, :provider},
      {%{type: :provider_block, provider: :anthropic}, :data},
      {%{type: :text, text: "a", provider_metadata: "x"}, :provider_metadata}
    ]

    for {{part, key}, index} <- Enum.with_index(@wrong_user_parts) do
      test "#{index}: a wrong #{inspect(key)} is named: #{inspect(part)}" do
        part = unquote(Macro.escape(part))
        key = unquote(key)
        good = %{type: :text, text: "good"}

        assert {:invalid_part, 0, ^key} = reason_of(fn -> Context.new([part]) end)
        assert {:invalid_part, 2, ^key} = reason_of(fn -> Context.new([good, good, part]) end)

        assert {:invalid_part, 1, ^key} =
                 reason_of(fn -> Context.add_user_message(hello(), [good, part]) end)
      end
    end

    test "an image needs data or a url" do
      assert {:invalid_part, 0, key} =
               reason_of(fn -> Context.new([%{type: :image, media_type: "image/png"}]) end)

      assert key in [:data, :url]
    end

    test "an element that is no map is refused with its position" do
      for element <- ["text", 7, nil, [], {:type, :text}] do
        good = %{type: :text, text: "good"}
        assert {:invalid_part, 1, _} = reason_of(fn -> Context.new([good, element]) end)
      end
    end
  end

  describe "add_user_message/3" do
    test "completes the current iteration and opens the next" do
      context =
        hello()
        |> Context.add_assistant_message("Hi", [], at: @t1)
        |> Context.add_user_message("And now?", at: @t2)

      assert context.current_iteration == 2

      assert [
               %{
                 number: 1,
                 messages: [%{role: :user, content: "Hello"}, %{role: :assistant, content: "Hi"}],
                 tool_calls: [],
                 started_at: @t0,
                 completed_at: @t2,
                 metadata: %{}
               },
               %{
                 number: 2,
                 messages: [%{role: :user, content: "And now?"}],
                 tool_calls: [],
                 started_at: @t2,
                 completed_at: nil,
                 metadata: %{}
               }
             ] == Context.iterations(context)

      assert %{updated_at: @t2, created_at: @t0} = Context.to_map(context)
    end

    test "takes the same input as new/2" do
      for {input, content} <- [
            {%{message: "Hi"}, "Hi"},
            {%{"message" => "Hi"}, "Hi"},
            {%{a: 1}, ~s({"a":1})},
            {[%{type: :text, text: "Hi"}], [%{type: :text, text: "Hi"}]},
            {"", ""}
          ] do
        context = Context.add_user_message(hello(), input)
        assert [_, %{role: :user, content: ^content}] = Context.to_messages(context)
      end
    end
  end

  describe "add_assistant_message/4" do
    test "shows the calls in the message and, with no result yet, in the iteration" do
      assert %{
               messages: [
                 %{role: :user, content: "Hello"},
                 %{role: :assistant, content: "I'll check", tool_calls: [@weather, @time]}
               ],
               tool_calls: calls
             } = Context.get_iteration(asked(), 1)

      assert calls == [Map.put(@weather, :result, nil), Map.put(@time, :result, nil)]
    end

    test "reads calls with string keys and keeps unknown keys as given" do
      call = %{
        "id" => "call_1",
        "name" => "search",
        "arguments" => %{"q" => 1},
        "type" => "function",
        :index => 0
      }

      context = Context.add_assistant_message(hello(), nil, [call])

      shown = %{
        :id => "call_1",
        :name => "search",
        :arguments => %{"q" => 1},
        "type" => "function",
        :index => 0
      }

      assert [shown] == Context.extract_tool_calls(context)
      assert [_, %{tool_calls: [^shown]}] = Context.to_messages(context)
      assert %{tool_calls: [with_result]} = Context.get_iteration(context, 1)
      assert with_result == Map.put(shown, :result, nil)
    end

    test "gives names back as they came" do
      for name <- [:search, "search", :"with space", "Ünï"] do
        context = Context.add_assistant_message(hello(), nil, [%{id: "a", name: name}])

        assert [%{id: "a", name: name, arguments: %{}}] ==
                 Context.extract_tool_calls(context)
      end
    end

    test "reads arguments from JSON text" do
      for {text, arguments} <- AshAgent.TestSupport.Generators.json_texts() do
        call = %{id: "a", name: :search, arguments: text}
        context = Context.add_assistant_message(hello(), nil, [call])
        assert [%{arguments: actual}] = Context.extract_tool_calls(context)
        assert_same(arguments, actual)
      end
    end

    test "takes missing and nil arguments for none" do
      for call <- [%{id: "a", name: :search}, %{id: "a", name: :search, arguments: nil}] do
        context = Context.add_assistant_message(hello(), nil, [call])

        assert [%{id: "a", name: :search, arguments: arguments}] =
                 Context.extract_tool_calls(context)

        assert arguments == %{}
      end
    end

    test "derives the id of calls without one from iteration, message and position" do
      calls = [
        %{name: :a},
        %{id: nil, name: :b},
        %{id: "x", name: :c},
        %{"id" => "", "name" => "d"}
      ]

      context = Context.add_assistant_message(hello(), nil, calls)

      assert ["call_1_1_0", "call_1_1_1", "x", "call_1_1_3"] ==
               Enum.map(Context.extract_tool_calls(context), & &1.id)

      context =
        Context.add_assistant_message(Context.new("Hello", system_prompt: "S"), nil, [%{name: :a}])

      assert [%{id: "call_1_2_0"}] = Context.extract_tool_calls(context)

      context =
        context
        |> Context.add_tool_results([{"call_1_2_0", {:ok, 1}}])
        |> Context.add_assistant_message(nil, [%{name: :a}])

      assert [%{id: "call_2_0_0"}] = Context.extract_tool_calls(context)
    end

    test "refuses an id used twice in one message" do
      assert {:duplicate_tool_call, "call_1"} ==
               reason_of(fn ->
                 Context.add_assistant_message(hello(), nil, [@weather, @time, @weather])
               end)
    end

    test "names position and key of a wrong call" do
      for {call, key} <- [
            {%{id: "a"}, :name},
            {%{id: "a", name: nil}, :name},
            {%{id: "a", name: 7}, :name},
            {%{id: 7, name: :a}, :id},
            {%{id: :a, name: :a}, :id},
            {%{"id" => 7, "name" => "a"}, :id},
            {%{id: "a", name: :a, arguments: 7}, :arguments},
            {%{id: "a", name: :a, arguments: :x}, :arguments},
            {%{id: "a", name: :a, arguments: {1}}, :arguments}
          ] do
        assert {:invalid_tool_call, 1, key} ==
                 reason_of(fn ->
                   Context.add_assistant_message(hello(), nil, [@weather, call])
                 end)
      end
    end

    test "refuses wrong types" do
      for content <- [7, :text, {}, %{}, 1.5] do
        assert_caller_bug(fn -> Context.add_assistant_message(hello(), content) end)
      end

      for calls <- [nil, %{}, "calls", 7, @weather] do
        assert_caller_bug(fn -> Context.add_assistant_message(hello(), nil, calls) end)
      end

      for calls <- [[7], [nil], ["call"], [[]]] do
        assert_refused(fn -> Context.add_assistant_message(hello(), nil, calls) end)
      end
    end
  end

  describe "add_tool_results/3" do
    test "fills the slots, completes the iteration and opens the next" do
      context =
        Context.new("What's the weather?", system_prompt: "You are a helpful assistant", at: @t0)
        |> Context.add_assistant_message("I'll check", [@weather], at: @t1)
        |> Context.add_tool_results([%{id: "call_1", result: {:ok, %{temp: 72}}}], at: @t2)

      assert context.current_iteration == 2

      assert_same(
        [
          %{
            number: 1,
            messages: [
              %{role: :system, content: "You are a helpful assistant"},
              %{role: :user, content: "What's the weather?"},
              %{role: :assistant, content: "I'll check", tool_calls: [@weather]},
              %{
                role: :user,
                content: [
                  %{
                    type: :tool_result,
                    tool_use_id: "call_1",
                    content: "{\"temp\":72}",
                    is_error: false
                  }
                ]
              }
            ],
            tool_calls: [Map.put(@weather, :result, {:ok, %{temp: 72}})],
            started_at: @t0,
            completed_at: @t2,
            metadata: %{}
          },
          %{
            number: 2,
            messages: [],
            tool_calls: [],
            started_at: @t2,
            completed_at: nil,
            metadata: %{}
          }
        ],
        Context.iterations(context)
      )

      assert %{updated_at: @t2} = Context.to_map(context)
    end

    test "takes maps with atom keys, maps with string keys and pairs" do
      for answer <- [
            %{id: "call_1", result: {:ok, 1}},
            %{"id" => "call_1", "result" => {:ok, 1}},
            {"call_1", {:ok, 1}}
          ] do
        context = Context.add_tool_results(asked(), [answer])
        assert [%{tool_use_id: "call_1", content: "1"}] = results(context)
      end
    end

    test "shows its metadata on the tool-result message and merges that of later results" do
      context =
        asked()
        |> Context.add_tool_results([{"call_2", {:ok, 1}}], metadata: %{a: 1, b: 1})

      assert [_, _, %{role: :user, content: [_], metadata: %{a: 1, b: 1}}] =
               Context.to_messages(context)

      context = Context.add_tool_results(context, [{"call_1", {:ok, 1}}], metadata: %{b: 2, c: 3})
      assert [_, _, %{content: [_, _], metadata: metadata}] = Context.to_messages(context)
      assert metadata == %{a: 1, b: 2, c: 3}
    end

    test "refuses ids that are unknown, answered or given twice, and what nothing waits for" do
      answered = Context.add_tool_results(asked(), [{"call_1", {:ok, 1}}])
      twice = for id <- ["call_1", "call_2", "call_1"], do: {id, {:ok, 1}}

      for {context, results, reason} <- [
            {asked(), [{"call_9", {:ok, 1}}],
             {:unknown_tool_call, "call_9", ["call_1", "call_2"]}},
            {answered, [{"call_1", {:ok, 2}}],
             {:tool_call_already_answered, "call_1", ["call_2"]}},
            {asked(), twice, {:duplicate_tool_result, "call_1"}},
            {asked(), [], {:no_tool_results, ["call_1", "call_2"]}},
            {hello(), [{"call_1", {:ok, 1}}], {:no_pending_tool_calls, ["call_1"]}}
          ],
          do: assert(reason_of(fn -> Context.add_tool_results(context, results) end) == reason)
    end

    test "names position and key of a wrong result" do
      for {answer, key} <- [
            {%{id: "call_2"}, :result},
            {%{id: "call_2", result: "text"}, :result},
            {%{id: "call_2", result: {:maybe, 1}}, :result},
            {%{id: "call_2", result: {:ok, 1, 2}}, :result},
            {%{result: {:ok, 1}}, :id},
            {%{id: 7, result: {:ok, 1}}, :id},
            {%{id: nil, result: {:ok, 1}}, :id},
            {%{id: :call_2, result: {:ok, 1}}, :id},
            {{"call_2", :ok}, :result},
            {{7, {:ok, 1}}, :id},
            {%{tool_use_id: "call_2", result: {:ok, 1}}, :id},
            {%{tool_call_id: "call_2", result: {:ok, 1}}, :id}
          ] do
        assert {:invalid_tool_result, 1, key} ==
                 reason_of(fn ->
                   Context.add_tool_results(asked(), [{"call_1", {:ok, 1}}, answer])
                 end)
      end
    end

    test "refuses wrong types" do
      for results <- [nil, %{}, "results", {"call_1", {:ok, 1}}] do
        assert_caller_bug(fn -> Context.add_tool_results(asked(), results) end)
      end

      for results <- [[7], [nil], [{}], ["call_1"]] do
        assert_refused(fn -> Context.add_tool_results(asked(), results) end)
      end
    end
  end

  describe "the text of a tool result" do
    test "is a binary as it is" do
      assert result_text({:ok, "  Grüße \n"}) == "  Grüße \n"
      assert result_text({:error, "no such city"}) == "no such city"
    end

    test "says when there is no output" do
      for result <- [{:ok, ""}, {:ok, nil}, {:ok, " \n\t "}, {:error, ""}, {:error, nil}] do
        assert result_text(result) == "(no output)"
      end
    end

    test "is JSON for anything else" do
      assert result_text({:ok, 42}) == "42"
      assert result_text({:ok, true}) == "true"
      assert result_text({:ok, :done}) == ~s("done")
      assert result_text({:ok, []}) == "[]"
      assert result_text({:ok, %{}}) == "{}"
      assert result_text({:ok, %{a: nil}}) == ~s({"a":null})
      assert result_text({:ok, {1, "b", :c}}) == ~s([1,"b","c"])
      assert result_text({:ok, [a: 1]}) == ~s({"a":1})
    end

    test "reads back as the same JSON" do
      assert decoded(%{"b" => [1, %{c: {:x, nil}}], a: "é\"\\\n\u0001\u2028/"}) ==
               %{"b" => [1, %{"c" => ["x", nil]}], "a" => "é\"\\\n\u0001\u2028/"}

      assert decoded(a: 1, b: [c: 2]) == %{"a" => 1, "b" => %{"c" => 2}}

      assert decoded([1.5, -2, 100_000_000_000_000_000_000]) == [
               1.5,
               -2,
               100_000_000_000_000_000_000
             ]

      assert decoded(%{1 => "int key"}) == %{"1" => "int key"}
    end

    test "keeps floats as they are" do
      for float <- [0.1, 1.0e22, 1.7976931348623157e308, 5.0e-324, 3.0, -1.0e-7] do
        assert decoded([float]) == [float]
      end
    end

    test "writes dates and times as ISO 8601 and other structs without their name" do
      assert result_text({:ok, ~D[2026-02-28]}) == ~s("2026-02-28")
      assert result_text({:ok, ~T[10:00:00]}) == ~s("10:00:00")
      assert result_text({:ok, ~U[2026-01-01 10:00:00Z]}) == ~s("2026-01-01T10:00:00Z")
      assert result_text({:ok, ~U[2026-01-01 10:00:00.120Z]}) == ~s("2026-01-01T10:00:00.120Z")
      assert result_text({:ok, ~N[2026-01-01 10:00:00]}) == ~s("2026-01-01T10:00:00")
      assert decoded(1..3) == %{"first" => 1, "last" => 3, "step" => 1}
    end

    test "replaces bytes that are no UTF-8" do
      assert result_text({:ok, "a" <> <<255>> <> "b"}) == "a\uFFFDb"
      assert result_text({:error, <<255>>}) == "\uFFFD"
      assert result_text({:ok, [<<255>>]}) == ~s(["\uFFFD"])
      assert result_text({:ok, %{<<255>> => 1}}) == ~s({"\uFFFD":1})
    end

    test "tells the reason of an error in words" do
      assert result_text({:error, :not_found}) == "not found"
      assert result_text({:error, :timeout}) == "timeout"
      assert result_text({:error, {:http, 500}}) == "http: 500"
      assert result_text({:error, {:no_such_city, "Atlantis"}}) == "no such city: Atlantis"
      assert result_text({:error, {:a, {:b, "c"}}}) == "a: b: c"
      assert result_text({:error, %RuntimeError{message: "it broke"}}) == "it broke"
      assert result_text({:error, %{message: "it broke", code: 7}}) == "it broke"
      assert result_text({:error, %{code: 7}}) == ~s({"code":7})
      assert result_text({:error, 42}) == "42"
    end

    test "marks errors, and only errors" do
      context =
        Context.add_tool_results(asked(), [{"call_1", {:error, "x"}}, {"call_2", {:ok, :error}}])

      assert [%{is_error: true}, %{is_error: false}] = results(context)
    end

    test "gives way to parts" do
      parts = [
        %{type: :text, text: "A chart"},
        %{type: :image, media_type: "image/png", data: "aGVsbG8="},
        %{
          type: :file,
          media_type: "application/pdf",
          url: "https://example.com/a.pdf",
          filename: "a"
        }
      ]

      assert result_text({:ok, parts}) == parts
    end

    test "does not take other lists for parts" do
      assert result_text({:ok, [%{type: :note}]}) == ~s([{"type":"note"}])
      assert result_text({:ok, [%{type: :thinking}]}) == ~s([{"type":"thinking"}])

      assert decoded([%{type: :text, text: "a"}, 1]) == [%{"type" => "text", "text" => "a"}, 1]
      assert decoded([%{a: 1}]) == [%{"a" => 1}]
    end

    test "refuses wrong parts" do
      assert {:invalid_part, 1, :text} ==
               reason_of(fn ->
                 result_text({:ok, [%{type: :text, text: "a"}, %{type: :text}]})
               end)

      assert {:invalid_part, 0, :data} ==
               reason_of(fn ->
                 result_text({:ok, [%{type: :image, media_type: "image/png", data: "***"}]})
               end)
    end

    test "keeps the parts of a failure, and takes any other reason as it is" do
      parts = [
        %{type: :text, text: "Broken"},
        %{type: :image, media_type: "image/png", data: "aGVsbG8="}
      ]

      assert %{content: ^parts, is_error: true} = failure(parts)
      wrong = [%{type: :image, media_type: "image/png", data: "***"}]
      assert %{content: text, is_error: true} = failure(wrong)
      assert is_binary(text)
    end

    defp failure(reason) do
      context = Context.add_tool_results(asked(), [{"call_1", {:error, reason}}])

      for context <- [context, context |> Context.to_snapshot() |> Context.load!()] do
        assert [%{result: {:error, ^reason}} | _] = Context.get_iteration(context, 1).tool_calls
        hd(results(context))
      end
      |> Enum.uniq()
      |> then(fn [result] -> result end)
    end
  end

  describe "interrupt/3" do
    test "answers every pending call with an error" do
      context =
        asked()
        |> Context.add_tool_results([{"call_1", {:ok, 1}}], at: @t2)
        |> Context.interrupt("user stopped", at: @t3)

      assert context.current_iteration == 2

      assert %{
               completed_at: @t3,
               tool_calls: [%{result: {:ok, 1}}, %{result: {:error, "user stopped"}}]
             } = Context.get_iteration(context, 1)

      assert [
               %{tool_use_id: "call_1", content: "1", is_error: false},
               %{tool_use_id: "call_2", content: "user stopped", is_error: true}
             ] = results(context)
    end

    test "says so when no reason is given" do
      context = Context.interrupt(asked())

      assert [%{content: "interrupted", is_error: true}, %{content: "interrupted"}] =
               results(context)

      assert Context.pending_tool_calls(context) == []
    end

    test "returns the context as it is when nothing is pending" do
      context = hello()

      assert_same(
        Context.to_map(context),
        Context.to_map(Context.interrupt(context, "x", at: @t3))
      )
    end
  end

  describe "extract_tool_calls/1" do
    test "gives the calls of the last message, also when some are answered" do
      assert Context.extract_tool_calls(asked()) == [@weather, @time]
      context = Context.add_tool_results(asked(), [{"call_1", {:ok, 1}}])
      assert Context.extract_tool_calls(context) == [@weather, @time]
    end
  end

  describe "pending_tool_calls/1" do
    test "gives the calls whose slot is empty, in order" do
      assert Context.pending_tool_calls(hello()) == []
      assert Context.pending_tool_calls(asked()) == [@weather, @time]
      context = Context.add_tool_results(asked(), [{"call_1", {:ok, nil}}])
      assert Context.pending_tool_calls(context) == [@time]
      assert Context.pending_tool_calls(Context.interrupt(asked())) == []
    end
  end

  describe "to_messages/1 and get_all_messages/1" do
    test "give all messages, oldest first" do
      context =
        Context.new("Hello", system_prompt: "S")
        |> Context.add_assistant_message(nil, [@weather])
        |> Context.add_tool_results([{"call_1", {:ok, "72"}}])
        |> Context.add_assistant_message("It is 72")
        |> Context.add_user_message("Thanks")

      expected = [
        %{role: :system, content: "S"},
        %{role: :user, content: "Hello"},
        %{role: :assistant, content: nil, tool_calls: [@weather]},
        %{
          role: :user,
          content: [
            %{type: :tool_result, tool_use_id: "call_1", content: "72", is_error: false}
          ]
        },
        %{role: :assistant, content: "It is 72"},
        %{role: :user, content: "Thanks"}
      ]

      assert Context.to_messages(context) == expected
      assert Context.get_all_messages(context) == expected
      assert Context.count_messages(context) == 6
    end
  end

  describe "get_iteration/2 and get_iteration_messages/2" do
    test "give nil and [] for a number that is not there" do
      for number <- [0, 2, 1_000_000, 0x100000000, 0x8000000000000000, 0x10000000000000001] do
        assert Context.get_iteration(hello(), number) == nil
        assert Context.get_iteration_messages(hello(), number) == []
      end
    end
  end

  describe "fetch_message/2" do
    test "is :error for what is not there" do
      for position <- [{1, 1}, {2, 0}, {0, 0}, {1, 0x10000000000000000}, {0x10000000000000001, 0}] do
        assert Context.fetch_message(hello(), position) == :error
      end
    end
  end

  describe "exceeded_max_iterations?/2" do
    test "is true from the maximum on" do
      context = Context.interrupt(asked())
      assert Context.exceeded_max_iterations?(context, 1)
      assert Context.exceeded_max_iterations?(context, 2)
      refute Context.exceeded_max_iterations?(context, 3)
      refute Context.exceeded_max_iterations?(context, 0x10000000000000000)
    end

    test "is true of a maximum that no context is below" do
      for max <- [0, -1, -0x10000000000000000] do
        assert Context.exceeded_max_iterations?(hello(), max)
      end
    end
  end

  describe "put_metadata/4 and metadata/1" do
    test "keep any term under an atom or a text" do
      context =
        hello()
        |> Context.put_metadata(:user, {:id, 7})
        |> Context.put_metadata("user", nil)

      assert Context.metadata(context) == %{:user => {:id, 7}, "user" => nil}

      assert Context.metadata(Context.put_metadata(context, :user, 8)) == %{
               :user => 8,
               "user" => nil
             }

      assert Context.metadata(context) == %{:user => {:id, 7}, "user" => nil}
    end
  end

  describe "put_iteration_metadata/5" do
    test "keeps any term with the iteration" do
      context =
        asked()
        |> Context.interrupt()
        |> Context.put_iteration_metadata(1, :usage, %{tokens: 12})
        |> Context.put_iteration_metadata(1, "cost", 0.5)
        |> Context.put_iteration_metadata(2, :a, nil, at: @t3)

      assert %{metadata: metadata} = Context.get_iteration(context, 1)
      assert metadata == %{:usage => %{tokens: 12}, "cost" => 0.5}
      assert %{metadata: %{a: nil}} = Context.get_iteration(context, 2)
      assert %{updated_at: @t3} = Context.to_map(context)
    end

    test "is refused for an iteration that is not there" do
      context = Context.interrupt(asked())

      for number <- [0, 3, -1, 0x10000000000000000] do
        assert_iteration_refused(context, number)
      end
    end

    defp assert_iteration_refused(context, number) do
      case assert_refused(fn -> Context.put_iteration_metadata(context, number, :a, 1) end) do
        %Error{reason: reason} -> assert {:unknown_iteration, number, 1..2} == reason
        _caller_bug -> assert number < 1
      end
    end
  end

  describe "equal?/2" do
    test "compares contents" do
      build = fn -> Context.new("Hello", id: "a", at: @t0, metadata: %{a: 1}) end
      assert Context.equal?(build.(), build.())
      refute build.() == build.()

      one = Context.add_assistant_message(build.(), "Hi", [@weather], at: @t1)
      two = Context.add_assistant_message(build.(), "Hi", [@weather], at: @t1)
      assert Context.equal?(one, two)
      assert Context.equal?(one, one)
    end

    test "sees every difference" do
      base = Context.new("Hello", id: "a", at: @t0)
      asked = Context.add_assistant_message(base, nil, [@weather, @time], at: @t1)

      variants = [
        base,
        Context.new("Hello!", id: "a", at: @t0),
        Context.new([%{type: :text, text: "Hello"}], id: "a", at: @t0),
        Context.new("Hello", id: "b", at: @t0),
        Context.new("Hello", id: "a", at: @t1),
        Context.new("Hello", id: "a", at: @t0, metadata: %{a: 1}),
        Context.new("Hello", id: "a", at: @t0, metadata: %{a: 2}),
        Context.new("Hello", id: "a", at: @t0, metadata: %{"a" => 1}),
        Context.new("Hello", id: "a", at: @t0, metadata: %{a: "1"}),
        Context.new("Hello", id: "a", at: @t0, system_prompt: "S"),
        Context.put_iteration_metadata(base, 1, :a, 1, at: @t0),
        Context.add_user_message(base, "Hello", at: @t0),
        Context.add_assistant_message(base, "Hello", [], at: @t0),
        Context.add_assistant_message(base, "Hello", [], at: @t0, metadata: %{a: 1}),
        asked,
        Context.add_assistant_message(base, nil, [@time, @weather], at: @t1),
        Context.add_tool_results(asked, [{"call_1", {:ok, 1}}], at: @t1),
        Context.add_tool_results(asked, [{"call_1", {:error, 1}}], at: @t1),
        Context.add_tool_results(asked, [{"call_1", {:ok, "1"}}], at: @t1),
        Context.add_tool_results(asked, [{"call_2", {:ok, 1}}], at: @t1),
        Context.interrupt(asked, "x", at: @t1)
      ]

      for {left, i} <- Enum.with_index(variants), {right, j} <- Enum.with_index(variants) do
        assert {i, j, Context.equal?(left, right)} == {i, j, i == j}
      end
    end

    test "does not see how a context came to be what it is" do
      base = Context.new("Hello", id: "a", at: @t0)
      once = Context.put_metadata(base, :a, 1, at: @t1)

      assert Context.equal?(once, Context.put_metadata(once, :a, 1, at: @t1))

      assert Context.equal?(
               once,
               base |> Context.put_metadata(:a, 2) |> Context.put_metadata(:a, 1, at: @t1)
             )

      assert Context.equal?(
               once,
               Context.new("Hello", id: "a", at: @t0, metadata: %{a: 1})
               |> Context.update!(%{updated_at: @t1})
             )

      noted = Context.put_iteration_metadata(base, 1, :a, 1, at: @t1)
      assert Context.equal?(noted, Context.put_iteration_metadata(noted, 1, :a, 1, at: @t1))

      asked = Context.add_assistant_message(base, nil, [@weather, @time], at: @t1)
      one = {"call_1", {:ok, 1}}
      two = {"call_2", {:ok, 2}}

      assert Context.equal?(
               Context.add_tool_results(asked, [one, two], at: @t2),
               asked
               |> Context.add_tool_results([two])
               |> Context.add_tool_results([one], at: @t2)
             )
    end
  end
end
