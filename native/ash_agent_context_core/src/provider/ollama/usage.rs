//! The keys under which Ollama reports tokens.

use super::Room;
use crate::provider::figures::{FigureKind::*, Figures};
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[
                (WholeInput, &["prompt_eval_count"]),
                (Output, &["eval_count"]),
            ],
            ..Figures::NONE
        }
    }
}
