defmodule AshAgent.TestSupport.RequestCheckerTest.Edit do
  @moduledoc false
  # Edits of decoded JSON by path; evaluated while the tests below are compiled.

  def put(body, path, value), do: edit(body, path, fn _ -> value end)
  def change(body, path, fun), do: edit(body, path, fun)
  def insert(body, path, index, value), do: edit(body, path, &List.insert_at(&1, index, value))
  def append(body, path, value), do: edit(body, path, &(&1 ++ [value]))

  def drop(body, path) do
    {path, [key]} = Enum.split(path, -1)

    edit(body, path, fn
      list when is_list(list) -> List.delete_at(list, key)
      map -> Map.delete(map, key)
    end)
  end

  def swap(body, path, a, b) do
    edit(body, path, fn list ->
      list |> List.replace_at(a, Enum.at(list, b)) |> List.replace_at(b, Enum.at(list, a))
    end)
  end

  defp edit(value, [], fun), do: fun.(value)

  defp edit(list, [index | path], fun) when is_list(list) and is_integer(index),
    do: List.update_at(list, index, &edit(&1, path, fun))

  defp edit(map, [key | path], fun) when is_map(map),
    do: Map.put(map, key, edit(Map.get(map, key), path, fun))
end

defmodule AshAgent.TestSupport.RequestCheckerTest do
  use ExUnit.Case, async: true

  import AshAgent.TestSupport.RequestCheckerTest.Edit

  alias AshAgent.TestSupport.RequestChecker

  @png "iVBORw0KGgo="
  @signature "c2lnbmF0dXJl"

  # The functions above are called here, while this module is compiled; a test is made of each row.
  mutations = fn provider, good, rows ->
    for {fact, rule, body} <- rows do
      if body == good, do: raise("#{provider}: #{fact} changes nothing")

      test "#{provider}: finds #{fact}" do
        findings = RequestChecker.validate_request(unquote(Macro.escape(body)), unquote(provider))

        assert unquote(rule) in Enum.map(findings, & &1.rule),
               "no #{unquote(rule)} in #{inspect(findings)}"
      end
    end
  end

  ## Anthropic

  anthropic_small = %{"messages" => [%{"role" => "user", "content" => "hi"}]}

  anthropic = %{
    "model" => "claude-sonnet-4-5",
    "max_tokens" => 1024,
    "thinking" => %{"type" => "enabled", "budget_tokens" => 1024},
    "tools" => [%{"name" => "get", "input_schema" => %{"type" => "object"}}],
    "system" => [
      %{
        "type" => "text",
        "text" => "Be brief.",
        "cache_control" => %{"type" => "ephemeral", "ttl" => "1h"}
      }
    ],
    "messages" => [
      %{
        "role" => "user",
        "content" => [
          %{"type" => "text", "text" => "What is in these?"},
          %{
            "type" => "image",
            "source" => %{"type" => "base64", "media_type" => "image/png", "data" => @png}
          },
          %{
            "type" => "image",
            "source" => %{"type" => "url", "url" => "https://example.com/a.png"}
          },
          %{
            "type" => "document",
            "title" => "a.pdf",
            "source" => %{"type" => "base64", "media_type" => "application/pdf", "data" => @png}
          }
        ]
      },
      %{
        "role" => "assistant",
        "content" => [
          %{"type" => "thinking", "thinking" => "Let me see. ", "signature" => @signature},
          %{"type" => "redacted_thinking", "data" => "b3BhcXVl"},
          %{"type" => "text", "text" => "I'll check."},
          %{"type" => "tool_use", "id" => "toolu_1", "name" => "get", "input" => %{}},
          %{"type" => "tool_use", "id" => "toolu_2", "name" => "put", "input" => %{"a" => 1}}
        ]
      },
      %{
        "role" => "user",
        "content" => [
          %{
            "type" => "tool_result",
            "tool_use_id" => "toolu_2",
            "content" => [%{"type" => "text", "text" => "boom"}],
            "is_error" => true
          },
          %{
            "type" => "tool_result",
            "tool_use_id" => "toolu_1",
            "content" => [
              %{"type" => "text", "text" => "one"},
              %{
                "type" => "image",
                "source" => %{"type" => "base64", "media_type" => "image/gif", "data" => @png}
              }
            ]
          },
          %{"type" => "text", "text" => "go on", "cache_control" => %{"type" => "ephemeral"}}
        ]
      },
      %{"role" => "user", "content" => "please"},
      %{
        "role" => "assistant",
        "content" => [
          %{"type" => "thinking", "thinking" => "", "signature" => @signature},
          %{
            "type" => "server_tool_use",
            "id" => "srvtoolu_1",
            "name" => "web_search",
            "input" => %{}
          },
          %{"type" => "web_search_tool_result", "tool_use_id" => "srvtoolu_1", "content" => []},
          %{"type" => "tool_use", "id" => "toolu_1", "name" => "get", "input" => %{}}
        ]
      },
      %{
        "role" => "user",
        "content" => [%{"type" => "tool_result", "tool_use_id" => "toolu_1"}]
      }
    ]
  }

  # The result of a tool that runs at the same time as the application's comes later, and one of a program as well.
  waiting = drop(anthropic, ["messages", 4, "content", 2])

  answered = append(anthropic, ["messages"], %{"role" => "assistant", "content" => "Done."})
  marked = %{"type" => "text", "text" => "x", "cache_control" => %{"type" => "ephemeral"}}

  # A model declined before the text and the calls of another one.
  fallback = %{"type" => "fallback", "from" => %{"model" => "a"}, "to" => %{"model" => "b"}}
  declined = insert(answered, ["messages", 4, "content"], 3, fallback)
  declined = drop(declined, ["messages", 4, "content", 0])

  mutations.(:anthropic, anthropic, [
    {"a dropped result", :missing_result, drop(anthropic, ["messages", 2, "content", 1])},
    {"all results dropped", :missing_result, drop(anthropic, ["messages", 5])},
    {"a second result", :duplicate_result,
     insert(anthropic, ["messages", 2, "content"], 0, %{
       "type" => "tool_result",
       "tool_use_id" => "toolu_2",
       "content" => "again"
     })},
    {"a result without its call", :orphan_result,
     put(anthropic, ["messages", 2, "content", 0, "tool_use_id"], "toolu_9")},
    {"a result behind the next turn", :orphan_result, swap(anthropic, ["messages"], 2, 5)},
    {"results after text", :result_not_first, swap(anthropic, ["messages", 2, "content"], 1, 2)},
    {"results in a message behind text", :result_not_first,
     insert(anthropic, ["messages"], 2, %{"role" => "user", "content" => "first this"})},
    {"swapped roles", :first_not_user, swap(anthropic, ["messages"], 0, 1)},
    {"a call in a user message", :block_not_allowed,
     put(anthropic, ["messages", 1, "role"], "user")},
    {"an image in an assistant message", :block_not_allowed,
     insert(anthropic, ["messages", 1, "content"], 2, %{
       "type" => "image",
       "source" => %{"type" => "url", "url" => "https://example.com/a.png"}
     })},
    {"an unknown role", :bad_role, put(anthropic, ["messages", 3, "role"], "tool")},
    {"a system message", :bad_role, put(anthropic, ["messages", 3, "role"], "system")},
    {"no messages", :empty_messages, put(anthropic, ["messages"], [])},
    {"a missing messages key", :not_a_list, drop(anthropic, ["messages"])},
    {"an emptied text", :blank_text, put(anthropic, ["messages", 3, "content"], "")},
    {"a blank text block", :blank_text,
     put(anthropic, ["messages", 1, "content", 2, "text"], " \n\u00a0")},
    {"a blank system prompt", :blank_text, put(anthropic, ["system"], " ")},
    {"a content without blocks", :empty_content, put(anthropic, ["messages", 3, "content"], [])},
    {"a content that is an object", :bad_content,
     put(anthropic, ["messages", 3, "content"], %{"type" => "text", "text" => "hi"})},
    {"a wrong id character", :bad_id,
     put(anthropic, ["messages", 1, "content", 3, "id"], "toolu.1")},
    {"an id re-used in one turn", :duplicate_call_id,
     put(anthropic, ["messages", 1, "content", 4, "id"], "toolu_1")},
    {"a name with a dot", :bad_name,
     put(anthropic, ["messages", 1, "content", 3, "name"], "web.get")},
    {"a name of 65 characters", :bad_name,
     put(anthropic, ["messages", 1, "content", 3, "name"], String.duplicate("n", 65))},
    {"input as JSON text", :arguments_not_object,
     put(anthropic, ["messages", 1, "content", 3, "input"], "{}")},
    {"a call without input", :missing_key,
     drop(anthropic, ["messages", 1, "content", 3, "input"])},
    {"an unknown key in a message", :unknown_key, put(anthropic, ["messages", 3, "name"], "me")},
    {"an unknown key in a block", :unknown_key,
     put(anthropic, ["messages", 1, "content", 3, "provider_metadata"], %{})},
    {"an empty signature", :blank_signature,
     put(anthropic, ["messages", 1, "content", 0, "signature"], "")},
    {"a missing signature", :missing_key,
     drop(anthropic, ["messages", 1, "content", 0, "signature"])},
    {"thinking at the end of a message", :thinking_last,
     append(anthropic, ["messages", 1, "content"], %{
       "type" => "thinking",
       "thinking" => "hm",
       "signature" => @signature
     })},
    {"what the vendor answers itself behind a call", :call_not_last,
     append(anthropic, ["messages", 1, "content"], %{
       "type" => "server_tool_use",
       "id" => "srv_1",
       "name" => "web_search",
       "input" => %{}
     })},
    {"thinking behind text", :thinking_not_first,
     swap(anthropic, ["messages", 1, "content"], 0, 2)},
    {"a tool loop without thinking", :thinking_missing,
     drop(anthropic, ["messages", 4, "content", 0])},
    {"a data: prefix", :data_prefix,
     put(
       anthropic,
       ["messages", 0, "content", 1, "source", "data"],
       "data:image/png;base64," <> @png
     )},
    {"data that is no base64", :bad_base64,
     put(anthropic, ["messages", 0, "content", 1, "source", "data"], "not base64!")},
    {"an image type it does not take", :bad_media_type,
     put(anthropic, ["messages", 0, "content", 1, "source", "media_type"], "image/bmp")},
    {"an image url that is none", :bad_url,
     put(anthropic, ["messages", 0, "content", 2, "source", "url"], "a.png")},
    {"an error result with an image", :error_content_not_text,
     put(anthropic, ["messages", 2, "content", 1, "is_error"], true)},
    {"an error result without content", :error_content_empty,
     drop(anthropic, ["messages", 2, "content", 0, "content"])},
    {"is_error as text", :not_a_boolean,
     put(anthropic, ["messages", 2, "content", 0, "is_error"], "true")},
    {"five breakpoints", :too_many_breakpoints,
     change(anthropic, ["messages", 2, "content"], &(&1 ++ [marked, marked, marked]))},
    {"a breakpoint on thinking", :cache_control_not_allowed,
     put(anthropic, ["messages", 1, "content", 0, "cache_control"], %{"type" => "ephemeral"})},
    {"a breakpoint of an unknown kind", :bad_cache_control,
     put(anthropic, ["system", 0, "cache_control"], %{"type" => "persistent"})},
    {"trailing whitespace at the end", :trailing_whitespace,
     put(answered, ["messages", 6, "content"], "Done.\n")},
    {"thinking at the end", :thinking_last,
     put(answered, ["messages", 6, "content"], [
       %{"type" => "thinking", "thinking" => "hm", "signature" => @signature}
     ])},
    {"an emptied assistant text that is not the last", :blank_text,
     append(put(answered, ["messages", 6, "content"], ""), ["messages"], %{
       "role" => "user",
       "content" => "?"
     })},
    {"a use without its result, and the user goes on", :use_without_result,
     append(waiting, ["messages"], %{"role" => "user", "content" => "Well?"})},
    {"a use without its result, and the model goes on", :use_without_result,
     append(waiting, ["messages"], %{"role" => "assistant", "content" => "Done."})},
    {"a found tool beside the user's words", :block_not_allowed,
     append(anthropic, ["messages", 2, "content"], %{
       "type" => "tool_reference",
       "tool_name" => "get"
     })},
    {"a vendor's result in a user message", :block_not_allowed,
     append(anthropic, ["messages", 2, "content"], %{
       "type" => "web_search_tool_result",
       "tool_use_id" => "srvtoolu_1",
       "content" => []
     })},
    {"thinking from before a fallback", :declined,
     insert(declined, ["messages", 4, "content"], 0, %{
       "type" => "redacted_thinking",
       "data" => "b3BhcXVl"
     })},
    {"words between calls from before a fallback", :declined,
     insert(declined, ["messages", 4, "content"], 0, %{"type" => "connector_text"})},
    {"a use without its result from before a fallback", :declined,
     drop(declined, ["messages", 4, "content", 1])},
    {"a container with its id alone", :missing_key,
     put(anthropic, ["container"], %{"id" => "container_1"})},
    {"text that is not UTF-8", :invalid_utf8,
     put(anthropic, ["messages", 3, "content"], <<255>>)},
    {"an atom for a text", :not_json, put(anthropic, ["messages", 3, "content"], :hello)}
  ])

  test "anthropic: finds nothing in good bodies" do
    assert_good(unquote(Macro.escape(anthropic_small)), :anthropic)
    assert_good(unquote(Macro.escape(anthropic)), :anthropic)
    assert_good(unquote(Macro.escape(waiting)), :anthropic)
    assert_good(unquote(Macro.escape(put(anthropic, ["container"], "container_1"))), :anthropic)
    assert_good(unquote(Macro.escape(answered)), :anthropic)
    assert_good(unquote(Macro.escape(put(answered, ["messages", 6, "content"], ""))), :anthropic)
    assert_good(unquote(Macro.escape(declined)), :anthropic, thinking: false)
  end

  test "anthropic: its options" do
    good = unquote(Macro.escape(anthropic))
    answered = unquote(Macro.escape(answered))
    no_thinking = drop(good, ["messages", 4, "content", 0])
    system = %{"role" => "system", "content" => "From now on in French."}

    assert_good(no_thinking, :anthropic, thinking: false)

    assert [:thinking_missing] =
             rules(Map.delete(no_thinking, "thinking"), :anthropic, thinking: true)

    assert [:assistant_last] = rules(answered, :anthropic, prefill: false)
    assert_good(append(good, ["messages"], system), :anthropic, mid_conversation_system: true)

    assert [:system_position] =
             rules(append(answered, ["messages"], system), :anthropic,
               mid_conversation_system: true
             )

    assert_good(swap(good, ["messages", 1, "content"], 0, 2), :anthropic, observed: false)
  end

  ## OpenAI chat

  chat_small = %{"messages" => [%{"role" => "user", "content" => "hi"}]}

  chat = %{
    "model" => "gpt-4o",
    "messages" => [
      %{"role" => "system", "content" => "Be brief."},
      %{
        "role" => "user",
        "content" => [
          %{"type" => "text", "text" => "What is in these?"},
          %{"type" => "image_url", "image_url" => %{"url" => "https://example.com/a.png"}},
          %{
            "type" => "image_url",
            "image_url" => %{"url" => "data:image/png;base64," <> @png, "detail" => "low"}
          },
          %{
            "type" => "file",
            "file" => %{
              "filename" => "a.pdf",
              "file_data" => "data:application/pdf;base64," <> @png
            }
          }
        ]
      },
      %{
        "role" => "assistant",
        "content" => nil,
        "tool_calls" => [
          %{
            "id" => "call_1",
            "type" => "function",
            "function" => %{"name" => "get", "arguments" => "{\"a\":1}"}
          },
          %{
            "id" => "call_2",
            "type" => "function",
            "function" => %{"name" => "put", "arguments" => "{}"}
          }
        ]
      },
      %{"role" => "tool", "tool_call_id" => "call_2", "content" => "two"},
      %{
        "role" => "tool",
        "tool_call_id" => "call_1",
        "content" => [%{"type" => "text", "text" => "one"}]
      },
      %{"role" => "assistant", "content" => "Done.\n"},
      %{"role" => "developer", "content" => "Now in French."},
      %{"role" => "user", "content" => "And then?"},
      %{
        "role" => "assistant",
        "tool_calls" => [
          %{
            "id" => "call_1",
            "type" => "function",
            "function" => %{"name" => "get", "arguments" => "{}"}
          }
        ]
      },
      %{"role" => "tool", "tool_call_id" => "call_1", "content" => "Error: not found"}
    ]
  }

  call = ["messages", 2, "tool_calls", 0]

  mutations.(:openai_chat, chat, [
    {"a dropped result", :missing_result, drop(chat, ["messages", 3])},
    {"the last result dropped", :missing_result, drop(chat, ["messages", 9])},
    {"a second result", :duplicate_result,
     insert(chat, ["messages"], 4, %{
       "role" => "tool",
       "tool_call_id" => "call_2",
       "content" => "again"
     })},
    {"a result without its call", :orphan_result,
     put(chat, ["messages", 3, "tool_call_id"], "call_9")},
    {"a result behind a user message", :orphan_result,
     insert(chat, ["messages"], 4, %{"role" => "user", "content" => "wait"})},
    {"a user message in front of the results", :missing_result,
     insert(chat, ["messages"], 3, %{"role" => "user", "content" => "wait"})},
    {"swapped roles", :orphan_result, swap(chat, ["messages"], 2, 3)},
    {"an unknown role", :bad_role, put(chat, ["messages", 7, "role"], "model")},
    {"no messages", :empty_messages, put(chat, ["messages"], [])},
    {"an emptied text", :blank_text, put(chat, ["messages", 7, "content"], "")},
    {"a blank text", :blank_text, put(chat, ["messages", 1, "content", 0, "text"], "\t \n")},
    {"an empty tool result", :blank_text, put(chat, ["messages", 3, "content"], "")},
    {"a content without parts", :empty_content, put(chat, ["messages", 7, "content"], [])},
    {"neither content nor calls", :missing_content, put(chat, ["messages", 5, "content"], nil)},
    {"an empty list of calls", :empty_tool_calls, put(chat, ["messages", 5, "tool_calls"], [])},
    {"a call without its type", :missing_key, drop(chat, call ++ ["type"])},
    {"an id of 41 characters", :bad_id,
     put(chat, ["messages", 3, "tool_call_id"], String.duplicate("i", 41))},
    {"an empty id", :bad_id, put(chat, call ++ ["id"], "")},
    {"an id re-used in one turn", :duplicate_call_id, put(chat, call ++ ["id"], "call_2")},
    {"a wrong name character", :bad_name, put(chat, call ++ ["function", "name"], "web get")},
    {"arguments as an object", :arguments_not_text,
     put(chat, call ++ ["function", "arguments"], %{"a" => 1})},
    {"arguments that are a list", :arguments_not_json_object,
     put(chat, call ++ ["function", "arguments"], "[1]")},
    {"arguments that are cut off", :arguments_not_json_object,
     put(chat, call ++ ["function", "arguments"], "{\"a\":")},
    {"empty arguments", :arguments_not_json_object,
     put(chat, call ++ ["function", "arguments"], "")},
    {"arguments with a lone surrogate", :arguments_not_json_object,
     put(chat, call ++ ["function", "arguments"], "{\"a\":\"\\ud800\"}")},
    {"an object as a result", :bad_content, put(chat, ["messages", 3, "content"], %{"a" => 1})},
    {"an image in a result", :block_not_allowed,
     put(chat, ["messages", 4, "content", 0], %{
       "type" => "image_url",
       "image_url" => %{"url" => "https://example.com/a.png"}
     })},
    {"an image in an assistant message", :block_not_allowed,
     put(chat, ["messages", 5, "content"], [
       %{"type" => "image_url", "image_url" => %{"url" => "https://example.com/a.png"}}
     ])},
    {"image_url as a text", :not_an_object,
     put(chat, ["messages", 1, "content", 1, "image_url"], "https://example.com/a.png")},
    {"bare base64 as an image url", :bad_url,
     put(chat, ["messages", 1, "content", 1, "image_url", "url"], @png)},
    {"a part of another provider", :unknown_block,
     put(chat, ["messages", 1, "content", 0], %{"type" => "input_text", "text" => "hi"})},
    {"a name in a tool message", :unknown_key, put(chat, ["messages", 3, "name"], "put")},
    {"reasoning_content", :unknown_key, put(chat, ["messages", 5, "reasoning_content"], "hm")},
    {"an error flag", :unknown_key, put(chat, ["messages", 3, "is_error"], true)}
  ])

  test "openai_chat: finds nothing in good bodies" do
    assert_good(unquote(Macro.escape(chat_small)), :openai_chat)
    assert_good(unquote(Macro.escape(chat)), :openai_chat)

    long =
      unquote(
        Macro.escape(
          chat
          |> put(["messages", 8, "tool_calls", 0, "id"], String.duplicate("i", 64))
          |> put(["messages", 9, "tool_call_id"], String.duplicate("i", 64))
        )
      )

    assert_good(long, :openai_chat, max_id_length: 64)
  end

  ## OpenAI Responses

  responses_small = %{"input" => "hi"}

  responses = %{
    "model" => "gpt-5",
    "instructions" => "Be brief.",
    "input" => [
      %{"role" => "user", "content" => "hi"},
      %{
        "role" => "user",
        "content" => [
          %{"type" => "input_text", "text" => "What is in these?"},
          %{
            "type" => "input_image",
            "detail" => "auto",
            "image_url" => "data:image/png;base64," <> @png
          },
          %{
            "type" => "input_file",
            "filename" => "a.pdf",
            "file_data" => "data:application/pdf;base64," <> @png
          }
        ]
      },
      %{
        "type" => "reasoning",
        "id" => "rs_1",
        "summary" => [%{"type" => "summary_text", "text" => "Thinking."}],
        "encrypted_content" => "gAAA"
      },
      %{
        "type" => "message",
        "role" => "assistant",
        "id" => "msg_1",
        "status" => "completed",
        "content" => [%{"type" => "output_text", "text" => "I'll check.", "annotations" => []}]
      },
      %{
        "type" => "function_call",
        "id" => "fc_1",
        "call_id" => "call_1",
        "name" => "get",
        "arguments" => "{\"a\":1}"
      },
      %{"type" => "function_call", "call_id" => "call_2", "name" => "put", "arguments" => "{}"},
      %{"type" => "function_call_output", "call_id" => "call_1", "output" => "one"},
      %{
        "type" => "function_call_output",
        "call_id" => "call_2",
        "output" => [
          %{"type" => "input_text", "text" => "two"},
          %{"type" => "input_image", "image_url" => "https://example.com/a.png"}
        ]
      },
      %{"role" => "assistant", "content" => "Done."},
      %{"role" => "developer", "content" => "Now in French."},
      %{
        "type" => "web_search_call",
        "id" => "ws_1",
        "status" => "completed",
        "action" => %{"type" => "search", "query" => "x"}
      },
      %{"role" => "user", "content" => "And then?"}
    ]
  }

  mutations.(:openai_responses, responses, [
    {"a dropped result", :missing_result, drop(responses, ["input", 6])},
    {"a dropped call", :orphan_result, drop(responses, ["input", 5])},
    {"a second result", :duplicate_result,
     insert(responses, ["input"], 7, %{
       "type" => "function_call_output",
       "call_id" => "call_1",
       "output" => "again"
     })},
    {"a result in front of its call", :result_before_call, swap(responses, ["input"], 5, 7)},
    {"a message between call and result", :result_not_adjacent,
     insert(responses, ["input"], 6, %{"role" => "user", "content" => "wait"})},
    {"an id re-used in a later turn", :duplicate_call_id,
     change(
       responses,
       ["input"],
       &(&1 ++
           [
             %{
               "type" => "function_call",
               "call_id" => "call_1",
               "name" => "get",
               "arguments" => "{}"
             },
             %{"type" => "function_call_output", "call_id" => "call_1", "output" => "x"}
           ])
     )},
    {"an empty call id", :bad_id, put(responses, ["input", 4, "call_id"], "")},
    {"a call id of 65 characters", :bad_id,
     put(responses, ["input", 4, "call_id"], String.duplicate("i", 65))},
    {"a wrong name character", :bad_name, put(responses, ["input", 4, "name"], "web.get")},
    {"arguments as an object", :arguments_not_text,
     put(responses, ["input", 4, "arguments"], %{"a" => 1})},
    {"arguments that are no object", :arguments_not_json_object,
     put(responses, ["input", 4, "arguments"], "null")},
    {"an item id with a wrong prefix", :bad_item_id,
     put(responses, ["input", 4, "id"], "call_1")},
    {"an item id with a wrong character", :bad_item_id,
     put(responses, ["input", 3, "id"], "msg 1")},
    {"an item id used twice", :duplicate_item_id, put(responses, ["input", 10, "id"], "msg_1")},
    {"reasoning in front of a message without an id", :reasoning_without_follower,
     put(responses, ["input", 3], %{"role" => "assistant", "content" => "I'll check."})},
    {"reasoning at the end", :reasoning_without_follower,
     append(responses, ["input"], %{
       "type" => "reasoning",
       "id" => "rs_2",
       "summary" => [],
       "encrypted_content" => "gAAA"
     })},
    {"reasoning in front of reasoning", :reasoning_without_follower,
     insert(responses, ["input"], 2, %{
       "type" => "reasoning",
       "id" => "rs_2",
       "summary" => [],
       "encrypted_content" => "gAAA"
     })},
    {"reasoning behind a message without an id", :reasoning_without_follower,
     insert(responses, ["input"], 9, %{
       "type" => "reasoning",
       "id" => "rs_2",
       "summary" => [],
       "encrypted_content" => "gAAA"
     })},
    {"reasoning without its content", :missing_encrypted_content,
     responses |> drop(["input", 2, "encrypted_content"]) |> put(["store"], false)},
    {"reasoning without a summary", :missing_key, drop(responses, ["input", 2, "summary"])},
    {"input_text of the assistant", :block_not_allowed,
     put(responses, ["input", 3, "content", 0], %{"type" => "input_text", "text" => "hi"})},
    {"output_text of the user", :block_not_allowed,
     put(responses, ["input", 1, "content", 0], %{
       "type" => "output_text",
       "text" => "hi",
       "annotations" => []
     })},
    {"a chat part", :unknown_block,
     put(responses, ["input", 1, "content", 0], %{"type" => "text", "text" => "hi"})},
    {"a status of an assistant without an id", :unknown_key, drop(responses, ["input", 3, "id"])},
    {"image_url as an object", :not_a_string,
     put(responses, ["input", 1, "content", 1, "image_url"], %{"url" => "https://example.com/a"})},
    {"an image without detail", :missing_key,
     drop(responses, ["input", 1, "content", 1, "detail"])},
    {"an image without a source", :bad_source,
     drop(responses, ["input", 1, "content", 1, "image_url"])},
    {"a tool message", :bad_role, put(responses, ["input", 0, "role"], "tool")},
    {"an emptied text", :blank_text, put(responses, ["input", 0, "content"], "")},
    {"an empty output", :blank_text, put(responses, ["input", 6, "output"], "")},
    {"an output that is an object", :bad_content,
     put(responses, ["input", 6, "output"], %{"a" => 1})},
    {"a status of null", :bad_value, put(responses, ["input", 4, "status"], nil)},
    {"an error flag", :unknown_key, put(responses, ["input", 6, "is_error"], true)},
    {"no input", :empty_messages, put(responses, ["input"], [])},
    {"an item without type and role", :missing_key,
     put(responses, ["input", 0], %{"text" => "hi"})}
  ])

  test "openai_responses: finds nothing in good bodies" do
    assert_good(unquote(Macro.escape(responses_small)), :openai_responses)
    assert_good(unquote(Macro.escape(responses)), :openai_responses)
  end

  test "openai_responses: finds nothing in what servers took" do
    user = %{"role" => "user", "content" => "hi"}
    reasoning = &%{"type" => "reasoning", "id" => &1, "summary" => [], "encrypted_content" => "e"}

    said = fn id, text ->
      content = [%{"type" => "output_text", "text" => text, "annotations" => []}]
      message = %{"type" => "message", "role" => "assistant", "content" => content}
      Map.merge(message, %{"id" => id, "status" => "completed"})
    end

    for items <- [
          # OpenAI: a list of parts without an id, and a message behind an image.
          [Map.drop(said.("", "hi"), ["type", "id", "status"])],
          [said.("msg_1", "")],
          # An answer that ends with reasoning.
          [said.("msg_1", "hi"), reasoning.("rs_1")],
          # xAI.
          [reasoning.("rs_1"), reasoning.("tco_1"), reasoning.("rs_1"), said.("msg_1", "hi")],
          # DeepSeek.
          [
            reasoning.("84cf774d-60a1")
            |> Map.delete("encrypted_content")
            |> Map.put("content", [%{"type" => "reasoning_text", "text" => "hm"}]),
            said.("75873264-3611", "hi")
          ]
        ],
        do: assert_good(%{"input" => [user | items] ++ [user]}, :openai_responses)
  end

  test "openai_responses: its options" do
    good = unquote(Macro.escape(responses))
    bare = drop(good, ["input", 2, "encrypted_content"])
    apart = insert(good, ["input"], 6, %{"role" => "user", "content" => "wait"})
    rest = %{"previous_response_id" => "resp_1", "input" => [Enum.at(good["input"], 6)]}

    assert_good(bare, :openai_responses, store: true)
    assert_good(Map.put(bare, "store", true), :openai_responses)
    assert_good(apart, :openai_responses, adjacent: false)
    assert_good(rest, :openai_responses)
  end

  ## Gemini

  gemini_small = %{"contents" => [%{"role" => "user", "parts" => [%{"text" => "hi"}]}]}

  gemini = %{
    "systemInstruction" => %{"parts" => [%{"text" => "Be brief."}]},
    "contents" => [
      %{
        "role" => "user",
        "parts" => [
          %{"text" => "What is in these?"},
          %{"inlineData" => %{"mimeType" => "image/png", "data" => @png}},
          %{"fileData" => %{"mimeType" => "image/png", "fileUri" => "https://example.com/a.png"}}
        ]
      },
      %{
        "role" => "model",
        "parts" => [
          %{"text" => "Let me see.", "thought" => true},
          %{"text" => "", "thoughtSignature" => @signature},
          %{"functionCall" => %{"name" => "old", "args" => %{}}}
        ]
      },
      %{
        "role" => "user",
        "parts" => [
          %{"functionResponse" => %{"name" => "old", "response" => %{"output" => "none"}}}
        ]
      },
      %{"role" => "model", "parts" => [%{"text" => "Nothing."}]},
      %{"role" => "user", "parts" => [%{"text" => "Again!"}]},
      %{
        "role" => "model",
        "parts" => [
          %{"text" => "I'll check."},
          %{
            "functionCall" => %{"id" => "c1", "name" => "get", "args" => %{"a" => 1}},
            "thoughtSignature" => @signature
          },
          %{"functionCall" => %{"id" => "c2", "name" => "put", "args" => %{}}}
        ]
      },
      %{
        "role" => "user",
        "parts" => [
          %{
            "functionResponse" => %{
              "id" => "c1",
              "name" => "get",
              "response" => %{"output" => "one"},
              "parts" => [%{"inlineData" => %{"mimeType" => "image/png", "data" => @png}}]
            }
          },
          %{
            "functionResponse" => %{
              "id" => "c2",
              "name" => "put",
              "response" => %{"error" => "boom"}
            }
          }
        ]
      },
      %{"role" => "user", "parts" => [%{"text" => "go on"}]}
    ]
  }

  fresh = drop(gemini, ["contents", 7])

  mutations.(:gemini, gemini, [
    {"an image type it does not take", :bad_media_type,
     put(gemini, ["contents", 0, "parts", 1, "inlineData", "mimeType"], "image/gif")},
    {"a dropped response", :result_count, drop(gemini, ["contents", 6, "parts", 1])},
    {"a dropped response, by its id", :missing_result, drop(gemini, ["contents", 6, "parts", 1])},
    {"all responses dropped", :missing_result, drop(gemini, ["contents", 6])},
    {"a second response", :duplicate_result,
     append(
       gemini,
       ["contents", 6, "parts"],
       get_in(gemini, ["contents", Access.at(6), "parts", Access.at(0)])
     )},
    {"a response without its call", :orphan_result,
     put(gemini, ["contents", 6, "parts", 0, "functionResponse", "id"], "c9")},
    {"a response without the id of its call", :missing_result,
     drop(gemini, ["contents", 6, "parts", 0, "functionResponse", "id"])},
    {"a response of another name", :name_mismatch,
     put(gemini, ["contents", 6, "parts", 0, "functionResponse", "name"], "put")},
    {"responses split over two contents", :orphan_result,
     change(gemini, ["contents"], fn contents ->
       {before, [%{"parts" => [one, two]} | behind]} = Enum.split(contents, 6)
       content = &%{"role" => "user", "parts" => [&1]}
       before ++ [content.(one), content.(two)] ++ behind
     end)},
    {"responses behind text", :missing_result, swap(gemini, ["contents"], 6, 7)},
    {"text among responses", :mixed_responses,
     append(gemini, ["contents", 6, "parts"], %{"text" => "and"})},
    {"an id re-used in one turn", :duplicate_call_id,
     put(gemini, ["contents", 5, "parts", 2, "functionCall", "id"], "c1")},
    {"a missing signature", :missing_signature,
     drop(gemini, ["contents", 5, "parts", 1, "thoughtSignature"])},
    {"a missing signature with the responses last", :missing_signature,
     drop(fresh, ["contents", 5, "parts", 1, "thoughtSignature"])},
    {"a signature on the second call only", :missing_signature,
     gemini
     |> drop(["contents", 5, "parts", 1, "thoughtSignature"])
     |> put(["contents", 5, "parts", 2, "thoughtSignature"], @signature)},
    {"an empty signature", :blank_signature,
     put(gemini, ["contents", 5, "parts", 1, "thoughtSignature"], "")},
    {"a signature that is no base64", :bad_base64,
     put(gemini, ["contents", 5, "parts", 1, "thoughtSignature"], "skip me")},
    {"swapped roles", :block_not_allowed, put(gemini, ["contents", 5, "role"], "user")},
    {"a history that starts with the model", :first_not_user, drop(gemini, ["contents", 0])},
    {"a history that ends with the model", :model_last,
     put(gemini, ["contents", 7], %{"role" => "model", "parts" => [%{"text" => "Done."}]})},
    {"a role of another provider", :bad_role, put(gemini, ["contents", 3, "role"], "assistant")},
    {"a missing role", :missing_key, drop(gemini, ["contents", 4, "role"])},
    {"no contents", :empty_messages, put(gemini, ["contents"], [])},
    {"a content without parts", :empty_content, put(gemini, ["contents", 4, "parts"], [])},
    {"an emptied text", :blank_text, put(gemini, ["contents", 4, "parts", 0, "text"], "")},
    {"a blank system instruction", :blank_text,
     put(gemini, ["systemInstruction", "parts", 0, "text"], " ")},
    {"a system instruction that is a text", :not_an_object,
     put(gemini, ["systemInstruction"], "Be brief.")},
    {"two data fields", :several_data_fields,
     put(gemini, ["contents", 5, "parts", 1, "text"], "and")},
    {"no data field", :no_data_field,
     put(gemini, ["contents", 4, "parts", 0], %{"thought" => true})},
    {"args as JSON text", :arguments_not_object,
     put(gemini, ["contents", 5, "parts", 1, "functionCall", "args"], "{}")},
    {"a response that is a text", :response_not_object,
     put(gemini, ["contents", 6, "parts", 0, "functionResponse", "response"], "one")},
    {"a wrong name character", :bad_name,
     put(gemini, ["contents", 5, "parts", 1, "functionCall", "name"], "2 get")},
    {"a data: prefix", :data_prefix,
     put(
       gemini,
       ["contents", 0, "parts", 1, "inlineData", "data"],
       "data:image/png;base64," <> @png
     )},
    {"a thought of the user", :block_not_allowed,
     put(gemini, ["contents", 4, "parts", 0, "thought"], true)},
    {"snake_case", :unknown_key,
     gemini
     |> drop(["contents", 0, "parts", 1, "inlineData", "mimeType"])
     |> put(["contents", 0, "parts", 1, "inlineData", "mime_type"], "image/png")},
    {"a snake_case system instruction", :snake_case_key,
     put(gemini, ["system_instruction"], %{"parts" => [%{"text" => "x"}]})}
  ])

  test "gemini: finds nothing in good bodies" do
    assert_good(unquote(Macro.escape(gemini_small)), :gemini)
    assert_good(unquote(Macro.escape(gemini)), :gemini)
    assert_good(unquote(Macro.escape(fresh)), :gemini)
  end

  test "gemini: its options" do
    good = unquote(Macro.escape(gemini))
    unsigned = drop(good, ["contents", 5, "parts", 1, "thoughtSignature"])
    answer = %{"role" => "model", "parts" => [%{"text" => "Done."}]}

    assert_good(unsigned, :gemini, signatures: false)
    assert_good(put(good, ["contents", 7], answer), :gemini, model_last: true)
  end

  ## Bedrock

  bedrock_small = %{
    "messages" => [%{"role" => "user", "content" => [%{"text" => "hi"}]}],
    "system" => []
  }

  bedrock = %{
    "system" => [%{"text" => "Be brief."}, %{"cachePoint" => %{"type" => "default"}}],
    "messages" => [
      %{
        "role" => "user",
        "content" => [
          %{"text" => "What is in these?"},
          %{"image" => %{"format" => "png", "source" => %{"bytes" => @png}}},
          %{
            "image" => %{
              "format" => "jpeg",
              "source" => %{"s3Location" => %{"uri" => "s3://bucket/a.jpg"}}
            }
          },
          %{
            "document" => %{
              "format" => "pdf",
              "name" => "a (1)",
              "source" => %{"bytes" => @png}
            }
          }
        ]
      },
      %{
        "role" => "assistant",
        "content" => [
          %{
            "reasoningContent" => %{
              "reasoningText" => %{"text" => "Let me see.", "signature" => @signature}
            }
          },
          %{"reasoningContent" => %{"redactedContent" => "b3BhcXVl"}},
          %{"text" => "I'll check."},
          %{"toolUse" => %{"toolUseId" => "tooluse_1", "name" => "get", "input" => %{}}},
          %{"toolUse" => %{"toolUseId" => "tooluse_2", "name" => "put", "input" => %{"a" => 1}}}
        ]
      },
      %{
        "role" => "user",
        "content" => [
          %{
            "toolResult" => %{
              "toolUseId" => "tooluse_2",
              "content" => [%{"text" => "boom"}],
              "status" => "error"
            }
          },
          %{
            "toolResult" => %{
              "toolUseId" => "tooluse_1",
              "content" => [
                %{"json" => %{"a" => [1]}},
                %{"image" => %{"format" => "webp", "source" => %{"bytes" => @png}}}
              ],
              "status" => "success"
            }
          },
          %{"text" => "go on"},
          %{"cachePoint" => %{"type" => "default", "ttl" => "5m"}}
        ]
      }
    ]
  }

  point = %{"cachePoint" => %{"type" => "default"}}
  use = ["messages", 1, "content", 3, "toolUse"]
  result = ["messages", 2, "content", 1, "toolResult"]

  mutations.(:bedrock, bedrock, [
    {"a dropped result", :missing_result, drop(bedrock, ["messages", 2, "content", 0])},
    {"all results dropped", :missing_result, drop(bedrock, ["messages", 2])},
    {"a second result", :duplicate_result,
     insert(bedrock, ["messages", 2, "content"], 0, %{
       "toolResult" => %{"toolUseId" => "tooluse_2", "content" => [%{"text" => "again"}]}
     })},
    {"a result without its call", :orphan_result,
     put(bedrock, result ++ ["toolUseId"], "tooluse_9")},
    {"results after text", :result_not_first, swap(bedrock, ["messages", 2, "content"], 1, 2)},
    {"swapped roles", :first_not_user, swap(bedrock, ["messages"], 0, 1)},
    {"two user messages in a row", :not_alternating,
     append(bedrock, ["messages"], %{"role" => "user", "content" => [%{"text" => "now"}]})},
    {"two assistant messages in a row", :not_alternating,
     insert(bedrock, ["messages"], 1, %{"role" => "assistant", "content" => [%{"text" => "ok"}]})},
    {"a call of the user", :block_not_allowed, put(bedrock, ["messages", 1, "role"], "user")},
    {"an image of the assistant", :block_not_allowed,
     insert(bedrock, ["messages", 1, "content"], 0, %{
       "image" => %{"format" => "png", "source" => %{"bytes" => @png}}
     })},
    {"an unknown role", :bad_role, put(bedrock, ["messages", 0, "role"], "system")},
    {"no messages", :empty_messages, put(bedrock, ["messages"], [])},
    {"a content without blocks", :empty_content, put(bedrock, ["messages", 0, "content"], [])},
    {"a content that is a text", :not_a_list, put(bedrock, ["messages", 0, "content"], "hi")},
    {"an emptied text", :blank_text, put(bedrock, ["messages", 0, "content", 0, "text"], "")},
    {"a blank text", :blank_text, put(bedrock, ["messages", 1, "content", 2, "text"], "\n")},
    {"an empty system text", :blank_text, put(bedrock, ["system", 0, "text"], "")},
    {"two keys in a union block", :union_not_single,
     put(bedrock, ["messages", 0, "content", 1, "text"], "see")},
    {"a block with a type", :union_not_single,
     put(bedrock, ["messages", 0, "content", 0, "type"], "text")},
    {"a block of another provider", :unknown_block,
     put(bedrock, ["messages", 0, "content", 0], %{"tool_use" => %{}})},
    {"input as JSON text", :arguments_not_object, put(bedrock, use ++ ["input"], "{}")},
    {"a wrong id character", :bad_id, put(bedrock, use ++ ["toolUseId"], "tool use")},
    {"an id of 65 characters", :bad_id,
     put(bedrock, use ++ ["toolUseId"], String.duplicate("i", 65))},
    {"an id re-used in one turn", :duplicate_call_id,
     put(bedrock, use ++ ["toolUseId"], "tooluse_2")},
    {"a wrong name character", :bad_name, put(bedrock, use ++ ["name"], "web.get")},
    {"a result without content", :empty_content, put(bedrock, result ++ ["content"], [])},
    {"a list as json", :json_not_object, put(bedrock, result ++ ["content", 0, "json"], [1])},
    {"a status it does not know", :bad_value, put(bedrock, result ++ ["status"], "failed")},
    {"is_error", :unknown_key, put(bedrock, result ++ ["is_error"], true)},
    {"an image by url", :unknown_block,
     put(bedrock, ["messages", 0, "content", 1, "image", "source"], %{
       "url" => "https://example.com"
     })},
    {"an image format with its type", :bad_media_type,
     put(bedrock, ["messages", 0, "content", 1, "image", "format"], "image/png")},
    {"a data: prefix", :data_prefix,
     put(
       bedrock,
       ["messages", 0, "content", 1, "image", "source", "bytes"],
       "data:image/png;base64," <> @png
     )},
    {"a document's file name", :bad_document_name,
     put(bedrock, ["messages", 0, "content", 3, "document", "name"], "a.pdf")},
    {"a document without a text", :document_without_text,
     drop(bedrock, ["messages", 0, "content", 0])},
    {"an empty signature", :blank_signature,
     put(
       bedrock,
       ["messages", 1, "content", 0, "reasoningContent", "reasoningText", "signature"],
       ""
     )},
    {"reasoning at the end of a message", :thinking_last,
     swap(bedrock, ["messages", 1, "content"], 0, 4)},
    {"text behind a call", :call_not_last,
     append(bedrock, ["messages", 1, "content"], %{"text" => "x"})},
    {"five cache points", :too_many_breakpoints,
     change(bedrock, ["messages", 2, "content"], &(&1 ++ [point, point, point]))},
    {"a cache point in front of everything", :cache_point_first,
     insert(bedrock, ["messages", 0, "content"], 0, point)},
    {"a cache point of an unknown kind", :bad_cache_control,
     put(bedrock, ["system", 1, "cachePoint", "type"], "ephemeral")}
  ])

  test "bedrock: finds nothing in good bodies" do
    assert_good(unquote(Macro.escape(bedrock_small)), :bedrock)
    assert_good(unquote(Macro.escape(bedrock)), :bedrock)
  end

  test "bedrock: its options" do
    good = unquote(Macro.escape(bedrock))

    assert_good(good, :bedrock, model: "eu.anthropic.claude-sonnet-4-5-20250929-v1:0")
    assert :status_not_allowed in rules(good, :bedrock, model: "meta.llama3-70b-instruct-v1:0")
    assert [:tool_config_missing] = rules(good, :bedrock, tool_config: true)
    assert_good(Map.put(good, "toolConfig", %{"tools" => []}), :bedrock, tool_config: true)
  end

  ## Ollama

  ollama_small = %{"messages" => [%{"role" => "user", "content" => "hi"}]}

  ollama = %{
    "model" => "qwen3",
    "messages" => [
      %{"role" => "system", "content" => "Be brief."},
      %{"role" => "user", "content" => "What is in this?", "images" => [@png]},
      %{
        "role" => "assistant",
        "content" => "",
        "thinking" => "Let me see.",
        "tool_calls" => [
          %{
            "id" => "c 1",
            "function" => %{"index" => 0, "name" => "web.get", "arguments" => %{"a" => 1}}
          },
          %{"id" => "c2", "function" => %{"name" => "put", "arguments" => %{}}}
        ]
      },
      %{"role" => "tool", "content" => "one", "tool_name" => "web.get", "tool_call_id" => "c 1"},
      %{"role" => "tool", "content" => "two", "tool_name" => "put", "tool_call_id" => "c2"},
      %{"role" => "user", "content" => "", "images" => [@png]},
      %{"role" => "assistant", "content" => "Done."},
      %{"role" => "user", "content" => "Again!"},
      %{
        "role" => "assistant",
        "content" => "Yes.",
        "tool_calls" => [%{"function" => %{"name" => "get", "arguments" => %{}}}]
      },
      %{"role" => "tool", "content" => "three", "tool_name" => "get"}
    ]
  }

  call = ["messages", 2, "tool_calls", 0]

  mutations.(:ollama, ollama, [
    {"a dropped result", :missing_result, drop(ollama, ["messages", 4])},
    {"the last result dropped", :missing_result, drop(ollama, ["messages", 9])},
    {"a second result", :duplicate_result,
     insert(ollama, ["messages"], 4, %{
       "role" => "tool",
       "content" => "x",
       "tool_name" => "put",
       "tool_call_id" => "c2"
     })},
    {"a result without its call", :orphan_result,
     put(ollama, ["messages", 4, "tool_call_id"], "c9")},
    {"a result of another tool", :name_mismatch,
     put(ollama, ["messages", 4, "tool_name"], "get")},
    {"a result without the tool's name", :missing_key,
     drop(ollama, ["messages", 4, "tool_name"])},
    {"a user message in front of the results", :orphan_result,
     insert(ollama, ["messages"], 3, %{"role" => "user", "content" => "wait"})},
    {"swapped roles", :orphan_result, swap(ollama, ["messages"], 2, 3)},
    {"an id re-used in one turn", :duplicate_call_id, put(ollama, call ++ ["id"], "c2")},
    {"an unknown role", :bad_role, put(ollama, ["messages", 6, "role"], "model")},
    {"no messages", :empty_messages, put(ollama, ["messages"], [])},
    {"a list as content", :not_a_string,
     put(ollama, ["messages", 1, "content"], [%{"type" => "text", "text" => "hi"}])},
    {"a content of null", :not_a_string, put(ollama, ["messages", 2, "content"], nil)},
    {"a missing content", :missing_key, drop(ollama, ["messages", 2, "content"])},
    {"an emptied text", :blank_text, put(ollama, ["messages", 7, "content"], "")},
    {"an empty assistant message", :blank_text, put(ollama, ["messages", 6, "content"], "")},
    {"an empty tool result", :blank_text, put(ollama, ["messages", 3, "content"], " ")},
    {"arguments as JSON text", :arguments_not_object,
     put(ollama, call ++ ["function", "arguments"], "{\"a\":1}")},
    {"an empty list of calls", :empty_tool_calls, put(ollama, ["messages", 6, "tool_calls"], [])},
    {"a type on a call", :unknown_key, put(ollama, call ++ ["type"], "function")},
    {"an empty name", :bad_name, put(ollama, call ++ ["function", "name"], "")},
    {"an image by url", :bad_base64,
     put(ollama, ["messages", 1, "images", 0], "https://example.com/a.png")},
    {"a data: prefix", :data_prefix,
     put(ollama, ["messages", 1, "images", 0], "data:image/png;base64," <> @png)},
    {"an image of the assistant", :block_not_allowed,
     put(ollama, ["messages", 6, "images"], [@png])},
    {"a second system message", :system_position,
     insert(ollama, ["messages"], 7, %{"role" => "system", "content" => "Now in French."})},
    {"thinking of the user", :unknown_key, put(ollama, ["messages", 7, "thinking"], "hm")},
    {"an error flag", :unknown_key, put(ollama, ["messages", 3, "is_error"], true)}
  ])

  test "ollama: finds nothing in good bodies" do
    assert_good(unquote(Macro.escape(ollama_small)), :ollama)
    assert_good(unquote(Macro.escape(ollama)), :ollama)
  end

  ## Mistral

  mistral_small = %{"messages" => [%{"role" => "user", "content" => "hi"}]}

  mistral = %{
    "model" => "mistral-large-latest",
    "messages" => [
      %{"role" => "system", "content" => "Be brief."},
      %{
        "role" => "user",
        "content" => [
          %{"type" => "text", "text" => "What is in these?"},
          %{"type" => "image_url", "image_url" => "https://example.com/a.png"},
          %{"type" => "image_url", "image_url" => %{"url" => "data:image/png;base64," <> @png}}
        ]
      },
      %{
        "role" => "assistant",
        "content" => [
          %{
            "type" => "thinking",
            "thinking" => [%{"type" => "text", "text" => "Let me see."}],
            "signature" => @signature
          },
          %{"type" => "text", "text" => "I'll check."}
        ],
        "tool_calls" => [
          %{
            "id" => "abcDEF123",
            "type" => "function",
            "function" => %{"name" => "get", "arguments" => "{\"a\":1}"}
          },
          %{"id" => "abcDEF124", "function" => %{"name" => "put", "arguments" => %{}}}
        ]
      },
      %{"role" => "tool", "tool_call_id" => "abcDEF124", "name" => "put", "content" => "two"},
      %{"role" => "tool", "tool_call_id" => "abcDEF123", "name" => "get", "content" => "one"},
      %{"role" => "assistant", "content" => "Done.", "tool_calls" => []},
      %{"role" => "user", "content" => "And then?"}
    ]
  }

  call = ["messages", 2, "tool_calls", 0]

  mutations.(:mistral, mistral, [
    {"a dropped result", :missing_result, drop(mistral, ["messages", 3])},
    {"a second result", :duplicate_result,
     insert(mistral, ["messages"], 4, %{
       "role" => "tool",
       "tool_call_id" => "abcDEF124",
       "name" => "put",
       "content" => "again"
     })},
    {"a result without its call", :orphan_result,
     put(mistral, ["messages", 3, "tool_call_id"], "abcDEF129")},
    {"a result of another name", :name_mismatch, put(mistral, ["messages", 3, "name"], "get")},
    {"a result without a name", :missing_key, drop(mistral, ["messages", 3, "name"])},
    {"swapped roles", :orphan_result, swap(mistral, ["messages"], 2, 3)},
    {"a user message in front of the results", :orphan_result,
     insert(mistral, ["messages"], 3, %{"role" => "user", "content" => "wait"})},
    {"an id of ten characters", :bad_id, put(mistral, call ++ ["id"], "abcDEF1234")},
    {"a wrong id character", :bad_id, put(mistral, call ++ ["id"], "abc_EF123")},
    {"an id re-used in one turn", :duplicate_call_id, put(mistral, call ++ ["id"], "abcDEF124")},
    {"a wrong name character", :bad_name, put(mistral, call ++ ["function", "name"], "web.get")},
    {"arguments that are a list", :arguments_not_object,
     put(mistral, call ++ ["function", "arguments"], [1])},
    {"arguments that are no object's text", :arguments_not_json_object,
     put(mistral, call ++ ["function", "arguments"], "1")},
    {"an assistant message at the end", :last_not_user,
     append(mistral, ["messages"], %{"role" => "assistant", "content" => "Done."})},
    {"a system message behind the assistant", :system_position,
     insert(mistral, ["messages"], 6, %{"role" => "system", "content" => "Now in French."})},
    {"a prefix in the middle", :prefix_not_last, put(mistral, ["messages", 5, "prefix"], true)},
    {"an unknown role", :bad_role, put(mistral, ["messages", 0, "role"], "developer")},
    {"no messages", :empty_messages, put(mistral, ["messages"], [])},
    {"an emptied text", :blank_text, put(mistral, ["messages", 6, "content"], "")},
    {"a blank text", :blank_text, put(mistral, ["messages", 1, "content", 0, "text"], " ")},
    {"a content without parts", :empty_content, put(mistral, ["messages", 6, "content"], [])},
    {"neither content nor calls", :missing_content, drop(mistral, ["messages", 5, "content"])},
    {"an image of the assistant", :block_not_allowed,
     append(mistral, ["messages", 2, "content"], %{
       "type" => "image_url",
       "image_url" => "https://example.com/a.png"
     })},
    {"thinking of the user", :block_not_allowed,
     append(mistral, ["messages", 1, "content"], %{
       "type" => "thinking",
       "thinking" => [%{"type" => "text", "text" => "hm"}]
     })},
    {"thinking as a text", :not_a_list,
     put(mistral, ["messages", 2, "content", 0, "thinking"], "hm")},
    {"an empty signature", :blank_signature,
     put(mistral, ["messages", 2, "content", 0, "signature"], "")},
    {"bare base64 as an image url", :bad_url,
     put(mistral, ["messages", 1, "content", 1, "image_url"], @png)},
    {"a part of another provider", :unknown_block,
     put(mistral, ["messages", 1, "content", 0], %{"type" => "input_text", "text" => "hi"})},
    {"an error flag", :unknown_key, put(mistral, ["messages", 3, "is_error"], true)}
  ])

  test "mistral: finds nothing in good bodies" do
    assert_good(unquote(Macro.escape(mistral_small)), :mistral)
    assert_good(unquote(Macro.escape(mistral)), :mistral)

    prefixed = %{"role" => "assistant", "content" => "The answer is ", "prefix" => true}
    assert_good(append(unquote(Macro.escape(mistral)), ["messages"], prefixed), :mistral)
  end

  ## Real bodies

  # Beside the repository where it is developed, absent elsewhere.
  conversations = Path.expand("../../../../shared/conversations", __DIR__)

  for {file, provider} <- [
        {"10-anthropic-thinking-tool.json", :anthropic},
        {"13-openai-chat-agents.json", :openai_chat},
        {"15-gemini-signatures.json", :gemini},
        {"18-bedrock-reasoning.json", :bedrock}
      ],
      path = Path.join(conversations, file),
      File.exists?(path) do
    test "#{provider}: finds nothing in the recorded #{file}" do
      %{"body" => body} = unquote(path) |> File.read!() |> AshAgent.Context.JSON.decode!()
      assert_good(body, unquote(provider))
    end
  end

  session = Path.join(conversations, "07-tau-airline-2-1.json")

  if File.exists?(session) do
    test "openai_chat: finds the tool names and the empty results of the recorded session, nothing else" do
      body = unquote(session) |> File.read!() |> AshAgent.Context.JSON.decode!()

      assert [:blank_text, :unknown_key] =
               body |> rules(:openai_chat, []) |> Enum.uniq() |> Enum.sort()

      messages =
        for message <- body["messages"] do
          case message do
            %{"role" => "tool", "content" => ""} ->
              message |> Map.put("content", "(no output)") |> Map.delete("name")

            %{"role" => "tool"} ->
              Map.delete(message, "name")

            _ ->
              message
          end
        end

      assert_good(%{"messages" => messages}, :openai_chat)
    end
  end

  test "refuses what is no object" do
    for provider <- RequestChecker.providers(), body <- [nil, "hi", [], 1, %{messages: []}] do
      assert [_ | _] = RequestChecker.validate_request(body, provider)
    end
  end

  test "never raises, whatever stands in the place of a value" do
    bodies = [
      anthropic: unquote(Macro.escape(anthropic)),
      openai_chat: unquote(Macro.escape(chat)),
      openai_responses: unquote(Macro.escape(responses)),
      gemini: unquote(Macro.escape(gemini)),
      bedrock: unquote(Macro.escape(bedrock)),
      ollama: unquote(Macro.escape(ollama)),
      mistral: unquote(Macro.escape(mistral))
    ]

    for {provider, body} <- bodies,
        path <- paths(body),
        value <- [nil, true, 7, "", "x", [], [nil], ["x"], [[]], [%{}], %{}, %{"x" => 1}] do
      assert is_list(RequestChecker.validate_request(put(body, path, value), provider))
    end
  end

  test "formats findings for people" do
    findings = RequestChecker.validate_request(%{"messages" => []}, :anthropic)
    assert RequestChecker.format(findings) =~ "empty_messages at messages: an empty list"
  end

  test "knows its options" do
    assert_raise ArgumentError, fn ->
      RequestChecker.validate_request(%{}, :anthropic, unknown: true)
    end
  end

  defp assert_good(body, provider, opts \\ []) do
    findings = RequestChecker.validate_request(body, provider, opts)
    assert findings == [], RequestChecker.format(findings)
  end

  defp rules(body, provider, opts),
    do: body |> RequestChecker.validate_request(provider, opts) |> Enum.map(& &1.rule)

  defp paths(value) do
    children =
      cond do
        is_map(value) -> Map.to_list(value)
        is_list(value) -> value |> Enum.with_index() |> Enum.map(fn {item, i} -> {i, item} end)
        true -> []
      end

    Enum.flat_map(children, fn {key, child} -> [[key] | Enum.map(paths(child), &[key | &1])] end)
  end
end
