//! The reason of an error as callers match on it: a name and details. The core has no other words for errors; the Elixir
//! modules `AshAgent.Context.Error` and `AshAgent.Response.Error` explain it in sentences.

use std::borrow::Cow;
use std::fmt;

use crate::value::word::words;
use crate::value::Value;

/// A reason: the atom alone, or a tuple of the atom and the details.
#[derive(Debug)]
pub struct Reason<'a> {
    /// The name of the atom.
    pub name: &'static str,
    /// The details, in the order of the tuple.
    pub details: Vec<Detail<'a>>,
}

/// A detail of a reason.
#[derive(Debug)]
pub enum Detail<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// A list of texts.
    Texts(&'a [Box<str>]),
    /// A word of the core's own, as an atom.
    Word(&'static str),
    /// A count.
    Count(u64),
    /// A number as it was given.
    Number(i64),
    /// A value as it was given.
    Value(&'a Value),
    /// A list of values.
    Path(&'a [Value]),
    /// A list of lists of values.
    Paths(&'a [Vec<Value>]),
    /// A range of iterations.
    Range(u64, u64),
    /// `nil`.
    Nothing,
}

/// Declares which detail a field of an error becomes, by its type.
macro_rules! details {
    ($($type:ty = |$of:ident| $detail:expr;)*) => {$(
        impl<'a> From<&'a $type> for Detail<'a> {
            fn from($of: &'a $type) -> Self {
                $detail
            }
        }
    )*};
}

details! {
    Box<str> = |of| Self::Text(Cow::Borrowed(of));
    Cow<'static, str> = |of| Self::Text(Cow::Borrowed(of));
    Option<Box<str>> = |of| of.as_ref().map_or(Self::Nothing, Self::from);
    Vec<Box<str>> = |of| Self::Texts(of);
    &'static str = |of| Self::Word(of);
    Unsupported = |of| Self::Word(of.name());
    u64 = |of| Self::Count(*of);
    usize = |of| Self::Count(u64::try_from(*of).unwrap_or(u64::MAX));
    i64 = |of| Self::Number(*of);
    Value = |of| Self::Value(of);
    Vec<Value> = |of| Self::Path(of);
    Vec<Vec<Value>> = |of| Self::Paths(of);
    (u64, u64) = |of| Self::Range(of.0, of.1);
    Option<(u64, u64)> = |of| of.as_ref().map_or(Self::Nothing, Self::from);
}

words! {
    /// Terms that cannot be stored.
    pub enum Unsupported {
        /// A list whose tail is not a list.
        ImproperList = "improper_list",
        /// A bitstring whose size is not a multiple of 8.
        Bitstring = "bitstring",
    }
}

/// For tests and others who use the core alone: "unknown iteration: 9, 1 to 3".
impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name.replace('_', " "))?;
        for (position, detail) in self.details.iter().enumerate() {
            let before = if position == 0 { ": " } else { ", " };
            write!(f, "{before}{detail}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Texts(texts) => write!(f, "{texts:?}"),
            Self::Word(word) => f.write_str(word),
            Self::Count(count) => write!(f, "{count}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Value(value) => write!(f, "{value:?}"),
            Self::Path(path) => write!(f, "{path:?}"),
            Self::Paths(paths) => write!(f, "{paths:?}"),
            Self::Range(first, last) => write!(f, "{first} to {last}"),
            Self::Nothing => f.write_str("none"),
        }
    }
}
