defmodule AshAgent.LLM.Gemini do
  @moduledoc """
  A client for Google's Gemini API, `models/MODEL:generateContent`.

      llm =
        AshAgent.LLM.Gemini.new(
          model: "gemini-2.5-flash",
          api_key: fn -> System.fetch_env!("GEMINI_API_KEY") end,
          body: %{generationConfig: %{temperature: 0}}
        )

  For Vertex AI, pass its URL and a token:

      AshAgent.LLM.Gemini.new(
        model: "gemini-2.5-flash",
        base_url: "https://europe-west1-aiplatform.googleapis.com/v1/projects/PROJECT/locations/europe-west1/publishers/google",
        headers: [{"authorization", fn -> "Bearer " <> MyApp.Google.token() end}]
      )

  For streaming, timeouts, retries and secrets see `AshAgent.LLM`.
  """

  alias AshAgent.LLM.Client

  @schema Client.schema([],
            base_url: "https://generativelanguage.googleapis.com/v1beta",
            provider: :gemini
          )

  use Client, @schema

  @impl Client
  def call(opts, tools, mode) do
    path = path(opts[:model])
    body = declare(%{}, tools)

    if mode == :stream,
      do: %{path: path <> ":streamGenerateContent", query: "alt=sse", body: body},
      else: %{path: path <> ":generateContent", body: body}
  end

  # Tuned models have names with a folder.
  defp path(model) do
    name = if String.contains?(model, "/"), do: model, else: "models/" <> model
    "/" <> URI.encode(name, &(URI.char_unreserved?(&1) or &1 == ?/))
  end

  defp declare(body, []), do: body

  defp declare(body, tools) do
    functions = Enum.map(tools, &Client.tool(&1, "parametersJsonSchema"))
    Map.put(body, "tools", [%{"functionDeclarations" => functions}])
  end

  @impl Client
  def authorize(nil, _request, _opts), do: []
  def authorize(key, _request, _opts), do: [{"x-goog-api-key", key}]
end
