# Earlier releases of AshGraphql do not know the type of an agent's answer.
_ = Application.load(:ash_graphql)
graphql? = Version.match?("#{Application.spec(:ash_graphql, :vsn) || "0.0.0"}", "~> 1.10")

if Code.ensure_loaded?(MyApp.DataCase) and graphql? and Code.ensure_loaded?(AshJsonApi) and
     function_exported?(Macro, :expand_literals, 2) do
  defmodule MyApp.Served do
    @moduledoc false
    # As the guide serves conversations and agents.
    use Ash.Domain,
      validate_config_inclusion?: false,
      extensions: [AshGraphql.Domain, AshJsonApi.Domain]

    resources do
      resource(MyApp.Served.Conversation)
      resource(MyApp.Served.Adviser)
    end
  end

  defmodule MyApp.Served.Reply do
    @moduledoc false
    use Ash.TypedStruct

    typed_struct do
      field(:content, :string, allow_nil?: false)
      field(:score, :integer)
    end

    use AshGraphql.Type

    @impl AshGraphql.Type
    def graphql_type(_constraints), do: :reply
  end

  defmodule MyApp.Served.Conversation do
    @moduledoc false
    use MyApp.Table,
        {"cases",
         domain: MyApp.Served,
         extensions: [AshAgent.Conversation, AshGraphql.Resource, AshJsonApi.Resource]}

    attributes do
      integer_primary_key(:id)
    end

    conversation do
      llm(&MyApp.Chat.llm/1)
      tools(&MyApp.Chat.tools/0)
    end

    graphql do
      type(:conversation)

      queries do
        get(:conversation, :read)
        list(:conversations, :read)
      end

      mutations do
        create(:start_conversation, :start)
        update(:say, :say)
        update(:resume_conversation, :resume)
        update(:approve_call, :approve)
        update(:deny_call, :deny)
      end
    end

    json_api do
      type("conversation")

      routes do
        base("/conversations")
        get(:read)
        index(:read)
        post(:start)
        patch(:say, route: "/:id/say")
        patch(:resume, route: "/:id/resume")
      end
    end
  end

  defmodule MyApp.Served.Adviser do
    @moduledoc false
    use Ash.Resource,
      domain: MyApp.Served,
      extensions: [AshAgent.Resource, AshGraphql.Resource, AshJsonApi.Resource]

    resource do
      require_primary_key?(false)
    end

    agent do
      client(&MyApp.Chat.adviser/0)
      output(MyApp.Served.Reply)

      input do
        argument(:message, :string, allow_nil?: false)
      end
    end

    graphql do
      queries do
        action(:ask_adviser, :call)
      end
    end

    json_api do
      type("adviser")

      routes do
        route(:post, "/ask", :call)
      end
    end
  end

  defmodule MyApp.Served.Schema do
    @moduledoc false
    use Absinthe.Schema
    use AshGraphql, domains: [MyApp.Served]

    query do
    end

    mutation do
    end
  end

  defmodule MyApp.Served.Router do
    @moduledoc false
    use AshJsonApi.Router, domains: [MyApp.Served]
  end

  defmodule MyApp.ApisTest do
    # Conversations and agents for clients elsewhere.
    use MyApp.DataCase, async: true

    @moduletag integrations: ["AshGraphql", "AshJsonApi"]

    defp query(text), do: Absinthe.run!(text, MyApp.Served.Schema)

    defp request(method, path, body \\ nil) do
      conn =
        Plug.Test.conn(method, path, body && Jason.encode!(body))
        |> Plug.Conn.put_req_header("content-type", "application/vnd.api+json")
        |> Plug.Conn.put_req_header("accept", "application/vnd.api+json")
        |> MyApp.Served.Router.call(MyApp.Served.Router.init([]))

      {conn.status, Jason.decode!(conn.resp_body)}
    end

    test "GraphQL starts a conversation, reads it and lists it" do
      assert %{data: %{"startConversation" => %{"result" => started, "errors" => []}}} =
               query(~S|mutation { startConversation(input: {input: "Hi"}) {
                 result { id status messageCount transcript } errors { message } } }|)

      assert %{"id" => id, "status" => status, "messageCount" => 2} = started
      assert String.downcase(status) == "idle" or String.downcase(status) == "completed"
      assert inspect(started["transcript"]) =~ "You said: Hi"

      assert %{data: %{"conversations" => listed}} =
               query(
                 ~S|{ conversations(filter: {messageCount: {eq: 2}}, sort: [{field: LAST_ACTIVITY_AT}]) {
                 results { id } } }|
               )

      assert listed == %{"results" => [%{"id" => id}]}

      say = ~s|mutation { say(id: "#{id}", input: {}) { errors { message code fields } } }|
      assert %{data: %{"say" => %{"errors" => [error]}}} = query(say)
      assert %{"message" => words, "code" => "no_message", "fields" => ["input"]} = error
      assert words =~ "expected either input or parts"
    end

    test "GraphQL knows the type of an agent's answer" do
      assert %{data: %{"askAdviser" => %{"content" => "Tea.", "score" => 7}}} =
               query(~S|{ askAdviser(message: "What?") { content score } }|)
    end

    test "JSON:API starts a conversation, says something and lists it" do
      data = %{type: "conversation", attributes: %{input: "Hi"}}
      assert {201, %{"data" => %{"id" => id}}} = request(:post, "/conversations", %{data: data})

      say = fn attributes ->
        data = %{type: "conversation", id: id, attributes: attributes}
        request(:patch, "/conversations/#{id}/say", %{data: data})
      end

      assert {200, _} = say.(%{input: "More"})

      assert {200, %{"data" => [%{"id" => ^id, "attributes" => %{"message_count" => 4}}]}} =
               request(
                 :get,
                 "/conversations?filter[message_count]=4&sort=-last_activity_at&fields[conversation]=message_count"
               )

      assert {400, %{"errors" => [error]}} = say.(%{})
      assert %{"code" => "no_message", "detail" => "expected either" <> _} = error
      assert error["source"]["pointer"] == "/data/attributes/input"
    end

    test "JSON:API answers with an agent's answer" do
      assert {status, answer} = request(:post, "/ask", %{data: %{message: "What?"}})
      assert status in [200, 201]
      assert inspect(answer) =~ "Tea."
    end
  end
else
  defmodule MyApp.ApisTest do
    use ExUnit.Case, async: true

    @moduletag :ash
    @moduletag skip:
                 "serving conversations needs AshPostgres, AshGraphql 1.10, AshJsonApi and Elixir 1.15"
    test "serves conversations", do: :ok
  end
end
