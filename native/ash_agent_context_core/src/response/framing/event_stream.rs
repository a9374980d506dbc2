//! AWS's event stream: binary frames with headers, each under two checksums.
//!
//! `total length, length of headers, CRC of these, headers, payload, CRC of all`: numbers have 4 bytes and are big-endian. A
//! header is `length of name, name, type, value`.

use base64::prelude::{Engine as _, BASE64_STANDARD};

use crate::fault::Fault;
use crate::provider::node;
use crate::provider::rope::Rope;

use super::lines::Take;

/// The bytes of the two lengths and their checksum.
const PRELUDE: usize = 12;

/// The bytes of a checksum.
const SUM: usize = 4;

/// The bytes of the longest frame, by AWS's own limits: 16 MiB of payload, 128 KiB of headers.
const LONGEST: usize = (16 << 20) + (128 << 10) + PRELUDE + SUM;

/// A frame that is not complete yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventStream {
    waiting: Rope,
    /// The length of the frame, once it is known.
    length: Option<usize>,
}

/// The headers of a frame that matter here, and its payload.
#[derive(Debug, Default)]
struct Frame<'a> {
    event: Option<&'a str>,
    exception: Option<&'a str>,
    /// The code of an error that is not an exception of the service.
    code: Option<&'a str>,
    message: Option<&'a str>,
    payload: &'a [u8],
}

impl EventStream {
    pub fn feed(&mut self, bytes: &[u8], budget: usize, take: Take<'_>) -> Result<(), Fault> {
        let mut rest = bytes;
        loop {
            let needed = self.length.unwrap_or(PRELUDE);
            let missing = needed.saturating_sub(self.waiting.len());
            if rest.len() < missing {
                self.waiting.push(rest);
                return Ok(());
            }
            let (next, after) = rest.split_at(missing);
            if self.length.is_none() {
                if self.waiting.is_empty() {
                    self.length = Some(read_prelude(next)?);
                } else {
                    let mut prelude = self.waiting.join();
                    prelude.extend_from_slice(next);
                    self.length = Some(read_prelude(&prelude)?);
                    self.waiting.push(next);
                    rest = after;
                }
                continue;
            }
            rest = after;
            self.length = None;
            if self.waiting.is_empty() {
                read_frame(next, take)?;
                continue;
            }
            read_frame(&self.waiting.take_with(next, budget)?, take)?;
        }
    }

    pub fn finish(&self) -> Result<(), Fault> {
        match self.waiting.is_empty() && self.length.is_none() {
            true => Ok(()),
            false => Err(Fault::CutOff),
        }
    }
}

fn wrong_sum() -> Fault {
    Fault::unreadable("an AWS event stream whose checksum is wrong")
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Returns the length of a frame.
fn read_prelude(bytes: &[u8]) -> Result<usize, Fault> {
    let wrong = || Fault::unreadable("not a frame of an AWS event stream");
    let lengths = bytes.get(..8).ok_or_else(wrong)?;
    if number(bytes, 8) != Some(crc32fast::hash(lengths)) {
        return Err(wrong_sum());
    }
    let total = number(bytes, 0).and_then(|total| usize::try_from(total).ok());
    total
        .filter(|total| (PRELUDE + SUM..=LONGEST).contains(total))
        .ok_or_else(wrong)
}

fn read_frame(bytes: &[u8], take: Take<'_>) -> Result<(), Fault> {
    let frame = parse(bytes)?;
    if let Some(exception) = frame.exception {
        let failed = node::read(frame.payload, |node| {
            let message = node::text(node, "message").or_else(|| node::text(node, "Message"));
            Ok(Fault::provider(Some(exception), message))
        });
        return Err(failed.unwrap_or_else(|_| Fault::provider(Some(exception), None)));
    }
    if frame.code.is_some() {
        return Err(Fault::provider(frame.code, frame.message));
    }
    if frame.event != Some("chunk") {
        return take(frame.event, frame.payload);
    }
    // A chunk in the model's own form, as InvokeModelWithResponseStream sends.
    let inner = node::read(frame.payload, |node| {
        let bytes = node::text(node, "bytes").map(|bytes| BASE64_STANDARD.decode(bytes));
        match bytes {
            Some(Ok(bytes)) => Ok(bytes),
            _ => Err(Fault::unreadable("a chunk without its bytes")),
        }
    })?;
    take(None, &inner)
}

fn parse(bytes: &[u8]) -> Result<Frame<'_>, Fault> {
    let wrong = || Fault::unreadable("a frame of an AWS event stream whose parts do not fit");
    let end = bytes.len().checked_sub(SUM).ok_or_else(wrong)?;
    let body = bytes.get(..end).ok_or_else(wrong)?;
    if number(bytes, end) != Some(crc32fast::hash(body)) {
        return Err(wrong_sum());
    }
    let length = number(bytes, 4).and_then(|length| usize::try_from(length).ok());
    let from = length.and_then(|length| length.checked_add(PRELUDE));
    let from = from.ok_or_else(wrong)?;
    let mut headers = body.get(PRELUDE..from).ok_or_else(wrong)?;
    let mut frame = Frame {
        payload: body.get(from..).ok_or_else(wrong)?,
        ..Frame::default()
    };
    while !headers.is_empty() {
        let (name, value, rest) = header(headers).ok_or_else(wrong)?;
        headers = rest;
        let place = match name {
            b":event-type" => &mut frame.event,
            b":exception-type" => &mut frame.exception,
            b":error-code" => &mut frame.code,
            b":error-message" => &mut frame.message,
            _ => continue,
        };
        *place = value;
    }
    Ok(frame)
}

/// Returns the name of a header, its text if it is one, and the bytes after it.
fn header(bytes: &[u8]) -> Option<(&[u8], Option<&str>, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (kind, rest) = rest.split_first()?;
    let length = match kind {
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4 => 4,
        5 | 8 => 8,
        9 => 16,
        6 | 7 => {
            let (length, rest) = rest.split_at_checked(2)?;
            let length = u16::from_be_bytes(length.try_into().ok()?);
            let (value, rest) = rest.split_at_checked(usize::from(length))?;
            let text = std::str::from_utf8(value).ok().filter(|_| *kind == 7);
            return Some((name, text, rest));
        }
        _ => return None,
    };
    let (_, rest) = rest.split_at_checked(length)?;
    Some((name, None, rest))
}
