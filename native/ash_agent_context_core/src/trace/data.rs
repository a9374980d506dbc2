//! The data of the page: JSON with each text once, and with the texts that models saw where they differ.

use std::borrow::Cow;

use crate::context::Context;
use crate::log::call::ToolCall;
use crate::log::decision::Decision;
use crate::log::exchange::{Entry, Exchange};
use crate::log::iteration::Iteration;
use crate::log::media::Media;
use crate::log::message::{Message, Outcome, Output};
use crate::log::part::{Content, MediaPart, Part, PartKind, Source};
use crate::log::provider::Provider;
use crate::log::reply::{Finish, Reply};
use crate::prices::list::Prices;
use crate::prices::usage::Usage;
use crate::trace::cache::{self, CacheAccount};
use crate::trace::message_texts::{arguments, content_text, result_text};
use crate::trace::receipt::{NAMED, RECEIPTS};
use crate::trace::shown::{MaskedEntry, ShownConversation, Trace, Within};
use crate::trace::texts::Texts;
use crate::value::builder::{Json, JsonObject};
use crate::value::letters;
use crate::value::time::Time;
use crate::value::{json, wording, Value};
use crate::view::masks::Masks;
use crate::view::veil::Veil;
use crate::view::{with_prompt_texts, View};

/// The types of images that a browser shows and that cannot hold a program.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The most views of requests in a page.
const VIEWS: usize = 20;

/// Writes the data.
pub(super) struct DataWriter<'t, 'a> {
    trace: &'t Trace<'a>,
    prices: &'t Prices,
    /// The cache account of the conversation that is being written.
    account: CacheAccount,
    /// The pieces that its notes and summaries must not show.
    veil: Veil,
    pub texts: Texts,
}

impl<'t, 'a> DataWriter<'t, 'a> {
    pub fn new(trace: &'t Trace<'a>, prices: &'t Prices) -> Self {
        Self {
            trace,
            prices,
            account: CacheAccount::default(),
            veil: Veil::default(),
            texts: Texts::default(),
        }
    }

    pub fn conversations(&mut self, json: &mut Json) {
        let within = self.trace.within();
        for (shown, within) in self.trace.conversations.iter().zip(within) {
            json.object(|json| self.conversation(json, shown, within));
        }
    }

    fn text(&mut self, json: &mut JsonObject<'_>, key: &str, text: Cow<'_, str>) {
        self.texts.write(json.key(key), text);
    }

    /// Writes a value, masked, as JSON text.
    fn value(&mut self, json: &mut JsonObject<'_>, key: &str, value: &Value) {
        let value = json::write(&self.trace.mask_value(value));
        self.text(json, key, value.into());
    }

    fn conversation(
        &mut self,
        json: &mut JsonObject<'_>,
        shown: &ShownConversation<'a>,
        within: Option<Within<'a>>,
    ) {
        let context = shown.context;
        self.account = CacheAccount::since(0, context, Some(self.prices));
        self.veil = context.veil(self.trace.masks.as_deref());
        json.text("name", shown.name).text("id", context.id());
        json.field("active", &shown.is_active);
        json.field("created", &millis(context.created_at()));
        json.field("updated", &millis(context.updated_at()));
        json.given("within", within.map(|of| (of.conversation, of.call)));
        let origin = shown.origin;
        let origin = origin.and_then(|at| Some((at, self.trace.conversations.get(at)?)));
        let shared = origin.map_or(0, |(_, of)| count_shared(context, of.context));
        json.given("origin", origin.map(|(at, _)| (at, shared)));
        if let Some(system) = context.system() {
            let rendering = self.trace.rendering().message(system);
            let system = rendering.as_ref().unwrap_or(system);
            json.key("system")
                .object(|json| self.content(json, &system.content));
        }
        let own = context.iterations().skip(shared);
        json.objects("iterations", own, |json, of| self.iteration(json, of));
        self.requests(json, context);
        self.views(json, context);
    }

