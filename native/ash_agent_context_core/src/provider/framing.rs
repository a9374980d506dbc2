//! How the documents that a provider sends are framed in a body.

/// How documents are framed in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// A JSON document a line.
    NdJson,
    /// AWS's binary frames.
    EventStream,
    /// One JSON document, or a list of them.
    Json,
}

impl Framing {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sse, Self::NdJson, Self::EventStream, Self::Json];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sse => "sse",
            Self::NdJson => "ndjson",
            Self::EventStream => "aws_event_stream",
            Self::Json => "json",
        }
    }

    /// The framing of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// The framing that a content type tells of, parameters and letter case aside.
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
