//! The attributes of spans, under the conventions' names.

use crate::context::cause::Cause;
use crate::context::inputs::{find_most_output, find_parameter};
use crate::log::message::{Message, Outcome};
use crate::log::reply::Finish;
use crate::policy::account::AccountRow;
use crate::prices::rates::Money;
use crate::prices::usage::Usage;
use crate::trace::otlp::options::Conventions;
use crate::trace::otlp::proto::{Any, AnyValue, AnyValues, KeyValue};
use crate::value::Value;

/// The name for an unknown provider, since the attribute is required.
pub(super) const UNKNOWN: &str = "unknown";

/// The form in which a parameter is written.
#[derive(Clone, Copy)]
enum Parameter {
    Double,
    Int,
    Texts,
}

impl Parameter {
    fn read(self, value: &Value) -> Option<Any> {
        match (self, value) {
            (Self::Double, Value::Float(number)) => Some(Any::Double(*number)),
            (Self::Double, Value::Int(number)) => number.to_string().parse().ok().map(Any::Double),
            (Self::Int, Value::Int(number)) => Some(Any::Int(*number)),
            (Self::Texts, Value::List(_)) => any_value(value).value,
            (Self::Texts, Value::Binary(_)) => Some(Any::List(AnyValues {
                values: vec![any_value(value)],
            })),
            _ => None,
        }
    }
}

/// The parameters of requests: the conventions' names after `gen_ai.request.`, and those of providers. An empty list means the
/// names in the providers' facts.
const PARAMETERS: [(&str, &[&str], Parameter); 9] = [
    ("temperature", &["temperature"], Parameter::Double),
    ("top_p", &["top_p", "topP"], Parameter::Double),
    ("top_k", &["top_k", "topK"], Parameter::Double),
    ("max_tokens", &[], Parameter::Int),
    ("seed", &["seed", "random_seed"], Parameter::Int),
    ("choice.count", &["n", "candidateCount"], Parameter::Int),
    (
        "frequency_penalty",
        &["frequency_penalty", "frequencyPenalty"],
        Parameter::Double,
    ),
    (
        "presence_penalty",
        &["presence_penalty", "presencePenalty"],
        Parameter::Double,
    ),
    (
        "stop_sequences",
        &["stop", "stop_sequences", "stopSequences"],
        Parameter::Texts,
    ),
];

/// The attributes of a span that is being built.
#[derive(Default)]
pub(super) struct SpanAttributes(pub Vec<KeyValue>);

impl SpanAttributes {
    pub fn text(&mut self, key: &str, text: impl Into<String>) {
        self.put(key, Any::Text(text.into()));
    }

    pub fn add_known(&mut self, key: &str, text: Option<impl Into<String>>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    pub fn flag(&mut self, key: &str) {
        self.put(key, Any::Flag(true));
    }

    pub fn count(&mut self, key: &str, count: u64) {
        self.put(key, Any::Int(i64::try_from(count).unwrap_or(i64::MAX)));
    }

    pub fn number(&mut self, key: &str, number: f64) {
        self.put(key, Any::Double(number));
    }

    /// Adds the cost of an answer in dollars, under the names of OpenInference.
    pub fn cost(&mut self, money: Money) {
        for (key, sum) in [
            ("llm.cost.prompt", money.input),
            ("llm.cost.completion", money.output),
            ("llm.cost.total", money.total()),
        ] {
            self.number(key, dollars(sum));
        }
    }

    /// Adds the outcome at the prompt cache. The conventions have no names for it.
    pub fn cache(&mut self, row: &AccountRow) {
        self.text("ash_agent.cache.verdict", row.outlook.name());
        let cause = row.outlook.cause();
        self.add_known("ash_agent.cache.cause", cause.map(Cause::name));
        self.count("ash_agent.cache.predicted_tokens", row.predicted);
        let says = row.diagnosis.as_ref().map(|says| &*says.reason);
        self.add_known("ash_agent.cache.diagnosis", says);
        if let Some(avoidable) = row.avoidable {
            self.number("ash_agent.cache.avoidable_cost", dollars(avoidable));
        }
    }

    /// Adds values of the application.
    pub fn values(&mut self, values: &[(String, Value)]) {
        let attribute = |(key, value): &(String, Value)| KeyValue {
            key: key.clone(),
            value: Some(any_value(value)),
        };
        self.0.extend(values.iter().map(attribute));
    }

    pub fn usage(&mut self, usage: Usage, conventions: Conventions) {
        // Apart from the first two, zero may mean that the provider does not count it.
        self.count("gen_ai.usage.input_tokens", usage.input);
        self.count("gen_ai.usage.output_tokens", usage.output);
        let written = match conventions {
            Conventions::V1_41 => "gen_ai.usage.cache_creation.input_tokens",
            Conventions::Next => "gen_ai.usage.cache_write.input_tokens",
        };
        for (key, count) in [
            ("gen_ai.usage.cache_read.input_tokens", usage.cached),
            (written, usage.written),
            ("gen_ai.usage.reasoning.output_tokens", usage.reasoning),
        ] {
            if count > 0 {
                self.count(key, count);
            }
        }
    }

    /// Adds the fields of a request besides its messages, as the run recorded them.
    pub fn request(&mut self, fields: &Value) {
        let Value::Map(fields) = fields else {
            return;
        };
        let server = fields.get_named("server").and_then(Value::as_str);
        self.add_known("server.address", server);
        if let Some(Value::Int(port)) = fields.get_named("port") {
            self.put("server.port", Any::Int(*port));
        }
        let Some(Value::Map(body)) = fields.get_named("body") else {
            return;
        };
        for (name, keys, form) in PARAMETERS {
            let value = match keys {
                [] => find_most_output(body),
                keys => keys.iter().find_map(|key| find_parameter(body, key)),
            };
            let value = value.and_then(|value| form.read(value));
            if let Some(value) = value {
                self.put(&format!("gen_ai.request.{name}"), value);
            }
        }
    }

    /// Adds who answered, and how the answer ended.
    pub fn answer(&mut self, message: &Message, asked: Option<&str>) {
        let reply = message.reply.as_deref();
        self.text("gen_ai.provider.name", provider_name(message));
        // Viewers look for the model that was asked, even if it is not known.
        let model = reply.and_then(|reply| reply.model.as_deref());
        self.add_known("gen_ai.request.model", asked.or(model));
        self.add_known("gen_ai.response.model", model);
        let id = reply.and_then(|reply| reply.id.as_deref());
        self.add_known("gen_ai.response.id", id);
        let reason = any_value(&Value::text(finish_reason(message)));
        let values = vec![reason];
        self.put(
            "gen_ai.response.finish_reasons",
            Any::List(AnyValues { values }),
        );
        let asked = reply.and_then(|reply| reply.requested_at);
        let first = reply.and_then(|reply| reply.first_chunk_at);
        let took = asked.zip(first).map(|(asked, first)| first - asked);
        if let Some(took) = took.and_then(|took| took.to_std().ok()) {
            self.number("gen_ai.response.time_to_first_chunk", took.as_secs_f64());
        }
    }

    fn put(&mut self, key: &str, any: Any) {
        self.0.push(KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(any) }),
        });
    }
}