    /// Writes the fields of requests besides their messages, each time they change.
    fn requests(&mut self, json: &mut JsonObject<'_>, context: &Context) {
        let mut known = [None, None];
        let mut changed = Vec::new();
        for iteration in context.iterations() {
            let noted = context.request_note(iteration);
            let since = noted.map(|noted| noted.map(|(since, _)| since));
            if noted.iter().any(Option::is_some) && since != known {
                known = since;
                changed.push((iteration.number, noted));
            }
        }
        json.objects("requests", changed, |json, (number, noted)| {
            json.field("since", &number);
            for (key, noted) in ["fields", "tools"].into_iter().zip(noted) {
                if let Some((_, value)) = noted {
                    self.value(json, key, value);
                }
            }
        });
    }

    fn iteration(&mut self, json: &mut JsonObject<'_>, iteration: &Iteration) {
        json.field("number", &iteration.number);
        json.field("turn", &iteration.turn);
        json.field("from", &millis(iteration.started_at));
        json.given("to", iteration.completed_at.map(millis));
        let failures = self.trace.failures(iteration);
        if !failures.is_empty() {
            json.objects("failures", failures.iter(), |json, failure| {
                json.field("at", &millis(failure.at));
                json.text("kind", failure.kind.name());
                json.given("count", Some(failure.count).filter(|count| *count > 1));
                self.text(json, "text", failure.words().into());
            });
        }
        json.objects("says", iteration.entries(), |json, entry| {
            self.entry(json, iteration, entry);
        });
    }

    fn entry(&mut self, json: &mut JsonObject<'_>, iteration: &Iteration, entry: &Entry) {
        let masked = MaskedEntry::new(entry, self.trace.rendering());
        let message = masked.message();
        json.text("role", message.role.name());
        json.field("at", &entry.position);
        self.content(json, &message.content);
        if let Some(reply) = &message.reply {
            self.reply(json, reply);
            let times = reply.requested_at.zip(reply.received_at);
            json.given("asked", times.map(span));
            json.given("first", reply.first_chunk_at.map(millis));
        }
        if let Some(Usage {
            input,
            output,
            cached,
            written,
            reasoning,
            ..
        }) = entry.usage.as_deref().map(|reported| reported.sum)
        {
            json.object("usage", |json| {
                for (key, count) in [
                    ("input", input),
                    ("output", output),
                    ("cached", cached),
                    ("written", written),
                    ("reasoning", reasoning),
                ] {
                    json.given(key, Some(count).filter(|count| *count > 0));
                }
            });
        }
        if let Ok(Some(cost)) = self.prices.cost(entry, None, iteration.started_at) {
            json.field("cost", &cost.total());
        }
        if let Some(row) = self.account.find(iteration, entry) {
            json.object("cache", |json| {
                json.field("predicted", &row.predicted);
                json.field("read", &row.usage.cached);
                json.text("verdict", row.outlook.name());
                json.given("line", cache::line(row));
                json.given("avoidable", row.avoidable.filter(|cost| *cost > 0));
            });
        }
        if let Some(exchange) = masked.exchange() {
            let calls = message.calls.iter().enumerate();
            json.objects("calls", calls, |json, (slot, call)| {
                self.call(json, call, exchange, slot);
            });
        }
    }

    fn reply(&mut self, json: &mut JsonObject<'_>, reply: &Reply) {
        json.given("provider", reply.provider.map(Provider::name));
        json.given("model", reply.model.as_deref());
        json.given("finish", reply.finish.map(Finish::name));
        if let Some(reason) = &reply.interrupted {
            self.text(json, "interrupted", wording::reason(reason).into());
        }
        if let Some(details) = &reply.details {
            let details = json::to_string(&json::AsObject(details));
            self.text(json, "details", details.into());
        }
    }

