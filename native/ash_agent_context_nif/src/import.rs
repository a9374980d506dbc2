//! Foreign histories.

use ash_agent_context_core::{Context, Defaults, Error, Imported, Provider, Repair, Time};
use rustler::{Env, Term};

use crate::argument::{Body, Id};
use crate::atoms;
use crate::encode::FieldTerms;
use crate::error::NifError;
use crate::to_term::{terms, Made, Returned, ToTerm};

pub fn request(
    Body(body): Body,
    provider: Provider,
    Id(id): Id,
    at: Time,
) -> Result<Imported, Error> {
    Context::from_request(body, provider, Defaults { id: &id, at })
}

pub fn messages(Body(list): Body, Id(id): Id, at: Time) -> Result<Imported, Error> {
    Context::from_messages(list, Defaults { id: &id, at })
}

impl Returned for Imported {
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        Ok((Made::from(self.context), self.repairs, self.rest).to_term(env))
    }
}

terms! {
    Repair = |of, env| {
        let mut fields = FieldTerms::new(env);
        fields.put(atoms::repair(), of.kind.to_term(env));
        fields.put(atoms::message(), of.message.to_term(env));
        for (key, id) in [(atoms::id(), &of.id), (atoms::to(), &of.to)] {
            if let Some(id) = id {
                fields.put(key, id.to_term(env));
            }
        }
        fields.end()
    };
}
