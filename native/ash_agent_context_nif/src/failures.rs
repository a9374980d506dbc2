//! The NIFs of requests: what they asked for, and those that failed.

use ash_agent_context_core::Size;
use rustler::Encoder as _;

use crate::argument::{Any, At};
use crate::atoms;
use crate::decode::Number;
use crate::encode::Encoder;
use crate::nif::{change, nif};
use crate::resource::ContextHandle;

change!(
    context_add_failure_normal,
    context_add_failure_dirty,
    |context, failure: Any, at: At| context.add_failure(&failure, at)
);

// Maps with what is known of each, oldest first.
nif!(
    context_failures_normal,
    context_failures_dirty,
    |env, scheduler, context: ContextHandle| {
        scheduler.allow(context.get().whole_cost())?;
        let kept: Vec<_> = context.get().failures().collect();
        let facts: Vec<_> = kept.iter().map(|(_, failure)| failure.facts()).collect();
        let encoder = Encoder::new_copying(env);
        let shown = kept
            .iter()
            .zip(&facts)
            .map(|((iteration, failure), facts)| {
                let times = [
                    (atoms::at(), Some(failure.at)),
                    (atoms::requested_at(), failure.requested_at),
                ];
                let shown = encoder
                    .map(facts)
                    .map_put(atoms::iteration(), iteration)
                    .unwrap_or_else(|_| encoder.map(facts));
                times.into_iter().fold(shown, |shown, (key, at)| match at {
                    Some(at) => shown.map_put(key, encoder.time(at)).unwrap_or(shown),
                    None => shown,
                })
            });
        Ok(shown.collect::<Vec<_>>().encode(env))
    }
);

change!(
    context_note_request_normal,
    context_note_request_dirty,
    |context, fields: Any, tools: Any, hashed: bool| match hashed {
        true => context.note_request_hashes(fields, tools),
        false => context.note_request(fields, tools),
    }
);

// `{fields | nil, tools | nil, digest | nil}` of an iteration's request.
nif!(
    context_request_note_normal,
    context_request_note_dirty,
    |env, scheduler, context: ContextHandle, number: Number| {
        let context = context.get();
        let iteration = context.iteration(number);
        let noted = iteration.map_or([None; 2], |iteration| context.request_note(iteration));
        let size = noted.iter().flatten().map(|(_, value)| value.size());
        scheduler.allow(size.fold(Size::default(), Size::plus))?;
        let encoder = Encoder::new_copying(env);
        let shown = noted.map(|value| value.map(|(_, value)| encoder.value(value)));
        let [fields, tools] = shown;
        let sent = iteration.and_then(|iteration| context.sent_note(iteration));
        Ok((fields, tools, sent).encode(env))
    }
);
