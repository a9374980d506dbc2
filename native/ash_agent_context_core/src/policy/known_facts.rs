//! The facts of a conversation: each once, with who used and named it, and the best first. What is found in iterations that stay as
//! they are is kept, so that a turn later only what is new is read.

use std::cell::LazyCell;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::context::log_text::LogText;
use crate::context::Context;
use crate::log::iteration::Iteration;
use crate::log::kept::Slot;
use crate::log::marks::{TextMarks, WordMark};
use crate::policy::facts::{keys, marks, At};
use crate::tokens::Method;
use crate::value::keys::{KeySet, Noted, NotedMap};
use crate::value::steps;
use crate::view::facts::FactKind;
use crate::view::masks::Masks;
use crate::view::rendering::Rendering;
use crate::view::View;

/// More uses than so many do not make a fact likelier to be needed again.
const USES: u32 = 4;

/// The texts that facts are found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Texts {
    /// All of these iterations.
    Between(u64, u64),
    /// Those that the view does not show in full.
    Shortened,
    /// The same for the request of an iteration.
    OfRequest(u64),
}

/// How texts are read up to an iteration: where it is the same, so are the facts of the same iterations.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reading {
    covers: Vec<(u64, u64)>,
    cleared: (u64, usize),
    looks: u64,
}

/// A fact of some texts.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub kind: FactKind,
    pub text: Box<str>,
    pub key: u64,
    /// The key of the fact without the word beside it.
    pub piece_key: u64,
    /// The place of the last of these texts that has it.
    pub at: At,
    /// The number of texts that have it.
    pub texts: u32,
    /// A call used it.
    pub is_used: bool,
    /// A user named it.
    pub is_named: bool,
    /// Every text that has it masks it; then it has no words.
    pub is_masked: bool,
    /// The number of the last text read that has it.
    last: u32,
    /// The index of another one with the same piece.
    same_piece: Option<u32>,
}

/// A word, which is a fact of the texts in iterations before a call that uses it.
#[derive(Debug, Clone)]
struct Word {
    /// The iteration of the first text that has it.
    first: u64,
    /// The first place where models may read it: an iteration, the number of a text there, and bytes of it.
    place: Option<(u64, usize, u32, u8)>,
    /// The texts where models may read it and that no call came behind: those of the newest iteration, and those before it.
    newest: Found,
    older: Found,
}

/// How many texts have a word, and the last of them.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    texts: u32,
    last: u32,
    at: At,
}

impl Found {
    fn add(&mut self, later: Self) {
        if later.texts > 0 {
            let texts = self.texts.saturating_add(later.texts);
            *self = Self { texts, ..later };
        }
    }
}

/// What a model sees of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Seen,
    Masked,
    Unseen,
}

/// What decides how likely a fact is to be needed again, beside its words: all of these are looked at each time.
#[derive(Debug, Clone, Copy)]
struct Rank {
    /// What does not change as others are read.
    fixed: f64,
    last: u32,
    standing: Standing,
}

/// How many facts there are of a kind, by what a model sees of them.
pub(crate) type Counts = [[usize; 3]; FactKind::ALL.len()];

/// The facts of the texts read so far.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The first iteration that was not read for good.
    end: u64,
    reading: Reading,
    all: Vec<Fact>,
    ranks: Vec<Rank>,
    counts: Counts,
    /// The number of texts read, and the tokens and bytes of iterations that were read as a whole.
    texts: u32,
    pub tokens: u64,
    pub bytes: usize,
    /// The index of a fact by its key, and of the newest by its piece.
    known: NotedMap<u32>,
    pieces: NotedMap<u32>,
    words: NotedMap<Word>,
    /// How often calls used each, what users named, and what a model sees.
    uses: NotedMap<u32>,
    named: NotedMap<()>,
    seen: NotedMap<()>,
    /// What was there before the newest iterations were read.
    before: Option<Box<Before>>,
}

#[derive(Debug)]
struct Before {
    facts: usize,
    counts: Counts,
    texts: u32,
    sizes: (u64, usize),
    changed: Vec<(u32, Fact, Rank)>,
}

/// A fact with its score.
#[derive(Debug)]
struct Scored<'f>(f64, &'f Fact);

