//! Reading messages: documents come from anywhere. Whatever is wrong is an error with its path; work and
//! memory are in proportion to the document.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{index, Error};
use crate::log::bill::{Bill, Count, Reported, Term};
use crate::log::call::{Arguments, Name, ToolCall};
use crate::log::decision::Decision;
use crate::log::exchange::Exchange;
use crate::log::hints;
use crate::log::kind::CallKind;
use crate::log::message::{Message, Outcome, Output, Role, Status};
use crate::log::original::Original;
use crate::log::part::{Content, Part, PartKind, Place};
use crate::log::provider::Provider;
use crate::log::reply::{Finish, Reply};
use crate::log::usage::Usage;
use crate::storage::keys;
use crate::storage::limits::{LEVELS, NESTING};
use crate::storage::node::{DocumentFields, Node};
use crate::storage::trust::{Approvals, Trust};
use crate::storage::untagged;
use crate::value::fields::utf8;
use crate::value::json;
use crate::value::time::Time;
use crate::value::{Map, Value, MAX_DEPTH};

pub(crate) fn read_message_as(
    node: Node<'_>,
    role: Role,
    trust: Trust,
) -> Result<Arc<Message>, Error> {
    let (message, _, _) = read_message(node, trust)?;
    if message.role == role {
        return Ok(Arc::new(message));
    }
    Err(wrong(keys::ROLE, format!("{:?}", role.name())))
}

