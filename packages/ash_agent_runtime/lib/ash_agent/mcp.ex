defmodule AshAgent.MCP do
  @schema AshAgent.Options.schema([
            {:servers, {:custom, &__MODULE__.servers?/1},
             [type_doc: "a list of servers, or an `AshAgent.ChatContext.Config`", required: true],
             "the servers, as `:mcp_servers` of a chat's configuration has them, or the configuration."},
            {:name, :any, [type_doc: "a name"],
             "the name of the supervisor. Defaults to no name."},
            {:timeout, :pos_integer, [default: 30_000],
             "the milliseconds in which a server has to start and list its tools."},
            {:max_result_bytes, :pos_integer, [default: 10_000_000],
             "how much a server may return of a call, in memory; more is an error."},
            {:auth, {:or, [{:fun, 1}, nil]}, [type_doc: "a function"],
             "tells with which token a server at an address is asked, see below. Defaults to none."},
            {:max_clients, :pos_integer, [default: 100],
             "how many clients servers with `:per_actor` may have together."},
            {:idle, :pos_integer, [default: 300_000],
             "the milliseconds after which one of these clients that has nothing to do is closed."},
            {:tasks, {:custom, &__MODULE__.store?/1}, [type_doc: "a name or a store"],
             "the `AshAgent.Sessions` or the store whose calls servers may answer with tasks, see below. Defaults to none."},
            {:questions, {:or, [{:in, [nil, :ask]}, {:fun, 1}]},
             [type_doc: "`:ask` or a function"],
             "who answers what servers ask in the middle of a call, see below. Defaults to nobody."},
            {:client, :atom, [default: AshAgent.MCP.ExMCPClient],
             "the client, a module of the behaviour `AshAgent.MCP.Client`. The default uses `ex_mcp`."}
          ])

  @tools_schema AshAgent.Options.schema([
                  {:only, {:or, [{:list, :string}, nil]}, [type_doc: "a list of names"],
                   "the servers whose tools are wanted. Defaults to all."},
                  {:actor, :any, [type_doc: "an actor"],
                   "for whom the servers with `:per_actor` are asked."},
                  {:tenant, :any, [type_doc: "a tenant"], "the tenant for which they are asked."},
                  {:missing, {:in, [:raise, :skip]}, [default: :raise],
                   "whether to raise `AshAgent.MCP.Error` if a server is not available, or to do without its tools."}
                ])

  @moduledoc """
  The tools of MCP servers, for use in runs.

      children = [
        {AshAgent.MCP,
         name: MyApp.MCP,
         servers: [
           %{name: "files", command: "mcp-server-filesystem", args: ["/srv/documents"]},
           %{name: "tickets", url: "https://tickets.example.com/mcp", headers: %{"authorization" => "Bearer " <> token}}
         ]}
      ]

      AshAgent.Runtime.run(context, llm: llm, tools: AshAgent.MCP.tools(MyApp.MCP) ++ my_tools)

  This supervisor starts a client for each server, and all conversations of the application share it. The client is `ex_mcp`, which
  your application adds to its dependencies: `{:ex_mcp, "~> 1.0"}`. It needs Elixir 1.17. The guide [MCP](mcp.html) shows it all.

  ## Servers

  A server is a map with a `:name` and

    * `:command`, a program that speaks over its standard input and output, with `:args`, a list of strings, `:env`, a map of strings,
      and `:cwd`, a directory
    * or `:url`, the address of a streamable HTTP endpoint, with `:headers`, a map of strings

  and may have

    * `:prefix` - what the names of its tools begin with, followed by `__`. Defaults to its name, in which other characters than letters,
      digits, `-` and single `_` are replaced
    * `:inherit_env` - names of environment variables that the program gets from the VM besides `HOME`, `LOGNAME`, `PATH`, `SHELL`, `TERM` and
      `USER`; `true` for all
    * `:trust_annotations` - `true` if a call whose outcome is unknown may run again when the server says that the tool only reads or is
      idempotent. Defaults to `false`: no call runs again

    * `:per_actor` - `true` if each actor and tenant needs a client of its own: a program with its own state, a session, or a token. It starts when
      `tools/2` is called with `:actor` or `:tenant`, and is closed when it is idle

  Anyone who can write these maps can run programs. Start servers only from configurations that you trust.

  ## Who asks

  `:auth` is called before each request to an address, and again when the server does not accept what came. It gets a map with the `:server`'s name,
  its `:url`, the `:actor` and `:tenant` of a server with `:per_actor`, and the `:challenge`: `nil` before a request, and then a map with the
  `:status` (401, or 403 if a token's scope is too small), the `:header` (`WWW-Authenticate`) and the `:scopes` in it. It returns

    * `{:ok, token}` - a bearer token, or `nil` for none
    * `{:sign_in, address}` - somebody has to sign in there. Listing and calls are errors with this address
    * `{:error, words}` - the same with other words

  A token is in no error, no log and no conversation. `ExMCP.Authorization` has the parts of OAuth 2.1 for such a function.

  A tool that was listed for somebody is used by nobody else: a call whose runtime context has another `:actor` or `:tenant` is not made.

  ## Tools

  A tool is named `files__read_file`. Names are at most 64 bytes long and consist of letters, digits, `_` and `-`; a name of the server's
  that does not fit is changed and ends with a hash of it. So `{:deny, "files__write_*"}` is a rule for one server, see
  `AshAgent.Runtime.Permissions`. Rules, hooks and approval apply as to every tool.

  Names, descriptions and schemas come from the server. They are bounded: a tool with a schema that is too large, too deep or not an
  object's is left out, with a warning in the log, and a description ends after 4,096 bytes. Nothing makes atoms. But a model reads
  descriptions and results, so a server can try to talk it into something: connect the servers that you trust, and ask a person about
  calls that matter.

  ## Results

  Text, images, audio and embedded resources become the parts of a result, links to resources become text. If the server says
  `isError`, the result is an error. Its structured content is added as JSON if no text says the same.

  A call that fails in any other way has an error that the model can read. If the server ends or the connection breaks before the answer is there,
  nobody knows whether the call did its work: it ends as `:unknown`, the error says so, and it is never sent again. Other calls get an error
  while the server is started again, at once and then ever more slowly.

  ## Tasks

  A server of 2026-07-28 may answer a call with a task: it works on, and has the result later. With `tasks: MyApp.Sessions` such a call waits as that of
  a tool with `:late`, see "A tool takes an hour, and the agent goes on by itself" in the guides: the conversation goes on, and the result arrives, also after a restart of the node or of the
  server. `AshAgent.Sessions.waiting/2` with `for: "mcp:files"` lists these calls. What is kept of a task is the name of its server, its id, and the ids of
  the actor and tenant, never a token: after a restart, `:auth` gets an actor's id, or `{module, id}` of a struct.

  Every node with the servers asks about the tasks, as often as the server wants and 16 at a time; the first result counts. When a call is called off
  (`AshAgent.Sessions.cancel_call/4`) or its time is over, its task is cancelled. A task that the server does not know any more has an outcome that is
  unknown. Runs without a store, sub-agents, and actors without an id are offered no tasks: the server answers at once.

  ## Questions

  A server may ask for something in the middle of a call, by a form (`elicitation`). With `questions: :ask`, a person is asked: the run pauses with a question,
  as those of `AshAgent.Runtime.AskUser`, whose `form` is the server's. `AshAgent.Session.answer/4`, or whatever else answers questions, checks the answer; when the
  turn goes on, the call is made once more with it, also after a restart. Denying the question denies the call.

  A server of the eras before asks while the call is open: `questions/1` lists what it asks, `answer/3` answers it, and it gets nothing after 10 minutes or
  when `:tool_timeout` is over.

  A task that asks pauses nothing: `questions/1` lists what is open, `AshAgent.Session.answer/4` or `answer/3` answers it, and the call goes on waiting for its result.

  With a function, that answers: it gets a map with the `:server`'s name, the `:question` and its `:form`, and returns `{:ok, answer}`, which has to fit
  the form, or `:decline`. A server may ask 10 times in a call. Nobody but this function or a person answers.

  Without the option, in sub-agents, and for everything else (models, folders, addresses to open), the server gets nothing, and the model reads that the call
  was not done.

  ## Tools that change

  What was allowed is the tool that was shown. If the server has listed another description or other parameters since then, a call is not made, and
  the model reads why. The same holds for a call that somebody approved while the run was paused: when it resumes, the tool has to be the
  one of the request that the call answers.

  ## Time

  A call that times out, or whose run is cancelled, is cancelled at the server (`notifications/cancelled`). Progress that the server
  reports is the event `[:ash_agent, :runtime, :tool, :progress]`, see `AshAgent.Runtime.Events`.
  """

  use AshAgent.Arguments

  use Supervisor

  alias AshAgent.ChatContext.{Config, MCPServers}
  alias AshAgent.Context.JSON
  alias AshAgent.MCP.{Actors, Error, Questions, Remote, Tasks}
  alias AshAgent.Options
  alias AshAgent.Runtime.{Authority, Outcome, Tool}

  @prefix ~r/\A[a-zA-Z]([a-zA-Z0-9-]|_(?!_|\z))*\z/
  @prefix_bytes 32
  @day 86_400_000
  # So often a server may ask in a call.
  @rounds 10
  @restarting {:error, "is restarting"}

  @doc """
  Starts the servers' clients under a supervisor that is linked to the calling process.

  It does not wait for the servers; `tools/2` does. Returns `{:error, %AshAgent.MCP.Error{}}` if there are servers, but no client for them:
  the error says what to add to `mix.exs`.

  ## Options

  #{Options.docs(@schema)}

  Raises `ArgumentError` for servers of another form, and for two with the same name or prefix.

  ## Examples

      iex> config = AshAgent.ChatContext.Config.new(mcp_servers: [])
      iex> {:ok, mcp} = AshAgent.MCP.start_link(servers: config)
      iex> AshAgent.MCP.tools(mcp)
      []
  """
  @doc since: "0.1.0"
  @spec start_link(keyword()) :: Supervisor.on_start() | {:error, Error.t()}
  def start_link(opts) when is_list(opts) do
    opts = check_opts(opts)
    start_sealed(fn -> opts end)
  end

  @doc false
  # Neither a report nor the supervisor's state shows data inside a function.
  def start_sealed(sealed) when is_function(sealed, 0) do
    opts = sealed.()

    with :ok <- available(opts[:servers], opts[:client]),
         do: Supervisor.start_link(__MODULE__, sealed, Keyword.take(opts, [:name]))
  end

  @doc false
  def child_spec(opts) do
    opts = check_opts(opts)

    %{
      id: opts[:name] || __MODULE__,
      start: {__MODULE__, :start_sealed, [fn -> opts end]},
      type: :supervisor
    }
  end

  @impl true
  def init(sealed) do
    opts = Keyword.put(sealed.(), :mcp, self())
    {own, shared} = Enum.split_with(opts[:servers], fn {server, _} -> server[:per_actor] end)

    children =
      for {server, _prefix} = listed <- shared do
        settings = settings(listed, %{}, opts)
        start = {Remote, :start_link, [fn -> settings end]}
        # Servers that end in time are not waited for, and the others are killed.
        %{id: server.name, start: start, shutdown: 10_000}
      end

    servers =
      for {server, _} = listed <- own, into: %{}, do: {server.name, &settings(listed, &1, opts)}

    actors = %{servers: servers, max: opts[:max_clients], idle: opts[:idle]}
    start = {Actors, :start_link, [fn -> actors end]}
    # The names are known while it restarts.
    actors = %{id: {Actors, Map.keys(servers)}, start: start, shutdown: 10_000}

    children = if own == [], do: children, else: [actors | children]

    # They may find no client for a while.
    names = for {server, _} <- opts[:servers], do: server.name
    names = if opts[:tasks], do: names, else: []
    tasks = %{sessions: opts[:tasks], names: names, questions: opts[:questions]}
    tasks = %{id: Tasks, start: {Tasks, :start_link, [fn -> tasks end]}}
    tasks? = opts[:tasks] != nil or opts[:questions] == :ask
    children = if tasks?, do: children ++ [tasks], else: children
    Supervisor.init(children, strategy: :one_for_one)
  end

  defp settings({server, prefix}, who, opts) do
    ask = %{actor: who[:actor], tenant: who[:tenant], server: server.name, url: server[:url]}

    auth = opts[:auth] && (&opts[:auth].(Map.put(ask, :challenge, &1)))
    settings = opts |> Keyword.take([:client, :timeout, :max_result_bytes]) |> Map.new()
    ask_person = &Tasks.ask(find_tasks(opts[:mcp]), &1)
    own = %{auth: auth, tasks?: opts[:tasks] != nil}
    own = Map.merge(own, %{questions: opts[:questions], ask_person: ask_person})
    server = Map.merge(server, own)
    Map.merge(settings, %{server: server, prefix: prefix})
  end

  @doc """
  Returns the tools of the servers, as the options `:tools` of runs and sessions take them, sorted by server.

  Waits for servers that are starting. A server that was available once keeps its tools while it restarts; its calls return errors
  until then. If a server changes its list, the next call of this function returns the new one, so pass a function to long-lived
  sessions: `tools: fn -> AshAgent.MCP.tools(MyApp.MCP, missing: :skip) end` is called when a run begins.

  ## Options

  #{Options.docs(@tools_schema)}

  ## Examples

      tools = AshAgent.MCP.tools(MyApp.MCP, missing: :skip)
      {:ok, result} = AshAgent.Runtime.run(context, llm: llm, tools: tools)
  """
  @doc since: "0.1.0"
  @spec tools(Supervisor.supervisor(), keyword()) :: [Tool.t()]
  def tools(mcp, opts \\ []) when is_server(mcp) do
    opts = Options.validate!(opts, @tools_schema)

    who = people(opts)
    children = Supervisor.which_children(mcp)
    all = Enum.flat_map(children, &reach(&1, who))

    servers =
      for {name, _reach, _who} = server <- all,
          opts[:only] == nil or name in opts[:only],
          do: server

    unless opts[:only] == nil or Enum.all?(opts[:only], &List.keymember?(servers, &1, 0)) do
      AshAgent.Caller.refuse!(
        "unknown servers in option :only; there are: " <>
          inspect(for {name, _, _} <- all, do: name)
      )
    end

    listed =
      for {name, reach, who} <- Enum.sort_by(servers, &elem(&1, 0)),
          do: {name, reach, who, entries(reach)}

    missing = for {name, _reach, _who, {:error, words}} <- listed, into: %{}, do: {name, words}

    if missing != %{} and opts[:missing] == :raise,
      do: raise(Error, reason: {:unavailable, missing})

    tasks = find_pid(children)

    for {name, reach, who, {:ok, entries}} <- listed,
        entry <- entries,
        do: tool(entry, reach, %{name: name, who: who, tasks: tasks})
  end

  @doc """
  Returns what servers ask without a pause and nobody has answered, with `questions: :ask`: the `:id` of the conversation, the `:key` of the call that waits,
  the `:server`, the `:question` and its `:form`.

  What tasks ask, every node that has the server knows soon. `AshAgent.Session.answer/4` answers it by the id of its call, and so does `answer/3` by the
  key. What a server of an older era asks while a call is open has no `:id`, and only the node of that connection knows it.

  ## Examples

      iex> {:ok, mcp} = AshAgent.MCP.start_link(servers: [])
      iex> AshAgent.MCP.questions(mcp)
      []
  """
  @doc since: "0.1.0"
  @spec questions(Supervisor.supervisor()) :: [map()]
  def questions(mcp) when is_server(mcp) do
    case find_tasks(mcp) do
      pid when is_pid(pid) -> Tasks.questions(pid)
      _none -> []
    end
  end

  @doc """
  Answers one of the `questions/1`, with a map that fits the form, or with `:decline`. Returns `:ok` when the server of a task has the answer; the call goes
  on waiting for its result.

  ## Examples

      iex> {:ok, mcp} = AshAgent.MCP.start_link(servers: [])
      iex> {:error, error} = AshAgent.MCP.answer(mcp, "a key", %{"seats" => 2})
      iex> error.reason
      :no_question
  """
  @doc since: "0.1.0"
  @spec answer(Supervisor.supervisor(), String.t(), map() | :decline) ::
          :ok | {:error, Error.t() | AshAgent.Context.Error.t()}
  def answer(mcp, key, answer)
      when is_server(mcp) and is_binary(key) and (is_map(answer) or answer == :decline) do
    case find_tasks(mcp) do
      pid when is_pid(pid) -> Tasks.answer(pid, key, answer)
      _none -> {:error, %Error{reason: :no_question}}
    end
  rescue
    error in AshAgent.Context.Error -> {:error, error}
  end

  defp find_tasks(mcp), do: mcp |> Supervisor.which_children() |> find_pid()

  defp find_pid(children), do: with({_id, pid, _, _} <- List.keyfind(children, Tasks, 0), do: pid)

  @doc false
  # The client of a server for whoever a task is for, as it was kept.
  def find_client(mcp, name, who) do
    case mcp
         |> Supervisor.which_children()
         |> Enum.flat_map(&reach(&1, who))
         |> List.keyfind(name, 0) do
      {_name, reach, _who} -> reach.()
      nil -> {:error, "is not there"}
    end
  end

  # The servers of a child, each with a function that finds who makes its calls, and for whom they are.
  defp reach({{Actors, names}, actors, _, _}, who) do
    for name <- names do
      find = fn ->
        cond do
          who == %{} -> {:error, "has a client for each actor; pass :actor or :tenant"}
          is_pid(actors) -> Actors.remote(actors, name, who)
          true -> @restarting
        end
      end

      {name, find, who}
    end
  end

  defp reach({Tasks, _, _, _}, _who), do: []

  defp reach({name, pid, _, _}, _who) do
    found = if is_pid(pid), do: {:ok, pid}, else: @restarting
    [{name, fn -> found end, %{}}]
  end

  defp entries(reach) do
    with {:ok, pid} <- reach.(), do: Remote.tools(pid)
  catch
    :exit, _reason -> {:error, "was stopped"}
  end

  defp tool(entry, reach, %{who: who, tasks: tasks} = server) do
    tasks? = tasks != nil and entry.tasks? and Tasks.nameable?(who)

    %Tool{
      name: entry.name,
      description: entry.description,
      parameters: entry.parameters,
      repeat: entry.repeat,
      foreign?: true,
      late: if(tasks?, do: @day),
      answer: if(tasks?, do: &answer_task(tasks, &1, &2)),
      run: fn arguments, tool_context, scope ->
        with :ok <- same(who, people(tool_context)),
             {:ok, arguments} <- plain(arguments),
             {:ok, pid} <- find(reach) do
          tasks? = tasks? and is_map_key(tool_context, :arrival_key)
          offers = if tasks?, do: [:tasks], else: []
          offers = if asks?(entry.questions, scope), do: [:questions | offers], else: offers

          call = fn answers ->
            opts = [offers: offers, answers: answers]
            Remote.call(pid, entry, arguments, scope.progress, opts)
          end

          answered = call.(Questions.find(scope))

          outcome(
            answered,
            Map.merge(server, %{offers: offers, ask: entry.questions, call: call})
          )
        end
      end
    }
  end

  defp answer_task(tasks, key, answer) when is_pid(tasks), do: Tasks.answer(tasks, key, answer)
  defp answer_task(_restarting, _key, _answer), do: {:error, %Error{reason: :no_question}}

  # A person is asked by the run itself, which nobody talks to if it is within another one.
  defp asks?(:ask, scope), do: scope.depth == 0 and is_map_key(scope, :conversation)
  defp asks?(function, _scope), do: function != nil

  defp outcome(answer, server, rounds \\ @rounds)

  # A run treats it as a call that was killed when its time was over.
  defp outcome({:unknown, words}, _server, _rounds),
    do: %Outcome{status: :error, term: words, error_type: Outcome.unknown()}

  defp outcome({:task, task}, server, rounds) do
    with true <- :tasks in server.offers,
         {:ok, later} <- Tasks.wait(server.name, server.who, task) do
      Tasks.look(server.tasks)
      {:later, later}
    else
      _not_offered_or_wrong ->
        words =
          "answered with a task that nobody can wait for, and whether it does its work is not known"

        outcome({:unknown, about(server, words)}, server, rounds)
    end
  end

  defp outcome({:asks, questions}, server, rounds) do
    case if(:questions in server.offers, do: Questions.read(questions), else: Questions.refuse()) do
      {:error, words} ->
        {:error, about(server, words)}

      {:ok, _question} when rounds == 0 ->
        {:error, about(server, "asks without end; the call was given up")}

      # There is nothing to answer: it wants to be asked again.
      {:ok, %{ids: []} = question} ->
        question |> Questions.answers(%{}) |> server.call.() |> outcome(server, rounds - 1)

      {:ok, question} when server.ask == :ask ->
        Questions.outcome(question)

      {:ok, question} ->
        answer = Questions.ask(server.ask, server.name, question)
        question |> Questions.answers(answer) |> server.call.() |> outcome(server, rounds - 1)
    end
  end

  defp outcome(result, _server, _rounds), do: result

  defp about(server, words), do: "the MCP server #{inspect(server.name)} #{words}"

  defp find(reach) do
    with {:error, words} <- reach.(), do: {:error, "the MCP server " <> words}
  catch
    :exit, _reason -> {:error, "the MCP server was stopped"}
  end

  defp people(known),
    do:
      for({key, who} <- known, key in [:actor, :tenant] and who != nil, into: %{}, do: {key, who})

  # Nobody acts with the sign-in of somebody else.
  defp same(who, context) do
    if who == %{} or context == %{} or
         Authority.identify(who) == Authority.identify(Map.take(context, Map.keys(who))),
       do: :ok,
       else: {:error, "this tool was listed for somebody else; the call was not made"}
  end

  # Hooks may make arguments that a client could not send.
  defp plain(arguments) do
    arguments |> JSON.encode() |> JSON.decode()
  rescue
    error in [AshAgent.Context.Error, ArgumentError] ->
      {:error, "the arguments cannot be written as JSON: " <> Exception.message(error)}
  end

  ## Options

  @doc false
  def store?(given), do: is_atom(given) or is_struct(given)

  @doc false
  def servers?(servers), do: match?({:ok, _}, servers |> take_servers() |> MCPServers.check())

  defp check_opts(opts) do
    opts = Options.validate!(opts, @schema)
    {:ok, servers} = opts[:servers] |> take_servers() |> MCPServers.check()
    servers = Enum.map(servers, &{one_way!(&1), prefix!(&1)})
    unique!(Enum.map(servers, fn {server, _} -> server.name end), ":name")
    unique!(Enum.map(servers, fn {_, prefix} -> prefix end), ":prefix")
    Keyword.put(opts, :servers, servers)
  end

  defp take_servers(%Config{mcp_servers: servers}), do: servers
  defp take_servers(servers), do: servers

  defp one_way!(%{command: _, url: _} = server) do
    AshAgent.Caller.refuse!(
      "the MCP server #{inspect(server.name)} has a :command and a :url; remove one of them"
    )
  end

  # An environment, say, that the application relies on must not be ignored.
  defp one_way!(server) do
    {way, others} =
      if server[:url],
        do: {:url, [:args, :env, :cwd, :inherit_env]},
        else: {:command, [:headers]}

    keys = Enum.filter(others, &(server[&1] not in [nil, [], %{}]))

    unless keys == [] do
      AshAgent.Caller.refuse!(
        "the MCP server #{inspect(server.name)} has a #{inspect(way)}, for which #{inspect(keys)} cannot be used; remove them"
      )
    end

    server
  end

  # Without two underscores in a row, so that the name of a tool belongs to one server.
  defp prefix!(server) do
    prefix = server[:prefix] || derive_prefix(server.name)

    unless prefix =~ @prefix and byte_size(prefix) <= @prefix_bytes do
      AshAgent.Caller.refuse!(
        "the MCP server #{inspect(server.name)} needs another :prefix: a letter, followed by letters, digits, \"-\" and single " <>
          "\"_\", at most #{@prefix_bytes} in all, and not \"_\" at its end"
      )
    end

    prefix
  end

  defp derive_prefix(name) do
    name
    |> String.replace(~r/[^a-zA-Z0-9-]+|_+/, "_")
    |> String.replace(~r/_+/, "_")
    |> String.trim("_")
  end

  defp unique!(values, key) do
    with [_ | _] = repeated <- Enum.uniq(values -- Enum.uniq(values)),
         do: AshAgent.Caller.refuse!("two MCP servers have the same #{key}: #{inspect(repeated)}")
  end

  defp available(servers, client) do
    Enum.find_value(servers, :ok, fn {server, _prefix} ->
      with {:error, words} <- client.available(server),
           do: {:error, %Error{reason: {:no_client, words}}}
    end)
  end
end
