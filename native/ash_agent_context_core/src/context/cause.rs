//! The reasons why a request begins otherwise than the one before it, found by comparing the notes of both.

use crate::context::Context;
use crate::log::provider::Provider;
use crate::log::reply::Reply;
use crate::value::word::words;
use crate::value::Value;
use crate::view::cover::Cover;
use crate::view::View;

/// A change of any of these means another cache.
const ASKED: [&str; 3] = ["provider", "server", "model"];

/// The runtime notes under this key how it asks for a typed answer.
const OUTPUT: &str = "output";

words! {
    /// The reasons why requests begin otherwise, in the order in which a request has these parts.
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

/// A difference of a request from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestChange {
    /// The cause of the difference.
    pub cause: Cause,
    /// The first iteration that it changes; `None` where it stands before all of them, or that is not known.
    pub iteration: Option<u64>,
}

impl RequestChange {
    /// A change of everything after it, or at an unknown place.
    pub(crate) const fn everywhere(cause: Cause) -> Self {
        Self {
            cause,
            iteration: None,
        }
    }
}

/// The facts that are known about a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request<'a> {
    /// Its fields and its tools, each with the iteration since which they were used.
    pub beside: [Option<(u64, &'a Value)>; 2],
    /// The digest of its system prompt.
    pub system: Option<Value>,
    /// The view that it was made from; an inner `None` is the log as it is.
    pub view: Option<Option<&'a View>>,
    /// The digest of its masks; an inner `None` is no mask.
    pub masks: Option<Option<Value>>,
    /// The provider that answered.
    pub provider: Option<Provider>,
    /// The model, as it names itself.
    pub model: Option<&'a str>,
}

impl Context {
    /// Returns the differences of another view of the same conversation.
    #[must_use]
    pub fn view_changes(&self, other: &Self) -> Vec<RequestChange> {
        changed_view(self.view(), other.view())
    }

    /// Returns the facts noted of an iteration's request, with those from its answer.
    pub(crate) fn noted_request<'a>(
        &'a self,
        number: u64,
        reply: Option<&'a Reply>,
    ) -> Request<'a> {
        let mut request = Request {
            provider: reply.and_then(|reply| reply.provider),
            model: reply.and_then(|reply| reply.model.as_deref()),
            ..Request::default()
        };
        if reply.is_none_or(|reply| reply.requested_at.is_some()) {
            let system = self.inputs.systems.of(number);
            let view = self.inputs.of(number);
            request.beside = self.inputs.request_of(number);
            request.view = view.map(|(_, view)| view.map(|view| &**view));
            // Older versions noted neither.
            request.masks = system.map(|_| self.inputs.masks_of(number).cloned());
            request.system = system.map(|(_, digest)| digest.clone());
        }
        request
    }
}

impl Request<'_> {
    /// Returns true if all facts beside the messages were noted.
    pub fn is_known(&self) -> bool {
        self.beside.iter().all(Option::is_some) && self.system.is_some() && self.view.is_some()
    }

    /// Returns true if everything beside the messages is the same in another request.
    pub fn is_alike_beside(&self, other: &Self) -> bool {
        let mut beside = self.beside.iter().zip(&other.beside);
        let is_alike = |(own, other): (&Option<_>, &Option<_>)| match (own, other) {
            // Values in use since the same iteration are the same.
            (Some((since, own)), Some((later, other))) => since == later || own == other,
            (own, other) => own.is_none() && other.is_none(),
        };
        self.system == other.system && beside.all(is_alike)
    }

    /// Returns true if another model answered, or another provider.
    pub fn is_of_other(&self, other: &Self) -> bool {
        differs(self.provider, other.provider) || differs(self.model, other.model)
    }

    /// Returns the differences from another request, in order. Facts that are not known of both are left out.
    pub fn changes_since(&self, before: &Self) -> Vec<RequestChange> {
        let [fields, tools] = self.beside;
        let [fields_before, tools_before] = before.beside;
        let provider = before.provider.or(self.provider);
        let mut causes = Vec::new();
        if let Some((before, next)) = find_change(fields_before, fields) {
            causes = changed_fields(before, next, provider);
        }
        if self.is_of_other(before) {
            causes.push(Cause::Model);
        }
        if find_change(tools_before, tools).is_some() {
            causes.push(Cause::Tools);
        }
        if differs(before.system.as_ref(), self.system.as_ref()) {
            causes.push(Cause::SystemPrompt);
        }
        let causes = causes.into_iter();
        let mut changes: Vec<_> = causes.map(RequestChange::everywhere).collect();
        if let (Some(before), Some(next)) = (before.view, self.view) {
            changes.extend(changed_view(before, next));
        }
        if differs(before.masks.as_ref(), self.masks.as_ref()) {
            changes.push(RequestChange::everywhere(Cause::Masked));
        }
        changes.sort_by_key(|change| change.cause);
        changes.dedup();
        changes
    }
}

/// Returns true if both are known and differ.
fn differs<T: PartialEq>(before: Option<T>, next: Option<T>) -> bool {
    before.is_some() && next.is_some() && before != next
}

/// Returns both values, where they are known and differ. Values in use since the same iteration are the same.
fn find_change<'a>(
    before: Option<(u64, &'a Value)>,
    next: Option<(u64, &'a Value)>,
) -> Option<(&'a Value, &'a Value)> {
    let ((since, before), (later, next)) = (before?, next?);
    (since != later && before != next).then_some((before, next))
}

/// Returns which fields differ of those that decide who is asked, or that stand before the messages.
fn changed_fields(before: &Value, next: &Value, provider: Option<Provider>) -> Vec<Cause> {
    let find = |fields, names: &[&str]| {
        let mut names = names.iter();
        names.try_fold(fields, |of: &Value, name| of.as_map()?.get_named(name))
    };
    let differs = |names: &[&str]| find(before, names) != find(next, names);
    let in_body = |names: &&[&str]| differs(&[&["body"], *names].concat());
    let mut forms = Provider::ALL.iter().flat_map(|of| of.facts().output_form);
    let messages = provider.map_or(&[][..], |of| of.facts().message_fields);
    [
        (Cause::Model, ASKED.iter().any(|name| differs(&[name]))),
        (Cause::Output, forms.any(in_body) || differs(&[OUTPUT])),
        (
            Cause::Fields,
            messages.iter().any(|name| differs(&["body", name])),
        ),
    ]
    .into_iter()
    .filter_map(|(cause, differs)| differs.then_some(cause))
    .collect()
}

/// Returns the differences of two views; `None` is the log as it is.
pub(crate) fn changed_view(before: Option<&View>, next: Option<&View>) -> Vec<RequestChange> {
    let plain = View::default();
    let (before, next) = (before.unwrap_or(&plain), next.unwrap_or(&plain));
    let mut changes = Vec::new();
    if before.prompt_texts != next.prompt_texts {
        changes.push(RequestChange::everywhere(Cause::Block));
    }
    changes.extend(changed_cover(before, next));
    if before.cleared != next.cleared {
        let [old, new] = [before, next].map(|view| Some(view.cleared.as_deref()?.iteration));
        // The newly cleared results begin where the old ones ended.
        let iteration = old.zip(new).map(|(old, new)| old.min(new));
        changes.push(RequestChange {
            cause: Cause::Cleared,
            iteration,
        });
    }
    if before.max_result_bytes != next.max_result_bytes {
        changes.push(RequestChange::everywhere(Cause::Shortened));
    }
    changes
}

/// Returns the first cover that differs.
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
