//! The parts of a document that have to be written when an earlier state of it is stored already.

use crate::context::Context;
use crate::log::iteration::Iteration;
use crate::value::time;

/// The parts of a conversation that differ from another one's.
#[derive(Debug)]
pub struct Changes {
    /// The document without iterations and `updated_at`; `None` if it is the same.
    pub head: Option<Vec<u8>>,
    /// The document's `updated_at`.
    pub updated_at: String,
    /// Iterations that differ or that the other one lacks, oldest first: number and document. Iterations that only the other
    /// one has are not listed.
    pub iterations: Vec<(u64, Vec<u8>)>,
}

impl Context {
    /// Returns the parts of this conversation that have to be written if `base` is stored; all of it without one.
    ///
    /// # Complexity
    /// O(size of the result) when this one was made of `base` by adding to it; else all iterations are compared.
    #[must_use]
    pub fn changes(&self, base: Option<&Self>) -> Changes {
        let head = self.head();
        let kept = base.filter(|base| base.first_number() == self.first_number());
        let iterations = match kept {
            Some(base) => self.list_changed_since(base),
            None => self
                .iterations()
                .map(|own| self.write_iteration(own))
                .collect(),
        };
        Changes {
            head: Some(head).filter(|head| base.map(Self::head).as_ref() != Some(head)),
            updated_at: time::to_text(self.updated_at()),
            iterations,
        }
    }

    /// Returns all iterations from the first one on that differs, or from the current one.
    #[must_use]
    pub fn changes_from(&self, base: &Self) -> Vec<(u64, Vec<u8>)> {
        let first = self.last_common(base).map_or(0, |common| {
            common.saturating_add(1).min(self.current_iteration())
        });
        let changed = self.iterations().filter(|own| own.number >= first);
        changed.map(|own| self.write_iteration(own)).collect()
    }

    fn list_changed_since(&self, base: &Self) -> Vec<(u64, Vec<u8>)> {
        let (own, other) = (&self.log.history, &base.log.history);
        let same = match own.continues(other) {
            true => own.len().min(other.len()) as u64,
            false => 0,
        };
        let first = self.first_number().saturating_add(same);
        let numbers = first..=self.current_iteration();
        let changed = numbers.filter_map(|number| {
            let iteration = self.log.get_numbered(number)?;
            let is_same = |kept: &Iteration| std::ptr::eq(iteration, kept) || iteration == kept;
            let kept = base.log.get_numbered(number).is_some_and(is_same)
                && self.inputs.at(number) == base.inputs.at(number)
                && self.inputs.request_at(number) == base.inputs.request_at(number);
            (!kept).then(|| self.write_iteration(iteration))
        });
        changed.collect()
    }

    fn write_iteration(&self, iteration: &Iteration) -> (u64, Vec<u8>) {
        (iteration.number, self.iteration_text(iteration))
    }
}
