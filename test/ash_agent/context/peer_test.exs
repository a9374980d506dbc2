defmodule AshAgent.Context.PeerTest do
  # Structs of other libraries are made here and taken away again, so that nothing else may run beside this.
  use ExUnit.Case, async: false

  @moduletag :slow

  import AshAgent.TestSupport.Generators,
    only: [between: 2, chance: 1, check_all: 3, list_of: 2, many: 2, one_of: 1]

  alias AshAgent.Context

  # The fields and defaults of ReqLLM 1.27, LangChain 0.9.7 and Jido AI 2.3.
  @structs [
    {ReqLLM.Context, [messages: [], tools: []]},
    {ReqLLM.Message,
     [:role, :name, :tool_call_id, :tool_calls, :reasoning_details, content: [], metadata: %{}]},
    {ReqLLM.Message.ContentPart,
     [:type, :text, :url, :data, :file_id, :media_type, :filename, metadata: %{}]},
    {ReqLLM.Message.ReasoningDetails,
     [:text, :signature, :provider, :format, encrypted?: false, index: 0, provider_data: %{}]},
    {ReqLLM.ToolCall, [:id, :function, type: "function"]},
    {LangChain.Message,
     [
       :content,
       :processed_content,
       :index,
       :name,
       :tool_calls,
       :tool_results,
       :metadata,
       role: :user,
       status: :complete
     ]},
    {LangChain.Message.ContentPart, [:content, type: :text, options: [], citations: []]},
    {LangChain.Message.ToolCall,
     [
       :call_id,
       :name,
       :arguments,
       :index,
       :display_text,
       :metadata,
       status: :incomplete,
       type: :function
     ]},
    {LangChain.Message.ToolResult,
     [
       :tool_call_id,
       :name,
       :content,
       :processed_content,
       :display_text,
       :interrupt_data,
       :options
     ] ++
       [type: :function, is_error: false, is_interrupt: false]},
    {Jido.AI.Context, [:id, :system_prompt, entries: []]},
    {Jido.AI.Context.Entry,
     [
       :role,
       :content,
       :thinking,
       :reasoning_details,
       :tool_calls,
       :tool_call_id,
       :name,
       :timestamp,
       :refs
     ]}
  ]

  defp load_structs do
    for {module, fields} <- @structs,
        do: Module.create(module, quote(do: defstruct(unquote(Macro.escape(fields)))), __ENV__)

    on_exit(fn ->
      for {module, _fields} <- @structs do
        :code.purge(module)
        :code.delete(module)
        :code.purge(module)
      end
    end)
  end

  # As a struct where it is loaded, and as a map with all fields where not.
  defp make(module, fields) do
    {_, all} = List.keyfind(@structs, module, 0)
    defaults = Map.new(all, &if(is_atom(&1), do: {&1, nil}, else: &1))
    fields = Map.merge(defaults, Map.new(fields))
    if Code.ensure_loaded?(module), do: struct(module, fields), else: fields
  end

  ## Messages of the libraries, as their own tests make them

  defp req(role, content, fields \\ []) do
    parts = if is_binary(content), do: [text(content)], else: content
    make(ReqLLM.Message, [role: role, content: parts] ++ fields)
  end

  defp part(type, fields), do: make(ReqLLM.Message.ContentPart, [type: type] ++ fields)
  defp text(text, fields \\ []), do: part(:text, [text: text] ++ fields)

  defp req_call(id, name, json, more \\ %{}),
    do: make(ReqLLM.ToolCall, id: id, function: Map.merge(%{name: name, arguments: json}, more))

  defp details(fields), do: make(ReqLLM.Message.ReasoningDetails, fields)

  defp req_llm do
    make(ReqLLM.Context,
      messages: [
        req(:system, "You are helpful."),
        req(:user, [
          text("What is this?", metadata: %{cache_control: %{type: "ephemeral"}}),
          part(:image_url, url: "https://a.b/c.png", metadata: %{detail: "low"}),
          part(:image, data: <<137, 80, 78, 71>>, media_type: "image/png"),
          part(:file, data: "PDF", media_type: "application/pdf", filename: "a.pdf"),
          part(:video_url, url: "https://a.b/c.mp4"),
          part(:file, file_id: "file_1", metadata: %{provider: :anthropic})
        ]),
        req(
          :assistant,
          [part(:thinking, text: "Hm", metadata: %{signature: "s"}), text("Let me look.")],
          tool_calls: [req_call("a", "look", ~s({"at": "it"})), req_call("b", "time", "{}")],
          metadata: %{response_id: "r1"}
        ),
        req(:tool, "A cat", tool_call_id: "a", name: "look"),
        req(:tool, [], tool_call_id: "b", metadata: %{tool_output: %{"now" => 7}}),
        req(:assistant, "A cat, at seven.",
          reasoning_details: [
            details(
              text: "It is",
              signature: "sig",
              provider: :anthropic,
              format: "anthropic-thinking-v1",
              provider_data: %{"type" => "thinking"}
            ),
            details(signature: "enc", encrypted?: true, provider: :openai, index: 1)
          ]
        ),
        req(:user, "Search.", name: "ann"),
        req(
          :assistant,
          [
            part(:provider_block,
              data: %{"type" => "web_search"},
              metadata: %{provider: :anthropic, block_type: "x"}
            )
          ],
          tool_calls: [req_call("srv", "web_search", "{}", %{builtin?: true})]
        ),
        req(:assistant, "Over.", tool_calls: [])
      ]
    )
  end

  defp chain(role, content, fields \\ []) do
    parts = if is_binary(content), do: [chain_part(:text, content)], else: content
    make(LangChain.Message, [role: role, content: parts, tool_calls: []] ++ fields)
  end

  defp chain_part(type, content, fields \\ []),
    do: make(LangChain.Message.ContentPart, [type: type, content: content] ++ fields)

  defp chain_call(id, name, fields \\ []) do
    given = [call_id: id, name: name, status: :complete, arguments: %{"x" => 1}]
    make(LangChain.Message.ToolCall, Keyword.merge(given, fields))
  end

  defp chain_result(id, name, fields \\ []) do
    given = [tool_call_id: id, name: name, content: [chain_part(:text, "done")]]
    make(LangChain.Message.ToolResult, Keyword.merge(given, fields))
  end

  defp langchain do
    [
      chain(:system, "You are helpful."),
      chain(:user, [
        chain_part(:text, "Look", options: [cache_control: true]),
        chain_part(:image, "aGk=", options: [media: :png, detail: "low"]),
        chain_part(:image_url, "https://a.b/c.jpg"),
        chain_part(:file, "JVBE", options: [media: :pdf, filename: "a.pdf"])
      ]),
      chain(
        :assistant,
        [chain_part(:thinking, "Hm", options: [signature: "s"]), chain_part(:text, "I will")],
        tool_calls: [
          chain_call("a", "look"),
          chain_call("b", "save", index: 1, display_text: "Saving")
        ],
        metadata: %{usage: %{input: 3}}
      ),
      chain(:tool, nil,
        tool_results: [
          chain_result("a", "look", processed_content: {:raw, 1}),
          chain_result("b", "save", content: "no", is_error: true, display_text: "Failed")
        ]
      ),
      chain(:assistant, nil, tool_calls: [chain_call("c", "look")]),
      chain(:tool, nil, tool_results: [chain_result("c", "look")]),
      chain(:assistant, "It is cut",
        status: :length,
        tool_calls: [chain_call("d", "cut", status: :incomplete, arguments: ~s({"x))]
      ),
      chain(:user, "Thanks", name: "ann"),
      chain(:assistant, [
        chain_part(:text, "Welcome"),
        chain_part(:unsupported, nil, options: [raw: 1])
      ])
    ]
  end

  defp entry(role, content, fields \\ []) do
    given = [role: role, content: content, timestamp: ~U[2026-01-01 10:00:00.000000Z]]
    make(Jido.AI.Context.Entry, Keyword.merge(given, fields))
  end

  defp jido(prompt \\ "You are helpful.") do
    entries = [
      entry(:user, "Hello", refs: %{signal: "s1"}),
      entry(:user, [text("And this"), part(:image_url, url: "https://a.b/c.png")]),
      entry(:assistant, nil, tool_calls: [%{id: "a", name: "look", arguments: %{"x" => 1}}]),
      entry(:tool, "seen", tool_call_id: "a", name: "look"),
      entry(:assistant, "Yes",
        thinking: "It is so",
        reasoning_details: [%{provider: :openai, index: 3}]
      ),
      entry(:system, "Switch to French."),
      entry(:user, "Bien"),
      entry(:assistant, "Merci", tool_calls: [], timestamp: nil)
    ]

    make(Jido.AI.Context, id: "j1", system_prompt: prompt, entries: Enum.reverse(entries))
  end

  for loaded? <- [true, false] do
    describe "with the libraries #{if loaded?, do: "loaded", else: "away"}" do
      if loaded? do
        setup do
          load_structs()
          :ok
        end
      end

      test "a conversation comes back as it was" do
        assert {:ok, context, %{repairs: []}} = Context.ReqLLM.from_req_llm(req_llm())
        assert Context.ReqLLM.to_req_llm(context) == req_llm()
        assert {:ok, context, %{repairs: []}} = Context.LangChain.from_langchain(langchain())
        assert Context.LangChain.to_langchain(context) == langchain()

        for prompt <- ["You are helpful.", nil] do
          assert {:ok, context, %{repairs: []}} = Context.Jido.from_jido(jido(prompt))
          assert Context.Jido.to_jido(context) == jido(prompt)
          assert context[:id] == "j1"
        end
      end

      test "also after it was stored" do
        for {from, to, conversation} <- [
              {&Context.ReqLLM.from_req_llm/1, &Context.ReqLLM.to_req_llm/1, req_llm()},
              {&Context.LangChain.from_langchain/1, &Context.LangChain.to_langchain/1,
               langchain()},
              {&Context.Jido.from_jido/1, &Context.Jido.to_jido/1, jido()}
            ] do
          {:ok, context, _report} = from.(conversation)

          assert context |> Context.to_snapshot() |> Context.load!() |> to.() ==
                   conversation
        end
      end

      test "whatever they hold, valid conversations come back" do
        check_all("conversations of other libraries", [runs: 150], fn size ->
          turns = many(between(1, size), &turn/0)

          for {from, to, conversation} <- [
                {&Context.ReqLLM.from_req_llm/1, &Context.ReqLLM.to_req_llm/1,
                 make(ReqLLM.Context, messages: Enum.flat_map(turns, &req_turn/1))},
                {&Context.LangChain.from_langchain/1, &Context.LangChain.to_langchain/1,
                 Enum.flat_map(turns, &chain_turn/1)},
                {&Context.Jido.from_jido/1, &Context.Jido.to_jido/1,
                 make(Jido.AI.Context,
                   id: "j",
                   entries: turns |> Enum.flat_map(&jido_turn/1) |> Enum.reverse()
                 )}
              ] do
            assert {:ok, context, %{repairs: []}} = from.(conversation)
            assert to.(context) == conversation
          end
        end)
      end
    end
  end

  # What was given as maps with few fields, without the others.
  defp plain(%{messages: messages} = context) do
    bare = fn map -> Map.reject(map, fn {_key, value} -> value in [nil, %{}] end) end

    messages =
      for message <- messages do
        details = message.reasoning_details
        %{message | reasoning_details: details && Enum.map(details, bare)}
      end

    %{context | messages: messages}
  end

  # What was asked, the calls with their results, and the answer.
  defp turn do
    calls =
      for n <- 1..3,
          chance(40),
          do: {"c#{n}_#{System.unique_integer([:positive])}", one_of(~w(look save)), words()}

    {words(), calls, words()}
  end

  defp words,
    do: Enum.join(["x" | list_of(5, fn -> one_of(["a b", "\"", "é", "{}", "\n", "100%"]) end)])

  defp noted, do: if(chance(30), do: %{"note" => words(), at: between(1, 9)}, else: %{})

  defp req_turn({asked, calls, answer}) do
    made =
      for {id, name, x} <- calls,
          do: req_call(id, name, IO.iodata_to_binary(Context.JSON.encode(%{"x" => x})))

    results =
      for {id, name, x} <- calls,
          do: req(:tool, x, tool_call_id: id, name: one_of([name, nil]), metadata: noted())

    said =
      if calls == [],
        do: [],
        else: [req(:assistant, one_of([[], answer]), tool_calls: made, metadata: noted())]

    [req(:user, asked, metadata: noted())] ++
      said ++ results ++ [req(:assistant, answer, metadata: noted())]
  end

  defp chain_turn({asked, calls, answer}) do
    made =
      for {id, name, x} <- calls,
          do: chain_call(id, name, arguments: %{"x" => x}, index: one_of([nil, 0]))

    results =
      for {id, name, x} <- calls,
          do:
            chain_result(id, name,
              content: one_of([x, [chain_part(:text, x)]]),
              is_error: chance(30)
            )

    # All in one message, or one for each.
    grouped = if chance(50), do: [results], else: Enum.map(results, &[&1])

    said =
      if calls == [],
        do: [],
        else: [
          chain(:assistant, nil, tool_calls: made)
          | for(group <- grouped, do: chain(:tool, nil, tool_results: group))
        ]

    [chain(:user, asked, name: one_of([nil, "ann"]))] ++
      said ++ [chain(:assistant, answer, status: one_of([:complete, :length]))]
  end

  defp jido_turn({asked, calls, answer}) do
    made = for {id, name, x} <- calls, do: %{id: id, name: name, arguments: %{"x" => x}}
    results = for {id, name, x} <- calls, do: entry(:tool, x, tool_call_id: id, name: name)

    said =
      if calls == [], do: [], else: [entry(:assistant, one_of([nil, answer]), tool_calls: made)]

    [entry(:user, asked, refs: one_of([nil, noted()]))] ++
      said ++ results ++ [entry(:assistant, answer, thinking: one_of([nil, words()]))]
  end

  describe "the form" do
    test "of ReqLLM says what providers get" do
      {:ok, context, _} = Context.ReqLLM.from_req_llm(req_llm())

      assert %{"system" => _, "messages" => [_, called, results, answered | _]} =
               Context.request(context, :anthropic) |> elem(1)

      assert %{"type" => "thinking", "signature" => "s"} = hd(called["content"])

      assert [%{"id" => "a", "input" => %{"at" => "it"}}, %{"id" => "b"}] =
               Enum.filter(called["content"], &(&1["type"] == "tool_use"))

      assert [%{"tool_use_id" => "a"}, %{"tool_use_id" => "b", "content" => now}] =
               results["content"]

      assert inspect(now) =~ "now"

      assert [%{"type" => "thinking", "signature" => "sig"}, %{"text" => "A cat, at seven."}] =
               answered["content"]

      # Run by the provider: not to be answered by anybody.
      assert Context.pending_tool_calls(context) == []
    end

    test "of reasoning goes back to its provider" do
      detail = %{text: "Hm", index: 0, signature: Base.encode64("s"), encrypted?: true}

      details = [
        Map.merge(detail, %{provider: :google, provider_data: %{"thought" => true}}),
        Map.merge(detail, %{provider: :openai, provider_data: %{"id" => "rs_1"}}),
        Map.merge(detail, %{provider: :somebody, provider_data: %{"x" => 1}})
      ]

      call = %{
        id: "call_1",
        type: "function",
        function: %{name: "get", arguments: "{}", metadata: %{thought_signature: "c2ln"}}
      }

      messages = [
        %{role: :user, content: "Weather?"},
        %{role: :assistant, content: [], reasoning_details: details, tool_calls: [call]},
        %{role: :tool, tool_call_id: "call_1", content: "sunny"}
      ]

      {:ok, context, %{repairs: []}} = Context.ReqLLM.from_req_llm(messages)

      assert {:ok, %{"input" => [_, reasoning, %{"type" => "function_call"}, _]}} =
               Context.request(context, :openai_responses)

      assert reasoning == %{
               "type" => "reasoning",
               "id" => "rs_1",
               "encrypted_content" => detail.signature,
               "summary" => [%{"type" => "summary_text", "text" => "Hm"}]
             }

      assert {:ok, %{"contents" => [_, %{"parts" => [thought, called]}, _]}} =
               Context.request(context, :gemini)

      assert %{"text" => "Hm", "thought" => true, "thoughtSignature" => "cw=="} = thought
      assert %{"functionCall" => %{"name" => "get"}, "thoughtSignature" => "c2ln"} = called

      assert %{messages: [_, %{reasoning_details: ^details, tool_calls: [^call]}, _]} =
               context |> Context.ReqLLM.to_req_llm() |> plain()
    end

    test "of reasoning of our own is that of the library's own providers" do
      body = %{
        "output" => [
          %{
            "type" => "reasoning",
            "id" => "rs_1",
            "summary" => [%{"type" => "summary_text", "text" => "Hm"}],
            "encrypted_content" => "gAAA"
          },
          %{"type" => "message", "role" => "assistant", "content" => []},
          %{"type" => "function_call", "call_id" => "a", "name" => "get", "arguments" => "{}"}
        ],
        "status" => "completed"
      }

      {:ok, response} = AshAgent.Response.decode(:openai_responses, body)
      {:ok, context} = "Weather?" |> Context.new() |> Context.add_response(response)

      detail = %{
        text: "Hm",
        signature: "gAAA",
        encrypted?: true,
        provider: :openai,
        format: "openai-responses-v1",
        index: 0,
        provider_data: %{"id" => "rs_1", "type" => "reasoning"}
      }

      assert %{messages: [_, %{content: [], reasoning_details: [^detail]}]} =
               Context.ReqLLM.to_req_llm(context)

      assert %{entries: [%{thinking: "Hm", reasoning_details: [^detail]}, _]} =
               Context.Jido.to_jido(context)
    end

    test "of every library is the same request" do
      ask = "Weather?"
      calls = [%{id: "a", type: "function", function: %{name: "get", arguments: ~s({"x":1})}}]

      req_llm = [
        %{"role" => "system", "content" => [%{"type" => "text", "text" => "Be brief."}]},
        %{"role" => "user", "content" => [%{"type" => "text", "text" => ask}]},
        %{"role" => "assistant", "content" => [], "tool_calls" => calls},
        %{
          "role" => "tool",
          "tool_call_id" => "a",
          "content" => [%{"type" => "text", "text" => "sunny"}]
        }
      ]

      langchain = [
        %{role: :system, content: "Be brief."},
        %{role: :user, content: ask},
        %{
          role: :assistant,
          tool_calls: [%{call_id: "a", name: "get", arguments: %{"x" => 1}, status: :complete}]
        },
        %{role: :tool, tool_results: [%{tool_call_id: "a", content: "sunny"}]}
      ]

      entries = [
        %{role: :user, content: ask},
        %{role: :assistant, tool_calls: [%{id: "a", name: "get", arguments: %{"x" => 1}}]},
        %{role: :tool, tool_call_id: "a", content: "sunny"}
      ]

      plain = [
        %{role: "system", content: "Be brief."},
        %{role: "user", content: ask},
        %{role: "assistant", content: nil, tool_calls: calls},
        %{role: "tool", tool_call_id: "a", content: "sunny"}
      ]

      for provider <- Context.Requests.providers() do
        expected = Context.request(Context.Import.from_messages!(plain), provider)

        for {:ok, context, %{repairs: []}} <- [
              Context.ReqLLM.from_req_llm(req_llm),
              Context.LangChain.from_langchain(langchain),
              Context.Jido.from_jido(%{
                id: "j",
                system_prompt: "Be brief.",
                entries: Enum.reverse(entries)
              })
            ] do
          assert Context.request(context, provider) == expected
        end
      end
    end

    test "of a conversation of our own" do
      context =
        Context.new("Weather?", system_prompt: "Be brief.", id: "c1")
        |> Context.add_assistant_message(nil, [%{id: "a", name: :get, arguments: %{city: "NYC"}}])
        |> Context.add_tool_results([{"a", {:error, :timeout}}])

      assert %{
               messages: [
                 _,
                 _,
                 %{tool_calls: [call]},
                 %{role: :tool, name: "get", metadata: %{is_error: true}}
               ]
             } = Context.ReqLLM.to_req_llm(context)

      assert %{id: "a", type: "function", function: %{name: "get", arguments: ~s({"city":"NYC"})}} =
               call

      assert [_, _, %{tool_calls: [%{name: "get"}]}, %{tool_results: [%{is_error: true}]}] =
               Context.LangChain.to_langchain(context)

      assert %{
               id: "c1",
               system_prompt: "Be brief.",
               entries: [%{role: :tool}, _, %{content: "Weather?"}]
             } = Context.Jido.to_jido(context)
    end
  end

  describe "what has changed since" do
    test "is not brought back by what was kept" do
      secret = "tok_1234"

      for {from, to, conversation} <- [
            {&Context.ReqLLM.from_req_llm/1, &Context.ReqLLM.to_req_llm/1,
             [
               req(:user, [text(secret, metadata: %{a: 1})]),
               req(:assistant, [text("ok"), part(:thinking, text: secret)], metadata: %{b: 1})
             ]},
            {&Context.LangChain.from_langchain/1, &Context.LangChain.to_langchain/1,
             [
               chain(:user, secret, name: "ann"),
               chain(:assistant, [chain_part(:text, secret, citations: [1])])
             ]},
            {&Context.Jido.from_jido/1, &Context.Jido.to_jido/1,
             make(Jido.AI.Context, id: "j", entries: [entry(:user, secret, refs: %{a: 1})])}
          ] do
        {:ok, context, _} = from.(conversation)
        masked = Context.View.put_masks(context, [{"tok_1234", "[gone]"}])
        shown = inspect(to.(masked), limit: :infinity, printable_limit: :infinity, structs: false)
        refute shown =~ secret
        assert shown =~ "[gone]"
        assert inspect(to.(context), structs: false) =~ secret
      end
    end

    test "continues in the library's form" do
      {:ok, context, _} = Context.ReqLLM.from_req_llm([req(:user, "Hi", name: "ann")])
      context = Context.add_assistant_message(context, "Hello!")
      assert [%{name: "ann"}, %{role: :assistant}] = Context.ReqLLM.to_req_llm(context).messages
    end
  end

  describe "anything else" do
    test "is an error that says where" do
      for from <- [&Context.ReqLLM.from_req_llm/1, &Context.LangChain.from_langchain/1] do
        assert {:error, %Context.Error{reason: {:invalid, [1], _}}} =
                 from.([%{role: :user, content: "a"}, %{role: "boss"}])

        assert {:error, %Context.Error{reason: {:invalid, [0], _}}} = from.([7])
      end
    end

    test "never crashes, whatever the fields hold" do
      fields =
        ~w(role content tool_calls tool_call_id tool_results metadata name thinking reasoning_details status options type text
        function arguments id call_id data url)

      junk = fn junk, depth ->
        case between(0, if(depth == 0, do: 5, else: 8)) do
          0 ->
            nil

          1 ->
            one_of([1, -0.5, true, :user, :text])

          2 ->
            one_of(["user", "tool", "assistant", "text", "image", "{", <<255>>])

          3 ->
            %{}

          4 ->
            []

          5 ->
            words()

          6 ->
            list_of(3, fn -> junk.(junk, depth - 1) end)

          _ ->
            Map.new(
              list_of(4, fn ->
                {one_of([:role, :content, :type, :text | fields]), junk.(junk, depth - 1)}
              end)
            )
        end
      end

      check_all("junk for other libraries", [runs: 600], fn _size ->
        messages =
          many(between(1, 3), fn ->
            message = Map.new(fields, &{&1, junk.(junk, 2)})
            Map.put(message, "role", one_of(["user", "assistant", "tool", "system"]))
          end)

        for {from, to} <- [
              {&Context.ReqLLM.from_req_llm/1, &Context.ReqLLM.to_req_llm/1},
              {&Context.LangChain.from_langchain/1, &Context.LangChain.to_langchain/1},
              {fn messages -> Context.Jido.from_jido(%{entries: messages}) end,
               &Context.Jido.to_jido/1}
            ] do
          case from.(messages) do
            {:ok, context, _report} -> to.(context)
            {:error, %Context.Error{}} -> :ok
          end
        end
      end)
    end
  end
end
