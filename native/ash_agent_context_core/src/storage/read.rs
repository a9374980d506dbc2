//! Reading messages: documents come from anywhere. Whatever is wrong is an error with its path; work and
//! memory are in proportion to the document.

use std::sync::Arc;

use crate::error::{index, Error};
use crate::log::bill::{Bill, Count, Reported, Term};
use crate::log::exchange::Exchange;
use crate::log::message::{Message, Role};
use crate::log::original::Original;
use crate::log::provider::Provider;
use crate::log::reply::{Finish, Reply};
use crate::log::usage::Usage;
use crate::storage::keys;
use crate::storage::limits::NESTING;
use crate::storage::node::{DocumentFields, Node};
use crate::storage::read_call::read_calls;
use crate::storage::read_content::read_content;
use crate::storage::take::{
    at, fields, read_name, rest, take_given_time, take_map, take_name, wrong, NIL,
};
use crate::storage::trust::Trust;
use crate::value::json;
use crate::value::Value;

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

/// Returns whether text can follow an element of a JSON list, or for a system prompt's value: a provider
/// gets it as it is.
fn is_elements(json: &str, of_system: bool) -> bool {
    match json.strip_prefix(',') {
        Some(elements) => json::read(format!("[{elements}]").as_bytes(), NESTING)
            .is_ok_and(|list| matches!(list, Value::List(elements) if !elements.is_empty())),
        None => json.is_empty() || (of_system && json::read(json.as_bytes(), NESTING).is_ok()),
    }
}
