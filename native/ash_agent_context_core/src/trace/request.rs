//! The next request, in the data of a page: texts that the page has already are not written again.

use crate::context::Context;
use crate::error::Error;
use crate::provider::options::Options;
use crate::request::fields::Fields;
use crate::trace::shown::Trace;
use crate::trace::texts::Texts;
use crate::value::builder::{Json, JsonObject};
use crate::value::json::signs;
use crate::value::letters;
use crate::view::change::ChangeKind;

/// The keys of a call's arguments.
const ARGUMENTS: [&str; 3] = ["\"input\"", "\"args\"", "\"arguments\""];

/// The most bytes that a request adds to a page: these, and one more for every [`SHARE`] bytes of the conversation.
const OWN: usize = 64 * 1024;
const SHARE: usize = 10;

/// The bytes that stay of a long text when there is no more room.
const CUT: usize = 200;

impl Trace<'_> {
    /// Writes the request that the conversation would make now, or why it cannot.
    pub(super) fn request(&self, json: &mut JsonObject<'_>, texts: &Texts, options: &Options<'_>) {
        json.text("provider", options.provider.name());
        let Some(context) = self.active().map(|shown| self.mask(shown.context)) else {
            return;
        };
        let waiting = context.without_pending();
        json.field("interrupted", &waiting.is_some());
        let context = waiting.unwrap_or(context);
        if let Err(error) = write(&context, json, texts, options) {
            json.text("problem", &error.to_string());
        }
    }

    /// Returns the conversation with all masks of the trace.
    pub(super) fn mask(&self, context: &Context) -> Context {
        let mut context = context.clone();
        if self.masks.is_some() {
            context.change_masks(self.masks.clone());
        }
        context
    }
}

fn write(
    context: &Context,
    json: &mut JsonObject<'_>,
    texts: &Texts,
    options: &Options<'_>,
) -> Result<(), Error> {
    let segments = context.encode_with(options, &Fields::default())?;
    let body: Vec<u8> = segments.iter().flat_map(|of| of.bytes()).copied().collect();
    let report = context.request_report(options)?;
    let body = letters::utf8(&body);
    let mut cutter = Cutter {
        texts,
        chunks: Vec::new(),
        literal: String::new(),
        room: OWN + context.size().bytes / SHARE,
        left_out: 0,
    };
    cutter.run(&body);
    json.field("bytes", &body.len());
    json.field("left_out", &cutter.left_out);
    json.key("chunks")
        .list(&cutter.chunks, |json, chunk| match chunk {
            Chunk::Literal(text) => json.text(text),
            Chunk::Text(number) => json.value(number),
            Chunk::Json(number) => json.value(&[number]),
        });
    json.key("report")
        .list(&report, |json: &mut Json, located| {
            json.object(|json| {
                json.text("change", words(located.change.what));
                json.text("from", &located.change.from);
                if let Some(to) = &located.change.to {
                    json.text("to", to);
                }
                json.field("iteration", &located.iteration);
                json.field("position", &located.position);
            });
        });
    Ok(())
}

enum Chunk {
    /// Text of the body, unchanged.
    Literal(String),
    /// A text of the page, written as a JSON string.
    Text(usize),
    /// A text of the page that is JSON.
    Json(usize),
}

/// Replaces the texts in a body that a page has already.
struct Cutter<'a> {
    texts: &'a Texts,
    chunks: Vec<Chunk>,
    literal: String,
    /// The bytes that long texts may still take.
    room: usize,
    left_out: usize,
}

