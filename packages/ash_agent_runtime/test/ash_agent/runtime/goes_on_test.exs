defmodule AshAgent.Runtime.GoesOnTest do
  # What a run does when the model paused, and when it ended with neither words nor calls: whole and streamed, typed, in a session, and
  # after a crash.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime, Session}
  alias AshAgent.Runtime.{Error, Result}
  alias AshAgent.Store.SQLite
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.Clients

  import Clients, only: [assert_taken: 2]

  # A killed session says so.
  @moduletag :capture_log

  defp serve(provider, script),
    do: start_supervised!({Server, provider: provider, script: script}, id: make_ref())

  defp client(provider, server),
    do: Clients.new(provider, Server.base_url(server), model: "claude-sonnet-5", max_retries: 0)

  defp run(provider, server, opts) do
    {context, opts} = Keyword.pop(opts, :context, Context.new("When is the ferry?"))
    Runtime.run(context, [llm: client(provider, server), max_iterations: 3] ++ opts)
  end

  ## Pauses

  @search %{"type" => "server_tool_use", "id" => "srvtoolu_1", "name" => "web_search"}
  @found %{"type" => "web_search_tool_result", "tool_use_id" => "srvtoolu_1", "content" => []}

  # Pauses while the provider's own tool runs, and goes on with its result.
  defp paused(stream?),
    do:
      said(
        [text("I search."), Map.put(@search, "input", %{"query" => "ferry"})],
        "pause_turn",
        stream?
      )

  defp answered(words, stream?), do: said([@found, text(words)], "end_turn", stream?)

  defp text(words), do: %{"type" => "text", "text" => words}

  defp said(content, word, false) do
    body = %{
      "type" => "message",
      "role" => "assistant",
      "content" => content,
      "stop_reason" => word
    }

    body = Map.put(body, "usage", %{"input_tokens" => 9, "output_tokens" => 4})
    {:raw, 200, [{"content-type", "application/json"}], [Context.JSON.encode(body)]}
  end

  defp said(content, word, true) do
    blocks =
      for {block, index} <- Enum.with_index(content) do
        [
          %{"type" => "content_block_start", "index" => index, "content_block" => block},
          %{"type" => "content_block_stop", "index" => index}
        ]
      end

    start = %{
      "type" => "message_start",
      "message" => %{"content" => [], "usage" => %{"input_tokens" => 9}}
    }

    stop = %{
      "type" => "message_delta",
      "delta" => %{"stop_reason" => word},
      "usage" => %{"output_tokens" => 4}
    }

    events = List.flatten([start, blocks, stop, %{"type" => "message_stop"}])

    {:raw, 200, [{"content-type", "text/event-stream"}],
     for(event <- events, do: "data: #{Context.JSON.encode(event)}\n\n")}
  end

  defp last_sent(server), do: List.last(List.last(Server.requests(server)).body["messages"])

  for stream? <- [false, true] do
    @stream stream?
    @how if stream?, do: "streamed", else: "whole"

    test "#{@how}: a model that pauses goes on with what it said" do
      server = serve(:anthropic, [paused(@stream), answered("At nine.", @stream)])
      assert {:ok, %Result{} = result} = run(:anthropic, server, stream: @stream)
      assert {result.output, result.finish_reason, result.iterations} == {"At nine.", :stop, 2}

      assert %{
               "role" => "assistant",
               "content" => [%{"text" => "I search."}, %{"id" => "srvtoolu_1"}]
             } = last_sent(server)

      assert_taken(:anthropic, server)

      # All of it is one turn, and goes back.
      context = Context.add_user_message(result.context, "Thanks")
      again = serve(:anthropic, ["Bye."])
      assert {:ok, %Result{output: "Bye."}} = run(:anthropic, again, context: context)
      assert [%{body: %{"messages" => messages}}] = Server.requests(again)

      kinds =
        for %{"role" => "assistant", "content" => blocks} <- messages,
            block <- blocks,
            do: block["type"]

      assert kinds == ["text", "server_tool_use", "web_search_tool_result", "text"]
      assert_taken(:anthropic, again)
    end

    test "#{@how}: one that goes on pausing reaches the limit of iterations" do
      server = serve(:anthropic, fn _request -> said([text("Wait.")], "pause_turn", @stream) end)

      assert {:error, %Error{} = error} = run(:anthropic, server, stream: @stream)

      assert error.reason == {:max_iterations_exceeded, 3}
      assert length(Server.requests(server)) == 3
    end

    test "#{@how}: a pause is no attempt of a typed answer" do
      for mode <- [:native, :text], hide? <- [false, true] do
        script = [
          paused(@stream),
          answered(~s({"hour":"nine"}), @stream),
          said([text(~s({"hour":9}))], "end_turn", @stream)
        ]

        server = serve(:anthropic, script)
        opts = [stream: @stream, output: [hour: :integer], output_mode: mode, hide_retries: hide?]
        assert {:ok, %Result{output: %{hour: 9}} = result} = run(:anthropic, server, opts)

        shown =
          Context.JSON.encode(Context.request(result.context, :anthropic))
          |> IO.iodata_to_binary()

        assert shown =~ "I search."
        assert shown =~ "nine" == not hide?
        assert_taken(:anthropic, server)
      end
    end

    test "#{@how}: a run that is cut short between a pause and the answer goes on" do
      server = serve(:anthropic, [paused(@stream), answered("At nine.", @stream)])
      test = self()
      keep = fn context -> send(test, {:kept, Context.to_snapshot(context)}) && :ok end
      assert {:ok, _result} = run(:anthropic, server, stream: @stream, on_change: keep)
      kept = for _n <- 1..50, do: receive(do: ({:kept, kept} -> kept), after: (0 -> nil))
      kept = for snapshot <- Enum.uniq(kept), snapshot != nil, do: elem(Context.load(snapshot), 1)
      paused = Enum.filter(kept, &(inspect(Context.to_messages(&1)) =~ "I search."))
      assert length(paused) > 1

      for context <- paused do
        again = serve(:anthropic, [answered("At nine.", @stream)])

        assert {:ok, %Result{output: "At nine."}} =
                 run(:anthropic, again, context: context, stream: @stream)

        asked = if Context.outline(context).answered?, do: 0, else: 1
        assert length(Server.requests(again)) == asked
        assert_taken(:anthropic, again)
      end
    end
  end

  test "a session that is killed after a pause goes on with the turn" do
    {:ok, store} = SQLite.open(":memory:")
    test = self()
    hang = fn _request -> send(test, :asked_again) && Process.sleep(:infinity) end
    server = serve(:anthropic, [paused(false), hang, answered("At nine.", false)])
    opts = [store: store, id: "c", llm: client(:anthropic, server), stream: false]
    session = start_supervised!({Session, opts}, id: :first, restart: :temporary)
    {:ok, _prompt} = Session.prompt_async(session, "When is the ferry?")
    assert_receive :asked_again, 5_000
    monitor = Process.monitor(session)
    Process.exit(session, :kill)
    assert_receive {:DOWN, ^monitor, _, _, _}

    session = start_supervised!({Session, opts}, id: :second, restart: :temporary)
    assert {:ok, %Result{output: "At nine."}} = Session.resume(session)
    assert %{"role" => "assistant"} = last_sent(server)
    assert_taken(:anthropic, server)
  end

  ## Answers that came to nothing

  # How each provider says that the model meant to call a tool, or that it could not read what the model said.
  @empty [
    anthropic: "tool_use",
    bedrock: "malformed_tool_use",
    gemini: "MALFORMED_FUNCTION_CALL",
    gemini: "UNEXPECTED_TOOL_CALL",
    mistral: "error",
    openai_chat: "tool_calls"
  ]

  defp nothing(word), do: %{content: "", finish_reason: word}

  for {provider, word} <- @empty, stream? <- [false, true] do
    @provider provider
    @word word
    @stream stream?
    @how "#{provider}, #{word}, #{if stream?, do: "streamed", else: "whole"}"

    test "#{@how}: an answer that came to nothing is asked for again, and kept as a failure" do
      for output <- [[], [output: [hour: :integer], output_mode: :text]] do
        server = serve(@provider, [nothing(@word), ~s({"hour":9})])
        assert {:ok, %Result{} = result} = run(@provider, server, [stream: @stream] ++ output)
        assert result.output == if(output == [], do: ~s({"hour":9}), else: %{hour: 9})
        assert length(Server.requests(server)) == 2
        assert [%{kind: :invalid_response, code: @word}] = Context.Audit.failures(result.context)
        assert_taken(@provider, server)
      end
    end

    test "#{@how}: a model that always comes to nothing fails, and is asked again by the next run" do
      server = serve(@provider, fn _request -> nothing(@word) end)
      assert {:error, %Error{} = error} = run(@provider, server, stream: @stream)
      assert {:llm_error, %LLM.Error{reason: {:empty, @word}}} = error.reason
      assert Exception.message(error) =~ "neither words nor calls (#{@word})"
      assert length(Server.requests(server)) == 3
      assert length(Context.Audit.failures(error.context)) == 3

      for context <- [
            error.context,
            error.context |> Context.to_snapshot() |> Context.load() |> elem(1)
          ] do
        again = serve(@provider, ["Fine."])
        assert {:ok, %Result{output: "Fine."}} = run(@provider, again, context: context)
        assert_taken(@provider, again)
      end
    end
  end

  test "each request for another answer counts" do
    server = serve(:gemini, fn _request -> nothing("MALFORMED_FUNCTION_CALL") end)
    assert {:error, %Error{reason: {:max_calls_exceeded, 2}}} = run(:gemini, server, max_calls: 2)
    assert length(Server.requests(server)) == 2
  end

  test "a model that says nothing, and means it, ends the turn" do
    for {provider, word} <- [anthropic: "end_turn", gemini: "STOP", openai_chat: "stop"] do
      server = serve(provider, [nothing(word)])
      assert {:ok, %Result{output: output}} = run(provider, server, stream: false)
      assert output in [nil, ""]
      assert length(Server.requests(server)) == 1
    end
  end
end
