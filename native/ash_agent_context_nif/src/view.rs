//! The NIFs of the view.

use ash_agent_context_core::{Cost, Fit, Masks, View};
use rustler::{Atom, Encoder as _, Env, Term};

use crate::atoms;
use crate::clock;
use crate::decode::Number;
use crate::encode::{Encoder, Fields};
use crate::error::{range, NifError};
use crate::resource::{answer, Handle};
use crate::scheduler::{nif, Scheduler};
use crate::tokens::method;

type Reply<'a> = Result<Term<'a>, NifError>;

nif!(context_fit_normal, context_fit_dirty(context: Handle, how: Term<'a>, at: Term<'a>) => fit);
nif!(context_keep_last_normal, context_keep_last_dirty(context: Handle, count: Number, at: Term<'a>) => keep_last);
nif!(context_remove_old_normal, context_remove_old_dirty(context: Handle, before: Term<'a>, at: Term<'a>) => remove_old);
nif!(context_range_normal, context_range_dirty(context: Handle, first: Number, last: Number, at: Term<'a>) => iteration_range);
nif!(context_compactable_normal, context_compactable_dirty(context: Handle, asked: Term<'a>, keep_first: Number, keep_last: Number) => compactable);
nif!(context_messages_between_normal, context_messages_between_dirty(context: Handle, first: Number, last: Number) => messages_between);
nif!(context_drop_range_normal, context_drop_range_dirty(context: Handle, first: Number, last: Number, at: Term<'a>) => drop_range);
nif!(context_summarize_normal, context_summarize_dirty(context: Handle, first: Number, last: Number, text: Term<'a>, at: Term<'a>) => summarize);
nif!(context_expand_normal, context_expand_dirty(context: Handle, first: Number, last: Number, at: Term<'a>) => expand);
nif!(context_clear_results_normal, context_clear_results_dirty(context: Handle, keep: Number, placeholder: Term<'a>, at: Term<'a>) => clear_results);
nif!(context_max_result_bytes_normal, context_max_result_bytes_dirty(context: Handle, most: Term<'a>, at: Term<'a>) => max_result_bytes);
nif!(context_masks_normal, context_masks_dirty(context: Handle, pairs: Term<'a>, at: Term<'a>) => masks);
nif!(context_prompt_block_normal, context_prompt_block_dirty(context: Handle, name: Term<'a>, text: Term<'a>, at: Term<'a>) => prompt_block);
nif!(context_view_normal, context_view_dirty(context: Handle) => view);

/// Negative numbers are as good as zero.
fn unsigned(number: &Number) -> u64 {
    u64::try_from(number.0).unwrap_or(0)
}

fn size(number: &Number) -> usize {
    usize::try_from(number.0).unwrap_or(0)
}

/// `{budget, reserve, keep_first, keep_last, step, method}`
fn fit<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    how: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let (budget, reserve, keep_first, keep_last, step, given): (
        Number,
        Number,
        Number,
        Number,
        Number,
        Atom,
    ) = how.decode()?;
    scheduler.allow(context.get().fit_cost(method(given)?)?)?;
    let fit = Fit {
        budget: unsigned(&budget),
        reserve: unsigned(&reserve),
        keep_first: unsigned(&keep_first),
        keep_last: unsigned(&keep_last),
        step: unsigned(&step),
        method: method(given)?,
    };
    let (next, hidden) = context.get().fit(&fit, clock::at(at, scheduler)?)?;
    let hidden = hidden.map(|(first, last)| range(env, first, last));
    Ok((answer(env, next), hidden).encode(env))
}

fn keep_last<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    count: Number,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().view_cost())?;
    let at = clock::at(at, scheduler)?;
    let next = context.get().keep_last_iterations(unsigned(&count), at);
    Ok(answer(env, next))
}

fn remove_old<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    before: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().view_cost())?;
    let before = clock::at(before, scheduler)?;
    let next = context
        .get()
        .hide_iterations_before(before, clock::at(at, scheduler)?);
    Ok(answer(env, next))
}

fn iteration_range<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    first: Number,
    last: Number,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().view_cost())?;
    let at = clock::at(at, scheduler)?;
    let next = context
        .get()
        .iteration_range(unsigned(&first), unsigned(&last), at)?;
    Ok(answer(env, next))
}

/// `{first, last}`, or `nil` when there is nothing to compact.
fn compactable<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    asked: Term<'a>,
    keep_first: Number,
    keep_last: Number,
) -> Reply<'a> {
    scheduler.allow(context.get().view_cost())?;
    let asked: Option<(Number, Number)> = asked.decode()?;
    let asked = asked.map(|(first, last)| (unsigned(&first), unsigned(&last)));
    let range = context
        .get()
        .compactable(asked, unsigned(&keep_first), unsigned(&keep_last))?;
    Ok(range.encode(env))
}

fn messages_between<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    first: Number,
    last: Number,
) -> Reply<'a> {
    scheduler.allow(Cost::handing_out(context.get().size()).plus(context.get().looks_cost()))?;
    let messages = context
        .get()
        .messages_between(unsigned(&first), unsigned(&last));
    Ok(Encoder::sharing(env, &context).shown(messages))
}

fn drop_range<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    first: Number,
    last: Number,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().view_cost())?;
    let at = clock::at(at, scheduler)?;
    let next = context
        .get()
        .drop_range(unsigned(&first), unsigned(&last), at);
    Ok(answer(env, next))
}

