//! Views: random operations on a context and on a list of flags, which must agree after each step, and views
//! from anywhere.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used
)]

use ash_agent_context_core::{
    steps, time, Content, Context, Error, Fit, Map, Masks, MessageRef, Method, Output, Stamp, Time,
    Value,
};
use proptest::prelude::*;

fn at(micros: u64) -> Time {
    time::from_micros(i64::try_from(micros).unwrap()).unwrap()
}

fn map(entries: Vec<(&str, Value)>) -> Value {
    let entries = entries.into_iter();
    Value::Map(Map::new(
        entries
            .map(|(key, value)| (Value::atom(key), value))
            .collect(),
    ))
}

fn list(items: Vec<Value>) -> Value {
    Value::List(items.into_boxed_slice())
}

/// Of the exact ones that with the smaller vocabulary: reading one takes seconds in a debug build.
const METHODS: [Option<Method>; 3] = [None, Some(Method::Estimate), Some(Method::Cl100k)];

/// What an application can do with a view, and enough of the rest for there to be something in it.
#[derive(Debug, Clone)]
enum Op {
    User(usize),
    Assistant(usize),
    /// A call, and the length of its result if there is one.
    Tool(Option<usize>),
    Answer(usize),
    Interrupt,
    Usage(u32),
    KeepLast(u64),
    RemoveOld(u64),
    Range(u64, u64),
    Fit(u64, u64, u64, u64, usize),
    Drop(u64, u64),
    Summarize(u64, u64, usize),
    Expand(u64, u64),
    Clear(usize),
    Most(Option<usize>),
    Mask(bool),
    Block(bool),
    Rewind(u64),
    Count(usize),
    Store,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Flag {
    Shown,
    Hidden,
    /// A summary from an iteration to another.
    Summary(u64, u64),
}

struct Pair {
    context: Context,
    /// By the number of the iteration, from 1.
    flags: Vec<Flag>,
    now: u64,
}

fn op() -> impl Strategy<Value = Op> {
    let number = || prop_oneof![8 => 1..12_u64, 1 => Just(u64::MAX), 1 => Just(i64::MAX as u64), 1 => Just(0)];
    prop_oneof![
        4 => (0..60_usize).prop_map(Op::User),
        4 => (0..60_usize).prop_map(Op::Assistant),
        4 => proptest::option::weighted(0.8, 0..400_usize).prop_map(Op::Tool),
        2 => (0..400_usize).prop_map(Op::Answer),
        1 => Just(Op::Interrupt),
        1 => any::<u32>().prop_map(Op::Usage),
        1 => number().prop_map(Op::KeepLast),
        1 => (0..40_u64).prop_map(Op::RemoveOld),
        1 => (number(), number()).prop_map(|(a, b)| Op::Range(a.min(b), a.max(b))),
        2 => (0..400_u64, prop_oneof![2 => Just(0), 1 => number()], prop_oneof![3 => Just(1), 1 => number()], number(), 0..3_usize)
            .prop_map(|(budget, first, last, step, how)| Op::Fit(budget, first, last, step, how)),
        1 => (number(), 0..4_u64).prop_map(|(first, more)| Op::Drop(first, first.saturating_add(more))),
        3 => (number(), 0..4_u64, 0..40_usize)
            .prop_map(|(first, more, length)| Op::Summarize(first, first.saturating_add(more), length)),
        2 => (number(), number()).prop_map(|(a, b)| Op::Expand(a.min(b), a.max(b))),
        1 => prop_oneof![8 => 0..4_usize, 1 => Just(usize::MAX)].prop_map(Op::Clear),
        1 => proptest::option::of(100..300_usize).prop_map(Op::Most),
        1 => any::<bool>().prop_map(Op::Mask),
        1 => any::<bool>().prop_map(Op::Block),
        1 => (1..12_u64).prop_map(Op::Rewind),
        2 => (0..3_usize).prop_map(Op::Count),
        1 => Just(Op::Store),
    ]
}

fn words(length: usize) -> String {
    "word and ".chars().cycle().take(length).collect()
}

fn call(id: &str) -> Value {
    let name = ("name", Value::text("read"));
    list(vec![map(vec![("id", Value::text(id)), name])])
}

fn answer(id: &str, length: usize) -> Value {
    let ok = vec![Value::atom("ok"), Value::text(&words(length))];
    let result = Value::Tuple(ok.into_boxed_slice());
    list(vec![map(vec![("id", Value::text(id)), ("result", result)])])
}

impl Pair {
    fn new() -> Self {
        let stamp = Stamp::at(at(0));
        Self {
            context: Context::new("c", Value::text("Hi"), Value::text("S"), stamp).unwrap(),
            flags: vec![Flag::Shown],
            now: 0,
        }
    }

