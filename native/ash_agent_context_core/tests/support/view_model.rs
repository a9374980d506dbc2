//! A plain list of flags, one for each iteration, with which a context must agree after each operation.

use ash_agent_context_core::{
    Content, Context, Error, Exchange, Fit, Masks, Message, MessageRef, Method, Stamp, Time, Value,
};

use crate::view_ops::{answer, at, call, list, map, words, Op, IDS, METHODS};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Flag {
    Shown,
    Hidden,
    /// A summary from an iteration to another.
    Summary(u64, u64),
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The conversation is not in a state for it.
    Skipped,
    Done,
    Refused(Error),
}

pub struct Pair {
    pub context: Context,
    /// By the number of the iteration, from 1.
    pub flags: Vec<Flag>,
    /// The last result that is blanked: its iteration, and its place among the calls of that, from 1.
    pub cleared: Option<(u64, usize)>,
    pub most: Option<usize>,
    pub is_masked: bool,
    pub has_block: bool,
    pub now: u64,
}

impl Pair {
    pub fn new() -> Self {
        let stamp = Stamp::at(at(0));
        Self {
            context: Context::new("c", Value::text("Hi"), Value::text("S"), stamp).unwrap(),
            flags: vec![Flag::Shown],
            cleared: None,
            most: None,
            is_masked: false,
            has_block: false,
            now: 0,
        }
    }

    pub fn flag(&self, number: u64) -> Flag {
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        index
            .and_then(|index| self.flags.get(index).copied())
            .unwrap_or(Flag::Shown)
    }

