# Does any function of AshAgent.Context hold a scheduler for a millisecond? Calls each of them on contexts of 10 MB while
# the VM reports every process that was scheduled for 1 ms or longer without a break:
#
#     MIX_ENV=prod mix run bench/schedulers.exs
#
# The operating system may take the processor from a scheduler in the middle of anything, which is reported just the same.
# The VM itself takes long to collect many binaries. So each run is followed by a control that is as long, makes the same
# terms with :erlang.binary_to_term/1 and calls none of our functions. On a busy machine, run it as root under
# `chrt --fifo 1`, where other processes do not interrupt it (but Linux itself does, for 50 ms in a second).

defmodule AshAgent.Bench.Schedulers do
  @moduledoc false

  alias AshAgent.Context

  @quick System.get_env("BENCH_QUICK") == "1"
  @megabytes if @quick, do: 1, else: 10
  # Each function is called for this long, and at least this often.
  @run_ms if @quick, do: 10, else: 200
  @least_calls if @quick, do: 2, else: 5

  def main do
    :erlang.system_monitor(self(), [{:long_schedule, 1}])

    IO.puts(
      "Times a process was scheduled for 1 ms or longer: with our functions, and in a control.\n"
    )

    counts =
      for {shape, make} <- shapes() do
        context = make.()
        IO.puts("#{shape}: #{inspect(context)}")

        totals =
          for {name, fun} <- functions(context) do
            {calls, ms, ours} = watch(fn -> repeat(fun, deadline(@run_ms), 0) end)
            control = control(fun)
            {_calls, _ms, control} = watch(fn -> repeat(control, deadline(ms), 0) end)
            report(name, calls, ours, control)
            {length(ours), length(control)}
          end

        IO.puts("")
        totals
      end

    {ours, control} = counts |> List.flatten() |> Enum.unzip()
    IO.puts("In all: #{Enum.sum(ours)} with our functions, #{Enum.sum(control)} in the control.")
    uncovered()
  end

  # ---- contexts of 10 MB, each large in another way

  defp shapes do
    [
      {"many iterations (an answer of 2 KB with a call and its result each)", &many_iterations/0},
      {"one iteration (answers of 2 KB)", &one_iteration/0},
      {"one message (a text of 10 MB)", fn -> Context.new(text(@megabytes * 1024 * 1024)) end},
      {"many calls (one answer with 256 bytes of arguments each)", &many_calls/0},
      {"many small messages (of 20 bytes)", &many_small_messages/0}
    ]
  end

  defp many_iterations do
    for i <- 1..(@megabytes * 512), reduce: Context.new("start") do
      context ->
        context
        |> Context.add_assistant_message(text(2048), [call("call_#{i}", 16)])
        |> Context.add_tool_results([{"call_#{i}", {:ok, "found"}}])
    end
  end

  defp one_iteration do
    for _ <- 1..(@megabytes * 512), reduce: Context.new("start") do
      context -> Context.add_assistant_message(context, text(2048))
    end
  end

  defp many_calls do
    ids = for i <- 1..(@megabytes * 4096), do: "call_#{i}"

    Context.new("start")
    |> Context.add_assistant_message(nil, Enum.map(ids, &call(&1, 256)))
    |> Context.add_tool_results(Enum.map(ids, &{&1, {:ok, "found"}}))
  end

  defp many_small_messages do
    for _ <- 1..(@megabytes * 5_000), reduce: Context.new("start") do
      context ->
        context
        |> Context.add_assistant_message("twenty bytes of text")
        |> Context.add_user_message("and twenty of answer")
    end
  end

  defp text(bytes), do: String.duplicate("x", bytes)
  defp call(id, bytes), do: %{id: id, name: :search, arguments: %{query: text(bytes)}}

  # ---- every function, with the arguments that make it work hardest

  defp functions(context) do
    map = Context.to_map(context)
    messages = Context.to_messages(context)
    first = hd(map.iterations)
    twin = Context.create!(map)
    json = first |> Map.take([:messages]) |> Context.JSON.encode() |> IO.iodata_to_binary()

    chat =
      for %{role: role, content: content} when is_binary(content) <- messages,
          do: %{role: role, content: content}

    dump = Context.dump(context)
    snapshot = Context.to_snapshot(context)
    delta = Context.dump(context, since: context.current_iteration)
    request = Context.request!(context, :openai_chat, pending: :interrupt)

    body = fn provider ->
      fn -> Context.encode_request(context, provider, pending: :interrupt) end
    end

    # A model of its own each time, so that nothing is encoded yet.
    new_model = fn -> "m#{System.unique_integer([:positive])}" end

    big = text(@megabytes * 1024 * 1024)
    calls = for i <- 1..10_000, do: call("new_#{i}", 256)
    results = for %{id: id} <- calls, do: %{id: id, result: {:ok, text(256)}}
    waiting = Context.add_assistant_message(context, "", calls)
    short = context |> Context.interrupt() |> Context.add_user_message("go on")
    usage = %{input_tokens: 10, output_tokens: 10}
    # Ever another one, so that nothing is counted yet.
    uncounted = fn -> Context.add_user_message(short, "#{System.unique_integer()}") end

    view_functions(context, short, waiting, dump) ++
      [
        {"new/2", fn -> Context.new(big, system_prompt: big) end},
        {"add_user_message/2", fn -> Context.add_user_message(context, "hello") end},
        {"add_user_message/2 of 10 MB", fn -> Context.add_user_message(context, big) end},
        {"add_assistant_message/3",
         fn -> Context.add_assistant_message(context, "hello", [call("new", 16)]) end},
        {"add_assistant_message/3 of 10 MB",
         fn -> Context.add_assistant_message(context, big) end},
        {"add_assistant_message/3 with 10000 calls",
         fn -> Context.add_assistant_message(context, nil, calls) end},
        {"add_tool_results/2, one of 10000",
         fn -> Context.add_tool_results(waiting, [hd(results)]) end},
        {"add_tool_results/2, all 10000", fn -> Context.add_tool_results(waiting, results) end},
        {"interrupt/2 of 10000", fn -> Context.interrupt(waiting, "stopped") end},
        {"extract_tool_calls/1 of 10000", fn -> Context.extract_tool_calls(waiting) end},
        {"pending_tool_calls/1 of 10000", fn -> Context.pending_tool_calls(waiting) end},
        {"to_messages/1", fn -> Context.to_messages(context) end},
        {"get_all_messages/1", fn -> Context.get_all_messages(context) end},
        {"get_iteration/2", fn -> Context.get_iteration(context, first.number) end},
        {"get_iteration_messages/2",
         fn -> Context.get_iteration_messages(context, first.number) end},
        {"iterations/1", fn -> Context.iterations(context) end},
        {"count_iterations/1", fn -> Context.count_iterations(context) end},
        {"count_messages/1", fn -> Context.count_messages(context) end},
        {"fetch_message/2",
         fn -> Context.fetch_message(context, {first.number, length(first.messages) - 1}) end},
        {"exceeded_max_iterations?/2", fn -> Context.exceeded_max_iterations?(context, 10) end},
        {"create/1", fn -> Context.create(map) end},
        {"create!/1, dropped at once", fn -> Context.create!(map) end},
        {"update/2", fn -> Context.update(context, %{iterations: map.iterations}) end},
        {"update!/2", fn -> Context.update!(context, %{metadata: %{big: big}}) end},
        {"to_map/1", fn -> Context.to_map(context) end},
        {"equal?/2", fn -> Context.equal?(context, twin) end},
        {"put_metadata/3", fn -> Context.put_metadata(context, :key, messages) end},
        {"put_iteration_metadata/4",
         fn -> Context.put_iteration_metadata(context, first.number, :key, messages) end},
        {"metadata/1", fn -> Context.metadata(context) end},
        {"dump/1", fn -> Context.dump(context) end},
        {"dump/2", fn -> Context.dump(context, since: context.current_iteration) end},
        {"to_snapshot/1", fn -> Context.to_snapshot(context) end},
        {"load/1", fn -> Context.load(dump) end},
        {"load!/1", fn -> Context.load!(dump) end},
        {"load/2", fn -> Context.load(context, delta) end},
        {"load!/2", fn -> Context.load!(context, delta) end},
        {"from_snapshot/1", fn -> Context.from_snapshot(snapshot) end},
        {"from_snapshot!/1", fn -> Context.from_snapshot!(snapshot) end},
        {"request/3", fn -> Context.request(context, :gemini, pending: :interrupt) end},
        {"request!/3", fn -> Context.request!(context, :ollama, pending: :interrupt) end},
        {"encode_request/3, again", body.(:anthropic)},
        {"encode_request/3, for the first time",
         fn ->
           Context.encode_request(context, :bedrock, pending: :interrupt, model: new_model.())
         end},
        {"encode_request!/3",
         fn -> Context.encode_request!(context, :mistral, pending: :interrupt) end},
        {"request_report/3",
         fn -> Context.request_report(context, :mistral, pending: :interrupt) end},
        {"to_prompt/1", fn -> Context.to_prompt(context) end},
        {"validate_for_request/1", fn -> Context.validate_for_request(waiting) end},
        {"add_token_usage/2",
         fn -> short |> Context.add_assistant_message("x") |> Context.add_token_usage(usage) end},
        {"get_cumulative_tokens/1", fn -> Context.get_cumulative_tokens(context) end},
        {"get_iteration_tokens/2", fn -> Context.get_iteration_tokens(context, first.number) end},
        {"count_tokens/1", fn -> Context.count_tokens(uncounted.()) end},
        {"count_tokens/2 of a new text of 10 MB",
         fn -> Context.count_tokens(Context.new(big), method: :estimate) end},
        {"count_tokens/2, exact",
         fn -> Context.count_tokens(uncounted.(), method: :o200k_base) end},
        {"token_breakdown/1", fn -> Context.token_breakdown(uncounted.()) end},
        {"estimate_token_count/1", fn -> Context.estimate_token_count(context) end},
        {"exceeds_token_budget?/2", fn -> Context.exceeds_token_budget?(context, 100) end},
        {"tokens_remaining/2", fn -> Context.tokens_remaining(context, 100) end},
        {"budget_utilization/2", fn -> Context.budget_utilization(context, 100) end},
        {"from_request/3", fn -> Context.from_request(request, :openai_chat) end},
        {"from_request!/3", fn -> Context.from_request!(request, :openai_chat) end},
        {"from_messages/1", fn -> Context.from_messages(chat) end},
        {"from_messages!/1", fn -> Context.from_messages!(chat) end},
        {"fetch/2", fn -> context[:iterations] end},
        {"inspect/1", fn -> inspect(context) end},
        {"Enum.count/1", fn -> Enum.count(context) end},
        {"Enum.take/2", fn -> Enum.take(context, 1) end},
        {"JSON.encode/1",
         fn -> Context.JSON.encode(map.metadata |> Map.put("messages", chat)) end},
        {"JSON.decode/1", fn -> Context.JSON.decode(json) end}
      ]
  end

  # What makes a view of the log, and what decides about calls.
  defp view_functions(context, short, waiting, dump) do
    total = Context.count_tokens(short)
    newest = short.current_iteration
    masks = [{"secret-[a-z]+", "[secret]"}]
    masked = Context.put_masks(context, masks)
    long = text(1024 * 1024)
    fork = context |> Context.interrupt() |> Context.add_user_message("another way")

    [
      {"fit/2", fn -> Context.fit(short, div(total, 2)) end},
      {"fit/3, exact", fn -> Context.fit(short, div(total, 4), method: :cl100k_base) end},
      {"keep_last_iterations/2", fn -> Context.keep_last_iterations(short, 1) end},
      {"hide_old_iterations/2",
       fn -> Context.hide_old_iterations(short, 0, at: ~U[2999-01-01 00:00:00Z]) end},
      {"keep_iteration_range/3", fn -> Context.keep_iteration_range(short, 1, 1) end},
      {"compact/2, drop", fn -> Context.compact(short, :drop) end},
      {"compact/2, summarize",
       fn -> Context.compact(short, {:summarize, fn _ -> "short" end}) end},
      {"mark_as_summarized/3",
       fn -> if newest > 1, do: Context.mark_as_summarized(short, 1..(newest - 1), "short") end},
      {"summary/2", fn -> Context.summary(short, 1) end},
      {"expand/2", fn -> short |> Context.keep_last_iterations(1) |> Context.expand(:all) end},
      {"clear_tool_results/2", fn -> Context.clear_tool_results(short, keep: 0) end},
      {"put_max_result_bytes/2, and to_messages/1",
       fn -> context |> Context.put_max_result_bytes(100) |> Context.to_messages() end},
      {"put_masks/2", fn -> Context.put_masks(context, masks) end},
      {"put_masks/2, and to_messages/1", fn -> Context.to_messages(masked) end},
      {"put_prompt_block/3", fn -> Context.put_prompt_block(context, :memory, long) end},
      {"view/1", fn -> Context.view(context) end},
      {"rewind/2", fn -> Context.rewind(short, to: div(newest + 1, 2)) end},
      {"put_system_prompt/2", fn -> Context.put_system_prompt(context, long) end},
      {"system_prompt/1",
       fn -> context |> Context.put_system_prompt(long) |> Context.system_prompt() end},
      {"diff/2", fn -> Context.diff(short, fork) end},
      {"dump/2, beside", fn -> Context.dump(short, beside: fork) end},
      {"load/1, with a view", fn -> Context.load(dump) end},
      {"approve_tool_call/2 of 10000", fn -> Context.approve_tool_call(waiting, "new_9999") end},
      {"deny_tool_call/3 of 10000", fn -> Context.deny_tool_call(waiting, "new_9999", "no") end},
      {"tool_call_status/2", fn -> Context.tool_call_status(waiting, "none") end},
      {"tool_call_decision/2", fn -> Context.tool_call_decision(waiting, "none") end}
    ]
  end

  # Functions that nobody has added above are named, so that the list does not fall behind.
  defp uncovered do
    covered =
      for {name, _fun} <- functions(Context.new("")), do: name |> String.split(["/", "."]) |> hd()

    case for {name, arity} <- Context.__info__(:functions),
             "#{name}" not in covered,
             not String.starts_with?("#{name}", "__"),
             do: "#{name}/#{arity}" do
      [] -> :ok
      names -> IO.puts("Not measured: #{Enum.join(names, ", ")}")
    end
  end

  # ---- measuring

  # Runs `fun` in a process of its own. Returns what it returned, how long it took, and how long the process was
  # scheduled each time that was too long.
  defp watch(fun) do
    parent = self()
    started = System.monotonic_time(:millisecond)
    {pid, monitor} = spawn_monitor(fn -> send(parent, {self(), fun.()}) end)

    # What the process held is dropped when it ends, which is part of the run.
    receive do
      {:DOWN, ^monitor, :process, ^pid, :normal} -> :ok
      {:DOWN, ^monitor, :process, ^pid, reason} -> exit(reason)
    end

    receive do
      {^pid, result} ->
        {result, System.monotonic_time(:millisecond) - started, long_schedules(pid, [])}
    end
  end

  defp long_schedules(pid, found) do
    receive do
      {:monitor, ^pid, :long_schedule, info} ->
        long_schedules(pid, [{info[:timeout], info[:out]} | found])

      {:monitor, _other, :long_schedule, _info} ->
        long_schedules(pid, found)
    after
      10 -> found
    end
  end

  defp deadline(ms), do: System.monotonic_time(:millisecond) + ms

  # Yields after each call, so that what is reported is one call, not what many have taken together.
  defp repeat(fun, deadline, calls) do
    fun.()
    :erlang.yield()

    if calls + 1 < @least_calls or System.monotonic_time(:millisecond) < deadline,
      do: repeat(fun, deadline, calls + 1),
      else: calls + 1
  end

  # Makes the same terms without us, where the result is terms: what the VM itself needs for its garbage counts here too.
  defp control(fun) do
    case fun.() do
      %Context{} -> &busy/0
      {:ok, %Context{}} -> &busy/0
      result -> result |> :erlang.term_to_binary() |> decoder()
    end
  end

  defp decoder(binary), do: fn -> :erlang.binary_to_term(binary) end

  defp busy, do: Enum.sum(1..1_000)

  defp report(name, calls, ours, control) do
    IO.puts(
      "  #{String.pad_trailing(name, 42)} #{String.pad_leading("#{calls}", 8)} calls: " <>
        "#{length(ours)} (control #{length(control)})#{longest(ours)}"
    )
  end

  defp longest([]), do: ""

  defp longest(long_schedules) do
    case Enum.max(long_schedules) do
      {ms, {module, name, arity}} ->
        ", longest #{ms} ms, up to #{Exception.format_mfa(module, name, arity)}"

      {ms, _} ->
        ", longest #{ms} ms"
    end
  end
end

AshAgent.Bench.Schedulers.main()
