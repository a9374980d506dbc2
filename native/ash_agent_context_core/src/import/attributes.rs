//! Contexts from attributes: the maps that `to_map/1` gives, with atom or string keys.

use std::collections::HashMap;
use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::log::call::{MessagePlace, ToolCall};
use crate::log::document::check_number;
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Outcome, Output, Role, Status};
use crate::log::origin::Origin;
use crate::log::part::Content;
use crate::log::reply::Reply;
use crate::log::results;
use crate::value::fields::{Fields, NotThat};
use crate::value::time::{self, Time};
use crate::value::{Map, Value, MAX_DEPTH};

/// Holds what attributes may leave out.
#[derive(Debug, Clone, Copy)]
pub struct Defaults<'a> {
    /// The id of a conversation that brings none.
    pub id: &'a str,
    /// The time of what has none.
    pub at: Time,
}

const ATTRIBUTES: &str =
    "one of :id, :iterations, :current_iteration, :metadata, :origin, :created_at, :updated_at";
const ITERATION_KEYS: &str =
    "one of :number, :messages, :tool_calls, :started_at, :completed_at, :metadata";
const MESSAGE_KEYS: &str = "one of :role, :content, :tool_calls, :metadata, :state";

impl Context {
    /// A context from attributes.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of what is wrong.
    pub fn from_attributes(attributes: Value, defaults: Defaults<'_>) -> Result<Self, Error> {
        let given = Attributes::read(attributes)?;
        let id = given.id.as_deref().unwrap_or(defaults.id);
        let iterations = given.iterations.unwrap_or_default();
        let mut context = read_iterations(id, iterations, defaults.at)
            .map_err(|error| error.within(given.iterations_key))?;
        context.log.metadata = given.metadata.unwrap_or_default().into();
        context.log.origin = given.origin.map(Arc::new);
        context.log.created_at = given.created_at.unwrap_or(context.log.created_at);
        context.log.updated_at = given.updated_at.unwrap_or(defaults.at);
        context.reach(given.current, given.current_key, defaults.at)?;
        Ok(context)
    }

    /// The context with other attributes in the place of its own.
    ///
    /// # Errors
    /// As [`Context::from_attributes`].
    pub fn update_attributes(&self, attributes: Value, at: Time) -> Result<Self, Error> {
        let given = Attributes::read(attributes)?;
        let mut next = match given.iterations {
            None => self.clone(),
            Some(iterations) => {
                let mut read = read_iterations(self.id(), iterations, at)
                    .map_err(|error| error.within(given.iterations_key))?;
                read.log.created_at = self.created_at();
                read.log.metadata = self.metadata().clone();
                read.log.origin = self.log.origin.clone();
                read.log.set_extra(self.extra().cloned());
                read.take_rules(self);
                read
            }
        };
        if let Some(id) = given.id {
            next.log.id = Arc::from(id);
        }
        if let Some(metadata) = given.metadata {
            next.log.metadata = metadata.into();
        }
        if let Some(origin) = given.origin {
            next.log.origin = Some(Arc::new(origin));
        }
        next.log.created_at = given.created_at.unwrap_or(next.log.created_at);
        next.log.updated_at = given.updated_at.unwrap_or(at);
        next.grown();
        next.reach(given.current, given.current_key, at)?;
        Ok(next)
    }

    /// Makes the current iteration the one of this number: it is, or it is the next.
    fn reach(&mut self, number: Option<u64>, key: Value, at: Time) -> Result<(), Error> {
        let last = self.current_iteration();
        match number {
            None => Ok(()),
            Some(number) if number == last => Ok(()),
            // ash_agent counts from there before the first message.
            Some(0) if last == 1 && self.count_messages() == 0 => Ok(()),
            Some(number) if number.checked_sub(1) == Some(last) => {
                self.log.check_nothing_pending()?;
                self.log.complete(at);
                Ok(())
            }
            Some(_) => Err(Error::invalid(
                vec![key],
                format!(
                    "{last}, the number of the last iteration, or {}, which opens the next",
                    last.saturating_add(1)
                ),
            )),
        }
    }
}

