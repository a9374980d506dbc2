defmodule AshAgent.LLM.MisbehaviourTest do
  # Each way in which a server misbehaves, through each client: the kind of error it is called, and no key in its words.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.LLM.Error
  alias AshAgent.TestSupport.{Clients, Misbehaviour}

  @clients Clients.modules()
  @of_runs [:arguments_without_json, :same_call_forever]

  defp client(provider, kind) do
    options = Misbehaviour.start(kind, provider)
    options = if provider == :bedrock, do: options, else: Keyword.delete(options, :region)
    @clients[provider].new(options)
  end

  # The first word of a reason, where the rest is a number or somebody's words.
  defp shorten({word, _}) when word in [:provider, :connection], do: word
  defp shorten({word, _}) when word in [:invalid_response, :response_too_large], do: word
  defp shorten(reason), do: reason

  defp refute_key(term), do: refute(inspect(term, limit: :infinity) =~ Misbehaviour.key())

  for {kind, expected} <- Misbehaviour.kinds(), kind not in @of_runs do
    @kind kind
    @expected expected

    test "#{kind} comes to #{inspect(expected)} with every provider" do
      told =
        @clients
        |> Keyword.keys()
        |> Task.async_stream(
          fn provider ->
            {provider,
             LLM.stream(client(provider, @kind), Context.new("Hi"), [], fn _ -> :ok end)}
          end,
          max_concurrency: 7,
          timeout: 60_000
        )
        |> Enum.map(fn {:ok, told} -> told end)

      for {_provider, {:error, error}} <- told do
        refute_key(error)
        refute Exception.message(error) =~ Misbehaviour.key()
      end

      assert for({provider, result} <- told, do: {provider, summarize(result)}) ==
               for({provider, _} <- told, do: {provider, expected(@kind, provider, @expected)})
    end
  end

  # Ollama's streams have no names for errors.
  defp expected(:error_in_the_stream, :ollama, _expected), do: {:server_error, :provider}
  defp expected(_kind, _provider, expected), do: expected

  defp summarize({:ok, _response}), do: :ok
  defp summarize({:error, %Error{} = error}), do: {error.kind, shorten(error.reason)}

  defp pay(_arguments), do: {:ok, "paid"}

  test "arguments that are not JSON are told to the model, and the tool does not run" do
    for provider <- [:openai_chat, :mistral] do
      llm = client(provider, :arguments_without_json)

      assert {:ok, %{output: "Grüße, Welt!", context: context}} =
               Runtime.run(Context.new("Pay Ann"), llm: llm, tools: %{pay: &pay/1})

      assert [%{result: {:error, words}}] = Context.get_iteration(context, 1).tool_calls
      assert words =~ "JSON"
      assert Context.Audit.failures(context) == []
    end
  end

  test "a model that makes the same call for ever is stopped" do
    for provider <- [:openai_chat, :mistral] do
      llm = client(provider, :same_call_forever)
      opts = [llm: llm, tools: %{pay: &pay/1}, max_iterations: 3]

      assert {:error, %{reason: {:max_iterations_exceeded, 3}}} =
               Runtime.run(Context.new("Pay Ann"), opts)
    end
  end
end
