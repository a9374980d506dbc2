//! Reads a provider's response: whole, or as a stream of bytes in any cut.
//!
//! A response is a value: feeding one returns a new one, and the old one stays as it was. It is added to a conversation when it
//! is complete, or when it broke off; see [`crate::Context::add_response`].

pub mod add;
mod framing;
pub(crate) mod push;

use std::sync::Arc;

use crate::error::Error;
use crate::fault::Fault;
use crate::log::call::ToolCall;
use crate::log::message::{Message, Role};
use crate::log::part::{Content, Place};
use crate::log::provider::Provider;
use crate::log::reply::Finish;
use crate::log::reply::Reply;
use crate::prices::bill::Report;
use crate::prices::usage::Usage;
use crate::provider::draft::{Draft, Drafted};
use crate::provider::event::Event;
use crate::provider::facts::Rule;
use crate::provider::framing::Framing;
use crate::provider::{node, room};
use crate::value::{Map, Value};

use framing::Frames;

/// The most bytes of a response, by default.
pub const MAX_BYTES: usize = 32 << 20;

/// The first byte of gzip, with which no answer begins.
const GZIP: u8 = 0x1f;

/// Responses of one stream share a token while they differ by fewer bytes than this.
const SEGMENT: usize = 256 << 10;

/// The options for reading a response.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// The provider that sends it.
    pub provider: Provider,
    /// The framing of its documents.
    pub framing: Framing,
    /// The model that was asked, kept for the next request to compare.
    pub model: Option<&'a str>,
    /// The most bytes that it may have.
    pub max_bytes: usize,
}

impl Reading<'_> {
    /// Returns the options for a stream of this provider.
    #[must_use]
    pub fn of(provider: Provider) -> Self {
        Self {
            provider,
            framing: room(provider).framing(),
            model: None,
            max_bytes: MAX_BYTES,
        }
    }
}

/// The state of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// More is to come.
    Open,
    /// The provider works on it, and returns it to a later request with its id.
    Queued,
    /// All of it came.
    Complete,
    /// It broke off, for this reason.
    Interrupted(Arc<Value>),
    /// The provider said that something went wrong, or sent what cannot be read.
    Failed(Fault),
}

impl State {
    /// Returns its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Queued => "queued",
            Self::Complete => "complete",
            Self::Interrupted(_) => "interrupted",
            Self::Failed(_) => "failed",
        }
    }
}

/// A provider's response, as far as it came. Immutable; cloning is O(1).
#[derive(Debug, Clone)]
pub struct Response {
    frames: Frames,
    draft: Draft,
    state: State,
    received: usize,
    max_bytes: usize,
    /// Shared with the responses that differ by less than a segment.
    segment: Option<Arc<()>>,
}

/// A response with more of its bytes, and the events in them.
type Fed = Result<(Response, Vec<Event>), Fault>;

/// A message that is given instead of a response.
#[derive(Debug)]
pub struct Given<'a> {
    /// Its text or parts, or nil.
    pub content: Value,
    /// Its calls.
    pub calls: Value,
    /// The report on tokens. One that cannot be read is left out: an answer is not lost for that.
    pub usage: Value,
    /// The model that answered.
    pub model: Option<&'a str>,
    /// Why the model stopped, by the name that [`Finish`] has for it or in any other word.
    pub finish: Option<&'a str>,
}

impl Response {
    /// Returns a response of which nothing came yet.
    #[must_use]
    pub fn new(reading: &Reading<'_>) -> Self {
        Self {
            frames: Frames::new(reading.framing),
            draft: Draft::new(reading.provider, reading.model),
            state: State::Open,
            received: 0,
            max_bytes: reading.max_bytes,
            segment: Some(Arc::default()),
        }
    }

    /// Returns a complete response with this message.
    ///
    /// # Errors
    /// [`Error::InvalidPart`], [`Error::InvalidToolCall`], [`Error::DuplicateToolCall`], [`Error::Invalid`].
    ///
    /// # Complexity
    /// O(n)
    pub fn from_message(given: Given<'_>) -> Result<Self, Error> {
        let content = Content::from_value(given.content, Place::Assistant)?;
        let calls = ToolCall::read_unnamed(given.calls)?;
        let nameless = |call: &ToolCall| call.name.as_str().is_empty();
        if let Some(position) = calls.iter().position(nameless) {
            let key = Value::atom("name");
            return Err(Error::InvalidToolCall { position, key });
        }
        let size = calls
            .iter()
            .fold(content.size(), |sum, call| sum.plus(call.size()));
        let mut response = Self::neutral(&Reading::of(Provider::default()));
        let draft = &mut response.draft;
        draft.start(None, given.model);
        draft.put_message(content, calls).map_err(Error::Response)?;
        draft.put_report(Report::read(&given.usage).ok(), given.finish);
        response.received = size.bytes.max(size.terms.saturating_mul(64));
        response.state = State::Complete;
        Ok(response)
    }

