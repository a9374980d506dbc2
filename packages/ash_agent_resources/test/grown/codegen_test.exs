if Code.ensure_loaded?(MyApp.DataCase) do
  defmodule MyApp.CodegenTest do
    # `mix ash.codegen` is the way.
    use MyApp.DataCase, async: false

    alias MyApp.Chat.Repo

    @moduletag :tmp_dir

    # Of the tables of the store.
    @latest AshAgent.Store.Schema.latest(:postgres)

    defp migrations(folder, pattern \\ "*"),
      do:
        folder
        |> Path.join("migrations/#{pattern}.exs")
        |> Path.wildcard()
        |> Enum.map(&Path.basename/1)

    test "makes all tables at once, and nothing the second time" do
      folder = migrated()
      names = migrations(folder)
      assert [ours] = migrations(folder, "*_initial_ash_agent")
      # After those of the resources.
      assert List.last(names) == ours
      codegen(folder, ["again"])
      codegen(folder, ["--check"])
      assert migrations(folder) == names

      text = File.read!(Path.join([folder, "migrations", ours]))
      assert text =~ "AshAgent.Store.Postgres.Migrations.up(version: #{@latest})"
      for table <- ~w(conversations cases), do: assert(text =~ ~s(table: "#{table}"))

      assert %{rows: [[true]]} =
               Repo.query!("SELECT to_regprocedure('ash_raise_error(jsonb)') IS NOT NULL")
    end

    test "honours --dry-run, --check, --dev and the name", %{tmp_dir: folder} do
      assert codegen(folder, ["first", "--dry-run"]) =~ "AshAgent.Conversation.Migrations.up("
      assert_raise Mix.Error, ~r/Pending Code Generation/, fn -> codegen(folder, ["--check"]) end
      assert migrations(folder) == []

      codegen(folder, ["--dev"])
      assert [_] = migrations(folder, "*_ash_agent_dev")
      codegen(folder, ["--dev"])
      assert [_] = migrations(folder, "*_ash_agent_dev")
      assert_raise Mix.Error, fn -> codegen(folder, ["--check"]) end
    end

    test "a migration of --dev gives way to the one with a name", %{tmp_dir: folder} do
      codegen(folder, ["first"])
      [ours] = migrations(folder, "*_first_ash_agent")
      File.rm!(Path.join([folder, "migrations", ours]))
      codegen(folder, ["--dev"])
      assert [_] = migrations(folder, "*_ash_agent_dev")
      codegen(folder, ["second"])
      assert migrations(folder, "*_ash_agent_dev") == []
      assert [_] = migrations(folder, "*_second_ash_agent")
    end

    test "what another release has made counts", %{tmp_dir: folder} do
      store = Path.join(folder, "migrations/1_store.exs")
      File.mkdir_p!(Path.dirname(store))

      for version <- 1..@latest do
        File.write!(store, """
        defmodule MyApp.Chat.Repo.Migrations.Store do
          use Ecto.Migration
          def up, do: AshAgent.Store.Postgres.Migrations.up(version: #{version})
        end
        """)

        codegen(folder, ["first"])
        [ours] = migrations(folder, "*_first_ash_agent")
        file = Path.join([folder, "migrations", ours])
        text = File.read!(file)
        assert text =~ ~s(table: "cases")

        # From the version that is there to the latest one, and back.
        upgrade =
          ~r/Store.Postgres.Migrations.up\(version: #{@latest}\).*down\(version: #{version + 1}\)/s

        if version < @latest,
          do: assert(text =~ upgrade),
          else: refute(text =~ "Store.Postgres")

        File.rm!(file)
      end
    end

    @store "AshAgent.Store.Postgres.Migrations"
    @tie "AshAgent.Conversation.Migrations"

    test "what a migration calls by an alias counts", %{tmp_dir: folder} do
      codegen(folder, ["first"])
      [ours] = migrations(folder, "*_first_ash_agent")
      file = Path.join([folder, "migrations", ours])
      text = File.read!(file)
      [head, body] = String.split(text, "use Ecto.Migration", parts: 2)

      for {aliases, store, tie} <- [
            {"alias #{@store}, as: Store\nalias #{@tie}", "Store", "Migrations"},
            {"alias AshAgent.{Conversation, Store.Postgres}", "Postgres.Migrations",
             "Conversation.Migrations"},
            {"alias AshAgent.Store\nalias #{@tie}, as: Tie", "Store.Postgres.Migrations", "Tie"},
            {"", @store, @tie}
          ] do
        body =
          body
          |> String.replace(@store <> ".", store <> ".")
          |> String.replace(@tie <> ".", tie <> ".")

        File.write!(file, head <> "use Ecto.Migration\n" <> aliases <> body)
        codegen(folder, ["--check"])
      end

      # Of something else.
      body = String.replace(body, @store <> ".", "Migrations.")
      File.write!(file, head <> "use Ecto.Migration\nalias MyApp.Other.Migrations" <> body)
      assert_raise Mix.Error, fn -> codegen(folder, ["--check"]) end
    end

    test "a dump of the structure stands for migrations that are gone", %{tmp_dir: folder} do
      codegen(folder, ["first"])
      [ours] = migrations(folder, "*_first_ash_agent")
      path = Path.join([folder, "migrations", ours])
      ties = Regex.scan(~r/table: "(\w+)",\s+key: "(\w+)",\s+name: "(\w+)"/, File.read!(path))
      File.rm!(path)
      assert_raise Mix.Error, fn -> codegen(folder, ["--check"]) end

      dump = Path.join(folder, "structure.sql")
      text = Enum.map_join(ties, "\n", fn [_ | tie] -> dump(tie) end)
      store = "COMMENT ON TABLE public.ash_agent_conversations IS '#{@latest}';\n"
      File.write!(dump, store <> text)
      codegen(folder, ["--check"])

      # One table less, or an older version.
      for less <- [
            String.replace(store, "'#{@latest}'", "'1'") <> text,
            text,
            store <> dump(tl(hd(ties)))
          ] do
        File.write!(dump, less)
        assert_raise Mix.Error, fn -> codegen(folder, ["--check"]) end
      end
    end

    # As pg_dump writes what the migrations make.
    defp dump([table, key, name]) do
      [function | _] =
        AshAgent.Conversation.Migrations.sql(prefix: "public", table: table, key: key, name: name)

      [function, trigger] =
        for text <- [function, List.last(Regex.run(~r/function ("public"\.\S+)\(\)/, function))],
            do:
              text
              |> String.replace(~s("public".), "public.")
              |> String.replace(~r/"(ash_agent_\w+)"/, "\\1")

      body = function |> String.split("$ash_agent$") |> Enum.at(1)

      """
      CREATE FUNCTION #{trigger}() RETURNS trigger
          LANGUAGE plpgsql
          AS $$#{body}$$;

      CREATE TRIGGER ash_agent_delete AFTER DELETE ON public.#{table} FOR EACH ROW EXECUTE FUNCTION #{trigger}();
      """
    end

    test "a renamed table is told what keeps its conversations", %{tmp_dir: folder} do
      codegen(folder, ["first"])
      [ours] = migrations(folder, "*_first_ash_agent")
      file = Path.join([folder, "migrations", ours])
      text = File.read!(file)
      refute codegen_warned(folder) =~ "was renamed"
      File.write!(file, String.replace(text, ~s("cases"), ~s("matters")))
      said = codegen_warned(folder)
      assert said =~ "MyApp.Chat.Case has no conversations under the name \"cases\" yet"
      assert said =~ ~s(write `name "matters"`)
      refute said =~ "Conversation has no"
    end

    defp codegen_warned(folder) do
      codegen(folder, ["second", "--dry-run"])
      AshAgent.TestSupport.MixTask.said(:error)
    end

    test "an own update action with a validation works" do
      opts = [actor: user("ann"), tenant: "acme"]
      chat = MyApp.Chat.Conversation.start!(%{title: "One"}, opts)
      update = &Ash.update(chat, %{title: &1}, [action: :rename] ++ opts)
      assert {:ok, %{title: "Other"}} = update.("Other")
      assert {:error, %Ash.Error.Invalid{}} = update.("x")
    end
  end
end
