defmodule AshAgent.TestSupport.Generators do
  @moduledoc false
  # Seeded generators on `:rand`. All draw from the state of the calling process, which `check_all/3` seeds.

  alias AshAgent.Context

  @doc """
  Runs `fun.(size)` for `:runs` cases of growing size (1 to `:max_size`).

  Each case has its own seed, made of ExUnit's seed, the name and the number of the case; a failure names them.
  """
  def check_all(name, options \\ [], fun) do
    runs = Keyword.get(options, :runs, 100)
    max_size = Keyword.get(options, :max_size, 20)
    seed = ExUnit.configuration()[:seed]

    for number <- 1..runs do
      seed_case(seed, name, number)
      size = max(1, div(number * max_size, runs))

      try do
        fun.(size)
      rescue
        exception ->
          message = """
          #{name}: case #{number} of size #{size} failed; run again with `mix test --seed #{seed}`

          #{Exception.message(exception)}
          """

          reraise ExUnit.AssertionError, [message: message], __STACKTRACE__
      end
    end

    :ok
  end

  def seed_case(seed, name, number) do
    :rand.seed(:exsss, {seed, :erlang.phash2(name), number})
  end

  # Choice

  def one_of(list), do: Enum.at(list, :rand.uniform(length(list)) - 1)
  def chance(percent), do: :rand.uniform(100) <= percent
  def between(low, high), do: low + :rand.uniform(high - low + 1) - 1

  def list_of(max_length, fun), do: many(between(0, max_length), fun)
  def many(0, _fun), do: []
  def many(count, fun), do: for(_ <- 1..count, do: fun.())

  def weighted(choices) do
    total = choices |> Enum.map(&elem(&1, 0)) |> Enum.sum()
    pick(choices, :rand.uniform(total))
  end

  defp pick([{weight, value} | _], n) when n <= weight, do: value
  defp pick([{weight, _} | rest], n), do: pick(rest, n - weight)

  # Terms

  @atoms [
    :ok,
    :error,
    :a,
    :city,
    :not_found,
    :"with space",
    :é,
    :"",
    :"Elixir",
    String,
    :nil_,
    :user
  ]
  @edges [
    0,
    -1,
    0x7FFFFFFF,
    0x80000000,
    0x7FFFFFFFFFFFFFFF,
    0x8000000000000000,
    -0x8000000000000000,
    -0x8000000000000001,
    0xFFFFFFFFFFFFFFFF,
    0x10000000000000000,
    0x07FFFFFFFFFFFFFF,
    0x0800000000000000,
    -0x0800000000000001
  ]
  @floats [-0.0, 0.0, 1.0, -1.5, 0.1, 1.0e308, -1.0e308, 5.0e-324, 1.0e22, 123_456_789.125]

  @doc "Any term that can outlive its process."
  def term(size) do
    if size <= 1 or chance(40), do: scalar(), else: container(size)
  end

  def scalar do
    weighted([
      {2, fn -> one_of([nil, true, false]) end},
      {3, fn -> one_of(@edges) end},
      {2, fn -> between(-1000, 1000) end},
      {1, fn -> one_of([1, -1]) * big_integer() end},
      {3, fn -> one_of(@floats) end},
      {1, fn -> :rand.normal() * 1.0e10 end},
      {3, fn -> one_of(@atoms) end},
      {5, fn -> text() end},
      {3, fn -> bytes() end}
    ]).()
  end

  defp container(size) do
    inner = div(size, 2)

    weighted([
      {4, fn -> list_of(4, fn -> term(inner) end) end},
      {2, fn -> keyword(inner) end},
      {1, fn -> ~c"charlist" end},
      {3, fn -> List.to_tuple(list_of(4, fn -> term(inner) end)) end},
      {5, fn -> map(inner) end},
      {1, fn -> Map.new(1..40, &{&1, term(1)}) end},
      {2, fn -> struct_term(inner) end}
    ]).()
  end

  def map(size), do: Map.new(list_of(4, fn -> {map_key(size), term(size)} end))

  def keyword(size), do: list_of(3, fn -> {one_of(@atoms), term(size)} end)

  # Keys that are equal in value but not in type (1 and 1.0) are different keys.
  defp map_key(size) do
    weighted([
      {6, fn -> one_of(@atoms) end},
      {6, fn -> text() end},
      {2, fn -> one_of([0, 1, 1.0, -7, 0x10000000000000000]) end},
      {1, fn -> bytes() end},
      {1, fn -> {one_of(@atoms), text()} end},
      {1, fn -> if(size > 2, do: [1, 2], else: nil) end}
    ]).()
  end

  defp struct_term(size) do
    weighted([
      {2, fn -> instant() end},
      {1, fn -> ~D[2026-02-28] end},
      {1, fn -> ~T[10:00:00.5] end},
      {1, fn -> ~N[2026-01-01 00:00:00] end},
      {1, fn -> 1..10//3 end},
      {1, fn -> MapSet.new(list_of(3, fn -> term(1) end)) end},
      {1, fn -> URI.parse("https://example.com/?q=1") end},
      {1, fn -> %RuntimeError{message: text()} end},
      {1, fn -> %{__struct__: No.Such.Module, value: term(size)} end}
    ]).()
  end

  defp big_integer, do: :binary.decode_unsigned(:rand.bytes(one_of([8, 9, 16, 33, 250])))

  @doc "Text, valid UTF-8."
  def text do
    weighted([
      {1, fn -> "" end},
      {8, fn -> ascii(between(1, 20)) end},
      {3,
       fn -> String.slice("Grüße, Welt 日本語 👩‍👩‍👧 \u0000 \"quoted\" \\ \n\t", 0, between(1, 30)) end},
      {2, fn -> ascii(between(62, 66)) end},
      {1, fn -> ascii(between(250, 5000)) end}
    ]).()
  end

  def ascii(length),
    do: for(_ <- 1..length, into: "", do: <<one_of(~c" abcdefghijklmnopqrstuvwxyz")>>)

  @doc "Bytes, mostly not UTF-8."
  def bytes do
    weighted([
      {3, fn -> :rand.bytes(between(0, 40)) end},
      {1, fn -> <<255>> end},
      {1, fn -> <<0xED, 0xA0, 0x80>> end},
      {1, fn -> :rand.bytes(one_of([63, 64, 65, 300])) end}
    ]).()
  end

  def instant do
    DateTime.add(~U[2026-01-01 00:00:00.000000Z], between(0, 1_000_000_000_000), :microsecond)
  end

  # Content

  def parts(kinds), do: many(between(1, 3), fn -> part(one_of(kinds)) end)

  @user_parts [:text, :image, :image_url, :file, :file_url, :provider_block]
  @assistant_parts @user_parts ++ [:thinking, :redacted_thinking]
  @result_parts [:text, :image, :image_url, :file, :file_url]

  def user_parts, do: parts(@user_parts)
  def assistant_parts, do: parts(@assistant_parts)
  def result_parts, do: parts(@result_parts)

  def part(kind) do
    part = plain_part(kind)

    if chance(20),
      do: Map.put(part, :provider_metadata, %{provider: :gemini, signature: ascii(70)}),
      else: part
  end

  defp plain_part(:text), do: %{type: :text, text: text()}
  defp plain_part(:image), do: %{type: :image, media_type: "image/png", data: base64()}
  defp plain_part(:image_url), do: %{type: :image, url: "https://example.com/a.png"}

  defp plain_part(:file) do
    %{type: :file, media_type: "application/pdf", data: base64(), filename: "a.pdf"}
  end

  defp plain_part(:file_url) do
    %{type: :file, media_type: "application/pdf", url: "https://example.com/a.pdf", filename: "a"}
  end

  defp plain_part(:thinking), do: %{type: :thinking, text: text()}
  defp plain_part(:redacted_thinking), do: %{type: :redacted_thinking, data: base64()}

  defp plain_part(:provider_block) do
    %{type: :provider_block, provider: :anthropic, data: %{"type" => "x", "n" => between(1, 9)}}
  end

  defp base64, do: Base.encode64(:rand.bytes(between(1, 100)))

  def tool_calls(size) do
    count = between(1, min(4, size + 1))

    for index <- 1..count do
      %{name: one_of([:search, :get_weather, "book_flight"])}
      |> put_sometimes(80, :id, fn -> one_of(["call_", "toolu_", "Ä"]) <> "#{index}" end)
      |> put_sometimes(80, :arguments, fn -> arguments(size) end)
      |> put_sometimes(10, :provider_metadata, fn -> %{provider: :gemini, signature: "s"} end)
      |> put_sometimes(10, "index", fn -> index end)
      |> restring(20)
    end
  end

  defp put_sometimes(map, percent, key, fun) do
    if chance(percent), do: Map.put(map, key, fun.()), else: map
  end

  # Known keys may come as strings.
  defp restring(call, percent) do
    if chance(percent) do
      Map.new(call, fn
        {key, value} when key in [:id, :name, :arguments] -> {Atom.to_string(key), value}
        other -> other
      end)
    else
      call
    end
  end

  defp arguments(size) do
    weighted([
      {6, fn -> map(size) end},
      {2, fn -> json_texts() |> Map.keys() |> one_of() end},
      {1, fn -> nil end}
    ]).()
  end

  def result(size) do
    weighted([
      {6, fn -> {:ok, simple(size)} end},
      {4, fn -> {:ok, term(size)} end},
      {2, fn -> {:ok, result_parts()} end},
      {3, fn -> {:error, one_of([:not_found, :timeout, {:http, 500}, "no such city", ""])} end},
      {1, fn -> {:error, term(size)} end}
    ]).()
  end

  # Results whose text the model knows to the letter.
  defp simple(size) do
    weighted([
      {3, fn -> text() end},
      {1, fn -> one_of([nil, "", "  \n", true, 42, 0.5, :done, [], %{}, {}]) end},
      {2, fn -> %{one_of([:temp, "city"]) => if(size > 2, do: simple(size - 2), else: 72)} end},
      {1, fn -> {:a, [1, "b"], nil} end}
    ]).()
  end

  @json_texts %{
    ~s({"city":"NYC"}) => %{"city" => "NYC"},
    ~s( {"n": 123456789012345678901234567890, "f": 1.5, "l": [null, true, {}]} ) => %{
      "n" => 123_456_789_012_345_678_901_234_567_890,
      "f" => 1.5,
      "l" => [nil, true, %{}]
    },
    ~s({"text":"Gr\\u00fc\\u00dfe \\ud83d\\ude00"}) => %{"text" => "Grüße 😀"},
    "{}" => %{},
    "[1,2]" => "[1,2]",
    "not json" => "not json",
    ~s({"open":) => ~s({"open":),
    <<123, 255, 125>> => <<123, 255, 125>>
  }

  @doc "Arguments a provider may send as JSON text, and what they come back as."
  def json_texts, do: @json_texts

  # Operations, as data: `{fork, function, arguments}`. `fork` counts back from the newest context.

  @doc "An operation that makes sense (mostly) on a context."
  def operation(%Context{} = context, size) do
    at = [at: instant()]
    pending = for call <- Context.pending_tool_calls(context), do: call.id
    busy = pending != []

    weighted([
      {if(busy, do: 1, else: 4),
       fn -> {:add_user_message, [input(size), message_options(at)]} end},
      {if(busy, do: 1, else: 8),
       fn -> {:add_assistant_message, [content(), calls(size), message_options(at)]} end},
      {if(busy, do: 12, else: 0), fn -> results(pending, size, message_options(at)) end},
      {2, fn -> wrong_results(context, pending, size, at) end},
      {if(busy, do: 2, else: 1), fn -> {:interrupt, [ascii(5), at]} end},
      {1, fn -> {:put_metadata, [one_of([:a, "a", :b]), term(size), at]} end},
      {1,
       fn ->
         number = between(0, context.current_iteration + 1)
         {:put_iteration_metadata, [number, one_of([:a, "a"]), term(size), at]}
       end},
      {1, fn -> {:recreate, []} end},
      {1, fn -> {:fork, [[id: id()] ++ at]} end},
      {1, fn -> {:update, [%{metadata: map(size), updated_at: instant()}]} end}
    ]).()
  end

  @doc "The arguments of `new/2`."
  def new_arguments(size) do
    options = [at: instant(), id: id()]

    options = if chance(50), do: [{:system_prompt, text_not_empty()} | options], else: options
    options = if chance(30), do: [{:metadata, map(size)} | options], else: options
    [input(size), options]
  end

  defp id, do: "00000000-0000-4000-8000-#{between(100_000_000_000, 999_999_999_999)}"

  defp text_not_empty, do: "S" <> text()

  defp message_options(options) do
    if chance(20),
      do: [{:metadata, %{one_of([:source, "source", :trace]) => text()}} | options],
      else: options
  end

  defp input(_size) do
    weighted([
      {6, fn -> text() end},
      {2, fn -> user_parts() end},
      {1, fn -> %{message: text()} end},
      {1, fn -> %{"message" => text()} end},
      {1, fn -> %{question: between(1, 9)} end}
    ]).()
  end

  defp content, do: weighted([{6, text()}, {2, nil}, {2, assistant_parts()}])

  defp calls(size) do
    cond do
      chance(40) -> []
      chance(5) -> [%{id: "twice", name: :a}, %{id: "other", name: :a}, %{id: "twice", name: :b}]
      true -> tool_calls(size)
    end
  end

  defp results(pending, size, options) do
    ids = Enum.take_random(pending, between(1, length(pending)))
    {:add_tool_results, [Enum.map(ids, &answer(&1, size)), options]}
  end

  defp answer(id, size) do
    result = result(size)
    one_of([%{id: id, result: result}, %{"id" => id, "result" => result}, {id, result}])
  end

  defp wrong_results(context, pending, size, options) do
    known =
      for iteration <- Context.iterations(context),
          call <- iteration.tool_calls,
          uniq: true,
          do: call.id

    ids =
      weighted([
        {1, fn -> [] end},
        {2, fn -> ["nobody" | pending] end},
        {2, fn -> Enum.take(pending, 1) ++ Enum.take(pending, 1) end},
        {2, fn -> Enum.take_random(known, 1) ++ Enum.take(pending, 1) end}
      ]).()

    {:add_tool_results, [Enum.map(ids, &answer(&1, size)), options]}
  end

  @doc "The context that all operations of a random conversation lead to; those that are refused change nothing."
  def random_context(size) do
    {_new, _operations, context} = conversation(size)
    context
  end

  @doc "Applies an operation to a context, which stays as it was if that is refused."
  def try_operation(context, :recreate, []), do: context
  def try_operation(context, :update, [attributes]), do: Context.update!(context, attributes)

  def try_operation(context, function, arguments) do
    apply(Context, function, [context | arguments])
  rescue
    Context.Error -> context
  end

  @doc "Operations of a whole conversation, with the context that they lead to."
  def conversation(size) do
    new = new_arguments(size)

    {operations, context} =
      Enum.map_reduce(1..(size + 1), apply(Context, :new, new), fn _, context ->
        {function, arguments} = operation = operation(context, size)
        {operation, try_operation(context, function, arguments)}
      end)

    {new, operations, context}
  end

  # Junk

  @doc "A value of every kind a caller can get wrong."
  def junk do
    [
      nil,
      true,
      :atom,
      0,
      -1,
      1,
      0x10000000000000000,
      -0x10000000000000000,
      Bitwise.bsl(1, 5000),
      1.5,
      "",
      "text",
      <<255, 254>>,
      <<1::3>>,
      [],
      [nil],
      [1 | 2],
      [[]],
      ["text"],
      [%{}],
      [a: 1],
      [at: nil],
      [{:at, 1}],
      {},
      {1, 2},
      {-1, -1},
      {0x10000000000000000, 0},
      {1, 0x10000000000000000},
      %{},
      %{id: nil},
      %{"id" => "a", :id => "b"},
      %{__struct__: AshAgent.Context},
      %{__struct__: "text"},
      %{type: :text},
      ~D[2026-01-01],
      %{~U[2026-01-01 00:00:00Z] | month: 13},
      %{~U[2026-01-01 00:00:00Z] | year: 99_999_999_999},
      %{~U[2026-01-01 00:00:00Z] | microsecond: nil},
      self(),
      make_ref(),
      &String.upcase/1,
      fn -> :ok end
    ]
  end
end
