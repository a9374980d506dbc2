//! Why a request begins otherwise than the one before it, by what is noted of both.

use crate::context::Context;
use crate::log::provider::Provider;
use crate::log::reply::Reply;
use crate::value::word::words;
use crate::value::Value;
use crate::view::cover::Cover;
use crate::view::View;

/// Whoever is asked: another one has another cache.
const ASKED: [&str; 3] = ["provider", "server", "model"];

/// Fields of a body that say which form the answer has. Providers put them before the messages.
const FORMS: [&str; 6] = [
    "response_format",
    "text",
    "format",
    "output_format",
    "output_config",
    "outputConfig",
];

/// The same within Gemini's `generationConfig`.
const FORMS_OF_GEMINI: [&str; 3] = ["responseJsonSchema", "responseSchema", "responseMimeType"];

/// How the runtime asks for a typed answer, where it notes that.
const OUTPUT: [&str; 1] = ["output"];

/// Fields after whose change Anthropic reads no message from its cache.
const OF_ANTHROPIC: [&str; 2] = ["thinking", "tool_choice"];

words! {
    /// Why requests begin otherwise, in the order in which it stands in them.
    pub enum Cause {
        /// Another model, or another provider.
        Model = "model",
        /// Other tools.
        Tools = "tools",
        /// Another form of the answer.
        Output = "output",
        /// Another system prompt.
        SystemPrompt = "system_prompt",
        /// Other texts after it.
        Block = "block",
        /// Other fields that the messages depend on.
        Fields = "fields",
        /// Other iterations are hidden.
        Hidden = "hidden",
        /// Another summary.
        Summarized = "summarized",
        /// Other results are cleared.
        Cleared = "cleared",
        /// Results may have another length.
        Shortened = "shortened",
        /// Other texts are masked.
        Masked = "masked",
        /// A rewind took back part of the last request.
        Rewound = "rewound",
        /// Something else, such as how a request is made.
        Other = "other",
        /// So much was said since the last request that the provider does not look back to it.
        LookBack = "look_back",
        /// The provider has dropped it.
        Expired = "expired",
    }
}

/// Something that a request has otherwise than the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestChange {
    /// The cause itself.
    pub cause: Cause,
    /// The first iteration that it changes; `None` where it stands before all of them, or that is not known.
    pub iteration: Option<u64>,
}

/// The known facts about a request.
#[derive(Debug, Clone)]
pub(crate) struct Request<'a> {
    /// Its fields and its tools, each with the iteration since which they were used.
    pub beside: [Option<(u64, &'a Value)>; 2],
    /// The digest of its system prompt.
    pub system: Option<Value>,
    /// The view that it was made from; `None` in it is the log.
    pub view: Option<Option<&'a View>>,
    /// The digest of its masks; `None` in it is no mask.
    pub masks: Option<Option<Value>>,
    /// Who answered.
    pub provider: Option<Provider>,
    /// The model, as it names itself.
    pub model: Option<&'a str>,
}

impl Context {
    /// The differences of another view of the same conversation.
    #[must_use]
    pub fn view_changes(&self, other: &Self) -> Vec<RequestChange> {
        changed_view(self.view(), other.view())
    }

    /// The record of an iteration's request, with the facts from its answer.
    pub(crate) fn noted_request<'a>(
        &'a self,
        number: u64,
        reply: Option<&'a Reply>,
    ) -> Request<'a> {
        let is_noted = reply.is_none_or(|reply| reply.requested_at.is_some());
        let view = self.asked.of(number);
        let system = self.asked.system_of(number);
        Request {
            beside: match is_noted {
                true => self.asked.request_of(number),
                false => [None; 2],
            },
            system: system
                .filter(|_| is_noted)
                .map(|(_, digest)| digest.clone()),
            view: view
                .filter(|_| is_noted)
                .map(|(_, view)| view.map(|view| &**view)),
            // Older versions noted neither.
            masks: system
                .filter(|_| is_noted)
                .map(|_| self.asked.masks_of(number).cloned()),
            provider: reply.and_then(|reply| reply.provider),
            model: reply.and_then(|reply| reply.model.as_deref()),
        }
    }
}

