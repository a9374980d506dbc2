//! The NIFs of the view.

use std::borrow::Cow;

use ash_agent_context_core::{
    Check, Cost, Fit, Masks, Pressure, Rent, Shortened, Shortening, ShorteningKind, Verdict, View,
};
use rustler::{Encoder as _, Env, NifMap, Term};

use crate::argument::{At, Of, Unsigned, Worded};
use crate::atoms;
use crate::encode::{Encoder, FieldTerms};
use crate::error::{range, NifError};
use crate::nif::{change, nif};
use crate::prices::PricesHandle;
use crate::resource::{answer, ContextHandle};
use crate::scheduler::Scheduler;
use crate::tokens::Counted;
use crate::words::Word as _;

/// Holds what to hide, see `AshAgent.Context.View.fit/3`.
#[derive(NifMap)]
#[rustler(decode)]
struct FitOptions {
    budget: Unsigned,
    reserve: Unsigned,
    keep_first: Unsigned,
    keep_last: Unsigned,
    step: Unsigned,
    method: Counted,
}

nif!(
    context_fit_normal,
    context_fit_dirty,
    |env, scheduler, context: ContextHandle, options: Of<'a, FitOptions>, at: At| {
        let Counted(method) = options.method;
        scheduler.allow(context.get().fit_cost(method)?)?;
        let fit = Fit {
            budget: options.budget.0,
            reserve: options.reserve.0,
            keep_first: options.keep_first.0,
            keep_last: options.keep_last.0,
            step: options.step.0,
            method,
        };
        let (next, hidden) = context.get().fit(&fit, at)?;
        let hidden = hidden.map(|(first, last)| range(env, first, last));
        Ok((answer(env, next), hidden).encode(env))
    }
);

change!(
    context_keep_last_normal,
    context_keep_last_dirty,
    |context, count: Unsigned, at: At| (
        context.view_cost(),
        context.keep_last_iterations(count, at)
    )
);

change!(
    context_remove_old_normal,
    context_remove_old_dirty,
    |context, before: At, at: At| (
        context.view_cost(),
        context.hide_iterations_before(before, at)
    )
);

change!(
    context_range_normal,
    context_range_dirty,
    |context, first: Unsigned, last: Unsigned, at: At| (
        context.view_cost(),
        context.iteration_range(first, last, at)
    )
);

change!(
    context_hide_normal,
    context_hide_dirty,
    |context, first: Unsigned, last: Unsigned, at: At| (
        context.view_cost(),
        context.hide_iterations(first, last, at)
    )
);

change!(
    context_drop_range_normal,
    context_drop_range_dirty,
    |context, first: Unsigned, last: Unsigned, at: At| (
        context.view_cost(),
        context.drop_range(first, last, at)
    )
);

// `{context, fate, verdict}`
nif!(
    context_summarize_normal,
    context_summarize_dirty,
    |env,
     scheduler,
     context: ContextHandle,
     asked: Of<'a, (Unsigned, Unsigned)>,
     text: Of<'a, &'a str>,
     check: Worded<Check>,
     at: At| {
        scheduler.allow(context.get().summarize_cost(text)?)?;
        let (Unsigned(first), Unsigned(last)) = asked;
        let summarized = context
            .get()
            .summarize_checked(first, last, text, check, at)?;
        let verdict = encode_verdict(env, &summarized.verdict);
        let fate = summarized.fate.atom();
        Ok((answer(env, summarized.context), fate, verdict).encode(env))
    }
);

// `{context, fate}`
nif!(
    context_forget_normal,
    context_forget_dirty,
    |env, scheduler, context: ContextHandle, first: Unsigned, last: Unsigned, at: At| {
        scheduler.allow(context.get().view_cost())?;
        let (next, fate) = context.get().forget(first, last, at);
        Ok((answer(env, next), fate.atom()).encode(env))
    }
);

/// The verdict of a check on a summary.
fn encode_verdict<'a>(env: Env<'a>, verdict: &Verdict) -> Term<'a> {
    let texts = |texts: &[Box<str>]| {
        let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
        texts.encode(env)
    };
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::facts(), verdict.facts.encode(env));
    fields.put(atoms::kept(), verdict.kept.encode(env));
    fields.put(atoms::missing(), texts(&verdict.missing));
    fields.put(atoms::wrong(), texts(&verdict.wrong));
    fields.put(atoms::appended(), verdict.appended.encode(env));
    fields.end()
}