    /// Reads a whole response: the JSON text of a body.
    ///
    /// # Errors
    /// The provider's own error, or the part that cannot be read.
    ///
    /// # Complexity
    /// O(n)
    pub fn decode(body: &[u8], reading: &Reading<'_>) -> Result<Self, Fault> {
        let reading = Reading {
            framing: Framing::Json,
            ..*reading
        };
        let (response, _) = Self::new(&reading).feed(body, usize::MAX)?;
        response.finish(usize::MAX).map(|(response, _)| response)
    }

    /// Returns the response with the body's next bytes, and the events in them. `budget`: the most bytes to put together and
    /// parse at once.
    ///
    /// Bytes after the end are ignored.
    ///
    /// # Errors
    /// For bytes that cannot be taken: then the response is as it was. If some before them could be read, it returns a failed
    /// response instead, so that nothing is lost.
    /// [`Fault::TooMuchWork`] when the budget is too small.
    ///
    /// # Complexity
    /// O(new bytes), and those of the documents and calls that end in them
    pub fn feed(&self, bytes: &[u8], budget: usize) -> Result<(Self, Vec<Event>), Fault> {
        if !self.is_open()? {
            return Ok((self.clone(), Vec::new()));
        }
        if self.received == 0 && bytes.first() == Some(&GZIP) {
            return Err(Fault::unreadable(
                "it is compressed: ask for `accept-encoding: identity`, or decompress it first",
            ));
        }
        let mut next = self.receive(bytes.len())?;
        let Self { frames, draft, .. } = &mut next;
        draft.budget = budget;
        let mut is_first = true;
        let read = frames.feed(bytes, budget, &mut |event, bytes| {
            read(draft, event, bytes)?;
            is_first = false;
            Ok(())
        });
        next.settle(read, is_first)
    }

    /// Returns whether more can come.
    pub(crate) fn is_open(&self) -> Result<bool, Fault> {
        match &self.state {
            State::Interrupted(_) => Err(Fault::Interrupted),
            state => Ok(*state == State::Open),
        }
    }

    /// Returns the response with room for `bytes` more bytes, or an error if it would be too large.
    fn receive(&self, bytes: usize) -> Result<Self, Fault> {
        let received = self.received.saturating_add(bytes);
        if received > self.max_bytes {
            let limit = self.max_bytes;
            return Err(Fault::TooLarge { limit });
        }
        let mut next = self.clone();
        next.received = received;
        if received / SEGMENT > self.received / SEGMENT {
            next.segment = Some(Arc::default());
        }
        Ok(next)
    }

    /// Ends the body. For some providers that is the only end of a response.
    ///
    /// # Errors
    /// [`Fault::CutOff`] when the response is not complete; why it failed.
    pub fn finish(&self, budget: usize) -> Result<(Self, Vec<Event>), Fault> {
        if let State::Failed(fault) = &self.state {
            return Err(fault.clone());
        }
        if !self.is_open()? {
            return Ok((self.clone(), Vec::new()));
        }
        let mut next = self.clone();
        let Self { frames, draft, .. } = &mut next;
        draft.budget = budget;
        let mut ended = frames.finish(&mut |event, bytes| read(draft, event, bytes));
        // This is part of a document.
        if matches!(ended, Err(Fault::NotJson { .. })) {
            ended = Err(Fault::CutOff);
        }
        if ended.is_ok() && !draft.ended {
            ended = read_end(draft, frames.is_one());
        }
        let (next, events) = next.settle(ended, true)?;
        match next.state {
            State::Failed(Fault::CutOff) => Err(Fault::CutOff),
            _ => Ok((next, events)),
        }
    }

    /// Interrupts the response, for this reason. A complete or interrupted response stays as it is.
    #[must_use]
    pub fn interrupt(&self, reason: Value) -> Self {
        let mut next = self.clone();
        if matches!(self.state, State::Open | State::Queued | State::Failed(_)) {
            next.state = State::Interrupted(Arc::new(reason));
        }
        next
    }

    /// Releases what responses of one stream share, before a drop, and returns whether the drop is heavy: if several threads drop
    /// the last holders at the same time, exactly one gets `true`.
    pub fn let_go(&mut self) -> bool {
        let was_last = self.segment.take().and_then(Arc::into_inner).is_some();
        was_last && self.received > SEGMENT
    }

