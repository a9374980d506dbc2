//! The inputs of past requests: the views, the fields besides the messages, and the tools.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use sha2::{Digest, Sha256};

use crate::log::message::Message;
use crate::log::part::Content;
use crate::log::piece::Pieces;
use crate::value::digest::Digest as Sum;
use crate::value::json;
use crate::value::{Map, Size, Value};
use crate::view::masks::Masks;
use crate::view::View;

/// Views by the iterations since whose requests they were used; `None` shows the log as it is. One that
/// did not change is there once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    since: RedBlackTreeMapSync<u64, Option<Arc<View>>>,
    /// The fields of requests, their tools, digests of their system prompts, of all that was sent, and of their masks, and what rewinds
    /// cut off.
    notes: [Noted; KINDS],
    /// The system prompt whose digest was noted last, so that the same one is not read again.
    system: Option<Arc<Message>>,
    /// The masks whose digest was noted last.
    masks: Option<Arc<Masks>>,
    /// The beginning of the last noted request.
    beginning: Option<Arc<Beginning>>,
    size: Size,
}

/// The digest of a request's beginning: if the next request begins the same way, only the rest has to be read.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// The options that decide how it is encoded.
    pub options: (u64, Option<u64>, Option<usize>),
    pub view: Option<Arc<View>>,
    /// The digest of the view.
    pub looks: Box<str>,
    pub system: Option<Arc<Message>>,
    /// The number of the first iteration after it.
    pub end: u64,
    /// The encodings of the iteration before that: another one has others.
    pub pieces: Arc<Pieces>,
    /// Says whether its last element is the model's.
    pub model_last: Option<bool>,
    pub digest: Sum,
}

/// Kinds of values that are noted of requests.
pub(crate) const KINDS: usize = 6;

/// The position of what rewinds cut off among them.
const REWOUND: usize = KINDS - 1;

/// Those that a request has beside its messages and its view, as they are noted.
pub(crate) type NewNotes = [Option<Value>; KINDS];

/// The note of a request whose masks were taken away.
const UNMASKED: &str = "none";

/// Words of the note of what was sent before those of its messages: the digest of all, the version, and the digest of the view.
const HEAD: usize = 3;

/// The tokens that an answer may have, as providers call them in a request.
pub(crate) const MOST_OUTPUT: &[&str] = &[
    "max_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "maxOutputTokens",
    "maxTokens",
    "num_predict",
];

/// The fields in which some providers have their parameters.
const WITHIN: [&str; 3] = ["generationConfig", "inferenceConfig", "options"];

/// Returns the first value of a request's body by one of several names.
pub(crate) fn find_parameter<'b>(body: &'b Map, names: &[&str]) -> Option<&'b Value> {
    let within = WITHIN.iter().filter_map(|key| match body.get_named(key) {
        Some(Value::Map(within)) => Some(within),
        _ => None,
    });
    let all: Vec<&Map> = std::iter::once(body).chain(within).collect();
    names
        .iter()
        .find_map(|name| all.iter().find_map(|map| map.get_named(name)))
}

/// Hexadecimal digits of a system prompt's digest that are kept.
const DIGITS: usize = 16;

/// Values by the iterations since whose requests they were used. One that did not change is there once.
#[derive(Debug, Clone, Default, PartialEq)]
struct Noted(RedBlackTreeMapSync<u64, Arc<Value>>);

impl Noted {
    fn of(&self, number: u64) -> Option<(u64, &Value)> {
        let (since, value) = self.0.range(..=number).next_back()?;
        Some((*since, value))
    }

    /// Returns how much more and how much less there is to keep.
    fn note(&mut self, number: u64, value: Value) -> (Size, Size) {
        if self.of(number).is_some_and(|(_, known)| *known == value) {
            return (Size::default(), Size::default());
        }
        self.put(number, value)
    }

    /// The same where it stands for its own iteration alone.
    fn put(&mut self, number: u64, value: Value) -> (Size, Size) {
        let before = self.0.get(&number).map(|value| value.size());
        let size = value.size();
        self.0.insert_mut(number, Arc::new(value));
        (size, before.unwrap_or_default())
    }