// The verdict on the summary that stands for an iteration, or `nil`.
nif!(
    context_verdict_normal,
    context_verdict_dirty,
    |env, scheduler, context: ContextHandle, number: Unsigned| {
        let cover = context.get().cover(number);
        let verdict = cover.and_then(|(_, cover)| cover.verdict.as_deref());
        let Some(verdict) = verdict else {
            return Ok(atoms::nil().to_term(env));
        };
        scheduler.allow(verdict.cost())?;
        Ok(encode_verdict(env, verdict))
    }
);

change!(
    context_expand_normal,
    context_expand_dirty,
    |context, first: Unsigned, last: Unsigned, at: At| (
        context.view_cost(),
        context.expand(first, last, at)
    )
);

change!(
    context_clear_results_normal,
    context_clear_results_dirty,
    |context, keep: Unsigned, placeholder: Of<'a, &'a str>, at: At| (
        context.clear_cost(),
        context.clear_tool_results(usize::try_from(keep).unwrap_or(usize::MAX), placeholder, at)
    )
);

/// Holds when results are cleared, see `AshAgent.Context.Rent.clear_when_due/2`.
#[derive(NifMap)]
#[rustler(decode)]
struct RentOptions<'a> {
    keep: Unsigned,
    share: Option<Unsigned>,
    prices: Option<PricesHandle>,
    model: Option<&'a str>,
    window: Option<Unsigned>,
}

impl RentOptions<'_> {
    fn rent(&self) -> Rent<'_> {
        Rent {
            keep: self.keep.size(),
            share: self.share.as_ref().map(|share| share.0),
            prices: self.prices.as_ref().map(|prices| prices.get()),
            model: self.model,
            window: self.window.as_ref().map(|window| window.0),
        }
    }
}

// `{context, why}`, or `nil` twice when nothing is cleared.
nif!(
    context_clear_when_due_normal,
    context_clear_when_due_dirty,
    |env, scheduler, context: ContextHandle, options: Of<'a, RentOptions<'a>>, at: At| {
        scheduler.allow(context.get().rent_cost())?;
        let (next, due) = context.get().clear_when_due(&options.rent(), at);
        let next = due.map(|_| answer(env, next));
        let why = due.map(|due| due.atom());
        Ok((next, why).encode(env))
    }
);

// `{context, step}`, or `nil` if the request fits, or `:exhausted` if nothing is left to leave out.
nif!(
    context_shorten_normal,
    context_shorten_dirty,
    |env,
     scheduler,
     context: ContextHandle,
     cause: Worded<Pressure>,
     options: Of<'a, RentOptions<'a>>,
     at: At| {
        // An index reads every text.
        scheduler.allow(context.get().receipt_cost())?;
        let shortened = context.get().shorten(cause, &options.rent(), at);
        Ok(match shortened {
            Shortened::Fits => atoms::nil().encode(env),
            Shortened::Exhausted => atoms::exhausted().encode(env),
            Shortened::Shorter(next, step) => {
                (answer(env, *next), encode_shortening(env, &step)).encode(env)
            }
        })
    }
);

change!(
    context_undo_normal,
    context_undo_dirty,
    |context, kind: Worded<ShorteningKind>, asked: Of<'a, (Unsigned, Unsigned)>, at: At| (
        context.view_cost(),
        {
            let (Unsigned(first), Unsigned(last)) = asked;
            context.undo(kind, first, last, at)
        }
    )
);

change!(
    context_reveal_normal,
    context_reveal_dirty,
    |context, first: Unsigned, last: Unsigned, at: At| (
        context.view_cost(),
        context.reveal(first, last, at)
    )
);

change!(
    context_note_summarized_normal,
    context_note_summarized_dirty,
    |context, asked: Of<'a, (Unsigned, Unsigned)>, cause: Worded<Pressure>, at: At| {
        let (Unsigned(first), Unsigned(last)) = asked;
        context.note_summarized(first, last, cause, at)
    }
);

nif!(
    context_shortenings_normal,
    context_shortenings_dirty,
    |env, _scheduler, context: ContextHandle| {
        let steps = context.get().shortenings().iter();
        let steps: Vec<Term<'a>> = steps.map(|step| encode_shortening(env, step)).collect();
        Ok(steps.encode(env))
    }
);

/// A step by which a view became shorter.
fn encode_shortening<'a>(env: Env<'a>, step: &Shortening) -> Term<'a> {
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::kind(), step.kind.atom().encode(env));
    fields.put(atoms::cause(), step.cause.atom().encode(env));
    fields.put(atoms::iteration(), step.iteration.encode(env));
    fields.put(atoms::iterations_range(), range(env, step.first, step.last));
    fields.end()
}

