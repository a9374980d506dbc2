//! Reading messages: documents come from anywhere. Whatever is wrong is an error with its path; work and
//! memory are in proportion to the document.

use std::sync::Arc;

use crate::error::Error;
use crate::log::bill::{Bill, Count, Reported, Term};
use crate::log::exchange::Exchange;
use crate::log::message::{Message, Role};
use crate::log::original::Original;
use crate::log::part::Content;
use crate::log::provider::Provider;
use crate::log::reply::{Finish, Reply};
use crate::log::usage::Usage;
use crate::storage::keys;
use crate::storage::limits::NESTING;
use crate::storage::node::Node;
use crate::storage::read_call::read_calls;
use crate::storage::read_content::read_content;
use crate::storage::take::{at, fields, read_name, wrong, DocumentFields, Form};
use crate::storage::trust::Trust;
use crate::value::json;
use crate::value::{Map, Value};

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
    let mut fields = fields(node, "a message, a map", trust)?;
    let (role, content, metadata) = read_said(&mut fields)?;
    let (calls, exchange) = match fields.take_given(keys::TOOL_CALLS).map(Node::into_list) {
        None => (Box::default(), Exchange::default()),
        Some(Ok(calls)) if role == Role::Assistant && !calls.is_empty() => {
            let (calls, mut exchange) = at(keys::TOOL_CALLS, read_calls(calls, trust))?;
            exchange.add_metadata(fields.take_map(keys::RESULTS_METADATA)?);
            exchange.original = fields
                .read_given(keys::RESULTS_WIRE, |node| read_wire(node, false))?
                .filter(|_| exchange.pending() == 0);
            (calls, exchange)
        }
        Some(Ok(calls)) if calls.is_empty() => (Box::default(), Exchange::default()),
        Some(_) => {
            let expected = "a list of tool calls, in assistant messages only";
            return Err(wrong(keys::TOOL_CALLS, expected));
        }
    };
    let usage = fields.read_given(keys::USAGE, read_reported)?;
    if usage.is_some() && role != Role::Assistant {
        return Err(wrong(keys::USAGE, "nothing but in assistant messages"));
    }
    let reply = fields.read_given(keys::RESPONSE, |reply| read_reply(reply, trust))?;
    if reply.is_some() && role != Role::Assistant {
        return Err(wrong(keys::RESPONSE, "nothing but in assistant messages"));
    }
    let message = Message::new(role, content, calls, metadata)
        .with_reply(reply)
        .with_original(fields.read_given(keys::WIRE, |node| read_wire(node, role == Role::System))?)
        .with_extra(fields.keep_rest()?);
    Ok((message, exchange, usage))
}

/// Reads who said what in a message of either form.
pub(crate) fn read_said(
    fields: &mut DocumentFields<'_>,
) -> Result<(Role, Content, Option<Map>), Error> {
    let form = fields.form;
    let role = fields.read(keys::ROLE, |role| {
        let expected = match form {
            Form::Stored(_) => "\"system\", \"user\" or \"assistant\"",
            Form::Maps(_) => ":system, :user or :assistant",
        };
        let role = form.name_of(&role).and_then(Role::from_name);
        role.ok_or_else(|| Error::invalid(Vec::new(), expected))
    })?;
    let content = fields.read(keys::CONTENT, |content| match form {
        Form::Stored(trust) => read_content(content, role.into(), trust),
        Form::Maps(_) => Content::from_history(content.into_value(), role.into()),
    })?;
    Ok((role, content, fields.take_map(keys::METADATA)?))
}

fn read_reply(node: Node<'_>, trust: Trust) -> Result<Reply, Error> {
    let mut fields = fields(node, "where the message came from", trust)?;
    let provider = |name| read_named(name, Provider::from_name, "the name of a provider");
    let finish = |name| read_named(name, Finish::from_name, "why the model stopped");
    Ok(Reply {
        provider: fields.read_given(keys::PROVIDER, provider)?,
        model: fields.read_given(keys::MODEL, read_name)?,
        id: fields.read_given(keys::ID, read_name)?,
        finish: fields.read_given(keys::FINISH_REASON, finish)?,
        word: fields.read_given(keys::FINISH_WORD, read_name)?,
        requested_at: fields.take_given_time(keys::REQUESTED_AT)?,
        first_chunk_at: fields.take_given_time(keys::FIRST_CHUNK_AT)?,
        received_at: fields.take_given_time(keys::RECEIVED_AT)?,
        interrupted: fields.read_given(keys::INTERRUPTED, |node| {
            let mut fields = self::fields(node, "why the message broke off", trust)?;
            fields.read(keys::REASON, |reason| reason.into_term(trust.structs))
        })?,
        details: fields.take_map(keys::DETAILS)?,
        extra: fields.keep_rest()?,
    })
}

