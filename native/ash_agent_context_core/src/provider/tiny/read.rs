//! How requests to it are read.

use super::Room;
use crate::error::{each, Error};
use crate::log::call::ToolCall;
use crate::log::message::{Output, Status};
use crate::log::part::Content;
use crate::provider::foreign::call;
use crate::provider::format::Reads;
use crate::provider::listener::{Listener, ReadResult};
use crate::value::fields::Fields;
use crate::value::Value;

impl Reads for Room {
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error> {
        history.read_prompt(body, "about", |text| match text {
            Value::Binary(text) => Ok(Content::Text(text)),
            _ => Err(Error::invalid(Vec::new(), "text")),
        })?;
        history.read_list(body, "turns", "a list of turns", read_turn)
    }
}

fn read_turn(turn: Value, history: &mut Listener) -> Result<(), Error> {
    let mut turn = Fields::read(turn, "a turn, an object")?;
    if let Some(id) = turn.text("done")? {
        let output = Output::Value(Value::Binary(turn.need_bytes("says")?));
        history.answer(ReadResult::new(Some(id), Status::Ok, output));
    } else if let Some(text) = turn.text("me")? {
        history.user(Content::Text(text.into_boxed_bytes()), None);
    } else {
        let text = turn.need_bytes("you")?;
        let calls = match turn.take_given("do") {
            Some(Value::List(calls)) => each(calls.into_vec(), read_call)?,
            _ => Vec::new(),
        };
        history.assistant(Content::Text(text), calls, None);
    }
    Ok(())
}

fn read_call(value: Value) -> Result<ToolCall, Error> {
    let mut object = Fields::read(value, "a call, an object")?;
    let id = object.need_text("id")?;
    let name = object.need_name("name")?;
    Ok(call(Some(id), name, object.arguments("with")?, None))
}
