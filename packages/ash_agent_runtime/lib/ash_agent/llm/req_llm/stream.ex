defmodule AshAgent.LLM.ReqLLM.Stream do
  @moduledoc false

  # ReqLLM as a transport: its chunks are pushed to a response, and its errors become those of a provider. It runs in a
  # process of its own, to which ReqLLM's processes are linked: they end, and its connection closes, with the caller.

  @behaviour AshAgent.LLM.Transport

  @compile {:no_warn_undefined, [ReqLLM, ReqLLM.StreamResponse, ReqLLM.Tool]}

  alias AshAgent.{Context, Response}
  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Reading
  alias AshAgent.LLM.Transport.Relay

  # The longest wait of ReqLLM itself: the client's own clock is the one that counts.
  @day 86_400_000

  # The state in the caller's process:
  #
  #   * `reading` - the answer as it is read, see `AshAgent.LLM.Reading`
  #   * `calls` - the numbers of calls, by the keys that ReqLLM has for them; `count` is the next number
  #   * `delivered?` - `true` when a chunk said something
  #   * `finished?` - `true` when the provider said why the model stopped
  #   * `response` - ReqLLM's response, when all of it came
  @enforce_keys [:reading]
  defstruct [:reading, :response, calls: %{}, count: 0, delivered?: false, finished?: false]

  @impl true
  def stream(request, reading, fun, opts) do
    state = %__MODULE__{reading: reading}

    case Relay.stream(request, state, &take(&1, &2, fun), &produce(opts[:call], &1)) do
      {:ok, state} -> {:ok, merge_response(state)}
      {:error, reason, state} -> {:error, reason, state.reading}
    end
  end

  defp take({:chunk, chunk}, state, fun) do
    case deltas(chunk, state) do
      {[], state} -> {:cont, state}
      {deltas, state} -> deliver(deltas, %{state | delivered?: true}, fun)
    end
  end

  # The provider has announced the end, so the calls are complete.
  defp take({:response, response}, %{finished?: true} = state, fun) do
    usage = for usage <- [usage(response.usage)], usage != nil, do: {:usage, usage}
    finish = {:finish, finish_word(response.finish_reason) || :stop}

    with {:cont, state} <- deliver(usage ++ [finish], state, fun),
         do: {:halt, %{state | response: response}}
  end

  # Without a last word, it is incomplete. Without any word, ReqLLM goes on and asks again.
  defp take({:response, _response}, state, _fun),
    do: {if(state.delivered?, do: :halt, else: :cont), state}

  defp take({:whole, response}, state, _fun), do: {:halt, %{state | response: response}}

  # An error in the middle of an answer.
  defp take({:data, _body}, %{delivered?: true} = state, _fun), do: {:cont, state}
  defp take(message, state, fun), do: read(message, state, fun)

  defp deliver(deltas, state, fun), do: read({:deltas, deltas}, state, fun)

  defp read(message, state, fun) do
    {next, reading} = fun.(message, state.reading)
    {next, %{state | reading: reading}}
  end

  ## Chunks

  defp deltas(%{type: :content, text: text}, state) when is_binary(text) and text != "",
    do: {[{:text, text}], state}

  defp deltas(%{type: :thinking, text: text}, state) when is_binary(text) and text != "",
    do: {[{:thinking, text}], state}

  # Providers that send arguments whole send them with the call.
  defp deltas(%{type: :tool_call, name: name} = chunk, %{count: number} = state)
       when is_binary(name) do
    id = chunk.metadata[:id] || "call_#{number}"
    calls = Map.put(state.calls, chunk.metadata[:index] || {:whole, number}, number)
    state = %{state | calls: calls, count: number + 1}

    arguments =
      if chunk.arguments in [nil, %{}],
        do: [],
        else: [{:tool_call_arguments, number, encode(chunk.arguments)}]

    {[{:tool_call_started, number, id, name} | arguments], state}
  end

  defp deltas(%{type: :meta, metadata: %{tool_call_args: %{index: key} = args}}, state)
       when is_map_key(state.calls, key),
       do: {[{:tool_call_arguments, state.calls[key], args.fragment}], state}

  defp deltas(%{type: :meta, metadata: %{finish_reason: reason}}, state) when reason != nil,
    do: {[], %{state | finished?: true}}

  defp deltas(_chunk, state), do: {[], state}

  ## The response

  # ReqLLM's own response has fields that its stream lacks: the reasoning that providers want back.
  defp merge_response(%{response: response, reading: %{response: nil} = reading})
       when response != nil,
       do: put(reading, message(response), response)

  defp merge_response(%{response: response, reading: %{response: %{state: :complete}} = reading})
       when response != nil do
    read = Response.message(reading.response)
    message = message(response)
    calls = merge_calls(message[:tool_calls] || [], read[:tool_calls] || [])
    signed? = message.content |> List.wrap() |> Enum.any?(&signed?/1)
    content = if signed?, do: message.content, else: read.content
    put(reading, %{content: content, tool_calls: calls}, response)
  end

  defp merge_response(%{reading: reading}), do: reading

  # The ids of chunks may be our own. A call whose arguments were cut has none at all in ReqLLM's response, and is not among
  # those that were read.
  defp merge_calls(theirs, read) when length(theirs) == length(read),
    do: Enum.zip_with(theirs, read, &Map.put(&1, :arguments, &2.arguments))

  defp merge_calls(theirs, read) do
    ids = Enum.map(read, & &1.id)
    Enum.filter(theirs, &(&1.id in ids))
  end

  defp put(reading, message, response) do
    facts = %{usage: usage(response.usage), finish_reason: finish_word(response.finish_reason)}

    case message
         |> Map.merge(facts)
         |> Map.put(:model, response.model)
         |> Response.from_message() do
      {:ok, response} -> Reading.put_response(reading, response)
      {:error, _what_is_wrong} -> reading
    end
  end

  defp signed?(%{provider_metadata: metadata}),
    do: is_map_key(metadata, :signature) or is_map_key(metadata, :encrypted_content)

  defp signed?(_part), do: false

  defp message(%{message: message}) do
    messages = [%{role: :user, content: "?"} | List.wrap(message)]
    {:ok, context, _report} = Context.ReqLLM.from_req_llm(messages)

    context
    |> Context.to_messages()
    |> Enum.find(%{content: nil}, &(&1.role == :assistant))
    |> Map.take([:content, :tool_calls])
  end

  defp usage(%{} = usage) do
    %{
      input_tokens: usage[:input_tokens],
      output_tokens: count_output(usage),
      cached_tokens: usage[:cached_tokens],
      cache_write_tokens: usage[:cache_creation_tokens],
      reasoning_tokens: usage[:reasoning_tokens]
    }
    |> Map.filter(fn {_name, count} -> is_integer(count) end)
  end

  defp usage(_none), do: nil

  # Google counts reasoning separately, others within the output: the total shows which.
  defp count_output(
         %{input_tokens: input, output_tokens: output, reasoning_tokens: thought} = usage
       )
       when is_integer(input) and is_integer(output) and is_integer(thought) do
    if usage[:total_tokens] == input + output + thought, do: output + thought, else: output
  end

  defp count_output(usage), do: usage[:output_tokens]

  defp finish_word(word) when word in [:cancelled, :incomplete, :unknown],
    do: Atom.to_string(word)

  defp finish_word(word), do: word

  ## In the process that runs ReqLLM

  defp produce(call, hand_over) do
    ask(call, hand_over)
  rescue
    error -> tell_failure(error, hand_over)
  catch
    :exit, {:timeout, _call} -> {:error, {:timeout, :idle}}
    :exit, _reason -> {:error, {:connection, :closed}}
  end

  defp ask(%{mode: :chat} = call, hand_over) do
    opts = options(call) ++ [req_http_options: [retry: false]]

    case ReqLLM.generate_text(call.model, call.context, opts) do
      {:ok, response} -> hand_over.({:whole, response})
      {:error, error} -> refuse(error, hand_over)
    end
  end

  defp ask(%{mode: :stream} = call, hand_over) do
    {:links, own} = Process.info(self(), :links)

    case ReqLLM.stream_text(call.model, call.context, options(call)) do
      {:ok, stream} ->
        guard(stream, own)
        read_stream(stream, call, hand_over)

      {:error, error} ->
        refuse(error, hand_over)
    end
  end

  # The caller ends this process when it has all it needs.
  defp read_stream(stream, call, hand_over) do
    case ReqLLM.StreamResponse.process_stream(stream, on_chunk: &hand_over.({:chunk, &1})) do
      {:ok, response} ->
        :cont = hand_over.({:response, response})

        # ReqLLM loses the error of a stream whose connection ends before it is read. Asked again without one, it tells.
        ask(%{call | mode: :chat}, hand_over)

      {:error, error} ->
        tell_failure(error, hand_over)
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

  defp options(call) do
    tools = Enum.map(call.tools, &to_req_llm/1)

    [receive_timeout: @day, max_retries: 0]
    |> Keyword.merge(call.options)
    |> Keyword.merge(if tools == [], do: [], else: [tools: tools])
    |> Keyword.merge(if key = call.key.(), do: [api_key: key], else: [])
  end

  # The application runs the calls, not ReqLLM.
  defp to_req_llm(tool) do
    ReqLLM.Tool.new!(
      name: tool.name,
      description: tool.description || "",
      parameter_schema: AshAgent.LLM.Client.parameters(tool.parameters),
      callback: fn _arguments -> {:error, "not run here"} end
    )
  end

  ## Errors

  # ReqLLM finds this before it sends anything, such as an unknown provider.
  defp refuse({:http_streaming_failed, reason}, hand_over), do: refuse(reason, hand_over)
  defp refuse({:provider_build_failed, reason}, hand_over), do: refuse(reason, hand_over)
  defp refuse(error, hand_over) when is_exception(error), do: tell_failure(error, hand_over)

  defp refuse(reason, _hand_over) do
    word = if is_tuple(reason) and tuple_size(reason) > 0, do: elem(reason, 0), else: reason
    shown = if is_atom(word), do: inspect(word), else: "for an unknown reason"
    {:error, {:request, %ArgumentError{message: "ReqLLM refuses it: #{shown}"}}}
  end

  defp tell_failure(%{status: status} = error, hand_over) when is_integer(status) do
    headers = for {name, value} <- Map.get(error, :headers) || [], do: {name, to_text(value)}
    body = Map.get(error, :response_body)
    _ = hand_over.({:head, status, headers})
    _ = hand_over.({:data, encode_body(body)})
    :ok
  end

  defp tell_failure(%{cause: cause}, hand_over) when cause != nil,
    do: tell_failure(cause, hand_over)

  defp tell_failure({:http_task_failed, reason}, hand_over), do: tell_failure(reason, hand_over)
  defp tell_failure({:error, reason}, hand_over), do: tell_failure(reason, hand_over)

  # Errors of Mint and of Req.
  defp tell_failure(%{reason: reason} = error, _hand_over) when is_atom(reason) and reason != nil,
    do: {:error, Relay.reason(error)}

  # A missing key, or an option that the provider does not have. Other exceptions may show what they failed for.
  defp tell_failure(%module{} = error, _hand_over) when is_exception(error) do
    own? = match?(["ReqLLM" | _], Module.split(module))
    shown = if own?, do: error, else: %RuntimeError{message: "ReqLLM raised #{inspect(module)}"}
    {:error, {:request, shown}}
  end

  defp tell_failure(_other, _hand_over), do: {:error, {:connection, :failed}}

  defp to_text([value | _]), do: to_text(value)
  defp to_text(value), do: to_string(value)

  defp encode_body(body) when is_binary(body), do: body
  # Without the name that errors have around them in providers' answers.
  defp encode_body(%{"message" => _words} = error), do: encode_body(%{"error" => error})

  defp encode_body(%{} = body), do: encode(body)
  defp encode_body(_other), do: ""

  defp encode(term), do: term |> JSON.encode() |> IO.iodata_to_binary()
end
