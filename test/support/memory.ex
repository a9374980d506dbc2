defmodule AshAgent.TestSupport.Memory do
  @moduledoc false

  alias AshAgent.Context
  alias AshAgent.TestSupport.Wait

  @doc "A conversation of `iterations` iterations of two messages each, of 2 KB texts that no two messages share."
  def conversation(iterations) do
    Enum.reduce(1..iterations, Context.new("Hello"), fn number, context ->
      context
      |> Context.add_assistant_message(own(number), [
        %{id: "call_#{number}", name: :search, arguments: %{q: number}}
      ])
      |> Context.add_tool_results([{"call_#{number}", {:ok, own(-number)}}])
    end)
  end

  defp own(number), do: String.pad_leading("#{number}", 2048, "x")

  @doc "Bytes of a context of 1,000 messages, and of 1,000 forks of it, the handles on the BEAM's heap included."
  def forks do
    # Five of each, all kept alive, so that the pages of the allocators weigh little.
    start = used()
    bases = for _ <- 1..5, do: conversation(500)
    middle = used()

    forks =
      for base <- bases, number <- 1..1_000, do: Context.add_user_message(base, "fork #{number}")

    finish = used()

    true = Enum.all?(bases, &(Context.count_messages(&1) == 1_001))
    true = Enum.all?(forks, &(Context.count_messages(&1) == 1_002))
    %{one: div(middle - start, 5), forks: div(finish - middle, 5)}
  end

  @doc "Bytes that the VM has with a conversation of 80 MB, and the least that it has after, when nobody calls anything."
  def given_back do
    parent = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        context = conversation(20_000)
        send(parent, {self(), Wait.resident_bytes()})
        Context.count_messages(context)
      end)

    receive do: ({:DOWN, ^monitor, :process, ^pid, :normal} -> :ok)
    receive do: ({^pid, held} -> {held, settled_below(held - 60_000_000)})
  end

  defp settled_below(bytes) do
    Wait.until(fn -> Wait.resident_bytes() < bytes end, 50_000)
    Wait.resident_bytes()
  end

  defp used do
    :erlang.garbage_collect()
    Wait.resident_bytes()
  end
end
