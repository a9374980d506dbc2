//! Requests that failed: each is kept with the iteration that it was for, and many are a count.

use std::sync::Arc;

use crate::error::Error;
use crate::failure::FailureKind;
use crate::log::provider::Provider;
use crate::value::builder::Json;
use crate::value::json::AsJson;
use crate::value::time::{self, Time};
use crate::value::{Map, Size, Value};

/// So many failures of an iteration are kept one by one. Later ones are counted by their kind.
const KEPT: usize = 16;

/// Characters of the server's words that are kept.
const WORDS: usize = 500;

/// Characters of a name or an id that are kept.
const NAME: usize = 200;

/// A request to a model that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRequest {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The time of the failure; of several, the last one.
    pub at: Time,
    /// The time of the request.
    pub requested_at: Option<Time>,
    /// The provider that was asked.
    pub provider: Option<Provider>,
    /// The names, ids and words that came with it, by their keys in [`TEXTS`].
    texts: [Option<Box<str>>; TEXTS.len()],
    /// The numbers, by their keys in [`NUMBERS`].
    numbers: [Option<u64>; NUMBERS.len()],
    /// The number of failures that it stands for.
    pub count: u64,
    /// Fields of a snapshot that this version does not know.
    extra: Option<Map>,
}

/// Keys of the texts: the model, the provider's name for the error and its id of the request, the limit that ended it
/// (`first_byte`), the part that broke off (`stream`) or a function that failed (`tool`, `tools`), and the server's words.
const TEXTS: [&str; 6] = ["model", "code", "request_id", "timeout", "part", WORDS_KEY];

/// Keys of the numbers: the HTTP status, which try it was, and the milliseconds until the next one, if there was one.
const NUMBERS: [&str; 3] = ["status", "attempt", "wait"];

const WORDS_KEY: &str = "message";
const KIND: &str = "kind";
const AT: &str = "at";
const REQUESTED_AT: &str = "requested_at";
const PROVIDER: &str = "provider";
const COUNT: &str = "count";

impl FailedRequest {
    /// Reads a failure that an application gives or that stands in a document. `at` is the time of the failure if it has none
    /// of its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the key of what is wrong.
    pub fn read(value: &Value, at: Option<Time>) -> Result<Self, Error> {
        let expected = "a failed request, a map with its :kind";
        let Value::Map(map) = value else {
            return Err(Error::invalid(Vec::new(), expected));
        };
        let wrong = |key, expected: &'static str| Error::invalid(vec![Value::text(key)], expected);
        let kind = |kind: &Value| FailureKind::from_name(kind.as_name()?);
        let kind = take(map, KIND, "a kind of failure", kind)?;
        let kind = kind.ok_or_else(|| wrong(KIND, "a kind of failure"))?;
        let time = |key| take(map, key, "a time", time::from_value);
        let provider = |name: &Value| Provider::from_name(name.as_name()?);
        let provider = take(map, PROVIDER, "the name of a provider", provider)?;
        let text = |key| {
            let most = if key == WORDS_KEY { WORDS } else { NAME };
            take(map, key, "text", |text| Some(cut(text.as_name()?, most)))
        };
        let number = |key| {
            let expected = "a number that is not negative";
            take(map, key, expected, Value::as_count)
        };
        let mut texts = [const { None }; TEXTS.len()];
        for (text_of, key) in texts.iter_mut().zip(TEXTS) {
            *text_of = text(key)?;
        }
        let mut numbers = [None; NUMBERS.len()];
        for (number_of, key) in numbers.iter_mut().zip(NUMBERS) {
            *number_of = number(key)?;
        }
        Ok(Self {
            kind,
            at: time(AT)?.or(at).ok_or_else(|| wrong(AT, "a time"))?,
            requested_at: time(REQUESTED_AT)?,
            provider,
            texts,
            numbers,
            count: number(COUNT)?.unwrap_or(1).max(1),
            extra: unknown(map),
        })
    }

    /// Returns true if a part of the answer came.
    #[cfg(feature = "otlp")]
    pub(crate) fn is_part(&self) -> bool {
        self.text("part").is_some() && !self.is_function()
    }

    /// Returns true if it is no request that failed, but a tool, or the function that lists the tools.
    pub(crate) fn is_function(&self) -> bool {
        matches!(self.text("part"), Some("tool" | "tools"))
    }

