//! Writes the elements of a message, and reports the changes that are made on the way.

use std::borrow::Cow;

use crate::log::call::ToolCall;
use crate::log::kind::CallKind;
use crate::log::media::{words_of, Media};
use crate::log::message::{Outcome, Output};
use crate::log::part::{Content, Part, PartKind};
use crate::log::piece::ByHand;
use crate::log::provider::Provider;
use crate::provider::accepts::{sent_id, sent_name};
use crate::provider::block_text;
use crate::provider::facts::Rule;
use crate::provider::frame::{self, Escapes};
use crate::provider::options::{Options, Thinking};
use crate::value::builder::Json;
use crate::value::json::{AsJson, AsObject};
use crate::value::letters;
use crate::value::numbers;
use crate::value::wording;
use crate::value::{Map, Value};
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

/// The elements of one message that are being written.
pub(crate) struct Writer<'o> {
    pub json: Json,
    pub options: &'o Options<'o>,
    /// Where it began to write.
    start: usize,
    mark: Option<usize>,
    by_hand: Vec<ByHand>,
    changes: Option<Vec<Change>>,
    /// Which frames of late results are escaped in what is written.
    pub escapes: Escapes,
    /// The call whose result is written, as its files are named after it, and how many of these there were.
    pub result: Option<(String, usize)>,
}

impl<'o> Writer<'o> {
    pub fn new(options: &'o Options<'o>) -> Self {
        Self {
            json: Json::default(),
            options,
            start: 0,
            mark: None,
            by_hand: Vec::new(),
            changes: None,
            escapes: Escapes::Nothing,
            result: None,
        }
    }

    /// Returns a writer that continues after existing elements.
    pub fn behind(elements: Vec<u8>, options: &'o Options<'o>) -> Self {
        Self {
            start: elements.len(),
            json: Json(elements),
            ..Self::new(options)
        }
    }

    /// Returns the elements, the mark and the marks that were set by hand. Numbers that no provider takes are texts.
    pub fn into_parts(mut self) -> (Vec<u8>, Option<usize>, Vec<ByHand>) {
        let quoted = numbers::quote(&mut self.json.0, self.start);
        let marks = self.by_hand.iter_mut().map(|mark| &mut mark.at);
        for mark in marks.chain(&mut self.mark) {
            *mark += 2 * quoted.iter().filter(|end| **end <= *mark).count();
        }
        let escaped = frame::escape(&mut self.json.0, self.start, self.escapes);
        let marks = self.by_hand.iter_mut().map(|mark| &mut mark.at);
        for mark in marks.chain(&mut self.mark) {
            let before = escaped.iter().filter(|place| **place < *mark).count();
            *mark += (frame::ESCAPED.len() - 1) * before;
        }
        (self.json.0, self.mark, self.by_hand)
    }

    /// Returns a writer that remembers changes.
    pub fn reporting(options: &'o Options<'o>) -> Self {
        Self {
            changes: Some(Vec::new()),
            ..Self::new(options)
        }
    }

    pub fn changes(mut self) -> Vec<Change> {
        for place in numbers::find(&self.json.0) {
            let number = letters::utf8(self.json.0.get(place).unwrap_or_default()).into_owned();
            let text = format!("\"{number}\"");
            self.report_change(ChangeKind::NumberToText, number, Some(&text));
        }
        if !frame::find_false(&self.json.0, self.escapes).is_empty() {
            self.report_change(
                ChangeKind::EscapedFrame,
                "late_result",
                Some(frame::ESCAPED),
            );
        }
        self.changes.unwrap_or_default()
    }

    /// Reports a change, if they are remembered.
    pub fn report_change(&mut self, what: ChangeKind, from: impl ToString, to: Option<&str>) {
        if let Some(changes) = &mut self.changes {
            changes.push(Change {
                what,
                from: from.to_string(),
                to: to.map(str::to_owned),
            });
        }
    }

    /// Marks a place for a cache breakpoint inside the object that was written last.
    pub fn mark_inside(&mut self) {
        self.mark = self.json.0.len().checked_sub(1);
    }

    /// Marks a place for a cache breakpoint after the bytes written last.
    pub fn mark_behind(&mut self) {
        self.mark = Some(self.json.0.len());
    }

