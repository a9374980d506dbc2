defmodule AshAgent.Soak.Growing do
  @moduledoc "Operations that make a conversation longer, and those that put something on it."

  import AshAgent.Soak.Call, only: [call: 2, expect: 2]
  import AshAgent.TestSupport.Generators, only: [between: 2, chance: 1, one_of: 1, weighted: 1]

  alias AshAgent.Context
  alias AshAgent.Soak.{Pool, Texts}
  alias AshAgent.TestSupport.Generators

  @doc "The next thing that happens in a conversation."
  def step({_, context, _, _} = session) do
    case call(:pending_tool_calls, fn -> Context.pending_tool_calls(context) end) do
      [_ | _] = pending -> answer(session, Enum.map(pending, & &1.id))
      _none -> speak(session)
    end
  end

  defp speak(session) do
    weighted([
      {4, fn -> user(session) end},
      {2, fn -> assistant(session, []) end},
      {6, fn -> assistant(session, Texts.calls()) end}
    ]).()
  end

  def user({_, context, _, _} = session) do
    text = if chance(5), do: Generators.user_parts(), else: Texts.question()
    more = Texts.size(text)
    continue(session, :add_user_message, more, fn -> Context.add_user_message(context, text) end)
  end

  defp assistant({_, context, _, _} = session, calls) do
    text = Texts.answer()
    opts = if chance(5), do: [metadata: %{model: "m1", trace: text}], else: []
    more = Texts.size(text) + 100 * length(calls)

    continue(session, :add_assistant_message, more, fn ->
      Context.add_assistant_message(context, text, calls, opts)
    end)
  end

  # ---- answers to calls, right and wrong

  defp answer(session, ids) do
    weighted([
      {20, fn -> results(session, Enum.shuffle(ids)) end},
      {4, fn -> results(session, Enum.take(ids, 1)) end},
      {1, fn -> wrong(session, ["nobody" | ids]) end},
      {1, fn -> wrong(session, [hd(ids) | ids]) end},
      {1, fn -> wrong(session, []) end},
      {1, fn -> too_early(session) end},
      {2, fn -> interrupt(session) end},
      {2, fn -> approve(session, hd(ids)) end},
      {2, fn -> deny(session, hd(ids)) end}
    ]).()
  end

  defp results({_, context, _, _} = session, ids) do
    results = for id <- ids, do: %{id: id, result: Texts.result()}
    more = Enum.sum(for %{result: {_, value}} <- results, do: Texts.size(value))

    continue(session, :add_tool_results, more, fn ->
      Context.add_tool_results(context, results)
    end)
  end

  # All or nothing: one wrong result refuses all of them.
  defp wrong({_, context, _, _} = session, ids) do
    results = for id <- ids, do: {id, {:ok, "done"}}
    refused = call(:add_tool_results_wrong, fn -> Context.add_tool_results(context, results) end)
    expect(refused == :refused, "wrong results were taken: #{inspect(ids)}")
    session
  end

  defp too_early({_, context, _, _} = session) do
    refused = call(:add_message_too_early, fn -> Context.add_user_message(context, "Hello?") end)
    expect(refused == :refused, "a message was taken while calls are pending")
    session
  end

  defp interrupt({_, context, _, _} = session) do
    status = one_of([:interrupted, :cancelled])

    continue(session, :interrupt, 50, fn ->
      Context.interrupt(context, "stopped by the user", status: status)
    end)
  end

  defp approve({_, context, _, _} = session, id) do
    session =
      continue(session, :approve_tool_call, 50, fn ->
        Context.Calls.approve_tool_call(context, id, by: "ann")
      end)

    call(:tool_call_status, fn -> Context.Calls.tool_call_status(elem(session, 1), id) end)
    session
  end

  defp deny({_, context, _, _} = session, id) do
    continue(session, :deny_tool_call, 50, fn ->
      Context.Calls.deny_tool_call(context, id, "not on Fridays")
    end)
  end

  # ---- what is put on a conversation

  def metadata({_, context, _, _} = session) do
    value = if chance(20), do: Generators.term(8), else: Texts.text(5, 200)
    key = one_of([:user, "user", :trace])
    number = between(1, context.current_iteration)

    session =
      continue(session, :put_metadata, 0, fn -> Context.put_metadata(context, key, value) end)

    continue(session, :put_iteration_metadata, 0, fn ->
      Context.put_iteration_metadata(elem(session, 1), number, key, value)
    end)
  end

  def usage({_, context, _, _} = session) do
    usage =
      one_of([
        %{"prompt_tokens" => between(1, 9_000), "completion_tokens" => between(1, 900)},
        %{input_tokens: between(1, 9_000), output_tokens: between(1, 900)},
        %{"input_tokens" => 7, "output_tokens" => 8, "cache_read_input_tokens" => 100}
      ])

    continue(session, :add_token_usage, 0, fn ->
      Context.Tokens.add_token_usage(context, usage)
    end)
  end

  def system_prompt({_, context, _, _} = session) do
    prompt = if chance(20), do: nil, else: Texts.text(50, 2_000)

    continue(session, :put_system_prompt, 0, fn ->
      Context.put_system_prompt(context, prompt)
    end)
  end

  def rewind({_, context, bytes, limit} = session) do
    to = between(max(context.current_iteration - 3, 1), context.current_iteration)

    case call(:rewind, fn -> Context.rewind(context, to: to) end) do
      :refused -> session
      rewound -> {elem(session, 0), rewound, bytes, limit}
    end
  end

  defp continue(session, name, more, fun), do: Pool.continue(session, call(name, fun), more)
end
