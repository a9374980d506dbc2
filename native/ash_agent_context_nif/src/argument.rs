//! How arguments are read: each type once, within the limits of the scheduler. The cost of an argument's data is counted
//! here, so that the table (`nifs.rs`) need not mention it.

use std::ops::Deref;

use ash_agent_context_core::{
    has_masks, text_cost, Context, Cost, Log, Map, Size, Stamp, Time, Trust, Value, BODY_DEPTH,
    MAX_DEPTH, NESTING,
};
use rustler::{Atom, Env, Term};

use crate::atoms;
use crate::clock;
use crate::decode;
use crate::encode::Encoder;
use crate::error::NifError;
use crate::resource::{Handle, Held, Holder};
use crate::scheduler::Scheduler;

/// A type that functions take as an argument.
pub trait Argument<'a>: Sized {
    /// Reads it from a term.
    fn read(term: Term<'a>, scheduler: Scheduler) -> Result<Self, NifError>;
}

/// Reads a part of an argument: a wrong type is an error that is returned, since no guard in Elixir finds it.
fn part<'a, T: Argument<'a>>(term: Term<'a>, scheduler: Scheduler) -> Result<T, NifError> {
    T::read(term, scheduler).map_err(|error| match error {
        NifError::Raise => NifError::BadArg,
        other => other,
    })
}

/// Reads a field of a map of options.
pub fn field<'a, T: Argument<'a>>(
    options: Term<'a>,
    key: Atom,
    scheduler: Scheduler,
) -> Result<T, NifError> {
    part(options.map_get(key)?, scheduler)
}

/// Declares types of arguments, each with the function that reads one.
macro_rules! arguments {
    ($($type:ty = |$term:ident, $scheduler:ident| $read:expr;)*) => {
        $(impl<'a> $crate::argument::Argument<'a> for $type {
            fn read($term: rustler::Term<'a>, $scheduler: $crate::scheduler::Scheduler) -> Result<Self, $crate::error::NifError> {
                $read
            }
        })*
    };
}
pub(crate) use arguments;

/// Declares types whose fields are read from a map under their own names.
macro_rules! options {
    ($($type:ty { $($key:ident $(: $field:ident)?),* $(,)? })*) => {
        $crate::argument::arguments! {
            $($type = |options, scheduler| Ok(Self {
                $($key: $crate::argument::field(options, $crate::argument::key!($key $($field)?), scheduler)?,)*
            });)*
        }
    };
}
pub(crate) use options;

/// Declares types whose fields are read from the elements of a tuple, in this order.
macro_rules! elements {
    ($($type:ty { $($field:ident),* $(,)? })*) => {
        $crate::argument::arguments! {
            $($type = |term, scheduler| {
                let ($($field),*) = $crate::argument::Argument::read(term, scheduler)?;
                Ok(Self { $($field),* })
            };)*
        }
    };
}
pub(crate) use elements;

/// The atom for a field's key: another name if one is given, or the field's own.
macro_rules! key {
    ($field:ident) => {
        $crate::atoms::$field()
    };
    ($field:ident $key:ident) => {
        $crate::atoms::$key()
    };
}
pub(crate) use key;

/// A list of parts or calls, or a text.
pub struct Items(pub Value);

/// A list of results.
pub struct Results(pub Value);

/// The map of `to_map/1`.
pub struct Attributes(pub Value);

/// A dumped context.
pub struct Document(pub Value);

/// A foreign history.
pub struct Body(pub Value);

/// A map of metadata, or `nil`.
pub struct Metadata(pub Option<Map>);

/// An id, or a new one for `nil`.
pub struct Id(pub String);

/// JSON text that is going to be read.
pub struct Json<'a>(pub &'a [u8]);

