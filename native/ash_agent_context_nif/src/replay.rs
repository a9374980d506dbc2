//! Makes requests again and compares them with what was sent.

use ash_agent_context_core::{Context, DeviationCause, ReplayOutcome, ReplayRow, RequestChange};

use crate::argument::Lender;
use crate::atoms;
use crate::encode::FieldTerms;
use crate::error::NifError;
use crate::to_term::{terms, Made};

/// The conversation as an iteration's last request was made from it, but under the view of the request before.
pub fn as_asked_before(context: &Context, number: i64) -> Option<Made> {
    let asked = context.as_asked_under_last(context.iteration(number)?)?;
    Some(asked.into())
}

/// The differences of another context's view, each with its cause and the first iteration.
pub fn view_changes(context: Lender<'_>, other: &Context) -> Result<Vec<RequestChange>, NifError> {
    context
        .scheduler
        .allow(context.view_cost().plus(other.view_cost()))?;
    Ok(context.view_changes(other))
}

terms! {
    ReplayRow = |of, env| {
        let mut fields = FieldTerms::new(env);
        fields.put(atoms::iteration(), of.iteration.to_term(env));
        let (outcome, deviation) = match &of.outcome {
            ReplayOutcome::Same => (atoms::same(), None),
            ReplayOutcome::Unnoted => (atoms::unnoted(), None),
            ReplayOutcome::OtherPrompt => (atoms::other_prompt(), None),
            ReplayOutcome::OtherMasks => (atoms::other_masks(), None),
            ReplayOutcome::Follows => (atoms::follows(), None),
            ReplayOutcome::Different(deviation) => (atoms::different(), Some(deviation)),
        };
        fields.put(atoms::outcome(), outcome.to_term(env));
        if let Some(deviation) = deviation {
            let place = deviation.place.as_ref();
            let place = place.map(|place| (place.iteration, place.position, place.call.as_deref()));
            fields.put(atoms::cause(), deviation.cause.to_term(env));
            fields.put(atoms::place(), place.to_term(env));
        }
        fields.end()
    };
    DeviationCause = |of, env| match of {
        Self::View => atoms::view().to_term(env),
        Self::Version(version) => (atoms::version(), version).to_term(env),
        Self::Log => atoms::log().to_term(env),
    };
}