    fn cut(&mut self, from: u64) -> Size {
        let gone: Vec<(u64, Size)> = self
            .0
            .range(from..)
            .map(|(number, value)| (*number, value.size()))
            .collect();
        gone.iter().fold(Size::default(), |sum, (number, size)| {
            self.0.remove_mut(number);
            sum.plus(*size)
        })
    }

    fn differs_at(&self, other: &Self) -> Option<u64> {
        let (mut own, mut others) = (self.0.iter(), other.0.iter());
        loop {
            match (own.next(), others.next()) {
                (None, None) => return None,
                (Some((number, _)), None) | (None, Some((number, _))) => return Some(*number),
                (Some(a), Some(b)) if a.0 == b.0 && (Arc::ptr_eq(a.1, b.1) || a.1 == b.1) => {}
                (Some(a), Some(b)) => return Some(*a.0.min(b.0)),
            }
        }
    }
}

/// The fields of a request and its tools, each with the iteration since which it was used.
pub(crate) type RequestNote<'a> = [Option<(u64, &'a Value)>; 2];

impl Asked {
    /// The view of an iteration's request, and the iteration since which it was used.
    pub fn of(&self, number: u64) -> Option<(u64, Option<&Arc<View>>)> {
        let (since, view) = self.since.range(..=number).next_back()?;
        Some((*since, view.as_ref()))
    }

    /// All views that requests were made from, each once.
    pub fn views(&self) -> impl Iterator<Item = &View> {
        self.since.values().flatten().map(|view| &**view)
    }

    /// The view that is noted with an iteration, where it is another one than before.
    pub fn at(&self, number: u64) -> Option<Option<&View>> {
        Some(self.since.get(&number)?.as_deref())
    }

    /// Notes the view of an iteration's request.
    pub fn note(&mut self, number: u64, view: Option<Arc<View>>) {
        let known = self.of(number);
        if known.is_some_and(|(_, known)| is_same(known, view.as_ref())) {
            return;
        }
        if let Some(Some(before)) = self.since.get(&number) {
            self.size = self.size.minus(before.noted_size());
        }
        let size = view.as_deref().map_or(Size::default(), View::noted_size);
        self.size = self.size.plus(size);
        self.since.insert_mut(number, view);
    }

