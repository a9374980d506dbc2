//! The conversations of a trace, and how they are shown.

use std::collections::HashMap;
use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::log::exchange::{Entry, Exchange};
use crate::log::failed::FailedRequest;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::value::cost::Cost;
use crate::value::Value;
use crate::view::masks::Masks;
use crate::view::rendering::Rendering;
use crate::view::View;

/// A conversation of a trace, which may be a branch or a sub-agent's.
#[derive(Debug, Clone, Copy)]
pub struct ShownConversation<'a> {
    /// Its name for the reader.
    pub name: &'a str,
    /// The id that its sub-agents know it by.
    pub id: &'a str,
    /// The id of the conversation that it works for, if its own metadata does not have it.
    pub parent: Option<&'a str>,
    /// The position of the branch that it was made from, which is before it in the list.
    pub origin: Option<usize>,
    /// True if the reader sees it first.
    pub is_active: bool,
    /// Its messages.
    pub context: &'a Context,
}

/// A trace: conversations to show, and how.
#[derive(Debug)]
pub struct Trace<'a> {
    pub(super) conversations: Vec<ShownConversation<'a>>,
    pub(super) masks: Option<Arc<Masks>>,
}

/// The most levels of sub-agents in a document. A run allows three by default.
#[cfg(feature = "otlp")]
pub(super) const NESTED: usize = 32;

/// The call that a conversation was made for, in another conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Within<'a> {
    pub conversation: usize,
    pub call: Option<&'a str>,
}

impl<'a> Trace<'a> {
    /// Returns a trace of at least one conversation. Text that the view of any of them masks is masked in all of them, unless
    /// `masked` is false.
    ///
    /// # Errors
    /// [`Error::InvalidPattern`] when they have too many masks together.
    pub fn new(conversations: Vec<ShownConversation<'a>>, masked: bool) -> Result<Self, Error> {
        let masks = match masked {
            true => all_masks(&conversations)?,
            false => None,
        };
        Ok(Self {
            conversations,
            masks,
        })
    }

    /// Returns the cost of writing all of it.
    #[must_use]
    pub fn cost(contexts: &[&Context]) -> Cost {
        let cost = |context: &&Context| context.recall_cost();
        let sum = contexts.iter().map(cost).fold(Cost::default(), Cost::plus);
        // The masks of several views become those of all.
        let views = contexts.iter().filter_map(|context| context.view());
        let masked = views.filter(|view| view.masks().is_some()).count();
        let covered = contexts.iter().map(|context| context.masks_cost());
        match masked {
            0 => sum,
            1 => covered.fold(sum, Cost::plus),
            several => sum.plus(Masks::compile_cost(several)),
        }
    }

    /// Returns the failed requests of an iteration, with masks applied.
    pub(super) fn failures(&self, iteration: &Iteration) -> Vec<FailedRequest> {
        let masks = self.masks.as_deref();
        let failures = iteration.failures.iter();
        failures.map(|of| Masks::failure(masks, of)).collect()
    }

