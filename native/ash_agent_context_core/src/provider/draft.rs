//! A response as far as it came, which the readers of all providers fill.
//!
//! Its values are shared with older versions of the response, so that adding a piece costs only that piece.

use std::collections::HashSet;
use std::sync::Arc;

use rpds::{HashTrieMapSync, ListSync, VectorSync};

use crate::fault::Fault;
use crate::log::call::{Arguments, ToolCall};
use crate::log::kind::CallKind;
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::log::reply::Finish;
use crate::prices::bill::Report;
use crate::value::{letters, steps, Map, Value};

use super::block::{ArgumentPiece, Block, BlockKind, Call, Note, Opaque, SIGNATURE};
use super::event::Event;
use super::facts::Rule;
use super::foreign::{self, join_details, metadata, order_calls, part};
use super::rope::Rope;

/// The most fields that an element of the notes on thinking may have.
const FIELDS: usize = 20;

/// The key of the last element of the notes on thinking.
const DETAIL: Key = Key::Only("detail");

/// The key by which a provider names a block. Never a position that we count: providers skip and reuse them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// For a kind of which there is one block.
    Only(&'static str),
    /// A block's index.
    Index(u64),
    /// A part of an item.
    Piece(u64, u64),
    /// An item that came as a whole.
    Whole(u64),
    Id(Box<str>),
    /// The index of a call.
    Call(u64),
    /// The n-th block, for one that has no other key.
    Nth(usize),
}

