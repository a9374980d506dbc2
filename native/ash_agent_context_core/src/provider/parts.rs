//! Writes the parts of user messages, as most rooms do.

use crate::log::media::Media;
use crate::log::part::{Content, Part, PartKind};
use crate::provider::writer::{BlockForm, Writer};
use crate::value::json::AsObject;
use crate::value::Map;

/// The functions by which a room writes parts.
pub(crate) struct Parts {
    /// Writes a text.
    pub text: fn(&str, &mut Writer<'_>),
    /// Marks a part on which the application set a cache breakpoint.
    pub hint: fn(&Part, &mut Writer<'_>),
    /// Writes a block of the provider's own, as it came.
    pub own: fn(&Map, &mut Writer<'_>),
    /// Returns whether the provider takes a medium. Others become words.
    pub takes: fn(&Media<'_>) -> bool,
    /// Writes media that it takes.
    pub media: fn(&Part, &Media<'_>, &mut Writer<'_>),
}

/// Writes a provider's own block as an element.
pub(crate) fn own_element(data: &Map, out: &mut Writer<'_>) {
    out.json.element(&AsObject(data));
}

/// Is the `hint` of providers without such marks.
pub(crate) fn mark_nothing(_part: &Part, _out: &mut Writer<'_>) {}

impl Parts {
    /// Writes content.
    pub fn content(&self, content: &Content, out: &mut Writer<'_>) {
        out.say(content, self.text);
        self.all(content.parts(), out);
    }

    pub fn all<'p>(&self, parts: impl IntoIterator<Item = &'p Part>, out: &mut Writer<'_>) {
        for part in parts {
            self.one(part, out);
        }
    }

    pub fn one(&self, part: &Part, out: &mut Writer<'_>) {
        match (&part.kind, Media::of(&part.kind)) {
            (PartKind::Text(bytes), _) => {
                if let Some(text) = out.text(bytes) {
                    (self.text)(&text, out);
                    (self.hint)(part, out);
                }
            }
            (PartKind::ProviderBlock { .. }, _) => match out.block(part) {
                BlockForm::Own(data) => (self.own)(data, out),
                BlockForm::Words(words) => (self.text)(&words, out),
                BlockForm::Nothing => {}
            },
            (_, Some(media)) => {
                match (self.takes)(&media) {
                    true => (self.media)(part, &media, out),
                    false => (self.text)(&out.media_words(part), out),
                }
                (self.hint)(part, out);
            }
            (_, None) => out.drop_part(part),
        }
    }

    /// Writes a part in a message that can have no media. Words stand for them.
    pub fn one_in_words(&self, part: &Part, out: &mut Writer<'_>) {
        match Media::of(&part.kind) {
            Some(_) => {
                let words = out.media_words(part);
                (self.text)(&words, out);
            }
            None => self.one(part, out),
        }
    }
}
