//! Puts a request together from existing encodings.
//!
//! A complete iteration is one run of bytes, see `pieces.rs`. The current one is put together message by message.

use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::log::piece::{Piece, Shape};
use crate::value::{steps, Size};
use crate::view::change::{Change, ChangeKind};
use crate::view::checking::Unbound;
use crate::view::rendering::Rendering;
use crate::view::Stretch;

use crate::provider::facts::{Facts, Rule, STAND_IN};
use crate::provider::options::Options;
use crate::provider::writer;
use crate::request::item::{items, shared_elements, Item, Placed};
use crate::request::located::{from_cover, Located};
use crate::request::segment::Segment;
use crate::request::slice::Slice;
use crate::value::builder::Json;

/// The most bytes of a piece that is made of others. Copying them takes well under a millisecond.
pub(super) const JOINED: usize = 1024 * 1024;

/// The number of slices that most requests stay below.
const SLICES: usize = 32;

/// The list of a request, while it is put together.
pub(crate) struct Body<'a, 'o> {
    pub(super) context: &'a Context,
    pub(super) facts: &'static Facts,
    pub(super) options: &'o Options<'o>,
    pub(super) key: u64,
    /// The number of the first iteration that is sent.
    pub(super) first: u64,
    /// The number of the first iteration to add, if those before it are known to be in the list.
    pub(super) behind: Option<u64>,
    /// True if the first slice continues the last known element.
    pub(super) goes_on: bool,
    /// The state of the list before the current iteration, if nothing later changes it.
    pub(super) reached: Option<Reached>,
    pub(super) slices: Vec<Slice<'a>>,
    pub(super) run: Option<Run>,
    /// True if the last element is the model's; `None` before the first.
    pub(super) model_last: Option<bool>,
    /// Items that may have to go back together with later ones.
    unit: Vec<Placed<'a>>,
    /// The messages in the last element, if that is as it was imported.
    imported: Vec<Placed<'a>>,
    /// The value of [`Body::model_last`] before that element.
    before_imported: Option<bool>,
    /// The changes of the request, if they are asked for.
    report: Option<Vec<Located>>,
    /// The system prompt beside the list, and everything before it.
    pub(super) system: Option<(Json, Slice<'a>)>,
    /// The bytes that may still be encoded.
    pub(super) left: usize,
    /// The messages and pieces that may still be looked at.
    steps: usize,
    /// The bytes that may still be copied into larger pieces.
    pub(super) left_to_join: usize,
    /// The iterations whose thinking is left out, where they are known.
    pub(super) unbound: Option<Unbound>,
}

/// The state of a list before an iteration.
#[derive(Clone, Copy)]
pub(super) struct Reached {
    /// The number of the next iteration.
    pub number: u64,
    /// The number of slices, and the end of the last one.
    pub slices: usize,
    pub end: usize,
    /// The value of [`Body::model_last`] at that point.
    pub model_last: Option<bool>,
}

/// Whole pieces at the end of the slices, of consecutive iterations of the log.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// The first slice.
    pub start: usize,
    /// The number of the iteration after the last one.
    pub end: u64,
}

impl<'a, 'o> Body<'a, 'o> {
    pub fn new(context: &'a Context, options: &'o Options<'o>) -> Self {
        Self {
            context,
            facts: options.provider.facts(),
            options,
            key: options.key(),
            first: context.first_sent(options),
            behind: None,
            goes_on: false,
            reached: None,
            slices: Vec::with_capacity(SLICES),
            run: None,
            model_last: None,
            unit: Vec::new(),
            imported: Vec::new(),
            before_imported: None,
            report: None,
            system: None,
            left: options.most,
            steps: options.steps,
            left_to_join: options.most.max(JOINED),
            unbound: None,
        }
    }

    /// Returns a body with all thinking, whatever that was made on.
    pub fn unchecked(context: &'a Context, options: &'o Options<'o>) -> Self {
        Self {
            unbound: Some(Unbound::default()),
            ..Self::new(context, options)
        }
    }

