//! Ids of tool calls, and the aliases that providers get who cannot take them.
//!
//! An alias is given when the call joins the conversation and depends on what came before it
//! alone: so a request's bytes never change unexpectedly. Aliases and ids share one name
//! space, in which no two different calls meet, whatever ids a model makes up.

use std::sync::Arc;

use rpds::{HashTrieMapSync, HashTrieSetSync};
use sha2::{Digest, Sha256};

use crate::log::alias::{Aliases, Short};
use crate::log::call::ToolCall;
use crate::log::exchange::Exchange;
use crate::log::kind::CallKind;
use crate::log::media::Media;
use crate::log::message::Message;
use crate::log::part::{item_id, Class, FileNumber, Part};
use crate::log::provider::Provider;
use crate::log::reply::Reply;
use crate::log::served::{PartPlace, SplitPairs};
use crate::provider::facts::Rule;
use crate::value::letters::{hex, is_plain, plain_stem};
use crate::value::steps;

/// The longest id that every provider takes (older OpenAI models and Azure: 40).
const SAFE_LENGTH: usize = 40;

/// An alias keeps so many letters of an id; the rest is for the suffix.
const STEM_LENGTH: usize = 24;

/// Children of a node of the index. An insertion copies the nodes on its way: at 10,000 ids an append
/// takes 1.5 us with 8 of them, 2.2 us with 4, 1.8 us with 16 and 2.5 us with the default 64.
const DEGREE: u8 = 8;

/// Ids that were taken last are kept in a list up to this number. Adding them to the index at once shares the nodes that
/// insertions copy.
const RECENT: u8 = 8;

/// All ids a conversation has used. Most conversations have few of them, and nothing rare.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids {
    recent: Option<Arc<Link>>,
    index: Option<HashTrieMapSync<Box<str>, Taken>>,
    rare: Option<Arc<Rare>>,
    calls: u64,
    /// Some id has the form of a short alias, so those have to be looked up.
    has_short_like: bool,
}

/// One of the ids that were taken last.
#[derive(Debug)]
struct Link {
    id: Box<str>,
    taken: Taken,
    before: Option<Arc<Self>>,
    /// Length of the list from here.
    length: u8,
}

/// The parts that few conversations need.
#[derive(Debug, Clone)]
struct Rare {
    /// The number that the next alias of a stem tries first.
    next: HashTrieMapSync<Box<str>, u64>,
    /// Ids that providers gave to items, some of which take each of them once.
    items: HashTrieSetSync<Box<str>>,
    pairs: SplitPairs,
    /// The last container that a provider ran its tools in.
    container: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy)]
enum Taken {
    Original,
    Alias,
}

impl Default for Rare {
    fn default() -> Self {
        Self {
            next: HashTrieMapSync::new_sync_with_degree(DEGREE),
            items: HashTrieSetSync::new_sync(),
            pairs: SplitPairs::default(),
            container: None,
        }
    }
}

impl Ids {
    /// Returns the pairs whose halves stand in two messages.
    pub fn pairs(&self) -> Option<&SplitPairs> {
        self.rare.as_deref().map(|rare| &rare.pairs)
    }

    /// Returns the last container that a provider ran its tools in.
    pub fn container(&self) -> Option<&str> {
        self.rare.as_deref()?.container.as_deref()
    }

    /// Takes down the container of an answer.
    pub fn join_container(&mut self, message: &Message) {
        let container = message.reply.as_deref().and_then(Reply::container);
        if let Some(id) = container.filter(|id| Some(*id) != self.container()) {
            self.rare().container = Some(id.into());
        }
    }

    fn rare(&mut self) -> &mut Rare {
        Arc::make_mut(self.rare.get_or_insert_default())
    }

    fn has_item(&self, id: &str) -> bool {
        let rare = self.rare.as_deref();
        rare.is_some_and(|rare| rare.items.contains(id))
    }

    fn next(&self, stem: &str) -> u64 {
        let next = self.rare.as_deref().and_then(|rare| rare.next.get(stem));
        next.copied().unwrap_or(2)
    }

    fn recent(&self) -> impl Iterator<Item = &Link> {
        std::iter::successors(self.recent.as_deref(), |link| link.before.as_deref())
    }

