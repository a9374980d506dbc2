//! Reads Gemini's responses: each event has the form of a whole answer, with the next parts. Parts have no keys: neighbours of
//! one kind are one part, but a signature belongs to the part it stands on. Arguments may come as values for paths, such as
//! `$.steps[2].name`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::Room;
use crate::fault::Fault;
use crate::log::call::Arguments;
use crate::log::provider::Provider;
use crate::log::reply::Finish;
use crate::prices::bill::{Count, Term};
use crate::provider::block::{arguments, ArgumentPiece};
use crate::provider::draft::{Draft, Key};
use crate::provider::figures::{Billed, FigureKind::*, Figures};
use crate::provider::foreign;
use crate::provider::format::Responds;
use crate::provider::node::{self, Node, DEPTH};
use crate::value::json::AsJson;
use crate::value::letters;
use crate::value::Value;

/// The fields about an answer that have no place in a request.
const DETAILS: [&str; 5] = [
    "groundingMetadata",
    "citationMetadata",
    "urlContextMetadata",
    "finishMessage",
    "continuationToken",
];

/// `FinishReason` and `BlockedReason` of `google.cloud.aiplatform.v1`, from 1.
const REASONS: [&str; 10] = [
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MALFORMED_FUNCTION_CALL",
    "MODEL_ARMOR",
];
const BLOCKED: [&str; 6] = [
    "SAFETY",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "MODEL_ARMOR",
    "JAILBREAK",
];

/// The key of the call whose arguments come piece by piece.
const OPEN: Key = Key::Only("call");

impl Responds for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[
                (Around, &["usageMetadata", "usage_metadata"]),
                (WholeInput, &["promptTokenCount", "prompt_token_count"]),
                (
                    Tools,
                    &["toolUsePromptTokenCount", "tool_use_prompt_token_count"],
                ),
                (
                    Candidates,
                    &["candidatesTokenCount", "candidates_token_count"],
                ),
                (Thoughts, &["thoughtsTokenCount", "thoughts_token_count"]),
                (Total, &["totalTokenCount", "total_token_count"]),
                (
                    Cached,
                    &["cachedContentTokenCount", "cached_content_token_count"],
                ),
            ],
            billed: &BILLED,
            terms: &[("serviceTier", Term::Tier), ("trafficType", Term::Tier)],
            ..Figures::NONE
        }
    }

    fn read_response(&self, draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
        Fault::check(node)?;
        let candidates = node::list(node, "candidates");
        let feedback = node::get(node, "promptFeedback");
        let usage = node::get(node, "usageMetadata");
        if candidates.is_empty() && feedback.is_none() && usage.is_none() {
            let names = ["responseId", "modelVersion", "candidates"];
            return match names.iter().any(|name| node::get(node, name).is_some()) {
                true => Ok(()),
                false => Err(Fault::neither(node, "not an answer of generateContent")),
            };
        }
        let id = node::text(node, "responseId");
        draft.start(id, node::text(node, "modelVersion"));
        let first = |of: &&Node<'_>| node::number(of, "index").unwrap_or(0) == 0;
        let candidate = candidates.iter().find(first);
        if let Some(content) = candidate.and_then(|of| node::get(of, "content")) {
            let parts = match node::get(content, "parts") {
                Some(one @ Node::Object(_)) => std::slice::from_ref(one),
                parts => parts.map_or(&[][..], node::as_list),
            };
            for part in parts {
                read_part(draft, part)?;
            }
        }
        draft.count_tokens(usage);
        if let Some(candidate) = candidate {
            draft.keep(candidate, &DETAILS);
        }
        if let Some(word) = candidate.and_then(|of| word(of, "finishReason", &REASONS)) {
            return draft.finish_all(reason(&word), &word);
        }
        match feedback.and_then(|feedback| word(feedback, "blockReason", &BLOCKED)) {
            Some(word) => draft.finish_all(Finish::ContentFilter, &word),
            None => Ok(()),
        }
    }
}

/// Returns an enum's word. Some of Vertex's transports send its number, in which 0 means that it is not set.
fn word<'n>(node: &'n Node<'_>, key: &str, names: &[&'static str]) -> Option<Cow<'n, str>> {
    match node::number(node, key) {
        None => node::filled_text(node, key).map(Cow::Borrowed),
        Some(0) => None,
        Some(number) => {
            let at = usize::try_from(number - 1).ok();
            let name = at.and_then(|at| names.get(at));
            Some(name.map_or_else(|| number.to_string().into(), |name| Cow::Borrowed(*name)))
        }
    }
}

