//! Writing trajectories, in version 1.7.

use std::collections::HashSet;

use crate::log::decision::Decision;
use crate::log::exchange::{Entry, Exchange};
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Outcome, Output, Role};
use crate::log::part::Content;
use crate::prices::list::Prices;
use crate::prices::rates::Money;
use crate::prices::usage::Usage;
use crate::trace::atif::part::{content, is_said, is_said_part, own_parts, parts, thoughts};
use crate::trace::atif::OWN;
use crate::trace::said::arguments;
use crate::trace::told::{Looked, Told, Trace, Within, NESTED};
use crate::value::builder::{Json, JsonObject};
use crate::value::json::AsJson;
use crate::value::letters;
use crate::value::{time, wording, Value};
use crate::view::veil::Veil;

/// Holds what is not in a conversation and yet in a trajectory.
#[derive(Debug)]
pub struct AtifOptions<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The agent's version.
    pub version: &'a str,
    /// The tools that it had, as OpenAI's function calls describe them.
    pub tools: Option<&'a Value>,
    /// Holds what models cost.
    pub prices: &'a Prices,
}

impl Trace<'_> {
    /// The conversation that a reader wants to see first, with its sub-agents, as JSON text.
    ///
    /// # Complexity
    /// O(n)
    #[must_use]
    pub fn to_atif(&self, options: &AtifOptions<'_>) -> Vec<u8> {
        let mut json = Json::default();
        let active = self.active().map(|active| active.context.id());
        let at = self
            .told
            .iter()
            .position(|told| told.is_active)
            .unwrap_or(0);
        let writer = TrajectoryWriter {
            trace: self,
            within: self.within(),
            session: active.unwrap_or_default(),
            options,
        };
        json.object(|json| writer.trajectory(json, at, 0));
        json.into_bytes()
    }
}

struct TrajectoryWriter<'t, 'a> {
    trace: &'t Trace<'a>,
    within: Vec<Option<Within<'a>>>,
    session: &'t str,
    options: &'t AtifOptions<'t>,
}

impl TrajectoryWriter<'_, '_> {
    fn trajectory(&self, json: &mut JsonObject<'_>, at: usize, depth: usize) {
        let Some(told) = self.trace.told.get(at) else {
            return;
        };
        let context = told.context;
        json.text("schema_version", "ATIF-v1.7");
        json.text("session_id", self.session);
        json.text("trajectory_id", &self.trace.document_id(at));
        json.object("agent", |json| self.agent(json, told));
        let children = self.children(at, depth);
        let mut steps = StepWriter {
            writer: self,
            children: &children,
            veil: context.veil(self.trace.masks.as_deref()),
            count: 0,
        };
        json.list("steps", |json| steps.write(json, told));
        let count = steps.count;
        json.object("final_metrics", |json| {
            let usage = context.usage();
            if usage != Usage::default() {
                json.field("total_prompt_tokens", &usage.input);
                json.field("total_completion_tokens", &usage.output);
                json.field("total_cached_tokens", &usage.cached);
            }
            if let Some(cost) = self.total_cost(told) {
                json.field("total_cost_usd", &dollars(cost));
            }
            json.field("total_steps", &count);
        });
        json.object("extra", |json| {
            json.object(OWN, |json| {
                json.text("created_at", &time::to_text(context.created_at()));
                json.text("updated_at", &time::to_text(context.updated_at()));
            });
        });
        if !children.is_empty() {
            json.list("subagent_trajectories", |json| {
                for (child, _) in &children {
                    json.object(|json| self.trajectory(json, *child, depth + 1));
                }
            });
        }
    }

    /// The conversations that were made for calls of this one.
    fn children(&self, at: usize, depth: usize) -> Vec<(usize, Option<&str>)> {
        let within = self.within.iter().enumerate();
        let own = within.filter_map(|(child, within)| {
            let within = within.filter(|within| within.conversation == at)?;
            Some((child, within.call))
        });
        own.take_while(|_| depth < NESTED).collect()
    }

    fn agent(&self, json: &mut JsonObject<'_>, told: &Told<'_>) {
        json.text("name", self.options.agent);
        json.text("version", self.options.version);
        if let Some(model) = told.context.iterations().filter_map(model).last() {
            json.text("model_name", model);
        }
        if let Some(tools) = self.options.tools {
            json.field("tool_definitions", &AsJson(tools));
        }
    }

    fn cost(&self, iteration: &Iteration, entry: &Entry) -> Option<u64> {
        let cost = self.options.prices.cost(entry, None, iteration.started_at);
        cost.ok().flatten().map(Money::total)
    }

