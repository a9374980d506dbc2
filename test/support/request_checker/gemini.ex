defmodule AshAgent.TestSupport.RequestChecker.Gemini do
  @moduledoc "The rules of Gemini's generateContent."

  import AshAgent.TestSupport.RequestChecker.Shape

  alias AshAgent.TestSupport.RequestChecker.Pairing

  @name ~r/\A[A-Za-z_][A-Za-z0-9_.:-]{0,127}\z/

  @data [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse"
  ]

  @modifiers [
    "thought",
    "thoughtSignature",
    "videoMetadata",
    "mediaResolution",
    "mediaProcessing",
    "partMetadata",
    "speechMetadata",
    "documentMetadata",
    "spreadsheetMetadata",
    "audioMetadata"
  ]

  # Google's documents name these images; a 400 was seen for image/gif.
  @images ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"]

  @user_only ["functionResponse"]
  @model_only [
    "functionCall",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse"
  ]

  @spec check(map(), keyword()) :: [map()]
  def check(body, opts) do
    snake_case(body) ++ system(body["systemInstruction"]) ++ contents(body["contents"], opts)
  end

  defp snake_case(body) do
    for key <- ["system_instruction"],
        is_map_key(body, key),
        do: finding(:snake_case_key, [key], "camelCase keys only")
  end

  ## System

  defp system(nil), do: []

  defp system(instruction) do
    text = object_of(%{"text" => &text/2})

    object(
      instruction,
      ["systemInstruction"],
      %{"parts" => filled(:empty_content, text)},
      %{"role" => one_of(["user"], :bad_role)}
    )
  end

  ## Contents

  defp contents(contents, opts) do
    case filled_list(contents, ["contents"], :empty_messages, &content/2) do
      findings when not is_list(contents) or contents == [] ->
        findings

      findings ->
        turns = turns(contents)

        findings ++
          first(turns) ++
          Enum.flat_map(Enum.with_index(contents), &mixed/1) ++
          pairs(turns) ++
          signatures(turns, Keyword.get(opts, :signatures, true)) ++
          last(contents, opts)
    end
  end

  defp content(content, path) do
    role = if is_map(content), do: content["role"]

    object(content, path, %{
      "role" => one_of(["user", "model"], :bad_role),
      "parts" => filled(:empty_content, &part(&1, &2, role))
    })
  end

  ## Parts

  defp part(part, path, role) when is_map(part) do
    case Enum.filter(@data, &is_map_key(part, &1)) do
      [data] ->
        allowed(data, role, path) ++ known(part, path, data, role)

      [] ->
        [finding(:no_data_field, path, "none of #{inspect(@data)} in #{show(part)}")]

      several ->
        [finding(:several_data_fields, path, "one data field, not #{inspect(several)}")]
    end
  end

  defp part(part, path, _role), do: map(part, path)

  defp allowed(data, "user", path) when data in @model_only,
    do: [finding(:block_not_allowed, path, "no #{data} in a user content")]

  defp allowed(data, "model", path) when data in @user_only,
    do: [finding(:block_not_allowed, path, "no #{data} in a model content")]

  defp allowed(_data, _role, _path), do: []

  defp known(part, path, data, role) do
    thought = fn value, at ->
      boolean(value, at) ++ of_the_model(role, path, "thought")
    end

    signature = fn value, at -> signature(value, at) ++ of_the_model(role, path, "signature") end

    modifiers =
      @modifiers
      |> Map.new(fn modifier -> {modifier, &map/2} end)
      |> Map.merge(%{
        "thought" => thought,
        "thoughtSignature" => signature,
        "mediaProcessing" => &string/2
      })

    object(part, path, %{data => &data(data, &1, &2, part)}, modifiers)
  end

  defp of_the_model("user", path, what),
    do: [finding(:block_not_allowed, path, "no #{what} in a user content")]

  defp of_the_model(_role, _path, _what), do: []

  defp data("text", "", _path, %{"thoughtSignature" => _}), do: []
  defp data("text", value, path, _part), do: text(value, path)
  defp data("inlineData", value, path, _part), do: blob(value, path)
  defp data("fileData", value, path, _part), do: file(value, path)

  defp data("functionCall", value, path, _part) do
    object(value, path, %{"name" => matching(@name, :bad_name)}, %{
      "id" => &id/2,
      "args" => &arguments/2
    })
  end

  defp data("functionResponse", value, path, _part) do
    media = union_of(%{"inlineData" => &blob/2, "fileData" => &file/2})

    object(
      value,
      path,
      %{"name" => matching(@name, :bad_name), "response" => &response/2},
      %{
        "id" => &id/2,
        "parts" => filled(:empty_content, media),
        "willContinue" => &boolean/2,
        "scheduling" => &string/2
      }
    )
  end

  defp data(_own, value, path, _part), do: map(value, path)

  defp id(value, path), do: sized(1..1_000_000, :bad_id).(value, path)

  defp response(value, _path) when is_map(value), do: []

  defp response(value, path),
    do: [finding(:response_not_object, path, "an object, not #{show(value)}")]

  defp blob(value, path) do
    object(value, path, %{"mimeType" => &taken_type/2, "data" => &base64/2}, %{
      "displayName" => &string/2
    })
  end

  defp file(value, path) do
    uri = matching(~r/\A(https?|gs):\/\/\S+\z/, :bad_url)

    object(value, path, %{"mimeType" => &taken_type/2, "fileUri" => uri}, %{
      "displayName" => &string/2
    })
  end

  defp taken_type("image/" <> _ = type, path), do: one_of(@images, :bad_media_type).(type, path)
  defp taken_type(type, path), do: media_type(type, path)

  # Bytes; recorded in the standard and in the URL alphabet, with and without padding.
  defp signature(value, path) when is_binary(value) do
    bytes = value |> String.replace("+", "-") |> String.replace("/", "_")

    cond do
      blank?(value) -> [finding(:blank_signature, path, "an empty signature")]
      match?({:ok, _}, Base.url_decode64(bytes, padding: false)) -> []
      true -> [finding(:bad_base64, path, "base64, not #{show(value)}")]
    end
  end

  defp signature(value, path), do: string(value, path)

  ## Turns: neighbours of one role are one turn to the vendor

  defp turns(contents) do
    contents
    |> Enum.with_index()
    |> Enum.filter(fn {content, _} -> is_map(content) end)
    |> Enum.chunk_by(fn {content, _} -> content["role"] end)
    |> Enum.map(fn [{first, _} | _] = chunk -> %{role: first["role"], contents: chunk} end)
  end

  defp first([%{role: "user"} | _]), do: []

  defp first(_turns),
    do: [finding(:first_not_user, ["contents", 0], "the first content is the user's")]

  defp mixed({content, index}) do
    {responses, others} =
      content |> parts() |> Enum.split_with(&is_map_key(&1, "functionResponse"))

    if responses != [] and others != [],
      do: [
        finding(
          :mixed_responses,
          ["contents", index],
          "function responses and other parts in one"
        )
      ],
      else: []
  end

  defp pairs(turns) do
    edges = [%{role: nil, contents: []}] ++ turns ++ [%{role: nil, contents: []}]

    edges
    |> Enum.zip(tl(edges))
    |> Enum.flat_map(fn {turn, next} ->
      calls = if turn.role == "model", do: entries(turn.contents, "functionCall"), else: []
      {first, later} = if next.role == "user", do: Enum.split(next.contents, 1), else: {[], []}
      responses = entries(first, "functionResponse")

      counts(calls, responses) ++
        Pairing.check(keyed(calls), keyed_like(responses, calls)) ++
        Enum.map(entries(later, "functionResponse"), fn response ->
          finding(:orphan_result, response.path, "not directly behind the calls")
        end)
    end)
  end

  defp counts(calls, responses) when length(calls) == length(responses), do: []
  defp counts([], _responses), do: []

  defp counts([call | _] = calls, responses) do
    words = "#{length(calls)} calls are followed by #{length(responses)} responses"
    [finding(:result_count, call.path, words)]
  end

  defp entries(contents, type) do
    for {content, index} <- contents,
        {%{^type => %{} = entry}, position} <- Enum.with_index(parts(content)) do
      %{id: entry["id"], name: entry["name"], path: ["contents", index, "parts", position]}
    end
  end

  defp parts(%{"parts" => parts}) when is_list(parts), do: Enum.filter(parts, &is_map/1)
  defp parts(_content), do: []

  # Calls without an id are answered in their order.
  defp keyed(calls) do
    calls
    |> Enum.with_index()
    |> Enum.map(fn {call, index} -> %{call | id: call.id || position(index)} end)
  end

  defp keyed_like(responses, calls) do
    free = for {%{id: nil}, index} <- Enum.with_index(calls), do: position(index)

    {keyed, _} =
      Enum.map_reduce(responses, free, fn
        %{id: nil} = response, [key | free] -> {%{response | id: key}, free}
        %{id: nil} = response, [] -> {%{response | id: "(no id)"}, []}
        response, free -> {response, free}
      end)

    keyed
  end

  defp position(index), do: "(call #{index + 1})"

  ## Signatures

  # The running turn: what follows the last user turn that is not made of function responses.
  defp signatures(_turns, false), do: []

  defp signatures(turns, true) do
    turns
    |> Enum.reverse()
    |> Enum.take_while(&(&1.role != "user" or entries(&1.contents, "functionResponse") != []))
    |> Enum.filter(&(&1.role == "model"))
    |> Enum.reverse()
    |> Enum.flat_map(fn turn ->
      calls =
        for {content, index} <- turn.contents,
            {%{"functionCall" => _} = part, position} <- Enum.with_index(parts(content)),
            do: {part, ["contents", index, "parts", position]}

      case calls do
        [{part, path} | _] when not is_map_key(part, "thoughtSignature") ->
          [finding(:missing_signature, path, "the first call of a running step has no signature")]

        _ ->
          []
      end
    end)
  end

  defp last(contents, opts) do
    case List.last(contents) do
      %{"role" => "model"} ->
        if opts[:model_last],
          do: [],
          else: [
            finding(
              :model_last,
              ["contents", length(contents) - 1],
              "the last content is the user's"
            )
          ]

      _ ->
        []
    end
  end
end
