//! Reading the fields of a document beside its iterations.

use std::sync::Arc;

use crate::context::Context;
use crate::error::{index, Error};
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Role};
use crate::log::metadata::Metadata;
use crate::log::origin::Origin;
use crate::log::Log;
use crate::storage::iterations::{read_iteration, Opened};
use crate::storage::late::LateHead;
use crate::storage::limits::{LATE_VERSION, VERSION};
use crate::storage::read::read_message_as;
use crate::storage::table::*;
use crate::storage::take::{at, fields, read_number, read_size, wrong, DocumentFields};
use crate::storage::trust::Trust;
use crate::storage::view::{read_masks, ReadView};
use crate::value::node::Node;
use crate::value::time::Time;
use crate::value::{Map, Value};
use crate::view::masks::Masks;

/// The fields that both forms have beside the iterations. A stored document also has an id and times.
pub(crate) struct DocumentHead {
    pub id: Option<Box<str>>,
    created_at: Option<Time>,
    pub updated_at: Option<Time>,
    metadata: Option<Map>,
    origin: Option<Origin>,
}

impl DocumentHead {
    pub fn take(fields: &mut DocumentFields<'_>) -> Result<Self, Error> {
        let form = fields.form;
        let time = |node: Node<'_>| form.read_time(&node);
        Ok(Self {
            id: fields.read_due("id", |node| form.read_id(node))?,
            created_at: fields.read_due("created_at", time)?,
            updated_at: fields.read_due("updated_at", time)?,
            metadata: Given::<Terms>::read(fields, "metadata")?,
            origin: Given::<Of>::read(fields, "origin")?,
        })
    }

    /// Replaces the conversation's own values by those that were read.
    pub fn put_on(self, log: &mut Log) {
        if let Some(id) = self.id {
            log.id = id.into();
        }
        if let Some(metadata) = self.metadata {
            log.metadata = metadata.into();
        }
        if let Some(origin) = self.origin {
            log.origin = Some(Arc::new(origin));
        }
        log.created_at = self.created_at.unwrap_or(log.created_at);
        log.updated_at = self.updated_at.unwrap_or(log.updated_at);
    }
}

/// A stored document whose iterations are not read yet.
pub(crate) struct Head<'a> {
    pub frame: DocumentHead,
    pub since: Option<u64>,
    pub shared: usize,
    system: Option<Arc<Message>>,
    view: Option<ReadView>,
    asked_masks: Option<Arc<Masks>>,
    late: Option<LateHead>,
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
        let mut fields = fields(document, "a snapshot: a map with string keys", trust)?;
        let is_late = check_version(fields.take("version"))?;
        let frame = DocumentHead::take(&mut fields)?;
        let since = fields.read_given("since", read_number)?;
        let shared = fields.read_given("shared", read_size)?;
        if shared.is_some() && since.is_none() {
            return Err(wrong("shared", "nothing without \"since\""));
        }
        Ok(Self {
            frame,
            since,
            shared: shared.unwrap_or_default(),
            system: fields.read_given("system", |system| {
                read_message_as(system, Role::System, trust)
            })?,
            view: fields.read_given("view", |view| ReadView::read(view, masks, trust))?,
            asked_masks: read_masks(&mut fields, "asked_masks")?,
            late: LateHead::read(&mut fields, trust, is_late)?,
            iterations: fields.take_list("iterations")?.unwrap_or_default(),
            extra: fields.keep_rest()?,
            trust,
        })
    }

    /// Returns an error if the document lacks iterations before its own.
    pub fn check_whole(&self) -> Result<(), Error> {
        if self.since.is_some_and(|since| since > 1) || self.shared > 0 {
            return Err(wrong(
                "since",
                "a whole conversation; this is a delta, so load it onto a context with load/2",
            ));
        }
        Ok(())
    }

    /// Returns a conversation with these iterations alone.
    pub fn replace(mut self) -> Result<Context, Error> {
        let mut opened = Opened::new(self.trust);
        at(
            "iterations",
            opened.add_all(std::mem::take(&mut self.iterations)),
        )?;
        self.put_on(opened)
    }

    /// Returns a conversation with iterations that were read before.
    pub fn put_on(self, opened: Opened) -> Result<Context, Error> {
        let Some(mut context) = opened.context else {
            return Err(wrong("iterations", "at least one iteration"));
        };
        context.log.metadata = Metadata::default();
        context.log.origin = None;
        self.frame.put_on(&mut context.log);
        match self.late {
            Some(late) => at("late", late.put_on(&mut context.log))?,
            None => context.log.forget_late(),
        }
        context.log.system = self.system;
        context.log.set_extra(self.extra);
        context.view = None;
        context.tallies = Default::default();
        if let Some(view) = self.view {
            at("view", view.put_on(&mut context))?;
        }
        context.inputs_mut().put_asked_masks(self.asked_masks);
        Ok(context)
    }

    /// Returns a conversation with these iterations after the earlier ones of another.
    pub fn add_to(mut self, base: &Context, since: u64) -> Result<Context, Error> {
        let last = base.current_iteration();
        let due = last.saturating_add(1);
        if since > due {
            return Err(wrong(
                "since",
                format!("{due} at most: the conversation ends with iteration {last}"),
            ));
        }
        if since == due && base.current().completed_at.is_none() {
            return Err(wrong(
                "since",
                format!("{last} at most: iteration {last} was not complete when it was stored"),
            ));
        }
        let mut iterations = std::mem::take(&mut self.iterations).into_iter();
        let Some(first) = iterations.next() else {
            return Err(wrong("iterations", "at least one iteration"));
        };
        let open_first = || {
            let (empty, body) = read_iteration(first, Some(since), self.trust.into())?;
            let mut context = cut_before(base, since, empty);
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
                return Err(wrong("shared", expected));
            }
            body.put_on(&mut context)?;
            Ok(context)
        };
        let first = open_first().map_err(|error: Error| error.within(index(0)));
        let mut context = at("iterations", first)?;
        let held_by = base.log.get_numbered(since).and_then(Iteration::held_by);
        if held_by != context.current().held_by() {
            context.log.forget_wire(held_by, false);
        }
        let mut opened = Opened::with_first(context, self.trust);
        at("iterations", opened.add_all(iterations))?;
        self.put_on(opened)
    }
}

/// Returns the conversation before an iteration, with another one in its place.
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

/// Refuses documents of a version that this release does not read, be they of a conversation or of a chat. Returns whether a
/// call waited in it.
pub(crate) fn check_version(version: Option<Node<'_>>) -> Result<bool, Error> {
    let expected = match version {
        Some(Node::Value(Value::Int(VERSION))) => return Ok(false),
        Some(Node::Value(Value::Int(LATE_VERSION))) => return Ok(true),
        Some(Node::Value(Value::Int(newer))) if newer > VERSION => format!(
            "a format of version {LATE_VERSION} at most, not {newer}: a newer release of ash_agent_context wrote this"
        ),
        _ => format!("the version of the format, {VERSION}"),
    };
    Err(wrong("version", expected))
}