    fn total_cost(&self, told: &Told<'_>) -> Option<u64> {
        let costs = told.context.iterations().flat_map(|iteration| {
            let entries = iteration.entries();
            entries.filter_map(move |entry| self.cost(iteration, entry))
        });
        costs.reduce(u64::saturating_add)
    }
}

/// Dollars; exact up to 9,000 of them.
#[expect(clippy::cast_precision_loss)]
fn dollars(cost: u64) -> f64 {
    cost as f64 / 1e12
}

fn model(iteration: &Iteration) -> Option<&str> {
    let mut replies = iteration
        .entries()
        .rev()
        .filter_map(|entry| entry.message.reply.as_ref());
    replies.find_map(|reply| reply.model.as_deref())
}

struct StepWriter<'w, 't, 'a> {
    writer: &'w TrajectoryWriter<'t, 'a>,
    children: &'w [(usize, Option<&'w str>)],
    /// The pieces that its summaries must not tell.
    veil: Veil,
    count: usize,
}

impl StepWriter<'_, '_, '_> {
    fn write(&mut self, json: &mut Json, told: &Told<'_>) {
        let context = told.context;
        if let Some(system) = context.system() {
            let look = self.writer.trace.look().message(system);
            let system = look.as_ref().unwrap_or(system);
            self.step(json, |_, json| {
                json.text("timestamp", &time::to_text(context.created_at()));
                json.text("source", "system");
                content(json.key("message"), &system.content);
                extra(json, |json| own_content(json, &system.content));
            });
        }
        for iteration in context.iterations() {
            for entry in iteration.entries() {
                self.step(json, |steps, json| steps.message(json, iteration, entry));
            }
            let cover = context.cover(iteration.number);
            if let Some((first, cover)) = cover.filter(|(_, cover)| cover.last == iteration.number)
            {
                if let Some(summary) = &cover.summary {
                    self.step(json, |steps, json| {
                        steps.summary(json, first, cover.last, summary)
                    });
                }
            }
        }
    }

    fn step(&mut self, json: &mut Json, fill: impl FnOnce(&Self, &mut JsonObject<'_>)) {
        self.count += 1;
        json.object(|json| {
            json.field("step_id", &self.count);
            fill(self, json);
        });
    }

    /// Writes what a model reads in the place of the steps before.
    fn summary(&self, json: &mut JsonObject<'_>, first: u64, last: u64, summary: &Message) {
        let look = self.writer.trace.look().message(summary);
        let summary = look.as_ref().unwrap_or(summary);
        let veiled = self.veil.message(summary);
        let summary = veiled.as_ref().unwrap_or(summary);
        json.text("source", "system");
        content(json.key("message"), &summary.content);
        json.object("extra", |json| {
            json.object("context_management", |json| {
                json.text("type", "compaction");
                json.field("first_iteration", &first)
                    .field("last_iteration", &last);
            });
        });
    }

    fn message(&self, json: &mut JsonObject<'_>, iteration: &Iteration, entry: &Entry) {
        let looked = Looked::new(entry, self.writer.trace.look());
        let message = looked.message();
        let received = message.reply.as_ref().and_then(|reply| reply.received_at);
        let opened = (entry.position == 0).then_some(iteration.started_at);
        if let Some(at) = received.or(opened) {
            json.text("timestamp", &time::to_text(at));
        }
        json.text(
            "source",
            match message.role {
                Role::System => "system",
                Role::User => "user",
                Role::Assistant => "agent",
            },
        );
        content(json.key("message"), &message.content);
        if message.role == Role::Assistant {
            self.agent(json, iteration, entry, message);
            if let Some(exchange) = looked.exchange() {
                self.calls(json, message, exchange);
            }
        }
        extra(json, |json| {
            json.field("iteration", &iteration.number);
            own_content(json, &message.content);
            let Some(reply) = &message.reply else {
                return;
            };
            let known = [
                ("provider", reply.provider.map(|provider| provider.name())),
                ("response_id", reply.id.as_deref()),
                ("finish_reason", reply.finish.map(|finish| finish.name())),
            ];
            for (key, value) in known {
                if let Some(value) = value {
                    json.text(key, value);
                }
            }
            if let Some(reason) = &reply.interrupted {
                json.text("interrupted", &wording::reason(reason));
            }
        });
    }

    fn agent(
        &self,
        json: &mut JsonObject<'_>,
        iteration: &Iteration,
        entry: &Entry,
        message: &Message,
    ) {
        if let Some(model) = message
            .reply
            .as_ref()
            .and_then(|reply| reply.model.as_deref())
        {
            json.text("model_name", model);
        }
        if let Some(thoughts) = thoughts(&message.content) {
            json.text("reasoning_content", &thoughts);
        }
        if message.reply.is_some() {
            json.field("llm_call_count", &1);
        }
        if let Some(reported) = entry.usage.as_deref() {
            json.object("metrics", |json| {
                json.field("prompt_tokens", &reported.sum.input);
                json.field("completion_tokens", &reported.sum.output);
                json.field("cached_tokens", &reported.sum.cached);
                if let Some(cost) = self.writer.cost(iteration, entry) {
                    json.field("cost_usd", &dollars(cost));
                }
                if reported.sum.reasoning > 0 {
                    json.object("extra", |json| {
                        json.field("reasoning_tokens", &reported.sum.reasoning);
                    });
                }
            });
        }
    }

    fn calls(&self, json: &mut JsonObject<'_>, message: &Message, exchange: &Exchange) {
        json.list("tool_calls", |json| {
            for (slot, call) in message.calls.iter().enumerate() {
                json.object(|json| {
                    json.text("tool_call_id", &call.id);
                    json.text("function_name", call.name.as_str());
                    let is_object = matches!(call.arguments.value, Value::Map(_));
                    match is_object {
                        true => json.field("arguments", &AsJson(&call.arguments.value)),
                        false => json.object("arguments", |json| {
                            json.text("input", &arguments(call));
                        }),
                    };
                    extra(json, |json| {
                        if !is_object {
                            json.text("arguments", &arguments(call));
                        }
                        if !call.kind.is_function() {
                            json.text("kind", call.kind.name());
                        }
                        if let Some(metadata) = &call.provider_metadata {
                            json.field("provider_metadata", &AsJson(&Value::Map(metadata.clone())));
                        }
                        if let Some(decision) = exchange.decision(slot) {
                            json.object("decision", |json| self.decision(json, decision));
                        }
                    });
                });
            }
        });
        let mut linked = HashSet::new();
        json.object("observation", |json| {
            json.list("results", |json| {
                for (call, outcome) in message.calls.iter().zip(exchange.slots()) {
                    let children = self.children.iter();
                    let own = children
                        .filter(|(child, of)| *of == Some(&*call.id) && linked.insert(*child));
                    let own: Vec<usize> = own.map(|(child, _)| *child).collect();
                    if outcome.is_some() || !own.is_empty() {
                        json.object(|json| self.result(json, &call.id, outcome, &own));
                    }
                }
            });
        });
    }

    fn result(
        &self,
        json: &mut JsonObject<'_>,
        id: &str,
        outcome: Option<&Outcome>,
        children: &[usize],
    ) {
        json.text("source_call_id", id);
        if let Some(outcome) = outcome {
            match &outcome.output {
                Output::Parts(all) => parts(json.key("content"), all.iter()),
                Output::Value(_) => {
                    json.text(
                        "content",
                        &letters::utf8(outcome.text().unwrap_or_default()),
                    );
                }
            }
        }
        if !children.is_empty() {
            json.key("subagent_trajectory_ref")
                .list(children, |json, child| {
                    json.bare_object(|json| {
                        json.text("trajectory_id", &self.writer.trace.document_id(*child));
                    });
                });
        }
        let Some(outcome) = outcome else { return };
        extra(json, |json| {
            json.text("status", outcome.status.name());
            if let Output::Parts(all) = &outcome.output {
                if !all.iter().all(is_said_part) {
                    own_parts(json, all);
                }
            }
        });
    }

    fn decision(&self, json: &mut JsonObject<'_>, decision: &Decision) {
        let trace = self.writer.trace;
        let masked = |value: &Value| wording::reason(&trace.mask_value(value));
        json.field("approved", &decision.approved);
        json.text("at", &time::to_text(decision.at));
        for (key, value) in [("by", &decision.by), ("reason", &decision.reason)] {
            if *value != Value::Nil {
                json.text(key, &masked(value));
            }
        }
        if let Some(arguments) = &decision.arguments {
            json.field("arguments", &AsJson(&trace.mask_value(arguments)));
        }
    }
}

fn extra(json: &mut JsonObject<'_>, fill: impl FnOnce(&mut JsonObject<'_>)) {
    json.object("extra", |json| {
        json.object(OWN, fill);
    });
}

/// Content that the format does not say all of.
fn own_content(json: &mut JsonObject<'_>, content: &Content) {
    if let Content::Parts(parts) = content {
        if !is_said(content) {
            own_parts(json, parts);
        }
    }
}
