//! The tables of the structs that are stored of messages.

use std::sync::Arc;

use crate::error::Error;
use crate::log::decision::Decision;
use crate::log::kind::CallKind;
use crate::log::origin::Origin;
use crate::log::original::Original;
use crate::log::provider::Provider;
use crate::log::reply::{Finish, Reply};
use crate::prices::bill::{self, Bill, Reported};
use crate::prices::usage::Usage;
use crate::storage::table::*;
use crate::storage::take::DocumentFields;
use crate::value::builder::JsonObject;

/// The notes of a request: its fields, its tools, the digests of its system prompt, of the whole request and of its masks, and
/// the request that a rewind cut off.
pub(crate) const REQUEST: [&str; 6] = [
    "request",
    "tools",
    "system_digest",
    "sent",
    "masks_digest",
    "rewound",
];

impl StoredWord for Provider {
    const EXPECTED: &'static str = "the name of a provider";
}

impl StoredWord for Finish {
    const EXPECTED: &'static str = "why the model stopped";
}

impl StoredWord for CallKind {
    const EXPECTED: &'static str = "the kind of a tool call";
}

stored!(Reply, "where the message came from" {
    provider: "provider" Given<OneOf>,
    model: "model" Given<Text>,
    id: "id" Given<Text>,
    finish: "finish_reason" Given<OneOf>,
    word: "finish_word" Given<Text>,
    requested_at: "requested_at" Given<When>,
    first_chunk_at: "first_chunk_at" Given<When>,
    received_at: "received_at" Given<When>,
    interrupted: "interrupted" Given<Broken>,
    details: "details" Given<Terms>,
}, extra "");

stored!(Usage, "numbers of tokens" {
    input: "input_tokens" Count,
    output: "output_tokens" Count,
    total: "total_tokens" Count,
    cached: "cached_tokens" Count,
    reasoning: "reasoning_tokens" Count,
    written: "cache_write_tokens" LaterCount,
});

stored!(Reported, "a report on tokens" {
    sum: "sum" Of,
    last: "last" Of,
    estimate: "estimate" Count,
    bills: "bills" Bills,
});

stored!(Original, "a map with a provider and its JSON text" {
    provider: "provider" OneOf,
    json: "json" Text,
});

stored!(Decision, "a decision" {
    approved: "approved" Flag,
    answered: "answered" Mark,
    by: "by" Term,
    at: "at" When,
    reason: "reason" Term,
    arguments: "arguments" Given<Seen>,
    edited: "edited" Given<Edited>,
    digest: "digest" Given<Digest>,
});

stored!(Origin, "a map with the id and the iteration that a fork came from" {
    id: "id" Id,
    iteration: "iteration" Number,
}, extra "one of :id, :iteration");

/// Bills beside the tokens, if there is more than those.
struct Bills;

impl Field<Option<Arc<[Bill]>>> for Bills {
    fn write(bills: &Option<Arc<[Bill]>>, key: &'static str, json: &mut JsonObject<'_>) {
        if let Some(bills) = bills {
            Each::<Of, true>::write(bills, key, json);
        }
    }

    fn read(
        fields: &mut DocumentFields<'_>,
        key: &'static str,
    ) -> Result<Option<Arc<[Bill]>>, Error> {
        let is_there = fields.has(key);
        let bills = Each::<Of, true>::read(fields, key)?;
        Ok(is_there.then_some(bills))
    }
}

/// By hand: its counts and words are those of two enums, and get smaller as they are read.
impl Stored for Bill {
    const EXPECTED: &'static str = "a map with numbers of tokens";

    fn write(&self, json: &mut JsonObject<'_>) {
        Of::write(&self.usage, "usage", json);
        Given::<Text>::write(&self.model, "model", json);
        for (name, count) in self.counts() {
            Count::write(&count, name, json);
        }
        for (name, word) in self.terms() {
            Text::write(&word.into(), name, json);
        }
    }

    fn read(mut fields: DocumentFields<'_>) -> Result<Self, Error> {
        let mut bill = Self::plain(Of::read(&mut fields, "usage")?);
        if let Some(model) = Given::<Text>::read(&mut fields, "model")? {
            bill.put_model(&model);
        }
        for of in bill::Term::ALL {
            if let Some(word) = Given::<Text>::read(&mut fields, of.name())? {
                bill.put_term(of, &word);
            }
        }
        for of in bill::Count::ALL {
            if fields.has(of.name()) {
                bill.add(of, Count::read(&mut fields, of.name())?);
            }
        }
        Ok(bill)
    }
}
