defmodule AshAgent.Soak.Viewing do
  @moduledoc "Operations that change what of a conversation is in view."

  import AshAgent.Soak.Call, only: [call: 2]
  import AshAgent.TestSupport.Generators, only: [between: 2, one_of: 1]

  alias AshAgent.Context
  alias AshAgent.Soak.{Pool, Texts}

  def fit({_, context, bytes, _} = session) do
    opts = [keep_first: one_of([0, 1]), step: one_of([1, 5])]

    case call(:fit, fn -> Context.View.fit(context, div(bytes, between(4, 12)), opts) end) do
      {:ok, fitted, _hidden} -> Pool.continue(session, fitted, 0)
      :refused -> session
    end
  end

  def compact({_, context, _, _} = session) do
    {name, strategy} =
      one_of([
        {:compact_drop, :drop},
        {:compact_summarize, {:summarize, fn messages -> "#{length(messages)} messages." end}},
        {:compact_failing, {:summarize, fn _messages -> raise "the model is away" end}},
        {:compact_failing, {:summarize, fn _messages -> throw(:away) end}},
        {:compact_failing, {:summarize, fn _messages -> {:error, :away} end}},
        {:compact_too_long, {:summarize, fn _messages -> {:ok, Texts.text(8_000, 9_000)} end}}
      ])

    case call(name, fn -> Context.View.compact(context, strategy, keep_last: between(0, 3)) end) do
      {:ok, compacted, _info} -> Pool.continue(session, compacted, 0)
      :refused -> session
    end
  end

  def expand({_, context, _, _} = session) do
    last = context.current_iteration
    range = one_of([:all, :all, last, max(last - 5, 1)..last])
    change(session, :expand, fn -> Context.View.expand(context, range) end)
  end

  def keep_last({_, context, _, _} = session) do
    count = between(1, 20)

    change(session, :keep_last_iterations, fn ->
      Context.View.hide(context, {:all_but_last, count})
    end)
  end

  def clear({_, context, _, _} = session) do
    keep = between(0, 5)

    change(session, :clear_tool_results, fn ->
      Context.View.clear_tool_results(context, keep: keep)
    end)
  end

  def shorten({_, context, _, _} = session) do
    bytes = one_of([nil, nil, 200, 2_000])

    change(session, :put_max_result_bytes, fn ->
      Context.View.put_max_result_bytes(context, bytes)
    end)
  end

  def mask({_, context, _, _} = session) do
    masks =
      one_of([
        [],
        [],
        [{~S"\b\d{4,}\b", "[number]"}],
        [{~r/caf[eé]/, "[place]"}, {"(?i)zürich", ""}]
      ])

    change(session, :put_masks, fn -> Context.View.put_masks(context, masks) end)
  end

  def block({_, context, _, _} = session) do
    {name, text} = {one_of([:memory, "rules"]), one_of([nil, Texts.text(10, 500)])}

    change(session, :put_prompt_block, fn ->
      Context.View.put_prompt_block(context, name, text)
    end)
  end

  defp change(session, name, fun), do: Pool.continue(session, call(name, fun), 0)
end
