//! Says what NIFs take. An argument is decoded by its type before the work begins, within what the scheduler allows.

use std::marker::PhantomData;

use ash_agent_context_core::{Map, Time, Trust, Value};
use rustler::{Atom, Binary, Decoder, NifResult, Resource, ResourceArc, Term};

use crate::clock;
use crate::decode::{self, Around, Number};
use crate::error::NifError;
use crate::scheduler::Scheduler;
use crate::words::Word;

/// An argument, and what the work gets for it.
pub trait Argument {
    /// Holds what the work gets.
    type Read;

    /// Reads it.
    fn read(self, scheduler: Scheduler) -> Result<Self::Read, NifError>;
}

impl<T: Resource> Argument for ResourceArc<T> {
    type Read = Self;

    fn read(self, _scheduler: Scheduler) -> Result<Self, NifError> {
        Ok(self)
    }
}

macro_rules! as_given {
    ($($type:ty),*) => {
        $(impl Argument for $type {
            type Read = Self;

            fn read(self, _scheduler: Scheduler) -> Result<Self, NifError> {
                Ok(self)
            }
        })*
    };
}

as_given!(Atom, Binary<'_>, Term<'_>, bool);

impl Argument for Number {
    type Read = i64;

    fn read(self, _scheduler: Scheduler) -> Result<i64, NifError> {
        Ok(self.0)
    }
}

/// A number of which a negative one is as good as zero.
pub struct Unsigned(pub u64);

impl<'a> Decoder<'a> for Unsigned {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        let Number(number) = term.decode()?;
        Ok(Self(u64::try_from(number).unwrap_or(0)))
    }
}

impl Unsigned {
    /// As a size.
    pub fn size(&self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Argument for Unsigned {
    type Read = u64;

    fn read(self, _scheduler: Scheduler) -> Result<u64, NifError> {
        Ok(self.0)
    }
}

/// One of the words that the core knows.
pub struct Worded<T>(pub T);

impl<'a, T: Word> Decoder<'a> for Worded<T> {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        let word = T::of(term.decode()?).map_err(|_| rustler::Error::BadArg)?;
        Ok(Self(word))
    }
}

impl<T: Word> Argument for Worded<T> {
    type Read = T;

    fn read(self, _scheduler: Scheduler) -> Result<T, NifError> {
        Ok(self.0)
    }
}

/// Anything that can be decoded. A value that cannot is an error that is returned, not raised: it may be a text that is not
/// UTF-8, which no guard in Elixir finds.
pub struct Of<'a, T>(Term<'a>, PhantomData<T>);

impl<'a, T: 'a> Decoder<'a> for Of<'a, T> {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        Ok(Self(term, PhantomData))
    }
}

impl<'a, T: Decoder<'a>> Argument for Of<'a, T> {
    type Read = T;

    fn read(self, _scheduler: Scheduler) -> Result<T, NifError> {
        Ok(self.0.decode()?)
    }
}

macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident => $read:ty = |$term:ident, $scheduler:ident| $body:expr;)*) => {
        $($(#[$doc])*
        pub struct $name<'a>(Term<'a>);

        impl<'a> Decoder<'a> for $name<'a> {
            fn decode(term: Term<'a>) -> NifResult<Self> {
                Ok(Self(term))
            }
        }

        impl Argument for $name<'_> {
            type Read = $read;

            fn read(self, $scheduler: Scheduler) -> Result<$read, NifError> {
                let $term = self.0;
                $body
            }
        })*
    };
}

arguments! {
    /// A value.
    Any => Value = |term, scheduler| decode::value(term, Around::Nothing, scheduler);
    /// A list of parts or calls, or a text.
    Items => Value = |term, scheduler| decode::value(term, Around::Items, scheduler);
    /// A list of results.
    Results => Value = |term, scheduler| decode::value(term, Around::Results, scheduler);
    /// Stands for what `to_map/1` gives.
    Attributes => Value = |term, scheduler| decode::value(term, Around::Attributes, scheduler);
    /// A dumped context.
    Document => Value = |term, scheduler| decode::value(term, Around::Document, scheduler);
    /// A foreign history.
    Body => Value = |term, scheduler| decode::value(term, Around::Body, scheduler);
    /// A time, or `nil` for now.
    At => Time = |term, scheduler| clock::at(term, scheduler);
    /// An id, or `nil` for a new one.
    Id => String = |term, _scheduler| clock::id(term);
    /// A map of metadata, or `nil`.
    Metadata => Option<Map> = |term, scheduler| decode::metadata(term, scheduler);
    /// `{approvals, structs}`
    Trusted => Trust = |term, _scheduler| {
        let env = term.get_env();
        let (approvals, structs): (Atom, Atom) = term.decode()?;
        let name = |atom: Atom| atom.to_term(env).atom_to_string();
        Trust::from_names(&name(approvals)?, &name(structs)?).ok_or(NifError::BadArg)
    };
}
