if Code.ensure_loaded?(AshPostgres.DataLayer) do
  defmodule AshAgent.Integration.ConversationNodesTest do
    # Two nodes of one application, with conversations in one database.
    use ExUnit.Case, async: false

    alias AshAgent.Integration.{Chats, ChatNodes, Repo, TableChat}
    alias AshAgent.TestSupport.Nodes

    @moduletag :ash
    @moduletag :postgres
    @moduletag timeout: 300_000
    @moduletag integrations: ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]

    setup_all do
      Chats.tables(TableChat)
      Repo.query!("DROP TABLE IF EXISTS effects")
      Repo.query!("CREATE TABLE effects (conversation_id text NOT NULL)")
      :ok
    end

    defp nodes(fun) do
      Nodes.group([:a, :b], fn call, nodes ->
        at = &call.(&1, {ChatNodes, &2, &3})
        for name <- [:a, :b], do: at.(name, :start, [])
        fun.(at, nodes)
      end)
    end

    defp effects(id) do
      %{rows: [[count]]} =
        Repo.query!("SELECT count(*) FROM effects WHERE conversation_id = $1", [id])

      count
    end

    test "say something at once, and each message is answered once, one after the other" do
      nodes(fn at, _nodes ->
        id = at.(:a, :open, [])

        answers =
          for name <- [:a, :b] do
            texts = for n <- 1..6, do: "#{name}#{n}"
            Task.async(fn -> {texts, at.(name, :say_at_once, [id, texts])} end)
          end
          |> Task.await_many(240_000)

        [_system | said] = at.(:b, :texts, [id])

        assert Enum.sort(Enum.flat_map(answers, &elem(&1, 0))) ==
                 said |> Enum.take_every(2) |> Enum.sort()

        for [text, answer] <- Enum.chunk_every(said, 2),
            do: assert(String.starts_with?(answer, "re: #{text} "))

        # Whoever waited got the answer to what they said.
        for {texts, outputs} <- answers,
            {text, {:ok, output}} <- Enum.zip(texts, outputs),
            do: assert(String.starts_with?(output, "re: #{text} "))

        assert at.(:a, :status, [id]) == :idle
      end)
    end

    test "of which one was killed in a turn: the other one goes on, and does nothing twice" do
      nodes(fn at, %{b: b} ->
        id = at.(:a, :open, [])
        at.(:a, :start_saying, [id, "pay"])
        at.(:a, :await_held, [])
        assert at.(:b, :status, [id]) == :running
        pid = at.(:a, :os_pid, [])
        Nodes.kill(pid)

        # Nobody runs it, and what is said is kept.
        assert at.(:b, :say, [id, "two"]) in [:kept, {:ok, "re: two #{b}"}]
        assert {:ok, _output} = at.(:b, :resume, [id])

        assert ["pay", "paid " <> _, "two", answer] = tl(at.(:b, :texts, [id]))
        assert answer == "re: two #{b}"
        assert effects(id) == 1
        assert at.(:b, :status, [id]) == :idle
      end)
    end
  end
end
