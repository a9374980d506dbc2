defmodule AshAgent.Test.Server do
  @moduledoc """
  A server on loopback that speaks as the seven providers do, for tests that include the real client.

      defmodule MyApp.AgentTest do
        use ExUnit.Case, async: true

        test "survives a busy provider" do
          server = start_supervised!({AshAgent.Test.Server, script: [:busy, "Hello!"]})
          llm = AshAgent.LLM.Anthropic.new(model: "m", base_url: AshAgent.Test.Server.base_url(server))
          assert {:ok, %{output: "Hello!"}} = AshAgent.Runtime.run(AshAgent.Context.new("Hi"), llm: llm)
        end
      end

  A request's path says which provider's form its answer has, and the request says whether it comes whole or streamed: one server
  serves all clients. Those of Mistral and of OpenAI chat have the same path; for Mistral, pass `provider: :mistral`.

  ## The script

  Each request takes the next step of the script; a request after the last one is refused with status 400, which no client tries again.
  A step is

    * a string, or a message as `AshAgent.Response.from_message/1` takes it
    * `{:cut, answer}` - the connection closes within the stream of this answer, after its first words
    * one of the kinds below, or `{kind, answer}`, with the answer whose beginning comes, for those that begin one
    * `{:refuse, status, words}`, or `{:refuse, status, words, headers}`
    * `{:raw, status, headers, chunks}` - these bytes
    * a function that takes the request, as `requests/1` has it, and returns one of these. It runs in a process of its own

  A script that is a function is called for each request.

  ## How it misbehaves

  #{for {kind, words} <- AshAgent.Test.Server.Misbehaviour.kinds(), do: "  * `#{inspect(kind)}` - #{words}\n"}
  `refused_url/0` is a URL where nobody listens, and no name that ends in `.invalid` has an address.
  """

  use GenServer

  alias AshAgent.Context.JSON
  alias AshAgent.LLM.Recorded.Cassette
  alias AshAgent.Response
  alias AshAgent.Test.Server.{Format, Misbehaviour, Wire}

  @kinds Keyword.keys(Misbehaviour.kinds())

  @schema AshAgent.Options.schema([
            {:script, {:or, [:list, {:fun, 1}]}, [default: []], "the steps, see above."},
            {:cassette, :string,
             "a file of `AshAgent.LLM.Recorded` whose answers are sent, byte by byte, instead of a script. A request without a recording is " <>
               "refused with status 400."},
            {:provider, {:in, AshAgent.Context.Requests.providers()},
             "whose form answers have. Defaults to the one that the path of a request says."},
            {:cuts, {:or, [{:in, [:events]}, {:fun, 1}]},
             [type_doc: "`:events`, or a function of arity 1", default: :events],
             "where the bytes of a stream are cut: the function takes them and returns a list of pieces."},
            {:words, :string, [default: ""],
             "what the server's own words end with, such as a key that nobody may read then."},
            {:name, :any, [type_doc: "the name of a process"], "registers the server."}
          ])

  @type request :: %{
          number: pos_integer(),
          method: String.t(),
          path: String.t(),
          headers: %{String.t() => String.t()},
          body: map(),
          provider: atom(),
          stream?: boolean()
        }

  @doc """
  Starts a server, for `start_supervised!/1`.

  ## Options

  #{AshAgent.Options.docs(@schema)}
  """
  @doc since: "0.1.0"
  @spec start_link(keyword()) :: GenServer.on_start()
  def start_link(opts \\ []) do
    opts = AshAgent.Options.validate!(opts, @schema)
    check_script(opts[:script])
    GenServer.start_link(__MODULE__, Map.new(opts), Keyword.take(opts, [:name]))
  end

  @doc """
  Returns the URL for the option `:base_url` of clients.

  ## Examples

      server = start_supervised!({AshAgent.Test.Server, script: ["Hello!"]})
      llm = AshAgent.LLM.Ollama.new(model: "m", base_url: AshAgent.Test.Server.base_url(server))
  """
  @doc since: "0.1.0"
  @spec base_url(GenServer.server()) :: String.t()
  def base_url(server), do: GenServer.call(server, :base_url)

  @doc """
  Returns the requests so far, oldest first.

  ## Examples

      [request] = AshAgent.Test.Server.requests(server)
  """
  @doc since: "0.1.0"
  @spec requests(GenServer.server()) :: [request()]
  def requests(server), do: GenServer.call(server, :requests)

  @doc """
  Returns a URL where nobody listens.

  ## Examples

      llm = AshAgent.LLM.Ollama.new(model: "m", base_url: AshAgent.Test.Server.refused_url())
  """
  @doc since: "0.1.0"
  @spec refused_url() :: String.t()
  # A port that no server is ever given: one that was closed may soon be another's.
  def refused_url, do: "http://127.0.0.1:1/v1"

  defp check_script(script) when is_list(script), do: Enum.each(script, &check_step/1)
  defp check_script(_function), do: :ok

  defp check_step(step) when is_function(step, 1) or is_binary(step) or step in @kinds, do: :ok
  defp check_step({kind, answer}) when kind in [:cut | @kinds], do: check_step(answer)
  defp check_step({:refuse, status, words}) when is_integer(status) and is_binary(words), do: :ok

  defp check_step({:refuse, status, words, headers})
       when is_integer(status) and is_binary(words) and is_list(headers),
       do: :ok

  defp check_step({:raw, status, headers, chunks})
       when is_integer(status) and is_list(headers) and is_list(chunks),
       do: :ok

  defp check_step(%{} = message), do: response!(message)

  defp check_step(other) do
    raise ArgumentError,
          "expected a step of a script, see AshAgent.Test.Server, got: #{AshAgent.Options.kind(other)}"
  end

  defp response!(%Response{} = response), do: response
  defp response!(text) when is_binary(text), do: response!(%{content: text})

  defp response!(message) do
    case Response.from_message(message) do
      {:ok, response} -> response
      {:error, error} -> raise error
    end
  end

  ## The process

  @impl true
  def init(opts) do
    server = self()
    opts = Map.put(opts, :script, script(opts))
    %{url: url} = Wire.start(&serve(&1, server, opts))
    {:ok, %{script: opts.script, url: url, requests: [], count: 0}}
  end

  defp script(%{cassette: file}) do
    {:ok, cassette} = Cassette.start_link(cassette: file, mode: :replay)

    fn request ->
      case Cassette.find(cassette, request.path, request.body) do
        {:ok, %{status: nil}} ->
          {:raw, 502, [], []}

        {:ok, recording} ->
          {:raw, recording.status, recording.headers, Enum.map(recording.pieces, &elem(&1, 1))}

        {:error, missing} ->
          {:refuse, 400, Exception.message(missing)}
      end
    end
  end

  defp script(opts), do: opts.script

  @impl true
  def handle_call(:base_url, _from, state), do: {:reply, state.url, state}
  def handle_call(:requests, _from, state), do: {:reply, Enum.reverse(state.requests), state}

  def handle_call({:next, request}, _from, state) do
    request = Map.put(request, :number, state.count + 1)
    state = %{state | requests: [request | state.requests], count: state.count + 1}

    case state.script do
      [step | script] -> {:reply, {step, request}, %{state | script: script}}
      [] -> {:reply, {{:refuse, 400, "the script is exhausted"}, request}, state}
      function -> {:reply, {function, request}, state}
    end
  end

  # Messages of connections that clients closed.
  @impl true
  def handle_info(_message, state), do: {:noreply, state}

  ## A connection, in a process of its own

  defp serve(connection, server, opts) do
    with {:ok, request} <- Wire.read_request(connection) do
      to = %Misbehaviour{connection: connection, type: "application/json", words: opts.words}

      case read(request, opts) do
        {:ok, request} -> answer(server, request, to, opts)
        {:error, words} -> Misbehaviour.refuse(to, 404, words)
      end
    end
  end

  defp read(request, opts) do
    with {:ok, body} <- JSON.decode(request.body),
         {:ok, provider, mode} <- Format.read_path(request.path, body) do
      provider =
        if opts[:provider] == :mistral and provider == :openai_chat, do: :mistral, else: provider

      own = %{body: body, provider: opts[:provider] || provider, stream?: mode == :stream}
      {:ok, request |> Map.take([:method, :path, :headers]) |> Map.merge(own)}
    else
      :error -> {:error, "no provider has the path #{request.path}"}
      {:error, _error} -> {:error, "the body is not JSON"}
    end
  end

  defp answer(server, request, to, opts) do
    {step, request} = GenServer.call(server, {:next, request}, :infinity)
    mode = if request.stream?, do: :stream, else: :chat
    to = %{to | type: Format.content_type(request.provider, mode)}
    play(step, request, to, opts)
  rescue
    # Without an answer, the client would tell of a closed connection.
    error -> Misbehaviour.refuse(to, 400, "the script failed: " <> Exception.message(error))
  end

  defp play(step, request, to, opts) when is_function(step),
    do: step.(request) |> play(request, to, opts)

  defp play({:raw, status, headers, chunks}, _request, to, _opts) do
    lines =
      for {name, value} <- headers,
          name not in ["content-length", "transfer-encoding", "connection"],
          do: [name, ": ", value, "\r\n"]

    head = [
      "HTTP/1.1 #{status} Whatever\r\n",
      lines,
      "connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    ]

    body = for chunk <- chunks, chunk != "", do: Wire.chunk(chunk)
    Wire.write(to.connection, [head, body, "0\r\n\r\n"])
  end

  defp play({:refuse, status, words}, request, to, opts),
    do: play({:refuse, status, words, []}, request, to, opts)

  defp play({:refuse, status, words, headers}, _request, to, _opts),
    do: Misbehaviour.refuse(to, status, words, headers)

  defp play({:cut, answer}, request, to, opts),
    do: play({:cut_within_an_event, answer}, request, to, opts)

  defp play(kind, request, to, opts) when kind in @kinds,
    do: play({kind, "Hello from the server!"}, request, to, opts)

  defp play({kind, answer}, request, to, _opts) when kind in @kinds,
    do: Misbehaviour.perform(kind, %{to | events: events(answer, request)})

  defp play(answer, %{stream?: true} = request, to, opts) do
    pieces =
      case {events(answer, request), opts.cuts} do
        {events, :events} -> for {_kind, bytes} <- events, do: bytes
        {events, cut} -> cut.(for({_kind, bytes} <- events, into: "", do: bytes))
      end

    head =
      to.type |> Wire.stream_head() |> String.replace_suffix("\r\n", "connection: close\r\n\r\n")

    Wire.write(to.connection, head)
    # An empty chunk would end the body.
    for piece <- pieces, piece != "", do: Wire.write_chunk(to.connection, piece)
    Wire.write(to.connection, "0\r\n\r\n")
  end

  defp play(answer, request, to, _opts) do
    body = Format.encode(request.provider, response!(answer))
    Misbehaviour.respond(to, 200, body, [{"content-type", to.type}])
  end

  # An empty chunk would end the body.

  defp events(answer, %{stream?: true} = request),
    do: Format.events(request.provider, response!(answer))

  defp events(answer, request),
    do: [{:content, Format.encode(request.provider, response!(answer))}]
end