impl Cutter<'_> {
    fn run(&mut self, body: &str) {
        let mut rest = body;
        // Arguments are searched for again once this many bytes are left: not within an object that was searched.
        let mut searched = usize::MAX;
        while let Some((before, token, after)) = next_string(rest) {
            self.literal.push_str(before);
            self.string(token);
            rest = after;
            let object = ARGUMENTS.contains(&token).then(|| after.strip_prefix(':'));
            let object = object.flatten().filter(|of| of.starts_with('{'));
            if let Some(object) = object.filter(|_| after.len() <= searched) {
                let (object, behind) = split_object(object);
                match self.texts.find(object) {
                    Some(number) => {
                        self.literal.push(':');
                        self.put(Chunk::Json(number));
                        rest = behind;
                    }
                    None => searched = behind.len(),
                }
            }
        }
        self.literal.push_str(rest);
        self.flush();
    }

    fn string(&mut self, token: &str) {
        let text = serde_json::from_str::<String>(token).unwrap_or_default();
        if let Some(number) = self.texts.find(&text) {
            self.put(Chunk::Text(number));
        } else if token.len() > 2 * CUT && token.len() > self.room {
            let cut = text
                .get(..text.floor_char_boundary(CUT))
                .unwrap_or_default();
            self.left_out += text.len() - cut.len();
            let mut json = Json::default();
            json.text(&format!("{cut}\u{2026}"));
            self.literal.push_str(&letters::utf8(&json.into_bytes()));
        } else {
            self.room = self.room.saturating_sub(token.len());
            self.literal.push_str(token);
        }
    }

    fn put(&mut self, chunk: Chunk) {
        self.flush();
        self.chunks.push(chunk);
    }

    fn flush(&mut self) {
        if !self.literal.is_empty() {
            let literal = std::mem::take(&mut self.literal);
            self.chunks.push(Chunk::Literal(literal));
        }
    }
}

/// Returns the JSON before its next string, the string with its quotes, and the JSON after it.
fn next_string(json: &str) -> Option<(&str, &str, &str)> {
    let start = json.find('"')?;
    let (before, string) = json.split_at_checked(start)?;
    let mut escaped = true; // the first quote ends nothing
    let end = string.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    let (string, after) = string.split_at_checked(end + 1)?;
    Some((before, string, after))
}

/// Returns the object at the start of a JSON text, and the text after it.
fn split_object(json: &str) -> (&str, &str) {
    let mut depth = 0_usize;
    for (at, byte) in signs(json.as_bytes()) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return json.split_at_checked(at + 1).unwrap_or((json, ""));
                }
            }
            _ => {}
        }
    }
    (json, "")
}

const fn words(what: ChangeKind) -> &'static str {
    match what {
        ChangeKind::RenamedId => "the id of a call is another one",
        ChangeKind::RenamedTool => "the name of a tool is another one",
        ChangeKind::WrappedArguments => "arguments that are not an object stand in one",
        ChangeKind::ThinkingToText => "thinking became text",
        ChangeKind::DroppedThinking => "thinking was left out",
        ChangeKind::DroppedPart => "a part was left out",
        ChangeKind::DroppedBlankText => "a blank text was left out",
        ChangeKind::ReplacedBytes => "bytes that are not valid UTF-8 were replaced",
        ChangeKind::MovedPart => {
            "a part stands elsewhere: behind the results, or thinking before other words"
        }
        ChangeKind::MovedCall => "a call stands behind what the model said after it",
        ChangeKind::HiddenIterations => "iterations are hidden",
        ChangeKind::SummarizedIterations => "iterations are summarized",
        ChangeKind::ClearedResult => "a result was cleared",
        ChangeKind::ShortenedResult => "a result was shortened",
        ChangeKind::MaskedText => "text is masked",
        ChangeKind::PartToText => "a part became text",
        ChangeKind::DroppedMessage => "a message was left out",
        ChangeKind::CallToFunction => "a call became one of a function",
        ChangeKind::CorrectedType => "a media type was corrected",
        ChangeKind::ResultToText => "a result became text",
        ChangeKind::NumberToText => "a number that no float can hold became text",
        ChangeKind::EscapedFrame => "the frame of a late result was escaped in a text",
        ChangeKind::AddedMessage => "a user message was added",
    }
}
