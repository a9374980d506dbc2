//! The conversation as plain text, for models that take a single text.

use std::fmt::Write as _;

use crate::context::Context;
use crate::iteration::MessageRef;
use crate::message::{Message, Output, Role};
use crate::part::{Content, Part, PartKind};
use crate::request::words_of;

impl Context {
    /// Blocks `[System]`, `[User]`, `[Assistant]` and `[Tool NAME]`, separated by blank lines.
    ///
    /// # Complexity
    /// O(n)
    #[must_use]
    pub fn to_prompt(&self) -> String {
        let mut prompt = String::new();
        for message in self.messages() {
            match message {
                MessageRef::Added(message) => added(message, &mut prompt),
                MessageRef::Results(calls, exchange) => {
                    for (call, outcome) in calls.iter().zip(exchange.slots()) {
                        if let Some(outcome) = outcome {
                            let text = match &outcome.output {
                                Output::Parts(parts) => parts_text(parts),
                                Output::Value(_) => lossy(outcome.text().unwrap_or_default()),
                            };
                            let sign = if outcome.is_error() { "Error: " } else { "" };
                            block(
                                &format!("Tool {}", call.name.as_str()),
                                sign,
                                &text,
                                &mut prompt,
                            );
                        }
                    }
                }
            }
        }
        prompt
    }
}

fn added(message: &Message, prompt: &mut String) {
    let mut text = match &message.content {
        Content::None => String::new(),
        Content::Text(bytes) => lossy(bytes),
        Content::Parts(parts) => parts_text(parts),
    };
    for call in &message.calls {
        let arguments = crate::json::write(&call.arguments.value);
        let line = if text.is_empty() { "" } else { "\n" };
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{line}(calls {} with {arguments})",
            call.name.as_str()
        );
    }
    let title = match message.role {
        Role::System => "System",
        Role::User => "User",
        Role::Assistant => "Assistant",
    };
    block(title, "", &text, prompt);
}

fn block(title: &str, sign: &str, text: &str, prompt: &mut String) {
    if text.trim().is_empty() {
        return;
    }
    let gap = if prompt.is_empty() { "" } else { "\n\n" };
    let _ = write!(prompt, "{gap}[{title}]\n{sign}{text}");
}

fn parts_text(parts: &[Part]) -> String {
    let texts: Vec<String> = parts
        .iter()
        .filter_map(|part| match &part.kind {
            PartKind::Text(bytes) => Some(lossy(bytes)),
            kind => words_of(kind),
        })
        .collect();
    texts.join("\n")
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
