defmodule AshAgent.TestSupport.Pdf do
  @moduledoc false

  # The text of a PDF that Chromium made: glyphs, translated back by the tables of its fonts. It has no spaces.

  alias AshAgent.TestSupport.Browser

  @doc "Prints a page and returns the PDF."
  def print(browser) do
    %{"data" => pdf} = Browser.call(browser, "Page.printToPDF", %{})
    Base.decode64!(pdf)
  end

  @doc "Returns the text of all pages, once by each font: a word stands in one of them."
  def text(pdf) do
    streams = for stream <- streams(pdf), do: inflate(stream)
    {tables, pages} = Enum.split_with(streams, &(&1 =~ "begincmap"))
    glyphs = for page <- pages, [_, hex] <- Regex.scan(~r/<([0-9A-F]+)> ?T[jJ]/i, page), do: hex
    codes = for hex <- glyphs, do: for(<<code::binary-4 <- hex>>, do: String.upcase(code))

    for table <- Enum.map(tables, &letters/1), into: "" do
      for run <- codes, code <- run, letter = table[code], letter != " ", into: "", do: letter
    end
  end

  defp streams(pdf) do
    for [_, {from, _}] <- Regex.scan(~r/stream\r?\n()/, pdf, return: :index) do
      rest = binary_part(pdf, from, byte_size(pdf) - from)
      [stream | _] = :binary.split(rest, "endstream")
      stream
    end
  end

  defp inflate(stream) do
    :zlib.uncompress(stream)
  rescue
    ErlangError -> stream
  end

  # `<0003> <0020>` and `<0003> <0005> <0020>`
  defp letters(table) do
    single = Regex.scan(~r/^<([0-9A-F]{4})> <([0-9A-F]{4,})>$/im, table)
    ranges = Regex.scan(~r/^<([0-9A-F]{4})> <([0-9A-F]{4})> <([0-9A-F]{4})>$/im, table)
    singles = for [_, code, letter] <- single, do: {String.upcase(code), letter(letter)}

    ranged =
      for [_, first, last, letter] <- ranges,
          [first, last, letter] =
            for(hex <- [first, last, letter], do: String.to_integer(hex, 16)),
          code <- first..last,
          do: {hex(code), <<letter + code - first::utf8>>}

    Map.new(singles ++ ranged)
  end

  defp letter(hex),
    do: hex |> Base.decode16!(case: :mixed) |> :unicode.characters_to_binary(:utf16)

  defp hex(code), do: code |> Integer.to_string(16) |> String.pad_leading(4, "0")
end
