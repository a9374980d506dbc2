//! What was approved is what runs.

use crate::make::{at, conversation, reload, sent, stamp, Talk};
use ash_agent_context_core::{
    Approvals, CallStatus, Context, Error, Masks, Provider, Stamp, Structs, Trust, Value,
};
use proptest::prelude::*;

/// A conversation that waits for a call with these arguments.
fn waiting(arguments: &Value) -> Context {
    let fields = [
        ("id", Value::text("a")),
        ("name", Value::text("delete")),
        ("arguments", arguments.clone()),
    ];
    let call = map(fields
        .map(|(key, value)| (Value::text(key), value))
        .to_vec());
    Context::new("c", Value::text("Clean up"), Value::Nil, stamp())
        .and_then(|context| {
            context.add_assistant_message(Value::Nil, Value::List([call].into()), stamp())
        })
        .unwrap()
}

fn map(entries: Vec<(Value, Value)>) -> Value {
    Value::Map(ash_agent_context_core::Map::new(entries))
}

fn path(text: &str) -> Value {
    map(vec![(Value::text("path"), Value::text(text))])
}

fn try_approve(context: &Context, shown: Option<&Value>) -> Result<Context, Error> {
    context.approve_tool_call("a", shown, Value::text("ann"), at(0))
}

fn approve(context: &Context, shown: Option<&Value>) -> Context {
    try_approve(context, shown).unwrap()
}

fn stored(context: &Context) -> Context {
    let loaded = reload(context);
    assert!(loaded == *context);
    loaded
}

/// The snapshot after somebody has edited it.
fn edited(context: &Context, from: &str, to: &str) -> Context {
    let text = String::from_utf8(context.to_snapshot()).unwrap();
    assert!(text.contains(from), "{text}");
    Context::from_snapshot(text.replacen(from, to, 1).as_bytes()).unwrap()
}

fn is_asked(context: &Context) -> bool {
    context.undecided_calls(true).next().is_some()
}

fn asked_about(context: &Context) -> Vec<Value> {
    let calls = context.undecided_calls(false);
    calls.map(|(_, arguments)| arguments.clone()).collect()
}

#[test]
fn an_approval_holds_for_the_arguments_that_were_asked_about() {
    let context = waiting(&path("x"));
    assert_eq!(asked_about(&context), [path("x")]);
    let context = context
        .ask_about_tool_call("a", Some(path("/srv/x")), at(0))
        .unwrap();
    let context = stored(&context);
    assert_eq!(context.tool_call_status("a"), Some(CallStatus::Pending));
    assert_eq!(asked_about(&context), [path("/srv/x")]);
    assert!(!context.is_approved("a", &path("/srv/x")));

    let context = stored(&approve(&context, None));
    assert_eq!(asked_about(&context), []);
    assert!(context.is_approved("a", &path("/srv/x")));
    assert!(!context.is_approved("a", &path("x")));
    let decision = context.tool_call_decision("a").unwrap();
    assert_eq!(decision.arguments, Some(path("/srv/x")));
}

#[test]
fn who_was_shown_other_arguments_decides_nothing() {
    let own = waiting(&path("x"));
    let asked = own
        .ask_about_tool_call("a", Some(path("y")), at(0))
        .unwrap();
    for (context, to_run, other) in [(&own, "x", "y"), (&asked, "y", "x")] {
        let context = stored(context);
        let refused = Error::OtherArguments {
            id: "a".into(),
            paths: vec![vec![Value::text("path")]],
        };
        assert_eq!(
            try_approve(&context, Some(&path(other))).err(),
            Some(refused.clone())
        );
        assert_eq!(context.tool_call_status("a"), Some(CallStatus::Pending));

        let deny = |shown: Option<&Value>| {
            context.deny_tool_call("a", shown, Value::Nil, Value::Nil, at(0))
        };
        assert_eq!(deny(Some(&path(other))).err(), Some(refused));
        assert!(deny(Some(&path(to_run))).unwrap() == deny(None).unwrap());

        let approved = stored(&approve(&context, Some(&path(to_run))));
        assert!(approved == approve(&context, None));
        assert!(approved.is_approved("a", &path(to_run)));
        assert!(!approved.is_approved("a", &path(other)));
    }
}

