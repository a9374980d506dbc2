//! The texts in a store: rows are joined to a document, and media are kept beside it. Of these texts, only the names of
//! branches are read.

use std::collections::HashMap;
use std::io::Write as _;

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::Engine as _;
use memchr::memmem;
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::storage::limits::NESTING;
use crate::value::letters::hex;
use crate::value::{json, Value};

/// The row of a branch. A context is a branch without a label.
#[derive(Debug, Clone, Copy)]
pub struct BranchRow<'a> {
    /// The branch's number.
    pub number: u64,
    /// The branch that has the iterations before the first of its own.
    pub base: Option<u64>,
    /// Its first iteration of its own, where another branch has those before.
    pub since: Option<u64>,
    /// The document's `updated_at`.
    pub updated_at: &'a str,
    /// The branch's fields in a chat.
    pub label: Option<&'a [u8]>,
    /// The document without iterations and `updated_at`.
    pub head: &'a [u8],
    /// The documents of its iterations, with commas between.
    pub iterations: Option<&'a [u8]>,
}

impl BranchRow<'_> {
    fn write(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(open(self.head));
        if let Some(since) = self.since {
            let _ = write!(text, ",\"since\":{since}");
        }
        let _ = write!(text, ",\"updated_at\":\"{}\"", self.updated_at);
        text.extend_from_slice(b",\"iterations\":[");
        text.extend_from_slice(self.iterations.unwrap_or_default());
        text.extend_from_slice(b"]}");
    }

    fn name(&self) -> Result<String, Error> {
        let name = match json::read(self.label.unwrap_or(b"{}"), NESTING)? {
            Value::Map(label) => label.get_named("name").cloned(),
            _ => None,
        };
        Ok(json::write(&name.unwrap_or(Value::Nil)))
    }
}

/// Joins rows to a document. `chat` is the text of a chat without its branches.
///
/// # Errors
/// A label that is not JSON.
pub fn join_rows(chat: Option<&[u8]>, rows: &[BranchRow<'_>]) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let Some(chat) = chat else {
        rows.iter().for_each(|row| row.write(&mut text));
        return Ok(text);
    };
    // A chat may have many branches on one.
    let names = rows.iter().map(|row| Ok((row.number, row.name()?)));
    let names = names.collect::<Result<HashMap<_, _>, Error>>()?;
    text.extend_from_slice(open(chat));
    text.extend_from_slice(b",\"branches\":[");
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        text.extend_from_slice(open(row.label.unwrap_or_default()));
        if let Some(base) = row.base.and_then(|base| names.get(&base)) {
            let _ = write!(text, ",\"base\":{base}");
        }
        text.extend_from_slice(b",\"context\":");
        row.write(&mut text);
        text.push(b'}');
    }
    text.extend_from_slice(b"]}");
    Ok(text)
}

/// Returns an object's text without its end, so that more fields may follow. It is never empty.
fn open(object: &[u8]) -> &[u8] {
    object.strip_suffix(b"}").unwrap_or(object)
}

/// Shorter media stay in the text.
const LEAST: usize = 2_048;
const FIELD: &[u8] = b"\"data\":";
/// What a document has of others in the place of a reference gets another level of this, see [`read_reference`].
const REFERENCE: &[u8] = b"{\"$blob\":";

/// Media taken out of a text, in base64.
#[derive(Debug, Clone)]
pub struct TakenMedia<'a> {
    /// The digest of its base64: media that were taken before are known by it, without decoding them.
    pub digest: [u8; 32],
    /// The digest of its bytes.
    pub id: String,
    /// Its base64.
    pub data: &'a [u8],
}

