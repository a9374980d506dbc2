//! Masks: patterns of texts that no model may see.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::Engine as _;
use regex::{NoExpand, Regex, RegexBuilder};
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::log::call::{Arguments, ToolCall};
use crate::log::failed::FailedRequest;
use crate::log::media::words_of;
use crate::log::media_type::{is_text, normal};
use crate::log::message::{tell_edited, Message, Outcome, Output};
use crate::log::part::{Content, Part, PartKind, Source, AUDIO_ID};
use crate::log::served::whole_pairs;
use crate::value::cost::Cost;
use crate::value::json;
use crate::value::letters;
use crate::value::{Map, Value};

/// A compiled pattern may take so many bytes.
const PATTERN_BYTES: usize = 1 << 20;

/// There may be so many patterns: each one is a walk over all texts, and takes milliseconds to compile.
const MOST: usize = 100;

/// Looking for a pattern in a byte takes at worst so many times as long as copying it.
const SEARCH: usize = 30;

/// Stands between the media type and the data in a data URL.
const DATA_URL: &str = ";base64,";

/// Patterns, each with its replacement.
#[derive(Debug)]
pub struct Masks {
    masks: Vec<Mask>,
    pub(crate) key: u64,
    /// Tells them from others in the notes of requests, where the patterns are not kept.
    pub(crate) digest: Box<str>,
}

/// Compiles a regular expression.
///
/// # Errors
/// [`Error::InvalidPattern`].
pub(crate) fn compile(pattern: &str) -> Result<Regex, Error> {
    let compiled = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).build();
    compiled.map_err(|problem| Error::InvalidPattern {
        pattern: pattern.into(),
        problem: problem.to_string().into(),
    })
}

#[derive(Debug)]
struct Mask {
    pattern: Regex,
    replacement: Box<str>,
}

impl Masks {
    /// Compiles regular expressions, each with its replacement.
    ///
    /// # Errors
    /// [`Error::InvalidPattern`].
    pub fn new(pairs: impl IntoIterator<Item = (Box<str>, Box<str>)>) -> Result<Self, Error> {
        let mut hasher = DefaultHasher::new();
        let mut digest = Sha256::new();
        let mut masks = Vec::new();
        for (pattern, replacement) in pairs {
            if masks.len() == MOST {
                return Err(Error::InvalidPattern {
                    pattern,
                    problem: format!("there are {MOST} patterns already").into(),
                });
            }
            (&pattern, &replacement).hash(&mut hasher);
            for text in [&pattern, &replacement] {
                digest.update(text.len().to_le_bytes());
                digest.update(&**text);
            }
            masks.push(Mask {
                pattern: compile(&pattern)?,
                replacement,
            });
        }
        Ok(Self {
            masks,
            key: hasher.finish(),
            digest: letters::short_digest(digest).into(),
        })
    }

    /// Returns the cost of [`Masks::new`]: patterns take milliseconds to compile.
    #[must_use]
    pub const fn compile_cost(patterns: usize) -> Cost {
        match patterns {
            0 => Cost::steps(0),
            _ => Cost::LONG,
        }
    }

