//! The view in a stored conversation.

use std::sync::Arc;

use crate::context::asked::digest_masks;
use crate::context::Context;
use crate::error::{index, Error};
use crate::log::message::{Message, Role};
use crate::storage::keys;
use crate::storage::node::Node;
use crate::storage::read::read_message_as;
use crate::storage::take::{at, fields, read_number, read_size, read_text, wrong, DocumentFields};
use crate::storage::trust::Trust;
use crate::storage::write::{message, text};
use crate::value::builder::{Json, JsonObject};
use crate::value::{Size, Value};
use crate::view::cover::{Cover, Unmasked};
use crate::view::masks::Masks;
use crate::view::pins::{Pin, Pins};
use crate::view::shortening::{Pressure, Shortening, ShorteningKind};
use crate::view::verdict::Verdict;
use crate::view::{Cleared, View};

pub(crate) fn write(json: &mut JsonObject<'_>, view: &View) {
    json.key(keys::VIEW)
        .object(|json| write_fields(json, view, view.masks()));
}

/// The view that an iteration's request was made from; `None` is the log as it is.
pub(crate) fn write_asked(json: &mut JsonObject<'_>, view: Option<&View>) {
    let json = json.key(keys::VIEW);
    match view {
        Some(view) => json.object(|json| write_fields(json, view, None)),
        None => json.value(&()),
    }
}

fn write_fields(json: &mut JsonObject<'_>, view: &View, masks: Option<&Masks>) {
    json.key(keys::COVERS).list(view.covers(), |json, one| {
        cover(json, one, masks.is_some());
    });
    if let Some(cleared) = view.cleared() {
        json.key(keys::CLEARED).object(|json| {
            json.key(keys::ITERATION).value(&cleared.iteration);
            json.key(keys::CALLS).value(&cleared.calls);
            text(json, keys::PLACEHOLDER, Some(&cleared.placeholder));
        });
    }
    if let Some(most) = view.max_result_bytes() {
        json.key(keys::MAX_RESULT_BYTES).value(&most);
    }
    if view.recall {
        json.key(keys::RECALL).value(&true);
    }
    let (index, user_bytes) = view.index();
    if index > 0 {
        json.key(keys::INDEX).value(&index);
    }
    if let Some(bytes) = user_bytes {
        json.key(keys::USER_BYTES).value(&bytes);
    }
    if let Some(pins) = view.pins() {
        json.key(keys::PINS).list(pins.iter(), pin);
    }
    if !view.shortenings.is_empty() {
        json.key(keys::SHORTENINGS)
            .list(view.shortenings.iter(), shortening);
    }
    if let Some(masks) = masks {
        json.key(keys::MASKS)
            .list(masks.iter(), |json, (pattern, replacement)| {
                json.object(|json| {
                    text(json, keys::PATTERN, Some(pattern));
                    text(json, keys::REPLACEMENT, Some(replacement));
                });
            });
        if view
            .covers()
            .any(|(_, cover)| cover.replacement().is_some())
        {
            text(json, keys::MASKS_DIGEST, digest_masks(masks).as_str());
        }
    }
    if !view.blocks().is_empty() {
        json.key(keys::BLOCKS)
            .list(view.blocks(), |json, (name, block)| {
                json.object(|json| {
                    text(json, keys::NAME, Some(name));
                    text(json, keys::TEXT, Some(block));
                });
            });
    }
}

fn shortening(json: &mut Json, step: &Shortening) {
    json.object(|json| {
        text(json, keys::KIND, Some(step.kind.name()));
        text(json, keys::CAUSE, Some(step.cause.name()));
        json.key(keys::AT).value(&step.iteration);
        json.key(keys::FIRST).value(&step.first);
        json.key(keys::LAST).value(&step.last);
        if let Some((iteration, calls)) = &step.before {
            json.key(keys::ITERATION).value(iteration);
            json.key(keys::CALLS).value(calls);
        }
    });
}

fn pin(json: &mut Json, pin: &Pin) {
    json.object(|json| match pin {
        Pin::Iteration(number) => {
            json.key(keys::ITERATION).value(number);
        }
        Pin::Message(number, position) => {
            json.key(keys::ITERATION).value(number);
            json.key(keys::POSITION).value(position);
        }
        Pin::Result(number, slot) => {
            json.key(keys::ITERATION).value(number);
            json.key(keys::SLOT).value(slot);
        }
        Pin::Fact(words) => {
            text(json, keys::TEXT, Some(words));
        }
    });
}

