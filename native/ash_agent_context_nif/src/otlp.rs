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
    use ash_agent_context_core::{Conventions, Error, OtlpOptions, Turns, Value};

    use crate::argument::{arguments, field, Items};
    use crate::atoms;
    use crate::trace::Conversations;

    arguments! {
        // See `AshAgent.Trace.to_otlp/2`.
        OtlpOptions<'a> = |term, scheduler| {
            let tools: Option<Items> = field(term, atoms::tools(), scheduler)?;
            let Items(resource) = field(term, atoms::resource(), scheduler)?;
            let Items(attributes) = field(term, atoms::attributes(), scheduler)?;
            let turns: Option<(u64, u64)> = field(term, atoms::turns(), scheduler)?;
            let caller: Option<&[u8]> = field(term, atoms::caller(), scheduler)?;
            Ok(Self {
                agent: field(term, atoms::agent(), scheduler)?,
                version: field(term, atoms::version(), scheduler)?,
                conventions: match field(term, atoms::next(), scheduler)? {
                    true => Conventions::Next,
                    false => Conventions::V1_41,
                },
                is_json: field(term, atoms::json(), scheduler)?,
                messages: field(term, atoms::messages(), scheduler)?,
                turns: match turns {
                    None => Turns::All,
                    Some((0, 0)) => Turns::Last,
                    Some((first, last)) => Turns::Between(first, last),
                },
                tools: tools.map(|Items(tools)| tools),
                resource: named(resource),
                attributes: named(attributes),
                error: field(term, atoms::error(), scheduler)?,
                is_open: field(term, atoms::open(), scheduler)?,
                caller: caller.and_then(ids),
                prices: Some(field(term, atoms::prices(), scheduler)?),
            })
        };
    }

    pub fn otlp(
        shown: Conversations<'_>,
        masked: bool,
        options: OtlpOptions<'_>,
    ) -> Result<Vec<u8>, Error> {
        shown.trace(masked)?.to_otlp(&options)
    }

    /// Returns a trace's id of 16 bytes, and a span's of 8.
    fn ids(bytes: &[u8]) -> Option<([u8; 16], [u8; 8])> {
        let (trace, span) = bytes.split_at_checked(16)?;
        Some((trace.try_into().ok()?, span.try_into().ok()?))
    }

    fn named(map: Value) -> Vec<(String, Value)> {
        let Value::Map(map) = map else {
            return Vec::new();
        };
        let entries = map.into_entries().into_iter();
        let named = entries.filter_map(|(key, value)| Some((key.as_name()?.to_owned(), value)));
        named.collect()
    }
}
