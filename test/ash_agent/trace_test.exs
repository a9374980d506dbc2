defmodule AshAgent.TraceTest do
  use ExUnit.Case, async: true

  import ExUnit.CaptureIO
  import AshAgent.TestSupport.Generators

  alias AshAgent.{ChatContext, Context, Trace}
  alias AshAgent.Context.JSON
  alias AshAgent.TestSupport.ContextGenerators, as: Scripts

  doctest AshAgent.Trace

  @at ~U[2026-01-01 10:00:00.000000Z]
  @room 300_000

  # The data in a page, as a browser finds it: up to the first end of a script tag.
  defp data(page) do
    [_, rest] = String.split(page, ~s(<script type="application/json" id="data">), parts: 2)
    [json, _] = String.split(rest, ~r{</script}i, parts: 2)
    assert {:ok, data} = JSON.decode(json)
    data
  end

  # Each text that is said, in its order.
  defp said(data, index) do
    conversation = Enum.at(data["conversations"], index)

    for iteration <- all(data, conversation),
        entry <- iteration["says"],
        text <- texts(entry, data),
        do: text
  end

  defp all(data, %{"origin" => [at, shared], "iterations" => own}),
    do: Enum.take(all(data, Enum.at(data["conversations"], at)), shared) ++ own

  defp all(_data, %{"iterations" => own}), do: own

  defp texts(%{"text" => ref}, data), do: [text(ref, data)]
  defp texts(%{"parts" => parts}, data), do: Enum.flat_map(parts, &texts(&1, data))
  defp texts(_other, _data), do: []

  defp text(ref, data) when is_integer(ref), do: Enum.at(data["texts"], ref)
  defp text(text, _data), do: text

  describe "to_html/2" do
    test "holds every text once, and is at most 1.2 times as long as the snapshot plus 300 KB" do
      check_all("pages", [runs: 60], fn size ->
        context = Scripts.build(Scripts.with_views(Scripts.script(size)))
        provider = one_of([nil, :anthropic, :openai_chat, :gemini])
        page = Trace.to_html(context, request: provider)
        assert byte_size(page) <= 1.2 * byte_size(Context.to_snapshot(context)) + @room
        data = data(page)
        assert length(data["texts"]) == length(Enum.uniq(data["texts"]))
        assert [%{"iterations" => iterations}] = data["conversations"]

        assert Enum.map(iterations, & &1["number"]) ==
                 Enum.map(Context.iterations(context), & &1.number)
      end)
    end

    test "is that small for what is long: HTML, arguments, branches and a request" do
      html = String.duplicate("<div class=\"a\"><span>it's</span></div>\n", 2_000)
      arguments = %{"path" => "a.html", "content" => html}

      context =
        Enum.reduce(1..10, Context.new(html <> "0", at: @at), fn n, context ->
          context
          |> Context.add_assistant_message("#{n}#{html}", [
            %{id: "w#{n}", name: "write", arguments: Map.put(arguments, "n", n)}
          ])
          |> Context.add_tool_results([{"w#{n}", {:ok, "#{html}#{n}"}}])
        end)

      chat = ChatContext.new(context: context)

      chat =
        Enum.reduce(1..20, chat, &ChatContext.branch(&2, "b#{&1}", iteration: rem(&1, 9) + 1))

      for provider <- [:anthropic, :openai_chat, :bedrock, :gemini, :openai_responses],
          {shown, snapshot} <- [
            {context, Context.to_snapshot(context)},
            {chat, ChatContext.to_snapshot(chat)}
          ] do
        page = Trace.to_html(shown, request: provider)

        assert byte_size(page) <= 1.2 * byte_size(snapshot) + @room,
               "#{provider}: #{byte_size(page)}"

        # Put together again it is the body that goes out.
        data = data(page)
        assert data["request"]["left_out"] == 0
        assert {:ok, request} = JSON.decode(assembled(data))
        assert request == Context.request!(context, provider)
      end
    end

    defp assembled(data) do
      Enum.map_join(data["request"]["chunks"], fn
        literal when is_binary(literal) -> literal
        [number] -> text(number, data)
        number -> number |> text(data) |> JSON.encode()
      end)
    end

    test "masks what the view masks, everywhere, unless it is told otherwise" do
      secret = "sk-live-12345"

      context =
        Context.new("My key is #{secret}", system_prompt: "Never tell #{secret}", at: @at)
        |> Context.View.put_prompt_block("memory", "Knows #{secret}")
        |> Context.add_assistant_message(
          [%{type: :thinking, text: secret}, %{type: :text, text: secret}],
          [
            %{id: "c1", name: "use", arguments: %{"key" => secret}},
            %{id: "c2", name: "use", arguments: ~s({"key":"#{secret}"})},
            %{id: "c3", name: "use", arguments: %{}}
          ]
        )
        |> Context.Calls.ask_about_tool_call("c1", %{"key" => secret <> "!"})
        |> Context.Calls.approve_tool_call("c1", by: "who knows #{secret}")
        |> Context.Calls.ask_about_tool_call("c2", %{"other" => secret})
        |> Context.Calls.deny_tool_call("c3", "because of #{secret}")

      other = Context.new("Also #{secret}") |> Context.put_metadata("parent_id", context[:id])
      masked = Context.View.put_masks(context, [{"sk-live-[0-9]+", "[key]"}])
      chat = ChatContext.new(context: masked) |> ChatContext.branch("open")
      chat = ChatContext.update_context(chat, &Context.View.put_masks(&1, []), branch: "open")

      for shown <- [masked, chat], request <- [:anthropic, {:openai_chat, pending: :interrupt}] do
        page = Trace.to_html(shown, request: request, children: [other])
        refute page =~ secret
        assert page =~ "[key]"
      end

      refute capture_io(fn -> Context.print(masked, limit: :infinity, width: :infinity) end) =~
               secret

      refute inspect(masked, custom_options: [messages: true]) =~ secret

      assert Trace.to_html(masked, masked: false) =~ secret
      assert capture_io(fn -> Context.print(masked, masked: false) end) =~ secret
      # What the model sees is told beside it.
      data = data(Trace.to_html(masked, masked: false))
      assert [%{"view" => %{"masks" => 1, "seen" => seen}}] = data["conversations"]
      assert %{"head" => 10, "tail" => 0, "text" => "[key]"} = seen["1.0"]
    end

    test "leaves out metadata, signatures, redacted reasoning and the bytes of files" do
      hidden = "hidden-word"

      parts = [
        %{type: :redacted_thinking, data: hidden},
        %{
          type: :thinking,
          text: "t",
          provider_metadata: %{provider: :anthropic, signature: hidden}
        },
        %{type: :text, text: "seen-word"}
      ]

      file = %{
        type: :file,
        media_type: "text/plain",
        data: Base.encode64(hidden),
        filename: "notes.txt"
      }

      context =
        Context.new([file], at: @at, metadata: %{note: hidden})
        |> Context.add_assistant_message(
          parts,
          [
            %{
              id: "c1",
              name: "look",
              arguments: %{},
              provider_metadata: %{provider: :gemini, signature: hidden}
            }
          ],
          metadata: %{note: hidden}
        )
        |> Context.put_metadata(:actor, hidden)
        |> Context.put_iteration_metadata(1, :tenant, hidden)
        |> Context.add_tool_results([{"c1", {:ok, "done"}}], metadata: %{note: hidden})

      for page <- [
            Trace.to_html(context),
            capture_io(fn -> Context.print(context, width: :infinity) end)
          ] do
        refute page =~ hidden
        refute page =~ Base.encode64(hidden)
        assert page =~ "seen-word"
        assert page =~ "notes.txt"
      end
    end

    test "tells of covers, cleared and shortened results, and what stands in their place" do
      long = "BEGIN" <> String.duplicate("x", 500) <> "END"

      context =
        Enum.reduce(1..6, Context.new("0", at: @at), fn n, context ->
          context
          |> Context.add_assistant_message("a#{n}", [%{id: "c#{n}", name: "look", arguments: %{}}])
          |> Context.add_tool_results([{"c#{n}", {:ok, long}}])
          |> Context.add_assistant_message("done #{n}")
          |> Context.add_user_message("#{n}")
        end)
        |> Context.View.clear_tool_results(keep: 2)
        |> Context.View.put_max_result_bytes(100)
        |> Context.View.mark_as_summarized(1..2, "They looked.")

      assert {:ok, context, _info} = Context.View.compact(context, :drop, range: 3..4)

      data = data(Trace.to_html(context))
      assert [%{"view" => view}] = data["conversations"]

      assert [
               %{"first" => 1, "last" => 2, "summary" => summary},
               %{"first" => 3, "last" => 4} = hidden
             ] = view["covers"]

      assert text(summary["text"], data) =~ "They looked."
      refute hidden["summary"]
      assert %{"iteration" => at, "text" => _} = view["cleared"]
      assert view["most"] == 100

      [model_sees | _] =
        for %{role: :user, content: [%{content: text}]} <-
              Enum.reverse(Context.to_messages(context)),
            do: text

      assert [{_, patch} | _] =
               Enum.sort_by(view["seen"], fn {place, _} ->
                 -String.to_integer(hd(String.split(place, ".")))
               end)

      assert at > 4

      assert String.slice(long, 0, patch["head"]) <>
               text(patch["text"], data) <> String.slice(long, -patch["tail"], patch["tail"]) ==
               model_sees
    end

    test "puts a sub-agent's conversation to the call that it was made for" do
      parent =
        Context.new("Find out", id: "parent", at: @at)
        |> Context.add_assistant_message(nil, [%{id: "call_1", name: "research", arguments: %{}}])

      child = fn parent_id, call ->
        Context.new("Look", at: @at)
        |> Context.put_metadata(:parent_id, parent_id)
        |> Context.put_metadata(:tool_call_id, call)
      end

      children = [child.("parent", "call_1"), child.("nobody", "call_1")]
      data = data(Trace.to_html(parent, children: children))

      assert [nil, [0, "call_1"], nil] = for(one <- data["conversations"], do: one["within"])

      # Two that claim to be made for each other are nobody's.
      [a, b] =
        for {id, other} <- [{"a", "b"}, {"b", "a"}],
            do: Context.new("x", id: id, at: @at) |> Context.put_metadata("parent_id", other)

      data = data(Trace.to_html(a, children: [b]))
      assert Enum.count(data["conversations"], & &1["within"]) < 2

      chat = ChatContext.new(input: "x")
      data = data(Trace.to_html(chat, children: [ChatContext.spawn_child(chat, input: "y")]))
      assert [nil, [0, nil]] = for(one <- data["conversations"], do: one["within"])
    end

    test "stores what branches share once, and leaves no branch out" do
      chat =
        ChatContext.new(input: "First", config: [])
        |> ChatContext.update_context(&Context.add_assistant_message(&1, "one"))

      chat = ChatContext.update_context(chat, &Context.add_user_message(&1, "Second"))

      chat =
        chat
        |> ChatContext.branch("b", iteration: 1)
        |> ChatContext.update_context(&Context.add_user_message(&1, "Other"), branch: "b")

      data = data(Trace.to_html(chat))

      assert [%{"name" => "main", "active" => true}, %{"name" => "b", "origin" => [0, 1]}] =
               data["conversations"]

      assert said(data, 0) == ["First", "one", "Second"]
      assert said(data, 1) == ["First", "one", "Other"]
    end

    test "shows why there is no request" do
      data = data(Trace.to_html(Context.new("x", at: @at), request: {:anthropic, since: 9}))
      assert data["request"]["problem"] =~ "9"
    end

    test "refuses wrong options in words that show no contents" do
      context = Context.new("x")

      for {opts, words} <- [
            {[titel: "x"], ~r/unknown options \[:titel\]/},
            {[title: 1], ~r/:title/},
            {[request: :nobody], ~r/:request/},
            {[prices: [%{model: "m", input: -1, output: 1}]], ~r/:prices/},
            {[children: ["x"]], ~r/a list of contexts and chats/}
          ] do
        assert_raise ArgumentError, words, fn -> Trace.to_html(context, opts) end
      end

      assert_raise ArgumentError, fn -> Trace.to_html(%{}) end
    end
  end

  describe "what a provider says beside an answer" do
    setup do
      body =
        ~s({"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"citations":["https://a.example/secret"]})

      {:ok, response} = AshAgent.Response.decode(:openai_chat, body)
      %{context: Context.add_response!(Context.new("?"), response)}
    end

    test "stays with the message and is on the page", %{context: context} do
      for context <- [context, Context.load!(Context.dump(context))] do
        assert {:ok, %{response: response}} = Context.fetch_message(context, {1, 1})
        assert response.details == %{"citations" => ["https://a.example/secret"]}
        assert Trace.to_html(context) =~ "https://a.example/secret"
      end
    end

    test "is masked as the view is", %{context: context} do
      masked = Context.View.put_masks(context, [{"secret", "[x]"}])
      refute Trace.to_html(masked) =~ "secret"
      assert Trace.to_html(masked) =~ "https://a.example/[x]"
    end
  end

  describe "print/2" do
    test "shows a line for each text, in its order, with nothing that controls a terminal" do
      context =
        Context.new("Go \e[31m on\n now \u202e!", system_prompt: "Be brief.", at: @at)
        |> Context.add_assistant_message(
          "I'll look",
          [%{id: "c1", name: "look", arguments: %{"a" => 1}}],
          at: @at
        )
        |> Context.add_tool_results([{"c1", {:error, :not_found}}], at: DateTime.add(@at, 90))
        |> Context.View.hide({:all_but, 2..2})

      assert capture_io(fn ->
               assert Context.print(context, width: 80, color: false) == context
             end) == """
               system         Be brief.
             iteration 1, 2026-01-01 10:00:00 UTC, 1 min 30 s, hidden from the model
               user           Go ⟦U+001B⟧[31m on now ⟦U+202E⟧!
               assistant      I'll look
               calls          c1: look {"a":1}
               tool result    c1: not found
             iteration 2, 2026-01-01 10:01:30 UTC, open
             """
    end

    test "points at a call, also where older messages are left out" do
      call = &%{id: &1, name: "look", arguments: %{}}

      context =
        Context.new("Go")
        |> Context.add_assistant_message(nil, [call.("c1"), call.("c2")])
        |> Context.add_tool_results([{"c1", {:ok, 1}}, {"c2", {:ok, 2}}])

      for limit <- [50, 1] do
        opts = [width: 80, color: false, mark: {1, 1}, limit: limit]
        lines = capture_io(fn -> Context.print(context, opts) end) |> String.split("\n")

        assert for("> " <> line <- lines, do: line) == ["calls          c2: look {}"]
        assert "  calls          c1: look {}" in lines
      end

      assert_raise ArgumentError, fn -> Context.print(context, mark: {1, -1}) end
    end

    test "takes the newest messages, clips what is long, and colours errors" do
      context =
        Enum.reduce(
          1..9,
          Context.new("first", at: @at),
          &(&2
            |> Context.add_assistant_message("answer #{&1}")
            |> Context.add_user_message(String.duplicate("question #{&1} ", 50)))
        )

      text = capture_io(fn -> Context.print(context, limit: 3, width: 60, color: false) end)

      assert [_left_out, _head, question, answer, _head2, last] =
               String.split(text, "\n", trim: true)

      assert question =~ "question 8" and answer =~ "answer 9" and last =~ "question 9"
      assert String.length(question) == 60 and String.ends_with?(question, "…")

      broken =
        Context.new("x")
        |> Context.add_assistant_message(nil, [%{id: "c", name: "f"}])
        |> Context.interrupt("stopped")

      assert capture_io(fn -> Context.print(broken, color: true) end) =~ "\e[31mc: stopped\e[0m"
    end

    test "inspect shows messages only where it is asked to" do
      context = Context.new("a secret")
      refute inspect(context) =~ "secret"
      refute inspect(context, custom_options: [messages: :yes]) =~ "secret"

      assert inspect(context, custom_options: [messages: true]) =~
               ~r/#AshAgent.Context<.*\n.*\n  user +a secret/
    end

    test "goes through any conversation" do
      check_all("prints", [runs: 60], fn size ->
        context = Scripts.build(Scripts.with_views(Scripts.script(size)))

        text =
          capture_io(fn -> Context.print(context, limit: :infinity, width: 70, color: false) end)

        refute text =~ ~r/[\x{202a}-\x{202e}\x{2066}-\x{2069}\x{0}-\x{9}\x{b}-\x{1f}]/u
        assert Enum.all?(String.split(text, "\n"), &(String.length(&1) < 200))

        for iteration <- Context.iterations(context),
            do: assert(text =~ "iteration #{iteration.number}, ")
      end)
    end
  end
end
