# Compares reading streamed responses with the plain way, which is to split the text, decode each event with a JSON
# library and join binaries:
#
#     MIX_ENV=prod mix run bench/responses.exs [FOLDER]
#
# The streams are the recorded ones of FOLDER (../shared/responses), cut as a network does, into pieces of 1,400 bytes;
# without the folder, streams of the same form are made. Then a long response in many pieces: what the first pieces cost
# beside the last.

Code.require_file("support/harness.exs", __DIR__)
Code.require_file("support/json_libraries.exs", __DIR__)

defmodule AshAgent.Bench.PlainResponse do
  @moduledoc "Reads streams of server-sent events as clients do that have nothing but a JSON library."

  def new, do: %{buffer: "", texts: %{}, thinking: %{}, calls: %{}, usage: nil, finish: nil}

  def feed(state, bytes, provider, decode) do
    [rest | events] = (state.buffer <> bytes) |> String.split("\n\n") |> Enum.reverse()

    events
    |> Enum.reverse()
    |> Enum.reduce(%{state | buffer: rest}, fn event, state ->
      case data(event) do
        nil -> state
        "[DONE]" -> state
        data -> provider |> read(decode.(data), state)
      end
    end)
  end

  defp data(event) do
    event
    |> String.split("\n")
    |> Enum.find_value(fn
      "data: " <> data -> data
      _ -> nil
    end)
  end

  defp read(:anthropic, %{"type" => "content_block_start", "index" => index} = event, state) do
    case event["content_block"] do
      %{"type" => "tool_use"} = call ->
        put_in(state.calls[index], {call["id"], call["name"], "", nil})

      %{"type" => "text", "text" => text} ->
        put_in(state.texts[index], text)

      _ ->
        state
    end
  end

  defp read(:anthropic, %{"type" => "content_block_delta", "index" => index} = event, state) do
    case event["delta"] do
      %{"type" => "text_delta", "text" => text} ->
        %{state | texts: Map.update(state.texts, index, text, &(&1 <> text))}

      %{"type" => "thinking_delta", "thinking" => text} ->
        %{state | thinking: Map.update(state.thinking, index, text, &(&1 <> text))}

      %{"type" => "input_json_delta", "partial_json" => json} ->
        append(state, index, json)

      _ ->
        state
    end
  end

  defp read(:anthropic, %{"type" => "message_delta"} = event, state),
    do: %{state | finish: event["delta"]["stop_reason"], usage: event["usage"]}

  defp read(:openai_chat, %{"choices" => [choice | _]} = event, state) do
    delta = choice["delta"] || %{}
    state = join(state, :texts, delta["content"])
    state = join(state, :thinking, delta["reasoning_content"])

    state =
      Enum.reduce(delta["tool_calls"] || [], state, fn call, state ->
        index = call["index"]
        function = call["function"]

        state =
          if state.calls[index],
            do: state,
            else: put_in(state.calls[index], {call["id"], function["name"], "", nil})

        append(state, index, function["arguments"] || "")
      end)

    %{
      state
      | finish: choice["finish_reason"] || state.finish,
        usage: event["usage"] || state.usage
    }
  end

  defp read(:openai_responses, %{"type" => "response.output_text.delta"} = event, state),
    do: join(state, :texts, event["delta"])

  defp read(:openai_responses, %{"type" => "response.completed", "response" => response}, state),
    do: %{state | finish: response["status"], usage: response["usage"]}

  defp read(:gemini, %{"candidates" => [candidate | _]} = event, state) do
    state =
      Enum.reduce(candidate["content"]["parts"] || [], state, fn
        %{"text" => text, "thought" => true}, state -> join(state, :thinking, text)
        %{"text" => text}, state -> join(state, :texts, text)
        _other, state -> state
      end)

    %{state | finish: candidate["finishReason"] || state.finish, usage: event["usageMetadata"]}
  end

  defp read(_provider, event, state),
    do: %{state | usage: (is_map(event) && event["usage"]) || state.usage}

  defp join(state, _kind, nil), do: state

  defp join(state, kind, text),
    do: Map.update!(state, kind, &Map.update(&1, 0, text, fn old -> old <> text end))

  defp append(state, index, json) do
    case state.calls[index] do
      {id, name, old, _} -> put_in(state.calls[index], {id, name, old <> json, nil})
      nil -> state
    end
  end

  def text(state), do: state.texts |> Enum.sort() |> Enum.map_join(&elem(&1, 1))
end

