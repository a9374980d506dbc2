//! The stored form of views.

use std::sync::Arc;

use crate::context::inputs::digest_masks;
use crate::context::Context;
use crate::error::{index, Error};
use crate::log::message::{Message, Role};
use crate::storage::read::read_message_as;
use crate::storage::table::*;
use crate::storage::take::{at, fields, read_name, wrong, DocumentFields, Form};
use crate::storage::trust::Trust;
use crate::storage::write::message;
use crate::value::builder::{Json, JsonObject};
use crate::value::node::Node;
use crate::value::{Map, Size, Value};
use crate::view::cover::{Cover, Unmasked};
use crate::view::masks::Masks;
use crate::view::pins::{Pin, Pins};
use crate::view::shortening::{Pressure, Shortening, ShorteningKind};
use crate::view::verdict::Verdict;
use crate::view::{Cleared, View};

pub(crate) fn write(json: &mut JsonObject<'_>, view: &View) {
    Of::write(&StoredView::of(view, view.masks()), "view", json);
}

/// Writes the view that an iteration's request was made from; `None` is the log as it is.
pub(crate) fn write_asked(json: &mut JsonObject<'_>, view: Option<&View>) {
    match view {
        Some(view) => Of::write(&StoredView::of(view, None), "view", json),
        None => json.key("view").value(&()),
    }
}

/// Writes the masks of a request.
pub(crate) fn write_masks(json: &mut JsonObject<'_>, key: &'static str, masks: &Masks) {
    json.key(key).list(masks.iter(), |json, (of, text)| {
        write_pair(json, ["pattern", "replacement"], &(of.into(), text.into()));
    });
}

/// Reads the masks of a request.
pub(crate) fn read_masks(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
) -> Result<Option<Arc<Masks>>, Error> {
    let masks = Each::<MaskForm, false>::read(fields, key)?;
    at(key, make_masks(masks, None))
}

/// Returns how much of a view there is to walk and to write.
pub(crate) fn size(view: &View) -> Size {
    let summary = |cover: &Cover| cover.size().plus(Size::new(4, 40));
    let covers = view
        .covers()
        .fold(Size::new(10, 0), |sum, (_, one)| sum.plus(summary(one)));
    view.prompt_texts().iter().fold(covers, |sum, (_, block)| {
        sum.plus(Size::new(4, block.len()))
    })
}

/// The stored form of a view. Its covers are checked against the conversation that gets it.
pub(crate) struct StoredView {
    covers: Vec<(u64, Cover)>,
    cleared: Option<Arc<Cleared>>,
    max_result_bytes: Option<usize>,
    recall: bool,
    index: usize,
    user_bytes: Option<usize>,
    pins: Option<Arc<Pins>>,
    shortenings: Arc<[Shortening]>,
    /// The same with steps of kinds that earlier releases would refuse, if there are any.
    steps: Arc<[Shortening]>,
    masks: Vec<(Box<str>, Box<str>)>,
    /// The digest of the masks under which the covers were made.
    masks_digest: Option<Box<str>>,
    blocks: Arc<[(Box<str>, Box<str>)]>,
    extra: Option<Map>,
}

stored!(StoredView, "a view" {
    covers: "covers" Each<CoverForm, true>,
    cleared: "cleared" Given<Shared<Of>>,
    max_result_bytes: "max_result_bytes" Given<Amount>,
    recall: "recall" Mark,
    index: "index" AmountOrZero<false>,
    user_bytes: "user_bytes" Given<Amount>,
    pins: "pins" PinsForm,
    shortenings: "shortenings" Each<Of, false>,
    steps: "steps" Each<Of, false>,
    masks: "masks" Each<MaskForm, false>,
    masks_digest: "masks_digest" Given<Plain>,
    blocks: "blocks" Each<BlockForm, false>,
}, extra "");

stored!(Cover, "a cover" {
    last: "last" Number,
    summary: "summary" Given<OfUser>,
    note: "note" Given<OfUser>,
    verdict: "verdict" Given<Shared<Of>>,
    unmasked: "unmasked" Given<Shared<Of>>,
    by_policy: "by_policy" Mark,
} .. Cover::default());

