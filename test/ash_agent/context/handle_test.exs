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
  @functions %{
    Context.Audit => [
      account: [],
      add_failure: [%{kind: :closed}],
      failures: [],
      fetch_cost: [[]],
      fetch_asked: [1],
      forecast: [:anthropic],
      get_response_id: [],
      get_request: [1],
      put_request: [%{}, nil],
      put_sent: [:anthropic],
      replay: []
    ],
    Context => [
      add_assistant_message: ["Hi!"],
      add_response: [:response],
      add_response!: [:response],
      add_tool_results: [[{"a", {:ok, 1}}]],
      add_user_message: ["Hi!"],
      count_iterations: [],
      count_messages: [],
      diff: [:itself],
      dump: [],
      encode_request: [:anthropic],
      encode_request!: [:anthropic],
      equal?: [:itself],
      exceeded_max_iterations?: [1],
      extract_tool_calls: [],
      fetch: [:current_iteration],
      fetch_message: [{1, 0}],
      fork: [],
      get_all_messages: [],
      get_iteration: [1],
      get_iteration_messages: [1],
      interrupt: [],
      iterations: [],
      load: [%{}],
      load!: [%{}],
      metadata: [],
      outline: [],
      pending_tool_calls: [],
      put_response: [:response, {nil, nil}],
      print: [],
      put_iteration_metadata: [1, :a, 1],
      put_metadata: [:a, 1],
      put_system_prompt: ["S"],
      request: [:anthropic],
      request!: [:anthropic],
      request_report: [:anthropic],
      rewind: [[to: 1]],
      system_prompt: [],
      to_map: [],
      to_messages: [],
      to_prompt: [],
      to_snapshot: [],
      turn_start: [],
      update: [%{}],
      update!: [%{}],
      validate_for_request: [],
      find_turn: [:request, "r"]
    ],
    Context.Tokens => [
      add_token_usage: [%{input_tokens: 1}],
      count_tokens: [],
      budget: [10],
      get_cumulative_tokens: [],
      get_iteration_tokens: [1],
      token_breakdown: []
    ],
    Context.Calls => [
      ask_about_tool_call: ["a", %{}],
      ask_again: [],
      asked_tool_calls: [],
      answer_tool_call: ["a", "yes"],
      approve_tool_call: ["a"],
      deny_tool_call: ["a"],
      tool_call_approved?: ["a", %{}],
      tool_call_decision: ["a"],
      tool_call_times: ["a"],
      tool_call_status: ["a"],
      undecided_tool_calls: [],
      waits?: [],
      arrive: ["a", {:ok, 1}],
      late_calls: [],
      leave_late_calls: [],
      place_arrivals: []
    ],
    Context.View => [
      clear_tool_results: [[keep: 1]],
      compact: [:drop],
      expand: [:all],
      fit: [100],
      hide: [1],
      mark_as_summarized: [1..1, "S"],
      put_masks: [[]],
      verdict: [1],
      put_max_result_bytes: [100],
      put_prompt_block: ["a", "A"],
      summary: [1],
      view: []
    ],
    Context.Rent => [
      clear_when_due: [[keep: 1]]
    ],
    Context.Shortening => [
      shorten: [:window, [window: 1]],
      shortenings: []
    ],
    Context.Enhancer => [
      run: [[]]
    ],
    Context.Pins => [
      pin: [{:iteration, 1}],
      unpin: [{:iteration, 1}],
      pins: []
    ],
    Context.Recall => [
      receipt: [],
      diff_views: [1],
      put_recall: [true],
      recall: ["1.1-a"],
      recall?: [],
      search: ["words"]
    ],
    Context.Jido => [
      to_jido: []
    ],
    Context.LangChain => [
      to_langchain: []
    ],
    Context.ReqLLM => [
      to_req_llm: []
    ]
  }

  # These make contexts, or refuse any context.
  @others %{
    Context => [:create, :create!, :new, :get_and_update, :pop, :restore],
    Context.Audit => [:caches?, :fetch_asked_before, :view_changes],
    Context.Enhancer => [:attempt, :check!],
    Context.Import => [:from_messages, :from_messages!, :from_request, :from_request!]
  }

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
      for {module, functions} <- @functions do
        others = Map.get(@others, module, [])

        unless module in [Context.Jido, Context.LangChain, Context.ReqLLM],
          do: assert(Enum.sort(names(module)) == Enum.sort(Keyword.keys(functions) ++ others))

        for {name, arguments} <- functions,
            do:
              assert_names_node(fn ->
                apply(module, name, [context | filled(arguments, context)])
              end)
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
    error = assert_caller_bug(fn -> Context.View.view(context) end)
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
