defmodule AshAgent.Door.Responses do
  @moduledoc false

  # OpenAI's `/v1/responses`, as text: an item `function_call` would say that the client is to run it, so the agent's own calls are not shown. A
  # turn is a response. Its id has the conversation and the key of the message that began the turn, which name it exactly.

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.Door.{Input, Reader}

  @doc "The headers of a stream."
  def headers, do: []

  @doc "What it has to know of what it has written: the items that are done, last first, and the one that is open."
  def shape, do: %{items: [], open: nil, index: 0}

  @doc "Whether each client has to write an event itself, since it has the response's id and fields."
  def own?(event), do: elem(event, 0) == :end

  @doc "What a stream begins with. `opts` has `:run`."
  def begin(_turn, opts) do
    response = response(:in_progress, shape(), opts)
    for type <- ["created", "in_progress"], do: %{type: "response." <> type, response: response}
  end

  @doc "Returns `{chunks, shape}` for an event."
  def chunks(event, shape, opts)

  def chunks({kind, id}, shape, _opts) when kind in [:text_started, :thinking_started],
    do: start(shape, if(kind == :text_started, do: "message", else: "reasoning"), id)

  def chunks({kind, _id, text}, %{open: open} = shape, _opts) when kind in [:text, :thinking] do
    delta = Map.put(place(open), :delta, text)
    delta = Map.put(delta, :type, "response.#{kind(open)}.delta")
    {[with_logprobs(delta, open)], %{shape | open: %{open | text: [open.text | text]}}}
  end

  def chunks({kind, _id}, shape, _opts) when kind in [:text_ended, :thinking_ended],
    do: finish(shape)

  # What waits for a person is said as a text: nobody can decide about it here.
  def chunks({kind, id, approval, name, arguments}, shape, opts)
      when kind in [:asked, :question] do
    words = Reader.warning(approval) <> words(kind, name, arguments)
    {started, shape} = start(shape, "message", id)
    {text, shape} = chunks({:text, id, words}, shape, opts)
    {ended, shape} = finish(shape)
    {started ++ text ++ ended, shape}
  end

  # What came of the lost answer does not count.
  def chunks({:dropped, _step, ids}, %{items: items} = shape, _opts),
    do: {[], %{shape | items: Enum.reject(items, &(elem(&1, 0) in ids))}}

  def chunks({:end, outcome}, shape, opts) do
    response = response(outcome, shape, opts)
    type = if response.status in ["completed", "failed"], do: response.status, else: "incomplete"
    {[%{type: "response." <> type, response: response}], shape}
  end

  def chunks(_other, shape, _opts), do: {[], shape}

  defp words(:question, _name, %{"question" => text}) when is_binary(text),
    do: "Somebody has to answer: #{text}"

  defp words(:question, name, arguments),
    do: "Somebody has to answer #{name} with #{JSON.encode(arguments)}."

  defp words(:asked, name, arguments),
    do: "Somebody has to decide whether #{name} may run with #{JSON.encode(arguments)}."

  defp start(%{index: index} = shape, type, id) do
    item_id =
      "#{if type == "message", do: "msg", else: "rs"}_#{String.replace(id, ".", "_")}_#{index}"

    open = %{id: item_id, block: id, type: type, index: index, text: ""}

    added = %{
      type: "response.output_item.added",
      output_index: index,
      item: item(open, "in_progress")
    }

    part = Map.merge(place(open), %{type: "response.content_part.added", part: content(open)})
    {[added, part], %{shape | open: open, index: index + 1}}
  end

  defp finish(%{open: open} = shape) do
    open = %{open | text: IO.iodata_to_binary(open.text)}
    done = Map.merge(place(open), %{type: "response.#{kind(open)}.done", text: open.text})
    part = Map.merge(place(open), %{type: "response.content_part.done", part: content(open)})
    item = item(open, "completed")
    ended = %{type: "response.output_item.done", output_index: open.index, item: item}

    {[with_logprobs(done, open), part, ended],
     %{shape | open: nil, items: [{open.block, item} | shape.items]}}
  end

  defp place(%{id: id, index: index}), do: %{item_id: id, output_index: index, content_index: 0}

  defp kind(%{type: "message"}), do: "output_text"
  defp kind(%{type: "reasoning"}), do: "reasoning_text"

  defp with_logprobs(chunk, %{type: "message"}), do: Map.put(chunk, :logprobs, [])
  defp with_logprobs(chunk, _reasoning), do: chunk

  defp item(%{type: "message"} = open, status) do
    content = if status == "completed", do: [content(open)], else: []
    %{type: "message", id: open.id, role: "assistant", status: status, content: content}
  end

  defp item(open, status) do
    content = if status == "completed", do: [content(open)], else: []
    %{type: "reasoning", id: open.id, summary: [], status: status, content: content}
  end

  defp content(%{type: "message", text: text}),
    do: %{type: "output_text", text: text, annotations: [], logprobs: []}

  defp content(%{text: text}), do: %{type: "reasoning_text", text: text}

  ## Responses

  @doc "Returns the response of a turn that is in a state, or has an outcome, with the items that are done."
  def response(state, %{items: items}, opts) do
    run = opts[:run]
    {status, error, details} = status(state)

    %{
      id: id(run, opts[:tag]),
      object: "response",
      created_at: created_at(run, opts),
      status: status,
      error: error,
      incomplete_details: details,
      model: opts[:model],
      output: for({_block, item} <- Enum.reverse(items), do: item),
      previous_response_id: run[:previous],
      conversation: %{id: run.conversation},
      background: run[:background] == true,
      instructions: nil,
      max_output_tokens: nil,
      metadata: %{},
      parallel_tool_calls: true,
      reasoning: %{effort: nil, summary: nil},
      store: true,
      temperature: nil,
      text: %{format: %{type: "text"}},
      tool_choice: "auto",
      tools: [],
      top_p: nil,
      truncation: "disabled",
      usage: nil
    }
  end

  defp status(state) when state in [:queued, :in_progress], do: {"#{state}", nil, nil}
  defp status(:answered), do: {"completed", nil, nil}
  defp status({:paused, _asked}), do: {"incomplete", nil, %{reason: "approval_required"}}
  defp status(:parked), do: {"incomplete", nil, %{reason: "parked"}}
  defp status(:cancelled), do: {"cancelled", nil, %{reason: "cancelled"}}
  defp status({:failed, :interrupted, _id}), do: {"incomplete", nil, %{reason: "interrupted"}}

  defp status({:failed, kind, id}) do
    code = if kind == :rate_limited, do: "rate_limit_exceeded", else: "server_error"
    {"failed", %{code: code, message: "#{kind} (#{id})"}, nil}
  end

  # When the turn began.
  defp created_at(%{key: key}, opts) do
    with %Context{} = context <- opts[:context],
         {first, _last} <- Context.find_turn(context, :idempotency_key, key),
         %{started_at: %DateTime{} = at} <- Context.get_iteration(context, first) do
      DateTime.to_unix(at)
    else
      _not_yet -> System.os_time(:second)
    end
  end

  @doc "Returns the response of what a stream's snapshot has, in a state, without a stream."
  def whole(events, state, opts) do
    {_chunks, shape} = Enum.flat_map_reduce(events, shape(), &chunks(&1, &2, opts))
    response(state, shape, opts)
  end

  @doc """
  Returns the bytes of one of them. It has a number instead of an id: the Python client takes a comment for an event where an id came
  before it.
  """
  def record(chunk, seq, _id) do
    json = JSON.encode(Map.put(chunk, :sequence_number, seq))
    ["event: ", chunk.type, "\ndata: ", json, "\n\n"]
  end

  @doc "What a stream ends with, besides its last event."
  def last, do: ""

  @doc "Returns the response that a whole stream ended with."
  def ended(bytes) do
    "event: " <> event = bytes |> String.split("\n\n", trim: true) |> List.last()
    [_type, json] = String.split(event, "\ndata: ", parts: 2)
    JSON.decode!(json)["response"]
  end

  @doc "An error, with the fields that its clients show."
  def error(%{kind: kind} = error, field) do
    words = if field, do: "#{words(kind)}: #{field}", else: words(kind)
    type = if kind == :unavailable, do: "server_error", else: "invalid_request_error"
    Map.merge(error, %{message: "#{words} (#{error.id})", type: type, code: kind, param: field})
  end

  defp words(:unsupported_parameter), do: "This is not served here"
  defp words(:model_not_found), do: "There is no such model here"
  defp words(:previous_response_not_found), do: "There is no such response"
  defp words(:invalid_value), do: "This has no value that is possible"
  defp words(kind), do: to_string(kind)

  ## Ids

  # The tag is that of the feed whose numbers the client has.
  defp id(%{asked: id}, _tag), do: id

  defp id(%{conversation: conversation, key: "resp:" <> key}, tag) do
    name = "resp_#{Base.url_encode64(conversation, padding: false)}.#{key}"
    if tag, do: "#{name}.#{tag}", else: name
  end

  @doc "Reads the id of a response: `{:ok, run}` with its conversation and key, and the tag of its numbers, or `:error`."
  def parse_id(id) when is_binary(id) and byte_size(id) <= 500 do
    with [_, name, key | tag] <-
           Regex.run(~r/\Aresp_([\w-]+)\.([0-9a-f]{32})(?:\.([0-9a-f]{10}))?\z/, id),
         {:ok, conversation} <- Base.url_decode64(name, padding: false) do
      {:ok, %{conversation: conversation, key: "resp:" <> key, tag: List.first(tag)}}
    else
      _other -> :error
    end
  end

  def parse_id(_other), do: :error

  ## What a client sends

  @served ~w(model input previous_response_id conversation stream background store)

  # What it asks for without them.
  @defaults %{
    "store" => true,
    "truncation" => "disabled",
    "parallel_tool_calls" => true,
    "temperature" => 1,
    "top_p" => 1,
    "tool_choice" => "auto",
    "service_tier" => "auto",
    "text" => %{"format" => %{"type" => "text"}}
  }

  @doc """
  Reads the body of a request: `{:ok, conversation, {:respond, input}, run}`, where the conversation is `nil` for a new one, or `{:error, kind}`. A
  field that is not served is `{:error, {:unsupported_parameter, name}}`, unless it asks for what there is.
  """
  def read(body, limits) do
    with :ok <- check_fields(body),
         :ok <- check_model(body["model"], limits[:model]),
         {:ok, previous} <- previous(body["previous_response_id"]),
         {:ok, conversation} <- conversation(body["conversation"]),
         true <-
           previous == nil or conversation == nil || {:error, {:invalid_value, "conversation"}},
         {:ok, parts} <- input(body["input"]),
         {:ok, {:say, _id, input}} <- Input.say("new", parts, &part/1, limits) do
      run = %{
        conversation: nil,
        stream: body["stream"] == true,
        background: body["background"] == true,
        previous: body["previous_response_id"],
        after: previous && previous.key
      }

      {:ok, if(previous, do: previous.conversation, else: conversation), {:respond, input}, run}
    end
  end

  defp check_fields(body) do
    unserved? = fn {name, value} ->
      value not in [nil, [], %{}] and value != @defaults[name] and
        (name not in @served or
           (name in ["stream", "background", "store"] and not is_boolean(value)) or
           {name, value} == {"store", false})
    end

    case body |> Enum.filter(unserved?) |> Enum.map(&elem(&1, 0)) |> Enum.sort() do
      [] -> :ok
      [name | _] -> {:error, {:unsupported_parameter, name}}
    end
  end

  defp check_model(model, known) when model in [nil, known], do: :ok
  defp check_model(_model, _known), do: {:error, {:model_not_found, "model"}}

  defp previous(nil), do: {:ok, nil}

  defp previous(id) do
    with :error <- parse_id(id),
         do: {:error, {:previous_response_not_found, "previous_response_id"}}
  end

  defp conversation(nil), do: {:ok, nil}
  defp conversation(%{"id" => id}), do: conversation(id)
  defp conversation(id) when is_binary(id), do: {:ok, id}
  defp conversation(_other), do: {:error, {:invalid_value, "conversation"}}

  defp input(text) when is_binary(text),
    do: {:ok, [%{"type" => "input_text", "text" => text}]}

  # The history is the server's, and so is what the agent is told.
  defp input([_ | _] = items) do
    items
    |> Enum.with_index()
    |> Input.each(fn
      {%{"role" => "user", "content" => text}, _index} when is_binary(text) -> input(text)
      {%{"role" => "user", "content" => [_ | _] = parts}, _index} -> {:ok, parts}
      {_other, index} -> {:error, {:unsupported_parameter, "input[#{index}]"}}
    end)
    |> then(&with({:ok, parts} <- &1, do: {:ok, Enum.concat(parts)}))
  end

  defp input(_other), do: {:error, {:invalid_value, "input"}}

  defp part(%{"type" => "input_text", "text" => text}),
    do: Input.text(%{"type" => "text", "text" => text})

  defp part(%{"type" => "input_image", "image_url" => url}), do: file(url, nil)

  defp part(%{"type" => "input_file", "file_data" => url} = part),
    do: file(url, part["filename"])

  defp part(%{"type" => type}) when type in ["input_image", "input_file"],
    do: {:error, :file_not_in_message}

  defp part(_other), do: {:error, :invalid_part}

  defp file("data:" <> rest, name) do
    case String.split(rest, ";base64,", parts: 2) do
      [type, data] -> Input.file(type, data, name)
      _other -> {:error, :invalid_file}
    end
  end

  defp file(_elsewhere, _name), do: {:error, :file_not_in_message}
end
