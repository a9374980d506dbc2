defmodule AshAgent.MCP.Server do
  @schema AshAgent.Options.schema([
            {:sessions, {:or, [:atom, nil]}, [type_doc: "`t:atom/0`"],
             "the name of an `AshAgent.Sessions`: the server has one tool, which says a message to the agent."},
            {:resource, {:or, [:atom, nil]}, [type_doc: "`t:module/0`"],
             "the same for the conversations of an Ash resource with `AshAgent.Conversation`, through its actions."},
            {:tools, {:or, [:atom, nil]}, [type_doc: "`t:atom/0`"],
             "the name of an `AshAgent.Sessions` of `tool_sessions/1`: the server has its tools."},
            {:identify, {:fun, 1}, [required: true], "who asks, see above."},
            {:secrets, {:or, [{:list, :any}, {:fun, 0}]},
             [
               required: true,
               type_doc: "a list of `{key id, secret}`, or a function that returns it"
             ],
             "secrets of 32 bytes or more, each with an id of letters, digits, `-` and `_`, the same on all nodes. The first one seals ids, and all are accepted: " <>
               "to rotate, put a new one in front, and take the old one out after `:ttl`."},
            {:name, :string, [default: "ask_agent"],
             "the name of the tool that says a message, and of the server."},
            {:description, :string,
             [default: "Says a message to the agent, and returns its answer."],
             "tells clients what the agent is for."},
            {:version, :string, [default: "1.0.0"], "the version that the server says it has."},
            {:origins, {:list, :string}, [default: []],
             "the origins of pages that may ask. A request that names another one is refused."},
            {:hosts, {:list, :string}, [default: []],
             "the values of the header `host` that are answered, besides the hosts of `:origins`. Without any, nothing is served over HTTP."},
            {:task_after, :non_neg_integer, [type_doc: "milliseconds", default: 10_000],
             "a turn that takes longer becomes a task, for clients that have tasks."},
            {:wait, :pos_integer, [type_doc: "milliseconds", default: 50_000],
             "how long others wait for a turn, before they are told to come back."},
            {:ttl, :pos_integer, [type_doc: "milliseconds", default: 86_400_000],
             "how long the id of a task is one."},
            {:poll, :pos_integer, [type_doc: "milliseconds", default: 1_000],
             "how often clients are asked to look for a task."},
            {:max_bytes, :pos_integer, [default: 1_000_000], "how long a message may be."}
          ])

  @moduledoc """
  Serves an agent, or a set of tools, to clients of the Model Context Protocol, over HTTP (`AshAgent.MCP.Plug`) and stdio (`stdio/1`).

      AshAgent.MCP.Server.new(
        sessions: MyApp.Sessions,
        identify: &MyApp.identify/1,
        secrets: &MyApp.mcp_secrets/0,
        hosts: ["app.example.com"]
      )

  The wire is that of [`ex_mcp`](https://hex.pm/packages/ex_mcp), which the application brings: `{:ex_mcp, "~> 1.0"}`, with Elixir 1.17 or
  later. It speaks MCP 2026-07-28, and 2025-11-25 and before.

  ## What is served

    * With `:sessions`, one tool with `message` and, to go on, `conversation`. Its result names the conversation. A call is a prompt with a key of its own.
    * With `:resource`, the same with the resource's actions: `:start` for the first message, where the identity has `start: attributes`, then
      `:say`, `:approve`, `:deny`, `:answer`, `:resume` and `:cancel`, with the identity's actor and tenant, so its policies hold.
    * With `:tools`, the tools of sessions that `tool_sessions/1` has made. A call runs as one of an agent does: with the session's permission rules, approval,
      hooks, checks of arguments, time limits and journal.

  A short turn is answered at once, with progress if the client wants it. One that takes longer than `:task_after`, or waits for a person, becomes a
  task, if the client has the extension `io.modelcontextprotocol/tasks`. It is stored before the client has its id, and any node says what became of it,
  also after the one that ran it has died. Other clients wait for `:wait` milliseconds. Then they are told to call again with the conversation.

  A call that needs approval, and a question of `AshAgent.Runtime.AskUser`, are shown to the client's person (`elicitation`): inside a task, or as
  `input_required`. A decision is about the call and the arguments that were shown. The state of `input_required` is taken once, on whatever node.

  ## Who may

  `:identify` gets each request as a door's does, see `AshAgent.Door`, with the conversation that the client `asks` for, or `nil`. Over stdio, the
  request's `:method` is `"stdio"`, and there are no headers. It returns

    * `{:ok, %{principal: text}}` - who asks: what they get, nobody else can use. Two people, or one in two tenants, are never the same text and `:tenant`.
      With `:runtime_context` and `:metadata` as for doors, `:actor`, `:tenant`, `:context` and `:start` for a resource, and `by: term` if this client's person may decide
      about calls. Without `:by`, somebody else has to; with `:resource`, the actor's policies say so
    * the same with `:conversation`, the id in the store, if the application has names of its own for conversations. Otherwise a client goes on only
      with names that it got here, which are sealed for its principal
    * `{:error, :unauthenticated}` - status 401
    * anything else - status 403

  It is asked at each request. An id of somebody else, an unknown one and one that is older than `:ttl` have the same answer.

  ## Options

  #{AshAgent.Options.docs(@schema)}
  """

  alias AshAgent.{Caller, Door, Options, Sessions}
  alias AshAgent.Context.JSON
  alias AshAgent.Door.Source
  alias AshAgent.MCP.Server.{Calls, Handler, Seal, Stdio, Turn, Used}
  alias AshAgent.Runtime.Tool
  alias AshAgent.Sessions.Node

  @compile {:no_warn_undefined, [Ash.ToTenant, AshAgent.Conversation.Info, ExMCP.HttpPlug]}

  @derive {Inspect, only: [:mode, :name]}
  @enforce_keys [:door, :mode, :name, :description, :version, :secrets] ++
                  [:task_after, :wait, :ttl, :poll, :max_bytes]
  defstruct @enforce_keys

  @typedoc "A server, see `new/1`."
  @opaque t :: %__MODULE__{}

  # How long somebody may take to answer an `input_required`, in seconds. It is the most that `ex_mcp` allows.
  @answer 900

  @doc """
  Returns a server. Raises `ArgumentError` for unknown, missing and wrong options, and where `ex_mcp` or Elixir 1.17 is missing.

  ## Examples

      iex> AshAgent.MCP.Server.new(sessions: MyApp.Sessions)
      ** (ArgumentError) required option :identify not given: expected a function of arity 1
  """
  @doc since: "0.1.0"
  @spec new(keyword()) :: t()
  def new(opts) when is_list(opts) do
    opts = Options.validate!(opts, @schema)
    with {:error, words} <- available(), do: Caller.refuse!(words)
    {mode, where} = where!(Keyword.take(opts, [:sessions, :resource, :tools]))
    if is_list(opts[:secrets]), do: check_secrets!(opts[:secrets])

    # Over stdio there are no hosts, and no header is this one.
    hosts = if opts[:origins] == [], do: ["-" | opts[:hosts]], else: opts[:hosts]
    site = Keyword.take(opts, [:identify, :origins, :max_bytes])
    door = Door.new([where, hosts: hosts, cookies: false] ++ site)
    own = Keyword.take(opts, [:name, :description, :version, :secrets, :task_after, :wait, :ttl])
    own = own ++ Keyword.take(opts, [:poll, :max_bytes])
    struct!(__MODULE__, [door: door, mode: mode] ++ own)
  end

  defp where!(given) do
    case Enum.reject(given, &match?({_name, nil}, &1)) do
      [{:tools, name}] -> {:tools, {:sessions, name}}
      [{_sessions_or_resource, _name} = where] -> {:agent, where}
      _other -> Caller.refuse!("expected one of :sessions, :resource and :tools")
    end
  end

  defp check_secrets!(secrets) do
    unless is_list(secrets) and secrets != [] and Enum.all?(secrets, &secret?/1) do
      Caller.refuse!(
        "expected :secrets to be a list of {key id, secret}: ids of 1 to 32 letters, digits, - and _, and secrets of at least 32 bytes"
      )
    end

    secrets
  end

  defp secret?({id, secret}) when is_binary(id) and is_binary(secret),
    do: byte_size(secret) >= 32 and id =~ ~r/\A[A-Za-z0-9_-]{1,32}\z/

  defp secret?(_other), do: false

  @doc false
  def available do
    cond do
      Version.compare(System.version(), "1.17.0") == :lt ->
        {:error, "an MCP server needs Elixir 1.17: this is #{System.version()}"}

      not Code.ensure_loaded?(ExMCP.HttpPlug) ->
        {:error,
         "an MCP server needs ex_mcp: add {:ex_mcp, \"~> 1.0\"} to the deps in mix.exs, and run mix deps.get"}

      true ->
        :ok
    end
  end

  @doc """
  Returns the specification of an `AshAgent.Sessions` whose tools a server has, for a supervisor. Takes the options of `AshAgent.Sessions.start_link/1` without `:llm`.

  ## Examples

      iex> AshAgent.MCP.Server.tool_sessions(name: MyApp.Offered, store: MyApp.Conversations, tools: %{"add" => fn %{"a" => a} -> {:ok, a + 1} end}).id
      MyApp.Offered
  """
  @doc since: "0.1.0"
  @spec tool_sessions(keyword()) :: Supervisor.child_spec()
  def tool_sessions(opts) when is_list(opts), do: Sessions.child_spec([llm: Calls] ++ opts)

  @doc """
  Serves over standard input and output until the input ends, and returns `:ok`.

  The module has a function `mcp_server/0` that returns a server. Its application is started, and what that logs or prints goes to standard
  error. For a release: `bin/my_app eval "AshAgent.MCP.Server.stdio(MyApp.MCP)"`. With Mix there is `mix ash_agent.mcp`.
  """
  @doc since: "0.1.0"
  @spec stdio(module()) :: :ok
  def stdio(module) when is_atom(module) do
    device = Stdio.take_over()
    app = Application.get_application(module)
    if app, do: {:ok, _apps} = Application.ensure_all_started(app)
    Stdio.serve(module.mcp_server(), device)
  end

  ## For the plug and stdio

  @doc false
  def secrets(%{secrets: secrets}) when is_function(secrets), do: check_secrets!(secrets.())
  def secrets(%{secrets: secrets}), do: secrets

  @doc false
  # Where the conversations are stored.
  def store(%{door: %{source: Source.Sessions, place: sessions}}, _identity),
    do: Node.config!(sessions).store

  def store(%{door: %{place: resource}}, identity),
    do: AshAgent.Conversation.Info.store(resource, identity[:tenant])

  @doc false
  # What it calls that of an identity.
  def store_id(%{door: %{source: Source.Sessions}}, %{conversation: id}), do: id

  def store_id(%{door: %{place: resource}}, %{conversation: id}),
    do: AshAgent.Conversation.Info.key(resource, id)

  @doc false
  # What a tenant is called in ids.
  def tenant(%{door: %{source: Source.Ash, place: resource}}, %{tenant: tenant})
      when tenant != nil,
      do: resource |> then(&Ash.ToTenant.to_tenant(tenant, &1)) |> to_string()

  def tenant(_server, %{tenant: tenant}) when tenant != nil, do: to_string(tenant)
  def tenant(_server, _identity), do: nil

  @doc false
  def tools(%{mode: :tools, door: %{place: sessions}}) do
    tools = Node.config!(sessions).session[:tools] || []
    Tool.new(if(is_function(tools, 0), do: tools.(), else: tools))
  end

  @doc false
  # Returns `{:ok, identity}` of a request over HTTP, or `{:error, kind}`, where a kind may be `{:header, id}`.
  def admit(
        %__MODULE__{door: door, max_bytes: max} = server,
        %{method: method, body: body} = request
      ) do
    with :ok <- Door.check_site(door, request),
         true <- byte_size(body) <= max || {:error, :too_large},
         true <- method != "POST" or Door.json?(request) || {:error, :content_type},
         message = decode(body),
         true <- named?(request, message) || {:error, {:header, message["id"]}},
         do: identify(server, request, asks(server, message))
  end

  # What is no JSON is refused with the words of MCP.
  defp decode(body) do
    case JSON.decode(body) do
      {:ok, message} -> message
      {:error, _where} -> nil
    end
  end

  # ex_mcp looks at the names of tools.
  defp named?(%{headers: headers}, %{"method" => "tasks/" <> _, "params" => %{"taskId" => id}}),
    do: for({"mcp-name", name} when name != id <- headers, do: name) == []

  defp named?(_request, _message), do: true

  @doc false
  def identify(%{door: %{identify: identify}} = server, request, asks) do
    case identify.(Map.put(request, :asks, asks)) do
      {:ok, %{principal: principal} = identity} when is_binary(principal) and principal != "" ->
        own? = is_binary(identity[:conversation] || "") and is_map(identity[:start] || %{})
        _tenant = tenant(server, identity)
        if own?, do: {:ok, identity}, else: {:error, :refused}

      {:error, :unauthenticated} ->
        {:error, :unauthenticated}

      _nobody ->
        {:error, :refused}
    end
  catch
    _kind, _reason -> {:error, :unavailable}
  end

  @doc false
  # The conversation that a message is about, in the application's words.
  def asks(%{mode: mode} = server, %{"method" => method, "params" => %{} = params}) do
    case {method, params} do
      {"tools/call", %{"arguments" => %{"conversation" => asks}}} when mode == :agent ->
        if is_binary(asks) and byte_size(asks) in 1..2_000 and String.valid?(asks), do: asks

      {"tasks/" <> _, %{"taskId" => id}} ->
        Turn.asks(server, id)

      _other ->
        nil
    end
  end

  def asks(_server, _message), do: nil

  @doc false
  # What ExMCP.HttpPlug and ExMCP.MessageProcessor are told.
  def options(server, identity, request) do
    {:ok, list_options(server, identity, request)}
  catch
    # The sessions are not running, or a function of the application failed.
    _kind, _reason -> {:error, :unavailable}
  end

  defp list_options(%{door: door} = server, identity, request) do
    [
      handler: Handler,
      handler_opts: fn -> {server, identity, request} end,
      # Calls have bounds of their own, and one that is cut here is logged with what it says.
      handler_call_timeout: :infinity,
      server_info: %{name: server.name, version: server.version},
      server_capabilities: %{"tools" => %{}},
      request_state:
        [ttl_seconds: @answer, max_ttl_seconds: @answer] ++ Seal.ring(secrets(server)),
      # A state is one of this server.
      path: "mcp:" <> Enum.join([server.mode, inspect(door.place), server.name], ":"),
      replay_cache: {Used, [store: store(server, identity)]},
      require_replay_protection: true,
      principal_id: identity.principal,
      tenant_id: tenant(server, identity),
      body_limit: server.max_bytes,
      # What is checked before.
      allowed_hosts: :any,
      validate_origin: false
    ]
  end
end
