if Code.ensure_loaded?(MyApp.DataCase) and Code.ensure_loaded?(AshGraphql) and
     Code.ensure_loaded?(Absinthe.Phoenix.Endpoint) do
  defmodule MyApp.Answers.Endpoint do
    @moduledoc false
    use Phoenix.Endpoint, otp_app: :ash_agent_resources
    use Absinthe.Phoenix.Endpoint
  end

  defmodule MyApp.Answers do
    @moduledoc false
    use AshAgent.Conversation.Answers, endpoint: MyApp.Answers.Endpoint
  end

  defmodule MyApp.Answers.Domain do
    @moduledoc false
    use Ash.Domain, validate_config_inclusion?: false, extensions: [AshGraphql.Domain]

    resources do
      resource(MyApp.Answers.Conversation)
      resource(MyApp.Answers.Phone)
      resource(MyApp.Answers.Schema)
    end
  end

  defmodule MyApp.Answers.Conversation do
    @moduledoc false
    use MyApp.Table,
        {"conversations",
         domain: MyApp.Answers.Domain,
         authorizers: [Ash.Policy.Authorizer],
         notifiers: [MyApp.Answers],
         extensions: [AshAgent.Conversation, AshGraphql.Resource]}

    use MyApp.Tenants

    attributes do
      uuid_primary_key(:id)
      attribute(:title, :string, public?: true)
      attribute(:user_id, :uuid)
    end

    changes do
      change(set_attribute(:user_id, actor(:id)), on: [:create])
    end

    conversation do
      llm(&MyApp.Chat.llm/1)
    end

    graphql do
      type(:conversation)

      queries do
        get(:conversation, :read)
      end

      mutations do
        update(:say, :say)
      end
    end

    policies do
      policy action_type(:create) do
        authorize_if(always())
      end

      policy action_type([:read, :update]) do
        authorize_if(expr(user_id == ^actor(:id)))
      end
    end
  end

  defmodule MyApp.Answers.Phone do
    @moduledoc false
    # Who may not read the words may not hear them.
    use MyApp.Table,
        {"phones",
         domain: MyApp.Answers.Domain,
         authorizers: [Ash.Policy.Authorizer],
         notifiers: [MyApp.Answers],
         extensions: [AshAgent.Conversation]}

    conversation do
      llm(&MyApp.Chat.llm/1)
    end

    policies do
      policy always() do
        authorize_if(always())
      end
    end

    field_policies do
      field_policy [:transcript, :last_message] do
        forbid_if(actor_attribute_equals(:role, :desk))
        authorize_if(always())
      end

      field_policy :* do
        authorize_if(always())
      end
    end
  end

  defmodule MyApp.Answers.Schema do
    @moduledoc false
    # Each tenant has a record with the same number.
    use Ash.Resource,
      domain: MyApp.Answers.Domain,
      data_layer: Ash.DataLayer.Ets,
      notifiers: [MyApp.Answers],
      extensions: [AshAgent.Conversation]

    multitenancy do
      strategy(:context)
    end

    attributes do
      integer_primary_key(:id, generated?: false, writable?: true, public?: true)
    end

    conversation do
      name("answers")
      store(&Module.concat(__MODULE__, &1))
      llm(&MyApp.Chat.llm/1)
    end
  end

  # The field as the guide has it.
  [[field]] =
    Regex.scan(~r/^```elixir\n(object :answer do\n.*?)^```/ms, File.read!("guides/apis.md"),
      capture: :all_but_first
    )

  Code.compile_string("""
  defmodule MyApp.Answers.GraphQL do
    use Absinthe.Schema
    use AshGraphql, domains: [MyApp.Answers.Domain]

    query do
    end

    mutation do
    end

    #{String.replace(field, "MyApp.Chat.Conversation", "context[:of] || MyApp.Answers.Conversation")}
  end
  """)

  defmodule MyApp.AnswersTest do
    # Whoever may read a conversation gets its answers while they come.
    use MyApp.DataCase, async: false

    alias MyApp.Answers.{Conversation, Endpoint, GraphQL, Phone, Schema}

    @moduletag integrations: ["AshGraphql", "Absinthe"]

    setup do
      for app <- ~w(phoenix absinthe)a, do: {:ok, _} = Application.ensure_all_started(app)
      Application.put_env(:ash_agent_resources, Endpoint, pubsub_server: MyApp.Answers.PubSub)
      on_exit(fn -> Application.delete_env(:ash_agent_resources, Endpoint) end)
      start_supervised!({Phoenix.PubSub, name: MyApp.Answers.PubSub})
      start_supervised!(Endpoint)
      :ok
    end

    defp listen(_context) do
      start_supervised!({Absinthe.Subscription, Endpoint})
      :ok
    end

    defp subscribe(id, context) do
      text = ~s|subscription { answer(id: "#{id}") { text iteration number said ended } }|
      context = Map.put(context, :pubsub, Endpoint)

      with {:ok, %{"subscribed" => topic}} <- Absinthe.run(text, GraphQL, context: context),
           do: Endpoint.subscribe(topic)
    end

    # What came until the end.
    defp heard do
      receive do
        %{event: "subscription:data", payload: %{result: %{data: %{"answer" => answer}}}} ->
          if answer["ended"], do: [answer], else: [answer | heard()]
      after
        5_000 -> flunk("no end came")
      end
    end

    defp text(answers), do: Enum.map_join(answers, &(&1["text"] || ""))

    describe "an answer" do
      setup :listen

      test "comes in pieces, in order, to who may read it, and its end tells them to read again" do
        ann = user("Ann")
        chat = Conversation.start!(%{}, actor: ann, tenant: "acme")
        assert subscribe(chat.id, %{actor: ann, tenant: "acme"}) == :ok
        answer = "All of this comes in more than one piece."
        Conversation.say!(chat, "Hi", actor: ann, tenant: "acme", context: answers([answer]))
        assert [%{"said" => said} | came] = heard()
        assert is_binary(said)
        assert text(came) == answer
        assert List.last(came)["ended"] == "answered"
        numbers = for %{"number" => number} when number != nil <- came, do: number
        assert length(numbers) > 1 and numbers == Enum.sort(numbers)
        assert for(%{"iteration" => n} when n != nil <- came, uniq: true, do: n) == [1]
      end

      test "is of one tenant, where records of several have one id" do
        for tenant <- ~w(acme other) do
          name = Module.concat(Schema, tenant)
          start_supervised!({AshAgent.Store.SQLite, name: name, path: ":memory:"}, id: name)
        end

        [acme, other] =
          for tenant <- ~w(acme other),
              do: Schema.start!(%{id: 1}, tenant: tenant)

        assert subscribe(1, %{tenant: "acme", of: Schema}) == :ok
        Schema.say!(other, "Other", tenant: "other", context: answers(["Theirs"]))
        Schema.say!(acme, "Mine", tenant: "acme", context: answers(["Ours"]))
        assert text(heard()) == "Ours"
      end
    end

    describe "nobody else" do
      setup :listen

      test "may subscribe: another user, another tenant, no actor, an id that is none" do
        ann = user("Ann")
        chat = Conversation.start!(%{}, actor: ann, tenant: "acme")

        for {id, context} <- [
              {chat.id, %{actor: user("Bob"), tenant: "acme"}},
              {chat.id, %{actor: ann, tenant: "other"}},
              {chat.id, %{actor: ann}},
              {chat.id, %{tenant: "acme"}},
              {Ash.UUID.generate(), %{actor: ann, tenant: "acme"}},
              {"none", %{actor: ann, tenant: "acme"}}
            ] do
          assert {:ok, %{errors: [%{message: "not found"}]}} = subscribe(id, context)
        end
      end

      test "may subscribe from whom a field policy hides the words" do
        phone = Phone.start!(%{})
        desk = %{actor: user("Desk", :desk), of: Phone}
        assert {:ok, %{errors: [_]}} = subscribe(phone.id, desk)
        assert subscribe(phone.id, %{desk | actor: user("Ann")}) == :ok
        Phone.say!(phone, "Hi", context: answers(["Hello."]))
        assert text(heard()) == "Hello."
      end
    end

    test "where no subscriptions run, turns do" do
      ann = user("Ann")
      chat = Conversation.start!(%{input: "Hi"}, actor: ann, tenant: "acme")

      assert Ash.load!(chat, :last_message, actor: ann, tenant: "acme").last_message.content =~
               "Hi"
    end
  end
else
  defmodule MyApp.AnswersTest do
    use ExUnit.Case, async: true

    @moduletag :ash
    @moduletag skip: "subscriptions need AshPostgres, AshGraphql and Absinthe.Phoenix"
    test "answers come in pieces", do: :ok
  end
end
