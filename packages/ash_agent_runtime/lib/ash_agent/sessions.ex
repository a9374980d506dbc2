defmodule AshAgent.Sessions do
  @moduledoc """
  The sessions of a node: finds or starts the session of a stored conversation, wherever it is, and recovers those whose
  nodes have died.

  Put it under a supervisor on every node, after the store and under the same name everywhere:

      children = [
        MyApp.Repo,
        {AshAgent.Sessions,
         name: MyApp.Sessions, store: AshAgent.Store.Postgres.new(MyApp.Repo), llm: llm, tools: tools}
      ]

      {:ok, result} = AshAgent.Sessions.prompt(MyApp.Sessions, "user-17", "Pay the invoice of May")

  A conversation has at most one session at a time, an `AshAgent.Session` on the node that has claimed it in the store. Each
  function here asks that session, from any node: it starts the session on this node if nobody has claimed the
  conversation, and otherwise sends the request to the node that has. Only the store decides who owns a conversation, and
  Erlang's distribution carries the messages, so the nodes have to be connected, for instance by `libcluster`. No registry
  is needed.

  An idle session leaves memory (`:idle`) and starts again with the next request. Results always work on the
  caller's node: contexts travel between nodes as snapshots.

  ## Nodes that die

  The claims of a node that died end with their leases. Until then, requests for its conversations return
  `{:error, %AshAgent.Sessions.Error{reason: {:unreachable, owner}}}`. After that, the next request takes the conversation
  over, and so do the other nodes on their own: each looks from time to time (`:recover`) for conversations with expired
  claims, and continues interrupted turns and waiting prompts. A node that was only cut off or stopped, and comes back
  after its lease, finds that it has lost its conversations. It cannot write to them, and kills their runs.

  ## Draining

  `drain/2` prepares a node for its stop: `ready?/1` is false from then on, idle sessions stop, runs stop once their current step
  has been stored, and all claims are released, so that other nodes can continue. When a supervisor stops `AshAgent.Sessions`, it
  drains first. See [Deploy without losing a turn](deploy.html) for Kubernetes.
  """

  use AshAgent.Arguments, sessions: :server

  use Supervisor

  alias AshAgent.{Context, LLM, Options, Session, Store}
  alias AshAgent.Runtime.Journal
  alias AshAgent.Sessions.{Arrivals, Error, Node, Overview, Router}

  @own Options.schema([
         {:name, :atom, [required: true], "the name of the supervisor, the same on all nodes."},
         {:store, :any, [required: true, type_doc: "a store"],
          "the `AshAgent.Store` that keeps the conversations."},
         {:options, {:or, [{:fun, 1}, nil]}, [type_doc: "a function of arity 1"],
          "gets the id of a conversation and returns options for its session, which take precedence over those given here. " <>
            "Defaults to no function."},
         {:lease, :pos_integer, [default: 30_000],
          "milliseconds until other nodes may claim the conversations of a node that has died."},
         {:idle, :milliseconds, [default: 300_000],
          "the time after which a session leaves memory if it neither runs nor has subscribers."},
         {:recover, :milliseconds,
          "how often to look for conversations with expired claims and late results, on average. `:infinity` leaves that to other nodes. " <>
            "Defaults to a third of `:lease`."},
         {:batch, {:custom, &Store.Options.limit?/1},
          [type_doc: "an integer from 1 to 10,000", default: 100],
          "how many of them to take at a time."},
         {:drain, :non_neg_integer, [default: 25_000],
          "milliseconds that runs get to finish their current step when a supervisor stops this one."},
         {:registry, {:custom, &__MODULE__.registry?/1}, [type_doc: "`{module, term}`"],
          "registers each session as `{:via, module, {term, id}}`, for instance with `{Horde.Registry, MyApp.Registry}` or " <>
            "`{:syn, :sessions}`. Defaults to a `Registry` of this node."}
       ])

  @drain Options.schema([
           {:timeout, :non_neg_integer,
            "milliseconds that runs get to finish their current step. Then they are killed: the model is asked again elsewhere, and " <>
              "the outcome of running tool calls is unknown. Defaults to `:drain` of this supervisor."}
         ])

  @fork Options.schema([
          {:to, {:or, [:pos_integer, nil]}, [type_doc: "`t:pos_integer/0`"],
           "the number of the last iteration that the fork has. Defaults to the current one."}
        ])

  @type sessions :: atom()
  @type id :: Store.id()

  @doc false
  def registry?({module, _term}), do: is_atom(module) and module not in [nil, true, false]
  def registry?(_other), do: false

  @doc """
  Starts the supervisor, usually as a child of another one.

  ## Options

  #{Options.docs(@own)}

  All other options are those of `AshAgent.Session.start_link/1`, for every session that starts: `:llm`, `:tools`,
  `:system_prompt` and so on. `:llm` is required unless `:options` returns it.

  Raises `ArgumentError` for unknown and wrong options.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Sessions, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, result} = AshAgent.Sessions.prompt(Example.Sessions, "c1", "Hi")
      iex> result.output
      "Hello!"
  """
  @doc since: "0.1.0"
  @spec start_link(keyword()) :: Supervisor.on_start()
  def start_link(opts) when is_list(opts), do: opts |> config!() |> start_checked()

  @doc false
  def start_sealed(config) when is_function(config, 0), do: start_checked(config.())

  defp start_checked(config), do: Supervisor.start_link(__MODULE__, config, name: config.name)

  @doc """
  Returns a specification for a supervisor, with the options of `start_link/1`. Its id is the name.

  ## Examples

      iex> AshAgent.Sessions.child_spec(name: MyApp.Sessions, store: MyApp.Conversations, llm: fn _ -> {:ok, %{}} end).id
      MyApp.Sessions
  """
  @doc since: "0.1.0"
  @spec child_spec(keyword()) :: Supervisor.child_spec()
  def child_spec(opts) when is_list(opts) do
    config = config!(opts)

    # Supervisors print specifications, and the options of sessions contain keys.
    %{
      id: config.name,
      start: {__MODULE__, :start_sealed, [fn -> config end]},
      type: :supervisor,
      shutdown: :infinity
    }
  end

  defp config!(opts) do
    shared = Keyword.drop(Session.Options.schema(), Keyword.keys(@own) ++ [:id])
    shared = if opts[:options], do: optional(shared, :llm), else: shared
    opts = Options.validate!(opts, @own ++ shared)
    {own, session} = Keyword.split(opts, Keyword.keys(@own))
    own = Keyword.put_new(own, :recover, max(div(own[:lease], 3), 1))
    session = if session[:llm], do: Keyword.update!(session, :llm, &LLM.new/1), else: session

    own
    |> Keyword.put_new(:registry, {Registry, Module.concat(own[:name], Names)})
    |> Map.new()
    |> Map.merge(%{session: session, ready: :atomics.new(1, [])})
    |> Map.put_new(:options, nil)
  end

  defp optional(schema, name), do: Keyword.update!(schema, name, &Keyword.delete(&1, :required))

  @impl true
  def init(config), do: Node.children(config)

  ## Requests

  defguardp is_input(input) when is_binary(input) or is_list(input) or is_map(input)

  @doc """
  Sends a prompt to the session of a conversation, which is created if it does not exist, and returns its answer.

  Takes the options of `AshAgent.Session.prompt/3` and returns what that returns, and also
  `{:error, %AshAgent.Sessions.Error{}}` if the session could not be reached.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> llm = AshAgent.LLM.Scripted.new(["Hello!"])
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Prompts, store: store, llm: llm)
      iex> {:ok, result} = AshAgent.Sessions.prompt(Example.Prompts, "c1", "Hi")
      iex> result.output
      "Hello!"
  """
  @doc since: "0.1.0"
  @spec prompt(sessions(), id(), Session.input(), keyword()) ::
          {:ok, AshAgent.Runtime.Result.t()}
          | {:paused, AshAgent.Runtime.Paused.t()}
          | {:error,
             Error.t() | AshAgent.Runtime.Error.t() | Context.Error.t() | :busy | :moved | :paused}
  def prompt(sessions, id, input, opts \\ [])
      when is_server(sessions) and is_binary(id) and is_input(input),
      do: request(sessions, id, :create, :prompt, [input], opts)

  @doc """
  Like `prompt/4`, but returns `{:ok, ref}` when the prompt is stored, and sends messages to the caller, see
  `AshAgent.Session.prompt_async/3`.

  The messages are the same wherever the session is. If the session ends, no more messages arrive; look at the conversation, which
  another node continues.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Async, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, ref} = AshAgent.Sessions.prompt_async(Example.Async, "c1", "Hi")
      iex> receive do
      ...>   {AshAgent.Session, ^ref, {:ok, result}} -> result.output
      ...> end
      "Hello!"
  """
  @doc since: "0.1.0"
  @spec prompt_async(sessions(), id(), Session.input(), keyword()) ::
          {:ok, reference()}
          | {:error, Error.t() | AshAgent.Runtime.Error.t() | :busy | :moved | :paused}
  def prompt_async(sessions, id, input, opts \\ [])
      when is_server(sessions) and is_binary(id) and is_input(input),
      do: request(sessions, id, :create, :prompt_async, [input], opts)

  @doc """
  Adds a message to the running turn, see `AshAgent.Session.steer/3`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Steering, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, _result} = AshAgent.Sessions.prompt(Example.Steering, "c1", "Hi")
      iex> AshAgent.Sessions.steer(Example.Steering, "c1", "Shorter, please!")
      {:error, :idle}
  """
  @doc since: "0.1.0"
  @spec steer(sessions(), id(), Session.input(), keyword()) :: :ok | {:error, term()}
  def steer(sessions, id, input, opts \\ [])
      when is_server(sessions) and is_binary(id) and is_input(input),
      do: request(sessions, id, :find, :steer, [input], opts)

  @doc """
  Continues without a new message, see `AshAgent.Session.resume/2`.

  If a run is already continuing the turn, for instance because its node was drained, this waits for that run and returns its
  answer.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Resuming, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, _kept} = AshAgent.Store.create(store, AshAgent.Context.new("Hi", id: "c1"))
      iex> {:ok, result} = AshAgent.Sessions.resume(Example.Resuming, "c1")
      iex> result.output
      "Hello!"
  """
  @doc since: "0.1.0"
  @spec resume(sessions(), id(), keyword()) ::
          {:ok, AshAgent.Runtime.Result.t()}
          | {:paused, AshAgent.Runtime.Paused.t()}
          | {:error, Error.t() | AshAgent.Runtime.Error.t() | :busy}
  def resume(sessions, id, opts \\ []) when is_server(sessions) and is_binary(id),
    do: request(sessions, id, :find, :resume, [], opts)

  @doc """
  Cancels the running prompt, see `AshAgent.Session.cancel/1`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Cancelling, store: store, llm: fn _ -> Process.sleep(:infinity) end)
      iex> {:ok, ref} = AshAgent.Sessions.prompt_async(Example.Cancelling, "c1", "Think for ever")
      iex> AshAgent.Sessions.cancel(Example.Cancelling, "c1")
      :ok
      iex> receive do
      ...>   {AshAgent.Session, ^ref, {:error, error}} -> error.reason
      ...> end
      :cancelled
  """
  @doc since: "0.1.0"
  @spec cancel(sessions(), id()) :: :ok | {:error, Error.t()}
  def cancel(sessions, id) when is_server(sessions) and is_binary(id),
    do: Router.ask(sessions, id, :find, &Session.cancel/1)

  @doc """
  Goes back to the end of an iteration, see `AshAgent.Session.rewind/2`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Rewind, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, _result} = AshAgent.Sessions.prompt(Example.Rewind, "c1", "Hi")
      iex> AshAgent.Sessions.rewind(Example.Rewind, "c1", 0)
      :ok
      iex> {:ok, context} = AshAgent.Sessions.context(Example.Rewind, "c1")
      iex> AshAgent.Context.count_messages(context)
      0
  """
  @doc since: "0.1.0"
  @spec rewind(sessions(), id(), integer()) ::
          :ok | {:error, :busy | :paused | Context.Error.t() | Runtime.Error.t() | Error.t()}
  def rewind(sessions, id, number)
      when is_server(sessions) and is_binary(id) and is_integer(number),
      do: Router.ask(sessions, id, :find, &Session.rewind(&1, number))

  @doc """
  Pauses the running turn at its next step, see `AshAgent.Session.pause/1`. `resume/3` goes on with it.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Pausing, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, _result} = AshAgent.Sessions.prompt(Example.Pausing, "c1", "Hi")
      iex> AshAgent.Sessions.pause(Example.Pausing, "c1")
      :ok
  """
  @doc since: "0.1.0"
  @spec pause(sessions(), id()) :: :ok | {:error, Error.t()}
  def pause(sessions, id) when is_server(sessions) and is_binary(id),
    do: Router.ask(sessions, id, :find, &Session.pause/1)

  @doc """
  Approves an undecided call, see `AshAgent.Session.approve/3`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> llm = AshAgent.LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "clean_up"}]}, "Done."])
      iex> {:ok, _} =
      ...>   AshAgent.Sessions.start_link(name: Example.Approving, store: store, llm: llm, tools: %{"clean_up" => fn _ -> {:ok, 3} end}, approval: fn _, _ -> :ask end)
      iex> {:paused, _paused} = AshAgent.Sessions.prompt(Example.Approving, "c1", "Clean up")
      iex> AshAgent.Sessions.approve(Example.Approving, "c1", "call_1", by: "ann")
      :ok
      iex> {:ok, result} = AshAgent.Sessions.resume(Example.Approving, "c1")
      iex> result.output
      "Done."
  """
  @doc since: "0.1.0"
  @spec approve(sessions(), id(), String.t(), keyword()) :: :ok | {:error, term()}
  def approve(sessions, id, call_id, opts \\ [])
      when is_server(sessions) and is_binary(id) and is_binary(call_id),
      do: request(sessions, id, :find, :approve, [call_id], opts)

  @doc """
  Denies an undecided call, see `AshAgent.Session.deny/4`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> llm = AshAgent.LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "clean_up"}]}, "Done."])
      iex> {:ok, _} =
      ...>   AshAgent.Sessions.start_link(name: Example.Denying, store: store, llm: llm, tools: %{"clean_up" => fn _ -> {:ok, 3} end}, approval: fn _, _ -> :ask end)
      iex> {:paused, _paused} = AshAgent.Sessions.prompt(Example.Denying, "c1", "Clean up")
      iex> AshAgent.Sessions.deny(Example.Denying, "c1", "call_1", "not on Fridays", by: "ann")
      :ok
      iex> {:ok, result} = AshAgent.Sessions.resume(Example.Denying, "c1")
      iex> result.output
      "Done."
  """
  @doc since: "0.1.0"
  @spec deny(sessions(), id(), String.t(), term(), keyword()) :: :ok | {:error, term()}
  def deny(sessions, id, call_id, reason \\ nil, opts \\ [])
      when is_server(sessions) and is_binary(id) and is_binary(call_id),
      do: request(sessions, id, :find, :deny, [call_id, reason], opts)

  @doc """
  Answers a call of a tool that asks, see `AshAgent.Session.answer/4`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> llm = AshAgent.LLM.Scripted.new([%{tool_calls: [%{id: "call_1", name: "ask_user", arguments: %{"question" => "When?"}}]}, "Done."])
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Answering, store: store, llm: llm, tools: [AshAgent.Runtime.AskUser.tool()])
      iex> {:paused, _paused} = AshAgent.Sessions.prompt(Example.Answering, "c1", "Book a table")
      iex> AshAgent.Sessions.answer(Example.Answering, "c1", "call_1", "On Friday", by: "ann")
      :ok
      iex> {:ok, result} = AshAgent.Sessions.resume(Example.Answering, "c1")
      iex> result.output
      "Done."
  """
  @doc since: "0.1.0"
  @spec answer(sessions(), id(), String.t(), String.t() | map(), keyword()) ::
          :ok | {:error, term()}
  def answer(sessions, id, call_id, answer, opts \\ [])
      when is_server(sessions) and is_binary(id) and is_binary(call_id) and
             (is_binary(answer) or is_map(answer)),
      do: request(sessions, id, :find, :answer, [call_id, answer], opts)

  ## Late results

  @doc """
  Stores the late result of a call, and tells the session of its conversation, which is started if nobody has claimed it. From any node.

  Takes what `AshAgent.Store.arrive/5` takes and returns what that returns, as soon as the result is stored. From then on it is not lost: if
  the session cannot be reached, the next look for late results (`:recover`) finds it.

  ## Examples

      iex> alias AshAgent.{Context, Sessions, Store}
      iex> {:ok, store} = Store.SQLite.open(":memory:")
      iex> {:ok, _} = Sessions.start_link(name: Example.Arrivals, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> context = Context.new("Build it", id: "c1") |> Context.add_assistant_message(nil, [%{id: "a", name: :build}])
      iex> context = Context.add_tool_results(context, [{"a", {:waiting, %{handle: "build 7"}}}])
      iex> {:ok, _} = Store.create(store, Context.add_assistant_message(context, "I started it."))
      iex> Sessions.arrive(Example.Arrivals, "c1", "build 7", {:ok, "green"}, from: "ci")
      {:ok, :kept}
      iex> Sessions.arrive(Example.Arrivals, "c1", "build 7", {:ok, "red"})
      {:error, :answered}
  """
  @doc since: "0.1.0"
  @spec arrive(sessions(), id(), String.t(), Store.outcome(), keyword()) ::
          {:ok, :kept | :again}
          | {:error, Store.late_refusal() | Store.Error.t() | Context.Error.t()}
  def arrive(sessions, id, key, outcome, opts \\ [])
      when is_server(sessions) and is_binary(id) and is_binary(key) do
    opts = Store.Options.validate!(opts, :arrive)

    with {:ok, stored} <- Store.arrive(Node.config!(sessions).store, id, key, outcome, opts) do
      Arrivals.tell_later(sessions, id)
      {:ok, stored}
    end
  end

  @doc """
  Calls off a call that waits. What arrives for it from then on is refused as `:cancelled`.

  Returns what `arrive/5` returns; `{:error, :answered}` means that its result came first. `opts` are `:reason`, which the model reads, and `:by`,
  who calls it off.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.CallingOff, store: store, llm: fn _ -> {:ok, %{}} end)
      iex> AshAgent.Sessions.cancel_call(Example.CallingOff, "c1", "build 7")
      {:error, :not_found}
  """
  @doc since: "0.1.0"
  @spec cancel_call(sessions(), id(), String.t(), keyword()) ::
          {:ok, :kept | :again}
          | {:error, Store.late_refusal() | Store.Error.t() | Context.Error.t()}
  def cancel_call(sessions, id, key, opts \\ []) do
    opts = Options.validate!(opts, reason: [type: :any], by: [type: :any])
    reason = Keyword.get(opts, :reason, "cancelled by the user")
    arrive(sessions, id, key, {:cancelled, reason}, from: opts[:by])
  end

  @doc """
  Returns the calls that wait for a late result, over all conversations and nodes: `{:ok, %{calls: calls, next: cursor}}`.

  Takes the name of sessions or a store, and the options of `AshAgent.Store.waiting_calls/2`, which says what a call is. `for:` are those that
  wait for a person or a tag.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> AshAgent.Sessions.waiting(store, for: "ann")
      {:ok, %{calls: [], next: nil}}
  """
  @doc since: "0.1.0"
  @spec waiting(sessions() | Store.t(), keyword()) ::
          {:ok, %{calls: [map()], next: tuple() | nil}} | {:error, Store.Error.t()}
  def waiting(sessions_or_store, opts \\ []),
    do: Store.waiting_calls(find_store(sessions_or_store), opts)

  @doc """
  Returns the status of a session, see `AshAgent.Session.status/1`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Status, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, _result} = AshAgent.Sessions.prompt(Example.Status, "c1", "Hi")
      iex> AshAgent.Sessions.status(Example.Status, "c1")
      :idle
  """
  @doc since: "0.1.0"
  @spec status(sessions(), id()) ::
          :idle | :running | :parked | :waiting | {:paused, [map()]} | {:error, Error.t()}
  def status(sessions, id) when is_server(sessions) and is_binary(id),
    do: Router.ask(sessions, id, :find, &Session.status/1)

  @doc """
  Returns `{:ok, context}` with the current context of a conversation.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Contexts, store: store, llm: fn _ -> {:ok, %{}} end)
      iex> {:error, error} = AshAgent.Sessions.context(Example.Contexts, "unknown")
      iex> error.reason
      :not_found
  """
  @doc since: "0.1.0"
  @spec context(sessions(), id()) :: {:ok, Context.t()} | {:error, Error.t()}
  def context(sessions, id) when is_server(sessions) and is_binary(id),
    do: Router.ask(sessions, id, :find, &{:ok, Session.context(&1)})

  @doc """
  Makes a new conversation that goes on from an iteration of another one, stores it, and returns `{:ok, context}`.

  It is a fork, see `AshAgent.Context.fork/2`, whose id is `fork`. The other conversation may be running and is not changed. If the id is taken, the
  error is `{:store_error, :exists}`.

  ## Options

  #{Options.docs(@fork)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Forks, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> for text <- ["One", "Two"], do: {:ok, _} = AshAgent.Sessions.prompt(Example.Forks, "c1", text)
      iex> {:ok, fork} = AshAgent.Sessions.fork(Example.Forks, "c1", "c2", to: 1)
      iex> {fork[:id], fork[:origin], AshAgent.Context.count_messages(fork)}
      {"c2", %{id: "c1", iteration: 1}, 2}
  """
  @doc since: "0.1.0"
  @spec fork(sessions(), id(), id(), keyword()) ::
          {:ok, Context.t()}
          | {:error, Error.t() | Context.Error.t() | {:store_error, term()}}
  def fork(sessions, id, fork, opts \\ [])
      when is_server(sessions) and is_binary(id) and is_binary(fork) do
    opts = Options.validate!(opts, @fork)

    with {:ok, context} <- context(sessions, id) do
      fork =
        context
        |> Context.rewind(to: opts[:to] || context.current_iteration)
        |> Context.fork(id: fork)

      store = Node.config!(sessions).store
      with {:ok, _kept} <- Journal.ask(fn -> Store.create(store, fork) end), do: {:ok, fork}
    end
  rescue
    error in Context.Error -> {:error, error}
  end

  @doc """
  Returns `{:ok, snapshot}` with the context and the current answer, see `AshAgent.Session.snapshot/1`.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Snapshots, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, _result} = AshAgent.Sessions.prompt(Example.Snapshots, "c1", "Hi")
      iex> {:ok, snapshot} = AshAgent.Sessions.snapshot(Example.Snapshots, "c1")
      iex> AshAgent.Context.count_messages(snapshot.context)
      2
  """
  @doc since: "0.1.0"
  @spec snapshot(sessions(), id()) :: {:ok, Session.snapshot()} | {:error, Error.t()}
  def snapshot(sessions, id) when is_server(sessions) and is_binary(id),
    do: Router.ask(sessions, id, :find, &{:ok, Session.snapshot(&1)})

  @doc """
  Sends every change of a conversation to the calling process, see `AshAgent.Session.subscribe/2`.

  The session stays in memory while it has subscribers. When it ends, `{:DOWN, ref, :process, _, _}` arrives: subscribe
  again, and continue with the new snapshot.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Subscriptions, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, _result} = AshAgent.Sessions.prompt(Example.Subscriptions, "c1", "Hi")
      iex> {:ok, ref, _snapshot} = AshAgent.Sessions.subscribe(Example.Subscriptions, "c1")
      iex> {:ok, _ref} = AshAgent.Sessions.prompt_async(Example.Subscriptions, "c1", "And now?")
      iex> receive do
      ...>   {AshAgent.Session, ^ref, _number, {:context, context}} -> AshAgent.Context.count_messages(context)
      ...> end
      3
  """
  @doc since: "0.1.0"
  @spec subscribe(sessions(), id(), keyword()) ::
          {:ok, reference(), Session.snapshot()} | {:error, Error.t()}
  def subscribe(sessions, id, opts \\ []) when is_server(sessions) and is_binary(id),
    do: request(sessions, id, :find, :subscribe, [], opts)

  @doc """
  Returns `{:ok, pid}` with the session of a conversation, whichever node it is on, for the other functions of `AshAgent.Session`.
  It may stop at any time, for instance when it has been idle.

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Finding, store: store, llm: fn _ -> {:ok, %{content: "Hello!"}} end)
      iex> {:ok, _result} = AshAgent.Sessions.prompt(Example.Finding, "c1", "Hi")
      iex> {:ok, session} = AshAgent.Sessions.fetch_session(Example.Finding, "c1")
      iex> AshAgent.Session.put_llm(session, fn _ -> {:ok, %{content: "Bye!"}} end)
      :ok
  """
  @doc since: "0.1.0"
  @spec fetch_session(sessions(), id()) :: {:ok, pid()} | {:error, Error.t()}
  def fetch_session(sessions, id) when is_server(sessions) and is_binary(id),
    do: Router.ask(sessions, id, :find, &{:ok, &1})

  @doc """
  Returns the pids of this node's sessions, including those that are just starting or stopping.

  ## Examples

      for session <- AshAgent.Sessions.list_sessions(MyApp.Sessions), do: AshAgent.Session.status(session)
  """
  @doc since: "0.1.0"
  @spec list_sessions(sessions()) :: [pid()]
  def list_sessions(sessions) when is_atom(sessions) and sessions != nil,
    do: sessions |> Node.config!() |> Node.list_sessions()

  @doc """
  Returns `{:ok, rows}` with what the conversations of all nodes do, or `{:error, %AshAgent.Store.Error{}}`. Takes the name of sessions or
  a store, of which it reads what was stored last, and claims nothing.

  A row is a map:

    * `:id`, `:status`, `:owner`, `:updated_at` - see `AshAgent.Store.Conversation`
    * `:since`, `:age` - when its last turn began, and how many milliseconds ago that was
    * `:iterations`, `:cost`, `:failures` - as in `AshAgent.Trace.Stored.list/2`
    * `:failure` - the last one of `AshAgent.Context.Audit.failures/1`, without its `:message`, or `nil`
    * `:calls` - the names of the tools whose calls wait for a decision
    * `:late` - the names of the tools whose results come later
    * `:prompts` - how many messages wait
    * `:parked` - why the turn was given up or paused, or `nil`

  If a conversation cannot be loaded, its row has the `:error` in words, and `nil` for what is not known.

  ## Options

  #{Options.docs(Overview.schema())}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Store.create(store, AshAgent.Context.new("Hello!", id: "c1"), status: :parked)
      iex> {:ok, [row]} = AshAgent.Sessions.overview(store)
      iex> {row.id, row.status, row.iterations, row.owner}
      {"c1", :parked, 1, nil}
  """
  @doc since: "0.1.0"
  @spec overview(sessions() | Store.t(), keyword()) :: {:ok, [map()]} | {:error, Store.Error.t()}
  def overview(sessions_or_store, opts \\ []) do
    opts = Options.validate!(opts, Overview.schema())
    Overview.list(find_store(sessions_or_store), opts)
  end

  @doc """
  Prints the rows of `overview/2`, a line for each, and returns `:ok` or its error. For a release:

      bin/my_app rpc 'AshAgent.Sessions.print_overview(MyApp.Sessions)'

  `mix ash_agent.sessions` prints the same, and also pauses, resumes and cancels turns. Characters that control a terminal are shown as
  escapes.
  """
  @doc since: "0.1.0"
  @spec print_overview(sessions() | Store.t(), keyword()) :: :ok | {:error, Store.Error.t()}
  def print_overview(sessions_or_store, opts \\ []) do
    with {:ok, rows} <- overview(sessions_or_store, opts),
         do: Enum.each(rows, &IO.puts(Overview.line(&1)))
  end

  # Stores have names, too.
  defp find_store(name) do
    with true <- is_atom(name),
         {:ok, config} <- Node.config(name),
         do: config.store,
         else: (_ -> name)
  end

  @doc """
  Returns whether the node takes new prompts: it is started and not being drained. For readiness probes.

  ## Examples

      iex> AshAgent.Sessions.ready?(Not.Started)
      false
  """
  @doc since: "0.1.0"
  @spec ready?(sessions()) :: boolean()
  def ready?(sessions) when is_atom(sessions) and sessions != nil do
    case Node.config(sessions) do
      {:ok, config} -> Node.ready?(config)
      :error -> false
    end
  end

  @doc """
  Prepares this node for its stop, and returns `:ok` when no session is left on it.

  From the first moment on, `ready?/1` is false, and prompts for this node's conversations are refused with `:draining`, or
  wait on other nodes until those can take the conversation over. Sessions without a run stop at once. A run stops once its
  current step, a model's answer or its tools' results, has been stored; its caller gets an error with the
  reason `:drained`, and another node continues the turn. Waiting prompts are in the store.

  ## Options

  #{Options.docs(@drain)}

  ## Examples

      iex> {:ok, store} = AshAgent.Store.SQLite.open(":memory:")
      iex> {:ok, _} = AshAgent.Sessions.start_link(name: Example.Drained, store: store, llm: fn _ -> {:ok, %{}} end)
      iex> AshAgent.Sessions.drain(Example.Drained, timeout: 1_000)
      :ok
      iex> AshAgent.Sessions.ready?(Example.Drained)
      false
  """
  @doc since: "0.1.0"
  @spec drain(sessions(), keyword()) :: :ok
  def drain(sessions, opts \\ []) when is_server(sessions) do
    opts = Options.validate!(opts, @drain)
    config = Node.config!(sessions)
    Node.drain(config, opts[:timeout] || config.drain)
  end

  # A conversation is not created for wrong options.
  defp request(sessions, id, mode, function, args, opts) do
    _checked = Session.Options.validate!(opts, function)
    Router.ask(sessions, id, mode, &apply(Session, function, [&1 | args] ++ [opts]))
  end
end