    /// Marks, where the last mark is, what cannot have one after it.
    pub fn hint_before(&mut self, part: &Part) {
        let last = self.by_hand.last().map(|mark| mark.at);
        let at = self.mark.filter(|at| Some(*at) != last);
        let mark = part.mark().zip(at);
        self.by_hand
            .extend(mark.map(|(ttl, at)| ByHand { at, ttl }));
    }

    /// Returns what tells a file from others of its name: its call, or its place if that is needed.
    pub fn file_number(&mut self, part: &Part) -> Option<String> {
        let Some((call, files)) = &mut self.result else {
            let number = part.number.as_ref().filter(|number| number.is_needed);
            return number.map(|number| number.place.to_string());
        };
        *files += 1;
        Some(format!("{call}-{files}"))
    }

    /// Writes an element of the list, as it came.
    pub fn element(&mut self, element: &Map) {
        self.json.raw(",");
        self.json.bare_object(|written| {
            for (key, value) in element.iter() {
                if let Some(key) = key.as_name() {
                    written.field(key, &AsJson(value));
                }
            }
        });
    }

    /// If the part has a cache breakpoint, marks its place inside the object that was written last.
    pub fn hint_inside(&mut self, part: &Part) {
        let at = self.json.0.len().checked_sub(1);
        let mark = part.mark().zip(at);
        self.by_hand
            .extend(mark.map(|(ttl, at)| ByHand { at, ttl }));
    }

    /// If the part has a cache breakpoint, marks its place after the bytes written last.
    pub fn hint_behind(&mut self, part: &Part) {
        let at = self.json.0.len();
        let mark = part.mark().map(|ttl| ByHand { at, ttl });
        self.by_hand.extend(mark);
    }

