//! NIFs for the view, and for texts that it does not show.

use std::borrow::Cow;

use ash_agent_context_core::{
    Cleared, Context, Due, Error, Excerpt, FactKind, FactState, Fit, Masks, Pin, Receipt, Rent,
    Shortened, Summarized, Time, Verdict, View,
};
use rustler::{Atom, Term};

use crate::argument::{arguments, field, options, Argument, On};
use crate::atoms;
use crate::encode::{Encoder, FieldTerms};
use crate::error::NifError;
use crate::to_term::{map, maps, results, terms, Made, Range, ToTerm};
use crate::tokens::Counted;
use crate::words::Word as _;

arguments! {
    // See `AshAgent.Context.View.fit/3`.
    Fit = |term, scheduler| {
        let Counted(method) = field(term, atoms::method(), scheduler)?;
        Ok(Self {
            budget: field(term, atoms::budget(), scheduler)?,
            reserve: field(term, atoms::reserve(), scheduler)?,
            keep_first: field(term, atoms::keep_first(), scheduler)?,
            keep_last: field(term, atoms::keep_last(), scheduler)?,
            step: field(term, atoms::step(), scheduler)?,
            method,
        })
    };
    // `[{pattern, replacement}]`
    Masks = |term, scheduler| {
        let pairs: Vec<(String, String)> = Argument::read(term, scheduler)?;
        let pairs = pairs.into_iter().map(|(pattern, replacement)| (pattern.into(), replacement.into()));
        Ok(Self::new(pairs)?)
    };
}

options! {
    // See `AshAgent.Context.Rent.clear_when_due/2`.
    Rent<'a> { keep, share, prices, model, window }
}

pub fn fit(
    context: On<'_, Context>,
    fit: Fit,
    at: Time,
) -> Result<(Context, Option<Range>), NifError> {
    context.scheduler.allow(context.fit_cost(fit.method)?)?;
    let (next, hidden) = context.fit(&fit, at)?;
    Ok((next, hidden.map(|(first, last)| Range(first, last))))
}

results! {
    // `{context, fate, verdict}`
    Summarized = |of, _env| (Made::from(of.context), of.fate, of.verdict);
    // `{context, step}`, or `nil` if the request fits, or `:exhausted` if nothing is left to leave out.
    Shortened = |of, env| match of {
        Shortened::Fits => atoms::nil().to_term(env),
        Shortened::Exhausted => atoms::exhausted().to_term(env),
        Shortened::Shorter(next, step) => (Made::from(*next), step).to_term(env),
    };
}

/// Returns the verdict on the summary that stands for an iteration.
pub fn verdict(context: &Context, number: u64) -> Option<&Verdict> {
    context.cover(number)?.1.verdict.as_deref()
}

/// Returns `{context, why}`, or `nil` twice when nothing is cleared.
pub fn clear_when_due(
    context: On<'_, Context>,
    rent: Rent<'_>,
    at: Time,
) -> Result<(Option<Made>, Option<Due>), NifError> {
    context.scheduler.allow(context.due_cost(rent.keep))?;
    let (next, due) = context.clear_when_due(&rent, at);
    Ok((due.map(|_| next.into()), due))
}

/// Returns `{first, last}`, if there is anything to compact.
pub fn compactable(
    context: &Context,
    asked: Option<(u64, u64)>,
    keep_first: u64,
    keep_last: u64,
    is_summary: bool,
) -> Result<Option<(u64, u64)>, Error> {
    match is_summary {
        true => context.summarizable(asked, keep_first, keep_last),
        false => context.compactable(asked, keep_first, keep_last),
    }
}

