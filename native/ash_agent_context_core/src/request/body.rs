//! Putting a request together from what is encoded already.
//!
//! A complete iteration is one stretch of bytes, made when it is first asked for, from its
//! messages' encodings where there are any. The current iteration is put together message by message. Sixteen
//! complete iterations become one stretch, and so do sixteen of those.

use std::borrow::Cow;
use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::log::hints::Ttl;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::log::piece::{ByHand, Kept, Piece, Shape};
use crate::value::{numbers, Size};
use crate::view::change::{Change, ChangeKind};
use crate::view::rendering::Rendering;
use crate::view::Stretch;

use crate::provider::format::{Format, STAND_IN};
use crate::provider::options::Options;
use crate::provider::writer::{self, Writer};
use crate::request::item::{items, Item};
use crate::request::located::{covered, Located};
use crate::request::segment::{check_numbers, Segment};
use crate::request::slice::{Mark, Slice};
use crate::request::unit::{Placed, Unit};
use crate::value::builder::Json;

/// Pieces that are joined into a larger one.
const FANOUT: u64 = 16;

/// Bytes of the largest piece that is made of others: copying so many takes well under a millisecond.
const JOINED: usize = 1024 * 1024;

/// Slices that most requests have at most.
const SLICES: usize = 32;

/// Room for what stands around the texts of an iteration.
const BESIDE_TEXT: usize = 512;

/// A request's list in the making.
pub(crate) struct Body<'a, 'o> {
    pub(super) context: &'a Context,
    pub(super) format: &'static dyn Format,
    pub(super) options: &'o Options<'o>,
    key: u64,
    /// The number of the first iteration that is sent.
    first: u64,
    pub(super) slices: Vec<Slice<'a>>,
    run: Option<Run>,
    /// Whether the last element is the model's; `None` before the first.
    model_last: Option<bool>,
    /// Items that may belong together with those after them.
    unit: Unit<'a>,
    /// The messages in the last element, when that is as it was imported.
    imported: Unit<'a>,
    /// The value of [`Body::model_last`] before that element.
    before_imported: Option<bool>,
    /// What is sent in another way than it is kept, if anyone wants to know.
    report: Option<Vec<Located>>,
    /// The system prompt beside the list, and everything before it.
    pub(super) system: Option<(Json, Slice<'a>)>,
    /// Bytes that may still be encoded.
    left: usize,
    /// Messages and pieces that may still be looked at.
    steps: usize,
    /// Bytes that may still be copied into larger pieces.
    left_to_join: usize,
}

/// Whole pieces at the end of the slices, of iterations one after the other as in the log.
#[derive(Clone, Copy)]
struct Run {
    /// The first slice.
    start: usize,
    /// The number of the iteration after the last one.
    end: u64,
}

impl<'a, 'o> Body<'a, 'o> {
    pub fn new(
        context: &'a Context,
        format: &'static dyn Format,
        options: &'o Options<'o>,
    ) -> Self {
        Self {
            context,
            format,
            options,
            key: options.key(),
            first: context.first_sent(options),
            slices: Vec::with_capacity(SLICES),
            run: None,
            model_last: None,
            unit: Unit::default(),
            imported: Unit::default(),
            before_imported: None,
            report: None,
            system: None,
            left: options.most,
            steps: options.steps,
            left_to_join: options.most.max(JOINED),
        }
    }

    /// The request: `head` holds the caller's fields.
    pub fn finish(mut self, mut head: Json) -> Result<Vec<Segment<'a>>, Error> {
        if let Some(system) = self.context.shown_system() {
            self.add_system(system, &mut head)?;
        }
        head.value(self.format.list());
        head.raw(":[");
        self.add_iterations()?;
        self.close();
        let chosen = self.choose_marks();
        let exceeds = self.exceeds(&head);
        let left = self.left;
        let segments = self.segments(head, &chosen);
        if exceeds {
            check_numbers(&segments, left)?;
        }
        Ok(segments)
    }