impl Context {
    /// Looks at the facts of texts.
    ///
    /// # Complexity
    /// O(facts, and the iterations that were not read before or may be read in another way a turn later)
    pub(crate) fn with_facts<R>(&self, texts: Texts, look: impl FnOnce(&Facts) -> R) -> R {
        let slot = match texts {
            Texts::Between(..) => Some(Slot::RangeFacts),
            Texts::Shortened => Some(Slot::ShortenedFacts),
            Texts::OfRequest(_) => None,
        };
        let first = self.first_number();
        let end = self.settled_end(texts);
        let kept = slot.and_then(|slot| self.log.history.take_kept::<Facts>(slot));
        let is_same =
            |facts: &Facts| facts.end <= end && facts.reading == self.reading(texts, facts.end);
        let kept = kept.filter(|facts| is_same(facts));
        let mut facts = kept.unwrap_or_else(|| Box::new(Facts::new(first)));
        if facts.end < end {
            for iteration in self.log.between(facts.end, end - 1) {
                facts.read(self, texts, iteration);
                if texts == Texts::Shortened && !self.hides(iteration.number) {
                    self.each_key_of(iteration, |key| facts.see(key));
                }
            }
            (facts.end, facts.reading) = (end, self.reading(texts, end));
        }
        facts.note();
        for iteration in self.log.between(end, u64::MAX) {
            facts.read(self, texts, iteration);
        }
        match texts {
            Texts::Between(..) => {}
            Texts::Shortened => self.see_newest(None, &mut facts, end),
            Texts::OfRequest(number) => self.see_newest(Some(number), &mut facts, first),
        }
        let told = look(&facts);
        facts.go_back();
        if let Some(slot) = slot {
            let len = usize::try_from(end.saturating_sub(first)).unwrap_or(0);
            self.log.history.keep(slot, len, facts);
        }
        told
    }

    /// Returns the number of the first iteration whose texts may be read in another way a turn later.
    fn settled_end(&self, texts: Texts) -> u64 {
        let first = self.first_number();
        let completed = first.saturating_add(self.log.history.len() as u64);
        let end = match (texts, self.view()) {
            (Texts::Between(_, last), _) => last.saturating_add(1),
            (_, None) => first,
            (_, Some(view)) => {
                let covered = view.covers.range(..).next_back();
                let covered = covered.map(|(_, cover)| cover.last.saturating_add(1));
                let cleared = view.cleared().map(|cleared| cleared.iteration);
                let cut = view.max_result_bytes.map(|_| completed);
                covered.max(cleared).or(cut).unwrap_or(first)
            }
        };
        end.clamp(first, completed)
    }

    /// Returns the words at a place, as models may read them.
    fn words_at(&self, (number, nth, start, len): (u64, usize, u32, u8)) -> Box<str> {
        let iteration = self.log.get_numbered(number);
        let entries = iteration.into_iter().flat_map(Iteration::entries);
        let said = entries.flat_map(LogText::of).nth(nth);
        let text = said.map(|said| said.text(self.masks()));
        let range = start as usize..start as usize + usize::from(len);
        let words = text.as_deref().and_then(|text| text.get(range));
        words.unwrap_or_default().into()
    }

    fn reading(&self, texts: Texts, end: u64) -> Reading {
        let mut hasher = DefaultHasher::new();
        self.masks().map(|masks| masks.key).hash(&mut hasher);
        let until = |last: u64| last.min(end.saturating_sub(1));
        let (covers, cleared) = match (texts, self.view()) {
            (Texts::Between(first, last), _) => (vec![(first, until(last))], None),
            (_, None) => (Vec::new(), None),
            (_, Some(view)) => {
                view.hash_looks(&mut hasher);
                let covers = view.covers().take_while(|(first, _)| *first < end);
                let covers = covers.map(|(first, cover)| (first, until(cover.last)));
                (covers.collect(), view.cleared())
            }
        };
        let cleared = cleared.map_or((0, 0), |cleared| (cleared.iteration, cleared.calls));
        Reading {
            covers,
            cleared: cleared.min((end, 0)),
            looks: hasher.finish(),
        }
    }
}

impl View {
    /// Hashes what decides how a result looks, but for the place before which they are cleared.
    fn hash_looks(&self, hasher: &mut impl Hasher) {
        let placeholder = self.cleared().map(|cleared| &cleared.placeholder);
        let pins = self.pins().map(|pins| pins.key);
        (placeholder, self.max_result_bytes, pins, self.recall).hash(hasher);
    }
}