    fn call(
        &mut self,
        json: &mut JsonObject<'_>,
        call: &ToolCall,
        exchange: &Exchange,
        slot: usize,
    ) {
        json.text("id", &call.id).text("name", call.name.as_str());
        if !call.kind.is_function() {
            json.text("kind", call.kind.name());
        }
        self.text(json, "arguments", arguments(call));
        json.text("status", exchange.status(slot).name());
        if let Some(decision) = exchange.decision(slot) {
            json.object("decision", |json| self.decision(json, decision));
        }
        if exchange.decisions.is_asked(slot) {
            json.field("was_asked", &true);
        }
        if exchange.decisions.is_question(slot) {
            json.field("question", &true);
        }
        if let Some(asked) = exchange.decisions.asked_arguments(slot) {
            self.value(json, "asked", asked);
        }
        if let Some(outcome) = exchange.slot(slot) {
            json.given("ran", outcome.ran.map(span));
            self.late(json, outcome);
            json.given("error", outcome.error_type.as_deref());
            json.object("result", |json| self.result(json, outcome));
        }
    }

    /// Writes what a call waits for, or did, and how its result came.
    fn late(&mut self, json: &mut JsonObject<'_>, outcome: &Outcome) {
        if let Some(wait) = outcome.wait() {
            let words = wording::reason(&self.trace.mask_value(&wait.what));
            json.object("waiting", |json| {
                if wait.what != Value::Nil {
                    self.text(json, "for", words.into());
                }
                json.given("until", wait.deadline.map(millis));
                if let Some(question) = &wait.question {
                    self.value(json, "question", question);
                }
            });
        }
        if let Some(arrived) = outcome.arrived() {
            let words = wording::reason(&self.trace.mask_value(&arrived.from));
            json.object("arrived", |json| {
                json.field("at", &millis(arrived.at));
                if arrived.from != Value::Nil {
                    self.text(json, "from", words.into());
                }
                json.given("awaited_by", arrived.awaited_by.as_deref());
            });
        }
    }

    fn decision(&mut self, json: &mut JsonObject<'_>, decision: &Decision) {
        let words = |value: &Value| wording::reason(&self.trace.mask_value(value));
        let (by, reason) = (words(&decision.by), words(&decision.reason));
        json.field("approved", &decision.approved);
        if decision.answered {
            json.field("answered", &true);
        }
        json.field("at", &millis(decision.at));
        if decision.by != Value::Nil {
            self.text(json, "by", by.into());
        }
        if decision.reason != Value::Nil {
            self.text(json, "reason", reason.into());
        }
        if let Some(arguments) = &decision.arguments {
            self.value(json, "arguments", arguments);
        }
        if let Some(edited) = &decision.edited {
            self.value(json, "edited", edited);
        }
    }

    fn result(&mut self, json: &mut JsonObject<'_>, outcome: &Outcome) {
        match &outcome.output {
            Output::Parts(parts) => self.parts(json, parts),
            Output::Value(_) => self.text(json, "text", outcome.words()),
        }
    }

    fn content(&mut self, json: &mut JsonObject<'_>, content: &Content) {
        match content {
            Content::None => {}
            Content::Text(text) => self.text(json, "text", letters::utf8(text)),
            Content::Parts(parts) => self.parts(json, parts),
        }
    }

    fn parts(&mut self, json: &mut JsonObject<'_>, parts: &[Part]) {
        json.objects("parts", parts, |json, part| self.part(json, part));
    }

    fn part(&mut self, json: &mut JsonObject<'_>, part: &Part) {
        json.text("type", part.kind.name());
        match &part.kind {
            PartKind::Text(text) | PartKind::Thinking(text) => {
                self.text(json, "text", letters::utf8(text));
            }
            PartKind::ProviderBlock { provider, data } => {
                json.text("provider", provider.name());
                self.text(json, "text", json::write(&Value::Map(data.clone())).into());
            }
            PartKind::RedactedThinking(_) => {}
            kind @ PartKind::Media(media) => self.media(json, media, Media::of(kind)),
        }
    }

