//! The messages of OTLP that a trace needs, with the numbers of `opentelemetry/proto/trace/v1/trace.proto`. The crate with all
//! messages depends on the SDK. As JSON, OTLP has ids in hexadecimal digits, integers of 64 bits as text and enumerations as numbers.

use std::fmt::Display;

use prost::{Message, Oneof};
use serde::{Serialize, Serializer};

use crate::value::letters::hex;

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TracesData {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(serialize_with = "write_hex")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(serialize_with = "write_hex")]
    pub span_id: Vec<u8>,
    /// Empty in the first span of a trace.
    #[prost(bytes = "vec", tag = "4")]
    #[serde(serialize_with = "write_hex", skip_serializing_if = "Vec::is_empty")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(serialize_with = "write_text")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    #[serde(serialize_with = "write_text")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<SpanLink>,
    #[prost(message, optional, tag = "15")]
    #[serde(serialize_with = "write_status")]
    pub status: Option<SpanStatus>,
}

/// A link to a span of another trace.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpanLink {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(serialize_with = "write_hex")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(serialize_with = "write_hex")]
    pub span_id: Vec<u8>,
}

/// The kind of a span: work of the application, or a request to another service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    Unspecified = 0,
    Internal = 1,
    Client = 3,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct SpanStatus {
    #[prost(enumeration = "Code", tag = "3")]
    pub code: i32,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    Unset = 0,
    Error = 2,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 2, 3, 4, 5")]
    #[serde(flatten)]
    pub value: Option<Any>,
}

#[derive(Clone, PartialEq, Oneof, Serialize)]
pub enum Any {
    #[prost(string, tag = "1")]
    #[serde(rename = "stringValue")]
    Text(String),
    #[prost(bool, tag = "2")]
    #[serde(rename = "boolValue")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    #[serde(rename = "intValue", serialize_with = "write_text")]
    Int(i64),
    #[prost(double, tag = "4")]
    #[serde(rename = "doubleValue")]
    Double(f64),
    #[prost(message, tag = "5")]
    #[serde(rename = "arrayValue")]
    List(AnyValues),
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct AnyValues {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

fn write_hex<S: Serializer>(id: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(id))
}

fn write_text<S: Serializer>(number: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// A span without a status has an empty one in JSON.
fn write_status<S: Serializer>(of: &Option<SpanStatus>, serializer: S) -> Result<S::Ok, S::Error> {
    match of {
        Some(status) => status.serialize(serializer),
        None => AnyValue::default().serialize(serializer),
    }
}
