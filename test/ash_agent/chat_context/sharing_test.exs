defmodule AshAgent.ChatContext.SharingTest do
  # Counts the live contexts of the whole VM, so nothing else may run at the same time.
  use ExUnit.Case, async: false

  import AshAgent.TestSupport.ChatMemory, only: [branched: 2, chat: 1]
  import AshAgent.TestSupport.Wait

  alias AshAgent.{ChatContext, Context}
  alias AshAgent.Context.Native
  alias AshAgent.TestSupport.OtherVM

  setup do
    collect_garbage()
    settled(&Native.live_contexts/0)
    :ok
  end

  # The reductions of a call.
  # The least of several: a NIF counts the time that it takes, and the machine may be busy.
  defp cost(fun), do: Enum.min(for _ <- 1..5, do: count_reductions(fun))

  defp count_reductions(fun) do
    parent = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        fun.()
        {:reductions, before} = Process.info(self(), :reductions)
        fun.()
        {:reductions, later} = Process.info(self(), :reductions)
        send(parent, {self(), later - before})
      end)

    receive do
      {^pid, reductions} ->
        Process.demonitor(monitor, [:flush])
        reductions

      {:DOWN, ^monitor, :process, ^pid, reason} ->
        exit(reason)
    end
  end

  describe "a branch" do
    test "is the same handle, and one rewound is one handle more" do
      chat = chat(50)
      collect_garbage()
      before = settled(&Native.live_contexts/0)
      chat = Enum.reduce(1..100, chat, &ChatContext.branch(&2, "same #{&1}"))
      assert settled(&Native.live_contexts/0) == before

      chat =
        Enum.reduce(
          1..100,
          chat,
          &ChatContext.branch(&2, "rewound #{&1}", iteration: rem(&1, 50) + 1)
        )

      collect_garbage()
      assert settled(&Native.live_contexts/0) == before + 100
      assert map_size(chat.branches) == 201
    end

    test "is freed when it is deleted, or replaced" do
      before = Native.live_contexts()

      in_process(fn ->
        chat = branched(chat(20), 10)
        chat = Enum.reduce(1..10, chat, &ChatContext.delete_branch(&2, "branch #{&1}"))

        chat =
          Enum.reduce(1..50, chat, fn _, chat ->
            ChatContext.put_user_prompt(chat, String.duplicate("u", 100))
          end)

        chat =
          Enum.reduce(1..50, chat, fn _, chat ->
            ChatContext.put_system_prompt(chat, String.duplicate("s", 100))
          end)

        chat = ChatContext.update_context(chat, &Context.interrupt/1)
        :erlang.garbage_collect()
        # The prompts are read from the context that the branch has, and keep no other one.
        true = until(fn -> Native.live_contexts() == before + 1 end)
        chat.id
      end)

      assert until(fn -> Native.live_contexts() == before end)
    end
  end

  describe "10,000 messages" do
    test "cost no more to branch, to switch and to hand over than none" do
      long = chat(5_000)
      empty = ChatContext.new(id: long.id, input: "Hello")
      assert Context.count_messages(ChatContext.active(long).context) == 10_001

      for operation <- [
            &ChatContext.branch(&1, "b"),
            &ChatContext.branch(&1, "b", iteration: 1),
            &ChatContext.branch(&1, "b",
              iteration: ChatContext.active(&1).context.current_iteration
            ),
            &ChatContext.rename_branch(&1, "main", "b"),
            &ChatContext.switch(&1, "main"),
            &ChatContext.put_user_prompt(&1, "U"),
            &ChatContext.put_system_prompt(&1, "S")
          ] do
        # A call may be made again on a dirty scheduler, which is some reductions.
        assert cost(fn -> operation.(long) end) <= cost(fn -> operation.(empty) end) + 100
        assert :erts_debug.flat_size(operation.(long)) <= :erts_debug.flat_size(operation.(empty))
      end
    end

    test "are handed to another process as handles" do
      chat = branched(chat(5_000), 10)
      collect_garbage()
      before = settled(&Native.live_contexts/0)
      words = :erts_debug.flat_size(chat)
      assert words < 1_000

      task =
        Task.async(fn ->
          collect_garbage()
          {Native.live_contexts(), :erts_debug.flat_size(chat), map_size(chat.branches)}
        end)

      assert {^before, ^words, 11} = Task.await(task)
    end
  end

  describe "memory" do
    # In a VM of its own, where no memory lies free that others have used before.
    @tag timeout: 120_000
    test "of messages is taken once, however many branches have them, also after loading" do
      if resident_bytes() do
        assert {:ok, %{one: one, branches: branches, loaded: loaded}} =
                 OtherVM.run(AshAgent.TestSupport.ChatMemory, :bytes, [])

        assert one > 10_000 * 2_048, "10,000 messages of 2 KB cannot take #{one} bytes"
        # 1,000 branches of 5,000 messages on average would be 10 GB.
        assert branches < one, "one takes #{one} bytes, 1,000 branches of it #{branches} more"
        assert loaded < 3 * one, "one takes #{one} bytes, 11 loaded branches #{loaded}"
      end
    end

    test "of a loaded chat is one handle a branch" do
      dump = ChatContext.dump(branched(chat(50), 10))
      collect_garbage()
      before = settled(&Native.live_contexts/0)
      copy = ChatContext.load!(dump)
      :erlang.garbage_collect()
      assert until(fn -> Native.live_contexts() == before + 11 end)
      assert map_size(copy.branches) == 11
    end
  end

  describe "dumps of many branches" do
    # Comparing is what a dump could spend too much on: every branch with every other one.
    test "compare each branch with few others" do
      chat = ChatContext.new(input: "start")

      star = Enum.reduce(1..300, chat, &own(ChatContext.branch(&2, "b#{&1}", from: "main"), &1))

      chain =
        Enum.reduce(1..300, chat, fn number, chat ->
          from = if number == 1, do: "main", else: "b#{number - 1}"
          own(ChatContext.branch(chat, "b#{number}", from: from), number)
        end)

      for chat <- [star, chain] do
        assert comparisons(chat) < 3 * 300
        assert comparisons(ChatContext.load!(ChatContext.dump(chat))) < 3 * 300
      end
    end

    defp own(chat, number),
      do:
        ChatContext.update_context(
          chat,
          &(&1
            |> Context.add_assistant_message("a#{number}")
            |> Context.add_user_message("u#{number}")),
          branch: "b#{number}"
        )

    defp comparisons(chat) do
      function = {Native, :context_last_common, 2}
      Code.ensure_loaded!(Native)
      :erlang.trace_pattern(function, true, [:call_count])
      ChatContext.dump(chat)
      {:call_count, count} = :erlang.trace_info(function, :call_count)
      :erlang.trace_pattern(function, false, [:call_count])
      count
    end
  end
end
