//! Prints a conversation for a terminal.

use crate::log::exchange::Entry;
use crate::log::failed::FailedRequest;
use crate::log::iteration::Iteration;
use crate::trace::cache::{self, CacheAccount};
use crate::trace::message_texts::{list_texts, words, Passage};
use crate::trace::shown::{MaskedEntry, ShownConversation, Trace};
use crate::trace::visible::visible;
use crate::value::time::{self, Time};

/// The columns before a text.
const LABEL: usize = 17;

/// The options for printing.
#[derive(Debug, Clone, Copy)]
pub struct Printed {
    /// The most messages to print, of the newest.
    pub most: usize,
    /// The most columns of a text, on a single line; `None` for all of it.
    pub width: Option<usize>,
    /// True if the terminal shows colours.
    pub color: bool,
    /// The call to point at: the number of its iteration, and the number of calls before it there.
    pub mark: Option<(usize, usize)>,
}

impl<'a> Trace<'a> {
    /// Returns the active conversation.
    pub(super) fn active(&self) -> Option<&ShownConversation<'a>> {
        self.conversations.get(self.active_at())
    }

    pub(super) fn active_at(&self) -> usize {
        let active = self.conversations.iter().position(|shown| shown.is_active);
        active.unwrap_or(0)
    }

    /// Returns the active conversation as text, with a line above each iteration.
    #[must_use]
    pub fn print(&self, how: Printed) -> String {
        let mut page = TerminalPage {
            how,
            text: String::new(),
            calls_before: 0,
            marked: None,
        };
        let Some(shown) = self.active() else {
            return page.text;
        };
        let context = shown.context;
        // The place of the first message to print.
        let (mut left, mut from) = (how.most, (u64::MAX, 0));
        for iteration in context.log.iterations_back() {
            if left == 0 {
                break;
            }
            let count = iteration.entries().len();
            from = (iteration.number, count.saturating_sub(left));
            left = left.saturating_sub(count);
        }
        let is_whole = from.0 <= context.first_number() && from.1 == 0;
        if !is_whole {
            page.line("(older messages are left out)");
        }
        if let Some(system) = context.system().filter(|_| is_whole) {
            let shown = self.rendering().message(system);
            let all = words(shown.as_ref().unwrap_or(system));
            all.for_each(|passage| page.passage(&passage));
        }
        let account = CacheAccount::since(from.0, context, None);
        for iteration in context.log.between(from.0, u64::MAX) {
            page.line(&heading(iteration, remark_on(shown, iteration.number)));
            let is_first = iteration.number == from.0;
            let skipped = if is_first { from.1 } else { 0 };
            let mut failures = self.failures(iteration).into_iter().peekable();
            let above = iteration.entries().take(skipped);
            page.calls_before = above.map(|entry| entry.message.calls.len()).sum();
            page.marked = how.mark.and_then(|(marked, call)| {
                (usize::try_from(iteration.number) == Ok(marked)).then_some(call)
            });
            for entry in iteration.entries().skip(skipped) {
                while let Some(failure) = failures.next_if(|failure| came_before(failure, entry)) {
                    page.failure(&failure);
                }
                let masked = MaskedEntry::new(entry, self.rendering());
                let said = list_texts(&masked, |value| self.mask_value(value));
                said.iter().for_each(|passage| page.passage(passage));
                let row = account.find(iteration, entry);
                if let Some(line) = row.and_then(cache::line) {
                    page.passage(&Passage::of("prompt cache", line.into(), false));
                }
            }
            failures.for_each(|failure| page.failure(&failure));
        }
        page.text
    }
}

/// Returns a remark on the part of an iteration that the model does not see.
fn remark_on(shown: &ShownConversation<'_>, number: u64) -> &'static str {
    match shown.context.cover(number) {
        None => "",
        Some((_, cover)) if cover.summary.is_some() => ", summarized for the model",
        Some(_) => ", hidden from the model",
    }
}

/// Returns whether a request failed before this message of the model came.
fn came_before(failure: &FailedRequest, entry: &Entry) -> bool {
    let reply = entry.message.reply.as_deref();
    let received = reply.and_then(|reply| reply.received_at);
    received.is_some_and(|received| failure.at <= received)
}

fn heading(iteration: &Iteration, seen: &str) -> String {
    // It is complete only with the next message, which may never come after the model's last word.
    let answer = iteration.last();
    let answer = answer.filter(|last| last.is_model() && last.exchange.is_none());
    let answered = || answer?.message.reply.as_deref()?.received_at;
    let took = match iteration.completed_at.or_else(answered) {
        None if answer.is_some() => String::new(),
        None => ", open".to_owned(),
        Some(at) => format!(", {}", duration(iteration.started_at, at)),
    };
    // chrono's formats would add 25 KB of code that nothing else needs.
    let at = time::to_text(iteration.started_at);
    let at = at.get(..19).unwrap_or(&at).replace('T', " ");
    format!("iteration {}, {at} UTC{took}{seen}", iteration.number)
}

fn duration(from: Time, to: Time) -> String {
    let millis = (to - from).num_milliseconds().max(0);
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
    }
}

struct TerminalPage {
    how: Printed,
    text: String,
    /// The number of the iteration's calls above.
    calls_before: usize,
    /// The position of the call to point at.
    marked: Option<usize>,
}

impl TerminalPage {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn failure(&mut self, failure: &FailedRequest) {
        self.passage(&Passage::of("failed", failure.words().into(), true));
    }

    fn passage(&mut self, passage: &Passage<'_>) {
        let call = match passage.call {
            None => String::new(),
            Some((id, Some(name))) => format!("{id}: {name} "),
            Some((id, None)) => format!("{id}: "),
        };
        let text = [call.as_str(), &passage.text];
        let text = match self.how.width {
            Some(width) => clip(text, width.saturating_sub(LABEL).max(20)),
            None => visible(&text.concat())
                .trim_end()
                .replace('\n', &format!("\n{}", " ".repeat(LABEL))),
        };
        let label = format!("{}{:<2$}", self.margin(passage), passage.label, LABEL - 2);
        self.line(&match (self.how.color, passage.is_error) {
            (false, _) => format!("{label}{text}"),
            (true, false) => format!("\u{1b}[1m{label}\u{1b}[0m{text}"),
            (true, true) => format!("\u{1b}[1m{label}\u{1b}[0m\u{1b}[31m{text}\u{1b}[0m"),
        });
    }

    /// Returns the text before a line: an arrow for the marked call.
    fn margin(&mut self, passage: &Passage<'_>) -> &'static str {
        let Some((_, Some(_name))) = passage.call else {
            return "  ";
        };
        self.calls_before += 1;
        let is_marked = self.marked == self.calls_before.checked_sub(1);
        if is_marked {
            "> "
        } else {
            "  "
        }
    }
}

/// Returns one line of at most `columns`. Text that is not shown is not read.
fn clip(texts: [&str; 2], columns: usize) -> String {
    let mut line = String::new();
    let mut is_space = true; // none at the beginning
    let letters = texts.into_iter().flat_map(str::chars);
    let (mut room, mut letters) = (columns, letters.peekable());
    while let Some(letter) = letters.next_if(|_| room > 0) {
        if !(letter.is_whitespace() && is_space) {
            line.push(if letter.is_whitespace() { ' ' } else { letter });
            room -= 1;
        }
        is_space = letter.is_whitespace();
    }
    if letters.any(|letter| !letter.is_whitespace()) {
        line.pop();
        line.push('\u{2026}');
    }
    visible(line.trim_end()).into_owned()
}
