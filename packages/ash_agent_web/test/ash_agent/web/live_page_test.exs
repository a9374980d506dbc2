defmodule AshAgent.Web.LivePageTest do
  # The live page as people have it: in browsers, two of them at once, on a connection that breaks.
  use ExUnit.Case, async: false

  alias AshAgent.{Context, Conversation}
  alias AshAgent.TestSupport.{Browser, Wait}
  alias AshAgent.Web.Page

  @moduletag :chromium
  @moduletag :axe
  @moduletag :tmp_dir
  @moduletag integrations: ["Ash", "LiveView", "Chromium"]
  unless Code.ensure_loaded?(Bandit), do: @moduletag(skip: "a browser needs Bandit")

  @wait 20_000

  setup_all do
    level = Logger.level()
    Logger.configure(level: :warning)
    on_exit(fn -> Logger.configure(level: level) end)
    for child <- Page.children(true), do: start_supervised!(child)
    {:ok, {_ip, port}} = Page.Endpoint.server_info(:http)
    %{url: "http://localhost:#{port}"}
  end

  setup do
    Application.put_env(:ash_agent_web, :player, self())
    test = self()
    on_exit(fn -> Conversation.await_turns(test) end)
  end

  defp open(folder, url, opts \\ []) do
    empty = Path.join(folder, "empty.html")
    File.write!(empty, "")
    browser = Browser.open(empty, opts)
    Browser.go(browser, url)
    await(browser, "document.querySelector('.phx-connected') != null")
    browser
  end

  defp await(browser, expression) do
    assert Wait.until(fn -> Browser.eval(browser, expression) end, @wait),
           "not #{expression}: #{Browser.eval(browser, "document.body.innerText")}"
  end

  defp shows(browser, text),
    do: await(browser, "document.body.innerText.includes(#{Context.JSON.encode(text)})")

  defp said(browser),
    do:
      Browser.eval(
        browser,
        "[...document.querySelectorAll('.agent-message')].map(one => one.innerText.trim())"
      )

  defp say(browser, text) do
    await(browser, "document.activeElement?.name == 'say[input]'")
    Browser.type(browser, text)
    enter(browser)
  end

  defp enter(browser) do
    key = %{key: "Enter", code: "Enter", windowsVirtualKeyCode: 13, text: "\r"}

    for type <- ~w(keyDown keyUp),
        do: Browser.call(browser, "Input.dispatchKeyEvent", Map.put(key, :type, type))

    Browser.settle(browser)
  end

  defp asked(text) do
    assert_receive {:asked, model, ^text}, @wait
    model
  end

  defp finish(model), do: send(model, {:finish, "stop"})

  test "two people at once, and an answer that a broken connection does not lose", %{
    tmp_dir: folder,
    url: url
  } do
    [ann, bob] = for name <- ~w(ann bob), do: open(folder, "#{url}/chat?as=#{name}")
    # Enter alone says that something has to be written.
    enter(ann)
    shows(ann, "Write something first.")
    for {browser, text} <- [{ann, "I am Ann"}, {bob, "I am Bob"}], do: say(browser, text)
    [for_ann, for_bob] = for text <- ["I am Ann", "I am Bob"], do: asked(text)
    send(for_ann, {:text, "Dear **Ann**"})
    send(for_bob, {:text, "Dear Bob"})
    shows(ann, "Dear Ann")
    shows(bob, "Dear Bob")

    # The connection breaks while somebody writes, and what was written stays.
    Browser.type(ann, "And then")
    Browser.eval(ann, "liveSocket.disconnect(); 1")
    send(for_ann, {:text, ", how "})
    Browser.eval(ann, "liveSocket.connect(); 1")
    shows(ann, "Dear Ann, how")
    assert Browser.eval(ann, "document.querySelector('.agent-message strong').innerText") == "Ann"
    # The browser sends it once the page is there again.
    await(ann, "document.querySelector('textarea').value == 'And then'")
    await(ann, "document.activeElement?.name == 'say[input]'")

    # Nothing of one is on the page of the other.
    for {browser, other} <- [{ann, "Bob"}, {bob, "Ann"}],
        do: refute(Browser.eval(browser, "document.body.innerText") =~ other)

    Browser.go(bob, url <> Browser.eval(ann, "location.pathname"))
    shows(bob, "There is no such conversation.")

    # The page's process dies, too.
    send(for_ann, {:text, "are "})
    shows(ann, "how are")
    assert [_, _ | _] = kill_pages()
    send(for_ann, {:text, "you?"})
    shows(ann, "Dear Ann, how are you?")
    Enum.each([for_ann, for_bob], &finish/1)
    await(ann, "document.querySelector('[aria-busy]') == null")
    enter(ann)
    finish(asked("And then"))
    shows(ann, "And then")
    await(ann, "document.querySelector('[aria-busy]') == null")
    assert ["I am Ann", "Dear Ann, how are you?", "And then" | _] = said(ann)
    for browser <- [ann, bob], do: Browser.close(browser)
  end

  defp kill_pages do
    for pid <- Process.list(),
        {:dictionary, dictionary} <- [Process.info(pid, :dictionary)],
        match?({Page.ChatLive, :mount, _}, dictionary[:"$initial_call"]),
        do: Process.exit(pid, :kill)
  end

  test "a call is decided about with the keyboard, and stays open while the answer comes", %{
    tmp_dir: folder,
    url: url
  } do
    browser = open(folder, "#{url}/edited?as=ann")
    say(browser, "Clean up")
    model = asked("Clean up")
    send(model, {:call, "c1", "look", "{}"})
    send(model, {:finish, "tool_calls"})
    model = asked(inspect("seen"))
    send(model, {:text, "I see"})
    shows(browser, "I see")
    Browser.click(browser, "#agent-call-c1-fold")
    send(model, {:text, " it"})
    shows(browser, "I see it")

    assert Browser.eval(
             browser,
             "document.querySelector('#agent-call-c1 .agent-result').offsetHeight > 0"
           )

    send(model, {:call, "c2", "delete", ~s({"path":"/tmp/x"})})
    send(model, {:finish, "tool_calls"})
    await(browser, "document.querySelector('#agent-approve-c2 button') != null")

    assert Browser.eval(
             browser,
             "document.querySelector('#agent-call-c1 .agent-result').offsetHeight > 0"
           )

    assert Browser.eval(browser, "document.querySelector('#agent-composer textarea').disabled")
    Browser.eval(browser, "document.querySelector('#agent-approve-c2 button').focus(); 1")
    enter(browser)
    assert_receive {:approve, %{call_id: "c2", arguments: %{"path" => "/tmp/x"}}}, @wait
    model = asked(inspect("deleted /tmp/x"))
    send(model, {:text, "Gone"})
    shows(browser, "Gone")
    Browser.eval(browser, "document.querySelector('#agent-composer textarea').focus(); 1")
    say(browser, "Thanks")
    assert_receive {:say, %{input: "Thanks", steer: true}}, @wait
    shows(browser, "Thanks")
    Browser.press(browser, "Escape")
    await(browser, "document.querySelector('[aria-busy]') == null")
    shows(browser, "The answer broke off.")
    Browser.close(browser)
  end

  test "a form is filled in and answered with the keyboard", %{tmp_dir: folder, url: url} do
    browser = open(folder, "#{url}/edited?as=ann")
    say(browser, "Book")
    model = asked("Book")
    send(model, {:call, "c1", "seats", ~s({"question":"For whom?"})})
    send(model, {:finish, "tool_calls"})
    await(browser, "document.querySelector('#agent-question-c1 input') != null")

    # A screen reader hears the question as the name of what it is in.
    name =
      "document.getElementById(document.querySelector('#agent-question-c1').getAttribute('aria-labelledby')).innerText"

    assert Browser.eval(browser, name) == "For whom?"

    Browser.eval(
      browser,
      "document.querySelector('#agent-question-c1 [name=\"answer[name]\"]').focus(); 1"
    )

    Browser.type(browser, "Ann")
    # A field that is needed is empty, so nothing is sent.
    enter(browser)
    Browser.press(browser, "Tab")
    Browser.type(browser, "2")
    refute_received {:answer, _}
    enter(browser)
    assert_receive {:answer, %{call_id: "c1", form: form}}, @wait
    assert form == %{"name" => "Ann", "seats" => "2"}
    assert_receive {:asked, model, _result}, @wait
    send(model, {:text, "Booked"})
    finish(model)
    shows(browser, "Booked")
    Browser.close(browser)
  end

  test "axe finds nothing, by day, at night and on a phone", %{tmp_dir: folder, url: url} do
    chat =
      Page.EditedChat.start!(%{title: "Printer", input: "Clean up", wait: false},
        actor: %{id: "eve", name: "eve"},
        tenant: "acme"
      )

    model = asked("Clean up")
    send(model, {:text, "Shall **I**?"})
    send(model, {:call, "c1", "delete", ~s({"path":"/tmp/x"})})
    send(model, {:call, "c2", "ask_person", ~s({"question":"Which?","choices":["red"]})})
    send(model, {:call, "c3", "ask_person", ~s({"question":"Why?"})})
    send(model, {:call, "c4", "seats", ~s({"question":"For whom?"})})
    send(model, {:finish, "tool_calls"})

    for size <- [{1100, 900}, {390, 800}],
        theme <- ~w(light dark),
        path <- ["", "/#{chat.id}", "/#{Ash.UUID.generate()}"] do
      browser = open(folder, "#{url}/edited#{path}?as=eve", size: size)
      Browser.eval(browser, "document.documentElement.dataset.theme = '#{theme}'")
      Browser.eval(browser, File.read!(Browser.axe()) <> "; 1")

      violations =
        Browser.eval(
          browser,
          "axe.run().then(({ violations }) => violations.map(one => one.id + ' ' + one.nodes[0].html))"
        )

      assert {size, theme, path, violations} == {size, theme, path, []}
      assert Browser.eval(browser, "document.documentElement.scrollWidth <= innerWidth")
      Browser.close(browser)
    end
  end
end
