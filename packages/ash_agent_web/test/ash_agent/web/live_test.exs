defmodule AshAgent.Web.LiveTest do
  use ExUnit.Case, async: false

  import ExUnit.CaptureLog
  import Phoenix.ConnTest
  import Phoenix.LiveViewTest

  alias AshAgent.{Context, Conversation, LLM, Store}
  alias AshAgent.TestSupport.Wait
  alias AshAgent.Web.Page

  @moduletag integrations: ["Ash", "LiveView"]

  # LiveView 1.1 reads HTML with LazyHTML alone, and has this module since then.
  reader = if Code.ensure_loaded?(Phoenix.LiveViewTest.TreeDOM), do: LazyHTML, else: Floki

  unless Code.ensure_loaded?(reader),
    do: @moduletag(skip: "tests of this LiveView need #{inspect(reader)}")

  @endpoint Page.Endpoint
  @wait 20_000

  setup_all do
    level = Logger.level()
    Logger.configure(level: :warning)
    on_exit(fn -> Logger.configure(level: level) end)
    for child <- Page.children(false), do: start_supervised!(child)
    :ok
  end

  setup do
    Application.put_env(:ash_agent_web, :player, self())
    test = self()
    on_exit(fn -> Conversation.await_turns(test) end)
  end

  defp conn(name, org \\ "acme", more \\ %{}),
    do:
      Plug.Test.init_test_session(build_conn(), Map.merge(%{"name" => name, "org" => org}, more))

  defp actor(name), do: %{id: name, name: name, role: :agent}
  defp rights(name, org \\ "acme"), do: [actor: actor(name), tenant: org]

  defp create(name, resource \\ Page.Chat, input \\ %{}), do: resource.start!(input, rights(name))

  defp open(chat, name, path \\ "/chat") do
    {:ok, view, _html} = live(conn(name), "#{path}/#{chat.id}", on_error: :raise)
    view
  end

  defp say(view, text),
    do: view |> form("#agent-composer", say: %{input: text}) |> render_submit()

  defp asked(text) do
    assert_receive {:asked, model, ^text}, @wait
    model
  end

  defp answer(model, texts) do
    for text <- texts, do: send(model, {:text, text})
    send(model, {:finish, "stop"})
  end

  defp shows(view, text) do
    html =
      Wait.until(
        fn ->
          html = render(view)
          if(html =~ text, do: html)
        end,
        @wait
      )

    assert html, "no #{text} in #{render(view)}"
    html
  end

  defp hides(view, text),
    do: assert(Wait.until(fn -> not (render(view) =~ text) end, @wait), render(view))

  defp texts(chat, name \\ "ann") do
    chat = Ash.load!(chat, :context, rights(name))

    for %{role: role, content: text} when role != :system and is_binary(text) <-
          Context.to_messages(chat.context),
        do: text
  end

  defp answered(view), do: hides(view, "aria-busy")

  defp call(model, name, arguments, id \\ "c1") do
    send(model, {:call, id, name, Context.JSON.encode(arguments)})
    send(model, {:finish, "tool_calls"})
  end

  # A conversation in which a call waits for ann.
  defp paused(name, arguments, resource \\ Page.Chat) do
    chat = create("ann", resource, %{input: "Go", wait: false})
    asked("Go") |> call(name, arguments)

    assert Wait.until(
             fn -> Ash.load!(chat, :status, rights("ann")).status == :paused end,
             @wait
           )

    chat
  end

  test "the first message begins a conversation, and its answer comes piece by piece as Markdown" do
    {:ok, view, html} = live(conn("zoe"), "/chat")
    assert html =~ "Nothing here yet."
    say(view, "Hi")
    path = assert_patch(view)
    model = asked("Hi")
    send(model, {:text, "I am **bo"})
    assert shows(view, "I am **bo") =~ "aria-busy"
    send(model, {:text, "ld** <script>"})
    assert shows(view, "<strong>bold</strong> &lt;script&gt;") =~ "Stop"
    send(model, {:finish, "stop"})
    answered(view)
    html = render(view)
    assert html =~ "<strong>bold</strong>"
    assert html =~ ~s(href="#{path}")
    refute html =~ "secret of this house"
    # The field is empty.
    assert html =~ ~r/<textarea[^>]*>\s*<\/textarea>/
  end

  test "an empty message says what to do, and says nothing" do
    view = "ann" |> create() |> open("ann")
    for text <- ["", "  \n "], do: assert(say(view, text) =~ "Write something first.")
    refute_received {:asked, _, _}
  end

  test "a second click, and the form of a page that is connected again, say it once" do
    chat = create("ann")
    view = open(chat, "ann")
    [key] = view |> render() |> keys()
    say(view, "Hi")
    render_submit(view, "say", %{"say" => %{"input" => "Hi", "key" => key}})
    asked("Hi") |> answer(["Hello"])
    answered(view)
    # The draft and its key come back from the browser.
    view = open(chat, "ann")
    render_change(view, "validate", %{"say" => %{"input" => "Hi", "key" => key}})
    assert keys(render(view)) == [key]
    render_submit(view, "say", %{"say" => %{"input" => "Hi", "key" => key}})
    answered(view)
    refute_received {:asked, _, _}
    assert texts(chat) == ["Hi", "Hello"]
    refute keys(render(view)) == [key]
  end

  test "the form that begins a conversation, sent by a page that is connected again, begins one" do
    {:ok, view, html} = live(conn("tim"), "/chat")
    say(view, "Hi")
    path = assert_patch(view)
    asked("Hi") |> answer(["Hello"])
    answered(view)
    {:ok, view, _html} = live(conn("tim"), "/chat")
    [key] = keys(html)
    # The page's process was another one.
    render_change(view, "validate", %{"say" => %{"input" => "Hi", "key" => key}})
    render_submit(view, "say", %{"say" => %{"input" => "Hi", "key" => key}})
    assert assert_patch(view) == path
    answered(view)
    refute_received {:asked, _, _}
    assert [_] = Ash.read!(Page.Chat, rights("tim"))
  end

  defp keys(html),
    do: ~r/name="say\[key\]" value="([^"]*)"/ |> Regex.scan(html, capture: :all_but_first) |> hd()

  test "a page that opens in the middle of an answer shows what has come, and goes on" do
    chat = create("ann")
    view = open(chat, "ann")
    say(view, "Hi")
    model = asked("Hi")
    send(model, {:text, "One "})
    shows(view, "One")
    # Its process ends, as where a socket drops.
    Process.flag(:trap_exit, true)
    Process.exit(view.pid, :kill)
    send(model, {:text, "two "})
    other = open(chat, "ann")
    assert shows(other, "One two") =~ "aria-busy"
    answer(model, ["three"])
    shows(other, "One two three")
    answered(other)
    assert texts(chat) == ["Hi", "One two three"]
  end

  test "pages of the same person are of one mind" do
    chat = create("ann")
    [one, two] = for _ <- 1..2, do: open(chat, "ann")
    {:ok, elsewhere, _html} = live(conn("ann"), "/chat")
    say(one, "Hi")
    model = asked("Hi")
    shows(two, "Hi")
    send(model, {:text, "Hel"})
    shows(elsewhere, ">working")
    for view <- [one, two], do: shows(view, "Hel")
    answer(model, ["lo"])
    for view <- [one, two], do: answered(view)
    hides(elsewhere, ">working")
  end

  test "nobody sees a conversation of somebody else, by its id, in the list or by its topic" do
    chat = create("ann", Page.Chat, %{title: "Salaries"})
    view = open(chat, "ann")

    strangers = [
      open(chat, "bob"),
      chat |> Map.put(:id, Ash.UUID.generate()) |> open("bob"),
      %{id: "no uuid"} |> open("bob")
    ]

    {:ok, elsewhere, _html} = live(conn("ann", "other"), "/chat/#{chat.id}")
    say(view, "Confidential")
    model = asked("Confidential")
    send(model, {:text, "Forty "})
    shows(view, "Forty")

    for stranger <- [elsewhere | strangers] do
      # As if the application had let it listen.
      for payload <- [%{events: [{:text, 0, "leaked"}]}, %{said: "1"}, %{ended: :answered}],
          do: send(stranger.pid, %{topic: "conversation:#{chat.id}", payload: payload})

      html = render(stranger)
      assert html =~ "There is no such conversation."
      for text <- ~w(Confidential Forty Salaries leaked), do: refute(html =~ text)
      refute html =~ "Try again"

      # What a browser sends changes nothing.
      for {event, params} <- [
            {"stop", %{}},
            {"retry", %{}},
            {"decide", %{"call" => "c1", "decision" => "approve", "shown" => "{}"}}
          ],
          do: assert(capture_log(fn -> render_click(stranger, event, params) end) == "")
    end

    answer(model, ["two"])
    answered(view)
    assert texts(chat) == ["Confidential", "Forty two"]
  end

  test "whoever may not see it any more sees it no more" do
    chat = create("ann")
    view = open(chat, "ann")
    say(view, "Hi")
    asked("Hi") |> answer(["Hello"])
    shows(view, "Hello")
    Ash.destroy!(chat, rights("ann"))
    send(view.pid, %{topic: "conversation:#{chat.id}", payload: %{ended: :answered}})
    refute shows(view, "There is no such conversation.") =~ "Hello"
  end

  test "a call waits with its arguments, and runs with those that were shown" do
    chat = paused("delete", %{"path" => "/tmp/x"})
    view = open(chat, "ann")
    html = render(view)
    assert html =~ "waits for you"
    assert html =~ "{&quot;path&quot;:&quot;/tmp/x&quot;}"
    # The composer waits, too.
    assert html =~ ~r/<textarea[^>]* disabled/

    for {shown, words} <- [
          {~s({"path":"/etc"}), "arguments"},
          {"[", "did not work"},
          {"7", "did not work"}
        ] do
      params = %{"call" => "c1", "decision" => "approve", "shown" => shown}
      assert render_submit(view, "decide", params) =~ words
    end

    view |> element("#agent-approve-c1") |> render_submit()
    asked(inspect("deleted /tmp/x")) |> answer(["Gone."])
    shows(view, "Gone.")
    answered(view)
    refute render(view) =~ "agent-approve"
  end

  defp ask_anew(chat) do
    {:ok, stored} = Store.fetch(Page.store(), Conversation.Info.key(chat))
    noted = AshAgent.Runtime.Repeat.note_anew(stored.value, "c1", 1)
    {:ok, _} = Store.append(Page.store(), stored, noted, status: :paused)
  end

  test "a call that was asked about anew is not approved by a page that shows the attempt before" do
    chat = paused("delete", %{"path" => "/tmp/x"})
    [before, view] = [open(chat, "ann"), open(chat, "ann")]
    ask_anew(chat)
    assert before |> element("#agent-approve-c1") |> render_submit() =~ "not about its attempt 2"
    refute_received {:asked, _, _}
    assert render(before) =~ ~s(name="attempt" value="2")
    assert view |> element("#agent-deny-c1") |> render_submit() =~ "not about its attempt 2"
    before |> element("#agent-approve-c1") |> render_submit()
    asked(inspect("deleted /tmp/x")) |> answer(["Gone."])
    shows(before, "Gone.")
  end

  test "a call is denied with a reason, and of two calls both are decided about" do
    chat = create("ann")
    view = open(chat, "ann")
    say(view, "Go")
    model = asked("Go")
    send(model, {:call, "c1", "delete", ~s({"path":"a"})})
    call(model, "delete", %{"path" => "b"}, "c2")
    shows(view, "agent-deny-c2")
    view |> form("#agent-deny-c1", %{reason: "I need it"}) |> render_submit()
    hides(view, "agent-deny-c1")
    assert render(view) =~ "agent-deny-c2"
    refute_received {:asked, _, _}
    view |> element("#agent-deny-c2") |> render_submit()
    assert_receive {:asked, model, result}, @wait
    answer(model, ["I left it."])
    html = shows(view, "I left it.")
    assert html =~ "I need it"
    assert html =~ "denied by ann"
    assert result =~ ~r/denied/i
  end

  test "who may not decide is told so in words, and so is who may not say anything" do
    chat = paused("delete", %{"path" => "/tmp/x"})
    {:ok, view, _html} = live(conn("ann", "acme", %{"reader" => true}), "/chat/#{chat.id}")
    html = view |> element("#agent-approve-c1") |> render_submit()
    assert html =~ "You may not do this."
    refute html =~ "Try again"
    assert html =~ "agent-approve-c1"
    refute_received {:asked, _, _}

    {:ok, view, _html} =
      live(conn("ann", "acme", %{"reader" => true}), "/chat/#{create("ann").id}")

    html = say(view, "Hi")
    assert html =~ "You may not do this."
    # Nothing that was written is lost.
    assert html =~ ~r/<textarea[^>]*>\s*Hi<\/textarea>/
  end

  test "arguments are changed" do
    chat = paused("delete", %{"path" => "/"}, Page.EditedChat)
    view = open(chat, "ann", "/edited")

    assert view |> form("#agent-edit-c1", %{arguments: "[1]"}) |> render_submit() =~
             "The arguments are not a JSON object."

    # The call waits on, with what was shown.
    assert render(view) =~ ~s({&quot;path&quot;:&quot;/&quot;})
    view |> form("#agent-edit-c1", %{arguments: ~s({"path": "/tmp"})}) |> render_submit()
    assert_receive {:approve, %{call_id: "c1", arguments: %{"path" => "/"}, edited: edited}}
    assert edited == %{"path" => "/tmp"}
    assert_receive {:asked, model, result}, @wait
    assert result =~ "deleted /tmp"
    answer(model, ["Done."])
    answered(view)
    html = render(view)
    assert html =~ ~s({&quot;path&quot;:&quot;/tmp&quot;})
    refute html =~ ~s({&quot;path&quot;:&quot;/&quot;})
  end

  @question "#agent-question-c1 form:first-of-type"

  test "a question is answered with a choice, a text or a form, and its answer goes to the model" do
    for {resource, path} <- [{Page.Chat, "/chat"}, {Page.PlainChat, "/plain"}],
        {tool, more, wrong, right, result} <- [
          {"ask_person", %{"choices" => ["red", " blue"]}, nil, %{}, "red"},
          {"ask_person", %{}, {%{answer: " "}, "Write an answer first."}, %{answer: "Red"},
           "Red"},
          {"seats", %{}, {%{answer: %{name: "Ann", seats: "two"}}, "/seats: expected an integer"},
           %{answer: %{name: "Ann", seats: "2", class: "first", window: "true"}}, ~s(seats)}
        ] do
      chat = paused(tool, Map.put(more, "question", "Which?"), resource)
      view = open(chat, "ann", path)
      assert render(view) =~ "<strong>Which?</strong>"

      with {input, words} <- wrong,
           do: assert(view |> form(@question, input) |> render_submit() =~ words)

      assert render(view) =~ "agent-question-c1"
      view |> form(@question, right) |> render_submit()
      assert_receive {:asked, model, told}, @wait
      assert told =~ result
      answer(model, ["Thanks."])
      shows(view, "Thanks.")
      answered(view)
      refute render(view) =~ "agent-question-c1"

      decision =
        Context.Calls.tool_call_decision(Ash.load!(chat, :context, rights("ann")).context, "c1")

      assert %{decision: :answered, by: "ann"} = decision
    end
  end

  test "what a browser sends instead of an answer changes nothing" do
    chat = paused("ask_person", %{"question" => "Which?", "choices" => ["red"]})
    view = open(chat, "ann")
    shown = ~s({"question":"Which?","choices":["red"]})

    for {more, words} <- [
          {%{"answer" => "blue"}, "one of the choices"},
          {%{"answer" => %{"a" => "red"}}, "one of the choices"},
          {%{"answer" => ["red"]}, "Write an answer first."},
          {%{"answer" => "red", "shown" => ~s({"question":"Whom?"})}, "arguments"},
          {%{"answer" => "red", "shown" => "["}, "did not work"},
          {%{"answer" => "red", "call" => "c9"}, "c9"}
        ] do
      params = Map.merge(%{"call" => "c1", "shown" => shown}, more)
      assert render_submit(view, "answer", params) =~ words
    end

    approve = %{"call" => "c1", "decision" => "approve", "shown" => shown}
    assert render_submit(view, "decide", approve) =~ "is a question"

    {:ok, reader, _html} = live(conn("ann", "acme", %{"reader" => true}), "/chat/#{chat.id}")
    assert reader |> form(@question) |> render_submit() =~ "You may not do this."
    refute_received {:asked, _, _}

    # Of two who answer, the first is heard.
    other = open(chat, "ann")
    view |> form(@question) |> render_submit()
    assert_receive {:asked, model, _told}, @wait

    assert render_submit(other, "answer", %{"call" => "c1", "shown" => shown, "answer" => "red"}) =~
             ~r/c1|running/

    answer(model, ["Red."])
    shows(view, "Red.")
  end

  test "nobody has to answer, and no other call is answered" do
    chat = paused("ask_person", %{"question" => "Which?"})
    view = open(chat, "ann")
    view |> element("#agent-deny-c1") |> render_submit()
    assert_receive {:asked, model, told}, @wait
    assert told =~ "denied"
    answer(model, ["Then not."])
    answered(view)

    chat = paused("delete", %{"path" => "/"})
    view = open(chat, "ann")
    params = %{"call" => "c1", "shown" => ~s({"path":"/"}), "answer" => "deleted /"}
    assert render_submit(view, "answer", params) =~ "is no question"
    assert render(view) =~ "agent-approve-c1"
    refute_received {:asked, _, _}
  end

  test "without these arguments of the actions, nothing is changed" do
    chat = paused("delete", %{"path" => "/"}, Page.PlainChat)
    view = open(chat, "ann", "/plain")
    refute render(view) =~ "agent-edit-c1"

    for {event, more} <- [
          {"decide", %{"decision" => "edit", "arguments" => "{}"}},
          {"answer", %{"answer" => "red"}}
        ] do
      render_submit(view, event, Map.merge(more, %{"call" => "c1", "shown" => ~s({"path":"/"})}))
      assert render(view) =~ "agent-approve-c1"
    end

    refute_received {:asked, _, _}
  end

  test "a message while the agent works is shown at once and said" do
    for {resource, path, button} <- [
          {Page.PlainChat, "/plain", "Send"},
          {Page.EditedChat, "/edited", "Steer"}
        ] do
      chat = create("ann", resource)
      view = open(chat, "ann", path)
      say(view, "One")
      model = asked("One")
      send(model, {:text, "I be"})
      assert shows(view, "I be") =~ ~r/#{button}\s*<\/button>/
      html = say(view, "Two")
      assert html =~ ~r/agent-said[^>]*>Two</
      # What has come of the answer stays.
      assert html =~ "I be"
      if resource == Page.EditedChat, do: assert_receive({:say, %{input: "Two", steer: true}})
      answer(model, ["gin"])
      model = asked("Two")
      send(model, {:text, "Sec"})
      assert [_] = Regex.scan(~r/agent-said[^>]*>Two</, shows(view, "Sec"))
      answer(model, ["ond"])
      shows(view, "Second")
      answered(view)
      assert [_] = Regex.scan(~r/agent-said[^>]*>Two</, render(view))
      assert texts(chat) == ["One", "I begin", "Two", "Second"]
    end
  end

  test "the agent reads a message that steers with the next result" do
    chat = create("ann", Page.EditedChat)
    view = open(chat, "ann", "/edited")
    say(view, "One")
    model = asked("One")
    send(model, {:text, "I look"})
    shows(view, "I look")
    say(view, "Two")
    call(model, "look", %{})
    model = asked("Two")
    send(model, {:text, "Both"})
    assert [_] = Regex.scan(~r/agent-said[^>]*>Two</, shows(view, "Both"))
    answer(model, ["."])
    answered(view)
    assert [_] = Regex.scan(~r/agent-said[^>]*>Two</, render(view))
    assert texts(chat) == ["One", "I look", "Two", "Both."]
    refute_received {:asked, _, _}
  end

  test "the turn can be stopped" do
    chat = create("ann")
    view = open(chat, "ann")
    say(view, "Hi")
    model = asked("Hi")
    send(model, {:text, "Half"})
    shows(view, "Half")
    view |> element("#agent-stop") |> render_click()
    answered(view)
    html = shows(view, "The answer broke off.")
    assert html =~ "Half"
    refute html =~ "Try again"
    refute Process.alive?(model)
  end

  test "a failure is told in words without the provider's, and trying again goes on" do
    for {kind, words} <- [
          overloaded: "The model is overloaded.",
          nil: "The model did not answer."
        ] do
      chat = create("ann")
      view = open(chat, "ann")
      say(view, "Hi")

      error = %LLM.Error{
        reason: {:provider, "sk-1"},
        kind: kind,
        retryable?: false,
        provider_message: "key sk-1 of bob"
      }

      capture_log(fn ->
        asked("Hi") |> send({:fail, error})
        shows(view, "Try again")
      end)

      html = render(view)
      assert html =~ words
      refute html =~ "sk-1"
      # It is there when the page is opened later.
      view = open(chat, "ann")
      assert render(view) =~ words
      view |> element("#agent-failure button") |> render_click()
      asked("Hi") |> answer(["Hello"])
      answered(view)
      refute render(view) =~ "Try again"
      assert texts(chat) == ["Hi", "Hello"]
    end
  end

  test "files are sent with the message, and only those that can be" do
    chat = create("ann", Page.EditedChat)
    view = open(chat, "ann", "/edited")
    text = %{name: "log.txt", content: "a line", type: "text/plain"}
    view |> file_input("#agent-composer", :files, [text]) |> render_upload("log.txt")
    assert render(view) =~ "log.txt"
    say(view, "Read")
    assert_receive {:say, %{parts: [file, %{type: :text, text: "Read"}]}}

    assert file == %{
             type: :file,
             media_type: "text/plain",
             data: Base.encode64("a line"),
             filename: "log.txt"
           }

    assert_receive {:asked, model, _text}, @wait
    answer(model, ["I did."])
    answered(view)
    assert [_] = Regex.scan(~r/log\.txt/, render(view))

    evil = %{name: "evil.exe", content: "MZ", type: "application/x-dosexec"}
    view |> file_input("#agent-composer", :files, [evil]) |> render_upload("evil.exe")
    assert say(view, "Run") =~ "Remove the files that cannot be sent."
    refute_received {:say, _arguments}
  end

  test "the list has titles, statuses and what its options load, and a new one begins with a message" do
    chat = create("ann", Page.Chat, %{title: "Printer"})
    create("bob", Page.Chat, %{title: "Hidden"})
    {:ok, view, html} = live(conn("ann"), "/chat/#{chat.id}")
    assert html =~ "Printer"
    refute html =~ "Hidden"
    before = length(Ash.read!(Page.Chat, rights("ann")))
    view |> element(".agent-new") |> render_click()
    assert_patch(view, "/chat?view=new")
    # A phone shows the field and not the list.
    assert render(view) =~ ~s(data-open="true")
    assert length(Ash.read!(Page.Chat, rights("ann"))) == before
  end

  test "a title that is written later is on the page, in the list and on its tab" do
    chat = create("ann")
    view = open(chat, "ann")
    assert page_title(view) == "New conversation"
    Ash.Seed.update!(chat, %{title: "Printer"})
    send(view.pid, %{topic: "conversation:#{chat.id}", payload: %{titled: "Printer"}})
    assert [_, _ | _] = Regex.scan(~r/Printer/, render(view))
    assert page_title(view) == "Printer"
  end

  test "the trace is a page where the option says so" do
    chat = create("ann", Page.EditedChat)
    view = open(chat, "ann", "/edited")
    view |> element("a", "Trace") |> render_click()
    assert render(view) =~ "<iframe"
    view = open(create("ann"), "ann")
    refute render(view) =~ "Trace"
    {:ok, view, _html} = live(conn("ann"), "/chat/#{create("ann").id}?view=trace")
    refute render(view) =~ "<iframe"
  end

  test "an event that fails, and what nobody sends, leave the page and no log of it" do
    view = "ann" |> create() |> open("ann")

    log =
      capture_log(fn ->
        for {event, params} <- [
              {"say", %{"say" => "secret"}},
              {"say", %{"say" => %{"input" => %{"secret" => 1}}}},
              {"say", %{"say" => %{"input" => "a", "key" => %{"secret" => 1}}}},
              {"decide", %{"decision" => "secret"}},
              {"decide", %{"decision" => "deny", "call" => %{}, "shown" => %{"secret" => 1}}},
              {"answer", %{"call" => "c", "shown" => "secret", "answer" => "secret"}},
              {"cancel_upload", %{"ref" => "secret"}},
              {"validate", %{"say" => %{"input" => "secret", "key" => "secret"}}},
              {"nothing", %{}}
            ],
            do: render_click(view, event, params)

        send(view.pid, {:secret, make_ref()})
        assert render(view) =~ "agent-composer"
      end)

    refute log =~ "secret"
    refute log =~ "sesame"
    refute inspect(:sys.get_state(view.pid)) =~ "sesame"
    refute_received {:asked, _, _}
  end
end
