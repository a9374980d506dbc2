//! Finds for each branch of a chat the one before it with which it shares most, so that stored beside
//! that one, no message is stored twice.
//!
//! Branches form a tree: a branch hangs on its base at the place where it leaves it, which is the number of an iteration and
//! a position in it, and by the message with which it goes on there. No two branches hang on one base at one place by one
//! message, so the way down is looked up and not searched. Comparing two contexts costs O(n). A branch is compared with the
//! one that it was made from, and only if it shares none of that one's own messages, with those on the way down from the
//! first.

use std::collections::HashMap;
use std::fmt::{self, Debug, Write};
use std::hash::{DefaultHasher, Hasher};

use crate::context::Context;
use crate::log::call::ToolCall;
use crate::log::exchange::MessageRef;
use crate::log::iteration::Iteration;
use crate::log::message::{Output, Role};
use crate::log::part::Content;
use crate::value::{Map, Value};

/// A branch to be stored.
#[derive(Debug)]
pub struct Branch<'a> {
    /// Its name.
    pub name: Value,
    /// Its number in the chat.
    pub number: u64,
    /// The number of the branch that it was made from.
    pub origin: Option<u64>,
    /// Fields that another version wrote.
    pub extra: Map,
    /// Its conversation.
    pub context: &'a Context,
}

/// The place where a branch leaves another one: the number of an iteration and a position in it.
type Parting = (u64, usize);

#[derive(Default)]
struct BaseTree<'a> {
    /// The first of each kind: contexts of two kinds share nothing.
    roots: HashMap<(&'a str, u64), usize>,
    /// The base of each branch and its place there, by the branch's number.
    known: HashMap<u64, (usize, Parting)>,
    /// The branch that hangs on a branch at a place by a message. Two messages of one hash are compared as contexts, so that
    /// a collision does no harm.
    hanging: HashMap<(usize, Parting, u64), usize>,
}

/// Returns the base of each branch, by its position; `None` if it shares nothing with any before it.
pub(crate) fn find(branches: &[Branch<'_>]) -> Vec<Option<usize>> {
    let mut tree = BaseTree::default();
    branches
        .iter()
        .enumerate()
        .map(|(at, branch)| tree.place(branches, at, branch))
        .collect()
}

impl<'a> BaseTree<'a> {
    fn place(&mut self, all: &[Branch<'a>], at: usize, branch: &Branch<'a>) -> Option<usize> {
        let kind = (branch.context.id(), branch.context.first_number());
        let Some(root) = self.roots.get(&kind).copied() else {
            self.roots.insert(kind, at);
            self.known.insert(branch.number, (at, (0, 0)));
            return None;
        };
        let start = self.start_of(all, branch).unwrap_or(root);
        let (base, place, next) = self.descend(all, branch, start);
        // A branch with nothing of its own is not a better base than its own base.
        if let Some(next) = next {
            self.hanging.insert((base, place, next), at);
        }
        self.known.insert(branch.number, (at, place));
        Some(base)
    }

    /// Returns the branch that this one was made from, if it shares some of that one's own messages.
    fn start_of(&self, all: &[Branch<'a>], branch: &Branch<'a>) -> Option<usize> {
        let (origin, hangs_at) = *self.known.get(&branch.origin?)?;
        let (place, _) = leave(branch.context, all.get(origin)?.context);
        (place > hangs_at).then_some(origin)
    }

    fn descend(
        &self,
        all: &[Branch<'a>],
        branch: &Branch<'a>,
        mut base: usize,
    ) -> (usize, Parting, Option<u64>) {
        loop {
            let Some(other) = all.get(base) else {
                return (base, (0, 0), None);
            };
            let (place, next) = leave(branch.context, other.context);
            let closer = next.and_then(|next| self.hanging.get(&(base, place, next)));
            match closer {
                Some(closer) => base = *closer,
                None => return (base, place, next),
            }
        }
    }
}

/// Returns the place where a context leaves another one, and the hash of its next message: `None` when it ends there.
fn leave(context: &Context, other: &Context) -> (Parting, Option<u64>) {
    let number = match context.last_common(other) {
        Some(common) => common.saturating_add(1),
        None => context.first_number(),
    };
    let Some(iteration) = context.log.get_numbered(number) else {
        return ((number, 0), None);
    };
    let own = messages(context, iteration);
    let others = other.log.get_numbered(number);
    let others = others.map_or(Vec::new(), |iteration| messages(other, iteration));
    let common = own.iter().zip(&others);
    let position = common.take_while(|(own, other)| own == other).count();
    let next = match own.get(position) {
        Some(message) => Some(hash(message)),
        None if number == context.current_iteration() => None,
        None => Some(hash_head(iteration)),
    };
    ((number, position), next)
}

/// Returns the messages of an iteration. The system prompt shows as the first message of the first one, and does not count.
fn messages<'a>(context: &'a Context, iteration: &'a Iteration) -> Vec<SharedMessage<'a>> {
    let is_prompt = |message: &MessageRef<'_>| matches!(message, MessageRef::Added(added) if added.role == Role::System);
    let messages = context.messages_of(iteration);
    messages
        .filter(|message| !is_prompt(message))
        .map(share)
        .collect()
}

/// What two messages have in common if they are the same: role and content, metadata, calls, and the results that one shows.
type SharedMessage<'a> = (
    Option<(Role, &'a Content)>,
    Option<&'a Map>,
    Vec<SharedCall<'a>>,
    Vec<SharedResult<'a>>,
);

type SharedResult<'a> = (&'a str, bool, Result<&'a [u8], &'a Output>);

type SharedCall<'a> = (
    &'a str,
    &'a str,
    &'a Value,
    Option<&'a Map>,
    Option<&'a Map>,
);

fn share(message: MessageRef<'_>) -> SharedMessage<'_> {
    match message {
        MessageRef::Added(message) => {
            let said = (message.role, &message.content);
            let calls = message.calls.iter().map(share_call).collect();
            (Some(said), message.metadata.as_ref(), calls, Vec::new())
        }
        MessageRef::Results(calls, exchange) => {
            let results = calls.iter().zip(exchange.slots());
            let results = results.filter_map(|(call, outcome)| {
                let outcome = outcome?;
                let output = outcome.text().ok_or(&outcome.output);
                Some((&*call.id, outcome.is_error(), output))
            });
            let metadata = exchange.metadata.as_ref();
            (None, metadata, Vec::new(), results.collect())
        }
    }
}

fn share_call(call: &ToolCall) -> SharedCall<'_> {
    (
        &call.id,
        call.name.as_str(),
        &call.arguments.value,
        call.provider_metadata.as_ref(),
        call.extra.as_ref(),
    )
}

/// Returns a hash of what a value shows.
fn hash(value: &impl Debug) -> u64 {
    let mut sink = HashWriter(DefaultHasher::new());
    // Writing to a hasher does not fail.
    let _ = write!(sink, "{value:?}");
    sink.0.finish()
}

struct HashWriter(DefaultHasher);

impl Write for HashWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// Returns a hash of an iteration without its messages.
fn hash_head(iteration: &Iteration) -> u64 {
    let calls = iteration.calls().map(|(call, outcome)| {
        let outcome = outcome.map(|outcome| (outcome.is_error(), &outcome.output));
        (share_call(call), outcome)
    });
    let times = (
        iteration.number,
        iteration.started_at,
        iteration.completed_at,
    );
    let notes: Vec<_> = iteration.metadata.iter().collect();
    hash(&(times, notes, calls.collect::<Vec<_>>()))
}