    /// Returns the part of a result with the last cache breakpoint in it, which the whole result then gets.
    pub fn find_marked<'a>(&self, outcome: &'a Outcome) -> Option<&'a Part> {
        let mut parts = outcome.output.parts().iter();
        parts.rfind(|part| part.mark().is_some())
    }

    /// Takes back everything written from `start` on.
    pub fn cut(&mut self, start: usize) {
        self.json.0.truncate(start);
        self.by_hand.retain(|mark| mark.at < start);
    }

    /// Writes a message with a list of blocks, or nothing if `fill` writes no block.
    pub fn blocks(&mut self, is_model: bool, fill: impl FnOnce(&mut Self)) {
        self.wrap(open(is_model), CLOSE, fill);
    }

    /// Writes between a beginning and an end, or nothing if `fill` writes nothing.
    pub fn wrap(&mut self, open: &str, close: &str, fill: impl FnOnce(&mut Self)) {
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

    /// Returns the JSON text that `fill` writes, to be put into something else afterwards.
    pub fn apart(&mut self, fill: impl FnOnce(&mut Self)) -> String {
        let (json, mark) = (std::mem::take(&mut self.json), self.mark);
        let by_hand = self.by_hand.len();
        fill(self);
        self.mark = mark;
        self.by_hand.truncate(by_hand);
        let written = std::mem::replace(&mut self.json, json);
        String::from_utf8(written.0).unwrap_or_default()
    }

    /// Returns a text as UTF-8, unless it is blank.
    pub fn text<'a>(&mut self, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
        let text = self.utf8(bytes);
        if letters::is_blank(&text) {
            self.report_change(ChangeKind::DroppedBlankText, text, None);
            return None;
        }
        Some(text)
    }

    fn utf8<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, str> {
        let text = letters::utf8(bytes);
        if let Cow::Owned(to) = &text {
            self.report_change(
                ChangeKind::ReplacedBytes,
                format_args!("{bytes:?}"),
                Some(to),
            );
        }
        text
    }

    /// Writes content that is one text and not blank. Returns whether it is.
    pub fn say(&mut self, content: &Content, write: impl FnOnce(&str, &mut Self)) -> bool {
        let Content::Text(bytes) = content else {
            return false;
        };
        let text = self.text(bytes);
        text.map(|text| write(&text, self)).is_some()
    }

    /// Returns the id of a call, in a form that the provider takes.
    pub fn id<'a>(&mut self, call: &'a ToolCall) -> Cow<'a, str> {
        if call.aliases.kept_by == Some(self.options.provider) {
            return Cow::Borrowed(&call.id);
        }
        let sent = sent_id(self.options.provider, call);
        if *sent != *call.id {
            self.report_change(ChangeKind::RenamedId, &call.id, Some(&sent));
        }
        sent
    }

    /// Returns the name of a tool, in a form that the provider takes.
    pub fn name<'a>(&mut self, call: &'a ToolCall) -> Cow<'a, str> {
        let name = sent_name(self.options.provider, call.name.as_str());
        if let Cow::Owned(to) = &name {
            self.report_change(ChangeKind::RenamedTool, call.name.as_str(), Some(to));
        }
        name
    }

    /// Returns any call as a call of a function, which every provider knows: its id, its name and its arguments as the JSON text
    /// of an object.
    pub fn function<'a>(&mut self, call: &'a ToolCall) -> [Cow<'a, str>; 3] {
        if !call.kind.is_function() {
            let kind = call.kind.name();
            let to = CallKind::Function.name();
            self.report_change(ChangeKind::CallToFunction, kind, Some(to));
        }
        [self.id(call), self.name(call), self.arguments(call)]
    }

    /// Returns the text that a custom tool is called with.
    pub fn input<'a>(&mut self, call: &'a ToolCall) -> Cow<'a, str> {
        let Value::Binary(bytes) = &call.arguments.value else {
            return Cow::Owned(crate::value::json::write(&call.arguments.value));
        };
        self.utf8(bytes)
    }

    /// Returns the arguments of a call as the JSON text of an object.
    pub fn arguments<'a>(&mut self, call: &'a ToolCall) -> Cow<'a, str> {
        if let Some(json) = &call.arguments.json {
            return Cow::Borrowed(json);
        }
        let json = crate::value::json::write(&call.arguments.value);
        if json.starts_with('{') {
            return Cow::Owned(json);
        }
        let key = match call.kind {
            CallKind::Custom => "input",
            _ => "arguments",
        };
        let wrapped = format!("{{\"{key}\":{json}}}");
        self.report_change(ChangeKind::WrappedArguments, json, Some(&wrapped));
        Cow::Owned(wrapped)
    }

    /// Returns the form in which a thinking part is sent.
    pub fn thinking<'a>(&mut self, part: &'a Part, signed: bool) -> Thought<'a> {
        let Some(bytes) = part.kind.thoughts() else {
            return Thought::Nothing;
        };
        let text = letters::utf8(bytes);
        let signature = part.provider_text("signature");
        if part.is_of(self.options) && (signature.is_some() || !signed) {
            return Thought::Own { text, signature };
        }
        self.turn_thinking_into_text(part)
    }

    /// Returns the form in which thinking, or a block in its place, is sent. `is_own`: it goes back as it came.
    pub fn place_thinking<'a>(&mut self, is_own: bool, part: &'a Part) -> Thought<'a> {
        if part.withheld {
            let text = part.kind.thoughts().map(|bytes| letters::utf8(bytes));
            self.report_change(ChangeKind::DroppedThinking, text.unwrap_or_default(), None);
            return Thought::Nothing;
        }
        match &part.kind {
            PartKind::RedactedThinking(data) if is_own => Thought::Redacted(data),
            PartKind::RedactedThinking(_) => {
                self.drop_part(part);
                Thought::Nothing
            }
            _ if is_own => self.thinking(part, !self.options.takes_unsigned()),
            _ => self.turn_thinking_into_text(part),
        }
    }

    /// Returns the form of a thinking part that cannot go back as it came.
    pub fn turn_thinking_into_text<'a>(&mut self, part: &'a Part) -> Thought<'a> {
        let Some(bytes) = part.kind.thoughts() else {
            return Thought::Nothing;
        };
        let text = letters::utf8(bytes);
        if self.options.thinking == Thinking::Text && !letters::is_blank(&text) {
            self.report_change(ChangeKind::ThinkingToText, &text, Some(&text));
            return Thought::Text(text);
        }
        self.report_change(ChangeKind::DroppedThinking, text, None);
        Thought::Nothing
    }

    /// Returns whether anything is sent of a part that does not go back as thinking.
    pub fn says(&self, part: &Part) -> bool {
        match &part.kind {
            PartKind::Text(bytes) => !letters::is_blank(&letters::utf8(bytes)),
            PartKind::Thinking(_) if part.withheld => false,
            PartKind::Thinking(bytes) => {
                self.options.thinking == Thinking::Text && !letters::is_blank(&letters::utf8(bytes))
            }
            PartKind::ProviderBlock { provider, data } => {
                let is_own = *provider == self.options.provider;
                (is_own && !part.withheld) || (!is_own && block_text::words(data).is_some())
            }
            PartKind::RedactedThinking(_) => false,
            PartKind::Media(_) => true,
        }
    }

    /// Reports a part that this provider cannot have.
    pub fn drop_part(&mut self, part: &Part) {
        self.report_change(ChangeKind::DroppedPart, part.kind.name(), None);
    }

    /// Returns the words for an image or a file where only text can be.
    pub fn media_words(&mut self, part: &Part) -> String {
        self.words(part).unwrap_or_default()
    }

    /// Reports media whose bytes are of another type than was given.
    pub fn report_type(&mut self, part: &Part, media: &Media<'_>) {
        if media.is_corrected {
            let given = part.kind.media().and_then(|of| of.media_type.as_deref());
            let given = given.unwrap_or_default().to_owned();
            self.report_change(
                ChangeKind::CorrectedType,
                given,
                media.media_type.as_deref(),
            );
        }
    }

    /// Reports a part that this provider gets as text.
    pub fn reword_part(&mut self, part: &Part, words: &str) {
        self.report_change(ChangeKind::PartToText, part.kind.name(), Some(words));
    }

    /// Returns the words of a part where only text can be.
    pub fn words(&mut self, part: &Part) -> Option<String> {
        let words = match &part.kind {
            PartKind::ProviderBlock { data, .. } => block_text::words(data),
            kind => words_of(kind),
        };
        match &words {
            Some(words) => self.reword_part(part, words),
            None => self.drop_part(part),
        }
        words
    }

    /// Returns the form of a provider's block: its own provider gets it back once, any other gets its words.
    pub fn block<'a>(&mut self, part: &'a Part) -> BlockForm<'a> {
        let Some((provider, data)) = part.kind.block() else {
            return BlockForm::Nothing;
        };
        match provider == self.options.provider {
            true if !part.withheld => BlockForm::Own(data),
            true => {
                self.drop_part(part);
                BlockForm::Nothing
            }
            false => self
                .words(part)
                .map_or(BlockForm::Nothing, BlockForm::Words),
        }
    }

    /// Returns the text of a result.
    pub fn result_text<'a>(&mut self, outcome: &'a Outcome) -> Cow<'a, str> {
        let text = letters::utf8(outcome.text().unwrap_or_default());
        if letters::is_blank(&text) {
            return Cow::Borrowed(wording::NO_OUTPUT);
        }
        text
    }

    /// Returns the text of a result for a provider without an error mark.
    pub fn word_result<'a>(&mut self, outcome: &'a Outcome) -> Cow<'a, str> {
        let text = self.result_text(outcome);
        if !outcome.is_error() {
            return text;
        }
        Cow::Owned(format!("{FAILED} {text}"))
    }

    /// Returns a result as text, and its media, for providers that have media in user messages only. `is_worded`: the provider
    /// has no error mark.
    pub fn split_result<'a>(
        &mut self,
        outcome: &'a Outcome,
        is_worded: bool,
        sends: impl Fn(&Media<'_>) -> bool,
    ) -> (Cow<'a, str>, Vec<&'a Part>) {
        let Output::Parts(parts) = &outcome.output else {
            let text = match is_worded {
                true => self.word_result(outcome),
                false => self.result_text(outcome),
            };
            return (text, Vec::new());
        };
        let (mut texts, mut media) = (Vec::new(), Vec::new());
        for part in &**parts {
            match (&part.kind, Media::of(&part.kind)) {
                (PartKind::Text(bytes), _) => texts.extend(self.text(bytes)),
                (_, Some(found)) if sends(&found) => {
                    self.report_change(ChangeKind::MovedPart, part.kind.name(), None);
                    media.push(part);
                }
                (_, Some(found)) => {
                    self.report_type(part, &found);
                    let words = found.words();
                    self.reword_part(part, &words);
                    texts.push(Cow::Owned(words));
                }
                (_, None) => texts.extend(self.words(part).map(Cow::Owned)),
            }
        }
        let text = match (texts.is_empty(), media.is_empty()) {
            (false, _) => Cow::Owned(texts.join("\n")),
            (true, false) => Cow::Borrowed(SEE_BELOW),
            (true, true) => Cow::Borrowed(wording::NO_OUTPUT),
        };
        match is_worded && outcome.is_error() {
            true => (Cow::Owned(format!("{FAILED} {text}")), media),
            false => (text, media),
        }
    }
}

