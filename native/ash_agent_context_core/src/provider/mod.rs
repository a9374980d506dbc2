//! One room a provider.

pub(crate) mod anthropic;
pub(crate) mod bedrock;
pub(crate) mod draft;
pub(crate) mod event;
pub(crate) mod fault;
pub(crate) mod gemini;
pub(crate) mod mistral;
pub(crate) mod node;
pub(crate) mod ollama;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
mod rope;

pub(crate) use rope::Rope;

use crate::part::Provider;

use draft::Draft;
use fault::Fault;
use node::Node;

/// Reads a document that a provider sent: an event of a stream, or a whole answer. `event` is what the
/// framing calls it.
///
/// # Errors
/// What the provider says went wrong, or what cannot be read.
pub(crate) fn read(draft: &mut Draft, event: Option<&str>, node: &Node<'_>) -> Result<(), Fault> {
    match draft.provider {
        Provider::Anthropic => anthropic::response::read(draft, node),
        Provider::OpenAiChat => openai_chat::response::read(draft, node),
        Provider::OpenAiResponses => openai_responses::response::read(draft, node),
        Provider::Gemini => gemini::response::read(draft, node),
        Provider::Bedrock => bedrock::response::read(draft, event, node),
        Provider::Ollama => ollama::response::read(draft, node),
        Provider::Mistral => mistral::response::read(draft, node),
    }
}

/// Reads the end of the body: what has no other last word than that.
///
/// # Errors
/// [`Fault::CutOff`] where the answer is not complete.
pub(crate) fn read_end(draft: &mut Draft) -> Result<(), Fault> {
    let has_no_last_word = matches!(
        draft.provider,
        Provider::OpenAiChat | Provider::Mistral | Provider::Gemini | Provider::Bedrock
    );
    if has_no_last_word && draft.finish_reason().is_some() {
        return draft.end();
    }
    Err(Fault::CutOff)
}
