defmodule AshAgent.Store.Conformance.Claims do
  @moduledoc false
  # A claim has one owner, and a lease.

  use AshAgent.Store.Conformance.Group, "a claim"

  check "is one owner's, until it is released", %{store: store} do
    kept = create!(store, talk())

    assert {:ok, %{claimed?: true, owner: "a", epoch: 1} = claim} =
             Store.claim(store, kept.id, owner: "a", status: :running)

    assert claim.status == :running
    assert Context.equal?(claim.value, kept.value)
    assert {:error, {:owned, "a"}} = Store.claim(store, kept.id, owner: "b")
    assert {:error, {:owned, "a"}} = Store.claim(store, kept.id, owner: "a")
    claim = append!(store, claim, Context.add_user_message(claim.value, "x"))
    assert {:ok, released} = Store.release(store, claim, status: :paused)
    assert %{claimed?: false, owner: nil, status: :paused} = released
    assert {:error, :stale} = Store.append(store, claim, claim.value)
    assert {:ok, %{epoch: 2}} = Store.claim(store, kept.id, owner: "b")
  end

  check "passes at the end of its lease, and the old owner writes no more", %{store: store} do
    kept = create!(store, talk(), owner: "a", lease: 5)
    assert %{claimed?: true, epoch: 1} = kept
    lapse()
    assert {:ok, other} = Store.claim(store, kept.id, owner: "b")
    value = Context.add_user_message(kept.value, "late")
    assert {:error, {:owned, "b"}} = Store.append(store, kept, value)
    assert {:error, {:owned, "b"}} = Store.start(store, kept, [%{key: "k"}])
    assert {:error, {:owned, "b"}} = Store.renew(store, kept)
    assert {:error, {:owned, "b"}} = Store.release(store, kept)
    assert {:error, {:owned, "b"}} = Store.fetch(store, kept)
    assert {:ok, []} = Store.calls(store, kept.id)
    append!(store, other, Context.add_user_message(other.value, "mine"))
  end

  check "is renewed by renewing and by writing", %{store: store} do
    kept = create!(store, talk(), owner: "a", lease: 2_000)
    assert {:ok, renewed} = Store.renew(store, kept)
    assert DateTime.compare(renewed.lease_until, kept.lease_until) in [:gt, :eq]
    Process.sleep(5)
    written = append!(store, renewed, Context.add_user_message(kept.value, "x"))
    assert DateTime.compare(written.lease_until, renewed.lease_until) == :gt
    Process.sleep(5)
    assert {:ok, started, _keys} = Store.start(store, written, [])
    assert DateTime.compare(started.lease_until, written.lease_until) == :gt
    assert {:ok, again} = Store.fetch(store, started)
    assert again.claimed? and again.epoch == kept.epoch
  end

  check "is taken again by its owner's next process", %{store: store} do
    kept = create!(store, talk(), owner: "a")
    assert {:ok, %{epoch: 2}} = Store.claim(store, kept.id, owner: "a", reclaim: true)
    assert {:error, :stale} = Store.append(store, kept, kept.value)
    assert {:error, {:owned, "a"}} = Store.claim(store, kept.id, owner: "b", reclaim: true)
  end

  check "is handed from one owner to another, and to nobody else", %{store: store} do
    kept = create!(store, talk(), owner: "a")
    assert {:error, {:owned, "a"}} = Store.claim(store, kept.id, owner: "b", from: "c")
    assert {:ok, %{owner: "b"} = taken} = Store.claim(store, kept.id, owner: "b", from: "a")
    assert {:error, {:owned, "b"}} = Store.append(store, kept, kept.value)
    assert {:error, {:owned, "b"}} = Store.claim(store, kept.id, owner: "c", from: "a")
    append!(store, taken, Context.add_user_message(taken.value, "mine"))
  end

  check "need not be loaded, and is loaded later", %{store: store} do
    kept = create!(store, talk())
    assert {:ok, claim} = Store.claim(store, kept.id, owner: "a", load: false)
    assert {:ok, claim} = Store.fetch(store, claim)
    assert claim.claimed? and Context.equal?(claim.value, kept.value)

    if can?(store, :note, 3) do
      {:ok, noted} = store.__struct__.note(store, claim, status: :parked, note: %{why: "x"})
      assert noted.revision == claim.revision + 1
      assert {:error, :stale} = store.__struct__.note(store, claim, note: %{})
      assert {:ok, [_create, %{note: %{why: "x"}}]} = Store.history(store, kept.id)
      append!(store, noted, Context.add_user_message(claim.value, "More"))
      assert {:ok, %{status: :parked}} = Store.fetch(store, kept.id)
    end
  end

  check "goes to one of those who want it at once", %{store: store} do
    kept = create!(store, talk())
    answers = at_once(10, &Store.claim(store, kept.id, owner: "owner #{&1}"))
    assert [%{owner: owner}] = for({:ok, claim} <- answers, do: claim)
    assert Enum.count(answers, &(&1 == {:error, {:owned, owner}})) == 9
  end

  check "that is over is taken in batches, each by one", %{store: store} do
    owner = new_id()

    ids =
      for _ <- 1..12,
          do: create!(store, talk(), owner: owner, lease: 5, status: :running).id

    idle = create!(store, talk(), owner: owner, lease: 5, status: :idle).id
    alive = create!(store, talk(), owner: owner, lease: 60_000, status: :running).id
    lapse()

    taken =
      at_once(4, fn number ->
        Stream.repeatedly(fn ->
          Store.expired(store, owner: "#{owner} #{number}", limit: 2)
        end)
        |> Stream.map(fn {:ok, claims} -> claims end)
        |> Enum.take_while(&(&1 != []))
        |> List.flatten()
      end)
      |> List.flatten()
      |> Enum.filter(&(&1.id in [idle, alive | ids]))

    assert Enum.sort(Enum.map(taken, & &1.id)) == Enum.sort(ids)
    assert Enum.all?(taken, &(&1.claimed? and &1.epoch == 2 and &1.value == nil))
    assert {:ok, %{claimed?: true} = claim} = Store.fetch(store, hd(taken))
    append!(store, claim, Context.add_user_message(claim.value, "on"))
    assert_raise ArgumentError, fn -> Store.append(store, hd(taken), claim.value) end

    assert {:ok, claims} =
             Store.expired(store, owner: owner, status: [:idle, :paused], limit: 10_000)

    assert idle in Enum.map(claims, & &1.id)
  end

  check "of many is renewed at once, and only those that stand", %{store: store} do
    if can?(store, :renew_all, 2) do
      [one, two, three, gone] = for _ <- 1..4, do: create!(store, talk(), owner: "a", lease: 1)
      lapse()
      {:ok, taken} = Store.claim(store, two.id, owner: "b")
      {:ok, again} = Store.claim(store, three.id, owner: "a", reclaim: true)
      :ok = Store.delete(store, gone.id)
      claims = [%{one | lease: 60_000}, two, three, gone, taken, again]

      assert {:ok,
              [{:ok, renewed}, {:error, {:owned, "b"}}, {:error, _}, gone, {:ok, _}, {:ok, _}]} =
               Store.renew_all(store, claims)

      assert gone == {:error, :not_found}
      assert DateTime.diff(renewed.lease_until, one.lease_until, :second) > 30
      assert {renewed.epoch, renewed.revision} == {one.epoch, one.revision}
      append!(store, renewed, Context.add_user_message(renewed.value, "x"))
      assert {:ok, []} = Store.renew_all(store, [])
    end
  end
end
