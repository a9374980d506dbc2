//! How OpenAI Responses reports tokens.

use super::Room;
use crate::provider::figures::Figures;
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            around: &["usage"],
            input: &["input_tokens"],
            output: &["output_tokens"],
            total: &["total_tokens"],
            input_details: &["input_tokens_details"],
            cached: &["cached_tokens"],
            written: &["cache_write_tokens"],
            output_details: &["output_tokens_details"],
            reasoning: &["reasoning_tokens"],
            ..Figures::NONE
        }
    }
}
