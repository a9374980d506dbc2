defmodule AshAgent.Integration.ComingFromAshAgentTest do
  # What ash_agent has stored, and the guide.
  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.TestSupport.Guide

  test "contexts that ash_agent has stored are read" do
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

  describe "the guide" do
    @old ~w(new create create! update update! add_assistant_message add_tool_results extract_tool_calls update_tool_calls_timing
            add_llm_call_timing to_messages exceeded_max_iterations? get_iteration add_token_usage get_cumulative_tokens
            keep_last_iterations remove_old_iterations get_iteration_range count_iterations mark_as_summarized is_summarized? get_summary
            update_iteration_metadata exceeds_token_budget? tokens_remaining budget_utilization estimate_token_count)

    defp guide(page), do: File.read!("guides/#{page}.md")

    test "has every function of the old context, and names functions that exist" do
      [_, section] = String.split(guide("coming-from-ash-agent-context"), "## `AshAgent.Context`")

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
      for page <- ~w(coming-from-ash-agent coming-from-ash-agent-context coming-from-ash-ai) do
        # Those with ash_ai are not run without it.
        guide =
          Regex.replace(
            ~r/```elixir\ndefmodule [^`]*extensions: \[AshAi\].*?^```\n/ms,
            guide(page),
            ""
          )

        results = length(Regex.scan(~r/^#=> /m, guide))
        assert results > 0
        assert Guide.run(guide) == results, page
      end
    end
  end
end