stored!(Unmasked, "a summary and a verdict" {
    summary: "summary" Given<OfUser>,
    verdict: "verdict" Given<Shared<Of>>,
});

stored!(Verdict, "a verdict" {
    facts: "facts" AmountOrZero<true>,
    kept: "kept" AmountOrZero<true>,
    appended: "appended" AmountOrZero<true>,
    missing: "missing" Each<Words, true>,
    wrong: "wrong" Each<Words, true>,
});

stored!(Cleared, "a place in the conversation" {
    iteration: "iteration" Number,
    calls: "calls" Amount,
    placeholder: "placeholder" Text,
    by_policy: "by_policy" Mark,
});

stored!(
    /// Its iterations need not exist in the conversation: undoing it then shows nothing.
    Shortening, "a step by which a view became shorter" {
        kind: "kind" KindName,
        cause: "cause" CauseName,
        iteration: "at" Number,
        first: "first" Number,
        last: "last" Number,
        before: "iteration" Before,
    }
);

kinds! {
    /// A message with the role of the user.
    OfUser(Arc<Message>): |json, of| message(json, of, None), |node, form| {
        read_message_as(node, Role::User, form.trust())
    };
    KindName(ShorteningKind): |json, kind| json.text(kind.name()), |node, _| {
        let kind = ShorteningKind::from_name(&read_name(node)?);
        kind.ok_or_else(|| Error::expected("cleared, hidden, summarized or shortened"))
    };
    CauseName(Pressure): |json, cause| json.text(cause.name()), |node, _| {
        let cause = Pressure::from_name(&read_name(node)?);
        cause.ok_or_else(|| Error::expected("context_overflow or window"))
    };
    /// A cover with the number of its first iteration.
    CoverForm((u64, Cover)): |json, of| json.object(|json| {
        Number::write(&of.0, "first", json);
        of.1.write(json);
    }), |node, form| {
        let mut fields = fields(node, Cover::EXPECTED, form)?;
        Ok((Number::read(&mut fields, "first")?, Stored::read(fields)?))
    };
    MaskForm((Box<str>, Box<str>)): |json, pair| write_pair(json, ["pattern", "replacement"], pair), |node, form| {
        read_pair(node, ["pattern", "replacement"], form)
    };
    BlockForm((Box<str>, Box<str>)): |json, pair| write_pair(json, ["name", "text"], pair), |node, form| {
        read_pair(node, ["name", "text"], form)
    };
}

/// The place before which results had been cleared already: an iteration, and a number of its calls.
struct Before;

impl Field<Option<(u64, usize)>> for Before {
    fn write(place: &Option<(u64, usize)>, key: &'static str, json: &mut JsonObject<'_>) {
        if let Some((iteration, calls)) = place {
            Number::write(iteration, key, json);
            Amount::write(calls, "calls", json);
        }
    }

    fn read(
        fields: &mut DocumentFields<'_>,
        key: &'static str,
    ) -> Result<Option<(u64, usize)>, Error> {
        let iteration = Given::<Number>::read(fields, key)?;
        let calls = AmountOrZero::<false>::read(fields, "calls")?;
        Ok(iteration.map(|iteration| (iteration, calls)))
    }
}

impl StoredView {
    /// Takes the masks to be stored, and then the texts without masks of covers.
    fn of(view: &View, masks: Option<&Masks>) -> Self {
        let covers = view.covers().map(|(first, cover)| {
            let unmasked = cover.unmasked.clone().filter(|_| masks.is_some());
            let cover = cover.clone();
            (first, Cover { unmasked, ..cover })
        });
        let is_made = view
            .covers()
            .any(|(_, cover)| cover.replacement().is_some());
        let digest = masks.filter(|_| is_made).map(digest_masks);
        let masks = masks.into_iter().flat_map(Masks::iter);
        let steps = view.shortenings.clone();
        let is_known = |step: &Shortening| step.kind != ShorteningKind::Shortened;
        let is_old = steps.iter().all(is_known);
        Self {
            covers: covers.collect(),
            cleared: view.cleared.clone(),
            max_result_bytes: view.max_result_bytes,
            recall: view.recall,
            index: view.index,
            user_bytes: view.user_bytes,
            pins: view.pins.clone(),
            shortenings: steps.iter().copied().filter(is_known).collect(),
            steps: Some(steps).filter(|_| !is_old).unwrap_or_default(),
            masks: masks.map(|(of, text)| (of.into(), text.into())).collect(),
            masks_digest: digest.as_ref().and_then(Value::as_str).map(Into::into),
            blocks: view.prompt_texts.clone(),
            extra: None,
        }
    }

