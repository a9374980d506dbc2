//! The table of facts about a provider, which each room fills in.
//!
//! The log asks for facts too, and is above this file. So the tables know no message, part or call.

use crate::answer::subset::Subset;
use crate::log::hints::Ttl;
use crate::log::kind::CallKind;
use crate::log::place::Place;
use crate::value::letters::is_plain;
use crate::value::{Map, Value};

/// The facts about a provider.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Its name in OpenTelemetry's conventions.
    #[cfg_attr(not(feature = "otlp"), allow(dead_code))]
    pub telemetry: &'static str,

    /// The key of a request's list of messages.
    pub list: &'static str,
    /// All keys under which a request may have the system prompt, if it stands beside the list; the first is ours.
    pub prompts: &'static [&'static str],
    /// The field that names the container in which the provider ran its tools, in requests and in answers.
    pub container: Option<&'static str>,
    /// The field that holds parameters, if they do not stand in the body itself.
    pub parameters: Option<&'static str>,
    /// The names of the limit on an answer's tokens.
    pub most_output: &'static [&'static str],
    /// Fields of a body that set the form of the answer, each with the fields around it. They are put before the messages.
    pub output_form: &'static [&'static [&'static str]],
    /// Fields of a body whose change keeps all messages from being read from the cache.
    pub message_fields: &'static [&'static str],
    /// A user message that says [`STAND_IN`], for where the provider needs one.
    pub stand_in: &'static str,

    /// The rules that hold for it.
    pub rules: &'static [Rule],
    /// Returns whether it takes the id of a call, as far as the id alone shows it. `true`: the call came from this provider.
    pub takes_id: fn(&str, bool) -> bool,
    /// Returns whether it takes the name of a tool. A call of the conversation whose name it does not take is sent under a name
    /// that is made of it; the tools that a caller declares are passed on as they are.
    pub takes_name: fn(&str) -> bool,
    /// Returns whether it takes a block of its own in this place. A block that it would refuse there is refused when it is given:
    /// calls, results and reasoning in the wrong place, or any that has a part of its own. An unknown block is taken, since
    /// providers add new ones.
    pub takes_block: fn(Place, &Map) -> bool,

    /// A key that no object in a result may have.
    pub refused_key: Option<&'static str>,
    /// Returns the name under which it gets a file, which is another one for each file of a conversation.
    pub document_name: Option<fn(Option<&str>) -> String>,

    /// The prefix of ids of items, where items of this kind need an id.
    pub item_prefix: fn(CallKind) -> Option<&'static str>,

    /// Returns which half of a pair a block is: the use of one of its own tools, or the result.
    pub half: fn(&Map) -> Option<OwnHalf<'_>>,
    /// The types of a use and a result that have no id: they belong to their neighbours.
    pub nameless_halves: Option<[&'static str; 2]>,
    /// The blocks by which it shows that a model declined in the middle of an answer.
    pub fallback: Option<Fallback>,

    /// The rules by which it caches the beginnings of requests.
    pub cache: Cache,
    /// The JSON of a cache breakpoint, to follow a piece.
    pub cache_mark: fn(Ttl) -> &'static str,
    /// Returns its own diagnosis of a cache miss, from the other fields of its answer. `true`: it was asked to compare.
    pub diagnose: fn(Option<&Map>, bool) -> Option<Diagnosis>,

    /// Returns whether a model refuses thinking that it sees behind anything else than when it was made: another system prompt,
    /// other tools, or other messages.
    pub checks_thinking: Option<fn(&str) -> bool>,

    /// The part of JSON Schema that it enforces.
    pub subset: &'static Subset,
    /// Returns whether a model is known to enforce a schema; `true` if the request has tools, too.
    pub constrains: fn(&str, bool) -> bool,
    /// Returns the fields of a request that make it answer by a schema, which gets this name.
    pub constraint: fn(&str, Value) -> Value,
}

