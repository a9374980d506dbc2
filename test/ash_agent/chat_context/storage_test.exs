defmodule AshAgent.ChatContext.StorageTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Assertions
  import AshAgent.TestSupport.Generators

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.ChatContext.Config
  alias AshAgent.Context.{Error, JSON, UnknownAtom}
  alias AshAgent.TestSupport.{ContextGenerators, JSONText}

  @at ~U[2026-01-01 10:00:00.000000Z]

  defp say(chat, text, name),
    do: ChatContext.update_context(chat, &Context.add_user_message(&1, text), branch: name)

  # "b" and "c" are made of "main", "d" of "c".
  defp chat do
    ChatContext.new(input: "one", id: "chat", system_prompt: "S", at: @at)
    |> ChatContext.update_context(&Context.add_assistant_message(&1, "two"))
    |> say("three", "main")
    |> ChatContext.branch("b", iteration: 1)
    |> say("four", "b")
    |> ChatContext.branch("c", user_prompt: "U")
    |> ChatContext.update_context(&Context.add_assistant_message(&1, "five"), branch: "c")
    |> ChatContext.branch("d", from: "c")
    |> say("six", "d")
    |> ChatContext.switch("c")
  end

  defp count(text, part), do: length(String.split(text, part)) - 1
  defp bases(dump), do: Enum.map(dump["branches"], &{&1["name"], &1["base"]})
  defp round_trip(chat), do: chat |> ChatContext.dump() |> ChatContext.load!()
  defp config(fields), do: round_trip(ChatContext.new(config: fields)).config
  defp stored(fields), do: ChatContext.dump(ChatContext.new(config: fields))["config"]

  defp error(document) do
    assert {:error, %Error{reason: reason} = error} = ChatContext.load(document)
    assert is_binary(Exception.message(error))
    reason
  end

  describe "dump/1 and load/1" do
    test "store each branch beside the one that it shares most with" do
      dump = ChatContext.dump(chat())
      assert bases(dump) == [{"main", nil}, {"b", "main"}, {"c", "main"}, {"d", "c"}]

      assert [_, %{"context" => %{"since" => 2, "iterations" => [_]}}, c, d] = dump["branches"]
      assert %{"context" => %{"since" => 2, "shared" => 1, "view" => %{"blocks" => [_]}}} = c
      assert %{"context" => %{"since" => 2, "shared" => 2, "iterations" => [_, _]}} = d
      assert %{"version" => 1, "id" => "chat", "active_branch" => "c"} = dump
      refute is_map_key(dump, "parent_id")
      refute is_map_key(dump, "config")
    end

    test "find the best base whoever made the branch, and whoever is gone" do
      # All of "c" but for "main" lives on in "d" and "e".
      chat = chat() |> ChatContext.branch("e", from: "d") |> say("seven", "e")
      chat = chat |> ChatContext.switch("main") |> ChatContext.delete_branch("c")
      dump = ChatContext.dump(chat)
      assert bases(dump) == [{"main", nil}, {"b", "main"}, {"d", "main"}, {"e", "d"}]
      assert count(JSON.encode(dump), "five") == 1

      # The first branch is gone.
      chat = chat |> ChatContext.switch("e") |> ChatContext.delete_branch("main")
      dump = ChatContext.dump(chat)
      assert bases(dump) == [{"b", nil}, {"d", "b"}, {"e", "d"}]
      for text <- ~w(one two four five six), do: assert(count(JSON.encode(dump), text) == 1)
      assert ChatContext.equal?(round_trip(chat), chat)
    end

    test "keep conversations that share nothing" do
      chat =
        ChatContext.update_context(
          chat(),
          fn _ -> Context.new("else") |> Context.put_system_prompt("T") end,
          branch: "b"
        )

      assert [{"main", nil}, {"b", nil} | _] = bases(ChatContext.dump(chat))
      assert ChatContext.equal?(round_trip(chat), chat)
    end

    test "keep conversations of one id that began differently" do
      other = Context.new("else", id: "chat", at: @at)
      chat = ChatContext.update_context(chat(), fn _ -> other end, branch: "b")
      assert ChatContext.equal?(round_trip(chat), chat)
      assert ChatContext.dump(round_trip(chat)) == ChatContext.dump(chat)
    end

    test "give an equal chat, whatever is said in it" do
      check_all("chats of scripts", [runs: 60, max_size: 12], fn size ->
        base = ContextGenerators.build(ContextGenerators.script(size))
        chat = ChatContext.new(context: base, system_prompt: "S")

        chat =
          Enum.reduce(1..between(1, 6), chat, fn number, chat ->
            from = one_of(ChatContext.branches(chat))
            at = between(1, from.context.current_iteration)
            name = "branch #{number}"
            chat = ChatContext.branch(chat, name, from: from.name, iteration: at)
            fun = &Context.add_user_message(Context.interrupt(&1), "more #{number}")
            if chance(70), do: ChatContext.update_context(chat, fun, branch: name), else: chat
          end)

        copy = round_trip(chat)
        assert ChatContext.equal?(copy, chat)
        assert ChatContext.dump(copy) == ChatContext.dump(chat)
        assert ChatContext.equal?(ChatContext.from_snapshot!(ChatContext.to_snapshot(chat)), chat)
        assert {:ok, _} = chat |> ChatContext.to_snapshot() |> JSONText.decode()
      end)
    end

    test "keep views, notes and reports on tokens of each branch" do
      chat =
        chat()
        |> ChatContext.update_context(&Context.View.put_masks(&1, [{"one", "1"}]), branch: "b")
        |> ChatContext.update_context(&Context.View.hide(&1, {:all_but_last, 1}), branch: "d")
        |> ChatContext.update_context(&Context.put_metadata(&1, :note, {:a, 1}), branch: "d")
        |> ChatContext.update_context(
          &Context.Tokens.add_token_usage(&1, %{input_tokens: 1, output_tokens: 2}),
          branch: "c"
        )

      copy = round_trip(chat)
      assert ChatContext.equal?(copy, chat)

      for {a, b} <- Enum.zip(ChatContext.branches(chat), ChatContext.branches(copy)) do
        assert Context.to_messages(a.context) == Context.to_messages(b.context)
        assert {a.system_prompt, a.user_prompt} == {b.system_prompt, b.user_prompt}
      end
    end

    test "keep ids and names of any text" do
      odd = ["\0", "a\0b", "$atom", ":a", "ä ö", "\"", String.duplicate("n", 5_000)]

      chat =
        Enum.reduce(odd, ChatContext.new(id: "i\0d"), &ChatContext.branch(&2, &1))
        |> ChatContext.switch("a\0b")

      copy = chat |> ChatContext.to_snapshot() |> ChatContext.from_snapshot!()
      assert ChatContext.equal?(copy, chat)
      refute ChatContext.to_snapshot(chat) =~ "\\u0000"
    end

    test "keep terms of any depth" do
      deep = Enum.reduce(1..256, 1, fn _, inner -> {inner} end)
      context = Context.new("hi", metadata: %{deep: deep})
      chat = ChatContext.new(context: context) |> ChatContext.branch("b")
      assert ChatContext.equal?(round_trip(chat), chat)
      text = ChatContext.to_snapshot(chat)
      assert JSONText.decode!(text) == ChatContext.dump(chat)
      assert ChatContext.equal?(ChatContext.from_snapshot!(text), chat)
    end

    test "hold each message of 10 branches of 1,000 messages once, and little else" do
      chat =
        Enum.reduce(1..500, ChatContext.new(input: "start"), fn number, chat ->
          ChatContext.update_context(chat, fn context ->
            context
            |> Context.add_assistant_message("answer <#{number}> #{String.duplicate("x", 300)}", [
              %{id: "call_#{number}", name: :search, arguments: %{q: "query <#{number}>"}}
            ])
            |> Context.add_tool_results([{"call_#{number}", {:ok, "result <#{number}>"}}])
          end)
        end)

      one = byte_size(ChatContext.to_snapshot(chat))

      branched =
        Enum.reduce(1..10, chat, fn number, chat ->
          name = "branch #{number}"

          chat
          |> ChatContext.branch(name, from: "main", iteration: number * 45)
          |> say("own <#{number}>", name)
        end)

      text = ChatContext.to_snapshot(branched)
      assert byte_size(text) < 1.05 * one

      for number <- 1..500,
          kind <- ~w(answer query result),
          do: assert({number, count(text, "#{kind} <#{number}>")} == {number, 1})

      for number <- 1..10, do: assert(count(text, "own <#{number}>") == 1)
      assert ChatContext.equal?(ChatContext.from_snapshot!(text), branched)
    end
  end

  describe "JSON libraries" do
    @tag :json
    test "of Elixir write the dump" do
      assert JSON.decode!(apply(Elixir.JSON, :encode!, [chat()])) |> Map.keys() ==
               Map.keys(ChatContext.dump(chat()))
    end

    @tag :jason
    test "of others write the dump" do
      assert JSON.decode!(apply(Jason, :encode!, [chat()])) |> Map.keys() ==
               Map.keys(ChatContext.dump(chat()))
    end
  end

  describe "configurations" do
    @full [
      model_id: "m1",
      mode: :plan,
      session_id: "s1",
      agent_name: :ann,
      allowed_tools: [:read, "write", Some.Tool, ":read", "$x"],
      permission_rules: [{:deny, "rm", %{path: "/"}}, %{tool: :all, by: ~D[2026-01-01]}],
      max_turns: 12,
      parameters: %{"top_p" => 1000.0, temperature: 0.2, stop: [], big: 0x10000000000000000},
      extended_thinking: %{budget_tokens: 1024},
      mcp_servers: [
        %{name: "files", command: "mcp-files", args: ["-v"], env: %{"$HOME" => ":a"}},
        %{
          name: "web",
          url: "http://localhost",
          headers: %{"k" => "v"},
          inherit_env: true,
          note: "n"
        }
      ],
      toolboxes: [Some.Tools, :other, {Some.Tools, [only: [:a]]}]
    ]

    test "come back equal" do
      assert config(@full) == Config.new(@full)

      for {field, value} <- @full,
          do: assert(config([{field, value}]) == Config.new([{field, value}]))

      for thinking <- [true, false, 512],
          do: assert(config(extended_thinking: thinking).extended_thinking == thinking)
    end

    test "read well, and leave out what is empty" do
      assert stored(@full) |> Map.take(~w(mode model_id allowed_tools mcp_servers)) == %{
               "model_id" => "m1",
               "mode" => %{"$atom" => "plan"},
               "allowed_tools" => [
                 %{"$atom" => "read"},
                 "write",
                 %{"$atom" => "Elixir.Some.Tool"},
                 ":read",
                 "$x"
               ],
               "mcp_servers" => [
                 %{
                   "name" => "files",
                   "command" => "mcp-files",
                   "args" => ["-v"],
                   "env" => %{"$$HOME" => ":a"}
                 },
                 %{
                   "name" => "web",
                   "url" => "http://localhost",
                   "headers" => %{"k" => "v"},
                   "inherit_env" => true,
                   ":note" => "n"
                 }
               ]
             }

      assert stored(max_turns: 1, toolboxes: [], parameters: %{}, model_id: "") == %{
               "max_turns" => 1
             }

      assert stored([]) == nil
      assert stored(extended_thinking: false) == %{"extended_thinking" => false}
    end

    test "do not take no tool for every tool" do
      assert stored(allowed_tools: []) == %{"allowed_tools" => []}
      assert config(allowed_tools: []).allowed_tools == []
      assert config([]).allowed_tools == nil
    end

    test "never hold what lives in this VM only, and then leave out the whole of what has it" do
      fun = fn -> :secret end
      rule = %{tool: :read, when: fun}

      lost = [
        fun,
        &String.length/1,
        rule,
        {:allow, [rule]},
        %{fun => 1},
        self(),
        make_ref(),
        hd(Port.list()),
        [1, [2, fun]],
        [1 | fun],
        %Error{reason: fun}
      ]

      assert stored(toolboxes: lost) == nil

      assert stored(parameters: %{hook: fun, deep: %{a: [fun]}, temperature: 1}) == %{
               "parameters" => %{":temperature" => 1}
             }

      assert stored(extended_thinking: %{on: fun}) == nil
      server = %{name: "a", command: "b", hook: fun, note: "c"}

      assert stored(mcp_servers: [server]) == %{
               "mcp_servers" => [%{"name" => "a", "command" => "b", ":note" => "c"}]
             }

      # A rule that cannot be stored denies: without it, more would be allowed.
      everything = %{"$tuple" => [%{"$atom" => "deny"}, "*"]}

      for rule <- lost,
          do: assert(stored(permission_rules: [rule]) == %{"permission_rules" => [everything]})

      assert stored(permission_rules: lost ++ [:kept | lost]) == %{
               "permission_rules" => [%{"$atom" => "kept"}, everything]
             }

      chat = ChatContext.new(config: [permission_rules: [rule, :kept]])
      refute ChatContext.to_snapshot(chat) =~ "Function"
      assert round_trip(chat).config.permission_rules == [:kept, {:deny, "*"}]
      assert chat.config.permission_rules == [rule, :kept]
    end

    test "deny after loading whatever they denied before" do
      no = fn _ -> true end

      for {rules, loaded} <- [
            {[{:deny, "delete", no}], [{:deny, "delete"}]},
            {[{:deny, :delete, no}, {:allow, "read"}], [{:deny, :delete}, {:allow, "read"}]},
            {[{:allow, "delete", no}], [{:deny, "*"}]},
            {[{:allow, "delete", no}, {:allow, "read"}], [{:allow, "read"}]},
            {[{:allow, "*", no}, {:deny, "x"}], [{:deny, "x"}, {:deny, "*"}]},
            {[{:deny, "x"}, {:allow, "*"}], [{:deny, "x"}, {:allow, "*"}]},
            {[{:forbid, "x", no}], [{:deny, "*"}]},
            {[{:deny, ["x"], no}], [{:deny, "*"}]},
            {[], []}
          ] do
        chat = ChatContext.new(config: [permission_rules: rules])
        assert round_trip(chat).config.permission_rules == loaded
      end
    end

    test "that were changed by hand are checked before they are stored" do
      chat = ChatContext.new(config: [mode: :plan])
      assert_caller_bug(fn -> ChatContext.dump(put_in(chat.config.max_turns, "many")) end)
    end

    test "with terms that no dump takes are refused with their path" do
      chat = ChatContext.new(config: [parameters: %{a: [1 | 2]}])

      assert {:unsupported_term, :improper_list, path} =
               reason_of(fn -> ChatContext.dump(chat) end)

      assert path == ["config", "parameters", :a]
    end

    test "keep atoms that this VM does not have, and make none" do
      name = "no_such_atom_#{System.unique_integer([:positive])}_#{System.system_time()}"
      atom = %{"$atom" => name}

      dump =
        ChatContext.new()
        |> ChatContext.dump()
        |> Map.put("config", %{
          "allowed_tools" => [atom],
          "mode" => atom,
          "toolboxes" => [%{"$tuple" => [atom]}]
        })

      chat = ChatContext.load!(dump)
      unknown = %UnknownAtom{name: name}

      assert %Config{allowed_tools: [^unknown], mode: ^unknown, toolboxes: [{^unknown}]} =
               chat.config

      assert ChatContext.dump(chat) == dump
      assert_raise ArgumentError, fn -> String.to_existing_atom(name) end
    end
  end

  describe "unknown fields" do
    test "are kept at every level" do
      unknown = %{"$new" => [1, %{":a" => "$b"}], "n" => nil}
      put = &Map.put(&1, "unknown", unknown)

      dump =
        ChatContext.put_config(chat(), max_turns: 1, mcp_servers: [%{name: "a", command: "b"}])
        |> ChatContext.dump()
        |> put.()
        |> Map.update!("config", put)
        |> Map.update!("branches", fn branches -> Enum.map(branches, put) end)
        |> put_in(["branches", Access.at(0), "context", "unknown"], unknown)
        |> put_in(["config", "mcp_servers", Access.at(0), "unknown"], [1])

      chat = ChatContext.load!(dump)
      assert ChatContext.dump(chat) == dump
      assert ChatContext.dump(ChatContext.from_snapshot!(JSON.encode(dump))) == dump

      later =
        chat
        |> ChatContext.put_config(max_turns: nil, mcp_servers: [])
        |> ChatContext.rename_branch("d", "e")
        |> say("more", "e")

      later = ChatContext.dump(later)
      assert later["unknown"] == unknown
      assert later["config"] == %{"unknown" => unknown}
      assert Enum.map(later["branches"], & &1["unknown"]) == List.duplicate(unknown, 4)
    end

    test "that are no JSON data are refused" do
      dump = ChatContext.dump(ChatContext.put_config(chat(), max_turns: 1))

      for wrong <- [:a, self(), fn -> 1 end, {1}, <<255>>, [1 | 2], %{1 => 2}, ~D[2026-01-01]] do
        for path <- [["x"], ["config", "x"], ["branches", Access.at(1), "x"]] do
          expected = Enum.map(path, &if(is_function(&1), do: 1, else: &1))

          case error(put_in(dump, path, wrong)) do
            {:invalid, path, _} -> assert List.starts_with?(path, expected)
            {:unsupported_term, _, path} -> assert List.starts_with?(path, expected)
          end
        end
      end

      assert {:invalid, [], "string keys"} = error(Map.put(dump, :a, 1))
    end
  end

  describe "load/1" do
    test "names what is wrong" do
      dump = ChatContext.dump(ChatContext.put_config(chat(), max_turns: 1))
      branch = fn index, key -> ["branches", Access.at(index), key] end

      for {path, wrong, expected} <- [
            {["version"], nil, ["version"]},
            {["version"], 1.0, ["version"]},
            {["version"], "1", ["version"]},
            {["version"], 3, ["version"]},
            {["id"], nil, ["id"]},
            {["id"], "", ["id"]},
            {["id"], 7, ["id"]},
            {["id"], %{"$bytes" => "/w=="}, ["id"]},
            {["parent_id"], 7, ["parent_id"]},
            {["parent_id"], "", ["parent_id"]},
            {["active_branch"], nil, ["active_branch"]},
            {["active_branch"], "x", ["active_branch"]},
            {["config"], [], ["config"]},
            {["config"], "x", ["config"]},
            {["config", "max_turns"], 0, ["config", "max_turns"]},
            {["config", "mode"], 1, ["config", "mode"]},
            {["config", "mode"], %{"$atom" => 1}, ["config", "mode", "$atom"]},
            {["config", "mode"], %{"$new" => 1}, ["config", "mode", "$new"]},
            {["config", "parameters"], [1], ["config", "parameters"]},
            {["config", "allowed_tools"], [1], ["config", "allowed_tools"]},
            {["config", "mcp_servers"], [%{}], ["config", "mcp_servers", 0, "name"]},
            {["config", "mcp_servers"], [%{"name" => "a", "command" => "b", "args" => [1]}],
             ["config", "mcp_servers", 0, "args"]},
            {["branches"], nil, ["branches"]},
            {["branches"], [], ["branches"]},
            {["branches"], %{}, ["branches"]},
            {["branches"], [1 | 2], ["branches"]},
            {["branches"], [%{}, 1], ["branches", 1]},
            {["branches"], [%{}], ["branches", 0, "name"]},
            {branch.(1, "name"), "main", ["branches", 1, "name"]},
            {branch.(0, "name"), 7, ["branches", 0, "name"]},
            {branch.(0, "name"), "", ["branches", 0, "name"]},
            {branch.(0, "context"), nil, ["branches", 0, "context"]},
            {branch.(0, "context"), 7, ["branches", 0, "context"]},
            {branch.(2, "context"), %{}, ["branches", 2, "context", "version"]},
            {branch.(0, "context") ++ ["iterations"], [],
             ["branches", 0, "context", "iterations"]},
            {branch.(2, "context") ++ ["id"], "else", ["branches", 2, "context", "id"]},
            {branch.(2, "context") ++ ["shared"], 9,
             ["branches", 2, "context", "iterations", 0, "shared"]},
            {branch.(2, "context") ++ ["since"], 9, ["branches", 2, "context", "since"]},
            # Bases: none, unknown, itself, one behind it.
            {branch.(3, "base"), nil, ["branches", 3, "context", "since"]},
            {branch.(3, "base"), "x", ["branches", 3, "base"]},
            {branch.(3, "base"), 1, ["branches", 3, "base"]},
            {branch.(3, "base"), "d", ["branches", 3, "base"]},
            {branch.(1, "base"), "d", ["branches", 1, "base"]},
            {branch.(0, "base"), "b", ["branches", 0, "base"]},
            {branch.(0, "base"), "main", ["branches", 0, "base"]}
          ] do
        assert {:invalid, ^expected, words} = error(put_in(dump, path, wrong))
        assert is_binary(words)
      end

      for wrong <- [nil, 1, "x", [], :a, self(), ~D[2026-01-01], {1}, chat(), [dump]],
          do: assert({:invalid, [], _} = error(wrong))

      assert {:invalid, ["version"], newer} = error(Map.put(dump, "version", 3))
      assert newer =~ "a newer release of ash_agent_context wrote this"
      assert error(%{}) == {:invalid, ["version"], "the version of the format, 1"}
      assert reason_of(fn -> ChatContext.load!(%{}) end) == error(%{})
      assert {:error, %Error{}} = ChatContext.from_snapshot("{")
      assert {:invalid, [], _} = reason_of(fn -> ChatContext.from_snapshot!("[") end)
      assert_caller_bug(fn -> ChatContext.from_snapshot(nil) end)
    end

    test "does not go round in circles" do
      # "b" on "c", "c" on "d", "d" on "b".
      dump = ChatContext.dump(chat())

      circle =
        for {index, base} <- [{1, "c"}, {2, "d"}, {3, "b"}],
            reduce: dump,
            do: (dump -> put_in(dump, ["branches", Access.at(index), "base"], base))

      assert {:invalid, ["branches", 1, "base"], _} = error(circle)
      reversed = Map.update!(dump, "branches", &Enum.reverse/1)
      assert {:invalid, ["branches", 0, "base"], _} = error(reversed)
    end

    test "survives whatever stands anywhere in a document" do
      dump = ChatContext.dump(ChatContext.put_config(chat(), @full))
      paths = paths(dump, [])
      assert length(paths) > 100

      for path <- paths, wrong <- Enum.take_random(junk(), 8) ++ [%{"$tuple" => 1}, []] do
        case ChatContext.load(put_in(dump, path, wrong)) do
          {:ok, chat} -> assert %{} = ChatContext.dump(chat)
          {:error, %Error{} = error} -> assert is_binary(Exception.message(error))
        end
      end

      for path <- paths do
        {_, less} = pop_in(dump, path)
        with {:error, error} <- ChatContext.load(less), do: assert(%Error{} = error)
      end
    end

    defp paths(map, path) when is_map(map),
      do: Enum.flat_map(map, fn {key, value} -> below(value, path ++ [key]) end)

    defp paths(list, path) when is_list(list),
      do:
        list
        |> Enum.with_index()
        |> Enum.flat_map(fn {value, index} -> below(value, path ++ [Access.at(index)]) end)

    defp paths(_value, _path), do: []
    defp below(value, path), do: [path | paths(value, path)]
  end
end
