defmodule AshAgent.LLM.Mistral do
  @moduledoc """
  A client for Mistral's `/v1/chat/completions`.

      llm =
        AshAgent.LLM.Mistral.new(
          model: "mistral-large-latest",
          api_key: fn -> System.fetch_env!("MISTRAL_API_KEY") end
        )

  For streaming, timeouts, retries and secrets see `AshAgent.LLM`.
  """

  alias AshAgent.LLM.Client

  @schema Client.schema([], base_url: "https://api.mistral.ai/v1", provider: :mistral)

  use Client, @schema

  @impl Client
  def call(opts, tools, mode) do
    body = %{"model" => opts[:model]} |> Client.put_functions(tools) |> Client.put_stream(mode)
    %{path: "/chat/completions", body: body}
  end
end
