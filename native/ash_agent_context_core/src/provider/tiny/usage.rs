//! How it reports tokens.

use super::Room;
use crate::provider::figures::Figures;
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            whole_input: &["heard"],
            output: &["spoken"],
            ..Figures::NONE
        }
    }
}
