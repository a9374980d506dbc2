//! OTLP: a conversation as spans, by OpenTelemetry's conventions for generative AI.
//!
//! Each turn is a trace of its own: an agent's span, with a span for each answer of the model and for each call of a tool, and
//! the sub-agents that worked for the call. All ids are computed from the conversation, so a turn that is exported again has the
//! same trace.

mod answers;
mod attributes;
mod ids;
mod messages;
pub(super) mod options;
mod proto;
mod spans;
mod times;
mod turns;
mod unread;
mod write;
