defmodule AshAgent.Runtime.EditedTest do
  use ExUnit.Case, async: true

  @moduletag :capture_log

  import AshAgent.TestSupport.StoredSessions, only: [sqlite: 0]

  alias AshAgent.{Context, Runtime, Session, Sessions, Store}
  alias AshAgent.LLM.Scripted
  alias AshAgent.Runtime.{Paused, Result}

  @schema %{
    "type" => "object",
    "properties" => %{"to" => %{"type" => "string"}, "copies" => %{"type" => "integer"}},
    "required" => ["to"]
  }

  setup do: {:ok, store: sqlite()}

  defp mail(id, to), do: %{id: id, name: "mail", arguments: %{"to" => to}}

  defp opts(calls, more \\ []) do
    test = self()

    mail = fn arguments ->
      send(test, {:mailed, arguments})
      {:ok, "sent"}
    end

    Keyword.merge(
      [
        llm: Scripted.new([%{tool_calls: calls}, "Done."]),
        tools: %{mail: %{function: mail, parameters: @schema}},
        approval: fn _call, _tool_context -> :ask end
      ],
      more
    )
  end

  defp reload(context), do: context |> Context.to_snapshot() |> Context.load!()

  defp sent(context) do
    {:ok, body} = Context.encode_request(context, :anthropic)
    IO.iodata_to_binary(body)
  end

  # How a decision gets to a conversation that waits, and the conversation at its end.
  defp approve(:run, opts, _store, decisions) do
    {:paused, %Paused{context: context}} = Runtime.run(Context.new("Tell them"), opts)

    context =
      Enum.reduce(decisions, context, fn {id, decision}, context ->
        reload(Context.Calls.approve_tool_call(context, id, decision))
      end)

    {:ok, %Result{context: context}} = Runtime.resume(context, opts)
    reload(context)
  end

  defp approve(:session, opts, store, decisions) do
    {:ok, session} = Session.start_link([store: store, id: "c1"] ++ opts)
    {:paused, _paused} = Session.prompt(session, "Tell them")
    for {id, decision} <- decisions, do: :ok = Session.approve(session, id, decision)
    {:ok, _result} = Session.resume(session)
    Session.context(session)
  end

  defp approve(:next_session, opts, store, decisions) do
    {:ok, first} = Session.start_link([store: store, id: "c1"] ++ opts)
    {:paused, _paused} = Session.prompt(first, "Tell them")
    for {id, decision} <- decisions, do: :ok = Session.approve(first, id, decision)
    GenServer.stop(first)
    {:ok, session} = Session.start_link([store: store, id: "c1"] ++ opts)
    {:ok, _result} = Session.resume(session)
    Session.context(session)
  end

  defp approve(:sessions, opts, store, decisions) do
    name = :"edited #{System.unique_integer([:positive])}"
    start_supervised!({Sessions, [name: name, store: store] ++ opts})
    {:paused, _paused} = Sessions.prompt(name, "c1", "Tell them")
    for {id, decision} <- decisions, do: :ok = Sessions.approve(name, "c1", id, decision)
    {:ok, _result} = Sessions.resume(name, "c1")
    {:ok, stored} = Store.fetch(store, "c1")
    stored.value
  end

  for way <- [:run, :session, :next_session, :sessions] do
    test "#{way}: a call runs with what a person wrote, and the model reads of it", %{
      store: store
    } do
      calls = [mail("a", "everybody"), mail("b", "everybody"), mail("c", "everybody")]
      board = %{"to" => "the board", "copies" => 2}

      decisions = [
        {"a", [by: "ann", edited: board, arguments: %{"to" => "everybody"}]},
        {"b", [by: "ann"]},
        {"c", [by: "ann", edited: %{"to" => "everybody"}]}
      ]

      context = approve(unquote(way), opts(calls), store, decisions)
      assert_received {:mailed, ^board}
      assert_received {:mailed, %{"to" => "everybody"}}
      assert_received {:mailed, %{"to" => "everybody"}}
      refute_received {:mailed, _}

      assert %{edited: ^board, by: "ann"} = Context.Calls.tool_call_decision(context, "a")

      for id <- ["b", "c"],
          do: refute(is_map_key(Context.Calls.tool_call_decision(context, id), :edited))

      [one | _] = made = Context.get_iteration(context, 1).tool_calls
      assert one.arguments == %{"to" => "everybody"}
      assert Enum.all?(made, &(&1.result == {:ok, "sent"}))
      assert [_before, told] = String.split(sent(context), "A person changed the arguments")
      assert told =~ "the board"
      refute told =~ "A person changed"
    end
  end

  test "arguments that the tool does not take are an error, and nothing is decided", %{
    store: store
  } do
    {:ok, session} =
      Session.start_link([store: store, id: "c1"] ++ opts([mail("a", "everybody")]))

    {:paused, _paused} = Session.prompt(session, "Tell them")
    {:ok, before} = Store.fetch(store, "c1")

    for {edited, words} <- [
          {%{"to" => 5}, "/to: expected a string"},
          {%{"copies" => 2}, "the required argument \"to\" is missing"},
          {"to nobody", "a map of arguments"}
        ] do
      assert {:error, %Context.Error{reason: {:invalid, [:edited], _}} = error} =
               Session.approve(session, "a", edited: edited)

      assert Exception.message(error) =~ words
    end

    assert {:error, %Context.Error{reason: {:other_arguments, "a", _}}} =
             Session.approve(session, "a", arguments: %{"to" => "x"}, edited: %{"to" => "y"})

    assert {:error, %Context.Error{reason: {:unknown_tool_call, "z", _}}} =
             Session.approve(session, "z", edited: %{"to" => "y"})

    {:ok, now} = Store.fetch(store, "c1")
    assert now.revision == before.revision and Context.equal?(now.value, before.value)
    :ok = Session.approve(session, "a", edited: %{"to" => "y"})

    for again <- [
          Session.approve(session, "a", edited: %{"to" => "z"}),
          Session.deny(session, "a", "no")
        ],
        do: assert({:error, %Context.Error{reason: {:illegal_status, "a", :approved, _}}} = again)

    {:ok, _result} = Session.resume(session)
    assert_received {:mailed, %{"to" => "y"}}
    refute_received {:mailed, _}
  end

  test "a session whose tools cannot be listed any more decides nothing about edited arguments" do
    {:ok, agent} = Agent.start_link(fn -> %{mail: fn _ -> {:ok, "sent"} end} end)

    tools = fn ->
      case Agent.get(agent, & &1) do
        :gone -> raise "gone"
        tools -> tools
      end
    end

    {:ok, session} = Session.start_link(opts([mail("a", "everybody")], tools: tools))
    {:paused, _paused} = Session.prompt(session, "Tell them")

    for {listed, words} <- [{:gone, "could not be checked"}, {%{}, "there are no tools"}] do
      Agent.update(agent, fn _ -> listed end)
      {:error, error} = Session.approve(session, "a", edited: %{"to" => "y"})
      assert Exception.message(error) =~ words
    end

    assert {:paused, [%{id: "a"}]} = Session.status(session)
  end

  # What denies the model's own arguments denies a person's, and nothing runs with what nobody approved.
  for {what, more} <- [
        {"a permission rule",
         quote(
           do: [
             permission_rules: [
               {:allow, "*"},
               {:deny, :mail, fn arguments -> arguments["to"] == "root" end}
             ]
           ]
         )},
        {"a hook",
         quote(
           do: [
             before_tool: fn call, _ ->
               if call.arguments["to"] == "root", do: {:deny, "no"}, else: :ok
             end
           ]
         )},
        {"the approval function",
         quote(
           do: [
             approval: fn call, _ ->
               if call.arguments["to"] == "root", do: {:deny, "no"}, else: :ask
             end
           ]
         )},
        {"an approval function that fails",
         quote(
           do: [
             approval: fn call, _ ->
               if call.arguments["to"] == "root", do: raise("x"), else: :ask
             end
           ]
         )},
        {"a hook that changes what the person wrote",
         quote(
           do: [
             before_tool: fn call, _ -> {:ok, update_in(call.arguments["to"], &(&1 <> "!"))} end
           ]
         )}
      ] do
    test "#{what} denies edited arguments" do
      opts = opts([mail("a", "everybody")], unquote(more))
      {:paused, %{context: context}} = Runtime.run(Context.new("Tell them"), opts)

      context =
        Context.Calls.approve_tool_call(context, "a", by: "ann", edited: %{"to" => "root"})

      {:ok, %{context: context}} = Runtime.resume(reload(context), opts)
      refute_received {:mailed, _}
      assert [%{result: {:error, words}}] = Context.get_iteration(context, 1).tool_calls
      assert words =~ "denied"
      assert sent(context) =~ "A person changed the arguments"
    end
  end

  test "a fork asks once more, with what the person wrote" do
    opts = opts([mail("a", "everybody")])
    {:paused, %{context: context}} = Runtime.run(Context.new("Tell them"), opts)
    edited = %{"to" => "the board"}
    context = Context.Calls.approve_tool_call(context, "a", by: "ann", edited: edited)
    fork = reload(Context.fork(context))
    assert [%{id: "a", arguments: ^edited, edited: true}] = Context.Calls.asked_tool_calls(fork)

    # Somebody is asked anew, and sees the same.
    {:paused, %{context: fork, calls: [call]}} = Runtime.resume(fork, opts)
    assert %{arguments: ^edited, edited: true} = call
    fork = Context.Calls.approve_tool_call(fork, "a", by: "bob")
    {:ok, %{context: fork}} = Runtime.resume(fork, opts)
    assert_received {:mailed, ^edited}
    assert %{by: "bob", edited: ^edited} = Context.Calls.tool_call_decision(fork, "a")
  end
end