/// Attributes as they were given.
struct Attributes {
    id: Option<Box<str>>,
    iterations: Option<Vec<Value>>,
    iterations_key: Value,
    current_key: Value,
    current: Option<u64>,
    metadata: Option<Map>,
    origin: Option<Origin>,
    created_at: Option<Time>,
    updated_at: Option<Time>,
}

impl Attributes {
    fn read(attributes: Value) -> Result<Self, Error> {
        let mut fields = fields(attributes, "a map of attributes")?;
        let attributes = Self {
            iterations_key: fields.key("iterations"),
            current_key: fields.key("current_iteration"),
            id: take(&mut fields, "id", take_id, "non-empty text")?,
            iterations: take(&mut fields, "iterations", take_list, "a list of iterations")?,
            current: take(&mut fields, "current_iteration", take_current, NUMBER)?,
            metadata: take_metadata(&mut fields)?,
            origin: take_origin(&mut fields)?,
            created_at: take(&mut fields, "created_at", take_time, TIME)?,
            updated_at: take(&mut fields, "updated_at", take_time, TIME)?,
        };
        fields.finish(ATTRIBUTES)?;
        Ok(attributes)
    }
}

fn take_origin(fields: &mut Fields) -> Result<Option<Origin>, Error> {
    let origin = fields.take_given("origin").map(Origin::read).transpose();
    origin.map_err(|error| error.within(fields.key("origin")))
}

fn take_id(fields: &mut Fields, name: &str) -> Result<Option<Box<str>>, NotThat> {
    let id = fields.take_text(name)?;
    if id.as_deref() == Some("") {
        return Err(NotThat);
    }
    Ok(id)
}

const TIME: &str = "a DateTime or ISO 8601 text with an offset";
const NUMBER: &str = "a positive integer";

/// The limit counts from each value, wherever in a document it stands.
fn check_depth(value: &Value, levels: usize) -> Result<(), Error> {
    if value.is_deeper_than(levels) {
        return Err(Error::TooDeep { limit: MAX_DEPTH });
    }
    Ok(())
}

/// Takes metadata, whose values may have the full depth.
fn take_metadata(fields: &mut Fields) -> Result<Option<Map>, Error> {
    let metadata = take(fields, "metadata", Fields::take_map, "a map")?;
    for (_, value) in metadata.iter().flat_map(Map::iter) {
        check_depth(value, MAX_DEPTH)?;
    }
    Ok(metadata)
}

/// Takes a field and says where it was when it is something else.
fn take<T>(
    fields: &mut Fields,
    name: &'static str,
    read: impl FnOnce(&mut Fields, &str) -> Result<T, NotThat>,
    expected: &'static str,
) -> Result<T, Error> {
    read(fields, name).map_err(|NotThat| Error::invalid(vec![fields.key(name)], expected))
}

fn fields(value: Value, expected: &'static str) -> Result<Fields, Error> {
    Fields::of(value).ok_or_else(|| Error::invalid(Vec::new(), expected))
}

fn take_time(fields: &mut Fields, name: &str) -> Result<Option<Time>, NotThat> {
    match fields.take_given(name) {
        None => Ok(None),
        Some(value) => time::from_value(&value).map(Some).ok_or(NotThat),
    }
}

fn take_list(fields: &mut Fields, name: &str) -> Result<Option<Vec<Value>>, NotThat> {
    match fields.take_given(name) {
        None => Ok(None),
        Some(Value::List(items)) => Ok(Some(items.into_vec())),
        Some(_) => Err(NotThat),
    }
}

fn take_number(fields: &mut Fields, name: &str) -> Result<Option<u64>, NotThat> {
    match fields.take_given(name) {
        None => Ok(None),
        Some(Value::Int(number @ 1..)) => Ok(u64::try_from(number).ok()),
        Some(_) => Err(NotThat),
    }
}

fn take_current(fields: &mut Fields, name: &str) -> Result<Option<u64>, NotThat> {
    match fields.take_given(name) {
        None => Ok(None),
        Some(Value::Int(number @ 0..)) => Ok(u64::try_from(number).ok()),
        Some(_) => Err(NotThat),
    }
}

fn index(index: usize) -> Value {
    Value::Int(i64::try_from(index).unwrap_or(i64::MAX))
}