defmodule AshAgent.Bench.Responses do
  @moduledoc "Streams to read."

  alias AshAgent.Bench.{Harness, JSONLibraries, PlainResponse}
  alias AshAgent.Response

  @piece 1_400

  def run(folder) do
    IO.puts(Harness.environment())
    libraries = JSONLibraries.all()
    IO.puts("\nRecorded streams in pieces of #{@piece} bytes; us a stream.\n")
    names = Enum.map_join(libraries, " | ", & &1.name)
    IO.puts("| streams | bytes | AshAgent.Response | #{names} | slowest win |")
    IO.puts("| --- " |> String.duplicate(4 + length(libraries)) |> Kernel.<>("|"))
    for {provider, streams} <- streams(folder), do: row(provider, streams, libraries)
    long(libraries)
  end

  defp row(provider, streams, libraries) do
    cut = Enum.map(streams, &pieces(&1, @piece))
    native = fn -> Enum.map(cut, &native(provider, &1)) end

    times =
      for %{decode: decode} <- libraries do
        plain = fn -> Enum.map(cut, &plain(provider, &1, decode)) end
        Harness.compare(native, plain, &same?/2)
      end

    count = length(streams)
    bytes = streams |> Enum.map(&byte_size/1) |> Enum.sum() |> div(count)
    own = Harness.median(Enum.map(times, & &1.native)) / count
    plain = Enum.map_join(times, " | ", &us(&1.plain / count))
    win = times |> Enum.map(&(&1.plain / &1.native)) |> Enum.min()

    IO.puts(
      "| #{count} of #{provider} | #{bytes} | #{us(own)} | #{plain} | #{Float.round(win, 1)} times |"
    )
  end

  # Text for text: those of blocks that the plain way does not know are in neither.
  defp same?(native, plain),
    do: Enum.map(native, &text/1) == Enum.map(plain, &PlainResponse.text/1)

  defp native(provider, pieces) do
    response =
      Enum.reduce(pieces, Response.new(provider), fn piece, response ->
        {:ok, response, _events} = Response.feed(response, piece)
        response
      end)

    case Response.finish(response) do
      {:ok, response, _events} -> response
      {:error, _error} -> response
    end
  end

  defp plain(provider, pieces, decode),
    do: Enum.reduce(pieces, PlainResponse.new(), &PlainResponse.feed(&2, &1, provider, decode))

  defp text(response) do
    case Response.message(response).content do
      nil -> ""
      text when is_binary(text) -> text
      parts -> for %{type: :text, text: text} <- parts, into: "", do: text
    end
  end

  defp long(libraries) do
    IO.puts("\nOne response of 1 MB of text in 50,000 events, an event a piece; us a piece.\n")
    IO.puts("| way | all | first tenth | last tenth |")
    IO.puts("| --- | --- | --- | --- |")
    pieces = for n <- 1..50_000, do: chunk(n)
    feed = fn response, piece -> response |> Response.feed(piece) |> elem(1) end
    show("AshAgent.Response", pieces, Response.new(:openai_chat), feed)

    for %{name: name, decode: decode} <- libraries do
      feed = &PlainResponse.feed(&1, &2, :openai_chat, decode)
      show(name, pieces, PlainResponse.new(), feed)
    end

    IO.puts("\nThe same 1 MB body in 50,000 pieces of 20 bytes, wherever they cut it:\n")
    IO.puts("| way | all | first tenth | last tenth |")
    IO.puts("| --- | --- | --- | --- |")
    body = IO.iodata_to_binary(for n <- 1..50_000//10, do: chunk(n))
    body = binary_part(body, 0, min(byte_size(body), 1_000_000))
    show("AshAgent.Response", pieces(body, 20), Response.new(:openai_chat), feed)
  end

  defp show(name, pieces, start, feed) do
    # The last of three: heaps have grown, code is warm.
    [_, _, times] = for _ <- 1..3, do: tenths(pieces, start, feed)
    count = div(length(pieces), 10)
    all = Enum.sum(times) / (10 * count)

    IO.puts(
      "| #{name} | #{us(all)} | #{us(hd(times) / count)} | #{us(List.last(times) / count)} |"
    )
  end

  defp tenths(pieces, start, feed) do
    task =
      Task.async(fn ->
        pieces
        |> Enum.chunk_every(div(length(pieces), 10))
        |> Enum.take(10)
        |> Enum.map_reduce(start, fn tenth, state ->
          {us, state} = :timer.tc(fn -> Enum.reduce(tenth, state, &feed.(&2, &1)) end)
          {us, state}
        end)
        |> elem(0)
      end)

    Task.await(task, :infinity)
  end

  defp us(number), do: :erlang.float_to_binary(number * 1.0, decimals: 2)

  defp chunk(n) do
    word = String.pad_trailing("word #{n} ", 20, "x")

    ~s(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1770933892,"model":"m","choices":[) <>
      ~s({"index":0,"delta":{"content":"#{word}"},"logprobs":null,"finish_reason":null}],"usage":null}\n\n)
  end

  defp pieces(body, size) when byte_size(body) <= size, do: [body]

  defp pieces(body, size) do
    <<piece::binary-size(size), rest::binary>> = body
    [piece | pieces(rest, size)]
  end

  defp streams(folder) do
    for provider <- [:anthropic, :openai_chat, :openai_responses, :gemini],
        streams = recorded(folder, provider),
        streams != [],
        do: {provider, streams}
  end

  defp recorded(folder, provider) do
    case Path.wildcard(Path.join([folder, Atom.to_string(provider), "*.chunks.txt"])) do
      [] when provider == :openai_chat -> [for(n <- 1..300, into: "", do: chunk(n))]
      [] -> []
      files -> files |> Enum.reject(&left_out?/1) |> Enum.map(&frame(provider, File.read!(&1)))
    end
  end

  # Several streams in one file, or events that are not JSON.
  defp left_out?(file),
    do:
      String.contains?(file, [
        "tool-search",
        "code-execution",
        "programmatic",
        "encrypted-content",
        "parallel-tool-call-wrapper",
        "openai-error",
        "spliced"
      ])

  defp frame(provider, text) do
    lines = String.split(text, "\n", trim: true)
    body = for line <- lines, into: "", do: "data: #{line}\n\n"
    if provider == :openai_chat, do: body <> "data: [DONE]\n\n", else: body
  end
end

folder = List.first(System.argv()) || Path.expand("../../shared/responses", __DIR__)
AshAgent.Bench.Responses.run(folder)
