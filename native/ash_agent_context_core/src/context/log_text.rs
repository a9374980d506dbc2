//! The texts of a conversation one by one: of messages, of calls, of results.

use std::borrow::Cow;

use crate::log::call::ToolCall;
use crate::log::decision::Decision;
use crate::log::exchange::Entry;
use crate::log::message::{Message, Outcome, Output, Role, Status};
use crate::log::part::{Content, Part};
use crate::value::{json, letters, wording, Value};
use crate::view::masks::{each_in_row, Masks};
use crate::view::recall_handle::RECALL;
use crate::view::texts::{content_text, output_text, part_text};

/// A text with its source.
#[derive(Clone, Copy)]
pub(crate) enum LogText<'a> {
    /// A message, with its position in the iteration.
    Message(usize, &'a Message),
    /// A call, with its slot in the iteration.
    Call(usize, &'a ToolCall),
    /// A person's decision about the call of a slot.
    Decision(usize, &'a ToolCall, &'a Decision),
    /// The result in a slot.
    Result(usize, &'a ToolCall, &'a Outcome),
}

impl<'a> LogText<'a> {
    /// Returns all texts of an entry.
    pub fn of(entry: &'a Entry) -> impl Iterator<Item = Self> {
        let is_said = !content_text(&entry.message.content, None).is_empty();
        let message = is_said.then_some(Self::Message(entry.position, &entry.message));
        let calls = entry.calls().enumerate();
        let calls = calls.flat_map(move |(nth, (call, outcome))| {
            let slot = entry.slots + nth;
            let exchange = entry.exchange.as_deref();
            let decision = exchange.and_then(|exchange| exchange.decision(nth));
            let decision = decision.map(|decision| Self::Decision(slot, call, decision));
            let result = outcome.filter(|outcome| outcome.status != Status::Waiting);
            let result = result.map(|outcome| Self::Result(slot, call, outcome));
            // A late result repeats its call.
            let said = (!entry.message.is_arrival()).then_some(Self::Call(slot, call));
            said.into_iter().chain(decision).chain(result)
        });
        message.into_iter().chain(calls)
    }

    /// Returns the results and decisions of an entry that it did not have before; `None` if one is another or gone.
    pub fn new_of(entry: &'a Entry, before: &Entry) -> Option<Vec<Self>> {
        let mut new = Vec::new();
        let exchange = entry.exchange.as_deref().zip(before.exchange.as_deref());
        for (nth, (call, outcome)) in entry.calls().enumerate() {
            let slot = entry.slots + nth;
            let (now, before) = exchange?;
            match (before.decision(nth), now.decision(nth)) {
                (None, None) => {}
                (None, Some(decision)) => new.push(Self::Decision(slot, call, decision)),
                (Some(before), now) if now != Some(before) => return None,
                _ => {}
            }
            let has_none = |of: Option<&Outcome>| of.is_none_or(|of| of.status == Status::Waiting);
            let result =
                outcome.filter(|outcome| !has_none(Some(outcome)) && has_none(before.slot(nth)));
            new.extend(result.map(|outcome| Self::Result(slot, call, outcome)));
        }
        Some(new)
    }

    /// Returns its words, without masked ones.
    pub fn text(&self, masks: Option<&Masks>) -> Cow<'a, str> {
        match self {
            Self::Message(_, message) => content_text(&message.content, masks),
            Self::Call(_, call) => call_text(call, masks).into(),
            Self::Decision(_, call, decision) => decision_text(call, decision, masks).into(),
            Self::Result(_, _, outcome) => output_text(outcome, masks),
        }
    }

    /// Calls a function with each of its texts, as masks read them.
    pub fn each(&self, mut take: impl FnMut(&str)) {
        match self {
            Self::Message(_, message) => match &message.content {
                Content::Text(text) => take(&letters::utf8(text)),
                content => each_part(content.parts(), take),
            },
            Self::Call(_, call) => each_value(&call.arguments.value, take),
            Self::Decision(_, _, decision) => {
                let edited = decision.edited.iter();
                edited
                    .chain([&decision.reason])
                    .for_each(|value| each_value(value, &mut take));
            }
            Self::Result(_, _, outcome) => match &outcome.output {
                Output::Parts(parts) => each_part(parts, take),
                Output::Value(_) => take(&outcome.words()),
            },
        }
    }

    pub const fn label(&self) -> &'static str {
        match self {
            Self::Message(_, message) => message.role.name(),
            Self::Call(..) => "call",
            Self::Decision(..) => "decision",
            Self::Result(..) => "result",
        }
    }

    /// Returns true for the user's words.
    pub fn is_of_user(&self) -> bool {
        matches!(self, Self::Message(_, message) if message.role == Role::User)
    }

    /// Returns true for a recall and for what it showed, which is a piece of another text.
    pub fn is_recall(&self) -> bool {
        matches!(self, Self::Call(_, call) | Self::Result(_, call, _) if call.name.as_str() == RECALL)
    }

    /// Returns the slot of a result.
    pub const fn slot(&self) -> Option<usize> {
        match self {
            Self::Result(slot, ..) => Some(*slot),
            _ => None,
        }
    }
}

fn each_part(parts: &[Part], mut take: impl FnMut(&str)) {
    each_in_row(parts, &mut take);
    let texts = parts.iter().filter_map(|part| part_text(&part.kind));
    texts.for_each(|text| take(&text));
}

fn each_value(value: &Value, mut take: impl FnMut(&str)) {
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Map(map) => rest.extend(map.iter().flat_map(|(key, value)| [key, value])),
            Value::List(items) | Value::Tuple(items) => rest.extend(items.iter()),
            Value::Nil | Value::Bool(_) => {}
            Value::Binary(bytes) => take(&letters::utf8(bytes)),
            Value::Atom(name) => take(name),
            Value::Int(_) | Value::BigInt(_) | Value::Float(_) => take(&json::write(value)),
        }
    }
}

fn call_text(call: &ToolCall, masks: Option<&Masks>) -> String {
    let masked = masks.map(|masks| masks.call(call));
    let call = masked.as_ref().unwrap_or(call);
    let arguments = match (&call.arguments.json, call.arguments.value.as_str()) {
        (Some(json), _) => Cow::Borrowed(&**json),
        (None, Some(text)) => Cow::Borrowed(text),
        (None, None) => Cow::Owned(json::write(&call.arguments.value)),
    };
    format!("{} {arguments}", call.name.as_str())
}

fn decision_text(call: &ToolCall, decision: &Decision, masks: Option<&Masks>) -> String {
    let masked = |value: &Value| masks.map_or_else(|| value.clone(), |masks| masks.value(value));
    let name = call.name.as_str();
    match (&decision.edited, decision.approved) {
        (Some(edited), _) => {
            let edited = json::write(&masked(edited));
            format!("{name} was approved with other arguments: {edited}")
        }
        (None, true) if decision.answered => format!("{name} was answered"),
        (None, true) => format!("{name} was approved"),
        (None, false) => {
            let reason = wording::reason(&masked(&decision.reason));
            format!("{name} was denied: {reason}")
        }
    }
}
