//! Calls that are answered later: random conversations beside a plain model of which call waits and what has arrived, and the
//! laws of what is sent, kept, rewound and forked.

use crate::checks;
use crate::make::{at, bytes, conversation, import, list, map, reload, stamp, value, Talk};

use ash_agent_context_core::{
    json, steps, Arrived, CallKey, Context, Error, LateState, Map, Options, Provider, Refusal,
    Status, Value, NESTING,
};
use proptest::prelude::*;

/// What happens to a conversation. Numbers choose among what there is.
#[derive(Debug, Clone)]
enum Op {
    User,
    Answer,
    /// Calls of these ids; odd ones are of OpenAI Responses and may be answered late there.
    Ask(Vec<u8>),
    /// Results of pending calls: of an even number it waits.
    Results(Vec<u8>),
    /// A result for one of the calls that ever waited: by its handle or by its id, and one of few results. Of an even number, a pending
    /// call waits for it.
    Arrive(usize, bool, u8, u8),
    Cancel(usize),
    Place,
    Rewind(u64),
    Fork,
    Reload,
    Delta(u64),
    View(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::User),
        3 => Just(Op::Answer),
        5 => prop::collection::vec(0..6u8, 1..4).prop_map(Op::Ask),
        7 => prop::collection::vec(any::<u8>(), 1..4).prop_map(Op::Results),
        7 => (any::<usize>(), any::<bool>(), 0..3u8, 0..4u8).prop_map(|(which, by, what, of)| Op::Arrive(which, by, what, of)),
        1 => any::<usize>().prop_map(Op::Cancel),
        3 => Just(Op::Place),
        2 => (0..4u64).prop_map(Op::Rewind),
        1 => Just(Op::Fork),
        1 => Just(Op::Reload),
        1 => (0..3u64).prop_map(Op::Delta),
        2 => (0..6u8).prop_map(Op::View),
    ]
}

/// A call that ever waited.
#[derive(Debug, Clone, PartialEq)]
struct Waited {
    id: String,
    handle: String,
    iteration: u64,
    is_elsewhere: bool,
    is_gone: bool,
    /// What arrived: a number, or nothing if it was called off.
    arrived: Option<Option<u8>>,
    awaited_by: Option<String>,
    placed: Option<u64>,
    /// The result stands in the call's slot.
    in_slot: bool,
}

#[derive(Debug, Clone, Default)]
struct Model {
    calls: Vec<Waited>,
    handles: usize,
    has_view: bool,
}

impl Model {
    fn is_open(call: &Waited) -> bool {
        !call.is_gone && !call.is_elsewhere && call.arrived.is_none()
    }

    /// Which call a name means, or why none.
    fn find(&self, key: &CallKey) -> Result<usize, Refusal> {
        let is_meant = |call: &Waited| match key {
            CallKey::Id(id) => call.id == **id,
            CallKey::Handle(handle) => call.handle == **handle,
        };
        let of = |test: &dyn Fn(&Waited) -> bool| -> Vec<usize> {
            let found = self.calls.iter().enumerate();
            found
                .filter(|(_, call)| is_meant(call) && test(call))
                .map(|(at, _)| at)
                .collect()
        };
        match (
            &*of(&Self::is_open),
            of(&|call| !call.is_gone).last(),
            of(&|call| call.is_gone).last(),
        ) {
            ([one], ..) => Ok(*one),
            ([_, _, ..], ..) => Err(Refusal::Ambiguous),
            ([], Some(newest), _) => Ok(*newest),
            ([], None, Some(_)) => Err(Refusal::Rewound),
            ([], None, None) => Err(Refusal::Unknown),
        }
    }

    /// Takes a result. Returns whether it changed anything.
    fn arrive(
        &mut self,
        key: &CallKey,
        what: Option<u8>,
        awaited_by: Option<&String>,
        in_slot: impl Fn(&Waited) -> bool,
    ) -> Result<bool, Refusal> {
        let at = self.find(key)?;
        let call = &mut self.calls[at];
        match call.arrived {
            _ if call.is_elsewhere => return Err(Refusal::Elsewhere),
            Some(before) if before == what => return Ok(false),
            Some(None) => return Err(Refusal::Cancelled),
            Some(Some(_)) => return Err(Refusal::Answered),
            None => {}
        }
        call.arrived = Some(what);
        call.awaited_by = awaited_by.cloned();
        if in_slot(call) {
            (call.placed, call.in_slot) = (Some(call.iteration), true);
        }
        Ok(true)
    }

