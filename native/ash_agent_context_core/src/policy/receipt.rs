//! The receipt of a view: for each fact that it does not show in its place, whether a model still sees it elsewhere, can
//! recall it, must not see it, or has lost it.

use std::collections::BTreeMap;

use crate::context::log_text::LogText;
use crate::context::Context;
use crate::log::exchange::MessageRef;
use crate::log::iteration::Iteration;
use crate::log::message::Role;
use crate::policy::facts::add_keys;
use crate::policy::known_facts::{Fact, Facts, Texts};
use crate::value::keys::KeySet;
use crate::value::word::words;
use crate::view::facts::FactKind;
use crate::view::recall_handle::RecallHandle;
use crate::view::rendering::Shown;
use crate::view::texts::{content_text, output_text};
use crate::view::Stretch;

words! {
    /// The state of a fact for the model.
    pub enum FactState {
        /// It stands elsewhere in the view.
        Visible = "visible",
        /// A recall shows it.
        Recall = "recall",
        /// The view masks it.
        Masked = "masked",
        /// The log has it, and the model has no way to it.
        Gone = "gone",
    }
}

/// A fact that the view does not show where it was said.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceiptFact {
    /// The kind of fact.
    pub kind: FactKind,
    /// Its state; never [`FactState::Masked`]: masked facts are counted and not listed.
    pub state: FactState,
    /// Its words.
    pub text: Box<str>,
    /// The handle that reads it, if the view has handles.
    pub handle: Option<RecallHandle>,
    /// The last iteration that has it.
    pub iteration: u64,
    /// The number of calls that used it.
    pub uses: u32,
}

/// The facts that a view does not show in their places, and counts of all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Receipt {
    counts: BTreeMap<(FactKind, FactState), usize>,
    /// The facts that are not visible, the likeliest to be needed first.
    pub facts: Vec<ReceiptFact>,
}

impl Receipt {
    /// Returns the number of facts with a state.
    #[must_use]
    pub fn count(&self, state: FactState) -> usize {
        let kinds = FactKind::ALL.into_iter();
        kinds.map(|kind| self.count_of(kind, state)).sum()
    }

    /// Returns the number of facts of a kind with a state.
    #[must_use]
    pub fn count_of(&self, kind: FactKind, state: FactState) -> usize {
        self.counts.get(&(kind, state)).copied().unwrap_or(0)
    }
}

impl Context {
    /// Returns the receipt of the view, with at most so many facts listed.
    ///
    /// # Complexity
    /// O(the log) the first time; then O(what is new, what is shown in full since, and the facts)
    #[must_use]
    pub fn receipt(&self, most: usize) -> Receipt {
        self.receipt_of(Texts::Shortened, most)
    }

    /// Returns the receipt of the request of an iteration; `None` if the view that it was made from is not known.
    ///
    /// # Complexity
    /// O(the log)
    #[must_use]
    pub fn receipt_of_request(&self, number: u64, most: usize) -> Option<Receipt> {
        let context = self.asked_view_of(number)?;
        Some(context.receipt_of(Texts::OfRequest(number), most))
    }

    /// Returns the conversation at the end of an iteration, under the view that its request was made from, as
    /// [`Context::unseen_beside`] takes it.
    #[must_use]
    pub fn asked_view_of(&self, number: u64) -> Option<Self> {
        let iteration = self.log.get_numbered(number)?;
        let (_, asked) = self.request_view(iteration)?;
        let mut asked = asked.cloned().unwrap_or_default();
        let own = self.view();
        asked.masks = own.and_then(|view| view.masks.clone());
        let mut context = self.rewind(i64::try_from(number).ok()?).ok()?;
        context.change_view(|view| *view = asked);
        context.show_system();
        context.tallies = Default::default();
        Some(context)
    }

