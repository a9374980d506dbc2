defmodule AshAgent.Runtime.CheckedThinkingTest do
  # What runs and stored sessions send to models that check what stood before their thinking. The server here checks each request by itself.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime, Session}
  alias AshAgent.Context.View
  alias AshAgent.Store.SQLite
  alias AshAgent.Test.Server

  @moduletag :capture_log

  defp serve(answers) do
    script = for {content, index} <- Enum.with_index(answers, 1), do: said(content, index)
    start_supervised!({Server, provider: :anthropic, script: script}, id: make_ref())
  end

  defp said(content, index) do
    thinking = %{"type" => "thinking", "thinking" => "Hm.", "signature" => "sig#{index}"}
    stop = if Enum.any?(content, &(&1["type"] == "tool_use")), do: "tool_use", else: "end_turn"

    body = %{
      "type" => "message",
      "role" => "assistant",
      "content" => [thinking | content],
      "stop_reason" => stop,
      "usage" => %{"input_tokens" => 9, "output_tokens" => 4}
    }

    {:raw, 200, [{"content-type", "application/json"}], [Context.JSON.encode(body)]}
  end

  defp text(words), do: %{"type" => "text", "text" => words}

  defp call(id),
    do: %{"type" => "tool_use", "id" => id, "name" => "look", "input" => %{"at" => id}}

  defp opts(server, model) do
    llm =
      LLM.Anthropic.new(
        model: model,
        api_key: "k",
        base_url: Server.base_url(server),
        max_retries: 0
      )

    [llm: llm, tools: %{look: fn %{"at" => at} -> "Result of #{at}." end}, stream: false]
  end

  # The signatures of each request. Those of a model that checks were made on what stands before them there, and are not missing between others.
  defp signatures(server, checks?) do
    bodies = for %{body: body} <- Server.requests(server), do: body

    for body <- bodies do
      all = flatten(body)

      for {%{"signature" => "sig" <> number = signature}, at} <- Enum.with_index(all) do
        made_on = bodies |> Enum.at(String.to_integer(number) - 1) |> flatten()
        if checks?, do: assert(Enum.take(all, at) == made_on)
        signature
      end
    end
  end

  defp flatten(body) do
    messages = for %{"content" => content} <- body["messages"], do: blocks(content)

    for %{} = block <- List.flatten([body["tools"], blocks(body["system"]) | messages]),
        do: Map.delete(block, "cache_control")
  end

  defp blocks(words) when is_binary(words), do: [text(words)]
  defp blocks(blocks), do: List.wrap(blocks)

  for {model, checks?} <- [{"claude-opus-5-5", true}, {"claude-opus-4-8", false}] do
    test "#{model}: a tool loop keeps its thinking, and a run with another prompt, view or tools does without" do
      turn = [[call("a")], [call("b")], [text("Done.")]]
      server = serve(turn ++ turn ++ turn ++ [[text("Bye.")]])
      opts = opts(server, unquote(model))
      context = Context.new("First", system_prompt: "S")
      assert {:ok, %{context: first}} = Runtime.run(context, opts)

      other = first |> Context.put_system_prompt("T") |> Context.add_user_message("Second")
      assert {:ok, %{context: second}} = Runtime.run(other, opts)

      cleared = second |> View.clear_tool_results(keep: 1) |> Context.add_user_message("Third")

      assert {:ok, %{context: third}} = Runtime.run(cleared, opts)
      tools = %{look: fn _ -> "-" end, find: fn _ -> "-" end}
      third = Context.add_user_message(third, "Fourth")
      assert {:ok, _} = Runtime.run(third, Keyword.put(opts, :tools, tools))

      sent = signatures(server, unquote(checks?))

      if unquote(checks?) do
        assert Enum.take(sent, 3) == [[], ["sig1"], ["sig1", "sig2"]]
        # Other words stand before the first turn's thinking, and the loop keeps its own.
        assert Enum.slice(sent, 3, 3) == [[], ["sig4"], ["sig4", "sig5"]]
        # Cleared results stand before all that was thought.
        assert Enum.slice(sent, 6, 3) == [[], ["sig7"], ["sig7", "sig8"]]
        assert [] = Enum.at(sent, 9)
      else
        assert Enum.map(sent, &length/1) == Enum.to_list(0..9)
      end
    end

    @tag :tmp_dir
    test "#{model}: a session that is stored and resumed keeps its thinking", %{tmp_dir: dir} do
      server = serve([[call("a")], [text("One.")], [call("b")], [text("Two.")]])
      name = :"#{inspect(__MODULE__)} #{unquote(model)}"
      start_supervised!({SQLite, name: name, path: Path.join(dir, "c.db")})
      opts = [store: name, id: "c"] ++ opts(server, unquote(model))
      first = start_supervised!({Session, opts}, id: :first)
      assert {:ok, %{output: "One."}} = Session.prompt(first, "First")
      :ok = stop_supervised(:first)
      second = start_supervised!({Session, opts}, id: :second)
      assert {:ok, %{output: "Two."}} = Session.prompt(second, "Second")
      assert signatures(server, unquote(checks?)) |> Enum.map(&length/1) == [0, 1, 2, 3]
    end
  end
end