    /// Returns the rendering of the log, with masks applied.
    pub(super) fn rendering(&self) -> Rendering<'_> {
        Rendering {
            masks: self.masks.as_deref(),
            ..Rendering::PLAIN
        }
    }

    /// Returns the rendering by which a model saw an iteration in a view, with the masks of now.
    pub(super) fn model_rendering<'b>(
        &'b self,
        context: &'b Context,
        view: &'b View,
        number: u64,
    ) -> Rendering<'b> {
        let in_force = context.view().and_then(View::masks);
        Rendering {
            masks: self.masks.as_deref().or(in_force),
            ..view.rendering(number)
        }
    }

    pub(super) fn mask_value(&self, value: &Value) -> Value {
        match &self.masks {
            Some(masks) => masks.value(value),
            None => value.clone(),
        }
    }

    /// Returns the name of a conversation in a document with all of them, since branches share an id.
    #[cfg(feature = "otlp")]
    pub(super) fn document_id(&self, at: usize) -> String {
        let id_of = |shown: &ShownConversation<'_>| shown.context.id().to_owned();
        let id = self.conversations.get(at).map(id_of).unwrap_or_default();
        let before = self.conversations.iter().take(at);
        match before.filter(|shown| shown.context.id() == id).count() {
            0 => id,
            before => format!("{id}#{before}"),
        }
    }

    /// Returns the call that each conversation was made for.
    pub(super) fn within(&self) -> Vec<Option<Within<'a>>> {
        let mut known: HashMap<&str, Vec<usize>> = HashMap::new();
        for (position, shown) in self.conversations.iter().enumerate() {
            known.entry(shown.id).or_default().push(position);
        }
        let found = self
            .conversations
            .iter()
            .enumerate()
            .map(|(position, shown)| {
                let call = note(shown.context, "tool_call_id");
                let parent = shown.parent.or_else(|| note(shown.context, "parent_id"));
                let parents = known.get(parent?)?;
                // The branches of a chat share an id; the one with the call is the right one.
                let has_call = |one: &&usize| {
                    let parent = self.conversations.get(**one).map(|shown| shown.context);
                    call.is_some_and(|id| {
                        parent.is_some_and(|of| of.tool_call_status(id).is_some())
                    })
                };
                let is_active = |one: &&usize| {
                    self.conversations
                        .get(**one)
                        .is_some_and(|shown| shown.is_active)
                };
                let found = parents.iter().find(has_call);
                let found = found.or_else(|| parents.iter().find(is_active));
                let conversation = found.or_else(|| parents.first())?;
                (*conversation != position).then_some(Within {
                    conversation: *conversation,
                    call,
                })
            });
        without_circles(found.collect())
    }
}

/// Returns what a run noted about the conversation that it works for.
fn note<'a>(context: &'a Context, key: &str) -> Option<&'a str> {
    let mut notes = context.metadata().iter();
    let (_, value) = notes.find(|(name, _)| name.as_name() == Some(key))?;
    value.as_str()
}

/// Conversations that claim to be made for each other are made for none.
fn without_circles<'a>(mut within: Vec<Option<Within<'a>>>) -> Vec<Option<Within<'a>>> {
    for start in 0..within.len() {
        let mut at = start;
        for _ in 0..=within.len() {
            match within.get(at).copied().flatten() {
                Some(next) => at = next.conversation,
                None => break,
            }
            if at == start {
                if let Some(place) = within.get_mut(start) {
                    *place = None;
                }
            }
        }
    }
    within
}

/// Returns the masks of all views together.
fn all_masks(shown: &[ShownConversation<'_>]) -> Result<Option<Arc<Masks>>, Error> {
    let views = shown.iter().filter_map(|of| of.context.view());
    let mut masks = views.filter_map(|view| view.masks.as_ref());
    let Some(first) = masks.next() else {
        return Ok(None);
    };
    let mut others = masks.filter(|other| *other != first).peekable();
    if others.peek().is_none() {
        return Ok(Some(first.clone()));
    }
    let mut pairs: Vec<(Box<str>, Box<str>)> = Vec::new();
    let all = std::iter::once(first).chain(others);
    for (pattern, replacement) in all.flat_map(|of| of.iter()) {
        let pair = (pattern.into(), replacement.into());
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    Ok(Some(Arc::new(Masks::new(pairs)?)))
}

/// A message and the slots of its calls, with masks applied.
pub(super) struct MaskedEntry<'a> {
    entry: &'a Entry,
    message: Option<Message>,
    exchange: Option<Exchange>,
}

impl<'a> MaskedEntry<'a> {
    pub fn new(entry: &'a Entry, rendering: Rendering<'_>) -> Self {
        let exchange = entry.exchange.as_deref();
        let mut message = rendering.message(&entry.message);
        let reply = message.as_mut().and_then(|shown| shown.reply.as_mut());
        if let Some((reply, masks)) = reply.zip(rendering.masks) {
            reply.interrupted = reply.interrupted.as_ref().map(|why| masks.value(why));
        }
        Self {
            entry,
            message,
            exchange: exchange
                .and_then(|exchange| rendering.exchange(&entry.message.calls, exchange)),
        }
    }

    pub fn message(&self) -> &Message {
        self.message.as_ref().unwrap_or(&self.entry.message)
    }

    pub fn exchange(&self) -> Option<&Exchange> {
        self.exchange.as_ref().or(self.entry.exchange.as_deref())
    }
}
