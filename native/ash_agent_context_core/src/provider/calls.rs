//! Collects the calls of a response, whose fields come in any order and in pieces.

use std::sync::Arc;

use crate::fault::Fault;
use crate::log::call::{Arguments, ToolCall};
use crate::log::kind::CallKind;
use crate::log::part::Part;
use crate::provider::facts::Rule;
use crate::value::{letters, steps};

use super::block::{ArgumentPiece, BlockKind, Call};
use super::draft::{Draft, Key};
use super::event::Event;
use super::rope::Rope;

impl Draft {
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
        let Some(block) = self.block(key) else { return };
        let BlockKind::Call(call) = &mut block.kind else {
            return;
        };
        if name.is_empty() || !call.name.is_empty() {
            return;
        }
        call.name = name.into();
        call.before = before;
        block.number = Some(position);
        let waiting = block.text.join();
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
        if let Some(call) = self.call_at(key, true) {
            call.pieces.push_front_mut(Arc::new(piece));
            // Counts for putting the pieces together later.
            if let Some(block) = self.block(key) {
                block.text.push(&[0; 16]);
            }
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
            let mut made = block.call(call);
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
}
