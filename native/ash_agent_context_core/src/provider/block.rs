//! One block of a message that is coming in: a text, a thought, a call, or a block of the provider's own.

use std::sync::Arc;

use rpds::ListSync;

use crate::fault::Fault;
use crate::log::call::{Arguments, Name, ToolCall};
use crate::log::kind::CallKind;
use crate::log::part::{Part, PartKind};
use crate::log::provider::Provider;
use crate::value::{Map, Value};

use super::node::{self, Node};
use super::rope::Rope;
use crate::provider::foreign;
use crate::value::letters;
use crate::value::steps;

/// The note with which the provider knows its own reasoning again.
pub(super) const SIGNATURE: &str = "signature";

/// The note that the provider keeps a block itself, set once the whole answer is there.
pub(crate) const STORED: &str = "store";

#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    pub(super) kind: BlockKind,
    /// Text, arguments or the input of a provider's own tool.
    pub(super) text: Rope,
    /// Its place among the parts or the calls; `None` until it has something to show.
    pub(super) number: Option<usize>,
    /// The number of parts that were shown when it was opened.
    pub(super) before: usize,
    /// True if it was shown after blocks behind it: it stands before them, with a number that one of them may have, too.
    pub(super) late: bool,
    /// True once the stream said that the block is complete.
    pub(super) done: bool,
    /// The provider metadata of the part, newest first; for an opaque block, its fields.
    pub(super) notes: ListSync<Note>,
    /// The index of the provider's piece of text that came last.
    pub(super) piece: u64,
}

/// A value of the provider metadata that a block is collecting.
#[derive(Debug, Clone)]
pub(super) struct Note {
    pub(super) name: &'static str,
    pub(super) value: Arc<Value>,
    /// True if it is an element of a list.
    pub(super) listed: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) enum BlockKind {
    #[default]
    Text,
    Thinking,
    /// Reasoning in encrypted form, which only its provider reads.
    Redacted,
    Call(Call),
    Opaque(Opaque),
    /// A part that came as a whole.
    Whole(Arc<Part>),
    /// An element of the notes on the model's thinking, whose text is still coming in.
    Detail {
        of: Arc<Map>,
        field: &'static str,
    },
}

impl BlockKind {
    pub const fn of_words(thinks: bool) -> Self {
        match thinks {
            true => Self::Thinking,
            false => Self::Text,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    pub(super) id: Box<str>,
    pub(super) kind: CallKind,
    pub(super) name: Box<str>,
    /// The number of parts before it.
    pub(super) before: usize,
    /// Arguments that came with the name.
    pub(super) seed: Option<Arc<Arguments>>,
    /// Arguments that came as values for paths, newest first.
    pub(super) pieces: ListSync<Arc<ArgumentPiece>>,
    pub(super) whole: Option<Arc<ToolCall>>,
}

impl Call {
    pub(super) fn with(&self, arguments: Arguments, metadata: Option<Map>) -> ToolCall {
        let (id, name) = (Some(self.id.clone()), Name::Text(self.name.clone()));
        foreign::call(id, name, arguments, metadata).of_kind(self.kind)
    }
}

/// A value for one place in a call's arguments.
#[derive(Debug)]
pub(crate) struct ArgumentPiece {
    pub path: Box<str>,
    pub value: Value,
}

/// A block of the provider's own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opaque {
    pub data: Arc<Map>,
    /// The key that its text belongs under: JSON, once it is complete.
    pub input: Option<&'static str>,
    /// The key of the object around it, if there is one.
    pub around: Option<&'static str>,
}

impl Block {
    /// Adds to a text. Returns `false` if the block is complete or has no text.
    pub(super) fn say(&mut self, text: &str) -> bool {
        let takes = !self.done && matches!(self.kind, BlockKind::Text | BlockKind::Thinking);
        if takes {
            self.text.push(text.as_bytes());
        }
        takes
    }

    /// Returns the provider metadata, if there is any.
    pub(super) fn metadata(
        &self,
        provider: Option<Provider>,
        asked: Option<&str>,
        always: bool,
    ) -> Option<Map> {
        let provider = provider?;
        if self.notes.is_empty() && !always {
            return None;
        }
        let model = asked.map(|asked| ("model", Value::text(asked)));
        let notes = model.into_iter().chain(gather(&self.notes));
        Some(foreign::metadata_with(provider, notes))
    }

    /// Returns what is known of a call that is not complete: its own fields, without a signature, which is that of the whole.
    pub(super) fn metadata_so_far(
        &self,
        provider: Option<Provider>,
        asked: Option<&str>,
    ) -> Option<Map> {
        let is_own = |note: &Note| note.name != SIGNATURE;
        self.notes.iter().find(|note| is_own(note))?;
        let known = self.metadata(provider, asked, false)?.into_entries();
        let known = known.into_iter();
        let known = known.filter(|(key, _)| key.as_name() != Some(SIGNATURE));
        Some(Map::new(known.collect()))
    }

    pub(super) fn part_of(
        &self,
        provider: Option<Provider>,
        asked: Option<&str>,
        is_complete: bool,
    ) -> Option<Part> {
        let is_text = matches!(self.kind, BlockKind::Text | BlockKind::Thinking);
        if is_text && self.text.is_empty() && self.notes.is_empty() {
            return None;
        }
        let is_stored = self.notes.iter().any(|note| note.name == STORED);
        if is_complete || (self.done && !is_stored) {
            return self.part(provider, asked);
        }
        // Without the signature and the id of a block that is not complete, or that its provider does not keep.
        let bare = (is_text && (self.done || !self.text.is_empty())).then(|| Self {
            notes: ListSync::default(),
            ..self.clone()
        });
        bare?.part(provider, asked)
    }