    /// Returns what an iteration's request had beside its messages.
    pub fn request_of(&self, number: u64) -> RequestNote<'_> {
        let [fields, tools, ..] = self.notes.each_ref();
        [fields, tools].map(|noted| noted.of(number))
    }

    /// The tokens that the answer to an iteration's request may have, where it was noted that it says so.
    pub fn most_output(&self, number: u64) -> Option<u64> {
        let [fields, _tools] = self.request_of(number);
        let (_, Value::Map(fields)) = fields? else {
            return None;
        };
        let Some(Value::Map(body)) = fields.get_named("body") else {
            return None;
        };
        match find_parameter(body, MOST_OUTPUT) {
            Some(Value::Int(most)) => u64::try_from(*most).ok(),
            _ => None,
        }
    }

    /// The digest of an iteration's system prompt, and the iteration since which it was used.
    pub fn system_of(&self, number: u64) -> Option<(u64, &Value)> {
        let [_fields, _tools, system, ..] = &self.notes;
        system.of(number)
    }

    /// The digest of what was sent for an iteration.
    pub fn sent_at(&self, number: u64) -> Option<&Value> {
        let [_fields, _tools, _system, sent, ..] = &self.notes;
        sent.0.get(&number).map(|digest| &**digest)
    }

    /// The request that the last rewind cut off, with the iteration that it went to.
    pub fn rewound(&self) -> Option<(u64, &Value)> {
        let [.., rewound] = &self.notes;
        rewound.of(u64::MAX)
    }

    /// Notes the request that a rewind to an iteration cut off.
    pub fn note_rewound(&mut self, number: u64, cut: Value) {
        self.note_request(number, [None, None, None, None, None, Some(cut)]);
    }

    /// Returns whether no field, tool, system prompt or mask was noted after an iteration.
    pub fn is_noted_up_to(&self, number: u64) -> bool {
        let [fields, tools, system, _sent, masks, _rewound] = &self.notes;
        let later = |noted: &Noted| noted.0.range(number.saturating_add(1)..).next().is_some();
        ![fields, tools, system, masks].into_iter().any(later)
    }

    /// The beginning of the last noted request.
    pub fn beginning(&self) -> Option<&Beginning> {
        self.beginning.as_deref()
    }

    /// Keeps the beginning of the noted request.
    pub fn put_beginning(&mut self, beginning: Option<Beginning>) {
        self.beginning = beginning.map(Arc::new);
    }

    /// The last iteration before one for which it is noted what was sent.
    pub fn sent_before(&self, number: u64) -> Option<u64> {
        let [_fields, _tools, _system, sent, ..] = &self.notes;
        let (before, _) = sent.0.range(..number).next_back()?;
        Some(*before)
    }

    /// Notes the fields of an iteration's request.
    pub fn note_fields(&mut self, number: u64, fields: Map) {
        let fields = Some(Value::Map(fields));
        self.note_request(number, [fields, None, None, None, None, None]);
    }

    /// Notes the digest of what is sent for an iteration.
    pub fn note_sent(&mut self, number: u64, digest: &str) {
        let digest = Some(Value::text(digest));
        self.note_request(number, [None, None, None, digest, None, None]);
    }

    /// The digest of the masks of an iteration's request; `None` where it had none.
    pub fn masks_of(&self, number: u64) -> Option<&Value> {
        let [.., masks, _rewound] = &self.notes;
        let (_, digest) = masks.of(number)?;
        (digest.as_str() != Some(UNMASKED)).then_some(digest)
    }

    /// The masks of an iteration's request, if they are those that were noted last: `Some(None)` where it had none.
    pub fn masks_at_hand(&self, number: u64) -> Option<Option<&Arc<Masks>>> {
        match (self.masks_of(number), &self.masks) {
            (None, _) => Some(None).filter(|_| self.system_of(number).is_some()),
            (Some(digest), Some(masks)) if *digest == digest_masks(masks) => Some(Some(masks)),
            _ => None,
        }
    }

    /// Notes the digest of the masks of an iteration's request.
    pub fn note_masks(&mut self, number: u64, masks: Option<&Arc<Masks>>) {
        let is_known = match (&self.masks, masks) {
            (Some(known), Some(masks)) => Arc::ptr_eq(known, masks),
            (_, None) => self.masks_of(number).is_none(),
            _ => false,
        };
        if !is_known {
            self.masks = masks.cloned();
            let digest = masks.map_or(Value::text(UNMASKED), |masks| digest_masks(masks));
            self.note_request(number, [None, None, None, None, Some(digest), None]);
        }
    }

    /// Notes the digest of an iteration's system prompt, without the texts that a view puts after it.
    pub fn note_system(&mut self, number: u64, system: Option<&Arc<Message>>) {
        let is_known = match (&self.system, system) {
            (Some(known), Some(system)) => Arc::ptr_eq(known, system),
            _ => false,
        };
        if !is_known {
            self.system = system.cloned();
            let digest = digest(system.map(|system| &**system));
            self.note_request(number, [None, None, Some(digest), None, None, None]);
        }
    }

    /// Returns what is noted with an iteration: what it has otherwise than those before.
    pub fn request_at(&self, number: u64) -> [Option<&Value>; KINDS] {
        let noted = self.notes.each_ref();
        noted.map(|noted| noted.0.get(&number).map(|value| &**value))
    }

    /// Notes what an iteration's request has beside its messages.
    pub fn note_request(&mut self, number: u64, request: NewNotes) {
        for (kind, (noted, value)) in self.notes.iter_mut().zip(request).enumerate() {
            if let Some(value) = value {
                // Two rewinds, to different iterations, may cut off the same.
                let (more, less) = match kind {
                    REWOUND => noted.put(number, value),
                    _ => noted.note(number, value),
                };
                self.size = self.size.minus(less).plus(more);
            }
        }
    }

    /// Forgets the requests from an iteration on.
    pub fn cut(&mut self, from: u64) {
        (self.system, self.masks, self.beginning) = (None, None, None);
        for noted in &mut self.notes {
            let gone = noted.cut(from);
            self.size = self.size.minus(gone);
        }
        let gone: Vec<u64> = self
            .since
            .range(from..)
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            if let Some(Some(view)) = self.since.get(&number) {
                self.size = self.size.minus(view.noted_size());
            }
            self.since.remove_mut(&number);
        }
    }

    pub const fn size(&self) -> Size {
        self.size
    }

    /// The first iteration whose notes are not the same as another one's.
    pub fn differs_at(&self, other: &Self) -> Option<u64> {
        let noted = self.notes.iter().zip(&other.notes);
        let noted = noted.filter_map(|(own, other)| own.differs_at(other));
        noted.chain(self.view_differs_at(other)).min()
    }

    fn view_differs_at(&self, other: &Self) -> Option<u64> {
        let (mut own, mut others) = (self.since.iter(), other.since.iter());
        loop {
            match (own.next(), others.next()) {
                (None, None) => return None,
                (Some((number, _)), None) | (None, Some((number, _))) => return Some(*number),
                (Some(a), Some(b)) if a.0 == b.0 && is_same(a.1.as_ref(), b.1.as_ref()) => {}
                (Some(a), Some(b)) => return Some(*a.0.min(b.0)),
            }
        }
    }
}

