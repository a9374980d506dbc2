//! How OpenAI Chat Completions reports tokens.

use super::Room;
use crate::provider::dialect::chat::usage::FIGURES;
use crate::provider::figures::Figures;
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &FIGURES
    }
}