    pub(super) fn part(&self, provider: Option<Provider>, asked: Option<&str>) -> Option<Part> {
        let bytes = || self.text.join().into_boxed_slice();
        let (kind, always) = match &self.kind {
            BlockKind::Text => (PartKind::Text(bytes()), false),
            BlockKind::Thinking => (PartKind::Thinking(bytes()), true),
            BlockKind::Redacted => {
                let data = letters::utf8(&bytes()).into();
                (PartKind::RedactedThinking(data), true)
            }
            BlockKind::Whole(part) => return Some(Part::clone(part)),
            BlockKind::Call(_) | BlockKind::Opaque(_) | BlockKind::Detail { .. } => return None,
        };
        Some(foreign::part(kind, self.metadata(provider, asked, always)))
    }

    pub(super) fn opaque_part(&self, opaque: &Opaque, provider: Provider) -> Result<Part, Fault> {
        let mut data = Map::clone(&opaque.data);
        for (name, value) in gather(&self.notes) {
            data = data.put(Value::text(name), value);
        }
        if let (Some(key), false) = (opaque.input, self.text.is_empty()) {
            let bytes = self.text.join();
            let input = match node::read(&bytes, node::to_value) {
                Ok(input) => input,
                Err(Fault::TooDeep { limit }) => return Err(Fault::TooDeep { limit }),
                Err(_) => Value::Binary(bytes.into_boxed_slice()),
            };
            data = data.put(Value::text(key), input);
        }
        if let Some(around) = opaque.around {
            data = Map::new(vec![(Value::text(around), Value::Map(data))]);
        }
        Ok(foreign::own_block(provider, data))
    }

    /// Returns the call as far as it came. While the text of its arguments is not complete, it is kept as text.
    pub(super) fn call(
        &self,
        call: &Call,
        provider: Option<Provider>,
        asked: Option<&str>,
    ) -> ToolCall {
        if let Some(whole) = &call.whole {
            return ToolCall::clone(whole);
        }
        let is_text = call.kind == CallKind::Custom || !self.text.is_empty();
        let arguments = match call.pieces.is_empty() && is_text {
            true => Arguments {
                value: Value::Binary(self.text.join().into_boxed_slice()),
                json: None,
            },
            false => Arguments::default(),
        };
        call.with(arguments, self.metadata_so_far(provider, asked))
    }

    /// Returns whether it is a call with all of its arguments.
    pub(super) fn has_arguments(&self, is_text: bool) -> bool {
        let BlockKind::Call(call) = &self.kind else {
            return false;
        };
        let arguments = self.read_arguments(call, is_text);
        call.kind == CallKind::Custom || matches!(arguments.value, Value::Map(_))
    }

    pub(super) fn read_arguments(&self, call: &Call, is_text: bool) -> Arguments {
        if call.kind == CallKind::Custom {
            let text = Value::Binary(self.text.join().into_boxed_slice());
            return Arguments::of(call.kind, text).unwrap_or_default();
        }
        if self.text.is_empty() {
            return call.seed.as_deref().cloned().unwrap_or_default();
        }
        let bytes = self.text.join().into_boxed_slice();
        if is_text {
            return Arguments::from_json(bytes);
        }
        match node::read(&bytes, |node| arguments(Some(node))) {
            Ok(read) => read.unwrap_or_default(),
            Err(_) => Arguments {
                value: Value::Binary(bytes),
                json: None,
            },
        }
    }
}

/// Returns the notes, with those of a list put together.
pub(super) fn gather(notes: &ListSync<Note>) -> Vec<(&'static str, Value)> {
    let mut gathered: Vec<(&'static str, Vec<Value>, bool)> = Vec::new();
    for note in notes.iter() {
        steps::count(1);
        let known = gathered.iter_mut().find(|(name, ..)| *name == note.name);
        match known {
            Some((_, values, true)) if note.listed => values.push(Value::clone(&note.value)),
            Some(_) => {}
            None => {
                let value = Value::clone(&note.value);
                gathered.push((note.name, vec![value], note.listed));
            }
        }
    }
    let one = |(name, mut values, listed): (_, Vec<Value>, _)| {
        values.reverse();
        let value = match listed {
            true => Value::List(values.into_boxed_slice()),
            false => values.pop().unwrap_or(Value::Nil),
        };
        (name, value)
    };
    gathered.into_iter().map(one).collect()
}

/// Returns the arguments of a call, if there are any. Anything but an object is refused: a tool must not run without the
/// arguments that the model gave.
pub(crate) fn arguments(given: Option<&Node<'_>>) -> Result<Option<Arguments>, Fault> {
    let Some(given) = given.filter(|given| !given.is_nil()) else {
        return Ok(None);
    };
    let read = match given.as_str() {
        // Their JSON text, which requests may also have.
        Some(text) => Some(Arguments::from_json(text.as_bytes().into()))
            .filter(|read| matches!(read.value, Value::Map(_))),
        None => object(given),
    };
    let wrong = || Fault::unreadable("a tool call whose arguments are not an object");
    read.map(Some).ok_or_else(wrong)
}

/// Returns an object as arguments, in the order of its keys.
pub(crate) fn object(node: &Node<'_>) -> Option<Arguments> {
    match node {
        Node::Object(entries) if entries.is_empty() => Some(Arguments::default()),
        Node::Object(_) => {
            let json = node::to_text(node).into_bytes().into_boxed_slice();
            Some(Arguments::from_json(json))
        }
        _ => None,
    }
}
