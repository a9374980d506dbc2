//! Putting a request together from what is encoded already.
//!
//! A complete iteration is one stretch of bytes, made when it is first asked for, from its
//! messages' encodings where there are any. The current iteration is put together message by message.

use std::borrow::Cow;

use crate::context::Context;
use crate::error::Error;
use crate::iteration::Iteration;
use crate::message::Message;
use crate::pieces::Piece;

use super::json::Json;
use super::out::{self, Out};
use super::{items, Item, Options, Segment, Wire};

/// Iterations between two cache breakpoints that stay where they are.
const CACHE_STEP: u64 = 5;

/// Cache breakpoints that a request may have.
const CACHE_POINTS: usize = 4;

/// A request's list in the making.
pub(super) struct Assembly<'a, 'o> {
    context: &'a Context,
    wire: &'static dyn Wire,
    options: &'o Options<'o>,
    key: u64,
    slices: Vec<Slice<'a>>,
    /// The slices that have a mark, with the number of their iteration.
    marks: Vec<(usize, u64)>,
    /// Whether the last element is the model's; `None` in front of the first.
    model_last: Option<bool>,
    /// The messages in the last element, when that is as it was imported.
    imported: Vec<Item<'a>>,
    /// Bytes that may still be encoded.
    left: usize,
}

/// Some bytes of a piece.
struct Slice<'a> {
    bytes: Bytes<'a>,
    start: usize,
    end: usize,
    mark: Option<usize>,
    begins_with_model: bool,
    ends_with_model: bool,
}

enum Bytes<'a> {
    Kept(&'a [u8]),
    Made(Box<[u8]>),
}

impl<'a> Slice<'a> {
    fn of(piece: Result<&'a Piece, Piece>) -> Self {
        match piece {
            Ok(piece) => Self {
                mark: piece.mark,
                begins_with_model: piece.begins_with_model,
                ends_with_model: piece.ends_with_model,
                ..Self::kept(&piece.bytes)
            },
            Err(piece) => Self {
                start: 0,
                end: piece.bytes.len(),
                mark: piece.mark,
                begins_with_model: piece.begins_with_model,
                ends_with_model: piece.ends_with_model,
                bytes: Bytes::Made(piece.bytes),
            },
        }
    }

    const fn kept(bytes: &'a [u8]) -> Self {
        Self {
            start: 0,
            end: bytes.len(),
            mark: None,
            begins_with_model: false,
            ends_with_model: false,
            bytes: Bytes::Kept(bytes),
        }
    }

    fn part(&self, start: usize, end: usize) -> Segment<'a> {
        match &self.bytes {
            Bytes::Kept(kept) => Segment::Kept(kept.get(start..end).unwrap_or_default()),
            Bytes::Made(made) => Segment::Made(Cow::Owned(
                made.get(start..end).unwrap_or_default().to_vec(),
            )),
        }
    }
}

impl<'a, 'o> Assembly<'a, 'o> {
    pub fn new(context: &'a Context, wire: &'static dyn Wire, options: &'o Options<'o>) -> Self {
        Self {
            context,
            wire,
            options,
            key: options.key(),
            slices: Vec::with_capacity(context.count_iterations() + 8),
            marks: Vec::new(),
            model_last: None,
            imported: Vec::new(),
            left: options.most,
        }
    }