pub fn messages_between(context: On<'_, Context>, first: u64, last: u64) -> Term<'_> {
    let messages = context.messages_between(first, last);
    context.encoder().encode_shown(messages)
}

/// Returns the summary that stands for an iteration.
pub fn summary_of(context: On<'_, Context>, number: u64) -> Option<Term<'_>> {
    Some(match context.summary(number)? {
        Cow::Borrowed(text) => context.encoder().binary(text),
        Cow::Owned(text) => Encoder::new(context.env, None).binary(&text),
    })
}

/// Returns the rules of the view.
pub fn view(context: On<'_, Context>) -> Term<'_> {
    let nothing = View::default();
    context.view().unwrap_or(&nothing).to_term(context.env)
}

maps! {
    View = |of| {
        hidden: ranges(of, false), summaries: ranges(of, true), cleared: of.cleared(), max_result_bytes,
        masks: of.masks().into_iter().flat_map(Masks::iter).collect::<Vec<_>>(), blocks: of.prompt_texts(),
    }
    Cleared = |of| { iteration, calls, placeholder }
}

/// Returns the iterations that are hidden, or those that a summary stands for.
fn ranges(view: &View, with_summary: bool) -> Vec<Range> {
    let covers = view.covers();
    let covers = covers.filter(|(_, cover)| cover.summary.is_some() == with_summary);
    covers
        .map(|(first, cover)| Range(first, cover.last))
        .collect()
}

arguments! {
    // See `AshAgent.Context.Recall.recall/3`.
    Excerpt<'a> = |term, scheduler| {
        let lines: Option<usize> = field(term, atoms::lines(), scheduler)?;
        Ok(Self {
            from: field(term, atoms::from(), scheduler)?,
            lines: lines.unwrap_or(usize::MAX),
            pattern: field(term, atoms::pattern(), scheduler)?,
            most: field(term, atoms::max_bytes(), scheduler)?,
        })
    };
}

/// Returns the receipt of the view, or of the request of an iteration; `None` if that is not known.
pub fn receipt(context: &Context, request: Option<u64>, most: usize) -> Option<Receipt> {
    match request {
        None => Some(context.receipt(most)),
        Some(number) => context.receipt_of_request(number, most),
    }
}

terms! {
    Receipt = |of, env| {
        let counts = |count: &dyn Fn(FactState) -> usize| {
            let mut fields = FieldTerms::new(env);
            for state in FactState::ALL {
                fields.put(state.atom(), count(state).to_term(env));
            }
            fields.end()
        };
        let mut kinds = FieldTerms::new(env);
        for kind in FactKind::ALL {
            let of_kind = |state| of.count_of(kind, state);
            if FactState::ALL.into_iter().any(|state| of_kind(state) > 0) {
                kinds.put(kind.atom(), counts(&of_kind));
            }
        }
        map!(env, of { counts: counts(&|state| of.count(state)), kinds: kinds.end(), facts })
    };
}

/// Returns the parts that a view no longer shows and shows again, beside another one, or beside that of an iteration's
/// request; `None` if that is not known.
pub fn diff_views(
    context: On<'_, Context>,
    other: &Context,
    request: Option<u64>,
) -> Result<Option<impl ToTerm>, NifError> {
    let cost = context.recall_cost().plus(other.recall_cost());
    context.scheduler.allow(cost)?;
    let asked = match request {
        None => Some(other.clone()),
        Some(number) => other.asked_view_of(number),
    };
    Ok(asked.map(|asked| (context.unseen_beside(&asked), asked.unseen_beside(&context))))
}

arguments! {
    // `{:iteration, number}`, `{:message, number, position}`, `{:result, number, slot}` or `{:fact, text}`
    Pin = |term, scheduler| {
        if let Ok((kind, number)) = <(Atom, u64)>::read(term, scheduler) {
            let is_iteration = kind == atoms::iteration();
            return is_iteration.then_some(Self::Iteration(number)).ok_or(NifError::BadArg);
        }
        if let Ok((_, text)) = <(Atom, String)>::read(term, scheduler) {
            return Ok(Self::Fact(text.into()));
        }
        let (kind, number, place) = <(Atom, u64, usize)>::read(term, scheduler)?;
        Ok(match kind == atoms::message() {
            true => Self::Message(number, place),
            false => Self::Result(number, place),
        })
    };
}

pub fn pins(context: On<'_, Context>) -> Vec<Term<'_>> {
    let env = context.env;
    let pins = context.pins().map(|pin| match pin {
        Pin::Iteration(number) => (atoms::iteration(), number).to_term(env),
        Pin::Message(number, position) => (atoms::message(), number, position).to_term(env),
        Pin::Result(number, slot) => {
            let iteration = i64::try_from(*number).ok();
            let iteration = iteration.and_then(|number| context.iteration(number));
            let call = iteration.and_then(|iteration| iteration.calls().nth(*slot));
            (atoms::call(), call.map(|(call, _)| &*call.id)).to_term(env)
        }
        Pin::Fact(words) => (atoms::fact(), words).to_term(env),
    });
    pins.collect()
}
