//! The facts about a response as a whole: who answers, what it costs, and why the model stopped.

use std::sync::Arc;

use crate::log::reply::Finish;
use crate::prices::bill::Report;
use crate::provider::block::{gather, Note};
use crate::provider::draft::Draft;
use crate::provider::event::Event;
use crate::provider::node::{self, Node};
use crate::provider::usage::is_figure;
use crate::value::{Map, Value};

/// The most numbers to keep of reports that come one by one; real ones have about ten.
const COUNTED: usize = 100;

impl Draft {
    /// Keeps the tokens that were counted for a message, and the model's word for why it stopped.
    pub fn put_report(&mut self, usage: Option<Report>, word: Option<&str>) {
        Arc::make_mut(&mut self.head).usage = usage;
        if let Some(word) = word {
            self.finish_by(word);
        }
        self.events = Vec::new();
    }

    /// Notes why the model stopped, by our name for it or in any other word.
    pub fn finish_by(&mut self, word: &str) {
        match Finish::from_name(word) {
            Some(reason) => self.finish(reason, word),
            None => Arc::make_mut(&mut self.head).word = Some(word.into()),
        }
    }

    pub fn report(&self) -> Option<Report> {
        let report = self.head.usage.clone()?;
        Some(report.in_tier(self.head.tier.as_deref()))
    }

    /// Keeps the service tier, where the answer has it beside the report.
    pub fn put_tier(&mut self, tier: Option<&str>) {
        if tier.is_some() && self.head.tier.as_deref() != tier {
            Arc::make_mut(&mut self.head).tier = tier.map(Into::into);
        }
    }

    /// Keeps who answers. Empty names count as missing, later ones replace earlier ones.
    pub fn start(&mut self, id: Option<&str>, model: Option<&str>) {
        let id = id.filter(|id| !id.is_empty() && Some(*id) != self.head.id.as_deref());
        let model =
            model.filter(|model| !model.is_empty() && Some(*model) != self.head.model.as_deref());
        if id.is_none() && model.is_none() {
            return;
        }
        let head = Arc::make_mut(&mut self.head);
        if let Some(id) = id {
            head.id = Some(id.into());
        }
        if let Some(model) = model {
            head.model = Some(model.into());
        }
    }

    /// Reads a report on tokens, which replaces earlier ones. One that cannot be read is left out: an answer is not lost for
    /// that.
    pub fn count_tokens(&mut self, report: Option<&Node<'_>>) {
        if let Ok(report) = Report::read(&Value::Map(figures(report))) {
            self.set_usage(report);
        }
    }

    /// Replaces earlier reports.
    pub fn set_usage(&mut self, report: Report) {
        if self.head.usage.as_ref() != Some(&report) {
            Arc::make_mut(&mut self.head).usage = Some(report.clone());
            self.events.push(Event::Usage(report));
        }
    }

    /// Reads a report that has only the new tokens.
    pub fn count_more_tokens(&mut self, report: Option<&Node<'_>>) {
        let mut entries = self.head.counted.clone().into_entries();
        let room = COUNTED.saturating_sub(entries.len());
        let given = figures(report).into_entries().into_iter();
        let given = given.filter(|(_, value)| !matches!(value, Value::Nil));
        entries.extend(given.take(room));
        let counted = Map::new(entries);
        let usage = Report::read(&Value::Map(counted.clone()));
        Arc::make_mut(&mut self.head).counted = counted;
        if let Ok(usage) = usage {
            self.set_usage(usage);
        }
    }

    /// Keeps the values under these names, which the provider says of its answer; a later value replaces an earlier one.
    /// Unreadable values are left out, as with tokens.
    pub fn keep(&mut self, node: &Node<'_>, names: &[&'static str]) {
        for name in names.iter().copied() {
            let given = node::get(node, name).filter(|given| node::says(given));
            if let Some(Ok(value)) = given.map(node::to_value) {
                self.keep_value(name, value);
            }
        }
    }

    /// Keeps an object even if all its values are empty: that it is there says something.
    pub fn keep_object(&mut self, node: &Node<'_>, name: &'static str) {
        let given = node::get(node, name).map(node::to_value);
        if let Some(Ok(value @ Value::Map(_))) = given {
            self.keep_value(name, value);
        }
    }

    fn keep_value(&mut self, name: &'static str, value: Value) {
        let details = &mut Arc::make_mut(&mut self.head).details;
        details.retain(|(known, _)| *known != name);
        details.push((name, Arc::new(value)));
    }

    /// Keeps a list that comes in pieces.
    pub fn keep_more(&mut self, node: &Node<'_>, name: &'static str) {
        for item in node::list(node, name) {
            if let Ok(value) = node::to_value(item).map(Arc::new) {
                let listed = true;
                let head = Arc::make_mut(&mut self.head);
                head.listed.push_front_mut(Note {
                    name,
                    value,
                    listed,
                });
            }
        }
    }

    /// Returns the other fields that the provider said of its answer.
    pub fn details(&self) -> Option<Map> {
        let details = self.head.details.iter();
        let entries = details.map(|(name, value)| (Value::text(name), Value::clone(value)));
        let listed = gather(&self.head.listed).into_iter();
        let listed = listed.map(|(name, value)| (Value::text(name), value));
        let entries: Vec<_> = entries.chain(listed).collect();
        (!entries.is_empty()).then(|| Map::new(entries))
    }

    /// Notes that the model's words decline to answer.
    pub fn refuse(&mut self) {
        if !self.head.refused {
            Arc::make_mut(&mut self.head).refused = true;
        }
    }

    /// Notes why the model stopped. Some servers say "stop" although the model called tools.
    pub fn finish(&mut self, reason: Finish, word: &str) {
        let reason = match reason {
            ends if self.head.refused && ends.why_not_run().is_none() => Finish::Refusal,
            Finish::Stop if self.calls > self.declined => Finish::ToolCalls,
            other => other,
        };
        if self.head.finish == Some(reason) && self.head.word.as_deref() == Some(word) {
            return;
        }
        let head = Arc::make_mut(&mut self.head);
        head.finish = Some(reason);
        head.word = Some(word.chars().take(200).collect::<String>().into());
        self.events.push(Event::Finish(reason));
    }

    /// Corrects the reason where the words that decline come after it, or without one.
    pub(super) fn settle_refusal(&mut self) {
        let ended = self.head.finish.and_then(Finish::why_not_run);
        if self.head.refused && ended.is_none() {
            Arc::make_mut(&mut self.head).finish = Some(Finish::Refusal);
            self.events.push(Event::Finish(Finish::Refusal));
        }
    }
}

/// Returns the fields of a report that count. An event may have others, some of them large.
fn figures(report: Option<&Node<'_>>) -> Map {
    let Some(Node::Object(entries)) = report else {
        return Map::default();
    };
    let wanted = entries.iter().filter(|(key, _)| is_figure(key));
    let given = wanted.filter_map(|(key, node)| Some((Value::text(key), node.to_value()?)));
    Map::new(given.collect())
}
