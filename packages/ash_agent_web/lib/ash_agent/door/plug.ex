defmodule AshAgent.Door.Plug do
  @moduledoc """
  A plug that is a door, see `AshAgent.Door`, whose options it takes. In a router of Phoenix, where people are logged in:

      scope "/api" do
        pipe_through [:api_of_the_page, :require_user]
        forward "/chat", AshAgent.Door.Plug, sessions: MyApp.Sessions, identify: &MyApp.identify/1, origins: ["https://app.example.com"]
      end

  The request that `:identify` gets has the connection's `assigns`:

      def identify(%{assigns: %{current_user: user}, asks: id}) do
        if MyApp.chat_of?(user, id),
          do: {:ok, %{conversation: id, runtime_context: %{actor: user}, by: user.email}},
          else: {:error, :not_found}
      end

  A body that a parser has read, such as `Plug.Parsers` in the endpoint of Phoenix, is taken from `body_params`. It needs `:plug`, which every
  application with Phoenix has.
  """

  alias AshAgent.Context.JSON
  alias AshAgent.Door

  @compile {:no_warn_undefined, Plug.Conn}

  @doc "Checks the options."
  @doc since: "0.1.0"
  @spec init(keyword()) :: Door.t()
  def init(opts), do: Door.new(opts)

  @doc "Answers a request."
  @doc since: "0.1.0"
  @spec call(struct(), Door.t()) :: struct()
  def call(conn, door) do
    {request, conn} = read(conn, Door.max_bytes(door))
    answer(conn, Door.call(door, request))
  end

  @doc false
  # Plug leaves what a URL escapes as it is.
  def read(%{method: method, path_info: path} = conn, max) do
    {body, conn} = read_body(conn, max)
    path = Enum.map(path, &URI.decode/1)
    request = %{method: method, path: path, headers: conn.req_headers, body: body}
    {Map.merge(request, %{query: conn.query_string, assigns: conn.assigns}), conn}
  end

  # One byte more than the door takes is enough for it to refuse.
  defp read_body(%{body_params: %{} = params} = conn, _max) when not is_struct(params),
    do: {JSON.encode(params), conn}

  defp read_body(conn, max) do
    case Plug.Conn.read_body(conn, length: max, read_length: 64_000, read_timeout: 15_000) do
      {:ok, body, conn} -> {body, conn}
      {:more, body, conn} -> {body <> String.duplicate(" ", max), conn}
      {:error, _reason} -> {"", conn}
    end
  end

  defp answer(conn, {status, headers, {:stream, bytes}}) do
    conn = conn |> put(headers) |> Plug.Conn.send_chunked(status)

    Enum.reduce_while(bytes, conn, fn bytes, conn ->
      case Plug.Conn.chunk(conn, bytes) do
        {:ok, conn} -> {:cont, conn}
        {:error, _closed} -> {:halt, conn}
      end
    end)
  end

  defp answer(conn, {status, headers, body}),
    do: conn |> put(headers) |> Plug.Conn.send_resp(status, body)

  defp put(conn, headers) do
    Enum.reduce(headers, conn, fn {name, value}, conn ->
      Plug.Conn.put_resp_header(conn, name, value)
    end)
  end
end