/// Follows `FinishReason` of the vendor's SDK, which reads it in either case. Every word that Google adds is a filter or a
/// failure. There are two lists of numbers, which agree on 1 and 2.
fn reason(word: &str) -> Finish {
    match &*word.to_ascii_uppercase() {
        "STOP" | "FINISH_REASON_UNSPECIFIED" => Finish::Stop,
        "MAX_TOKENS" | "CONTINUATION" => Finish::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "LANGUAGE"
        | "MODEL_ARMOR"
        | "ESCALATION"
        | "PUP_LIMITED_DISABLED" => Finish::ContentFilter,
        // Such as MALFORMED_FUNCTION_CALL, UNEXPECTED_TOOL_CALL and OTHER.
        _ => Finish::Error,
    }
}

fn read_part(draft: &mut Draft, part: &Node<'_>) -> Result<(), Fault> {
    let signature = node::filled_text(part, "thoughtSignature");
    if let Some(call) = node::get(part, "functionCall") {
        return read_call(draft, call, signature);
    }
    let Some(text) = node::text(part, "text") else {
        let part = match super::read::model_part(node::to_value(part)?) {
            Ok(part) => part,
            Err(_) => foreign::own_block(Provider::Gemini, node::to_map(part)?),
        };
        draft.put_part(draft.next_key(), part);
        return Ok(());
    };
    let thinks = node::is_true(part, "thought");
    let key = match draft.last_text(thinks).filter(|_| signature.is_none()) {
        Some(last) => last,
        None => draft.next_key(),
    };
    let Some(signature) = signature else {
        draft.say(key, text, thinks);
        return Ok(());
    };
    draft.open_words(&key, thinks);
    draft.say(key.clone(), text, thinks);
    draft.sign(&key, Some(signature));
    // An empty text may have a signature.
    draft.show_empty(&key);
    draft.close(&key)
}

/// Reads a call with all its arguments, the first piece of one, or a further piece.
fn read_call(draft: &mut Draft, call: &Node<'_>, signature: Option<&str>) -> Result<(), Fault> {
    let goes_on = node::is_true(call, "willContinue");
    let name = node::filled_text(call, "name");
    if let Some(name) = name {
        let key = draft.next_key();
        draft.open_call(key.clone(), node::text(call, "id"), Some(name));
        draft.sign(&key, signature);
        draft.name_also(&key, OPEN);
    }
    if !draft.knows(&OPEN) || draft.is_done(&OPEN) {
        return Ok(());
    }
    for piece in node::list(call, "partialArgs") {
        let path = node::text(piece, "jsonPath").unwrap_or_default().into();
        let mut names = ["stringValue", "numberValue", "boolValue"].into_iter();
        let value = names.find_map(|name| node::get(piece, name));
        let value = value.map_or(Ok(Value::Nil), node::to_value)?;
        draft.push_piece(&OPEN, ArgumentPiece { path, value });
    }
    if goes_on {
        return Ok(());
    }
    if let Some(args) = arguments(node::get(call, "args"))? {
        return draft.end_call_with(&OPEN, args);
    }
    let pieces = draft.pieces(&OPEN)?;
    let arguments = match pieces.is_empty() {
        true => Arguments::default(),
        false => Arguments::from_json(assemble(&pieces)?.into_bytes().into_boxed_slice()),
    };
    draft.end_call_with(&OPEN, arguments)
}

const fn modal(lists: &'static [&'static str], modality: &'static str, count: Count) -> Billed {
    Billed {
        under: lists,
        of: Some(("modality", modality)),
        number: &["tokenCount", "token_count"],
        count,
    }
}

const PROMPT: &[&str] = &[
    "promptTokensDetails",
    "prompt_tokens_details",
    "toolUsePromptTokensDetails",
    "tool_use_prompt_tokens_details",
];
const CACHE: &[&str] = &["cacheTokensDetails", "cache_tokens_details"];
const CANDIDATES: &[&str] = &["candidatesTokensDetails", "candidates_tokens_details"];

const BILLED: [Billed; 12] = [
    modal(PROMPT, "AUDIO", Count::InputAudio),
    modal(PROMPT, "IMAGE", Count::InputImage),
    modal(PROMPT, "DOCUMENT", Count::InputImage),
    modal(PROMPT, "VIDEO", Count::InputVideo),
    modal(CACHE, "AUDIO", Count::CachedAudio),
    modal(CACHE, "IMAGE", Count::CachedImage),
    modal(CACHE, "DOCUMENT", Count::CachedImage),
    modal(CACHE, "VIDEO", Count::CachedVideo),
    modal(CANDIDATES, "AUDIO", Count::OutputAudio),
    modal(CANDIDATES, "IMAGE", Count::OutputImage),
    modal(CANDIDATES, "DOCUMENT", Count::OutputImage),
    modal(CANDIDATES, "VIDEO", Count::OutputVideo),
];

