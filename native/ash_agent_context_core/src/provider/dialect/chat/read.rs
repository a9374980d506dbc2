//! Reads messages in the chat dialect.

use crate::error::{each, Error};
use crate::log::call::{Arguments, Name, ToolCall};
use crate::log::kind::CallKind;
use crate::log::message::Status;
use crate::log::part::{is_base64, Class, Content, Part, PartKind, Source, AUDIO_ID};
use crate::log::provider::Provider;
use crate::provider::dialect::blocks::output;
use crate::value::{Map, Value, MAX_DEPTH};

use crate::provider::facts::Rule;
use crate::provider::foreign::{
    at, call, image_or_file, inline_file, into_parts, join_details, json_like, json_part, metadata,
    metadata_with, name_at, part, part_or_block, provider_block, stored, system_part, text_block,
    url_image,
};
use crate::provider::format::Reads;
use crate::provider::listener::{Listener, ReadResult};
use crate::value::fields::{utf8, Fields};

pub(crate) const ROLES: &str = "\"system\", \"developer\", \"user\", \"assistant\" or \"tool\"";

/// The roles that messages have.
pub(crate) const ROLES_KNOWN: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
];

/// The formats of recordings, with their media types.
pub(crate) const AUDIO: [(&str, &str); 2] = [("wav", "audio/wav"), ("mp3", "audio/mpeg")];

/// The key of a call's metadata that goes back with it, such as Gemini's signatures.
pub(crate) const EXTRA: &str = "extra_content";

/// The note on a text that is a refusal.
pub(crate) const IS_REFUSAL: &str = "refusal";

/// A room that reads and answers in the dialect.
pub(crate) trait Completions: Sync {
    const PROVIDER: Provider;
}

impl<Room: Completions> Reads for Room {
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error> {
        let mut messages = body.need_list("messages", "a list of messages")?;
        for (position, message) in messages.iter_mut().enumerate() {
            if take_away(message, Room::PROVIDER) {
                history.mark_cleaned(position);
            }
        }
        let read = |message, history: &mut Listener| read_message(message, history, Room::PROVIDER);
        let read = history.read_each(messages, read);
        read.map_err(|error| error.within(body.key("messages")))
    }

    fn is_row(&self, element: &Map) -> bool {
        is_row(element)
    }
}

pub fn read_message(
    message: Value,
    history: &mut Listener,
    provider: Provider,
) -> Result<(), Error> {
    if matches!(&message, Value::Map(map) if is_row(map)) {
        history.whole(provider_block(provider, message)?);
        return Ok(());
    }
    let mut message = Fields::read(message, "a message, an object")?;
    match &*message.need_text("role")? {
        "system" | "developer" => {
            let content = message.content("content", |part| system_part(provider, part))?;
            history.system(content, None);
        }
        "user" => {
            let content = message.content("content", |part| user_part(part, provider))?;
            history.user(content, None);
        }
        "assistant" => {
            let content = message.content("content", |part| assistant_part(part, provider))?;
            let content = add_beside(&mut message, content, provider)?;
            // Programs that dump an SDK's objects leave a null, which counts as an empty list.
            let given = message.take("tool_calls");
            let is_none = match &given {
                Some(Value::List(calls)) => calls.is_empty(),
                given => *given == Some(Value::Nil),
            };
            if is_none && !provider.facts().has(Rule::EmptyCalls) {
                history.mark_refused();
            }
            let given = given.filter(|given| !matches!(given, Value::Nil));
            let calls = calls(&mut message, given, provider)?;
            history.assistant(content, calls, None);
        }
        "tool" | "function" => {
            let answer = result(&mut message)?;
            history.answer(answer);
        }
        _ => return Err(message.wrong("role", ROLES)),
    }
    Ok(())
}

/// Returns whether a message has no neutral form, since its role is unknown.
fn is_row(message: &Map) -> bool {
    let role = message.get_named("role").and_then(Value::as_name);
    role.is_some_and(|role| !ROLES_KNOWN.contains(&role))
}

/// Reads a part of a user message.
pub fn user_part(value: Value, provider: Provider) -> Result<Part, Error> {
    match name_at(&value, "type") {
        Some("text") => text_block(value, "text"),
        Some("image_url") => image(value),
        Some("file") => part_or_block(file(&value, provider), provider, value),
        Some("input_audio") => part_or_block(recording(&value), provider, value),
        _ => provider_block(provider, value),
    }
}

