defmodule AshAgent.Context.HandleTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.{ChatContext, Context, Response}
  alias AshAgent.Context.{Error, Handle}
  alias AshAgent.TestSupport.OtherVM

  @there :"there@127.0.0.1"

  # What another node made, as it comes in a message.
  setup_all do
    {:ok, context} = OtherVM.run(Context, :new, ["Hello!"], :there)
    {:ok, chat} = OtherVM.run(ChatContext, :new, [[input: "Hello!"]], :there)
    assert node(context.ref) == @there
    %{context: context, chat: chat}
  end

  # Every function that takes a context first, with arguments that are right.
  @functions [
    account: [],
    add_assistant_message: ["Hi!"],
    add_response: [:response],
    add_response!: [:response],
    add_token_usage: [%{input_tokens: 1}],
    add_failure: [%{kind: :closed}],
    failures: [],
    add_tool_results: [[{"a", {:ok, 1}}]],
    add_user_message: ["Hi!"],
    ask_about_tool_call: ["a", %{}],
    asked_tool_calls: [],
    approve_tool_call: ["a"],
    budget_utilization: [10],
    clear_tool_results: [[keep: 1]],
    clear_when_due: [[keep: 1]],
    shorten: [:window, [window: 1]],
    shortenings: [],
    compact: [:drop],
    count_iterations: [],
    count_messages: [],
    count_tokens: [],
    deny_tool_call: ["a"],
    diff: [:itself],
    dump: [],
    encode_request: [:anthropic],
    encode_request!: [:anthropic],
    enhance: [[]],
    equal?: [:itself],
    estimate_token_count: [],
    exceeded_max_iterations?: [1],
    exceeds_token_budget?: [10],
    expand: [:all],
    extract_tool_calls: [],
    fetch: [:current_iteration],
    fetch_cost: [[]],
    fetch_message: [{1, 0}],
    fit: [100],
    fetch_asked: [1],
    forecast: [:anthropic],
    get_response_id: [],
    fork: [],
    get_request: [1],
    put_request: [%{}, nil],
    put_sent: [:anthropic],
    replay: [],
    get_all_messages: [],
    get_cumulative_tokens: [],
    get_iteration: [1],
    get_iteration_messages: [1],
    hide_iterations: [1],
    keep_iteration_range: [1, 1],
    get_iteration_tokens: [1],
    interrupt: [],
    iterations: [],
    keep_last_iterations: [1],
    load: [%{}],
    load!: [%{}],
    mark_as_summarized: [1..1, "S"],
    metadata: [],
    pending_tool_calls: [],
    print: [],
    put_iteration_metadata: [1, :a, 1],
    put_masks: [[]],
    pin: [{:iteration, 1}],
    unpin: [{:iteration, 1}],
    pins: [],
    receipt: [],
    diff_views: [1],
    verdict: [1],
    put_recall: [true],
    recall: ["1.1-a"],
    recall?: [],
    search: ["words"],
    put_max_result_bytes: [100],
    put_metadata: [:a, 1],
    put_prompt_block: ["a", "A"],
    put_system_prompt: ["S"],
    hide_old_iterations: [60],
    request: [:anthropic],
    request!: [:anthropic],
    request_report: [:anthropic],
    rewind: [[to: 1]],
    summary: [1],
    system_prompt: [],
    to_jido: [],
    to_langchain: [],
    to_map: [],
    to_messages: [],
    to_req_llm: [],
    to_prompt: [],
    to_snapshot: [],
    token_breakdown: [],
    tokens_remaining: [10],
    tool_call_approved?: ["a", %{}],
    tool_call_decision: ["a"],
    tool_call_times: ["a"],
    tool_call_status: ["a"],
    turn_start: [],
    undecided_tool_calls: [],
    update: [%{}],
    update!: [%{}],
    validate_for_request: [],
    view: []
  ]

  # These make contexts, or refuse any context.
  @others [
            :create,
            :create!,
            :checked_options,
            :from_jido,
            :from_langchain,
            :from_req_llm,
            :from_messages,
            :from_messages!,
            :from_request,
            :from_request!
          ] ++
            [:from_snapshot, :from_snapshot!, :new, :get_and_update, :pop, :providers, :restore]

  @chat_functions [
    active: [],
    branch: ["b"],
    branches: [],
    complete_child: [:itself, "Done"],
    delete_branch: ["main"],
    dump: [],
    equal?: [:itself],
    fetch_branch: ["main"],
    put_config: [[max_turns: 1]],
    put_system_prompt: ["S"],
    put_user_prompt: ["U"],
    rename_branch: ["main", "m"],
    spawn_child: [],
    switch: ["main"],
    to_snapshot: [],
    update_context: [:identity]
  ]
  @other_chat_functions [:from_snapshot, :from_snapshot!, :load, :load!, :new]

  defp names(module) do
    for {name, _arity} <- module.__info__(:functions),
        name != :__struct__,
        uniq: true,
        do: name
  end

  defp filled(arguments, itself) do
    Enum.map(arguments, fn
      :itself -> itself
      :identity -> & &1
      :response -> Response.new(:anthropic)
      argument -> argument
    end)
  end

  defp assert_names_node(fun) do
    assert %ArgumentError{} = error = assert_caller_bug(fun)
    assert Exception.message(error) =~ "the context was made on the node :\"there@127.0.0.1\""
    assert Exception.message(error) =~ "dump/1"
  end

  describe "a context of another node" do
    test "is refused by every function, with the node's name", %{context: context} do
      assert Enum.sort(names(Context)) == Enum.sort(Keyword.keys(@functions) ++ @others)

      for {name, arguments} <- @functions do
        assert_names_node(fn -> apply(Context, name, [context | filled(arguments, context)]) end)
      end
    end

    test "is refused where it is to be shown", %{context: context} do
      for show <- [
            &AshAgent.Trace.to_html/1,
            &AshAgent.Trace.to_otlp/1,
            &AshAgent.Trace.to_otlp(Context.new("x"), children: [&1]),
            &AshAgent.Trace.to_html(Context.new("x"), children: [&1])
          ],
          do: assert_names_node(fn -> show.(context) end)

      refute inspect(context, custom_options: [messages: true]) =~ "\n  "
    end

    test "is refused as the other one of two", %{context: context} do
      own = Context.new("Hello!")

      for fun <- [
            fn -> Context.equal?(own, context) end,
            fn -> Context.diff(own, context) end,
            fn -> Context.dump(own, beside: context) end,
            fn -> ChatContext.new(context: context) end,
            fn -> ChatContext.update_context(ChatContext.new(), fn _ -> context end) end
          ],
          do: assert_names_node(fun)
    end

    test "is refused where its iterations are counted or listed", %{context: context} do
      for fun <- [&Enum.count/1, &Enum.to_list/1, &Enum.at(&1, 0), & &1[:id], & &1[:iterations]],
          do: assert_names_node(fn -> fun.(context) end)
    end

    test "is shown with the node's name", %{context: context, chat: chat} do
      assert inspect(context) == "#AshAgent.Context<iteration 1, on the node there@127.0.0.1>"
      assert inspect(chat) =~ "on the node there@127.0.0.1"
    end

    test "is told from others by check/1", %{context: context} do
      assert {:error, %Error{reason: {:foreign_handle, @there}}} = Handle.check(context)
      assert Handle.check(Context.new("Hello!")) == :ok
      assert {:error, %Error{reason: {:invalid, [], _}}} = Handle.check(%{context | ref: nil})
    end
  end

  test "a chat of another node is refused by every function, with the node's name", %{chat: chat} do
    assert Enum.sort(names(ChatContext)) ==
             Enum.sort(Keyword.keys(@chat_functions) ++ @other_chat_functions)

    for {name, arguments} <- @chat_functions do
      assert_names_node(fn -> apply(ChatContext, name, [chat | filled(arguments, chat)]) end)
    end
  end

  test "a handle that outlived its VM is refused as well" do
    context = %{Context.new("Hello!") | ref: make_ref()}
    error = assert_caller_bug(fn -> Context.view(context) end)
    assert Exception.message(error) =~ "an earlier run of the node"
    assert {:error, %Error{reason: {:foreign_handle, node}}} = Handle.check(context)
    assert node == node()
    assert inspect(context) == "#AshAgent.Context<iteration 1, without a handle of this VM>"
  end

  test "other wrong arguments beside a good handle are no matter of the node" do
    %{ref: ref} = Context.new("Hello!")

    assert_raise ArgumentError, fn ->
      AshAgent.Context.Native.context_to_messages(ref, make_ref())
    end
  end

  describe "a current_iteration that was changed by hand" do
    test "is refused by diff/2 at once, whatever it says" do
      context =
        Context.new("One") |> Context.add_assistant_message("1") |> Context.add_user_message("2")

      for number <- [-1, 0, 1, 3, 1_000_000_000_000, 0x10000000000000000, nil, "2", 2.0] do
        tampered = %{context | current_iteration: number}

        for {a, b} <- [{tampered, context}, {context, tampered}, {tampered, Context.new("Else")}] do
          error = assert_caller_bug(fn -> Context.diff(a, b) end)
          assert Exception.message(error) =~ "current_iteration"
        end
      end

      assert Context.diff(context, context).last_common == 2
    end
  end
end
