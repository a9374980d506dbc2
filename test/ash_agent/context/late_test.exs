defmodule AshAgent.Context.LateTest do
  use ExUnit.Case, async: true

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.{Calls, Error, View}

  @deadline ~U[2026-01-02 10:00:00.000000Z]
  @at ~U[2026-01-01 12:00:00.000000Z]

  defp waiting do
    wait = {:waiting, %{for: {:person, "ann"}, handle: "start 1", deadline: @deadline}}

    Context.new("Build it", id: "c", at: ~U[2026-01-01 10:00:00Z])
    |> Context.add_assistant_message(nil, [%{id: "a", name: :build, arguments: %{n: 1}}])
    |> Context.add_tool_results([{"a", wait}])
  end

  defp answered do
    {:ok, context} =
      waiting()
      |> Context.add_assistant_message("It runs.")
      |> Calls.arrive({:handle, "start 1"}, {:ok, %{temp: 72}}, from: :ci, at: @at)

    Calls.place_arrivals(context)
  end

  describe "the neutral form" do
    test "says what an open call and an arrival look like" do
      assert [
               %{
                 id: "a",
                 result:
                   {:waiting, %{for: {:person, "ann"}, handle: "start 1", deadline: @deadline}}
               }
             ] = Context.get_iteration(waiting(), 1).tool_calls

      assert Calls.tool_call_status(waiting(), "a") == :waiting
      context = answered()
      assert Calls.tool_call_status(context, "a") == :ok

      assert %{
               messages: [%{role: :user, content: [result], arrival: arrival}],
               tool_calls: [
                 %{id: "a", result: {:ok, %{temp: 72}}, arrived: %{at: @at, from: :ci}}
               ]
             } = Context.get_iteration(context, 3)

      assert result == %{
               type: :tool_result,
               tool_use_id: "a",
               content: ~s({"temp":72}),
               is_error: false
             }

      assert arrival == %{id: "a", iteration: 1, at: @at, from: :ci}
      assert Context.extract_tool_calls(context) == []
      assert Context.pending_tool_calls(context) == []
    end

    test "goes through to_map/1 and create/1" do
      for context <- [waiting(), answered()] do
        again = context |> Context.to_map() |> Context.create!()
        assert Context.to_map(again) == Context.to_map(context)
        assert Calls.late_calls(again) == Calls.late_calls(context)
        assert Context.request!(again, :anthropic) == Context.request!(context, :anthropic)
      end
    end

    test "keeps in maps what has no place yet, in its order, and what is answered elsewhere" do
      wait = fn handle -> {:waiting, %{handle: handle}} end

      two =
        Context.new("Build it")
        |> Context.add_assistant_message(nil, for(id <- ["a", "b"], do: %{id: id, name: :build}))
        |> Context.add_tool_results([{"a", wait.("1")}, {"b", wait.("2")}])
        |> Context.add_assistant_message("They run.")

      {:ok, one} = Calls.arrive(two, "b", {:ok, [%{type: :text, text: "green"}]}, at: @at)
      later = DateTime.add(@at, 1)
      {:ok, both} = Calls.arrive(one, "a", {:error, "red"}, from: :ci, at: later)

      for context <- [one, both, Context.fork(two), Context.fork(one)],
          text? <- [false, true] do
        map = Context.to_map(context)
        map = if text?, do: map |> Context.JSON.encode() |> Context.JSON.decode!(), else: map
        again = Context.create!(map)
        assert states(again) == states(context)

        [placed, placed_again] = for one <- [context, again], do: Calls.place_arrivals(one)

        assert Context.request!(placed_again, :anthropic) ==
                 Context.request!(placed, :anthropic)
      end

      fork = two |> Context.fork() |> Context.to_map() |> Context.create!()

      assert {:error, %Error{reason: {:late_tool_result, "a", :elsewhere}}} =
               Calls.arrive(fork, "a", {:ok, 1})

      refute is_map_key(Context.to_map(two), :late)

      other = fn [arrival] -> [put_in(arrival, ["call", "iteration"], 2)] end

      for change <- [other, fn [arrival] -> [arrival, arrival] end] do
        map = one |> Context.to_map() |> update_in([:late, "arrivals"], change)
        assert {:error, %Error{reason: {:invalid, [:late | _], _}}} = Context.create(map)
      end
    end

    defp states(context),
      do: for(late <- Calls.late_calls(context), do: {late.id, late.state, late[:result]})

    test "says where a call is listed again" do
      assert [%{arrived: %{iteration: 1}}] = Context.get_iteration(answered(), 3).tool_calls
      assert [call] = Context.get_iteration(answered(), 1).tool_calls
      refute is_map_key(call, :arrived)

      open =
        Context.new("Build it")
        |> Context.add_assistant_message(nil, for(id <- ["a", "b"], do: %{id: id, name: :build}))
        |> Context.add_tool_results([{"a", {:waiting, %{}}}])

      {:ok, open} = Calls.arrive(open, "a", {:ok, 1})
      assert [%{arrived: arrived}, %{result: nil}] = Context.get_iteration(open, 1).tool_calls
      refute is_map_key(arrived, :iteration)
    end

    test "refuses an arrival that no call waits for" do
      map = Context.to_map(answered())

      for change <- [&Map.put(&1, :iteration, 2), &Map.put(&1, :id, "b")] do
        broken =
          update_in(map.iterations, fn iterations ->
            List.update_at(iterations, 2, fn iteration ->
              update_in(iteration.messages, fn [message] ->
                [Map.update!(message, :arrival, change)]
              end)
            end)
          end)

        assert {:error, %Error{reason: {:invalid, _path, _expected}}} = Context.create(broken)
      end
    end
  end

  test "add_tool_results/2 takes a late result, and gives it a place" do
    context =
      waiting()
      |> Context.add_assistant_message("It runs.")
      |> Context.add_tool_results([{"a", {:ok, "green"}}])

    assert [%{state: :placed, placed: 3, result: {:ok, "green"}}] = Calls.late_calls(context)

    error = assert_raise Error, fn -> Context.add_tool_results(context, [{"a", {:ok, "red"}}]) end
    assert error.reason == {:late_tool_result, "a", :answered}
    assert Context.equal?(Context.add_tool_results(context, [{"a", {:ok, "green"}}]), context)
  end

  describe "update!/2 with other iterations" do
    test "keeps what has arrived, and gives a result no place whose place is gone" do
      {:ok, arrived} = waiting() |> Calls.arrive({:handle, "start 1"}, {:ok, 1}, from: :ci)
      placed = Context.add_user_message(arrived, "Well?")

      for {context, count, state} <- [
            {arrived, 2, :arrived},
            {placed, 3, :placed},
            {placed, 1, :arrived}
          ] do
        context = update(context, count)
        assert [%{state: ^state, from: :ci, result: {:ok, 1}}] = Calls.late_calls(context)
        assert %{"version" => 2} = Context.dump(context)
        assert context |> Context.dump() |> Context.load!() |> Context.equal?(context)
      end
    end

    test "tells of a result for a call that is gone" do
      context =
        Context.update!(waiting(), iterations: [%{messages: [%{role: :user, content: "Hi"}]}])

      assert Calls.late_calls(context) == []
      assert {:error, error} = Calls.arrive(context, {:handle, "start 1"}, {:ok, 1})
      assert error.reason == {:late_tool_result, "start 1", :rewound}
    end

    test "leaves a call in a branch to its origin" do
      branch = Context.fork(waiting())
      assert [%{state: :elsewhere}] = branch |> update(1) |> Calls.late_calls()
    end

    defp update(context, count) do
      iterations = Enum.take(Context.to_map(context).iterations, count)
      Context.update!(context, iterations: iterations)
    end
  end

  test "the arguments of a call that waits are those that a person wrote" do
    context =
      Context.new("Pay")
      |> Context.add_assistant_message(nil, [%{id: "a", name: :pay, arguments: %{n: 1}}])
      |> Calls.approve_tool_call("a", edited: %{n: 2})
      |> Context.add_tool_results([{"a", {:waiting, %{handle: "start 1"}}}])

    assert [%{arguments: %{n: 2}}] = Calls.late_calls(context)
  end

  test "a result for which a pending call waits says so in maps" do
    context =
      waiting()
      |> Context.add_assistant_message(nil, [%{id: "w", name: :wait_for, arguments: %{}}])

    {:ok, context} =
      Calls.arrive(context, {:handle, "start 1"}, {:ok, 1}, awaited_by: "w", at: @at)

    context = Context.add_tool_results(context, [{"w", {:ok, "all have come"}}])

    assert %{messages: [_wait, _result, %{arrival: %{awaited_by: "w"}}]} =
             Context.get_iteration(context, 2)

    assert context |> Context.to_map() |> Context.create!() |> Context.equal?(context)
    assert context |> Context.dump() |> Context.load!() |> Context.equal?(context)
  end

  test "an arrival is no turn, and opens an iteration where a user's message would" do
    context = answered()
    assert context.current_iteration == 3
    assert Context.turn_start(context) == 1
    assert Context.exceeded_max_iterations?(context, 3)
    refute Context.exceeded_max_iterations?(context, 4)
  end

  test "every refusal has words that say what to do" do
    context = waiting() |> Context.add_assistant_message("It runs.")
    {:ok, cancelled} = Calls.arrive(context, "a", {:cancelled, "no longer needed"})

    for {context, call, why} <- [
          {answered(), "a", :answered},
          {cancelled, "a", :cancelled},
          {Context.fork(context), {:handle, "start 1"}, :elsewhere},
          {context, "b", :unknown}
        ] do
      assert {:error, %Error{reason: {:late_tool_result, _, ^why}} = error} =
               Calls.arrive(context, call, {:ok, "other"})

      assert Exception.message(error) =~ "was not taken: "
    end

    again =
      Context.new("Begin")
      |> Context.add_assistant_message("Yes?")
      |> Context.add_user_message("Build")
      |> Context.add_assistant_message(nil, [%{id: "a", name: :build}])
      |> Context.add_tool_results([{"a", {:waiting, %{handle: "h"}}}])

    assert {:error, %Error{reason: {:late_tool_result, "h", :rewound}}} =
             again |> Context.rewind(to: 1) |> Calls.arrive({:handle, "h"}, {:ok, 1})
  end

  test "a result for a call that never waited is refused by where the call stands" do
    called =
      Context.new("Build it")
      |> Context.add_assistant_message(nil, for(id <- ["a", "b"], do: %{id: id, name: :build}))

    asked = Calls.ask_about_tool_call(called, "a", nil, question: true)

    for {context, why} <- [
          {called, :pending},
          {Calls.ask_about_tool_call(called, "a"), :pending},
          {asked, :pending},
          {Calls.approve_tool_call(called, "a"), :pending},
          {Calls.deny_tool_call(called, "a"), :denied},
          {Calls.answer_tool_call(asked, "a", "yes"), :answered},
          {Context.add_tool_results(called, [{"a", {:ok, 1}}]), :answered},
          {Context.interrupt(called, "stop", status: :cancelled), :cancelled}
        ] do
      assert {:error, %Error{reason: {:late_tool_result, "a", ^why}} = error} =
               Calls.arrive(context, "a", {:ok, 1})

      assert Exception.message(error) =~ "was not taken: "
    end
  end

  test "a question does not wait, and an approval stays with a call that does" do
    called =
      Context.new("Build it")
      |> Context.add_assistant_message(nil, for(id <- ["a", "b"], do: %{id: id, name: :build}))

    wait = [{"a", {:waiting, %{handle: "1"}}}]
    asked = Calls.ask_about_tool_call(called, "a", nil, question: true)
    error = assert_raise Error, fn -> Context.add_tool_results(asked, wait) end
    assert error.reason == {:is_a_question, "a"}

    approved = Calls.approve_tool_call(called, "a", by: "ann", edited: %{"n" => 2})
    waits = Context.add_tool_results(approved, wait)
    assert Calls.tool_call_decision(waits, "a") == Calls.tool_call_decision(approved, "a")

    error = assert_raise Error, fn -> Calls.approve_tool_call(waits, "a") end
    assert error.reason == {:illegal_status, "a", :waiting, :approved}

    # In its slot, a result tells of what a person changed, and the same one is taken again.
    for result <- [{:ok, "green"}, {:ok, [%{type: :text, text: "green"}]}] do
      {:ok, filled} = Calls.arrive(waits, "a", result)
      assert {:ok, again} = Calls.arrive(filled, "a", result)
      assert Context.equal?(again, filled)
      assert [_user, _call, results] = Context.to_messages(filled)
      assert inspect(results) =~ "A person changed the arguments"
      assert filled |> Context.dump() |> Context.load!() |> Context.equal?(filled)
    end
  end

  test "what masks hide in late results is cut from the texts after the system prompt" do
    context =
      Context.new("Build it", system_prompt: "Be brief.")
      |> Context.add_assistant_message(nil, for(id <- ["a", "b"], do: %{id: id, name: :build}))
      |> View.put_masks([{"code [a-z]+", "[x]"}])
      |> View.put_prompt_block(:memory, "Ann likes zebrafinch, Bob likes quaggatooth.")

    wait = &{&1, {:waiting, %{}}}
    both = Context.add_tool_results(context, [wait.("a"), wait.("b")])
    both = Context.add_assistant_message(both, "They run.")
    {:ok, both} = Calls.arrive(both, "a", {:ok, "the code zebrafinch"})
    {:ok, both} = Calls.arrive(both, "b", {:ok, "the code quaggatooth"})

    {:ok, filled} =
      context
      |> Context.add_tool_results([wait.("a")])
      |> Calls.arrive("a", {:ok, "the code zebrafinch"})

    filled = Context.add_tool_results(filled, [{"b", {:ok, "the code quaggatooth"}}])

    for context <- [
          Calls.place_arrivals(both),
          Context.add_user_message(both, "And?"),
          filled
        ] do
      prompt = hd(Context.to_messages(context)).content
      refute prompt =~ "zebrafinch"
      refute prompt =~ "quaggatooth"
    end
  end

  test "an import in which a late output came over a call that is open has each call once" do
    call = &%{"type" => "function_call", "call_id" => &1, "name" => "get", "arguments" => "{}"}
    open = &Map.put(call.(&1), "async", true)
    output = &%{"type" => "function_call_output", "call_id" => &1, "output" => "done"}

    items = [
      %{"role" => "user", "content" => "hi"},
      call.("a"),
      open.("b"),
      output.("a"),
      open.("c"),
      %{"role" => "assistant", "content" => "over"},
      call.("d"),
      output.("d"),
      Map.put(output.("b"), "name", "get")
    ]

    imported = Context.Import.from_request!(%{"input" => items}, :openai_responses)
    sent = Context.request!(imported, :openai_responses)["input"]
    assert Enum.sort(sent) == Enum.sort(items)
  end

  test "a trace has each call once, and its late result once" do
    context = Context.add_assistant_message(answered(), "It is green.")
    json = AshAgent.Trace.to_otlp(context, format: :json, messages: true)
    assert length(String.split(json, "execute_tool build")) == 3
    [input] = Regex.scan(~r/gen_ai\.input\.messages.{0,900}/, json) |> Enum.take(-1)
    assert hd(input) =~ "tool_call_response"
    refute hd(input) =~ ~S(\"tool_call\")
  end

  describe "stored" do
    test "a conversation in which a call waited is version 2, and so are its forks and what a rewind leaves" do
      fork = Context.fork(answered())
      rewound = Context.rewind(answered(), to: 1)

      for context <- [waiting(), answered(), fork, rewound] do
        assert %{"version" => 2} = dumped = Context.dump(context)
        assert Context.equal?(Context.load!(dumped), context)
        assert %{"version" => 2} = Context.dump(context, since: 1)
        assert {:ok, loaded} = context |> Context.to_snapshot() |> Context.load()
        assert Calls.late_calls(loaded) == Calls.late_calls(context)
      end

      assert %{"version" => 1} = Context.dump(Context.new("Hi"))
    end

    test "a chat with such a branch is version 2, and a branch leaves the call to its origin" do
      chat = ChatContext.new(input: "One")
      assert %{"version" => 1} = ChatContext.dump(chat)
      chat = ChatContext.update_context(chat, fn _ -> waiting() end)
      chat = ChatContext.branch(chat, "other")
      assert %{"version" => 2} = dumped = ChatContext.dump(chat)
      {:ok, loaded} = ChatContext.load(dumped)
      assert [%{state: :open}] = Calls.late_calls(loaded.branches["main"].context)
      assert [%{state: :elsewhere}] = Calls.late_calls(loaded.branches["other"].context)
    end

    test "a document with an arrival for no call, or a second one, is refused" do
      dumped = Context.dump(answered())
      place = ["iterations", Access.at(2), "messages", Access.at(0), "arrival", "iteration"]
      assert {:error, %Error{}} = dumped |> put_in(place, 2) |> Context.load()

      twice =
        update_in(dumped, ["iterations", Access.at(2), "messages"], fn [one] -> [one, one] end)

      assert {:error, %Error{}} = Context.load(twice)
    end
  end

  test "masks and clearing leave the placeholder" do
    context = answered()

    results =
      &for(
        %{content: [%{type: :tool_result, content: content}]} <- Context.to_messages(&1),
        do: content
      )

    [placeholder, ~s({"temp":72})] = results.(context)

    assert [^placeholder, "[gone]"] =
             context |> View.clear_tool_results(keep: 0, placeholder: "[gone]") |> results.()

    assert [^placeholder, ~s({"temp":##})] =
             context |> View.put_masks([{"[0-9]", "#"}, {"call", "x"}]) |> results.()
  end

  test "a result that was waited for, and a question, are shown in the terminal and on the page" do
    build = %{id: "call_zebra", name: "build", arguments: %{"what" => "quagga"}}
    ask = %{id: "call_gnu", name: "ask_user", arguments: %{"question" => "Which colour?"}}
    question = %{"question" => "Which colour?", "choices" => ["heliotrope", "secret"]}
    wait = %{for: "ann", handle: "2", question: question, deadline: @deadline}

    context =
      Context.new("Build it", id: "c")
      |> Context.add_assistant_message(nil, [build, ask])
      |> Context.add_tool_results([
        {"call_zebra", {:waiting, %{for: "ci", handle: "1"}}},
        {"call_gnu", {:waiting, wait}}
      ])
      |> Context.add_assistant_message(nil, [%{id: "call_emu", name: "wait_for"}])

    opts = [from: "robot-secret", at: @at, awaited_by: "call_emu"]
    {:ok, context} = Calls.arrive(context, {:handle, "1"}, {:ok, "an okapi"}, opts)

    context =
      context
      |> Context.add_tool_results([{"call_emu", {:ok, "all"}}])
      |> Context.add_assistant_message("Fine.")

    context = Context.View.put_masks(context, [{"secret", "[X]"}])

    for context <- [context, context |> Context.to_snapshot() |> Context.load!()] do
      {:ok, device} = StringIO.open("")
      Context.print(context, device: device, color: false, width: :infinity)
      {_, text} = StringIO.contents(device)

      at =
        @at |> DateTime.truncate(:second) |> DateTime.to_string() |> String.replace("Z", " UTC")

      assert text =~ "call_zebra: from robot-[X] at #{at}, call_emu waited for it"
      assert text =~ ~s(call_zebra: for ci)
      assert text =~ "heliotrope" and text =~ "for ann until "
      refute text =~ "secret"

      page = context |> AshAgent.Trace.to_html() |> IO.iodata_to_binary()
      assert page =~ "call_emu waited for it"
      assert page =~ "heliotrope"
      assert page =~ ~s("awaited_by":"call_emu")
      refute page =~ "robot-secret"
    end
  end

  test "what is hidden is found by the texts of open calls and of results" do
    call = &%{id: &1, name: "build", arguments: %{"what" => &2}}

    context =
      Context.new("Build it", id: "c")
      |> Context.add_assistant_message(nil, [
        call.("call_zebra", "quagga"),
        call.("call_gnu", "tapir")
      ])
      |> Context.add_tool_results([
        {"call_zebra", {:waiting, %{handle: "1"}}},
        {"call_gnu", {:waiting, %{handle: "2"}}}
      ])
      |> Context.add_assistant_message("They run.")

    {:ok, context} =
      Calls.arrive(context, {:handle, "1"}, {:ok, "an okapi in src/late.ex"}, from: "ci")

    context = context |> Calls.place_arrivals() |> Context.add_assistant_message("Fine.")
    context = context |> Context.add_user_message("More?") |> Context.add_assistant_message("No.")
    context = Context.Recall.put_recall(context, true)
    hidden = Context.View.hide(context, {:all_but_last, 1})

    for word <- ["quagga", "tapir", "okapi"] do
      assert [%{handle: handle} | _] = Context.Recall.search(hidden, word)
      assert {:ok, text} = Context.Recall.recall(hidden, handle)
      assert text =~ word
    end

    assert "src/late.ex" in for(%{text: text} <- Context.Recall.receipt(hidden).facts, do: text)
  end

  test "inspect shows no text" do
    refute inspect(answered()) =~ "72"
  end
end
