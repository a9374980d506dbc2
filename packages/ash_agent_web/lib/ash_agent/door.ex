defmodule AshAgent.Door do
  @schema AshAgent.Options.schema([
            {:sessions, {:or, [:atom, nil]}, [type_doc: "`t:atom/0`"],
             "the name of an `AshAgent.Sessions`, on this node. The conversations' sessions may be on others."},
            {:resource, {:or, [:atom, nil]}, [type_doc: "`t:module/0`"],
             "instead of them, the Ash resource with `AshAgent.Conversation`, see below."},
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
            {:rewind, :boolean, [default: false],
             "whether `regenerate()` of `useChat` and a message that was edited take back the turn of that message and what came after it, for good. " <>
               "Otherwise they are refused."},
            {:page_tools, {:list, :string}, [default: []],
             "the names of tools that a page of AG-UI runs itself. They are tools of the sessions, made with `AshAgent.Runtime.AskUser.tool/1`."},
            {:state, {:or, [{:fun, 1}, nil]}, [type_doc: "a function of the context"],
             "makes what pages show beside the conversation, such as a plan: a map that is sent when it has changed. Nothing of a page's own state is read."},
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
  | `GET /capabilities` | of AG-UI: what of the protocol is served, as its `AgentCapabilities` |

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
  a turn that has ended, and without any id the turn that runs. `GET /ID/messages` has that header in its response: sent back, it is what the messages do not have,
  also when that turn has ended meanwhile. An id is only asked about in the conversation that `:identify` allows.

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
  shown, so other arguments, another call, and a second answer are refused. A call that was started before its node died, and may have been carried out, is
  asked about anew under another id, which no answer to the first one answers. Changed or repeated older messages are refused in words, unless `:rewind` allows
  them.

  An error has a kind and an id, `{"error": {"kind": "busy", "id": "…"}}`, and the log has the same id. In a stream it is `kind (id)`.

  ## Conversations in Ash

  With `resource: MyApp.Chat.Conversation` instead of `:sessions`, everything that a page asks for is one of the resource's actions: the record is read
  with the identity's `:actor` and `:tenant`, and then `:say`, `:approve`, `:deny`, `:answer`, `:resume`, `:cancel` or `:rewind` is called. So its policies decide who sees and
  does what, and the tools of a turn run as who asked for it, whoever approves. What a policy refuses is answered as if it did not exist.

      def identify(%{assigns: %{current_user: user}, asks: id}), do: {:ok, %{conversation: id, actor: user, tenant: user.org_id}}

  `conversation` is the record's id. An identity without it and with `start: attributes` lets the first message create the record with the action
  `:start`. `context: map` is the context of the actions, such as `%{shared: %{locale: "de"}}`, and `metadata: map` goes to `:say`. An action of your own without
  an argument that something needs, such as `edited`, makes that an error with the kind `not_served`. For clients of `:responses`, `start` is how new conversations
  begin, and with `forks` in the request, what the action `:fork` gets besides `source_id` and `iteration`.

  Clients of a turn share what is written of it, but each of them is asked about its own right to read: when it comes, and when the turn goes on in another
  session.

  ## What is sent

  #{AshAgent.Door.Table.docs()}
  Ids of blocks are made of their place, so they are the same for every client. The first part of a call's ids is the iteration.

  ## Options

  #{AshAgent.Options.docs(@schema)}
  """

  require Logger

  alias AshAgent.Context
  alias AshAgent.Context.JSON
  alias AshAgent.Door.{AGUI, AISDK, Client, Input, Mark, Reader, Responses, Source, Stream}

  @protocols %{ai_sdk: AISDK, ag_ui: AGUI, responses: Responses}

  @derive {Inspect, only: [:place]}
  @enforce_keys [
    :source,
    :place,
    :identify,
    :protocol,
    :opts,
    :hosts,
    :heartbeat,
    :patience,
    :report
  ]
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
    no_actor: 409,
    not_all_answered: 409,
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

    own = opts |> Keyword.take([:identify, :heartbeat, :patience]) |> Map.new()
    {source, place} = source(opts[:sessions], opts[:resource])

    fields = %{
      source: source,
      place: place,
      protocol: @protocols[opts[:protocol]],
      hosts: Enum.map(hosts, &String.downcase/1),
      report: &__MODULE__.report/1
    }

    struct!(__MODULE__, own |> Map.merge(fields) |> Map.put(:opts, opts))
  end

  defp source(name, nil) when name != nil, do: {Source.Sessions, name}
  defp source(nil, resource) when resource != nil, do: {Source.Ash, resource}

  defp source(_sessions, _resource),
    do: raise(ArgumentError, "a door needs either :sessions or :resource")

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
         {:ok, response} <- answer(door, action, request) do
      response
    else
      {:error, kind} -> refuse(door, kind)
    end
  end

  # They are the same for everybody.
  defp answer(door, :capabilities, _request),
    do: {:ok, json(200, door.protocol.capabilities(door.opts))}

  defp answer(door, action, request) do
    with {:ok, asks, order, run} <- read(door, action, request),
         {:ok, identity} <- identify(door, Map.put(request, :asks, asks)) do
      door
      |> put_opts(run: run, since: since(door, request), request: request)
      |> act(order, identity)
    end
  end

  # What the protocol is told of a request.
  defp put_opts(door, opts), do: %{door | opts: opts ++ door.opts}

  defp route(%{protocol: AGUI}, %{method: "GET", path: ["capabilities"]}),
    do: {:ok, :capabilities}

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
  defp since(%{protocol: protocol}, %{method: "GET"} = request) do
    with Responses <- protocol,
         %{"starting_after" => text} <- query(request),
         {seq, ""} when seq >= 0 <- Integer.parse(text) do
      {:seq, seq}
    else
      _other -> request |> header("last-event-id") |> Mark.parse()
    end
  end

  defp since(_door, _other), do: nil

  defp query(request) do
    URI.decode_query(request[:query] || "")
  rescue
    ArgumentError -> %{}
  end

  ## The site that asks

  @doc false
  def check_site(%{opts: opts, hosts: hosts}, %{method: method} = request) do
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

  @doc false
  def json?(request) do
    type = header(request, "content-type") || ""
    type |> String.split(";") |> hd() |> String.trim() |> String.downcase() == "application/json"
  end

  defp id?(id), do: is_binary(id) and byte_size(id) in 1..200 and String.valid?(id)

  defp identify(%{identify: identify, source: source}, request) do
    case identify.(request) do
      {:ok, %{conversation: id} = identity} when is_binary(id) ->
        {:ok, identity}

      {:ok, %{start: %{}} = identity}
      when source == Source.Ash and not is_map_key(identity, :conversation) ->
        {:ok, identity}

      {:error, :unauthenticated} ->
        {:error, :unauthenticated}

      _nobody ->
        {:error, :not_found}
    end
  end

  ## What is done

  defp act(door, :stop, identity) do
    with :ok <- ask(door, :stop, [identity]), do: {:ok, json(200, %{})}
  end

  defp act(door, :messages, identity) do
    with {:ok, stream} <- Stream.open(door, identity, Reader.new(:current)) do
      Stream.close(stream)
      running? = Stream.runs?(stream)

      {status, headers, body} =
        json(200, door.protocol.messages(stream.context, running?, door.opts))

      {:ok, {status, [{"last-event-id", told(stream, running?)} | headers], body}}
    end
  end

  defp act(door, :stream, identity) do
    with {:ok, stream} <- Stream.open(door, identity, Reader.new(:current)) do
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

  defp act(%{opts: opts} = door, {:respond, input}, identity) do
    key = "resp:" <> response_key(opts[:request])
    run = Map.merge(opts[:run], %{conversation: identity[:conversation], key: key})
    respond(put_opts(door, run: run, when_running: :refuse), key, input, identity, run.after)
  end

  defp act(door, :response, identity) do
    run = door.opts[:run]

    with {:ok, stream} <- Stream.open(door, identity, Reader.new({:key, run.key})) do
      found? = Reader.first(stream.reader, stream.context) != nil

      cond do
        not found? and stream.status != :running and not Stream.waits?(stream) ->
          close(stream, {:error, :not_found})

        run.stream ->
          {:ok, stream(door, resumed(stream, door.opts[:since]))}

        true ->
          close(stream, {:ok, json(200, response(stream))})
      end
    end
  end

  defp act(door, :cancel, identity) do
    run = door.opts[:run]

    with {:ok, stream} <- Stream.open(door, identity, Reader.new({:key, run.key})),
         :ok <- Stream.close(stream) do
      open? = Stream.runs?(stream) or match?({:paused, _}, stream.status)

      if open? and
           Reader.first(stream.reader, stream.context) == Context.turn_start(stream.context) do
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

  # A message is said again, as it was or another one, in place of its turn and of all that came after.
  defp act(door, {:rewind, id, input}, identity) do
    with {:ok, stream} <- Stream.open(door, identity, Reader.new(:current)),
         :ok <- Stream.close(stream),
         {number, message, key} <-
           Reader.find_said(stream.context, id) || {:error, :unknown_message},
         input = if(input == :same, do: parts(message.content), else: input),
         :ok <- rewind(door, stream.status, identity, number - 1) do
      start(door, key, input, identity)
    end
  end

  # What tools of the page returned, and decisions.
  defp act(door, {kind, answers}, identity) do
    with {:ok, stream} <- Stream.open(door, identity, Reader.new(:current)) do
      case decide(Stream.skip(stream), kind, answers) do
        {:ok, bytes} ->
          {:ok, stream(door, bytes)}

        error ->
          Stream.close(stream)
          error
      end
    end
  end

  defp rewind(_door, :running, _identity, _number), do: {:error, :busy}
  defp rewind(_door, {:paused, _calls}, _identity, _number), do: {:error, :paused}
  defp rewind(door, _idle, identity, number), do: ask(door, :rewind, [identity, number])

  defp parts(text) when is_binary(text), do: [%{type: :text, text: text}]
  defp parts(parts), do: parts

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
  defp respond(door, key, input, identity, previous) do
    with {:ok, stream} <- Stream.open(door, identity, Reader.new({:key, key})) do
      range = Context.find_turn(stream.context, :idempotency_key, previous)
      last? = match?({_first, last} when last == stream.context.current_iteration, range)
      again? = Reader.first(stream.reader, stream.context) != nil

      cond do
        range == nil ->
          close(stream, {:error, {:previous_response_not_found, "previous_response_id"}})

        again? ->
          say(stream, key, input)

        last? and stream.status == :running ->
          close(stream, {:error, :busy})

        last? ->
          with {:error, :moved} <- say(stream, key, input),
               do: fork(door, key, input, identity, range)

        true ->
          close(stream, fork(door, key, input, identity, range))
      end
    end
  end

  # Whose conversation it is, and what it is called, the application says.
  defp fork(%{opts: opts} = door, key, input, %{conversation: id} = identity, {_first, last}) do
    request = Map.merge(opts[:request], %{asks: nil, forks: id})

    with {:ok, fork} <- identify(door, request),
         true <- fork[:conversation] != id || {:error, :fork_not_served},
         {:ok, fork} <- ask(door, :fork, [identity, fork, last]) do
      run = Map.merge(opts[:run], %{conversation: fork.conversation, after: nil})
      say_once(put_opts(door, run: run), key, input, fork)
    end
  end

  # What comes behind a number of the feed that gave it. Any other's numbers are other events.
  defp resumed(stream, since) do
    with {:seq, _number} <- since,
         turn when turn != nil <- Reader.first(stream.reader, stream.context),
         {:ok, bytes} <- Client.since(stream, turn, since) do
      bytes
    else
      # It has all of it.
      :nothing -> close(stream, [])
      _whole -> Stream.bytes(stream)
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
        current? and Stream.runs?(stream) -> :in_progress
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

  # The messages have nothing of the turn that runs, or of the next one.
  defp told(%{context: context, life: life}, running?) do
    turn = if running?, do: Context.turn_start(context), else: context.current_iteration + 1
    Mark.id({life, turn || 0, 0, nil}, 0)
  end

  ## Coming back

  # What comes behind an event. Where nobody knows the event, that turn comes as a whole.
  defp rest(_stream, nil), do: :nothing

  defp rest(%{context: context, door: door} = stream, {{_life, turn, _number, _tag}, _} = since) do
    with :unknown <- Client.since(stream, turn, since),
         false <- Stream.runs?(stream) and Context.turn_start(context) == turn,
         {_first, _last} = range <- Reader.range(context, turn),
         {:ok, whole} <- Stream.open(door, stream.identity, Reader.new(range)) do
      Stream.close(stream)
      {:ok, Stream.bytes(whole)}
    else
      {:ok, bytes} -> {:ok, bytes}
      _current_or_nothing -> :nothing
    end
  end

  ## Saying

  # A message that was said already is not said again: who asks gets what came of it.
  defp say_once(door, key, input, identity) do
    case Stream.open(door, identity, Reader.new({:key, key})) do
      {:ok, stream} -> say(stream, key, input)
      {:error, :not_found} -> start(door, key, input, identity)
      error -> error
    end
  end

  defp say(%{door: door, context: context, status: status} = stream, key, input) do
    said =
      if known = known(context, key, door.opts[:rewind]),
        do:
          {:ok, %{stream | door: put_opts(door, again?: true), reader: Reader.new({:key, known})}},
        else: say(stream, key, input, status)

    with {:ok, stream} <- said do
      {:ok, answer(stream)}
    else
      error ->
        Stream.close(stream)
        error
    end
  end

  # The key that a message was said with, which is another one after it was said again.
  defp known(context, key, rewind?) do
    with nil <- Context.find_turn(context, :idempotency_key, key),
         true <- rewind?,
         "ui:" <> id <- key,
         {_number, message, _next} <- Reader.find_said(context, id) do
      message.metadata.idempotency_key
    else
      {_first, _last} -> key
      _unknown -> nil
    end
  end

  defp say(%{door: door, identity: identity} = stream, key, input, :running) do
    steer = fn -> ask(door, :steer, [identity, input, key]) end

    case if(door.opts[:when_running] == :steer, do: steer.(), else: {:error, :busy}) do
      :ok -> {:ok, stream}
      # The turn has just ended.
      {:error, :idle} -> say(stream, key, input, :idle)
      error -> error
    end
  end

  # A session that waits for decisions refuses it.
  defp say(%{door: door, identity: identity} = stream, key, input, _idle_or_paused) do
    with {:ok, _identity} <- prompt(door, key, input, identity),
         do: {:ok, %{stream | status: :running}}
  end

  # Its id may be known only now.
  defp start(door, key, input, identity) do
    with {:ok, %{conversation: id} = identity} <- prompt(door, key, input, identity),
         door = put_opts(door, run: Map.put(door.opts[:run], :conversation, id)),
         {:ok, stream} <- Stream.open(door, identity, Reader.new({:key, key})) do
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

  # With its key, it is said once.
  defp prompt(door, key, input, identity),
    do: Stream.again(fn -> ask(door, :say, [identity, input, key, door.opts[:run][:after]]) end)

  ## Deciding

  # For calls as the page had them, which is all that an id of theirs stands for.
  defp decide(%{reader: reader, context: context} = stream, :results, results) do
    questions = Reader.questions(reader, context)

    answers =
      for {block, name, arguments, content} <- results,
          name in stream.door.opts[:page_tools],
          {approval, call} <- [questions[block]],
          to_string(call.name) == name and call.arguments == arguments,
          do: Input.answered(approval, content)

    with {:ok, answers} <- Input.each(answers, & &1), do: decide(stream, :decide, answers)
  end

  # A page sends again what it has sent, with what is new.
  defp decide(%{status: {:paused, _calls}, context: context} = stream, :decide, answers) do
    {asked, decided} = {Reader.asked(context), Reader.decided(context)}
    new = Enum.reject(answers, fn {id, verdict, _reason} -> decided[id] == verdict end)
    ids = for {id, _verdict, _reason} <- new, do: id
    waiting = Reader.waiting(stream.reader, context)

    cond do
      # All of it was decided before, and the turn was not gone on with.
      new == [] and answers != [] and stream.status == {:paused, []} ->
        decide_all(stream, [], asked)

      new == [] or Enum.uniq(ids) != ids or not Enum.all?(ids, &is_map_key(asked, &1)) ->
        {:error, :not_waiting}

      not stream.door.protocol.answers_all?(waiting, new, stream.door.opts) ->
        {:error, :not_all_answered}

      true ->
        decide_all(stream, new, asked)
    end
  end

  defp decide(_running_or_idle, _kind, _answers), do: {:error, :not_waiting}

  defp decide_all(%{door: door, identity: identity} = stream, answers, asked) do
    decided =
      Enum.find_value(answers, :ok, fn {approval, verdict, reason} ->
        answer =
          ask(door, :decide, [identity, asked[approval], fit(verdict, asked[approval]), reason])

        if answer != :ok, do: answer
      end)

    # The turn goes on when all of its calls are decided. What the decisions made of them is told.
    with :ok <- decided,
         {:ok, stream} <- Stream.reopen(stream) do
      going_on = if stream.status == {:paused, []}, do: ask(door, :resume, [identity])

      case going_on do
        nil -> {:ok, Stream.bytes(stream)}
        :ok -> {:ok, Stream.bytes(%{stream | status: :running})}
        error -> close(stream, error)
      end
    end
  end

  # An object is an answer to a form. For any other question it is a text.
  defp fit({:answer, %{} = answer}, %{arguments: arguments})
       when not is_map_key(arguments, "form"),
       do: {:answer, JSON.encode(answer)}

  defp fit(verdict, _call), do: verdict

  @doc false
  # Of the source of conversations.
  def ask(%{source: source, place: place}, function, arguments),
    do: attempt(fn -> apply(source, function, [place | arguments]) end)

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

  ## Answers

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