pub(crate) fn read_message(
    node: Node<'_>,
    trust: Trust,
) -> Result<(Message, Exchange, Option<Reported>), Error> {
    let mut fields = fields(node, "a message")?;
    let role = fields.take(keys::ROLE);
    let role = role
        .as_ref()
        .and_then(Node::as_str)
        .and_then(Role::from_name)
        .ok_or_else(|| wrong(keys::ROLE, "\"system\", \"user\" or \"assistant\""))?;
    let content = fields.take(keys::CONTENT).unwrap_or(NIL);
    let content = at(keys::CONTENT, read_content(content, role.into(), trust))?;
    let metadata = take_map(&mut fields, keys::METADATA, trust)?;
    let (calls, exchange) = match fields.take_given(keys::TOOL_CALLS).map(Node::into_list) {
        None => (Box::default(), Exchange::default()),
        Some(Ok(calls)) if role == Role::Assistant && !calls.is_empty() => {
            let (calls, mut exchange) = at(keys::TOOL_CALLS, read_calls(calls, trust))?;
            exchange.add_metadata(take_map(&mut fields, keys::RESULTS_METADATA, trust)?);
            exchange.original = take_wire(&mut fields, keys::RESULTS_WIRE, false)?
                .filter(|_| exchange.pending() == 0);
            (calls, exchange)
        }
        Some(Ok(calls)) if calls.is_empty() => (Box::default(), Exchange::default()),
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
    let reply = fields
        .take_given(keys::RESPONSE)
        .map(|value| read_reply(value, trust));
    let reply = at(keys::RESPONSE, reply.transpose())?;
    if reply.is_some() && role != Role::Assistant {
        return Err(wrong(keys::RESPONSE, "nothing but in assistant messages"));
    }
    let message = Message::new(role, content, calls, metadata)
        .with_reply(reply)
        .with_original(take_wire(&mut fields, keys::WIRE, role == Role::System)?)
        .with_extra(rest(fields)?);
    Ok((message, exchange, usage))
}

pub(crate) fn read_size(node: Node<'_>) -> Result<usize, Error> {
    let size = match node {
        Node::Value(Value::Int(size)) => usize::try_from(size).ok(),
        _ => None,
    };
    size.ok_or_else(|| Error::invalid(Vec::new(), "a number that is not negative"))
}

fn read_reply(node: Node<'_>, trust: Trust) -> Result<Reply, Error> {
    let mut fields = fields(node, "where the message came from")?;
    let mut named = |key| fields.take_given(key).map(Node::into_text).transpose();
    let provider = named(keys::PROVIDER)
        .ok()
        .map(|name| name.map(|name| Provider::from_name(&name)));
    let Some(None | Some(Some(_))) = provider else {
        return Err(wrong(keys::PROVIDER, "the name of a provider"));
    };
    let finish = named(keys::FINISH_REASON)
        .ok()
        .map(|name| name.map(|name| Finish::from_name(&name)));
    let Some(None | Some(Some(_))) = finish else {
        return Err(wrong(keys::FINISH_REASON, "why the model stopped"));
    };
    let mut text = |key| match fields.take_given(key) {
        None => Ok(None),
        Some(node) => at(key, read_name(node)).map(Some),
    };
    let (model, id, word) = (
        text(keys::MODEL)?,
        text(keys::ID)?,
        text(keys::FINISH_WORD)?,
    );
    let [requested_at, first_chunk_at, received_at] =
        [keys::REQUESTED_AT, keys::FIRST_CHUNK_AT, keys::RECEIVED_AT]
            .map(|key| take_given_time(&mut fields, key));
    let interrupted = fields.take_given(keys::INTERRUPTED).map(|node| {
        let mut fields = self::fields(node, "why the message broke off")?;
        let reason = fields.take(keys::REASON).unwrap_or(NIL);
        at(keys::REASON, reason.into_term(trust.structs))
    });
    let details = take_map(&mut fields, keys::DETAILS, trust)?;
    Ok(Reply {
        provider: provider.flatten().flatten(),
        model,
        id,
        finish: finish.flatten().flatten(),
        word,
        requested_at: requested_at?,
        first_chunk_at: first_chunk_at?,
        received_at: received_at?,
        interrupted: at(keys::INTERRUPTED, interrupted.transpose())?,
        details,
        extra: rest(fields)?,
    })
}

pub(crate) fn read_reported(node: Node<'_>) -> Result<Reported, Error> {
    let mut fields = fields(node, "a report on tokens")?;
    let mut usage = |key| {
        let node = fields.take(key).unwrap_or(NIL);
        at(key, read_usage(node))
    };
    Ok(Reported {
        sum: usage(keys::SUM)?,
        last: usage(keys::LAST_REPORT)?,
        estimate: take_count(&mut fields, keys::ESTIMATE)?,
        bills: at(
            keys::BILLS,
            fields.take(keys::BILLS).map(read_bills).transpose(),
        )?,
    })
}

fn read_bills(node: Node<'_>) -> Result<Arc<[Bill]>, Error> {
    let bills = node.into_list();
    let bills = bills.map_err(|_| Error::invalid(Vec::new(), "a list"))?;
    bills
        .into_iter()
        .zip(0..)
        .map(|(bill, at)| read_bill(bill).map_err(|error| error.within(index(at))))
        .collect()
}

fn read_bill(node: Node<'_>) -> Result<Bill, Error> {
    let mut fields = fields(node, "a map with numbers of tokens")?;
    let usage = fields.take(keys::USAGE).unwrap_or(NIL);
    let mut bill = Bill::plain(at(keys::USAGE, read_usage(usage))?);
    let mut text = |key| match fields.take_given(key) {
        None => Ok(None),
        Some(node) => at(key, read_name(node)).map(Some),
    };
    if let Some(model) = text(keys::MODEL)? {
        bill.put_model(&model);
    }
    for (of, name) in Term::ALL {
        if let Some(word) = text(name)? {
            bill.put_term(of, &word);
        }
    }
    for (of, name) in Count::ALL {
        if fields.has(name) {
            bill.add(of, take_count(&mut fields, name)?);
        }
    }
    Ok(bill)
}

fn read_usage(node: Node<'_>) -> Result<Usage, Error> {
    let mut fields = fields(node, "numbers of tokens")?;
    Ok(Usage {
        input: take_count(&mut fields, keys::INPUT_TOKENS)?,
        output: take_count(&mut fields, keys::OUTPUT_TOKENS)?,
        total: take_count(&mut fields, keys::TOTAL_TOKENS)?,
        cached: take_count(&mut fields, keys::CACHED_TOKENS)?,
        // Earlier releases did not note it.
        written: match fields.has(keys::CACHE_WRITE_TOKENS) {
            true => take_count(&mut fields, keys::CACHE_WRITE_TOKENS)?,
            false => 0,
        },
        reasoning: take_count(&mut fields, keys::REASONING_TOKENS)?,
    })
}

/// A number that is not negative.
pub(crate) fn take_count(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<u64, Error> {
    let number = fields.take(key).and_then(|node| node.as_count());
    number.ok_or_else(|| wrong(key, "a number of tokens"))
}

pub(crate) fn take_wire(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
    of_system: bool,
) -> Result<Option<Original>, Error> {
    let read = |node| {
        let mut fields = self::fields(node, "a map with a provider and its JSON text")?;
        let provider = fields.take(keys::PROVIDER);
        let provider = provider
            .as_ref()
            .and_then(Node::as_str)
            .and_then(Provider::from_name)
            .ok_or_else(|| wrong(keys::PROVIDER, "the name of a provider"))?;
        let json = at(keys::JSON, take_name(&mut fields, keys::JSON))?;
        if !is_elements(&json, of_system) {
            let expected = "JSON text of list elements, each preceded by a comma, or of a value";
            return Err(wrong(keys::JSON, expected));
        }
        Ok(Original { provider, json })
    };
    at(key, fields.take_given(key).map(read).transpose())
}

/// Tells whether text can follow an element of a JSON list, or for a system prompt's value: a provider
/// gets it as it is.
fn is_elements(json: &str, of_system: bool) -> bool {
    match json.strip_prefix(',') {
        Some(elements) => json::read(format!("[{elements}]").as_bytes(), NESTING)
            .is_ok_and(|list| matches!(list, Value::List(elements) if !elements.is_empty())),
        None => json.is_empty() || (of_system && json::read(json.as_bytes(), NESTING).is_ok()),
    }
}

fn read_content(node: Node<'_>, place: Place, trust: Trust) -> Result<Content, Error> {
    let expected = "text, a list of parts or null";
    match node.into_list() {
        Ok(parts) => read_parts(parts, place, trust).map(Content::Parts),
        Err(Node::Text(text)) => Ok(Content::Text(text.into())),
        Err(other) => match untagged::untag_text(other.into_value())? {
            Value::Nil => Ok(Content::None),
            Value::Binary(text) => Ok(Content::Text(text)),
            _ => Err(Error::invalid(Vec::new(), expected)),
        },
    }
}

fn read_parts(parts: Vec<Node<'_>>, place: Place, trust: Trust) -> Result<Box<[Part]>, Error> {
    let read = |(position, part)| {
        read_part(part, place, trust).map_err(|error: Error| error.within(index(position)))
    };
    parts.into_iter().enumerate().map(read).collect()
}

fn read_part(node: Node<'_>, place: Place, trust: Trust) -> Result<Part, Error> {
    // As values, since what users give is read by the same rules.
    let mut fields = fields(Node::Value(node.into_value()), "a content part")?;
    let name = fields.take(keys::TYPE).unwrap_or(NIL);
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
        if let Some(value) = fields.values.get_mut(key) {
            at(key, untagged::untag(value, LEVELS, trust.structs))?;
        }
    }
    let kind = PartKind::read(name, place, &mut fields.values).map_err(|key| {
        wrong(
            key,
            match key {
                keys::TYPE => "the type of a content part that may stand here",
                _ => "what a content part of this type has here",
            },
        )
    })?;
    let provider_metadata = take_map(&mut fields, keys::PROVIDER_METADATA, trust)?;
    let hints = take_map(&mut fields, keys::OPTIONS, trust)?
        .map(|given| hints::check(kind.takes(), given))
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
        withheld: false,
    })
}

