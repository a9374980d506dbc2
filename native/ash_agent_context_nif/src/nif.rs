//! How NIFs are defined: each twice, for normal schedulers and for dirty ones, see `scheduler.rs`.

use ash_agent_context_core::{Context, Error};
use rustler::{NifResult, Term};

use crate::error::NifError;

/// A raised error, or what is returned.
pub type Returned<'a> = NifResult<Result<Term<'a>, NifError>>;

/// Defines a NIF for normal schedulers and its twin for dirty ones. The arguments after the scheduler are those of the NIF,
/// see `argument.rs`.
macro_rules! nif {
    (
        $normal:ident,
        $dirty:ident,
        |$env:ident, $scheduler:ident $(, $arg:ident: $type:ty)* $(,)?| $body:expr $(,)?
    ) => {
        const _: () = {
            // An argument of a wrong type raises, which `Native` explains; what the work refuses is returned.
            fn work<'a>(
                $env: rustler::Env<'a>,
                $scheduler: $crate::scheduler::Scheduler,
                $($arg: rustler::Term<'a>),*
            ) -> $crate::nif::Returned<'a> {
                $(let $arg: $type = $arg.decode()?;)*
                let work = move || -> Result<rustler::Term<'a>, $crate::error::NifError> {
                    $(let $arg = $crate::argument::Argument::read($arg, $scheduler)?;)*
                    $body
                };
                Ok(work())
            }

            #[rustler::nif]
            fn $normal<'a>(
                env: rustler::Env<'a>,
                $($arg: rustler::Term<'a>),*
            ) -> $crate::nif::Returned<'a> {
                let started = std::time::SystemTime::now();
                let reply = work(env, $crate::scheduler::Scheduler::Normal(started), $($arg),*);
                $crate::scheduler::charge(env, started);
                reply
            }

            #[rustler::nif(schedule = "DirtyCpu")]
            fn $dirty<'a>(
                env: rustler::Env<'a>,
                $($arg: rustler::Term<'a>),*
            ) -> $crate::nif::Returned<'a> {
                let reply = work(env, $crate::scheduler::Scheduler::Dirty, $($arg),*);
                $crate::resource::note_freed();
                reply
            }
        };
    };
}

/// Defines a NIF that answers with the context that a change makes of its first argument. Of a pair, the first is the cost
/// of the change.
macro_rules! change {
    (
        $normal:ident,
        $dirty:ident,
        |$context:ident $(, $arg:ident: $type:ty)* $(,)?| ($cost:expr, $next:expr $(,)?) $(,)?
    ) => {
        $crate::nif::nif!(
            $normal,
            $dirty,
            |env, scheduler, handle: $crate::resource::ContextHandle $(, $arg: $type)*| {
                let $context = handle.get();
                scheduler.allow($cost)?;
                Ok($crate::resource::answer(env, $crate::nif::Changed::get($next)?))
            }
        );
    };
    (
        $normal:ident,
        $dirty:ident,
        |$context:ident $(, $arg:ident: $type:ty)* $(,)?| $next:expr $(,)?
    ) => {
        $crate::nif::change!($normal, $dirty, |$context $(, $arg: $type)*| (
            ash_agent_context_core::Cost::default(),
            $next
        ));
    };
}

/// A changed context, or why it could not be changed.
pub trait Changed {
    /// It.
    fn get(self) -> Result<Context, Error>;
}

impl Changed for Context {
    fn get(self) -> Result<Context, Error> {
        Ok(self)
    }
}

impl Changed for Result<Context, Error> {
    fn get(self) -> Result<Context, Error> {
        self
    }
}

pub(crate) use {change, nif};
