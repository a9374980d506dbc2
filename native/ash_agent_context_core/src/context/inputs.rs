//! The inputs of past requests: the views, the fields besides the messages, and the tools.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use sha2::{Digest, Sha256};

use crate::context::since::Since;
use crate::log::message::Message;
use crate::log::part::Content;
use crate::log::piece::Pieces;
use crate::log::provider::Provider;
use crate::value::digest::Digest as Sum;
use crate::value::json;
use crate::value::letters::short_digest;
use crate::value::{Map, Size, Value};
use crate::view::masks::Masks;
use crate::view::View;

/// The inputs of requests, by iteration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inputs {
    /// The views; `None` shows the log as it is.
    pub views: Since<Option<Arc<View>>>,
    /// The provider and the model that a request asks, and the fields of its body beside the messages.
    pub fields: Since<Value>,
    pub tools: Since<Value>,
    /// Digests of system prompts, without the texts that a view puts after them.
    pub systems: Since<Value>,
    /// Digests of requests that were sent, see [`SentNote`](super::sent::SentNote).
    pub sent: Since<Value>,
    /// Digests of masks.
    masks: Since<Value>,
    /// Requests that rewinds cut off, see [`Rewound`](super::rewound::Rewound).
    pub rewound: Since<Value>,
    /// The system prompt whose digest was noted last, so that the same one is not read again.
    last_system: Option<Arc<Message>>,
    /// The masks of the last noted request, once the view has others.
    asked_masks: Option<Arc<Masks>>,
    /// The beginning of the last noted request.
    pub beginning: Option<Arc<Beginning>>,
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
    /// The encodings of the iteration before that: an iteration with other messages has others.
    pub pieces: Arc<Pieces>,
    /// The last element is the model's.
    pub model_last: Option<bool>,
    pub digest: Sum,
}

/// Noted for a request whose masks were taken away.
const UNMASKED: &str = "none";

/// Returns the limit on the tokens of an answer in a request's body.
pub(crate) fn find_most_output(body: &Map) -> Option<&Value> {
    let mut names = Provider::ALL.iter().flat_map(|of| of.facts().most_output);
    names.find_map(|name| find_parameter(body, name))
}

/// Returns the value of a request's body by its name, wherever providers have it.
pub(crate) fn find_parameter<'b>(body: &'b Map, name: &str) -> Option<&'b Value> {
    let fields = Provider::ALL.iter().filter_map(|of| of.facts().parameters);
    let within = fields.filter_map(|field| body.get_named(field)?.as_map());
    let mut all = std::iter::once(body).chain(within);
    all.find_map(|map| map.get_named(name))
}

/// The fields of a request and its tools, each with the iteration since which it was used.
pub(crate) type RequestNote<'a> = [Option<(u64, &'a Value)>; 2];

impl Inputs {
    /// Returns the view of an iteration's request, and the iteration since which it was used.
    pub fn of(&self, number: u64) -> Option<(u64, Option<&Arc<View>>)> {
        let (since, view) = self.views.of(number)?;
        Some((since, view.as_ref()))
    }

    /// Returns the view noted with an iteration, where it differs from the one before.
    pub fn at(&self, number: u64) -> Option<Option<&View>> {
        Some(self.views.at(number)?.as_deref())
    }

