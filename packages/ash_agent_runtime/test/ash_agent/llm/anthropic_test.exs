defmodule AshAgent.LLM.AnthropicTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Runtime}
  alias AshAgent.LLM.Anthropic
  alias AshAgent.TestSupport.ChatServer

  doctest AshAgent.LLM.Anthropic

  defp model(server, opts \\ []),
    do:
      Anthropic.new(
        [base_url: server.url, model: "claude", timeout: 30_000, api_key: "k"] ++ opts
      )

  defp message(blocks, more \\ %{}),
    do:
      Map.merge(
        %{
          "type" => "message",
          "role" => "assistant",
          "content" => blocks,
          "stop_reason" => "end_turn"
        },
        more
      )

  defp text(text), do: %{"type" => "text", "text" => text}

  test "asks why a request was not read from the prompt cache, and keeps what is said" do
    usage = fn read, written ->
      %{
        "input_tokens" => 10,
        "output_tokens" => 1,
        "cache_read_input_tokens" => read,
        "cache_creation_input_tokens" => written
      }
    end

    found = %{
      "cache_miss_reason" => %{"type" => "tools_changed", "cache_missed_input_tokens" => 321}
    }

    answers = [
      %{"id" => "msg_1", "usage" => usage.(0, 5_000), "diagnostics" => nil},
      %{"id" => "msg_2", "usage" => usage.(0, 5_100), "diagnostics" => found},
      %{
        "id" => "msg_3",
        "usage" => usage.(5_100, 10),
        "diagnostics" => %{"cache_miss_reason" => nil}
      },
      %{"id" => "msg_4", "usage" => usage.(5_110, 10), "diagnostics" => nil}
    ]

    server = ChatServer.start(for more <- answers, do: {:json, 200, message([text("Hi")], more)})
    me = self()

    on_event = fn
      [_, _, :llm, :cache], measured, told ->
        send(me, {:cache, measured, Map.take(told, [:verdict, :cause, :diagnosis])})

      _name, _measured, _told ->
        :ok
    end

    llm = model(server, cache_diagnostics: true, headers: [{"anthropic-beta", "other"}])

    context =
      Enum.reduce(1..4, Context.new("Hi"), fn _n, context ->
        {:ok, result} = Runtime.run(context, llm: llm, stream: false, on_event: on_event)
        Context.add_user_message(result.context, "And?")
      end)

    told = for _n <- 1..3, do: assert_received({:cache, _measured, _told}) |> Tuple.delete_at(0)

    assert told == [
             {%{predicted: 5_000, read: 0}, %{verdict: :provider, diagnosis: "tools_changed"}},
             {%{predicted: 5_100, read: 5_100}, %{verdict: :hit, diagnosis: "pending"}},
             {%{predicted: 5_110, read: 5_110}, %{verdict: :hit, diagnosis: "cache_hit"}}
           ]

    sent =
      for _n <- 1..4 do
        assert_received {:request, %{headers: headers, body: body}}
        assert headers["anthropic-beta"] == "cache-diagnosis-2026-04-07,other"
        body["diagnostics"]
      end

    assert sent == for(id <- [nil, "msg_1", "msg_2", "msg_3"], do: %{"previous_message_id" => id})

    stored = context |> Context.to_snapshot() |> Context.load!()

    for context <- [context, stored] do
      assert Enum.map(Context.Audit.account(context).requests, & &1.diagnosis) == [
               nil,
               %{reason: "tools_changed", tokens: 321},
               %{reason: "pending", tokens: nil},
               %{reason: "cache_hit", tokens: nil}
             ]
    end

    # The ids change with each request, and what is noted of requests does not.
    assert [%{"request" => %{"cache_diagnostics" => true} = fields} | rest] =
             Context.dump(context)["iterations"]

    refute Map.has_key?(fields["body"], "diagnostics")
    refute Enum.any?(rest, &Map.has_key?(&1, "request"))
  end

  test "keeps thinking blocks, and blocks it does not know, through the loop" do
    blocks = [
      %{"type" => "thinking", "thinking" => "Hm", "signature" => "sig=="},
      %{"type" => "redacted_thinking", "data" => "opaque"},
      text("Checking."),
      %{"type" => "server_tool_use", "id" => "s1", "name" => "web_search", "input" => %{}},
      %{"type" => "tool_use", "id" => "t1", "name" => "now", "input" => %{}}
    ]

    server =
      ChatServer.start([
        {:json, 200, message(blocks, %{"model" => "claude-2026"})},
        {:json, 200, message([text("Ten.")])}
      ])

    assert {:ok, %{output: "Ten.", context: context}} =
             Runtime.run(Context.new("Time?"),
               llm: model(server),
               tools: %{now: fn _ -> "10:00" end}
             )

    assert %{content: parts} = context |> Context.get_iteration_messages(1) |> Enum.at(1)

    assert parts == [
             %{
               type: :thinking,
               text: "Hm",
               provider_metadata: %{provider: :anthropic, model: "claude", signature: "sig=="}
             },
             %{
               type: :redacted_thinking,
               data: "opaque",
               provider_metadata: %{provider: :anthropic, model: "claude"}
             },
             %{type: :text, text: "Checking."},
             %{type: :provider_block, provider: :anthropic, data: Enum.at(blocks, 3)}
           ]

    assert_received {:request,
                     %{
                       number: 2,
                       body: %{"messages" => [_, %{"role" => "assistant", "content" => sent} | _]}
                     }}

    assert %{"type" => "thinking", "thinking" => "Hm", "signature" => "sig=="} = Enum.at(sent, 0)
    assert %{"type" => "redacted_thinking", "data" => "opaque"} = Enum.at(sent, 1)
  end

  test "gives a server that wants it the thinking that nobody signed" do
    thinking = %{"type" => "thinking", "thinking" => "Hm"}
    call = %{"type" => "tool_use", "id" => "t1", "name" => "now", "input" => %{}}

    for {dialect, expected} <- [deepseek: [thinking, call], auto: [call]] do
      server =
        ChatServer.start([
          {:json, 200, message([thinking, call])},
          {:json, 200, message([text("Ten.")])}
        ])

      opts = [llm: model(server, dialect: dialect), tools: %{now: fn _ -> "10:00" end}]
      assert {:ok, %{output: "Ten.", context: context}} = Runtime.run(Context.new("Time?"), opts)

      assert_received {:request,
                       %{number: 2, body: %{"messages" => [_, %{"content" => sent}, _]}}}

      assert sent == expected

      # The notes of the requests know the dialect.
      assert [%{outcome: :same}, %{outcome: :same}] = Context.Audit.replay(context)
    end
  end

  test "knows hosts that want it" do
    for {url, dialect} <- [
          {"https://api.deepseek.com/anthropic/v1", :deepseek},
          {"https://api.kimi.com/coding/v1", :deepseek},
          {"https://api.anthropic.com/v1", nil}
        ] do
      {Anthropic, opts} = Anthropic.new(model: "m", api_key: "k", base_url: url)
      assert opts[:request][:dialect] == dialect
      {Anthropic, opts} = Anthropic.new(model: "m", api_key: "k", base_url: url, dialect: nil)
      assert opts[:request][:dialect] == nil
    end
  end
end
