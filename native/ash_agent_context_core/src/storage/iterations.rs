//! Reading iterations of either form, one after the other.

use std::sync::Arc;

use crate::context::Context;
use crate::error::{each, index, Error};
use crate::log::declined::LastFallback;
use crate::log::document::check_number;
use crate::log::exchange::Exchange;
use crate::log::failed::{FailedRequest, Failures};
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Outcome, Output, Status};
use crate::log::reply::Finish;
use crate::storage::read::read_message;
use crate::storage::read_shown::{read_shown, Outcomes};
use crate::storage::table::*;
use crate::storage::tables::REQUEST;
use crate::storage::take::{fields, wrong, Form};
use crate::storage::trust::Trust;
use crate::storage::view::ReadView;
use crate::value::fields::Keys;
use crate::value::node::Node;
use crate::value::Value;
use crate::view::View;

/// The conversation of the iterations read so far; the head of the document is added at the end.
pub(crate) struct Opened {
    pub context: Option<Context>,
    count: usize,
    form: Form,
}

impl Opened {
    pub fn new(form: impl Into<Form>) -> Self {
        Self {
            context: None,
            count: 0,
            form: form.into(),
        }
    }

    pub fn with_first(context: Context, trust: Trust) -> Self {
        Self {
            context: Some(context),
            count: 1,
            form: trust.into(),
        }
    }

    /// Opens the iterations of a list. An error is within the list.
    pub fn add_all<'a>(&mut self, nodes: impl IntoIterator<Item = Node<'a>>) -> Result<(), Error> {
        nodes.into_iter().try_for_each(|node| self.add(node))
    }

    /// Opens the next iteration.
    pub fn add(&mut self, node: Node<'_>) -> Result<(), Error> {
        self.open(node)
            .map_err(|error| error.within(index(self.count)))?;
        self.count += 1;
        Ok(())
    }

    fn open(&mut self, node: Node<'_>) -> Result<(), Error> {
        let mut due = None;
        if let Some(context) = &self.context {
            context.log.check_iteration_answered()?;
            due = Some(context.log.due());
        }
        let (empty, body) = read_iteration(node, due, self.form)?;
        let context = match &mut self.context {
            Some(context) => {
                context.log.open(empty);
                context
            }
            none => none.insert(Context::start_with("", empty.started_at, empty)),
        };
        body.put_on(context)
    }
}

/// The messages of an iteration, and the notes of its request.
pub(crate) struct IterationBody<'a> {
    messages: Vec<Node<'a>>,
    /// The view that its request was made from, if it differs from the one before.
    view: Option<Option<View>>,
    /// The notes of its request that differ from the ones before.
    request: [Option<Value>; 6],
    /// Results beside the messages.
    outcomes: Outcomes,
    form: Form,
    keys: Keys,
}

/// Reads an iteration, without its messages, and its body.
pub(crate) fn read_iteration(
    node: Node<'_>,
    due: Option<u64>,
    form: Form,
) -> Result<(Iteration, IterationBody<'_>), Error> {
    let mut fields = fields(node, "an iteration, a map", form)?;
    let number = fields.read_due("number", |node| form.read_number(&node))?;
    let number = number.or(due).unwrap_or(1);
    fields.at("number", check_number(number, due))?;
    let started_at = match form {
        Form::Stored(_) => When::read(&mut fields, "started_at")?,
        Form::Maps(at) => Given::<When>::read(&mut fields, "started_at")?.unwrap_or(at),
    };
    let mut iteration = Iteration::new(number, started_at);
    iteration.completed_at = Given::<When>::read(&mut fields, "completed_at")?;
    let metadata = Given::<Terms>::read(&mut fields, "metadata")?;
    iteration.metadata = metadata.unwrap_or_default().into();
    let mut body = IterationBody {
        messages: fields.take_list("messages")?.unwrap_or_default(),
        view: None,
        request: Default::default(),
        outcomes: Outcomes::default(),
        form,
        keys: fields.keys(),
    };
    match form {
        Form::Stored(trust) => {
            iteration.failures = fields
                .read_each("failures", |node| {
                    FailedRequest::read(&node.into_value(), None)
                })
                .map(Failures::of)?;
            if let Some(view) = fields.take("view") {
                let view = Some(view).filter(|view| !view.is_nil());
                let view = view
                    .map(|view| ReadView::read_asked(view, trust))
                    .transpose();
                body.view = Some(fields.at("view", view)?);
            }
            for (value, key) in body.request.iter_mut().zip(REQUEST) {
                *value = Given::<Term>::read(&mut fields, key)?;
            }
        }
        Form::Maps(_) => body.outcomes = Outcomes::take(&mut fields)?,
    }
    let known = "one of :number, :messages, :tool_calls, :started_at, :completed_at, :metadata";
    let iteration = iteration.with_extra(fields.finish(known)?);
    Ok((iteration, body))
}

impl IterationBody<'_> {
    /// Adds everything to the current iteration.
    pub fn put_on(self, context: &mut Context) -> Result<(), Error> {
        let number = context.current_iteration();
        if let Some(view) = self.view {
            context.inputs_mut().views.note(number, view.map(Arc::new));
        }
        let [notes @ .., rewound] = context.inputs_mut().notes_mut();
        let [values @ .., cut] = self.request;
        for (noted, value) in notes.into_iter().zip(values) {
            value
                .into_iter()
                .for_each(|value| noted.note(number, value));
        }
        // A note of a rewind holds for its own iteration alone.
        cut.into_iter().for_each(|cut| rewound.put(number, cut));
        if let Form::Maps(_) = self.form {
            return read_shown(context, self.messages, self.outcomes, self.form, self.keys);
        }
        let read = each(self.messages, |node| {
            context.log.check_message_answered()?;
            let (message, mut exchange, usage) = read_message(node, self.form.trust())?;
            settle(&message, &mut exchange);
            check_arrival(context, &message, &exchange)?;
            context.log.append_answered(message, exchange);
            if let Some(usage) = usage {
                context.log.put_reported(usage);
            }
            Ok(())
        });
        read.map_err(|error| error.within(self.keys.spell("messages")))?;
        Ok(())
    }
}

/// A result arrives late once, and for a call that waits. A conversation may begin after the call.
fn check_arrival(context: &Context, message: &Message, exchange: &Exchange) -> Result<(), Error> {
    let late = exchange.arrival.zip(message.calls.first());
    let fits = late.is_none_or(|(place, call)| {
        place.iteration == 0 || context.log.takes_arrival(place, &call.id)
    });
    fits.then_some(())
        .ok_or_else(|| wrong("arrival", "the place of a call that waits for its result"))
}

/// Ends the calls that are not run: earlier versions let calls wait although their answers were refused or filtered, or
/// another model had gone on with them.
fn settle(message: &Message, exchange: &mut Exchange) {
    if exchange.pending() == 0 {
        return;
    }
    let finish = message.reply.as_ref().and_then(|reply| reply.finish);
    let ended = finish.and_then(Finish::why_not_run);
    let fallback = LastFallback::of(&message.content);
    for (slot, call) in message.calls.iter().enumerate() {
        let words = ended.or_else(|| fallback?.why_not_run(call));
        if let (Some(words), None) = (words, exchange.slot(slot)) {
            let output = Output::Value(Value::text(words));
            exchange.fill(slot, Outcome::new(Status::Interrupted, output));
        }
    }
}
