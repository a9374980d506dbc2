//! Writes messages for Gemini generateContent.

use crate::log::call::ToolCall;
use crate::log::exchange::Exchange;
use crate::log::media_type::is_text;
use crate::log::message::{Message, Outcome};
use crate::log::part::{Part, PartKind};
use crate::log::provider::Provider;
use crate::value::json::AsObject;

use super::Room;
use crate::log::media::{Location, Media};
use crate::provider::format::Writes;
use crate::provider::order::{in_order, PartOrCall};
use crate::provider::writer::{mark_nothing, own_element, Parts, Thought, Writer};
use crate::value::letters::is_blank;
use crate::view::change::ChangeKind;

/// Google documents this signature for calls whose own is not at hand, such as another vendor's:
/// `skip_thought_signature_validator` in base64.
const STAND_IN_SIGNATURE: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

const USER: &str = ",{\"role\":\"user\",\"parts\":[";
const MODEL: &str = ",{\"role\":\"model\",\"parts\":[";
const CLOSE: &str = "]}";

impl Writes for Room {
    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        out.wrap("{\"parts\":[", CLOSE, |out| {
            PARTS.content(&system.content, out)
        });
    }

    fn user(&self, message: &Message, out: &mut Writer<'_>) {
        out.wrap(USER, CLOSE, |out| PARTS.content(&message.content, out));
    }

    fn assistant(&self, message: &Message, out: &mut Writer<'_>) {
        out.wrap(MODEL, CLOSE, |out| {
            let start = out.json.0.len();
            let mut speaks = out.say(&message.content, text_part);
            // Gemini 3 checks the first call of each step; calls of others get the stand-in.
            let mut stand_in = out
                .options
                .model
                .is_none_or(|model| !model.contains("gemini-1") && !model.contains("gemini-2"))
                .then_some(STAND_IN_SIGNATURE);
            for said in in_order(&message.content, &message.calls) {
                match said {
                    PartOrCall::Part(part) => speaks |= model_part(part, out),
                    PartOrCall::Call(one) => call(one, stand_in.take(), out),
                }
            }
            if !speaks && message.calls.is_empty() {
                out.cut(start);
            }
        });
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        let model = out.options.model;
        let takes_media = model.is_some_and(|model| model.contains("gemini-3"));
        let mut behind = Vec::new();
        out.wrap(USER, CLOSE, |out| {
            for (call, outcome) in exchange.answered_calls(&message.calls) {
                let (id, name) = (out.id(call), out.name(call));
                let (response, media) = response(outcome, out);
                let inside = out.apart(|out| match takes_media {
                    true => PARTS.all(media, out),
                    false => behind.extend(media),
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
        out.wrap(USER, CLOSE, |out| {
            PARTS.all(behind, out);
        });
    }
}

fn text_part(text: &str, out: &mut Writer<'_>) {
    out.json.strings(&[("text", text)]);
}

const PARTS: Parts = Parts {
    text: text_part,
    hint: mark_nothing,
    own: own_element,
    takes: is_sent,
    media: |_part, media, out| write_media(media, None, out),
};

fn call(call: &ToolCall, stand_in: Option<&str>, out: &mut Writer<'_>) {
    let [id, name, args] = out.function(call);
    let own = call
        .provider_text(Provider::Gemini, "signature")
        .filter(|signature| is_signature(signature));
    out.json.object(|part| {
        part.object("functionCall", |function| {
            function
                .field("id", &*id)
                .field("name", &*name)
                .raw("args", &args);
        });
        part.given("thoughtSignature", own.or(stand_in));
    });
}

/// Writes a part. Returns whether it is more than thinking.
fn model_part(part: &Part, out: &mut Writer<'_>) -> bool {
    match &part.kind {
        PartKind::Text(bytes) => write_signed_text(part, bytes, out),
        PartKind::ProviderBlock { .. } => {
            let before = out.json.0.len();
            PARTS.one(part, out);
            out.json.0.len() > before
        }
        PartKind::Thinking(_) => thinking(part, out),
        PartKind::Media(_) => {
            if !own_media(part, out) {
                let words = out.media_words(part);
                text_part(&words, out);
            }
            true
        }
        PartKind::RedactedThinking(_) => {
            out.drop_part(part);
            false
        }
    }
}

/// Writes a text with its signature, which an empty one may have, too.
fn write_signed_text(part: &Part, bytes: &[u8], out: &mut Writer<'_>) -> bool {
    let signature = part
        .provider_text("signature")
        .filter(|signature| part.is_of(out.options) && is_signature(signature));
    let text = match (out.text(bytes), signature) {
        (None, None) => return false,
        (text, _) => text.unwrap_or_default(),
    };
    out.json.object(|written| {
        let written = written.text("text", &text);
        written.given("thoughtSignature", signature);
    });
    !text.is_empty()
}

/// Writes a thinking part. Returns whether it became text.
fn thinking(part: &Part, out: &mut Writer<'_>) -> bool {
    match out.thinking(part, false) {
        Thought::Own { text, signature } if !is_blank(&text) => {
            out.json.object(|written| {
                let signature = signature.filter(|signature| is_signature(signature));
                let written = written.text("text", &text).field("thought", &true);
                written.given("thoughtSignature", signature);
            });
            false
        }
        Thought::Text(text) => {
            text_part(&text, out);
            true
        }
        Thought::Own { .. } | Thought::Redacted(_) | Thought::Nothing => false,
    }
}

/// Returns whether a text is base64, in either alphabet.
fn is_signature(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    !digits.is_empty()
        && digits.len() % 4 != 1
        && text.len() - digits.len() <= 2
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte))
}

/// Returns the object for a result, and the media that go with it.
fn response<'a>(outcome: &'a Outcome, out: &mut Writer<'_>) -> (String, Vec<&'a Part>) {
    if let Some(map) = outcome.as_object() {
        let refused = out.options.provider.facts().refused_key;
        if refused.is_some_and(|key| outcome.output.has_key(key)) {
            out.report_change(ChangeKind::ResultToText, "a map", None);
        } else if crate::value::structs::struct_text(map).is_none() {
            return (crate::value::json::to_string(&AsObject(map)), Vec::new());
        }
    }
    let key = if outcome.is_error() {
        "error"
    } else {
        "output"
    };
    let (text, media) = out.split_result(outcome, false, is_sent);
    let response = out.apart(|out| {
        out.json.strings(&[(key, &text)]);
    });
    (response, media)
}

/// The media types that Gemini's documentation names. It refuses others.
const TYPES: [&str; 27] = [
    "application/pdf",
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/heic",
    "image/heif",
    "audio/wav",
    "audio/mpeg",
    "audio/aiff",
    "audio/aac",
    "audio/ogg",
    "audio/flac",
    "audio/mp4",
    "audio/opus",
    "audio/webm",
    "audio/pcm",
    "audio/mpga",
    "video/mp4",
    "video/mpeg",
    "video/mpg",
    "video/quicktime",
    "video/avi",
    "video/x-flv",
    "video/webm",
    "video/wmv",
    "video/3gpp",
    "video/mpegps",
];

fn is_sent(media: &Media<'_>) -> bool {
    let is_taken = media.guessed_type().is_some_and(|of| TYPES.contains(&of));
    match media.source {
        Location::Inline(_) => is_taken,
        Location::Stored(owner, _) => is_taken && owner == Provider::Gemini,
        // The server reads texts from there, too, but refuses SVG, which is one.
        Location::Web(_) => {
            is_taken || (!media.is_image() && media.guessed_type().is_some_and(is_text))
        }
        Location::Store(uri) => is_taken && uri.starts_with("gs://"),
        Location::Refused(_) => false,
    }
}

/// Writes media that the model made, as they came. Returns whether the part is one.
fn own_media(part: &Part, out: &mut Writer<'_>) -> bool {
    let media = Media::of(&part.kind).filter(is_sent);
    let Some(media) = media.filter(|_| part.is_of(out.options)) else {
        return false;
    };
    let signature = part.provider_text("signature");
    write_media(&media, signature.filter(|text| is_signature(text)), out);
    true
}

fn write_media(media: &Media<'_>, signature: Option<&str>, out: &mut Writer<'_>) {
    const FILES: &str = "https://generativelanguage.googleapis.com/v1beta/files/";
    let media_type = media.guessed_type().unwrap_or_default();
    let uri = match media.source {
        Location::Stored(_, id) if !id.contains("://") => {
            format!("{FILES}{}", id.trim_start_matches("files/"))
        }
        _ => media.url(),
    };
    out.json.object(|written| {
        if let Location::Inline(data) = media.source {
            written.strings("inlineData", &[("mimeType", media_type), ("data", data)]);
        } else {
            written.strings("fileData", &[("mimeType", media_type), ("fileUri", &uri)]);
        }
        written.given("thoughtSignature", signature);
    });
}
