defmodule Mix.Tasks.AshAgent.ReplayTest do
  # The shell of Mix is the VM's.
  use ExUnit.Case, async: false

  alias AshAgent.{ChatContext, Context, LLM, Runtime, Store}
  alias AshAgent.Context.JSON
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.MixTask
  alias Mix.Tasks.AshAgent.Replay

  @moduletag :tmp_dir

  # The agent of today, as an application has it.
  defmodule Agent do
    def same, do: today("Looks.")
    def changed, do: today("Sees.")

    def for_each(context) do
      cond do
        Context.metadata(context)["changed"] -> [system_prompt: "Be brief."] ++ same()
        context[:id] == "c1" -> nil
        true -> [system_prompt: "Be kind."] ++ same()
      end
    end

    def today(words),
      do: [llm: llm(Server.refused_url()), tools: [tool(words, fn _ -> raise "called" end)]]

    def llm(url), do: LLM.Anthropic.new(model: "m", base_url: url)
    def tool(words, function), do: %{name: "look", description: words, function: function}
  end

  setup do: MixTask.hear()

  setup %{tmp_dir: folder} do
    script = [%{tool_calls: [%{id: "a", name: "look", arguments: %{}}]}, "It rains."]
    server = start_supervised!({Server, script: script})
    tools = [Agent.tool("Looks.", fn _ -> {:ok, "rain"} end)]
    opts = [llm: Agent.llm(Server.base_url(server)), tools: tools]
    {:ok, result} = Runtime.run(Context.new("Weather?", system_prompt: "Be kind."), opts)

    path = Path.join(folder, "agents.db")
    {:ok, store} = Store.SQLite.open(path)
    for n <- 1..7, do: {:ok, _} = Store.create(store, Context.fork(result.context, id: "c#{n}"))
    %{context: result.context, store: store, path: path}
  end

  defp run(args) do
    {status, said, _errors} = MixTask.run(Replay, args)
    {status, said}
  end

  defp function(name), do: "#{inspect(Agent)}.#{name}"

  test "all conversations of a store are the same, and nothing is asked or called", %{path: path} do
    same = {0, "7 conversations with 14 requests compared, 0 differ; 0 not comparable\n"}
    assert run([path]) == same
    assert run([path, "--with", function(:same)]) == same
    assert run([path, "--status", "idle"]) == same
    assert {0, "1 conversations with 2 requests" <> _} = run([path, "--id", "c3"])
    assert {0, "2 conversations with 4 requests" <> _} = run([path, "--limit", "2"])

    assert run([path, "--status", "paused"]) ==
             {2, "0 conversations with 0 requests compared, 0 differ; 0 not comparable\n"}
  end

  test "what differs is told with its cause, and the status says so", %{path: path} do
    assert {1, text} = run([path, "--with", function(:changed), "--show", "2"])
    lines = String.split(text, "\n", trim: true)

    assert [_, _, "and 5 more conversations", "tools: 7 conversations", summary] = lines

    assert hd(lines) =~
             ~r/^c\d, request of iteration 1: the tool `look`, description: was "Looks.", is "Sees."$/

    assert summary == "7 conversations with 14 requests compared, 7 differ; 0 not comparable"

    assert {1, json} = run([path, "--with", function(:changed), "--json"])
    rows = for line <- String.split(json, "\n", trim: true), do: JSON.decode!(line)
    assert length(rows) == 7

    assert %{"id" => "c" <> _, "differences" => [%{"cause" => "tools", "is" => "Sees."} | _]} =
             hd(rows)
  end

  test "the function gets each conversation, old ones are not comparable, and damaged ones are told",
       %{
         path: path,
         store: store,
         context: context,
         tmp_dir: folder
       } do
    changed = context |> Context.put_metadata("changed", true) |> Context.fork(id: "changed")
    {:ok, _} = Store.create(store, changed)

    {:ok, _} =
      Store.create(store, Context.new("Old", id: "old") |> Context.add_assistant_message("Hi"))

    assert {1, text} = run([path, "--with", function(:for_each)])
    assert text =~ ~s(changed, request of iteration 1: the system prompt: was "Be kind.")
    assert text =~ "8 conversations with 16 requests compared, 1 differ; 1 not comparable"

    damaged = Path.join(folder, "damaged.json")
    File.write!(damaged, "{")
    assert {1, text} = run([path, damaged])
    assert text =~ "damaged.json" and text =~ "1 cannot be loaded"
    assert {1, text} = run([path, "--id", "nobody"])
    assert text =~ "nobody: there is no such conversation"
  end

  test "files are read, with all branches of a chat", %{context: context, tmp_dir: folder} do
    chat =
      ChatContext.new(context: context)
      |> ChatContext.branch("other")
      |> ChatContext.update_context(&Context.rewind(&1, to: 1), branch: "other")

    file = Path.join(folder, "chat.json")
    File.write!(file, ChatContext.to_snapshot(chat))
    assert {0, "1 conversations with 3 requests compared" <> _} = run([file])

    edited = Path.join(folder, "edited.json")

    File.write!(
      edited,
      context |> Context.to_snapshot() |> String.replace(~s("rain"), ~s("snow"))
    )

    assert {1, text} = run([file, edited])

    assert text =~
             "edited.json, request of iteration 2: iteration 1, tool result of a: the conversation has something else than was sent: it has \"snow\""

    assert text =~ "messages: 1 conversations"
  end

  test "another provider: what it would not take as it is", %{path: path, tmp_dir: folder} do
    assert {0, _same} = run([path, "--against", "openai_chat"])
    file = Path.join(folder, "thinking.json")

    thinking = %{
      type: :thinking,
      text: "Hm.",
      provider_metadata: %{provider: :anthropic, signature: "s"}
    }

    context =
      Context.new("Hi") |> Context.add_assistant_message([thinking, %{type: :text, text: "Ho"}])

    File.write!(file, Context.to_snapshot(context))
    assert {1, text} = run([file, "--against", "openai_chat"])
    assert text =~ "iteration 1, message 2 (assistant), for openai_chat: dropped thinking"
  end

  test "refuses wrong arguments", %{path: path} do
    for {args, words} <- [
          {[], "expected a store or a file"},
          {[path, "--color"], "wrong option --color"},
          {[path, "--against", "nobody"], "a provider is one of"},
          {[path, "--against", "gemini", "--with", function(:same)], "exclude each other"},
          {[path, "--with", function(:missing)], "no such repository or function"},
          {[path, "--status", "odd"], "a status is one of"},
          {[path, "--limit", "0"], "positive number"},
          {["talk.json", "--id", "a"], "--id needs a store"}
        ],
        do: assert_raise(Mix.Error, ~r/#{Regex.escape(words)}/, fn -> Replay.run(args) end)
  end

  test "a thousand requests of one conversation, each with all before it", %{tmp_dir: folder} do
    context =
      Enum.reduce(
        1..1_000,
        Context.new("Go")
        |> Context.Audit.put_request(%{"provider" => "anthropic", "model" => "m"}, []),
        fn n, context ->
          {:ok, context} = Context.Audit.put_sent(context, :anthropic, model: "m")
          call = %{id: "call_#{n}", name: "look", arguments: %{"n" => n}}

          {:ok, response} =
            AshAgent.Response.from_message(%{content: "Step #{n}", tool_calls: [call]})

          {:ok, context} =
            Context.add_response(context, response, requested_at: ~U[2026-01-01 10:00:00Z])

          Context.add_tool_results(context, [{"call_#{n}", {:ok, String.duplicate("rain ", 100)}}])
        end
      )

    file = Path.join(folder, "long.json")
    File.write!(file, Context.to_snapshot(context))
    {took, result} = :timer.tc(fn -> run([file]) end)
    if System.get_env("REPLAY_TIME"), do: IO.puts("#{div(took, 1_000)} ms")
    assert {0, "1 conversations with 1000 requests compared, 0 differ" <> _} = result
  end
end
