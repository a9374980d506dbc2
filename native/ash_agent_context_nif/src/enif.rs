//! The only unsafe code: how the VM calls NIFs, maps and lists made from arrays on the stack, the elements of tuples and maps,
//! and a call of the allocator.
//!
//! Rustler's safe functions for this copy keys and values into vectors of their own, four
//! allocations for a small map. Without them `to_messages/1` takes half the time
//! (`bench/context.exs`, "list 1000 messages"). And its tuples are copied before they tell their size.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{catch_unwind, AssertUnwindSafe};

use rustler::codegen_runtime::{c_char, c_int, c_uint, handle_nif_result};
use rustler::sys::{
    enif_get_tuple, enif_make_list_from_array, enif_make_map_from_arrays, enif_map_iterator_create,
    enif_map_iterator_destroy, enif_map_iterator_get_pair, enif_map_iterator_next, ErlNifEnv,
    ErlNifMapIterator, ErlNifMapIteratorEntry, ErlNifTerm,
};
use rustler::{Env, NifResult, SchedulerFlags, Term};
use smallvec::SmallVec;

/// A NIF, as the VM calls it.
pub trait Nif {
    /// Does its work, on a normal scheduler or on a dirty one.
    fn call<'a>(env: Env<'a>, arguments: &[Term<'a>], is_normal: bool) -> NifResult<Term<'a>>;
}

/// Defines a NIF under a name that ends with a zero byte.
pub const fn define<N: Nif, const IS_NORMAL: bool>(
    name: &'static str,
    arity: usize,
    flags: SchedulerFlags,
) -> rustler::Nif {
    rustler::Nif {
        name: name.as_ptr().cast::<c_char>(),
        arity: arity as c_uint,
        flags: flags as c_uint,
        raw_func: run::<N, IS_NORMAL>,
    }
}

/// Runs a NIF.
///
/// # Safety
/// Only the VM may call it, with its environment and the number of terms that it passes.
unsafe extern "C" fn run<N: Nif, const IS_NORMAL: bool>(
    env: *mut ErlNifEnv,
    count: c_int,
    terms: *const ErlNifTerm,
) -> ErlNifTerm {
    // SAFETY: the caller is the VM.
    unsafe { run_by(N::call, IS_NORMAL, env, count, terms) }
}

/// Runs the function of a NIF: once in the library, and not in two copies of each NIF.
///
/// # Safety
/// As that of `run`.
unsafe fn run_by(
    call: for<'a> fn(Env<'a>, &[Term<'a>], bool) -> NifResult<Term<'a>>,
    is_normal: bool,
    env: *mut ErlNifEnv,
    count: c_int,
    terms: *const ErlNifTerm,
) -> ErlNifTerm {
    let lifetime = ();
    // SAFETY: the arguments are the VM's, and the environment lives until the call ends, as `lifetime` does.
    unsafe {
        let env = Env::new(&lifetime, env);
        let terms = std::slice::from_raw_parts(terms, usize::try_from(count).unwrap_or(0));
        let mut arguments: SmallVec<[Term<'_>; 6]> = SmallVec::new();
        arguments.extend(terms.iter().map(|term| Term::new(env, *term)));
        let call = AssertUnwindSafe(|| call(env, &arguments, is_normal));
        handle_nif_result(catch_unwind(call), env).apply(env)
    }
}

/// Terms of one environment.
pub struct Terms<'e> {
    env: Env<'e>,
    raw: SmallVec<[ErlNifTerm; 16]>,
}

impl<'e> Terms<'e> {
    pub fn new(env: Env<'e>) -> Self {
        Self {
            env,
            raw: SmallVec::new(),
        }
    }

    /// Adds a term. The lifetime ensures that it is of the same environment.
    pub fn push(&mut self, term: Term<'e>) {
        self.raw.push(term.as_c_arg());
    }

    /// Makes a list of the terms.
    pub fn list(&self) -> Term<'e> {
        let Ok(count) = u32::try_from(self.raw.len()) else {
            return Term::list_new_empty(self.env);
        };
        // SAFETY: the pointer and the count are those of a live array, all terms in it are of
        // this environment, and the new term is, too.
        unsafe {
            let list = enif_make_list_from_array(self.env.as_c_arg(), self.raw.as_ptr(), count);
            Term::new(self.env, list)
        }
    }

    /// Makes a map with the terms as keys, `None` when two of them are equal.
    pub fn map(&self, values: &Self) -> Option<Term<'e>> {
        make_map(self.env, &self.raw, &values.raw)
    }
}

/// Makes a map of a fixed number of fields, `None` when two keys are equal.
pub fn map<'e, const N: usize>(
    env: Env<'e>,
    keys: [Term<'e>; N],
    values: [Term<'e>; N],
) -> Option<Term<'e>> {
    let raw = |terms: [Term<'e>; N]| terms.map(|term| term.as_c_arg());
    make_map(env, &raw(keys), &raw(values))
}

fn make_map<'e>(env: Env<'e>, keys: &[ErlNifTerm], values: &[ErlNifTerm]) -> Option<Term<'e>> {
    if keys.len() != values.len() {
        return None;
    }
    let mut map = MaybeUninit::<ErlNifTerm>::uninit();
    // SAFETY: both pointers are those of live arrays of this length, all terms in them are of this environment (the
    // callers' lifetimes are the same), and `map` is set when the call succeeds.
    unsafe {
        let made = enif_make_map_from_arrays(
            env.as_c_arg(),
            keys.as_ptr(),
            values.as_ptr(),
            keys.len(),
            map.as_mut_ptr(),
        );
        (made != 0).then(|| Term::new(env, map.assume_init()))
    }
}

