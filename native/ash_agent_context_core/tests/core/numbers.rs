//! Numbers that no float can hold: contexts keep them, and JSON readers refuse them.

use crate::make::{conversation, defaults, reload, stamp, value, Talk};
use ash_agent_context_core::{json, time, Context, Error, Map, Options, Provider, Value};

fn power(digits: usize) -> String {
    format!("1{}", "0".repeat(digits))
}

/// What a request to a provider is refused for: the way to a number.
fn refused(context: &Context, provider: Provider, body: &str) -> Option<String> {
    let Value::Map(body) = value(body) else {
        return None;
    };
    match context.encode_request(&Options::new(provider), &body) {
        Ok(_) => None,
        Err(Error::Invalid { path, expected }) => {
            assert_eq!(expected, "a number that a float can hold");
            Some(json::write(&Value::List(path.into())))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// A turn with a call of this argument and a result in a map.
fn turn(context: &Context, argument: &str, result: &str) -> Context {
    let calls = format!(r#"[{{"id":"call_1","name":"f","arguments":{{"a":[{argument}]}}}}]"#);
    let called = context.add_assistant_message(Value::text("a"), value(&calls), stamp());
    called.unwrap().answers(&[("call_1", value(result))])
}

#[test]
fn a_request_with_one_is_refused_where_it_stands_as_a_number() {
    let huge = format!("-{}", power(400));
    let asked = turn(&conversation("Hi"), &huge, r#""1""#);
    let answered = turn(&conversation("Hi"), "1", &format!(r#"{{"n":{huge}}}"#));
    let table = [
        (
            Provider::Anthropic,
            Some(r#"["messages",1,"content",1,"input","a",0]"#),
            None,
        ),
        (Provider::OpenAiChat, None, None),
        (Provider::OpenAiResponses, None, None),
        (
            Provider::Gemini,
            Some(r#"["contents",1,"parts",1,"functionCall","args","a",0]"#),
            Some(r#"["contents",2,"parts",0,"functionResponse","response","n"]"#),
        ),
        (
            Provider::Bedrock,
            Some(r#"["messages",1,"content",1,"toolUse","input","a",0]"#),
            Some(r#"["messages",2,"content",0,"toolResult","content",0,"json","n"]"#),
        ),
        (
            Provider::Ollama,
            Some(r#"["messages",1,"tool_calls",0,"function","arguments","a",0]"#),
            None,
        ),
        (Provider::Mistral, None, None),
    ];
    for (provider, of_call, of_result) in table {
        // A second time from what is kept.
        for _ in 0..2 {
            let found = refused(&asked, provider, "{}");
            assert_eq!(found.as_deref(), of_call, "{provider:?}");
            let found = refused(&answered, provider, "{}");
            assert_eq!(found.as_deref(), of_result, "{provider:?}");
        }
        let body = format!(r#"{{"max_tokens":{huge}}}"#);
        let found = refused(&conversation("Hi"), provider, &body);
        assert_eq!(found.as_deref(), Some(r#"["max_tokens"]"#));
    }
    let loaded = reload(&asked);
    assert!(loaded == asked);
}

#[test]
fn it_is_found_among_hundreds_of_messages_and_hidden_it_does_not_matter() {
    let plain = |context: Context| (0..300).fold(context, |context, _| turn(&context, "1", "{}"));
    let before = plain(conversation("Hi"));
    let context = plain(turn(&before, &power(309), "{}"));
    let path = r#"["messages",601,"content",1,"input","a",0]"#;
    for _ in 0..3 {
        let found = refused(&context, Provider::Anthropic, "{}");
        assert_eq!(found.as_deref(), Some(path));
    }
    let seen = context.keep_last_iterations(300, time::from_micros(0).unwrap());
    assert_eq!(refused(&seen, Provider::Anthropic, "{}"), None);
}

#[test]
fn what_a_float_can_hold_and_what_stands_in_a_text_is_sent() {
    let largest = format!("{:.0}", f64::MAX);
    let digits = "0123456789".repeat(200);
    for number in [
        &power(308),
        &largest,
        &format!("\"{digits}\""),
        &format!("\"\\\"{digits}\""),
    ] {
        let context = turn(&conversation("Hi"), number, &format!(r#"{{"n":{number}}}"#));
        for provider in Provider::ALL {
            assert_eq!(refused(&context, provider, "{}"), None, "{number}");
        }
    }
}

#[test]
fn it_is_found_in_what_was_imported() {
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"Hi","weight":{}}}]}}"#,
        power(400)
    );
    let _at = time::from_micros(0).unwrap();
    let provider = Provider::OpenAiChat;
    let context = Context::from_request(Value::text(&body), provider, defaults());
    let context = context.unwrap().context;
    let path = r#"["messages",0,"weight"]"#;
    assert_eq!(refused(&context, provider, "{}").as_deref(), Some(path));
    assert!(context
        .encode_request(&Options::new(Provider::Mistral), &Map::default())
        .is_ok());
}
