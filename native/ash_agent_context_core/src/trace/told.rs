//! Conversations to look at, and how they look.

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

/// A conversation to look at: a branch or a sub-agent's among others.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// Says what it is called.
    pub name: &'a str,
    /// The id that its sub-agents know it by.
    pub id: &'a str,
    /// The id of the conversation that it works for, where its own metadata does not tell.
    pub parent: Option<&'a str>,
    /// The position of the branch that it was made from, which stands before it.
    pub origin: Option<usize>,
    /// Says whether it is what a reader wants to see first.
    pub is_active: bool,
    /// Holds what was said.
    pub context: &'a Context,
}

/// Conversations to look at, and how.
#[derive(Debug)]
pub struct Trace<'a> {
    pub(super) told: Vec<Told<'a>>,
    pub(super) masks: Option<Arc<Masks>>,
}

/// Sub-agents within each other that a document has; a run allows three unless it is told otherwise.
pub(super) const NESTED: usize = 32;

/// The call of another conversation that one was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Within<'a> {
    pub conversation: usize,
    pub call: Option<&'a str>,
}

impl<'a> Trace<'a> {
    /// A trace of conversations, one at least. Text that the view of any of them masks is masked in
    /// all of them, unless `masked` is false.
    ///
    /// # Errors
    /// [`Error::InvalidPattern`] when they have too many masks together.
    pub fn new(told: Vec<Told<'a>>, masked: bool) -> Result<Self, Error> {
        let masks = match masked {
            true => all_masks(&told)?,
            false => None,
        };
        Ok(Self { told, masks })
    }

    /// How much it takes to write down all of it.
    #[must_use]
    pub fn cost(contexts: &[&Context]) -> Cost {
        let cost = |context: &&Context| context.recall_cost();
        let sum = contexts.iter().map(cost).fold(Cost::default(), Cost::plus);
        // Masks of several views become those of all.
        let views = contexts.iter().filter_map(|context| context.view());
        let masked = views.filter(|view| view.masks().is_some()).count();
        let covered = contexts.iter().map(|context| context.masks_cost());
        match masked {
            0 => sum,
            1 => covered.fold(sum, Cost::plus),
            several => sum.plus(Masks::compile_cost(several)),
        }
    }

    /// The requests for an iteration that failed, as they look.
    pub(super) fn failures(&self, iteration: &Iteration) -> Vec<FailedRequest> {
        let mut failures: Vec<_> = iteration.failures.iter().cloned().collect();
        if let Some(masks) = self.masks.as_deref() {
            for failure in &mut failures {
                if let Some(said) = failure.server_words_mut() {
                    masks.name(said);
                }
            }
        }
        failures
    }

    /// How what was said looks.
    pub(super) fn look(&self) -> Rendering<'_> {
        Rendering {
            masks: self.masks.as_deref(),
            ..Rendering::PLAIN
        }
    }

    /// How a model saw an iteration by a view, as far as it may be shown. The masks are those in force.
    pub(super) fn model_look<'b>(
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

    /// Returns what a conversation is called in a document with all of them; several branches have one id.
    pub(super) fn document_id(&self, at: usize) -> String {
        let id_of = |told: &Told<'_>| told.context.id().to_owned();
        let id = self.told.get(at).map(id_of).unwrap_or_default();
        let before = self.told.iter().take(at);
        match before.filter(|told| told.context.id() == id).count() {
            0 => id,
            before => format!("{id}#{before}"),
        }
    }

    /// Which conversation each one was made for.
    pub(super) fn within(&self) -> Vec<Option<Within<'a>>> {
        let mut known: HashMap<&str, Vec<usize>> = HashMap::new();
        for (position, told) in self.told.iter().enumerate() {
            known.entry(told.id).or_default().push(position);
        }
        let found = self.told.iter().enumerate().map(|(position, told)| {
            let call = note(told.context, "tool_call_id");
            let parent = told.parent.or_else(|| note(told.context, "parent_id"));
            let parents = known.get(parent?)?;
            // Branches of one chat have one id: the one with the call is meant.
            let has_call = |one: &&usize| {
                let parent = self.told.get(**one).map(|told| told.context);
                call.is_some_and(|id| parent.is_some_and(|of| of.tool_call_status(id).is_some()))
            };
            let is_active = |one: &&usize| self.told.get(**one).is_some_and(|told| told.is_active);
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

/// Returns what a run has noted about the conversation that it works for.
fn note<'a>(context: &'a Context, key: &str) -> Option<&'a str> {
    let mut notes = context.metadata().iter();
    let (_, value) = notes.find(|(name, _)| name.as_name() == Some(key))?;
    value.as_str()
}

/// Conversations that claim to be made for each other are nobody's.
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

/// The masks of all views together.
fn all_masks(told: &[Told<'_>]) -> Result<Option<Arc<Masks>>, Error> {
    let views = told.iter().filter_map(|told| told.context.view());
    let mut masks = views.filter_map(|view| view.masks.as_ref());
    let Some(first) = masks.next() else {
        return Ok(None);
    };
    let others: Vec<_> = masks.filter(|other| *other != first).collect();
    if others.is_empty() {
        return Ok(Some(first.clone()));
    }
    let mut pairs: Vec<(Box<str>, Box<str>)> = Vec::new();
    for (pattern, replacement) in std::iter::once(first)
        .chain(others)
        .flat_map(|of| of.iter())
    {
        let pair = (pattern.into(), replacement.into());
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    Ok(Some(Arc::new(Masks::new(pairs)?)))
}

/// A message and the slots of its calls, as they look.
pub(super) struct Looked<'a> {
    entry: &'a Entry,
    message: Option<Message>,
    exchange: Option<Exchange>,
}

impl<'a> Looked<'a> {
    pub fn new(entry: &'a Entry, look: Rendering<'_>) -> Self {
        let exchange = entry.exchange.as_deref();
        let mut message = look.message(&entry.message);
        let reply = message.as_mut().and_then(|shown| shown.reply.as_mut());
        if let Some((reply, masks)) = reply.zip(look.masks) {
            reply.interrupted = reply.interrupted.as_ref().map(|why| masks.value(why));
        }
        Self {
            entry,
            message,
            exchange: exchange.and_then(|exchange| look.exchange(&entry.message.calls, exchange)),
        }
    }

    pub fn message(&self) -> &Message {
        self.message.as_ref().unwrap_or(&self.entry.message)
    }

    pub fn exchange(&self) -> Option<&Exchange> {
        self.exchange.as_ref().or(self.entry.exchange.as_deref())
    }
}
