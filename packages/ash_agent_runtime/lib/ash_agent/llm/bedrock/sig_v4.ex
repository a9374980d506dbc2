defmodule AshAgent.LLM.Bedrock.SigV4 do
  @moduledoc """
  Signs HTTP requests for AWS with Signature Version 4, as every AWS service except S3 requires.

  `AshAgent.LLM.Bedrock` uses it. You can also use it to call another AWS service with an `AshAgent.LLM.Transport`.
  """

  use AshAgent.Arguments

  alias AshAgent.LLM.Transport.Request

  @typedoc "The keys of an AWS account. `:session_token` comes with temporary ones."
  @type credentials :: %{
          required(:access_key_id) => String.t(),
          required(:secret_access_key) => String.t(),
          optional(:session_token) => String.t() | nil
        }

  @algorithm "AWS4-HMAC-SHA256"

  @schema AshAgent.Options.schema([
            {:region, :string, [required: true], "such as `\"us-east-1\"`."},
            {:service, :string, [required: true], "such as `\"bedrock\"`."},
            {:at, {:or, [{:struct, DateTime}, nil]}, [type_doc: "a `DateTime`"],
             "the time of the request, which AWS allows to be five minutes off. Defaults to now."}
          ])

  @doc """
  Returns the headers with those that sign the request: `host`, `x-amz-date`, `authorization` and, for temporary
  credentials, `x-amz-security-token`.

  All given headers are signed. `uri` holds the path and the query as they go over the wire, that is, percent-encoded.

  ## Options

  #{AshAgent.Options.docs(@schema)}

  ## Examples

      iex> credentials = %{access_key_id: "AKIDEXAMPLE", secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
      iex> opts = [region: "us-east-1", service: "service", at: ~U[2015-08-30 12:36:00Z]]
      iex> uri = URI.parse("https://example.amazonaws.com/")
      iex> headers = AshAgent.LLM.Bedrock.SigV4.sign("GET", uri, [], "", credentials, opts)
      iex> headers |> List.keyfind("authorization", 0) |> elem(1) |> String.split("Signature=") |> List.last()
      "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
  """
  @doc since: "0.1.0"
  @spec sign(
          String.t(),
          URI.t(),
          [{String.t(), String.t()}],
          iodata(),
          credentials(),
          keyword()
        ) :: [{String.t(), String.t()}]
  def sign(method, %URI{} = uri, headers, body, credentials, opts)
      when is_binary(method) and is_list(headers) and is_map(credentials) and is_list(opts) do
    opts = AshAgent.Options.validate!(opts, @schema)
    time = Calendar.strftime(opts[:at] || DateTime.utc_now(), "%Y%m%dT%H%M%SZ")
    scope = [binary_part(time, 0, 8), opts[:region], opts[:service], "aws4_request"]
    headers = complete(headers, uri, time, credentials[:session_token])
    {names, lines} = canonical_headers(headers)

    request = lines([method, path(uri.path), query(uri.query), [lines, ?\n, names], hash(body)])

    scope_text = Enum.join(scope, "/")

    signature =
      scope
      |> key(credentials)
      |> hmac(lines([@algorithm, time, scope_text, hash(request)]))
      |> hex()

    authorization =
      "#{@algorithm} Credential=#{credentials.access_key_id}/#{scope_text}, SignedHeaders=#{names}, Signature=#{signature}"

    headers ++ [{"authorization", authorization}]
  end

  defp complete(headers, uri, time, token) do
    added = [{"host", Request.host(uri)}, {"x-amz-date", time}]
    added = if token, do: [{"x-amz-security-token", token} | added], else: added
    names = Enum.map(headers, &(&1 |> elem(0) |> String.downcase()))
    Enum.reject(added, fn {name, _} -> name in names end) ++ headers
  end

  defp canonical_headers(headers) do
    grouped =
      headers
      |> Enum.group_by(&(&1 |> elem(0) |> String.downcase()), &(&1 |> elem(1) |> squeeze()))
      |> Enum.sort()

    {Enum.map_join(grouped, ";", &elem(&1, 0)),
     Enum.map(grouped, fn {name, values} -> [name, ?:, Enum.intersperse(values, ?,), ?\n] end)}
  end

  defp squeeze(value), do: value |> String.split() |> Enum.join(" ")

  # Everything but S3 wants the path as it goes over the wire encoded once more, without "." and ".." segments.
  defp path(path) do
    segments = (path || "") |> String.split("/") |> Enum.reduce([], &segment/2)
    folder? = segments != [] and String.ends_with?(path, ["/", "/.", "/.."])
    encoded = segments |> Enum.reverse() |> Enum.map(&[?/, encode(&1)])
    if segments == [] or folder?, do: [encoded, ?/], else: encoded
  end

  defp segment(segment, done) when segment in ["", "."], do: done
  defp segment("..", done), do: Enum.drop(done, 1)
  defp segment(segment, done), do: [segment | done]

  defp query(nil), do: ""

  defp query(query) do
    query
    |> String.split("&", trim: true)
    |> Enum.map(fn pair ->
      [name | value] = String.split(pair, "=", parts: 2)
      {recode(name), value |> Enum.join() |> recode()}
    end)
    |> Enum.sort()
    |> Enum.map_join("&", fn {name, value} -> name <> "=" <> value end)
  end

  defp recode(text), do: text |> URI.decode() |> encode()
  defp encode(text), do: URI.encode(text, &URI.char_unreserved?/1)

  defp key(scope, credentials),
    do: Enum.reduce(scope, "AWS4" <> credentials.secret_access_key, &hmac(&2, &1))

  defp hmac(key, data), do: :crypto.mac(:hmac, :sha256, key, data)
  defp hash(data), do: :sha256 |> :crypto.hash(data) |> hex()
  defp hex(bytes), do: Base.encode16(bytes, case: :lower)
  defp lines(lines), do: Enum.intersperse(lines, ?\n)
end
