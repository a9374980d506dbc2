//! Pairs the use of one of a provider's own tools with the result that the provider gave.

use std::collections::HashSet;

use rpds::{HashTrieMapSync, HashTrieSetSync};

use crate::log::call::ToolCall;
use crate::log::part::Part;
use crate::log::provider::Provider;
use crate::provider::facts::{is_any, named, OwnHalf, Rule};
use crate::value::Value;

/// One half of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Half {
    /// The same for both halves.
    pub key: String,
    /// It is the result.
    pub is_result: bool,
    /// It is a use that its provider refuses without its result.
    pub waits: bool,
}

/// The place of a half.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartPlace {
    /// The number of the iteration.
    pub iteration: u64,
    /// The message's index in the iteration.
    pub entry: usize,
    /// The part's index in the message.
    pub part: usize,
}

/// The pairs whose halves stand in two messages: the provider paused between them, or ran a tool of
/// the application.
#[derive(Debug, Clone, Default)]
pub(crate) struct SplitPairs {
    /// Uses without a result so far.
    open: HashTrieMapSync<String, PartPlace>,
    /// The places of the use and of the result.
    places: HashTrieMapSync<String, [PartPlace; 2]>,
    iterations: HashTrieSetSync<u64>,
}

impl SplitPairs {
    /// Takes down a half. Returns false for a result whose use does not come before it.
    pub fn join(&mut self, half: Half, place: PartPlace) -> bool {
        if !half.is_result {
            self.open.insert_mut(half.key, place);
            return true;
        }
        let Some(used) = self.open.get(&half.key).copied() else {
            return false;
        };
        self.open.remove_mut(&half.key);
        if (used.iteration, used.entry) != (place.iteration, place.entry) {
            self.iterations.insert_mut(used.iteration);
            self.iterations.insert_mut(place.iteration);
            self.places.insert_mut(half.key, [used, place]);
        }
        true
    }

    /// Returns true if no pair stands in two messages, and each has its result.
    pub fn is_empty(&self) -> bool {
        self.iterations.is_empty() && self.open.is_empty()
    }

    /// Returns true if an iteration has a half whose other half is in another message, or nowhere, or a call that such a use
    /// made.
    pub fn meet(&self, iteration: u64) -> bool {
        // Few uses ever stay open.
        let mut open = self.open.values();
        self.iterations.contains(&iteration) || open.any(|place| place.iteration == iteration)
    }

    /// Takes down a call that a use made.
    pub fn join_call(&mut self, program: &Half, iteration: u64) {
        if self.open.contains_key(&program.key) {
            self.iterations.insert_mut(iteration);
        }
    }

    /// Returns the place of a use that has no result.
    pub fn open(&self, half: &Half) -> Option<PartPlace> {
        self.open.get(&half.key).copied()
    }

    /// Returns the places of a pair's halves, if those are in two messages.
    pub fn places(&self, half: &Half) -> Option<[PartPlace; 2]> {
        self.places.get(&half.key).copied()
    }

    /// Returns the place of the other half, if that is in another message.
    pub fn other(&self, half: &Half) -> Option<PartPlace> {
        let [used, result] = self.places(half)?;
        Some(if half.is_result { used } else { result })
    }
}

impl Half {
    fn of(provider: Provider, half: OwnHalf<'_>) -> Self {
        Self {
            key: format!("{}:{}", provider.name(), half.id),
            is_result: half.is_result,
            waits: half.waits,
        }
    }
}

impl Part {
    /// Returns the half that a provider's block is, if it is one.
    pub(crate) fn half(&self) -> Option<Half> {
        let (provider, data) = self.kind.block()?;
        Some(Half::of(provider, (provider.facts().half)(data)?))
    }

    /// Returns the ids that a provider takes once in a conversation: of an output item, and of half a pair.
    pub(crate) fn once_ids(&self) -> Vec<String> {
        let own = || {
            let block = self.kind.block();
            let (provider, data) = block.filter(|(of, _)| of.facts().has(Rule::HasItems))?;
            named(data, "id").map(|id| format!("{} {id}", provider.name()))
        };
        let once = |half: &Half| half.is_result || half.waits;
        let half = self.half().filter(once).map(|half| {
            let what = if half.is_result { "result" } else { "use" };
            format!("{what}:{}", half.key)
        });
        let id = self.item_id().or_else(own);
        id.into_iter().chain(half).collect()
    }
}

impl ToolCall {
    /// Returns the use of a provider's tool whose program made the call: it waits for the call's result.
    pub(crate) fn program(&self) -> Option<Half> {
        let metadata = self.provider_metadata.as_ref();
        let provider = Provider::of(metadata)?;
        match metadata?.get_named("caller")? {
            Value::Map(caller) => {
                let id = named(caller, "tool_id")?;
                Some(Half::of(provider, OwnHalf::new(id, false)))
            }
            _ => None,
        }
    }
}

/// Returns the key of each part's pair. Halves that name none belong to their neighbours.
fn keys(parts: &[Part]) -> Vec<Option<String>> {
    let mut uses = 0;
    let key = |part: &Part| {
        if let Some(half) = part.half() {
            return Some(half.key).filter(|_| !part.withheld);
        }
        let (provider, data) = part.kind.block()?;
        let [used, result] = provider.facts().nameless_halves?;
        if is_any(data, &[used]) {
            uses += 1;
        } else if !is_any(data, &[result]) {
            return None;
        }
        Some(format!("#{uses}"))
    };
    parts.iter().map(key).collect()
}

/// Returns which parts stay when some are taken away: nothing stays of a pair that loses a half.
pub(crate) fn whole_pairs(parts: &[Part], stays: &[bool]) -> Vec<bool> {
    let keys = keys(parts);
    let lost = keys.iter().zip(stays);
    let lost = lost.filter_map(|(key, stays)| key.as_ref().filter(|_| !stays));
    let lost: HashSet<&String> = lost.collect();
    if lost.is_empty() {
        return stays.to_vec();
    }
    let is_whole = |(key, stays): (&Option<String>, &bool)| {
        *stays && key.as_ref().is_none_or(|key| !lost.contains(key))
    };
    keys.iter().zip(stays).map(is_whole).collect()
}
