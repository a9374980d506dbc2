defmodule AshAgent.Web.TranscriptTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Response}
  alias AshAgent.Context.Calls
  alias AshAgent.Web.Transcript

  doctest Transcript

  @call %{id: "a", name: "delete", arguments: %{"path" => "/srv"}}

  defp called(result \\ nil) do
    context =
      Context.new("Clean up", system_prompt: "Secret")
      |> Context.add_assistant_message("I will.", [@call])

    if result, do: Context.add_tool_results(context, [%{id: "a", result: result}]), else: context
  end

  test "leaves out the system prompt and puts results with their calls" do
    context = called({:ok, %{"files" => 3}}) |> Context.add_assistant_message("Done.")
    assert [user, asked, answer] = Transcript.items(context)
    assert {user.role, user.text, user.calls} == {:user, "Clean up", []}
    assert {asked.role, asked.text, answer.text} == {:assistant, "I will.", "Done."}

    assert [
             %{
               name: "delete",
               arguments: ~s({"path":"/srv"}),
               status: :ok,
               asked?: false,
               result: ~s({"files":3})
             }
           ] = asked.calls

    assert Enum.uniq_by([user, asked, answer], & &1.id) == [user, asked, answer]
  end

  test "says what became of a call" do
    for {context, status, result, by} <- [
          {called(), :pending, nil, nil},
          {called() |> Calls.ask_about_tool_call("a"), :asked, nil, nil},
          {called() |> Calls.approve_tool_call("a", by: "ann"), :approved, nil, "ann"},
          {called() |> Calls.deny_tool_call("a", "no", by: "ann"), :denied, "denied: no", "ann"},
          {called({:error, "disk full"}), :error, "disk full", nil},
          {called({:unknown, "killed"}), :unknown, "killed", nil}
        ] do
      [_user, %{calls: [call]} | _rest] = Transcript.items(context)
      assert {call.status, call.result, call.by} == {status, result, by}
    end
  end

  test "a call whose result is late waits, and has the result once it has arrived" do
    waits = called({:waiting, %{for: "ci"}}) |> Context.add_assistant_message("It runs.")
    assert [_user, %{calls: [call]}, _answer] = Transcript.items(waits)
    assert {call.status, call.result, call.asked?} == {:waiting, nil, false}

    {:ok, arrived} = Calls.arrive(waits, "a", {:ok, "green"})
    placed = Calls.place_arrivals(arrived)
    # A model may use an id again where a late result stands.
    again = Context.add_assistant_message(placed, "Again.", [@call])

    for {context, count} <- [{arrived, 3}, {placed, 3}, {again, 4}] do
      items = Transcript.items(context)
      assert length(items) == count
      assert [_user, %{calls: [%{status: :ok, result: "green"}]} | _rest] = items
    end

    assert %{calls: [%{status: :pending, result: nil}]} = List.last(Transcript.items(again))
    {:ok, failed} = Calls.arrive(waits, "a", {:error, "red"})
    assert [_user, %{calls: [call]}, _answer] = Transcript.items(failed)
    assert {call.status, call.result} == {:error, "red"}
  end

  test "shows the arguments that a call would run with, and none that are invisible" do
    context = called() |> Calls.ask_about_tool_call("a", %{"path" => "x\u202Ey\u200B\u{E0041}é"})
    [_user, %{calls: [call]}] = Transcript.items(context)
    assert call.arguments == ~S({"path":"x\u202Ey\u200B\uDB40\uDC41é"})
    # What was shown is what is approved.
    {:ok, shown} = Context.JSON.decode(call.arguments)

    assert context
           |> Calls.approve_tool_call("a", arguments: shown)
           |> Calls.tool_call_status("a") == :approved
  end

  test "a call whose arguments were changed has those that it runs with" do
    call = %{id: "a", name: "delete", arguments: %{"path" => "/"}}
    context = "Go" |> Context.new() |> Context.add_assistant_message(nil, [call])
    context = Calls.approve_tool_call(context, "a", by: "ann", edited: %{"path" => "/tmp"})

    results = [%{id: "a", result: {:ok, "gone"}}]

    for context <- [context, Context.add_tool_results(context, results)] do
      assert [%{arguments: ~s({"path":"/tmp"}), asked?: false}] =
               context |> Transcript.items() |> List.last() |> Map.fetch!(:calls)
    end
  end

  test "says why an answer is not whole" do
    for {reason, words} <- [
          stop: nil,
          length: "longest",
          content_filter: "filter",
          refusal: "declined"
        ] do
      {:ok, response} = Response.from_message(%{content: "Well", finish_reason: reason})
      {:ok, context} = "Hi" |> Context.new() |> Context.add_response(response)
      note = List.last(Transcript.items(context)).note
      assert if(words, do: note =~ words, else: note == nil)
    end

    {:ok, response, _events} =
      Response.new(:openai_chat)
      |> Response.feed(~s(data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n))

    {:ok, context} =
      "Hi" |> Context.new() |> Context.add_response(Response.interrupt(response, "gone"))

    assert List.last(Transcript.items(context)).note =~ "broke off"
  end

  test "shows pictures that the conversation has, and loads nothing from elsewhere" do
    parts = [
      %{type: :text, text: "Look"},
      %{type: :image, media_type: "image/png", data: Base.encode64("x")},
      %{type: :image, url: "https://a.example/x.png"},
      %{type: :file, media_type: "application/pdf", data: Base.encode64("x"), filename: "a.pdf"}
    ]

    assert [%{text: "Look", files: files}] = parts |> Context.new() |> Transcript.items()

    assert [%{url: "data:image/png;base64," <> _}, %{url: nil}, %{url: nil, name: "a.pdf"}] =
             files
  end

  test "returns no more than the last iterations" do
    context =
      for n <- 1..30,
          reduce: Context.new("0"),
          do:
            (context ->
               context
               |> Context.add_assistant_message("#{n}")
               |> Context.add_user_message("#{n}"))

    assert length(Transcript.items(context, 2)) < 5
    assert List.last(Transcript.items(context, 2)).text == "30"
  end
end
