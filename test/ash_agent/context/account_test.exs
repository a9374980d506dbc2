defmodule AshAgent.Context.AccountTest do
  use ExUnit.Case, async: true

  alias AshAgent.{ChatContext, Context, Response, Trace}
  alias AshAgent.TestSupport.OtlpReader
  alias AshAgent.TestSupport.PiSession, as: Session

  doctest AshAgent.Context.Audit

  @start ~U[2026-01-01 10:00:00.000000Z]
  @prices [
    %{model: :any, input: 100, cache_read: 10, cache_write: 125, cache_write_1h: 200, output: 500}
  ]

  defp answer(context, {input, read, written}, opts \\ []) do
    at = DateTime.add(@start, opts[:minute] || 0, :minute)

    usage =
      Map.merge(
        %{
          input_tokens: input,
          output_tokens: 1,
          cache_read_input_tokens: read,
          cache_creation_input_tokens: written
        },
        Map.new(opts[:usage] || [])
      )

    {:ok, response} =
      Response.decode(
        :anthropic,
        Map.merge(
          %{
            type: "message",
            model: opts[:model] || "claude",
            content: [%{type: "text", text: "Yes"}],
            usage: usage
          },
          opts[:more] || %{}
        )
      )

    {:ok, context} = Context.add_response(context, response, requested_at: at, at: at)
    Context.add_user_message(context, "And?", at: at)
  end

  defp verdicts(context), do: Enum.map(Context.Audit.account(context).requests, & &1.verdict)
  defp start, do: answer(Context.new("Hi", system_prompt: "S"), {10, 0, 5_000})
  defp last(context), do: List.last(verdicts(context))

  test "the last request is accounted for on a normal scheduler" do
    context = Enum.reduce(1..300, start(), fn _, context -> answer(context, {10, 0, 6_000}) end)
    since = context.current_iteration - 1
    assert {:ok, [row]} = Context.Native.context_account_normal(context.ref, nil, nil, since)
    assert row == List.last(Context.Audit.account(context).requests)
    assert {:error, :dirty} = Context.Native.context_account_normal(context.ref, nil, nil, 0)
  end

  test "a request reads what the one before it read and wrote" do
    context =
      start() |> answer({10, 5_000, 100}) |> answer({10, 5_100, 100}) |> answer({10, 4_680, 620})

    assert verdicts(context) == [:first, :hit, :hit, :hit]
    assert context |> answer({10, 0, 6_000}) |> last() == :unexplained
    # Nothing is marked, and nothing was ever read.
    plain = Context.new("Hi") |> answer({10, 0, 0}) |> answer({20, 0, 0})
    assert verdicts(plain) == [:first, :first]
  end

  test "each change before a request is the cause of what was not read" do
    broken = fn change -> start() |> change.() |> answer({10, 0, 5_100}) |> last() end
    assert broken.(&Context.put_system_prompt(&1, "T")) == {:broken, :system_prompt}
    assert broken.(&Context.View.put_prompt_block(&1, :b, "B")) == {:broken, :block}
    assert broken.(&Context.View.put_max_result_bytes(&1, 100)) == {:broken, :shortened}
    assert broken.(&Context.View.put_masks(&1, [{"S", "T"}])) == {:broken, :masked}
    assert broken.(&Context.View.hide(&1, {:all_but_last, 1})) == {:broken, :hidden}
    assert broken.(& &1) == :unexplained

    summary = fn context ->
      {:ok, context, _} =
        Context.View.compact(context, {:summarize, fn _ -> "S" end}, keep_last: 1, check: nil)

      context
    end

    long =
      Context.new(String.duplicate("Hi ", 100))
      |> answer({10, 0, 5_000})
      |> answer({10, 5_000, 1})

    assert long |> summary.() |> answer({10, 100, 900}) |> last() == :compacted
    assert start() |> answer({10, 0, 5_000}, model: "claude-2") |> last() == {:broken, :model}
  end

  test "fields, tools and the form of the answer are causes where they were noted" do
    noted = fn body, tools ->
      Context.Audit.put_request(Context.new("Hi"), %{"model" => "m", "body" => body}, tools)
    end

    broken = fn body, tools ->
      %{"temperature" => 1, "thinking" => "low"}
      |> noted.([%{"name" => "a"}])
      |> answer({10, 0, 5_000})
      |> Context.Audit.put_request(%{"model" => "m", "body" => body}, tools)
      |> answer({10, 0, 5_100})
      |> last()
    end

    same = %{"temperature" => 1, "thinking" => "low"}
    assert broken.(same, [%{"name" => "a"}]) == :unexplained
    assert broken.(%{same | "temperature" => 0}, [%{"name" => "a"}]) == :unexplained
    assert broken.(same, [%{"name" => "b"}]) == {:broken, :tools}
    assert broken.(%{same | "thinking" => "high"}, [%{"name" => "a"}]) == {:broken, :fields}
    assert broken.(Map.put(same, "output_config", %{}), [%{"name" => "a"}]) == {:broken, :output}
  end

  test "the provider is blamed where both requests are known to be what was sent, and alike" do
    sent = fn context ->
      {:ok, context} = Context.Audit.put_sent(context, :anthropic, cache: :auto)
      context
    end

    noted = fn context ->
      Context.Audit.put_request(
        context,
        %{"model" => "claude", "body" => %{"temperature" => 1}},
        []
      )
    end

    start = Context.new("Hi", system_prompt: "S") |> noted.() |> sent.() |> answer({10, 0, 5_000})
    assert start |> sent.() |> answer({10, 0, 5_100}) |> last() == :provider

    stored =
      start
      |> sent.()
      |> answer({10, 0, 5_100})
      |> Context.to_snapshot()
      |> Context.load!()

    assert last(stored) == :provider

    # The next request was not noted.
    assert start |> answer({10, 0, 5_100}) |> last() == :unexplained
    # Another field, or something in the request that cannot be made again.
    other =
      Context.Audit.put_request(
        start,
        %{"model" => "claude", "body" => %{"temperature" => 0}},
        []
      )

    assert other |> sent.() |> answer({10, 0, 5_100}) |> last() == :unexplained
    {:ok, cut} = Context.Audit.put_sent(start, :anthropic, since: 2)
    assert cut |> answer({10, 0, 5_100}) |> last() == :unexplained
    # Other masks are a cause of their own, the same ones are none.
    masked = start |> Context.View.put_masks([{"Hi", "Ho"}]) |> sent.() |> answer({10, 0, 5_100})
    assert last(masked) == {:broken, :masked}
    again = masked |> sent.() |> answer({10, 0, 5_200})
    assert last(again) == :provider

    assert again |> Context.View.put_masks([]) |> sent.() |> answer({10, 0, 5_300}) |> last() ==
             {:broken, :masked}

    # What began otherwise has its cause.
    assert start
           |> Context.View.put_prompt_block(:b, "B")
           |> sent.()
           |> answer({10, 0, 5_100})
           |> last() == {:broken, :block}
  end

  test "money is what it cost, and what was lost of it" do
    context = start() |> answer({10, 5_000, 100}) |> answer({10, 0, 5_200}, minute: 9)
    account = Context.Audit.account(context, prices: @prices)
    assert Enum.map(account.requests, & &1.cost) == [626_500, 64_000, 651_500]
    assert Enum.map(account.requests, & &1.avoidable) == [0, 0, 5_100 * (125 - 10)]
    assert account.cost == 1_342_000 and account.avoidable == 586_500
    assert account.verdicts == %{first: 1, hit: 1, expired: 1}
    assert {account.predicted, account.read} == {10_100, 5_000}
    assert %{cost: nil, avoidable: nil} = Context.Audit.account(context)
  end

  test "other providers promise what they have, and OpenAI whole blocks" do
    answer = fn context, input, read ->
      {:ok, response} =
        Response.decode(:openai_chat, %{
          choices: [%{message: %{role: "assistant", content: "Yes"}, finish_reason: "stop"}],
          usage: %{
            prompt_tokens: input,
            completion_tokens: 1,
            prompt_tokens_details: %{cached_tokens: read}
          }
        })

      {:ok, context} = Context.add_response(context, response, requested_at: @start)
      Context.add_user_message(context, "And?")
    end

    context =
      Context.new("Hi")
      |> answer.(900, 0)
      |> answer.(1_300, 0)
      |> answer.(1_400, 1_280)
      |> answer.(1_500, 0)

    assert [{0, :first}, {0, :first}, {1_280, :hit}, {1_280, :unexplained}] =
             Enum.map(Context.Audit.account(context).requests, &{&1.predicted, &1.verdict})
  end

  test "what a policy hid is no mistake, and what somebody hid by hand is one" do
    long = Enum.reduce(1..4, start(), fn _, context -> answer(context, {10, 5_000, 1}) end)
    method = [method: :estimate, step: 1]
    budget = Context.Tokens.count_tokens(long, method: :estimate) - 1

    fit = fn context ->
      {:ok, context, %Range{}} = Context.View.fit(context, budget, method)
      context
    end

    drop = fn context ->
      {:ok, context, %{reason: nil}} = Context.View.compact(context, :drop)
      context
    end

    too_long = fn context ->
      {context, %{kind: :hidden}} = Context.Shortening.shorten(context, :context_overflow)
      context
    end

    for {change, verdict} <- [
          {fit, :hidden},
          {drop, :hidden},
          {too_long, :hidden},
          {&Context.View.hide(&1, {:all_but_last, 2}), {:broken, :hidden}},
          {&Context.View.hide(&1, 2..3), {:broken, :hidden}}
        ],
        reload? <- [false, true] do
      next = long |> change.() |> answer({10, 100, 4_900})
      next = if reload?, do: next |> Context.to_snapshot() |> Context.load!(), else: next
      last = List.last(Context.Audit.account(next, prices: @prices).requests)
      assert {verdict, last.verdict} == {verdict, verdict}
      assert last.avoidable == 0 == (verdict == :hidden)
      # The one after it reads what this one left.
      assert next |> answer({10, 5_000, 1}) |> last() == :hit
    end

    # By hand before it, or after it.
    by_hand = long |> fit.() |> answer({10, 100, 4_900})
    by_hand = by_hand |> Context.View.hide({:all_but_last, 1}) |> answer({10, 100, 4_900})
    assert last(by_hand) == {:broken, :hidden}
    chosen = long |> Context.View.hide(2) |> answer({10, 100, 4_900}) |> drop.()
    assert chosen |> answer({10, 100, 4_900}) |> last() == :hidden
  end

  test "what is stored is accounted for as before" do
    context =
      start()
      |> Context.put_system_prompt("T")
      |> answer({10, 0, 5_100})
      |> answer({10, 5_100, 9})

    stored = context |> Context.to_snapshot() |> Context.load!()

    assert Context.Audit.account(stored, prices: @prices) ==
             Context.Audit.account(context, prices: @prices)

    assert Context.equal?(stored, context)
    # The same system prompt is no change after loading either.
    assert stored |> answer({10, 0, 5_200}) |> last() == :unexplained

    assert stored |> Context.View.put_masks([{"S", "T"}]) |> answer({10, 0, 5_200}) |> last() ==
             {:broken, :masked}

    assert stored |> Context.put_system_prompt("U") |> answer({10, 0, 5_200}) |> last() ==
             {:broken, :system_prompt}
  end

  test "an account from an iteration on has the same rows" do
    hour = [cache_creation: %{ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 5_000}]

    context =
      Context.new("Hi")
      |> answer({10, 0, 5_000}, usage: hour)
      |> answer({10, 5_000, 0}, minute: 30)

    context = context |> answer({10, 5_000, 0}, minute: 60) |> answer({10, 0, 5_100}, minute: 100)
    %{requests: all} = Context.Audit.account(context, prices: @prices)
    assert List.last(all).verdict == :unexplained

    for since <- 1..6,
        do:
          assert(
            Context.Audit.account(context, prices: @prices, since: since).requests ==
              Enum.drop(all, since - 1)
          )
  end

  test "what was lost is shown at the terminal, on the page and in spans" do
    found = %{cache_miss_reason: %{type: "system_changed", cache_missed_input_tokens: 4_990}}

    context =
      start()
      |> Context.put_system_prompt("T")
      |> answer({10, 0, 5_100}, more: %{diagnostics: found})
      |> answer({10, 5_100, 10})

    line =
      "0 of 5000 tokens read: the system prompt is another one; its provider says: system_changed, 4990 tokens"

    printed = ExUnit.CaptureIO.capture_io(fn -> Context.print(context, width: :infinity) end)
    assert [_, _] = String.split(printed, "prompt cache   #{line}")
    assert [_, _] = context |> AshAgent.Trace.to_html(prices: @prices) |> String.split(line)

    [first, second, third] =
      for %{name: "chat claude"} = span <-
            OtlpReader.spans(AshAgent.Trace.to_otlp(context, prices: @prices)),
          do: span.attributes

    assert %{
             "ash_agent.cache.verdict" => "broken",
             "ash_agent.cache.cause" => "system_prompt",
             "ash_agent.cache.predicted_tokens" => 5_000,
             "ash_agent.cache.diagnosis" => "system_changed",
             "ash_agent.cache.avoidable_cost" => 5.75e-7
           } = second

    assert %{"ash_agent.cache.verdict" => "hit", "ash_agent.cache.predicted_tokens" => 5_100} =
             third

    refute Map.has_key?(third, "ash_agent.cache.cause")
    refute Enum.any?(Map.keys(first), &String.starts_with?(&1, "ash_agent.cache"))
    # A turn that is sent alone has the same.
    assert [%{"ash_agent.cache.predicted_tokens" => 5_100}] =
             for(
               %{name: "chat claude"} = span <-
                 OtlpReader.spans(AshAgent.Trace.to_otlp(context, turn: 3)),
               do: span.attributes
             )
  end

  describe "as CSV" do
    # A reader of RFC 4180 that shares nothing with the writer: rows of cells.
    defp read_csv(text), do: text |> IO.iodata_to_binary() |> cells([], [], "")

    defp cells("", [], [], ""), do: []
    defp cells(~s(") <> rest, rows, row, ""), do: quoted(rest, rows, row, "")
    defp cells("," <> rest, rows, row, cell), do: cells(rest, rows, [cell | row], "")

    defp cells("\r\n" <> rest, rows, row, cell),
      do: [Enum.reverse([cell | row]) | cells(rest, rows, [], "")]

    defp cells(<<char, rest::binary>>, rows, row, cell),
      do: cells(rest, rows, row, cell <> <<char>>)

    defp quoted(~s("") <> rest, rows, row, cell), do: quoted(rest, rows, row, cell <> ~s("))
    defp quoted(~s(") <> rest, rows, row, cell), do: cells(rest, rows, row, cell)

    defp quoted(<<char, rest::binary>>, rows, row, cell),
      do: quoted(rest, rows, row, cell <> <<char>>)

    test "there is a line for each request, and the money is exact" do
      context = start() |> answer({10, 5_000, 7}) |> answer({10, 0, 5_100}, model: "other")
      account = Context.Audit.account(context, prices: @prices)
      [header | lines] = context |> Trace.to_csv(id: "c1", prices: @prices) |> read_csv()
      rows = for line <- lines, do: header |> Enum.zip(line) |> Map.new()
      assert Enum.map(rows, & &1["verdict"]) == ~w(first hit broken)
      assert Enum.map(rows, & &1["cause"]) == ["", "", "model"]
      assert Enum.map(rows, & &1["model"]) == ~w(claude claude other)
      assert Enum.all?(rows, &(&1["conversation"] == "c1"))
      assert Enum.map(rows, & &1["cache_write_tokens"]) == ~w(5000 7 5100)
      {:ok, _at, 0} = DateTime.from_iso8601(hd(rows)["requested_at"])

      amounts = for %{"cost_usd" => text} <- rows, do: String.replace(text, ".", "")
      assert amounts |> Enum.map(&String.to_integer/1) |> Enum.sum() == account.cost

      dear = %{model: :any, input: 999_999_999_999, output: 1}
      [line] = answer(Context.new("x"), {3, 0, 0}) |> csv(prices: [dear], header: false)
      assert Enum.at(line, 13) == "2.999999999998"
      [line] = csv(start(), header: false)
      assert Enum.slice(line, 13, 2) == ["", ""]

      chat = ChatContext.new(context: start())
      assert [[_id, "1" | _]] = csv(chat, header: false)
    end

    defp csv(shown, opts), do: shown |> Trace.to_csv(opts) |> read_csv()

    test "no text is a formula, or ends its cell" do
      plain = ["fine", "c-1", ~s(a","=1), ~s("=1), "a\r\n=1"]

      formulas =
        ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\r=1", "\n=1", "\u00A0=1", "\u200B=1"] ++
          ["\uFF1D1", "|cmd", "%x", "\tx"]

      for text <- plain ++ formulas do
        context = answer(start(), {10, 5_000, 1}, model: text)
        [_header, _first, line] = csv(context, id: text)
        assert length(line) == 15
        mark = if text in formulas, do: "'", else: ""
        assert [hd(line), Enum.at(line, 4)] == [mark <> text, mark <> text]
      end
    end
  end

  describe "recorded sessions" do
    if folder = Session.folder() do
      @folder folder

      # Of the models in these recordings, in 10^-12 dollars.
      defp prices do
        for {model, input, output} <- [{"claude-sonnet-4-5", 3, 15}, {"claude-opus-4-5", 5, 25}] do
          %{
            model: model,
            input: input * 1_000_000,
            output: output * 1_000_000,
            cache_read: input * 100_000,
            cache_write: input * 1_250_000
          }
        end
      end

      for {file, steps, exact, breaks} <- [
            {"pi-1.jsonl", 438, 398, [expired: 4, fields: 4, unexplained: 29]},
            {"pi-2.jsonl", 470, 455, [compacted: 2, expired: 1, fields: 1, unexplained: 8]}
          ] do
        test "#{file} is predicted to the token, its breaks have their evidence, and the money is what was paid" do
          {context, costs} = Session.read(Path.join(@folder, unquote(file)))
          account = Context.Audit.account(context, prices: prices())
          assert [%{verdict: :first} | rest] = account.requests
          assert length(rest) == unquote(steps)
          {kept, broken} = Enum.split_with(rest, &(&1.verdict in [:first, :hit]))

          assert Enum.count(kept, &(&1.predicted == (&1.usage[:cached_tokens] || 0))) ==
                   unquote(exact)

          # System prompt and tools were not recorded, so most breaks have no cause that is known.
          causes =
            Enum.frequencies_by(broken, fn
              %{verdict: {:broken, cause}} -> cause
              %{verdict: verdict} -> verdict
            end)

          assert Enum.sort(causes) == unquote(breaks)
          assert Enum.map(account.requests, & &1.cost) == costs
          assert account.cost == Enum.sum(costs)
        end
      end
    end
  end
end
