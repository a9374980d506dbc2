# An agent that looks for a train, asks a person, books it, and dies while it mails the ticket; another VM goes on. bin/demo
# calls both halves, each with the arguments of a real model or none:
#
#     cd packages/ash_agent_runtime && mix run ../../demo/story.exs begin FOLDER [--url URL --model NAME [--key ENV_VAR]]
#     cd packages/ash_agent_runtime && mix run ../../demo/story.exs go_on FOLDER [..]

for file <- ~w(terminal model), do: Code.require_file("#{file}.exs", __DIR__)

defmodule AshAgent.Demo.Story do
  @moduledoc false

  import AshAgent.Demo.Terminal

  alias AshAgent.{Context, LLM, Runtime, Store, Trace}
  alias AshAgent.Demo.Model

  @id "a trip"
  @question "Find me a train to Prague, book it, and mail me the ticket."
  @prompt "You book trains. Find a train, book it, then mail the ticket, one tool at a time. If you cannot know whether something " <>
            "was done, say so instead of doing it again."
  # The second VM is the same owner, so that it need not wait for the first one's lease to end.
  @owner "demo"

  def main(["begin", folder | args]) do
    headline("An agent books a train: a tool, a person who is asked, a typed answer, and a crash")
    llm = Model.parse(args) || LLM.Scripted.new(&script/1)
    store = open(folder)

    {:ok, kept} =
      Store.create(store, Context.new(@question, id: @id, system_prompt: @prompt), owner: @owner)

    show_message(%{role: :user, content: @question})

    # The mail goes out, and the machine stops before anybody hears of it.
    run(llm, store, kept, folder, fn -> System.cmd("kill", ["-9", System.pid()]) end)
    IO.puts("\nThis model has not called send_mail, with which the machine stops.")
  end

  def main(["go_on", folder | args]) do
    llm = Model.parse(args) || LLM.Scripted.new(&script/1)
    store = open(folder)
    {:ok, kept} = Store.claim(store, @id, owner: @owner, reclaim: true)
    {:ok, calls} = Store.calls(store, @id)

    IO.puts(
      "\n#{red("The VM is dead.")} Another one, with the PID #{System.pid()}, finds this in the store:\n"
    )

    table(
      ["call", "state"],
      for(
        %{call: call, state: state} <- Enum.sort_by(calls, & &1.call.id),
        do: [call.name, "#{state}"]
      )
    )

    IO.puts("")

    result = run(llm, store, kept, folder, fn -> :ok end)
    IO.puts("\n#{bright("The answer, with its type:")} #{inspect(result.output)}")

    IO.puts(
      "#{bright("Outside, this was done:")} #{folder |> ledger() |> File.read!() |> String.split("\n", trim: true) |> Enum.join("; ")}"
    )

    write_page(result.context, System.get_env("DEMO_HTML"))
  end

  defp write_page(_context, nil), do: :ok

  defp write_page(context, page) do
    html = Trace.to_html(context, title: "A trip", request: :anthropic)
    File.write!(page, html)
    IO.puts("#{bright("Its page:")} #{page}, #{bytes(byte_size(html))}")
  end

  defp open(folder) do
    {:ok, store} = Store.SQLite.open(Path.join(folder, "store.db"))
    store
  end

  defp run(llm, store, kept, folder, die) do
    opts = [
      llm: llm,
      tools: tools(folder, die),
      max_concurrency: 1,
      store: store,
      on_change: &show_change/1
    ]

    opts = opts ++ [approval: &approval/2, output: answer()]
    finish(Runtime.run(kept.value, [kept: kept] ++ opts), opts)
  end

  defp finish({:ok, result}, _opts), do: result

  defp finish({:paused, paused}, opts) do
    {context, _unknown} = Enum.reduce(paused.calls, {paused.context, paused.unknown}, &decide/2)
    finish(Runtime.resume(context, [kept: paused.kept] ++ opts), opts)
  end

  defp finish({:error, error}, _opts), do: stop(words(error))

  # Money is spent with a person's word alone.
  defp approval(%{name: "book_train"}, _tool_context), do: :ask
  defp approval(_call, _tool_context), do: :approve

  defp decide(call, {context, unknown}) do
    if call.id in unknown do
      ask(
        "#{call.name} was started, and nobody knows how it ended. Again? She finds the mail, and says no."
      )

      {Context.Calls.deny_tool_call(context, call.id, "The mail is there: it was sent", by: "Ann"),
       unknown}
    else
      ask("May it call #{call.name} #{inspect(call.arguments)}? She says yes.")
      {Context.Calls.approve_tool_call(context, call.id, by: "Ann"), unknown}
    end
  end

  defp ask(words), do: IO.puts(bright("  Ann is asked   ") <> words)

  defp answer, do: [train: :string, booked: :boolean, mail: {:in, [:sent, :not_sent, :unknown]}]

  # The calls of the model, and each result once.
  defp show_change(context) do
    case context |> Context.to_messages() |> List.last() do
      %{tool_calls: _} = message ->
        if Process.put(:called, message) != message, do: show_message(message)

      %{content: [%{type: :tool_result} | _] = results} ->
        show_results(results)

      _message ->
        :ok
    end
  end

  defp show_results(results) do
    new = Enum.reject(results, &(&1.tool_use_id in Process.get(:shown, [])))
    Process.put(:shown, Enum.map(results, & &1.tool_use_id))
    if new != [], do: show_message(%{content: new})
  end

  # ---- the tools, whose effects are lines of a file outside the store

  defp tools(folder, die) do
    %{
      find_train: %{
        function: fn _ -> {:ok, "EC 173, 8:26"} end,
        description: "Finds the next train to a city",
        parameters: parameters(:to),
        repeat: :safe
      },
      book_train: %{
        function: fn _, %{idempotency_key: key} ->
          {:ok, write_effect(folder, "booked EC 173", key)}
        end,
        description: "Books a train",
        parameters: parameters(:train),
        repeat: {:ask, fn _call, key -> booked(folder, key) end}
      },
      send_mail: %{
        function: fn _, %{idempotency_key: key} ->
          write_effect(folder, "sent the mail", key)
          die.()
          {:ok, "sent"}
        end,
        description: "Mails the ticket of a booked train to the user",
        parameters: parameters(:train)
      }
    }
  end

  defp parameters(name),
    do: %{type: :object, properties: %{name => %{type: :string}}, required: [name]}

  defp write_effect(folder, what, key) do
    File.write!(ledger(folder), "#{what}, key #{String.slice(key, 0, 12)}\n", [:append])
    what
  end

  defp booked(folder, key) do
    if File.read!(ledger(folder)) =~ "booked EC 173, key " <> String.slice(key, 0, 12),
      do: {:done, {:ok, "booked EC 173"}},
      else: :not_done
  end

  defp ledger(folder), do: Path.join(folder, "ledger")

  # ---- the script of the model that is none

  defp script(%{current_iteration: 1}), do: call("1", "find_train", %{"to" => "Prague"})
  defp script(%{current_iteration: 2}), do: call("2", "book_train", %{"train" => "EC 173"})
  defp script(%{current_iteration: 3}), do: call("3", "send_mail", %{"train" => "EC 173"})
  defp script(_context), do: ~s({"train": "EC 173, 8:26", "booked": true, "mail": "sent"})

  defp call(id, name, arguments), do: %{tool_calls: [%{id: id, name: name, arguments: arguments}]}

  defp words(%{reason: {:llm_error, %{reason: {:connection, :econnrefused}}}}),
    do: "no server answers at the address that --url names: start it, then run this again"

  defp words(%{reason: {:llm_error, %{reason: {:connection, reason}}}})
       when reason in [:nxdomain, :ehostunreach, :enetunreach],
       do: "the host that --url names cannot be reached (#{reason})"

  defp words(error), do: Exception.message(error)
end

AshAgent.Demo.Story.main(System.argv())
