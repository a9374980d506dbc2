//! Finds the messages that a model has not read before an answer: those since its last answer.

use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::view::cover::Cover;
use crate::view::View;

/// A message before an answer.
#[derive(Clone, Copy)]
pub(super) enum Read<'a> {
    /// A summary of iterations.
    Summary(&'a Message),
    /// A message of the log.
    Message(&'a Entry),
    /// The results of the calls of a message.
    Results(&'a Entry),
}

/// The new messages since the last answer.
pub(super) struct Unread<'a> {
    context: &'a Context,
    new: Vec<Read<'a>>,
    /// The iteration of the last answer.
    answered: u64,
}

impl<'a> Unread<'a> {
    /// Returns the new messages when an iteration begins.
    pub fn at(context: &'a Context, first: &Iteration) -> Self {
        let mut unread = Self {
            context,
            new: Vec::new(),
            answered: 0,
        };
        let mut earlier = context.log.between(0, first.number.saturating_sub(1)).rev();
        let answered = earlier.find(|iteration| iteration.has_assistant());
        let from = answered.map_or(0, |iteration| iteration.number);
        let before = context.log.between(from, first.number.saturating_sub(1));
        for iteration in before {
            for entry in iteration.entries() {
                unread.add(iteration.number, entry);
            }
        }
        unread
    }

    /// Adds an entry of an iteration.
    pub fn add(&mut self, number: u64, entry: &'a Entry) {
        if !entry.is_model() {
            // A late result repeats its call, which was read before.
            self.new.push(match entry.message.is_arrival() {
                true => Read::Results(entry),
                false => Read::Message(entry),
            });
            return;
        }
        self.answered = number;
        self.new.clear();
        if entry.exchange.is_some() {
            self.new.push(Read::Results(entry));
        }
    }

    /// Returns the messages to which an iteration's answer replies.
    pub fn before(&self, iteration: &Iteration) -> Vec<Read<'a>> {
        let summaries = match self.context.request_view(iteration) {
            Some((since, view)) if since > self.answered => self.new_in(view),
            Some(_same_as_before) => Vec::new(),
            None => self.new_now(iteration.number),
        };
        let summaries = summaries.into_iter().map(Read::Summary);
        summaries.chain(self.new.iter().copied()).collect()
    }

    /// Returns the summaries in the view of a request that the view before did not have.
    fn new_in(&self, view: Option<&'a View>) -> Vec<&'a Message> {
        let answered = self.context.log.get_numbered(self.answered);
        let before = answered.and_then(|iteration| self.context.request_view(iteration)?.1);
        let is_new = |(first, cover): &(u64, &Cover)| {
            let known = before.and_then(|view| view.cover(*first));
            known.is_none_or(|(_, known)| known.summary != cover.summary)
        };
        let covers = view.into_iter().flat_map(View::covers).filter(is_new);
        covers
            .filter_map(|(_, cover)| cover.summary.as_deref())
            .collect()
    }

    /// Returns the summaries of the current view since the last answer, for a request whose view is not known.
    fn new_now(&self, number: u64) -> Vec<&'a Message> {
        let covers = self.context.view().into_iter();
        let covers = covers.flat_map(|view| view.covers.range(..number).rev());
        // They do not overlap, so they end in the order in which they begin.
        let met = covers.take_while(|(_, cover)| cover.last >= self.answered);
        let ended = met.filter(|(_, cover)| cover.last < number);
        let mut all: Vec<_> = ended
            .filter_map(|(_, cover)| cover.summary.as_deref())
            .collect();
        all.reverse();
        all
    }
}