    /// `is_first`: no document was read before one that could not be.
    fn settle(mut self, read: Result<(), Fault>, is_first: bool) -> Fed {
        let mut events = std::mem::take(&mut self.draft.events);
        match read {
            Ok(()) if self.draft.ended => self.state = State::Complete,
            Ok(()) => {}
            Err(Fault::Queued) => self.state = State::Queued,
            Err(Fault::TooMuchWork) => return Err(Fault::TooMuchWork),
            Err(fault) => {
                if is_first && events.is_empty() && !matches!(fault, Fault::Provider { .. }) {
                    return Err(fault);
                }
                events.push(Event::Error(fault.clone()));
                self.state = State::Failed(fault);
            }
        }
        Ok((self, events))
    }

    /// Returns the provider that sends it.
    #[must_use]
    pub const fn provider(&self) -> Provider {
        self.draft.provider
    }

    /// Returns its state.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Returns the model that answers, as it names itself.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.draft.head.model.as_deref()
    }

    /// Returns the response's id.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.draft.head.id.as_deref()
    }

    /// Returns the provider's count so far.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        self.draft.report()
    }

    /// Returns the tokens of [`Response::report`].
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.report().map(|report| report.usage)
    }

    /// Returns why the model stopped.
    #[must_use]
    pub fn finish_reason(&self) -> Option<Finish> {
        self.draft.head.finish
    }

    /// Returns why the model stopped, in the provider's word.
    #[must_use]
    pub fn finish_word(&self) -> Option<&str> {
        self.draft.head.word.as_deref()
    }

    /// Returns other fields of the provider's answer, by its own names.
    #[must_use]
    pub fn details(&self) -> Option<Map> {
        self.draft.details()
    }

    /// Returns the number of bytes that came.
    #[must_use]
    pub const fn count_received(&self) -> usize {
        self.received
    }

    /// Returns the message as far as it came: its complete calls, and separately those that broke off.
    ///
    /// # Complexity
    /// O(n)
    #[must_use]
    pub fn message(&self) -> (Message, Box<[ToolCall]>) {
        let Drafted {
            content,
            calls,
            done,
        } = self.message_so_far();
        let (mut whole, mut half) = (Vec::new(), Vec::new());
        for (call, done) in calls.into_iter().zip(done) {
            if done { &mut whole } else { &mut half }.push(call);
        }
        let mut message = Message::new(Role::Assistant, content, whole.into_boxed_slice(), None);
        if !matches!(self.state, State::Open | State::Queued) {
            message = message.with_reply(self.reply());
        }
        (message, half.into_boxed_slice())
    }

    fn message_so_far(&self) -> Drafted {
        self.draft.message_so_far(self.state == State::Complete)
    }

    /// Returns the facts about the message: who answered, why the model stopped, and other fields.
    pub(crate) fn reply(&self) -> Option<Reply> {
        let reply = Reply {
            provider: (!self.draft.is_neutral).then(|| self.provider()),
            model: self.model().map(Into::into),
            id: self.id().map(Into::into),
            finish: self.finish_reason(),
            word: self.finish_word().map(Into::into),
            interrupted: match &self.state {
                State::Interrupted(reason) => Some(Value::clone(reason)),
                _ => None,
            },
            details: self.details(),
            ..Reply::default()
        };
        (reply != Reply::default()).then_some(reply)
    }
}

fn read(draft: &mut Draft, event: Option<&str>, bytes: &[u8]) -> Result<(), Fault> {
    if draft.ended {
        return Ok(());
    }
    let room = room(draft.provider);
    if bytes.trim_ascii() == b"[DONE]" {
        return match draft.provider.facts().has(Rule::SaysDone) {
            true => draft.end_without_reason(),
            false => Ok(()),
        };
    }
    node::read(bytes, |node| match event {
        // Some gateways mark an error only in the framing.
        Some("error") if node::get(node, "error").is_none() => {
            Err(Fault::of(node).unwrap_or_else(|| Fault::read(node)))
        }
        Some(name) => room.read_event(draft, name, node),
        None => room.read_response(draft, node),
    })
}

/// Ends the response with the body, as some providers do. A stream must say before why the model stopped; a whole answer need
/// not.
fn read_end(draft: &mut Draft, is_whole: bool) -> Result<(), Fault> {
    let says_why = draft.head.finish.is_some() || (is_whole && draft.count() > 0);
    match draft.provider.facts().has(Rule::EndsWithBody) && says_why {
        true => draft.end(),
        false => Err(Fault::CutOff),
    }
}
