//! The fields of requests that hold answers to a schema, for each provider: its form, its subset, and the models that do it.

use ash_agent_context_core::{constrain, json, AnswerType, Error, Provider, Value};

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
        (r#"{"const":"x"}"#, Gemini, Some(r#"{"enum":["x"]}"#)),
        (r#"{"const":"x"}"#, Mistral, None),
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
