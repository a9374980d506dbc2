defmodule AshAgent.TestSupport.RequestCheckerTest do
  # The checkers refuse nothing that a provider's server took.
  use ExUnit.Case, async: true

  alias AshAgent.TestSupport.RequestChecker

  # Beside the repository where it is developed, absent elsewhere.
  conversations = Path.expand("../../../../shared/conversations", __DIR__)

  for {file, provider} <- [
        {"10-anthropic-thinking-tool.json", :anthropic},
        {"13-openai-chat-agents.json", :openai_chat},
        {"15-gemini-signatures.json", :gemini},
        {"18-bedrock-reasoning.json", :bedrock}
      ],
      path = Path.join(conversations, file),
      File.exists?(path) do
    test "#{provider}: finds nothing in the recorded #{file}" do
      %{"body" => body} = unquote(path) |> File.read!() |> AshAgent.Context.JSON.decode!()
      assert_good(body, unquote(provider))
    end
  end

  session = Path.join(conversations, "07-tau-airline-2-1.json")

  if File.exists?(session) do
    test "openai_chat: finds the tool names and the empty results of the recorded session, nothing else" do
      body = unquote(session) |> File.read!() |> AshAgent.Context.JSON.decode!()

      assert [:blank_text, :unknown_key] =
               body |> rules(:openai_chat, []) |> Enum.uniq() |> Enum.sort()

      messages =
        for message <- body["messages"] do
          case message do
            %{"role" => "tool", "content" => ""} ->
              message |> Map.put("content", "(no output)") |> Map.delete("name")

            %{"role" => "tool"} ->
              Map.delete(message, "name")

            _ ->
              message
          end
        end

      assert_good(%{"messages" => messages}, :openai_chat)
    end
  end

  defp assert_good(body, provider, opts \\ []) do
    findings = RequestChecker.validate_request(body, provider, opts)
    assert findings == [], RequestChecker.format(findings)
  end

  defp rules(body, provider, opts),
    do: body |> RequestChecker.validate_request(provider, opts) |> Enum.map(& &1.rule)
end
