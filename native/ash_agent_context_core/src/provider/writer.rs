//! Writing the elements of a message, and telling of the changes that are made on the way.

use std::borrow::Cow;

use crate::log::call::ToolCall;
use crate::log::media::{words_of, Media};
use crate::log::message::{Outcome, Output};
use crate::log::once::Piece;
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::accepts::Accepts;
use crate::provider::options::{Options, Thinking};
use crate::value::builder::Json;
use crate::value::letters;
use crate::value::words;
use crate::value::Map;
use crate::view::change::{Change, ChangeKind};

/// The end of an element with a list of blocks.
pub(crate) const CLOSE: &str = "]}";

/// The beginning of an element with a list of blocks.
pub(crate) const fn open(is_model: bool) -> &'static str {
    if is_model {
        ",{\"role\":\"assistant\",\"content\":["
    } else {
        ",{\"role\":\"user\",\"content\":["
    }
}

/// The elements of one message in the making.
pub(crate) struct Writer<'o> {
    pub json: Json,
    pub options: &'o Options<'o>,
    accepts: &'o dyn Accepts,
    mark: Option<usize>,
    changes: Option<Vec<Change>>,
}

impl<'o> Writer<'o> {
    pub fn new(options: &'o Options<'o>, accepts: &'o dyn Accepts) -> Self {
        Self {
            json: Json::default(),
            options,
            accepts,
            mark: None,
            changes: None,
        }
    }

    /// One that goes on behind elements that are written already.
    pub fn behind(elements: Vec<u8>, options: &'o Options<'o>, accepts: &'o dyn Accepts) -> Self {
        Self {
            json: Json(elements),
            ..Self::new(options, accepts)
        }
    }

    /// The elements and the mark.
    pub fn into_parts(self) -> (Vec<u8>, Option<usize>) {
        (self.json.0, self.mark)
    }

    /// One that remembers what is changed.
    pub fn reporting(options: &'o Options<'o>, accepts: &'o dyn Accepts) -> Self {
        Self {
            changes: Some(Vec::new()),
            ..Self::new(options, accepts)
        }
    }

    pub fn piece(self) -> Piece {
        Piece {
            bytes: self.json.0.into_boxed_slice(),
            mark: self.mark,
            ..Piece::default()
        }
    }

    pub fn changes(self) -> Vec<Change> {
        self.changes.unwrap_or_default()
    }

    /// Notes a change, if anyone wants to know.
    pub fn changed(&mut self, what: ChangeKind, from: impl FnOnce() -> String, to: Option<&str>) {
        if let Some(changes) = &mut self.changes {
            changes.push(Change {
                what,
                from: from(),
                to: to.map(str::to_owned),
            });
        }
    }

    /// A cache breakpoint can stand inside the object that was written last.
    pub fn mark_inside(&mut self) {
        self.mark = self.json.0.len().checked_sub(1);
    }

    /// A cache breakpoint can stand behind what was written last.
    pub fn mark_behind(&mut self) {
        self.mark = Some(self.json.0.len());
    }

    /// A user or assistant message with a list of blocks; nothing when no block is written.
    pub fn blocks(&mut self, is_model: bool, fill: impl FnOnce(&mut Self)) {
        self.wrapped(open(is_model), CLOSE, fill);
    }

    /// What `fill` writes, between a beginning and an end; nothing when it writes nothing.
    pub fn wrapped(&mut self, open: &str, close: &str, fill: impl FnOnce(&mut Self)) {
        let start = self.json.0.len();
        self.json.raw(open);
        let inside = self.json.0.len();
        fill(self);
        if self.json.0.len() == inside {
            self.json.0.truncate(start);
        } else {
            self.json.raw(close);
        }
    }

    /// What `fill` writes, as JSON text that is put into something else afterwards.
    pub fn apart(&mut self, fill: impl FnOnce(&mut Self)) -> String {
        let (json, mark) = (std::mem::take(&mut self.json), self.mark);
        fill(self);
        self.mark = mark;
        let written = std::mem::replace(&mut self.json, json);
        String::from_utf8(written.0).unwrap_or_default()
    }

