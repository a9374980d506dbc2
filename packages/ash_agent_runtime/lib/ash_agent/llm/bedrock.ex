defmodule AshAgent.LLM.Bedrock do
  @moduledoc """
  A client for the Converse API of Amazon Bedrock.

      llm =
        AshAgent.LLM.Bedrock.new(
          model: "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
          region: "eu-central-1",
          api_key: fn -> System.fetch_env!("AWS_BEARER_TOKEN_BEDROCK") end,
          body: %{inferenceConfig: %{maxTokens: 8_192}}
        )

  With an account's keys instead of an API key, requests are signed (`AshAgent.LLM.Bedrock.SigV4`):

      AshAgent.LLM.Bedrock.new(
        model: "amazon.nova-pro-v1:0",
        region: "us-east-1",
        credentials: fn -> MyApp.AWS.credentials() end
      )

  A request uses the first of `:api_key`, `:credentials`, the environment's `AWS_BEARER_TOKEN_BEDROCK`, and its
  `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`. To use profiles or the metadata services of AWS, read them with
  another library and pass its credentials as `:credentials`.

  For streaming, timeouts, retries and secrets see `AshAgent.LLM`.
  """

  alias AshAgent.LLM.Client
  alias AshAgent.LLM.Bedrock.SigV4

  @schema Client.schema(
            AshAgent.Options.schema([
              {:region, :string,
               "the region of AWS. Defaults to the environment's `AWS_REGION` or `AWS_DEFAULT_REGION`."},
              {:credentials, {:or, [:map, {:fun, 0}, nil]},
               [type_doc: "a map or a function that returns it"],
               "`:access_key_id`, `:secret_access_key` and, for temporary credentials, `:session_token`; read for each request."}
            ]),
            provider: :bedrock
          )

  use Client, @schema

  @impl Client
  def check(opts) do
    region = opts[:region] || env("AWS_REGION") || env("AWS_DEFAULT_REGION")
    unless region, do: Client.refuse(__MODULE__, ":region, or AWS_REGION in the environment")

    unless region =~ ~r/\A[a-z0-9-]+\z/,
      do: Client.refuse(__MODULE__, ":region to be the name of a region, such as \"us-east-1\"")

    opts
    |> Keyword.put(:region, region)
    |> Keyword.put_new(:base_url, "https://bedrock-runtime.#{region}.amazonaws.com")
    |> Keyword.put(:credentials, hide(opts[:credentials]))
  end

  defp hide(credentials) when is_map(credentials), do: fn -> credentials end
  defp hide(credentials), do: credentials

  @impl Client
  def call(opts, tools, mode) do
    model = URI.encode(opts[:model], &URI.char_unreserved?/1)

    if mode == :stream do
      accept = [{"accept", "application/vnd.amazon.eventstream"}]
      %{path: "/model/#{model}/converse-stream", headers: accept, body: declare(tools)}
    else
      %{path: "/model/#{model}/converse", body: declare(tools)}
    end
  end

  defp declare([]), do: %{}

  defp declare(tools) do
    specs =
      for tool <- tools do
        {schema, spec} = tool |> Client.tool("inputSchema") |> Map.pop!("inputSchema")
        %{"toolSpec" => Map.put(spec, "inputSchema", %{"json" => schema})}
      end

    %{"toolConfig" => %{"tools" => specs}}
  end

  @impl Client
  def credentials(opts) do
    key = Client.reveal(__MODULE__, :api_key, opts[:api_key])

    cond do
      key -> {:ok, key}
      opts[:credentials] -> account(opts[:credentials].())
      key = env("AWS_BEARER_TOKEN_BEDROCK") -> {:ok, key}
      true -> account(environment())
    end
  end

  defp environment do
    %{
      access_key_id: env("AWS_ACCESS_KEY_ID"),
      secret_access_key: env("AWS_SECRET_ACCESS_KEY"),
      session_token: env("AWS_SESSION_TOKEN")
    }
  end

  # The function is the caller's.
  defp account(%{access_key_id: id, secret_access_key: secret} = keys)
       when is_binary(id) and is_binary(secret) and id != "" and secret != "" do
    token = Map.get(keys, :session_token)
    {:ok, %{access_key_id: id, secret_access_key: secret, session_token: token}}
  end

  defp account(_other) do
    {:error,
     ArgumentError.exception(
       "no credentials for AWS: give :api_key or :credentials (a map with :access_key_id and :secret_access_key), or set " <>
         "AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
     )}
  end

  @impl Client
  def authorize(key, _request, _opts) when is_binary(key),
    do: [{"authorization", "Bearer " <> key}]

  def authorize(keys, request, opts) do
    headers = AshAgent.LLM.Transport.Request.headers(request)

    SigV4.sign(request.method, request.uri, headers, request.body, keys,
      region: opts[:region],
      service: "bedrock"
    )
  end

  defp env(name) do
    case System.get_env(name) do
      "" -> nil
      value -> value
    end
  end
end
