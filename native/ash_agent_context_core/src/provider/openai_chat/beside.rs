//! What of a model's message stands beside its content.

use crate::log::media::{Class, Media};
use crate::log::message::Message;
use crate::log::part::{Content, Part, PartKind, AUDIO_ID};
use crate::provider::dialect::chat::reasoning::Reasoning;
use crate::provider::options::Dialect;
use crate::provider::writer::Writer;
use crate::value::builder::JsonObject;
use crate::value::json::AsJson;
use crate::value::Value;

pub(super) struct Beside<'a> {
    reasoning: Reasoning<'a>,
    /// The text that was spoken: the server has its recording, and what was said in it.
    audio: Option<&'a Part>,
    /// OpenRouter takes images where the model gave them.
    images: Vec<(&'a Part, Media<'a>)>,
    /// With these, OpenRouter parses no file again.
    annotations: Option<&'a Value>,
}

impl<'a> Beside<'a> {
    /// `is_sent` tells which media can be sent at all.
    pub fn of(
        message: &'a Message,
        out: &Writer<'_>,
        is_sent: impl Fn(&Media<'_>) -> bool,
    ) -> Self {
        let parts = match &message.content {
            Content::Parts(parts) => &**parts,
            _ => &[],
        };
        let dialect = out.options.dialect;
        let is_router = dialect == Some(Dialect::OpenRouter);
        let speaks = is_router || matches!(dialect, None | Some(Dialect::OpenAi));
        let is_spoken = |part: &&Part| {
            let is_text = matches!(part.kind, PartKind::Text(_));
            is_text && part.is_of(out.options) && part.provider_text(AUDIO_ID).is_some()
        };
        let image = |part: &'a Part| {
            let media = Media::of(&part.kind)?;
            (media.class == Class::Image && is_sent(&media)).then_some((part, media))
        };
        let reply = message.reply.as_ref().filter(|_| is_router);
        let details = reply.and_then(|reply| reply.details.as_ref());
        Self {
            reasoning: Reasoning::of(message, out),
            audio: parts.iter().find(is_spoken).filter(|_| speaks),
            images: match is_router {
                true => parts.iter().filter_map(image).collect(),
                false => Vec::new(),
            },
            annotations: details.and_then(|details| details.get_named("annotations")),
        }
    }

    /// Whether a part is among it.
    pub fn has(&self, part: &Part) -> bool {
        let images = self.images.iter().map(|(image, _)| *image);
        let mut parts = images.chain(self.audio);
        parts.any(|own| std::ptr::eq(own, part)) || self.reasoning.has(part)
    }

    /// Whether a message would say nothing with it alone: nothing follows from what a model thought.
    pub fn says_nothing(&self) -> bool {
        self.audio.is_none() && self.images.is_empty()
    }

    pub fn write(&self, message: &mut JsonObject<'_>) {
        self.reasoning.write(message);
        if let Some(id) = self.audio.and_then(|part| part.provider_text(AUDIO_ID)) {
            message.object("audio", |audio| {
                audio.field("id", id);
            });
        }
        if !self.images.is_empty() {
            message.list("images", |list| {
                for (_, image) in &self.images {
                    list.object(|written| {
                        written
                            .field("type", "image_url")
                            .object("image_url", |place| {
                                place.text("url", &image.url());
                            });
                    });
                }
            });
        }
        if let Some(annotations) = self.annotations {
            message.field("annotations", &AsJson(annotations));
        }
    }
}
