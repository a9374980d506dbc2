//! Diagnoses of providers about their prompt caches, for requests that ask for them: Anthropic and OpenAI.

use crate::log::provider::Provider;
use crate::log::reply::Reply;
use crate::value::{Map, Value};

/// The field of a request's note that says that the provider was asked to compare.
const ASKED: &str = "cache_diagnostics";

/// The word for requests in which the provider found no difference, which is OpenAI's.
const SAME: &str = "cache_hit";

/// The word for a comparison that was not done when the answer came.
const PENDING: &str = "pending";

/// The result of a provider's comparison of a request with the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// Its word for what is not the same; `cache_hit` where all is, `pending` where it does not know yet.
    pub reason: Box<str>,
    /// How many tokens could not be read because of that.
    pub tokens: Option<u64>,
}

impl Diagnosis {
    /// Reads the diagnosis of an answer; `fields` are those recorded for its request.
    pub(crate) fn read(reply: &Reply, fields: Option<&Value>) -> Option<Self> {
        let details = reply.details.as_ref();
        let given = |name: &str| match details?.get_named(name)? {
            Value::Map(given) => Some(given),
            _ => None,
        };
        match reply.provider? {
            Provider::Anthropic => match given("diagnostics") {
                Some(given) => Some(Self::of_anthropic(given)),
                // It says nothing where it finds nothing.
                None => is_asked(fields).then(|| Self::of(SAME, None)),
            },
            Provider::OpenAiResponses => Some(Self::of_openai(given("prompt_cache_diagnostics")?)),
            _ => None,
        }
    }

    fn of_anthropic(given: &Map) -> Self {
        match given.get_named("cache_miss_reason") {
            Some(Value::Map(reason)) => Self::of(
                text(reason, "type").unwrap_or_default(),
                count(reason, "cache_missed_input_tokens"),
            ),
            _ => Self::of(PENDING, None),
        }
    }

    fn of_openai(given: &Map) -> Self {
        let kind = text(given, "type").unwrap_or_default();
        Self::of(
            text(given, "reason").unwrap_or(kind),
            count(given, "cache_missed_tokens"),
        )
    }

    fn of(reason: &str, tokens: Option<u64>) -> Self {
        Self {
            reason: reason.into(),
            tokens,
        }
    }
}

fn is_asked(fields: Option<&Value>) -> bool {
    let Some(Value::Map(fields)) = fields else {
        return false;
    };
    fields.get_named(ASKED) == Some(&Value::Bool(true))
}

fn text<'v>(of: &'v Map, name: &str) -> Option<&'v str> {
    of.get_named(name)?.as_str()
}

fn count(of: &Map, name: &str) -> Option<u64> {
    match of.get_named(name)? {
        Value::Int(count) => u64::try_from(*count).ok(),
        _ => None,
    }
}
