//! Reading a document.

use std::sync::Arc;

use crate::context::Context;
use crate::error::{index, Error};
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Role};
use crate::log::metadata::Metadata;
use crate::log::origin::Origin;
use crate::storage::keys;
use crate::storage::limits::{NESTING, VERSION};
use crate::storage::read::{
    at, fields, read_message, read_message_as, read_number, read_size, read_time, rest, take_list,
    take_map, take_name, take_time, wrong,
};
use crate::storage::trust::Trust;
use crate::storage::view::Stored;
use crate::value::json;
use crate::value::time::Time;
use crate::value::{Map, Size, Value};
use crate::view::masks::Masks;
use crate::view::View;

impl Context {
    /// The conversation of a document that [`Context::to_snapshot`] wrote.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of what is wrong, [`Error::TooDeep`].
    ///
    /// # Complexity
    /// O(n log n) for the keys of maps, else O(n).
    pub fn from_snapshot(text: &[u8]) -> Result<Self, Error> {
        Self::load(json::read(text, NESTING)?)
    }

    /// As [`Context::from_snapshot`], for a document that is believed only so far.
    ///
    /// # Errors
    /// As [`Context::from_snapshot`].
    pub fn from_snapshot_with(text: &[u8], trust: Trust) -> Result<Self, Error> {
        Self::load_with(json::read(text, NESTING)?, trust)
    }

    /// The conversation of a document as a value with string keys.
    ///
    /// # Errors
    /// As [`Context::from_snapshot`].
    pub fn load(document: Value) -> Result<Self, Error> {
        Self::load_with(document, Trust::default())
    }

    /// As [`Context::load`], for a document that is believed only so far.
    ///
    /// # Errors
    /// As [`Context::from_snapshot`].
    pub fn load_with(document: Value, trust: Trust) -> Result<Self, Error> {
        let head = Head::read(document, None, trust)?;
        if head.since.is_some_and(|since| since > 1) || head.shared > 0 {
            return Err(Error::invalid(
                vec![Value::text(keys::SINCE)],
                "a whole conversation; this is a delta, so load it onto a context with load/2",
            ));
        }
        head.replace()
    }

    /// The conversation with the iterations of a document that [`Context::delta`] wrote in the place
    /// of its own from the first of them on, and everything else as the document has it.
    ///
    /// # Errors
    /// As [`Context::from_snapshot`]; when the document belongs to another conversation or there
    /// are iterations between the two.
    ///
    /// # Complexity
    /// That of [`Context::from_snapshot`] for the document, O(log n) for the conversation.
    pub fn load_delta(&self, document: Value) -> Result<Self, Error> {
        self.load_delta_with(document, Trust::default())
    }

    /// As [`Context::load_delta`], for a document that is believed only so far. What the
    /// conversation has already stays as it is.
    ///
    /// # Errors
    /// As [`Context::load_delta`].
    pub fn load_delta_with(&self, document: Value, trust: Trust) -> Result<Self, Error> {
        let known = self.view.as_deref().and_then(|view| view.masks.as_ref());
        let head = Head::read(document, known, trust)?;
        if *head.id != *self.id() {
            return Err(wrong(
                keys::ID,
                format!("{:?}, the id of the conversation", self.id()),
            ));
        }
        match head.since {
            Some(since) if since > self.first_number() || head.shared > 0 => {
                head.add_to(self, since)
            }
            _ => head.replace(),
        }
    }
}

/// Whether a document has patterns, which take long to compile.
#[must_use]
pub fn has_masks(document: &Value) -> bool {
    let Value::Map(map) = document else {
        return false;
    };
    match map.get(&Value::text(keys::VIEW)) {
        Some(Value::Map(view)) => view.get(&Value::text(keys::MASKS)).is_some(),
        _ => false,
    }
}

impl Context {
    /// How much of the conversation has to make room for a delta, at most.
    #[must_use]
    pub fn load_delta_size(&self, delta: &Value) -> Size {
        let since = match delta {
            Value::Map(map) => map.get(&Value::text(keys::SINCE)),
            _ => None,
        };
        match since {
            Some(Value::Int(since)) => {
                let before = self.rewind_size(since.saturating_sub(1));
                let covered = match delta {
                    Value::Map(map) if map.get(&Value::text(keys::VIEW)).is_some() => {
                        Size::new(self.count_iterations(), 0)
                    }
                    _ => Size::default(),
                };
                self.delta_size(*since).plus(before).plus(covered)
            }
            _ => self.size(),
        }
    }
}

/// A document whose iterations are still to be read.
struct Head {
    id: Box<str>,
    since: Option<u64>,
    shared: usize,
    created_at: Time,
    updated_at: Time,
    metadata: Metadata,
    origin: Option<Arc<Origin>>,
    system: Option<Arc<Message>>,
    view: Option<Stored>,
    iterations: Vec<Value>,
    extra: Option<Map>,
    trust: Trust,
}

