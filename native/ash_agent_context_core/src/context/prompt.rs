//! The conversation as plain text, for models that take a single text.

use std::fmt::Write as _;

use crate::context::Context;
use crate::log::exchange::MessageRef;
use crate::log::message::{Message, Role};
use crate::value::json;
use crate::value::word::words;
use crate::view::rendering::Shown;
use crate::view::texts::{content_text, output_text};

words! {
    /// The part of the conversation that a prompt has.
    pub enum Prompt {
        /// All of it.
        Full = "full",
        /// The system prompt and the last message of the user: the model's side knows the rest.
        Continuation = "continuation",
        /// The last message of the user, without a heading.
        Message = "message",
    }
}

/// A reason why no request can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unready {
    /// The system prompt is the only message.
    NoMessages,
    /// The last message is the model's.
    LastMessageFromAssistant,
    /// Calls wait for their results.
    PendingToolCalls(Vec<Box<str>>),
}

impl Context {
    /// Returns the view as plain text: sections `[System]`, `[User]`, `[Assistant]` and `[Tool NAME]`, separated by blank
    /// lines.
    ///
    /// # Complexity
    /// O(n) for all of it
    #[must_use]
    pub fn to_prompt(&self, how: Prompt) -> String {
        let mut prompt = String::new();
        if how == Prompt::Full {
            for shown in self.messages() {
                write(shown.see().message(), &mut prompt);
            }
            return prompt;
        }
        let has_system = how == Prompt::Continuation && self.shown_system().is_some();
        if let Some(shown) = self.messages().next().filter(|_| has_system) {
            write(shown.see().message(), &mut prompt);
        }
        let Some(last) = self.last_messages().find(|shown| !is_model(shown.message)) else {
            return prompt;
        };
        match last.see().message() {
            MessageRef::Added(message) if how == Prompt::Message => {
                content_text(&message.content, None).into_owned()
            }
            message => {
                write(message, &mut prompt);
                prompt
            }
        }
    }

    /// Returns the reasons why no request can be made of the view now; none when one can.
    #[must_use]
    pub fn unready(&self) -> Vec<Unready> {
        let pending = self.current().pending_ids();
        let pending = (!pending.is_empty()).then_some(Unready::PendingToolCalls(pending));
        let last = match self.last_messages().next() {
            None => Some(Unready::NoMessages),
            // With calls pending, that is the reason instead.
            Some(last) if is_model(last.message) && pending.is_none() => {
                Some(Unready::LastMessageFromAssistant)
            }
            Some(_) => None,
        };
        last.into_iter().chain(pending).collect()
    }

    /// Returns the messages of the view without the system prompt, newest iteration first, in each newest first.
    fn last_messages(&self) -> impl Iterator<Item = Shown<'_>> {
        let numbers = self.first_number()..=self.current_iteration();
        let starts = numbers.rev().filter(|number| {
            // A summary has the place of its first iteration.
            self.cover(*number)
                .is_none_or(|(first, _)| first == *number)
        });
        starts.flat_map(|number| {
            let stretches = self.stretches(number, number);
            stretches.flat_map(|stretch| stretch.messages().rev())
        })
    }
}

fn is_model(message: MessageRef<'_>) -> bool {
    matches!(message, MessageRef::Added(message) if message.role == Role::Assistant)
}

fn write(message: MessageRef<'_>, prompt: &mut String) {
    match message {
        MessageRef::Added(message) => add_to_prompt(message, prompt),
        MessageRef::Results(calls, exchange) => {
            for (call, outcome) in exchange.answered_calls(calls) {
                let text = output_text(outcome, None);
                let sign = if outcome.is_error() { "Error: " } else { "" };
                let title = format!("Tool {}", call.name.as_str());
                section(&title, sign, &text, prompt);
            }
        }
    }
}

fn add_to_prompt(message: &Message, prompt: &mut String) {
    let mut text = content_text(&message.content, None).into_owned();
    for call in &message.calls {
        let (name, arguments) = (call.name.as_str(), json::write(&call.arguments.value));
        let line = if text.is_empty() { "" } else { "\n" };
        // Writing to a string does not fail.
        let _ = write!(text, "{line}(calls {name} with {arguments})");
    }
    let title = match message.role {
        Role::System => "System",
        Role::User => "User",
        Role::Assistant => "Assistant",
    };
    section(title, "", &text, prompt);
}

fn section(title: &str, sign: &str, text: &str, prompt: &mut String) {
    if text.trim().is_empty() {
        return;
    }
    let gap = if prompt.is_empty() { "" } else { "\n\n" };
    let _ = write!(prompt, "{gap}[{title}]\n{sign}{text}");
}