    fn flag(&self, number: u64) -> Flag {
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        index
            .and_then(|index| self.flags.get(index).copied())
            .unwrap_or(Flag::Shown)
    }

    fn numbers(&self) -> impl Iterator<Item = u64> {
        1..=self.context.current_iteration()
    }

    fn set(&mut self, first: u64, last: u64, flag: Flag) {
        for number in first.max(1)..=last.min(self.context.current_iteration()) {
            self.flags[number as usize - 1] = flag;
        }
    }

    /// Hides a range; summaries that reach out of it stay.
    fn hide(&mut self, first: u64, last: u64) {
        for number in first.max(1)..=last.min(self.context.current_iteration()) {
            match self.flag(number) {
                Flag::Summary(a, b) if a < first || b > last => {}
                _ => self.flags[number as usize - 1] = Flag::Hidden,
            }
        }
    }

    fn last_with_messages(&self) -> u64 {
        let current = self.context.current_iteration();
        match self.context.current().count_messages() {
            0 => current - 1,
            _ => current,
        }
    }

    fn begins_turn(&self, number: u64) -> bool {
        let iteration = self.context.iteration(number as i64).unwrap();
        iteration.messages().any(|message| {
            matches!(message, MessageRef::Added(message) if message.role == ash_agent_context_core::Role::User)
        })
    }

    fn turn(&self, number: u64) -> u64 {
        (1..=number)
            .rev()
            .find(|one| self.begins_turn(*one))
            .unwrap_or(1)
    }

    fn apply(&mut self, op: &Op) {
        self.now += 1;
        let now = at(self.now * 1_000_000);
        let stamp = || Stamp::at(now);
        let before = self.context.clone();
        let context = &before;
        let pending: Option<String> = context
            .current()
            .pending_ids()
            .first()
            .map(ToString::to_string);
        let next = match (op, &pending) {
            (Op::User(length), None) => context
                .add_user_message(Value::text(&words(*length)), stamp())
                .unwrap(),
            (Op::Assistant(length), None) => context
                .add_assistant_message(Value::text(&words(*length)), list(vec![]), stamp())
                .unwrap(),
            (Op::Tool(result), None) => {
                let asked = context
                    .add_assistant_message(Value::Nil, call("a"), stamp())
                    .unwrap();
                match result {
                    Some(length) => asked
                        .add_tool_results(answer("a", *length), stamp())
                        .unwrap(),
                    None => asked,
                }
            }
            (Op::Answer(length), Some(id)) => context
                .add_tool_results(answer(id, *length), stamp())
                .unwrap(),
            (Op::Interrupt, _) => context.interrupt(&Value::Nil, stamp()),
            (Op::Usage(tokens), _) => {
                let report = map(vec![
                    ("input_tokens", Value::Int(i64::from(*tokens))),
                    ("output_tokens", Value::Int(7)),
                ]);
                match context.add_token_usage(report, now) {
                    Ok(next) => next,
                    Err(error) => {
                        assert_eq!(error, Error::NoAssistantMessage);
                        return;
                    }
                }
            }
            (Op::Count(method), _) => {
                let _ = context.count_tokens(METHODS[*method]);
                return;
            }
            (Op::Store, _) => Context::from_snapshot(&context.to_snapshot()).unwrap(),
            (Op::Rewind(to), _) => return self.rewind(*to),
            (Op::User(_) | Op::Assistant(_) | Op::Tool(_) | Op::Answer(_), _) => return,
            (op, _) => {
                let Some(next) = self.change_view(op, now) else {
                    return;
                };
                assert!(next.iterations().eq(before.iterations()));
                assert_eq!(next.usage(), before.usage());
                next
            }
        };
        self.flags.resize(next.count_iterations(), Flag::Shown);
        self.context = next;
    }