/// Reads the name of one of a few things.
fn read_named<T>(
    node: Node<'_>,
    find: impl FnOnce(&str) -> Option<T>,
    expected: &'static str,
) -> Result<T, Error> {
    let found = node.as_str().and_then(find);
    found.ok_or_else(|| Error::invalid(Vec::new(), expected))
}

pub(crate) fn read_reported(node: Node<'_>) -> Result<Reported, Error> {
    let mut fields = fields(node, "a report on tokens", Trust::KEEP)?;
    Ok(Reported {
        sum: fields.read(keys::SUM, read_usage)?,
        last: fields.read(keys::LAST_REPORT, read_usage)?,
        estimate: fields.read(keys::ESTIMATE, read_count)?,
        bills: match fields.has(keys::BILLS) {
            true => Some(fields.read_each(keys::BILLS, read_bill)?.into()),
            false => None,
        },
    })
}

fn read_bill(node: Node<'_>) -> Result<Bill, Error> {
    let mut fields = fields(node, "a map with numbers of tokens", Trust::KEEP)?;
    let mut bill = Bill::plain(fields.read(keys::USAGE, read_usage)?);
    if let Some(model) = fields.read_given(keys::MODEL, read_name)? {
        bill.put_model(&model);
    }
    for of in Term::ALL {
        if let Some(word) = fields.read_given(of.name(), read_name)? {
            bill.put_term(of, &word);
        }
    }
    for of in Count::ALL {
        if fields.has(of.name()) {
            bill.add(of, fields.read(of.name(), read_count)?);
        }
    }
    Ok(bill)
}

fn read_usage(node: Node<'_>) -> Result<Usage, Error> {
    let mut fields = fields(node, "numbers of tokens", Trust::KEEP)?;
    Ok(Usage {
        input: fields.read(keys::INPUT_TOKENS, read_count)?,
        output: fields.read(keys::OUTPUT_TOKENS, read_count)?,
        total: fields.read(keys::TOTAL_TOKENS, read_count)?,
        cached: fields.read(keys::CACHED_TOKENS, read_count)?,
        // Earlier releases did not note it.
        written: match fields.has(keys::CACHE_WRITE_TOKENS) {
            true => fields.read(keys::CACHE_WRITE_TOKENS, read_count)?,
            false => 0,
        },
        reasoning: fields.read(keys::REASONING_TOKENS, read_count)?,
    })
}

/// A number that is not negative.
fn read_count(node: Node<'_>) -> Result<u64, Error> {
    let number = node.as_count();
    number.ok_or_else(|| Error::invalid(Vec::new(), "a number of tokens"))
}

fn read_wire(node: Node<'_>, of_system: bool) -> Result<Original, Error> {
    let expected = "a map with a provider and its JSON text";
    let mut fields = fields(node, expected, Trust::KEEP)?;
    let provider = fields.read(keys::PROVIDER, |name| {
        read_named(name, Provider::from_name, "the name of a provider")
    })?;
    let json = fields.take_name(keys::JSON)?;
    if !is_elements(&json, of_system) {
        let expected = "JSON text of list elements, each preceded by a comma, or of a value";
        return Err(wrong(keys::JSON, expected));
    }
    Ok(Original { provider, json })
}

/// Returns whether text can follow an element of a JSON list, or for a system prompt's value: a provider
/// gets it as it is.
fn is_elements(json: &str, of_system: bool) -> bool {
    match json.strip_prefix(',') {
        Some(elements) => json::read(format!("[{elements}]").as_bytes(), NESTING)
            .is_ok_and(|list| matches!(list, Value::List(elements) if !elements.is_empty())),
        None => json.is_empty() || (of_system && json::read(json.as_bytes(), NESTING).is_ok()),
    }
}