/// Returns a document's text with references in place of media, and the media that nobody knew. `known` returns the id for a
/// digest.
pub fn take_media<'a>(
    text: &'a [u8],
    known: impl Fn(&[u8]) -> Option<String>,
) -> (Vec<u8>, Vec<TakenMedia<'a>>) {
    let mut out = Vec::with_capacity(text.len());
    let mut media: Vec<TakenMedia<'a>> = Vec::new();
    let mut taken: HashMap<[u8; 32], String> = HashMap::new();
    let mut rest = text;
    while let Some(at) = memmem::find(rest, FIELD) {
        let (before, value) = rest.split_at(at.saturating_add(FIELD.len()));
        out.extend_from_slice(before);
        rest = value;
        if let Some(foreign) = read_reference(value) {
            out.extend_from_slice(REFERENCE);
            out.extend_from_slice(foreign.text);
            out.push(b'}');
            rest = foreign.after;
            continue;
        }
        let Some(value) = value.strip_prefix(b"\"") else {
            continue;
        };
        let end = memchr::memchr(b'"', value).filter(|end| *end >= LEAST);
        let found = end.and_then(|end| {
            let data = value.get(..end)?;
            let digest: [u8; 32] = Sha256::digest(data).into();
            let seen = taken.get(&digest).cloned().or_else(|| known(&digest));
            if let Some(id) = seen {
                return Some((id, end));
            }
            // Base64 that its bytes would not give again is refused here.
            let bytes = BASE64.decode(data).ok()?;
            let id = format!("sha256:{}", hex(&Sha256::digest(bytes)));
            taken.insert(digest, id.clone());
            media.push(TakenMedia {
                digest,
                id: id.clone(),
                data,
            });
            Some((id, end))
        });
        if let Some((id, end)) = found {
            out.extend_from_slice(REFERENCE);
            let _ = write!(out, "\"{id}\"}}");
            rest = value.get(end.saturating_add(1)..).unwrap_or_default();
        }
    }
    out.extend_from_slice(rest);
    (out, media)
}

/// Puts media back in the place of references; `None` where there is no data for an id.
pub fn put_media_back<'a>(text: &[u8], data: impl Fn(&str) -> Option<&'a [u8]>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memmem::find(rest, FIELD) {
        let (before, value) = rest.split_at(at.saturating_add(FIELD.len()));
        out.extend_from_slice(before);
        rest = value;
        let Some(reference) = read_reference(value) else {
            continue;
        };
        if let Some(foreign) = reference.foreign {
            out.extend_from_slice(foreign);
        } else {
            out.push(b'"');
            out.extend_from_slice(data(reference.id)?);
            out.push(b'"');
        }
        rest = reference.after;
    }
    out.extend_from_slice(rest);
    Some(out)
}

struct Reference<'a> {
    id: &'a str,
    text: &'a [u8],
    /// What a document of others had here, if this is not a reference of ours: one level less.
    foreign: Option<&'a [u8]>,
    after: &'a [u8],
}

/// Reads `{"$blob":"sha256:..."}`, or that within `{"$blob":...}`, in any number of levels. Databases may write a space after a colon.
fn read_reference(text: &[u8]) -> Option<Reference<'_>> {
    let text = skip_space(text);
    let inside = skip_space(text.strip_prefix(REFERENCE)?);
    let mut levels: usize = 1;
    let mut value = inside;
    while let Some(inner) = value.strip_prefix(REFERENCE) {
        levels = levels.saturating_add(1);
        value = skip_space(inner);
    }
    let value = value.strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', value)?;
    let id = std::str::from_utf8(value.get(..end)?).ok()?;
    let digest = id.strip_prefix("sha256:")?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_digest = digest.len() == 64 && digest.bytes().all(is_hex);
    let ends = value.get(end.saturating_add(1)..)?;
    let (close, after) = (ends.get(..levels)?, ends.get(levels..)?);
    let length_of = |from: &[u8], rest: &[u8]| from.len().saturating_sub(rest.len());
    let foreign = inside.get(..length_of(inside, after).saturating_sub(1))?;
    (is_digest && close.iter().all(|byte| *byte == b'}')).then_some(Reference {
        id,
        text: text.get(..length_of(text, after))?,
        foreign: (levels > 1).then_some(foreign),
        after,
    })
}

fn skip_space(text: &[u8]) -> &[u8] {
    text.strip_prefix(b" ").unwrap_or(text)
}
