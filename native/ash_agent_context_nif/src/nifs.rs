//! The table of all NIFs: name and arguments, what the work grows with beside the arguments (see [`Weight`]), and the function
//! that does it. `AshAgent.Context.Native` reads the lines of this file, so each has the form of the others.

use ash_agent_context_core::Context;
use rustler::{Env, Term};

use crate::argument::Argument;
use crate::enif::{self, Nif};
use crate::error::NifError;
use crate::scheduler::{Scheduler, Weight};
use crate::to_term::Returned;
use crate::{
    account, answers, approvals, chat, context, failures, import, json, otlp, pins, prices, recall,
    receipt, replay, request, resource, response, snapshot, tokens, trace, view,
};

/// Makes two NIFs of each line, `name_normal` and `name_dirty`, one for each kind of schedulers.
macro_rules! nifs {
    ($($name:ident($($arg:ident),*) $weight:ident = $work:path;)*) => {$(
        const _: () = {
            struct This;

            impl Nif for This {
                const WEIGHT: Weight = Weight::$weight;

                fn work<'a>(
                    env: Env<'a>,
                    arguments: &[Term<'a>],
                    #[allow(unused)] scheduler: Scheduler, // by those without arguments
                ) -> Result<Term<'a>, NifError> {
                    let &[$($arg),*] = arguments else {
                        return Err(NifError::Raise);
                    };
                    Returned::returned($work($(Argument::read($arg, scheduler)?),*), env)
                }
            }

            rustler::codegen_runtime::inventory::submit!(enif::define(
                concat!(stringify!($name), "_normal\0"),
                <[&str]>::len(&[$(stringify!($arg)),*]),
                rustler::SchedulerFlags::Normal,
                enif::run_normal::<This>,
            ));
            rustler::codegen_runtime::inventory::submit!(enif::define(
                concat!(stringify!($name), "_dirty\0"),
                <[&str]>::len(&[$(stringify!($arg)),*]),
                rustler::SchedulerFlags::DirtyCpu,
                enif::run_dirty::<This>,
            ));
        };
    )*};
}