    /// Writes images whole, and of other media only the description: a page is not an archive of files.
    fn media(&mut self, json: &mut JsonObject<'_>, media: &MediaPart, sent: Option<Media<'_>>) {
        let given = media.media_type.as_deref();
        let of = sent.as_ref().and_then(|sent| sent.type_words(given));
        for (key, text) in [
            ("name", media.filename.as_deref()),
            ("media", of.as_deref()),
        ] {
            if let Some(text) = text {
                self.text(json, key, text.into());
            }
        }
        match &media.source {
            Source::Data(data) => {
                let media_type = sent.as_ref().and_then(|sent| sent.media_type.as_deref());
                let media_type = media_type.unwrap_or_default();
                let is_image = IMAGES.contains(&media_type);
                if is_image && sent.as_ref().is_some_and(Media::is_image) {
                    json.text("shown", media_type);
                    self.text(json, "data", data.as_ref().into());
                }
                json.field("bytes", &(data.len() / 4 * 3));
            }
            Source::Url(url) if url.starts_with("data:") => {
                json.field("bytes", &(url.len() / 4 * 3));
            }
            Source::Url(url) => self.text(json, "url", url.as_ref().into()),
            Source::Stored { provider, id } => {
                json.text("provider", provider.name());
                self.text(json, "file", id.as_ref().into());
            }
        }
    }

    /// Writes the current view, and the newest views that requests were made from.
    fn views(&mut self, json: &mut JsonObject<'_>, context: &Context) {
        let asked = list_request_views(context);
        let masked = self.trace.mask(context);
        // The limit for results changes texts; views with the same limit share them.
        let mut shown = Vec::new();
        if let Some(view) = context.view() {
            json.object("view", |json| {
                self.view(json, context, view);
                self.trace.write_receipt(json, &masked.receipt(NAMED));
                shown.push(view.max_result_bytes);
                let cleared = asked.is_empty();
                json.object("seen", |json| self.write_seen(json, context, view, cleared));
            });
        } else {
            shown.push(None);
        }
        if asked.is_empty() {
            return;
        }
        let plain = View::default();
        let with_receipt = asked.len().saturating_sub(RECEIPTS);
        let asked = asked.into_iter().enumerate();
        json.objects("asked", asked, |json, (position, (first, last, view))| {
            let view = view.unwrap_or(&plain);
            let most = view.max_result_bytes;
            json.field("from", &first).field("to", &last);
            self.view(json, context, view);
            let receipt =
                (position >= with_receipt).then(|| masked.receipt_of_request(last, NAMED));
            if let Some(receipt) = receipt.flatten() {
                self.trace.write_receipt(json, &receipt);
            }
            match shown.iter().position(|known| *known == most) {
                Some(position) => json.field("as", &position),
                None => json.object("seen", |json| self.write_seen(json, context, view, false)),
            };
            shown.push(most);
        });
    }

    fn view(&mut self, json: &mut JsonObject<'_>, context: &Context, view: &View) {
        let rendering = self.trace.model_rendering(context, view, u64::MAX);
        json.objects("covers", view.covers(), |json, (first, cover)| {
            json.field("first", &first).field("last", &cover.last);
            if let Some(summary) = cover.replacement() {
                let shown = rendering.message(summary);
                let shown = shown.as_ref().unwrap_or(summary);
                let veiled = self.veil.message(shown);
                let shown = veiled.as_ref().unwrap_or(shown);
                json.object("summary", |json| self.content(json, &shown.content));
            }
            if let Some(verdict) = &cover.verdict {
                self.trace.write_verdict(json, verdict, &self.veil);
            }
        });
        if let Some(cleared) = view.cleared() {
            json.object("cleared", |json| {
                json.field("iteration", &cleared.iteration);
                json.field("calls", &cleared.calls);
                self.text(json, "text", cleared.placeholder.as_ref().into());
            });
        }
        json.given("most", view.max_result_bytes);
        json.given("masks", view.masks().map(Masks::count));
        self.trace.write_pins(json, view, &self.veil);
        self.trace.write_shortenings(json, view);
        let names: Vec<&str> = view
            .prompt_texts()
            .iter()
            .map(|(name, _)| &**name)
            .collect();
        json.field("blocks", &names);
        if !view.prompt_texts().is_empty() {
            let system = Message::system(with_prompt_texts(context.system(), view.prompt_texts()));
            let shown = rendering.message(&system);
            let shown = shown.as_ref().unwrap_or(&system);
            let veiled = self.veil.message(shown);
            let shown = veiled.as_ref().unwrap_or(shown);
            json.object("system", |json| self.content(json, &shown.content));
        }
    }

