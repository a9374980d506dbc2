defmodule AshAgent.Trace.Csv do
  @moduledoc false

  # The account of a conversation as CSV: RFC 4180, with dollars to the last digit. Texts are quoted, and none of them is a formula.

  @columns ~w(conversation iteration requested_at provider model input_tokens cached_tokens cache_write_tokens output_tokens) ++
             ~w(reasoning_tokens predicted verdict cause cost_usd avoidable_usd)
  @counts ~w(input_tokens cached_tokens cache_write_tokens output_tokens reasoning_tokens)a

  def columns, do: @columns

  def encode(requests, id, header?) do
    header = if header?, do: [Enum.intersperse(@columns, ","), "\r\n"], else: []
    [header | Enum.map(requests, &line(&1, id))]
  end

  defp line(%{usage: usage} = request, id) do
    {verdict, cause} = with verdict when is_atom(verdict) <- request.verdict, do: {verdict, nil}
    at = request.requested_at && DateTime.to_iso8601(request.requested_at)
    counts = for name <- @counts, do: usage[name] || 0
    money = [dollars(request.cost), dollars(request.avoidable)]
    asked = [quote_text(id), request.iteration, at, request.provider, quote_text(request.model)]
    cells = asked ++ counts ++ [request.predicted, verdict, cause] ++ money
    [cells |> Enum.map(&to_string/1) |> Enum.intersperse(","), "\r\n"]
  end

  defp quote_text(nil), do: nil

  # Spreadsheets run what begins so, also after blanks, and in wide letters.
  defp quote_text(text) do
    formula? = text =~ ~r/\A[\s\p{C}]*[=+\-@|%\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]|\A[\t\r\n]/u
    ~s("#{if formula?, do: "'"}#{String.replace(text, ~s("), ~s(""))}")
  end

  defp dollars(nil), do: nil

  defp dollars(cost) do
    digits = cost |> Integer.to_string() |> String.pad_leading(13, "0")
    {whole, fraction} = String.split_at(digits, -12)
    whole <> "." <> fraction
  end
end
