//! The view.

use std::borrow::Cow;

use ash_agent_context_core::{
    Check, Cleared, Context, Due, Error, Fate, Fit, Masks, Pressure, Rent, Shortened,
    ShorteningKind, Time, Verdict, View,
};
use rustler::{Env, Term};

use crate::argument::{arguments, field, options, Argument, Lender};
use crate::atoms;
use crate::encode::Encoder;
use crate::error::NifError;
use crate::to_term::{maps, Made, Range, Returned, ToTerm};
use crate::tokens::Counted;

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

pub fn fit(context: Lender<'_>, fit: Fit, at: Time) -> Result<(Context, Option<Range>), NifError> {
    context.scheduler.allow(context.fit_cost(fit.method)?)?;
    let (next, hidden) = context.fit(&fit, at)?;
    Ok((next, hidden.map(|(first, last)| Range(first, last))))
}

/// `{context, fate, verdict}`
pub fn summarize(
    context: &Context,
    (first, last): (u64, u64),
    text: &str,
    check: Check,
    at: Time,
) -> Result<(Made, Fate, Verdict), Error> {
    let summarized = context.summarize_checked(first, last, text, check, at)?;
    Ok((
        summarized.context.into(),
        summarized.fate,
        summarized.verdict,
    ))
}

/// The verdict on the summary that stands for an iteration.
pub fn verdict(context: &Context, number: u64) -> Option<&Verdict> {
    context.cover(number)?.1.verdict.as_deref()
}

/// `{context, why}`, or `nil` twice when nothing is cleared.
pub fn clear_when_due(context: &Context, rent: Rent<'_>, at: Time) -> (Option<Made>, Option<Due>) {
    let (next, due) = context.clear_when_due(&rent, at);
    (due.map(|_| next.into()), due)
}

pub fn shorten(context: &Context, cause: Pressure, rent: Rent<'_>, at: Time) -> Shortened {
    context.shorten(cause, &rent, at)
}

impl Returned for Shortened {
    // `{context, step}`, or `nil` if the request fits, or `:exhausted` if nothing is left to leave out.
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        Ok(match self {
            Self::Fits => atoms::nil().to_term(env),
            Self::Exhausted => atoms::exhausted().to_term(env),
            Self::Shorter(next, step) => (Made::from(*next), step).to_term(env),
        })
    }
}

pub fn undo(
    context: &Context,
    kind: ShorteningKind,
    (first, last): (u64, u64),
    at: Time,
) -> Context {
    context.undo(kind, first, last, at)
}

pub fn note_summarized(
    context: &Context,
    (first, last): (u64, u64),
    cause: Pressure,
    at: Time,
) -> Context {
    context.note_summarized(first, last, cause, at)
}

/// `{first, last}`, if there is anything to compact.
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

pub fn messages_between(context: Lender<'_>, first: u64, last: u64) -> Term<'_> {
    let messages = context.messages_between(first, last);
    context.encoder().encode_shown(messages)
}

/// The summary that stands for an iteration.
pub fn summary_of(context: Lender<'_>, number: u64) -> Option<Term<'_>> {
    Some(match context.summary(number)? {
        Cow::Borrowed(text) => context.encoder().binary(text),
        Cow::Owned(text) => Encoder::new_copying(context.env).binary(&text),
    })
}

/// What makes the view other than the log.
pub fn view(context: Lender<'_>) -> Term<'_> {
    context
        .view()
        .unwrap_or(&View::default())
        .to_term(context.env)
}

maps! {
    View = |of| {
        hidden: ranges(of, false), summaries: ranges(of, true), cleared: of.cleared(), max_result_bytes: of.max_result_bytes(),
        masks: of.masks().into_iter().flat_map(Masks::iter).collect::<Vec<_>>(), blocks: of.blocks(),
    }
    Cleared = |of| { iteration, calls, placeholder }
}

/// The iterations that are hidden, or those that a summary stands for.
fn ranges(view: &View, with_summary: bool) -> Vec<Range> {
    let covers = view
        .covers()
        .filter(|(_, cover)| cover.summary.is_some() == with_summary);
    covers
        .map(|(first, cover)| Range(first, cover.last))
        .collect()
}
