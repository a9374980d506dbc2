//! What a model says, in each provider's form.

use ash_agent_context_core::Provider;
use serde_json::{json, Value as Json};

/// What a model says, in no provider's form.
#[derive(Debug, Clone, Default)]
pub struct Saying {
    pub thinking: Vec<String>,
    pub text: Vec<String>,
    pub calls: Vec<(String, Vec<String>, String)>,
    pub usage: (u32, u32),
}

impl Saying {
    pub fn thought(&self) -> String {
        self.thinking.concat()
    }

    pub fn said(&self) -> String {
        self.text.concat()
    }
}

/// The same in a provider's forms: a stream's documents, and a whole answer.
pub fn forms(provider: Provider, saying: &Saying) -> (Vec<Json>, Json) {
    let [plain, calls] = match provider {
        Provider::Anthropic | Provider::Bedrock => ["end_turn", "tool_use"],
        Provider::Gemini => ["STOP"; 2],
        Provider::Ollama => ["stop"; 2],
        Provider::OpenAiResponses => ["completed"; 2],
        Provider::OpenAiChat | Provider::Mistral => ["stop", "tool_calls"],
    };
    let word = [plain, calls][usize::from(!saying.calls.is_empty())];
    ended(provider, saying, &json!(word))
}

/// The same with this word for its end.
pub fn ended(provider: Provider, saying: &Saying, word: &Json) -> (Vec<Json>, Json) {
    match provider {
        Provider::Anthropic => anthropic(saying, word),
        Provider::Bedrock => bedrock(saying, word),
        Provider::Gemini => gemini(saying, word),
        Provider::Ollama => ollama(saying, word),
        Provider::OpenAiResponses => responses(saying, word),
        Provider::OpenAiChat => chat(saying, word, false),
        Provider::Mistral => chat(saying, word, true),
    }
}

pub fn parsed(pieces: &[String]) -> Json {
    serde_json::from_str(&pieces.concat()).unwrap()
}

fn anthropic(saying: &Saying, word: &Json) -> (Vec<Json>, Json) {
    let (input, output) = saying.usage;
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "m",
        "content": [], "usage": {"input_tokens": input, "output_tokens": 1}}}),
    ];
    let mut blocks = Vec::new();
    let mut block = |start: Json, deltas: Vec<Json>, whole: Json| {
        let index = blocks.len();
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
        blocks.push(whole);
    };
    if !saying.thought().is_empty() {
        let mut deltas: Vec<Json> = saying
            .thinking
            .iter()
            .map(|piece| json!({"type": "thinking_delta", "thinking": piece}))
            .collect();
        deltas.push(json!({"type": "signature_delta", "signature": "sig"}));
        block(
            json!({"type": "thinking", "thinking": ""}),
            deltas,
            json!({"type": "thinking", "thinking": saying.thought(), "signature": "sig"}),
        );
    }
    if !saying.text.is_empty() {
        let deltas = saying
            .text
            .iter()
            .map(|piece| json!({"type": "text_delta", "text": piece}))
            .collect();
        block(
            json!({"type": "text", "text": ""}),
            deltas,
            json!({"type": "text", "text": saying.said()}),
        );
    }
    for (name, pieces, id) in &saying.calls {
        let deltas = pieces
            .iter()
            .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}))
            .collect();
        block(
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            deltas,
            json!({"type": "tool_use", "id": id, "name": name, "input": parsed(pieces)}),
        );
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": output}}));
    events.push(json!({"type": "message_stop"}));
    let whole = json!({"type": "message", "id": "msg_1", "model": "m", "content": blocks, "stop_reason": word,
        "usage": {"input_tokens": input, "output_tokens": output}});
    (events, whole)
}

