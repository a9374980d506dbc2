//! Providers' own diagnoses of their prompt caches, for requests that ask for them.

use crate::log::reply::Reply;
pub use crate::provider::facts::Diagnosis;
use crate::value::{Map, Value};

/// The field of a request's note that the provider was asked for a diagnosis.
const ASKED: &str = "cache_diagnostics";

impl Diagnosis {
    /// Reads the diagnosis of an answer; `fields` are those recorded for its request.
    pub(crate) fn read(reply: &Reply, fields: Option<&Map>) -> Option<Self> {
        let is_asked =
            fields.is_some_and(|fields| fields.get_named(ASKED) == Some(&Value::Bool(true)));
        let diagnose = reply.provider?.facts().diagnose;
        diagnose(reply.details.as_ref(), is_asked)
    }
}
