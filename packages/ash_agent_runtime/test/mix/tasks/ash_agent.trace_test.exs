defmodule Mix.Tasks.AshAgent.TraceTest do
  # The shell of Mix and the path of commands are the VM's.
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO

  alias AshAgent.{ChatContext, Context}
  alias Mix.Tasks.AshAgent.Trace

  @moduletag :tmp_dir

  setup do: AshAgent.TestSupport.MixTask.hear()

  setup %{tmp_dir: folder} do
    context =
      Context.new("What is my key sk-1?")
      |> Context.add_assistant_message(String.duplicate("I will not tell. ", 20))

    context = Context.View.put_masks(context, [{"sk-[0-9]+", "[key]"}])
    file = Path.join(folder, "talk.json")
    File.write!(file, Context.to_snapshot(context))
    %{stored: file, context: context}
  end

  defp run(args), do: capture_io(fn -> Trace.run(args) end)

  test "prints a conversation, or the active branch of a chat", %{
    stored: file,
    context: context,
    tmp_dir: folder
  } do
    assert run([file]) =~ "What is my key [key]?"
    assert run([file, "--unmasked"]) =~ "What is my key sk-1?"
    assert run([file]) =~ "…"
    refute run([file, "--full"]) =~ "…"
    refute run([file, "--limit", "1"]) =~ "my key"
    chat = Path.join(folder, "chat.json")
    File.write!(chat, ChatContext.to_snapshot(ChatContext.new(context: context)))
    assert run([chat]) =~ "What is my key [key]?"
  end

  test "writes a page, and opens it", %{stored: file, tmp_dir: folder} do
    page = Path.join(folder, "out.html")
    run([file, "--html", page, "--request", "gemini"])
    assert_received {:mix_shell, :info, [words]}
    assert words =~ page
    assert File.read!(page) =~ "[key]"
    assert File.read!(page) =~ ~s("provider":"gemini")

    # A browser of the test's own.
    opener = Path.join(folder, "xdg-open")
    File.write!(opener, "#!/bin/sh\necho \"$1\" > #{folder}/opened\n")
    File.chmod!(opener, 0o755)
    path = System.get_env("PATH")
    System.put_env("PATH", folder <> ":" <> path)
    on_exit(fn -> System.put_env("PATH", path) end)
    run([file, "--open"])
    assert File.read!(Path.join(folder, "opened")) == Path.rootname(file) <> ".html\n"
    assert File.exists?(Path.rootname(file) <> ".html")
  end

  # A store with a conversation that called a sub-agent, asked for money, and failed once.
  defp stored(folder) do
    path = Path.join(folder, "agents.db")
    {:ok, store} = AshAgent.Store.SQLite.open(path)

    context =
      Context.new("What is my key sk-1?", id: "user-17")
      |> Context.View.put_masks([{"sk-[0-9]+", "[key]"}])
      |> Context.Audit.add_failure(%{kind: :rate_limited})
      |> Context.add_assistant_message(nil, [%{id: "a", name: "research", arguments: %{}}])
      |> Context.Tokens.add_token_usage(%{input_tokens: 1_000, output_tokens: 0})
      |> Context.add_tool_results([{"a", {:ok, "nothing"}}])
      |> Context.add_assistant_message("I will not tell.")

    child =
      Context.new("Look it up", id: "child", metadata: %{parent_id: "user-17", tool_call_id: "a"})
      |> Context.add_assistant_message("Nothing is known.")

    {:ok, _kept} = AshAgent.Store.create(store, context)
    {:ok, _kept} = AshAgent.Store.create(store, child)
    {:ok, _kept} = AshAgent.Store.create(store, Context.fork(context, id: "fork"))
    path
  end

  test "shows conversations of a store", %{tmp_dir: folder} do
    store = stored(folder)
    run(["--store", store])

    # They may have been written in the same millisecond.
    lines =
      for _row <- 1..3 do
        assert_received {:mix_shell, :info, [line]}
        line
      end

    assert [child, fork, user] = Enum.sort_by(lines, &(&1 |> String.split() |> Enum.at(2)))
    assert child =~ ~r/  idle  child  1 iterations$/
    assert fork =~ ~r/  idle  fork  /
    assert user =~ ~r/  idle  user-17  2 iterations, 1 failed requests$/

    assert run(["--store", store, "--id", "user-17"]) =~ "What is my key [key]?"
    assert run(["--store", store, "--id", "user-17", "--unmasked"]) =~ "What is my key sk-1?"

    page = Path.join(folder, "stored.html")
    run(["--store", store, "--id", "user-17", "--html", page])
    refute File.read!(page) =~ "Nothing is known."

    prices = Path.join(folder, "prices.json")

    File.write!(
      prices,
      ~s([{"id": "x", "model_match": {"contains": ""}, "models": [{"id": "all", "match": {"contains": ""}, "prices": {"input_mtok": 7}}]}])
    )

    run(["--store", store, "--id", "user-17", "--html", page, "--children", "--prices", prices])
    html = File.read!(page)
    assert html =~ "Nothing is known."
    refute html =~ "sk-1"
  end

  test "shows the body of a request", %{tmp_dir: folder} do
    file = Path.join(folder, "request.json")
    File.write!(file, ~s({"model": "m", "messages": [{"role": "user", "content": "Chat?"}]}))
    assert run([file]) =~ "Chat?"

    call = ~s({"type": "tool_use", "id": "a", "name": "search", "input": {"q": "x"}})

    messages =
      ~s([{"role": "user", "content": "Claude?"}, {"role": "assistant", "content": [#{call}]}])

    File.write!(file, ~s({"model": "m", "max_tokens": 5, "messages": #{messages}}))
    assert run([file]) =~ "search"

    File.write!(file, ~s({"contents": [{"role": "user", "parts": [{"text": "Gemini?"}]}]}))
    assert run([file, "--from", "gemini"]) =~ "Gemini?"
  end

  defmodule Stores do
    def held, do: :persistent_term.get(__MODULE__)
  end

  test "takes a function that returns a store", %{tmp_dir: folder} do
    {:ok, store} = AshAgent.Store.SQLite.open(stored(folder))
    :persistent_term.put(Stores, store)
    name = inspect(Stores) <> ".held"
    assert run(["--store", name, "--id", "user-17"]) =~ "What is my key [key]?"
  end

  test "says what is wrong", %{stored: file, tmp_dir: folder} do
    junk = Path.join(folder, "junk.json")
    File.write!(junk, "{\"version\": 99}")

    for {args, words} <- [
          {[], ~r/expected one file; usage/},
          {[file, file], ~r/expected one file/},
          {[file, "--nothing"], ~r/wrong option --nothing; usage/},
          {[file, "--limit", "0"], ~r/positive number/},
          {[file, "--html", folder], ~r/cannot be written: illegal operation on a directory/},
          {[file, "--html", "x.html", "--request", "nobody"], ~r/one of anthropic, /},
          {[Path.join(folder, "none.json")], ~r/cannot be read: no such file/},
          {[junk], ~r/not a stored conversation: .*version/},
          {[file, "--store", "x.db"], ~r/FILE or --store/},
          {["--id", "c"], ~r/expected one file/},
          {["--store", Path.join(folder, "none.db")], ~r/no such file, repository or function/},
          {["--store", "No.Such.Repo"], ~r/no such repository or function/},
          {["--store", stored(folder), "--id", "nobody"], ~r/no conversation "nobody"/},
          {[file, "--html", "x.html", "--prices", junk], ~r/list of providers/},
          {["--store", "postgres://ann:SECRET@localhost/db"], ~r/needs Postgrex/}
        ] do
      assert_raise Mix.Error, words, fn -> run(args) end
    end
  end
end
