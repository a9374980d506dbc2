defmodule AshAgent.Context.ImportTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.Context.{Error, JSON}
  alias AshAgent.TestSupport.RequestChecker

  @at ~U[2026-01-01 10:00:00.000000Z]

  defp import!(body, provider) do
    assert {:ok, context, %{repairs: [], rest: rest}} =
             Context.Import.from_request(body, provider)

    assert rest == %{}
    context
  end

  # What the provider gets is what it had, whatever way the body came in.
  defp assert_round_trip(body, provider) do
    assert {:ok, context, %{repairs: []}} = Context.Import.from_request(body, provider)
    assert Context.request!(context, provider) == body

    assert Context.request!(Context.Import.from_request!(atoms(body), provider), provider) == body

    assert Context.request!(Context.Import.from_request!(JSON.encode(body), provider), provider) ==
             body

    encoded = context |> Context.encode_request!(provider) |> IO.iodata_to_binary()
    assert JSON.decode!(encoded) == body
    context
  end

  defp atoms(map) when is_map(map),
    do: Map.new(map, fn {k, v} -> {String.to_atom(k), atoms(v)} end)

  defp atoms(list) when is_list(list), do: Enum.map(list, &atoms/1)
  defp atoms(other), do: other

  defp user(text), do: %{"role" => "user", "content" => text}

  defp call(id, name \\ "get") do
    %{
      "role" => "assistant",
      "content" => nil,
      "tool_calls" => [
        %{"id" => id, "type" => "function", "function" => %{"name" => name, "arguments" => "{}"}}
      ]
    }
  end

  defp tool(id, text), do: %{"role" => "tool", "tool_call_id" => id, "content" => text}

  describe "from_messages/2" do
    test "groups OpenAI's chat messages into iterations" do
      messages = [
        %{"role" => "system", "content" => "Be brief."},
        user("Weather?"),
        call("a", "get_weather"),
        tool("a", "72"),
        %{"role" => "assistant", "content" => "72 degrees."},
        user("Thanks")
      ]

      assert {:ok, context, %{repairs: [], rest: %{}}} =
               Context.Import.from_messages(messages, id: "c1", at: @at)

      assert context[:id] == "c1"
      assert context.current_iteration == 3

      assert Context.get_iteration(context, 1) == %{
               number: 1,
               messages: [
                 %{role: :system, content: "Be brief."},
                 %{role: :user, content: "Weather?"},
                 %{
                   role: :assistant,
                   content: nil,
                   tool_calls: [%{id: "a", name: "get_weather", arguments: %{}}]
                 },
                 %{
                   role: :user,
                   content: [
                     %{type: :tool_result, tool_use_id: "a", content: "72", is_error: false}
                   ]
                 }
               ],
               tool_calls: [%{id: "a", name: "get_weather", arguments: %{}, result: {:ok, "72"}}],
               started_at: @at,
               completed_at: @at,
               metadata: %{}
             }

      assert Context.get_iteration_messages(context, 2) == [
               %{role: :assistant, content: "72 degrees."}
             ]

      assert Context.get_iteration_messages(context, 3) == [%{role: :user, content: "Thanks"}]
    end

    test "reads the neutral form back" do
      context =
        Context.new("Look", system_prompt: "Be brief.")
        |> Context.add_assistant_message(
          [
            %{
              type: :thinking,
              text: "hm",
              provider_metadata: %{provider: :anthropic, signature: "s"}
            }
          ],
          [
            %{id: "a", name: :one, arguments: %{x: 1}, provider_metadata: %{provider: :gemini}},
            %{id: "b", name: "two", arguments: %{}, cost: 3}
          ],
          metadata: %{model: "m1"}
        )
        |> Context.add_tool_results(
          [{"a", {:ok, "1"}}, {"b", {:error, "no"}}],
          metadata: %{took: 2}
        )
        |> Context.add_user_message([
          %{type: :image, media_type: "image/png", data: "aGk="},
          %{type: :text, text: "this"}
        ])

      messages = Context.to_messages(context)
      assert {:ok, copy, %{repairs: []}} = Context.Import.from_messages(messages)
      assert Context.to_messages(copy) == messages

      assert [
               %{id: "a", result: {:ok, "1"}},
               %{id: "b", result: {:error, "no"}}
             ] = Context.get_iteration(copy, 1).tool_calls

      strings = JSON.decode!(JSON.encode(messages))
      assert {:ok, copy, %{repairs: []}} = Context.Import.from_messages(strings)
      assert Context.count_messages(copy) == length(messages)
      assert copy.current_iteration == context.current_iteration
    end

    test "reads a mixture of forms, and leaves unknown keys out" do
      messages = [
        %{role: :user, content: "Hi", inserted_at: @at},
        %{role: :assistant, tool_calls: [%{id: "a", name: :get}]},
        %{"role" => "tool", "tool_call_id" => "a", "content" => "1", "name" => "get"},
        %{
          "role" => "assistant",
          "content" => "ok",
          "refusal" => nil,
          "annotations" => [],
          "function_call" => nil
        }
      ]

      assert {:ok, context, %{repairs: []}} = Context.Import.from_messages(messages)

      assert %{"messages" => sent} = Context.request!(context, :openai_chat)
      assert [_, _, tool, %{"role" => "assistant", "content" => "ok"}] = sent
      refute is_map_key(tool, "name")
    end

    test "gives ids to calls that have none" do
      messages = [
        user("Hi"),
        %{
          role: "assistant",
          tool_calls: [%{function: %{name: "get"}}, %{function: %{name: "put"}}]
        },
        %{role: "tool", content: "1"},
        %{role: "tool", content: "2"}
      ]

      assert {:ok, context, %{repairs: []}} = Context.Import.from_messages(messages)

      assert [
               %{id: "call_1_1_0", result: {:ok, "1"}},
               %{id: "call_1_1_1", result: {:ok, "2"}}
             ] = Context.get_iteration(context, 1).tool_calls
    end

    test "an empty list is an empty conversation" do
      assert {:ok, context, %{repairs: []}} = Context.Import.from_messages([])
      assert Context.to_messages(context) == []
    end

    test "reads images, files and reasoning" do
      messages = [
        user([
          %{"type" => "text", "text" => "this"},
          %{
            "type" => "image_url",
            "image_url" => %{"url" => "data:image/png;base64,aGk=", "detail" => "low"}
          },
          %{"type" => "image_url", "image_url" => %{"url" => "https://example.com/a.png"}},
          %{
            "type" => "file",
            "file" => %{"file_data" => "data:application/pdf;base64,aGk=", "filename" => "a.pdf"}
          },
          %{"type" => "input_audio", "input_audio" => %{"data" => "aGk=", "format" => "wav"}}
        ]),
        %{"role" => "assistant", "content" => "ok", "reasoning_content" => "hm"}
      ]

      assert [user, assistant] = Context.to_messages(Context.Import.from_messages!(messages))

      assert user.content == [
               %{type: :text, text: "this"},
               %{type: :image, media_type: "image/png", data: "aGk="},
               %{type: :image, url: "https://example.com/a.png"},
               %{type: :file, media_type: "application/pdf", data: "aGk=", filename: "a.pdf"},
               %{type: :audio, media_type: "audio/wav", data: "aGk="}
             ]

      assert assistant.content == [
               %{type: :thinking, text: "hm", provider_metadata: %{provider: :openai_chat}},
               %{type: :text, text: "ok"}
             ]
    end
  end

  describe "repairs" do
    defp repairs(messages) do
      assert {:ok, context, %{repairs: repairs}} = Context.Import.from_messages(messages)
      {repairs, context}
    end

    test "have a name, the place of their message and the id of their call" do
      twice = update_in(call("a")["tool_calls"], &(&1 ++ &1))
      result = %{type: :tool_result, tool_use_id: "a", content: "1"}
      late = %{role: :user, content: [%{type: :text, text: "go on"}, result]}

      for {messages, repair, results} <- [
            {[call("a"), tool("b", "2"), tool("a", "3")],
             %{repair: :dropped_orphan_result, message: 2, id: "b"}, [{:ok, "3"}]},
            {[call("a"), tool("a", "1"), tool("a", "2")],
             %{repair: :dropped_duplicate_result, message: 3, id: "a"}, [{:ok, "1"}]},
            {[call("a"), user("Hello?")], %{repair: :synthesised_result, message: 1, id: "a"},
             [{:error, "interrupted"}]},
            {[call("a"), user("Hello?"), tool("a", "1")],
             %{repair: :moved_result, message: 3, id: "a"}, [{:ok, "1"}]},
            {[call("a"), late], %{repair: :moved_result, message: 2, id: "a"}, [{:ok, "1"}]},
            {[twice, tool("a", "one"), tool("a", "two")],
             %{repair: :renamed_call, message: 1, id: "a", to: "a_2"},
             [{:ok, "one"}, {:ok, "two"}]},
            {[%{"role" => "assistant", "content" => ""}, user("Hello?")],
             %{repair: :dropped_empty_message, message: 1}, []}
          ] do
        {repairs, context} = repairs([user("Hi") | messages])
        assert repairs == [repair]

        assert for(call <- Context.get_iteration(context, 1).tool_calls, do: call.result) ==
                 results
      end
    end
  end

  describe "from_request/3" do
    test "gives the other fields back" do
      body = %{model: "m1", tools: [%{name: "get"}], messages: [user("Hi")], max_tokens: 10}

      assert {:ok, _context, %{repairs: [], rest: rest}} =
               Context.Import.from_request(body, :openai_chat)

      assert rest == Map.delete(body, :messages)
    end

    test "takes JSON text" do
      assert {:ok, context, %{rest: %{"model" => "m1"}}} =
               Context.Import.from_request(
                 ~s({"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}),
                 :mistral
               )

      assert Context.to_messages(context) == [%{role: :user, content: "Hi"}]

      assert {:error, %Error{reason: {:invalid, [], _}}} =
               Context.Import.from_request("{", :mistral)
    end

    @imports "test/fixtures/imports.json" |> File.read!() |> JSON.decode!()

    for {%{"name" => name}, index} <- Enum.with_index(@imports) do
      test "#{name} are read, and go back as they came" do
        sample = Enum.at(@imports, unquote(index))
        context = assert_round_trip(sample["body"], String.to_existing_atom(sample["provider"]))
        messages = context |> Context.to_messages() |> JSON.encode() |> JSON.decode!()
        assert messages == sample["messages"]
        assert context.current_iteration == sample["current_iteration"]
      end
    end

    test "OpenAI Responses with a text, and with a system prompt among the items" do
      context = import!(%{"input" => "Hi"}, :openai_responses)
      assert Context.request!(context, :openai_responses) == %{"input" => [user("Hi")]}

      body = %{"input" => [%{"role" => "developer", "content" => "Be brief."}, user("Hi")]}
      context = assert_round_trip(body, :openai_responses)
      assert [%{role: :system, content: "Be brief."}, _] = Context.to_messages(context)
      assert %{"system" => "Be brief."} = Context.request!(context, :anthropic)
    end

    test "goes on after the import" do
      body = %{"messages" => [user("Hi"), %{"role" => "assistant", "content" => "Hello."}]}

      context =
        body
        |> Context.Import.from_request!(:anthropic)
        |> Context.add_user_message("Who are you?")

      assert Context.request!(context, :anthropic) ==
               %{"messages" => body["messages"] ++ [user("Who are you?")]}
    end
  end

  describe "errors" do
    defp path(body, provider) do
      assert {:error, %Error{reason: {:invalid, path, expected}} = error} =
               Context.Import.from_request(body, provider)

      assert is_binary(expected) and is_binary(Exception.message(error))
      path
    end

    test "tell the path" do
      assert path(%{}, :anthropic) == [:messages]
      assert path(%{"messages" => %{}}, :anthropic) == ["messages"]
      assert path(%{"messages" => [1]}, :anthropic) == ["messages", 0]

      assert path(%{"messages" => [%{"role" => "user", "content" => 1}]}, :anthropic) == [
               "messages",
               0,
               "content"
             ]

      assert path(%{messages: [%{role: "user", content: [%{type: "text"}]}]}, :openai_chat) ==
               [:messages, 0, :content, 0, :text]

      block = %{"toolUse" => %{"name" => 1}}

      assert path(%{"messages" => [%{"role" => "assistant", "content" => [block]}]}, :bedrock) ==
               ["messages", 0, "content", 0, "toolUse", "name"]

      part = %{"functionCall" => %{"name" => "get", "args" => 1}}

      assert path(%{"contents" => [%{"role" => "model", "parts" => [part]}]}, :gemini) ==
               ["contents", 0, "parts", 0, "functionCall", "args"]

      assert path(%{"input" => [%{"type" => "function_call", "call_id" => 1}]}, :openai_responses) ==
               ["input", 0, "call_id"]

      assert path(%{"messages" => [%{"role" => "user", "content" => []}]}, :ollama) == [
               "messages",
               0,
               "content"
             ]

      assert {:error, %Error{reason: {:invalid, [1, "role"], _}}} =
               Context.Import.from_messages([user("Hi"), %{"role" => "robot"}])

      assert_raise Error, fn -> Context.Import.from_messages!([1]) end
      assert_raise Error, fn -> Context.Import.from_request!(%{}, :gemini) end
    end

    test "a caller's mistakes raise" do
      assert_raise ArgumentError, fn -> Context.Import.from_request(%{}, :nobody) end
      assert_raise ArgumentError, fn -> Context.Import.from_request([], :gemini) end
      assert_raise ArgumentError, fn -> Context.Import.from_messages(%{}) end
      assert_raise ArgumentError, fn -> Context.Import.from_messages([], nothing: 1) end
      assert_raise ArgumentError, fn -> Context.Import.from_messages([], id: "") end
      assert_raise ArgumentError, fn -> Context.Import.from_messages([], at: "now") end
    end

    test "an improper list has no place" do
      assert {:error, %Error{reason: {:unsupported_term, :improper_list, _}}} =
               Context.Import.from_messages([user([1 | 2])])
    end

    test "no atom is made" do
      name = "never_an_atom_#{System.unique_integer([:positive])}"
      block = %{"type" => name, name => %{name => name}}

      Context.Import.from_request(%{"messages" => [user([block])], name => name}, :anthropic)
      Context.Import.from_messages([%{"role" => name}])

      assert_raise ArgumentError, fn -> String.to_existing_atom(name) end
    end
  end

  # A value of a body is replaced by something else, at every place of it in turn.
  describe "mutated bodies" do
    @replacements [
      nil,
      true,
      0,
      -1.5,
      "",
      "x",
      [],
      %{},
      [nil],
      %{"type" => "text"},
      %{"x" => [1]}
    ]

    defp mutations(value) do
      here = Enum.reject(@replacements, &(&1 === value))

      inside =
        case value do
          map when is_map(map) ->
            for {key, inner} <- map, changed <- [:delete | mutations(inner)] do
              if changed == :delete, do: Map.delete(map, key), else: Map.put(map, key, changed)
            end

          list when is_list(list) ->
            for {inner, at} <- Enum.with_index(list), changed <- [:delete | mutations(inner)] do
              if changed == :delete,
                do: List.delete_at(list, at),
                else: List.replace_at(list, at, changed)
            end

          _ ->
            []
        end

      here ++ inside
    end

    defp sample(provider) do
      context =
        Context.new(
          [%{type: :text, text: "this"}, %{type: :image, media_type: "image/png", data: "aGk="}],
          system_prompt: "Be brief."
        )
        |> Context.add_assistant_message("I'll check", [
          %{id: "a", name: :get, arguments: %{x: 1}},
          %{id: "b", name: :put}
        ])
        |> Context.add_tool_results([{"a", {:ok, %{n: 1}}}, {"b", {:error, "no"}}])
        |> Context.add_assistant_message("Done")
        |> Context.add_user_message("Thanks")

      Context.request!(context, provider)
    end

    for provider <- RequestChecker.providers() do
      test "of #{provider} are errors with a reason, or contexts that work" do
        provider = unquote(provider)

        for body <- mutations(sample(provider)), is_map(body) do
          case Context.Import.from_request(body, provider) do
            {:ok, context, %{repairs: repairs, rest: rest}} ->
              assert is_list(repairs) and is_map(rest)
              assert length(Context.to_messages(context)) == Context.count_messages(context)
              assert {:ok, _} = context |> Context.to_map() |> Context.create()

              for other <- [provider, :anthropic, :openai_responses] do
                assert {:ok, request} = Context.request(context, other, pending: :interrupt)
                assert is_map(request)
              end

            {:error, %Error{reason: {:invalid, path, expected}}} ->
              assert is_list(path) and is_binary(expected)
          end
        end
      end
    end
  end

  # Messages, and blocks in them, are taken out, moved and doubled at random.
  describe "damaged histories" do
    @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]

    defp whole(provider) do
      Context.new("Hi", system_prompt: "Be brief.")
      |> Context.add_assistant_message("I'll check", [
        %{id: "aaaaaaaaa", name: :get, arguments: %{x: 1}},
        %{id: "bbbbbbbbb", name: :put}
      ])
      |> Context.add_tool_results([{"aaaaaaaaa", {:ok, %{n: 1}}}, {"bbbbbbbbb", {:error, "no"}}])
      |> Context.add_assistant_message(nil, [%{id: "ccccccccc", name: :get}])
      |> Context.add_tool_results([{"ccccccccc", {:ok, "x"}}])
      |> Context.add_assistant_message("Done")
      |> Context.add_user_message("Thanks")
      |> Context.add_assistant_message(nil, [%{id: "ddddddddd", name: :get}])
      |> Context.add_tool_results([{"ddddddddd", {:ok, "y"}}])
      |> Context.request!(provider)
    end

    defp damage([]), do: []

    defp damage(list) do
      from = :rand.uniform(length(list)) - 1
      to = :rand.uniform(length(list)) - 1

      case :rand.uniform(4) do
        1 -> List.delete_at(list, from)
        2 -> list |> List.delete_at(from) |> List.insert_at(to, Enum.at(list, from))
        3 -> List.insert_at(list, to, Enum.at(list, from))
        4 -> List.update_at(list, from, &damage_inside/1)
      end
    end

    defp damage_inside(message) do
      case Enum.find(["content", "parts", "tool_calls"], &is_list(message[&1])) do
        nil -> message
        key -> Map.update!(message, key, &damage/1)
      end
    end

    for provider <- @providers do
      test "of #{provider} become requests that nobody refuses, and whole ones come back as they were" do
        provider = unquote(provider)
        :rand.seed(:exsss, {:erlang.phash2(provider), ExUnit.configuration()[:seed], 0})
        body = whole(provider)
        list = Enum.find(["messages", "contents", "input"], &is_map_key(body, &1))

        for _ <- 1..400 do
          body = Map.update!(body, list, &(&1 |> damage() |> damage() |> damage()))
          assert {:ok, context, %{repairs: repairs}} = Context.Import.from_request(body, provider)

          for other <- [provider, Enum.random(@providers)] do
            sent = Context.request!(context, other, pending: :interrupt)
            # Older models of Gemini sign nothing.
            assert {[], _body} =
                     {RequestChecker.validate_request(sent, other, signatures: false), body}
          end

          # An empty message at the end is the one thing that is valid and is left out.
          if repairs == [] and RequestChecker.validate_request(body, provider) == [],
            do: assert(Context.request!(context, provider) == body)

          if RequestChecker.validate_request(body, provider) == [],
            do: assert(repairs == [] or hd(repairs).repair == :dropped_empty_message)
        end
      end
    end
  end

  describe "real conversations" do
    @shared Path.expand("../shared/conversations", File.cwd!())

    defp conversation(name) do
      case File.read(Path.join(@shared, name)) do
        {:ok, text} -> JSON.decode!(text)
        {:error, _} -> nil
      end
    end

    for {name, provider, keys} <- [
          {"10-anthropic-thinking-tool.json", :anthropic, ["system", "messages"]},
          {"13-openai-chat-agents.json", :openai_chat, ["messages"]},
          {"15-gemini-signatures.json", :gemini, ["systemInstruction", "contents"]},
          {"18-bedrock-reasoning.json", :bedrock, ["system", "messages"]}
        ] do
      test "#{name} comes back as it was" do
        with %{"body" => body} <- conversation(unquote(name)) do
          {messages, rest} = Map.split(body, unquote(keys))

          assert {:ok, context, %{repairs: [], rest: ^rest}} =
                   Context.Import.from_request(body, unquote(provider))

          assert Context.request!(context, unquote(provider)) == messages

          encoded = Context.encode_request!(context, unquote(provider), body: rest)
          assert encoded |> IO.iodata_to_binary() |> JSON.decode!() == body
        end
      end
    end

    test "a session whose call ids are used again needs no repair" do
      with %{"messages" => messages} <- conversation("07-tau-airline-2-1.json") do
        assert {:ok, context, %{repairs: []}} = Context.Import.from_messages(messages)
        assert Context.count_messages(context) == length(messages)

        calls = Enum.flat_map(Context.iterations(context), & &1.tool_calls)
        texts = for %{"role" => "tool", "content" => text} <- messages, do: text
        assert Enum.map(calls, & &1.result) == Enum.map(texts, &{:ok, &1})
      end
    end
  end
end