fn bedrock(saying: &Saying, word: &Json) -> (Vec<Json>, Json) {
    let mut events = vec![json!({"messageStart": {"role": "assistant", "p": "ab"}})];
    let mut blocks = Vec::new();
    let mut block = |start: Option<Json>, deltas: Vec<Json>, whole: Json| {
        let index = blocks.len();
        if let Some(start) = start {
            events.push(json!({"contentBlockStart": {"contentBlockIndex": index, "start": start}}));
        }
        for delta in deltas {
            events.push(json!({"contentBlockDelta": {"contentBlockIndex": index, "delta": delta, "p": "abc"}}));
        }
        events.push(json!({"contentBlockStop": {"contentBlockIndex": index}}));
        blocks.push(whole);
    };
    if !saying.thought().is_empty() {
        let mut deltas: Vec<Json> = saying
            .thinking
            .iter()
            .map(|piece| json!({"reasoningContent": {"text": piece}}))
            .collect();
        deltas.push(json!({"reasoningContent": {"signature": "sig"}}));
        block(
            None,
            deltas,
            json!({"reasoningContent": {"reasoningText": {"text": saying.thought(), "signature": "sig"}}}),
        );
    }
    if !saying.text.is_empty() {
        let deltas = saying
            .text
            .iter()
            .map(|piece| json!({"text": piece}))
            .collect();
        block(None, deltas, json!({"text": saying.said()}));
    }
    for (name, pieces, id) in &saying.calls {
        let deltas = pieces
            .iter()
            .map(|piece| json!({"toolUse": {"input": piece}}))
            .collect();
        block(
            Some(json!({"toolUse": {"toolUseId": id, "name": name}})),
            deltas,
            json!({"toolUse": {"toolUseId": id, "name": name, "input": parsed(pieces)}}),
        );
    }
    let usage =
        json!({"inputTokens": saying.usage.0, "outputTokens": saying.usage.1, "totalTokens": 0});
    events.push(json!({"messageStop": {"stopReason": word}}));
    events.push(json!({"metadata": {"usage": usage}}));
    let whole = json!({"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": word, "usage": usage});
    (events, whole)
}

fn gemini(saying: &Saying, word: &Json) -> (Vec<Json>, Json) {
    let usage = json!({"promptTokenCount": saying.usage.0, "candidatesTokenCount": saying.usage.1});
    let answer = |parts: Vec<Json>, reason: &Json| {
        json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason, "index": 0}],
            "usageMetadata": usage, "modelVersion": "m", "responseId": "r"})
    };
    let mut events = Vec::new();
    let mut whole = Vec::new();
    for piece in &saying.thinking {
        events.push(answer(
            vec![json!({"text": piece, "thought": true})],
            &Json::Null,
        ));
    }
    whole.push(json!({"text": saying.thought(), "thought": true}));
    for piece in &saying.text {
        events.push(answer(vec![json!({"text": piece})], &Json::Null));
    }
    whole.push(json!({"text": saying.said()}));
    for (name, pieces, id) in &saying.calls {
        let part = json!({"functionCall": {"name": name, "id": id, "args": parsed(pieces)}, "thoughtSignature": "c2ln"});
        events.push(answer(vec![part.clone()], &Json::Null));
        whole.push(part);
    }
    events.push(answer(vec![json!({"text": ""})], word));
    (events, answer(whole, word))
}

fn ollama(saying: &Saying, word: &Json) -> (Vec<Json>, Json) {
    let mut events: Vec<Json> = Vec::new();
    let message = |message: Json| json!({"model": "m", "message": message, "done": false});
    for piece in &saying.thinking {
        events.push(message(
            json!({"role": "assistant", "content": "", "thinking": piece}),
        ));
    }
    for piece in &saying.text {
        events.push(message(json!({"role": "assistant", "content": piece})));
    }
    let calls: Vec<Json> = saying
        .calls
        .iter()
        .map(|(name, pieces, id)| json!({"id": id, "function": {"name": name, "arguments": parsed(pieces)}}))
        .collect();
    for call in &calls {
        events.push(message(
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
        ));
    }
    let end = json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true,
        "done_reason": word, "prompt_eval_count": saying.usage.0, "eval_count": saying.usage.1});
    let mut whole = end.clone();
    whole["message"] = json!({"role": "assistant", "content": saying.said(), "thinking": saying.thought(), "tool_calls": calls});
    events.push(end);
    (events, whole)
}

