//! What a forecast says of bytes is what the two requests share, whatever happened to the view between them.

use crate::make::{at, bytes, reload, value, with, Talk};
use ash_agent_context_core::{
    json, read_list, Accounting, AnswerTimes, Cause, Context, Forecast, Masks, Method, Options,
    Provider, Reading, Response, Stamp, Value,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    /// An answer with so many calls, and results of so many words.
    Answer(Vec<usize>),
    Block(u8),
    Clear(usize),
    Hide(u64),
    Expand,
    Shorten(bool),
    /// So many iterations back, after which the user says the same or something else.
    Rewind(u64, bool),
    /// Words that are masked from then on.
    Mask(Option<&'static str>),
    Store,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec(0..80_usize, 0..3).prop_map(Step::Answer),
        1 => (0..3_u8).prop_map(Step::Block),
        2 => (0..4_usize).prop_map(Step::Clear),
        1 => (1..5_u64).prop_map(Step::Hide),
        1 => Just(Step::Expand),
        1 => any::<bool>().prop_map(Step::Shorten),
        2 => (0..3_u64, any::<bool>()).prop_map(|(back, same)| Step::Rewind(back, same)),
        1 => Just(Step::Store),
    ]
}

fn mask() -> impl Strategy<Value = Step> {
    prop_oneof![Just(None), Just(Some("word")), Just(Some("Yes"))].prop_map(Step::Mask)
}

fn masked(context: &Context, word: Option<&str>) -> Context {
    let masks = word.map(|word| (word.into(), "***".into()));
    context.put_masks(Masks::new(masks).unwrap(), at(3))
}

fn answer(context: &Context, results: &[usize]) -> Context {
    let ids = (0..results.len()).map(|index| format!("{}-{index}", context.current_iteration()));
    let ids: Vec<String> = ids.collect();
    let calls = ids.iter().map(|id| {
        format!(r#"{{"id": "{id}", "type": "function", "function": {{"name": "look", "arguments": "{{}}"}}}}"#)
    });
    let calls = calls.collect::<Vec<_>>().join(", ");
    let calls = match results.is_empty() {
        true => String::new(),
        false => format!(r#", "tool_calls": [{calls}]"#),
    };
    let body = format!(
        r#"{{"choices": [{{"message": {{"role": "assistant", "content": "Yes"{calls}}}, "finish_reason": "stop"}}],
        "usage": {{"prompt_tokens": 2000, "completion_tokens": 1}}}}"#
    );
    let reading = Reading::of(Provider::OpenAiChat);
    let response = Response::decode(body.as_bytes(), &reading).unwrap();
    let times = AnswerTimes {
        requested_at: Some(at(1)),
        first_chunk_at: None,
    };
    let stamp = || Stamp::at(at(2));
    let context = context.add_answer(&response, times, stamp()).unwrap();
    if results.is_empty() {
        return context.user("And?");
    }
    let given = ids.iter().zip(results).map(|(id, words)| {
        let text = Value::text(&"word ".repeat(*words));
        let result = Value::Tuple([Value::atom("ok"), text].into());
        Value::Tuple([Value::text(id), result].into())
    });
    let given = Value::List(given.collect());
    context.add_tool_results(given, stamp()).unwrap()
}

/// The elements of a request's list.
fn list(context: &Context) -> Vec<u8> {
    let options = Options::new(Provider::OpenAiChat);
    let segments = context
        .encode_request(&options, &Default::default())
        .unwrap();
    let body = bytes(&segments);
    let start = br#"{"messages":["#.len();
    body[start..body.len() - b"]}".len()].to_vec()
}

