defmodule AshAgent.Soak.Witnesses do
  @moduledoc """
  Contexts that are kept beside a fingerprint of their contents: of the snapshot, the messages and a request. Other
  processes look now and then, and again at the end, whether it is still theirs.
  """

  import AshAgent.Soak.Call, only: [call: 2, native?: 0]
  import AshAgent.TestSupport.Generators, only: [between: 2]

  alias AshAgent.Context
  alias AshAgent.Soak.Faults

  @slots 400
  # So many of the first round are kept to the end.
  @old 100

  def start do
    :ets.new(__MODULE__, [:public, :named_table, read_concurrency: true])
    :ets.new(:soak_checks, [:public, :named_table])
    :ets.insert(:soak_checks, {:count, 0})
  end

  def keep({_, context, _, _}) do
    print = fingerprint(context)
    # A large one now and then takes the place of another; so there are never many.
    if native?(), do: :ets.insert(__MODULE__, {between(1, @slots), context, print})
  end

  @doc "One of those that were kept by any process."
  def recheck do
    case :ets.lookup(__MODULE__, between(1, @slots)) do
      [witness] -> check(witness)
      [] -> :ok
    end
  end

  @doc "All of them."
  def recheck_all, do: Enum.each(:ets.tab2list(__MODULE__), &check/1)

  @doc "Forgets those of a round; some of the first stay, which are numbered below zero."
  def release do
    if :ets.select_count(__MODULE__, [{{:"$1", :_, :_}, [{:<, :"$1", 0}], [true]}]) == 0 do
      for {slot, context, print} <- @old |> old() |> Enum.map(&hd(:ets.lookup(__MODULE__, &1))),
          do: :ets.insert(__MODULE__, {-slot, context, print})
    end

    :ets.select_delete(__MODULE__, [{{:"$1", :_, :_}, [{:>, :"$1", 0}], [true]}])
  end

  defp old(count),
    do:
      __MODULE__
      |> :ets.select([{{:"$1", :_, :_}, [], [:"$1"]}])
      |> Enum.sort()
      |> Enum.take(count)

  @doc "How many contexts are kept: two witnesses may be of one."
  def count do
    __MODULE__
    |> :ets.select([{{:_, :"$1", :_}, [], [:"$1"]}])
    |> Enum.uniq_by(& &1.ref)
    |> length()
  end

  @doc "How many looks were taken."
  def checks, do: :ets.lookup_element(:soak_checks, :count, 2)

  @doc "Puts one context in another's place, which has to be found."
  def mix_up do
    [{a, context, _}, {b, _, _} | _] = :ets.tab2list(__MODULE__)
    if a != b, do: :ets.update_element(__MODULE__, b, {2, context})
  end

  defp check({_slot, context, print}) do
    now = fingerprint(context)

    if native?() do
      :ets.update_counter(:soak_checks, :count, 1)

      if now != print,
        do: Faults.add(:changed, fn -> "#{inspect(context)}: #{inspect({print, now})}" end)
    end
  end

  defp fingerprint(context) do
    snapshot = call(:to_snapshot, fn -> Context.to_snapshot(context) end)
    messages = call(:to_messages, fn -> Context.to_messages(context) end)

    {:ok, body} =
      call(:"encode_request openai_chat", fn ->
        Context.encode_request(context, :openai_chat, pending: :interrupt)
      end)

    {hash(snapshot), :erlang.phash2(messages, 4_294_967_296), hash(body)}
  end

  defp hash(data), do: :crypto.hash(:sha256, data)
end