/// Stands before a failed result where the provider has no mark for it.
const FAILED: &str = "Error:";

/// The text of a result whose media follow all results.
const SEE_BELOW: &str = "See the attachments in the next message.";

/// The form in which a provider's block is sent.
pub(crate) enum BlockForm<'a> {
    /// It goes back as it came.
    Own(&'a Map),
    /// It becomes text.
    Words(String),
    /// It is left out.
    Nothing,
}

/// The form in which a thinking part is sent.
pub(crate) enum Thought<'a> {
    /// It goes back to its provider.
    Own {
        text: Cow<'a, str>,
        signature: Option<&'a str>,
    },
    /// It goes back to its provider in encrypted form.
    Redacted(&'a str),
    /// It becomes text.
    Text(Cow<'a, str>),
    /// It is left out.
    Nothing,
}

fn is_of(metadata: Option<&Map>, options: &Options<'_>) -> bool {
    let model = metadata.and_then(|map| map.get_named("model")?.as_name());
    Provider::of(metadata) == Some(options.provider)
        && model.is_none_or(|model| options.model.is_none_or(|asked| asked == model))
}

impl Part {
    /// Returns whether the part came from this provider and, as far as is known, this model.
    pub(crate) fn is_of(&self, options: &Options<'_>) -> bool {
        is_of(self.provider_metadata.as_ref(), options)
    }

    /// Returns a value in the part's provider metadata.
    pub(crate) fn noted(&self, key: &str) -> Option<&Value> {
        self.provider_metadata.as_ref()?.get_named(key)
    }

    /// Returns whether `true` stands in the part's provider metadata.
    pub(crate) fn is_noted(&self, key: &str) -> bool {
        self.noted(key) == Some(&Value::Bool(true))
    }

    /// Returns a list in the part's provider metadata, for that provider.
    pub(crate) fn provider_list(&self, options: &Options<'_>, key: &str) -> Option<&Value> {
        let value = self.noted(key)?;
        let is_filled = matches!(value, Value::List(items) if !items.is_empty());
        (is_filled && self.is_of(options)).then_some(value)
    }

    /// Returns a text in the part's provider metadata; blank counts as missing.
    pub(crate) fn provider_text(&self, key: &str) -> Option<&str> {
        let text = self.noted(key)?.as_str()?;
        (!letters::is_blank(text)).then_some(text)
    }
}

impl ToolCall {
    /// Returns whether the call came from this provider.
    pub(crate) fn came_from(&self, provider: Provider) -> bool {
        Provider::of(self.provider_metadata.as_ref()) == Some(provider)
    }

    /// Returns whether the call came from this provider and, as far as is known, this model.
    pub(crate) fn is_of(&self, options: &Options<'_>) -> bool {
        is_of(self.provider_metadata.as_ref(), options)
    }

    /// Returns an object in the call's provider metadata, for that provider.
    pub(crate) fn provider_map(&self, provider: Provider, key: &str) -> Option<&Map> {
        match self.provider_metadata.as_ref()?.get_named(key)? {
            Value::Map(map) if self.came_from(provider) && !map.is_empty() => Some(map),
            _ => None,
        }
    }

    /// Returns a text in the call's provider metadata, for that provider; blank counts as missing.
    pub(crate) fn provider_text(&self, provider: Provider, key: &str) -> Option<&str> {
        let text = self.provider_metadata.as_ref()?.get_named(key)?.as_str()?;
        (self.came_from(provider) && !letters::is_blank(text)).then_some(text)
    }
}

/// Returns whether a part is thinking that its own provider takes back: it is signed, unless that is not needed, or in that provider's
/// form.
pub fn is_own_thinking(part: &Part, out: &Writer<'_>) -> bool {
    let is_whole = match &part.kind {
        PartKind::Thinking(_) => {
            out.options.takes_unsigned() || part.provider_text("signature").is_some()
        }
        kind => kind.is_thinking(),
    };
    is_whole && !part.withheld && part.is_of(out.options)
}

/// Returns the texts of content that can only be texts, such as a system prompt.
pub(crate) fn texts<'a>(content: &'a Content, out: &mut Writer<'_>) -> Vec<Cow<'a, str>> {
    match content {
        Content::Text(bytes) => out.text(bytes).into_iter().collect(),
        content => {
            let text = |part: &'a Part| match &part.kind {
                PartKind::Text(bytes) => out.text(bytes),
                _ => out.words(part).map(Cow::Owned),
            };
            content.parts().iter().filter_map(text).collect()
        }
    }
}

