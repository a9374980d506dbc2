//! The NIF for traces as OTLP.

#[cfg(not(feature = "otlp"))]
pub fn otlp<'a>(
    _told: rustler::Term<'a>,
    _masked: bool,
    _options: rustler::Term<'a>,
) -> Result<rustler::Term<'a>, ash_agent_context_core::Error> {
    Err(ash_agent_context_core::Error::FeatureMissing {
        feature: "otlp".into(),
    })
}

#[cfg(feature = "otlp")]
pub use with::otlp;

#[cfg(feature = "otlp")]
mod with {
    use ash_agent_context_core::{Conventions, Error, OtlpOptions, Prices, Turns, Value};

    use crate::argument::{options, Items};
    use crate::trace::Conversations;

    /// See `AshAgent.Trace.to_otlp/2`.
    pub struct GivenOtlp<'a> {
        agent: &'a str,
        version: Option<&'a str>,
        error: Option<&'a str>,
        json: bool,
        next: bool,
        messages: bool,
        /// `nil`, or `{first, last}` with 0 for the last turn.
        turns: Option<(u64, u64)>,
        tools: Option<Items>,
        resource: Items,
        attributes: Items,
        open: bool,
        /// `nil`, or the 24 bytes of a trace's and a span's id.
        caller: Option<&'a [u8]>,
        prices: &'a Prices,
    }

    options! {
        GivenOtlp<'a> {
            agent, version, error, json, next, messages, turns, tools, resource, attributes, open, caller, prices,
        }
    }

    pub fn otlp(
        told: Conversations<'_>,
        masked: bool,
        given: GivenOtlp<'_>,
    ) -> Result<Vec<u8>, Error> {
        let options = OtlpOptions {
            agent: given.agent,
            version: given.version,
            conventions: match given.next {
                true => Conventions::Next,
                false => Conventions::V1_41,
            },
            is_json: given.json,
            messages: given.messages,
            turns: match given.turns {
                None => Turns::All,
                Some((0, 0)) => Turns::Last,
                Some((first, last)) => Turns::Between(first, last),
            },
            tools: given.tools.as_ref().map(|Items(tools)| tools),
            resource: &pairs(given.resource),
            attributes: &pairs(given.attributes),
            error: given.error,
            is_open: given.open,
            caller: given.caller.and_then(ids),
            prices: Some(given.prices),
        };
        told.trace(masked)?.to_otlp(&options)
    }

    fn ids(bytes: &[u8]) -> Option<([u8; 16], [u8; 8])> {
        let (trace, span) = bytes.split_at_checked(16)?;
        Some((trace.try_into().ok()?, span.try_into().ok()?))
    }

    fn pairs(Items(map): Items) -> Vec<(String, Value)> {
        let Value::Map(map) = map else {
            return Vec::new();
        };
        let entries = map.into_entries().into_iter();
        let named = entries.filter_map(|(key, value)| Some((key.as_name()?.to_owned(), value)));
        named.collect()
    }
}