/// Returns a recording, if its bytes are there and its format has a media type.
fn recording(value: &Value) -> Option<PartKind> {
    let audio = at(value, "input_audio")?;
    let format = name_at(audio, "format")?;
    let (_, media_type) = AUDIO.iter().find(|(known, _)| *known == format)?;
    let media_type = Some((*media_type).into());
    let data = name_at(audio, "data").filter(|data| is_base64(data))?;
    let source = Source::Data(data.into());
    Some(PartKind::unnamed(Class::Audio, media_type, source))
}

/// Reads a part of an assistant message.
pub fn assistant_part(value: Value, provider: Provider) -> Result<Part, Error> {
    match name_at(&value, "type") {
        Some("text") => text_block(value, "text"),
        Some("refusal") => {
            let text = Fields::read(value, "")?.need_bytes("refusal")?;
            Ok(refusal_part(text, provider))
        }
        Some("thinking") => read_thought(value, provider),
        _ => provider_block(provider, value),
    }
}

/// Returns a refusal as a text part with a note that it is one.
fn refusal_part(text: Box<[u8]>, provider: Provider) -> Part {
    let metadata = metadata_with(provider, [(IS_REFUSAL, Value::Bool(true))]);
    part(PartKind::Text(text), Some(metadata))
}

/// Reads the content and the fields that servers put beside it: a recording, a refusal and reasoning.
fn add_beside(
    message: &mut Fields,
    content: Content,
    provider: Provider,
) -> Result<Content, Error> {
    let spoken = message.take_given("audio");
    let spoken = spoken.and_then(|audio| spoken_part(&audio, provider));
    let refusal = message.text("refusal")?.filter(|text| !text.is_empty());
    let refusal = refusal.map(|text| refusal_part(text.into_boxed_bytes(), provider));
    let thought = read_reasoning(message, provider)?;
    if spoken.is_none() && refusal.is_none() && thought.is_none() {
        return Ok(content);
    }
    let mut parts = into_parts(content);
    parts.extend(spoken.into_iter().chain(refusal));
    if let Some(thought) = thought {
        // An empty content beside it is left out.
        let is_empty = |part: &Part| part.kind.text().is_some_and(|text| text.is_empty());
        parts.retain(|part| !is_empty(part));
        parts.insert(0, thought);
    }
    Ok(Content::Parts(parts.into_boxed_slice()))
}

/// Returns the transcript of a recording that the server keeps, if there is one.
fn spoken_part(audio: &Value, provider: Provider) -> Option<Part> {
    let id = name_at(audio, "id").filter(|id| !id.is_empty())?;
    let words = name_at(audio, "transcript").unwrap_or_default();
    let metadata = metadata(provider, &[(AUDIO_ID, Some(id))]);
    let text = PartKind::Text(words.as_bytes().into());
    Some(part(text, Some(metadata)))
}

/// Reads reasoning beside the content, as DeepSeek, OpenRouter and others have it.
fn read_reasoning(message: &mut Fields, provider: Provider) -> Result<Option<Part>, Error> {
    let told = message.text("reasoning_content")?;
    let plain = match message.take_given("reasoning") {
        Some(Value::Binary(text)) => Some(text),
        _ => None,
    };
    let details = match message.take_given("reasoning_details") {
        Some(details @ Value::List(_)) => Some(json_like(details, MAX_DEPTH - 1)?),
        _ => None,
    };
    let told = told.map(|text| text.into_boxed_bytes()).or(plain);
    let joined = || Some(join_details(details.as_ref()?).into_bytes().into());
    let Some(text) = told.or_else(joined) else {
        return Ok(None);
    };
    let details = details.map(|details| ("reasoning_details", details));
    let metadata = metadata_with(provider, details);
    Ok(Some(part(PartKind::Thinking(text), Some(metadata))))
}

fn calls(
    message: &mut Fields,
    given: Option<Value>,
    provider: Provider,
) -> Result<Vec<ToolCall>, Error> {
    let key = message.key("function_call");
    // Some servers send an empty one with every message.
    let is_called = |older: &Value| name_at(older, "name") != Some("");
    let has_calls = matches!(&given, Some(Value::List(calls)) if !calls.is_empty());
    let older = message.take_given("function_call").filter(is_called);
    if let Some(older) = older.filter(|_| !has_calls) {
        // The older form, before tool_calls.
        let call = function(Fields::read(older, "the function that is called")?, None);
        let call = call.map_err(|error| error.within(key))?;
        return Ok(vec![call]);
    }
    match given {
        None => Ok(Vec::new()),
        Some(Value::List(calls)) => each(calls.into_vec(), |call| read_call(call, provider))
            .map_err(|error| error.within(message.key("tool_calls"))),
        Some(_) => Err(message.wrong("tool_calls", "a list of tool calls")),
    }
}

