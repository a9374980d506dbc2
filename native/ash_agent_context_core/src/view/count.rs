//! Tokens of what is shown: each message is counted once as it looks, and of a list only what is new.

use crate::log::call::ToolCall;
use crate::log::exchange::{Entry, Exchange};
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::tokens::{Method, Tokens};
use crate::value::Size;
use crate::view::rendering::Rendering;
use crate::view::Stretch;

/// Returns the key under which a count is kept.
fn key(method: Method, rendering: u64) -> u64 {
    rendering ^ method.index() as u64
}

impl Stretch<'_> {
    pub(crate) fn tokens(&self, method: Method) -> Tokens {
        match self {
            Self::Iteration(iteration, rendering) => iteration.tokens(method, *rendering),
            Self::Cover(_, _, None, _) => Tokens::default(),
            Self::Cover(_, _, Some(summary), rendering) => Tokens {
                summaries: summary.tokens(method, *rendering).total(),
                ..Tokens::default()
            },
        }
    }
}

impl Iteration {
    /// Returns the tokens of its messages as they look.
    pub(crate) fn tokens(&self, method: Method, rendering: Rendering<'_>) -> Tokens {
        if rendering.key_of_iteration(self) != 0 {
            let counts = self.entries().map(|entry| entry.tokens(method, rendering));
            return counts.fold(Tokens::default(), Tokens::plus);
        }
        // The results of the last message may still change.
        let closed = self.entries().len().saturating_sub(1);
        let before = self.tallies.count(method.index(), closed, |start| {
            let new = self.entries_from(start.len, closed);
            let new = new.map(|entry| entry.tokens(method, rendering));
            new.fold(start.sum, Tokens::plus)
        });
        let last = self.last().map(|last| last.tokens(method, rendering));
        before.plus(last.unwrap_or_default())
    }

    /// Returns the size of the messages that a count still has to read.
    pub(crate) fn measure_uncounted(&self, method: Method) -> Size {
        let counted = self.tallies.count_done(method.index());
        if counted == 0 && self.entries().len() > 1 {
            return self.size();
        }
        let few = Size::new(self.entries().len() - counted, 0);
        self.last().map_or(few, |last| {
            let size = last.message.measure_uncounted(method);
            let exchange = last.exchange.as_deref();
            let exchange = exchange.map(|exchange| exchange.measure_uncounted(method));
            few.plus(size).plus(exchange.unwrap_or_default())
        })
    }
}

impl Entry {
    /// Returns the tokens of a message and its results, given the look of their iteration.
    fn tokens(&self, method: Method, rendering: Rendering<'_>) -> Tokens {
        let rendering = rendering.behind(self.slots);
        let message = self.message.tokens(method, rendering);
        let Some(exchange) = &self.exchange else {
            return message;
        };
        let results = exchange.tokens(method, &self.message.calls, rendering);
        message.plus(Tokens {
            tool_results: results,
            ..Tokens::default()
        })
    }
}

impl Message {
    /// Returns the tokens of the message as it looks.
    pub(crate) fn tokens(&self, method: Method, rendering: Rendering<'_>) -> Tokens {
        let key = key(method, rendering.key_of_message(self));
        let count = || match rendering.message(self) {
            Some(shown) => shown.count(method),
            None => self.count(method),
        };
        self.counts.value(key, count)
    }

    pub(crate) fn measure_uncounted(&self, method: Method) -> Size {
        match self.counts.get(key(method, 0)) {
            Some(_) => Size::default(),
            None => self.size(),
        }
    }
}

impl Exchange {
    /// Returns the tokens of the results as they look.
    pub(crate) fn tokens(
        &self,
        method: Method,
        calls: &[ToolCall],
        rendering: Rendering<'_>,
    ) -> u64 {
        let key = key(method, rendering.key_of_results(self));
        let count = || match rendering.exchange(calls, self) {
            Some(shown) => shown.count(method),
            None => self.count(method),
        };
        self.counts.value(key, count)
    }

    /// Returns by how many tokens each result gets shorter if it is cleared; `None` for an empty slot.
    pub(crate) fn count_savings(
        &self,
        method: Method,
        calls: &[ToolCall],
        [shown, cleared]: [Rendering<'_>; 2],
    ) -> Vec<Option<u64>> {
        if let [_] = calls {
            // Mostly there is one, and both counts are kept.
            let saved = || {
                let [shown, cleared] =
                    [shown, cleared].map(|look| self.tokens(method, calls, look));
                shown.saturating_sub(cleared)
            };
            return self.slots().map(|slot| slot.map(|_| saved())).collect();
        }
        let [shown, cleared] = [shown, cleared].map(|look| {
            let other = look.exchange(calls, self);
            let count = |exchange: &Self| -> Vec<Option<u64>> {
                let slots = exchange.slots();
                slots.map(|slot| Some(slot?.count(method))).collect()
            };
            other.as_ref().map_or_else(|| count(self), count)
        });
        let both = shown.into_iter().zip(cleared);
        both.map(|(shown, cleared)| Some(shown?.saturating_sub(cleared?)))
            .collect()
    }

    pub(crate) fn measure_uncounted(&self, method: Method) -> Size {
        match self.counts.get(key(method, 0)) {
            Some(_) => Size::default(),
            None => self.size(),
        }
    }
}
