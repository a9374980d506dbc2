if Code.ensure_loaded?(AshPostgres.DataLayer) do
  defmodule AshAgent.Integration.ChatNodes do
    @moduledoc false

    # Conversations on one of several nodes with one database. Each function runs where the test calls it.

    alias AshAgent.{Context, Conversation}
    alias AshAgent.Integration.{Repo, TableChat}
    alias AshAgent.TestSupport.{Nodes, Wait}

    @ann %{id: "a1", name: "ann", role: :agent}
    @wait 120_000

    @doc "Starts what an application with conversations has."
    def start do
      for app <- [:ash_agent_resources, :ash_postgres, :ecto_sql, :postgrex],
          do: {:ok, _} = Application.ensure_all_started(app)

      Logger.configure(level: :none)
      Application.put_env(:ash_agent_resources, :llm, &model/1)
      Nodes.outlive(fn -> Repo.start_link(log: false, pool_size: 5) end)
    end

    def os_pid, do: System.pid()

    @doc "Starts a conversation."
    def open, do: TableChat.start!(%{}, opts()).id

    @doc "Says something: what the turn gave, or `:kept` if the message waits."
    def say(id, text), do: id |> chat() |> TableChat.say(text, opts()) |> shown()

    @doc "Says several things at once."
    def say_at_once(id, texts) do
      texts
      |> Enum.map(&Task.async(fn -> say(id, &1) end))
      |> Task.await_many(@wait)
    end

    @doc "Resumes a conversation as soon as nobody has it."
    def resume(id) do
      Wait.until(
        fn ->
          answer = id |> chat() |> TableChat.resume(opts()) |> shown()
          if answer != {:error, :busy}, do: answer
        end,
        @wait
      )
    end

    @doc "Says something in a process of its own, which nobody waits for."
    def start_saying(id, text), do: spawn(fn -> say(id, text) end) && :ok

    @doc "Waits for a tool that waits."
    def await_held, do: Wait.until(fn -> Process.whereis(:held) end, @wait) && :ok

    def texts(id) do
      for %{content: text} <- Context.to_messages(chat(id, [:context]).context),
          is_binary(text),
          do: text
    end

    def status(id), do: chat(id, [:status]).status

    defp chat(id, load \\ []), do: Ash.get!(TableChat, id, [load: load] ++ who())

    defp who, do: [actor: @ann, tenant: "acme"]

    # The lease of a node that was killed is over soon.
    defp opts do
      options = [
        approval: :auto,
        tools: %{"pay" => %{function: &pay/2, repeat: :never}},
        lease: 5_000
      ]

      [context: %{ash_agent: %{options: options}}] ++ who()
    end

    defp shown({:ok, %{__metadata__: %{run: run}}}), do: {:ok, run.output}
    defp shown({:ok, _record}), do: :kept
    defp shown({:error, %{errors: [%Conversation.Error{reason: reason}]}}), do: {:error, reason}

    # Answers with the node's name.
    defp model(context) do
      case context |> Context.to_messages() |> List.last() do
        %{content: "pay"} -> {:ok, %{tool_calls: [%{id: "call_1", name: "pay", arguments: %{}}]}}
        %{content: [_ | _]} -> {:ok, %{content: "paid #{node()}"}}
        %{content: text} -> {:ok, %{content: "re: #{text} #{node()}"}}
      end
    end

    # Its effect is there for all to see, and it ends with its node.
    defp pay(_arguments, context) do
      Repo.query!("INSERT INTO effects (conversation_id) VALUES ($1)", [context.conversation_id])
      Process.register(self(), :held)
      receive do: (:never -> {:ok, "paid"})
    end
  end
end
