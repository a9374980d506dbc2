//! Reads stored tool calls with their decisions and results.

use std::collections::HashSet;

use crate::error::{each, index, Error};
use crate::log::call::{Arguments, Name, ToolCall};
use crate::log::decision::{Decision, Stage};
use crate::log::exchange::Exchange;
use crate::log::kind::CallKind;
use crate::log::late::Late;
use crate::log::message::{Outcome, Output, Status};
use crate::log::part::Place;
use crate::storage::read_content::read_parts;
use crate::storage::spelling::Spelling;
use crate::storage::table::*;
use crate::storage::take::{at, fields, wrong, DocumentFields, NIL};
use crate::storage::trust::{Approvals, Trust};
use crate::storage::untagged;
use crate::value::fields::utf8;
use crate::value::node::Node;
use crate::value::Value;

pub(crate) fn read_calls(
    nodes: Vec<Node<'_>>,
    trust: Trust,
) -> Result<(Box<[ToolCall]>, Exchange), Error> {
    let mut exchange = Exchange::new(nodes.len());
    let mut position = 0;
    let calls: Vec<_> = each(nodes, |node| {
        let call = read_call(node, trust, &mut exchange, position)?;
        position += 1;
        Ok(call)
    })?;
    if calls.len() > 1 {
        let mut seen = HashSet::with_capacity(calls.len());
        let twice = calls.iter().position(|call| !seen.insert(&*call.id));
        if let Some(position) = twice {
            let path = vec![index(position), Value::text("id")];
            return Err(Error::invalid(path, "ids that differ within a message"));
        }
    }
    Ok((calls.into_boxed_slice(), exchange))
}

fn read_call(
    node: Node<'_>,
    trust: Trust,
    exchange: &mut Exchange,
    slot: usize,
) -> Result<ToolCall, Error> {
    let mut fields = fields(node, "a tool call", trust)?;
    let id = Text::read(&mut fields, "id")?;
    let kind = Given::<OneOf>::read(&mut fields, "kind")?.unwrap_or(CallKind::Function);
    let name = fields.take("name").unwrap_or(NIL).into_value();
    let name = match at("name", untagged::untag_key(name))? {
        Value::Atom(name) => Ok(Name::Atom(name)),
        other => utf8(other).map(Name::Text),
    };
    let name = name.map_err(|_| wrong("name", "the name of a tool"))?;
    let arguments = read_arguments(kind, &mut fields, trust)?;
    let provider_metadata = Given::<Terms>::read(&mut fields, "provider_metadata")?;
    let extra = Given::<Terms>::read(&mut fields, "extra")?;
    read_state(&mut fields, trust, exchange, slot)?;
    Ok(ToolCall {
        id,
        kind,
        name,
        arguments,
        provider_metadata,
        extra,
        unknown: fields.keep_rest()?,
        aliases: crate::log::alias::Aliases::default(),
    })
}

fn read_arguments(
    kind: CallKind,
    fields: &mut DocumentFields<'_>,
    trust: Trust,
) -> Result<Arguments, Error> {
    let value = fields.read("arguments", |node| node.into_term(trust.structs))?;
    if !matches!(value, Value::Map(_) | Value::Binary(_)) {
        return Err(wrong("arguments", "a map or text"));
    }
    if kind == CallKind::Custom && !matches!(value, Value::Binary(_)) {
        return Err(wrong("arguments", "text"));
    }
    let spaced = Mark::read(fields, "arguments_spaced")?;
    let (key, text, expected) = if let Some(json) = fields.take_given("arguments_json") {
        let json = at("arguments_json", untagged::untag_text(json.into_value()))?;
        let text = match json {
            Value::Binary(text) => Some(text),
            _ => None,
        };
        ("arguments_json", text, "the arguments as JSON text")
    } else if fields.has("arguments_order") {
        let keys = Each::<Plain, true>::read(fields, "arguments_order")?;
        let text = Spelling { keys, spaced }.write(&value);
        ("arguments_order", text, "the keys of the arguments")
    } else {
        return Ok(Arguments { value, json: None });
    };
    // A provider gets this text as it is, the tool gets the value: the two must not differ.
    text.map(Arguments::from_json)
        .filter(|read| read.json.is_some() && read.value == value)
        .ok_or_else(|| wrong(key, expected))
}

