defmodule AshAgent.Door.PageTest do
  # The page of bin/demo --serve in a browser.
  use ExUnit.Case, async: false

  alias AshAgent.Door.{Play, Server}
  alias AshAgent.TestSupport.{Browser, Wait}

  @moduletag :chromium
  @moduletag :tmp_dir
  @moduletag :capture_log
  @moduletag timeout: 120_000
  @moduletag integrations: ["Chromium"]

  @page Path.expand("../../../../demo/page", __DIR__)

  setup %{tmp_dir: folder} = context do
    name = Play.name(context)
    {:ok, _} = Play.sessions(name)
    read = &File.read!(Path.join(@page, &1))

    files = %{
      "/" => {"text/html; charset=utf-8", read.("index.html")},
      "/chat.js" => {"text/javascript; charset=utf-8", read.("chat.js")}
    }

    identify = fn %{asks: id} ->
      {:ok, %{conversation: id, runtime_context: %{name: "ada"}, by: "ada"}}
    end

    door = &Play.door(name, &1, identify: identify, ai: 7, cookies: true)
    port = Server.port(start_supervised!({Server, door: door, files: files}))
    file = Path.join(folder, "empty.html")
    File.write!(file, "")
    browser = Browser.open(file)
    on_exit(fn -> File.rm_rf(folder) end)
    %{browser: browser, url: "http://127.0.0.1:#{port}/"}
  end

  # The hash alone would not load it.
  defp go(browser, url, id) do
    Browser.go(browser, "about:blank")
    Browser.go(browser, "#{url}##{id}")

    assert Wait.until(
             fn -> Browser.eval(browser, "!!document.querySelector('input')") end,
             20_000
           )
  end

  defp say(browser, text) do
    Browser.click(browser, "input")
    Browser.type(browser, text)
    Browser.click(browser, "button", "Say")
  end

  defp shows(browser, text) do
    shown = fn -> Browser.text(browser, "main") end
    assert Wait.until(fn -> shown.() =~ text end, 20_000), "no #{text} in #{shown.()}"
    shown.()
  end

  defp answers(text, word), do: length(String.split(text, word)) - 1

  test "says, asks, decides, and goes on after it was loaded again", %{browser: browser, url: url} do
    go(browser, url, "c1")
    say(browser, "ask")
    assert shows(browser, "May it call clean_up") =~ "May I?"
    go(browser, url, "c1")
    shows(browser, "May it call clean_up")
    Browser.click(browser, ".asks button", "Yes")
    shown = shows(browser, "So be it.")
    assert answers(shown, "May I?") == 1
    assert shown =~ "clean_up: output-available"

    say(browser, "question")
    shows(browser, "Which seat?")
    Browser.click(browser, ".asks button", "aisle")
    shows(browser, "Booked.")
    refute Browser.text(browser, "main") =~ "Which seat?"
  end

  test "shows an answer whole that it was loaded again in, and stops one", %{
    browser: browser,
    url: url
  } do
    go(browser, url, "c2")
    say(browser, "slow")
    shows(browser, "word3 ")
    go(browser, url, "c2")
    shown = shows(browser, "word40")

    for n <- 1..40,
        do: assert(answers(shown, "word#{n} ") + answers(shown, "word#{n}\n") == 1, "word#{n}")

    go(browser, url, "c3")
    say(browser, "slow")
    shows(browser, "word3 ")
    Browser.click(browser, "button", "Stop")
    assert Wait.until(fn -> Browser.texts(browser, "form button") == ["Say"] end, 20_000)
    refute Browser.text(browser, "main") =~ "word40"
  end

  test "the bundle is small, and its licences are with it" do
    assert File.stat!(Path.join(@page, "chat.js")).size <= 300_000
    licences = File.read!(Path.join(@page, "LICENSES"))
    for name <- ["ai ", "@ai-sdk/react ", "preact ", "zod "], do: assert(licences =~ name)
  end
end
