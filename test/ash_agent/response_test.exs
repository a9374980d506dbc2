defmodule AshAgent.ResponseTest do
  use ExUnit.Case, async: true

  doctest AshAgent.Response

  alias AshAgent.{Context, Response}
  alias AshAgent.Context.Native

  describe "on a dirty scheduler" do
    test "what was given as a long reason is read" do
      reason = %{why: String.duplicate("x", 1_000_000)}
      %{ref: ref} = Response.interrupt(Response.new(:openai_chat), reason)

      assert {:error, :dirty} = Native.response_reason_normal(ref)
      assert {:ok, ^reason} = Native.response_reason(ref)
      assert %{ref: short} = Response.interrupt(Response.new(:openai_chat), :stopped)
      assert {:ok, :stopped} = Native.response_reason_normal(short)
    end

    test "what a provider wrote as the long name of a model is read" do
      name = String.duplicate("x", 1_000_000)
      message = %{"role" => "assistant", "content" => "Hi!"}
      choice = %{"index" => 0, "message" => message, "finish_reason" => "stop"}
      body = Context.JSON.encode(%{"model" => name, "choices" => [choice]})
      {:ok, %{ref: ref} = response} = Response.decode(:openai_chat, body)

      assert {:error, :dirty} = Native.response_facts_normal(ref)
      assert Response.model(response) == name
    end
  end

  @providers [
    :anthropic,
    :openai_chat,
    :openai_responses,
    :gemini,
    :bedrock,
    :ollama,
    :mistral
  ]

  # Recorded streams lie beside the repository; without them there is nothing to read.
  @recorded Path.expand("../../../shared/responses", __DIR__)

  defp chat(delta, reason \\ nil) do
    choice = %{"index" => 0, "delta" => delta, "finish_reason" => reason}
    "data: " <> Context.JSON.encode(%{"choices" => [choice]}) <> "\n\n"
  end

  defp call(fields), do: chat(%{"tool_calls" => [Map.put_new(fields, "index", 0)]})

  defp feed!(response, bytes) do
    {:ok, response, events} = Response.feed(response, bytes)
    {response, events}
  end

  defp read!(provider, pieces, opts \\ []) do
    {response, events} =
      Enum.reduce(pieces, {Response.new(provider, opts), []}, fn piece, {response, events} ->
        {response, more} = feed!(response, piece)
        {response, events ++ more}
      end)

    {:ok, response, more} = Response.finish(response)
    {response, events ++ more}
  end

  describe "feed/2" do
    test "tells calls as they come" do
      body = [
        chat(%{"reasoning_content" => "hm"}),
        call(%{"id" => "a", "function" => %{"name" => "add", "arguments" => ~s({"x")}}),
        call(%{"function" => %{"arguments" => ":1}"}}),
        chat(%{}, "tool_calls"),
        ~s(data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n)
      ]

      {response, events} = read!(:openai_chat, body)

      assert [
               {:thinking, 0, "hm"},
               {:tool_call_started, 0, "add"},
               {:tool_call_arguments, 0, ~s({"x")},
               {:tool_call_arguments, 0, ":1}"},
               {:tool_call, %{id: "a", name: "add", arguments: %{"x" => 1}} = call},
               {:finish, :tool_calls},
               {:usage, %{input_tokens: 3, output_tokens: 2, total_tokens: 5} = usage}
             ] = events

      assert %{content: [%{type: :thinking, text: "hm"}], tool_calls: [^call]} =
               Response.message(response)

      assert Response.usage(response) == usage
    end

    test "ends with what the provider says went wrong" do
      body = ~s(data: {"error":{"message":"slow down","code":"rate_limit_exceeded"}}\n\n)
      {response, [{:error, error}]} = feed!(Response.new(:openai_chat), body)
      assert error.reason == {:provider, "rate_limit_exceeded"}
      assert error.provider_message == "slow down"
      assert error.retryable?
      assert Exception.message(error) =~ "slow down. Asking again may help"
      # Bytes after the end are left alone.
      assert {:ok, %Response{state: :failed}, []} = Response.feed(response, "data: {}\n\n")
    end

    test "has limits" do
      response = Response.new(:ollama, max_bytes: 10)
      {:error, error} = Response.feed(response, String.duplicate(" ", 11))
      assert error.reason == {:response_too_large, 10}
      refute error.retryable?
      deep = String.duplicate("[", 100_000)
      {:error, error} = Response.feed(Response.new(:ollama), deep <> "\n")
      assert error.reason == {:too_deep, 200}
    end

    test "reads what is too much for a normal scheduler on a dirty one" do
      text = String.duplicate("x", 300_000)
      body = chat(%{"content" => text}) <> chat(%{}, "stop")
      {response, _events} = read!(:openai_chat, [body])
      assert Response.message(response).content == text
      # A document that has waited for its last bytes, and arguments that have.
      pieces = for <<piece::binary-size(999) <- chat(%{"content" => text})>>, do: piece

      {response, []} =
        Enum.reduce(pieces, {Response.new(:openai_chat), []}, &feed!(elem(&2, 0), &1))

      rest =
        binary_part(
          chat(%{"content" => text}),
          999 * length(pieces),
          rem(byte_size(chat(%{"content" => text})), 999)
        )

      assert {_response, [{:text, 0, ^text}]} = feed!(response, rest)
      arguments = Context.JSON.encode(%{text: text})

      pieces =
        for <<piece::binary-size(500) <- arguments <> String.duplicate(" ", 500)>>, do: piece

      body = for piece <- pieces, do: call(%{"function" => %{"arguments" => piece}})
      name = call(%{"id" => "a", "function" => %{"name" => "f"}})
      {_response, events} = read!(:openai_chat, [name | body] ++ [chat(%{}, "tool_calls")])

      assert {:tool_call, %{arguments: %{"text" => ^text}}} =
               Enum.find(events, &match?({:tool_call, _}, &1))
    end

    test "makes no atoms of what comes, and never crashes" do
      before = :erlang.system_info(:atom_count)
      :rand.seed(:exsss, 7)

      for provider <- @providers, _ <- 1..30 do
        name = Base.encode16(:rand.bytes(8))

        body =
          call(%{"id" => name, "function" => %{"name" => name, "arguments" => ~s({"#{name}":1})}})

        Response.feed(Response.new(provider), body <> chat(%{name => name}, name))
        Response.feed(Response.new(provider), :rand.bytes(200))
        Response.decode(provider, :rand.bytes(50))
      end

      # Other tests run beside this one and load modules.
      assert :erlang.system_info(:atom_count) - before < 420
    end
  end

  describe "push/2" do
    test "reads what a library read of a stream" do
      deltas = [
        {:thinking, "Hm"},
        {:text, "Let me look."},
        {:tool_call_started, 7, "a", "look"},
        {:tool_call_arguments, 7, ~s({"at":"it"})},
        {:tool_call_started, 8, "b", "look"},
        {:tool_call_arguments, 8, ~s({"at)},
        {:usage, %{input_tokens: 5, output_tokens: 3}},
        {:usage, %{input_tokens: :many}}
      ]

      assert {:ok, open, events} = Response.push(Response.new(nil, model: "m"), deltas)
      assert {open.state, open.provider} == {:open, nil}

      assert [
               {:thinking, 0, "Hm"},
               {:text, 1, "Let me look."},
               {:tool_call_started, 0, "look"},
               {:tool_call_arguments, 0, _},
               {:tool_call_started, 1, "look"},
               {:tool_call_arguments, 1, _},
               {:usage, %{input_tokens: 5, output_tokens: 3}}
             ] = events

      assert {:error, %{reason: :incomplete}} = Response.finish(open)
      call = %{id: "a", name: "look", arguments: %{"at" => "it"}}

      assert {:ok, response, [{:tool_call, ^call}, {:finish, :length}]} =
               Response.push(open, [{:finish, :length}])

      assert Response.message(response) == %{
               role: :assistant,
               content: [
                 %{type: :thinking, text: "Hm"},
                 %{type: :text, text: "Let me look."}
               ],
               tool_calls: [call],
               unfinished_tool_calls: [%{id: "b", name: "look", arguments: ~s({"at)}]
             }

      assert {:ok, ^response, []} = same(response, Response.push(response, [{:text, "late"}]))
    end

    # Each response has a handle of its own.
    defp same(response, {:ok, other, events}), do: {:ok, %{other | ref: response.ref}, events}
  end

  describe "new/2" do
    test "names wrong options" do
      assert_raise ArgumentError, ~r/:framing.*:sse/, fn ->
        Response.new(:gemini, framing: :xml)
      end

      assert_raise ArgumentError, ~r/unknown options \[:modl\]/, fn ->
        Response.new(:gemini, modl: "m")
      end

      assert_raise ArgumentError, fn -> Response.new(:other) end
    end
  end

  describe "finish/1" do
    test "is the last word of providers that have no other" do
      {response, _} = feed!(Response.new(:openai_chat), chat(%{"content" => "a"}, "length"))
      assert response.state == :open
      assert {:ok, %Response{state: :complete} = response, []} = Response.finish(response)

      assert {Response.finish_reason(response), Response.finish_word(response)} ==
               {:length, "length"}

      assert {:ok, ^response, []} = Response.finish(response) |> put_elem(1, response)
    end
  end

  describe "interrupt/2" do
    test "keeps what came, and no bytes after it" do
      {response, _} = feed!(Response.new(:openai_chat), chat(%{"content" => "half "}))
      response = Response.interrupt(response, {:timeout, 5})
      assert response.state == :interrupted
      assert {:error, %Response.Error{reason: :interrupted}} = Response.feed(response, "x")
      context = Context.add_response!(Context.new("?"), response)

      assert Context.to_messages(context) |> List.last() == %{
               role: :assistant,
               content: "half ",
               state: :interrupted
             }

      assert {:ok, %{response: told}} = Context.fetch_message(context, {1, 1})

      assert told == %{
               provider: :openai_chat,
               model: nil,
               id: nil,
               finish_reason: nil,
               finish_word: nil,
               state: :interrupted,
               reason: {:timeout, 5}
             }

      again = context |> Context.to_snapshot() |> Context.load!()
      assert Context.equal?(again, context)

      assert {:ok, copy} =
               context
               |> Context.to_map()
               |> Map.take([:iterations, :current_iteration])
               |> Context.create()

      assert Context.to_messages(copy) == Context.to_messages(context)
    end
  end

  describe "an answer in the background" do
    test "is queued, tells what to ask for, and is not added" do
      body = %{
        "object" => "response",
        "id" => "resp_1",
        "model" => "gpt-5",
        "status" => "queued",
        "output" => []
      }

      for status <- ["queued", "in_progress"] do
        {:ok, response} = Response.decode(:openai_responses, %{body | "status" => status})
        assert %{state: :queued} = response
        assert {Response.id(response), Response.model(response)} == {"resp_1", "gpt-5"}
        assert inspect(response) =~ "queued"
        context = Context.new("?")

        assert {:error, %Response.Error{reason: :queued, retryable?: false} = error} =
                 Context.add_response(context, response)

        assert Exception.message(error) =~ "AshAgent.Response.id/1"
      end

      done = [
        %{
          "type" => "message",
          "id" => "msg_1",
          "content" => [%{"type" => "output_text", "text" => "Hi"}]
        }
      ]

      {:ok, response} =
        Response.decode(:openai_responses, %{body | "status" => "completed", "output" => done})

      assert Response.text(response) == "Hi"
    end
  end

  describe "Context.add_response/3" do
    test "keeps the message, its tokens and where it came from" do
      body = %{
        "type" => "message",
        "id" => "msg_1",
        "model" => "claude-dated",
        "content" => [
          %{"type" => "thinking", "thinking" => "hm", "signature" => "c2ln"},
          %{"type" => "text", "text" => "I'll look"},
          %{
            "type" => "tool_use",
            "id" => "toolu_1",
            "name" => "look",
            "input" => %{"b" => 1, "a" => 2}
          }
        ],
        "stop_reason" => "tool_use",
        "usage" => %{"input_tokens" => 10, "output_tokens" => 5, "cache_read_input_tokens" => 2}
      }

      {:ok, response} = Response.decode(:anthropic, body, model: "claude-alias")
      {:ok, context} = Context.add_response(Context.new("?"), response, metadata: %{seen: true})

      assert [%{id: "toolu_1", name: "look", arguments: %{"a" => 2, "b" => 1}}] =
               Context.pending_tool_calls(context)

      assert Context.Tokens.get_cumulative_tokens(context).input_tokens == 12

      assert {:ok, %{metadata: %{seen: true}, response: told}} =
               Context.fetch_message(context, {1, 1})

      assert %{
               model: "claude-dated",
               id: "msg_1",
               finish_reason: :tool_calls,
               finish_word: "tool_use",
               state: :complete
             } = told

      context = Context.add_tool_results(context, [{"toolu_1", {:ok, "done"}}])

      {:ok, %{"messages" => [_, said, _]}} =
        Context.request(context, :anthropic, model: "claude-alias")

      assert said == %{"role" => "assistant", "content" => body["content"]}
      # Another model gets no thinking that is not its own.
      {:ok, %{"messages" => [_, said, _]}} = Context.request(context, :anthropic, model: "other")
      assert [%{"type" => "text"}, %{"type" => "tool_use"}] = said["content"]
    end

    test "keeps what else the provider says, which is stored and shown" do
      body =
        ~s({"type":"message","role":"assistant","content":[{"type":"text","text":"Hm"}],"stop_reason":"refusal",) <>
          ~s("stop_details":{"type":"refusal","category":"bio"},"container":{"id":"container_1","expires_at":"2026"}})

      assert {:ok, response} = Response.decode(:anthropic, body)

      assert %{"container" => %{"id" => "container_1"}, "stop_details" => %{"category" => "bio"}} =
               details = Response.details(response)

      assert {:ok, context} = "Hi" |> Context.new() |> Context.add_response(response)
      context = Context.load!(Context.dump(context))
      assert {:ok, %{response: %{details: ^details}}} = Context.fetch_message(context, {1, 1})
      assert AshAgent.Trace.to_html(context) =~ "container_1"

      assert %{"container" => "container_1", "messages" => _} =
               Context.request!(context, :anthropic)

      assert Response.details(Response.new(:gemini)) == nil
    end

    test "refuses what is open" do
      assert_raise Response.Error, ~r/not complete yet/, fn ->
        Context.add_response!(Context.new("?"), Response.new(:gemini))
      end
    end

    test "tells the model of a call that its limit cut off" do
      body = [
        call(%{"id" => "a", "function" => %{"name" => "f", "arguments" => ~s({"x": "ha)}}),
        chat(%{}, "length")
      ]

      {response, _} = read!(:openai_chat, body)
      context = Context.add_response!(Context.new("?"), response)
      assert Context.pending_tool_calls(context) == []

      assert %{content: [%{is_error: true, content: words}]} =
               Context.to_messages(context) |> List.last()

      assert words =~ "limit of tokens"
    end
  end

  describe "a handle" do
    test "shows counts only and is freed" do
      secret = "prompt of a user"
      {response, _} = feed!(Response.new(:openai_chat), chat(%{"content" => secret}))

      assert inspect(response) ==
               "#AshAgent.Response<openai_chat, open, #{Response.count_bytes(response)} bytes>"

      refute inspect(response) =~ secret

      {pid, ref} =
        spawn_monitor(fn ->
          Enum.reduce(
            1..1_000,
            Response.new(:openai_chat),
            &elem(feed!(&2, chat(%{"content" => "#{&1}"})), 0)
          )
        end)

      assert_receive {:DOWN, ^ref, :process, ^pid, :normal}, 5_000
      assert Native.live_responses() < 1_000
    end

    test "is refused where a context is expected" do
      response = Response.new(:gemini)
      assert_raise ArgumentError, fn -> Native.context_summary(response.ref) end
      assert_raise ArgumentError, fn -> Native.response_facts(Context.new("?").ref) end
    end

    test "can be fed from many processes" do
      {response, _} = feed!(Response.new(:openai_chat), chat(%{"content" => "a"}))

      texts =
        1..50
        |> Task.async_stream(fn n ->
          {response, _} = feed!(response, chat(%{"content" => "#{n}"}))
          Response.message(response).content
        end)
        |> Enum.map(fn {:ok, text} -> text end)

      assert texts == for(n <- 1..50, do: "a#{n}")
    end
  end

  describe "recorded streams" do
    test "break off anywhere and go on" do
      texts = "{anthropic,openai_chat,gemini,mistral}/*text*.chunks.txt"

      for path <- Path.wildcard(Path.join(@recorded, texts)) do
        provider = path |> Path.dirname() |> Path.basename() |> String.to_existing_atom()
        lines = path |> File.read!() |> String.split("\n", trim: true)
        body = for line <- lines, into: "", do: "data: #{line}\n\n"
        {whole, _} = read!(provider, [body])
        text = Response.message(whole).content

        for place <- 0..byte_size(body)//max(1, div(byte_size(body), 40)) do
          <<head::binary-size(place), tail::binary>> = body
          {response, events} = feed!(Response.new(provider), head)
          said = for {:text, _, text} <- events, into: "", do: text
          broken = Response.interrupt(response, :cut)
          context = Context.add_response!(Context.new("?"), broken)
          {:ok, %{content: content} = message} = Context.fetch_message(context, {1, 1})
          assert message[:state] == if(broken.state == :complete, do: nil, else: :interrupted)
          assert plain(content) == said
          next = Context.add_user_message(context, "go on")
          for provider <- @providers, do: assert({:ok, _} = Context.request(next, provider))

          if response.state != :complete do
            {response, _} = feed!(response, tail)
            {:ok, response, _} = Response.finish(response)
            assert Response.message(response).content == text
          end
        end
      end
    end
  end

  defp plain(nil), do: ""
  defp plain(text) when is_binary(text), do: text
  defp plain(parts), do: for(%{type: :text, text: text} <- parts, into: "", do: text)
end