impl Facts {
    fn new(first: u64) -> Self {
        Self {
            end: first,
            reading: Reading::default(),
            all: Vec::new(),
            ranks: Vec::new(),
            counts: Counts::default(),
            texts: 0,
            tokens: 0,
            bytes: 0,
            known: NotedMap::default(),
            pieces: NotedMap::default(),
            words: NotedMap::default(),
            uses: NotedMap::default(),
            named: NotedMap::default(),
            seen: NotedMap::default(),
            before: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns how many there are, by kind and by what a model sees of them.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the number of times that calls used it.
    pub fn uses(&self, fact: &Fact) -> u32 {
        self.uses.get(fact.piece_key).copied().unwrap_or(0)
    }

    /// Returns up to so many, the likeliest to be needed again first: all, or those that no model sees.
    pub fn best(&self, most: usize, is_any: bool) -> impl Iterator<Item = &Fact> {
        let texts = f64::from(self.texts.max(1));
        let mut best: Vec<Scored<'_>> = Vec::new();
        let mut least = f64::NEG_INFINITY;
        for (rank, fact) in self.ranks.iter().zip(&self.all) {
            let score = rank.fixed + 4.0 * f64::from(rank.last) / texts;
            if score < least || !is_any && rank.standing != Standing::Unseen {
                continue;
            }
            best.push(Scored(score, fact));
            if best.len() > most.saturating_mul(2) {
                cut(&mut best, most);
                least = best.iter().map(|one| one.0).fold(f64::INFINITY, f64::min);
            }
        }
        cut(&mut best, most);
        let mut best = BinaryHeap::from(best);
        std::iter::from_fn(move || Some(best.pop()?.1))
    }

    /// Notes a key that a model sees. Of the newest iterations, only those of facts.
    pub fn see(&mut self, key: u64) {
        let known = self.known.get(key).copied();
        if known.is_none() && self.before.is_some() || self.seen.has(key) {
            return;
        }
        self.seen.change(key, || ());
        if let Some(index) = known {
            self.change(index, |_| {});
        }
    }

    /// Reads the texts of an iteration, as models may read them, and what its calls use and its users name. Facts that a mask
    /// hides are counted, and their words are not kept.
    fn read(&mut self, context: &Context, texts: Texts, iteration: &Iteration) {
        steps::count(1);
        let number = iteration.number;
        let marks = marks(iteration);
        let is_read = match texts {
            Texts::Between(first, last) => (first..=last).contains(&number),
            _ => true,
        };
        if is_read {
            let is_all = matches!(texts, Texts::Between(..));
            let shortens = (!is_all).then(|| context.shortens(iteration));
            let said = iteration.entries().flat_map(LogText::of);
            for (nth, (said, marks)) in said.zip(&marks.texts).enumerate() {
                if !said.is_recall() && shortens.as_ref().is_none_or(|shortens| shortens(&said)) {
                    self.read_text((number, nth), &said, marks, context.masks());
                }
            }
            if is_all {
                let tokens = iteration.tokens(Method::Estimate, Rendering::PLAIN);
                self.tokens = self.tokens.saturating_add(tokens.total());
                self.bytes = self.bytes.saturating_add(iteration.size().bytes);
            }
        }
        for key in &marks.used {
            self.use_by_call(*key, context, number);
        }
        for key in &marks.named {
            if self.named.has(*key) {
                continue;
            }
            self.named.change(*key, || ());
            if let Some(index) = self.known.get(*key) {
                self.change(*index, |fact| fact.is_named = true);
            }
        }
    }

    fn read_text(
        &mut self,
        (number, nth): (u64, usize),
        said: &LogText<'_>,
        marks: &TextMarks,
        masks: Option<&Masks>,
    ) {
        self.texts = self.texts.saturating_add(1);
        let at = ((number, said.slot()), nth);
        let text = LazyCell::new(|| said.text(None));
        let seen = masks.map(|masks| said.text(Some(masks)));
        match seen.filter(|seen| *seen != *text) {
            None => self.add(marks, at, None, &|| &text),
            Some(seen) => {
                self.add(&TextMarks::of(said, &seen), at, None, &|| &seen);
                self.add(marks, at, Some(&keys(&seen)), &|| &text);
            }
        }
    }

    /// Adds the facts of a text. With `seen`, the keys that models see of it, it only adds facts that they do not see, without
    /// their words.
    fn add<'t>(
        &mut self,
        marks: &TextMarks,
        at: (At, usize),
        seen: Option<&KeySet>,
        text: &impl Fn() -> &'t str,
    ) {
        let is_other = |key: u64| seen.is_none_or(|seen| !seen.contains(&key));
        let words = |start: usize, end: usize| {
            let words = move || text().get(start..end).unwrap_or_default();
            seen.is_none().then_some(words)
        };
        for mark in marks.facts.iter().filter(|mark| is_other(mark.key)) {
            let known = self.known.get(mark.key).copied();
            let index = known.or_else(|| {
                let kind = FactKind::ALL.get(usize::from(mark.kind))?;
                Some(self.push(*kind, (mark.key, mark.piece_key), at.0))
            });
            if let Some((index, words)) = index.zip(words(mark.at.0 as usize, mark.at.1 as usize)) {
                self.find(index, at.0, words);
            }
        }
        for word in marks.words.iter().filter(|word| is_other(word.key)) {
            self.add_word(word, at, seen.is_none());
        }
    }

    /// Notes that models may read a fact in the text that was read last.
    fn find<'t>(&mut self, index: u32, at: At, words: impl FnOnce() -> &'t str) {
        let texts = self.texts;
        self.change(index, |fact| {
            if fact.is_masked {
                (fact.text, fact.is_masked) = (words().into(), false);
            }
            if fact.last < texts {
                fact.texts = fact.texts.saturating_add(1);
                (fact.last, fact.at) = (texts, at);
            }
        });
    }

