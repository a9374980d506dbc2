//! The facts in which Mistral differs from the chat dialect.

use crate::log::place::Place;
use crate::provider::dialect::facts::{CHAT, OF_USERS};
use crate::provider::facts::{is_any, Cache, Facts, Rule};

pub(crate) const FACTS: Facts = Facts {
    telemetry: "mistral_ai",
    most_output: &["max_tokens"],
    // Its error: "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9".
    rules: &[
        Rule::UserBeforeCalls,
        Rule::UserLast,
        Rule::EmptyCalls,
        Rule::ShortIds,
        Rule::TextArguments,
        Rule::SystemAfterUser,
        Rule::ThoughtsLead,
        Rule::Prefixes,
        Rule::SaysDone,
        Rule::EndsWithBody,
    ],
    takes_id: |id, _| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
    takes_block: |place, data| match place {
        Place::Result => false,
        Place::Assistant => !is_any(data, &OF_USERS),
        Place::User | Place::System => true,
    },
    cache: Cache::Unknown,
    cache_mark: |_| "",
    constrains: |_, beside_tools| !beside_tools,
    ..CHAT
};
