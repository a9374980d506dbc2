//! Masks over notes and summaries. These were made of the texts of iterations, so changing masks makes them anew: notes are
//! cut from masked texts, and summaries lose words that the iterations only have where they are masked.

use std::borrow::Cow;
use std::sync::Arc;

use crate::context::log_text::LogText;
use crate::context::Context;
use crate::log::message::Message;
use crate::value::time::Time;
use crate::view::cover::{Cover, Unmasked};
use crate::view::masks::Masks;
use crate::view::pins::{Pin, Pins};
use crate::view::texts::content_text;
use crate::view::veil::{Compared, Veil};
use crate::view::verdict::Verdict;

/// The own words of notes and summaries, which hide nothing.
const OWN: &str = "[Summary of iteration iterations 1 to 2 of this conversation, recall \n[Iteration 1 is hidden, recall \n\
                   [Iterations 1 to 2 are hidden: results with paths, addresses, ids, numbers, errors, exit codes, recall \nfacts: \nAlso: \nNot in the conversation: \nsystem: \nuser: \n\
                   assistant: \ncall: \ndecision: \nresult: ";

/// A text after the system prompt, with its name.
type Block = (Box<str>, Box<str>);

impl Context {
    /// Masks all matches of the patterns in the texts of the view, in the place of earlier masks.
    ///
    /// # Complexity
    /// O(the log) if iterations are hidden or summarised
    #[must_use]
    pub fn put_masks(&self, masks: Masks, at: Time) -> Self {
        let masks = (!masks.is_empty()).then(|| Arc::new(masks));
        self.changed(at, |next| next.change_masks(masks))
    }

    pub(crate) fn change_masks(&mut self, masks: Option<Arc<Masks>>) {
        let before = self.view().and_then(|view| view.masks.clone());
        if masks == before {
            return;
        }
        self.change_view(|view| {
            view.masks = masks;
            view.resize();
        });
        self.inputs_mut().keep_masks(before.clone());
        self.mask_covers(before.as_deref());
        self.show_system();
        self.tallies = Default::default();
    }

    /// Makes notes and summaries anew if the masks hide something else in their iterations than those before.
    pub(crate) fn mask_covers(&mut self, before: Option<&Masks>) {
        let notes = self.covers().filter(|(_, cover)| cover.summary.is_none());
        let notes = notes.filter(|(first, cover)| self.looks_otherwise(*first, cover.last, before));
        let anew = notes.map(|(first, cover)| {
            let mut cover = cover.clone();
            cover.note = self.hidden_note(first, cover.last);
            (first, cover)
        });
        self.put_covers(anew.collect());
        self.mask_summaries();
    }

    /// Takes words out of summaries that their iterations only have where they are masked, and puts those back that are not
    /// masked any more.
    pub(crate) fn mask_summaries(&mut self) {
        let summaries = self.covers().filter(|(_, cover)| cover.summary.is_some());
        let summaries = summaries.map(|(first, cover)| (first, cover.clone()));
        let mut summaries: Vec<(u64, Cover)> = summaries.collect();
        summaries.iter_mut().for_each(|(_, cover)| cover.unmask());
        if let Some(masks) = self.masks() {
            let covers = summaries.iter();
            let texts: Vec<_> = covers
                .flat_map(|(_, cover)| texts_of(cover, None))
                .collect();
            let masked = self.masked_pieces(masks, &texts);
            for (first, cover) in &mut summaries {
                // Its own pieces alone: all of them for each summary would take quadratic time.
                let mut own = Veil::default();
                for text in texts_of(cover, Some(masks)) {
                    own.add_common(&masked, &text);
                }
                let veil = self.shown_beside(masks, own, *first, cover.last);
                mask_summary(cover, masks, &veil);
            }
        }
        self.put_covers(summaries);
    }

