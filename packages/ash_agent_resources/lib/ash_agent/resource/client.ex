defmodule AshAgent.Resource.Client do
  @moduledoc false

  # The models that the option `client` names.

  alias AshAgent.LLM

  # The client, the variable with its key, and where its requests have `temperature`, and `max_tokens` under which name. The
  # client of Anthropic has an option for that.
  @providers %{
    "anthropic" => {LLM.Anthropic, "ANTHROPIC_API_KEY", [], nil},
    "openai" => {LLM.OpenAICompatible, "OPENAI_API_KEY", [], :max_completion_tokens},
    "mistral" => {LLM.Mistral, "MISTRAL_API_KEY", [], :max_tokens},
    "google" => {LLM.Gemini, "GOOGLE_API_KEY", [:generationConfig], :maxOutputTokens},
    "ollama" => {LLM.Ollama, nil, [:options], :num_predict},
    "amazon_bedrock" => {LLM.Bedrock, nil, [:inferenceConfig], :maxTokens}
  }

  @doc "`client model, options`, as `client {model, options}`."
  defmacro client(model, options) do
    quote do
      client({unquote(model), unquote(options)})
    end
  end

  @doc false
  # Returns the model, as `t:AshAgent.LLM.t/0`, or words that explain why there is none.
  def model({name, opts}) when is_binary(name) and is_list(opts) do
    with [prefix, model] when model != "" <- String.split(name, ":", parts: 2),
         {client, variable, within, most} <- @providers[prefix] do
      paths = %{temperature: within ++ [:temperature]}
      # Other servers that speak OpenAI's language may know the older name only.
      most = if most == :max_completion_tokens and opts[:base_url], do: :max_tokens, else: most
      paths = if most, do: Map.put(paths, :max_tokens, within ++ [most]), else: paths
      {:ok, {client, [model: model] ++ options(opts, variable, paths)}}
    else
      _other -> {:error, describe_expected()}
    end
  end

  def model(name) when is_binary(name), do: model({name, []})
  def model(function) when is_function(function, 0), do: model(function.())

  def model(llm),
    do: if(AshAgent.Section.model?(llm), do: {:ok, llm}, else: {:error, describe_expected()})

  defp describe_expected do
    "expected \"provider:model\" with one of the providers #{Enum.map_join(@providers, ", ", &elem(&1, 0))}, " <>
      "a model as AshAgent.LLM.t() has it, or a function of arity 0 that returns it"
  end

  defp options(opts, variable, paths) do
    {placed, own} = Keyword.split(opts, Map.keys(paths))

    body =
      Enum.reduce(placed, Map.new(own[:body] || %{}), fn {name, value}, body ->
        put_in(body, Enum.map(paths[name], &Access.key(&1, %{})), value)
      end)

    # The key of a provider goes to no other server.
    own =
      if variable && !opts[:base_url],
        do: Keyword.put_new(own, :api_key, fn -> System.get_env(variable) end),
        else: own

    if body == %{}, do: own, else: Keyword.put(own, :body, body)
  end
end