impl Request<'_> {
    /// Returns whether everything beside the messages was noted.
    pub fn is_known(&self) -> bool {
        self.beside.iter().all(Option::is_some) && self.system.is_some() && self.view.is_some()
    }

    /// Returns whether it has the same beside the messages as another one.
    pub fn is_alike_beside(&self, other: &Self) -> bool {
        let values = |request: &Self| {
            request
                .beside
                .map(|noted| noted.map(|(_, value)| value.clone()))
        };
        self.system == other.system && values(self) == values(other)
    }

    /// The differences from another request, in order. Facts that are not known of both are left out.
    pub fn changes_since(&self, before: &Self) -> Vec<RequestChange> {
        let everywhere = |cause| RequestChange {
            cause,
            iteration: None,
        };
        let [fields, tools] = self.beside;
        let [fields_before, tools_before] = before.beside;
        let provider = before.provider.or(self.provider);
        let mut causes = Vec::new();
        if let Some((before, next)) = find_change(fields_before, fields) {
            causes = changed_fields(before, next, provider == Some(Provider::Anthropic));
        }
        if differs(before.provider, self.provider) || differs(before.model, self.model) {
            causes.push(Cause::Model);
        }
        if find_change(tools_before, tools).is_some() {
            causes.push(Cause::Tools);
        }
        if differs(before.system.as_ref(), self.system.as_ref()) {
            causes.push(Cause::SystemPrompt);
        }
        let mut changes: Vec<RequestChange> = causes.into_iter().map(everywhere).collect();
        if let (Some(before), Some(next)) = (before.view, self.view) {
            changes.extend(changed_view(before, next));
        }
        if differs(before.masks.as_ref(), self.masks.as_ref()) {
            changes.push(everywhere(Cause::Masked));
        }
        changes.sort_by_key(|change| change.cause);
        changes.dedup();
        changes
    }
}

/// Returns whether both are known and not the same.
fn differs<T: PartialEq>(before: Option<T>, next: Option<T>) -> bool {
    before.is_some() && next.is_some() && before != next
}

/// Both values, where they are known and not the same. Values that have been used since one iteration are the same.
fn find_change<'a>(
    before: Option<(u64, &'a Value)>,
    next: Option<(u64, &'a Value)>,
) -> Option<(&'a Value, &'a Value)> {
    let ((since, before), (later, next)) = (before?, next?);
    (since != later && before != next).then_some((before, next))
}

/// Which fields are not the same of those that decide who is asked, or stand before messages.
fn changed_fields(before: &Value, next: &Value, is_anthropic: bool) -> Vec<Cause> {
    let [before_body, next_body] = [before, next].map(|fields| field(fields, "body"));
    let [before_config, next_config] =
        [before_body, next_body].map(|body| body.and_then(|body| field(body, "generationConfig")));
    let differs = |before: Option<&Value>, next: Option<&Value>, names: &[&str]| {
        let mut names = names.iter();
        names.any(|name| {
            let [before, next] =
                [before, next].map(|fields| fields.and_then(|all| field(all, name)));
            before != next
        })
    };
    let of_anthropic = OF_ANTHROPIC.as_slice();
    [
        (Cause::Model, differs(Some(before), Some(next), &ASKED)),
        (
            Cause::Output,
            differs(before_body, next_body, &FORMS)
                || differs(before_config, next_config, &FORMS_OF_GEMINI)
                || differs(Some(before), Some(next), &OUTPUT),
        ),
        (
            Cause::Fields,
            is_anthropic && differs(before_body, next_body, of_anthropic),
        ),
    ]
    .into_iter()
    .filter_map(|(cause, differs)| differs.then_some(cause))
    .collect()
}

fn field<'v>(of: &'v Value, name: &str) -> Option<&'v Value> {
    match of {
        Value::Map(map) => map.get_named(name),
        _ => None,
    }
}

/// The differences of two views; `None` is the log as it is.
fn changed_view(before: Option<&View>, next: Option<&View>) -> Vec<RequestChange> {
    let plain = View::default();
    let (before, next) = (before.unwrap_or(&plain), next.unwrap_or(&plain));
    let mut changes = Vec::new();
    if before.blocks != next.blocks {
        changes.push(RequestChange {
            cause: Cause::Block,
            iteration: None,
        });
    }
    changes.extend(changed_cover(before, next));
    let place = |view: &View| {
        let cleared = view.cleared.as_deref()?;
        Some((
            cleared.iteration,
            cleared.calls,
            cleared.placeholder.clone(),
        ))
    };
    let (old, new) = (place(before), place(next));
    if old != new {
        let places = [old, new].map(|place| place.map(|(iteration, _, _)| iteration));
        let [old, new] = places;
        changes.push(RequestChange {
            cause: Cause::Cleared,
            // The newly cleared results begin where the old ones ended.
            iteration: old.and_then(|old| Some(old.min(new?))),
        });
    }
    if before.max_result_bytes != next.max_result_bytes {
        changes.push(RequestChange {
            cause: Cause::Shortened,
            iteration: None,
        });
    }
    changes
}

/// The first cover that is not the same.
fn changed_cover(before: &View, next: &View) -> Option<RequestChange> {
    let is_same = |(first, own): &(u64, &Cover), (start, other): &(u64, &Cover)| {
        first == start && own.looks_as(other)
    };
    let (mut old, mut new) = (before.covers(), next.covers());
    let (old, new) = loop {
        match (old.next(), new.next()) {
            (None, None) => return None,
            (Some(old), Some(new)) if is_same(&old, &new) => {}
            other => break other,
        }
    };
    let firsts = [old, new].into_iter().flatten().map(|(first, _)| first);
    let is_summary = new.is_some_and(|(_, cover)| cover.summary.is_some());
    Some(RequestChange {
        cause: match is_summary {
            true => Cause::Summarized,
            false => Cause::Hidden,
        },
        iteration: firsts.min(),
    })
}
