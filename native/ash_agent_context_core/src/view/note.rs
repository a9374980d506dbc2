//! Notes for results that are not shown: what each was, in few tokens, and how to get it back.

use crate::log::call::ToolCall;
use crate::log::message::Outcome;
use crate::tokens::Method;
use crate::value::{letters, Value};
use crate::view::masks::Masks;
use crate::view::recall_handle::{RecallHandle, RECALL};
use crate::view::texts::output_text;

/// A note may have so many tokens.
const TOKENS: u64 = 20;

/// Fewer bytes of the first words tell nothing.
const TELLING: usize = 8;

/// So many bytes of a name or an argument are looked at.
const LONG: usize = 120;

/// Returns `[12 KB read_file lib/a.ex, recall 17.2-431]`, with the first words of the result where there is room.
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
    let room = TOKENS.saturating_sub(handle.tokens());
    let fits = |what: &str| {
        // So short an estimate may be two too low, five where letters stand at random, and of rare letters, which take
        // up to three tokens, it sees one.
        let rare = what.chars().filter(|letter| !letter.is_ascii()).count();
        let off = 2 + 3 * u64::from(is_random(what)) + 3 * rare as u64 + more_abbreviations(what);
        Method::Estimate.text(note(what).as_bytes()) + off <= room
    };
    let name = one_line(call.name.as_str());
    let mut what = shorten(&name, fits);
    if what.len() == name.len() {
        let argument = argument(&call.arguments.value).unwrap_or_default();
        let shown = shorten(&argument, |argument| fits(&format!("{name} {argument}")));
        what = format!("{name} {shown}").trim_end().to_owned();
        let words = first_words(&output_text(outcome, masks));
        let ends = words.rmatch_indices(' ').map(|(end, _)| end);
        let mut starts = std::iter::once(words.len()).chain(ends);
        let start = starts.find_map(|end| {
            let told = format!("{what}: {}", words.get(..end)?);
            (shown == argument && end >= TELLING && fits(&told)).then_some(told)
        });
        what = start.unwrap_or(what);
    }
    format!("{} {handle}]", note(what.trim_end()))
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
