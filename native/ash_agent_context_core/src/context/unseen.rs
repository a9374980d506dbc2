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

impl Unseen {
    fn new(
        number: u64,
        [look, was]: [Look; 2],
        call: Option<Box<str>>,
        handle: RecallHandle,
    ) -> Self {
        Self {
            look,
            was,
            first: number,
            last: number,
            call,
            handle,
        }
    }
}

impl Context {
    /// Returns the parts of which this view shows less than another one of the same conversation, oldest first. A part that
    /// only one of them has is not compared.
    ///
    /// # Complexity
    /// O(the log)
    #[must_use]
    pub fn unseen_beside(&self, other: &Self) -> Vec<Unseen> {
        let mut unseen: Vec<Unseen> = Vec::new();
        let known = other.first_number()..=other.current_iteration();
        for iteration in self.iterations().filter(|one| known.contains(&one.number)) {
            let number = iteration.number;
            let (look, was) = (self.look_of(number), other.look_of(number));
            if look > was {
                let before = unseen.last_mut().filter(|before| {
                    let is_same = before.look == look && before.was == was;
                    is_same && before.call.is_none() && before.last + 1 == number
                });
                if let Some(before) = before {
                    before.last = number;
                    continue;
                }
                let handle = self.handle_of(number, number);
                unseen.push(Unseen::new(number, [look, was], None, handle));
            } else if look == Look::Whole {
                self.add_results(iteration, other, &mut unseen);
            }
        }
        for one in unseen.iter_mut().filter(|one| one.first < one.last) {
            one.handle = self.handle_of(one.first, one.last);
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
        if other.look_of(number) != Look::Whole {
            return;
        }
        for (slot, (call, outcome)) in iteration.calls().enumerate() {
            let Some(outcome) = outcome else { continue };
            let look = own.result(slot, outcome);
            let was = others.result(slot, outcome);
            if look > was {
                let handle = RecallHandle::of_result(number, slot, call, outcome);
                let call = Some(call.id.clone());
                unseen.push(Unseen::new(number, [look, was], call, handle));
            }
        }
    }
}
