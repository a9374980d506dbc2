//! Reading what a document is beside its iterations.

use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Role};
use crate::log::metadata::Metadata;
use crate::log::origin::Origin;
use crate::storage::iterations::{
    in_iterations, note_asked, read_iteration, read_messages, Opened,
};
use crate::storage::keys;
use crate::storage::limits::VERSION;
use crate::storage::node::Node;
use crate::storage::read::{read_message_as, read_size};
use crate::storage::take::{
    at, fields, read_number, rest, take_list, take_map, take_name, take_time, wrong, NIL,
};
use crate::storage::trust::Trust;
use crate::storage::view::Stored;
use crate::value::time::Time;
use crate::value::{Map, Value};
use crate::view::masks::Masks;

/// A document whose iterations are still to be read.
pub(crate) struct Head<'a> {
    pub id: Box<str>,
    pub since: Option<u64>,
    pub shared: usize,
    created_at: Time,
    updated_at: Time,
    metadata: Metadata,
    origin: Option<Arc<Origin>>,
    system: Option<Arc<Message>>,
    view: Option<Stored>,
    iterations: Vec<Node<'a>>,
    extra: Option<Map>,
    trust: Trust,
}

impl<'a> Head<'a> {
    pub fn read(
        document: Node<'a>,
        masks: Option<&Arc<Masks>>,
        trust: Trust,
    ) -> Result<Self, Error> {
        let mut fields = fields(document, "a snapshot: a map with string keys")?;
        check_version(fields.take(keys::VERSION))?;
        let id = at(keys::ID, take_name(&mut fields, keys::ID))?;
        if id.is_empty() {
            return Err(wrong(keys::ID, "non-empty text"));
        }
        let since = match fields.take_given(keys::SINCE) {
            None => None,
            Some(value) => Some(at(keys::SINCE, read_number(value))?),
        };
        let shared = fields.take_given(keys::SHARED).map(read_size);
        let shared = at(keys::SHARED, shared.transpose())?;
        if shared.is_some() && since.is_none() {
            return Err(wrong(keys::SHARED, "nothing without \"since\""));
        }
        let system = fields.take_given(keys::SYSTEM);
        let view = fields.take_given(keys::VIEW);
        let origin = fields.take_given(keys::ORIGIN).map(read_origin);
        Ok(Self {
            id,
            since,
            shared: shared.unwrap_or_default(),
            created_at: at(keys::CREATED_AT, take_time(&mut fields, keys::CREATED_AT))?,
            updated_at: at(keys::UPDATED_AT, take_time(&mut fields, keys::UPDATED_AT))?,
            metadata: take_map(&mut fields, keys::METADATA, trust)?
                .unwrap_or_default()
                .into(),
            origin: at(keys::ORIGIN, origin.transpose())?.map(Arc::new),
            system: at(
                keys::SYSTEM,
                system
                    .map(|system| read_message_as(system, Role::System, trust))
                    .transpose(),
            )?,
            view: at(
                keys::VIEW,
                view.map(|view| Stored::read(view, masks, trust))
                    .transpose(),
            )?,
            iterations: at(keys::ITERATIONS, take_list(&mut fields, keys::ITERATIONS))?,
            extra: rest(fields)?,
            trust,
        })
    }

    /// An error when there are iterations before these.
    pub fn check_whole(&self) -> Result<(), Error> {
        if self.since.is_some_and(|since| since > 1) || self.shared > 0 {
            return Err(wrong(
                keys::SINCE,
                "a whole conversation; this is a delta, so load it onto a context with load/2",
            ));
        }
        Ok(())
    }

    /// The conversation with these iterations alone.
    pub fn replace(mut self) -> Result<Context, Error> {
        let mut opened = Opened::new(self.trust);
        opened.add_all(std::mem::take(&mut self.iterations))?;
        self.put_on(opened)
    }