#[test]
fn a_decision_about_an_earlier_attempt_is_none() {
    let context = waiting(&path("x"));
    assert_eq!(context.next_attempt("a"), None);
    assert_eq!(context.check_attempt("a", &Value::Int(1)), Ok(1));
    let noted = |noted: Value| {
        let key = Value::text("asked_anew");
        let noted = context.put_iteration_metadata(1, key, noted, at(0));
        stored(&noted.unwrap())
    };
    let of_a = |attempt: Value| map(vec![(Value::text("a"), attempt)]);
    let anew = noted(of_a(Value::Int(1)));
    assert_eq!(anew.next_attempt("a"), Some(2));
    assert_eq!(anew.next_attempt("b"), None);
    let refused = Error::OtherAttempt {
        id: "a".into(),
        attempt: 2,
    };
    for other in [Value::Int(1), Value::Int(3), Value::text("2"), Value::Nil] {
        assert_eq!(anew.check_attempt("a", &other), Err(refused.clone()));
    }
    assert_eq!(anew.check_attempt("a", &Value::Int(2)), Ok(2));
    // Anything may stand in a document.
    let most = noted(of_a(Value::Int(i64::MAX)));
    assert_eq!(most.next_attempt("a"), Some(i64::MAX));
    for other in [Value::Nil, of_a(Value::text("1")), map(Vec::new())] {
        assert_eq!(noted(other).next_attempt("a"), None);
    }
}

#[test]
fn an_error_names_the_first_places_that_differ_and_no_values() {
    let numbered = |range: std::ops::Range<i64>| {
        let entry = |n| (Value::Int(n), Value::text("SECRET"));
        map(range.map(entry).collect())
    };
    let refused = try_approve(&waiting(&numbered(0..3)), Some(&numbered(2..100)));
    let Some(Error::OtherArguments { paths, .. }) = refused.err() else {
        panic!("approved");
    };
    let first = [0, 1, 3, 4, 5, 6, 7, 8].map(|n| vec![Value::Int(n)]);
    assert_eq!(paths, first);

    let values = |last: &str, more: Value| {
        let items = ["a", last].map(Value::text);
        let same = map(vec![(Value::text("x"), Value::Int(1))]);
        map(vec![
            (Value::text("cc"), Value::List(items.into())),
            (Value::text("same"), same),
            (Value::text("to"), more),
        ])
    };
    let refused = try_approve(
        &waiting(&values("b", Value::text("ann"))),
        Some(&values("c", map(Vec::new()))),
    );
    let inside = [
        vec![Value::text("cc"), Value::Int(1)],
        vec![Value::text("to")],
    ];
    assert!(matches!(refused, Err(Error::OtherArguments { paths, .. }) if paths == inside));

    let whole = try_approve(&waiting(&path("x")), Some(&Value::text("{}")));
    assert!(matches!(whole, Err(Error::OtherArguments { paths, .. }) if paths == [vec![]]));
}

#[test]
fn somebody_who_was_asked_stays_asked_whatever_the_arguments() {
    let context = waiting(&path("x"));
    assert!(!is_asked(&context));
    let own = stored(&context.ask_about_tool_call("a", None, at(0)).unwrap());
    assert!(is_asked(&own));
    assert!(own != context);
    let other = own
        .ask_about_tool_call("a", Some(path("y")), at(0))
        .unwrap();
    let other = stored(&other);
    assert!(is_asked(&other));
    // Who asks again without arguments asks about the same.
    assert!(other.ask_about_tool_call("a", None, at(0)).unwrap() == other);
    assert!(
        other
            .ask_about_tool_call("a", Some(path("x")), at(0))
            .unwrap()
            == own
    );
}

#[test]
fn what_was_asked_or_approved_and_has_no_result_is_to_be_asked_where_decisions_do_not_count() {
    let own = waiting(&path("x"));
    let asked = own.ask_about_tool_call("a", None, at(0)).unwrap();
    let other = own
        .ask_about_tool_call("a", Some(path("y")), at(0))
        .unwrap();
    let denied = asked.deny_tool_call("a", None, Value::Nil, Value::Nil, at(0));
    for (context, shown) in [
        (own.clone(), None),
        (asked.clone(), Some("x")),
        (other.clone(), Some("y")),
        (approve(&own, None), Some("x")),
        (approve(&other, None), Some("y")),
        (denied.unwrap(), None),
        (
            approve(&other, None).answers(&[("a", Value::text("gone"))]),
            None,
        ),
    ] {
        let context = stored(&context);
        let to_ask: Vec<_> = context.calls_to_ask().map(|(_, shown)| shown).collect();
        assert_eq!(to_ask, shown.map(path).iter().collect::<Vec<_>>());
    }
}

