defmodule AshAgent.Runtime.InputsTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.Misbehaviour

  test "a run notes whom it asks, with which fields and tools, and never a key" do
    key = Misbehaviour.key()
    options = :busy_once |> Misbehaviour.start(:openai_chat) |> Keyword.delete(:region)
    mcp = [%{"type" => "url", "authorization_token" => key}]
    body = %{temperature: 0.5, mcp_servers: mcp, metadata: %{api_key: key}}
    llm = LLM.OpenAICompatible.new([body: body, headers: [{"x-secret", key}]] ++ options)
    look = %{name: "look", description: "Looks", function: fn _ -> {:ok, 1} end}

    {:ok, %{context: context}} = Runtime.run(Context.new("Hi"), llm: llm, tools: [look])
    assert %{fields: fields, tools: [tool]} = Context.Audit.get_request(context, 1)
    assert %{"model" => "m", "server" => "127.0.0.1", "port" => _} = fields
    assert %{"stream" => true, "temperature" => 0.5} = fields["body"]

    assert [%{"type" => "url", "authorization_token" => "(hidden)"}] =
             fields["body"]["mcp_servers"]

    refute Map.has_key?(fields["body"], "tools") or Map.has_key?(fields["body"], "messages")
    assert %{"name" => "look", "description" => "Looks"} = tool
    refute Context.to_snapshot(context) =~ key
  end

  test "any model that tells its name is noted, and a function with its tools" do
    {:ok, %{context: context}} = Runtime.run(Context.new("Hi"), llm: LLM.Scripted.new(["Hello!"]))
    assert %{tools: []} = Context.Audit.get_request(context, 1)
    llm = fn _ -> {:ok, %{content: "Hello!"}} end

    {:ok, %{context: context}} =
      Runtime.run(Context.new("Hi"), llm: llm, tools: %{look: fn _ -> 1 end})

    assert %{fields: %{}, tools: [%{"name" => "look"}]} = Context.Audit.get_request(context, 1)
  end

  test "a run of the package's clients notes what each request sent, which an account makes again" do
    usage = fn tokens -> %{input_tokens: tokens, output_tokens: 1, cached_tokens: 0} end
    look = %{tool_calls: [%{id: "a", name: "look", arguments: %{}}], usage: usage.(5_000)}

    script = [
      look,
      %{content: "Done", usage: usage.(6_000)},
      %{content: "Again", usage: usage.(7_000)}
    ]

    tools = %{look: fn _ -> {:ok, "text"} end}

    for stream <- [true, false] do
      server = start_supervised!({Server, script: script}, id: stream)
      llm = LLM.OpenAICompatible.new(model: "m", base_url: Server.base_url(server))
      me = self()

      on_event = fn name, measured, metadata ->
        send(me, {Enum.take(name, -2), measured, metadata})
      end

      opts = [llm: llm, tools: tools, stream: stream, on_event: on_event]
      {:ok, %{context: context}} = Runtime.run(Context.new("Hi", system_prompt: "S"), opts)
      {:ok, %{context: context}} = Runtime.run(Context.add_user_message(context, "And?"), opts)
      sent = for %{"sent" => sent} <- Context.dump(context)["iterations"], do: sent
      assert length(Enum.uniq(sent)) == 3

      # Nothing was read, although each request began as the one before it: what was sent is known, so it was the provider.
      assert [:first, :provider, :provider] =
               Enum.map(Context.Audit.account(context).requests, & &1.verdict)
    end
  end

  test "a model that is a function sends what nobody knows" do
    {:ok, %{context: context}} =
      Runtime.run(Context.new("Hi"), llm: fn _ -> {:ok, %{content: "Hello!"}} end)

    assert [%{} = iteration] = Context.dump(context)["iterations"]
    refute Map.has_key?(iteration, "sent")
  end
end
