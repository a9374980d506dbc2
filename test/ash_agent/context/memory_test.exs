defmodule AshAgent.Context.MemoryTest do
  # Counts the live contexts of the whole VM, so nothing else may run at the same time.
  use ExUnit.Case, async: false

  @moduletag :slow

  import AshAgent.TestSupport.Memory, only: [conversation: 1]
  import AshAgent.TestSupport.Wait

  alias AshAgent.Context
  alias AshAgent.Context.Native
  alias AshAgent.TestSupport.OtherVM

  @text :binary.copy("0123456789abcdef", 128)

  setup do
    collect_garbage()
    settled(&Native.live_contexts/0)
    :ok
  end

  describe "dropped handles" do
    test "are counted while they live" do
      before = Native.live_contexts()
      contexts = for n <- 1..100, do: Context.new("Hello #{n}")
      assert Native.live_contexts() == before + 100
      assert length(contexts) == 100
    end

    test "are freed with their process" do
      before = Native.live_contexts()

      in_process(fn ->
        contexts = for n <- 1..1_000, do: Context.new("Hello #{n}")
        true = Native.live_contexts() >= before + 1_000
        length(contexts)
      end)

      assert until(fn -> Native.live_contexts() == before end)
    end

    test "are freed by garbage collection, also those in the middle of a conversation" do
      before = Native.live_contexts()
      last = conversation(100)
      :erlang.garbage_collect()
      assert until(fn -> Native.live_contexts() == before + 1 end)
      assert Context.count_iterations(last) == 101
    end

    test "are freed after they were sent to other processes" do
      before = Native.live_contexts()

      in_process(fn ->
        context = conversation(10)

        1..100
        |> Enum.map(fn _ ->
          Task.async(fn -> Context.add_user_message(Context.interrupt(context), "x") end)
        end)
        |> Task.await_many()
        |> length()
      end)

      assert until(fn -> Native.live_contexts() == before end)
    end

    test "are freed when calls with them fail" do
      before = Native.live_contexts()

      in_process(fn ->
        context = Context.new("Hello")

        for _ <- 1..1_000 do
          catch_error(Context.add_tool_results(context, [{"nobody", {:ok, @text}}]))
          catch_error(Context.add_assistant_message(context, "x", [%{id: 1}]))
          catch_error(Context.put_metadata(context, :a, [1 | 2]))
          {:error, _} = Context.create(%{iterations: [%{number: "x"}]})
        end

        :done
      end)

      assert until(fn -> Native.live_contexts() == before end)
    end
  end

  describe "texts read from a context" do
    test "stay what they are after the context is gone" do
      {texts, copies} =
        in_process(fn ->
          messages = Context.to_messages(conversation(200))
          texts = for %{content: content} <- messages, do: content
          {texts, :erlang.term_to_binary(texts)}
        end)

      in_process(fn -> length(for n <- 1..200, do: conversation(rem(n, 5) + 1)) end)
      collect_garbage()
      assert texts == :erlang.binary_to_term(copies)
    end
  end

  describe "memory" do
    # In a VM of its own, where no memory lies free that others have used before.
    @tag timeout: 120_000
    test "of 1,000 forks is less than twice that of the one of 1,000 messages they share" do
      if resident_bytes() do
        assert {:ok, %{one: one, forks: forks}} =
                 OtherVM.run(AshAgent.TestSupport.Memory, :forks, [])

        assert one > 1_000 * 2_048, "1,000 messages of 2 KB cannot take #{one} bytes"

        assert one + forks < 2 * one,
               "one context takes #{one} bytes, 1,000 forks of it #{forks} more"
      end
    end

    # On a thread of its own: on a scheduler it would take that scheduler's time. Other allocators keep what was freed, the
    # system's as it likes and a sanitizer's on purpose.
    @tag skip: if(System.get_env("RUSTFLAGS", "") =~ "system_allocator", do: "needs mimalloc")
    @tag timeout: 120_000
    test "is given back to the system when nobody calls anything any more" do
      if resident_bytes() do
        assert {:ok, {held, after_}} = OtherVM.run(AshAgent.TestSupport.Memory, :given_back, [])
        assert held - after_ > 60_000_000, "of #{held} bytes #{after_} are left"
      end
    end

    @tag timeout: 120_000
    test "does not grow with contexts that came and went" do
      if resident_bytes() do
        work = fn ->
          for _ <- 1..20 do
            in_process(fn ->
              context = conversation(200)
              Context.to_messages(context)
              {:ok, _} = Context.create(Context.to_map(context))
              Context.iterations(context)
              Context.count_messages(context)
            end)
          end

          collect_garbage()
          settled(&Native.live_contexts/0)
          resident_bytes()
        end

        work.()
        before = work.()
        for _ <- 1..4, do: work.()
        grown = work.() - before

        # The five rounds made and dropped more than 200 MB.
        assert grown < 60_000_000, "memory grew by #{grown} bytes"
      end
    end

    @tag timeout: 120_000
    test "does not grow with refused calls" do
      if resident_bytes() do
        big = :binary.copy("x", 1_000_000)

        work = fn ->
          in_process(fn ->
            context =
              Context.add_assistant_message(Context.new("Hello"), nil, [%{id: "a", name: :a}])

            for _ <- 1..100 do
              catch_error(Context.add_tool_results(context, [{"a", {:ok, [big, [1 | 2]]}}]))
              catch_error(Context.add_tool_results(context, [{"b", {:ok, big}}]))
              catch_error(Context.add_user_message(context, big))
              {:error, _} = Context.create(%{metadata: %{big: big}, iterations: 7})
            end

            :done
          end)

          collect_garbage()
          resident_bytes()
        end

        work.()
        before = work.()
        grown = work.() - before
        assert grown < 60_000_000, "memory grew by #{grown} bytes"
      end
    end
  end

  describe "a context of 1,000,000 messages" do
    @tag timeout: 120_000
    test "in one iteration can be dropped" do
      before = Native.live_contexts()

      in_process(fn ->
        context =
          Enum.reduce(1..1_000_000, Context.new("Hello"), fn _, context ->
            Context.add_user_message(context, "Hi")
          end)

        1_000_001 = Context.count_messages(context)
        {:ok, %{content: "Hi"}} = Context.fetch_message(context, {1, 1_000_000})
        context.current_iteration
      end)

      assert until(fn -> Native.live_contexts() == before end, 60_000)
    end

    @tag timeout: 120_000
    test "in 500,000 iterations can be dropped" do
      before = Native.live_contexts()

      in_process(fn ->
        context =
          Enum.reduce(1..500_000, Context.new("Hello"), fn _, context ->
            context
            |> Context.add_assistant_message("Hi")
            |> Context.add_user_message("Go on")
          end)

        1_000_001 = Context.count_messages(context)
        500_001 = context.current_iteration
        %{number: 250_000} = Context.get_iteration(context, 250_000)
        500_001 = Enum.count(context)
      end)

      assert until(fn -> Native.live_contexts() == before end, 60_000)
    end
  end
end
