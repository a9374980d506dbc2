//! Addresses of media: none that a provider must not be told to fetch goes to one.

use crate::make::{conversation, defaults, json_sent, reload, results, stamp, value, Talk};
use ash_agent_context_core::{
    json, time, ChangeKind, Context, Error, Options, Provider, Reading, Response, Value,
};

const REFUSED: [&str; 10] = [
    "javascript:alert(1)",
    "file:///etc/passwd",
    "ftp://example.com/a.png",
    "gopher://example.com",
    "example.com/a.png",
    "https",
    "https://example.com/a.png\u{0}",
    "https://example.com/\r\nx: y",
    "gs://bucket/a.png\u{7f}",
    "s3://bucket-a/a\u{85}.png",
];

const TAKEN: [&str; 6] = [
    "https://example.com/ä.png",
    "HTTPS://EXAMPLE.COM/A.PNG",
    "http://example.com/a.png",
    "data:image/png;base64,aGk=",
    "gs://bucket/a.png",
    "s3://bucket-a/a.png",
];

fn quoted(text: &str) -> String {
    json::write(&Value::text(text))
}

/// A text and an image at this address.
fn parts(key: &str, url: &str) -> String {
    let url = quoted(url);
    let more = if key == "url" {
        ""
    } else {
        r#","provider":"gemini""#
    };
    format!(
        r#"[{{"type":"text","text":"a"}},{{"type":"image","{key}":{url},"media_type":"image/png"{more}}}]"#
    )
}

fn wrong(key: &str) -> Error {
    let key = Value::atom(key);
    Error::InvalidPart { position: 1, key }
}

fn sent(context: &Context, provider: Provider) -> serde_json::Value {
    json_sent(context, &Options::new(provider))
}

fn has_text(value: &serde_json::Value, text: &str) -> bool {
    match value {
        serde_json::Value::String(one) => one == text,
        serde_json::Value::Array(items) => items.iter().any(|item| has_text(item, text)),
        serde_json::Value::Object(map) => map.values().any(|value| has_text(value, text)),
        _ => false,
    }
}

#[test]
fn an_application_is_told_which_part_is_wrong() {
    let context = conversation("A");
    let called = context.calls(r#"[{"id":"x","name":"f"}]"#);
    let result = |parts: &str| results(&[("x", value(parts))]);
    for (key, url) in REFUSED
        .iter()
        .map(|url| ("url", *url))
        .chain([("file_id", "file:///etc/passwd"), ("file_id", "a\nb")])
    {
        let parts = parts(key, url);
        let new = Context::new("c", value(&parts), Value::Nil, stamp());
        assert_eq!(new.err(), Some(wrong(key)), "{url:?}");
        let user = context.add_user_message(value(&parts), stamp());
        assert_eq!(user.err(), Some(wrong(key)), "{url:?}");
        let model = context.add_assistant_message(value(&parts), value("[]"), stamp());
        assert_eq!(model.err(), Some(wrong(key)), "{url:?}");
        let answered = called.add_tool_results(result(&parts), stamp());
        assert_eq!(answered.err(), Some(wrong(key)), "{url:?}");
    }
    for url in TAKEN {
        let parts = parts("url", url);
        assert!(
            context.add_user_message(value(&parts), stamp()).is_ok(),
            "{url:?}"
        );
        assert!(
            called.add_tool_results(result(&parts), stamp()).is_ok(),
            "{url:?}"
        );
    }
}

/// A request's body with an image at an address.
fn body(provider: Provider, url: &str) -> Option<String> {
    let url = quoted(url);
    let part = match provider {
        Provider::Anthropic => {
            format!(r#"{{"type":"image","source":{{"type":"url","url":{url}}}}}"#)
        }
        Provider::OpenAiChat | Provider::Mistral => {
            format!(r#"{{"type":"image_url","image_url":{{"url":{url}}}}}"#)
        }
        Provider::OpenAiResponses => format!(r#"{{"type":"input_image","image_url":{url}}}"#),
        Provider::Gemini => format!(r#"{{"fileData":{{"mimeType":"image/png","fileUri":{url}}}}}"#),
        Provider::Bedrock => {
            format!(r#"{{"image":{{"format":"png","source":{{"s3Location":{{"uri":{url}}}}}}}}}"#)
        }
        Provider::Ollama => return None,
    };
    Some(match provider {
        Provider::OpenAiResponses => {
            format!(r#"{{"input":[{{"role":"user","content":[{part}]}}]}}"#)
        }
        Provider::Gemini => format!(r#"{{"contents":[{{"role":"user","parts":[{part}]}}]}}"#),
        _ => format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#),
    })
}

#[test]
fn what_comes_from_outside_is_read_and_goes_to_no_provider() {
    for from in Provider::ALL {
        for url in REFUSED {
            let Some(body) = body(from, url) else {
                continue;
            };
            let _at = time::from_micros(0).unwrap();
            let imported = Context::from_request(Value::text(&body), from, defaults())
                .unwrap()
                .context;
            let loaded = reload(&imported);
            assert!(loaded == imported);
            for to in Provider::ALL {
                for context in [&imported, &loaded] {
                    let body = sent(context, to);
                    assert!(!has_text(&body, url), "{from:?} to {to:?}: {body}");
                    let report = context.request_report(&Options::new(to)).unwrap();
                    let kinds: Vec<_> = report.iter().map(|one| one.change.what).collect();
                    assert_eq!(
                        kinds,
                        [ChangeKind::PartToText],
                        "{from:?} to {to:?}: {url:?}"
                    );
                }
            }
        }
        // And what is right goes back as it came.
        let right = if from == Provider::Bedrock {
            TAKEN[5]
        } else {
            TAKEN[0]
        };
        if let Some(body) = body(from, right) {
            let _at = time::from_micros(0).unwrap();
            let imported = Context::from_request(Value::text(&body), from, defaults())
                .unwrap()
                .context;
            let expected: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(sent(&imported, from), expected);
        }
    }
}

#[test]
fn what_a_model_answers_with_is_kept_and_goes_to_no_provider() {
    for url in REFUSED {
        let parts = format!(
            r#"[{{"text":"a"}},{{"fileData":{{"mimeType":"image/png","fileUri":{}}}}}]"#,
            quoted(url)
        );
        let body = format!(
            r#"{{"candidates":[{{"content":{{"role":"model","parts":{parts}}},"finishReason":"STOP"}}]}}"#
        );
        let reading = Reading::of(Provider::Gemini);
        let response = Response::decode(body.as_bytes(), &reading).unwrap();
        let context = conversation("A");
        let context = context.add_response(&response, stamp()).unwrap();
        assert_eq!(context.count_messages(), 2);
        let loaded = reload(&context);
        assert!(loaded == context);
        for to in Provider::ALL {
            assert!(!has_text(&sent(&context, to), url), "{to:?}: {url:?}");
        }
    }
}
