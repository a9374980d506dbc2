defmodule AshAgent.LLM.Anthropic do
  @moduledoc """
  A client for Anthropic's `/v1/messages`, and for servers that speak it.

      llm =
        AshAgent.LLM.Anthropic.new(
          model: "claude-sonnet-4-5",
          api_key: fn -> System.fetch_env!("ANTHROPIC_API_KEY") end,
          max_tokens: 8_192
        )

      {:ok, result} = AshAgent.Runtime.run(AshAgent.Context.new("Hello!"), llm: llm)

  Thinking is kept with its signatures, so that the next request returns it unchanged. For streaming, timeouts, retries and secrets
  see `AshAgent.LLM`.
  """

  alias AshAgent.LLM.Client

  @schema Client.schema(
            AshAgent.Options.schema([
              {:max_tokens, :pos_integer, [default: 4_096], "the longest answer, in tokens."},
              {:version, :string, [default: "2023-06-01"], "sent as `anthropic-version`."},
              {:dialect, {:in, [:auto, nil, :deepseek]}, [default: :auto],
               "`:deepseek` for servers that want thinking back although they did not sign it, such as relays to DeepSeek. `:auto` " <>
                 "picks it for the hosts of DeepSeek and Kimi."}
            ]) ++
              Client.cache_diagnostics(
                "whether to ask what kept a request from being read from the prompt cache (a beta of Anthropic), see " <>
                  "`AshAgent.Context.Audit.account/2`."
              ),
            base_url: "https://api.anthropic.com/v1",
            provider: :anthropic
          )

  # By reports of clients that were refused there; the guide on thinking names them.
  @dialects Map.new(
              ~w(api.deepseek.com api.moonshot.ai api.moonshot.cn api.kimi.com),
              &{&1, :deepseek}
            )

  use Client, @schema

  @impl Client
  def check(opts), do: Client.put_dialect(opts, :anthropic, @dialects)

  @impl Client
  def call(opts, tools, mode) do
    body =
      %{"model" => opts[:model], "max_tokens" => opts[:max_tokens]}
      |> Client.put_tools(tools, &Client.tool(&1, "input_schema"))
      |> Client.put_stream(mode)

    %{path: "/messages", headers: [{"anthropic-version", opts[:version]}], body: body}
  end

  @beta "cache-diagnosis-2026-04-07"

  # The first request asks with null, so that the next one can be compared with it.
  @impl Client
  def compare(call, id) do
    body = Map.put(call.body, "diagnostics", %{"previous_message_id" => id})
    %{call | body: body, headers: call.headers ++ [{"anthropic-beta", @beta}]}
  end

  @impl Client
  def authorize(nil, _request, _opts), do: []
  def authorize(key, _request, _opts), do: [{"x-api-key", key}]
end
