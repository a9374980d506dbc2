//! The framings: how the documents that a provider sends stand in a body.

use crate::value::word::words;

words! {
    /// How documents stand in a body.
    pub enum Framing {
        /// Server-sent events.
        Sse = "sse",
        /// A JSON document a line.
        NdJson = "ndjson",
        /// AWS's binary frames.
        EventStream = "aws_event_stream",
        /// One JSON document, or a list of them.
        Json = "json",
    }
}

impl Framing {
    /// Returns the framing for a content type, parameters and letter case aside.
    #[must_use]
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let name = content_type.split(';').next().unwrap_or_default().trim();
        match name.to_ascii_lowercase().as_str() {
            "text/event-stream" => Some(Self::Sse),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines"
            | "application/json-lines" => Some(Self::NdJson),
            "application/vnd.amazon.eventstream" => Some(Self::EventStream),
            "application/json" => Some(Self::Json),
            _ => None,
        }
    }
}
