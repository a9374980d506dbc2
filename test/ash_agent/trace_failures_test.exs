defmodule AshAgent.TraceFailuresTest do
  # Whoever looks at a conversation sees what went wrong in it, wherever they look.
  use ExUnit.Case, async: true

  import ExUnit.CaptureIO
  import AshAgent.TestSupport.OtlpReader

  alias AshAgent.{Context, Trace}

  @kinds [
    :rate_limited,
    :quota,
    :overloaded,
    :server_error,
    :context_overflow,
    :unauthorized,
    :invalid_request,
    :refused,
    :timeout,
    :closed,
    :unreachable,
    :invalid_response
  ]

  @at ~U[2026-01-01 10:00:00.000000Z]
  defp at(seconds), do: DateTime.add(@at, seconds)

  defp failure(kind),
    do: %{
      kind: kind,
      provider: :openai_chat,
      model: "gpt-5",
      status: 429,
      code: "some_code",
      request_id: "req_1",
      attempt: 2,
      requested_at: at(1),
      message: "words of the server"
    }

  defp failed(kind),
    do: Context.new("Hi", at: @at) |> Context.Audit.add_failure(failure(kind), at: at(2))

  defp print(context, opts \\ []),
    do: capture_io(fn -> Context.print(context, [width: :infinity] ++ opts) end)

  test "every kind is printed, on the page, and a span" do
    for kind <- @kinds, context = failed(kind) do
      words = kind |> to_string() |> String.replace("_", " ")

      line =
        "#{words} (status 429, some_code), by gpt-5, try 2, request req_1: words of the server"

      assert print(context) =~ line
      assert Trace.to_html(context) =~ line

      [turn, chat] = context |> Trace.to_otlp() |> spans()
      assert turn.name =~ "invoke_agent"
      assert chat.name == "chat gpt-5"

      for span <- [turn, chat] do
        assert span.attributes["error.type"] == to_string(kind)
        assert span.status != nil
      end

      assert chat.attributes["http.response.status_code"] == 429
      assert chat.attributes["http.request.resend_count"] == 1
      assert chat.attributes["gen_ai.provider.name"] == "openai"
    end
  end

  test "a failure stands before the answer that came after it" do
    context = failed(:overloaded) |> Context.add_assistant_message("Fine.", [], at: at(3))
    [first, second] = Regex.scan(~r/overloaded|Fine\./, print(context)) |> List.flatten()
    assert Enum.sort([first, second]) == ["Fine.", "overloaded"]

    # The turn ended well.
    [turn | _] = context |> Trace.to_otlp() |> spans()
    refute Map.has_key?(turn.attributes, "error.type")
  end

  test "masks hold for the server's words, and without texts they are not sent" do
    masked = Context.View.put_masks(failed(:quota), [{"words", "[masked]"}])
    assert print(masked) =~ "[masked] of the server"
    refute Trace.to_html(masked) =~ "words of the server"
    refute Trace.to_otlp(failed(:quota), messages: false) =~ "of the server"
    assert Trace.to_otlp(failed(:quota), messages: true) =~ "of the server"
  end

  test "lists of viewers have the first and the last words of a turn" do
    context = Context.new("Hi", at: @at) |> Context.add_assistant_message("Fine.", [], at: at(3))
    [turn | _] = context |> Trace.to_otlp(messages: true) |> spans()
    assert %{"input.value" => "Hi", "output.value" => "Fine."} = turn.attributes
  end
end