    /// Returns a summary of iterations without words that these only have where they are masked.
    pub(crate) fn mask_text<'t>(&self, first: u64, last: u64, text: &'t str) -> Cow<'t, str> {
        let Some(masks) = self.masks() else {
            return text.into();
        };
        let masked = self.masked_pieces(masks, &[text.into()]);
        let veil = self.shown_beside(masks, masked, first, last);
        let cut = veil.cut(&masks.words(text));
        cut.map_or(text.into(), Cow::Owned)
    }

    /// Compares the texts after the system prompt with the conversation, if there are masks.
    ///
    /// # Complexity
    /// O(the log) if there are
    pub(crate) fn compare_blocks(&self) -> Option<Compared> {
        let masks = self.masks()?;
        let texts = self.view()?.prompt_texts();
        if texts.is_empty() {
            return None;
        }
        let seen: Vec<Cow<'_, str>> = texts.iter().map(|(_, text)| masks.words(text)).collect();
        let compared = Compared::of(seen.iter().map(|text| &**text));
        let all = self.texts_with_system(0, u64::MAX);
        compare(&compared, all, masks).or(Some(compared))
    }

    /// Compares those texts with what the last message has and did not have before: the message itself, or more results and
    /// decisions. Call it after each change of messages.
    ///
    /// # Complexity
    /// O(what is new), and O(the texts) if it has pieces of them that nothing before had
    pub(crate) fn compare_new(&mut self, before: &Self) {
        let view = self.view();
        let compared = view.and_then(|view| Some((view.masks()?, view.compared.as_deref()?)));
        let (Some((masks, compared)), Some(entry)) = (compared, self.current().last()) else {
            return;
        };
        let (old, now) = (before.current(), self.current());
        let is_same = old.number == now.number;
        // Several late results may have got a place.
        let known = if is_same { old.entries().len() } else { 0 };
        let is_old = known == now.entries().len();
        let new: Vec<LogText<'_>> = match old.last().filter(|_| is_old) {
            None => now.entries().skip(known).flat_map(LogText::of).collect(),
            Some(old) => match LogText::new_of(entry, old) {
                Some(new) => new,
                // A text that showed a piece may be gone.
                None => return self.show_system(),
            },
        };
        if let Some(next) = compare(compared, new.into_iter(), masks) {
            self.put_shown_system(Some(next));
        }
    }

    /// Compares those texts with all of the conversation after some of it has gone.
    pub(crate) fn compare_anew(&mut self) {
        if self.view().is_some_and(|view| view.compared.is_some()) {
            self.show_system();
        }
    }

    /// Returns the pieces that texts made of the conversation must not contain under masks, in this view and in those of
    /// earlier requests.
    ///
    /// # Complexity
    /// O(the log)
    pub(crate) fn veil(&self, masks: Option<&Masks>) -> Veil {
        let Some(masks) = masks else {
            return Veil::default();
        };
        let asked = self.inputs.views.values().flatten().map(|view| &**view);
        let views = self.view().into_iter().chain(asked);
        let texts = views.flat_map(|view| {
            let pins = view.pins().into_iter().flat_map(Pins::iter);
            let facts = pins.filter_map(|pin| match pin {
                Pin::Fact(words) => Some(Cow::Borrowed(&**words)),
                _ => None,
            });
            let covers = view.covers();
            let blocks = view.prompt_texts().iter();
            let facts = facts.chain(blocks.map(|(_, text)| masks.words(text)));
            facts.chain(covers.flat_map(|(_, cover)| texts_of(cover, None)))
        });
        let texts: Vec<Cow<'_, str>> = texts.collect();
        let masked = self.masked_pieces(masks, &texts);
        self.shown_beside(masks, masked, 0, u64::MAX)
    }

    /// Returns the pieces that the log has within masked texts.
    fn masked_pieces(&self, masks: &Masks, texts: &[Cow<'_, str>]) -> Veil {
        let pieces = Veil::of(texts.iter().map(|text| &**text));
        let mut masked = Veil::default();
        if !pieces.is_empty() {
            let mut add = |found: &str| masked.add_common(&pieces, found);
            for said in self.texts_with_system(0, u64::MAX) {
                said.each(|text| masks.each(text, &mut add));
            }
        }
        masked
    }

    /// Removes those masked pieces that the iterations also have unmasked.
    fn shown_beside(&self, masks: &Masks, mut masked: Veil, first: u64, last: u64) -> Veil {
        masked.lift(OWN);
        // A mask may not find its words in a recalled text.
        let said = self.texts_with_system(first, last);
        for said in said.filter(|said| !said.is_recall()) {
            if masked.is_empty() {
                break;
            }
            masked.lift(&said.text(Some(masks)));
        }
        masked
    }

    /// Returns all texts of some iterations, each with the number of its own.
    pub(crate) fn texts_between(
        &self,
        first: u64,
        last: u64,
    ) -> impl Iterator<Item = (u64, LogText<'_>)> {
        self.log.between(first, last).flat_map(|iteration| {
            let texts = iteration.entries().flat_map(LogText::of);
            texts.map(|text| (iteration.number, text))
        })
    }

    fn texts_with_system(&self, first: u64, last: u64) -> impl Iterator<Item = LogText<'_>> {
        let system = self.system().map(|system| LogText::Message(0, system));
        let texts = self.texts_between(first, last).map(|(_, text)| text);
        system.into_iter().chain(texts)
    }

    /// Returns true if iterations look otherwise than under other masks.
    fn looks_otherwise(&self, first: u64, last: u64, other: Option<&Masks>) -> bool {
        self.texts_between(first, last)
            .any(|(_, said)| said.text(self.masks()) != said.text(other))
    }

    /// Replaces the covers over the same iterations.
    pub(crate) fn put_covers(&mut self, covers: Vec<(u64, Cover)>) {
        if !covers.is_empty() {
            self.change_view(|view| {
                for (first, cover) in covers {
                    view.take(first);
                    view.put(first, cover);
                }
            });
        }
    }
}

