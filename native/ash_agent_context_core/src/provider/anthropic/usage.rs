//! How Anthropic reports tokens.

use super::Room;
use crate::provider::figures::Figures;
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            around: &["usage"],
            input: &["input_tokens"],
            cache_read: &["cache_read_input_tokens"],
            cache_written: &["cache_creation_input_tokens"],
            output: &["output_tokens"],
            ..Figures::NONE
        }
    }
}
