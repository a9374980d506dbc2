defmodule AshAgent.Runtime.StreamTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.Runs, only: [drain: 1, prompt: 2, say: 1]

  import ExUnit.CaptureLog

  alias AshAgent.{Context, LLM, Response, Runtime}
  alias AshAgent.LLM.{Error, OpenAICompatible, Scripted}
  alias AshAgent.Runtime.{Result, SubAgent}
  alias AshAgent.TestSupport.{Generators, Recorded, RequestChecker, StreamModel, Wait, WireServer}

  @pieces ["Once ", "upon ", "a ", "time"]

  defp run(llm, opts \\ []), do: prompt("Hi", [llm: llm] ++ opts)

  # What a run told, in order, and the run's reply.
  defp heard(llm, opts \\ []) do
    test = self()

    tell = fn [_, _ | name], measured, metadata ->
      send(test, {:event, name, measured, metadata})
    end

    reply = run(llm, [on_event: tell] ++ opts)
    {reply, events()}
  end

  defp events, do: drain(do: ({:event, name, measured, metadata} -> {name, measured, metadata}))

  defp texts(events) do
    for {[:llm, :delta], _, %{events: events}} <- events, {:text, 0, text} <- events, do: text
  end

  defp last(context), do: context |> Context.to_messages() |> List.last()

  # Nothing pending, every provider takes it, with and without another message, and a model can answer it.
  defp assert_goes_on(context) do
    assert Context.pending_tool_calls(context) == []
    next = Context.add_user_message(context, "Go on")

    for context <- [context, next], provider <- RequestChecker.providers() do
      {:ok, request} = Context.request(context, provider, model: "m")
      # Newer models of Anthropic go on from no words of their own.
      strict? = provider == :anthropic and last(context)[:state] == :interrupted
      strict = if strict?, do: [prefill: false], else: []
      findings = RequestChecker.validate_request(plain(request), provider, strict)
      assert findings == [], "#{provider}: #{RequestChecker.format(findings)}"
    end

    assert {:ok, %Result{output: "Fine."}} = Runtime.run(next, llm: say("Fine."))
  end

  defp plain(request), do: request |> Context.JSON.encode() |> Context.JSON.decode!()

  describe "a run" do
    test "tells what comes in, to the function alone, and when it began" do
      {{:ok, result}, events} = heard(Scripted.new(["Once upon a time"], delay: 5))
      assert texts(events) == @pieces
      assert result.output == "Once upon a time"

      for {[:llm, :delta], %{bytes: bytes}, %{events: list}} <- events,
          do: assert(bytes == Enum.sum(for {:text, _, text} <- list, do: byte_size(text)))

      assert {_, %{time_to_first_token: first, duration: duration}, %{finish_reason: :stop}} =
               List.keyfind(events, [:llm, :stop], 0)

      assert first > 0 and first < duration
    end

    test "does not stream when it is told not to, or when the model cannot" do
      for {llm, opts} <- [
            {Scripted.new(["Once upon a time"]), [stream: false]},
            {say("Once upon a time"), []}
          ] do
        {{:ok, %Result{output: "Once upon a time"}}, events} = heard(llm, opts)
        assert List.keyfind(events, [:llm, :delta], 0) == nil
        {_, measured, _} = List.keyfind(events, [:llm, :stop], 0)
        refute is_map_key(measured, :time_to_first_token)
      end
    end

    test "streams the calls and the answers of all rounds, and gives what a whole answer gives" do
      answers = [
        %{content: "Let me see", tool_calls: [%{id: "a", name: "t", arguments: %{"x" => "yz"}}]},
        %{content: "Done", usage: %{input_tokens: 3, output_tokens: 1}}
      ]

      tools = %{t: fn %{"x" => x} -> {:ok, x} end}
      {{:ok, streamed}, events} = heard(Scripted.new(answers), tools: tools)
      {:ok, whole} = run(Scripted.new(answers), tools: tools, stream: false)
      assert Context.to_messages(streamed.context) == Context.to_messages(whole.context)
      assert {streamed.usage, streamed.output} == {whole.usage, whole.output}

      kinds =
        for {[:llm, :delta], _, %{events: list}} <- events, event <- list, do: elem(event, 0)

      assert [:tool_call_started, :tool_call, :finish] -- kinds == []
    end

    test "goes on when the function that hears of it fails, also in each piece" do
      log =
        capture_log(fn ->
          assert {:ok, %Result{output: "Once upon a time"}} =
                   run(StreamModel.saying(@pieces), on_event: fn _ -> raise "SECRET" end)
        end)

      assert log =~ ":on_event failed"
      refute log =~ "SECRET"
    end

    test "reads on when a piece was heard, and not before" do
      test = self()

      hear = fn
        %{event: [_, _, :llm, :delta]} -> send(test, :heard) && receive(do: (:go -> :ok))
        _other -> :ok
      end

      llm =
        StreamModel.new(fn _context, feed ->
          for piece <- @pieces, do: send(test, {:fed, piece}) && feed.(StreamModel.text(piece))
          {:ok, feed.(StreamModel.finish())}
        end)

      run = Task.async(fn -> run(llm, on_event: hear) end)

      for piece <- @pieces do
        assert_receive {:fed, ^piece}
        assert_receive :heard
        refute_received {:fed, _}
        send(run.pid, :go)
      end

      assert_receive :heard
      send(run.pid, :go)
      assert {:ok, %Result{}} = Task.await(run)
    end

    test "leaves nothing in the mailbox of its caller" do
      for llm <- [
            StreamModel.saying(@pieces),
            StreamModel.then_do(@pieces, fn -> raise "boom" end),
            endless()
          ] do
        run(llm, llm_timeout: 50)
        assert Process.info(self(), :messages) == {:messages, []}
      end
    end

    defmodule Late do
      @behaviour LLM
      @impl true
      def chat(_context, _opts), do: {:error, :only_streams}
      @impl true
      def stream(_context, opts, fun),
        do: send(opts[:test], {:fun, fun}) && {:ok, %{content: "Hi"}}
    end

    test "is not bothered by a model that hands over more when it is over" do
      assert {:ok, %Result{output: "Hi"}} = run({Late, test: self()})
      assert_received {:fun, fun}
      late = spawn(fn -> fun.([{:text, 0, "late"}], Response.new(:ollama)) end)
      assert Wait.until(fn -> Process.info(late, :status) == {:status, :waiting} end)
      assert Process.info(self(), :messages) == {:messages, []}
    end

    test "streams sub-agents to whom they tell" do
      test = self()
      tell = fn event -> send(test, {:child, event}) end
      tool = SubAgent.tool(name: "ask", llm: StreamModel.saying(@pieces), on_event: tell)
      call = %{id: "a", name: "ask", arguments: %{"task" => "Tell"}}
      {{:ok, _}, events} = heard(Scripted.new([%{tool_calls: [call]}, "Done"]), tools: [tool])
      assert texts(events) == ["Done"]

      assert_received {:child, %{event: [_, _, :llm, :delta], metadata: %{events: events}}}
      assert events == [{:text, 0, "Once "}]
    end
  end

  describe "what breaks off" do
    # A client whose provider has begun to answer.
    defp begun(then) do
      server =
        WireServer.start(fn connection ->
          {:ok, _} = WireServer.read_request(connection)
          WireServer.write(connection, WireServer.stream_head())
          WireServer.write_chunk(connection, StreamModel.text("Once "))
          then.(connection)
        end)

      OpenAICompatible.new(model: "m", base_url: server.url)
    end

    @tag :capture_log
    test "is kept, however it ends, and the conversation goes on" do
      hang = fn -> Process.sleep(:infinity) end
      cut = %Error{reason: {:connection, :closed}}

      for {ending, opts, reason} <- [
            {fn -> raise "boom" end, [], :llm_exception},
            {fn -> exit(:boom) end, [], :llm_exception},
            {fn -> Process.exit(self(), :kill) end, [], :llm_exception},
            {fn -> {:error, cut} end, [], :llm_error},
            {fn -> {:error, :other} end, [], :llm_error},
            {fn -> :nonsense end, [], :invalid_answer},
            {fn -> {:ok, %{content: 5}} end, [], :invalid_answer},
            {fn -> {:ok, Response.new(:ollama)} end, [], :invalid_answer},
            {hang, [llm_timeout: 1_000], :llm_timeout},
            {hang, [timeout: 1_000], :timeout}
          ] do
        llm = StreamModel.then_do(@pieces, ending)
        {{:error, error}, events} = heard(llm, opts)
        assert elem(error.reason, 0) == reason
        assert texts(events) == @pieces
        assert %{content: "Once upon a time", state: :interrupted} = last(error.context)
        assert {:ok, %{response: response}} = Context.fetch_message(error.context, {1, 1})
        assert %{state: :interrupted, reason: ^reason} = response
        assert List.keyfind(events, [:llm, :exception], 0)
        assert_goes_on(error.context)

        # Run again, the model is asked again.
        assert {:ok, %Result{output: "Fine.", iterations: 1}} =
                 Runtime.run(error.context, llm: say("Fine."))
      end
    end

    defp endless do
      StreamModel.new(fn _context, feed ->
        Stream.repeatedly(fn -> feed.(StreamModel.text("again ")) end) |> Stream.run()
      end)
    end

    test "also when the stream never ends and never pauses" do
      for limit <- [llm_timeout: 1_000, timeout: 1_000] do
        {{:error, error}, events} = heard(endless(), [limit])
        assert error.reason == limit
        assert last(error.context).content == Enum.join(texts(events))
        assert_goes_on(error.context)
      end
    end

    test "is what a client had delivered when its provider fails in the middle" do
      failed = ~s(data: {"error":{"message":"overloaded"}}\n\n)
      llm = begun(&WireServer.write_chunk(&1, failed))
      assert {:error, %{reason: {:llm_error, %Error{}}} = error} = run(llm)
      assert %{content: "Once ", state: :interrupted} = last(error.context)
      assert_goes_on(error.context)
    end

    @tag :capture_log
    test "runs no call of it, not even a complete one" do
      test = self()
      tools = %{t: fn _ -> send(test, :ran) end}

      llm =
        StreamModel.new(fn _context, feed ->
          feed.(StreamModel.call("a", "t", "{}"))
          feed.(StreamModel.call("b", "t", ~s({"x":)))
          raise "boom"
        end)

      {:error, %{context: context}} = run(llm, tools: tools)
      refute_received :ran
      assert [{"a", {:error, _}}, {"b", {:error, _}}] = results(context, 1)
      assert_goes_on(context)
    end

    # Whatever providers send, broken off anywhere.
    @tag timeout: 300_000
    test "of streams that providers sent leaves a conversation that every provider takes" do
      streams = Recorded.samples() ++ Enum.take_every(Recorded.streams(), 4)

      Generators.check_all("cut streams", [runs: length(streams)], fn _size ->
        %{provider: provider, body: body} = Generators.one_of(streams)
        size = Generators.between(0, byte_size(body))
        <<front::binary-size(size), _rest::binary>> = body

        llm =
          StreamModel.new(provider, fn _context, feed ->
            for <<piece::binary-size(40) <- front>>, do: feed.(piece)
            feed.(binary_part(front, size - rem(size, 40), rem(size, 40)))
            {:error, :cut}
          end)

        {{:error, error}, events} = heard(llm)
        assert error.reason == {:llm_error, :cut}

        if List.keyfind(events, [:llm, :delta], 0),
          do: assert_goes_on(error.context),
          else: assert(Context.count_messages(error.context) == 1)
      end)
    end

    @tag :capture_log
    test "closes its connection, and no process stays, when the caller is killed in the middle" do
      test = self()
      llm = begun(&WireServer.await_close/1)

      tell = fn
        %{event: [_, _, :llm, :delta]} -> send(test, {:monitors, Process.info(self(), :monitors)})
        _other -> :ok
      end

      caller = spawn(fn -> run(llm, on_event: tell) end)
      assert_receive {:monitors, {:monitors, [process: model]}}
      Process.exit(caller, :kill)
      assert_receive {:closed, 1}
      assert Wait.until(fn -> not Process.alive?(model) end)
    end
  end

  defp results(context, iteration) do
    for %{id: id, result: result} <- Context.get_iteration(context, iteration).tool_calls,
        do: {id, result}
  end

  describe "max_tokens in the middle of a call" do
    # Calls, the last of them cut off, and then what the model is asked next.
    defp cut_calls(calls) do
      test = self()

      StreamModel.new(fn context, feed ->
        if context.current_iteration == 1 do
          for {id, json} <- calls, do: feed.(StreamModel.call(id, "t", json))
          {:ok, feed.(StreamModel.finish("length"))}
        else
          send(test, {:asked, Context.to_messages(context)})
          StreamModel.say(feed, ["Sorry."])
        end
      end)
    end

    test "is told to the model, and the call is not run" do
      test = self()
      tools = %{t: fn arguments -> send(test, {:ran, arguments}) && {:ok, 1} end}

      for {calls, ran} <- [
            {[{"a", ~s({"x":1})}, {"b", ~s({"x":2)}], [%{"x" => 1}]},
            {[{"b", ~s({"x":2)}], []},
            # What parses is no sign that it is all.
            {[{"b", "{}"}], []}
          ] do
        {{:ok, result}, events} = heard(cut_calls(calls), tools: tools)
        assert %Result{output: "Sorry.", iterations: 2, finish_reason: :stop} = result
        for arguments <- ran, do: assert_received({:ran, ^arguments})
        refute_received {:ran, _}

        assert_received {:asked, messages}
        assert %{role: :user, content: told} = List.last(messages)
        assert %{is_error: true, content: words} = Enum.find(told, &(&1.tool_use_id == "b"))
        assert words =~ "limit of tokens"

        assert [{_, %{tool_calls: count}, %{finish_reason: :length}} | _] =
                 Enum.filter(events, &match?({[:llm, :stop], _, _}, &1))

        assert count == length(ran)
        assert_goes_on(result.context)
      end
    end

    test "ends with the bounds of the run when the model goes on like that" do
      llm =
        StreamModel.new(fn _context, feed ->
          feed.(StreamModel.call("a", "t", "{"))
          {:ok, feed.(StreamModel.finish("length"))}
        end)

      assert {:error, error} = run(llm, tools: %{t: fn _ -> 1 end}, max_iterations: 3)
      assert error.reason == {:max_iterations_exceeded, 3}
      assert_goes_on(error.context)
    end

    test "in a text is an answer, whose end says so" do
      llm =
        StreamModel.new(fn _context, feed ->
          feed.(StreamModel.text("Once"))
          {:ok, feed.(StreamModel.finish("length"))}
        end)

      assert {:ok, %Result{output: "Once", finish_reason: :length}} = run(llm)
    end
  end

  describe "on_change during a stream" do
    # The contexts that were given, with what the model said in each.
    defp kept(llm, opts) do
      test = self()
      reply = run(llm, [on_change: &(send(test, {:kept, &1}) && :ok)] ++ opts)
      {reply, kept_contexts()}
    end

    defp kept_contexts, do: drain(do: ({:kept, context} -> context))

    test "gets what there would be if it died now, when so much text came" do
      pieces = for n <- 1..100, do: String.pad_leading("#{n} ", 100)
      opts = [on_change_bytes: 1_000, on_change_interval: 60_000]
      {{:ok, result}, contexts} = kept(StreamModel.saying(pieces), opts)
      {partial, [final]} = Enum.split(contexts, -1)
      assert Context.equal?(final, result.context)
      assert length(partial) == 10

      for {context, number} <- Enum.with_index(partial, 1) do
        assert %{content: text, state: :interrupted} = last(context)
        assert text == pieces |> Enum.take(10 * number) |> Enum.join()
        assert {:ok, %{response: %{reason: :unfinished}}} = Context.fetch_message(context, {1, 1})
        assert_goes_on(context)
        # A document like any other.
        stored = context |> Context.to_snapshot() |> Context.load!()
        assert Context.equal?(stored, context)
      end
    end

    test "gets it when so much time went by, also when nothing more comes" do
      test = self()

      llm = StreamModel.then_do(["Once "], fn -> receive(do: (:never -> :ok)) end)
      keep = fn context -> send(test, {:kept, last(context)}) && :ok end
      opts = [on_change: keep, on_change_interval: 30, llm_timeout: 1_500]
      assert {:error, %{reason: {:llm_timeout, 1_500}}} = run(llm, opts)
      assert_received {:kept, %{content: "Once ", state: :interrupted}}
      # Once for the text, once at the end.
      assert_received {:kept, %{content: "Once ", state: :interrupted}}
      refute_received {:kept, _}
    end

    test "gets a complete answer as such, however much of it came last" do
      llm =
        StreamModel.new(fn _context, feed ->
          call = StreamModel.call("a", "t", ~s({"x":1}))
          {:ok, feed.(StreamModel.text("Once ") <> call <> StreamModel.finish("tool_calls"))}
        end)

      opts = [on_change_bytes: 1, max_iterations: 1, approval: fn _, _ -> :ask end]
      tools = %{t: fn _ -> 1 end}
      {{:paused, _}, [answer | _asked]} = kept(llm, [tools: tools] ++ opts)
      assert [%{id: "a"}] = Context.pending_tool_calls(answer)
    end

    test "gets nothing of a short answer but the answer" do
      assert {{:ok, _}, [_answer]} = kept(StreamModel.saying(@pieces), [])
    end

    test "ends the run when it refuses, and the text stays in the error's context" do
      test = self()
      keep = fn context -> send(test, {:kept, last(context)}) && {:error, :stale} end
      opts = [on_change: keep, on_change_bytes: 10]
      assert {:error, error} = run(StreamModel.saying(@pieces), opts)
      assert error.reason == {:on_change_error, :stale}
      assert %{content: "Once upon ", state: :interrupted} = last(error.context)
      assert_received {:kept, %{content: "Once upon "}}
      refute_received {:kept, _}
      assert_goes_on(error.context)
    end
  end

  describe "a message in the place of a response" do
    test "makes the conversation that the same message makes by hand" do
      Generators.check_all("messages", [runs: 300], fn size ->
        content =
          Generators.one_of([nil, Generators.text(), Generators.assistant_parts(), [], ""])

        calls = Generators.tool_calls(size)
        at = DateTime.utc_now()
        context = Context.new("Hi")
        by_hand = fn -> Context.add_assistant_message(context, content, calls, at: at) end
        given = Response.from_message(%{content: content, tool_calls: calls})

        case {given, attempt(by_hand)} do
          {{:ok, response}, {:ok, by_hand}} ->
            {:ok, context} = Context.add_response(context, response, at: at)
            assert normal(Context.to_messages(context)) == normal(Context.to_messages(by_hand))
            assert Context.pending_tool_calls(context) == Context.pending_tool_calls(by_hand)

          {{:error, error}, {:error, same}} ->
            assert error == same
        end
      end)
    end

    defp attempt(fun) do
      {:ok, fun.()}
    rescue
      error in Context.Error -> {:error, error}
    end

    # One plain text part is text, as in all responses.
    defp normal(messages) do
      for message <- messages do
        case message do
          %{content: [%{type: :text, text: text} = part]} when map_size(part) == 2 ->
            %{message | content: text}

          %{content: []} ->
            %{message | content: nil}

          _other ->
            message
        end
      end
    end

    test "stays what it is, whatever it holds" do
      content = [%{type: :text, text: "Hm"}, %{type: :image, url: "https://h/x"}]
      calls = [%{id: "a", name: :t, arguments: %{a: {1, "b"}}}, %{name: "u"}]
      usage = %{input_tokens: 2, output_tokens: 1}
      message = %{content: content, tool_calls: calls, usage: usage}
      message = Map.merge(message, %{finish_reason: "tool_calls", model: "m"})

      {:ok, response} = LLM.chat(fn _ -> {:ok, message} end, Context.new("Hi"))
      assert %Response{state: :complete, provider: nil} = response
      assert {Response.finish_reason(response), Response.model(response)} == {:tool_calls, "m"}
      assert inspect(response) =~ ~r/^#AshAgent.Response<complete, \d+ bytes>$/

      {:ok, context} = Context.add_response(Context.new("Hi"), response)

      by_hand = Context.add_assistant_message(Context.new("Hi"), content, calls)
      assert Context.to_messages(context) == Context.to_messages(by_hand)

      assert [%{arguments: %{a: {1, "b"}}}, %{id: "call_1_1_1"}] =
               Context.pending_tool_calls(context)

      assert Context.Tokens.get_cumulative_tokens(context).total_tokens == 3
    end
  end
end
