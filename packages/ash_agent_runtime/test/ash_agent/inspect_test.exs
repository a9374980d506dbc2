defmodule AshAgent.Runtime.InspectTest do
  use AshAgent.TestSupport.InspectCases, app: :ash_agent_runtime

  alias AshAgent.{Context, LLM, MCP, Output, Runtime, Sessions, Store, Toolbox}
  alias AshAgent.LLM.Transport.Request

  defp values do
    context = Context.new("a secret")

    failed = %LLM.Error{
      reason: {:provider, "busy"},
      kind: :overloaded,
      provider_message: "Come back later."
    }

    differences = LLM.Difference.between(body("a secret"), body("another secret"))
    answered = &{:ok, %{content: "a secret of #{&1.current_iteration}"}}
    {:ok, result} = Runtime.run(context, llm: answered)
    function = fn _ -> {:ok, "a secret"} end

    [
      result,
      Output.new(secret: :string),
      %Output.Error{
        reason: :invalid,
        lines: ["/secret: is missing"],
        value: %{"a" => "a secret"}
      },
      %Runtime.Error{reason: {:llm_error, failed}, context: context},
      %Runtime.Paused{
        context: context,
        calls: [%{id: "a", name: "now", arguments: %{"key" => "secret"}}]
      },
      Runtime.Permissions.new(permission_rules: [{:deny, "secret_*"}]),
      hd(Runtime.Tool.new([%{name: "now", function: function, description: "a secret"}])),
      Runtime.Events.new([], %{key: "secret"}),
      Toolbox.new(name: "now", command: "date", env: %{"KEY" => "secret"}),
      failed,
      hd(differences),
      %LLM.Recorded.MissingError{
        cassette: "a.json",
        path: "/v1/messages",
        nearest: 1,
        differences: differences
      },
      %Request{
        method: "POST",
        uri: URI.parse("https://a:secret@example.com/secret"),
        headers: fn -> [{"x-api-key", "secret"}] end,
        body: "a secret"
      },
      %MCP.Error{reason: {:unavailable, %{"files" => "does not answer"}}},
      %Sessions.Error{reason: {:lost, {:exit, "a secret"}}},
      Sessions.Webhook.new(to: __MODULE__, secrets: [{"a", String.duplicate("secret", 6)}]),
      %Store.Error{reason: :not_found},
      %Store.Conversation{
        id: "c1",
        kind: :context,
        status: :idle,
        revision: 1,
        epoch: 1,
        value: context
      },
      Store.Postgres.new(__MODULE__),
      %AshAgent.Test.Branch{
        original: context,
        iteration: 1,
        change: "the system prompt",
        result: nil,
        context: context
      }
    ] ++ sqlite()
  end

  test "an error without words for its reason is inspected as well" do
    assert inspect(%MCP.Error{reason: {:another, "a secret"}}) == "#AshAgent.MCP.Error<another>"
  end

  defp body(text), do: %{"model" => "m", "messages" => [%{"role" => "user", "content" => text}]}

  defp sqlite do
    {:ok, store} = Store.SQLite.open(":memory:")
    [store]
  end
end
