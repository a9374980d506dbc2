//! Places the cache breakpoints of a request, and cuts the request there.

use crate::context::cache::{Worth, LOOKED_THROUGH};
use crate::log::hints::Ttl;
use crate::provider::facts::Cache;
use crate::request::body::Body;
use crate::request::segment::Segment;
use crate::request::slice::{Mark, Side, Slice};
use crate::value::builder::Json;

/// The number of iterations between two cache breakpoints that stay in place.
const CACHE_STEP: u64 = 5;

/// The most cache breakpoints that a request may have.
const CACHE_POINTS: usize = 4;

/// A last request of which less than one part in so many was not kept was kept as a whole.
const NEARLY: u64 = 64;

/// A place behind so many more results is searched for what ends at an estimated one. Providers that count each block look back 20.
const LEEWAY: usize = 9;

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
        let mut chosen: Vec<Mark> = Vec::with_capacity(CACHE_POINTS);
        let mut add = |mark: Mark| {
            let place = |mark: &Mark| (mark.slice, mark.at);
            let is_new = chosen.iter().all(|one| place(one) != place(&mark));
            if is_new && chosen.len() < room {
                chosen.push(mark);
            }
            chosen.len() < room
        };
        let newest = self.list_places(u64::MAX).next();
        let asked = self.list_asked().next().map(|(mark, _)| mark);
        let asked_bytes = asked.map_or(0, |mark| self.bytes_until(&mark));
        let all: u64 = self.list_marked().map(|(_, slice)| slice.len()).sum();
        let asked = match self.context.find_worth(all.saturating_sub(asked_bytes)) {
            Worth::Nothing => {
                system.for_each(|mark| _ = add(mark));
                return chosen;
            }
            Worth::UpTo(most, tokens) => {
                let (_, fits) = self.split_places((all, tokens), |tokens| tokens <= most);
                let [kept, found] = self.find_kept(asked, (all, tokens));
                // What is kept is found only from its end or behind it.
                let until = |mark: &Mark| self.bytes_until(mark);
                let newest = fits.into_iter().chain(kept).max_by_key(until);
                let most = newest.as_ref().map_or(0, until);
                let found = found.filter(|found| until(found) < most);
                let placed = newest.into_iter().chain(found).chain(system);
                placed.for_each(|mark| _ = add(mark));
                return chosen;
            }
            Worth::All => {
                let [_, found] = self.find_kept(asked, (all, u64::MAX));
                found
            }
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
        let placed = [newest, asked, uncleared].into_iter().flatten();
        let mut has_room = placed.chain(system).fold(room > 0, |_, mark| add(mark));
        let mut last = self.context.current_iteration();
        let newest_first = self.list_places(u64::MAX);
        let mut newest_first =
            newest_first.skip_while(|mark| self.bytes_until(mark) >= asked_bytes);
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

    /// Returns a place at the end of what the last request has in the cache, and one from which that is found although its end is only
    /// estimated.
    fn find_kept(&self, asked: Option<Mark>, next: (u64, u64)) -> [Option<Mark>; 2] {
        let usage = self.context.last_usages().next().unwrap_or_default();
        let kept = usage.cached.saturating_add(usage.written);
        let rest = usage.input.saturating_sub(kept);
        if kept == 0 || rest.saturating_mul(NEARLY) <= usage.input {
            return [asked.filter(|_| kept > 0), asked];
        }
        let (behind, _) = self.split_places(next, |tokens| tokens < kept);
        let found = behind.len().saturating_sub(1 + LEEWAY);
        [behind.last(), behind.get(found)].map(Option::<&Mark>::copied)
    }

    /// Returns how many tokens the request has up to some bytes, newest first: as reported where earlier requests ended.
    fn measure(&self, next: (u64, u64)) -> Vec<(u64, u64)> {
        let mut scale = vec![next];
        for (mark, number) in self.list_asked().take(LOOKED_THROUGH) {
            let bytes = self.bytes_until(&mark);
            let Some(tokens) = self.context.count_asked(number) else {
                break;
            };
            // Where less is cleared now, earlier requests tell nothing.
            let is_less = |(all, of): &(u64, u64)| bytes < *all && tokens < *of;
            if !scale.last().is_some_and(is_less) {
                break;
            }
            scale.push((bytes, tokens));
        }
        scale
    }

    /// Returns the newest place up to which there are few enough tokens, and those from there to the end of the next run of results,
    /// newest first. `next`: the bytes and tokens of the whole request.
    fn split_places(
        &self,
        next: (u64, u64),
        is_below: impl Fn(u64) -> bool,
    ) -> (Vec<Mark>, Option<Mark>) {
        let scale = self.measure(next);
        let is_below = |mark: &Mark| is_below(estimate(&scale, self.bytes_until(mark)));
        let (mut above, mut below) = (Vec::new(), None);
        for mark in self.list_places(u64::MAX) {
            if is_below(&mark) {
                below = Some(mark);
                break;
            }
            above = vec![mark];
        }
        let results = above.first().map(|end| self.list_results(end));
        above.extend(results.into_iter().flatten());
        let first = above.partition_point(|mark| !is_below(mark));
        below = above.get(first).copied().or(below);
        above.truncate(first);
        (above, below)
    }

    /// Returns the places before the end of a run of results, newest first.
    fn list_results(&self, end: &Mark) -> Vec<Mark> {
        let Cache::Marked { results, .. } = self.facts.cache else {
            return Vec::new();
        };
        let slice = end.slice.and_then(|index| self.slices.get(index));
        let found = slice.zip(results);
        found.map_or_else(Vec::new, |(slice, begin)| slice.results(*end, begin))
    }

    /// Returns where earlier requests ended, newest first, each with the iteration of its answer. Each stands before the model's
    /// message, wherever the provider looks back from and however it counts.
    fn list_asked(&self) -> impl Iterator<Item = (Mark, u64)> + '_ {
        let mut answer = None;
        self.list_places(u64::MAX).filter_map(move |mark| {
            let number = match mark.side {
                Side::Before => Some(mark.number),
                _ => answer,
            };
            answer = (mark.side == Side::Behind).then_some(mark.number);
            number.map(|number| (mark, number))
        })
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

/// Returns the tokens up to some bytes, in proportion between those that are known.
fn estimate(scale: &[(u64, u64)], bytes: u64) -> u64 {
    let next = scale.partition_point(|(known, _)| *known > bytes);
    let below = scale.get(next).copied().unwrap_or_default();
    let above = next.checked_sub(1).and_then(|at| scale.get(at));
    let Some(above) = above.filter(|_| next < scale.len()) else {
        return above.map_or(below.1, |above| above.1);
    };
    let share = u128::from(bytes - below.0) * u128::from(above.1 - below.1);
    let share = share / u128::from(above.0 - below.0);
    below
        .1
        .saturating_add(u64::try_from(share).unwrap_or(u64::MAX))
}
