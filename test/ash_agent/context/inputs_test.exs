defmodule AshAgent.Context.InputsTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.OtlpReader

  alias AshAgent.{Context, Response, Trace}
  alias AshAgent.Context.Error

  @at ~U[2026-01-01 10:00:00.000000Z]
  @tool %{"name" => "look", "description" => "Looks", "parameters" => %{"type" => "object"}}

  defp fields(more \\ %{}) do
    body =
      Map.merge(%{"model" => "m1", "temperature" => 0, "max_tokens" => 99, "stop" => "END"}, more)

    %{"model" => "m1", "server" => "llm.example", "port" => 8080, "body" => body}
  end

  defp answer(context, text) do
    {:ok, response} = AshAgent.Response.from_message(%{content: text})
    Context.add_response!(context, response, requested_at: @at)
  end

  # Three requests of one kind, and one of another.
  defp asked do
    Enum.reduce(1..3, Context.new("Hi", at: @at), fn n, context ->
      context
      |> Context.Audit.put_request(fields(), [@tool])
      |> answer("#{n}")
      |> Context.add_user_message("More")
    end)
    |> Context.Audit.put_request(fields(%{"temperature" => 1.5}), [])
    |> answer("4")
  end

  test "is kept once where it does not change, also stored, in parts, and rewound" do
    context = asked()
    snapshot = Context.to_snapshot(context)
    assert length(String.split(snapshot, "llm.example")) == 3
    assert length(String.split(snapshot, ~s("Looks"))) == 2

    base = context |> Context.dump() |> Context.load!()
    delta = Context.dump(context, since: 3)
    rewound = Context.rewind(context, to: 2)
    {:ok, added} = Context.load(rewound, delta)

    for context <- [context, base, Context.load!(snapshot), added] do
      for n <- 1..3,
          do:
            assert(
              Context.Audit.get_request(context, n) == %{
                fields: fields(),
                tools: [@tool],
                sent: nil
              }
            )

      assert Context.Audit.get_request(context, 4) == %{
               fields: fields(%{"temperature" => 1.5}),
               tools: [],
               sent: nil
             }

      assert Context.Audit.get_request(context, 5) == %{fields: nil, tools: nil, sent: nil}
    end

    assert Context.equal?(base, context)
    again = rewound |> Context.Audit.put_request(fields(%{"seed" => 7}), nil) |> answer("3")

    assert %{fields: %{"body" => %{"seed" => 7}}, tools: [@tool]} =
             Context.Audit.get_request(again, 3)

    refute Context.equal?(Context.Audit.put_request(context, %{}, nil), context)
  end

  test "is known of requests alone" do
    context = Context.new("Hi") |> Context.Audit.put_request(fields(), [@tool])
    assert Context.Audit.get_request(context, 1) == %{fields: nil, tools: nil, sent: nil}

    assert %{tools: [@tool]} =
             context
             |> Context.Audit.add_failure(%{kind: :timeout})
             |> Context.Audit.get_request(1)

    context = Context.add_assistant_message(context, "Yes")
    assert Context.Audit.get_request(context, 1) == %{fields: nil, tools: nil, sent: nil}

    for wrong <- [[1], [%{}, 1]], [fields | rest] = wrong do
      assert_raise ArgumentError, fn ->
        Context.Audit.put_request(context, fields, List.first(rest))
      end
    end

    stored = Context.dump(asked())

    broken =
      update_in(
        stored,
        ["iterations", Access.at(0)],
        &Map.put(&1, "tools", %{"$" => "x", "nope" => 1})
      )

    assert match?({:ok, _}, Context.load(broken)) or
             match?({:error, %Error{}}, Context.load(broken))
  end

  test "can be kept as digests, which tell what has changed and nothing else" do
    noted = fn context, fields, tools ->
      context
      |> Context.Audit.put_request(fields, tools, keep: :hashes)
      |> answer("Yes")
      |> Context.add_user_message("More")
    end

    context = Context.new("Hi") |> noted.(fields(), [@tool]) |> noted.(fields(), [@tool])
    context = noted.(context, fields(%{"temperature" => 1}), [@tool])
    text = Context.to_snapshot(context)
    for secret <- ["Looks", "END", "object"], do: refute(text =~ secret)

    assert %{fields: %{"server" => "llm.example", "body" => first}, tools: [tool]} =
             Context.Audit.get_request(context, 1)

    assert %{"name" => "look", "digest" => <<_::binary-size(16)>>} = tool
    assert %{fields: %{"body" => ^first}} = Context.Audit.get_request(context, 2)
    assert %{fields: %{"body" => other}, tools: [^tool]} = Context.Audit.get_request(context, 3)
    assert for({key, value} <- other, first[key] != value, do: key) == ["temperature"]

    assert_raise ArgumentError, fn ->
      Context.Audit.put_request(context, nil, nil, keep: :some)
    end
  end

  test "a prepared request is noted as its options are" do
    context = Context.new("Hi", system_prompt: "S", at: @at)
    opts = [model: "m", cache: :auto]
    {:ok, prepared} = Context.PreparedRequest.new(:anthropic, [body: %{max_tokens: 5}] ++ opts)
    {:ok, by_options} = Context.Audit.put_sent(context, :anthropic, opts)
    {:ok, by_prepared} = Context.Audit.put_sent(context, prepared)
    assert Context.dump(by_prepared) == Context.dump(by_options)
    assert_raise ArgumentError, fn -> Context.Audit.put_sent(context, prepared, opts) end
  end

  test "the conversation can be had as it was asked, with the view of then" do
    sent = fn context -> elem(Context.Audit.put_sent(context, :anthropic), 1) end
    context = Context.new("Hi", system_prompt: "S", at: @at) |> sent.() |> answer("1")
    context = Context.add_user_message(context, "More")

    hidden =
      context
      |> Context.View.hide({:all_but_last, 1})
      |> Context.View.put_masks([{"More", "Less"}])

    context = hidden |> sent.() |> answer("2") |> Context.View.expand(1..1)

    {:ok, first} = Context.Audit.fetch_asked(context, 1)
    {:ok, second} = Context.Audit.fetch_asked(context, 2)

    assert Context.to_messages(first) ==
             Context.to_messages(Context.new("Hi", system_prompt: "S"))

    assert Context.to_messages(second) == Context.to_messages(hidden)

    for {number, asked} <- [{1, first}, {2, second}] do
      %{sent: digest} = Context.Audit.get_request(context, number)
      assert {:ok, again} = Context.Audit.put_sent(asked, :anthropic)
      assert [%{"sent" => sent} | _] = Enum.reverse(Context.dump(again)["iterations"])
      assert sent |> String.split(" ") |> hd() == digest
    end

    assert Context.Audit.fetch_asked(context, 3) == :error
    assert Context.Audit.fetch_asked(Context.new("Hi"), 1) == :error

    # The masks of the last request are stored. Earlier releases stored their digest alone: today's take their place.
    dump = context |> Context.View.put_masks([]) |> Context.dump()

    for {dump, shown} <- [{dump, "Less"}, {Map.delete(dump, "asked_masks"), "More"}] do
      {:ok, second} = dump |> Context.load!() |> Context.Audit.fetch_asked(2)
      assert List.last(Context.to_messages(second)).content == shown
    end
  end

  test "gives spans their parameters, their server and their tools" do
    spans = asked() |> Trace.to_otlp(messages: true) |> spans()

    [first, _, _, last] =
      for %{parent: parent} = span <- spans, parent != nil, do: span.attributes

    assert %{
             "gen_ai.request.model" => "m1",
             "gen_ai.request.max_tokens" => 99,
             "gen_ai.request.stop_sequences" => ["END"],
             "server.address" => "llm.example",
             "server.port" => 8080
           } = first

    assert first["gen_ai.request.temperature"] == 0.0
    assert first["gen_ai.tool.definitions"] =~ "Looks"
    assert last["gen_ai.request.temperature"] == 1.5
    refute (last["gen_ai.tool.definitions"] || "") =~ "Looks"

    nested = %{"body" => %{"generationConfig" => %{"topP" => 0.5, "maxOutputTokens" => 5}}}
    context = Context.new("Hi") |> Context.Audit.put_request(nested, nil) |> answer("1")
    [_turn, chat] = context |> Trace.to_otlp() |> spans()
    assert %{"gen_ai.request.top_p" => 0.5, "gen_ai.request.max_tokens" => 5} = chat.attributes
  end

  describe "replay/1" do
    defp ask(context, opts \\ []) do
      {:ok, context} = Context.Audit.put_sent(context, :anthropic, opts)
      answer = %{type: "message", content: [%{type: "text", text: "Yes, sk-1"}]}
      {:ok, response} = Response.decode(:anthropic, answer)
      {:ok, context} = Context.add_response(context, response, requested_at: DateTime.utc_now())
      Context.add_user_message(context, "And sk-2?")
    end

    defp outcomes(context) do
      loaded = context |> Context.to_snapshot() |> Context.load!()
      for row <- Context.Audit.replay(loaded), do: row.outcome
    end

    test "a prompt or masks that are not kept make no difference, but nothing is known of the request" do
      context = Context.new("Hi, sk-0", system_prompt: "A") |> ask()

      assert context |> Context.put_system_prompt("B") |> ask() |> outcomes() == [
               :other_prompt,
               :same
             ]

      masked = context |> Context.View.put_masks([{"sk-[0-9]", "[key]"}]) |> ask()
      assert outcomes(masked) == [:same, :same]

      for other <- [[], [{"sk-[0-9]", "[other]"}]],
          do:
            assert(
              masked |> Context.View.put_masks(other) |> ask() |> outcomes() == [
                :same,
                :other_masks,
                :same
              ]
            )

      assert Context.Audit.replay(Context.new("Hi")) == []
    end

    test "marks for the cache and hidden iterations are as they were, and requests of before are not known" do
      context =
        Context.new("Hi")
        |> ask(cache: :auto)
        |> ask()
        |> Context.View.hide({:all_but_last, 1})
        |> ask(cache: :auto)

      assert outcomes(context) == [:same, :same, :same]

      {:ok, response} = Response.decode(:ollama, %{message: %{content: "Hello!"}, done: true})
      assert {:ok, context} = Context.new("Hi") |> Context.add_response(response)
      assert outcomes(context) == [:unnoted]
    end

    test "the first of many results that differs is named, of very many only their message" do
      for {count, place} <- [{20, {1, 2, "call_7"}}, {40, {1, 2, nil}}] do
        calls = for n <- 1..count, do: %{id: "call_#{n}", name: "look", arguments: %{}}
        {:ok, context} = Context.new("Hi") |> Context.Audit.put_sent(:anthropic)
        {:ok, response} = Response.from_message(%{tool_calls: calls})
        {:ok, context} = Context.add_response(context, response, requested_at: DateTime.utc_now())
        results = for %{id: id} <- calls, do: {id, {:ok, "of " <> id}}

        context =
          context
          |> Context.Audit.put_request(%{"provider" => "anthropic"}, [])
          |> Context.add_tool_results(results)
          |> ask()

        edited = context |> Context.to_snapshot() |> String.replace(~s("of call_7"), ~s("off"))

        assert [_first, %{outcome: :different, cause: :log, place: ^place}] =
                 edited |> Context.load!() |> Context.Audit.replay()
      end
    end
  end
end
