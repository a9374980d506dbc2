if Code.ensure_loaded?(AshPostgres.DataLayer) do
  alias AshAgent.Integration.{SchemaChat, SchemaIteration, TableChat, TableIteration}
  alias AshAgent.Integration.{SchemaDesk, TableDesk}

  # What conversations and iterations cost, with tenants by attribute and by schema.
  for {chat, iteration, desk} <- [
        {TableChat, TableIteration, TableDesk},
        {SchemaChat, SchemaIteration, SchemaDesk}
      ] do
    defmodule Module.concat(AshAgent.Integration.MoneyTest, chat |> Module.split() |> List.last()) do
      use ExUnit.Case, async: false

      require Ash.Query

      alias AshAgent.{Context, Prices, Runtime, Store}
      alias AshAgent.Conversation.Info
      alias AshAgent.Integration.{Chats, Repo}

      @moduletag :ash
      @moduletag :postgres
      @moduletag :capture_log
      @moduletag integrations: ["Ash", "AshPostgres", "Postgrex", "PostgreSQL"]

      @chat chat
      @iteration iteration
      @desk desk
      @ann %{id: "a1", name: "ann", role: :agent}
      # A sum that no float has.
      @prices [%{model: "m", input: 3_000_001, cache_read: 300_003, output: 15_000_007}]
      @tokens ~w(input_tokens output_tokens cached_tokens cache_write_tokens reasoning_tokens)a
      @sums [:cost, :unpriced_answers, :prices_digest | @tokens]

      setup_all do
        Chats.tables(@chat)
        schemas = if @chat == SchemaChat, do: ["acme.", "other."], else: [""]

        for schema <- schemas do
          Repo.query!("DROP TABLE IF EXISTS #{schema}desks")
          Repo.query!("CREATE TABLE #{schema}desks (id uuid PRIMARY KEY, name text, org text)")
        end

        :ok
      end

      setup do
        on_exit(fn ->
          Application.delete_env(:ash_agent_resources, :llm)
          Application.delete_env(:ash_agent_resources, :tools)
        end)

        answer("m")
        title = "desk #{System.unique_integer([:positive])}"
        Ash.create!(@desk, %{name: title, org: "acme"}, opts())
        %{title: title}
      end

      defp usage,
        do: %{input_tokens: 1_001, cached_tokens: 300, output_tokens: 7}

      defp answer(model) do
        Application.put_env(:ash_agent_resources, :llm, fn context ->
          asked = context |> Context.to_messages() |> List.last()

          if asked.content == "Ask",
            do:
              {:ok,
               %{
                 tool_calls: [%{id: "s", name: "look", arguments: %{"task" => "x"}}],
                 usage: usage(),
                 model: model
               }},
            else: {:ok, %{content: "Good.", usage: usage(), model: model}}
        end)
      end

      defp opts(more \\ []) do
        run = %{ash_agent: %{options: [prices: @prices]}}
        Keyword.merge([actor: @ann, tenant: "acme", context: run], more)
      end

      defp unpriced, do: [context: %{}]
      defp read(query), do: Ash.read!(query, Keyword.delete(opts(), :context))
      defp load(record, fields), do: Ash.load!(record, fields, Keyword.delete(opts(), :context))
      defp each, do: Decimal.new(1, 701 * 3_000_001 + 300 * 300_003 + 7 * 15_000_007, -12)
      defp times(number), do: Decimal.mult(each(), number)

      defp equal?(nil, expected), do: expected == nil
      defp equal?(cost, expected), do: Decimal.equal?(cost, expected)

      test "are exact sums, filtered, sorted and aggregated", %{title: title} do
        one = @chat.start!(%{title: title, input: "One"}, opts())
        one = @chat.say!(one, "Two", opts())
        two = @chat.start!(%{title: title, input: "One"}, opts())
        one = load(one, @sums)

        assert Decimal.equal?(one.cost, times(2))
        assert one.prices_digest == Prices.digest(@prices)
        assert one.unpriced_answers == nil
        assert Enum.map(@tokens, &Map.get(one, &1)) == [2_002, 14, 600, nil, nil]

        query = Ash.Query.filter(@chat, title == ^title)
        assert [%{id: id}] = read(Ash.Query.filter(query, cost > ^each()))
        assert id == one.id
        assert [%{id: first}, _] = read(Ash.Query.sort(query, cost: :asc))
        assert first == two.id
        assert [_] = read(Ash.Query.filter(query, input_tokens == 1_001))
        assert [_, _] = read(Ash.Query.filter(query, prices_digest == ^one.prices_digest))
        sum = Ash.sum!(query, :cost, Keyword.delete(opts(), :context))
        assert Decimal.equal?(sum, times(3))

        [desk] =
          read(
            @desk
            |> Ash.Query.filter(name == ^title)
            |> Ash.Query.load([:spent, :spent_tokens, :spent_iterations])
          )

        assert Decimal.equal?(desk.spent, times(3))
        assert desk.spent_tokens == 3_003
        assert Decimal.equal?(desk.spent_iterations, times(3))
        assert [_] = read(Ash.Query.filter(@desk, name == ^title and spent > ^times(2)))

        iterations = load(one, iterations: @sums).iterations
        assert [first, second | rest] = iterations
        assert Decimal.equal?(first.cost, each()) and Decimal.equal?(second.cost, each())
        assert first.input_tokens == 1_001
        assert Enum.all?(rest, &(&1.cost == nil))
        dear = Ash.Query.filter(@iteration, conversation_id == ^one.id and cost > 0)
        assert [_, _] = read(dear)
      end

      test "what is not known is not counted as nothing", %{title: title} do
        answer("unknown")
        chat = @chat.start!(%{title: title, input: "One"}, opts())
        assert %{cost: nil, unpriced_answers: 1, prices_digest: nil} = load(chat, @sums)
        answer("m")
        chat = @chat.say!(chat, "Two", opts())
        chat = load(chat, @sums)
        assert Decimal.equal?(chat.cost, each())
        assert chat.unpriced_answers == 1
        assert chat.input_tokens == 2_002

        other = @chat.start!(%{title: title, input: "One"}, opts(unpriced()))
        assert %{cost: nil, unpriced_answers: 1, input_tokens: 1_001} = load(other, @sums)

        assert %{cost: nil, input_tokens: nil} =
                 load(@chat.start!(%{title: title}, opts()), @sums)
      end

      test "sub-agents count once, forks and rewinds neither twice nor not at all", %{
        title: title
      } do
        child =
          Runtime.SubAgent.tool(
            name: "look",
            llm: fn _ -> {:ok, %{content: "x", usage: usage(), model: "m"}} end
          )

        Application.put_env(:ash_agent_resources, :tools, fn -> [child] end)
        chat = @chat.start!(%{title: title, input: "Ask"}, opts())
        chat = load(chat, @sums)
        assert Decimal.equal?(chat.cost, times(3))
        assert chat.input_tokens == 3_003
        [first, second | _] = load(chat, iterations: @sums).iterations
        assert Decimal.equal?(first.cost, times(2))
        assert Decimal.equal?(second.cost, each())

        fork = @chat.fork!(chat.id, %{title: title}, opts())
        assert %{cost: nil, input_tokens: nil} = load(fork, @sums)
        assert Enum.all?(load(fork, iterations: @sums).iterations, &(&1.cost == nil))
        fork = @chat.say!(fork, "More", opts())
        assert Decimal.equal?(load(fork, @sums).cost, each())

        chat = @chat.rewind!(chat, 1, opts())
        assert Decimal.equal?(load(chat, @sums).cost, times(3))
        [desk] = read(@desk |> Ash.Query.filter(name == ^title) |> Ash.Query.load(:spent))
        assert Decimal.equal?(desk.spent, times(4))
      end

      test "conversations of earlier releases have their tokens", %{title: title} do
        chat = @chat.start!(%{title: title, input: "One"}, opts())
        prefix = if @chat == SchemaChat, do: "acme.", else: ""

        Repo.query!(
          "update #{prefix}ash_agent_history set document = document - ':spent' where conversation_id = $1",
          [Info.key(chat)]
        )

        chat = load(chat, @sums)
        assert %{cost: nil, unpriced_answers: 1, input_tokens: 1_001, output_tokens: 7} = chat
        {:ok, sums, :answered} = Runtime.Spent.fetch(Info.store(@chat, "acme"), Info.key(chat))
        assert %{cost: nil, unpriced: 1, input_tokens: 1_001, output_tokens: 7} = sums
      end

      test "no other tenant's", %{title: title} do
        other = opts(tenant: "other")
        @chat.start!(%{title: title, input: "One"}, other)
        @chat.start!(%{title: title, input: "One"}, opts())
        query = Ash.Query.filter(@chat, title == ^title)

        for tenant <- ["acme", "other"] do
          sum = Ash.sum!(query, :cost, actor: @ann, tenant: tenant)
          assert equal?(sum, each())
        end

        assert {:ok, _} = Store.list(Info.store(@chat, "acme"))
      end
    end
  end
end
