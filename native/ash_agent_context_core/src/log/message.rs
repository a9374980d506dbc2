//! Messages, and the results of tools.

use std::borrow::Cow;

use crate::log::call::{Places, ToolCall};
use crate::log::late::Late;
use crate::log::marks::FactCounts;
use crate::log::memo::Memo;
use crate::log::original::Original;
use crate::log::part::{sum_parts, Content, Part, Place};
use crate::log::piece::Pieces;
use crate::log::provider::Provider;
use crate::log::reply::Reply;
use crate::log::tally::Tokens;
use crate::value::json;
use crate::value::letters;
use crate::value::time::Time;
use crate::value::word::words;
use crate::value::wording;
use crate::value::{Map, Size, Value};

words! {
    /// Who speaks.
    pub enum Role {
        /// The application.
        System = "system",
        /// The user.
        User = "user",
        /// The model.
        Assistant = "assistant",
    }
}

impl From<Role> for Place {
    fn from(role: Role) -> Self {
        match role {
            Role::System => Self::System,
            Role::User => Self::User,
            Role::Assistant => Self::Assistant,
        }
    }
}

/// A message; it never changes.
#[derive(Debug)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The text or the parts of the message.
    pub content: Content,
    /// The tools that the model wants to be run, in its order.
    pub calls: Box<[ToolCall]>,
    /// The application's own metadata.
    pub metadata: Option<Map>,
    /// The source of the model's message, and whether it is complete.
    pub reply: Option<Box<Reply>>,
    /// The form of its provider, if it was imported; see [`crate::import`].
    pub(crate) original: Option<Original>,
    /// Fields of a snapshot that this version does not know.
    pub(crate) extra: Option<Map>,
    size: Size,
    places: Places,
    pub(crate) pieces: Pieces,
    pub(crate) counts: Memo<Tokens>,
}

impl Message {
    pub(crate) fn new(
        role: Role,
        content: Content,
        calls: Box<[ToolCall]>,
        metadata: Option<Map>,
    ) -> Self {
        let size = metadata.as_ref().map_or(Size::new(3, 0), Map::size);
        let size = size.plus(content.size());
        let size = size.plus(calls.iter().map(ToolCall::size).sum());
        Self {
            role,
            content,
            calls,
            metadata,
            reply: None,
            original: None,
            extra: None,
            size,
            places: Places::default(),
            pieces: Pieces::default(),
            counts: Memo::default(),
        }
    }

    pub(crate) fn system(content: Content) -> Self {
        Self::new(Role::System, content, Box::default(), None)
    }

    #[inline]
    pub(crate) fn with_original(mut self, original: Option<Original>) -> Self {
        self.size = self.size.plus(original.iter().map(Original::size).sum());
        self.original = original;
        self
    }

    /// Returns true if its order is that of an answer of this provider, or of a request to it.
    pub(crate) fn is_as_given_by(&self, provider: Provider) -> bool {
        let replied = self.reply.as_ref().and_then(|reply| reply.provider);
        let original = self.original.as_ref().map(|original| original.provider);
        [replied, original].contains(&Some(provider))
    }

    #[inline]
    pub(crate) fn with_reply(mut self, reply: Option<Reply>) -> Self {
        self.size = self.size.plus(reply.iter().map(Reply::size).sum());
        self.reply = reply.map(Box::new);
        self
    }

    /// Returns true if a provider leaves the message out of its requests.
    pub(crate) fn is_left_out_by(&self, provider: Provider) -> bool {
        let reply = self.reply.as_ref();
        reply.and_then(|reply| reply.left_out_by()) == Some(provider)
    }

    /// Returns true if the message is the model's and nothing is left to do for it: it is complete, calls no tools, and its model
    /// neither goes on nor came to nothing.
    pub(crate) fn is_answer(&self) -> bool {
        let finish = self.reply.as_ref().and_then(|reply| reply.finish);
        let ends = finish.is_none_or(|finish| {
            let is_empty = finish.lacks_more() && self.content.is_wordless();
            !finish.goes_on() && !is_empty
        });
        self.role == Role::Assistant && self.calls.is_empty() && !self.is_interrupted() && ends
    }

    /// Returns true if it only holds a result that arrived late: no user said it.
    pub(crate) fn is_arrival(&self) -> bool {
        self.role == Role::User && !self.calls.is_empty()
    }

