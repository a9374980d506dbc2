//! How Bedrock reports tokens.

use super::Room;
use crate::provider::figures::Figures;
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
            ..Figures::NONE
        }
    }
}
