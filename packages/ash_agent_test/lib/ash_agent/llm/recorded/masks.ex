defmodule AshAgent.LLM.Recorded.Masks do
  @moduledoc false

  # Replaces what a view masks in an answer by the masks' own words. The pieces of a streamed text are masked as one, and the first
  # gets all of it. Ids, types and names stay. An event that the connection cut is left out: no client reads it.

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Recorded.Scrub
  alias AshAgent.Test.Server.Format

  @stays ~r/(^|_)ids?$|Id$|^(type|name|role|model|modelVersion|object|status|data|redactedContent)$|^(finish|stop)/
  @signatures ~w(signature thoughtSignature encrypted_content)
  # They tell the pieces of one text from those of another: at Gemini, a signed one is a part of its own.
  @marks ~w(type index contentBlockIndex output_index content_index summary_index thought thoughtSignature)

  @doc "Returns a recording without what the masks of the context hide."
  def hide(recording, context) do
    bytes = for {_at, piece} <- recording.pieces, into: "", do: piece
    frames? = Scrub.frames?(recording.headers)
    events = if frames?, do: frames(bytes), else: lines(bytes, recording.ending)

    {values, said} =
      Enum.map_reduce(events, %{}, fn {text, _head, _tail}, said ->
        case read(text) do
          ^text -> {mask(text, context), said}
          value -> walk(value, [], said, &gather(&1, &2, &3, context))
        end
      end)

    masked =
      for {path, text} <- said,
          new = text(text, path, context),
          new != text,
          into: %{},
          do: {path, unsigned(path) || new}

    thoughts = for {path, _new} <- masked, do: signed(path)

    {values, _left} =
      Enum.map_reduce(values, masked, fn value, left ->
        if is_binary(value),
          do: {value, left},
          else: walk(value, [], left, &put(&1, &2, &3, thoughts))
      end)

    pieces = events |> Enum.zip(values) |> Enum.map(&build/1)

    if IO.iodata_to_binary(pieces) == bytes,
      do: recording,
      else: %{recording | pieces: at_times(pieces, recording.pieces)}
  end

  defp at_times([], _before), do: []

  defp at_times(pieces, before) do
    share = length(before) / length(pieces)

    for {piece, n} <- Enum.with_index(pieces),
        do: {elem(Enum.at(before, trunc(n * share)), 0), piece}
  end

  # As the view masks the arguments of a call: all texts in them, keys and numbers.
  defp mask("", _context), do: ""

  defp mask(value, context) do
    call = %{id: "call", name: "call", arguments: %{"" => value}}
    said = context |> Context.add_assistant_message(nil, [call]) |> Context.to_messages()
    [%{arguments: arguments}] = List.last(said).tool_calls
    arguments |> Map.values() |> hd()
  end

  defp text(text, [key, marks | _], context) do
    call? = key in ~w(arguments partial_json input) or "#{marks["type"]}" =~ "arguments"
    value = if call?, do: read(text), else: text

    case mask(value, context) do
      ^value -> text
      new -> if is_binary(new), do: new, else: JSON.encode(new)
    end
  end

  defp gather(value, [key | _] = path, said, context) do
    cond do
      is_map(value) -> {mask(value, context), said}
      key in @signatures or key =~ @stays -> {value, said}
      true -> {value, Map.update(said, path, value, &(&1 <> value))}
    end
  end

  # A signature is of the text that was masked.
  defp put(value, [key | _] = path, left, thoughts) do
    cond do
      new = left[path] ->
        {new, Map.put(left, path, "")}

      key in @signatures and Enum.any?(thoughts, &List.starts_with?(&1, signed(path))) ->
        {"", left}

      true ->
        {value, left}
    end
  end

  # Thoughts of Gemini, Ollama and Mistral are sent again without a signature, but not once they are masked. What stands beside one of
  # Mistral is written otherwise where there is none.
  defp unsigned([key, marks | _] = path) do
    cond do
      hd(places(path)) or (key == "thinking" and marks == %{}) -> ""
      key == "text" and "thinking" in path -> " "
      true -> nil
    end
  end

  # What a signature is for, and the text that it may be for.
  defp signed(path) do
    signature = Enum.find_value(path, &(is_map(&1) and &1["thoughtSignature"]))
    [signature | places(path)]
  end

  defp places(path) do
    thought? = Enum.any?(path, &match?(%{"thought" => true}, &1))
    numbers = for at <- Enum.reverse(path), is_map(at), n <- Map.values(at), is_integer(n), do: n
    [thought? | numbers]
  end

  # Calls a function with each text and with the arguments of each call.
  defp walk(%{} = map, path, acc, fun) do
    marks = Map.take(map, @marks)

    {fields, acc} =
      Enum.map_reduce(map, acc, fn {key, value}, acc ->
        path = [key, marks | path]
        call? = is_map(value) and key in ~w(input args arguments)
        {value, acc} = if call?, do: fun.(value, path, acc), else: walk(value, path, acc, fun)
        {{key, value}, acc}
      end)

    {Map.new(fields), acc}
  end

  # The places of whole events in a list say nothing.
  defp walk(list, path, acc, fun) when is_list(list) do
    list
    |> Enum.with_index()
    |> Enum.map_reduce(acc, fn {item, at}, acc ->
      walk(item, if(path == [], do: [], else: [hd(path), %{at: at} | path]), acc, fun)
    end)
  end

  defp walk(text, [_ | _] = path, acc, fun) when is_binary(text), do: fun.(text, path, acc)
  defp walk(other, _path, acc, _fun), do: {other, acc}

  ## Events: the text of each, and what stands before and after it

  defp read(text) do
    case JSON.decode(text) do
      {:ok, value} when is_map(value) or is_list(value) -> value
      _other -> text
    end
  end

  defp lines(bytes, ending) do
    lines =
      if is_binary(read(bytes)), do: String.split(bytes, ~r/(?<=\n)/, trim: true), else: [bytes]

    for line <- lines,
        [head, text, tail] = split(line),
        ending == "complete" or tail =~ "\n" or not is_binary(read(text)),
        do: {text, head, tail}
  end

  defp split("data:" <> line), do: List.update_at(split(line), 0, &("data:" <> &1))
  defp split("event:" <> _ = line), do: [String.trim_trailing(line), "", "\n"]

  defp split(line) do
    text = String.trim(line)

    if text == "",
      do: ["", "", line],
      else: List.insert_at(String.split(line, text, parts: 2), 1, text)
  end

  defp frames(<<total::32, size::32, _::binary>> = bytes)
       when total >= size + 16 and total <= byte_size(bytes) do
    length = total - size - 16

    <<_::binary-size(12), head::binary-size(size), text::binary-size(length), _::32,
      rest::binary>> = bytes

    [{text, head, :frame} | frames(rest)]
  end

  defp frames(_cut), do: []

  defp build({{text, head, tail}, value}) do
    new =
      if value == read(text),
        do: text,
        else: if(is_binary(value), do: value, else: JSON.encode(value))

    if tail == :frame, do: Format.aws_message(head, new), else: head <> new <> tail
  end
end