/// The elements of a tuple.
///
/// Terms as the VM has them take a word; with their environment beside them they take three, and hold padding that the
/// processor waits for whenever they are moved.
pub struct ListElements<'e> {
    env: Env<'e>,
    rest: std::slice::Iter<'e, ErlNifTerm>,
}

impl<'e> ListElements<'e> {
    /// Returns the elements of a tuple, `None` for other terms.
    pub fn of(tuple: Term<'e>) -> Option<Self> {
        let (mut arity, mut elements) = (0, MaybeUninit::<*const ErlNifTerm>::uninit());
        let env = tuple.get_env();
        // SAFETY: both pointers are those of live variables, which the call sets when it succeeds.
        let is_tuple = unsafe {
            enif_get_tuple(
                env.as_c_arg(),
                tuple.as_c_arg(),
                &mut arity,
                elements.as_mut_ptr(),
            )
        };
        let arity = usize::try_from(arity).ok().filter(|_| is_tuple == 1)?;
        // SAFETY: the call succeeded, and a tuple stays where it is as long as its environment lives.
        let elements = unsafe { std::slice::from_raw_parts(elements.assume_init(), arity) };
        let rest = elements.iter();
        Some(Self { env, rest })
    }

    /// Returns how many elements are left.
    pub fn len(&self) -> usize {
        self.rest.len()
    }
}

impl<'e> Iterator for ListElements<'e> {
    type Item = Term<'e>;

    fn next(&mut self) -> Option<Term<'e>> {
        let element = *self.rest.next()?;
        // SAFETY: an element is of the environment of its tuple.
        Some(unsafe { Term::new(self.env, element) })
    }
}

/// The entries of a map.
pub struct MapPairs<'e> {
    env: Env<'e>,
    rest: ErlNifMapIterator,
}

impl<'e> MapPairs<'e> {
    /// Returns the entries of a map, `None` for other terms.
    pub fn of(map: Term<'e>) -> Option<Self> {
        let env = map.get_env();
        let mut rest = MaybeUninit::uninit();
        // SAFETY: the call sets the iterator when it succeeds.
        let is_map = unsafe {
            enif_map_iterator_create(
                env.as_c_arg(),
                map.as_c_arg(),
                rest.as_mut_ptr(),
                ErlNifMapIteratorEntry::ERL_NIF_MAP_ITERATOR_HEAD,
            )
        };
        // SAFETY: the call succeeded.
        (is_map != 0).then(|| Self {
            env,
            rest: unsafe { rest.assume_init() },
        })
    }
}

impl<'e> Iterator for MapPairs<'e> {
    type Item = (Term<'e>, Term<'e>);

    fn next(&mut self) -> Option<Self::Item> {
        let env = self.env.as_c_arg();
        let (mut key, mut value) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the iterator was made in this environment and lives; the call sets both terms when it succeeds, and
        // they are of the environment of their map.
        unsafe {
            let some = enif_map_iterator_get_pair(
                env,
                &mut self.rest,
                key.as_mut_ptr(),
                value.as_mut_ptr(),
            );
            if some == 0 {
                return None;
            }
            enif_map_iterator_next(env, &mut self.rest);
            let term = |term: MaybeUninit<_>| Term::new(self.env, term.assume_init());
            Some((term(key), term(value)))
        }
    }
}

impl Drop for MapPairs<'_> {
    fn drop(&mut self) {
        // SAFETY: the iterator was made in this environment, and this is its only end.
        unsafe { enif_map_iterator_destroy(self.env.as_c_arg(), &mut self.rest) }
    }
}

/// A term that waits to be read, without its environment.
#[derive(Clone, Copy)]
pub struct Waiting<'e>(ErlNifTerm, PhantomData<Env<'e>>);

impl<'e> Waiting<'e> {
    /// Keeps the term's own word of the three.
    pub fn new(term: Term<'e>) -> Self {
        Self(term.as_c_arg(), PhantomData)
    }

    /// Returns the term. The lifetime ensures that it is of the same environment.
    pub fn term(self, env: Env<'e>) -> Term<'e> {
        // SAFETY: it was a term of this environment.
        unsafe { Term::new(env, self.0) }
    }
}

#[cfg(not(system_allocator))]
extern "C" {
    /// A function of mimalloc.
    fn mi_collect(force: bool);
}

/// Gives free memory back to the system, which takes as long as there is much of it.
pub fn give_back() {
    // SAFETY: it may be called by any thread at any time; it has no precondition.
    #[cfg(not(system_allocator))]
    unsafe {
        mi_collect(true);
    }
}
