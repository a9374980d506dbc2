//! Two views side by side: the parts that a model sees less of in one than in the other.

use crate::context::Context;
use crate::log::iteration::Iteration;
use crate::view::recall_handle::RecallHandle;
use crate::view::rendering::Look;

/// A part of which one view shows less than another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// Its look in this view.
    pub look: Look,
    /// Its look in the other view.
    pub was: Look,
    /// The number of the first iteration.
    pub first: u64,
    /// The number of the last.
    pub last: u64,
    /// The id of the call with the result; `None` for all of the iterations.
    pub call: Option<Box<str>>,
    /// The handle that reads it.
    pub handle: RecallHandle,
}

impl Context {
    /// Returns the parts of which this view shows less than another one of the same conversation, oldest first. A part that
    /// only one of them has is not compared.
    ///
    /// # Complexity
    /// O(the log)
    #[must_use]
    pub fn unseen_beside(&self, other: &Self) -> Vec<Unseen> {
        let known = other.first_number()..=other.current_iteration();
        let iterations = self.iterations().filter(|one| known.contains(&one.number));
        let looks =
            iterations.map(|one| (one, self.look_of(one.number), other.look_of(one.number)));
        let looks: Vec<_> = looks.collect();
        let mut unseen = Vec::new();
        for run in looks.chunk_by(|(_, look, was), (_, next, before)| (look, was) == (next, before))
        {
            let Some(((first, look, was), (last, ..))) = run.first().zip(run.last()) else {
                continue;
            };
            if look > was {
                unseen.push(Unseen {
                    look: *look,
                    was: *was,
                    first: first.number,
                    last: last.number,
                    call: None,
                    handle: self.handle_of(first.number, last.number),
                });
            } else if (look, was) == (&Look::Whole, &Look::Whole) {
                run.iter()
                    .for_each(|(one, ..)| self.add_results(one, other, &mut unseen));
            }
        }
        unseen
    }

    fn look_of(&self, number: u64) -> Look {
        match self.cover(number) {
            None => Look::Whole,
            Some((_, cover)) if cover.summary.is_some() => Look::Summarized,
            Some(_) => Look::Hidden,
        }
    }

    fn add_results(&self, iteration: &Iteration, other: &Self, unseen: &mut Vec<Unseen>) {
        let number = iteration.number;
        let (own, others) = (self.rendering(number), other.rendering(number));
        for (slot, (call, outcome)) in iteration.calls().enumerate() {
            let Some(outcome) = outcome else { continue };
            let look = own.result(slot, outcome);
            let was = others.result(slot, outcome);
            if look > was {
                unseen.push(Unseen {
                    look,
                    was,
                    first: number,
                    last: number,
                    call: Some(call.id.clone()),
                    handle: RecallHandle::of_result(number, slot, call, outcome),
                });
            }
        }
    }
}