/// A rule that holds for a provider whose list has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A message of the model may have an empty list of calls.
    EmptyCalls,
    /// Ids of calls have its own short form and no other.
    ShortIds,
    /// The arguments of calls are JSON text, which goes back as it came.
    TextArguments,
    /// A list must begin with the user.
    UserFirst,
    /// A list must not begin with a call.
    UserBeforeCalls,
    /// A list must not end with the model.
    UserLast,
    /// Neighbours of one role must be one message.
    Alternates,
    /// An imported message of the model may ask for its continuation, but only the last one.
    Prefixes,
    /// Streams end with `[DONE]`.
    SaysDone,
    /// The end of the body ends a response.
    EndsWithBody,
    // What it takes, as far as is known, of a history that was made elsewhere. Messages that break these rules are read, and
    // follow them when they are sent again.
    /// Neighbours of one role count as one turn.
    MergesNeighbours,
    /// Messages that were merged are written anew, not as they came.
    RemakesMerged,
    /// A text always stands in a list.
    ListsOnly,
    /// A system message stands before all others.
    SystemFirst,
    /// A system message stands neither directly after the model nor at the end.
    SystemAfterUser,
    /// Results and other parts never stand in one message.
    ResultsStandAlone,
    /// All results of a message stand in one element.
    ResultsStandTogether,
    /// A result stands in an object, so it is never blank.
    WrapsResults,
    /// Thinking that nothing follows in its message is refused.
    ThoughtsLead,
    /// A failed result has texts alone.
    FailuresAreText,
    /// Calls stand among the model's parts. Elsewhere they have a list of their own.
    CallsAnywhere,
    /// The use of a tool that the provider runs waits for its result only as long as nothing but results of calls follows it.
    ClosesUses,
    /// The list has items and not messages: an id is used once, and words of the model between a call and its result do not
    /// separate them.
    HasItems,
    /// The result of a call that says so may come in any later request.
    LateOutputs,
    /// An answer that its model refused to go on with is left out of later requests to it, which would be refused, too.
    LeavesOutRefused,
}

impl Facts {
    /// Returns whether an imported message asks for its own continuation here.
    pub fn continues(&self, elements: &str) -> bool {
        self.has(Rule::Prefixes) && is_prefix(elements)
    }

    pub fn has(&self, rule: Rule) -> bool {
        self.rules.contains(&rule)
    }

    /// Returns the key of the system prompt, if it stands beside the list.
    pub fn system(&self) -> Option<&'static str> {
        self.prompts.first().copied()
    }
}

/// The text of a user message that fills a gap.
pub(crate) const STAND_IN: &str = "Continue.";

/// One half of a pair: the use of a provider's own tool, or its result.
pub(crate) struct OwnHalf<'a> {
    /// The id that both halves share.
    pub id: &'a str,
    pub is_result: bool,
    /// A use that its provider refuses without the result.
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
    /// The block between two models.
    pub between: &'static str,
    /// A call of the model that declined.
    pub call: &'static str,
    /// A text that does not go back.
    pub dropped: &'static str,
}

/// The rule by which a provider caches the beginnings of requests.
#[derive(Debug)]
pub(crate) enum Cache {
    /// Only up to a mark.
    Marked {
        /// How long an entry lives, by default or as asked for. Each request that reads it starts the time anew.
        minutes: i64,
        longest: i64,
        /// The number of positions, the mark's own included, at which it looks for an earlier entry.
        look_back: usize,
        /// True where a run of calls is one position, and so is a run of results. Elsewhere each block is one.
        counts_runs: bool,
        /// How a result begins, where a mark may stand in any of those that follow each other.
        results: Option<&'static str>,
        /// The tokens of the shortest request that it caches, by a word in the model's name; the first that is found counts.
        least: &'static [&'static [(&'static str, u64)]],
        /// Returns whether a model is known to cache what is marked. Others may refuse marks.
        knows: fn(&str) -> bool,
    },
    /// Without marks: requests from `least` tokens on, in blocks of `block`.
    Rounded { least: u64, block: u64 },
    /// No rule is known; only reports tell.
    Unknown,
}

/// A provider's comparison of a request with the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The provider's word for the part that differs; `cache_hit` if nothing does, `pending` if it does not know yet.
    pub reason: Box<str>,
    /// The number of tokens that could not be read because of it.
    pub tokens: Option<u64>,
}

/// Returns whether an imported message asks for its own continuation, which DeepSeek and Mistral call a prefix, Moonshot and
/// Alibaba partial. Within a text, the quotation marks would be escaped.
pub(crate) fn is_prefix(elements: &str) -> bool {
    elements.contains("\"prefix\":true") || elements.contains("\"partial\":true")
}

/// Returns the type that a block names, or "".
pub(crate) fn kind_of(data: &Map) -> &str {
    named(data, "type").unwrap_or_default()
}

/// Returns a text under a key of a block.
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

/// Returns the half that an object under one of two keys is, by its id.
pub(crate) fn half_under<'a>(data: &'a Map, id: &str, keys: [&str; 2]) -> Option<OwnHalf<'a>> {
    let id = |key| match data.get_named(key)? {
        Value::Map(half) => named(half, id),
        _ => None,
    };
    let [used, result] = keys;
    let used = id(used).map(|id| OwnHalf::new(id, false));
    used.or_else(|| Some(OwnHalf::new(id(result)?, true)))
}

/// Returns whether a name has at most 64 characters, of those that every provider takes.
pub(crate) fn is_plain_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}
