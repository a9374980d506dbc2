//! Putting a request together from what is encoded already.
//!
//! A complete iteration is one stretch of bytes, made when it is first asked for, from its
//! messages' encodings where there are any. The current iteration is put together message by message.

use std::borrow::Cow;

use crate::context::Context;
use crate::error::Error;
use crate::log::hints::Ttl;
use crate::log::iteration::Iteration;
use crate::log::memo::{ByHand, Piece};
use crate::log::message::Message;
use crate::value::Size;
use crate::view::rendering::Rendering;
use crate::view::Stretch;

use crate::provider::format::Format;
use crate::provider::options::Options;
use crate::provider::writer::{self, Writer};
use crate::request::item::{items, Item};
use crate::request::segment::Segment;
use crate::value::builder::Json;

/// Iterations between two cache breakpoints that stay where they are.
const CACHE_STEP: u64 = 5;

/// Cache breakpoints that a request may have.
const CACHE_POINTS: usize = 4;

/// Room for what stands around the texts of an iteration.
const BESIDE_TEXT: usize = 512;

/// A request's list in the making.
pub(crate) struct Body<'a, 'o> {
    context: &'a Context,
    format: &'static dyn Format,
    options: &'o Options<'o>,
    key: u64,
    /// The number of the first iteration that is sent.
    first: u64,
    slices: Vec<Slice<'a>>,
    /// The places that may have a mark, in their order.
    marks: Vec<Mark>,
    /// Whether the last element is the model's; `None` before the first.
    model_last: Option<bool>,
    /// The messages in the last element, when that is as it was imported.
    imported: Vec<Item<'a>>,
    /// Whether the last element is as it was imported.
    ends_imported: bool,
    /// The value of [`Body::model_last`] before that element.
    before_imported: Option<bool>,
    /// The system prompt beside the list, and everything before it.
    system: Option<(Json, Slice<'a>)>,
    /// Bytes that may still be encoded.
    left: usize,
}

/// Where a cache breakpoint may stand.
#[derive(Clone, Copy)]
struct Mark {
    /// The slice; nothing for the system prompt beside the list.
    slice: Option<usize>,
    at: usize,
    /// The number of the iteration.
    number: u64,
    /// For how long, where it was set by hand.
    by_hand: Option<Ttl>,
}

/// Some bytes of a piece.
struct Slice<'a> {
    bytes: Bytes<'a>,
    start: usize,
    end: usize,
    mark: Option<usize>,
    by_hand: Vec<ByHand>,
    begins_with_model: bool,
    begins_with_calls: bool,
    ends_with_model: bool,
    ends_imported: bool,
    /// Whether it was imported and asks for its continuation.
    is_prefix: bool,
    /// Whether it stands before the list begins, where a list begins after its system messages.
    is_before: bool,
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
                by_hand: piece.by_hand.clone(),
                begins_with_model: piece.begins_with_model,
                begins_with_calls: piece.begins_with_calls,
                ends_with_model: piece.ends_with_model,
                ends_imported: piece.ends_imported,
                is_prefix: false,
                is_before: false,
                ..Self::kept(&piece.bytes)
            },
            Err(piece) => Self {
                start: 0,
                end: piece.bytes.len(),
                mark: piece.mark,
                by_hand: piece.by_hand,
                begins_with_model: piece.begins_with_model,
                begins_with_calls: piece.begins_with_calls,
                ends_with_model: piece.ends_with_model,
                ends_imported: piece.ends_imported,
                is_prefix: false,
                is_before: false,
                bytes: Bytes::Made(piece.bytes),
            },
        }
    }

    const fn kept(bytes: &'a [u8]) -> Self {
        Self {
            start: 0,
            end: bytes.len(),
            mark: None,
            by_hand: Vec::new(),
            begins_with_model: false,
            begins_with_calls: false,
            ends_with_model: false,
            ends_imported: false,
            is_prefix: false,
            is_before: false,
            bytes: Bytes::Kept(bytes),
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Kept(kept) => kept,
            Bytes::Made(made) => made,
        }
    }

    fn begins_with(&self, byte: u8) -> bool {
        self.bytes().first() == Some(&byte)
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
            slices: Vec::with_capacity(context.count_iterations() + 8),
            marks: Vec::new(),
            model_last: None,
            imported: Vec::new(),
            ends_imported: false,
            before_imported: None,
            system: None,
            left: options.most,
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
        Ok(self.segments(head, &chosen))
    }

    /// Writes the system prompt, beside the list or as its first element.
    fn add_system(&mut self, system: &'a Message, head: &mut Json) -> Result<(), Error> {
        let item = Item::System(system, self.context.rendering(u64::MAX));
        let slice = match item.imported(self.options) {
            Some(imported) => Slice::kept(imported.as_bytes()),
            None => self.slice(item)?,
        };
        if slice.end == 0 {
            return Ok(());
        }
        // An element of the list follows a comma; Responses knows both forms.
        let key = self.format.system_key();
        let Some(key) = key.filter(|_| !slice.begins_with(b',')) else {
            self.push(slice, 0);
            return Ok(());
        };
        head.value(key);
        head.raw(":");
        self.add_places(None, &slice, 0);
        self.system = Some((std::mem::take(head), slice));
        head.raw(",");
        Ok(())
    }

    /// Adds a slice, whatever comes before it.
    fn push(&mut self, slice: Slice<'a>, number: u64) {
        self.add_places(Some(self.slices.len()), &slice, number);
        self.slices.push(slice);
    }

    fn add_places(&mut self, index: Option<usize>, slice: &Slice<'a>, number: u64) {
        let place = |at, by_hand| Mark {
            slice: index,
            at,
            number,
            by_hand,
        };
        let by_hand = slice.by_hand.iter();
        let is_taken = by_hand.clone().any(|mark| Some(mark.at) == slice.mark);
        self.marks
            .extend(by_hand.map(|mark| place(mark.at, Some(mark.ttl))));
        if let Some(at) = slice.mark.filter(|_| self.options.cache && !is_taken) {
            self.marks.push(place(at, None));
        }
    }

    fn add_iterations(&mut self) -> Result<(), Error> {
        let mut steps = self.context.sent(self.options).peekable();
        while let Some(stretch) = steps.next() {
            match stretch {
                Stretch::Iteration(iteration, rendering) => {
                    let behind = match steps.peek() {
                        Some(Stretch::Cover(first, ..)) => self.context.log.numbered(*first),
                        _ => None,
                    };
                    self.add_iteration(iteration, rendering, behind)?;
                }
                Stretch::Cover(_, last, summary, rendering) => {
                    // Elements imported before it do not contain the messages after it.
                    self.ends_imported = false;
                    if let Some(summary) = summary {
                        self.add_item(Item::Message(summary, rendering), last)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds an iteration; `behind` is the one after it that is not shown.
    fn add_iteration(
        &mut self,
        iteration: &'a Iteration,
        rendering: Rendering<'a>,
        behind: Option<&Iteration>,
    ) -> Result<(), Error> {
        let known = Context::known_items(iteration, self.first, self.options);
        if known > 0 {
            return self.add_items(iteration, rendering, known);
        }
        let key = self.key ^ rendering.key_of_iteration(iteration);
        let holds_hidden = behind.is_some_and(|behind| {
            // Hidden messages stand in the last element of this iteration, as it was imported.
            let mut hidden = items(behind, Rendering::PLAIN, self.options);
            hidden.next().and_then(|item| item.imported(self.options)) == Some("")
        });
        if holds_hidden {
            for item in items(iteration, rendering, self.options) {
                self.add_item(item, iteration.number)?;
            }
        } else if rendering.pairs.is_some() {
            // What is sent of it depends on other iterations.
            self.spend(iteration.size())?;
            self.add_items(iteration, rendering, 0)?;
        } else if let Some(piece) = iteration.pieces().get(key) {
            self.add(Slice::of(Ok(piece)), iteration.number);
        } else if iteration.number < self.context.current_iteration()
            && self.is_whole(iteration, rendering)
        {
            self.spend(iteration.size())?;
            let piece = iteration
                .pieces()
                .get_or_make(key, || self.encode(iteration, rendering));
            self.add(Slice::of(piece), iteration.number);
        } else {
            self.add_items(iteration, rendering, 0)?;
        }
        Ok(())
    }

    /// Whether an iteration's elements are the same whatever comes before it. Imported ones
    /// may have to be made anew where roles alternate, or begin in the iteration before.
    fn is_whole(&self, iteration: &Iteration, rendering: Rendering<'_>) -> bool {
        let imported =
            || items(iteration, rendering, self.options).map(|item| item.imported(self.options));
        if self.format.knows_prefixes() && imported().flatten().any(is_prefix) {
            return false;
        }
        if items(iteration, rendering, self.options)
            .next()
            .is_some_and(|item| self.is_before(item))
        {
            return false;
        }
        let mut imported = imported();
        if self.format.alternates() {
            imported.all(|elements| elements.is_none())
        } else if rendering.key_of_iteration(iteration) != 0 {
            // The element that holds another message may be the one that looks different.
            imported.all(|elements| elements != Some(""))
        } else {
            imported.next() != Some(Some(""))
        }
    }

    /// All elements of an iteration, each written right after the one before.
    fn encode(&self, iteration: &Iteration, rendering: Rendering<'_>) -> Piece {
        let mut whole = Piece::default();
        let shift = |mark: &ByHand, at| ByHand { at, ttl: mark.ttl };
        let mut bytes = Vec::with_capacity(iteration.size().bytes + BESIDE_TEXT);
        for item in items(iteration, rendering, self.options) {
            let is_model = item.is_model();
            let start = bytes.len();
            let mut mark = None;
            let mut by_hand = Vec::new();
            let imported = item.imported(self.options);
            if let Some(elements) = imported {
                bytes.extend_from_slice(elements.as_bytes());
            } else if let Some(kept) = item.pieces().get(self.key ^ item.rendering()) {
                bytes.extend_from_slice(&kept.bytes);
                mark = kept.mark.map(|mark| start + mark);
                let kept = kept.by_hand.iter();
                by_hand.extend(kept.map(|mark| shift(mark, start + mark.at)));
            } else {
                let mut out = Writer::behind(bytes, self.options, self.format);
                item.render(self.format, &mut out);
                (bytes, mark, by_hand) = out.into_parts();
            }
            if bytes.len() == start {
                continue;
            }
            if start == 0 {
                whole.begins_with_model = is_model;
                whole.begins_with_calls = item.calls();
            } else if self.joins(Some(whole.ends_with_model), is_model) {
                // Without the end of the one and the beginning of the other, and with a comma.
                let seam = start - writer::CLOSE.len()..start + writer::open(is_model).len();
                mark = mark.map(|mark| mark - seam.len() + 1);
                for mark in &mut by_hand {
                    mark.at -= seam.len() - 1;
                }
                bytes.splice(seam, [b',']);
            }
            whole.mark = mark.or(whole.mark);
            whole.by_hand.append(&mut by_hand);
            whole.ends_with_model = is_model;
            whole.ends_imported = imported.is_some();
        }
        whole.bytes = bytes.into_boxed_slice();
        whole
    }

    /// Adds the items of an iteration after those that the provider knows.
    fn add_items(
        &mut self,
        iteration: &'a Iteration,
        rendering: Rendering<'a>,
        known: usize,
    ) -> Result<(), Error> {
        for item in items(iteration, rendering, self.options).skip(known) {
            let imported = item.imported(self.options);
            if imported.is_none() && item.elements(self.options) == Some("") && self.ends_imported {
                // The element before has it, as it was.
                self.remake_imported(iteration.number);
            }
            match imported {
                // The element before has it.
                Some("") if self.ends_imported => self.imported.push(item),
                Some(elements)
                    if !elements.is_empty() && !self.joins(self.model_last, item.is_model()) =>
                {
                    let mut slice = Slice::kept(elements.as_bytes());
                    slice.begins_with_model = item.is_model();
                    slice.begins_with_calls = item.calls();
                    slice.ends_with_model = item.is_model();
                    slice.ends_imported = true;
                    slice.is_before = self.is_before(item);
                    slice.is_prefix = self.format.knows_prefixes() && is_prefix(elements);
                    self.add(slice, iteration.number);
                    self.imported.push(item);
                }
                _ => self.add_item(item, iteration.number)?,
            }
        }
        Ok(())
    }

    fn add_item(&mut self, item: Item<'a>, number: u64) -> Result<(), Error> {
        let mut slice = self.slice(item)?;
        slice.is_before = self.is_before(item);
        self.add(slice, number);
        Ok(())
    }

    /// What the rules make of an item.
    fn slice(&mut self, item: Item<'a>) -> Result<Slice<'a>, Error> {
        let key = self.key ^ item.rendering();
        self.spend_unless(item.pieces().get(key).is_some(), item.size())?;
        let (format, options) = (self.format, self.options);
        let encode = || item.encode(format, options);
        Ok(Slice::of(item.pieces().get_or_make(key, encode)))
    }

    /// Mistral counts system messages as no beginning: a call after them has none of the user before it.
    fn is_before(&self, item: Item<'_>) -> bool {
        item.is_system() && self.format.user_before_calls() && !self.format.user_first()
    }

    fn spend_unless(&mut self, is_kept: bool, size: Size) -> Result<(), Error> {
        if is_kept {
            return Ok(());
        }
        self.spend(size)
    }

    /// Counts what is not encoded yet; a number or a key takes a few bytes, too.
    fn spend(&mut self, size: Size) -> Result<(), Error> {
        let size = match self.context.view() {
            Some(view) => view.cost(size),
            None => size,
        };
        let bytes = size.bytes.saturating_add(size.terms.saturating_mul(8));
        self.left = self.left.checked_sub(bytes).ok_or(Error::TooMuchWork)?;
        Ok(())
    }

    /// Whether what begins with this role has to go on in the element before it.
    fn joins(&self, model_last: Option<bool>, begins_with_model: bool) -> bool {
        self.format.alternates() && model_last == Some(begins_with_model)
    }

    fn add(&mut self, mut slice: Slice<'a>, number: u64) {
        if slice.end == 0 {
            return;
        }
        let begins_with_model = slice.begins_with_model;
        if self.joins(self.model_last, begins_with_model) {
            self.remake_imported(number);
        }
        if self.ends_with_prefix() {
            // Only the last message may ask for its continuation.
            self.remake_imported(number);
        }
        let wants_user = match slice.begins_with_calls {
            true => self.format.user_before_calls(),
            false => self.format.user_first(),
        };
        if self.model_last.is_none() && begins_with_model && wants_user {
            self.stand_in();
        }
        if self.joins(self.model_last, begins_with_model) {
            // The element before goes on: without its end, and without our beginning.
            if let Some(last) = self.slices.last_mut() {
                last.end -= writer::CLOSE.len();
            }
            self.slices.push(Slice::kept(b","));
            slice.start = writer::open(begins_with_model).len();
        }
        self.imported.clear();
        self.before_imported = self.model_last;
        if !slice.is_before {
            self.model_last = Some(slice.ends_with_model);
        }
        self.ends_imported = slice.ends_imported;
        self.push(slice, number);
    }

    /// Makes the last element by the rules, if it is an imported one, whose form may be any. There
    /// may be nothing left of it then.
    fn remake_imported(&mut self, number: u64) {
        if self.imported.is_empty() {
            return;
        }
        self.slices.pop();
        let len = self.slices.len();
        self.marks.retain(|mark| mark.slice < Some(len));
        self.model_last = self.before_imported;
        for item in std::mem::take(&mut self.imported) {
            self.add(
                Slice::of(Err(item.encode(self.format, self.options))),
                number,
            );
        }
    }

    fn stand_in(&mut self) {
        self.slices
            .push(Slice::kept(self.format.stand_in().as_bytes()));
        self.model_last = Some(false);
    }

    /// A list that says nothing, or ends with the model where it must not, gets a user message; so does
    /// one that ends with an answer that broke off, for many models go on from no words of their own.
    fn close(&mut self) {
        let ends_with_model = self.model_last == Some(true) && !self.ends_with_prefix();
        let wants_user = self.format.user_last() || self.context.breaks_off();
        if self.model_last.is_none() || (wants_user && ends_with_model) {
            self.stand_in();
        }
    }

    /// Whether the last element was imported and asks for its continuation.
    fn ends_with_prefix(&self) -> bool {
        self.slices.last().is_some_and(|last| last.is_prefix)
    }

    /// The cache breakpoints: those set by hand, the newest first; then the one in the system prompt, the
    /// last of all, and the newest of those that stay where they are while the conversation grows.
    fn choose_marks(&self) -> Vec<(Mark, Ttl)> {
        let (by_hand, placed): (Vec<Mark>, Vec<Mark>) =
            self.marks.iter().partition(|mark| mark.by_hand.is_some());
        let room = match by_hand.is_empty() {
            true => CACHE_POINTS,
            // What was imported has its own.
            false => CACHE_POINTS.saturating_sub(self.count_imported()),
        };
        let mut chosen: Vec<Mark> = by_hand.into_iter().rev().take(room).collect();
        chosen.extend(self.choose_placed(&placed, room - chosen.len()));
        chosen.sort_by_key(|mark| (mark.slice, mark.at));
        // Providers refuse an entry kept for an hour after one kept for minutes.
        let hour = |mark: &Mark| mark.by_hand == Some(Ttl::Hour);
        let hours = chosen.iter().rposition(hour).map_or(0, |last| last + 1);
        let ttl = |(index, mark): (usize, Mark)| match mark.by_hand {
            _ if index < hours => (mark, Ttl::Hour),
            ttl => (mark, ttl.unwrap_or(Ttl::Default)),
        };
        chosen.into_iter().enumerate().map(ttl).collect()
    }

    fn choose_placed(&self, placed: &[Mark], room: usize) -> Vec<Mark> {
        let (system, rest): (Vec<Mark>, Vec<Mark>) =
            placed.iter().partition(|mark| mark.slice.is_none());
        let mut chosen = system;
        let mut newest_first = rest.iter().rev();
        chosen.extend(newest_first.next());
        let mut last = self.context.current_iteration();
        for mark in newest_first {
            if mark.number % CACHE_STEP == 0 && mark.number < last {
                chosen.push(*mark);
                last = mark.number;
            }
        }
        chosen.truncate(room);
        chosen
    }

    /// Cache breakpoints in what was imported: no text can look like one.
    fn count_imported(&self) -> usize {
        let sign = match self.format.cache_mark(Ttl::Default) {
            "" => return 0,
            mark => mark.trim_start_matches([',', '{']),
        };
        let sign = sign.split_inclusive(":{").next().unwrap_or(sign).as_bytes();
        let system = self.system.iter().map(|(_, slice)| slice);
        let slices = system.chain(&self.slices);
        slices
            .map(|slice| {
                slice
                    .bytes()
                    .windows(sign.len())
                    .filter(|at| *at == sign)
                    .count()
            })
            .sum()
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

/// Within a text, the quotation marks would be escaped.
fn is_prefix(elements: &str) -> bool {
    elements.contains("\"prefix\":true")
}

fn made(json: Json) -> Segment<'static> {
    Segment::Made(Cow::Owned(json.0))
}