    /// Writes the texts that a model saw in other words, by the numbers of the iteration, the message and the call. Cleared
    /// results and covered iterations are written elsewhere. `cleared`: the view clears some results, which are left out here.
    fn write_seen(
        &mut self,
        json: &mut JsonObject<'_>,
        context: &Context,
        view: &View,
        cleared: bool,
    ) {
        let iterations = context.iterations();
        let entries = iterations.flat_map(|of| of.entries().map(move |entry| (of.number, entry)));
        for (number, entry) in entries {
            let mut rendering = self.trace.model_rendering(context, view, number);
            rendering = rendering.behind(entry.slots);
            if !cleared {
                rendering.cleared = 0;
            }
            let place = format!("{number}.{}", entry.position);
            let said = MaskedEntry::new(entry, self.trace.rendering());
            let seen = rendering.message(&entry.message);
            if let Some(seen) = seen.filter(|_| self.trace.masks.is_none()) {
                let texts = [&said.message().content, &seen.content].map(content_text);
                self.patch(json, &place, texts);
            }
            let exchange = entry.exchange.as_deref();
            let seen = exchange.and_then(|of| rendering.exchange(&entry.message.calls, of));
            let Some((said, seen)) = said.exchange().zip(seen) else {
                continue;
            };
            let slots = said.slots().zip(seen.slots()).enumerate();
            for (slot, pair) in slots.skip(rendering.cleared) {
                if let (Some(said), Some(seen)) = pair {
                    let texts = [said, seen].map(result_text);
                    self.patch(json, &format!("{place}.{slot}"), texts);
                }
            }
        }
    }

    /// Writes how one text becomes the other: how much of it stays at the start and at the end, in UTF-16 units, and the text
    /// between.
    fn patch(&mut self, json: &mut JsonObject<'_>, place: &str, [said, seen]: [Cow<'_, str>; 2]) {
        if said == seen {
            return;
        }
        let head = count_alike(said.chars(), seen.chars());
        let rest = |text: &'_ str| text.get(head..).unwrap_or_default().to_owned();
        let (said_rest, seen_rest) = (rest(&said), rest(&seen));
        let tail = count_alike(said_rest.chars().rev(), seen_rest.chars().rev());
        let units = |text: Option<&str>| text.unwrap_or_default().encode_utf16().count();
        let between = seen_rest.get(..seen_rest.len() - tail).unwrap_or_default();
        let kept_tail = units(said_rest.get(said_rest.len() - tail..));
        json.object(place, |json| {
            json.field("head", &units(said.get(..head)));
            json.field("tail", &kept_tail);
            self.text(json, "text", between.into());
        });
    }
}

/// Returns the bytes of the letters that two texts share from where they are read.
fn count_alike(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    let shared = one.zip(other).take_while(|(one, other)| one == other);
    shared.map(|(letter, _)| letter.len_utf8()).sum()
}

/// Returns the newest views that requests were made from, each with the numbers of its first and last iteration.
fn list_request_views(context: &Context) -> Vec<(u64, u64, Option<&View>)> {
    let mut found = Vec::new();
    let mut known = None;
    for iteration in context.iterations() {
        let Some((since, view)) = context.request_view(iteration) else {
            continue;
        };
        match found.last_mut() {
            Some((_, last, _)) if known == Some(since) => *last = iteration.number,
            _ => found.push((iteration.number, iteration.number, view)),
        }
        known = Some(since);
    }
    // If all were made from the log as it is, there is nothing to choose.
    if found.iter().all(|(_, _, view)| view.is_none()) && context.view().is_none() {
        return Vec::new();
    }
    found.split_off(found.len().saturating_sub(VIEWS))
}

/// Returns how many iterations two conversations share from the start.
fn count_shared(context: &Context, origin: &Context) -> usize {
    if context.first_number() != origin.first_number() {
        return 0;
    }
    let last = context.last_common(origin);
    last.map_or(0, |last| {
        usize::try_from(last.saturating_add(1) - context.first_number()).unwrap_or(0)
    })
}

fn span((start, end): (Time, Time)) -> [i64; 2] {
    [millis(start), millis(end)]
}

fn millis(at: Time) -> i64 {
    at.timestamp_millis()
}