    pub fn numbers(&self) -> impl Iterator<Item = u64> {
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

    pub fn apply(&mut self, op: &Op) -> Outcome {
        self.now += 1;
        let now = at(self.now * 1_000_000);
        let stamp = || Stamp::at(now);
        let before = self.context.clone();
        let context = &before;
        // One of them, so that a later call may be answered before an earlier one.
        let ids = context.current().pending_ids();
        let pending: Option<String> = match op {
            Op::Answer(length) if length % 2 == 1 => ids.last(),
            _ => ids.first(),
        }
        .map(ToString::to_string);
        let next = match (op, &pending) {
            (Op::User(length), None) => context
                .add_user_message(Value::text(&words(*length)), stamp())
                .unwrap(),
            (Op::Assistant(length), None) => context
                .add_assistant_message(Value::text(&words(*length)), list(vec![]), stamp())
                .unwrap(),
            (Op::Tool(count, result), None) => {
                let ids = IDS.iter().take(*count);
                let calls = list(ids.clone().map(|id| call(id)).collect());
                let asked = context
                    .add_assistant_message(Value::Nil, calls, stamp())
                    .unwrap();
                match result {
                    Some(length) => {
                        let results = ids.map(|id| answer(id, *length)).collect();
                        asked.add_tool_results(list(results), stamp()).unwrap()
                    }
                    None => asked,
                }
            }
            (Op::Answer(length), Some(id)) => context
                .add_tool_results(list(vec![answer(id, *length)]), stamp())
                .unwrap(),
            (Op::Interrupt, _) => context.interrupt(&Value::text("stop"), stamp()),
            (Op::Usage(tokens), _) => {
                let report = map(vec![
                    ("input_tokens", Value::Int(i64::from(*tokens))),
                    ("output_tokens", Value::Int(7)),
                ]);
                match context.add_token_usage(report, now) {
                    Ok(next) => next,
                    Err(error) => {
                        assert_eq!(error, Error::NoAssistantMessage);
                        return Outcome::Refused(error);
                    }
                }
            }
            (Op::Count(method), _) => {
                let _ = context.count_tokens(METHODS[*method]);
                return Outcome::Done;
            }
            (Op::Store, _) => Context::from_snapshot(&context.to_snapshot()).unwrap(),
            (Op::Rewind(to), _) => return self.rewind(*to),
            (Op::User(_) | Op::Assistant(_) | Op::Tool(..) | Op::Answer(_), _) => {
                return Outcome::Skipped
            }
            (op, _) => {
                let next = match self.change_view(op, now) {
                    Ok(next) => next,
                    Err(outcome) => return outcome,
                };
                assert!(next.iterations().eq(before.iterations()));
                assert_eq!(next.usage(), before.usage());
                next
            }
        };
        self.flags.resize(next.count_iterations(), Flag::Shown);
        self.context = next;
        Outcome::Done
    }

    fn change_view(&mut self, op: &Op, now: Time) -> Result<Context, Outcome> {
        let context = self.context.clone();
        let current = context.current_iteration();
        Ok(match op {
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
                    return Err(Outcome::Refused(error));
                }
            },
            Op::Hide(first, last) => match context.hide_iterations(*first, *last, now) {
                Ok(next) => {
                    let is_empty = context.current().count_messages() == 0;
                    self.hide(*first, (*last).min(current - u64::from(is_empty)));
                    next
                }
                Err(error) => {
                    assert!(matches!(error, Error::PendingToolCalls { .. }));
                    assert!(*first <= current && current <= *last);
                    assert!(context.current().count_pending() > 0);
                    return Err(Outcome::Refused(error));
                }
            },
            Op::Fit([percent, reserve], keep, step, how) => {
                let tokens = context.count_tokens(METHODS[*how]);
                let fit = Fit {
                    budget: tokens * percent / 100 + reserve,
                    reserve: *reserve,
                    keep_first: keep[0],
                    keep_last: keep[1],
                    step: *step,
                    method: METHODS[*how],
                };
                return self.fit(&fit, now).map_err(Outcome::Refused);
            }
            Op::Drop(first, last) => {
                let range = context.compactable(Some((*first, *last)), 0, 0);
                let Some((first, last)) = range.map_err(Outcome::Refused)? else {
                    return Err(Outcome::Done);
                };
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
                        let shown = self.mask(&text);
                        assert_eq!(next.summary(*first).as_deref(), Some(shown.as_bytes()));
                        let estimate = Some(Method::Estimate);
                        assert!(next.count_tokens(estimate) < context.count_tokens(estimate));
                        next
                    }
                    Err(error) => {
                        match &error {
                            Error::SummaryTooLong { tokens, replaced } => {
                                assert!(2 * tokens > *replaced);
                            }
                            error => assert!(matches!(error, Error::NotCompactable { .. })),
                        }
                        return Err(Outcome::Refused(error));
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
            Op::Clear(keep) => {
                self.cleared = self.place_before(*keep);
                context.clear_tool_results(*keep, "-", now)
            }
            Op::Most(most) => {
                self.most = *most;
                context.put_max_result_bytes(*most, now)
            }
            Op::Mask(on) => {
                self.is_masked = *on;
                let pairs = on.then(|| ("and ".into(), "".into()));
                context.put_masks(Masks::new(pairs).unwrap(), now)
            }
            Op::Block(on) => {
                self.has_block = *on;
                context.put_prompt_block("b", on.then_some("block"), now)
            }
            _ => unreachable!(),
        })
    }

    /// The places of the results of an iteration, from 1.
    fn results(&self, number: u64) -> Vec<usize> {
        let iteration = self.context.iteration(number as i64).unwrap();
        let calls = (1..).zip(iteration.calls());
        calls
            .filter(|(_, (_, outcome))| outcome.is_some())
            .map(|(place, _)| place)
            .collect()
    }

    /// The last result that is shown but for so many. A result that comes later is shown: it is before the first call that
    /// waits.
    fn place_before(&self, keep: usize) -> Option<(u64, usize)> {
        let shown = self.numbers().filter(|one| self.flag(*one) == Flag::Shown);
        let all: Vec<(u64, usize)> = shown
            .flat_map(|number| {
                let results = self.results(number).into_iter();
                results.map(move |place| (number, place))
            })
            .collect();
        let (number, place) = *all.get(all.len().checked_sub(keep)?.checked_sub(1)?)?;
        let iteration = self.context.iteration(number as i64).unwrap();
        let waiting = iteration.calls().position(|(_, outcome)| outcome.is_none());
        Some((number, place.min(waiting.unwrap_or(place))))
    }

