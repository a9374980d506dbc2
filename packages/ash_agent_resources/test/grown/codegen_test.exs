if Code.ensure_loaded?(MyApp.DataCase) do
  defmodule MyApp.CodegenTest do
    # `mix ash.codegen` is the way.
    use MyApp.DataCase, async: false

    alias MyApp.Chat.Repo

    @moduletag :tmp_dir

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
      assert text =~ "AshAgent.Store.Postgres.Migrations.up(version: 3)"
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

      for version <- [1, 2, 3] do
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
        upgrade = ~r/Store.Postgres.Migrations.up\(version: 3\).*down\(version: #{version + 1}\)/s

        if version < 3,
          do: assert(text =~ upgrade),
          else: refute(text =~ "Store.Postgres")

        File.rm!(file)
      end
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
