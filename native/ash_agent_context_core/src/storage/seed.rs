//! The beginning of a child's conversation: a range of its parent's iterations as a conversation of
//! its own.

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
use crate::log::late::CallPlace;
use crate::log::message::Message;
use crate::value::time::Time;

impl Context {
    /// Returns a conversation of these iterations of another one, numbered from 1, without its prompts, metadata and reports
    /// on tokens. Of the parent's view it keeps the rules that hide parts of texts.
    ///
    /// # Errors
    /// [`Error::UnknownIteration`]; [`Error::PendingToolCalls`] when calls wait in the last of them.
    pub fn seed(&self, first: i64, last: i64, id: &str, at: Time) -> Result<Self, Error> {
        let parent = self.rewind(last)?;
        parent.log.check_nothing_pending()?;
        let range = (parent.iteration(first), u64::try_from(first));
        let (Some(opening), Ok(first)) = range else {
            return Err(parent.log.unknown_iteration(first));
        };
        let mut child = Self::start_with(id, at, renumber(opening, 1));
        child.say_again(opening, first);
        let rest = first.saturating_add(1)..=parent.current_iteration();
        let rest = rest.filter_map(|number| parent.log.get_numbered(number));
        for (iteration, number) in rest.zip(2..) {
            child.log.open(renumber(iteration, number));
            child.say_again(iteration, first);
        }
        child.log.leave_waiting();
        if let Some(view) = parent.view() {
            child.change_view(|own| {
                own.max_result_bytes = view.max_result_bytes;
                own.masks.clone_from(&view.masks);
            });
            child.show_system();
            child.grown();
        }
        Ok(child)
    }

    /// Adds the messages of an iteration with ids that differ from those of this conversation. `first` became number 1.
    fn say_again(&mut self, iteration: &Iteration, first: u64) {
        for entry in iteration.entries() {
            let message = &entry.message;
            let again = Message::new(
                message.role,
                message.content.clone(),
                message.calls.clone(),
                message.metadata.clone(),
            );
            let again = again
                .with_original(message.original.clone())
                .with_extra(message.extra.clone());
            let mut exchange = entry.exchange.as_deref().cloned().unwrap_or_default();
            exchange.arrival = exchange.arrival.map(|of| CallPlace {
                iteration: of.iteration.saturating_add(1).saturating_sub(first),
                ..of
            });
            self.log.append_answered(again, exchange);
        }
    }
}

/// Returns an iteration without its messages, under another number.
fn renumber(iteration: &Iteration, number: u64) -> Iteration {
    let mut empty = Iteration::new(number, iteration.started_at);
    empty.completed_at = iteration.completed_at;
    empty.metadata = iteration.metadata.clone();
    empty.with_extra(iteration.extra.clone())
}
