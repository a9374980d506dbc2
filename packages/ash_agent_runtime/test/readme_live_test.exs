defmodule AshAgent.ReadmeLiveTest do
  # The README's LiveView against a session that fails, waits and ends.
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Live, only: [mount: 2, watch: 3]

  alias AshAgent.{LLM, Response, Session}
  alias AshAgent.LLM.Scripted
  alias AshAgent.TestSupport.Live

  setup_all do
    readme = File.read!(Path.join(__DIR__, "../../../README.md"))
    %{live: Live.compile(readme, "MyAppWeb.ChatLive")}
  end

  defp texts(assigns), do: for(message <- assigns.messages, do: Response.text(message))

  test "shows an answer, a failure and the end of its session", %{live: live} do
    llm = Scripted.new(["Hello there!", {:error, %LLM.Error{reason: :test, kind: :overloaded}}])
    {:ok, session} = Session.start_link(llm: llm)
    socket = mount(live, session)

    {:ok, _} = Session.prompt(session, "Hi")
    socket = watch(live, socket, &("Hello there!" in texts(&1)))

    {:error, _} = Session.prompt(session, "And?")
    socket = watch(live, socket, &(&1.notice == "The turn failed (overloaded)."))
    assert texts(socket.assigns) == ["Hi", "Hello there!", "And?"]

    GenServer.stop(session)
    socket = watch(live, socket, &(&1.notice == "The agent has stopped."))
    assert socket.assigns.session == nil
  end

  test "shows the whole conversation again when it fell behind", %{live: live} do
    {:ok, session} = Session.start_link(llm: Scripted.new(["Hello there!"]))
    socket = mount(live, session)
    {:ok, _} = Session.prompt(session, "Hi")
    {:noreply, socket} = live.handle_info({Session, socket.assigns.ref, 9, :behind}, socket)
    assert texts(socket.assigns) == ["Hi", "Hello there!"]
  end
end