    /// Takes the server's words away.
    #[cfg(feature = "otlp")]
    pub(crate) fn forget_said(&mut self) {
        if let Some(said) = self.texts.last_mut() {
            *said = None;
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        let at = TEXTS.iter().position(|known| *known == key)?;
        self.texts.get(at)?.as_deref()
    }

    fn number(&self, key: &str) -> Option<u64> {
        let at = NUMBERS.iter().position(|known| *known == key)?;
        self.numbers.get(at).copied().flatten()
    }

    pub(crate) fn server_words_mut(&mut self) -> Option<&mut Box<str>> {
        self.texts.last_mut().and_then(Option::as_mut)
    }

    /// Returns all that is known of it beside its times, with atoms for keys.
    #[must_use]
    pub fn facts(&self) -> Map {
        let atom = |name: &str| Value::atom(name);
        let mut entries = vec![(atom(KIND), atom(self.kind.name()))];
        entries.extend(self.provider.map(|of| (atom(PROVIDER), atom(of.name()))));
        let texts = TEXTS.iter().zip(&self.texts);
        let texts = texts.filter_map(|(key, text)| Some((key, text.as_deref()?)));
        entries.extend(texts.map(|(key, text)| (atom(key), Value::text(text))));
        let counted = NUMBERS.iter().zip(self.numbers);
        let counted = counted.filter_map(|(key, number)| Some((*key, number?)));
        let counted = counted.chain([(COUNT, self.count)]);
        entries.extend(counted.map(|(key, number)| {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            (atom(key), Value::Int(number))
        }));
        Map::new(entries)
    }

    /// Returns the failure in a sentence for people.
    pub(crate) fn words(&self) -> String {
        let (text, number) = (|key| self.text(key), |key| self.number(key));
        let mut words = match self.is_function() {
            true => "raised".to_owned(),
            false => self.kind.name().replace('_', " "),
        };
        let status = number("status").map(|status| format!("status {status}"));
        let limit = text("timeout").map(|limit| limit.replace('_', " "));
        let known = [status, text("code").map(Into::into), limit];
        let known: Vec<String> = known.into_iter().flatten().collect();
        if !known.is_empty() {
            words.push_str(&format!(" ({})", known.join(", ")));
        }
        let part = text("part").filter(|_| !self.is_function());
        let part = part.map(|_| "in the middle of the answer".to_owned());
        let attempt = number("attempt").filter(|attempt| *attempt > 1);
        let attempt = attempt.map(|attempt| format!("try {attempt}"));
        let wait = number("wait").map(|wait| format!("tried again after {wait} ms"));
        let count = (self.count > 1).then(|| format!("{} times", self.count));
        let asked = text("model").map(|model| format!("by {model}"));
        let id = text("request_id").map(|id| format!("request {id}"));
        let all = [asked, part, attempt, wait, count, id];
        for more in all.into_iter().flatten() {
            words.push_str(", ");
            words.push_str(&more);
        }
        if let Some(said) = text(WORDS_KEY) {
            words.push_str(": ");
            words.push_str(said);
        }
        words
    }

    /// Writes it as JSON for a document.
    pub(crate) fn write(&self, json: &mut Json) {
        json.object(|json| {
            for (key, value) in self.facts().iter() {
                if let Some(key) = key.as_name() {
                    match value.as_name() {
                        Some(text) => json.key(key).text(text),
                        None => json.key(key).value(&AsJson(value)),
                    };
                }
            }
            json.key(AT).text(&time::to_text(self.at));
            if let Some(at) = self.requested_at {
                json.key(REQUESTED_AT).text(&time::to_text(at));
            }
            for (key, value) in self.extra.iter().flat_map(Map::iter) {
                if let Some(key) = key.as_str() {
                    json.key(key).value(&AsJson(value));
                }
            }
        });
    }

    fn size(&self) -> Size {
        let bytes = self.texts.iter().flatten().map(|text| text.len()).sum();
        Size::new(12, bytes).plus(self.extra.iter().map(Map::size).sum())
    }
}

/// The failures of an iteration, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Failures(Option<Arc<Vec<FailedRequest>>>);

impl Failures {
    pub fn of(read: Vec<FailedRequest>) -> Self {
        Self((!read.is_empty()).then(|| Arc::new(read)))
    }

    /// Adds a failure: after the first [`KEPT`] it is counted with the last of its kind.
    pub fn add(&mut self, failure: FailedRequest) {
        let kept = Arc::make_mut(self.0.get_or_insert_default());
        let later = kept.iter_mut().skip(KEPT);
        let same = later.rev().find(|kept| kept.kind == failure.kind);
        match same {
            Some(same) => {
                let count = same.count.saturating_add(failure.count);
                *same = FailedRequest { count, ..failure };
            }
            None => kept.push(failure),
        }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &FailedRequest> + DoubleEndedIterator {
        let kept: &[FailedRequest] = self.0.as_deref().map_or(&[], Vec::as_slice);
        kept.iter()
    }

    pub fn size(&self) -> Size {
        self.iter().map(FailedRequest::size).sum()
    }
}

/// Reads the value under a key, if there is one.
fn take<T>(
    map: &Map,
    key: &str,
    expected: &'static str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, Error> {
    let given = map.get_named(key).filter(|value| **value != Value::Nil);
    let wrong = || Error::invalid(vec![Value::text(key)], expected);
    given.map(|value| read(value).ok_or_else(wrong)).transpose()
}

fn cut(text: &str, most: usize) -> Box<str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}\u{2026}", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

fn unknown(map: &Map) -> Option<Map> {
    let known = [KIND, AT, REQUESTED_AT, PROVIDER, COUNT];
    let is_known =
        |key: &str| known.contains(&key) || TEXTS.contains(&key) || NUMBERS.contains(&key);
    let is_unknown = |(key, _): &&(Value, Value)| !key.as_name().is_some_and(is_known);
    let entries: Vec<_> = map.iter().filter(is_unknown).cloned().collect();
    (!entries.is_empty()).then(|| Map::new(entries))
}
