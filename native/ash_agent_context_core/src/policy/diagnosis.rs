//! Providers' own diagnoses of their prompt caches, for requests that ask for them.

use crate::log::reply::Reply;
use crate::value::{Map, Value};

/// The field of a request's note that the provider was asked for a diagnosis.
const ASKED: &str = "cache_diagnostics";

/// A provider's comparison of a request with the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The provider's word for the part that differs; `cache_hit` if nothing does, `pending` if it does not know yet.
    pub reason: Box<str>,
    /// The number of tokens that could not be read because of it.
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
