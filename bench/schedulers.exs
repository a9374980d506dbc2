# Does any function of the package hold a scheduler for a millisecond? Calls each of them on contexts, responses and chats of
# 10 MB while the VM reports every process that was scheduled for 1 ms or longer without a break:
#
#     cd packages/ash_agent_runtime && MIX_ENV=prod mix run ../../bench/schedulers.exs
#
# The operating system may take the processor from a scheduler in the middle of anything, which is reported just the same.
# The VM itself takes long to collect many binaries. So each run is followed by a control that is as long, holds and makes the
# same terms with :erlang.binary_to_term/1 and calls none of our functions. Where Linux tells how long the threads of the
# schedulers waited for a processor, a hold counts as "waited" if they waited longer than that in the same run. On a busy
# machine, run it as root under `chrt --fifo 1`, where other processes do not interrupt it (but Linux itself does, for 50 ms in
# a second).
#
# At the end it fails if nothing above has called some public function of the main modules, or some NIF, and names it.

defmodule AshAgent.Bench.Schedulers do
  @moduledoc false

  alias AshAgent.{ChatContext, Context, Prices, Response, Store, Trace}
  alias AshAgent.Response.Schema

  @quick System.get_env("BENCH_QUICK") == "1"
  @megabytes if @quick, do: 1, else: 10
  # Each function is called for this long, and at least this often.
  @run_ms if @quick, do: 10, else: 200
  @least_calls if @quick, do: 2, else: 5
  # But no longer than this, whatever a call takes.
  @most_ms if @quick, do: 50, else: 2_000

  def main do
    :erlang.system_monitor(self(), [{:long_schedule, 1}])

    IO.puts(
      "Times a process was scheduled for 1 ms or longer: with our functions, and in a control.\n"
    )

    count_calls()
    threads = threads()

    totals =
      for {shape, make, functions} <- shapes() do
        subject = make.()
        IO.puts("#{shape}: #{inspect(subject)}")

        totals =
          for {name, fun} <- functions.(subject) do
            {calls, ms, ours, waited} =
              watch(fn -> repeat(fun, deadline(@run_ms), 0) end, threads)

            control = control(fun)
            {_calls, _ms, control, _} = watch(fn -> repeat(control, deadline(ms), 0) end, threads)
            report(name, calls, ours, control, waited)
            {holds(ours), holds(ours, waited), holds(control)}
          end

        total("In this shape", totals)
        IO.puts("")
        totals
      end

    totals |> Enum.concat() |> then(&total("In all", &1))
    uncovered()
  end

  defp total(where, totals) do
    [ours, waited, control] = for place <- 0..2, do: Enum.flat_map(totals, &elem(&1, place))

    IO.puts(
      "#{where}: #{length(ours)} with our functions (#{length(waited)} waited), longest #{most(ours)} ms; " <>
        "#{length(control)} in the control, longest #{most(control)} ms."
    )
  end

  defp holds(long_schedules), do: Enum.map(long_schedules, &elem(&1, 0))
  # Those that the threads may have spent waiting.
  defp holds(long_schedules, waited), do: Enum.filter(holds(long_schedules), &(&1 <= waited))
  defp most(holds), do: Enum.max(holds, fn -> 0 end)

  # ---- contexts of 10 MB, each large in another way

  defp shapes do
    for {shape, make} <- [
          {"many iterations (an answer of 2 KB with a call and its result each)",
           &many_iterations/0},
          {"one iteration (answers of 2 KB)", &one_iteration/0},
          {"one message (a text of 10 MB)",
           fn -> Context.new(text(@megabytes * 1024 * 1024)) end},
          {"many calls (one answer with 256 bytes of arguments each)", &many_calls/0},
          {"many small messages (of 20 bytes)", &many_small_messages/0}
        ] do
      {shape, make,
       &(functions(&1) ++ chat_functions(&1) ++ other_forms(&1) ++ store_functions(&1))}
    end ++
      [{"responses of 10 MB", fn -> Response.new(:openai_chat) end, &response_functions/1}]
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

    tools = for i <- 1..100, do: %{name: "tool_#{i}", description: text(1024)}

    {:ok, prepared} = Context.PreparedRequest.new(:ollama, body: %{model: "m", tools: tools})

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
        {"from_snapshot/1", fn -> Context.load(snapshot) end},
        {"from_snapshot!/1", fn -> Context.load!(snapshot) end},
        {"request/3", fn -> Context.request(context, :gemini, pending: :interrupt) end},
        {"request!/3", fn -> Context.request!(context, :ollama, pending: :interrupt) end},
        {"encode_request/3, again", body.(:anthropic)},
        {"encode_request/3, for the first time",
         fn ->
           Context.encode_request(context, :bedrock, pending: :interrupt, model: new_model.())
         end},
        {"PreparedRequest.new/2",
         fn -> Context.PreparedRequest.new(:ollama, body: %{model: "m", tools: tools}) end},
        {"PreparedRequest.encode/2",
         fn -> Context.PreparedRequest.encode(prepared, Context.interrupt(context)) end},
        {"encode_request!/3",
         fn -> Context.encode_request!(context, :mistral, pending: :interrupt) end},
        {"request_report/3",
         fn -> Context.request_report(context, :mistral, pending: :interrupt) end},
        {"to_prompt/1", fn -> Context.to_prompt(context) end},
        {"validate_for_request/1", fn -> Context.validate_for_request(waiting) end},
        {"add_token_usage/2",
         fn ->
           short |> Context.add_assistant_message("x") |> Context.Tokens.add_token_usage(usage)
         end},
        {"get_cumulative_tokens/1", fn -> Context.Tokens.get_cumulative_tokens(context) end},
        {"get_iteration_tokens/2",
         fn -> Context.Tokens.get_iteration_tokens(context, first.number) end},
        {"count_tokens/1", fn -> Context.Tokens.count_tokens(uncounted.()) end},
        {"count_tokens/2 of a new text of 10 MB",
         fn -> Context.Tokens.count_tokens(Context.new(big), method: :estimate) end},
        {"count_tokens/2, exact",
         fn -> Context.Tokens.count_tokens(uncounted.(), method: :o200k_base) end},
        {"token_breakdown/1", fn -> Context.Tokens.token_breakdown(uncounted.()) end},
        {"estimate_token_count/1",
         fn -> Context.Tokens.count_tokens(context, method: :estimate) end},
        {"exceeds_token_budget?/2", fn -> Context.Tokens.budget(context, 100).exceeded? end},
        {"tokens_remaining/2", fn -> Context.Tokens.budget(context, 100).remaining end},
        {"budget_utilization/2", fn -> Context.Tokens.budget(context, 100).share end},
        {"from_request/3", fn -> Context.Import.from_request(request, :openai_chat) end},
        {"from_request!/3", fn -> Context.Import.from_request!(request, :openai_chat) end},
        {"from_messages/1", fn -> Context.Import.from_messages(chat) end},
        {"from_messages!/1", fn -> Context.Import.from_messages!(chat) end},
        {"fetch/2", fn -> context[:iterations] end},
        {"inspect/1", fn -> inspect(context) end},
        {"Enum.count/1", fn -> Enum.count(context) end},
        {"Enum.take/2", fn -> Enum.take(context, 1) end},
        {"JSON.encode/1",
         fn -> Context.JSON.encode(map.metadata |> Map.put("messages", chat)) end},
        {"JSON.fragment/1", fn -> Context.JSON.fragment(chat) end},
        {"JSON.decode/1", fn -> Context.JSON.decode(json) end},
        {"Changes.put_media_back/2", fn -> Context.Changes.put_media_back(json, "AA==") end}
      ]
  end

  # What makes a view of the log, and what decides about calls.
  # With a request whose tokens were reported, and something said after it.
  defp answered(context) do
    usage = %{
      input_tokens: 10,
      output_tokens: 1,
      cache_read_input_tokens: 0,
      cache_creation_input_tokens: 9_000
    }

    body = %{type: "message", model: "m", content: [%{type: "text", text: "Yes"}], usage: usage}
    {:ok, response} = AshAgent.Response.decode(:anthropic, body)

    context
    |> Context.interrupt()
    |> Context.add_response!(response, requested_at: DateTime.utc_now())
    |> Context.add_user_message("And?")
  end

  defp view_functions(context, short, waiting, dump) do
    total = Context.Tokens.count_tokens(short)
    newest = short.current_iteration
    masks = [{"secret-[a-z]+", "[secret]"}]
    masked = Context.View.put_masks(context, masks)
    long = text(1024 * 1024)
    fork = context |> Context.interrupt() |> Context.add_user_message("another way")
    hidden = short |> Context.View.hide({:all_but_last, 1}) |> Context.Recall.put_recall(true)
    noted = Context.Audit.put_request(short, %{"words" => long}, [])
    asked = answered(short)
    {:ok, sent} = Context.Audit.put_sent(fork, :anthropic)
    shortened = shorten_all(Context.Recall.put_recall(short, true))
    steps = Context.Shortening.shortenings(shortened)

    [
      {"fit/2", fn -> Context.View.fit(short, div(total, 2)) end},
      {"fit/3, exact", fn -> Context.View.fit(short, div(total, 4), method: :cl100k_base) end},
      {"keep_last_iterations/2", fn -> Context.View.hide(short, {:all_but_last, 1}) end},
      {"hide_old_iterations/2",
       fn -> Context.View.hide(short, {:older_than, 0}, at: ~U[2999-01-01 00:00:00Z]) end},
      {"keep_iteration_range/3", fn -> Context.View.hide(short, {:all_but, 1..1}) end},
      {"hide_iterations/2", fn -> Context.View.hide(short, 1) end},
      {"compact/2, drop", fn -> Context.View.compact(short, :drop) end},
      {"compact/2, a summary that fails",
       fn -> Context.View.compact(short, {:summarize, fn _ -> {:error, :down} end}) end},
      {"compact/2, summarize",
       fn -> Context.View.compact(short, {:summarize, fn _ -> "short" end}) end},
      {"mark_as_summarized/3",
       fn ->
         if newest > 1, do: Context.View.mark_as_summarized(short, 1..(newest - 1), "short")
       end},
      {"summary/2", fn -> Context.View.summary(short, 1) end},
      {"expand/2",
       fn -> short |> Context.View.hide({:all_but_last, 1}) |> Context.View.expand(:all) end},
      {"clear_tool_results/2", fn -> Context.View.clear_tool_results(short, keep: 0) end},
      {"put_max_result_bytes/2, and to_messages/1",
       fn -> context |> Context.View.put_max_result_bytes(100) |> Context.to_messages() end},
      {"put_recall/2",
       fn -> short |> Context.View.hide({:all_but_last, 1}) |> Context.Recall.put_recall(true) end},
      {"recall/2", fn -> Context.Recall.recall(context, "1..2-000") end},
      {"search/2",
       fn ->
         context |> Context.View.hide({:all_but_last, 1}) |> Context.Recall.search("the words")
       end},
      {"receipt/1", fn -> Context.Recall.receipt(hidden) end},
      {"receipt/2 of a request", fn -> Context.Recall.receipt(noted, iteration: newest) end},
      {"diff_views/2", fn -> Context.Recall.diff_views(hidden, short) end},
      {"pin/2", fn -> Context.Pins.pin(hidden, {:fact, "found"}) end},
      {"pin/2 of a call of 10000", fn -> Context.Pins.pin(waiting, {:call, "new_9999"}) end},
      {"pins/1, and unpin/2",
       fn ->
         pinned = Context.Pins.pin(hidden, {:iteration, newest})
         pinned |> Context.Pins.pins() |> Enum.each(&Context.Pins.unpin(pinned, &1))
       end},
      {"put_recall/3 with an index",
       fn -> Context.Recall.put_recall(hidden, true, index: 0.03) end},
      {"recall?/1", fn -> Context.Recall.recall?(hidden) end},
      {"verdict/2", fn -> Context.View.verdict(hidden, 1) end},
      {"put_request/3 of 1 MB",
       fn -> Context.Audit.put_request(short, %{"words" => long}, []) end},
      {"put_sent/2", fn -> Context.Audit.put_sent(fork, :anthropic) end},
      {"replay/1", fn -> Context.Audit.replay(sent) end},
      {"get_request/2", fn -> Context.Audit.get_request(noted, newest) end},
      {"put_request/4 of 1 MB, hashes",
       fn ->
         Context.Audit.put_request(short, %{"body" => %{"words" => long}}, [], keep: :hashes)
       end},
      {"put_sent/3", fn -> Context.Audit.put_sent(short, :anthropic, pending: :interrupt) end},
      {"fetch_asked/2", fn -> Context.Audit.fetch_asked(asked, newest) end},
      {"fetch_asked_before/2", fn -> Context.Audit.fetch_asked_before(asked, newest) end},
      {"view_changes/2", fn -> Context.Audit.view_changes(hidden, short) end},
      {"find_turn/3", fn -> Context.find_turn(context, :key, "none") end},
      {"outline/1", fn -> Context.outline(context) end},
      {"get_response_id/1", fn -> Context.Audit.get_response_id(asked) end},
      {"forecast/3", fn -> Context.Audit.forecast(asked, :anthropic, cache: :auto) end},
      {"account/1", fn -> Context.Audit.account(asked) end},
      {"clear_when_due/2", fn -> Context.Rent.clear_when_due(short, keep: 1) end},
      {"shorten/3", fn -> Context.Shortening.shorten(hidden, :context_overflow) end},
      {"shorten/3 until nothing is left", fn -> shorten_all(hidden) end},
      {"expand/2 of a step", fn -> Enum.each(steps, &Context.View.expand(shortened, &1)) end},
      {"shortenings/1", fn -> Context.Shortening.shortenings(hidden) end},
      {"add_failure/2", fn -> Context.Audit.add_failure(short, %{kind: :closed}) end},
      {"failures/1", fn -> Context.Audit.failures(short) end},
      {"put_masks/2", fn -> Context.View.put_masks(context, masks) end},
      {"put_masks/2, and to_messages/1", fn -> Context.to_messages(masked) end},
      {"put_prompt_block/3", fn -> Context.View.put_prompt_block(context, :memory, long) end},
      {"view/1", fn -> Context.View.view(context) end},
      {"rewind/2", fn -> Context.rewind(short, to: div(newest + 1, 2)) end},
      {"put_system_prompt/2", fn -> Context.put_system_prompt(context, long) end},
      {"system_prompt/1",
       fn -> context |> Context.put_system_prompt(long) |> Context.system_prompt() end},
      {"diff/2", fn -> Context.diff(short, fork) end},
      {"dump/2, beside", fn -> Context.dump(short, beside: fork) end},
      {"load/1, with a view", fn -> Context.load(dump) end},
      {"approve_tool_call/2 of 10000",
       fn -> Context.Calls.approve_tool_call(waiting, "new_9999") end},
      {"ask_again/2 of 10000", fn -> Context.Calls.ask_again(waiting) end},
      {"deny_tool_call/3 of 10000",
       fn -> Context.Calls.deny_tool_call(waiting, "new_9999", "no") end},
      {"tool_call_status/2", fn -> Context.Calls.tool_call_status(waiting, "none") end},
      {"tool_call_decision/2", fn -> Context.Calls.tool_call_decision(waiting, "none") end}
    ]
  end

  # The last step is a summary, where there is something to summarize.
  defp shorten_all(context) do
    case Context.Shortening.shorten(context, :context_overflow, summarize: fn _ -> "short" end) do
      {same, nil} -> same
      {shorter, _step} -> shorten_all(shorter)
    end
  end

  # ---- what else there is

  defp other_forms(context) do
    short = context |> Context.interrupt() |> Context.add_user_message("go on")
    calls = for i <- 1..10_000, do: call("new_#{i}", 256)
    waiting = Context.add_assistant_message(context, "", calls)
    shown = %{"query" => text(256)}
    asked = Context.Calls.ask_about_tool_call(waiting, "new_9999", shown)
    questioned = Context.Calls.ask_about_tool_call(waiting, "new_9999", shown, question: true)

    answered =
      Context.Tokens.add_token_usage(Context.add_assistant_message(short, "x"), %{input_tokens: 1})

    prices = [%{model: :any, input: 3_000_000, output: 15_000_000}]
    billed = Enum.reduce(1..10_000, Context.new("start"), &bill/2)
    late = leave_waiting(waiting, calls)
    arrived = Enum.reduce(Enum.take(calls, 1_000), late, &arrive(&2, &1, text(256)))
    big = text(@megabytes * 1024 * 1024)

    {:ok, response} =
      Response.decode(:openai_chat, answer(1024), content_type: "application/json")

    {:ok, long} = Response.decode(:openai_chat, answer(), content_type: "application/json")
    req_llm = Context.ReqLLM.to_req_llm(context)
    langchain = Context.LangChain.to_langchain(context)
    jido = Context.Jido.to_jido(context)
    {:ok, device} = File.open("/dev/null", [:write, :utf8])
    prices_file = write_prices()

    [
      {"add_response/3", fn -> Context.add_response(short, response) end},
      {"add_response!/3 of 10 MB", fn -> Context.add_response!(short, long) end},
      {"ask_about_tool_call/4 of 10000",
       fn -> Context.Calls.ask_about_tool_call(waiting, "new_9999", shown) end},
      {"undecided_tool_calls/1 of 10000", fn -> Context.Calls.undecided_tool_calls(waiting) end},
      {"asked_tool_calls/1 of 10000", fn -> Context.Calls.asked_tool_calls(waiting) end},
      {"answer_tool_call/3 of 10000",
       fn -> Context.Calls.answer_tool_call(questioned, "new_9999", "yes") end},
      {"add_tool_results/2, all 10000 wait", fn -> leave_waiting(waiting, calls) end},
      {"arrive/4 of 10000", fn -> arrive(late, List.last(calls), "done") end},
      {"arrive/4 of 10 MB", fn -> arrive(late, List.last(calls), big) end},
      {"place_arrivals/2 of 1000", fn -> Context.Calls.place_arrivals(arrived) end},
      {"late_calls/2 of 10000", fn -> Context.Calls.late_calls(arrived) end},
      {"encode_request/3 with 9000 calls that wait",
       fn -> {:ok, _} = Context.encode_request(arrived, :anthropic, model: "m") end},
      {"leave_late_calls/2 of 10000", fn -> Context.Calls.leave_late_calls(arrived) end},
      {"tool_call_approved?/3 of 10000",
       fn -> Context.Calls.tool_call_approved?(asked, "new_9999", shown) end},
      {"tool_call_times/2", fn -> Context.Calls.tool_call_times(waiting, "new_9999") end},
      {"fetch_cost/2", fn -> Context.Audit.fetch_cost(answered, prices: prices) end},
      {"Prices.read/2", fn -> {:ok, _prices} = Prices.read(prices_file) end},
      {"Prices.known?/2", fn -> Prices.known?(Prices.terms(prices), "m") end},
      {"fork/2", fn -> Context.fork(short) end},
      {"turn_start/1", fn -> Context.turn_start(context) end},
      {"restore/1", fn -> Context.restore(context) end},
      {"enhance/3",
       fn -> Context.Enhancer.run(short, [fn context, _needs -> {:ok, context} end]) end},
      {"print/2, all", fn -> Context.print(context, device: device, limit: :infinity) end},
      {"to_req_llm/1", fn -> Context.ReqLLM.to_req_llm(context) end},
      {"from_req_llm/2", fn -> Context.ReqLLM.from_req_llm(req_llm) end},
      {"to_langchain/1", fn -> Context.LangChain.to_langchain(context) end},
      {"from_langchain/2", fn -> Context.LangChain.from_langchain(langchain) end},
      {"to_jido/1", fn -> Context.Jido.to_jido(context) end},
      {"from_jido/2", fn -> Context.Jido.from_jido(jido) end},
      {"Trace.to_html/2", fn -> Trace.to_html(context) end},
      {"Trace.to_csv/2", fn -> Trace.to_csv(answered, prices: prices) end},
      {"Trace.to_csv/2 of 10000 requests", fn -> Trace.to_csv(billed, prices: prices) end},
      {"account/2 of 10000 requests", fn -> Context.Audit.account(billed, prices: prices) end},
      {"Trace.to_otlp/2", fn -> Trace.to_otlp(short) end},
      {"Trace.request?/1", fn -> Trace.request?([:openai_chat]) end}
    ]
  end

  defp bill(number, context) do
    context
    |> Context.add_assistant_message("answer #{number}")
    |> Context.Tokens.add_token_usage(%{input_tokens: number, output_tokens: 10})
    |> Context.add_user_message("go on")
  end

  defp leave_waiting(context, calls) do
    waiting = for %{id: id} <- calls, do: {id, {:waiting, %{for: "ci", handle: "h-" <> id}}}
    context |> Context.add_tool_results(waiting) |> Context.add_assistant_message("I started.")
  end

  # By the handle, which all of them are searched for.
  defp arrive(context, %{id: id}, result) do
    {:ok, context} = Context.Calls.arrive(context, {:handle, "h-" <> id}, {:ok, result})
    context
  end

  defp write_prices do
    models =
      for i <- 1..(@megabytes * 1_000) do
        %{id: "m#{i}", match: %{equals: "m#{i}"}, prices: %{input_mtok: 2.5, output_mtok: 10}}
      end

    file = Path.join(System.tmp_dir!(), "schedulers-prices.json")
    File.write!(file, Context.JSON.encode([%{id: "p", models: models}]))
    file
  end

  defp chat_functions(context) do
    context = Context.interrupt(context)
    chat = ChatContext.new(context: context) |> ChatContext.branch("idea")
    own = &Context.add_user_message(&1, "own")
    chat = ChatContext.update_context(chat, own, branch: "idea")
    dump = ChatContext.dump(chat)
    snapshot = ChatContext.to_snapshot(chat)
    twin = ChatContext.load!(dump)
    child = ChatContext.spawn_child(chat, input: "Find one")
    seed = 1..max(1, context.current_iteration - 1)
    long = text(1024 * 1024)

    [
      {"ChatContext.new/1", fn -> ChatContext.new(context: context) end},
      {"ChatContext.branch/3", fn -> ChatContext.branch(chat, "other", from: "main") end},
      {"ChatContext.switch/2", fn -> ChatContext.switch(chat, "idea") end},
      {"ChatContext.active/1", fn -> ChatContext.active(chat) end},
      {"ChatContext.branches/1", fn -> ChatContext.branches(chat) end},
      {"ChatContext.fetch_branch/2", fn -> ChatContext.fetch_branch(chat, "idea") end},
      {"ChatContext.rename_branch/3", fn -> ChatContext.rename_branch(chat, "idea", "plan") end},
      {"ChatContext.delete_branch/2", fn -> ChatContext.delete_branch(chat, "idea") end},
      {"ChatContext.update_context/3",
       fn -> ChatContext.update_context(chat, own, branch: "idea") end},
      {"ChatContext.put_config/2", fn -> ChatContext.put_config(chat, max_turns: 5) end},
      {"ChatContext.put_system_prompt/3", fn -> ChatContext.put_system_prompt(chat, long) end},
      {"ChatContext.put_user_prompt/3", fn -> ChatContext.put_user_prompt(chat, long) end},
      {"ChatContext.spawn_child/2, with all",
       fn -> ChatContext.spawn_child(chat, seed: seed) end},
      {"ChatContext.complete_child/4", fn -> ChatContext.complete_child(chat, child, "done") end},
      {"ChatContext.dump/1", fn -> ChatContext.dump(chat) end},
      {"ChatContext.load/2", fn -> ChatContext.load(dump) end},
      {"ChatContext.load!/2", fn -> ChatContext.load!(dump) end},
      {"ChatContext.to_snapshot/1", fn -> ChatContext.to_snapshot(chat) end},
      {"ChatContext.from_snapshot/2", fn -> ChatContext.from_snapshot(snapshot) end},
      {"ChatContext.from_snapshot!/2", fn -> ChatContext.from_snapshot!(snapshot) end},
      {"ChatContext.equal?/2", fn -> ChatContext.equal?(chat, twin) end}
    ]
  end

  # The database is of memory, and its work is done on its own threads.
  defp store_functions(context) do
    {:ok, store} = Store.SQLite.open(":memory:")
    context = Context.interrupt(context)
    {:ok, kept} = Store.create(store, context)

    chat =
      ChatContext.new(context: Context.fork(context))
      |> ChatContext.branch("idea")
      |> ChatContext.update_context(&Context.add_user_message(&1, "own"), branch: "idea")

    [
      {"Store.create/3 of a chat, and delete/2",
       fn ->
         {:ok, kept} = Store.create(store, chat)
         :ok = Store.delete(store, kept.id)
       end},
      {"Store.create/3, and delete/2",
       fn ->
         {:ok, fork} = Store.create(store, Context.fork(context))
         :ok = Store.delete(store, fork.id)
       end},
      {"Store.append/4",
       fn ->
         {:ok, kept} = Store.fetch(store, kept)
         Store.append(store, kept, Context.add_user_message(kept.value, "more"))
       end},
      {"Store.append/4, rewound",
       fn ->
         {:ok, kept} = Store.fetch(store, kept)
         {:ok, kept} = Store.append(store, kept, Context.rewind(kept.value, to: 1))
         Store.append(store, kept, context)
       end},
      {"Store.fetch/2", fn -> Store.fetch(store, kept) end}
    ]
  end

  defp response_functions(empty) do
    body = answer()
    stream = stream()
    pieces = pieces(stream)
    json = [content_type: "application/json"]
    {:ok, half, _events} = Response.feed(empty, stream)
    {:ok, whole} = Response.decode(:openai_chat, body, json)
    reason = %{why: text(@megabytes * 1024 * 1024)}
    interrupted = Response.interrupt(half, reason)
    {:ok, failed, _events} = Response.feed(half, ~s(data: {"error":{"message":"no"}}\n\n))
    calls = for i <- 1..10_000, do: call("new_#{i}", 256)
    plain = %{content: text(@megabytes * 1024 * 1024), tool_calls: calls}
    fields = %{"words" => %{"type" => "string"}}
    {:ok, schema, data} = Schema.new(%{"type" => "object", "properties" => fields})
    typed = %{"words" => plain.content}
    typed_json = Context.JSON.encode(typed)

    [
      {"Schema.new/1", fn -> Schema.new(data) end},
      {"Schema.read/3", fn -> Schema.read(schema, typed_json, true) end},
      {"Schema.read/3, lenient", fn -> Schema.read(schema, typed_json, false) end},
      {"Schema.check/3", fn -> Schema.check(schema, typed, true) end},
      {"Schema.check_arguments/2", fn -> Schema.check_arguments(schema, typed) end},
      {"Schema.read_partial/2", fn -> Schema.read_partial(schema, typed_json) end},
      {"Schema.follow/3", fn -> Schema.follow(schema, Schema.follow(), typed_json) end},
      {"Audit.caches?/2", fn -> Context.Audit.caches?(:anthropic, "claude-opus-4-5") end},
      {"Schema.constrain/4",
       fn -> Schema.constrain(schema, :anthropic, "claude-opus-4-5", {false, false}) end},
      {"Response.push/2",
       fn -> Response.push(Response.new(nil), [{:text, plain.content}, {:finish, :stop}]) end},
      {"Response.Error.read_refusal/3",
       fn -> Response.Error.read_refusal(400, nil, typed_json) end},
      {"Response.new/2", fn -> Response.new(:openai_chat) end},
      {"Response.feed/2, in pieces", fn -> fed(empty, pieces) end},
      {"Response.feed/2 of 10 MB", fn -> Response.feed(empty, stream) end},
      {"Response.feed/2 after 10 MB", fn -> Response.feed(half, hd(pieces)) end},
      {"Response.finish/1", fn -> Response.finish(half) end},
      {"Response.interrupt/2", fn -> Response.interrupt(half, reason) end},
      {"Response.decode/3", fn -> Response.decode(:openai_chat, body, json) end},
      {"Response.from_message/1", fn -> Response.from_message(plain) end},
      {"Response.message/1", fn -> Response.message(whole) end},
      {"Response.message/1 of a half", fn -> Response.message(half) end},
      {"Response.text/1", fn -> Response.text(whole) end},
      {"Response.error/1", fn -> Response.error(failed) end},
      {"Response.state/1", fn -> Response.state(interrupted) end},
      {"Response.usage/1", fn -> Response.usage(whole) end},
      {"Response.id/1", fn -> Response.id(whole) end},
      {"Response.model/1", fn -> Response.model(whole) end},
      {"Response.finish_reason/1", fn -> Response.finish_reason(whole) end},
      {"Response.finish_word/1", fn -> Response.finish_word(whole) end},
      {"Response.count_bytes/1", fn -> Response.count_bytes(whole) end},
      {"Response.details/1", fn -> Response.details(whole) end}
    ]
  end

  defp fed(response, pieces) do
    Enum.reduce(pieces, response, fn piece, response ->
      {:ok, response, _events} = Response.feed(response, piece)
      :erlang.yield()
      response
    end)
  end

  defp answer(bytes \\ @megabytes * 1024 * 1024) do
    message = ~s({"role":"assistant","content":"#{text(bytes)}"})
    ~s({"id":"r","choices":[{"index":0,"finish_reason":"stop","message":#{message}}]})
  end

  # Without its end.
  defp stream do
    delta = ~s({"id":"r","choices":[{"index":0,"delta":{"content":"#{text(100)}"}}]})
    String.duplicate("data: #{delta}\n\n", @megabytes * 6_000)
  end

  # As a network cuts them.
  defp pieces(<<piece::binary-size(1_400), rest::binary>>), do: [piece | pieces(rest)]
  defp pieces(rest), do: [rest]

  # ---- what nothing has called

  @modules [ChatContext, Context, Response, Trace] ++
             [
               Context.Audit,
               Context.Calls,
               Context.Enhancer,
               Context.Import,
               Context.JSON,
               Context.Native
             ] ++
             [
               Context.Pins,
               Context.PreparedRequest,
               Context.Recall,
               Context.Rent,
               Context.Shortening,
               Context.Tokens,
               Context.View
             ]

  # Raise always, or are called by Elixir or tests alone.
  @left_out [
    get_and_update: 3,
    pop: 2,
    load: 0,
    foreign?: 1,
    check!: 1,
    check!: 2,
    live_contexts: 0,
    live_responses: 0
  ]

  defp count_calls do
    for module <- @modules do
      {:module, _} = Code.ensure_loaded(module)
      :erlang.trace_pattern({module, :_, :_}, true, [:call_count])
    end
  end

  # The functions of Native that the rest of the package calls, before they choose a scheduler. One with defaults is called
  # if it is with any number of arguments.
  defp uncovered do
    called =
      for {module, name, arity} <- functions(), into: MapSet.new() do
        {:call_count, count} = :erlang.trace_info({module, name, arity}, :call_count)
        if is_integer(count) and count > 0, do: {module, name}
      end

    for(
      {module, name, arity} <- functions(),
      {module, name} not in called,
      do: {module, name, arity}
    )
    |> Enum.map_join(", ", fn {module, name, arity} ->
      Exception.format_mfa(module, name, arity)
    end)
    |> case do
      "" -> IO.puts("All functions were called.")
      some -> Mix.raise("not called: #{some}")
    end
  end

  defp functions do
    for module <- @modules,
        {name, arity} <- module.__info__(:functions),
        {name, arity} not in @left_out,
        not String.starts_with?("#{name}", "__"),
        not (module == Context.Native and String.ends_with?("#{name}", ["_normal", "_dirty"])),
        do: {module, name, arity}
  end

  # ---- measuring

  # Runs `fun` in a process of its own. Returns what it returned, how long it took, how long the process was scheduled each
  # time that was too long, and how many milliseconds the threads of the schedulers waited for a processor.
  defp watch(fun, threads) do
    parent = self()
    before = waited(threads)
    started = System.monotonic_time(:millisecond)
    {pid, monitor} = spawn_monitor(fn -> send(parent, {self(), fun.()}) end)

    # What the process held is dropped when it ends, which is part of the run.
    receive do
      {:DOWN, ^monitor, :process, ^pid, :normal} -> :ok
      {:DOWN, ^monitor, :process, ^pid, reason} -> exit(reason)
    end

    receive do
      {^pid, result} ->
        ms = System.monotonic_time(:millisecond) - started
        {result, ms, long_schedules(pid, []), waited(threads) - before}
    end
  end

  # What Linux tells of the normal schedulers' threads: `1_scheduler` before OTP 26, then `erts_sched_1`.
  defp threads do
    for folder <- Path.wildcard("/proc/self/task/*"),
        {:ok, name} <- [File.read(Path.join(folder, "comm"))],
        name =~ ~r/^(\d+_scheduler|erts_sched_\d+)/,
        do: Path.join(folder, "schedstat")
  end

  defp waited(threads) do
    nanoseconds =
      for file <- threads, {:ok, text} <- [File.read(file)] do
        [_ran, waited, _slices] = String.split(text)
        String.to_integer(waited)
      end

    div(Enum.sum(nanoseconds), 1_000_000)
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

  # When it is enough, and when it has to be.
  defp deadline(ms) do
    now = System.monotonic_time(:millisecond)
    {now + ms, now + max(ms, @most_ms)}
  end

  # Yields after each call, so that what is reported is one call, not what many have taken together.
  defp repeat(fun, deadline, calls) do
    fun.()
    :erlang.yield()

    now = System.monotonic_time(:millisecond)
    {enough, most} = deadline

    if now < enough or (calls + 1 < @least_calls and now < most),
      do: repeat(fun, deadline, calls + 1),
      else: calls + 1
  end

  # Makes the same terms without us, where the result is terms: what the VM itself needs for its garbage counts here too.
  defp control(fun) do
    case fun.() do
      %Context{} -> busy(fun)
      {:ok, %Context{}} -> busy(fun)
      result -> result |> :erlang.term_to_binary() |> decoder(fun)
    end
  end

  # Both hold what the function holds, which the VM moves when it collects.
  defp decoder(binary, fun) do
    fn ->
      _ = :erlang.binary_to_term(binary)
      is_function(fun)
    end
  end

  defp busy(fun) do
    fn ->
      # Garbage, as any function leaves.
      _ = Enum.to_list(1..1_000)
      is_function(fun)
    end
  end

  defp report(name, calls, ours, control, waited) do
    waited = if length(ours) > 0, do: ", waited #{waited} ms", else: ""

    IO.puts(
      "  #{String.pad_trailing(name, 42)} #{String.pad_leading("#{calls}", 8)} calls: " <>
        "#{length(ours)} (control #{length(control)})#{longest(ours)}#{waited}"
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