    fn find_taken(&self, id: &str) -> Option<Taken> {
        steps::count(1);
        let recent = self.recent().find(|link| &*link.id == id);
        let indexed = || self.index.as_ref()?.get(id).copied();
        recent.map(|link| link.taken).or_else(indexed)
    }

    /// Takes down an id that is free.
    fn take(&mut self, id: Box<str>, taken: Taken) {
        let length = 1 + self.recent.as_deref().map_or(0, |link| link.length);
        let link = Link {
            id,
            taken,
            before: self.recent.take(),
            length,
        };
        self.recent = Some(Arc::new(link));
        if length > RECENT {
            let new = || HashTrieMapSync::new_sync_with_degree(DEGREE);
            let mut index = self.index.take().unwrap_or_else(new);
            for link in self.recent() {
                index.insert_mut(link.id.clone(), link.taken);
            }
            self.index = Some(index);
            self.recent = None;
        }
    }

    /// Takes the id of the next call down and gives its aliases.
    ///
    /// # Complexity
    /// O(log n), amortised
    pub fn join(&mut self, id: &str) -> Aliases {
        self.calls += 1;
        let short = self.short(id);
        let (safe, reused, clash) = match self.find_taken(id) {
            None => {
                let safe = (!is_safe(id)).then(|| self.odd(id));
                self.take(id.into(), Taken::Original);
                (safe, false, false)
            }
            Some(Taken::Original) => (Some(self.number_id(id)), true, false),
            Some(Taken::Alias) => (Some(self.odd(id)), false, true),
        };
        if let Some(safe) = &safe {
            self.take(safe.clone(), Taken::Alias);
        }
        Aliases {
            safe,
            reused,
            clash,
            short,
            ..Aliases::default()
        }
    }

    /// Returns an id for the item of a call, where its kind wants one: its own id where that is one, or one made of it.
    pub fn make_item(&mut self, call: &ToolCall) -> Option<Box<str>> {
        if call.kind.is_function() {
            return None;
        }
        let makes_items = |of: &Provider| of.facts().has(Rule::HasItems);
        let provider = Provider::ALL.into_iter().find(makes_items)?;
        let prefix = (provider.facts().item_prefix)(call.kind)?;
        let owned = |id: &str| format!("{} {id}", provider.name());
        let is_own = call.kind == CallKind::McpApproval && is_item(&call.id, prefix);
        let is_kept = call.aliases.kept_by == Some(provider);
        if is_own && (!self.join_item(&owned(&call.id)) || is_kept) {
            return Some(call.id.clone());
        }
        let safe = call.aliases.safe.as_deref().unwrap_or(&call.id);
        let stem = format!("{prefix}_{safe}");
        let mut item = stem.clone();
        let mut number = self.next(&stem);
        while self.join_item(&owned(&item)) {
            item = format!("{stem}_{number}");
            number += 1;
        }
        self.rare().next.insert_mut(stem.into_boxed_str(), number);
        Some(item.into_boxed_str())
    }

    /// Takes the id of an output item down. Returns true if an earlier item has it.
    pub fn join_item(&mut self, id: &str) -> bool {
        if self.has_item(id) {
            return true;
        }
        self.rare().items.insert_mut(id.into());
        false
    }

    /// Takes down the use of a provider's tool that made a call.
    pub fn join_program(&mut self, call: &ToolCall, iteration: u64) {
        if let (Some(program), Some(_)) = (call.program(), self.pairs()) {
            self.rare().pairs.join_call(&program, iteration);
        }
    }

    /// Takes down a part. Returns true if its provider takes it: no part before it has its id, and the use of a result stands
    /// there.
    pub fn join_part(&mut self, part: &Part, place: PartPlace) -> bool {
        let ids = part.once_ids();
        if ids.iter().any(|id| self.has_item(id)) {
            return false;
        }
        let half = part.half();
        if half.is_some_and(|half| !self.rare().pairs.join(half, place)) {
            return false;
        }
        for id in ids {
            self.rare().items.insert_mut(id.into());
        }
        true
    }

    /// Takes down the name of a file. Returns its place, for providers to whom an earlier file has the same name. A name that
    /// looks as if it had a place gets another one.
    pub fn join_file(&mut self, part: &Part, place: PartPlace) -> Option<FileNumber> {
        let names = file_names(part);
        let is_marked = names.iter().any(|name| name.ends_with(']'));
        let known = names.iter().filter(|name| self.join_item(name)).count();
        let PartPlace {
            iteration,
            entry,
            part,
        } = place;
        (!names.is_empty()).then(|| FileNumber {
            place: format!("{iteration}-{entry}-{part}").into(),
            is_needed: is_marked || known > 0,
        })
    }

