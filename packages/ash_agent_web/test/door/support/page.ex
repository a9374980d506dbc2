defmodule AshAgent.Door.StrictPage do
  @moduledoc false

  # What a client shows of a door's events, as strictly as the real ones: a piece needs an open block, a result needs a call, and nothing
  # comes after the end.

  def new, do: %{blocks: [], open: [], calls: %{}, asked: [], said: [], step: nil, end: nil}

  def show(page \\ new(), events), do: Enum.reduce(events, page, &event(&2, &1))

  defp event(%{end: nil} = page, event), do: put(page, event)

  defp put(%{step: nil} = page, {:step_started, step}), do: %{page | step: step}
  defp put(%{step: step, open: []} = page, {:step_finished, step}), do: %{page | step: nil}

  defp put(%{step: step, open: open} = page, {kind, id})
       when kind in [:text_started, :thinking_started] and step != nil do
    [] = open
    kind = kind |> to_string() |> String.replace("_started", "") |> String.to_atom()
    blocks = if known(page, id), do: page.blocks, else: page.blocks ++ [{id, kind, ""}]
    %{page | open: [id], blocks: blocks}
  end

  defp put(%{open: [id]} = page, {kind, id}) when kind in [:text_ended, :thinking_ended],
    do: %{page | open: []}

  defp put(%{open: [id]} = page, {kind, id, text}) when kind in [:text, :thinking] do
    {^id, ^kind, before} = known(page, id)
    %{page | blocks: List.keyreplace(page.blocks, id, 0, {id, kind, before <> text})}
  end

  defp put(%{calls: calls} = page, {:call_started, id, name}) when not is_map_key(calls, id),
    do: %{page | calls: Map.put(calls, id, {name, "", nil})}

  defp put(%{calls: calls} = page, {:call_arguments, id, json}) do
    {name, before, nil} = calls[id]
    %{page | calls: %{calls | id => {name, before <> json, nil}}}
  end

  defp put(%{calls: calls} = page, {:call, id, name, arguments, told}) do
    {^name, json, nil} = calls[id]

    true =
      told == :part or (told == :none and json == "") or
        AshAgent.Context.JSON.decode!(json) == arguments

    %{page | calls: %{calls | id => {name, arguments, nil}}}
  end

  defp put(%{calls: calls} = page, {kind, id, result}) when kind in [:result, :failed, :denied] do
    {name, arguments, nil} = calls[id]
    %{page | calls: %{calls | id => {name, arguments, {kind, result}}}}
  end

  defp put(page, {kind, id, approval, _name, _arguments}) when kind in [:asked, :question] do
    {_, _, nil} = page.calls[id]
    %{page | asked: page.asked ++ [approval]}
  end

  defp put(page, {:said, id, text}), do: %{page | said: page.said ++ [{id, text}]}

  defp put(%{open: []} = page, {:dropped, {number, ordinal}, ids}) do
    prefix = "#{number}.#{ordinal}."
    true = Enum.all?(ids, &String.starts_with?(&1, prefix))

    %{
      page
      | blocks: Enum.reject(page.blocks, &(elem(&1, 0) in ids)),
        calls: Map.drop(page.calls, ids)
    }
  end

  defp put(%{open: [], step: nil} = page, {:end, outcome}), do: %{page | end: outcome}

  defp put(page, event)
       when elem(event, 0) in [
              :broken,
              :progress,
              :retry,
              :waiting,
              :value,
              :waits,
              :arrived,
              :state
            ] or
              elem(event, 0) in [:sub_agent_started, :sub_agent_ended],
       do: page

  defp known(page, id), do: List.keyfind(page.blocks, id, 0)
end
