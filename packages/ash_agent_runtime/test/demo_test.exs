defmodule AshAgent.DemoTest do
  # In a real browser, one at a time.
  use ExUnit.Case, async: false

  alias AshAgent.TestSupport.Browser

  @moduletag :chromium
  @moduletag integrations: ["Chromium"]
  @moduletag timeout: 180_000
  @moduletag :tmp_dir

  test "a page shows the demo's conversation", %{tmp_dir: folder} do
    arguments = ~w(run --no-compile ../../demo/demo.exs --html demo.html)
    env = [{"DEMO_DIR", folder}, {"MIX_ENV", to_string(Mix.env())}]
    assert {words, 0} = System.cmd("mix", arguments, env: env, stderr_to_stdout: true)
    assert words =~ "demo.html: "
    browser = folder |> Path.join("demo.html") |> Browser.open([])
    assert Browser.text(browser, "#messages") =~ "Kraków"
    Browser.click(browser, "[role=tab]", "Branches")
    assert Browser.texts(browser, ".panel button") == ["main", "rhymes"]
    assert Browser.complaints(browser) == []
    Browser.close(browser)
  end
end
