defmodule AshAgent.TestSupport.Away do
  @moduledoc false

  # A session on one node, and what is asked of it from another. The functions run where the test calls them.

  alias AshAgent.{Context, Session}
  alias AshAgent.TestSupport.{StreamModel, Viewer}

  @doc "Starts a session that streams `pieces` when the process of the returned name is told to go on."
  def start(pieces) do
    test = self()

    holder =
      spawn(fn ->
        llm =
          StreamModel.new(fn _context, feed ->
            Process.register(self(), :model)
            for piece <- pieces, do: receive(do: (:go -> feed.(StreamModel.text(piece))))
            receive(do: (:go -> {:ok, feed.(StreamModel.finish())}))
          end)

        {:ok, session} = Session.start_link(llm: llm)
        {:ok, _ref} = Session.prompt_async(session, "Hi")
        send(test, {:session, session})
        receive(do: (:never -> :ok))
      end)

    receive do
      {:session, session} -> {session, holder}
    end
  end

  @doc "Lets the model stream the next pieces, and returns the number of the change they lead to."
  def go(session, pieces) do
    %{number: number} = Session.snapshot(session)
    model = wait(fn -> Process.whereis(:model) end)
    for _ <- 1..pieces, do: send(model, :go)
    wait(fn -> Session.snapshot(session).number >= number + pieces end)
  end

  defp wait(fun) do
    fun.() || receive(do: (:never -> :ok), after: (5 -> wait(fun)))
  end

  @doc "The conversation as its own node shows it."
  def messages(session), do: session |> Session.context() |> Context.to_messages()

  @doc "Subscribes in a process of its own, which answers `{:shown, number}` with what it shows then."
  def subscribe(session, opts) do
    caller = self()

    pid =
      spawn(fn ->
        {acknowledge?, opts} = Keyword.pop(opts, :acknowledge, false)
        viewer = Viewer.new(session, opts)
        send(caller, {:subscribed, self()})
        serve(viewer, acknowledge?)
      end)

    receive do
      {:subscribed, ^pid} -> pid
    end
  end

  defp serve(viewer, acknowledge?) do
    receive do
      {:shown, number, from} ->
        viewer = Viewer.until(viewer, number)
        send(from, {:shown, Map.take(viewer, [:messages, :text, :behind, :number])})
        serve(viewer, acknowledge?)
    after
      1 ->
        case Viewer.next(viewer, 1) do
          {:ok, viewer} ->
            if acknowledge?, do: Session.acknowledge(viewer.session, viewer.ref, viewer.number)
            serve(viewer, acknowledge?)

          :quiet ->
            serve(viewer, acknowledge?)
        end
    end
  end

  @doc "What a subscriber shows at a change."
  def shown(pid, number) do
    send(pid, {:shown, number, self()})
    receive(do: ({:shown, shown} -> shown))
  end

  @doc "What a snapshot from here has."
  def snapshot(session) do
    %{context: context} = snapshot = Session.snapshot(session)
    %{snapshot | context: Context.to_messages(context)}
  end
end
