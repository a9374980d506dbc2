//! Reads and writes reasoning, in the fields that servers have added to OpenAI's.

use crate::log::message::{Message, Role};
use crate::log::part::Part;
use crate::log::provider::Provider;
use crate::provider::dialect::facts::is_prefix;
use crate::provider::options::Dialect;
use crate::provider::writer::Writer;
use crate::value::builder::JsonObject;
use crate::value::json::AsJson;
use crate::value::letters::{is_blank, utf8};
use crate::value::Value;

/// The reasoning that a message has beside its content.
pub(crate) enum Reasoning<'a> {
    Nothing,
    /// Texts under this key, which some servers require even if they are empty.
    Text(&'static str, Vec<&'a Part>),
    /// Details as they came, and texts that have none.
    Details(Vec<&'a Part>),
}

impl<'a> Reasoning<'a> {
    pub fn of(message: &'a Message, out: &Writer<'_>) -> Self {
        let parts = message.content.parts().iter();
        let own = parts.filter(|part| part.kind.thoughts().is_some() && part.is_of(out.options));
        match out.options.dialect {
            _ if out.options.provider != Provider::OpenAiChat => Self::Nothing,
            None | Some(Dialect::OpenAi) => Self::Nothing,
            // Without calls, vLLM makes no use of it.
            Some(Dialect::Vllm) if message.calls.is_empty() => Self::Nothing,
            Some(Dialect::DeepSeek) => Self::Text("reasoning_content", own.collect()),
            Some(Dialect::Vllm) => Self::Text("reasoning", own.collect()),
            Some(Dialect::OpenRouter) => Self::Details(own.collect()),
        }
    }

    /// Returns whether a part is in it.
    pub fn has(&self, part: &Part) -> bool {
        match self {
            Self::Nothing => false,
            Self::Text(_, parts) | Self::Details(parts) => {
                parts.iter().any(|own| std::ptr::eq(*own, part))
            }
        }
    }

    pub fn write(&self, message: &mut JsonObject<'_>) {
        match self {
            Self::Nothing => {}
            Self::Text(key, parts) => {
                let text = texts(parts);
                // Where tools are declared, DeepSeek refuses messages of the model without the field, with calls or
                // not, and takes an empty one.
                if !is_blank(&text) || *key == "reasoning_content" {
                    message.text(key, &text);
                }
            }
            Self::Details(parts) => {
                let (detailed, plain): (Vec<&Part>, Vec<&Part>) =
                    parts.iter().partition(|part| details(part).is_some());
                let text = texts(&plain);
                if !is_blank(&text) {
                    message.text("reasoning", &text);
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