    fn change_view(&mut self, op: &Op, now: Time) -> Option<Context> {
        let context = self.context.clone();
        let current = context.current_iteration();
        Some(match op {
            Op::KeepLast(count) => {
                let last = self.last_with_messages().saturating_sub((*count).max(1));
                self.hide(1, last);
                context.keep_last_iterations(*count, now)
            }
            Op::RemoveOld(seconds) => {
                let before = at(self.now.saturating_sub(*seconds) * 1_000_000);
                let end = self.last_with_messages();
                let mut old: Vec<u64> = context
                    .iterations()
                    .filter(|one| one.number < end && one.started_at < before)
                    .map(|one| one.number)
                    .collect();
                while let Some(first) = old.first().copied() {
                    let run = old
                        .iter()
                        .zip(first..)
                        .take_while(|(a, b)| **a == *b)
                        .count();
                    self.hide(first, old[run - 1]);
                    old.drain(..run);
                }
                context.hide_iterations_before(before, now)
            }
            Op::Range(first, last) => match context.iteration_range(*first, *last, now) {
                Ok(next) => {
                    let end = self.last_with_messages();
                    if *last < end {
                        self.hide(*last + 1, end);
                    }
                    self.hide(1, first.saturating_sub(1).min(end));
                    next
                }
                Err(error) => {
                    assert!(matches!(error, Error::PendingToolCalls { .. }));
                    assert!(*last < current || *first > current);
                    assert!(context.current().count_pending() > 0);
                    return None;
                }
            },
            Op::Fit(budget, keep_first, keep_last, step, how) => {
                return self.fit(*budget, *keep_first, *keep_last, *step, METHODS[*how], now)
            }
            Op::Drop(first, last) => {
                let (first, last) = context.compactable(Some((*first, *last)), 0, 0).ok()??;
                self.set(first, last, Flag::Hidden);
                context.drop_range(first, last, now)
            }
            Op::Summarize(first, last, length) => {
                let text = format!("s{}", words(*length));
                match context.summarize(*first, *last, &text, now) {
                    Ok(next) => {
                        let (from, cover) = next.cover(*first).unwrap();
                        assert!(cover.last >= *last && from <= *first);
                        assert!(cover.last < self.turn(current));
                        // It grew by summaries only.
                        for number in (from..*first).chain(last + 1..=cover.last) {
                            assert!(matches!(self.flag(number), Flag::Summary(..)));
                        }
                        self.set(from, cover.last, Flag::Summary(from, cover.last));
                        assert_eq!(next.summary(*first), Some(text.as_bytes()));
                        let estimate = Some(Method::Estimate);
                        assert!(next.count_tokens(estimate) < context.count_tokens(estimate));
                        next
                    }
                    Err(Error::SummaryTooLong { tokens, replaced }) => {
                        assert!(2 * tokens > replaced);
                        return None;
                    }
                    Err(error) => {
                        assert!(matches!(error, Error::NotCompactable { .. }));
                        return None;
                    }
                }
            }
            Op::Expand(first, last) => {
                for number in self.numbers() {
                    let meets = match self.flag(number) {
                        Flag::Shown => false,
                        Flag::Hidden => *first <= number && number <= *last,
                        Flag::Summary(a, b) => *first <= b && a <= *last,
                    };
                    if meets {
                        self.set(number, number, Flag::Shown);
                    }
                }
                context.expand(*first, *last, now)
            }
            Op::Clear(keep) => context.clear_tool_results(*keep, "-", now),
            Op::Most(most) => context.put_max_result_bytes(*most, now),
            Op::Mask(on) => {
                let pairs = on.then(|| ("and ".into(), "".into()));
                context.put_masks(Masks::new(pairs).unwrap(), now)
            }
            Op::Block(on) => context.put_prompt_block("b", on.then_some("block"), now),
            _ => unreachable!(),
        })
    }