    /// UTF-8 text that is not blank.
    pub fn text<'a>(&mut self, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
        let text = letters::utf8(bytes);
        if let Cow::Owned(to) = &text {
            self.changed(ChangeKind::ReplacedBytes, || format!("{bytes:?}"), Some(to));
        }
        if letters::is_blank(&text) {
            self.changed(
                ChangeKind::DroppedBlankText,
                || text.clone().into_owned(),
                None,
            );
            return None;
        }
        Some(text)
    }

    /// The id of a call, as the provider can take it.
    pub fn id<'a>(&mut self, call: &'a ToolCall) -> Cow<'a, str> {
        let sent = self.accepts.id(call, call.came_from(self.options.provider));
        if *sent != *call.id {
            self.changed(ChangeKind::RenamedId, || call.id.to_string(), Some(&sent));
        }
        sent
    }

    /// The name of a tool, as the provider can take it.
    pub fn name<'a>(&mut self, call: &'a ToolCall) -> Cow<'a, str> {
        let name = self.accepts.name(call.name.as_str());
        if let Cow::Owned(to) = &name {
            self.changed(
                ChangeKind::RenamedTool,
                || call.name.as_str().to_owned(),
                Some(to),
            );
        }
        name
    }

    /// The arguments of a call as the JSON text of an object.
    pub fn arguments<'a>(&mut self, call: &'a ToolCall) -> Cow<'a, str> {
        if let Some(json) = &call.arguments.json {
            return Cow::Borrowed(json);
        }
        let json = crate::value::json::write(&call.arguments.value);
        if json.starts_with('{') {
            return Cow::Owned(json);
        }
        let wrapped = format!("{{\"arguments\":{json}}}");
        self.changed(ChangeKind::WrappedArguments, || json, Some(&wrapped));
        Cow::Owned(wrapped)
    }

    /// What a thinking part becomes.
    pub fn thinking<'a>(&mut self, part: &'a Part, signed: bool) -> Thought<'a> {
        let PartKind::Thinking(bytes) = &part.kind else {
            return Thought::Nothing;
        };
        let text = letters::utf8(bytes);
        let signature = part.provider_text("signature");
        if part.is_of(self.options) && (signature.is_some() || !signed) {
            return Thought::Own { text, signature };
        }
        self.thinking_as_text(part)
    }

    /// What a thinking part becomes that cannot go back as it came.
    pub fn thinking_as_text<'a>(&mut self, part: &'a Part) -> Thought<'a> {
        let PartKind::Thinking(bytes) = &part.kind else {
            return Thought::Nothing;
        };
        let text = letters::utf8(bytes);
        if self.options.thinking == Thinking::Text && !letters::is_blank(&text) {
            self.changed(
                ChangeKind::ThinkingToText,
                || text.clone().into_owned(),
                Some(&text),
            );
            return Thought::Text(text);
        }
        self.changed(ChangeKind::DroppedThinking, || text.into_owned(), None);
        Thought::Nothing
    }

    /// Whether anything is sent of a part that does not go back as thinking.
    pub fn says(&self, part: &Part) -> bool {
        match &part.kind {
            PartKind::Text(bytes) => !letters::is_blank(&letters::utf8(bytes)),
            PartKind::Thinking(bytes) => {
                self.options.thinking == Thinking::Text && !letters::is_blank(&letters::utf8(bytes))
            }
            PartKind::ProviderBlock { provider, .. } => *provider == self.options.provider,
            PartKind::RedactedThinking(_) => false,
            PartKind::Image { .. } | PartKind::File { .. } => true,
        }
    }

    /// A part that this provider cannot have.
    pub fn dropped(&mut self, part: &Part) {
        self.changed(
            ChangeKind::DroppedPart,
            || part.kind.name().to_owned(),
            None,
        );
    }

    /// An image or a file where only text can be.
    pub fn media_words(&mut self, part: &Part) -> String {
        let words = words_of(&part.kind).unwrap_or_default();
        self.reworded(part, &words);
        words
    }

    /// A part that this provider gets as text.
    pub fn reworded(&mut self, part: &Part, words: &str) {
        self.changed(
            ChangeKind::PartToText,
            || part.kind.name().to_owned(),
            Some(words),
        );
    }

    /// A provider block, if it is this provider's.
    pub fn own_block<'a>(&mut self, part: &'a Part) -> Option<&'a Map> {
        match &part.kind {
            PartKind::ProviderBlock { provider, .. } if *provider != self.options.provider => {
                self.dropped(part);
                None
            }
            PartKind::ProviderBlock { data, .. } => Some(data),
            _ => None,
        }
    }

    /// What a model reads of a result.
    pub fn result_text<'a>(&mut self, outcome: &'a Outcome) -> Cow<'a, str> {
        let text = letters::utf8(outcome.text().unwrap_or_default());
        if letters::is_blank(&text) {
            return Cow::Borrowed(words::NO_OUTPUT);
        }
        text
    }

    /// The same where the provider has no error mark.
    pub fn worded_result<'a>(&mut self, outcome: &'a Outcome) -> Cow<'a, str> {
        let text = self.result_text(outcome);
        if !outcome.is_error() {
            return text;
        }
        Cow::Owned(format!("Error: {text}"))
    }

    /// A result as text, and its media, for providers that have media in user messages only.
    pub fn split_result<'a>(
        &mut self,
        outcome: &'a Outcome,
        sends: impl Fn(&Media<'_>) -> bool,
    ) -> (Cow<'a, str>, Vec<&'a Part>) {
        let Output::Parts(parts) = &outcome.output else {
            return (self.worded_result(outcome), Vec::new());
        };
        let (mut texts, mut media) = (Vec::new(), Vec::new());
        for part in &**parts {
            match (&part.kind, Media::of(&part.kind)) {
                (PartKind::Text(bytes), _) => texts.extend(self.text(bytes)),
                (_, Some(found)) if sends(&found) => {
                    self.changed(ChangeKind::MovedPart, || part.kind.name().to_owned(), None);
                    media.push(part);
                }
                (_, Some(found)) => {
                    let words = found.words();
                    self.reworded(part, &words);
                    texts.push(Cow::Owned(words));
                }
                (_, None) => self.dropped(part),
            }
        }
        let text = match (texts.is_empty(), media.is_empty()) {
            (false, _) => Cow::Owned(texts.join("\n")),
            (true, false) => Cow::Borrowed(SEE_BELOW),
            (true, true) => Cow::Borrowed(words::NO_OUTPUT),
        };
        (text, media)
    }
}

