defmodule AshAgent.ChatContextTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.ChatContext.{Branch, Config}

  doctest AshAgent.ChatContext
  doctest AshAgent.ChatContext.Branch
  doctest AshAgent.ChatContext.Config

  @at ~U[2026-01-01 10:00:00.000000Z]

  # Three iterations: "1", "2", "3", each answered.
  defp chat(opts \\ []) do
    chat = ChatContext.new([input: "1", at: @at] ++ opts)

    ChatContext.update_context(chat, fn context ->
      for number <- 2..3, reduce: Context.add_assistant_message(context, "a1") do
        context ->
          context
          |> Context.add_user_message(to_string(number))
          |> Context.add_assistant_message("a#{number}")
      end
    end)
  end

  defp context(chat, name), do: chat.branches[name].context
  defp texts(context), do: Enum.map(Context.to_messages(context), & &1.content)
  defp say(chat, text), do: ChatContext.update_context(chat, &Context.add_user_message(&1, text))

  describe "new/1" do
    test "gives the context the chat's id, and the chat the id of a given context" do
      assert %ChatContext{id: "c1", parent_id: nil} =
               chat = ChatContext.new(id: "c1", input: "hi")

      assert context(chat, "main")[:id] == "c1"
      context = Context.new("hi")
      assert ChatContext.new(context: context).id == context[:id]
      assert %{id: "c2"} = chat = ChatContext.new(context: context, id: "c2")
      assert Context.equal?(context(chat, "main"), context)
      assert ChatContext.new().id =~ ~r/\A[0-9a-f]{8}-[0-9a-f]{4}-4/
    end

    test "begins an empty conversation, which the first message joins" do
      chat = ChatContext.new(id: "c1", system_prompt: "Be brief.", at: @at)
      context = context(chat, "main")
      assert context[:created_at] == @at
      assert [%{number: 1, started_at: @at}] = context[:iterations]
      assert [%{role: :system}] = Context.to_messages(context)
      assert texts(context(say(chat, "hi"), "main")) == ["Be brief.", "hi"]
    end

    test "keeps the prompts of a given context, and puts those that are given" do
      context =
        Context.new("hi", system_prompt: "S") |> Context.View.put_prompt_block(:user_prompt, "U")

      assert %Branch{system_prompt: "S", user_prompt: "U"} =
               ChatContext.active(ChatContext.new(context: context))

      chat = ChatContext.new(context: context, system_prompt: nil, user_prompt: "V")
      assert %Branch{system_prompt: nil, user_prompt: "V"} = ChatContext.active(chat)
      parts = [%{type: :text, text: "P"}]

      assert %Branch{system_prompt: ^parts} =
               ChatContext.active(ChatContext.new(system_prompt: parts))
    end

    test "refuses wrong options, and names them" do
      for opts <- [
            [input: 1],
            [input: "a", context: Context.new("b")],
            [context: "a"],
            [id: ""],
            [id: 7],
            [id: <<255>>],
            [branch: ""],
            [branch: nil],
            [branch: :main],
            [branch: <<255>>],
            [system_prompt: 7],
            [user_prompt: 7],
            [user_prompt: <<255>>],
            [at: "now"],
            [at: "now", input: "a"],
            [config: 7],
            [config: [model: "m"]],
            [nobody: 1]
          ] do
        exception = assert_caller_bug(fn -> ChatContext.new(opts) end)
        assert Exception.message(exception) != ""
      end

      assert_caller_bug(fn -> ChatContext.new("hi") end)
      assert_caller_bug(fn -> ChatContext.new(%{}) end)
    end
  end

  describe "branch/3" do
    test "is refused for names that are taken or unknown, and for unknown iterations" do
      chat = ChatContext.branch(chat(), "b")
      assert reason_of(fn -> ChatContext.branch(chat, "b") end) == {:branch_exists, "b"}
      assert reason_of(fn -> ChatContext.branch(chat, "main") end) == {:branch_exists, "main"}

      assert reason_of(fn -> ChatContext.branch(chat, "c", from: "x") end) ==
               {:unknown_branch, "x", ["main", "b"]}

      for number <- [0, 4, -1, 0x10000000000000000] do
        assert reason_of(fn -> ChatContext.branch(chat, "c", iteration: number) end) ==
                 {:unknown_iteration, number, 1..3}
      end

      for {name, opts} <- [
            {"", []},
            {<<255>>, []},
            {:c, []},
            {"c", [at: "1"]},
            {"c", [at: 1.0]},
            {"c", [from: :main]},
            {"c", [to: 1]},
            {"c", [system_prompt: 1]},
            {"c", [user_prompt: 1]}
          ],
          do: assert_caller_bug(fn -> ChatContext.branch(chat, name, opts) end)
    end

    test "branches while calls are pending, and each branch answers for itself" do
      chat =
        ChatContext.new(input: "hi")
        |> ChatContext.update_context(
          &Context.add_assistant_message(&1, nil, [%{id: "a", name: :now}])
        )
        |> ChatContext.branch("b")
        |> ChatContext.update_context(&Context.add_tool_results(&1, [{"a", {:ok, 1}}]))

      assert Context.pending_tool_calls(context(chat, "main")) == []
      assert [%{id: "a"}] = Context.pending_tool_calls(context(chat, "b"))
    end
  end

  describe "switch/2, rename_branch/3 and delete_branch/2" do
  end

  describe "update/3" do
    test "shows the prompts of whatever context the function returns" do
      chat = chat(system_prompt: "S", user_prompt: "U")

      for {fun, prompts} <- [
            {&Context.put_system_prompt(&1, "T"), {"T", "U"}},
            {&Context.put_system_prompt(&1, nil), {nil, "U"}},
            {&Context.View.put_prompt_block(&1, :user_prompt, "V"), {"S", "V"}},
            {&Context.View.put_prompt_block(&1, "user_prompt", nil), {"S", nil}},
            {&Context.View.put_prompt_block(&1, :memory, "M"), {"S", "U"}},
            {&Context.rewind(&1, to: 1), {"S", "U"}},
            {fn _ -> Context.new("else") end, {nil, nil}}
          ] do
        branch = ChatContext.active(ChatContext.update_context(chat, fun))
        assert {branch.system_prompt, branch.user_prompt} == prompts
        assert branch.system_prompt == Context.system_prompt(branch.context)
      end
    end

    test "names what is no context" do
      error =
        assert_caller_bug(fn -> ChatContext.update_context(chat(), fn _ -> {:ok, 1} end) end)

      assert Exception.message(error) ==
               "expected the function to return a context, got: a tuple of 2 elements"

      assert_caller_bug(fn -> ChatContext.update_context(chat(), fn -> 1 end) end)
      assert_caller_bug(fn -> ChatContext.update_context(chat(), & &1, from: "main") end)
    end

    test "raises what the function raises" do
      chat =
        ChatContext.update_context(
          chat(),
          &Context.add_assistant_message(&1, nil, [%{id: "a", name: :x}])
        )

      assert reason_of(fn -> say(chat, "hi") end) == {:pending_tool_calls, ["a"]}
    end
  end

  describe "prompts" do
    test "can be wrong" do
      for prompt <- [1, :a, %{}],
          do: assert_caller_bug(fn -> ChatContext.put_system_prompt(chat(), prompt) end)

      for prompt <- [1, [], <<255>>],
          do: assert_caller_bug(fn -> ChatContext.put_user_prompt(chat(), prompt) end)

      assert_refused(fn -> ChatContext.put_system_prompt(chat(), [%{type: :robot}]) end)
      assert_caller_bug(fn -> ChatContext.put_user_prompt(chat(), "a", at: 1) end)

      assert {:unknown_branch, "x", _} =
               reason_of(fn -> ChatContext.put_user_prompt(chat(), "a", branch: "x") end)
    end
  end

  describe "configurations" do
    test "hold what they are given, and nothing else" do
      for {field, values} <- [
            model_id: ["m1", :m1],
            mode: [:plan, "plan", %Context.UnknownAtom{name: "plan"}],
            session_id: ["s"],
            agent_name: ["ann", Ann],
            allowed_tools: [[:read, "write", Some.Tool]],
            permission_rules: [[{:deny, "rm"}, %{tool: :all}]],
            max_turns: [1, 100],
            parameters: [%{"top_p" => 1, temperature: 0.5}],
            extended_thinking: [true, false, 1024, %{budget_tokens: 1024}],
            toolboxes: [[Some.Tools, :other]]
          ],
          value <- values do
        assert Map.fetch!(Config.new([{field, value}]), field) == value
        assert Map.fetch!(ChatContext.new(config: %{field => value}).config, field) == value
      end

      for {field, values} <- [
            model_id: [1, []],
            mode: [1, %{}, true],
            session_id: [:s, 1],
            allowed_tools: [:read, [1], [nil], [true], [:a | :b]],
            permission_rules: [%{a: 1}, :a, [1 | 2]],
            max_turns: [0, -1, 1.0, "1", []],
            parameters: [[temperature: 1], "x", ~D[2026-01-01]],
            extended_thinking: [0, "yes", :yes],
            mcp_servers: [
              %{},
              [1],
              [%{name: "a"}],
              [%{name: "a", command: ""}],
              [%{name: :a, command: "a"}],
              [%{name: "a", command: "a", args: "b"}],
              [%{name: "a", command: "a", args: [1]}],
              [%{name: "a", command: "a", env: %{a: "b"}}],
              [%{name: "a", command: "a", env: [{"a", "b"}]}],
              [%{name: "a", url: ""}],
              [%{name: "a", url: "b", headers: %{a: "b"}}],
              [%{name: "a", command: "a", cwd: 1}],
              [%{name: "a", command: "a", prefix: ""}],
              [%{name: "a", command: "a", inherit_env: false}],
              [%{name: "a", command: "a", trust_annotations: "true"}]
            ],
            toolboxes: [:a, %{}]
          ],
          value <- values do
        error = assert_caller_bug(fn -> Config.new([{field, value}]) end)
        assert Exception.message(error) =~ "invalid value for option #{inspect(field)}: expected "
      end

      for wrong <- [1, "x", [1], [a: 1], %{"mode" => :a}, ~D[2026-01-01]],
          do: assert_caller_bug(fn -> Config.new(wrong) end)
    end

    test "know one empty value of each field" do
      empties = [
        model_id: "",
        permission_rules: nil,
        parameters: nil,
        extended_thinking: %{},
        mcp_servers: nil
      ]

      assert Config.new(empties) == %Config{}
      assert Config.put(Config.new(mode: :plan), mode: nil) == %Config{}
    end

    test "take MCP servers in several forms, and keep further keys" do
      full = %{name: "files", command: "mcp-files", args: ["-v"], env: %{"HOME" => "/"}}
      strings = Map.new(full, fn {key, value} -> {Atom.to_string(key), value} end)

      assert Config.new(mcp_servers: [full, strings, Map.to_list(full)]).mcp_servers == [
               full,
               full,
               full
             ]

      further = Map.merge(full, %{cwd: "/", prefix: "f", inherit_env: ["LANG"], note: 1})
      assert Config.new(mcp_servers: [further]).mcp_servers == [further]

      remote = %{name: "docs", url: "https://example.com/mcp", headers: %{}}
      given = %{"name" => "docs", "url" => "https://example.com/mcp"}
      assert Config.new(mcp_servers: [remote, given]).mcp_servers == [remote, remote]
    end

    test "are checked again by put_config/2" do
      chat = ChatContext.new(config: [mode: :plan])

      assert ChatContext.put_config(chat, mode: :build, max_turns: 3).config ==
               Config.new(mode: :build, max_turns: 3)

      assert chat.config.mode == :plan
      assert_caller_bug(fn -> ChatContext.put_config(chat, max_turns: "3") end)
    end
  end

  describe "inspect/1" do
    test "shows counts, never texts, names or settings" do
      chat =
        chat(
          id: "secret-id",
          system_prompt: "secret prompt",
          user_prompt: "secret user prompt",
          config: [
            parameters: %{key: "secret"},
            mcp_servers: [%{name: "s", command: "secret", env: %{"K" => "secret"}}]
          ]
        )
        |> ChatContext.branch("secret name")

      assert inspect(chat) ==
               "#AshAgent.ChatContext<2 branches, active: #AshAgent.Context<iteration 3, 7 messages in view, 0 pending>>"

      assert inspect(ChatContext.active(chat)) =~
               ~r/\A#AshAgent.ChatContext.Branch<#AshAgent.Context<iteration 3/

      assert inspect(chat.config) == "#AshAgent.ChatContext.Config<2 set>"

      for term <- [chat, chat.config, ChatContext.branches(chat)],
          do: refute(inspect(term) =~ "secret")

      assert inspect(ChatContext.new()) =~ "<1 branch, active"
    end
  end

  describe "equal?/2" do
    test "sees every difference" do
      chat = chat(id: "c", config: [mode: :plan])
      assert ChatContext.equal?(chat, chat)
      two = ChatContext.branch(chat, "b")

      for other <- [
            %{chat | id: "d"},
            %{chat | parent_id: "p"},
            ChatContext.put_config(chat, mode: :build),
            two,
            say(chat, "more"),
            ChatContext.rename_branch(chat, "main", "b"),
            ChatContext.put_user_prompt(chat, "U")
          ],
          do: refute(ChatContext.equal?(chat, other))

      refute ChatContext.equal?(two, ChatContext.switch(two, "b"))

      again =
        two
        |> ChatContext.branch("c")
        |> ChatContext.delete_branch("b")
        |> ChatContext.rename_branch("c", "b")

      assert ChatContext.equal?(two, again)
    end
  end

  describe "errors" do
    test "say what to do" do
      chat = ChatContext.new(id: "p") |> ChatContext.branch("b")

      for {fun, words} <- [
            {fn -> ChatContext.switch(chat, "x") end,
             ~s(unknown branch "x"; the chat has the branches ["main", "b"])},
            {fn -> ChatContext.branch(chat, "b") end, ~s(the branch "b" already exists)},
            {fn -> ChatContext.delete_branch(chat, "main") end,
             ~s(switch to another branch with switch/2 first)},
            {fn -> ChatContext.complete_child(chat, ChatContext.new(id: "c"), "s") end,
             ~s(the chat "c" was not spawned from the chat "p")}
          ] do
        assert_raise Context.Error, ~r/#{Regex.escape(words)}/, fun
      end
    end
  end
end
