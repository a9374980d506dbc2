defmodule AshAgent.Context.Requests do
  @moduledoc false

  # The providers and the options of requests, in the form that the core takes. It knows no context: `AshAgent.Context` is
  # documented with it.

  alias AshAgent.Caller
  alias AshAgent.Context.Options

  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]

  defguard is_provider(provider) when provider in @providers

  def providers, do: @providers

  def checked_options(provider, opts),
    do: request_options(provider, Options.validate!(opts, :request))

  @dialects [openai_chat: [:openai, :deepseek, :openrouter, :vllm], anthropic: [:deepseek]]

  # The options that some providers have. Their APIs can keep a part of the conversation themselves.
  @owners [
    previous_response_id: [:openai_responses, :anthropic],
    conversation: [:openai_responses],
    dialect: Keyword.keys(@dialects)
  ]

  def request_options(provider, opts) do
    both? = opts[:previous_response_id] != nil and opts[:conversation] != nil

    if both? and provider == :openai_responses do
      words = "options :previous_response_id and :conversation exclude each other"
      Caller.refuse!(words <> ": give one of them")
    end

    for {name, owners} <- @owners, opts[name] != nil, provider not in owners do
      owners = Enum.map_join(owners, " and ", &inspect/1)
      words = "is for #{owners}; leave it out for #{inspect(provider)}"
      Caller.refuse!("option #{inspect(name)} #{words}")
    end

    unless opts[:dialect] in [nil | Keyword.get(@dialects, provider, [])] do
      words = "must be one of #{inspect(@dialects[provider])} for #{inspect(provider)}"
      Caller.refuse!("option :dialect " <> words)
    end

    %{
      provider: provider,
      model: opts[:model],
      thinking: opts[:thinking],
      system_role: opts[:system_role],
      cache: opts[:cache] == :auto,
      cache_minimum: opts[:cache_minimum],
      since: opts[:since],
      max_result_bytes: opts[:max_result_bytes],
      dialect: opts[:dialect] && Atom.to_string(opts[:dialect]),
      previous_response_id: opts[:previous_response_id],
      conversation: opts[:conversation],
      interrupt: opts[:pending] == :interrupt
    }
  end
end