    /// Returns the patterns with their replacements.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.masks
            .iter()
            .map(|mask| (mask.pattern.as_str(), &*mask.replacement))
    }

    /// Returns how many times as long as copying it takes to mask a byte.
    #[must_use]
    pub fn cost(&self) -> usize {
        1 + SEARCH * self.masks.len()
    }

    /// Returns the number of patterns.
    #[must_use]
    pub fn count(&self) -> usize {
        self.masks.len()
    }

    /// Returns true if nothing is masked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.masks.is_empty()
    }

    fn text(&self, bytes: &[u8]) -> Option<String> {
        let mut text = letters::utf8(bytes);
        let mut changed = false;
        for mask in &self.masks {
            let replacement = NoExpand(&mask.replacement);
            if let Cow::Owned(masked) = mask.pattern.replace_all(&text, replacement) {
                text = Cow::Owned(masked);
                changed = true;
            }
        }
        changed.then(|| text.into_owned())
    }

    pub(crate) fn bytes(&self, bytes: &[u8]) -> Box<[u8]> {
        let masked = self.text(bytes);
        masked.map_or_else(|| bytes.into(), |text| text.into_bytes().into())
    }

    /// Calls a function with each text that the masks hide.
    pub(crate) fn each(&self, text: &str, mut take: impl FnMut(&str)) {
        let mut text = Cow::Borrowed(text);
        for mask in &self.masks {
            mask.pattern
                .find_iter(&text)
                .for_each(|found| take(found.as_str()));
            let replacement = NoExpand(&mask.replacement);
            if let Cow::Owned(masked) = mask.pattern.replace_all(&text, replacement) {
                text = Cow::Owned(masked);
            }
        }
    }

    pub(crate) fn content(&self, content: &Content) -> Content {
        match content {
            Content::None => Content::None,
            Content::Text(bytes) => Content::Text(self.bytes(bytes)),
            Content::Parts(parts) => Content::Parts(self.parts(parts)),
        }
    }

    fn parts(&self, parts: &[Part]) -> Box<[Part]> {
        self.list_staying(parts).into_iter().flatten().collect()
    }

    /// Returns each part as it looks; `None` for a block that a mask would change, and for the other half of its pair.
    fn list_staying(&self, parts: &[Part]) -> Vec<Option<Part>> {
        let masked = stretches(parts).flat_map(|stretch| match stretch {
            [part] => vec![self.part(part)],
            _ => {
                let texts = stretch
                    .iter()
                    .map(|part| part_words(part).unwrap_or_default());
                let texts = self.texts_in_row(texts.map(letters::utf8).collect());
                let parts = stretch.iter().zip(texts);
                parts
                    .map(|(part, text)| self.part_with(part, text))
                    .collect()
            }
        });
        let masked: Vec<_> = masked.collect();
        let stays: Vec<_> = masked.iter().map(Option::is_some).collect();
        let stays = whole_pairs(parts, &stays);
        let masked = masked.into_iter().zip(stays);
        masked.map(|(part, stays)| part.filter(|_| stays)).collect()
    }

    /// Returns the calls of a message as they look, beside its parts as they look.
    pub(crate) fn calls(&self, message: &Message) -> Box<[ToolCall]> {
        let mut calls: Box<[ToolCall]> = message.calls.iter().map(|call| self.call(call)).collect();
        let parts = message.content.parts();
        let staying = self.list_staying(parts);
        for call in &mut calls {
            let before = call.parts_before();
            if before < parts.len() {
                let staying = staying.iter().take(before).flatten().count();
                call.put_parts_before(staying);
            }
        }
        calls
    }

    /// Returns the part as it looks; `None` for a provider's block that a mask would change: a provider only takes its own
    /// unchanged.
    pub(crate) fn part(&self, part: &Part) -> Option<Part> {
        let masked = part_words(part).and_then(|bytes| self.text(bytes));
        self.part_with(part, masked)
    }

    /// Returns the texts of parts in a row that are masked, as they look: a text may lie over several of them, and its replacement
    /// stands where it begins.
    fn texts_in_row(&self, mut texts: Vec<Cow<'_, str>>) -> Vec<Option<String>> {
        let mut changed = vec![false; texts.len()];
        for mask in &self.masks {
            let all = texts.concat();
            let found = mask.find_in_row(&texts, &all);
            let mut found = found.into_iter().peekable();
            let (mut start, mut masked) = (0, 0);
            for (nth, text) in texts.iter_mut().enumerate() {
                let end = start + text.len();
                let mut at = masked.clamp(start, end);
                let mut shown = String::new();
                while let Some(found) = found.next_if(|found| found.nth == nth) {
                    shown.push_str(all.get(at..found.start).unwrap_or_default());
                    shown.push_str(&mask.replacement);
                    (at, masked) = (found.end.min(end), found.end);
                }
                shown.push_str(all.get(at..end).unwrap_or_default());
                if shown != **text {
                    *text = shown.into();
                    changed
                        .iter_mut()
                        .skip(nth)
                        .take(1)
                        .for_each(|one| *one = true);
                }
                start = end;
            }
        }
        let texts = texts.into_iter().zip(changed);
        texts
            .map(|(text, is_changed)| is_changed.then(|| text.into_owned()))
            .collect()
    }

    fn part_with(&self, given: &Part, masked: Option<String>) -> Option<Part> {
        // A new field with text for models or people is masked here, too.
        let Part {
            kind: _,
            provider_metadata: _,
            hints: _,
            extra: _,
            withheld: _,
            number: _,
        } = given;
        let mut part = given.clone();
        match &mut part.kind {
            PartKind::Text(bytes) => {
                part.provider_metadata = self.metadata(part.provider_metadata.as_ref());
                if let Some(text) = masked {
                    *bytes = text.into_bytes().into();
                    // Its recording still has the hidden words.
                    let metadata = part.provider_metadata.as_mut();
                    if let Some(of) = metadata.filter(|of| of.get_named(AUDIO_ID).is_some()) {
                        *of = of.put(Value::atom(AUDIO_ID), Value::Nil);
                    }
                }
            }
            PartKind::Thinking(bytes) => {
                if let Some(text) = masked {
                    *bytes = text.into_bytes().into();
                    // Its signature is for the unmasked text.
                    part.provider_metadata = None;
                }
                part.provider_metadata = self.metadata(part.provider_metadata.as_ref());
            }
            PartKind::ProviderBlock { data, .. } if self.map(data) != *data => return None,
            PartKind::ProviderBlock { .. } => {}
            PartKind::Media(media) => {
                self.source(&mut media.source, media.media_type.as_deref());
                if let Some(name) = &mut media.filename {
                    let before = name.clone();
                    self.name(name);
                    // Two masked names may be the same.
                    let number = part.number.as_mut().filter(|_| *name != before);
                    number
                        .into_iter()
                        .for_each(|number| number.is_needed = true);
                }
            }
            PartKind::RedactedThinking(_) => {}
        }
        if part.address() != given.address() || part.is_empty_file() {
            // The masked address leads nowhere, or no data is left.
            let words = words_of(&part.kind).unwrap_or_default();
            part = Part::text(words.into_bytes().into());
        }
        Some(part)
    }

    /// Masks addresses, and the text of files that are sent as text.
    fn source(&self, source: &mut Source, media_type: Option<&str>) {
        match source {
            Source::Data(data) if media_type.is_some_and(|of| is_text(&normal(of))) => {
                if let Some(masked) = self.base64(data) {
                    *data = masked.into();
                }
            }
            Source::Data(_) => {}
            Source::Url(url) if url.starts_with("data:") => {
                let masked = text_data(url)
                    .and_then(|(head, data)| Some([head, DATA_URL, &self.base64(data)?].concat()));
                if let Some(masked) = masked {
                    *url = masked.into();
                }
            }
            Source::Url(url) => self.name(url),
            Source::Stored { id, .. } => self.name(id),
        }
    }

    fn base64(&self, data: &str) -> Option<String> {
        let bytes = BASE64.decode(data).ok()?;
        self.text(&bytes).map(|text| BASE64.encode(text))
    }

    pub(crate) fn words<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let masked = self.text(text.as_bytes());
        masked.map_or(text.into(), Cow::Owned)
    }

    pub(crate) fn name(&self, name: &mut Box<str>) {
        if let Some(masked) = self.text(name.as_bytes()) {
            *name = masked.into();
        }
    }

    /// Returns a failed request, the server's words masked if there are masks.
    pub(crate) fn failure(masks: Option<&Self>, failure: &FailedRequest) -> FailedRequest {
        let mut failure = failure.clone();
        if let Some((masks, said)) = masks.zip(failure.server_words_mut()) {
            masks.name(said);
        }
        failure
    }

    pub(crate) fn call(&self, call: &ToolCall) -> ToolCall {
        let value = self.value(&call.arguments.value);
        let json = call.arguments.json.as_ref();
        let json = json.filter(|_| value == call.arguments.value).cloned();
        ToolCall {
            arguments: Arguments { value, json },
            provider_metadata: self.metadata(call.provider_metadata.as_ref()),
            ..call.clone()
        }
    }

    /// Returns the fields that a provider wants back, without the objects that a mask would change.
    fn metadata(&self, metadata: Option<&Map>) -> Option<Map> {
        let metadata = metadata?;
        let stays = |(_, value): &&(Value, Value)| match value {
            Value::Map(_) | Value::List(_) => self.value(value) == *value,
            _ => true,
        };
        Some(Map::new(metadata.iter().filter(stays).cloned().collect()))
    }

    pub(crate) fn output(&self, outcome: &Outcome) -> Option<Output> {
        match &outcome.output {
            Output::Parts(parts) => {
                let mut shown = self.parts(parts);
                if let (Some(edited), Some(first)) = (&outcome.edited, shown.first_mut()) {
                    let told = tell_edited(&self.value(edited));
                    *first = Part::text(self.bytes(told.as_bytes()));
                }
                Some(Output::Parts(shown))
            }
            // A pattern may match a key and the value after it: the text decides.
            Output::Value(_) => {
                let text = outcome.text()?;
                let edited = outcome.edited.as_ref().map(|edited| self.value(edited));
                let beside = edited.and_then(|edited| outcome.text_beside(&edited));
                let beside = beside.filter(|beside| beside.as_bytes() != text);
                let masked = self.text(beside.as_ref().map_or(text, |beside| beside.as_bytes()));
                masked
                    .or(beside)
                    .map(|text| Output::Value(Value::text(&text)))
            }
        }
    }

    pub(crate) fn map(&self, map: &Map) -> Map {
        let masked = |(key, value): &(Value, Value)| (self.value(key), self.value(value));
        Map::new(map.iter().map(masked).collect())
    }

    /// Numbers and atoms are masked as a model reads them. Recurses at most [`crate::MAX_DEPTH`] levels.
    pub(crate) fn value(&self, value: &Value) -> Value {
        let all = |items: &[Value]| items.iter().map(|item| self.value(item)).collect();
        let text = match value {
            Value::Binary(bytes) => return Value::Binary(self.bytes(bytes)),
            Value::List(items) => return Value::List(all(items)),
            Value::Tuple(items) => return Value::Tuple(all(items)),
            Value::Map(map) => return Value::Map(self.map(map)),
            Value::Nil | Value::Bool(_) => return value.clone(),
            Value::Atom(name) => self.text(name.as_bytes()),
            Value::Int(_) | Value::BigInt(_) | Value::Float(_) => {
                self.text(json::write(value).as_bytes())
            }
        };
        text.map_or_else(|| value.clone(), |text| Value::text(&text))
    }
}