fn responses(saying: &Saying, word: &Json) -> (Vec<Json>, Json) {
    let mut events = vec![
        json!({"type": "response.created", "response": {"id": "resp_1", "model": "m", "status": "in_progress"}}),
    ];
    let mut output = Vec::new();
    let mut item = |added: Json, deltas: Vec<Json>, done: Json| {
        let index = output.len();
        events.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": added}),
        );
        for mut delta in deltas {
            delta["output_index"] = json!(index);
            events.push(delta);
        }
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": done}),
        );
        output.push(done);
    };
    if !saying.thought().is_empty() {
        let deltas = saying.thinking.iter().map(|piece| {
            json!({"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": piece})
        }).collect();
        item(
            json!({"type": "reasoning", "id": "rs_0", "summary": []}),
            deltas,
            json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "e",
                "summary": [{"type": "summary_text", "text": saying.thought()}]}),
        );
    }
    if !saying.text.is_empty() {
        let deltas = saying.text.iter().map(|piece| {
        json!({"type": "response.output_text.delta", "content_index": 0, "delta": piece})
    }).collect();
        item(
            json!({"type": "message", "id": "msg_0", "content": []}),
            deltas,
            json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": saying.said(), "annotations": []}]}),
        );
    }
    for (name, pieces, id) in &saying.calls {
        let deltas = pieces
            .iter()
            .map(|piece| json!({"type": "response.function_call_arguments.delta", "delta": piece}))
            .collect();
        let call = |arguments: &str| {
            json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id,
            "name": name, "arguments": arguments, "status": "completed"})
        };
        item(call(""), deltas, call(&pieces.concat()));
    }
    let mut whole = json!({"object": "response", "id": "resp_1", "model": "m", "output": output,
        "usage": {"input_tokens": saying.usage.0, "output_tokens": saying.usage.1}});
    // The word is a status, or the reason of one that is incomplete.
    let mut closed = "response.completed";
    match word.as_str() {
        None => {}
        Some(status @ ("completed" | "cancelled")) => whole["status"] = json!(status),
        Some(reason) => {
            closed = "response.incomplete";
            whole["status"] = json!("incomplete");
            whole["incomplete_details"] = json!({"reason": reason});
        }
    }
    events.push(json!({"type": closed, "response": whole}));
    (events, whole)
}

fn chat(saying: &Saying, word: &Json, in_lists: bool) -> (Vec<Json>, Json) {
    let mut events = Vec::new();
    let chunk = |delta: Json, reason: &Json| json!({"id": "chatcmpl_1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let think =
        |text: &str| json!([{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]);
    for piece in &saying.thinking {
        events.push(match in_lists {
            true => chunk(json!({"content": think(piece)}), &Json::Null),
            false => chunk(json!({"reasoning_content": piece}), &Json::Null),
        });
    }
    for piece in &saying.text {
        events.push(match in_lists {
            true => chunk(
                json!({"content": [{"type": "text", "text": piece}]}),
                &Json::Null,
            ),
            false => chunk(json!({"content": piece}), &Json::Null),
        });
    }
    for (index, (name, pieces, id)) in saying.calls.iter().enumerate() {
        events.push(chunk(
            json!({"tool_calls": [{"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": ""}}]}),
            &Json::Null,
        ));
        for piece in pieces {
            events.push(chunk(
                json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}),
                &Json::Null,
            ));
        }
    }
    let usage = json!({"prompt_tokens": saying.usage.0, "completion_tokens": saying.usage.1});
    events.push(chunk(json!({}), word));
    events.push(json!({"id": "chatcmpl_1", "model": "m", "choices": [], "usage": usage}));
    let calls: Vec<Json> = saying.calls.iter().map(|(name, pieces, id)| {
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": pieces.concat()}})
    }).collect();
    let message = match in_lists {
        true => {
            let mut content = think(&saying.thought());
            content
                .as_array_mut()
                .unwrap()
                .push(json!({"type": "text", "text": saying.said()}));
            json!({"role": "assistant", "content": content, "tool_calls": calls})
        }
        false => {
            json!({"role": "assistant", "content": saying.said(), "reasoning_content": saying.thought(),
            "tool_calls": calls})
        }
    };
    let whole = json!({"id": "chatcmpl_1", "model": "m", "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": word}]});
    (events, whole)
}
