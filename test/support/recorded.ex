defmodule AshAgent.TestSupport.Recorded do
  @moduledoc false

  # Answers that providers sent, as the bodies they were. Some are beside the repository, where it was cloned with them;
  # those in test/fixtures/answers, which show one thing each, are always there. So are `samples/0`, the least that each
  # provider may send. A stream is kept as an event's data a line.

  alias AshAgent.Context.JSON

  @providers [:anthropic, :openai_chat, :openai_responses, :gemini, :bedrock, :ollama, :mistral]
  @recorded for up <- ["../../..", "../../../.."],
                do: Path.expand("#{up}/shared/responses", __DIR__)
  @folders [Path.expand("../fixtures/answers", __DIR__) | @recorded]

  @doc "Streams that were recorded: `%{name:, provider:, type:, body:}`."
  def streams, do: streams(@recorded)

  @doc "Streams and whole answers, recorded and our own."
  def answers, do: streams(@folders) ++ wholes()

  defp streams(folders) do
    for {provider, path} <- paths(folders, "*.chunks.txt") do
      lines = path |> File.read!() |> String.split("\n", trim: true)
      stream(name(path), provider, lines)
    end
  end

  defp wholes do
    for {provider, path} <- paths(@folders, "*.json"),
        do: %{
          name: name(path),
          provider: provider,
          type: "application/json",
          body: File.read!(path)
        }
  end

  defp paths(folders, files) do
    for folder <- folders,
        provider <- @providers,
        path <- Path.wildcard("#{folder}/#{provider}/#{files}"),
        do: {provider, path}
  end

  defp name(path), do: path |> Path.split() |> Enum.take(-2) |> Path.join()

  @doc "A stream of each provider that says «Grüße, Welt!», and counts tokens where the provider does."
  def samples do
    for {provider, lines} <- [
          anthropic: [
            ~s({"type":"message_start","message":{"id":"m","model":"x","content":[],"usage":{"input_tokens":5}}}),
            ~s({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}),
            ~s({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüße, "}}),
            ~s({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Welt!"}}),
            ~s({"type":"content_block_stop","index":0}),
            ~s({"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}),
            ~s({"type":"message_stop"})
          ],
          openai_chat: [
            ~s({"id":"m","model":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"Grüße, "}}]}),
            ~s({"choices":[{"index":0,"delta":{"content":"Welt!"}}]}),
            ~s({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}),
            ~s({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}})
          ],
          openai_responses: [
            ~s({"type":"response.created","response":{"id":"m","model":"x","output":[]}}),
            ~s({"type":"response.output_item.added","output_index":0,"item":{"id":"i","type":"message","role":"assistant","content":[]}}),
            ~s({"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"delta":"Grüße, "}),
            ~s({"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"delta":"Welt!"}),
            ~s({"type":"response.output_item.done","output_index":0,"item":{"id":"i","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Grüße, Welt!","annotations":[]}]}}),
            ~s({"type":"response.completed","response":{"id":"m","model":"x","status":"completed","output":[],"usage":{"input_tokens":5,"output_tokens":3,"total_tokens":8}}})
          ],
          gemini: [
            ~s({"candidates":[{"content":{"role":"model","parts":[{"text":"Grüße, "}]}}],"modelVersion":"x"}),
            ~s({"candidates":[{"content":{"role":"model","parts":[{"text":"Welt!"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":3,"totalTokenCount":8}})
          ],
          bedrock: [
            ~s({"messageStart":{"role":"assistant"}}),
            ~s({"contentBlockDelta":{"contentBlockIndex":0,"delta":{"text":"Grüße, "}}}),
            ~s({"contentBlockDelta":{"contentBlockIndex":0,"delta":{"text":"Welt!"}}}),
            ~s({"contentBlockStop":{"contentBlockIndex":0}}),
            ~s({"messageStop":{"stopReason":"end_turn"}}),
            ~s({"metadata":{"usage":{"inputTokens":5,"outputTokens":3,"totalTokens":8}}})
          ],
          ollama: [
            ~s({"model":"x","message":{"role":"assistant","content":"Grüße, "},"done":false}),
            ~s({"model":"x","message":{"role":"assistant","content":"Welt!"},"done":false}),
            ~s({"model":"x","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":5,"eval_count":3})
          ],
          mistral: [
            ~s({"id":"m","model":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"Grüße, "}}]}),
            ~s({"choices":[{"index":0,"delta":{"content":"Welt!"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}})
          ]
        ],
        do: stream("#{provider}", provider, lines)
  end

  @doc "The sample of a provider."
  def sample(provider), do: Enum.find(samples(), &(&1.provider == provider))

  @doc "A stream of events, each the JSON text of its data."
  def stream(name, provider, lines) do
    %{
      name: name,
      provider: provider,
      type: type(provider),
      body: IO.iodata_to_binary([Enum.map(lines, &frame(provider, &1)), ending(provider)])
    }
  end

  defp type(:bedrock), do: "application/vnd.amazon.eventstream"
  defp type(:ollama), do: "application/x-ndjson"
  defp type(_provider), do: "text/event-stream; charset=utf-8"

  defp frame(:ollama, line), do: [line, "\n"]
  defp frame(:bedrock, line), do: line |> JSON.decode!() |> Enum.map(&aws_frame/1)

  defp frame(provider, line) when provider in [:anthropic, :openai_responses] do
    case JSON.decode(line) do
      {:ok, %{"type" => type}} -> ["event: ", type, "\ndata: ", line, "\n\n"]
      _ -> ["data: ", line, "\n\n"]
    end
  end

  defp frame(_provider, line), do: ["data: ", line, "\n\n"]

  defp ending(provider) when provider in [:openai_chat, :mistral], do: "data: [DONE]\n\n"
  defp ending(_provider), do: ""

  # https://smithy.io/2.0/aws/amazon-eventstream.html
  defp aws_frame({type, payload}) do
    headers =
      for {name, value} <- [{":event-type", type}, {":message-type", "event"}], into: <<>> do
        <<byte_size(name), name::binary, 7, byte_size(value)::16, value::binary>>
      end

    payload = JSON.encode(payload)
    total = 16 + byte_size(headers) + byte_size(payload)
    prelude = <<total::32, byte_size(headers)::32>>
    message = <<prelude::binary, :erlang.crc32(prelude)::32, headers::binary, payload::binary>>
    <<message::binary, :erlang.crc32(message)::32>>
  end
end