fn verdict(json: &mut JsonObject<'_>, verdict: &Verdict) {
    json.key(keys::FACTS).value(&verdict.facts);
    json.key(keys::KEPT).value(&verdict.kept);
    json.key(keys::APPENDED).value(&verdict.appended);
    for (key, texts) in [
        (keys::MISSING, &verdict.missing),
        (keys::WRONG, &verdict.wrong),
    ] {
        json.key(key).list(texts, |json, one| {
            json.object(|json| {
                text(json, keys::TEXT, Some(one));
            });
        });
    }
}

/// With masks: also what they took out of it.
fn cover(json: &mut Json, (first, cover): (u64, &Cover), masks: bool) {
    json.object(|json| {
        json.key(keys::FIRST).value(&first);
        json.key(keys::LAST).value(&cover.last);
        if let Some(summary) = &cover.summary {
            message(json.key(keys::SUMMARY), summary, None);
        }
        if let Some(note) = &cover.note {
            message(json.key(keys::NOTE), note, None);
        }
        if let Some(of) = &cover.verdict {
            json.key(keys::VERDICT).object(|json| verdict(json, of));
        }
        if let Some(of) = cover.unmasked.as_deref().filter(|_| masks) {
            json.key(keys::UNMASKED).object(|json| {
                if let Some(summary) = &of.summary {
                    message(json.key(keys::SUMMARY), summary, None);
                }
                if let Some(of) = &of.verdict {
                    json.key(keys::VERDICT).object(|json| verdict(json, of));
                }
            });
        }
    });
}

/// How much a view is to walk and to write.
pub(crate) fn size(view: &View) -> Size {
    let summary = |cover: &Cover| cover.size().plus(Size::new(4, 40));
    let covers = view
        .covers()
        .fold(Size::new(10, 0), |sum, (_, one)| sum.plus(summary(one)));
    view.blocks().iter().fold(covers, |sum, (_, block)| {
        sum.plus(Size::new(4, block.len()))
    })
}

/// A view that is being read; its covers are checked against the conversation it is put on.
pub(crate) struct Stored {
    covers: Vec<Covered>,
    cleared: Option<Cleared>,
    max_result_bytes: Option<usize>,
    masks: Option<Arc<Masks>>,
    /// The digest of those under which the covers were made.
    masks_digest: Option<Box<str>>,
    recall: bool,
    index: usize,
    user_bytes: Option<usize>,
    pins: Option<Arc<Pins>>,
    shortenings: Arc<[Shortening]>,
    blocks: Vec<(Box<str>, Box<str>)>,
}

struct Covered {
    first: u64,
    last: u64,
    summary: Option<Arc<Message>>,
    note: Option<Arc<Message>>,
    verdict: Option<Arc<Verdict>>,
    unmasked: Option<Arc<Unmasked>>,
}

impl Stored {
    /// `known` has been compiled already.
    pub fn read(node: Node<'_>, known: Option<&Arc<Masks>>, trust: Trust) -> Result<Self, Error> {
        let mut fields = fields(node, "a view", trust)?;
        let masks = read_masks(&mut fields, known)?;
        let stored = Self {
            masks,
            ..Self::read_unmasked(&mut fields, trust)?
        };
        fields.keep_rest()?;
        Ok(stored)
    }

    fn read_unmasked(fields: &mut DocumentFields<'_>, trust: Trust) -> Result<Self, Error> {
        Ok(Self {
            covers: fields.read_each(keys::COVERS, |cover| read_cover(cover, trust))?,
            cleared: fields.read_given(keys::CLEARED, read_cleared)?,
            max_result_bytes: fields.read_given(keys::MAX_RESULT_BYTES, read_size)?,
            masks: None,
            masks_digest: fields.read_given(keys::MASKS_DIGEST, read_text)?,
            recall: fields.take_given(keys::RECALL).is_some(),
            index: fields.read_given(keys::INDEX, read_size)?.unwrap_or(0),
            user_bytes: fields.read_given(keys::USER_BYTES, read_size)?,
            pins: read_pins(fields)?,
            shortenings: fields.read_each(keys::SHORTENINGS, read_shortening)?.into(),
            blocks: fields
                .read_each(keys::BLOCKS, |node| read_pair(node, keys::NAME, keys::TEXT))?,
        })
    }