    /// Adds a word of a text.
    fn add_word(&mut self, word: &WordMark, (at, nth): (At, usize), is_seen: bool) {
        let known = self.words.change(word.key, || Word {
            first: at.0,
            place: None,
            newest: Found::default(),
            older: Found::default(),
        });
        if is_seen {
            known.place.get_or_insert((at.0, nth, word.start, word.len));
            if known.newest.at.0 < at.0 {
                known.older.add(std::mem::take(&mut known.newest));
            }
            known.newest.add(Found {
                texts: 1,
                last: self.texts,
                at,
            });
        }
    }

    /// Notes that a call uses a key: facts with it, and a word of earlier iterations, which is a fact of their texts.
    fn use_by_call(&mut self, key: u64, context: &Context, number: u64) {
        let uses = self.uses.change(key, || 0);
        *uses = uses.saturating_add(1);
        if *uses <= USES {
            let mut next = self.pieces.get(key).copied();
            while let Some(index) = next {
                self.change(index, |_| {});
                next = self
                    .all
                    .get(index as usize)
                    .and_then(|fact| fact.same_piece);
            }
        }
        let Some(word) = self
            .words
            .get(key)
            .filter(|word| word.first < number)
            .cloned()
        else {
            return;
        };
        let known = self.known.get(key).copied();
        let index =
            known.unwrap_or_else(|| self.push(FactKind::Name, (key, key), (word.first, None)));
        let (mut found, mut newest) = (word.older, word.newest);
        if newest.at.0 < number {
            found.add(std::mem::take(&mut newest));
        }
        let Some(place) = word.place.filter(|_| found.texts > 0) else {
            return;
        };
        let noted = self.words.change(key, || word);
        (noted.older, noted.newest) = (Found::default(), newest);
        self.change(index, |fact| {
            if fact.is_masked {
                (fact.text, fact.is_masked) = (context.words_at(place), false);
            }
            fact.texts = fact.texts.saturating_add(found.texts);
            (fact.last, fact.at) = (found.last, found.at);
        });
    }

    /// Adds a fact without words. Returns its index.
    fn push(&mut self, kind: FactKind, (key, piece_key): (u64, u64), at: At) -> u32 {
        let index = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let same_piece = self.pieces.get(piece_key).copied();
        *self.pieces.change(piece_key, || index) = index;
        self.known.change(key, || index);
        self.all.push(Fact {
            kind,
            text: Box::default(),
            key,
            piece_key,
            at,
            texts: 0,
            is_used: false,
            is_named: self.named.has(key),
            is_masked: true,
            last: 0,
            same_piece,
        });
        self.ranks.push(Rank {
            fixed: 0.0,
            last: 0,
            standing: Standing::Masked,
        });
        let count = self.count(kind, Standing::Masked);
        count.into_iter().for_each(|count| *count += 1);
        self.change(index, |_| {});
        index
    }