    fn fit(&mut self, fit: &Fit, now: Time) -> Result<Context, Error> {
        let context = self.context.clone();
        let allowed = fit.budget - fit.reserve;
        let current = context.current_iteration();
        let last = current
            .saturating_sub(fit.keep_last)
            .min(self.turn(current) - 1);
        let first = fit.keep_first.saturating_add(1);
        match context.fit(fit, now) {
            Ok((next, hidden)) => {
                assert!(next.count_tokens(fit.method) <= allowed);
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
                let gone: Vec<u64> = self
                    .numbers()
                    .filter(|one| self.flag(*one) != flags[*one as usize - 1])
                    .collect();
                for number in &gone {
                    assert_eq!(flags[*number as usize - 1], Flag::Hidden);
                    assert!(first <= *number && *number <= last);
                }
                if let Some(boundary) = gone.last().copied() {
                    assert!(context.count_tokens(fit.method) > allowed);
                    self.assert_oldest_first(&flags, gone[0], boundary);
                    self.assert_step(boundary, last, fit.step.max(1));
                    if fit.step <= 1 && gone.iter().all(|one| self.flag(*one) == Flag::Shown) {
                        // One iteration less would not have been enough.
                        let back = next.expand(boundary, boundary, now);
                        assert!(back.count_tokens(fit.method) > allowed);
                    }
                }
                let mut all = (1..).zip(&flags).filter(|(_, flag)| **flag == Flag::Hidden);
                let first = all.next().map(|(number, _)| number);
                let last = all.last().map(|(number, _)| number).or(first);
                assert_eq!(hidden, first.zip(last));
                self.flags = flags;
                Ok(next)
            }
            Err(error) => {
                let Error::CannotFit { least } = error else {
                    panic!("{error:?}")
                };
                assert!(least > allowed);
                assert_eq!(
                    least,
                    self.hide_what_may_go(first, last).count_tokens(fit.method)
                );
                Err(error)
            }
        }
    }

    /// Only summaries stay before something that was hidden, unless those went, too.
    fn assert_oldest_first(&self, after: &[Flag], first: u64, boundary: u64) {
        let range = first..=boundary;
        let were_summaries = range.clone().any(|one| {
            matches!(self.flag(one), Flag::Summary(..)) && after[one as usize - 1] == Flag::Hidden
        });
        for number in range {
            let flag = after[number as usize - 1];
            assert!(flag != Flag::Shown, "{number} stays before {boundary}");
            assert!(flag == Flag::Hidden || !were_summaries);
        }
    }

    /// Hides up to a multiple of the step, or all that it may. After the last that was shown there may stand others that were
    /// not shown before.
    fn assert_step(&self, boundary: u64, last: u64, step: u64) {
        let covered = (boundary + 1..=last).take_while(|one| self.flag(*one) != Flag::Shown);
        let reach = covered.last().unwrap_or(boundary);
        assert!(
            reach == last || (boundary..=reach).any(|one| one % step == 0),
            "{boundary} to {reach} of {last}, in steps of {step}"
        );
    }

    /// What has to stay: all that may go is hidden, and a summary that reaches out of it stays.
    fn hide_what_may_go(&self, first: u64, last: u64) -> Context {
        let stays = |one: &u64| matches!(self.flag(*one), Flag::Summary(from, to) if from < first || last < to);
        let may_go = (first..=last).filter(|one| !stays(one));
        may_go.fold(self.context.clone(), |context, number| {
            match context.compactable(Some((number, number)), 0, 0).unwrap() {
                Some((from, to)) => context.drop_range(from, to, at(0)),
                None => context,
            }
        })
    }

    fn rewind(&mut self, to: u64) -> Outcome {
        let current = self.context.current_iteration();
        let reply = self.context.rewind(to as i64);
        if to > current {
            let (number, range) = (to as i64, (1, current));
            let expected = Error::UnknownIteration { number, range };
            assert_eq!(reply.unwrap_err(), expected);
            return Outcome::Refused(expected);
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
            if self.cleared.is_some_and(|(number, _)| number > to) {
                let places = (1..=to).rev().flat_map(|number| {
                    let results = self.results(number).into_iter().rev();
                    results.map(move |place| (number, place))
                });
                self.cleared = places.take(1).next();
            }
        }
        self.context = next;
        Outcome::Done
    }