    fn fit(
        &mut self,
        budget: u64,
        keep_first: u64,
        keep_last: u64,
        step: u64,
        method: Option<Method>,
        now: Time,
    ) -> Option<Context> {
        let context = self.context.clone();
        let fit = Fit {
            budget,
            reserve: 0,
            keep_first,
            keep_last,
            step,
            method,
        };
        let current = context.current_iteration();
        let last = current
            .saturating_sub(keep_last)
            .min(self.turn(current) - 1);
        match context.fit(&fit, now) {
            Ok((next, hidden)) => {
                assert!(next.count_tokens(method) <= budget);
                let flags: Vec<Flag> = self
                    .numbers()
                    .map(|number| match next.cover(number) {
                        None => Flag::Shown,
                        Some((first, cover)) if cover.summary.is_some() => {
                            Flag::Summary(first, cover.last)
                        }
                        Some(_) => Flag::Hidden,
                    })
                    .collect();
                for (number, (before, after)) in self.numbers().zip(self.flags.iter().zip(&flags)) {
                    if before != after {
                        assert_eq!(*after, Flag::Hidden);
                        assert!(number > keep_first && number <= last);
                    }
                }
                let mut all = (1..).zip(&flags).filter(|(_, flag)| **flag == Flag::Hidden);
                let first = all.next().map(|(number, _)| number);
                let last = all.last().map(|(number, _)| number).or(first);
                assert_eq!(hidden, first.zip(last));
                self.flags = flags;
                Some(next)
            }
            Err(error) => {
                let Error::CannotFit { least } = error else {
                    panic!("{error:?}")
                };
                assert!(least > budget);
                None
            }
        }
    }

    fn rewind(&mut self, to: u64) {
        let current = self.context.current_iteration();
        let reply = self.context.rewind(to as i64);
        if to > current {
            let first = 1;
            let (number, last) = (to as i64, current);
            assert_eq!(
                reply.unwrap_err(),
                Error::UnknownIteration {
                    number,
                    first,
                    last
                }
            );
            return;
        }
        let next = reply.unwrap();
        assert_eq!(next.current_iteration(), to);
        assert!(next
            .iterations()
            .eq(self.context.iterations().take(to as usize)));
        if to < current {
            let turn = self.turn(to);
            self.flags.truncate(to as usize);
            for number in 1..=to {
                let flag = &mut self.flags[number as usize - 1];
                *flag = match *flag {
                    Flag::Summary(_, last) if last >= turn => Flag::Shown,
                    _ if number >= turn => Flag::Shown,
                    flag => flag,
                };
            }
        }
        self.context = next;
    }

    /// What the view has: messages by the number of their iteration.
    fn compare(&self) {
        let mut expected = 1;
        for number in self.numbers() {
            let cover = self.context.cover(number);
            match self.flag(number) {
                Flag::Shown => {
                    assert!(cover.is_none(), "{number} is covered");
                    expected += self
                        .context
                        .iteration(number as i64)
                        .unwrap()
                        .count_messages();
                }
                Flag::Hidden => assert!(cover.unwrap().1.summary.is_none()),
                Flag::Summary(first, last) => {
                    let (start, cover) = cover.unwrap();
                    assert_eq!((start, cover.last), (first, last));
                    assert!(cover.summary.is_some());
                    expected += usize::from(number == first);
                }
            }
        }
        assert_eq!(self.context.messages().count(), expected);
        assert_eq!(self.context.count_messages(), expected);
        let pending = self.context.current().count_pending();
        assert!(pending == 0 || self.flag(self.context.current_iteration()) == Flag::Shown);

        // Covers are in order, and neighbours that are hidden are one.
        let covers = || {
            self.context
                .view()
                .into_iter()
                .flat_map(|view| view.covers())
        };
        for ((_, a), (first, b)) in covers().zip(covers().skip(1)) {
            assert!(a.last < first);
            assert!(a.last + 1 < first || a.summary.is_some() || b.summary.is_some());
        }
    }