arguments! {
    Term<'a> = |term, _scheduler| Ok(term);
    Atom = |term, _scheduler| term.decode().map_err(|_| NifError::Raise);
    bool = |term, _scheduler| term.decode().map_err(|_| NifError::Raise);
    i64 = |term, _scheduler| decode::number(term).ok_or(NifError::Raise);
    u16 = |term, scheduler| Ok(u16::try_from(i64::read(term, scheduler)?).unwrap_or_default());
    // A negative number means zero.
    u64 = |term, scheduler| Ok(u64::try_from(i64::read(term, scheduler)?).unwrap_or(0));
    usize = |term, scheduler| Ok(usize::try_from(u64::read(term, scheduler)?).unwrap_or(usize::MAX));
    &'a str = |term, scheduler| {
        let text: &str = term.decode()?;
        scheduler.allow(Size::new(1, text.len()))?;
        Ok(text)
    };
    String = |term, _scheduler| Ok(term.decode()?);
    // Its reader has a limit of its own.
    &'a [u8] = |term, _scheduler| {
        let binary: rustler::Binary<'a> = term.decode().map_err(|_| NifError::Raise)?;
        Ok(binary.as_slice())
    };
    Json<'a> = |term, scheduler| {
        let text = <&[u8]>::read(term, scheduler)?;
        scheduler.allow(text_cost(text))?;
        Ok(Self(text))
    };
    Time = |term, scheduler| clock::at(term, scheduler);
    Id = |term, _scheduler| clock::id(term).map(Self);
    Value = |term, scheduler| decode::value(term, MAX_DEPTH, scheduler);
    Items = |term, scheduler| decode::value(term, decode::ITEMS, scheduler).map(Self);
    Results = |term, scheduler| decode::value(term, decode::RESULTS, scheduler).map(Self);
    Attributes = |term, scheduler| decode::value(term, decode::ATTRIBUTES, scheduler).map(Self);
    Metadata = |term, scheduler| decode::metadata(term, scheduler).map(Self);
    Document = |term, scheduler| {
        let document = decode::json(term, NESTING, scheduler)?;
        // Patterns take milliseconds to compile.
        if has_masks(&document) {
            scheduler.allow(Cost::LONG)?;
        }
        Ok(Self(document))
    };
    Body = |term, scheduler| {
        let body = decode::value(term, BODY_DEPTH, scheduler)?;
        // It may be text, and is decoded, written as it is kept and taken apart.
        let size = body.size();
        let terms = size.terms.max(size.bytes / 8);
        scheduler.allow(Cost::from(Size::new(terms, size.bytes)).times(3))?;
        Ok(Self(body))
    };
    Stamp = |term, scheduler| {
        let (Metadata(metadata), at) = part(term, scheduler)?;
        Ok(Self { at, metadata })
    };
    // What is asked of the log alone.
    &'a Log = |term, scheduler| Ok(<&Context>::read(term, scheduler)?);
}

elements! {
    Trust { approvals, structs }
}

impl<'a, T: Held> Argument<'a> for &'a T {
    fn read(term: Term<'a>, _scheduler: Scheduler) -> Result<Self, NifError> {
        let holder: &Holder<T> = term.decode().map_err(|_| NifError::Raise)?;
        Ok(&holder.0)
    }
}

impl Deref for Id {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a, T: Argument<'a>> Argument<'a> for Option<T> {
    fn read(term: Term<'a>, scheduler: Scheduler) -> Result<Self, NifError> {
        let is_given = term != atoms::nil().to_term(term.get_env());
        is_given.then(|| part(term, scheduler)).transpose()
    }
}

impl<'a, T: Argument<'a>> Argument<'a> for Vec<T> {
    fn read(term: Term<'a>, scheduler: Scheduler) -> Result<Self, NifError> {
        let items: rustler::ListIterator<'a> = term.decode()?;
        let mut read = Self::new();
        for item in items {
            read.push(part(item, scheduler)?);
        }
        Ok(read)
    }
}

macro_rules! tuples {
    ($($($type:ident),*;)*) => {
        $(impl<'a, $($type: Argument<'a>),*> Argument<'a> for ($($type,)*) {
            fn read(term: Term<'a>, scheduler: Scheduler) -> Result<Self, NifError> {
                let mut elements = crate::enif::ListElements::of(term).ok_or(NifError::BadArg)?;
                let read = ($({
                    let element = elements.next().ok_or(NifError::BadArg)?;
                    part::<$type>(element, scheduler)?
                },)*);
                match elements.next() {
                    None => Ok(read),
                    Some(_) => Err(NifError::BadArg),
                }
            }
        })*
    };
}

tuples! {
    A, B;
    A, B, C;
    A, B, C, D;
    A, B, C, D, E;
    A, B, C, D, E, F;
    A, B, C, D, E, F, G;
}

/// A value with its handle and the environment of the call: long texts of a context leave as binaries that point into it.
pub struct On<'a, T: Held> {
    pub env: Env<'a>,
    pub handle: Handle<T>,
    pub scheduler: Scheduler,
}

impl<'a, T: Held> Argument<'a> for On<'a, T> {
    fn read(term: Term<'a>, scheduler: Scheduler) -> Result<Self, NifError> {
        Ok(Self {
            env: term.get_env(),
            handle: term.decode().map_err(|_| NifError::Raise)?,
            scheduler,
        })
    }
}

impl<T: Held> Deref for On<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.handle.0
    }
}

impl<'a> On<'a, Context> {
    /// Returns an encoder for terms that point into the context.
    pub fn encoder(&self) -> Encoder<'_, 'a> {
        Encoder::new(self.env, Some(&self.handle))
    }
}
