//! Counts tokens by their use.

mod media;
mod text;

pub use crate::log::tally::Tokens;
pub use text::Method;

use crate::log::call::ToolCall;
use crate::log::exchange::Exchange;
use crate::log::media::Media;
use crate::log::message::{Message, Outcome, Output, Role};
use crate::log::part::{Class, Content, Part, PartKind};
use crate::value::json;
use crate::value::Value;

/// The tokens around a message: its role and the marks of its beginning and end, as in OpenAI's models
/// (<https://github.com/openai/openai-cookbook/blob/main/examples/How_to_count_tokens_with_tiktoken.ipynb>).
const AROUND_MESSAGE: u64 = 4;

/// The tokens around the name and the arguments of a tool call, and around a result.
const AROUND_CALL: u64 = 8;

/// The bytes of base64 for a token, in encrypted reasoning.
const HIDDEN_BYTES_PER_TOKEN: u64 = 6;

impl Message {
    /// Returns the tokens of the message, by use.
    pub(crate) fn count(&self, method: Method) -> Tokens {
        let mut tokens = Tokens::default();
        if self.is_arrival() {
            return tokens; // the result counts, and the call where it was made
        }
        let mut said = AROUND_MESSAGE;
        match &self.content {
            Content::None => {}
            Content::Text(text) => said += method.text(text),
            Content::Parts(parts) => {
                for part in parts {
                    match &part.kind {
                        PartKind::Text(text) => said += method.text(text),
                        PartKind::Thinking(text) => tokens.thinking += method.text(text),
                        PartKind::RedactedThinking(data) => {
                            tokens.thinking += data.len() as u64 / HIDDEN_BYTES_PER_TOKEN;
                        }
                        PartKind::ProviderBlock { data, .. } => {
                            said += method.text(json::write(&Value::Map(data.clone())).as_bytes());
                        }
                        kind @ PartKind::Media(_) => {
                            tokens.media += media_tokens(kind).unwrap_or(0)
                        }
                    }
                }
            }
        }
        tokens.tool_calls = self.calls.iter().map(|call| call.tokens(method)).sum();
        match self.role {
            Role::System => tokens.system = said,
            Role::User => tokens.user = said,
            Role::Assistant => tokens.assistant = said,
        }
        tokens
    }
}

impl ToolCall {
    fn tokens(&self, method: Method) -> u64 {
        let arguments = match &self.arguments.json {
            Some(json) => method.text(json.as_bytes()),
            None => method.text(json::write(&self.arguments.value).as_bytes()),
        };
        AROUND_CALL + method.text(self.name.as_str().as_bytes()) + arguments
    }
}

impl Exchange {
    /// Returns the tokens of the results.
    pub(crate) fn count(&self, method: Method) -> u64 {
        let results = self.slots().flatten();
        results.map(|outcome| outcome.count(method)).sum()
    }
}

impl Outcome {
    /// Returns the tokens of the result.
    pub(crate) fn count(&self, method: Method) -> u64 {
        let tokens: u64 = match &self.output {
            Output::Parts(parts) => parts.iter().map(|part| part_tokens(method, part)).sum(),
            Output::Value(_) => method.text(self.text().unwrap_or_default()),
        };
        tokens + AROUND_CALL
    }
}

fn part_tokens(method: Method, part: &Part) -> u64 {
    let text = part.kind.text().map(|text| method.text(text));
    text.or_else(|| media_tokens(&part.kind)).unwrap_or(0)
}

/// Returns the tokens of media by what their bytes are, as they are sent.
fn media_tokens(kind: &PartKind) -> Option<u64> {
    let (part, sent) = (kind.media()?, Media::of(kind)?);
    let class = match sent.is_corrected {
        true => sent.class,
        false => part.class,
    };
    let corrected = sent.media_type.filter(|_| sent.is_corrected);
    Some(match class {
        Class::Image => media::image(&part.source),
        _ => media::file(part, corrected.as_deref()),
    })
}