fn count_same(a: &[u8], b: &[u8]) -> u64 {
    a.iter().zip(b).take_while(|(a, b)| a == b).count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_common_beginning_is_exact(
        steps in prop::collection::vec(step(), 1..40),
        is_noted in any::<bool>(),
    ) {
        let stamp = Stamp::at(at(0));
        let mut context = Context::new("c", Value::text("?"), Value::text("S"), stamp).unwrap();
        // The list of each request, by the number of the iteration with its answer.
        let mut sent: Vec<(u64, Vec<u8>)> = Vec::new();
        // The list that was cut off, if no request was sent since; and whether the view is the one of the last request.
        let mut cut: Option<Vec<u8>> = None;
        let mut is_as_asked = true;
        let mut hides = false;
        for step in steps {
            is_as_asked &= !matches!(
                step,
                Step::Block(_) | Step::Clear(_) | Step::Hide(_) | Step::Expand | Step::Shorten(_)
            );
            hides = matches!(step, Step::Hide(_)) || hides && !matches!(step, Step::Expand);
            context = match step {
                Step::Answer(results) => {
                    (cut, is_as_asked) = (None, true);
                    sent.push((context.current_iteration(), list(&context)));
                    let noted = context.note_sent(&Options::new(Provider::OpenAiChat));
                    answer(&if is_noted { noted.unwrap() } else { context }, &results)
                }
                Step::Block(text) => {
                    let text = (text > 0).then(|| text.to_string());
                    context.put_prompt_block("b", text.as_deref(), at(3))
                }
                Step::Clear(keep) => context.clear_tool_results(keep, "-", at(3)),
                Step::Hide(keep) => context.keep_last_iterations(keep, at(3)),
                Step::Expand => context.expand(1, u64::MAX, at(3)),
                Step::Shorten(is_short) => {
                    context.put_max_result_bytes(is_short.then_some(100), at(3))
                }
                Step::Rewind(back, is_same) => {
                    let to = context.current_iteration().saturating_sub(back).max(1);
                    let last = sent.last().filter(|(number, _)| *number > to);
                    // What is hidden up to there may be shown again.
                    is_as_asked &= !hides;
                    cut = cut.or(last.map(|(_, list)| list.clone()));
                    sent.retain(|(number, _)| *number <= to);
                    let to = context.rewind(i64::try_from(to).unwrap()).unwrap();
                    let said = if is_same { "And?" } else { "Again" };
                    to.add_user_message(Value::text(said), Stamp::at(at(3))).unwrap()
                }
                Step::Mask(word) => masked(&context, word),
                Step::Store => reload(&context),
            };
            let options = Options::new(Provider::OpenAiChat);
            let forecast = context.forecast(&options, &Accounting::default(), at(4)).unwrap();
            let now = list(&context);
            // Each element follows a comma, the first one too.
            prop_assert_eq!(forecast.bytes, now.len() as u64 + 1);
            if let Some(cut) = &cut {
                let same = count_same(cut, &now) + 1;
                if is_as_asked {
                    prop_assert!(forecast.same_bytes <= same);
                    // Of a message that is not the same it is not known where it begins to differ.
                    let is_all = forecast.same_bytes + 60 > same;
                    prop_assert!(is_all || !is_noted, "{} of {same}", forecast.same_bytes);
                }
            } else {
                let same = sent.last().map_or(0, |(_, last)| count_same(last, &now) + 1);
                prop_assert_eq!(forecast.same_bytes, same);
                let is_whole = sent.last().is_some_and(|(_, last)| same == last.len() as u64 + 1);
                prop_assert_eq!(forecast.breaks.is_empty(), is_whole || sent.is_empty());
            }
            // 2,000 tokens were sent, of which 15 blocks of 128 are whole.
            prop_assert!(forecast.read <= 1920);
            prop_assert_eq!(forecast.read + forecast.written + forecast.fresh, forecast.tokens);
        }
    }
}

#[test]
fn a_request_costs_what_its_tokens_cost() {
    let prices = r#"[{"provider": "openai_chat", "model": "m", "input": 10, "cache_read": 1, "output": 50}]"#;
    let prices = read_list(&json::read(prices.as_bytes(), 100).unwrap()).unwrap();
    let accounting = Accounting {
        prices: Some(&prices),
        model: Some("m"),
        since: 0,
    };
    let stamp = Stamp::at(at(0));
    let context = Context::new("c", Value::text("?"), Value::text("S"), stamp).unwrap();
    let context = answer(&context, &[]);
    let options = Options::new(Provider::OpenAiChat);
    let forecast = context.forecast(&options, &accounting, at(4)).unwrap();
    assert_eq!(forecast.written, 0);
    assert!(forecast.read > 0 && forecast.fresh > 0);
    assert_eq!(forecast.cost, Some(forecast.read + forecast.fresh * 10));
    assert_eq!(forecast.most_cost, None);

    // With the longest answer that the noted request allows, by the name that any provider has for it.
    for name in [
        "max_tokens",
        "max_completion_tokens",
        "maxOutputTokens",
        "num_predict",
    ] {
        let fields = format!(r#"{{"body": {{"options": {{"{name}": 30}}, "{name}": 30}}}}"#);
        let fields = json::read(fields.as_bytes(), 100).unwrap();
        let tools = json::read(b"[]", 100).unwrap();
        let noted = context.note_request(fields, tools).unwrap();
        let forecast = noted.forecast(&options, &accounting, at(4)).unwrap();
        let most = forecast.cost.unwrap() + 30 * 50;
        assert_eq!(forecast.most_cost, Some(most), "{name}");
        let unpriced = noted.forecast(&options, &Accounting::default(), at(4));
        assert_eq!(unpriced.unwrap().most_cost, None);
    }
}

#[test]
fn a_second_rewind_may_cut_off_the_same_as_the_first() {
    let options = Options::new(Provider::OpenAiChat);
    let turn = |context: &Context| answer(&context.note_sent(&options).unwrap(), &[]);
    let again = |context: &Context, to: i64| {
        let again = context.rewind(to).unwrap();
        again
            .add_user_message(Value::text("Again"), Stamp::at(at(3)))
            .unwrap()
    };
    let first = again(&turn(&turn(&start("S"))), 1);
    let second = again(&turn(&turn(&first)), 2);
    for context in [&second, &reload(&second)] {
        // All but the last message.
        let forecast = forecast(context, &options);
        let last = br#",{"role":"user","content":"Again"}"#.len() as u64;
        assert_eq!(forecast.same_bytes, forecast.bytes - last);
    }
}

/// An answer to a request of so many tokens.
fn answer_tokens(context: &Context, tokens: u64) -> Context {
    let body = format!(
        r#"{{"choices": [{{"message": {{"role": "assistant", "content": "Yes"}}, "finish_reason": "stop"}}],
        "usage": {{"prompt_tokens": {tokens}, "completion_tokens": 1}}}}"#
    );
    let response = Response::decode(body.as_bytes(), &Reading::of(Provider::OpenAiChat)).unwrap();
    add(context, &response)
}

