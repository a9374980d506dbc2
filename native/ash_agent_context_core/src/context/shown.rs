//! A conversation as it is shown: the log through the view, and changes of the view.

use std::iter::Peekable;
use std::sync::Arc;

use crate::context::masked::masked_blocks;
use crate::context::Context;
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Outcome, Status};
use crate::value::time::Time;
use crate::value::Size;
use crate::view::cover::Cover;
use crate::view::rendering::{Rendering, Shown};
use crate::view::shortening::{self, Shortening};
use crate::view::veil::Compared;
use crate::view::{with_prompt_texts, Cleared, Stretch, View, CLEARED};

/// Walks over the covers of a view and the iterations between them.
pub(crate) struct Steps<'a, I: Iterator<Item = (u64, &'a Cover)>> {
    context: &'a Context,
    covers: Peekable<I>,
    next: u64,
    last: u64,
}

impl<'a, I: Iterator<Item = (u64, &'a Cover)>> Iterator for Steps<'a, I> {
    type Item = Stretch<'a>;

    fn next(&mut self) -> Option<Stretch<'a>> {
        if self.next > self.last {
            return None;
        }
        if let Some((first, cover)) = self.covers.next_if(|(first, _)| *first <= self.next) {
            self.next = cover.last.saturating_add(1);
            let rendering = self.context.rendering(u64::MAX);
            return Some(Stretch::Cover(
                first,
                cover.last,
                cover.replacement(),
                rendering,
            ));
        }
        let iteration = self.context.log.get_numbered(self.next)?;
        self.next += 1;
        Some(Stretch::Iteration(
            iteration,
            self.context.rendering(iteration.number),
        ))
    }
}

impl<'a, I: Iterator<Item = (u64, &'a Cover)>> Steps<'a, I> {
    /// Returns the number of the first iteration of the next cover.
    pub fn next_cover(&mut self) -> Option<u64> {
        self.covers.peek().map(|(first, _)| *first)
    }

    /// Goes on with an iteration; there is no cover before it.
    pub fn skip_to(&mut self, number: u64) {
        self.next = number;
    }
}

