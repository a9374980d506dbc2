//! Writes, for each view of a page, what it leaves out: its receipt, the pins, the checks of its summaries, and the steps that
//! shortened it for a request that was too long.

use crate::policy::receipt::{FactState, Receipt};
use crate::trace::shown::Trace;
use crate::value::builder::JsonObject;
use crate::view::pins::{Pin, Pins};
use crate::view::veil::Veil;
use crate::view::verdict::Verdict;
use crate::view::View;

/// The most facts of a receipt that a page names.
pub(super) const NAMED: usize = 5;

/// The most views with a receipt: each takes a walk over the log.
pub(super) const RECEIPTS: usize = 4;

impl Trace<'_> {
    /// Returns the words of a fact with masks applied.
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
            json.key("facts").list(&receipt.facts, |json, fact| {
                json.text(&self.mask_words(&fact.text));
            });
        });
    }

    /// Returns words that were made from messages, with masks applied.
    fn veil_words(&self, words: &str, veil: &Veil) -> Box<str> {
        let words = self.mask_words(words);
        veil.cut(&words).map_or(words, Into::into)
    }

    pub(super) fn write_pins(&self, json: &mut JsonObject<'_>, view: &View, veil: &Veil) {
        let pins = view.pins().into_iter().flat_map(Pins::iter);
        let names: Vec<Box<str>> = pins.map(Pin::name).collect();
        if !names.is_empty() {
            json.key("pins").list(&names, |json, name| {
                json.text(&self.veil_words(name, veil));
            });
        }
    }

    /// Writes the steps that shortened the view for a request that was too long, with their times and reasons.
    pub(super) fn write_shortenings(&self, json: &mut JsonObject<'_>, view: &View) {
        if !view.shortenings.is_empty() {
            json.objects("shortened", view.shortenings.iter(), |json, step| {
                json.text("kind", step.kind.name());
                json.text("cause", step.cause.name());
                json.field("at", &step.iteration);
                json.field("first", &step.first).field("last", &step.last);
            });
        }
    }

    pub(super) fn write_verdict(&self, json: &mut JsonObject<'_>, verdict: &Verdict, veil: &Veil) {
        json.object("verdict", |json| {
            json.field("facts", &verdict.facts);
            json.field("kept", &verdict.kept);
            json.key("wrong").list(&verdict.wrong, |json, words| {
                json.text(&self.veil_words(words, veil));
            });
        });
    }
}