/// An answer of Anthropic to a request of so many tokens, all of them written to the cache, with so many calls.
fn answer_written(context: &Context, written: u64, calls: usize) -> Context {
    let calls = (0..calls).map(|number| {
        format!(r#", {{"type": "tool_use", "id": "c{number}", "name": "f", "input": {{}}}}"#)
    });
    let body = format!(
        r#"{{"type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{{"type": "text", "text": "Yes"}}{}],
        "usage": {{"input_tokens": 0, "cache_creation_input_tokens": {written}, "output_tokens": 1}}}}"#,
        calls.collect::<String>()
    );
    let response = Response::decode(body.as_bytes(), &Reading::of(Provider::Anthropic)).unwrap();
    let times = AnswerTimes {
        requested_at: Some(at(1)),
        first_chunk_at: None,
    };
    context
        .add_answer(&response, times, Stamp::at(at(2)))
        .unwrap()
}

fn add(context: &Context, response: &Response) -> Context {
    let times = AnswerTimes {
        requested_at: Some(at(1)),
        first_chunk_at: None,
    };
    let context = context.add_answer(response, times, Stamp::at(at(2)));
    let more = Value::text("And?");
    context
        .unwrap()
        .add_user_message(more, Stamp::at(at(2)))
        .unwrap()
}

fn start(system: &str) -> Context {
    let stamp = Stamp::at(at(0));
    Context::new("c", Value::text("Hello there"), Value::text(system), stamp).unwrap()
}

fn forecast(context: &Context, options: &Options<'_>) -> Forecast {
    context
        .forecast(options, &Accounting::default(), at(4))
        .unwrap()
}

/// The causes of a forecast, with the tokens that each takes.
fn breaks(forecast: &Forecast) -> Vec<(Cause, u64)> {
    let breaks = forecast.breaks.iter();
    breaks.map(|one| (one.cause, one.tokens)).collect()
}

#[test]
fn openai_caches_1024_tokens_and_no_fewer() {
    let options = Options::new(Provider::OpenAiChat);
    let read = |tokens| forecast(&answer_tokens(&start("S"), tokens), &options).read;
    assert_eq!(
        (read(1023), read(1024), read(1151), read(1152)),
        (0, 1024, 1024, 1152)
    );
}

