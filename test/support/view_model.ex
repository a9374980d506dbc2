defmodule AshAgent.TestSupport.ViewModel do
  @moduledoc """
  What a view shows, as a plain list of iterations with a flag each, to be compared with a context after any operation.

  The log itself is taken from the context (`get_iteration/2`), which other tests judge. A flag is `:shown`, `:hidden` or
  `{:summary, first, last, text}`.
  """

  import ExUnit.Assertions

  alias AshAgent.Context
  alias AshAgent.TestSupport.Generators

  defstruct flags: %{}, cleared: nil, most: nil, blocks: []

  @now ~U[2026-03-01 10:00:00.000000Z]

  def new(context), do: follow(%__MODULE__{}, context)

  @doc "The model after something was added to the log: new iterations are shown."
  def follow(model, context) do
    flags = Map.new(numbers(context), &{&1, Map.get(model.flags, &1, :shown)})
    %{model | flags: flags}
  end

  ## Operations

  @doc "A random operation on the view."
  def operation(context) do
    last = context.current_iteration
    number = fn -> Generators.between(1, last + 1) end

    Generators.weighted([
      {3, fn -> {:keep_last, number.()} end},
      {2, fn -> {:remove_old, Generators.between(0, 30)} end},
      {2, fn -> {:range, Generators.between(1, last), Generators.between(0, last + 1)} end},
      {2, fn -> {:hide, number.(), Generators.between(0, 2)} end},
      {4, fn -> {:fit, Generators.between(0, 100), fit_options(last)} end},
      {3, fn -> {:drop, compact_options(last)} end},
      {5, fn -> {:summarize, summary(), compact_options(last)} end},
      {2, fn -> {:mark, number.(), Generators.between(0, 4), summary()} end},
      {4, fn -> {:expand, number.(), Generators.between(0, 4)} end},
      {1, fn -> :expand_all end},
      {3, fn -> {:clear, Generators.between(0, 4)} end},
      {2, fn -> {:most, Generators.one_of([nil, 100, 101, 150, 1000])} end},
      {2,
       fn -> {:block, Generators.one_of([:a, "b"]), Generators.one_of([nil, "x", "memory"])} end},
      {2, fn -> {:rewind, Generators.between(1, last)} end}
    ]).()
  end

  defp fit_options(last) do
    [
      step: Generators.one_of([1, 1, 2, 5, 100]),
      keep_first: Generators.one_of([0, 0, 0, 1, last]),
      keep_last: Generators.one_of([1, 1, 0, 2, last]),
      method: Generators.one_of([:auto, :estimate, :o200k_base, :cl100k_base]),
      reserve: Generators.one_of([0, 0, 10])
    ]
  end

  defp compact_options(last) do
    Generators.weighted([
      {3, fn -> [] end},
      {2, fn -> [keep_last: Generators.between(0, last)] end},
      {1, fn -> [keep_first: Generators.between(0, last)] end},
      {4,
       fn ->
         first = Generators.between(1, last)
         [range: first..(first + Generators.between(0, 3)), keep_last: 0]
       end}
    ]).()
  end

  defp summary, do: Generators.one_of(["s", "They talked.", "Ü\nand more"])

  @doc "Applies an operation to a context and its model: `{context, model}`. Refusals change neither."
  def run({context, model}, operation) do
    {next, changed} = operate(operation, context, model)
    unless match?({:rewind, _}, operation), do: assert_same_log(context, next)
    {next, changed}
  end

  defp operate({:keep_last, count}, context, model) do
    hidden = hide(model, 1, last_with_messages(context) - count)
    {Context.keep_last_iterations(context, count, at: @now), hidden}
  end

  defp operate({:remove_old, seconds}, context, model) do
    newest = Context.get_iteration(context, context.current_iteration).started_at
    before = DateTime.add(newest, -seconds)

    old =
      for %{number: number, started_at: at} <- Context.iterations(context),
          number < last_with_messages(context),
          DateTime.compare(at, before) == :lt,
          do: number

    # Runs of old iterations: a summary that reaches out of one stays.
    hidden =
      old
      |> Enum.chunk_while(
        [],
        fn
          number, [last | _] = run when number == last + 1 -> {:cont, [number | run]}
          number, [] -> {:cont, [number]}
          number, run -> {:cont, run, [number]}
        end,
        &{:cont, &1, []}
      )
      |> Enum.reject(&(&1 == []))
      |> Enum.reduce(model, fn run, model -> hide(model, List.last(run), hd(run)) end)

    {Context.hide_old_iterations(context, seconds, at: newest), hidden}
  end

  defp operate({:hide, first, more}, context, model) do
    last = first + more
    current = context.current_iteration
    pending = for call <- Context.pending_tool_calls(context), do: call.id

    try do
      next = Context.hide_iterations(context, first..last, at: @now)
      assert pending == [] or current not in first..last
      {next, hide(model, first, min(last, last_shown(context)))}
    rescue
      error in Context.Error ->
        assert error.reason == {:pending_tool_calls, pending}
        assert current in first..last
        {context, model}
    end
  end

  defp operate({:range, first, more}, context, model) do
    last = first + more
    current = context.current_iteration
    pending = for call <- Context.pending_tool_calls(context), do: call.id

    try do
      next = Context.keep_iteration_range(context, first, last, at: @now)
      assert pending == [] or current in first..last

      stop = last_shown(context)
      {next, model |> hide(last + 1, stop) |> hide(1, min(first - 1, stop))}
    rescue
      error in Context.Error ->
        assert error.reason == {:pending_tool_calls, pending}
        assert current not in first..last
        {context, model}
    end
  end

  defp operate({:fit, percent, opts}, context, model) do
    counting = Keyword.take(opts, [:method])
    count = Context.count_tokens(context, counting)
    budget = div(count * percent, 100) + opts[:reserve]
    {first, last} = may_hide(context, opts[:keep_first], opts[:keep_last])

    case Context.fit(context, budget, [at: @now] ++ opts) do
      {:ok, next, hidden} ->
        fits = Context.count_tokens(next, counting)
        assert fits <= budget - opts[:reserve]
        after_fit = read(model, next)
        gone = for n <- numbers(context), flag(model, n) != flag(after_fit, n), do: n

        assert Enum.all?(gone, &(&1 in first..last//1))
        assert Enum.all?(gone, &(flag(after_fit, &1) == :hidden))
        assert hidden == around(after_fit)
        if count <= budget - opts[:reserve], do: assert(gone == [])
        assert_oldest_first(model, after_fit, gone)
        assert_step(model, gone, last, opts[:step])

        if opts[:step] == 1,
          do: assert_least(next, model, gone, budget - opts[:reserve], counting)

        {next, after_fit}

      {:error, %Context.Error{reason: {:cannot_fit, least}}} ->
        assert least > budget - opts[:reserve]
        assert_cannot(context, model, first, last, least, counting)
        {context, model}
    end
  end

  defp operate({:drop, opts}, context, model) do
    case Context.compact(context, :drop, [at: @now] ++ opts) do
      {:ok, next, %{range: nil, strategy: :drop, reason: nil}} ->
        {next, model}

      {:ok, next, %{range: range, strategy: :drop, reason: nil}} ->
        assert_compacted(model, context, range, opts)
        {next, put(model, range, :hidden)}

      {:error, error} ->
        assert_not_compactable(error, context, opts)
        {context, model}
    end
  end

  defp operate({:summarize, text, opts}, context, model) do
    me = self()

    summarizer = fn messages ->
      send(me, {:summarized, messages})
      text
    end

    case Context.compact(context, {:summarize, summarizer}, [at: @now, check: nil] ++ opts) do
      {:ok, next, %{range: nil, strategy: :summarize}} ->
        {next, model}

      {:ok, next, %{range: range, strategy: :summarize, reason: nil}} ->
        assert_compacted(model, context, range, opts)
        assert_received {:summarized, given}
        assert_shown(model, shown_between(model, context, range), given)

        assert Context.count_tokens(next, method: :estimate) <
                 Context.count_tokens(context, method: :estimate)

        {next, put(model, range, {:summary, range.first, range.last, text})}

      {:ok, _next, %{reason: {:summary_too_long, tokens, replaced}, strategy: strategy}} ->
        assert 2 * tokens > replaced
        assert strategy in [:clear, :drop]
        assert_received {:summarized, _}
        {context, model}

      {:error, error} ->
        assert_not_compactable(error, context, opts)
        {context, model}
    end
  end

  defp operate({:mark, first, more, text}, context, model) do
    range = first..(first + more)

    try do
      next = Context.mark_as_summarized(context, range, text, at: @now)
      put = Enum.find(Context.view(next).summaries, &(first in &1))
      assert_compacted(model, context, put, range: range)
      assert Context.summary(next, first) == text
      {next, put(model, put, {:summary, put.first, put.last, text})}
    rescue
      error in Context.Error ->
        case error.reason do
          {:summary_too_long, tokens, replaced} -> assert 2 * tokens > replaced
          {:not_compactable, ^range, _} -> :ok
        end

        {context, model}
    end
  end

  defp operate({:expand, first, more}, context, model) do
    last = first + more
    met = for n <- first..last, {:summary, a, b, _} <- [flag(model, n)], k <- a..b, do: k
    numbers = Enum.to_list(first..last) ++ met

    flags =
      Map.new(model.flags, fn {n, flag} -> {n, if(n in numbers, do: :shown, else: flag)} end)

    {Context.expand(context, first..last, at: @now), %{model | flags: flags}}
  end

  defp operate(:expand_all, context, model) do
    next = Context.expand(context, :all, at: @now)
    {next, %{model | flags: Map.new(model.flags, fn {n, _} -> {n, :shown} end)}}
  end

  defp operate({:clear, keep}, context, model) do
    next = Context.clear_tool_results(context, keep: keep, placeholder: "[gone]", at: @now)

    results =
      for n <- numbers(context), flag(model, n) == :shown, slot <- slots(context, n), do: slot

    {next,
     %{
       model
       | cleared: results |> Enum.drop(-keep) |> List.last() |> in_front_of_waiting(context)
     }}
  end

  defp operate({:most, most}, context, model),
    do: {Context.put_max_result_bytes(context, most, at: @now), %{model | most: most}}

  defp operate({:block, name, text}, context, model) do
    next = Context.put_prompt_block(context, name, text, at: @now)
    name = to_string(name)

    blocks =
      cond do
        text == nil -> List.keydelete(model.blocks, name, 0)
        true -> List.keystore(model.blocks, name, 0, {name, text})
      end

    {next, %{model | blocks: blocks}}
  end

  defp operate({:rewind, to}, context, model) do
    next = Context.rewind(context, to: to)
    assert next.current_iteration == to

    for n <- 1..to,
        do: assert(Context.get_iteration(next, n) == Context.get_iteration(context, n))

    assert Context.get_iteration(next, to + 1) == nil

    if to == context.current_iteration do
      assert Context.equal?(next, context)
      {next, model}
    else
      turn = turn(context, to)

      flags =
        for n <- 1..to, into: %{} do
          case flag(model, n) do
            {:summary, _, last, _} when last >= turn -> {n, :shown}
            _ when n >= turn -> {n, :shown}
            flag -> {n, flag}
          end
        end

      cleared =
        case model.cleared do
          {n, _} when n > to -> List.last(for n <- 1..to, slot <- slots(context, n), do: slot)
          other -> other
        end

      {next, %{model | flags: flags, cleared: cleared}}
    end
  end

  # A result that comes later is shown.
  defp in_front_of_waiting(nil, _context), do: nil

  defp in_front_of_waiting({number, index}, context) do
    calls = Context.get_iteration(context, number).tool_calls
    {number, min(index, Enum.find_index(calls, &(&1.result == nil)) || index)}
  end

  # An empty iteration shows nothing: what comes next goes there.
  defp last_shown(%{current_iteration: current} = context) do
    if Context.get_iteration_messages(context, current) == [], do: current - 1, else: current
  end

  ## Flags

  def flag(model, number), do: Map.get(model.flags, number, :shown)

  # Hides a range; a summary that lies within it goes, one that reaches out of it stays.
  defp hide(model, first, last) do
    Enum.reduce(first..last//1, model, fn n, model ->
      case flag(model, n) do
        {:summary, a, b, _} when a < first or b > last ->
          model

        _ ->
          if Map.has_key?(model.flags, n),
            do: %{model | flags: Map.put(model.flags, n, :hidden)},
            else: model
      end
    end)
  end

  defp put(model, range, flag),
    do: %{model | flags: Enum.reduce(range, model.flags, &Map.put(&2, &1, flag))}

  # The flags that a view tells of.
  defp read(model, context) do
    view = Context.view(context)

    flags =
      Map.new(numbers(context), fn n ->
        cond do
          Enum.any?(view.hidden, &(n in &1)) -> {n, :hidden}
          Enum.any?(view.summaries, &(n in &1)) -> {n, flag(model, n)}
          true -> {n, :shown}
        end
      end)

    %{model | flags: flags}
  end

  defp around(model) do
    case for({n, :hidden} <- Enum.sort(model.flags), do: n) do
      [] -> nil
      hidden -> hd(hidden)..List.last(hidden)
    end
  end

  defp may_hide(context, keep_first, keep_last) do
    last = context.current_iteration
    {1 + keep_first, min(last - keep_last, turn(context, last) - 1)}
  end

  @doc "The iteration with the message of the user that began the turn of this one."
  def turn(context, number) do
    Enum.find(number..1//-1, 1, fn n ->
      context |> Context.get_iteration_messages(n) |> Enum.any?(&asks?/1)
    end)
  end

  defp asks?(%{role: :user, content: [%{type: :tool_result} | _]}), do: false
  defp asks?(%{role: role}), do: role == :user

  defp last_with_messages(context) do
    last = context.current_iteration
    if last > 1 and Context.get_iteration_messages(context, last) == [], do: last - 1, else: last
  end

  defp numbers(context), do: 1..context.current_iteration

  # The places behind the filled slots of an iteration.
  defp slots(context, number) do
    calls = Context.get_iteration(context, number).tool_calls

    for {%{result: result}, index} <- Enum.with_index(calls, 1),
        result != nil,
        do: {number, index}
  end

  ## What a fit may do

  # Only summaries stay in front of something that was hidden, unless those went, too.
  defp assert_oldest_first(before, model, gone) do
    if gone != [] do
      last = Enum.max(gone)
      first = Enum.min(gone)
      for n <- first..last, do: assert(flag(model, n) != :shown)

      summaries_gone =
        Enum.any?(gone, &(flag(before, &1) != :shown and flag(before, &1) != :hidden))

      if summaries_gone, do: for(n <- first..last, do: assert(flag(model, n) == :hidden))
    end
  end

  defp assert_step(before, gone, last, step) do
    if gone != [] do
      boundary = Enum.max(gone)
      # Behind the last shown one that went there may stand others that were not shown before.
      reach =
        Enum.take_while((boundary + 1)..last//1, &(flag(before, &1) != :shown)) |> List.last() ||
          boundary

      assert Enum.any?(boundary..reach, &(rem(&1, step) == 0)) or reach == last
    end
  end

  # One iteration less would not fit.
  defp assert_least(next, before, gone, allowed, counting) do
    if gone != [] and Enum.all?(gone, &(flag(before, &1) == :shown)) do
      boundary = Enum.max(gone)
      back = Context.expand(next, boundary..boundary)
      assert Context.count_tokens(back, counting) > allowed
    end
  end

  # What has to stay is what remains when everything that may go is hidden; a summary that reaches out of it stays.
  defp assert_cannot(context, model, first, last, least, counting) do
    out? = fn n -> match?({:summary, a, b, _} when a < first or b > last, flag(model, n)) end
    may_go = Enum.reject(first..last//1, out?)

    bare =
      Enum.reduce(may_go, context, fn n, context ->
        {:ok, next, _} = Context.compact(context, :drop, range: n..n, keep_last: 0)
        next
      end)

    assert Context.count_tokens(bare, counting) == least
  end

  ## What a compaction may do

  defp assert_compacted(model, context, range, opts) do
    {first, last} = may_hide(context, opts[:keep_first] || 0, opts[:keep_last] || 0)
    asked = opts[:range]

    if asked do
      assert asked.first in range and asked.last in range
      assert asked.first >= first and asked.last <= last
    end

    # It grew by what was not shown before only.
    inner = asked || first..last
    for n <- range, n not in inner, do: assert(flag(model, n) != :shown)
    assert range.last < turn(context, context.current_iteration)
  end

  defp assert_not_compactable(%{reason: {:not_compactable, range, allowed}}, context, opts) do
    assert range == opts[:range]
    {first, last} = may_hide(context, opts[:keep_first] || 0, opts[:keep_last] || 1)
    assert allowed == if(first <= last, do: first..last)
    if allowed, do: refute(range.first in allowed and range.last in allowed)
  end

  ## What is shown

  @doc "Asserts that a context shows what the model has, and that its log is what the numbers tell."
  def assert_view({context, model}) do
    shown = Context.to_messages(context)
    assert_shown(model, expected(model, context), shown)
    assert Context.count_messages(context) == length(shown)
    assert Context.get_all_messages(context) == shown

    view = Context.view(context)
    assert view.max_result_bytes == model.most
    assert view.blocks == model.blocks
    hidden = for {n, :hidden} <- model.flags, do: n
    assert view.hidden |> Enum.flat_map(& &1) |> Enum.sort() == Enum.sort(hidden)

    summaries = for {_, {:summary, a, b, _}} <- model.flags, uniq: true, do: a..b
    assert view.summaries == Enum.sort_by(summaries, & &1.first)

    for {n, flag} <- model.flags do
      text = with {:summary, _, _, text} <- flag, do: text
      assert Context.summary(context, n) == if(is_binary(text), do: text)
    end
  end

  # The system prompt, and what each iteration shows: `{:plain, message}` or `{:results, message, blanked}`.
  defp expected(model, context) do
    system = for message <- system(model, context), do: {:plain, message}
    system ++ shown_between(model, context, numbers(context))
  end

  defp system(model, context) do
    texts = Enum.map(model.blocks, &elem(&1, 1))
    more = Enum.join(texts, "\n\n")

    content =
      case Context.system_prompt(context) do
        prompt when texts == [] -> prompt
        nil -> more
        text when is_binary(text) -> text <> "\n\n" <> more
        parts -> parts ++ [%{type: :text, text: more}]
      end

    if content, do: [%{role: :system, content: content}], else: []
  end

  defp shown_between(model, context, range) do
    Enum.flat_map(range, fn n ->
      case flag(model, n) do
        :shown -> own(model, context, n)
        {:summary, ^n, last, text} -> [{:plain, summary_message(n, last, text)}]
        _ -> []
      end
    end)
  end

  defp summary_message(first, last, text) do
    range = if first == last, do: "iteration #{first}", else: "iterations #{first} to #{last}"

    %{
      role: :user,
      content: "[Summary of #{range} of this conversation]\n#{text}",
      metadata: %{summary: %{first: first, last: last}}
    }
  end

  # The messages of an iteration; each result knows whether it stands in front of the place up to which results are
  # blanked.
  defp own(model, context, number) do
    messages =
      context |> Context.get_iteration_messages(number) |> Enum.reject(&(&1.role == :system))

    {messages, _} =
      Enum.map_reduce(messages, slots(context, number), fn
        %{content: [%{type: :tool_result} | _] = parts} = message, slots ->
          {own, rest} = Enum.split(slots, length(parts))

          {{:results, message, Enum.map(own, &(model.cleared != nil and &1 <= model.cleared))},
           rest}

        message, slots ->
          {{:plain, message}, slots}
      end)

    messages
  end

  defp assert_shown(model, expected, shown) do
    assert length(expected) == length(shown)

    for {expected, shown} <- Enum.zip(expected, shown) do
      case expected do
        {:plain, message} ->
          assert shown == message

        {:results, message, blanked} ->
          assert Map.delete(shown, :content) == Map.delete(message, :content)
          assert length(shown.content) == length(message.content)

          for {{before, blank?}, result} <-
                Enum.zip(Enum.zip(message.content, blanked), shown.content) do
            assert Map.delete(result, :content) == Map.delete(before, :content)

            if blank?,
              do: assert(result.content == "[gone]"),
              else: assert_shortened(before.content, result.content, model.most)
          end
      end
    end
  end

  @doc "Asserts that a result is as it was, or has the beginning and the end of it in `most` bytes."
  def assert_shortened(before, result, nil), do: assert(result == before)

  def assert_shortened(before, result, most) when is_binary(before) do
    assert byte_size(result) <= max(most, 0)
    assert String.valid?(result)

    if byte_size(before) <= most do
      assert result == before
    else
      assert [head, left_out, tail] =
               Regex.run(~r/\A(.*)\n\[\.\.\. (\d+) bytes left out \.\.\.\]\n(.*)\z/s, result,
                 capture: :all_but_first
               )

      assert String.starts_with?(before, head) and String.ends_with?(before, tail)
      assert byte_size(before) == byte_size(head) + byte_size(tail) + String.to_integer(left_out)
      # A character has four bytes at most.
      assert byte_size(result) > most - 10
    end
  end

  def assert_shortened(before, result, most) when is_list(before) do
    text = &Enum.filter(&1, fn part -> part.type == :text end)
    bytes = fn parts -> parts |> Enum.map(&byte_size(Map.get(&1, :text, ""))) |> Enum.sum() end
    assert is_list(result)

    if bytes.(before) <= most do
      assert result == before
    else
      assert bytes.(result) <= most

      # What was cut is text; the rest is as it was.
      assert Enum.all?(text.(result), &(&1 in before or String.valid?(&1.text)))
      others = &Enum.reject(&1, fn part -> part.type == :text end)
      assert others.(result) == others.(before)
    end
  end

  ## The log and storage

  @doc "Asserts that two contexts have one log."
  def assert_same_log(a, b) do
    assert Context.iterations(a) == Context.iterations(b)
    assert Context.to_messages(a, view: :log) == Context.to_messages(b, view: :log)
    assert Context.get_cumulative_tokens(a) == Context.get_cumulative_tokens(b)
  end

  @methods [:auto, :estimate, :o200k_base, :cl100k_base]

  @doc "All that can be read of a context at once."
  def all(context) do
    %{
      messages: Context.to_messages(context),
      log: Context.to_messages(context, view: :log),
      view: Context.view(context),
      messages_count: Context.count_messages(context),
      tokens: for(method <- @methods, do: Context.count_tokens(context, method: method)),
      kinds: for(method <- @methods, do: Context.token_breakdown(context, method: method)),
      usage: Context.get_cumulative_tokens(context),
      ready: Context.validate_for_request(context),
      prompt: Context.to_prompt(context),
      document: Context.dump(context)
    }
  end

  @doc "Asserts that a context comes back from storage as it is, counts included."
  def assert_stored(context) do
    for copy <- [
          Context.load!(Context.dump(context)),
          Context.from_snapshot!(Context.to_snapshot(context))
        ] do
      assert Context.equal?(copy, context)
      copied = all(copy)
      for {key, value} <- all(context), do: assert({key, copied[key]} == {key, value})
    end

    for method <- @methods do
      kinds = context |> Context.token_breakdown(method: method) |> Map.values() |> Enum.sum()
      counted = if method == :auto, do: :estimate, else: method
      assert kinds == Context.count_tokens(context, method: counted)
    end
  end
end
