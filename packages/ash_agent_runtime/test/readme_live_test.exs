defmodule AshAgent.ReadmeLiveTest do
  # The README's LiveView against a session that fails, waits and ends. Only what it uses of Phoenix is here; the tutorial's runs in Phoenix.
  use ExUnit.Case, async: false

  alias AshAgent.{LLM, Response, Session}
  alias AshAgent.LLM.Scripted

  defmodule Phoenix do
    defmacro __using__(_opts), do: quote(do: import(unquote(__MODULE__)))
    def assign(socket, values), do: update_in(socket.assigns, &Map.merge(&1, Map.new(values)))
    def update(socket, key, fun), do: update_in(socket.assigns[key], fun)
    defmacro sigil_H(_text, _modifiers), do: :shown
  end

  setup_all do
    readme = File.read!(Path.join(__DIR__, "../../../README.md"))
    [_, block] = Regex.run(~r/```elixir\n(defmodule MyAppWeb\.ChatLive.*?)```/s, readme)
    code = String.replace(block, "use Phoenix.LiveView", "use AshAgent.ReadmeLiveTest.Phoenix")
    # Assigns are only read by what Phoenix makes of the template.
    code = String.replace(code, "def render(assigns)", "def render(_assigns)")
    [{live, _}] = Code.compile_string(code)
    %{live: live}
  end

  defp mount(live, session) do
    {:ok, socket} = live.mount(%{}, %{"agent" => session}, %{assigns: %{}})
    socket
  end

  # Hands messages to the view until what it shows satisfies a function.
  defp watch(live, socket, shown?) do
    if shown?.(socket.assigns) do
      socket
    else
      receive do
        message ->
          {:noreply, socket} = live.handle_info(message, socket)
          watch(live, socket, shown?)
      after
        5_000 -> flunk("shown: #{inspect(socket.assigns)}")
      end
    end
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
