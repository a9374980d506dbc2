//! Pairs the use of one of a provider's own tools with the result that the provider gave.

use std::collections::HashSet;

use rpds::{HashTrieMapSync, HashTrieSetSync};

use crate::log::call::ToolCall;
use crate::log::part::Part;
use crate::log::provider::Provider;
use crate::value::{Map, Value};

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
    fn of(provider: Provider, id: &str, is_result: bool) -> Self {
        Self {
            key: format!("{}:{id}", provider.name()),
            is_result,
            waits: !is_result,
        }
    }
}

impl Part {
    /// Which pair a provider's block belongs to, if it says so.
    pub(crate) fn half(&self) -> Option<Half> {
        let (provider, data) = self.kind.block()?;
        let (id, is_result) = match provider {
            Provider::Anthropic => anthropic(data)?,
            Provider::OpenAiResponses => return responses(data),
            Provider::Bedrock => by_keys(data, "toolUseId", ["toolUse", "toolResult"])?,
            Provider::Gemini => by_keys(data, "id", ["toolCall", "toolResponse"])
                .or_else(|| by_keys(data, "id", ["executableCode", "codeExecutionResult"]))?,
            _ => return None,
        };
        Some(Half::of(provider, id, is_result))
    }

    /// Returns what a provider takes once in a conversation: the id of an output item, and half a pair.
    pub(crate) fn once_ids(&self) -> Vec<String> {
        let own = || {
            let block = self.kind.block();
            let (provider, data) = block.filter(|(of, _)| *of == Provider::OpenAiResponses)?;
            text(data, "id").map(|id| format!("{} {id}", provider.name()))
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
            Value::Map(caller) => Some(Half::of(provider, text(caller, "tool_id")?, false)),
            _ => None,
        }
    }
}

fn text<'a>(data: &'a Map, key: &str) -> Option<&'a str> {
    let text = data.get_named(key)?.as_name()?;
    (!text.is_empty()).then_some(text)
}

fn anthropic(data: &Map) -> Option<(&str, bool)> {
    let kind = text(data, "type")?;
    if kind.ends_with("_tool_use") {
        return Some((text(data, "id")?, false));
    }
    let is_result = kind.ends_with("_tool_result");
    is_result.then(|| Some((text(data, "tool_use_id")?, true)))?
}

/// The API has more kinds of items than we know: each that names a call may be what an output answers.
fn responses(data: &Map) -> Option<Half> {
    let kind = text(data, "type")?;
    let half = |is_result| {
        Some(Half::of(
            Provider::OpenAiResponses,
            text(data, "call_id")?,
            is_result,
        ))
    };
    match kind {
        "program" | "shell_call" | "tool_search_call" => half(false),
        "program_output"
        | "function_call_output"
        | "custom_tool_call_output"
        | "shell_call_output"
        | "local_shell_call_output"
        | "apply_patch_call_output"
        | "computer_call_output"
        | "tool_search_output" => half(true),
        _ => half(false).map(|half| Half {
            waits: false,
            ..half
        }),
    }
}

fn by_keys<'a>(data: &'a Map, id: &str, keys: [&str; 2]) -> Option<(&'a str, bool)> {
    let half = |key| match data.get_named(key)? {
        Value::Map(half) => text(half, id),
        _ => None,
    };
    let [used, result] = keys;
    match half(used) {
        Some(id) => Some((id, false)),
        None => Some((half(result)?, true)),
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
        let has = |key| data.get_named(key).is_some();
        let is = |kind| text(data, "type") == Some(kind);
        match provider {
            Provider::Gemini if has("executableCode") => uses += 1,
            Provider::Gemini if has("codeExecutionResult") => {}
            Provider::OpenAiResponses if is("tool_search_call") => uses += 1,
            Provider::OpenAiResponses if is("tool_search_output") => {}
            _ => return None,
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