    /// Returns the fields and the tools of an iteration's request.
    pub fn request_of(&self, number: u64) -> RequestNote<'_> {
        [self.fields.of(number), self.tools.of(number)]
    }

    /// Returns the limit on the tokens of the answer, if it was noted with an iteration's request.
    pub fn most_output(&self, number: u64) -> Option<u64> {
        let (_, fields) = self.fields.of(number)?;
        let body = fields.as_map()?.get_named("body")?.as_map()?;
        find_most_output(body)?.as_count()
    }

    /// Returns the digest of the masks of an iteration's request; `None` where it had none.
    pub fn masks_of(&self, number: u64) -> Option<&Value> {
        let (_, digest) = self.masks.of(number)?;
        (digest.as_str() != Some(UNMASKED)).then_some(digest)
    }

    /// Returns the masks of an iteration's request, if they are those of today's view or those that were noted last:
    /// `Some(None)` where it had none.
    pub fn masks_at_hand<'a>(
        &'a self,
        number: u64,
        today: Option<&'a Arc<Masks>>,
    ) -> Option<Option<&'a Arc<Masks>>> {
        let Some(digest) = self.masks_of(number) else {
            return Some(None).filter(|_| self.systems.of(number).is_some());
        };
        let mut known = today.into_iter().chain(&self.asked_masks);
        known.find(|masks| digest_masks(masks) == *digest).map(Some)
    }

    /// Returns the masks of the last noted request, if the view has others.
    pub fn asked_masks(&self) -> Option<&Arc<Masks>> {
        self.asked_masks
            .as_ref()
            .filter(|masks| self.is_last(masks))
    }

    /// Keeps masks that a view does not have any more, if they are those of the last noted request.
    pub fn keep_masks(&mut self, masks: Option<Arc<Masks>>) {
        if let Some(masks) = masks.filter(|masks| self.is_last(masks)) {
            self.asked_masks = Some(masks);
        }
    }

    /// Returns the iterations since which any of the inputs was used that stand before an answer.
    pub fn starts(&self) -> BTreeSet<u64> {
        let noted = [&self.fields, &self.tools, &self.systems, &self.masks];
        let noted = noted.into_iter().flat_map(Since::starts);
        noted.chain(self.views.starts()).collect()
    }

    /// Returns the digest of a system prompt, which is mostly the one that was noted last.
    pub fn digest_of(&self, system: Option<&Arc<Message>>) -> Value {
        let last = self.systems.of(u64::MAX).map(|(_, last)| last.clone());
        let is_last = system.is_some() && is_one(self.last_system.as_ref(), system);
        let known = last.filter(|_| is_last);
        known.unwrap_or_else(|| digest(system.map(|system| &**system)))
    }

    /// Takes what was stored as the masks of the last noted request, which it may not be.
    pub fn put_asked_masks(&mut self, masks: Option<Arc<Masks>>) {
        self.asked_masks = None;
        self.keep_masks(masks);
    }

    fn is_last(&self, masks: &Masks) -> bool {
        self.masks_of(u64::MAX) == Some(&digest_masks(masks))
    }

    /// Notes the view of an iteration's request, the digest of its masks, and that of its system prompt.
    pub fn note(&mut self, number: u64, view: Option<Arc<View>>, system: Option<&Arc<Message>>) {
        if system.is_none() || !is_one(self.last_system.as_ref(), system) {
            self.last_system = system.cloned();
            let digest = digest(system.map(|system| &**system));
            self.systems.note(number, digest);
        }
        let masks = view.as_deref().and_then(|view| view.masks.as_ref());
        if masks.is_some() || self.masks_of(number).is_some() {
            let digest = masks.map_or(Value::text(UNMASKED), |masks| digest_masks(masks));
            self.masks.note(number, digest);
        }
        self.asked_masks = None;
        self.views.note(number, view);
    }

    /// Returns all notes but the views, in the order of the stored form.
    pub fn notes(&self) -> [&Since<Value>; 6] {
        [
            &self.fields,
            &self.tools,
            &self.systems,
            &self.sent,
            &self.masks,
            &self.rewound,
        ]
    }

    /// Returns the same notes, to add to them.
    pub fn notes_mut(&mut self) -> [&mut Since<Value>; 6] {
        [
            &mut self.fields,
            &mut self.tools,
            &mut self.systems,
            &mut self.sent,
            &mut self.masks,
            &mut self.rewound,
        ]
    }

    /// Returns the notes of an iteration that differ from those before.
    pub fn request_at(&self, number: u64) -> [Option<&Value>; 6] {
        self.notes().map(|noted| noted.at(number))
    }

    /// Drops the notes of requests from an iteration on.
    pub fn cut(&mut self, from: u64) {
        (self.last_system, self.beginning) = (None, None);
        for noted in self.notes_mut() {
            noted.cut(from);
        }
        self.views.cut(from);
        let asked = self.asked_masks.take();
        self.put_asked_masks(asked);
    }

    pub fn size(&self) -> Size {
        let notes = self.notes().into_iter();
        self.views.size().plus(notes.map(Since::size).sum())
    }

    /// Returns the first iteration whose notes differ from another conversation's.
    pub fn differs_at(&self, other: &Self) -> Option<u64> {
        let noted = self.notes().into_iter().zip(other.notes());
        let noted = noted.filter_map(|(own, other)| own.differs_at(other));
        noted.chain(self.views.differs_at(&other.views)).min()
    }
}

/// Returns true if both are the same value in memory, or neither is there.
pub(crate) fn is_one<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    a.map(Arc::as_ptr) == b.map(Arc::as_ptr)
}

/// Returns a digest of a system prompt; nil for none.
pub(crate) fn digest(system: Option<&Message>) -> Value {
    // Each request asks for it, also where there is no prompt.
    static NOTHING: LazyLock<Value> = LazyLock::new(|| to_value(Sha256::new()));
    let mut digest = Sha256::new();
    match system.map(|system| &system.content) {
        None | Some(Content::None) => return NOTHING.clone(),
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

/// Returns a digest of masks.
pub(crate) fn digest_masks(masks: &Masks) -> Value {
    Value::text(&masks.digest)
}

fn to_value(digest: Sha256) -> Value {
    Value::text(&short_digest(digest))
}

/// Replaces the values of a request's body by digests; the provider and the model that it asks stay readable.
pub(crate) fn hash_fields(fields: Value) -> Value {
    map_values(fields, |key, value| {
        let is_body = key.as_name() == Some("body");
        // Nested values may hold the application's words, such as a schema.
        let is_hashed = |value: &Value| is_body || matches!(value, Value::Map(_) | Value::List(_));
        map_values(value, |_, value| match is_hashed(&value) {
            true => digest_value(&value),
            false => value,
        })
    })
}

/// Returns tools with their names and with digests of the rest.
pub(crate) fn hash_tools(tools: Value) -> Value {
    let Value::List(tools) = tools else {
        return tools;
    };
    let hashed = tools.iter().map(|tool| {
        let name = tool.as_map().and_then(|tool| tool.get_named("name"));
        let name = name.map(|name| (Value::text("name"), name.clone()));
        let digest = (Value::text("digest"), digest_value(tool));
        Value::Map(Map::new(name.into_iter().chain([digest]).collect()))
    });
    Value::List(hashed.collect())
}

/// Returns whether two notes are of the same tools; either may have digests.
pub(crate) fn is_same_tools(one: &Value, other: &Value) -> bool {
    one == other || hash_tools(one.clone()) == *other || *one == hash_tools(other.clone())
}

/// Changes the values of a map; anything else stays as it is.
fn map_values(of: Value, change: impl Fn(&Value, Value) -> Value) -> Value {
    let Value::Map(map) = of else { return of };
    let entries = map.into_entries().into_iter();
    let changed = entries.map(|(key, value)| {
        let value = change(&key, value);
        (key, value)
    });
    Value::Map(Map::new(changed.collect()))
}

fn digest_value(value: &Value) -> Value {
    let mut digest = Sha256::new();
    digest.update(json::write(value));
    to_value(digest)
}

impl PartialEq for Inputs {
    fn eq(&self, other: &Self) -> bool {
        self.differs_at(other).is_none()
    }
}
