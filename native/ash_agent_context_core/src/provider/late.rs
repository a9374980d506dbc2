//! A result that arrives late, as providers without late outputs get it: a message of its own in a frame, which names the call.
//! Others get the output of a call that stays open.

use std::borrow::Cow;

use crate::log::call::ToolCall;
use crate::log::exchange::{Entry, Exchange};
use crate::log::kind::CallKind;
use crate::log::message::{Message, Outcome, Output, Role, Status};
use crate::log::part::{Content, Part};
use crate::log::provider::Provider;
use crate::provider::facts::Rule;
use crate::provider::frame::{find_false, Escapes, ESCAPED};
use crate::provider::writer::Writer;

/// Returns whether a provider takes the result of a call in any later request, while the call stays open: the call itself says
/// so, and no program of the provider's waits for it.
pub(crate) fn stays_open(call: &ToolCall, provider: Provider) -> bool {
    provider.facts().has(Rule::LateOutputs)
        && matches!(call.kind, CallKind::Function | CallKind::Custom)
        && call.is_async()
        && call.came_from(provider)
        && call.program().is_none()
}

/// Returns the slot in front of whose output a late result stands, if its call is open and one of this message waited for it.
pub(crate) fn slot_before(late: &Entry, message: &Message, provider: Provider) -> Option<usize> {
    let exchange = late.exchange.as_deref()?;
    exchange.late_place()?;
    let waited = exchange.slot(0)?.arrived()?.awaited_by.as_deref()?;
    let is_open = stays_open(late.message.calls.first()?, provider);
    message.find_call(waited).filter(|_| is_open)
}

/// Returns the results of these slots without those that stay open.
pub(crate) fn without_open<'e>(
    calls: &[ToolCall],
    exchange: &'e Exchange,
    (from, to): (usize, usize),
    provider: Provider,
) -> Cow<'e, Exchange> {
    let is_open = |slot: usize, outcome: &Outcome| {
        let call = calls.get(slot);
        let is_in = (from..to).contains(&slot);
        let is_open = outcome.status == Status::Waiting;
        !is_in || is_open && call.is_some_and(|call| stays_open(call, provider))
    };
    let mut slots = exchange.slots().enumerate();
    let is_part = from > 0 || to < exchange.count_calls();
    if !(exchange.has_waited || is_part)
        || !slots.any(|(slot, outcome)| outcome.is_some_and(|of| is_open(slot, of)))
    {
        return Cow::Borrowed(exchange);
    }
    let mut other = Exchange::new(exchange.count_calls());
    for (slot, outcome) in exchange.outcomes().enumerate() {
        let Some(outcome) = outcome.filter(|outcome| !is_open(slot, outcome)) else {
            continue;
        };
        other.fill(slot, outcome.clone());
    }
    other.metadata.clone_from(&exchange.metadata);
    other.decisions.clone_from(&exchange.decisions);
    Cow::Owned(other)
}

/// Returns the message in which a late result stands.
pub(crate) fn frame(call: &ToolCall, outcome: &Outcome, out: &mut Writer<'_>) -> Message {
    let (id, name) = (out.id(call), out.name(call));
    let open = format!(
        "<late_result call=\"{}\" tool=\"{}\" status=\"{}\">",
        attribute(&id),
        attribute(&name),
        outcome.status.name()
    );
    const CLOSE: &str = "</late_result>";
    let content = match &outcome.output {
        Output::Value(_) => {
            let text = outcome.words();
            Content::Text(format!("{open}\n{text}\n{CLOSE}").into_bytes().into())
        }
        Output::Parts(parts) => {
            let text = |text: &str| Part::text(text.as_bytes().into());
            // Some blocks of the provider's own may only be in results.
            let inside = parts.iter().filter_map(|part| match part.kind.block() {
                Some(_) => out.words(part).map(|words| text(&words)),
                None => Some(part.clone()),
            });
            let inside: Vec<_> = inside.collect();
            let parts = std::iter::once(text(&open)).chain(inside);
            Content::Parts(parts.chain([text(CLOSE)]).collect())
        }
    };
    out.escapes = Escapes::Inside;
    out.result = Some((call.aliases.short.text(), 0));
    Message::new(Role::User, content, Box::default(), None)
}

/// What a frame says.
pub(crate) struct Frame<'t> {
    pub call: &'t str,
    tool: &'t str,
    pub status: Status,
    pub text: &'t str,
}

impl Frame<'_> {
    pub fn names(&self, tool: &str) -> bool {
        attribute(tool) == self.tool
    }
}

/// Reads a text that is a frame and nothing else, as [`frame`] writes it.
pub(crate) fn read_frame(text: &str) -> Option<Frame<'_>> {
    let (head, text) = text
        .strip_prefix("<late_result call=\"")?
        .split_once("\">\n")?;
    let (call, head) = head.split_once("\" tool=\"")?;
    let (tool, status) = head.split_once("\" status=\"")?;
    let text = text.strip_suffix("\n</late_result>")?;
    let is_ours = attribute(call) == call && find_false(text.as_bytes(), Escapes::All).is_empty();
    let status = Status::from_name(status).filter(|status| *status != Status::Waiting)?;
    is_ours.then_some(Frame {
        call,
        tool,
        status,
        text,
    })
}

fn attribute(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => written.push_str("&amp;"),
            '<' => written.push_str(ESCAPED),
            '>' => written.push_str("&gt;"),
            '"' => written.push_str("&quot;"),
            letter if letter.is_control() => written.push(' '),
            letter => written.push(letter),
        }
    }
    written
}
