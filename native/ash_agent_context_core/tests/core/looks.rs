//! Histories in every form, said to be in every other: each is read with all that it says, or is an error that names it.

use crate::make::{defaults, reload, sent_with};
use ash_agent_context_core::{
    json, Context, Error, Imported, Options, Provider, Value, BODY_DEPTH,
};
use serde_json::{json, Value as Json};

/// A form: its name, the list of a request, its messages, and what is in them only in this form.
struct Form {
    name: &'static str,
    /// Whose requests may have it.
    of: &'static [Provider],
    list: &'static str,
    messages: Json,
    signs: &'static [&'static str],
}

const CHAT: &[Provider] = &[Provider::OpenAiChat, Provider::Mistral, Provider::Ollama];

/// The same conversation in each form: the user's "Hi", a call with "Oslo", its result "72", and the user's "Thanks".
fn forms() -> Vec<Form> {
    let arguments = r#"{"city":"Oslo"}"#;
    let (hi, thanks) = (
        json!({"role": "user", "content": "Hi"}),
        json!({"role": "user", "content": "Thanks"}),
    );
    let form = |name, of, list, messages, signs| Form {
        name,
        of,
        list,
        messages,
        signs,
    };
    let tool_use =
        json!({"type": "tool_use", "id": "abcdefghi", "name": "get", "input": {"city": "Oslo"}});
    let tool_result = json!({"type": "tool_result", "tool_use_id": "abcdefghi", "content": "72"});
    vec![
        form(
            "chat",
            CHAT,
            "messages",
            json!([hi,
                {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "get", "arguments": arguments}}]},
                {"role": "tool", "tool_call_id": "abcdefghi", "content": "72"}, thanks]),
            &[],
        ),
        form(
            "chat with functions",
            &[Provider::OpenAiChat, Provider::Mistral],
            "messages",
            json!([hi,
                {"role": "assistant", "content": null, "function_call": {"name": "get", "arguments": arguments}},
                {"role": "function", "name": "get", "content": "72"}, thanks]),
            &["function_call"],
        ),
        form(
            "Ollama",
            CHAT,
            "messages",
            json!([hi,
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get", "arguments": {"city": "Oslo"}}}]},
                {"role": "tool", "tool_name": "get", "content": "72"}, thanks]),
            &["tool_name"],
        ),
        form(
            "Anthropic",
            &[Provider::Anthropic],
            "messages",
            json!([hi, {"role": "assistant", "content": [tool_use]},
                {"role": "user", "content": [tool_result, {"type": "text", "text": "Thanks"}]}]),
            &["tool_use", "tool_result"],
        ),
        form(
            "Anthropic, results alone",
            &[Provider::Anthropic],
            "messages",
            json!([{"role": "user", "content": [tool_result]}, thanks]),
            &["tool_result"],
        ),
        form(
            "Responses",
            &[Provider::OpenAiResponses],
            "input",
            json!([hi,
                {"type": "function_call", "call_id": "abcdefghi", "name": "get", "arguments": arguments},
                {"type": "function_call_output", "call_id": "abcdefghi", "output": "72"}, thanks]),
            &["function_call", "function_call_output"],
        ),
        form(
            "Gemini",
            &[Provider::Gemini],
            "contents",
            json!([{"role": "user", "parts": [{"text": "Hi"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "get", "args": {"city": "Oslo"}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "get", "response": {"output": "72"}}}]},
                {"role": "user", "parts": [{"text": "Thanks"}]}]),
            &["functionCall", "functionResponse"],
        ),
        form(
            "Gemini in snake_case",
            &[Provider::Gemini],
            "contents",
            json!([{"role": "user", "parts": [{"text": "Hi"}]},
                {"role": "model", "parts": [{"function_call": {"name": "get", "args": {"city": "Oslo"}}}]},
                {"role": "user", "parts": [{"function_response": {"name": "get", "response": {"output": "72"}}}]},
                {"role": "user", "parts": [{"text": "Thanks"}]}]),
            &["function_call", "function_response"],
        ),
        form(
            "Bedrock",
            &[Provider::Bedrock],
            "messages",
            json!([{"role": "user", "content": [{"text": "Hi"}]},
                {"role": "assistant", "content": [{"toolUse": {"toolUseId": "abcdefghi", "name": "get", "input": {"city": "Oslo"}}}]},
                {"role": "user", "content": [{"toolResult": {"toolUseId": "abcdefghi", "content": [{"text": "72"}]}}]},
                {"role": "user", "content": [{"text": "Thanks"}]}]),
            &["toolUse", "toolResult"],
        ),
        form(
            "Vercel UI",
            &[],
            "messages",
            json!([{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]},
                {"id": "2", "role": "assistant", "parts": [{"type": "step-start"},
                    {"type": "tool-get", "toolCallId": "abcdefghi", "state": "output-available", "input": {"city": "Oslo"}, "output": "72"}]},
                {"id": "3", "role": "user", "parts": [{"type": "text", "text": "Thanks"}]}]),
            &["tool-get"],
        ),
        form(
            "Vercel UI of version 4",
            &[],
            "messages",
            json!([hi,
                {"role": "assistant", "content": "", "toolInvocations": [{"state": "result", "toolCallId": "abcdefghi", "toolName": "get", "args": {"city": "Oslo"}, "result": "72"}]},
                thanks]),
            &["toolInvocations"],
        ),
        form(
            "Vercel's model messages",
            &[],
            "messages",
            json!([hi,
                {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "abcdefghi", "toolName": "get", "input": {"city": "Oslo"}}]},
                {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "abcdefghi", "toolName": "get", "output": {"type": "text", "value": "72"}}]},
                thanks]),
            &["tool-call", "tool-result"],
        ),
        form(
            "LangChain's model_dump",
            &[],
            "messages",
            json!([{"type": "human", "content": "Hi"},
                {"type": "ai", "content": "", "tool_calls": [{"id": "abcdefghi", "name": "get", "args": {"city": "Oslo"}, "type": "tool_call"}]},
                {"type": "tool", "content": "72", "tool_call_id": "abcdefghi"},
                {"type": "human", "content": "Thanks"}]),
            &["human"],
        ),
        form(
            "LangChain's messages_to_dict",
            &[],
            "messages",
            json!([{"type": "human", "data": {"content": "Hi"}},
                {"type": "ai", "data": {"content": "", "tool_calls": [{"id": "abcdefghi", "name": "get", "args": {"city": "Oslo"}}]}},
                {"type": "tool", "data": {"content": "72", "tool_call_id": "abcdefghi"}},
                {"type": "human", "data": {"content": "Thanks"}}]),
            &["human"],
        ),
        form(
            "LangChain's dumps",
            &[],
            "messages",
            json!([{"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "Hi"}},
                {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": {"content": "", "tool_calls": [{"id": "abcdefghi", "name": "get", "args": {"city": "Oslo"}}]}},
                {"lc": 1, "type": "constructor", "id": ["langchain", "ToolMessage"], "kwargs": {"content": "72", "tool_call_id": "abcdefghi"}},
                {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "Thanks"}}]),
            &["kwargs"],
        ),
        form(
            "ours",
            &[],
            "messages",
            json!([{"role": "user", "content": "Hi"},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefghi", "name": "get", "arguments": {"city": "Oslo"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "abcdefghi", "content": "72"}]},
                thanks]),
            &["tool_result"],
        ),
        form(
            "Anthropic's images and thinking",
            &[Provider::Anthropic],
            "messages",
            json!([{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "c2ln"}, {"type": "text", "text": "Oslo"}]}]),
            &["media_type"],
        ),
        form(
            "words under another key",
            &[],
            "messages",
            json!([{"role": "user", "text": "Hi"}]),
            &["text"],
        ),
        form(
            "attachments of the Vercel AI SDK",
            &[],
            "messages",
            json!([{"role": "user", "content": "Hi", "experimental_attachments": [{"url": "https://example.com/Oslo.png"}]}]),
            &["experimental_attachments"],
        ),
        form(
            "a transcript of Claude Code",
            &[],
            "messages",
            json!([{"type": "user", "isSidechain": false, "uuid": "1", "message": {"role": "user", "content": "Hi"}}]),
            &["isSidechain"],
        ),
        form(
            "a transcript of Codex",
            &[],
            "messages",
            json!([{"type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}}]),
            &["payload"],
        ),
        form(
            "calls with input",
            &[],
            "messages",
            json!([{"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "get", "parameters": {"city": "Oslo"}}}]}]),
            &["parameters"],
        ),
        form(
            "ShareGPT",
            &[],
            "messages",
            json!([{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Oslo"}, {"from": "tool", "value": "72"}, {"from": "human", "value": "Thanks"}]),
            &["human"],
        ),
    ]
}

fn body(list: &str, messages: &Json) -> Value {
    let text = json!({ list: messages }).to_string();
    json::read(text.as_bytes(), BODY_DEPTH).unwrap()
}

/// What is wrong with an import, which has all that the history says, or is an error with words.
fn problems(
    form: &Form,
    messages: &Json,
    read: Result<Imported, Error>,
    to: Option<Provider>,
) -> Vec<String> {
    let imported = match read {
        Ok(imported) => imported,
        Err(error) => {
            let is_own = to.is_some_and(|to| form.of.contains(&to));
            let words = error.to_string();
            let is_wrong = is_own
                || !["looks like", "a list of", "arguments under the key"]
                    .iter()
                    .any(|word| words.contains(word));
            return is_wrong.then_some(words).into_iter().collect();
        }
    };
    let text = messages.to_string();
    let is_told = |word: &&&str| **word == "72" && !imported.repairs.is_empty();
    let said = ["Hi", "Oslo", "72", "Thanks"];
    let said = said
        .iter()
        .filter(|word| text.contains(**word) && !is_told(word));
    let said: Vec<_> = said.collect();
    let mut found = Vec::new();
    for context in [&imported.context, &reload(&imported.context)] {
        for provider in Provider::ALL {
            let sent = sent_with(context, &Options::new(provider));
            let missing = said.iter().filter(|word| !sent.contains(***word));
            found.extend(missing.map(|word| format!("{word} is missing, {provider:?}: {sent}")));
            // Signs of this form are in no request of a provider that does not have them.
            let knows = |sign: &&&str| {
                let mut forms = forms()
                    .into_iter()
                    .filter(|other| other.of.contains(&provider));
                forms.any(|other| other.signs.contains(*sign))
            };
            let signs = form.signs.iter().filter(|sign| !knows(sign));
            let foreign = signs.filter(|sign| sent.contains(&format!("\"{sign}\"")));
            found.extend(foreign.map(|sign| format!("{sign} is passed on, {provider:?}: {sent}")));
        }
    }
    found
}

#[test]
fn every_form_is_read_or_named_whatever_it_is_said_to_be() {
    let mut all = Vec::new();
    for form in forms() {
        let whole = form.messages.as_array().unwrap();
        // A history may begin anywhere.
        for messages in (0..whole.len()).map(|start| json!(whole[start..])) {
            let mut tell = |what: String, read, to| {
                let found = problems(&form, &messages, read, to).into_iter().take(1);
                all.extend(found.map(|problem| format!("{} as {what}: {problem}", form.name)));
            };
            for provider in Provider::ALL {
                for list in ["messages", "input", "contents"] {
                    let read = Context::from_request(body(list, &messages), provider, defaults());
                    let to = Some(provider).filter(|_| list == form.list);
                    tell(format!("{list} of {provider:?}"), read, to);
                }
            }
            let list = json::read(messages.to_string().as_bytes(), BODY_DEPTH).unwrap();
            tell(
                "messages".to_owned(),
                Context::from_messages(list, defaults()),
                None,
            );
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}
