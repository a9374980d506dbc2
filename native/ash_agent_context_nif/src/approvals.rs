//! Decisions about tool calls.

use ash_agent_context_core::{Context, Decision, Error, Time, Value};
use rustler::{Atom, Term};

use crate::argument::Lender;
use crate::atoms;
use crate::encode::FieldTerms;
use crate::to_term::maps;
use crate::words;

pub fn ask(
    context: &Context,
    id: &str,
    arguments: Option<Value>,
    at: Time,
) -> Result<Context, Error> {
    context.ask_about_tool_call(id, arguments, at)
}

pub fn approve(
    context: &Context,
    id: &str,
    shown: Option<Value>,
    by: Value,
    at: Time,
) -> Result<Context, Error> {
    context.approve_tool_call(id, shown.as_ref(), by, at)
}

pub fn is_approved(context: &Context, id: &str, arguments: Value) -> bool {
    context.is_approved(id, &arguments)
}

pub fn undecided_calls(context: Lender<'_>, asked: bool) -> Term<'_> {
    context.encoder().calls_with(context.undecided_calls(asked))
}

pub fn status(context: &Context, id: &str) -> Option<Atom> {
    context.tool_call_status(id).map(words::call_status)
}

/// When a call started and ended.
pub struct Times(Time, Time);

pub fn times(context: &Context, id: &str) -> Option<Times> {
    let (started, ended) = context.tool_call_times(id)?;
    Some(Times(started, ended))
}

maps! {
    Times = |of| { started_at: of.0, ended_at: of.1 }
}

pub fn decision<'a>(context: Lender<'a>, id: &str) -> Option<Term<'a>> {
    let decision: &Decision = context.tool_call_decision(id)?;
    let (env, encoder) = (context.env, context.encoder());
    let name = match decision.approved {
        true => atoms::approved(),
        false => atoms::denied(),
    };
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::decision(), name.to_term(env));
    fields.put(atoms::by(), encoder.value(&decision.by));
    fields.put(atoms::at(), encoder.time(decision.at));
    fields.put(atoms::reason(), encoder.value(&decision.reason));
    if let Some(arguments) = &decision.arguments {
        fields.put(atoms::arguments(), encoder.value(arguments));
    }
    Some(fields.end())
}
