defmodule AshAgent.Runtime.TimesTest do
  use ExUnit.Case, async: true

  # A run keeps when the model was asked and when it answered, when tools started and ended, and the view of each request.

  alias AshAgent.{ChatContext, Context, LLM, Runtime, Store}

  @at ~U[2026-01-01 10:00:00.000000Z]

  defp at(seconds), do: DateTime.add(@at, seconds)

  defp call(n), do: %{tool_calls: [%{id: "call_#{n}", name: "look"}]}

  defp run(context, answers, opts \\ []) do
    tools = %{"look" => fn _ -> {:ok, "seen"} end}
    Runtime.run(context, [llm: LLM.Scripted.new(answers), tools: tools] ++ opts)
  end

  defp response(content \\ "Hello!"),
    do: elem(AshAgent.Response.from_message(%{content: content}), 1)

  defp answered(context, second),
    do: Context.add_response!(context, response(), requested_at: at(second), at: at(second + 1))

  # The stored views of requests, by their iterations.
  defp noted(context) do
    for %{"view" => view} = iteration <- Context.dump(context)["iterations"],
        into: %{},
        do: {iteration["number"], view}
  end

  defp copies(context) do
    [
      Context.load!(Context.dump(context)),
      Context.load!(Context.to_snapshot(context)),
      Context.load!(Context.fork(context) |> Context.dump(), approvals: :drop)
    ]
  end

  describe "a run" do
    test "keeps the times of its requests and tools, in order" do
      before = DateTime.utc_now()
      {:ok, result} = run(Context.new("Hi"), [call(1), "Done."])
      context = result.context

      {:ok, %{response: first}} = Context.fetch_message(context, {1, 1})
      tool = Context.Calls.tool_call_times(context, "call_1")
      {:ok, %{response: last}} = Context.fetch_message(context, {2, 0})

      asked = &[&1.requested_at, &1.received_at]
      times = asked.(first) ++ [tool.started_at, tool.ended_at] ++ asked.(last)
      times = [before] ++ times ++ [DateTime.utc_now()]
      assert times == Enum.sort(times, DateTime)
      assert Context.Calls.tool_call_times(context, "call_2") == nil

      for copy <- copies(context) do
        assert Context.fetch_message(copy, {2, 0}) == Context.fetch_message(context, {2, 0})
        assert Context.Calls.tool_call_times(copy, "call_1") == tool
      end
    end

    test "keeps them in a store, and of an answer that broke off" do
      {:ok, store} = Store.SQLite.open(":memory:")
      {:ok, kept} = Store.create(store, Context.new("Hi", id: "c"), owner: "me")
      cut = {:cut, "One two three four five six seven eight"}
      {:error, error} = run(kept.value, [call(1), cut], store: store, kept: kept)

      {:ok, %{value: stored}} = Store.fetch(store, "c")
      assert Context.equal?(stored, error.context)
      assert %{started_at: _, ended_at: _} = Context.Calls.tool_call_times(stored, "call_1")
      {:ok, %{state: :interrupted, response: response}} = Context.fetch_message(stored, {2, 0})
      assert DateTime.compare(response.requested_at, response.received_at) in [:lt, :eq]
      assert noted(stored) == %{1 => nil}
    end

    test "keeps no times of calls that did not run" do
      {:ok, result} =
        run(Context.new("Hi"), [call(1), "Done."], approval: fn _, _ -> {:deny, "no"} end)

      assert Context.Calls.tool_call_times(result.context, "call_1") == nil
    end
  end

  describe "the view of a request" do
    test "is kept where it changes, without masks" do
      context =
        Context.new("Hi", system_prompt: "Be brief.")
        |> answered(1)
        |> Context.add_user_message("More")
        |> answered(2)
        |> Context.add_user_message("And more")
        |> Context.View.hide({:all_but_last, 1})
        |> Context.View.put_masks([{"secret", "***"}])
        |> answered(3)
        |> Context.add_user_message("Again")
        |> Context.View.put_masks([{"other", "***"}])
        |> answered(4)
        |> Context.View.put_prompt_block("now", "It is noon.")
        |> Context.add_user_message("The last")
        |> answered(5)

      hidden = %{"covers" => [%{"first" => 1, "last" => 2}]}
      blocks = [%{"name" => "now", "text" => "It is noon."}]

      assert noted(context) == %{1 => nil, 3 => hidden, 5 => Map.put(hidden, "blocks", blocks)}
      for copy <- copies(context), do: assert(noted(copy) == noted(context))
      assert Context.equal?(Context.load!(Context.dump(context)), context)

      delta = Context.dump(context, since: 4)
      base = Context.rewind(context, to: 3)
      assert Context.equal?(Context.load!(base, delta), context)
      assert noted(base) == %{1 => nil, 3 => hidden}
    end

    test "is part of what contexts are compared by, and of what branches store" do
      chat = ChatContext.new(input: "Hi") |> ChatContext.branch("other")
      on = fn chat, name, change -> ChatContext.update_context(chat, change, branch: name) end
      chat = on.(chat, "main", &answered(&1, 1))

      chat =
        on.(chat, "other", fn context ->
          context |> Context.View.put_prompt_block("b", "B") |> answered(1)
        end)

      chat = on.(chat, "other", &Context.View.put_prompt_block(&1, "b", nil, at: at(2)))
      chat = on.(chat, "main", &Context.View.put_prompt_block(&1, "b", nil, at: at(2)))

      [main, other] = for branch <- ChatContext.branches(chat), do: branch.context
      assert Context.to_messages(main) == Context.to_messages(other)
      refute Context.equal?(main, other)

      loaded = chat |> ChatContext.dump() |> ChatContext.load!()
      assert ChatContext.equal?(loaded, chat)
    end

    test "is written with its iteration and no other, however long the conversation is" do
      {:ok, store} = Store.SQLite.open(":memory:")
      {:ok, kept} = Store.create(store, Context.new("Hi", id: "c"), owner: "me")

      {kept, context} =
        Enum.reduce(1..20, {kept, kept.value}, fn n, {kept, context} ->
          context = context |> Context.View.put_prompt_block("turn", "#{n}") |> answered(n)
          {:ok, kept} = Store.append(store, kept, context)
          {kept, Context.add_user_message(context, "More #{n}")}
        end)

      {:ok, _} = Store.append(store, kept, context)
      {:ok, %{value: stored}} = Store.fetch(store, "c")
      assert Context.equal?(stored, context)
      assert map_size(noted(stored)) == 20

      back = Context.rewind(stored, to: 10)
      assert Map.keys(noted(back)) == Enum.to_list(1..10)
    end
  end

  describe "stored times and views from elsewhere" do
    test "are refused with their path if they are wrong" do
      {:ok, result} =
        run(Context.new("Hi") |> Context.View.put_prompt_block("b", "B"), [call(1), "Done."])

      dump = Context.dump(result.context)
      first = ["iterations", Access.at(0)]
      message = first ++ ["messages", Access.at(1)]
      result = message ++ ["tool_calls", Access.at(0), "result"]

      answer = ["messages", 1]
      of_call = answer ++ ["tool_calls", 0, "result"]

      for {path, wrong, place} <- [
            {first ++ ["view"], 1, ["view"]},
            {first ++ ["view", "covers"], [%{"first" => 3, "last" => 2}],
             ["view", "covers", 0, "last"]},
            {first ++ ["view", "covers"], [%{"first" => 0, "last" => 2}],
             ["view", "covers", 0, "first"]},
            {first ++ ["view", "blocks"], [%{}], ["view", "blocks", 0, "name"]},
            {message ++ ["response", "requested_at"], "noon", answer ++ ["response"]},
            {message ++ ["response", "received_at"], 12, answer ++ ["response"]},
            {result ++ ["started_at"], "noon", of_call},
            {result ++ ["ended_at"], nil, of_call ++ ["ended_at"]}
          ] do
        assert {:error, %Context.Error{reason: {:invalid, path, _}}} =
                 Context.load(put_in(dump, path, wrong))

        assert List.starts_with?(path, ["iterations", 0 | place])
      end

      # Covers beyond the conversation harm nobody, and patterns are not compiled.
      odd = %{
        "covers" => [%{"first" => 5, "last" => 9}],
        "masks" => [%{"pattern" => "(", "replacement" => ""}]
      }

      assert {:ok, context} = Context.load(put_in(dump, first ++ ["view"], odd))
      assert noted(context)[1] == Map.delete(odd, "masks")
      assert AshAgent.Trace.to_html(context) =~ "<title>"
    end

    test "were not there before, and need not be there" do
      stored = File.read!("../../test/fixtures/snapshot_v1.json")
      dump = stored |> Context.load!() |> Context.dump()
      refute Enum.any?(dump["iterations"], &is_map_key(&1, "view"))
    end
  end

  test "results with times that are wrong are refused" do
    context = Context.new("Hi") |> Context.add_assistant_message("", [%{id: "a", name: "t"}])

    for {times, key} <- [
          {%{started_at: @at}, :ended_at},
          {%{ended_at: @at}, :started_at},
          {%{started_at: 0x7FFFFFFFFFFFFFFF, ended_at: @at}, :started_at},
          {%{started_at: @at, ended_at: "noon"}, :ended_at}
        ] do
      result = Map.merge(%{id: "a", result: {:ok, 1}}, times)
      error = assert_raise Context.Error, fn -> Context.add_tool_results(context, [result]) end
      assert error.reason == {:invalid_tool_result, 0, key}
    end
  end
end
