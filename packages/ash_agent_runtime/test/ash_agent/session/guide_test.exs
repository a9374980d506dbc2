defmodule AshAgent.Session.GuideTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Live, only: [mount: 2, watch: 3]

  alias AshAgent.{LLM, Response, Session}
  alias AshAgent.TestSupport.{Guide, Live}

  @guide File.read!("guides/sessions.md")
  @live "MyAppWeb.AssistantLive"

  test "the guide does what it says" do
    assert @guide |> String.replace(~r/```elixir\ndefmodule .*?```\n/s, "") |> Guide.run() == 12
  end

  setup_all do: %{live: Live.compile(@guide, @live)}

  describe "its view" do
    defp texts(assigns), do: for(message <- assigns.messages, do: Response.text(message))

    defp click(live, socket, event, params) do
      {:noreply, socket} = live.handle_event(event, params, socket)
      socket
    end

    test "sends, and shows the answer and a failure", %{live: live} do
      error = {:error, %LLM.Error{reason: :test, kind: :overloaded}}
      {:ok, session} = Session.start_link(llm: LLM.Scripted.new(["Hello there!", error]))
      socket = mount(live, session)

      socket = click(live, socket, "send", %{"text" => "Hi"})
      socket = watch(live, socket, &(texts(&1) == ["Hi", "Hello there!"]))

      socket = click(live, socket, "send", %{"text" => "And?"})
      socket = watch(live, socket, &is_binary(&1.error))
      assert texts(socket.assigns) == ["Hi", "Hello there!", "And?"]

      GenServer.stop(session)
      assert watch(live, socket, &(&1.session == nil))
    end

    test "asks a person about each call", %{live: live} do
      calls = for id <- ~w(1 2), do: %{id: id, name: "clean_up", arguments: %{"room" => id}}
      tools = %{clean_up: fn %{"room" => room} -> {:ok, "cleaned #{room}"} end}

      {:ok, session} =
        Session.start_link(
          llm: LLM.Scripted.new([%{tool_calls: calls}, "Done."]),
          tools: tools,
          approval: fn _call, _tool_context -> :ask end
        )

      socket = live |> mount(session) |> then(&click(live, &1, "send", %{"text" => "Clean up"}))
      socket = watch(live, socket, &(length(&1.waiting) == 2))
      assert %{error: "Not now: " <> _} = click(live, socket, "send", %{"text" => "Hi"}).assigns

      socket = click(live, socket, "approve", %{"id" => "1"})
      assert [%{id: "2"}] = socket.assigns.waiting
      socket = click(live, socket, "deny", %{"id" => "2"})
      assert socket.assigns.waiting == []

      assert watch(live, socket, &(List.last(texts(&1)) == "Done."))
      assert [{:ok, "cleaned 1"}, {:error, _}] = results(session)
    end

    test "tells whoever approves on an old page that the call would run with something else", %{
      live: live
    } do
      tools = %{mail: fn _arguments -> {:ok, "sent"} end}
      call = %{id: "1", name: "mail", arguments: %{"to" => "everybody"}}
      llm = LLM.Scripted.new([%{tool_calls: [call]}])
      {:ok, session} = Session.start_link(llm: llm, tools: tools, approval: fn _, _ -> :ask end)

      socket = live |> mount(session) |> then(&click(live, &1, "send", %{"text" => "Tell them"}))
      socket = watch(live, socket, &(length(&1.waiting) == 1))
      old = put_in(socket.assigns.waiting, [%{call | arguments: %{"to" => "the board"}}])
      assert click(live, old, "approve", %{"id" => "1"}).assigns.error =~ ~s(differ at ["to"])
      assert {:paused, [%{arguments: %{"to" => "everybody"}}]} = Session.status(session)
    end

    test "stops a turn", %{live: live} do
      {:ok, session} = Session.start_link(llm: fn _context -> Process.sleep(:infinity) end)
      socket = live |> mount(session) |> then(&click(live, &1, "send", %{"text" => "Think"}))
      socket = click(live, socket, "stop", %{})
      assert watch(live, socket, &is_binary(&1.error)).assigns.error =~ "cancelled"
      assert Session.status(session) == :idle
    end

    test "shows the whole conversation again when it fell behind", %{live: live} do
      {:ok, session} = Session.start_link(llm: LLM.Scripted.new(["Hello there!"]))
      socket = mount(live, session)
      {:ok, _} = Session.prompt(session, "Hi")
      {:noreply, socket} = live.handle_info({Session, socket.assigns.ref, 9, :behind}, socket)
      assert texts(socket.assigns) == ["Hi", "Hello there!"]
    end

    defp results(session) do
      for iteration <- Session.context(session), call <- iteration.tool_calls, do: call.result
    end
  end
end
