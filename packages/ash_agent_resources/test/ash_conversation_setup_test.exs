defmodule AshAgent.Integration.ConversationSetupTest do
  # What is checked at compile time, and what the generator writes.
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO

  alias AshAgent.Integration.Compiled

  @moduletag :ash
  @moduletag integrations: ["Ash"]

  defp compile(section, opts \\ []) do
    Compiled.said(
      AshAgent.Conversation,
      """
      #{opts[:body]}

      conversation do
        #{section}
      end
      """,
      Keyword.take(opts, [:data_layer])
    )
  end

  test "a resource that cannot work is refused with words" do
    whole = "llm AshAgent.LLM.Ollama\nstore :s\n"

    for {section, words} <- [
          {"store :s", ~r/required :llm option/},
          {"llm AshAgent.LLM.Ollama", ~r/a conversation without AshPostgres needs a store/},
          {"llm 7\nstore :s", ~r/expected a model/},
          {"#{whole}max_iterations 0", ~r/max_iterations/},
          {"#{whole}fly true", ~r/fly/},
          {"#{whole}options [tools: []]", ~r/have a place of their own/},
          {"#{whole}options [kept: nil]", ~r/are set by the conversation itself/},
          {"#{whole}options [llm_timeout: 0]", ~r/invalid value for option :llm_timeout/},
          {"#{whole}permission_rules [7]", ~r/permission_rules/},
          {"#{whole}iterations AshAgent.Integration.Memo",
           ~r/iterations are read with AshPostgres/}
        ] do
      assert compile(section) =~ words
    end

    keys =
      "attributes do\nuuid_primary_key :a\nattribute :b, :string, primary_key?: true, allow_nil?: false, public?: true\nend"

    assert compile(whole, body: keys) =~
             "a primary key of one attribute"
  end

  test "one that can work is not, also with parts of its own" do
    refute compile("llm AshAgent.LLM.Ollama\nstore :s") =~ "verifying"

    own =
      "actions do\nupdate :cancel do\naccept []\nend\nend\nattributes do\ninteger_primary_key :number\nend"

    section = "llm {AshAgent.LLM.Ollama, model: \"m\"}\nstore :s\napproval :auto"
    refute compile(section, body: own) =~ "verifying"
  end

  if Code.ensure_loaded?(AshPostgres.DataLayer) do
    alias AshAgent.Integration.Repo

    defp compile_iterations(conversation, body, using) do
      Compiled.said(
        AshAgent.Conversation.Iteration,
        """
        #{body}

        iteration do
          conversation #{inspect(conversation)}
        end
        """,
        [data_layer: AshPostgres.DataLayer] ++ using
      )
    end

    test "iterations that would not be a conversation's, or could be written, are refused" do
      policies = [authorizers: [Ash.Policy.Authorizer]]
      table = AshAgent.Integration.TableChat

      assert compile_iterations(table, "", policies) =~
               "has to name this resource as its iterations"

      assert compile_iterations(table, "", []) =~ "add authorizers: [Ash.Policy.Authorizer]"

      assert compile_iterations(AshAgent.Integration.Row, "", []) =~
               "expected an Ash resource with AshAgent.Conversation, got: AshAgent.Integration.Row"

      writes = "actions do\ndefaults [create: :*]\nend"
      assert compile_iterations(table, writes, policies) =~ "[:create] write iterations"
    end

    describe "mix ash_agent.gen.conversation" do
      @describetag :postgres
      @describetag :tmp_dir
      @describetag integrations: ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]

      setup do: AshAgent.TestSupport.MixTask.hear()

      setup %{tmp_dir: dir} do
        %{
          run: fn args ->
            File.cd!(dir, fn -> Mix.Tasks.AshAgent.Gen.Conversation.run(args) end)
          end
        }
      end

      @args ~w(AshAgent.Integration.Made --domain AshAgent.Integration.Open --repo AshAgent.Integration.Repo --table made_chats)

      test "writes resources that work after `mix ash.codegen`", %{tmp_dir: dir, run: run} do
        domain = "AshAgent.Integration.Making"

        run.(
          ~w(AshAgent.Integration.Made --domain #{domain} --repo AshAgent.Integration.Repo --table made_chats --tenant org)
        )

        lib = Path.join(dir, "lib/ash_agent/integration")
        paths = for name <- ["made.ex", "iteration.ex"], do: Path.join(lib, name)
        making = Path.join(lib, "making.ex")

        File.write!(making, """
        defmodule #{domain} do
          use Ash.Domain, validate_config_inclusion?: false

          resources do
            resource AshAgent.Integration.Made
            resource AshAgent.Integration.Iteration
          end
        end
        """)

        # Its policies forbid everything, which the test has to get around.
        # By name: the compiler does not know it.
        made = Module.concat(["AshAgent.Integration.Made"])

        said =
          capture_io(:stderr, fn ->
            {:ok, _modules, _warnings} = Kernel.ParallelCompiler.compile([making | opened(paths)])
          end)

        refute said =~ "may not be compatible"

        # What a page changes a call and steers with.
        for {action, argument} <- [approve: :edited, say: :steer] do
          %{arguments: arguments} = Ash.Resource.Info.action(made, action)
          assert argument in Enum.map(arguments, & &1.name)
        end

        Repo.query!("DROP TABLE IF EXISTS made_chats")
        migrations = Path.join(dir, "migrations")

        # As the task calls them, in no order.
        for extension <- [AshAgent.Conversation, AshPostgres.DataLayer],
            do:
              extension.codegen(
                ~w(--name made --domains #{domain} --migration-path #{migrations} --snapshot-path #{dir}/snapshots)
              )

        Ecto.Migrator.run(Repo, migrations, :up, all: true, log: false)

        context = %{ash_agent: %{options: [llm: AshAgent.LLM.Scripted.new(["Hello!"])]}}
        chat = made.start!(%{title: "a", input: "Hi"}, tenant: "acme", context: context)
        assert chat.__metadata__.run.output == "Hello!"
        chat = Ash.load!(chat, [:transcript, iterations: :content], tenant: "acme")
        assert [%{role: :user}, %{role: :assistant}] = chat.transcript
        assert [%{content: %{messages: [_, %{content: "Hello!"}]}}] = chat.iterations
        assert Ash.read!(made, tenant: "other") == []
      end

      defp opened(paths) do
        for path <- paths do
          text = path |> File.read!() |> String.replace("forbid_if", "authorize_if")
          File.write!(path, text)
          path
        end
      end

      test "overwrites nothing, and takes only names", %{run: run} do
        run.(@args)
        assert_raise Mix.Error, ~r/exists already/, fn -> run.(@args) end

        for {args, words} <- [
              {[], ~r/expected one module/},
              {["made"], ~r/expected the name of a module/},
              {["Made"], ~r/--domain is missing/},
              {~w(Made --domain A), ~r/--repo is missing/},
              {~w(Made --domain A --repo B --table a;b),
               ~r/expected a name of lower case letters/},
              {~w(Made --fast), ~r/wrong option --fast/}
            ] do
          assert_raise Mix.Error, words, fn -> run.(args) end
        end
      end
    end
  end
end
