defmodule AshAgent.TraceAtifTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Generators

  alias AshAgent.{ChatContext, Context, Trace}
  alias AshAgent.Context.{Error, JSON}
  alias AshAgent.TestSupport.AtifModels
  alias AshAgent.TestSupport.ContextGenerators, as: Scripts

  @at ~U[2026-01-01 10:00:00.000000Z]

  defp atif(shown, opts) do
    assert {:ok, trajectory} = shown |> Trace.to_atif(opts) |> JSON.decode()
    trajectory
  end

  # A conversation with all that a trajectory can hold, and its sub-agent.
  defp family do
    calls = [
      %{id: "c1", name: :research, arguments: %{task: "Hotels"}},
      %{id: "c2", name: "buy", arguments: %{"price" => 9}},
      %{id: "c3", name: "patch", kind: :custom, arguments: "*** text"},
      %{id: "c4", name: "draw", arguments: %{}}
    ]

    image = %{type: :image, media_type: "image/png", data: "iVBORw0KGgo="}

    parent =
      Context.new([%{type: :text, text: "Look at"}, image],
        id: "parent",
        system_prompt: "Be brief.",
        at: @at
      )
      |> Context.add_assistant_message(
        [%{type: :thinking, text: "hm"}, %{type: :text, text: "I will."}],
        calls,
        at: @at
      )
      |> Context.add_token_usage(%{
        input_tokens: 1_000,
        output_tokens: 50,
        cached_tokens: 400,
        reasoning_tokens: 7
      })
      |> Context.approve_tool_call("c1", by: "ann", at: @at)
      |> Context.deny_tool_call("c2", "too dear", at: @at)
      |> Context.add_tool_results(
        [{"c1", {:ok, %{hotel: "Roma"}}}, {"c3", {:error, :refused}}, {"c4", {:ok, [image]}}],
        at: @at
      )
      |> Context.add_assistant_message("Hotel Roma.", [], at: @at)
      |> Context.add_user_message("Thanks", at: @at)
      |> Context.mark_as_summarized(1..2, "A hotel was found.")

    child =
      Context.new("Hotels", id: "child", at: @at)
      |> Context.add_assistant_message("Roma")
      |> Context.put_metadata(:parent_id, "parent")
      |> Context.put_metadata(:tool_call_id, "c1")

    {parent, child}
  end

  describe "to_atif/2" do
    test "puts everything where the format has it" do
      {parent, child} = family()
      prices = [%{model: "m", input: 1_000_000, output: 1_000_000}]

      trajectory =
        atif(parent,
          children: [child],
          agent: "trip",
          version: "2",
          tools: [%{name: "buy", description: "Buys", function: fn _ -> nil end}],
          prices: prices
        )

      assert %{
               "schema_version" => "ATIF-v1.7",
               "session_id" => "parent",
               "trajectory_id" => "parent"
             } = trajectory

      assert %{
               "name" => "trip",
               "version" => "2",
               "tool_definitions" => [
                 %{
                   "type" => "function",
                   "function" => %{"name" => "buy", "description" => "Buys"}
                 }
               ]
             } = trajectory["agent"]

      assert [system, user, agent, answer, summary, thanks] = trajectory["steps"]
      assert for(step <- trajectory["steps"], do: step["step_id"]) == Enum.to_list(1..6)
      assert %{"source" => "system", "message" => "Be brief."} = system

      assert %{
               "source" => "user",
               "timestamp" => "2026-01-01T10:00:00.000000Z",
               "message" => [
                 %{"type" => "text", "text" => "Look at"},
                 %{
                   "type" => "image",
                   "source" => %{
                     "media_type" => "image/png",
                     "path" => "data:image/png;base64,iVBORw0KGgo="
                   }
                 }
               ]
             } = user

      assert %{
               "source" => "agent",
               "message" => [%{"text" => "I will."}],
               "reasoning_content" => "hm"
             } = agent

      assert agent["metrics"] == %{
               "prompt_tokens" => 1000,
               "completion_tokens" => 50,
               "cached_tokens" => 400,
               "extra" => %{"reasoning_tokens" => 7}
             }

      assert [
               %{
                 "tool_call_id" => "c1",
                 "function_name" => "research",
                 "arguments" => %{"task" => "Hotels"}
               } = c1,
               c2,
               %{"arguments" => %{"input" => "*** text"}},
               _
             ] = agent["tool_calls"]

      assert %{"approved" => true, "by" => "ann"} = c1["extra"]["ash_agent_context"]["decision"]

      assert %{"approved" => false, "reason" => "too dear"} =
               c2["extra"]["ash_agent_context"]["decision"]

      assert [r1, r2, r3, r4] = agent["observation"]["results"]

      assert %{
               "source_call_id" => "c1",
               "content" => ~s({"hotel":"Roma"}),
               "subagent_trajectory_ref" => [%{"trajectory_id" => "child"}]
             } = r1

      assert r2["extra"]["ash_agent_context"]["status"] == "denied"
      assert %{"content" => "refused"} = r3
      assert [%{"type" => "image"}] = r4["content"]
      assert %{"message" => "Hotel Roma."} = answer

      assert %{
               "source" => "system",
               "extra" => %{
                 "context_management" => %{
                   "type" => "compaction",
                   "first_iteration" => 1,
                   "last_iteration" => 2
                 }
               }
             } = summary

      assert %{"message" => "Thanks"} = thanks

      assert trajectory["final_metrics"] == %{
               "total_prompt_tokens" => 1000,
               "total_completion_tokens" => 50,
               "total_cached_tokens" => 400,
               "total_steps" => 6
             }

      assert [
               %{
                 "trajectory_id" => "child",
                 "session_id" => "parent",
                 "steps" => [%{"step_id" => 1}, %{"step_id" => 2}]
               }
             ] = trajectory["subagent_trajectories"]
    end

    test "masks what the view masks" do
      {parent, _child} = family()
      masked = Context.put_masks(parent, [{"Roma|dear|Hotels|brief|hm|found|text", "[gone]"}])
      text = Trace.to_atif(masked)
      for word <- ~w(Roma dear Hotels brief hm found), do: refute(text =~ word)
      assert Trace.to_atif(masked, masked: false) =~ "Roma"
    end

    test "tells the active branch of a chat, and children with ids of their own" do
      chat = ChatContext.new(input: "Hello") |> ChatContext.branch("b") |> ChatContext.switch("b")
      chat = ChatContext.update_context(chat, &Context.add_assistant_message(&1, "from b"))
      children = for n <- 1..2, do: ChatContext.spawn_child(chat, input: "child #{n}", id: "same")
      trajectory = atif(chat, children: children)
      assert [_, %{"message" => "from b"}] = trajectory["steps"]
      ids = for child <- trajectory["subagent_trajectories"], do: child["trajectory_id"]
      assert length(ids) == 2 and ids == Enum.uniq(ids)
    end

    @tag :atif
    @tag integrations: ["ATIF"]
    test "is valid by the published models: 100 of 100 random conversations, and what is made to be hard" do
      random =
        for size <- 1..100 do
          seed_case(ExUnit.configuration()[:seed], "atif", size)
          Scripts.build(Scripts.with_views(Scripts.script(rem(size, 20) + 1)))
        end

      {parent, child} = family()

      grandchild =
        Context.new("x", id: "grandchild") |> Context.put_metadata("parent_id", "child")

      texts = [
        Trace.to_atif(parent, children: [child, grandchild], tools: %{buy: fn _ -> nil end})
        | Enum.map(random, &Trace.to_atif/1)
      ]

      problems = AtifModels.problems(texts)
      assert length(problems) == 101
      assert Enum.filter(problems, &(&1 != "")) == []
      # The models do find what is wrong.
      assert [wrong] =
               AtifModels.problems([
                 String.replace(hd(texts), "\"step_id\":2", "\"step_id\":3", global: false)
               ])

      assert wrong =~ "step_id"
    end
  end

  describe "from_atif/2" do
    test "brings back the messages, calls and results that to_atif/2 wrote" do
      check_all("atif", [runs: 100], fn size ->
        context = Scripts.build(Scripts.script(size))
        text = Trace.to_atif(context)
        assert {:ok, back, _report} = Trace.from_atif(text)
        assert said(back) == said(context)
      end)

      {parent, _child} = family()
      assert {:ok, back, report} = Trace.from_atif(Trace.to_atif(parent))
      assert said(back) == said(parent)
      assert report.repairs == []
      assert back[:created_at] == @at
    end

    # What was said, in JSON's words: names and keys are text there, and results what the model reads.
    defp said(context) do
      for iteration <- Context.iterations(context),
          message <- iteration.messages,
          not silent?(message.content) or message[:tool_calls] do
        message |> Map.take([:role, :content, :tool_calls]) |> plain() |> in_json()
      end
    end

    defp silent?(content) when content in [nil, ""], do: true
    defp silent?(content), do: is_list(content) and Enum.all?(content, &empty_text?/1)

    defp empty_text?(part), do: match?(%{type: :text, text: ""}, part)

    defp plain(%{content: content} = message) do
      content = if silent?(content) and message.role == :assistant, do: nil, else: content

      calls =
        for call <- message[:tool_calls] || [],
            do:
              call |> Map.take([:id, :kind, :name, :arguments, :provider_metadata]) |> readable()

      %{message | content: content} |> Map.delete(:tool_calls) |> Map.put(:calls, calls)
    end

    # Arguments of bytes that are not valid UTF-8 may be an object once the bytes are replaced.
    defp readable(%{arguments: arguments} = call) when is_binary(arguments) do
      with false <- Map.has_key?(call, :kind),
           {:ok, %{} = read} <- JSON.decode(in_json(arguments)),
           do: %{call | arguments: read},
           else: (_ -> call)
    end

    defp readable(call), do: call

    defp in_json(term) do
      {:ok, read} = term |> JSON.encode() |> JSON.decode()
      read
    end

    test "reads all versions, and results that no call was made for" do
      step = fn id, source, message, more ->
        Map.merge(%{"step_id" => id, "source" => source, "message" => message}, more)
      end

      call = %{"tool_call_id" => "a", "function_name" => "f", "arguments" => %{"x" => 1}}

      steps = [
        step.(1, "system", "Be brief.", %{"timestamp" => "2025-05-05T05:05:05Z"}),
        step.(
          2,
          "user",
          [
            %{"type" => "text", "text" => "Hear"},
            %{
              "type" => "audio",
              "source" => %{"media_type" => "audio/wav", "path" => "https://x/a.wav"}
            }
          ],
          %{}
        ),
        step.(3, "agent", "", %{
          "reasoning_content" => "hm",
          "tool_calls" => [call, %{call | "tool_call_id" => "b"}],
          "observation" => %{
            "results" => [
              %{"content" => "first"},
              %{"source_call_id" => "b", "content" => [%{"type" => "text", "text" => "second"}]}
            ]
          }
        }),
        step.(4, "agent", "Done", %{
          "observation" => %{"results" => [%{"content" => "the shell says hello"}]}
        }),
        step.(5, "system", "summary", %{
          "extra" => %{"context_management" => %{"type" => "compaction"}}
        })
      ]

      for minor <- 0..8,
          document = %{
            "schema_version" => "ATIF-v1.#{minor}",
            "session_id" => "s",
            "agent" => %{},
            "steps" => steps,
            "new_field" => 1
          } do
        assert {:ok, context, report} = Trace.from_atif(document, id: "mine")
        assert Context.system_prompt(context) == "Be brief."
        assert context[:created_at] == ~U[2025-05-05 05:05:05.000000Z]
        assert context[:id] == "mine"
        assert report.rest["session_id"] == "s"

        assert [
                 %{
                   tool_calls: [
                     %{result: {:ok, "first"}},
                     %{result: {:ok, [%{type: :text, text: "second"}]}}
                   ]
                 }
                 | _
               ] = Context.iterations(context)

        texts =
          for %{content: text} when is_binary(text) <- Context.to_messages(context), do: text

        assert texts == ["Be brief.", "Done", "the shell says hello"]
      end
    end

    test "is an error with a path for what is no trajectory, and never believes approvals" do
      ok = %{"schema_version" => "ATIF-v1.7", "steps" => []}

      for {document, words} <- [
            {%{}, ~r/ATIF-v1.0/},
            {%{ok | "schema_version" => "ATIF-v1.9"},
             ~r/"ATIF-v1.0" to "ATIF-v1.8" at \["schema_version"\]/},
            {%{ok | "steps" => 1}, ~r/a list of steps at \["steps"\]/},
            {%{ok | "steps" => [%{"source" => "nobody"}]}, ~r/at \["steps", 0, "source"\]/},
            {%{ok | "steps" => [%{"source" => "agent", "tool_calls" => [%{"arguments" => %{}}]}]},
             ~r/at \["steps", 0, "tool_calls", 0, "function_name"\]/},
            {%{ok | "steps" => [%{"source" => "user", "message" => [%{"type" => "text"}]}]},
             ~r/at \["steps", 0, "message", 0, "text"\]/},
            {"{", ~r/JSON/},
            {String.duplicate("[", 100_000), ~r/levels|nested|deep/}
          ] do
        assert {:error, %Error{} = error} = Trace.from_atif(document)
        assert Exception.message(error) =~ words
      end

      {parent, _child} = family()

      waiting =
        Context.new("x")
        |> Context.add_assistant_message(nil, [%{id: "c", name: "f"}])
        |> Context.approve_tool_call("c")

      assert Context.tool_call_status(Trace.from_atif!(Trace.to_atif(waiting)), "c") == :pending
      assert Context.tool_call_decision(Trace.from_atif!(Trace.to_atif(parent)), "c1") == nil
    end

    test "survives whatever is done to a trajectory" do
      {parent, _child} = family()
      {:ok, whole} = JSON.decode(Trace.to_atif(parent))

      check_all("broken atif", [runs: 300], fn size ->
        broken = Enum.reduce(1..size, whole, fn _, value -> spoil(value) end)

        case Trace.from_atif(if(is_map(broken), do: broken, else: JSON.encode(broken))) do
          {:ok, context, _report} -> assert Context.count_messages(context) >= 0
          {:error, %Error{} = error} -> assert is_binary(Exception.message(error))
        end
      end)
    end

    # Puts junk into some place of a document.
    defp spoil(map) when is_map(map) and map_size(map) > 0 do
      key = one_of(Map.keys(map))
      if chance(25), do: Map.put(map, key, junk()), else: Map.update!(map, key, &spoil/1)
    end

    defp spoil([_ | _] = list) do
      if List.improper?(list),
        do: [],
        else: List.update_at(list, between(0, length(list) - 1), &spoil/1)
    end

    defp spoil(_value),
      do: one_of([nil, 1, "", "text", [], %{}, [[]], -1.5, "data:image/png;base64,!"])
  end
end
