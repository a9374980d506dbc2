defmodule AshAgent.TestSupport.BillingCache do
  @moduledoc false

  # A provider that bills by the rules of Claude's prompt cache, and shares no code with the package: a transport for the clients of
  # Anthropic and Bedrock. Its clock stands still until a test moves it.
  #
  #   * an entry is an exact prefix that ends at a mark, and has `:least` tokens or more
  #   * from a mark, an entry is looked for at 20 positions, its own included. By the rule `:runs` a run of calls is one position, and so
  #     is a run of results; by the rule `:blocks` each block is one
  #   * an entry lives for five minutes or an hour, from when it was last used; each model has entries of its own
  #   * a token is four bytes, rounded up for each block
  #
  # `answer` gets the number of the request, from 1, and returns a text or a list of `{id, name, arguments}` for calls. The best
  # that could be billed for the same requests is summed up as well: reading all that any earlier request has, writing the rest.

  @behaviour AshAgent.LLM.Transport

  alias AshAgent.Context.JSON

  @look_back 20
  @most_marks 4

  def start_link(opts) do
    own = %{rule: :runs, least: 1_024, now: 0, entries: %{}, seen: MapSet.new(), bills: []}
    Agent.start_link(fn -> Map.merge(own, Map.new(opts)) end)
  end

  def transport(provider), do: {__MODULE__, provider: provider}
  def move_clock(provider, minutes), do: Agent.update(provider, &%{&1 | now: &1.now + minutes})

  @doc "The bills of all requests, oldest first."
  def bills(provider), do: Agent.get(provider, &Enum.reverse(&1.bills))

  @doc "What all requests cost, in ordinary tokens of the request: reading costs 0.1, writing 1.25, or 2 for an hour."
  def sum(provider), do: provider |> bills() |> Enum.map(&cost/1) |> Enum.sum()

  @doc "What they would have cost without any mark."
  def sum_unmarked(provider), do: provider |> bills() |> Enum.map(& &1.all) |> Enum.sum()

  @doc "What they would have cost if each had read all that any request before it has."
  def sum_best(provider),
    do:
      provider
      |> bills()
      |> Enum.map(&(&1.common * 0.1 + (&1.all - &1.common) * 1.25))
      |> Enum.sum()

  def cost(bill),
    do: bill.fresh + bill.read * 0.1 + (bill.written - bill.hour) * 1.25 + bill.hour * 2

  @impl true
  def stream(request, acc, fun, opts) do
    body = request.body |> IO.iodata_to_binary() |> JSON.decode!()
    {form, model} = find_form(request.uri.path, body)
    blocks = form |> list_blocks(body) |> number()
    {bill, answer} = Agent.get_and_update(opts[:provider], &bill(&1, model, blocks))
    json = JSON.encode(answer(form, model, answer, bill))
    {:cont, acc} = fun.({:head, 200, [{"content-type", "application/json"}]}, acc)
    {_, acc} = fun.({:data, IO.iodata_to_binary(json)}, acc)
    {:ok, acc}
  end

  ## Requests as blocks, `{kind, content, minutes of its mark or nil}`

  defp find_form(path, body) do
    case Regex.run(~r{/model/(.+)/converse}, path) do
      [_, model] -> {:bedrock, URI.decode(model)}
      nil -> {:anthropic, body["model"]}
    end
  end

  defp list_blocks(:anthropic, body) do
    tools = for tool <- body["tools"] || [], do: {"tool", tool, nil}
    system = for block <- as_blocks(body["system"]), do: block(block, "system")

    messages =
      for message <- body["messages"],
          block <- as_blocks(message["content"]),
          do: block(block, message["role"])

    tools ++ system ++ messages
  end

  defp list_blocks(:bedrock, body) do
    system = for block <- body["system"] || [], do: {"system", block}

    messages =
      for message <- body["messages"], block <- message["content"], do: {message["role"], block}

    tools = for tool <- get_in(body, ["toolConfig", "tools"]) || [], do: {"tool", tool}

    (tools ++ system ++ messages)
    |> Enum.reduce([], fn
      {_role, %{"cachePoint" => point}}, [{kind, content, _mark} | rest] ->
        [{kind, content, minutes(point["ttl"])} | rest]

      {role, block}, rest ->
        [{kind(Map.keys(block)), {role, block}, nil} | rest]
    end)
    |> Enum.reverse()
  end

  defp as_blocks(nil), do: []
  defp as_blocks(text) when is_binary(text), do: [%{"type" => "text", "text" => text}]
  defp as_blocks(blocks), do: blocks

  defp block(block, role) do
    {control, block} = Map.pop(block, "cache_control")
    {kind([block["type"]]), {role, block}, control && minutes(control["ttl"])}
  end

  defp kind([type]) when type in ["tool_use", "toolUse"], do: :call
  defp kind([type]) when type in ["tool_result", "toolResult"], do: :result
  defp kind(_types), do: :other

  defp minutes("1h"), do: 60
  defp minutes(_default), do: 5

  # Each block gets the digest of all up to it, the tokens up to it, and its positions by both rules.
  defp number(blocks) do
    start = %{hash: <<>>, all: 0, kind: nil, runs: 0, blocks: 0}

    {numbered, _last} =
      Enum.map_reduce(blocks, start, fn {kind, content, minutes}, last ->
        goes_on? = kind == last.kind and kind in [:call, :result]

        block = %{
          kind: kind,
          mark: minutes,
          hash: :crypto.hash(:md5, [last.hash, :erlang.term_to_binary(content)]),
          all: last.all + div(size(content) + 3, 4),
          runs: if(goes_on?, do: last.runs, else: last.runs + 1),
          blocks: last.blocks + 1
        }

        {block, block}
      end)

    numbered
  end

  defp size(text) when is_binary(text), do: byte_size(text)
  defp size(%{} = map), do: map |> Map.to_list() |> size()
  defp size(list) when is_list(list), do: list |> Enum.map(&size/1) |> Enum.sum()
  defp size({a, b}), do: size(a) + size(b)
  defp size(_other), do: 4

  ## The bill

  defp bill(%{rule: rule, now: now} = state, model, blocks) do
    marks = Enum.filter(blocks, & &1.mark)
    true = length(marks) <= @most_marks
    key = &{model, &1.hash}
    live? = fn block -> match?({until, _} when until >= now, state.entries[key.(block)]) end

    found =
      for mark <- marks,
          block <- blocks,
          block.all <= mark.all,
          block[rule] > mark[rule] - @look_back,
          live?.(block),
          do: block

    hit = Enum.max_by(found, & &1.all, fn -> nil end)
    read = if hit, do: hit.all, else: 0
    kept = Enum.filter(marks, &(&1.all >= least(state, model)))

    reach = fn minutes ->
      for(%{mark: ^minutes} = mark <- kept, do: mark.all) |> Enum.max(fn -> 0 end)
    end

    hour = max(reach.(60) - read, 0)
    written = max(max(reach.(5), reach.(60)) - read, 0)
    all = List.last(blocks).all

    common =
      blocks
      |> Enum.take_while(&(key.(&1) in state.seen))
      |> Enum.map(& &1.all)
      |> Enum.max(fn -> 0 end)

    used = for mark <- kept, into: %{}, do: {key.(mark), {now + mark.mark, mark.mark}}
    again = if hit, do: %{key.(hit) => refresh(state.entries[key.(hit)], now)}, else: %{}
    entries = state.entries |> Map.merge(again) |> Map.merge(used, fn _key, a, b -> max(a, b) end)
    number = length(state.bills) + 1

    bill = %{
      all: all,
      read: read,
      written: written,
      hour: hour,
      fresh: all - read - written,
      common: common
    }

    seen = Enum.reduce(blocks, state.seen, &MapSet.put(&2, key.(&1)))

    state = %{
      state
      | entries: entries,
        seen: seen,
        bills: [Map.put(bill, :marks, length(marks)) | state.bills]
    }

    {{Map.put(bill, :number, number), state.answer.(number)}, state}
  end

  defp refresh({_until, minutes}, now), do: {now + minutes, minutes}

  defp least(%{least: least}, _model) when is_integer(least), do: least
  defp least(%{least: least}, model), do: least.(model)

  ## Answers

  defp answer(:anthropic, model, answer, bill) do
    {content, reason} =
      content(answer, &%{type: "text", text: &1}, fn {id, name, arguments} ->
        %{type: "tool_use", id: id, name: name, input: arguments}
      end)

    usage = %{
      input_tokens: bill.fresh,
      cache_read_input_tokens: bill.read,
      cache_creation_input_tokens: bill.written,
      cache_creation: %{
        ephemeral_5m_input_tokens: bill.written - bill.hour,
        ephemeral_1h_input_tokens: bill.hour
      },
      output_tokens: 10
    }

    own = %{
      id: "msg_#{bill.number}",
      type: "message",
      role: "assistant",
      model: model,
      usage: usage
    }

    Map.merge(own, %{content: content, stop_reason: reason})
  end

  defp answer(:bedrock, _model, answer, bill) do
    {content, reason} =
      content(answer, &%{text: &1}, fn {id, name, arguments} ->
        %{toolUse: %{toolUseId: id, name: name, input: arguments}}
      end)

    usage = %{
      inputTokens: bill.fresh,
      cacheReadInputTokens: bill.read,
      cacheWriteInputTokens: bill.written,
      outputTokens: 10,
      totalTokens: bill.all + 10
    }

    %{
      output: %{message: %{role: "assistant", content: content}},
      stopReason: reason,
      usage: usage
    }
  end

  defp content(text, write, _call) when is_binary(text), do: {[write.(text)], "end_turn"}
  defp content(calls, _write, call), do: {Enum.map(calls, call), "tool_use"}
end