/// The facts about the response as a whole, which rarely change.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnswerHead {
    pub asked: Option<Box<str>>,
    pub model: Option<Box<str>>,
    pub id: Option<Box<str>>,
    pub finish: Option<Finish>,
    pub word: Option<Box<str>>,
    pub usage: Option<Report>,
    pub tier: Option<Box<str>>,
    /// Counts that are reported one by one.
    pub counted: Map,
    pub refused: bool,
    /// Other fields of the answer. Shared, since older versions of the head have them as well.
    pub details: Vec<(&'static str, Arc<Value>)>,
    /// Elements of lists that come one by one, newest first.
    pub(super) listed: ListSync<Note>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Draft {
    pub provider: Provider,
    /// True if its provider is not known: then no part names one.
    pub is_neutral: bool,
    pub head: Arc<AnswerHead>,
    pub(super) blocks: VectorSync<Block>,
    keys: HashTrieMapSync<Key, usize>,
    last: Option<(Key, usize)>,
    pub(super) parts: usize,
    pub(super) calls: usize,
    /// The number of a part that is kept for the model's thinking, since notes on it came first.
    thought: Option<usize>,
    /// The number of calls so far when a model last declined, and of blocks that were looked at then.
    pub(super) declined: usize,
    pub(super) looked: usize,
    /// The index of the first block of the answer that is coming in.
    begun: usize,
    /// True once the stream said that this is all.
    pub ended: bool,
    /// Events since the response was last fed.
    pub events: Vec<Event>,
    /// The most bytes to parse at once.
    pub budget: usize,
}

/// The message of a response, to put on a conversation.
#[derive(Debug)]
pub(crate) struct Drafted {
    pub content: Content,
    pub calls: Vec<ToolCall>,
    /// True for each call that is complete.
    pub done: Vec<bool>,
}

impl Draft {
    pub fn new(provider: Provider, asked: Option<&str>) -> Self {
        let asked = asked.map(Into::into);
        Self {
            provider,
            head: Arc::new(AnswerHead {
                asked,
                ..AnswerHead::default()
            }),
            budget: usize::MAX,
            ..Self::default()
        }
    }

    /// Puts a message that came as a whole from elsewhere.
    pub fn put_message(&mut self, content: Content, calls: Vec<ToolCall>) -> Result<(), Fault> {
        for part in foreign::into_parts(content) {
            self.put_part(self.next_key(), part);
        }
        for call in calls {
            self.put_call(&self.next_key(), call)?;
        }
        self.ended = true;
        Ok(())
    }

    /// Returns the number of blocks of any kind.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// Notes why the model stopped, where this also completes the blocks that are open.
    pub fn finish_all(&mut self, reason: Finish, word: &str) -> Result<(), Fault> {
        if self.head.finish.is_none() {
            self.close_all(reason.breaks_off())?;
        }
        self.finish(reason, word);
        Ok(())
    }

    /// Ends the response with the stream's last word. A call is complete if the stream said so, or said why the model stopped.
    pub fn end(&mut self) -> Result<(), Fault> {
        self.ended = true;
        self.settle_refusal();
        self.close_where(|_, block| {
            !matches!(block.kind, BlockKind::Call(_) | BlockKind::Opaque(_))
        })
    }

    /// Ends the response where the last word may not say why the model stopped: then the open calls with complete arguments count
    /// as complete.
    pub fn end_without_reason(&mut self) -> Result<(), Fault> {
        if self.head.finish.is_none() {
            let is_long = |block: &Block| !block.done && block.text.len() > self.budget;
            if self.blocks.iter().any(is_long) {
                return Err(Fault::TooMuchWork);
            }
            let is_text = self.provider.facts().has(Rule::TextArguments);
            self.close_where(|_, block| block.has_arguments(is_text))?;
        }
        self.end()
    }

    pub(super) fn find(&mut self, key: &Key) -> Option<usize> {
        if let Some((last, at)) = &self.last {
            if last == key {
                return Some(*at);
            }
        }
        let at = match key {
            Key::Nth(at) => Some(*at).filter(|at| *at < self.blocks.len())?,
            key => *self.keys.get(key)?,
        };
        self.last = Some((key.clone(), at));
        Some(at)
    }

    pub(super) fn block(&mut self, key: &Key) -> Option<&mut Block> {
        let at = self.find(key)?;
        self.blocks.get_mut(at)
    }

    /// Returns whether a key has a block, or was marked.
    pub fn knows(&self, key: &Key) -> bool {
        self.keys.contains_key(key)
    }

    /// Returns whether there is a complete block under a key.
    pub fn is_done(&mut self, key: &Key) -> bool {
        self.block(key).is_some_and(|block| block.done)
    }

    /// Gives a block another key.
    pub fn name_also(&mut self, key: &Key, also: Key) {
        if let Some(at) = self.find(key) {
            self.keys.insert_mut(also, at);
            self.last = None;
        }
    }

    /// Remembers a key, for a block that is not kept.
    pub fn mark(&mut self, key: Key) {
        self.keys.insert_mut(key, usize::MAX);
    }

    pub(super) fn open(&mut self, key: Key, kind: BlockKind) -> usize {
        let at = self.blocks.len();
        self.blocks.push_back_mut(Block {
            kind,
            before: self.parts,
            ..Block::default()
        });
        if !matches!(key, Key::Nth(_)) {
            self.keys.insert_mut(key.clone(), at);
        }
        self.last = Some((key, at));
        at
    }

    fn find_or_open(&mut self, key: Key, kind: BlockKind) -> usize {
        let known = self.find(&key);
        known.unwrap_or_else(|| self.open(key, kind))
    }

    /// Gives the part its place, if it has none, and returns it.
    pub(super) fn show(&mut self, at: usize) -> usize {
        let next = self.parts;
        let Some(block) = self.blocks.get_mut(at) else {
            return next;
        };
        if matches!(block.kind, BlockKind::Thinking) && block.number.is_none() {
            block.number = self.thought.take();
        }
        let number = *block.number.get_or_insert(next);
        if number == next {
            self.parts += 1;
        }
        number
    }

    /// Adds to a text; the first piece opens it.
    pub fn text(&mut self, key: Key, text: &str) {
        self.say(key, text, false);
    }

    /// Adds to the model's reasoning.
    pub fn thinking(&mut self, key: Key, text: &str) {
        self.say(key, text, true);
    }

    /// Adds to reasoning if `thinks`, else to a text.
    pub fn say(&mut self, key: Key, text: &str, thinks: bool) {
        let at = match self.find(&key) {
            Some(at) => at,
            None if text.is_empty() => return,
            None => self.open(key, BlockKind::of_words(thinks)),
        };
        if text.is_empty() || !self.blocks.get_mut(at).is_some_and(|block| block.say(text)) {
            return;
        }
        let part = self.show(at);
        let text = text.into();
        self.events.push(match thinks {
            true => Event::Thinking { part, text },
            false => Event::Text { part, text },
        });
    }

    /// Opens reasoning if it `thinks`, else a text; either may stay empty.
    pub fn open_words(&mut self, key: &Key, thinks: bool) {
        self.find_or_open(key.clone(), BlockKind::of_words(thinks));
    }

    /// Returns the bytes of the text under a key.
    pub fn length(&mut self, key: &Key) -> usize {
        self.block(key).map_or(0, |block| block.text.len())
    }

    /// Begins another piece of a text, with an empty line after the one before.
    pub fn next_piece(&mut self, key: &Key, piece: u64) {
        let Some(block) = self.block(key) else { return };
        if block.piece != piece {
            block.piece = piece;
            if !block.text.is_empty() {
                let thinks = matches!(block.kind, BlockKind::Thinking);
                self.say(key.clone(), "\n\n", thinks);
            }
        }
    }

    /// Replaces the text under a key.
    pub fn put_text(&mut self, key: Key, text: &str, thinks: bool) {
        let known = match self.block(&key) {
            Some(block) if block.done => return,
            Some(block) => block.text.join(),
            None => Vec::new(),
        };
        match text.as_bytes().strip_prefix(&*known) {
            Some(rest) => {
                let rest = std::str::from_utf8(rest).unwrap_or_default();
                self.say(key, rest, thinks);
            }
            // The provider replaced the text; whoever watches has seen the earlier one.
            None => {
                if let Some(block) = self.block(&key) {
                    block.text = Rope::default();
                    block.text.push(text.as_bytes());
                }
            }
        }
    }

    /// Adds to encrypted reasoning.
    pub fn add_redacted(&mut self, key: Key, data: &str) {
        let at = self.find_or_open(key, BlockKind::Redacted);
        if let Some(block) = self.blocks.get_mut(at).filter(|block| !block.done) {
            block.kind = BlockKind::Redacted;
            block.text.push(data.as_bytes());
        }
    }

    /// Adds a value to the block's provider metadata; a later one of the same name replaces it.
    pub fn note(&mut self, key: &Key, name: &'static str, value: Value) {
        self.add_note(key, name, value, false);
    }

    /// Adds a signature, unless it is empty. That of reasoning may come when the stream has said that the block is complete.
    pub fn sign(&mut self, key: &Key, signature: Option<&str>) {
        let Some(signature) = signature.filter(|signature| !signature.is_empty()) else {
            return;
        };
        let of_thought = |block: &&mut Block| matches!(block.kind, BlockKind::Thinking);
        let open = self.block(key).filter(of_thought);
        let was_done = open.is_some_and(|block| std::mem::take(&mut block.done));
        self.note(key, SIGNATURE, Value::text(signature));
        if let Some(block) = self.block(key).filter(|_| was_done) {
            block.done = true;
        }
    }

    /// Adds several values to the block's provider metadata.
    pub fn note_all(&mut self, key: &Key, notes: Vec<(&'static str, Value)>) {
        for (name, value) in notes {
            self.note(key, name, value);
        }
    }

    /// Adds an element to a list in the block's provider metadata.
    pub fn note_more(&mut self, key: &Key, name: &'static str, value: Value) {
        self.add_note(key, name, value, true);
    }

    fn add_note(&mut self, key: &Key, name: &'static str, value: Value, listed: bool) {
        let Some(at) = self.find(key) else { return };
        let is_last = at + 1 == self.blocks.len();
        let Some(block) = self.blocks.get_mut(at).filter(|block| !block.done) else {
            return;
        };
        let value = Arc::new(value);
        block.notes.push_front_mut(Note {
            name,
            value,
            listed,
        });
        if matches!(block.kind, BlockKind::Thinking) {
            match (block.number, is_last) {
                (None, false) => (block.number, block.late) = (Some(block.before), true),
                _ => _ = self.show(at),
            }
        }
    }

    /// Shows a part although it has no text.
    pub fn show_empty(&mut self, key: &Key) {
        if let Some(at) = self.find(key) {
            self.show(at);
        }
    }

    /// Opens a block of the provider's own.
    pub fn open_opaque(&mut self, key: Key, opaque: Opaque) {
        let at = self.open(key, BlockKind::Opaque(opaque));
        self.show(at);
    }

    /// Puts a whole part in the place of its pieces so far.
    pub fn put_part(&mut self, key: Key, part: Part) {
        let at = self.find_or_open(key, BlockKind::Text);
        let part = Arc::new(self.with_model(part));
        if let Some(block) = self.blocks.get_mut(at).filter(|block| !block.done) {
            block.kind = BlockKind::Whole(part.clone());
            block.done = true;
            self.show(at);
            self.events.push(Event::Part(Part::clone(&part)));
        }
    }

    /// Adds the model that was asked to the part, so that the next request can compare it.
    fn with_model(&self, mut part: Part) -> Part {
        if let (Some(metadata), Some(asked)) = (&part.provider_metadata, &self.head.asked) {
            let metadata = metadata.put(Value::atom("model"), Value::text(asked));
            part.provider_metadata = Some(metadata);
        }
        part
    }

    /// Returns a key for a block that has none of its own.
    pub fn next_key(&self) -> Key {
        Key::Nth(self.blocks.len())
    }

    /// Returns the key of the last block, if it is a text or reasoning that can go on.
    pub fn last_text(&self, thinks: bool) -> Option<Key> {
        let at = self.blocks.len().checked_sub(1)?;
        let block = self.blocks.get(at).filter(|block| !block.done)?;
        let goes_on = match block.kind {
            BlockKind::Text => !thinks,
            BlockKind::Thinking => thinks,
            _ => false,
        };
        goes_on.then_some(Key::Nth(at))
    }

    /// Adds an element to the notes on the model's thinking, or goes on with the last one if that is of the same kind.
    pub fn detail(&mut self, of: Map, field: &'static str, text: &str) {
        let same = |a: &Map, b: &Map, name: &str| a.get_named(name) == b.get_named(name);
        if let Some(Block {
            kind:
                BlockKind::Detail {
                    of: known,
                    field: last,
                },
            text: so_far,
            ..
        }) = self.block(&DETAIL)
        {
            if *last == field && same(known, &of, "type") && same(known, &of, "index") {
                so_far.push(text.as_bytes());
                let given = |(_, value): &&(Value, Value)| !matches!(value, Value::Nil);
                let more = of.iter().filter(given);
                let mut news = more.clone();
                let adds = news.any(|(key, value)| known.get(key) != Some(value));
                if adds && known.len() < FIELDS {
                    let entries = known.iter().chain(more).cloned().collect();
                    *known = Arc::new(Map::new(entries));
                }
                return;
            }
        }
        let of = Arc::new(of);
        let is_first = !self.knows(&DETAIL);
        let at = self.open(DETAIL, BlockKind::Detail { of, field });
        let thinks =
            |block: &Block| block.number.is_some() && matches!(block.kind, BlockKind::Thinking);
        if is_first && !self.blocks.iter().any(thinks) {
            self.thought = Some(self.show(at));
        }
        if let Some(block) = self.blocks.get_mut(at) {
            block.text.push(text.as_bytes());
        }
    }

    pub(super) fn check_budget(&mut self, key: &Key) -> Result<(), Fault> {
        let budget = self.budget;
        match self.block(key) {
            Some(block) if block.text.len() > budget => Err(Fault::TooMuchWork),
            _ => Ok(()),
        }
    }

    /// Completes a block, as the stream says.
    pub fn close(&mut self, key: &Key) -> Result<(), Fault> {
        self.check_budget(key)?;
        let (provider, head) = (self.provider, self.head.clone());
        let is_text = provider.facts().has(Rule::TextArguments);
        let asked = head.asked.as_deref();
        let Some(at) = self.find(key) else {
            return Ok(());
        };
        let Some(block) = self.blocks.get_mut(at).filter(|block| !block.done) else {
            return Ok(());
        };
        match &block.kind {
            BlockKind::Call(call) if call.name.is_empty() => return Ok(()),
            BlockKind::Call(call) => {
                let whole = call.whole.clone().unwrap_or_else(|| {
                    let arguments = block.read_arguments(call, is_text);
                    Arc::new(call.with(arguments, block.metadata(Some(provider), asked, false)))
                });
                block.done = true;
                self.events.push(Event::Call(ToolCall::clone(&whole)));
                if let BlockKind::Call(call) = &mut block.kind {
                    call.whole = Some(whole);
                }
            }
            BlockKind::Opaque(opaque) => {
                let part = block.opaque_part(opaque, provider)?;
                block.done = true;
                block.kind = BlockKind::Whole(Arc::new(part.clone()));
                self.events.push(Event::Part(part));
            }
            BlockKind::Redacted => {
                let part = block.part(Some(provider), asked);
                block.done = true;
                self.show(at);
                self.events.extend(part.map(Event::Part));
            }
            _ => block.done = true,
        }
        Ok(())
    }

    /// Completes the message and its open blocks. If the model was `stopped` in the middle, the call that it was making stays
    /// incomplete.
    pub fn close_all(&mut self, stopped: bool) -> Result<(), Fault> {
        let open = |block: &Block| !block.done && matches!(block.kind, BlockKind::Call(_));
        let last_call = self.blocks.iter().rposition(open).filter(|_| stopped);
        self.close_where(|at, _| Some(at) != last_call)
    }

    /// Begins another answer after one that broke off. Its blocks may have the same keys; the words so far stay.
    pub fn begin_again(&mut self) {
        for at in self.begun..self.blocks.len() {
            steps::count(1);
            let Some(block) = self.blocks.get_mut(at).filter(|block| !block.done) else {
                continue;
            };
            block.notes = ListSync::default();
            block.done = true;
            if matches!(
                block.kind,
                BlockKind::Call(_) | BlockKind::Opaque(_) | BlockKind::Redacted
            ) {
                block.kind = BlockKind::Text;
                block.text = Rope::default();
                block.number = None;
            }
        }
        self.begun = self.blocks.len();
        self.keys = HashTrieMapSync::default();
        self.last = None;
    }

    /// Completes the open blocks for which this is true, by their place and what they have.
    fn close_where(&mut self, closes: impl Fn(usize, &Block) -> bool) -> Result<(), Fault> {
        let blocks = self.blocks.iter().enumerate();
        let open = blocks
            .inspect(|_| steps::count(1))
            .filter(|(_, block)| !block.done);
        let meant = open.filter(|(at, block)| closes(*at, block));
        let meant: Vec<usize> = meant.map(|(at, _)| at).collect();
        meant
            .into_iter()
            .try_for_each(|at| self.close(&Key::Nth(at)))
    }

    /// Opens a call of a function. It shows once its name is there.
    pub fn open_call(&mut self, key: Key, id: Option<&str>, name: Option<&str>) {
        self.open_call_of(CallKind::Function, key, id, name);
    }

    /// Opens a call of any kind.
    pub fn open_call_of(&mut self, kind: CallKind, key: Key, id: Option<&str>, name: Option<&str>) {
        let call = Call {
            id: id.unwrap_or_default().into(),
            kind,
            ..Call::default()
        };
        self.open(key.clone(), BlockKind::Call(call));
        if let Some(name) = name {
            self.name_call(&key, name);
        }
    }

    /// Sets a call's name, if it has none.
    pub fn name_call(&mut self, key: &Key, name: &str) {
        let (position, before) = (self.calls, self.parts);
        let Some(Block {
            kind: BlockKind::Call(call),
            number,
            text,
            ..
        }) = self.block(key)
        else {
            return;
        };
        if name.is_empty() || !call.name.is_empty() {
            return;
        }
        call.name = name.into();
        call.before = before;
        *number = Some(position);
        let waiting = text.join();
        self.calls += 1;
        let name = name.into();
        self.events.push(Event::CallStarted { position, name });
        let json = letters::utf8(&waiting);
        if !json.is_empty() {
            let json = json.into();
            self.events.push(Event::CallArguments { position, json });
        }
    }

    /// Sets a call's id, if it has none.
    pub fn identify_call(&mut self, key: &Key, id: &str) {
        let call = self.call_at(key, true);
        if let Some(call) = call.filter(|call| call.id.is_empty()) {
            call.id = id.into();
        }
    }

    pub fn id_of_call(&mut self, key: &Key) -> Option<&str> {
        self.call_at(key, false).map(|call| &*call.id)
    }

    pub fn name_of_call(&mut self, key: &Key) -> Option<&str> {
        self.call_at(key, false).map(|call| &*call.name)
    }

    fn call_at(&mut self, key: &Key, is_open: bool) -> Option<&mut Call> {
        let block = self.block(key)?;
        match &mut block.kind {
            BlockKind::Call(call) if !(is_open && block.done) => Some(call),
            _ => None,
        }
    }

    /// Returns whether a text begins the arguments anew although those of the call look complete.
    pub fn restarts(&mut self, key: &Key, json: Option<&str>) -> bool {
        let last = self.block(key).and_then(|block| block.text.last());
        last == Some(b'}') && json.is_some_and(|json| json.starts_with('{'))
    }

    /// Adds text to a call's arguments. Some servers send all of it again at the end.
    pub fn arguments(&mut self, key: &Key, json: &str) {
        let Some(block) = self.block(key).filter(|block| !block.done) else {
            return;
        };
        if !matches!(block.kind, BlockKind::Call(_) | BlockKind::Opaque(_)) || json.is_empty() {
            return;
        }
        let repeats = json.starts_with('{') && block.text.last() == Some(b'}');
        if repeats && block.text.is(json.as_bytes()) {
            return;
        }
        block.text.push(json.as_bytes());
        let position = block
            .number
            .filter(|_| matches!(block.kind, BlockKind::Call(_)));
        if let Some(position) = position {
            let json = json.into();
            self.events.push(Event::CallArguments { position, json });
        }
    }

    /// Keeps arguments that came with the name of a call.
    pub fn seed_arguments(&mut self, key: &Key, arguments: Arguments) {
        if let Some(call) = self.call_at(key, false) {
            call.seed = Some(Arc::new(arguments));
        }
    }

    /// Adds a value for one place of a call's arguments.
    pub fn push_piece(&mut self, key: &Key, piece: ArgumentPiece) {
        if let Some(Block {
            kind: BlockKind::Call(call),
            done: false,
            text,
            ..
        }) = self.block(key)
        {
            call.pieces.push_front_mut(Arc::new(piece));
            // Counts for putting the pieces together later.
            text.push(&[0; 16]);
        }
    }

    /// Returns the pieces of a call's arguments, oldest first.
    pub fn pieces(&mut self, key: &Key) -> Result<Vec<Arc<ArgumentPiece>>, Fault> {
        self.check_budget(key)?;
        let call = self.call_at(key, false);
        let pieces = call.iter().flat_map(|call| call.pieces.iter());
        let mut pieces: Vec<_> = pieces.cloned().collect();
        pieces.reverse();
        Ok(pieces)
    }

    /// Puts a whole call in the place of its pieces so far.
    pub fn put_call(&mut self, key: &Key, call: ToolCall) -> Result<(), Fault> {
        if self.block(key).is_none() {
            self.open_call_of(call.kind, key.clone(), Some(&call.id), None);
        }
        self.name_call(key, call.name.as_str());
        let Some(known) = self.call_at(key, true) else {
            return Ok(());
        };
        known.whole = Some(Arc::new(call));
        self.close(key)
    }

    /// Completes a call with these arguments.
    pub fn end_call_with(&mut self, key: &Key, arguments: Arguments) -> Result<(), Fault> {
        self.seed_arguments(key, arguments);
        if let Some(block) = self.block(key).filter(|block| !block.done) {
            block.text = Rope::default();
        }
        self.close(key)
    }

    /// Turns the calls so far into parts, by `keep`: the model that made them declined, another one goes on, and none of them is
    /// run.
    pub fn decline_calls(&mut self, keep: impl Fn(ToolCall) -> Part) -> Result<(), Fault> {
        let is_text = self.provider.facts().has(Rule::TextArguments);
        // Each block is visited once, however many models decline.
        for at in std::mem::replace(&mut self.looked, self.blocks.len())..self.blocks.len() {
            steps::count(1);
            self.check_budget(&Key::Nth(at))?;
            let Some(block) = self.blocks.get_mut(at) else {
                continue;
            };
            let call = match &block.kind {
                BlockKind::Call(call) if !call.name.is_empty() => call,
                _ => continue,
            };
            let mut made = block.call(call, None, None);
            if call.whole.is_none() {
                made.arguments = block.read_arguments(call, is_text);
            }
            let part = keep(made);
            block.kind = BlockKind::Whole(Arc::new(part.clone()));
            block.done = true;
            block.number = None;
            self.show(at);
            self.events.push(Event::Part(part));
        }
        self.declined = self.calls;
        Ok(())
    }

    /// Returns the message as far as it came. If the response broke off, parts that its provider would refuse are left out.
    pub fn message_so_far(&self, is_complete: bool) -> Drafted {
        let asked = self.head.asked.as_deref();
        let named = (!self.is_neutral).then_some(self.provider);
        let mut numbered: Vec<(usize, &Block)> = self
            .blocks
            .iter()
            .filter_map(|block| Some((block.number?, block)))
            .collect();
        numbered.sort_by_key(|(number, block)| (*number, !block.late));
        let details = self.thinking_details();
        let (mut parts, mut calls, mut done) = (Vec::new(), Vec::new(), Vec::new());
        let mut noted = 0;
        for (number, block) in numbered {
            if let BlockKind::Call(call) = &block.kind {
                calls.push((call.before, block.call(call, named, asked)));
                done.push(block.done);
            } else {
                if matches!(block.kind, BlockKind::Detail { .. }) {
                    noted = number + 1;
                }
                let place = number + usize::from(!block.late);
                let part = block.part_of(named, asked, is_complete);
                parts.extend(part.map(|part| (place, part)));
            }
        }
        put_details(&mut parts, noted, details, self.provider, asked);
        if !is_complete {
            keep_pairs(&mut parts);
        }
        let (places, parts): (Vec<usize>, Vec<Part>) = parts.into_iter().unzip();
        let place = |(before, call): (usize, ToolCall)| match self
            .provider
            .facts()
            .has(Rule::CallsAnywhere)
        {
            true => (places.partition_point(|place| *place <= before), call),
            false => (parts.len(), call),
        };
        let calls = calls.into_iter().map(place).collect();
        let (content, calls) = order_calls(self.provider, parts, calls);
        Drafted {
            content,
            calls,
            done,
        }
    }

    fn thinking_details(&self) -> Vec<Value> {
        let detail = |block: &Block| match &block.kind {
            BlockKind::Detail { of, field } => {
                let text = Value::Binary(block.text.join().into_boxed_slice());
                Some(Value::Map(of.put(Value::text(field), text)))
            }
            _ => None,
        };
        self.blocks.iter().filter_map(detail).collect()
    }
}

/// A part with its place among those that were shown, from 1.
type PlacedPart = (usize, Part);

/// Puts the notes on the model's thinking beside it. If there is no thinking, they become a part in the place at which the first
/// of them came, with the text in them.
fn put_details(
    parts: &mut Vec<PlacedPart>,
    place: usize,
    details: Vec<Value>,
    provider: Provider,
    asked: Option<&str>,
) {
    if details.is_empty() {
        return;
    }
    let key = Value::atom("reasoning_details");
    let details = Value::List(details.into_boxed_slice());
    let thinks = |(_, part): &&mut PlacedPart| part.kind.thoughts().is_some();
    if let Some((_, part)) = parts.iter_mut().find(thinks) {
        let metadata = part.provider_metadata.take().unwrap_or_default();
        part.provider_metadata = Some(metadata.put(key, details));
        return;
    }
    let words = join_details(&details).into_bytes().into();
    let metadata = metadata(provider, &[("model", asked)]).put(key, details);
    let part = part(PartKind::Thinking(words), Some(metadata));
    let at = parts.partition_point(|(before, _)| *before < place);
    parts.insert(at, (place, part));
}

/// Leaves out the use of a provider's own tool if its result did not come.
fn keep_pairs(parts: &mut Vec<PlacedPart>) {
    let halves = parts.iter().filter_map(|(_, part)| part.half());
    let results = halves.filter(|half| half.is_result);
    let answered: HashSet<String> = results.map(|half| half.key).collect();
    let is_kept = |(_, part): &PlacedPart| {
        let half = part.half();
        half.is_none_or(|half| !half.waits || answered.contains(&half.key))
    };
    parts.retain(is_kept);
}