    fn put_rules(&mut self, view: &mut View, masks: Option<Arc<Masks>>) {
        view.cleared = self.cleared.take();
        view.max_result_bytes = self.max_result_bytes;
        view.masks = masks;
        view.prompt_texts = self.blocks.clone();
    }

    fn put_rest(self, view: &mut View) {
        view.recall = self.recall;
        view.index = self.index;
        view.user_bytes = self.user_bytes;
        view.pins = self.pins;
        view.shortenings = match self.steps.is_empty() {
            true => self.shortenings,
            false => self.steps,
        };
        view.resize();
    }
}

/// A view that was read, with its compiled masks.
pub(crate) struct ReadView(StoredView, Option<Arc<Masks>>);

impl ReadView {
    /// Reads a view. `known` are masks that are compiled already.
    pub fn read(node: Node<'_>, known: Option<&Arc<Masks>>, trust: Trust) -> Result<Self, Error> {
        let mut stored: StoredView = Of::get(node, trust.into())?;
        let masks = at(
            "masks",
            make_masks(std::mem::take(&mut stored.masks), known),
        )?;
        Ok(Self(stored, masks))
    }

    /// Reads a view that requests were made from. The conversation need not have the iterations that it covers: it is only
    /// shown.
    pub fn read_asked(node: Node<'_>, trust: Trust) -> Result<View, Error> {
        // Malformed masks are refused, but patterns are not compiled: the masks of today hold for what is shown.
        let mut stored: StoredView = Of::get(node, trust.into())?;
        let covers = std::mem::take(&mut stored.covers);
        let mut view = View::default();
        stored.put_rules(&mut view, None);
        stored.put_rest(&mut view);
        let mut behind = 1;
        for (position, (first, cover)) in covers.into_iter().enumerate() {
            if first < behind || cover.last < first {
                let expected = "a range of iterations, after the cover before it";
                return Err(refuse_misplaced(position, expected));
            }
            behind = cover.last.saturating_add(1);
            let unmasked = None;
            view.put(first, Cover { unmasked, ..cover });
        }
        Ok(view)
    }

    pub fn put_on(self, context: &mut Context) -> Result<(), Error> {
        let Self(mut stored, masks) = self;
        context.change_view(|view| stored.put_rules(view, masks));
        context.show_system();
        let mut behind = context.first_number();
        let covers = std::mem::take(&mut stored.covers).into_iter();
        for (position, (first, cover)) in covers.enumerate() {
            let last = cover.last;
            if !may_cover(context, first.max(behind), last) || first < behind {
                let expected =
                    "a range of iterations without pending calls, after the cover before it";
                return Err(refuse_misplaced(position, expected));
            }
            match cover.summary {
                Some(summary) => context.put_summary(first, last, summary),
                None => context.put_hidden(first, last),
            }
            let (note, verdict, unmasked) = (cover.note, cover.verdict, cover.unmasked);
            let by_policy = cover.by_policy;
            context.change_cover(first, |cover| {
                cover.by_policy = by_policy;
                cover.note = note.filter(|_| cover.last == last).or(cover.note.take());
                (cover.verdict, cover.unmasked) = (verdict, unmasked);
            });
            behind = last.saturating_add(1);
        }
        let digest = stored.masks_digest.take();
        // Last, since the stored notes and summaries are kept and not made anew.
        context.change_view(|view| stored.put_rest(view));
        let masks = context.view().and_then(View::masks).map(digest_masks);
        if masks.as_ref().and_then(Value::as_str) != digest.as_deref() {
            // They were made under other masks: an older version did not look at them.
            context.mask_covers(None);
        }
        context.note_missing();
        Ok(())
    }
}

