defmodule AshAgent.MCP.Content do
  @moduledoc false

  # Turns the result of a call, as a server returns it, into that of a tool.

  alias AshAgent.Context.JSON
  alias AshAgent.MCP.Listing

  @doc "The result of a call: text, or parts if there is more than text."
  def result(%{} = result, max) do
    size = :erlang.external_size(result)

    if size > max do
      {:error, "the result has #{size} bytes, and may have #{max}; ask for less"}
    else
      parts = join(Enum.flat_map(items(result["content"]), &part/1) ++ read_structured(result))
      if result["isError"] == true, do: {:error, failed(parts)}, else: {:ok, plain(parts)}
    end
  end

  def result(_other, _max), do: {:error, "the server returned something that is not a result"}

  defp items(content),
    do: if(is_list(content) and not List.improper?(content), do: content, else: [])

  defp part(%{"type" => "text", "text" => text}) when is_binary(text), do: [text(text)]
  defp part(%{"type" => "image"} = part), do: media(part["data"], part["mimeType"], "image")
  defp part(%{"type" => "audio"} = part), do: media(part["data"], part["mimeType"], "audio")
  defp part(%{"type" => "resource", "resource" => %{} = resource}), do: resource(resource)
  defp part(%{"type" => "resource_link"} = link), do: [text("Resource " <> about(link))]
  defp part(_other), do: [unknown()]

  defp resource(%{"text" => text} = resource) when is_binary(text),
    do: [text("Resource " <> about(resource) <> ":\n" <> text)]

  defp resource(%{"blob" => blob} = resource),
    do: [text("Resource " <> about(resource) <> ":") | media(blob, resource["mimeType"], nil)]

  defp resource(resource), do: [text("Resource " <> about(resource) <> ", without content")]

  # The fields of a link or a resource that a model can use.
  defp about(resource) do
    [uri | rest] = for key <- ["uri", "name", "mimeType", "description"], do: resource[key]
    rest = for text <- rest, is_binary(text) and text != "", do: text
    uri = if is_binary(uri), do: uri, else: "without an address"
    if rest == [], do: uri, else: "#{uri} (#{Enum.join(rest, ", ")})"
  end

  defp media(data, type, kind) when is_binary(data) do
    with {:ok, type} <- type(type, kind),
         true <- match?({:ok, <<_, _::binary>>}, Base.decode64(data)) do
      [%{type: kind(type), media_type: type, data: data}]
    else
      _ -> [unreadable(kind)]
    end
  end

  defp media(_other, _type, kind), do: [unreadable(kind)]

  # Without its parameters.
  defp type(type, kind) when is_binary(type) do
    [type | _] = :binary.split(type, ";")
    right? = type =~ ~r"\A[a-zA-Z0-9_.+-]{1,60}/[a-zA-Z0-9_.+-]{1,60}\z"

    if right? and (kind == nil or String.starts_with?(type, kind <> "/")),
      do: {:ok, type},
      else: :error
  end

  defp type(_none, nil), do: {:ok, "application/octet-stream"}
  defp type(_none, _kind), do: :error

  defp kind("image/" <> _), do: :image
  defp kind("audio/" <> _), do: :audio
  defp kind(_type), do: :file

  defp unreadable("image"), do: text("(the server sent an image that cannot be read)")
  defp unreadable(kind), do: text("(the server sent #{kind || "data"} that cannot be read)")
  defp unknown, do: text("(the server sent content of an unknown kind)")
  defp text(text), do: %{type: :text, text: Listing.readable(text)}

  # Servers should repeat it in a text, and many wrap a text or a number in an object.
  defp read_structured(%{"structuredContent" => %{} = structured} = result) do
    same = [structured | if(map_size(structured) == 1, do: Map.values(structured), else: [])]

    told? =
      Enum.any?(items(result["content"]), fn
        %{"type" => "text", "text" => text} when is_binary(text) ->
          text in same or JSON.decode(text) in Enum.map(same, &{:ok, &1})

        _other ->
          false
      end)

    if told?, do: [], else: [text(encode(structured))]
  end

  defp read_structured(_result), do: []

  defp encode(structured) do
    JSON.encode(structured)
  rescue
    _ in [AshAgent.Context.Error, ArgumentError] -> unknown().text
  end

  # Texts that follow each other are one.
  defp join(parts) do
    parts
    |> Enum.chunk_by(&(&1.type == :text))
    |> Enum.flat_map(fn
      [%{type: :text} | _] = texts ->
        [%{type: :text, text: Enum.map_join(texts, "\n", & &1.text)}]

      media ->
        media
    end)
  end

  defp plain([]), do: ""
  defp plain([%{type: :text, text: text}]), do: text
  defp plain(parts), do: parts

  defp failed([%{type: :text, text: text}] = parts),
    do: if(String.trim(text) == "", do: failed([]), else: parts |> plain() |> String.trim())

  defp failed([]), do: "the tool failed, and the server does not say why"
  defp failed(parts), do: parts
end