nifs! {
    // A conversation.
    context_new(input, system_prompt, id, metadata, at) Arguments = context::new;
    context_create(attributes, at) Arguments = context::create;
    context_update(context, attributes, at) Arguments = context::update;
    context_add_user_message(context, input, metadata, at) Calls = context::add_user_message;
    context_add_assistant_message(context, content, calls, metadata, at) Calls = context::add_assistant_message;
    context_add_tool_results(context, results, metadata, at) Calls = context::add_tool_results;
    context_add_response(context, response, metadata, times, at) Calls = response::add_to;
    context_interrupt(context, reason, cancelled, metadata, at) Calls = context::interrupt;
    context_fork(context, id, at) Iteration = context::fork;
    context_rewind(context, to) Long = Context::rewind;
    context_put_system_prompt(context, prompt, at) Prompt = context::put_system_prompt;
    context_put_metadata(context, key, value, at) Arguments = Context::put_metadata;
    context_put_iteration_metadata(context, number, key, value, at) Arguments = Context::put_iteration_metadata;

    // What it holds.
    context_summary(context) Constant = context::summary;
    context_first_iteration(context) Constant = Context::first_number;
    context_count_iterations(context) Constant = Context::count_iterations;
    context_count_messages(context) Constant = Context::count_messages;
    context_turn(context) Constant = Context::turn;
    context_usage(context) Constant = Context::usage;
    context_iteration_usage(context, number) Constant = tokens::iteration_usage;
    context_system_prompt(context) Prompt = context::system_prompt;
    context_metadata(context) Metadata = context::metadata;
    context_to_messages(context, log) Messages = context::to_messages;
    context_iterations(context) Messages = context::iterations;
    context_to_map(context) Messages = context::to_map;
    context_iteration(context, number) Own = context::iteration;
    context_iteration_messages(context, number) Own = context::iteration_messages;
    context_message(context, number, position) Own = context::message;
    context_tool_calls(context) Iteration = context::tool_calls;
    context_pending_tool_calls(context) Iteration = context::pending_tool_calls;
    context_find_turn(context, name, text) Log = Context::find_turn;
    context_last_common(context, other) Whole = Context::last_common;
    context_equal(context, other) Whole = Context::eq;

    // Decisions about calls.
    context_ask(context, id, arguments, at) Log = approvals::ask;
    context_approve(context, id, arguments, by, at) Log = approvals::approve;
    context_deny(context, id, reason, by, at) Log = Context::deny_tool_call;
    context_is_approved(context, id, arguments) Iteration = approvals::is_approved;
    context_undecided_calls(context, asked) Iteration = approvals::undecided_calls;
    context_call_status(context, id) Log = approvals::status;
    context_call_times(context, id) Log = approvals::times;
    context_call_decision(context, id) Whole = approvals::decision;

    // Requests, and what became of them.
    context_encode_request(context, options, body) Own = request::encode;
    context_request(context, options) Texts = request::request;
    context_request_report(context, options) Texts = request::report;
    context_to_prompt(context, how) Texts = Context::to_prompt;
    context_unready(context) View = Context::unready;
    context_note_request(context, fields, tools, hashed) Arguments = failures::note_request;
    context_request_note(context, number) Long = failures::request_note;
    context_note_sent(context, options) Own = account::note_sent;
    context_as_asked(context, number) Long = account::as_asked;
    context_as_asked_before(context, number) Long = replay::as_asked_before;
    context_replay(context) Long = Context::replay;
    context_response_id(context) Arguments = Context::last_response_id;
    context_add_failure(context, failure, at) Arguments = failures::add;
    context_failures(context) Whole = failures::list;
    context_account(context, prices, model, since) Own = account::account;
    context_forecast(context, options, prices, at) Own = account::forecast;
    context_spent(context, prices, model, since) Log = Context::sum_spending;
    context_add_usage(context, usage, at) Own = tokens::add_usage;
    context_count_tokens(context, method) Own = tokens::count;
    context_token_breakdown(context, method) Own = tokens::breakdown;

    // The view.
    context_fit(context, options, at) Own = view::fit;
    context_keep_last(context, count, at) View = Context::keep_last_iterations;
    context_remove_old(context, before, at) View = Context::hide_iterations_before;
    context_range(context, first, last, at) View = Context::iteration_range;
    context_hide(context, first, last, at) View = Context::hide_iterations;
    context_drop_range(context, first, last, at) View = Context::drop_range;
    context_summarize(context, range, text, check, at) Long = view::summarize;
    context_forget(context, first, last, at) View = Context::forget;
    context_expand(context, first, last, at) View = Context::expand;
    context_reveal(context, first, last, at) View = Context::reveal;
    context_undo(context, kind, range, at) View = view::undo;
    context_clear_results(context, keep, placeholder, at) Log = Context::clear_tool_results;
    context_clear_when_due(context, options, at) Whole = view::clear_when_due;
    context_shorten(context, cause, options, at) Facts = view::shorten;
    context_note_summarized(context, range, cause, at) Arguments = view::note_summarized;
    context_shortenings(context) Arguments = Context::shortenings;
    context_compactable(context, range, keep_first, keep_last, is_summary) View = view::compactable;
    context_messages_between(context, first, last) Texts = view::messages_between;
    context_summary_of(context, number) Long = view::summary_of;
    context_verdict(context, number) Long = view::verdict;
    context_max_result_bytes(context, most, at) Arguments = Context::put_max_result_bytes;
    context_masks(context, masks, at) Long = Context::put_masks;
    context_prompt_block(context, name, text, at) Prompt = Context::put_prompt_block;
    context_view(context) Prompt = view::view;
    context_view_changes(context, other) Own = replay::view_changes;
    context_put_recall(context, recall, at) Facts = Context::put_recall;
    context_has_recall(context) Arguments = Context::has_recall;
    context_recall(context, handle, excerpt) Texts = recall::recall;
    context_search(context, words, most) Texts = Context::search;
    context_receipt(context, request, most) Facts = receipt::receipt;
    context_diff_views(context, other, request) Own = receipt::diff_views;
    context_pin(context, pin, at) Facts = Context::pin;
    context_unpin(context, pin, at) Facts = pins::unpin;
    context_pins(context) Log = pins::list;
    context_place_of_call(context, id) Log = Context::place_of_call;
    context_put_index(context, share, user_bytes, at) Facts = Context::put_index;

    // Responses.
    response_new(options) Arguments = response::new;
    response_feed(response, bytes) Own = response::feed;
    response_push(response, deltas) Own = response::push;
    response_finish(response) Own = response::finish;
    response_interrupt(response, reason) Arguments = response::interrupt;
    response_decode(body, options) Arguments = response::decode;
    response_read_refusal(status, name, body) Arguments = response::read_refusal;
    response_from_message(message) Arguments = response::from_message;
    response_message(response) Received = response::message;
    response_facts(response) Own = response::facts;
    response_details(response) Received = response::details;
    response_reason(response) Own = response::reason;

    // Storage.
    snapshot_dump(context, since) Own = snapshot::dump;
    snapshot_dump_beside(context, other) Whole = snapshot::dump_beside;
    snapshot_load(document, trust) Arguments = snapshot::load;
    snapshot_load_delta(context, document, trust) Own = snapshot::load_delta;
    snapshot_encode(context) Whole = snapshot::encode;
    snapshot_decode(text, trust) Arguments = snapshot::decode;
    snapshot_changes(context, base) Whole = snapshot::changes;
    snapshot_changes_from(context, other) Whole = snapshot::changes_from;
    chat_dump(head, extra, config_extra, branches) Arguments = chat::dump;
    chat_encode(head, extra, config_extra, branches) Arguments = chat::encode;
    chat_load(document, config_keys, trust) Long = chat::load;
    chat_seed(context, first, last, id, at) Whole = chat::seed;
    import_request(body, provider, id, at) Arguments = import::request;
    import_messages(list, id, at) Arguments = import::messages;
    json_decode(text) Arguments = json::decode;
    json_encode(term) Arguments = json::encode;
    terms_encode(terms) Arguments = json::encode_terms;
    terms_decode(text) Arguments = json::decode_terms;

    // Pages, prices, and answers of a type.
    trace_html(told, masked, options) Long = trace::html;
    trace_otlp(told, masked, options) Long = otlp::otlp;
    trace_print(told, masked, options) Arguments = trace::print;
    prices_list(list) Arguments = prices::list;
    prices_file(text, provider) Long = prices::file;
    price_known(prices, model) Arguments = prices::is_known;
    answer_type(schema) Long = answers::new_type;
    answer_read(answer, text, strict) Own = answers::read;
    answer_check(answer, value, strict) Own = answers::check;
    answer_partial(answer, text, strict) Arguments = answers::partial;
    answer_follow_new() Arguments = answers::follow_new;
    answer_follow(follow, answer, piece, strict) Own = answers::follow;
    answer_constrain(answer, provider, model, name, asked) Own = answers::constrain;
    answer_schema(answer) Own = answers::schema;

    // For tests: how many there are.
    live_contexts() Constant = resource::count_contexts;
    live_responses() Constant = response::count;
}
