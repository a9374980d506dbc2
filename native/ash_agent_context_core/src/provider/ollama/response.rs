//! Reads Ollama's responses: a message a line, the last of them with the count of tokens.

use super::read::image;
use super::Room;
use crate::fault::Fault;
use crate::log::call::Arguments;
use crate::log::reply::Finish;
use crate::provider::block::arguments;
use crate::provider::draft::{Draft, Key};
use crate::provider::figures::{FigureKind::*, Figures};
use crate::provider::format::Responds;
use crate::provider::framing::Framing;
use crate::provider::node::{self, Node};

impl Responds for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[
                (WholeInput, &["prompt_eval_count"]),
                (Output, &["eval_count"]),
            ],
            ..Figures::NONE
        }
    }

    fn framing(&self) -> Framing {
        Framing::NdJson
    }

    fn read_response(&self, draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
        Fault::check(node)?;
        let word = node::filled_text(node, "done_reason");
        let is_done = node::is_true(node, "done");
        let message = node::get(node, "message");
        if message.is_none() && !is_done && word.is_none() {
            return Err(Fault::neither(node, "neither a message nor the end of one"));
        }
        draft.start(None, node::text(node, "model"));
        if let Some(message) = message {
            let said = |name| node::text(message, name).unwrap_or_default();
            draft.thinking(Key::Only("thinking"), said("thinking"));
            draft.text(Key::Only("content"), said("content"));
            for data in node::list(message, "images") {
                if let Ok(part) = image(node::to_value(data)?) {
                    draft.put_part(draft.next_key(), part);
                }
            }
            for call in node::list(message, "tool_calls") {
                read_call(draft, call)?;
            }
        }
        if !is_done && word.is_none() {
            return Ok(());
        }
        draft.count_tokens(Some(node));
        let word = word.unwrap_or("stop");
        let reason = match word {
            "length" => Finish::Length,
            _ => Finish::Stop,
        };
        draft.finish_all(reason, word)?;
        // Some backends say why they stopped, and not that they are done. Then the body ends the answer.
        match is_done {
            true => draft.end(),
            false => Ok(()),
        }
    }
}

/// Reads a call, which comes as a whole. Older servers give it no id.
fn read_call(draft: &mut Draft, call: &Node<'_>) -> Result<(), Fault> {
    let Some(function) = node::get(call, "function") else {
        return Ok(());
    };
    let key = draft.next_key();
    let name = node::filled_text(function, "name");
    draft.open_call(key.clone(), node::text(call, "id"), name);
    let arguments = match node::text(function, "arguments") {
        Some(json) => Arguments::from_json(json.as_bytes().into()),
        None => arguments(node::get(function, "arguments"))?.unwrap_or_default(),
    };
    draft.end_call_with(&key, arguments)
}
