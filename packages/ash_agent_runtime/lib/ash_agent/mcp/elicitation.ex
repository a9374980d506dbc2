defmodule AshAgent.MCP.Elicitation do
  @moduledoc false

  # What servers of the old era ask while a call is open: a handler of ex_mcp, which runs it in a process of its own. The call waits meanwhile, and no
  # longer than its run allows.

  alias AshAgent.MCP.Questions

  @refused %{"code" => -32_601, "message" => "Method not found"}

  def init(opts), do: {:ok, opts}

  def handle_elicitation_create(words, form, opts) do
    %{server: server} = link = opts[:link].()

    case server[:questions] &&
           Questions.read_form(%{"message" => words, "requestedSchema" => form}) do
      nil -> {:error, @refused, opts}
      :error -> {:ok, %{"action" => "decline"}, opts}
      {:ok, words, form} -> {:ok, ask(server, link, %{words: words, form: form}), opts}
    end
  end

  def handle_url_elicitation(_words, _address, opts), do: {:error, @refused, opts}

  defp ask(%{questions: :ask} = server, link, question) do
    answer(
      server.ask_person.(%{server: server.name, question: question, connection: link.holder})
    )
  end

  defp ask(%{questions: function} = server, _link, question),
    do: function |> Questions.ask(server.name, question) |> answer()

  defp answer(:decline), do: %{"action" => "decline"}
  defp answer(answer), do: %{"action" => "accept", "content" => answer}
end