    /// Results for which one of these calls waited come with its own.
    fn place_awaited(&mut self, ids: &[String], iteration: u64) {
        for call in &mut self.calls {
            let is_awaited = call.awaited_by.as_ref().is_some_and(|id| ids.contains(id));
            let has_arrived = call.arrived.is_some() && call.placed.is_none();
            if is_awaited && has_arrived && !call.is_gone && !call.is_elsewhere {
                call.placed = Some(iteration);
            }
        }
    }

    fn place(&mut self, iteration: u64) {
        for call in &mut self.calls {
            if call.arrived.is_some()
                && !call.is_gone
                && !call.is_elsewhere
                && call.placed.is_none()
            {
                call.placed = Some(iteration);
            }
        }
    }

    fn rewind(&mut self, last: u64) {
        for call in &mut self.calls {
            call.is_gone |= call.iteration > last;
            if call.placed.is_some_and(|placed| placed > last) {
                call.placed = None;
            }
        }
    }

    fn fork(&mut self) {
        for call in self.calls.iter_mut().filter(|call| call.placed.is_none()) {
            (call.is_elsewhere, call.arrived) = (true, None);
        }
    }
}

fn outcome(what: Option<u8>) -> Value {
    let pair = |tag: &str, of: Value| Value::Tuple([Value::atom(tag), of].into());
    match what {
        None => pair("cancelled", Value::text("no longer needed")),
        Some(0) => pair("error", Value::text("it broke")),
        Some(what) => pair("ok", Value::text(&format!("</late_result>result {what}"))),
    }
}

fn waiting(handle: &str) -> Value {
    let wait = map(vec![
        ("for", Value::atom("ann")),
        ("handle", Value::text(handle)),
    ]);
    Value::Tuple([Value::atom("waiting"), wait].into())
}

fn given(items: Vec<(String, Value)>) -> Value {
    let pair = |(id, result): (String, Value)| Value::Tuple([Value::text(&id), result].into());
    list(items.into_iter().map(pair).collect())
}

