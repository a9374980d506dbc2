defmodule AshAgent.ToolboxTest do
  use ExUnit.Case, async: true

  alias AshAgent.Context.JSON
  alias AshAgent.Runtime.ToolExecutor
  alias AshAgent.TestSupport.Wait
  alias AshAgent.Toolbox

  doctest AshAgent.Toolbox

  setup do
    name = "toolbox #{System.pid()}-#{System.unique_integer([:positive])}"
    dir = Path.join(System.tmp_dir!(), name)
    File.mkdir_p!(dir)
    on_exit(fn -> File.rm_rf!(dir) end)
    %{dir: dir}
  end

  # A script with a she-bang, as users write them.
  defp script(directory, text) do
    path = Path.join(directory, "script#{System.unique_integer([:positive])}")
    File.write!(path, "#!/bin/sh\n" <> text)
    File.chmod!(path, 0o755)
    path
  end

  defp toolbox(command, fields \\ []), do: Toolbox.new([name: "tool", command: command] ++ fields)

  defp run(directory, text, arguments \\ %{}, opts \\ []) do
    {run_opts, fields} = Keyword.split(opts, [:timeout])
    directory |> script(text) |> toolbox(fields) |> Toolbox.run(arguments, run_opts)
  end

  # Dead programs that nobody has asked about yet (zombies) do not live.
  defp alive?(os_pid) do
    case File.read("/proc/#{os_pid}/stat") do
      {:ok, stat} -> not (stat =~ ~r/\) [ZX] /)
      {:error, _} -> false
    end
  end

  # A program that a signal has reached is gone a moment later.
  defp assert_gone(os_pid), do: assert(Wait.until(fn -> not alive?(os_pid) end))

  defp read_pid(path) do
    Wait.until(fn -> match?({:ok, <<_, _::binary>>}, File.read(path)) end)
    path |> File.read!() |> String.trim()
  end

  describe "new/1" do
    test "fills in defaults" do
      toolbox = Toolbox.new(%{name: "x", command: "y"})
      assert %Toolbox{args: [], search_hints: [], description: nil} = toolbox
      assert {toolbox.parameters, toolbox.env} == {%{"type" => "object"}, %{}}
    end

    test "refuses what cannot work" do
      env = [%{"A" => 1}, %{"A=B" => "1"}, nil, [{"A", "1"}], %{{1} => "1"}, %{"" => "1"}]
      env = env ++ [%{nil => "1"}, %{1 => "1"}, %URI{}]
      args = ["z", [1], ["a\0"], ["a" | "b"], [<<255>>]]
      own = [parameters: nil, max_output_bytes: 0, search_hints: [1], search_hints: ["a" | "b"]]
      own = [colour: "red", name: "z", description: 7] ++ own
      values = for {name, values} <- [env: env, args: args], value <- values, do: {name, value}

      for fields <-
            for(field <- values ++ own, do: [name: "x", command: "y"] ++ [field]) ++
              for(
                {name, command} <- [{"", "x"}, {:x, "x"}, {"x", nil}, {"x", "a\0b"}],
                do: [name: name, command: command]
              ) ++
              [
                [name: "x"],
                [command: "x"],
                [{"name", "x"}, {"command", "y"}],
                [1],
                [{:name, "x"} | {:command, "y"}],
                %{"name" => "x", "command" => "y"},
                %{1 => 2},
                %URI{}
              ] do
        assert_raise ArgumentError, fn -> Toolbox.new(fields) end
      end
    end

    test "shows no value, which may be a secret" do
      for field <- [:name, :command, :description, :parameters, :args, :env, :search_hints] do
        fields = Keyword.put([name: "x", command: "y"], field, {"secret"})
        error = assert_raise ArgumentError, fn -> Toolbox.new(fields) end
        assert Exception.message(error) =~ inspect(field)
        refute Exception.message(error) =~ "secret"
      end

      unknown = [name: "x", command: "y", colour: 1]
      error = assert_raise ArgumentError, fn -> Toolbox.new(unknown) end
      assert Exception.message(error) =~ "unknown options [:colour]"
    end
  end

  describe "input" do
    # The shell's own `read` would take more than half a minute.
    @tag timeout: 30_000
    test "of 64 MB arrives whole, and soon", %{dir: dir} do
      text = String.duplicate("0123456789abcdé\n", 4_000_000)
      bytes = byte_size(JSON.encode(%{text: text}))
      assert {:ok, counted} = run(dir, "wc -c", %{text: text})
      assert String.trim(counted) == Integer.to_string(bytes)
      assert bytes > 64_000_000
    end

    test "that the program does not read, or not to its end, is no harm", %{dir: dir} do
      arguments = %{text: String.duplicate("x", 3_000_000)}
      assert run(dir, "echo done", arguments) == {:ok, "done\n"}
      assert run(dir, "head -c 9", arguments) == {:ok, ~s({"text":")}
      assert run(dir, "sleep 30", arguments, timeout: 500) == {:error, "timed out after 500 ms"}
    end

    test "is one JSON object, and then ends", %{dir: dir} do
      text = "a\nb\\n\t'\"$(reboot)`x` ü 😀 \0"
      arguments = %{"text" => text, "n" => 1.5, "list" => [nil, true]}
      assert {:ok, output} = run(dir, "cat; echo -n END", arguments)
      assert String.ends_with?(output, "END")
      assert AshAgent.Context.JSON.decode(String.trim_trailing(output, "END")) == {:ok, arguments}
      refute output =~ "\n"
    end

    test "that is no JSON is an error" do
      assert {:error, "the arguments cannot be written as JSON: " <> _} =
               Toolbox.run(toolbox("cat"), %{x: [1 | 2]})
    end
  end

  describe "the program" do
    test "gets its arguments as they are, from no shell" do
      args = ["$HOME", "; echo x", "$(echo y)", "a b", "*", "'", "\"", "\\", "-n", "", "ü"]
      expected = Enum.map_join(args, &(&1 <> "|"))
      assert Toolbox.run(toolbox("printf", args: ["%s|" | args]), %{}) == {:ok, expected}
    end

    test "has six variables of the VM, those that are named, and its own", %{dir: dir} do
      System.put_env("TOOLBOX_TEST_NAMED", "named")
      System.put_env("TOOLBOX_TEST_KEY", "a key")

      text =
        ~S(printf '%s,%s,%s,%s' "$TOOLBOX_TEST_NAMED" "$TOOLBOX_TEST_KEY" "$OWN" "${HOME:+home}")

      opts = [env: %{"OWN" => "ü $(x)"}, inherit_env: ["TOOLBOX_TEST_NAMED"]]
      assert run(dir, text, %{}, opts) == {:ok, "named,,ü $(x),home"}
      assert run(dir, text, %{}, inherit_env: true) == {:ok, "named,a key,,home"}

      assert run(dir, text, %{}, inherit_env: true, env: %{"HOME" => nil}) ==
               {:ok, "named,a key,,"}

      kept = ~w(HOME LOGNAME PATH SHELL TERM USER _ PWD OLDPWD SHLVL)
      {:ok, names} = run(dir, "env | sed 's/=.*//'", %{}, [])
      assert String.split(names, "\n", trim: true) -- kept == []
    end

    test "is given no names that are none" do
      for wrong <- [["A=B"], [""], [1], ["a" | "b"], "HOME", false] do
        assert_raise ArgumentError, ~r/:inherit_env/, fn ->
          Toolbox.new(name: "x", command: "y", inherit_env: wrong)
        end
      end
    end

    test "works with a PATH that has nothing on it", %{dir: dir} do
      assert run(dir, "echo hi", %{}, env: %{"PATH" => "/nowhere"}) == {:ok, "hi\n"}
    end

    test "that is not there is an error" do
      assert Toolbox.run(toolbox("no-such-program-here"), %{}) ==
               {:error, "the program no-such-program-here does not exist or is not executable"}
    end

    test "may print bytes that are no text", %{dir: dir} do
      assert run(dir, ~S(printf '\377\000\001')) == {:ok, <<255, 0, 1>>}
    end

    test "has a result for exit code 0 only", %{dir: dir} do
      assert run(dir, "echo -n fine; echo warning >&2; exit 0") == {:ok, "fine"}

      assert run(dir, "echo out; echo -n 'no such city' >&2; exit 3") ==
               {:error, "exit code 3: no such city"}

      assert run(dir, "exit 1") == {:error, "exit code 1"}
      assert run(dir, "kill -9 $$") == {:error, "exit code 137"}
      assert run(dir, "kill -TERM $$") == {:error, "exit code 143"}
    end

    test "shows the end of its standard error only, cut at a character", %{dir: dir} do
      assert {:error, "exit code 1: " <> words} =
               run(
                 dir,
                 "i=0; while [ $i -lt 3000 ]; do printf 'ü%d' $i >&2; i=$((i+1)); done; exit 1"
               )

      assert String.ends_with?(words, "ü2999")
      assert byte_size(words) <= 2_000
      assert String.valid?(words)
    end

    test "may not print without end", %{dir: dir} do
      assert run(dir, "printf 12345", %{}, max_output_bytes: 5) == {:ok, "12345"}
      words = "the program printed more than 5 bytes and was stopped"
      assert run(dir, "printf 123456", %{}, max_output_bytes: 5) == {:error, words}
      assert run(dir, "exec yes", %{}, max_output_bytes: 5) == {:error, words}
      assert {:error, "timed out" <> _} = run(dir, "exec yes >&2", %{}, timeout: 50)
    end
  end

  describe "its processes" do
    test "are killed on timeout, children that ignore signals too", %{dir: dir} do
      pids = Path.join(dir, "pids")

      text =
        "trap '' TERM HUP INT; sleep 100 & echo $! >\"#{pids}.child\"; echo $$ >\"#{pids}\"; wait; sleep 100"

      assert run(dir, text, %{}, timeout: 1_000) == {:error, "timed out after 1000 ms"}
      assert_gone(read_pid(pids))
      assert_gone(read_pid(pids <> ".child"))
    end

    test "are killed with the process that runs the tool", %{dir: dir} do
      path = Path.join(dir, "pid")
      toolbox = dir |> script("echo $$ >\"#{path}\"; exec sleep 100") |> toolbox()
      pid = spawn(fn -> Toolbox.run(toolbox, %{}) end)
      os_pid = read_pid(path)
      assert alive?(os_pid)
      Process.exit(pid, :kill)
      assert_gone(os_pid)
    end

    test "are killed by the executor's timeout", %{dir: dir} do
      path = Path.join(dir, "pid")
      toolbox = dir |> script("echo $$ >\"#{path}\"; sleep 100") |> toolbox()

      call = %{id: "1", name: "tool", arguments: %{}}
      [%{result: result}] = ToolExecutor.execute_tools([call], [toolbox], %{}, timeout: 1_000)
      assert result == {:error, "timed out after 1000 ms"}
      assert_gone(read_pid(path))
    end

    # More than linear work, or waiting, takes longer than this.
    @tag timeout: 60_000
    test "do not stay when the program ends and leaves some, nor keep the result waiting", %{
      dir: dir
    } do
      path = Path.join(dir, "pid")

      assert run(dir, "sleep 100 & echo $! >\"#{path}\"; echo -n done") == {:ok, "done"}
      assert_gone(read_pid(path))
    end

    test "leave no port and no message, also in a caller that traps exits", %{dir: dir} do
      Process.flag(:trap_exit, true)
      ports = Port.list()
      {:links, links} = Process.info(self(), :links)

      for text <- ["exit 0", "exit 1", "exec yes", "sleep 100"],
          do: run(dir, text, %{}, timeout: 100, max_output_bytes: 100)

      assert Process.info(self(), [:links, :messages]) == [links: links, messages: []]

      mine? = &(Port.info(&1, :connected) == {:connected, self()})
      assert Enum.filter(Port.list() -- ports, mine?) == []
    end

    test "run at the same time", %{dir: dir} do
      toolbox = dir |> script("cat") |> toolbox()
      calls = for n <- 1..20, do: %{id: "#{n}", name: "tool", arguments: %{"n" => n}}
      results = ToolExecutor.execute_tools(calls, [toolbox], %{}, max_concurrency: 20)
      assert results == for(n <- 1..20, do: %{id: "#{n}", result: {:ok, ~s({"n":#{n}})}})
    end
  end
end