/// The functions by which a room writes parts.
pub(crate) struct Parts {
    /// Writes a text.
    pub text: fn(&str, &mut Writer<'_>),
    /// Marks a part on which the application set a cache breakpoint.
    pub hint: fn(&Part, &mut Writer<'_>),
    /// Writes a block of the provider's own, as it came.
    pub own: fn(&Map, &mut Writer<'_>),
    /// Returns whether the provider takes a medium. Others become words.
    pub takes: fn(&Media<'_>) -> bool,
    /// Writes media that it takes.
    pub media: fn(&Part, &Media<'_>, &mut Writer<'_>),
}

/// Writes a provider's own block as an element.
pub(crate) fn own_element(data: &Map, out: &mut Writer<'_>) {
    out.json.element(&AsObject(data));
}

/// Is the `hint` of providers without such marks.
pub(crate) fn mark_nothing(_part: &Part, _out: &mut Writer<'_>) {}

impl Parts {
    /// Writes content.
    pub fn content(&self, content: &Content, out: &mut Writer<'_>) {
        out.say(content, self.text);
        self.all(content.parts(), out);
    }

    pub fn all<'p>(&self, parts: impl IntoIterator<Item = &'p Part>, out: &mut Writer<'_>) {
        for part in parts {
            self.one(part, out);
        }
    }

    pub fn one(&self, part: &Part, out: &mut Writer<'_>) {
        match (&part.kind, Media::of(&part.kind)) {
            (PartKind::Text(bytes), _) => {
                if let Some(text) = out.text(bytes) {
                    (self.text)(&text, out);
                    (self.hint)(part, out);
                }
            }
            (PartKind::ProviderBlock { .. }, _) => match out.block(part) {
                BlockForm::Own(data) => (self.own)(data, out),
                BlockForm::Words(words) => (self.text)(&words, out),
                BlockForm::Nothing => {}
            },
            (_, Some(media)) => {
                out.report_type(part, &media);
                match (self.takes)(&media) {
                    true => (self.media)(part, &media, out),
                    false => (self.text)(&out.media_words(part), out),
                }
                (self.hint)(part, out);
            }
            (_, None) => out.drop_part(part),
        }
    }

    /// Writes the parts of a result. `is_worded`: the provider has no error mark.
    pub fn result(&self, outcome: &Outcome, is_worded: bool, out: &mut Writer<'_>) {
        let is_text = out.options.provider.facts().has(Rule::FailuresAreText);
        if outcome.is_error() && is_worded {
            (self.text)(FAILED, out);
        }
        for part in outcome.output.parts() {
            match outcome.is_error() && is_text {
                true => self.one_in_words(part, out),
                false => self.one(part, out),
            }
        }
    }

    /// Writes a part in a message that can have no media. Words stand for them.
    pub fn one_in_words(&self, part: &Part, out: &mut Writer<'_>) {
        match Media::of(&part.kind) {
            Some(_) => {
                let words = out.media_words(part);
                (self.text)(&words, out);
            }
            None => self.one(part, out),
        }
    }
}
