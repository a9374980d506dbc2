//! The keys under which Anthropic reports tokens.

use super::Room;
use crate::prices::bill::{Count, Term};
use crate::provider::figures::{Billed, FigureKind::*, Figures};
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[
                (Around, &["usage"]),
                (Input, &["input_tokens"]),
                (CacheRead, &["cache_read_input_tokens"]),
                (CacheWritten, &["cache_creation_input_tokens"]),
                (Output, &["output_tokens"]),
                (OutputDetails, &["output_tokens_details"]),
                (Reasoning, &["thinking_tokens"]),
            ],
            billed: &BILLED,
            terms: &[
                ("service_tier", Term::Tier),
                ("speed", Term::Speed),
                ("inference_geo", Term::Geo),
            ],
            parts: &["iterations"],
        }
    }
}

const BILLED: [Billed; 2] = [
    Billed {
        under: &["cache_creation"],
        of: None,
        number: &["ephemeral_1h_input_tokens"],
        count: Count::WrittenHour,
    },
    Billed {
        under: &["server_tool_use"],
        of: None,
        number: &["web_search_requests"],
        count: Count::Searches,
    },
];
