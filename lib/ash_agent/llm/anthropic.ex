defmodule AshAgent.LLM.Anthropic do
  @moduledoc """
  A client for Anthropic's `/v1/messages`, and for servers that speak it.

      llm =
        AshAgent.LLM.Anthropic.new(
          model: "claude-sonnet-4-5",
          api_key: fn -> System.fetch_env!("ANTHROPIC_API_KEY") end,
          body: %{max_tokens: 8_192}
        )

      {:ok, result} = AshAgent.Runtime.run(AshAgent.Context.new("Hello!"), llm: llm)

  Thinking blocks are kept with their signatures, so that they go back unchanged in the next request. What this client
  does not know (results of server tools, citations' sources) is kept as provider blocks. Everything else (TLS,
  repetitions, secrets) is as in `AshAgent.LLM.OpenAICompatible`.
  """

  @behaviour AshAgent.LLM

  alias AshAgent.LLM.Client

  @defaults [
    base_url: "https://api.anthropic.com/v1",
    provider: :anthropic,
    max_tokens: 4_096,
    version: "2023-06-01"
  ]

  @doc """
  Checks the options and returns the model.

  ## Options

    * `:model` - the model's name, required.
    * `:max_tokens` - the longest answer, in tokens. Defaults to `4_096`.
    * `:base_url` - the URL up to and with the version. Defaults to `"https://api.anthropic.com/v1"`.
    * `:api_key` - text or a function that returns it, sent as `x-api-key`. Defaults to none.
    * `:version` - sent as `anthropic-version`. Defaults to `"2023-06-01"`.
    * `:headers`, `:body`, `:provider`, `:request`, `:timeout`, `:connect_timeout`, `:max_retries`,
      `:max_response_bytes`, `:ssl` - as in `AshAgent.LLM.OpenAICompatible.new/1`; `:provider` defaults to `:anthropic`.

  Raises `ArgumentError` for options it does not know or cannot use.

  ## Examples

      iex> {AshAgent.LLM.Anthropic, opts} = AshAgent.LLM.Anthropic.new(model: "m", api_key: "secret")
      iex> inspect(opts) =~ "secret"
      false
  """
  @doc since: "0.1.0"
  @spec new(keyword()) :: {module(), keyword()}
  def new(opts) when is_list(opts), do: {__MODULE__, prepare(opts)}

  @impl true
  def prepare(opts) do
    opts = Client.prepare(opts, __MODULE__, @defaults)

    unless is_integer(opts[:max_tokens]) and opts[:max_tokens] > 0,
      do:
        raise(
          ArgumentError,
          "#{inspect(__MODULE__)} expects :max_tokens to be a positive integer"
        )

    opts
  end

  @impl true
  def chat(context, opts) do
    {tools, opts} = Keyword.pop(opts, :tools, [])
    opts = prepare(opts)
    body = %{"model" => opts[:model], "max_tokens" => opts[:max_tokens]} |> put_tools(tools)

    opts =
      Keyword.update!(opts, :headers, &[{"anthropic-version", fn -> opts[:version] end} | &1])

    authorization = fn key -> [{"x-api-key", key}] end

    with {:ok, answer} <-
           Client.post(
             __MODULE__,
             "/messages",
             opts[:provider],
             context,
             body,
             opts,
             authorization
           ),
         do: read(answer, opts[:model])
  end

  defp put_tools(body, []), do: body

  defp put_tools(body, tools) do
    Map.put(
      body,
      "tools",
      for tool <- tools do
        definition = %{"name" => tool.name, "input_schema" => Client.schema(tool.parameters)}

        if tool.description,
          do: Map.put(definition, "description", tool.description),
          else: definition
      end
    )
  end

  # Thinking carries the name that was asked for, not the dated one that answered: the next request compares them.
  defp read(%{"content" => blocks} = answer, model) when is_list(blocks) do
    with {:ok, parts, calls} <- blocks(blocks, model, [], []) do
      {:ok,
       Map.merge(content(parts), %{
         tool_calls: calls,
         usage: usage(answer["usage"]),
         finish_reason: text(answer["stop_reason"]),
         model: text(answer["model"])
       })}
    end
  end

  defp read(%{"error" => %{"message" => words}}, _model) when is_binary(words),
    do: Client.invalid(String.slice(words, 0, 2_000))

  defp read(_answer, _model), do: Client.invalid("no content")

  defp content([]), do: %{content: nil}

  defp content(parts) do
    if Enum.all?(parts, &(&1.type == :text)),
      do: %{content: Enum.map_join(parts, & &1.text)},
      else: %{content: nil, parts: parts}
  end

  defp blocks([], _model, parts, calls), do: {:ok, Enum.reverse(parts), Enum.reverse(calls)}

  defp blocks([block | rest], model, parts, calls) do
    case block do
      %{"type" => "text", "text" => ""} ->
        blocks(rest, model, parts, calls)

      %{"type" => "text", "text" => text} when is_binary(text) ->
        blocks(rest, model, [%{type: :text, text: text} | parts], calls)

      %{"type" => "thinking", "thinking" => text} when is_binary(text) ->
        part = %{
          type: :thinking,
          text: text,
          provider_metadata: metadata(model, block["signature"])
        }

        blocks(rest, model, [part | parts], calls)

      %{"type" => "redacted_thinking", "data" => data} when is_binary(data) ->
        part = %{type: :redacted_thinking, data: data, provider_metadata: metadata(model, nil)}
        blocks(rest, model, [part | parts], calls)

      %{"type" => "tool_use", "name" => name, "input" => input}
      when is_binary(name) and (is_map(input) or is_binary(input)) ->
        blocks(rest, model, parts, [
          %{id: text(block["id"]), name: name, arguments: input} | calls
        ])

      %{"type" => type}
      when is_binary(type) and type not in ["text", "thinking", "redacted_thinking", "tool_use"] ->
        blocks(
          rest,
          model,
          [%{type: :provider_block, provider: :anthropic, data: block} | parts],
          calls
        )

      _ ->
        Client.invalid("a content block of an unknown shape")
    end
  end

  defp metadata(model, signature) do
    for {key, value} <- [provider: :anthropic, model: model, signature: text(signature)],
        value != nil,
        into: %{},
        do: {key, value}
  end

  defp usage(reported) do
    Client.usage(reported,
      input_tokens: ["input_tokens"],
      output_tokens: ["output_tokens"],
      cached_tokens: ["cache_read_input_tokens"],
      cache_creation_tokens: ["cache_creation_input_tokens"]
    )
  end

  defp text(text) when is_binary(text), do: text
  defp text(_other), do: nil
end
