defmodule AshAgent.Context.RequestsPropertyTest do
  @moduledoc """
  Random contexts, every second one with a random view, projected for each provider and judged by a checker that shares
  no code with the projection.

  A failure names the seed and the case, tells the smallest script that shows it, and is repeated with

      REQUEST_CASE=17 mix test test/ash_agent/context/requests_property_test.exs --seed 42

  `REQUEST_CASES` is the number of contexts for each provider, 2,000 when it is not set.
  """

  # Not async: it keeps all cores busy, and other tests have deadlines.
  use ExUnit.Case, async: false

  @moduletag :slow

  alias AshAgent.Context
  alias AshAgent.TestSupport.{ContextGenerators, JSONText, RequestChecker}

  @cases String.to_integer(System.get_env("REQUEST_CASES", "2000"))

  @providers RequestChecker.providers()
  @list_keys %{openai_responses: "input", gemini: "contents"}

  @now ~U[2026-01-01 10:00:00.000000Z]
  @later ~U[2031-07-15 23:59:59.999999Z]

  # How small scripts are made: how many tries at most.
  @tries 600

  for provider <- @providers do
    @tag timeout: :infinity
    test "#{provider}: no random context makes a request it rejects" do
      assert_no_failures(unquote(provider))
    end
  end

  test "a caller's field must not overwrite the message part" do
    context = Context.new("hi", system_prompt: "Be brief.")

    for {provider, key} <- [
          anthropic: "messages",
          anthropic: "system",
          openai_chat: "messages",
          openai_responses: "input",
          gemini: "contents",
          gemini: "systemInstruction",
          bedrock: "messages",
          ollama: "messages",
          mistral: "messages"
        ] do
      assert_raise ArgumentError, fn ->
        Context.encode_request(context, provider, body: %{key => []})
      end
    end
  end

  test "a word that is masked is found where it is said, and not in the letters of an image" do
    word = ContextGenerators.masked_word()
    file = %{type: :file, media_type: "text/plain", data: Base.encode64("a #{word}")}
    url = %{type: :file, url: "data:text/plain;base64," <> Base.encode64("a #{word}")}
    image = %{type: :image, media_type: "image/png", data: "y#{word}LXvdgzbZ"}
    image_url = %{type: :image, url: "data:image/png;base64,y#{word}LXvdgzbZ"}

    for {part, found?} <- [
          {%{type: :text, text: "the #{word}es"}, true},
          {%{type: :text, text: "y#{word}LXvdgzbZ"}, true},
          {file, true},
          {url, true},
          {image, false},
          {image_url, false}
        ],
        provider <- [:anthropic, :gemini, :openai_responses] do
      plain = Context.new([%{type: :text, text: "Look"}, part])
      view = Context.View.put_masks(plain, [{word, "[masked]"}])
      sent = Context.request!(plain, provider)
      assert {part, masked(view, sent) != []} == {part, found?}
      assert masked(view, Context.request!(view, provider)) == []
    end
  end

  ## Running the cases

  defp assert_no_failures(provider) do
    seed = ExUnit.configuration()[:seed]

    numbers =
      case System.get_env("REQUEST_CASE") do
        nil -> 1..@cases
        number -> [String.to_integer(number)]
      end

    failures =
      numbers
      |> Task.async_stream(
        fn number ->
          case = generate(provider, seed, number)
          {number, failures(case)}
        end,
        timeout: :infinity,
        ordered: false
      )
      |> Enum.flat_map(fn {:ok, {number, failures}} ->
        for {kind, detail} <- failures, do: {kind, number, detail}
      end)

    if failures != [], do: flunk(report(provider, seed, failures))
  end

  defp generate(provider, seed, number) do
    :rand.seed(:exsss, {seed, :erlang.phash2(provider), number})
    script = ContextGenerators.script(2 + rem(number, 12))
    late? = rem(number, 3) == 0
    script = if late?, do: ContextGenerators.with_late(script), else: script
    more = ContextGenerators.steps(1 + rem(number, 3))

    %{
      provider: provider,
      script: if(rem(number, 2) == 0, do: ContextGenerators.with_views(script), else: script),
      more: if(late?, do: ContextGenerators.late_steps(more), else: more),
      views: ContextGenerators.view_steps(),
      opts: ContextGenerators.options(provider),
      body: ContextGenerators.body(provider),
      other: Enum.random(@providers)
    }
  end

  defp report(provider, seed, failures) do
    by_kind = Enum.group_by(failures, &elem(&1, 0))

    counts =
      by_kind
      |> Enum.sort_by(fn {_kind, failures} -> -length(failures) end)
      |> Enum.map_join("\n", fn {kind, failures} ->
        "  #{length(failures)} times #{inspect(kind)}"
      end)

    examples =
      by_kind
      |> Enum.sort_by(fn {_kind, failures} -> -length(failures) end)
      |> Enum.take(5)
      |> Enum.map_join("\n\n", fn {kind, failures} ->
        {_, number, _} = Enum.min_by(failures, &elem(&1, 1))
        small = provider |> generate(seed, number) |> shrink(kind)
        detail = for {^kind, detail} <- failures(small), do: detail

        """
        #{inspect(kind)}, case #{number}: #{Enum.join(Enum.take(detail, 3), "; ")}
        run again: REQUEST_CASE=#{number} mix test --seed #{seed} #{Path.relative_to_cwd(__ENV__.file)}
        script: #{show(small.script)}
        continued by: #{show(small.more)}
        view of the import: #{show(small.views)}
        options: #{show(small.opts)}, body: #{show(small.body)}, other: #{small.other}
        request: #{request_text(small)}\
        """
      end)

    "#{provider}, seed #{seed}, #{length(failures)} failures:\n#{counts}\n\n#{examples}"
  end

  defp show(term), do: inspect(term, limit: :infinity, printable_limit: 300, width: 120)

  defp request_text(case) do
    context = ContextGenerators.build(case.script, @now)
    context |> encode(case.provider, opts(case, context)) |> String.slice(0, 3000)
  rescue
    exception -> Exception.message(exception)
  end

  ## Making a failing case smaller

  defp shrink(case, kind), do: shrink(case, kind, @tries)

  defp shrink(case, _kind, 0), do: case

  defp shrink(case, kind, tries) do
    {found, tries} =
      Enum.reduce_while(smaller(case), {nil, tries}, fn candidate, {nil, tries} ->
        cond do
          tries == 0 -> {:halt, {nil, 0}}
          List.keymember?(failures(candidate), kind, 0) -> {:halt, {candidate, tries - 1}}
          true -> {:cont, {nil, tries - 1}}
        end
      end)

    if found, do: shrink(found, kind, tries), else: case
  end

  defp smaller(case) do
    for(script <- ContextGenerators.shrinks(case.script), do: %{case | script: script}) ++
      for(more <- ContextGenerators.smaller_steps(case.more), do: %{case | more: more}) ++
      for(views <- ContextGenerators.smaller_steps(case.views), do: %{case | views: views}) ++
      for({key, _} <- case.opts, do: %{case | opts: Keyword.delete(case.opts, key)}) ++
      if case.body == %{}, do: [], else: [%{case | body: %{}}]
  end

  ## One case: a list of `{kind, detail}`

  defp failures(case) do
    context = ContextGenerators.build(case.script, @now)
    opts = opts(case, context)

    pending(case, context) ++
      judged(case, context, opts) ++
      lasting(case, context, opts) ++
      stable(case, context, opts) ++
      stored(case, context, opts) ++
      imported(case, context, opts)
  rescue
    exception ->
      [{{:raised, exception.__struct__}, Exception.format(:error, exception, __STACKTRACE__)}]
  catch
    kind, value -> [{{kind, value}, ""}]
  end

  # `:since` must be one of the context's iterations.
  defp opts(case, context) do
    opts = Keyword.put(case.opts, :pending, :interrupt)

    case opts[:since] do
      nil -> opts
      since -> Keyword.put(opts, :since, min(since, context.current_iteration))
    end
  end

  # Without an option, pending calls are an error that names them.
  defp pending(case, context) do
    ids = for call <- Context.pending_tool_calls(context), do: call.id

    case Context.encode_request(context, case.provider, []) do
      {:ok, _} when ids == [] ->
        []

      {:error, %Context.Error{reason: {:pending_tool_calls, ^ids}}} when ids != [] ->
        []

      {result, value} ->
        [{:pending, "#{inspect(ids)} are pending, and it gives #{inspect({result, value})}"}]
    end
  end

  # The body has no finding, is what request/3 gives, carries the caller's fields and the whole conversation.
  defp judged(case, context, opts) do
    text = encode(context, case.provider, [body: case.body] ++ opts)
    part = Context.request!(context, case.provider, opts)

    case JSONText.decode(text) do
      {:ok, decoded} when is_map(decoded) ->
        fields = Map.new(case.body, fn {key, value} -> {to_string(key), value} end)
        {own, message_part} = Map.split(decoded, Map.keys(fields))

        findings(message_part, case, opts) ++
          same(:request_differs, message_part, part) ++
          same(:core_reads_otherwise, decoded, Context.JSON.decode(text) |> elem(1)) ++
          same(:caller_fields, own, plain(fields)) ++
          foreign(text, message_part, case.provider, opts) ++
          masked(context, message_part) ++
          if(opts[:since] || opts[:previous_response_id],
            do: [],
            else:
              complete(context, message_part, case.provider) ++
                silent(context, message_part, case.provider, opts)
          )

      {:ok, other} ->
        [{:not_an_object, inspect(other)}]

      {:error, reason} ->
        [{:not_json, reason}]
    end
  end

  defp findings(body, case, opts) do
    for finding <-
          RequestChecker.validate_request(body, case.provider, checked(case.provider, opts)) do
      {finding.rule, RequestChecker.format([finding])}
    end
  end

  defp checked(:bedrock, opts), do: Keyword.take(opts, [:model])
  defp checked(:gemini, opts), do: [signatures: not String.contains?(opts[:model] || "", "2.5")]
  defp checked(:openai_chat, opts), do: Keyword.take(opts, [:dialect])
  defp checked(_provider, _opts), do: []

  defp same(_kind, value, value), do: []

  defp same(kind, left, right),
    do: [{kind, "#{inspect(left, limit: 50)}\nand\n#{inspect(right, limit: 50)}"}]

  # What the caller's fields look like as JSON.
  defp plain(map) when is_map(map),
    do: Map.new(map, fn {key, value} -> {to_string(key), plain(value)} end)

  defp plain(list) when is_list(list), do: Enum.map(list, &plain/1)
  defp plain(value), do: value

  # No signature or block of another provider, no thought of another where thoughts are to be dropped.
  defp foreign(text, part, provider, opts) do
    marks =
      for other <- @providers,
          other != provider,
          String.contains?(text, ContextGenerators.mark(other)),
          do: {:foreign_mark, "#{ContextGenerators.mark(other)} in a request for #{provider}"}

    thoughts =
      for other <- @providers,
          other != provider,
          opts[:thinking] == :drop,
          Enum.any?(
            strings(part),
            &String.contains?(&1, ContextGenerators.thought(other) <> " ")
          ),
          do: {:foreign_thought, "a thought of #{other} in a request for #{provider}"}

    marks ++ thoughts
  end

  # Nothing of what is masked, in any text, nor in base64 that is a text. What images and other files show is not masked,
  # and the letters of their base64 can spell anything.
  defp masked(context, part) do
    word = ContextGenerators.masked_word()
    masks? = Enum.any?(Context.View.view(context).masks, fn {pattern, _} -> pattern =~ word end)

    shown =
      for data <- data(Context.to_messages(context, view: :log), false),
          into: %{},
          do: {data, :bytes}

    files = for data <- data(Context.to_messages(context), true), into: shown, do: {data, :text}

    if masks? and Enum.any?(keys_and_strings(part), &has_word?(&1, word, files)),
      do: [{:masked_word, "#{word} in #{inspect(part, printable_limit: 2000)}"}],
      else: []
  end

  defp has_word?(string, word, files) do
    data = base64(string)
    text = with {:ok, text} <- Base.decode64(data), do: text

    case files do
      %{^data => :bytes} -> false
      %{^data => :text} when is_binary(text) -> String.contains?(text, word)
      _ -> String.contains?(string, word) or (is_binary(text) and String.contains?(text, word))
    end
  end

  # The base64 of the files of a conversation: of those that are texts, or of the others.
  defp data(messages, text?) do
    for %{content: content} when is_list(content) <- messages,
        part <- Enum.flat_map(content, &inner_parts/1),
        %{type: type} = part when type in [:image, :file] <- [part],
        {media_type, data} <- [source(part)],
        (type == :file and String.starts_with?(media_type, "text/")) == text?,
        do: data
  end

  defp inner_parts(%{type: :tool_result, content: parts}) when is_list(parts), do: parts
  defp inner_parts(part), do: [part]

  defp source(%{data: data} = part), do: {part[:media_type] || "", data}
  defp source(%{url: "data:" <> rest = url}), do: {rest, base64(url)}
  defp source(_elsewhere), do: nil

  defp base64(string), do: string |> String.split(";base64,", parts: 2) |> List.last()

  defp keys_and_strings(map) when is_map(map),
    do: Map.keys(map) ++ Enum.flat_map(Map.values(map), &keys_and_strings/1)

  defp keys_and_strings(list) when is_list(list), do: Enum.flat_map(list, &keys_and_strings/1)
  defp keys_and_strings(text) when is_binary(text), do: [text]
  defp keys_and_strings(_other), do: []

  ## Nothing lost of the view

  defp complete(context, part, provider) do
    texts(context, part, provider) ++ calls(context, part, provider)
  end

  defp log?(context), do: Context.to_messages(context) == Context.to_messages(context, view: :log)

  # Every readable text of the conversation stands in the request, and every image a user or a tool gave as data.
  defp texts(context, part, provider) do
    sent = part |> strings() |> Enum.join("\0")
    messages = Context.to_messages(context)

    results =
      for iteration <- Context.iterations(context),
          log?(context),
          %{result: {:ok, result}} <- iteration.tool_calls,
          do: result

    given = for(%{role: :user, content: content} <- messages, do: content) ++ results

    lost_texts =
      for content <- Enum.map(messages, & &1.content) ++ Enum.filter(results, &is_binary/1),
          text <- texts_of(content),
          not open?(text, provider),
          not String.contains?(sent, text),
          do: {:text_lost, inspect(text, printable_limit: 200)}

    lost_images =
      for parts when is_list(parts) <- given,
          %{type: :image, media_type: type, data: data} <- parts,
          type in ["image/png", "image/jpeg", "image/gif", "image/webp"],
          {type, provider} != {"image/gif", :gemini},
          not String.contains?(sent, data),
          do: {:image_lost, data}

    lost_texts ++ lost_images
  end

  # A call that stays open has nothing in its place.
  defp open?(text, provider),
    do: provider == :openai_responses and text =~ "This call is still running."

  # A body that says less than the conversation has a report.
  defp silent(context, part, provider, opts) do
    if Context.request_report(context, provider, opts) == [] do
      sent = part |> keys_and_strings() |> Enum.join("\0")
      messages = Context.to_messages(context)

      said =
        for %{content: content} <- messages,
            part <- List.wrap(content),
            text <- says(part),
            do: text

      for text <- said, not String.contains?(sent, text), do: {:silently_lost, inspect(text)}
    else
      []
    end
  end

  defp says(text) when is_binary(text), do: if(String.valid?(text), do: [], else: [text])
  defp says(%{type: :text, text: text}), do: says(text)
  defp says(%{type: :thinking, text: text}), do: texts_of(text)
  defp says(%{type: :redacted_thinking, data: data}), do: [data]
  defp says(%{type: :provider_block, data: data}), do: strings(data)

  defp says(%{type: :tool_result, content: parts}) when is_list(parts),
    do: Enum.flat_map(parts, &says/1)

  defp says(%{file_id: id}), do: [id]
  defp says(%{url: "data:" <> _}), do: []
  defp says(%{url: url}), do: [url]

  defp says(%{type: :file, media_type: type, data: data}),
    do: if(type =~ ~r/text|json/i, do: [], else: [data])

  defp says(%{data: data}), do: [data]
  defp says(_part), do: []

  defp texts_of(text) when is_binary(text) do
    if String.valid?(text) do
      # What a projection may cut off.
      case Regex.replace(~r/\A[\s\x1C-\x1F\x{0}]+|[\s\x1C-\x1F\x{0}]+\z/u, text, "")
           |> String.trim() do
        "" -> []
        text -> [text]
      end
    else
      []
    end
  end

  defp texts_of(parts) when is_list(parts) do
    for %{type: :text, text: text} <- parts, text <- texts_of(text), do: text
  end

  defp texts_of(nil), do: []

  # Every call is there, with its arguments; different names stay different.
  defp calls(context, part, provider) do
    stored = for %{tool_calls: calls} <- Context.to_messages(context), call <- calls, do: call
    sent = sent_calls(provider, part)

    if length(stored) != length(sent) do
      [{:calls_lost, "#{length(stored)} calls became #{length(sent)}"}]
    else
      pairs = Enum.zip(stored, sent)
      names = for {call, {name, _}} <- pairs, uniq: true, do: {to_string(call.name), name}

      arguments =
        for {call, {_, sent}} <- pairs,
            is_map(call.arguments),
            json?(call.arguments),
            call.arguments !== sent and as_sent(call.arguments) !== sent,
            do: {:arguments_changed, "#{inspect(call.arguments)} became #{inspect(sent)}"}

      arguments ++ one_to_one(names)
    end
  end

  # What no float can hold is sent as a text, unless the arguments are a text themselves.
  @largest 1.7976931348623157e308 |> trunc()

  defp as_sent(number) when is_integer(number) and abs(number) > @largest,
    do: Integer.to_string(number)

  defp as_sent(map) when is_map(map), do: Map.new(map, fn {key, of} -> {key, as_sent(of)} end)
  defp as_sent(list) when is_list(list), do: Enum.map(list, &as_sent/1)
  defp as_sent(other), do: other

  defp one_to_one(pairs) do
    count = length(pairs)

    if length(Enum.uniq_by(pairs, &elem(&1, 0))) == count and
         length(Enum.uniq_by(pairs, &elem(&1, 1))) == count,
       do: [],
       else: [{:names_not_one_to_one, inspect(pairs)}]
  end

  defp json?(map) when is_map(map) and not is_struct(map),
    do: Enum.all?(map, fn {key, value} -> is_binary(key) and json?(key) and json?(value) end)

  defp json?(list) when is_list(list), do: Enum.all?(list, &json?/1)
  defp json?(text) when is_binary(text), do: String.valid?(text)
  defp json?(value), do: is_number(value) or value in [nil, true, false]

  defp sent_calls(:anthropic, %{"messages" => messages}) do
    for %{"content" => [_ | _] = blocks} <- messages,
        %{"type" => "tool_use", "name" => name, "input" => input} <- blocks,
        do: {name, input}
  end

  defp sent_calls(:bedrock, %{"messages" => messages}) do
    for %{"content" => blocks} <- messages,
        %{"toolUse" => %{"name" => name, "input" => input} = used} <- blocks,
        used["type"] != "server_tool_use",
        do: {name, input}
  end

  defp sent_calls(:gemini, %{"contents" => contents}) do
    for %{"parts" => parts} <- contents,
        %{"functionCall" => %{"name" => name} = call} <- parts,
        do: {name, call["args"] || %{}}
  end

  defp sent_calls(:openai_responses, %{"input" => items}) when is_list(items) do
    for item <- items, call = sent_item(item), do: call
  end

  defp sent_calls(:openai_responses, _part), do: []

  defp sent_calls(_chat, %{"messages" => messages}) do
    for %{"tool_calls" => [_ | _] = calls} <- messages, call <- calls do
      case call do
        %{"custom" => %{"name" => name, "input" => input}} ->
          {name, input}

        %{"function" => %{"name" => name, "arguments" => arguments}} ->
          {name, if(is_binary(arguments), do: JSONText.decode!(arguments), else: arguments)}
      end
    end
  end

  # A call of any kind as its item.
  defp sent_item(%{"type" => type, "name" => name, "arguments" => text})
       when type in ["function_call", "mcp_approval_request"],
       do: {name, JSONText.decode!(text)}

  defp sent_item(%{"type" => "custom_tool_call", "name" => name, "input" => text}),
    do: {name, text}

  defp sent_item(%{"environment" => %{"type" => "container" <> _}}), do: nil
  defp sent_item(%{"type" => "shell_call", "action" => action}), do: {"shell", action}
  defp sent_item(%{"type" => "local_shell_call", "action" => action}), do: {"local_shell", action}

  defp sent_item(%{"type" => "apply_patch_call", "operation" => operation}),
    do: {"apply_patch", operation}

  defp sent_item(%{"type" => "computer_call", "actions" => actions}),
    do: {"computer", %{"actions" => actions}}

  defp sent_item(%{"type" => "computer_call", "action" => action}), do: {"computer", action}

  defp sent_item(%{"type" => "tool_search_call", "arguments" => arguments}),
    do: {"tool_search", arguments}

  defp sent_item(_item), do: nil

  defp strings(map) when is_map(map), do: map |> Map.values() |> Enum.flat_map(&strings/1)
  defp strings(list) when is_list(list), do: Enum.flat_map(list, &strings/1)
  defp strings(text) when is_binary(text), do: [text]
  defp strings(_other), do: []

  ## The same bytes

  # A second time, in another process, and for an equal conversation of another time.
  defp lasting(case, context, opts) do
    bytes = encode(context, case.provider, opts)
    elsewhere = fn fun -> fun |> Task.async() |> Task.await(:infinity) end

    same(:second_time, encode(context, case.provider, opts), bytes) ++
      same(:other_process, elsewhere.(fn -> encode(context, case.provider, opts) end), bytes) ++
      same(
        :built_later,
        elsewhere.(fn ->
          case.script |> ContextGenerators.build(@later) |> encode(case.provider, opts)
        end),
        bytes
      )
  end

  # From storage: the same view gives the same bytes.
  defp stored(case, context, opts) do
    copy = Context.load!(Context.dump(context))

    same(:stored, encode(copy, case.provider, opts), encode(context, case.provider, opts)) ++
      same(:stored_messages, Context.to_messages(copy), Context.to_messages(context)) ++
      same(
        :stored_report,
        Context.request_report(copy, case.provider, opts),
        Context.request_report(context, case.provider, opts)
      )
  end

  # What is appended changes nothing in front of it. The last message may go on (its closing brackets are not counted),
  # and what only stood in for an end, so that the history could be sent as it was, may make room.
  defp stable(case, context, opts, last \\ :last_goes_on) do
    opts = opts |> Keyword.drop([:since, :previous_response_id]) |> put_cache(case.provider)

    if Context.pending_tool_calls(context) == [] and
         Enum.any?(Context.to_messages(context), &says?/1) do
      before = context |> encode(case.provider, opts) |> without_breakpoints()
      appended = ContextGenerators.continue(context, case.more)
      behind = appended |> encode(case.provider, opts) |> without_breakpoints()
      common = :binary.longest_common_prefix([before, behind])

      needed =
        Enum.min([
          needed(case.provider, before, last),
          waiting(case.provider, before),
          returning(case.provider, before, behind)
        ])

      same(
        :old_context_changed,
        context |> encode(case.provider, opts) |> without_breakpoints(),
        before
      ) ++
        if common >= needed,
          do: [],
          else: [
            {:prefix_changed,
             "only #{common} of #{needed} bytes stay: " <>
               "...#{excerpt(before, common)} became ...#{excerpt(behind, common)}"}
          ]
    else
      []
    end
  end

  # Breakpoints move as a conversation grows. In a text their quotation marks are escaped.
  defp without_breakpoints(bytes) do
    marks = ~r/,"(cache_control|prompt_cache_breakpoint)":\{[^{}]*\}|,\{"cachePoint":\{[^{}]*\}\}/
    Regex.replace(marks, bytes, "")
  end

  # A history that says nothing is sent as a stand-in, which need not stay.
  defp says?(%{role: :system}), do: false
  defp says?(%{tool_calls: [_ | _]}), do: true
  defp says?(%{content: text}) when is_binary(text) or text == nil, do: texts_of(text) != []

  defp says?(%{content: parts}) do
    Enum.any?(parts, fn
      %{type: :text} = part -> texts_of([part]) != []
      %{type: type} -> type in [:image, :file, :tool_result]
    end)
  end

  defp excerpt(bytes, at),
    do:
      bytes
      |> binary_part(max(at - 60, 0), min(byte_size(bytes) - max(at - 60, 0), 160))
      |> inspect()

  defp put_cache(opts, provider) when provider in [:anthropic, :bedrock],
    do: Keyword.put(opts, :cache, false)

  defp put_cache(opts, _provider), do: opts

  defp needed(provider, bytes, last) do
    spans = spans(bytes, Map.get(@list_keys, provider, "messages"))

    case Enum.reverse(spans) do
      [] ->
        0

      [_] when last == :last_anew ->
        0

      [{_, _}] = [{from, to}] ->
        from + open_length(binary_part(bytes, from, to - from))

      # An imported one that goes on is made anew.
      [_, {_, previous} | _] when last == :last_anew ->
        previous

      [{from, to}, {_, previous} | _] ->
        if stands_in?(provider, binary_part(bytes, from, to - from)),
          do: previous,
          else: from + open_length(binary_part(bytes, from, to - from))
    end
  end

  # Anthropic takes a use without its result as long as it may go on with it, and no longer.
  defp waiting(:anthropic, bytes) do
    answered = for [_, id] <- Regex.scan(~r/"tool_use_id":"(.*?)"/, bytes), do: id

    open =
      for {from, to} <- spans(bytes, "messages"),
          message = binary_part(bytes, from, to - from),
          message =~ ~s("server_tool_use"),
          [_, id] <- Regex.scan(~r/"id":"(.*?)"/, message),
          id not in answered,
          # Where nothing follows, the comma before it goes as well.
          do: from - 1

    Enum.min(open, fn -> byte_size(bytes) end)
  end

  defp waiting(_provider, bytes), do: byte_size(bytes)

  # One that was left out comes back with its result.
  defp returning(:anthropic, before, behind) do
    back =
      for {from, to} <- spans(behind, "messages"),
          message = binary_part(behind, from, to - from),
          message =~ ~s("server_tool_use"),
          [_, id] <- Regex.scan(~r/"id":"(.*?)"/, message),
          not String.contains?(before, ~s("id":"#{id}")),
          do: from - 1

    Enum.min(back, fn -> byte_size(before) end)
  end

  defp returning(_provider, before, _behind), do: byte_size(before)

  # A history that ends with the assistant gets a user's message behind it where the provider wants one.
  defp stands_in?(provider, message) when provider in [:gemini, :mistral],
    do: String.contains?(message, "\"Continue.\"")

  defp stands_in?(_provider, _message), do: false

  defp open_length(message) do
    [closing] = Regex.run(~r/(\](,"role":"\w+")?\})?\z/, message, capture: :first)
    byte_size(message) - byte_size(closing)
  end

  # Where the elements of a list directly under the top object begin and end.
  defp spans(bytes, key) do
    scan(bytes, 0, %{depth: 0, key: nil, list: nil, wanted: key, start: nil, spans: []})
  end

  defp scan(bytes, at, state) when at < byte_size(bytes) do
    case :binary.at(bytes, at) do
      ?" ->
        stop = string_end(bytes, at + 1)
        text = binary_part(bytes, at + 1, stop - at - 1)
        state = if state.depth == 1, do: %{state | key: text}, else: state
        scan(bytes, stop + 1, begin(state, at))

      open when open in [?{, ?[] ->
        state = begin(state, at)

        list =
          if open == ?[ and state.depth == 1 and state.key == state.wanted,
            do: 2,
            else: state.list

        scan(bytes, at + 1, %{state | depth: state.depth + 1, list: list})

      close when close in [?}, ?]] ->
        state =
          if state.list == 2 and state.depth == 2,
            do: %{finish(state, at) | list: nil},
            else: state

        scan(bytes, at + 1, %{state | depth: state.depth - 1})

      ?, ->
        scan(bytes, at + 1, if(state.depth == 2, do: finish(state, at), else: state))

      _ ->
        scan(bytes, at + 1, begin(state, at))
    end
  end

  defp scan(_bytes, _at, state), do: Enum.reverse(state.spans)

  defp begin(%{list: 2, depth: 2, start: nil} = state, at), do: %{state | start: at}
  defp begin(state, _at), do: state

  defp finish(%{list: 2, start: start} = state, at) when start != nil,
    do: %{state | start: nil, spans: [{start, at} | state.spans]}

  defp finish(state, _at), do: state

  defp string_end(bytes, at) do
    case :binary.at(bytes, at) do
      ?\\ -> string_end(bytes, at + 2)
      ?" -> at
      _ -> string_end(bytes, at + 1)
    end
  end

  ## Import

  # The provider's own body comes back as it was; another provider's request of it obeys that one's rules.
  defp imported(case, context, opts) do
    opts = opts |> Keyword.take([:pending, :since]) |> put_cache(case.provider)
    body = Context.request!(context, case.provider, opts)

    case Context.Import.from_request(body, case.provider) do
      {:ok, imported, _repairs} ->
        other = case.other
        foreign = Context.request!(imported, other, [])

        again = Context.request!(imported, case.provider, put_cache([], case.provider))

        same(:round_trip, in_place(again, case), in_place(body, case)) ++
          for finding <- RequestChecker.validate_request(foreign, other) do
            {{:imported, other, finding.rule}, RequestChecker.format([finding])}
          end ++
          viewed(case, encode(context, case.provider, opts)) ++ continued(case, imported)

      {:error, error} ->
        [{:import_refused, Exception.message(error)}]
    end
  end

  # An import puts the late output of an asynchronous call into its slot, so that it does not keep its place among the others.
  defp in_place(%{"input" => _items} = body, %{script: script}),
    do: if(Enum.any?(script, &match?({:arrive, _, _}, &1)), do: :late, else: body)

  defp in_place(body, _case), do: body

  # What was imported goes on in another provider's style, and with another provider, and back.
  defp continued(case, imported) do
    more = ContextGenerators.continue(imported, case.more, @later)

    for provider <- [case.other, case.provider],
        body = Context.request!(more, provider, pending: :interrupt),
        finding <- RequestChecker.validate_request(body, provider) do
      {{:continued, provider, finding.rule}, RequestChecker.format([finding])}
    end
  end

  # A view of what was imported obeys the rules as well, also of the provider whose form is kept.
  # It is imported as text, whose order of keys is that of requests.
  defp viewed(case, text) do
    imported = Context.Import.from_request!(text, case.provider)
    view = ContextGenerators.continue(imported, case.views, @later)
    plain = encode(imported, case.provider, pending: :interrupt)

    judged =
      for provider <- [case.provider, case.other],
          body = Context.request!(view, provider, pending: :interrupt),
          finding <- RequestChecker.validate_request(body, provider) do
        {{:view_of_import, provider, finding.rule}, RequestChecker.format([finding])}
      end

    judged ++
      masked(view, Context.request!(view, case.provider, pending: :interrupt)) ++
      stored(case, view, pending: :interrupt) ++
      stable(case, view, [pending: :interrupt], :last_anew) ++
      same(:old_import_changed, encode(imported, case.provider, pending: :interrupt), plain)
  end

  defp encode(context, provider, opts),
    do: context |> Context.encode_request!(provider, opts) |> IO.iodata_to_binary()
end