pub fn read_call(value: Value, provider: Provider) -> Result<ToolCall, Error> {
    let mut object = Fields::read(value, "a tool call, an object")?;
    let kind = object.text("type")?;
    let id = object.text("id")?;
    let extra = match object.get(EXTRA) {
        Some(Value::Map(_)) => object.take_given(EXTRA),
        _ => None,
    };
    let extra = extra
        .map(|extra| json_like(extra, MAX_DEPTH - 1))
        .transpose()?;
    let call = match kind.as_deref() {
        None | Some("function") => {
            let expected = match object.has("name") {
                true => "the function that is called (Import.from_messages reads calls with a name alone; this looks like one)",
                false => "the function that is called",
            };
            object.need_object("function", expected, |called| function(called, id))
        }
        Some("custom") => {
            let expected = "the custom tool that is called";
            object.need_object("custom", expected, |called| custom(called, id))
        }
        // An unknown kind: the call waits for its answer as all do.
        Some(kind) => {
            let name = Name::Text(kind.into());
            let rest = json_like(Value::Map(object.rest().unwrap_or_default()), MAX_DEPTH)?;
            let arguments = Arguments::of(CallKind::Function, rest).unwrap_or_default();
            return Ok(call(id, name, arguments, None));
        }
    };
    let extra = extra.map(|extra| metadata_with(provider, [(EXTRA, extra)]));
    Ok(ToolCall {
        provider_metadata: extra,
        ..call?
    })
}

fn function(mut called: Fields, id: Option<Box<str>>) -> Result<ToolCall, Error> {
    let name = called.need_name("name")?;
    Ok(call(id, name, called.arguments("arguments")?, None))
}

fn custom(mut called: Fields, id: Option<Box<str>>) -> Result<ToolCall, Error> {
    let name = called.need_name("name")?;
    let input = called.take_given("input").unwrap_or(Value::Nil);
    let arguments = Arguments::of(CallKind::Custom, input);
    let arguments = arguments.ok_or_else(|| called.wrong("input", "text"))?;
    Ok(call(id, name, arguments, None).of_kind(CallKind::Custom))
}

fn result(message: &mut Fields) -> Result<ReadResult, Error> {
    let id = message.text("tool_call_id")?;
    let name = message.text("name")?;
    let content = message.content("content", |value| match name_at(&value, "type") {
        Some("text") => text_block(value, "text"),
        Some("image_url") => image(value),
        _ => json_part(&value),
    })?;
    let output = output(content, Status::Ok);
    Ok(ReadResult::new(id, name, Status::Ok, output))
}

/// Reads an image by its URL, in an object or bare.
pub(super) fn image(value: Value) -> Result<Part, Error> {
    let mut object = Fields::read(value, "")?;
    let key = object.key("image_url");
    let expected = "an image's url";
    let url = match object.take_given("image_url") {
        Some(image @ Value::Map(_)) => {
            let mut image = Fields::read(image, expected)?;
            Some(image.need_text("url").map_err(|error| error.within(key))?)
        }
        Some(bare) => utf8(bare).ok(),
        None => None,
    };
    let url = url.filter(|url| !url.trim().is_empty());
    let url = url.ok_or_else(|| object.wrong("image_url", expected))?;
    Ok(part(url_image(url), None))
}

/// Returns a file whose bytes are there.
fn file(value: &Value, provider: Provider) -> Option<PartKind> {
    let id = name_at(value, "file_id").filter(|_| provider == Provider::Mistral);
    let file = at(value, "file");
    let id = id.or_else(|| name_at(file?, "file_id"));
    let filename = file
        .and_then(|file| name_at(file, "filename"))
        .map(Into::into);
    if let Some(id) = id.filter(|id| !id.trim().is_empty()) {
        let source = stored(provider, id);
        return Some(image_or_file(false, None, source, filename));
    }
    let file = file?;
    inline_file(name_at(file, "file_data")?, filename)
}

