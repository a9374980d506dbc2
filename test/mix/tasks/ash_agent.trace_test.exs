defmodule Mix.Tasks.AshAgent.TraceTest do
  # The shell of Mix and the path of commands are the VM's.
  use ExUnit.Case, async: false

  import ExUnit.CaptureIO

  alias AshAgent.{ChatContext, Context}
  alias Mix.Tasks.AshAgent.Trace

  @moduletag :tmp_dir

  setup %{tmp_dir: folder} do
    shell = Mix.shell()
    Mix.shell(Mix.Shell.Process)
    on_exit(fn -> Mix.shell(shell) end)

    context =
      Context.new("What is my key sk-1?")
      |> Context.add_assistant_message(String.duplicate("I will not tell. ", 20))

    context = Context.put_masks(context, [{"sk-[0-9]+", "[key]"}])
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
    File.write!(chat, AshAgent.Trace.to_atif(context))
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
          {[junk], ~r/not a stored conversation: .*version/}
        ] do
      assert_raise Mix.Error, words, fn -> run(args) end
    end
  end
end