    /// Counts that were kept are what is counted anew.
    fn recount(&self) {
        let copy = Context::from_snapshot(&self.context.to_snapshot()).unwrap();
        assert!(copy == self.context);
        assert_eq!(copy.count_messages(), self.context.count_messages());
        assert_eq!(copy.usage(), self.context.usage());
        for method in METHODS {
            assert_eq!(copy.count_tokens(method), self.context.count_tokens(method));
            assert_eq!(
                copy.token_breakdown(method),
                self.context.token_breakdown(method)
            );
        }
        for method in METHODS.into_iter().flatten() {
            let whole = self.context.view_tokens(method, 0, u64::MAX).total();
            let system = self.context.token_breakdown(Some(method)).system;
            assert_eq!(self.context.count_tokens(Some(method)), whole + system);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn views_agree_with_flags(ops in proptest::collection::vec(op(), 1..60)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
            pair.compare();
        }
        pair.recount();
    }

    #[test]
    fn counts_are_what_a_recount_gives(ops in proptest::collection::vec(op(), 1..25)) {
        let mut pair = Pair::new();
        let mut all = Vec::new();
        for op in &ops {
            pair.apply(op);
            pair.recount();
            let counts = METHODS.map(|method| pair.context.count_tokens(method));
            all.push((pair.context.clone(), counts, pair.context.to_snapshot()));
        }
        // What came later has not touched them.
        for (context, counts, snapshot) in &all {
            prop_assert_eq!(&METHODS.map(|method| context.count_tokens(method)), counts);
            prop_assert_eq!(&context.to_snapshot(), snapshot);
        }
    }

    #[test]
    fn expanding_all_gives_the_log(ops in proptest::collection::vec(op(), 1..40)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
        }
        let plain = pair.context.expand(0, u64::MAX, at(1));
        let plain = plain.put_masks(Masks::new(None).unwrap(), at(1));
        let plain = plain.put_max_result_bytes(None, at(1)).put_prompt_block("b", None, at(1));
        let plain = plain.clear_tool_results(usize::MAX, "-", at(1));
        prop_assert!(plain.view().is_none());
        prop_assert_eq!(plain.count_messages(), plain.count_log());
        prop_assert_eq!(plain.messages().count(), plain.log().count());
    }