/// What ends the wait: a decision, or a result of any kind.
#[test]
fn nobody_is_asked_about_what_is_decided_or_has_its_result() {
    let asked = waiting(&path("x"))
        .ask_about_tool_call("a", None, at(0))
        .unwrap();
    let denied = asked.deny_tool_call("a", None, Value::Nil, Value::Nil, at(0));
    for context in [
        approve(&asked, None),
        denied.unwrap(),
        asked.interrupt(&Value::text("stop"), Stamp::at(at(0))),
        asked.cancel(&Value::text("stop"), Stamp::at(at(0))),
        asked.answers(&[("a", Value::text("gone"))]),
    ] {
        assert!(!is_asked(&stored(&context)));
    }
}

/// An approval is for one conversation, and so is the lack of one: what needed a decision needs one in the fork.
#[test]
fn a_fork_asks_about_what_was_asked_about_or_approved() {
    let asked = waiting(&path("x"))
        .ask_about_tool_call("a", Some(path("y")), at(0))
        .unwrap();
    for context in [asked.clone(), approve(&asked, None)] {
        let fork = stored(&context.fork("f", at(0)));
        assert!(is_asked(&fork));
        assert_eq!(asked_about(&fork), [path("y")]);
    }
    assert!(!is_asked(&waiting(&path("x")).fork("f", at(0))));
}

