defmodule AshAgent.Context.AskedTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.OtlpReader

  alias AshAgent.{Context, Trace}
  alias AshAgent.Context.Error

  doctest AshAgent.Context.Asked

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
      |> Context.put_request(fields(), [@tool])
      |> answer("#{n}")
      |> Context.add_user_message("More")
    end)
    |> Context.put_request(fields(%{"temperature" => 1.5}), [])
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

    for context <- [context, base, Context.from_snapshot!(snapshot), added] do
      for n <- 1..3,
          do:
            assert(
              Context.get_request(context, n) == %{fields: fields(), tools: [@tool], sent: nil}
            )

      assert Context.get_request(context, 4) == %{
               fields: fields(%{"temperature" => 1.5}),
               tools: [],
               sent: nil
             }

      assert Context.get_request(context, 5) == %{fields: nil, tools: nil, sent: nil}
    end

    assert Context.equal?(base, context)
    again = rewound |> Context.put_request(fields(%{"seed" => 7}), nil) |> answer("3")
    assert %{fields: %{"body" => %{"seed" => 7}}, tools: [@tool]} = Context.get_request(again, 3)
    refute Context.equal?(Context.put_request(context, %{}, nil), context)
  end

  test "is known of requests alone" do
    context = Context.new("Hi") |> Context.put_request(fields(), [@tool])
    assert Context.get_request(context, 1) == %{fields: nil, tools: nil, sent: nil}

    assert %{tools: [@tool]} =
             context |> Context.add_failure(%{kind: :timeout}) |> Context.get_request(1)

    context = Context.add_assistant_message(context, "Yes")
    assert Context.get_request(context, 1) == %{fields: nil, tools: nil, sent: nil}

    for wrong <- [[1], [%{}, 1]], [fields | rest] = wrong do
      assert_raise ArgumentError, fn ->
        Context.put_request(context, fields, List.first(rest))
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
      |> Context.put_request(fields, tools, keep: :hashes)
      |> answer("Yes")
      |> Context.add_user_message("More")
    end

    context = Context.new("Hi") |> noted.(fields(), [@tool]) |> noted.(fields(), [@tool])
    context = noted.(context, fields(%{"temperature" => 1}), [@tool])
    text = Context.to_snapshot(context)
    for secret <- ["Looks", "END", "object"], do: refute(text =~ secret)

    assert %{fields: %{"server" => "llm.example", "body" => first}, tools: [tool]} =
             Context.get_request(context, 1)

    assert %{"name" => "look", "digest" => <<_::binary-size(16)>>} = tool
    assert %{fields: %{"body" => ^first}} = Context.get_request(context, 2)
    assert %{fields: %{"body" => other}, tools: [^tool]} = Context.get_request(context, 3)
    assert for({key, value} <- other, first[key] != value, do: key) == ["temperature"]
    assert_raise ArgumentError, fn -> Context.put_request(context, nil, nil, keep: :some) end
  end

  test "the conversation can be had as it was asked, with the view of then" do
    sent = fn context -> elem(Context.put_sent(context, :anthropic), 1) end
    context = Context.new("Hi", system_prompt: "S", at: @at) |> sent.() |> answer("1")
    context = Context.add_user_message(context, "More")
    hidden = context |> Context.keep_last_iterations(1) |> Context.put_masks([{"More", "Less"}])
    context = hidden |> sent.() |> answer("2") |> Context.expand(1..1)

    {:ok, first} = Context.fetch_asked(context, 1)
    {:ok, second} = Context.fetch_asked(context, 2)

    assert Context.to_messages(first) ==
             Context.to_messages(Context.new("Hi", system_prompt: "S"))

    assert Context.to_messages(second) == Context.to_messages(hidden)

    for {number, asked} <- [{1, first}, {2, second}] do
      %{sent: digest} = Context.get_request(context, number)
      assert {:ok, again} = Context.put_sent(asked, :anthropic)
      assert [%{"sent" => ^digest} | _] = Enum.reverse(Context.dump(again)["iterations"])
    end

    assert Context.fetch_asked(context, 3) == :error
    assert Context.fetch_asked(Context.new("Hi"), 1) == :error
    # Digests of masks are stored, and not they: today's take their place.
    stored = context |> Context.put_masks([]) |> Context.to_snapshot() |> Context.from_snapshot!()
    {:ok, second} = Context.fetch_asked(stored, 2)
    assert List.last(Context.to_messages(second)).content == "More"
  end

  test "gives spans their parameters, their server and their tools" do
    spans = asked() |> Trace.to_otlp(messages: true) |> spans()

    [first, _, _, last] =
      for %{parent: parent} = span <- spans, parent != nil, do: span.attributes

    assert %{
             "gen_ai.request.model" => "m1",
             "gen_ai.request.temperature" => 0.0,
             "gen_ai.request.max_tokens" => 99,
             "gen_ai.request.stop_sequences" => ["END"],
             "server.address" => "llm.example",
             "server.port" => 8080
           } = first

    assert first["gen_ai.tool.definitions"] =~ "Looks"
    assert last["gen_ai.request.temperature"] == 1.5
    refute (last["gen_ai.tool.definitions"] || "") =~ "Looks"

    nested = %{"body" => %{"generationConfig" => %{"topP" => 0.5, "maxOutputTokens" => 5}}}
    context = Context.new("Hi") |> Context.put_request(nested, nil) |> answer("1")
    [_turn, chat] = context |> Trace.to_otlp() |> spans()
    assert %{"gen_ai.request.top_p" => 0.5, "gen_ai.request.max_tokens" => 5} = chat.attributes
  end
end