    /// Takes down the names of files in results that go back as they came. In all others a file's name has its call.
    pub fn join_kept_files(&mut self, exchange: &Exchange) {
        let outcomes = exchange
            .original
            .iter()
            .flat_map(|_| exchange.slots().flatten());
        for name in outcomes
            .flat_map(|of| of.output.parts())
            .flat_map(file_names)
        {
            self.join_item(&name);
        }
    }

    /// Takes down the ids of a message that joined before, in the same order; `iteration` and `entry` say
    /// where it stands.
    pub fn join_again(&mut self, message: &Message, iteration: u64, entry: usize) {
        self.join_container(message);
        for (part, number) in message.content.parts().iter().zip(0..) {
            let place = PartPlace {
                iteration,
                entry,
                part: number,
            };
            self.join_file(part, place);
            self.join_part(part, place);
        }
        for call in &message.calls {
            self.join_program(call, iteration);
            self.join(&call.id);
            if let Some(id) = item_id(call.provider_metadata.as_ref()) {
                self.join_item(&id);
            }
            self.make_item(call);
        }
    }

    /// Returns an alias for an id that providers may refuse: the letters of it that they take, then a digest of all of it.
    fn odd(&mut self, id: &str) -> Box<str> {
        let stem = stem(id);
        if is_safe(&stem) && stem.len() < STEM_LENGTH && self.is_free(&stem) {
            return stem.into();
        }
        let digest = hex(Sha256::digest(id.as_bytes()).iter().take(6));
        let hashed = format!("{stem}_{digest}");
        if self.is_free(&hashed) {
            return hashed.into();
        }
        self.number_id(&hashed)
    }

    /// Returns the first free one of `id_2`, `id_3`, ... Numbers start where the last search for the same stem ended, so that
    /// many uses cost no more than one step each.
    fn number_id(&mut self, id: &str) -> Box<str> {
        // A digest of 12 digits after the stem, or an id that leaves room for a number.
        let stem = if is_safe(id) && id.len() <= STEM_LENGTH + 13 {
            id.to_owned()
        } else {
            stem(id)
        };
        let mut number = self.next(&stem);
        loop {
            let alias = format!("{stem}_{number}");
            number += 1;
            if self.is_free(&alias) {
                self.rare().next.insert_mut(stem.into_boxed_str(), number);
                return alias.into();
            }
        }
    }

    fn is_free(&self, id: &str) -> bool {
        self.find_taken(id).is_none()
    }

    fn short(&mut self, id: &str) -> Short {
        let number = self.calls;
        let other = Short::parse(id);
        self.has_short_like |= other.is_some();
        let short = |letter| Short {
            letter,
            number,
            clash: other.is_some_and(|other| other < number),
        };
        if !self.has_short_like {
            return short(b'a');
        }
        // 26 letters: a conversation would have to use up every one of them for this number.
        (b'a'..=b'z')
            .map(short)
            .find(|short| self.is_free(&short.text()))
            .unwrap_or(short(b'z'))
    }
}

/// Returns the names that a file has at providers who take each name once.
pub(crate) fn file_names(part: &Part) -> Vec<String> {
    let file = Media::of(&part.kind).filter(|media| media.class == Class::File);
    let name = |provider: Provider| {
        let name = (provider.facts().document_name?)(file.as_ref()?.filename);
        Some(format!("file of {} {name}", provider.name()))
    };
    Provider::ALL.into_iter().filter_map(name).collect()
}

/// Returns true if every provider that has no form of its own for ids takes this one.
fn is_safe(id: &str) -> bool {
    (1..=SAFE_LENGTH).contains(&id.len()) && id.bytes().all(is_plain)
}

fn stem(id: &str) -> String {
    match plain_stem(id, STEM_LENGTH) {
        stem if stem.is_empty() => "call".to_owned(),
        stem => stem,
    }
}

/// Returns true if OpenAI Responses may have given an item this id.
pub(crate) fn is_item(id: &str, prefix: &str) -> bool {
    id.starts_with(prefix) && id.len() <= 64 && id.bytes().all(is_plain)
}
