defmodule AshAgent.TestSupport.Agents do
  @moduledoc false

  # Sessions on one of several nodes, and what is asked of them there. Each function runs where the test calls it.

  import AshAgent.TestSupport.StoredSessions, only: [texts: 1]

  alias AshAgent.{Context, Sessions, Store}

  @name __MODULE__

  @doc "Starts the node's sessions on a file that the nodes share."
  def start(path, opts \\ []) do
    {:ok, _} = Application.ensure_all_started(:ash_agent_runtime)
    Logger.configure(level: :none)

    AshAgent.TestSupport.Nodes.outlive(fn ->
      {:ok, store} = Store.SQLite.open(path)
      :persistent_term.put(@name, store)

      tools = %{
        "pay" => &pay/2,
        "ask_user" => AshAgent.Runtime.AskUser.tool(),
        "build" => %{function: fn _, _ -> {:later, for: "ci"} end, late: true},
        "who" => fn _, context -> {:ok, context[:actor] || "nobody"} end
      }

      Sessions.start_link([name: @name, store: store, llm: &model/1, tools: tools] ++ opts)
    end)
  end

  # Answers with the node's name. It waits to be told to go on when it is asked to hold, and calls a tool when asked to pay.
  defp model(context) do
    case List.last(Context.to_messages(context)) do
      %{content: "hold " <> _ = text} ->
        hold()
        {:ok, %{content: "re: #{text} #{node()}"}}

      %{content: "ask" <> _} ->
        {:ok, %{tool_calls: [%{id: "q", name: "ask_user", arguments: %{"question" => "When?"}}]}}

      %{content: [%{tool_use_id: "q", content: answer} | _]} ->
        {:ok, %{content: "#{answer} #{node()}"}}

      %{content: "who" <> _} ->
        {:ok, %{tool_calls: [%{id: "w", name: "who", arguments: %{}}]}}

      %{content: "build" <> _} ->
        {:ok, %{tool_calls: [%{id: "b", name: "build", arguments: %{}}]}}

      %{content: [%{tool_use_id: "b", content: "This call is still" <> _} | _]} ->
        {:ok, %{content: "started #{node()}"}}

      %{content: [%{tool_use_id: "b"} | _]} ->
        {:ok, %{tool_calls: [%{id: "w", name: "who", arguments: %{}}]}}

      %{content: [%{tool_use_id: "w", content: who} | _]} ->
        {:ok, %{content: "#{who} #{node()}"}}

      %{content: "pay" <> _} ->
        {:ok, %{tool_calls: [%{id: "call_1", name: "pay", arguments: %{}}]}}

      %{content: [_ | _]} ->
        {:ok, %{content: "paid #{node()}"}}

      %{content: text} ->
        {:ok, %{content: "re: #{text} #{node()}"}}
    end
  end

  defp pay(_arguments, _context) do
    hold()
    {:ok, "paid"}
  end

  defp hold do
    Process.register(self(), :held)
    receive do: (:go -> Process.unregister(:held))
  end

  @doc "Waits for what holds, and lets it go on."
  def go, do: send(await_held(), :go)

  def await_held do
    AshAgent.TestSupport.Wait.until(fn -> Process.whereis(:held) end, 60_000)
  end

  @doc "Lets other nodes think that this one is on another machine: they cannot see whether it lives."
  def be_elsewhere,
    do: :persistent_term.put(AshAgent.Session.Program, "another.machine.1.1")

  @doc "Calls a function of `AshAgent.Sessions`; of what it returns, the texts are shown, which proves that they can be read here."
  def ask(function, args), do: Sessions |> apply(function, [@name | args]) |> shown()

  @doc "The same until it is not an error that is one of those reasons."
  def ask_until(function, args, reasons) do
    case ask(function, args) do
      {:error, reason} = error ->
        if label(reason) in reasons do
          Process.sleep(50)
          ask_until(function, args, reasons)
        else
          error
        end

      answer ->
        answer
    end
  end

  defp label(reason) when is_tuple(reason), do: elem(reason, 0)
  defp label(reason), do: reason

  defp shown({:ok, %{output: output, context: context}}), do: {:ok, output, texts(context)}
  defp shown({:ok, %Context{} = context}), do: {:ok, texts(context)}
  defp shown({:ok, %{context: context} = snapshot}), do: {:ok, snapshot.message, texts(context)}

  defp shown({:paused, %{context: context, calls: calls}}),
    do: {:paused, Enum.map(calls, & &1.id), texts(context)}

  defp shown({:error, %{reason: reason, context: context}}), do: {:error, reason, texts(context)}
  defp shown({:error, %{reason: reason}}), do: {:error, reason}
  defp shown(other), do: other

  @doc "Sends a prompt and collects its messages, and then those of a subscription."
  def listen(id, input) do
    {:ok, ref} = Sessions.prompt_async(@name, id, input)
    collect(ref, [])
  end

  defp collect(ref, seen) do
    receive do
      {AshAgent.Session, ^ref, {:context, context}} -> collect(ref, [texts(context) | seen])
      {AshAgent.Session, ^ref, reply} -> {Enum.reverse(seen), shown(reply)}
    end
  end

  @doc "Sends a prompt from a process that keeps the answer for `held_answer/0`."
  def start_prompt(id, input) do
    pid =
      spawn(fn ->
        answer = ask(:prompt, [id, input])
        receive do: ({:answer, from} -> send(from, {:answer, answer}))
      end)

    :persistent_term.put({@name, :prompt}, pid)
  end

  def start_held(id) do
    start_prompt(id, "hold it")
    await_held()
  end

  def held_answer do
    send(:persistent_term.get({@name, :prompt}), {:answer, self()})
    receive do: ({:answer, answer} -> answer)
  end

  # Whether it was killed before is for the test to find out.
  def go_if_held, do: if(held = Process.whereis(:held), do: send(held, :go))

  def os_pid, do: System.pid()

  @doc "Where a conversation's session is, asked of the store and of the sessions."
  def owner(id) do
    {:ok, kept} = Store.fetch(:persistent_term.get(@name), id)
    %{owner: kept.owner, epoch: kept.epoch, status: kept.status, texts: texts(kept.value)}
  end

  @doc "Finds whoever asked, by the metadata of their message."
  def restore(%{"who" => who}), do: {:ok, %{actor: who}}
  def restore(_other), do: :error

  @doc "The keys of the calls of a conversation that wait."
  def waiting(id) do
    {:ok, %{calls: calls}} = Sessions.waiting(@name, id: id)
    Enum.map(calls, & &1.key)
  end

  def calls(id), do: Store.calls(:persistent_term.get(@name), id)
  def drain(opts), do: Sessions.drain(@name, opts)
  def ready?, do: Sessions.ready?(@name)
  def session(id), do: Sessions.fetch_session(@name, id)

  def cut_off(others), do: AshAgent.TestSupport.Nodes.cut_off(others)

  @doc "Whether a process is there."
  def alive?(pid), do: Process.alive?(pid)

  @doc "Many at once, each in a process of its own."
  def at_once(function, args_of_each) do
    args_of_each
    |> Enum.map(&Task.async(fn -> ask(function, &1) end))
    |> Task.await_many(60_000)
  end
end