impl Mask {
    /// Returns what it hides in each of some texts, and what begins in one and ends in another, in the order of `all`.
    fn find_in_row(&self, texts: &[Cow<'_, str>], all: &str) -> Vec<FoundInRow> {
        let mut starts = Vec::with_capacity(texts.len());
        let (mut found, mut start) = (Vec::new(), 0);
        for (nth, text) in texts.iter().enumerate() {
            found.extend(self.pattern.find_iter(text).map(|within| FoundInRow {
                nth,
                start: start + within.start(),
                end: start + within.end(),
            }));
            starts.push(start);
            start += text.len();
        }
        let over = self.pattern.find_iter(all).filter_map(|over| {
            let after = starts.partition_point(|start| *start <= over.start());
            let is_over = starts.get(after).is_some_and(|next| *next < over.end());
            // What is hidden in each text already needs nothing more.
            let from = found.partition_point(|one| one.end <= over.start());
            let hidden = found.iter().skip(from).try_fold(over.start(), |at, one| {
                (one.start <= at && at < over.end())
                    .then_some(at.max(one.end))
                    .ok_or(at)
            });
            let (Ok(hidden) | Err(hidden)) = hidden;
            (is_over && hidden < over.end()).then_some(FoundInRow {
                nth: after.saturating_sub(1),
                start: over.start(),
                end: over.end(),
            })
        });
        let over: Vec<FoundInRow> = over.collect();
        found.extend(over);
        found.sort_by_key(|one| (one.start, one.nth));
        found.dedup_by(|next, last| {
            let is_same = next.start < last.end;
            last.end = if is_same {
                last.end.max(next.end)
            } else {
                last.end
            };
            is_same
        });
        found
    }
}

/// What a mask hides in texts in a row.
struct FoundInRow {
    /// The number of the text in which it begins.
    nth: usize,
    start: usize,
    end: usize,
}

/// Returns the words of a part that may go on in the next one.
fn part_words(part: &Part) -> Option<&[u8]> {
    match &part.kind {
        PartKind::Text(bytes) | PartKind::Thinking(bytes) => Some(bytes),
        _ => None,
    }
}

/// Returns parts with words that follow each other together, and others alone.
fn stretches(parts: &[Part]) -> impl Iterator<Item = &[Part]> {
    parts.chunk_by(|one, next| part_words(one).is_some() && part_words(next).is_some())
}

/// Calls a function with the words of parts that follow each other.
pub(crate) fn each_in_row(parts: &[Part], mut take: impl FnMut(&str)) {
    for stretch in stretches(parts).filter(|stretch| stretch.len() > 1) {
        let texts: Vec<&[u8]> = stretch.iter().filter_map(part_words).collect();
        take(&letters::utf8(&texts.concat()));
    }
}

/// Returns the beginning of a data URL of a text, and its base64.
fn text_data(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.split_once(DATA_URL)?;
    let media_type = head.strip_prefix("data:")?;
    is_text(&normal(media_type)).then_some((head, data))
}

impl Part {
    /// Returns its address, if it has one.
    fn address(&self) -> Option<&str> {
        match &self.kind.media()?.source {
            Source::Url(url) if !url.starts_with("data:") => Some(url),
            Source::Stored { id, .. } => Some(id),
            _ => None,
        }
    }

    fn is_empty_file(&self) -> bool {
        let source = self.kind.media().map(|media| &media.source);
        matches!(source, Some(Source::Data(data)) if data.is_empty())
    }
}

impl PartialEq for Masks {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Masks {}