    /// Returns true if the message broke off before it was complete.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        let reply = self.reply.as_ref();
        reply.is_some_and(|reply| reply.interrupted.is_some())
    }

    /// Returns the message without its imported form, so that it is written by the rules.
    pub(crate) fn without_wire(&self) -> Self {
        let content = self.content.clone();
        let mut calls = self.calls.clone();
        for call in &mut calls {
            call.aliases.kept_by = None;
        }
        Self::new(self.role, content, calls, self.metadata.clone())
            .with_reply(self.reply.as_deref().cloned())
            .with_extra(self.extra.clone())
    }

    #[inline]
    pub(crate) fn with_extra(mut self, extra: Option<Map>) -> Self {
        self.size = self.size.plus(extra.iter().map(Map::size).sum());
        self.extra = extra;
        self
    }

    /// Returns the position of the call with this id.
    ///
    /// # Complexity
    /// O(log n), and O(n log n) once for many calls.
    pub(crate) fn find_call(&self, id: &str) -> Option<usize> {
        self.places.find(&self.calls, id)
    }

    /// Returns how much there is to walk and to copy.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.role == other.role
            && self.content == other.content
            && self.calls == other.calls
            && self.metadata == other.metadata
            && self.reply == other.reply
            && self.original == other.original
            && self.extra == other.extra
    }
}

// Also lets `Arc<Message>` compare by address first.
impl Eq for Message {}

words! {
    /// How a tool call ended.
    pub enum Status {
        /// With a result.
        Ok = "ok",
        /// With an error.
        Error = "error",
        /// Not at all: the run was interrupted.
        Interrupted = "interrupted",
        /// Not at all: it was called off.
        Cancelled = "cancelled",
        /// Not at all: it was denied before it ran.
        Denied = "denied",
        /// It was started, and how it ended is not known.
        Unknown = "unknown",
        /// Not yet: its result comes later.
        Waiting = "waiting",
    }
}

/// So many characters of an error's kind are kept.
const ERROR_TYPE: usize = 200;

/// The result of a tool call.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How the call ended.
    pub status: Status,
    /// The result, or the reason of the error.
    pub output: Output,
    /// The times at which the tool started and ended, where they are known.
    pub ran: Option<(Time, Time)>,
    /// The kind of error, such as the name of an exception.
    pub error_type: Option<Box<str>>,
    /// The arguments that a person wrote in the place of the model's, which reads of them before the result. With parts, that is the
    /// first of these.
    pub(crate) edited: Option<Value>,
    /// What its call waits for, and how it came, if it is late.
    pub late: Option<Box<Late>>,
    /// Fields of a snapshot that this version does not know.
    pub(crate) extra: Option<Map>,
    /// The text for the model, where it differs from the output. Made with the result, so that reading a conversation copies
    /// nothing.
    text: Option<Box<str>>,
    size: Size,
    /// What its text has, as each of some masks shows it.
    pub(crate) facts: Memo<FactCounts>,
}

/// A result for the application and its form for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Any term; the model gets text.
    Value(Value),
    /// Parts; the model gets them as they are.
    Parts(Box<[Part]>),
}

impl Output {
    /// Returns whether an object in it, however deep, has this key.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        let mut open = match self {
            Self::Value(value) => vec![value],
            Self::Parts(_) => return false,
        };
        while let Some(value) = open.pop() {
            match value {
                Value::Map(map) if map.get_named(key).is_some() => return true,
                Value::Map(map) => open.extend(map.iter().map(|(_, inside)| inside)),
                Value::List(items) | Value::Tuple(items) => open.extend(items.iter()),
                _ => {}
            }
        }
        false
    }

    /// Returns the parts, if it is made of them.
    pub(crate) fn parts(&self) -> &[Part] {
        match self {
            Self::Parts(parts) => parts,
            Self::Value(_) => &[],
        }
    }
}

impl Outcome {
    pub(crate) fn new(status: Status, output: Output) -> Self {
        let size = match &output {
            Output::Value(value) => value.size(),
            Output::Parts(parts) => sum_parts(parts),
        };
        Self {
            status,
            ran: None,
            error_type: None,
            edited: None,
            late: None,
            extra: None,
            text: describe(status, &output),
            output,
            size: size.plus(Size::new(8, 0)),
            facts: Memo::default(),
        }
    }

    pub(crate) fn with_extra(mut self, extra: Option<Map>) -> Self {
        self.size = self.size.plus(extra.iter().map(Map::size).sum());
        self.extra = extra;
        self
    }

    pub(crate) fn with_late(mut self, late: Option<Late>) -> Self {
        self.size = self.size.plus(late.iter().map(Late::size).sum());
        self.late = late.map(Box::new);
        self
    }

