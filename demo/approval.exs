defmodule AshAgent.Demo.Approval do
  @moduledoc false

  # Three calls of one answer: one that a rule denies, one that runs, and one that waits until a person has decided.

  import AshAgent.Demo.Terminal

  alias AshAgent.{Context, Runtime}
  alias AshAgent.LLM.Scripted

  @question "Tidy up: list the old files, delete them, and delete the backups as well."

  def show do
    headline("Who may call what: a rule, and a person who is asked")
    {:paused, paused} = @question |> Context.new() |> Runtime.run(opts())
    asked = paused.context |> Context.get_iteration_messages(1)
    Enum.each(asked, &show_message/1)

    stored = Context.to_snapshot(paused.context)
    IO.puts("\n#{inspect(paused)}")

    IO.puts(
      "It is stored as #{bytes(byte_size(stored))}, Ann says no, and another process goes on:"
    )

    {:ok, result} = Task.await(Task.async(fn -> stored |> decide() |> Runtime.resume(opts()) end))

    result.context
    |> Context.to_messages()
    |> Enum.drop(length(asked) - 1)
    |> Enum.each(&show_message/1)

    show_statuses(result.context)
  end

  defp decide(stored) do
    [%{id: id}] = stored |> Context.load!() |> Context.pending_tool_calls()

    stored
    |> Context.load!()
    |> Context.Calls.deny_tool_call(id, "not before Monday", by: "Ann")
  end

  defp show_statuses(context) do
    rows =
      for %{id: id, name: name} <- Context.get_iteration(context, 1).tool_calls do
        decision = Context.Calls.tool_call_decision(context, id)

        [
          id,
          name,
          "#{Context.Calls.tool_call_status(context, id)}",
          inspect(decision && decision.by)
        ]
      end

    IO.puts("")
    table(["call", "tool", "status", "decided by"], rows)
  end

  defp opts do
    [
      llm: Scripted.new(&answer/1),
      tools: %{
        list_files: fn _ -> {:ok, ["a.tmp", "b.tmp"]} end,
        delete_files: fn _ -> {:ok, "gone"} end
      },
      permission_rules: [{:deny, "delete_*", &(&1["path"] == "backups")}],
      approval: fn call, _tool_context ->
        if call.name == "list_files", do: :approve, else: :ask
      end
    ]
  end

  defp answer(context) do
    if context.current_iteration == 1,
      do: %{tool_calls: calls()},
      else:
        "The old files are a.tmp and b.tmp. I may delete neither them nor the backups; ask me again on Monday."
  end

  defp calls do
    [
      %{id: "tidy_1", name: "list_files", arguments: %{"path" => "tmp"}},
      %{id: "tidy_2", name: "delete_files", arguments: %{"path" => "tmp"}},
      %{id: "tidy_3", name: "delete_files", arguments: %{"path" => "backups"}}
    ]
  end
end
