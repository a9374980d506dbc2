//! Reading iterations, one after the other.

use std::sync::Arc;

use crate::context::asked::NewNotes;
use crate::context::Context;
use crate::error::{index, Error};
use crate::log::document::check_number;
use crate::log::failed::{FailedRequest, Failures};
use crate::log::iteration::Iteration;
use crate::storage::keys;
use crate::storage::node::{DocumentFields, Node};
use crate::storage::read::read_message;
use crate::storage::take::{
    at, fields, read_number, read_time, rest, take_list, take_map, take_time, NIL,
};
use crate::storage::trust::Trust;
use crate::storage::view::Stored;
use crate::value::Value;
use crate::view::View;

/// The conversation of the iterations that were read so far; the head of the document is put on it at last.
pub(crate) struct Opened {
    pub context: Option<Context>,
    count: usize,
    trust: Trust,
}

impl Opened {
    /// Without an iteration.
    pub const fn new(trust: Trust) -> Self {
        Self {
            context: None,
            count: 0,
            trust,
        }
    }

    /// After the first iteration.
    pub const fn with_first(context: Context, trust: Trust) -> Self {
        Self {
            context: Some(context),
            count: 1,
            trust,
        }
    }

    pub fn add_all<'a>(&mut self, nodes: impl IntoIterator<Item = Node<'a>>) -> Result<(), Error> {
        nodes.into_iter().try_for_each(|node| self.add(node))
    }

    /// Opens the next iteration.
    pub fn add(&mut self, node: Node<'_>) -> Result<(), Error> {
        let added = match &mut self.context {
            Some(context) => open_next(context, node, self.trust),
            None => open_first(node, self.trust).map(|context| self.context = Some(context)),
        };
        added.map_err(|error| in_iterations(error, self.count))?;
        self.count += 1;
        Ok(())
    }
}

fn open_first(node: Node<'_>, trust: Trust) -> Result<Context, Error> {
    let read = read_iteration(node, None, trust)?;
    let mut context = Context::start_with("", read.empty.started_at, read.empty);
    note_asked(&mut context, read.view, read.request);
    read_messages(&mut context, read.messages, trust)?;
    Ok(context)
}

fn open_next(context: &mut Context, node: Node<'_>, trust: Trust) -> Result<(), Error> {
    context.log.check_iteration_answered()?;
    let read = read_iteration(node, Some(context.log.due()), trust)?;
    context.log.open(read.empty);
    note_asked(context, read.view, read.request);
    read_messages(context, read.messages, trust)
}

pub(crate) fn in_iterations(error: Error, position: usize) -> Error {
    error
        .within(index(position))
        .within(Value::text(keys::ITERATIONS))
}

/// An iteration that is being read.
pub(crate) struct ReadIteration<'a> {
    /// Without its messages.
    pub empty: Iteration,
    pub messages: Vec<Node<'a>>,
    /// The view that its request was made from, where it is another one than before.
    pub view: Option<Option<View>>,
    /// The record of its request, where it differs from the one before.
    pub request: NewNotes,
}

pub(crate) fn note_asked(context: &mut Context, view: Option<Option<View>>, request: NewNotes) {
    let number = context.current_iteration();
    if let Some(view) = view {
        context.asked.note(number, view.map(Arc::new));
    }
    context.asked.note_request(number, request);
}

pub(crate) fn read_iteration(
    node: Node<'_>,
    due: Option<u64>,
    trust: Trust,
) -> Result<ReadIteration<'_>, Error> {
    let mut fields = fields(node, "an iteration")?;
    let number = at(
        keys::NUMBER,
        read_number(fields.take(keys::NUMBER).unwrap_or(NIL)),
    )?;
    at(keys::NUMBER, check_number(number, due))?;
    let started_at = at(keys::STARTED_AT, take_time(&mut fields, keys::STARTED_AT))?;
    let mut iteration = Iteration::new(number, started_at);
    if let Some(completed_at) = fields.take_given(keys::COMPLETED_AT) {
        iteration.completed_at = Some(at(keys::COMPLETED_AT, read_time(&completed_at))?);
    }
    iteration.metadata = take_map(&mut fields, keys::METADATA, trust)?
        .unwrap_or_default()
        .into();
    if fields.has(keys::FAILURES) {
        iteration.failures = at(keys::FAILURES, read_failures(&mut fields))?;
    }
    let messages = at(keys::MESSAGES, take_list(&mut fields, keys::MESSAGES))?;
    let view = match fields.take(keys::VIEW) {
        None => None,
        Some(view) if view.is_nil() => Some(None),
        Some(view) => Some(Some(at(keys::VIEW, Stored::read_asked(view, trust))?)),
    };
    let mut request = NewNotes::default();
    for (value, key) in request.iter_mut().zip(keys::REQUEST) {
        let term = fields
            .take_given(key)
            .map(|node| node.into_term(trust.structs));
        *value = at(key, term.transpose())?;
    }
    Ok(ReadIteration {
        empty: iteration.with_extra(rest(fields)?),
        messages,
        view,
        request,
    })
}

fn read_failures(fields: &mut DocumentFields<'_>) -> Result<Failures, Error> {
    let nodes = take_list(fields, keys::FAILURES)?;
    let read = nodes.into_iter().enumerate().map(|(position, node)| {
        FailedRequest::read(&node.into_value(), None).map_err(|error| error.within(index(position)))
    });
    read.collect::<Result<_, _>>().map(Failures::of)
}

pub(crate) fn read_messages(
    context: &mut Context,
    messages: Vec<Node<'_>>,
    trust: Trust,
) -> Result<(), Error> {
    for (position, node) in messages.into_iter().enumerate() {
        let read = || {
            context.log.check_message_answered()?;
            read_message(node, trust)
        };
        let (message, exchange, usage) = read().map_err(|error| {
            error
                .within(index(position))
                .within(Value::text(keys::MESSAGES))
        })?;
        context.log.append_answered(message, exchange);
        if let Some(usage) = usage {
            context.log.put_reported(usage);
        }
    }
    Ok(())
}
