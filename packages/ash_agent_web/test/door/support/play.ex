defmodule AshAgent.Door.Play do
  @moduledoc false

  # An agent that plays what its person says: each text is a scene. Its ids and times are the same in every run, so what a door sends
  # of it is, too.

  @behaviour AshAgent.LLM

  alias AshAgent.{Context, Door, LLM, Response, Sessions, Store}
  alias AshAgent.Runtime.{AskUser, SubAgent}
  alias AshAgent.Door.{Asks, Clients, Reader}

  @text %{"properties" => %{"text" => %{"type" => "string"}}, "required" => ["text"]}
  @form %{
    "type" => "object",
    "properties" => %{"name" => %{"type" => "string"}, "seats" => %{"type" => "integer"}},
    "required" => ["name", "seats"]
  }

  @doc "A name for the sessions of a test: those of the test before may still be ending."
  def name(%{module: module, test: test}),
    do: Module.concat(module, "S#{:erlang.phash2(test)}")

  @doc "Starts the sessions of a store under a name. The options are those of sessions."
  def sessions(name, opts \\ []) do
    {:ok, store} = if opts[:store], do: {:ok, opts[:store]}, else: Store.SQLite.open(":memory:")

    Sessions.start_link(
      [name: name, store: store, llm: {__MODULE__, sessions: name}, tools: tools()] ++
        [approval: &approval/2] ++ Keyword.delete(opts, :store)
    )
  end

  @doc "A door for these sessions, in which everybody has the conversations that begin with their name."
  def door(name, port, opts \\ []) do
    host = "127.0.0.1:#{port}"

    own = [
      sessions: name,
      identify: &__MODULE__.identify/1,
      origins: ["http://#{host}"],
      cookies: false,
      page_tools: ["alert"]
    ]

    Door.new(Keyword.merge(own, opts))
  end

  ## On one of several nodes, where the test calls it

  @doc "Starts sessions on a file that the nodes share, and a door."
  def start_node(path) do
    {:ok, _} = Application.ensure_all_started(:ash_agent_web)
    Logger.configure(level: :none)

    AshAgent.TestSupport.Nodes.outlive(fn ->
      {:ok, store} = Store.SQLite.open(path)
      restore = fn %{name: name} -> {:ok, %{name: name}} end
      sessions(__MODULE__, store: store, restore_context: restore)
    end)
  end

  @doc "Asks this node's door, and returns the chunks."
  def ask_here(request), do: __MODULE__ |> door(Asks.port(), ai: 7) |> Asks.chunks(request)

  @doc "Serves this node's door, and returns the port."
  def serve(opts) do
    AshAgent.TestSupport.Nodes.outlive(fn ->
      door = &door(__MODULE__, &1, opts)
      {:ok, server} = Door.Server.start_link(door: door)
      :persistent_term.put({__MODULE__, :port}, Door.Server.port(server))
      {:ok, server}
    end)

    :persistent_term.get({__MODULE__, :port})
  end

  @doc "Asks this node's door, and returns the events with their ids."
  def events_here(request) do
    {200, _headers, {:stream, bytes}} = Door.call(door(__MODULE__, Asks.port(), ai: 7), request)
    bytes |> Enum.to_list() |> IO.iodata_to_binary() |> Asks.events()
  end

  @doc "Waits until the model waits, and returns the PID of the VM."
  def await_model do
    Clients.await_model()
    System.pid()
  end

  def go, do: send(Clients.await_model(), :go)

  @doc "The header `authorization` names somebody, as whom one may see what begins with that name."
  def identify(%{headers: headers, asks: id}) do
    case List.keyfind(headers, "authorization", 0) do
      # A new conversation gets a name.
      {_, "Bearer " <> name} when id == nil ->
        new = "#{name}-#{System.unique_integer([:positive])}"
        {:ok, %{conversation: new, runtime_context: %{name: name}, metadata: %{name: name}}}

      {_, "Bearer " <> name} ->
        if String.starts_with?(id, name <> "-"),
          do:
            {:ok,
             %{
               conversation: id,
               runtime_context: %{name: name},
               metadata: %{name: name},
               by: name
             }},
          else: {:error, :forbidden}

      nil ->
        {:error, :unauthenticated}
    end
  end

  def tools do
    %{
      "look" => fn %{"place" => place} -> {:ok, %{"seen" => place}} end,
      "fail" => fn _ -> {:error, "there is nothing"} end,
      "clean_up" => fn %{"path" => path} -> {:ok, "cleaned #{path}"} end,
      "whose" => fn _, %{name: name} -> {:ok, name} end,
      "big" => fn _ -> {:ok, String.duplicate("x", 1_000_000)} end,
      "ask_user" => AskUser.tool(),
      "seats" => AskUser.tool(name: "seats", form: @form),
      # A page runs it.
      "alert" => AskUser.tool(name: "alert", description: "Shows a text", parameters: @text),
      "helper" => SubAgent.tool(name: "helper", llm: {__MODULE__, []})
    }
  end

  defp approval(%{name: "clean_up"}, _), do: :ask
  defp approval(_call, _), do: :approve

  ## The model

  @impl true
  def chat(_context, _opts), do: {:error, :only_streams}

  @impl true
  def stream(context, opts, fun) do
    steps = context |> scene() |> play(context.current_iteration - Context.turn_start(context))
    run(steps, Response.new(nil, model: "play"), [id: context[:id]] ++ opts, fun)
  end

  defp scene(context) do
    context
    |> Context.get_iteration_messages(Context.turn_start(context))
    |> Enum.filter(&Reader.said?/1)
    |> List.last()
    |> Map.get(:content)
    |> Reader.text()
  end

  defp run([], response, _opts, fun), do: {:ok, push(response, {:finish, :stop}, fun)}

  defp run([step | steps], response, opts, fun) do
    case step do
      # The session dies in the middle of its answer, once.
      :die ->
        id = opts[:id]

        unless :persistent_term.get({__MODULE__, opts[:sessions], id}, false) do
          :persistent_term.put({__MODULE__, opts[:sessions], id}, true)
          {:ok, session} = Sessions.fetch_session(opts[:sessions], id)
          Process.sleep(100)
          Process.exit(session, :kill)
          Process.sleep(:infinity)
        end

        run(steps, response, opts, fun)

      :refuse ->
        {:ok, push(response, {:finish, :refusal}, fun)}

      {:sleep, time} ->
        Process.sleep(time)
        run(steps, response, opts, fun)

      # Until the test lets it.
      {:wait, name} ->
        true = Process.register(self(), name)
        receive do: (:go -> Process.unregister(name))
        run(steps, response, opts, fun)

      {:retry, wait} ->
        opts[:on_retry].(%{attempt: 1, wait: wait, error: error(:rate_limited, nil)})
        Process.sleep(wait)
        run(steps, response, opts, fun)

      {:error, kind} ->
        {:error, error(kind, response)}

      {:calls, calls} ->
        response =
          for {{id, name, json}, n} <- Enum.with_index(calls), reduce: response do
            response ->
              response = push(response, {:tool_call_started, n, id, name}, fun)
              half = div(byte_size(json), 2)

              response =
                push(response, {:tool_call_arguments, n, binary_part(json, 0, half)}, fun)

              rest = binary_part(json, half, byte_size(json) - half)
              push(response, {:tool_call_arguments, n, rest}, fun)
          end

        {:ok, push(response, {:finish, :tool_calls}, fun)}

      {kind, text} ->
        response =
          for word <- Regex.scan(~r/\S+\s*/, text), reduce: response do
            response -> push(response, {kind, hd(word)}, fun)
          end

        run(steps, response, opts, fun)
    end
  end

  defp push(response, delta, fun) do
    {:ok, response, events} = Response.push(response, [delta])
    if events != [], do: fun.(events, response)
    response
  end

  defp error(:rate_limited, response),
    do:
      LLM.Error.from_transport({:connection, :closed})
      |> Map.merge(%{
        response: response,
        kind: :rate_limited,
        status: 429,
        provider_message: "the secret words of a provider"
      })

  defp error(_cut, response),
    do: %{
      LLM.Error.from_transport({:connection, :closed})
      | response: response && Response.interrupt(response, :closed)
    }

  ## The scenes

  defp play("hello", _), do: [text: "Hello, Ada!"]
  defp play("think", _), do: [thinking: "Let me see. ", text: "I have seen it."]

  defp play("two calls", 0),
    do: [text: "I look.", calls: [{"a", "look", ~s({"place":"here"})}, {"b", "fail", "{}"}]]

  defp play("two calls", 1), do: [text: "Both are done."]

  defp play("ask", 0),
    do: [
      text: "May I?",
      calls: [{"a", "look", ~s({"place":"here"})}, {"b", "clean_up", ~s({"path":"/tmp"})}]
    ]

  defp play("ask", 1), do: [text: "So be it."]

  defp play("ask twice", 0),
    do: [calls: [{"a", "clean_up", ~s({"path":"/a"})}, {"b", "clean_up", ~s({"path":"/b"})}]]

  defp play("ask twice", 1), do: [text: "That was both."]

  defp play("declined", _), do: [{:text, "I will not."}, :refuse]
  defp play("typed", _), do: [text: ~s({"city": "Prague", ), sleep: 60, text: ~s("days": 3})]
  defp play("killed", _), do: [{:text, "one two "}, :die, {:text, "three"}]

  defp play("question", 0),
    do: [calls: [{"a", "ask_user", ~s({"question":"Which seat?","choices":["window","aisle"]})}]]

  defp play("question", 1), do: [text: "Booked."]
  defp play("form", 0), do: [calls: [{"a", "seats", ~s({"question":"Who travels?"})}]]
  defp play("form", 1), do: [text: "Booked."]

  defp play("alert", 0),
    do: [calls: [{"a", "look", ~s({"place":"here"})}, {"b", "alert", ~s({"text":"Boo"})}]]

  defp play("alert", 1), do: [text: "You saw it."]

  defp play("everything", 0) do
    ask = {"a", "ask_user", ~s({"question":"Why?"})}
    [calls: [ask, {"b", "clean_up", ~s({"path":"/a"})}, {"c", "alert", ~s({"text":"Boo"})}]]
  end

  defp play("everything", 1), do: [text: "That was all."]
  defp play("helper", 0), do: [calls: [{"a", "helper", ~s({"task":"hello"})}]]
  defp play("helper", 1), do: [text: "It is done."]
  defp play("whose", 0), do: [calls: [{"a", "whose", "{}"}]]
  defp play("whose", 1), do: [text: "Yours."]
  defp play("cut", _), do: [text: "This is half of", error: :closed]
  defp play("refused", _), do: [error: :rate_limited]
  defp play("retry", _), do: [retry: 5, text: "At last."]
  defp play("slow", _), do: Enum.flat_map(1..40, &[text: "word#{&1} ", sleep: 25])
  defp play("wait", _), do: [text: "one two ", wait: :the_model, text: "three four"]

  # Another answer each time.
  defp play("wait anew", _) do
    text = "#{node()}-#{System.unique_integer([:positive])} "
    [text: text, wait: :the_model, text: "done"]
  end

  defp play("wait calls", 0),
    do: [text: "Look: ", wait: :the_model, calls: [{"a", "look", ~s({"place":"here"})}]]

  defp play("wait calls", 1), do: [text: "Seen."]
  defp play("big", 0), do: [calls: [{"a", "big", "{}"}]]
  defp play("big", 1), do: [text: "It was big."]
  defp play("long", _), do: [text: Enum.map_join(1..10_000, " ", &"w#{&1}")]
  # Any answers, one after the other.
  defp play("script " <> term, n),
    do: term |> Base.decode64!() |> :erlang.binary_to_term() |> Enum.at(n, [])

  defp play(_other, _), do: [text: "Pardon?"]
end
