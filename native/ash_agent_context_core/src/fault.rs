//! Why a provider's answer cannot be used, and whether asking again helps.

use std::borrow::Cow;
use std::fmt;

/// Why a response cannot be read or used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The provider says that something went wrong.
    Provider {
        /// Its name for it, such as `overloaded_error`.
        code: Option<Box<str>>,
        /// Its words.
        message: Option<Box<str>>,
        /// Whether asking again may help.
        again: bool,
        /// Milliseconds that it asks to wait.
        after: Option<u64>,
    },
    /// The bytes are not what the protocol says.
    Unreadable(Cow<'static, str>),
    /// A document is not JSON.
    NotJson {
        /// In which way.
        problem: Box<str>,
        /// The byte of the document where that shows.
        byte: usize,
    },
    /// More bytes than are allowed.
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// More levels of nesting than are read.
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// The body ended before the response did.
    CutOff,
    /// The response is still open.
    Open,
    /// The provider has yet to finish the response, which can be asked for again.
    Queued,
    /// The response takes no more bytes: it was interrupted.
    Interrupted,
    /// More has to be done at once than is allowed; nothing was.
    TooMuchWork,
}

impl Fault {
    /// Bytes that are not what they should be.
    pub(crate) fn unreadable(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Unreadable(why.into())
    }

    /// Whether asking the provider again may help.
    #[must_use]
    pub const fn again(&self) -> bool {
        match self {
            Self::Provider { again, .. } => *again,
            Self::CutOff | Self::Unreadable(_) | Self::NotJson { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider { code, message, .. } => write!(
                f,
                "the provider says {:?}: {:?}",
                code.as_deref().unwrap_or_default(),
                message.as_deref().unwrap_or_default()
            ),
            Self::Unreadable(why) => write!(f, "the response cannot be read: {why}"),
            Self::NotJson { problem, byte } => {
                write!(
                    f,
                    "the response cannot be read: not JSON ({problem}) at byte {byte}"
                )
            }
            Self::TooLarge { limit } => write!(f, "the response has more than {limit} bytes"),
            Self::TooDeep { limit } => write!(f, "the response has more than {limit} levels"),
            Self::CutOff => write!(f, "the body ended before the response did"),
            Self::Open => write!(f, "the response is not complete yet"),
            Self::Queued => write!(f, "the provider is still working on the response"),
            Self::Interrupted => write!(f, "the response was interrupted"),
            Self::TooMuchWork => write!(f, "more to do at once than is allowed"),
        }
    }
}

impl std::error::Error for Fault {}
