//! Looking things up in the log: iterations by their numbers, messages by their positions.

use crate::log::exchange::MessageRef;
use crate::log::iteration::Iteration;
use crate::log::Log;
use crate::value::steps;

impl Log {
    /// Returns all iterations, oldest first.
    pub fn iterations(&self) -> impl Iterator<Item = &Iteration> {
        self.history.iter().chain(std::iter::once(&*self.current))
    }

    /// Returns all iterations, newest first.
    pub(crate) fn iterations_back(&self) -> impl Iterator<Item = &Iteration> {
        let done = (0..self.history.len()).rev();
        std::iter::once(&*self.current).chain(done.filter_map(|index| self.history.get(index)))
    }

    /// Returns the number of iterations.
    #[must_use]
    pub fn count_iterations(&self) -> usize {
        self.history.len() + 1
    }

    /// Returns the iteration with this number.
    ///
    /// # Complexity
    /// O(log n)
    #[must_use]
    pub fn iteration(&self, number: i64) -> Option<&Iteration> {
        let index = self.index(number)?;
        if index == self.history.len() {
            return Some(&self.current);
        }
        self.history.get(index)
    }

    pub(crate) fn get_numbered(&self, number: u64) -> Option<&Iteration> {
        steps::count(1);
        self.iteration(i64::try_from(number).ok()?)
    }

    /// Returns the iterations from one number to another, as far as there are any.
    pub(crate) fn between(
        &self,
        first: u64,
        last: u64,
    ) -> impl DoubleEndedIterator<Item = &Iteration> + Clone {
        let numbers = first.max(self.first_number())..=last.min(self.current.number);
        numbers.filter_map(|number| self.get_numbered(number))
    }

    pub(crate) fn index(&self, number: i64) -> Option<usize> {
        let number = u64::try_from(number).ok()?;
        usize::try_from(number.checked_sub(self.first_number())?).ok()
    }

    /// Returns the number of the first iteration.
    #[must_use]
    pub fn first_number(&self) -> u64 {
        let first = self.history.get(0);
        first.map_or(self.current.number, |first| first.number)
    }

    /// Returns the system prompt if this is the first iteration, which shows it.
    pub(crate) fn lead(&self, iteration: &Iteration) -> impl Iterator<Item = MessageRef<'_>> {
        let leads = iteration.number == self.first_number();
        let system = self.system().filter(|_| leads);
        system.into_iter().map(MessageRef::Added)
    }

    /// Returns the messages of one of this conversation's iterations; the first begins with the system prompt.
    pub fn messages_of<'a>(
        &'a self,
        iteration: &'a Iteration,
    ) -> impl Iterator<Item = MessageRef<'a>> {
        self.lead(iteration).chain(iteration.messages())
    }

    /// Returns all messages of the log, oldest first.
    pub fn all_messages(&self) -> impl Iterator<Item = MessageRef<'_>> {
        // Asking each iteration whether it is the first takes as long as finding the next one.
        let system = self.system().into_iter().map(MessageRef::Added);
        system.chain(self.iterations().flat_map(Iteration::messages))
    }

    /// Returns the number of messages of the log.
    #[must_use]
    pub fn count_all_messages(&self) -> usize {
        self.messages + usize::from(self.system.is_some())
    }

    /// Returns the message at a 0-based position of an iteration.
    ///
    /// # Complexity
    /// O(log n)
    #[must_use]
    pub fn message(&self, number: i64, position: usize) -> Option<MessageRef<'_>> {
        let iteration = self.iteration(number)?;
        match (self.lead(iteration).next(), position) {
            (Some(system), 0) => Some(system),
            (Some(_), _) => iteration.message(position - 1),
            (None, _) => iteration.message(position),
        }
    }

    /// Returns the number of the last iteration that two conversations have in common, with all before it.
    ///
    /// # Complexity
    /// O(n) at most; iterations that both share are not compared.
    #[must_use]
    pub fn last_common(&self, other: &Self) -> Option<u64> {
        let pairs = self.iterations().zip(other.iterations());
        let (common, _) = pairs.take_while(|(a, b)| a == b).last()?;
        Some(common.number)
    }
}
