//! A piece of a long text: some of its lines, those that match a pattern, or its contents, which say where to read on.

use crate::error::Error;
use crate::log::marks::FactCounts;
use crate::view::masks::compile;
use crate::view::note;

/// A line is cut into several after so many bytes, so that a long one can be read in pieces.
const LINE: usize = 1_000;

/// Bytes of a long line that are shown on either side of a match.
const AROUND: usize = 200;

/// The contents of what comes after an excerpt have so many lines; those of a text of more pages take most of the first one.
const PAGES: usize = 8;

/// So many bytes are for a line of the contents.
const ENTRY: usize = 100;

/// Shorter excerpts have no contents.
const LEAST: usize = 4_000;

/// A choice of lines, with a limit in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Excerpt<'a> {
    /// The first line, from 1.
    pub from: usize,
    /// The most lines to show.
    pub lines: usize,
    /// Only lines that match it.
    pub pattern: Option<&'a str>,
    /// The limit in bytes, without the last line that describes the excerpt.
    pub most: usize,
}

impl Excerpt<'_> {
    /// Returns the excerpt of a text, with a last line that describes it if it is not all of the text.
    ///
    /// # Errors
    /// [`Error::InvalidPattern`].
    pub(crate) fn of(&self, text: &str) -> Result<String, Error> {
        match self.pattern {
            Some(pattern) => self.matches(text, pattern),
            None => Ok(self.range(text)),
        }
    }

    fn range(&self, text: &str) -> String {
        let mut piece = String::new();
        let (mut last, mut all, mut read) = (0, 0, 0);
        let first = self.from.max(1);
        let is_whole = self.lines < usize::MAX || self.most < LEAST || text.len() <= self.most;
        let entries = match text.len() / self.most.max(1) {
            _ if is_whole => 0,
            PAGES.. if first == 1 => self.most / ENTRY / 4 * 3,
            _ => PAGES,
        };
        let most = self.most - entries * ENTRY;
        for line in lines(text) {
            all += 1;
            let is_asked = all >= first && all - first < self.lines;
            // One line is always shown, so that whoever asks gets on.
            let is_next = last == 0 || last + 1 == all;
            let has_room = last == 0 || piece.len() + line.len() <= most;
            if is_asked && is_next && has_room {
                piece.push_str(line);
                last = all;
            }
            if last == 0 || last == all {
                read += line.len();
            }
        }
        if last == 0 {
            return format!("[there are {all} lines]");
        }
        if first > 1 || last < all {
            let end = if piece.ends_with('\n') { "" } else { "\n" };
            let rest = text.get(read..).filter(|_| entries > 0);
            let more = rest.map_or_else(String::new, |rest| self.contents(rest, last, entries));
            piece.push_str(&format!("{end}{more}[lines {first} to {last} of {all}]"));
        }
        piece
    }

    /// Returns a line for each of some parts of a text behind some lines, none shorter than a page: its first line, the facts in it
    /// and its first words.
    fn contents(&self, text: &str, behind: usize, most: usize) -> String {
        let page = self.most - PAGES * ENTRY;
        let (mut size, mut left) = (page, most);
        let (mut contents, mut number) = (String::new(), behind);
        let (mut start, mut end, mut first) = (0, 0, behind + 1);
        for line in lines(text) {
            number += 1;
            end += line.len();
            if end - start + LINE > size || end == text.len() {
                let part = text.get(start..end).unwrap_or_default();
                contents.push_str(&format!("[from {first}: {}]\n", tell(part)));
                (start, first) = (end, number + 1);
                // The next pages are found at once, and those further away in steps that double.
                left = (left - 1).max(1);
                size = ((text.len() - end) / left + LINE).min(2 * size).max(page);
            }
        }
        contents
    }

    fn matches(&self, text: &str, pattern: &str) -> Result<String, Error> {
        let pattern = compile(pattern)?;
        let mut piece = String::new();
        let (mut shown, mut all, mut number) = (0, 0, 0);
        for line in text.split_inclusive('\n') {
            let found = pattern.find(line);
            if let Some(found) = found {
                all += 1;
                let before = line.floor_char_boundary(found.start());
                let above = lines(line.get(..before).unwrap_or_default()).count();
                let at = number + above.max(1);
                let start = line.floor_char_boundary(before.saturating_sub(AROUND));
                let end = line.ceil_char_boundary(found.end().min(before + AROUND) + AROUND);
                let is_long = line.len() > 2 * AROUND;
                let words = match is_long {
                    true => line.get(start..end.min(line.len())).unwrap_or_default(),
                    false => line,
                };
                let words = words.trim_end();
                let is_asked = at >= self.from && shown < self.lines;
                if is_asked && (shown == 0 || piece.len() + words.len() <= self.most) {
                    piece.push_str(&format!("{at}: {words}\n"));
                    shown += 1;
                }
            }
            number += lines(line).count();
        }
        if shown < all || all == 0 {
            piece.push_str(&format!("[{shown} of {all} matching lines]"));
        }
        Ok(piece)
    }
}

/// Returns the lines of a text, none longer than [`LINE`].
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').flat_map(|line| {
        let mut rest = line;
        std::iter::from_fn(move || {
            let end = rest.floor_char_boundary(LINE);
            let (piece, after) = rest.split_at_checked(end)?;
            rest = after;
            (!piece.is_empty()).then_some(piece)
        })
    })
}

/// Returns which facts a text has most of, and its first words.
fn tell(text: &str) -> String {
    let mut told = FactCounts::of(text).words();
    told.push(note::first_words(text));
    told.join(", ")
}
