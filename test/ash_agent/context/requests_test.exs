defmodule AshAgent.Context.RequestsTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context

  defp answered(result) do
    Context.new("Look at this")
    |> Context.add_assistant_message(nil, [%{id: "call_1", name: "look"}])
    |> Context.add_tool_results([{"call_1", {:ok, result}}])
  end

  describe "request_report/3" do
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

      {:ok, context, %{repairs: []}} = Context.from_request(body, :anthropic)
      assert Context.request!(context, :anthropic) == body
      assert Context.request_report(context, :anthropic, model: "another") == []
      assert [%{change: :dropped_thinking}] = Context.request_report(context, :gemini)
    end
  end
end
