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
          do: assert(Context.get_request(context, n) == %{fields: fields(), tools: [@tool]})

      assert Context.get_request(context, 4) == %{
               fields: fields(%{"temperature" => 1.5}),
               tools: []
             }

      assert Context.get_request(context, 5) == %{fields: nil, tools: nil}
    end

    assert Context.equal?(base, context)
    again = rewound |> Context.put_request(fields(%{"seed" => 7}), nil) |> answer("3")
    assert %{fields: %{"body" => %{"seed" => 7}}, tools: [@tool]} = Context.get_request(again, 3)
    refute Context.equal?(Context.put_request(context, %{}, nil), context)
  end

  test "is known of requests alone" do
    context = Context.new("Hi") |> Context.put_request(fields(), [@tool])
    assert Context.get_request(context, 1) == %{fields: nil, tools: nil}

    assert %{tools: [@tool]} =
             context |> Context.add_failure(%{kind: :timeout}) |> Context.get_request(1)

    context = Context.add_assistant_message(context, "Yes")
    assert Context.get_request(context, 1) == %{fields: nil, tools: nil}

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
