//! Reading trajectories of versions 1.0 to 1.8.

use crate::context::Context;
use crate::error::{each, Error};
use crate::import::defaults::Defaults;
use crate::import::importer::Importer;
use crate::import::repair::Imported;
use crate::import::BODY_DEPTH;
use crate::log::call::{Arguments, Name, ToolCall};
use crate::log::kind::CallKind;
use crate::log::message::{Output, Status};
use crate::log::part::{Class, Content, MediaPart, Part, PartKind, Place, Source};
use crate::provider::foreign::{
    call, check_levels, into_parts, part, text_part, url_image, Object,
};
use crate::provider::listener::{Listener, ReadResult};
use crate::trace::atif::OWN;
use crate::trace::said::part_text;
use crate::value::{json, time, Value, MAX_DEPTH};

const TRAJECTORY: &str = "a trajectory in ATIF 1.0 to 1.8, a map or its JSON text";
const STEP: &str = "a step, a map";
const RESULT: &str = "a result, a map";

impl Context {
    /// A conversation from a trajectory. It begins when the first step did, where that is known.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of what cannot be read, [`Error::TooDeep`].
    pub fn from_atif(document: Value, defaults: Defaults<'_>) -> Result<Imported, Error> {
        let document = match document {
            Value::Binary(text) => json::read(&text, BODY_DEPTH)?,
            document => document,
        };
        let mut document = Object::read(document, TRAJECTORY)?;
        let version = document.text("schema_version")?;
        if !version.as_deref().is_some_and(is_known) {
            return Err(document.wrong("schema_version", "\"ATIF-v1.0\" to \"ATIF-v1.8\""));
        }
        let steps = document.need_list("steps", "a list of steps")?;
        let begun = steps.first().and_then(|step| match step {
            Value::Map(step) => time::from_value(step.get_named("timestamp")?),
            _ => None,
        });
        let mut history = Importer::of(None);
        let listener: &mut Listener = &mut history;
        listener
            .read_each(steps, read_step)
            .map_err(|error| error.within(document.key("steps")))?;
        let at = begun.unwrap_or(defaults.at);
        let rest = document.rest().unwrap_or_default();
        Ok(history.finish(rest, Defaults { at, ..defaults }))
    }
}

fn is_known(version: &str) -> bool {
    let minor = version.strip_prefix("ATIF-v1.");
    minor.is_some_and(|minor| minor.len() == 1 && ("0"..="8").contains(&minor))
}

/// Returns what is ours in an object's `extra`, which others may have filled with anything.
fn own(object: &mut Object) -> Option<Object> {
    let extra = object.take("extra")?;
    let mut extra = Object::read(extra, "").ok()?;
    Object::read(extra.take(OWN)?, "").ok()
}

fn read_step(step: Value, history: &mut Listener) -> Result<(), Error> {
    let mut step = Object::read(step, STEP)?;
    let source = step.need_text("source")?;
    if is_summary(&step) {
        return Ok(()); // it stands for steps that are there
    }
    let mut own = own(&mut step);
    let place = match &*source {
        "system" => Place::System,
        "user" => Place::User,
        "agent" => Place::Assistant,
        _ => return Err(step.wrong("source", "\"system\", \"user\" or \"agent\"")),
    };
    let content = read_content(&mut step, "message", own.as_mut(), place)?;
    let observation = step.take("observation");
    let calls = place == Place::Assistant && step.has("tool_calls");
    match place {
        Place::Assistant => read_agent(&mut step, content, history)?,
        Place::System => history.system(content, None),
        _ => history.user(content, None),
    }
    match observation {
        None => Ok(()),
        Some(observation) => read_observation(observation, calls, history)
            .map_err(|error| error.within(step.key("observation"))),
    }
}

fn is_summary(step: &Object) -> bool {
    matches!(step.get("extra"), Some(Value::Map(extra)) if extra.get_named("context_management").is_some())
}

fn read_agent(step: &mut Object, content: Content, history: &mut Listener) -> Result<(), Error> {
    let thoughts = step.text("reasoning_content")?;
    let has_thoughts = |part: &Part| part.kind.thoughts().is_some();
    let content = match (thoughts, content) {
        (None, content) => content,
        (Some(_), Content::Parts(parts)) if parts.iter().any(has_thoughts) => Content::Parts(parts),
        (Some(thoughts), content) => {
            let thoughts = part(PartKind::Thinking(thoughts.into_boxed_bytes()), None);
            let said = into_parts(content);
            Content::Parts(std::iter::once(thoughts).chain(said).collect())
        }
    };
    let calls = match step.take("tool_calls") {
        None => Vec::new(),
        Some(Value::List(calls)) => each(calls.into_vec(), read_call)
            .map_err(|error| error.within(step.key("tool_calls")))?,
        Some(_) => return Err(step.wrong("tool_calls", "a list of tool calls")),
    };
    history.assistant(content, calls, None);
    Ok(())
}