impl Head {
    fn read(document: Value, masks: Option<&Arc<Masks>>, trust: Trust) -> Result<Self, Error> {
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

    /// The conversation with these iterations alone.
    fn replace(mut self) -> Result<Context, Error> {
        let mut iterations = std::mem::take(&mut self.iterations).into_iter();
        let Some(first) = iterations.next() else {
            return Err(wrong(keys::ITERATIONS, "at least one iteration"));
        };
        let first = || {
            let read = read_iteration(first, None, self.trust)?;
            let mut context = Context::starting(&self.id, read.empty.started_at, read.empty);
            note_view(&mut context, read.view);
            read_messages(&mut context, read.messages, self.trust)?;
            Ok(context)
        };
        let mut context = first().map_err(|error: Error| in_iterations(error, 0))?;
        open_all(&mut context, iterations, 1, self.trust)?;
        self.put_into(&mut context)?;
        Ok(context)
    }

    /// The conversation with its iterations before `since`, and these.
    fn add_to(mut self, base: &Context, since: u64) -> Result<Context, Error> {
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
            note_view(&mut context, read.view);
            let entries = base
                .log
                .numbered(since)
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
        let held_by = base.log.numbered(since).and_then(Iteration::held_by);
        if held_by != context.current().held_by() {
            context.log.forget_wire(held_by, false);
        }
        open_all(&mut context, iterations, 1, self.trust)?;
        self.put_into(&mut context)?;
        Ok(context)
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

fn read_origin(value: Value) -> Result<Origin, Error> {
    let mut fields = fields(value, "where a fork came from")?;
    let id = at(keys::ID, take_name(&mut fields, keys::ID))?;
    if id.is_empty() {
        return Err(wrong(keys::ID, "non-empty text"));
    }
    let iteration = fields.take(keys::ITERATION).unwrap_or(Value::Nil);
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
        return Context::starting(base.id(), iteration.started_at, iteration);
    };
    let mut context = base.clone();
    context.cut(before);
    context.log.open(iteration);
    context
}

fn check_version(version: Option<Value>) -> Result<(), Error> {
    let expected = match version {
        Some(Value::Int(VERSION)) => return Ok(()),
        Some(Value::Int(newer)) if newer > VERSION => format!(
            "a format of version {VERSION} at most, not {newer}: a newer release of ash_agent_context wrote this"
        ),
        _ => format!("the version of the format, {VERSION}"),
    };
    Err(wrong(keys::VERSION, expected))
}

/// Opens the iterations after the current one.
fn open_all(
    context: &mut Context,
    iterations: impl Iterator<Item = Value>,
    position: usize,
    trust: Trust,
) -> Result<(), Error> {
    for (value, position) in iterations.zip(position..) {
        let read = || {
            if context.log.check_nothing_pending().is_err() {
                let ids = context.current().pending_ids();
                return Err(Error::invalid(
                    Vec::new(),
                    format!("results for the tool calls {ids:?} of the iteration before"),
                ));
            }
            let due = context.current_iteration().saturating_add(1);
            let read = read_iteration(value, Some(due), trust)?;
            context.log.open(read.empty);
            note_view(context, read.view);
            read_messages(context, read.messages, trust)
        };
        read().map_err(|error| in_iterations(error, position))?;
    }
    Ok(())
}

fn in_iterations(error: Error, position: usize) -> Error {
    error
        .within(index(position))
        .within(Value::text(keys::ITERATIONS))
}

/// An iteration that is being read.
struct Read {
    /// Without its messages.
    empty: Iteration,
    messages: Vec<Value>,
    /// The view that its request was made from, where it is another one than before.
    view: Option<Option<View>>,
}

fn note_view(context: &mut Context, view: Option<Option<View>>) {
    if let Some(view) = view {
        let number = context.current_iteration();
        context.asked.note(number, view.map(Arc::new));
    }
}

fn read_iteration(value: Value, due: Option<u64>, trust: Trust) -> Result<Read, Error> {
    let mut fields = fields(value, "an iteration")?;
    let number = at(
        keys::NUMBER,
        read_number(fields.take(keys::NUMBER).unwrap_or(Value::Nil)),
    )?;
    if let Some(due) = due.filter(|due| *due != number) {
        let expected = format!("{due}, one more than the number of the iteration before it");
        return Err(wrong(keys::NUMBER, expected));
    }
    let started_at = at(keys::STARTED_AT, take_time(&mut fields, keys::STARTED_AT))?;
    let mut iteration = Iteration::new(number, started_at);
    if let Some(completed_at) = fields.take_given(keys::COMPLETED_AT) {
        iteration.completed_at = Some(at(keys::COMPLETED_AT, read_time(&completed_at))?);
    }
    iteration.metadata = take_map(&mut fields, keys::METADATA, trust)?
        .unwrap_or_default()
        .into();
    let messages = at(keys::MESSAGES, take_list(&mut fields, keys::MESSAGES))?;
    let view = match fields.take(keys::VIEW) {
        None => None,
        Some(Value::Nil) => Some(None),
        Some(view) => Some(Some(at(keys::VIEW, Stored::read_asked(view, trust))?)),
    };
    Ok(Read {
        empty: iteration.with_extra(rest(fields)?),
        messages,
        view,
    })
}

fn read_messages(context: &mut Context, messages: Vec<Value>, trust: Trust) -> Result<(), Error> {
    for (position, value) in messages.into_iter().enumerate() {
        let read = || {
            if context.log.check_nothing_pending().is_err() {
                let expected = "results for the tool calls of the message before";
                return Err(Error::invalid(Vec::new(), expected));
            }
            read_message(value, trust)
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
