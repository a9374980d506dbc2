//! Reads messages as `to_map/1` shows them: results are beside the calls, in a list of the iteration, or in messages made of
//! them.

use std::collections::HashMap;

use crate::context::Context;
use crate::error::{each, index, Error};
use crate::log::call::{MessagePlace, ToolCall};
use crate::log::late::Arrived;
use crate::log::message::{Message, Outcome, Role};
use crate::log::reply::Reply;
use crate::log::results;
use crate::storage::read::read_said;
use crate::storage::table::*;
use crate::storage::take::{
    check_depth, fields, read_size, read_text, wrong, DocumentFields, Form,
};
use crate::value::fields::Keys;
use crate::value::node::Node;
use crate::value::{Map, Value};

/// The key that only maps have.
const STATE: &str = "state";
const MESSAGE_KEYS: &str = "one of :role, :content, :tool_calls, :metadata, :state";

/// Reads the messages of the current iteration, and the results of their calls.
pub(crate) fn read_shown(
    context: &mut Context,
    messages: Vec<Node<'_>>,
    mut outcomes: Outcomes,
    form: Form,
    keys: Keys,
) -> Result<(), Error> {
    let read = read_messages(context, messages, &mut outcomes, form);
    read.map_err(|error| error.within(keys.spell("messages")))?;
    match outcomes.left.next() {
        None => Ok(()),
        Some((id, _)) => Err(Error::invalid(
            vec![keys.spell("tool_calls")],
            format!("calls of the iteration's messages, not {id:?}"),
        )),
    }
}

fn read_messages(
    context: &mut Context,
    messages: Vec<Node<'_>>,
    outcomes: &mut Outcomes,
    form: Form,
) -> Result<(), Error> {
    let mut answers = Answers::default();
    for (position, node) in messages.into_iter().enumerate() {
        let message = node.into_value();
        let read = if is_arrival(&message) {
            answers.fill(context)?;
            read_arrival(context, message, outcomes, form)
        } else if is_results_message(&message) {
            answers.read(message, position, form)
        } else {
            answers.fill(context)?;
            read_message(context, message, position, outcomes, form)
        };
        read.map_err(|error| error.within(index(position)))?;
    }
    answers.fill(context)
}

/// The ids and results in an iteration's `tool_calls`.
#[derive(Default)]
pub(crate) struct Outcomes {
    left: std::vec::IntoIter<(Box<str>, Option<Outcome>)>,
}

impl Outcomes {
    pub fn take(fields: &mut DocumentFields<'_>) -> Result<Self, Error> {
        let form = fields.form;
        let calls: Vec<_> = fields.read_each("tool_calls", |call| {
            let mut fields = self::fields(call, "a tool call map", form)?;
            let id = fields.read("id", read_text)?;
            let outcome = fields.read_given("result", |result| read_result(result.into_value()))?;
            Ok((id, outcome))
        })?;
        Ok(Self {
            left: calls.into_iter(),
        })
    }
}

/// Reads `{:ok, term}`, `["ok", term]` or `%{"ok" => term}`; the same for errors.
fn read_result(value: Value) -> Result<Outcome, Error> {
    check_depth(&value)?;
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
        Some("waiting") => results::waiting(term).map(Ok),
        _ => None,
    });
    let expected = "{:ok, term}, {:error, term}, {:waiting, map} or nil";
    read.unwrap_or_else(|| Err(Error::expected(expected)))
}

fn read_message(
    context: &mut Context,
    message: Value,
    position: usize,
    outcomes: &mut Outcomes,
    form: Form,
) -> Result<(), Error> {
    let mut fields = fields(Node::Value(message), "a message, a map", form)?;
    let (role, content, metadata) = read_said(&mut fields)?;
    let calls = fields.take_given("tool_calls").map(Node::into_value);
    let reply = fields.read_given(STATE, |state| read_state(form.name_of(&state), role))?;
    let keys = fields.keys();
    fields.finish(MESSAGE_KEYS)?;
    context.log.check_message_answered()?;
    let leads = context.count_iterations() == 1 && position == 0;
    if role == Role::System && leads && metadata.is_none() {
        context.log.set_system(content);
        return Ok(());
    }
    let calls = calls.unwrap_or(Value::Nil);
    read_calls(context, role, calls, position)
        .and_then(|calls| {
            let message = Message::new(role, content, calls, metadata);
            append(context, message.with_reply(reply), outcomes)
        })
        .map_err(|error| error.within(keys.spell("tool_calls")))
}

/// Reads the state of a model's message: complete, or broken off.
fn read_state(state: Option<&str>, role: Role) -> Result<Reply, Error> {
    match state {
        Some("interrupted") if role == Role::Assistant => Ok(Reply {
            interrupted: Some(Value::Nil),
            ..Reply::default()
        }),
        _ => Err(Error::expected(
            ":interrupted, in an assistant message, or nothing",
        )),
    }
}

/// Reads calls, which are maps; the values in them may have the full depth.
fn read_calls(
    context: &Context,
    role: Role,
    calls: Value,
    position: usize,
) -> Result<Box<[ToolCall]>, Error> {
    if role != Role::Assistant && calls != Value::Nil {
        let expected = "tool calls in assistant messages only";
        return Err(Error::expected(expected));
    }
    if let Value::List(calls) = &calls {
        each(calls, |call| match call {
            Value::Map(_) => check_depth(call),
            _ => Err(Error::expected("a tool call map")),
        })?;
    }
    let place = MessagePlace {
        iteration: context.current_iteration(),
        position,
    };
    ToolCall::read_all(calls, place)
}

