defmodule AshAgent.LLM.OpenAIResponses do
  @moduledoc """
  A client for OpenAI's `/v1/responses`, and for servers that speak it.

      llm =
        AshAgent.LLM.OpenAIResponses.new(
          model: "gpt-5",
          api_key: fn -> System.fetch_env!("OPENAI_API_KEY") end,
          body: %{reasoning: %{effort: "low"}}
        )

  Each request contains the whole conversation. Reasoning goes back by its id, as OpenAI stores its answers. If it should not, models
  have to send their reasoning encrypted: `body: %{store: false, include: ["reasoning.encrypted_content"]}`.

  Tool schemas are sent as they are, with `strict: false`. With `async_tools: true`, tools with `late: true` are `async`: the model goes on while such a call
  is open, and its output comes in any later request, in the place of a message. Models before the GPT-6 family refuse the field. For streaming, timeouts, retries and secrets see `AshAgent.LLM`.
  """

  alias AshAgent.LLM.Client

  @schema Client.cache_diagnostics(
            "whether to ask what kept a request from being read from the prompt cache (models from GPT-5.6 on), see " <>
              "`AshAgent.Context.Audit.account/2`."
          )
          |> Keyword.put(:async_tools,
            type: :boolean,
            default: false,
            doc: "whether the model knows tools that are `async`, see above."
          )
          |> Client.schema(base_url: "https://api.openai.com/v1", provider: :openai_responses)

  use Client, @schema

  @impl Client
  def call(opts, tools, mode) do
    body =
      %{"model" => opts[:model]}
      |> Client.put_tools(tools, &function(&1, opts[:async_tools]))
      |> Client.put_stream(mode)

    %{path: "/responses", body: body}
  end

  # There is nothing to compare the first request with.
  @impl Client
  def compare(call, nil), do: call

  def compare(call, id),
    do: put_in(call, [:body, "prompt_cache_options"], %{"comparison_response_id" => id})

  # Strict is the default here, and refuses schemas with optional properties.
  defp function(tool, async?) do
    own = if async? && tool[:late], do: %{"async" => true}, else: %{}
    own = Map.merge(own, %{"type" => "function", "strict" => false})
    tool |> Client.tool("parameters") |> Map.merge(own)
  end
end
