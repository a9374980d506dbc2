//! The outcomes of requests at the provider's prompt cache, for people who read a conversation.

use std::collections::HashMap;

use crate::context::cause::Cause;
use crate::context::usage::Accounting;
use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::policy::account::{AccountRow, Outlook};
use crate::prices::list::Prices;

/// The account of a conversation, by answer.
#[derive(Default)]
pub(super) struct CacheAccount(HashMap<(u64, usize), AccountRow>);

impl CacheAccount {
    /// Returns the account of the requests from an iteration on.
    pub fn since(since: u64, context: &Context, prices: Option<&Prices>) -> Self {
        let accounting = Accounting {
            prices,
            model: None,
            since,
        };
        let rows = context.account(&accounting).into_iter();
        let placed = rows.map(|row| ((row.iteration, row.position), row));
        Self(placed.collect())
    }

    /// Returns the row for an answer, if its request could have read anything or its provider comments on it.
    pub fn find(&self, iteration: &Iteration, entry: &Entry) -> Option<&AccountRow> {
        let row = self.0.get(&(iteration.number, entry.position))?;
        (row.predicted > 0 || row.diagnosis.is_some()).then_some(row)
    }
}

/// Returns why less was read than possible, or `None` if it was not.
const fn why(outlook: Outlook) -> Option<&'static str> {
    Some(match outlook {
        Outlook::First | Outlook::Hit => return None,
        Outlook::Cleared => "a policy cleared tool results, which saves more later",
        Outlook::Hidden => "a policy hid iterations, to stay within a limit",
        Outlook::Unasked => "nobody asked the provider to keep it",
        Outlook::Expired | Outlook::Broken(Cause::Expired) => "its lifetime was over",
        Outlook::Compacted => "a summary stands where other messages stood",
        Outlook::Provider => {
            "the request began as the one before it, so the provider had dropped it"
        }
        Outlook::Unexplained => "nothing is known that explains it",
        Outlook::Broken(cause) => match cause {
            Cause::Model => "another model or provider was asked",
            Cause::Tools => "the tools are others",
            Cause::Output => "the form of the answer is another one",
            Cause::SystemPrompt => "the system prompt is another one",
            Cause::Block => "the texts after the system prompt are others",
            Cause::Fields => "fields of the request are others",
            Cause::Hidden => "other iterations are hidden",
            Cause::Summarized => "the summaries are others",
            Cause::Cleared => "tool results were cleared",
            Cause::Shortened => "tool results may have another length",
            Cause::Masked => "other texts are masked",
            Cause::Rewound => "a rewind took back part of the request before it",
            Cause::LookBack => "too much was said since the request before it",
            Cause::Other | Cause::Expired => "the request began otherwise than the one before it",
        },
    })
}

/// Returns a line for people who read the conversation; `None` if there is nothing to report.
pub(super) fn line(row: &AccountRow) -> Option<String> {
    let why = why(row.outlook).map(|why| {
        let (read, predicted) = (row.usage.cached, row.predicted);
        format!("{read} of {predicted} tokens read: {why}")
    });
    let says = row.diagnosis.as_ref().map(|says| match says.tokens {
        Some(tokens) => format!("its provider says: {}, {tokens} tokens", says.reason),
        None => format!("its provider says: {}", says.reason),
    });
    let both: Vec<String> = why.into_iter().chain(says).collect();
    (!both.is_empty()).then(|| both.join("; "))
}
