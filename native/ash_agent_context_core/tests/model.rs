//! Random operations on a context and on a model of plain vectors, which must agree after each step.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used
)]

use std::collections::BTreeMap;

use ash_agent_context_core::{
    time, Content, Context, Error, Exchange, Iteration, Map, MessageRef, Notes, Output, Role, Size,
    Stamp, Status, Time, ToolCall, Value,
};
use proptest::prelude::*;

fn at(micros: i64) -> Time {
    time::from_micros(micros).unwrap()
}

fn map(entries: &[(&str, Value)]) -> Value {
    let entries = entries.iter().cloned();
    Value::Map(Map::new(
        entries
            .map(|(key, value)| (Value::atom(key), value))
            .collect(),
    ))
}

fn list(items: Vec<Value>) -> Value {
    Value::List(items.into_boxed_slice())
}

fn tuple(items: Vec<Value>) -> Value {
    Value::Tuple(items.into_boxed_slice())
}

/// What an application can do.
#[derive(Debug, Clone)]
enum Op {
    User(Option<String>, Option<Note>),
    Assistant(Option<String>, Vec<Option<u8>>, Option<Note>),
    Results(Vec<Given>, Option<Note>),
    Interrupt(u8),
    PutMetadata(Note),
    PutIterationMetadata(i8, Note),
    /// Goes on from an older context.
    Fork(usize),
}

type Note = (u8, u8);

/// A result for one of the calls, or for none of them.
#[derive(Debug, Clone)]
struct Given {
    whose: Whose,
    is_ok: bool,
    value: u8,
}

#[derive(Debug, Clone)]
enum Whose {
    Pending(usize),
    Any(usize),
    Nobody,
}

#[derive(Debug, Clone, Default)]
struct Model {
    iterations: Vec<ModelIteration>,
    notes: BTreeMap<Value, Value>,
    updated_at: i64,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct ModelIteration {
    started_at: i64,
    completed_at: Option<i64>,
    notes: BTreeMap<Value, Value>,
    messages: Vec<ModelMessage>,
}

#[derive(Debug, Clone, PartialEq)]
struct ModelMessage {
    role: Role,
    text: Option<String>,
    note: Option<Map>,
    calls: Vec<(String, Option<(Status, Value)>)>,
    result_notes: BTreeMap<Value, Value>,
}

/// A message as users and providers see it.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Added(Role, Option<String>, Option<Map>, Vec<String>),
    Results(Vec<(String, Status, Value)>, BTreeMap<Value, Value>),
}

impl ModelMessage {
    fn new(role: Role, text: Option<String>, note: Option<Note>) -> Self {
        Self {
            role,
            text,
            note: note.map(note_map),
            calls: Vec::new(),
            result_notes: BTreeMap::new(),
        }
    }

    fn seen(&self) -> Vec<Seen> {
        let ids = self.calls.iter().map(|(id, _)| id.clone()).collect();
        let mut seen = vec![Seen::Added(
            self.role,
            self.text.clone(),
            self.note.clone(),
            ids,
        )];
        let filled: Vec<_> = self
            .calls
            .iter()
            .filter_map(|(id, result)| result.clone().map(|(s, value)| (id.clone(), s, value)))
            .collect();
        if !filled.is_empty() {
            seen.push(Seen::Results(filled, self.result_notes.clone()));
        }
        seen
    }
}

impl Model {
    fn current(&mut self) -> &mut ModelIteration {
        self.iterations.last_mut().unwrap()
    }

    fn pending(&self) -> Vec<Box<str>> {
        let last = self.iterations.last().and_then(|i| i.messages.last());
        let calls = last.into_iter().flat_map(|message| &message.calls);
        calls
            .filter(|(_, result)| result.is_none())
            .map(|(id, _)| id.as_str().into())
            .collect()
    }

    fn seen(&self, iteration: usize) -> Vec<Seen> {
        let lead =
            (iteration == 0).then(|| Seen::Added(Role::System, Some("S".into()), None, vec![]));
        let messages = self.iterations[iteration].messages.iter();
        lead.into_iter()
            .chain(messages.flat_map(ModelMessage::seen))
            .collect()
    }

    fn complete(&mut self, now: i64) {
        self.current().completed_at = Some(now);
        self.iterations.push(ModelIteration {
            started_at: now,
            ..ModelIteration::default()
        });
    }

