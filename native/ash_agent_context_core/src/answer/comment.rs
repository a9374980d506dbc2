//! Comments beside JSON, byte by byte.

/// A comment, up to the byte that was read last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Comment {
    #[default]
    None,
    /// A slash that may begin one.
    Slash,
    Line,
    Block,
    /// A star that may end it.
    Star,
}

impl Comment {
    /// Reads a byte. Returns the next state; `None` if no comment began.
    pub fn feed(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Slash, b'/') => Self::Line,
            (Self::Slash, b'*') => Self::Block,
            (Self::Slash, _) => return None,
            (Self::Line, b'\n') | (Self::Star, b'/') => Self::None,
            (Self::Line, _) => Self::Line,
            (_, b'*') => Self::Star,
            _ => Self::Block,
        })
    }
}
