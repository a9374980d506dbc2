defmodule AshAgent.LLM.Difference do
  @moduledoc """
  The differences between two requests to the same provider, in the words of the domain.

      iex> was = %{"model" => "m", "messages" => [%{"role" => "user", "content" => "Hi"}]}
      iex> now = put_in(was["messages"], [%{"role" => "user", "content" => "Hello"}])
      iex> [difference] = AshAgent.LLM.Difference.between(was, now)
      iex> to_string(difference)
      ~s|message 1 (user), text: was "Hi", is "Hello"|

  `AshAgent.LLM.Recorded` names what a recording lacks with it, and `mix ash_agent.replay` what today's code would send otherwise.

    * `cause` - `:view` and `:version` (of the package), of replayed conversations; `:address` (the path of the request, with some providers the model), `:field` (a field of the body, such as the model or an
      option of the provider), `:tools`, `:system` (the system prompt) or `:message`
    * `where` - in words: the field, the tool and its parameter, or the message with its part
    * `was`, `is` - what is different there, cut to some words around the first difference; `nil` where there is nothing. Of a replayed
      conversation, `is` has the first words of the message or result that it holds now, and the words that were sent are not known
    * `message` - the number of the message, from 1, without the system prompt; otherwise `nil`
    * `name` - the field, the tool, or the id of the call; otherwise `nil`
  """

  use AshAgent.Arguments

  alias AshAgent.Context.JSON

  @enforce_keys [:cause, :where]
  defstruct [:cause, :where, :was, :is, :message, :name]

  @type t :: %__MODULE__{
          cause: :address | :field | :tools | :system | :message | :view | :version,
          where: String.t(),
          was: String.t() | nil,
          is: String.t() | nil,
          message: pos_integer() | nil,
          name: String.t() | nil
        }

  # The fields that have the messages and the system prompt, by provider.
  @messages ~w(messages contents input)
  @system ~w(system systemInstruction instructions)
  @tools ~w(tools toolConfig)

  @doc """
  Returns the differences between the bodies of two requests, decoded: those of fields first, then those of tools, of the system
  prompt, and the first one of the messages.

  The order of keys does not count.

  ## Examples

      iex> AshAgent.LLM.Difference.between(%{"model" => "a"}, %{"model" => "b"}) |> Enum.map(& &1.where)
      ["the field model"]
  """
  @doc since: "0.1.0"
  @spec between(map(), map()) :: [t()]
  def between(%{} = was, %{} = now) do
    {was_system, was_messages} = conversation(was)
    {now_system, now_messages} = conversation(now)

    compare_fields(was, now) ++
      compare_tools(was, now) ++
      compare_system(was_system, now_system) ++
      compare_messages(was_messages, now_messages, 1)
  end

  @doc """
  Counts the messages that both requests begin with.

  ## Examples

      iex> hi = %{"role" => "user", "content" => "Hi"}
      iex> AshAgent.LLM.Difference.count_common(%{"messages" => [hi]}, %{"messages" => [hi, hi]})
      1
  """
  @doc since: "0.1.0"
  @spec count_common(map(), map()) :: non_neg_integer()
  def count_common(was, now) when is_map(was) and is_map(now) do
    {_, was} = conversation(was)
    {_, now} = conversation(now)
    was |> Enum.zip(now) |> Enum.take_while(fn {a, b} -> a == b end) |> length()
  end

  # OpenAI and compatible servers have the system prompt as their first messages.
  defp conversation(body) do
    messages = Enum.find_value(@messages, [], &body[&1])
    messages = if is_list(messages), do: messages, else: [messages]

    {leading, rest} =
      Enum.split_while(messages, &(is_map(&1) and &1["role"] in ["system", "developer"]))

    system = for(key <- @system, value = body[key], do: value) ++ leading
    {system, rest}
  end

  @doc false
  # The words of a replayed conversation at the place of a difference.
  def put_words(difference, content) when is_binary(content),
    do: %{difference | is: cut(content, 0)}

  def put_words(difference, [%{type: :text, text: text} | _parts]),
    do: put_words(difference, text)

  def put_words(difference, _no_text), do: difference

  ## Fields

  defp compare_fields(was, now) do
    names = keys(was, now) -- (@messages ++ @system ++ @tools)

    for {name, found} <- compare_each(names, was, now, :field, "the field "),
        do: %{found | name: name}
  end

  defp compare_each(names, was, now, cause, words) do
    for name <- names, at(was, name) != at(now, name) do
      {path, old, new} = first_difference(at(was, name), at(now, name), [])
      {name, difference(cause, words <> Enum.join([name | path], "."), old, new)}
    end
  end

  defp keys(was, now), do: was |> Map.merge(now) |> Map.keys() |> Enum.sort()

  defp at(map, key), do: Map.get(map, key, :none)

  ## Tools

  defp compare_tools(was, now) do
    old = tools(was)
    new = tools(now)

    cond do
      # Choices of tools, and other fields beside them.
      old == new ->
        for {_name, found} <- compare_each(@tools, was, now, :tools, "the tools, "), do: found

      names(old) != names(new) ->
        compare_names(old, new)

      true ->
        for {{name, old}, {name, new}} <- Enum.zip(old, new),
            old != new,
            do: compare_tool(name, old, new)
    end
  end

  defp names(tools), do: Enum.map(tools, &elem(&1, 0))

  # Choices of tools, and other fields beside them.

  defp compare_names(old, new) do
    {was, is} = {names(old), names(new)}

    case for(name <- was -- is, do: tool(name, " is gone")) ++
           for(name <- is -- was, do: tool(name, " is new")) do
      [] ->
        {was, is} = {Enum.join(was, ", "), Enum.join(is, ", ")}
        [difference(:tools, "the tools have another order", was, is)]

      differences ->
        differences
    end
  end

  defp compare_tool(name, old, new) do
    {was, is} = {Map.keys(properties(old)), Map.keys(properties(new))}

    case {is -- was, was -- is} do
      {[added | _], _gone} ->
        tool(name, " has a new parameter `#{added}`")

      {[], [gone | _]} ->
        tool(name, " no longer has the parameter `#{gone}`")

      {[], []} ->
        {path, old, new} = first_difference(old, new, [])
        tool(name, ", " <> describe_schema(path), old, new)
    end
  end

  defp tool(name, words, was \\ :none, is \\ :none),
    do: difference(:tools, "the tool `#{name}`#{words}", was, is, name: name)

  @schemas ~w(input_schema parameters parametersJsonSchema inputSchema json)

  defp describe_schema([schema | path]) when schema in @schemas, do: describe_schema(path)

  defp describe_schema(["properties", name | path]),
    do: Enum.join(["parameter `#{name}`" | path], ", ")

  defp describe_schema([]), do: "its definition"
  defp describe_schema(path), do: Enum.join(path, ".")

  defp properties(tool) do
    schema = Enum.find_value(@schemas, %{}, &(is_map(tool) && tool[&1]))
    schema = Map.get(schema, "json", schema)
    fields = is_map(schema) && schema["properties"]
    if is_map(fields), do: fields, else: %{}
  end

  # Each with its name; those that the provider runs have a type.
  defp tools(body) do
    beside = with %{"toolConfig" => %{"tools" => tools}} <- body, do: tools, else: (_none -> [])
    given = List.wrap(body["tools"]) ++ List.wrap(beside)
    for tool <- given, one <- tool |> unwrap() |> List.wrap(), do: {tool_name(one), one}
  end

  defp unwrap(%{"functionDeclarations" => functions}), do: functions
  defp unwrap(%{"function" => %{} = function}), do: function
  defp unwrap(%{"toolSpec" => %{} = spec}), do: spec
  defp unwrap(tool), do: tool

  defp tool_name(%{"name" => name}) when is_binary(name), do: name
  defp tool_name(%{"type" => type}) when is_binary(type), do: type
  defp tool_name(%{} = tool), do: tool |> Map.keys() |> Enum.min(fn -> "?" end)
  defp tool_name(_tool), do: "?"

  ## The system prompt and messages

  defp compare_system(same, same), do: []

  defp compare_system(was, now) do
    {path, old, new} = first_difference(was, now, [])
    mark? = mark?(path)
    where = if mark?, do: "the system prompt, cache mark", else: "the system prompt"
    [difference(:system, where, blank(old), blank(new))]
  end

  defp blank([]), do: :none
  defp blank(value), do: value

  defp compare_messages([same | was], [same | now], number),
    do: compare_messages(was, now, number + 1)

  defp compare_messages([], [], _number), do: []

  defp compare_messages([], [message | _], number),
    do: [message(message, number, " is new", :none, words(message))]

  defp compare_messages([message | _], [], number),
    do: [message(message, number, " is gone", words(message), :none)]

  # A message that was inserted or removed does not change all that follow.
  defp compare_messages([old | was], [new | now], number) do
    cond do
      List.first(was) == new and List.first(was) != List.first(now) ->
        compare_messages([old], [], number)

      List.first(now) == old and List.first(was) != List.first(now) ->
        compare_messages([], [new], number)

      true ->
        {path, left, right} = first_difference(old, new, [])
        {part, call} = part(old, new, path)
        [%{message(new, number, ", " <> part, left, right) | name: call}]
    end
  end

  defp message(message, number, words, was, is) do
    where = "message #{number} (#{role(message)})#{words}"
    difference(:message, where, was, is, message: number)
  end

  defp role(%{"role" => "tool"}), do: "tool result"
  defp role(%{"role" => "model"}), do: "assistant"
  defp role(%{"role" => role}) when is_binary(role), do: role
  defp role(%{"type" => type}) when is_binary(type), do: String.replace(type, "_", " ")
  defp role(_message), do: "message"

  # The words of a message without its form.
  defp words(%{"content" => text}) when is_binary(text), do: text
  defp words(%{"content" => [%{"text" => text} | _]}) when is_binary(text), do: text
  defp words(%{"parts" => [%{"text" => text} | _]}) when is_binary(text), do: text
  defp words(message), do: message

  # The part of a message that a path leads to: the innermost element on it that is a call, a result or thinking.
  defp part(old, new, path) do
    elements = Enum.zip(elements(old, path), elements(new, path) ++ [nil])
    default = {if(mark?(path), do: "cache mark", else: text_or_path(path)), nil}

    {words, call} =
      elements
      |> Enum.reverse()
      |> Enum.find_value(default, fn {old, new} ->
        describe_element(new || old) || describe_element(old)
      end)

    {if(mark?(path), do: words_with_mark(words), else: words), call}
  end

  defp words_with_mark("cache mark"), do: "cache mark"
  defp words_with_mark(words), do: words <> ", cache mark"

  defp mark?(path), do: Enum.any?(path, &(&1 in ["cache_control", "cachePoint"]))

  defp text_or_path(path) do
    if List.last(path) in ["content", "text", nil] or is_integer(List.last(path)),
      do: "text",
      else: path |> Enum.filter(&is_binary/1) |> Enum.join(".")
  end

  defp elements(value, path), do: [value | Enum.scan(path, value, &step(&2, &1))]

  defp step(%{} = map, key) when is_binary(key), do: Map.get(map, key)
  defp step(list, index) when is_list(list) and is_integer(index), do: Enum.at(list, index)
  defp step(_value, _key), do: nil

  @thinking ~w(thinking redacted_thinking reasoning)
  @media ~w(image image_url input_image document file)

  # What it is, in words, and the id of its call.
  defp describe_element(element) do
    case element do
      %{"tool_use_id" => id} ->
        result(id)

      %{"tool_call_id" => id} ->
        result(id)

      %{"toolResult" => %{"toolUseId" => id}} ->
        result(id)

      %{"functionResponse" => %{} = result} ->
        result(result["id"] || result["name"])

      %{"type" => type, "call_id" => id} ->
        if type =~ ~r/_output\z/, do: result(id), else: call(element, id)

      %{"type" => "tool_use", "id" => id, "name" => _name} ->
        call(element, id)

      %{"toolUse" => %{"toolUseId" => id, "name" => _name} = call} ->
        call(call, id)

      %{"functionCall" => %{"name" => name} = call} ->
        {"call of `#{name}`", call["id"] || name}

      %{"function" => %{"name" => name}} ->
        {"call #{element["id"]} of `#{name}`", element["id"] || name}

      %{"role" => "tool", "tool_name" => name} ->
        result(name)

      %{"type" => type} when type in @thinking ->
        {"thinking", nil}

      %{"reasoningContent" => _} ->
        {"thinking", nil}

      %{"thought" => true} ->
        {"thinking", nil}

      %{"type" => type} when type in @media ->
        {type, nil}

      _other ->
        nil
    end
  end

  defp result(id), do: {"tool result of #{id}", id}
  defp call(call, id), do: {"call #{id} of `#{call["name"]}`", id}

  ## The first difference of two values

  defp first_difference(%{} = was, %{} = now, path) do
    key = Enum.find(keys(was, now), &(at(was, &1) != at(now, &1)))
    first_difference(at(was, key), at(now, key), [key | path])
  end

  defp first_difference(was, now, path) when is_list(was) and is_list(now),
    do: first_of_lists(was, now, 0, path)

  defp first_difference(was, now, path), do: {Enum.reverse(path), was, now}

  defp first_of_lists([same | was], [same | now], index, path),
    do: first_of_lists(was, now, index + 1, path)

  defp first_of_lists([was | _], [now | _], index, path),
    do: first_difference(was, now, [index | path])

  defp first_of_lists([was | _], [], index, path), do: {Enum.reverse([index | path]), was, :none}
  defp first_of_lists([], [now | _], index, path), do: {Enum.reverse([index | path]), :none, now}

  defp difference(cause, where, was, is, more \\ []) do
    {was, is} = excerpts(text(was), text(is))
    struct!(%__MODULE__{cause: cause, where: where, was: was, is: is}, more)
  end

  defp text(:none), do: nil
  defp text(text) when is_binary(text), do: text
  defp text(value), do: JSON.encode(value)

  # Letters that are shown before the first difference and after it.
  @before 20
  @following 60

  defp excerpts(was, is) when is_nil(was) or is_nil(is),
    do: {was && cut(was, 0), is && cut(is, 0)}

  defp excerpts(was, is) do
    common = :binary.longest_common_prefix([was, is])
    start = was |> binary_part(0, common) |> count_letters()
    {cut(was, start - @before), cut(is, start - @before)}
  end

  # The common prefix may end within a letter.
  defp count_letters(bytes) do
    if String.valid?(bytes),
      do: String.length(bytes),
      else: bytes |> binary_part(0, byte_size(bytes) - 1) |> count_letters()
  end

  defp cut(text, start) do
    start = max(start, 0)
    piece = String.slice(text, start, @before + @following)
    before_mark = if start > 0, do: "…", else: ""
    after_mark = if String.length(text) > start + @before + @following, do: "…", else: ""
    before_mark <> piece <> after_mark
  end

  defimpl String.Chars do
    def to_string(%{where: where, was: nil, is: nil}), do: where

    # The difference of a replayed conversation.
    def to_string(%{cause: cause, where: where, message: nil, was: nil, is: is})
        when cause in [:message, :version],
        do: "#{where}: it has #{inspect(is)}"

    def to_string(%{where: where, was: nil, is: is}),
      do: "#{where}: is #{inspect(is)}, was not there"

    def to_string(%{where: where, was: was, is: nil}),
      do: "#{where}: was #{inspect(was)}, is not there"

    def to_string(%{where: where, was: was, is: is}),
      do: "#{where}: was #{inspect(was)}, is #{inspect(is)}"
  end
end
