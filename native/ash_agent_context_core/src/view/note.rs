//! Notes for results that are not shown: what each was, in few tokens, and how to get it back.

use std::borrow::Cow;

use crate::log::call::ToolCall;
use crate::log::marks::FactCounts;
use crate::log::message::Outcome;
use crate::tokens::Method;
use crate::value::{letters, Value};
use crate::view::masks::Masks;
use crate::view::recall_handle::{RecallHandle, RECALL};
use crate::view::texts::output_text;

/// A note may have so many tokens without what it tells of the text.
const TOKENS: u64 = 20;

/// What it tells may take so many more,
const TELLS: u64 = 12;

/// and one for so many bytes of the text.
const BYTES: usize = 256;

/// A note has so many bytes at most.
const MOST: usize = 120;

/// Fewer bytes of the first words tell nothing.
const TELLING: usize = 8;

/// So many bytes of a name or an argument are looked at.
const LONG: usize = 120;

/// Returns `[12 KB read_file lib/a.ex: 3 paths, 1 error, use Mix, recall 17.2-431]`: the facts that the result has most of and its
/// first words, where there is room.
pub(super) fn of_cleared(
    handle: RecallHandle,
    call: &ToolCall,
    masks: Option<&Masks>,
    outcome: &Outcome,
) -> String {
    let masked = masks.map(|masks| masks.call(call));
    let call = masked.as_ref().unwrap_or(call);
    let size = size(outcome.longest());
    let note = |what: &str| format!("[{size} {what}, {RECALL}");
    let end = format!(" {handle}]");
    let room = TOKENS.saturating_sub(handle.tokens());
    let fits_in = |what: &str, room: u64| {
        // So short an estimate may be two too low, five where letters stand at random, and of rare letters, which take
        // up to three tokens, it sees one. A number has a token for the space before it and one for each three digits.
        let rare = what.chars().filter(|letter| !letter.is_ascii()).count();
        let words = || what.split(' ');
        let random = words().filter(|word| is_random(word)).count();
        let random = random.max(usize::from(is_random(what)));
        let is_number = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit());
        let numbers = words().filter(is_number).map(|word| 1 + word.len() / 4);
        let off = 2 + 3 * (random + rare) + numbers.sum::<usize>();
        let off = off as u64 + more_abbreviations(what);
        let note = note(what);
        note.len() + end.len() <= MOST && Method::Estimate.text(note.as_bytes()) + off <= room
    };
    let fits = |what: &str| fits_in(what, room);
    let name = one_line(call.name.as_str());
    let mut what = shorten(&name, fits);
    if what.len() == name.len() {
        let argument = argument(&call.arguments.value).unwrap_or_default();
        let argument = shorten(&argument, |argument| fits(&format!("{name} {argument}")));
        what = format!("{name} {argument}").trim_end().to_owned();
    }
    let more = TELLS.min((outcome.longest() / BYTES) as u64);
    // A word that is cut takes up to three tokens more.
    let cut = if what.ends_with("..") { 3 } else { 0 };
    let room = (room + more).saturating_sub(cut);
    let told = tell(outcome, masks, |told| {
        fits_in(&format!("{what}: {told}"), room)
    });
    let told = told.map_or_else(String::new, |told| format!(": {told}"));
    note(&format!("{what}{told}")) + &end
}

/// Returns which facts a result has most of, and its first words, as much as fits. Some words tell more than the number of
/// numbers, and less than another kind of facts.
fn tell(outcome: &Outcome, masks: Option<&Masks>, fits: impl Fn(&str) -> bool) -> Option<String> {
    let facts = outcome.count_facts(masks);
    let kinds = facts.words();
    let least = usize::from(facts.has_more_than_numbers());
    let most = (least..=kinds.len()).rev();
    let most = most.map(|most| kinds.get(..most).unwrap_or_default().join(", "));
    let told: Vec<String> = most.filter(|told| fits(told)).collect();
    let words = first_words(&output_text(outcome, masks));
    let ends = words.rmatch_indices(' ').map(|(end, _)| end);
    let ends = std::iter::once(words.len()).chain(ends);
    let ends: Vec<usize> = ends.filter(|end| *end >= TELLING).collect();
    let with_words = told.iter().find_map(|told| {
        let between = if told.is_empty() { "" } else { ", " };
        let starts = ends.iter().filter_map(|end| words.get(..*end));
        let starts = starts.map(|start| start.trim_end_matches([',', ';', ':', '.']));
        let mut all = starts.map(|start| format!("{told}{between}{start}"));
        all.find(|told| fits(told))
    });
    let told = with_words.or_else(|| told.into_iter().next());
    told.filter(|told| !told.is_empty())
}

