//! What fits a schema, beside what the crate `jsonschema` says: on schemas and values that are drawn, and on the
//! JSON-Schema-Test-Suite where it is. A keyword that is not checked is an error, so nothing that is taken is ignored.

use std::fs;
use std::path::{Path, PathBuf};

use ash_agent_context_core::{json, Answer, AnswerType, MendKind, ReadingState, Value};
use proptest::prelude::*;
use serde_json::{json as data, Value as Json};

fn value(json: &Json) -> Value {
    json::read(json.to_string().as_bytes(), 200).unwrap()
}

fn to_json(value: &Value) -> Json {
    serde_json::from_str(&json::write(value)).unwrap()
}

fn fits(answer: &Answer) -> bool {
    answer.state == ReadingState::Fits
}

/// A value of few names and numbers, so that it often fits a schema of few names and numbers.
fn any_value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (-3..4_i64).prop_map(Json::from),
        prop_oneof![Just(0.5), Just(1.0), Just(-2.5)].prop_map(Json::from),
        prop_oneof![
            Just(""),
            Just("a"),
            Just("ab"),
            Just("2"),
            Just("true"),
            Just("ä")
        ]
        .prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            proptest::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

fn keyword() -> impl Strategy<Value = (&'static str, Json)> {
    let kind = || {
        proptest::sample::select(vec![
            "null", "boolean", "integer", "number", "string", "array", "object",
        ])
    };
    prop_oneof![
        4 => kind().prop_map(|kind| ("type", data!(kind))),
        1 => (kind(), kind()).prop_filter("two", |(a, b)| a != b).prop_map(|(a, b)| ("type", data!([a, b]))),
        1 => any_value().prop_map(|value| ("const", value)),
        1 => proptest::collection::vec(any_value(), 1..3).prop_map(|values| ("enum", data!(values))),
        1 => (-2..3).prop_map(|n| ("minimum", data!(n))),
        1 => (-2..3).prop_map(|n| ("maximum", data!(n))),
        1 => (-2..3).prop_map(|n| ("exclusiveMinimum", data!(n))),
        1 => (-2..3).prop_map(|n| ("exclusiveMaximum", data!(n))),
        1 => prop_oneof![Just(data!(2)), Just(data!(0.5)), Just(data!(1.5))].prop_map(|n| ("multipleOf", n)),
        1 => (0..3).prop_map(|n| ("minLength", data!(n))),
        1 => (0..3).prop_map(|n| ("maxLength", data!(n))),
        1 => (0..3).prop_map(|n| ("minItems", data!(n))),
        1 => (0..3).prop_map(|n| ("maxItems", data!(n))),
        1 => (0..3).prop_map(|n| ("minProperties", data!(n))),
        1 => (0..3).prop_map(|n| ("maxProperties", data!(n))),
        1 => any::<bool>().prop_map(|is_unique| ("uniqueItems", data!(is_unique))),
        1 => prop_oneof![Just("^a"), Just("b$"), Just("[0-9]")].prop_map(|of| ("pattern", data!(of))),
        1 => proptest::collection::btree_set("[abc]", 0..3).prop_map(|names| ("required", data!(names))),
    ]
}

