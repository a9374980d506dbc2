//! The steps that shorten a view because a request was too long, and their causes.

use crate::value::word::words;

/// A view keeps so many steps; the oldest go first.
const MOST: usize = 50;

words! {
    /// Why a view was shortened.
    pub enum Pressure {
        /// The provider refused a request as too long.
        Overflow = "context_overflow",
        /// The next request would have had more tokens than the model's window.
        Window = "window",
    }
}

words! {
    /// The kind of step.
    pub enum ShorteningKind {
        /// Results were cleared.
        Cleared = "cleared",
        /// Iterations were hidden.
        Hidden = "hidden",
        /// A summary took the place of iterations.
        Summarized = "summarized",
        /// Long results lost their middle.
        Shortened = "shortened",
    }
}

/// A step by which a view became shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortening {
    /// The kind of step.
    pub kind: ShorteningKind,
    /// The reason for it.
    pub cause: Pressure,
    /// The iteration whose request was too long.
    pub iteration: u64,
    /// The first iteration that is shown otherwise since then.
    pub first: u64,
    /// The last iteration that is shown otherwise.
    pub last: u64,
    /// The place before which results had been cleared already: an iteration, and a number of its calls. Of a step that
    /// shortened results, its iteration and the most bytes that they could have before, if there was a limit.
    pub before: Option<(u64, usize)>,
}

impl Shortening {
    /// Returns the most bytes of a result before a step that shortened results.
    pub(crate) fn most_before(&self) -> Option<usize> {
        self.before.map(|(_, most)| most)
    }
}

/// Adds a step.
pub(crate) fn add(steps: &[Shortening], step: Shortening) -> Vec<Shortening> {
    let from = (steps.len() + 1).saturating_sub(MOST);
    let kept = steps.get(from..).unwrap_or_default();
    kept.iter().copied().chain([step]).collect()
}

/// Takes back the steps that shortened results from a position on. Returns the first of them.
pub(crate) fn take_shortened(steps: &mut Vec<Shortening>, from: usize) -> Option<Shortening> {
    let mut first = None;
    let mut position = 0;
    steps.retain(|step| {
        let is_kept = step.kind != ShorteningKind::Shortened || position < from;
        position += 1;
        if !is_kept {
            first = first.or(Some(*step));
        }
        is_kept
    });
    first
}

/// Takes back a clearing of everything before a place, and later ones. Returns the place before which results stay cleared;
/// its `None` means none.
pub(crate) fn take_back(
    steps: &mut Vec<Shortening>,
    cleared: Option<(u64, usize)>,
    step: &Shortening,
) -> Option<(u64, usize)> {
    let place = cleared.min(step.before);
    steps.retain(|step| step.kind != ShorteningKind::Cleared || step.before < place);
    place
}
