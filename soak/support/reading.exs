defmodule AshAgent.Soak.Reading do
  @moduledoc "Operations that read a conversation and leave it as it is."

  import AshAgent.Soak.Call, only: [call: 2, expect: 2, native?: 0]
  import AshAgent.TestSupport.Generators, only: [between: 2, one_of: 1]

  alias AshAgent.Context
  alias AshAgent.Soak.Pool
  alias AshAgent.TestSupport.{ContextGenerators, RequestChecker}

  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]

  def provider, do: one_of(@providers)

  @doc "A request body, half of the time as an application sends it, without options that vary."
  def encode({_, context, _, _}) do
    provider = provider()
    options = if between(0, 1) == 0, do: [], else: options(provider)
    options = [body: ContextGenerators.body(provider), pending: :interrupt] ++ options

    call(:"encode_request #{provider}", fn ->
      Context.encode_request(context, provider, options)
    end)
  end

  def request({_, context, _, _}) do
    provider = provider()
    options = [pending: one_of([:error, :interrupt])] ++ options(provider)
    call(:request, fn -> Context.request(context, provider, options) end)
  end

  def report({_, context, _, _}) do
    provider = provider()

    call(:request_report, fn -> Context.request_report(context, provider, pending: :interrupt) end)
  end

  @doc "A body is the same twice, and what its provider takes. Of small conversations, since the check is slow."
  def checked({_, context, _, _} = session), do: if(Pool.small?(session), do: check_body(context))

  defp check_body(context) do
    provider = provider()
    options = [pending: :interrupt] ++ options(provider)
    encode = fn -> Context.encode_request(context, provider, options) end
    first = call(:"encode_request #{provider}", encode)
    second = call(:"encode_request #{provider}", encode)

    with {:ok, first} <- first, {:ok, second} <- second do
      body = IO.iodata_to_binary(first)
      expect(body == IO.iodata_to_binary(second), "two bodies of one context for #{provider}")
      decoded = call(:"JSON.decode", fn -> Context.JSON.decode!(body) end)
      if native?(), do: findings(decoded, provider, options)
    end
  end

  defp findings(body, provider, options) do
    found = RequestChecker.validate_request(body, provider, checker_options(provider, options))
    expect(found == [], "#{provider} #{inspect(options)}: #{RequestChecker.format(found)}")
  end

  defp checker_options(:bedrock, options), do: Keyword.take(options, [:model])
  defp checker_options(:gemini, _options), do: [signatures: false]
  defp checker_options(:openai_chat, options), do: Keyword.take(options, [:dialect])
  defp checker_options(_provider, _options), do: []

  # The first iteration that is asked for may not be there.
  defp options(provider), do: provider |> ContextGenerators.options() |> Keyword.delete(:since)

  def messages({_, context, _, _}) do
    view = one_of([:view, :view, :log])
    messages = call(:to_messages, fn -> Context.to_messages(context, view: view) end)
    if native?() and view == :view, do: counted(context, messages)
  end

  defp counted(context, messages) do
    count = call(:count_messages, fn -> Context.count_messages(context) end)
    expect(count == length(messages), "#{count} messages counted, #{length(messages)} listed")
  end

  def iteration({_, context, _, _}) do
    number = between(1, context.current_iteration)
    call(:get_iteration, fn -> Context.get_iteration(context, number) end)
    call(:fetch_message, fn -> Context.fetch_message(context, {number, 0}) end)
  end

  def iterations({_, context, _, _}), do: call(:iterations, fn -> Context.iterations(context) end)

  def tokens({_, context, _, _}) do
    method = one_of([:auto, :estimate, :o200k_base, :cl100k_base])

    call(:"count_tokens #{method}", fn -> Context.Tokens.count_tokens(context, method: method) end)
  end

  def breakdown({_, context, _, _}),
    do:
      call(:token_breakdown, fn -> Context.Tokens.token_breakdown(context, method: :estimate) end)

  def prompt({_, context, _, _}) do
    mode = one_of([:full, :continuation, :message])
    call(:to_prompt, fn -> Context.to_prompt(context, mode: mode) end)
  end

  def small({_, context, _, _}) do
    call(:validate_for_request, fn -> Context.validate_for_request(context) end)
    call(:inspect, fn -> inspect(context) end)
    call(:view, fn -> Context.View.view(context) end)
    call(:get_cumulative_tokens, fn -> Context.Tokens.get_cumulative_tokens(context) end)
    call(:extract_tool_calls, fn -> Context.extract_tool_calls(context) end)
  end
end
