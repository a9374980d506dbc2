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

  def request_options(provider, opts) do
    {response, conversation} =
      check_known(provider, opts[:previous_response_id], opts[:conversation])

    %{
      provider: provider,
      model: opts[:model],
      thinking: opts[:thinking],
      system_role: opts[:system_role],
      cache: opts[:cache] == :auto,
      since: opts[:since],
      max_result_bytes: opts[:max_result_bytes],
      dialect: dialect(provider, opts[:dialect]),
      previous_response_id: response,
      conversation: conversation,
      interrupt: opts[:pending] == :interrupt
    }
  end

  defp dialect(_provider, nil), do: nil
  defp dialect(:openai_chat, dialect), do: Atom.to_string(dialect)
  defp dialect(provider, _dialect), do: not_for!(":dialect", :openai_chat, provider)

  # The part of the conversation that the provider keeps itself.
  defp check_known(_provider, nil, nil), do: {nil, nil}
  defp check_known(:openai_responses, response, nil), do: {response, nil}
  defp check_known(:openai_responses, nil, conversation), do: {nil, conversation}

  defp check_known(:openai_responses, _response, _conversation) do
    Caller.refuse!(
      "options :previous_response_id and :conversation exclude each other: give one of them"
    )
  end

  defp check_known(provider, response, _conversation) do
    name = if response, do: ":previous_response_id", else: ":conversation"
    not_for!(name, :openai_responses, provider)
  end

  defp not_for!(option, owner, provider) do
    Caller.refuse!(
      "option #{option} is for #{inspect(owner)}; leave it out for #{inspect(provider)}"
    )
  end
end
