//! The NIFs of chats.

use ash_agent_context_core::{Branch, Chat, Cost, LoadedBranch, LoadedChat, Map, Value};
use rustler::{Encoder as _, NewBinary, Term};

use crate::argument::{At, Id, Of, Trusted};
use crate::decode::{self, Around, Number};
use crate::encode::{self, Encoder};
use crate::error::NifError;
use crate::nif::{change, nif};
use crate::resource::{answer, ContextHandle};
use crate::scheduler::Scheduler;

/// `{name, number, origin | nil, extra, context}`
type ChatTerms<'a> = (Term<'a>, u64, Option<u64>, Term<'a>, ContextHandle);

fn map(term: Term<'_>, around: Around, scheduler: Scheduler) -> Result<Map, NifError> {
    match decode::value(term, around, scheduler)? {
        Value::Map(map) => Ok(map),
        _ => Err(NifError::BadArg),
    }
}

/// Returns what a chat gives, from what Elixir holds of it.
fn with_chat<'a, T>(
    scheduler: Scheduler,
    (head, extra, config_extra): (Term<'a>, Term<'a>, Term<'a>),
    branches: Term<'a>,
    give: impl FnOnce(&Chat<'_>) -> T,
) -> Result<T, NifError> {
    let branches: Vec<ChatTerms<'a>> = branches.decode()?;
    // Comparing two may take as long as writing one of them.
    let costs = branches.iter().map(|branch| branch.4.get().whole_cost());
    scheduler.allow(costs.fold(Cost::default(), Cost::plus))?;
    let chat = Chat {
        head: map(head, Around::Attributes, scheduler)?,
        extra: map(extra, Around::Document, scheduler)?,
        config_extra: map(config_extra, Around::Document, scheduler)?,
        branches: branches
            .iter()
            .map(|(name, number, origin, extra, context)| {
                Ok(Branch {
                    name: decode::value(*name, Around::Nothing, scheduler)?,
                    number: *number,
                    origin: *origin,
                    extra: map(*extra, Around::Document, scheduler)?,
                    context: context.get(),
                })
            })
            .collect::<Result<_, NifError>>()?,
    };
    Ok(give(&chat))
}

nif!(
    chat_dump_normal,
    chat_dump_dirty,
    |env,
     scheduler,
     head: Term<'a>,
     extra: Term<'a>,
     config_extra: Term<'a>,
     branches: Term<'a>| {
        let parts = (head, extra, config_extra);
        let document = with_chat(scheduler, parts, branches, |chat| chat.dump())??;
        Ok(encode::value(env, &document))
    }
);

nif!(
    chat_encode_normal,
    chat_encode_dirty,
    |env,
     scheduler,
     head: Term<'a>,
     extra: Term<'a>,
     config_extra: Term<'a>,
     branches: Term<'a>| {
        let parts = (head, extra, config_extra);
        let text = with_chat(scheduler, parts, branches, |chat| chat.to_snapshot())??;
        Ok(NewBinary::from_slice(env, &text).into())
    }
);

// `{head, extra, config_extra, [{name, base | nil, context, extra}]}`
nif!(
    chat_load_normal,
    chat_load_dirty,
    |env, scheduler, document: Term<'a>, config_keys: Of<'a, Vec<&'a str>>, trust: Trusted| {
        // Its branches may have patterns, which take milliseconds to compile.
        scheduler.allow(Cost::LONG)?;
        let document = decode::value(document, Around::Chat, scheduler)?;
        let chat = LoadedChat::read(document, &config_keys, trust)?;
        let encoder = Encoder::new_copying(env);
        let branch = |branch: LoadedBranch| {
            let name = encode::value(env, &Value::text(&branch.name));
            let extra = encode::value(env, &Value::Map(branch.extra));
            (name, branch.base, answer(env, branch.context), extra).encode(env)
        };
        let branches = encoder.list(chat.branches.into_iter().map(branch));
        let map = |map: Map| encode::value(env, &Value::Map(map));
        let (head, extra) = (map(chat.head), map(chat.extra));
        Ok((head, extra, map(chat.config_extra), branches).encode(env))
    }
);

change!(
    chat_seed_normal,
    chat_seed_dirty,
    |parent, first: Number, last: Number, id: Id, at: At| (
        parent.whole_cost(),
        parent.seed(first, last, &id, at)
    )
);