    /// What the view has: messages by the number of their iteration.
    pub fn compare(&self) {
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

        self.compare_texts();

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

    /// What is shown of each message: summaries by their iterations, results whole, blanked or shortened.
    fn compare_texts(&self) {
        let mut shown = self.context.messages().map(|shown| shown.see());
        let mut next = || shown.next().expect("a message for each that is expected");
        let system = if self.has_block { "S\n\nblock" } else { "S" };
        assert_eq!(said(&next().message()), system);
        for number in self.numbers() {
            match self.flag(number) {
                Flag::Summary(first, last) if first == number => {
                    let range = match first == last {
                        true => format!("iteration {first}"),
                        false => format!("iterations {first} to {last}"),
                    };
                    let summary = self.context.summary(number).unwrap();
                    let summary = String::from_utf8(summary.to_vec()).unwrap();
                    let whole = format!("[Summary of {range} of this conversation]\n{summary}");
                    assert_eq!(said(&next().message()), self.mask(&whole));
                }
                Flag::Summary(..) | Flag::Hidden => {}
                Flag::Shown => {
                    let mut before = 0;
                    for message in self.context.iteration(number as i64).unwrap().messages() {
                        let seen = next();
                        match (message, seen.message()) {
                            (MessageRef::Added(message), seen) => {
                                if let Content::Text(_) = message.content {
                                    let whole = said(&MessageRef::Added(message));
                                    assert_eq!(said(&seen), self.mask(&whole));
                                }
                            }
                            (MessageRef::Results(_, log), MessageRef::Results(_, seen)) => {
                                self.compare_results(number, before, log, seen);
                                before += log.count_calls();
                            }
                            (MessageRef::Results(..), seen) => panic!("no results: {seen:?}"),
                        }
                    }
                }
            }
        }
        assert!(shown.next().is_none());
    }

    fn compare_results(&self, number: u64, before: usize, log: &Exchange, seen: &Exchange) {
        for (slot, outcome) in log.slots().enumerate() {
            let text = |outcome: &ash_agent_context_core::Outcome| {
                String::from_utf8(outcome.text().unwrap().to_vec()).unwrap()
            };
            let shown = seen.slot(slot).map(text);
            let Some(whole) = outcome.map(text) else {
                assert_eq!(shown, None);
                continue;
            };
            let shown = shown.unwrap();
            let place = (number, before + slot + 1);
            if self.cleared.is_some_and(|cleared| place <= cleared) {
                assert_eq!(shown, "-", "{place:?} is not blanked");
            } else {
                assert_shortened(&self.mask(&whole), &shown, self.most);
            }
        }
    }

    fn mask(&self, text: &str) -> String {
        match self.is_masked {
            true => text.replace("and ", ""),
            false => text.to_owned(),
        }
    }

    /// Counts that were kept are what is counted anew.
    #[allow(dead_code)] // The replay has no use for it.
    pub fn recount(&self) {
        let copy = Context::from_snapshot(&self.context.to_snapshot()).unwrap();
        assert!(copy == self.context);
        assert_eq!(copy.count_messages(), self.context.count_messages());
        assert_eq!(copy.usage(), self.context.usage());
        for method in METHODS {
            assert_eq!(copy.count_tokens(method), self.context.count_tokens(method));
        }
        for method in METHODS.into_iter().flatten() {
            let whole = self.context.view_tokens(method, 0, u64::MAX).total();
            let tokens = self.context.tokens(method);
            assert_eq!(copy.tokens(method), tokens);
            let system = tokens.system;
            assert_eq!(self.context.count_tokens(Some(method)), whole + system);
        }
    }
}

fn said(message: &MessageRef<'_>) -> String {
    match message {
        MessageRef::Added(Message {
            content: Content::Text(text),
            ..
        }) => String::from_utf8(text.to_vec()).unwrap(),
        other => panic!("no text: {other:?}"),
    }
}

/// A result is as it was, or has its beginning and its end in so many bytes.
fn assert_shortened(whole: &str, shown: &str, most: Option<usize>) {
    let Some(most) = most.filter(|most| whole.len() > *most) else {
        return assert_eq!(shown, whole);
    };
    assert!(shown.len() <= most && most < shown.len() + 10);
    let (head, rest) = shown.split_once("\n[... ").unwrap();
    let (count, tail) = rest.split_once(" bytes left out ...]\n").unwrap();
    assert!(whole.starts_with(head) && whole.ends_with(tail));
    let count: usize = count.parse().unwrap();
    assert_eq!(head.len() + count + tail.len(), whole.len());
}
