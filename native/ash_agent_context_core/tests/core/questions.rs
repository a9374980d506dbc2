//! A question is answered once, by a person, and with what was asked for. No other call takes an answer.

use crate::make::{at, reload, sent, stamp, value};
use ash_agent_context_core::{
    Approvals, CallStatus, Context, Error, Masks, Output, Provider, Status, Structs, Trust, Value,
};

const FORM: &str = r#"{"type":"object","properties":{"seats":{"type":"integer"},"window":{"type":"boolean"}},"required":["seats"],"additionalProperties":false}"#;

fn waiting(calls: &str) -> Context {
    Context::new("c", Value::text("Book"), Value::Nil, stamp())
        .and_then(|context| context.add_assistant_message(Value::Nil, value(calls), stamp()))
        .unwrap()
}

/// A conversation with a question that shows this beside its text.
fn question(more: &str) -> Context {
    let context = waiting(r#"[{"id":"a","name":"ask_user","arguments":{"question":"Which?"}}]"#);
    let shown = value(&format!(r#"{{"question":"Which?"{more}}}"#));
    context.ask("a", Some(shown), true, at(0)).unwrap()
}

fn form() -> Context {
    question(&format!(r#","form":{FORM}"#))
}

fn answer(context: &Context, answer: Value) -> Result<Context, Error> {
    context.answer_tool_call("a", None, answer, Value::text("ann"), at(0))
}

fn result(context: &Context) -> Value {
    let entry = context.iteration(1).unwrap().entries().last().unwrap();
    let (_call, outcome) = entry.calls().next().unwrap();
    match &outcome.unwrap().output {
        Output::Value(value) => value.clone(),
        Output::Parts(parts) => panic!("{parts:?}"),
    }
}

#[test]
fn an_answer_is_one_of_those_that_were_asked_for() {
    let choices = || question(r#","choices":["window","aisle"]"#);
    let text = Value::text;
    let cases = [
        (question(""), text("On Friday"), Some(text("On Friday"))),
        (question(r#","choices":[]"#), text("x"), Some(text("x"))),
        (
            question(r#","choices":null,"form":null"#),
            text("x"),
            Some(text("x")),
        ),
        (question(""), text(" \n"), None),
        (question(""), value(r#"{"a":1}"#), None),
        (choices(), text("aisle"), Some(text("aisle"))),
        (choices(), text("Aisle"), None),
        (choices(), value(r#"["aisle"]"#), None),
        (
            form(),
            value(r#"{"seats":"2","window":"true"}"#),
            Some(value(r#"{"seats":2,"window":true}"#)),
        ),
        (form(), value(r#"{"seats":2.5}"#), None),
        (form(), value(r#"{}"#), None),
        (form(), value(r#"{"seats":1,"other":1}"#), None),
        (form(), text("2"), None),
        // A schema that cannot be read lets nothing pass.
        (
            question(r#","form":{"type":"nothing"}"#),
            value(r#"{}"#),
            None,
        ),
        (question(r#","form":"x""#), text("x"), None),
    ];
    for (context, given, expected) in cases {
        for context in [reload(&context), context] {
            let answered = answer(&context, given.clone());
            let Some(expected) = &expected else {
                let error = answered.unwrap_err();
                let Error::Invalid { expected, .. } = &error else {
                    panic!("{error:?}")
                };
                assert!(!expected.contains("Aisle"), "{expected}");
                continue;
            };
            let answered = answered.unwrap();
            assert!(reload(&answered) == answered);
            assert_eq!(result(&answered), *expected);
            let decision = answered.tool_call_decision("a").unwrap();
            assert!(decision.answered && decision.by == Value::text("ann"));
            assert_eq!(
                answered.tool_call_status("a"),
                Some(CallStatus::Ended(Status::Ok))
            );
            assert_eq!(answered.current().number, 2);
        }
    }
}

#[test]
fn a_question_is_answered_once_and_never_approved() {
    let context = question("");
    let shown = value(r#"{"question":"Which?"}"#);
    let approved = context.approve_tool_call("a", Some(&shown), Value::Nil, at(0));
    assert_eq!(approved.unwrap_err(), Error::IsAQuestion { id: "a".into() });
    let edited = context.approve_edited("a", None, Some(shown), Value::Nil, at(0));
    assert_eq!(edited.unwrap_err(), Error::IsAQuestion { id: "a".into() });

    let others = value(r#"{"question":"Whom?"}"#);
    let refused = context.answer_tool_call("a", Some(others), Value::text("x"), Value::Nil, at(0));
    assert!(matches!(refused, Err(Error::OtherArguments { .. })));

    let answered = answer(&context, Value::text("x")).unwrap();
    let denied = context
        .deny_tool_call("a", None, Value::Nil, Value::Nil, at(0))
        .unwrap();
    for ended in [answered, denied] {
        for ended in [reload(&ended), ended] {
            let again = answer(&ended, Value::text("x"));
            assert!(matches!(
                again,
                Err(Error::IllegalStatus { to: "answered", .. })
            ));
        }
    }
    assert!(matches!(
        context.answer_tool_call("b", None, Value::text("x"), Value::Nil, at(0)),
        Err(Error::UnknownToolCall { .. })
    ));
}

/// Whoever could answer any call could write what a tool has never returned.
#[test]
fn only_a_question_takes_an_answer() {
    let calls = r#"[{"id":"a","name":"pay","arguments":{"question":"Which?"}},{"id":"b","name":"ask_user","arguments":{"question":"?"}}]"#;
    let own = waiting(calls).ask("b", None, true, at(0)).unwrap();
    let asked = own.ask_about_tool_call("a", None, at(0)).unwrap();
    let approved = asked
        .approve_tool_call("a", None, Value::Nil, at(0))
        .unwrap();
    for context in [&own, &asked, &reload(&asked)] {
        assert_eq!(
            answer(context, Value::text("paid")).unwrap_err(),
            Error::NotAQuestion { id: "a".into() }
        );
    }
    assert!(answer(&approved, Value::text("paid")).is_err());
    assert!(own.is_question("b") && !own.is_question("a"));

    // It stays a question in forks and when somebody asks again, but not by the word of a stranger.
    for same in [
        own.fork("f", at(0)),
        own.ask_again(at(0)),
        own.ask_about_tool_call("b", None, at(0)).unwrap(),
    ] {
        assert!(reload(&same).is_question("b"));
    }
    let trust = Trust {
        structs: Structs::Keep,
        approvals: Approvals::Drop,
    };
    let loaded = Context::from_snapshot_with(&own.to_snapshot(), trust).unwrap();
    assert!(!loaded.is_question("b"));
    assert_eq!(loaded.undecided_calls(true).count(), 1);
}

/// Older versions find a call that was approved and has its result.
#[test]
fn an_older_version_reads_what_was_answered() {
    let answered = answer(&question(""), Value::text("x")).unwrap();
    let text = String::from_utf8(answered.to_snapshot()).unwrap();
    let older = text.replacen(r#""answered":true,"#, "", 1);
    assert!(older.len() < text.len(), "{text}");
    let older = Context::from_snapshot(older.as_bytes()).unwrap();
    assert_eq!(result(&older), Value::text("x"));

    let text = String::from_utf8(question("").to_snapshot()).unwrap();
    let older = text.replacen(r#","question":true"#, "", 1);
    assert!(older.len() < text.len(), "{text}");
    let older = Context::from_snapshot(older.as_bytes()).unwrap();
    assert_eq!(older.undecided_calls(true).count(), 1);
}

#[test]
fn an_answer_is_sent_as_the_result_of_its_call_and_masked_as_one() {
    let answered = reload(&answer(&question(""), Value::text("my s3cret")).unwrap());
    let masks = Masks::new([("s3cret".into(), "#".into())]).unwrap();
    let masked = answered.put_masks(masks, at(0));
    for provider in Provider::ALL {
        assert!(
            sent(&answered, provider).contains("my s3cret"),
            "{provider:?}"
        );
        let body = sent(&masked, provider);
        assert!(
            body.contains("my #") && !body.contains("s3cret"),
            "{provider:?}"
        );
    }
}

#[test]
fn the_answer_to_a_question_of_a_tool_lets_its_call_run_with_what_it_had() {
    let own = r#"{"question":"Which?"}"#;
    for arguments in [own, r#"{"x":1}"#] {
        let more = format!(r#","to_tool":true,"arguments":{arguments},"form":{FORM}"#);
        let asked = question(&more);
        assert!(answer(&asked, value(r#"{"seats":"many"}"#)).is_err());
        let answered = answer(&asked, value(r#"{"seats":"2"}"#)).unwrap();
        for context in [answered.clone(), reload(&answered)] {
            assert_eq!(context.tool_call_status("a"), Some(CallStatus::Approved));
            let decision = context.tool_call_decision("a").unwrap();
            assert!(decision.approved && !decision.answered);
            assert_eq!(decision.reason, value(r#"{"seats":2}"#));
            assert!(context.is_approved("a", &value(arguments)));
            let others = value(r#"{"question":"What?"}"#);
            assert!(!context.is_approved("a", &others));
            assert!(answer(&context, value(r#"{"seats":3}"#)).is_err());
            let again = context
                .ask_again(at(1))
                .ask("a", Some(value("{}")), true, at(1));
            assert!(again.unwrap().is_question("a"));
        }
    }
    // The model's own words are none of the tool's.
    let call = format!(
        r#"[{{"id":"a","name":"ask_user","arguments":{{"to_tool":true,"arguments":{own}}}}}]"#
    );
    let asked = waiting(&call).ask("a", None, true, at(0)).unwrap();
    let answered = answer(&asked, Value::text("Yes")).unwrap();
    assert_eq!(
        answered.tool_call_status("a"),
        Some(CallStatus::Ended(Status::Ok))
    );
}
