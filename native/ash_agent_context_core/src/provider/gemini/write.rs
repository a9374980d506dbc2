//! Gemini generateContent.

use crate::log::exchange::Exchange;
use crate::log::message::{Message, Outcome, Output, Role};
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::value::json::AsObject;
use crate::value::Value;

use super::Room;
use crate::log::media::{Location, Media};
use crate::provider::format::Writes;
use crate::provider::writer::{texts, Thought, Writer};
use crate::value::letters::is_blank;

/// What Google documents for a call whose signature is not at hand, such as another vendor's:
/// `skip_thought_signature_validator` in base64.
const STAND_IN_SIGNATURE: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

const USER: &str = ",{\"role\":\"user\",\"parts\":[";
const MODEL: &str = ",{\"role\":\"model\",\"parts\":[";
const CLOSE: &str = "]}";

impl Writes for Room {
    fn list(&self) -> &'static str {
        "contents"
    }

    fn system_key(&self) -> Option<&'static str> {
        Some("systemInstruction")
    }

    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        let texts = texts(&system.content, out);
        out.wrapped("{\"parts\":[", CLOSE, |out| {
            for text in texts {
                text_part(&text, out);
            }
        });
    }

    fn message(&self, message: &Message, out: &mut Writer<'_>) {
        if message.role == Role::Assistant {
            assistant(message, out);
            return;
        }
        out.wrapped(USER, CLOSE, |out| match &message.content {
            Content::Text(bytes) => {
                if let Some(text) = out.text(bytes) {
                    text_part(&text, out);
                }
            }
            Content::Parts(parts) => {
                for part in &**parts {
                    user_part(part, out);
                }
            }
            Content::None => {}
        });
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        let takes_media = out
            .options
            .model
            .is_some_and(|model| model.contains("gemini-3"));
        let mut behind = Vec::new();
        out.wrapped(USER, CLOSE, |out| {
            for (call, outcome) in message.calls.iter().zip(exchange.slots()) {
                let Some(outcome) = outcome else { continue };
                let (id, name) = (out.id(call), out.name(call));
                let (response, media) = response(outcome, out);
                let inside = out.apart(|out| {
                    if !takes_media {
                        behind.extend(media);
                        return;
                    }
                    for part in media {
                        user_part(part, out);
                    }
                });
                out.json.object(|part| {
                    part.object("functionResponse", |result| {
                        result
                            .field("id", &*id)
                            .field("name", &*name)
                            .raw("response", &response);
                        if !inside.is_empty() {
                            result.raw("parts", &format!("[{inside}]"));
                        }
                    });
                });
            }
        });
        out.wrapped(USER, CLOSE, |out| {
            for part in behind {
                user_part(part, out);
            }
        });
    }

    fn user_first(&self) -> bool {
        true
    }

    fn user_last(&self) -> bool {
        true
    }

    fn stand_in(&self) -> &'static str {
        ",{\"role\":\"user\",\"parts\":[{\"text\":\"Continue.\"}]}"
    }
}

fn text_part(text: &str, out: &mut Writer<'_>) {
    out.json.object(|part| {
        part.text("text", text);
    });
}

fn user_part(part: &Part, out: &mut Writer<'_>) {
    match &part.kind {
        PartKind::Text(bytes) => {
            if let Some(text) = out.text(bytes) {
                text_part(&text, out);
            }
        }
        PartKind::ProviderBlock { .. } => own_part(part, out),
        _ => media(part, out),
    }
}

fn own_part(part: &Part, out: &mut Writer<'_>) {
    if let Some(data) = out.own_block(part) {
        out.json.element(&AsObject(data));
    }
}

fn assistant(message: &Message, out: &mut Writer<'_>) {
    out.wrapped(MODEL, CLOSE, |out| {
        let start = out.json.0.len();
        let speaks = content(message, out);
        // Gemini 3 checks the first call of each step; for others' calls there is a stand-in.
        let mut stand_in = out
            .options
            .model
            .is_none_or(|model| !model.contains("gemini-1") && !model.contains("gemini-2"))
            .then_some(STAND_IN_SIGNATURE);
        for call in &message.calls {
            let (id, name) = (out.id(call), out.name(call));
            let args = out.arguments(call);
            let own = call
                .provider_text(Provider::Gemini, "signature")
                .filter(|signature| is_signature(signature));
            let signature = own.or(stand_in);
            stand_in = None;
            out.json.object(|part| {
                part.object("functionCall", |function| {
                    function
                        .field("id", &*id)
                        .field("name", &*name)
                        .raw("args", &args);
                });
                if let Some(signature) = signature {
                    part.field("thoughtSignature", signature);
                }
            });
        }
        if !speaks && message.calls.is_empty() {
            out.json.0.truncate(start);
        }
    });
}

