//! Writes messages for Anthropic Messages.

use super::Room;
use crate::log::call::ToolCall;
use crate::log::declined::OwnResults;
use crate::log::exchange::Exchange;
use crate::log::media::{Location, Media};
use crate::log::message::{Message, Outcome, Output, Role};
use crate::log::part::{Class, Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::dialect::chat::write::text_message;
use crate::provider::format::Writes;
use crate::provider::order::PartOrCall;
use crate::provider::writer::{is_own_thinking, own_element, Parts, Thought, Writer};
use crate::value::json::{AsJson, AsObject};
use crate::value::letters::trim_end;
use crate::value::Value;

const PROVIDER: Provider = Provider::Anthropic;

impl Writes for Room {
    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        if let (Content::Text(_), false) = (&system.content, out.options.cache) {
            out.say(&system.content, |text, out| out.json.text(text));
            return;
        }
        out.wrap("[", "]", |out| PARTS.content(&system.content, out));
    }

    fn user(&self, message: &Message, out: &mut Writer<'_>) {
        match &message.content {
            content @ Content::Text(_) => {
                out.say(content, |text, out| one_text(Role::User, text, out));
            }
            content => out.blocks(false, |out| PARTS.content(content, out)),
        }
    }

    fn assistant(&self, message: &Message, out: &mut Writer<'_>) {
        if let (content @ Content::Text(_), true) = (&message.content, message.calls.is_empty()) {
            out.say(content, |text, out| {
                one_text(Role::Assistant, trim_end(text), out)
            });
            return;
        }
        out.blocks(true, |out| {
            out.say(&message.content, text_block);
            let said = out.arrange(message, is_own_thinking, is_served);
            let spoken = out.find_spoken_end(&said, is_own_thinking);
            let is_text = |part: &Part| part.kind.is_text() && out.says(part);
            // A history must not end in white space. Where more follows, the text keeps its bytes.
            let mut ones = said.iter();
            let last_text = ones.rposition(|one| one.part().is_some_and(is_text));
            let last_text = last_text.filter(|_| message.calls.is_empty());
            let is_fallback = |one: &PartOrCall<'_>| one.part().is_some_and(Part::is_fallback);
            let begun = said.iter().rposition(is_fallback).unwrap_or_default();
            let results = (begun > 0).then(|| OwnResults::of(message.content.parts()));
            for (index, one) in said.into_iter().enumerate() {
                let declined = results.as_ref().filter(|_| index < begun);
                match one {
                    PartOrCall::Part(part)
                        if part.is_declined_call() || declined.is_some_and(|of| !of.keep(part)) =>
                    {
                        out.drop_part(part);
                    }
                    PartOrCall::Part(part) if part.kind.is_thinking() => {
                        thinking(part, index < spoken, out)
                    }
                    PartOrCall::Part(part) => model_part(part, last_text == Some(index), out),
                    PartOrCall::Call(call) => write_call(call, out),
                }
            }
        });
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        out.blocks(false, |out| {
            for (call, outcome) in exchange.answered_calls(&message.calls) {
                let id = out.id(call);
                result(&id, outcome, out);
            }
        });
    }
}

/// Writes a message of one text: a string, or a block where a breakpoint may have to stand.
fn one_text(role: Role, text: &str, out: &mut Writer<'_>) {
    let is_model = role == Role::Assistant;
    match out.options.cache {
        true => out.blocks(is_model, |out| text_block(text, out)),
        false => text_message(role.name(), text, out),
    }
}

fn text_block(text: &str, out: &mut Writer<'_>) {
    cited_text(text, None, out);
}

fn cited_text(text: &str, citations: Option<&Value>, out: &mut Writer<'_>) {
    out.json.object(|block| {
        let block = block.field("type", "text").text("text", text);
        block.given("citations", citations.map(AsJson));
    });
    out.mark_inside();
}

const PARTS: Parts = Parts {
    text: text_block,
    hint: |part, out| out.hint_inside(part),
    // Its fields depend on whether it is to be cited.
    own: own_element,
    takes: |_| true,
    media,
};

