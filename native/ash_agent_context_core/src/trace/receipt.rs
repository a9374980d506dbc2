//! Tells beside each view of a page what it does not show, in the data of the page: its receipt, what is pinned, what
//! the checks of its summaries said, and what was left out because a request was too long.

use crate::context::receipt::{FactState, Receipt};
use crate::trace::told::Trace;
use crate::value::builder::JsonObject;
use crate::view::pins::{Pin, Pins};
use crate::view::veil::Veil;
use crate::view::verdict::Verdict;
use crate::view::View;

/// Facts of a receipt that a page names.
pub(super) const NAMED: usize = 5;

/// Views that have a receipt: each takes a walk over all that was said.
pub(super) const RECEIPTS: usize = 4;

impl Trace<'_> {
    /// The words of a fact as they look.
    fn mask_words(&self, words: &str) -> Box<str> {
        let mut words: Box<str> = words.into();
        if let Some(masks) = &self.masks {
            masks.name(&mut words);
        }
        words
    }

    pub(super) fn write_receipt(&self, json: &mut JsonObject<'_>, receipt: &Receipt) {
        json.object("receipt", |json| {
            for state in FactState::ALL {
                json.field(state.name(), &receipt.count(state));
            }
            json.list("facts", |json| {
                for fact in &receipt.facts {
                    json.separate();
                    json.text(&self.mask_words(&fact.text));
                }
            });
        });
    }

    /// The same of words that were made of what was said.
    fn veil_words(&self, words: &str, veil: &Veil) -> Box<str> {
        let words = self.mask_words(words);
        veil.cut(&words).map_or(words, Into::into)
    }

    pub(super) fn write_pins(&self, json: &mut JsonObject<'_>, view: &View, veil: &Veil) {
        let pins = view.pins().into_iter().flat_map(Pins::iter);
        let names: Vec<Box<str>> = pins.map(Pin::name).collect();
        if names.is_empty() {
            return;
        }
        json.list("pins", |json| {
            for name in &names {
                json.separate();
                json.text(&self.veil_words(name, veil));
            }
        });
    }

    /// The steps that shortened the view because a request was too long, since when and why.
    pub(super) fn write_shortenings(&self, json: &mut JsonObject<'_>, view: &View) {
        if view.shortenings.is_empty() {
            return;
        }
        json.list("shortened", |json| {
            for step in view.shortenings.iter() {
                json.object(|json| {
                    json.text("kind", step.kind.name());
                    json.text("cause", step.cause.name());
                    json.field("at", &step.iteration)
                        .field("first", &step.first)
                        .field("last", &step.last);
                });
            }
        });
    }

    pub(super) fn write_verdict(&self, json: &mut JsonObject<'_>, verdict: &Verdict, veil: &Veil) {
        json.object("verdict", |json| {
            json.field("facts", &verdict.facts)
                .field("kept", &verdict.kept);
            json.list("wrong", |json| {
                for words in &verdict.wrong {
                    json.separate();
                    json.text(&self.veil_words(words, veil));
                }
            });
        });
    }
}