/// Writes what a model says and tells whether that is more than thinking.
fn content(message: &Message, out: &mut Writer<'_>) -> bool {
    let parts = match &message.content {
        Content::None => return false,
        Content::Text(bytes) => {
            let text = out.text(bytes);
            if let Some(text) = &text {
                text_part(text, out);
            }
            return text.is_some();
        }
        Content::Parts(parts) => parts,
    };
    let mut speaks = false;
    for part in &**parts {
        match &part.kind {
            PartKind::Text(bytes) => speaks |= signed_text(part, bytes, out),
            PartKind::ProviderBlock { .. } => {
                let before = out.json.0.len();
                own_part(part, out);
                speaks |= out.json.0.len() > before;
            }
            PartKind::Thinking(_) => speaks |= thinking(part, out),
            PartKind::Image { .. } | PartKind::File { .. } => {
                let words = out.media_words(part);
                text_part(&words, out);
                speaks = true;
            }
            PartKind::RedactedThinking(_) => out.dropped(part),
        }
    }
    speaks
}

/// A text with its signature, which may stand on an empty one, too.
fn signed_text(part: &Part, bytes: &[u8], out: &mut Writer<'_>) -> bool {
    let signature = part
        .provider_text("signature")
        .filter(|signature| part.is_of(out.options) && is_signature(signature));
    let text = match (out.text(bytes), signature) {
        (None, None) => return false,
        (text, _) => text.unwrap_or_default(),
    };
    out.json.object(|written| {
        written.text("text", &text);
        if let Some(signature) = signature {
            written.field("thoughtSignature", signature);
        }
    });
    !text.is_empty()
}

/// Writes a thinking part and tells whether it has become text.
fn thinking(part: &Part, out: &mut Writer<'_>) -> bool {
    match out.thinking(part, false) {
        Thought::Own { text, signature } if !is_blank(&text) => {
            out.json.object(|written| {
                written.text("text", &text).field("thought", &true);
                if let Some(signature) = signature.filter(|signature| is_signature(signature)) {
                    written.field("thoughtSignature", signature);
                }
            });
            false
        }
        Thought::Text(text) => {
            text_part(&text, out);
            true
        }
        Thought::Own { .. } | Thought::Nothing => false,
    }
}

/// Base64 in either alphabet.
fn is_signature(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    !digits.is_empty()
        && digits.len() % 4 != 1
        && text.len() - digits.len() <= 2
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte))
}

/// The object that stands for a result, and the media that go with it.
fn response<'a>(outcome: &'a Outcome, out: &mut Writer<'_>) -> (String, Vec<&'a Part>) {
    if let (Output::Value(Value::Map(map)), false) = (&outcome.output, outcome.is_error()) {
        if crate::value::structs::struct_text(map).is_none() {
            return (crate::value::json::to_string(&AsObject(map)), Vec::new());
        }
    }
    let (key, text, media) = if outcome.is_error() {
        ("error", out.result_text(outcome), Vec::new())
    } else {
        let (text, media) = out.split_result(outcome, is_sent);
        ("output", text, media)
    };
    let response = out.apart(|out| {
        out.json.object(|response| {
            response.text(key, &text);
        });
    });
    (response, media)
}

fn is_sent(media: &Media<'_>) -> bool {
    match media.source {
        Location::Inline(_) => {
            media.media_type.is_some_and(|of| !is_blank(of)) && media.text().is_none()
        }
        Location::Web(_) => media.guessed_type().is_some(),
        Location::Store(uri) => uri.starts_with("gs://") && media.guessed_type().is_some(),
    }
}

fn media(part: &Part, out: &mut Writer<'_>) {
    let Some(media) = Media::of(&part.kind) else {
        out.dropped(part);
        return;
    };
    if !is_sent(&media) {
        let words = out.media_words(part);
        text_part(&words, out);
        return;
    }
    let media_type = media.guessed_type().unwrap_or_default();
    out.json.object(|written| match media.source {
        Location::Inline(data) => {
            written.object("inlineData", |blob| {
                blob.field("mimeType", media_type).text("data", data);
            });
        }
        Location::Web(uri) | Location::Store(uri) => {
            written.object("fileData", |file| {
                file.field("mimeType", media_type).field("fileUri", uri);
            });
        }
    });
}
