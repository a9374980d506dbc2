# A build that takes longer than the agent's VM lives. `bin/demo --late` calls the three parts: the agent starts the build and dies, the build
# server delivers the result to the store, and another VM finds it there and goes on by itself.
#
#     cd packages/ash_agent_runtime && mix run ../../demo/late.exs begin FOLDER
#     cd packages/ash_agent_runtime && mix run ../../demo/late.exs build FOLDER
#     cd packages/ash_agent_runtime && mix run ../../demo/late.exs go_on FOLDER

Code.require_file("terminal.exs", __DIR__)

defmodule AshAgent.Demo.Late do
  @moduledoc false

  import AshAgent.Demo.Terminal

  alias AshAgent.{Context, LLM, Sessions, Store}

  @id "release"
  @question "Build release 7, and publish it when the build is green."

  def main(["begin", folder]) do
    headline("A build takes longer than the agent's VM lives")
    start(folder, 0)
    {:ok, _result} = Sessions.prompt(__MODULE__, @id, @question)
    IO.puts("\n#{red("The VM dies here.")} No process waits for the build.")
    System.cmd("kill", ["-9", System.pid()])
  end

  # It knows the store and the key of the call, and nothing of agents.
  def main(["build", folder]) do
    key = File.read!(key_file(folder))
    answer = Store.arrive(open(folder), @id, key, {:ok, "green, 412 tests"}, from: "build server")

    IO.puts(
      "#{bright("Meanwhile")} the build server is done, in a VM of its own. The store answers #{inspect(answer)}.\n"
    )
  end

  def main(["go_on", folder]) do
    IO.puts("Another VM starts, with the PID #{System.pid()}, and nobody asks it for anything:\n")
    start(folder, 4)
    await_end()
  end

  # `shown`: how many messages the first VM has shown.
  defp start(folder, shown) do
    me = self()
    {:ok, printer} = Task.start_link(fn -> show(shown, me) end)
    opts = [name: __MODULE__, store: open(folder), llm: LLM.Scripted.new(&script/1), lease: 1_000]

    {:ok, _pid} =
      Sessions.start_link([tools: tools(folder), on_change: &tell(printer, &1)] ++ opts)
  end

  # Whoever changes the conversation waits until it is shown.
  defp tell(printer, context) do
    ref = Process.monitor(printer)
    send(printer, {self(), ref, context})
    receive do: ({^ref, :shown} -> :ok)
  end

  defp show(shown, main) do
    receive do
      {pid, ref, context} ->
        messages = Context.to_messages(context)
        messages |> Enum.drop(shown) |> Enum.each(&show_message/1)
        send(pid, {ref, :shown})
        if match?(%{content: "Release 7" <> _}, List.last(messages)), do: send(main, :over)
        show(length(messages), main)
    end
  end

  defp await_end do
    receive do
      :over -> IO.puts("\n#{bright("It went on")} with the result, as whoever had asked for it.")
    after
      30_000 -> stop("The agent has not gone on.")
    end
  end

  defp open(folder) do
    {:ok, store} = Store.SQLite.open(Path.join(folder, "store.db"))
    store
  end

  defp key_file(folder), do: Path.join(folder, "arrival_key")

  defp tools(folder) do
    %{
      build: %{
        function: fn _arguments, %{arrival_key: key} ->
          File.write!(key_file(folder), key)
          {:later, deadline: 3_600_000, for: "build server"}
        end,
        description: "Builds a release",
        parameters: parameters(),
        late: true
      },
      publish: %{
        function: fn _arguments -> {:ok, "published"} end,
        description: "Publishes a release",
        parameters: parameters()
      }
    }
  end

  defp parameters,
    do: %{type: :object, properties: %{release: %{type: :integer}}, required: [:release]}

  # The model that is none reads the last message.
  defp script(context) do
    case context |> Context.to_messages() |> List.last() do
      %{arrival: _late} ->
        call("2", "publish")

      %{content: [%{tool_use_id: "1"}]} ->
        "The build of release 7 runs. I publish it when it is green."

      %{content: [%{tool_use_id: "2"}]} ->
        "Release 7 is green, and published."

      _question ->
        call("1", "build")
    end
  end

  defp call(id, name),
    do: %{tool_calls: [%{id: id, name: name, arguments: %{"release" => 7}}]}
end

AshAgent.Demo.Late.main(System.argv())
