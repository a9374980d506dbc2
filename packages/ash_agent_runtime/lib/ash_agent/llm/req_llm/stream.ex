defmodule AshAgent.LLM.ReqLLM.Stream do
  @moduledoc false

  # ReqLLM as a transport: its chunks become the events of a stream, and its errors those of a provider. It runs in a
  # process of its own, which its processes are linked to: they end, and its connection closes, with the caller.

  @behaviour AshAgent.LLM.Transport

  @compile {:no_warn_undefined, [ReqLLM, ReqLLM.StreamResponse, ReqLLM.Tool]}

  alias AshAgent.{Context, Response}
  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Reading
  alias AshAgent.LLM.Transport.Relay

  # The longest that ReqLLM itself waits: the clock of the client is the one that counts.
  @day 86_400_000

  @impl true
  def stream(request, reading, fun, opts) do
    call = opts[:call]

    take = fn
      {:response, response}, {reading, nil} ->
        {:cont, {reading, response}}

      message, {reading, response} ->
        {next, reading} = fun.(message, reading)
        {next, {reading, response}}
    end

    case Relay.stream(request, {reading, nil}, take, &produce(call, &1)) do
      {:ok, acc} -> {:ok, result(acc)}
      {:error, reason, {reading, _response}} -> {:error, reason, reading}
    end
  end

  # ReqLLM's own response has what its stream does not say: what providers want back of their reasoning.
  defp result({%{response: nil} = reading, response}) when response != nil,
    do: put(reading, message(response), response)

  defp result({%{response: %{state: :complete}} = reading, response}) when response != nil do
    read = Response.message(reading.response)
    message = message(response)
    calls = calls(message[:tool_calls] || [], read[:tool_calls] || [])
    signed? = message.content |> List.wrap() |> Enum.any?(&signed?/1)
    content = if signed?, do: message.content, else: plain(read.content)
    put(reading, %{content: content, tool_calls: calls}, response)
  end

  defp result({reading, _response}), do: reading

  # Ids may be ReqLLM's own. A call whose arguments were cut has none at all in its response, and is not among those read.
  defp calls(theirs, read) when length(theirs) == length(read),
    do: Enum.zip_with(theirs, read, &Map.put(&1, :arguments, &2.arguments))

  defp calls(theirs, read) do
    ids = Enum.map(read, & &1.id)
    Enum.filter(theirs, &(&1.id in ids))
  end

  defp put(reading, message, response) do
    told = %{
      usage: usage(response.usage),
      finish_reason: word(response.finish_reason),
      model: response.model
    }

    case Response.from_message(Map.merge(message, told)) do
      {:ok, response} -> Reading.put_response(reading, response)
      {:error, _what_is_wrong} -> reading
    end
  end

  defp signed?(%{provider_metadata: metadata}),
    do: is_map_key(metadata, :signature) or is_map_key(metadata, :encrypted_content)

  defp signed?(_part), do: false

  # The stream was written as Anthropic's, but Anthropic has signed nothing of it.
  defp plain(parts) when is_list(parts), do: Enum.map(parts, &Map.delete(&1, :provider_metadata))
  defp plain(content), do: content

  defp message(%{message: message}) do
    messages = [%{role: :user, content: "?"} | List.wrap(message)]
    {:ok, context, _report} = Context.from_req_llm(messages)

    context
    |> Context.to_messages()
    |> Enum.find(%{content: nil}, &(&1.role == :assistant))
    |> Map.take([:content, :tool_calls])
  end

  defp usage(%{} = usage) do
    %{
      input_tokens: usage[:input_tokens],
      output_tokens: output(usage),
      cached_tokens: usage[:cached_tokens],
      cache_write_tokens: usage[:cache_creation_tokens],
      reasoning_tokens: usage[:reasoning_tokens]
    }
    |> Map.filter(fn {_name, count} -> is_integer(count) end)
  end

  defp usage(_none), do: nil

  # Google counts reasoning apart, others within the output: the total tells.
  defp output(%{input_tokens: input, output_tokens: output, reasoning_tokens: thought} = usage)
       when is_integer(input) and is_integer(output) and is_integer(thought) do
    if usage[:total_tokens] == input + output + thought, do: output + thought, else: output
  end

  defp output(usage), do: usage[:output_tokens]

  defp word(word) when word in [:cancelled, :incomplete, :unknown], do: Atom.to_string(word)
  defp word(word), do: word

  ## In the process that runs ReqLLM

  defp produce(call, hand_over) do
    answer(call, hand_over)
  rescue
    error -> failed(error, hand_over)
  catch
    :exit, {:timeout, _call} -> {:error, {:timeout, :idle}}
    :exit, _reason -> {:error, {:connection, :closed}}
  end

  defp answer(%{mode: :chat} = call, hand_over) do
    opts = options(call) ++ [req_http_options: [retry: false]]

    case ReqLLM.generate_text(call.model, call.context, opts) do
      {:ok, response} -> finish(response, hand_over)
      {:error, error} -> refused(error, hand_over)
    end
  end

  defp answer(%{mode: :stream} = call, hand_over) do
    {:links, own} = Process.info(self(), :links)

    case ReqLLM.stream_text(call.model, call.context, options(call)) do
      {:ok, stream} ->
        guard(stream, own)
        follow(stream, call, hand_over)

      {:error, error} ->
        refused(error, hand_over)
    end
  end

  # ReqLLM's processes are linked to this one, and log their state with the conversation when it is killed. So another one
  # ends them.
  defp guard(stream, own) do
    {:links, links} = Process.info(self(), :links)
    theirs = links -- own
    Enum.each(theirs, &Process.unlink/1)
    guarded = self()

    spawn(fn ->
      monitor = Process.monitor(guarded)

      receive do
        {:DOWN, ^monitor, :process, _pid, _reason} ->
          try do
            stream.cancel.()
          catch
            :exit, _over -> :ok
          end

          Enum.each(theirs, &Process.exit(&1, :kill))
      end
    end)
  end

  defp finish(response, hand_over) do
    _ = hand_over.({:response, response})
    :ok
  end

  defp options(call) do
    tools = Enum.map(call.tools, &tool/1)

    [receive_timeout: @day, max_retries: 0]
    |> Keyword.merge(call.options)
    |> Keyword.merge(if tools == [], do: [], else: [tools: tools])
    |> Keyword.merge(if key = call.key.(), do: [api_key: key], else: [])
  end

  # Calls are run by whoever asks, not by ReqLLM.
  defp tool(tool) do
    ReqLLM.Tool.new!(
      name: tool.name,
      description: tool.description || "",
      parameter_schema: AshAgent.LLM.Client.parameters(tool.parameters),
      callback: fn _arguments -> {:error, "not run here"} end
    )
  end

  defp follow(stream, call, hand_over) do
    Process.put(__MODULE__, %{open: nil, index: -1, calls: %{}, finish: nil, told?: false})

    answer = ReqLLM.StreamResponse.process_stream(stream, on_chunk: &chunk(&1, hand_over))

    case {answer, Process.get(__MODULE__)} do
      {{:ok, response}, %{finish: finish}} when finish != nil -> ended(response, hand_over)
      # ReqLLM loses the error of a stream whose connection ends before it is read. Asked again, without one, it tells.
      {{:ok, _response}, %{told?: false}} -> answer(%{call | mode: :chat}, hand_over)
      # The provider has not said that this is all.
      {{:ok, _response}, _state} -> :ok
      {{:error, error}, _state} -> failed(error, hand_over)
    end
  catch
    :halted -> :ok
  end

  ## Chunks as events of Anthropic

  defp chunk(chunk, hand_over) do
    state = Process.get(__MODULE__)
    {events, state} = events(chunk, state)
    Process.put(__MODULE__, state)
    tell(events, hand_over)
  end

  defp tell([], _hand_over), do: :ok

  defp tell(events, hand_over) do
    state = Process.get(__MODULE__)

    unless state.told? do
      Process.put(__MODULE__, %{state | told?: true})
      give(hand_over, {:head, 200, [{"content-type", "text/event-stream"}]})
      give(hand_over, {:data, event(%{type: "message_start", message: %{role: "assistant"}})})
    end

    give(hand_over, {:data, Enum.map_join(events, &event/1)})
  end

  defp give(hand_over, message), do: if(hand_over.(message) == :halt, do: throw(:halted))

  defp event(event), do: "event: #{event.type}\ndata: #{json(event)}\n\n"
  defp json(term), do: term |> JSON.encode() |> IO.iodata_to_binary()

  defp events(%{type: :content, text: text}, state) when text not in [nil, ""],
    do: text(state, :text, %{type: "text", text: ""}, %{type: "text_delta", text: text})

  defp events(%{type: :thinking, text: text}, state) when text not in [nil, ""] do
    start = %{type: "thinking", thinking: ""}
    text(state, :thinking, start, %{type: "thinking_delta", thinking: text})
  end

  # Providers that send arguments whole send them with the call.
  defp events(%{type: :tool_call} = chunk, state) do
    {stop, state} = stop(state)
    index = state.index + 1
    id = chunk.metadata[:id] || "call_#{index}"
    start = %{type: "tool_use", id: id, name: chunk.name, input: %{}}
    whole = if chunk.arguments in [nil, %{}], do: "", else: json(chunk.arguments)
    call = %{index: index, json: whole}
    calls = Map.put(state.calls, chunk.metadata[:index] || {:whole, index}, call)
    delta = if whole == "", do: [], else: [arguments(index, whole)]

    {stop ++ [%{type: "content_block_start", index: index, content_block: start}] ++ delta,
     %{state | index: index, calls: calls}}
  end

  defp events(%{type: :meta, metadata: %{tool_call_args: args}}, state) do
    %{index: key, fragment: fragment} = args

    case state.calls do
      %{^key => call} ->
        calls = Map.put(state.calls, key, %{call | json: call.json <> fragment})
        {[arguments(call.index, fragment)], %{state | calls: calls}}

      _unknown ->
        {[], state}
    end
  end

  defp events(%{type: :meta, metadata: %{finish_reason: finish}}, state) when finish != nil,
    do: {[], %{state | finish: finish}}

  defp events(_chunk, state), do: {[], state}

  defp arguments(index, json),
    do: delta(index, %{type: "input_json_delta", partial_json: json})

  defp delta(index, delta), do: %{type: "content_block_delta", index: index, delta: delta}

  defp text(%{open: kind} = state, kind, _start, delta), do: {[delta(state.index, delta)], state}

  defp text(state, kind, start, delta) do
    {stop, state} = stop(state)
    index = state.index + 1
    start = %{type: "content_block_start", index: index, content_block: start}
    {stop ++ [start, delta(index, delta)], %{state | open: kind, index: index}}
  end

  defp stop(%{open: nil} = state), do: {[], state}

  defp stop(state),
    do: {[%{type: "content_block_stop", index: state.index}], %{state | open: nil}}

  # Calls are complete only now, when the provider has said that nothing else comes.
  defp ended(response, hand_over) do
    state = Process.get(__MODULE__)
    {stop, state} = stop(state)

    calls =
      for {_key, %{index: index, json: json}} <- Enum.sort_by(state.calls, &elem(&1, 1).index),
          whole?(json),
          do: %{type: "content_block_stop", index: index}

    finish = %{
      type: "message_delta",
      delta: %{stop_reason: reason(response.finish_reason)},
      usage: anthropic(usage(response.usage))
    }

    tell(stop ++ calls ++ [finish, %{type: "message_stop"}], hand_over)
    finish(response, hand_over)
  end

  defp whole?(""), do: true
  defp whole?(json), do: match?({:ok, %{}}, JSON.decode(json))

  @reasons %{stop: "end_turn", length: "max_tokens", tool_calls: "tool_use"}

  defp reason(word), do: Map.get(@reasons, word, to_string(word || "end_turn"))

  # Anthropic counts what came from its cache apart.
  defp anthropic(nil), do: %{}

  defp anthropic(usage) do
    cached = usage[:cached_tokens] || 0
    written = usage[:cache_write_tokens] || 0

    %{
      input_tokens: max((usage[:input_tokens] || 0) - cached - written, 0),
      cache_read_input_tokens: cached,
      cache_creation_input_tokens: written,
      output_tokens: usage[:output_tokens] || 0
    }
  end

  ## Errors

  # What ReqLLM finds before it sends anything, such as an unknown provider.
  defp refused({:http_streaming_failed, reason}, hand_over), do: refused(reason, hand_over)
  defp refused({:provider_build_failed, reason}, hand_over), do: refused(reason, hand_over)
  defp refused(error, hand_over) when is_exception(error), do: failed(error, hand_over)

  defp refused(reason, _hand_over) do
    word = if is_tuple(reason) and tuple_size(reason) > 0, do: elem(reason, 0), else: reason
    shown = if is_atom(word), do: inspect(word), else: "for an unknown reason"
    {:error, {:request, %ArgumentError{message: "ReqLLM refuses it: #{shown}"}}}
  end

  defp failed(%{status: status} = error, hand_over) when is_integer(status) do
    headers = for {name, value} <- Map.get(error, :headers) || [], do: {name, first(value)}
    body = Map.get(error, :response_body)
    _ = hand_over.({:head, status, headers})
    _ = hand_over.({:data, body(body)})
    :ok
  end

  defp failed(%{cause: cause}, hand_over) when cause != nil, do: failed(cause, hand_over)

  defp failed({:http_task_failed, reason}, hand_over), do: failed(reason, hand_over)
  defp failed({:error, reason}, hand_over), do: failed(reason, hand_over)

  # Those of Mint and of Req.
  defp failed(%{reason: reason} = error, _hand_over) when is_atom(reason) and reason != nil,
    do: {:error, Relay.reason(error)}

  # A missing key, or an option that the provider does not have. Other exceptions may show what they failed for.
  defp failed(%module{} = error, _hand_over) when is_exception(error) do
    own? = match?(["ReqLLM" | _], Module.split(module))
    shown = if own?, do: error, else: %RuntimeError{message: "ReqLLM raised #{inspect(module)}"}
    {:error, {:request, shown}}
  end

  defp failed(_other, _hand_over), do: {:error, {:connection, :failed}}

  defp first([value | _]), do: first(value)
  defp first(value), do: to_string(value)

  defp body(body) when is_binary(body), do: body
  # Without the name that errors have around them in providers' answers.
  defp body(%{"message" => _words} = error), do: body(%{"error" => error})

  defp body(%{} = body), do: json(body)
  defp body(_other), do: ""
end
