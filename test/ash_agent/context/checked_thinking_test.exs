defmodule AshAgent.Context.CheckedThinkingTest do
  use ExUnit.Case, async: true

  alias AshAgent.{Context, Response}
  alias AshAgent.Context.{Audit, Import, View}

  @model "claude-opus-5-5"
  @at ~U[2026-01-01 10:00:00.000000Z]

  defp answer(context, signature, opts \\ []) do
    {:ok, response} =
      Response.decode(:anthropic, %{
        type: "message",
        model: @model,
        content: [
          %{type: "thinking", thinking: "Hm.", signature: signature},
          %{type: "text", text: "Yes"}
        ],
        usage: %{input_tokens: 10, output_tokens: 10}
      })

    {:ok, context} = Context.add_response(context, response, opts)
    Context.add_user_message(context, "And?", at: @at)
  end

  defp signatures(context, opts \\ []) do
    opts = Keyword.put_new(opts, :model, @model)
    %{"messages" => messages} = context |> Context.encode_request!(:anthropic, opts) |> decode()
    for %{"content" => [_ | _] = blocks} <- messages, %{"signature" => one} <- blocks, do: one
  end

  defp decode(body), do: body |> IO.iodata_to_binary() |> Context.JSON.decode!()

  defp dropped(context) do
    changes = Context.request_report(context, :anthropic, model: @model)
    Enum.count(changes, &(&1.change == :dropped_thinking))
  end

  defp start, do: Context.new("Hi", system_prompt: "S", at: @at)

  for noted <- [[], [requested_at: @at, at: @at]] do
    test "thinking that was made on the changed view stays, with #{inspect(noted)}" do
      context =
        start()
        |> answer("a", unquote(Macro.escape(noted)))
        |> answer("b", unquote(Macro.escape(noted)))

      hidden = View.hide(context, 1..1)
      assert {signatures(hidden), dropped(hidden)} == {[], 1}
      later = answer(hidden, "c", unquote(Macro.escape(noted)))
      assert signatures(later) == ["c"]
      {:ok, loaded} = later |> Context.to_snapshot() |> Context.load()
      assert signatures(loaded) == ["c"]
      assert signatures(View.expand(loaded, 1..1)) == ["a", "b"]
    end
  end

  test "other tools leave out what was made with the first ones, also where digests of them are noted" do
    for keep <- [[], [keep: :hashes]] do
      note = &Audit.put_request(&1, %{"model" => @model}, [%{"name" => &2}], keep)
      context = start() |> note.("look") |> answer("a") |> note.("look")
      assert signatures(context) == ["a"]
      assert signatures(note.(context, "book")) == []
    end
  end

  test "the options of a request count as they were noted" do
    context = start() |> answer("a") |> answer("b")
    assert signatures(context, since: 2) == []
    noted = Audit.put_request(context, %{"request" => %{"since" => 2}}, nil)
    assert noted |> answer("c") |> signatures(since: 2) == ["c"]
  end

  test "a re-imported request keeps its thinking, until its system prompt changes" do
    context = start() |> answer("a") |> answer("b")
    body = context |> Context.encode_request!(:anthropic, model: @model) |> IO.iodata_to_binary()
    {:ok, imported, _repairs} = Import.from_request(body, :anthropic)
    assert signatures(imported) == ["a", "b"]
    assert signatures(imported, cache: :auto) == ["a", "b"]
    other = Context.put_system_prompt(imported, "Other")
    assert {signatures(other), dropped(other)} == {[], 2}
    assert signatures(other, model: "claude-opus-4-8") == ["a", "b"]
  end

  test "a forecast counts the thinking that a change costs" do
    context = start() |> answer("a", requested_at: @at, at: @at)
    opts = [model: @model, at: @at]
    assert {:ok, %{dropped_thinking: 0}} = Audit.forecast(context, :anthropic, opts)
    other = Context.put_system_prompt(context, "Other")
    assert {:ok, %{dropped_thinking: lost}} = Audit.forecast(other, :anthropic, opts)
    assert lost > 0
  end
end