fn refuse_misplaced(position: usize, expected: &'static str) -> Error {
    wrong("last", expected)
        .within(index(position))
        .within(Value::text("covers"))
}

fn may_cover(context: &Context, first: u64, last: u64) -> bool {
    let current = context.current_iteration();
    let pending = context.current().count_pending() > 0;
    first <= last && (last < current || (last == current && !pending))
}

struct PinsForm;

impl Field<Option<Arc<Pins>>> for PinsForm {
    fn write(pins: &Option<Arc<Pins>>, key: &'static str, json: &mut JsonObject<'_>) {
        if let Some(pins) = pins {
            json.key(key).list(pins.iter(), write_pin);
        }
    }

    fn read(
        fields: &mut DocumentFields<'_>,
        key: &'static str,
    ) -> Result<Option<Arc<Pins>>, Error> {
        let form = fields.form;
        let pins = fields.read_each(key, |node| read_pin(node, form))?;
        if pins.is_empty() {
            return Ok(None);
        }
        let pins = Pins::new(pins);
        let pins = pins.map_err(|error| Error::expected(format!("fewer pins: {error}")));
        at(key, pins.map(|pins| Some(Arc::new(pins))))
    }
}

/// Writes a pin. Its part need not exist in the conversation: then nothing is pinned.
fn write_pin(json: &mut Json, pin: &Pin) {
    json.object(|json| match pin {
        Pin::Iteration(number) => Number::write(number, "iteration", json),
        Pin::Message(number, position) => {
            Number::write(number, "iteration", json);
            Amount::write(position, "position", json);
        }
        Pin::Result(number, slot) => {
            Number::write(number, "iteration", json);
            Amount::write(slot, "slot", json);
        }
        Pin::Fact(words) => Text::write(words, "text", json),
    });
}

fn read_pin(node: Node<'_>, form: Form) -> Result<Pin, Error> {
    let mut fields = fields(node, "a pin", form)?;
    if fields.has("text") {
        return Ok(Pin::Fact(Text::read(&mut fields, "text")?));
    }
    let number = Number::read(&mut fields, "iteration")?;
    let position = Given::<Amount>::read(&mut fields, "position")?;
    let slot = Given::<Amount>::read(&mut fields, "slot")?;
    Ok(match (position, slot) {
        (Some(position), _) => Pin::Message(number, position),
        (None, Some(slot)) => Pin::Result(number, slot),
        (None, None) => Pin::Iteration(number),
    })
}

fn make_masks(
    pairs: Vec<(Box<str>, Box<str>)>,
    known: Option<&Arc<Masks>>,
) -> Result<Option<Arc<Masks>>, Error> {
    if pairs.is_empty() {
        return Ok(None);
    }
    let given = || pairs.iter().map(|(pattern, text)| (&**pattern, &**text));
    if let Some(known) = known.filter(|known| known.iter().eq(given())) {
        return Ok(Some(known.clone()));
    }
    let masks = Masks::new(pairs);
    let masks = masks.map_err(|error| Error::expected(format!("regular expressions: {error}")))?;
    Ok(Some(Arc::new(masks)))
}

fn write_pair(json: &mut Json, keys: [&'static str; 2], (first, second): &(Box<str>, Box<str>)) {
    let [one, other] = keys;
    json.object(|json| {
        Text::write(first, one, json);
        Text::write(second, other, json);
    });
}

fn read_pair(
    node: Node<'_>,
    [first, second]: [&'static str; 2],
    form: Form,
) -> Result<(Box<str>, Box<str>), Error> {
    let mut fields = fields(node, "a map of two texts", form)?;
    Ok((
        Text::read(&mut fields, first)?,
        Text::read(&mut fields, second)?,
    ))
}
