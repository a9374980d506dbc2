defmodule AshAgent.DoorResourceTest do
  # A door to an Ash resource: everything is an action, so its policies and tenants say who may.
  use ExUnit.Case, async: false

  import AshAgent.Door.Asks

  alias AshAgent.{Context, Conversation, Door}
  alias AshAgent.Context.JSON
  alias AshAgent.TestSupport.Wait
  alias AshAgent.Web.Page

  @moduletag :capture_log
  @moduletag integrations: ["Ash"]

  setup_all do
    for child <- Page.children(false), do: start_supervised!(child)
    :ok
  end

  setup context do
    Application.put_env(:ash_agent_web, :player, self())
    test = self()
    on_exit(fn -> Conversation.await_turns(test) end)
    %{door: door(context[:door] || [])}
  end

  defp door(opts) do
    own = [resource: Page.Chat, identify: &identify/1, origins: ["http://127.0.0.1:4000"]]
    Door.new(Keyword.merge(own ++ [cookies: false], opts))
  end

  # Who asks, and for which tenant, as the application knows it.
  defp identify(%{headers: headers, asks: asks}) do
    {_, "Bearer " <> name} = List.keyfind(headers, "authorization", 0)
    {_, org} = List.keyfind(headers, "x-org", 0, {nil, "acme"})
    role = if name == "rob", do: :reader, else: :agent
    # Somebody else who may do all that ann may.
    actor = %{id: name, name: String.replace(name, "boss", "ann"), role: role}
    own = %{actor: actor, tenant: org}

    case asks do
      nil -> {:ok, Map.put(own, :start, %{title: "A response"})}
      "new-" <> title -> {:ok, Map.put(own, :start, %{title: title})}
      id -> {:ok, Map.put(own, :conversation, id)}
    end
  end

  defp rights(name, org \\ "acme"),
    do: [actor: %{id: name, name: name, role: :agent}, tenant: org]

  defp create(name, org \\ "acme"), do: Page.Chat.start!(%{}, rights(name, org)).id

  defp as(request, name, org \\ "acme") do
    headers =
      List.keyreplace(request.headers, "authorization", 0, {"authorization", "Bearer #{name}"})

    %{request | headers: [{"x-org", org} | headers]}
  end

  # The model says what the test lets it.
  defp ask_and_play(door, request, plays) do
    asked = Task.async(fn -> chunks(door, request) end)
    for play <- plays, do: play(play)
    Task.await(asked, 20_000)
  end

  defp play(steps) do
    assert_receive {:asked, model, _text}, 20_000
    for step <- List.wrap(steps), do: send(model, step)
  end

  @hi [{:text, "Hi, "}, {:text, "ann."}, {:finish, "stop"}]

  defp call(name, arguments, id \\ "c1"),
    do: [{:call, id, name, JSON.encode(arguments)}, {:finish, "tool_calls"}]

  defp context(id, name \\ "ann"),
    do: Ash.get!(Page.Chat, id, [load: [:context, :status]] ++ rights(name))

  defp paused(door, name, arguments) do
    id = create("ann")
    chunks = ask_and_play(door, say(id, "Go") |> as("ann"), [call(name, arguments)])
    {id, approvals(chunks)}
  end

  for protocol <- [:ai_sdk, :ag_ui] do
    @tag door: [protocol: protocol]
    @protocol protocol
    test "a turn is the action :say, and is told from its beginning to its end, over #{protocol}",
         %{
           door: door
         } do
      id = create("ann")
      chunks = ask_and_play(door, ask(@protocol, id, "Hi") |> as("ann"), [@hi])
      text = for %{"delta" => delta} <- chunks, into: "", do: delta
      assert text == "Hi, ann."
      assert last(chunks)["type"] in ["finish", "RUN_FINISHED"]
      # Said once.
      again = chunks(door, ask(@protocol, id, "Hi") |> as("ann"))
      assert for(%{"delta" => delta} <- again, into: "", do: delta) == "Hi, ann."
      refute_received {:asked, _, _}
      assert {204, _, _} = Door.call(door, request("GET", [id, "stream"]) |> as("ann"))
      {200, _, json} = Door.call(door, request("GET", [id, "messages"]) |> as("ann"))
      refute IO.iodata_to_binary(json) =~ "secret of this house"
      assert [%{"id" => "m1"}, _answer] = JSON.decode!(json)
    end
  end

  test "what a policy refuses is not there", %{door: door} do
    id = create("ann")

    for {name, org} <- [{"eve", "acme"}, {"ann", "other"}, {"eve", "other"}],
        {method, path, body} <- [
          {"GET", [id, "stream"], nil},
          {"GET", [id, "messages"], nil},
          {"POST", [id, "stop"], nil},
          {"POST", [], %{id: id, messages: [message("m", "Hi")]}}
        ] do
      asked = request(method, path, body) |> as(name, org)
      assert refused(door, asked) == {404, "not_found"}, inspect({name, org, path})
    end

    for id <- [Ash.UUID.generate(), "1", "'; --"],
        do:
          assert(
            refused(door, request("GET", [id, "messages"]) |> as("ann")) == {404, "not_found"}
          )

    refute_received {:asked, _, _}
  end

  test "who may read and not say is refused, and nothing is said", %{door: door} do
    id = create("rob")
    assert refused(door, say(id, "Hi") |> as("rob")) == {404, "not_found"}
    assert {200, _, _} = Door.call(door, request("GET", [id, "messages"]) |> as("rob"))
    refute_received {:asked, _, _}
    assert Context.count_messages(context(id, "rob").context) == 1
  end

  test "who may read the record and not its words sees none", %{} do
    door = door(resource: Page.HiddenChat)
    id = Page.HiddenChat.start!(%{}, rights("rob")).id

    for path <- ["stream", "messages"],
        do: assert(refused(door, request("GET", [id, path]) |> as("rob")) == {404, "not_found"})

    id = Page.HiddenChat.start!(%{}, rights("ann")).id
    assert {200, _, _} = Door.call(door, request("GET", [id, "messages"]) |> as("ann"))
  end

  test "a call is decided about by who may, once, with the arguments that were shown", %{
    door: door
  } do
    {id, [approval]} = paused(door, "delete", %{path: "/a"})
    decision = decide(id, [{approval, true}])
    # A reader of the same name, a stranger, another tenant.
    rob =
      update_in(
        decision.headers,
        &List.keyreplace(&1, "authorization", 0, {"authorization", "Bearer rob"})
      )

    assert refused(door, rob) == {404, "not_found"}
    assert refused(door, decision |> as("eve")) == {404, "not_found"}
    assert refused(door, decision |> as("ann", "other")) == {404, "not_found"}
    assert refused(door, decide(id, [{"other", true}]) |> as("ann")) == {409, "not_waiting"}
    chunks = ask_and_play(door, decision |> as("ann"), [@hi])
    assert %{"output" => "deleted /a"} = Enum.find(chunks, & &1["output"])
    assert text(chunks) == "Hi, ann."
    assert refused(door, decision |> as("ann")) == {409, "not_waiting"}
    assert %{by: "ann"} = Context.Calls.tool_call_decision(context(id).context, "c1")
  end

  test "what was shown of a call before it was asked about anew decides nothing", %{door: door} do
    for resource <- [Page.Chat, Page.PlainChat] do
      id = resource.start!(%{}, rights("ann")).id
      door = %{door | place: resource}
      call = call("delete", %{path: "/a"})
      assert [first] = approvals(ask_and_play(door, say(id, "Go") |> as("ann"), [call]))
      record = Ash.get!(resource, id, rights("ann"))
      {:ok, stored} = AshAgent.Store.fetch(Page.store(), Conversation.Info.key(record))
      [shown] = Context.Calls.undecided_tool_calls(stored.value)
      noted = AshAgent.Runtime.Repeat.note_anew(stored.value, "c1", 1)
      {:ok, _} = AshAgent.Store.append(Page.store(), stored, noted, status: :paused)
      assert refused(door, decide(id, [{first, true}]) |> as("ann")) == {409, "not_waiting"}

      # An action of one's own without the argument has the id alone.
      identity = Map.new(rights("ann") ++ [conversation: id])
      decide = &Door.Source.Ash.decide(resource, identity, &1, &2, nil)

      if resource == Page.Chat do
        for verdict <- [:approve, :deny, {:edit, %{}}],
            do: assert(decide.(shown, verdict) == {:error, :not_waiting})
      end

      assert decide.(Map.put(shown, :attempt, 2), :approve) == :ok
    end
  end

  test "who may see a call and not decide about it does not", %{door: door} do
    id = create("rob")

    later =
      Task.async(fn ->
        Page.Chat.say!(Ash.get!(Page.Chat, id, rights("rob")), "Go", rights("rob"))
      end)

    play(call("delete", %{path: "/a"}))
    Task.await(later)
    {200, _, json} = Door.call(door, request("GET", [id, "messages"]) |> as("rob"))
    [_, %{"parts" => parts}] = JSON.decode!(json)
    assert [approval] = for(%{"approval" => %{"id" => id}} <- parts, do: id)

    for verdict <- [true, false],
        do:
          assert(
            refused(door, decide(id, [{approval, verdict}]) |> as("rob")) == {404, "not_found"}
          )

    assert context(id, "rob").status == :paused
  end

  test "a turn keeps the rights of who asked, whoever decides", %{door: door} do
    {id, [approval]} = paused(door, "whose", %{})
    decision = decide(id, [{approval, true}])
    # These actors are no records that could be found again: nobody goes on as ann but ann.
    assert refused(door, decision |> as("boss")) == {409, "no_actor"}
    assert %{by: "boss"} = Context.Calls.tool_call_decision(context(id).context, "c1")
    assert refused(door, decide(id, [{approval, false}]) |> as("ann")) == {409, "not_waiting"}
    chunks = ask_and_play(door, decision |> as("ann"), [@hi])
    assert %{"output" => "ann"} = Enum.find(chunks, & &1["output"])
    assert refused(door, decision |> as("ann")) == {409, "not_waiting"}
  end

  test "a question is answered by who may, and only with what was offered", %{door: door} do
    id = create("ann")
    question = call("ask_person", %{question: "Which seat?", choices: ["window", "aisle"]})
    asked = ask_and_play(door, say(id, "Go") |> as("ann"), [question])
    %{"providerMetadata" => own} = part = Enum.find(asked, & &1["providerMetadata"])

    answer = fn answer ->
      answered = %{
        type: "dynamic-tool",
        toolCallId: part["toolCallId"],
        state: "output-available",
        output: answer,
        callProviderMetadata: own
      }

      request("POST", [], %{id: id, messages: [%{id: "t", role: "assistant", parts: [answered]}]})
    end

    assert refused(door, answer.("aisle") |> as("eve")) == {404, "not_found"}
    assert refused(door, answer.("aisle") |> as("ann", "other")) == {404, "not_found"}
    assert refused(door, answer.("roof") |> as("ann")) == {422, "invalid_answer"}
    chunks = ask_and_play(door, answer.("aisle") |> as("ann"), [@hi])
    assert %{"output" => "aisle"} = Enum.find(chunks, & &1["output"])
    assert refused(door, answer.("window") |> as("ann")) == {409, "not_waiting"}

    assert %{decision: :answered, by: "ann"} =
             Context.Calls.tool_call_decision(context(id).context, "c1")
  end

  test "a denial, and a stop of a turn that waits", %{door: door} do
    {id, [approval]} = paused(door, "delete", %{path: "/a"})
    chunks = ask_and_play(door, decide(id, [{approval, false}]) |> as("ann"), [@hi])
    assert Enum.any?(chunks, &(&1["type"] == "tool-output-denied"))

    {id, [_]} = paused(door, "delete", %{path: "/a"})
    assert refused(door, say(id, "Hi", "m2") |> as("ann")) == {409, "paused"}
    assert {200, _, _} = Door.call(door, request("POST", [id, "stop"]) |> as("ann"))
    assert context(id).status == :idle
  end

  @tag door: [when_running: :steer]
  test "who comes in the middle gets everything, a message goes into the turn, and a stop ends it",
       %{
         door: door
       } do
    id = create("ann")
    first = Task.async(fn -> chunks(door, say(id, "Hi") |> as("ann")) end)
    assert_receive {:asked, model, "Hi"}, 20_000
    send(model, {:text, "one "})
    second = Task.async(fn -> chunks(door, request("GET", [id, "stream"]) |> as("ann")) end)
    third = Task.async(fn -> chunks(door, say(id, "And?", "m2") |> as("ann")) end)
    # It was taken.
    assert Wait.until(fn -> stored?(id, "And?") end)
    send(model, {:text, "two"})
    send(model, {:finish, "stop"})
    assert_receive {:asked, model, "And?"}, 20_000
    send(model, {:text, "three"})

    assert Wait.until(fn ->
             Ash.get!(Page.Chat, id, [load: :status] ++ rights("ann")).status == :running
           end)

    assert {200, _, _} = Door.call(door, request("POST", [id, "stop"]) |> as("ann"))
    [first, second, third] = Task.await_many([first, second, third], 20_000)
    for chunks <- [first, second, third], do: assert(%{"type" => "abort"} = last(chunks))
    assert text(first) =~ "one two"
    assert text(second) =~ "one two"
  end

  defp stored?(id, text) do
    record = Ash.get!(Page.Chat, id, rights("ann"))
    {:ok, waiting} = AshAgent.Store.waiting(Page.store(), Conversation.Info.key(record))
    Enum.any?(waiting, &(inspect(&1.input) =~ text))
  end

  test "who comes while a turn just begins is told of this one, and not of the turn before", %{
    door: door
  } do
    id = create("ann")
    ask_and_play(door, say(id, "Hi") |> as("ann"), [@hi])
    test = self()
    begins = fn -> send(test, {:begins, self()}) && receive(do: (:go -> :ok)) end
    Application.put_env(:ash_agent_web, :before_turn, begins)
    on_exit(fn -> Application.delete_env(:ash_agent_web, :before_turn) end)
    asks = Task.async(fn -> chunks(door, say(id, "And?", "m2") |> as("ann")) end)
    assert_receive {:begins, run}, 20_000
    Application.delete_env(:ash_agent_web, :before_turn)
    {200, _, json} = Door.call(door, request("GET", [id, "messages"]) |> as("ann"))
    assert IO.iodata_to_binary(json) =~ "ann."
    watch = request("GET", [id, "stream"]) |> as("ann")

    watches =
      Task.async(fn ->
        {200, _headers, {:stream, bytes}} = Door.call(door, watch)
        send(test, :comes)
        bytes |> Enum.to_list() |> IO.iodata_to_binary() |> read()
      end)

    assert_receive :comes, 20_000
    send(run, :go)
    play([{:text, "Well."}, {:finish, "stop"}])
    for task <- [asks, watches], do: assert(text(Task.await(task, 20_000)) == "Well.")
  end

  test "a message that comes while a turn runs is refused", %{door: door} do
    id = create("ann")
    first = Task.async(fn -> chunks(door, say(id, "Hi") |> as("ann")) end)
    assert_receive {:asked, model, "Hi"}, 20_000
    assert refused(door, say(id, "And?", "m2") |> as("ann")) == {409, "busy"}
    for step <- @hi, do: send(model, step)
    assert text(Task.await(first)) == "Hi, ann."
  end

  test "a page can begin a conversation, as the application says, with its first message", %{
    door: door
  } do
    chunks = ask_and_play(door, say("new-Trains", "Hi") |> as("ann"), [@hi])
    assert text(chunks) == "Hi, ann."

    assert [%{title: "Trains", owner: "ann"}] =
             Enum.filter(Ash.read!(Page.Chat, rights("ann")), &(&1.title == "Trains"))

    assert refused(door, request("GET", ["new-Trains", "messages"]) |> as("ann")) ==
             {404, "not_found"}
  end

  test "an action of one's own without an argument refuses what would need it" do
    door = door(resource: Page.PlainChat, protocol: :ag_ui, when_running: :steer)
    id = Page.PlainChat.start!(%{}, rights("ann")).id
    first = Task.async(fn -> chunks(door, ask(:ag_ui, id, "Hi") |> as("ann")) end)
    assert_receive {:asked, model, "Hi"}, 20_000
    body = %{threadId: id, runId: "r2", messages: [%{id: "m2", role: "user", content: "And?"}]}
    assert refused(door, request("POST", [], body) |> as("ann")) == {422, "not_served"}
    for step <- call("delete", %{path: "/a"}), do: send(model, step)
    [approval] = approvals(Task.await(first))
    payload = %{approved: true, editedArgs: %{path: "/b"}}
    resume = [%{interruptId: approval, status: "resolved", payload: payload}]
    body = %{threadId: id, runId: "r3", messages: [], resume: resume}
    assert refused(door, request("POST", [], body) |> as("ann")) == {422, "not_served"}
    assert Ash.get!(Page.PlainChat, id, [load: :status] ++ rights("ann")).status == :paused
  end

  defp respond(door, input, more \\ %{}) do
    request = request("POST", [], Map.merge(%{input: input}, more)) |> as("ann")
    asked = Task.async(fn -> Door.call(door, request) end)
    play(@hi)
    {200, _, json} = Task.await(asked, 20_000)
    json |> IO.iodata_to_binary() |> JSON.decode!()
  end

  @tag door: [protocol: :responses]
  test "a response is a turn of a record, and behind an earlier one of a fork of it", %{
    door: door
  } do
    %{"id" => one, "conversation" => %{"id" => id}} = first = respond(door, "One")
    assert [%{"content" => [%{"text" => "Hi, ann."}]}] = first["output"]

    assert %{"conversation" => %{"id" => ^id}} =
             respond(door, "Two", %{previous_response_id: one})

    {200, _, json} = Door.call(door, request("GET", [one], nil) |> as("ann"))
    assert %{"output" => output} = json |> IO.iodata_to_binary() |> JSON.decode!()
    assert output == first["output"]
    forked = respond(door, "Else", %{previous_response_id: one})
    fork = forked["conversation"]["id"]
    assert fork != id
    assert [:system, :user, :assistant, :user, :assistant] = roles(fork)
    assert %{title: "A response", owner: "ann"} = Ash.get!(Page.Chat, fork, rights("ann"))
    assert [_, _, _, _, _] = roles(id)

    # It goes on in its fork, and nobody else's response is there.
    next = respond(door, "More", %{previous_response_id: forked["id"]})
    assert next["conversation"]["id"] == fork

    for {name, org} <- [{"eve", "acme"}, {"ann", "other"}],
        request <- [
          request("GET", [one], nil),
          request("POST", [one, "cancel"], nil),
          request("POST", [], %{input: "Hi", previous_response_id: one}),
          request("POST", [], %{input: "Hi", conversation: id})
        ] do
      assert {404, _, _} = Door.call(door, request |> as(name, org))
    end

    refute_received {:asked, _, _}
  end

  defp roles(id), do: for(message <- Context.to_messages(context(id).context), do: message.role)

  @tag door: [protocol: :responses]
  test "of several that follow one response at once, one has its conversation", %{door: door} do
    %{"id" => one, "conversation" => %{"id" => id}} = respond(door, "One")
    body = %{input: "And?", previous_response_id: one}

    asked =
      for _ <- 1..3 do
        Task.async(fn -> Door.call(door, request("POST", [], body) |> as("ann")) end)
      end

    for _ <- 1..3 do
      receive do
        {:asked, model, _text} -> for step <- @hi, do: send(model, step)
      after
        5_000 -> :refused
      end
    end

    answers = Task.await_many(asked, 20_000)
    for {status, _, _} <- answers, do: assert(status in [200, 409])

    conversations =
      for {200, _, json} <- answers,
          do: (json |> IO.iodata_to_binary() |> JSON.decode!())["conversation"]["id"]

    assert conversations == Enum.uniq(conversations)
    assert Enum.count(roles(id), &(&1 == :user)) <= 2
  end

  @tag door: [protocol: :responses]
  test "an application that has no record for a fork refuses it by name", %{door: door} do
    %{"id" => one} = respond(door, "One")
    respond(door, "Two", %{previous_response_id: one})

    identify = fn
      %{forks: _id} -> {:ok, %{conversation: Ash.UUID.generate(), actor: nil, tenant: "acme"}}
      request -> identify(request)
    end

    body = %{input: "Else", previous_response_id: one}

    {400, _, json} =
      Door.call(%{door | identify: identify}, request("POST", [], body) |> as("ann"))

    assert %{"error" => %{"kind" => "not_served"}} =
             json |> IO.iodata_to_binary() |> JSON.decode!()
  end

  test "two people's pages share what is written of a turn, and a stranger gets nothing of it", %{
    door: door
  } do
    id = create("ann")
    first = reader(door, say(id, "Hi") |> as("ann"))
    assert_receive {:asked, model, "Hi"}, 20_000
    send(model, {:text, "one "})
    assert_receive {^first, :has, "one "}, 20_000
    assert [_one] = known = feeds({Page.Chat, "acme", id})
    watch = request("GET", [id, "stream"])
    second = reader(door, watch |> as("ann"))
    assert_receive {^second, :has, "one "}, 20_000
    assert refused(door, watch |> as("eve")) == {404, "not_found"}
    assert refused(door, watch |> as("ann", "other")) == {404, "not_found"}
    assert feeds({Page.Chat, "acme", id}) == known
    # It is nobody's turn but its session's, and its owner is another one now.
    Ash.Seed.update!(Ash.get!(Page.Chat, id, rights("ann")), %{owner: "eve"}, tenant: "acme")
    assert refused(door, watch |> as("ann")) == {404, "not_found"}
    for step <- [{:text, "two"}, {:finish, "stop"}], do: send(model, step)

    for client <- [first, second] do
      assert_receive {^client, :over, bytes}, 20_000
      assert bytes |> read() |> text() == "one two"
    end
  end

  # The processes that tell what becomes of a conversation.
  defp feeds(place) do
    names = Registry.select(Door.Feed.Names, [{{:"$1", :"$2", :_}, [], [{{:"$1", :"$2"}}]}])
    for {key, feed} <- names, elem(key, 1) == place, uniq: true, do: feed
  end

  # Says when a client has its first text, and what it has at the end.
  defp reader(door, request) do
    test = self()

    spawn_link(fn ->
      {200, _headers, {:stream, bytes}} = Door.call(door, request)

      bytes =
        Enum.map_join(bytes, fn bytes ->
          bytes = IO.iodata_to_binary(bytes)
          if bytes =~ "one ", do: send(test, {self(), :has, "one "})
          bytes
        end)

      send(test, {self(), :over, bytes})
    end)
  end

  test "a turn is taken back by the action :rewind" do
    door = door(rewind: true)
    id = create("ann")
    ask_and_play(door, say(id, "Hi") |> as("ann"), [@hi])
    body = %{id: id, trigger: "regenerate-message", messages: [message("m1", "Hi")]}
    again = request("POST", [], body)
    assert refused(door, again |> as("eve")) == {404, "not_found"}
    chunks = ask_and_play(door, again |> as("ann"), [[{:text, "Once more."}, {:finish, "stop"}]])
    assert text(chunks) == "Once more."
    assert Context.count_messages(context(id).context) == 3
  end

  test "a door has one place" do
    own = [identify: &identify/1, hosts: ["a"]]

    for wrong <- [[], [sessions: S, resource: Page.Chat]] do
      assert_raise ArgumentError, ~r/either :sessions or :resource/, fn ->
        Door.new(own ++ wrong)
      end
    end
  end
end
