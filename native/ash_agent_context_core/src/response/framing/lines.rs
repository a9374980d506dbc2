//! Splits bytes into lines, from which other framings make documents. Lines end with a line feed, a carriage return, or both.

use std::borrow::Cow;

use memchr::memchr2;

use crate::fault::Fault;
use crate::provider::rope::Rope;

/// Takes a document: its name in the framing, if it has one, and its bytes.
pub(crate) type Take<'t> = &'t mut dyn FnMut(Option<&str>, &[u8]) -> Result<(), Fault>;

/// Takes a line.
pub(super) type TakeLine<'t, 'a> = &'t mut dyn FnMut(Cow<'a, [u8]>) -> Result<(), Fault>;

/// A line that is not complete yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines {
    waiting: Rope,
    /// True if a line feed at the start belongs to the end of the line before.
    after_return: bool,
}

impl Lines {
    /// Passes on each line that ends in these bytes.
    pub fn feed<'a>(
        &mut self,
        bytes: &'a [u8],
        budget: usize,
        take: TakeLine<'_, 'a>,
    ) -> Result<(), Fault> {
        let mut rest = bytes;
        if self.after_return && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_return = false;
        }
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let (line, after) = rest.split_at(at);
            let (end, after) = after.split_first().unwrap_or((&b'\n', after));
            rest = after;
            if *end == b'\r' {
                self.after_return = after.is_empty();
                rest = after.strip_prefix(b"\n").unwrap_or(after);
            }
            if self.waiting.is_empty() {
                take(Cow::Borrowed(line))?;
                continue;
            }
            take(Cow::Owned(self.waiting.take_with(line, budget)?))?;
        }
        self.waiting.push(rest);
        Ok(())
    }

    /// Passes on the last line, which has no end of its own.
    pub fn finish(&mut self, take: TakeLine<'_, '_>) -> Result<(), Fault> {
        match self.waiting.is_empty() {
            true => Ok(()),
            false => take(Cow::Owned(std::mem::take(&mut self.waiting).join())),
        }
    }
}
