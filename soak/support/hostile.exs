defmodule AshAgent.Soak.Hostile do
  @moduledoc """
  Input that nobody should give: changed snapshots and bodies, terms nested too deep, huge integers, bytes that are no
  text, arguments of every wrong kind. Answers have to be values, errors, or what a caller's mistake raises.
  """

  import AshAgent.Soak.Call, only: [call: 2, expect: 2, hostile: 2]
  import AshAgent.TestSupport.Generators, only: [between: 2, chance: 1, one_of: 1]

  alias AshAgent.Context
  alias AshAgent.Soak.{Pool, Reading}
  alias AshAgent.TestSupport.Generators

  @doc "A snapshot with changed or missing bytes, as text and as a document with junk in it."
  def stored({_, context, _, _} = session) do
    text = call(:to_snapshot, fn -> Context.to_snapshot(context) end)

    if Pool.small?(session) or chance(10) do
      changed = damaged(text)
      read(:from_snapshot_hostile, fn -> Context.load(changed) end)
    end

    document = call(:dump, fn -> Context.dump(context) end)
    changed = junked(document)
    read(:load_hostile, fn -> Context.load(changed) end)
    hostile(:load_delta_hostile, fn -> Context.load(context, changed) end)
  end

  @doc "The same with requests."
  def imported({_, context, _, _} = session) do
    provider = Reading.provider()

    with true <- Pool.small?(session),
         {:ok, body} <-
           call(:request, fn -> Context.request(context, provider, pending: :interrupt) end) do
      changed = junked(body)
      read(:from_request_hostile, fn -> Context.Import.from_request(changed, provider) end)
      text = damaged(call(:"JSON.encode", fn -> Context.JSON.encode(body) end))
      read(:from_request_hostile, fn -> Context.Import.from_request(text, Reading.provider()) end)
    end
  end

  @doc "Values that no context takes, and some that it just takes."
  def terms({_, context, _, _}) do
    value = value()
    call = [%{id: "deep", name: :deep, arguments: %{a: value}}]
    hostile(:add_call_hostile, fn -> Context.add_assistant_message(context, "x", call) end)
    hostile(:put_metadata_hostile, fn -> Context.put_metadata(context, :deep, value) end)
    hostile(:new_hostile, fn -> Context.new("x", metadata: %{a: value}) end)
    hostile(:interrupt_hostile, fn -> Context.interrupt(context, value) end)
    hostile(:JSON_hostile, fn -> Context.JSON.encode(value) end)
  end

  @doc "JSON texts that are deep, long or no JSON."
  def texts({_, context, _, _}) do
    text = json()
    read(:from_snapshot_hostile, fn -> Context.load(text) end)
    read(:from_request_hostile, fn -> Context.Import.from_request(text, Reading.provider()) end)
    hostile(:JSON_hostile, fn -> Context.JSON.decode(text) end)
    call = [%{id: "text", name: :text, arguments: text}]
    hostile(:add_call_hostile, fn -> Context.add_assistant_message(context, text, call) end)
    hostile(:new_hostile, fn -> Context.new(text) end)
  end

  @doc "Any function with arguments of any kind."
  def arguments({_, context, _, _}) do
    [a, b] = for _ <- 1..2, do: one_of(Generators.junk())
    map = %{iterations: [%{messages: [a, b], tool_calls: b}], current_iteration: b}

    one_of([
      fn -> Context.new(a, b) end,
      fn -> Context.add_user_message(context, a, b) end,
      fn -> Context.add_assistant_message(context, a, b) end,
      fn -> Context.add_tool_results(context, [a, b]) end,
      fn -> Context.get_iteration(context, a) end,
      fn -> Context.fetch_message(context, {a, b}) end,
      fn -> Context.rewind(context, to: a) end,
      fn -> Context.View.fit(context, a, step: b) end,
      fn -> Context.View.expand(context, a) end,
      fn -> Context.View.compact(context, a, range: b) end,
      fn -> Context.View.put_masks(context, [{a, b}]) end,
      fn -> Context.Recall.recall(context, a, pattern: b) end,
      fn -> Context.Recall.search(context, a) end,
      fn -> Context.View.put_masks(context, [{"(a{1000}){1000}", "x"}]) end,
      fn -> Context.View.put_prompt_block(context, a, b) end,
      fn -> Context.Tokens.add_token_usage(context, %{"input_tokens" => a, output_tokens: b}) end,
      fn -> Context.encode_request(context, :anthropic, body: %{a: a, b: b}) end,
      fn -> Context.encode_request(context, a, model: b) end,
      fn -> Context.Calls.approve_tool_call(context, a, by: b) end,
      fn -> Context.View.put_max_result_bytes(context, a) end,
      fn -> Context.View.hide(context, {:older_than, a}) end,
      fn -> Context.create(map) end,
      fn -> Context.update(context, %{metadata: a, updated_at: b}) end,
      fn -> Context.Import.from_messages([a, %{role: "user", content: b}]) end,
      fn -> Context.load(a) end,
      fn -> Context.load(context, b) end,
      fn -> Context.dump(context, since: a) end
    ])
    |> then(&hostile(:any_arguments, &1))
  end

  # What was accepted is a context like any other.
  defp read(name, fun) do
    case hostile(name, fun) do
      {:ok, context} -> used(context)
      {:ok, context, _report} -> used(context)
      _refused -> :ok
    end
  end

  defp used(context) do
    document = call(:dump, fn -> Context.dump(context) end)

    case call(:load, fn -> Context.load(document) end) do
      {:ok, copy} ->
        equal = call(:equal?, fn -> Context.equal?(context, copy) end)
        expect(equal == true, "hostile data was accepted and came back otherwise")

      :refused ->
        expect(false, "hostile data was accepted, dumped and refused")
    end

    provider = Reading.provider()

    call(:"encode_request #{provider}", fn ->
      Context.encode_request(context, provider, pending: :interrupt)
    end)
  end

  # ---- damage

  defp damaged(text) when is_binary(text) and byte_size(text) > 2 do
    if chance(20),
      do: binary_part(text, 0, between(0, byte_size(text) - 1)),
      else: Enum.reduce(1..between(1, 4), text, fn _, text -> changed(text) end)
  end

  defp damaged(text), do: text

  defp changed(text) do
    at = between(0, byte_size(text) - 1)
    <<before::binary-size(at), _, rest::binary>> = text
    byte = one_of([0, 10, 92, 127, 128, 255] ++ ~c({}[]",:$0123456789abnrtu))
    <<before::binary, byte, rest::binary>>
  end

  # Something else in the place of some value.
  defp junked(map) when is_map(map) and map_size(map) > 0 do
    key = map |> Map.keys() |> one_of()
    if chance(10), do: Map.delete(map, key), else: Map.update!(map, key, &junked/1)
  end

  defp junked(list) when is_list(list) and list != [],
    do: List.update_at(list, between(0, length(list) - 1), &junked/1)

  defp junked(_value), do: if(chance(50), do: one_of(Generators.junk()), else: json_value())

  defp json_value do
    one_of([
      %{"$atom" => "no such atom #{between(1, 1_000_000_000)}"},
      %{"$int" => String.duplicate("9", 5_000)},
      %{"$float" => "1e999"},
      %{"$bytes" => "="},
      %{"$map" => [[%{"$map" => []}, 1], [1, 2], [1, 3]]},
      %{"$tuple" => [[], %{}]},
      Bitwise.bsl(1, 300),
      nested(between(1, 400)),
      <<255, 254>>,
      "user",
      "tool_use"
    ])
  end

  defp value do
    one_of([
      nested(between(240, 300)),
      nested(20_000),
      Bitwise.bsl(1, between(100, 50_000)),
      [1 | 2],
      <<1::7>>,
      %{<<255>> => <<0xED, 0xA0, 0x80>>},
      Generators.term(30),
      List.duplicate(nested(250), 20),
      self(),
      fn -> :ok end
    ])
  end

  defp nested(levels) do
    kind = one_of([:list, :tuple, :map, :key])

    Enum.reduce(1..levels, 1, fn _, inner ->
      case kind do
        :list -> [inner]
        :tuple -> {inner}
        :map -> %{"a" => inner}
        :key -> %{[inner] => 1}
      end
    end)
  end

  defp json do
    one_of([
      String.duplicate("[", between(100, 100_000)),
      String.duplicate(~s({"a":), between(100, 20_000)),
      ~s({"version":1,"id":"x","iterations":#{String.duplicate("[", 300)}#{String.duplicate("]", 300)}}),
      ~s({"version":99999999999999999999,"iterations":[]}),
      ~s({"messages":[{"role":"user","content":) <> String.duplicate("9", 5_000) <> "}]}",
      "[" <> String.duplicate("null,", 20_000) <> "null]",
      <<"{\"messages\":[{\"role\":\"user\",\"content\":\"", 255, "\"}]}">>,
      ~S({"messages":[{"role":"user","content":"\ud800"}]}),
      :rand.bytes(between(1, 200)),
      ""
    ])
  end
end