/// A value that is being built.
#[derive(Debug, Default)]
enum Tree<'p> {
    #[default]
    Nothing,
    Text(Vec<u8>),
    Value(Value),
    List(Vec<Tree<'p>>),
    Keys(OrderedKeys<'p>),
}

/// The keys of an object, in the order in which they came.
#[derive(Debug, Default)]
struct OrderedKeys<'p> {
    entries: Vec<(&'p str, Tree<'p>)>,
    places: HashMap<&'p str, usize>,
}

/// A step of a path.
#[derive(Debug, PartialEq)]
enum Hop<'a> {
    Key(&'a str),
    Index(usize),
}

/// Returns the JSON text of the arguments that the pieces make. Texts for one path are joined; an index beyond the end of its
/// list means the end.
///
/// # Errors
/// [`Fault::TooDeep`], [`Fault::Unreadable`] for something that is not a path.
///
/// # Complexity
/// O(n), times the depth of the paths
fn assemble(pieces: &[Arc<ArgumentPiece>]) -> Result<String, Fault> {
    let mut root = Tree::Keys(OrderedKeys::default());
    for piece in pieces {
        let mut place = &mut root;
        for step in steps(&piece.path)? {
            place = place.at(&step)?;
        }
        place.put(&piece.value);
    }
    Ok(crate::value::json::to_string(&root))
}

impl<'p> Tree<'p> {
    fn at(&mut self, step: &Hop<'p>) -> Result<&mut Self, Fault> {
        if matches!(self, Self::Nothing) {
            *self = match step {
                Hop::Key(_) => Self::Keys(OrderedKeys::default()),
                Hop::Index(_) => Self::List(Vec::new()),
            };
        }
        let place = match (self, step) {
            (Self::Keys(object), Hop::Key(key)) => {
                let next = object.entries.len();
                let place = *object.places.entry(key).or_insert(next);
                if place == next {
                    object.entries.push((key, Self::Nothing));
                }
                object.entries.get_mut(place).map(|(_, value)| value)
            }
            (Self::List(items), Hop::Index(index)) => {
                if *index >= items.len() {
                    items.push(Self::Nothing);
                }
                let last = items.len().saturating_sub(1);
                items.get_mut((*index).min(last))
            }
            (_, Hop::Key(_)) => return Err(Fault::unreadable("a key of what is not an object")),
            (_, Hop::Index(_)) => return Err(Fault::unreadable("an index of what is not a list")),
        };
        place.ok_or_else(|| Fault::unreadable("a place that is not there"))
    }

    fn put(&mut self, value: &Value) {
        match (self, value) {
            (Self::Text(text), Value::Binary(more)) => text.extend_from_slice(more),
            (place, Value::Binary(text)) => *place = Self::Text(text.to_vec()),
            (place, other) => *place = Self::Value(other.clone()),
        }
    }
}

/// Splits `$.a["b"][0]` into its steps.
fn steps(path: &str) -> Result<Vec<Hop<'_>>, Fault> {
    let wrong = || Fault::unreadable("the path of an argument");
    let mut rest = path.strip_prefix('$').ok_or_else(wrong)?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() >= DEPTH {
            return Err(Fault::TooDeep { limit: DEPTH });
        }
        let step = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (key, after) = after.split_at(end);
            rest = after;
            Hop::Key(key)
        } else {
            let after = rest.strip_prefix('[').ok_or_else(wrong)?;
            let quote = after
                .chars()
                .next()
                .filter(|quote| matches!(quote, '\'' | '"'));
            if let Some(quote) = quote {
                let (key, after) = after
                    .get(1..)
                    .and_then(|after| after.split_once(quote))
                    .ok_or_else(wrong)?;
                rest = after.strip_prefix(']').ok_or_else(wrong)?;
                Hop::Key(key)
            } else {
                let (index, after) = after.split_once(']').ok_or_else(wrong)?;
                rest = after;
                Hop::Index(index.parse().map_err(|_| wrong())?)
            }
        };
        steps.push(step);
    }
    Ok(steps)
}

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nothing => serializer.serialize_unit(),
            Self::Text(text) => serializer.serialize_str(&letters::utf8(text)),
            Self::Value(value) => AsJson(value).serialize(serializer),
            Self::List(items) => serializer.collect_seq(items),
            Self::Keys(object) => {
                serializer.collect_map(object.entries.iter().map(|(key, value)| (key, value)))
            }
        }
    }
}
