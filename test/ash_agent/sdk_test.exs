defmodule AshAgent.SdkTest do
  use ExUnit.Case, async: true

  # The vendors' own SDKs are the judges: of what an answer says, and of what goes back of it. `bin/sdk` makes their data.

  alias AshAgent.Context.JSON
  alias AshAgent.TestSupport.{Recorded, Sdk}

  defp differences(provider) do
    %{"answers" => expected} =
      "test/fixtures/sdk/#{provider}.json" |> File.read!() |> JSON.decode!()

    for %{provider: ^provider, name: name, type: type, body: body} <- Recorded.answers(),
        expected = expected[name] || flunk("#{name} is new: run bin/sdk"),
        {path, sdk, ours, reason} <- Sdk.differences(provider, expected, type, body),
        do: {name, path, sdk, ours, reason}
  end

  for provider <- [
        :anthropic,
        :openai_chat,
        :openai_responses,
        :gemini,
        :bedrock,
        :mistral,
        :ollama
      ] do
    test "answers for #{inspect(provider)} are read and go back as with the vendor's SDK" do
      unmeant =
        for {_, _, _, _, nil} = difference <- differences(unquote(provider)), do: difference

      assert unmeant == []
    end
  end
end
