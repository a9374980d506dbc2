//! Calls that are answered later: random conversations beside a plain model of which call waits and what has arrived, and the
//! laws of what is sent, kept, rewound and forked.

use crate::checks;
use crate::make::{at, bytes, conversation, list, map, reload, stamp, Talk};

use ash_agent_context_core::{
    json, CallKey, Context, Error, LateState, Map, Options, Provider, Refusal, Status, Value,
    NESTING,
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
    /// A result for one of the calls that ever waited: by its handle or by its id, and one of few results.
    Arrive(usize, bool, u8),
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
        7 => (any::<usize>(), any::<bool>(), 0..3u8).prop_map(|(which, by, what)| Op::Arrive(which, by, what)),
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
        if in_slot(call) {
            (call.placed, call.in_slot) = (Some(call.iteration), true);
        }
        Ok(true)
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
                    placed: None,
                    in_slot: false,
                });
                items.push((id.clone(), waiting(&handle)));
            }
            let next = context.add_tool_results(given(items), stamp()).unwrap();
            if next.current_iteration() > number {
                model.place(next.current_iteration());
            }
            next
        }
        Op::Arrive(which, by_handle, what) => {
            let Some(call) = model.calls.get(which % model.calls.len().max(1)) else {
                return context.clone();
            };
            let key = match by_handle {
                true => CallKey::Handle((*call.handle).into()),
                false => CallKey::Id((*call.id).into()),
            };
            let in_slot = |call: &Waited| open.contains(&call.id) && call.iteration == number;
            let expected = model.arrive(&key, Some(*what), in_slot);
            let found = context.arrive(&key, outcome(Some(*what)), Value::text("Ann"), at(5));
            told(context, found, expected)
        }
        Op::Cancel(which) => {
            let Some(call) = model.calls.get(which % model.calls.len().max(1)) else {
                return context.clone();
            };
            let key = CallKey::Handle((*call.handle).into());
            let in_slot = |call: &Waited| open.contains(&call.id) && call.iteration == number;
            let expected = model.arrive(&key, None, in_slot);
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
        for op in &ops {
            let next = step(&context, &mut model, op);
            agree(&next, &model);
            // After an answer some providers want a word of the user's, which stands in for the next one.
            let keeps = !matches!(op, Op::Rewind(_) | Op::View(_)) && !context.is_answered();
            for provider in Provider::ALL {
                let (Some(before), Some(after)) = (request(&context, provider), request(&next, provider)) else {
                    continue;
                };
                let is_kept = !keeps || after.starts_with(open_end(&before));
                prop_assert!(is_kept, "{op:?} changed what {provider:?} was sent:\n{before}\n{after}");
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
