if Code.ensure_loaded?(Ecto.Adapters.Postgres) do
  defmodule AshAgent.Integration.StorageGuideTest do
    # The modules and tables of the guide, as they stand there.
    use ExUnit.Case, async: false

    import AshAgent.TestSupport.Runs, only: [drain: 1]

    alias AshAgent.{Context, Session}
    alias MyApp.{Conversations, Repo, Snapshots}

    @compile {:no_warn_undefined, [Conversations, Snapshots]}
    @moduletag :ecto
    @moduletag :postgres
    @moduletag :capture_log
    @moduletag timeout: 300_000
    @moduletag integrations: ["Ecto", "Postgrex", "PostgreSQL"]

    setup_all do
      Repo.query!("DROP TABLE IF EXISTS iterations, conversations, snapshots")
      guide = File.read!("../../guides/storage.md")

      for sql <- blocks(guide, "sql"),
          statement <- String.split(sql, ";\n", trim: true),
          do: Repo.query!(statement)

      modules =
        for code <- blocks(guide, "elixir"),
            code =~ ~r/^defmodule MyApp\.(Conversations|Snapshots) do/,
            {module, _} <- Code.compile_string(code, "../../guides/storage.md"),
            do: module

      assert Enum.sort(modules) == [Conversations, Snapshots]
      %{guide: guide}
    end

    setup do
      Repo.query!("TRUNCATE conversations, iterations, snapshots")
      :ok
    end

    defp blocks(guide, language) do
      ~r/^```#{language}\n(.*?)^```/ms
      |> Regex.scan(guide, capture: :all_but_first)
      |> List.flatten()
    end

    defp save!(context, saved \\ nil) do
      assert {:ok, saved} = Conversations.save(context, saved)
      assert {:ok, fetched} = Conversations.fetch(context[:id])
      assert Context.equal?(fetched.context, context)
      assert fetched.version == saved.version
      saved
    end

    defp answer(context, text), do: Context.add_assistant_message(context, text)
    defp ask(context, text), do: Context.add_user_message(context, text)

    defp long(count),
      do: Enum.reduce(2..count, Context.new("1"), &(&2 |> answer("a#{&1}") |> ask("#{&1}")))

    defp numbers(id),
      do:
        Repo.query!("SELECT number FROM iterations WHERE conversation_id = $1 ORDER BY number", [
          id
        ]).rows
        |> List.flatten()

    test "the example works", %{guide: guide} do
      assert [example] =
               for(
                 code <- blocks(guide, "elixir"),
                 code =~ "true = AshAgent.Context.equal?",
                 do: code
               )

      assert {true, _} = Code.eval_string(example)
    end

    test "what is not there, and what cannot be loaded" do
      assert Conversations.fetch("none") == :error
      saved = save!(Context.new("hi"))
      Repo.query!("UPDATE iterations SET document = '{}'")
      assert {:error, %Context.Error{}} = Conversations.fetch(saved.context[:id])
    end

    test "only what changed is written" do
      saved = save!(long(30))

      xmins = fn ->
        Repo.query!("SELECT number, xmin::text FROM iterations ORDER BY number").rows
      end

      before = xmins.()
      save!(saved.context |> answer("!") |> ask("?"), saved)
      assert [[30, _], [31, _]] = xmins.() -- before
    end

    test "a conversation of many iterations" do
      saved = save!(long(3_000))
      assert length(numbers(saved.context[:id])) == 3_000
    end

    test "a rewound iteration does not come back, and another in its place does" do
      saved = save!(long(6))
      id = saved.context[:id]
      rewound = save!(Context.rewind(saved.context, to: 2), saved)
      assert numbers(id) == [1, 2]
      other = save!(rewound.context |> ask("other 3") |> answer("b") |> ask("other 4"), rewound)
      assert numbers(id) == [1, 2, 3, 4]

      # Between two saves.
      grown = other.context |> answer("c") |> ask("5") |> answer("d") |> ask("6")
      saved = save!(grown, other)

      again =
        grown
        |> Context.rewind(to: 2)
        |> ask("third 3")
        |> answer("e")
        |> ask("third 4")
        |> answer("f")
        |> ask("5")
        |> answer("g")
        |> ask("6")

      save!(again, saved)
    end

    test "a token report that comes late is not forgotten" do
      context =
        Context.new("Weather?")
        |> Context.add_assistant_message(nil, [%{id: "a", name: "w", arguments: %{}}])
        |> Context.add_tool_results([{"a", {:ok, 72}}])

      saved = save!(context)
      assert saved.context.current_iteration == 2

      saved =
        save!(
          Context.Tokens.add_token_usage(saved.context, %{input_tokens: 9, output_tokens: 2}),
          saved
        )

      {:ok, fetched} = Conversations.fetch(saved.context[:id])
      assert Context.Tokens.get_iteration_tokens(fetched.context, 1).total_tokens == 11
    end

    test "notes on earlier iterations, prompts, masks and summaries are kept" do
      saved = save!(long(8))
      saved = save!(Context.put_iteration_metadata(saved.context, 2, :note, "good"), saved)
      saved = save!(Context.put_system_prompt(saved.context, "Be brief."), saved)

      saved = save!(Context.View.put_masks(saved.context, [{"a\\d", "*"}]), saved)

      saved = save!(Context.View.mark_as_summarized(saved.context, 1..4, "s"), saved)
      saved = save!(Context.View.expand(saved.context, :all), saved)
      assert save!(saved.context, saved).version == 7
    end

    test "one of two writers is told that it is late" do
      saved = save!(long(3))
      id = saved.context[:id]
      {:ok, other} = Conversations.fetch(id)
      later = save!(ask(answer(saved.context, "mine"), "4"), saved)
      assert Conversations.save(answer(other.context, "yours"), other) == {:error, :stale}
      assert Conversations.save(saved.context) == {:error, :stale}
      assert {:ok, fetched} = Conversations.fetch(id)
      assert Context.equal?(fetched.context, later.context)
      assert fetched.version == later.version
    end

    test "of many writers at once each save is one that somebody made, in a row" do
      saved = save!(long(2))
      id = saved.context[:id]

      results =
        1..8
        |> Enum.map(fn writer ->
          Task.async(fn -> for turn <- 1..15, do: try_to_add(id, "#{writer}.#{turn}") end)
        end)
        |> Task.await_many(120_000)
        |> List.flatten()

      added = for {:ok, text} <- results, do: text
      assert {:ok, fetched} = Conversations.fetch(id)

      answers =
        for %{role: :assistant, content: text} <- Context.to_messages(fetched.context),
            text in added,
            do: text

      assert Enum.sort(answers) == Enum.sort(added)
      assert fetched.version == saved.version + length(added)
      assert :stale in results
    end

    defp try_to_add(id, text) do
      {:ok, saved} = Conversations.fetch(id)

      case Conversations.save(saved.context |> answer(text) |> ask("next"), saved) do
        {:ok, _} -> {:ok, text}
        {:error, :stale} -> :stale
      end
    end

    test "a fork with an id of its own is stored beside its origin" do
      saved = save!(long(4))
      fork = Context.fork(saved.context, id: "fork") |> answer("in the fork")
      assert Conversations.save(fork, saved) == {:error, :stale}
      save!(fork)
      id = saved.context[:id]
      assert {:ok, %{context: stored}} = Conversations.fetch("fork")
      assert stored[:origin] == %{id: id, iteration: 4}
      assert {:ok, origin} = Conversations.fetch(id)
      assert Context.equal?(origin.context, saved.context)
    end

    test "a writer that is killed 80 times at random leaves nothing that cannot be loaded" do
      outcomes =
        for round <- 1..8,
            id = "killed-#{round}",
            save!(Context.new("start", id: id)),
            _ <- 1..10 do
          kill_a_writer(id)
        end

      # Some in the middle of saving, some after.
      assert length(outcomes) == 80
      assert :lost in outcomes and :saved in outcomes
    end

    defp kill_a_writer(id) do
      test = self()
      {:ok, before} = Conversations.fetch(id)
      {pid, monitor} = spawn_monitor(fn -> write(before, test) end)
      seen = for _ <- 1..:rand.uniform(5), do: assert_receive({:saving, _}) |> elem(1)
      Process.sleep(:rand.uniform(12) - 1)
      Process.exit(pid, :kill)
      assert_receive {:DOWN, ^monitor, :process, ^pid, :killed}

      # The contexts that the writer tried to save, newest first.
      all = [before.context | seen] ++ drain(do: ({:saving, context} -> context))
      [last, one_before | _] = Enum.reverse(all)

      wait_for_the_server(id)
      assert {:ok, fetched} = Conversations.fetch(id)
      saved? = Context.equal?(fetched.context, last)
      assert saved? or Context.equal?(fetched.context, one_before)
      if saved?, do: :saved, else: :lost
    end

    # The transaction of a client that died goes on until the server hears of it; the row's lock waits for that.
    defp wait_for_the_server(id),
      do: Repo.query!("SELECT id FROM conversations WHERE id = $1 FOR UPDATE", [id])

    defp write(saved, test) do
      context = change(saved.context)
      send(test, {:saving, context})
      {:ok, saved} = Conversations.save(context, saved)
      write(saved, test)
    end

    # The log and the view change, in ways that only fit together.
    defp change(context) do
      number = context.current_iteration

      case :rand.uniform(8) do
        1 when number > 3 ->
          Context.rewind(context, to: number - :rand.uniform(3))

        2 when number > 3 ->
          Context.View.hide(context, {:all_but_last, 2})

        3 when number > 6 ->
          Context.View.mark_as_summarized(Context.View.expand(context, :all), 1..2, "s")

        4 ->
          Context.View.expand(context, :all)

        5 ->
          Context.View.put_masks(context, [{"x#{:rand.uniform(9)}", "*"}])

        6 when number > 1 ->
          Context.put_iteration_metadata(context, number - 1, :note, :rand.uniform(99))

        _ ->
          context |> grow()
      end
    end

    defp grow(context),
      do: context |> answer(String.duplicate("x", :rand.uniform(2_000))) |> ask("next")

    test "a session goes on after a restart, with its masks" do
      test = self()

      llm = fn context ->
        send(test, {:asked, context})
        {:ok, %{content: "I see."}}
      end

      assert Snapshots.get("conversation-1") == nil

      code =
        "../../guides/storage.md"
        |> File.read!()
        |> blocks("elixir")
        |> Enum.find(&(&1 =~ "children = ["))

      {children, _} = Code.eval_string(code, llm: llm)
      {:ok, supervisor} = Supervisor.start_link(children, strategy: :one_for_one)
      session = MyApp.Assistant
      assert {:ok, _} = Session.prompt(session, "The password is tulip.")

      # As somebody does who sees to what may be sent.
      masked =
        "conversation-1"
        |> Snapshots.get()
        |> Context.load!()
        |> Context.View.put_masks([{"tulip", "***"}])

      Snapshots.put("conversation-1", masked)
      [{_, pid, _, _}] = Supervisor.which_children(supervisor)
      monitor = Process.monitor(pid)
      Process.exit(pid, :kill)
      assert_receive {:DOWN, ^monitor, :process, ^pid, :killed}

      AshAgent.TestSupport.Wait.until(fn ->
        is_pid(GenServer.whereis(session)) and GenServer.whereis(session) != pid
      end)

      assert {:ok, _} = Session.prompt(session, "And now?")
      assert_receive {:asked, _}
      assert_receive {:asked, context}
      {:ok, body} = Context.encode_request(context, :openai_chat, body: %{model: "m"})
      refute IO.iodata_to_binary(body) =~ "tulip"
      assert IO.iodata_to_binary(body) =~ "***"
      Supervisor.stop(supervisor)
    end
  end
end
