defmodule AshAgent.LLM.Ollama do
  @moduledoc """
  A client for Ollama's `/api/chat`.

      llm = {AshAgent.LLM.Ollama, model: "llama3.2", body: %{think: false, options: %{num_ctx: 16_384}}}
      {:ok, result} = AshAgent.Runtime.run(AshAgent.Context.new("Hello!"), llm: llm)

  Without `num_ctx`, Ollama silently cuts off the beginning of longer conversations. For streaming, timeouts, retries and secrets see
  `AshAgent.LLM`.
  """

  alias AshAgent.LLM.Client

  @schema Client.schema([], base_url: "http://127.0.0.1:11434", provider: :ollama)

  use Client, @schema

  # It streams unless told otherwise.
  @impl Client
  def call(opts, tools, mode) do
    body = Client.put_functions(%{"model" => opts[:model], "stream" => mode == :stream}, tools)
    %{path: "/api/chat", body: body}
  end
end
