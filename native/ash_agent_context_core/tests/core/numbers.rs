//! Numbers that no float can hold: contexts keep them, and JSON readers refuse them.

use crate::make::{conversation, defaults, reload, stamp, value, Talk};
use ash_agent_context_core::{
    json, time, ChangeKind, Context, Error, Map, Options, Provider, Value,
};

fn power(digits: usize) -> String {
    format!("1{}", "0".repeat(digits))
}

/// The numbers that a request to a provider has as texts, as its report has them; and whether JSON readers take the request,
/// which says the same with the numbers as texts.
fn texts(context: &Context, provider: Provider, number: &str) -> usize {
    let options = Options::new(provider);
    let segments = context.encode_request(&options, &Map::default()).unwrap();
    let body: Vec<u8> = segments
        .iter()
        .flat_map(|part| part.bytes().to_vec())
        .collect();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let told = context.request_report(&options).unwrap();
    let told = told
        .iter()
        .filter(|located| located.change.what == ChangeKind::NumberToText);
    let told = told.inspect(|located| {
        assert_eq!(located.change.from, number);
        assert_eq!(
            located.change.to.as_deref(),
            Some(&*format!("\"{number}\""))
        );
    });
    let told = told.count();
    assert_eq!(count(&body, number), told, "{provider:?}");
    told
}

fn count(value: &serde_json::Value, text: &str) -> usize {
    match value {
        serde_json::Value::String(said) => usize::from(said == text),
        serde_json::Value::Array(items) => items.iter().map(|item| count(item, text)).sum(),
        serde_json::Value::Object(fields) => fields.values().map(|item| count(item, text)).sum(),
        _ => 0,
    }
}

/// A turn with a call of this argument and a result in a map.
fn turn(context: &Context, argument: &str, result: &str) -> Context {
    let calls = format!(r#"[{{"id":"call_1","name":"f","arguments":{{"a":[{argument}]}}}}]"#);
    let called = context.add_assistant_message(Value::text("a"), value(&calls), stamp());
    called.unwrap().answers(&[("call_1", value(result))])
}

#[test]
fn a_request_has_them_as_texts_where_they_would_be_numbers() {
    let huge = format!("-{}", power(400));
    let asked = turn(&conversation("Hi"), &format!("{huge},[{huge}]"), r#""1""#);
    let answered = turn(&conversation("Hi"), "1", &format!(r#"{{"n":{huge}}}"#));
    let table = [
        (Provider::Anthropic, 2, 0),
        (Provider::OpenAiChat, 0, 0),
        (Provider::OpenAiResponses, 0, 0),
        (Provider::Gemini, 2, 1),
        (Provider::Bedrock, 2, 1),
        (Provider::Ollama, 2, 0),
        (Provider::Mistral, 0, 0),
    ];
    for (provider, of_call, of_result) in table {
        // A second time from what is kept.
        for _ in 0..2 {
            assert_eq!(texts(&asked, provider, &huge), of_call, "{provider:?}");
            assert_eq!(texts(&answered, provider, &huge), of_result, "{provider:?}");
        }
        let body = value(&format!(r#"{{"tools":[{{"most":{huge}}}]}}"#));
        let Value::Map(body) = body else { panic!() };
        let context = conversation("Hi");
        let refused = context.encode_request(&Options::new(provider), &body);
        let Err(Error::Invalid { path, expected }) = refused.map(|_| ()) else {
            panic!()
        };
        assert_eq!(expected, "a number that a float can hold");
        let path = json::write(&Value::List(path.into()));
        assert_eq!(path, r#"["tools",0,"most"]"#);
    }
    let loaded = reload(&asked);
    assert!(loaded == asked);
}

#[test]
fn it_is_found_among_hundreds_of_messages_and_hidden_it_does_not_matter() {
    let plain = |context: Context| (0..300).fold(context, |context, _| turn(&context, "1", "{}"));
    let before = plain(conversation("Hi"));
    let context = plain(turn(&before, &power(309), "{}"));
    for _ in 0..3 {
        assert_eq!(texts(&context, Provider::Anthropic, &power(309)), 1);
    }
    let seen = context.keep_last_iterations(300, time::from_micros(0).unwrap());
    assert_eq!(texts(&seen, Provider::Anthropic, &power(309)), 0);
}

#[test]
fn what_a_float_can_hold_and_what_stands_in_a_text_is_sent_as_it_is() {
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
            assert_eq!(texts(&context, provider, number), 0, "{number}");
        }
    }
}

#[test]
fn cache_breakpoints_keep_their_place_behind_them() {
    let marked = |argument: &str| {
        let context = turn(&conversation("Hi"), argument, r#""1""#);
        let options = Options {
            cache: true,
            ..Options::new(Provider::Anthropic)
        };
        let segments = context.encode_request(&options, &Map::default()).unwrap();
        let body = segments.iter().flat_map(|part| part.bytes().to_vec());
        String::from_utf8(body.collect()).unwrap()
    };
    let text = marked(&format!("\"{}\"", power(400)));
    assert!(text.contains("cache_control"));
    assert_eq!(marked(&power(400)), text);
}

#[test]
fn what_was_imported_with_one_is_written_anew() {
    let huge = power(400);
    let bodies = [
        (
            Provider::OpenAiChat,
            format!(r#"[{{"role":"user","content":"Hi","weight":{huge}}}]"#),
            0,
        ),
        (
            Provider::Anthropic,
            format!(
                r#"[{{"role":"user","content":"Hi"}},
                    {{"role":"assistant","content":[{{"type":"tool_use","id":"t1","name":"f","input":{{"n":{huge}}}}}]}},
                    {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1","content":"1"}}]}}]"#
            ),
            1,
        ),
    ];
    for (provider, messages, found) in bodies {
        let body = format!(r#"{{"messages":{messages}}}"#);
        let context = Context::from_request(Value::text(&body), provider, defaults());
        let context = context.unwrap().context;
        for context in [&context, &reload(&context)] {
            assert_eq!(texts(context, provider, &huge), found, "{provider:?}");
            let mistral = Options::new(Provider::Mistral);
            assert!(context.encode_request(&mistral, &Map::default()).is_ok());
        }
    }
}
