defmodule AshAgent.Store.Conformance.Random do
  @moduledoc false
  # Seeded changes of conversations, for the tests above.

  alias AshAgent.{ChatContext, Context}

  def each_case(name, count, function) do
    seed = ExUnit.configuration()[:seed]

    for number <- 1..count do
      :rand.seed(:exsss, {seed, :erlang.phash2(name), number})
      function.()
    end
  end

  def one_of(list), do: Enum.at(list, :rand.uniform(length(list)) - 1)
  def chance?(percent), do: :rand.uniform(100) <= percent

  @doc "Another state of a context; what the context does not allow is another change instead."
  def change(context) do
    change(context, :rand.uniform(18))
  rescue
    Context.Error -> Context.put_metadata(context, :again, :rand.uniform(1000))
  end

  defp change(context, at) when at <= 4 do
    if Context.pending_tool_calls(context) == [],
      do: Context.add_user_message(context, text()),
      else: answer(context)
  end

  defp change(context, at) when at <= 6, do: Context.add_assistant_message(context, text())

  defp change(context, at) when at <= 8 do
    calls =
      for number <- 1..:rand.uniform(3) do
        id = "call_#{number}_#{:rand.uniform(9999)}"
        %{id: id, name: :pay, arguments: %{"n" => number}}
      end

    Context.add_assistant_message(context, nil, calls)
  end

  defp change(context, 9),
    do: Context.rewind(context, to: :rand.uniform(context.current_iteration))

  defp change(context, 10) do
    number = :rand.uniform(context.current_iteration)
    Context.put_iteration_metadata(context, number, :note, :rand.uniform(99))
  end

  defp change(context, 11) do
    usage = %{input_tokens: :rand.uniform(99), output_tokens: 3}
    Context.Tokens.add_token_usage(context, usage)
  end

  defp change(context, 12), do: Context.put_metadata(context, one_of([:a, "b"]), text())
  defp change(context, 13), do: Context.View.hide(context, {:all_but_last, :rand.uniform(3)})

  defp change(context, 14) do
    [%{id: id} | _] = Context.pending_tool_calls(context) ++ [%{id: "none"}]

    if chance?(50),
      do: Context.Calls.approve_tool_call(context, id, by: "ann"),
      else: Context.Calls.deny_tool_call(context, id, "no")
  end

  defp change(context, 15), do: Context.interrupt(context, text())
  defp change(context, 16), do: Context.put_system_prompt(context, text())

  defp change(context, 17) do
    cleared = Context.View.clear_tool_results(context)
    Context.View.put_prompt_block(cleared, "now", "#{:rand.uniform(99)}")
  end

  defp change(context, _), do: Context.View.put_masks(context, [{"fox", "***"}])

  defp answer(context) do
    answers =
      for call <- Context.pending_tool_calls(context), chance?(60), do: {call.id, {:ok, text()}}

    if answers == [],
      do: Context.interrupt(context),
      else: Context.add_tool_results(context, answers)
  end

  defp text do
    words = ["fox", "\u{0}", "'quoted'", <<255>>, "ü", String.duplicate("long ", 50)]
    one_of(words) <> Integer.to_string(:rand.uniform(9999))
  end

  @doc "Another state of a chat."
  def change_chat(chat) do
    names = chat |> ChatContext.branches() |> Enum.map(& &1.name)
    change_chat(chat, :rand.uniform(12), names)
  rescue
    Context.Error -> ChatContext.put_config(chat, max_turns: :rand.uniform(1000))
  end

  defp change_chat(chat, at, names) when at <= 6,
    do: ChatContext.update_context(chat, &change/1, branch: one_of(names))

  defp change_chat(chat, at, names) when at <= 8 do
    branch = chat.branches[one_of(names)]
    place = [from: branch.name, iteration: :rand.uniform(branch.context.current_iteration)]
    ChatContext.branch(chat, "branch #{:rand.uniform(9999)}", place)
  end

  defp change_chat(chat, 9, names), do: ChatContext.switch(chat, one_of(names))
  defp change_chat(chat, 10, names), do: ChatContext.delete_branch(chat, one_of(names))

  defp change_chat(chat, 11, names),
    do: ChatContext.rename_branch(chat, one_of(names), "name \u{0} #{:rand.uniform(9999)}")

  defp change_chat(chat, _at, _names),
    do: ChatContext.put_config(chat, max_turns: :rand.uniform(9))
end
