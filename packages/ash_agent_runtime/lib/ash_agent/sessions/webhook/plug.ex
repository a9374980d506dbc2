defmodule AshAgent.Sessions.Webhook.Plug do
  @schema AshAgent.Options.schema([
            {:at, :string, [required: true],
             "the path below which it answers, such as `\"/arrivals\"`."},
            {:webhook, {:or, [{:fun, 0}, :any]},
             [required: true, type_doc: "a webhook or a function of arity 0"],
             "an `AshAgent.Sessions.Webhook`, or a function that returns it: options of a plug are made when an application is compiled, where its " <>
               "secrets are not known."}
          ])

  @moduledoc """
  A plug that takes late results at signed addresses, see `AshAgent.Sessions.Webhook`.

  Put it in the endpoint, in front of everything that logs or parses requests, so that no log has an address:

      defmodule MyAppWeb.Endpoint do
        use Phoenix.Endpoint, otp_app: :my_app

        plug AshAgent.Sessions.Webhook.Plug, at: "/arrivals", webhook: &MyApp.webhook/0
        plug Plug.Telemetry, event_prefix: [:phoenix, :endpoint]
        ...

  Requests for other paths go on. It needs `:plug`, which every application with Phoenix has.

  ## Options

  #{AshAgent.Options.docs(@schema)}
  """

  use AshAgent.Arguments

  alias AshAgent.{Options, Sessions.Webhook}

  @compile {:no_warn_undefined, Plug.Conn}

  @doc """
  Checks the options.

  ## Examples

      iex> {["in", "arrivals"], _webhook} = AshAgent.Sessions.Webhook.Plug.init(at: "/in/arrivals", webhook: fn -> nil end)
  """
  @doc since: "0.1.0"
  @spec init(keyword()) :: {[String.t()], Webhook.t() | (... -> Webhook.t())}
  def init(opts) do
    opts = Options.validate!(opts, @schema)
    {String.split(opts[:at], "/", trim: true), opts[:webhook]}
  end

  @doc """
  Answers a request for its path, and returns the connection of any other as it is.

  ## Examples

      conn |> AshAgent.Sessions.Webhook.Plug.call(AshAgent.Sessions.Webhook.Plug.init(at: "/arrivals", webhook: webhook))
  """
  @doc since: "0.1.0"
  @spec call(struct(), term()) :: struct()
  def call(%{path_info: path} = conn, {at, webhook}) do
    if List.starts_with?(path, at),
      do: answer(conn, Enum.drop(path, length(at)), make(webhook)),
      else: conn
  end

  defp make(function) when is_function(function), do: function.()
  defp make(webhook), do: webhook

  defp answer(conn, path, webhook) do
    {body, conn} = read(conn, Webhook.max_bytes(webhook))
    request = %{method: conn.method, path: path, headers: conn.req_headers, body: body}
    {status, headers, body} = Webhook.call(webhook, request)

    headers
    |> Enum.reduce(conn, fn {name, value}, conn ->
      Plug.Conn.put_resp_header(conn, name, value)
    end)
    |> Plug.Conn.send_resp(status, body)
    |> Plug.Conn.halt()
  end

  # One byte more than it takes is enough for it to refuse.
  defp read(conn, max) do
    case Plug.Conn.read_body(conn, length: max, read_length: 64_000, read_timeout: 15_000) do
      {:ok, body, conn} -> {body, conn}
      {:more, _body, conn} -> {String.duplicate(" ", max + 1), conn}
      {:error, _reason} -> {"", conn}
    end
  end
end