/// The digests of messages in the note of what was sent.
pub(crate) fn list_digests(sent: &Value) -> impl Iterator<Item = &str> {
    let text = sent.as_str().unwrap_or_default();
    text.split(' ').skip(HEAD)
}

/// A digest of a system prompt, of which there may be none.
pub(crate) fn digest(system: Option<&Message>) -> Value {
    let mut digest = Sha256::new();
    match system.map(|system| &system.content) {
        None | Some(Content::None) => {}
        Some(Content::Text(text)) => digest.update(text),
        Some(Content::Parts(parts)) => {
            for part in parts {
                if let Some(text) = part.kind.text() {
                    digest.update(text.len().to_le_bytes());
                    digest.update(text);
                }
            }
        }
    }
    to_value(digest)
}

/// A digest of masks.
pub(crate) fn digest_masks(masks: &Masks) -> Value {
    let mut digest = Sha256::new();
    for (pattern, replacement) in masks.iter() {
        for text in [pattern, replacement] {
            digest.update(text.len().to_le_bytes());
            digest.update(text);
        }
    }
    to_value(digest)
}

fn to_value(digest: Sha256) -> Value {
    let digest = digest.finalize();
    let hex = digest.iter().map(|byte| format!("{byte:02x}"));
    let hex: String = hex.take(DIGITS / 2).collect();
    Value::text(&hex)
}

/// The fields of a request with digests for what its body holds: whom it asks stays readable.
pub(crate) fn hash_fields(fields: Value) -> Value {
    let Value::Map(fields) = fields else {
        return fields;
    };
    let entries = fields.into_entries().into_iter().map(|(key, value)| {
        let value = match value {
            Value::Map(body) if key.as_name() == Some("body") => {
                Value::Map(hash_values(body, |_| true))
            }
            Value::Map(other) => Value::Map(hash_values(other, is_nested)),
            value => value,
        };
        (key, value)
    });
    Value::Map(Map::new(entries.collect::<Vec<_>>()))
}

/// Tools with their names and digests of what they are.
pub(crate) fn hash_tools(tools: Value) -> Value {
    let Value::List(tools) = tools else {
        return tools;
    };
    let hashed = tools.iter().map(|tool| {
        let name = match tool {
            Value::Map(tool) => tool.get_named("name").cloned(),
            _ => None,
        };
        let name = name.map(|name| (Value::text("name"), name));
        let entry = (Value::text("digest"), digest_value(tool));
        Value::Map(Map::new(
            name.into_iter().chain([entry]).collect::<Vec<_>>(),
        ))
    });
    Value::List(hashed.collect())
}

fn hash_values(map: Map, is_hashed: impl Fn(&Value) -> bool) -> Map {
    let entries = map.into_entries().into_iter();
    let hashed = entries.map(|(key, value)| match is_hashed(&value) {
        true => (key, digest_value(&value)),
        false => (key, value),
    });
    Map::new(hashed.collect::<Vec<_>>())
}

/// Returns whether a value could hold what an application says, such as a schema.
const fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Map(_) | Value::List(_))
}

fn digest_value(value: &Value) -> Value {
    let mut digest = Sha256::new();
    digest.update(json::write(value));
    to_value(digest)
}

fn is_same(a: Option<&Arc<View>>, b: Option<&Arc<View>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a.is_noted_as(b),
        _ => false,
    }
}

impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        self.differs_at(other).is_none()
    }
}
