defmodule AshAgent.Context.ProviderFormsTest do
  @moduledoc "What providers really send and take, beyond texts and functions."

  use ExUnit.Case, async: true

  alias AshAgent.Context
  alias AshAgent.TestSupport.RequestChecker

  @png "iVBORw0KGgo="
  @jpeg "/9j/4AAQ"
  @wav "UklGRg=="

  defp judge(context, provider, opts \\ []) do
    body = Context.request!(context, provider, opts)
    found = RequestChecker.validate_request(body, provider, Keyword.take(opts, [:dialect]))
    assert RequestChecker.format(found) == ""
    body
  end

  # A body as JSON text.
  defp text(body), do: body |> Context.JSON.encode() |> IO.iodata_to_binary()

  defp changes(context, provider, opts \\ []),
    do: for(%{change: change} <- Context.request_report(context, provider, opts), do: change)

  defp messages(context, provider, opts \\ []), do: judge(context, provider, opts)["messages"]

  describe "reasoning in OpenAI's chat format" do
    defp reasoned(more \\ %{}) do
      call = %{
        "id" => "call_1",
        "type" => "function",
        "function" => %{"name" => "get", "arguments" => "{}"}
      }

      %{
        "messages" => [
          %{"role" => "user", "content" => "Hi"},
          Map.merge(
            %{
              "role" => "assistant",
              "content" => "",
              "reasoning_content" => "hm",
              "tool_calls" => [call]
            },
            more
          ),
          %{"role" => "tool", "tool_call_id" => "call_1", "content" => "72"},
          %{"role" => "assistant", "content" => "Warm.", "reasoning_content" => "so"}
        ]
      }
    end

    test "survives import, storage and attributes, beside an empty content too" do
      context = Context.Import.from_request!(reasoned(), :openai_chat)

      for context <- [
            context,
            Context.load!(Context.dump(context)),
            context |> Context.to_map() |> Context.create!()
          ] do
        assert %{content: [%{type: :thinking, text: "hm"}]} =
                 Enum.at(Context.to_messages(context), 1)

        assert [_, %{"reasoning_content" => "hm", "tool_calls" => [_]}, _, last] =
                 Context.request!(context, :openai_chat, dialect: :deepseek)["messages"]

        assert last == %{"role" => "assistant", "content" => "Warm.", "reasoning_content" => "so"}

        # Without calls it is not wanted.
        assert %{"messages" => messages} = Context.request!(context, :openai_chat, dialect: :vllm)

        assert List.last(messages) == %{"role" => "assistant", "content" => "Warm."}
      end

      # As it came, where nobody says otherwise.
      assert Context.request!(context, :openai_chat) == reasoned()
    end

    test "is not sent where it is refused, and the report says so" do
      context = Context.Import.from_request!(reasoned(), :openai_chat)
      body = judge(context, :openai_chat, dialect: :openai)
      refute inspect(body) =~ "reasoning"

      assert changes(context, :openai_chat, dialect: :openai) == [
               :dropped_thinking,
               :dropped_thinking
             ]
    end

    test "can be built, and is there in every message where a server misses it" do
      call = fn id -> %{id: id, name: "get"} end
      thought = %{type: :thinking, text: "hm", provider_metadata: %{provider: :openai_chat}}

      context =
        Context.new("Hi")
        |> Context.add_assistant_message([thought], [call.("a")])
        |> Context.add_tool_results([{"a", {:ok, 1}}])
        |> Context.add_assistant_message(
          [%{type: :thinking, text: "foreign", provider_metadata: %{provider: :anthropic}}],
          [call.("b")]
        )
        |> Context.add_tool_results([{"b", {:ok, 1}}])
        |> Context.add_assistant_message("Done.")

      assert [_, %{"reasoning_content" => "hm"}, _, %{"reasoning_content" => ""}, _, last] =
               judge(context, :openai_chat, dialect: :deepseek)["messages"]

      assert last == %{"role" => "assistant", "content" => "Done.", "reasoning_content" => ""}

      assert [_, %{"reasoning" => "hm"}, _, last, _, _] =
               judge(context, :openai_chat, dialect: :vllm)["messages"]

      refute Map.has_key?(last, "reasoning")
      refute inspect(judge(context, :openai_chat)) =~ "hm"
    end

    test "details go back as they came where they are known" do
      details = [
        %{
          "type" => "reasoning.encrypted",
          "data" => "e",
          "id" => "r_1",
          "format" => "anthropic-claude-v1",
          "index" => 0
        }
      ]

      body = reasoned(%{"reasoning_details" => details, "reasoning" => "hm"})
      context = Context.Import.from_request!(body, :openai_chat)
      masked = Context.View.put_masks(context, [{"nothing", ""}])

      for context <- [context, masked] do
        assert [_, %{"reasoning_details" => ^details}, _, _] =
                 Context.request!(context, :openai_chat, dialect: :openrouter)["messages"]
      end

      refute inspect(
               Context.View.put_masks(context, [{"claude", "x"}])
               |> Context.request!(:openai_chat, dialect: :openrouter)
             ) =~ "claude"
    end

    test "a dialect is that of its format alone" do
      context = Context.new("Hi")

      for {provider, dialect, words} <- [
            {:anthropic, :openai, "must be one of [:deepseek] for :anthropic"},
            {:gemini, :deepseek, "is for :openai_chat and :anthropic; leave it out for :gemini"}
          ] do
        error =
          assert_raise ArgumentError, fn ->
            Context.request(context, provider, dialect: dialect)
          end

        assert Exception.message(error) =~ words
      end

      assert_raise ArgumentError, fn ->
        Context.request(context, :openai_chat, dialect: "deepseek")
      end
    end

    test "an id that is renamed is renamed in the result too" do
      body =
        put_in(
          reasoned(),
          ["messages", Access.at(1), "tool_calls", Access.at(0), "id"],
          String.duplicate("i", 60)
        )

      body = put_in(body, ["messages", Access.at(2), "tool_call_id"], String.duplicate("i", 60))
      context = Context.Import.from_request!(body, :openai_chat)

      assert RequestChecker.validate_request(
               Context.request!(context, :openai_chat, dialect: :openai),
               :openai_chat,
               max_id_length: 64
             ) == []
    end
  end

  describe "media types" do
    test "are read as providers name them" do
      for type <- ["image/jpg", "IMAGE/JPEG", "image/jpeg; q=1", " image/pjpeg"] do
        part = %{type: :image, media_type: type, data: @jpeg}
        context = Context.new([part])
        assert [%{content: [^part]}] = Context.to_messages(context)

        for provider <- RequestChecker.providers() do
          assert inspect(judge(context, provider)) =~ @jpeg
          assert changes(context, provider) == []
        end
      end
    end

    test "what a provider does not take becomes its text or a note, and is reported by all" do
      text = Base.encode64("<svg>fox</svg>")

      for {type, data, shown} <- [
            {"application/vnd.ms-powerpoint", "AAAA", "not sent"},
            {"application/zip", "AAAA", "not sent"},
            {"image/tiff", "AAAA", "not sent"},
            {"image/bmp", "AAAA", "not sent"},
            {"image/svg+xml", text, "<svg>fox</svg>"},
            {"application/json", Base.encode64("{\"a\":1}"), "{\\\"a\\\":1}"}
          ],
          kind <- [:image, :file],
          provider <- RequestChecker.providers() do
        context = Context.new([%{type: kind, media_type: type, data: data}])
        sent = inspect(judge(context, provider), printable_limit: :infinity)

        assert sent =~ shown or sent =~ String.replace(shown, "\\\"", "\\\\\""),
               "#{type} for #{provider}: #{sent}"

        refute sent =~ data
        assert changes(context, provider) == [:part_to_text]
      end
    end

    test "Gemini gets no image that it does not take, neither as data nor by its address" do
      for part <- [
            %{type: :image, media_type: "image/gif", data: "R0lGODlhAQABAAAAACw="},
            %{type: :image, url: "https://example.com/a.gif"},
            %{type: :image, media_type: "image/svg+xml", url: "https://example.com/a"},
            %{type: :file, media_type: "image/svg+xml", url: "https://example.com/a"}
          ] do
        context = Context.new([part])
        assert [%{"parts" => [%{"text" => words}]}] = judge(context, :gemini)["contents"]
        assert words =~ ~r/image/
        assert changes(context, :gemini) == [:part_to_text]
      end

      text = %{type: :file, media_type: "text/plain", url: "https://example.com/a.txt"}
      assert inspect(judge(Context.new([text]), :gemini)) =~ "fileData"
    end
  end

  describe "Mistral" do
    test "a call is never the first after the system prompt" do
      call = %{"id" => "aaaaaaaaa", "function" => %{"name" => "get", "arguments" => "{}"}}

      body = %{
        "messages" => [
          %{"role" => "system", "content" => "Be brief."},
          %{"role" => "assistant", "tool_calls" => [call]},
          %{"role" => "tool", "tool_call_id" => "aaaaaaaaa", "name" => "get", "content" => "1"}
        ]
      }

      imported = Context.Import.from_request!(body, :mistral)

      built =
        Context.create!(%{
          iterations: [
            %{
              messages: [%{role: :assistant, content: nil, tool_calls: [%{id: "a", name: "get"}]}]
            }
          ]
        })
        |> Context.interrupt()

      for context <- [imported, built] do
        roles = for %{"role" => role} <- messages(context, :mistral), role != "system", do: role
        assert roles == ["user", "assistant", "tool"]
      end
    end

    test "a text may be first, and a prefix stays last" do
      prefix = %{"role" => "assistant", "content" => "Once upon", "prefix" => true}

      body = %{
        "messages" => [
          %{"role" => "assistant", "content" => "Hello!"},
          %{"role" => "user", "content" => "Hi"},
          prefix
        ]
      }

      context = Context.Import.from_request!(body, :mistral)
      assert judge(context, :mistral) == body

      later = Context.add_user_message(context, "Go on")

      assert [_, _, %{"content" => "Once upon"} = said, %{"role" => "user"}] =
               messages(later, :mistral)

      refute Map.has_key?(said, "prefix")
    end

    test "a prefix of DeepSeek or Moonshot is one only at the end" do
      for key <- ["prefix", "partial"], dialect <- [nil, :deepseek] do
        begun = %{"role" => "assistant", "content" => "Once upon", key => true}
        body = %{"messages" => [%{"role" => "user", "content" => "Hi"}, begun]}
        context = Context.Import.from_request!(body, :openai_chat)
        assert Context.request!(context, :openai_chat, dialect: dialect) == body

        for later <- [
              Context.add_user_message(context, "Go on"),
              Context.add_assistant_message(context, " a time")
            ] do
          body = judge(later, :openai_chat, dialect: dialect)
          assert [_, %{"role" => "assistant", "content" => "Once upon"}, _] = body["messages"]
          refute inspect(body) =~ key
        end
      end
    end
  end

  describe "what vanishes" do
    test "a message of nothing but foreign thinking is reported" do
      for provider <- RequestChecker.providers(),
          own <- RequestChecker.providers(),
          text <- ["hm", ""] do
        thought = %{
          type: :thinking,
          text: text,
          provider_metadata: %{provider: own, signature: "c2ln"}
        }

        context =
          Context.new("Hi")
          |> Context.add_assistant_message([thought])
          |> Context.add_user_message("And?")

        unless inspect(Context.request!(context, provider)) =~ "c2ln",
          do: assert(changes(context, provider) != [], "#{own} for #{provider}")
      end
    end

    test "what streams leave in chat messages does not go back" do
      call = %{
        "index" => 0,
        "id" => "call_1",
        "type" => "function",
        "function" => %{"name" => "get", "arguments" => "{}", "parsed_arguments" => %{}}
      }

      body = %{
        "messages" => [
          %{"role" => "user", "content" => "Hi"},
          %{
            "role" => "assistant",
            "content" => nil,
            "tool_calls" => [call],
            "finish_reason" => "tool_calls"
          },
          %{"role" => "tool", "tool_call_id" => "call_1", "content" => "1"}
        ]
      }

      for body <- [body, text(body)] do
        assert {:ok, context, %{repairs: []}} = Context.Import.from_request(body, :openai_chat)
        assert [_, assistant, _] = messages(context, :openai_chat)
        assert Map.keys(assistant) == ["content", "role", "tool_calls"]
      end
    end
  end

  describe "what is not understood" do
    @unknown [
      anthropic:
        {"messages",
         [
           %{
             "role" => "system",
             "content" => [
               %{
                 "type" => "tool_addition",
                 "tool" => %{"type" => "tool_reference", "name" => "get"}
               },
               %{"type" => "text", "text" => "New tools."}
             ]
           }
         ], "New tools."},
      anthropic:
        {"messages", [%{"role" => "narrator", "content" => "Night falls."}], "Night falls."},
      openai_chat:
        {"messages", [%{"role" => "narrator", "content" => "Night falls."}], "Night falls."},
      mistral:
        {"messages", [%{"role" => "narrator", "content" => "Night falls."}], "Night falls."},
      ollama:
        {"messages", [%{"role" => "narrator", "content" => "Night falls."}], "Night falls."},
      openai_responses:
        {"input",
         [
           %{
             "role" => "narrator",
             "content" => [%{"type" => "input_text", "text" => "Night falls."}]
           }
         ], "Night falls."},
      openai_responses:
        {"input", [%{"type" => "telepathy", "id" => "tp_1", "text" => "Night falls."}],
         "Night falls."},
      gemini:
        {"contents", [%{"role" => "narrator", "parts" => [%{"text" => "Night falls."}]}],
         "Night falls."},
      gemini:
        {"contents",
         [%{"role" => "user", "parts" => [%{"smell" => %{"text" => "Night falls."}}]}], nil},
      bedrock:
        {"messages", [%{"role" => "narrator", "content" => [%{"text" => "Night falls."}]}],
         "Night falls."}
    ]

    test "goes back to its own provider, and others get its words" do
      for {provider, {list, elements, words}} <- @unknown do
        user =
          case list do
            "contents" -> %{"role" => "user", "parts" => [%{"text" => "Hi"}]}
            _ when provider == :bedrock -> %{"role" => "user", "content" => [%{"text" => "Hi"}]}
            _ -> %{"role" => "user", "content" => "Hi"}
          end

        body = %{list => [user | elements]}
        assert {:ok, context, %{repairs: []}} = Context.Import.from_request(body, provider)
        # Bedrock knows no other roles: neighbours of the user's are one message there.
        if provider != :bedrock, do: assert(Context.request!(context, provider) == body)
        assert {:ok, again, _} = Context.Import.from_request(text(body), provider)
        assert Context.request!(again, provider) == Context.request!(context, provider)
        masked = Context.View.put_masks(context, [{"nowhere", ""}])

        if provider in [:anthropic, :openai_chat, :mistral, :openai_responses, :ollama],
          do: assert(Context.request!(masked, provider)[list] |> Enum.take(2) == body[list])

        for other <- RequestChecker.providers() -- [provider] do
          sent = inspect(judge(context, other))
          if words, do: assert(sent =~ words, "#{provider} for #{other}: #{sent}")
        end
      end
    end

    test "a call of a new type waits for its answer" do
      call = %{"id" => "call_1", "type" => "telepathy", "telepathy" => %{"thought" => "hm"}}

      body = %{
        "messages" => [
          %{"role" => "user", "content" => "Hi"},
          %{"role" => "assistant", "tool_calls" => [call]}
        ]
      }

      context = Context.Import.from_request!(body, :openai_chat)
      assert [%{id: "call_1", name: "telepathy"}] = Context.pending_tool_calls(context)
    end

    test "the order of keys survives import from text" do
      elements =
        ~s({"role":"user","content":[{"type":"text","text":"z\\"a"},{"zeta":1,"type":"x","alpha":{"b":1,"a":[ 2 ]}}]})

      text =
        ~s({"model":"m", "messages" : [ #{elements} ],\n "system":[{"type":"text","text":"Be  brief."}]})

      context = Context.Import.from_request!(text, :anthropic)
      sent = context |> Context.encode_request!(:anthropic) |> IO.iodata_to_binary()
      assert sent =~ String.replace(elements, "[ 2 ]", "[2]")
      assert sent =~ ~s("system":[{"type":"text","text":"Be  brief."}])
      # Who reads a key twice reads one thing or the other.
      doubled = ~s({"messages":[{"role":"user","content":"a","content":"b"}]})

      assert doubled
             |> Context.Import.from_request!(:anthropic)
             |> Context.encode_request!(:anthropic)
             |> IO.iodata_to_binary() =~ ~s("content":"b")
    end
  end

  describe "text inside of blocks" do
    test "is text for other providers" do
      blocks = [
        bedrock:
          {:assistant,
           %{
             "citationsContent" => %{
               "content" => [%{"text" => "cited"}],
               "citations" => [%{"title" => "t", "sourceContent" => [%{"text" => "no"}]}]
             }
           }, "cited"},
        bedrock:
          {:user,
           %{"guardContent" => %{"text" => %{"text" => "guarded", "qualifiers" => ["query"]}}},
           "guarded"},
        bedrock:
          {:user,
           %{
             "document" => %{"format" => "txt", "name" => "n", "source" => %{"text" => "inside"}}
           }, "inside"},
        anthropic:
          {:user,
           %{
             "type" => "document",
             "source" => %{"type" => "text", "media_type" => "text/plain", "data" => "inside"}
           }, "inside"},
        anthropic:
          {:user,
           %{
             "type" => "document",
             "source" => %{
               "type" => "content",
               "content" => [%{"type" => "text", "text" => "inside"}]
             }
           }, "inside"}
      ]

      for {own, {role, block, words}} <- blocks,
          provider <- RequestChecker.providers() -- [own] do
        part = %{type: :provider_block, provider: own, data: block}

        context =
          case role do
            :user -> Context.new([part])
            :assistant -> Context.new("Hi") |> Context.add_assistant_message([part])
          end

        assert inspect(judge(context, provider)) =~ words
        refute inspect(judge(context, provider)) =~ "\"no\""
        assert changes(context, provider) -- [:added_message] == [:part_to_text]
      end
    end
  end

  describe "what a provider wants to see again" do
    @signed %{"google" => %{"thought_signature" => "c2ln"}}
    @call %{
      "id" => "call_1",
      "type" => "function",
      "function" => %{"name" => "now", "arguments" => "{}"},
      "extra_content" => @signed
    }

    # A chat server's answer as it comes back, whole and as a stream.
    defp called(opts) do
      message = %{"role" => "assistant", "content" => nil, "tool_calls" => [@call]}
      whole = %{"choices" => [%{"message" => message, "finish_reason" => "tool_calls"}]}
      {:ok, whole} = AshAgent.Response.decode(:openai_chat, whole, opts)

      chunk = %{"choices" => [%{"delta" => message, "finish_reason" => "tool_calls"}]}
      bytes = "data: #{text(chunk)}\n\ndata: [DONE]\n\n"

      {:ok, streamed, _} =
        AshAgent.Response.feed(AshAgent.Response.new(:openai_chat, opts), bytes)

      for response <- [whole, streamed] do
        {:ok, context} = "Hi" |> Context.new() |> Context.add_response(response)
        Context.add_tool_results(context, [{"call_1", {:ok, "10:00"}}])
      end
    end

    test "stands on the calls of the chat server that signed them" do
      for context <- called(model: "gemini-3") do
        stored = Context.load!(Context.dump(context))

        for context <- [context, stored], opts <- [[], [model: "gemini-3"]] do
          [_, %{"tool_calls" => [call]}, _] =
            Context.request!(context, :openai_chat, opts)["messages"]

          assert call == @call
        end

        for {provider, opts} <- [openai_chat: [model: "gpt-6"], mistral: [], anthropic: []],
            do: refute(text(Context.request!(context, provider, opts)) =~ "extra_content")
      end
    end
  end

  describe "built parts" do
    test "recordings and films go to who takes them, and become a note elsewhere" do
      audio = %{type: :audio, media_type: "audio/wav", data: @wav}
      video = %{type: :video, media_type: "video/mp4", url: "s3://bucket-a/film.mp4"}
      context = Context.new([audio, video, %{type: :text, text: "Look"}])
      assert Context.equal?(Context.load!(Context.dump(context)), context)
      assert [%{content: [^audio, ^video, _]}] = Context.to_messages(context)

      assert [
               %{
                 "content" => [
                   %{"input_audio" => %{"format" => "wav", "data" => @wav}},
                   %{"text" => note},
                   _
                 ]
               }
             ] = messages(context, :openai_chat)

      assert note == "(video: s3://bucket-a/film.mp4)"

      assert [%{"parts" => [%{"inlineData" => %{"mimeType" => "audio/wav"}} | _]}] =
               judge(context, :gemini)["contents"]

      assert [
               %{
                 "content" => [
                   %{"audio" => %{"format" => "wav", "source" => %{"bytes" => @wav}}},
                   %{
                     "video" => %{
                       "format" => "mp4",
                       "source" => %{"s3Location" => %{"uri" => "s3://bucket-a/film.mp4"}}
                     }
                   },
                   _
                 ]
               }
             ] = messages(context, :bedrock)

      assert [%{"content" => [%{"type" => "input_audio", "input_audio" => @wav} | _]}] =
               messages(context, :mistral)

      for provider <- [:anthropic, :openai_responses, :ollama],
          do:
            assert(
              changes(context, provider) == [:part_to_text, :part_to_text] and
                judge(context, provider)
            )
    end

    test "a chat request's recording is one for every provider, and goes back as it was" do
      for {format, type} <- [{"wav", "audio/wav"}, {"mp3", "audio/mpeg"}] do
        recording = %{
          "type" => "input_audio",
          "input_audio" => %{"data" => @wav, "format" => format}
        }

        body = %{"messages" => [%{"role" => "user", "content" => [recording]}]}
        context = Context.Import.from_request!(body, :openai_chat)
        assert [%{content: [%{type: :audio, media_type: ^type}]}] = Context.to_messages(context)
        assert Context.request!(context, :openai_chat) == body

        built = Context.new([%{type: :audio, media_type: type, data: @wav}])
        assert Context.request!(built, :openai_chat) == body
        assert Context.request!(context, :gemini) == Context.request!(built, :gemini)
      end

      # What has no media type stays the provider's own.
      other = %{"type" => "input_audio", "input_audio" => %{"data" => @wav, "format" => "opus"}}
      body = %{"messages" => [%{"role" => "user", "content" => [other]}]}
      context = Context.Import.from_request!(body, :openai_chat)
      assert [%{content: [%{type: :provider_block}]}] = Context.to_messages(context)
      assert Context.request!(context, :openai_chat) == body
    end

    test "files in a provider's store go to that provider" do
      own = [
        anthropic: "file_1",
        openai_chat: "file-1",
        openai_responses: "file-1",
        gemini: "files/f1",
        mistral: "f1"
      ]

      for {provider, id} <- own, kind <- [:file, :image] do
        part = %{type: kind, file_id: id, provider: provider, media_type: "image/png"}
        context = Context.new([part])
        assert [%{content: [^part]}] = Context.to_messages(context)
        sent = inspect(judge(context, provider))

        if kind == :image and provider == :openai_chat,
          do: assert(changes(context, provider) == [:part_to_text]),
          else: assert(sent =~ Path.basename(id) and changes(context, provider) == [])

        for other <- RequestChecker.providers() -- [provider] do
          assert changes(context, other) == [:part_to_text]
          assert inspect(judge(context, other)) =~ "not sent"
        end
      end

      assert_raise Context.Error, fn -> Context.new([%{type: :file, file_id: "f"}]) end

      assert_raise Context.Error, fn ->
        Context.new([
          %{type: :file, file_id: "f", provider: :anthropic, data: "AAAA", media_type: "a/b"}
        ])
      end
    end

    test "file ids are read back" do
      for {provider, part} <- [
            anthropic: %{
              "type" => "document",
              "source" => %{"type" => "file", "file_id" => "file_1"}
            },
            openai_chat: %{"type" => "file", "file" => %{"file_id" => "file_1"}},
            openai_responses: %{"type" => "input_file", "file_id" => "file_1"},
            mistral: %{"type" => "file", "file_id" => "file_1"}
          ] do
        list = if provider == :openai_responses, do: "input", else: "messages"
        body = %{list => [%{"role" => "user", "content" => [part]}]}
        context = Context.Import.from_request!(body, provider)

        assert [%{content: [%{type: :file, file_id: "file_1", provider: ^provider}]}] =
                 Context.to_messages(context)

        assert Context.View.put_masks(context, [{"nowhere", ""}]) |> Context.request!(provider) ==
                 body
      end
    end

    test "a detail, citations and cache breakpoints are asked for" do
      image = %{type: :image, media_type: "image/png", data: @png, detail: "low", cache: true}

      file = %{
        type: :file,
        media_type: "application/pdf",
        data: "AAAA",
        citations: true,
        cache: [ttl: "1h"]
      }

      text = %{type: :text, text: "Look", cache: [ttl: "5m"]}

      context =
        Context.new([image, file, text],
          system_prompt: [%{type: :text, text: "Be brief.", cache: true}]
        )

      assert [%{content: [%{cache: true}]}, %{content: [^image, ^file, ^text]}] =
               Context.to_messages(context)

      assert Context.equal?(Context.load!(Context.dump(context)), context)

      assert %{
               "system" => [%{"cache_control" => %{"ttl" => "1h"}}],
               "messages" => [%{"content" => [one, two, three]}]
             } = judge(context, :anthropic)

      assert one["cache_control"] == %{"type" => "ephemeral", "ttl" => "1h"}
      assert %{"cache_control" => %{"ttl" => "1h"}, "citations" => %{"enabled" => true}} = two
      assert three["cache_control"] == %{"type" => "ephemeral", "ttl" => "5m"}

      assert [
               %{
                 "content" => [
                   _,
                   %{"cachePoint" => _},
                   %{"document" => %{"citations" => %{"enabled" => true}}},
                   %{"cachePoint" => %{"ttl" => "1h"}},
                   _,
                   %{"cachePoint" => %{"ttl" => "5m"}}
                 ]
               }
             ] = messages(context, :bedrock)

      assert [_, %{"content" => [%{"image_url" => %{"detail" => "low"}} = chat, _, _]}] =
               messages(context, :openai_chat)

      refute Map.has_key?(chat, "prompt_cache_breakpoint")

      assert [_, %{"content" => [%{"prompt_cache_breakpoint" => %{"mode" => "explicit"}}, _, _]}] =
               messages(context, :openai_chat, model: "gpt-5.6-mini")

      assert [%{"content" => [%{"detail" => "low"}, _, _]}] =
               judge(context, :openai_responses)["input"]

      for provider <- RequestChecker.providers(),
          cache <- [:auto, false],
          provider in [:anthropic, :bedrock] or cache == false,
          do: judge(context, provider, cache: cache)
    end

    test "there are four breakpoints at most, the newest ones" do
      parts = for n <- 1..6, do: %{type: :text, text: "#{n}", cache: true}

      context =
        Context.new(parts)
        |> Context.add_assistant_message("ok")
        |> Context.add_user_message([%{type: :text, text: "7", cache: true}])

      marked =
        for %{"content" => [_ | _] = blocks} <- messages(context, :anthropic, cache: :auto),
            %{"cache_control" => _, "text" => text} <- blocks,
            do: text

      assert marked == ["4", "5", "6", "7"]
    end

    test "a breakpoint inside of a result is the result's" do
      context =
        Context.new("Hi")
        |> Context.add_assistant_message(nil, [%{id: "a", name: "get"}])
        |> Context.add_tool_results([{"a", {:ok, [%{type: :text, text: "1", cache: true}]}}])

      assert [_, _, %{"content" => [%{"type" => "tool_result", "cache_control" => _}]}] =
               messages(context, :anthropic)

      assert [_, _, %{"content" => [%{"toolResult" => _}, %{"cachePoint" => _}]}] =
               messages(context, :bedrock)
    end

    test "what says nothing is refused" do
      for part <- [
            %{type: :text, text: "a", cache: "1h"},
            %{type: :text, text: "a", cache: [ttl: "2h"]},
            %{type: :text, text: "a", detail: "low"},
            %{type: :image, media_type: "image/png", data: @png, detail: "huge"},
            %{type: :image, media_type: "image/png", data: @png, citations: true},
            %{type: :audio, data: @wav}
          ] do
        assert_raise Context.Error, fn -> Context.new([part]) end
      end
    end

    test "who called, and what a text cites, go back to their provider" do
      call = %{
        id: "toolu_1",
        name: "get",
        provider_metadata: %{provider: :anthropic, caller: %{type: "direct"}}
      }

      citation = %{
        "type" => "char_location",
        "cited_text" => "fox",
        "document_index" => 0,
        "start_char_index" => 0,
        "end_char_index" => 3
      }

      text = %{
        type: :text,
        text: "It says",
        provider_metadata: %{provider: :anthropic, citations: [citation]}
      }

      context =
        Context.new("Hi")
        |> Context.add_assistant_message([text], [call])
        |> Context.add_tool_results([{"toolu_1", {:ok, 1}}])

      assert [
               _,
               %{
                 "content" => [
                   %{"citations" => [^citation]},
                   %{"caller" => %{"type" => "direct"}}
                 ]
               },
               _
             ] = messages(context, :anthropic)

      refute inspect(judge(context, :bedrock)) =~ "fox"
      refute inspect(judge(Context.View.put_masks(context, [{"fox", "x"}]), :anthropic)) =~ "fox"
      body = judge(context, :anthropic)

      assert body
             |> Context.Import.from_request!(:anthropic)
             |> Context.View.put_masks([{"nowhere", ""}])
             |> Context.request!(:anthropic) == body
    end
  end
end