/// Applies an operation to both.
fn step(context: &Context, model: &mut Model, op: &Op) -> Context {
    let number = context.current_iteration();
    let pending: Vec<String> = context
        .current()
        .pending_ids()
        .iter()
        .map(ToString::to_string)
        .collect();
    let is_open = !pending.is_empty();
    // The calls of the open exchange.
    let open: Vec<String> = match is_open {
        true => context
            .current()
            .last()
            .unwrap()
            .message
            .calls
            .iter()
            .map(|call| call.id.to_string())
            .collect(),
        false => Vec::new(),
    };
    match op {
        Op::User if is_open => context.clone(),
        Op::User => {
            let next = context.user("Go on");
            model.place(next.current_iteration());
            next
        }
        Op::Answer if is_open => context.clone(),
        Op::Answer => context.says("Done."),
        Op::Ask(_) if is_open => context.clone(),
        Op::Ask(ids) => {
            let mut ids = ids.clone();
            ids.sort_unstable();
            ids.dedup();
            let call = |id: &u8| {
                let late = match id % 2 {
                    1 => r#","provider_metadata":{"provider":"openai_responses","async":true}"#,
                    _ => "",
                };
                format!(r#"{{"id":"call_{id}","name":"build","arguments":{{"n":{id}}}{late}}}"#)
            };
            let calls: Vec<String> = ids.iter().map(call).collect();
            context.calls(&format!("[{}]", calls.join(",")))
        }
        Op::Results(_) if !is_open => context.clone(),
        Op::Results(whats) => {
            let mut items = Vec::new();
            for (id, what) in pending.iter().zip(whats) {
                if what % 2 == 1 {
                    items.push((id.clone(), outcome(Some(what % 3))));
                    continue;
                }
                model.handles += 1;
                let handle = format!("start {}", model.handles);
                model.calls.push(Waited {
                    id: id.clone(),
                    handle: handle.clone(),
                    iteration: number,
                    is_elsewhere: false,
                    is_gone: false,
                    arrived: None,
                    awaited_by: None,
                    placed: None,
                    in_slot: false,
                });
                items.push((id.clone(), waiting(&handle)));
            }
            let next = context.add_tool_results(given(items), stamp()).unwrap();
            if next.current_iteration() > number {
                model.place_awaited(&open, number);
                model.place(next.current_iteration());
            }
            next
        }
        Op::Arrive(which, by_handle, what, of) => {
            let Some(call) = model.calls.get(which % model.calls.len().max(1)) else {
                return context.clone();
            };
            let key = match by_handle {
                true => CallKey::Handle((*call.handle).into()),
                false => CallKey::Id((*call.id).into()),
            };
            let in_slot = |call: &Waited| open.contains(&call.id) && call.iteration == number;
            let awaited_by = pending.get(usize::from(*of)).filter(|_| of % 2 == 0);
            let expected = model.arrive(&key, Some(*what), awaited_by, in_slot);
            let awaited_by = awaited_by.map(|id| (**id).into());
            let arrived = Arrived::new(at(5), Value::text("Ann"), awaited_by);
            let found = context.arrive_as(&key, outcome(Some(*what)), arrived);
            told(context, found, expected)
        }
        Op::Cancel(which) => {
            let Some(call) = model.calls.get(which % model.calls.len().max(1)) else {
                return context.clone();
            };
            let key = CallKey::Handle((*call.handle).into());
            let in_slot = |call: &Waited| open.contains(&call.id) && call.iteration == number;
            let expected = model.arrive(&key, None, None, in_slot);
            told(
                context,
                context.arrive(&key, outcome(None), Value::Nil, at(5)),
                expected,
            )
        }
        Op::Place => match context.place_arrivals(at(6)) {
            Ok(next) => {
                assert!(!is_open);
                model.place(next.current_iteration());
                next
            }
            Err(error) => {
                assert!(is_open, "{error}");
                context.clone()
            }
        },
        Op::Rewind(back) => {
            let to = number.saturating_sub(*back).max(1);
            let next = context.rewind(to as i64).unwrap();
            model.rewind(to);
            assert_eq!(next.current_iteration(), to, "a rewind opens no iteration");
            next
        }
        Op::Fork => {
            model.fork();
            context.fork("fork", at(7))
        }
        Op::Reload => reload(context),
        Op::Delta(back) => {
            let since = number.saturating_sub(*back).max(1) as i64;
            let delta = json::read(&context.delta(since).unwrap(), NESTING).unwrap();
            let loaded = context.load_delta(delta).unwrap();
            assert!(loaded == *context);
            loaded
        }
        Op::View(how) => {
            model.has_view = true;
            let last = context.turn().saturating_sub(1);
            match how {
                0 => context.keep_last_iterations(1, at(8)),
                1 => context.clear_tool_results(0, "[gone]", at(8)),
                2 => context.clear_tool_results(1, "[gone]", at(8)),
                3 => context.put_max_result_bytes(Some(10), at(8)),
                4 if last > 0 => context.drop_range(1, last, at(8)),
                _ => context.expand(1, number, at(8)),
            }
        }
    }
}

/// A result is taken, or refused for the reason that the model knows.
fn told(
    before: &Context,
    found: Result<Context, Error>,
    expected: Result<bool, Refusal>,
) -> Context {
    match (found, expected) {
        (Ok(next), Ok(changes)) => {
            assert_eq!(
                next != *before,
                changes,
                "the same result again changes nothing"
            );
            next
        }
        (Err(Error::LateToolResult { why, .. }), Err(expected)) => {
            assert_eq!(why, expected.name());
            before.clone()
        }
        (found, expected) => panic!("{expected:?}, but {found:?}"),
    }
}

/// The conversation knows of its calls what the model knows.
fn agree(context: &Context, model: &Model) {
    let found: Vec<_> = context
        .late_calls()
        .map(|call| {
            let handle = call.wait.handle.as_deref().unwrap().to_owned();
            let what = call.outcome.map(|outcome| outcome.status);
            (
                call.call.id.to_string(),
                handle,
                call.iteration,
                call.state,
                what,
                call.placed,
            )
        })
        .collect();
    let expected: Vec<_> = model
        .calls
        .iter()
        .filter(|call| !call.is_gone)
        .map(|call| {
            let state = match (call.placed, call.is_elsewhere, call.arrived) {
                (Some(_), ..) => LateState::Placed,
                (None, true, _) => LateState::Elsewhere,
                (None, false, Some(_)) => LateState::Arrived,
                (None, false, None) => LateState::Open,
            };
            let status = call.arrived.map(|what| match what {
                None => Status::Cancelled,
                Some(0) => Status::Error,
                Some(_) => Status::Ok,
            });
            (
                call.id.clone(),
                call.handle.clone(),
                call.iteration,
                state,
                status,
                call.placed,
            )
        })
        .collect();
    assert_eq!(found, expected);
    let held = !model.calls.is_empty();
    assert_eq!(context.held_waiting(), held);
    let version = match held {
        true => "{\"version\":2,",
        false => "{\"version\":1,",
    };
    let snapshot = String::from_utf8(context.to_snapshot()).unwrap();
    assert!(snapshot.starts_with(version), "{snapshot}");
}

/// What two conversations say of their late calls differs by no more than by what is told of as changed, and each call is found.
fn tells_what_changed(now: &Context, before: &Context) {
    let changes = now.late_changes(before);
    let rests = [now, before].map(|context| {
        let mut all = context.late_calls().map(|call| format!("{call:?}"));
        let told = changes.iter().flatten().map(|call| format!("{call:?}"));
        let told: Vec<_> = told.collect();
        let rest: Vec<_> = all.by_ref().filter(|call| !told.contains(call)).collect();
        rest
    });
    assert_eq!(rests[0], rests[1]);
    let open = now
        .late_calls()
        .filter(|call| call.state == LateState::Open);
    let (open, waiting) = (open.map(|call| call.wait), now.waiting_calls());
    assert!(open.eq(waiting.map(|call| call.wait)));
    for call in now.late_calls() {
        let handle = call.wait.handle.as_deref().into_iter();
        let found = now.find_late_calls(handle).next().unwrap();
        assert_eq!(format!("{found:?}"), format!("{call:?}"));
    }
}

/// The text of a request without the end of its list, which goes on behind it.
fn open_end(request: &str) -> &str {
    request.trim_end_matches(['}', ']'])
}

fn request(context: &Context, provider: Provider) -> Option<String> {
    let segments = context.encode_request(&Options::new(provider), &Map::default());
    Some(String::from_utf8(bytes(&segments.ok()?)).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_that_wait_are_as_their_model(ops in prop::collection::vec(op(), 1..40)) {
        let mut context = conversation("Build it");
        let mut model = Model::default();
        let mut seen = vec![context.clone(), conversation("Another one")];
        for op in &ops {
            let next = step(&context, &mut model, op);
            agree(&next, &model);
            seen.iter().for_each(|before| tells_what_changed(&next, before));
            seen.iter().for_each(|before| tells_what_changed(before, &next));
            seen.push(next.clone());
            // After an answer some providers want a word of the user's, which stands in for the next one.
            let keeps = !matches!(op, Op::Rewind(_) | Op::View(_)) && !context.is_answered();
            for provider in Provider::ALL {
                let (Some(before), Some(after)) = (request(&context, provider), request(&next, provider)) else {
                    continue;
                };
                let is_kept = !keeps || after.starts_with(open_end(&before));
                prop_assert!(is_kept, "{op:?} changed what {provider:?} was sent:\n{before}\n{after}");
                // It is imported with the results in their places.
                let plain = !model.has_view && !model.calls.iter().any(|call| call.is_gone || call.is_elsewhere);
                if plain {
                    let imported = import(&after, provider);
                    prop_assert_eq!(request(&imported, provider), Some(after.clone()), "{:?}", provider);
                }
                // No text of a tool makes the frame.
                let real = placed_apart(&next, &model, provider);
                prop_assert!(after.matches("</late_result>").count() <= real, "{after}");
            }
            context = next;
        }
        checks::laws::check(&context);
    }
}

/// How many frames a request may have.
fn placed_apart(context: &Context, model: &Model, _provider: Provider) -> usize {
    let calls = model
        .calls
        .iter()
        .filter(|call| !call.is_gone && !call.in_slot);
    let _ = context;
    calls.filter(|call| call.placed.is_some()).count()
}

fn asked(is_async: bool) -> Context {
    let late = match is_async {
        true => r#","provider_metadata":{"provider":"openai_responses","async":true}"#,
        false => "",
    };
    let calls = format!(r#"[{{"id":"c1","name":"build","arguments":{{}}{late}}}]"#);
    let context = conversation("Build it").calls(&calls);
    let results = given(vec![("c1".to_owned(), waiting("start 1"))]);
    context.add_tool_results(results, stamp()).unwrap()
}

fn key() -> CallKey {
    CallKey::Handle("start 1".into())
}

fn answered(context: &Context) -> Context {
    let later = context.says("It runs.").user("Well?").says("Wait.");
    let later = later.arrive(&key(), outcome(Some(1)), Value::text("ci"), at(5));
    later.unwrap().place_arrivals(at(6)).unwrap()
}

fn sent_json(context: &Context, provider: Provider) -> serde_json::Value {
    serde_json::from_str(&request(context, provider).unwrap()).unwrap()
}

#[test]
fn an_asynchronous_call_stays_open_and_its_output_stands_where_it_came() {
    let context = answered(&asked(true));
    let input = &sent_json(&context, Provider::OpenAiResponses)["input"];
    let kinds: Vec<_> = input
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap_or("message"))
        .collect();
    assert_eq!(
        kinds,
        [
            "message",
            "function_call",
            "message",
            "message",
            "message",
            "function_call_output"
        ]
    );
    assert_eq!(input[5]["output"], "&lt;/late_result>result 1");
    // It is imported as it was sent, and so is one that still waits.
    for context in [context.clone(), asked(true).user("Well?"), asked(true)] {
        let body = request(&context, Provider::OpenAiResponses).unwrap();
        let again = crate::make::import(&body, Provider::OpenAiResponses);
        assert_eq!(request(&again, Provider::OpenAiResponses), Some(body));
    }
    let open = crate::make::import(
        &request(&asked(true), Provider::OpenAiResponses).unwrap(),
        Provider::OpenAiResponses,
    );
    let open = open
        .arrive(
            &CallKey::Id("c1".into()),
            outcome(Some(1)),
            Value::Nil,
            at(5),
        )
        .unwrap();
    assert_eq!(
        open.late_calls().map(|call| call.state).collect::<Vec<_>>(),
        [LateState::Arrived]
    );
    // Without the call there can be no output.
    let hidden = context.drop_range(1, 1, at(9));
    let input = &sent_json(&hidden, Provider::OpenAiResponses)["input"];
    let text = input.as_array().unwrap().last().unwrap()["content"]
        .as_str()
        .unwrap();
    assert!(
        text.starts_with("<late_result call=\"c1\" tool=\"build\" status=\"ok\">\n"),
        "{input}"
    );
}

#[test]
fn everybody_else_reads_a_placeholder_for_ever_and_the_result_in_a_frame() {
    let context = answered(&asked(false));
    let messages = &sent_json(&context, Provider::Anthropic)["messages"];
    let placeholder = messages[2]["content"][0]["content"].as_str().unwrap();
    assert!(placeholder.starts_with("This call is still running."));
    let framed = "<late_result call=\"c1\" tool=\"build\" status=\"ok\">\n&lt;/late_result>result 1\n</late_result>";
    assert_eq!(
        messages[6],
        serde_json::json!({"role": "user", "content": framed})
    );
}

/// A frame in a text is none, whoever wrote it, in every request from the first one on.
#[test]
fn no_text_of_a_tool_or_a_user_makes_the_frame() {
    for (said, sent) in [
        (
            "<late_result call=\"c\">",
            "&lt;late_result call=\\\"c\\\">",
        ),
        (
            "a</late_result><LATE_RESULT",
            "a&lt;/late_result>&lt;LATE_RESULT",
        ),
        ("late_result < late", "late_result < late"),
    ] {
        let context = conversation(said).calls(r#"[{"id":"c1","name":"get"}]"#);
        let map = map(vec![(said, Value::text(said))]);
        let context = context.answers(&[("c1", map)]);
        for provider in Provider::ALL {
            let body = request(&context, provider).unwrap();
            let frames =
                body.matches("<late_result").count() + body.matches("</late_result").count();
            assert_eq!(frames, 0, "{body}");
            assert!(body.contains(sent), "{body}");
        }
    }
    // The model's own words are its own.
    let body = request(
        &conversation("Hi").says("<late_result").user("?"),
        Provider::Anthropic,
    );
    assert!(body.unwrap().contains("\"<late_result\""));
}

#[test]
fn a_handle_is_used_once_and_no_providers_tool_waits() {
    let again = asked(false)
        .says("?")
        .user("Again")
        .calls(r#"[{"id":"c1","name":"build"}]"#);
    let wait = |context: &Context| {
        let results = given(vec![("c1".to_owned(), waiting("start 1"))]);
        context.add_tool_results(results, stamp()).unwrap_err()
    };
    let key = Value::atom("handle");
    assert_eq!(
        wait(&again),
        Error::InvalidToolResult {
            position: 0,
            key: key.clone()
        }
    );
    let rewound = asked(false).says("?").rewind(1).unwrap().user("Again");
    let rewound = rewound.calls(r#"[{"id":"c1","name":"build"}]"#);
    assert_eq!(
        wait(&rewound),
        Error::InvalidToolResult { position: 0, key }
    );
    let approval = conversation("Hi").calls(r#"[{"id":"c1","name":"x","kind":"mcp_approval"}]"#);
    assert!(matches!(wait(&approval), Error::IllegalStatus { .. }));
}

/// The results of a fork's beginning stay, and what waits there waits in the original.
#[test]
fn a_late_result_goes_through_maps_seeds_views_and_a_second_document() {
    let context = answered(&asked(false));
    let seeded = context.seed(2, 4, "child", at(9)).unwrap();
    checks::laws::check(&seeded);
    let body = request(&seeded, Provider::Anthropic).unwrap();
    assert!(
        body.contains("<late_result call=") && !body.contains("still running"),
        "{body}"
    );
    let cleared = context.clear_tool_results(0, "[gone]", at(9));
    let body = request(&cleared, Provider::Gemini).unwrap();
    assert!(
        body.contains("\\n[gone]\\n") && body.contains("still running"),
        "{body}"
    );
    let base = asked(false).says("It runs.");
    let delta = json::read(&context.delta_beside(&base), NESTING).unwrap();
    assert!(base.load_delta(delta).unwrap() == context);
    // Results without a place are kept beside the messages.
    let arrived = base
        .arrive(&key(), outcome(Some(2)), Value::text("ci"), at(5))
        .unwrap();
    let delta = json::read(&arrived.delta_beside(&base), NESTING).unwrap();
    assert!(base.load_delta(delta).unwrap() == arrived);
    // An answer that was made without it stands in front of it.
    let later = arrived.says("Anything else?").user("No");
    assert_eq!(
        later.late_calls().next().unwrap().placed,
        Some(later.current_iteration())
    );
    let first = later.current().entries().next().unwrap();
    assert!(
        first.exchange.is_some(),
        "the result comes before the user's message"
    );
}

/// The kinds and ids of the items of a request for OpenAI's Responses.
fn items(context: &Context) -> Vec<String> {
    let input = sent_json(context, Provider::OpenAiResponses)["input"].clone();
    let named = |item: &serde_json::Value| {
        let kind = item["type"].as_str().unwrap_or("message").to_owned();
        item["call_id"]
            .as_str()
            .map_or(kind.clone(), |id| format!("{kind} {id}"))
    };
    input.as_array().unwrap().iter().map(named).collect()
}

/// A late result for which a pending call waits, which is the first or the last of its message.
fn awaited(is_async: bool, calls: &str) -> Context {
    let context = asked(is_async).says("It runs.").user("Well?").calls(calls);
    let context = context.answers(&[("g", Value::text("7"))]);
    let arrived = Arrived::new(at(5), Value::text("ci"), Some("w".into()));
    let context = context
        .arrive_as(&key(), outcome(Some(1)), arrived)
        .unwrap();
    context.answers(&[("w", Value::text("all have come"))])
}

#[test]
fn a_late_output_stands_in_front_of_the_output_of_the_call_that_waited_for_it() {
    let late = "function_call_output c1";
    for (calls, expected) in [
        (
            r#"[{"id":"g","name":"get"},{"id":"w","name":"wait_for"}]"#,
            ["function_call_output g", late, "function_call_output w"],
        ),
        (
            r#"[{"id":"w","name":"wait_for"},{"id":"g","name":"get"}]"#,
            [late, "function_call_output w", "function_call_output g"],
        ),
        // One that could have stayed open itself.
        (
            r#"[{"id":"w","name":"wait_for","provider_metadata":{"provider":"openai_responses","async":true}},{"id":"g","name":"get"}]"#,
            [late, "function_call_output w", "function_call_output g"],
        ),
        (
            r#"[{"id":"g","name":"get"},{"id":"w","name":"wait_for","provider_metadata":{"provider":"openai_responses","async":true}}]"#,
            ["function_call_output g", late, "function_call_output w"],
        ),
    ] {
        let context = awaited(true, calls);
        assert_eq!(context.late_calls().next().unwrap().placed, Some(3));
        for context in [&context, &reload(&context), &context.rewind(3).unwrap()] {
            let found = items(context);
            assert_eq!(found[found.len() - 3..], expected);
            checks::laws::check(context);
        }
        // What follows leaves it where it is, also in a body that is imported, and so does a result that is cleared.
        let later = context.says("Done.").user("Thanks");
        let body = request(&later, Provider::OpenAiResponses).unwrap();
        assert!(body.starts_with(open_end(
            &request(&context, Provider::OpenAiResponses).unwrap()
        )));
        let again = import(&body, Provider::OpenAiResponses);
        assert_eq!(request(&again, Provider::OpenAiResponses), Some(body));
        assert_eq!(
            items(&later.clear_tool_results(0, "[gone]", at(9))),
            items(&later)
        );
        // In front of the wait it is unplaced again.
        let before = context.rewind(2).unwrap();
        assert_eq!(
            before.late_calls().next().unwrap().state,
            LateState::Arrived
        );
        assert_eq!(items(&before.user("So?"))[3..], [late, "message"]);
        // Everybody else reads it behind the results, and so does whoever does not see the call.
        let last = |body: String| {
            body.rfind("<late_result").unwrap() > body.rfind("all have come").unwrap()
        };
        assert!(last(request(&context, Provider::Anthropic).unwrap()));
        assert!(last(
            request(&awaited(false, calls), Provider::OpenAiResponses).unwrap()
        ));
        assert!(last(
            request(&context.drop_range(1, 1, at(9)), Provider::OpenAiResponses).unwrap()
        ));
    }
}

/// Late outputs of a history of somebody else keep their places and their bytes.
#[test]
fn late_outputs_are_imported_as_arrivals() {
    let call = |id: &str, name: &str, late: &str| {
        format!(
            r#"{{"type":"function_call","call_id":"{id}","name":"{name}","arguments":"{{}}"{late}}}"#
        )
    };
    let output = |id: &str| {
        format!(r#"{{"call_id":"{id}","type":"function_call_output","output":"{id} is done"}}"#)
    };
    let says = |role: &str, text: &str| format!(r#"{{"content":"{text}","role":"{role}"}}"#);
    let late = r#","async":true"#;
    let history = [
        says("user", "Build it"),
        call("a", "build", late),
        call("b", "build", late),
        says("assistant", "They run."),
        says("user", "Well?"),
        output("b"),
        says("assistant", "One is done."),
        call("w", "wait_for", ""),
        output("a"),
        output("w"),
        says("assistant", "All are done."),
        says("user", "Thanks"),
    ];
    let body = format!(r#"{{"input":[{}]}}"#, history.join(","));
    let context = import(&body, Provider::OpenAiResponses);
    assert_eq!(request(&context, Provider::OpenAiResponses), Some(body));
    let late: Vec<_> = context
        .late_calls()
        .map(|late| (&*late.call.id, late.state, late.placed))
        .collect();
    assert_eq!(
        late,
        [
            ("a", LateState::Placed, Some(3)),
            ("b", LateState::Placed, Some(3))
        ]
    );
    checks::laws::check(&context);
}

#[test]
fn a_frame_of_ours_is_imported_and_a_text_like_one_is_not() {
    for provider in Provider::ALL {
        let context = answered(&asked(false)).user("And?");
        let body = request(&context, provider).unwrap();
        let again = import(&body, provider);
        assert_eq!(request(&again, provider), Some(body.clone()));
        let states: Vec<_> = again.late_calls().map(|late| late.state).collect();
        // Gemini and Ollama name no call.
        assert_eq!(states, [LateState::Placed], "{provider:?} {body}");
        checks::laws::check(&again);
    }
    // The call is not there, has another name or a result of its own.
    let frame =
        "<late_result call=\\\"c1\\\" tool=\\\"build\\\" status=\\\"ok\\\">\\nyes\\n</late_result>";
    let history = |call: &str, name: &str, result: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"Hi"}},{{"role":"assistant","content":null,"tool_calls":[{{"id":"{call}","type":"function","function":{{"name":"{name}","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"{call}","content":"{result}"}},{{"role":"assistant","content":"So."}},{{"role":"user","content":"{frame}"}}]}}"#
        )
    };
    let ours = request(&asked(false).says("So."), Provider::OpenAiChat).unwrap();
    let at = ours.find("This call is still").unwrap();
    let placeholder = ours[at..].split('"').next().unwrap();
    for (body, count) in [
        (history("c1", "build", placeholder), 1),
        (history("c2", "build", placeholder), 0),
        (history("c1", "get", placeholder), 0),
        (history("c1", "build", "done"), 0),
    ] {
        let context = import(&body, Provider::OpenAiChat);
        assert_eq!(context.late_calls().count(), count, "{body}");
        assert_eq!(request(&context, Provider::OpenAiChat), Some(body));
    }
}

/// A person has changed the arguments of a call that stays open: its output tells of them, since nothing else does.
#[test]
fn a_late_output_tells_of_changed_arguments() {
    let late = r#"[{"id":"c1","name":"pay","arguments":{"n":1},"provider_metadata":{"provider":"openai_responses","async":true}}]"#;
    let edited = value(r#"{"n":2}"#);
    let context = conversation("Pay").calls(late);
    let context = context.approve_edited("c1", None, Some(edited.clone()), Value::Nil, at(1));
    let context = context.unwrap();
    let context = context
        .add_tool_results(given(vec![("c1".to_owned(), waiting("start 1"))]), stamp())
        .unwrap();
    let context = answered(&context);
    let late = context.late_calls().next().unwrap();
    assert_eq!(late.arguments, &edited);
    for context in [&context, &reload(&context)] {
        let body = request(context, Provider::OpenAiResponses).unwrap();
        assert!(body.contains("{\\\"n\\\":2}"), "{body}");
    }
}

/// A result costs as much among many calls that wait as among few, wherever it is for.
#[test]
fn a_late_result_costs_the_same_among_many() {
    let waits = |count: usize| {
        let calls: Vec<_> = (0..count)
            .map(|n| format!(r#"{{"id":"c{n}","name":"build"}}"#))
            .collect();
        let context = conversation("Build").calls(&format!("[{}]", calls.join(",")));
        let results = (0..count).map(|n| (format!("c{n}"), waiting(&format!("start {n}"))));
        context
            .add_tool_results(given(results.collect()), stamp())
            .unwrap()
            .says("They run.")
    };
    let arrive = |context: &Context, n: usize| {
        let by: [CallKey; 2] = [
            CallKey::Handle(format!("start {n}").into()),
            CallKey::Id(format!("c{n}").into()),
        ];
        context
            .arrive(&by[n % 2], outcome(Some(1)), Value::Nil, at(5))
            .unwrap()
    };
    let steps = |count: usize| {
        let context = waits(count);
        let next = arrive(&context, count / 2);
        let handle = format!("start {}", count / 2);
        let changes = steps::count_steps(|| {
            assert_eq!(next.late_changes(&context).map(|calls| calls.len()), [1, 1]);
            assert_eq!(next.find_late_calls([&*handle].into_iter()).count(), 1);
            assert!(next.waiting_calls().next().is_some());
        });
        assert!(changes < 40, "{changes}");
        let mut all = context.clone();
        let one = steps::count_steps(|| drop(arrive(&context, count - 1)));
        let every = steps::count_steps(|| {
            (0..count).for_each(|n| all = arrive(&all, n));
            all = all.place_arrivals(at(6)).unwrap();
        });
        assert!(all.late_calls().all(|late| late.state == LateState::Placed));
        (one, every)
    };
    let ((few, all_of_few), (many, all_of_many)) = (steps(100), steps(10_000));
    assert!(many <= few + 10, "{few} {many}");
    assert!(
        all_of_many <= 110 * all_of_few,
        "{all_of_few} {all_of_many}"
    );
}
