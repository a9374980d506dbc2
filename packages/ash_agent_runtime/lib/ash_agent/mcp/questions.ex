defmodule AshAgent.MCP.Questions do
  @moduledoc false

  # What a server asks in the middle of a call: forms for a person to fill in.
  #
  # In the new era, the server has answered the call with its questions and keeps nothing: the call is made once more, with the answers and what
  # the server has said to send along. Until then, that is in the metadata of the call's iteration, and the question is one of the run's. All
  # of it comes from outside. Models, folders and addresses to open are not given.

  alias AshAgent.Context
  alias AshAgent.MCP.Listing
  alias AshAgent.Response.Schema
  alias AshAgent.Runtime.{AskUser, Outcome, ToolExecutor}

  @most 16
  @state_bytes 64_000
  @refused "asks for something that it does not get here, and has not done the call"

  @doc "Reads what a server has answered a call with: `{:ok, question}`, with `words`, a `form`, the `ids` of its parts and a `state`, or an error in words."
  def read(%{} = result) do
    requests = Map.get(result, "inputRequests") || %{}
    state = result["requestState"]

    with true <- is_map(requests) and map_size(requests) in 0..@most,
         true <- state == nil or (is_binary(state) and byte_size(state) <= @state_bytes),
         true <- state == nil or String.valid?(state),
         true <- requests != %{} or state != nil,
         {:ok, parts} <- read_parts(Enum.sort(requests)) do
      {:ok, Map.merge(join(parts), %{ids: Enum.map(parts, &elem(&1, 0)), state: state})}
    else
      _refused -> refuse()
    end
  end

  @doc "Reads one form: `{:ok, words, form}` or `:error`."
  def read_form(%{"message" => words, "requestedSchema" => %{} = form} = params)
      when is_binary(words) and
             not (is_map_key(params, "mode") and :erlang.map_get("mode", params) != "form") do
    with {:ok, form} <- Listing.form(form),
         {:ok, _ref, %{"type" => "object"} = form} <- Schema.new(form),
         do: {:ok, Listing.words(words), form},
         else: (_wrong -> :error)
  end

  def read_form(_other), do: :error

  @doc "The error of a question that nobody answers."
  def refuse, do: {:error, @refused}

  defp read_parts(requests) do
    parts =
      for {id, request} <- requests,
          do:
            with(
              %{"method" => "elicitation/create", "params" => params} <- request,
              true <- byte_size(id) <= 1_000 and String.valid?(id),
              {:ok, words, form} <- read_form(params),
              do: {id, words, form}
            )

    if Enum.all?(parts, &is_tuple/1), do: {:ok, parts}, else: :error
  end

  defp join([{_id, words, form}]), do: %{words: words, form: form}

  # Each is a part of one form.
  defp join(parts) do
    forms = Map.new(parts, fn {id, words, form} -> {id, Map.put(form, "description", words)} end)
    words = Enum.map_join(parts, "\n", fn {_id, words, _form} -> words end)
    form = %{"type" => "object", "properties" => forms, "required" => Map.keys(forms)}
    %{words: words, form: form}
  end

  @doc "What the call is made with once more: the answer, or `:decline`."
  def answers(%{ids: ids, state: state}, answer) do
    responses =
      case {ids, answer} do
        {ids, :decline} -> Map.new(ids, &{&1, %{"action" => "decline"}})
        {[id], answer} -> %{id => accept(answer)}
        {ids, answer} -> Map.new(ids, &{&1, accept(answer[&1] || %{})})
      end

    answers = if responses == %{}, do: %{}, else: %{"inputResponses" => responses}
    if state, do: Map.put(answers, "requestState", state), else: answers
  end

  defp accept(answer), do: %{"action" => "accept", "content" => answer}

  @doc "Asks a function of the application: an answer that fits the form, or `:decline`."
  def ask(function, server, %{words: words, form: form}) do
    asked = fn -> function.(%{server: server, question: words, form: form}) end

    with {:returned, {:ok, %{} = answer}} <- ToolExecutor.call_guarded(asked),
         {:ok, answer} <- check(form, answer),
         do: answer,
         else: (_declined -> :decline)
  end

  @doc "The answer of a person as the form reads it. Raises `AshAgent.Context.Error` for one that does not fit."
  def check!(_question, :decline), do: :decline

  def check!(%{form: form}, answer) do
    call = %{id: "-", name: "-", arguments: %{}}
    {:ok, answer} = AskUser.check_answer(%{shown: %{"form" => form}}, call, answer, [])
    answer
  end

  defp check(form, answer) do
    {:ok, check!(%{form: form}, answer)}
  rescue
    _ in [Context.Error, ArgumentError, FunctionClauseError] -> :error
  end

  @doc "The outcome of a call whose tool asks a person."
  def outcome(%{words: words, form: form, ids: ids, state: state}) do
    asked = %{question: words, form: form, note: %{"ids" => ids, "state" => state}}
    %Outcome{status: :asks, term: asked}
  end

  @doc "What a call is made with that a person has answered, or `%{}`."
  def find(scope) do
    with {%{"ids" => ids, "state" => state}, answer} <- AskUser.find_answer(scope),
         do: answers(%{ids: ids, state: state}, answer),
         else: (_not_asked -> %{})
  end
end
