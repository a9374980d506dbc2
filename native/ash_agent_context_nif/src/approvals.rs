//! The NIFs of decisions about tool calls.

use ash_agent_context_core::{Cost, Size, Value};
use rustler::Encoder as _;

use crate::argument::{Any, At, Of};
use crate::atoms;
use crate::encode::{Encoder, FieldTerms};
use crate::nif::{change, nif};
use crate::resource::ContextHandle;
use crate::words;

change!(
    context_ask_normal,
    context_ask_dirty,
    |context, id: Of<'a, &'a str>, arguments: Any, at: At| (
        context.append_cost().plus(context.decide_cost(id)),
        context.ask_about_tool_call(id, find_given(&arguments).cloned(), at)
    )
);

change!(
    context_approve_normal,
    context_approve_dirty,
    |context, id: Of<'a, &'a str>, arguments: Any, by: Any, at: At| (
        context.digest_cost().plus(context.decide_cost(id)),
        context.approve_tool_call(id, find_given(&arguments), by, at)
    )
);

fn find_given(value: &Value) -> Option<&Value> {
    (*value != Value::Nil).then_some(value)
}

nif!(
    context_is_approved_normal,
    context_is_approved_dirty,
    |env, scheduler, context: ContextHandle, id: Of<'a, &'a str>, arguments: Any| {
        scheduler.allow(context.get().digest_cost())?;
        Ok(context.get().is_approved(id, &arguments).encode(env))
    }
);

nif!(
    context_undecided_calls_normal,
    context_undecided_calls_dirty,
    |env, scheduler, context: ContextHandle, asked: bool| {
        scheduler.allow(Cost::handing_out(context.get().current().size()))?;
        Ok(Encoder::new_sharing(env, &context).calls_with(context.get().undecided_calls(asked)))
    }
);

change!(
    context_deny_normal,
    context_deny_dirty,
    |context, id: Of<'a, &'a str>, reason: Any, by: Any, at: At| (
        context.append_cost().plus(context.decide_cost(id)),
        context.deny_tool_call(id, reason, by, at)
    )
);

nif!(
    context_call_status_normal,
    context_call_status_dirty,
    |env, scheduler, context: ContextHandle, id: Of<'a, &'a str>| {
        scheduler.allow(context.get().find_call_cost())?;
        let status = context.get().tool_call_status(id);
        Ok(status.map(words::call_status).encode(env))
    }
);

nif!(
    context_call_times_normal,
    context_call_times_dirty,
    |env, scheduler, context: ContextHandle, id: Of<'a, &'a str>| {
        scheduler.allow(context.get().find_call_cost())?;
        let Some((started, ended)) = context.get().tool_call_times(id) else {
            return Ok(atoms::nil().to_term(env));
        };
        let encoder = Encoder::new_copying(env);
        let mut fields = FieldTerms::new(env);
        fields.put(atoms::started_at(), encoder.time(started));
        fields.put(atoms::ended_at(), encoder.time(ended));
        Ok(fields.end())
    }
);

nif!(
    context_call_decision_normal,
    context_call_decision_dirty,
    |env, scheduler, context: ContextHandle, id: Of<'a, &'a str>| {
        scheduler.allow(context.get().find_call_cost())?;
        let Some(decision) = context.get().tool_call_decision(id) else {
            return Ok(atoms::nil().to_term(env));
        };
        let terms = [
            Some(&decision.by),
            Some(&decision.reason),
            decision.arguments.as_ref(),
        ];
        let terms = terms.into_iter().flatten().map(Value::size);
        scheduler.allow(terms.fold(Size::default(), Size::plus))?;
        let encoder = Encoder::new_sharing(env, &context);
        let name = if decision.approved {
            atoms::approved()
        } else {
            atoms::denied()
        };
        let mut fields = FieldTerms::new(env);
        fields.put(atoms::decision(), name.to_term(env));
        fields.put(atoms::by(), encoder.value(&decision.by));
        fields.put(atoms::at(), encoder.time(decision.at));
        fields.put(atoms::reason(), encoder.value(&decision.reason));
        if let Some(arguments) = &decision.arguments {
            fields.put(atoms::arguments(), encoder.value(arguments));
        }
        Ok(fields.end())
    }
);
