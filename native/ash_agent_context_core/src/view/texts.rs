//! Texts as models may read them: without what is masked.

use std::borrow::Cow;

use crate::log::media::words_of;
use crate::log::message::{Outcome, Output};
use crate::log::part::{Content, Part, PartKind};
use crate::value::letters;
use crate::view::masks::Masks;

/// Returns the text of a message without its thinking.
pub(crate) fn content_text<'a>(content: &'a Content, masks: Option<&Masks>) -> Cow<'a, str> {
    match masks.map(|masks| masks.content(content)) {
        None => plain(content),
        Some(masked) => plain(&masked).into_owned().into(),
    }
}

fn plain(content: &Content) -> Cow<'_, str> {
    match content {
        Content::None => "".into(),
        Content::Text(text) => letters::utf8(text),
        Content::Parts(parts) => parts_text(parts),
    }
}

/// Returns the text of a result.
pub(crate) fn output_text<'a>(outcome: &'a Outcome, masks: Option<&Masks>) -> Cow<'a, str> {
    match masks.and_then(|masks| masks.output(outcome)) {
        None => say(outcome),
        Some(masked) => {
            let masked = Outcome::new(outcome.status, masked);
            say(&masked).into_owned().into()
        }
    }
}

fn say(outcome: &Outcome) -> Cow<'_, str> {
    match &outcome.output {
        Output::Parts(parts) => parts_text(parts),
        Output::Value(_) => outcome.words(),
    }
}

/// Returns a part in words: a text as it is, and for media the text that is sent where media cannot be.
pub(crate) fn part_text(kind: &PartKind) -> Option<Cow<'_, str>> {
    let text = kind.text().map(|bytes| letters::utf8(bytes));
    text.or_else(|| words_of(kind).map(Cow::Owned))
}

fn parts_text(parts: &[Part]) -> Cow<'_, str> {
    let texts = parts.iter().filter_map(|part| part_text(&part.kind));
    let mut texts: Vec<Cow<'_, str>> = texts.collect();
    match texts.len() {
        1 => texts.pop().unwrap_or_default(),
        _ => texts.join("\n").into(),
    }
}
