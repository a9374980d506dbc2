//! What providers, gateways and servers answer when a request fails, as they were recorded in issues, SDKs and documentation,
//! and the kind of failure that each is.
use ash_agent_context_core::{FailureKind, Fault};
use proptest::prelude::*;
use serde_json::Value as Json;

/// Who answered, the status, what the headers call it, the body, and what it is.
const RECORDED: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../test/fixtures/refusals.json"
));

#[test]
fn refusals_have_one_vocabulary() {
    let recorded: Vec<Json> = serde_json::from_str(RECORDED).unwrap();
    assert!(recorded.len() > 50);
    for row in recorded {
        let status = u16::try_from(row["status"].as_u64().unwrap()).unwrap();
        let body = row["body"].as_str().unwrap().as_bytes();
        let fault = Fault::refusal(status, row["name"].as_str(), body);
        assert_eq!(row["kind"], fault.kind().name(), "{row}");
        assert_eq!(fault.again(), fault.kind().passes(), "{row}");
    }
}

#[test]
fn the_words_and_the_name_of_a_refusal_are_kept() {
    let said = |body: &str| {
        Fault::refusal(400, None, body.as_bytes())
            .message()
            .map(str::to_owned)
    };
    assert_eq!(said(r#"{"error":{"message":"no"}}"#).unwrap(), "no");
    assert_eq!(said(r#"{"error":"no"}"#).unwrap(), "no");
    assert_eq!(said(r#"{"Message":"no"}"#).unwrap(), "no");
    assert_eq!(said(r#"{"detail":"no"}"#).unwrap(), "no");
    assert_eq!(said(r#"{"detail":[{"msg":"no"}]}"#).unwrap(), "no");
    assert_eq!(said(" no \n").unwrap(), "no");
    assert_eq!(said(r#"{"a":1}"#), None);
    assert_eq!(said(""), None);
    let Fault::Provider { code, after, .. } = Fault::refusal(
        429,
        Some("ThrottlingException:x"),
        br#"{"error":{"details":[{"retryDelay":"1.5s"}]}}"#,
    ) else {
        panic!("another fault");
    };
    assert_eq!(
        (code.as_deref(), after),
        (Some("ThrottlingException"), Some(1500))
    );
}

#[test]
fn kinds_have_names() {
    for kind in FailureKind::ALL {
        assert_eq!(FailureKind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(FailureKind::from_name("rate limited"), None);
}

proptest! {
    #[test]
    fn anything_is_some_refusal(status in 300_u16..600, name in proptest::option::of(".{0,40}"), body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let fault = Fault::refusal(status, name.as_deref(), &body);
        prop_assert!(fault.message().is_none_or(|words| words.chars().count() <= 2_000));
        prop_assert!(FailureKind::ALL.contains(&fault.kind()));
    }
}
