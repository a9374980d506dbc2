//! One HTML file that a person can look at, with all that it needs in it.
//!
//! Nothing of a conversation is ever part of the page's own code: it is data in a script tag that no browser
//! executes, and text that the template escapes. A strict policy forbids everything else.

use askama::Template;
use base64::engine::general_purpose::STANDARD as BASE64;
use base64::Engine as _;
use sha2::{Digest as _, Sha256};

use crate::context::Context;
use crate::log::price_list::Prices;
use crate::provider::options::Options;
use crate::trace::data::DataWriter;
use crate::trace::said::{list_said, Passage};
use crate::trace::told::{Looked, Trace};
use crate::trace::visible::visible;
use crate::value::builder::Json;

const STYLE: &str = include_str!("page/page.css");

/// One function, so that no name of the script is one of the page that a fragment is put into. Its files are in the order in which
/// they need each other.
const SCRIPT: &str = concat!(
    "'use strict';\n(() => {\n",
    include_str!("page/element.js"),
    include_str!("page/conversations.js"),
    include_str!("page/search.js"),
    include_str!("page/text.js"),
    include_str!("page/content.js"),
    include_str!("page/asked.js"),
    include_str!("page/message.js"),
    include_str!("page/list.js"),
    include_str!("page/timeline.js"),
    include_str!("page/compare.js"),
    include_str!("page/request.js"),
    include_str!("page/page.js"),
    "})();\n",
);

/// Messages that can be read without the script.
const READABLE: usize = 50;

/// Bytes that they have together, so that the page does not hold a conversation twice.
const READABLE_BYTES: usize = 120_000;

/// Says what is wanted of a page.
#[derive(Debug)]
pub struct PageOptions<'a> {
    /// Its title.
    pub title: Option<&'a str>,
    /// Whose request is shown.
    pub request: Option<Options<'a>>,
    /// Holds what models cost.
    pub prices: &'a Prices,
    /// Says whether it is to be put into another page.
    pub fragment: bool,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    title: &'a str,
    policy: String,
    style: &'static str,
    script: &'static str,
    data: String,
    messages: Vec<Readable>,
    all: usize,
}

/// A message that can be read without the script.
struct Readable {
    anchor: String,
    number: u64,
    pieces: Vec<PagePiece>,
}

struct PagePiece {
    label: &'static str,
    call: String,
    text: String,
    is_error: bool,
}

#[derive(Template)]
#[template(path = "fragment.html")]
struct Fragment<'a> {
    title: &'a str,
    page: String,
}

impl Trace<'_> {
    /// The page.
    ///
    /// # Complexity
    /// O(n)
    #[must_use]
    pub fn to_html(&self, options: &PageOptions<'_>) -> String {
        let active = self.active();
        let given = active.map_or("Conversation", |told| told.name);
        let title = visible(options.title.unwrap_or(given));
        let context = active.map(|told| told.context);
        let page = Page {
            title: &title,
            policy: policy(),
            style: STYLE,
            script: SCRIPT,
            data: embed(self.data(options)),
            messages: context.map_or(Vec::new(), |context| self.readable(context)),
            all: context.map_or(0, Context::count_log),
        };
        // Writing to a string does not fail.
        let page = page.render().unwrap_or_default();
        if !options.fragment {
            return page;
        }
        let page = page.replace('&', "&amp;").replace('\'', "&#39;");
        let title = &title;
        Fragment { title, page }.render().unwrap_or_default()
    }

    fn data(&self, options: &PageOptions<'_>) -> Vec<u8> {
        let mut json = Json::default();
        json.object(|json| {
            let mut writer = DataWriter::new(self, options.prices);
            json.field("version", &1);
            json.list("conversations", |json| writer.conversations(json));
            if let Some(request) = &options.request {
                json.object("request", |json| self.request(json, &writer.texts, request));
            }
            writer.texts.finish(json.key("texts"));
        });
        json.into_bytes()
    }

    /// The newest messages, each with its share of the room there is.
    fn readable(&self, context: &Context) -> Vec<Readable> {
        let position = self
            .told
            .iter()
            .position(|told| told.is_active)
            .unwrap_or(0);
        let mut messages = Vec::new();
        let mut room = READABLE_BYTES;
        for iteration in context.log.iterations_back() {
            for entry in iteration.entries().rev() {
                if messages.len() == READABLE {
                    messages.reverse();
                    return messages;
                }
                let looked = Looked::new(entry, self.look());
                let mut share = room / (READABLE - messages.len());
                room -= share;
                let pieces = list_said(&looked)
                    .iter()
                    .map(|of| piece(of, &mut share))
                    .collect();
                room += share;
                messages.push(Readable {
                    anchor: format!("c{position}-i{}-m{}", iteration.number, entry.position),
                    number: iteration.number,
                    pieces,
                });
            }
        }
        messages.reverse();
        messages
    }
}

fn piece(said: &Passage<'_>, room: &mut usize) -> PagePiece {
    let call = match said.call {
        None => String::new(),
        Some((id, Some(name))) => format!("{name} ({id})"),
        Some((id, None)) => id.to_owned(),
    };
    let mut end = 0;
    for (at, letter) in said.text.char_indices() {
        // As long as the template's escapes are.
        let length = if "<>&\"'".contains(letter) {
            5
        } else {
            letter.len_utf8()
        };
        match room.checked_sub(length) {
            Some(left) => *room = left,
            None => break,
        }
        end = at + letter.len_utf8();
    }
    let shown = said.text.get(..end).unwrap_or_default();
    let left_out = match said.text.len() - end {
        0 => String::new(),
        left_out => format!(" \u{2026} ({left_out} bytes more)"),
    };
    PagePiece {
        label: said.label,
        call: visible(&call).into_owned(),
        text: [&visible(shown), left_out.as_str()].concat(),
        is_error: said.is_error,
    }
}

/// Only the page's own script and style, only images that are in it, and no network.
fn policy() -> String {
    let hash = |text: &str| BASE64.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; \
         base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
}

/// JSON that can stand in a script tag: nothing in it ends the tag or begins a comment or another one. A
/// `<` only stands in strings, where `\/` and `\u003c` are other ways to write what they stand for.
fn embed(json: Vec<u8>) -> String {
    let mut safe = Vec::with_capacity(json.len() + json.len() / 64);
    let mut from = 0;
    for at in memchr::memchr_iter(b'<', &json) {
        let escape: &[u8] = match json.get(at + 1) {
            Some(b'/') => b"<\\",
            Some(b'!' | b's' | b'S' | b'?') => b"\\u003c",
            _ => continue,
        };
        safe.extend_from_slice(json.get(from..at).unwrap_or_default());
        safe.extend_from_slice(escape);
        from = at + 1;
    }
    safe.extend_from_slice(json.get(from..).unwrap_or_default());
    // Only UTF-8 was written.
    String::from_utf8(safe).unwrap_or_default()
}
