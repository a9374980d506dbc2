//! Media are sent as what their bytes are, failed results keep theirs, and Bedrock's files have a name of their own.

use std::collections::HashSet;

use crate::make::{defaults, import, reload, sent, sent_with, stamp, value, with};
use ash_agent_context_core::{ChangeKind, Context, Masks, Options, Provider, RepairKind, Value};
use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use serde_json::{json, Value as Json};

const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
const PDF: &[u8] = b"%PDF-1.4 a";

fn part(kind: &str, media_type: &str, bytes: &[u8]) -> Json {
    json!({"type": kind, "media_type": media_type, "data": STANDARD.encode(bytes)})
}

fn file(name: Option<&str>, media_type: &str) -> Json {
    let mut file = part("file", media_type, format!("%PDF-1.4 {name:?}").as_bytes());
    if let Some(name) = name {
        file["filename"] = name.into();
    }
    file
}

fn say(context: &Context, parts: &[Json]) -> Context {
    let parts = value(&json!(parts).to_string());
    context.add_user_message(parts, stamp()).unwrap()
}

fn asked(parts: &[Json]) -> Context {
    let parts = value(&json!(parts).to_string());
    Context::new("c", parts, Value::Nil, stamp()).unwrap()
}

fn result(status: &str, parts: &[Json]) -> Context {
    answered(status, &json!(parts))
}

