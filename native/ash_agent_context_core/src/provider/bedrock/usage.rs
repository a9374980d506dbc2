//! The keys under which Bedrock reports tokens.

use super::Room;
use crate::prices::bill::Count;
use crate::provider::figures::{Billed, FigureKind::*, Figures};
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[
                (Around, &["usage"]),
                (Input, &["inputTokens"]),
                (CacheRead, &["cacheReadInputTokens"]),
                (CacheWritten, &["cacheWriteInputTokens"]),
                (Output, &["outputTokens"]),
                (Total, &["totalTokens"]),
            ],
            billed: &BILLED,
            ..Figures::NONE
        }
    }
}

const BILLED: [Billed; 1] = [Billed {
    under: &["cacheDetails"],
    of: Some(("ttl", "1h")),
    number: &["inputTokens"],
    count: Count::WrittenHour,
}];
