//! The NIF of traces as OTLP.

use rustler::Term;

use crate::nif::nif;

nif!(
    trace_otlp_normal,
    trace_otlp_dirty,
    |env, scheduler, told: Term<'a>, masked: bool, options: Term<'a>| {
        with::otlp(env, scheduler, told, masked, options)
    }
);

#[cfg(feature = "otlp")]
mod with {
    use ash_agent_context_core::{Conventions, Cost, OtlpOptions, Turns, Value};
    use rustler::{Binary, Env, NewBinary, NifMap, Term};

    use crate::argument::Unsigned;
    use crate::decode::{self, Around};
    use crate::error::NifError;
    use crate::prices::PricesHandle;
    use crate::scheduler::Scheduler;
    use crate::trace::with_trace;

    /// See `AshAgent.Trace.to_otlp/2`.
    #[derive(NifMap)]
    #[rustler(decode)]
    struct GivenOtlp<'a> {
        agent: &'a str,
        version: Option<&'a str>,
        error: Option<&'a str>,
        json: bool,
        next: bool,
        messages: bool,
        /// `nil`, or `{first, last}` with 0 for the last turn.
        turns: Option<(Unsigned, Unsigned)>,
        tools: Term<'a>,
        resource: Term<'a>,
        attributes: Term<'a>,
        open: bool,
        /// `nil`, or the 24 bytes of a trace's and a span's id.
        caller: Option<Binary<'a>>,
        prices: PricesHandle,
    }

    pub fn otlp<'a>(
        env: Env<'a>,
        scheduler: Scheduler,
        told: Term<'a>,
        masked: bool,
        options: Term<'a>,
    ) -> Result<Term<'a>, NifError> {
        // A span is more than the message that it is made of.
        scheduler.allow(Cost::LONG)?;
        let given: GivenOtlp<'a> = options.decode()?;
        let read = |term| decode::value(term, Around::Items, scheduler);
        let (tools, resource) = (read(given.tools)?, read(given.resource)?);
        let options = OtlpOptions {
            agent: given.agent,
            version: given.version,
            conventions: match given.next {
                true => Conventions::Next,
                false => Conventions::V1_41,
            },
            is_json: given.json,
            messages: given.messages,
            turns: match given.turns.map(|(first, last)| (first.0, last.0)) {
                None => Turns::All,
                Some((0, 0)) => Turns::Last,
                Some((first, last)) => Turns::Between(first, last),
            },
            tools: (tools != Value::Nil).then_some(&tools),
            resource: &pairs(resource),
            attributes: &pairs(read(given.attributes)?),
            error: given.error,
            is_open: given.open,
            caller: given.caller.as_deref().and_then(ids),
            prices: Some(given.prices.get()),
        };
        let bytes = with_trace(scheduler, told, masked, |trace| trace.to_otlp(&options))??;
        Ok(NewBinary::from_slice(env, &bytes).into())
    }

    fn ids(bytes: &[u8]) -> Option<([u8; 16], [u8; 8])> {
        let (trace, span) = bytes.split_at_checked(16)?;
        Some((trace.try_into().ok()?, span.try_into().ok()?))
    }

    fn pairs(map: Value) -> Vec<(String, Value)> {
        let Value::Map(map) = map else {
            return Vec::new();
        };
        let entries = map.into_entries().into_iter();
        let named = entries.filter_map(|(key, value)| Some((key.as_name()?.to_owned(), value)));
        named.collect()
    }
}

#[cfg(not(feature = "otlp"))]
mod with {
    use ash_agent_context_core::Error;
    use rustler::{Env, Term};

    use crate::error::NifError;
    use crate::scheduler::Scheduler;

    pub fn otlp<'a>(
        _env: Env<'a>,
        _scheduler: Scheduler,
        _told: Term<'a>,
        _masked: bool,
        _options: Term<'a>,
    ) -> Result<Term<'a>, NifError> {
        Err(Error::FeatureMissing { feature: "otlp" }.into())
    }
}
