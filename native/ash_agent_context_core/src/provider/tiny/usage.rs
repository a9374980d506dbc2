//! How it reports tokens.

use super::Room;
use crate::provider::figures::{FigureKind::*, Figures};
use crate::provider::format::Reports;

impl Reports for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[(WholeInput, &["heard"]), (Output, &["spoken"])],
            ..Figures::NONE
        }
    }
}
