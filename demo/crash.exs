# A run on SQLite whose VM kills itself with SIGKILL in the middle, and goes on in another VM. bin/demo calls both:
#
#     cd packages/ash_agent_runtime && mix run ../../demo/crash.exs begin FOLDER
#     cd packages/ash_agent_runtime && mix run ../../demo/crash.exs go_on FOLDER

Code.require_file("terminal.exs", __DIR__)

defmodule AshAgent.Demo.Crash do
  @moduledoc false

  import AshAgent.Demo.Terminal

  alias AshAgent.{Context, Runtime, Store}

  @id "a trip"
  @prompt "Find a train to Prague, book it, and mail me the ticket."
  # The second VM is the same owner, so that it need not wait for the first one's lease to end.
  @owner "demo"

  def main(["begin", folder]) do
    headline(
      "A run that survives the death of its VM: a store, and tools that say how they may be repeated"
    )

    store = open(folder)
    context = Context.new(@prompt, id: @id)
    {:ok, kept} = Store.create(store, context, owner: @owner)

    show_message(%{role: :user, content: @prompt})

    run(store, kept, folder, fn -> System.cmd("kill", ["-9", System.pid()]) end)
  end

  def main(["go_on", folder]) do
    store = open(folder)
    {:ok, kept} = Store.claim(store, @id, owner: @owner, reclaim: true)

    IO.puts(
      "\n#{red("The VM is dead.")} Another one, with the PID #{System.pid()}, finds this in the store:"
    )

    {:ok, calls} = Store.calls(store, @id)

    table(
      ["call", "state"],
      for(
        %{call: call, state: state} <- Enum.sort_by(calls, & &1.call.id),
        do: [call.name, "#{state}"]
      )
    )

    IO.puts("")
    {:ok, result} = run(store, kept, folder, fn -> :ok end)
    show_message(%{role: :assistant, content: result.output})
    IO.puts("\nOutside, this was done:")

    IO.puts(
      folder
      |> ledger()
      |> File.read!()
      |> String.replace(~r/^/m, "  ")
      |> String.trim_trailing()
    )
  end

  defp open(folder) do
    {:ok, store} = Store.SQLite.open(Path.join(folder, "store.db"))
    store
  end

  defp run(store, kept, folder, die) do
    opts = [llm: &model/1, tools: tools(folder, die), max_concurrency: 1]
    Runtime.run(kept.value, [store: store, kept: kept, on_change: &tell/1] ++ opts)
  end

  # The calls of the model, and each result once.
  defp tell(context) do
    case context |> Context.to_messages() |> List.last() do
      %{tool_calls: _} = message -> show_message(message)
      %{content: [%{type: :tool_result} | _] = results} -> show_results(results)
      _message -> :ok
    end
  end

  defp show_results(results) do
    new = Enum.reject(results, &(&1.tool_use_id in Process.get(:told, [])))
    Process.put(:told, Enum.map(results, & &1.tool_use_id))
    if new != [], do: show_message(%{content: new})
  end

  # ---- the tools, whose effects are lines of a file outside the store

  defp tools(folder, die) do
    %{
      find_train: %{function: fn _ -> {:ok, "EC 173, 8:26"} end, repeat: :safe},
      book_train: %{
        function: fn _, %{idempotency_key: key} -> {:ok, effect(folder, "booked EC 173", key)} end,
        repeat: {:ask, fn _call, key -> booked(folder, key) end}
      },
      send_mail: fn _, %{idempotency_key: key} ->
        effect(folder, "sent the mail", key)
        die.()
        {:ok, "sent"}
      end
    }
  end

  defp effect(folder, what, key) do
    File.write!(ledger(folder), "#{what}, key #{String.slice(key, 0, 12)}\n", [:append])
    what
  end

  defp booked(folder, key) do
    if File.read!(ledger(folder)) =~ "booked EC 173, key " <> String.slice(key, 0, 12),
      do: {:done, {:ok, "booked EC 173"}},
      else: :not_done
  end

  defp ledger(folder), do: Path.join(folder, "ledger")

  # ---- the script

  defp model(%{current_iteration: 1}), do: {:ok, %{tool_calls: [%{id: "1", name: "find_train"}]}}

  defp model(%{current_iteration: 2}),
    do: {:ok, %{tool_calls: [%{id: "2", name: "book_train"}, %{id: "3", name: "send_mail"}]}}

  defp model(_context) do
    {:ok,
     %{
       content:
         "EC 173 at 8:26 is booked, once. Whether the mail was sent is unknown, so I did not send it again: please look."
     }}
  end
end

AshAgent.Demo.Crash.main(System.argv())
