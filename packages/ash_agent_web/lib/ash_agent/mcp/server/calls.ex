defmodule AshAgent.MCP.Server.Calls do
  @moduledoc false

  # The model of sessions that are a set of tools: its only answer is the call that the client asked for. So a call is a conversation, and
  # everything that holds for calls of an agent holds for it.

  @behaviour AshAgent.LLM

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.Door.Reader

  @id "call"

  @doc "The prompt for a call."
  def prompt(name, arguments), do: JSON.encode(%{name: name, arguments: arguments})

  @impl true
  def chat(%Context{} = context, _opts) do
    messages = Context.to_messages(context)

    with false <- Enum.any?(messages, &match?(%{tool_calls: [_ | _]}, &1)),
         %{role: :user, content: content} <- List.last(messages),
         {:ok, %{"name" => name, "arguments" => %{} = arguments}} <-
           content |> Reader.text() |> JSON.decode() do
      {:ok, %{tool_calls: [%{id: @id, name: name, arguments: arguments}]}}
    else
      true -> {:ok, %{content: "done"}}
      _other -> {:error, :not_a_call}
    end
  end
end
