defmodule AshAgent.TraceOtlpTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Generators
  import AshAgent.TestSupport.OtlpReader

  alias AshAgent.{ChatContext, Context, Trace}
  alias AshAgent.Context.{Error, JSON}
  alias AshAgent.TestSupport.ContextGenerators, as: Scripts
  alias AshAgent.TestSupport.OtlpModels

  @at ~U[2026-01-01 10:00:00.000000Z]
  @image %{type: :image, media_type: "image/png", data: "iVBORw0KGgo="}

  defp at(seconds), do: DateTime.add(@at, seconds)
  defp nanos(at), do: DateTime.to_unix(at, :nanosecond)

  # A conversation of two turns with all that spans can tell, and its sub-agent.
  defp family do
    calls = [
      %{id: "c1", name: :research, arguments: %{task: "Hotels"}},
      %{id: "c2", name: "buy", arguments: %{"price" => 9}},
      %{id: "c3", name: "patch", kind: :custom, arguments: "*** text"},
      %{id: "c4", name: "draw", arguments: %{}}
    ]

    thinking = [%{type: :thinking, text: "hm"}, %{type: :text, text: "I will."}]

    parent =
      Context.new([%{type: :text, text: "Look at"}, @image],
        id: "parent",
        system_prompt: "Be brief.",
        at: @at
      )
      |> Context.add_assistant_message(thinking, calls, at: at(1))
      |> Context.Tokens.add_token_usage(%{
        input_tokens: 1_000,
        output_tokens: 50,
        cached_tokens: 400,
        reasoning_tokens: 7
      })
      |> Context.Calls.approve_tool_call("c1", by: "ann", at: at(2))
      |> Context.Calls.deny_tool_call("c2", "too dear", at: at(2))
      |> Context.add_tool_results(
        [{"c1", {:ok, %{hotel: "Roma"}}}, {"c3", {:error, :refused}}, {"c4", {:ok, [@image]}}],
        at: at(5)
      )
      |> Context.add_assistant_message("Hotel Roma.", [], at: at(6))
      |> Context.add_user_message("Thanks", at: at(10))
      |> Context.add_assistant_message("You are welcome.", [], at: at(11))

    child =
      Context.new("Hotels", id: "child", at: at(3))
      |> Context.add_assistant_message("Roma", [], at: at(4))
      |> Context.put_metadata(:parent_id, "parent")
      |> Context.put_metadata(:tool_call_id, "c1")

    {parent, child}
  end

  # What a provider's response says of itself.
  defp answered(context, fields) do
    body =
      Map.merge(
        %{
          "id" => "resp_1",
          "type" => "message",
          "model" => "claude-x",
          "role" => "assistant",
          "stop_reason" => "end_turn",
          "content" => [%{"type" => "text", "text" => "Hello!"}],
          "usage" => %{
            "input_tokens" => 10,
            "cache_read_input_tokens" => 30,
            "cache_creation_input_tokens" => 7,
            "output_tokens" => 5
          }
        },
        fields
      )

    {:ok, response} = AshAgent.Response.decode(:anthropic, body)
    {:ok, context} = Context.add_response(context, response)
    context
  end

  defp both(shown, opts) do
    protobuf = Trace.to_otlp(shown, opts)
    json = Trace.to_otlp(shown, [format: :json] ++ opts)
    assert spans(protobuf) == json_spans(json)
    {protobuf, json}
  end

  defp spans_of(shown, opts \\ []), do: shown |> both(opts) |> elem(0) |> spans()

  defp tree(spans, parent \\ nil) do
    for %{parent: ^parent} = span <- spans, do: {span.name, tree(spans, span.id)}
  end

  defp default({name, spec}), do: {name, spec[:default]}

  defp json(span, key) do
    {:ok, value} = JSON.decode(Map.fetch!(span.attributes, key))
    value
  end

  describe "to_otlp/2" do
    test "makes a trace of each turn, with answers and calls beside each other and sub-agents within" do
      {parent, child} = family()
      spans = spans_of(parent, children: [child], agent: "trip", version: "2")

      assert tree(spans) == [
               {"invoke_agent trip",
                [
                  {"chat", []},
                  {"execute_tool research", [{"invoke_agent research", [{"chat", []}]}]},
                  {"execute_tool buy", []},
                  {"execute_tool patch", []},
                  {"execute_tool draw", []},
                  {"chat", []}
                ]},
               {"invoke_agent trip", [{"chat", []}]}
             ]

      assert [first, second] = for(%{parent: nil} = root <- spans, do: root.trace)
      assert first != second
      assert spans |> Enum.map(& &1.trace) |> Enum.uniq() == [first, second]
      assert spans |> Enum.map(& &1.id) |> Enum.uniq() |> length() == length(spans)

      assert for(span <- spans, uniq: true, do: {hd(String.split(span.name)), span.kind}) == [
               {"invoke_agent", 1},
               {"chat", 3},
               {"execute_tool", 1}
             ]

      # The conversation is the user's, also in a sub-agent.
      assert spans |> Enum.map(& &1.attributes["gen_ai.conversation.id"]) |> Enum.uniq() == [
               "parent"
             ]

      assert for(%{name: "invoke_agent research"} = span <- spans, do: span.attributes) == [
               %{
                 "gen_ai.operation.name" => "invoke_agent",
                 "gen_ai.agent.name" => "research",
                 "gen_ai.conversation.id" => "parent",
                 "gen_ai.provider.name" => "unknown",
                 "ash_agent.context.id" => "child",
                 "ash_agent.turn" => 1
               }
             ]
    end

    test "tells times, tokens, failures and tools, and nothing of what was said" do
      {parent, child} = family()
      tools = [%{name: "buy", description: "Buys it", function: fn _ -> nil end}]
      spans = spans_of(parent, children: [child], tools: tools)
      [turn, chat, research, _, _, buy, patch | _] = spans

      # The first turn ended with an answer whose own time is not known; the last one is as it was left.
      assert {turn.from, turn.to} == {nanos(@at), nanos(at(5))}
      last = List.last(spans)
      assert {last.from, last.to} == {nanos(at(10)), nanos(at(11))}
      # Up to the first decision about a call of it, and from there on.
      assert {chat.from, chat.to} == {nanos(@at), nanos(at(2))}
      assert {research.from, research.to} == {nanos(at(2)), nanos(at(5))}

      assert %{
               "gen_ai.usage.input_tokens" => 1000,
               "gen_ai.usage.output_tokens" => 50,
               "gen_ai.usage.cache_read.input_tokens" => 400,
               "gen_ai.usage.reasoning.output_tokens" => 7,
               "gen_ai.response.finish_reasons" => ["tool_call"],
               "ash_agent.iteration" => 1
             } = chat.attributes

      # Viewers add up what all spans tell.
      refute Map.has_key?(turn.attributes, "gen_ai.usage.input_tokens")

      assert %{
               "gen_ai.tool.name" => "buy",
               "gen_ai.tool.call.id" => "c2",
               "gen_ai.tool.type" => "function",
               "gen_ai.tool.description" => "Buys it",
               "error.type" => "denied"
             } = buy.attributes

      assert {research.status, buy.status, patch.status} == {0, 2, 2}
      assert patch.attributes["error.type"] == "error"

      {protobuf, json} = both(parent, children: [child])

      for text <- [protobuf, json],
          word <- ~w(Look brief Roma dear Thanks welcome hm Hotels *** iVBO),
          do: refute(text =~ word)
    end

    test "has what a provider said of an answer" do
      context = Context.new("Hi", id: "a") |> answered(%{})
      [turn, chat] = spans_of(context)
      assert chat.name == "chat claude-x"

      assert %{
               "gen_ai.provider.name" => "anthropic",
               "gen_ai.request.model" => "claude-x",
               "gen_ai.response.model" => "claude-x",
               "gen_ai.response.id" => "resp_1",
               "gen_ai.response.finish_reasons" => ["stop"],
               "gen_ai.usage.input_tokens" => 47,
               "gen_ai.usage.cache_read.input_tokens" => 30,
               "gen_ai.usage.cache_creation.input_tokens" => 7
             } = chat.attributes

      [_, next] = spans_of(context, conventions: :next)
      assert next.attributes["gen_ai.usage.cache_write.input_tokens"] == 7
      refute Map.has_key?(next.attributes, "gen_ai.usage.cache_creation.input_tokens")

      assert turn.attributes["gen_ai.provider.name"] == "anthropic"
      cut = Context.new("Hi") |> answered(%{"stop_reason" => "max_tokens"})
      assert [_, chat] = spans_of(cut)
      assert chat.attributes["gen_ai.response.finish_reasons"] == ["length"]
    end

    test "has the model of a body that was imported, for its own answers" do
      user = &%{"role" => "user", "content" => &1}
      answer = &%{"role" => "assistant", "content" => &1}
      messages = [user.("Hi"), answer.("Hello"), user.("And?"), answer.("Yes"), user.("So?")]

      for provider <- [:openai_chat, :anthropic, :mistral, :ollama] do
        body = %{"model" => "model-1", "messages" => messages}

        {:ok, context, %{rest: %{"model" => "model-1"}}} =
          Context.Import.from_request(body, provider)

        assert Context.equal?(context, context |> Context.dump() |> Context.load!())

        added = Context.add_assistant_message(context, "Of course", [])
        spans = spans_of(added)
        chats = Enum.filter(spans, &String.starts_with?(&1.name, "chat"))
        asked = &{&1.name, &1.attributes["gen_ai.request.model"]}

        assert Enum.map(chats, asked) ==
                 [{"chat model-1", "model-1"}, {"chat model-1", "model-1"}, {"chat", nil}]

        [turn | _] = spans
        assert turn.attributes["gen_ai.request.model"] == "model-1"
        assert turn.attributes["gen_ai.response.model"] == nil
      end
    end

    test "tells when the first words came, and what an answer cost" do
      {:ok, response} =
        AshAgent.Response.decode(:anthropic, %{
          "type" => "message",
          "role" => "assistant",
          "model" => "m",
          "stop_reason" => "end_turn",
          "content" => [%{"type" => "text", "text" => "Hello!"}],
          "usage" => %{"input_tokens" => 1_000, "output_tokens" => 7}
        })

      times = [requested_at: at(1), first_chunk_at: DateTime.add(at(1), 250, :millisecond)]

      context =
        Context.new("Hi", at: @at) |> Context.add_response!(response, times ++ [at: at(3)])

      prices = [%{model: "m", input: 3_000_000, output: 15_000_000}]
      [_turn, chat] = spans_of(context, prices: prices)

      assert %{
               "gen_ai.response.time_to_first_chunk" => 0.25,
               "llm.cost.prompt" => 0.003,
               "llm.cost.completion" => 0.000105,
               "llm.cost.total" => 0.003105
             } = chat.attributes

      assert context
             |> Context.to_snapshot()
             |> Context.load!()
             |> Context.equal?(context)

      for opts <- [[], [prices: [%{model: "other", input: 1, output: 1}]]] do
        [_turn, chat] = spans_of(context, opts)
        refute Map.has_key?(chat.attributes, "llm.cost.total")
      end
    end

    test "names the error of a tool by its kind, and an imported body's provider" do
      result = %{id: "c1", result: {:error, "words"}, error_type: "MyApp.NoMoney"}
      fine = %{id: "c2", result: {:ok, 1}, error_type: "Ignored"}
      calls = [%{id: "c1", name: "pay"}, %{id: "c2", name: "look"}]

      context =
        Context.new("Pay")
        |> Context.add_assistant_message("", calls)
        |> Context.add_tool_results([result, fine])

      for context <- [context, context |> Context.dump() |> Context.load!()] do
        [_turn, _chat, pay, look] = spans_of(context)
        assert pay.status == 2 and pay.attributes["error.type"] == "MyApp.NoMoney"
        refute Map.has_key?(look.attributes, "error.type")
        assert [_, _, %{message: "words"}, _] = spans_of(context, messages: true)
      end

      body = %{messages: [%{role: "user", content: "Hi"}, %{role: "assistant", content: "Yes"}]}
      {:ok, context, _report} = Context.Import.from_request(body, :openai_chat)

      for span <- spans_of(context),
          do: assert(span.attributes["gen_ai.provider.name"] == "openai")
    end

    test "links turns to who asked for them, and has no span yet of one that goes on" do
      {parent, child} = family()

      opts =
        [children: [child], masked: true] ++ Enum.map(Trace.Otlp.shared_options(), &default/1)

      spans = spans_of(parent, children: [child])
      encode = fn how -> parent |> Trace.Otlp.encode(opts, how) |> spans() end
      assert encode.([]) == spans

      caller = :binary.copy(<<1>>, 16) <> :binary.copy(<<2>>, 8)
      link = {String.duplicate("01", 16), String.duplicate("02", 8)}

      for span <- encode.(caller: caller),
          do: assert(span.links == if(span.parent, do: [], else: [link]))

      turns = for %{parent: nil} = span <- spans, do: span.id
      so_far = encode.(open?: true)
      assert so_far == Enum.reject(spans, &(&1.id == List.last(turns)))
      assert List.last(so_far).parent == List.last(turns)
    end

    test "has a span for a late result, from its call to its arrival, linked to the span of the call" do
      waits = {:waiting, %{handle: "k", for: "ci"}}
      calls = [%{id: "a", name: :look}, %{id: "b", name: :build, arguments: %{"release" => 7}}]

      context =
        Context.new("Build it", id: "c", at: @at)
        |> Context.add_assistant_message(nil, calls, at: at(1))
        |> Context.add_tool_results(
          [
            %{id: "a", result: {:ok, "x"}},
            %{id: "b", result: waits, started_at: at(2), ended_at: at(3)}
          ],
          at: at(3)
        )
        |> Context.add_assistant_message("Started.", [], at: at(4))
        |> Context.add_user_message("And?", at: at(5))
        |> Context.add_assistant_message("Still building.", [], at: at(6))

      before = spans_of(context)

      {:ok, context} =
        Context.Calls.arrive(context, {:handle, "k"}, {:error, "red"}, from: "ci", at: at(60))

      context = Context.Calls.place_arrivals(context, at: at(61))
      context = Context.add_assistant_message(context, "It is red.", [], at: at(62))
      spans = spans_of(context)

      assert [first, late] = for(%{name: "execute_tool build"} = span <- spans, do: span)
      # What was sent of the call stays as it was.
      assert first in before
      assert late.links == [{first.trace, first.id}]
      assert late.trace != first.trace
      assert late.id != first.id
      assert {late.from, late.to} == {nanos(at(2)), nanos(at(60))}
      assert first.to == nanos(at(3))

      assert %{
               "gen_ai.tool.call.id" => "b",
               "ash_agent.call.iteration" => 1,
               "error.type" => "error"
             } = late.attributes

      assert spans |> Enum.map(& &1.id) |> Enum.uniq() |> length() == length(spans)
    end

    test "marks what broke off, by the name of the reason alone" do
      {:ok, response, _events} =
        AshAgent.Response.new(:openai_chat)
        |> AshAgent.Response.feed(~s(data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n))

      response = AshAgent.Response.interrupt(response, {:closed, "by the secret peer"})
      {:ok, context} = Context.add_response(Context.new("Hi"), response)
      [turn, chat] = spans_of(context, messages: true)
      assert {turn.status, chat.status} == {2, 2}
      assert chat.attributes["error.type"] == "closed"
      assert [%{"finish_reason" => "error"}] = json(chat, "gen_ai.output.messages")
      refute inspect({turn, chat}) =~ "secret"
    end

    test "gives the same trace each time: alone, with others, stored and loaded, and later on" do
      {parent, child} = family()
      whole = spans_of(parent, children: [child], messages: true)
      assert spans_of(parent, children: [child], messages: true) == whole
      {first, second} = Enum.split_with(whole, &(&1.trace == hd(whole).trace))

      assert spans_of(parent, turn: 1, children: [child], messages: true) == first
      # The second iteration is part of the first turn.
      assert spans_of(parent, turn: 2, children: [child], messages: true) == first
      assert spans_of(parent, turn: 3, messages: true) == second
      assert spans_of(parent, turn: :last, messages: true) == second
      assert spans_of(parent, turn: 2..3, children: [child], messages: true) == whole

      loaded = parent |> Context.to_snapshot() |> Context.load!()
      assert spans_of(loaded, children: [child], messages: true) == whole

      longer = parent |> Context.add_user_message("More") |> Context.add_assistant_message("No.")
      ids = fn spans -> for span <- spans, do: {span.trace, span.id, span.parent, span.name} end
      assert ids.(spans_of(longer, turn: 1..3, children: [child])) == ids.(whole)

      # Another conversation, and this one in other words, have other ids.
      forked = spans_of(Context.fork(parent))
      rewound = parent |> Context.rewind(to: 2) |> Context.add_user_message("Else", at: at(99))
      rewound = spans_of(rewound |> Context.add_assistant_message("Oh"), turn: :last)
      own = MapSet.new(whole, & &1.id)
      assert Enum.any?(forked ++ rewound, &MapSet.member?(own, &1.id)) == false
    end

    test "tells what the model read and answered, by the conventions' schemas" do
      {parent, child} = family()
      tools = [%{name: "buy", description: "Buys", function: fn _ -> nil end}]
      spans = spans_of(parent, children: [child], messages: true, tools: tools)
      [turn, first, research, child_turn, _, _buy, _patch, draw, second, last_turn, third] = spans

      user = %{
        "role" => "user",
        "parts" => [
          %{"type" => "text", "content" => "Look at"},
          %{
            "type" => "blob",
            "modality" => "image",
            "mime_type" => "image/png",
            "content" => "iVBORw0KGgo="
          }
        ]
      }

      assert json(turn, "gen_ai.input.messages") == [user]
      assert json(first, "gen_ai.input.messages") == [user]

      assert [
               %{
                 "role" => "assistant",
                 "finish_reason" => "tool_call",
                 "parts" => [
                   %{"type" => "reasoning", "content" => "hm"},
                   %{"type" => "text", "content" => "I will."},
                   %{"type" => "tool_call", "id" => "c1", "arguments" => %{"task" => "Hotels"}},
                   _,
                   %{"type" => "tool_call", "name" => "patch", "arguments" => "*** text"},
                   _
                 ]
               }
             ] = json(first, "gen_ai.output.messages")

      # Only what is new: the results.
      assert [
               %{
                 "role" => "tool",
                 "parts" => [%{"id" => "c1", "response" => ~s({"hotel":"Roma"})}]
               },
               %{"parts" => [%{"id" => "c2", "response" => "denied: too dear"}]},
               %{"parts" => [%{"id" => "c3", "response" => "refused"}]},
               %{"parts" => [%{"id" => "c4", "response" => [%{"type" => "blob"}]}]}
             ] = json(second, "gen_ai.input.messages")

      assert json(turn, "gen_ai.output.messages") == json(second, "gen_ai.output.messages")
      assert [%{"parts" => [%{"content" => "Thanks"}]}] = json(third, "gen_ai.input.messages")
      assert [%{"parts" => [%{"content" => "Thanks"}]}] = json(last_turn, "gen_ai.input.messages")

      system = [%{"type" => "text", "content" => "Be brief."}]

      for span <- [turn, first, second],
          do: assert(json(span, "gen_ai.system_instructions") == system)

      assert [
               %{
                 "type" => "function",
                 "name" => "buy",
                 "description" => "Buys",
                 "parameters" => %{}
               }
             ] = json(first, "gen_ai.tool.definitions")

      # A sub-agent has neither the prompt nor the tools of its parent.
      refute Map.has_key?(child_turn.attributes, "gen_ai.tool.definitions")
      refute Map.has_key?(child_turn.attributes, "gen_ai.system_instructions")

      assert research.attributes["gen_ai.tool.call.arguments"] == ~s({"task":"Hotels"})
      assert research.attributes["gen_ai.tool.call.result"] == ~s({"hotel":"Roma"})
      assert [%{"type" => "blob"}] = json(draw, "gen_ai.tool.call.result")
    end

    test "masks what the view masks" do
      {parent, child} = family()

      masked =
        Context.View.put_masks(parent, [{"Roma|dear|Hotels|brief|hm|Look|[*]+ text|9", "[gone]"}])

      opts = [children: [child], messages: true]
      {protobuf, json} = both(masked, opts)

      for text <- [protobuf, json],
          word <- ~w(Roma dear Hotels brief hm Look ***),
          do: refute(text =~ word)

      assert Trace.to_otlp(masked, [masked: false] ++ opts) =~ "Roma"
    end

    test "tells of a summary only in the coming conventions, and only where there is one" do
      {parent, _child} = family()
      compacted = Context.View.mark_as_summarized(parent, 1..2, "A hotel was found.")

      [before, _, _, _, _, _, after_it] =
        for %{name: name} = span <- spans_of(compacted, conventions: :next, messages: true),
            name != "invoke_agent ash_agent",
            do: span

      assert after_it.attributes["gen_ai.conversation.compacted"] == true
      refute Map.has_key?(before.attributes, "gen_ai.conversation.compacted")

      assert [
               %{"role" => "user", "parts" => [%{"type" => "compaction", "content" => summary}]},
               %{"parts" => [%{"type" => "text", "content" => "Thanks"}]}
             ] = json(after_it, "gen_ai.input.messages")

      assert summary =~ "A hotel was found."

      for {context, conventions} <- [{compacted, :v1_41}, {parent, :next}] do
        {protobuf, json} = both(context, conventions: conventions, messages: true)
        refute protobuf =~ "compact"
        refute json =~ "compact"
      end

      [_, third] = spans_of(compacted, turn: :last, messages: true)
      assert [%{"parts" => [%{"type" => "text"}]}, _thanks] = json(third, "gen_ai.input.messages")
      assert Trace.to_otlp(parent) =~ "https://opentelemetry.io/schemas/1.41.1"
    end

    test "tells of the summaries that stood in a request, whatever the view is now" do
      {:ok, response} = AshAgent.Response.from_message(%{content: "Hello!"})

      answer = fn context, second ->
        Context.add_response!(context, response, requested_at: at(second), at: at(second + 1))
      end

      context =
        Context.new(String.duplicate("One and one ", 50), at: @at)
        |> answer.(1)
        |> Context.add_user_message("Two", at: at(2))
        |> Context.View.mark_as_summarized(1..1, "They met.")
        |> answer.(3)
        |> Context.add_user_message("Three", at: at(4))
        |> answer.(5)
        |> Context.add_user_message("Four", at: at(6))
        |> Context.View.expand(:all)
        |> answer.(7)

      chats =
        for %{kind: 3} = span <- spans_of(context, conventions: :next, messages: true), do: span

      assert for(chat <- chats, do: chat.attributes["gen_ai.conversation.compacted"]) ==
               [nil, true, true, nil]

      # It is new once.
      assert for(chat <- chats, do: length(json(chat, "gen_ai.input.messages"))) == [1, 2, 1, 1]

      assert [%{"parts" => [%{"type" => "compaction"}]}, _two] =
               chats |> Enum.at(1) |> json("gen_ai.input.messages")
    end

    test "has what the application says of itself" do
      context = Context.new("Hi") |> Context.add_assistant_message("Hello!")

      attributes = %{
        "user.id" => "42",
        :tags => ["a", "b"],
        "price" => 1.5,
        "n" => -3,
        "big" => 0x7FFFFFFFFFFFFFFF,
        "on" => true,
        "none" => []
      }

      opts = [resource: %{"deployment.environment.name" => "test"}, attributes: attributes]
      {protobuf, _json} = both(context, [agent: "a"] ++ opts)

      assert resource(protobuf) == %{
               "service.name" => "a",
               "deployment.environment.name" => "test"
             }

      [turn, chat] = spans(protobuf)

      assert Map.take(turn.attributes, ["tags" | Map.keys(attributes)]) ==
               attributes |> Map.delete(:tags) |> Map.put("tags", ["a", "b"])

      refute Map.has_key?(chat.attributes, "user.id")
      named = Trace.to_otlp(context, resource: %{"service.name" => "mine"})
      assert resource(named) == %{"service.name" => "mine"}
    end

    test "writes the active branch of a chat, and conversations that no call was made for as traces of their own" do
      chat = ChatContext.new(input: "Hello") |> ChatContext.branch("b") |> ChatContext.switch("b")
      chat = ChatContext.update_context(chat, &Context.add_assistant_message(&1, "from b"))
      children = for n <- 1..2, do: ChatContext.spawn_child(chat, input: "child #{n}", id: "same")
      spans = spans_of(chat, children: children, messages: true)
      roots = for %{parent: nil} = span <- spans, do: span
      assert length(roots) == 3
      assert roots |> Enum.map(& &1.trace) |> Enum.uniq() |> length() == 3
      assert spans |> Enum.map(& &1.id) |> Enum.uniq() |> length() == length(spans)
      assert inspect(spans) =~ "from b"
      # One turn has nothing of them.
      assert [%{parent: nil}, _chat] = spans_of(chat, children: children, turn: :last)
    end

    test "is empty for a conversation in which nothing was said" do
      {:ok, empty} = Context.create(%{})
      assert spans_of(empty) == []
      assert spans_of(empty, turn: :last) == []
    end

    test "leaves out what has not happened" do
      waiting =
        Context.new("Do it") |> Context.add_assistant_message(nil, [%{id: "c", name: "wait"}])

      assert for(span <- spans_of(waiting), do: span.name) == ["invoke_agent ash_agent", "chat"]
      assert for(span <- spans_of(Context.new("Hi")), do: span.name) == ["invoke_agent ash_agent"]
    end

    test "is an error for turns that there are none of, and for options that are none" do
      {parent, _child} = family()

      for turn <- [4, 99, 2..99, 0x7FFFFFFFFFFFFFFFFFFF] do
        assert %Error{reason: {:unknown_iteration, _, 1..3}} =
                 catch_error(Trace.to_otlp(parent, turn: turn))
      end

      for {name, value} <- [
            turn: 0,
            turn: 3..1//-1,
            turn: 1..3//2,
            format: :xml,
            conventions: :v1_36,
            agent: nil,
            messages: :all,
            resource: %{"a" => %{}},
            resource: %{"" => 1},
            resource: [],
            attributes: %{"a" => <<255>>},
            attributes: %{"a" => 0x8000000000000000},
            attributes: %{1 => "a"},
            attributes: %{"a" => [[1]]},
            tools: %{"x" => 1}
          ] do
        assert_raise ArgumentError, fn -> Trace.to_otlp(parent, [{name, value}]) end
      end
    end

    test "names the feature that it needs" do
      message = Exception.message(%Error{reason: {:feature_missing, "otlp"}})
      assert message =~ "add :otlp"
    end
  end

  describe "hostile conversations" do
    test "are no longer than a trace may be" do
      prompt = String.duplicate("x", 1_000_000)

      context =
        Enum.reduce(1..300, Context.new("Hi", system_prompt: prompt), fn n, context ->
          context |> Context.add_assistant_message("#{n}") |> Context.add_user_message("more")
        end)

      error = catch_error(Trace.to_otlp(context, messages: true))
      assert %Error{reason: {:trace_too_large, most}} = error
      assert Exception.message(error) =~ ":turn"
      assert byte_size(Trace.to_otlp(context, messages: true, turn: 150..160)) in 20_000_000..most
      assert byte_size(Trace.to_otlp(context)) < 1_000_000
    end

    test "are written whatever they say" do
      bad = <<255, 0, 200, "ü", 0xED, 0xA0, 0x80>>
      deep = Enum.reduce(1..100, 1, fn _, value -> %{"a" => [value]} end)
      huge = 0xFF ** 1_000

      context =
        Context.new(bad, system_prompt: bad, id: "a\n\"" <> "b")
        |> Context.add_assistant_message(
          [
            %{type: :text, text: bad},
            %{type: :redacted_thinking, data: "secret"},
            %{
              type: :provider_block,
              provider: :anthropic,
              data: %{
                "type" => "server_tool_use",
                "id" => "s1",
                "name" => "web_search",
                "input" => %{}
              }
            },
            %{
              type: :provider_block,
              provider: :anthropic,
              data: %{
                "type" => "web_search_tool_result",
                "tool_use_id" => "s1",
                "content" => [bad]
              }
            },
            %{type: :provider_block, provider: :gemini, data: %{"type" => "text"}}
          ],
          [
            %{id: "c1", name: "</script>\u202e", arguments: %{"deep" => deep, "huge" => huge}},
            %{id: "c2", name: "x", arguments: bad}
          ]
        )
        |> Context.add_tool_results([{"c1", {:ok, {deep, huge, bad}}}, {"c2", {:error, bad}}])

      [_turn, chat | calls] = spans_of(context, messages: true)
      assert [%{"parts" => parts}] = json(chat, "gen_ai.output.messages")

      assert [
               %{"type" => "text"},
               %{
                 "type" => "server_tool_call",
                 "id" => "s1",
                 "name" => "web_search",
                 "server_tool_call" => %{"type" => "server_tool_use"}
               },
               %{
                 "type" => "server_tool_call_response",
                 "id" => "s1",
                 "server_tool_call_response" => %{"type" => "web_search_tool_result"}
               },
               %{"type" => "provider_block"},
               %{"type" => "tool_call", "arguments" => %{"huge" => ^huge}},
               %{"type" => "tool_call", "arguments" => "" <> _}
             ] = parts

      assert length(calls) == 2
      refute inspect(chat) =~ "secret"
    end

    test "end, also if they claim to be each other's children" do
      call = fn context ->
        Context.add_assistant_message(context, nil, [%{id: "c", name: "f"}])
        |> Context.add_tool_results([{"c", {:ok, 1}}])
      end

      of = fn id, parent ->
        Context.new("x", id: id, metadata: %{parent_id: parent, tool_call_id: "c"}) |> call.()
      end

      circle = [of.("b", "a"), of.("c", "b")]
      spans = spans_of(of.("a", "c"), children: circle)
      assert length(spans) >= 3
      chain = for n <- 1..100, do: of.("n#{n}", "n#{n - 1}")
      spans = spans_of(of.("n0", "nobody"), children: chain)
      assert length(spans) <= 101 * 3
      assert spans |> Enum.map(& &1.id) |> Enum.uniq() |> length() == length(spans)
    end

    test "of any kind are valid spans, once each" do
      check_all("otlp", [runs: 100], fn size ->
        context = Scripts.build(Scripts.with_views(Scripts.script(size)))
        spans = spans_of(context, messages: true, conventions: one_of([:v1_41, :next]))
        ids = MapSet.new(spans, & &1.id)
        assert MapSet.size(ids) == length(spans)

        for span <- spans do
          assert span.to >= span.from
          assert span.parent == nil or MapSet.member?(ids, span.parent)
        end

        answers =
          for iteration <- Context.iterations(context),
              %{role: :assistant} <- iteration.messages,
              do: 1

        assert length(for(%{kind: 3} <- spans, do: 1)) == length(answers)
      end)
    end

    @tag :otlp
    @tag integrations: ["OTLP"]
    test "are valid by the published reader and the conventions' schemas" do
      random =
        for size <- 1..100 do
          seed_case(ExUnit.configuration()[:seed], "otlp models", size)
          context = Scripts.build(Scripts.with_views(Scripts.script(rem(size, 20) + 1)))
          both(context, messages: true, conventions: one_of([:v1_41, :next]))
        end

      {parent, child} = family()

      tools = [
        %{
          name: "buy",
          description: "Buys",
          parameters: %{"type" => "object"},
          function: fn _ -> nil end
        }
      ]

      opts = [
        children: [child],
        messages: true,
        tools: tools,
        attributes: %{"a" => [1, 2], "b" => 1.5}
      ]

      whole = both(Context.View.mark_as_summarized(parent, 1..2, "Found."), opts)

      # With a link, money, and what was asked.
      noted =
        Context.Audit.put_request(Context.new("Hi"), %{"body" => %{"temperature" => 1}}, [
          %{"name" => "look", "description" => nil}
        ])

      {:ok, response} =
        AshAgent.Response.from_message(%{content: "Yes", usage: %{input_tokens: 1}})

      noted = Context.add_response!(noted, response, requested_at: @at, first_chunk_at: at(1))
      given = [children: [], masked: true] ++ Enum.map(Trace.Otlp.shared_options(), &default/1)
      given = Keyword.merge(given, messages: true, prices: [%{model: :any, input: 1, output: 1}])
      how = [caller: :binary.copy(<<7>>, 24)]

      linked =
        {Trace.Otlp.encode(noted, given, how),
         Trace.Otlp.encode(noted, [format: :json] ++ given, how)}

      problems = OtlpModels.problems([linked, whole | random])
      assert length(problems) == 102
      assert Enum.filter(problems, &(&1 != "")) == []

      # They do find what is wrong.
      {protobuf, json} = whole
      wrong = String.replace(json, ~S(\"finish_reason\":\"stop\"), ~S(\"finish\":1))
      assert [problem] = OtlpModels.problems([{protobuf, wrong}])
      assert problem =~ "'finish_reason' is a required property"
      assert problem =~ "differ"
    end
  end
end