    /// What is changed for the request, in the order in which it is sent.
    pub fn report(mut self) -> Result<Vec<Located>, Error> {
        self.report = Some(Vec::new());
        (self.left, self.steps) = (usize::MAX, usize::MAX);
        if let Some(system) = self.context.shown_system() {
            self.add_system(system, &mut Json::default())?;
        }
        self.add_iterations()?;
        self.close();
        Ok(self.report.unwrap_or_default())
    }

    /// Writes the system prompt, beside the list or as its first element.
    fn add_system(&mut self, system: &'a Message, head: &mut Json) -> Result<(), Error> {
        let placed = Placed {
            item: Item::System(system, self.context.rendering(u64::MAX)),
            iteration: self.context.first_number(),
            position: 0,
        };
        let slice = match placed.item.imported(self.options) {
            Some(imported) => Slice::lent(imported.as_bytes(), Shape::default(), 0),
            None => {
                self.tell(placed);
                self.slice(placed.item, 0)?
            }
        };
        if slice.end == 0 {
            return Ok(());
        }
        // An element of the list follows a comma; Responses knows both forms.
        let key = self.format.system_key();
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
        let mut steps = self.context.sent(self.options);
        while let Some(stretch) = steps.next() {
            match stretch {
                Stretch::Iteration(iteration, rendering) => {
                    let end = self.context.current_iteration().saturating_sub(1);
                    let until = steps.alike(iteration.number, end);
                    let added = self.add_iteration(iteration, rendering, until)?;
                    steps.skip_to(iteration.number + added);
                }
                Stretch::Cover(first, last, summary, rendering) => {
                    // Hidden messages may stand in the last element before them, as it was imported.
                    let hidden = self.context.log.numbered(first);
                    self.end_unit(hidden.is_some_and(|hidden| self.is_held(hidden)))?;
                    if let Some(report) = &mut self.report {
                        report.push(Located {
                            change: covered(first, last, summary, rendering),
                            iteration: first,
                            position: 0,
                        });
                    }
                    if let Some(summary) = summary {
                        let slice = self.slice(Item::Message(summary, rendering), last)?;
                        self.add(slice);
                    }
                }
            }
        }
        self.end_unit(false)
    }

