defmodule AshAgent.WebPageTest do
  # Everything that a page can show, in a browser: for those who see little, at night and on a phone.
  use ExUnit.Case, async: true

  use Phoenix.Component

  alias AshAgent.{Context, Web}
  alias AshAgent.Context.Calls
  alias AshAgent.TestSupport.Browser
  alias AshAgent.Web.Transcript

  @moduletag :chromium
  @moduletag :axe
  @moduletag :tmp_dir
  @moduletag integrations: ["LiveView", "Chromium"]

  @markdown """
  ## Found

  - printer
    - paper
  - [x] toner

  > It is **open**.

  | id | status |
  |----|--------|
  | 7  | `open` |

  ```elixir
  Ticket.close(7)
  ```

  See https://example.com.
  """

  test "axe finds nothing, and a phone shows it all", %{tmp_dir: folder} do
    file = Path.join(folder, "page.html")

    File.write!(
      file,
      "<!doctype html>" <> Phoenix.LiveViewTest.rendered_to_string(page(assigns()))
    )

    for size <- [{1100, 900}, {390, 800}], theme <- ~w(light dark) do
      browser = Browser.open(file, size: size)
      Browser.eval(browser, "document.documentElement.dataset.theme = '#{theme}'")
      Browser.eval(browser, File.read!(Browser.axe()) <> "; 1")

      violations =
        Browser.eval(
          browser,
          "axe.run().then(({ violations }) => violations.map(one => one.id + ' ' + one.nodes[0].html))"
        )

      assert {theme, violations} == {theme, []}
      assert Browser.eval(browser, "document.documentElement.scrollWidth <= innerWidth")
      # What was said last is in sight.
      assert Browser.eval(
               browser,
               "document.querySelector('.agent-working').getBoundingClientRect().bottom < innerHeight"
             )

      Browser.close(browser)
    end
  end

  defp assigns do
    %{
      __changed__: nil,
      conversations: [
        %{id: 1, title: "Printer", status: :paused, total_tokens: 12},
        %{id: 2, title: nil, status: :idle}
      ],
      items: Transcript.items(context()),
      form: to_form(%{"input" => ""}, as: "say", errors: [input: {"write something", []}])
    }
  end

  defp context do
    log = %{
      type: :file,
      media_type: "application/pdf",
      data: Base.encode64("x"),
      filename: "log.pdf"
    }

    waiting = [
      %{id: "b", name: "ticket_close", arguments: %{"id" => 7}},
      %{
        id: "c",
        name: "ask_person",
        arguments: %{"question" => "Which one?", "choices" => ["A", "B"]}
      }
    ]

    [%{type: :text, text: "Please close ticket 7."}, log]
    |> Context.new()
    |> Context.add_assistant_message("I look first.", [
      %{id: "a", name: "ticket_read", arguments: %{"id" => 7}}
    ])
    |> Context.add_tool_results([%{id: "a", result: {:error, "not there"}}])
    |> Context.add_assistant_message(@markdown)
    |> Context.add_user_message("Go on")
    |> Context.add_assistant_message(nil, waiting)
    |> Calls.ask_about_tool_call("b")
    |> Calls.ask_about_tool_call("c", nil, question: true)
  end

  defp page(assigns) do
    ~H"""
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width" />
        <title>Chat</title>
      </head>
      <body style="margin: 0">
        <Web.style />
        <Web.chat>
          <:list><Web.conversations conversations={@conversations} current={1} path="/chat" /></:list>
          <header class="agent-head"><h1>Printer</h1></header>
          <Web.transcript items={@items} answer="I am **at" running?={true} edit?={true} earlier?={true} />
          <Web.failure words="The model is overloaded." />
          <Web.composer form={@form} running?={true} />
        </Web.chat>
      </body>
    </html>
    """
  end
end