/// Returns a text without the counts of facts in the notes that it has: nobody said "2 errors" there.
pub(crate) fn without_counts(text: &str) -> Cow<'_, str> {
    let (before, begins) = (format!(", {RECALL} "), |line: &str| line.starts_with('['));
    if !text.contains(&before) || !text.lines().any(begins) {
        return text.into();
    }
    let lines =
        text.split_inclusive('\n')
            .map(|line| match line.contains(&before) && begins(line) {
                true => line
                    .split(", ")
                    .map(without_count)
                    .collect::<Vec<_>>()
                    .join(", ")
                    .into(),
                false => Cow::Borrowed(line),
            });
    lines.collect::<String>().into()
}

fn without_count(words: &str) -> &str {
    let marks = [": ", " with ", " in all "].into_iter();
    let ends = marks.filter_map(|mark| Some(words.rsplit_once(mark)?.1));
    let end = ends.min_by_key(|end| end.len()).unwrap_or(words);
    match FactCounts::tell(end) {
        true => words.strip_suffix(end).unwrap_or_default(),
        false => words,
    }
}

impl Outcome {
    /// Returns how many facts its text has, as masks show it; counted once.
    pub(crate) fn count_facts(&self, masks: Option<&Masks>) -> FactCounts {
        let key = masks.map_or(0, |masks| masks.key | 1);
        let count = || FactCounts::of(&output_text(self, masks));
        self.facts.value(key, count)
    }

    /// Keeps the counts of its text without masks, where that is read for more than these.
    pub(crate) fn keep_counts(&self, count: impl FnOnce() -> Option<FactCounts>) {
        if self.facts.get(0).is_some() {
            return;
        }
        if let Some(counts) = count() {
            self.facts.value(0, || counts);
        }
    }
}

/// Returns true if capitals, digits, consonants or vowels follow each other as in no word.
fn is_random(text: &str) -> bool {
    let pairs = text.bytes().zip(text.bytes().skip(1));
    let changes = pairs.filter(|(one, next)| {
        one.is_ascii_alphabetic() && next.is_ascii_uppercase()
            || one.is_ascii_digit() && next.is_ascii_alphabetic()
            || one.is_ascii_alphabetic() && next.is_ascii_digit()
    });
    let alike = |one: u8, next: u8| {
        one.is_ascii_alphabetic() && next.is_ascii_alphabetic() && is_vowel(one) == is_vowel(next)
    };
    let mut runs = text.as_bytes().chunk_by(|one, next| alike(*one, *next));
    changes.count() > 1
        || runs.any(|run| run.len() > 4 || run.len() > 3 && run.iter().copied().all(is_vowel))
}

/// Returns how many words without a vowel a text has after the first, such as `npm`: each may be a token more.
fn more_abbreviations(text: &str) -> u64 {
    let words = text.split(|letter: char| !letter.is_ascii_alphabetic());
    let short = words.filter(|word| word.len() > 2 && !word.bytes().any(is_vowel));
    (short.count() as u64).saturating_sub(1)
}

fn is_vowel(letter: u8) -> bool {
    b"aeiouyAEIOUY".contains(&letter)
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} KB", (bytes + 500) / 1_000),
        _ => format!("{} MB", (bytes + 500_000) / 1_000_000),
    }
}

/// Returns the most telling argument of a call: the shortest text that is more than a flag.
fn argument(arguments: &Value) -> Option<String> {
    const FLAG: usize = 3;
    let texts: Vec<&str> = match arguments {
        Value::Map(map) => map.iter().filter_map(|(_, value)| value.as_str()).collect(),
        other => other.as_str().into_iter().collect(),
    };
    let shortest = |least: usize| {
        let long = texts.iter().filter(move |text| text.len() >= least);
        long.min_by_key(|text| text.len())
    };
    shortest(FLAG)
        .or_else(|| shortest(1))
        .map(|text| one_line(text))
}

/// Returns the first words of a text.
pub(super) fn first_words(text: &str) -> String {
    const WORDS: usize = 50;
    let words = one_line(text.trim_start());
    words
        .get(..words.floor_char_boundary(WORDS))
        .unwrap_or_default()
        .to_owned()
}

fn one_line(text: &str) -> String {
    let end = text.floor_char_boundary(LONG);
    let text = text.get(..end).unwrap_or_default();
    let words = text.split(|letter: char| letter.is_control() || letters::is_space(letter));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Returns as much of a text as there is room for: of a path the end, of anything else the beginning.
fn shorten(text: &str, fits: impl Fn(&str) -> bool) -> String {
    if fits(text) {
        return text.to_owned();
    }
    if text.contains('/') && !text.contains(' ') {
        let ends = text
            .match_indices('/')
            .filter_map(|(at, _)| text.get(at + 1..));
        if let Some(end) = ends.into_iter().find(|end| fits(end)) {
            return end.to_owned();
        }
    }
    // A word that is cut takes up to three tokens more.
    let fits = |start: &&str| fits(&format!("{start}.. . . ."));
    let mut starts = text
        .char_indices()
        .rev()
        .filter_map(|(end, _)| text.get(..end));
    let start = starts.find(fits);
    start.map_or_else(String::new, |start| format!("{}..", start.trim_end()))
}
