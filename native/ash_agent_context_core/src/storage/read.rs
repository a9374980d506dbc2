//! Reading: documents come from anywhere. Whatever is wrong is an error with its path; work and
//! memory are in proportion to the document.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::log::call::{Arguments, Name, ToolCall};
use crate::log::decision::Decision;
use crate::log::hints;
use crate::log::iteration::{Exchange, Iteration};
use crate::log::kind::CallKind;
use crate::log::message::{Message, Outcome, Output, Role, Status};
use crate::log::notes::Notes;
use crate::log::part::{Content, Part, PartKind, Place};
use crate::log::provider::Provider;
use crate::log::usage::{Reported, Usage};
use crate::log::wire::Wire;
use crate::storage::view::Stored;
use crate::storage::{keys, tag, LEVELS, NESTING, VERSION};
use crate::value::fields::{utf8, Fields};
use crate::value::json;
use crate::value::time::{self, Time};
use crate::value::{Map, Size, Value, MAX_DEPTH};
use crate::view::masks::Masks;

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

    /// The conversation of a document as a value with string keys.
    ///
    /// # Errors
    /// As [`Context::from_snapshot`].
    pub fn load(document: Value) -> Result<Self, Error> {
        let head = Head::read(document, None)?;
        if head.since.is_some_and(|since| since > 1) || head.shared > 0 {
            return Err(Error::invalid(
                vec![Value::text(keys::SINCE)],
                "a whole conversation; this is what a dump with :since gives, to be loaded onto a context",
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
        let known = self.view.as_deref().and_then(|view| view.masks.as_ref());
        let head = Head::read(document, known)?;
        if *head.id != *self.id {
            return Err(wrong(
                keys::ID,
                format!("{:?}, the id of the conversation", self.id),
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
    metadata: Notes,
    system: Option<Arc<Message>>,
    view: Option<Stored>,
    iterations: Vec<Value>,
    extra: Option<Map>,
}

impl Head {
    fn read(document: Value, masks: Option<&Arc<Masks>>) -> Result<Self, Error> {
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
        Ok(Self {
            id,
            since,
            shared: shared.unwrap_or_default(),
            created_at: at(keys::CREATED_AT, take_time(&mut fields, keys::CREATED_AT))?,
            updated_at: at(keys::UPDATED_AT, take_time(&mut fields, keys::UPDATED_AT))?,
            metadata: take_map(&mut fields, keys::METADATA)?
                .unwrap_or_default()
                .into(),
            system: at(keys::SYSTEM, system.map(read_system).transpose())?,
            view: at(
                keys::VIEW,
                view.map(|view| Stored::read(view, masks)).transpose(),
            )?,
            iterations: at(keys::ITERATIONS, take_list(&mut fields, keys::ITERATIONS))?,
            extra: rest(fields)?,
        })
    }

    /// The conversation with these iterations alone.
    fn replace(mut self) -> Result<Context, Error> {
        let mut iterations = std::mem::take(&mut self.iterations).into_iter();
        let Some(first) = iterations.next() else {
            return Err(wrong(keys::ITERATIONS, "at least one iteration"));
        };
        let first = || {
            let (iteration, messages) = read_iteration(first, None)?;
            let mut context = Context::starting(&self.id, iteration.started_at, iteration);
            read_messages(&mut context, messages)?;
            Ok(context)
        };
        let mut context = first().map_err(|error: Error| in_iterations(error, 0))?;
        open_all(&mut context, iterations, 1)?;
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
            let (iteration, messages) = read_iteration(first, Some(since))?;
            let mut context = cut_before(base, since, iteration);
            let entries = base
                .numbered(since)
                .into_iter()
                .flat_map(Iteration::entries);
            for entry in entries.take(self.shared) {
                context.append_entry(entry.clone());
            }
            if context.current().entries().len() < self.shared {
                let expected = format!("no more than {}", context.current().entries().len());
                return Err(wrong(keys::SHARED, expected));
            }
            read_messages(&mut context, messages)?;
            Ok(context)
        };
        let mut context = open_first().map_err(|error| in_iterations(error, 0))?;
        let held_by = base.numbered(since).and_then(Iteration::held_by);
        if held_by != context.current().held_by() {
            context.forget_wire(held_by, false);
        }
        open_all(&mut context, iterations, 1)?;
        self.put_into(&mut context)?;
        Ok(context)
    }

    fn put_into(self, context: &mut Context) -> Result<(), Error> {
        context.id = self.id.into();
        context.created_at = self.created_at;
        context.updated_at = self.updated_at;
        context.metadata = self.metadata;
        context.system = self.system;
        context.set_extra(self.extra);
        context.view = None;
        context.tallies = Default::default();
        match self.view {
            Some(view) => at(keys::VIEW, view.put_on(context)),
            None => Ok(()),
        }
    }
}

/// The conversation before an iteration, with another one in its place.
fn cut_before(base: &Context, since: u64, iteration: Iteration) -> Context {
    let before = i64::try_from(since)
        .ok()
        .and_then(|since| base.index(since - 1));
    let Some(before) = before else {
        return Context::starting(&base.id, iteration.started_at, iteration);
    };
    let mut context = base.clone();
    context.cut(before);
    context.open(iteration);
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

/// Opens the iterations behind the current one.
fn open_all(
    context: &mut Context,
    iterations: impl Iterator<Item = Value>,
    position: usize,
) -> Result<(), Error> {
    for (value, position) in iterations.zip(position..) {
        let read = || {
            if context.check_nothing_pending().is_err() {
                let ids = context.current().pending_ids();
                return Err(Error::invalid(
                    Vec::new(),
                    format!("results for the tool calls {ids:?} of the iteration before"),
                ));
            }
            let due = context.current_iteration().saturating_add(1);
            let (iteration, messages) = read_iteration(value, Some(due))?;
            context.open(iteration);
            read_messages(context, messages)
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

/// An iteration without its messages, and these.
fn read_iteration(value: Value, due: Option<u64>) -> Result<(Iteration, Vec<Value>), Error> {
    let mut fields = fields(value, "an iteration")?;
    let number = at(
        keys::NUMBER,
        read_number(fields.take(keys::NUMBER).unwrap_or(Value::Nil)),
    )?;
    if let Some(due) = due.filter(|due| *due != number) {
        let expected = format!("{due}, the number behind the iteration before it");
        return Err(wrong(keys::NUMBER, expected));
    }
    let started_at = at(keys::STARTED_AT, take_time(&mut fields, keys::STARTED_AT))?;
    let mut iteration = Iteration::new(number, started_at);
    if let Some(completed_at) = fields.take_given(keys::COMPLETED_AT) {
        iteration.completed_at = Some(at(keys::COMPLETED_AT, read_time(&completed_at))?);
    }
    iteration.metadata = take_map(&mut fields, keys::METADATA)?
        .unwrap_or_default()
        .into();
    let messages = at(keys::MESSAGES, take_list(&mut fields, keys::MESSAGES))?;
    Ok((iteration.with_extra(rest(fields)?), messages))
}

fn read_messages(context: &mut Context, messages: Vec<Value>) -> Result<(), Error> {
    for (position, value) in messages.into_iter().enumerate() {
        let read = || {
            if context.check_nothing_pending().is_err() {
                let expected = "results for the tool calls of the message before";
                return Err(Error::invalid(Vec::new(), expected));
            }
            read_message(value)
        };
        let (message, exchange, usage) = read().map_err(|error| {
            error
                .within(index(position))
                .within(Value::text(keys::MESSAGES))
        })?;
        context.append_answered(message, exchange);
        if let Some(usage) = usage {
            context.put_reported(usage);
        }
    }
    Ok(())
}

fn read_system(value: Value) -> Result<Arc<Message>, Error> {
    read_message_as(value, Role::System)
}

pub(crate) fn read_message_as(value: Value, role: Role) -> Result<Arc<Message>, Error> {
    let (message, _, _) = read_message(value)?;
    if message.role == role {
        return Ok(Arc::new(message));
    }
    Err(wrong(keys::ROLE, format!("{:?}", role.name())))
}

fn read_message(value: Value) -> Result<(Message, Exchange, Option<Reported>), Error> {
    let mut fields = fields(value, "a message")?;
    let role = fields.take(keys::ROLE);
    let role = role
        .as_ref()
        .and_then(Value::as_str)
        .and_then(Role::from_name)
        .ok_or_else(|| wrong(keys::ROLE, "\"system\", \"user\" or \"assistant\""))?;
    let place = match role {
        Role::System => Place::System,
        Role::User => Place::User,
        Role::Assistant => Place::Assistant,
    };
    let content = fields.take(keys::CONTENT).unwrap_or(Value::Nil);
    let content = at(keys::CONTENT, read_content(content, place))?;
    let metadata = take_map(&mut fields, keys::METADATA)?;
    let (calls, exchange) = match fields.take_given(keys::TOOL_CALLS) {
        None => (Box::default(), Exchange::default()),
        Some(Value::List(calls)) if role == Role::Assistant && !calls.is_empty() => {
            let (calls, mut exchange) = at(keys::TOOL_CALLS, read_calls(calls.into_vec()))?;
            exchange.add_metadata(take_map(&mut fields, keys::RESULTS_METADATA)?);
            exchange.wire = take_wire(&mut fields, keys::RESULTS_WIRE, false)?
                .filter(|_| exchange.pending() == 0);
            (calls, exchange)
        }
        Some(Value::List(calls)) if calls.is_empty() => (Box::default(), Exchange::default()),
        Some(_) => {
            let expected = "a list of tool calls, in assistant messages only";
            return Err(wrong(keys::TOOL_CALLS, expected));
        }
    };
    let usage = at(
        keys::USAGE,
        fields
            .take_given(keys::USAGE)
            .map(read_reported)
            .transpose(),
    )?;
    if usage.is_some() && role != Role::Assistant {
        return Err(wrong(keys::USAGE, "nothing but in assistant messages"));
    }
    let message = Message::new(role, content, calls, metadata)
        .with_wire(take_wire(&mut fields, keys::WIRE, role == Role::System)?)
        .with_extra(rest(fields)?);
    Ok((message, exchange, usage))
}

pub(crate) fn read_size(value: Value) -> Result<usize, Error> {
    let size = match value {
        Value::Int(size) => usize::try_from(size).ok(),
        _ => None,
    };
    size.ok_or_else(|| Error::invalid(Vec::new(), "a number that is not negative"))
}

fn read_reported(value: Value) -> Result<Reported, Error> {
    let mut fields = fields(value, "a report on tokens")?;
    let mut usage = |key| {
        let value = fields.take(key).unwrap_or(Value::Nil);
        at(key, read_usage(value))
    };
    Ok(Reported {
        sum: usage(keys::SUM)?,
        last: usage(keys::LAST_REPORT)?,
        estimate: take_count(&mut fields, keys::ESTIMATE)?,
    })
}

fn read_usage(value: Value) -> Result<Usage, Error> {
    let mut fields = fields(value, "numbers of tokens")?;
    Ok(Usage {
        input: take_count(&mut fields, keys::INPUT_TOKENS)?,
        output: take_count(&mut fields, keys::OUTPUT_TOKENS)?,
        total: take_count(&mut fields, keys::TOTAL_TOKENS)?,
        cached: take_count(&mut fields, keys::CACHED_TOKENS)?,
        reasoning: take_count(&mut fields, keys::REASONING_TOKENS)?,
    })
}

/// A number that is not negative.
fn take_count(fields: &mut Fields, key: &'static str) -> Result<u64, Error> {
    let number = match fields.take(key) {
        Some(Value::Int(number)) => u64::try_from(number).ok(),
        Some(Value::BigInt(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    number.ok_or_else(|| wrong(key, "a number of tokens"))
}

fn take_wire(
    fields: &mut Fields,
    key: &'static str,
    of_system: bool,
) -> Result<Option<Wire>, Error> {
    let read = |value| {
        let mut fields = self::fields(value, "a map with a provider and its JSON text")?;
        let provider = fields.take(keys::PROVIDER);
        let provider = provider
            .as_ref()
            .and_then(Value::as_str)
            .and_then(Provider::from_name)
            .ok_or_else(|| wrong(keys::PROVIDER, "the name of a provider"))?;
        let json = at(keys::JSON, take_name(&mut fields, keys::JSON))?;
        if !is_elements(&json, of_system) {
            let expected = "JSON text of list elements, each with a comma in front, or of a value";
            return Err(wrong(keys::JSON, expected));
        }
        Ok(Wire { provider, json })
    };
    at(key, fields.take_given(key).map(read).transpose())
}

/// Whether text can stand behind an element of a JSON list, or for a system prompt's value: a provider
/// gets it as it is.
fn is_elements(json: &str, of_system: bool) -> bool {
    match json.strip_prefix(',') {
        Some(elements) => json::read(format!("[{elements}]").as_bytes(), NESTING)
            .is_ok_and(|list| matches!(list, Value::List(elements) if !elements.is_empty())),
        None => json.is_empty() || (of_system && json::read(json.as_bytes(), NESTING).is_ok()),
    }
}

fn read_content(value: Value, place: Place) -> Result<Content, Error> {
    let expected = "text, a list of parts or null";
    match tag::untag_text(value)? {
        Value::Nil => Ok(Content::None),
        Value::Binary(text) => Ok(Content::Text(text)),
        Value::List(parts) => read_parts(parts, place).map(Content::Parts),
        _ => Err(Error::invalid(Vec::new(), expected)),
    }
}

fn read_parts(parts: Box<[Value]>, place: Place) -> Result<Box<[Part]>, Error> {
    let read = |(position, part)| {
        read_part(part, place).map_err(|error: Error| error.within(index(position)))
    };
    parts.into_vec().into_iter().enumerate().map(read).collect()
}

fn read_part(value: Value, place: Place) -> Result<Part, Error> {
    let mut fields = fields(value, "a content part")?;
    let name = fields.take(keys::TYPE).unwrap_or(Value::Nil);
    let name = name.as_str().unwrap_or_default();
    // Fields that are another type's are not known here, and kept as they came.
    let own: &[&'static str] = match name {
        "text" | "thinking" => &[keys::TEXT],
        "image" | "audio" | "video" => &[keys::MEDIA_TYPE, keys::DATA, keys::URL, keys::FILE_ID],
        "file" => &[
            keys::MEDIA_TYPE,
            keys::FILENAME,
            keys::DATA,
            keys::URL,
            keys::FILE_ID,
        ],
        _ => &[keys::DATA],
    };
    for key in own {
        if let Some(value) = fields.get_mut(key) {
            at(key, tag::untag(value, LEVELS))?;
        }
    }
    let kind = PartKind::read(name, place, &mut fields).map_err(|key| {
        wrong(
            key,
            match key {
                keys::TYPE => "the type of a content part that may stand here",
                _ => "what a content part of this type has here",
            },
        )
    })?;
    let provider_metadata = take_map(&mut fields, keys::PROVIDER_METADATA)?;
    let hints = take_map(&mut fields, keys::OPTIONS)?
        .map(|given| hints::check(&kind, given))
        .transpose()
        .map_err(|key| {
            let expected = "what a content part of this type can be asked";
            Error::invalid(vec![Value::text(keys::OPTIONS), Value::text(key)], expected)
        })?;
    Ok(Part {
        kind,
        provider_metadata,
        hints,
        extra: rest(fields)?,
        item_reused: false,
    })
}

fn read_calls(values: Vec<Value>) -> Result<(Box<[ToolCall]>, Exchange), Error> {
    let mut calls = Vec::with_capacity(values.len());
    let mut exchange = Exchange::new(values.len());
    for (position, value) in values.into_iter().enumerate() {
        let (call, state) = read_call(value).map_err(|error| error.within(index(position)))?;
        if let Some(decision) = state.decision {
            exchange.decide(position, decision);
        }
        if let Some(outcome) = state.outcome {
            exchange.fill(position, outcome);
        }
        calls.push(call);
    }
    if calls.len() > 1 {
        let mut seen = HashSet::with_capacity(calls.len());
        let twice = calls.iter().position(|call| !seen.insert(&*call.id));
        if let Some(position) = twice {
            let path = vec![index(position), Value::text(keys::ID)];
            return Err(Error::invalid(path, "ids that differ within a message"));
        }
    }
    Ok((calls.into_boxed_slice(), exchange))
}

/// Where a call stands.
struct State {
    decision: Option<Decision>,
    outcome: Option<Outcome>,
}

fn read_call(value: Value) -> Result<(ToolCall, State), Error> {
    let mut fields = fields(value, "a tool call")?;
    let id = at(keys::ID, take_name(&mut fields, keys::ID))?;
    let kind = match fields.take_given(keys::KIND) {
        None => CallKind::Function,
        Some(kind) => kind
            .as_str()
            .and_then(CallKind::from_name)
            .ok_or_else(|| wrong(keys::KIND, "the kind of a tool call"))?,
    };
    let name = fields.take(keys::NAME).unwrap_or(Value::Nil);
    let name = match at(keys::NAME, tag::untag_key(name))? {
        Value::Binary(bytes) => utf8(Value::Binary(bytes)).map(Name::Text),
        Value::Atom(name) => Ok(Name::Atom(name)),
        other => utf8(other).map(Name::Text),
    };
    let name = name.map_err(|_| wrong(keys::NAME, "the name of a tool"))?;
    let arguments = read_arguments(kind, &mut fields)?;
    let provider_metadata = take_map(&mut fields, keys::PROVIDER_METADATA)?;
    let extra = take_map(&mut fields, keys::EXTRA)?;
    let state = read_state(&mut fields)?;
    let call = ToolCall {
        id,
        kind,
        name,
        arguments,
        provider_metadata,
        extra,
        unknown: rest(fields)?,
        aliases: crate::log::ids::Aliases::default(),
    };
    Ok((call, state))
}

fn read_arguments(kind: CallKind, fields: &mut Fields) -> Result<Arguments, Error> {
    let mut value = fields.take(keys::ARGUMENTS).unwrap_or(Value::Nil);
    at(keys::ARGUMENTS, tag::untag(&mut value, LEVELS))?;
    if !matches!(value, Value::Map(_) | Value::Binary(_)) {
        return Err(wrong(keys::ARGUMENTS, "a map or text"));
    }
    if kind == CallKind::Custom && !matches!(value, Value::Binary(_)) {
        return Err(wrong(keys::ARGUMENTS, "text"));
    }
    let Some(json) = fields.take_given(keys::ARGUMENTS_JSON) else {
        return Ok(Arguments { value, json: None });
    };
    // A provider gets this text as it is, the tool gets the value: the two must not differ.
    let json = at(keys::ARGUMENTS_JSON, tag::untag_text(json))?;
    let arguments = match json {
        Value::Binary(text) => Some(Arguments::from_json(text)),
        _ => None,
    };
    arguments
        .filter(|read| read.json.is_some() && read.value == value)
        .ok_or_else(|| wrong(keys::ARGUMENTS_JSON, "the arguments as JSON text"))
}

fn read_state(fields: &mut Fields) -> Result<State, Error> {
    let status = fields.take(keys::STATUS);
    let status = status.as_ref().and_then(Value::as_str).unwrap_or_default();
    let ended = Status::from_name(status);
    let is_open = status == "pending" || status == "approved";
    if ended.is_none() && !is_open {
        let expected = "\"pending\", \"approved\", \"denied\", \"ok\", \"error\", \"interrupted\" or \"cancelled\"";
        return Err(wrong(keys::STATUS, expected));
    }
    let decision = fields.take_given(keys::DECISION).map(read_decision);
    let decision = at(keys::DECISION, decision.transpose())?;
    let fits = match (&decision, ended) {
        (Some(decision), _) if !decision.approved => ended == Some(Status::Denied),
        (Some(_), None) => status == "approved",
        (Some(_), Some(status)) => status != Status::Denied,
        (None, _) => status != "approved" && status != "denied",
    };
    if !fits {
        return Err(wrong(
            keys::DECISION,
            "the decision that the status tells of",
        ));
    }
    let outcome = match (ended, fields.take_given(keys::RESULT)) {
        (None, None) => None,
        (Some(status), Some(result)) => Some(at(keys::RESULT, read_result(status, result))?),
        (None, Some(_)) => return Err(wrong(keys::RESULT, "nothing while the call is pending")),
        (Some(_), None) => return Err(wrong(keys::RESULT, "the result of the call")),
    };
    Ok(State { decision, outcome })
}

fn read_decision(value: Value) -> Result<Decision, Error> {
    let mut fields = fields(value, "a decision")?;
    let Some(Value::Bool(approved)) = fields.take(keys::APPROVED) else {
        return Err(wrong(keys::APPROVED, "true or false"));
    };
    let mut term = |key| {
        let mut value = fields.take(key).unwrap_or(Value::Nil);
        at(key, tag::untag(&mut value, LEVELS)).map(|_| value)
    };
    Ok(Decision {
        approved,
        by: term(keys::BY)?,
        reason: term(keys::REASON)?,
        at: at(keys::AT, take_time(&mut fields, keys::AT))?,
    })
}

fn read_result(status: Status, value: Value) -> Result<Outcome, Error> {
    let mut fields = fields(value, "a map with a value or parts")?;
    let output = match (fields.take(keys::VALUE), fields.take(keys::PARTS)) {
        (Some(mut value), None) => {
            at(keys::VALUE, tag::untag(&mut value, LEVELS))?;
            Output::Value(value)
        }
        (None, Some(Value::List(parts))) => {
            Output::Parts(at(keys::PARTS, read_parts(parts, Place::Result))?)
        }
        (None, None) => return Err(wrong(keys::VALUE, "a value, or parts beside it")),
        (_, Some(_)) => return Err(wrong(keys::PARTS, "a list of parts, or a value instead")),
    };
    Ok(Outcome::new(status, output).with_extra(rest(fields)?))
}

pub(crate) fn fields(value: Value, expected: &'static str) -> Result<Fields, Error> {
    Fields::of(value).ok_or_else(|| Error::invalid(Vec::new(), expected))
}

/// What nobody took, which must be JSON.
pub(crate) fn rest(fields: Fields) -> Result<Option<Map>, Error> {
    let Some(unknown) = fields.rest() else {
        return Ok(None);
    };
    let unknown = Value::Map(unknown);
    tag::check_unknown(&unknown, MAX_DEPTH)?;
    match unknown {
        Value::Map(map) => Ok(Some(map)),
        _ => Ok(None),
    }
}

/// An index as a step of a path.
pub(crate) fn index(index: usize) -> Value {
    Value::Int(i64::try_from(index).unwrap_or(i64::MAX))
}

/// Something else was expected under a key.
pub(crate) fn wrong(
    key: &'static str,
    expected: impl Into<std::borrow::Cow<'static, str>>,
) -> Error {
    Error::invalid(vec![Value::text(key)], expected)
}

/// The result, or its error within a key.
pub(crate) fn at<T>(key: &'static str, read: Result<T, Error>) -> Result<T, Error> {
    read.map_err(|error| error.within(Value::text(key)))
}

pub(crate) fn take_name(fields: &mut Fields, key: &'static str) -> Result<Box<str>, Error> {
    let text = tag::untag_text(fields.take(key).unwrap_or(Value::Nil))?;
    utf8(text).map_err(|_| Error::invalid(Vec::new(), "text"))
}

fn take_time(fields: &mut Fields, key: &'static str) -> Result<Time, Error> {
    read_time(&fields.take(key).unwrap_or(Value::Nil))
}

fn read_time(value: &Value) -> Result<Time, Error> {
    time::from_value(value)
        .ok_or_else(|| Error::invalid(Vec::new(), "ISO 8601 text with an offset"))
}

pub(crate) fn read_number(value: Value) -> Result<u64, Error> {
    let number = match value {
        Value::Int(number) => u64::try_from(number).ok(),
        Value::BigInt(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| Error::invalid(Vec::new(), "a positive integer"))
}

pub(crate) fn take_list(fields: &mut Fields, key: &'static str) -> Result<Vec<Value>, Error> {
    match fields.take(key) {
        Some(Value::List(items)) => Ok(items.into_vec()),
        _ => Err(Error::invalid(Vec::new(), "a list")),
    }
}

/// A map of values under a key.
fn take_map(fields: &mut Fields, key: &'static str) -> Result<Option<Map>, Error> {
    let Some(mut value) = fields.take_given(key) else {
        return Ok(None);
    };
    at(key, tag::untag(&mut value, LEVELS))?;
    match value {
        Value::Map(map) => Ok(Some(map)),
        _ => Err(wrong(key, "a map")),
    }
}
