defmodule AshAgent.TestSupport.Model do
  @moduledoc false
  # The context as lists and maps, written from the specification, as slowly and plainly as can be. Operations
  # return `{:ok, model}` or `{:error, reasons}`, where `reasons` are those the specification allows.

  defstruct [:id, :metadata, :created_at, :updated_at, :iterations, :origin]

  @any_text :"$any_text"

  @doc "Stands for a text the specification leaves open (the order of JSON keys, for example)."
  def any_text, do: @any_text

  @json_texts %{
    ~s({"city":"NYC"}) => %{"city" => "NYC"},
    ~s( {"n": 123456789012345678901234567890, "f": 1.5, "l": [null, true, {}]} ) => %{
      "n" => 123_456_789_012_345_678_901_234_567_890,
      "f" => 1.5,
      "l" => [nil, true, %{}]
    },
    ~s({"text":"Gr\\u00fc\\u00dfe \\ud83d\\ude00"}) => %{"text" => "Grüße 😀"},
    "{}" => %{},
    "[1,2]" => "[1,2]",
    "not json" => "not json",
    ~s({"open":) => ~s({"open":),
    <<123, 255, 125>> => <<123, 255, 125>>
  }

  @doc "Arguments a provider may send as JSON text, and what they come back as."
  def json_texts, do: @json_texts

  # Operations

  def new(input, options) do
    at = Keyword.fetch!(options, :at)

    system =
      case options[:system_prompt] do
        nil -> []
        prompt -> [message(:system, prompt, [], [])]
      end

    %__MODULE__{
      id: Keyword.fetch!(options, :id),
      metadata: Keyword.get(options, :metadata, %{}),
      created_at: at,
      updated_at: at,
      iterations: [
        %{iteration(1, at) | messages: system ++ [message(:user, input(input), [], [])]}
      ]
    }
  end

  def add_user_message(model, input, options \\ []) do
    with :ok <- nothing_pending(model) do
      at = Keyword.fetch!(options, :at)
      message = message(:user, input(input), [], options)
      current = current(model)

      if Enum.any?(current.messages, &(&1.role == :assistant)) do
        opened = %{iteration(current.number + 1, at) | messages: [message]}
        completed = %{current | completed_at: at}
        {:ok, %{replace(model, completed, at) | iterations: head(model) ++ [completed, opened]}}
      else
        {:ok, replace(model, append(current, message), at)}
      end
    end
  end

  def add_assistant_message(model, content, calls \\ [], options \\ []) do
    current = current(model)
    position = length(messages(current))

    calls =
      calls
      |> Enum.with_index()
      |> Enum.map(fn {call, index} ->
        call(call, "call_#{current.number}_#{position}_#{index}")
      end)

    ids = Enum.map(calls, & &1.call.id)

    case {nothing_pending(model), ids -- Enum.uniq(ids)} do
      {:ok, []} ->
        message = message(:assistant, content, calls, options)
        {:ok, replace(model, append(current, message), Keyword.fetch!(options, :at))}

      {:ok, twice} ->
        {:error, Enum.map(twice, &{:duplicate_tool_call, &1})}

      {{:error, reasons}, twice} ->
        {:error, reasons ++ Enum.map(twice, &{:duplicate_tool_call, &1})}
    end
  end

  def add_tool_results(model, results, options \\ []) do
    results = Enum.map(results, &result/1)

    case faults(model, Enum.map(results, &elem(&1, 0))) do
      [] -> {:ok, fill(model, Map.new(results), options)}
      reasons -> {:error, reasons}
    end
  end

  def interrupt(model, reason \\ "interrupted", options \\ []) do
    case pending_ids(model) do
      [] -> {:ok, model}
      ids -> {:ok, fill(model, Map.new(ids, &{&1, {:error, reason}}), options)}
    end
  end

  def put_metadata(model, key, value, options \\ []) do
    metadata = Map.put(model.metadata, key, value)
    {:ok, %{model | metadata: metadata, updated_at: Keyword.fetch!(options, :at)}}
  end

  def put_iteration_metadata(model, number, key, value, options \\ []) do
    numbers = Enum.map(model.iterations, & &1.number)

    if number in numbers do
      iterations =
        Enum.map(model.iterations, fn
          %{number: ^number} = it -> %{it | metadata: Map.put(it.metadata, key, value)}
          other -> other
        end)

      {:ok, %{model | iterations: iterations, updated_at: Keyword.fetch!(options, :at)}}
    else
      {:error, [{:unknown_iteration, number, hd(numbers)..List.last(numbers)}]}
    end
  end

  def update(model, %{} = attributes), do: {:ok, struct!(model, attributes)}

  def recreate(model), do: {:ok, model}

  def fork(model, options) do
    at = Keyword.fetch!(options, :at)
    origin = %{id: model.id, iteration: current_iteration(model)}
    id = Keyword.fetch!(options, :id)
    {:ok, %{model | id: id, origin: origin, created_at: at, updated_at: at}}
  end

  # Reading

  def to_map(model) do
    %{
      id: model.id,
      iterations: Enum.map(model.iterations, &shown_iteration/1),
      current_iteration: current_iteration(model),
      metadata: model.metadata,
      created_at: model.created_at,
      updated_at: model.updated_at
    }
    |> Map.merge(if(model.origin, do: %{origin: model.origin}, else: %{}))
  end

  def current_iteration(model), do: current(model).number

  def to_messages(model), do: Enum.flat_map(model.iterations, &messages/1)

  def extract_tool_calls(model) do
    case List.last(current(model).messages) do
      nil -> []
      message -> Enum.map(message.calls, & &1.call)
    end
  end

  def pending_tool_calls(model) do
    for message <- current(model).messages,
        %{call: call, result: nil} <- message.calls,
        do: call
  end

  def pending_ids(model), do: Enum.map(pending_tool_calls(model), & &1.id)

  def known_ids(model) do
    for iteration <- model.iterations,
        message <- iteration.messages,
        %{call: call} <- message.calls,
        uniq: true,
        do: call.id
  end

  # The text a language model sees for a result

  def result_content({:ok, value}) do
    if parts?(value), do: value, else: blank(text(value))
  end

  def result_content({:error, reason}), do: blank(words(reason))

  defp blank(@any_text), do: @any_text
  defp blank(text), do: if(String.trim(text) == "", do: "(no output)", else: text)

  defp text(nil), do: ""
  defp text(value) when is_binary(value), do: valid(value)
  defp text(value), do: json(value)

  defp valid(text), do: if(String.valid?(text), do: text, else: @any_text)

  defp words(nil), do: ""
  defp words(reason) when is_binary(reason), do: valid(reason)

  defp words(reason) when is_atom(reason) do
    text = Atom.to_string(reason)
    if text =~ ~r/^[a-z]+(_[a-z]+)*$/, do: String.replace(text, "_", " "), else: @any_text
  end

  defp words(%{message: message}) when is_binary(message), do: valid(message)
  defp words({}), do: @any_text

  defp words(reason) when is_tuple(reason) do
    words = reason |> Tuple.to_list() |> Enum.map(&words/1)

    if Enum.any?(words, &(&1 == @any_text or String.trim(&1) == "")),
      do: @any_text,
      else: Enum.join(words, ": ")
  end

  defp words(reason) when is_integer(reason) or reason == [] or reason == %{}, do: json(reason)
  defp words(_), do: @any_text

  @doc "JSON text where the specification leaves no choice, otherwise `any_text/0`."
  def json(value) do
    case catch_open(fn -> IO.iodata_to_binary(encode(value)) end) do
      :open -> @any_text
      text -> text
    end
  end

  defp catch_open(fun) do
    fun.()
  catch
    :open -> :open
  end

  defp encode(value) when value in [nil, true, false], do: Atom.to_string(value) |> nil_to_null()
  defp encode(value) when is_atom(value), do: encode(Atom.to_string(value))
  defp encode(value) when is_integer(value), do: Integer.to_string(value)
  defp encode(0.5), do: "0.5"

  defp encode(value) when is_binary(value) do
    if value =~ ~r/\A[A-Za-z0-9 _.:-]*\z/, do: [?", value, ?"], else: throw(:open)
  end

  defp encode([{key, _} | _] = list) when is_atom(key) do
    if Keyword.keyword?(list), do: throw(:open), else: encode_array(list)
  end

  defp encode(list) when is_list(list), do: encode_array(list)
  defp encode(tuple) when is_tuple(tuple), do: tuple |> Tuple.to_list() |> encode_array()
  defp encode(map) when map == %{}, do: "{}"

  defp encode(map) when is_map(map) and map_size(map) == 1 do
    [{key, value}] = Map.to_list(map)
    unless is_atom(key) or is_binary(key), do: throw(:open)
    if key == :__struct__, do: throw(:open)
    [?{, encode(if(is_atom(key), do: Atom.to_string(key), else: key)), ?:, encode(value), ?}]
  end

  defp encode(_), do: throw(:open)

  defp encode_array(list), do: [?[, list |> Enum.map(&encode/1) |> Enum.intersperse(","), ?]]

  defp nil_to_null("nil"), do: "null"
  defp nil_to_null(text), do: text

  # Inside

  defp iteration(number, at) do
    %{number: number, messages: [], started_at: at, completed_at: nil, metadata: %{}}
  end

  defp message(role, content, calls, options) do
    %{
      role: role,
      content: content,
      calls: calls,
      metadata: options[:metadata],
      results_metadata: nil
    }
  end

  defp input(%{message: text} = map) when map_size(map) == 1 and is_binary(text), do: text
  defp input(%{"message" => text} = map) when map_size(map) == 1 and is_binary(text), do: text
  defp input(map) when is_map(map), do: json(map)
  defp input(other), do: other

  defp call(given, derived) do
    call =
      Map.new(given, fn
        {"id", value} -> {:id, value}
        {"name", value} -> {:name, value}
        {"arguments", value} -> {:arguments, value}
        other -> other
      end)

    id = if call[:id] in [nil, ""], do: derived, else: call.id

    arguments =
      case call[:arguments] do
        nil -> %{}
        text when is_binary(text) -> Map.fetch!(@json_texts, text)
        map -> map
      end

    %{call: Map.merge(call, %{id: id, arguments: arguments}), result: nil}
  end

  defp result({id, result}), do: {id, result}
  defp result(%{id: id, result: result}), do: {id, result}
  defp result(%{"id" => id, "result" => result}), do: {id, result}

  defp faults(model, given) do
    pending = pending_ids(model)
    twice = Enum.map(given -- Enum.uniq(given), &{:duplicate_tool_result, &1})
    answered = current(model).messages |> Enum.flat_map(& &1.calls) |> Enum.map(& &1.call.id)
    answered = answered -- pending
    earlier = known_ids(model) -- (answered ++ pending)

    cond do
      given == [] and pending == [] -> [{:no_tool_results, []}, {:no_pending_tool_calls, []}]
      given == [] -> [{:no_tool_results, pending}]
      pending == [] -> [{:no_pending_tool_calls, given} | twice]
      true -> twice ++ Enum.flat_map(given, &fault(&1, pending, answered, earlier))
    end
  end

  defp fault(id, pending, answered, earlier) do
    cond do
      id in pending ->
        []

      id in answered ->
        [{:tool_call_already_answered, id, pending}]

      id in earlier ->
        [{:tool_call_already_answered, id, pending}, {:unknown_tool_call, id, pending}]

      true ->
        [{:unknown_tool_call, id, pending}]
    end
  end

  defp fill(model, results, options) do
    at = Keyword.fetch!(options, :at)
    current = current(model)

    messages =
      Enum.map(current.messages, fn message ->
        if Enum.any?(message.calls, &(&1.result == nil)),
          do: fill_message(message, results, options[:metadata]),
          else: message
      end)

    current = %{current | messages: messages}

    if Enum.any?(messages, fn m -> Enum.any?(m.calls, &(&1.result == nil)) end) do
      replace(model, current, at)
    else
      current = %{current | completed_at: at}
      model = replace(model, current, at)
      %{model | iterations: model.iterations ++ [iteration(current.number + 1, at)]}
    end
  end

  defp fill_message(message, results, metadata) do
    calls =
      Enum.map(message.calls, fn
        %{result: nil} = call -> %{call | result: results[call.call.id]}
        call -> call
      end)

    merged = if metadata, do: Map.merge(message.results_metadata || %{}, metadata)
    %{message | calls: calls, results_metadata: merged || message.results_metadata}
  end

  defp nothing_pending(model) do
    case pending_ids(model) do
      [] -> :ok
      ids -> {:error, [{:pending_tool_calls, ids}]}
    end
  end

  defp current(model), do: List.last(model.iterations)
  defp head(model), do: Enum.drop(model.iterations, -1)
  defp append(iteration, message), do: %{iteration | messages: iteration.messages ++ [message]}

  defp replace(model, current, at) do
    %{model | iterations: head(model) ++ [current], updated_at: at}
  end

  defp shown_iteration(iteration) do
    calls = Enum.flat_map(iteration.messages, & &1.calls)

    %{
      number: iteration.number,
      messages: messages(iteration),
      tool_calls: Enum.map(calls, &Map.put(&1.call, :result, &1.result)),
      started_at: iteration.started_at,
      completed_at: iteration.completed_at,
      metadata: iteration.metadata
    }
  end

  defp messages(iteration), do: Enum.flat_map(iteration.messages, &shown_messages/1)

  defp shown_messages(message) do
    shown = %{role: message.role, content: message.content}

    shown =
      if message.calls == [],
        do: shown,
        else: Map.put(shown, :tool_calls, Enum.map(message.calls, & &1.call))

    shown = if message.metadata, do: Map.put(shown, :metadata, message.metadata), else: shown
    [shown | shown_results(message)]
  end

  defp shown_results(message) do
    case Enum.reject(message.calls, &(&1.result == nil)) do
      [] ->
        []

      filled ->
        shown = %{role: :user, content: Enum.map(filled, &shown_result/1)}

        if message.results_metadata,
          do: [Map.put(shown, :metadata, message.results_metadata)],
          else: [shown]
    end
  end

  defp shown_result(%{call: call, result: {kind, _} = result}) do
    %{
      type: :tool_result,
      tool_use_id: call.id,
      content: result_content(result),
      is_error: kind == :error
    }
  end

  defp parts?([_ | _] = list) do
    Enum.all?(list, &(is_map(&1) and Map.get(&1, :type) in [:text, :image, :file]))
  end

  defp parts?(_), do: false
end
