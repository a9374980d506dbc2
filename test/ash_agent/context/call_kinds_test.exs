defmodule AshAgent.Context.CallKindsTest do
  @moduledoc "Calls of every kind: a slot each, and an answer in the form of the kind."

  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.TestSupport.RequestChecker

  @png "iVBORw0KGgo="

  # Each kind: its item, its answer's item, what its call and its result are.
  @kinds "test/fixtures/call_kinds.json"
         |> File.read!()
         |> Context.JSON.decode!()
         |> Map.new(&{String.to_atom(&1["kind"]), &1})

  defp body(kind, more \\ []) do
    %{"call" => call, "output" => output} = @kinds[kind]
    reasoning = %{"type" => "reasoning", "id" => "rs_1", "summary" => []}
    reasoning = Map.put(reasoning, "encrypted_content", "e")
    %{"input" => [%{"role" => "user", "content" => "Go"}, reasoning, call, output] ++ more}
  end

  defp pending(kind) do
    body = %{"input" => [%{"role" => "user", "content" => "Go"}, @kinds[kind]["call"]]}
    Context.Import.from_request!(body, :openai_responses)
  end

  defp id(:mcp_approval), do: "mcpr_1"
  defp id(_kind), do: "call_1"

  defp judge(context, provider, opts \\ []) do
    body = Context.request!(context, provider, opts)
    assert RequestChecker.format(RequestChecker.validate_request(body, provider)) == ""
    body
  end

  defp last(context, provider \\ :openai_responses, opts \\ []),
    do: context |> judge(provider, opts) |> Map.fetch!("input") |> List.last()

  for kind <- Map.keys(@kinds) do
    @kind kind

    describe "#{kind}" do
      test "is a call with a slot, in the iteration of its answer" do
        context = Context.Import.from_request!(body(@kind), :openai_responses)

        assert [%{kind: @kind, result: result} = call] =
                 Context.get_iteration(context, 1).tool_calls

        shown = Map.take(call, [:name, :arguments, :kind])
        shown = Map.put(shown, :result, result) |> Context.JSON.encode() |> Context.JSON.decode!()
        assert shown == Map.drop(@kinds[@kind], ["call", "output"])
        assert context.current_iteration == 2
        assert judge(context, :openai_responses) == body(@kind)
      end

      test "goes back in its form when its message is made anew, and from storage, and from attributes" do
        context = Context.Import.from_request!(body(@kind), :openai_responses)
        masked = Context.View.put_masks(context, [{"nowhere to be found", "x"}])
        again = Context.load!(Context.dump(masked))
        made = context |> Context.to_map() |> Context.create!()

        for context <- [masked, again, made] do
          assert %{"input" => [_, %{"type" => "reasoning"}, call, output]} =
                   judge(context, :openai_responses)

          assert %{"call" => ^call, "output" => ^output} = @kinds[@kind]
        end
      end

      test "is pending, can be interrupted, and views leave no half of it" do
        context = pending(@kind)
        assert [%{id: id, kind: @kind}] = Context.pending_tool_calls(context)
        assert id == id(@kind)

        assert {:error, %{reason: {:pending_tool_calls, [^id]}}} =
                 Context.request(context, :openai_responses)

        judge(context, :openai_responses, pending: :interrupt)

        interrupted = context |> Context.interrupt() |> Context.add_user_message("Go on")
        judge(interrupted, :openai_responses)

        assert judge(Context.View.hide(interrupted, {:all_but_last, 1}), :openai_responses)[
                 "input"
               ]
               |> length() == 1

        assert judge(interrupted, :openai_responses, since: 2)["input"] |> length() == 1

        for provider <- RequestChecker.providers(),
            do: judge(interrupted, provider, cache: cache(provider))
      end

      test "takes any answer" do
        context = pending(@kind)

        parts = [
          %{type: :text, text: "words"},
          %{type: :image, media_type: "image/png", data: @png}
        ]

        for result <- [
              {:ok, "fine"},
              {:ok, nil},
              {:ok, %{a: 1}},
              {:ok, []},
              {:ok, parts},
              {:error, :broken},
              {:error, ""}
            ] do
          answered = Context.add_tool_results(context, [{id(@kind), result}])
          for provider <- RequestChecker.providers(), do: judge(answered, provider)
        end

        denied = Context.Calls.deny_tool_call(context, id(@kind), "no")
        for provider <- RequestChecker.providers(), do: judge(denied, provider)
      end

      test "is a function for every provider that does not know it, and the report says so" do
        context = Context.Import.from_request!(body(@kind), :openai_responses)

        for provider <- RequestChecker.providers() -- [:openai_responses] do
          judge(context, provider)
          changes = for %{change: change} <- Context.request_report(context, provider), do: change

          assert :call_to_function in changes ==
                   not (provider == :openai_chat and @kind == :custom)
        end
      end
    end
  end

  defp cache(provider) when provider in [:anthropic, :bedrock], do: :auto
  defp cache(_provider), do: false

  describe "answers" do
    test "an approval answers a request for one, closed by default" do
      call = %{id: "mcpr_1", kind: :mcp_approval, name: "delete", arguments: %{path: "/"}}
      context = Context.new("Go") |> Context.add_assistant_message(nil, [call])

      approved = Context.Calls.approve_tool_call(context, "mcpr_1", by: "ann")
      assert Context.pending_tool_calls(approved) == []
      assert %{"type" => "mcp_approval_response", "approve" => true} = last(approved)

      for result <- [{:ok, "yes"}, {:ok, nil}, {:ok, %{approve: "true"}}, {:error, "no"}] do
        answered = Context.add_tool_results(context, [{"mcpr_1", result}])
        assert %{"approve" => false} = last(answered)
      end

      answered =
        Context.add_tool_results(context, [{"mcpr_1", {:ok, %{approve: true, reason: "fine"}}}])

      assert %{"approve" => true, "reason" => "fine"} = last(answered)

      assert %{"approve" => false, "reason" => "denied: no"} =
               last(Context.Calls.deny_tool_call(context, "mcpr_1", "no"))
    end

    test "whoever approves an action on a screen acknowledges its safety checks" do
      check = %{"id" => "sc_1", "code" => "c", "message" => "Sure?"}

      call = %{
        id: "call_1",
        kind: :computer,
        arguments: %{type: "screenshot"},
        provider_metadata: %{
          provider: :openai_responses,
          id: "cu_1",
          pending_safety_checks: [check]
        }
      }

      context = Context.new("Go") |> Context.add_assistant_message(nil, [call])
      answer = [{"call_1", {:ok, [%{type: :image, media_type: "image/png", data: @png}]}}]

      refute Map.has_key?(
               last(Context.add_tool_results(context, answer)),
               "acknowledged_safety_checks"
             )

      approved =
        context
        |> Context.Calls.approve_tool_call("call_1", by: "ann")
        |> Context.add_tool_results(answer)

      assert %{"acknowledged_safety_checks" => [^check]} = last(approved)

      assert %{"acknowledged_safety_checks" => [^check]} =
               approved |> Context.View.put_masks([{"zzz", ""}]) |> last()
    end

    test "words that a screenshot has no place for follow it" do
      call = %{id: "call_1", kind: :computer, arguments: %{type: "screenshot"}}

      context =
        Context.new("Go")
        |> Context.add_assistant_message(nil, [call])
        |> Context.interrupt("stopped")

      assert %{"input" => [_, %{"type" => "computer_call"}, output, words]} =
               judge(context, :openai_responses)

      assert %{
               "output" => %{
                 "type" => "computer_screenshot",
                 "image_url" => "data:image/png" <> _
               }
             } = output

      assert %{"role" => "user", "content" => [%{"text" => "Error: stopped"}]} = words

      assert %{change: :moved_part} =
               List.last(Context.request_report(context, :openai_responses))
    end

    test "a command's output is taken in any form" do
      call = %{id: "call_1", kind: :shell, arguments: %{commands: ["ls"]}}
      context = Context.new("Go") |> Context.add_assistant_message(nil, [call])

      output = fn result ->
        last(Context.add_tool_results(context, [{"call_1", result}]))["output"]
      end

      assert output.({:ok, "a"}) == [
               %{
                 "stdout" => "a",
                 "stderr" => "",
                 "outcome" => %{"type" => "exit", "exit_code" => 0}
               }
             ]

      assert [%{"stdout" => "", "stderr" => "boom", "outcome" => %{"exit_code" => 1}}] =
               output.({:error, "boom"})

      assert [%{"stdout" => "a", "stderr" => "b", "outcome" => %{"exit_code" => 2}}] =
               output.({:ok, %{stdout: "a", stderr: "b", exit_code: 2}})
    end
  end

  describe "a response" do
    alias AshAgent.Response

    for kind <- Map.keys(@kinds) do
      test "with a call of the kind #{kind} has it pending, and gives it back as it came" do
        kind = unquote(kind)
        %{"call" => item, "name" => name, "arguments" => arguments} = @kinds[kind]
        body = %{"id" => "resp_1", "status" => "completed", "output" => [item]}
        {:ok, whole} = Response.decode(:openai_responses, body)

        done = %{"type" => "response.output_item.done", "output_index" => 0, "item" => item}
        completed = %{"type" => "response.completed", "response" => Map.put(body, "output", [])}

        events =
          for event <- [done, completed], do: ["data: ", Context.JSON.encode(event), "\n\n"]

        {:ok, streamed, _} =
          :openai_responses |> Response.new() |> Response.feed(IO.iodata_to_binary(events))

        for response <- [whole, streamed] do
          context = "Go" |> Context.new() |> Context.add_response!(response)
          assert [%{kind: ^kind} = call] = Context.pending_tool_calls(context)
          assert %{name: ^name, arguments: ^arguments} = call
          interrupted = Context.interrupt(context)
          assert %{"input" => [_, ^item | _]} = judge(interrupted, :openai_responses)
        end
      end
    end

    test "of OpenAI's chat with a custom tool's call has it pending" do
      call = %{
        "id" => "c",
        "type" => "custom",
        "custom" => %{"name" => "sql", "input" => "SELECT 1"}
      }

      message = %{"role" => "assistant", "content" => nil, "tool_calls" => [call]}
      body = %{"choices" => [%{"message" => message, "finish_reason" => "tool_calls"}]}
      {:ok, response} = Response.decode(:openai_chat, body)
      context = "Go" |> Context.new() |> Context.add_response!(response)

      assert [%{kind: :custom, name: "sql", arguments: "SELECT 1"}] =
               Context.pending_tool_calls(context)
    end
  end

  describe "custom tools" do
    test "stay custom between OpenAI's two APIs" do
      call = %{id: "call_1", kind: :custom, name: "sql", arguments: "SELECT 1"}

      context =
        Context.new("Go")
        |> Context.add_assistant_message(nil, [call])
        |> Context.add_tool_results([{"call_1", {:ok, "1"}}])

      assert %{"messages" => [_, %{"tool_calls" => [called]}, _]} =
               body = judge(context, :openai_chat)

      assert called == %{
               "id" => "call_1",
               "type" => "custom",
               "custom" => %{"name" => "sql", "input" => "SELECT 1"}
             }

      imported = Context.Import.from_request!(body, :openai_chat)

      assert [%{kind: :custom, arguments: "SELECT 1"}] =
               Context.get_iteration(imported, 1).tool_calls

      assert %{"input" => [_, %{"type" => "custom_tool_call", "input" => "SELECT 1"}, _]} =
               judge(imported, :openai_responses)

      assert %{"messages" => [_, %{"content" => [%{"input" => %{"input" => "SELECT 1"}}]}, _]} =
               judge(imported, :anthropic)
    end

    test "their arguments are text, also when it is JSON or empty" do
      for text <- [~s({"a":1}), "", "null"] do
        call = %{"id" => "c", "kind" => "custom", "name" => "sql", "arguments" => text}
        context = Context.new("Go") |> Context.add_assistant_message(nil, [call])
        assert [%{arguments: ^text, kind: :custom}] = Context.extract_tool_calls(context)
        assert Context.equal?(Context.load!(Context.dump(context)), context)
      end

      assert_raise Context.Error, fn ->
        call = %{id: "c", kind: :custom, name: "sql", arguments: %{a: 1}}
        Context.new("Go") |> Context.add_assistant_message(nil, [call])
      end
    end

    test "a kind that is none of ours is the application's own key" do
      call = %{id: "c", kind: :urgent, name: "get", arguments: %{}}
      context = Context.new("Go") |> Context.add_assistant_message(nil, [call])
      assert Context.extract_tool_calls(context) == [call]
      assert Context.load!(Context.dump(context)) |> Context.extract_tool_calls() == [call]
    end
  end

  describe "what the provider answers itself" do
    test "is a part, and pairs stay" do
      served = [
        %{
          "type" => "shell_call",
          "id" => "sh_1",
          "call_id" => "call_1",
          "status" => "completed",
          "environment" => %{"type" => "container_reference", "container_id" => "c"},
          "action" => %{"commands" => ["ls"]}
        },
        %{
          "type" => "shell_call_output",
          "id" => "sho_1",
          "call_id" => "call_1",
          "output" => [
            %{
              "stdout" => "fox",
              "stderr" => "",
              "outcome" => %{"type" => "exit", "exit_code" => 0}
            }
          ]
        },
        %{
          "type" => "tool_search_call",
          "id" => "tsc_1",
          "arguments" => %{},
          "execution" => "server"
        },
        %{"type" => "tool_search_output", "id" => "tso_1", "execution" => "server", "tools" => []}
      ]

      body = %{
        "input" =>
          [%{"role" => "user", "content" => "Go"}] ++
            served ++ [%{"role" => "assistant", "content" => "Done"}]
      }

      context = Context.Import.from_request!(body, :openai_responses)
      assert Context.get_iteration(context, 1).tool_calls == []
      assert Context.request!(context, :openai_responses) == body

      types =
        for %{"type" => type} <-
              Context.View.put_masks(context, [{"fox", "x"}])
              |> Context.request!(:openai_responses)
              |> Map.fetch!("input"),
            do: type

      assert types == ["tool_search_call", "tool_search_output"]
    end
  end

  describe "what the API keeps" do
    @results [
      %{"type" => "function_call_output", "call_id" => "call_1", "output" => "72"},
      %{"type" => "custom_tool_call_output", "call_id" => "call_2", "output" => "1"}
    ]

    test "a request with results alone is imported and sent again" do
      for {key, option} <- [
            {"previous_response_id", :previous_response_id},
            {"conversation", :conversation}
          ] do
        body = %{
          key => "x_1",
          "input" => @results ++ [%{"role" => "user", "content" => "And now?"}]
        }

        assert {:ok, context, %{repairs: [], rest: rest}} =
                 Context.Import.from_request(body, :openai_responses)

        assert rest == %{key => "x_1"}

        assert [%{id: "call_1", name: "unknown"}, %{id: "call_2", kind: :custom}] =
                 Context.get_iteration(context, 1).tool_calls

        assert judge(context, :openai_responses, [{option, "x_1"}]) == body
        # Without it the request stands alone, and other providers can have it.
        for provider <- RequestChecker.providers(), do: judge(context, provider)

        assert judge(Context.View.put_masks(context, [{"72", "x"}]), :openai_responses, [
                 {option, "x_1"}
               ])["input"]
               |> hd()
               |> Map.fetch!("output") == "x"
      end
    end

    test "without it, results without calls are orphans" do
      assert {:ok, _, %{repairs: [%{repair: :dropped_orphan_result}, _]}} =
               Context.Import.from_request(%{"input" => @results}, :openai_responses)
    end

    test "only what came after the model's last words is sent, or after those of an iteration" do
      context =
        Context.new("Hi", system_prompt: "Be brief.")
        |> Context.add_assistant_message(nil, [%{id: "call_1", name: "get"}])
        |> Context.add_tool_results([{"call_1", {:ok, "72"}}])

      assert %{
               "instructions" => "Be brief.",
               "previous_response_id" => "resp_1",
               "input" => [%{"type" => "function_call_output"}]
             } = judge(context, :openai_responses, previous_response_id: "resp_1")

      later =
        context
        |> Context.add_assistant_message("Warm.", [])
        |> Context.add_user_message("And there?")

      assert %{"input" => [%{"role" => "user", "content" => "And there?"}]} =
               judge(later, :openai_responses, previous_response_id: "resp_2")

      assert %{
               "input" => [
                 %{"type" => "function_call_output"},
                 %{"role" => "assistant"},
                 %{"role" => "user"}
               ]
             } = judge(later, :openai_responses, previous_response_id: "resp_1", since: 1)

      assert Context.request_report(later, :openai_responses, conversation: "conv_1") == []
    end

    test "options for others are refused" do
      context = Context.new("Hi")

      for {provider, opts} <- [
            {:gemini, [previous_response_id: "r"]},
            {:anthropic, [conversation: "c"]},
            {:openai_chat, [conversation: "c"]},
            {:openai_responses, [previous_response_id: "r", conversation: "c"]},
            {:openai_responses, [conversation: " "]},
            {:openai_responses, [previous_response_id: 1]}
          ] do
        assert_raise ArgumentError, fn -> Context.request(context, provider, opts) end
      end

      assert_raise ArgumentError, fn ->
        Context.encode_request(context, :openai_responses,
          conversation: "c",
          body: %{conversation: "d"}
        )
      end
    end
  end
end
