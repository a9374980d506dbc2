//! A rewound conversation is as if what came later had never been.

use crate::make::{at, conversation, defaults, reload, sent, Talk};
use ash_agent_context_core::{json, Context, Provider, Value};

/// A call and its result.
fn tool(context: &Context, id: &str, result: Value) -> Context {
    let call = format!("[{{\"id\": \"{id}\", \"name\": \"f\"}}]");
    context.calls(&call).answers(&[(id, result)])
}

#[test]
fn reports_that_came_after_the_results_count_at_every_iteration() {
    let usage = json::read(br#"{"input_tokens": 1, "output_tokens": 1}"#, 3).unwrap();
    let mut context = conversation("hi");
    for number in 1..=40 {
        context = tool(&context, &format!("call_{number}"), Value::text("r"));
        context = context.add_token_usage(usage.clone(), at(0)).unwrap();
    }
    for number in 1..=40 {
        let rewound = context.rewind(number).unwrap();
        assert_eq!(rewound.usage().input, u64::try_from(number).unwrap());
        let loaded = reload(&rewound);
        assert_eq!(loaded.usage(), rewound.usage());
    }
}

#[test]
fn an_imported_element_gives_up_what_was_rewound() {
    let anthropic = r#"{"messages":[{"role":"user","content":"q"},
        {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"R"},{"type":"text","text":"LATER"}]},
        {"role":"assistant","content":"answer"}]}"#;
    let bedrock = r#"{"messages":[{"role":"user","content":[{"text":"q"}]},
        {"role":"assistant","content":[{"toolUse":{"toolUseId":"a","name":"f","input":{}}}]},
        {"role":"user","content":[{"toolResult":{"toolUseId":"a","content":[{"text":"R"}]}},{"text":"LATER"}]},
        {"role":"assistant","content":[{"text":"answer"}]}]}"#;
    let gemini = r#"{"contents":[{"role":"user","parts":[{"text":"q"}]},
        {"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]},
        {"role":"user","parts":[{"functionResponse":{"name":"f","response":{"output":"R"}}},{"text":"LATER"}]},
        {"role":"model","parts":[{"text":"answer"}]}]}"#;
    for (body, provider) in [
        (anthropic, Provider::Anthropic),
        (bedrock, Provider::Bedrock),
        (gemini, Provider::Gemini),
    ] {
        let imported = Context::from_request(Value::text(body), provider, defaults()).unwrap();
        let rewound = imported.context.rewind(1).unwrap();
        for context in [rewound.user("more"), rewound] {
            let sent = sent(&context, provider);
            assert!(!sent.contains("LATER"), "{provider:?}: {sent}");
            assert!(sent.contains('R'), "{provider:?}: {sent}");
        }
        // Loaded again onto what it was a part of, it is as it was.
        let delta = json::read(&imported.context.delta(2).unwrap(), 100).unwrap();
        let loaded = imported.context.load_delta(delta).unwrap();
        assert_eq!(loaded, imported.context, "{provider:?}");
    }
}

#[test]
fn whoever_alone_has_what_was_rewound_is_heavy_to_drop() {
    let heavy = Value::List(vec![Value::Int(1); 30_000].into());
    let mut context = conversation("hi");
    for number in 0..60 {
        context = tool(&context, &format!("call_{number}"), heavy.clone());
    }
    let rewound = context.rewind(1).unwrap();
    drop(context);
    let mut next = rewound.clone();
    for _ in 0..50 {
        next = next.user("question").says("answer");
    }
    assert!(rewound.is_heavy_to_drop());
}

#[test]
fn whoever_alone_has_summaries_is_heavy_to_drop() {
    let long = "so many words of which little is left ".repeat(8);
    let mut context = conversation(&long);
    for _ in 0..3_000 {
        context = context.says(&long).user("next");
    }
    for number in 1..=1_000 {
        context = context
            .summarize(3 * number, 3 * number, "s", at(0))
            .unwrap();
    }
    let expanded = context.expand(1, 3_000, at(0));
    assert!(context.is_heavy_to_drop());
    assert_eq!(expanded.count_messages(), expanded.all_messages().count());
}