    /// Returns the result of a call whose arguments a person has changed.
    pub(crate) fn of_edited(mut self, edited: Option<&Value>) -> Self {
        if let (Some(edited), Output::Parts(parts)) = (edited, &mut self.output) {
            let first = Part::text(tell_edited(edited).into_bytes().into());
            self.size = self.size.plus(first.size());
            let parts = std::mem::take(parts).into_vec();
            self.output = Output::Parts(std::iter::once(first).chain(parts).collect());
        }
        self.with_edited(edited.cloned())
    }

    /// The same if parts have the words about it already.
    pub(crate) fn with_edited(mut self, edited: Option<Value>) -> Self {
        if let Some(edited) = edited {
            self.size = self.size.plus(edited.size());
            self.text = self.text_beside(&edited).map(Into::into);
            self.edited = Some(edited);
        }
        self
    }

    /// Returns the text for the model with these arguments that a person wrote.
    pub(crate) fn text_beside(&self, edited: &Value) -> Option<String> {
        let text = match (describe(self.status, &self.output), &self.output) {
            (Some(text), _) => text.into_string().into(),
            (None, Output::Value(Value::Binary(bytes))) => letters::utf8(bytes),
            _ => return None,
        };
        Some(format!("{}\n\n{text}", tell_edited(edited)))
    }

    pub(crate) const fn with_times(mut self, ran: Option<(Time, Time)>) -> Self {
        self.ran = ran;
        self
    }

    /// Returns the result with the kind of its error, cut to [`ERROR_TYPE`] characters.
    pub(crate) fn with_error_type(mut self, error_type: Option<&str>) -> Self {
        let cut = |name: &str| name.chars().take(ERROR_TYPE).collect::<String>().into();
        self.error_type = error_type.filter(|_| self.is_error()).map(cut);
        let bytes = self.error_type.as_deref().map_or(0, str::len);
        self.size = self.size.plus(Size::new(0, bytes));
        self
    }

    /// Returns true if the model is told of an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        !matches!(self.status, Status::Ok | Status::Waiting)
    }

    /// Returns the result if it may go as an object, without words before it.
    pub(crate) fn as_object(&self) -> Option<&Map> {
        match &self.output {
            Output::Value(Value::Map(map)) if !self.is_error() && self.edited.is_none() => {
                Some(map)
            }
            _ => None,
        }
    }

    /// Returns how much there is to walk and to copy.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    /// Returns the bytes of text that the model reads.
    pub(crate) fn longest(&self) -> usize {
        match &self.output {
            Output::Parts(parts) => parts.iter().map(Part::text_bytes).sum(),
            Output::Value(_) => self.text().map_or(0, <[u8]>::len),
        }
    }

    /// Returns the text for the model; nothing when it gets parts.
    pub(crate) fn words(&self) -> Cow<'_, str> {
        letters::utf8(self.text().unwrap_or_default())
    }

    /// Returns the text for the model: text as it is, an error in words, anything else as JSON, and "(no output)" for
    /// nothing; always UTF-8. `None` when it gets parts.
    #[must_use]
    pub fn text(&self) -> Option<&[u8]> {
        match (&self.output, &self.text) {
            (_, Some(text)) => Some(text.as_bytes()),
            (Output::Value(Value::Binary(bytes)), None) => Some(bytes),
            _ => None,
        }
    }
}

/// Returns what the model is told of a call whose arguments a person has changed.
pub(crate) fn tell_edited(edited: &Value) -> String {
    let edited = match edited {
        Value::Binary(text) => letters::utf8(text),
        edited => json::write(edited).into(),
    };
    format!("A person changed the arguments of this call to: {edited}")
}

/// Returns the text of a result that is not text itself.
fn describe(status: Status, output: &Output) -> Option<Box<str>> {
    let text = match output {
        Output::Parts(_) => return None,
        Output::Value(Value::Nil) => String::new(),
        Output::Value(Value::Binary(bytes)) if is_said(bytes) => return None,
        Output::Value(Value::Binary(bytes)) => match letters::utf8(bytes) {
            Cow::Borrowed(text) if !text.trim().is_empty() => return None,
            text => text.into_owned(),
        },
        Output::Value(value) if status == Status::Ok => json::write(value),
        Output::Value(value) => wording::reason(value),
    };
    if text.trim().is_empty() {
        return Some(wording::NO_OUTPUT.into());
    }
    Some(text.into())
}

/// Returns true if bytes are surely a text that is not blank: most are ASCII, which takes half the time to see.
fn is_said(bytes: &[u8]) -> bool {
    let is_blank = |byte: &u8| char::from(*byte).is_whitespace();
    bytes.is_ascii() && !bytes.iter().all(is_blank)
}