    fn count(&mut self, kind: FactKind, standing: Standing) -> Option<&mut usize> {
        self.counts
            .get_mut(kind as usize)?
            .get_mut(standing as usize)
    }

    /// Changes a fact, and ranks it anew.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Fact)) {
        let at = index as usize;
        let (Some(fact), Some(rank)) = (self.all.get_mut(at), self.ranks.get_mut(at)) else {
            return;
        };
        if let Some(before) = self.before.as_mut().filter(|before| at < before.facts) {
            before.changed.push((index, fact.clone(), *rank));
        }
        change(fact);
        let uses = self.uses.get(fact.piece_key).copied().unwrap_or(0);
        fact.is_used = uses > 0;
        let standing = match () {
            () if self.seen.has(fact.key) => Standing::Seen,
            () if fact.is_masked => Standing::Masked,
            () => Standing::Unseen,
        };
        let (kind, old) = (fact.kind, rank.standing);
        *rank = Rank {
            fixed: score(fact, uses),
            last: fact.last,
            standing,
        };
        if standing != old {
            self.count(kind, old)
                .into_iter()
                .for_each(|count| *count -= 1);
            self.count(kind, standing)
                .into_iter()
                .for_each(|count| *count += 1);
        }
    }

    /// Notes changes from now on.
    fn note(&mut self) {
        self.before = Some(Box::new(Before {
            facts: self.all.len(),
            counts: self.counts,
            texts: self.texts,
            sizes: (self.tokens, self.bytes),
            changed: Vec::new(),
        }));
        self.each_map(|map| map.note());
    }

    /// Goes back to what was there before.
    fn go_back(&mut self) {
        let Some(before) = self.before.take() else {
            return;
        };
        self.all.truncate(before.facts);
        self.ranks.truncate(before.facts);
        (self.counts, self.texts) = (before.counts, before.texts);
        (self.tokens, self.bytes) = before.sizes;
        for (index, fact, rank) in before.changed.into_iter().rev() {
            let at = index as usize;
            if let (Some(own), Some(own_rank)) = (self.all.get_mut(at), self.ranks.get_mut(at)) {
                (*own, *own_rank) = (fact, rank);
            }
        }
        self.each_map(|map| map.go_back());
    }

    fn each_map(&mut self, call: impl FnMut(&mut dyn Noted)) {
        let maps: [&mut dyn Noted; 6] = [
            &mut self.known,
            &mut self.pieces,
            &mut self.words,
            &mut self.uses,
            &mut self.named,
            &mut self.seen,
        ];
        maps.into_iter().for_each(call);
    }
}

/// Keeps so many of the best.
fn cut(best: &mut Vec<Scored<'_>>, most: usize) {
    if most < best.len() {
        best.select_nth_unstable_by(most, |one, other| other.cmp(one));
        best.truncate(most);
    }
}

impl Ord for Scored<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let scores = self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal);
        // The order in which they were found must not show.
        scores
            .then(self.1.last.cmp(&other.1.last))
            .then_with(|| other.1.text.cmp(&self.1.text))
            .then(other.1.key.cmp(&self.1.key))
    }
}

impl PartialOrd for Scored<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scored<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scored<'_> {}

/// Returns how likely a fact is to be needed again, but for its age. The weights were chosen on every second recorded run of
/// agents; the guide to budgets has the results for the others.
fn score(fact: &Fact, uses: u32) -> f64 {
    let kind = match fact.kind {
        FactKind::Name => 3.0,
        FactKind::Id | FactKind::Address => 2.5,
        FactKind::Path => 2.0,
        FactKind::Error | FactKind::ExitCode | FactKind::Number => -1.0,
        // The user's words are quoted beside an index.
        FactKind::Decision => -2.0,
    };
    let uses = 0.5 * f64::from(uses.min(USES));
    let named = if fact.is_named { 2.0 } else { 0.0 };
    let often = f64::from(fact.texts.min(20)).ln_1p();
    // A shorter fact takes less of the room.
    kind + uses + named + often - 0.03 * fact.text.len() as f64
}
