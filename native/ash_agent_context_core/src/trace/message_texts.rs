//! Collects the texts of messages.

use std::borrow::Cow;

use crate::log::call::ToolCall;
use crate::log::media::Media;
use crate::log::message::{Message, Outcome, Output, Status};
use crate::log::part::{Content, MediaPart, Part, PartKind, Source};
use crate::trace::shown::MaskedEntry;
use crate::value::letters;
use crate::value::time::Time;
use crate::value::{json, time, wording, Value};

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

/// Returns the passages of a message, those of its calls, and those of their results. `mask` is for what is in neither.
pub(super) fn list_texts<'a>(
    masked: &'a MaskedEntry<'_>,
    mask: impl Fn(&Value) -> Value,
) -> Vec<Passage<'a>> {
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
            let told = late_words(outcome, &mask).map(|words| Passage {
                call: Some((&call.id, None)),
                ..Passage::of("later", words.into(), false)
            });
            all.extend(told);
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

/// Returns whom a call waits for and until when, or from whom its result came, when, and which call waited for it.
fn late_words(outcome: &Outcome, mask: impl Fn(&Value) -> Value) -> Option<String> {
    let whom = |word: &str, value: &Value| match value {
        Value::Nil => String::new(),
        value => format!("{word} {} ", wording::reason(&mask(value))),
    };
    let clock = |at: Time| {
        let at = time::to_text(at);
        at.get(..19).unwrap_or(&at).replace('T', " ") + " UTC"
    };
    if let Some(arrived) = outcome.arrived() {
        let awaited = arrived.awaited_by.as_deref();
        let awaited = awaited.map(|id| format!(", {id} waited for it"));
        let (from, at) = (whom("from", &arrived.from), clock(arrived.at));
        return Some(format!("{from}at {at}{}", awaited.unwrap_or_default()));
    }
    let wait = outcome.wait()?;
    let question = wait.question.as_ref().map(|question| {
        let question = json::write(&mask(question));
        format!("asks {question} ")
    });
    let until = wait.deadline.map(|at| format!("until {}", clock(at)));
    let words =
        question.unwrap_or_default() + &whom("for", &wait.what) + &until.unwrap_or_default();
    (!words.is_empty()).then_some(words)
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