/// Returns a value of the application: text, a number, a flag, or a list of these.
pub(super) fn any_value(value: &Value) -> AnyValue {
    let value = match value {
        Value::Bool(flag) => Some(Any::Flag(*flag)),
        Value::Int(number) => Some(Any::Int(*number)),
        Value::Float(number) => Some(Any::Double(*number)),
        Value::List(items) => Some(Any::List(AnyValues {
            values: items.iter().map(any_value).collect(),
        })),
        other => other.as_name().map(|text| Any::Text(text.to_owned())),
    };
    AnyValue { value }
}

/// Returns the provider that answered, or the one whose form the message was imported in.
pub(super) fn provider_name(message: &Message) -> &'static str {
    let replied = message.reply.as_deref().and_then(|reply| reply.provider);
    let original = || Some(message.original.as_ref()?.provider);
    let provider = replied.or_else(original);
    provider.map_or(UNKNOWN, |of| of.facts().telemetry)
}

/// Returns a sum of 10^-12 dollars in dollars: the integers of spans are too small for large sums.
fn dollars(sum: u64) -> f64 {
    let text = format!(
        "{}.{:012}",
        sum / 1_000_000_000_000,
        sum % 1_000_000_000_000
    );
    text.parse().unwrap_or_default()
}

/// Returns why an answer ended, in the conventions' word if they have one.
pub(super) fn finish_reason(message: &Message) -> &'static str {
    let reply = message.reply.as_deref();
    match reply.and_then(|reply| reply.finish) {
        Some(Finish::ToolCalls) => "tool_call",
        Some(other) => other.name(),
        None if message.is_interrupted() => Finish::Error.name(),
        None if message.calls.is_empty() => Finish::Stop.name(),
        None => "tool_call",
    }
}

/// Returns the kind of failure, if an answer is one.
pub(super) fn failure(message: &Message) -> Option<&str> {
    let reply = message.reply.as_deref()?;
    match &reply.interrupted {
        Some(reason) => Some(first_word(reason)),
        None => (reply.finish == Some(Finish::Error)).then_some("error"),
    }
}

/// Returns the name of a reason, or `interrupted`. An attribute has few values, and any other text may be a provider's own words.
fn first_word(reason: &Value) -> &str {
    let first = match reason {
        Value::Tuple(items) => items.first(),
        other => Some(other),
    };
    match first {
        Some(Value::Atom(name)) => name,
        _ => "interrupted",
    }
}

/// Returns the kind of failure, if a result is one: the tool's own word if it is known.
pub(super) fn result_failure(outcome: &Outcome) -> Option<&str> {
    let name = outcome.error_type.as_deref();
    outcome
        .is_error()
        .then(|| name.unwrap_or_else(|| outcome.status.name()))
}
