defmodule AshAgent.TestSupport.JSONText do
  @moduledoc """
  A strict JSON reader of its own for the tests, so that what the core writes is judged by code it shares nothing with.

  It refuses what lenient readers let pass: lone surrogates, invalid UTF-8, control characters, text behind the value, and a
  key that stands twice in one object.
  """

  @doc "Reads one JSON value; `{:error, reason}` for anything that is not exactly that."
  @spec decode(binary()) :: {:ok, term()} | {:error, String.t()}
  def decode(text) when is_binary(text) do
    {value, rest} = text |> skip() |> value()

    case skip(rest) do
      "" -> {:ok, value}
      rest -> {:error, "text behind the value: #{start_of(rest)}"}
    end
  catch
    {:bad_json, reason} -> {:error, reason}
  end

  @doc "Like `decode/1`, but returns the value itself and raises `ArgumentError`."
  @spec decode!(binary()) :: term()
  def decode!(text) do
    case decode(text) do
      {:ok, value} -> value
      {:error, reason} -> raise ArgumentError, reason
    end
  end

  defp value("{" <> rest), do: rest |> skip() |> first_member()
  defp value("[" <> rest), do: rest |> skip() |> first_item()
  defp value("\"" <> rest), do: string(rest, rest, 0, [])
  defp value("true" <> rest), do: {true, rest}
  defp value("false" <> rest), do: {false, rest}
  defp value("null" <> rest), do: {nil, rest}
  defp value(<<c, _::binary>> = text) when c in ?0..?9 or c == ?-, do: number(text)
  defp value(text), do: bad("no value at: #{start_of(text)}")

  defp first_member("}" <> rest), do: {%{}, rest}
  defp first_member(text), do: members(text, %{})

  defp members("\"" <> rest, object) do
    {key, rest} = string(rest, rest, 0, [])
    if is_map_key(object, key), do: bad("the key #{inspect(key)} stands twice in an object")

    {value, rest} =
      case skip(rest) do
        ":" <> rest -> rest |> skip() |> value()
        rest -> bad("no colon at: #{start_of(rest)}")
      end

    object = Map.put(object, key, value)

    case skip(rest) do
      "," <> rest -> rest |> skip() |> members(object)
      "}" <> rest -> {object, rest}
      rest -> bad("an object does not end at: #{start_of(rest)}")
    end
  end

  defp members(text, _object), do: bad("no key at: #{start_of(text)}")

  defp first_item("]" <> rest), do: {[], rest}
  defp first_item(text), do: items(text, [])

  defp items(text, items) do
    {value, rest} = value(text)
    items = [value | items]

    case skip(rest) do
      "," <> rest -> rest |> skip() |> items(items)
      "]" <> rest -> {Enum.reverse(items), rest}
      rest -> bad("a list does not end at: #{start_of(rest)}")
    end
  end

  # `run` is the text from the last escape on, `size` how many bytes of it are plain.
  defp string("\"" <> rest, run, size, []), do: {binary_part(run, 0, size), rest}

  defp string("\"" <> rest, run, size, done),
    do: {IO.iodata_to_binary([done, binary_part(run, 0, size)]), rest}

  defp string("\\" <> rest, run, size, done) do
    {char, rest} = escape(rest)
    string(rest, rest, 0, [done, binary_part(run, 0, size), char])
  end

  defp string(<<c, _::binary>>, _run, _size, _done) when c < 0x20,
    do: bad("a raw control character #{c} in a string")

  defp string(<<c, rest::binary>>, run, size, done) when c < 0x80,
    do: string(rest, run, size + 1, done)

  defp string(<<c::utf8, rest::binary>>, run, size, done),
    do: string(rest, run, size + byte_size(<<c::utf8>>), done)

  defp string("", _run, _size, _done), do: bad("a string does not end")
  defp string(_text, _run, _size, _done), do: bad("a string is not UTF-8")

  defp escape("u" <> rest) do
    case unit(rest) do
      {high, "\\u" <> rest} when high in 0xD800..0xDBFF ->
        case unit(rest) do
          {low, rest} when low in 0xDC00..0xDFFF ->
            {<<0x10000 + (high - 0xD800) * 0x400 + (low - 0xDC00)::utf8>>, rest}

          _ ->
            bad("a lone surrogate in a string")
        end

      {unit, _rest} when unit in 0xD800..0xDFFF ->
        bad("a lone surrogate in a string")

      {unit, rest} ->
        {<<unit::utf8>>, rest}
    end
  end

  for {char, meaning} <- [
        {?", "\""},
        {?\\, "\\"},
        {?/, "/"},
        {?b, "\b"},
        {?f, "\f"},
        {?n, "\n"},
        {?r, "\r"},
        {?t, "\t"}
      ] do
    defp escape(<<unquote(char), rest::binary>>), do: {unquote(meaning), rest}
  end

  defp escape(text), do: bad("no escape: #{start_of(text)}")

  defp unit(<<hex::binary-size(4), rest::binary>>) do
    if hex =~ ~r/\A[0-9a-fA-F]{4}\z/,
      do: {String.to_integer(hex, 16), rest},
      else: bad("no unicode escape: #{start_of(hex)}")
  end

  defp unit(text), do: bad("no unicode escape: #{start_of(text)}")

  defp number(text) do
    case Regex.run(~r/\A(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?/, text) do
      [all, whole | tail] ->
        {number(whole, tail), binary_part(text, byte_size(all), byte_size(text) - byte_size(all))}

      nil ->
        bad("no number: #{start_of(text)}")
    end
  end

  defp number(whole, []), do: String.to_integer(whole)
  defp number(whole, [fraction]), do: float(whole <> fraction)
  defp number(whole, ["", exponent]), do: float(whole <> ".0" <> exponent)
  defp number(whole, [fraction, exponent]), do: float(whole <> fraction <> exponent)

  defp float(text) do
    String.to_float(text)
  rescue
    ArgumentError -> bad("a number out of range: #{start_of(text)}")
  end

  defp skip(<<c, rest::binary>>) when c in [?\s, ?\t, ?\r, ?\n], do: skip(rest)
  defp skip(text), do: text

  defp start_of(text), do: text |> binary_part(0, min(byte_size(text), 40)) |> inspect()

  @spec bad(String.t()) :: no_return()
  defp bad(reason), do: throw({:bad_json, reason})
end