    /// A view that requests were made from. Whether the conversation has what it covers does not matter: it is only
    /// shown.
    pub fn read_asked(node: Node<'_>, trust: Trust) -> Result<View, Error> {
        let mut fields = fields(node, "a view", trust)?;
        let stored = Self::read_unmasked(&mut fields, trust)?;
        fields.keep_rest()?;
        let mut view = View::default();
        view.cleared = stored.cleared.map(Arc::new);
        view.max_result_bytes = stored.max_result_bytes;
        view.recall = stored.recall;
        view.index = stored.index;
        view.user_bytes = stored.user_bytes;
        view.pins = stored.pins;
        view.shortenings = stored.shortenings;
        view.blocks = stored.blocks.into();
        view.resize();
        let mut behind = 1;
        for (position, covered) in stored.covers.into_iter().enumerate() {
            let Covered {
                first,
                last,
                summary,
                note,
                verdict,
                unmasked: _,
            } = covered;
            if first < behind || last < first {
                return Err(refuse_misplaced(
                    position,
                    "a range of iterations, after the cover before it",
                ));
            }
            let messages = 0;
            view.put(
                first,
                Cover {
                    last,
                    summary,
                    note,
                    verdict,
                    unmasked: None,
                    messages,
                },
            );
            behind = last.saturating_add(1);
        }
        Ok(view)
    }

    pub fn put_on(self, context: &mut Context) -> Result<(), Error> {
        context.change_view(|view| {
            view.cleared = self.cleared.map(Arc::new);
            view.max_result_bytes = self.max_result_bytes;
            view.masks = self.masks;
            view.blocks = self.blocks.into();
        });
        context.show_system();
        let mut behind = context.first_number();
        for (position, cover) in self.covers.into_iter().enumerate() {
            let Covered {
                first,
                last,
                summary,
                note,
                verdict,
                unmasked,
            } = cover;
            if !may_cover(context, first.max(behind), last) || first < behind {
                let expected =
                    "a range of iterations without pending calls, after the cover before it";
                return Err(refuse_misplaced(position, expected));
            }
            match summary {
                Some(summary) => context.put_summary(first, last, summary),
                None => context.put_hidden(first, last),
            }
            if let Some(note) = note {
                context.put_note(first, last, note);
            }
            if verdict.is_some() {
                context.put_verdict(first, verdict);
            }
            if unmasked.is_some() {
                context.put_unmasked(first, unmasked);
            }
            behind = last.saturating_add(1);
        }
        // Only now: what the covers tell is stored, and is not made anew.
        context.change_view(|view| {
            view.recall = self.recall;
            view.index = self.index;
            view.user_bytes = self.user_bytes;
            view.pins = self.pins;
            view.shortenings = self.shortenings;
            view.resize();
        });
        let masks = context.view().and_then(View::masks).map(digest_masks);
        if masks.as_ref().and_then(Value::as_str) != self.masks_digest.as_deref() {
            // They were made under others: an older version did not look at them.
            context.mask_covers(None);
        }
        context.note_missing();
        Ok(())
    }
}

fn refuse_misplaced(position: usize, expected: &'static str) -> Error {
    wrong(keys::LAST, expected)
        .within(index(position))
        .within(Value::text(keys::COVERS))
}

fn may_cover(context: &Context, first: u64, last: u64) -> bool {
    let current = context.current_iteration();
    let pending = context.current().count_pending() > 0;
    first <= last && (last < current || (last == current && !pending))
}

fn read_cover(node: Node<'_>, trust: Trust) -> Result<Covered, Error> {
    let mut fields = fields(node, "a cover", trust)?;
    Ok(Covered {
        first: fields.read(keys::FIRST, read_number)?,
        last: fields.read(keys::LAST, read_number)?,
        summary: fields.read_given(keys::SUMMARY, |node| {
            read_message_as(node, Role::User, trust)
        })?,
        note: fields.read_given(keys::NOTE, |node| read_message_as(node, Role::User, trust))?,
        verdict: fields.read_given(keys::VERDICT, read_verdict)?,
        unmasked: fields.read_given(keys::UNMASKED, |node| read_unmasked(node, trust))?,
    })
}

fn read_unmasked(node: Node<'_>, trust: Trust) -> Result<Arc<Unmasked>, Error> {
    let mut fields = fields(node, "a summary and a verdict", trust)?;
    Ok(Arc::new(Unmasked {
        summary: fields.read_given(keys::SUMMARY, |node| {
            read_message_as(node, Role::User, trust)
        })?,
        verdict: fields.read_given(keys::VERDICT, read_verdict)?,
    }))
}

