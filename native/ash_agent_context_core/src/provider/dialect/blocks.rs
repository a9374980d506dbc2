//! Messages that are lists of blocks, with calls and results among them.

use crate::log::call::ToolCall;
use crate::log::message::{Output, Status};
use crate::log::part::{Content, Part};
use crate::log::provider::Provider;
use crate::provider::facts::Rule;
use crate::provider::foreign::order_calls;
use crate::provider::listener::Listener;
use crate::provider::order::{calls_behind, in_order};
use crate::value::Value;

/// The blocks of an assistant message.
#[derive(Default)]
pub struct ModelBlocks {
    parts: Vec<Part>,
    /// Each with the number of parts before it.
    calls: Vec<(usize, ToolCall)>,
}

impl ModelBlocks {
    pub fn part(&mut self, part: Part) {
        self.parts.push(part);
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub fn call(&mut self, call: ToolCall) {
        self.calls.push((self.parts.len(), call));
    }

    /// Adds the message. A text beside calls always has the form of a block. The provider refuses a part that `leads` after a
    /// call, see [`calls_behind`].
    pub fn join(self, provider: Provider, leads: impl Fn(&Part) -> bool, history: &mut Listener) {
        let (content, calls) = match self.calls.is_empty() && !history.facts().has(Rule::ListsOnly)
        {
            true => (Content::Parts(self.parts.into_boxed_slice()), Vec::new()),
            false => order_calls(provider, self.parts, self.calls),
        };
        let thinks = |part: &Part| part.kind.is_thinking();
        let (_, moved) = calls_behind(&in_order(&content, &calls), thinks, leads);
        if !moved.is_empty() {
            history.mark_refused();
        }
        history.assistant(content, calls, None);
    }
}

/// Returns the output of a result. An error that is nothing but texts is kept as text.
pub fn output(content: Content, status: Status) -> Output {
    let parts = match content {
        Content::Text(text) => return Output::Value(Value::Binary(text)),
        Content::Parts(parts) if !parts.is_empty() => parts,
        _ => return Output::Value(Value::Nil),
    };
    if status == Status::Ok {
        return Output::Parts(parts);
    }
    let mut words: Vec<u8> = Vec::new();
    for text in parts.iter().filter_map(|part| part.kind.text()) {
        if !words.is_empty() {
            words.push(b'\n');
        }
        words.extend_from_slice(text);
    }
    Output::Value(Value::Binary(words.into_boxed_slice()))
}
