defmodule AshAgent.Integration.AgentTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [hanging: 1]
  import ExUnit.CaptureLog

  alias AshAgent.{Context, Info, LLM, Runtime}
  alias AshAgent.Integration.{Guarded, Helper, MemoryTicket, Reply, Typist}
  alias AshAgent.Resource.Error
  alias AshAgent.Runtime.{Paused, Result}

  @moduletag :ash
  @moduletag :capture_log
  @moduletag integrations: ["Ash"]

  @ann %{id: "a1", name: "ann", role: :agent, key: "PRIVATE-key"}
  @mia %{id: "m1", name: "mia", role: :manager}

  # The options of an action whose model plays these answers.
  defp plays(answers, opts \\ []) do
    {run, opts} = Keyword.pop(opts, :run, [])
    llm = if is_list(answers), do: LLM.Scripted.new(answers), else: answers
    [context: %{ash_agent: %{options: [llm: llm] ++ run}}] ++ opts
  end

  defp calls(list), do: %{tool_calls: Enum.map(list, &made/1)}
  defp made({id, name}), do: made({id, name, %{}})
  defp made({id, name, arguments}), do: %{id: id, name: name, arguments: arguments}

  defp results(context) do
    for n <- 1..context.current_iteration,
        call <- Context.get_iteration(context, n).tool_calls,
        do: {call.id, call[:result]}
  end

  # The results of these calls, after which the model has done.
  defp called(list, opts \\ []) do
    {:ok, %{output: "Done", context: context}} =
      Helper.run("Hi", plays([calls(list), "Done"], opts))

    results(context)
  end

  # Calls that fail in each way.
  defp broken,
    do: for(how <- ~w(raise exit throw error kill), do: {how, "broken", %{"how" => how}})

  # The call that gives a typed answer.
  defp submit(answer, id \\ "1"), do: calls([{id, "submit_answer", answer}])

  defp last(stream), do: stream |> Enum.to_list() |> List.last()

  defp error({:error, %{errors: [error]}}), do: error
  defp reason(answer), do: error(answer).reason

  describe "the sections" do
    test "are read as they were written" do
      assert Info.option(Helper, :client) ==
               {"anthropic:claude-sonnet-4-5", [temperature: 0.5, max_tokens: 50]}

      for {agent, most, timeout} <- [{Helper, 5, 120_000}, {Guarded, 10, 30_000}] do
        config = %{max_iterations: most, timeout: timeout, on_error: :continue}
        assert Info.tool_config(agent) == config
      end

      assert {Info.token_budget(Typist), Info.budget_strategy(Typist)} == {1_000, :halt}
      assert {Info.token_budget(Helper), Info.budget_strategy(Helper)} == {nil, :warn}

      assert [greet | _] = Info.tools(Helper)
      assert %{name: :greet, description: "Greets somebody"} = greet
      assert greet.function == {Helper, :greet, ["!"]}
      assert Info.option(Guarded, :hooks) == AshAgent.Integration.Watcher
    end

    test "bring the actions, with the inputs and the context as arguments" do
      for name <- [:run, :stream] do
        assert %{type: :action, arguments: [message, tone, context]} =
                 Ash.Resource.Info.action(Helper, name)

        assert %{name: :message, type: Ash.Type.String, allow_nil?: false} = message
        assert {tone.name, tone.default} == {:tone, "plain"}

        assert %{name: :context, type: Ash.Type.Struct, allow_nil?: true} = context
        assert context.constraints[:instance_of] == Context
      end

      assert %{arguments: [%{name: :context, allow_nil?: false}]} =
               Ash.Resource.Info.action(Helper, :resume)
    end
  end

  describe "a call" do
    test "sends the prompt and the message, and returns the answer with its context" do
      assert {:ok, %Result{output: "Hello!", context: context}} =
               Helper.run("Hi", plays(["Hello!"]))

      assert [
               %{role: :system, content: "Answer in a plain tone."},
               %{role: :user, content: "Hi"},
               %{role: :assistant, content: "Hello!"}
             ] = Context.to_messages(context)

      assert %Result{} = Helper.run!("Hi", plays(["Hello!"]))

      rude = %{message: "Hi", tone: "rude"}
      input = Ash.ActionInput.for_action(Helper, :run, rude, plays(["Yo"]))
      assert {:ok, %Result{output: "Yo"}} = Ash.run_action(input)
    end

    test "goes on with a context, with the prompt of this call" do
      {:ok, %{context: context}} = Helper.run("Hi", plays(["Hello!"]))

      more = %{context: context, tone: "loud"}
      {:ok, result} = Helper.run("And now?", more, plays(["Still here."]))

      assert [
               %{role: :system, content: "Answer in a loud tone."},
               %{content: "Hi"},
               %{content: "Hello!"},
               %{content: "And now?"},
               %{content: "Still here."}
             ] = Context.to_messages(result.context)

      assert Context.count_messages(context) == 3
      stored = context |> Context.dump() |> Context.load!()
      assert {:ok, %{output: "Hm"}} = Helper.run("?", %{context: stored}, plays(["Hm"]))
    end

    test "without a message, sends all arguments as JSON, and without any, the prompt" do
      typed = plays([submit(%{"content" => "x"})])
      {:ok, result} = Typist.run(nil, %{data: %{"a" => 1}}, typed)
      assert [_system, %{role: :user, content: text} | _] = Context.to_messages(result.context)
      assert text == ~s({"data":{"a":1}})

      typed = plays([submit(%{"content" => "x"})])
      {:ok, result} = Typist.run(nil, typed)

      assert [%{role: :user, content: "Say something.\nGive your final" <> _} | _] =
               Context.to_messages(result.context)
    end

    test "takes no context that is not one" do
      {:ok, %{context: context}} = Helper.run("Hi", plays(["Hello!"]))
      chat = AshAgent.ChatContext.new(input: "Hi")

      dumps = [Context.dump(context), Context.to_snapshot(context)]

      for wrong <- dumps ++ [%{}, 5, chat, [context]] do
        assert %{field: :context} = error(Helper.run("Hi", %{context: wrong}, plays(["Hello!"])))
      end

      for wrong <- [nil, %{}],
          do: assert({:error, %Ash.Error.Invalid{}} = Helper.run(wrong, plays(["Hello!"])))

      assert {:error, %Ash.Error.Invalid{}} = Helper.resume(nil, plays(["Hello!"]))
      assert {:error, %Ash.Error.Invalid{}} = Helper.run("Hi", %{fly: true}, plays(["Hello!"]))
    end

    test "the view of the run's options is applied before each request" do
      model = LLM.Scripted.new([calls([{"1", :greet, %{name: "Ann"}}]), "Mailed."])
      redact = {AshAgent.Context.Enhancer.Redact, patterns: [:email]}

      opts = plays(model, run: [view: [redact]])
      assert {:ok, %Result{context: context}} = Helper.run("Mail ann@example.com", opts)
      assert [_first, _after_the_call] = requests = LLM.Scripted.requests(model)

      for seen <- [context | Enum.map(requests, & &1.context)],
          do: assert(Enum.at(Context.to_messages(seen), 1).content == "Mail [redacted]")

      assert {:ok, %Result{}} = Helper.run("Hi", plays(["Done."], run: [view: :auto]))
      opts = plays(["x"], run: [view: :wrong])
      # Newer versions of Ash wrap what an action raises.
      assert Exception.message(catch_error(Helper.run("Hi", opts))) =~ "option :view"
    end

    test "options of the run come from the application alone" do
      assert {:error, %Ash.Error.Invalid{}} =
               Helper.run("Hi", %{ash_agent: %{options: [llm: LLM.Scripted.new(["x"])]}}, [])
    end

    test "an error has its reason, words and the context that was reached" do
      error = error(Helper.run("Hi", plays(fn _ -> {:error, :overloaded} end)))
      assert %Error{reason: {:llm_error, :overloaded}, context: context} = error
      assert Exception.message(error) =~ "the model failed: :overloaded"
      assert {:ok, %{output: "Back"}} = Helper.resume(context, plays(["Back"]))

      assert_raise Ash.Error.Invalid, ~r/the model failed/, fn ->
        Helper.run!("Hi", plays(fn _ -> {:error, :overloaded} end))
      end

      again = fn _ -> {:ok, calls([{"1", "double", %{"number" => 1}}])} end
      assert reason(Helper.run("Hi", plays(again))) == {:max_iterations_exceeded, 5}
    end
  end

  describe "tools" do
    test "are offered with JSON schemas of their parameters" do
      test = self()

      model = fn _context, opts ->
        send(test, {:tools, opts[:tools]})
        {:ok, %{content: ~s({"content": "a"})}}
      end

      {:ok, _result} = Helper.run("Hi", plays(model))
      assert_received {:tools, tools}

      assert %{description: "Greets somebody", parameters: greet} =
               Enum.find(tools, &(&1.name == "greet"))

      assert greet == %{
               "type" => "object",
               "properties" => %{"name" => %{"type" => "string", "description" => "Who it is"}},
               "required" => ["name"],
               "additionalProperties" => false
             }

      assert %{parameters: %{"type" => "object"}} = Enum.find(tools, &(&1.name == "whoami"))

      assert %{parameters: %{"properties" => %{"limit" => _, "filter" => _}}} =
               Enum.find(tools, &(&1.name == "look_up"))

      # The answer's type is one, too.
      {:ok, _result} = Typist.run("Hi", plays(model))
      assert_received {:tools, tools}
      assert %{parameters: answer} = Enum.find(tools, &(&1.name == "submit_answer"))

      assert %{
               "required" => ["content"],
               "properties" => %{"mood" => %{"enum" => ["glad", "sad"]}}
             } = answer

      score = %{"type" => "integer", "minimum" => 1, "maximum" => 10}
      tags = %{"type" => "array", "items" => %{"type" => "string"}}
      assert %{"score" => ^score, "tags" => ^tags} = answer["properties"]
    end

    test "are functions of the arguments, cast, and the tool context" do
      made = [
        {"1", "greet", %{"name" => "Alice"}},
        {"2", "double", %{"number" => "21"}},
        {"3", "double", %{number: 4}}
      ]

      assert called(made) == [
               {"1", {:ok, %{greeting: "Hello, Alice!"}}},
               {"2", {:ok, %{result: 42}}},
               {"3", {:ok, %{result: 8}}}
             ]
    end

    test "have a time of their own, whatever they are" do
      for given <- [
            [function: fn _ -> {:ok, 1} end],
            [action: {AshAgent.Integration.MemoryTicket, :read}],
            [action: {AshAgent.Integration.MemoryTicket, :read, limit: 3}]
          ],
          timeout <- [nil, 5_000] do
        own = [name: :mine, description: "Mine", timeout: timeout]
        tool = struct!(AshAgent.Resource.Tool, own ++ given)
        {:ok, definition} = AshAgent.Resource.Tool.definition(tool)
        assert [%{timeout: ^timeout}] = AshAgent.Runtime.Tool.new([definition])
      end
    end

    test "say in words what is wrong with a call, and make no atoms of it" do
      strange = "surely_no_atom_#{System.unique_integer([:positive])}"

      made = [
        {"1", "nonexistent", %{}},
        {"2", "greet", %{}},
        {"3", "double", %{"number" => "many"}},
        {"4", "double", %{"number" => 1, "numbre" => 2}},
        {"5", "broken", %{"how" => strange}},
        {"6", "double", "no object"},
        {"7", "double", %{"number" => [1]}}
      ]

      assert [unknown, missing, wrong, other, atom, text, list] =
               for({_id, {:error, words}} <- called(made), do: words)

      assert unknown =~ ~s(unknown tool "nonexistent")
      assert missing =~ ~s(the required argument "name" is missing)
      assert wrong == "number: is invalid" or wrong =~ "invalid"
      assert other =~ ~s(unknown arguments: "numbre"; known are: number)
      assert atom =~ "invalid" or atom =~ "one of"
      assert text =~ "JSON object"
      assert list =~ "invalid"
      assert_raise ArgumentError, fn -> String.to_existing_atom(strange) end
    end

    test "that crash are results, and the call goes on" do
      results = called(broken())
      for {how, {:error, words}} <- results, do: assert(is_binary(words), how)
      assert {"error", {:error, "it did not work"}} in results
      assert [{"raise", {:error, "the tool raised RuntimeError"}} | _] = results
    end

    test "get the actor, the tenant and whether to authorize" do
      assert [{"1", {:ok, caller}}] = called([{"1", "whoami"}], actor: @ann, tenant: "acme")

      known = %{actor: @ann, tenant: "acme", agent: Helper, authorize?: true}
      assert caller == Map.put(known, :domain, AshAgent.Integration.Assistants)

      assert [{"1", {:ok, %{actor: nil, authorize?: false}}}] =
               called([{"1", "whoami"}], authorize?: false)
    end

    test "that are actions run with the caller's rights, whatever the caller's authorize?" do
      open = {"1", "open_ticket", %{"subject" => "agent ticket"}}
      look = calls([{"2", "look_up", %{"filter" => %{"status" => "open"}}}])

      {:ok, result} =
        Helper.run("Hi", plays([calls([open]), look, "Done"], actor: @ann, tenant: "agents"))

      assert [
               {"1", {:ok, %{"subject" => "agent ticket"}}},
               {"2", {:ok, %{"records" => [ticket]}}}
             ] = results(result.context)

      refute Map.has_key?(ticket, "ssn") or Map.has_key?(ticket, "note")

      # Another actor, and another tenant, see nothing of it, and nobody opens one.
      bob = %{@ann | name: "bob"}

      for opts <- [[actor: bob, tenant: "agents"], [actor: @ann, tenant: "others"]] do
        {:ok, result} = Helper.run("Hi", plays([look, "Done"], opts))
        assert [{"2", {:ok, %{"records" => []}}}] = results(result.context)
      end

      assert [{"1", {:error, words}}] = called([open], tenant: "agents", authorize?: false)
      assert words =~ "not allowed"
      assert [_one] = Ash.read!(MemoryTicket, tenant: "agents", authorize?: false)
    end

    test "may call another agent" do
      for {inner, answer} <- [
            {submit(%{"content" => "six"}), {:ok, %Reply{content: "six"}}},
            {"I do not know", :error}
          ] do
        actor = %{inner: plays(List.duplicate(inner, 3))[:context]}
        ask = calls([{"1", "ask", %{"question" => "3 + 3?"}}])
        {:ok, result} = Helper.run("Hi", plays([ask, "Done"], actor: actor))
        assert {"Done", [{"1", given}]} = {result.output, results(result.context)}

        if answer == :error,
          do: assert({:error, _reason} = given),
          else: assert(given == answer)

        assert [_, _, _, %{content: [%{content: said}]}, _] = Context.to_messages(result.context)

        if answer == :error, do: assert(said =~ "contains no JSON"), else: assert(said =~ "six")
      end
    end

    test "may halt the call" do
      assert {:ok, %Result{status: :halted, output: "stopped"}} =
               Helper.run("Hi", plays([calls([{"1", "stop"}])]))
    end

    test "with on_error :halt, end the call when they fail, and the words are kept" do
      error = error(Typist.run("Hi", plays([calls([{"1", "roll"}, {"2", "fail"}])])))
      assert {error.reason, is_struct(error.context, Context)} == {{:tool_error, "fail"}, true}
      assert {"2", {:error, "it did not work"}} in results(error.context)
      assert Exception.message(error) =~ "the tool fail failed"
      assert Context.pending_tool_calls(error.context) == []
      test = self()

      tell = [on_change: &send(test, {:change, &1}), on_event: &send(test, {:event, &1.event})]
      opts = plays([calls([{"2", "fail"}])], run: tell)
      assert reason(Typist.run("Hi", opts)) == {:tool_error, "fail"}
      assert_received {:change, %Context{}}
      assert_received {:event, [:ash_agent, :runtime, :tool, :stop]}

      opts = plays([calls([{"2", "roll"}])], run: [on_change: fn _ -> {:error, :full} end])
      assert reason(Typist.run("Hi", opts)) == {:on_change_error, :full}
    end
  end

  test "an agent needs no tools" do
    opts = plays(["Hello"])

    input =
      Ash.ActionInput.for_action(AshAgent.Integration.Toolless, :run, %{message: "Hi"}, opts)

    assert {:ok, %Result{output: "Hello"}} = Ash.run_action(input)
  end

  describe "a typed answer" do
    test "is cast to the type, whatever the model calls before" do
      answer = %{"content" => "six", "score" => "7", "mood" => "glad", "tags" => ["a"]}

      {:ok, result} = Typist.run("Hi", plays([calls([{"1", "roll"}]), submit(answer, "2")]))
      assert result.output == %Reply{content: "six", score: 7, mood: :glad, tags: ["a"]}

      assert [%{content: text} | _] = Context.to_messages(result.context)
      assert text =~ "Say something.\nGive your final answer in the form that was asked for"
      # What is stored is what the model wrote.
      stored = result.context |> Context.dump() |> Context.load!(structs: :drop)
      assert Context.equal?(stored, result.context)
      again = plays([submit(%{"content" => "again"}, "3")])

      assert {:ok, %{output: %Reply{content: "again"}}} =
               Typist.run("?", %{context: stored}, again)
    end

    test "that is wrong is told to the model, which may try again" do
      wrong = [
        %{},
        %{"content" => "a", "score" => 11},
        %{"content" => "a", "mood" => "furious"},
        %{"content" => %{"b" => 1}},
        %{"content" => "a", "tags" => [%{"x" => 1}]}
      ]

      submitted =
        for {arguments, n} <- Enum.with_index(wrong),
            do: calls([{"#{n}", "submit_answer", arguments}])

      right = submit(%{"content" => "a"}, "right")
      {:ok, result} = Typist.run("Hi", plays(submitted ++ [right], run: [max_retries: 5]))
      assert result.output == %Reply{content: "a"}
      assert {wrong, [{"right", {:ok, _}}]} = Enum.split(results(result.context), length(wrong))

      assert [content, score, mood, text, tags] = for({_id, {:error, words}} <- wrong, do: words)

      assert content =~ "/content: is missing"
      assert score =~ "/score: expected at most 10"
      assert mood =~ ~s(/mood: expected one of "glad", "sad")
      assert text =~ "/content: expected a string"
      assert tags =~ "/tags/0: expected a string"
    end

    test "of an Ash type is one of any run" do
      llm = LLM.Scripted.new([~s({"content": "a", "score": "7"})])
      output = AshAgent.Resource.output(Reply)
      opts = [llm: llm, output: output, output_mode: :text]

      assert {:ok, %{output: %Reply{content: "a", score: 7}}} =
               Runtime.run(Context.new("Hi"), opts)

      for {type, constraints, json, value} <- [
            {:integer, [min: 1], "3", 3},
            {:date, [], ~s("2026-01-31"), ~D[2026-01-31]},
            {{:array, :integer}, [], "[1, 2]", [1, 2]}
          ] do
        output = AshAgent.Resource.output(type, constraints)
        assert {:ok, ^value, []} = AshAgent.Output.read(output, ~s({"value": #{json}}))
      end

      assert_raise ArgumentError, ~r/is an Ash type: pass AshAgent.Resource.output/, fn ->
        AshAgent.Output.new(Reply)
      end

      assert_raise ArgumentError, ~r/is not an Ash type/, fn ->
        AshAgent.Resource.output(Context)
      end
    end

    test "as text is taken if it is JSON of the type" do
      assert {:ok, %{output: %Reply{content: "a"}}} =
               Typist.run("Hi", plays([~s({"content": "a"})]))

      for text <- ["It is six.", "5", "[]", "", ~s({"content": null})] do
        error = error(Typist.run("Hi", plays([text, text], run: [max_retries: 1])))
        assert {:invalid_output, words} = error.reason
        assert is_binary(words)
        assert %Context{} = error.context
        assert Exception.message(error) =~ "not of the agent's output type"
      end
    end

    test "another tool may halt with anything" do
      assert {:ok, %{status: :halted, output: %{"gave" => "up"}}} =
               Typist.run("Hi", plays([calls([{"1", "give_up"}])]))
    end

    test "needs neither permission nor approval" do
      for run <- [
            [approval: fn _call, _context -> :ask end],
            [allowed_tools: [:roll]],
            [permission_rules: [{:allow, "roll"}]],
            [permission_rules: [{:deny, "roll"}]]
          ] do
        answer = submit(%{"content" => "a"})
        assert {:ok, %Result{output: %Reply{}}} = Typist.run("Hi", plays([answer], run: run))
      end
    end
  end

  test "a call goes over HTTP to the client's provider" do
    call = fn id, name, arguments ->
      function = %{"name" => name, "arguments" => Context.JSON.encode(arguments)}

      message = %{
        "role" => "assistant",
        "content" => nil,
        "tool_calls" => [%{"id" => id, "type" => "function", "function" => function}]
      }

      usage = %{"prompt_tokens" => 10, "completion_tokens" => 2, "total_tokens" => 12}

      {:json, 200,
       %{
         "choices" => [%{"index" => 0, "finish_reason" => "tool_calls", "message" => message}],
         "usage" => usage
       }}
    end

    answers = [call.("1", "roll", %{}), call.("2", "submit_answer", %{"content" => "six"})]
    server = AshAgent.TestSupport.ChatServer.start(answers)

    {:ok, llm} =
      AshAgent.Resource.Client.model(
        {"openai:small", base_url: server.url, api_key: "sk-1", temperature: 0.0, max_tokens: 9}
      )

    opts = [context: %{ash_agent: %{options: [llm: llm, stream: false]}}]
    assert {:ok, %Result{output: %Reply{content: "six"}} = result} = Typist.run("Hi", opts)
    assert result.usage.total_tokens == 24

    assert_received {:request, %{path: "/v1/chat/completions", headers: headers, body: first}}
    assert headers["authorization"] == "Bearer sk-1"
    assert %{"model" => "small", "temperature" => zero, "max_tokens" => 9} = first
    assert zero == 0.0

    assert [
             %{"role" => _, "content" => "Say something." <> _},
             %{"role" => "user", "content" => "Hi"}
           ] = first["messages"]

    assert Enum.sort(for(%{"function" => %{"name" => name}} <- first["tools"], do: name)) ==
             ~w(fail give_up roll submit_answer)

    assert_received {:request,
                     %{body: %{"messages" => [_, _, _, %{"role" => "tool", "content" => "6"}]}}}
  end

  describe "a budget" do
    defp used(tokens, more),
      do: Map.put(more, :usage, %{input_tokens: tokens, output_tokens: 0, total_tokens: tokens})

    test "with :halt, ends the call" do
      roll = used(600, calls([{"1", "roll"}]))
      roll2 = used(600, calls([{"2", "roll"}]))
      error = error(Typist.run("Hi", plays([roll, roll2, "never"])))
      assert error.reason == {:max_total_tokens_exceeded, 1_000}
      assert Context.Tokens.get_cumulative_tokens(error.context).total_tokens == 1_200

      answer = used(300, submit(%{"content" => "a"}, "2"))
      assert {:ok, _result} = Typist.run("Hi", plays([roll, answer]))
    end

    test "with :warn, is told when it is nearly used up" do
      test = self()
      id = {__MODULE__, make_ref()}
      event = [:ash_agent, :token_limit_warning]

      handler = fn ^event, measured, metadata, _config ->
        if self() == test, do: send(test, {:warned, measured, metadata})
      end

      :telemetry.attach(id, event, handler, nil)
      on_exit(fn -> :telemetry.detach(id) end)

      assert {:ok, _} = Guarded.run("Hi", plays([used(79, %{content: "a"})], actor: @ann))
      refute_received {:warned, _, _}
      assert {:ok, _} = Guarded.run("Hi", plays([used(80, %{content: "a"})], actor: @ann))

      assert_received {:warned, %{cumulative_tokens: 80},
                       %{agent: Guarded, limit: 100, threshold_percent: 80}}

      assert {:ok, _} = Guarded.run("Hi", plays([used(500, %{content: "a"})], actor: @ann))
      assert_received {:warned, %{cumulative_tokens: 500}, _metadata}
    end
  end

  describe "policies and hooks" do
    test "decide who may call" do
      for action <- [&Guarded.run/2, &Guarded.stream/2] do
        assert {:error, %Ash.Error.Forbidden{}} = action.("Hi", plays(["Hello"]))
        refute_received {:before_call, _}
        assert {:ok, _} = action.("Hi", plays(["Hello"], actor: @ann))
        assert_received {:before_call, _}
      end

      {:ok, %{context: context}} = Guarded.run("Hi", plays(["Hello"], actor: @ann))
      assert {:error, %Ash.Error.Forbidden{}} = Guarded.resume(context, actor: @ann)
      assert {:ok, %Result{}} = Guarded.resume(context, actor: @mia)
    end

    test "hooks are called in their order, and change what is sent and returned" do
      assert {:ok, %{output: "HELLO", context: context}} = Guarded.run("Hi", actor: @ann)
      assert_received {:before_call, %{message: "Hi"}}
      assert_received {:after_render, "They said 2 bytes."}
      assert_received {:after_call, "Hello"}
      refute_received {:on_error, _}

      assert [%{role: :system, content: "They said 2 bytes. Be brief."} | _] =
               Context.to_messages(context)
    end

    test "hooks end calls, and hear of errors" do
      error = error(Guarded.run("no way", actor: @ann))

      assert error.reason == {:hook, "not that"}
      # Newer versions of Ash say before it where the error comes from.
      assert Exception.message(error) =~ ~r/^a hook ended the call: not that$/m

      assert_received {:on_error, %Error{reason: {:hook, "not that"}}}
      refute_received {:after_render, _}

      assert {:error, %{errors: [%{error: text}]}} =
               Guarded.run("Hi", plays(["secret"], actor: @ann))

      assert text =~ "hidden"
      failing = fn _ -> {:error, :overloaded} end
      assert {:llm_error, :overloaded} = reason(Guarded.run("Hi", plays(failing, actor: @ann)))
      assert_received {:on_error, %Error{reason: {:llm_error, :overloaded}}}
    end

    test "hooks that are missing or return anything else end calls, and their words show nothing of them" do
      for {agent, words} <- [
            {AshAgent.Integration.Unguarded,
             "could not load module AshAgent.Integration.Missing"},
            {AshAgent.Integration.Careless,
             "before_call/1 must return {:ok, call} or {:error, reason}"}
          ] do
        input = Ash.ActionInput.for_action(agent, :run, %{message: "PRIVATE-text"}, plays(["Hi"]))

        # Newer versions of Ash wrap it.
        error = catch_error(Ash.run_action(input))
        assert Exception.message(error) =~ words
        refute Exception.message(error) =~ "PRIVATE-"
      end
    end

    test "calls that need a decision pause, and run when they have it" do
      delete = calls([{"1", "delete", %{"path" => "/tmp/x"}}])

      assert {:ok, %Paused{calls: [%{id: "1"}]} = paused} =
               Guarded.run("Hi", plays([delete], actor: @ann))

      # Nothing is said to it meanwhile, and nobody gets around the decision.
      assert %Error{reason: %Context.Error{}, context: %Context{}} =
               error(Guarded.run("Well?", %{context: paused.context}, plays(["no"], actor: @ann)))

      assert {:ok, %Paused{}} = Guarded.resume(paused.context, plays(["no"], actor: @mia))

      approved = Context.Calls.approve_tool_call(paused.context, "1", by: "mia")
      assert {:ok, result} = Guarded.resume(approved, plays(["Gone"], actor: @mia))
      assert results(result.context) == [{"1", {:ok, "deleted /tmp/x"}}]

      denied = Context.Calls.deny_tool_call(paused.context, "1", "keep it", by: "mia")
      assert {:ok, result} = Guarded.resume(denied, plays(["Kept"], actor: @mia))
      assert [{"1", {:error, words}}] = results(result.context)
      assert words =~ "keep it"
    end
  end

  describe "a context from elsewhere" do
    test "of another agent goes on with this one's prompt and tools alone" do
      delete = calls([{"1", "delete", %{"path" => "/tmp/x"}}])
      {:ok, paused} = Guarded.run("Hi", plays([delete], actor: @ann))

      # The call that waits there for a decision is none of this agent's, which has nobody to ask.
      error = error(Helper.resume(paused.context, plays(["no"])))
      assert Exception.message(error) =~ "the conversation is paused until its calls are decided"
      approved = Context.Calls.approve_tool_call(paused.context, "1", by: "mia")
      assert {:ok, result} = Helper.resume(approved, plays(["I cannot"]))
      assert [{"1", {:error, words}}] = results(result.context)
      assert words =~ ~s(unknown tool "delete")

      {:ok, result} = Helper.run("And you?", %{context: result.context}, plays(["Me too"]))

      assert [%{content: "Answer in a plain tone."} | rest] = Context.to_messages(result.context)

      refute Enum.any?(rest, &(&1.role == :system))
    end

    test "with pending calls takes no message, and stays as it was" do
      stale =
        "Hi"
        |> Context.new()
        |> Context.add_assistant_message(nil, [made({"1", "double", %{"number" => 2}})])

      error = error(Helper.run("Hello?", %{context: stale}, plays(["no"])))
      assert %Context.Error{reason: {:pending_tool_calls, ["1"]}} = error.reason
      assert Exception.message(error) =~ "have no result yet"
      assert Context.pending_tool_calls(stale) != []

      assert {:ok, result} = Helper.resume(stale, plays(["4"]))
      assert {results(result.context), result.output} == {[{"1", {:ok, %{result: 4}}}], "4"}

      # Used twice, from the same place.
      assert {:ok, %{output: "four"}} = Helper.resume(stale, plays(["four"]))
    end
  end

  describe "a stream" do
    test "has a typed answer as far as it came, with what the type makes of its fields" do
      answer = %{"content" => "six of them", "score" => "7", "mood" => "glad", "tags" => ~w(a b)}
      {:ok, stream} = Typist.stream("Hi", plays([submit(answer)]))
      elements = Enum.to_list(stream)
      assert {:done, %{output: %Reply{} = reply}} = List.last(elements)
      assert [_ | _] = partials = for({:partial, value} <- elements, do: value)
      whole = %{content: "six of them", score: 7, mood: :glad, tags: ["a", "b"]}
      assert List.last(partials) == whole
      assert reply == struct!(Reply, whole)

      for partial <- partials, {field, value} <- partial do
        case {field, value} do
          {:content, text} -> assert String.starts_with?(reply.content, text)
          {:tags, tags} -> assert Enum.zip(tags, reply.tags) |> Enum.all?(fn {a, b} -> b =~ a end)
          {field, value} -> assert Map.fetch!(whole, field) == value
        end
      end

      who = [type: :map, constraints: [fields: [name: [type: :string]]]]
      items = [fields: [on: [type: :date], who: who]]
      output = AshAgent.Resource.output({:array, :map}, items: items)
      begun = ~s({"value": [{"on": "2026-01-31", "who": {"name": "An)

      assert AshAgent.Output.read_partial(output, begun) ==
               {:ok, [%{on: ~D[2026-01-31], who: %{name: "An"}}]}
    end

    test "gives the pieces and the result, each time it is read" do
      llm = fn -> LLM.Scripted.new(["One two three"]) end
      assert {:ok, stream} = Helper.stream("Hi", plays(["One two three", "Four"]))

      assert [{:content, "One "}, {:content, "two "}, {:content, "three"}, {:done, result}] =
               Enum.to_list(stream)

      assert %Result{output: "One two three"} = result
      assert [{:content, "Four"}, {:done, %{output: "Four"}}] = Enum.to_list(stream)

      {:ok, stream} = Helper.stream("More", %{context: result.context}, plays(llm.()))
      assert {:done, %{context: context}} = last(stream)
      assert Context.count_messages(context) == 5
    end

    test "has tools between its pieces, and the actor" do
      answers = [Map.put(calls([{"1", "whoami"}]), :content, "Wait"), "Done"]
      {:ok, stream} = Helper.stream("Hi", plays(answers, actor: @ann))
      assert [{:content, "Wait"}, {:content, "Done"}, {:done, result}] = Enum.to_list(stream)
      assert [{"1", {:ok, %{actor: @ann}}}] = results(result.context)
    end

    test "ends with the typed answer, an error or a pause" do
      {:ok, stream} = Typist.stream("Hi", plays([submit(%{"content" => "a"})]))

      assert {:done, %{output: %Reply{content: "a"}}} = last(stream)

      {:ok, stream} = Typist.stream("Hi", plays(["text"], run: [max_retries: 0]))

      assert [{:content, "text"}, {:error, %Error{reason: {:invalid_output, _}}}] =
               Enum.to_list(stream)

      delete = calls([{"1", "delete", %{"path" => "/tmp/x"}}])
      {:ok, stream} = Guarded.stream("Hi", plays([delete], actor: @ann))
      assert {:paused, %Paused{}} = last(stream)

      {:ok, stream} = Guarded.stream("Hi", plays(["Hello"], actor: @ann))
      assert {:done, %{output: "HELLO"}} = last(stream)
      assert_received {:after_call, "Hello"}

      {:ok, stream} = Helper.stream("Hi", plays([{:cut, "half an"}]))

      assert {:error, %Error{context: %Context{} = context}} = last(stream)

      assert %{state: :interrupted} = context |> Context.to_messages() |> List.last()
    end

    test "that is abandoned half way ends its run and leaves nothing" do
      test = self()
      run = [on_event: fn event -> send(test, {:run, self(), event.event}) end]
      {:ok, stream} = Helper.stream("Hi", plays([String.duplicate("word ", 1_000)], run: run))
      assert [{:content, "word "}, {:content, "word "}] = Enum.take(stream, 2)
      assert_received {:run, pid, _event}
      refute Process.alive?(pid)
      assert Enum.reject(messages(), &match?({:run, _pid, _event}, &1)) == []
    end

    defp messages, do: Process.info(self(), :messages) |> elem(1)

    test "that nobody reads any more ends with its reader, also while the model or a tool works" do
      test = self()

      for {answers, asks} <- [
            {hanging(:asked), :asked},
            {[calls([{"1", "wait", %{"number" => 1}}])], :waits}
          ] do
        reader =
          spawn(fn ->
            {:ok, stream} = Helper.stream("Hi", plays(answers, actor: test))
            Enum.to_list(stream)
          end)

        worker =
          receive do
            {^asks, pid} -> pid
            {^asks, pid, 1} -> pid
          end

        monitor = Process.monitor(worker)
        Process.exit(reader, :kill)
        assert_receive {:DOWN, ^monitor, :process, ^worker, _reason}
      end
    end

    test "whose run dies says so" do
      test = self()
      run = [on_event: fn event -> send(test, {:run, self(), event.event}) end]

      {:ok, stream} = Helper.stream("Hi", plays(hanging(:asked), run: run))
      task = Task.async(fn -> Enum.to_list(stream) end)
      assert_receive {:run, pid, _event}
      assert_receive {:asked, _pid}
      Process.exit(pid, {:shutdown, "sk-secret"})

      assert [{:error, %Error{reason: {:exit, :shutdown}}}] = Task.await(task, :infinity)
    end

    test "waits for its reader" do
      test = self()
      run = [on_event: fn event -> send(test, {:event, event.event}) end]
      {:ok, stream} = Helper.stream("Hi", plays([String.duplicate("word ", 50)], run: run))

      Enum.each(stream, fn
        {:content, _text} ->
          deltas = for {:event, [_, _, :llm, :delta]} <- messages(), do: :delta
          Process.put(:read, Process.get(:read, 0) + 1)
          # One piece may be on its way.
          assert length(deltas) <= Process.get(:read) + 1

        {:done, _result} ->
          :ok
      end)
    end
  end

  describe "secrets" do
    test "of the caller are in no log, error, result or stored context" do
      log =
        capture_log(fn ->
          opts = [actor: @ann, tenant: "PRIVATE-tenant"]
          broken = plays([calls(broken()), "PRIVATE-answer"], opts)
          {:ok, result} = Helper.run("PRIVATE-text", broken)
          broken = plays([calls(broken()), "PRIVATE-answer"], opts)
          {:ok, stream} = Helper.stream("PRIVATE-text", broken)
          error = error(Helper.run("PRIVATE-text", plays(fn _ -> raise("no") end, opts)))

          for value <- [result, stream, error, result.context],
              do: refute(inspect(value) =~ "PRIVATE-")

          refute Exception.message(error) =~ "PRIVATE-"
          refute Context.to_snapshot(result.context) =~ ~r/PRIVATE-(key|tenant)/
          Enum.to_list(stream)

          # Runs that die with everything they hold.
          crashing = plays(fn _ -> exit(:kill) end, opts)
          {:ok, stream} = Helper.stream("PRIVATE-text", crashing)
          Enum.to_list(stream)

          {:ok, stream} = Guarded.stream("PRIVATE-text", plays(["crash"], opts))

          assert [
                   {:content, "crash"},
                   {:error, %Error{reason: {:exit, {:failed, RuntimeError}}}}
                 ] = Enum.to_list(stream)
        end)

      refute log =~ "PRIVATE-"
    end
  end
end