    /// Returns the request. `head` has the caller's fields.
    pub fn finish(mut self, mut head: Json) -> Result<Vec<Segment<'a>>, Error> {
        self.fill(&mut head)?;
        head.value(self.facts.list);
        head.raw(":[");
        let chosen = self.choose_marks();
        Ok(self.segments(head, &chosen))
    }

    /// Returns the system prompt and the list without marks, which is what the provider has before the answer; and the position
    /// of each mark in these bytes.
    pub fn lay_out(mut self) -> Result<(Vec<Slice<'a>>, Vec<u64>), Error> {
        self.fill(&mut Json::default())?;
        let marks = self.find_marks();
        let system = self.system.into_iter().map(|(_, slice)| slice);
        Ok((system.chain(self.slices).collect(), marks))
    }

    /// Returns the changes that the request makes, in its order.
    pub fn report(mut self) -> Result<Vec<Located>, Error> {
        self.report = Some(Vec::new());
        (self.left, self.steps) = (usize::MAX, usize::MAX);
        self.fill(&mut Json::default())?;
        Ok(self.report.unwrap_or_default())
    }

    /// Adds everything after the known part. `head` is the text before a system prompt beside the list.
    pub(super) fn fill(&mut self, head: &mut Json) -> Result<(), Error> {
        let system = self.context.shown_system();
        if let Some(system) = system.filter(|_| self.behind.is_none()) {
            self.add_system(system, head)?;
        }
        self.add_iterations()?;
        self.close();
        Ok(())
    }

    /// Writes the system prompt, beside the list or as its first element.
    fn add_system(&mut self, system: &'a Message, head: &mut Json) -> Result<(), Error> {
        let placed = Placed {
            item: Item::prompt(system, self.context.rendering(u64::MAX)),
            iteration: self.context.first_number(),
            position: 0,
        };
        let imported = placed.item.imported_elements(self.options);
        // Where the user is first, the prompt is no element of the list.
        let is_taken = |text: &&str| !self.facts.has(Rule::UserFirst) || !text.starts_with(',');
        let slice = match imported.filter(is_taken) {
            Some(imported) => Slice::lend(imported.as_bytes(), Shape::default(), 0),
            None => {
                self.tell(placed);
                self.slice(placed.item, 0)?
            }
        };
        if slice.end == 0 {
            return Ok(());
        }
        // An element of the list follows a comma. Responses takes both forms.
        let key = self.facts.system();
        let Some(key) = key.filter(|_| !slice.begins_with(b',')) else {
            self.slices.push(slice);
            return Ok(());
        };
        head.value(key);
        head.raw(":");
        self.system = Some((std::mem::take(head), slice));
        head.raw(",");
        Ok(())
    }

    fn add_iterations(&mut self) -> Result<(), Error> {
        let current = self.context.current_iteration();
        let behind = self.behind.unwrap_or_default();
        let unbound = match self.unbound.take() {
            Some(known) => known,
            None => self.context.find_unbound(self.options)?,
        };
        let looks = self.context.sent_looks(self.options, unbound);
        let from = self.first.max(behind);
        let mut steps = self.context.stretches(from, u64::MAX);
        while let Some(stretch) = steps.next() {
            let (first, last) = stretch.bounds();
            if last >= current {
                self.reach(first)?;
            }
            match stretch {
                Stretch::Iteration(iteration, rendering) => {
                    // The last iteration that is shown as those before it, with nothing between them.
                    let covered = steps.next_cover().unwrap_or(current);
                    let until = match looks.split.is_some()
                        || !looks.unbound.is_empty()
                        || !looks.apart.is_empty()
                    {
                        true => iteration.number,
                        false => covered.min(current).saturating_sub(1),
                    };
                    let rendering = looks.of(iteration, rendering);
                    let added = self.add_iteration(iteration, rendering, until)?;
                    steps.skip_to(iteration.number + added);
                }
                Stretch::Cover(first, last, summary, rendering) => {
                    // Hidden messages may be in the last element before them, as it was imported.
                    let hidden = self.context.log.get_numbered(first);
                    self.end_unit(hidden.is_some_and(|hidden| self.is_held(hidden)))?;
                    let change = || from_cover(first, last, summary, rendering);
                    self.report_change(change, first, 0);
                    if let Some(summary) = summary {
                        let slice = self.slice(Item::of(summary, rendering), last)?;
                        self.add(slice);
                    }
                }
            }
        }
        self.end_unit(false)
    }

    /// Notes the state of the list before an iteration, unless that iteration may change the last element.
    fn reach(&mut self, number: u64) -> Result<(), Error> {
        let next = self.context.log.get_numbered(number);
        if next.is_some_and(|next| self.is_held(next)) {
            return Ok(());
        }
        self.end_unit(false)?;
        let is_settled = self.imported.is_empty() && !self.is_behind_row();
        self.reached = is_settled.then_some(Reached {
            number,
            slices: self.slices.len(),
            end: self.slices.last().map_or(0, |last| last.end),
            model_last: self.model_last,
        });
        Ok(())
    }

    /// Adds an iteration, or several up to `until`. Returns how many.
    fn add_iteration(
        &mut self,
        iteration: &'a Iteration,
        rendering: Rendering<'a>,
        until: u64,
    ) -> Result<u64, Error> {
        self.step()?;
        let known = Context::known_items(iteration, self.first, self.options);
        if known > 0 || self.report.is_some() {
            self.add_items(iteration, rendering, known)?;
            return Ok(1);
        }
        let key = self.key ^ rendering.key_of_iteration(iteration);
        if rendering.pairs.is_some() || self.is_behind_row() {
            // The part of it that is sent depends on other iterations, or its first message goes before a row.
            self.spend(iteration.size())?;
            self.add_items(iteration, rendering, 0)?;
        } else if let Some(kept) = iteration.pieces().find(key) {
            self.end_unit(false)?;
            let is_plain = rendering.is_plain(kept.piece.longest);
            let until = if is_plain { until } else { iteration.number };
            let count = self.count_kept(&kept, iteration.number, until);
            self.add_kept(kept, count, iteration.number, key);
            return Ok(count as u64);
        } else if iteration.number < self.context.current_iteration()
            && self.behind.is_none()
            && self.is_whole(iteration, rendering)
        {
            self.end_unit(false)?;
            if let Some(count) = self.add_largest_group(iteration.number, rendering, until) {
                return Ok(count);
            }
            self.spend(iteration.size())?;
            let encode = || self.encode(iteration, rendering);
            let kept = iteration.pieces().find_or_make(key, encode);
            self.forget_items(iteration, rendering);
            self.add_kept(kept, 1, iteration.number, key);
        } else {
            self.add_items(iteration, rendering, 0)?;
        }
        Ok(1)
    }

    /// Adds the items of an iteration after those that the provider knows.
    fn add_items(
        &mut self,
        iteration: &'a Iteration,
        rendering: Rendering<'a>,
        known: usize,
    ) -> Result<(), Error> {
        let leads = usize::from(self.context.leads(iteration));
        let items = items(iteration, rendering, self.options).zip(leads..);
        for (item, position) in items.skip(known) {
            let iteration = iteration.number;
            let next = Placed {
                item,
                iteration,
                position,
            };
            self.step()?;
            if !next.item.is_held(self.options) {
                self.end_unit(false)?;
            }
            self.unit.push(next);
        }
        Ok(())
    }

    /// Adds the unit, which gets no more items. `is_cut`: some of its items are not sent.
    fn end_unit(&mut self, is_cut: bool) -> Result<(), Error> {
        let mut unit = std::mem::take(&mut self.unit);
        let imported = unit.first().zip(self.imported_elements(&unit));
        match imported.filter(|_| !is_cut) {
            Some((first, elements)) => {
                let mut slice =
                    Slice::lend(elements.as_bytes(), first.item.shape(), first.iteration);
                slice.is_before = self.is_before(first.item);
                let is_row = self.is_row(first.item);
                slice.follows_user = is_row;
                slice.is_prefix = self.facts.continues(elements);
                let before = self.slices.len();
                self.add(slice);
                let last = self.slices.last().filter(|_| self.slices.len() > before);
                if last.is_some_and(|last| last.follows_user == is_row) {
                    self.imported = unit;
                }
            }
            None => {
                unit.drain(..)
                    .try_for_each(|placed| self.add_item(placed))?;
                self.unit = unit; // with its room
            }
        }
        Ok(())
    }

    fn imported_elements(&self, unit: &[Placed<'a>]) -> Option<&'a str> {
        let first = unit.first()?;
        first.item.elements(self.options)?; // nearly always nothing
        let items: Vec<_> = unit.iter().map(|placed| placed.item).collect();
        let elements = shared_elements(&items, self.options)?;
        let goes_on = self.joins(self.model_last, first.item.is_model());
        let follows_row = self.slices.last().is_some_and(|last| last.follows_user);
        let is_misplaced = (self.model_last != Some(false) || follows_row)
            && self.is_row(first.item)
            && !self.is_written_row(first.item);
        (!goes_on && !is_misplaced).then_some(elements)
    }

    fn add_item(&mut self, placed: Placed<'a>) -> Result<(), Error> {
        let mut slice = self.slice(placed.item, placed.iteration)?;
        slice.follows_user = self.is_written_row(placed.item);
        self.add(slice);
        self.tell(placed);
        Ok(())
    }

    /// Reports the change to an item that is not sent as it was imported.
    fn tell(&mut self, placed: Placed<'a>) {
        if self.report.is_some() {
            for change in placed.item.changes(self.options) {
                self.report_change(|| change, placed.iteration, placed.position);
            }
        }
    }

    fn report_change(&mut self, change: impl FnOnce() -> Change, iteration: u64, position: usize) {
        if let Some(report) = &mut self.report {
            report.push(Located {
                change: change(),
                iteration,
                position,
            });
        }
    }

    fn slice(&mut self, item: Item<'a>, number: u64) -> Result<Slice<'a>, Error> {
        Ok(Slice::of(self.piece(item, true)?, 0..1, number))
    }

    /// Returns an item as the rules write it.
    pub(super) fn piece(&mut self, item: Item<'_>, keeps: bool) -> Result<Arc<Piece>, Error> {
        let key = self.key ^ item.rendering();
        if let Some(kept) = item.pieces().find(key) {
            return Ok(kept.piece);
        }
        self.spend(item.size())?;
        let encode = || item.encode(self.options);
        Ok(match keeps {
            true => item.pieces().find_or_make(key, encode).piece,
            false => Arc::new(encode()),
        })
    }

    /// Returns whether an item counts as standing before the conversation. Mistral ignores imported system rows there: a call
    /// after them has no message of the user before it. Written anew, they are the user's.
    pub(super) fn is_before(&self, item: Item<'_>) -> bool {
        item.is_system()
            && self.facts.has(Rule::UserBeforeCalls)
            && !self.facts.has(Rule::UserFirst)
    }

    /// Returns whether an item goes as a system row in the list. Anthropic takes one only after the user and before the model
    /// (pydantic-ai#6765), which a view may hide. One with texts alone is the user's elsewhere.
    pub(super) fn is_row(&self, item: Item<'_>) -> bool {
        let is_text = || item.is_system() && item.imported_elements(self.options).is_some();
        self.is_written_row(item) || (self.facts.has(Rule::UserFirst) && is_text())
    }

    /// Returns whether such a row comes last, or may once messages behind it turn out to have nothing to send.
    fn is_behind_row(&self) -> bool {
        let mut unit = self.unit.iter();
        self.slices.last().is_some_and(|last| last.follows_user)
            || unit.any(|placed| self.is_row(placed.item))
    }

    /// Returns whether it is such a row also where the rules write it.
    fn is_written_row(&self, item: Item<'_>) -> bool {
        self.facts.has(Rule::UserFirst) && item.is_system_row(self.options)
    }

    /// Counts the size of a new encoding; a number or a key takes a few bytes, too.
    pub(super) fn spend(&mut self, size: Size) -> Result<(), Error> {
        let left = self.left.checked_sub(self.cost(size));
        self.left = left.ok_or(Error::TooMuchWork)?;
        Ok(())
    }

    pub(super) fn cost(&self, size: Size) -> usize {
        let size = match self.context.view() {
            Some(view) => view.cost(size),
            None => size,
        };
        size.bytes.saturating_add(size.terms.saturating_mul(8))
    }

    /// Counts a message or a piece.
    pub(super) fn step(&mut self) -> Result<(), Error> {
        steps::count(1);
        self.steps = self.steps.checked_sub(1).ok_or(Error::TooMuchWork)?;
        Ok(())
    }

    /// Returns whether an element with this role has to continue the element before it.
    pub(super) fn joins(&self, model_last: Option<bool>, begins_with_model: bool) -> bool {
        self.facts.has(Rule::Alternates) && model_last == Some(begins_with_model)
    }

    pub(super) fn add(&mut self, mut slice: Slice<'a>) {
        if slice.end == slice.start {
            return;
        }
        self.run = None;
        let begins_with_model = slice.shape.begins_with_model;
        // Only the last message may ask for its continuation.
        let follows_row = |last: &mut Slice<'_>| last.follows_user && !begins_with_model;
        if self.joins(self.model_last, begins_with_model)
            || self.ends_with_prefix()
            || self.slices.last_mut().is_some_and(follows_row)
        {
            self.remake_imported(slice.number);
        }
        // What the user says after a system row goes before it; a second row is refused.
        let row = self.slices.pop_if(follows_row);
        if row.is_some() {
            let what = match slice.follows_user {
                true => ChangeKind::DroppedPart,
                false => ChangeKind::MovedPart,
            };
            let change = || Change {
                what,
                from: "message".to_owned(),
                to: None,
            };
            self.report_change(change, slice.number, 0);
            if slice.follows_user {
                self.slices.extend(row);
                return;
            }
        }
        let wants_user = match slice.shape.begins_with_calls {
            true => self.facts.has(Rule::UserBeforeCalls),
            false => self.facts.has(Rule::UserFirst),
        };
        let has_user = match self.model_last {
            None => !(begins_with_model && wants_user || slice.follows_user),
            Some(model_last) => !(model_last && slice.follows_user),
        };
        if !has_user {
            self.stand_in(slice.number, false);
        }
        if self.joins(self.model_last, begins_with_model) {
            // The element before continues: leave out its end, and our beginning.
            match self.slices.last_mut() {
                Some(last) => last.end -= writer::CLOSE.len(),
                None => self.goes_on = true,
            }
            self.slices.push(Slice::constant(","));
            slice.start += writer::open(begins_with_model).len();
        }
        self.imported.clear();
        self.before_imported = self.model_last;
        if !slice.is_before {
            self.model_last = Some(slice.shape.ends_with_model);
        }
        self.slices.push(slice);
        self.slices.extend(row);
    }

    /// Writes the last element by the rules if it was imported, since imported ones may have any form. It may vanish.
    fn remake_imported(&mut self, number: u64) {
        if self.imported.is_empty() {
            return;
        }
        self.slices.pop();
        self.model_last = self.before_imported;
        for placed in std::mem::take(&mut self.imported) {
            let piece = placed.item.encode(self.options);
            let mut slice = Slice::of(Arc::new(piece), 0..1, number);
            slice.follows_user = self.is_written_row(placed.item);
            self.add(slice);
            self.tell(placed);
        }
    }

    /// Adds a user message to fill a gap, in an iteration or after all of them.
    fn stand_in(&mut self, number: u64, is_behind: bool) {
        self.slices.push(Slice::constant(self.facts.stand_in));
        self.model_last = Some(false);
        let iteration = self.context.log.get_numbered(number);
        let count = |one| items(one, Rendering::PLAIN, self.options).count();
        let behind = iteration.filter(|_| is_behind && self.report.is_some());
        let behind = behind.map_or(0, count);
        let leads = iteration.is_some_and(|one| self.context.leads(one));
        let change = || Change {
            what: ChangeKind::AddedMessage,
            from: String::new(),
            to: Some(STAND_IN.to_owned()),
        };
        self.report_change(change, number, usize::from(leads) + behind);
    }

    /// Adds a user message if the list is empty, ends with the model where it must not, or ends with an answer that broke off,
    /// since many models do not continue their own words.
    fn close(&mut self) {
        let ends_with_model = self.model_last == Some(true) && !self.ends_with_prefix();
        let wants_user = self.facts.has(Rule::UserLast) || self.context.breaks_off();
        if self.model_last.is_none() || (wants_user && ends_with_model) {
            self.stand_in(self.context.current_iteration(), true);
        }
    }

    /// Returns whether the last element was imported and asks for its continuation.
    fn ends_with_prefix(&self) -> bool {
        self.slices.last().is_some_and(|last| last.is_prefix)
    }
}
