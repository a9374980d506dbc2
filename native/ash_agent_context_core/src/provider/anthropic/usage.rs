//! How Anthropic reports tokens.

use super::Room;
use crate::log::bill::{Count, Term};
use crate::provider::figures::{Billed, Figures};
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            around: &["usage"],
            input: &["input_tokens"],
            cache_read: &["cache_read_input_tokens"],
            cache_written: &["cache_creation_input_tokens"],
            output: &["output_tokens"],
            output_details: &["output_tokens_details"],
            reasoning: &["thinking_tokens"],
            billed: &BILLED,
            terms: &[
                ("service_tier", Term::Tier),
                ("speed", Term::Speed),
                ("inference_geo", Term::Geo),
            ],
            parts: &["iterations"],
            ..Figures::NONE
        }
    }
}

const BILLED: [Billed; 2] = [
    Billed::in_object(
        "cache_creation",
        &["ephemeral_1h_input_tokens"],
        Count::WrittenHour,
    ),
    Billed::in_object("server_tool_use", &["web_search_requests"], Count::Searches),
];
