//! Thinking that its model checks: it is refused behind anything else than when it was made, so a request may have to do without.

use std::collections::HashSet;

use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::log::part::{Content, Part};
use crate::log::provider::Provider;

/// Which thinking is checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checking {
    provider: Provider,
    checks: fn(&str) -> bool,
    /// The request asks a model that checks, and thinking without a model counts as its own.
    nameless: bool,
}

impl Checking {
    /// Returns nothing if a request to this model has no thinking that is checked. Without a model, each thinking's own counts.
    pub fn of(provider: Provider, model: Option<&str>) -> Option<Self> {
        let checks = provider.facts().checks_thinking?;
        model.is_none_or(checks).then_some(Self {
            provider,
            checks,
            nameless: model.is_some(),
        })
    }

    /// Returns whether a message has thinking that its provider may check.
    pub fn any(message: &Message) -> bool {
        let parts = message.content.parts().iter();
        let mut providers = parts.filter_map(|part| Provider::of(part.provider_metadata.as_ref()));
        providers.any(|provider| {
            let checking = Self::of(provider, None).map(|checking| Self {
                nameless: true,
                ..checking
            });
            checking.is_some_and(|checking| checking.binds_any(message))
        })
    }

    /// Returns whether a part of a message is thinking that is checked.
    fn binds(self, part: &Part, message: &Message) -> bool {
        if !part.kind.is_thinking() {
            return false;
        }
        let metadata = part.provider_metadata.as_ref();
        let asked = metadata.and_then(|map| map.get_named("model")?.as_name());
        let reply = message.reply.as_deref();
        let model = asked.or_else(|| reply?.model.as_deref());
        Provider::of(metadata) == Some(self.provider)
            && model.map_or(self.nameless, |model| (self.checks)(model))
    }

    pub fn binds_any(self, message: &Message) -> bool {
        let mut parts = message.content.parts().iter();
        parts.any(|part| self.binds(part, message))
    }

    pub fn binds_any_of(self, iteration: &Iteration) -> bool {
        let mut entries = iteration.entries();
        entries.any(|entry| entry.is_model() && self.binds_any(&entry.message))
    }

    /// Returns a message that withholds this thinking; `None` if it has none.
    pub fn withhold(self, message: &Message) -> Option<Message> {
        if !self.binds_any(message) {
            return None;
        }
        let mut content = message.content.clone();
        if let Content::Parts(parts) = &mut content {
            for part in parts {
                part.withheld |= self.binds(part, message);
            }
        }
        let shown = Message::new(
            message.role,
            content,
            message.calls.clone(),
            message.metadata.clone(),
        );
        Some(shown.with_reply(message.reply.as_deref().cloned()))
    }
}

/// The iterations whose thinking is left out.
#[derive(Debug, Default)]
pub(crate) struct Unbound(Option<(Checking, HashSet<u64>)>);

impl Unbound {
    pub fn new(checking: Checking, numbers: HashSet<u64>) -> Self {
        Self((!numbers.is_empty()).then_some((checking, numbers)))
    }

    pub fn of(&self, number: u64) -> Option<Checking> {
        let (checking, numbers) = self.0.as_ref()?;
        numbers.contains(&number).then_some(*checking)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn numbers(&self) -> impl Iterator<Item = (u64, Checking)> + '_ {
        let all = self.0.iter();
        all.flat_map(|(checking, all)| all.iter().map(|number| (*number, *checking)))
    }
}
