//! The fields of requests that hold answers to a schema, for each provider: its form, its subset, and the models that do it.

use ash_agent_context_core::{constrain, json, AnswerType, Error, Provider, Value};
use proptest::prelude::*;

fn value(text: &str) -> Value {
    json::read(text.as_bytes(), 256).unwrap()
}

const CITY: &str = r#"{"type":"object","properties":{"name":{"type":"string","minLength":1,"description":"Its name"},"size":{"type":"integer","minimum":0}},"required":["name"]}"#;

fn fields(schema: &str, provider: Provider, model: &str, beside: bool) -> Result<String, Error> {
    let answer = AnswerType::new(&value(schema)).unwrap();
    let found = constrain(&answer, provider, model, "city", beside, false);
    found.map(|fields| json::write(&fields))
}

#[test]
fn each_provider_has_its_form() {
    let strict = r#"{"additionalProperties":false,"properties":{"name":{"description":"Its name\n\n{minLength: 1}","type":"string"},"size":{"anyOf":[{"minimum":0,"type":"integer"},{"type":"null"}]}},"required":["name","size"],"type":"object"}"#;
    let closed = r#"{"additionalProperties":false,"properties":{"name":{"description":"Its name\n\n{minLength: 1}","type":"string"},"size":{"description":"{minimum: 0}","type":"integer"}},"required":["name"],"type":"object"}"#;
    let open = r#"{"properties":{"name":{"description":"Its name\n\n{minLength: 1}","type":"string"},"size":{"minimum":0,"type":"integer"}},"required":["name"],"type":"object"}"#;
    let escaped = json::write(&Value::text(closed));
    let table = [
        (
            Provider::OpenAiChat,
            "gpt-4o-mini",
            format!(
                r#"{{"response_format":{{"json_schema":{{"name":"city","schema":{strict},"strict":true}},"type":"json_schema"}}}}"#
            ),
        ),
        (
            Provider::OpenAiResponses,
            "gpt-5",
            format!(
                r#"{{"text":{{"format":{{"name":"city","schema":{strict},"strict":true,"type":"json_schema"}}}}}}"#
            ),
        ),
        (
            Provider::Mistral,
            "mistral-large-latest",
            format!(
                r#"{{"response_format":{{"json_schema":{{"name":"city","schema":{strict},"strict":true}},"type":"json_schema"}}}}"#
            ),
        ),
        (
            Provider::Anthropic,
            "claude-sonnet-4-5",
            format!(
                r#"{{"output_config":{{"format":{{"schema":{closed},"type":"json_schema"}}}}}}"#
            ),
        ),
        (
            Provider::Bedrock,
            "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
            format!(
                r#"{{"outputConfig":{{"textFormat":{{"structure":{{"jsonSchema":{{"name":"city","schema":{escaped}}}}},"type":"json_schema"}}}}}}"#
            ),
        ),
        (
            Provider::Gemini,
            "gemini-2.5-flash",
            format!(
                r#"{{"generationConfig":{{"responseJsonSchema":{open},"responseMimeType":"application/json"}}}}"#
            ),
        ),
        (
            Provider::Ollama,
            "llama3.2",
            format!(r#"{{"format":{}}}"#, json::write(&value(CITY))),
        ),
    ];
    for (provider, model, expected) in table {
        assert_eq!(
            fields(CITY, provider, model, false).unwrap(),
            expected,
            "{provider:?}"
        );
    }
}

#[test]
fn keywords_that_a_provider_does_not_take_are_said_otherwise_or_refused() {
    use Provider::{Anthropic, Gemini, Mistral, Ollama};
    let wrap = |field: &str| {
        format!(
            r#"{{"additionalProperties":false,"properties":{{"a":{field}}},"required":["a"],"type":"object"}}"#
        )
    };
    let table = [
        (r#"{"oneOf":[{"type":"string"}]}"#, Gemini, None),
        (
            r#"{"oneOf":[{"type":"string"}]}"#,
            Mistral,
            Some(r#"{"anyOf":[{"type":"string"}]}"#),
        ),
        (
            r#"{"const":"x"}"#,
            Gemini,
            Some(r#"{"enum":["x"],"type":"string"}"#),
        ),
        (
            r#"{"const":"x"}"#,
            Mistral,
            Some(r#"{"const":"x","type":"string"}"#),
        ),
        (
            r#"{"enum":["x",null,1.5]}"#,
            Mistral,
            Some(r#"{"enum":["x",null,1.5],"type":["null","number","string"]}"#),
        ),
        (
            r#"{"enum":[1,2]}"#,
            Ollama,
            Some(r#"{"enum":[1,2],"type":"integer"}"#),
        ),
        (r#"{"allOf":[{"type":"string"}]}"#, Ollama, None),
        (
            r#"{"examples":["x"],"type":"string"}"#,
            Gemini,
            Some(r#"{"type":"string"}"#),
        ),
    ];
    for (field, provider, expected) in table {
        let model = match provider {
            Gemini => "gemini-2.5-flash",
            _ => "any",
        };
        let sent = fields(&wrap(field), provider, model, false).unwrap();
        let expected = wrap(expected.unwrap_or(field));
        assert!(sent.contains(&expected), "{provider:?}: {sent}");
    }
    for (field, provider, model) in [
        (
            r#"{"allOf":[{"type":"string"}]}"#,
            Gemini,
            "gemini-2.5-flash",
        ),
        (
            r#"{"prefixItems":[{"type":"string"}]}"#,
            Anthropic,
            "claude-opus-4-5",
        ),
    ] {
        let refused = fields(&wrap(field), provider, model, false);
        assert!(
            matches!(refused, Err(Error::Invalid { .. })),
            "{provider:?}"
        );
    }
}

#[test]
fn what_is_narrowed_is_a_schema_whose_answers_fit_the_whole_one() {
    let answer = AnswerType::new(&value(CITY)).unwrap();
    let text = r#"{"name":"Ulm","size":null}"#;
    let read = answer.read(text, true);
    assert_eq!(read.value, Some(value(r#"{"name":"Ulm"}"#)));
}

#[test]
fn models_hold_their_answers_to_a_schema_as_far_as_is_known() {
    use Provider::{Anthropic, Bedrock, Gemini, Mistral, Ollama, OpenAiChat, OpenAiResponses};
    let table = [
        (Anthropic, "claude-opus-4-5", true, true),
        (Anthropic, "claude-sonnet-4-20250514", false, false),
        (Anthropic, "claude-3-7-sonnet-latest", false, false),
        (Anthropic, "some-proxy", false, false),
        (OpenAiResponses, "gpt-5", true, true),
        (OpenAiResponses, "o3", true, true),
        (OpenAiChat, "gpt-4-turbo", false, false),
        (OpenAiChat, "qwen3", false, false),
        (Gemini, "gemini-2.5-flash", true, false),
        (Gemini, "gemini-3-pro-preview", true, true),
        (Bedrock, "amazon.nova-pro-v1:0", false, false),
        (
            Bedrock,
            "eu.anthropic.claude-haiku-4-5-20251001-v1:0",
            true,
            false,
        ),
        (Mistral, "mistral-small", true, false),
        (Ollama, "llama3.2", true, false),
    ];
    for (provider, model, alone, beside) in table {
        assert_eq!(
            fields(CITY, provider, model, false).is_ok(),
            alone,
            "{model}"
        );
        assert_eq!(
            fields(CITY, provider, model, true).is_ok(),
            beside,
            "{model}"
        );
    }
}

#[test]
fn what_changes_the_shape_of_answers_is_refused_with_its_place() {
    let table = [
        (
            Provider::OpenAiResponses,
            "gpt-5",
            r#"{"type":"object"}"#,
            "[]",
        ),
        (
            Provider::OpenAiResponses,
            "gpt-5",
            r#"{"type":"object","properties":{"a":{"type":"object","properties":{},"additionalProperties":true}}}"#,
            r#"["properties","a","additionalProperties"]"#,
        ),
        (
            Provider::OpenAiResponses,
            "gpt-5",
            r#"{"type":"object","properties":{"a":{"allOf":[{"type":"string"}]}}}"#,
            r#"["properties","a","allOf"]"#,
        ),
        (
            Provider::OpenAiResponses,
            "gpt-5",
            r#"{"type":"object","properties":{"a":true}}"#,
            r#"["properties","a"]"#,
        ),
        (
            Provider::Anthropic,
            "claude-opus-4-5",
            r##"{"type":"object","properties":{"a":{"$ref":"#"}}}"##,
            "[]",
        ),
    ];
    for (provider, model, schema, place) in table {
        let Err(Error::Invalid { path, .. }) = fields(schema, provider, model, false) else {
            unreachable!("{schema} is taken");
        };
        assert_eq!(json::write(&Value::List(path.into())), place, "{schema}");
    }
    // OpenAI takes schemas that contain themselves.
    assert!(fields(
        r##"{"type":"object","properties":{"a":{"$ref":"#"}}}"##,
        Provider::OpenAiResponses,
        "gpt-5",
        false
    )
    .is_ok());
}

/// One that takes schemas, for each set of rules.
const CLOSED: [(Provider, &str); 4] = [
    (Provider::OpenAiResponses, "gpt-5"),
    (Provider::Mistral, "mistral-large"),
    (Provider::Anthropic, "claude-sonnet-4-5"),
    (
        Provider::Bedrock,
        "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
    ),
];

fn object(fields: impl IntoIterator<Item = (String, String)>, required: bool) -> String {
    let (fields, names): (Vec<_>, Vec<_>) = fields
        .into_iter()
        .map(|(name, schema)| (format!("\"{name}\":{schema}"), format!("\"{name}\"")))
        .unzip();
    let names = if required {
        names.join(",")
    } else {
        String::new()
    };
    let fields = fields.join(",");
    format!(r#"{{"type":"object","properties":{{{fields}}},"required":[{names}]}}"#)
}

fn many(count: usize, schema: &str, required: bool) -> String {
    object(
        (0..count).map(|at| (format!("f{at}"), schema.to_owned())),
        required,
    )
}

fn deep(levels: usize) -> String {
    let inner = r#"{"type":"string"}"#.to_owned();
    (0..levels).fold(inner, |inside, at| match at + 1 < levels && at % 2 == 1 {
        true => format!(r#"{{"type":"array","items":{inside}}}"#),
        false => object([("a".to_owned(), inside)], true),
    })
}

fn choice(count: usize, letters: usize) -> String {
    let values = (0..count).map(|at| format!("\"{at:0letters$}\""));
    let values = values.collect::<Vec<_>>().join(",");
    format!(r#"{{"enum":[{values}]}}"#)
}

#[test]
fn a_schema_of_more_than_its_provider_takes_is_refused_and_says_of_what() {
    const STRING: &str = r#"{"type":"string"}"#;
    const EITHER: &str = r#"{"type":["string","null"]}"#;
    const ANY: &str = r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#;
    // What is just taken, what is not, and how many providers it is too much for.
    let table = [
        (deep(10), deep(11), "OM", "levels"),
        (
            many(5_000, STRING, true),
            many(5_001, STRING, true),
            "OM",
            "fields",
        ),
        (
            many(10, &choice(100, 3), true),
            many(10, &choice(101, 3), true),
            "OM",
            "values to choose",
        ),
        (
            many(1, &choice(250, 61), true),
            many(1, &choice(251, 61), true),
            "OM",
            "one long choice",
        ),
        (
            many(24, STRING, false),
            many(25, STRING, false),
            "AB",
            "left out",
        ),
        (
            many(16, EITHER, true),
            many(17, EITHER, true),
            "AB",
            "several types",
        ),
        (
            many(16, ANY, true),
            many(17, ANY, true),
            "AB",
            "several types",
        ),
    ];
    for (taken, refused, of, what) in table {
        for (provider, model) in CLOSED {
            let letter = provider.name().chars().next().unwrap().to_ascii_uppercase();
            let sent = fields(&refused, provider, model, false);
            if !of.contains(letter) {
                continue;
            }
            assert!(
                fields(&taken, provider, model, false).is_ok(),
                "{provider:?}: {what}"
            );
            let Err(Error::Invalid { expected, .. }) = sent else {
                unreachable!("{provider:?} takes more {what}");
            };
            assert!(expected.contains(what), "{expected}");
        }
    }
    // The names of fields count as well.
    let long = object([("a".repeat(120_001), STRING.to_owned())], true);
    assert!(fields(&long, Provider::OpenAiChat, "gpt-5", false).is_err());
    assert!(fields(&long, Provider::Anthropic, "claude-opus-4-5", false).is_ok());
}

#[test]
fn lists_say_what_their_elements_are() {
    for list in [r#"{"type":"array"}"#, r#"{"type":["array","null"]}"#] {
        for (provider, model) in CLOSED {
            let sent = fields(&many(1, list, true), provider, model, false);
            let Err(Error::Invalid { path, .. }) = sent else {
                unreachable!("{provider:?} takes a list of anything");
            };
            assert_eq!(path, [Value::text("properties"), Value::text("f0")]);
        }
    }
}

#[test]
fn choices_are_of_kinds_that_the_provider_takes() {
    let table = [
        ("[true]", true, false),
        ("[null]", true, false),
        ("[1,\"a\"]", true, true),
        ("[[1]]", false, false),
        ("[{}]", false, false),
    ];
    for (values, closed, gemini) in table {
        let schema = many(1, &format!("{{\"enum\":{values}}}"), true);
        for (provider, model) in CLOSED {
            assert_eq!(
                fields(&schema, provider, model, false).is_ok(),
                closed,
                "{values}"
            );
        }
        let sent = fields(&schema, Provider::Gemini, "gemini-3-pro", false);
        assert_eq!(sent.is_ok(), gemini, "{values}");
    }
}

/// A random schema, as people write them: with and without types.
fn schemas() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        r#"{"type":"string"}"#,
        r#"{"type":["integer","null"]}"#,
        r#"{"enum":["a","b"]}"#,
        r#"{"enum":[1,null,true]}"#,
        r#"{"const":2.5}"#,
        r#"{"const":null,"description":"none"}"#,
        r#"{"description":"anything"}"#,
        r#"{"minLength":2}"#,
        "{}",
        "true",
    ]);
    leaf.prop_map(str::to_owned)
        .prop_recursive(4, 40, 4, |inner| {
            let some = prop::collection::vec(inner.clone(), 1..4);
            prop_oneof![
                (some.clone(), any::<bool>()).prop_map(|(fields, required)| {
                    let named = fields.into_iter().enumerate();
                    object(named.map(|(at, of)| (format!("f{at}"), of)), required)
                }),
                inner.clone().prop_map(|of| format!(r#"{{"items":{of}}}"#)),
                inner.prop_map(|of| format!(r#"{{"properties":{{"a":{of}}}}}"#)),
                some.clone()
                    .prop_map(|of| format!(r#"{{"anyOf":[{}]}}"#, of.join(","))),
                some.prop_map(|of| format!(r#"{{"oneOf":[{}]}}"#, of.join(","))),
            ]
        })
}

/// Returns the schemas of a request's schema that neither have a type nor lead to one.
fn typeless(schema: &Value, found: &mut Vec<String>) {
    let Value::Map(map) = schema else {
        found.push(json::write(schema));
        return;
    };
    if !["type", "anyOf", "$ref"]
        .iter()
        .any(|key| map.get_named(key).is_some())
    {
        found.push(json::write(schema));
    }
    for (key, value) in map.iter() {
        match (key.as_str(), value) {
            (Some("properties" | "$defs"), Value::Map(all)) => {
                all.iter().for_each(|(_, one)| typeless(one, found));
            }
            (Some("items"), one) => typeless(one, found),
            (Some("anyOf" | "oneOf" | "allOf"), Value::List(all)) => {
                all.iter().for_each(|one| typeless(one, found));
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn each_place_of_a_closed_schema_has_a_type(inner in schemas()) {
        let schema = object([("a".to_owned(), inner)], true);
        for (provider, model) in [CLOSED[0], CLOSED[1], CLOSED[2]] {
            let Ok(sent) = fields(&schema, provider, model, false) else { continue };
            let sent = value(&sent);
            let steps: &[&str] = match provider {
                Provider::OpenAiResponses => &["text", "format", "schema"],
                Provider::Mistral => &["response_format", "json_schema", "schema"],
                _ => &["output_config", "format", "schema"],
            };
            let schema = steps.iter().fold(&sent, |of, step| match of {
                Value::Map(map) => map.get_named(step).unwrap(),
                _ => of,
            });
            let mut found = Vec::new();
            typeless(schema, &mut found);
            prop_assert!(found.is_empty(), "{:?}: {:?}", provider, found);
        }
    }
}