impl Context {
    /// Returns the view, if it does not show the whole log as it is.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.view.as_deref()
    }

    pub(crate) fn rendering(&self, number: u64) -> Rendering<'_> {
        let view = self.view();
        view.map_or(Rendering::PLAIN, |view| view.rendering(number))
    }

    /// Returns the covers of the view, oldest first.
    pub(crate) fn covers(&self) -> impl Iterator<Item = (u64, &Cover)> {
        self.view().into_iter().flat_map(View::covers)
    }

    pub(crate) fn view_size(&self) -> Size {
        self.view().map_or(Size::default(), View::size)
    }

    /// Returns true if an iteration is covered.
    pub(crate) fn hides(&self, number: u64) -> bool {
        self.cover(number).is_some()
    }

    /// Returns the cover over an iteration, with the number of its first.
    #[must_use]
    pub fn cover(&self, number: u64) -> Option<(u64, &Cover)> {
        self.view.as_deref()?.cover(number)
    }

    /// Returns the parts of the view from an iteration to another.
    pub(crate) fn stretches(
        &self,
        from: u64,
        to: u64,
    ) -> Steps<'_, impl Iterator<Item = (u64, &Cover)>> {
        let from = from.max(self.first_number());
        let start = self.cover(from).map_or(from, |(first, _)| first);
        let covers = self.view.as_deref().into_iter();
        let covers = covers.flat_map(move |view| view.covers.range(start..));
        Steps {
            context: self,
            covers: covers.map(|(first, cover)| (*first, cover)).peekable(),
            next: from,
            last: to.min(self.current_iteration()),
        }
    }

    /// Returns the system prompt with the texts that the view puts after it.
    #[must_use]
    pub fn shown_system(&self) -> Option<&Message> {
        let shown = self.view.as_deref().and_then(|view| view.system.as_deref());
        shown.or(self.system())
    }

    /// Returns the messages of the view, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = Shown<'_>> {
        let system = self.shown_system();
        let system = system.map(|system| Shown::added(system, self.rendering(u64::MAX)));
        system.into_iter().chain(self.messages_between(0, u64::MAX))
    }

    /// Returns the messages of a range of the view, without the system prompt.
    pub fn messages_between(&self, first: u64, last: u64) -> impl Iterator<Item = Shown<'_>> {
        self.stretches(first, last).flat_map(Stretch::messages)
    }

    /// Returns the number of messages in the view.
    #[must_use]
    pub fn count_messages(&self) -> usize {
        let shown = self.count_all_messages() + usize::from(self.shown_system().is_some())
            - usize::from(self.system().is_some());
        self.view().map_or(shown, |view| {
            shown - view.covered + view.summaries + view.notes
        })
    }

    /// Returns true if the view differs from the log.
    #[must_use]
    pub const fn has_view(&self) -> bool {
        self.view.is_some()
    }

    /// Returns the conversation with a change that was made at a time.
    pub(crate) fn changed(&self, at: Time, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next.log.updated_at = at;
        next
    }

    /// Changes the looks of messages, so that no count of them holds any more.
    pub(crate) fn change_looks(&mut self, change: impl FnOnce(&mut View)) {
        self.change_view(change);
        self.tallies = Default::default();
    }

    /// Changes the cover that begins with an iteration.
    pub(crate) fn change_cover(&mut self, first: u64, change: impl FnOnce(&mut Cover)) {
        if let Some((_, cover)) = self.cover(first).filter(|(start, _)| *start == first) {
            let mut cover = cover.clone();
            change(&mut cover);
            self.put_covers(vec![(first, cover)]);
        }
    }

    /// Changes the view, and removes one that shows the log as it is.
    pub(crate) fn change_view(&mut self, change: impl FnOnce(&mut View)) {
        let mut view = self.view.take().unwrap_or_default();
        change(Arc::make_mut(&mut view));
        self.view = (*view != View::default()).then_some(view);
        self.grown();
    }

    /// Takes the rules of another view that do not depend on certain iterations.
    pub(crate) fn take_rules(&mut self, other: &Self) {
        let Some(rules) = other.view() else { return };
        self.change_view(|view| {
            view.max_result_bytes = rules.max_result_bytes;
            view.masks.clone_from(&rules.masks);
            view.recall = rules.recall;
            view.index = rules.index;
            view.user_bytes = rules.user_bytes;
            view.prompt_texts = rules.prompt_texts.clone();
            let facts = rules.pins().map(|pins| pins.up_to(0));
            view.pins = facts.filter(|pins| !pins.is_empty()).map(Arc::new);
        });
        self.show_system();
    }

    /// Makes the system prompt of the view anew. The texts after it may repeat what is masked elsewhere.
    pub(crate) fn show_system(&mut self) {
        let compared = self.compare_blocks();
        self.put_shown_system(compared);
    }

    pub(crate) fn put_shown_system(&mut self, compared: Option<Compared>) {
        let Some(view) = self.view() else { return };
        let texts = &view.prompt_texts;
        let system = (!texts.is_empty()).then(|| {
            let texts = masked_blocks(texts, self.masks(), compared.as_ref());
            let content = with_prompt_texts(self.log.system.as_deref(), &texts);
            Arc::new(Message::system(content))
        });
        self.change_view(|view| {
            view.compared = compared.map(Arc::new);
            view.system = system;
            view.resize();
        });
    }

    /// Hides iterations. Covers that they meet become one with them: so no summary may reach out of the range.
    pub(crate) fn put_hidden(&mut self, first: u64, last: u64) {
        // Neighbours that are hidden already join them.
        let first = self.hidden_at(first, first).0;
        let last = self.hidden_at(last, last).1;
        let first = self.hidden_at(first.saturating_sub(1), first).0;
        let last = self.hidden_at(last.saturating_add(1), last).1;
        let messages = self.stretches(first, last).map(|stretch| match stretch {
            Stretch::Iteration(iteration, _) => iteration.count_messages(),
            Stretch::Cover(first, ..) => self.cover(first).map_or(0, |(_, cover)| cover.messages),
        });
        let hidden = Cover {
            last,
            note: self.hidden_note(first, last),
            messages: messages.sum(),
            ..Cover::default()
        };
        self.replace_covers(first, last, [(first, hidden)]);
    }

    /// Puts a summary in the place of iterations. Iterations hidden beside them stay hidden; no other
    /// summary may reach out of the range.
    pub(crate) fn put_summary(&mut self, first: u64, last: u64, summary: Arc<Message>) {
        let start = self.hidden_at(first, first).0;
        let end = self.hidden_at(last, last).1;
        let mut covers = Vec::with_capacity(3);
        if start < first {
            covers.push((start, self.cover_of(start, first - 1, None)));
        }
        covers.push((first, self.cover_of(first, last, Some(summary))));
        if last < end {
            covers.push((last + 1, self.cover_of(last + 1, end, None)));
        }
        self.replace_covers(start, end, covers);
    }

    fn cover_of(&self, first: u64, last: u64, summary: Option<Arc<Message>>) -> Cover {
        let iterations = self.log.between(first, last);
        let note = || self.hidden_note(first, last);
        Cover {
            last,
            note: summary.is_none().then(note).flatten(),
            summary,
            messages: iterations.map(Iteration::count_messages).sum(),
            ..Cover::default()
        }
    }

    /// Puts covers in the place of all that lie within a range.
    fn replace_covers(
        &mut self,
        first: u64,
        last: u64,
        covers: impl IntoIterator<Item = (u64, Cover)>,
    ) {
        let before = self.range_tokens(first, last);
        self.change_view(|view| {
            while let Some((met, _)) = view.covers.range(first..=last).next() {
                let met = *met;
                view.take(met);
            }
            for (first, cover) in covers {
                view.put(first, cover);
            }
        });
        self.retally(first, last, before);
    }

    /// Hides iterations; those that a summary covers stay as they are.
    pub(crate) fn hide(&mut self, first: u64, last: u64) {
        let summaries = self
            .stretches(first, last)
            .filter_map(|stretch| match stretch {
                Stretch::Cover(start, end, Some(_), _) if self.summary(start).is_some() => {
                    Some((start, end))
                }
                _ => None,
            });
        let behind = last.saturating_add(1);
        let summaries: Vec<_> = summaries.chain([(behind, behind)]).collect();
        let mut next = first;
        for (start, end) in summaries {
            if next < start {
                self.put_hidden(next, start - 1);
            }
            next = end.saturating_add(1);
        }
    }

    /// Notes that a policy chose to hide what is hidden in a range.
    pub(crate) fn note_chosen(&mut self, first: u64, last: u64) {
        if first > last {
            return; // an empty range, which the map of covers does not take
        }
        let start = self.hidden_at(first, first).0;
        let covers = self.view().map(|view| view.covers.range(start..=last));
        let hidden = covers
            .into_iter()
            .flatten()
            .filter(|(_, cover)| cover.summary.is_none());
        let starts: Vec<u64> = hidden.map(|(start, _)| *start).collect();
        for start in starts {
            self.change_cover(start, |cover| cover.by_policy = true);
        }
    }

    /// Returns the hidden range around an iteration, or another number twice.
    fn hidden_at(&self, number: u64, other: u64) -> (u64, u64) {
        match self.cover(number) {
            Some((first, cover)) if cover.summary.is_none() => (first, cover.last),
            _ => (other, other),
        }
    }

    /// Takes covers off iterations: of hidden ones those of the range, summaries as a whole.
    pub(crate) fn uncover(&mut self, first: u64, last: u64) {
        if first > last {
            return; // an empty range, which the map of covers does not take
        }
        // Iterations that are shown again may never have been counted.
        self.tallies = Default::default();
        let start = self.cover(first).map_or(first, |(first, _)| first);
        let view = self.view().into_iter();
        let met = view.flat_map(|view| view.covers.range(start..=last));
        let met: Vec<_> = met.map(|(first, cover)| (*first, cover.clone())).collect();
        for (start, cover) in met {
            let mut left = Vec::new();
            if cover.summary.is_none() && start < first {
                left.push((start, self.cover_of(start, first - 1, None)));
            }
            if cover.summary.is_none() && cover.last > last {
                left.push((last + 1, self.cover_of(last + 1, cover.last, None)));
            }
            self.replace_covers(start, cover.last, left);
        }
    }

    /// Repairs the view after a rewind: nothing covers the current turn, nor iterations that are gone.
    pub(crate) fn cut_view(&mut self) {
        let Some(view) = self.view() else { return };
        let kept = self.log.current.turn;
        let gone: Vec<(u64, Cover)> = view
            .covers
            .iter()
            .rev()
            .take_while(|(_, cover)| cover.last >= kept)
            .map(|(first, cover)| (*first, cover.clone()))
            .collect();
        let behind = self.current_iteration().saturating_add(1);
        self.change_view(|view| {
            for (first, _) in &gone {
                view.take(*first);
            }
            let pins = view.pins.take().map(|pins| pins.up_to(behind - 1));
            view.pins = pins.filter(|pins| !pins.is_empty()).map(Arc::new);
            if let Some(cleared) = view.cleared.as_mut().filter(|all| all.iteration >= behind) {
                // The clearing was not meant for the current answer.
                *cleared = Arc::new(Cleared::at((behind, 0), &cleared.placeholder));
            }
            view.retain_shortenings(behind - 1);
        });
        self.tallies = Default::default();
        for (first, cover) in gone {
            if cover.summary.is_none() && first < kept {
                self.put_hidden(first, kept - 1);
            }
        }
    }

    /// Brings iterations back into the view that were hidden or summarised.
    ///
    /// A summary goes as a whole, wherever the range meets it.
    #[must_use]
    pub fn expand(&self, first: u64, last: u64, at: Time) -> Self {
        self.changed(at, |next| {
            next.uncover(first, last);
            next.retain_shortenings();
        })
    }

    /// Blanks all results in the view but the last ones.
    ///
    /// # Complexity
    /// O(the results that stay)
    #[must_use]
    pub fn clear_tool_results(&self, keep: usize, placeholder: &str, at: Time) -> Self {
        self.clear_results(keep, placeholder, false, at)
    }

    /// Does the same. `by_policy`: a policy chose it, so that nobody takes it for a mistake.
    #[must_use]
    pub fn clear_results(&self, keep: usize, placeholder: &str, by_policy: bool, at: Time) -> Self {
        let cleared = self.place_of_results(keep).map(|place| {
            let cleared = Cleared::at(place, placeholder);
            Arc::new(Cleared {
                by_policy,
                ..cleared
            })
        });
        self.changed(at, |next| {
            next.change_looks(|view| view.cleared = cleared);
        })
    }

    /// Returns the place before which results are cleared: an iteration, and a number of its calls.
    pub(crate) fn cleared_place(&self) -> Option<(u64, usize)> {
        let cleared = self.view()?.cleared()?;
        Some((cleared.iteration, cleared.calls))
    }

    /// Returns the text in the place of cleared results.
    pub(crate) fn placeholder(&self) -> &str {
        let cleared = self.view().and_then(View::cleared);
        cleared.map_or(CLEARED, |cleared| &cleared.placeholder)
    }

    /// Returns the position after which the view has so many results, if there are any before it. Calls that are still
    /// pending come after it.
    fn place_of_results(&self, mut keep: usize) -> Option<(u64, usize)> {
        for iteration in self.log.iterations_back() {
            if self.hides(iteration.number) {
                continue;
            }
            let calls = iteration.calls();
            let answered: Vec<_> = calls.map(|(_, outcome)| outcome).collect();
            let waiting = answered.iter().position(Option::is_none);
            // The placeholder of a call that waits is no result.
            let is_result = |of: &Outcome| of.status != Status::Waiting;
            let slots = answered.iter().enumerate().rev();
            for (call, _) in slots.filter(|(_, outcome)| outcome.is_some_and(is_result)) {
                if keep == 0 {
                    let calls = waiting.map_or(call + 1, |first| first.min(call + 1));
                    return Some((iteration.number, calls));
                }
                keep -= 1;
            }
        }
        None
    }

    /// Limits the text of results in the view; `None` shows them whole. Steps that shortened results are forgotten.
    #[must_use]
    pub fn put_max_result_bytes(&self, most: Option<usize>, at: Time) -> Self {
        let mut steps = self.shortenings().to_vec();
        shortening::take_shortened(&mut steps, 0);
        self.changed(at, |next| next.change_most(most, steps))
    }

    /// Changes the limit of results and the steps by which the view became shorter.
    pub(crate) fn change_most(&mut self, most: Option<usize>, steps: Vec<Shortening>) {
        self.change_looks(|view| {
            (view.max_result_bytes, view.shortenings) = (most, steps.into());
            view.resize();
        });
    }

    /// Puts a text after the system prompt of the view, in the place of the one with this name; `None` removes that.
    #[must_use]
    pub fn put_prompt_block(&self, name: &str, text: Option<&str>, at: Time) -> Self {
        let mut texts = self
            .view()
            .map_or(Vec::new(), |view| view.prompt_texts.to_vec());
        let known = texts.iter_mut().find(|(known, _)| &**known == name);
        match (known, text) {
            (Some(known), Some(text)) => known.1 = text.into(),
            (None, Some(text)) => texts.push((name.into(), text.into())),
            (_, None) => texts.retain(|(known, _)| &**known != name),
        }
        self.changed(at, |next| {
            // The same text is compared with each message as it comes.
            if next.view().map_or(&[][..], View::prompt_texts) != texts {
                next.change_view(|view| view.prompt_texts = texts.into());
                next.show_system();
            }
            next.grown();
        })
    }
}

impl<'a> Stretch<'a> {
    /// Returns its messages.
    pub(crate) fn messages(self) -> impl DoubleEndedIterator<Item = Shown<'a>> {
        let (iteration, rendering, summary) = match self {
            Self::Iteration(iteration, rendering) => (Some(iteration), rendering, None),
            Self::Cover(_, _, summary, rendering) => (None, rendering, summary),
        };
        let entries = iteration.into_iter().flat_map(Iteration::entries);
        let shown = entries.flat_map(move |entry| {
            let rendering = rendering.behind(entry.slots);
            let messages = entry.messages();
            messages.map(move |message| Shown { message, rendering })
        });
        let summary = summary.map(|summary| Shown::added(summary, rendering));
        summary.into_iter().chain(shown)
    }
}
