defmodule AshAgent.MCP.ResourceTest do
  # An MCP server of an Ash resource: everything is an action, so its policies and tenants say who may.
  use ExUnit.Case, async: false

  import AshAgent.TestSupport.McpAsks, except: [identify: 1]

  alias AshAgent.{Context, Conversation}
  alias AshAgent.Context.JSON
  alias AshAgent.Web.Page

  @moduletag :ex_mcp
  @moduletag :capture_log
  @moduletag integrations: ["Ash", "ex_mcp"]

  @elicits %{"elicitation" => %{}}
  @tasks Map.put(@elicits, "extensions", %{"io.modelcontextprotocol/tasks" => %{}})
  @hi [{:text, "Hi, "}, {:text, "ann."}, {:finish, "stop"}]

  setup_all do
    for child <- Page.children(false), do: start_supervised!(child)
    :ok
  end

  setup do
    Application.put_env(:ash_agent_web, :player, self())
    test = self()
    on_exit(fn -> Conversation.await_turns(test) end)
    :ok
  end

  defp chat(opts \\ []),
    do: server(Keyword.merge([resource: Page.Chat, identify: &identify/1, task_after: 200], opts))

  defp identify(%{headers: headers, asks: asks}) do
    {_, "Bearer " <> name} = List.keyfind(headers, "authorization", 0)
    {_, org} = List.keyfind(headers, "x-org", 0, {nil, "acme"})
    actor = %{id: name, name: name, role: if(name == "rob", do: :reader, else: :agent)}
    own = %{principal: name, actor: actor, tenant: org, by: name}
    {:ok, if(asks == nil, do: Map.put(own, :start, %{title: "Over MCP"}), else: own)}
  end

  defp play(steps) do
    assert_receive {:asked, model, _text}, 20_000
    for step <- steps, do: send(model, step)
  end

  defp say(server, arguments, plays, opts) do
    asked = Task.async(fn -> call(server, "ask_agent", arguments, opts) end)
    Enum.each(plays, &play/1)
    Task.await(asked, 20_000)
  end

  defp calls(name, arguments),
    do: [{:call, "c1", name, JSON.encode(arguments)}, {:finish, "tool_calls"}]

  test "the first message starts a record, and the next ones are for whoever may, in their tenant" do
    server = chat()
    first = say(server, %{"message" => "Hi"}, [@hi], as: "ann")
    assert %{"answer" => "Hi, ann.", "conversation" => id} = first["structuredContent"]
    go_on = %{"message" => "And?", "conversation" => id}
    assert %{"answer" => "Hi, ann."} = say(server, go_on, [@hi], as: "ann")["structuredContent"]

    for opts <- [[as: "eve"], [as: "rob"], [as: "ann", headers: [{"x-org", "other"}]]] do
      assert %{"isError" => true, "content" => [%{"text" => "unknown conversation"}]} =
               call(server, "ask_agent", go_on, opts)
    end

    refute_received {:asked, _, _}
  end

  test "a name that the application has for a conversation is for its policies alone" do
    record = Page.Chat.start!(%{}, actor: %{id: "ann", name: "ann", role: :agent}, tenant: "acme")

    named = fn request ->
      with {:ok, own} <- identify(request),
           do: {:ok, own |> Map.delete(:start) |> Map.put(:conversation, request.asks || "")}
    end

    server = chat(identify: named)
    go_on = %{"message" => "Hi", "conversation" => record.id}
    assert %{"conversation" => id} = say(server, go_on, [@hi], as: "ann")["structuredContent"]
    assert id == record.id

    for opts <- [[as: "eve"], [as: "ann", headers: [{"x-org", "other"}]]],
        do: assert(%{"isError" => true} = call(server, "ask_agent", go_on, opts))

    for id <- ["1", "'; --", Ash.UUID.generate(), %{"not_eq" => ""}, %{"or" => [%{}]}, ["a"], 1],
        do:
          assert(
            %{"isError" => true} =
              call(server, "ask_agent", %{go_on | "conversation" => id}, as: "ann")
          )
  end

  test "a call waits in a task for who may decide, and runs as who asked" do
    server = chat()

    task =
      say(server, %{"message" => "Go"}, [calls("delete", %{path: "/a"})], as: "ann", caps: @tasks)

    assert %{"resultType" => "task", "taskId" => id} = task

    assert %{"status" => "input_required", "inputRequests" => requests} =
             await(server, id, as: "ann")

    assert [{question, %{"params" => %{"message" => words}}}] = Map.to_list(requests)
    assert words =~ ~s("path":"/a")
    yes = %{"action" => "accept", "content" => %{"approve" => true}}
    params = %{"taskId" => id, "inputResponses" => %{question => yes}}

    for opts <- [[as: "eve"], [as: "rob"], [as: "ann", headers: [{"x-org", "other"}]]],
        do:
          assert(
            %{"error" => %{"message" => "unknown task"}} =
              ask(server, "tasks/update", params, [caps: @tasks] ++ opts)
          )

    assert %{"result" => _} = ask(server, "tasks/update", params, caps: @tasks, as: "ann")
    play(@hi)
    assert %{"status" => "completed", "result" => result} = await(server, id, as: "ann")
    assert %{"answer" => "Hi, ann.", "conversation" => name} = result["structuredContent"]

    {:ok, record} =
      AshAgent.MCP.Server.Turn.conversation(server, %{principal: "ann", tenant: "acme"}, name)

    context =
      Ash.get!(Page.Chat, record,
        load: [:context],
        actor: %{id: "ann", name: "ann", role: :agent},
        tenant: "acme"
      ).context

    assert %{by: "ann"} = Context.Calls.tool_call_decision(context, "c1")
  end

  test "the same outside of a task, and a turn is cancelled" do
    server = chat()

    asked =
      say(server, %{"message" => "Go"}, [calls("delete", %{path: "/a"})],
        as: "ann",
        caps: @elicits
      )

    assert %{"inputRequests" => requests, "requestState" => state} = asked
    no = %{"action" => "decline"}
    answers = Map.new(requests, fn {id, _request} -> {id, no} end)

    params = %{
      "name" => "ask_agent",
      "arguments" => %{"message" => "Go"},
      "inputResponses" => answers,
      "requestState" => state
    }

    retry = Task.async(fn -> ask(server, "tools/call", params, caps: @elicits, as: "ann") end)
    play(@hi)
    assert %{"result" => %{"structuredContent" => %{"answer" => "Hi, ann."}}} = Task.await(retry)

    %{"taskId" => id} =
      call(server, "ask_agent", %{"message" => "Think"}, as: "ann", caps: @tasks)

    assert_receive {:asked, _model, _text}, 20_000
    assert %{"status" => "working"} = get(server, id, as: "ann")

    assert %{"result" => _} =
             ask(server, "tasks/cancel", %{"taskId" => id}, caps: @tasks, as: "ann")

    assert %{"status" => "cancelled"} = await(server, id, as: "ann")
  end

  test "who may read the record and not its words gets none" do
    server = server(resource: Page.HiddenChat, identify: &identify/1, wait: 1_000)
    result = say(server, %{"message" => "Hi"}, [@hi], as: "rob")
    assert %{"isError" => true} = result
    refute JSON.encode(result) =~ "Hi, ann."
  end
end
