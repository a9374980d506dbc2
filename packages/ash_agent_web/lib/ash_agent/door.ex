defmodule AshAgent.Door do
  @schema AshAgent.Options.schema([
            {:sessions, :atom, [required: true],
             "the name of an `AshAgent.Sessions`, on this node. The conversations' sessions may be on others."},
            {:identify, {:fun, 1}, [required: true], "who asks, see above."},
            {:protocol, {:in, [:ai_sdk, :ag_ui, :responses]},
             [type_doc: "`:ai_sdk`, `:ag_ui` or `:responses`", default: :ai_sdk],
             "what clients speak: the UI message stream of the AI SDK, version 1, AG-UI 1.0, or the Responses API of OpenAI."},
            {:origins, {:list, :string}, [default: []],
             "the origins of the pages that may ask, such as `\"https://app.example.com\"`. A request that names another one is refused."},
            {:hosts, {:list, :string}, [default: []],
             "the values of the header `host` that are answered, besides the hosts of `:origins`: another name that leads here is a page of " <>
               "somebody else."},
            {:cookies, :boolean, [default: true],
             "whether the identity comes with cookies: then each request that changes something needs an origin. Without cookies, " <>
               "programs that are no browsers may leave it out."},
            {:ai, {:in, [5, 6, 7]}, [type_doc: "`5`, `6` or `7`", default: 6],
             "the major version of the page's `ai`."},
            {:model, :string, [default: "agent"],
             "the name under which clients of `:responses` ask for the agent."},
            {:when_running, {:in, [:refuse, :steer]},
             [type_doc: "`:refuse` or `:steer`", default: :refuse],
             "what a message does that comes while a turn runs: status 409, or it goes into that turn."},
            {:max_bytes, :pos_integer, [default: 4_000_000], "how long a body may be."},
            {:max_files, :non_neg_integer, [default: 10], "how many files a message may have."},
            {:max_turns, :pos_integer, [default: 100],
             "how many turns a page gets that asks for the messages, the last ones."},
            {:heartbeat, :pos_integer, [type_doc: "milliseconds", default: 15_000],
             "a stream without news gets a comment after that time, so that nobody between takes it for dead."},
            {:patience, :pos_integer, [type_doc: "milliseconds", default: 60_000],
             "how long a stream waits for a session whose node died. Longer than the `:lease` of sessions."}
          ])

  @moduledoc """
  Serves conversations to front ends that others have written, over HTTP.

      door = AshAgent.Door.new(sessions: MyApp.Sessions, identify: &MyApp.identify/1, origins: ["https://app.example.com"])
      {status, headers, body} = AshAgent.Door.call(door, %{method: "POST", path: [], headers: headers, body: json})

  A door is a function from a request to a response. `AshAgent.Door.Plug` has it in a router of Phoenix or Plug, and `AshAgent.Door.Server` on
  loopback. It speaks the UI message stream of Vercel's AI SDK, so a page with `useChat` works with the path of the door as its `api`, or
  AG-UI, for `HttpAgent` and CopilotKit, or the Responses API of OpenAI, see below.

  | request | does |
  |---|---|
  | `POST /` | says the last message of the body, or decides about calls, and streams what comes of it |
  | `GET /ID/stream` | streams the turn that runs, from its beginning; status 204 where none does |
  | `GET /ID/messages` | the conversation as JSON, as the client keeps its messages |
  | `POST /ID/stop` | cancels the turn |

  A turn belongs to the session, not to the connection. A page that is closed stops nothing, and whoever comes in the middle gets
  everything: another tab, another person, the same page after its network was gone. If the node of the session dies, the stream goes on
  with the next session of the conversation. Each stream ends with `finish`, `error` or `abort`, and then `[DONE]`; of AG-UI with `RUN_FINISHED` or
  `RUN_ERROR`. A client of AG-UI comes back by sending its last message again, which is said once: it gets the messages before it, and the whole turn.

  ## Responses

  With `protocol: :responses`, and the path `/v1/responses`, clients of OpenAI with another `base_url` talk to the agent. A response is a turn:

  | request | does |
  |---|---|
  | `POST /` | says `input`, and returns the response, streams it (`stream`), or returns at once (`background`) |
  | `GET /ID` | the response as it is by now; with `?stream=true` as a stream, and with `&starting_after=N` what comes behind the event of that number |
  | `POST /ID/cancel` | cancels the turn |

  `previous_response_id` names a turn exactly. Behind the last turn of a conversation, the message goes there; behind an earlier one, or when somebody else was
  quicker, into a fork that goes on from that turn. `conversation` is the id of a conversation, whatever was said there last, and without both a new one
  begins. `:identify` then gets `asks: nil`, with the conversation as `forks` for a fork, and returns the id of the new conversation, which clients ask for
  from then on.

  The agent's calls are not shown: a client would take an item `function_call` for one that it has to run. A turn that ended otherwise than with an answer has a
  status and a reason in `incomplete_details`:

  | turn | status | reason |
  |---|---|---|
  | waits for a person, which the last texts say | `incomplete` | `approval_required` |
  | waits for somebody who may go on with it | `incomplete` | `parked` |
  | was cancelled | `cancelled`, and `incomplete` when it is read later | `cancelled`, `interrupted` |
  | broke off | `incomplete` | `interrupted` |
  | failed | `failed`, with an `error` | |

  Served are `input` with texts, images and files of a user, `model` (`:model`), `stream`, `background`, `previous_response_id`, `conversation` and `store: true`. Any other
  field, such as `instructions` and `tools`, is refused by its name with status 400, unless it asks for what there is anyway. The header `idempotency-key` makes a
  request that is sent again one response, but a fork is made each time.

  The numbers of events belong to the process that gave them, which the end of the id in `response.created` names: with another one's numbers, the
  response comes as a whole.

  ## Coming back

  Each event has an id, which is the same for all clients: the life of the session, the turn, the number of the session's change, and the place in what
  became of that. `GET /ID/stream` with the header `last-event-id` streams what comes behind that event, for as long as the door's node has it: the last
  2,000 to 4,000 changes, or 4 to 8 MB, of the turn, until a minute after its end. Otherwise the turn comes as a whole, with the same ids of messages and blocks, also
  a turn that has ended, and without any id the turn that runs. An id is only asked about in the conversation that `:identify` allows.

  All clients of a turn on a node share one process that hears the session and writes each event once for each protocol. A client that
  reads slowly costs nobody anything. If it falls behind what is kept, it gets a comment, `: behind`, and then what the conversation has more than it was told.

  ## Who may

  `:identify` gets each request, as `call/2` has it, with the id of the conversation that the page `asks` for, and returns

    * `{:ok, %{conversation: id}}` - the id of the conversation in the store, which need not be the page's; with `runtime_context: map`, what
      the tools of this person's turns get, `metadata: map`, what is kept with the message and `:restore_context` of sessions finds it by when the
      session goes on elsewhere, and `by: term`, who decides about calls
    * `{:error, :unauthenticated}` - status 401
    * anything else - status 404, the same as for a conversation that does not exist

  Nothing of what a page says about the past is believed. Of a message that was said, its text and its files count, which are in the body
  (`data:`): nothing is fetched. Of a decision, the approval's id, the verdict and the reason count. The id stands for one call with the arguments that were
  shown, so other arguments, another call, and a second answer are refused. Changed or repeated older messages are refused in words.

  An error has a kind and an id, `{"error": {"kind": "busy", "id": "…"}}`, and the log has the same id. In a stream it is `kind (id)`.

  ## What is sent

  #{AshAgent.Door.Table.docs()}
  Ids of blocks are made of their place, so they are the same for every client. The first part of a call's ids is the iteration.

  ## Options

  #{AshAgent.Options.docs(@schema)}
  """

  require Logger

  alias AshAgent.{Context, Session, Sessions}
  alias AshAgent.Context.JSON
  alias AshAgent.Door.{AGUI, AISDK, Client, Mark, Reader, Responses, Stream}

  @protocols %{ai_sdk: AISDK, ag_ui: AGUI, responses: Responses}

  @derive {Inspect, only: [:sessions]}
  @enforce_keys [:sessions, :identify, :protocol, :opts, :hosts, :heartbeat, :patience, :report]
  defstruct @enforce_keys

  @typedoc "A door, see `new/1`."
  @opaque t :: %__MODULE__{}

  @typedoc """
  A request: `path` has the segments below the door, and the names of `headers` are in lower case. An adapter may add what `:identify` needs, such as
  the `assigns` of a `Plug.Conn`.
  """
  @type request :: %{
          required(:method) => String.t(),
          required(:path) => [String.t()],
          required(:headers) => [{String.t(), String.t()}],
          required(:body) => binary(),
          optional(:query) => String.t(),
          optional(atom()) => term()
        }

  @typedoc "A response. A body that is a stream has to be read by the process that has called `call/2`."
  @type response ::
          {status :: pos_integer(), [{String.t(), String.t()}],
           iodata() | {:stream, Enumerable.t()}}

  # The helper that asks a session waits so long for it.
  @patience 30_000

  @statuses %{
    unauthenticated: 401,
    origin: 403,
    host: 403,
    not_found: 404,
    method: 405,
    busy: 409,
    paused: 409,
    not_waiting: 409,
    too_large: 413,
    content_type: 415,
    unavailable: 503
  }

  @hidden [
    {"cache-control", "no-store"},
    {"x-content-type-options", "nosniff"},
    {"cross-origin-resource-policy", "same-site"}
  ]

  @doc """
  Returns a door. Raises `ArgumentError` for unknown, missing and wrong options, and without any origin or host.

  ## Examples

      iex> AshAgent.Door.new(sessions: MyApp.Sessions, identify: fn _request -> {:error, :unauthenticated} end)
      ** (ArgumentError) a door needs :origins or :hosts: the names under which it is reached
  """
  @doc since: "0.1.0"
  @spec new(keyword()) :: t()
  def new(opts) do
    opts = AshAgent.Options.validate!(opts, @schema)
    hosts = Enum.map(opts[:origins], &host/1) ++ opts[:hosts]

    if hosts == [],
      do:
        raise(
          ArgumentError,
          "a door needs :origins or :hosts: the names under which it is reached"
        )

    own = opts |> Keyword.take([:sessions, :identify, :heartbeat, :patience]) |> Map.new()
    protocol = @protocols[opts[:protocol]]

    fields = %{
      protocol: protocol,
      hosts: Enum.map(hosts, &String.downcase/1),
      report: &__MODULE__.report/1
    }

    struct!(__MODULE__, own |> Map.merge(fields) |> Map.put(:opts, opts))
  end

  defp host(origin) do
    case URI.parse(origin) do
      %{scheme: scheme, host: host, port: port}
      when scheme in ["http", "https"] and host != nil ->
        if port == URI.default_port(scheme), do: host, else: "#{host}:#{port}"

      _other ->
        raise ArgumentError, "an origin is like \"https://app.example.com\""
    end
  end

  @doc "How many bytes an adapter may read of a body."
  @doc since: "0.1.0"
  @spec max_bytes(t()) :: pos_integer()
  def max_bytes(%__MODULE__{opts: opts}), do: opts[:max_bytes]

  @doc """
  Answers a request.

  ## Examples

      iex> door = AshAgent.Door.new(sessions: MyApp.Sessions, identify: fn _request -> {:error, :unauthenticated} end, hosts: ["localhost"])
      iex> {status, _headers, _body} = AshAgent.Door.call(door, %{method: "GET", path: ["c1", "stream"], headers: [{"host", "localhost"}], body: ""})
      iex> status
      401
  """
  @doc since: "0.1.0"
  @spec call(t(), request()) :: response()
  def call(%__MODULE__{} = door, %{method: _, path: _, headers: _, body: _} = request) do
    with {:ok, action} <- route(door, request),
         :ok <- check_site(door, request),
         {:ok, asks, order, run} <- read(door, action, request),
         {:ok, identity} <- identify(door, Map.put(request, :asks, asks)),
         door = put_opts(door, run: run, since: since(request), request: request),
         {:ok, response} <- act(door, order, identity) do
      response
    else
      {:error, kind} -> refuse(door, kind)
    end
  end

  # What the protocol is told of a request.
  defp put_opts(door, opts), do: %{door | opts: opts ++ door.opts}

  defp route(_door, %{method: "POST", path: []}), do: {:ok, :post}
  defp route(_door, %{path: []}), do: {:error, :method}
  defp route(%{protocol: Responses}, %{method: "GET", path: [_id]}), do: {:ok, :response}

  defp route(%{protocol: Responses}, %{method: "POST", path: [_id, "cancel"]}),
    do: {:ok, :cancel}

  defp route(%{protocol: Responses}, _other), do: {:error, :not_found}
  defp route(_door, %{method: "POST", path: [_id, "stop"]}), do: {:ok, :stop}
  defp route(_door, %{method: "GET", path: [_id, "stream"]}), do: {:ok, :stream}
  defp route(_door, %{method: "GET", path: [_id, "messages"]}), do: {:ok, :messages}
  defp route(_door, _other), do: {:error, :not_found}

  # Whose connection was lost says what came last.
  defp since(%{method: "GET"} = request) do
    with %{"starting_after" => text} <- query(request),
         {seq, ""} when seq >= 0 <- Integer.parse(text) do
      {:seq, seq}
    else
      _other -> request |> header("last-event-id") |> Mark.parse()
    end
  end

  defp since(_other), do: nil

  defp query(request) do
    URI.decode_query(request[:query] || "")
  rescue
    ArgumentError -> %{}
  end

  ## The site that asks

  defp check_site(%{opts: opts, hosts: hosts}, %{method: method} = request) do
    origin = header(request, "origin")
    needed? = opts[:cookies] and method != "GET"

    cond do
      String.downcase(header(request, "host") || "") not in hosts -> {:error, :host}
      origin == nil and needed? -> {:error, :origin}
      origin != nil and origin not in opts[:origins] -> {:error, :origin}
      true -> :ok
    end
  end

  # A header that comes twice has a value that nobody expects.
  defp header(%{headers: headers}, name) do
    values = for {^name, value} <- headers, do: value
    if values != [], do: Enum.join(values, ", ")
  end

  ## What is asked

  defp read(door, :post, %{body: body} = request) do
    with true <- byte_size(body) <= max_bytes(door) || {:error, :too_large},
         true <- json?(request) || {:error, :content_type},
         {:ok, %{} = body} <- decode(body),
         {:ok, id, order, run} <- door.protocol.read(body, door.opts),
         true <- id?(id) or (id == nil and door.protocol == Responses) || {:error, :not_found} do
      {:ok, id, order, run}
    else
      {:error, kind} -> {:error, kind}
      _not_read -> {:error, :invalid_body}
    end
  end

  # Its clients send no body, and no type of one. With cookies, a page has to.
  defp read(%{protocol: Responses} = door, action, %{path: [id | _]} = request) do
    with true <-
           action == :response or not door.opts[:cookies] or json?(request) ||
             {:error, :content_type},
         {:ok, %{conversation: conversation} = run} <- Responses.parse_id(id),
         true <- id?(conversation) do
      {:ok, conversation, action,
       Map.merge(run, %{asked: id, stream: query(request)["stream"] == "true"})}
    else
      {:error, kind} -> {:error, kind}
      _unknown -> {:error, :not_found}
    end
  end

  # Without a body: what a form of another site can send is not JSON.
  defp read(_door, :stop, %{path: [id, _]} = request) do
    cond do
      not json?(request) -> {:error, :content_type}
      id?(id) -> {:ok, id, :stop, %{}}
      true -> {:error, :not_found}
    end
  end

  # A stream that nobody has sent a run for has one of its own.
  defp read(_door, action, %{path: [id, _]}) do
    if id?(id),
      do: {:ok, id, action, %{thread: id, run: random(), version: "1.0"}},
      else: {:error, :not_found}
  end

  defp decode(body) do
    with {:error, _where} <- JSON.decode(body), do: {:error, :invalid_body}
  end

  defp json?(request) do
    type = header(request, "content-type") || ""
    type |> String.split(";") |> hd() |> String.trim() |> String.downcase() == "application/json"
  end

  defp id?(id), do: is_binary(id) and byte_size(id) in 1..200 and String.valid?(id)

  defp identify(%{identify: identify}, request) do
    case identify.(request) do
      {:ok, %{conversation: id} = identity} when is_binary(id) -> {:ok, identity}
      {:error, :unauthenticated} -> {:error, :unauthenticated}
      _nobody -> {:error, :not_found}
    end
  end

  ## What is done

  defp act(door, :stop, %{conversation: id}) do
    case attempt(fn -> Sessions.cancel(door.sessions, id) end) do
      :ok -> {:ok, json(200, %{})}
      error -> failure(error)
    end
  end

  defp act(door, :messages, %{conversation: id}) do
    with {:ok, stream} <- Stream.open(door, id, Reader.new(:current)) do
      Stream.close(stream)
      messages = door.protocol.messages(stream.context, stream.status == :running, door.opts)
      {:ok, json(200, messages)}
    end
  end

  defp act(door, :stream, %{conversation: id}) do
    with {:ok, stream} <- Stream.open(door, id, Reader.new(:current)) do
      case rest(stream, door.opts[:since]) do
        {:ok, bytes} ->
          {:ok, stream(door, bytes)}

        :nothing when stream.status == :running ->
          {:ok, stream(door, Stream.bytes(stream))}

        :nothing ->
          Stream.close(stream)
          {:ok, {204, @hidden, ""}}
      end
    end
  end

  defp act(door, {:say, message, input}, identity),
    do: say_once(door, "ui:" <> message, input, identity)

  defp act(%{opts: opts} = door, {:respond, input}, %{conversation: id} = identity) do
    key = "resp:" <> response_key(opts[:request])
    run = Map.merge(opts[:run], %{conversation: id, key: key})
    respond(put_opts(door, run: run, when_running: :refuse), key, input, identity, run.after)
  end

  defp act(door, :response, %{conversation: id}) do
    run = door.opts[:run]

    with {:ok, stream} <- Stream.open(door, id, Reader.new({:key, run.key})) do
      found? = Reader.first(stream.reader, stream.context) != nil

      cond do
        not found? and stream.status != :running -> close(stream, {:error, :not_found})
        run.stream -> {:ok, stream(door, resumed(stream, door.opts[:since]))}
        true -> close(stream, {:ok, json(200, response(stream))})
      end
    end
  end

  defp act(door, :cancel, %{conversation: id} = identity) do
    run = door.opts[:run]

    with {:ok, stream} <- Stream.open(door, id, Reader.new({:key, run.key})) do
      open? = stream.status == :running or match?({:paused, _}, stream.status)

      if open? and
           Reader.first(stream.reader, stream.context) == Context.turn_start(stream.context) do
        Stream.close(stream)

        with {:ok, _stopped} <- act(door, :stop, identity) do
          {events, _reader} = Reader.read(stream.reader, stream.snapshot)

          {:ok,
           json(200, Responses.whole(events, :cancelled, [context: stream.context] ++ door.opts))}
        end
      else
        act(%{door | opts: [run: %{run | stream: false}] ++ door.opts}, :response, identity)
      end
    end
  end

  defp act(door, {:decide, answers}, %{conversation: id} = identity) do
    with {:ok, stream} <- Stream.open(door, id, Reader.new(:current)) do
      case decide(stream, answers, identity) do
        {:ok, bytes} ->
          {:ok, stream(door, bytes)}

        error ->
          Stream.close(stream)
          error
      end
    end
  end

  ## Responses

  # A request that is sent again with the same key is one response.
  defp response_key(request) do
    case header(request, "idempotency-key") do
      nil -> Base.encode16(:crypto.strong_rand_bytes(16), case: :lower)
      key -> Base.encode16(binary_part(:crypto.hash(:sha256, key), 0, 16), case: :lower)
    end
  end

  defp respond(door, key, input, identity, nil), do: say_once(door, key, input, identity)

  # It follows a response: in its conversation, or if something was said there since, in another one that goes on from it.
  defp respond(door, key, input, %{conversation: id} = identity, previous) do
    with {:ok, stream} <- Stream.open(door, id, Reader.new({:key, key})) do
      range = Context.find_turn(stream.context, :idempotency_key, previous)
      last? = match?({_first, last} when last == stream.context.current_iteration, range)
      again? = Reader.first(stream.reader, stream.context) != nil

      cond do
        range == nil ->
          close(stream, {:error, {:previous_response_not_found, "previous_response_id"}})

        again? ->
          say(stream, key, input, identity)

        last? and stream.status == :running ->
          close(stream, {:error, :busy})

        last? ->
          with {:error, :moved} <- say(stream, key, input, identity),
               do: fork(door, key, input, id, range)

        true ->
          close(stream, fork(door, key, input, id, range))
      end
    end
  end

  # Whose conversation it is, and what it is called, the application says.
  defp fork(%{opts: opts} = door, key, input, id, {_first, last}) do
    request = Map.merge(opts[:request], %{asks: nil, forks: id})

    with {:ok, %{conversation: fork} = identity} <- identify(door, request),
         true <- fork != id || {:error, :fork_not_served},
         {:ok, _context} <- attempt(fn -> Sessions.fork(door.sessions, id, fork, to: last) end) do
      run = Map.merge(opts[:run], %{conversation: fork, after: nil})
      say_once(put_opts(door, run: run), key, input, identity)
    else
      {:error, {:store_error, :exists}} ->
        {:error, :fork_not_served}

      {:error, kind} when kind in [:fork_not_served, :not_found, :unauthenticated] ->
        {:error, kind}

      error ->
        failure(error)
    end
  end

  # What comes behind a number of the feed that gave it. Any other's numbers are other events.
  defp resumed(%{door: %{opts: opts}} = stream, since) do
    with {:seq, _number} <- since,
         turn when turn != nil <- Reader.first(stream.reader, stream.context),
         {:ok, bytes} <- Client.since(stream, turn, since) do
      bytes
    else
      # It has all of it.
      :nothing -> close(stream, [])
      _whole when opts != [] -> Stream.bytes(stream)
    end
  end

  # What the conversation has of it by now.
  defp response(%{reader: reader, snapshot: snapshot, context: context, status: status} = stream) do
    opts = [context: context] ++ stream.door.opts
    {events, reader} = Reader.read(reader, snapshot)
    current? = Reader.found?(reader) and not Reader.over?(reader)

    state =
      cond do
        not Reader.found?(reader) -> :queued
        current? and status == :running -> :in_progress
        current? -> Reader.outcome(context, status)
        true -> Reader.outcome(Context.rewind(context, to: reader.last), :idle)
      end

    Responses.whole(events, state(state, reader, context), opts)
  end

  defp state({:failed, kind}, _reader, _context), do: {:failed, Stream.kind(kind), random()}
  defp state(:paused, reader, context), do: {:paused, Reader.waiting(reader, context)}
  defp state(state, _reader, _context), do: state

  defp close(stream, answer) do
    Stream.close(stream)
    answer
  end

  ## Coming back

  # What comes behind an event. Where nobody knows the event, that turn comes as a whole.
  defp rest(_stream, nil), do: :nothing

  defp rest(stream, {:seq, _number}), do: rest(stream, nil)

  defp rest(%{context: context, door: door} = stream, {{_life, turn, _number, _tag}, _} = since) do
    with :unknown <- Client.since(stream, turn, since),
         false <- stream.status == :running and Context.turn_start(context) == turn,
         {_first, _last} = range <- Reader.range(context, turn),
         {:ok, whole} <- Stream.open(door, stream.conversation, Reader.new(range)) do
      Stream.close(stream)
      {:ok, Stream.bytes(whole)}
    else
      {:ok, bytes} -> {:ok, bytes}
      _current_or_nothing -> :nothing
    end
  end

  ## Saying

  # A message that was said already is not said again: who asks gets what came of it.
  defp say_once(door, key, input, %{conversation: id} = identity) do
    case Stream.open(door, id, Reader.new({:key, key})) do
      {:ok, stream} -> say(stream, key, input, identity)
      {:error, :not_found} -> start(door, key, input, identity)
      error -> error
    end
  end

  defp say(%{door: door, context: context, status: status} = stream, key, input, identity) do
    said =
      if Context.find_turn(context, :idempotency_key, key),
        do: {:ok, %{stream | door: put_opts(door, again?: true)}},
        else: say(stream, key, input, identity, status)

    with {:ok, stream} <- said do
      {:ok, answer(stream)}
    else
      error ->
        Stream.close(stream)
        error
    end
  end

  defp say(%{door: door} = stream, key, input, %{conversation: id} = identity, :running) do
    steer = fn -> Sessions.steer(door.sessions, id, input, key: key) end

    case if(door.opts[:when_running] == :steer, do: attempt(steer), else: {:error, :busy}) do
      :ok -> {:ok, stream}
      # The turn has just ended.
      {:error, :idle} -> say(stream, key, input, identity, :idle)
      error -> failure(error)
    end
  end

  # A session that waits for decisions refuses it.
  defp say(%{door: door} = stream, key, input, identity, _idle_or_paused) do
    with {:ok, _ref} <- prompt(door, key, input, identity),
         do: {:ok, %{stream | status: :running}}
  end

  defp start(door, key, input, %{conversation: id} = identity) do
    with {:ok, _ref} <- prompt(door, key, input, identity),
         {:ok, stream} <- Stream.open(door, id, Reader.new({:key, key})) do
      {:ok, answer(stream)}
    end
  end

  # What a client of `:responses` does not want as a stream, it gets when it is whole, or at once.
  defp answer(%{door: %{opts: opts} = door} = stream) do
    case opts[:run] do
      %{stream: false, background: true} ->
        feed = Client.follow(stream)
        json(200, Responses.response(:queued, Responses.shape(), [tag: Mark.name(feed)] ++ opts))

      %{stream: false} ->
        json(
          200,
          stream |> Stream.bytes() |> Enum.to_list() |> IO.iodata_to_binary() |> Responses.ended()
        )

      _page ->
        stream(door, Stream.bytes(stream))
    end
  end

  defp prompt(door, key, input, %{conversation: id} = identity) do
    own = for {name, map} <- identity, name in [:runtime_context, :metadata], do: {name, map}
    opts = [key: key, after: door.opts[:run][:after]] ++ own

    # With its key, it is said once.
    Stream.again(fn ->
      with {:error, _reason} = error <-
             attempt(fn -> Sessions.prompt_async(door.sessions, id, input, opts) end),
           do: failure(error)
    end)
  end

  ## Deciding

  # A page sends again what it has sent, with what is new.
  defp decide(%{status: {:paused, _calls}, context: context} = stream, answers, identity) do
    {asked, decided} = {Reader.asked(context), Reader.decided(context)}
    new = Enum.reject(answers, fn {id, verdict, _reason} -> decided[id] == verdict end)
    ids = for {id, _verdict, _reason} <- new, do: id

    if new != [] and Enum.uniq(ids) == ids and Enum.all?(ids, &is_map_key(asked, &1)),
      do: decide(stream, new, asked, identity),
      else: {:error, :not_waiting}
  end

  defp decide(_running_or_idle, _answers, _identity), do: {:error, :not_waiting}

  defp decide(%{session: session} = stream, answers, asked, identity) do
    decided =
      attempt(fn ->
        Enum.find_value(answers, :ok, fn {approval, verdict, reason} ->
          with :ok <- decide_one(session, verdict, asked[approval], reason, identity[:by]),
               do: nil
        end)
      end)

    with :ok <- decided,
         {:paused, calls} <- attempt(fn -> Session.status(session) end),
         :ok <- if(calls == [], do: resume(session), else: :ok) do
      {:ok,
       if(calls == [], do: stream |> Stream.skip() |> Stream.bytes(), else: Stream.paused(stream))}
    else
      {:error, %Context.Error{}} -> {:error, :not_waiting}
      error -> failure(error)
    end
  end

  # The arguments are those of the approval's id.
  defp decide_one(session, :approve, %{id: id, arguments: arguments}, _reason, by),
    do: Session.approve(session, id, arguments: arguments, by: by)

  # Other arguments are a decision of their own about these.
  defp decide_one(session, {:edit, edited}, %{id: id, arguments: arguments}, _reason, by),
    do: Session.approve(session, id, arguments: arguments, edited: edited, by: by)

  defp decide_one(session, :deny, %{id: id, arguments: arguments}, reason, by),
    do: Session.deny(session, id, reason, arguments: arguments, by: by)

  defp resume(session) do
    case attempt(fn -> Session.resume_async(session) end) do
      {:ok, _ref} -> :ok
      error -> error
    end
  end

  # In a process of its own, which gets the session's messages, and whose end stops nothing.
  defp attempt(fun) do
    task =
      Task.async(fn ->
        try do
          fun.()
        catch
          _kind, _reason -> {:error, :unavailable}
        end
      end)

    case Task.yield(task, @patience) || Task.shutdown(task, :brutal_kill) do
      {:ok, answer} -> answer
      _slow -> {:error, :unavailable}
    end
  end

  defp failure({:error, kind}) when kind in [:busy, :moved, :paused, :not_waiting],
    do: {:error, kind}

  defp failure({:error, kind}) when kind in [:full, :too_large], do: {:error, :busy}
  defp failure({:error, %Sessions.Error{reason: :not_found}}), do: {:error, :not_found}
  defp failure({:error, %Context.Error{}}), do: {:error, :invalid_messages}
  defp failure(_error), do: {:error, :unavailable}

  ## Responses

  defp stream(door, bytes) do
    headers = [{"content-type", "text/event-stream"}, {"x-accel-buffering", "no"}]
    {200, headers ++ door.protocol.headers() ++ @hidden, {:stream, bytes}}
  end

  defp json(status, term),
    do: {status, [{"content-type", "application/json"} | @hidden], JSON.encode(term)}

  defp refuse(%{protocol: protocol}, kind) do
    {kind, field} = with kind when is_atom(kind) <- kind, do: {kind, nil}
    status = @statuses[kind] || if(protocol == Responses, do: 400, else: 422)
    id = if status >= 500, do: report(kind), else: random()
    error = %{kind: kind, id: id}

    json(status, %{
      error: if(protocol == Responses, do: Responses.error(error, field), else: error)
    })
  end

  @doc false
  # Who sees the id asks about it, and the log has nothing else that they could know. Routers keep a door in their code, which only functions
  # of a module can be in.
  def report(kind) do
    id = random()
    Logger.warning("a door answered with the error #{kind}, id #{id}")
    id
  end

  defp random, do: Base.encode16(:crypto.strong_rand_bytes(6), case: :lower)
end