fn any_schema() -> impl Strategy<Value = Json> {
    let object = |keywords: Vec<(&'static str, Json)>| {
        let entry = |(key, value): (&str, Json)| (key.to_owned(), value);
        Json::Object(keywords.into_iter().map(entry).collect())
    };
    let leaf = prop_oneof![
        8 => proptest::collection::vec(keyword(), 0..4).prop_map(object),
        1 => any::<bool>().prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let several = || proptest::collection::vec(inner.clone(), 1..4);
        let properties = proptest::collection::btree_map("[abc]", inner.clone(), 0..4);
        let inside = prop_oneof![
            properties.prop_map(|map| ("properties", data!(map))),
            inner.clone().prop_map(|of| ("additionalProperties", of)),
            inner.clone().prop_map(|of| ("items", of)),
            several().prop_map(|of| ("prefixItems", data!(of))),
            several().prop_map(|of| ("allOf", data!(of))),
            several().prop_map(|of| ("anyOf", data!(of))),
            several().prop_map(|of| ("oneOf", data!(of))),
        ];
        let parts = (
            proptest::collection::vec(keyword(), 0..3),
            proptest::collection::vec(inside, 1..4),
        );
        parts.prop_map(move |(own, inside)| object([own, inside].concat()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_fits_is_what_the_oracle_says(schema in any_schema(), values in proptest::collection::vec(any_value(), 8)) {
        // Too many schemas for one value are refused.
        let Ok(answer_type) = AnswerType::new(&value(&schema)) else { return Ok(()) };
        let oracle = jsonschema::options().with_draft(jsonschema::Draft::Draft202012).build(&schema).unwrap();
        for given in values {
            for strict in [true, false] {
                let answer = answer_type.check(&value(&given), strict);
                if oracle.is_valid(&given) {
                    // What fits is never changed.
                    prop_assert!(fits(&answer), "{schema} takes {given}: {:?}", answer.issues);
                    prop_assert_eq!(answer.value, Some(value(&given)));
                } else if fits(&answer) {
                    // What was repaired fits.
                    prop_assert!(!answer.mends.is_empty(), "{schema} refuses {given}");
                    let mended = to_json(&answer.value.unwrap());
                    prop_assert!(oracle.is_valid(&mended), "{schema} refuses {mended}, made of {given}");
                    let only_left_out = answer.mends.iter().all(|mend| mend.kind == MendKind::DroppedNull);
                    prop_assert!(!strict || only_left_out, "{schema}: {:?} of {given}", answer.mends);
                }
            }
        }
    }
}

#[test]
fn all_keywords_are_checked_where_the_crate_is_built_in() {
    let table = [
        (data!({"not": {"type": "string"}}), data!(1), data!("a")),
        (
            data!({"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": false}),
            data!({"x1": 1}),
            data!({"x1": "a"}),
        ),
        (
            data!({"if": {"minimum": 1}, "then": {"multipleOf": 2}}),
            data!(2),
            data!(3),
        ),
        (
            data!({"dependentRequired": {"a": ["b"]}}),
            data!({"a": 1, "b": 1}),
            data!({"a": 1}),
        ),
        (data!({"pattern": "(?=a)"}), data!("a"), data!("b")),
        (data!({"contains": {"const": 1}}), data!([2, 1]), data!([2])),
    ];
    for (schema, fitting, other) in table {
        assert!(AnswerType::new(&value(&schema)).is_err(), "{schema}");
        let answer_type = AnswerType::of_any_keywords(&value(&schema)).unwrap();
        assert!(
            fits(&answer_type.check(&value(&fitting), false)),
            "{schema} of {fitting}"
        );
        let answer = answer_type.check(&value(&other), false);
        assert!(!fits(&answer), "{schema} of {other}");
        let words: Vec<String> = answer.issues.iter().map(|issue| issue.line()).collect();
        assert!(
            words
                .iter()
                .all(|line| line.contains("expected what the schema says at /")),
            "{words:?}"
        );
    }
    let wrong = data!({"type": "object", "patternProperties": {"x": 1}});
    assert!(AnswerType::of_any_keywords(&value(&wrong)).is_err());
}

#[test]
fn deep_schemas_and_values_take_no_stack_of_the_caller() {
    let deep = (0..60).fold(
        data!({"not": {"type": "string"}}),
        |inner, _| data!({"type": "array", "items": inner}),
    );
    let list = (0..60).fold(data!(1), |inner, _| data!([inner]));
    let check = move || {
        let answer_type = AnswerType::of_any_keywords(&value(&deep)).unwrap();
        assert!(fits(&answer_type.check(&value(&list), true)));
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    thread.spawn(check).unwrap().join().unwrap();
}

/// The folder of the suite, <https://github.com/json-schema-org/JSON-Schema-Test-Suite>.
fn suite() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../_build/json-schema-test-suite");
    let folder = std::env::var_os("JSON_SCHEMA_TEST_SUITE").map_or(beside, PathBuf::from);
    let tests = folder.join("tests/draft2020-12");
    tests.is_dir().then_some(tests)
}

/// Tests of the suite that a kind of type passes, refuses by its schema, and fails.
#[derive(Default)]
struct Outcome {
    passed: usize,
    refused: usize,
    failed: Vec<String>,
}

/// What is otherwise here on purpose: formats are checked, a time may lack its offset, seconds may have a fraction, and an integer has all of its digits, which the
/// numbers of `serde_json` have not.
fn is_otherwise(group: &Json, test: &Json) -> bool {
    let name = |of: &Json| {
        of.get("description")
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (group, test) = (name(group), name(test));
    test.ends_with("is only an annotation by default")
        || test.starts_with("no time offset")
        || test.starts_with("fractional duration")
        || test.ends_with("a bignum is an integer")
        || test.ends_with("a negative bignum is an integer")
        || group == "all integers are multiples of 0.5, if overflow is handled"
}

fn run_group(group: &Json, make: &impl Fn(&Value) -> Option<AnswerType>, outcome: &mut Outcome) {
    let schema = group.get("schema").unwrap();
    let tests = group.get("tests").and_then(Json::as_array).unwrap();
    let Some(answer_type) = make(&value(schema)) else {
        outcome.refused += tests.len();
        return;
    };
    for test in tests.iter().filter(|test| !is_otherwise(group, test)) {
        let answer = answer_type.check(&value(test.get("data").unwrap()), true);
        let is_left_out = answer
            .mends
            .iter()
            .any(|mend| mend.kind == MendKind::DroppedNull);
        let is_valid = test.get("valid") == Some(&Json::Bool(true));
        if fits(&answer) == is_valid || (is_left_out && !is_valid) {
            outcome.passed += 1;
        } else {
            let name = |of: &Json| {
                of.get("description")
                    .map(Json::to_string)
                    .unwrap_or_default()
            };
            outcome
                .failed
                .push(format!("{}: {}", name(group), name(test)));
        }
    }
}

#[test]
fn the_test_suite_of_json_schema_is_passed_or_refused() {
    let Some(folder) = suite() else { return };
    let (mut own, mut all) = (Outcome::default(), Outcome::default());
    let folders = ["", "optional", "optional/format"].map(|inner| folder.join(inner));
    let mut files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    for file in files.iter().filter(|file| file.is_file()) {
        let groups: Json = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        for group in groups.as_array().unwrap() {
            run_group(group, &|schema| AnswerType::new(schema).ok(), &mut own);
            run_group(
                group,
                &|schema| AnswerType::of_any_keywords(schema).ok(),
                &mut all,
            );
        }
    }
    println!(
        "own keywords: {} passed, {} refused",
        own.passed, own.refused
    );
    println!(
        "any keywords: {} passed, {} refused",
        all.passed, all.refused
    );
    assert!(own.failed.is_empty(), "{:#?}", own.failed);
    assert!(all.failed.is_empty(), "{:#?}", all.failed);
    assert!(own.passed > 300 && all.passed > own.passed);
}
