defmodule AshAgent.TestSupport.Replayed do
  @moduledoc false

  # Operations that the core's models wrote into test/fixtures, done with the package's functions.

  alias AshAgent.Context
  alias AshAgent.Context.{Error, JSON}

  @start 1_767_225_600_000_000
  @methods [:auto, :estimate, :cl100k_base]
  @ids ~w(a b c)

  @doc "The conversations of a file, each a list of lines."
  def read(path) do
    for text <- path |> File.read!() |> String.split("\n\n"),
        text = String.trim(text),
        text != "",
        do: for(line <- String.split(text, "\n"), do: JSON.decode!(line))
  end

  @doc """
  What a conversation of `log_operations.jsonl` or `view_operations.jsonl` becomes, step by step: `{context, step}`, where a step has
  the `:call`, the error's `:reason` or `nil`, and of both and of what is read of the context (`:state`) what the model says,
  as `:expected`. The first has none.
  """
  def play(:log, [snapshot | lines]) do
    first = snapshot |> Base.decode64!() |> Context.load!()

    lines
    |> Enum.reduce([{first, nil}], fn
      # The conversations up to here are counted without the operations that were refused.
      [_now, "fork", index], steps ->
        {context, _step} = steps |> Enum.reverse() |> Enum.reject(&refused?/1) |> Enum.at(index)
        [{context, :fork} | steps]

      [now, function, terms, refused, state], [{context, _step} | _] = steps ->
        arguments = terms |> Base.decode64!() |> :erlang.binary_to_term()
        at = DateTime.from_unix!(@start + now, :microsecond)
        {next, error} = attempt(context, fn -> log(function, context, arguments, at) end)
        step = %{call: {function, arguments}, reason: error && name(error.reason)}
        [{next, Map.put(step, :expected, {refused, state})} | steps]
    end)
    |> Enum.reverse()
  end

  def play(:view, lines) do
    first = Context.new("Hi", id: "c", system_prompt: "S", at: at(0))

    lines
    |> Enum.scan({first, nil}, fn [second, operation, refused, state], {context, _step} ->
      {next, error} = attempt(context, fn -> view(operation, context, second, at: at(second)) end)
      {next, %{call: operation, reason: error && named(error.reason), expected: {refused, state}}}
    end)
    |> then(&[{first, nil} | &1])
  end

  defp refused?({_context, step}), do: step == :fork or (step != nil and step.reason != nil)

  defp attempt(context, fun) do
    case fun.() do
      {:ok, next} -> {next, nil}
      {:error, error} -> {context, error}
      next -> {next, nil}
    end
  rescue
    error in Error -> {context, error}
  end

  defp name(reason) when is_tuple(reason), do: reason |> elem(0) |> name()
  defp name(reason), do: Atom.to_string(reason)

  defp named({:not_compactable, range, _allowed}),
    do: ["not_compactable", range.first, range.last]

  defp named({:pending_tool_calls, _ids}), do: ["pending_tool_calls"]
  defp named({:unknown_iteration, number, _range}), do: ["unknown_iteration", number]
  defp named(reason) when is_tuple(reason), do: [name(reason) | tl(Tuple.to_list(reason))]
  defp named(reason), do: [name(reason)]

  ## The log

  defp log("rewind", context, [to], _at), do: Context.rewind(context, to: to)

  defp log("reload", context, [], _at),
    do: context |> Context.to_snapshot() |> Context.load!()

  defp log("interrupt", context, [reason], at), do: Context.interrupt(context, reason, at: at)

  defp log("approve_tool_call", context, [id, by], at),
    do: Context.Calls.approve_tool_call(context, id, by: by, at: at)

  defp log("deny_tool_call", context, [id, reason], at),
    do: Context.Calls.deny_tool_call(context, id, reason, at: at)

  defp log("put_system_prompt", context, [prompt], at),
    do: Context.put_system_prompt(context, prompt, at: at)

  defp log("put_metadata", context, [key, value], at),
    do: Context.put_metadata(context, key, value, at: at)

  defp log("put_iteration_metadata", context, [number, key, value], at),
    do: Context.put_iteration_metadata(context, number, key, value, at: at)

  defp log("add_user_message", context, [input, note], at),
    do: Context.add_user_message(context, input, stamp(note, at))

  defp log("add_assistant_message", context, [content, calls, note], at),
    do: Context.add_assistant_message(context, content, calls, stamp(note, at))

  defp log("add_tool_results", context, [results, note], at),
    do: Context.add_tool_results(context, results, stamp(note, at))

  defp stamp(nil, at), do: [at: at]
  defp stamp(note, at), do: [at: at, metadata: note]

  ## The view

  @doc "How the models count tokens."
  def methods, do: @methods

  defp at(second), do: DateTime.from_unix!(second * 1_000_000, :microsecond)
  defp words(length), do: "word and " |> String.duplicate(50) |> binary_part(0, length)
  defp result(id, length), do: {id, {:ok, words(length)}}

  defp view(["user", length], context, _second, at),
    do: Context.add_user_message(context, words(length), at)

  defp view(["assistant", length], context, _second, at),
    do: Context.add_assistant_message(context, words(length), [], at)

  defp view(["tool", count, length], context, _second, at) do
    ids = Enum.take(@ids, count)
    calls = for id <- ids, do: %{id: id, name: "read"}
    asked = Context.add_assistant_message(context, nil, calls, at)

    if length,
      do: Context.add_tool_results(asked, Enum.map(ids, &result(&1, length)), at),
      else: asked
  end

  defp view(["answer", length], context, _second, at) do
    pending = Context.pending_tool_calls(context)
    %{id: id} = if rem(length, 2) == 1, do: List.last(pending), else: hd(pending)
    Context.add_tool_results(context, [result(id, length)], at)
  end

  defp view(["interrupt"], context, _second, at), do: Context.interrupt(context, "stop", at)

  defp view(["usage", tokens], context, _second, at),
    do: Context.Tokens.add_token_usage(context, %{input_tokens: tokens, output_tokens: 7}, at)

  defp view(["keep_last", count], context, _second, at),
    do: Context.View.hide(context, {:all_but_last, count}, at)

  defp view(["remove_old", seconds], context, second, at),
    do: Context.View.hide(context, {:older_than, min(seconds, second)}, at)

  defp view(["range", first, last], context, _second, at),
    do: Context.View.hide(context, {:all_but, first..last}, at)

  defp view(["hide", first, last], context, _second, at),
    do: Context.View.hide(context, first..last//1, at)

  defp view(["fit", [percent, reserve], [first, last], step, how], context, _second, at) do
    method = Enum.at(@methods, how)
    budget = div(Context.Tokens.count_tokens(context, method: method) * percent, 100) + reserve
    keep = [reserve: reserve, keep_first: first, keep_last: last]

    with {:ok, next, hidden} <-
           Context.View.fit(context, budget, keep ++ [step: step, method: method] ++ at) do
      # What it returns is what is hidden then.
      numbers = next |> Context.View.view() |> Map.fetch!(:hidden) |> Enum.flat_map(& &1)
      ^hidden = if(numbers != [], do: Range.new(hd(numbers), List.last(numbers)))
      {:ok, next}
    end
  end

  defp view(["drop", first, last], context, _second, at) do
    keep = [range: first..last//1, keep_first: 0, keep_last: 0]
    with {:ok, next, _info} <- Context.View.compact(context, :drop, keep ++ at), do: {:ok, next}
  end

  defp view(["summarize", first, last, length], context, _second, at),
    do: Context.View.mark_as_summarized(context, first..last//1, "s" <> words(length), at)

  defp view(["expand", first, last], context, _second, at),
    do: Context.View.expand(context, first..last//1, at)

  defp view(["clear", keep], context, _second, at),
    do: Context.View.clear_tool_results(context, [keep: keep, placeholder: "-"] ++ at)

  defp view(["most", most], context, _second, at),
    do: Context.View.put_max_result_bytes(context, most, at)

  defp view(["mask", on?], context, _second, at),
    do: Context.View.put_masks(context, if(on?, do: [{"and ", ""}], else: []), at)

  defp view(["block", on?], context, _second, at),
    do: Context.View.put_prompt_block(context, "b", if(on?, do: "block"), at)

  defp view(["rewind", to], context, _second, _at), do: Context.rewind(context, to: to)

  defp view(["count", how], context, _second, _at) do
    Context.Tokens.count_tokens(context, method: Enum.at(@methods, how))
    context
  end

  defp view(["store"], context, _second, _at),
    do: context |> Context.to_snapshot() |> Context.load!()
end