    /// What an operation is expected to give.
    fn apply(&self, op: &Op, results: &[(String, Status, Value)], now: i64) -> Result<Self, Error> {
        let mut next = self.clone();
        next.updated_at = now;
        let pending = self.pending();
        let refused = |ids: &[Box<str>]| Error::PendingToolCalls { ids: ids.to_vec() };
        match op {
            Op::Fork(_) => unreachable!(),
            Op::User(..) | Op::Assistant(..) if !pending.is_empty() => Err(refused(&pending)),
            Op::User(text, note) => {
                let spoken = |message: &ModelMessage| message.role == Role::Assistant;
                if next.current().messages.iter().any(spoken) {
                    next.complete(now);
                }
                let message = ModelMessage::new(Role::User, text.clone(), *note);
                next.current().messages.push(message);
                Ok(next)
            }
            Op::Assistant(text, ids, note) => {
                let number = self.iterations.len();
                let position = self.seen(number - 1).len();
                let mut message = ModelMessage::new(Role::Assistant, text.clone(), *note);
                for (call, id) in ids.iter().enumerate() {
                    let id = id.map_or_else(|| format!("call_{number}_{position}_{call}"), call_id);
                    if message.calls.iter().any(|(other, _)| *other == id) {
                        return Err(Error::DuplicateToolCall { id: id.into() });
                    }
                    message.calls.push((id, None));
                }
                next.current().messages.push(message);
                Ok(next)
            }
            Op::Results(_, note) => next.fill(results, *note, now),
            Op::Interrupt(_) if pending.is_empty() => Ok(self.clone()),
            Op::Interrupt(reason) => {
                let reason = Value::Int(i64::from(*reason));
                let all: Vec<_> = pending
                    .iter()
                    .map(|id| (id.to_string(), Status::Interrupted, reason.clone()))
                    .collect();
                next.fill(&all, None, now)
            }
            Op::PutMetadata(note) => {
                next.notes.extend(note_map(*note).into_entries());
                Ok(next)
            }
            Op::PutIterationMetadata(number, note) => {
                let index = usize::try_from(*number).ok().and_then(|n| n.checked_sub(1));
                let last = u64::try_from(self.iterations.len()).unwrap();
                match index.and_then(|index| next.iterations.get_mut(index)) {
                    None => Err(Error::UnknownIteration {
                        number: (*number).into(),
                        first: 1,
                        last,
                    }),
                    Some(iteration) => {
                        iteration.notes.extend(note_map(*note).into_entries());
                        Ok(next)
                    }
                }
            }
        }
    }

    fn fill(
        mut self,
        results: &[(String, Status, Value)],
        note: Option<Note>,
        now: i64,
    ) -> Result<Self, Error> {
        let pending = self.pending();
        if results.is_empty() {
            return Err(Error::NoToolResults { pending });
        }
        if pending.is_empty() {
            let given = results.iter().map(|(id, ..)| id.as_str().into()).collect();
            return Err(Error::NoPendingToolCalls { given });
        }
        let message = self.current().messages.last_mut().unwrap();
        for (position, (id, status, value)) in results.iter().enumerate() {
            let id: Box<str> = id.as_str().into();
            let Some((_, slot)) = message.calls.iter_mut().find(|(other, _)| **other == *id) else {
                return Err(Error::UnknownToolCall { id, pending });
            };
            if results[..position].iter().any(|(other, ..)| **other == *id) {
                return Err(Error::DuplicateToolResult { id });
            }
            if slot.is_some() {
                return Err(Error::ToolCallAlreadyAnswered { id, pending });
            }
            *slot = Some((*status, value.clone()));
        }
        let notes = note
            .into_iter()
            .flat_map(|note| note_map(note).into_entries());
        message.result_notes.extend(notes);
        if self.pending().is_empty() {
            self.complete(now);
        }
        Ok(self)
    }

    /// The results that are meant, by the ids of the last message's calls.
    fn results(&self, given: &[Given]) -> Vec<(String, Status, Value)> {
        let pending = self.pending();
        let last = self.iterations.iter().rev().find_map(|i| i.messages.last());
        let all: Vec<&str> = last
            .into_iter()
            .flat_map(|message| message.calls.iter().map(|(id, _)| id.as_str()))
            .collect();
        let one = |given: &Given| {
            let id = match given.whose {
                Whose::Pending(n) if !pending.is_empty() => &*pending[n % pending.len()],
                Whose::Any(n) if !all.is_empty() => all[n % all.len()],
                _ => "nobody",
            };
            let status = if given.is_ok {
                Status::Ok
            } else {
                Status::Error
            };
            (id.to_owned(), status, Value::Int(given.value.into()))
        };
        given.iter().map(one).collect()
    }
}

