defmodule AshAgent.SdkTest do
  use ExUnit.Case, async: true

  # The vendors' own SDKs are the judges: of what an answer says, and of what goes back of it. `bin/sdk` makes their data.

  alias AshAgent.Context.JSON
  alias AshAgent.Test.{Recorded, Sdk}

  @names [
    anthropic: "Anthropic",
    openai_chat: "OpenAI chat",
    openai_responses: "OpenAI Responses",
    gemini: "Gemini",
    bedrock: "Bedrock",
    mistral: "Mistral",
    ollama: "Ollama"
  ]

  defp differences(provider) do
    %{"answers" => expected} =
      "test/fixtures/sdk/#{provider}.json" |> File.read!() |> JSON.decode!()

    for %{provider: ^provider, name: name, type: type, body: body} <- Recorded.answers(),
        expected = expected[name] || flunk("#{name} is new: run bin/sdk"),
        {path, sdk, ours, reason} <- Sdk.differences(provider, expected, type, body),
        do: {name, path, sdk, ours, reason}
  end

  for {provider, name} <- @names do
    test "answers of #{name} are read and go back as with its own SDK" do
      unmeant =
        for {_, _, _, _, nil} = difference <- differences(unquote(provider)), do: difference

      assert unmeant == []
    end
  end

  test "guides/responses.md names the providers for which nothing differs" do
    [_, named] =
      Regex.run(
        ~r/^Exactly what its own SDK would send back: (.+)\.$/m,
        File.read!("guides/responses.md")
      )

    named = named |> String.split([", ", " and "]) |> Enum.sort()
    same = for {provider, name} <- @names, differences(provider) == [], do: name
    assert named -- same == []
  end
end
