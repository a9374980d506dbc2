//! A text that grows at its end while older versions of it stay as they were.

use rpds::ListSync;

use crate::fault::Fault;
use crate::value::steps;

/// The length in bytes from which the end of a text becomes a link. A push onto a shared text copies at most this many bytes, in
/// tens of nanoseconds.
const LINK: usize = 1024;

/// Bytes in links, newest first, and an end that is still short.
#[derive(Debug, Default)]
pub(crate) struct Rope {
    links: ListSync<Box<[u8]>>,
    end: Vec<u8>,
    len: usize,
}

impl Clone for Rope {
    /// Reserves a link's room at once, since a copy is mostly made to grow.
    fn clone(&self) -> Self {
        let mut end = Vec::new();
        if !self.end.is_empty() {
            end.reserve_exact(LINK);
            end.extend_from_slice(&self.end);
        }
        Self {
            links: self.links.clone(),
            end,
            len: self.len,
        }
    }
}

impl Rope {
    /// Returns the number of bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds bytes at the end.
    ///
    /// # Complexity
    /// O(new bytes)
    pub fn push(&mut self, bytes: &[u8]) {
        steps::count(bytes.len());
        self.len += bytes.len();
        if bytes.len() >= LINK {
            self.link();
            self.links.push_front_mut(bytes.into());
            return;
        }
        self.end.extend_from_slice(bytes);
        if self.end.len() >= LINK {
            self.link();
        }
    }

    fn link(&mut self) {
        if !self.end.is_empty() {
            let link = std::mem::take(&mut self.end).into_boxed_slice();
            self.links.push_front_mut(link);
        }
    }

    /// Returns all bytes in one piece.
    ///
    /// # Complexity
    /// O(n)
    pub fn join(&self) -> Vec<u8> {
        steps::count(self.len);
        let mut bytes = Vec::with_capacity(self.len);
        let mut links: Vec<&[u8]> = self.links.iter().map(|link| &**link).collect();
        links.reverse();
        for link in links {
            bytes.extend_from_slice(link);
        }
        bytes.extend_from_slice(&self.end);
        bytes
    }

    /// Takes all bytes, followed by `end`, unless more than `budget` bytes waited.
    ///
    /// # Errors
    /// [`Fault::TooMuchWork`]
    pub fn take_with(&mut self, end: &[u8], budget: usize) -> Result<Vec<u8>, Fault> {
        if self.len > budget {
            return Err(Fault::TooMuchWork);
        }
        let mut whole = std::mem::take(self).join();
        whole.extend_from_slice(end);
        Ok(whole)
    }

    /// Returns the last byte.
    pub fn last(&self) -> Option<u8> {
        let link = || self.links.first().and_then(|link| link.last());
        self.end.last().or_else(link).copied()
    }

    /// Returns whether the bytes are these.
    pub fn is(&self, bytes: &[u8]) -> bool {
        self.len == bytes.len() && self.join() == bytes
    }
}