/// In a message: fields of the choice around it, and the answer as a client parsed it.
const OF_MESSAGE: [&str; 4] = ["finish_reason", "logprobs", "index", "parsed"];

/// Removes the leftovers. Returns whether there were any.
fn take_away(message: &mut Value, provider: Provider) -> bool {
    // Calls of Mistral's own have an index.
    if provider == Provider::Mistral || name_at(message, "role") != Some("assistant") {
        return false;
    }
    let mut found = without(message, &OF_MESSAGE);
    change(message, "tool_calls", |calls| {
        let Value::List(calls) = calls else { return };
        for call in calls {
            found |= without(call, &["index"]);
            change(call, "function", |function| {
                found |= without(function, &["parsed_arguments"]);
            });
        }
    });
    found
}

/// Removes keys from a map. Returns whether any was there.
fn without(value: &mut Value, keys: &[&str]) -> bool {
    let Value::Map(map) = value else { return false };
    if !keys.iter().any(|key| map.get_named(key).is_some()) {
        return false;
    }
    let is_left = |(key, _): &(Value, Value)| !key.as_name().is_some_and(|key| keys.contains(&key));
    let entries = std::mem::take(map).into_entries().into_iter();
    *map = Map::new(entries.filter(is_left).collect());
    true
}

fn change(value: &mut Value, name: &str, change: impl FnOnce(&mut Value)) {
    let Value::Map(map) = value else { return };
    let mut entries = std::mem::take(map).into_entries();
    let entry = entries
        .iter_mut()
        .find(|(key, _)| key.as_name() == Some(name));
    if let Some((_, value)) = entry {
        change(value);
    }
    *map = Map::new(entries);
}

/// The metadata key for a thought's references.
pub(crate) const REFERENCES: &str = "references";

/// A piece of a thought.
pub(crate) enum ThoughtPiece<'a> {
    Text(&'a str),
    /// A reference between two texts.
    Chunk(&'a Value),
}

/// Returns a reference with its place: the bytes of the thought's text before it.
pub(crate) fn reference(after: usize, chunk: Value) -> Value {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    Value::Map(Map::new(vec![
        (Value::text("after"), Value::Int(after)),
        (Value::text("chunk"), chunk),
    ]))
}

/// Reads a thought: pieces of text, mostly one, and its references.
fn read_thought(value: Value, provider: Provider) -> Result<Part, Error> {
    let mut object = Fields::read(value, "")?;
    let pieces = object.need_list("thinking", "a list of text parts")?;
    let (mut text, mut references) = (Vec::new(), Vec::new());
    for piece in pieces {
        match at(&piece, "text") {
            Some(Value::Binary(bytes)) => text.extend_from_slice(bytes),
            _ => references.push(reference(text.len(), json_like(piece, MAX_DEPTH - 2)?)),
        }
    }
    let signature = object.text("signature")?;
    let mut metadata = metadata(provider, &[("signature", signature.as_deref())]);
    if object.take_given("closed") == Some(Value::Bool(true)) {
        metadata = metadata.put(Value::atom("closed"), Value::Bool(true));
    }
    if !references.is_empty() {
        let references = Value::List(references.into_boxed_slice());
        metadata = metadata.put(Value::atom(REFERENCES), references);
    }
    let kind = PartKind::Thinking(text.into_boxed_slice());
    Ok(part(kind, Some(metadata)))
}

/// Returns the pieces of a thought of this text. A reference whose place is not between two characters follows the last that
/// fits.
pub(crate) fn pieces<'a>(text: &'a str, part: &'a Part) -> Vec<ThoughtPiece<'a>> {
    let references = part.noted(REFERENCES).and_then(Value::as_list);
    let (mut pieces, mut rest, mut begin) = (Vec::new(), text, 0);
    for of in references.unwrap_or_default() {
        let after = match at(of, "after") {
            Some(Value::Int(after)) => usize::try_from(*after).unwrap_or_default(),
            _ => 0,
        };
        let split = after
            .checked_sub(begin)
            .and_then(|middle| rest.split_at_checked(middle));
        if let Some((before, behind)) = split.filter(|(before, _)| !before.is_empty()) {
            pieces.push(ThoughtPiece::Text(before));
            (rest, begin) = (behind, after);
        }
        pieces.extend(at(of, "chunk").map(ThoughtPiece::Chunk));
    }
    if !rest.is_empty() {
        pieces.push(ThoughtPiece::Text(rest));
    }
    pieces
}
