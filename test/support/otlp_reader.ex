defmodule AshAgent.TestSupport.OtlpReader do
  @moduledoc false

  # Reads OTLP, from Protobuf by hand or from JSON, into the same maps. It shares no code with the package.

  alias AshAgent.Context.JSON

  @doc "All spans of a message, in order."
  def spans(protobuf) do
    for {1, resource} <- fields(protobuf),
        {2, scope} <- fields(resource),
        {2, span} <- fields(scope),
        do: span(fields(span))
  end

  @doc "The attributes of the first resource."
  def resource(protobuf) do
    [{1, first} | _] = fields(protobuf)
    [{1, resource} | _] = fields(first)
    attributes(fields(resource), 1)
  end

  @doc "All spans of the JSON form."
  def json_spans(json) do
    {:ok, %{"resourceSpans" => [%{"scopeSpans" => [%{"spans" => spans}]}]}} = JSON.decode(json)

    for span <- spans do
      %{
        trace: span["traceId"],
        id: span["spanId"],
        parent: span["parentSpanId"],
        name: span["name"],
        kind: span["kind"],
        from: String.to_integer(span["startTimeUnixNano"]),
        to: String.to_integer(span["endTimeUnixNano"]),
        attributes:
          for(a <- span["attributes"], into: %{}, do: {a["key"], json_value(a["value"])}),
        status: span["status"]["code"] || 0,
        message: span["status"]["message"],
        links: for(link <- span["links"] || [], do: {link["traceId"], link["spanId"]})
      }
    end
  end

  defp json_value(%{"stringValue" => text}), do: text
  defp json_value(%{"intValue" => text}), do: String.to_integer(text)
  defp json_value(%{"boolValue" => flag}), do: flag
  defp json_value(%{"doubleValue" => number}), do: number / 1
  defp json_value(%{"arrayValue" => %{"values" => values}}), do: Enum.map(values, &json_value/1)

  defp span(fields) do
    [trace] = all(fields, 1)
    [id] = all(fields, 2)
    16 = byte_size(trace)
    8 = byte_size(id)
    [from] = all(fields, 7)
    [to] = all(fields, 8)
    status = fields |> all(15) |> Enum.flat_map(&fields/1)
    links = for link <- all(fields, 13), do: fields(link)

    %{
      trace: hex(trace),
      id: hex(id),
      parent: fields |> all(4) |> List.first() |> then(&(&1 && hex(&1))),
      name: fields |> all(5) |> hd(),
      kind: fields |> all(6) |> List.first(0),
      from: from,
      to: to,
      attributes: attributes(fields, 9),
      status: status |> all(3) |> List.first(0),
      message: status |> all(2) |> List.first(),
      links: for([{1, trace}, {2, span}] <- links, do: {hex(trace), hex(span)})
    }
  end

  defp attributes(fields, number) do
    for pair <- all(fields, number), into: %{} do
      pair = fields(pair)
      [key] = all(pair, 1)
      [value] = all(pair, 2)
      true = String.valid?(key)
      {key, any(fields(value))}
    end
  end

  defp any([{1, text}]), do: if(String.valid?(text), do: text, else: raise("not UTF-8"))
  defp any([{2, flag}]), do: flag == 1
  defp any([{3, number}]), do: signed(number)
  defp any([{4, bits}]), do: <<bits::64>> |> then(fn <<number::float-64>> -> number end)
  defp any([{5, list}]), do: for({1, value} <- fields(list), do: any(fields(value)))

  defp signed(number) do
    <<signed::signed-64>> = <<number::64>>
    signed
  end

  defp all(fields, number), do: for({^number, value} <- fields, do: value)
  defp hex(bytes), do: Base.encode16(bytes, case: :lower)

  # The wire format: a key of number and kind, and a value.
  defp fields(""), do: []

  defp fields(bytes) do
    {key, rest} = varint(bytes)

    {value, rest} =
      case Bitwise.band(key, 7) do
        0 -> varint(rest)
        1 -> rest |> then(fn <<fixed::little-64, rest::binary>> -> {fixed, rest} end)
        2 -> delimited(varint(rest))
        5 -> rest |> then(fn <<fixed::little-32, rest::binary>> -> {fixed, rest} end)
      end

    [{Bitwise.bsr(key, 3), value} | fields(rest)]
  end

  defp delimited({length, rest}) do
    <<value::binary-size(length), rest::binary>> = rest
    {value, rest}
  end

  defp varint(<<0::1, low::7, rest::binary>>), do: {low, rest}

  defp varint(<<1::1, low::7, rest::binary>>) do
    {high, rest} = varint(rest)
    {high * 128 + low, rest}
  end
end
