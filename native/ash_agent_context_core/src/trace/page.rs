//! One HTML file that shows conversations and needs no other file.
//!
//! Text of a conversation is never part of the page's code: it is data in a script tag that no browser executes, and escaped text
//! (`html.rs`). A strict policy forbids everything else.

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::Engine as _;
use sha2::{Digest as _, Sha256};

use crate::context::Context;
use crate::prices::list::Prices;
use crate::provider::options::Options;
use crate::trace::data::DataWriter;
use crate::trace::html::Html;
use crate::trace::message_texts::{list_texts, Passage};
use crate::trace::shown::{MaskedEntry, Trace};
use crate::trace::visible::visible;
use crate::value::builder::Json;

const STYLE: &str = include_str!("page/page.css");

/// One function, so that no name in it clashes with those of a page that a fragment is put into. The files are in the order in
/// which they need each other.
const SCRIPT: &str = concat!(
    "'use strict';\n(() => {\n",
    include_str!("page/element.js"),
    include_str!("page/conversations.js"),
    include_str!("page/search.js"),
    include_str!("page/text.js"),
    include_str!("page/content.js"),
    include_str!("page/sent_request.js"),
    include_str!("page/message.js"),
    include_str!("page/list.js"),
    include_str!("page/timeline.js"),
    include_str!("page/compare.js"),
    include_str!("page/next_request.js"),
    include_str!("page/page.js"),
    "})();\n",
);

/// The HTML up to the policy.
const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content=""#;

/// The HTML from the policy to the title.
const META: &str = r#"">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>"#;

/// The HTML of a fragment, from its title to the page in it.
const FRAME: &str =
    r#"" class="ash-agent-trace" sandbox="allow-scripts" width="100%" height="720" srcdoc='"#;

/// The most messages that can be read without the script.
const READABLE: usize = 50;

/// The most bytes of these messages, so that the page does not have a conversation twice.
const READABLE_BYTES: usize = 120_000;

/// The options of a page.
#[derive(Debug)]
pub struct PageOptions<'a> {
    /// Its title.
    pub title: Option<&'a str>,
    /// The options of the request that is shown.
    pub request: Option<Options<'a>>,
    /// The prices of models.
    pub prices: &'a Prices,
    /// True if it is to be put into another page.
    pub fragment: bool,
}

impl Trace<'_> {
    /// Returns the page.
    ///
    /// # Complexity
    /// O(n)
    #[must_use]
    pub fn to_html(&self, options: &PageOptions<'_>) -> String {
        let active = self.active();
        let given = active.map_or("Conversation", |shown| shown.name);
        let title = visible(options.title.unwrap_or(given));
        let context = active.map(|shown| shown.context);
        let mut page = Html::default();
        page.markup(HEAD).text(&policy()).markup(META).text(&title);
        page.markup("</title>\n<style>").markup(STYLE);
        page.markup("</style>\n</head>\n<body>\n<main id=\"readable\">\n<h1>");
        page.text(&title).markup("</h1>");
        if let Some(context) = context {
            self.write_readable(&mut page, context);
        }
        page.markup("\n</main>\n<script type=\"application/json\" id=\"data\">");
        page.json(&self.data(options)).markup("</script>\n<script>");
        page.markup(SCRIPT).markup("</script>\n</body>\n</html>");
        if !options.fragment {
            return page.finish();
        }
        let mut fragment = Html::default();
        fragment.markup("<iframe title=\"").text(&title);
        fragment.markup(FRAME).document(&page).markup("'></iframe>");
        fragment.finish()
    }

    /// Writes the newest messages for readers without the script, each with its share of the room.
    fn write_readable(&self, page: &mut Html, context: &Context) {
        let position = self.active_at();
        let mut articles: Vec<Html> = Vec::new();
        let mut room = READABLE_BYTES;
        let entries = context.log.iterations_back().flat_map(|iteration| {
            let entries = iteration.entries().rev();
            entries.map(move |entry| (iteration.number, entry))
        });
        for (number, entry) in entries.take(READABLE) {
            let anchor = format!("c{position}-i{number}-m{}", entry.position);
            let number = number.to_string();
            let mut share = room / (READABLE - articles.len());
            room -= share;
            let mut article = Html::default();
            article.markup("\n<article id=\"").text(&anchor);
            article.markup("\" class=\"message\" aria-label=\"Message of iteration ");
            article.text(&number).markup("\">");
            for passage in list_texts(&MaskedEntry::new(entry, self.rendering()), |value| {
                self.mask_value(value)
            }) {
                write_passage(&mut article, &passage, &number, &mut share);
            }
            article.markup("\n</article>");
            room += share;
            articles.push(article);
        }
        let all = context.count_all_messages();
        if articles.len() < all {
            page.markup("\n<p>The newest messages of ")
                .text(&all.to_string());
            page.markup(". All of them can be read where the page's script runs.</p>");
        }
        articles.into_iter().rev().for_each(|of| page.append(of));
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
}

fn write_passage(page: &mut Html, passage: &Passage<'_>, number: &str, room: &mut usize) {
    let call = match passage.call {
        None => String::new(),
        Some((id, Some(name))) => format!("{name} ({id})"),
        Some((id, None)) => id.to_owned(),
    };
    let mut end = 0;
    for (at, letter) in passage.text.char_indices() {
        // Counts as many bytes as its escape.
        let is_escaped = "<>&\"'".contains(letter);
        let length = if is_escaped { 5 } else { letter.len_utf8() };
        match room.checked_sub(length) {
            Some(left) => *room = left,
            None => break,
        }
        end = at + letter.len_utf8();
    }
    let shown = passage.text.get(..end).unwrap_or_default();
    page.markup("\n<h2>").text(passage.label);
    page.markup(" <span class=\"note\">").text(&visible(&call));
    page.markup(" iteration ").text(number);
    page.markup("</span></h2>\n<pre dir=\"auto\"");
    page.markup(if passage.is_error {
        " class=\"error\""
    } else {
        ""
    });
    page.markup(">\n").text(&visible(shown));
    match passage.text.len() - end {
        0 => {}
        left_out => drop(page.text(&format!(" \u{2026} ({left_out} bytes more)"))),
    }
    page.markup("</pre>");
}

/// Returns a policy that allows only the page's own script and style, only images in the page, and no network.
fn policy() -> String {
    let hash = |text: &str| BASE64.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; \
         base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
}
