defmodule AshAgent.LLM.Transport.Request do
  @moduledoc """
  A request, as transports get it.

    * `:method` - such as `"POST"`
    * `:uri` - with path and query percent-encoded
    * `:headers` - a function that returns `[{name, value}]`, so that printing a request does not print the keys in it
    * `:body` - iodata
    * `:connect_timeout` - milliseconds to connect
    * `:first_byte_timeout` - milliseconds from the connection to the first byte of the response's body, or `:infinity`
    * `:idle_timeout` - milliseconds between two chunks of the body, or `:infinity`
    * `:timeout` - milliseconds for everything, or `:infinity`
    * `:max_bytes` - the longest body; a transport may refuse one whose announced length is greater
    * `:ssl` - options of `:ssl`

  `inspect/1` shows only the method, the host and the timeout.
  """

  @enforce_keys [:method, :uri]
  defstruct [:method, :uri, :headers, body: "", connect_timeout: 10_000, ssl: []] ++
              for(
                limit <- ~w(first_byte_timeout idle_timeout timeout max_bytes)a,
                do: {limit, :infinity}
              )

  @type milliseconds :: pos_integer() | :infinity

  @type t :: %__MODULE__{
          method: String.t(),
          uri: URI.t(),
          headers: fun() | nil,
          body: iodata(),
          connect_timeout: pos_integer(),
          first_byte_timeout: milliseconds(),
          idle_timeout: milliseconds(),
          timeout: milliseconds(),
          max_bytes: pos_integer() | :infinity,
          ssl: keyword()
        }

  @doc """
  Returns the headers.

  ## Examples

      iex> request = %AshAgent.LLM.Transport.Request{method: "GET", uri: URI.parse("https://example.com"), headers: fn -> [{"accept", "*/*"}] end}
      iex> AshAgent.LLM.Transport.Request.headers(request)
      [{"accept", "*/*"}]
  """
  @doc since: "0.1.0"
  @spec headers(t()) :: [{String.t(), String.t()}]
  def headers(%__MODULE__{headers: nil}), do: []
  def headers(%__MODULE__{headers: headers}), do: headers.()

  @secret ~w(authorization proxy-authorization api-key x-api-key x-goog-api-key x-amz-security-token cookie)

  @doc false
  # The values of headers that may stand in no error, log or cassette.
  def secrets(headers) do
    for {name, value} <- headers,
        String.downcase(name) in @secret,
        do: String.replace(value, ~r/\ABearer /i, "")
  end

  @doc """
  Returns the value of the `host` header: without the port where it is the scheme's own.

  ## Examples

      iex> AshAgent.LLM.Transport.Request.host(URI.parse("http://example.com:8080/v1"))
      "example.com:8080"
      iex> AshAgent.LLM.Transport.Request.host(URI.parse("https://example.com/v1"))
      "example.com"
  """
  @doc since: "0.1.0"
  @spec host(URI.t()) :: String.t()
  def host(%URI{host: host} = uri) do
    name = if String.contains?(host, ":"), do: "[#{host}]", else: host
    if uri.port in [nil, URI.default_port(uri.scheme)], do: name, else: "#{name}:#{uri.port}"
  end

  defimpl Inspect do
    def inspect(%{method: method, uri: uri, timeout: timeout} = request, _opts),
      do: AshAgent.OneLine.describe(request, "#{method} #{uri.host}, timeout: #{timeout}")
  end
end
