//! Reading messages. Documents come from anywhere: any fault is an error with its path, and work and memory are in proportion
//! to the document.

use std::sync::Arc;

use crate::error::Error;
use crate::log::exchange::Exchange;
use crate::log::message::{Message, Role};
use crate::log::original::Original;
use crate::log::part::Content;
use crate::prices::bill::Reported;
use crate::storage::limits::NESTING;
use crate::storage::read_call::read_calls;
use crate::storage::read_content::read_content;
use crate::storage::table::*;
use crate::storage::take::{at, fields, wrong, DocumentFields, Form};
use crate::storage::trust::Trust;
use crate::value::json;
use crate::value::node::Node;
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
    Err(wrong("role", format!("{:?}", role.name())))
}

pub(crate) fn read_message(
    node: Node<'_>,
    trust: Trust,
) -> Result<(Message, Exchange, Option<Reported>), Error> {
    let mut fields = fields(node, "a message, a map", trust)?;
    let (role, content, metadata) = read_said(&mut fields)?;
    let is_arrival = role == Role::User && fields.has("arrival");
    let (calls, exchange) = match fields.take_given("tool_calls").map(Node::into_list) {
        None => (Box::default(), Exchange::default()),
        Some(Ok(calls)) if !calls.is_empty() && (role == Role::Assistant || is_arrival) => {
            let (calls, mut exchange) = at("tool_calls", read_calls(calls, trust))?;
            exchange.arrival = Given::<Of>::read(&mut fields, "arrival")?;
            let is_alone = calls.len() == 1 && exchange.pending() == 0 && !exchange.has_waited;
            if is_arrival && !is_alone || exchange.arrival.is_some() != is_arrival {
                return Err(wrong("arrival", "the place of a call, with its one result"));
            }
            exchange.add_metadata(Given::<Terms>::read(&mut fields, "results_metadata")?);
            exchange.original = fields
                .read_given("results_wire", |node| read_wire(node, false))?
                .filter(|_| exchange.pending() == 0);
            (calls, exchange)
        }
        Some(Ok(calls)) if calls.is_empty() => (Box::default(), Exchange::default()),
        Some(_) => {
            let expected = "a list of tool calls, in assistant messages only";
            return Err(wrong("tool_calls", expected));
        }
    };
    let usage = Given::<Of>::read(&mut fields, "usage")?;
    if usage.is_some() && role != Role::Assistant {
        return Err(wrong("usage", "nothing but in assistant messages"));
    }
    let reply = Given::<Of>::read(&mut fields, "response")?;
    if reply.is_some() && role != Role::Assistant {
        return Err(wrong("response", "nothing but in assistant messages"));
    }
    let message = Message::new(role, content, calls, metadata)
        .with_reply(reply)
        .with_original(fields.read_given("wire", |node| read_wire(node, role == Role::System))?)
        .with_extra(fields.keep_rest()?);
    Ok((message, exchange, usage))
}

/// Reads the role and the content of a message of either form.
pub(crate) fn read_said(
    fields: &mut DocumentFields<'_>,
) -> Result<(Role, Content, Option<Map>), Error> {
    let form = fields.form;
    let role = fields.read("role", |role| {
        let expected = match form {
            Form::Stored(_) => "\"system\", \"user\" or \"assistant\"",
            Form::Maps(_) => ":system, :user or :assistant",
        };
        let role = form.name_of(&role).and_then(Role::from_name);
        role.ok_or_else(|| Error::expected(expected))
    })?;
    let content = fields.read("content", |content| match form {
        Form::Stored(trust) => read_content(content, role.into(), trust),
        Form::Maps(_) => Content::from_history(content.into_value(), role.into()),
    })?;
    Ok((role, content, Given::<Terms>::read(fields, "metadata")?))
}

fn read_wire(node: Node<'_>, of_system: bool) -> Result<Original, Error> {
    let original: Original = Of::get(node, Trust::KEEP.into())?;
    if !is_elements(&original.json, of_system) {
        let expected = "JSON text of list elements, each preceded by a comma, or of a value";
        return Err(wrong("json", expected));
    }
    Ok(original)
}

/// Returns true if text can follow an element of a JSON list, or for a system prompt's value: a provider gets it as it is.
fn is_elements(json: &str, of_system: bool) -> bool {
    match json.strip_prefix(',') {
        Some(elements) => json::read(format!("[{elements}]").as_bytes(), NESTING)
            .is_ok_and(|list| matches!(list, Value::List(elements) if !elements.is_empty())),
        None => json.is_empty() || (of_system && json::read(json.as_bytes(), NESTING).is_ok()),
    }
}
