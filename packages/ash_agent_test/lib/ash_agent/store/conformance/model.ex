defmodule AshAgent.Store.Conformance.Model do
  @moduledoc false
  # The store and a model of it get the same operations, and answer alike.

  use AshAgent.Store.Conformance.Group, "under any order of operations"

  @operations ~w(claim claim_short append append append start renew release fetch expired)a

  check "any order of two writers' claims, writes, starts, renewals and lapses is as in a model",
        %{store: store} do
    each_case("writers", 12, fn ->
      id = new_id()
      kept = create!(store, Context.new("0", id: id))
      # The row, and the values of each writer.
      row = %{epoch: 0, revision: 1, owner: nil, over?: false}
      model = Map.merge(row, %{value: kept.value, started: MapSet.new()})

      Enum.reduce(1..60, {model, %{1 => kept, 2 => kept}}, fn step, {model, held} ->
        writer = one_of([1, 2])
        operation = one_of(@operations)
        {model, mine} = step(store, operation, "writer #{writer}", step, model, held[writer])
        {model, Map.put(held, writer, mine)}
      end)
    end)
  end

  defp step(store, claim, writer, _step, model, mine) when claim in [:claim, :claim_short] do
    free? = model.owner == nil or model.over?
    lease = if claim == :claim, do: 60_000, else: 1
    answer = Store.claim(store, mine.id, owner: writer, lease: lease)
    if claim == :claim_short, do: lapse()

    if free? do
      assert {:ok, kept} = answer
      assert kept.epoch == model.epoch + 1 and kept.revision == model.revision
      assert Context.equal?(kept.value, model.value)
      {%{model | owner: writer, epoch: kept.epoch, over?: claim == :claim_short}, kept}
    else
      assert {:error, {:owned, owner}} = answer
      assert owner == model.owner
      {model, mine}
    end
  end

  defp step(store, :append, _writer, step, model, mine) do
    value = mine.value |> Context.put_metadata(:step, step) |> change()

    case Store.append(store, mine, value) do
      {:ok, kept} ->
        assert may_write?(model, mine)
        assert kept.revision == model.revision + 1
        assert_kept(store, value)
        {renewed(%{model | revision: kept.revision, value: value}, kept), kept}

      {:error, reason} ->
        assert_refused(reason, model, mine)
        assert_kept(store, model.value)
        {model, mine}
    end
  end

  defp step(store, :start, _writer, step, model, mine) do
    key = "key #{div(step, 4)}"

    case Store.start(store, mine, [%{key: key}]) do
      {:ok, kept, keys} ->
        assert may_write?(model, mine)
        assert keys == if(key in model.started, do: [], else: [key])
        {renewed(%{model | started: MapSet.put(model.started, key)}, kept), kept}

      {:error, reason} ->
        assert_refused(reason, model, mine)
        {model, mine}
    end
  end

  defp step(store, operation, _writer, _step, model, %{claimed?: true} = mine)
       when operation in [:renew, :release] do
    holds? = model.epoch == mine.epoch and model.owner == mine.owner

    case apply(Store, operation, [store, mine]) do
      {:ok, kept} ->
        assert holds?

        if operation == :release,
          do: {%{model | owner: nil, over?: false}, kept},
          else: {renewed(model, kept), kept}

      {:error, reason} ->
        refute holds?
        assert reason in [:stale, {:owned, model.owner}]
        {model, mine}
    end
  end

  defp step(store, :expired, writer, _step, model, mine) do
    overdue = [owner: writer, status: [:idle], lease: 60_000, limit: 10_000]
    assert {:ok, claims} = Store.expired(store, overdue)

    case Enum.find(claims, &(&1.id == mine.id)) do
      nil ->
        refute model.owner != nil and model.over?
        {model, mine}

      claim ->
        assert model.owner != nil and model.over?
        assert claim.epoch == model.epoch + 1
        assert {:ok, kept} = Store.fetch(store, claim)
        {%{model | owner: writer, epoch: claim.epoch, over?: false}, kept}
    end
  end

  defp step(store, _fetch, _writer, _step, model, mine) do
    kept = assert_kept(store, model.value)

    assert {kept.epoch, kept.revision, kept.owner} ==
             {model.epoch, model.revision, model.owner}

    # A writer without a claim goes on from here; one with a claim keeps it.
    {model, if(mine.claimed?, do: mine, else: kept)}
  end

  # A write renews the lease, for as long as the claim's was.
  defp renewed(model, kept) do
    short? = model.owner != nil and kept.lease == 1
    if short?, do: lapse()
    %{model | over?: short?}
  end

  defp may_write?(model, mine) do
    owner = if mine.claimed?, do: mine.owner
    {model.epoch, model.revision, model.owner} == {mine.epoch, mine.revision, owner}
  end

  defp assert_refused(reason, model, mine) do
    refute may_write?(model, mine)
    own = if mine.claimed?, do: mine.owner

    expected =
      if model.owner != nil and model.owner != own, do: {:owned, model.owner}, else: :stale

    assert reason == expected
  end
end
