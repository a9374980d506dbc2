//! What is true of a provider: one table, which the room of each fills in whole.
//!
//! The tables stand below the log, which asks them too: so they name no message, part or call.

use crate::answer::subset::Subset;
use crate::log::hints::Ttl;
use crate::log::kind::CallKind;
use crate::log::place::Place;
use crate::value::letters::is_plain;
use crate::value::{Map, Value};

/// What is true of a provider.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Its name in OpenTelemetry's conventions.
    pub telemetry: &'static str,

    /// The key of a request's list of messages.
    pub list: &'static str,
    /// The key of the system prompt beside the list, if it is sent there.
    pub system: Option<&'static str>,
    /// The keys under which a request may have it there.
    pub prompts: &'static [&'static str],
    /// The field that names the container in which the provider ran its tools, in requests and in answers.
    pub container: Option<&'static str>,
    /// The field that holds parameters, if they do not stand in the body itself.
    pub parameters: Option<&'static str>,
    /// What it calls the tokens that an answer may have.
    pub most_output: &'static [&'static str],
    /// Fields of a body that say which form the answer has, each with those that it stands in. They are put before the messages.
    pub output_form: &'static [&'static [&'static str]],
    /// Fields of a body after whose change no message is read from the cache.
    pub message_fields: &'static [&'static str],
    /// A user message that says [`STAND_IN`], where one has to stand and there is none.
    pub stand_in: &'static str,

    /// Returns whether it takes the id of a call, as far as one can see from the id alone; `true` where the call came from it.
    pub takes_id: fn(&str, bool) -> bool,
    /// Ids of calls have its own short form, and no other.
    pub short_ids: bool,
    /// Returns whether it takes the name of a tool.
    pub takes_name: fn(&str) -> bool,
    /// Returns whether it takes a block of its own here. Parts that it would refuse are refused when they are given: calls,
    /// results and reasoning where they cannot be, or that have parts of their own. A block that nobody knows is taken, for there
    /// will be new ones.
    pub takes_block: fn(Place, &Map) -> bool,

    /// A list must begin with the user.
    pub user_first: bool,
    /// A list must not begin with a call.
    pub user_before_calls: bool,
    /// A list must not end with the model.
    pub user_last: bool,
    /// Neighbours of one role must be one message.
    pub alternates: bool,
    /// Returns whether an imported message of the model asks for its continuation, which it may at the end only.
    pub is_prefix: fn(&str) -> bool,

    // What it takes, or is known to take, of a history that was made elsewhere. Messages that break these rules are read, and
    // follow them when they are sent again.
    /// Neighbours of one role are one turn.
    pub merges_neighbours: bool,
    /// Messages that were merged do not go back as they came.
    pub remakes_merged: bool,
    /// A text has no other form than a list with it.
    pub lists_only: bool,
    /// Where a system message may stand.
    pub system_place: SystemPlace,
    /// Results and other parts were never seen in one message.
    pub results_stand_alone: bool,
    /// All results of a message stand in one element.
    pub results_stand_together: bool,
    /// A result is an object, which is never empty.
    pub wraps_results: bool,
    /// Calls stand among what the model says. Elsewhere they have a list of their own.
    pub calls_anywhere: bool,
    /// The use of a tool that the provider runs itself waits for its result only while nothing but results of
    /// calls follows it.
    pub closes_uses: bool,
    /// The list has items and not messages: an id is used once, and what the model says between a call
    /// and its result does not part them.
    pub has_items: bool,
    /// What the id of a call's item begins with, where items of this kind need one.
    pub item_prefix: fn(CallKind) -> Option<&'static str>,

    /// Which half of a pair one of its blocks is: the use of its own tool, or the result.
    pub half: fn(&Map) -> Option<OwnHalf<'_>>,
    /// The types of a use and a result that name no pair and belong to their neighbours.
    pub nameless_halves: Option<[&'static str; 2]>,
    /// How it tells of a model that declined in the middle of an answer.
    pub fallback: Option<Fallback>,

    /// How it caches the beginnings of requests.
    pub cache: Cache,
    /// What makes a breakpoint for its cache where a piece has its mark.
    pub cache_mark: fn(Ttl) -> &'static str,
    /// Its own diagnosis of what was not read from the cache, by what else it says of its answer; `true` where it was asked to
    /// compare.
    pub diagnose: fn(Option<&Map>, bool) -> Option<CacheMiss<'_>>,

    /// The part of JSON Schema that it holds answers to.
    pub subset: &'static Subset,
    /// Returns whether a model is known to hold its answers to a schema, beside tools if it is `true`.
    pub constrains: fn(&str, bool) -> bool,
    /// The fields of a request that ask for it, with a name for the schema.
    pub constraint: fn(&str, Value) -> Value,
}

