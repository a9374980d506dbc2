//! Keeps pieces of a request: those of one iteration, and larger ones.
//!
//! A complete iteration is one run of bytes, made on first use, from its messages' encodings if there are any. Sixteen of them
//! become one run, and sixteen of those again.

use std::sync::Arc;

use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::log::original::Original;
use crate::log::piece::{ByHand, Kept, Piece, Shape};
use crate::provider::facts::Rule;
use crate::provider::writer::{self, Writer};
use crate::request::body::{Body, Run, JOINED};
use crate::request::item::{items, resolve_units, Item};
use crate::request::slice::Slice;
use crate::value::Size;
use crate::view::rendering::Rendering;

/// The number of pieces that are joined into a larger one.
const FANOUT: u64 = 16;

/// The bytes reserved for the JSON around the texts of an iteration.
const BESIDE_TEXT: usize = 512;

impl<'a> Body<'a, '_> {
    /// Encodes as many iterations from `first` on as make one piece, and returns how many. Returns nothing if the first stays
    /// alone.
    pub(super) fn add_largest_group(
        &mut self,
        first: u64,
        rendering: Rendering<'a>,
        until: u64,
    ) -> Option<u64> {
        let sizes = [FANOUT * FANOUT, FANOUT].into_iter();
        let mut sizes = sizes.filter(|size| {
            let group = self.group(first, *size, rendering, until);
            group.is_some_and(|group| self.add_group(&group, rendering).is_some())
        });
        sizes.next()
    }

    /// Encodes iterations into the piece that they would be joined into. Returns nothing if they would not be joined.
    fn add_group(&mut self, group: &[&'a Iteration], rendering: Rendering<'a>) -> Option<()> {
        let first = group.first()?.number;
        let size: Size = group.iter().map(|iteration| iteration.size()).sum();
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
        let longest = group.iter().map(|iteration| iteration.longest);
        let piece = Arc::new(Piece::of(bytes, parts, longest.max().unwrap_or(0)));
        for (part, iteration) in group.iter().enumerate() {
            let piece = piece.clone();
            iteration.pieces().keep(self.key, Kept { piece, part });
            self.forget_items(iteration, rendering);
        }
        self.add_kept(Kept { piece, part: 0 }, group.len(), first, self.key);
        Some(())
    }

    /// Returns `size` iterations from `first` on, if it is known before encoding that they make one piece.
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
            let iteration = self.context.log.get_numbered(number)?;
            let is_new = iteration.pieces().find(self.key).is_none();
            let is_plain = rendering.is_plain(iteration.longest);
            (is_new && is_plain && self.is_whole(iteration, rendering)).then_some(iteration)
        };
        (first..first + size).map(belongs).collect()
    }

    /// Drops the pieces of an iteration's messages, since the iteration's own piece has their bytes.
    pub(super) fn forget_items(&self, iteration: &'a Iteration, rendering: Rendering<'a>) {
        for item in items(iteration, rendering, self.options) {
            item.pieces().forget(self.key ^ item.rendering());
        }
    }

    /// Returns how many iterations from `number` on are in the same piece, one after the other.
    ///
    /// A piece has iterations of one conversation. If another conversation has the first and the last of some iterations, it also
    /// has those between them: a change to the messages of an iteration removes all later ones.
    pub(super) fn count_kept(&self, kept: &Kept, number: u64, until: u64) -> usize {
        let parts = (kept.piece.count() - kept.part) as u64;
        let most = parts.min((until + 1).saturating_sub(number)).max(1);
        let is_next = |count: u64| {
            let other = self.context.log.get_numbered(number + count);
            let other = other.and_then(|iteration| iteration.pieces().find(self.key));
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

    /// Adds the kept piece of some iterations, and joins it with the one before it.
    pub(super) fn add_kept(&mut self, kept: Kept, count: usize, number: u64, key: u64) {
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

    /// Joins the pieces before an iteration if they complete a larger one.
    fn join(&mut self, end: u64) {
        let before = end - self.context.first_number();
        let sizes = std::iter::successors(Some(FANOUT), |size| size.checked_mul(FANOUT));
        for size in sizes.take_while(|size| before.is_multiple_of(*size)) {
            if self.join_from(end - size).is_none() {
                return;
            }
        }
    }

    /// Joins the pieces from an iteration on. Does nothing if none begins with it, or if there are too many bytes for one.
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
        let iterations = self.context.log.between(first, run.end.checked_sub(1)?);
        let longest = iterations.clone().map(|iteration| iteration.longest).max();
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
        // If two threads join the same pieces, the one that is first at the last iteration does it.
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

    /// Returns whether an iteration's elements are the same whatever stands around it. Imported ones may have to be written anew
    /// if roles must alternate, or may share elements with neighbours.
    pub(super) fn is_whole(&self, iteration: &Iteration, rendering: Rendering<'_>) -> bool {
        let next = self.context.log.get_numbered(iteration.number + 1);
        if self.is_held(iteration) || next.is_some_and(|next| self.is_held(next)) {
            return false;
        }
        let alternates = self.facts.has(Rule::Alternates);
        let is_bound = |item: Item<'_>| {
            let imported = item.imported_elements(self.options);
            imported.is_some_and(|elements| {
                alternates || self.facts.continues(elements) || self.is_before(item)
            }) || self.is_row(item)
        };
        !items(iteration, rendering, self.options).any(is_bound)
    }

    /// Returns whether the iteration before it has the elements of its first message.
    pub(super) fn is_held(&self, iteration: &Iteration) -> bool {
        let first = iteration.entries().next();
        let original = first.and_then(Entry::first_original);
        Original::of(original, self.options.provider) == Some("")
    }

    /// Returns all elements of an iteration.
    pub(super) fn encode(&self, iteration: &Iteration, rendering: Rendering<'_>) -> Piece {
        let bytes = Vec::with_capacity(iteration.size().bytes + BESIDE_TEXT);
        let (bytes, shape, by_hand) = self.encode_behind(bytes, iteration, rendering);
        Piece::new(bytes, shape, by_hand)
    }

    /// Appends all elements of an iteration to other bytes.
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
        let items: Vec<_> = items(iteration, rendering, self.options).collect();
        for (item, imported) in resolve_units(&items, self.options) {
            let is_model = item.is_model();
            let start = bytes.len();
            let mut mark = None;
            let mut by_hand = Vec::new();
            if let Some(elements) = imported {
                bytes.extend_from_slice(elements.as_bytes());
            } else if let Some(Kept { piece, part }) =
                item.pieces().find(self.key ^ item.rendering())
            {
                bytes.extend_from_slice(piece.bytes());
                mark = piece.shape(part).mark.map(|mark| start + mark);
                let kept = piece.by_hand.iter();
                by_hand.extend(kept.map(|mark| shift(mark, start + mark.at)));
            } else {
                let mut out = Writer::behind(bytes, self.options);
                item.render(&mut out);
                (bytes, mark, by_hand) = out.into_parts();
            }
            if bytes.len() == start {
                continue;
            }
            if start == begin {
                shape.begins_with_model = is_model;
                shape.begins_with_calls = item.calls();
            } else if self.joins(Some(shape.ends_with_model), is_model) {
                // Leaves out the end of the one and the beginning of the other, and adds a comma.
                let seam = start - writer::CLOSE.len()..start + writer::open(is_model).len();
                mark = mark.map(|mark| mark - seam.len() + 1);
                for mark in &mut by_hand {
                    mark.at -= seam.len() - 1;
                }
                bytes.splice(seam, [b',']);
            }
            if is_model {
                (shape.asked, shape.has_model) = (shape.mark, true);
            }
            shape.mark = mark.or(shape.mark);
            all_by_hand.append(&mut by_hand);
            shape.ends_with_model = is_model;
        }
        (bytes, shape, all_by_hand)
    }
}
