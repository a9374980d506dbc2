defmodule AshAgent.WebTest do
  use ExUnit.Case, async: true

  import Phoenix.Component
  import Phoenix.LiveViewTest

  alias AshAgent.{Context, Web}
  alias AshAgent.Context.Calls
  alias AshAgent.Web.Transcript

  @moduletag integrations: ["LiveView"]

  @evil ~s(<script>alert("x"\)</script>)

  defp transcript(context, assigns \\ []),
    do: render_component(&Web.transcript/1, [items: Transcript.items(context)] ++ assigns)

  defp asked(name, arguments, opts \\ []) do
    Context.new("Clean up")
    |> Context.add_assistant_message(nil, [%{id: "a", name: name, arguments: arguments}])
    |> Calls.ask_about_tool_call("a", nil, opts)
  end

  defp question(arguments), do: asked("ask_user", arguments, question: true)

  defp evil_form do
    %{
      "properties" => %{
        @evil => %{"title" => @evil, "description" => @evil, "enum" => [@evil]},
        "odd" => %{"title" => 1, "description" => %{}, "enum" => [%{}, nil]},
        "none" => 1
      },
      "required" => @evil
    }
  end

  test "what people, models and tools say is text" do
    context =
      Context.new(@evil)
      |> Context.add_assistant_message(@evil, [
        %{id: "a", name: @evil, arguments: %{"x" => @evil}}
      ])
      |> Context.add_tool_results([%{id: "a", result: {:error, @evil}}])

    pages = [
      transcript(context, answer: @evil, running?: true),
      transcript(question(%{"question" => @evil, "choices" => [@evil]})),
      transcript(question(%{"question" => @evil, "form" => evil_form()})),
      render_component(&Web.conversations/1,
        conversations: [%{id: 1, title: @evil, status: :idle}],
        path: "/chat"
      ),
      render_component(&Web.failure/1, words: @evil),
      render_component(&Web.composer/1, form: to_form(%{"input" => @evil}, as: "say"))
    ]

    for page <- pages do
      assert page =~ "&lt;script&gt;"
      refute page =~ "<script"
    end
  end

  test "a call that waits is open, shows its arguments and has the buttons" do
    page = transcript(asked("delete", %{"path" => "/srv"}))
    assert page =~ ~r/id="agent-call-a-fold"[^>]* aria-expanded="true"/
    for value <- ~w(approve deny), do: assert(page =~ ~s(value="#{value}"))
    refute page =~ ~s(value="edit")
    assert transcript(asked("delete", %{}), edit?: true) =~ ~s(value="edit")

    assert page =~
             ~s(<input type="hidden" name="shown" value="{&quot;path&quot;:&quot;/srv&quot;}">)

    assert page =~ ~s(phx-submit="decide")

    page = asked("delete", %{}) |> Calls.deny_tool_call("a", "no", by: "ann") |> transcript()
    assert page =~ ~r/id="agent-call-a-fold"[^>]* aria-expanded="false"/
    refute page =~ "phx-submit"
    assert page =~ "denied by ann"
  end

  test "a question is asked as such, with its choices" do
    page = transcript(question(%{"question" => "Which one?", "choices" => ["red", 1, "blue"]}))
    assert page =~ "<strong>Which one?</strong>"
    assert page =~ ~s(phx-submit="answer")
    for choice <- ~w(red blue), do: assert(page =~ ~s(name="answer" value="#{choice}"))
    refute page =~ "Approve"
    # Only these answers are taken, and nobody has to answer.
    refute page =~ "Your answer"
    assert page =~ "Do not answer"
    assert transcript(question(%{"question" => "Which one?"})) =~ "Your answer"
    # Other tools may have an argument of this name.
    assert transcript(asked("poll", %{"question" => "Which one?"})) =~ "Approve"
  end

  test "a form has a field for each property, those first that are needed" do
    properties = %{
      "a" => %{"type" => "boolean"},
      "b" => %{"type" => "integer", "title" => "How many"},
      "c" => %{"enum" => ["x", "y"]},
      "d" => %{"type" => "string"}
    }

    form = %{"type" => "object", "properties" => properties, "required" => ["d"]}
    page = transcript(question(%{"question" => "Which one?", "form" => form}))
    names = for [_, name] <- Regex.scan(~r/name="answer\[(\w)\]"/, page), do: name
    assert Enum.dedup(names) == ~w(d a b c)
    assert page =~ ~r/<input [^>]*name="answer\[d\]"[^>]* required/
    assert page =~ ~r/How many\s*<input type="number"/

    for {value, shown} <- [{"true", "Yes"}, {"false", "No"}, {"x", "x"}],
        do: assert(page =~ ~r/<option value="#{value}">\s*#{shown}\s*</)

    refute page =~ "Your answer"
  end

  # A browser presses the first button of the form, which must not approve where somebody writes why not.
  test "Enter in a field does what the button beside it does" do
    for context <- [
          asked("delete", %{}),
          question(%{"question" => "?", "choices" => ["a", "b"]})
        ] do
      forms = Regex.scan(~r/<form.*?<\/form>/s, transcript(context, edit?: true))
      assert length(forms) == 3
      for [form] <- forms, do: assert([_] = Regex.scan(~r/<button/, form))
    end
  end

  test "an answer that is being written is Markdown, and busy" do
    page = transcript(Context.new("Hi"), answer: "**Bold**\n\n```\ncode", running?: true)
    assert page =~ "<strong>Bold</strong>"
    assert page =~ "<code>code</code>"
    assert page =~ ~s(aria-busy="true")
    refute transcript(Context.new("Hi")) =~ "aria-busy"
  end

  test "a failure is an alert, with a button where trying again makes sense" do
    assert render_component(&Web.failure/1, words: nil) == ""
    page = render_component(&Web.failure/1, words: "The model did not answer.")
    assert page =~ ~s(role="alert")
    assert page =~ ~s(phx-click="retry")
    refute render_component(&Web.failure/1, words: "No.", retry?: false) =~ "retry"
  end

  test "the composer sends, steers, stops and says what is wrong" do
    form = to_form(%{"input" => ""}, as: "say", errors: [input: {"write something", []}])
    page = render_component(&Web.composer/1, form: form)
    assert page =~ ~s(name="say[input]")
    assert page =~ "write something"
    assert page =~ "Send"
    refute page =~ "Stop"
    page = render_component(&Web.composer/1, form: form, running?: true)
    assert page =~ "Steer"
    assert page =~ ~s(phx-key="Escape")

    assert render_component(&Web.composer/1, form: form, disabled?: true) =~
             ~r/<textarea[^>]* disabled/
  end

  test "the list names the open conversation, statuses and costs" do
    conversations = [
      %{id: 1, title: "Printer", status: :paused, total_tokens: 12},
      %{id: 2, title: nil, status: :idle, cost: 0.0123},
      %{id: 3, cost: Decimal.new("2.500000000001"), unpriced_answers: 2, total_tokens: 9},
      %{id: 4, cost: Decimal.new("0.000000000001"), unpriced_answers: nil},
      %{id: 5, cost: nil, unpriced_answers: 2, total_tokens: 77},
      %{id: 6, cost: struct(Ash.ForbiddenField, field: :cost), total_tokens: 66}
    ]

    page =
      render_component(&Web.conversations/1,
        conversations: conversations,
        current: 2,
        path: "/chat"
      )

    assert page =~ ~s(href="/chat/1")
    assert page =~ "waits for you · 12 tokens"
    assert page =~ "$0.0123"
    assert page =~ "$2.5000 and more"
    assert page =~ "under $0.0001"
    assert page =~ "77 tokens"
    assert page =~ "66 tokens"
    assert page =~ "New conversation"
    assert page =~ ~r/href="\/chat\/2"[^>]*aria-current="page"/
    assert [_] = Regex.scan(~r/aria-current/, page)
  end

  test "a trace is a page of its own in the page" do
    page = render_component(&Web.trace/1, context: Context.new("Hi"), opts: [title: "Sums"])
    assert page =~ "<iframe"
  end

  test "the styles are there once, with the nonce of a policy" do
    assert render_component(&Web.style/1, nonce: "n") =~ ~r/\A<style nonce="n">\s*\.agent-chat/
  end
end
