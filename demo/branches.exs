defmodule AshAgent.Demo.Branches do
  @moduledoc false

  # The same conversation in two branches, with two system prompts, and the second asked again.

  import AshAgent.Demo.Terminal

  alias AshAgent.{ChatContext, Context, Runtime}
  alias AshAgent.Demo.Playback
  alias AshAgent.LLM.Scripted

  @question "In one sentence: what was this about?"
  @prompt "You answer in rhymes."

  def show(context) do
    headline("Branches: the same question under another system prompt")
    chat = ChatContext.new(context: Playback.idle(context))
    {us, branched} = timed(fn -> ChatContext.branch(chat, "rhymes", system_prompt: @prompt) end)

    IO.puts(
      "  branch/3         #{time(us)}, no message of #{grouped(messages(chat, "main"))} is copied"
    )

    answered = branched |> ask("main") |> ask("rhymes")
    for branch <- ChatContext.branches(answered), do: show_branch(branch)

    [one, two] = for chat <- [chat, answered], do: byte_size(ChatContext.to_snapshot(chat))

    IO.puts(
      "\n  One branch is stored as #{bytes(one)}, the two with their answers as #{bytes(two)}."
    )

    IO.puts("  The chat before it all is as it was: #{inspect(chat)}")
    answered
  end

  defp messages(chat, name), do: Context.count_messages(chat.branches[name].context)

  # An answer belongs to the branch that was asked, whichever is the active one by then.
  defp ask(chat, name) do
    ChatContext.update_context(
      chat,
      fn context ->
        {:ok, result} =
          context
          |> Context.add_user_message(@question)
          |> Runtime.run(llm: Scripted.new(&answer/1))

        result.context
      end,
      branch: name
    )
  end

  defp answer(context) do
    if Context.system_prompt(context) == @prompt,
      do: "A trip was planned from start to end, with every tool a helpful friend.",
      else: "A journey was planned with the help of a few tools."
  end

  defp show_branch(branch) do
    prompt = text(branch.system_prompt)

    IO.puts(
      "\n" <>
        bright("  #{branch.name}") <>
        clip("  (#{if prompt == "", do: "no system prompt", else: prompt})", 17)
    )

    branch.context |> Context.to_messages() |> Enum.take(-2) |> Enum.each(&show_message/1)
  end
end