change!(
    context_max_result_bytes_normal,
    context_max_result_bytes_dirty,
    |context, most: Of<'a, Option<Unsigned>>, at: At| {
        context.put_max_result_bytes(most.map(|most| most.size()), at)
    }
);

change!(
    context_prompt_block_normal,
    context_prompt_block_dirty,
    |context, name: Of<'a, &'a str>, text: Of<'a, Option<&'a str>>, at: At| (
        context.prompt_block_cost(text),
        context.put_prompt_block(name, text, at)
    )
);

// `[{pattern, replacement}]`
nif!(
    context_masks_normal,
    context_masks_dirty,
    |env, scheduler, context: ContextHandle, pairs: Term<'a>, at: At| {
        let cost = Masks::compile_cost(pairs.list_length()?);
        scheduler.allow(cost.plus(context.get().masks_cost()))?;
        let pairs: Vec<(String, String)> = pairs.decode()?;
        let pairs = pairs
            .into_iter()
            .map(|(pattern, replacement)| (pattern.into(), replacement.into()));
        Ok(answer(env, context.get().put_masks(Masks::new(pairs)?, at)))
    }
);

// `{first, last}`, or `nil` when there is nothing to compact.
nif!(
    context_compactable_normal,
    context_compactable_dirty,
    |env,
     scheduler,
     context: ContextHandle,
     asked: Of<'a, Option<(Unsigned, Unsigned)>>,
     keep_first: Unsigned,
     keep_last: Unsigned,
     is_summary: bool| {
        scheduler.allow(context.get().view_cost())?;
        let asked = asked.map(|(first, last)| (first.0, last.0));
        let range = match is_summary {
            true => context.get().summarizable(asked, keep_first, keep_last)?,
            false => context.get().compactable(asked, keep_first, keep_last)?,
        };
        Ok(range.encode(env))
    }
);

nif!(
    context_messages_between_normal,
    context_messages_between_dirty,
    |env, scheduler, context: ContextHandle, first: Unsigned, last: Unsigned| {
        scheduler
            .allow(Cost::handing_out(context.get().size()).plus(context.get().looks_cost()))?;
        let messages = context.get().messages_between(first, last);
        Ok(Encoder::new_sharing(env, &context).encode_shown(messages))
    }
);

// The summary that stands for an iteration, or `nil`.
nif!(
    context_summary_of_normal,
    context_summary_of_dirty,
    |env, scheduler, context: ContextHandle, number: Unsigned| {
        scheduler.allow(context.get().summary_cost(number))?;
        Ok(match context.get().summary(number) {
            Some(Cow::Borrowed(text)) => Encoder::new_sharing(env, &context).binary(text),
            Some(Cow::Owned(text)) => Encoder::new_copying(env).binary(&text),
            None => atoms::nil().to_term(env),
        })
    }
);

nif!(
    context_view_normal,
    context_view_dirty,
    |env, scheduler, context: ContextHandle| encode_view(env, scheduler, &context)
);

/// Returns what makes the view other than the log.
fn encode_view<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: &ContextHandle,
) -> Result<Term<'a>, NifError> {
    let encoder = Encoder::new_sharing(env, context);
    let nothing = View::default();
    let view = context.get().view().unwrap_or(&nothing);
    scheduler.allow(view.size())?;
    let covers = |with_summary| {
        let ranges = view.covers();
        let ranges = ranges.filter(move |(_, cover)| cover.summary.is_some() == with_summary);
        encoder.list(ranges.map(|(first, cover)| range(env, first, cover.last)))
    };
    let nil = atoms::nil().to_term(env);
    let cleared = view.cleared().map_or(nil, |cleared| {
        let mut fields = FieldTerms::new(env);
        fields.put(atoms::iteration(), cleared.iteration.encode(env));
        fields.put(atoms::calls(), cleared.calls.encode(env));
        let placeholder = Encoder::new_copying(env).text(&cleared.placeholder);
        fields.put(atoms::placeholder(), placeholder);
        fields.end()
    });
    let masks = view.masks().into_iter().flat_map(Masks::iter);
    let masks: Vec<(&str, &str)> = masks.collect();
    let blocks: Vec<(&str, &str)> = view
        .blocks()
        .iter()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    let keys = [
        atoms::hidden(),
        atoms::summaries(),
        atoms::cleared(),
        atoms::max_result_bytes(),
        atoms::masks(),
        atoms::blocks(),
    ];
    let values = [
        covers(false),
        covers(true),
        cleared,
        view.max_result_bytes().encode(env),
        masks.encode(env),
        blocks.encode(env),
    ];
    Ok(encoder.fields(&keys, &values))
}