fn read_iterations(id: &str, iterations: Vec<Value>, at: Time) -> Result<Context, Error> {
    let mut context: Option<Context> = None;
    for (position, value) in iterations.into_iter().enumerate() {
        let mut read = |value| {
            let mut fields = fields(value, "an iteration map")?;
            let iteration = read_head(&mut fields, context.as_ref(), at)?;
            if let Some(context) = &mut context {
                context.log.check_iteration_answered()?;
                context.log.open(iteration);
            } else {
                let started_at = iteration.started_at;
                context = Some(Context::start_with(id, started_at, iteration));
            }
            match &mut context {
                Some(context) => read_body(context, fields),
                None => Ok(()),
            }
        };
        read(value).map_err(|error| error.within(index(position)))?;
    }
    Ok(context.unwrap_or_else(|| Context::empty(id, at)))
}

/// Everything of an iteration but its messages.
fn read_head(fields: &mut Fields, before: Option<&Context>, at: Time) -> Result<Iteration, Error> {
    let number = take(fields, "number", take_number, NUMBER)?;
    let due = before.map(|context| context.log.due());
    let number = number.unwrap_or(due.unwrap_or(1));
    check_number(number, due).map_err(|error| error.within(fields.key("number")))?;
    let started_at = take(fields, "started_at", take_time, TIME)?;
    let mut iteration = Iteration::new(number, started_at.unwrap_or(at));
    iteration.completed_at = take(fields, "completed_at", take_time, TIME)?;
    iteration.metadata = take_metadata(fields)?.unwrap_or_default().into();
    Ok(iteration)
}

fn read_body(context: &mut Context, mut fields: Fields) -> Result<(), Error> {
    let messages = take(&mut fields, "messages", take_list, "a list of messages")?;
    let calls = take(&mut fields, "tool_calls", take_list, "a list of tool calls")?;
    let (messages_key, calls_key) = (fields.key("messages"), fields.key("tool_calls"));
    fields.finish(ITERATION_KEYS)?;
    let mut outcomes = read_outcomes(calls.unwrap_or_default())
        .map_err(|error| error.within(calls_key.clone()))?
        .into_iter();
    let within =
        |error: Error, position| error.within(index(position)).within(messages_key.clone());
    let mut answers = Answers::default();
    for (position, message) in messages.unwrap_or_default().into_iter().enumerate() {
        let read = answers
            .read(message, position)
            .map_err(|error| within(error, position))?;
        if let Some(message) = read {
            answers
                .fill(context)
                .map_err(|(position, error)| within(error, position))?;
            read_message(context, message, position, &mut outcomes)
                .map_err(|error| within(error, position))?;
        }
    }
    answers
        .fill(context)
        .map_err(|(position, error)| within(error, position))?;
    match outcomes.next() {
        None => Ok(()),
        Some((id, _)) => Err(Error::invalid(
            vec![calls_key],
            format!("calls of the iteration's messages, not {id:?}"),
        )),
    }
}

/// A call's id and, where there is one, its result.
type IdOutcome = (Box<str>, Option<Outcome>);
type Outcomes = std::vec::IntoIter<IdOutcome>;

/// The ids and results of an iteration's `tool_calls`.
fn read_outcomes(calls: Vec<Value>) -> Result<Vec<IdOutcome>, Error> {
    let read = |(position, call)| {
        let one = |call| {
            let mut fields = fields(call, "a tool call map")?;
            let id = take(&mut fields, "id", Fields::take_text, "text")?;
            let id = id.ok_or_else(|| Error::invalid(vec![fields.key("id")], "text"))?;
            let key = fields.key("result");
            let result = fields.take_given("result").map(read_result).transpose();
            let result = result.map_err(|error| error.within(key))?;
            Ok((id, result))
        };
        one(call).map_err(|error: Error| error.within(index(position)))
    };
    calls.into_iter().enumerate().map(read).collect()
}

