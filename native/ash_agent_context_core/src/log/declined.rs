//! Models that declined in the middle of an answer, after which another one goes on: a `fallback` block stands between them. Calls
//! before the last of these are not run and get no results, and some blocks do not go back.

use std::collections::HashSet;

use crate::log::call::ToolCall;
use crate::log::part::{Content, Part};
use crate::provider::facts::Fallback;
use crate::value::Value;

/// The model reads this as the result of such a call that is kept as a waiting one.
const DECLINED: &str =
    "Another model answered in place of the one that made this call. It was not run.";

impl Part {
    fn is_of_kind(&self, name: fn(&Fallback) -> &'static str) -> bool {
        let Some((provider, data)) = self.kind.block() else {
            return false;
        };
        let name = provider.facts().fallback.as_ref().map(name);
        name.is_some() && data.get_named("type").and_then(Value::as_name) == name
    }

    /// Returns true if the model before this part declined, and another one answers after it.
    pub(crate) fn is_fallback(&self) -> bool {
        self.is_of_kind(|of| of.between)
    }

    /// Returns the index of the last `fallback` among parts.
    pub(crate) fn last_fallback(parts: &[Self]) -> Option<usize> {
        parts.iter().rposition(Self::is_fallback)
    }

    /// Returns true for a call of a model that declined.
    pub(crate) fn is_declined_call(&self) -> bool {
        self.is_of_kind(|of| of.call)
    }
}

/// The index of the last `fallback` among a message's parts.
#[derive(Clone, Copy)]
pub(crate) struct LastFallback(usize);

impl LastFallback {
    pub fn of(content: &Content) -> Option<Self> {
        Part::last_fallback(content.parts()).map(Self)
    }

    /// Returns the text that the model reads as the result of a call before it.
    pub fn why_not_run(self, call: &ToolCall) -> Option<&'static str> {
        (call.parts_before() <= self.0).then_some(DECLINED)
    }
}

/// Returns true if some parts do not go back because they stand before the last `fallback`.
pub(crate) fn has_declined(parts: &[Part]) -> bool {
    let last = Part::last_fallback(parts);
    let mut before = parts.iter().take(last.unwrap_or_default());
    let results = last.map(|_| OwnResults::of(parts));
    results.is_some_and(|results| before.any(|part| !results.keep(part)))
}

/// The results of a message's own uses: they decide which of its parts go back.
pub(crate) struct OwnResults(HashSet<String>);

impl OwnResults {
    pub fn of(parts: &[Part]) -> Self {
        let results = parts.iter().filter_map(Part::half);
        let results = results.filter(|half| half.is_result);
        Self(results.map(|half| half.key).collect())
    }

    /// Returns true if a part before the last `fallback` goes back.
    pub fn keep(&self, part: &Part) -> bool {
        let lacks_result = |part: &Part| {
            let half = part.half().filter(|half| !half.is_result);
            half.is_some_and(|half| !self.0.contains(&half.key))
        };
        !part.kind.is_thinking()
            && !part.is_declined_call()
            && !part.is_of_kind(|of| of.dropped)
            && !lacks_result(part)
    }
}
