defmodule AshAgent.TestSupport.ContextGenerators do
  @moduledoc """
  Random contexts for the projection, with everything in them that a provider could stumble over.

  A context is generated as a *script*, a list of steps as data, and built from it through the public API. So it can be
  built a second time, in another process and at another time; it can be continued; and a script that shows a fault can be
  made smaller (`shrinks/1`) and printed.

      {:new, input, options} | {:user, input} | {:assistant, content, calls} |
        {:answer, count | :all, :in_order | :reversed, results} | {:interrupt, reason} | {:view, operation} |
        {:arrive, which, result} | :place | :fork

  A step that makes no sense where it stands (a message while calls are pending, results while none is) is passed over.
  All draws come from `:rand`, from the state of the calling process.
  """

  import AshAgent.TestSupport.Generators,
    only: [between: 2, chance: 1, many: 2, one_of: 1, weighted: 1]

  alias AshAgent.Context
  alias AshAgent.TestSupport.Generators

  @type script :: [tuple()]

  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]

  @models %{
    anthropic: ["claude-sonnet-4-5", "claude-opus-4-1"],
    openai_chat: ["gpt-4o", "gpt-5.6"],
    openai_responses: ["gpt-5", "o3", "gpt-5.6-mini"],
    gemini: ["gemini-3-pro-preview", "gemini-2.5-flash"],
    bedrock: [
      "anthropic.claude-sonnet-4-5-20250929-v1:0",
      "amazon.nova-pro-v1:0",
      "meta.llama3-70b-instruct-v1:0"
    ],
    ollama: ["qwen3"],
    mistral: ["magistral-medium-latest"]
  }

  ## Scripts

  @doc "A script of up to `size` steps behind the first."
  @spec script(pos_integer()) :: script()
  def script(size) do
    [{:new, input(), system()} | steps(between(0, size))]
  end

  @doc "Steps that continue a script."
  @spec steps(non_neg_integer()) :: script()
  def steps(count), do: count |> many(&step/0) |> List.flatten()

  @doc "A script with operations on the view among its steps and behind them."
  @spec with_views(script()) :: script()
  def with_views([new | steps]) do
    steps =
      Enum.flat_map(steps, fn step -> if chance(25), do: [step, view_step()], else: [step] end)

    [new | steps] ++ view_steps()
  end

  @doc "A script in which some calls wait, and results arrive later."
  @spec with_late(script()) :: script()
  def with_late([new | steps]), do: [new | late_steps(steps)]

  @doc "Steps in which some calls wait, and results arrive later."
  @spec late_steps(script()) :: script()
  def late_steps(steps) do
    Enum.flat_map(steps, fn step ->
      arrivals = if chance(40), do: arrivals(), else: []
      [wait(step) | arrivals]
    end)
  end

  defp wait({:answer, count, order, results}),
    do: {:answer, count, order, Enum.map(results, &if(chance(40), do: :later, else: &1))}

  defp wait({:assistant, content, calls}) do
    async = %{provider: :openai_responses, async: true}

    calls =
      for call <- calls,
          do: if(chance(40), do: Map.put(call, :provider_metadata, async), else: call)

    {:assistant, content, calls}
  end

  defp wait(step), do: step

  defp arrivals do
    weighted([
      {5, fn -> [{:arrive, between(0, 3), result()}, :place] end},
      {2, fn -> [{:arrive, between(0, 3), result()}] end},
      {2, fn -> [:place] end},
      {1, fn -> [:fork] end}
    ]).()
  end

  @doc "Operations on a view."
  @spec view_steps() :: script()
  def view_steps, do: many(between(1, 4), &view_step/0)

  @doc "A word that some texts have, and that `view_steps/0` masks at times."
  @spec masked_word() :: String.t()
  def masked_word, do: "fox"

  defp view_step, do: {:view, view_operation()}

  defp view_operation do
    weighted([
      {3, fn -> {:keep_last, between(1, 5)} end},
      {2, fn -> {:remove_old, between(0, 6)} end},
      {2, fn -> {:range, between(1, 4), between(0, 6)} end},
      {2, fn -> {:hide, between(1, 5), between(0, 2)} end},
      {3, fn -> {:fit, between(5, 95), one_of([1, 2, 5])} end},
      {3, fn -> {:drop, range()} end},
      {6, fn -> {:summarize, one_of(["They talked.", "Ü <b>\n\"and\" more", "s"]), range()} end},
      {3, fn -> {:expand, one_of([:all, 1, 2, 2..4])} end},
      {4, fn -> {:clear, between(0, 2), one_of(["[cleared]", "-"])} end},
      {4, fn -> {:most, one_of([100, 150, 400, nil])} end},
      {4, fn -> {:masks, masks()} end},
      {3, fn -> {:recall, one_of([true, false])} end},
      {2,
       fn ->
         {:block, one_of([:memory, "skills"]), one_of([nil, "", " ", "The user is Ann.\n"])}
       end},
      {1, fn -> {:system, one_of([nil, "", "Be kind.", [%{type: :text, text: "Be kind."}]])} end},
      {2, fn -> {:rewind, between(1, 6)} end}
    ]).()
  end

  defp range do
    first = between(1, 5)
    one_of([nil, first..(first + between(0, 3))])
  end

  defp masks do
    one_of([
      [],
      [{masked_word(), "[masked]"}],
      [{masked_word(), ""}, {"[0-9]+", "#"}],
      [{"(?i)the|#{masked_word()}", "\"\\\n"}],
      [{".*", ""}],
      [{"", masked_word() |> String.upcase()}]
    ])
  end

  # A call is mostly answered at once, else the steps behind it would be passed over.
  defp step do
    weighted([
      {4, fn -> {:user, input()} end},
      {3, fn -> {:assistant, content(), []} end},
      {1, fn -> many(2, fn -> {:assistant, content(), []} end) end},
      {8, fn -> [{:assistant, content(), calls()}, answers()] end},
      {1, fn -> {:assistant, content(), calls()} end}
    ]).()
  end

  defp answers do
    weighted([
      {10, fn -> {:answer, :all, order(), many(4, &result/0)} end},
      {3,
       fn -> [{:answer, 1, order(), [result()]}, {:answer, :all, order(), many(3, &result/0)}] end},
      {2, fn -> {:interrupt, reason()} end},
      {1, fn -> [{:answer, 1, order(), [result()]}, {:interrupt, reason()}] end}
    ]).()
  end

  defp order, do: one_of([:in_order, :reversed])

  defp reason, do: weighted([{3, "interrupted"}, {1, "stopped by the user\n"}, {1, ""}])

  ## Building

  @doc "The context a script makes; `at` is the time of its first step, each further one is a second later."
  @spec build(script(), DateTime.t()) :: Context.t()
  def build([{:new, input, options} | steps], at \\ ~U[2026-01-01 10:00:00.000000Z]) do
    id = "context-#{DateTime.to_unix(at)}"
    continue(Context.new(input, [at: at, id: id] ++ options), steps, DateTime.add(at, 1))
  end

  @doc "The context after further steps."
  @spec continue(Context.t(), script(), DateTime.t()) :: Context.t()
  def continue(context, steps, at \\ ~U[2026-01-01 12:00:00.000000Z]) do
    {context, _at} =
      Enum.reduce(steps, {context, at}, fn step, {context, at} ->
        {run(context, step, Context.pending_tool_calls(context), at), DateTime.add(at, 1)}
      end)

    context
  end

  defp run(context, {:user, input}, [], at), do: Context.add_user_message(context, input, at: at)

  defp run(context, {:assistant, content, calls}, [], at),
    do: Context.add_assistant_message(context, content, calls, at: at)

  defp run(context, {:answer, count, order, results}, [_ | _] = pending, at) do
    pending = if order == :reversed, do: Enum.reverse(pending), else: pending
    pending = if count == :all, do: pending, else: Enum.take(pending, count)

    answers =
      for {call, result} <- Enum.zip(pending, Stream.cycle(results)),
          do: %{id: call.id, result: late(result, call, at)}

    Context.add_tool_results(context, answers, at: at)
  end

  defp run(context, {:arrive, which, result}, _pending, at) do
    open = Context.Calls.late_calls(context, :open)

    # An imported call has no handle, and its id may be that of others.
    with %{handle: handle, id: id} <- Enum.at(open, which, List.last(open)),
         call = if(handle, do: {:handle, handle}, else: id),
         {:ok, context} <- Context.Calls.arrive(context, call, result, at: at, from: "ann") do
      context
    else
      nil -> context
      {:error, %{reason: {:late_tool_result, _id, :ambiguous}}} -> context
    end
  end

  defp run(context, :place, [], at), do: Context.Calls.place_arrivals(context, at: at)

  defp run(context, :fork, _pending, at),
    do: Context.fork(context, id: "fork-#{DateTime.to_unix(at)}", at: at)

  defp run(context, {:interrupt, reason}, [_ | _], at),
    do: Context.interrupt(context, reason, at: at)

  defp run(context, {:view, operation}, _pending, at), do: look(context, operation, at)
  defp run(context, _step, _pending, _at), do: context

  # Nobody waits for a word to a provider.
  defp late(:later, %{kind: :mcp_approval}, _at), do: {:ok, "yes"}

  defp late(:later, call, at),
    do: {:waiting, %{for: "ann", handle: "#{call.id} of #{DateTime.to_unix(at)}"}}

  defp late(result, _call, _at), do: result

  # What is refused is passed over.
  defp look(context, operation, at) do
    case view(operation, context, at) do
      %Context{} = context -> context
      {:ok, context, _} -> context
      {:error, %Context.Error{}} -> context
    end
  rescue
    Context.Error -> context
  end

  defp view({:keep_last, count}, context, at),
    do: Context.View.hide(context, {:all_but_last, count}, at: at)

  defp view({:remove_old, seconds}, context, at),
    do: Context.View.hide(context, {:older_than, seconds}, at: at)

  defp view({:range, first, more}, context, at),
    do: Context.View.hide(context, {:all_but, first..(first + more)}, at: at)

  defp view({:hide, first, more}, context, at),
    do: Context.View.hide(context, first..(first + more), at: at)

  defp view({:fit, percent, step}, context, at) do
    budget = div(Context.Tokens.count_tokens(context) * percent, 100)
    Context.View.fit(context, budget, step: step, at: at)
  end

  defp view({:drop, range}, context, at),
    do: Context.View.compact(context, :drop, range: range, keep_last: 0, at: at)

  defp view({:summarize, text, range}, context, at) do
    strategy = {:summarize, fn _messages -> text end}
    Context.View.compact(context, strategy, range: range, keep_last: 0, at: at)
  end

  defp view({:expand, range}, context, at), do: Context.View.expand(context, range, at: at)

  defp view({:clear, keep, placeholder}, context, at),
    do: Context.View.clear_tool_results(context, keep: keep, placeholder: placeholder, at: at)

  defp view({:most, bytes}, context, at),
    do: Context.View.put_max_result_bytes(context, bytes, at: at)

  defp view({:recall, recall}, context, at),
    do: Context.Recall.put_recall(context, recall, at: at)

  defp view({:masks, masks}, context, at), do: Context.View.put_masks(context, masks, at: at)

  defp view({:block, name, text}, context, at),
    do: Context.View.put_prompt_block(context, name, text, at: at)

  defp view({:system, prompt}, context, at),
    do: Context.put_system_prompt(context, prompt, at: at)

  defp view({:rewind, number}, context, _at), do: Context.rewind(context, to: number)

  ## Smaller scripts

  @doc "Scripts a little smaller than the given one, the smallest first."
  @spec shrinks(script()) :: [script()]
  def shrinks([{:new, input, options} | steps]) do
    plain = if input == "hi" and options == [], do: [], else: [[{:new, "hi", []} | steps]]
    bare = if options == [], do: [], else: [[{:new, input, []} | steps]]

    inputs = for input <- smaller(input), do: [{:new, input, options} | steps]

    plain ++
      bare ++ for(steps <- smaller_steps(steps), do: [{:new, input, options} | steps]) ++ inputs
  end

  @doc "Steps a little smaller than the given ones."
  @spec smaller_steps(script()) :: [script()]
  def smaller_steps(steps) do
    dropped = for index <- indexes(steps), do: List.delete_at(steps, index)

    changed =
      for {step, index} <- Enum.with_index(steps), step <- smaller_step(step) do
        List.replace_at(steps, index, step)
      end

    dropped ++ changed
  end

  defp smaller_step({:user, input}), do: for(input <- smaller(input), do: {:user, input})

  defp smaller_step({:assistant, content, calls}) do
    dropped = for index <- indexes(calls), do: List.delete_at(calls, index)

    bare =
      for {call, index} <- Enum.with_index(calls),
          key <- Map.keys(call) -- [:id, :name, :kind],
          do: List.replace_at(calls, index, Map.delete(call, key))

    for(calls <- dropped ++ bare, do: {:assistant, content, calls}) ++
      for(content <- smaller(content), do: {:assistant, content, calls})
  end

  defp smaller_step({:answer, count, order, results}) do
    dropped =
      for index <- indexes(results), length(results) > 1, do: List.delete_at(results, index)

    fewer =
      for {{:ok, [_, _ | _] = parts}, at} <- Enum.with_index(results), index <- indexes(parts) do
        List.replace_at(results, at, {:ok, List.delete_at(parts, index)})
      end

    for results <- dropped ++ fewer, do: {:answer, count, order, results}
  end

  defp smaller_step(_step), do: []

  defp smaller(parts) when is_list(parts) do
    dropped = for index <- indexes(parts), length(parts) > 1, do: List.delete_at(parts, index)

    bare =
      for {part, index} <- Enum.with_index(parts),
          key <- [:provider_metadata, :cache, :detail, :citations, :filename],
          is_map_key(part, key),
          do: List.replace_at(parts, index, Map.delete(part, key))

    dropped ++ bare
  end

  defp smaller(text) when is_binary(text) and byte_size(text) > 100,
    do: [binary_part(text, 0, 20)]

  defp smaller(_content), do: []

  defp indexes([]), do: []
  defp indexes(list), do: Enum.to_list(0..(length(list) - 1))

  ## Options of a request

  @doc "Options of `encode_request/3` for a provider; `:since` is a number from 1 to 3, or absent."
  @spec options(atom()) :: keyword()
  def options(provider) do
    []
    |> sometimes(60, :thinking, fn -> one_of([:drop, :text]) end)
    |> sometimes(60, :model, fn -> one_of(@models[provider]) end)
    |> sometimes(15, :since, fn -> between(1, 3) end)
    |> sometimes(if(provider in [:anthropic, :bedrock], do: 70, else: 0), :cache, fn ->
      one_of([:auto, false])
    end)
    |> sometimes(if(provider == :openai_chat, do: 40, else: 0), :system_role, fn ->
      one_of(["system", "developer"])
    end)
    |> sometimes(if(provider == :openai_chat, do: 50, else: 0), :dialect, fn ->
      one_of([:openai, :deepseek, :openrouter, :vllm])
    end)
    |> sometimes(if(provider == :openai_responses, do: 15, else: 0), :previous_response_id, fn ->
      "resp_#{between(1, 9)}"
    end)
  end

  @doc "Fields of the caller, for `:body`."
  @spec body(atom()) :: map()
  def body(provider) do
    one_of([
      %{},
      %{"model" => hd(@models[provider]), "temperature" => 0.5},
      %{model: hd(@models[provider]), max_tokens: 1024, tools: [%{name: "get", x: nil}]}
    ])
  end

  ## Texts

  @doc "A text, often one that has to be changed or left out."
  @spec text() :: binary()
  def text do
    weighted([
      {10, fn -> sentence() end},
      {2, fn -> "" end},
      {2,
       fn -> one_of([" ", "\n", " \t\r\n ", "\u00A0", "\u2003\u3000", "\u001F", "\u0085"]) end},
      {3, fn -> sentence() <> one_of([" ", "\n", "\n\n", "\u00A0", "\t "]) end},
      {1, fn -> one_of([" ", "\n"]) <> sentence() end},
      {2,
       fn ->
         one_of([
           "Grüße, 日本語 👩‍👩‍👧",
           "\"quoted\" \\ \/ \u2028 \u0000 \u007F",
           "\u200B",
           "<b>&amp;</b>"
         ])
       end},
      {1, fn -> one_of(["{\"a\":1}", "null", "[]", "data:image/png;base64,AAAA"]) end},
      {1, fn -> sentence() <> <<255>> <> sentence() end},
      {1, fn -> one_of([<<255, 254>>, <<0xED, 0xA0, 0x80>>, <<"a", 0xC3>>]) end},
      {1, fn -> String.duplicate(sentence() <> "\n", between(2, 60)) end}
    ]).()
  end

  @doc "A plain sentence, different each time."
  @spec sentence() :: String.t()
  def sentence do
    words = many(between(1, 6), fn -> one_of(~w(the quick brown fox jumps over lazy dogs)) end)
    Enum.join(words, " ") <> " #{between(1, 1_000_000)}"
  end

  defp system do
    weighted([
      {5, fn -> [] end},
      {4, fn -> [system_prompt: sentence()] end},
      {1, fn -> [system_prompt: text()] end},
      {1, fn -> [system_prompt: one_of(["", " ", "\n\n", "Be \xFF."])] end},
      {1, fn -> [system_prompt: [%{type: :text, text: text()}, %{type: :text, text: text()}]] end}
    ]).()
  end

  defp input do
    weighted([
      {8, fn -> text() end},
      {4, fn -> many(between(1, 3), &user_part/0) end},
      {1, fn -> %{message: text()} end},
      {1, fn -> %{question: text(), answer: between(1, 9)} end}
    ]).()
  end

  defp content do
    weighted([
      {6, fn -> text() end},
      {2, fn -> nil end},
      {1, fn -> "" end},
      {7, fn -> between(1, 4) |> many(&assistant_part/0) |> List.flatten() end}
    ]).()
  end

  ## Parts

  defp user_part do
    weighted([
      {5, fn -> %{type: :text, text: text()} |> maybe(15, :cache, &cache/0) end},
      {3, fn -> image() |> maybe(15, :detail, fn -> one_of(["low", :high, "original"]) end) end},
      {2, fn -> file() |> maybe(15, :citations, fn -> one_of([true, false]) end) end},
      {2, fn -> clip() end},
      {1, fn -> stored() end},
      {2, fn -> provider_block(:user) end}
    ]).()
    |> cached()
  end

  defp cached(%{type: :provider_block} = part), do: part
  defp cached(part), do: maybe(part, 8, :cache, &cache/0)

  defp cache do
    one_of([true, false, [ttl: "5m"], [ttl: "1h"], [ttl: "30m"], %{ttl: "1h"}, %{"ttl" => "12h"}])
  end

  defp assistant_part do
    weighted([
      {6, fn -> signed_text() end},
      {6, fn -> thinking() end},
      {2, fn -> redacted_thinking() end},
      {2, fn -> provider_block(:assistant) end},
      {2, fn -> served() end},
      {1, fn -> image() |> Map.put(:provider_metadata, %{provider: :gemini}) end},
      {1, fn -> image() end},
      {1, fn -> file() end}
    ]).()
  end

  defp result_part do
    weighted([
      {4, fn -> %{type: :text, text: text()} |> maybe(10, :cache, &cache/0) end},
      {4, fn -> image() end},
      {1, fn -> clip() end},
      {1, fn -> stored() end},
      {1, fn -> found_tool() end},
      {2, fn -> file() end}
    ]).()
  end

  defp found_tool do
    data = %{"type" => "tool_reference", "tool_name" => "found_#{between(1, 99)}"}
    %{type: :provider_block, provider: :anthropic, data: data}
  end

  # Recordings and films.
  defp clip do
    kind = one_of([:audio, :video])

    type =
      one_of(
        case kind do
          :audio -> ["audio/wav", "audio/mp3", "AUDIO/X-WAV", "audio/ogg", "audio/x-none"]
          :video -> ["video/mp4", "video/quicktime", "video/x-none", "Video/WebM"]
        end
      )

    weighted([
      {4, fn -> %{type: kind, media_type: type, data: base64()} end},
      {1,
       fn -> %{type: kind, url: "https://example.com/clip.#{one_of(["mp4", "mp3", "x"])}"} end},
      {1, fn -> %{type: kind, media_type: type, url: "s3://bucket-a/clip.#{between(1, 9)}"} end},
      {1, fn -> %{type: kind, media_type: type, url: "gs://bucket/clip"} end}
    ]).()
  end

  # Files in a provider's own store.
  defp stored do
    %{
      type: one_of([:file, :image, :audio]),
      file_id: "file-#{between(1, 9)}",
      provider: one_of(@providers)
    }
    |> maybe(60, :media_type, fn -> one_of(["application/pdf", "image/png", "audio/wav"]) end)
  end

  defp image do
    weighted([
      {4, fn -> %{type: :image, media_type: image_type(), data: base64()} end},
      {1,
       fn ->
         %{
           type: :image,
           media_type:
             one_of(["image/bmp", "image/svg+xml", "image/tiff", "IMAGE/JPG", "image/jpg"]),
           data: base64()
         }
       end},
      {2, fn -> %{type: :image, url: "https://example.com/#{between(1, 99)}.png"} end},
      {1,
       fn ->
         %{
           type: :image,
           url: one_of(["https://example.com/picture", "gs://bucket/a.jpg", "s3://bucket/a.jpg"])
         }
       end},
      {1, fn -> %{type: :image, url: "data:image/png;base64," <> base64()} end}
    ]).()
  end

  defp image_type, do: one_of(["image/png", "image/jpeg", "image/gif", "image/webp"])

  defp file do
    weighted([
      {4, fn -> %{type: :file, media_type: "application/pdf", data: base64()} end},
      {2, fn -> %{type: :file, media_type: file_type(), data: base64()} end},
      {2,
       fn -> %{type: :file, media_type: "application/pdf", url: "https://example.com/a.pdf"} end},
      {1, fn -> %{type: :file, media_type: file_type(), url: "https://example.com/b"} end}
    ]).()
    |> maybe(70, :filename, fn ->
      one_of(["a.pdf", "a b (1).pdf", "two  spaces", "Übersicht/2026.csv", ""])
    end)
  end

  defp file_type,
    do:
      one_of([
        "text/plain",
        "text/csv",
        "Text/Markdown; charset=utf-8",
        "application/json",
        "application/zip",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/vnd.ms-excel",
        "audio/wav",
        "image/png"
      ])

  defp base64, do: base64(between(1, 60))

  # Bytes are not masked, so the word must not stand in them by chance: one run in ten would meet it. Nor may they be an audio
  # file's, with twelve set bits, or a text's: they would rightly go as what they are.
  defp base64(size) do
    bytes = :rand.bytes(size)
    data = Base.encode64(bytes)
    is_text = size > 8 and count_text(binary_part(bytes, 0, min(size, 48))) > min(size, 48) - 4

    if is_text or String.starts_with?(data, "//") or String.contains?(data, masked_word()),
      do: base64(size),
      else: data
  end

  # The number of bytes before the first that are no text.
  defp count_text(bytes) do
    case :unicode.characters_to_binary(bytes) do
      text when is_binary(text) -> byte_size(text)
      {_fault, text, _rest} -> byte_size(text)
    end
  end

  ## What providers want to see again

  # Each signature and block says whose it is, so that a test can see it in a request of another.
  @doc "A text that stands in every signature and block of a provider."
  @spec mark(atom()) :: String.t()
  def mark(provider), do: "MARK" <> (provider |> Atom.to_string() |> String.replace("_", ""))

  defp signature(provider), do: (mark(provider) <> base64(9)) |> pad()

  defp pad(text) do
    case rem(byte_size(text), 4) do
      0 -> text
      more -> String.duplicate("A", 4 - more) <> text
    end
  end

  defp thinking do
    provider = one_of(@providers)

    text =
      weighted([
        {8, fn -> "#{thought(provider)} #{sentence()}" end},
        {1, fn -> "#{thought(provider)} #{sentence()} \n" end},
        {1, fn -> one_of(["", " "]) end}
      ]).()

    %{type: :thinking, text: text}
    |> maybe(85, :provider_metadata, fn -> thinking_metadata(provider) end)
  end

  @doc "A text that stands in every thought of a provider that is not blank."
  @spec thought(atom()) :: String.t()
  def thought(provider), do: "THOUGHT-#{provider}"

  defp thinking_metadata(:openai_responses) do
    %{provider: :openai_responses}
    |> maybe(90, :id, fn -> "rs_#{between(1, 50)}" end)
    |> maybe(80, :encrypted_content, fn -> signature(:openai_responses) end)
    |> maybe(15, :store, fn -> true end)
    |> spelled()
  end

  defp thinking_metadata(provider) do
    %{provider: provider}
    |> maybe(60, :model, fn -> one_of(@models[provider]) end)
    |> maybe(85, :signature, fn -> signature(provider) end)
    |> maybe(4, :signature, fn -> "" end)
    |> spelled()
  end

  defp redacted_thinking do
    provider = one_of([:anthropic, :anthropic, :bedrock, :gemini])

    %{type: :redacted_thinking, data: signature(provider)}
    |> maybe(90, :provider_metadata, fn ->
      %{provider: provider} |> maybe(50, :model, fn -> one_of(@models[provider]) end) |> spelled()
    end)
  end

  # Gemini signs texts as well; OpenAI gives an answer an id.
  defp signed_text do
    %{type: :text, text: text()}
    |> maybe(20, :provider_metadata, fn ->
      weighted([
        {2, fn -> %{provider: :gemini, signature: signature(:gemini)} end},
        {2, fn -> %{provider: :openai_responses, id: "msg_#{between(1, 50)}"} end},
        {1, fn -> %{provider: :openai_responses, annotations: [annotation()]} end},
        {1, fn -> %{provider: :openai_responses, refusal: true} end},
        {1, fn -> %{provider: :anthropic} end}
      ]).()
    end)
  end

  defp annotation do
    %{
      "type" => "file_path",
      "file_id" => mark(:openai_responses),
      "index" => 0
    }
  end

  defp call_metadata do
    weighted([
      {3, fn -> %{provider: :gemini, signature: signature(:gemini)} end},
      {3, fn -> %{provider: :openai_responses, id: "fc_#{between(1, 50)}"} end},
      {1, fn -> %{provider: :openai_responses, id: one_of(["call 1", "", "item_1"])} end},
      {1, fn -> %{provider: :gemini, signature: ""} end}
    ]).()
    |> spelled()
  end

  # As it comes back from a database.
  defp spelled(metadata) do
    if chance(10) do
      Map.new(metadata, fn
        {key, value} when is_atom(value) and not is_boolean(value) ->
          {Atom.to_string(key), Atom.to_string(value)}

        {key, value} ->
          {Atom.to_string(key), value}
      end)
    else
      metadata
    end
  end

  defp provider_block(role) do
    provider = one_of(@providers -- [:ollama])
    %{type: :provider_block, provider: provider, data: block(provider, role, mark(provider))}
  end

  defp block(:anthropic, :user, mark) do
    %{
      "type" => "search_result",
      "source" => "https://example.com",
      "title" => mark,
      "content" => [%{"type" => "text", "text" => sentence()}]
    }
  end

  defp block(:anthropic, :assistant, mark) do
    %{
      "type" => "server_tool_use",
      "id" => "srvtoolu_#{between(1, 999_999)}",
      "name" => "web_search",
      "input" => %{"query" => mark}
    }
  end

  defp block(:openai_chat, :user, mark),
    do: %{"type" => "file", "file" => %{"file_id" => "file-" <> mark}}

  defp block(:openai_chat, :assistant, _mark),
    do: %{"type" => "refusal", "refusal" => sentence()}

  defp block(:openai_responses, :user, mark),
    do: %{"type" => "input_file", "file_id" => "file-" <> mark}

  defp block(:openai_responses, :assistant, mark) do
    %{
      "type" => "web_search_call",
      "id" => "ws_#{between(1, 999_999_999)}",
      "status" => "completed",
      "action" => %{"type" => "search", "query" => mark}
    }
  end

  defp block(:gemini, :user, mark),
    do: %{"fileData" => %{"mimeType" => "video/mp4", "fileUri" => "gs://bucket/" <> mark}}

  defp block(:gemini, :assistant, mark),
    do: %{"executableCode" => %{"language" => "PYTHON", "code" => "print('#{mark}')"}}

  defp block(:bedrock, :user, mark),
    do: %{"guardContent" => %{"text" => %{"text" => sentence(), "qualifiers" => [mark]}}}

  defp block(:bedrock, :assistant, mark) do
    citation = %{"title" => mark, "sourceContent" => [%{"text" => mark}]}
    %{"citationsContent" => %{"content" => [%{"text" => sentence()}], "citations" => [citation]}}
  end

  defp block(:mistral, :user, mark),
    do: %{"type" => "document_url", "document_url" => "https://example.com/" <> mark}

  defp block(:mistral, :assistant, mark),
    do: %{"type" => "reference", "reference_ids" => [1, mark]}

  # A tool's use and its result that the provider gave itself; the ids come again at times, and a model that was paused
  # makes the result in a later message. There, nothing is masked: a result that is takes its use out of what was sent.
  defp served do
    provider = one_of([:anthropic, :bedrock, :gemini, :openai_responses])
    block = &%{type: :provider_block, provider: provider, data: &1}
    mark = mark(provider)
    said = one_of([mark, mark <> " " <> masked_word()])

    if chance(50),
      do: Enum.map(pair(provider, "s#{between(1, 30)}", mark, said), block),
      else: block.(one_of(pair(provider, "t#{between(1, 3)}", mark, mark)))
  end

  defp pair(:anthropic, id, mark, said) do
    content = %{
      "type" => "code_execution_result",
      "stdout" => said,
      "stderr" => "",
      "return_code" => 0,
      "content" => []
    }

    [
      %{
        "type" => "server_tool_use",
        "id" => id,
        "name" => "code_execution",
        "input" => %{"code" => mark}
      },
      %{"type" => "code_execution_tool_result", "tool_use_id" => id, "content" => content}
    ]
  end

  defp pair(:bedrock, id, mark, said) do
    use = %{"toolUseId" => id, "name" => "search", "type" => "server_tool_use"}
    result = %{"toolUseId" => id, "type" => "search_tool_result"}

    [
      %{"toolUse" => Map.put(use, "input", %{"query" => said})},
      %{"toolResult" => Map.put(result, "content", [%{"json" => %{"found" => mark}}])}
    ]
  end

  defp pair(:gemini, _id, mark, said) do
    [
      %{"executableCode" => %{"language" => "PYTHON", "code" => mark}},
      %{
        "codeExecutionResult" => %{"outcome" => "OUTCOME_OK", "output" => said}
      }
    ]
  end

  defp pair(:openai_responses, id, mark, said) do
    exit = %{"type" => "exit", "exit_code" => 0}

    [
      %{
        "type" => "shell_call",
        "id" => "sh_" <> id,
        "call_id" => id <> "_served",
        "status" => "completed",
        "environment" => %{"type" => "container_reference", "container_id" => mark},
        "action" => %{"commands" => [said]}
      },
      %{
        "type" => "shell_call_output",
        "id" => "sho_" <> id,
        "call_id" => id <> "_served",
        "output" => [%{"stdout" => mark, "stderr" => "", "outcome" => exit}]
      }
    ]
  end

  ## Calls

  # Calls of every kind, the arguments of each as its provider makes them.
  defp kind do
    weighted([
      {4, fn -> %{kind: :custom, name: name(), arguments: one_of([text(), ~s({"a":1}), ""])} end},
      {2,
       fn -> %{kind: :shell, arguments: %{"commands" => ["ls"], "max_output_length" => 9}} end},
      {1,
       fn -> %{kind: "local_shell", arguments: ~s({"type":"exec","command":["ls"],"env":{}})} end},
      {2,
       fn ->
         %{kind: :apply_patch, arguments: %{"type" => "delete_file", "path" => sentence()}}
       end},
      {2,
       fn ->
         %{
           kind: :computer,
           arguments: one_of([%{"type" => "wait"}, %{"actions" => [%{"type" => "wait"}]}])
         }
         |> maybe(50, :provider_metadata, fn ->
           check = %{"id" => "sc_1", "code" => "c", "message" => sentence()}

           %{
             provider: :openai_responses,
             id: "cu_#{between(1, 50)}",
             pending_safety_checks: [check]
           }
         end)
       end},
      {2, fn -> %{kind: :mcp_approval, name: name(), arguments: plain_arguments()} end},
      {2, fn -> %{kind: :tool_search, arguments: %{"query" => sentence()}} end}
    ]).()
  end

  defp calls do
    count = weighted([{5, 1}, {3, 2}, {1, 3}, {1, 5}])
    ids = ids(count)

    for id <- ids do
      if chance(20),
        do: put_id(kind(), id),
        else:
          %{name: name()}
          |> put_id(id)
          |> maybe(85, :arguments, fn -> arguments() end)
          |> maybe(25, :provider_metadata, fn -> call_metadata() end)
    end
  end

  # Ids are unique in one message and re-used in later ones.
  defp ids(count) do
    pools = [
      Enum.map(1..8, &"call_#{&1}"),
      Enum.map(1..8, &"toolu_01VLwCjyU7u928EqHmMRvow#{&1}"),
      ["a.b", "a_b", "a-b", "a b", "a:b", "a/b", "a_b_", "A_b"],
      [
        "abcDEF123",
        "abcDEF124",
        "000000000",
        "a.b.c.d.e",
        "a_b_c_d_e",
        "Abcdef123",
        "abcdef12",
        "123456789"
      ],
      ["é", "日本", "👩‍👩‍👧", "ü_1", "_", "-", ".", " "],
      for(n <- [40, 41, 64, 65, 128], char <- ["x", "y"], do: String.duplicate(char, n)),
      for(
        n <- [39, 63],
        tail <- ["a", "b", ".", "ab", "ac"],
        do: String.duplicate("l", n) <> tail
      ),
      ["call_1_1_0", "call_1_0_0", "call_2_0_0", "call_2_1_0", "call_1_2_0", "0", "null", "NULL"],
      ["tab\tid", "line\nid", "\"id\"", "<id>", "id ", " id", <<0>>, "\u200B"],
      ["\uFFFD", "\uFFFD\uFFFD", "null ", "z", "zz", "Z", "z_", "z."],
      List.duplicate(nil, 8),
      List.duplicate("", 8),
      List.duplicate(:missing, 8)
    ]

    [4, 2, 3, 2, 1, 2, 2, 1, 1, 1, 2, 1, 2]
    |> Enum.zip(pools)
    |> weighted()
    |> Enum.take_random(count)
  end

  defp put_id(call, :missing), do: call
  defp put_id(call, id), do: Map.put(call, :id, id)

  defp name do
    weighted([
      {8, fn -> one_of(["get", "put", :get, :search, "get_weather", "mcp__files-read"]) end},
      {3, fn -> one_of(["a.b", "a_b", "a-b", "a b", "a:b", :"a.b"]) end},
      {1, fn -> one_of(["2get", "-get", "_get", ".get", "get.", " get"]) end},
      {1, fn -> one_of(["größe", "日本", "👩‍👩‍👧", "é", " ", "."]) end},
      {1, fn -> String.duplicate("n", one_of([64, 65, 128, 129])) <> one_of(["", "a", "b"]) end},
      {1, fn -> String.duplicate("long.name.", 7) <> one_of(["a", "b"]) end},
      {1, fn -> one_of([String, "nil", "true", "0"]) end}
    ]).()
  end

  @doc "The arguments of a call: maps of all kinds, JSON texts good and bad, none."
  @spec arguments() :: term()
  def arguments do
    weighted([
      {4, fn -> plain_arguments() end},
      {3, fn -> %{city: "NYC", options: %{unit: :celsius, days: {1, 2}}, at: ~D[2026-01-01]} end},
      {1, fn -> %{} end},
      {1, fn -> nil end},
      {1, fn -> Generators.map(4) end},
      {1, fn -> %{"text" => <<"a", 255>>, <<254>> => 1, 1 => 2} end},
      {1,
       fn ->
         one_of([~s({"city":"NYC"}), ~s( {"n": 12345678901234567890123, "f": 1.50}\n), "{}"])
       end},
      {1,
       fn ->
         one_of([~s({"a":), "not json", "", " ", "{'a': 1}", ~s({"a":1}{"b":2}), ~s({"a":1,})])
       end},
      {1, fn -> one_of(["[1,2]", "\"text\"", "null", "true", "1.5", "[]"]) end},
      {1,
       fn ->
         one_of([
           ~s({"a":"\\ud800"}),
           ~s({"a":1,"a":2}),
           <<"{\"a\":\"", 255, "\"}">>,
           "{\"a\":\"\u0001\"}"
         ])
       end}
    ]).()
  end

  defp plain_arguments do
    Map.new(many(between(1, 3), fn -> {one_of(["a", "b", "größe", ""]), json(3)} end))
  end

  defp json(0), do: one_of([nil, true, 1, -7, 1.5, "text", "", "日本\n"])

  defp json(depth) do
    weighted([
      {3, fn -> json(0) end},
      {1, fn -> many(between(1, 2), fn -> json(depth - 1) end) end},
      {1, fn -> %{one_of(["x", "y"]) => json(depth - 1)} end}
    ]).()
  end

  ## Results

  defp result do
    weighted([
      {6, fn -> {:ok, text()} end},
      {2, fn -> {:ok, json(3)} end},
      {2, fn -> {:ok, many(between(1, 4), &result_part/0)} end},
      {2, fn -> {:ok, ok_term()} end},
      {1, fn -> {:ok, kind_result()} end},
      {1, fn -> {:ok, Generators.term(5)} end},
      {3, fn -> {:error, error()} end},
      {1, fn -> {:error, Generators.term(4)} end}
    ]).()
  end

  # What the kinds of calls are answered with.
  defp kind_result do
    one_of([
      true,
      false,
      %{approve: true, reason: "fine"},
      [%{"stdout" => "a", "stderr" => "", "outcome" => %{"type" => "timeout"}}],
      %{stdout: "a", exit_code: 2},
      [%{"stdout" => 1}],
      %{tools: [%{type: "function", name: "get"}]},
      [%{"type" => "function", "name" => "get"}]
    ])
  end

  defp ok_term do
    one_of([
      nil,
      [],
      %{},
      {},
      :done,
      {:a, [1, "b"], nil},
      [temp: 72, unit: :c],
      %{temp: 72, bytes: <<255, 0>>},
      %{"output" => "mine", "error" => nil},
      ~U[2026-01-01 10:00:00Z],
      <<0xFF, 0xD8, 0xFF>>,
      123_456_789_012_345_678_901_234_567_890,
      1.0e22
    ])
  end

  defp error do
    one_of([
      :not_found,
      :timeout,
      {:http, 500},
      {:http, 404, %{"reason" => "gone"}},
      "no such city",
      "",
      " \n",
      nil,
      <<"bad ", 255>>,
      %{message: "broken", code: 1},
      %{code: 1},
      %RuntimeError{message: "boom"},
      %ArgumentError{message: ""},
      [],
      [reason: :unknown]
    ])
  end

  ## Maps and lists

  defp maybe(map, percent, key, fun),
    do: if(chance(percent), do: Map.put(map, key, fun.()), else: map)

  defp sometimes(options, percent, key, fun),
    do: if(chance(percent), do: Keyword.put(options, key, fun.()), else: options)
end