/// What a result says whose media stand behind all results.
const SEE_BELOW: &str = "See the attachments in the next message.";

/// Parts in an order in which thinking stands in front, when what is sent of them does not begin with
/// it or ends with it. Where it begins with it, thinking stands between the others as the model made it.
pub(crate) fn thinking_first<'a>(
    parts: &'a [Part],
    out: &Writer<'_>,
    is_thinking: impl Fn(&Part) -> bool,
) -> Vec<&'a Part> {
    let is_sent = |part: &&Part| is_thinking(part) || out.says(part);
    let begins = parts.iter().find(is_sent).is_some_and(&is_thinking);
    let ends = parts.iter().rfind(is_sent).is_some_and(&is_thinking);
    if begins && !ends {
        return parts.iter().collect();
    }
    let (mut first, rest): (Vec<_>, Vec<_>) = parts.iter().partition(|part| is_thinking(part));
    first.extend(rest);
    first
}

/// What becomes of a thinking part.
pub(crate) enum Thought<'a> {
    /// It goes back to whom it came from.
    Own {
        text: Cow<'a, str>,
        signature: Option<&'a str>,
    },
    /// It becomes text.
    Text(Cow<'a, str>),
    /// It is left out.
    Nothing,
}

impl Part {
    /// Whether the part came from this provider and, as far as is known, this model.
    pub(crate) fn is_of(&self, options: &Options<'_>) -> bool {
        let metadata = self.provider_metadata.as_ref();
        let model = metadata.and_then(|map| map.get_named("model")?.as_name());
        Provider::of(metadata) == Some(options.provider)
            && model.is_none_or(|model| options.model.is_none_or(|asked| asked == model))
    }

    /// A text in what the part's provider wants to see again; blank counts as missing.
    pub(crate) fn provider_text(&self, key: &str) -> Option<&str> {
        let text = self.provider_metadata.as_ref()?.get_named(key)?.as_str()?;
        (!letters::is_blank(text)).then_some(text)
    }
}

impl ToolCall {
    /// Whether the call came from this provider.
    pub(crate) fn came_from(&self, provider: Provider) -> bool {
        Provider::of(self.provider_metadata.as_ref()) == Some(provider)
    }

    /// A text in what the call's provider wants to see again, for that provider; blank counts as missing.
    pub(crate) fn provider_text(&self, provider: Provider, key: &str) -> Option<&str> {
        let text = self.provider_metadata.as_ref()?.get_named(key)?.as_str()?;
        (self.came_from(provider) && !letters::is_blank(text)).then_some(text)
    }
}

impl PartKind {
    /// The name that stands for it in Elixir.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Image { .. } => "image",
            Self::File { .. } => "file",
            Self::Thinking(_) => "thinking",
            Self::RedactedThinking(_) => "redacted_thinking",
            Self::ProviderBlock { .. } => "provider_block",
        }
    }
}

/// The texts of content that has nothing else, such as a system prompt.
pub(crate) fn texts<'a>(content: &'a Content, out: &mut Writer<'_>) -> Vec<Cow<'a, str>> {
    match content {
        Content::None => Vec::new(),
        Content::Text(bytes) => out.text(bytes).into_iter().collect(),
        Content::Parts(parts) => parts
            .iter()
            .filter_map(|part| match &part.kind {
                PartKind::Text(bytes) => out.text(bytes),
                _ => None,
            })
            .collect(),
    }
}
