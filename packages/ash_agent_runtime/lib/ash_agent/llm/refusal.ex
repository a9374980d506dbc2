defmodule AshAgent.LLM.Refusal do
  @moduledoc false

  # Makes an error of a response that is not 2xx: the provider's own words, or those of a gateway before it.

  alias AshAgent.LLM.Error
  alias AshAgent.Response

  @most_characters 2_000
  # Pages are read no further: titles come first, and the patterns below take quadratic time on text that is not HTML.
  @page_bytes 8_192
  @entities Map.new(
              Enum.zip(~w(&nbsp; &amp; &lt; &gt; &quot; &#39;), [" ", "&", "<", ">", "\"", "'"])
            )

  @doc "The error of a status, headers and body. `secrets` are cut out of the words: some providers repeat the key they refuse."
  def new(status, headers, body, secrets) do
    body = unzip(body, header(headers, "content-encoding"))
    refusal = Response.Error.read_refusal(status, header(headers, "x-amzn-errortype"), body)
    words = if page?(headers, body), do: title(body), else: refusal.provider_message

    %Error{
      reason: {:status, status},
      kind: refusal.kind,
      status: status,
      provider_message: clean(words, secrets),
      retry_after: retry_after(headers) || refusal.retry_after,
      retryable?: retryable?(header(headers, "x-should-retry"), refusal)
    }
  end

  @unreadable "its words are compressed, and cannot be read"

  # Gateways compress what they refuse, though no request asks for that, and some say so of what is not compressed. What is longer
  # than any error is left out.
  defp unzip(<<0x1F, 0x8B, _::binary>> = body, _encoding), do: inflate(body)
  defp unzip(body, encoding) when encoding in [nil, "", "identity"], do: body
  defp unzip(body, _encoding), do: if(String.printable?(body), do: body, else: inflate(body))

  defp inflate(body) do
    zip = :zlib.open()

    try do
      # 15, and 32 for either header.
      :ok = :zlib.inflateInit(zip, 47)
      text = zip |> words(:zlib.safeInflate(zip, body), 16) |> IO.iodata_to_binary()
      if text == "", do: @unreadable, else: text
    rescue
      _ -> @unreadable
    after
      :zlib.close(zip)
    end
  end

  defp words(zip, {:continue, text}, pieces) when pieces > 0,
    do: [text | words(zip, :zlib.safeInflate(zip, []), pieces - 1)]

  defp words(_zip, {_, text}, _pieces), do: text

  # An empty account stays empty, whatever a header says.
  defp retryable?(_told, %{kind: :quota}), do: false
  defp retryable?("true", _refusal), do: true
  defp retryable?("false", _refusal), do: false
  defp retryable?(_told, refusal), do: refusal.retryable?

  @doc "The words for an error: short, valid, and without secrets."
  def clean(words, secrets) when is_binary(words) do
    # A very short secret is not one, and would tear words apart.
    words =
      for secret <- secrets, byte_size(secret) >= 8, reduce: words do
        words -> String.replace(words, secret, "[key]")
      end

    words = AshAgent.SecretForms.replace(words, fn _secret -> "[key]" end)

    case if(String.valid?(words), do: String.trim(words), else: "") do
      "" -> nil
      words -> String.slice(words, 0, @most_characters)
    end
  end

  def clean(_other, _secrets), do: nil

  @doc "Returns true if a body is a page for people."
  def page?(headers, body) do
    type = header(headers, "content-type") || ""

    String.starts_with?(String.downcase(type, :ascii), "text/html") or
      (body != "" and
         body |> binary_part(0, min(byte_size(body), 200)) |> String.trim_leading() =~
           ~r/\A<(!doctype html|html)/i)
  end

  @doc "A page's title, else its first heading, else its text."
  def title(body) do
    body = binary_part(body, 0, min(byte_size(body), @page_bytes))

    text =
      between(body, "title") || between(body, "h1") ||
        body
        |> String.replace(~r/<(script|style)\b.*?<\/\1>/is, " ")
        |> String.replace(~r/<[^>]*>/, " ")

    text
    |> String.replace(~r/<[^>]*>/, " ")
    |> String.replace(Map.keys(@entities), &Map.fetch!(@entities, &1))
    |> String.split()
    |> Enum.join(" ")
    |> String.slice(0, 300)
  end

  defp between(body, tag) do
    with [_, text] <-
           Regex.run(~r/<#{tag}\b[^>]*>([^<]*(?:<(?!\/#{tag})[^<]*)*)<\/#{tag}/i, body),
         true <- String.trim(text) != "" do
      text
    else
      _ -> nil
    end
  end

  ## When to try again

  @doc "Milliseconds that the server asks to wait, or `nil`."
  def retry_after(headers, now \\ DateTime.utc_now()) do
    with nil <- milliseconds(header(headers, "retry-after-ms"), 1),
         nil <- milliseconds(header(headers, "retry-after"), 1_000) do
      until(header(headers, "retry-after"), now)
    end
  end

  defp milliseconds(nil, _unit), do: nil

  defp milliseconds(text, unit) do
    case Float.parse(String.slice(text, 0, 20)) do
      {number, ""} when number >= 0 and number < 1.0e9 -> ceil(number * unit)
      _ -> nil
    end
  end

  @months ~w(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec)

  # "Sun, 06 Nov 1994 08:49:37 GMT"
  defp until(
         <<_::binary-size(5), day::binary-size(2), " ", month::binary-size(3), " ",
           year::binary-size(4), " ", time::binary-size(8), " GMT">>,
         now
       ) do
    with index when index != nil <- Enum.find_index(@months, &(&1 == month)),
         number = String.pad_leading(Integer.to_string(index + 1), 2, "0"),
         {:ok, at, 0} <- DateTime.from_iso8601("#{year}-#{number}-#{day}T#{time}Z") do
      max(DateTime.diff(at, now, :millisecond), 0)
    else
      _ -> nil
    end
  end

  defp until(_other, _now), do: nil

  @doc "The value of a header, or `nil`."
  def header(headers, name) do
    Enum.find_value(headers, fn {key, value} -> if key == name, do: value end)
  end
end