fn answered(status: &str, given: &Json) -> Context {
    let calls = value(r#"[{"id":"c1","name":"look","arguments":{}}]"#);
    let context = asked(&[json!({"type": "text", "text": "Look"})]);
    let context = context
        .add_assistant_message(Value::Nil, calls, stamp())
        .unwrap();
    let given = value(&given.to_string());
    let result = Value::Tuple(Box::new([Value::atom(status), given]));
    let one = Value::Tuple(Box::new([Value::text("c1"), result]));
    let all = Value::List(Box::new([one]));
    context.add_tool_results(all, stamp()).unwrap()
}

#[test]
fn bytes_tell_the_type_that_is_sent_and_the_report_says_so() {
    // What was said, the bytes, and what they are; nothing where the words stand.
    let table: [(&str, &[u8], &str); 19] = [
        ("image/png", JPEG, "image/jpeg"),
        ("image/jpeg", PNG, "image/png"),
        ("image/png", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ("image/webp", b"GIF89a\x01\0\x01\0", "image/gif"),
        ("image/png", PDF, "application/pdf"),
        ("application/octet-stream", PDF, "application/pdf"),
        ("application/pdf", JPEG, "image/jpeg"),
        ("text/plain", PNG, "image/png"),
        ("image/png", b"<!DOCTYPE html><p>Not found", ""),
        ("image/png", b"<html><body>Not found", ""),
        ("image/png", b"{\"error\":\"not found\"}", ""),
        ("image/png", b"404 Not Found", ""),
        (
            "image/jpeg",
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            "",
        ),
        ("image/png", b"PK\x03\x04\x14\0\x06\0", ""),
        ("application/pdf", b"Sorry, you have to sign in", ""),
        ("image/png", b"II*\0\x08\0\0\0", ""),
        ("image/png", b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", ""),
        ("image/png", b"\0\0\x01\0\x01\0\x10\x10\0\0", ""),
        ("image/jpeg", b"\0\0\0\x0cjP  \r\n\x87\n", ""),
    ];
    for (said, bytes, is) in table {
        let kind = if said.starts_with("image/") {
            "image"
        } else {
            "file"
        };
        let parts = [part(kind, said, bytes)];
        for context in [asked(&parts), result("ok", &parts), result("error", &parts)] {
            for context in [reload(&context), context] {
                for provider in Provider::ALL {
                    let body = sent(&context, provider);
                    assert!(!body.contains(said), "{provider:?} {said}: {body}");
                    let format = said.rsplit('/').next().unwrap();
                    let format = format!("\"format\":\"{format}\"");
                    assert!(!body.contains(&format), "{body}");
                    if provider == Provider::Anthropic {
                        assert!(body.contains(is), "{said}: {body}");
                    }
                    let report = context.request_report(&Options::new(provider)).unwrap();
                    let what = ChangeKind::CorrectedType;
                    let told = report.iter().any(|row| row.change.what == what);
                    // Where a failed result can have no media, the words have the type.
                    let is_failed = body.contains(", not sent)") || is.is_empty();
                    assert!(told || is_failed, "{provider:?} {said}: {report:?}");
                }
            }
        }
    }
}

#[test]
fn what_may_be_what_it_says_is_left_as_it_is() {
    let zip = b"PK\x03\x04\x14\0\x06\0";
    let office = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
    let table: [(&str, &[u8]); 9] = [
        ("image/png", b"hi"),
        ("image/png", PNG),
        ("image/jpg", JPEG),
        (office, zip),
        ("application/msword", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        ("audio/mp4", b"\0\0\0\x20ftypisom\0\0\0\0"),
        ("video/quicktime", b"\0\0\0\x20ftypqt  \0\0\0\0"),
        ("text/csv", b"name,size\nUlm,127000"),
        ("audio/pcm", b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a"),
    ];
    for (said, bytes) in table {
        let context = asked(&[part("file", said, bytes)]);
        for provider in Provider::ALL {
            let report = context.request_report(&Options::new(provider)).unwrap();
            let what = ChangeKind::CorrectedType;
            assert!(!report.iter().any(|row| row.change.what == what), "{said}");
        }
    }
}

#[test]
fn an_import_with_a_wrong_type_does_not_go_back_as_it_came() {
    let data = STANDARD.encode(JPEG);
    let url = format!("data:image/png;base64,{data}");
    let inline = json!({"inlineData": {"mimeType": "image/png", "data": data}});
    let bytes = json!({"image": {"format": "png", "source": {"bytes": data}}});
    let source = json!({"type": "base64", "media_type": "image/png", "data": data});
    let bodies = [
        (
            Provider::Anthropic,
            json!({"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}),
        ),
        (
            Provider::OpenAiChat,
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}),
        ),
        (
            Provider::OpenAiResponses,
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}),
        ),
        (
            Provider::Gemini,
            json!({"contents": [{"role": "user", "parts": [inline]}]}),
        ),
        (
            Provider::Bedrock,
            json!({"messages": [{"role": "user", "content": [bytes]}]}),
        ),
    ];
    for (provider, body) in bodies {
        let imported = Context::from_request(value(&body.to_string()), provider, defaults());
        let imported = imported.unwrap();
        let told = imported.repairs.iter();
        let told: Vec<_> = told
            .map(|repair| (repair.kind, repair.to.as_deref()))
            .collect();
        assert_eq!(told, [(RepairKind::CorrectedType, Some("image/jpeg"))]);
        let context = imported.context;
        for context in [reload(&context), context] {
            let body = sent(&context, provider);
            assert!(!body.contains("png") && body.contains("jpeg"), "{body}");
        }
    }
}

#[test]
fn a_failed_result_keeps_its_media_or_says_that_they_are_not_sent() {
    let text = json!({"type": "text", "text": "The page is broken"});
    for parts in [
        vec![part("image", "image/png", PNG)],
        vec![text, part("file", "application/pdf", PDF)],
    ] {
        let context = result("error", &parts);
        for context in [reload(&context), context] {
            for provider in Provider::ALL {
                let body = sent(&context, provider);
                assert!(!body.contains("no output"), "{provider:?}: {body}");
                let data = parts[parts.len() - 1]["data"].as_str().unwrap();
                let is_sent = body.contains(data);
                assert!(is_sent || body.contains("not sent"), "{provider:?}: {body}");
                assert!(
                    parts.len() == 1 || body.contains("The page is broken"),
                    "{body}"
                );
                let is_marked = ["is_error", "\"error\"", "Error:"]
                    .iter()
                    .any(|mark| body.contains(mark));
                assert!(is_marked, "{provider:?}: {body}");
                if matches!(provider, Provider::Anthropic | Provider::Bedrock) {
                    assert!(!is_sent, "{body}");
                }
            }
        }
    }
    // What only looks like parts is a reason as before.
    let wrong = result("error", &[json!({"type": "image", "data": "***"})]);
    assert!(sent(&wrong, Provider::Anthropic).contains("***"));
}

fn names(context: &Context) -> Vec<String> {
    let body = sent(context, Provider::Bedrock);
    let starts = body.split("\"document\":{").skip(1);
    let name = |rest: &str| {
        rest.split("\"name\":\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    };
    starts.map(name).collect()
}

#[test]
fn files_have_names_of_their_own_at_bedrock_which_stay() {
    let table = [
        [None, None],
        [Some("plan.pdf"), Some("plan.pdf")],
        [Some("plan_1.pdf"), Some("plan.1.pdf")],
        [Some("計画.pdf"), Some("予算.pdf")],
        [Some("a [1-2-0].pdf"), Some("a [1-2-0].pdf")],
        [Some("ü.md"), Some("")],
    ];
    let long = "a".repeat(400);
    for [a, b] in table.into_iter().chain([[Some(&*long), Some(&*long)]]) {
        let pdf = "application/pdf";
        let mut context = result("ok", &[file(a, pdf), file(b, pdf)]);
        let mut before = names(&context);
        for _ in 0..3 {
            context = say(&context, &[file(a, pdf), file(b, pdf)]);
            let after = names(&context);
            assert_eq!(after[..before.len()], before[..]);
            before = after;
        }
        assert_eq!(before.len(), 8);
        assert_eq!(before.iter().collect::<HashSet<_>>().len(), 8, "{before:?}");
        let is_taken = |name: &String| {
            let letters =
                |letter: char| letter.is_ascii_alphanumeric() || " -()[]".contains(letter);
            name.chars().all(letters) && name.len() <= 200 && !name.contains("  ")
        };
        assert!(before.iter().all(is_taken), "{before:?}");
        assert_eq!(names(&reload(&context)), before);
        let again = import(&sent(&context, Provider::Bedrock), Provider::Bedrock);
        assert_eq!(names(&again), before);
    }
}

#[test]
fn masked_names_stay_different() {
    let context = asked(&[
        file(Some("one secret.pdf"), "application/pdf"),
        file(Some("two secret.pdf"), "application/pdf"),
        file(None, "application/pdf"),
    ]);
    for context in [&context, &reload(&context)] {
        let hidden = ["one secret.pdf", "two secret.pdf"];
        let masks = Masks::new(hidden.map(|name| (name.into(), "".into()))).unwrap();
        let found = names(&context.put_masks(masks, stamp().at));
        let different: HashSet<&String> = found.iter().collect();
        assert_eq!((found.len(), different.len()), (3, 3), "{found:?}");
    }
}

#[test]
fn names_that_came_twice_are_mended() {
    let document = |name: &str| json!({"document": {"format": "pdf", "name": name, "source": {"bytes": STANDARD.encode(PDF)}}});
    let body = json!({"messages": [
        {"role": "user", "content": [{"text": "a"}, document("plan")]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "f", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [document("plan")]}}]},
        {"role": "assistant", "content": [{"text": "b"}]},
        {"role": "user", "content": [{"text": "c"}, document("plan")]},
    ]});
    let context = import(&body.to_string(), Provider::Bedrock);
    let found = names(&context);
    assert_eq!(found[0], "plan");
    assert_eq!(found.iter().collect::<HashSet<_>>().len(), 3, "{found:?}");
    assert_eq!(names(&reload(&context)), found);
}

#[test]
fn no_cache_point_stands_behind_a_file_that_is_no_pdf() {
    let text = json!({"type": "text", "text": "Sum it up"});
    for (media_type, is_behind) in [
        ("application/pdf", true),
        ("text/csv", false),
        ("text/markdown", false),
        ("application/msword", false),
    ] {
        for by_hand in [true, false] {
            let mut file = part("file", media_type, b"\0\x01\x02");
            if by_hand {
                file["cache"] = true.into();
            }
            let context = asked(&[text.clone(), file]);
            let options = with(Provider::Bedrock, |options| options.cache = !by_hand);
            let body: Json = serde_json::from_str(&sent_with(&context, &options)).unwrap();
            let content = body["messages"][0]["content"].as_array().unwrap();
            let kinds: Vec<_> = content
                .iter()
                .map(|block| block.as_object().unwrap().keys().next().unwrap().as_str())
                .collect();
            let expected = match is_behind {
                true => ["text", "document", "cachePoint"],
                false => ["text", "cachePoint", "document"],
            };
            assert_eq!(kinds, expected, "{media_type}");
        }
    }
}

#[test]
fn imported_cache_points_move_before_documents_that_are_no_pdf() {
    for (format, is_kept) in [("pdf", true), ("csv", false), ("html", false)] {
        let bytes = STANDARD.encode(if is_kept { PDF } else { b"a,b,c,d,e,f" });
        let document =
            json!({"document": {"format": format, "name": "a", "source": {"bytes": bytes}}});
        let mark = json!({"cachePoint": {"type": "default"}});
        let content = json!([{"text": "Sum it up"}, document, mark]);
        let body = json!({"messages": [{"role": "user", "content": content}]});
        let context = import(&body.to_string(), Provider::Bedrock);
        for context in [reload(&context), context] {
            let body: Json = serde_json::from_str(&sent(&context, Provider::Bedrock)).unwrap();
            let sent = body["messages"][0]["content"].as_array().unwrap();
            let behind = sent
                .get(2)
                .is_some_and(|last| last.get("cachePoint").is_some());
            assert_eq!(behind, is_kept, "{sent:?}");
        }
    }
}

#[test]
fn no_key_ref_is_sent_to_gemini_as_structure() {
    let call = json!({"functionCall": {"id": "c1", "name": "look", "args": {}}});
    for given in [
        json!({"$ref": "#/a"}),
        json!({"a": [{"b": {"$ref": "#/a"}}]}),
    ] {
        let own = answered("ok", &given);
        let response = json!({"functionResponse": {"id": "c1", "name": "look", "response": given}});
        let body = json!({"contents": [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [call]},
            {"role": "user", "parts": [response]},
        ]});
        for context in [
            import(&body.to_string(), Provider::Gemini),
            reload(&own),
            own,
        ] {
            let body = sent(&context, Provider::Gemini);
            assert!(
                !body.contains("\"$ref\"") && body.contains("$ref"),
                "{body}"
            );
        }
    }
}
