defmodule AshAgent.LLM.ScriptedTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [drain: 1]

  alias AshAgent.{Context, LLM, Response}
  alias AshAgent.LLM.{Error, Scripted}

  @answer %{
    content: [
      %{
        type: :thinking,
        text: "Hm, let me see.",
        provider_metadata: %{provider: :anthropic, signature: "sig"}
      },
      %{type: :text, text: "Grüß  Gott,\n all!"}
    ],
    tool_calls: [
      %{id: "c1", name: :add, arguments: %{a: 1, b: "two words and more"}},
      %{name: "now"}
    ],
    usage: %{input_tokens: 10, output_tokens: 3, cached_tokens: 4},
    finish_reason: "tool_calls"
  }

  defp collect(llm) do
    test = self()
    result = LLM.stream(llm, Context.new("Hi"), fn event -> send(test, {:event, event}) end)
    {result, events()}
  end

  defp events, do: drain(do: ({:event, event} -> event))

  defp texts(events, kind), do: for({^kind, _, text} <- events, do: text)

  test "an answer ends streamed as it ends whole" do
    for reason <- [:stop, :length, :content_filter, :refusal, :pause, :error] do
      answer = %{content: "Hm.", finish_reason: reason}
      assert {:ok, whole} = LLM.chat(Scripted.new([answer]), Context.new("Hi"))
      assert {{:ok, streamed}, _events} = collect(Scripted.new([answer]))
      assert {Response.finish_reason(whole), Response.finish_reason(streamed)} == {reason, reason}
    end
  end

  test "streams an answer piece by piece" do
    assert {{:ok, response}, events} = collect(Scripted.new([@answer]))
    assert texts(events, :thinking) == ["Hm, ", "let ", "me ", "see."]
    assert texts(events, :text) |> Enum.join() == "Grüß  Gott,\n all!"
    assert length(texts(events, :text)) > 2
    assert length(texts(events, :tool_call_arguments)) > 2

    assert for({:tool_call, call} <- events, do: call) == [
             %{id: "c1", name: "add", arguments: %{"a" => 1, "b" => "two words and more"}},
             %{name: "now", arguments: %{}}
           ]

    assert %{input_tokens: 10, output_tokens: 3, cached_tokens: 4} = Response.usage(response)
    assert Response.finish_reason(response) == :tool_calls

    assert [
             %{type: :thinking, provider_metadata: %{signature: "sig"}},
             %{type: :text, text: "Grüß  Gott,\n all!"}
           ] = Response.message(response).content

    assert {:ok, context} = Context.add_response(Context.new("Hi"), response)
    assert [%{name: "add"}, %{name: "now"}] = Context.pending_tool_calls(context)
  end

  test "streams as slowly as it is told" do
    llm = Scripted.new(["one two three four"], delay: 20)
    Process.send_after(self(), :early, 5)
    assert {{:ok, _}, events} = collect(llm)
    # Four pieces, each after its own delay.
    assert_received :early
    assert texts(events, :text) == ["one ", "two ", "three ", "four"]
    assert_raise ArgumentError, fn -> Scripted.new([], delay: -1) end
  end

  test "cuts a stream in the middle" do
    llm = Scripted.new([{:cut, "one two three four five six"}, {:cut, %{content: "x"}}])

    assert {{:error, %Error{reason: {:connection, :closed}, response: response}}, events} =
             collect(llm)

    assert texts(events, :text) == ["one ", "two ", "three "]
    assert %{content: "one two three ", state: :interrupted} = Response.message(response)

    assert LLM.chat(llm, Context.new("Hi")) ==
             {:error, %Error{reason: {:connection, :closed}, kind: :closed, retryable?: true}}
  end

  test "streams what functions return, and returns errors as they are" do
    llm =
      Scripted.new([
        fn context -> "#{Context.count_messages(context)} message" end,
        {:error, :down}
      ])

    assert {{:ok, _}, [{:text, 0, "1 "}, {:text, 0, "message"}, {:finish, :stop}]} = collect(llm)
    assert {{:error, :down}, []} = collect(llm)
    assert {{:error, :script_exhausted}, []} = collect(llm)
    assert length(Scripted.requests(llm)) == 3
    assert Enum.all?(Scripted.requests(llm), &(&1.opts == []))
  end

  test "stops when it is told to" do
    llm = Scripted.new(["one two three"])
    halt = fn event -> if match?({:text, _, "two "}, event), do: :halt end
    assert {:ok, %{state: :interrupted} = response} = LLM.stream(llm, Context.new("Hi"), halt)
    assert Response.message(response).content == "one two "
  end

  test "says what it cannot stream" do
    llm = Scripted.new([%{content: [%{type: :image, url: "https://h/x"}]}])

    assert_raise ArgumentError, ~r/cannot stream a part of the type :image/, fn ->
      collect(llm)
    end
  end
end
