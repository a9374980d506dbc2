defmodule AshAgent.Soak.Storing do
  @moduledoc "Operations that store a conversation, read it back, and compare."

  import AshAgent.Soak.Call, only: [call: 2, expect: 2, native?: 0]
  import AshAgent.TestSupport.Generators, only: [between: 2]

  alias AshAgent.Context
  alias AshAgent.Soak.{Growing, Pool, Reading}

  @doc "What was loaded goes on in the place of what was dumped."
  def dump({_, context, _, _} = session) do
    document = call(:dump, fn -> Context.dump(context) end)
    back(session, call(:load, fn -> Context.load(document) end))
  end

  def snapshot({_, context, _, _} = session) do
    text = call(:to_snapshot, fn -> Context.to_snapshot(context) end)
    back(session, call(:from_snapshot, fn -> Context.load(text) end))
  end

  def map({_, context, _, _}) do
    map = call(:to_map, fn -> Context.to_map(context) end)

    case call(:create, fn -> Context.create(map) end) do
      {:ok, copy} when is_struct(copy) ->
        again = if native?(), do: call(:to_map, fn -> Context.to_map(copy) end)
        expect(again == map, "another map after create/1")

      _refused ->
        expect(false, "create/1 refused what to_map/1 gave")
    end
  end

  defp back(session, {:ok, copy}) do
    same(elem(session, 1), copy)
    Pool.continue(session, copy, 0)
  end

  defp back(session, :refused) do
    expect(false, "a stored conversation was refused")
    session
  end

  defp same(context, copy) do
    equal = call(:equal?, fn -> Context.equal?(context, copy) end)
    expect(equal == true, "a conversation came back otherwise")
  end

  @doc "An earlier version and a delta make the later one."
  def delta({_, context, _, _} = session) do
    {_, later, _, _} = next = session |> Growing.step() |> Growing.step()
    since = max(context.current_iteration - between(0, 2), 1)

    # Another conversation may have begun.
    if later.current_iteration >= since and same_id?(context, later) do
      delta = call(:dump_since, fn -> Context.dump(later, since: since) end)
      loaded(context, delta, later)
    end

    beside = call(:dump_beside, fn -> Context.dump(later, beside: context) end)
    if match?(%{"since" => _}, beside), do: loaded(context, beside, later)
    next
  end

  defp loaded(context, delta, later) do
    case call(:load_delta, fn -> Context.load(context, delta) end) do
      {:ok, copy} -> same(later, copy)
      :refused -> expect(false, "a delta was refused")
    end
  end

  defp same_id?(a, b), do: call(:fetch, fn -> a[:id] end) == call(:fetch, fn -> b[:id] end)

  def diff({_, context, _, _} = session) do
    {_, later, _, _} = Growing.step(session)
    call(:diff, fn -> Context.diff(context, later) end)
    call(:equal?, fn -> Context.equal?(context, later) end)
  end

  @doc "A request that was made of a context makes a context that makes this request."
  def import({_, context, _, _}) do
    provider = Reading.provider()

    case call(:request, fn -> Context.request(context, provider) end) do
      {:ok, request} -> imported(request, provider)
      :refused -> :ok
    end
  end

  defp imported(request, provider) do
    case call(:from_request, fn -> Context.Import.from_request(request, provider) end) do
      {:ok, copy, _report} ->
        again = call(:request, fn -> Context.request(copy, provider) end)
        expect(again == {:ok, request}, "another request for #{provider} after its import")

      :refused ->
        expect(false, "the import of a request for #{provider} was refused")
    end
  end
end
