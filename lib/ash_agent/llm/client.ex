defmodule AshAgent.LLM.Client do
  @moduledoc false

  # What the clients of providers share: their options, and from a context to the JSON of an answer.

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.LLM.{Error, HTTP}
  alias AshAgent.Runtime.Options

  @defaults [
    base_url: nil,
    model: nil,
    api_key: nil,
    headers: [],
    body: %{},
    request: [],
    max_retries: 2,
    timeout: 120_000,
    connect_timeout: 10_000,
    max_response_bytes: 33_554_432,
    ssl: []
  ]

  @doc "Checks options and hides the key in a function. No message shows an option's value but the model's and the URL's."
  def prepare(opts, client, defaults) do
    opts = Options.validate!(opts, Keyword.merge(@defaults, defaults))

    unless is_binary(opts[:model]) and opts[:model] != "",
      do: refuse(client, ":model, the name of a model as text")

    check(
      client,
      opts,
      :max_retries,
      &(is_integer(&1) and &1 >= 0),
      "a number of repetitions, 0 or more"
    )

    check(
      client,
      opts,
      :timeout,
      &(&1 == :infinity or (is_integer(&1) and &1 > 0)),
      "milliseconds or :infinity"
    )

    check(client, opts, :connect_timeout, &(is_integer(&1) and &1 > 0), "milliseconds")
    check(client, opts, :max_response_bytes, &(is_integer(&1) and &1 > 0), "a number of bytes")
    check(client, opts, :headers, &is_list/1, "a list of {name, value}")
    check(client, opts, :body, &is_map/1, "a map")
    check(client, opts, :request, &Keyword.keyword?/1, "a keyword list")
    check(client, opts, :ssl, &Keyword.keyword?/1, "a keyword list of options of :ssl")

    _ = uri(client, opts[:base_url])

    opts
    |> Keyword.update!(:api_key, &hide(client, &1))
    |> Keyword.update!(:headers, &headers(client, &1))
  end

  defp check(client, opts, key, valid?, expected) do
    unless valid?.(opts[key]), do: refuse(client, "#{inspect(key)} to be #{expected}")
  end

  defp refuse(client, expected),
    do: raise(ArgumentError, "#{inspect(client)} expects #{expected}")

  # Whatever prints options (a crash report, an inspected state) prints a function.
  defp hide(_client, nil), do: nil
  defp hide(_client, function) when is_function(function, 0), do: function

  defp hide(client, key) when is_binary(key) do
    key = String.trim(key)
    unless sendable?(key), do: refuse(client, ":api_key to be printable text")
    if key == "", do: nil, else: fn -> key end
  end

  defp hide(client, _other),
    do: refuse(client, ":api_key to be text or a function that returns it")

  # Headers may hold secrets too.
  defp headers(client, headers) do
    Enum.map(headers, fn
      {name, value} when is_function(value, 0) and (is_binary(name) or is_atom(name)) ->
        {header_name(client, name), value}

      {name, value} when is_binary(value) and (is_binary(name) or is_atom(name)) ->
        unless sendable?(value), do: refuse(client, "printable text in the header #{name}")
        {header_name(client, name), fn -> value end}

      _other ->
        refuse(client, ":headers to be a list of {name, value}")
    end)
  end

  defp header_name(client, name) do
    name = name |> to_string() |> String.downcase()

    if name =~ ~r/\A[a-z0-9!#$%&'*+.^_`|~-]+\z/,
      do: name,
      else: refuse(client, "header names as HTTP has them")
  end

  defp sendable?(text), do: String.valid?(text) and not (text =~ ~r/[\x00-\x1f\x7f]/)

  defp uri(client, url) when is_binary(url) do
    case URI.new(url) do
      {:ok, %URI{scheme: scheme, host: host, userinfo: nil, fragment: nil} = uri}
      when scheme in ["http", "https"] and is_binary(host) and host != "" and
             uri.port in 1..65_535 ->
        uri

      _ ->
        refuse(client, ":base_url to be an http or https URL without credentials")
    end
  end

  defp uri(client, _url), do: refuse(client, ":base_url to be text")

  @doc """
  Sends the context to `path` below the base URL and returns the decoded answer, a map.

  `authorization` makes headers of a key.
  """
  def post(client, path, provider, context, body, opts, authorization) do
    key = key(client, opts[:api_key])
    uri = uri(client, opts[:base_url])
    uri = %{uri | path: String.trim_trailing(uri.path || "", "/") <> path}
    own = Enum.map(opts[:headers], fn {name, value} -> {name, value.()} end)
    headers = merge(if(key, do: authorization.(key), else: []), own)

    body = Map.merge(body, Map.new(opts[:body], fn {name, value} -> {to_string(name), value} end))

    with {:ok, encoded} <- encode(context, provider, request_options(opts, body)),
         {:ok, response} <-
           HTTP.post(uri, headers, encoded, [describe: &describe(&1, key)] ++ opts),
         {:ok, %{} = answer} <- decode(response.body) do
      {:ok, answer}
    else
      {:ok, _no_object} -> invalid("no JSON object")
      {:error, %Error{}} = error -> error
    end
  end

  defp key(_client, nil), do: nil

  # The function is the caller's: it may return a key with the newline of the file it came from.
  defp key(client, function) do
    with hidden when hidden != nil <- hide(client, function.()), do: hidden.()
  end

  defp merge(headers, own) do
    names = Enum.map(own, &elem(&1, 0))
    Enum.reject(headers, fn {name, _} -> name in names end) ++ own
  end

  # With the model's name, thinking that another model signed stays out of the request.
  defp request_options(opts, body),
    do: opts[:request] |> Keyword.put_new(:model, opts[:model]) |> Keyword.put(:body, body)

  defp encode(context, provider, opts) do
    with {:error, error} <- Context.encode_request(context, provider, opts),
         do: {:error, %Error{reason: {:request, error}}}
  end

  defp decode(body) do
    with {:error, error} <- JSON.decode(body), do: invalid(Exception.message(error))
  end

  @doc "The error of an answer that does not follow the protocol."
  def invalid(words), do: {:error, %Error{reason: {:invalid_response, words}}}

  # {"error": {"message": ".."}} of OpenAI and Anthropic, {"error": ".."} of Ollama, {"message": ".."} of others.
  defp describe(body, key) do
    words =
      case JSON.decode(body) do
        {:ok, %{"error" => %{"message" => words}}} when is_binary(words) -> words
        {:ok, %{"error" => words}} when is_binary(words) -> words
        {:ok, %{"message" => words}} when is_binary(words) -> words
        {:ok, %{"detail" => words}} when is_binary(words) -> words
        {:ok, _other} -> nil
        {:error, _} -> body
      end

    # Some providers repeat the key they refuse. A very short one is none, and would tear words apart.
    if is_binary(words) and key != nil and byte_size(key) >= 8,
      do: String.replace(words, key, "[key]"),
      else: words
  end

  @doc "A schema as providers accept it: an object says which properties it has, even when there are none."
  def schema(parameters) do
    properties? = Map.has_key?(parameters, "properties") or Map.has_key?(parameters, :properties)
    type = to_string(parameters["type"] || parameters[:type] || "object")

    cond do
      type != "object" or properties? -> parameters
      Map.has_key?(parameters, :type) -> Map.put(parameters, :properties, %{})
      true -> Map.merge(%{"type" => "object", "properties" => %{}}, parameters)
    end
  end

  @doc "The numbers of a usage report under this package's names; `nil` when there are none."
  def usage(reported, names) when is_map(reported) do
    usage =
      for {name, path} <- names, number = number(reported, path), into: %{}, do: {name, number}

    if usage == %{}, do: nil, else: usage
  end

  def usage(_reported, _names), do: nil

  defp number(reported, path) do
    Enum.reduce_while(path, reported, fn key, inner ->
      if is_map(inner), do: {:cont, inner[key]}, else: {:halt, nil}
    end)
    |> case do
      number when is_integer(number) and number >= 0 -> number
      _ -> nil
    end
  end
end