    /// Makes a receipt of the view, or of an iteration's request, which does not have its answer yet.
    fn receipt_of(&self, texts: Texts, most: usize) -> Receipt {
        self.with_facts(texts, |facts| {
            let counts = FactKind::ALL.into_iter().zip(facts.counts());
            let counts = counts.flat_map(|(kind, [seen, masked, unseen])| {
                let states = [
                    (FactState::Visible, *seen),
                    (FactState::Masked, *masked),
                    (self.unseen_state(), *unseen),
                ];
                states.map(|(state, count)| ((kind, state), count))
            });
            let told = facts.best(most, false);
            Receipt {
                counts: counts.filter(|(_, count)| *count > 0).collect(),
                facts: told
                    .map(|fact| self.tell_fact(fact, facts.uses(fact)))
                    .collect(),
            }
        })
    }

    /// Returns the state of a fact that no model sees and no mask hides.
    fn unseen_state(&self) -> FactState {
        match self.has_recall() {
            true => FactState::Recall,
            false => FactState::Gone,
        }
    }

    fn tell_fact(&self, fact: &Fact, uses: u32) -> ReceiptFact {
        let handle = self.has_recall().then(|| self.handle_at(fact.at));
        ReceiptFact {
            kind: fact.kind,
            state: self.unseen_state(),
            text: fact.text.clone(),
            handle: handle.flatten(),
            iteration: fact.at.0,
            uses,
        }
    }

    /// Notes what a model sees of a view or a request: in its covers, and in iterations from a number on.
    pub(super) fn see_newest(&self, request: Option<u64>, facts: &mut Facts, from: u64) {
        if facts.is_empty() {
            return;
        }
        let number = request.unwrap_or(u64::MAX);
        let system = self
            .messages()
            .take(usize::from(self.shown_system().is_some()));
        let asked = self.messages_between(number, number);
        let asked = asked.take_while(|shown| match shown.message {
            MessageRef::Added(message) => message.role != Role::Assistant,
            MessageRef::Results(..) => false,
        });
        let covers = self.covers().take_while(|(first, _)| *first < number);
        let notes = covers.filter_map(|(_, cover)| cover.replacement());
        let look = self.rendering(u64::MAX);
        let notes = notes.map(|note| Shown::added(note, look));
        let mut keys = KeySet::default();
        let shown = system.chain(asked).chain(notes);
        shown.for_each(|shown| shown.add_keys(&mut keys));
        keys.into_iter().for_each(|key| facts.see(key));
        for iteration in self.log.between(from, number.saturating_sub(1)) {
            if !self.hides(iteration.number) {
                self.each_key_of(iteration, |key| facts.see(key));
            }
        }
    }

    /// Calls a function with the keys of what the view shows of an iteration. They are found once for each look, and anew under
    /// masks.
    pub(super) fn each_key_of(&self, iteration: &Iteration, take: impl FnMut(u64)) {
        let look = self.rendering(iteration.number);
        let make = || -> Box<[u64]> {
            let mut keys = KeySet::default();
            let shown = Stretch::Iteration(iteration, look).messages();
            shown.for_each(|shown| shown.add_keys(&mut keys));
            keys.into_iter().collect()
        };
        let kept = match look.masks {
            None => {
                let look = look.key_of_iteration(iteration);
                iteration.seen.get_or_make(look, make)
            }
            Some(_) => Err(make()),
        };
        let keys = kept.as_deref().unwrap_or_else(|made| made);
        keys.iter().copied().for_each(take);
    }
}

impl Shown<'_> {
    fn add_keys(self, keys: &mut KeySet) {
        match self.see().message() {
            MessageRef::Added(message) => {
                add_keys(&content_text(&message.content, None), keys);
                for call in &message.calls {
                    add_keys(&LogText::Call(0, call).text(None), keys);
                }
            }
            MessageRef::Results(_, exchange) => {
                for outcome in exchange.slots().flatten() {
                    add_keys(&output_text(outcome, None), keys);
                }
            }
        }
    }
}
