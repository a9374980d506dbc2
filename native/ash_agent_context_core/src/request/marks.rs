//! Places the cache breakpoints of a request, and cuts the request there.

use crate::context::cache::Worth;
use crate::log::hints::Ttl;
use crate::request::body::Body;
use crate::request::segment::Segment;
use crate::request::slice::{Mark, Side, Slice};
use crate::value::builder::Json;

/// The number of iterations between two cache breakpoints that stay in place.
const CACHE_STEP: u64 = 5;

/// The most cache breakpoints that a request may have.
const CACHE_POINTS: usize = 4;

impl<'a> Body<'a, '_> {
    /// Returns the cache breakpoints: those set by hand, the newest first; then the last of all, the one at the end of the last
    /// request, the one before the first uncleared result, the one in the system prompt, and the newest of those that stay in place
    /// while the conversation grows.
    pub(super) fn choose_marks(&self) -> Vec<(Mark, Ttl)> {
        if !self.options.cache && !self.any(Slice::is_marked) {
            return Vec::new(); // most requests
        }
        let by_hand = self.list_marked();
        let by_hand = by_hand.flat_map(|(index, slice)| slice.by_hand(index));
        let by_hand: Vec<Mark> = by_hand.collect();
        let room = match by_hand.is_empty() {
            true => CACHE_POINTS,
            // Imported messages have breakpoints of their own.
            false => CACHE_POINTS.saturating_sub(self.count_imported()),
        };
        let mut chosen: Vec<Mark> = by_hand.into_iter().rev().take(room).collect();
        chosen.extend(self.choose_placed(room - chosen.len()));
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

    /// Returns the position of each in the bytes of the system prompt and the list.
    pub(super) fn find_marks(&self) -> Vec<u64> {
        let chosen = self.choose_marks().into_iter();
        chosen.map(|(mark, _)| self.bytes_until(&mark)).collect()
    }

    fn bytes_until(&self, mark: &Mark) -> u64 {
        let mut before = 0;
        for (index, slice) in self.list_marked() {
            if index == mark.slice {
                return before + mark.at.saturating_sub(slice.start) as u64;
            }
            before += slice.len();
        }
        before
    }

    fn choose_placed(&self, room: usize) -> Vec<Mark> {
        if !self.options.cache {
            return Vec::new();
        }
        let system = self.system.iter();
        let system = system.flat_map(|(_, slice)| slice.places(None, u64::MAX));
        let mut newest_first = self.list_places(u64::MAX);
        let newest = newest_first.next();
        // It stands before the model's last message, wherever the provider looks back from and however it counts.
        let mut is_passed = newest.is_some_and(|mark| mark.side == Side::Behind);
        let asked = newest_first.find(|mark| {
            let is_asked = is_passed || mark.side == Side::Before;
            is_passed |= mark.side == Side::Behind;
            is_asked
        });
        let asked_bytes = asked.map_or(0, |mark| self.bytes_until(&mark));
        let all: u64 = self.list_marked().map(|(_, slice)| slice.len()).sum();
        let newest = match self.context.find_worth(all.saturating_sub(asked_bytes)) {
            Worth::Nothing => return system.collect(),
            Worth::UpTo(most, of) => {
                let room = u128::from(asked_bytes) * u128::from(most);
                let fits =
                    |mark: &Mark| u128::from(self.bytes_until(mark)) * u128::from(of) <= room;
                let placed = asked.into_iter().chain(newest_first).find(fits);
                return system.chain(placed).collect();
            }
            worth => newest.filter(|_| worth == Worth::All),
        };
        let [last, own] = self.context.first_uncleared();
        let before = |number: Option<u64>| {
            let number = number.unwrap_or(self.first);
            let mut places = self.list_places(number);
            places.find(|mark| mark.number < number || mark.side == Side::Before)
        };
        // Where other results are cleared than in the last request, only what stands before them is read, and that again when the
        // next ones are cleared.
        let asked = match last == own {
            true => asked,
            false => before(last.min(own)),
        };
        let uncleared = own.and_then(|_| before(own));
        let mut chosen: Vec<Mark> = Vec::with_capacity(CACHE_POINTS);
        let mut add = |mark: Mark| {
            let place = |mark: &Mark| (mark.slice, mark.at);
            let is_new = chosen.iter().all(|one| place(one) != place(&mark));
            if is_new && chosen.len() < room {
                chosen.push(mark);
            }
            chosen.len() < room
        };
        let placed = [newest, asked, uncleared].into_iter().flatten();
        let mut has_room = placed.chain(system).fold(room > 0, |_, mark| add(mark));
        let mut last = self.context.current_iteration();
        while has_room {
            let is_next = |mark: &Mark| {
                mark.side != Side::Before
                    && mark.number.is_multiple_of(CACHE_STEP)
                    && mark.number < last
            };
            let Some(mark) = newest_first.find(is_next) else {
                break;
            };
            last = mark.number;
            has_room = add(mark);
        }
        chosen
    }

    /// Returns the places for a breakpoint in the list up to an iteration, newest first.
    fn list_places(&self, until: u64) -> impl Iterator<Item = Mark> + '_ {
        let slices = self.slices.iter().enumerate().rev();
        slices.flat_map(move |(index, slice)| slice.places(Some(index), until))
    }

    /// Returns everything that may have a cache breakpoint, the system prompt first.
    pub(super) fn list_marked(&self) -> impl Iterator<Item = (Option<usize>, &Slice<'a>)> {
        let system = self.system.iter().map(|(_, slice)| (None, slice));
        let slices = self.slices.iter().enumerate();
        system.chain(slices.map(|(index, slice)| (Some(index), slice)))
    }

    /// Returns the number of cache breakpoints in imported elements. No text can look like one.
    fn count_imported(&self) -> usize {
        let sign = match (self.facts.cache_mark)(Ttl::Default) {
            "" => return 0,
            mark => mark.trim_start_matches([',', '{']),
        };
        let sign = sign.split_inclusive(":{").next().unwrap_or(sign).as_bytes();
        let windows = |slice: &'_ Slice<'a>| -> usize {
            let windows = slice.bytes().windows(sign.len());
            windows.filter(|at| *at == sign).count()
        };
        self.list_marked().map(|(_, slice)| windows(slice)).sum()
    }

    /// Returns whether any slice that is sent is such a one, including the system prompt.
    fn any(&self, is_such: impl Fn(&Slice<'a>) -> bool) -> bool {
        self.list_marked().any(|(_, slice)| is_such(slice))
    }

    pub(super) fn segments(self, head: Json, chosen: &[(Mark, Ttl)]) -> Vec<Segment<'a>> {
        let mut segments = Vec::with_capacity(self.slices.len() + 2 * chosen.len() + 4);
        let mut chosen = chosen.iter().peekable();
        let mut cut = |slice: &Slice<'a>,
                       index: Option<usize>,
                       mut start: usize,
                       segments: &mut Vec<Segment<'a>>| {
            while let Some((mark, ttl)) = chosen.next_if(|(mark, _)| mark.slice == index) {
                segments.push(slice.part(start, mark.at));
                let text = (self.facts.cache_mark)(*ttl).as_bytes();
                segments.push(Segment::Made(text.into()));
                start = mark.at;
            }
            segments.push(slice.part(start, slice.end));
        };
        if let Some((before, slice)) = self.system {
            segments.push(Segment::Made(before.0.into()));
            cut(&slice, None, 0, &mut segments);
        }
        segments.push(Segment::Made(head.0.into()));
        for (index, slice) in self.slices.iter().enumerate() {
            // The first element follows a comma as all others do.
            let start = slice.start + usize::from(index == 0);
            cut(slice, Some(index), start, &mut segments);
        }
        segments.push(Segment::Made(b"]}".into()));
        segments
    }
}