/// Reads the state of a call: its question, decision and result.
fn read_state(
    fields: &mut DocumentFields<'_>,
    trust: Trust,
    exchange: &mut Exchange,
    slot: usize,
) -> Result<(), Error> {
    let status = fields.take("status");
    let status = status.as_ref().and_then(Node::as_str).unwrap_or_default();
    let ended = Status::from_name(status);
    let is_open = status == "pending" || status == "approved";
    if ended.is_none() && !is_open {
        let expected = "\"pending\", \"approved\", \"denied\", \"ok\", \"error\", \"interrupted\", \"cancelled\", \"unknown\" or \"waiting\"";
        return Err(wrong("status", expected));
    }
    let decision: Option<Decision> = Given::<Of>::read(fields, "decision")?;
    let asked = Given::<Seen>::read(fields, "asked")?;
    let is_asked = match fields.take_given("was_asked") {
        // If there are such arguments, somebody was asked.
        None => asked.is_some(),
        Some(Node::Value(Value::Bool(was_asked))) => was_asked || asked.is_some(),
        Some(_) => return Err(wrong("was_asked", "true or false")),
    };
    let edited = Given::<Edited>::read(fields, "edited")?;
    let is_question = Mark::read(fields, "question")? && trust.approvals == Approvals::Keep;
    let fits = match (&decision, ended) {
        (Some(decision), _) if !decision.approved => {
            ended == Some(Status::Denied) && decision.edited.is_none()
        }
        (Some(_), None) => status == "approved",
        (Some(_), Some(status)) => status != Status::Denied,
        (None, _) => status != "approved" && status != "denied",
    };
    if !fits {
        return Err(wrong("decision", "the decision that the status tells of"));
    }
    let (decision, is_asked, asked, edited, ended) = match trust.approvals {
        Approvals::Keep => (decision, is_asked, asked, edited, ended),
        // A stranger cannot let a call run by writing that somebody has approved it: it needs a decision still.
        Approvals::Drop => {
            let waits = is_open && (is_asked || decision.is_some());
            // A denial filled its slot, which stays filled.
            let ended = ended.map(|status| match status {
                Status::Denied => Status::Error,
                other => other,
            });
            (None, waits, None, None, ended)
        }
    };
    match decision {
        Some(decision) => exchange.decisions.set(slot, Stage::Decided(decision)),
        None if is_asked => {
            let stage = match edited {
                Some(edited) => Stage::AskedAgain(edited),
                None if is_question => Stage::Question(asked),
                None => Stage::Asked(asked),
            };
            exchange.decisions.set(slot, stage);
        }
        None => {}
    }
    match (ended, fields.take_given("result")) {
        (None, None) => {}
        (Some(status), Some(result)) => {
            exchange.fill(slot, at("result", read_result(status, result, trust))?);
        }
        (None, Some(_)) => return Err(wrong("result", "nothing while the call is pending")),
        (Some(_), None) => return Err(wrong("result", "the result of the call")),
    }
    Ok(())
}

pub(crate) fn read_result(status: Status, node: Node<'_>, trust: Trust) -> Result<Outcome, Error> {
    let mut fields = fields(node, "a map with a value or parts", trust)?;
    let parts = fields.take("parts").map(Node::into_list);
    let output = match (fields.take("value"), parts) {
        (Some(value), None) => Output::Value(at("value", value.into_term(trust.structs))?),
        (None, Some(Ok(parts))) => {
            Output::Parts(at("parts", read_parts(parts, Place::Result, trust))?)
        }
        (None, None) => return Err(wrong("value", "a value, or parts beside it")),
        (_, Some(_)) => return Err(wrong("parts", "a list of parts, or a value instead")),
    };
    let started = Given::<When>::read(&mut fields, "started_at")?;
    let ended = Given::<When>::read(&mut fields, "ended_at")?;
    if started.is_some() != ended.is_some() {
        return Err(wrong(
            "ended_at",
            "the times of the start and the end, both or none",
        ));
    }
    let error_type = Given::<Text>::read(&mut fields, "error_type")?;
    let edited = Given::<Edited>::read(&mut fields, "edited")?;
    let late = Late {
        wait: Given::<Of>::read(&mut fields, "waiting")?,
        arrived: Given::<Of>::read(&mut fields, "arrived")?,
    };
    // A slot waits as long as nothing has arrived.
    if late.arrived.is_none() && late.wait.is_some() != (status == Status::Waiting) {
        return Err(wrong("waiting", "what the call waits for, while it does"));
    }
    Ok(Outcome::new(status, output)
        .with_late(Some(late).filter(|late| *late != Late::default()))
        .with_times(started.zip(ended))
        .with_error_type(error_type.as_deref())
        .with_edited(edited)
        .with_extra(fields.keep_rest()?))
}
