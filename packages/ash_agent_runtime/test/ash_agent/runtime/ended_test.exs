defmodule AshAgent.Runtime.EndedTest do
  # What a run does with calls of an answer that was refused, filtered or malformed, and with those of a model that declined before
  # another one answered: at each provider, whole and streamed, with a session and after a reload.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Runtime, Session, Store}
  alias AshAgent.Runtime.{Error, Result}
  alias AshAgent.Store.SQLite
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.Clients

  import Clients, only: [assert_taken: 2]

  # A killed session says so.
  @moduletag :capture_log

  # A word for it of each provider; Ollama has none.
  @refused [
    anthropic: {"refusal", :refusal},
    openai_chat: {"content_filter", :content_filter},
    mistral: {"content_filter", :content_filter},
    openai_responses: {"content_filter", :content_filter},
    gemini: {"SAFETY", :content_filter},
    bedrock: {"guardrail_intervened", :content_filter}
  ]

  @malformed [
    anthropic: "word_of_tomorrow",
    openai_chat: "function_call_filter: MALFORMED_FUNCTION_CALL",
    mistral: "error",
    gemini: "MALFORMED_FUNCTION_CALL",
    bedrock: "malformed_tool_use"
  ]

  @ordinary %{anthropic: "tool_use", bedrock: "tool_use", gemini: "STOP", ollama: "stop"}

  @calls [
    %{id: "call_1", name: "pay", arguments: %{"eur" => 900}},
    %{id: "call_2", name: "pay", arguments: %{"eur" => 1}}
  ]

  defp serve(provider, script),
    do: start_supervised!({Server, provider: provider, script: script}, id: make_ref())

  defp client(provider, server),
    do: Clients.new(provider, Server.base_url(server), max_retries: 0)

  defp answer(word), do: %{content: "Let me see.", tool_calls: @calls, finish_reason: word}

  defp pay do
    test = self()
    %{pay: fn arguments -> send(test, {:paid, arguments}) && {:ok, "paid"} end}
  end

  defp run(provider, server, opts),
    do:
      Runtime.run(
        opts[:context] || Context.new("Pay them"),
        [llm: client(provider, server), tools: pay(), max_iterations: 3] ++
          Keyword.delete(opts, :context)
      )

  defp statuses(context),
    do: for(call <- @calls, do: Context.Calls.tool_call_status(context, call.id))

  for {provider, {word, finish}} <- @refused, stream? <- [false, true] do
    @provider provider
    @word word
    @finish finish
    @stream stream?

    test "#{provider}, #{if stream?, do: "streamed", else: "whole"}: a refused answer ends the run, and no call of it runs" do
      server = serve(@provider, [answer(@word), "Done."])
      assert {:ok, %Result{} = result} = run(@provider, server, stream: @stream)
      assert {result.output, result.finish_reason} == {"Let me see.", @finish}
      assert length(Server.requests(server)) == 1
      assert Context.pending_tool_calls(result.context) == []
      assert statuses(result.context) == [:interrupted, :interrupted]

      # The answer is kept, and the conversation goes on.
      assert [_user, %{tool_calls: calls}, %{content: told}] = Context.to_messages(result.context)

      assert Enum.map(calls, & &1.name) == ["pay", "pay"]
      assert Enum.all?(told, &(&1.is_error and &1.content =~ "It was not run"))
      context = Context.add_user_message(result.context, "And now?")
      assert {:ok, %{output: "Done."}} = run(@provider, server, context: context)
      assert_taken(@provider, server)
      refute_received {:paid, _}

      # Anthropic wants it left out of what it is sent.
      %{body: body} = List.last(Server.requests(server))
      body = IO.iodata_to_binary(Context.JSON.encode(body["messages"] || body))
      assert body =~ "Let me see." == (@provider != :anthropic)
      assert body =~ "It was not run" == (@provider != :anthropic)
    end

    test "#{provider}, #{if stream?, do: "streamed", else: "whole"}: a refused typed answer is an error" do
      for mode <- [:tool, :text] do
        server = serve(@provider, [answer(@word), "Done."])
        opts = [stream: @stream, output: [city: :string], output_mode: mode]
        assert {:error, %Error{reason: reason}} = run(@provider, server, opts)
        assert reason == {:refused, "Let me see."}
        assert length(Server.requests(server)) == 1
      end

      refute_received {:paid, _}
    end
  end

  for {provider, word} <- @malformed, stream? <- [false, true] do
    @provider provider
    @word word
    @stream stream?

    test "#{provider}, #{if stream?, do: "streamed", else: "whole"}: the model reads that its malformed calls did not run" do
      server = serve(@provider, [answer(@word), "Done."])
      assert {:ok, %Result{} = result} = run(@provider, server, stream: @stream)
      assert {result.output, result.finish_reason} == {"Done.", :stop}
      assert statuses(result.context) == [:interrupted, :interrupted]
      assert [_first, %{body: body}] = Server.requests(server)
      assert IO.iodata_to_binary(Context.JSON.encode(body)) =~ "malformed or failed"
      assert_taken(@provider, server)
      refute_received {:paid, _}
    end
  end

  for {provider, _client} <- Clients.modules(), stream? <- [false, true] do
    @provider provider
    @stream stream?

    test "#{provider}, #{if stream?, do: "streamed", else: "whole"}: calls before an ordinary end run" do
      server = serve(@provider, [answer(@ordinary[@provider] || "tool_calls"), "Done."])
      assert {:ok, %Result{output: "Done."}} = run(@provider, server, stream: @stream)
      for %{arguments: arguments} <- @calls, do: assert_received({:paid, ^arguments})
    end
  end

  test "a refused answer ends the turn of a session, and nothing of it runs in the next one or after a reload" do
    {:ok, store} = SQLite.open(":memory:")
    server = serve(:anthropic, [answer("refusal"), "Done.", "Again."])
    opts = [store: store, id: "c", llm: client(:anthropic, server), tools: pay()]

    for {stop, words} <- [{&GenServer.stop/1, "Done."}, {&Process.exit(&1, :kill), "Again."}] do
      session = start_supervised!({Session, opts}, id: make_ref(), restart: :temporary)
      reply = Session.prompt(session, "Pay them")

      if words == "Done." do
        assert {:ok, %Result{output: "Let me see.", finish_reason: :refusal}} = reply
        assert {:ok, %{status: :idle, value: kept}} = Store.fetch(store, "c")
        assert Context.pending_tool_calls(kept) == []
        assert {:ok, %Result{output: "Done."}} = Session.prompt(session, "And now?")
      else
        assert {:ok, %Result{output: "Again."}} = reply
      end

      monitor = Process.monitor(session)
      Process.unlink(session)
      stop.(session)
      assert_receive {:DOWN, ^monitor, _, _, _}
    end

    assert_taken(:anthropic, server)
    refute_received {:paid, _}
  end

  test "a refused answer that was kept in the middle of a run is not run when the run goes on" do
    server = serve(:anthropic, [answer("refusal"), "Done."])
    test = self()
    keep = fn context -> send(test, {:kept, Context.to_snapshot(context)}) && :ok end
    assert {:ok, _result} = run(:anthropic, server, on_change: keep)
    kept = for _n <- 1..50, do: receive(do: ({:kept, kept} -> kept), after: (0 -> nil))

    for snapshot <- Enum.uniq(kept), snapshot != nil do
      {:ok, context} = Context.load(snapshot)
      again = serve(:anthropic, ["Done."])
      assert {:ok, _result} = run(:anthropic, again, context: context)
      assert_taken(:anthropic, again)
    end

    refute_received {:paid, _}
  end

  ## Fallbacks of Anthropic

  @fallback %{"type" => "fallback", "from" => %{"model" => "a"}, "to" => %{"model" => "b"}}

  defp use_of(name, id),
    do: %{"type" => "tool_use", "id" => id, "name" => name, "input" => %{"eur" => 9}}

  defp text(words), do: %{"type" => "text", "text" => words}

  defp declining(content, word, false) do
    body = %{"type" => "message", "role" => "assistant", "content" => content}
    body = Context.JSON.encode(Map.put(body, "stop_reason", word))
    {:raw, 200, [{"content-type", "application/json"}], [body]}
  end

  defp declining(content, word, true) do
    blocks =
      for {block, index} <- Enum.with_index(content) do
        [
          %{"type" => "content_block_start", "index" => index, "content_block" => block},
          %{"type" => "content_block_stop", "index" => index}
        ]
      end

    start = %{"type" => "message_start", "message" => %{"content" => []}}
    stop = %{"type" => "message_delta", "delta" => %{"stop_reason" => word}}
    events = [start, blocks, stop, %{"type" => "message_stop"}]
    pieces = for event <- List.flatten(events), do: "data: #{Context.JSON.encode(event)}\n\n"
    {:raw, 200, [{"content-type", "text/event-stream"}], pieces}
  end

  for stream? <- [false, true] do
    @stream stream?

    test "#{if stream?, do: "streamed", else: "whole"}: the answer of a fallback ends the run, and what came before it is not run" do
      content = [use_of("pay", "t1"), @fallback, text("I cannot pay.")]
      server = serve(:anthropic, [declining(content, "end_turn", @stream), "Done."])
      assert {:ok, %Result{} = result} = run(:anthropic, server, stream: @stream)
      assert {result.output, result.finish_reason} == {"I cannot pay.", :stop}
      assert Context.pending_tool_calls(result.context) == []

      # The run is over, for whoever reads it again as well.
      {:ok, context} = result.context |> Context.to_snapshot() |> Context.load()
      assert {:ok, %Result{output: "I cannot pay."}} = run(:anthropic, server, context: context)
      assert length(Server.requests(server)) == 1

      context = Context.add_user_message(context, "And now?")
      assert {:ok, %Result{output: "Done."}} = run(:anthropic, server, context: context)

      assert [_first, %{body: %{"messages" => [_user, answered, asked]}}] =
               Server.requests(server)

      assert answered["content"] == [@fallback, text("I cannot pay.")]
      assert asked == %{"role" => "user", "content" => "And now?"}
      assert_taken(:anthropic, server)
      refute_received {:paid, _}
    end

    test "#{if stream?, do: "streamed", else: "whole"}: the calls of a fallback run" do
      content = [text("So"), use_of("pay", "t1"), @fallback, use_of("look", "t2")]
      server = serve(:anthropic, [declining(content, "tool_use", @stream), "Done."])
      test = self()
      tools = Map.put(pay(), :look, fn _ -> send(test, :looked) && {:ok, "seen"} end)
      llm = client(:anthropic, server)
      opts = [llm: llm, tools: tools, stream: @stream]
      assert {:ok, %Result{output: "Done."}} = Runtime.run(Context.new("Pay them"), opts)
      assert_received :looked

      assert [_first, %{body: %{"messages" => [_user, answered, results]}}] =
               Server.requests(server)

      assert [%{"text" => "So"}, @fallback, %{"id" => "t2"}] = answered["content"]
      assert [%{"tool_use_id" => "t2"}] = results["content"]
      assert_taken(:anthropic, server)
      refute_received {:paid, _}
    end
  end

  test "an imported call of a model that declined does not run" do
    content = [use_of("pay", "t1"), @fallback, text("I cannot pay.")]
    user = %{"role" => "user", "content" => "Pay them"}
    body = %{"messages" => [user, %{"role" => "assistant", "content" => content}]}
    assert {:ok, context, %{repairs: []}} = Context.Import.from_request(body, :anthropic)
    server = serve(:anthropic, ["Done."])
    assert {:ok, %Result{output: "I cannot pay."}} = run(:anthropic, server, context: context)
    assert Server.requests(server) == []
    refute_received {:paid, _}
  end
end
