//! The table of all NIFs: name and arguments, what the work grows with beside the arguments (see [`Weight`]), and the function
//! that does it. `AshAgent.Context.Native` reads the lines of this file, so each has the form of the others.

use std::time::SystemTime;

use ash_agent_context_core::{
    caches, constrain, join_rows, json, read_file, read_list, AnswerType, Chat, Context, Cost,
    Excerpt, Fault, Follow, LoadedChat, Log, Pin, Rent, Response, Value,
};
use rustler::codegen_runtime::inventory;
use rustler::{Env, NifResult, SchedulerFlags, Term};

use crate::answers::Schema;
use crate::argument::{Argument, Attributes, Document, Id, Items, Results};
use crate::atoms;
use crate::enif::{self, Nif};
use crate::error::NifError;
use crate::resource::{count_live, note_freed};
use crate::response::Fed;
use crate::scheduler::{charge, Scheduler};
use crate::storage::{Names, Nested, Rows, Snapshot};
use crate::to_term::{Returned, ToTerm};
use crate::weight::Weight;
use crate::{answers, context, otlp, prices, request, response, storage, tokens, trace, view};

/// Makes two NIFs of each line, `name_normal` and `name_dirty`, one for each kind of schedulers.
macro_rules! nifs {
    ($($name:ident($($arg:ident $(: $as:ident)? $(: &$lent:ident)?),*) $weight:ident = $work:path;)*) => {$(
        const _: () = {
            struct This;

            impl Nif for This {
                fn call<'a>(env: Env<'a>, arguments: &[Term<'a>], is_normal: bool) -> NifResult<Term<'a>> {
                    run(env, Weight::$weight, arguments, is_normal, #[allow(unused)] |scheduler| {
                        let &[$($arg),*] = arguments else {
                            return Err(NifError::Raise);
                        };
                        Returned::returned($work($(read!($arg scheduler $($as)? $(&$lent)?)),*), env)
                    })
                }
            }

            const ARITY: usize = <[&str]>::len(&[$(stringify!($arg)),*]);
            const NORMAL: &str = concat!(stringify!($name), "_normal\0");
            const DIRTY: &str = concat!(stringify!($name), "_dirty\0");
            inventory::submit!(enif::define::<This, true>(NORMAL, ARITY, SchedulerFlags::Normal));
            inventory::submit!(enif::define::<This, false>(DIRTY, ARITY, SchedulerFlags::DirtyCpu));
        };
    )*};
}

/// Reads an argument as the function takes it, or as the value within another type, or as a reference to one.
macro_rules! read {
    ($arg:ident $scheduler:ident) => {
        Argument::read($arg, $scheduler)?
    };
    ($arg:ident $scheduler:ident $as:ident) => {
        <$as as Argument>::read($arg, $scheduler)?.0
    };
    ($arg:ident $scheduler:ident &$lent:ident) => {
        &<$lent as Argument>::read($arg, $scheduler)?
    };
}

/// Does the work if the scheduler may, and returns `{:ok, result}` or `{:error, reason}`.
fn run<'a>(
    env: Env<'a>,
    weight: Weight,
    arguments: &[Term<'a>],
    is_normal: bool,
    work: impl FnOnce(Scheduler) -> Result<Term<'a>, NifError>,
) -> NifResult<Term<'a>> {
    let started = SystemTime::now();
    let (scheduler, cost) = match is_normal {
        true => (Scheduler::Normal(started), weight.cost(arguments.first())),
        false => (Scheduler::Dirty, Ok(Cost::default())),
    };
    let allowed = cost.and_then(|cost| scheduler.allow(cost));
    let result = allowed.and_then(|()| work(scheduler));
    match is_normal {
        true => charge(env, started),
        false => note_freed(),
    }
    match result {
        Ok(term) => Ok((atoms::ok(), term).to_term(env)),
        Err(NifError::Raise) => Err(rustler::Error::BadArg),
        Err(error) => Ok((atoms::error(), error).to_term(env)),
    }
}

