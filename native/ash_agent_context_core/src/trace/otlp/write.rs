//! Writes the spans as bytes.

use std::io;

use prost::Message as _;
use serde::Serialize as _;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};

use crate::error::Error;
use crate::trace::otlp::attributes::SpanAttributes;
use crate::trace::otlp::options::OtlpOptions;
use crate::trace::otlp::proto::{Resource, ResourceSpans, Scope, ScopeSpans, TracesData};
use crate::trace::otlp::spans::SpanWriter;
use crate::trace::shown::Trace;

/// The most bytes of a trace. Texts that many spans repeat, such as the system prompt, make a trace larger than its conversation.
const MOST: usize = 256 * 1024 * 1024;

impl Trace<'_> {
    /// Returns the active conversation, with its sub-agents, as a message of the type `TracesData`, which is also the request
    /// that receivers of OTLP take.
    ///
    /// # Errors
    /// [`Error::UnknownIteration`] for turns that do not exist; [`Error::TraceTooLarge`].
    ///
    /// # Complexity
    /// O(n), and for each answer O(the system prompt and the tools) with [`OtlpOptions::messages`].
    pub fn to_otlp(&self, options: &OtlpOptions<'_>) -> Result<Vec<u8>, Error> {
        let spans = SpanWriter::new(self, options, MOST).write()?;
        let mut resource = SpanAttributes::default();
        resource.values(&options.resource);
        let traces = TracesData {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource {
                    attributes: resource.0,
                }),
                scope_spans: vec![ScopeSpans {
                    scope: Some(Scope {
                        name: "ash_agent_context".to_owned(),
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                    }),
                    spans,
                    schema_url: options.conventions.schema_url().to_owned(),
                }],
            }],
        };
        if !options.is_json {
            return Ok(traces.encode_to_vec());
        }
        let mut json = Vec::new();
        // Writing to memory does not fail, and our map keys are strings.
        let _ = traces.serialize(&mut Serializer::with_formatter(&mut json, Escapes));
        Ok(json)
    }
}

/// Escapes as all other JSON of the package has them.
struct Escapes;

impl Formatter for Escapes {
    fn write_char_escape<W>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let escape = match escape {
            CharEscape::Backspace => CharEscape::AsciiControl(8),
            CharEscape::FormFeed => CharEscape::AsciiControl(12),
            other => other,
        };
        CompactFormatter.write_char_escape(writer, escape)
    }
}
