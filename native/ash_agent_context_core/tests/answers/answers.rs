//! Answers of a type: what fits is never changed, what is damaged comes back equal or is refused, and nothing that a stream has
//! shown is taken back.

use crate::part;

use ash_agent_context_core::{
    json, put_together, steps, Answer, AnswerType, Came, Error, Follow, Map, MendKind,
    ReadingState, ShownPart, Value,
};
use part::is_part;
use proptest::prelude::*;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The rows of a test in `answer_tables.json`, with schemas, texts and values as they stand there.
fn rows(name: &str) -> Vec<BTreeMap<String, Box<RawValue>>> {
    let tables = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../test/fixtures/answer_tables.json"
    ));
    let mut tables: BTreeMap<String, Vec<_>> = serde_json::from_str(tables).unwrap();
    tables.remove(name).unwrap()
}

fn value(text: &str) -> Value {
    json::read(text.as_bytes(), 256).unwrap()
}

fn answer_type(schema: &str) -> AnswerType {
    AnswerType::new(&value(schema)).unwrap()
}

/// An order: what most answers have in them.
fn order() -> AnswerType {
    answer_type(
        r##"{
          "type": "object",
          "properties": {
            "customer_name": {"type": "string"},
            "count": {"type": "integer", "minimum": 0},
            "price": {"type": "number"},
            "paid": {"type": "boolean"},
            "state": {"enum": ["new", "in_progress", "done"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "address": {"$ref": "#/$defs/address"},
            "note": {"type": "string"}
          },
          "required": ["customer_name", "count", "price", "paid", "state", "tags", "address"],
          "additionalProperties": false,
          "$defs": {
            "address": {
              "type": "object",
              "properties": {"city": {"type": "string"}, "zip": {"type": ["string", "null"]}},
              "required": ["city", "zip"],
              "additionalProperties": false
            }
          }
        }"##,
    )
}

const ORDER: &str = r#"{"customer_name":"Ann","count":2,"price":1.5,"paid":true,"state":"in_progress","tags":["a"],"address":{"city":"Ulm","zip":null}}"#;

fn kinds(answer: &Answer) -> Vec<MendKind> {
    answer.mends.iter().map(|mend| mend.kind).collect()
}

fn lines(answer: &Answer) -> Vec<String> {
    answer.issues.iter().map(|issue| issue.line()).collect()
}

#[test]
fn each_deviation_is_read_and_told() {
    let table: [(&str, String, &[MendKind]); 15] = [
        (
            "prose after it",
            format!("{ORDER} Anything else?"),
            &[MendKind::Prose],
        ),
        (
            "fence",
            format!("```json\n{ORDER}\n```"),
            &[MendKind::Prose],
        ),
        (
            "prose",
            format!("Here {{it}} is: {ORDER} Anything else?"),
            &[MendKind::Prose],
        ),
        (
            "comma",
            ORDER.replace("\"a\"]", "\"a\",]"),
            &[MendKind::TrailingComma],
        ),
        (
            "comma of an object",
            ORDER.replace("null}", "null, }"),
            &[MendKind::TrailingComma],
        ),
        (
            "comments",
            ORDER.replace("\"count\":", "/* how * many */\"count\": // two\n"),
            &[MendKind::Comment; 2],
        ),
        (
            "single quotes",
            ORDER.replace("\"Ann\"", "'Ann'"),
            &[MendKind::SingleQuotes],
        ),
        (
            "bare key",
            ORDER.replace("\"count\":", "count :"),
            &[MendKind::UnquotedKey],
        ),
        (
            "Python",
            ORDER.replace("true", "True"),
            &[MendKind::Literal],
        ),
        (
            "number",
            ORDER.replace(":2,", ":\"2\","),
            &[MendKind::NumberFromText],
        ),
        (
            "boolean",
            ORDER.replace("true", "\"true\""),
            &[MendKind::BooleanFromText],
        ),
        (
            "no list",
            ORDER.replace("[\"a\"]", "\"a\""),
            &[MendKind::Wrapped],
        ),
        ("list of one", format!("[{ORDER}]"), &[MendKind::Unwrapped]),
        (
            "choice",
            ORDER.replace("in_progress", "In Progress"),
            &[MendKind::Choice],
        ),
        (
            "key",
            ORDER.replace("customer_name", "customerName"),
            &[MendKind::KeyStyle],
        ),
    ];
    for (name, text, expected) in table {
        let answer = order().read(&text, false);
        assert_eq!(
            answer.state,
            ReadingState::Fits,
            "{name}: {:?}",
            lines(&answer)
        );
        assert_eq!(answer.value, Some(value(ORDER)), "{name}");
        assert_eq!(kinds(&answer), expected, "{name}");
        let strict = order().read(&text, true);
        assert_eq!(strict.state, ReadingState::Misfits, "{name}");
    }
}

#[test]
fn null_for_a_field_that_may_be_left_out_is_left_out_also_where_nothing_else_is_repaired() {
    let text = ORDER.replace("\"paid\"", "\"note\":null,\"paid\"");
    let answer = order().read(&text, true);
    assert_eq!(answer.value, Some(value(ORDER)));
    assert_eq!(kinds(&answer), [MendKind::DroppedNull]);
}

#[test]
fn arguments_are_repaired_where_that_leaves_them_as_they_were_meant() {
    use MendKind::{BooleanFromText, DroppedNull, JsonFromText, NumberFromText, WholeNumber};
    let book = answer_type(
        r#"{"type":"object","properties":{
            "seats":{"type":"integer","minimum":1},"price":{"type":"number"},"paid":{"type":"boolean"},"class":{"enum":["first","second"]},
            "tags":{"type":"array","items":{"type":"string"}},"rows":{"type":"array","items":{"type":"integer"}},
            "seat":{"type":"object","properties":{"row":{"type":"integer"}},"required":["row"],"additionalProperties":false},
            "either":{"anyOf":[{"type":"integer"},{"type":"string"}]},"maybe":{"anyOf":[{"type":"integer"},{"type":"null"}]}
        },"required":["seats"]}"#,
    );
    let repaired: [(&str, &str, MendKind); 14] = [
        (r#""seats":"2""#, r#""seats":2"#, NumberFromText),
        (r#""seats":" 2 ""#, r#""seats":2"#, NumberFromText),
        (r#""seats":"1e3""#, r#""seats":1000"#, NumberFromText),
        (r#""seats":2.0"#, r#""seats":2"#, WholeNumber),
        (
            r#""seats":"12345678901234567890123""#,
            r#""seats":12345678901234567890123"#,
            NumberFromText,
        ),
        (
            r#""seats":1,"price":"2.5""#,
            r#""seats":1,"price":2.5"#,
            NumberFromText,
        ),
        (
            r#""seats":1,"paid":"true""#,
            r#""seats":1,"paid":true"#,
            BooleanFromText,
        ),
        (
            r#""seats":1,"rows":"[1,2]""#,
            r#""seats":1,"rows":[1,2]"#,
            JsonFromText,
        ),
        (
            r#""seats":1,"rows":["1"]"#,
            r#""seats":1,"rows":[1]"#,
            NumberFromText,
        ),
        (
            r#""seats":1,"seat":"{\"row\":3}""#,
            r#""seats":1,"seat":{"row":3}"#,
            JsonFromText,
        ),
        (
            r#""seats":1,"seat":{"row":"3"}"#,
            r#""seats":1,"seat":{"row":3}"#,
            NumberFromText,
        ),
        (
            r#""seats":1,"maybe":"3""#,
            r#""seats":1,"maybe":3"#,
            NumberFromText,
        ),
        (r#""seats":1,"price":null"#, r#""seats":1"#, DroppedNull),
        (r#""seats":1,"tags":null"#, r#""seats":1"#, DroppedNull),
    ];
    for (given, expected, kind) in repaired {
        let answer = book.check_arguments(&value(&format!("{{{given}}}")));
        assert_eq!(kinds(&answer), [kind], "{given}");
        let expected = value(&format!("{{{expected}}}"));
        assert_eq!(answer.value, Some(expected), "{given}");
    }
    for fits in [
        r#""seats":1,"either":"3""#,
        r#""seats":1,"maybe":null"#,
        r#""seats":1,"more":[null]"#,
    ] {
        let answer = book.check_arguments(&value(&format!("{{{fits}}}")));
        assert_eq!(answer.state, ReadingState::Fits, "{fits}");
        assert!(answer.mends.is_empty(), "{fits}");
    }
    // What an answer would be repaired to, or somebody would have to guess.
    for (given, line) in [
        (r#""seats":null"#, "/seats: expected an integer, got null"),
        (r#""seats":[2]"#, "/seats: expected an integer, got a list"),
        (
            r#""seats":2.5"#,
            "/seats: expected an integer, got a number",
        ),
        (
            r#""seats":"two""#,
            "/seats: expected an integer, got a string",
        ),
        (
            r#""seats":"2 seats""#,
            "/seats: expected an integer, got a string",
        ),
        (
            r#""seats":true"#,
            "/seats: expected an integer, got true or false",
        ),
        (r#""seats":"0""#, "/seats: expected at least 1"),
        (
            r#""seats":1e300"#,
            "/seats: expected an integer with all of its digits, without a point or an exponent",
        ),
        (r#""Seats":1"#, "/seats: is missing: expected an integer"),
        (
            r#""seats":1,"class":"First""#,
            r#"/class: expected one of "first", "second""#,
        ),
        (
            r#""seats":1,"tags":"a""#,
            "/tags: expected a list, got a string",
        ),
        (
            r#""seats":1,"seat":{"row":1,"col":2}"#,
            r#"/seat/col: is not a field here: the fields are "row""#,
        ),
        (
            r#""seats":1,"rows":[1,"x"]"#,
            "/rows/1: expected an integer, got a string",
        ),
    ] {
        let answer = book.check_arguments(&value(&format!("{{{given}}}")));
        assert_eq!(lines(&answer), [line], "{given}");
    }
}

#[test]
fn repairs_name_their_places() {
    let text = ORDER.replace("\"city\":\"Ulm\"", "'city':'Ulm',");
    let answer = order().read(&text.replace(",,", ","), false);
    let paths: Vec<String> = answer
        .mends
        .iter()
        .map(|mend| json::write(&Value::List(mend.path.clone().into())))
        .collect();
    // The quotes of the key, and those of its text.
    assert_eq!(paths, [r#"["address","city"]"#; 2]);

    let answer = any_type().read("{/* a */'it\\'s': 1, b: {\"c\nd\": 2}, e: 3,}", false);
    let told: Vec<(String, &str)> = answer
        .mends
        .iter()
        .map(|mend| {
            (
                json::write(&Value::List(mend.path.clone().into())),
                mend.kind.name(),
            )
        })
        .collect();
    let expected = [
        ("[]", "comment"),
        (r#"["it's"]"#, "single_quotes"),
        (r#"["it's"]"#, "single_quotes"),
        (r#"["b"]"#, "unquoted_key"),
        (r#"["b","c\nd"]"#, "control_character"),
        (r#"["e"]"#, "unquoted_key"),
        (r#"["e"]"#, "trailing_comma"),
    ];
    assert_eq!(told, expected.map(|(path, kind)| (path.to_owned(), kind)));
}

/// An order whose customer looks like an order.
fn small_order() -> AnswerType {
    answer_type(
        r#"{
          "type": "object",
          "properties": {
            "name": {"type": "string"},
            "note": {"type": "string"},
            "customer": {
              "type": "object",
              "properties": {"name": {"type": "string"}, "note": {"type": "string"}},
              "required": ["name"],
              "additionalProperties": false
            }
          },
          "required": ["name"],
          "additionalProperties": false
        }"#,
    )
}

#[test]
fn a_part_is_never_taken_for_the_whole() {
    let deep = "{\"a\":".repeat(70) + "{\"name\": \"Ann\"}" + &"}".repeat(70);
    let table = [
        r#"{“name”: "order 7", "note": "x", "customer": {"name": "Ann"}}"#,
        r#"{“name”: "order 7", "note": "} {'name': 'Bob'}"}"#,
        r#"{"x": NaN, "customer": {"name": "Ann"}, "name": "order 7"}"#,
        r#"{"x": 007, "customer": {"name": "Ann"}, "name": "order 7"}"#,
        r#"{"\d": 1, "customer": {"name": "Ann"}, "name": "order 7"}"#,
        r#"{"na"me": "order 7", "customer": {"name": "Ann"}}"#,
        r#"{x": 1, "name": "order 7", "customer": {"name": "Ann"}}"#,
        r#"{"x: "} {'name': 'Bob'}", "name": "order 7"}"#,
        r#"{, "name": "order 7", "customer": {"name": "Ann"}}"#,
        "{ # so\n\"name\": \"} {'name': 'Bob'}\"}",
        r#""name": "order 7", "customer": {"name": "Ann"}}"#,
        r#"("name": "} {'name': 'Bob'}"}"#,
        r#"Order(name="order 7", customer={"name": "Ann"})"#,
        r#"So: "name": "order 7", "note": "{}", "customer": {"name": "Ann"}}"#,
        "name: order 7\ncustomer: {\"name\": \"Ann\"}",
        r#"{"name": "order 7"}, "note": "x"}"#,
        r#"{"name": "order 7",} "note": "x"}"#,
        r#"{"name": "order 7", "note": "x" } y"}"#,
        r#"{"name": "order 7", "note": "x"}"}"#,
        r#"{"name": "order 7", "customer": {"name": "Ann"}, "note": "x"}}"#,
        r#"{"name": "order 7"} Wait: {“name”: “order 8”}"#,
        &deep,
    ];
    for text in table {
        let answer = small_order().read(text, false);
        assert_eq!(
            answer.state,
            ReadingState::Misfits,
            "{text}: {:?}",
            answer.value
        );
        assert!(!answer.issues.is_empty(), "{text}");
    }
    let list = answer_type(r#"{"type":"array","items":{"type":"array"}}"#);
    for text in ["[x, [1]]", "[[1], x, [[2]]]", "[1, NaN, [2]]"] {
        assert_eq!(
            list.read(text, false).state,
            ReadingState::Misfits,
            "{text}"
        );
    }
    // A stream does not show it either.
    for text in &table[..15] {
        assert_eq!(small_order().read_partial(text, true), None, "{text}");
    }
}

#[test]
fn braces_in_prose_are_prose_and_what_is_behind_them_is_read() {
    let city = answer_type(
        r#"{"type":"object","properties":{"city":{"type":"string"},"value":{"type":"array"}},"required":["city"],"additionalProperties":false}"#,
    );
    for prose in [
        ":-{",
        "if (x) { return {1} }",
        "if (x) { return",
        "f() { return {\"foo\": 1}; }",
        "Use {city} and {people}:",
        "{x : x > 0}",
        "{foo: bar}",
        "{foo: bar} He said \"hello\":",
        "{don't: do}",
        "{height: 5'10\"}",
        "{'a', 'b'} and {\"a\", \"b\"}",
        "{\"foo\": NaN, \"x } y\": 007}",
        "{foo: \"x } y, bar}\"}",
        "[0, 1) and [[link]]",
        "[see \"x\"]",
        "{{template}} {...} {}",
        "{",
        "City:",
        "The city is",
        "- \"city\": the city\n\n",
        "\"city\": the city\n\n",
        "The value:",
        "answer =",
        "It's \"Rome\":",
    ] {
        let text = format!("{prose} {{\"city\": \"Rome\"}}");
        let answer = city.read(&text, false);
        assert_eq!(answer.value, Some(value(r#"{"city":"Rome"}"#)), "{text}");
        assert_eq!(answer.state, ReadingState::Fits, "{text}");
    }
    for prose in [
        " :-{",
        " :-{ Sorry.",
        "{",
        "}",
        "]",
        ", as you asked. It's {done}!",
        " [source: \"x\"] {see the \"y\"}",
        " where {x : x > 0} or {\"a\", \"b\"}",
        " { return",
        "\n\n- \"city\": the capital",
        "\n\"city\": the capital, not {it}",
    ] {
        let text = format!("{{\"city\": \"Rome\"}}{prose}");
        let answer = city.read(&text, false);
        assert_eq!(
            answer.state,
            ReadingState::Fits,
            "{text}: {:?}",
            lines(&answer)
        );
    }
    // A list is not an object of any fields.
    let any = answer_type(r#"{"type":"object"}"#);
    for prose in ["[INFO]", "[1]", "[see {it}]", "Here {it} is:", ":-{"] {
        let answer = any.read(&format!("{prose} {{\"a\": 1}}"), false);
        assert_eq!(answer.value, Some(value(r#"{"a":1}"#)), "{prose}");
    }
    // Quotes around it are no rest of it.
    let quoted = city.read(r#"'"{"city": "Rome"}", she said"#, false);
    assert_eq!(quoted.state, ReadingState::Fits);
}

#[test]
fn a_text_that_ends_within_a_second_answer_is_cut() {
    let second = r#"{"name": "order 8", "customer": {"name": "Ann"}}"#;
    for (prose, least) in [
        (" Wait: ", 1),
        ("\n", 1),
        ("", 2),
        ("\n```json\n", 1),
        (" Or [", 2),
    ] {
        for end in least..second.len() {
            for second in [second, &second.replace('"', "'"), &second.replace('"', "")] {
                // What is not JSON is broken as soon as that is seen.
                let end = end.min(second.find("order").unwrap());
                let text = format!(r#"{{"name": "order 7"}}{prose}{}"#, &second[..end]);
                assert_eq!(
                    small_order().read(&text, false).state,
                    ReadingState::Cut,
                    "{text}"
                );
                assert_eq!(
                    small_order().read_partial(&text, true),
                    Some(value(r#"{"name":"order 7"}"#))
                );
            }
            let text = format!(r#"{{"name": "order 7"}}{prose}{}"#, &second[..end]);
            assert_eq!(
                small_order().read(&text, false).state,
                ReadingState::Cut,
                "{text}"
            );
        }
    }
    let smart = small_order().read(r#"{"name": "order 7"} Wait: {“na"#, false);
    assert_eq!(smart.state, ReadingState::Cut);
}

#[test]
fn a_brace_too_many_is_one_that_could_be_nowhere_else() {
    let read = |text: &str| small_order().read(text, false).state;
    assert_eq!(read(r#"{"name": "order 7"}}"#), ReadingState::Fits);
    assert_eq!(
        read(r#"{"name": "order 7", "customer": {"name": "Ann"}} }"#),
        ReadingState::Fits
    );
    // The note may be the customer's.
    assert_eq!(
        read(r#"{"name": "7", "customer": {"name": "Ann"}, "note": "x"}}"#),
        ReadingState::Misfits
    );
    assert_eq!(
        read(r#"{"customer": {"name": "Ann"}, "name": "order 7"}}"#),
        ReadingState::Fits
    );
    // It was opened.
    assert_eq!(
        read(r#"{{"name": "7", "customer": {"name": "Ann"}, "note": "x"}}"#),
        ReadingState::Fits
    );
    // Nobody tries all of them.
    let fields = |of: &str| {
        (0..20)
            .map(|at| format!(r#""f{at}":{of}"#))
            .collect::<Vec<_>>()
            .join(",")
    };
    let many = answer_type(&format!(
        r#"{{"type":"object","properties":{{{}}}}}"#,
        fields(r#"{"type":"object"}"#)
    ));
    let text = format!("{{{}}}}}", fields("{}"));
    assert_eq!(many.read(&text, false).state, ReadingState::Misfits);
}

#[test]
fn what_is_written_as_json_in_a_text_is_read_as_it_says_or_refused() {
    for row in rows("json_in_texts") {
        let (schema, text) = (row["schema"].get(), row["text"].get());
        let schema =
            format!(r#"{{"type":"object","properties":{{"x":{schema}}},"required":["x"]}}"#);
        let text = format!(r#"{{"x": {text}}}"#);
        let expected = row.get("value").map(|value| value.get());
        for text in [text.clone(), format!("So: {text}")] {
            let answer = answer_type(&schema).read(&text, false);
            let found = (answer.state == ReadingState::Fits).then_some(answer.value);
            let expected = expected.map(|of| value(&format!(r#"{{"x":{of}}}"#)));
            assert_eq!(found.flatten(), expected, "{schema}: {text}");
        }
        if expected.is_some_and(|of| !of.starts_with('"')) {
            let strict = answer_type(&schema).read(&text, true);
            assert_eq!(strict.state, ReadingState::Misfits);
        }
    }
}

#[test]
fn the_value_of_the_one_field_that_it_may_be_is_read_without_its_object() {
    let wrapped = |rules: &str| {
        format!(r#"{{"type":"object","properties":{{"value":{rules}}},"required":["value"]}}"#)
    };
    let two = r#"{"type":"object","properties":{"a":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}}},"required":["tags"]}"#;
    let table = [
        (
            wrapped(r#"{"type":"array","items":{"type":"string"}}"#),
            r#"["red"]"#,
            Some(r#"{"value":["red"]}"#),
        ),
        (
            wrapped(r#"{"type":"array","items":{"type":"object","required":["name"]}}"#),
            r#"[{"name": "Ann"}]"#,
            Some(r#"{"value":[{"name":"Ann"}]}"#),
        ),
        (
            wrapped(r#"{"enum":["low","high"]}"#),
            r#""high""#,
            Some(r#"{"value":"high"}"#),
        ),
        (
            wrapped(r#"{"type":"boolean"}"#),
            "true",
            Some(r#"{"value":true}"#),
        ),
        (two.to_owned(), r#"["x"]"#, Some(r#"{"tags":["x"]}"#)),
        (
            two.replace(r#"["tags"]"#, r#"["a","tags"]"#),
            r#"["x"]"#,
            None,
        ),
        (
            two.replace(r#""a":{"type":"string"}"#, r#""a":{"type":"array"}"#)
                .replace(r#"["tags"]"#, "[]"),
            r#"["x"]"#,
            None,
        ),
        // It may be words instead of an answer, or another list.
        (
            wrapped(r#"{"type":"string"}"#),
            r#""I cannot do that.""#,
            None,
        ),
        (wrapped(r#"{"type":"string"}"#), r#"["red"]"#, None),
    ];
    for (schema, text, expected) in table {
        let answer = answer_type(&schema).read(text, false);
        let found = (answer.state == ReadingState::Fits)
            .then_some(answer.value.clone())
            .flatten();
        assert_eq!(found, expected.map(value), "{schema}: {text}");
        if found.is_some() {
            assert_eq!(kinds(&answer), [MendKind::MissingObject]);
        }
        let fenced = format!("```json\n{text}\n```");
        let answer = answer_type(&schema).read(&fenced, false);
        let found = (answer.state == ReadingState::Fits)
            .then_some(answer.value.clone())
            .flatten();
        assert_eq!(found, expected.map(value), "{schema}: {fenced}");
        if found.is_some() {
            assert_eq!(kinds(&answer), [MendKind::MissingObject, MendKind::Prose]);
        }
        let strict = answer_type(&schema).read(&fenced, true);
        assert_eq!(strict.state, ReadingState::Misfits);
        assert_eq!(
            answer_type(&schema).read(text, true).state,
            ReadingState::Misfits
        );
        assert_eq!(answer_type(&schema).read_partial(text, true), None);
    }
}

#[test]
fn an_integer_that_a_float_cannot_tell_is_refused() {
    let integer = answer_type(r#"{"properties":{"n":{"type":"integer"}}}"#);
    for (text, fits) in [
        ("3.0", true),
        ("9007199254740991.0", true),
        ("9007199254740993", true),
        ("123456789012345678901234567890", true),
        ("9007199254740993.0", false),
        ("-1234567890123456789.0", false),
        ("1e23", false),
        ("\"1e23\"", false),
    ] {
        let answer = integer.read(&format!(r#"{{"n": {text}}}"#), false);
        assert_eq!(answer.state == ReadingState::Fits, fits, "{text}");
    }
    let number = answer_type(r#"{"properties":{"n":{"type":"number"}}}"#);
    assert_eq!(
        number.read(r#"{"n": 1e23}"#, false).state,
        ReadingState::Fits
    );
}

#[test]
fn a_number_is_a_text_where_a_pattern_asks_for_one_and_no_digit_is_lost() {
    let decimal = answer_type(
        r#"{"type":"object","properties":{"price":{"type":"string","pattern":"^-?[0-9]+([.][0-9]+)?$"},"name":{"type":"string"},
            "maybe":{"anyOf":[{"type":"string","pattern":"^[0-9.]+$"},{"type":"null"}]}},"additionalProperties":false}"#,
    );
    for (given, expected) in [
        (r#""price":12.5"#, Some(r#""price":"12.5""#)),
        (r#""price":-3"#, Some(r#""price":"-3""#)),
        (
            r#""price":12345678901234567890123"#,
            Some(r#""price":"12345678901234567890123""#),
        ),
        (r#""maybe":0.1"#, Some(r#""maybe":"0.1""#)),
        (r#""maybe":null"#, Some(r#""maybe":null"#)),
        (r#""price":"007""#, Some(r#""price":"007""#)),
        // A float does not have these digits, or they are written otherwise.
        (r#""price":1234567890.12345678"#, None),
        (r#""price":1e-9"#, None),
        (r#""maybe":-1"#, None),
        (r#""name":12"#, None),
        (r#""price":true"#, None),
    ] {
        let answer = decimal.read(&format!("{{{given}}}"), false);
        let fits = answer.state == ReadingState::Fits;
        assert_eq!(fits, expected.is_some(), "{given}: {:?}", answer.issues);
        if let Some(expected) = expected {
            assert_eq!(
                answer.value,
                Some(value(&format!("{{{expected}}}"))),
                "{given}"
            );
        }
    }
    let answer = decimal.check_arguments(&value(r#"{"price":2.5}"#));
    assert_eq!(kinds(&answer), [MendKind::TextFromNumber]);
    let shown = follow(&decimal, &[r#"{"price":2"#, ".5}"]).concat();
    assert_eq!(put_together(&shown), Some(value(r#"{"price":"2.5"}"#)));
}

#[test]
fn a_key_in_another_style_is_shown_from_its_first_piece() {
    let pieces = [
        r#"{"customerName":"A"#,
        r#"nn","Address":{"CITY":"Ul"#,
        r#"m"}}"#,
    ];
    let shown = follow(&order(), &pieces);
    let so_far = |count: usize| {
        put_together(
            &shown
                .iter()
                .take(count)
                .flatten()
                .cloned()
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(so_far(1), Some(value(r#"{"customer_name":"A"}"#)));
    assert_eq!(
        so_far(2),
        Some(value(r#"{"customer_name":"Ann","address":{"city":"Ul"}}"#))
    );
    // Where other fields are allowed, it may be one of them.
    let open = answer_type(
        r#"{"type":"object","properties":{"customer_name":{"type":"string"}},"required":["customer_name"]}"#,
    );
    let shown = follow(
        &open,
        &[r#"{"customerName":"A"#, r#"nn","customer_name":"Bo"}"#],
    )
    .concat();
    assert_eq!(
        put_together(&shown),
        Some(value(r#"{"customer_name":"Bo"}"#))
    );
}

#[test]
fn issues_are_words_with_places_and_show_nothing_of_the_answer() {
    let secret = "4111-secret";
    let text = format!(
        r#"{{"customer_name":["{secret}",2],"count":-1,"price":{{}},"paid":3,"state":"{secret}","tags":["{secret}",7],"adress":1}}"#
    );
    let answer = order().read(&text, false);
    assert_eq!(answer.state, ReadingState::Misfits);
    let lines = lines(&answer);
    assert!(!lines.join("\n").contains(secret), "{lines:#?}");
    for expected in [
        "/customer_name: expected a string, got a list",
        "/count: expected at least 0",
        "/price: expected a number, got an object",
        "/paid: expected true or false, got an integer",
        "/state: expected one of \"new\", \"in_progress\", \"done\"",
        "/tags/1: expected a string, got an integer",
        "/address: is missing: expected an object",
    ] {
        let found = lines.iter().any(|line| line == expected);
        // The kind of a reference is one step away.
        let is_reference = expected.starts_with("/address")
            && lines
                .iter()
                .any(|line| line.starts_with("/address: is missing"));
        assert!(found || is_reference, "{expected} is not among {lines:#?}");
    }
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("/adress: is not a field here: the fields are")),
        "{lines:#?}"
    );
}

#[test]
fn texts_are_read_as_json_reads_them() {
    let answer = order().read(
        &format!("Sure: {}", ORDER.replace("Ann", r"A \ud83d\ude00 n\u006e")),
        false,
    );
    let value = value(&ORDER.replace("Ann", "A \u{1f600} nn"));
    assert_eq!((answer.value, answer.mends.len()), (Some(value), 1));
}

#[test]
fn what_ends_within_its_value_is_cut_and_never_an_answer() {
    let complete = value(ORDER);
    for end in 1..ORDER.len() {
        for text in [ORDER[..end].to_owned(), format!("Sure: {}", &ORDER[..end])] {
            let answer = order().read(&text, false);
            assert_eq!(answer.state, ReadingState::Cut, "{text}");
            if let Some(partial) = answer.value {
                assert!(is_part(&partial, &complete), "{text}: {partial:?}");
            }
        }
    }
}

#[test]
fn two_answers_and_ambiguous_repairs_are_refused() {
    let other = ORDER.replace("Ann", "Bob");
    let table = [
        format!("{ORDER}\n{other}"),
        ORDER.replace("\"count\":2", "\"count\":2,\"count\":3"),
        ORDER.replace(
            "\"customer_name\":\"Ann\"",
            "\"customerName\":\"Ann\",\"CustomerName\":\"Bob\"",
        ),
        ORDER.replace(":true", ":yes"),
        ORDER.replace(",\"price\"", " \"price\""),
        "I cannot do that.".to_owned(),
        "{}".to_owned(),
    ];
    for text in table {
        let answer = order().read(&text, false);
        assert_eq!(answer.state, ReadingState::Misfits, "{text}");
        assert!(!answer.issues.is_empty(), "{text}");
    }
    // None of these begins a key.
    for text in ["{1: 2}", "{-a: 2}", "{@: 2}"] {
        let answer = answer_type(r#"{"type":"object"}"#).read(text, false);
        assert_eq!(answer.state, ReadingState::Misfits, "{text}");
    }
    // The same answer twice is one.
    assert_eq!(
        order().read(&format!("{ORDER} {ORDER}"), false).state,
        ReadingState::Fits
    );
}

#[test]
fn an_alternative_is_found_by_its_tag_and_told_in_its_own_words() {
    let schema = r#"{"type":"object","properties":{"value":{"anyOf":[
        {"type":"object","properties":{"type":{"const":"cat"},"lives":{"type":"integer"}},"required":["type","lives"],"additionalProperties":false},
        {"type":"object","properties":{"type":{"const":"dog"},"name":{"type":"string"},"age":{"type":"integer"}},"required":["type","name","age"],"additionalProperties":false}
    ]}},"required":["value"],"additionalProperties":false}"#;
    let animal = answer_type(schema);
    let cat = r#"{"value":{"type":"cat","lives":"9"}}"#;
    assert_eq!(
        animal.read(cat, false).value,
        Some(value(r#"{"value":{"type":"cat","lives":9}}"#))
    );
    let dog = animal.read(r#"{"value":{"type":"dog","lives":9}}"#, false);
    let lines = lines(&dog);
    assert!(
        lines.contains(&"/value/name: is missing: expected a string".to_owned()),
        "{lines:#?}"
    );
    // Of two that are equally near, the first one.
    let either = r#"{"type":"object","properties":{"value":{"anyOf":[
        {"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
        {"type":"object","properties":{"b":{"type":"integer"}},"required":["b"]}
    ]}}}"#;
    let neither = answer_type(either).read(r#"{"value":{}}"#, false);
    let words = "/value/a: is missing: expected an integer".to_owned();
    assert_eq!(self::lines(&neither), [words]);
}

#[test]
fn a_schema_that_cannot_be_checked_is_an_error_with_its_place() {
    for row in rows("faulty_schemas") {
        let (schema, place) = (row["schema"].get(), row["place"].get());
        let Err(Error::Invalid { path, .. }) = AnswerType::new(&value(schema)) else {
            panic!("{schema} is accepted");
        };
        assert_eq!(json::write(&Value::List(path.into())), place, "{schema}");
    }
}

/// Single keywords, beside what JSON Schema says of them.
#[test]
fn keywords_mean_what_json_schema_says() {
    for row in rows("keywords") {
        let schema = row["schema"].get();
        let schema_type = answer_type(schema);
        for (key, state) in [
            ("fits", ReadingState::Fits),
            ("others", ReadingState::Misfits),
        ] {
            let texts: Vec<&RawValue> = serde_json::from_str(row[key].get()).unwrap();
            for text in texts {
                let answer = schema_type.read(text.get(), true);
                assert_eq!(
                    answer.state,
                    state,
                    "{schema} of {text}: {:?}",
                    lines(&answer)
                );
                if key == "fits" {
                    assert_eq!(answer.value, Some(value(text.get())));
                }
            }
        }
    }
}

#[test]
fn alternatives_within_alternatives_take_linear_work() {
    let schema = r##"{"$defs":{"tree":{"anyOf":[
        {"type":"object","properties":{"kind":{"const":"a"},"in":{"$ref":"#/$defs/tree"}},"required":["kind","in"]},
        {"type":"object","properties":{"kind":{"const":"b"},"in":{"$ref":"#/$defs/tree"}},"required":["kind","in"]},
        {"type":"object","properties":{"kind":{"const":"c"},"in":{"$ref":"#/$defs/tree"}},"required":["kind","in"]},
        {"type":"integer"}
    ]}},"$ref":"#/$defs/tree"}"##;
    let tree = answer_type(schema);
    let nested = |levels: usize| {
        let head = r#"{"kind":"c","in":"#.repeat(levels);
        format!("{head}1{}", "}".repeat(levels))
    };
    let work = |levels: usize| {
        let text = nested(levels);
        steps::count_steps(|| assert_eq!(tree.read(&text, true).state, ReadingState::Fits))
    };
    assert!(work(60) < work(30) * 5, "{} {}", work(30), work(60));
}

#[test]
fn hostile_texts_take_linear_work_and_no_stack() {
    let order = order();
    let texts = [
        "{".repeat(200_000),
        "[".repeat(200_000),
        "{\"customer_name\":".repeat(50_000),
        "{\"a\":[".repeat(50_000),
        "/*".repeat(100_000),
        "{\"customer_name\":\"".to_owned() + &"\\".repeat(200_001),
        "{x".repeat(100_000),
        "{'".repeat(100_000),
        "```json\n".repeat(50_000),
    ];
    for text in texts {
        let answer = order.read(&text, false);
        assert_ne!(answer.state, ReadingState::Fits);
        assert!(answer.issues.len() <= 20 && answer.mends.len() <= 100);
    }
}

/// What a stream shows, piece by piece.
fn follow(answer: &AnswerType, pieces: &[&str]) -> Vec<Vec<ShownPart>> {
    let mut state = Follow::default();
    let feed = |piece: &&str| {
        let (next, shown) = state.feed(answer, true, piece);
        state = next;
        shown
    };
    pieces.iter().map(feed).collect()
}

#[test]
fn texts_grow_and_everything_else_appears_when_it_is_complete() {
    let shown = follow(
        &order(),
        &[
            "Sure: {\"cust",
            "omer_name\": \"A",
            "nn\", \"count\": 1",
            "2, \"state\":\"in_",
            "progress\",\"tags\":[\"x",
        ],
    );
    let told: Vec<Vec<String>> = shown
        .iter()
        .map(|parts| {
            let tell = |part: &ShownPart| {
                let path = json::write(&Value::List(part.path.clone().into()));
                match &part.came {
                    Came::Text(text) => format!("{path} + {text:?}"),
                    Came::Value(value) => format!("{path} = {}", json::write(value)),
                }
            };
            parts.iter().map(tell).collect()
        })
        .collect();
    assert_eq!(
        told,
        [
            vec![],
            vec![
                "[] = {}".to_owned(),
                r#"["customer_name"] + "A""#.to_owned()
            ],
            vec![r#"["customer_name"] + "nn""#.to_owned()],
            vec![r#"["count"] = 12"#.to_owned()],
            vec![
                r#"["state"] = "in_progress""#.to_owned(),
                r#"["tags"] = []"#.to_owned(),
                r#"["tags",0] + "x""#.to_owned()
            ],
        ]
    );
}

#[test]
fn what_is_held_is_counted_until_it_is_shown() {
    let answer = answer_type(
        r#"{"type":"object","properties":{"a":{"anyOf":[{"type":"object","properties":{"b":{"type":"integer"}},"required":["b"]},{"type":"object","properties":{"c":{"type":"string"}},"required":["c"]}]}}}"#,
    );
    let (held, shown) = Follow::default().feed(&answer, true, "{\"a\":{\"c\":");
    assert_eq!((held.held_bytes(), shown.len()), (5, 1));
    let (done, shown) = held.feed(&answer, true, "\"x\"}");
    assert_eq!(done.held_bytes(), 0);
    assert_eq!(shown[0].came, Came::Value(value(r#"{"c":"x"}"#)));
    let parts = follow(&answer, &["{\"a\":{\"c\":", "\"x\"}"]).concat();
    assert_eq!(put_together(&parts), Some(value(r#"{"a":{"c":"x"}}"#)));
    // What comes a second time is never shown, and need not be held.
    let (twice, _) = Follow::default().feed(&order(), true, "{\"tags\":[],\"tags\":[\"x\"");
    assert_eq!(twice.held_bytes(), 0);
}

#[test]
fn a_value_grows_where_it_is_known_what_it_will_be() {
    let shown = |rules: &str, text: &str| {
        let schema = format!(r#"{{"type":"object","properties":{{"x":{rules}}}}}"#);
        let parts = follow(&answer_type(&schema), &[&format!("{{\"x\":{text}")]).concat();
        put_together(&parts).unwrap()
    };
    // Rules beside an alternative may change what comes.
    for (rules, text) in [
        (
            r#"{"properties":{"a":{"type":"integer"}},"anyOf":[{"type":"object"}]}"#,
            r#"{"a":"1""#,
        ),
        (
            r#"{"additionalProperties":{"type":"integer"},"anyOf":[{"type":"object"}]}"#,
            r#"{"a":"1""#,
        ),
        (
            r#"{"items":{"type":"integer"},"anyOf":[{"type":"array"}]}"#,
            r#"["1""#,
        ),
        (
            r#"{"prefixItems":[{"type":"integer"}],"anyOf":[{"type":"array"}]}"#,
            r#"["1""#,
        ),
    ] {
        assert_eq!(shown(rules, text), value("{}"), "{rules}");
    }
    // Words cannot become an object.
    let rules =
        r#"{"anyOf":[{"enum":["none"]},{"type":"object","properties":{"a":{"type":"string"}}}]}"#;
    assert_eq!(shown(rules, r#"{"a":"on"#), value(r#"{"x":{"a":"on"}}"#));
    // The field that tells that it is the answer may stand in a list.
    let within = follow(
        &answer_type(r#"{"properties":{"name":{"type":"string"}}}"#),
        &[r#"[{"name":"An"#],
    );
    assert_eq!(
        put_together(&within.concat()),
        Some(value(r#"[{"name":"An"}]"#))
    );
}

#[test]
fn an_answer_may_have_more_fields_than_a_word_has_bits() {
    let fields = |of: &str| {
        let fields = (10..80).map(|number| format!("\"f{number}\":{of}"));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    };
    let schema = format!(r#"{{"type":"object","properties":{}}}"#, fields("{}"));
    let text = fields("1");
    let shown = follow(&answer_type(&schema), &[&text]).concat();
    assert_eq!(put_together(&shown), Some(value(&text)));
}

#[test]
fn a_copy_of_a_stream_goes_on_by_itself() {
    let order = order();
    let (one, _) = Follow::default().feed(&order, true, "{\"customer_name\": \"A");
    let (_, first) = one.feed(&order, true, "nn");
    let (_, second) = one.feed(&order, true, "da");
    assert_eq!(first[0].came, Came::Text("nn".into()));
    assert_eq!(second[0].came, Came::Text("da".into()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_that_fits_is_never_changed(document in document()) {
        let text = json::write(&document);
        for strict in [true, false] {
            let answer = any_type().read(&text, strict);
            prop_assert_eq!(answer.state, ReadingState::Fits);
            prop_assert_eq!(answer.value.as_ref(), Some(&value(&text)));
            prop_assert!(answer.mends.is_empty());
        }
        // The lenient reader alone reads the same.
        let answer = any_type().read(&format!("{text} So it is."), false);
        prop_assert_eq!(answer.value, Some(value(&text)));
    }

    #[test]
    fn arguments_that_fit_are_never_changed_and_repaired_ones_fit(order_value in order_value(), document in document(), damages in proptest::collection::vec((0..9_usize, any::<usize>()), 0..3)) {
        let whole = json::write(&order_value);
        let text = damages.into_iter().fold(whole.clone(), |text, (kind, at)| damage(&text, kind, at));
        for given in [value(&whole), document].into_iter().chain(json::read(text.as_bytes(), 256)) {
            let (order, strict) = (order(), order().check(&given, true));
            let answer = order.check_arguments(&given);
            match (strict.state, answer.state) {
                (ReadingState::Fits, _) => prop_assert_eq!(answer.value, strict.value),
                (_, ReadingState::Fits) => {
                    prop_assert!(!answer.mends.is_empty());
                    let again = order.check(&answer.value.unwrap(), true);
                    prop_assert_eq!(again.state, ReadingState::Fits);
                }
                _ => prop_assert!(!answer.issues.is_empty()),
            }
        }
    }

    #[test]
    fn an_order_with_damage_comes_back_equal_or_is_refused(order_value in order_value(), damages in proptest::collection::vec((0..9_usize, any::<usize>()), 1..5)) {
        let whole = json::write(&order_value);
        let is_one = damages.len() == 1;
        let damaged = damages.into_iter().fold(whole.clone(), |text, (kind, at)| damage(&text, kind, at));
        let answer = order().read(&damaged, false);
        match answer.state {
            ReadingState::Fits => prop_assert_eq!(answer.value, Some(value(&whole)), "{}", damaged),
            // One of these is always repaired; several may be more than anybody can tell apart.
            ReadingState::Misfits => prop_assert!(!is_one && !answer.issues.is_empty(), "{damaged}"),
            ReadingState::Cut => prop_assert!(false, "{} is called cut", damaged),
        }
    }

    #[test]
    fn nothing_that_was_shown_is_taken_back(order_value in order_value(), damages in proptest::collection::vec((0..9_usize, any::<usize>()), 0..3), cuts in proptest::collection::vec(any::<usize>(), 0..30)) {
        let order = order();
        let whole = json::write(&order_value);
        let text = damages.into_iter().fold(whole, |text, (kind, at)| damage(&text, kind, at));
        let pieces = pieces(&text, cuts);
        let shown = follow(&order, &pieces);
        let mut so_far = Vec::new();
        let mut before: Option<Value> = None;
        for (at, parts) in shown.into_iter().enumerate() {
            so_far.extend(parts);
            let now = put_together(&so_far);
            if let (Some(before), Some(now)) = (&before, &now) {
                prop_assert!(is_part(before, now), "{before:?} became {now:?}");
            }
            // Whoever comes later sees the same.
            let text: String = pieces[..=at].concat();
            prop_assert_eq!(order.read_partial(&text, true), now.clone(), "{}", text);
            before = now;
        }
        let answer = order.read(&text, false);
        if answer.state == ReadingState::Fits {
            if let Some(shown) = before {
                prop_assert!(is_part(&shown, answer.value.as_ref().unwrap()), "{shown:?}");
            }
        }
    }

    #[test]
    fn half_of_a_character_is_replaced_however_it_comes(units in proptest::collection::vec(unit(), 0..8), cuts in proptest::collection::vec(any::<usize>(), 0..8)) {
        let (texts, numbers): (Vec<_>, Vec<_>) = units.into_iter().unzip();
        let expected = String::from_utf16_lossy(&numbers);
        let expected = map(vec![("a", Value::text(&expected))]);
        let answer = answer_type(r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"#);
        let json = format!("{{\"a\":\"{}\"}}", texts.concat());
        // In prose, the same reader reads it that reads a stream.
        for text in [&json, &format!("Sure: {json}")] {
            prop_assert_eq!(answer.read(text, false).value, Some(expected.clone()), "{}", text);
            let parts = follow(&answer, &pieces(text, cuts.clone())).concat();
            prop_assert_eq!(put_together(&parts), Some(expected.clone()), "{}", text);
        }
    }

    #[test]
    fn any_text_is_read_in_any_pieces_without_a_panic(text in "[{}\\[\\]\"':,/*\\\\ \nabu0-9`.“”=>-]{0,60}", cuts in proptest::collection::vec(any::<usize>(), 0..8)) {
        let order = order();
        let _ = order.read(&text, false);
        let _ = any_type().read(&text, false);
        for answer in [order, any_type()] {
            let parts: Vec<ShownPart> = follow(&answer, &pieces(&text, cuts.clone())).concat();
            prop_assert_eq!(put_together(&parts), answer.read_partial(&text, true));
        }
    }
}

/// A type that takes everything.
/// A letter as JSON has it, and its number in UTF-16: halves of characters, in pairs or not, and what is next to them.
fn unit() -> impl Strategy<Value = (String, u16)> {
    let escape = |number: u16| (format!("\\u{number:04x}"), number);
    let halves = [0xD83D, 0xDBFF, 0xD800, 0xDE00, 0xDC00, 0xDFFF, 0x41];
    let letter = |letter: &str, number| (letter.to_owned(), number);
    prop_oneof![
        5 => proptest::sample::select(halves.map(escape).to_vec()),
        2 => Just(letter("u", u16::from(b'u'))),
        1 => Just(letter("\\n", u16::from(b'\n'))),
        1 => Just(letter("\\\\", u16::from(b'\\'))),
    ]
}

fn any_type() -> AnswerType {
    answer_type("{}")
}

fn pieces(text: &str, cuts: Vec<usize>) -> Vec<&str> {
    let mut ends: Vec<usize> = cuts.into_iter().map(|cut| cut % (text.len() + 1)).collect();
    ends.retain(|end| text.is_char_boundary(*end));
    ends.extend([0, text.len()]);
    ends.sort_unstable();
    ends.windows(2)
        .map(|pair| &text[pair[0]..pair[1]])
        .collect()
}

fn map(entries: Vec<(&str, Value)>) -> Value {
    Value::Map(Map::new(
        entries
            .into_iter()
            .map(|(key, value)| (Value::text(key), value))
            .collect(),
    ))
}

fn document() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (-1.0e9..1.0e9_f64).prop_map(Value::Float),
        "\\PC{0,12}".prop_map(|text| Value::text(&text)),
        "[\"'\\\\\u{1}\n\u{1F600}{}`/*]{0,6}".prop_map(|text| Value::text(&text)),
    ];
    let tree = scalar.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6)
                .prop_map(|items| Value::List(items.into())),
            proptest::collection::btree_map("\\PC{0,6}", inner, 0..6).prop_map(|entries| {
                map(entries
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.clone()))
                    .collect())
            }),
        ]
    });
    proptest::collection::vec(tree, 0..5).prop_map(|items| Value::List(items.into()))
}

fn order_value() -> impl Strategy<Value = Value> {
    let text = || "[a-z \"'\\\\{},:\n\u{e4}\u{1F600}`/]{0,10}".prop_map(|text| Value::text(&text));
    (
        (text(), 0..1_000_000_i64, -1.0e6..1.0e6_f64, any::<bool>()),
        proptest::sample::select(vec!["new", "in_progress", "done"]),
        proptest::collection::vec(text(), 0..4),
        (text(), proptest::option::of(text())),
        proptest::option::of(text()),
    )
        .prop_map(
            |((name, count, price, paid), state, tags, (city, zip), note)| {
                let address = map(vec![("city", city), ("zip", zip.unwrap_or(Value::Nil))]);
                let mut fields = vec![
                    ("customer_name", name),
                    ("count", Value::Int(count)),
                    ("price", Value::Float(price)),
                    ("paid", Value::Bool(paid)),
                    ("state", Value::text(state)),
                    ("tags", Value::List(tags.into())),
                    ("address", address),
                ];
                fields.extend(note.map(|note| ("note", note)));
                map(fields)
            },
        )
}

/// Positions of letters that are outside of texts.
fn outside(text: &str) -> Vec<usize> {
    let (mut quoted, mut escaped, mut found) = (false, false, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        if quoted {
            quoted = escaped || byte != b'"';
            escaped = byte == b'\\' && !escaped;
        } else {
            quoted = byte == b'"';
            if !quoted {
                found.push(at);
            }
        }
    }
    found
}

fn picked(text: &str, letters: &[u8], at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let found: Vec<usize> = outside(text)
        .into_iter()
        .filter(|at| letters.contains(&bytes[*at]))
        .collect();
    (!found.is_empty()).then(|| found[at % found.len()])
}

fn insert(text: &str, at: usize, what: &str) -> String {
    format!("{}{what}{}", &text[..at], &text[at..])
}

/// Damages a text in one of the ways of models. Each leaves what it cannot damage.
fn damage(text: &str, kind: usize, at: usize) -> String {
    let replace = |pairs: &[(&str, &str)]| {
        let (from, to) = pairs[at % pairs.len()];
        text.replacen(from, to, 1)
    };
    match kind {
        0 => format!("```json\n{text}\n```"),
        1 => format!("Here you are, as {{asked}}: {text}\nAnything else?"),
        2 => picked(text, b"]}", at).map_or_else(
            || text.to_owned(),
            |end| {
                let is_empty = matches!(text.as_bytes()[..end].last(), Some(b'[' | b'{' | b','));
                if is_empty {
                    text.to_owned()
                } else {
                    insert(text, end, ",")
                }
            },
        ),
        3 => picked(text, b":,[{", at).map_or_else(
            || text.to_owned(),
            |place| insert(text, place + 1, " /* 'so', \"it\" {is} */ "),
        ),
        4 => replace(&[
            ("\"count\":", "count:"),
            ("\"city\":", "city:"),
            ("\"state\":", "'state':"),
        ]),
        5 => replace(&[
            ("customer_name", "customerName"),
            ("\"paid\"", "\"Paid\""),
            ("\"zip\":", "\"ZIP\":"),
        ]),
        6 => replace(&[
            ("\"in_progress\"", "\"IN PROGRESS\""),
            ("\"new\"", "'New'"),
            (":true", ":True"),
            (":null", ":None"),
        ]),
        7 => {
            let from = text.find("\"count\":").map(|at| at + 8);
            let end = from.and_then(|from| {
                Some(from + text[from..].find(|letter: char| !letter.is_ascii_digit())?)
            });
            match (from, end) {
                (Some(from), Some(end)) if end > from => {
                    format!("{}\"{}\"{}", &text[..from], &text[from..end], &text[end..])
                }
                _ => text.to_owned(),
            }
        }
        _ => {
            let is_bare = text.starts_with('{') && text.ends_with('}');
            if is_bare {
                format!("[{text}]")
            } else {
                text.to_owned()
            }
        }
    }
}

/// An element that is not shown until it is known to fit has nothing after it in its place.
#[test]
fn nothing_is_shown_behind_an_element_that_is_not() {
    let answer = answer_type(
        r#"{"type":"array","items":{"anyOf":[{"type":"integer","minimum":5},{"type":"string"}]}}"#,
    );
    let mut state = Follow::default();
    let mut parts = Vec::new();
    for chunk in ["[7, \"a\", ", "3, \"b", "c\", 8]"] {
        let (next, shown) = state.feed(&answer, false, chunk);
        state = next;
        parts.extend(shown);
    }
    assert_eq!(put_together(&parts), Some(value(r#"[7,"a"]"#)));
}