fn read_calls(nodes: Vec<Node<'_>>, trust: Trust) -> Result<(Box<[ToolCall]>, Exchange), Error> {
    let mut calls = Vec::with_capacity(nodes.len());
    let mut exchange = Exchange::new(nodes.len());
    for (position, node) in nodes.into_iter().enumerate() {
        let (call, state) =
            read_call(node, trust).map_err(|error| error.within(index(position)))?;
        match state.decision {
            Some(decision) => exchange.decide(position, decision),
            None => exchange.ask(position, state.asked),
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
struct ReadingState {
    decision: Option<Decision>,
    asked: Option<Value>,
    outcome: Option<Outcome>,
}

fn read_call(node: Node<'_>, trust: Trust) -> Result<(ToolCall, ReadingState), Error> {
    let mut fields = fields(node, "a tool call")?;
    let id = at(keys::ID, take_name(&mut fields, keys::ID))?;
    let kind = match fields.take_given(keys::KIND) {
        None => CallKind::Function,
        Some(kind) => kind
            .as_str()
            .and_then(CallKind::from_name)
            .ok_or_else(|| wrong(keys::KIND, "the kind of a tool call"))?,
    };
    let name = fields.take(keys::NAME).unwrap_or(NIL).into_value();
    let name = match at(keys::NAME, untagged::untag_key(name))? {
        Value::Binary(bytes) => utf8(Value::Binary(bytes)).map(Name::Text),
        Value::Atom(name) => Ok(Name::Atom(name)),
        other => utf8(other).map(Name::Text),
    };
    let name = name.map_err(|_| wrong(keys::NAME, "the name of a tool"))?;
    let arguments = read_arguments(kind, &mut fields, trust)?;
    let provider_metadata = take_map(&mut fields, keys::PROVIDER_METADATA, trust)?;
    let extra = take_map(&mut fields, keys::EXTRA, trust)?;
    let state = read_state(&mut fields, trust)?;
    let call = ToolCall {
        id,
        kind,
        name,
        arguments,
        provider_metadata,
        extra,
        unknown: rest(fields)?,
        aliases: crate::log::alias::Aliases::default(),
    };
    Ok((call, state))
}

fn read_arguments(
    kind: CallKind,
    fields: &mut DocumentFields<'_>,
    trust: Trust,
) -> Result<Arguments, Error> {
    let node = fields.take(keys::ARGUMENTS).unwrap_or(NIL);
    let value = at(keys::ARGUMENTS, node.into_term(trust.structs))?;
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
    let json = at(
        keys::ARGUMENTS_JSON,
        untagged::untag_text(json.into_value()),
    )?;
    let arguments = match json {
        Value::Binary(text) => Some(Arguments::from_json(text)),
        _ => None,
    };
    arguments
        .filter(|read| read.json.is_some() && read.value == value)
        .ok_or_else(|| wrong(keys::ARGUMENTS_JSON, "the arguments as JSON text"))
}

fn read_state(fields: &mut DocumentFields<'_>, trust: Trust) -> Result<ReadingState, Error> {
    let status = fields.take(keys::STATUS);
    let status = status.as_ref().and_then(Node::as_str).unwrap_or_default();
    let ended = Status::from_name(status);
    let is_open = status == "pending" || status == "approved";
    if ended.is_none() && !is_open {
        let expected = "\"pending\", \"approved\", \"denied\", \"ok\", \"error\", \"interrupted\" or \"cancelled\"";
        return Err(wrong(keys::STATUS, expected));
    }
    let decision = fields
        .take_given(keys::DECISION)
        .map(|decision| read_decision(decision, trust));
    let decision = at(keys::DECISION, decision.transpose())?;
    let asked = take_seen(fields, keys::ASKED, trust)?;
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
    let (decision, asked, ended) = match trust.approvals {
        Approvals::Keep => (decision, asked, ended),
        Approvals::Drop => (None, None, ended.map(settle_undecided)),
    };
    let outcome = match (ended, fields.take_given(keys::RESULT)) {
        (None, None) => None,
        (Some(status), Some(result)) => Some(at(keys::RESULT, read_result(status, result, trust))?),
        (None, Some(_)) => return Err(wrong(keys::RESULT, "nothing while the call is pending")),
        (Some(_), None) => return Err(wrong(keys::RESULT, "the result of the call")),
    };
    Ok(ReadingState {
        decision,
        asked,
        outcome,
    })
}

/// How a call ended for whom no decision counts: a denial filled its slot, which stays filled.
fn settle_undecided(ended: Status) -> Status {
    match ended {
        Status::Denied => Status::Error,
        other => other,
    }
}

fn read_decision(node: Node<'_>, trust: Trust) -> Result<Decision, Error> {
    let mut fields = fields(node, "a decision")?;
    let Some(Node::Value(Value::Bool(approved))) = fields.take(keys::APPROVED) else {
        return Err(wrong(keys::APPROVED, "true or false"));
    };
    let by = take_term(&mut fields, keys::BY, trust)?;
    let reason = take_term(&mut fields, keys::REASON, trust)?;
    let digest = fields.take_given(keys::DIGEST).map(Node::into_text);
    Ok(Decision {
        approved,
        by: by.unwrap_or(Value::Nil),
        reason: reason.unwrap_or(Value::Nil),
        at: at(keys::AT, take_time(&mut fields, keys::AT))?,
        arguments: take_seen(&mut fields, keys::ARGUMENTS, trust)?,
        digest: digest
            .transpose()
            .map_err(|_| wrong(keys::DIGEST, "the digest of what was approved"))?,
    })
}

/// Arguments that somebody was shown.
fn take_seen(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
    trust: Trust,
) -> Result<Option<Value>, Error> {
    match take_term(fields, key, trust)? {
        None => Ok(None),
        Some(map @ Value::Map(_)) => Ok(Some(map)),
        Some(_) => Err(wrong(key, "the arguments that were shown, a map")),
    }
}

#[inline]
fn take_term(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
    trust: Trust,
) -> Result<Option<Value>, Error> {
    let term = fields.take_given(key);
    let term = term.map(|node| node.into_term(trust.structs));
    at(key, term.transpose())
}

fn read_result(status: Status, node: Node<'_>, trust: Trust) -> Result<Outcome, Error> {
    let mut fields = fields(node, "a map with a value or parts")?;
    let parts = fields.take(keys::PARTS).map(Node::into_list);
    let output = match (fields.take(keys::VALUE), parts) {
        (Some(value), None) => Output::Value(at(keys::VALUE, value.into_term(trust.structs))?),
        (None, Some(Ok(parts))) => {
            Output::Parts(at(keys::PARTS, read_parts(parts, Place::Result, trust))?)
        }
        (None, None) => return Err(wrong(keys::VALUE, "a value, or parts beside it")),
        (_, Some(_)) => return Err(wrong(keys::PARTS, "a list of parts, or a value instead")),
    };
    let started = take_given_time(&mut fields, keys::STARTED_AT)?;
    let ended = take_given_time(&mut fields, keys::ENDED_AT)?;
    if started.is_some() != ended.is_some() {
        return Err(wrong(
            keys::ENDED_AT,
            "the times of the start and the end, both or none",
        ));
    }
    let error_type = match fields.take_given(keys::ERROR_TYPE) {
        None => None,
        Some(node) => Some(at(keys::ERROR_TYPE, read_name(node))?),
    };
    Ok(Outcome::new(status, output)
        .with_times(started.zip(ended))
        .with_error_type(error_type.as_deref())
        .with_extra(rest(fields)?))
}

/// Holds what the elements of an object are read from where there are none.
pub(crate) const NIL: Node<'static> = Node::Value(Value::Nil);

#[inline]
pub(crate) fn fields<'a>(
    node: Node<'a>,
    expected: &'static str,
) -> Result<DocumentFields<'a>, Error> {
    DocumentFields::of(node).ok_or_else(|| Error::invalid(Vec::new(), expected))
}

/// Returns what nobody took, which must be JSON.
#[inline]
pub(crate) fn rest(fields: DocumentFields<'_>) -> Result<Option<Map>, Error> {
    let Some(unknown) = fields.rest() else {
        return Ok(None);
    };
    let unknown = Value::Map(unknown);
    untagged::check_unknown(&unknown, MAX_DEPTH)?;
    match unknown {
        Value::Map(map) => Ok(Some(map)),
        _ => Ok(None),
    }
}

/// Something else was expected under a key.
pub(crate) fn wrong(
    key: &'static str,
    expected: impl Into<std::borrow::Cow<'static, str>>,
) -> Error {
    Error::invalid(vec![Value::text(key)], expected)
}

/// The result, or its error within a key.
#[inline]
pub(crate) fn at<T>(key: &'static str, read: Result<T, Error>) -> Result<T, Error> {
    read.map_err(|error| error.within(Value::text(key)))
}

#[inline]
pub(crate) fn take_name(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
) -> Result<Box<str>, Error> {
    read_name(fields.take(key).unwrap_or(NIL))
}

#[inline]
fn read_name(node: Node<'_>) -> Result<Box<str>, Error> {
    let text = untagged::untag_text(node.into_value())?;
    utf8(text).map_err(|_| Error::invalid(Vec::new(), "text"))
}

#[inline]
pub(crate) fn take_time(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<Time, Error> {
    read_time(&fields.take(key).unwrap_or(NIL))
}

/// A time that may be absent.
fn take_given_time(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
) -> Result<Option<Time>, Error> {
    let time = fields.take_given(key).as_ref().map(read_time);
    at(key, time.transpose())
}

#[inline]
pub(crate) fn read_time(node: &Node<'_>) -> Result<Time, Error> {
    node.as_time()
        .ok_or_else(|| Error::invalid(Vec::new(), "ISO 8601 text with an offset"))
}

pub(crate) fn read_number(node: Node<'_>) -> Result<u64, Error> {
    node.as_count()
        .filter(|number| *number > 0)
        .ok_or_else(|| Error::invalid(Vec::new(), "a positive integer"))
}

#[inline]
pub(crate) fn take_list<'a>(
    fields: &mut DocumentFields<'a>,
    key: &'static str,
) -> Result<Vec<Node<'a>>, Error> {
    let list = fields.take(key).unwrap_or(NIL).into_list();
    list.map_err(|_| Error::invalid(Vec::new(), "a list"))
}

/// A map of values under a key.
#[inline]
pub(crate) fn take_map(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
    trust: Trust,
) -> Result<Option<Map>, Error> {
    match take_term(fields, key, trust)? {
        None => Ok(None),
        Some(Value::Map(map)) => Ok(Some(map)),
        Some(_) => Err(wrong(key, "a map")),
    }
}