/// Appends a message; the results of its calls are the next of the iteration's `tool_calls`.
fn append(context: &mut Context, message: Message, outcomes: &mut Outcomes) -> Result<(), Error> {
    let mut filled = Vec::new();
    for (slot, call) in message.calls.iter().enumerate() {
        match outcomes.left.next() {
            Some((found, outcome)) if found == call.id => {
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
    context.log.append(message);
    if !filled.is_empty() {
        context.log.update_exchange(|exchange| {
            for (slot, outcome) in filled {
                exchange.fill(slot, outcome);
            }
        });
    }
    Ok(())
}

/// Projected tool-result messages, whose text fills the slots that `tool_calls` left empty. Neighbours are taken together,
/// since finding slots costs all calls of the message.
#[derive(Default)]
struct Answers {
    given: Vec<Answered>,
    metadata: Vec<(Value, Value)>,
}

struct Answered {
    /// The positions of the message and of the result in it.
    message: usize,
    result: usize,
    keys: Keys,
    id: Box<str>,
    outcome: Outcome,
}

impl Answers {
    /// Takes a tool-result message.
    fn read(&mut self, message: Value, position: usize, form: Form) -> Result<(), Error> {
        let mut fields = fields(Node::Value(message), "a message, a map", form)?;
        let keys = fields.keys();
        let mut result = 0;
        fields.read_each("content", |item| {
            let (id, outcome) = read_projected(item, form)?;
            self.given.push(Answered {
                message: position,
                result,
                keys,
                id,
                outcome,
            });
            result += 1;
            Ok(())
        })?;
        let metadata = Given::<Terms>::read(&mut fields, "metadata")?;
        self.metadata
            .extend(metadata.into_iter().flat_map(Map::into_entries));
        fields.take("role");
        fields.finish(MESSAGE_KEYS)?;
        Ok(())
    }

    /// Fills the slots of the last message.
    fn fill(&mut self, context: &mut Context) -> Result<(), Error> {
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
                    let path = vec![answer.keys.spell("content"), index(answer.result), id];
                    let expected = "the id of a call of the message before, once";
                    return Err(Error::invalid(path, expected).within(index(answer.message)));
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

/// Returns true for a message that shows a result that arrived late.
fn is_arrival(message: &Value) -> bool {
    let arrival = message.as_map().and_then(|map| map.get_named("arrival"));
    arrival.is_some() && is_results_message(message)
}

/// Reads a late result: its call waits in an earlier iteration, and the iteration's `tool_calls` have what the text is made of.
fn read_arrival(
    context: &mut Context,
    message: Value,
    outcomes: &mut Outcomes,
    form: Form,
) -> Result<(), Error> {
    let mut fields = fields(Node::Value(message), "a message, a map", form)?;
    let shown = fields.read_each("content", |item| read_projected(item, form))?;
    let (id, iteration, arrived) = fields.read("arrival", |node| {
        let mut fields = self::fields(node, "how a result came, a map", form)?;
        let id = fields.read("id", read_text)?;
        let iteration = fields.read("iteration", read_size)?;
        let arrived: Arrived = Stored::read(fields)?;
        Ok((id, iteration, arrived))
    })?;
    fields.take("role");
    fields.finish(MESSAGE_KEYS)?;
    context.log.check_message_answered()?;
    let told = match outcomes.left.next() {
        Some((of, outcome)) if of == id => outcome,
        None => None,
        Some(_) => {
            return Err(wrong(
                "arrival",
                "the id of the next of the iteration's tool_calls",
            ))
        }
    };
    let shown = shown.into_iter().next().map(|(_, outcome)| outcome);
    let is_put = told.or(shown).is_some_and(|outcome| {
        let of = (u64::try_from(iteration).unwrap_or_default(), &*id);
        context.log.put_arrival(of, outcome, arrived)
    });
    is_put
        .then_some(())
        .ok_or_else(|| wrong("arrival", "the id and the iteration of a call that waits"))
}

/// Returns true for a message that shows tool results.
fn is_results_message(message: &Value) -> bool {
    let has = |of: &Value, key, word| {
        let given = of.as_map().and_then(|map| map.get_named(key));
        given.and_then(Value::as_name) == Some(word)
    };
    let content = message.as_map().and_then(|map| map.get_named("content"));
    let is_result = |item: &Value| has(item, "type", "tool_result");
    has(message, "role", "user")
        && matches!(content, Some(Value::List(items)) if !items.is_empty() && items.iter().all(is_result))
}

fn read_projected(item: Node<'_>, form: Form) -> Result<(Box<str>, Outcome), Error> {
    let mut fields = fields(item, "a tool result map", form)?;
    let id = fields.read("tool_use_id", read_text)?;
    let is_error = fields.take("is_error").map(Node::into_value) == Some(Value::Bool(true));
    let outcome = fields.read("content", |content| match content.into_value() {
        content if is_error => Ok(results::error(content)),
        content => results::ok(content),
    })?;
    Ok((id, outcome))
}