/// `{:ok, term}`, `["ok", term]` or `%{"ok" => term}`; the same for errors.
fn read_result(value: Value) -> Result<Outcome, Error> {
    check_depth(&value, MAX_DEPTH + 1)?;
    let pair = match value {
        Value::Tuple(items) | Value::List(items) => <[Value; 2]>::try_from(items.into_vec()).ok(),
        Value::Map(map) => match <[(Value, Value); 1]>::try_from(map.into_entries()) {
            Ok([(status, term)]) => Some([status, term]),
            Err(_) => None,
        },
        _ => None,
    };
    let read = pair.and_then(|[status, term]| match status.as_name() {
        Some("ok") => Some(results::ok(term)),
        Some("error") => Some(Ok(results::error(term))),
        _ => None,
    });
    read.unwrap_or_else(|| {
        Err(Error::invalid(
            Vec::new(),
            "{:ok, term}, {:error, term} or nil",
        ))
    })
}

fn read_message(
    context: &mut Context,
    message: Value,
    position: usize,
    outcomes: &mut Outcomes,
) -> Result<(), Error> {
    let mut fields = fields(message, "a message map")?;
    let role = take(
        &mut fields,
        "role",
        take_role,
        ":system, :user or :assistant",
    )?;
    let (content_key, calls_key) = (fields.key("content"), fields.key("tool_calls"));
    let content = fields.take("content").unwrap_or(Value::Nil);
    let calls = fields.take_given("tool_calls");
    let metadata = take_metadata(&mut fields)?;
    let reply = take_state(&mut fields, role)?;
    fields.finish(MESSAGE_KEYS)?;
    context.log.check_message_answered()?;
    let content =
        Content::from_history(content, role.into()).map_err(|error| error.within(content_key))?;
    let leads = context.count_iterations() == 1 && position == 0;
    if role == Role::System && leads && metadata.is_none() {
        context.log.set_system(content);
        return Ok(());
    }
    if role != Role::Assistant && calls.is_some() {
        let expected = "tool calls in assistant messages only";
        return Err(Error::invalid(vec![calls_key], expected));
    }
    check_calls(calls.as_ref()).map_err(|error| error.within(calls_key.clone()))?;
    let place = MessagePlace {
        iteration: context.current_iteration(),
        position,
    };
    let calls = ToolCall::read_all(calls.unwrap_or(Value::Nil), place)
        .map_err(|error| error.within(calls_key.clone()))?;
    append(
        context,
        Message::new(role, content, calls, metadata).with_reply(reply),
        outcomes,
    )
    .map_err(|error| error.within(calls_key))
}

/// Returns whether a message of the model broke off.
fn take_state(fields: &mut Fields, role: Role) -> Result<Option<Reply>, Error> {
    match fields.take_given("state") {
        None => Ok(None),
        Some(state) if state.as_name() == Some("interrupted") && role == Role::Assistant => {
            Ok(Some(Reply {
                interrupted: Some(Value::Nil),
                ..Reply::default()
            }))
        }
        Some(_) => Err(Error::invalid(
            vec![fields.key("state")],
            ":interrupted, in an assistant message, or nothing",
        )),
    }
}

/// Calls are maps, and the values in them are of the depth that is allowed.
fn check_calls(calls: Option<&Value>) -> Result<(), Error> {
    let Some(Value::List(calls)) = calls else {
        return Ok(());
    };
    for (position, call) in calls.iter().enumerate() {
        if !matches!(call, Value::Map(_)) {
            return Err(Error::invalid(vec![index(position)], "a tool call map"));
        }
        check_depth(call, MAX_DEPTH + 1)?;
    }
    Ok(())
}

/// Appends a message; the results of its calls are the next of the iteration's `tool_calls`.
fn append(context: &mut Context, message: Message, outcomes: &mut Outcomes) -> Result<(), Error> {
    let ids: Vec<_> = message.calls.iter().map(|call| call.id.clone()).collect();
    context.log.append(message);
    let mut filled = Vec::new();
    for (slot, id) in ids.into_iter().enumerate() {
        match outcomes.next() {
            Some((found, outcome)) if found == id => {
                filled.extend(outcome.map(|outcome| (slot, outcome)));
            }
            None => {}
            Some((found, _)) => {
                let path = vec![index(slot), Value::atom("id")];
                let expected = format!("{found:?}, as in the iteration's tool_calls");
                return Err(Error::invalid(path, expected));
            }
        }
    }
    if !filled.is_empty() {
        context.log.update_exchange(|exchange| {
            for (slot, outcome) in filled {
                exchange.fill(slot, outcome);
            }
        });
    }
    Ok(())
}