    /// Adds an iteration, or several up to one. Returns how many.
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
        if rendering.pairs.is_some() {
            // What is sent of it depends on other iterations.
            self.spend(iteration.size())?;
            self.add_items(iteration, rendering, 0)?;
        } else if let Some(kept) = iteration.pieces().kept(key) {
            self.end_unit(false)?;
            let is_plain = rendering.is_plain(kept.piece.longest);
            let until = if is_plain { until } else { iteration.number };
            let count = self.count_kept(&kept, iteration.number, until);
            self.add_kept(kept, count, iteration.number, key);
            return Ok(count as u64);
        } else if iteration.number < self.context.current_iteration()
            && self.is_whole(iteration, rendering)
        {
            self.end_unit(false)?;
            for size in [FANOUT * FANOUT, FANOUT] {
                if let Some(group) = self.group(iteration.number, size, rendering, until) {
                    if self.add_group(&group, rendering).is_some() {
                        return Ok(size);
                    }
                }
            }
            self.spend(iteration.size())?;
            let encode = || self.encode(iteration, rendering);
            let kept = iteration.pieces().kept_or_make(key, encode);
            self.forget_items(iteration, rendering);
            self.add_kept(kept, 1, iteration.number, key);
        } else {
            self.add_items(iteration, rendering, 0)?;
        }
        Ok(1)
    }

    /// Encodes iterations in the piece that they would be joined into. Nothing where they would not.
    fn add_group(&mut self, group: &[&'a Iteration], rendering: Rendering<'a>) -> Option<()> {
        let first = group.first()?.number;
        let sizes = group.iter().map(|iteration| iteration.size());
        let size = sizes.fold(Size::default(), Size::plus);
        let left = self.left.checked_sub(self.cost(size))?;
        let room = size.bytes + group.len() * BESIDE_TEXT;
        if room > JOINED {
            return None;
        }
        let mut bytes = Vec::with_capacity(room);
        let mut parts: Vec<(usize, Shape)> = Vec::with_capacity(group.len());
        for iteration in group {
            let (start, before) = (bytes.len(), parts.last().map(|(_, shape)| *shape));
            let (shape, by_hand);
            (bytes, shape, by_hand) = self.encode_behind(bytes, iteration, rendering);
            let ends_with_model = before.map(|before| before.ends_with_model);
            let goes_on = self.joins(ends_with_model, shape.begins_with_model);
            if goes_on || bytes.len() == start || !by_hand.is_empty() {
                return None;
            }
            parts.push((bytes.len(), shape));
        }
        self.left = left;
        let longest = group.iter().map(|iteration| iteration.longest_result());
        let piece = Arc::new(Piece::of(bytes, parts, longest.max().unwrap_or(0)));
        for (part, iteration) in group.iter().enumerate() {
            let piece = piece.clone();
            iteration.pieces().keep(self.key, Kept { piece, part });
            self.forget_items(iteration, rendering);
        }
        self.add_kept(Kept { piece, part: 0 }, group.len(), first, self.key);
        Some(())
    }

    /// So many iterations from one on, if they can be told to make one piece before they are encoded.
    fn group(
        &self,
        first: u64,
        size: u64,
        rendering: Rendering<'a>,
        until: u64,
    ) -> Option<Vec<&'a Iteration>> {
        let before = first - self.context.first_number();
        if !before.is_multiple_of(size) || first + size > until + 1 {
            return None;
        }
        let belongs = |number: u64| {
            let iteration = self.context.log.numbered(number)?;
            let is_new = iteration.pieces().kept(self.key).is_none();
            let is_plain = rendering.is_plain(iteration.longest_result());
            (is_new && is_plain && self.is_whole(iteration, rendering)).then_some(iteration)
        };
        (first..first + size).map(belongs).collect()
    }

    /// The piece of an iteration has what those of its messages had.
    fn forget_items(&self, iteration: &'a Iteration, rendering: Rendering<'a>) {
        for item in items(iteration, rendering, self.options) {
            item.pieces().forget(self.key ^ item.rendering());
        }
    }

    /// How many iterations from one on are in the same piece, one after the other.
    ///
    /// A piece has iterations of one conversation. Another one that has the first and the last of some has those
    /// between them as well: what changes the messages of an iteration takes away everything after it.
    fn count_kept(&self, kept: &Kept, number: u64, until: u64) -> usize {
        let parts = (kept.piece.count() - kept.part) as u64;
        let most = parts.min((until + 1).saturating_sub(number)).max(1);
        let is_next = |count: u64| {
            let other = self.context.log.numbered(number + count);
            let other = other.and_then(|iteration| iteration.pieces().kept(self.key));
            other.is_some_and(|other| {
                Arc::ptr_eq(&other.piece, &kept.piece) && other.part == kept.part + count as usize
            })
        };
        if most == 1 || is_next(most - 1) {
            return most as usize;
        }
        let (mut yes, mut no) = (0, most - 1);
        while no - yes > 1 {
            let middle = yes.midpoint(no);
            match is_next(middle) {
                true => yes = middle,
                false => no = middle,
            }
        }
        no as usize
    }

    /// Adds what is kept of some iterations, and joins it with what is kept of those before it.
    fn add_kept(&mut self, kept: Kept, count: usize, number: u64, key: u64) {
        let parts = kept.part..kept.part + count;
        let (run, start) = (self.run, self.slices.len());
        self.add(Slice::of(kept.piece, parts, number));
        let is_alone = self.slices.len() == start + 1;
        let whole = self.slices.get(start..).and_then(<[Slice<'_>]>::last);
        let whole = whole.and_then(Slice::whole);
        let joins = |piece: &Arc<Piece>| piece.by_hand.is_empty() && key == self.key;
        if whole.is_some_and(joins) {
            let goes_on = run.filter(|run| is_alone && run.end == number);
            let start = goes_on.map_or(self.slices.len() - 1, |run| run.start);
            let end = number + count as u64;
            self.run = Some(Run { start, end });
            self.join(end);
        }
    }

    /// Joins the pieces before an iteration, where they make a larger one complete.
    fn join(&mut self, end: u64) {
        let before = end - self.context.first_number();
        let sizes = std::iter::successors(Some(FANOUT), |size| size.checked_mul(FANOUT));
        for size in sizes.take_while(|size| before.is_multiple_of(*size)) {
            if self.join_from(end - size).is_none() {
                return;
            }
        }
    }

    /// Joins the pieces from an iteration on; nothing where there is none that begins with it, or too much for one.
    fn join_from(&mut self, first: u64) -> Option<()> {
        let run = self.run?;
        let slices = self.slices.get(run.start..)?;
        let start = slices.iter().rposition(|slice| slice.number == first)?;
        let slices = slices.get(start..)?;
        if slices.len() == 1 {
            return Some(());
        }
        let pieces = slices.iter().filter_map(Slice::whole);
        let bytes = pieces.clone().map(|piece| piece.bytes().len()).sum();
        if bytes > JOINED {
            return None;
        }
        self.left_to_join = self.left_to_join.checked_sub(bytes)?;
        let iterations = (first..run.end).filter_map(|number| self.context.log.numbered(number));
        let longest = iterations.clone().map(Iteration::longest_result).max();
        let parts = pieces.clone().map(|piece| &**piece);
        let joined = Arc::new(Piece::join(parts, longest.unwrap_or(0)));
        let olds = pieces.flat_map(|piece| std::iter::repeat_n(piece, piece.count()));
        let mut places: Vec<_> = iterations.zip(olds).enumerate().collect();
        let replace = |(part, (iteration, old)): (usize, (&Iteration, &Arc<Piece>))| {
            let piece = joined.clone();
            iteration
                .pieces()
                .replace(self.key, old, Kept { piece, part })
        };
        // Of two threads that join the same ones, one is first at the last iteration.
        if !places.pop().is_some_and(replace) {
            return None;
        }
        for place in places {
            replace(place);
        }
        let parts = 0..joined.count();
        self.slices.truncate(run.start + start);
        self.slices.push(Slice::of(joined, parts, first));
        Some(())
    }

    /// Whether an iteration's elements are the same whatever stands around it. Imported ones may have to be made anew
    /// where roles alternate, or belong together with those of its neighbours.
    fn is_whole(&self, iteration: &Iteration, rendering: Rendering<'_>) -> bool {
        let items = || items(iteration, rendering, self.options);
        let mut imported = items().map(|item| item.imported(self.options));
        if self.format.alternates() && imported.any(|elements| elements.is_some()) {
            return false;
        }
        if imported
            .flatten()
            .any(|elements| self.format.is_prefix(elements))
            || items().any(|item| self.follows_user(item))
        {
            return false;
        }
        let next = self.context.log.numbered(iteration.number + 1);
        let is_alone = !self.is_held(iteration) && !next.is_some_and(|next| self.is_held(next));
        is_alone && !items().next().is_some_and(|item| self.is_before(item))
    }

    /// Whether the iteration before it has the elements of its first message.
    fn is_held(&self, iteration: &Iteration) -> bool {
        let first = items(iteration, Rendering::PLAIN, self.options).next();
        first.is_some_and(|first| first.is_held(self.options))
    }

    /// All elements of an iteration.
    fn encode(&self, iteration: &Iteration, rendering: Rendering<'_>) -> Piece {
        let bytes = Vec::with_capacity(iteration.size().bytes + BESIDE_TEXT);
        let (bytes, shape, by_hand) = self.encode_behind(bytes, iteration, rendering);
        Piece::new(bytes, shape, by_hand)
    }

    /// The same after other bytes, each element right after the one before.
    fn encode_behind(
        &self,
        mut bytes: Vec<u8>,
        iteration: &Iteration,
        rendering: Rendering<'_>,
    ) -> (Vec<u8>, Shape, Vec<ByHand>) {
        let begin = bytes.len();
        let mut shape = Shape::default();
        let mut all_by_hand = Vec::new();
        let shift = |mark: &ByHand, at| ByHand { at, ttl: mark.ttl };
        for (item, imported) in self.resolved(iteration, rendering) {
            let is_model = item.is_model();
            let start = bytes.len();
            let mut mark = None;
            let mut by_hand = Vec::new();
            if let Some(elements) = imported {
                bytes.extend_from_slice(elements.as_bytes());
            } else if let Some(Kept { piece, part }) =
                item.pieces().kept(self.key ^ item.rendering())
            {
                bytes.extend_from_slice(piece.bytes());
                mark = piece.shape(part).mark.map(|mark| start + mark);
                let kept = piece.by_hand.iter();
                by_hand.extend(kept.map(|mark| shift(mark, start + mark.at)));
            } else {
                let mut out = Writer::behind(bytes, self.options, self.format);
                item.render(self.format, &mut out);
                (bytes, mark, by_hand) = out.into_parts();
            }
            if bytes.len() == start {
                continue;
            }
            if start == begin {
                shape.begins_with_model = is_model;
                shape.begins_with_calls = item.calls();
            } else if self.joins(Some(shape.ends_with_model), is_model) {
                // Without the end of the one and the beginning of the other, and with a comma.
                let seam = start - writer::CLOSE.len()..start + writer::open(is_model).len();
                mark = mark.map(|mark| mark - seam.len() + 1);
                for mark in &mut by_hand {
                    mark.at -= seam.len() - 1;
                }
                bytes.splice(seam, [b',']);
            }
            shape.mark = mark.or(shape.mark);
            all_by_hand.append(&mut by_hand);
            shape.ends_with_model = is_model;
        }
        (bytes, shape, all_by_hand)
    }

    /// Adds the items of an iteration after those that the provider knows.
    fn add_items(
        &mut self,
        iteration: &'a Iteration,
        rendering: Rendering<'a>,
        known: usize,
    ) -> Result<(), Error> {
        for next in self.placed(iteration, rendering).skip(known) {
            self.step()?;
            if let Some(unit) = self.unit.push(next, self.options) {
                self.add_unit(unit, false)?;
            }
        }
        Ok(())
    }

    fn placed<'i>(
        &self,
        iteration: &'i Iteration,
        rendering: Rendering<'i>,
    ) -> impl Iterator<Item = Placed<'i>> + use<'i, 'a, 'o> {
        let leads = usize::from(self.context.leads(iteration));
        let placed = |(item, position)| Placed {
            item,
            iteration: iteration.number,
            position,
        };
        let items = items(iteration, rendering, self.options);
        items.zip(leads..).map(placed)
    }

    /// The items of an iteration whose units end with it, and the elements of those that go back as they were imported.
    fn resolved<'i>(
        &self,
        iteration: &'i Iteration,
        rendering: Rendering<'i>,
    ) -> Vec<(Item<'i>, Option<&'i str>)> {
        let (mut resolved, mut open) = (Vec::new(), Unit::default());
        for placed in self.placed(iteration, rendering) {
            let ended = open.push(placed, self.options);
            resolved.extend(
                ended
                    .into_iter()
                    .flat_map(|unit| unit.resolve(self.options)),
            );
        }
        resolved.extend(open.resolve(self.options));
        resolved
    }

    /// Adds the unit that may have gone on. `is_cut`: what belongs to it is not sent.
    fn end_unit(&mut self, is_cut: bool) -> Result<(), Error> {
        let unit = std::mem::take(&mut self.unit);
        self.add_unit(unit, is_cut)
    }

    fn add_unit(&mut self, unit: Unit<'a>, is_cut: bool) -> Result<(), Error> {
        let imported = unit
            .imported(self.options)
            .filter(|(first, _)| !is_cut && !self.joins(self.model_last, first.item.is_model()));
        let Some((first, elements)) = imported else {
            return unit
                .into_iter()
                .try_for_each(|placed| self.add_item(placed));
        };
        let mut slice = Slice::lent(elements.as_bytes(), first.item.shape(), first.iteration);
        slice.is_before = self.is_before(first.item);
        slice.follows_user = self.follows_user(first.item);
        slice.is_prefix = self.format.is_prefix(elements);
        self.add(slice);
        self.imported = unit;
        Ok(())
    }

    fn add_item(&mut self, placed: Placed<'a>) -> Result<(), Error> {
        let mut slice = self.slice(placed.item, placed.iteration)?;
        slice.is_before = self.is_before(placed.item);
        slice.follows_user = self.follows_user(placed.item);
        self.add(slice);
        self.tell(placed);
        Ok(())
    }

    /// Tells what is changed of an item that is not sent as it was imported.
    fn tell(&mut self, placed: Placed<'a>) {
        let Some(report) = &mut self.report else {
            return;
        };
        let changes = placed.item.changes(self.format, self.options);
        report.extend(changes.into_iter().map(|change| Located {
            change,
            iteration: placed.iteration,
            position: placed.position,
        }));
    }

    /// What the rules make of an item.
    fn slice(&mut self, item: Item<'a>, number: u64) -> Result<Slice<'a>, Error> {
        let key = self.key ^ item.rendering();
        let kept = match item.pieces().kept(key) {
            Some(kept) => kept,
            None => {
                self.spend(item.size())?;
                let encode = || item.encode(self.format, self.options);
                item.pieces().kept_or_make(key, encode)
            }
        };
        Ok(Slice::of(kept.piece, 0..1, number))
    }

    /// Mistral counts system messages as no beginning: a call after them has none of the user before it.
    fn is_before(&self, item: Item<'_>) -> bool {
        item.is_system() && self.format.user_before_calls() && !self.format.user_first()
    }

    /// Anthropic takes rows of the system's only behind one of the user's, which a view may hide.
    fn follows_user(&self, item: Item<'_>) -> bool {
        self.format.user_first() && item.is_system_row(self.options)
    }

    /// Counts what is not encoded yet; a number or a key takes a few bytes, too.
    fn spend(&mut self, size: Size) -> Result<(), Error> {
        let left = self.left.checked_sub(self.cost(size));
        self.left = left.ok_or(Error::TooMuchWork)?;
        Ok(())
    }

    fn cost(&self, size: Size) -> usize {
        let size = match self.context.view() {
            Some(view) => view.cost(size),
            None => size,
        };
        size.bytes.saturating_add(size.terms.saturating_mul(8))
    }

    /// Counts a message or a piece.
    fn step(&mut self) -> Result<(), Error> {
        self.steps = self.steps.checked_sub(1).ok_or(Error::TooMuchWork)?;
        Ok(())
    }

    /// Whether what begins with this role has to go on in the element before it.
    fn joins(&self, model_last: Option<bool>, begins_with_model: bool) -> bool {
        self.format.alternates() && model_last == Some(begins_with_model)
    }

    fn add(&mut self, mut slice: Slice<'a>) {
        if slice.end == slice.start {
            return;
        }
        self.run = None;
        let begins_with_model = slice.shape.begins_with_model;
        if self.joins(self.model_last, begins_with_model) {
            self.remake_imported(slice.number);
        }
        if self.ends_with_prefix() {
            // Only the last message may ask for its continuation.
            self.remake_imported(slice.number);
        }
        let wants_user = match slice.shape.begins_with_calls {
            true => self.format.user_before_calls(),
            false => self.format.user_first(),
        };
        let has_user = match self.model_last {
            None => !(begins_with_model && wants_user || slice.follows_user),
            Some(model_last) => !(model_last && slice.follows_user),
        };
        if !has_user {
            self.stand_in(slice.number, false);
        }
        if self.joins(self.model_last, begins_with_model) {
            // The element before goes on: without its end, and without our beginning.
            if let Some(last) = self.slices.last_mut() {
                last.end -= writer::CLOSE.len();
            }
            self.slices.push(Slice::constant(","));
            slice.start += writer::open(begins_with_model).len();
        }
        self.imported = Unit::default();
        self.before_imported = self.model_last;
        if !slice.is_before {
            self.model_last = Some(slice.shape.ends_with_model);
        }
        self.slices.push(slice);
    }

    /// Makes the last element by the rules, if it is an imported one, whose form may be any. There
    /// may be nothing left of it then.
    fn remake_imported(&mut self, number: u64) {
        if self.imported.is_empty() {
            return;
        }
        self.slices.pop();
        self.model_last = self.before_imported;
        for placed in std::mem::take(&mut self.imported) {
            let piece = placed.item.encode(self.format, self.options);
            self.add(Slice::of(Arc::new(piece), 0..1, number));
            self.tell(placed);
        }
    }

    /// Adds a user message where one has to stand, in an iteration or behind all of it.
    fn stand_in(&mut self, number: u64, is_behind: bool) {
        self.slices.push(Slice::constant(self.format.stand_in()));
        self.model_last = Some(false);
        let iteration = self.context.log.numbered(number);
        let count = |one| items(one, Rendering::PLAIN, self.options).count();
        let behind = iteration.filter(|_| is_behind && self.report.is_some());
        let behind = behind.map_or(0, count);
        let leads = iteration.is_some_and(|one| self.context.leads(one));
        let change = Change {
            what: ChangeKind::AddedMessage,
            from: String::new(),
            to: Some(STAND_IN.to_owned()),
        };
        let located = Located {
            change,
            iteration: number,
            position: usize::from(leads) + behind,
        };
        if let Some(report) = &mut self.report {
            report.push(located);
        }
    }

    /// A list that says nothing, or ends with the model where it must not, gets a user message; so does
    /// one that ends with an answer that broke off, for many models go on from no words of their own.
    fn close(&mut self) {
        let ends_with_model = self.model_last == Some(true) && !self.ends_with_prefix();
        let wants_user = self.format.user_last() || self.context.breaks_off();
        if self.model_last.is_none() || (wants_user && ends_with_model) {
            self.stand_in(self.context.current_iteration(), true);
        }
    }

    /// Whether the last element was imported and asks for its continuation.
    fn ends_with_prefix(&self) -> bool {
        self.slices.last().is_some_and(|last| last.is_prefix)
    }

    /// Whether anything of the request has a number that JSON readers refuse.
    fn exceeds(&self, head: &Json) -> bool {
        let made = self.system.iter().map(|(before, _)| before);
        let mut made = made.chain([head]);
        made.any(|json| numbers::exceed(&json.0)) || self.marked().any(|(_, slice)| slice.exceeds())
    }

    fn segments(self, head: Json, chosen: &[(Mark, Ttl)]) -> Vec<Segment<'a>> {
        let mut segments = Vec::with_capacity(self.slices.len() + 2 * chosen.len() + 4);
        let mut chosen = chosen.iter().peekable();
        let mut cut = |slice: &Slice<'a>,
                       index: Option<usize>,
                       mut start: usize,
                       segments: &mut Vec<Segment<'a>>| {
            while let Some((mark, ttl)) = chosen.next_if(|(mark, _)| mark.slice == index) {
                segments.push(slice.part(start, mark.at));
                let text = self.format.cache_mark(*ttl).as_bytes();
                segments.push(Segment::Made(Cow::Borrowed(text)));
                start = mark.at;
            }
            segments.push(slice.part(start, slice.end));
        };
        if let Some((before, slice)) = self.system {
            segments.push(made(before));
            cut(&slice, None, 0, &mut segments);
        }
        segments.push(made(head));
        for (index, slice) in self.slices.iter().enumerate() {
            // The first element follows a comma as all others do.
            let start = slice.start + usize::from(index == 0);
            cut(slice, Some(index), start, &mut segments);
        }
        segments.push(Segment::Made(Cow::Borrowed(b"]}")));
        segments
    }
}

fn made(json: Json) -> Segment<'static> {
    Segment::Made(Cow::Owned(json.0))
}
