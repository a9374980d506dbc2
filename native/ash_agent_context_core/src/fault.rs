//! Why a provider's answer cannot be used, and whether asking again helps.

use std::borrow::Cow;
use std::fmt;

use crate::failure::FailureKind;
use crate::reason::{Detail, Reason};

/// The reason why a response cannot be read or used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The provider reports an error.
    Provider {
        /// Its name for it, such as `overloaded_error`.
        code: Option<Box<str>>,
        /// Its words.
        message: Option<Box<str>>,
        /// The kind of failure.
        kind: FailureKind,
        /// Asking again may help.
        again: bool,
        /// Milliseconds that it asks to wait.
        after: Option<u64>,
    },
    /// The bytes do not follow the protocol.
    Unreadable(Cow<'static, str>),
    /// A document is not JSON.
    NotJson {
        /// The problem, in the reader's words.
        problem: Box<str>,
        /// The byte of the document at which it was found.
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
    /// A piece has more work than is allowed at once; nothing was read.
    TooMuchWork,
}

impl Fault {
    /// Returns the reason that callers match on.
    #[must_use]
    pub fn reason(&self) -> Reason<'_> {
        let (name, detail) = match self {
            Self::Provider { code, .. } => ("provider", Some(code.into())),
            Self::Unreadable(why) => ("invalid_response", Some(why.into())),
            Self::NotJson { problem, byte } => {
                let text = format!("not JSON: {problem}, at byte {byte}");
                ("invalid_response", Some(Detail::Text(text.into())))
            }
            Self::TooLarge { limit } => ("response_too_large", Some(limit.into())),
            Self::TooDeep { limit } => ("too_deep", Some(limit.into())),
            Self::CutOff => ("incomplete", None),
            Self::Open => ("open", None),
            Self::Queued => ("queued", None),
            Self::Interrupted => ("interrupted", None),
            Self::TooMuchWork => ("too_much_work", None),
        };
        let details = detail.into_iter().collect();
        Reason { name, details }
    }

    /// Returns the kind of failure.
    #[must_use]
    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::Provider { kind, .. } => *kind,
            Self::CutOff => FailureKind::Closed,
            Self::Open | Self::Queued | Self::Interrupted | Self::TooMuchWork => {
                FailureKind::InvalidRequest
            }
            _ => FailureKind::InvalidResponse,
        }
    }

    /// Returns the provider's own words.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Provider { message, .. } => message.as_deref(),
            _ => None,
        }
    }

    /// Returns the milliseconds that the provider asks to wait.
    #[must_use]
    pub const fn after(&self) -> Option<u64> {
        match self {
            Self::Provider { after, .. } => *after,
            _ => None,
        }
    }

    /// Makes a fault for bytes that do not follow the protocol.
    pub(crate) fn unreadable(why: impl Into<Cow<'static, str>>) -> Self {
        Self::Unreadable(why.into())
    }

    /// Returns true if asking the provider again may help.
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
        self.reason().fmt(f)?;
        self.message()
            .map_or(Ok(()), |words| write!(f, ", {words}"))
    }
}

impl std::error::Error for Fault {}