    /// The conversation with iterations that were read before.
    pub fn put_on(self, opened: Opened) -> Result<Context, Error> {
        let Some(mut context) = opened.context else {
            return Err(wrong(keys::ITERATIONS, "at least one iteration"));
        };
        self.put_into(&mut context)?;
        Ok(context)
    }

    /// The conversation with its iterations before these, and these.
    pub fn add_to(mut self, base: &Context, since: u64) -> Result<Context, Error> {
        let last = base.current_iteration();
        let due = last.saturating_add(1);
        if since > due {
            return Err(wrong(
                keys::SINCE,
                format!("{due} at most: the conversation ends with iteration {last}"),
            ));
        }
        if since == due && base.current().completed_at.is_none() {
            return Err(wrong(
                keys::SINCE,
                format!("{last} at most: iteration {last} was not complete when it was stored"),
            ));
        }
        let mut iterations = std::mem::take(&mut self.iterations).into_iter();
        let Some(first) = iterations.next() else {
            return Err(wrong(keys::ITERATIONS, "at least one iteration"));
        };
        let open_first = || {
            let read = read_iteration(first, Some(since), self.trust)?;
            let mut context = cut_before(base, since, read.empty);
            note_asked(&mut context, read.view, read.request);
            let entries = base
                .log
                .get_numbered(since)
                .into_iter()
                .flat_map(Iteration::entries);
            for entry in entries.take(self.shared) {
                context.log.append_entry(entry.clone());
            }
            if context.current().entries().len() < self.shared {
                let expected = format!("no more than {}", context.current().entries().len());
                return Err(wrong(keys::SHARED, expected));
            }
            read_messages(&mut context, read.messages, self.trust)?;
            Ok(context)
        };
        let mut context = open_first().map_err(|error| in_iterations(error, 0))?;
        let held_by = base.log.get_numbered(since).and_then(Iteration::held_by);
        if held_by != context.current().held_by() {
            context.log.forget_wire(held_by, false);
        }
        let mut opened = Opened::with_first(context, self.trust);
        opened.add_all(iterations)?;
        self.put_on(opened)
    }

    fn put_into(self, context: &mut Context) -> Result<(), Error> {
        context.log.id = self.id.into();
        context.log.created_at = self.created_at;
        context.log.updated_at = self.updated_at;
        context.log.metadata = self.metadata;
        context.log.origin = self.origin;
        context.log.system = self.system;
        context.log.set_extra(self.extra);
        context.view = None;
        context.tallies = Default::default();
        match self.view {
            Some(view) => at(keys::VIEW, view.put_on(context)),
            None => Ok(()),
        }
    }
}

fn read_origin(node: Node<'_>) -> Result<Origin, Error> {
    let mut fields = fields(node, "where a fork came from")?;
    let id = at(keys::ID, take_name(&mut fields, keys::ID))?;
    if id.is_empty() {
        return Err(wrong(keys::ID, "non-empty text"));
    }
    let iteration = fields.take(keys::ITERATION).unwrap_or(NIL);
    Ok(Origin {
        id,
        iteration: at(keys::ITERATION, read_number(iteration))?,
        extra: rest(fields)?,
    })
}

/// The conversation before an iteration, with another one in its place.
fn cut_before(base: &Context, since: u64, iteration: Iteration) -> Context {
    let before = i64::try_from(since)
        .ok()
        .and_then(|since| base.log.index(since - 1));
    let Some(before) = before else {
        return Context::start_with(base.id(), iteration.started_at, iteration);
    };
    let mut context = base.clone();
    context.cut(before);
    context.log.open(iteration);
    context
}

fn check_version(version: Option<Node<'_>>) -> Result<(), Error> {
    let expected = match version {
        Some(Node::Value(Value::Int(VERSION))) => return Ok(()),
        Some(Node::Value(Value::Int(newer))) if newer > VERSION => format!(
            "a format of version {VERSION} at most, not {newer}: a newer release of ash_agent_context wrote this"
        ),
        _ => format!("the version of the format, {VERSION}"),
    };
    Err(wrong(keys::VERSION, expected))
}
