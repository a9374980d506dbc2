//! OTLP: a conversation as spans, by OpenTelemetry's conventions for generative AI.
//!
//! Each turn is a trace of its own: an agent's span, and under it one for each answer of the model and for
//! each call of a tool, with the sub-agents that worked for the call. All ids follow from the conversation,
//! so whoever exports a turn once more gets the same trace.

mod answers;
mod attributes;
mod ids;
mod json;
mod messages;
pub(super) mod options;
mod proto;
mod spans;
mod times;
mod turns;
mod unread;
mod write;
