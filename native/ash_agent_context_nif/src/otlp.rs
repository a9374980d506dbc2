//! The NIF of traces as OTLP.

use rustler::{Env, Term};

use crate::error::NifError;
use crate::scheduler::{nif, Scheduler};

nif!(trace_otlp_normal, trace_otlp_dirty(told: Term<'a>, masked: bool, options: Term<'a>) => with::otlp);

#[cfg(feature = "otlp")]
mod with {
    use ash_agent_context_core::{Conventions, Cost, OtlpOptions, Turns, Value};
    use rustler::{Env, NewBinary, Term};

    use crate::decode::{self, Around, Number};
    use crate::error::NifError;
    use crate::scheduler::Scheduler;
    use crate::trace::with_trace;

    /// `{agent, version | nil, error | nil}`
    type Names = (String, Option<String>, Option<String>);

    /// `{json?, next?, messages?}`
    type Flags = (bool, bool, bool);

    /// `nil`, or `{first, last}` with 0 for the last turn
    type Numbers = Option<(Number, Number)>;

    /// `{tools | nil, resource, attributes}`
    type Values<'a> = (Term<'a>, Term<'a>, Term<'a>);

    /// The options are `{names, flags, turns, values}`.
    pub fn otlp<'a>(
        env: Env<'a>,
        scheduler: Scheduler,
        told: Term<'a>,
        masked: bool,
        options: Term<'a>,
    ) -> Result<Term<'a>, NifError> {
        // A span is more than the message that it is made of.
        scheduler.allow(Cost::LONG)?;
        let ((agent, version, error), (is_json, is_next, messages), turns, values): (
            Names,
            Flags,
            Numbers,
            Values<'a>,
        ) = options.decode()?;
        let read = |term| decode::value(term, Around::Items, scheduler);
        let (tools, resource, attributes) = values;
        let (tools, resource, attributes) = (read(tools)?, read(resource)?, read(attributes)?);
        let number = |number: Number| u64::try_from(number.0).unwrap_or(0);
        let options = OtlpOptions {
            agent: &agent,
            version: version.as_deref(),
            conventions: match is_next {
                true => Conventions::Next,
                false => Conventions::V1_41,
            },
            is_json,
            messages,
            turns: match turns.map(|(first, last)| (number(first), number(last))) {
                None => Turns::All,
                Some((0, 0)) => Turns::Last,
                Some((first, last)) => Turns::Between(first, last),
            },
            tools: (tools != Value::Nil).then_some(&tools),
            resource: &pairs(resource),
            attributes: &pairs(attributes),
            error: error.as_deref(),
        };
        let bytes = with_trace(scheduler, told, masked, |trace| trace.to_otlp(&options))??;
        Ok(NewBinary::from_slice(env, &bytes).into())
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
