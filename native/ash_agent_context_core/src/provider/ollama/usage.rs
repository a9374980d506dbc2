//! How Ollama reports tokens.

use super::Room;
use crate::provider::figures::Figures;
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            whole_input: &["prompt_eval_count"],
            output: &["eval_count"],
            ..Figures::NONE
        }
    }
}