    /// The request: `head` holds the caller's fields.
    pub fn finish(mut self, mut head: Json) -> Result<Vec<Segment<'a>>, Error> {
        let mut breakpoints = CACHE_POINTS;
        if let Some(system) = self.context.system() {
            breakpoints -= self.add_system(system, &mut head);
        }
        head.value(self.wire.list());
        head.raw(":[");
        self.add_iterations()?;
        self.close();
        let chosen = self.choose_marks(breakpoints);
        Ok(self.segments(head, &chosen))
    }

    /// Writes the system prompt, beside the list or as its first element, and counts its breakpoints.
    fn add_system(&mut self, system: &'a Message, head: &mut Json) -> usize {
        let mut out = Out::new(self.options);
        match Item::Message(system).imported(self.options) {
            Some(imported) => out.json.raw(imported),
            None => self.wire.system(system, &mut out),
        }
        let piece = out.piece();
        if piece.bytes.is_empty() {
            return 0;
        }
        // An element of the list has a comma in front; Responses knows both forms.
        let key = self.wire.system_key();
        let Some(key) = key.filter(|_| !piece.bytes.starts_with(b",")) else {
            self.slices.push(Slice::of(Err(piece)));
            return 0;
        };
        let mark = piece.mark.filter(|_| self.options.cache);
        head.value(key);
        head.raw(":");
        let (before, after) = piece.bytes.split_at(mark.unwrap_or(0));
        head.0.extend_from_slice(before);
        if mark.is_some() {
            head.raw(self.wire.cache_mark());
        }
        head.0.extend_from_slice(after);
        head.raw(",");
        usize::from(mark.is_some())
    }

    fn add_iterations(&mut self) -> Result<(), Error> {
        let current = self.context.current_iteration();
        for iteration in self.context.sent(self.options.from) {
            if let Some(piece) = iteration.pieces().get(self.key) {
                self.add(Slice::of(Ok(piece)), iteration.number);
            } else if iteration.number < current && !self.has_imported(iteration) {
                self.spend(iteration.size().bytes)?;
                let piece = iteration
                    .pieces()
                    .get_or_make(self.key, || self.encode(iteration));
                self.add(Slice::of(piece), iteration.number);
            } else {
                self.add_items(iteration)?;
            }
        }
        Ok(())
    }

    fn has_imported(&self, iteration: &Iteration) -> bool {
        items(iteration).any(|item| item.imported(self.options).is_some())
    }

    /// All elements of an iteration.
    fn encode(&self, iteration: &Iteration) -> Piece {
        let mut whole = Piece::default();
        let mut bytes = Vec::new();
        for item in items(iteration) {
            let made;
            let piece = if let Some(kept) = item.pieces().get(self.key) {
                kept
            } else {
                made = item.encode(self.wire, self.options);
                &made
            };
            if piece.bytes.is_empty() {
                continue;
            }
            let mut start = 0;
            if bytes.is_empty() {
                whole.begins_with_model = piece.begins_with_model;
            } else if self.joins(Some(whole.ends_with_model), piece.begins_with_model) {
                bytes.truncate(bytes.len() - out::CLOSE.len());
                bytes.push(b',');
                start = out::open(piece.begins_with_model).len();
            }
            if let Some(mark) = piece.mark {
                whole.mark = Some(bytes.len() + mark - start);
            }
            bytes.extend_from_slice(piece.bytes.get(start..).unwrap_or_default());
            whole.ends_with_model = piece.ends_with_model;
        }
        whole.bytes = bytes.into_boxed_slice();
        whole
    }

    fn add_items(&mut self, iteration: &'a Iteration) -> Result<(), Error> {
        for item in items(iteration) {
            let imported = item.imported(self.options);
            match imported {
                // The element in front has it.
                Some("") if !self.imported.is_empty() => self.imported.push(item),
                Some(elements)
                    if !elements.is_empty() && !self.joins(self.model_last, item.is_model()) =>
                {
                    let mut slice = Slice::kept(elements.as_bytes());
                    slice.begins_with_model = item.is_model();
                    slice.ends_with_model = item.is_model();
                    self.add(slice, iteration.number);
                    self.imported.push(item);
                }
                _ => self.add_item(item, iteration.number)?,
            }
        }
        Ok(())
    }

    fn add_item(&mut self, item: Item<'a>, number: u64) -> Result<(), Error> {
        if item.pieces().get(self.key).is_none() {
            self.spend(item.size().bytes)?;
        }
        let (wire, options) = (self.wire, self.options);
        let piece = item
            .pieces()
            .get_or_make(self.key, || item.encode(wire, options));
        self.add(Slice::of(piece), number);
        Ok(())
    }

    /// Counts what is not encoded yet.
    fn spend(&mut self, bytes: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(bytes).ok_or(Error::TooMuchWork)?;
        Ok(())
    }

    /// Whether what begins with this role has to go on in the element in front of it.
    fn joins(&self, model_last: Option<bool>, begins_with_model: bool) -> bool {
        self.wire.alternates() && model_last == Some(begins_with_model)
    }

    fn add(&mut self, mut slice: Slice<'a>, number: u64) {
        if slice.end == 0 {
            return;
        }
        let begins_with_model = slice.begins_with_model;
        if self.model_last.is_none() && begins_with_model && self.wire.user_first() {
            self.stand_in();
        }
        if self.joins(self.model_last, begins_with_model) {
            self.remake_imported(number);
            // The element before goes on: without its end, and without our beginning.
            if let Some(last) = self.slices.last_mut() {
                last.end -= out::CLOSE.len();
            }
            self.slices.push(Slice::kept(b","));
            slice.start = out::open(begins_with_model).len();
        }
        self.imported.clear();
        if slice.mark.is_some() {
            self.marks.push((self.slices.len(), number));
        }
        self.model_last = Some(slice.ends_with_model);
        self.slices.push(slice);
    }

    /// Makes the last element by the rules, if it is an imported one, whose form may be any.
    fn remake_imported(&mut self, number: u64) {
        if self.imported.is_empty() {
            return;
        }
        self.slices.pop();
        // With another role in front, so that the first of them does not join.
        self.model_last = self.model_last.map(|is_model| !is_model);
        for item in std::mem::take(&mut self.imported) {
            self.add(Slice::of(Err(item.encode(self.wire, self.options))), number);
        }
    }

    fn stand_in(&mut self) {
        self.slices
            .push(Slice::kept(self.wire.stand_in().as_bytes()));
        self.model_last = Some(false);
    }

    /// A list that says nothing, or ends with the model where it must not, gets a user message.
    fn close(&mut self) {
        if self.model_last.is_none() || (self.wire.user_last() && self.model_last == Some(true)) {
            self.stand_in();
        }
    }

    /// The slices with a cache breakpoint: the last one, and the newest of those that stay where
    /// they are while the conversation grows.
    fn choose_marks(&self, breakpoints: usize) -> Vec<usize> {
        if !self.options.cache {
            return Vec::new();
        }
        let mut newest_first = self.marks.iter().rev();
        let mut chosen: Vec<usize> = newest_first.next().map(|mark| mark.0).into_iter().collect();
        let current = self.context.current_iteration();
        let mut last = current;
        for (slice, number) in newest_first {
            if chosen.len() == breakpoints {
                break;
            }
            if number % CACHE_STEP == 0 && *number < last {
                chosen.push(*slice);
                last = *number;
            }
        }
        chosen
    }

    fn segments(self, head: Json, marked: &[usize]) -> Vec<Segment<'a>> {
        let mut segments = Vec::with_capacity(self.slices.len() + 2 * marked.len() + 2);
        segments.push(Segment::Made(Cow::Owned(head.0)));
        for (index, slice) in self.slices.iter().enumerate() {
            // The first element has a comma in front as all others do.
            let start = slice.start + usize::from(index == 0);
            match slice.mark.filter(|_| marked.contains(&index)) {
                Some(mark) => {
                    segments.push(slice.part(start, mark));
                    let text = self.wire.cache_mark().as_bytes();
                    segments.push(Segment::Made(Cow::Borrowed(text)));
                    segments.push(slice.part(mark, slice.end));
                }
                None => segments.push(slice.part(start, slice.end)),
            }
        }
        segments.push(Segment::Made(Cow::Borrowed(b"]}")));
        segments
    }
}
