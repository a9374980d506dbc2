//! Rules that nothing else of the core would miss: what a request reports, which names go out, what masks reach, what an
//! answer costs.

use crate::make::{at, defaults, sent, value, Talk};
use ash_agent_context_core::{
    json, read_list, time, CallStatus, ChangeKind, Context, Error, Map, Masks, MessageRef, Method,
    Options, Prices, Provider, Stamp, Status, Value,
};

fn start(input: &str) -> Context {
    Context::new("c", value(input), Value::Nil, Stamp::at(at(0))).unwrap()
}

fn ok(result: Value) -> Value {
    Value::Tuple(Box::new([Value::atom("ok"), result]))
}

/// A result as a map, with these fields beside its id.
fn result(context: &Context, id: &str, fields: Vec<(&str, Value)>) -> Result<Context, Error> {
    let mut entries = vec![(Value::atom("id"), Value::text(id))];
    entries.extend(fields.into_iter().map(|(key, of)| (Value::atom(key), of)));
    let results = Value::List(Box::new([Value::Map(Map::new(entries))]));
    context.add_tool_results(results, Stamp::at(at(9)))
}

fn masks(pattern: &str) -> Masks {
    Masks::new([(pattern.into(), "-".into())]).unwrap()
}

#[test]
fn a_result_has_both_times_or_none() {
    let asked = start(r#""Go""#).calls(r#"[{"id":"a","name":"f"}]"#);
    let done = ok(Value::text("x"));
    let given = |times: &[(&'static str, i64)]| {
        let times = times.iter().map(|(key, at)| (*key, Value::Int(*at)));
        result(
            &asked,
            "a",
            std::iter::once(("result", done.clone()))
                .chain(times)
                .collect(),
        )
    };
    let ran = |context: Context| {
        let last = context.messages().last().unwrap();
        match last.see().message() {
            MessageRef::Results(_, exchange) => exchange.slot(0).unwrap().ran,
            MessageRef::Added(_) => panic!("no results"),
        }
    };
    let both = given(&[("started_at", 5), ("ended_at", 7)]).unwrap();
    assert_eq!(ran(both), Some((at(5), at(7))));
    assert_eq!(ran(given(&[]).unwrap()), None);
    assert!(given(&[("started_at", 5)]).is_err());
    assert!(given(&[("ended_at", 5)]).is_err());
}

#[test]
fn the_times_of_a_call_and_whether_it_waits_are_found_by_its_id() {
    let asked = start(r#""Go""#).calls(r#"[{"id":"a","name":"f"},{"id":"b","name":"f"}]"#);
    let times = vec![
        ("result", ok(Value::text("x"))),
        ("started_at", Value::Int(5)),
        ("ended_at", Value::Int(7)),
    ];
    let context = result(&asked, "a", times).unwrap();
    assert_eq!(context.tool_call_times("a"), Some((at(5), at(7))));
    assert_eq!(context.tool_call_times("b"), None);
    let waiting = |context: &Context| {
        ["a", "b", "c"].map(|id| context.current().pending().any(|call| &*call.id == id))
    };
    assert_eq!(waiting(&asked), [true, true, false]);
    assert_eq!(waiting(&context), [false, true, false]);
}

#[test]
fn no_call_gets_two_results_at_once_however_many_there_are() {
    for count in [2, 200] {
        let ids: Vec<String> = (0..count).map(|number| format!("c{number}")).collect();
        let calls = ids
            .iter()
            .map(|id| format!(r#"{{"id":"{id}","name":"f"}}"#));
        let calls = calls.collect::<Vec<_>>().join(",");
        let asked = start(r#""Go""#).calls(&format!("[{calls}]"));
        let answer = |ids: &[&String]| {
            let one =
                |id: &&String| Value::Tuple(Box::new([Value::text(id), ok(Value::text("x"))]));
            let results = Value::List(ids.iter().map(one).collect());
            asked.add_tool_results(results, Stamp::at(at(9)))
        };
        let mut given: Vec<&String> = ids.iter().collect();
        assert!(answer(&given).is_ok());
        given.pop();
        given.push(&ids[0]);
        assert!(answer(&given).is_err(), "{count}");
    }
}

/// Which name the request has for a tool of this one, if it is not its own.
fn is_renamed(provider: Provider, name: &str) -> bool {
    let calls = format!(
        r#"[{{"id":"a","name":{}}}]"#,
        json::write(&Value::text(name))
    );
    let context = start(r#""Go""#).calls(&calls);
    let context = result(&context, "a", vec![("result", ok(Value::text("x")))]).unwrap();
    let report = context.request_report(&Options::new(provider)).unwrap();
    let is_renamed = report
        .iter()
        .any(|one| one.change.what == ChangeKind::RenamedTool);
    let is_sent =
        sent(&context, provider).contains(&format!("\"name\":{}", json::write(&Value::text(name))));
    assert_ne!(is_renamed, is_sent, "{provider:?} {name}");
    is_renamed
}

#[test]
fn names_go_out_as_they_are_where_the_provider_takes_them() {
    let long = |length| "x".repeat(length);
    for (provider, taken, refused) in [
        (
            Provider::Gemini,
            vec!["f".into(), "_".into(), "A.b:c-1".into(), long(128)],
            vec![
                "1f".into(),
                "-f".into(),
                ".f".into(),
                "f f".into(),
                "é".into(),
                long(129),
            ],
        ),
        (
            Provider::Anthropic,
            vec!["f".into(), "1-_".into(), long(64)],
            vec!["a.b".into(), "f f".into(), "é".into(), long(65)],
        ),
        (
            Provider::Ollama,
            vec!["f".into(), "f f".into(), "é".into(), long(500)],
            vec![" ".into(), "\u{1c}".into()],
        ),
    ] {
        for name in taken {
            assert!(!is_renamed(provider, &name), "{provider:?} {name:?}");
        }
        for name in refused {
            assert!(is_renamed(provider, &name), "{provider:?} {name:?}");
        }
    }
}

#[test]
fn ids_go_out_as_they_are_where_the_provider_takes_them() {
    let is_kept = |provider, id: &str| {
        let calls = format!(r#"[{{"id":"{id}","name":"f"}}]"#);
        let context = start(r#""Go""#).calls(&calls);
        let context = result(&context, id, vec![("result", ok(Value::text("x")))]).unwrap();
        sent(&context, provider).contains(&format!("\"{id}\""))
    };
    let long = |length| "x".repeat(length);
    for (provider, taken, refused) in [
        (
            Provider::Anthropic,
            vec!["a_-1".into(), long(200)],
            vec!["a.b".into(), "a b".into()],
        ),
        (
            Provider::Bedrock,
            vec!["a.b:c".into(), long(64)],
            vec!["a b".into(), long(65)],
        ),
        (
            Provider::Mistral,
            vec!["abcdefgh1".into()],
            vec!["abcdefgh_".into(), long(8), long(10)],
        ),
        (
            Provider::OpenAiChat,
            vec!["a b".into(), long(40)],
            vec![long(41)],
        ),
        (
            Provider::OpenAiResponses,
            vec!["a b".into(), long(64)],
            vec![long(65)],
        ),
        (Provider::Gemini, vec!["a b".into(), long(500)], vec![]),
        (Provider::Ollama, vec!["a b".into(), long(500)], vec![]),
    ] {
        for id in taken {
            assert!(is_kept(provider, &id), "{provider:?} {id:?}");
        }
        for id in refused {
            assert!(!is_kept(provider, &id), "{provider:?} {id:?}");
        }
    }
}

/// The changes that a request reports, with the ids of the calls.
fn changes(context: &Context) -> Vec<(ChangeKind, String)> {
    let report = context
        .request_report(&Options::new(Provider::Anthropic))
        .unwrap();
    report
        .into_iter()
        .map(|one| (one.change.what, one.change.from))
        .collect()
}

#[test]
fn a_report_says_what_a_view_made_of_each_result() {
    let context = start(r#""Go""#).calls(r#"[{"id":"a","name":"f"},{"id":"b","name":"f"},{"id":"c","name":"f"},{"id":"d","name":"f"}]"#);
    let answers = [("a", 300), ("b", 300), ("c", 7), ("d", 2)];
    let context = answers.iter().fold(context, |context, (id, length)| {
        let text = match length {
            7 => "secrets".to_owned(),
            length => "x".repeat(*length),
        };
        result(&context, id, vec![("result", ok(Value::text(&text)))]).unwrap()
    });
    assert_eq!(changes(&context), []);
    let context = context
        .put_max_result_bytes(Some(100), at(1))
        .put_masks(masks("secret"), at(1))
        .clear_tool_results(3, "gone", at(1));
    let told = |what, id: &str| (what, id.to_owned());
    assert_eq!(
        changes(&context),
        [
            told(ChangeKind::ClearedResult, "a"),
            told(ChangeKind::ShortenedResult, "b"),
            told(ChangeKind::MaskedText, "c"),
        ]
    );
}

#[test]
fn a_shortened_result_of_parts_keeps_its_beginning_and_its_end() {
    let parts = |texts: &[&str]| {
        let part = |text: &&str| value(&format!(r#"{{"type":"text","text":"{text}"}}"#));
        ok(Value::List(texts.iter().map(part).collect()))
    };
    let shown = |texts: &[&str]| {
        let context = start(r#""Go""#).calls(r#"[{"id":"a","name":"f"}]"#);
        let context = result(&context, "a", vec![("result", parts(texts))]).unwrap();
        sent(
            &context.put_max_result_bytes(Some(90), at(1)),
            Provider::Anthropic,
        )
    };
    let (head, middle, tail) = ("h".repeat(10), "m".repeat(400), "t".repeat(5));
    let three = shown(&[&head, &middle, &tail]);
    assert!(three.contains(&head) && three.contains(&tail), "{three}");
    assert!(three.contains("bytes left out"), "{three}");
    // Both ends stand in the parts that they stood in; a part of which nothing is left is not sent.
    let many = shown(&["a", &middle, &middle, &middle, "z"]);
    let text = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
    let cut = format!(r"{}\n[... 1143 bytes left out ...]\n", "m".repeat(39));
    let left = ["a", &cut, &"m".repeat(18), "z"].map(text).join(",");
    assert!(many.contains(&format!("[{left}]")), "{many}");
}

#[test]
fn masks_reach_addresses_ids_files_and_results_of_parts() {
    let context = start(
        r#"[{"type":"image","url":"https://a.b/secret.png"},
            {"type":"file","media_type":"text/plain","data":"YSBzZWNyZXQ=","filename":"secret.txt"},
            {"type":"file","url":"data:text/plain;base64,YSBzZWNyZXQ="},
            {"type":"image","media_type":"image/png","data":"c2VjcmV0"},
            {"type":"file","provider":"openai_responses","file_id":"file-secret"}]"#,
    );
    let context = context.calls(r#"[{"id":"a","name":"f","arguments":{"k":"secret"}}]"#);
    let context = result(
        &context,
        "a",
        vec![("result", ok(value(r#"{"x":"secret"}"#)))],
    )
    .unwrap();
    let context = context.put_masks(masks("secret"), at(1));
    let shown = sent(&context, Provider::OpenAiResponses);
    assert!(!shown.contains("secret"), "{shown}");
    assert!(!shown.contains("YSBzZWNyZXQ="), "{shown}");
    assert!(shown.contains("https://a.b/-.png"), "{shown}");
    assert!(shown.contains("file--"), "{shown}");
    // Nothing can be fetched from a masked address: only words are left of it.
    assert_eq!(shown.matches("input_image").count(), 1, "{shown}");
    assert!(!shown.contains("file_id"), "{shown}");
    // The bytes of pictures are no text.
    assert!(shown.contains("c2VjcmV0"), "{shown}");
}

#[test]
fn masks_take_away_what_a_provider_would_see_changed() {
    let shown = |said: &str| {
        let context = start(r#""Go""#).calls(&format!(
            r#"[{{"id":"a","name":"f","provider_metadata":
                {{"provider":"openai_chat","extra_content":{{"k":"{said}"}}}}}}]"#
        ));
        let context = result(&context, "a", vec![("result", ok(Value::text("x")))]).unwrap();
        sent(
            &context.put_masks(masks("secret"), at(1)),
            Provider::OpenAiChat,
        )
    };
    assert!(shown("open").contains(r#""extra_content":{"k":"open"}"#));
    assert!(!shown("secret").contains("extra_content"));
}

#[test]
fn an_alias_is_the_beginning_of_an_id_while_that_is_all_of_it() {
    let alias = |length: usize| {
        let id = format!("{} ", "x".repeat(length - 1));
        let context = start(r#""Go""#).calls(&format!(r#"[{{"id":"{id}","name":"f"}}]"#));
        let context = result(&context, &id, vec![("result", ok(Value::text("x")))]).unwrap();
        let body = sent(&context, Provider::Anthropic);
        let (_, behind) = body.split_once(r#""tool_use_id":""#).unwrap();
        behind.split_once('"').unwrap().0.to_owned()
    };
    assert_eq!(alias(23), format!("{}_", "x".repeat(22)));
    // From 24 letters on, others may follow: a digest tells such ids apart.
    assert_eq!(alias(24).len(), 24 + 1 + 12);
    assert_eq!(alias(60).len(), 24 + 1 + 12);
}

#[test]
fn an_id_that_is_used_again_gets_a_number_that_still_fits() {
    let second = |length: usize| {
        let id = "x".repeat(length);
        let use_once = |context: Context, _| {
            let context = context.calls(&format!(r#"[{{"id":"{id}","name":"f"}}]"#));
            result(&context, &id, vec![("result", ok(Value::text("x")))]).unwrap()
        };
        let context = (0..2).fold(start(r#""Go""#), use_once);
        let body = sent(&context, Provider::OpenAiResponses);
        let ids = body.split(r#""call_id":""#).skip(1);
        ids.last().unwrap().split_once('"').unwrap().0.to_owned()
    };
    assert_eq!(second(5), "xxxxx_2");
    assert_eq!(second(37), format!("{}_2", "x".repeat(37)));
    assert_eq!(second(38), format!("{}_2", "x".repeat(24)));
}

#[test]
fn a_summary_says_what_it_stands_for() {
    let turns = |count| {
        (0..count).fold(
            start(&format!("\"{}\"", "Go ".repeat(100))),
            |context, _| context.calls("[]").user(&"on and on ".repeat(40)),
        )
    };
    let summed = |last| {
        let context = turns(4).summarize(1, last, "all", at(1)).unwrap();
        assert_eq!(context.view().unwrap().covers().count(), 1);
        sent(&context, Provider::Anthropic)
    };
    assert!(summed(1).contains("[Summary of iteration 1 of this conversation]\\nall"));
    assert!(summed(2).contains("[Summary of iterations 1 to 2 of this conversation]\\nall"));
    assert!(turns(4).view().is_none());
    let covered = turns(4).summarize(1, 1, "all", at(1)).unwrap();
    let covered = covered.summarize(3, 3, "all", at(1)).unwrap();
    assert_eq!(covered.view().unwrap().covers().count(), 2);
}

/// What attributes with these iterations are refused for.
fn refused(iterations: &str) -> Option<String> {
    let attributes = value(&format!(r#"{{"iterations":[{iterations}]}}"#));
    match Context::from_attributes(attributes, defaults()) {
        Ok(_) => None,
        Err(Error::Invalid { expected, .. }) => Some(expected.to_string()),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn only_the_last_message_of_attributes_may_wait_for_results() {
    let user = r#"{"role":"user","content":"Go"}"#;
    let asks = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","name":"f","arguments":{}}]}"#;
    let iteration = |number, messages: &[&str]| {
        let messages = messages.join(",");
        format!(r#"{{"number":{number},"messages":[{messages}]}}"#)
    };
    let two = |messages: &[&str], number| {
        refused(&[iteration(1, messages), iteration(number, &[user])].join(","))
    };
    assert_eq!(two(&[user], 2), None);
    assert_eq!(refused(&iteration(1, &[user, asks])), None);
    let expected = two(&[user, asks], 2).unwrap();
    assert!(expected.contains("of the iteration before"), "{expected}");
    let expected = refused(&iteration(1, &[user, asks, user])).unwrap();
    assert!(expected.contains("of the message before"), "{expected}");
    let expected = two(&[user], 3).unwrap();
    assert!(expected.contains("one more than"), "{expected}");
}

fn prices() -> Prices {
    let price = |input, more: &str| {
        format!(
            r#"{{"model":"m","input":{input},"cache_read":1,"cache_write":5,"output":7{more}}}"#
        )
    };
    let later = time::to_text(at(100));
    let later = price(6, &format!(r#","valid_from":"{later}""#));
    read_list(&value(&format!("[{},{later}]", price(3, "")))).unwrap()
}

#[test]
fn an_answer_costs_what_its_tokens_cost() {
    let spent = |report: &str, opened: i64, asked| {
        let context =
            Context::new("c", Value::text("Go"), Value::Nil, Stamp::at(at(opened))).unwrap();
        let context = context
            .add_assistant_message(Value::text("x"), Value::Nil, Stamp::at(at(opened)))
            .unwrap();
        let context = match report {
            "" => context,
            report => context.add_token_usage(value(report), at(opened)).unwrap(),
        };
        context.sum_spending(&prices(), asked, 1)
    };
    let report =
        r#"{"input_tokens":100,"cached_tokens":10,"cache_creation_tokens":0,"output_tokens":20}"#;
    assert_eq!(spent(report, 0, Some("m")), Ok(90 * 3 + 10 + 20 * 7));
    assert_eq!(spent(report, 100, Some("m")), Ok(90 * 6 + 10 + 20 * 7));
    assert_eq!(
        spent(report, 99, Some("m-2024-08-06")),
        Ok(90 * 3 + 10 + 20 * 7)
    );
    assert_eq!(spent("", 0, Some("other")), Ok(0));
    let none = |model: Option<&str>| {
        Err(Error::NoPrice {
            model: model.map(Into::into),
        })
    };
    assert_eq!(spent(report, 0, Some("other")), none(Some("other")));
    assert_eq!(spent(report, 0, None), none(None));
}

#[test]
fn a_turn_is_found_by_the_metadata_of_its_message() {
    let say = |context: &Context, key: &str| {
        let metadata = Map::new(vec![(Value::atom("key"), Value::text(key))]);
        let stamp = Stamp {
            metadata: Some(metadata),
            ..Stamp::at(at(1))
        };
        context.add_user_message(Value::text("x"), stamp).unwrap()
    };
    let answer = |context: &Context| {
        context
            .add_assistant_message(Value::text("y"), Value::Nil, Stamp::at(at(2)))
            .unwrap()
    };
    let find = |context: &Context, key| context.find_turn("key", key);
    let first = answer(&start(r#""Hi""#));
    assert_eq!(find(&first, "a"), None);
    // A turn of two iterations.
    let asked = say(&first, "a").calls(r#"[{"id":"c","name":"n"}]"#);
    let results = Value::List(Box::new([Value::Tuple(Box::new([
        Value::text("c"),
        ok(Value::Int(1)),
    ]))]));
    let context = asked.add_tool_results(results, Stamp::at(at(3))).unwrap();
    let context = answer(&context);
    assert_eq!(find(&context, "a"), Some((2, 3)));
    let context = answer(&say(&context, "b"));
    assert_eq!(find(&context, "a"), Some((2, 3)));
    assert_eq!(find(&context, "b"), Some((4, 4)));
    // The newest of several.
    let context = answer(&say(&context, "a"));
    assert_eq!(find(&context, "a"), Some((5, 5)));
    assert_eq!(context.find_turn("other", "a"), None);
    assert_eq!(find(&context.rewind(3).unwrap(), "a"), Some((2, 3)));
}

#[test]
fn a_result_can_say_that_nobody_knows_what_happened() {
    let asked = start(r#""Go""#).calls(r#"[{"id":"a","name":"f"}]"#);
    let given = |status| {
        let outcome = Value::Tuple(Box::new([Value::atom(status), Value::text("lost")]));
        result(&asked, "a", vec![("result", outcome)])
    };
    let context = given("unknown").unwrap();
    assert_eq!(
        context.tool_call_status("a"),
        Some(CallStatus::Ended(Status::Unknown))
    );
    assert!(given("other").is_err());
}

#[test]
fn a_result_of_just_so_many_bytes_stays_whole_and_a_longer_one_says_what_is_left_out() {
    let context = start(r#""Go""#).calls(r#"[{"id":"a","name":"f"},{"id":"b","name":"f"}]"#);
    let given = [("a", 100), ("b", 300)];
    let context = given.iter().fold(context, |context, (id, length)| {
        let text = Value::text(&"x".repeat(*length));
        result(&context, id, vec![("result", ok(text))]).unwrap()
    });
    let context = context.put_max_result_bytes(Some(100), at(1));
    let (head, tail) = ("x".repeat(47), "x".repeat(23));
    let cut = format!("{head}\n[... 230 bytes left out ...]\n{tail}");
    let report = context.request_report(&Options::new(Provider::Anthropic));
    let told = report.unwrap().into_iter().map(|one| one.change);
    let told: Vec<_> = told.map(|one| (one.what, one.from, one.to)).collect();
    assert_eq!(
        told,
        [(ChangeKind::ShortenedResult, "b".to_owned(), Some(cut))]
    );
}

#[test]
fn results_of_the_iteration_after_the_last_cleared_one_stay() {
    let answer = |context: &Context, id: &str| {
        result(context, id, vec![("result", ok(Value::text("x")))]).unwrap()
    };
    let context = start(r#""Go""#).calls(r#"[{"id":"a","name":"f"},{"id":"b","name":"f"}]"#);
    let context = answer(&answer(&context, "a"), "b");
    let context = answer(&context.calls(r#"[{"id":"c","name":"f"}]"#), "c");
    let context = context.clear_tool_results(2, "gone", at(1));
    assert_eq!(
        changes(&context),
        [(ChangeKind::ClearedResult, "a".to_owned())]
    );
}

#[test]
fn a_report_and_a_look_decide_what_is_counted() {
    let said = "on and on ".repeat(60);
    let context = start(&format!("\"{said}\""));
    let context = context.calls("[]");
    let report = r#"{"input_tokens":5000,"output_tokens":20}"#;
    let context = context.add_token_usage(value(report), at(1)).unwrap();
    assert_eq!(context.count_tokens(None), 5020);
    assert!(context.count_tokens(Some(Method::Estimate)) < 1000);
    // What was counted is not read again, but what may look different is.
    let bytes = |context: &Context| context.count_size(Method::Estimate).bytes;
    assert!(bytes(&context) < said.len());
    for looks in [
        context.put_masks(masks("secret"), at(1)),
        context.put_max_result_bytes(Some(100), at(1)),
    ] {
        assert!(bytes(&looks) >= said.len());
    }
}