/// Releases before this one noted other arguments alone, and nothing about the call's own.
#[test]
fn older_documents_say_who_was_asked_by_the_arguments() {
    let asked = |arguments| {
        let asked = waiting(&path("x")).ask_about_tool_call("a", arguments, at(0));
        String::from_utf8(asked.unwrap().to_snapshot()).unwrap()
    };
    let [own, other] = [None, Some(path("y"))].map(asked);
    assert!(
        own.contains(r#""was_asked":true"#) && !own.contains(r#""asked":{"#),
        "{own}"
    );
    assert!(
        !other.contains("was_asked") && other.contains(r#""asked":{"path":"y"}"#),
        "{other}"
    );
    assert!(is_asked(&Context::from_snapshot(other.as_bytes()).unwrap()));
    for (flag, is_waiting) in [
        ("true", Some(true)),
        ("false", Some(false)),
        ("null", Some(false)),
        ("1", None),
    ] {
        let text = own.replace(r#""was_asked":true"#, &format!(r#""was_asked":{flag}"#));
        let loaded = Context::from_snapshot(text.as_bytes());
        assert_eq!(loaded.ok().as_ref().map(is_asked), is_waiting, "{flag}");
    }
}

#[test]
fn a_changed_document_is_not_what_was_approved() {
    let context = approve(&waiting(&path("x")), None);
    let changed = edited(
        &context,
        r#""arguments":{"path":"x"}"#,
        r#""arguments":{"path":"/"}"#,
    );
    assert_eq!(changed.tool_call_status("a"), Some(CallStatus::Approved));
    assert!(!changed.is_approved("a", &path("/")));
    // What was approved is approved still.
    assert!(changed.is_approved("a", &path("x")));

    let renamed = edited(&context, r#""name":"delete""#, r#""name":"wipe""#);
    assert!(!renamed.is_approved("a", &path("x")));
}

#[test]
fn an_approval_ends_with_the_result() {
    let context = approve(&waiting(&path("x")), None);
    assert!(context.is_approved("a", &path("x")));
    let context = context.answers(&[("a", Value::text("gone"))]);
    assert!(!context.is_approved("a", &path("x")));
}

#[test]
fn an_approval_without_a_digest_holds_for_the_call_as_it_stands() {
    let context = approve(&waiting(&path("x")), None);
    let text = String::from_utf8(context.to_snapshot()).unwrap();
    let (before, digest) = text.split_once(r#","digest":"#).unwrap();
    let (_, after) = digest.split_once('}').unwrap();
    let old = Context::from_snapshot(format!("{before}}}{after}").as_bytes()).unwrap();
    assert!(old.is_approved("a", &path("x")));
    assert!(!old.is_approved("a", &path("y")));
}

/// What a release has stored, all later ones read.
#[test]
fn digests_stay_what_they_are() {
    let arguments = map(vec![
        (Value::text("path"), Value::text("x")),
        (Value::atom("deep"), Value::List([map(vec![])].into())),
        (
            Value::Int(-1),
            Value::Tuple([Value::Float(1.5), Value::Nil].into()),
        ),
        (
            Value::Bool(true),
            Value::integer((i128::from(i64::MAX) + 1).into()),
        ),
    ]);
    let context = approve(&waiting(&arguments), None);
    assert_eq!(
        context.tool_call_decision("a").unwrap().digest.as_deref(),
        Some("sha256:570926435272323e9082ece488ac208a52410f1a887f8ea1c67e9ee116aa9a43")
    );
}

#[test]
fn a_digest_that_nobody_knows_holds_for_nothing() {
    let context = approve(&waiting(&path("x")), None);
    let unknown = edited(&context, r#""digest":"sha256:"#, r#""digest":"sha999:"#);
    assert!(!unknown.is_approved("a", &path("x")));

    let text = String::from_utf8(context.to_snapshot()).unwrap();
    let (before, digest) = text.split_once(r#""digest":"#).unwrap();
    let (_, after) = digest.split_once('}').unwrap();
    for wrong in ["5", "[]", "true"] {
        let text = format!(r#"{before}"digest":{wrong}}}{after}"#);
        assert!(matches!(
            Context::from_snapshot(text.as_bytes()),
            Err(Error::Invalid { .. })
        ));
    }
}

#[test]
fn a_denial_keeps_what_it_was_asked_about() {
    let context = waiting(&path("x"))
        .ask_about_tool_call("a", Some(path("y")), at(0))
        .unwrap();
    let denied = context
        .deny_tool_call("a", None, Value::Nil, Value::Nil, at(0))
        .unwrap();
    let denied = stored(&denied);
    assert_eq!(
        denied.tool_call_decision("a").unwrap().arguments,
        Some(path("y"))
    );
    assert!(!denied.is_approved("a", &path("y")));
}

#[test]
fn only_what_waits_can_be_asked_about_or_run() {
    let approved = approve(&waiting(&path("x")), None);
    let refused = approved.ask_about_tool_call("a", Some(path("y")), at(0));
    let (id, from, to) = ("a".into(), "approved", "asked");
    assert_eq!(refused.err(), Some(Error::IllegalStatus { id, from, to }));

    let ended = approved.interrupt(&Value::text("stop"), Stamp::at(at(0)));
    assert!(!ended.is_approved("a", &path("x")));
    assert!(ended
        .ask_about_tool_call("a", Some(path("y")), at(0))
        .is_err());
    assert!(!ended.is_approved("nobody", &path("x")));
    assert!(matches!(
        ended.ask_about_tool_call("nobody", Some(path("x")), at(0)),
        Err(Error::UnknownToolCall { .. })
    ));
}

#[test]
fn what_a_stranger_says_of_decisions_is_dropped_whole() {
    let asked = waiting(&path("/"))
        .ask_about_tool_call("a", Some(path("harmless")), at(0))
        .unwrap();
    let trust = Trust {
        approvals: Approvals::Drop,
        structs: Structs::Keep,
    };
    let load = |context: &Context| Context::from_snapshot_with(&context.to_snapshot(), trust);
    let waits = waiting(&path("/")).ask_about_tool_call("a", None, at(0));
    let waits = waits.unwrap();
    for context in [
        approve(&waiting(&path("/")), None),
        approve(&asked, None),
        asked,
    ] {
        // What needed a decision needs one still, and nobody is shown the stranger's arguments.
        assert!(load(&context).unwrap() == waits);
    }
    assert!(load(&waiting(&path("/"))).unwrap() == waiting(&path("/")));
}

#[test]
fn what_was_shown_is_a_map() {
    let asked = waiting(&path("x")).ask_about_tool_call("a", Some(path("y")), at(0));
    let asked = asked.unwrap();
    for (context, key) in [
        (asked.clone(), "asked"),
        (approve(&asked, None), "arguments"),
    ] {
        let text = String::from_utf8(context.to_snapshot()).unwrap();
        let shown = format!(r#""{key}":{{"path":"y"}}"#);
        assert!(text.contains(&shown), "{text}");
        let text = text.replace(&shown, &format!(r#""{key}":"y""#));
        let error = Context::from_snapshot(text.as_bytes()).err();
        assert!(matches!(error, Some(Error::Invalid { .. })));
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        (-2i64..3).prop_map(Value::Int),
        prop_oneof![Just(0.0), Just(-0.0), Just(1.0), Just(1e300), any::<f64>()]
            .prop_filter("finite", |float: &f64| float.is_finite())
            .prop_map(Value::Float),
        "[a-c$\"]{0,2}".prop_map(|text| Value::text(&text)),
        "[a-c]{1,2}".prop_map(|text| Value::atom(&text)),
        proptest::collection::vec(any::<u8>(), 0..3).prop_map(|bytes| Value::Binary(bytes.into())),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let items = proptest::collection::vec(inner.clone(), 0..3);
        prop_oneof![
            items.clone().prop_map(|items| Value::List(items.into())),
            items.prop_map(|items| Value::Tuple(items.into())),
            proptest::collection::vec((inner.clone(), inner), 0..3).prop_map(map),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Value> {
    proptest::collection::vec((value(), value()), 0..3).prop_map(map)
}

proptest! {
    /// Of all values, one can be approved and holds then, before and after storage: the one that would run.
    #[test]
    fn an_approval_holds_for_equal_arguments_only(
        own in arguments(), asked in proptest::option::of(arguments()), other in arguments()
    ) {
        let mut context = waiting(&own);
        if let Some(asked) = &asked {
            context = context.ask_about_tool_call("a", Some(asked.clone()), at(0)).unwrap();
        }
        let to_run = asked.as_ref().unwrap_or(&own);
        for shown in [&own, &other, to_run] {
            prop_assert_eq!(try_approve(&context, Some(shown)).is_ok(), shown == to_run);
        }
        let approved = approve(&context, Some(to_run));
        for context in [&approved, &stored(&approved)] {
            prop_assert!(context.is_approved("a", to_run));
            for given in [&own, &other] {
                prop_assert_eq!(context.is_approved("a", given), given == to_run);
            }
        }
    }
}

fn edit(context: &Context, edited: Value) -> Result<Context, Error> {
    context.approve_edited("a", None, Some(edited), Value::text("ann"), at(0))
}

/// Whoever changes the arguments of a call approves these and no others.
#[test]
fn an_edited_call_is_approved_with_what_the_person_wrote() {
    let own = waiting(&path("x"));
    let asked = own.ask_about_tool_call("a", Some(path("y")), at(0));
    for (context, shown) in [(own.clone(), "x"), (asked.unwrap(), "y")] {
        let edited = stored(&edit(&context, path("z")).unwrap());
        for (written, is_approved) in [("x", false), ("y", false), ("z", true)] {
            assert_eq!(edited.is_approved("a", &path(written)), is_approved);
        }
        let decision = edited.tool_call_decision("a").unwrap();
        assert_eq!(decision.edited, Some(path("z")));
        assert_eq!(edited.edited_arguments("a"), Some(&path("z")));
        assert!(edit(&edited, path("q")).is_err());
        assert!(edited
            .deny_tool_call("a", None, Value::Nil, Value::Nil, at(0))
            .is_err());

        // What was shown is checked first, and arguments that stay the same are not edited.
        let refused =
            context.approve_edited("a", Some(&path("q")), Some(path("z")), Value::Nil, at(0));
        assert!(matches!(refused, Err(Error::OtherArguments { .. })));
        let same = edit(&context, path(shown)).unwrap();
        assert!(same == approve(&context, None));

        // A version that does not know them finds an approval of others than the call's own.
        let text = String::from_utf8(edited.to_snapshot()).unwrap();
        let older = text.replacen(r#""edited":{"path":"z"},"#, "", 1);
        assert!(older.len() < text.len(), "{text}");
        let older = Context::from_snapshot(older.as_bytes()).unwrap();
        assert!(!older.is_approved("a", &path("x")) && !older.is_approved("a", &path("y")));
    }
}

#[test]
fn an_edited_call_has_arguments_of_its_kind() {
    let custom = r#"[{"id":"a","name":"run","kind":"custom","arguments":"ls"}]"#;
    let provider = r#"[{"id":"a","name":"run","kind":"mcp_approval","arguments":{}}]"#;
    let text = Value::text("ls -l");
    for (calls, taken, refused) in [
        (custom, Some(text.clone()), vec![path("x"), Value::Nil]),
        (provider, None, vec![path("x"), text.clone()]),
        (
            r#"[{"id":"a","name":"run","arguments":{}}]"#,
            Some(path("x")),
            vec![text.clone(), Value::Nil],
        ),
    ] {
        let context = conversation("Hi").calls(calls);
        for other in refused {
            assert!(
                matches!(edit(&context, other), Err(Error::Invalid { path, .. }) if path == [Value::atom("edited")])
            );
        }
        if let Some(taken) = taken {
            let edited = stored(&edit(&context, taken.clone()).unwrap());
            let fork = stored(&edited.fork("f", at(0)));
            assert_eq!(asked_about(&fork), [taken]);
            stored(&edited.answers(&[("a", Value::text("done"))]));
        }
    }
}

/// An edit is the person's, also where its approval has come to nothing.
#[test]
fn what_is_asked_about_again_is_what_the_person_wrote() {
    let edited = edit(&waiting(&path("x")), path("z")).unwrap();
    for context in [edited.fork("f", at(0)), edited.ask_again(at(0))] {
        let context = stored(&context);
        assert!(is_asked(&context) && !context.is_approved("a", &path("z")));
        assert_eq!(asked_about(&context), [path("z")]);
        assert_eq!(context.edited_arguments("a"), Some(&path("z")));
        let same = context.ask_about_tool_call("a", None, at(0)).unwrap();
        assert!(same == context);
        let again = stored(&approve(&context, Some(&path("z"))));
        assert_eq!(
            again.tool_call_decision("a").unwrap().edited,
            Some(path("z"))
        );
        let others = context.ask_about_tool_call("a", Some(path("x")), at(0));
        assert_eq!(others.unwrap().edited_arguments("a"), None);
        // A version that does not know them asks about the call's own.
        let text = String::from_utf8(context.to_snapshot()).unwrap();
        let older = text.replacen(r#","edited":{"path":"z"}"#, "", 1);
        assert!(older.len() < text.len(), "{text}");
        let older = Context::from_snapshot(older.as_bytes()).unwrap();
        assert!(is_asked(&older));
        assert_eq!(asked_about(&older), [path("x")]);
    }
}

/// The model reads its own call, and in the result what a person made of it, from every provider and under masks.
#[test]
fn the_model_is_told_of_edited_arguments() {
    let secret = |text: &str| path(&format!("{text} \"s3cret\" s3cret"));
    let parts = || crate::make::value(r#"[{"type":"text","text":"done"}]"#);
    let masks = || {
        Masks::new([
            ("\"s3cret\"".into(), "!".into()),
            ("s3cret".into(), "#".into()),
        ])
    };
    for result in [Value::text("done"), path("done"), Value::Nil, parts()] {
        let context = edit(&waiting(&path("own")), secret("z")).unwrap();
        let context = stored(&context.answers(&[("a", result)]));
        let masked = context.put_masks(masks().unwrap(), at(0));
        for provider in Provider::ALL {
            let body = sent(&context, provider);
            assert!(body.contains("own"), "{provider:?}: {body}");
            let told = body.find("A person changed");
            let told = told.unwrap_or_else(|| panic!("{provider:?}: {body}"));
            assert!(body[told..].contains("s3cret"), "{provider:?}: {body}");
            let body = sent(&masked, provider);
            assert!(
                body.contains("A person changed") && !body.contains("s3cret"),
                "{provider:?}: {body}"
            );
            assert!(body.contains("z ! #"), "{provider:?}: {body}");
        }
    }
}
