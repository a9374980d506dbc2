defmodule AshAgent.Integration.ComingFromAshAgentTest do
  # The facts that ash_agent's tests of its context assert, where they hold here, and the guide.
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.TestSupport.Guide

  @call %{id: "call_1", name: "get_weather", arguments: %{city: "NYC"}}

  defp checked, do: "Hello" |> Context.new() |> Context.add_assistant_message("Checking", [@call])

  # As many iterations as numbers, each with a long message.
  defp iterations(count) do
    Enum.reduce(2..count//1, Context.new(text(1)), fn n, context ->
      context |> Context.add_assistant_message("ok") |> Context.add_user_message(text(n))
    end)
  end

  defp text(n), do: String.duplicate("message #{n} ", 20)

  defp numbers(context), do: Enum.map(context[:iterations], & &1.number)

  describe "ash_agent's facts about" do
    test "new contexts" do
      assert [%{number: 1, messages: [%{role: :user, content: "Hello"}]}] =
               Context.new("Hello", [])[:iterations]

      assert [%{messages: [%{role: :system, content: "Help"}, %{role: :user, content: "Hello"}]}] =
               Context.new("Hello", system_prompt: "Help")[:iterations]

      assert [%{messages: [%{role: :user, content: content}]}] =
               Context.new(%{data: "test"}, [])[:iterations]

      assert content == ~s({"data":"test"})
      assert Context.new("Hello").current_iteration == 1
    end

    test "assistant messages" do
      context =
        "Hello" |> Context.new(system_prompt: "Help") |> Context.add_assistant_message("Hi!")

      assert {context.current_iteration, Context.count_iterations(context)} == {1, 1}

      assert [%{role: :system}, %{role: :user}, %{role: :assistant, content: "Hi!"} = message] =
               Context.get_iteration(context, 1).messages

      assert message[:tool_calls] == nil

      assert [_, %{role: :assistant, content: "Checking", tool_calls: [@call]}] =
               Context.get_iteration(checked(), 1).messages
    end

    test "tool results" do
      for {result, said} <- [
            {{:ok, %{temperature: 72}}, "72"},
            {{:error, "API unavailable"}, "unavailable"}
          ] do
        context = Context.add_tool_results(checked(), [{"call_1", result}])

        assert [_, _, %{role: :user, content: [part]}] =
                 Context.get_iteration(context, 1).messages

        assert %{type: :tool_result, tool_use_id: "call_1", content: text} = part
        assert text =~ said
        # The next one is open, which ash_agent's runtime did by hand.
        assert context.current_iteration == 2
      end
    end

    test "the number of iterations" do
      context = Context.new("Hello")
      refute Context.exceeded_max_iterations?(context, 5)
      refute Context.exceeded_max_iterations?(context, 2)
      assert Context.exceeded_max_iterations?(context, 1)
      assert Context.count_iterations(iterations(3)) == 3
      assert Context.count_iterations(context) == 1
    end

    test "the calls of the last message" do
      assert Context.extract_tool_calls(checked()) == [@call]
      assert Context.extract_tool_calls(Context.new("Hello")) == []
      plain = Context.add_assistant_message(Context.new("Hello"), "No tools")
      assert Context.extract_tool_calls(plain) == []
    end

    test "messages" do
      assert [%{role: :user}, %{role: :assistant, tool_calls: [call]}] =
               Context.to_messages(checked())

      assert call.name == "get_weather"
      context = Context.add_tool_results(checked(), [{"call_1", {:ok, %{temperature: 72}}}])
      assert [_, _, %{role: :user, content: [_]}] = Context.to_messages(context)

      # In a provider's form.
      assert {:ok, %{"messages" => [_, _, %{"role" => "tool", "tool_call_id" => "call_1"}]}} =
               Context.request(context, :openai_chat)
    end

    test "single iterations" do
      assert %{number: 1, messages: [_]} = Context.get_iteration(Context.new("Hello"), 1)
      assert Context.get_iteration(Context.new("Hello"), 99) == nil
      assert Context.get_iteration(Context.new("Hello"), -1) == nil
    end

    test "tokens" do
      zero = Context.Tokens.get_cumulative_tokens(Context.new("Hello"))
      assert {zero.input_tokens, zero.output_tokens, zero.total_tokens} == {0, 0, 0}

      # Reports belong to an answer.
      answered = Context.add_assistant_message(Context.new("Hello"), "Hi!")

      context =
        answered
        |> Context.Tokens.add_token_usage(%{
          input_tokens: 100,
          output_tokens: 50,
          total_tokens: 150
        })
        |> Context.Tokens.add_token_usage(%{
          input_tokens: 75,
          output_tokens: 25,
          total_tokens: 100
        })

      sum = Context.Tokens.get_cumulative_tokens(context)
      assert {sum.input_tokens, sum.output_tokens, sum.total_tokens} == {175, 75, 250}

      partial = Context.Tokens.add_token_usage(answered, %{input_tokens: 100})
      sum = Context.Tokens.get_cumulative_tokens(partial)
      assert {sum.input_tokens, sum.output_tokens, sum.total_tokens} == {100, 0, 100}
    end

    test "fewer iterations" do
      context = iterations(5)

      seen = fn context ->
        for %{role: :user, content: text} <- Context.to_messages(context), do: text
      end

      assert seen.(Context.View.hide(context, {:all_but_last, 2})) == [text(4), text(5)]
      assert seen.(Context.View.hide(context, {:all_but_last, 10})) == seen.(context)
      assert seen.(Context.View.hide(context, {:all_but_last, 1})) == [text(5)]
      assert seen.(Context.View.hide(context, {:all_but, 2..3})) == [text(2), text(3)]
      assert seen.(Context.View.hide(context, {:all_but, 1..5})) == seen.(context)
      assert seen.(Context.View.hide(context, {:all_but, 4..4})) == [text(4)]

      # The originals, and the log of the others, are as they were.
      assert numbers(context) == [1, 2, 3, 4, 5]
      assert numbers(Context.View.hide(context, {:all_but_last, 2})) == [1, 2, 3, 4, 5]
    end

    test "old iterations" do
      now = DateTime.utc_now()

      context =
        Enum.reduce([7200, 3600, 0], nil, fn ago, context ->
          at = DateTime.add(now, -ago, :second)

          if context,
            do:
              context
              |> Context.add_assistant_message("ok", [], at: at)
              |> Context.add_user_message("#{ago}", at: at),
            else: Context.new("#{ago}", at: at)
        end)

      users = fn context ->
        for %{role: :user, content: text} <- Context.to_messages(context), do: text
      end

      assert users.(Context.View.hide(context, {:older_than, 5400}, at: now)) == ["3600", "0"]

      assert users.(Context.View.hide(context, {:older_than, 10_000}, at: now)) == [
               "7200",
               "3600",
               "0"
             ]

      assert users.(context) == ["7200", "3600", "0"]
    end

    test "summaries and metadata" do
      context = iterations(3)
      assert Context.View.summary(context, 1) == nil
      summarized = Context.View.mark_as_summarized(context, 1, "Summary 1")

      assert {Context.View.summary(summarized, 1), Context.View.summary(summarized, 2)} ==
               {"Summary 1", nil}

      assert Context.View.summary(context, 1) == nil
      refute Enum.any?(Context.to_messages(summarized), &(&1.content == text(1)))

      noted =
        context
        |> Context.put_iteration_metadata(1, :processed, true)
        |> Context.put_iteration_metadata(1, :map, %{nested: true})
        |> Context.put_iteration_metadata(1, :processed, "twice")

      assert Context.get_iteration(noted, 1).metadata == %{
               processed: "twice",
               map: %{nested: true}
             }

      assert Context.get_iteration(noted, 2).metadata == %{}
      assert Context.get_iteration(context, 1).metadata == %{}
    end

    test "contexts that it has stored" do
      result = fn id, text ->
        %{
          "role" => "user",
          "content" => [%{"type" => "tool_result", "tool_use_id" => id, "content" => text}]
        }
      end

      calls = for id <- ["1", "2"], do: %{"id" => id, "name" => "add", "arguments" => %{"a" => 2}}

      messages = [
        %{"role" => "system", "content" => "Help"},
        %{"role" => "user", "content" => "2 + 3"},
        %{"role" => "assistant", "content" => "", "tool_calls" => calls},
        result.("1", ~s({"result":5})),
        result.("2", ~s({"error":"no"}))
      ]

      iterations = [
        %{
          "number" => 1,
          "messages" => messages,
          "tool_calls" => calls,
          "started_at" => "2025-11-12T06:23:31Z",
          "completed_at" => nil,
          "metadata" => %{"cumulative_tokens" => %{"total_tokens" => 4}}
        },
        %{
          "number" => 2,
          "messages" => [%{"role" => "assistant", "content" => "Five", "tool_calls" => nil}],
          "tool_calls" => [],
          "metadata" => %{}
        }
      ]

      {:ok, context} = Context.create(%{iterations: iterations, current_iteration: 2})

      assert [
               %{role: :system},
               %{role: :user, content: "2 + 3"},
               %{role: :assistant, tool_calls: [%{id: "1"}, %{id: "2"}]},
               %{
                 role: :user,
                 content: [%{content: ~s({"result":5})}, %{content: ~s({"error":"no"})}]
               },
               %{role: :assistant, content: "Five"}
             ] = Context.to_messages(context)

      assert Context.pending_tool_calls(context) == []

      assert %{metadata: %{"cumulative_tokens" => %{"total_tokens" => 4}}} =
               Context.get_iteration(context, 1)

      assert Context.Tokens.get_cumulative_tokens(context).total_tokens == 0
      assert {:ok, _request} = Context.request(context, :anthropic)

      # One that was cut short: what it waits for can be answered.
      cut = [%{hd(iterations) | "messages" => Enum.take(messages, 3)}]
      {:ok, context} = Context.create(%{iterations: cut, current_iteration: 1})
      assert [%{id: "1"}, %{id: "2"}] = Context.pending_tool_calls(context)
      answered = Context.add_tool_results(context, [{"1", {:ok, 5}}, {"2", {:error, "no"}}])
      assert answered.current_iteration == 2
    end

    test "tools that are executed by themselves" do
      alias AshAgent.Runtime.ToolExecutor

      tools = [
        %{
          name: :greet,
          description: "Greets",
          function: fn %{name: name}, _ -> {:ok, %{greeting: "Hello, #{name}!"}} end
        },
        %{
          name: :fail,
          description: "Fails",
          function: fn _, _ -> {:error, "Something went wrong"} end
        },
        %{
          name: :needs,
          description: "Needs",
          function: fn arguments, _ -> {:ok, arguments} end,
          parameters: %{"required" => ["field"]}
        },
        %{name: :plain, description: "Plain", function: fn _ -> 1 end}
      ]

      calls = [
        %{id: "1", name: :greet, arguments: %{name: "Alice"}},
        %{id: "2", name: :nonexistent, arguments: %{}},
        %{id: "3", name: :fail, arguments: %{}},
        %{id: "4", name: :needs, arguments: %{}},
        %{id: "5", name: :plain, arguments: %{}}
      ]

      who = %{agent: __MODULE__, domain: nil, actor: nil, tenant: nil}

      assert [
               %{id: "1", result: {:ok, %{greeting: "Hello, Alice!"}}},
               %{id: "2", result: {:error, "unknown tool" <> _}},
               %{id: "3", result: {:error, "Something went wrong"}},
               %{id: "4", result: {:error, "the required argument" <> _}},
               %{id: "5", result: {:ok, 1}}
             ] = ToolExecutor.execute_tools(calls, tools, who)

      assert ToolExecutor.execute_tools([], tools, who) == []
    end

    test "budgets" do
      context = iterations(10)
      estimate = Context.Tokens.count_tokens(context, method: :estimate)
      assert is_integer(estimate) and estimate > 10
      refute Context.Tokens.budget(context, estimate).exceeded?
      assert Context.Tokens.budget(context, estimate - 1).exceeded?
      assert Context.Tokens.budget(context, estimate + 50).remaining == 50
      assert Context.Tokens.budget(context, estimate).remaining == 0
      assert Context.Tokens.budget(context, 1).remaining == 0
      assert Context.Tokens.budget(context, estimate).share == 1.0
      assert Context.Tokens.budget(context, estimate * 2).share == 0.5
      assert Context.Tokens.budget(context, 1).share == estimate / 1

      # Longer messages count more, which they did not there.
      assert Context.Tokens.count_tokens(Context.new(text(1)), method: :estimate) >
               Context.Tokens.count_tokens(Context.new("x"), method: :estimate)
    end
  end

  describe "the guide" do
    @old ~w(new create create! update update! add_assistant_message add_tool_results extract_tool_calls update_tool_calls_timing
            add_llm_call_timing to_messages exceeded_max_iterations? get_iteration add_token_usage get_cumulative_tokens
            keep_last_iterations remove_old_iterations get_iteration_range count_iterations mark_as_summarized is_summarized? get_summary
            update_iteration_metadata exceeds_token_budget? tokens_remaining budget_utilization estimate_token_count)

    defp guide, do: File.read!("guides/coming-from-ash-agent.md")

    test "has every function of the old context, and names functions that exist" do
      [_, section] = String.split(guide(), "## `AshAgent.Context`")
      [section | _] = String.split(section, "\n## ")

      rows =
        for [_row, old, new] <- Regex.scan(~r/^\| (.+?) \| (.+) \|$/m, section),
            old != "ash_agent",
            do: {old, new}

      for name <- @old do
        row = Enum.find(rows, fn {old, _new} -> old =~ ~r/`#{Regex.escape(name)}[\/(]/ end)
        assert row, "#{name} is not in the guide"
        {_old, new} = row
        if new =~ ~r/^the same/, do: assert(exported?(name), "#{name} is not the same")
      end

      for {_old, new} <- rows, [_all, name] <- Regex.scan(~r/`([a-z_]+[?!]?)[\/(]/, new) do
        assert exported?(name), "there is no #{name}"
      end
    end

    defp exported?(name) do
      Enum.any?(Context.__info__(:functions), fn {function, _arity} ->
        to_string(function) == name
      end)
    end

    @tag :ash
    @tag integrations: ["Ash"]
    test "runs, and its examples give what it says" do
      assert Guide.run(guide()) == 7
    end
  end
end
