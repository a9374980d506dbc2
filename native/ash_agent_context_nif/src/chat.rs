//! Chats.

use ash_agent_context_core::{
    Branch, Chat, Context, Cost, Error, LoadedBranch, LoadedChat, Map, Time, Trust, Value,
};
use rustler::{Env, Term};

use crate::argument::{arguments, Argument, Id};
use crate::decode::{self, Around};
use crate::error::NifError;
use crate::scheduler::Scheduler;
use crate::to_term::{Bytes, Made, Returned, ToTerm};

/// What `ChatContext` keeps of a chat.
pub struct Head(Map);

/// Fields that other versions wrote.
pub struct Extra(Map);

/// Branches, each `{name, number, origin | nil, extra, context}`.
pub struct Branches<'a>(Vec<Branch<'a>>);

arguments! {
    Head = |term, scheduler| map(term, Around::Attributes, scheduler).map(Self);
    Extra = |term, scheduler| map(term, Around::Document, scheduler).map(Self);
    Branches<'a> = |term, scheduler| {
        type Given<'a> = (Value, u64, Option<u64>, Extra, &'a Context);
        let branches: Vec<Given<'a>> = Argument::read(term, scheduler)?;
        // Comparing two may take as long as writing one of them.
        let sizes = branches.iter().map(|(.., context)| Cost::from(context.size()));
        scheduler.allow(sizes.fold(Cost::default(), Cost::plus))?;
        let branches = branches.into_iter().map(|(name, number, origin, Extra(extra), context)| {
            Branch { name, number, origin, extra, context }
        });
        Ok(Self(branches.collect()))
    };
}

fn map(term: Term<'_>, around: Around, scheduler: Scheduler) -> Result<Map, NifError> {
    match decode::value(term, around, scheduler)? {
        Value::Map(map) => Ok(map),
        _ => Err(NifError::BadArg),
    }
}

fn chat<'a>(
    Head(head): Head,
    Extra(extra): Extra,
    Extra(config_extra): Extra,
    Branches(branches): Branches<'a>,
) -> Chat<'a> {
    Chat {
        head,
        extra,
        config_extra,
        branches,
    }
}

pub fn dump(
    head: Head,
    extra: Extra,
    config: Extra,
    branches: Branches<'_>,
) -> Result<Value, Error> {
    chat(head, extra, config, branches).dump()
}

pub fn encode(
    head: Head,
    extra: Extra,
    config: Extra,
    branches: Branches<'_>,
) -> Result<Bytes, Error> {
    chat(head, extra, config, branches).to_snapshot().map(Bytes)
}

/// `{head, extra, config_extra, [{name, base | nil, context, extra}]}`
pub fn load(document: Nested, config_keys: Vec<&str>, trust: Trust) -> Result<LoadedChat, Error> {
    LoadedChat::read(document.0, &config_keys, trust)
}

/// A dumped chat.
pub struct Nested(Value);

arguments! {
    Nested = |term, scheduler| decode::value(term, Around::Chat, scheduler).map(Self);
}

impl Returned for LoadedChat {
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        let branch = |branch: LoadedBranch| {
            (
                branch.name,
                branch.base,
                Made::from(branch.context),
                branch.extra,
            )
                .to_term(env)
        };
        let branches: Vec<_> = self.branches.into_iter().map(branch).collect();
        Ok((self.head, self.extra, self.config_extra, branches).to_term(env))
    }
}

pub fn seed(
    parent: &Context,
    first: i64,
    last: i64,
    Id(id): Id,
    at: Time,
) -> Result<Context, Error> {
    parent.seed(first, last, &id, at)
}
