defmodule AshAgent.Demo.Model do
  @moduledoc false

  # The model that a person names: a server that speaks OpenAI's /chat/completions.

  import AshAgent.Demo.Terminal, only: [stop: 1]

  alias AshAgent.LLM.OpenAICompatible

  @options [url: :string, model: :string, key: :string]

  @doc "The model of arguments such as `--url URL --model NAME`, or `nil`."
  def parse(args) do
    case OptionParser.parse(args, strict: @options) do
      {[], [], []} -> nil
      {opts, [], []} -> opts |> Map.new() |> read()
      _wrong -> stop("usage: bin/demo --url URL --model NAME [--key ENV_VAR]")
    end
  end

  defp read(%{url: url, model: model} = opts),
    do: new(base_url: url, model: model, api_key: key(opts))

  defp read(%{url: _url}), do: stop("--model is missing: it names the model to ask")
  defp read(_opts), do: stop("--url is missing: it names the server to ask")

  # Read once, so that a missing one is told before anything begins. The name is not repeated: it may be the key itself.
  defp key(%{key: variable}) do
    case System.get_env(variable) do
      empty when empty in [nil, ""] ->
        stop(
          "--key takes the name of an environment variable that holds the key, and this one is not set"
        )

      key ->
        key
    end
  end

  defp key(_opts), do: nil

  defp new(opts) do
    OpenAICompatible.new(opts)
  rescue
    error in ArgumentError -> stop(words(Exception.message(error)))
  end

  defp words(message) do
    cond do
      message =~ ":base_url" ->
        "--url takes an http or https URL such as http://127.0.0.1:11434/v1"

      message =~ ":api_key" ->
        "the key in the variable that --key names is not printable text"

      message =~ ":model" ->
        "--model takes the name of a model"

      true ->
        message
    end
  end
end