    #[test]
    fn views_from_anywhere_are_read_or_refused(
        covers in proptest::collection::vec((number(), number(), proptest::option::of(Just(()))), 0..5),
        cleared in proptest::option::of((number(), number())),
        most in proptest::option::of(number()),
        waits in any::<bool>(),
    ) {
        let mut fields = vec![];
        let covers: Vec<String> = covers
            .iter()
            .map(|(first, last, summary)| {
                let summary = summary.map_or(String::new(), |()| r#","summary":{"role":"user","content":"[S]\ns"}"#.to_owned());
                format!(r#"{{"first":{first},"last":{last}{summary}}}"#)
            })
            .collect();
        fields.push(format!(r#""covers":[{}]"#, covers.join(",")));
        if let Some((iteration, calls)) = cleared {
            fields.push(format!(r#""cleared":{{"iteration":{iteration},"calls":{calls},"placeholder":"-"}}"#));
        }
        if let Some(most) = most {
            fields.push(format!(r#""max_result_bytes":{most}"#));
        }
        check(&stored(5, waits, &format!("{{{}}}", fields.join(","))));
    }
}

/// A number as someone may write it who means harm.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => (0..8_u64).prop_map(|number| number.to_string()),
        1 => Just(u64::MAX.to_string()),
        1 => Just(i64::MAX.to_string()),
        1 => Just((u128::MAX).to_string()),
        1 => Just("-1".to_owned()),
        1 => Just("1.0".to_owned()),
        1 => Just("1e400".to_owned()),
        1 => Just("null".to_owned()),
        1 => Just("\"1\"".to_owned()),
    ]
}

/// A conversation of so many iterations with this view.
fn stored(iterations: u64, waits: bool, view: &str) -> Vec<u8> {
    let mut pair = Pair::new();
    for _ in 1..iterations {
        pair.apply(&Op::Tool(Some(200)));
    }
    pair.apply(&Op::User(10));
    if waits {
        pair.apply(&Op::Tool(None));
    }
    let text = String::from_utf8(pair.context.to_snapshot()).unwrap();
    format!(
        "{},\"view\":{view}}}",
        text.trim_end().strip_suffix('}').unwrap()
    )
    .into_bytes()
}

/// What was accepted is a context like any other.
fn check(snapshot: &[u8]) -> Option<Context> {
    let context = match Context::from_snapshot(snapshot) {
        Ok(context) => context,
        Err(error) => {
            assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
            return None;
        }
    };
    let pending = context.current().count_pending();
    assert!(pending == 0 || context.cover(context.current_iteration()).is_none());
    let again = Context::from_snapshot(&context.to_snapshot()).unwrap();
    assert!(again == context);
    let views = [
        context.expand(0, u64::MAX, at(1)),
        context.expand(2, 2, at(1)),
        context.keep_last_iterations(2, at(1)),
        context.rewind(2).unwrap(),
        context.clear_tool_results(0, "+", at(1)),
        context.interrupt(&Value::Nil, Stamp::at(at(1))),
        context.clone(),
    ];
    for view in &views {
        assert_eq!(view.messages().count(), view.count_messages());
        for method in METHODS {
            let _ = view.count_tokens(method);
        }
        assert!(Context::from_snapshot(&view.to_snapshot()).unwrap() == *view);
    }
    Some(context)
}

#[test]
fn covers_that_cannot_be_are_refused() {
    let cover = |first: &str, last: &str| format!(r#"{{"first":{first},"last":{last}}}"#);
    let max = u64::MAX.to_string();
    for covers in [
        vec![cover("1", "3"), cover("2", "4")],
        vec![cover("1", "3"), cover("3", "4")],
        vec![cover("1", "2"), cover("1", "2")],
        vec![cover("3", "4"), cover("1", "2")],
        vec![cover("3", "2")],
        vec![cover("0", "2")],
        vec![cover("1", &max)],
        vec![cover(&max, &max)],
        vec![cover("0", "0")],
        vec![cover("1", "99")],
        vec![cover("-1", "2")],
        vec!["null".into()],
    ] {
        let view = format!(r#"{{"covers":[{}]}}"#, covers.join(","));
        assert!(check(&stored(5, false, &view)).is_none(), "{view}");
    }
    // The current iteration with its call that waits.
    for last in 2..=5 {
        let view = format!(r#"{{"covers":[{}]}}"#, cover("2", &last.to_string()));
        assert_eq!(check(&stored(5, true, &view)).is_some(), last < 5);
    }
}

#[test]
fn patterns_that_are_none_are_refused() {
    for pattern in ["(", "a{2,1}", "(?=a)", "(?:(?:(?:a{100}){100}){100}){100}"] {
        let view = format!(r#"{{"masks":[{{"pattern":"{pattern}","replacement":""}}]}}"#);
        assert!(check(&stored(3, false, &view)).is_none(), "{pattern}");
    }
    for pattern in ["", ".*", "(a+)+$", "(?s).+", r"\\p{Greek}"] {
        let view = format!(r#"{{"masks":[{{"pattern":"{pattern}","replacement":"x"}}]}}"#);
        assert!(check(&stored(3, false, &view)).is_some(), "{pattern}");
    }
}

/// A million covers, of which the first few may be good.
#[test]
fn many_covers_take_linear_time() {
    let count_steps = |count: usize| {
        let covers = vec![r#"{"first":1,"last":1}"#; count].join(",");
        let snapshot = stored(5, false, &format!(r#"{{"covers":[{covers}]}}"#));
        steps::count_steps(|| assert!(Context::from_snapshot(&snapshot).is_err()))
    };
    let (few, many) = (count_steps(10_000), count_steps(100_000));
    assert!(few > 10_000 && many < 11 * few, "{few} and {many}");
}

#[test]
fn covers_over_each_iteration_take_linear_time() {
    let count_steps = |count: u64| {
        let mut pair = Pair::new();
        for _ in 1..count {
            pair.apply(&Op::User(3));
            pair.apply(&Op::Assistant(3));
        }
        let text = String::from_utf8(pair.context.to_snapshot()).unwrap();
        let covers: Vec<String> = (1..count - 1)
            .step_by(2)
            .map(|number| format!(r#"{{"first":{number},"last":{number}}}"#))
            .collect();
        let text = text.trim_end().strip_suffix('}').unwrap().to_owned();
        let snapshot = format!(r#"{text},"view":{{"covers":[{}]}}}}"#, covers.join(","));
        steps::count_steps(|| {
            let context = Context::from_snapshot(snapshot.as_bytes()).unwrap();
            assert_eq!(context.messages().count(), context.count_messages());
            let _ = context.count_tokens(None);
            let hidden = context.keep_last_iterations(1, at(1));
            assert_eq!(hidden.view().unwrap().covers().count(), 1);
            assert_eq!(
                hidden.expand(0, u64::MAX, at(1)).count_messages(),
                context.count_log()
            );
            assert_eq!(
                context.expand(0, u64::MAX, at(1)).count_messages(),
                context.count_log()
            );
        })
    };
    let (few, many) = (count_steps(500), count_steps(4_000));
    assert!(few > 500 && many < 10 * few, "{few} and {many}");
}

#[test]
fn a_long_result_is_shortened_on_character_boundaries() {
    for piece in ["x", "é", "日", "👩‍👩‍👧", "x\n"] {
        for most in [100, 101, 102, 103, 999] {
            let result = list(vec![map(vec![
                ("id", Value::text("a")),
                (
                    "result",
                    Value::Tuple(Box::new([
                        Value::atom("ok"),
                        Value::text(&piece.repeat(2_000)),
                    ])),
                ),
            ])]);
            let context = Pair::new().context;
            let context = context
                .add_assistant_message(Value::Nil, call("a"), Stamp::at(at(0)))
                .unwrap()
                .add_tool_results(result, Stamp::at(at(0)))
                .unwrap()
                .put_max_result_bytes(Some(most), at(0));
            let shown = context.messages().last().unwrap();
            let seen = shown.see();
            let MessageRef::Results(_, exchange) = seen.message() else {
                panic!("no results")
            };
            let Output::Value(Value::Binary(_)) = exchange.slot(0).unwrap().output else {
                panic!("no text")
            };
            let text = exchange.slot(0).unwrap().text().unwrap().to_vec();
            assert!(
                text.len() <= most && text.len() + 10 > most,
                "{piece}: {} of {most}",
                text.len()
            );
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("bytes left out"));
        }
    }
}

#[test]
fn a_mask_leaves_the_log() {
    let context = Context::new("c", Value::text("a secret"), Value::Nil, Stamp::at(at(0))).unwrap();
    let masked = context.put_masks(Masks::new([("secret".into(), "$0".into())]).unwrap(), at(0));
    let text = |message: MessageRef<'_>| match message {
        MessageRef::Added(message) => match &message.content {
            Content::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            _ => panic!("no text"),
        },
        MessageRef::Results(..) => panic!("no message"),
    };
    assert_eq!(
        text(masked.messages().next().unwrap().see().message()),
        "a $0"
    );
    assert_eq!(text(masked.log().next().unwrap()), "a secret");
}