fn summarize<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    first: Number,
    last: Number,
    text: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let text: &str = text.decode()?;
    scheduler.allow(context.get().summarize_cost(text)?)?;
    let at = clock::at(at, scheduler)?;
    let next = context
        .get()
        .summarize(unsigned(&first), unsigned(&last), text, at)?;
    Ok(answer(env, next))
}

/// The summary that stands for an iteration, or `nil`.
#[rustler::nif(name = "context_summary_of_normal")]
fn context_summary_of<'a>(env: Env<'a>, context: Handle, number: Number) -> Term<'a> {
    match context.get().summary(unsigned(&number)) {
        Some(text) => Encoder::sharing(env, &context).binary(text),
        None => atoms::nil().to_term(env),
    }
}

fn expand<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    first: Number,
    last: Number,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().view_cost())?;
    let at = clock::at(at, scheduler)?;
    let next = context.get().expand(unsigned(&first), unsigned(&last), at);
    Ok(answer(env, next))
}

fn clear_results<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    keep: Number,
    placeholder: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().clear_cost())?;
    let at = clock::at(at, scheduler)?;
    let next = context
        .get()
        .clear_tool_results(size(&keep), placeholder.decode()?, at);
    Ok(answer(env, next))
}

fn max_result_bytes<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    most: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let most: Option<Number> = most.decode()?;
    let at = clock::at(at, scheduler)?;
    let most = most.as_ref().map(size);
    Ok(answer(env, context.get().put_max_result_bytes(most, at)))
}

/// `[{pattern, replacement}]`
fn masks<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    pairs: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(Masks::compile_cost(pairs.list_length()?))?;
    let pairs: Vec<(String, String)> = pairs.decode()?;
    let pairs = pairs
        .into_iter()
        .map(|(pattern, replacement)| (pattern.into(), replacement.into()));
    let at = clock::at(at, scheduler)?;
    Ok(answer(env, context.get().put_masks(Masks::new(pairs)?, at)))
}

fn prompt_block<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    name: Term<'a>,
    text: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let text: Option<&str> = text.decode()?;
    scheduler.allow(context.get().prompt_block_cost(text))?;
    let at = clock::at(at, scheduler)?;
    Ok(answer(
        env,
        context.get().put_prompt_block(name.decode()?, text, at),
    ))
}

/// What makes the view other than the log.
fn view<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle) -> Reply<'a> {
    let encoder = Encoder::sharing(env, &context);
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
        let mut fields = Fields::new(env);
        fields.put(atoms::iteration(), cleared.iteration.encode(env));
        fields.put(atoms::calls(), cleared.calls.encode(env));
        let placeholder = Encoder::copying(env).text(&cleared.placeholder);
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
