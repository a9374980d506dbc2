//! The keys under which OpenAI Responses reports tokens.

use super::Room;
use crate::provider::figures::{FigureKind::*, Figures};
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[
                (Around, &["usage"]),
                (Input, &["input_tokens"]),
                (Output, &["output_tokens"]),
                (Total, &["total_tokens"]),
                (InputDetails, &["input_tokens_details"]),
                (Cached, &["cached_tokens"]),
                (Written, &["cache_write_tokens"]),
                (OutputDetails, &["output_tokens_details"]),
                (Reasoning, &["reasoning_tokens"]),
            ],
            ..Figures::NONE
        }
    }
}