fn call_id(id: u8) -> String {
    format!("id{id}")
}

fn note_map((key, value): Note) -> Map {
    // Values of differing sizes: replacing one makes the whole smaller at times.
    Map::new(vec![(
        Value::Int(key.into()),
        list(vec![Value::text("note"); value.into()]),
    )])
}

fn text_value(text: Option<&String>) -> Value {
    text.map_or(Value::Nil, |text| Value::text(text))
}

fn apply(
    context: &Context,
    op: &Op,
    results: &[(String, Status, Value)],
    now: i64,
) -> Result<Context, Error> {
    let stamp = |note: &Option<Note>| Stamp {
        at: at(now),
        metadata: note.map(note_map),
    };
    match op {
        Op::Fork(_) => unreachable!(),
        Op::User(text, note) => context.add_user_message(text_value(text.as_ref()), stamp(note)),
        Op::Assistant(text, ids, note) => {
            let call = |id: &Option<u8>| {
                let id = id.map_or(Value::Nil, |id| Value::text(&call_id(id)));
                map(&[("id", id), ("name", Value::atom("tool"))])
            };
            let calls = list(ids.iter().map(call).collect());
            context.add_assistant_message(text_value(text.as_ref()), calls, stamp(note))
        }
        Op::Results(_, note) => {
            let one = |(position, (id, status, value)): (usize, &(String, Status, Value))| {
                let status = Value::atom(if *status == Status::Ok { "ok" } else { "error" });
                let result = tuple(vec![status, value.clone()]);
                // Both forms that a caller may use.
                if position % 2 == 0 {
                    tuple(vec![Value::text(id), result])
                } else {
                    map(&[("id", Value::text(id)), ("result", result)])
                }
            };
            let given = list(results.iter().enumerate().map(one).collect());
            context.add_tool_results(given, stamp(note))
        }
        Op::Interrupt(reason) => {
            Ok(context.interrupt(&Value::Int((*reason).into()), Stamp::at(at(now))))
        }
        Op::PutMetadata(note) => {
            let (key, value) = note_map(*note).into_entries().remove(0);
            Ok(context.put_metadata(key, value, at(now)))
        }
        Op::PutIterationMetadata(number, note) => {
            let (key, value) = note_map(*note).into_entries().remove(0);
            context.put_iteration_metadata((*number).into(), key, value, at(now))
        }
    }
}

fn seen(message: MessageRef<'_>) -> Seen {
    match message {
        MessageRef::Added(message) => {
            let text = match &message.content {
                Content::None => None,
                Content::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
                Content::Parts(_) => panic!("no parts were added"),
            };
            let ids = message.calls.iter().map(|call| call.id.to_string());
            Seen::Added(message.role, text, message.metadata.clone(), ids.collect())
        }
        MessageRef::Results(calls, exchange) => Seen::Results(
            filled(calls, exchange),
            notes_of(exchange.metadata.as_ref()),
        ),
    }
}

fn filled(calls: &[ToolCall], exchange: &Exchange) -> Vec<(String, Status, Value)> {
    let results = calls.iter().zip(exchange.slots());
    results
        .filter_map(|(call, outcome)| {
            let outcome = outcome?;
            let Output::Value(value) = &outcome.output else {
                panic!("no parts were given")
            };
            Some((call.id.to_string(), outcome.status, value.clone()))
        })
        .collect()
}

fn notes_of(map: Option<&Map>) -> BTreeMap<Value, Value> {
    map.into_iter().flat_map(Map::iter).cloned().collect()
}

