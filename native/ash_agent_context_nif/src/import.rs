//! The NIFs of import.

use ash_agent_context_core::{Context, Defaults, Imported, Provider, Repair, Value};
use rustler::{Encoder as _, Env, Term};

use crate::argument::{At, Body, Id, Worded};
use crate::atoms;
use crate::encode::{self, Encoder, FieldTerms};
use crate::nif::nif;
use crate::resource::answer;
use crate::words::Word;

nif!(
    import_request_normal,
    import_request_dirty,
    |env, scheduler, body: Body, provider: Worded<Provider>, id: Id, at: At| {
        scheduler.allow(Context::from_request_cost(&body))?;
        let defaults = Defaults { id: &id, at };
        Ok(encode(
            env,
            Context::from_request(body, provider, defaults)?,
        ))
    }
);

nif!(
    import_messages_normal,
    import_messages_dirty,
    |env, scheduler, list: Body, id: Id, at: At| {
        scheduler.allow(Context::from_messages_cost(&list))?;
        let defaults = Defaults { id: &id, at };
        Ok(encode(env, Context::from_messages(list, defaults)?))
    }
);

/// `{{handle, current_iteration}, repairs, rest}`
fn encode(env: Env<'_>, imported: Imported) -> Term<'_> {
    let encoder = Encoder::new_copying(env);
    let repairs = imported.repairs.iter();
    let repairs = encoder.list(repairs.map(|of| repair(env, of)));
    let rest = encode::value(env, &Value::Map(imported.rest));
    (answer(env, imported.context), repairs, rest).encode(env)
}

fn repair<'a>(env: Env<'a>, repair: &Repair) -> Term<'a> {
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::repair(), repair.kind.atom().encode(env));
    fields.put(atoms::message(), repair.message.encode(env));
    for (key, id) in [(atoms::id(), &repair.id), (atoms::to(), &repair.to)] {
        if let Some(id) = id {
            fields.put(key, id.encode(env));
        }
    }
    fields.end()
}
