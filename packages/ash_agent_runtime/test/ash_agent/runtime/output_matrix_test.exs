defmodule AshAgent.Runtime.OutputMatrixTest do
  # Typed answers from a server that speaks the seven formats and damages them in every way that is repaired: whatever the
  # provider, the mode and the damage, the value is equal, at once or when the model was asked again.
  use ExUnit.Case, async: true

  alias AshAgent.{Context, LLM, Runtime}
  alias AshAgent.Test.Server
  alias AshAgent.TestSupport.Clients

  @output [
    customer_name: :string,
    count: :integer,
    state: {:in, [:new, :in_progress]},
    tags: {:list, :string},
    place: [city: :string]
  ]

  @json %{
    "customer_name" => "Ann",
    "count" => 2,
    "state" => "in_progress",
    "tags" => ["a b"],
    "place" => %{"city" => "Ulm"}
  }
  @value %{
    customer_name: "Ann",
    count: 2,
    state: :in_progress,
    tags: ["a b"],
    place: %{city: "Ulm"}
  }
  @text ~s({"customer_name":"Ann","count":2,"state":"in_progress","tags":["a b"],"place":{"city":"Ulm"}})

  # Damage of the text, and of the data where a call has data.
  @damages [
    none: {@text, @json},
    fence: {"```json\n#{@text}\n```", nil},
    prose: {"Here you are, {sir}: #{@text} Anything else?", nil},
    trailing_comma: {String.replace(@text, "]", ",]"), nil},
    comment: {String.replace(@text, ~s("count":), ~s(/* two */ "count":)), nil},
    single_quotes: {String.replace(@text, ~s("Ann"), "'Ann'"), nil},
    unquoted_key: {String.replace(@text, ~s("count"), "count"), nil},
    number_as_text: {String.replace(@text, ":2,", ~s(:"2",)), Map.put(@json, "count", "2")},
    smart_quotes: {String.replace(@text, ~s("customer_name"), "“customer_name”"), nil},
    list_as_text:
      {String.replace(@text, ~s(["a b"]), ~S("[\"a b\"]")), Map.put(@json, "tags", ~s(["a b"]))},
    no_list: {String.replace(@text, ~s(["a b"]), ~s("a b")), Map.put(@json, "tags", "a b")},
    list_of_one:
      {String.replace(@text, ~s({"city":"Ulm"}), ~s([{"city":"Ulm"}])),
       Map.put(@json, "place", [%{"city" => "Ulm"}])},
    choice:
      {String.replace(@text, "in_progress", "IN PROGRESS"),
       Map.put(@json, "state", "IN PROGRESS")},
    key_style:
      {String.replace(@text, "customer_name", "customerName"),
       @json |> Map.delete("customer_name") |> Map.put("customerName", "Ann")},
    missing: {String.replace(@text, ~s("count":2,), ""), Map.delete(@json, "count")}
  ]

  @models [
    anthropic: "claude-sonnet-4-5",
    openai_chat: "gpt-4o",
    openai_responses: "gpt-5",
    gemini: "gemini-2.5-flash",
    bedrock: "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
    ollama: "llama3.2",
    mistral: "mistral-large-latest"
  ]

  # What is missing is never made up. Where the provider promises to hold the model to the schema, nothing is repaired.
  @lenient [:gemini, :ollama]

  defp expected(_provider, _mode, :none), do: 1
  defp expected(_provider, _mode, damage) when damage in [:missing, :smart_quotes], do: 2
  defp expected(provider, :native, _damage) when provider not in @lenient, do: 2
  defp expected(_provider, _mode, _damage), do: 1

  defp client(provider, server) do
    Clients.new(provider, Server.base_url(server), model: @models[provider])
  end

  defp answer(:tool, {_text, data}),
    do: %{tool_calls: [%{id: "c1", name: "submit_answer", arguments: data}]}

  defp answer(_mode, {text, _data}), do: text

  for {provider, _model} <- @models, stream <- [true, false] do
    @provider provider
    @stream stream

    test "#{provider}, #{if stream, do: "streamed", else: "whole"}" do
      rows =
        for mode <- [:native, :tool, :text],
            {damage, {_text, data} = damaged} <- @damages,
            mode != :tool or data != nil do
          script = [answer(mode, damaged), answer(mode, @damages[:none])]
          id = {@provider, mode, damage}
          server = start_supervised!({Server, script: script, provider: @provider}, id: id)

          opts = [
            llm: client(@provider, server),
            output: @output,
            output_mode: mode,
            stream: @stream
          ]

          reply = Runtime.run(Context.new("What was ordered?"), opts)
          requests = Server.requests(server)
          stop_supervised!(id)

          assert {:ok, %{output: @value, output_mode: ^mode}} = reply,
                 inspect({mode, damage, reply})

          {mode, damage, length(requests)}
        end

      assert rows ==
               for(
                 {mode, damage, _count} <- rows,
                 do: {mode, damage, expected(@provider, mode, damage)}
               )
    end

    test "#{provider}, #{if stream, do: "streamed", else: "whole"}: a schema that the provider refuses goes by a tool, once" do
      answer = answer(:tool, @damages[:none])
      ask = &refused(@provider, @stream, &1, &2)

      words = [
        "Invalid schema for response_format 'answer': In context=(), 'type' is missing",
        "The compiled grammar is too large",
        "The specified schema produces a constraint that has too many states for serving.",
        "output_config.format: Extra inputs are not permitted"
      ]

      for words <- words do
        assert {{:ok, result}, [first, second]} = ask.([words, answer], :auto)
        assert {result.output, result.output_mode} == {@value, :tool}
        assert result.output_note =~ "refused its schema"

        assert [%{kind: :invalid_request, message: ^words}] =
                 Context.Audit.failures(result.context)

        assert %{fields: %{"output" => %{"mode" => "tool"}}} =
                 Context.Audit.get_request(result.context, 1)

        refute inspect(first) =~ "submit_answer"
        assert inspect(second, limit: :infinity, printable_limit: :infinity) =~ "submit_answer"
      end

      [words | _] = words
      assert {{:error, error}, [_, _]} = ask.([words, words], :auto)
      assert %LLM.Error{kind: :invalid_request} = error |> Map.fetch!(:reason) |> elem(1)
      assert {{:error, _}, [_]} = ask.([words, answer], :native)
      assert {{:error, _}, [_]} = ask.(["messages.0: image is too small", answer], :auto)
    end
  end

  defp refused(provider, stream, script, mode) do
    refuse = &Context.JSON.encode(%{"error" => %{"message" => &1}, "message" => &1})
    headers = [{"content-type", "application/json"}]

    script =
      for one <- script,
          do: if(is_binary(one), do: {:raw, 400, headers, [refuse.(one)]}, else: one)

    id = make_ref()
    server = start_supervised!({Server, script: script, provider: provider}, id: id)
    opts = [llm: client(provider, server), output: @output, output_mode: mode, stream: stream]
    reply = Runtime.run(Context.new("What was ordered?"), opts)
    requests = Server.requests(server)
    stop_supervised!(id)
    {reply, for(request <- requests, do: request.body)}
  end
end