#[test]
fn tools_stand_before_a_system_prompt_that_is_another_one() {
    let options = Options::new(Provider::OpenAiChat);
    let list = |items: Vec<Value>| Value::List(items.into());
    let after = |tools: Vec<Value>| {
        let noted = start("S")
            .note_request(json::read(b"{}", 9).unwrap(), list(tools))
            .unwrap();
        let next = answer_tokens(&noted, 1920)
            .put_system_prompt(Value::text("T"), at(3))
            .unwrap();
        let forecast = forecast(&next, &options);
        (forecast.read, breaks(&forecast))
    };
    assert_eq!(after(vec![]), (0, vec![(Cause::SystemPrompt, 1920)]));
    // The block that the messages begin in is lost.
    let tool = json::read(br#"{"name": "f"}"#, 9).unwrap();
    assert_eq!(after(vec![tool]), (1792, vec![(Cause::SystemPrompt, 128)]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    // A conversation that was stored after any of its steps tells what the one in memory tells.
    #[test]
    fn it_is_the_same_for_a_stored_conversation(
        steps in prop::collection::vec((prop_oneof![2 => step(), 1 => mask()], any::<bool>()), 1..24),
    ) {
        let options = Options::new(Provider::OpenAiChat);
        let mut context = start("S");
        let mut stored = context.clone();
        for (step, is_stored) in steps {
            let next = |context: &Context| match &step {
                Step::Answer(results) => answer(context, results),
                Step::Block(text) => context.put_prompt_block("b", Some(&text.to_string()), at(3)),
                Step::Clear(keep) => context.clear_tool_results(*keep, "-", at(3)),
                Step::Hide(keep) => context.keep_last_iterations(*keep, at(3)),
                Step::Expand => context.expand(1, u64::MAX, at(3)),
                Step::Shorten(is_short) => context.put_max_result_bytes(is_short.then_some(100), at(3)),
                Step::Rewind(back, _) => {
                    let to = context.current_iteration().saturating_sub(*back).max(1);
                    context.rewind(i64::try_from(to).unwrap()).unwrap().user("Again")
                }
                Step::Mask(word) => masked(context, *word),
                Step::Store => context.clone(),
            };
            (context, stored) = (next(&context), next(&stored));
            if is_stored {
                stored = reload(&stored);
            }
            let told = forecast(&context, &options);
            prop_assert_eq!(&told, &forecast(&stored, &options));
            prop_assert_eq!(&told, &forecast(&reload(&context), &options));
        }
    }
}

#[test]
fn masks_of_the_last_request_are_known_and_others_may_have_changed_everything() {
    let options = Options::new(Provider::OpenAiChat);
    let masks = |word: &str| Masks::new([(word.into(), "***".into())]).unwrap();
    let masked = answer_tokens(&start("S").put_masks(masks("one"), at(0)), 1920);
    let changed = forecast(&masked.put_masks(masks("two"), at(3)), &options);
    // What no mask is about is sent as before.
    assert_eq!((changed.read, breaks(&changed)), (1920, vec![]));
    let loaded = reload(&reload(&masked).put_masks(masks("two"), at(3)));
    assert_eq!(forecast(&loaded, &options), changed);
    // An earlier release has stored the digest alone.
    let text = String::from_utf8(loaded.to_snapshot()).unwrap();
    let text = text.replace("\"asked_masks\"", "\"other\"");
    let older = Context::from_snapshot(text.as_bytes()).unwrap();
    let changed = forecast(&older, &options);
    assert_eq!(
        (changed.read, breaks(&changed)),
        (0, vec![(Cause::Masked, 1920)])
    );
}

#[test]
fn what_anthropic_caches_depends_on_its_model() {
    let options = |model| Options {
        cache: true,
        model: Some(model),
        ..Options::new(Provider::Anthropic)
    };
    let next = answer_written(&start("S"), 2000, 0);
    let next = next
        .add_user_message(Value::text("And?"), Stamp::at(at(2)))
        .unwrap();
    let small = forecast(&next, &options("claude-sonnet-4-5"));
    assert_eq!((small.read, small.fresh), (2000, 0));
    assert_eq!(small.written, small.tokens - 2000);
    let large = forecast(&next, &options("claude-opus-4-5"));
    assert_eq!(
        (large.read, large.written, large.fresh),
        (0, 0, large.tokens)
    );
    // By the newest table, and by the caller.
    for (model, least) in [
        ("claude-opus-4-7", 2048),
        ("claude-sonnet-4-6", 1024),
        ("claude-mythos-5-1", 512),
        ("claude-fable-5", 512),
    ] {
        for written in [least - 1, least] {
            let next = answer_written(&start("S"), written, 0);
            let next = next
                .add_user_message(Value::text("And?"), Stamp::at(at(2)))
                .unwrap();
            let read = forecast(&next, &options(model)).read;
            assert_eq!(read, if written < least { 0 } else { written }, "{model}");
            let own = Options {
                cache_minimum: Some(written),
                ..options(model)
            };
            assert_eq!(forecast(&next, &own).read, written, "{model}");
        }
    }
}

/// A conversation whose last request is followed by an answer with so many calls, their results, and so many messages.
fn followed(calls: usize, messages: usize) -> Context {
    let system = r#"[{"type": "text", "text": "S", "cache": true}]"#;
    let stamp = Stamp::at(at(0));
    let asked = Value::text(&"word ".repeat(2_000));
    let first = Context::new("c", asked, value(system), stamp).unwrap();
    let context = answer_written(&first, 2000, calls);
    let result = |number| {
        let text = Value::Tuple([Value::atom("ok"), Value::text("r")].into());
        Value::Tuple([Value::text(&format!("c{number}")), text].into())
    };
    let results = Value::List((0..calls).map(result).collect());
    let context = match calls {
        0 => context,
        _ => context.add_tool_results(results, Stamp::at(at(2))).unwrap(),
    };
    (0..messages).fold(context, |context, _| {
        context
            .add_user_message(Value::text("And?"), Stamp::at(at(3)))
            .unwrap()
    })
}

#[test]
fn providers_look_back_20_positions_from_a_mark_and_some_count_runs_as_one() {
    // A mark of each request's own, in its last message, is 20 positions from the end of the request before.
    for (provider, calls, messages, is_seen) in [
        (Provider::Anthropic, 50, 0, true),
        (Provider::Anthropic, 50, 16, true),
        (Provider::Anthropic, 50, 17, false),
        (Provider::Anthropic, 0, 18, true),
        (Provider::Anthropic, 0, 19, false),
        (Provider::Bedrock, 9, 0, true),
        (Provider::Bedrock, 9, 1, false),
        (Provider::Bedrock, 10, 0, false),
    ] {
        let context = followed(calls, messages);
        let answered = Options::new(Provider::Anthropic);
        let by_hand = with(provider, |_| {});
        let found = breaks(&forecast(&context, &by_hand));
        let found = found.iter().any(|(cause, _)| *cause == Cause::LookBack);
        assert_eq!(found, !is_seen, "{provider:?} {calls} {messages}");
        // The mark at the end of the last request is found however they are counted.
        let auto = with(answered.provider, |of| of.cache = true);
        assert_eq!(breaks(&forecast(&context, &auto)), []);
    }
}

#[test]
fn a_message_of_the_user_that_goes_on_changes_nothing_before() {
    let silent = r#"{"output": {"message": {"role": "assistant", "content": []}}, "stopReason": "end_turn",
        "usage": {"inputTokens": 0, "outputTokens": 1, "totalTokens": 2001, "cacheWriteInputTokens": 2000}}"#;
    let silent = Response::decode(silent.as_bytes(), &Reading::of(Provider::Bedrock)).unwrap();
    let options = with(Provider::Bedrock, |of| of.cache = true);
    let forecast = forecast(&add(&start("S"), &silent), &options);
    assert_eq!((forecast.read, breaks(&forecast)), (2000, vec![]));
}

#[test]
fn fields_of_anthropic_stand_after_the_system_prompt() {
    let options = with(Provider::Anthropic, |of| of.cache = true);
    let fields = |thinking: &str| {
        let body = format!(r#"{{"body": {{"thinking": {{"type": "{thinking}"}}}}}}"#);
        json::read(body.as_bytes(), 9).unwrap()
    };
    let none = || Value::List(Box::default());
    let first = start("You are a helpful agent.")
        .note_request(fields("enabled"), none())
        .unwrap();
    let counted = first.tokens(Method::Estimate);
    let next = answer_written(&first, 2000, 0);
    let next = next
        .add_user_message(Value::text("And?"), Stamp::at(at(2)))
        .unwrap();
    let next = next.note_request(fields("disabled"), none()).unwrap();
    let after = counted.total() - counted.system;
    assert_eq!(breaks(&forecast(&next, &options)), [(Cause::Fields, after)]);
}

#[test]
fn what_was_written_for_five_minutes_is_written_so_again() {
    let prices = r#"[{"model": "m", "input": 10, "cache_read": 1, "cache_write": 12, "cache_write_1h": 20, "output": 50}]"#;
    let prices = read_list(&json::read(prices.as_bytes(), 100).unwrap()).unwrap();
    let accounting = Accounting {
        prices: Some(&prices),
        model: Some("m"),
        since: 0,
    };
    let options = with(Provider::Anthropic, |of| of.cache = true);
    let next = answer_written(&start("S"), 2000, 0);
    let next = next
        .add_user_message(Value::text("And?"), Stamp::at(at(2)))
        .unwrap();
    let forecast = next.forecast(&options, &accounting, at(4)).unwrap();
    assert!(forecast.read > 0 && forecast.written > 0);
    assert_eq!(forecast.cost, Some(forecast.read + forecast.written * 12));
}
