//! Messages that are lists of blocks, with calls and results among them.

use crate::log::call::ToolCall;
use crate::log::message::{Output, Status};
use crate::log::part::{Content, Part, PartKind};
use crate::provider::foreign::plain_content;
use crate::provider::listener::{is_said, Listener};
use crate::value::Value;

/// Blocks of an assistant message.
#[derive(Default)]
pub struct Said {
    parts: Vec<Part>,
    calls: Vec<ToolCall>,
    /// The call before something else.
    moved: Option<Box<str>>,
}

impl Said {
    pub fn part(&mut self, part: Part) {
        if let (true, Some(call)) = (is_said(&part), self.calls.last()) {
            self.moved.get_or_insert_with(|| call.id.clone());
        }
        self.parts.push(part);
    }

    pub fn call(&mut self, call: ToolCall) {
        self.calls.push(call);
    }

    /// Adds the message. A text beside calls has no other form than that of a block.
    pub fn join(self, history: &mut Listener) {
        if let Some(id) = self.moved {
            history.call_moved(&id);
        }
        let content = if self.calls.is_empty() && !history.rules().lists_only {
            Content::Parts(self.parts.into_boxed_slice())
        } else {
            plain_content(self.parts)
        };
        history.assistant(content, self.calls, None);
    }
}

/// What a result gave. An error that is nothing but texts is their words.
pub fn output(content: Content, status: Status) -> Output {
    let parts = match content {
        Content::None => return Output::Value(Value::Nil),
        Content::Text(text) => return Output::Value(Value::Binary(text)),
        Content::Parts(parts) if parts.is_empty() => return Output::Value(Value::Nil),
        Content::Parts(parts) => parts,
    };
    if status == Status::Ok {
        return Output::Parts(parts);
    }
    let mut words: Vec<u8> = Vec::new();
    for part in &*parts {
        if let PartKind::Text(text) = &part.kind {
            if !words.is_empty() {
                words.push(b'\n');
            }
            words.extend_from_slice(text);
        }
    }
    Output::Value(Value::Binary(words.into_boxed_slice()))
}
