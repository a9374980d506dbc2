//! One JSON document, or the elements of a list, which Gemini sends if `alt=sse` was not asked for.

use memchr::memchr2;

use crate::fault::Fault;
use crate::provider::rope::Rope;

use super::lines::Take;

/// The state of the scan.
#[derive(Debug, Clone, Default)]
pub(crate) struct Documents {
    waiting: Rope,
    /// The number of open levels in the document.
    depth: usize,
    in_text: bool,
    escaped: bool,
    place: DocumentPlace,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum DocumentPlace {
    #[default]
    Start,
    /// Between the elements of a list.
    List,
    /// After the one document.
    Whole,
    /// After the list.
    End,
}

impl Documents {
    /// Returns whether the body is one document, and not a list.
    pub fn is_one(&self) -> bool {
        self.place == DocumentPlace::Whole
    }

    /// Returns whether nothing but white space came yet.
    fn is_new(&self) -> bool {
        self.place == DocumentPlace::Start && self.depth == 0
    }

    pub fn feed(&mut self, bytes: &[u8], budget: usize, take: Take<'_>) -> Result<(), Fault> {
        // The start of the open document.
        let mut from = 0;
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if self.in_text {
                at = self.skip_text(bytes, at);
                continue;
            }
            at += 1;
            match byte {
                b'"' if self.depth > 0 => self.in_text = true,
                b'[' if self.is_new() => self.place = DocumentPlace::List,
                b'{' | b'[' if matches!(self.place, DocumentPlace::Start | DocumentPlace::List) => {
                    if self.depth == 0 {
                        from = at - 1;
                    }
                    self.depth += 1;
                }
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        let end = bytes.get(from..at).unwrap_or_default();
                        self.give(end, budget, take)?;
                    }
                }
                b']' if self.place == DocumentPlace::List => self.place = DocumentPlace::End,
                b',' if self.place == DocumentPlace::List => {}
                _ if self.depth > 0 || byte.is_ascii_whitespace() => {}
                _ if self.is_new() && super::sse::BOM.contains(byte) => {}
                _ => return Err(Fault::unreadable("not one JSON object, nor a list of such")),
            }
        }
        if self.depth > 0 {
            self.waiting.push(bytes.get(from..).unwrap_or_default());
        }
        Ok(())
    }

    /// Returns the position after the string, after a backslash in it, or after these bytes, whichever comes first.
    fn skip_text(&mut self, bytes: &[u8], at: usize) -> usize {
        if std::mem::take(&mut self.escaped) {
            return at + 1;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        match memchr2(b'"', b'\\', rest) {
            None => bytes.len(),
            Some(found) => {
                match rest.get(found) {
                    Some(b'"') => self.in_text = false,
                    _ => self.escaped = true,
                }
                at + found + 1
            }
        }
    }

    fn give(&mut self, end: &[u8], budget: usize, take: Take<'_>) -> Result<(), Fault> {
        if self.place == DocumentPlace::Start {
            self.place = DocumentPlace::Whole;
        }
        if self.waiting.is_empty() {
            return take(None, end);
        }
        take(None, &self.waiting.take_with(end, budget)?)
    }

    pub fn finish(&self) -> Result<(), Fault> {
        match (self.place, self.depth) {
            (DocumentPlace::Whole | DocumentPlace::End, 0) => Ok(()),
            _ => Err(Fault::CutOff),
        }
    }
}
