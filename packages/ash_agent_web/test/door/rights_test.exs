defmodule AshAgent.Door.RightsTest do
  # Clients of one turn whose rights are not the same. The model of these scenes waits under a name.
  use ExUnit.Case, async: false

  import AshAgent.Door.{Asks, Clients}

  alias AshAgent.{Context, Sessions}
  alias AshAgent.Door.{Feed, Play}

  @moduletag :capture_log
  @moduletag timeout: 60_000

  defmodule Asked do
    # Sessions that only those read who are named.
    alias AshAgent.Door.Source.Sessions

    def allow(names), do: :persistent_term.put(__MODULE__, names)

    def see(_place, %{actor: name}),
      do: if(name in :persistent_term.get(__MODULE__), do: :ok, else: {:error, :not_found})

    def open(place, identity, limit),
      do: with(:ok <- see(place, identity), do: Sessions.open(place, identity, limit))

    defdelegate name(place, identity), to: Sessions
    defdelegate say(place, identity, input, key, behind), to: Sessions
    defdelegate fork(place, identity, fork, iteration), to: Sessions
    defdelegate steer(place, identity, input, key), to: Sessions
    defdelegate waits?(place, identity, key), to: Sessions
    defdelegate stop(place, identity), to: Sessions
    defdelegate decide(place, identity, call, verdict, reason), to: Sessions
    defdelegate resume(place, identity), to: Sessions
  end

  setup context do
    name = Play.name(context)
    {:ok, _} = Play.sessions(name, restore_context: fn %{name: name} -> {:ok, %{name: name}} end)
    Asked.allow(["ada", "bob"])
    opts = [identify: &identify/1] ++ (context[:door] || [])
    %{name: name, door: %{Play.door(name, port(), opts) | source: Asked}}
  end

  defp identify(%{headers: headers, asks: asks}) do
    {_, "Bearer " <> name} = List.keyfind(headers, "authorization", 0)
    own = %{runtime_context: %{name: name}, metadata: %{name: name}}
    {:ok, Map.merge(own, %{conversation: asks, actor: name, by: name})}
  end

  defp as(request, name) do
    token = {"authorization", "Bearer #{name}"}
    Map.update!(request, :headers, &List.keyreplace(&1, "authorization", 0, token))
  end

  defp watch(name), do: request("GET", ["c1", "stream"]) |> as(name)

  # The processes that tell what becomes of a conversation.
  defp feeds(place) do
    for {key, feed} <-
          Registry.select(Feed.Names, [{{:"$1", :"$2", :_}, [], [{{:"$1", :"$2"}}]}]),
        elem(key, 1) == place,
        uniq: true,
        do: feed
  end

  test "who may not read gets nothing of what others share", %{
    door: door,
    name: name
  } do
    ada = reader(door, say("c1", "wait") |> as("ada"))
    until(ada, "two")
    known = feeds({name, "c1"})
    bob = reader(door, watch("bob"))
    until(bob, "two")
    assert refused(door, watch("eve")) == {404, "not_found"}
    [id] = Regex.run(~r/id: (\S+)/, read_so_far(ada), capture: :all_but_first)
    back = Map.update!(watch("eve"), :headers, &[{"last-event-id", id} | &1])
    assert refused(door, back) == {404, "not_found"}
    assert [_one] = known
    assert feeds({name, "c1"}) == known
    send(await_model(), :go)
    assert rest(ada) == rest(bob)
  end

  test "a right that is withdrawn ends with the session, whoever was the first", %{
    door: door,
    name: name
  } do
    ada = reader(door, say("c1", "wait") |> as("ada"))
    until(ada, "two")
    bob = reader(door, watch("bob"))
    until(bob, "two")
    Asked.allow(["bob"])
    model = await_model()
    {:ok, session} = Sessions.fetch_session(name, "c1")
    Process.exit(session, :kill)
    send(await_model(model), :go)
    assert %{"type" => "finish"} = bob |> rest() |> read() |> last()
    ended = ada |> rest() |> read()
    assert %{"type" => "error", "errorText" => "deleted (" <> _} = last(ended)
    refute text(ended) =~ "three"
  end

  @tag door: [state: &__MODULE__.state/1]
  test "who comes later has the application's state as well", %{door: door} do
    ada = reader(door, say("c1", "wait") |> as("ada"))
    until(ada, "two")
    bob = reader(door, watch("bob"))
    until(bob, "two")
    send(await_model(), :go)
    told = rest(ada)
    assert rest(bob) == told

    assert [%{"data" => %{"turns" => 1}}] =
             for(%{"type" => "data-state"} = c <- read(told), do: c)
  end

  def state(context), do: %{turns: Context.count_iterations(context)}
end
