//! Pairs the use of one of a provider's own tools with the result that the provider gave.

use std::collections::HashSet;

use rpds::{HashTrieMapSync, HashTrieSetSync};

use crate::log::call::ToolCall;
use crate::log::part::Part;
use crate::log::provider::Provider;
use crate::provider::facts::{is_any, named, OwnHalf};
use crate::value::Value;

/// One half of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Half {
    /// Holds what both halves have.
    pub key: String,
    /// Says whether it is the result.
    pub is_result: bool,
    /// Says whether it is a use that its provider refuses without its result.
    pub waits: bool,
}

/// Where a half stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartPlace {
    /// The number of the iteration.
    pub iteration: u64,
    /// Its message among those of the iteration, from 0.
    pub entry: usize,
    /// Its part of the message, from 0.
    pub part: usize,
}

/// The pairs whose halves stand in two messages: the provider paused between them, or ran a tool of
/// the application.
#[derive(Debug, Clone, Default)]
pub(crate) struct SplitPairs {
    /// Uses without a result so far.
    open: HashTrieMapSync<String, PartPlace>,
    /// The use and the result.
    places: HashTrieMapSync<String, [PartPlace; 2]>,
    iterations: HashTrieSetSync<u64>,
}

impl SplitPairs {
    /// Takes down a half; `false` for a result whose use does not come before it.
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

    /// Returns whether no pair stands in two messages, and each has its result.
    pub fn is_empty(&self) -> bool {
        self.iterations.is_empty() && self.open.is_empty()
    }

    /// Returns whether an iteration has a half whose other half stands in another message, or nowhere, or a call that
    /// such a use made.
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

    /// Where the use of a pair stands that has no result.
    pub fn open(&self, half: &Half) -> Option<PartPlace> {
        self.open.get(&half.key).copied()
    }

    /// Where the halves of a pair stand, if that is in two messages.
    pub fn places(&self, half: &Half) -> Option<[PartPlace; 2]> {
        self.places.get(&half.key).copied()
    }

    /// Where the other half stands, if that is in another message.
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
    /// Which pair a provider's block belongs to, if it says so.
    pub(crate) fn half(&self) -> Option<Half> {
        let (provider, data) = self.kind.block()?;
        Some(Half::of(provider, (provider.facts().half)(data)?))
    }

    /// Returns what a provider takes once in a conversation: the id of an output item, and half a pair.
    pub(crate) fn once_ids(&self) -> Vec<String> {
        let own = || {
            let block = self.kind.block();
            let (provider, data) = block.filter(|(of, _)| of.facts().has_items)?;
            named(data, "id").map(|id| format!("{} {id}", provider.name()))
        };
        let once = |half: &Half| half.is_result || half.waits;
        let half = self.half().filter(once).map(|half| {
            let what = if half.is_result { "result" } else { "use" };
            format!("{what}:{}", half.key)
        });
        self.item_id()
            .or_else(own)
            .into_iter()
            .chain(half)
            .collect()
    }
}

impl ToolCall {
    /// The use of a provider's tool whose program made the call: it waits for the call's result.
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

/// The pair of each part. Halves that name none belong to their neighbours.
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

/// Which parts stay when some are taken away: nothing stays of a pair that loses a half.
pub(crate) fn whole_pairs(parts: &[Part], stays: &[bool]) -> Vec<bool> {
    let keys = keys(parts);
    let lost: HashSet<&String> = keys
        .iter()
        .zip(stays)
        .filter_map(|(key, stays)| key.as_ref().filter(|_| !stays))
        .collect();
    if lost.is_empty() {
        return stays.to_vec();
    }
    let is_whole = |(key, stays): (&Option<String>, &bool)| {
        *stays && key.as_ref().is_none_or(|key| !lost.contains(key))
    };
    keys.iter().zip(stays).map(is_whole).collect()
}