fn read_verdict(node: Node<'_>) -> Result<Arc<Verdict>, Error> {
    let mut fields = fields(node, "a verdict", Trust::KEEP)?;
    let size = |fields: &mut DocumentFields<'_>, key| {
        let read = fields.read_given(key, read_size)?;
        Ok(read.unwrap_or(0))
    };
    Ok(Arc::new(Verdict {
        facts: size(&mut fields, keys::FACTS)?,
        kept: size(&mut fields, keys::KEPT)?,
        missing: fields.read_each(keys::MISSING, read_words)?,
        wrong: fields.read_each(keys::WRONG, read_words)?,
        appended: size(&mut fields, keys::APPENDED)?,
    }))
}

fn read_words(node: Node<'_>) -> Result<Box<str>, Error> {
    let mut fields = fields(node, "a map with a text", Trust::KEEP)?;
    fields.take_name(keys::TEXT)
}

fn read_pins(fields: &mut DocumentFields<'_>) -> Result<Option<Arc<Pins>>, Error> {
    let pins = fields.read_each(keys::PINS, read_pin)?;
    if pins.is_empty() {
        return Ok(None);
    }
    let pins = Pins::new(pins);
    let pins = pins.map_err(|error| Error::invalid(Vec::new(), format!("fewer pins: {error}")));
    at(keys::PINS, pins.map(|pins| Some(Arc::new(pins))))
}

/// The iterations need not exist in the conversation: then nothing is shown again.
fn read_shortening(node: Node<'_>) -> Result<Shortening, Error> {
    let mut fields = fields(node, "a step by which a view became shorter", Trust::KEEP)?;
    let kind = ShorteningKind::from_name(&fields.take_name(keys::KIND)?);
    let cause = Pressure::from_name(&fields.take_name(keys::CAUSE)?);
    let before = fields.read_given(keys::ITERATION, read_number)?;
    let calls = fields.read_given(keys::CALLS, read_size)?;
    Ok(Shortening {
        kind: kind.ok_or_else(|| wrong(keys::KIND, "cleared, hidden or summarized"))?,
        cause: cause.ok_or_else(|| wrong(keys::CAUSE, "context_overflow or window"))?,
        iteration: fields.read(keys::AT, read_number)?,
        first: fields.read(keys::FIRST, read_number)?,
        last: fields.read(keys::LAST, read_number)?,
        before: before.map(|iteration| (iteration, calls.unwrap_or(0))),
    })
}

/// The pinned part need not exist in the conversation: then nothing is pinned.
fn read_pin(node: Node<'_>) -> Result<Pin, Error> {
    let mut fields = fields(node, "a pin", Trust::KEEP)?;
    if fields.has(keys::TEXT) {
        return Ok(Pin::Fact(fields.take_name(keys::TEXT)?));
    }
    let number = fields.read(keys::ITERATION, read_number)?;
    let position = fields.read_given(keys::POSITION, read_size)?;
    let slot = fields.read_given(keys::SLOT, read_size)?;
    Ok(match (position, slot) {
        (Some(position), _) => Pin::Message(number, position),
        (None, Some(slot)) => Pin::Result(number, slot),
        (None, None) => Pin::Iteration(number),
    })
}

fn read_cleared(node: Node<'_>) -> Result<Cleared, Error> {
    let mut fields = fields(node, "a place in the conversation", Trust::KEEP)?;
    Ok(Cleared {
        iteration: fields.read(keys::ITERATION, read_number)?,
        calls: fields.read(keys::CALLS, read_size)?,
        placeholder: fields.take_name(keys::PLACEHOLDER)?,
    })
}

fn read_masks(
    fields: &mut DocumentFields<'_>,
    known: Option<&Arc<Masks>>,
) -> Result<Option<Arc<Masks>>, Error> {
    let pairs = fields.read_each(keys::MASKS, |node| {
        read_pair(node, keys::PATTERN, keys::REPLACEMENT)
    })?;
    if pairs.is_empty() {
        return Ok(None);
    }
    let given = || pairs.iter().map(|(pattern, text)| (&**pattern, &**text));
    if let Some(known) = known.filter(|known| known.iter().eq(given())) {
        return Ok(Some(known.clone()));
    }
    let masks = Masks::new(pairs)
        .map_err(|error| Error::invalid(Vec::new(), format!("regular expressions: {error}")));
    at(keys::MASKS, masks.map(|masks| Some(Arc::new(masks))))
}

fn read_pair(
    node: Node<'_>,
    first: &'static str,
    second: &'static str,
) -> Result<(Box<str>, Box<str>), Error> {
    let mut fields = fields(node, "a map of two texts", Trust::KEEP)?;
    Ok((fields.take_name(first)?, fields.take_name(second)?))
}
