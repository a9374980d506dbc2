//! Collects the texts of messages.

use std::borrow::Cow;

use crate::log::call::ToolCall;
use crate::log::media::Media;
use crate::log::message::{Message, Outcome, Output, Status};
use crate::log::part::{Content, MediaPart, Part, PartKind, Source};
use crate::trace::shown::MaskedEntry;
use crate::value::letters;
use crate::value::{json, wording, Value};

/// A piece of text that stands on its own.
pub(super) struct Passage<'a> {
    pub label: &'static str,
    /// The id of a call, with the tool's name if this is the call itself.
    pub call: Option<(&'a str, Option<&'a str>)>,
    pub text: Cow<'a, str>,
    pub is_error: bool,
}

impl<'a> Passage<'a> {
    pub const fn of(label: &'static str, text: Cow<'a, str>, is_error: bool) -> Self {
        Self {
            label,
            call: None,
            text,
            is_error,
        }
    }
}

/// Returns the passages of a message, those of its calls, and those of their results.
pub(super) fn list_texts<'a>(masked: &'a MaskedEntry<'_>) -> Vec<Passage<'a>> {
    let message = masked.message();
    let mut all = Vec::with_capacity(1 + 2 * message.calls.len());
    all.extend(words(message));
    let is_late = message.is_arrival();
    for call in &message.calls {
        all.push(Passage {
            call: Some((&call.id, Some(call.name.as_str()))),
            ..Passage::of(
                if is_late { "late for" } else { "calls" },
                arguments(call),
                false,
            )
        });
    }
    let slots = masked.exchange().into_iter().flat_map(|of| of.slots());
    for (call, outcome) in message.calls.iter().zip(slots) {
        if let Some(outcome) = outcome {
            all.push(Passage {
                call: Some((&call.id, None)),
                ..Passage::of(label(outcome), result_text(outcome), outcome.is_error())
            });
        }
    }
    all
}

fn label(outcome: &Outcome) -> &'static str {
    match (outcome.status, outcome.arrived()) {
        (Status::Waiting, _) => "waits",
        (_, Some(_)) => "late result",
        _ => "tool result",
    }
}

/// Returns the passages of a message without its calls.
pub(super) fn words(message: &Message) -> impl Iterator<Item = Passage<'_>> {
    let label = message.role.name();
    let text = content_text(&message.content);
    let text = (!text.is_empty()).then(|| Passage::of(label, text, false));
    let broken = message.reply.as_ref();
    let broken = broken.and_then(|reply| reply.interrupted.as_ref());
    let broken =
        broken.map(|reason| Passage::of("interrupted", wording::reason(reason).into(), true));
    text.into_iter().chain(broken)
}

/// Returns the arguments of a call as JSON, or as the text that they are.
pub(super) fn arguments(call: &ToolCall) -> Cow<'_, str> {
    match (&call.arguments.json, &call.arguments.value) {
        (Some(json), _) => json.as_ref().into(),
        (None, Value::Binary(text)) => letters::utf8(text),
        (None, value) => json::write(value).into(),
    }
}

/// Returns a result as a model reads it.
pub(super) fn result_text(outcome: &Outcome) -> Cow<'_, str> {
    match &outcome.output {
        Output::Parts(parts) => parts_text(parts),
        Output::Value(_) => outcome.words(),
    }
}

pub(super) fn content_text(content: &Content) -> Cow<'_, str> {
    match content {
        Content::None => "".into(),
        Content::Text(text) => letters::utf8(text),
        Content::Parts(parts) => parts_text(parts),
    }
}

/// Returns the text of a message, without a model's thinking.
#[cfg(feature = "otlp")]
pub(super) fn spoken_text(content: &Content) -> Cow<'_, str> {
    let Content::Parts(parts) = content else {
        return content_text(content);
    };
    join_texts(parts.iter().filter(|part| !part.kind.is_thinking()))
}

fn join_texts<'a>(parts: impl Iterator<Item = &'a Part>) -> Cow<'a, str> {
    parts.map(part_text).collect::<Vec<_>>().join("\n").into()
}

fn parts_text(parts: &[Part]) -> Cow<'_, str> {
    match parts {
        [one] => part_text(one),
        parts => join_texts(parts.iter()),
    }
}

pub(super) fn part_text(part: &Part) -> Cow<'_, str> {
    match &part.kind {
        PartKind::Text(text) => letters::utf8(text),
        PartKind::Thinking(text) => format!("(thinks: {})", letters::utf8(text)).into(),
        PartKind::RedactedThinking(_) => "(thinks)".into(),
        PartKind::ProviderBlock { provider, data } => {
            let kind = data.get_named("type").and_then(Value::as_str);
            format!("({}: {})", provider.name(), kind.unwrap_or("a block")).into()
        }
        kind @ PartKind::Media(media) => media_words(media, Media::of(kind)).into(),
    }
}

/// Returns `(image: image/png)` or `(file: plan.pdf, application/pdf)`.
fn media_words(media: &MediaPart, sent: Option<Media<'_>>) -> String {
    let place = match &media.source {
        Source::Url(url) if !url.starts_with("data:") => Some(&**url),
        Source::Stored { id, .. } => Some(&**id),
        _ => None,
    };
    let of = sent.and_then(|sent| sent.type_words(media.media_type.as_deref()));
    let known = [media.filename.as_deref(), of.as_deref(), place];
    let known: Vec<&str> = known.into_iter().flatten().collect();
    format!("({}: {})", media.class.name(), known.join(", "))
}