fn write_call(call: &ToolCall, out: &mut Writer<'_>) {
    let [id, name, input] = out.function(call);
    out.json.object(|block| {
        block
            .field("type", "tool_use")
            .field("id", &*id)
            .field("name", &*name)
            .raw("input", &input)
            .given(
                "caller",
                call.provider_map(PROVIDER, "caller").map(AsObject),
            )
            .given("toolset_name", call.provider_text(PROVIDER, "toolset_name"));
    });
    out.mark_inside();
}

fn model_part(part: &Part, is_last_text: bool, out: &mut Writer<'_>) {
    match &part.kind {
        PartKind::Text(bytes) => {
            let Some(text) = out.text(bytes) else { return };
            let text = if is_last_text { trim_end(&text) } else { &text };
            cited_text(text, part.provider_list(out.options, "citations"), out);
            out.hint_inside(part);
        }
        PartKind::ProviderBlock { .. } => PARTS.one(part, out),
        _ => {
            let words = out.media_words(part);
            text_block(trim_end(&words), out);
        }
    }
}

/// Returns whether a block is from a tool that the provider runs. It refuses one after a call, which it would take for
/// unanswered.
fn is_served(part: &Part, _out: &Writer<'_>) -> bool {
    part.is_block_of(PROVIDER) && part.half().is_some()
}

/// Writes thinking, as such if something follows it: no message may end with thinking.
fn thinking(part: &Part, leads: bool, out: &mut Writer<'_>) {
    let is_own = leads && is_own_thinking(part, out);
    match out.place_thinking(is_own, part) {
        Thought::Redacted(data) => out
            .json
            .strings(&[("type", "redacted_thinking"), ("data", data)]),
        Thought::Own { text, signature } => {
            out.json.object(|block| {
                let block = block.field("type", "thinking").text("thinking", &text);
                block.given("signature", signature);
            });
        }
        Thought::Text(text) => text_block(trim_end(&text), out),
        Thought::Nothing => {}
    }
}

fn result(id: &str, outcome: &Outcome, out: &mut Writer<'_>) {
    let mut content = out.apart(|out| match &outcome.output {
        Output::Value(_) => {
            let text = out.result_text(outcome);
            out.json.text(&text);
        }
        Output::Parts(_) => out.wrap("[", "]", |out| PARTS.result(outcome, false, out)),
    });
    if content.is_empty() {
        content = out.apart(|out| out.json.text(crate::value::wording::NO_OUTPUT));
    }
    out.json.object(|block| {
        block
            .field("type", "tool_result")
            .field("tool_use_id", id)
            .raw("content", &content)
            .given("is_error", outcome.is_error().then_some(true));
    });
    out.mark_inside();
    if let Some(part) = out.find_marked(outcome) {
        out.hint_inside(part);
    }
}

fn media(part: &Part, media: &Media<'_>, out: &mut Writer<'_>) {
    let cited = media.text().filter(|_| part.citations() == Some(true));
    let kind = match media.class {
        Class::Image if media.is_common_image() => "image",
        Class::Image if !matches!(media.source, Location::Inline(_)) => "image",
        Class::File if media.is_pdf() || cited.is_some() => "document",
        Class::File if media.id_for(PROVIDER).is_some() => "document",
        _ => "",
    };
    let of = match media.source {
        Location::Stored(PROVIDER, _) => "file",
        Location::Web(_) => "url",
        Location::Inline(_) if cited.is_some() => "text",
        Location::Inline(_) => "base64",
        _ => "",
    };
    if kind.is_empty() || of.is_empty() {
        let words = out.media_words(part);
        text_block(&words, out);
        return;
    }
    out.json.object(|block| {
        block.field("type", kind).object("source", |source| {
            source.field("type", of);
            match (media.source, &cited) {
                (Location::Stored(_, id), _) => source.field("file_id", id),
                (Location::Inline(_), Some(text)) => {
                    source.field("media_type", "text/plain").text("data", text)
                }
                (Location::Inline(data), None) => {
                    let media_type = media.media_type.as_deref().unwrap_or_default();
                    source.field("media_type", media_type).text("data", data)
                }
                _ => source.text("url", &media.url()),
            };
        });
        block.given("title", media.filename.filter(|_| !media.is_image()));
        if let Some(enabled) = part.citations().filter(|_| !media.is_image()) {
            block.object("citations", |citations| {
                citations.field("enabled", &enabled);
            });
        }
    });
    out.mark_inside();
}
