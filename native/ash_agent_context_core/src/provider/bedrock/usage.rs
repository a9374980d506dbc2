//! How Bedrock reports tokens.

use super::Room;
use crate::log::bill::Count;
use crate::provider::figures::{Billed, Figures};
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            around: &["usage"],
            input: &["inputTokens"],
            cache_read: &["cacheReadInputTokens"],
            cache_written: &["cacheWriteInputTokens"],
            output: &["outputTokens"],
            total: &["totalTokens"],
            billed: &BILLED,
            ..Figures::NONE
        }
    }
}

const BILLED: [Billed; 1] = [Billed::in_list(
    "cacheDetails",
    ("ttl", "1h"),
    &["inputTokens"],
    Count::WrittenHour,
)];
