//! The NIFs that make requests again and compare them with what was sent.

use ash_agent_context_core::{Deviation, DeviationCause, ReplayOutcome, ReplayRow};
use rustler::{Encoder as _, Env, Term};

use crate::atoms;
use crate::decode::Number;
use crate::encode::{Encoder, FieldTerms};
use crate::nif::nif;
use crate::resource::{answer, ContextHandle};
use crate::words::Word as _;

// A map for each request, oldest first.
nif!(
    context_replay_normal,
    context_replay_dirty,
    |env, scheduler, context: ContextHandle| {
        scheduler.allow(context.get().replay_cost())?;
        let rows = context.get().replay();
        let encoder = Encoder::new_copying(env);
        Ok(encoder.list(rows.iter().map(|row| encode_row(env, row))))
    }
);

// The conversation as an iteration's last request was made from it, but under the view of the request before; or `nil`.
nif!(
    context_as_asked_before_normal,
    context_as_asked_before_dirty,
    |env, scheduler, context: ContextHandle, number: Number| {
        let context = context.get();
        scheduler.allow(context.as_asked_cost(number))?;
        let iteration = context.iteration(number);
        let asked = iteration.and_then(|iteration| context.as_asked_under_last(iteration));
        Ok(asked.map(|asked| answer(env, asked)).encode(env))
    }
);

// The differences of another context's view, each with its cause and the first iteration.
nif!(
    context_view_changes_normal,
    context_view_changes_dirty,
    |env, scheduler, context: ContextHandle, other: ContextHandle| {
        let (context, other) = (context.get(), other.get());
        scheduler.allow(context.view_cost().plus(other.view_cost()))?;
        let changes = context.view_changes(other);
        let encoder = Encoder::new_copying(env);
        Ok(encoder.list(
            changes
                .iter()
                .map(|change| (change.cause.atom(), change.iteration).encode(env)),
        ))
    }
);

fn encode_row<'a>(env: Env<'a>, row: &ReplayRow) -> Term<'a> {
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::iteration(), row.iteration.encode(env));
    let (outcome, deviation) = match &row.outcome {
        ReplayOutcome::Same => (atoms::same(), None),
        ReplayOutcome::Unnoted => (atoms::unnoted(), None),
        ReplayOutcome::OtherPrompt => (atoms::other_prompt(), None),
        ReplayOutcome::OtherMasks => (atoms::other_masks(), None),
        ReplayOutcome::Follows => (atoms::follows(), None),
        ReplayOutcome::Different(deviation) => (atoms::different(), Some(deviation)),
    };
    fields.put(atoms::outcome(), outcome.encode(env));
    if let Some(deviation) = deviation {
        encode_deviation(env, deviation, &mut fields);
    }
    fields.end()
}

fn encode_deviation<'a>(env: Env<'a>, deviation: &Deviation, fields: &mut FieldTerms<'a>) {
    let cause = match &deviation.cause {
        DeviationCause::View => atoms::view().encode(env),
        DeviationCause::Version(version) => (atoms::version(), &**version).encode(env),
        DeviationCause::Log => atoms::log().encode(env),
    };
    fields.put(atoms::cause(), cause);
    let place = deviation.place.as_ref().map(|place| {
        let call = place.call.as_deref();
        (place.iteration, place.position, call)
    });
    fields.put(atoms::place(), place.encode(env));
}
