defmodule AshAgent.LLM.OpenAICompatible do
  @moduledoc """
  A client for servers that speak OpenAI's `/v1/chat/completions`: vLLM, llama.cpp, OpenRouter, Groq, DeepSeek, Azure and
  many others, and OpenAI itself, for which `AshAgent.LLM.OpenAIResponses` is the newer one.

      llm = {AshAgent.LLM.OpenAICompatible, base_url: "http://127.0.0.1:8000/v1", model: "qwen3"}
      {:ok, result} = AshAgent.Runtime.run(AshAgent.Context.new("Hello!"), llm: llm)

      llm =
        AshAgent.LLM.OpenAICompatible.new(
          model: "gpt-4o-mini",
          api_key: fn -> System.fetch_env!("OPENAI_API_KEY") end,
          body: %{temperature: 0}
        )

  Streaming requests ask for the token usage (`stream_options`). For a server that does not know that field, pass
  `body: %{stream_options: nil}`. For streaming, timeouts, retries and secrets see `AshAgent.LLM`.
  """

  alias AshAgent.LLM.Client

  @schema Client.schema(
            AshAgent.Options.schema([
              {:dialect, {:in, [:auto, nil, :openai, :deepseek, :openrouter, :vllm]},
               [default: :auto],
               "how the server writes reasoning, see `AshAgent.Context.request/3`. `:auto` picks the dialect of known hosts."}
            ]),
            base_url: "https://api.openai.com/v1",
            provider: :openai_chat
          )

  # The dialects of known hosts; the guide on thinking has the sources.
  @dialects %{
    "api.openai.com" => :openai,
    "api.groq.com" => :openai,
    "api.deepseek.com" => :deepseek,
    "api.moonshot.ai" => :deepseek,
    "api.moonshot.cn" => :deepseek,
    "api.z.ai" => :deepseek,
    "openrouter.ai" => :openrouter
  }

  use Client, @schema

  @impl Client
  def check(opts), do: Client.put_dialect(opts, :openai_chat, @dialects)

  @impl Client
  def call(opts, tools, mode) do
    body = Client.put_functions(%{"model" => opts[:model]}, tools)

    body =
      if mode == :stream,
        do: Map.merge(body, %{"stream" => true, "stream_options" => %{"include_usage" => true}}),
        else: body

    %{path: "/chat/completions", body: body}
  end
end
