//! Reads and writes the fields of a model's message beside its content.

use crate::log::media::Media;
use crate::log::message::{Message, Role};
use crate::log::part::{Class, Part, AUDIO_ID};
use crate::provider::dialect::chat::read::{EXTRA, IS_REFUSAL};
use crate::provider::facts::is_prefix;
use crate::provider::options::Dialect;
use crate::provider::writer::Writer;
use crate::value::builder::JsonObject;
use crate::value::json::AsJson;
use crate::value::letters::{is_blank, utf8};
use crate::value::Value;

pub(super) struct Beside<'a> {
    reasoning: Reasoning<'a>,
    /// The text that was spoken; the server has the recording.
    audio: Option<&'a Part>,
    /// The text of a refusal.
    refusal: Option<&'a Part>,
    /// Images of the model, which OpenRouter takes in this field.
    images: Vec<(&'a Part, Media<'a>)>,
    /// With these, OpenRouter does not parse the files again.
    annotations: Option<&'a Value>,
    /// Gemini's signature of the message.
    extra: Option<&'a Value>,
}

impl<'a> Beside<'a> {
    /// `is_sent` returns whether the provider takes a medium at all.
    pub fn of(
        message: &'a Message,
        out: &Writer<'_>,
        is_sent: impl Fn(&Media<'_>) -> bool,
    ) -> Self {
        let parts = message.content.parts();
        let dialect = out.options.dialect;
        let is_router = dialect == Some(Dialect::OpenRouter);
        let speaks = is_router || matches!(dialect, None | Some(Dialect::OpenAi));
        let mut texts = parts.iter().filter(|part| {
            let is_text = part.kind.is_text();
            is_text && speaks && part.is_of(out.options)
        });
        let is_spoken = |part: &&Part| part.provider_text(AUDIO_ID).is_some();
        let is_refusal = |part: &&Part| part.is_noted(IS_REFUSAL) && out.says(part);
        let image = |part: &'a Part| {
            let media = Media::of(&part.kind)?;
            (media.class == Class::Image && is_sent(&media)).then_some((part, media))
        };
        let detail = |key| message.reply.as_ref()?.details.as_ref()?.get_named(key);
        Self {
            reasoning: Reasoning::of(message, out),
            audio: texts.clone().find(is_spoken),
            refusal: texts.find(is_refusal),
            images: match is_router {
                true => parts.iter().filter_map(image).collect(),
                false => Vec::new(),
            },
            annotations: detail("annotations").filter(|_| is_router),
            extra: detail(EXTRA).filter(|_| dialect.is_none() && answers(message, out)),
        }
    }

    /// Returns whether a part is in one of the fields.
    pub fn has(&self, part: &Part) -> bool {
        let images = self.images.iter().map(|(image, _)| *image);
        let parts = images.chain(self.audio).chain(self.refusal);
        let mut parts = parts.chain(self.reasoning.parts.iter().copied());
        parts.any(|own| std::ptr::eq(own, part))
    }

    /// Returns whether a message with nothing but this would say nothing, such as a thought alone.
    pub fn says_nothing(&self) -> bool {
        self.audio.is_none() && self.refusal.is_none() && self.images.is_empty()
    }

    pub fn write(&self, message: &mut JsonObject<'_>) {
        self.reasoning.write(message);
        if let Some(id) = self.audio.and_then(|part| part.provider_text(AUDIO_ID)) {
            message.strings("audio", &[("id", id)]);
        }
        if let Some(text) = self.refusal.and_then(|part| part.kind.text()) {
            message.text("refusal", &utf8(text));
        }
        message.given(EXTRA, self.extra.map(AsJson));
        if !self.images.is_empty() {
            message.objects("images", &self.images, |written, (_, image)| {
                let written = written.field("type", "image_url");
                written.strings("image_url", &[("url", &image.url())]);
            });
        }
        message.given("annotations", self.annotations.map(AsJson));
    }
}

/// Returns whether a message came from the server and, as far as is known, from the model that is asked.
fn answers(message: &Message, out: &Writer<'_>) -> bool {
    let asked = out.options.model.unwrap_or_default();
    let reply = message.reply.as_ref();
    reply.is_some_and(|reply| {
        let model = reply.model.as_deref().unwrap_or_default();
        reply.provider == Some(out.options.provider) && (asked.is_empty() || asked == model)
    })
}

/// The field with the model's reasoning, where a dialect has one, and the parts in it.
struct Reasoning<'a> {
    key: &'static str,
    /// True if details of reasoning go back in a field of their own.
    has_details: bool,
    parts: Vec<&'a Part>,
}

impl<'a> Reasoning<'a> {
    fn of(message: &'a Message, out: &Writer<'_>) -> Self {
        let key = match out.options.dialect {
            None | Some(Dialect::OpenAi) => "",
            // Without calls, vLLM makes no use of it.
            Some(Dialect::Vllm) if message.calls.is_empty() => "",
            Some(Dialect::DeepSeek) => "reasoning_content",
            Some(Dialect::Vllm | Dialect::OpenRouter) => "reasoning",
        };
        let parts = message.content.parts().iter();
        let own = parts.filter(|part| part.kind.thoughts().is_some() && part.is_of(out.options));
        Self {
            key,
            has_details: out.options.dialect == Some(Dialect::OpenRouter),
            parts: own.filter(|_| !key.is_empty()).collect(),
        }
    }

    fn write(&self, message: &mut JsonObject<'_>) {
        let is_detailed = |part: &&Part| self.has_details && details(part).is_some();
        let (detailed, plain): (Vec<&Part>, Vec<&Part>) =
            self.parts.iter().copied().partition(is_detailed);
        let text = texts(&plain);
        // Where tools are declared, DeepSeek refuses messages of the model without the field, with calls or not, and takes an
        // empty one.
        if !is_blank(&text) || self.key == "reasoning_content" {
            message.text(self.key, &text);
        }
        if !detailed.is_empty() {
            message.list("reasoning_details", |list| {
                for detail in detailed.into_iter().filter_map(details).flatten() {
                    list.element(&AsJson(detail));
                }
            });
        }
    }
}

fn texts(parts: &[&Part]) -> String {
    let texts = parts.iter().filter_map(|part| part.kind.thoughts());
    let texts = texts.map(|bytes| utf8(bytes));
    texts.collect::<Vec<_>>().join("\n\n")
}

/// Returns the details that OpenRouter gave, which go back unchanged.
fn details(part: &Part) -> Option<&[Value]> {
    let details = part.noted("reasoning_details")?.as_list()?;
    (!details.is_empty()).then_some(details)
}

/// Returns whether an imported message may go back in this dialect as it came.
pub(crate) fn goes_back(message: &Message, elements: &str, dialect: Dialect) -> bool {
    if message.role != Role::Assistant {
        return true;
    }
    // Within a text, the quotation mark before the colon would be escaped.
    let has = |key: &str| elements.contains(key);
    let (content, rest) = (
        has("\"reasoning_content\":"),
        has("\"reasoning\":") || has("\"reasoning_details\":"),
    );
    match dialect {
        Dialect::OpenAi => !content && !rest,
        Dialect::DeepSeek => !rest && (content || is_prefix(elements)),
        Dialect::OpenRouter => true,
        Dialect::Vllm => !content,
    }
}
