defmodule AshAgent.Door.Input do
  @moduledoc false

  # What is believed of a browser's message: a text, a file that is in it, and a person's answer, within bounds.

  alias AshAgent.Context.JSON

  @parts 200
  @reason 2_000

  @doc "Returns `{:ok, {:say, id, parts}}` for a message whose parts `read` reads, or `{:error, kind}`."
  def say(id, parts, read, limits) do
    with true <- id?(id) || {:error, :invalid_message_id},
         true <- (is_list(parts) and parts != []) || {:error, :invalid_messages},
         true <- Enum.count_until(parts, @parts + 1) <= @parts || {:error, :too_many_parts},
         {:ok, parts} <- each(parts, read),
         files = Enum.count(parts, &(&1.type != :text)),
         true <- files <= limits[:max_files] || {:error, :too_many_files} do
      {:ok, {:say, id, parts}}
    end
  end

  @doc "Whether it is an id of a page's message."
  def id?(id), do: is_binary(id) and byte_size(id) in 1..100 and not (id =~ ~r/[[:cntrl:]]/)

  @doc "Reads a part that is a text. Any other is an error."
  def text(%{"type" => "text", "text" => text}) when is_binary(text) and text != "",
    do: {:ok, %{type: :text, text: text}}

  def text(_other), do: {:error, :invalid_part}

  @doc "Reads a file of a media type from base64."
  def file(type, data, name) when is_binary(type) and is_binary(data) do
    with true <- type =~ ~r/\A[a-z]+\/[a-z0-9.+-]{1,100}\z/,
         {:ok, _bytes} <- Base.decode64(data) do
      kinds = %{"image" => :image, "audio" => :audio, "video" => :video}
      kind = kinds[type |> String.split("/") |> hd()] || :file
      {:ok, named(%{type: kind, media_type: type, data: data}, name)}
    else
      _wrong -> {:error, :invalid_file}
    end
  end

  def file(_type, _data, _name), do: {:error, :invalid_file}

  defp named(%{type: :file} = part, name) when is_binary(name) and byte_size(name) in 1..255,
    do: Map.put(part, :filename, name)

  defp named(part, _name), do: part

  @doc "Reads a person's answer: `{:ok, {approval, verdict, reason}}`, where the verdict may be `{:edit, arguments}`."
  def answer(id, approved?, reason, edited \\ nil)

  def answer(id, approved?, reason, edited) when is_binary(id) and is_boolean(approved?) do
    cond do
      reason != nil and not (is_binary(reason) and byte_size(reason) <= @reason) ->
        {:error, :invalid_answer}

      not approved? ->
        {:ok, {id, :deny, reason}}

      edited == nil ->
        {:ok, {id, :approve, reason}}

      is_map(edited) ->
        {:ok, {id, {:edit, edited}, reason}}

      true ->
        {:error, :invalid_answer}
    end
  end

  def answer(_id, _approved?, _reason, _edited), do: {:error, :invalid_answer}

  @doc "Reads a person's answer to a question, which is a text or an object. What a page's tool returned else is a text of JSON."
  def answered(id, answer) when is_binary(id) do
    cond do
      answer in [nil, ""] -> {:error, :invalid_answer}
      is_binary(answer) or is_map(answer) -> {:ok, {id, {:answer, answer}, nil}}
      true -> {:ok, {id, {:answer, JSON.encode(answer)}, nil}}
    end
  end

  def answered(_id, _answer), do: {:error, :invalid_answer}

  @doc "Reads each: `{:ok, list}`, or the first error."
  def each(list, read) do
    read = fn one, {:ok, done} ->
      case read.(one) do
        {:ok, one} -> {:cont, {:ok, [one | done]}}
        error -> {:halt, error}
      end
    end

    with {:ok, done} <- Enum.reduce_while(list, {:ok, []}, read), do: {:ok, Enum.reverse(done)}
  end
end
