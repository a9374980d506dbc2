//! Server-sent events, by the HTML standard.

use std::borrow::Cow;
use std::sync::Arc;

use crate::fault::Fault;
use crate::provider::rope::Rope;
use crate::value::letters;

use super::lines::{Lines, Take};

/// The byte order mark, which may come first.
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// The ways in which a stream can begin. No JSON begins so.
pub(super) const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];

/// An event whose empty line has not come yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sse {
    lines: Lines,
    event: SseEvent,
}

#[derive(Debug, Clone, Default)]
struct SseEvent {
    name: Option<Arc<str>>,
    data: Rope,
    /// True if there is data, even if it is empty.
    has_data: bool,
    begun: bool,
}

/// The line with the data of the current event, which is not copied yet, and where the data begins in it.
type HeldData<'a> = Option<(Cow<'a, [u8]>, usize)>;

impl Sse {
    pub fn feed(&mut self, bytes: &[u8], budget: usize, take: Take<'_>) -> Result<(), Fault> {
        let Self { lines, event } = self;
        let mut held: HeldData<'_> = None;
        lines.feed(bytes, budget, &mut |line| {
            event.line(line, &mut held, budget, take)
        })?;
        event.keep(&mut held);
        Ok(())
    }

    /// Passes on the last event even without its empty line. The standard drops it, but many servers send it so, and half a
    /// document is refused in any case.
    pub fn finish(&mut self, take: Take<'_>) -> Result<(), Fault> {
        let Self { lines, event } = self;
        let mut held: HeldData<'_> = None;
        lines.finish(&mut |line| {
            let line = Cow::Owned(line.into_owned());
            event.line(line, &mut held, usize::MAX, &mut *take)
        })?;
        event.keep(&mut held);
        event.dispatch(&mut None, usize::MAX, take)
    }
}

impl SseEvent {
    fn line<'a>(
        &mut self,
        mut line: Cow<'a, [u8]>,
        held: &mut HeldData<'a>,
        budget: usize,
        take: Take<'_>,
    ) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(BOM) {
            line = match line {
                Cow::Borrowed(line) => Cow::Borrowed(line.get(BOM.len()..).unwrap_or_default()),
                Cow::Owned(line) => Cow::Owned(line.get(BOM.len()..).unwrap_or_default().to_vec()),
            };
        }
        if line.is_empty() {
            return self.dispatch(held, budget, take);
        }
        let colon = memchr::memchr(b':', &line);
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                let from = line.len() - value.len();
                self.keep(held);
                if self.has_data {
                    self.data.push(b"\n");
                }
                *held = Some((line, from));
            }
            b"event" => {
                let name = letters::utf8(value);
                self.name = Some(name.chars().take(100).collect::<String>().into());
            }
            // Comments begin with a colon. Ids and retry times are ignored.
            _ => {}
        }
        Ok(())
    }

    /// Copies the event's data from the bytes that were fed.
    fn keep(&mut self, held: &mut HeldData<'_>) {
        if let Some((line, from)) = held.take() {
            self.data.push(line.get(from..).unwrap_or_default());
            self.has_data = true;
        }
    }

    fn dispatch(
        &mut self,
        held: &mut HeldData<'_>,
        budget: usize,
        take: Take<'_>,
    ) -> Result<(), Fault> {
        let name = self.name.take();
        let name = name.as_deref().filter(|name| !name.is_empty());
        let held = held.take();
        let end = held.as_ref().and_then(|(line, from)| line.get(*from..));
        let end = end.unwrap_or_default();
        match std::mem::take(&mut self.has_data) {
            true => give(name, &self.data.take_with(end, budget)?, take),
            false => give(name, end, take),
        }
    }
}

pub(super) fn give(name: Option<&str>, data: &[u8], take: Take<'_>) -> Result<(), Fault> {
    match data.iter().all(u8::is_ascii_whitespace) {
        true => Ok(()),
        false => take(name, data),
    }
}
