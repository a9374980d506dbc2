defmodule AshAgent.Demo.Tools do
  @moduledoc false

  # Three tools that look into a conversation. It reaches them in the runtime context: as a handle, whatever its size.

  alias AshAgent.Context
  alias AshAgent.Demo.Terminal

  @providers ~w(anthropic openai_chat openai_responses gemini bedrock ollama mistral)

  def all do
    {:ok, index} = Agent.start_link(fn -> nil end)

    %{
      count_calls: %{
        function: &count_calls/2,
        description: "Counts the tool calls of the conversation, by the tool's name.",
        parameters: schema(%{})
      },
      measure_request: %{
        function: &measure_request/2,
        description: "Measures the conversation as a request to a provider, in bytes.",
        parameters:
          schema(%{"provider" => %{"type" => "string", "enum" => @providers}}, ["provider"])
      },
      find_text: %{
        function: &find_text(index, &1, &2),
        description: "Finds the messages of the conversation that contain a text, in any case.",
        parameters: schema(%{"text" => %{"type" => "string"}}, ["text"])
      }
    }
  end

  defp schema(properties, required \\ []),
    do: %{"type" => "object", "properties" => properties, "required" => required}

  defp count_calls(_arguments, %{conversation: conversation}) do
    wait(60)

    calls =
      for iteration <- Context.iterations(conversation), call <- iteration.tool_calls, do: call

    {:ok,
     for {name, calls} <- Enum.group_by(calls, & &1.name), into: %{} do
       {name,
        %{
          "calls" => length(calls),
          "failed" => Enum.count(calls, &match?({:error, _}, &1.result))
        }}
     end}
  end

  defp measure_request(%{"provider" => provider}, %{conversation: conversation})
       when provider in @providers do
    wait(20)

    with {:ok, body} <-
           Context.encode_request(conversation, String.to_existing_atom(provider),
             pending: :interrupt
           ),
         do: {:ok, %{"provider" => provider, "bytes" => IO.iodata_length(body)}}
  end

  defp measure_request(_arguments, _tool_context),
    do: {:error, "unknown provider; available providers: " <> Enum.join(@providers, ", ")}

  # Nothing is made before it is needed: the first call finds no index.
  defp find_text(index, %{"text" => text}, %{conversation: conversation}) when is_binary(text) do
    case Agent.get(index, & &1) do
      nil ->
        Agent.cast(index, fn nil -> index(conversation) end)
        {:error, "there was no index yet; it is being made, try again"}

      lines ->
        found = for {place, line} <- lines, found?(line, text), do: Map.put(place, "text", line)
        {:ok, %{"found" => length(found), "first" => Enum.take(found, 3)}}
    end
  end

  defp find_text(_index, _arguments, _tool_context), do: {:error, "the argument \"text\" is text"}

  defp index(conversation) do
    for iteration <- Context.iterations(conversation), message <- iteration.messages do
      {%{"iteration" => iteration.number, "role" => Atom.to_string(message.role)},
       message.content |> Terminal.text() |> String.slice(0, 300)}
    end
  end

  defp found?(line, text), do: String.contains?(String.downcase(line), String.downcase(text))

  # As long as a service somewhere else would take.
  defp wait(milliseconds), do: Process.sleep(milliseconds)
end