fn take_role(fields: &mut Fields, name: &str) -> Result<Role, NotThat> {
    let role = fields.take(name).ok_or(NotThat)?;
    role.as_name().and_then(Role::from_name).ok_or(NotThat)
}

/// Projected tool-result messages: what they say fills the slots that `tool_calls` left empty.
/// Neighbours are taken together, since finding slots costs all calls of the message.
#[derive(Default)]
struct Answers {
    given: Vec<Answered>,
    metadata: Vec<(Value, Value)>,
}

struct Answered {
    /// Positions of the message and of the result in it.
    message: usize,
    result: usize,
    content_key: Value,
    id: Box<str>,
    outcome: Outcome,
}

impl Answers {
    /// Takes a tool-result message; gives any other back.
    fn read(&mut self, message: Value, position: usize) -> Result<Option<Value>, Error> {
        if !is_results_message(&message) {
            return Ok(Some(message));
        }
        let mut fields = fields(message, "a message map")?;
        let content_key = fields.key("content");
        let content = take(&mut fields, "content", take_list, "a list of tool results")?;
        let metadata = take_metadata(&mut fields)?;
        fields.take("role");
        fields.finish(MESSAGE_KEYS)?;
        self.metadata
            .extend(metadata.into_iter().flat_map(Map::into_entries));
        for (result, item) in content.unwrap_or_default().into_iter().enumerate() {
            let (id, outcome) = read_projected(item)
                .map_err(|error| error.within(index(result)).within(content_key.clone()))?;
            self.given.push(Answered {
                message: position,
                result,
                content_key: content_key.clone(),
                id,
                outcome,
            });
        }
        Ok(None)
    }

    /// Fills the slots of the last message. An error comes with the position of its message.
    fn fill(&mut self, context: &mut Context) -> Result<(), (usize, Error)> {
        let Self { given, metadata } = std::mem::take(self);
        if given.is_empty() {
            return Ok(());
        }
        let mut slots: HashMap<Box<str>, (usize, bool)> = context
            .current()
            .last()
            .into_iter()
            .flat_map(|entry| entry.calls().enumerate())
            .map(|(slot, (call, outcome))| (call.id.clone(), (slot, outcome.is_some())))
            .collect();
        let mut fills = Vec::new();
        for answer in given {
            match slots.remove(&answer.id) {
                Some((_, true)) => {}
                Some((slot, false)) => fills.push((slot, answer.outcome)),
                None => {
                    let id = Value::atom("tool_use_id");
                    let path = vec![answer.content_key, index(answer.result), id];
                    let expected = "the id of a call of the message before, once";
                    return Err((answer.message, Error::invalid(path, expected)));
                }
            }
        }
        context.log.update_exchange(|exchange| {
            for (slot, outcome) in fills {
                exchange.fill(slot, outcome);
            }
            exchange.add_metadata((!metadata.is_empty()).then(|| Map::new(metadata)));
        });
        Ok(())
    }
}

/// Returns whether a message is one that shows tool results.
fn is_results_message(message: &Value) -> bool {
    let Value::Map(map) = message else {
        return false;
    };
    let is_result = |item: &Value| match item {
        Value::Map(map) => map.get_named("type").and_then(Value::as_name) == Some("tool_result"),
        _ => false,
    };
    map.get_named("role").and_then(Value::as_name) == Some("user")
        && matches!(map.get_named("content"), Some(Value::List(items))
            if !items.is_empty() && items.iter().all(is_result))
}

fn read_projected(item: Value) -> Result<(Box<str>, Outcome), Error> {
    let mut fields = fields(item, "a tool result map")?;
    let id = take(&mut fields, "tool_use_id", Fields::take_text, "text")?;
    let id = id.ok_or_else(|| Error::invalid(vec![fields.key("tool_use_id")], "text"))?;
    let key = fields.key("content");
    let content = fields.take("content").unwrap_or(Value::Nil);
    if fields.take("is_error") == Some(Value::Bool(true)) {
        return Ok((id, Outcome::new(Status::Error, Output::Value(content))));
    }
    let outcome = results::ok(content).map_err(|error| error.within(key))?;
    Ok((id, outcome))
}