nifs! {
    // A conversation.
    context_new(id: &Id, input: Items, system_prompt: Items, stamp) Arguments = Context::new;
    context_create(attributes, at) Arguments = context::create;
    context_update(context, attributes: Attributes, at) Arguments = Context::update_attributes;
    context_add_user_message(context, input: Items, stamp) Calls = Context::add_user_message;
    context_add_assistant_message(context, content: Items, calls: Items, stamp) Calls = Context::add_assistant_message;
    context_add_tool_results(context, results: Results, stamp) Calls = Context::add_tool_results;
    context_add_response(context, response, times, stamp) Calls = response::add_to;
    context_interrupt(context, reason, cancelled, stamp) Calls = context::interrupt;
    context_fork(context, id: &Id, at) Iteration = Context::fork;
    context_rewind(context, to) Own = context::rewind;
    context_put_system_prompt(context, prompt: Items, at) Prompt = Context::put_system_prompt;
    context_put_metadata(context, key, value, at) Arguments = Context::put_metadata;
    context_put_iteration_metadata(context, number, key, value, at) Arguments = Context::put_iteration_metadata;

    // What it holds.
    context_summary(context) Constant = context::summary;
    context_id(context) Constant = Context::id;
    context_outline(context) Constant = context::outline;
    context_first_iteration(context) Constant = Log::first_number;
    context_count_iterations(context) Constant = Log::count_iterations;
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

    // Late results.
    context_arrive(context, is_handle, name, result: Results, from, at, awaited_by) Log = context::arrive;
    context_place_arrivals(context, at) Log = Context::place_arrivals;
    context_leave_waiting(context, at) Log = Context::leave_waiting;
    context_late_calls(context, state) Messages = context::late_calls;
    context_find_late_calls(context, handles) Arguments = context::find_late_calls;
    context_late_changes(context, other) Messages = context::late_changes;
    context_has_late(context) Constant = context::has_late;

    // Decisions about calls.
    context_ask(context, id, arguments, question, at) Log = Context::ask;
    context_ask_again(context, at) Log = Context::ask_again;
    context_check_attempt(context, id, attempt: &Value) Arguments = Context::check_attempt;
    context_approve(context, id, arguments, edited, by, at) Log = context::approve;
    context_deny(context, id, arguments, reason, by, at) Log = context::deny;
    context_answer(context, id, arguments, answer, by, at) Log = Context::answer_tool_call;
    context_is_approved(context, id, arguments: &Value) Iteration = Context::is_approved;
    context_undecided_calls(context, asked) Iteration = context::undecided_calls;
    context_call_status(context, id) Log = Context::tool_call_status;
    context_call_times(context, id) Log = context::times;
    context_call_decision(context, id) Whole = Context::tool_call_decision;

    // Requests, and what became of them.
    context_encode_request(context, options, body) Own = request::encode;
    request_fields(body) Arguments = request::read_fields;
    context_request(context, options) Texts = request::request;
    context_request_report(context, options) Texts = request::report;
    context_to_prompt(context, how) Texts = Context::to_prompt;
    context_unready(context) View = Context::unready;
    context_note_request(context, fields, tools, hashed) Arguments = request::note_request;
    context_request_note(context, number) Long = request::request_note;
    context_note_sent(context, options) Own = request::note_sent;
    context_as_asked(context, number) Long = request::as_asked;
    context_as_asked_before(context, number) Long = request::as_asked_before;
    context_replay(context) Long = Context::replay;
    context_response_id(context) Arguments = Context::last_response_id;
    context_add_failure(context, failure: &Value, at) Arguments = Context::add_failure;
    context_failures(context) Whole = request::failures;
    context_account(context, prices, model, since) Own = request::account;
    context_forecast(context, options, prices, at) Own = request::forecast;
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
    context_summarize(context, first, last, text, check, at) Long = Context::summarize_checked;
    context_forget(context, first, last, at) View = Context::forget;
    context_expand(context, first, last, at) View = Context::expand;
    context_reveal(context, first, last, at) View = Context::reveal;
    context_undo(context, kind, first, last, at) View = Context::undo;
    context_clear_results(context, keep, placeholder, by_policy, at) Log = Context::clear_results;
    context_clear_when_due(context, options, at) Own = view::clear_when_due;
    context_shorten(context, cause, options: &Rent, at) Facts = Context::shorten;
    context_note_summarized(context, first, last, cause, at) Arguments = Context::note_summarized;
    context_shortenings(context) Arguments = Context::shortenings;
    context_compactable(context, range, keep_first, keep_last, is_summary) View = view::compactable;
    context_messages_between(context, first, last) Texts = view::messages_between;
    context_summary_of(context, number) Long = view::summary_of;
    context_verdict(context, number) Long = view::verdict;
    context_max_result_bytes(context, most, at) Arguments = Context::put_max_result_bytes;
    context_masks(context, masks, at) Long = Context::put_masks;
    context_prompt_block(context, name, text, at) Prompt = Context::put_prompt_block;
    context_view(context) Prompt = view::view;
    context_view_changes(context, other) Own = request::view_changes;
    context_put_recall(context, recall, at) Facts = Context::put_recall;
    context_has_recall(context) Arguments = Context::has_recall;
    context_recall(context, handle, excerpt: &Excerpt) Facts = Context::recall;
    context_search(context, words, most) Words = Context::search;
    context_receipt(context, request, most) Facts = view::receipt;
    context_diff_views(context, other, request) Own = view::diff_views;
    context_pin(context, pin, at) Facts = Context::pin;
    context_unpin(context, pin: &Pin, at) Facts = Context::unpin;
    context_pins(context) Log = view::pins;
    context_place_of_call(context, id) Log = Context::place_of_call;
    context_put_index(context, share, user_bytes, at) Facts = Context::put_index;

    // Responses.
    response_new(options) Arguments = response::new;
    response_feed(response, bytes) Own = response::feed;
    response_push(response, deltas) Own = response::push;
    response_finish(response) Own = response::finish;
    response_interrupt(response, reason) Arguments = Response::interrupt;
    response_decode(body, options) Arguments = response::decode;
    response_read_refusal(status, name, body: Fed) Arguments = Fault::refusal;
    response_from_message(message) Arguments = Response::from_message;
    response_message(response) Received = response::message;
    response_facts(response) Own = response::facts;
    response_details(response) Received = Response::details;
    response_reason(response) Own = response::reason;

    // Storage.
    snapshot_dump(context, since) Own = storage::dump;
    snapshot_dump_beside(context, other) Whole = storage::dump_beside;
    snapshot_load(document: Document, trust) Arguments = Context::load_with;
    snapshot_load_delta(context, document, trust) Own = storage::load_delta;
    snapshot_encode(context) Whole = storage::encode;
    snapshot_decode(text: Snapshot, trust) Arguments = Context::from_snapshot_with;
    snapshot_changes(context, base) Whole = Context::changes;
    snapshot_changes_from(context, other) Whole = Context::changes_from;
    snapshot_join(chat, rows: &Rows) Long = join_rows;
    media_take(text, known) Arguments = storage::take_media;
    media_put_back(text, media) Arguments = storage::put_media_back;
    chat_dump(chat: &Chat) Arguments = Chat::dump;
    chat_encode(chat: &Chat) Arguments = Chat::to_snapshot;
    chat_load(document: Nested, config_keys: &Names, trust) Long = LoadedChat::read;
    chat_seed(context, first, last, id: &Id, at) Whole = Context::seed;
    import_request(body, provider, id, at) Arguments = storage::import_request;
    import_messages(list, id, at) Arguments = storage::import_messages;
    json_decode(text) Arguments = storage::decode_json;
    json_encode(term: &Value) Arguments = json::write;
    terms_encode(terms) Arguments = storage::encode_terms;
    terms_decode(text) Arguments = storage::decode_terms;

    // Pages, prices, and answers of a type.
    trace_html(told, masked, options) Long = trace::html;
    trace_otlp(told, masked, options) Long = otlp::otlp;
    trace_print(told, masked, options) Arguments = trace::print;
    prices_list(list: &Value) Arguments = read_list;
    prices_file(text, provider) Long = read_file;
    price_known(prices, model) Arguments = prices::is_known;
    answer_type(schema: Schema) Arguments = answers::new_type;
    answer_read(answer, text, strict) Own = answers::read;
    answer_check(answer, value, strict) Own = answers::check;
    answer_check_arguments(answer, value) Own = answers::check_arguments;
    answer_partial(answer, text, strict) Arguments = answers::partial;
    answer_follow_new() Arguments = Follow::default;
    answer_follow(follow, answer, piece, strict) Own = answers::follow;
    answer_constrain(answer, provider, model, name, beside_tools, forced) Long = constrain;
    provider_caches(provider, model) Constant = caches;
    answer_schema(answer) Long = AnswerType::schema;

    // For tests: how many there are.
    live_contexts() Constant = count_live::<Context>;
    live_responses() Constant = count_live::<Response>;
}
