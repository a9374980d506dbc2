defmodule AshAgent.MCP.Elicitation do
  @moduledoc false

  # What servers of the old era ask while a call is open: a handler of ex_mcp, which runs it in a process of its own. Only a function answers: the
  # call waits meanwhile, and no longer than its run allows.

  alias AshAgent.MCP.Questions

  @refused %{"code" => -32_601, "message" => "Method not found"}

  def init(opts), do: {:ok, opts}

  def handle_elicitation_create(words, form, opts) do
    server = opts[:server].()

    with function when is_function(function) <- server[:questions],
         {:ok, words, form} <-
           Questions.read_form(%{"message" => words, "requestedSchema" => form}) do
      case Questions.ask(function, server.name, %{words: words, form: form}) do
        :decline -> {:ok, %{"action" => "decline"}, opts}
        answer -> {:ok, %{"action" => "accept", "content" => answer}, opts}
      end
    else
      :error -> {:ok, %{"action" => "decline"}, opts}
      _nobody -> {:error, @refused, opts}
    end
  end

  def handle_url_elicitation(_words, _address, opts), do: {:error, @refused, opts}
end
