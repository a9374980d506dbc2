defmodule AshAgent.Door.Template do
  @moduledoc false

  # The bytes of pieces of one block differ in their texts and numbers: they are written once with others in their place, and cut there.

  alias AshAgent.Context.JSON

  @id "0.0.0.0-template"
  @seq 4_503_599_627_370_495
  @text "0.0.0.0-the text of a piece"

  @doc "The text of the piece that a template is made of."
  def text, do: @text

  @doc "Returns a template of the one chunk for a piece with `text/0`."
  def new(protocol, [chunk]) do
    bytes = IO.iodata_to_binary(protocol.record(chunk, @seq, @id))
    cut([bytes], [{@id, :id}, {Integer.to_string(@seq), :seq}, {"\"#{@text}\"", :text}])
  end

  defp cut(parts, []), do: parts

  defp cut(parts, [{text, name} | more]) do
    parts
    |> Enum.flat_map(fn
      part when is_binary(part) ->
        part |> :binary.split(text, [:global]) |> Enum.intersperse(name)

      name ->
        [name]
    end)
    |> cut(more)
  end

  @doc "Returns the bytes of a piece."
  def fill(template, seq, id, text) do
    parts =
      for part <- template do
        case part do
          :id -> id
          :seq -> Integer.to_string(seq)
          :text -> json(text)
          bytes -> bytes
        end
      end

    IO.iodata_to_binary(parts)
  end

  defp json(text), do: if(plain?(text), do: [?", text, ?"], else: JSON.encode(text))

  defp plain?(<<char, rest::binary>>) when char in 32..126 and char not in [?", ?\\],
    do: plain?(rest)

  defp plain?(rest), do: rest == ""
end
