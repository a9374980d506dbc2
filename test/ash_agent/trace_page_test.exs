defmodule AshAgent.TracePageTest do
  # In a real browser, one at a time: a machine with few cores has no room for more.
  use ExUnit.Case, async: false

  @moduletag :slow

  alias AshAgent.{ChatContext, Context, Trace}
  alias AshAgent.TestSupport.{Browser, Pdf, Wait}

  @moduletag :chromium
  # The tag alone would not leave them out of what includes the slow files.
  @moduletag skip: AshAgent.TestSupport.Browser.executable() == nil and "Chromium is missing"
  @moduletag integrations: ["Chromium"]
  @moduletag timeout: 180_000
  @moduletag :tmp_dir

  @at ~U[2026-01-01 10:00:00.000000Z]
  @pixel "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

  # A first message, and so many answers with the question that follows.
  defp long(turns) do
    Enum.reduce(
      1..turns,
      Context.new("first", at(0)),
      &(&2
        |> Context.add_assistant_message("answer #{&1}")
        |> Context.add_user_message("question #{&1}"))
    )
  end

  defp open(page, %{tmp_dir: folder}, opts \\ []) do
    file = Path.join(folder, "page-#{System.unique_integer([:positive])}.html")
    File.write!(file, page)
    Browser.open(file, opts)
  end

  defp at(seconds), do: [at: DateTime.add(@at, seconds)]

  # A run with two calls at once, of which one was approved and one denied, and a question after it.
  defp talk do
    calls = [
      %{id: "call_1", name: :get_weather, arguments: %{city: "Rome"}},
      %{id: "call_2", name: :buy_ticket, arguments: %{price: 99}},
      %{id: "call_3", name: :research, arguments: %{task: "Hotels"}}
    ]

    Context.new(
      "What is the weather in Rome?",
      [system_prompt: "You plan trips.", id: "talk"] ++ at(0)
    )
    |> Context.add_assistant_message("I'll look at both.", calls, at(1))
    |> Context.Tokens.add_token_usage(%{
      input_tokens: 1_000,
      output_tokens: 50,
      cached_tokens: 600
    })
    |> Context.Calls.approve_tool_call("call_1", [by: "ann"] ++ at(40))
    |> Context.Calls.deny_tool_call("call_2", "too dear", [by: "bob"] ++ at(41))
    |> Context.add_tool_results(
      [
        {"call_1", {:ok, "Sunny, " <> String.duplicate("warm and ", 400) <> "dry"}},
        {"call_3", {:ok, "Roma"}}
      ],
      at(42)
    )
    |> Context.add_assistant_message("It is sunny.", [], at(43))
    |> Context.add_user_message(
      [
        %{type: :text, text: "And this place?"},
        %{type: :image, media_type: "image/png", data: @pixel}
      ],
      at(100)
    )
    |> Context.add_assistant_message("I cannot tell.", [], at(101))
  end

  defp child do
    Context.new("Hotels", at(2))
    |> Context.add_assistant_message("Hotel Roma is free.", [], at(3))
    |> Context.put_metadata(:parent_id, "talk")
    |> Context.put_metadata(:tool_call_id, "call_3")
  end

  test "says which calls somebody was asked about", context do
    calls = for id <- ~w(a b c), do: %{id: id, name: :delete, arguments: %{path: id}}
    pending = Context.new("Clean up", at(0)) |> Context.add_assistant_message(nil, calls, at(1))
    assert Browser.text(open(Trace.to_html(pending), context), ".top") =~ "waits for results"

    asked =
      pending
      |> Context.Calls.ask_about_tool_call("a", nil, at(2))
      |> Context.Calls.ask_about_tool_call("b", %{path: "/srv/b"}, at(2))

    browser = open(Trace.to_html(asked), context)
    assert Browser.text(browser, ".top") =~ "waits for a decision"

    assert Browser.texts(browser, ".decision") == [
             "Somebody has been asked to decide about this call",
             "Somebody has been asked to decide about a run with these arguments:"
           ]
  end

  test "shows a conversation, and complains of nothing", context do
    page =
      Trace.to_html(talk(),
        title: "A trip",
        children: [child()],
        prices: [%{model: "m", input: 1_000_000, output: 2_000_000}]
      )

    browser = open(page, context)
    assert Browser.eval(browser, "document.title") == "A trip"

    assert Browser.texts(browser, "article h2") == [
             "System",
             "User",
             "Assistant",
             "Assistant",
             "User",
             "Assistant"
           ]

    # Parallel calls stand side by side, with their results under them.
    assert Browser.texts(browser, ".call h3") |> Enum.map(&hd(String.split(&1))) == [
             "get_weather",
             "buy_ticket",
             "research"
           ]

    tops =
      Browser.eval(
        browser,
        "[...document.querySelectorAll('.call')].map(one => one.getBoundingClientRect().top)"
      )

    assert [one, one, _] = tops

    assert Browser.texts(browser, ".decision") == [
             "Approved by ann at 2026-01-01 10:00:40",
             "Denied by bob at 2026-01-01 10:00:41 because: too dear"
           ]

    assert Browser.texts(browser, ".call h4") == ["Result", "Result: denied", "Result"]
    assert Browser.eval(browser, "document.querySelector('img').naturalWidth") == 1
    # Times: the first turn took 42 s, and a minute passed before the next question.
    assert [first, second, third] = Browser.texts(browser, ".row")
    assert first =~ ~r/^1 10:00:00 42.0 s, .*error/
    assert second =~ ~r/^2 10:00:42 58.0 s/
    # What ended the run is not open.
    assert third =~ ~r/^3 10:01:40 1.0 s/

    # The outline has the first words and the tools.
    assert [first, "It is sunny." <> _ | _] = Browser.texts(browser, ".what")

    assert first ==
             "“What is the weather in Rome?” → get_weather, buy_ticket, research → I'll look at both."

    header = Browser.text(browser, ".top")

    for words <- [
          "answered",
          "1 error",
          "3 iterations",
          "3 calls",
          "1 min 41 s in all",
          "1,000 tokens in"
        ],
        do: assert(header =~ words)

    assert header =~ "begun 2026-01-01 10:00:00, last changed 2026-01-01 10:01:41 (UTC)"
    # Long texts are cut until they are wanted.
    refute Browser.text(browser, "#messages") =~ "dry"
    Browser.click(browser, "button.more")
    assert Browser.text(browser, "#messages") =~ "dry"
    # The sub-agent is under its call.
    refute Browser.text(browser, "#messages") =~ "Hotel Roma"
    Browser.click(browser, ".call details summary", "Sub-agent")
    assert Browser.text(browser, ".agent") =~ "Hotel Roma is free."
    Browser.click(browser, "[role=tab]", "Tokens")
    assert [request] = Browser.texts(browser, ".row")
    assert request =~ "1,000 in (60% cached), 50 out"

    widths =
      Browser.eval(
        browser,
        "[...document.querySelector('.chart').children].map(one => one.getAttribute('width'))"
      )

    assert ["57.1" <> _, "0%", "38.0" <> _, "4.7" <> _] = widths
    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end

  test "executes nothing of a conversation, and fetches nothing", context do
    svg =
      Base.encode64(
        ~s[<svg xmlns="http://www.w3.org/2000/svg" onload="parent.hacked=1"><script>parent.hacked=1</script></svg>]
      )

    hostile = [
      "</script><script>window.hacked=1</script>",
      "<!--<script>window.hacked=1",
      "</SCRIPT ><img src=x onerror=window.hacked=1>",
      ~s["><svg onload=window.hacked=1>' onmouseover=window.hacked=1 x='],
      "[x](javascript:window.hacked=1) javascript:window.hacked=1",
      "</pre></noscript></main></style><iframe srcdoc='<script>parent.hacked=1</script>'>",
      "{{ 7 * 7 }} ${window.hacked=1} \u2028 \u2029 \u0000",
      "user\u202egnp.exe\u2066 http://127.0.0.1:9/fetched"
    ]

    parts =
      for(text <- hostile, do: %{type: :text, text: text}) ++
        [
          %{type: :image, media_type: "image/svg+xml", data: svg},
          %{type: :image, media_type: "image/png\" onerror=\"window.hacked=1", data: @pixel},
          %{type: :image, url: "https://stored.example"},
          %{type: :image, url: "http://127.0.0.1:9/image.png"},
          %{type: :image, url: "data:image/svg+xml;base64,#{svg}"},
          %{
            type: :file,
            media_type: "text/html",
            data: svg,
            filename: "<img src=x onerror=window.hacked=1>"
          }
        ]

    calls =
      for {text, n} <- Enum.with_index(hostile),
          do: %{id: "#{n}#{text}", name: text, arguments: %{text => text}}

    results = for call <- calls, do: {call.id, {:ok, parts}}

    conversation =
      Context.new(parts, [id: hd(hostile), system_prompt: Enum.join(hostile)] ++ at(0))
      |> Context.add_assistant_message(Enum.join(hostile, "\n"), calls, at(1))
      |> Context.add_tool_results(results, at(2))
      |> Context.interrupt(hd(hostile))
      |> Context.View.put_prompt_block(hd(hostile), hd(hostile))
      # An address that no part can be added with.
      |> Context.to_snapshot()
      |> String.replace("https://stored.example", "javascript:window.hacked=1")
      |> Context.load!()

    chat =
      ChatContext.new(context: conversation, branch: hd(hostile))
      |> ChatContext.branch(Enum.at(hostile, 3))

    page =
      Trace.to_html(chat,
        title: hd(hostile),
        request: :anthropic,
        prices: [%{model: hd(hostile), input: 1, output: 1}]
      )

    assert length(Regex.scan(~r/<script/i, page)) == 2
    assert length(Regex.scan(~r{</script}i, page)) == 2

    for {shown, opts} <- [
          {page, []},
          {page, [script: false]},
          {"<!doctype html>" <> Trace.to_html(chat, title: hd(hostile), fragment: true), []}
        ] do
      browser = open(shown, context, opts)

      if opts == [] and shown == page do
        for tab <- ["Tokens", "Branches", "Compare", "Request", "Iterations"],
            do: Browser.click(browser, "[role=tab]", tab)

        Browser.click(browser, ".switch")
        assert Browser.text(browser, "body") =~ "user⟦U+202E⟧gnp.exe"

        assert Browser.eval(
                 browser,
                 "[...document.querySelectorAll('.message *')].every(one => one.getAttributeNames().every(name => !name.startsWith('on')))"
               )
      end

      unless opts[:script] == false do
        assert Browser.eval(browser, "typeof window.hacked") == "undefined"

        assert Browser.eval(
                 browser,
                 "document.querySelectorAll('[href^=javascript], .message svg, .message iframe, img[src*=svg]').length"
               ) == 0
      end

      assert Browser.complaints(browser) == []
      Browser.close(browser)
    end

    # The policy is what forbids it, should the page ever be wrong.
    wrong =
      String.replace(
        page,
        "<main id=\"readable\">",
        "<main id=\"readable\"><img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
      )

    browser = open(wrong, context)
    assert Browser.eval(browser, "typeof window.hacked") == "undefined"
    assert Enum.any?(Browser.complaints(browser), &(inspect(&1) =~ "Content Security Policy"))
    Browser.close(browser)
  end

  test "can be read without its script: the newest 50 messages", context do
    long = long(60)

    browser = open(Trace.to_html(long), context, script: false)
    # Scripts of the page do not run; the test's own do.
    texts = Browser.texts(browser, "#readable pre")
    assert length(texts) == 50
    assert List.last(texts) == "question 60"
    assert hd(texts) == "answer 36"
    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end

  test "shows times of the model, of people and of tools, and what the model saw in each request",
       context do
    {:ok, answer} = AshAgent.Response.from_message(%{content: "It is open."})
    calls = [%{id: "c1", name: "ask"}, %{id: "c2", name: "look"}]
    {:ok, asking} = AshAgent.Response.from_message(%{content: "Let me see.", tool_calls: calls})
    requested = fn seconds -> [requested_at: DateTime.add(@at, seconds)] end

    ran = fn id, from, to ->
      times = %{started_at: DateTime.add(@at, from), ended_at: DateTime.add(@at, to)}
      Map.merge(times, %{id: id, result: {:ok, "found by " <> id}})
    end

    conversation =
      Context.new("Is it open?", at(0))
      |> Context.add_response!(asking, requested.(1) ++ at(3))
      |> Context.Calls.approve_tool_call("c1", [by: "ann"] ++ at(93))
      |> Context.add_tool_results([ran.("c1", 93, 97), ran.("c2", 94, 95)], at(97))
      |> Context.View.put_prompt_block("memory", "The user is Ann.", at(97))
      |> Context.View.clear_tool_results([keep: 0] ++ at(97))
      |> Context.add_response!(answer, requested.(98) ++ at(99))
      |> Context.add_user_message("Thanks", at(100))
      |> Context.View.put_prompt_block("memory", nil, at(101))

    browser = open(Trace.to_html(conversation), context)
    [first, second | _] = Browser.texts(browser, ".row")

    assert first =~
             "model 2.0 s, 1 min 30 s of waiting for a decision, tools 4.0 s"

    assert second =~ "model 1.0 s"
    assert Browser.texts(browser, ".legend span") == ["model", "people", "tools", "rest"]
    said = Browser.text(browser, "#messages")
    assert said =~ "answered in 2.0 s" and said =~ "ran 4.0 s" and said =~ "ran 1.0 s"
    # Calls that ran beside each other stand on one axis.
    assert Browser.texts(browser, ".axis li") |> Enum.map(&String.replace(&1, "\n", " ")) ==
             ["ask 0 ms to 4.0 s", "look 1.0 s to 2.0 s"]

    assert Browser.eval(browser, "document.querySelectorAll('.axis .tools')[1].getAttribute('x')") ==
             "25%"

    assert Browser.eval(browser, "document.querySelector('[name=view]').hidden")
    Browser.press(browser, "v")

    assert Browser.texts(browser, "[name=view] option") ==
             ["as of now", "request of iteration 1", "request of iteration 2"]

    seen = fn choice ->
      Browser.eval(
        browser,
        "(document.querySelector('[name=view]').value = #{choice}, document.querySelector('[name=view]').dispatchEvent(new Event('change')))"
      )

      # A text has no place before it is laid out.
      Browser.settle(browser)
      Browser.text(browser, "#messages")
    end

    now = seen.(0)
    assert now =~ "Thanks" and not (now =~ "The user is Ann.") and not (now =~ "found by c1")
    first = seen.(1)
    assert first =~ "found by c1" and not (first =~ "It is open.")
    second = seen.(2)
    assert second =~ "The user is Ann." and second =~ "It is open."
    refute second =~ "found by c1" or second =~ "Thanks"

    Browser.press(browser, "v")
    assert Browser.text(browser, "#messages") =~ "found by c1"
    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end

  test "switches between what was said and what the model sees", context do
    conversation =
      Enum.reduce(1..6, Context.new("start", at(0)), fn n, context ->
        context
        |> Context.add_assistant_message("look #{n}", [
          %{id: "c#{n}", name: "look", arguments: %{}}
        ])
        |> Context.add_tool_results([
          {"c#{n}", {:ok, "result #{n} " <> String.duplicate("x", 300) <> "the end"}}
        ])
        |> Context.add_user_message("question #{n}")
      end)
      |> Context.View.put_prompt_block("memory", "The user is Ann.")
      |> Context.View.clear_tool_results(keep: 2)
      |> Context.View.put_max_result_bytes(120)
      |> Context.View.mark_as_summarized(1..2, "They began.")

    assert {:ok, conversation, _info} = Context.View.compact(conversation, :drop, range: 3..3)

    browser =
      open(Trace.to_html(conversation, request: {:anthropic, pending: :interrupt}), context)

    said = Browser.text(browser, "#messages")
    assert said =~ "look 1" and said =~ "Iterations 1 to 2: the model sees a summary"
    refute said =~ "They began."
    Browser.press(browser, "v")
    assert Browser.text(browser, ".switch") =~ "what the model sees"
    seen = Browser.text(browser, "#messages")
    refute seen =~ "look 1"

    assert seen =~ "They began." and seen =~ "Iteration 3: hidden from the model" and
             seen =~ "The user is Ann."

    # What the page makes of it is what the model gets, word for word.
    model =
      for %{content: [%{type: :tool_result, content: text}]} <- Context.to_messages(conversation),
          do: text

    assert length(model) > 2 and Enum.any?(model, &(&1 =~ "left out"))

    shown =
      Browser.eval(
        browser,
        "[...document.querySelectorAll('.result pre')].map(one => one.textContent)"
      )

    assert shown == model
    Browser.click(browser, ".switch")
    assert Browser.text(browser, "#messages") =~ "the end"

    Browser.eval(
      browser,
      "(document.querySelector('[name=show]').value = 'changed', document.querySelector('[name=show]').dispatchEvent(new Event('change')))"
    )

    assert Browser.text(browser, "[role=status]") =~ "found"
    Browser.click(browser, "[role=tab]", "Request")
    body = Browser.text(browser, "#request-body")
    assert {:ok, request} = Context.JSON.decode(body)
    assert request == Context.request!(conversation, :anthropic, pending: :interrupt)
    assert Browser.text(browser, "table") =~ "iterations are summarized"
    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end

  test "compares branches, shows their tree, and follows links into them", context do
    chat = ChatContext.new(context: talk()) |> ChatContext.branch("idea", iteration: 2)

    asked = &Context.add_user_message(&1, "And Paris?")
    chat = ChatContext.update_context(chat, asked, branch: "idea")

    chat = ChatContext.branch(chat, "deeper", from: "idea")
    browser = open(Trace.to_html(chat), context)
    Browser.click(browser, "[role=tab]", "Branches")
    assert Browser.texts(browser, ".panel > ul > li > ul > li > ul button") == ["deeper"]
    Browser.click(browser, ".panel button", "idea")
    assert Browser.text(browser, "#messages") =~ "And Paris?"
    refute Browser.text(browser, "#messages") =~ "And this place?"
    Browser.click(browser, "[role=tab]", "Compare")
    assert Browser.text(browser, "#common") == "Both have the first 2 iterations."
    assert [one, other] = Browser.texts(browser, ".columns > section")
    assert one =~ "And this place?" and other =~ "And Paris?"
    refute one =~ "It is sunny." and other =~ "It is sunny."
    Browser.go(browser, "about:blank")
    # A link to a message of a branch that is not the active one.
    page = Trace.to_html(chat)
    linked = open(page, context, hash: "#c1-i3-m0")
    assert Browser.eval(linked, "document.activeElement.id") == "c1-i3-m0"
    # As requests and replayed conversations number them.
    assert Browser.text(linked, "#c1-i3-m0 header") =~ "iteration 3, message 1"
    assert Browser.eval(linked, "document.activeElement.innerText") =~ "And Paris?"
    Browser.click(linked, "#c1-i3-m0 a.link")
    assert Browser.eval(linked, "location.hash") == "#c1-i3-m0"

    for hash <- ["#c99-i1-m0", "#c0-i99-m9", "#c0-i1-m0\"><script>"] do
      Browser.eval(linked, "location.hash = #{inspect(hash)}")
      Browser.settle(linked)
    end

    assert Browser.complaints(linked) == []
    Browser.close(linked)
    Browser.close(browser)
  end

  test "can be used with the keyboard and with a screen reader, and finds what is looked for",
       context do
    browser = open(Trace.to_html(talk()), context)
    Browser.press(browser, ["g", "j", "j"])
    assert Browser.eval(browser, "document.activeElement.id") == "c0-i1-m1"
    Browser.press(browser, "k")
    assert Browser.eval(browser, "document.activeElement.id") == "c0-i1-m0"
    Browser.press(browser, "G")
    assert Browser.eval(browser, "document.activeElement.id") == "c0-i3-m1"
    Browser.press(browser, "/")
    Browser.type(browser, "SUNNY")
    assert Browser.text(browser, "[role=status]") == "2 messages found"
    assert Browser.texts(browser, "mark") |> Enum.uniq() |> Enum.sort() == ["Sunny", "sunny"]
    Browser.press(browser, "Escape")
    assert Browser.text(browser, "[role=status]") == "6 messages"
    Browser.press(browser, "?")
    assert Browser.eval(browser, "document.querySelector('dialog').open")
    Browser.click(browser, "dialog button")
    # Whoever tabs comes by every control, and each has a name.
    %{"nodes" => nodes} = Browser.call(browser, "Accessibility.getFullAXTree", %{})

    named =
      for %{"role" => %{"value" => role}, "ignored" => false} = node <- nodes,
          do: {role, get_in(node, ["name", "value"])}

    for {role, name} <- named,
        role in ~w(button link textbox searchbox combobox tab article feed navigation image),
        do: assert(name not in [nil, ""], "a nameless #{role}")

    for role <- ~w(main navigation feed article search status tab heading),
        do: assert(List.keymember?(named, role, 0), "no #{role}")

    assert Browser.eval(
             browser,
             "[...document.querySelectorAll('article')].map(one => one.getAttribute('aria-posinset')).join()"
           ) == "1,2,3,4,5,6"

    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end

  test "is light or dark as its reader wishes, and shows the reader's time", context do
    browser = open(Trace.to_html(talk()), context, timezone: "Asia/Tokyo")
    color = "getComputedStyle(document.body).backgroundColor"
    light = Browser.eval(browser, color)

    Browser.call(browser, "Emulation.setEmulatedMedia", %{
      features: [%{name: "prefers-color-scheme", value: "dark"}]
    })

    assert light == "rgb(251, 251, 250)" and Browser.eval(browser, color) == "rgb(22, 22, 21)"
    Browser.call(browser, "Emulation.setEmulatedMedia", %{media: "print"})

    assert Browser.eval(browser, "getComputedStyle(document.querySelector('.bar')).display") ==
             "none"

    assert Browser.text(browser, ".top") =~ "begun 2026-01-01 19:00:00"
    assert Browser.text(browser, ".top") =~ "(Asia/Tokyo)"
    Browser.close(browser)
  end

  test "has all text of 2,200 messages: printed, and found by the browser's own search",
       context do
    # Beyond what is shown of a text at first, in thinking, and in the last message.
    long = String.duplicate("lorem ipsum ", 400) <> "hiddenword"

    conversation =
      long(1_099)
      |> Context.add_assistant_message([
        %{type: :thinking, text: "thoughtword"},
        %{type: :text, text: long}
      ])
      |> Context.add_user_message("The very lastword")

    assert Context.count_messages(conversation) == 2_201
    browser = open(Trace.to_html(conversation), context)
    # Those that are not seen come soon, one after the other.
    made = "document.querySelectorAll('.feed > article').length"
    assert Wait.until(fn -> Browser.eval(browser, made) == 2_201 end)
    assert Browser.eval(browser, "window.find('question 1042')")
    assert Browser.eval(browser, "getSelection().anchorNode.textContent") == "question 1042"
    assert Browser.eval(browser, "window.find('lastword')")

    # What is folded is marked as to be found: window.find() does not look there, and the browser's own search does.
    assert Browser.eval(browser, "document.querySelector('.rest').hidden") == "until-found"
    refute Browser.text(browser, "#messages") =~ "hiddenword"

    words = browser |> Pdf.print() |> Pdf.text()

    for word <- ["question 1042", "hiddenword", "thoughtword", "lastword"],
        do: assert(words =~ String.replace(word, " ", ""), "#{word} is not printed")

    # The page is as it was.
    refute Browser.text(browser, "#messages") =~ "thoughtword"
    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end

  test "tells beside each view what it does not show, why, and where that is for the model",
       context do
    text = "Booking QX7R2M, see lib/a.ex. " <> String.duplicate("And more of the same. ", 100)
    read = &%{id: &1, name: :read, arguments: %{}}

    shown =
      Enum.reduce(~w(a b c), Context.Recall.put_recall(Context.new("Go"), true), fn id, context ->
        context
        |> Context.add_assistant_message(nil, [read.(id)])
        |> Context.add_tool_results([{id, {:ok, text <> id}}])
      end)

    {shorter, step} = Context.Shortening.shorten(shown, :context_overflow)
    assert %{kind: :cleared, range: 1..2} = step

    [handle] =
      for %{handle: "1." <> _ = handle} <- Context.Recall.search(shorter, "QX7R2M"), do: handle

    recalled =
      shorter
      |> Context.add_assistant_message(nil, [%{read.("d") | name: :recall}])
      |> Context.add_tool_results([{"d", Context.Recall.recall(shorter, handle, lines: 1)}])
      |> Context.Pins.pin({:fact, "QX7R2M"})

    line = fn conversation ->
      browser = open(Trace.to_html(conversation), context)
      refute browser |> Browser.texts(".note") |> Enum.join() =~ "cleared since"
      Browser.press(browser, "v")
      Browser.settle(browser)
      browser |> Browser.texts(".note") |> Enum.join("\n")
    end

    words = line.(recalled)

    for part <- [
          "1 to 2 cleared since iteration 4: the provider refused the request as too long",
          "of the facts not shown where they were said, ",
          " one recall away, 0 masked, 0 gone",
          "pinned: QX7R2M",
          "1 recall"
        ],
        do: assert(words =~ part)

    hidden = shown |> Context.Recall.put_recall(false) |> Context.View.clear_tool_results(keep: 0)
    assert line.(hidden) =~ ~r/0 one recall away, 0 masked, [1-9][0-9]* gone: .*QX7R2M/
  end

  test "shows Markdown and JSON as text in blocks, and signs for what is not seen", context do
    tags = for letter <- ~c"ignore", into: "", do: <<0xE0000 + letter::utf8>>

    words = """
    # A **plan** <b>

    Look at `a.ex`:

    ```elixir
    IO.puts("*")
    ```

    - one
    > quoted

    | a | b |
    |---|---|
    | 1 | <img src=x onerror=window.hacked=1> |

    pass\u200bword soft\u00adhyphen #{tags} 👩‍👧 ❤️ क्‍ष می‌خواهم
    """

    number = "12345678901234567890.0"
    call = %{id: "c1", name: "look", arguments: %{"a" => [1, %{}]}}

    conversation =
      Context.new("Hi")
      |> Context.add_assistant_message(words, [call])
      |> Context.add_tool_results([{"c1", {:ok, ~s({"big":#{number},"text":"a{,\\""})}}])

    browser = open(Trace.to_html(conversation), context)
    text = fn selector -> Browser.text(browser, ".assistant " <> selector) end
    assert text.(".heading") == "A plan <b>"
    assert text.(".heading strong") == "plan"
    assert text.("code") == "a.ex"
    assert text.("pre.code") == ~s[IO.puts("*")]
    assert text.(".item") =~ "one"
    assert text.("blockquote") == "quoted"
    assert Browser.texts(browser, ".assistant td") == ["1", "<img src=x onerror=window.hacked=1>"]
    shown = Browser.text(browser, ".assistant")

    signs =
      "pass⟦U+200B⟧word soft⟦U+00AD⟧hyphen ⟦U+E0069⟧⟦U+E0067⟧⟦U+E006E⟧⟦U+E006F⟧⟦U+E0072⟧⟦U+E0065⟧"

    kept = " 👩‍👧 ❤️ क्‍ष می‌خواهم"
    assert shown =~ signs <> kept
    # As everywhere.
    assert ExUnit.CaptureIO.capture_io(fn -> Context.print(conversation, width: :infinity) end) =~
             signs <> kept

    assert Browser.texts(browser, ".call pre") == [
             "{\n  \"a\": [\n    1,\n    {}\n  ]\n}",
             "{\n  \"big\": #{number},\n  \"text\": \"a{,\\\"\"\n}"
           ]

    assert Browser.eval(browser, "typeof window.hacked") == "undefined"
    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end

  test "shows what was asked, whole: fields, tools and messages, and what changed", context do
    tool = &%{"name" => &1, "description" => "It #{&1}s"}

    answer = fn context, text, seconds ->
      {:ok, response} = AshAgent.Response.from_message(%{content: text})
      times = [requested_at: DateTime.add(@at, seconds)]
      Context.add_response!(context, response, times ++ at(seconds + 1))
    end

    fields = &%{"model" => "m1", "server" => "llm.example", "body" => %{"temperature" => &1}}

    conversation =
      Context.new("Look", at(0))
      |> Context.Audit.put_request(fields.(0), [tool.("look"), tool.("buy")])
      |> answer.("I see.", 1)
      |> Context.add_user_message("And now?", at(3))
      |> Context.Audit.put_request(fields.(1), [tool.("look"), tool.("sell")])
      |> answer.("I see more.", 4)
      |> Context.add_user_message("Thanks", at(6))

    browser = open(Trace.to_html(conversation), context)
    Browser.click(browser, "#c0-i1-m1 summary", "What was asked")
    assert Browser.text(browser, "#c0-i1-m1 .request li") == "the first request"
    Browser.click(browser, "#c0-i2-m1 summary", "What was asked")

    assert Browser.texts(browser, "#c0-i2-m1 .request li") == [
             "temperature: 0 → 1",
             "tool sell is new",
             "tool buy is gone",
             "2 messages more"
           ]

    assert Browser.text(browser, "#c0-i2-m1 .request") =~ ~s("server": "llm.example")
    Browser.click(browser, "#c0-i2-m1 .request summary", "sell")
    assert Browser.text(browser, "#c0-i2-m1 .request") =~ "It sells"
    Browser.click(browser, "#c0-i2-m1 .request button", "Show its messages")
    assert Browser.text(browser, "[role=status]") == "3 messages in the request of iteration 2"
    assert Browser.texts(browser, ".feed .prose") == ["Look", "I see.", "And now?"]
    Browser.press(browser, "v")
    assert Browser.text(browser, "#messages") =~ "Thanks"
    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end

  test "says what became of the prompt cache where less was read than could have been", context do
    answer = fn conversation, read, written, seconds ->
      usage = %{
        input_tokens: 10,
        output_tokens: 1,
        cache_read_input_tokens: read,
        cache_creation_input_tokens: written
      }

      body = %{type: "message", model: "m", content: [%{type: "text", text: "Yes"}], usage: usage}
      {:ok, response} = AshAgent.Response.decode(:anthropic, body)
      times = [requested_at: DateTime.add(@at, seconds)]
      Context.add_response!(conversation, response, times ++ at(seconds + 1))
    end

    conversation =
      Context.new("Hi", at(0))
      |> answer.(0, 5_000, 1)
      |> Context.add_user_message("And?", at(3))
      |> answer.(5_000, 10, 4)
      |> Context.add_user_message("And?", at(6))
      |> Context.View.put_prompt_block(:clock, "It is Monday.")
      |> answer.(0, 5_100, 7)

    prices = [
      %{model: :any, input: 3_000_000, cache_read: 300_000, cache_write: 3_750_000, output: 1}
    ]

    browser = open(Trace.to_html(conversation, prices: prices), context)

    assert Browser.texts(browser, ".feed .cache") == [
             "Prompt cache: 0 of 5010 tokens read: the texts after the system prompt are others ($0.0173 more)"
           ]

    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end

  @tag :axe
  @tag skip: Browser.axe() == nil and "axe-core is missing"
  test "has nothing that axe would have otherwise", context do
    failed = Context.Audit.add_failure(talk(), %{kind: :rate_limited, status: 429}, at(102))
    page = Trace.to_html(failed, children: [child()], request: :anthropic)
    browser = open(page, context)
    Browser.eval(browser, File.read!(Browser.axe()) <> "; 0")

    for tab <- ["Iterations", "Tokens", "Branches", "Compare", "Request"] do
      Browser.click(browser, "[role=tab]", tab)

      assert Browser.eval(
               browser,
               "axe.run().then(found => found.violations.map(one => [one.id, one.nodes[0].html]))"
             ) == []
    end

    Browser.close(browser)
  end

  test "opens 1,000 iterations and 20 MB in a second, and lays out only what is seen", context do
    text = String.duplicate("lorem ipsum dolor sit amet, ", 250)

    conversation =
      Enum.reduce(1..1_000, Context.new("begin", at(0)), fn n, context ->
        context
        |> Context.add_assistant_message(
          "#{n} #{text}",
          [%{id: "c#{n}", name: "read", arguments: %{"path" => "#{n}"}}],
          at(n)
        )
        |> Context.add_tool_results([{"c#{n}", {:ok, "#{n} #{text}#{text}"}}], at(n + 1))
      end)

    page = Trace.to_html(conversation)
    assert byte_size(page) > 20_000_000
    assert byte_size(page) <= 1.2 * byte_size(Context.to_snapshot(conversation)) + 300_000
    browser = open(page, context)
    # Something to read is there before all of it has come; the rest is the page's own work.
    [painted, read, ready] =
      Browser.eval(browser, """
      (() => {
        const [page] = performance.getEntriesByType('navigation');
        const [paint] = performance.getEntriesByName('first-contentful-paint');
        return [paint.startTime, page.responseEnd, page.domContentLoadedEventEnd];
      })()
      """)

    # Scrolls to the end in 100 steps: each draws a new picture.
    frames =
      Browser.eval(browser, """
      new Promise(done => {
        const times = []; let step = 0, before = performance.now();
        const next = now => {
          times.push(now - before); before = now;
          if (++step > 100) return done(times.sort((a, b) => a - b));
          window.scrollTo(0, document.documentElement.scrollHeight * step / 100);
          requestAnimationFrame(next);
        };
        requestAnimationFrame(next);
      })
      """)

    IO.puts(
      "\n  20 MB: to be read after #{round(painted)} ms, complete #{round(ready - read)} ms after its last byte came; " <>
        "a frame of scrolling took #{round(Enum.at(frames, 50))} ms, 19 of 20 at most #{round(Enum.at(frames, 95))} ms"
    )

    # A second on a machine that has nothing else to do.
    assert ready - read < 2_000
    assert Enum.at(frames, 50) < 100
    Browser.press(browser, "G")
    assert Browser.text(browser, "#messages") =~ "999 lorem"
    Browser.press(browser, "/")
    Browser.type(browser, "500 lorem")
    Browser.settle(browser)
    assert Browser.text(browser, "[role=status]") =~ "found"
    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end

  test "stands in an iframe of another page", context do
    fragment = Trace.to_html(talk(), fragment: true)
    browser = open("<!doctype html><title>LiveView</title><p>Before</p>#{fragment}", context)
    %{"root" => _} = Browser.call(browser, "DOM.getDocument", %{depth: -1, pierce: true})

    %{"frameTree" => %{"childFrames" => [%{"frame" => %{"id" => frame}}]}} =
      Browser.call(browser, "Page.getFrameTree", %{})

    %{"executionContextId" => world} =
      Browser.call(browser, "Page.createIsolatedWorld", %{frameId: frame})

    %{"result" => %{"value" => text}} =
      Browser.call(browser, "Runtime.evaluate", %{
        contextId: world,
        expression: "document.querySelector('#messages').innerText",
        returnByValue: true
      })

    assert text =~ "What is the weather in Rome?" and text =~ "Approved by ann"
    # It reaches nothing of the page around it.
    assert Browser.eval(browser, "document.querySelector('iframe').getAttribute('sandbox')") ==
             "allow-scripts"

    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end
end
