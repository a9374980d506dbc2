defmodule AshAgent.Context.RequestsTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context

  defp answered(result) do
    Context.new("Look at this")
    |> Context.add_assistant_message(nil, [%{id: "call_1", name: "look"}])
    |> Context.add_tool_results([{"call_1", {:ok, result}}])
  end

  describe "fields that are ready-made" do
    test "are sent as terms are, by every provider" do
      context = Context.new("Hi")
      tools = [%{name: :add, about: "Zürich \"1\"", at: ~D[2026-01-01]}]

      for provider <- Context.Requests.providers() do
        send =
          &(context
            |> Context.encode_request!(provider, body: %{tools: &1})
            |> IO.iodata_to_binary())

        assert send.(Context.JSON.fragment(tools)) == send.(tools)
      end
    end

    test "must be one JSON value" do
      for text <- ["", "[1", ~s(1,"messages":[]), <<255>>] do
        body = %{tools: %Context.JSON.Fragment{text: text}}
        assert {:error, error} = Context.encode_request(Context.new("Hi"), :ollama, body: body)
        assert Exception.message(error) =~ "one JSON value"
      end
    end
  end

  describe "numbers that no float can hold" do
    test "are sent as texts, and refused in fields of the caller" do
      number = Integer.pow(10, 400)
      text = Integer.to_string(number)
      context = answered(%{n: number})
      assert {:ok, request} = Context.request(context, :gemini)
      [_, _, %{"parts" => [%{"functionResponse" => result}]}] = request["contents"]
      assert result["response"] == %{"n" => text}

      assert [%{change: :number_to_text, from: ^text, iteration: 1, position: 2}] =
               Context.request_report(context, :gemini)

      assert Context.request_report(context, :anthropic) == []
      body = %{generationConfig: %{maxOutputTokens: number}}
      path = ["generationConfig", "maxOutputTokens"]

      assert {:error, %Context.Error{reason: {:invalid, ^path, _}} = error} =
               Context.encode_request(context, :gemini, body: body)

      assert Exception.message(error) =~ "a number that a float can hold"

      assert [%{tool_calls: [%{result: {:ok, %{n: ^number}}}]} | _] = Context.iterations(context)
      assert Context.equal?(Context.load!(Context.dump(context)), context)
    end
  end

  describe "request_report/3" do
    test "tells of the user message that some providers want at the end" do
      context = Context.new("Hi") |> Context.add_assistant_message("Hello!")

      assert Context.request_report(context, :gemini) ==
               [%{change: :added_message, from: "", to: "Continue.", iteration: 1, position: 2}]

      assert Context.request_report(context, :anthropic) == []
    end

    test "tells what is changed inside a tool result, for every provider" do
      context = answered([%{type: :file, media_type: "audio/x-none", data: "AAAA"}])

      for provider <- [
            :anthropic,
            :openai_chat,
            :openai_responses,
            :bedrock,
            :ollama,
            :mistral
          ] do
        # Mistral takes ids of nine letters and digits only.
        report = Context.request_report(context, provider)
        report = Enum.reject(report, &(provider == :mistral and &1.change == :renamed_id))
        assert [%{change: :part_to_text, from: "file", iteration: 1, position: 2}] = report
      end
    end

    test "tells of blank texts inside a tool result" do
      context = answered([%{type: :text, text: " "}, %{type: :text, text: "seen"}])

      for provider <- [:anthropic, :openai_responses, :bedrock, :gemini] do
        assert [%{change: :dropped_blank_text, from: " ", to: nil, position: 2}] =
                 Context.request_report(context, provider)
      end
    end

    test "tells of the system prompt, where it is shown" do
      parts = [
        %{type: :text, text: " "},
        %{type: :text, text: <<"Be ", 0xFF>>},
        %{type: :text, text: "!"}
      ]

      context = Context.new("Hi", system_prompt: parts)

      for provider <- AshAgent.TestSupport.RequestChecker.providers() do
        assert [
                 %{change: :dropped_blank_text, from: " ", to: nil, iteration: 1, position: 0},
                 %{change: :replaced_bytes, to: "Be \uFFFD", iteration: 1, position: 0}
               ] = Context.request_report(context, provider)
      end

      masked =
        Context.new("Hi", system_prompt: "Call Bob.") |> Context.View.put_masks([{"Bob", "x"}])

      assert [%{change: :masked_text, from: "system", position: 0}] =
               Context.request_report(masked, :gemini)
    end

    test "tells what becomes of blocks in another provider's system prompt" do
      cached = %{"type" => "text", "text" => "Hi", "cache_control" => %{"type" => "ephemeral"}}
      unknown = %{"type" => "guard", "text" => "Be kind"}

      body = %{
        "system" => [cached, unknown],
        "messages" => [%{"role" => "user", "content" => "a"}]
      }

      context = Context.Import.from_request!(body, :anthropic)
      assert Context.request_report(context, :anthropic) == []

      for provider <- AshAgent.TestSupport.RequestChecker.providers() -- [:anthropic] do
        assert %{change: :part_to_text, to: "Be kind", position: 0} =
                 context |> Context.request_report(provider) |> Enum.find(&(&1.position == 0))

        assert inspect(Context.request!(context, provider)) =~ "Be kind"
      end
    end

    test "is empty for what goes back as it was imported" do
      body = %{
        "messages" => [
          %{"role" => "user", "content" => [%{"type" => "text", "text" => "hi"}]},
          %{
            "role" => "assistant",
            "content" => [
              %{"type" => "thinking", "thinking" => "hm", "signature" => "s"},
              %{"type" => "text", "text" => "ho ", "citations" => []}
            ]
          },
          %{"role" => "user", "content" => "go on"}
        ]
      }

      {:ok, context, %{repairs: []}} = Context.Import.from_request(body, :anthropic)
      assert Context.request!(context, :anthropic) == body
      assert Context.request_report(context, :anthropic, model: "another") == []
      assert [%{change: :dropped_thinking}] = Context.request_report(context, :gemini)
    end
  end
end
