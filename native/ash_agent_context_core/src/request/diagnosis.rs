//! Diagnoses of providers about their prompt caches, for requests that ask for them.

use crate::log::reply::Reply;
use crate::value::{Map, Value};

/// The field of a request's note that says that the provider was asked to compare.
const ASKED: &str = "cache_diagnostics";

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
    pub(crate) fn read(reply: &Reply, fields: Option<&Map>) -> Option<Self> {
        let is_asked =
            fields.is_some_and(|fields| fields.get_named(ASKED) == Some(&Value::Bool(true)));
        let diagnose = reply.provider?.facts().diagnose;
        let miss = diagnose(reply.details.as_ref(), is_asked)?;
        Some(Self {
            reason: miss.reason.into(),
            tokens: miss.tokens,
        })
    }
}