/// What a user message says that stands where one has to and there is none.
pub(crate) const STAND_IN: &str = "Continue.";

/// Where a system message may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemPlace {
    /// Everywhere.
    Anywhere,
    /// Before all others.
    First,
    /// Not directly after the model, nor at the end.
    AfterUser,
}

/// One half of a pair, as its provider tells of it.
pub(crate) struct OwnHalf<'a> {
    /// The id that both halves have.
    pub id: &'a str,
    pub is_result: bool,
    /// A use that its provider refuses without its result.
    pub waits: bool,
}

impl<'a> OwnHalf<'a> {
    pub fn new(id: &'a str, is_result: bool) -> Self {
        let waits = !is_result;
        Self {
            id,
            is_result,
            waits,
        }
    }
}

/// The types of blocks around a model that declined.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// Stands between the models.
    pub between: &'static str,
    /// A call of the one that declined.
    pub call: &'static str,
    /// A text that does not go back.
    pub dropped: &'static str,
}

/// How a provider caches the beginnings of requests.
#[derive(Debug)]
pub(crate) enum Cache {
    /// What is marked, and nothing else.
    Marked {
        /// For so many minutes, or for so many where it was asked to keep it longer. Each request that reads it begins that time anew.
        minutes: i64,
        longest: i64,
        /// From each mark, it looks back through so many blocks of content for what it has.
        look_back: usize,
        /// The tokens of the shortest request that it caches, by words in names of models.
        least: &'static [(&'static str, u64)],
    },
    /// By itself, requests of so many tokens, in blocks of so many.
    Rounded { least: u64, block: u64 },
    /// It promises nothing beyond what it says that it has.
    Unknown,
}

/// What a provider did not read from its cache.
pub(crate) struct CacheMiss<'a> {
    /// Its word for the reason, or for that there was none.
    pub reason: &'a str,
    pub tokens: Option<u64>,
}

/// The name under which a block says what it is, or nothing.
pub(crate) fn kind_of(data: &Map) -> &str {
    named(data, "type").unwrap_or_default()
}

/// A word under a key of a block.
pub(crate) fn named<'a>(data: &'a Map, key: &str) -> Option<&'a str> {
    let name = data.get_named(key)?.as_name()?;
    (!name.is_empty()).then_some(name)
}

/// Returns whether a block has one of these types, or a field of that name.
pub(crate) fn is_any(data: &Map, names: &[&str]) -> bool {
    let kind = kind_of(data);
    let mut names = names.iter();
    names.any(|name| *name == kind || data.get_named(name).is_some())
}

/// The half that an object under one of two keys is, by its id.
pub(crate) fn half_under<'a>(data: &'a Map, id: &str, keys: [&str; 2]) -> Option<OwnHalf<'a>> {
    let id = |key| match data.get_named(key)? {
        Value::Map(half) => named(half, id),
        _ => None,
    };
    let [used, result] = keys;
    let used = id(used).map(|id| OwnHalf::new(id, false));
    used.or_else(|| Some(OwnHalf::new(id(result)?, true)))
}

/// A number of tokens.
pub(crate) fn count(of: &Map, name: &str) -> Option<u64> {
    match of.get_named(name)? {
        Value::Int(count) => u64::try_from(*count).ok(),
        _ => None,
    }
}

/// Returns whether a name has up to 64 letters that every provider takes.
pub(crate) fn is_plain_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}