fn read_call(value: Value) -> Result<ToolCall, Error> {
    let mut object = Object::read(value, "a tool call, a map")?;
    let mut own = own(&mut object);
    let id = object.text("tool_call_id")?;
    let name = object.need_name("function_name")?;
    let name = match name {
        Name::Atom(name) => Name::Text((*name).into()),
        name => name,
    };
    let arguments = object.arguments("arguments")?;
    let text = own.as_mut().and_then(|own| own.text("arguments").ok()?);
    let kind = own.as_mut().and_then(|own| own.text("kind").ok()?);
    let kind = kind
        .and_then(|kind| CallKind::from_name(&kind))
        .unwrap_or_default();
    let text = text.map(|text| Value::text(&text));
    let arguments = text
        .and_then(|text| Arguments::of(kind, text))
        .unwrap_or(arguments);
    let metadata = own
        .as_mut()
        .and_then(|own| own.map("provider_metadata").ok()?);
    let mut call = call(id, name, arguments, metadata);
    // A custom tool takes nothing but text.
    let is_text = matches!(call.arguments.value, Value::Binary(_));
    call.kind = if kind == CallKind::Custom && !is_text {
        CallKind::Function
    } else {
        kind
    };
    Ok(call)
}

fn read_observation(observation: Value, calls: bool, history: &mut Listener) -> Result<(), Error> {
    let mut observation = Object::read(observation, "an observation, a map")?;
    let results = match observation.take("results") {
        None => Vec::new(),
        Some(Value::List(results)) => results.into_vec(),
        Some(_) => return Err(observation.wrong("results", "a list of results")),
    };
    each(results, |result| read_result(result, calls, history))
        .map(|_| ())
        .map_err(|error| error.within(observation.key("results")))
}

/// A result without an id is that of the next call, where the step has any.
fn read_result(result: Value, calls: bool, history: &mut Listener) -> Result<(), Error> {
    let mut result = Object::read(result, RESULT)?;
    let mut own = own(&mut result);
    let id = result.text("source_call_id")?;
    let refers = result.has("subagent_trajectory_ref");
    if refers && !result.has("content") {
        return Ok(()); // nothing has come of the sub-agent
    }
    let status = own.as_mut().and_then(|own| own.text("status").ok()?);
    let content = read_content(&mut result, "content", own.as_mut(), Place::Result)?;
    if id.is_none() && !calls {
        // An observation of the environment that no call asked for.
        history.user(content, None);
        return Ok(());
    }
    let output = match content {
        Content::None => Output::Value(Value::Nil),
        Content::Text(text) => Output::Value(Value::Binary(text)),
        Content::Parts(parts) if parts.is_empty() => Output::Value(Value::Nil),
        Content::Parts(parts) => Output::Parts(parts),
    };
    let mut answer = ReadResult::ok(output);
    answer.id = id;
    answer.status = status
        .and_then(|name| Status::from_name(&name))
        .unwrap_or(Status::Ok);
    history.answer(answer);
    Ok(())
}

/// Content: ours where it is there and well made, else the format's own.
fn read_content(
    object: &mut Object,
    key: &str,
    own: Option<&mut Object>,
    place: Place,
) -> Result<Content, Error> {
    let own = own.and_then(|own| match own.take("content") {
        Some(Value::List(parts)) => read_own(parts.into_vec(), place),
        _ => None,
    });
    if own.is_some() {
        object.take(key);
    }
    match own {
        Some(content) => Ok(content),
        None => match object.content(key, |part| read_part(part, place))? {
            Content::Text(text) if text.is_empty() => Ok(Content::None),
            content => Ok(content),
        },
    }
}

fn read_own(parts: Vec<Value>, place: Place) -> Option<Content> {
    let read = |(at, part)| {
        check_levels(&part, MAX_DEPTH).ok()?;
        Part::from_value(part, place, at).ok()
    };
    let parts: Option<Vec<Part>> = parts.into_iter().enumerate().map(read).collect();
    parts.map(|parts| Content::Parts(parts.into_boxed_slice()))
}

fn read_part(value: Value, place: Place) -> Result<Part, Error> {
    let mut object = Object::read(value, "a part, a map")?;
    let kind = object.need_text("type")?;
    let read = match &*kind {
        "text" => text_part(object.need_bytes("text")?),
        "image" | "audio" => object.need_object("source", "a source, a map", |mut source| {
            let media_type = source.text("media_type")?;
            let path = source.need_text("path")?;
            Ok(part(media(&kind, media_type, path), None))
        })?,
        _ => return Err(object.wrong("type", "\"text\", \"image\" or \"audio\"")),
    };
    // A system prompt is text.
    match (place, &read.kind) {
        (Place::System, PartKind::Text(_)) => Ok(read),
        (Place::System, _) => Ok(text_part(part_text(&read).into_owned().into_bytes().into())),
        _ => Ok(read),
    }
}

fn media(kind: &str, media_type: Option<Box<str>>, path: Box<str>) -> PartKind {
    if kind == "audio" {
        let source = Source::Url(path);
        return PartKind::unnamed(Class::Audio, media_type, source);
    }
    match url_image(path) {
        PartKind::Media(MediaPart {
            source: source @ Source::Url(_),
            ..
        }) => PartKind::unnamed(Class::Image, media_type, source),
        inline => inline,
    }
}