/// Compares with texts of the conversation; `None` if they have no pieces that nothing before had.
fn compare<'t>(
    compared: &Compared,
    texts: impl Iterator<Item = LogText<'t>>,
    masks: &Masks,
) -> Option<Compared> {
    let (mut masked, mut shown) = (Veil::default(), Veil::default());
    for said in texts {
        let mut add = |found: &str| masked.add_common(&compared.pieces, found);
        said.each(|text| masks.each(text, &mut add));
        // A mask may not find its words in a recalled text.
        if !said.is_recall() {
            shown.add_common(&compared.pieces, &said.text(Some(masks)));
        }
    }
    compared.with(masked, shown)
}

/// Returns the texts after the system prompt without what the log only has where it is masked.
pub(crate) fn masked_blocks(
    texts: &[Block],
    masks: Option<&Masks>,
    compared: Option<&Compared>,
) -> Vec<Block> {
    let Some((masks, compared)) = masks.zip(compared) else {
        return texts.to_vec();
    };
    let mut veil = compared.veil();
    veil.lift(OWN);
    let cut = |text: Cow<'_, str>| veil.cut(&text).unwrap_or_else(|| text.into_owned());
    let texts = texts.iter();
    texts
        .map(|(name, text)| (name.clone(), cut(masks.words(text)).into()))
        .collect()
}

fn mask_summary(cover: &mut Cover, masks: &Masks, veil: &Veil) {
    let summary = cover.summary.as_deref().and_then(|summary| {
        let masked = masks.content(&summary.content);
        let masked = Message::new(
            summary.role,
            masked,
            Box::default(),
            summary.metadata.clone(),
        );
        veil.message(&masked).map(Arc::new)
    });
    let verdict = cover.verdict.as_deref().and_then(|verdict| {
        let masked = |words: &[Box<str>]| -> Vec<Box<str>> {
            let stays = |words: &str| {
                matches!(masks.words(words), Cow::Borrowed(_)) && veil.cut(words).is_none()
            };
            words.iter().filter(|words| stays(words)).cloned().collect()
        };
        let masked = Verdict {
            missing: masked(&verdict.missing),
            wrong: masked(&verdict.wrong),
            ..verdict.clone()
        };
        (masked != *verdict).then(|| Arc::new(masked))
    });
    if summary.is_some() || verdict.is_some() {
        cover.unmasked = Some(Arc::new(Unmasked {
            summary: cover.summary.clone(),
            verdict: cover.verdict.clone(),
        }));
        cover.summary = summary.or(cover.summary.take());
        cover.verdict = verdict.or(cover.verdict.take());
    }
}

/// Returns the texts that were made of a cover's iterations, its message under masks.
fn texts_of<'c>(cover: &'c Cover, masks: Option<&Masks>) -> impl Iterator<Item = Cow<'c, str>> {
    let message = cover.replacement();
    let message = message.map(|message| content_text(&message.content, masks));
    let message = message.into_iter();
    let verdict = cover.verdict.as_deref().into_iter();
    let words = verdict.flat_map(|verdict| verdict.missing.iter().chain(&verdict.wrong));
    message.chain(words.map(|words| Cow::Borrowed(&**words)))
}