fn entries(notes: &Notes) -> BTreeMap<Value, Value> {
    let entries = notes.iter();
    entries
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The size of an iteration, counted anew.
fn recount(iteration: &Iteration) -> Size {
    let start = iteration.metadata.size().plus(Size::new(8, 0));
    iteration
        .messages()
        .fold(start, |sum, message| match message {
            MessageRef::Added(message) => sum.plus(message.size()),
            MessageRef::Results(_, exchange) => {
                let notes = exchange
                    .metadata
                    .as_ref()
                    .map_or(Size::default(), Map::size);
                let outcomes = exchange.slots().flatten();
                outcomes.fold(sum.plus(notes), |sum, outcome| sum.plus(outcome.size()))
            }
        })
}

fn compare(context: &Context, model: &Model) {
    let last = model.iterations.len();
    assert_eq!(context.count_iterations(), last);
    assert_eq!(context.current_iteration(), u64::try_from(last).unwrap());
    assert_eq!(context.first_number(), 1);
    assert_eq!(context.updated_at(), at(model.updated_at));
    assert_eq!(context.created_at(), at(0));
    assert_eq!(entries(context.metadata()), model.notes);
    assert_eq!(context.current().pending_ids(), model.pending());
    assert_eq!(context.current().count_pending(), model.pending().len());

    let mut all = Vec::new();
    let mut size = context
        .metadata()
        .size()
        .plus(context.system().unwrap().size());
    for (index, (iteration, expected)) in context.iterations().zip(&model.iterations).enumerate() {
        let number = i64::try_from(index).unwrap() + 1;
        assert_eq!(i64::try_from(iteration.number).unwrap(), number);
        assert_eq!(context.iteration(number), Some(iteration));
        assert_eq!(iteration.started_at, at(expected.started_at));
        assert_eq!(iteration.completed_at, expected.completed_at.map(at));
        assert_eq!(entries(&iteration.metadata), expected.notes);
        let messages: Vec<_> = context.messages_of(iteration).map(seen).collect();
        assert_eq!(messages, model.seen(index));
        assert_eq!(
            iteration.count_messages() + usize::from(index == 0),
            messages.len()
        );
        for (position, message) in messages.iter().enumerate() {
            let found = context.message(number, position).map(seen);
            assert_eq!(found.as_ref(), Some(message));
        }
        assert!(context.message(number, messages.len()).is_none());
        assert_eq!(iteration.size(), recount(iteration));
        size = size.plus(iteration.size());
        let calls: Vec<String> = iteration
            .calls()
            .map(|(call, _)| call.id.to_string())
            .collect();
        let in_model = expected.messages.iter().flat_map(|m| &m.calls);
        assert_eq!(
            calls,
            in_model.map(|(id, _)| id.clone()).collect::<Vec<_>>()
        );
        all.extend(messages);
    }
    assert_eq!(context.count_messages(), all.len());
    assert_eq!(context.log().map(seen).collect::<Vec<_>>(), all);
    assert_eq!(context.size(), size);
    let beyond = i64::try_from(last).unwrap() + 1;
    for missing in [0, -1, beyond, i64::MIN, i64::MAX] {
        assert!(context.iteration(missing).is_none());
        assert!(context.message(missing, 0).is_none());
    }
    assert_eq!(context.current_iteration(), u64::try_from(last).unwrap());
    let asks = |entry: &ash_agent_context_core::Entry| {
        entry.message.role == ash_agent_context_core::Role::User
    };
    let asked = context
        .iterations()
        .filter(|iteration| iteration.entries().any(asks))
        .last();
    if let Some(asked) = asked {
        assert_eq!(context.turn(), asked.number);
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let note = || (0..3u8, 0..4u8);
    let text = || proptest::option::of("[a-c ]{0,3}");
    let maybe = || proptest::option::weighted(0.2, note());
    let whose = prop_oneof![
        8 => (0..12usize).prop_map(Whose::Pending),
        1 => (0..12usize).prop_map(Whose::Any),
        1 => Just(Whose::Nobody),
    ];
    let given = (whose, any::<bool>(), any::<u8>()).prop_map(|(whose, is_ok, value)| Given {
        whose,
        is_ok,
        value,
    });
    // Distinct ones most of the time.
    let ids = prop_oneof![
        3 => Just(Vec::new()),
        4 => proptest::sample::subsequence((0..14).map(Some).collect::<Vec<_>>(), 1..4),
        1 => proptest::sample::subsequence((0..14).map(Some).collect::<Vec<_>>(), 8..12),
        2 => proptest::collection::vec(proptest::option::of(0..14u8), 1..12),
    ];
    let op = prop_oneof![
        3 => (text(), maybe()).prop_map(|(text, note)| Op::User(text, note)),
        6 => (text(), ids, maybe()).prop_map(|(text, ids, note)| Op::Assistant(text, ids, note)),
        9 => (proptest::collection::vec(given, 0..4), maybe())
            .prop_map(|(given, note)| Op::Results(given, note)),
        1 => any::<u8>().prop_map(Op::Interrupt),
        1 => note().prop_map(Op::PutMetadata),
        1 => (-1..6i8, note()).prop_map(|(number, note)| Op::PutIterationMetadata(number, note)),
        1 => any::<usize>().prop_map(Op::Fork),
    ];
    proptest::collection::vec(op, 1..40)
}

fn begin() -> (Context, Model) {
    let context = Context::new("c", Value::text("hi"), Value::text("S"), Stamp::at(at(0)));
    let mut model = Model::default();
    model.iterations.push(ModelIteration {
        messages: vec![ModelMessage::new(Role::User, Some("hi".into()), None)],
        ..ModelIteration::default()
    });
    (context.unwrap(), model)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_context_does_what_its_model_does(ops in ops()) {
        let mut history = vec![begin()];
        let mut now = 0;
        let mut current = 0;
        for op in &ops {
            now += 1;
            if let Op::Fork(n) = op {
                current = n % history.len();
                continue;
            }
            let (context, model) = &history[current];
            let results = match op {
                Op::Results(given, _) => model.results(given),
                _ => Vec::new(),
            };
            let (found, expected) = (apply(context, op, &results, now), model.apply(op, &results, now));
            match (found, expected) {
                (Ok(context), Ok(model)) => {
                    compare(&context, &model);
                    history.push((context, model));
                    current = history.len() - 1;
                }
                (found, expected) => prop_assert_eq!(found.err(), expected.err(), "{:?}", op),
            }
        }
        for (context, model) in &history {
            compare(context, model);
        }
    }
}

fn big(items: usize) -> Value {
    list(vec![Value::Int(1); items])
}

fn with_message(context: &Context, bytes: usize) -> Context {
    let text = Value::text(&"x".repeat(bytes));
    context.add_user_message(text, Stamp::at(at(1))).unwrap()
}

#[test]
fn a_small_context_is_light_to_drop() {
    assert!(!begin().0.is_heavy_to_drop());
}

#[test]
fn only_the_last_handle_of_a_big_context_is_heavy_to_drop() {
    let context = with_message(&begin().0, 10_000_000);
    assert!(context.is_heavy_to_drop());
    let copy = context.clone();
    assert!(!context.is_heavy_to_drop());
    let later = with_message(&context, 1);
    drop(context);
    assert!(
        !copy.is_heavy_to_drop(),
        "what came later holds nearly all of it"
    );
    drop(copy);
    assert!(later.is_heavy_to_drop());
}

#[test]
fn an_old_context_does_not_hold_what_came_after_it() {
    let old = begin().0;
    let mut new = old.clone();
    for _ in 0..200 {
        new = with_message(&new, 10_000);
    }
    assert!(new.is_heavy_to_drop());
    assert!(!old.is_heavy_to_drop());
}

#[test]
fn heavy_metadata_makes_a_context_heavy_to_drop() {
    let old = begin().0;
    let key = Value::atom("documents");
    let new = old.put_metadata(key, big(1_000_000), at(1));
    assert!(new.is_heavy_to_drop(), "only this context holds the note");
    drop(old);
}

#[test]
fn heavy_metadata_of_an_iteration_makes_a_context_heavy_to_drop() {
    let old = begin().0;
    let key = Value::atom("documents");
    let new = old
        .put_iteration_metadata(1, key, big(1_000_000), at(1))
        .unwrap();
    assert!(new.is_heavy_to_drop(), "only this context holds the note");
    drop(old);
}

#[test]
fn a_context_whose_heavy_note_was_replaced_in_a_later_one_is_heavy_to_drop() {
    let key = || Value::atom("documents");
    let old = begin().0.put_metadata(key(), big(1_000_000), at(1));
    let new = old.put_metadata(key(), Value::Nil, at(2));
    assert!(old.is_heavy_to_drop(), "only this context holds the note");
    drop(new);
}

#[test]
fn calls_without_an_id_get_one_that_no_other_call_of_the_message_has() {
    let call = |id: Value| map(&[("id", id), ("name", Value::atom("tool"))]);
    let calls = list(vec![call(Value::text("call_1_2_1")), call(Value::Nil)]);
    let context = begin().0;
    let next = context.add_assistant_message(Value::Nil, calls, Stamp::at(at(1)));
    assert_eq!(next.map(|next| next.current().count_pending()), Ok(2));
}
