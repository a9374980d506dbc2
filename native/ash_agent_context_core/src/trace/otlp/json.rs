//! Writes OTLP/JSON: ids in hexadecimal digits, integers of 64 bits as text, enumerations as numbers.

use crate::trace::otlp::proto::{Any, AnyValue, KeyValue, Span, TracesData};
use crate::value::builder::{Json, JsonObject};
use crate::value::letters::hex;

pub(super) fn write(traces: &TracesData) -> Vec<u8> {
    let mut json = Json::default();
    json.object(|json| {
        json.key("resourceSpans")
            .list(&traces.resource_spans, |json, of| {
                json.bare_object(|json| {
                    json.object("resource", |json| {
                        let attributes = of.resource.iter().flat_map(|of| &of.attributes);
                        self::attributes(json, attributes);
                    });
                    json.key("scopeSpans").list(&of.scope_spans, |json, of| {
                        json.bare_object(|json| {
                            if let Some(scope) = &of.scope {
                                json.object("scope", |json| {
                                    json.text("name", &scope.name);
                                    json.text("version", &scope.version);
                                });
                            }
                            json.key("spans").list(&of.spans, |json, of| {
                                json.bare_object(|json| span(json, of));
                            });
                            json.text("schemaUrl", &of.schema_url);
                        });
                    });
                });
            });
    });
    json.into_bytes()
}

fn span(json: &mut JsonObject<'_>, span: &Span) {
    json.text("traceId", &hex(&span.trace_id));
    json.text("spanId", &hex(&span.span_id));
    if !span.parent_span_id.is_empty() {
        json.text("parentSpanId", &hex(&span.parent_span_id));
    }
    json.text("name", &span.name).field("kind", &span.kind);
    json.text("startTimeUnixNano", &span.start_time_unix_nano.to_string());
    json.text("endTimeUnixNano", &span.end_time_unix_nano.to_string());
    attributes(json, &span.attributes);
    if !span.links.is_empty() {
        json.key("links").list(&span.links, |json, link| {
            json.bare_object(|json| {
                json.text("traceId", &hex(&link.trace_id));
                json.text("spanId", &hex(&link.span_id));
            });
        });
    }
    json.object("status", |json| {
        if let Some(status) = &span.status {
            json.field("code", &status.code);
            if !status.message.is_empty() {
                json.text("message", &status.message);
            }
        }
    });
}

fn attributes<'a>(json: &mut JsonObject<'_>, all: impl IntoIterator<Item = &'a KeyValue>) {
    json.key("attributes").list(all, |json, of| {
        json.bare_object(|json| {
            json.text("key", &of.key);
            if let Some(value) = &of.value {
                any_value(json.key("value"), value);
            }
        });
    });
}

fn any_value(json: &mut Json, value: &AnyValue) {
    json.bare_object(|json| match &value.value {
        Some(Any::Text(text)) => {
            json.text("stringValue", text);
        }
        Some(Any::Flag(flag)) => {
            json.field("boolValue", flag);
        }
        Some(Any::Int(number)) => {
            json.text("intValue", &number.to_string());
        }
        Some(Any::Double(number)) => {
            json.field("doubleValue", number);
        }
        Some(Any::List(list)) => {
            json.object("arrayValue", |json| {
                json.key("values").list(&list.values, any_value);
            });
        }
        None => {}
    });
}
