defmodule AshAgent.Web.Transcript do
  @moduledoc """
  What a page shows of a conversation, as data.

      iex> context = AshAgent.Context.new("Hi") |> AshAgent.Context.add_assistant_message("Hello!")
      iex> for item <- AshAgent.Web.Transcript.items(context), do: {item.role, item.text}
      [user: "Hi", assistant: "Hello!"]

  System prompts, metadata and what only providers can read are left out. Masked texts are masked, as in `AshAgent.Context.to_messages/1`,
  but what the model is not shown any more is there for the person.
  """

  alias AshAgent.{Context, Response}
  alias AshAgent.Context.{Calls, JSON}
  alias AshAgent.Door.Reader

  @typedoc """
  A message. Its `calls` come with their results, and `note` says why an answer is not whole, or is `nil`.
  """
  @type item :: %{
          id: String.t(),
          role: :user | :assistant,
          text: String.t(),
          thinking: String.t(),
          files: [%{kind: atom(), name: String.t(), url: String.t() | nil}],
          calls: [call()],
          note: String.t() | nil
        }

  @typedoc """
  A tool call. Its arguments are those that it runs with, as JSON in which no character is invisible: it is what the person who decides has
  seen, and can be decoded. `asked?` is whether somebody has to decide about it, `question?` whether that is to answer it, `attempt` which
  attempt would start, and `result` the words of its result. A call whose result is late is `:waiting` until the result has arrived, and has it from then on.
  """
  @type call :: %{
          id: String.t(),
          name: String.t(),
          arguments: String.t(),
          status: :asked | :pending | :approved | :denied | :waiting | :unknown | :ok | :error,
          asked?: boolean(),
          question?: boolean(),
          attempt: pos_integer(),
          by: String.t() | nil,
          result: String.t() | nil
        }

  # What only begins to be sensible for a page.
  @result 4_000

  @doc """
  Returns the messages of the last iterations, oldest first, and no more of them than `limit`. Costs O(n) for what it returns.

  ## Examples

      iex> context = AshAgent.Context.new("Clean up") |> AshAgent.Context.add_assistant_message(nil, [%{id: "a", name: :delete, arguments: %{"path" => "x"}}])
      iex> [_user, %{calls: [call]}] = context |> AshAgent.Context.Calls.ask_about_tool_call("a") |> AshAgent.Web.Transcript.items()
      iex> {call.name, call.arguments, call.status}
      {"delete", ~s({"path":"x"}), :asked}
  """
  @doc since: "0.1.0"
  @spec items(Context.t(), pos_integer()) :: [item()]
  def items(%Context{current_iteration: last} = context, limit \\ 100)
      when is_integer(limit) and limit > 0 do
    undecided = Map.new(Calls.undecided_tool_calls(context), &{&1.id, &1.arguments})
    asked = Map.new(Calls.asked_tool_calls(context), &{&1.id, &1})
    late = Map.new(Calls.late_calls(context), &{{&1.iteration, &1.id}, &1[:result]})

    for number <- max(last - limit + 1, 1)..last//1,
        %{messages: messages, tool_calls: calls} = Context.get_iteration(context, number),
        {message, position} <- Enum.with_index(messages),
        shown?(message) do
      own = message[:tool_calls] || []

      %{
        id: "#{number}-#{position}",
        role: message.role,
        text: Response.text(message) || "",
        thinking: texts(message, :thinking),
        files: files(message),
        calls:
          for(
            call <- calls,
            # Where a late result stands, its call is listed once more.
            not match?(%{arrived: %{iteration: _}}, call),
            Enum.any?(own, &(&1.id == call.id)),
            do: call(context, arrive(call, late[{number, call.id}]), undecided, asked)
          ),
        note: note(context, number, position, message)
      }
    end
  end

  defp shown?(%{role: role} = message), do: role == :assistant or Reader.said?(message)

  defp texts(%{content: parts}, type) when is_list(parts),
    do: for(%{type: ^type, text: text} when is_binary(text) <- parts, into: "", do: text)

  defp texts(_message, _type), do: ""

  defp files(%{content: parts}) when is_list(parts) do
    for %{type: kind} = part when kind in [:image, :audio, :video, :file] <- parts,
        do: %{
          kind: kind,
          name: part[:filename] || part[:media_type] || to_string(kind),
          url: url(part)
        }
  end

  defp files(_message), do: []

  # A picture that the conversation has is shown; what an address leads to is not asked for.
  defp url(%{type: :image, media_type: "image/" <> type, data: data})
       when type in ["png", "jpeg", "gif", "webp"] and is_binary(data),
       do: "data:image/#{type};base64,#{data}"

  defp url(_part), do: nil

  ## Calls

  defp arrive(%{result: {:waiting, _}} = call, result) when result != nil,
    do: %{call | result: result}

  defp arrive(call, _result), do: call

  defp call(context, %{id: id, name: name} = call, undecided, asked) do
    asked? = is_map_key(asked, id)
    decision = Calls.tool_call_decision(context, id)
    # Of a call that succeeded, nobody asks who let it.
    by = if not match?({:ok, _}, call.result), do: decision[:by]

    %{
      id: id,
      name: to_string(name),
      # Those that somebody is asked about, or else those that it runs with.
      arguments: json(undecided[id] || decision[:edited] || call.arguments),
      status: status(context, call, asked?),
      asked?: asked?,
      question?: is_map_key(asked[id] || %{}, :question),
      attempt: asked[id][:attempt] || 1,
      by: by && to_string(by),
      result: words(call.result)
    }
  end

  defp status(_context, _call, true), do: :asked

  defp status(_context, %{result: {status, _}}, _asked?) when status in [:ok, :waiting],
    do: status

  defp status(context, %{id: id}, _asked?) do
    case Calls.tool_call_status(context, id) do
      status when status in [:pending, :approved, :denied, :unknown] -> status
      _other -> :error
    end
  end

  defp words(nothing) when nothing == nil or elem(nothing, 0) == :waiting, do: nil
  defp words({_status, text}) when is_binary(text), do: cut(text)
  defp words({_status, term}), do: term |> json() |> cut()

  defp cut(text),
    do: if(String.length(text) > @result, do: String.slice(text, 0, @result) <> " …", else: text)

  defp json(term) do
    term |> JSON.encode() |> visible()
  rescue
    _not_json -> inspect(term, limit: 50)
  end

  # Characters that nobody sees, or that turn around what is seen, are only in strings of JSON, where this means the same.
  defp visible(json) do
    hidden =
      ~r/[\x{7F}-\x{9F}\x{AD}\x{061C}\x{115F}\x{1160}\x{180E}\x{200B}-\x{200F}\x{2028}-\x{202E}\x{2060}-\x{206F}\x{3164}\x{FEFF}\x{E0000}-\x{E01EF}]/u

    String.replace(json, hidden, fn letter ->
      for <<unit::16 <- :unicode.characters_to_binary(letter, :utf8, :utf16)>>,
        into: "",
        do: "\\u" <> (unit |> Integer.to_string(16) |> String.pad_leading(4, "0"))
    end)
  end

  ## Answers that are not whole

  defp note(context, number, position, %{role: :assistant}) do
    case Context.fetch_message(context, {number, position}) do
      {:ok, %{response: %{state: :interrupted}}} ->
        "The answer broke off."

      {:ok, %{response: %{finish_reason: :length}}} ->
        "The answer reached its longest length."

      {:ok, %{response: %{finish_reason: :content_filter}}} ->
        "A filter of the provider stopped the answer."

      {:ok, %{response: %{finish_reason: :refusal}}} ->
        "The model declined to answer."

      {:ok, %{state: :interrupted}} ->
        "The answer broke off."

      _whole ->
        nil
    end
  end

  defp note(_context, _number, _position, _message), do: nil
end
